/* trace_scan.c - finding the blocks of a trace file, pass by pass.
 *
 * Headers are read one by one; blocks of the dictionary are taken in at once, those of threads are
 * only queued: their payload is read when the merge comes to it. So the memory is one decoded block
 * per active stream and some 80 bytes per queued block.
 *
 * Damage: where no sound header stands, the next one is searched for.
 */
#include "trace/trace_reader.h"

#include <assert.h>

enum { SEARCH_BYTES = 64 << 10 };

/* ---- one block ------------------------------------------------------------------------------ */

tocsin_status tocsin_trace_load_block(tocsin_trace *trace, uint64_t file_offset,
                                      const tocsin_block_header *header, uint8_t **raw,
                                      tocsin_error *error)
{
    *raw = NULL;
    size_t bytes =
        TOCSIN_BLOCK_HEADER_BYTES + (size_t)header->stored_bytes + TOCSIN_BLOCK_TRAILER_BYTES;
    uint8_t *block = tocsin_alloc(bytes);
    if (!block)
        return tocsin_error_memory(error);
    size_t count;
    tocsin_status status =
        tocsin_file_read(trace->fd, block, bytes, (int64_t)file_offset, &count, trace->path, error);
    if (status == TOCSIN_OK) {
        bool intact = count == bytes && tocsin_block_is_intact(block, header);
        uint8_t *decoded = intact ? tocsin_alloc(header->raw_bytes) : NULL;
        if (intact && !decoded) {
            status = tocsin_error_memory(error);
        } else if (intact &&
                   tocsin_block_decompress(block + TOCSIN_BLOCK_HEADER_BYTES, header, decoded)) {
            *raw = decoded;
        } else {
            tocsin_free(decoded);
            ++trace->corrupt_blocks;
        }
    }
    tocsin_free(block);
    return status;
}

static tocsin_status take_mark(tocsin_trace *trace, uint64_t file_offset,
                               const tocsin_block_header *header, tocsin_error *error)
{
    uint8_t *raw;
    TOCSIN_TRY(tocsin_trace_load_block(trace, file_offset, header, &raw, error));
    tocsin_free(raw); /* empty; only its checksum is of interest */
    return TOCSIN_OK;
}

static tocsin_status take_dictionary(tocsin_trace *trace, uint64_t file_offset,
                                     const tocsin_block_header *header, tocsin_error *error)
{
    uint8_t *raw;
    TOCSIN_TRY(tocsin_trace_load_block(trace, file_offset, header, &raw, error));
    if (!raw)
        return TOCSIN_OK;
    bool damaged = false;
    tocsin_status status =
        tocsin_names_read(&trace->names, raw, header->raw_bytes, &damaged, error);
    trace->corrupt_blocks += damaged;
    tocsin_free(raw);
    return status;
}

static tocsin_status take_footer(tocsin_trace *trace, uint64_t file_offset,
                                 const tocsin_block_header *header, tocsin_error *error)
{
    uint8_t *raw;
    uint64_t events;
    TOCSIN_TRY(tocsin_trace_load_block(trace, file_offset, header, &raw, error));
    if (!raw)
        return TOCSIN_OK;
    size_t begin = tocsin_varint_get(raw, header->raw_bytes, &events);
    size_t count =
        begin ? tocsin_varint_get(raw + begin, header->raw_bytes - begin, &trace->lost) : 0;
    trace->corrupt_blocks += count == 0;
    trace->complete = count != 0;
    tocsin_free(raw);
    return TOCSIN_OK;
}

/* ---- streams -------------------------------------------------------------------------------- */

static tocsin_stream *find_stream(tocsin_trace *trace, uint32_t number)
{
    uint64_t *slot = tocsin_map_at(&trace->streams, number);
    if (!slot)
        return NULL;
    if (!*slot) {
        tocsin_stream *created = tocsin_zalloc(1, sizeof *created);
        if (!created)
            return NULL;
        created->number = number;
        *slot = (uint64_t)(uintptr_t)created;
    }
    return (tocsin_stream *)(uintptr_t)*slot;
}

