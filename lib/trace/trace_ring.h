/* lib/trace/trace_ring.h - rings in a shared file: one producer, one consumer, no lock.
 *
 * The file's layout is docs/formats/trace.md, 6. Each ring's data is mapped twice in a row, so that
 * a record is contiguous in memory wherever it starts.
 */
#ifndef TOCSIN_TRACE_RING_H
#define TOCSIN_TRACE_RING_H

#include "trace/trace_format.h"

#define TOCSIN_RING_BYTES_MIN (4u * TOCSIN_TRACE_EVENT_MAX)
#define TOCSIN_RING_BYTES_MAX (1u << 30)
#define TOCSIN_RING_DEPTH_MAX 1024u
#define TOCSIN_RINGS_MAX      4096u /* of threads, in a file */

enum { TOCSIN_RING_UNUSED = 0, TOCSIN_RING_IN_USE = 1 };

/* The first bytes of a ring's control page. */
typedef struct tocsin_ring_control {
    _Atomic uint32_t state;
    uint32_t stream;
    uint64_t thread;
    _Atomic uint32_t checkpoint_index;
    uint32_t zero;
    tocsin_position checkpoints[2];
    uint8_t gap[56];
    _Atomic uint64_t head; /* a cache line of the producer's */
    uint8_t head_gap[56];
    _Atomic uint64_t tail; /* and one of the consumer's */
} tocsin_ring_control;

typedef struct tocsin_ring {
    tocsin_ring_control *control;
    uint8_t *data;  /* `bytes` bytes, twice */
    uint32_t bytes; /* power of two */
    uint32_t page_bytes;
    uint32_t stream;

    /* Of the producer. */
    uint64_t owner; /* token of the thread */
    uint64_t thread;
    tocsin_position produced;
    uint64_t free_until; /* stream position up to which there is room, as last seen */
    _Atomic uint64_t events;
    uint32_t depth;                       /* open calls */
    uint64_t open[TOCSIN_RING_DEPTH_MAX]; /* the outermost of them */

    /* Of the consumer. */
    tocsin_position drained;
} tocsin_ring;

typedef struct tocsin_ring_file {
    int fd; /* -1: rings are in anonymous memory and do not survive the process */
    uint32_t page_bytes;
    uint64_t end; /* bytes given to header and rings so far */
} tocsin_ring_file;

/* Create the file. When it cannot be (no space, no mmap on that file system) rings are anonymous:
 * the job goes on, only SIGKILL costs the last events then. */
void tocsin_ring_file_open(tocsin_ring_file *file, const char *path,
                           const tocsin_identity *identity, uint32_t dictionary_bytes,
                           uint32_t ring_bytes);
void tocsin_ring_file_close(tocsin_ring_file *file);

/* A ring of `bytes` (a power of two), unused yet. NULL: out of memory. Not mapped in forked
 * children. */
TOCSIN_MUST_CHECK tocsin_ring *tocsin_ring_new(tocsin_ring_file *file, uint32_t bytes);
void tocsin_ring_free(tocsin_ring *ring);

/* Begin a stream. The ring is new, or drained and without a producer. */
void tocsin_ring_start(tocsin_ring *ring, uint32_t stream, uint64_t owner, uint64_t thread);

/* Producer: where the next record goes. */
static inline uint8_t *tocsin_ring_next(const tocsin_ring *ring)
{
    return ring->data + (ring->produced.offset & (ring->bytes - 1));
}

/* Producer: look again how far the consumer is. */
static inline void tocsin_ring_refresh(tocsin_ring *ring)
{
    ring->free_until =
        atomic_load_explicit(&ring->control->tail, memory_order_acquire) + ring->bytes;
}

static inline bool tocsin_ring_has_room(const tocsin_ring *ring, uint64_t bytes)
{
    return ring->produced.offset + bytes <= ring->free_until;
}

/* Producer: the record is whole, show it. */
static inline void tocsin_ring_publish(tocsin_ring *ring, size_t record_bytes)
{
    ring->produced.offset += record_bytes;
    atomic_store_explicit(&ring->control->head, ring->produced.offset, memory_order_release);
}

/* Consumer: the position after the last whole record. */
static inline uint64_t tocsin_ring_head(const tocsin_ring *ring)
{
    return atomic_load_explicit(&ring->control->head, memory_order_acquire);
}

/* Consumer: everything before `position` is in the file, or given up. */
void tocsin_ring_release(tocsin_ring *ring, const tocsin_position *position);

#endif
