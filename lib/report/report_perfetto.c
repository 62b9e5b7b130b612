/* report_perfetto.c - two aligned runs as a trace that ui.perfetto.dev opens, side by side.
 *
 * Each process of each run is a process of the trace, each thread a track. Time is not that of the
 * runs: the n-th row of the pairing is the n-th microsecond, on both sides, so that what belongs
 * together stands at one place and what one run has not is a hole. Steps, calls in them, boundaries
 * in those are slices; B's begin 100 ns after A's, because arrows go from the earlier to the later
 * end. Threads of a step begin at one row. Slices are written as pairs come; what is kept is the
 * state of each track, and where differing pairs lay, for the pivots are known only in the end.
 *
 * Field numbers: protos/perfetto/trace/{trace,trace_packet}.proto and
 * track_event/{track_event,track_descriptor,debug_annotation,process_descriptor,
 * thread_descriptor}.proto of https://github.com/google/perfetto.
 */
#include "report/protobuf.h"
#include "report/report.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

enum {
    TRACE_PACKET = 1,
    PACKET_TIMESTAMP = 8,
    PACKET_SEQUENCE = 10,
    PACKET_EVENT = 11,
    PACKET_TRACK = 60,
    TRACK_UUID = 1,
    TRACK_NAME = 2,
    TRACK_PROCESS = 3,
    TRACK_THREAD = 4,
    PROCESS_PID = 1,
    PROCESS_NAME = 6,
    THREAD_PID = 1,
    THREAD_TID = 2,
    THREAD_NAME = 5,
    EVENT_ANNOTATION = 4,
    EVENT_TYPE = 9,
    EVENT_TRACK = 11,
    EVENT_CATEGORY = 22,
    EVENT_NAME = 23,
    EVENT_FLOW = 47,
    EVENT_FLOW_END = 48,
    ANNOTATION_UNSIGNED = 3,
    ANNOTATION_TEXT = 6,
    ANNOTATION_NAME = 10,
    SLICE_BEGIN = 1,
    SLICE_END = 2,
    INSTANT = 3
};

#define ROW_NS         UINT64_C(1000)
#define SLICE_NS       UINT64_C(800)
#define LATER_NS       UINT64_C(100) /* B after A */
#define THREADS        1024
#define EQUAL_ARROWS   10000
#define DIFFER_ARROWS  100000
#define KEPT_A_PROCESS 256

typedef struct track {
    bool described, in_step, in_call;
    uint64_t call;
    uint64_t end; /* of its last slice */
} track;

typedef struct lane { /* a thread in both runs */
    uint64_t rows;    /* in this step */
    track sides[2];
} lane;

typedef struct kept_pair { /* a differing one: it may be a pivot */
    const char *name, *attribute, *operation;
    int64_t rank, step;
    uint64_t process, time;
    uint32_t thread;
    bool marked;
} kept_pair;

struct tocsin_perfetto {
    tocsin_writer writer;
    tocsin_string packet, message, event, annotation;
    tocsin_string text;
    tocsin_arena arena;
    const char *runs[2];
    TOCSIN_VEC(lane) lanes;
    TOCSIN_VEC(kept_pair) kept;
    uint64_t process; /* from 0 */
    int64_t rank, step;
    bool described[2];  /* this process */
    size_t kept_here;   /* of this process */
    uint64_t first_row; /* of this step */
    uint64_t equal_arrows, differ_arrows;
    tocsin_error *error; /* of the call in progress */
    tocsin_status status;
};

/* ---- packets --------------------------------------------------------------------------------- */

static uint64_t process_number(uint64_t process, unsigned side)
{
    return 2 * process + side + 1;
}

static uint64_t track_uuid(uint64_t process, uint32_t thread, unsigned side)
{
    return process_number(process, side) * (THREADS + 1) + thread;
}

