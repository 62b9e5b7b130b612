/* traces.h - the process files of a recording, or one process file by itself. */
#ifndef TOCSIN_CLI_TRACES_H
#define TOCSIN_CLI_TRACES_H

#include <tocsin/trace.h>

#include "cli.h"

typedef struct cli_traces {
    tocsin_run *run;     /* NULL: one file */
    tocsin_trace *trace; /* that file */
} cli_traces;

/* Open `path`, a folder or a file; prints its own error and returns an exit code. */
int cli_traces_open(cli_traces *traces, const char *path);
size_t cli_traces_count(const cli_traces *traces);
tocsin_trace *cli_traces_at(const cli_traces *traces, size_t index);
/* The next event of a trace, NULL at its end or after an error, which is printed and sets
 * *exit_code. Damaged blocks are skipped. */
const tocsin_event *cli_traces_next(tocsin_trace *trace, int *exit_code);
/* After reading: an error line for each kind of damage that was met; was there any? */
bool cli_traces_tell_damage(const tocsin_trace *trace);
void cli_traces_close(cli_traces *traces);

#endif
