/* tocsin/infer.h - from healthy runs to invariants. */
#ifndef TOCSIN_INFER_H
#define TOCSIN_INFER_H

#include <stddef.h>
#include <stdint.h>
#include <tocsin/invariant.h>
#include <tocsin/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tocsin_infer_options {
    size_t struct_bytes; /* sizeof this struct */
    unsigned threads;    /* 0: one per CPU */
    /* Called from the calling thread now and then; may be NULL. done and total in events read. */
    void (*progress)(void *context, const char *phase, uint64_t done, uint64_t total);
    /* Called for each hypothesis that was dropped; may be NULL. */
    void (*dropped)(void *context, const char *relation, const char *sentence, const char *reason);
    void *context;
} tocsin_infer_options;

typedef struct tocsin_infer_summary {
    uint64_t events;
    uint64_t instances;
    uint64_t hypotheses;
    uint64_t dropped;
    uint64_t kept;
} tocsin_infer_summary;

/* Infer what always holds in all `run_count` runs (directories). The result does not depend on the
 * order of the runs nor on `threads`. `summary` may be NULL.
 * Errors: those of tocsin_run_open, E_ARGUMENT (no run), E_LIMIT, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_infer(const char *const *run_directories,
                                                        size_t run_count,
                                                        const tocsin_infer_options *options,
                                                        tocsin_invariant_set **set,
                                                        tocsin_infer_summary *summary,
                                                        tocsin_error *error);

#ifdef __cplusplus
}
#endif
#endif
