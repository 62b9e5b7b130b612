/* report_run.c - run.json in words: what was run, where, when, how it ended. */
#include "report/report.h"

#include <assert.h>
#include <inttypes.h>

static void append_line(tocsin_string *out, const char *label, const tocsin_json_value *value)
{
    const char *text = tocsin_json_get_text(value);
    if (text) {
        tocsin_string_printf(out, "%-9s ", label);
        tocsin_report_append_visible(out, text);
        tocsin_string_append_char(out, '\n');
    }
}

/* Words with characters that a shell may read otherwise are quoted. */
static void append_word(tocsin_string *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "@%+=:,./_-";
    if (word[0] && word[strspn(word, plain)] == '\0') {
        tocsin_string_append_text(out, word);
        return;
    }
    tocsin_string_append_char(out, '\'');
    for (const char *next = word; *next; next++) {
        char character[] = {*next, '\0'};
        if (*next == '\'') {
            tocsin_string_append_text(out, "'\\''");
        } else {
            tocsin_report_append_visible(out, character);
        }
    }
    tocsin_string_append_char(out, '\'');
}

static void append_command(tocsin_string *out, const tocsin_json_value *command)
{
    size_t count = tocsin_json_get_count(command);
    tocsin_string_append_text(out, "command  ");
    for (size_t i = 0; i < count; i++) {
        const char *word = tocsin_json_get_text(tocsin_json_get_item(command, i));
        tocsin_string_append_char(out, ' ');
        append_word(out, word ? word : "?");
    }
    tocsin_string_append_char(out, '\n');
}

/* What the audit before the job found (docs/recording.md). */
static void append_audit(tocsin_string *out, const tocsin_json_value *audit)
{
    bool changed;
    if (tocsin_json_get_bool(tocsin_json_get_member(audit, "changed"), &changed)) {
        tocsin_string_printf(out, "audit     %s\n",
                             changed ? "being recorded CHANGED what a training here computed"
                                     : "being recorded changed no bit of a training here");
    }
}

static void append_run(tocsin_string *out, const tocsin_json_value *run)
{
    int64_t exit_code;
    append_command(out, tocsin_json_get_member(run, "command"));
    append_line(out, "folder", tocsin_json_get_member(run, "cwd"));
    append_line(out, "host", tocsin_json_get_member(run, "host"));
    append_line(out, "mode", tocsin_json_get_member(run, "mode"));
    append_line(out, "started", tocsin_json_get_member(run, "started"));
    append_line(out, "ended", tocsin_json_get_member(run, "ended"));
    if (tocsin_json_get_integer(tocsin_json_get_member(run, "exit"), &exit_code)) {
        tocsin_string_printf(out, "exit      %" PRId64 "\n", exit_code);
    }
    append_audit(out, tocsin_json_get_member(run, "observer_audit"));
    append_line(out, "tocsin",
                tocsin_json_get_member(tocsin_json_get_member(run, "versions"), "tocsin"));
}

tocsin_status tocsin_report_print_run(const char *run_json, FILE *stream, tocsin_error *error)
{
    assert(run_json && stream);
    tocsin_json_value *run = NULL;
    tocsin_string out = {0};

    TOCSIN_TRY(tocsin_json_parse(run_json, strlen(run_json), "run.json", &run, error));
    append_run(&out, run);
    tocsin_json_free(run);
    return tocsin_report_write_out(&out, stream, error);
}
