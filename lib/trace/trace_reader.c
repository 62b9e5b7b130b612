/* trace_reader.c - events of one process, its threads merged by time.
 *
 * Scan a pass, give out what is earlier than the pass began, scan the next; what is later waits in
 * its stream. The order depends on the file alone, not on when it is read: following a run and
 * reading it afterwards give the same events in the same order (only rings are read at the end).
 * The stream with the earliest event keeps its turn until its next event is after the runner-up's,
 * so that a choice among n streams is made once per turn, not once per event.
 */
#include "trace/trace_reader.h"

#include <assert.h>
#include <fcntl.h>
#include <unistd.h>

/* ---- one stream ----------------------------------------------------------------------------- */

static void drop_raw(tocsin_trace *trace, tocsin_stream *stream)
{
    if (stream->raw)
        trace->decoded_bytes -= stream->raw_bytes;
    tocsin_free(stream->raw);
    stream->raw = NULL;
    stream->record_begin = stream->record_end = stream->raw_bytes = 0;
}

static tocsin_status load_piece(tocsin_trace *trace, tocsin_stream *stream, tocsin_error *error)
{
    assert(!stream->raw);
    tocsin_piece *piece = &stream->pieces.items[stream->next_piece];
    const tocsin_block_header *header = &piece->header;
    bool known = header->start.offset + header->raw_bytes <= stream->taken;
    if (!known && !piece->raw) {
        if (trace->decoded_bytes + header->raw_bytes > TOCSIN_TRACE_DECODED_MAX)
            ++trace->corrupt_blocks;
        else
            TOCSIN_TRY(
                tocsin_trace_load_block(trace, piece->file_offset, header, &piece->raw, error));
        if (piece->raw)
            trace->decoded_bytes += header->raw_bytes;
    }
    stream->raw = piece->raw;
    stream->raw_bytes = piece->raw ? header->raw_bytes : 0;
    stream->record_begin = stream->record_end = 0;
    stream->before = header->start;
    piece->raw = NULL;
    ++stream->next_piece;
    if (known)
        drop_raw(trace, stream); /* a ring's piece that the file has */
    return TOCSIN_OK;
}

/* Look at the record at record_begin. false: the piece is used up, or malformed from here on. */
static bool look_at_record(tocsin_trace *trace, tocsin_stream *stream)
{
    while (stream->raw && stream->record_begin < stream->raw_bytes) {
        stream->after = stream->before;
        if (!tocsin_record_skip(stream->raw + stream->record_begin,
                                stream->raw_bytes - stream->record_begin, &stream->after)) {
            ++trace->corrupt_blocks;
            break;
        }
        stream->record_end =
            stream->record_begin + (size_t)(stream->after.offset - stream->before.offset);
        if (stream->before.offset >= stream->taken)
            return true;
        stream->record_begin = stream->record_end;
        stream->before = stream->after;
    }
    drop_raw(trace, stream);
    return false;
}

/* Have the stream's next event at hand. *ready false: it has none for now. */
static tocsin_status prepare(tocsin_trace *trace, tocsin_stream *stream, bool *ready,
                             tocsin_error *error)
{
    *ready = true;
    if (stream->record_end > stream->record_begin)
        return TOCSIN_OK;
    for (;;) {
        if (stream->raw && look_at_record(trace, stream))
            return TOCSIN_OK;
        if (stream->next_piece == stream->pieces.count) {
            stream->next_piece = stream->pieces.count = 0;
            *ready = false;
            return TOCSIN_OK;
        }
        TOCSIN_TRY(load_piece(trace, stream, error));
    }
}

/* Give out the record at hand. false: malformed. */
static bool take_event(tocsin_trace *trace, tocsin_stream *stream)
{
    assert(stream->record_end > stream->record_begin);
    bool sound = tocsin_record_decode(stream->raw + stream->record_begin,
                                      stream->record_end - stream->record_begin, &stream->after,
                                      &trace->event, trace->values);
    trace->event.thread = stream->number;
    stream->before = stream->after;
    stream->taken = stream->after.offset;
    stream->record_begin = stream->record_end;
    stream->record_end = 0;
    return sound;
}

/* ---- merge ---------------------------------------------------------------------------------- */

static bool is_before(uint64_t time_ns, uint32_t number, uint64_t rival_ns, uint32_t rival_number)
{
    return time_ns < rival_ns || (time_ns == rival_ns && number < rival_number);
}