/* Write what stands in `packet`. */
static void put_packet(tocsin_perfetto *perfetto)
{
    tocsin_protobuf_varint(&perfetto->packet, PACKET_SEQUENCE, 1);
    tocsin_protobuf_message(&perfetto->message, TRACE_PACKET, &perfetto->packet);
    if (perfetto->status == TOCSIN_OK)
        perfetto->status = tocsin_string_check(&perfetto->message, perfetto->error);
    if (perfetto->status == TOCSIN_OK)
        perfetto->status = tocsin_writer_write(&perfetto->writer, perfetto->message.text,
                                               perfetto->message.bytes, perfetto->error);
    tocsin_string_clear(&perfetto->message);
}

static void put_event(tocsin_perfetto *perfetto, uint64_t time, uint64_t uuid, uint64_t type)
{
    tocsin_protobuf_varint(&perfetto->event, EVENT_TYPE, type);
    tocsin_protobuf_varint(&perfetto->event, EVENT_TRACK, uuid);
    tocsin_protobuf_varint(&perfetto->packet, PACKET_TIMESTAMP, time);
    tocsin_protobuf_message(&perfetto->packet, PACKET_EVENT, &perfetto->event);
    put_packet(perfetto);
}

/* Append what stands in `text`, and empty it. */
static void put_text(tocsin_perfetto *perfetto, tocsin_string *message, uint32_t field)
{
    if (perfetto->status == TOCSIN_OK)
        perfetto->status = tocsin_string_check(&perfetto->text, perfetto->error);
    tocsin_protobuf_text(message, field, tocsin_string_text(&perfetto->text));
    tocsin_string_clear(&perfetto->text);
}

static void annotate(tocsin_perfetto *perfetto, const char *name, const char *text)
{
    if (text[0] == '\0')
        return;
    tocsin_protobuf_text(&perfetto->annotation, ANNOTATION_NAME, name);
    tocsin_protobuf_text(&perfetto->annotation, ANNOTATION_TEXT, text);
    tocsin_protobuf_message(&perfetto->event, EVENT_ANNOTATION, &perfetto->annotation);
}

static void annotate_number(tocsin_perfetto *perfetto, const char *name, uint64_t number)
{
    tocsin_protobuf_text(&perfetto->annotation, ANNOTATION_NAME, name);
    tocsin_protobuf_varint(&perfetto->annotation, ANNOTATION_UNSIGNED, number);
    tocsin_protobuf_message(&perfetto->event, EVENT_ANNOTATION, &perfetto->annotation);
}

/* ---- tracks ---------------------------------------------------------------------------------- */

static void describe_process(tocsin_perfetto *perfetto, unsigned side)
{
    tocsin_string *inner = &perfetto->annotation, *outer = &perfetto->event;
    tocsin_string_printf(&perfetto->text, "%c: %s", side ? 'B' : 'A', perfetto->runs[side]);
    if (perfetto->rank >= 0)
        tocsin_string_printf(&perfetto->text, ", rank %" PRId64, perfetto->rank);
    tocsin_protobuf_varint(inner, PROCESS_PID, process_number(perfetto->process, side));
    put_text(perfetto, inner, PROCESS_NAME);
    tocsin_protobuf_varint(outer, TRACK_UUID, track_uuid(perfetto->process, THREADS, side));
    tocsin_protobuf_message(outer, TRACK_PROCESS, inner);
    tocsin_protobuf_message(&perfetto->packet, PACKET_TRACK, outer);
    put_packet(perfetto);
    perfetto->described[side] = true;
}

static void describe_thread(tocsin_perfetto *perfetto, uint32_t thread, unsigned side)
{
    char name[32];
    tocsin_string *inner = &perfetto->annotation, *outer = &perfetto->event;
    uint64_t uuid = track_uuid(perfetto->process, thread, side);
    snprintf(name, sizeof name, "thread %" PRIu32, thread + 1);
    tocsin_protobuf_varint(inner, THREAD_PID, process_number(perfetto->process, side));
    tocsin_protobuf_varint(inner, THREAD_TID, uuid);
    tocsin_protobuf_text(inner, THREAD_NAME, name);
    tocsin_protobuf_varint(outer, TRACK_UUID, uuid);
    tocsin_protobuf_message(outer, TRACK_THREAD, inner);
    tocsin_protobuf_message(&perfetto->packet, PACKET_TRACK, outer);
    put_packet(perfetto);
}

