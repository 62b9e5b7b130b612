/* repeating.c - one command several times, and which boundaries do not repeat.
 *
 * Repeats run one after the other, each an ordinary run in a folder of its own; then each is
 * aligned with the first. A repeat that was interrupted, or of which the user asked to stop, ends
 * the series; the whole ones before it are still compared.
 */
#include "repeating.h"

#include "run_folder.h"

#include <inttypes.h>
#include <string.h>
#include <tocsin/align.h>
#include <tocsin/stability.h>
#include <unistd.h>

#define MAP_NAME "unstable.jsonl"
#define NICE_MAX 4

typedef struct repeat_series {
    const cli_recording_options *options;
    const cli_repeat_options *repeat;
    char folder[PATH_MAX];
    uint64_t whole; /* repeats that ended by themselves */
    int exit_code;  /* of the command: the first that is not 0 */
    bool stopped;   /* by a signal */
} repeat_series;

static const char *repeat_name(size_t index)
{
    static char name[CLI_NUMBER_BYTES];
    snprintf(name, sizeof name, "repeat-%zu", index + 1);
    return name;
}

/* ---- jitter ---------------------------------------------------------------------------------- */

typedef struct jitter_plan {
    cli_launch_manner manner;
    char threads[CLI_NUMBER_BYTES], seed[CLI_NUMBER_BYTES];
    cli_launch_variable variables[3];
} jitter_plan;

/* splitmix64 */
static uint64_t draw(uint64_t *state)
{
    uint64_t value = *state += UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

/* Some of our CPUs, at least one; how many there are. */
static int draw_cpus(cpu_set_t *chosen, uint64_t *state)
{
    cpu_set_t ours;
    CPU_ZERO(chosen);
    if (sched_getaffinity(0, sizeof ours, &ours) != 0) {
        CPU_ZERO(&ours);
        CPU_SET(0, &ours);
    }
    size_t last = 0;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &ours)) {
            last = cpu;
            if (draw(state) & 1) {
                CPU_SET(cpu, chosen);
            }
        }
    }
    if (CPU_COUNT(chosen) == 0) {
        CPU_SET(last, chosen);
    }
    return CPU_COUNT(&ours);
}

/* Repeats walk through the numbers of threads, so that few of them suffice to try each. */
static void draw_jitter(const cli_repeat_options *repeat, uint64_t number, jitter_plan *jitter)
{
    uint64_t first = repeat->seed, state = repeat->seed ^ number << 32;
    uint64_t cores = (uint64_t)draw_cpus(&jitter->manner.cpus, &state);
    uint64_t most = cores > 1 ? cores : 2;
    uint64_t threads = 1 + (draw(&first) % most + number) % most;
    jitter->manner.output_to_errors = false;
    jitter->manner.pinned = true;
    jitter->manner.nice_by = (int)(draw(&state) % (NICE_MAX + 1));
    snprintf(jitter->threads, sizeof jitter->threads, "%" PRIu64, threads);
    snprintf(jitter->seed, sizeof jitter->seed, "%" PRIu64, draw(&state) | 1);
    jitter->variables[0] = (cli_launch_variable){"OMP_NUM_THREADS", jitter->threads};
    jitter->variables[1] = (cli_launch_variable){"MKL_NUM_THREADS", jitter->threads};
    jitter->variables[2] = (cli_launch_variable){"TOCSIN_JITTER", jitter->seed};
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void tell_begin(const repeat_series *series, uint64_t number, const jitter_plan *jitter)
{
    if (series->options->quiet) {
        return;
    }
    if (!jitter) {
        cli_note("repeat %" PRIu64 " of %" PRIu64, number, series->repeat->count);
        return;
    }
    cli_note("repeat %" PRIu64 " of %" PRIu64 ": %s thread%s on %d CPU%s, nice %d, delays by %s",
             number, series->repeat->count, jitter->threads,
             strcmp(jitter->threads, "1") == 0 ? "" : "s", CPU_COUNT(&jitter->manner.cpus),
             CPU_COUNT(&jitter->manner.cpus) == 1 ? "" : "s", jitter->manner.nice_by, jitter->seed);
}

/* Record one; number from 1. */
static int run_once(repeat_series *series, uint64_t number, char *const *command)
{
    static cli_recording recording;
    char directory[PATH_MAX];
    jitter_plan jitter;
    bool jittered = series->repeat->jitter && number > 1;
    cli_recording_options options = *series->options;
    options.directory = directory;
    options.force = false;
    if (jittered) {
        draw_jitter(series->repeat, number, &jitter);
        options.variables = jitter.variables;
        options.variable_count = sizeof jitter.variables / sizeof jitter.variables[0];
        options.manner = &jitter.manner;
    }
    if (!cli_run_folder_join(series->folder, repeat_name(number - 1), directory)) {
        return CLI_INPUT;
    }
    int result = cli_recording_prepare(&recording, &options, command);
    if (result == CLI_HOLDS) {
        tell_begin(series, number, jittered ? &jitter : NULL);
        result = cli_recording_run(&recording);
    }
    if (!recording.job.ended) {
        return result;
    }
    int code = recording.job.exit_code;
    series->exit_code = series->exit_code ? series->exit_code : code;
    series->stopped = recording.job.interrupted || code == CLI_SIGNAL + SIGINT;
    series->whole += !series->stopped;
    if (result == CLI_HOLDS && !options.quiet) {
        cli_recording_explain_exit(&recording);
    }
    return result;
}

static int run_all(repeat_series *series, char *const *command)
{
    int result = CLI_HOLDS;
    for (uint64_t number = 1; result == CLI_HOLDS && number <= series->repeat->count; number++) {
        result = run_once(series, number, command);
        if (series->stopped || (number == 1 && series->exit_code != 0)) {
            if (!series->options->quiet) {
                cli_note("stopped: %" PRIu64 " of %" PRIu64 " repeats are whole, in %s",
                         series->whole, series->repeat->count, series->folder);
            }
            break;
        }
    }
    return result;
}

/* ---- comparison ------------------------------------------------------------------------------ */

static void tell_difference(const tocsin_align_result *result, uint64_t number)
{
    if (result->verdict == TOCSIN_ALIGN_INCOMPARABLE) {
        cli_note("repeat %" PRIu64 ": nothing to compare was recorded", number);
    } else if (result->verdict == TOCSIN_ALIGN_IDENTICAL) {
        cli_note("repeat %" PRIu64 ": as the first", number);
    } else {
        const tocsin_align_pivot *pivot = result->pivots;
        cli_note("repeat %" PRIu64 ": differs from step %" PRId64 " on, first at %s %s at %s",
                 number, pivot->step, pivot->name, pivot->attribute, pivot->operation);
    }
    char generators[128] = "";
    for (size_t c = 0; result->pivot_count > 0 && c < result->condition_count; c++) {
        if (result->conditions[c].generator) {
            size_t used = strlen(generators);
            snprintf(generators + used, sizeof generators - used, " %s",
                     result->conditions[c].name);
        }
    }
    if (generators[0]) {
        cli_note("repeat %" PRIu64 ": generators that differ, too:%s", number, generators);
    }
}

static tocsin_status compare(const repeat_series *series, uint64_t number, tocsin_stability *map,
                             tocsin_error *error)
{
    char first_path[PATH_MAX], path[PATH_MAX];
    tocsin_run *first = NULL, *run = NULL;
    tocsin_align_result *result = NULL;
    const tocsin_align_options by = {.struct_bytes = sizeof by, .learn = map};
    if (!cli_run_folder_join(series->folder, repeat_name(0), first_path) ||
        !cli_run_folder_join(series->folder, repeat_name(number - 1), path)) {
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "the repeats cannot be compared");
    }
    tocsin_status status = tocsin_run_open(first_path, false, &first, error);
    if (status == TOCSIN_OK) {
        status = tocsin_run_open(path, false, &run, error);
    }
    if (status == TOCSIN_OK) {
        status = tocsin_align_runs(first, run, &by, &result, error);
    }
    if (status == TOCSIN_OK && !series->options->quiet) {
        tell_difference(result, number);
    }
    tocsin_align_result_free(result);
    if (first) {
        tocsin_run_close(first);
    }
    if (run) {
        tocsin_run_close(run);
    }
    return status;
}

