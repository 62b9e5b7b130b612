/* trace_recover.c - the last events of a process that died: what its rings have beyond its file.
 *
 * The ring file is read, not mapped: it may be cut at any place. It carries no checksums, so all
 * that is believed of it is checked: identity, sizes, positions, and later each record.
 */
#include "trace/trace_reader.h"
#include "trace/trace_ring.h"

#include <assert.h>
#include <fcntl.h>
#include <unistd.h>

enum { PAGE_BYTES_MIN = 4096, PAGE_BYTES_MAX = 1 << 20 };

typedef struct ring_source {
    int fd;
    const char *path;
    uint64_t file_bytes;
    uint32_t page_bytes;
    uint32_t dictionary_bytes;
    uint32_t ring_bytes;
} ring_source;

/* What a control page says. */
typedef struct ring_state {
    bool in_use;
    uint32_t stream;
    tocsin_position from;
    uint64_t head;
} ring_state;

static bool is_ring_bytes(uint32_t bytes)
{
    return bytes >= TOCSIN_RING_BYTES_MIN && bytes <= TOCSIN_RING_BYTES_MAX &&
           (bytes & (bytes - 1)) == 0;
}

/* "...trace" -> "...ring"; false: it has another ending. */
static bool ring_path(const char *trace_path, tocsin_string *path)
{
    size_t bytes = strlen(trace_path);
    size_t suffix_bytes = strlen(".trace");
    if (bytes < suffix_bytes || strcmp(trace_path + bytes - suffix_bytes, ".trace") != 0)
        return false;
    tocsin_string_append(path, trace_path, bytes - suffix_bytes);
    tocsin_string_append_text(path, ".ring");
    return true;
}

/* *usable false: not this process's rings, or damaged. */
static tocsin_status read_header(const tocsin_trace *trace, ring_source *source, bool *usable,
                                 tocsin_error *error)
{
    uint8_t header[TOCSIN_IDENTITY_BYTES];
    size_t count;
    tocsin_identity identity;
    *usable = false;
    TOCSIN_TRY(tocsin_file_size(source->fd, &source->file_bytes, source->path, error));
    TOCSIN_TRY(tocsin_file_read(source->fd, header, sizeof header, 0, &count, source->path, error));
    if (count < sizeof header || tocsin_identity_decode(header, TOCSIN_RING_MAGIC, &identity,
                                                        source->path, NULL) != TOCSIN_OK)
        return TOCSIN_OK;
    if (trace->identified && (identity.pid != trace->identity.pid ||
                              identity.monotonic_ns != trace->identity.monotonic_ns ||
                              identity.start_ticks != trace->identity.start_ticks))
        return TOCSIN_OK;
    source->page_bytes = identity.page_bytes;
    source->dictionary_bytes = identity.dictionary_ring_bytes;
    source->ring_bytes = identity.ring_bytes;
    *usable = source->page_bytes >= PAGE_BYTES_MIN && source->page_bytes <= PAGE_BYTES_MAX &&
              is_ring_bytes(source->dictionary_bytes) && is_ring_bytes(source->ring_bytes);
    return TOCSIN_OK;
}

static tocsin_status read_control(const ring_source *source, uint64_t offset, ring_state *state,
                                  tocsin_error *error)
{
    uint8_t control[sizeof(tocsin_ring_control)];
    size_t count;
    TOCSIN_TRY(tocsin_file_read(source->fd, control, sizeof control, (int64_t)offset, &count,
                                source->path, error));
    *state = (ring_state){.in_use = false};
    if (count < sizeof control)
        return TOCSIN_OK;
    const uint8_t *checkpoint = control + offsetof(tocsin_ring_control, checkpoints) +
                                (tocsin_get_u32(control + 16) & 1) * sizeof(tocsin_position);
    state->in_use = tocsin_get_u32(control) == TOCSIN_RING_IN_USE;
    state->stream = tocsin_get_u32(control + 4);
    state->from.offset = tocsin_get_u64(checkpoint);
    state->from.time_ns = tocsin_get_u64(checkpoint + 8);
    state->from.calls = tocsin_get_u64(checkpoint + 16);
    state->head = tocsin_get_u64(control + offsetof(tocsin_ring_control, head));
    return TOCSIN_OK;
}