static void close_call(tocsin_perfetto *perfetto, track *at, uint64_t uuid)
{
    if (at->in_call)
        put_event(perfetto, at->end, uuid, SLICE_END);
    at->in_call = false;
}

static void close_step(tocsin_perfetto *perfetto, track *at, uint64_t uuid)
{
    close_call(perfetto, at, uuid);
    if (at->in_step)
        put_event(perfetto, at->end, uuid, SLICE_END);
    at->in_step = false;
}

/* End the step on all tracks; the next one begins at one row for all. */
static void close_steps(tocsin_perfetto *perfetto)
{
    uint64_t rows = 0;
    for (uint32_t thread = 0; thread < perfetto->lanes.count; ++thread) {
        lane *one = &perfetto->lanes.items[thread];
        for (unsigned side = 0; side < 2; ++side)
            close_step(perfetto, &one->sides[side], track_uuid(perfetto->process, thread, side));
        rows = one->rows > rows ? one->rows : rows;
        one->rows = 0;
    }
    perfetto->first_row += rows;
}

static void open_slices(tocsin_perfetto *perfetto, const tocsin_align_place *place, track *at,
                        uint64_t uuid, uint64_t time)
{
    if (!at->in_step) {
        char text[32];
        snprintf(text, sizeof text, "step %" PRId64, perfetto->step);
        tocsin_protobuf_text(&perfetto->event, EVENT_NAME, text);
        tocsin_protobuf_text(&perfetto->event, EVENT_CATEGORY, "step");
        put_event(perfetto, time, uuid, SLICE_BEGIN);
        at->in_step = true;
    }
    if (at->in_call && at->call != place->call)
        close_call(perfetto, at, uuid);
    if (!at->in_call) {
        tocsin_protobuf_text(&perfetto->event, EVENT_NAME, place->operation);
        tocsin_protobuf_text(&perfetto->event, EVENT_CATEGORY, "call");
        annotate(perfetto, "phase", place->phase);
        put_event(perfetto, time, uuid, SLICE_BEGIN);
        at->in_call = true;
        at->call = place->call;
    }
}

/* ---- boundaries ------------------------------------------------------------------------------ */

static const char *const outcomes[] = {"equal", "differs", "unknown", "only in A", "only in B"};

/* The number of the arrow between the two sides; 0: none. */
static uint64_t choose_arrow(tocsin_perfetto *perfetto, const tocsin_align_pair *pair)
{
    if (!pair->a || !pair->b)
        return 0;
    uint64_t *used =
        pair->outcome == TOCSIN_ALIGN_DIFFERS ? &perfetto->differ_arrows : &perfetto->equal_arrows;
    uint64_t most = pair->outcome == TOCSIN_ALIGN_DIFFERS ? DIFFER_ARROWS : EQUAL_ARROWS;
    if (*used == most)
        return 0;
    ++*used;
    return perfetto->differ_arrows + perfetto->equal_arrows;
}

