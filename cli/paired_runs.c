/* paired_runs.c - two commands recorded one after the other. */
#include "paired_runs.h"

#include <string.h>

static const char *pair_name(size_t index)
{
    static const char *const names[] = {"a", "b", NULL};
    return names[index];
}

void cli_paired_runs_split(char **words, char *const *commands[2])
{
    commands[0] = words[0] ? words : NULL;
    commands[1] = NULL;
    for (size_t i = 0; words[i]; i++) {
        if (strcmp(words[i], "--") == 0) {
            words[i] = NULL;
            commands[0] = i > 0 ? words : NULL;
            commands[1] = words[i + 1] ? words + i + 1 : NULL;
            return;
        }
    }
}

static int record(const cli_paired_runs *pair, size_t which)
{
    static cli_recording recording;
    const cli_launch_manner manner = {.output_to_errors = true};
    const cli_recording_options options = {.directory = pair->paths[which],
                                           .mode = "record",
                                           .boundaries = pair->boundaries,
                                           .quiet = true,
                                           .variables = pair->variables,
                                           .variable_count = pair->variable_count,
                                           .manner = &manner};
    int result = cli_recording_prepare(&recording, &options, pair->commands[which]);
    if (result == CLI_HOLDS) {
        cli_note("recording command %c in %s", which ? 'B' : 'A', pair->paths[which]);
        result = cli_recording_run(&recording);
    }
    int code = recording.job.exit_code;
    if (recording.job.interrupted) {
        return code ? code : CLI_SIGNAL + SIGINT;
    }
    if (result == CLI_HOLDS && code != 0) {
        cli_error("command %c ended with %s %d: %s", which ? 'B' : 'A',
                  code > CLI_SIGNAL ? "signal" : "exit status",
                  code > CLI_SIGNAL ? code - CLI_SIGNAL : code, pair->commands[which][0]);
        cli_hint("what it did until then is in %s", pair->paths[which]);
        return CLI_INPUT;
    }
    return result;
}

int cli_paired_runs_record(cli_paired_runs *pair)
{
    tocsin_error error;
    for (size_t which = 0; which < 2; which++) {
        if (cli_launch_check(pair->commands[which], &error) != TOCSIN_OK) {
            return cli_fail(&error);
        }
    }
    int result =
        cli_run_folder_make(pair->output, pair->commands[0], pair_name, pair->force, pair->folder);
    for (size_t which = 0; result == CLI_HOLDS && which < 2; which++) {
        result = cli_run_folder_join(pair->folder, pair_name(which), pair->paths[which])
                     ? CLI_HOLDS
                     : CLI_INPUT;
    }
    for (size_t which = 0; result == CLI_HOLDS && which < 2; which++) {
        result = record(pair, which);
    }
    return result;
}
