/* cli.h - what the commands share: exit codes, messages and the table of commands.
 *
 * Results go to stdout; errors, hints, notes and progress go to stderr.
 */
#ifndef TOCSIN_CLI_H
#define TOCSIN_CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <tocsin/status.h>

#include "options.h"

enum {
    CLI_HOLDS = 0,        /* everything judged holds, or the command did its work */
    CLI_FINDING = 1,      /* a violation */
    CLI_INPUT = 2,        /* usage or input error */
    CLI_UNDECIDED = 3,    /* nothing could be judged */
    CLI_INTERNAL = 4,     /* out of memory, or a bug in Tocsin */
    CLI_RUN_FINDING = 86, /* `run --fail-on-finding`: 1 would be Python's own */
    CLI_SIGNAL = 128      /* + number of the signal */
};

/* ---- commands: each in its cmd_<name>.c; argv[0] is the command's name -------------------- */

int cmd_record(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_infer(int argc, char **argv);
int cmd_show(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_dump(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_suppress(int argc, char **argv);
int cmd_filter(int argc, char **argv);
int cmd_merge(int argc, char **argv);
int cmd_diff(int argc, char **argv);
int cmd_import(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_align(int argc, char **argv);
int cmd_env(int argc, char **argv);
int cmd_inject(int argc, char **argv);
int cmd_guard(int argc, char **argv);

/* ---- messages (messages.c) ----------------------------------------------------------------- */

/* Parse a command's arguments; on --help or a problem print: true when the command shall end with
 * `*exit_code`. */
bool cli_options_end(const cli_usage *usage, int argc, char **argv, cli_operands *operands,
                     int *exit_code);

/* "tocsin: error: ..." */
void cli_error(const char *format, ...) TOCSIN_PRINTF(1, 2);
/* "hint: ..." */
void cli_hint(const char *format, ...) TOCSIN_PRINTF(1, 2);
/* "tocsin: ..." */
void cli_note(const char *format, ...) TOCSIN_PRINTF(1, 2);
/* Print a library's error, what and where, as one line; returns the exit code that fits. */
int cli_fail(const tocsin_error *error);
/* May this stream be coloured? A terminal that is not "dumb", and NO_COLOR is not set. */
bool cli_colour(FILE *stream);

/* Progress of long work on stderr: on a terminal at most 10 lines a second, each over the last,
 * after half a second; elsewhere a line every 30 s. */
typedef struct cli_progress {
    bool enabled;
    bool terminal;
    bool shown; /* a line stands on the terminal and must be erased */
    uint64_t start_ns;
    uint64_t last_ns;
} cli_progress;

void cli_progress_begin(cli_progress *progress, bool quiet);
/* `total` 0: unknown. */
void cli_progress_update(cli_progress *progress, const char *phase, uint64_t done, uint64_t total);
void cli_progress_end(cli_progress *progress);

/* CLOCK_MONOTONIC. */
uint64_t cli_clock_ns(void);

/* 12345 -> "12,345" and 1234567 -> "1.2 MiB", into the caller's buffer; returns it. */
#define CLI_NUMBER_BYTES 32
const char *cli_count(uint64_t count, char buffer[CLI_NUMBER_BYTES]);
const char *cli_bytes(uint64_t bytes, char buffer[CLI_NUMBER_BYTES]);

#endif