/* Copy stream bytes [from, head) of the ring whose data is at `data`. *raw NULL: cut off. */
static tocsin_status copy_data(const ring_source *source, uint64_t data, uint32_t ring_bytes,
                               const ring_state *state, uint8_t **raw, tocsin_error *error)
{
    size_t bytes = (size_t)(state->head - state->from.offset);
    size_t begin = (size_t)(state->from.offset & (ring_bytes - 1));
    size_t first = ring_bytes - begin < bytes ? ring_bytes - begin : bytes;
    size_t count = 0;
    size_t wrapped = 0;
    *raw = NULL;
    uint8_t *copy = tocsin_alloc(bytes);
    if (!copy)
        return tocsin_error_memory(error);
    tocsin_status status = tocsin_file_read(source->fd, copy, first, (int64_t)(data + begin),
                                            &count, source->path, error);
    if (status == TOCSIN_OK && count == first && first < bytes)
        status = tocsin_file_read(source->fd, copy + first, bytes - first, (int64_t)data, &wrapped,
                                  source->path, error);
    if (status == TOCSIN_OK && count + wrapped == bytes)
        *raw = copy;
    else
        tocsin_free(copy);
    return status;
}

static tocsin_status use_stream(tocsin_trace *trace, const ring_state *state, uint8_t *raw,
                                tocsin_error *error)
{
    size_t bytes = (size_t)(state->head - state->from.offset);
    trace->recovered_bytes += bytes;
    if (state->stream == TOCSIN_STREAM_DICTIONARY) {
        bool damaged = false;
        tocsin_status status = tocsin_names_read(&trace->names, raw, bytes, &damaged, error);
        trace->corrupt_blocks += damaged;
        tocsin_free(raw);
        return status;
    }
    tocsin_piece piece = {
        .header = {.stream = state->stream, .raw_bytes = (uint32_t)bytes, .start = state->from},
        .raw = raw};
    trace->decoded_bytes += bytes;
    return tocsin_trace_queue(trace, &piece, error);
}

/* One ring at `offset` of the file. */
static tocsin_status recover_ring(tocsin_trace *trace, const ring_source *source, uint64_t offset,
                                  uint32_t ring_bytes, tocsin_error *error)
{
    ring_state state;
    TOCSIN_TRY(read_control(source, offset, &state, error));
    if (!state.in_use || state.head == state.from.offset)
        return TOCSIN_OK;
    bool is_dictionary = offset == source->page_bytes;
    uint64_t bytes = state.head - state.from.offset;
    if (state.head < state.from.offset || bytes > ring_bytes ||
        state.stream > TOCSIN_TRACE_STREAM_MAX ||
        (state.stream == TOCSIN_STREAM_DICTIONARY) != is_dictionary ||
        trace->decoded_bytes + bytes > TOCSIN_TRACE_DECODED_MAX) {
        ++trace->corrupt_blocks;
        return TOCSIN_OK;
    }
    uint8_t *raw;
    TOCSIN_TRY(copy_data(source, offset + source->page_bytes, ring_bytes, &state, &raw, error));
    if (!raw) {
        ++trace->corrupt_blocks;
        return TOCSIN_OK;
    }
    /* A process of another machine is taken for dead while it lives: was the copy overtaken? */
    ring_state later;
    tocsin_status status = read_control(source, offset, &later, error);
    if (status != TOCSIN_OK || later.stream != state.stream ||
        later.head - state.from.offset > ring_bytes) {
        tocsin_free(raw);
        return status;
    }
    return use_stream(trace, &state, raw, error);
}

static tocsin_status recover_all(tocsin_trace *trace, ring_source *source, tocsin_error *error)
{
    bool usable;
    TOCSIN_TRY(read_header(trace, source, &usable, error));
    if (!usable) {
        ++trace->corrupt_blocks;
        return TOCSIN_OK;
    }
    uint64_t offset = source->page_bytes;
    uint32_t ring_bytes = source->dictionary_bytes;
    for (uint32_t ring = 0; ring <= TOCSIN_RINGS_MAX && offset < source->file_bytes; ++ring) {
        TOCSIN_TRY(recover_ring(trace, source, offset, ring_bytes, error));
        offset += source->page_bytes + (uint64_t)ring_bytes;
        ring_bytes = source->ring_bytes;
    }
    return TOCSIN_OK;
}

tocsin_status tocsin_trace_recover_rings(tocsin_trace *trace, tocsin_error *error)
{
    assert(trace && !trace->complete);
    tocsin_string path = {0};
    if (!ring_path(trace->path, &path))
        return TOCSIN_OK;
    tocsin_status status = tocsin_string_check(&path, error);
    ring_source source = {.fd = -1, .path = path.text};
    if (status == TOCSIN_OK)
        status = tocsin_file_open(path.text, O_RDONLY, 0, &source.fd, error);
    if (status == TOCSIN_OK)
        status = recover_all(trace, &source, error);
    else if (status == TOCSIN_E_NOT_FOUND)
        status = TOCSIN_OK;
    if (source.fd >= 0)
        close(source.fd);
    tocsin_string_free(&path);
    return status;
}
