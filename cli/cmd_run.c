/* cmd_run.c - `tocsin run`: train under watch.
 *
 * The job records only what the invariants need; this process reads the recording as it grows and
 * says at once what is violated. The job is never slowed by the checking: it only writes to memory.
 */
#include "checking.h"
#include "recording.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define POLL_MS  50
#define NICENESS 10
/* After the job's end its processes may still be closing their files. */
#define LINGER_ROUNDS_MAX 40

typedef struct run_options {
    cli_recording_options recording;
    cli_texts modules;
    cli_texts invariants;
    const char *report_path; /* NULL: text on stderr, JSON on stdout */
    unsigned format;
    bool all;
    bool fail_on_finding;
} run_options;

/* Make the recording, tell it what to record, and open it for checking. */
static int prepare(const run_options *options, char *const *command, cli_recording *recording,
                   cli_checking *checking)
{
    tocsin_error error;
    int result = cli_checking_load(checking, &options->invariants);
    if (result == CLI_HOLDS) {
        result = cli_recording_prepare(recording, &options->recording, command);
    }
    if (result != CLI_HOLDS) {
        return result;
    }
    if (tocsin_invariants_write_selection(checking->set, recording->selection, &error) !=
        TOCSIN_OK) {
        result = cli_fail(&error);
    }
    if (result == CLI_HOLDS) {
        result =
            cli_checking_open(checking, recording->directory, cli_recording_name(recording), true);
    }
    if (result != CLI_HOLDS) {
        cli_recording_discard(recording);
        return result;
    }
    return cli_recording_start(recording); /* discards by itself */
}

/* Check while the job runs. When checking fails the job still runs to its end. */
static int watch(cli_recording *recording, cli_checking *checking)
{
    int result = CLI_HOLDS;
    uint64_t events = 0;

    setpriority(PRIO_PROCESS, 0, NICENESS); /* best effort */
    while (!cli_launch_wait(&recording->job, result == CLI_HOLDS ? POLL_MS : -1)) {
        result = cli_checking_advance(checking, &events);
    }
    for (unsigned idle = 0; result == CLI_HOLDS && idle < LINGER_ROUNDS_MAX;) {
        /* Asked before reading: what a process wrote before it ended is read after it ended. */
        bool live = cli_checking_is_live(checking);
        result = cli_checking_advance(checking, &events);
        if (events > 0) {
            continue;
        }
        if (!live) {
            break;
        }
        struct timespec pause = {0, POLL_MS * 1000000L};
        nanosleep(&pause, NULL);
        idle++;
    }
    return result == CLI_HOLDS ? cli_checking_finish(checking) : result;
}

static int report(const run_options *options, const cli_checking *checking)
{
    FILE *stream = options->format == TOCSIN_REPORT_JSON ? stdout : stderr;
    bool is_file = options->report_path && strcmp(options->report_path, "-") != 0;
    if (is_file) {
        stream = fopen(options->report_path, "we");
        if (!stream) {
            cli_error("cannot write %s: %s", options->report_path, strerror(errno));
            return CLI_INPUT;
        }
    } else if (options->report_path) {
        stream = stdout;
    }
    int exit_code = cli_checking_report(checking, (tocsin_report_format)options->format,
                                        options->all, false, stream);
    if (is_file && fclose(stream) != 0) {
        cli_error("cannot write %s: %s", options->report_path, strerror(errno));
        return CLI_INPUT;
    }
    return exit_code;
}

static void note_nothing_recorded(const cli_checking *checking)
{
    if (tocsin_run_process_count(checking->run) == 0) {
        cli_note(
            "nothing was recorded: no Python of the command imported torch under the recorder");
        cli_hint("the command must end in a Python that does not ignore its environment (-E, -I)");
    }
}

/* The job's own status comes first; a finding shows in it only on request. */
static int final_exit_code(const run_options *options, int command_exit, int check_exit)
{
    if (check_exit == CLI_FINDING) {
        return options->fail_on_finding ? CLI_RUN_FINDING : command_exit;
    }
    bool is_failure = check_exit == CLI_INPUT || check_exit == CLI_INTERNAL;
    return command_exit == 0 && is_failure ? check_exit : command_exit;
}

static int run_watched(const run_options *options, char *const *command)
{
    static cli_recording recording;
    cli_checking checking = {.aloud = !options->recording.quiet};
    int result = prepare(options, command, &recording, &checking);
    if (result != CLI_HOLDS) {
        cli_checking_close(&checking);
        return result;
    }
    int check_exit = watch(&recording, &checking);
    result = cli_recording_finish(&recording);
    if (check_exit == CLI_HOLDS) {
        check_exit = result;
    }
    if (!options->recording.quiet) {
        cli_recording_explain_exit(&recording);
        note_nothing_recorded(&checking);
    }
    if (check_exit == CLI_HOLDS) {
        check_exit = report(options, &checking);
    }
    cli_checking_close(&checking);
    return final_exit_code(options, recording.job.exit_code, check_exit);
}

int cmd_run(int argc, char **argv)
{
    run_options run = {.recording.mode = "run"};
    const cli_option options[] = {
        {"invariants", 'i', CLI_TEXTS, "FILE", "what must hold; repeatable", &run.invariants},
        {"output", 'o', CLI_TEXT, "RUN", "folder to record into (default: a new name)",
         &run.recording.directory},
        {"fail-on-finding", 0, CLI_FLAG, NULL, "exit with 86 when an invariant is violated",
         &run.fail_on_finding},
        {"format", 0, CLI_CHOICE, "text|json", "form of the report (default: text)", &run.format},
        {"report", 'r', CLI_TEXT, "FILE", "where the report goes (text: stderr, json: stdout)",
         &run.report_path},
        {"all", 'a', CLI_FLAG, NULL, "show every finding in full", &run.all},
        {"module", 'm', CLI_TEXTS, "PACKAGE", "record its public functions too; repeatable",
         &run.modules},
        {"force", 'f', CLI_FLAG, NULL, "replace a recording that exists", &run.recording.force},
        {"quiet", 'q', CLI_FLAG, NULL, "print the report and errors only", &run.recording.quiet},
    };
    const cli_usage usage = {
        .command = "run",
        .synopsis = "-i FILE -- COMMAND [ARGUMENT]...",
        .about =
            "Run a training command, unchanged, and check it against invariants while it trains.\n"
            "Only what the invariants need is recorded. A violation is printed when it happens;\n"
            "a report follows at the end. The exit status is that of the command, or 86 with\n"
            "--fail-on-finding.",
        .example = "tocsin run -i inv.jsonl -- torchrun --nproc-per-node 2 train.py",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
        .command_follows = true,
    };
    cli_operands command;
    int exit_code;
    if (cli_options_end(&usage, argc, argv, &command, &exit_code)) {
        return exit_code;
    }
    run.recording.modules = &run.modules;
    return run_watched(&run, command.items);
}
