/* tocsin/guard.h - what the evidence of a guarded training step means.
 *
 * Ranks of a job watch their own tensors and exchange small rows of numbers. Every rank hands the
 * same rows to the functions here, which answer alike everywhere: nothing happened, or a *finding*,
 * which says what is wrong, since when, and who did it - or that nobody can be named. A finding
 * names ranks only where the evidence excludes the others, and then its cause is transient or
 * persistent; any other cause has no culprits. docs/guard.md tells the rules.
 *
 * The rows are of fixed size and in native byte order, so that they can travel as bytes.
 *
 * Threads: all functions are pure but for the ledger's file; an object belongs to one thread at a
 * time.
 */
#ifndef TOCSIN_GUARD_H
#define TOCSIN_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tocsin/status.h>
#include <tocsin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Limits of what one call looks at. */
#define TOCSIN_GUARD_RANKS_MAX   (1u << 16)
#define TOCSIN_GUARD_TENSORS_MAX (1u << 24)
#define TOCSIN_GUARD_RUNS_MAX    (1u << 20)
#define TOCSIN_GUARD_COVERS_MAX  64

/* ---- findings ------------------------------------------------------------------------------ */

/* X(number, NAME, "as in files"). Numbers and texts are stable. */
#define TOCSIN_GUARD_CHECK_TABLE(X)                                                                \
    X(0, GRADIENT, "gradient")     /* 1: gradients before the update */                            \
    X(1, REPLAY, "replay")         /* 2: a batch recomputed elsewhere */                           \
    X(2, WEIGHTS, "weights")       /* 3: replicas after the update */                              \
    X(3, COLLECTIVE, "collective") /* what a collective delivered */                               \
    X(4, RECOMPUTE, "recompute")   /* recomputed activations */                                    \
    X(5, SAVED, "saved")           /* activations kept for backward */                             \
    X(6, MEMORY, "memory")         /* weights between steps */                                     \
    X(7, CHECKPOINT, "checkpoint") /* what was staged or loaded */                                 \
    X(8, PEER, "peer")             /* a rank that does not answer */

/* TRANSIENT and PERSISTENT are faults of the named ranks: seen once, or come back. DATA: the input
 * makes it so everywhere. SOFTWARE: the program does. NONDETERMINISTIC: equal input, no fault,
 * other bits. UNATTRIBUTABLE: something is wrong, and the evidence fits several culprits. */
#define TOCSIN_GUARD_CAUSE_TABLE(X)                                                                \
    X(0, TRANSIENT, "transient")                                                                   \
    X(1, PERSISTENT, "persistent")                                                                 \
    X(2, NONDETERMINISTIC, "nondeterministic")                                                     \
    X(3, SOFTWARE, "software")                                                                     \
    X(4, DATA, "data")                                                                             \
    X(5, UNATTRIBUTABLE, "unattributable")

typedef enum tocsin_guard_check {
#define X(number, name, text) TOCSIN_GUARD_##name = number,
    TOCSIN_GUARD_CHECK_TABLE(X)
#undef X
} tocsin_guard_check;

typedef enum tocsin_guard_cause {
#define X(number, name, text) TOCSIN_GUARD_##name = number,
    TOCSIN_GUARD_CAUSE_TABLE(X)
#undef X
} tocsin_guard_cause;

/* The texts of the tables, never NULL ("unknown"); the numbers of texts, or -1. */
TOCSIN_API const char *tocsin_guard_check_name(tocsin_guard_check check);
TOCSIN_API const char *tocsin_guard_cause_name(tocsin_guard_cause cause);
TOCSIN_API int tocsin_guard_check_number(const char *name);
TOCSIN_API int tocsin_guard_cause_number(const char *name);

/* A step at which a check is made, and the last one that passed it (-1: none yet). What is found
 * arose after `passed`, as far as this check can tell; if that is the same step, in it. */
typedef struct tocsin_guard_moment {
    int64_t step, passed;
} tocsin_guard_moment;

/* What is wrong. Texts are never NULL. */
typedef struct tocsin_guard_finding {
    tocsin_guard_check check;
    tocsin_guard_cause cause;
    tocsin_guard_moment moment;
    const uint32_t *ranks; /* the culprits, ascending; none: cannot attribute */
    size_t rank_count;
    const uint32_t *cover_ranks; /* replay: sets of ranks each of which would explain everything, */
    const size_t *cover_ends;    /* one after another: set i ends at cover_ends[i] */
    size_t cover_count;
    bool covers_cut;    /* there are more than are listed */
    const char *tensor; /* the first one, or "" */
    int64_t bucket;     /* -1: none */
    const int64_t *index;
    size_t index_count;
    uint32_t replicas;    /* ranks whose evidence was looked at */
    const char *text;     /* one sentence */
    const char *evidence; /* a JSON object: the numbers behind it */
} tocsin_guard_finding;

