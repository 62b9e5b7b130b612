/* cmd_import.c - `tocsin import`: the recording of another tool -> a run. */
#include "cli.h"

#include <inttypes.h>
#include <string.h>
#include <tocsin/exchange.h>

#define SHOWN_MAX 20

typedef struct import_command {
    bool quiet;
    uint64_t dropped;
} import_command;

static void tell_dropped(void *context, const char *file, uint64_t line, const char *why)
{
    import_command *command = context;
    if (++command->dropped <= SHOWN_MAX && !command->quiet) {
        cli_note("left out: %s:%" PRIu64 ": %s", file, line, why);
    }
}

static void summarise(const tocsin_import_summary *summary, const char *run)
{
    char records[CLI_NUMBER_BYTES];
    char count[CLI_NUMBER_BYTES];
    cli_note("imported %s records of %" PRIu64 " process%s, %" PRIu64 " with a rank, into %s",
             cli_count(summary->records, records), summary->processes,
             summary->processes == 1 ? "" : "es", summary->ranks, run);
    const struct {
        uint64_t count;
        const char *what;
    } left_out[] = {
        {summary->duplicates, "left out because they came before"},
        {summary->unreadable, "left out because they are no record"},
        {summary->unmatched, "left out: ends of calls whose start is missing"},
        {summary->incomplete, "calls without their end, left open"},
    };
    for (size_t i = 0; i < sizeof left_out / sizeof left_out[0]; i++) {
        if (left_out[i].count > 0) {
            cli_note("%s %s", cli_count(left_out[i].count, count), left_out[i].what);
        }
    }
    cli_hint("tocsin infer %s -o inv.jsonl, or tocsin check -i invariants.json %s", run, run);
}

int cmd_import(int argc, char **argv)
{
    const char *run = NULL;
    import_command command = {0};
    const cli_option options[] = {
        {"output", 'o', CLI_TEXT, "RUN", "the run to write: a new folder", &run},
        {"quiet", 'q', CLI_FLAG, NULL, "print errors only", &command.quiet},
    };
    const cli_usage usage = {
        .command = "import",
        .synopsis = "traincheck -o RUN FOLDER",
        .about =
            "Make a run of what another tool recorded: of the folder of traces that TrainCheck\n"
            "writes (trace_*, proxy_log.json). The run can be inspected, inferred from and\n"
            "checked as any other. Records that cannot be used are left out and named.",
        .example = "tocsin import traincheck -o run traincheck_run_mnist",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    cli_operands operands;
    int exit_code;
    if (cli_options_end(&usage, argc, argv, &operands, &exit_code)) {
        return exit_code;
    }
    if (operands.count != 2 || strcmp(operands.items[0], "traincheck") != 0 || !run) {
        cli_error(operands.count > 0 && strcmp(operands.items[0], "traincheck") != 0
                      ? "cannot import from '%s'"
                      : "tocsin import needs a format, a folder and -o RUN",
                  operands.count > 0 ? operands.items[0] : "");
        cli_hint("tocsin import traincheck -o RUN FOLDER");
        return CLI_INPUT;
    }
    tocsin_import_options import_options = {
        .struct_bytes = sizeof import_options, .dropped = tell_dropped, .context = &command};
    tocsin_import_summary summary;
    tocsin_error error;
    if (tocsin_traincheck_import(operands.items[1], run, &import_options, &summary, &error) !=
        TOCSIN_OK) {
        return cli_fail(&error);
    }
    if (!command.quiet) {
        if (command.dropped > SHOWN_MAX) {
            cli_note("... and %" PRIu64 " further ones", command.dropped - SHOWN_MAX);
        }
        summarise(&summary, run);
    }
    return CLI_HOLDS;
}
