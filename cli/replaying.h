/* replaying.h - `tocsin align --replay`: two commands from one checkpoint, under one set of
 * settings that decide bits. */
#ifndef TOCSIN_CLI_REPLAYING_H
#define TOCSIN_CLI_REPLAYING_H

#include "paired_runs.h"

#define CLI_REPLAY_NOTE                                                                            \
    "this is a replay: if it is smaller than the original (fewer machines, steps, data, other "    \
    "settings), no divergence here proves nothing about the original"

/* Record the pair's commands with TOCSIN_REPLAY set to the checkpoint; "{ckpt}" in a word becomes
 * it, too. Prints its own errors and returns an exit code. */
int cli_replay_record(cli_paired_runs *pair, const char *checkpoint);

#endif
