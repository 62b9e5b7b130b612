/* paired_runs.h - two commands recorded one after the other, to be aligned: runs `a` and `b` of a
 * folder. */
#ifndef TOCSIN_CLI_PAIRED_RUNS_H
#define TOCSIN_CLI_PAIRED_RUNS_H

#include "run_folder.h"

typedef struct cli_paired_runs {
    const char *output; /* folder; NULL: a new name */
    bool force;
    const char *boundaries;               /* mode of both recordings */
    const cli_launch_variable *variables; /* of both jobs */
    size_t variable_count;
    char *const *commands[2];
    char folder[PATH_MAX]; /* these are filled */
    char paths[2][PATH_MAX];
} cli_paired_runs;

/* Split what stands after the first "--" at the second one; NULL: not there. `words` is changed. */
void cli_paired_runs_split(char **words, char *const *commands[2]);
/* Record both; what they print goes to stderr. A command that does not end with status 0 is an
 * error. Prints its own errors and returns an exit code. */
int cli_paired_runs_record(cli_paired_runs *pair);

#endif