/* Forget the pieces that were read, once they are the larger part. */
static void compact_pieces(tocsin_stream *stream)
{
    if (stream->next_piece < 32 || stream->next_piece * 2 < stream->pieces.count)
        return;
    stream->pieces.count -= stream->next_piece;
    memmove(stream->pieces.items, stream->pieces.items + stream->next_piece,
            stream->pieces.count * sizeof *stream->pieces.items);
    stream->next_piece = 0;
}

tocsin_status tocsin_trace_queue(tocsin_trace *trace, const tocsin_piece *piece,
                                 tocsin_error *error)
{
    tocsin_stream *stream = find_stream(trace, piece->header.stream);
    if (stream)
        compact_pieces(stream);
    if (!stream || !TOCSIN_VEC_RESERVE(&trace->active, 1) ||
        !TOCSIN_VEC_PUSH(&stream->pieces, *piece)) {
        tocsin_free(piece->raw);
        return tocsin_error_memory(error);
    }
    if (!stream->active) {
        stream->active = true;
        trace->active.items[trace->active.count++] = stream;
    }
    trace->current = NULL;
    return TOCSIN_OK;
}

/* ---- the file ------------------------------------------------------------------------------- */

/* The header of the file, once all of it is there. Errors: E_FORMAT, E_VERSION, E_IO. */
static tocsin_status read_file_header(tocsin_trace *trace, tocsin_error *error)
{
    uint8_t header[TOCSIN_IDENTITY_BYTES];
    size_t count;
    TOCSIN_TRY(tocsin_file_read(trace->fd, header, sizeof header, 0, &count, trace->path, error));
    if (count < sizeof header) {
        size_t known = count < TOCSIN_MAGIC_BYTES ? count : TOCSIN_MAGIC_BYTES;
        if (memcmp(header, TOCSIN_TRACE_MAGIC, known) != 0)
            return tocsin_error_at(error, TOCSIN_E_FORMAT, trace->path, 0, "not a Tocsin trace");
        return TOCSIN_OK;
    }
    tocsin_status status =
        tocsin_identity_decode(header, TOCSIN_TRACE_MAGIC, &trace->identity, trace->path, error);
    trace->identified = status == TOCSIN_OK;
    if (status == TOCSIN_E_CORRUPT) {
        ++trace->corrupt_blocks;
        status = TOCSIN_OK;
    }
    trace->scanned = sizeof header;
    return status;
}

/* A sound block header at this place of the file? */
static tocsin_status read_block_header(tocsin_trace *trace, uint64_t offset,
                                       tocsin_block_header *header, bool *sound,
                                       tocsin_error *error)
{
    uint8_t bytes[TOCSIN_BLOCK_HEADER_BYTES];
    size_t count;
    TOCSIN_TRY(tocsin_file_read(trace->fd, bytes, sizeof bytes, (int64_t)offset, &count,
                                trace->path, error));
    *sound = count == sizeof bytes && tocsin_block_header_decode(bytes, header);
    return TOCSIN_OK;
}

/* The first sound block header after trace->scanned; *found 0: none. */
static tocsin_status search_block(tocsin_trace *trace, uint64_t *found, tocsin_error *error)
{
    *found = 0;
    uint8_t *window = tocsin_alloc(SEARCH_BYTES);
    if (!window)
        return tocsin_error_memory(error);
    tocsin_status status = TOCSIN_OK;
    uint64_t offset = trace->scanned + 1;
    for (size_t count = SEARCH_BYTES; status == TOCSIN_OK && *found == 0;) {
        status = tocsin_file_read(trace->fd, window, SEARCH_BYTES, (int64_t)offset, &count,
                                  trace->path, error);
        if (status != TOCSIN_OK || count < TOCSIN_BLOCK_HEADER_BYTES)
            break;
        size_t last = count - TOCSIN_BLOCK_HEADER_BYTES;
        for (size_t i = 0; i <= last && *found == 0; ++i) {
            tocsin_block_header header;
            if (window[i] == (uint8_t)TOCSIN_BLOCK_MAGIC[0] &&
                tocsin_block_header_decode(window + i, &header))
                *found = offset + i;
        }
        offset += last + 1;
    }
    tocsin_free(window);
    return status;
}

