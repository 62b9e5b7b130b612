/* cmd_run.c - `tocsin run`: train under watch.
 *
 * The job records only what the invariants need; this process reads the recording as it grows and
 * says at once what is violated. The job is never slowed by the checking: it only writes to memory.
 */
#include "recording.h"
#include "suppressing.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <tocsin/guard_report.h>

#define POLL_MS  50
#define NICENESS 10
/* After the job's end its processes may still be closing their files. */
#define LINGER_NS 2000000000U

typedef struct run_options {
    cli_recording_options recording;
    cli_texts modules;
    cli_texts invariants;
    cli_texts suppressions;
    cli_texts relations;
    bool with_library;
    const char *report_path; /* NULL: text on stderr, JSON on stdout */
    unsigned format;
    bool all;
    bool fail_on_finding;
    bool guard;
    const char *guard_folder; /* NULL: the guard's own choice */
    unsigned guard_action;    /* index into guard_actions */
} run_options;

#define GUARD_FOLDER "tocsin-guard"

static const char *const guard_actions[] = {"stop", "skip_update", "continue"};

/* Make the recording, tell it what to record, and open it for checking. */
static int prepare(const run_options *options, char *const *command, cli_recording *recording,
                   cli_checking *checking)
{
    tocsin_error error;
    int result = cli_checking_load(checking, &options->invariants, options->with_library,
                                   &options->relations);
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
    if (result == CLI_HOLDS) {
        result = cli_checking_suppress(checking, &options->suppressions);
    }
    if (result != CLI_HOLDS) {
        cli_recording_discard(recording);
        return result;
    }
    return cli_recording_start(recording); /* discards by itself */
}

/* Check while the job runs. When checking fails the job still runs to its end. Afterwards what was
 * written is read to its end, but a process that outlives the job is not followed for long. */
static int watch(cli_recording *recording, cli_checking *checking)
{
    int result = CLI_HOLDS;
    uint64_t events = 0;

    setpriority(PRIO_PROCESS, 0, NICENESS); /* best effort */
    while (!cli_launch_wait(&recording->job, result != CLI_HOLDS ? -1 : events > 0 ? 0 : POLL_MS)) {
        result = cli_checking_advance(checking, &events);
    }
    uint64_t deadline_ns = cli_clock_ns() + LINGER_NS;
    for (bool live = true; result == CLI_HOLDS && (live || events > 0);) {
        /* Asked before reading: what a process wrote before it ended is read after it ended. */
        live = cli_checking_is_live(checking);
        result = cli_checking_advance(checking, &events);
        if (live && cli_clock_ns() > deadline_ns) {
            break;
        }
        if (live && events == 0) {
            struct timespec pause = {0, POLL_MS * 1000000L};
            nanosleep(&pause, NULL);
        }
    }
    return result == CLI_HOLDS ? cli_checking_finish(checking) : result;
}

static int report(const run_options *options, const cli_checking *checking)
{
    bool is_file = options->report_path && strcmp(options->report_path, "-") != 0;
    bool to_stdout = options->report_path ? !is_file : options->format == TOCSIN_REPORT_JSON;
    FILE *stream = to_stdout ? stdout : stderr;
    FILE *file = is_file ? fopen(options->report_path, "we") : NULL;
    int failure = is_file && !file ? errno : 0;

    /* A report that its file does not take is not lost: it goes to stderr. */
    int exit_code = cli_checking_report(checking, (tocsin_report_format)options->format,
                                        options->all, false, file ? file : stream);
    if (file && fclose(file) != 0) {
        failure = errno;
    }
    if (failure) {
        cli_error("cannot write %s: %s", options->report_path, strerror(failure));
    }
    return failure && exit_code != CLI_FINDING ? CLI_INPUT : exit_code;
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

/* Did the guard stop the job? Its launcher may have turned the status of a rank into another. A
 * folder without ledgers: no. */
static int guard_exit_code(const run_options *options, double started)
{
    tocsin_guard_report *report = NULL;
    const char *folder = options->guard_folder ? options->guard_folder : GUARD_FOLDER;
    tocsin_error error;
    tocsin_status status = tocsin_guard_report_read(folder, &report, &error);
    if (status == TOCSIN_E_NOT_FOUND) {
        return 0;
    }
    int exit_code =
        status == TOCSIN_OK ? tocsin_guard_report_exit(report, started) : cli_fail(&error);
    tocsin_guard_report_free(report);
    return exit_code;
}

static double now(void)
{
    struct timespec moment;
    clock_gettime(CLOCK_REALTIME, &moment);
    return (double)moment.tv_sec + (double)moment.tv_nsec * 1e-9;
}

static int run_watched(const run_options *options, char *const *command)
{
    static cli_recording recording;
    cli_checking checking = {.aloud = !options->recording.quiet};
    double started = now();
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
        if (tocsin_run_process_count(checking.run) == 0) {
            cli_recording_explain_nothing();
        }
    }
    if (check_exit == CLI_HOLDS) {
        check_exit = report(options, &checking);
    }
    cli_checking_close(&checking);
    int command_exit = recording.job.exit_code;
    int guard_exit = options->guard && command_exit != 0 ? guard_exit_code(options, started) : 0;
    return final_exit_code(options, guard_exit != 0 ? guard_exit : command_exit, check_exit);
}

int cmd_run(int argc, char **argv)
{
    run_options run = {.recording.mode = "run"};
    const cli_option options[] = {
        {"invariants", 'i', CLI_TEXTS, "FILE", "what must hold; repeatable", &run.invariants},
        {"library", 'l', CLI_FLAG, NULL, "the shipped invariants, too; without -i: they alone",
         &run.with_library},
        {"suppress", 0, CLI_TEXTS, "FILE", "violations that are meant; repeatable",
         &run.suppressions},
        {"relation", 0, CLI_TEXTS, "FILE", CLI_RELATION_HELP, &run.relations},
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
        {"sample", 's', CLI_COUNT, "N", "read data and gradients in each N-th step only",
         &run.recording.sample},
        {"guard", 0, CLI_FLAG, NULL, "guard weights and gradients, too: docs/guard.md", &run.guard},
        {"guard-action", 0, CLI_CHOICE, "stop|skip_update|continue",
         "what a finding of the guard leads to", &run.guard_action},
        {"guard-folder", 0, CLI_TEXT, "DIR", "of its ledger (default: " GUARD_FOLDER ")",
         &run.guard_folder},
        {"force", 'f', CLI_FLAG, NULL, "replace a recording that exists", &run.recording.force},
        {"quiet", 'q', CLI_FLAG, NULL, "print the report and errors only", &run.recording.quiet},
    };
    const cli_usage usage = {
        .command = "run",
        .synopsis = "[-i FILE] -- COMMAND [ARGUMENT]...",
        .about =
            "Run a training command, unchanged, and check it while it trains against the "
            "invariants\n"
            "of FILE; without -i against those shipped with tocsin, which every healthy training "
            "keeps.\n"
            "Only what the invariants need is recorded. A violation is printed when it happens;\n"
            "a report follows at the end. The exit status is that of the command, or 86 with\n"
            "--fail-on-finding; of a job that the guard stopped 86 if ranks are named, else 87.",
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
    const cli_launch_variable guard[] = {
        {"TOCSIN_GUARD", guard_actions[run.guard_action]},
        {"TOCSIN_GUARD_FOLDER", run.guard_folder},
    };
    if (run.guard) {
        run.recording.variables = guard;
        run.recording.variable_count = sizeof guard / sizeof guard[0];
    }
    return run_watched(&run, command.items);
}
