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
    const tocsin_event *event = NULL;
    tocsin_error error;
    tocsin_status status;
    do {
        status = tocsin_trace_next(trace, &event, &error);
    } while (status == TOCSIN_E_CORRUPT);
    if (status != TOCSIN_OK) {
        *exit_code = cli_fail(&error);
        return NULL;
    }
    return event;
}

bool cli_traces_tell_damage(const tocsin_trace *trace)
{
    assert(trace);
    char number[CLI_NUMBER_BYTES];
    tocsin_trace_facts facts;
    tocsin_trace_get_facts(trace, &facts);

    if (facts.corrupt_blocks > 0) {
        cli_error("damaged: %s block%s skipped, %s", cli_count(facts.corrupt_blocks, number),
                  facts.corrupt_blocks == 1 ? "" : "s", tocsin_trace_path(trace));
    }
    if (facts.lost > 0) {
        cli_error("incomplete: %s event%s could not be written, %s", cli_count(facts.lost, number),
                  facts.lost == 1 ? "" : "s", tocsin_trace_path(trace));
    }
    /* A killed process may leave a part of a block, which its ring has in full. */
    bool is_cut = facts.trailing_bytes > 0 && facts.recovered_bytes == 0 && !facts.alive;
    if (is_cut) {
        cli_error("cut off: %s after the last whole block, %s",
                  cli_bytes(facts.trailing_bytes, number), tocsin_trace_path(trace));
    }
    return facts.corrupt_blocks > 0 || facts.lost > 0 || is_cut;
}

void cli_traces_close(cli_traces *traces)
{
    assert(traces);
    tocsin_run_close(traces->run);
    tocsin_trace_close(traces->trace);
    *traces = (cli_traces){0};
}