static void put_boundary(tocsin_perfetto *perfetto, const tocsin_align_pair *pair, unsigned side,
                         uint64_t time, uint64_t arrow)
{
    const tocsin_align_place *place = side ? pair->b : pair->a;
    track *at = &perfetto->lanes.items[pair->thread].sides[side];
    uint64_t uuid = track_uuid(perfetto->process, pair->thread, side);
    char digest[64];
    if (!at->described) {
        if (!perfetto->described[side])
            describe_process(perfetto, side);
        describe_thread(perfetto, pair->thread, side);
        at->described = true;
    }
    time += side ? LATER_NS : 0;
    open_slices(perfetto, place, at, uuid, time);
    tocsin_string_printf(&perfetto->text, "%s%s%s", place->name, place->name[0] ? " " : "",
                         place->attribute);
    put_text(perfetto, &perfetto->event, EVENT_NAME);
    tocsin_protobuf_text(&perfetto->event, EVENT_CATEGORY, outcomes[pair->outcome]);
    annotate(perfetto, "compared", outcomes[pair->outcome]);
    annotate(perfetto, "phase", place->phase);
    annotate(perfetto, "at", place->site);
    annotate_number(perfetto, "time_ns", place->time_ns);
    if (place->digested) {
        snprintf(digest, sizeof digest, "%016" PRIx64, place->digest.polynomial);
        annotate(perfetto, "digest", digest);
    }
    if (arrow)
        tocsin_protobuf_fixed64(&perfetto->event, side ? EVENT_FLOW_END : EVENT_FLOW, arrow);
    put_event(perfetto, time, uuid, SLICE_BEGIN);
    at->end = time + SLICE_NS;
    put_event(perfetto, at->end, uuid, SLICE_END);
}

static bool keep_pair(tocsin_perfetto *perfetto, const tocsin_align_pair *pair, uint64_t time)
{
    if (pair->outcome != TOCSIN_ALIGN_DIFFERS || perfetto->kept_here == KEPT_A_PROCESS)
        return true;
    const tocsin_align_place *place = pair->a;
    tocsin_arena *arena = &perfetto->arena;
    kept_pair kept = {
        .name = tocsin_arena_copy(arena, place->name, strlen(place->name)),
        .attribute = tocsin_arena_copy(arena, place->attribute, strlen(place->attribute)),
        .operation = tocsin_arena_copy(arena, place->operation, strlen(place->operation)),
        .rank = pair->rank,
        .step = pair->step,
        .process = pair->process,
        .time = time,
        .thread = pair->thread};
    ++perfetto->kept_here;
    return kept.name && kept.attribute && kept.operation && TOCSIN_VEC_PUSH(&perfetto->kept, kept);
}

tocsin_status tocsin_perfetto_visit(void *context, const tocsin_align_pair *pair,
                                    tocsin_error *error)
{
    tocsin_perfetto *perfetto = context;
    assert(pair->thread < THREADS);
    perfetto->error = error;
    if (pair->process != perfetto->process || pair->step != perfetto->step)
        close_steps(perfetto);
    if (pair->process != perfetto->process) {
        perfetto->lanes.count = 0;
        perfetto->first_row = 0;
        perfetto->kept_here = 0;
        perfetto->described[0] = perfetto->described[1] = false;
    }
    perfetto->process = pair->process;
    perfetto->rank = pair->rank;
    perfetto->step = pair->step;
    while (perfetto->lanes.count <= pair->thread) {
        if (!TOCSIN_VEC_PUSH(&perfetto->lanes, (lane){0}))
            return tocsin_error_memory(error);
    }
    uint64_t row = perfetto->first_row + perfetto->lanes.items[pair->thread].rows++;
    uint64_t arrow = choose_arrow(perfetto, pair);
    if (!keep_pair(perfetto, pair, row * ROW_NS))
        return tocsin_error_memory(error);
    for (unsigned side = 0; side < 2; ++side) {
        if (side ? pair->b : pair->a)
            put_boundary(perfetto, pair, side, row * ROW_NS, arrow);
    }
    return perfetto->status;
}

/* ---- pivots ---------------------------------------------------------------------------------- */

static kept_pair *find_kept(tocsin_perfetto *perfetto, const tocsin_align_pivot *pivot)
{
    for (size_t k = 0; k < perfetto->kept.count; ++k) {
        kept_pair *kept = &perfetto->kept.items[k];
        if (!kept->marked && kept->rank == pivot->rank && kept->step == pivot->step &&
            strcmp(kept->name, pivot->name) == 0 &&
            strcmp(kept->attribute, pivot->attribute) == 0 &&
            strcmp(kept->operation, pivot->operation) == 0)
            return kept;
    }
    return NULL;
}

