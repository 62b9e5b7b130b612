/* drilling.h - `tocsin align --drill`: both runs again, looked at closely where they part. */
#ifndef TOCSIN_CLI_DRILLING_H
#define TOCSIN_CLI_DRILLING_H

#include <tocsin/align.h>
#include <tocsin/run.h>
#include <tocsin/trace.h>

#include "paired_runs.h"

/* Where two runs part. */
typedef struct cli_drill_target {
    bool found;
    int64_t step;
    char name[512], attribute[64];
    bool coarse; /* several words differ, in tiles of several rows */
} cli_drill_target;

/* The first pivot of the result, if there is one. */
void cli_drill_aim(cli_drill_target *target, const tocsin_align_result *result);
/* Which commands make these runs again: those that were given (NULL: not given), else `from` the
 * runs themselves. One given command is for both, if both are runs of one. Prints its own error and
 * returns an exit code. */
int cli_drill_commands(tocsin_run_command *const from[2], const tocsin_run *const runs[2],
                       char *const *commands[2]);
/* Record both commands, closely in the target's step. */
int cli_drill_record(cli_paired_runs *pair, const cli_drill_target *target);

#endif
