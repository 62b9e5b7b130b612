/* drilling.c - both runs again, looked at closely where they part. */
#include "drilling.h"

#include <inttypes.h>
#include <string.h>
#include <tocsin/run.h>
#include <unistd.h>

void cli_drill_aim(cli_drill_target *target, const tocsin_align_result *result)
{
    if (result->pivot_count == 0) {
        return;
    }
    const tocsin_align_pivot *pivot = &result->pivots[0];
    target->found = true;
    target->step = pivot->step;
    target->coarse = !pivot->located && pivot->tile_count > 0 && pivot->tiles[0].rows > 1;
    snprintf(target->name, sizeof target->name, "%s", pivot->name);
    snprintf(target->attribute, sizeof target->attribute, "%s", pivot->attribute);
}

static bool same_words(char *const *a, char *const *b)
{
    size_t i = 0;
    while (a[i] && b[i] && strcmp(a[i], b[i]) == 0) {
        i++;
    }
    return !a[i] && !b[i];
}

/* May the command that a run names be run here? */
static bool is_from_here(const tocsin_run_command *command, const char *run)
{
    char here[PATH_MAX];
    const char *folder = tocsin_run_command_folder(command);
    if (getcwd(here, sizeof here) && strcmp(here, folder) == 0) {
        return true;
    }
    cli_error("%s was recorded in the folder %s", run, folder[0] ? folder : "(it does not say)");
    cli_hint("go there, or give both commands: --drill -- COMMAND_A -- COMMAND_B");
    return false;
}

int cli_drill_commands(tocsin_run_command *const from[2], const tocsin_run *const runs[2],
                       char *const *commands[2])
{
    if (commands[0] && commands[1]) {
        return CLI_HOLDS;
    }
    if (commands[0]) {
        if (!same_words(tocsin_run_command_words(from[0]), tocsin_run_command_words(from[1]))) {
            cli_error("the two were recorded from different commands, and one was given");
            cli_hint("tocsin align RUN_A RUN_B --drill -- COMMAND_A -- COMMAND_B");
            return CLI_INPUT;
        }
        commands[1] = commands[0];
        return CLI_HOLDS;
    }
    for (size_t i = 0; i < 2; i++) {
        if (!is_from_here(from[i], tocsin_run_directory(runs[i]))) {
            return CLI_INPUT;
        }
        commands[i] = tocsin_run_command_words(from[i]);
    }
    return CLI_HOLDS;
}

int cli_drill_record(cli_paired_runs *pair, const cli_drill_target *target)
{
    char where[sizeof target->name + sizeof target->attribute + CLI_NUMBER_BYTES];
    snprintf(where, sizeof where, "%" PRId64 ":%s:%s", target->step, target->attribute,
             target->name);
    const cli_launch_variable variables[] = {{"TOCSIN_DRILL", where}};
    pair->boundaries = "drill";
    pair->variables = variables;
    pair->variable_count = 1;
    cli_note("the runs part in step %" PRId64 " at %s %s: both once more, closely in that step",
             target->step, target->name, target->attribute);
    int result = cli_paired_runs_record(pair);
    pair->variables = NULL;
    pair->variable_count = 0;
    return result;
}
