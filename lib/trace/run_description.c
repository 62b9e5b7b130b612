/* run_description.c - run.json is written: by the command that starts a run, again when it ends.
 *
 * The file is replaced as a whole, so a reader that follows the run never sees half of it.
 */
#include "base/base.h"

#include <assert.h>
#include <time.h>
#include <tocsin/run.h>
#include <tocsin/version.h>

#define SECONDS_MAX INT64_C(253402300799) /* 9999-12-31T23:59:59Z */

static void write_time(tocsin_json *json, const char *key, int64_t seconds)
{
    assert(seconds >= 0 && seconds <= SECONDS_MAX);
    time_t moment = (time_t)seconds;
    struct tm utc;
    char text[sizeof "9999-12-31T23:59:59Z"];

    tocsin_json_key(json, key);
    if (gmtime_r(&moment, &utc) && strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc) > 0) {
        tocsin_json_text(json, text);
    } else {
        tocsin_json_null(json);
    }
}

static void write_description(tocsin_json *json, const tocsin_run_description *description)
{
    tocsin_json_begin_object(json);
    tocsin_json_put_text(json, "format", "tocsin-run");
    tocsin_json_key(json, "version");
    tocsin_json_integer(json, 1);
    tocsin_json_key(json, "command");
    tocsin_json_begin_array(json);
    for (size_t i = 0; i < description->command_count; i++) {
        tocsin_json_text(json, description->command[i]);
    }
    tocsin_json_end_array(json);
    tocsin_json_put_text(json, "cwd", description->cwd);
    tocsin_json_put_text(json, "host", description->host);
    tocsin_json_put_text(json, "mode", description->mode);
    write_time(json, "started", description->started);
    if (description->has_ended) {
        write_time(json, "ended", description->ended);
        tocsin_json_key(json, "exit");
        tocsin_json_integer(json, description->exit_code);
    }
    if (description->was_audited) {
        tocsin_json_key(json, "observer_audit");
        tocsin_json_begin_object(json);
        tocsin_json_put_text(json, "boundaries",
                             description->boundaries ? description->boundaries : "");
        tocsin_json_key(json, "changed");
        tocsin_json_bool(json, description->audit_changed);
        tocsin_json_end_object(json);
    }
    tocsin_json_key(json, "versions");
    tocsin_json_begin_object(json);
    tocsin_json_put_text(json, "tocsin", TOCSIN_VERSION);
    tocsin_json_end_object(json);
    tocsin_json_end_object(json);
}

tocsin_status tocsin_run_describe(const char *directory, const tocsin_run_description *description,
                                  tocsin_error *error)
{
    assert(directory && description);
    assert(description->command || description->command_count == 0);
    int64_t ended = description->has_ended ? description->ended : 0;
    if (description->started < 0 || description->started > SECONDS_MAX || ended < 0 ||
        ended > SECONDS_MAX) {
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "a time outside years 1970 to 9999");
    }

    tocsin_string text = {0};
    tocsin_string path = {0};
    tocsin_json json = {.out = &text};
    write_description(&json, description);
    tocsin_string_append_char(&text, '\n');
    tocsin_string_printf(&path, "%s/run.json", directory);

    tocsin_status status = tocsin_string_check(&text, error);
    if (status == TOCSIN_OK) {
        status = tocsin_string_check(&path, error);
    }
    if (status == TOCSIN_OK) {
        status = tocsin_file_store(path.text, text.text, text.bytes, true, error);
    }
    tocsin_string_free(&text);
    tocsin_string_free(&path);
    return status;
}