/* Choose the stream with the earliest event, and note the runner-up. */
static tocsin_status choose(tocsin_trace *trace, tocsin_error *error)
{
    trace->current = NULL;
    trace->rival_ns = UINT64_MAX;
    trace->rival_number = UINT32_MAX;
    for (size_t i = 0; i < trace->active.count;) {
        tocsin_stream *stream = trace->active.items[i];
        bool ready;
        TOCSIN_TRY(prepare(trace, stream, &ready, error));
        if (!ready) {
            stream->active = false;
            TOCSIN_VEC_FREE(&stream->pieces);
            trace->active.items[i] = trace->active.items[--trace->active.count];
            continue;
        }
        tocsin_stream *best = trace->current;
        if (!best ||
            is_before(stream->after.time_ns, stream->number, best->after.time_ns, best->number)) {
            trace->current = stream;
            stream = best;
        }
        if (stream && is_before(stream->after.time_ns, stream->number, trace->rival_ns,
                                trace->rival_number)) {
            trace->rival_ns = stream->after.time_ns;
            trace->rival_number = stream->number;
        }
        ++i;
    }
    return TOCSIN_OK;
}

/* Is it still the current stream's turn? */
static tocsin_status keep_turn(tocsin_trace *trace, tocsin_error *error)
{
    tocsin_stream *stream = trace->current;
    if (stream) {
        bool ready;
        TOCSIN_TRY(prepare(trace, stream, &ready, error));
        if (ready &&
            is_before(stream->after.time_ns, stream->number, trace->rival_ns, trace->rival_number))
            return TOCSIN_OK;
    }
    return choose(trace, error);
}

/* Nothing is left to give out: look for more. *progress false: there is nothing more for now. */
static tocsin_status find_more(tocsin_trace *trace, bool *progress, tocsin_error *error)
{
    *progress = false;
    if (trace->final)
        return TOCSIN_OK;
    /* Asked before the last look. A file that has no header yet is one that a process has just
     * created. */
    bool alive = trace->scanned == 0 ? trace->follow : tocsin_trace_is_alive(trace);
    if (!trace->complete)
        TOCSIN_TRY(tocsin_trace_scan(trace, progress, error));
    if (*progress || (trace->follow && alive))
        return TOCSIN_OK;
    if (!trace->complete && !alive)
        TOCSIN_TRY(tocsin_trace_recover_rings(trace, error));
    trace->final = true;
    trace->watermark = UINT64_MAX;
    trace->current = NULL;
    *progress = true;
    return TOCSIN_OK;
}

static void count_event(tocsin_trace *trace)
{
    const tocsin_event *event = &trace->event;
    ++trace->kind_counts[event->kind];
    if (trace->first_ns == 0)
        trace->first_ns = event->time_ns;
    trace->last_ns = event->time_ns;
    if (event->kind == TOCSIN_EVENT_ENTER &&
        tocsin_trace_function_role(trace, event->function) == TOCSIN_ROLE_STEP_END)
        ++trace->step_count;
}

static tocsin_status report_damage(tocsin_trace *trace, tocsin_error *error)
{
    trace->reported_blocks = trace->corrupt_blocks;
    return tocsin_error_at(error, TOCSIN_E_CORRUPT, trace->path, (int64_t)trace->scanned,
                           "%llu damaged block(s) skipped",
                           (unsigned long long)trace->corrupt_blocks);
}

tocsin_status tocsin_trace_next(tocsin_trace *trace, const tocsin_event **event,
                                tocsin_error *error)
{
    assert(trace && event);
    *event = NULL;
    if (trace->exhausted)
        return TOCSIN_OK;
    if (trace->fd < 0)
        TOCSIN_TRY(tocsin_file_open(trace->path, O_RDONLY, 0, &trace->fd, error));
    for (;;) {
        TOCSIN_TRY(keep_turn(trace, error));
        if (trace->corrupt_blocks > trace->reported_blocks)
            return report_damage(trace, error);
        tocsin_stream *stream = trace->current;
        if (stream && (stream->after.time_ns < trace->watermark || trace->final)) {
            bool sound = take_event(trace, stream);
            trace->corrupt_blocks += !sound;
            if (!sound || trace->event.kind == 0)
                continue;
            count_event(trace);
            *event = &trace->event;
            return TOCSIN_OK;
        }
        bool progress;
        TOCSIN_TRY(find_more(trace, &progress, error));
        if (progress)
            continue;
        trace->exhausted = trace->final;
        if (trace->exhausted)
            tocsin_trace_rest(trace);
        return TOCSIN_OK;
    }
}

/* ---- opening, closing, facts ---------------------------------------------------------------- */

