/* recording.c - a run that is being recorded.
 *
 * The job finds us through environment variables that its children inherit (docs/hooking.md); a
 * folder put in front of PYTHONPATH lets every Python of the job load the recorder when it imports
 * torch. Only files that a run has are ever deleted: --force on another folder is refused.
 */
#include "recording.h"

#include "packages.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NAME_BYTES    64
#define MODULES_BYTES 4096

static int fail_system(const char *what, const char *path)
{
    cli_error("cannot %s %s: %s", what, path, strerror(errno));
    return CLI_INPUT;
}

/* ---- directory ----------------------------------------------------------------------------- */

/* "train" for "python -u examples/train.py": of the last path that ends in ".py", else of the
 * program. */
static void script_name(char *const *command, char name[NAME_BYTES])
{
    const char *script = command[0];
    for (size_t i = 0; command[i]; i++) {
        size_t length = strlen(command[i]);
        if (length > 3 && strcmp(command[i] + length - 3, ".py") == 0) {
            script = command[i];
            break;
        }
    }
    const char *slash = strrchr(script, '/');
    snprintf(name, NAME_BYTES, "%.40s", slash ? slash + 1 : script);
    char *extension = strstr(name, ".py");
    if (extension) {
        *extension = '\0';
    }
}

void cli_recording_default_directory(char *const *command, int64_t started, char path[PATH_MAX])
{
    char name[NAME_BYTES];
    char when[32] = "";
    struct tm utc;
    time_t moment = (time_t)started;

    script_name(command, name);
    if (gmtime_r(&moment, &utc)) {
        strftime(when, sizeof when, "%Y%m%dT%H%M%SZ", &utc);
    }
    snprintf(path, PATH_MAX, "tocsin-%s-%s-%ld", name, when, (long)getpid());
}

static bool is_run_file(const char *name)
{
    return strcmp(name, "run.json") == 0 || strcmp(name, "selection") == 0 ||
           strncmp(name, "process-", strlen("process-")) == 0;
}

int cli_recording_remove_files(const char *path)
{
    DIR *directory = opendir(path);
    if (!directory) {
        return fail_system("read", path);
    }
    int result = CLI_HOLDS;
    struct dirent *entry;
    while (result == CLI_HOLDS && (entry = readdir(directory)) != NULL) {
        if (is_run_file(entry->d_name) && unlinkat(dirfd(directory), entry->d_name, 0) != 0) {
            result = fail_system("remove old files of", path);
        }
    }
    closedir(directory);
    return result;
}

/* Is there anything in it, and is it a run? */
static int inspect(const char *path, bool *is_empty, bool *is_run)
{
    DIR *directory = opendir(path);
    if (!directory) {
        return fail_system("use", path);
    }
    *is_empty = true;
    *is_run = false;
    const struct dirent *entry;
    while ((entry = readdir(directory)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            *is_empty = false;
            *is_run = *is_run || strcmp(entry->d_name, "run.json") == 0;
        }
    }
    closedir(directory);
    return CLI_HOLDS;
}

static int reuse_directory(const char *path, bool force)
{
    bool is_empty = false;
    bool is_run = false;
    int result = inspect(path, &is_empty, &is_run);
    if (result != CLI_HOLDS || is_empty) {
        return result;
    }
    if (is_run && force) {
        return cli_recording_remove_files(path);
    }
    cli_error("%s exists already%s", path, is_run ? "" : " and is not a recording");
    cli_hint(is_run ? "choose another name with -o, or add --force to replace the recording"
                    : "choose another name with -o");
    return CLI_INPUT;
}

static int make_directory(cli_recording *recording)
{
    char path[PATH_MAX];
    const char *wanted = recording->options.directory;
    if (!wanted) {
        cli_recording_default_directory(recording->command, recording->description.started, path);
        wanted = path;
    }
    recording->created = mkdir(wanted, 0777) == 0;
    if (!recording->created && errno != EEXIST) {
        return fail_system("create", wanted);
    }
    if (!recording->created) {
        int result = reuse_directory(wanted, recording->options.force);
        if (result != CLI_HOLDS) {
            return result;
        }
    }
    if (!realpath(wanted, recording->directory)) {
        return fail_system("use", wanted);
    }
    snprintf(recording->selection, sizeof recording->selection, "%s/selection",
             recording->directory);
    return CLI_HOLDS;
}

const char *cli_recording_name(const cli_recording *recording)
{
    assert(recording && recording->directory[0]);
    size_t length = strlen(recording->cwd);
    const char *path = recording->directory;
    bool is_below = strncmp(path, recording->cwd, length) == 0 && path[length] == '/';
    return is_below ? path + length + 1 : path;
}

static int write_description(cli_recording *recording)
{
    tocsin_error error;
    if (tocsin_run_describe(recording->directory, &recording->description, &error) != TOCSIN_OK) {
        return cli_fail(&error);
    }
    return CLI_HOLDS;
}

int cli_recording_prepare(cli_recording *recording, const cli_recording_options *options,
                          char *const *command)
{
    assert(recording && options && command);
    assert(options->mode);
    tocsin_error error;

    *recording = (cli_recording){.options = *options, .command = command};
    if (!command[0]) {
        cli_error("no command to %s", options->mode);
        cli_hint("tocsin %s -- python train.py", options->mode);
        return CLI_INPUT;
    }
    if (cli_launch_check(command, &error) != TOCSIN_OK) {
        return cli_fail(&error);
    }
    if (!getcwd(recording->cwd, sizeof recording->cwd)) {
        return fail_system("find", "the working directory");
    }
    gethostname(recording->host, sizeof recording->host - 1);

    tocsin_run_description *description = &recording->description;
    description->command = (const char *const *)command;
    while (command[description->command_count]) {
        description->command_count++;
    }
    description->cwd = recording->cwd;
    description->host = recording->host;
    description->mode = options->mode;
    description->was_audited = options->was_audited;
    description->audit_changed = options->audit_changed;
    description->boundaries =
        options->boundaries ? options->boundaries : getenv("TOCSIN_BOUNDARIES");
    description->started = (int64_t)time(NULL);

    int result = make_directory(recording);
    if (result != CLI_HOLDS) {
        return result;
    }
    result = write_description(recording);
    if (result != CLI_HOLDS) {
        cli_recording_discard(recording);
    }
    return result;
}

