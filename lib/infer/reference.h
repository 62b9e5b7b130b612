/* lib/infer/reference.h - the reference of one run as bytes, and counting one.
 * Between count_run.c (makes them), reference.c (their form) and references.c (many). */
#ifndef TOCSIN_LIB_INFER_REFERENCE_H
#define TOCSIN_LIB_INFER_REFERENCE_H

#include <infer/infer.h>
#include <pthread.h>

typedef struct tocsin_reference_head {
    const char *run; /* not terminated when read: run_bytes */
    size_t run_bytes;
    tocsin_hash128 identity;
    bool wide;
    uint32_t shard, shards; /* counted are only the relations of that one; 0 of 0: all */
    uint64_t processes, events, instances;
    const char *body; /* read: of the examples */
    size_t body_bytes;
} tocsin_reference_head;

/* Append a reference to `out`; run_bytes and body are not looked at. */
TOCSIN_MUST_CHECK tocsin_status tocsin_reference_write(const tocsin_reference_head *head,
                                                       const tocsin_examples *examples,
                                                       tocsin_string *out, tocsin_error *error);
/* Read all but the body, which is only known to be what was written. Points into `bytes`.
 * Errors: E_FORMAT, E_VERSION. */
TOCSIN_MUST_CHECK tocsin_status tocsin_reference_read(const char *bytes, size_t count,
                                                      const char *where,
                                                      tocsin_reference_head *head,
                                                      tocsin_error *error);

/* Counting of several runs, whose progress is told by one thread. */
typedef struct tocsin_counting {
    const tocsin_infer_options *options; /* nullable */
    pthread_t teller;
    _Atomic uint64_t *events; /* of all runs so far */
} tocsin_counting;

/* `more` further events of this run were read. */
void tocsin_counting_tell(const tocsin_counting *counting, const char *directory, uint64_t more);
/* Append the reference of a run to `out`, or of one shard of `shards` (0: of all of it). */
TOCSIN_MUST_CHECK tocsin_status tocsin_count_run(const char *directory, uint32_t shard,
                                                 uint32_t shards, const tocsin_counting *counting,
                                                 tocsin_string *out, tocsin_error *error);

#endif
