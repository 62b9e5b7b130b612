/* cmd_infer.c - `tocsin infer`: healthy recordings -> invariants. */
#include "cli.h"

#include <assert.h>
#include <string.h>
#include <tocsin/infer.h>
#include <unistd.h>

static void show_progress(void *context, const char *phase, uint64_t done, uint64_t total)
{
    cli_progress_update(context, phase, done, total);
}

static void explain_dropped(void *context, const char *relation, const char *sentence,
                            const char *reason)
{
    cli_progress_end(context);
    printf("dropped (%s): %s\n  because %s\n", relation, sentence, reason);
}

static void summarise(const tocsin_infer_summary *summary, size_t run_count, const char *output,
                      const char *first_run)
{
    char events[CLI_NUMBER_BYTES];
    char hypotheses[CLI_NUMBER_BYTES];
    char kept[CLI_NUMBER_BYTES];
    cli_note("%s invariants from %zu run%s (%s events, %s hypotheses)",
             cli_count(summary->kept, kept), run_count, run_count == 1 ? "" : "s",
             cli_count(summary->events, events), cli_count(summary->hypotheses, hypotheses));
    if (run_count == 1) {
        cli_note("one run cannot tell a habit from a rule: give two or three that differ in seed,"
                 " batch size or learning rate");
    }
    if (strcmp(output, "-") != 0) {
        cli_hint("tocsin show %s; tocsin check -i %s %s", output, output, first_run);
    }
}

int cmd_infer(int argc, char **argv)
{
    const char *output = NULL;
    bool explains = false;
    bool force = false;
    bool quiet = false;
    uint64_t threads = 0;
    const cli_option options[] = {
        {"output", 'o', CLI_TEXT, "FILE", "where the invariants go (-: stdout)", &output},
        {"explain-dropped", 0, CLI_FLAG, NULL, "print each hypothesis that was dropped, and why",
         &explains},
        {"threads", 'j', CLI_COUNT, "COUNT", "threads (default: one for each CPU)", &threads},
        {"force", 'f', CLI_FLAG, NULL, "replace a file that exists", &force},
        {"quiet", 'q', CLI_FLAG, NULL, "print errors only", &quiet},
    };
    const cli_usage usage = {
        .command = "infer",
        .synopsis = "-o FILE RUN...",
        .about =
            "Infer from recordings of healthy runs what always holds. Two or three short runs\n"
            "that differ in seed, batch size, learning rate or optimizer teach more than a\n"
            "long one.",
        .example = "tocsin infer healthy-1 healthy-2 -o inv.jsonl",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    cli_operands runs;
    int exit_code;
    if (cli_options_end(&usage, argc, argv, &runs, &exit_code)) {
        return exit_code;
    }
    if (runs.count == 0 || !output || threads > 1024) {
        cli_error(runs.count == 0 ? "no recording to infer from"
                  : output        ? "more than 1024 threads"
                                  : "no output file");
        cli_hint("tocsin infer RUN... -o inv.jsonl");
        return CLI_INPUT;
    }
    bool to_stdout = strcmp(output, "-") == 0;
    if (!to_stdout && !force && access(output, F_OK) == 0) {
        cli_error("%s exists already", output);
        cli_hint("choose another name with -o, or add --force to replace it");
        return CLI_INPUT;
    }
    if (to_stdout && explains) {
        cli_error("--explain-dropped and -o - would mix on the standard output");
        return CLI_INPUT;
    }

    cli_progress progress;
    cli_progress_begin(&progress, quiet);
    tocsin_infer_options infer_options = {
        .struct_bytes = sizeof infer_options,
        .threads = (unsigned)threads,
        .progress = show_progress,
        .dropped = explains ? explain_dropped : NULL,
        .context = &progress,
    };
    tocsin_invariant_set *set = NULL;
    tocsin_infer_summary summary;
    tocsin_error error;
    tocsin_status status = tocsin_infer((const char *const *)runs.items, runs.count, &infer_options,
                                        &set, &summary, &error);
    cli_progress_end(&progress);
    if (status == TOCSIN_OK) {
        status = tocsin_invariants_save(set, output, force, &error);
    }
    if (status != TOCSIN_OK) {
        exit_code = cli_fail(&error);
    } else if (!quiet) {
        summarise(&summary, runs.count, output, runs.items[0]);
        exit_code = CLI_HOLDS;
    } else {
        exit_code = CLI_HOLDS;
    }
    tocsin_invariants_free(set);
    return exit_code;
}