/* The pass that was being scanned is whole: everything before it is known. */
static void end_pass(tocsin_trace *trace)
{
    if (trace->pass_ns > trace->watermark)
        trace->watermark = trace->pass_ns;
    trace->in_pass = false;
    trace->current = NULL;
}

static tocsin_status take_block(tocsin_trace *trace, uint64_t file_offset,
                                const tocsin_block_header *header, tocsin_error *error)
{
    if (header->stream == TOCSIN_STREAM_MARK)
        return take_mark(trace, file_offset, header, error);
    if (header->stream == TOCSIN_STREAM_FOOTER)
        return take_footer(trace, file_offset, header, error);
    ++trace->block_count;
    if (header->stream == TOCSIN_STREAM_DICTIONARY)
        return take_dictionary(trace, file_offset, header, error);
    if (header->stream > TOCSIN_TRACE_STREAM_MAX) {
        ++trace->corrupt_blocks;
        return TOCSIN_OK;
    }
    tocsin_piece piece = {.header = *header, .file_offset = file_offset};
    return tocsin_trace_queue(trace, &piece, error);
}

/* Take one whole block, or step over damage. *progress false: nothing more for now. */
static tocsin_status scan_block(tocsin_trace *trace, uint64_t file_bytes, bool *progress,
                                tocsin_error *error)
{
    tocsin_block_header header;
    bool sound;
    *progress = false;
    if (file_bytes < trace->scanned + TOCSIN_BLOCK_HEADER_BYTES)
        return TOCSIN_OK;
    TOCSIN_TRY(read_block_header(trace, trace->scanned, &header, &sound, error));
    if (!sound) {
        uint64_t found;
        TOCSIN_TRY(search_block(trace, &found, error));
        if (found == 0)
            return TOCSIN_OK;
        ++trace->corrupt_blocks;
        trace->scanned = found;
        *progress = true;
        return TOCSIN_OK;
    }
    uint64_t block_bytes =
        TOCSIN_BLOCK_HEADER_BYTES + (uint64_t)header.stored_bytes + TOCSIN_BLOCK_TRAILER_BYTES;
    if (file_bytes - trace->scanned < block_bytes)
        return TOCSIN_OK;
    *progress = true;
    if (trace->in_pass && header.pass_ns != trace->pass_ns) {
        end_pass(trace); /* its last block was lost; this one is looked at again */
        return TOCSIN_OK;
    }
    trace->in_pass = true;
    trace->pass_ns = header.pass_ns;
    TOCSIN_TRY(take_block(trace, trace->scanned, &header, error));
    trace->scanned += block_bytes;
    if (header.flags & TOCSIN_BLOCK_LAST_OF_PASS)
        end_pass(trace);
    return TOCSIN_OK;
}

tocsin_status tocsin_trace_scan(tocsin_trace *trace, bool *progress, tocsin_error *error)
{
    assert(trace && progress);
    *progress = false;
    uint64_t file_bytes;
    TOCSIN_TRY(tocsin_file_size(trace->fd, &file_bytes, trace->path, error));
    if (trace->scanned == 0) {
        TOCSIN_TRY(read_file_header(trace, error));
        if (trace->scanned == 0) {
            trace->trailing_bytes = file_bytes;
            return TOCSIN_OK;
        }
    }
    bool more = true;
    while (more && !trace->complete) {
        TOCSIN_TRY(scan_block(trace, file_bytes, &more, error));
        *progress |= more;
        if (more && !trace->in_pass)
            break;
    }
    if (trace->complete)
        trace->trailing_bytes = 0;
    else
        trace->trailing_bytes = file_bytes > trace->scanned ? file_bytes - trace->scanned : 0;
    return TOCSIN_OK;
}
