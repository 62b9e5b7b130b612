/* auditing.c - does being recorded change what torch computes here?
 *
 * The trainings and their comparison are python/tocsin/observer_audit.py's. It records with this
 * very command, and is told what to record by the variables that a job's processes are told by.
 */
#include "auditing.h"

#include "python_module.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool is_interpreter(const char *program)
{
    const char *slash = strrchr(program, '/');
    return strncmp(slash ? slash + 1 : program, "python", strlen("python")) == 0;
}

static char *interpreter_of(char *const *command)
{
    static char fallback[] = "python3";
    char *chosen = getenv("TOCSIN_PYTHON");
    if (command[0] && is_interpreter(command[0])) {
        return command[0];
    }
    return chosen && chosen[0] ? chosen : fallback;
}

static int run(const cli_recording_options *options, char *const *audit, const char *python_path,
               int *found)
{
    static const cli_launch_manner manner = {.output_to_errors = true};
    char groups[CLI_NUMBER_BYTES];
    cli_launch job;
    tocsin_error error;
    snprintf(groups, sizeof groups, "%" PRIu64, options->groups);
    const cli_launch_variable variables[] = {
        {"PYTHONPATH", python_path},
        {"TOCSIN_BOUNDARIES",
         options->boundaries ? options->boundaries : getenv("TOCSIN_BOUNDARIES")},
        {"TOCSIN_MAP", options->map ? options->map : getenv("TOCSIN_MAP")},
        {"TOCSIN_MAP_GROUPS", options->groups > 0 ? groups : getenv("TOCSIN_MAP_GROUPS")},
    };
    if (cli_launch_start(&job, audit, variables, sizeof variables / sizeof variables[0], &manner,
                         &error) != TOCSIN_OK) {
        return cli_fail(&error);
    }
    cli_launch_wait(&job, -1);
    cli_launch_end(&job);
    *found = job.exit_code;
    return CLI_HOLDS;
}

int cli_audit_observer(cli_recording_options *options, char *const *command)
{
    static char module[] = "tocsin.observer_audit", option[] = "-m";
    static char python_path[CLI_PYTHON_PATH_BYTES];
    char program[PATH_MAX];
    char *audit[] = {interpreter_of(command), option, module, program, NULL};
    int found = 0;

    if (!realpath("/proc/self/exe", program)) {
        cli_error("cannot find the program's own file: %s", strerror(errno));
        return CLI_INTERNAL;
    }
    int result = cli_python_path(python_path);
    if (result == CLI_HOLDS) {
        result = run(options, audit, python_path, &found);
    }
    if (result == CLI_HOLDS && found != CLI_HOLDS && found != CLI_FINDING) {
        cli_hint("without --audit it is recorded all the same");
        return found > CLI_SIGNAL ? found : CLI_INPUT;
    }
    options->was_audited = result == CLI_HOLDS;
    options->audit_changed = found == CLI_FINDING;
    return result;
}
