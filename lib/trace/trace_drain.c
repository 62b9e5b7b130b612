/* trace_drain.c - the writer thread: from rings to blocks in the file, pass after pass.
 *
 * A pass notes the time, then every ring's head, then the dictionary's: an event that is seen has
 * its definitions in the dictionary's part of the same pass, which is written first. Blocks end at
 * record boundaries; they are compressed straight from the ring, whose bytes do not change between
 * tail and head. Cost: some 10 ns per record to find its end, and zstd.
 *
 * When the file takes no more, events are given up and counted; the dictionary stays in its ring
 * until the file takes it, for without it later events would have no names.
 */
#include "trace/trace_writer.h"

#include <assert.h>
#include <errno.h>
#include <time.h>
#include <unistd.h>

void tocsin_writer_poke(tocsin_trace_writer *writer)
{
    if (!atomic_load_explicit(&writer->woken, memory_order_relaxed) &&
        !atomic_exchange(&writer->woken, true))
        sem_post(&writer->wake);
}

static void sleep_until_due(tocsin_trace_writer *writer)
{
    struct timespec due;
    clock_gettime(CLOCK_MONOTONIC, &due);
    due.tv_sec += writer->flush_ms / 1000;
    due.tv_nsec += (long)(writer->flush_ms % 1000) * 1000000;
    if (due.tv_nsec >= 1000000000) {
        due.tv_nsec -= 1000000000;
        ++due.tv_sec;
    }
    while (sem_clockwait(&writer->wake, CLOCK_MONOTONIC, &due) != 0 && errno == EINTR)
        ;
    atomic_store(&writer->woken, false);
}

/* Append the block that was built; on failure the file is as it was. */
static tocsin_status append_block(tocsin_trace_writer *writer, size_t bytes, tocsin_error *error)
{
    tocsin_status status =
        tocsin_file_write(writer->fd, writer->block, bytes, writer->trace_path, error);
    if (status != TOCSIN_OK) {
        /* If even this fails, readers find a damaged block and go on behind it. */
        (void)!ftruncate(writer->fd, (off_t)writer->file_end);
        (void)lseek(writer->fd, (off_t)writer->file_end, SEEK_SET);
        return status;
    }
    writer->file_end += bytes;
    atomic_store_explicit(&writer->file_bytes, writer->file_end, memory_order_relaxed);
    return TOCSIN_OK;
}

static tocsin_status write_block(tocsin_trace_writer *writer, tocsin_block_header *header,
                                 const uint8_t *raw, tocsin_error *error)
{
    if (header->stream != TOCSIN_STREAM_DICTIONARY && atomic_load(&writer->dictionary_stuck))
        return error->code; /* the same pass's: what it names would not be in the file */
    size_t bytes = tocsin_block_encode(writer->compressor, header, raw, writer->block);
    TOCSIN_TRY(append_block(writer, bytes, error));
    atomic_fetch_add_explicit(&writer->raw_bytes, header->raw_bytes, memory_order_relaxed);
    return TOCSIN_OK;
}

/* Move over as many whole records as a block takes. Returns how many. */
static uint32_t advance_block(const tocsin_trace_writer *writer, const tocsin_ring *ring,
                              uint64_t until, tocsin_position *end)
{
    uint64_t start = end->offset;
    uint32_t record_count = 0;
    while (end->offset < until) {
        const uint8_t *record = ring->data + (end->offset & (ring->bytes - 1));
        size_t available = (size_t)(until - end->offset);
        size_t record_bytes = tocsin_record_bytes(record, available);
        assert(record_bytes > 0);
        if (end->offset + record_bytes - start > writer->block_bytes)
            break;
        if (ring->stream == TOCSIN_STREAM_DICTIONARY) {
            end->offset += record_bytes;
        } else {
            bool whole = tocsin_record_skip(record, available, end);
            assert(whole);
            (void)whole;
        }
        ++record_count;
    }
    assert(record_count > 0);
    return record_count;
}