static int write_map(const repeat_series *series)
{
    char path[PATH_MAX];
    tocsin_stability *map = NULL;
    tocsin_error error;
    if (!cli_run_folder_join(series->folder, MAP_NAME, path)) {
        return CLI_INPUT;
    }
    tocsin_status status = tocsin_stability_new((uint32_t)series->whole, &map, &error);
    for (uint64_t number = 2; status == TOCSIN_OK && number <= series->whole; number++) {
        status = compare(series, number, map, &error);
    }
    if (status == TOCSIN_OK) {
        status = tocsin_stability_save(map, path, &error);
    }
    int result = status == TOCSIN_OK ? CLI_HOLDS : cli_fail(&error);
    if (status == TOCSIN_OK && !series->options->quiet) {
        size_t count = tocsin_stability_count(map);
        cli_note("%zu boundar%s not repeat in %" PRIu64 " repeats: %s", count,
                 count == 1 ? "y does" : "ies do", series->whole, path);
        if (count > 0) {
            cli_hint("tocsin align --unstable %s RUN_A RUN_B", path);
        }
    }
    tocsin_stability_free(map);
    return result;
}

int cli_repeat(const cli_recording_options *options, const cli_repeat_options *repeat,
               char *const *command)
{
    static repeat_series series;
    series = (repeat_series){.options = options, .repeat = repeat};
    if (repeat->count < 2 || repeat->count > TOCSIN_STABILITY_REPEATS_MAX) {
        cli_error("--repeat needs a number from 2 to %d", TOCSIN_STABILITY_REPEATS_MAX);
        return CLI_INPUT;
    }
    char map[PATH_MAX];
    tocsin_error error;
    if (!command[0]) {
        cli_error("no command to repeat");
        cli_hint("tocsin record --repeat 4 -o repeats -- python train.py");
        return CLI_INPUT;
    }
    if (cli_launch_check(command, &error) != TOCSIN_OK) {
        return cli_fail(&error);
    }
    int result = cli_run_folder_make(options->directory, command, repeat_name, options->force,
                                     series.folder);
    if (result == CLI_HOLDS && cli_run_folder_join(series.folder, MAP_NAME, map)) {
        unlink(map); /* of the repeats that were replaced */
        result = run_all(&series, command);
    }
    if (result == CLI_HOLDS && series.whole >= 2) {
        result = write_map(&series);
    }
    return series.exit_code ? series.exit_code : result;
}
