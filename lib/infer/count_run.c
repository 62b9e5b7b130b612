/* One run in, its reference out.
 *
 * The processes of the run are read interleaved by training step; their instances are counted in
 * tables with a vocabulary of their own. Memory does not grow with the length of the run. A damaged
 * block is skipped by the reader and counted by it; what is left is still a healthy run. */
#include <assert.h>
#include <infer/infer.h>
#include <infer/reference.h>
#include <stdlib.h>
#include <tocsin/trace.h>

enum { PROGRESS_EVENTS = 1 << 16 };

struct reading {
    tocsin_run *run;
    tocsin_observer *observer;
    size_t processes;
    bool *more;
    const tocsin_counting *counting;
    const char *directory;
    uint32_t shard, shards;
    uint64_t events;
};

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
        if (tocsin_trace_corrupt_blocks(trace) > 0)
            continue;
        tocsin_dictionary dictionary = tocsin_trace_dictionary(trace);
        TOCSIN_TRY(tocsin_observer_feed(reading->observer, index, &dictionary, event, error));
        if (++reading->events % PROGRESS_EVENTS == 0)
            tocsin_counting_tell(reading->counting, reading->directory, PROGRESS_EVENTS);
    }
    tocsin_counting_tell(reading->counting, reading->directory, reading->events % PROGRESS_EVENTS);
    return tocsin_observer_finish(reading->observer, error);
}

/* ---- identity ------------------------------------------------------------------------------ */

static int compare_traces(const void *a, const void *b)
{
    tocsin_trace_facts x, y;
    tocsin_trace_get_facts(*(tocsin_trace *const *)a, &x);
    tocsin_trace_get_facts(*(tocsin_trace *const *)b, &y);
    int order = strcmp(x.host, y.host);
    if (order == 0)
        order = (x.pid > y.pid) - (x.pid < y.pid);
    return order != 0 ? order : (x.wall_ns > y.wall_ns) - (x.wall_ns < y.wall_ns);
}

/* Which run this is, wherever its files lie: its processes. */
static tocsin_status identify(const struct reading *reading, tocsin_hash128 *identity,
                              tocsin_error *error)
{
    tocsin_trace **traces = tocsin_alloc(reading->processes * sizeof *traces);
    if (traces == NULL)
        return tocsin_error_memory(error);
    for (size_t i = 0; i < reading->processes; ++i)
        traces[i] = tocsin_run_process(reading->run, i);
    if (reading->processes > 1)
        qsort(traces, reading->processes, sizeof(tocsin_trace *), compare_traces);
    tocsin_string text = {0};
    for (size_t i = 0; i < reading->processes; ++i) {
        tocsin_trace_facts facts;
        tocsin_trace_get_facts(traces[i], &facts);
        tocsin_string_printf(&text, "%s %lld %llu\n", facts.host, (long long)facts.pid,
                             (unsigned long long)facts.wall_ns);
    }
    tocsin_status status = tocsin_string_check(&text, error);
    *identity = tocsin_hash128_of(tocsin_string_text(&text), text.bytes, 0);
    tocsin_string_free(&text);
    tocsin_free(traces);
    return status;
}

/* ---- counting ------------------------------------------------------------------------------ */

static tocsin_status count_events(struct reading *reading, tocsin_examples *examples,
                                  tocsin_string *out, tocsin_error *error)
{
    tocsin_reference_head head = {.run = reading->directory,
                                  .processes = reading->processes,
                                  .wide = examples->wide,
                                  .shard = reading->shard,
                                  .shards = reading->shards};
    for (size_t i = 0; i < reading->processes; ++i)
        reading->more[i] = true;
    TOCSIN_TRY(identify(reading, &head.identity, error));
    TOCSIN_TRY(read_events(reading, error));
    head.events = reading->events;
    head.instances = tocsin_observer_instances(reading->observer);
    return tocsin_reference_write(&head, examples, out, error);
}

static tocsin_status read_run(struct reading *reading, tocsin_examples *examples,
                              tocsin_string *out, tocsin_error *error)
{
    tocsin_observer_options options = {.vocabulary = examples->vocabulary,
                                       .sink = tocsin_examples_add,
                                       .context = examples,
                                       .relations = reading->counting->options != NULL
                                                        ? reading->counting->options->relations
                                                        : NULL,
                                       .contrast = true,
                                       .wide = examples->wide,
                                       .shard = reading->shard,
                                       .shards = reading->shards};
    TOCSIN_TRY(tocsin_run_open(reading->directory, false, &reading->run, error));
    reading->processes = tocsin_run_process_count(reading->run);
    reading->more = tocsin_alloc(reading->processes * sizeof *reading->more);
    tocsin_status status = reading->more != NULL
                               ? tocsin_observer_new(&options, &reading->observer, error)
                               : tocsin_error_memory(error);
    if (status == TOCSIN_OK)
        status = count_events(reading, examples, out, error);
    tocsin_observer_free(reading->observer);
    tocsin_free(reading->more);
    tocsin_run_close(reading->run);
    return status;
}

tocsin_status tocsin_count_run(const char *directory, uint32_t shard, uint32_t shards,
                               const tocsin_counting *counting, tocsin_string *out,
                               tocsin_error *error)
{
    assert(directory != NULL && out != NULL);
    tocsin_examples examples = {.wide = counting->options != NULL && counting->options->wide};
    struct reading reading = {
        .counting = counting, .directory = directory, .shard = shard, .shards = shards};
    TOCSIN_TRY(tocsin_vocabulary_new(&examples.vocabulary, error));
    tocsin_status status = read_run(&reading, &examples, out, error);
    tocsin_examples_free(&examples);
    tocsin_vocabulary_free(examples.vocabulary);
    return status;
}
