/* cmd_infer.c - `tocsin infer`: healthy recordings -> invariants. */
#include "cli.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <tocsin/infer.h>
#include <unistd.h>

#define THREADS_MAX 1024

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

typedef struct infer_command {
    cli_operands runs;
    const char *output;
    bool explains;
    bool force;
    bool quiet;
    uint64_t threads;
} infer_command;

/* Can a file be made under this name? */
static bool can_create(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int length = slash ? (int)(slash - path) + 1 : 0;
    snprintf(folder, sizeof folder, "%.*s.", length, path);
    return access(folder, W_OK | X_OK) == 0;
}

/* Is the command complete, and may the output be written? Found out before the work is done. */
static int validate(const infer_command *command)
{
    if (command->runs.count == 0 || !command->output || command->threads > THREADS_MAX) {
        cli_error(command->runs.count == 0 ? "no recording to infer from"
                  : command->output        ? "too many threads"
                                           : "no output file");
        cli_hint("tocsin infer RUN... -o inv.jsonl");
        return CLI_INPUT;
    }
    bool to_stdout = strcmp(command->output, "-") == 0;
    bool exists = !to_stdout && access(command->output, F_OK) == 0;
    if (exists && !command->force) {
        cli_error("%s exists already", command->output);
        cli_hint("choose another name with -o, or add --force to replace it");
        return CLI_INPUT;
    }
    if (!to_stdout && !exists && !can_create(command->output)) {
        cli_error("cannot create: %s, %s", strerror(errno), command->output);
        return CLI_INPUT;
    }
    if (to_stdout && command->explains) {
        cli_error("--explain-dropped and -o - would mix on the standard output");
        return CLI_INPUT;
    }
    return CLI_HOLDS;
}

static int save(const infer_command *command, const tocsin_invariant_set *set,
                const tocsin_infer_summary *summary)
{
    tocsin_error error;
    if (tocsin_invariants_count(set) == 0) {
        cli_error("nothing could be inferred from %zu recording%s with %" PRIu64 " events",
                  command->runs.count, command->runs.count == 1 ? "" : "s", summary->events);
        cli_hint("tocsin info %s", command->runs.items[0]);
        return CLI_UNDECIDED;
    }
    if (tocsin_invariants_save(set, command->output, command->force, &error) != TOCSIN_OK) {
        return cli_fail(&error);
    }
    if (!command->quiet) {
        summarise(summary, command->runs.count, command->output, command->runs.items[0]);
    }
    return CLI_HOLDS;
}

static int infer(const infer_command *command)
{
    cli_progress progress;
    cli_progress_begin(&progress, command->quiet);
    tocsin_infer_options options = {
        .struct_bytes = sizeof options,
        .threads = (unsigned)command->threads,
        .progress = show_progress,
        .dropped = command->explains ? explain_dropped : NULL,
        .context = &progress,
    };
    tocsin_invariant_set *set = NULL;
    tocsin_infer_summary summary;
    tocsin_error error;
    tocsin_status status = tocsin_infer((const char *const *)command->runs.items,
                                        command->runs.count, &options, &set, &summary, &error);
    cli_progress_end(&progress);
    int exit_code = status == TOCSIN_OK ? save(command, set, &summary) : cli_fail(&error);
    tocsin_invariants_free(set);
    return exit_code;
}

int cmd_infer(int argc, char **argv)
{
    infer_command command = {0};
    const cli_option options[] = {
        {"output", 'o', CLI_TEXT, "FILE", "where the invariants go (-: stdout)", &command.output},
        {"explain-dropped", 0, CLI_FLAG, NULL, "print each hypothesis that was dropped, and why",
         &command.explains},
        {"threads", 'j', CLI_COUNT, "COUNT", "threads (default: one for each CPU)",
         &command.threads},
        {"force", 'f', CLI_FLAG, NULL, "replace a file that exists", &command.force},
        {"quiet", 'q', CLI_FLAG, NULL, "print errors only", &command.quiet},
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
    int exit_code;
    if (cli_options_end(&usage, argc, argv, &command.runs, &exit_code)) {
        return exit_code;
    }
    exit_code = validate(&command);
    return exit_code == CLI_HOLDS ? infer(&command) : exit_code;
}
