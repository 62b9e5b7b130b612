/* lib/trace/trace_writer.h - what producers and the writer thread share. */
#ifndef TOCSIN_TRACE_WRITER_H
#define TOCSIN_TRACE_WRITER_H

#include "trace/trace_ring.h"

#include <pthread.h>
#include <semaphore.h>
#include <tocsin/trace.h>

#define TOCSIN_WRITER_INDEX_MAX      4096u
#define TOCSIN_DICTIONARY_RING_BYTES (256u << 10)

/* A ring with something to write in this pass, and how far. */
typedef struct tocsin_pass_item {
    tocsin_ring *ring;
    uint64_t until;
} tocsin_pass_item;

/* Where a pass begins in the file: the footer's index. */
typedef struct tocsin_pass_entry {
    uint64_t file_offset;
    uint64_t pass_ns;
    uint64_t events;
} tocsin_pass_entry;

struct tocsin_trace_writer {
    uint64_t generation; /* unique in the process: a thread's cached ring belongs to one writer */
    uint32_t ring_bytes;
    uint32_t block_bytes;
    uint32_t flush_ms;
    bool borrowed;            /* in another process's name: */
    _Atomic uint64_t time_ns; /* its clock, as its last event left it */
    char *trace_path;
    char *ring_path;

    /* The dictionary: the lock makes its producers one. */
    pthread_mutex_t dictionary_lock;
    tocsin_intern definitions[TOCSIN_DEFINE_KINDS];
    tocsin_ring *dictionary;
    _Atomic bool dictionary_stuck; /* the file does not take it: producers do not wait */

    /* Rings of threads: the lock is for taking one, and for looking at all heads. */
    pthread_mutex_t rings_lock;
    tocsin_ring_file ring_file;
    tocsin_ring *rings[TOCSIN_RINGS_MAX];
    size_t ring_count;
    uint32_t stream_count;
    uint64_t dead_stream_events; /* of streams whose ring serves another thread now */

    /* Statistics. */
    _Atomic uint64_t lost;
    _Atomic uint64_t wait_ns;
    _Atomic uint64_t raw_bytes;
    _Atomic uint64_t file_bytes;

    /* The writer thread. */
    pthread_t thread;
    sem_t wake;
    _Atomic bool woken;
    _Atomic bool stopping;
    pthread_mutex_t flush_lock;
    pthread_cond_t flush_done;
    uint64_t flush_wanted; /* passes asked for, and answered */
    uint64_t flush_answered;
    uint64_t pass_failures;
    tocsin_error pass_error;    /* of the last pass that failed */
    tocsin_status close_status; /* of the last pass and the footer */

    /* Of the writer thread alone. */
    int fd;
    uint64_t file_end;
    tocsin_compressor *compressor;
    uint8_t *block;
    tocsin_pass_item items[TOCSIN_RINGS_MAX];
    size_t item_count;
    bool mark_due;
    uint64_t written_events; /* in blocks */
    tocsin_pass_entry index[TOCSIN_WRITER_INDEX_MAX];
    size_t index_count;
    uint64_t index_stride; /* every how many passes one entry is kept */
    uint64_t pass_count;
};

/* The time in the clock of the events: none that comes later is earlier. */
uint64_t tocsin_writer_clock_ns(tocsin_trace_writer *writer);
/* The writer thread's main function; the argument is the writer. */
void *tocsin_writer_thread(void *argument);
/* Ask the writer thread for a pass soon. Async-signal-safe, at most one system call. */
void tocsin_writer_poke(tocsin_trace_writer *writer);

#endif