tocsin_status tocsin_trace_open(const char *path, bool follow, tocsin_trace **result,
                                tocsin_error *error)
{
    assert(path && result);
    *result = NULL;
    tocsin_trace *trace = tocsin_zalloc(1, sizeof *trace);
    if (!trace)
        return tocsin_error_memory(error);
    trace->fd = -1;
    trace->follow = follow;
    trace->path = tocsin_copy_text(path, strlen(path));
    bool progress;
    tocsin_status status = trace->path ? tocsin_file_open(path, O_RDONLY, 0, &trace->fd, error)
                                       : tocsin_error_memory(error);
    if (status == TOCSIN_OK)
        status = tocsin_trace_scan(trace, &progress, error); /* the header, the first pass */
    if (status != TOCSIN_OK) {
        tocsin_trace_close(trace);
        return status;
    }
    *result = trace;
    return TOCSIN_OK;
}

void tocsin_trace_rest(tocsin_trace *trace)
{
    if (trace->fd >= 0)
        close(trace->fd); /* nothing was written that it could lose */
    trace->fd = -1;
}

void tocsin_trace_close(tocsin_trace *trace)
{
    if (!trace)
        return;
    size_t cursor = 0;
    uint64_t number;
    uint64_t *slot;
    while (tocsin_map_next(&trace->streams, &cursor, &number, &slot)) {
        tocsin_stream *stream = (tocsin_stream *)(uintptr_t)*slot;
        if (!stream)
            continue;
        for (size_t i = stream->next_piece; i < stream->pieces.count; ++i)
            tocsin_free(stream->pieces.items[i].raw);
        TOCSIN_VEC_FREE(&stream->pieces);
        tocsin_free(stream->raw);
        tocsin_free(stream);
    }
    tocsin_map_free(&trace->streams);
    TOCSIN_VEC_FREE(&trace->active);
    tocsin_names_free(&trace->names);
    tocsin_string_free(&trace->line);
    tocsin_trace_rest(trace);
    tocsin_free(trace->path);
    tocsin_free(trace);
}

bool tocsin_trace_is_complete(const tocsin_trace *trace)
{
    return trace->complete;
}

bool tocsin_trace_is_alive(const tocsin_trace *trace)
{
    return !trace->complete && tocsin_identity_is_alive(&trace->identity);
}

uint64_t tocsin_trace_corrupt_blocks(const tocsin_trace *trace)
{
    return trace->corrupt_blocks;
}

uint64_t tocsin_trace_trailing_bytes(const tocsin_trace *trace)
{
    return trace->trailing_bytes;
}

const char *tocsin_trace_path(const tocsin_trace *trace)
{
    return trace->path;
}

int64_t tocsin_trace_pid(const tocsin_trace *trace)
{
    return (int64_t)trace->identity.pid;
}

void tocsin_trace_get_facts(const tocsin_trace *trace, tocsin_trace_facts *facts)
{
    assert(trace && facts);
    const uint64_t *counts = trace->kind_counts;
    *facts = (tocsin_trace_facts){.pid = tocsin_trace_pid(trace),
                                  .host = trace->identity.host,
                                  .wall_ns = trace->identity.wall_ns,
                                  .monotonic_ns = trace->identity.monotonic_ns,
                                  .enters = counts[TOCSIN_EVENT_ENTER],
                                  .exits = counts[TOCSIN_EVENT_EXIT],
                                  .raises = counts[TOCSIN_EVENT_RAISE],
                                  .states = counts[TOCSIN_EVENT_STATE],
                                  .metas = counts[TOCSIN_EVENT_META],
                                  .steps = trace->step_count,
                                  .first_ns = trace->first_ns,
                                  .last_ns = trace->last_ns,
                                  .threads = trace->streams.count,
                                  .strings = trace->names.strings.count,
                                  .functions = trace->names.functions.count,
                                  .variables = trace->names.variables.count,
                                  .shapes = trace->names.shapes.count,
                                  .sites = trace->names.sites.count,
                                  .file_bytes = trace->scanned + trace->trailing_bytes,
                                  .blocks = trace->block_count,
                                  .corrupt_blocks = trace->corrupt_blocks,
                                  .trailing_bytes = trace->trailing_bytes,
                                  .recovered_bytes = trace->recovered_bytes,
                                  .lost = trace->lost,
                                  .complete = trace->complete,
                                  .alive = tocsin_trace_is_alive(trace)};
    for (unsigned kind = TOCSIN_EVENT_ENTER; kind <= TOCSIN_EVENT_META; ++kind)
        facts->events += counts[kind];
    if (trace->complete)
        facts->file_bytes += TOCSIN_TRACE_END_BYTES;
}
