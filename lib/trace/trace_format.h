/* lib/trace/trace_format.h - bytes of trace and ring files: docs/formats/trace.md in C.
 *
 * Only encoding and decoding; no file is opened here. Everything that decodes takes hostile bytes:
 * it checks each length against what is there and each count against the limits below.
 */
#ifndef TOCSIN_TRACE_FORMAT_H
#define TOCSIN_TRACE_FORMAT_H

#include "base/base.h"

#include <tocsin/event.h>

#define TOCSIN_TRACE_VERSION     1u
#define TOCSIN_TRACE_MAGIC       "TOCTRACE"
#define TOCSIN_RING_MAGIC        "TOCSRING"
#define TOCSIN_BLOCK_MAGIC       "\x89TOCBLK\n"
#define TOCSIN_TRACE_END_MAGIC   "TOCSEND\n"
#define TOCSIN_TRACE_END_BYTES   16u /* at the end: footer's offset, magic */
#define TOCSIN_MAGIC_BYTES       8u

#define TOCSIN_TRACE_STRING_MAX  32768u
#define TOCSIN_TRACE_RECORD_MAX  65537u /* size field included */
#define TOCSIN_TRACE_EVENT_MAX   4096u  /* a record of an event */
#define TOCSIN_TRACE_ID_MAX      (1u << 24)
#define TOCSIN_TRACE_HOLES_MAX   (1u << 18)
#define TOCSIN_TRACE_STREAM_MAX  (1u << 24)
#define TOCSIN_TRACE_DECODED_MAX (512u << 20)

/* ---- little-endian fields ------------------------------------------------------------------ */

static inline void tocsin_put_u16(uint8_t *out, uint16_t value)
{
    out[0] = (uint8_t)value;
    out[1] = (uint8_t)(value >> 8);
}

static inline void tocsin_put_u32(uint8_t *out, uint32_t value)
{
    for (unsigned i = 0; i < 4; ++i)
        out[i] = (uint8_t)(value >> (8 * i));
}

static inline void tocsin_put_u64(uint8_t *out, uint64_t value)
{
    for (unsigned i = 0; i < 8; ++i)
        out[i] = (uint8_t)(value >> (8 * i));
}

static inline uint16_t tocsin_get_u16(const uint8_t *in)
{
    return (uint16_t)(in[0] | in[1] << 8);
}

static inline uint32_t tocsin_get_u32(const uint8_t *in)
{
    uint32_t value = 0;
    for (unsigned i = 0; i < 4; ++i)
        value |= (uint32_t)in[i] << (8 * i);
    return value;
}

static inline uint64_t tocsin_get_u64(const uint8_t *in)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < 8; ++i)
        value |= (uint64_t)in[i] << (8 * i);
    return value;
}

/* ---- identity: the header of both files ---------------------------------------------------- */

#define TOCSIN_IDENTITY_BYTES 160u
#define TOCSIN_HOST_BYTES     64u
#define TOCSIN_BOOT_BYTES     16u

/* Which process wrote a file, and when. */
typedef struct tocsin_identity {
    uint64_t pid;
    uint64_t start_ticks; /* /proc/PID/stat, field 22 */
    uint64_t wall_ns;
    uint64_t monotonic_ns;
    uint8_t boot[TOCSIN_BOOT_BYTES];
    char host[TOCSIN_HOST_BYTES + 1]; /* ends in 0 */
    uint32_t page_bytes;              /* ring files; 0 in trace files */
    uint32_t dictionary_ring_bytes;
    uint32_t ring_bytes;
} tocsin_identity;

/* This process, now. */
void tocsin_identity_of_self(tocsin_identity *identity);
void tocsin_identity_encode(const tocsin_identity *identity, const char *magic,
                            uint8_t out[TOCSIN_IDENTITY_BYTES]);
/* Errors: E_FORMAT (magic), E_VERSION, E_CORRUPT (checksum; *identity is zeroed). */
TOCSIN_MUST_CHECK tocsin_status tocsin_identity_decode(const uint8_t in[TOCSIN_IDENTITY_BYTES],
                                                       const char *magic, tocsin_identity *identity,
                                                       const char *where, tocsin_error *error);
/* Does that very process still run under this kernel? */
bool tocsin_identity_is_alive(const tocsin_identity *identity);

/* ---- blocks -------------------------------------------------------------------------------- */

#define TOCSIN_BLOCK_HEADER_BYTES  64u
#define TOCSIN_BLOCK_TRAILER_BYTES 8u
#define TOCSIN_BLOCK_RAW_MAX       (4u << 20)
#define TOCSIN_BLOCK_BYTES_MAX                                                                     \
    (TOCSIN_BLOCK_HEADER_BYTES + TOCSIN_BLOCK_RAW_MAX + TOCSIN_BLOCK_TRAILER_BYTES)

