/* tocsin/infer.h - from healthy runs to invariants.
 *
 *     run ---count---> reference (bytes) ---+
 *     run ---count---> reference (bytes) ---+--> references --infer--> invariants
 *     file of references -------------------+
 *
 * A reference is what was counted in one run. It depends on that run alone, so runs are counted in
 * any order, on any number of threads or machines, and kept for later; the invariants are the same.
 */
#ifndef TOCSIN_INFER_H
#define TOCSIN_INFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tocsin/invariant.h>
#include <tocsin/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tocsin_infer_options {
    size_t struct_bytes;                      /* sizeof this struct */
    unsigned threads;                         /* 0: one per CPU */
    bool wide;                                /* without the bias: docs/inference.md, "Wide" */
    const struct tocsin_relations *relations; /* tocsin/relation.h; NULL: none. Borrowed. */
    /* Called from the calling thread now and then; may be NULL. phase: a run that is read; done:
     * events read so far, in all runs; total: 0, not known. */
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
 * of tocsin_run_open, E_ARGUMENT (no run), E_EXISTS (a run twice), E_LIMIT, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_infer(
    const char *const *run_directories, size_t run_count, const tocsin_infer_options *options,
    tocsin_invariant_set **set, tocsin_infer_summary *summary, tocsin_error *error);

/* ---- References ---------------------------------------------------------------------------- */

#define TOCSIN_REFERENCES_MAX ((size_t)64)

/* The references of some runs, in an order of their own. One thread at a time. */
typedef struct tocsin_references tocsin_references;

typedef struct tocsin_reference {
    const char *run;   /* the directory, as it was named when it was counted; lives with the set */
    char identity[33]; /* hexadecimal, of its processes: the same for a copy of the run */
    bool wide;         /* counted with the option */
    uint64_t processes;
    uint64_t events;
    uint64_t instances;
} tocsin_reference;

/* Count one run, on the calling thread: docs/formats/examples.md. Free with _bytes_free.
 * Errors: those of tocsin_run_open, E_LIMIT, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status
tocsin_reference_count(const char *run_directory, const tocsin_infer_options *options, char **bytes,
                       size_t *count, tocsin_error *error);
TOCSIN_API void tocsin_reference_bytes_free(char *bytes);
/* Count a part of what one run shows, `shard` of `shards` that cost about the same; 0 of 0: all of
 * it. Each shard reads the whole run: several machines that do so count faster than one, and none
 * keeps all that is counted. Further error: E_ARGUMENT. */
#define TOCSIN_SHARDS_MAX 4u
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_reference_count_shard(
    const char *run_directory, uint32_t shard, uint32_t shards, const tocsin_infer_options *options,
    char **bytes, size_t *count, tocsin_error *error);

TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_references_new(tocsin_references **references,
                                                                 tocsin_error *error);
TOCSIN_API void tocsin_references_free(tocsin_references *references); /* accepts NULL */
/* Add what _count has made, maybe elsewhere. Errors: E_FORMAT, E_VERSION (of another Tocsin),
 * E_EXISTS (that run is in it), E_ARGUMENT (wide, and the others are not, or the other way round),
 * E_LIMIT, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_references_add(tocsin_references *references,
                                                                 const char *bytes, size_t count,
                                                                 tocsin_error *error);
/* Add all shards of one run, in their order: the same as adding what _count makes of it. Further
 * errors: E_ARGUMENT (not all shards of one run). */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status
tocsin_references_add_shards(tocsin_references *references, const char *const *bytes,
                             const size_t *counts, uint32_t shards, tocsin_error *error);
/* Count these runs, several at a time, and add them. The errors of both. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_references_add_runs(
    tocsin_references *references, const char *const *run_directories, size_t run_count,
    const tocsin_infer_options *options, tocsin_error *error);
/* Add those of a file that _save has written. Further errors: E_NOT_FOUND, E_IO. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_references_load(tocsin_references *references,
                                                                  const char *path,
                                                                  tocsin_error *error);
/* Errors: E_EXISTS (path exists and not `force`), E_IO, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_references_save(
    const tocsin_references *references, const char *path, int force, tocsin_error *error);
TOCSIN_API size_t tocsin_references_count(const tocsin_references *references);
/* About reference `index` < _count. */
TOCSIN_API tocsin_reference tocsin_references_get(const tocsin_references *references,
                                                  size_t index);

/* tocsin_infer from counted runs; `options.wide` is not looked at. Further error: E_FORMAT. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_references_infer(
    const tocsin_references *references, const tocsin_infer_options *options,
    tocsin_invariant_set **set, tocsin_infer_summary *summary, tocsin_error *error);

/* Where invariants come from: the runs, the version and the counts of `summary`, as JSON
 * (docs/formats/examples.md). Replaces the file. Errors: E_IO, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_references_write_provenance(
    const tocsin_references *references, const tocsin_infer_summary *summary, const char *path,
    tocsin_error *error);

#ifdef __cplusplus
}
#endif
#endif
