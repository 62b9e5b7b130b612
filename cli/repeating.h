/* repeating.h - `tocsin record --repeat N`: one command several times; what does not repeat. */
#ifndef TOCSIN_CLI_REPEATING_H
#define TOCSIN_CLI_REPEATING_H

#include "recording.h"

typedef struct cli_repeat_options {
    uint64_t count; /* 2 to TOCSIN_STABILITY_REPEATS_MAX */
    bool jitter;    /* from the second on other threads, CPUs, priority, and delays, by */
    uint64_t seed;
} cli_repeat_options;

/* Run `command` so often, each time as `options` say but into a folder of its own, and write the
 * map of what does not repeat. Returns the exit status of the command, the first that is not 0, or
 * an exit code, its error printed. */
int cli_repeat(const cli_recording_options *options, const cli_repeat_options *repeat,
               char *const *command);

#endif