/* A finding of one's own: everything is copied. Errors: E_ARGUMENT (ranks with a cause that has no
 * culprits, or a cause that has some without ranks; ranks not ascending; evidence that is no JSON
 * object on one line), E_LIMIT, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_guard_finding_new(
    const tocsin_guard_finding *content, tocsin_guard_finding **finding, tocsin_error *error);
/* NULL is fine. */
TOCSIN_API void tocsin_guard_finding_free(tocsin_guard_finding *finding);

/* It as one line of JSON (docs/formats/guard-ledger.md) without "\n"; the caller passes `text` to
 * tocsin_guard_text_free. Errors: E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_guard_finding_json(
    const tocsin_guard_finding *finding, char **text, size_t *bytes, tocsin_error *error);
TOCSIN_API void tocsin_guard_text_free(char *text);

/* What a job that a finding stops exits with: a scheduler may act on the named ranks, or knows that
 * nobody is. */
#define TOCSIN_GUARD_EXIT_NAMED   86
#define TOCSIN_GUARD_EXIT_UNNAMED 87

/* ---- check 1: gradients -------------------------------------------------------------------- */

/* What a rank saw in its gradients (72 bytes). The counts are of its *local* gradients, before they
 * are reduced. `large`: finite elements of which so many as there are ranks, or the norm, may
 * overflow (|x| > max / ranks). `bucket`, `parameter`, `element`: of the first NaN or Inf; -1:
 * none. `norm` is of the gradients after they were reduced. */
typedef struct tocsin_guard_gradient_row {
    uint64_t nan, inf, large;
    int64_t bucket, parameter, element;
    double norm;
    double scale;   /* of a gradient scaler that skips steps with NaN and Inf; 0: there is none */
    uint64_t flags; /* TOCSIN_GUARD_NORM... */
} tocsin_guard_gradient_row;

#define TOCSIN_GUARD_NORM            1u /* `norm` is there */
#define TOCSIN_GUARD_NORM_REPLICATED 2u /* and has the same bits on every healthy rank */

/* A scaler may halve its way from 2^31 down to 1 without an alarm. */
#define TOCSIN_GUARD_SKIPS_MAX 32

typedef enum tocsin_guard_gradient_verdict {
    TOCSIN_GUARD_GRADIENT_PASS,
    TOCSIN_GUARD_GRADIENT_SCALER_SKIP, /* the scaler's business: no update, no alarm */
    TOCSIN_GUARD_GRADIENT_FINDING
} tocsin_guard_gradient_verdict;

typedef struct tocsin_guard_gradients {
    tocsin_guard_moment moment;
    const tocsin_guard_gradient_row *rows; /* row i is rank i's */
    size_t rank_count;
    const char *const *names; /* of parameters; NULL: none */
    size_t name_count;
    uint64_t skips; /* steps in a row that the scaler skipped until now */
} tocsin_guard_gradients;

/* NaN or Inf before the reduction locates ranks but convicts none: data and software make them too.
 * Finite before and not finite after: the reduction; a rank is named if the norm of a strict
 * majority of at least 3 is another one. *finding is NULL unless the verdict is FINDING. Errors:
 * E_ARGUMENT (no rank), E_LIMIT, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_guard_judge_gradients(
    const tocsin_guard_gradients *gradients, tocsin_guard_gradient_verdict *verdict,
    tocsin_guard_finding **finding, tocsin_error *error);

/* ---- check 3: votes ------------------------------------------------------------------------ */

typedef struct tocsin_guard_vote tocsin_guard_vote;

typedef struct tocsin_guard_voters {
    tocsin_guard_check check;
    tocsin_guard_moment moment;
    uint32_t replicas;
    const uint32_t *ranks; /* of the replicas, ascending; NULL: 0, 1, ... */
    const uint32_t *named; /* ranks that findings named, and the check passed since: again is
                              persistent, still is not */
    size_t named_count;
} tocsin_guard_voters;