#define TOCSIN_STREAM_DICTIONARY 0u
#define TOCSIN_STREAM_MARK       0xfffffffeu
#define TOCSIN_STREAM_FOOTER     0xffffffffu

enum { TOCSIN_CODEC_STORED = 0, TOCSIN_CODEC_ZSTD = 1 };
enum { TOCSIN_BLOCK_LAST_OF_PASS = 1 };

/* What must be known to decode a stream from some position on. */
typedef struct tocsin_position {
    uint64_t offset; /* in the stream */
    uint64_t time_ns;
    uint64_t calls;
} tocsin_position;

typedef struct tocsin_block_header {
    uint32_t stream;
    uint16_t codec;
    uint16_t flags;
    uint32_t raw_bytes;
    uint32_t stored_bytes;
    tocsin_position start;
    uint64_t pass_ns;
    uint32_t record_count;
} tocsin_block_header;

/* The compressor's state; NULL state stores blocks uncompressed. */
typedef struct tocsin_compressor tocsin_compressor;
tocsin_compressor *tocsin_compressor_new(int level); /* NULL: out of memory */
void tocsin_compressor_free(tocsin_compressor *compressor);

/* Build the whole block in `out`, which has room for header->raw_bytes + 72 bytes. Fills in codec
 * and stored_bytes. Returns the block's bytes. */
size_t tocsin_block_encode(tocsin_compressor *compressor, tocsin_block_header *header,
                           const uint8_t *raw, uint8_t *out);

/* Decode 64 bytes. false: no magic, wrong header checksum, or a limit exceeded. */
TOCSIN_MUST_CHECK bool tocsin_block_header_decode(const uint8_t in[TOCSIN_BLOCK_HEADER_BYTES],
                                                  tocsin_block_header *header);
/* Check the end checksum of a whole block (header to trailer). */
TOCSIN_MUST_CHECK bool tocsin_block_is_intact(const uint8_t *block,
                                              const tocsin_block_header *header);
/* Decompress into `raw` (header->raw_bytes). false: not exactly that. */
TOCSIN_MUST_CHECK bool tocsin_block_decompress(const uint8_t *stored,
                                               const tocsin_block_header *header, uint8_t *raw);

/* ---- records ------------------------------------------------------------------------------- */

/* Bytes still to be decoded. A read for which they do not suffice gives 0 and sticks. */
typedef struct tocsin_cursor {
    const uint8_t *next;
    const uint8_t *end;
    bool failed;
} tocsin_cursor;

uint64_t tocsin_cursor_varint(tocsin_cursor *in);
/* Fails for more than 32 bits, too. */
uint32_t tocsin_cursor_u32(tocsin_cursor *in);

enum { /* kinds of dictionary records, and of the ids that they define */
       TOCSIN_DEFINE_STRING = 1,
       TOCSIN_DEFINE_FUNCTION = 2,
       TOCSIN_DEFINE_VARIABLE = 3,
       TOCSIN_DEFINE_SHAPE = 4,
       TOCSIN_DEFINE_SITE = 5,
       TOCSIN_DEFINE_KINDS = 6
};

/* What the writer says of an event, whatever the event itself says. */
typedef struct tocsin_frame {
    uint64_t time_ns; /* not before the event before */
    uint64_t call;
    uint32_t depth;
} tocsin_frame;

/* Write the record of `event` to `out` (TOCSIN_TRACE_EVENT_MAX bytes). before->calls counts an
 * ENTER already; before->time_ns is the time of the event before. Values above
 * TOCSIN_EVENT_VALUES_MAX are cut. Returns the record's bytes. */
size_t tocsin_record_encode(const tocsin_event *event, const tocsin_frame *frame,
                            const tocsin_position *before, uint8_t *out);

/* The size of the record at `bytes`, size field included; 0: it is not whole. */
static inline size_t tocsin_record_bytes(const uint8_t *bytes, size_t available)
{
    if (available < 2)
        return 0;
    size_t record_bytes = (size_t)tocsin_get_u16(bytes) + 2;
    return record_bytes <= available ? record_bytes : 0;
}

/* Move `position` over the event record at `bytes`: offset, time and calls. false: malformed. */
TOCSIN_MUST_CHECK bool tocsin_record_skip(const uint8_t *bytes, size_t available,
                                          tocsin_position *position);

/* Decode the event record over which `after` has just moved. Fills everything but event->thread;
 * values go to `values`. event->kind is 0 for a kind that this version does not know.
 * false: malformed. */
TOCSIN_MUST_CHECK bool tocsin_record_decode(const uint8_t *bytes, size_t record_bytes,
                                            const tocsin_position *after, tocsin_event *event,
                                            tocsin_value values[TOCSIN_EVENT_VALUES_MAX]);

#endif
