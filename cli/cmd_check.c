/* cmd_check.c - `tocsin check`: a recording against invariants, finished or still growing. */
#include "suppressing.h"

#include <assert.h>
#include <signal.h>

#define POLL_MS 100
/* A growing run is over when no process of it lives and nothing new came for this long: the next
 * process of a launcher may still be starting. */
#define QUIET_ROUNDS_MAX 20

/* Wait; was it ended by Ctrl-C or SIGTERM? Both are blocked while following. */
static bool wait_or_stopped(const sigset_t *stops, long wait_ms)
{
    struct timespec timeout = {0, wait_ms * 1000000L};
    return sigtimedwait(stops, NULL, &timeout) > 0;
}

static int follow(cli_checking *checking, bool *stopped)
{
    sigset_t stops;
    sigset_t mask;
    sigemptyset(&stops);
    sigaddset(&stops, SIGINT);
    sigaddset(&stops, SIGTERM);
    sigprocmask(SIG_BLOCK, &stops, &mask);

    int result = CLI_HOLDS;
    *stopped = false;
    for (unsigned quiet = 0; quiet < QUIET_ROUNDS_MAX && result == CLI_HOLDS && !*stopped;) {
        uint64_t events = 0;
        /* Asked before reading: what a process wrote before it ended is read after it ended. */
        bool live = cli_checking_is_live(checking);
        result = cli_checking_advance(checking, &events);
        quiet = live || events > 0 ? 0 : quiet + 1;
        *stopped = wait_or_stopped(&stops, events > 0 ? 0 : POLL_MS);
    }
    sigprocmask(SIG_SETMASK, &mask, NULL);
    return result;
}

static int read_all(cli_checking *checking, bool quiet)
{
    cli_progress progress;
    uint64_t total = 0;
    uint64_t events;
    int result;

    cli_progress_begin(&progress, quiet);
    do {
        events = 0;
        result = cli_checking_advance(checking, &events);
        total += events;
        cli_progress_update(&progress, "checking", total, 0);
    } while (result == CLI_HOLDS && events > 0);
    cli_progress_end(&progress);
    return result;
}

int cmd_check(int argc, char **argv)
{
    cli_texts invariants = {0};
    cli_texts suppressions = {0};
    cli_texts relations = {0};
    unsigned format = TOCSIN_REPORT_TEXT;
    bool follows = false, all = false, counts = false, quiet = false, library = false;
    const cli_option options[] = {
        {"invariants", 'i', CLI_TEXTS, "FILE", "what must hold; repeatable", &invariants},
        {"suppress", 0, CLI_TEXTS, "FILE", "violations that are meant; repeatable", &suppressions},
        {"library", 'l', CLI_FLAG, NULL, "the shipped invariants, too; without -i: they alone",
         &library},
        {"relation", 0, CLI_TEXTS, "FILE", CLI_RELATION_HELP, &relations},
        {"follow", 'F', CLI_FLAG, NULL, "go on while the run is being written", &follows},
        {"format", 0, CLI_CHOICE, "text|json", "form of the report (default: text)", &format},
        {"all", 'a', CLI_FLAG, NULL, "everything in full, and what was not judged", &all},
        {"counts", 0, CLI_FLAG, NULL, "JSON: how often each invariant was judged", &counts},
        {"quiet", 'q', CLI_FLAG, NULL, "no progress on stderr", &quiet},
    };
    const cli_usage usage = {
        .command = "check",
        .synopsis = "[-i FILE] RUN",
        .about = "Check a recording against the invariants of FILE; without -i against those "
                 "shipped with\n"
                 "tocsin, which every healthy training keeps. The report names each violated "
                 "invariant in\n"
                 "words, with step, rank and call site, and lists what was not covered.\n"
                 "Exit status: 0 all that was judged holds, 1 a violation, 2 unusable or damaged\n"
                 "input, 3 nothing could be judged.",
        .example = "tocsin check -i inv.jsonl suspicious",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    cli_operands operands;
    int exit_code;
    if (cli_options_end(&usage, argc, argv, &operands, &exit_code)) {
        return exit_code;
    }
    if (operands.count != 1) {
        cli_error("tocsin check needs one recording, not %zu", operands.count);
        cli_hint("tocsin check -i inv.jsonl RUN");
        return CLI_INPUT;
    }

    cli_checking checking = {.aloud = follows && !quiet};
    bool stopped = false;
    exit_code = cli_checking_load(&checking, &invariants, library, &relations);
    if (exit_code == CLI_HOLDS) {
        exit_code = cli_checking_open(&checking, operands.items[0], operands.items[0], follows);
    }
    if (exit_code == CLI_HOLDS) {
        exit_code = cli_checking_suppress(&checking, &suppressions);
    }
    if (exit_code == CLI_HOLDS) {
        exit_code = follows ? follow(&checking, &stopped) : read_all(&checking, quiet);
    }
    if (exit_code == CLI_HOLDS) {
        exit_code = cli_checking_finish(&checking);
    }
    if (exit_code == CLI_HOLDS) {
        exit_code =
            cli_checking_report(&checking, (tocsin_report_format)format,
                                all || (counts && format == TOCSIN_REPORT_JSON), stopped, stdout);
    }
    cli_checking_close(&checking);
    return exit_code;
}