/* A vote over tensors of which every replica has a copy. Errors: E_ARGUMENT, E_LIMIT, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_guard_vote_new(const tocsin_guard_voters *voters,
                                                                 tocsin_guard_vote **vote,
                                                                 tocsin_error *error);
/* The next `count` tensors; rows[r] are replica r's digests of them. `names` (NULL: none) must live
 * until the judgement. O(replicas) a tensor. Errors: E_LIMIT, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_guard_vote_add(tocsin_guard_vote *vote,
                                                                 const tocsin_digest *const *rows,
                                                                 const char *const *names,
                                                                 size_t count, tocsin_error *error);
/* *finding is NULL if no two replicas differ. Named are the replicas outside a strict majority
 * (> replicas / 2) that agrees in *all* tensors: while that many are healthy, no healthy one is
 * named. Nobody is named by 2 replicas, without such a majority, or when there never was agreement
 * (moment.passed < 0: they did not begin alike). Errors: E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_guard_vote_judge(tocsin_guard_vote *vote,
                                                                   tocsin_guard_finding **finding,
                                                                   tocsin_error *error);
TOCSIN_API void tocsin_guard_vote_free(tocsin_guard_vote *vote);

/* ---- check 2: replays ---------------------------------------------------------------------- */

/* One computation of a batch (40 bytes): whose batch, who computed, the how-manieth time (0: the
 * first), what came out. */
typedef struct tocsin_guard_run {
    uint32_t owner, executor, attempt, flags;
    tocsin_digest result;
} tocsin_guard_run;

#define TOCSIN_GUARD_RUN_NONFINITE 1u /* the result holds NaN or Inf */

#define TOCSIN_GUARD_EXECUTORS_MAX                                                                 \
    5                         /* ranks that are asked to compute one batch, the owner too          \
                               */
#define TOCSIN_GUARD_RERUNS 2 /* times that a suspect computes again */

typedef struct tocsin_guard_replay {
    tocsin_guard_moment moment;
    uint32_t rank_count;
    const tocsin_guard_run *runs; /* in any order */
    size_t run_count;
} tocsin_guard_replay;

/* What must still be run before the judgement says all that it can: runs without a result, sorted
 * by owner, executor, attempt; the same on every rank, none twice, each batch by a bounded number
 * of ranks, so that repeating this until it asks for nothing ends. The caller passes `requests` to
 * tocsin_guard_requests_free. Errors: E_ARGUMENT (a rank >= rank_count, a run twice, no run of a
 * batch by its owner), E_LIMIT, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status
tocsin_guard_replay_requests(const tocsin_guard_replay *replay, tocsin_guard_run **requests,
                             size_t *count, tocsin_error *error);
TOCSIN_API void tocsin_guard_requests_free(tocsin_guard_run *requests);

/* *finding is NULL if all results of each batch agree and are finite. A result is *confirmed* when
 * two ranks have it; named is who had another. If healthy ranks compute equal bits from equal
 * input, and no two faulty ones the same wrong result of a batch, then no healthy rank is named.
 * Errors: as above. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_guard_judge_replay(
    const tocsin_guard_replay *replay, tocsin_guard_finding **finding, tocsin_error *error);

/* ---- comparisons of a rank with itself ------------------------------------------------------ */

/* What a rank found when it compared two digests of the same things, taken at two times or places
 * (80 bytes). `item` and `word`: of the first difference; -1: none, unknown. */
typedef struct tocsin_guard_comparison_row {
    uint64_t compared, differ;
    int64_t item, word;
    tocsin_digest expected, seen;
} tocsin_guard_comparison_row;

typedef struct tocsin_guard_comparison {
    tocsin_guard_check check;
    tocsin_guard_moment moment;
    const tocsin_guard_comparison_row *rows; /* row i is of ranks[i] */
    size_t row_count;
    const uint32_t *ranks;    /* ascending; NULL: 0, 1, ... */
    const char *const *names; /* of items; NULL: none */
    size_t name_count;
    const uint32_t *named; /* as of voters */
    size_t named_count;
    bool deterministic; /* healthy ranks compute equal bits from equal input */
} tocsin_guard_comparison;

/* *finding is NULL if nothing differs. Named is a strict minority of at least 3 ranks, the others
 * being witnesses that the program does no such thing; where bits may differ without a fault
 * (recomputation that is not deterministic), nobody. Errors: E_ARGUMENT, E_LIMIT, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_guard_judge_comparison(
    const tocsin_guard_comparison *comparison, tocsin_guard_finding **finding, tocsin_error *error);

/* ---- the ledger ------------------------------------------------------------------------------ */

/* Findings of one rank, one line of JSON each, never rewritten (docs/formats/guard-ledger.md). */
#define TOCSIN_GUARD_LINE_BYTES_MAX (4u << 20)

/* Append one JSON object, which contains no line break, and return when it is on the disk. The file
 * is made if it is not there; what a crash left half written stays, as a line of its own. Errors:
 * E_ARGUMENT (no JSON object on one line), E_LIMIT, E_IO, E_NOT_FOUND (no such folder), E_MEMORY.
 */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_guard_ledger_append(const char *path,
                                                                      const char *json,
                                                                      size_t bytes,
                                                                      tocsin_error *error);

#ifdef __cplusplus
}
#endif
#endif