void cli_recording_discard(cli_recording *recording)
{
    assert(recording && recording->directory[0]);
    if (cli_recording_remove_files(recording->directory) == CLI_HOLDS && recording->created) {
        rmdir(recording->directory);
    }
}

/* ---- environment --------------------------------------------------------------------------- */

/* "a:b" of the items. */
static bool join(const cli_texts *texts, char *joined, size_t bytes)
{
    size_t used = 0;
    joined[0] = '\0';
    for (size_t i = 0; texts && i < texts->count; i++) {
        int written = snprintf(joined + used, bytes - used, "%s%s", i ? ":" : "", texts->items[i]);
        if (written < 0 || (size_t)written >= bytes - used) {
            return false;
        }
        used += (size_t)written;
    }
    return true;
}

static int launch(cli_recording *recording, const char *modules, const char *python_path)
{
    const cli_recording_options *options = &recording->options;
    char sample[CLI_NUMBER_BYTES] = "", groups[CLI_NUMBER_BYTES];
    tocsin_error error;

    if (options->sample > 0) {
        snprintf(sample, sizeof sample, "%" PRIu64, options->sample);
    }
    snprintf(groups, sizeof groups, "%" PRIu64, options->groups);
    bool selects = strcmp(options->mode, "run") == 0;
    const cli_launch_variable fixed[] = {
        {"TOCSIN_RUN", recording->directory},
        {"TOCSIN_MODE", options->mode},
        {"TOCSIN_BOUNDARIES",
         options->boundaries ? options->boundaries : getenv("TOCSIN_BOUNDARIES")},
        {"TOCSIN_MODULES", modules[0] ? modules : NULL},
        {"TOCSIN_SELECTION", selects ? recording->selection : NULL},
        {"TOCSIN_SAMPLE", sample[0] ? sample : getenv("TOCSIN_SAMPLE")},
        {"TOCSIN_QUIET", options->quiet ? "1" : getenv("TOCSIN_QUIET")},
        {"TOCSIN_MAP", options->map ? options->map : getenv("TOCSIN_MAP")},
        {"TOCSIN_MAP_GROUPS", options->groups > 0 ? groups : getenv("TOCSIN_MAP_GROUPS")},
        {"PYTHONPATH", python_path},
    };
    enum { FIXED = sizeof fixed / sizeof fixed[0] };
    cli_launch_variable variables[FIXED + RECORDING_VARIABLES_MAX];
    assert(options->variable_count <= RECORDING_VARIABLES_MAX);
    memcpy(variables, fixed, sizeof fixed);
    for (size_t i = 0; i < options->variable_count; i++) {
        variables[FIXED + i] = options->variables[i];
    }
    if (cli_launch_start(&recording->job, recording->command, variables,
                         FIXED + options->variable_count, options->manner, &error) != TOCSIN_OK) {
        return cli_fail(&error);
    }
    return CLI_HOLDS;
}

int cli_recording_start(cli_recording *recording)
{
    assert(recording && recording->directory[0]);
    char inject[PATH_MAX];
    char modules[MODULES_BYTES];
    static char python_path[CLI_PYTHON_PATH_BYTES];

    int result = cli_inject_folder(inject);
    if (result == CLI_HOLDS && !join(recording->options.modules, modules, sizeof modules)) {
        cli_error("the names given with --module are too long together");
        result = CLI_INPUT;
    }
    if (result == CLI_HOLDS) {
        result = cli_lead_python_path(inject, python_path);
    }
    if (result == CLI_HOLDS) {
        result = launch(recording, modules, python_path);
    }
    if (result != CLI_HOLDS) {
        cli_recording_discard(recording);
    }
    return result;
}

/* ---- end ----------------------------------------------------------------------------------- */

int cli_recording_finish(cli_recording *recording)
{
    assert(recording && recording->job.ended);
    cli_launch_end(&recording->job);
    recording->description.has_ended = true;
    recording->description.ended = (int64_t)time(NULL);
    recording->description.exit_code = recording->job.exit_code;
    return write_description(recording);
}

int cli_recording_run(cli_recording *recording)
{
    int result = cli_recording_start(recording);
    if (result != CLI_HOLDS) {
        return result;
    }
    cli_launch_wait(&recording->job, -1);
    return cli_recording_finish(recording);
}

void cli_recording_explain_exit(const cli_recording *recording)
{
    assert(recording && recording->job.ended);
    int code = recording->job.exit_code;
    if (code > CLI_SIGNAL && code != CLI_SIGNAL + SIGINT) {
        cli_note("the command was killed by signal %d (%s)", code - CLI_SIGNAL,
                 strsignal(code - CLI_SIGNAL));
    } else if (code != 0 && code <= CLI_SIGNAL) {
        cli_note("the command ended with exit status %d", code);
    }
}

void cli_recording_explain_nothing(void)
{
    cli_note("nothing was recorded: no Python of the command imported torch under the recorder");
    cli_hint("the command must end in a Python that does not ignore its environment (-E, -I)");
}
