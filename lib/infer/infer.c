/* Runs in, invariants out.
 *
 * Runs are read one after the other, all processes of a run interleaved by training step; their
 * instances are counted in one set of tables, from which everything is learned at the end. Memory
 * does not grow with the length of the runs. A damaged block is skipped by the reader and counted
 * by it; what is left is still a healthy run. */
#include <assert.h>
#include <infer/infer.h>
#include <tocsin/trace.h>

enum { PROGRESS_EVENTS = 1 << 16 };

struct reading {
    tocsin_run *run;
    tocsin_observer *observer;
    size_t processes;
    bool *more;
    const tocsin_infer_options *options;
    const char *directory;
    uint64_t *events;
};

static void tell_progress(const struct reading *reading)
{
    const tocsin_infer_options *options = reading->options;
    if (options != NULL && options->progress != NULL)
        options->progress(options->context, reading->directory, *reading->events, 0);
}

static tocsin_status read_events(struct reading *reading, tocsin_error *error)
{
    for (;;) {
        size_t index =
            tocsin_observer_laggard(reading->observer, reading->more, reading->processes);
        if (index == reading->processes)
            break;
        tocsin_trace *trace = tocsin_run_process(reading->run, index);
        const tocsin_event *event;
        tocsin_status status = tocsin_trace_next(trace, &event, error);
        if (status == TOCSIN_E_CORRUPT)
            continue;
        TOCSIN_TRY(status);
        if (event == NULL) {
            reading->more[index] = false;
            continue;
        }
        tocsin_dictionary dictionary = tocsin_trace_dictionary(trace);
        TOCSIN_TRY(tocsin_observer_feed(reading->observer, index, &dictionary, event, error));
        if (++*reading->events % PROGRESS_EVENTS == 0)
            tell_progress(reading);
    }
    TOCSIN_TRY(tocsin_observer_finish(reading->observer, error));
    tell_progress(reading);
    return TOCSIN_OK;
}

static tocsin_status add_run(const char *directory, tocsin_examples *examples,
                             const tocsin_infer_options *options, tocsin_infer_summary *summary,
                             tocsin_error *error)
{
    struct reading reading = {
        .options = options, .directory = directory, .events = &summary->events};
    TOCSIN_TRY(tocsin_run_open(directory, false, &reading.run, error));
    reading.processes = tocsin_run_process_count(reading.run);
    tocsin_observer_options observer_options = {.vocabulary = examples->vocabulary,
                                                .sink = tocsin_examples_add,
                                                .context = examples,
                                                .contrast = true};
    tocsin_status status = tocsin_observer_new(&observer_options, &reading.observer, error);
    reading.more = tocsin_alloc(reading.processes * sizeof *reading.more);
    if (status == TOCSIN_OK && reading.more == NULL)
        status = tocsin_error_memory(error);
    if (status == TOCSIN_OK) {
        for (size_t i = 0; i < reading.processes; ++i)
            reading.more[i] = true;
        status = read_events(&reading, error);
        summary->instances += tocsin_observer_instances(reading.observer);
    }
    tocsin_free(reading.more);
    tocsin_observer_free(reading.observer);
    tocsin_run_close(reading.run);
    return status;
}

static tocsin_status check_arguments(const char *const *directories, size_t count,
                                     const tocsin_infer_options *options, tocsin_error *error)
{
    if (count == 0 || directories == NULL)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "no run to infer from");
    if (count > TOCSIN_INFER_RUNS_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "%zu runs: at most %d are learned from",
                                count, TOCSIN_INFER_RUNS_MAX);
    if (options != NULL && options->struct_bytes != sizeof *options)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT,
                                "options of %zu bytes, this library knows %zu",
                                options->struct_bytes, sizeof *options);
    return TOCSIN_OK;
}

tocsin_status tocsin_infer(const char *const *run_directories, size_t run_count,
                           const tocsin_infer_options *options, tocsin_invariant_set **set,
                           tocsin_infer_summary *summary, tocsin_error *error)
{
    assert(set != NULL);
    tocsin_infer_summary counted = {0};
    *set = NULL;
    TOCSIN_TRY(check_arguments(run_directories, run_count, options, error));
    tocsin_invariant_set *learned;
    TOCSIN_TRY(tocsin_invariants_new(&learned, error));
    tocsin_examples examples = {.vocabulary = tocsin_invariants_vocabulary(learned)};
    tocsin_status status = TOCSIN_OK;
    for (size_t i = 0; i < run_count && status == TOCSIN_OK; ++i) {
        examples.run = (uint32_t)i;
        status = add_run(run_directories[i], &examples, options, &counted, error);
    }
    if (status == TOCSIN_OK)
        status = tocsin_learn(&examples, (uint32_t)run_count, options, learned, &counted, error);
    tocsin_examples_free(&examples);
    if (status != TOCSIN_OK) {
        tocsin_invariants_free(learned);
        return status;
    }
    *set = learned;
    if (summary != NULL)
        *summary = counted;
    return TOCSIN_OK;
}
