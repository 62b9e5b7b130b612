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
    /* Called from the calling thread now and then; may be NULL. phase: the run that is read; done:
     * events read so far; total: 0, not known. */
    void (*progress)(void *context, const char *phase, uint64_t done, uint64_t total);
    /* Called for each hypothesis that was dropped, in an order that depends on the runs' content
     * only; may be NULL. docs/inference.md explains the reasons. */
    void (*dropped)(void *context, const char *relation, const char *sentence, const char *reason);
    void *context;
} tocsin_infer_options;

typedef struct tocsin_infer_summary {
    uint64_t events;     /* read, in all runs */
    uint64_t instances;  /* examples made of them */
    uint64_t hypotheses; /* (population, fact) pairs seen: dropped + kept */
    uint64_t dropped;
    uint64_t kept; /* invariants in the set */
} tocsin_infer_summary;

/* Infer what always holds in all `run_count` runs (directories; at most 64). With two runs or more,
 * claims need support from two of them, and must not have alarmed on any when learned from the
 * others; from one run everything it shows is claimed, and false alarms are likelier. The result
 * does not depend on the order of the runs nor on `threads`. `summary` may be NULL. Errors: those
 * of tocsin_run_open, E_ARGUMENT (no run), E_LIMIT, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_infer(
    const char *const *run_directories, size_t run_count, const tocsin_infer_options *options,
    tocsin_invariant_set **set, tocsin_infer_summary *summary, tocsin_error *error);

#ifdef __cplusplus
}
#endif
#endif
