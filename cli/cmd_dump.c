/* cmd_dump.c - `tocsin dump`: recorded events, one a line. */
#include "event_text.h"
#include "traces.h"

#include <assert.h>

typedef struct dump_options {
    uint64_t limit; /* 0: none */
    unsigned format;
} dump_options;

enum { DUMP_TEXT, DUMP_JSONL };

static int dump_trace(tocsin_trace *trace, const dump_options *options, uint64_t *printed)
{
    int exit_code = CLI_HOLDS;
    uint64_t start_ns = 0;
    const tocsin_event *event;
    for (bool first = true; (event = cli_traces_next(trace, &exit_code)) != NULL; first = false) {
        if (options->limit && *printed == options->limit) {
            return exit_code;
        }
        start_ns = first ? event->time_ns : start_ns;
        if (options->format == DUMP_JSONL) {
            const char *line;
            size_t bytes;
            tocsin_error error;
            if (tocsin_trace_event_json(trace, event, &line, &bytes, &error) != TOCSIN_OK) {
                return cli_fail(&error);
            }
            fwrite(line, 1, bytes, stdout);
            putchar('\n');
        } else {
            event_text_print(trace, event, start_ns, stdout);
        }
        (*printed)++;
    }
    return cli_traces_tell_damage(trace) && exit_code == CLI_HOLDS ? CLI_INPUT : exit_code;
}

int cmd_dump(int argc, char **argv)
{
    dump_options dump = {0};
    const cli_option options[] = {
        {"format", 0, CLI_CHOICE, "text|jsonl", "form of a line (default: text)", &dump.format},
        {"limit", 'n', CLI_COUNT, "COUNT", "print at most so many events", &dump.limit},
    };
    const cli_usage usage = {
        .command = "dump",
        .synopsis = "RUN|FILE",
        .about = "Print the events of a recording, process by process: '>' a call begins, '<' it\n"
                 "returns, '!' it raises, '=' a variable's state, '@' a meta variable.",
        .example = "tocsin dump healthy --limit 50",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    cli_operands operands;
    int exit_code;
    if (cli_options_end(&usage, argc, argv, &operands, &exit_code)) {
        return exit_code;
    }
    if (operands.count != 1) {
        cli_error("tocsin dump needs one recording or process file, not %zu", operands.count);
        cli_hint("tocsin dump RUN");
        return CLI_INPUT;
    }
    cli_traces traces;
    exit_code = cli_traces_open(&traces, operands.items[0]);
    uint64_t printed = 0;
    if (exit_code == CLI_HOLDS) {
        size_t count = cli_traces_count(&traces);
        for (size_t i = 0; i < count && !(dump.limit && printed == dump.limit); i++) {
            int result = dump_trace(cli_traces_at(&traces, i), &dump, &printed);
            exit_code = result == CLI_HOLDS ? exit_code : result;
        }
    }
    cli_traces_close(&traces);
    return exit_code;
}