/* Write the ring's stream up to `until`. On failure the rest is given up when `give_up`. After the
 * last release the ring may serve another thread already: it is not looked at again. */
static tocsin_status drain_ring(tocsin_trace_writer *writer, tocsin_ring *ring, uint64_t until,
                                uint64_t pass_ns, bool last, bool give_up, tocsin_error *error)
{
    tocsin_status result = TOCSIN_OK;
    const uint32_t stream = ring->stream;
    for (tocsin_position begin = ring->drained, end = begin; begin.offset < until; begin = end) {
        uint32_t record_count = advance_block(writer, ring, until, &end);
        tocsin_block_header header = {
            .stream = stream,
            .flags = last && end.offset == until ? TOCSIN_BLOCK_LAST_OF_PASS : 0,
            .raw_bytes = (uint32_t)(end.offset - begin.offset),
            .start = begin,
            .pass_ns = pass_ns,
            .record_count = record_count};
        const uint8_t *raw = ring->data + (begin.offset & (ring->bytes - 1));
        tocsin_status status = write_block(writer, &header, raw, error);
        if (status != TOCSIN_OK) {
            result = status;
            if (!give_up)
                return result;
            atomic_fetch_add_explicit(&writer->lost, record_count, memory_order_relaxed);
        } else if (stream != TOCSIN_STREAM_DICTIONARY) {
            writer->written_events += record_count;
        }
        tocsin_ring_release(ring, &end);
    }
    return result;
}

/* What is in the rings now. */
static void collect_items(tocsin_trace_writer *writer)
{
    writer->item_count = 0;
    pthread_mutex_lock(&writer->rings_lock);
    for (size_t i = 0; i < writer->ring_count; ++i) {
        tocsin_ring *ring = writer->rings[i];
        uint64_t head = tocsin_ring_head(ring);
        if (head > ring->drained.offset)
            writer->items[writer->item_count++] = (tocsin_pass_item){ring, head};
    }
    pthread_mutex_unlock(&writer->rings_lock);
}

/* Keep at most TOCSIN_WRITER_INDEX_MAX entries: when full, every second one goes. */
static void note_pass(tocsin_trace_writer *writer, uint64_t pass_ns, uint64_t file_offset,
                      uint64_t events)
{
    if (writer->pass_count++ % writer->index_stride != 0)
        return;
    if (writer->index_count == TOCSIN_WRITER_INDEX_MAX) {
        for (size_t i = 0; i < TOCSIN_WRITER_INDEX_MAX / 2; ++i)
            writer->index[i] = writer->index[2 * i];
        writer->index_count = TOCSIN_WRITER_INDEX_MAX / 2;
        writer->index_stride *= 2;
    }
    writer->index[writer->index_count++] = (tocsin_pass_entry){file_offset, pass_ns, events};
}

static tocsin_status write_mark(tocsin_trace_writer *writer, uint64_t pass_ns, tocsin_error *error)
{
    tocsin_block_header header = {
        .stream = TOCSIN_STREAM_MARK, .flags = TOCSIN_BLOCK_LAST_OF_PASS, .pass_ns = pass_ns};
    return write_block(writer, &header, NULL, error);
}

static tocsin_status run_pass(tocsin_trace_writer *writer, tocsin_error *error)
{
    uint64_t pass_ns = tocsin_writer_clock_ns(writer);
    collect_items(writer);
    uint64_t dictionary_until = tocsin_ring_head(writer->dictionary);
    bool defines = dictionary_until > writer->dictionary->drained.offset;
    if (writer->item_count == 0 && !defines) {
        /* A follower holds back what is later than the last pass began: tell it a later time. The
         * footer tells it, too. */
        if (!writer->mark_due || atomic_load(&writer->stopping))
            return TOCSIN_OK;
        writer->mark_due = false;
        return write_mark(writer, pass_ns, error);
    }
    uint64_t file_offset = writer->file_end;
    uint64_t events = writer->written_events;
    tocsin_status status = drain_ring(writer, writer->dictionary, dictionary_until, pass_ns,
                                      writer->item_count == 0, false, error);
    atomic_store(&writer->dictionary_stuck, status != TOCSIN_OK);
    for (size_t i = 0; i < writer->item_count; ++i) {
        tocsin_pass_item *item = &writer->items[i];
        tocsin_status drained = drain_ring(writer, item->ring, item->until, pass_ns,
                                           i + 1 == writer->item_count, true, error);
        status = status == TOCSIN_OK ? drained : status;
    }
    writer->mark_due = true;
    note_pass(writer, pass_ns, file_offset, events);
    return status;
}

