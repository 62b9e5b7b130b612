/* cmd_record.c - `tocsin record`: run a training script, unchanged, and record what it does. */
#include "auditing.h"
#include "repeating.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tocsin/name_map.h>
#include <tocsin/trace.h>

static int summarise(const cli_recording *recording)
{
    tocsin_run *run;
    tocsin_error error;
    if (tocsin_run_open(recording->directory, false, &run, &error) != TOCSIN_OK) {
        return cli_fail(&error);
    }
    size_t process_count = tocsin_run_process_count(run);
    uint64_t bytes = 0;
    for (size_t i = 0; i < process_count; i++) {
        struct stat status;
        if (stat(tocsin_trace_path(tocsin_run_process(run, i)), &status) == 0) {
            bytes += (uint64_t)status.st_size;
        }
    }
    tocsin_run_close(run);

    if (process_count == 0) {
        cli_recording_explain_nothing();
        return CLI_HOLDS;
    }
    char size[CLI_NUMBER_BYTES];
    cli_note("recorded %zu process%s, %s, in %s", process_count, process_count == 1 ? "" : "es",
             cli_bytes(bytes, size), cli_recording_name(recording));
    cli_hint("tocsin infer %s -o inv.jsonl", cli_recording_name(recording));
    return CLI_HOLDS;
}

/* Where boundaries are recorded: a list of these words, of which without a mode that reads tensors
 * at modules only the last makes sense. */
static bool places_are_known(const char *list, bool online)
{
    static const char *const places[] = {"modules", "ops", "collectives"};
    for (;;) {
        size_t bytes = strcspn(list, ",");
        bool known = false;
        for (size_t i = online ? 2 : 0; i < sizeof places / sizeof places[0]; i++) {
            known = known || (strlen(places[i]) == bytes && memcmp(places[i], list, bytes) == 0);
        }
        if (!known || list[bytes] == '\0') {
            return known;
        }
        list += bytes + 1;
    }
}

/* The mode, and if given the places behind it: what TOCSIN_BOUNDARIES holds. NULL: not chosen. */
static bool choose_boundaries(const char *mode, const char *places, char *text, size_t bytes,
                              const char **boundaries)
{
    *boundaries = mode;
    if (!places) {
        return true;
    }
    int written = snprintf(text, bytes, "%s:%s", mode ? mode : "online", places);
    if (!places_are_known(places, !mode) || written < 0 || (size_t)written >= bytes) {
        cli_error("--boundaries: '%.64s' is not %s", places,
                  mode ? "a list of modules, ops, collectives"
                       : "collectives; the others need --mode");
        return false;
    }
    *boundaries = text;
    return true;
}

static int record_once(const cli_recording_options *options, char *const *command)
{
    static cli_recording recording;
    int exit_code = cli_recording_prepare(&recording, options, command);
    if (exit_code == CLI_HOLDS) {
        exit_code = cli_recording_run(&recording);
    }
    if (exit_code == CLI_HOLDS && !options->quiet) {
        cli_recording_explain_exit(&recording);
        exit_code = summarise(&recording);
    }
    int command_exit = recording.job.exit_code;
    return command_exit ? command_exit : exit_code;
}

static int record(cli_recording_options *options, const cli_repeat_options *repeat, bool audit,
                  char *const *command)
{
    int exit_code = audit ? cli_audit_observer(options, command) : CLI_HOLDS;
    if (exit_code != CLI_HOLDS) {
        return exit_code;
    }
    return repeat->count > 0 ? cli_repeat(options, repeat, command) : record_once(options, command);
}

/* Is the map one? The job may run in another folder: a file is given as a whole path. */
static bool choose_map(cli_recording_options *options, char path[PATH_MAX])
{
    tocsin_name_map *map;
    tocsin_error error;
    if (!options->map) {
        return true;
    }
    if (tocsin_name_map_load(options->map, &map, &error) != TOCSIN_OK) {
        cli_fail(&error);
        return false;
    }
    tocsin_name_map_free(map);
    bool shipped = false;
    for (size_t k = 0; !shipped && tocsin_name_map_shipped(k); k++) {
        shipped = strcmp(tocsin_name_map_shipped(k), options->map) == 0;
    }
    if (!shipped && realpath(options->map, path)) {
        options->map = path;
    }
    return true;
}

int cmd_record(int argc, char **argv)
{
    cli_recording_options recording_options = {.mode = "record"};
    cli_texts modules = {0};
    static const char *const boundaries[] = {NULL, "trusted", "full", "drill"};
    unsigned mode = 0;
    cli_repeat_options repeat = {.seed = UINT64_MAX}; /* not given */
    const char *places = NULL;
    bool audit = false;
    char chosen[128];
    const cli_option options[] = {
        {"output", 'o', CLI_TEXT, "RUN", "folder to record into (default: a new name)",
         &recording_options.directory},
        {"module", 'm', CLI_TEXTS, "PACKAGE", "record its public functions too; repeatable",
         &modules},
        {"sample", 's', CLI_COUNT, "N", "read data and gradients in each N-th step only",
         &recording_options.sample},
        {"mode", 0, CLI_CHOICE, "online|trusted|full|drill",
         "for align: what modules return (trusted), take, too (full), or functions (drill)", &mode},
        {"boundaries", 0, CLI_TEXT, "LIST",
         "of --mode only at these places: modules, ops, collectives", &places},
        {"repeat", 0, CLI_COUNT, "N", "run it N times, and write down what does not repeat",
         &repeat.count},
        {"jitter", 0, CLI_COUNT, "SEED", "with --repeat: vary threads, CPUs and timing",
         &repeat.seed},
        {"map", 0, CLI_TEXT, "MAP", "for align --map: also as parts of the tensors of a framework",
         &recording_options.map},
        {"groups", 0, CLI_COUNT, "N", "with --map: groups of queries, by which q, k, v alternate",
         &recording_options.groups},
        {"audit", 0, CLI_FLAG, NULL, "first try whether being recorded changes a bit of a training",
         &audit},
        {"force", 'f', CLI_FLAG, NULL, "replace a recording that exists", &recording_options.force},
        {"quiet", 'q', CLI_FLAG, NULL, "print errors only", &recording_options.quiet},
    };
    const cli_usage usage = {
        .command = "record",
        .synopsis = "-- COMMAND [ARGUMENT]...",
        .about =
            "Run a training command, unchanged, and record what it does: the calls of torch's\n"
            "public functions, and parameters, gradients and buffers around each step. The\n"
            "command may be a launcher that ends in python (torchrun, accelerate launch).\n"
            "The exit status is that of the command.",
        .example = "tocsin record -o healthy -- python train.py --steps 20",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
        .command_follows = true,
    };
    cli_operands command;
    int exit_code;
    if (cli_options_end(&usage, argc, argv, &command, &exit_code)) {
        return exit_code;
    }
    static char map[PATH_MAX];
    if (!choose_map(&recording_options, map)) {
        return CLI_INPUT;
    }
    recording_options.modules = &modules;
    if (!choose_boundaries(boundaries[mode], places, chosen, sizeof chosen,
                           &recording_options.boundaries)) {
        return CLI_INPUT;
    }
    repeat.jitter = repeat.seed != UINT64_MAX;
    if (repeat.jitter && repeat.count == 0) {
        cli_error("--jitter is for --repeat");
        cli_hint("tocsin record --repeat 4 --jitter 1 -- COMMAND");
        return CLI_INPUT;
    }
    return record(&recording_options, &repeat, audit, command.items);
}