static void annotate_element(tocsin_perfetto *perfetto, const tocsin_align_pivot *pivot)
{
    char bits[16];
    tocsin_string *text = &perfetto->text;
    tocsin_string_append_char(text, '[');
    for (uint32_t axis = 0; axis < pivot->ndim; ++axis)
        tocsin_string_printf(text, "%s%" PRId64, axis ? "," : "", pivot->index[axis]);
    tocsin_string_append_char(text, ']');
    tocsin_protobuf_text(&perfetto->annotation, ANNOTATION_NAME, "element");
    put_text(perfetto, &perfetto->annotation, ANNOTATION_TEXT);
    tocsin_protobuf_message(&perfetto->event, EVENT_ANNOTATION, &perfetto->annotation);
    snprintf(bits, sizeof bits, "%08" PRIx32, pivot->change.set | pivot->change.cleared);
    annotate(perfetto, "bits", bits);
}

static void mark_pivot(tocsin_perfetto *perfetto, const tocsin_align_pivot *pivot)
{
    kept_pair *kept = find_kept(perfetto, pivot);
    if (!kept)
        return;
    kept->marked = true;
    for (unsigned side = 0; side < 2; ++side) {
        tocsin_protobuf_text(&perfetto->event, EVENT_NAME, "the runs part here");
        tocsin_protobuf_text(&perfetto->event, EVENT_CATEGORY, "pivot");
        annotate(perfetto, "boundary", pivot->name);
        annotate(perfetto, "role", pivot->attribute);
        annotate(perfetto, "difference", tocsin_difference_text(pivot->difference));
        annotate(perfetto, "value", side ? pivot->b.value : pivot->a.value);
        if (pivot->located)
            annotate_element(perfetto, pivot);
        put_event(perfetto, kept->time + SLICE_NS / 2 + (side ? LATER_NS : 0),
                  track_uuid(kept->process, kept->thread, side), INSTANT);
    }
}

tocsin_status tocsin_perfetto_finish(tocsin_perfetto *perfetto, const tocsin_align_result *result,
                                     tocsin_error *error)
{
    perfetto->error = error;
    close_steps(perfetto);
    for (size_t p = 0; p < result->pivot_count; ++p)
        mark_pivot(perfetto, &result->pivots[p]);
    if (perfetto->status != TOCSIN_OK)
        return perfetto->status;
    return tocsin_writer_commit(&perfetto->writer, error);
}

/* ---- life ------------------------------------------------------------------------------------ */

tocsin_status tocsin_perfetto_open(const char *path, const char *a, const char *b,
                                   tocsin_perfetto **perfetto, tocsin_error *error)
{
    tocsin_perfetto *made = tocsin_zalloc(1, sizeof *made);
    *perfetto = NULL;
    if (!made)
        return tocsin_error_memory(error);
    made->runs[0] = tocsin_arena_copy(&made->arena, a, strlen(a));
    made->runs[1] = tocsin_arena_copy(&made->arena, b, strlen(b));
    tocsin_status status = made->runs[0] && made->runs[1]
                               ? tocsin_writer_open(&made->writer, path, true, error)
                               : tocsin_error_memory(error);
    if (status == TOCSIN_OK) {
        *perfetto = made;
        return TOCSIN_OK;
    }
    tocsin_arena_free(&made->arena);
    tocsin_free(made);
    return status;
}

void tocsin_perfetto_free(tocsin_perfetto *perfetto)
{
    if (!perfetto)
        return;
    tocsin_writer_abandon(&perfetto->writer);
    tocsin_string_free(&perfetto->packet);
    tocsin_string_free(&perfetto->message);
    tocsin_string_free(&perfetto->event);
    tocsin_string_free(&perfetto->annotation);
    tocsin_string_free(&perfetto->text);
    tocsin_arena_free(&perfetto->arena);
    TOCSIN_VEC_FREE(&perfetto->lanes);
    TOCSIN_VEC_FREE(&perfetto->kept);
    tocsin_free(perfetto);
}
