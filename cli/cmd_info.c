/* cmd_info.c - `tocsin info`: what is in a recording, a process file or a file of invariants.
 *
 * Processes are read to their end, so that damage shows too. Cost: one pass over the events.
 */
#include "traces.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <tocsin/invariant.h>
#include <tocsin/report.h>

/* The value of the meta variable "rank", or -1: not in a process group. */
static int64_t rank_of(const tocsin_trace *trace, const tocsin_event *event, int64_t before)
{
    bool is_rank = event->kind == TOCSIN_EVENT_META && event->value_count == 1 &&
                   event->values[0].kind == TOCSIN_VALUE_INT &&
                   strcmp(tocsin_trace_string(trace, event->key), "rank") == 0;
    return is_rank ? event->values[0].as.integer : before;
}

static const char *end_of(const tocsin_trace_facts *facts)
{
    if (facts->complete) {
        return "complete";
    }
    return facts->alive ? "still written" : "killed";
}

static void print_process(const tocsin_trace_facts *facts, int64_t rank)
{
    char cells[5][CLI_NUMBER_BYTES];
    char rank_cell[CLI_NUMBER_BYTES] = "-";
    if (rank >= 0) {
        cli_count((uint64_t)rank, rank_cell);
    }
    printf("%8" PRId64 " %5s %8s %10s %10s %10s %10s  %s\n", facts->pid, rank_cell,
           cli_count(facts->steps, cells[0]), cli_count(facts->events, cells[1]),
           cli_count(facts->enters, cells[2]), cli_count(facts->states, cells[3]),
           cli_bytes(facts->file_bytes, cells[4]), end_of(facts));
    if (facts->recovered_bytes > 0) {
        printf("%8s recovered from memory after the process was killed: %s\n", "",
               cli_bytes(facts->recovered_bytes, cells[0]));
    }
    if (facts->lost > 0) {
        printf("%8s events that could not be written: %s\n", "", cli_count(facts->lost, cells[0]));
    }
}

static void describe_process(tocsin_trace *trace, int *exit_code)
{
    const tocsin_event *event;
    tocsin_trace_facts facts;
    int64_t rank = -1;
    while ((event = cli_traces_next(trace, exit_code)) != NULL) {
        rank = rank_of(trace, event, rank);
    }
    tocsin_trace_get_facts(trace, &facts);
    print_process(&facts, rank);
    if (cli_traces_tell_damage(trace)) {
        *exit_code = CLI_INPUT;
    }
}

static int describe_traces(const char *path)
{
    cli_traces traces;
    int exit_code = cli_traces_open(&traces, path);
    if (exit_code == CLI_HOLDS && traces.run) {
        tocsin_error error;
        if (tocsin_report_print_run(tocsin_run_json(traces.run), stdout, &error) != TOCSIN_OK) {
            exit_code = cli_fail(&error);
        }
    }
    if (exit_code == CLI_HOLDS) {
        size_t count = cli_traces_count(&traces);
        if (count > 0) {
            printf("\n%8s %5s %8s %10s %10s %10s %10s  %s\n", "process", "rank", "steps", "events",
                   "calls", "states", "file", "end");
        }
        for (size_t i = 0; i < count; i++) {
            describe_process(cli_traces_at(&traces, i), &exit_code);
        }
        if (count == 0) {
            puts("nothing was recorded");
        }
    }
    cli_traces_close(&traces);
    return exit_code;
}

static int describe_invariants(const char *path)
{
    tocsin_invariant_set *set;
    tocsin_error error;
    if (tocsin_invariants_load(path, &set, &error) != TOCSIN_OK) {
        return cli_fail(&error);
    }
    size_t count = tocsin_invariants_count(set);
    printf("invariants  %zu\n", count);
    const tocsin_code *code;
    for (size_t i = 0; (code = tocsin_code_at(i)) != NULL; i++) {
        size_t of_relation = 0;
        for (size_t k = 0; k < count; k++) {
            of_relation += strcmp(tocsin_invariant_relation(set, k), code->relation) == 0;
        }
        if (of_relation > 0) {
            printf("  %-16s %6zu  (%s)\n", code->relation, of_relation, code->code);
        }
    }
    tocsin_invariants_free(set);
    return CLI_HOLDS;
}

/* A file of invariants is text that begins with '{'; a process file begins with its magic. */
static bool is_invariants_file(const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode)) {
        return false;
    }
    FILE *file = fopen(path, "re");
    int first = file ? fgetc(file) : EOF;
    if (file) {
        fclose(file);
    }
    return first == '{';
}

int cmd_info(int argc, char **argv)
{
    const cli_usage usage = {
        .command = "info",
        .synopsis = "RUN|FILE",
        .about =
            "Say what is in a recording (command, versions, processes, numbers of events), in\n"
            "one process file of it, or in a file of invariants.",
        .example = "tocsin info healthy",
    };
    cli_operands operands;
    int exit_code;
    if (cli_options_end(&usage, argc, argv, &operands, &exit_code)) {
        return exit_code;
    }
    if (operands.count != 1) {
        cli_error("tocsin info needs one recording or file, not %zu", operands.count);
        cli_hint("tocsin info RUN");
        return CLI_INPUT;
    }
    const char *path = operands.items[0];
    return is_invariants_file(path) ? describe_invariants(path) : describe_traces(path);
}