static void append_varint(tocsin_string *out, uint64_t value)
{
    uint8_t bytes[TOCSIN_VARINT_BYTES_MAX];
    tocsin_string_append(out, bytes, tocsin_varint_put(bytes, value));
}

/* Counts and index; no stream has a producer any more. */
static tocsin_status write_footer(tocsin_trace_writer *writer, tocsin_error *error)
{
    tocsin_string raw = {.limit_bytes = TOCSIN_BLOCK_RAW_MAX};
    append_varint(&raw, writer->written_events);
    append_varint(&raw, atomic_load(&writer->lost));
    append_varint(&raw, atomic_load(&writer->raw_bytes));
    append_varint(&raw, writer->ring_count);
    for (size_t i = 0; i < writer->ring_count; ++i) {
        append_varint(&raw, writer->rings[i]->stream);
        append_varint(&raw, atomic_load(&writer->rings[i]->events));
    }
    append_varint(&raw, writer->index_count);
    tocsin_pass_entry before = {0};
    for (size_t i = 0; i < writer->index_count; ++i) {
        append_varint(&raw, writer->index[i].file_offset - before.file_offset);
        append_varint(&raw, writer->index[i].pass_ns - before.pass_ns);
        append_varint(&raw, writer->index[i].events - before.events);
        before = writer->index[i];
    }
    tocsin_status status = tocsin_string_check(&raw, error);
    assert(raw.bytes <= writer->block_bytes);
    if (status == TOCSIN_OK) {
        tocsin_block_header header = {.stream = TOCSIN_STREAM_FOOTER,
                                      .flags = TOCSIN_BLOCK_LAST_OF_PASS,
                                      .raw_bytes = (uint32_t)raw.bytes,
                                      .pass_ns = tocsin_writer_clock_ns(writer)};
        size_t bytes = tocsin_block_encode(writer->compressor, &header, (const uint8_t *)raw.text,
                                           writer->block);
        tocsin_put_u64(writer->block + bytes, writer->file_end);
        memcpy(writer->block + bytes + 8, TOCSIN_TRACE_END_MAGIC, TOCSIN_MAGIC_BYTES);
        status = append_block(writer, bytes + TOCSIN_TRACE_END_BYTES, error);
    }
    tocsin_string_free(&raw);
    return status;
}

void *tocsin_writer_thread(void *argument)
{
    tocsin_trace_writer *writer = argument;
    for (bool stopping = false; !stopping;) {
        sleep_until_due(writer);
        stopping = atomic_load(&writer->stopping);
        pthread_mutex_lock(&writer->flush_lock);
        uint64_t wanted = writer->flush_wanted;
        pthread_mutex_unlock(&writer->flush_lock);

        tocsin_error error = {.code = TOCSIN_OK};
        tocsin_status status = run_pass(writer, &error);
        if (stopping && status == TOCSIN_OK)
            status = write_footer(writer, &error);

        pthread_mutex_lock(&writer->flush_lock);
        if (status != TOCSIN_OK) {
            ++writer->pass_failures;
            writer->pass_error = error;
        }
        writer->close_status = status;
        writer->flush_answered = wanted;
        pthread_cond_broadcast(&writer->flush_done);
        pthread_mutex_unlock(&writer->flush_lock);
    }
    return NULL;
}
