/* traces.c - the process files of a recording, or one process file by itself. */
#include "traces.h"

#include <assert.h>
#include <sys/stat.h>

int cli_traces_open(cli_traces *traces, const char *path)
{
    assert(traces && path);
    struct stat status;
    tocsin_error error;

    *traces = (cli_traces){0};
    bool is_file = stat(path, &status) == 0 && !S_ISDIR(status.st_mode);
    tocsin_status opened = is_file ? tocsin_trace_open(path, false, &traces->trace, &error)
                                   : tocsin_run_open(path, false, &traces->run, &error);
    return opened == TOCSIN_OK ? CLI_HOLDS : cli_fail(&error);
}

size_t cli_traces_count(const cli_traces *traces)
{
    assert(traces && (traces->run || traces->trace));
    return traces->run ? tocsin_run_process_count(traces->run) : 1;
}

tocsin_trace *cli_traces_at(const cli_traces *traces, size_t index)
{
    assert(index < cli_traces_count(traces));
    return traces->run ? tocsin_run_process(traces->run, index) : traces->trace;
}

const tocsin_event *cli_traces_next(tocsin_trace *trace, int *exit_code)
{
    assert(trace && exit_code);
    for (;;) {
        const tocsin_event *event = NULL;
        tocsin_error error;
        tocsin_status status = tocsin_trace_next(trace, &event, &error);
        if (status == TOCSIN_OK) {
            return event;
        }
        *exit_code = cli_fail(&error);
        if (status != TOCSIN_E_CORRUPT) {
            return NULL;
        }
    }
}

void cli_traces_close(cli_traces *traces)
{
    assert(traces);
    tocsin_run_close(traces->run);
    tocsin_trace_close(traces->trace);
    *traces = (cli_traces){0};
}
