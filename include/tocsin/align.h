/* tocsin/align.h - two runs that should be the same: where do they part first?
 *
 * Of each process the boundaries that were recorded are compared: states of parameters, gradients,
 * buffers and optimizer state, batches, and losses. They are paired by what they are, not
 * by their number, so that a call more or a name less does not matter, and compared bit by bit,
 * without tolerance. The first pairs whose values differ are the *pivots*. What happened at one
 * point (all parameters read at one optimizer step) has no order; between ranks, communication
 * orders, never time.
 *
 * Threads: a call uses the calling thread alone. Method: docs/align.md.
 */
#ifndef TOCSIN_ALIGN_H
#define TOCSIN_ALIGN_H

#include <tocsin/align_rules.h>
#include <tocsin/name_map.h>
#include <tocsin/stability.h>
#include <tocsin/tensor.h>
#include <tocsin/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tocsin_align_verdict {
    TOCSIN_ALIGN_IDENTICAL,    /* every boundary that was compared is equal */
    TOCSIN_ALIGN_DIVERGED,     /* some boundary differs */
    TOCSIN_ALIGN_INCOMPARABLE, /* nothing could be compared */
    TOCSIN_ALIGN_UNSTABLE,     /* what differs, differs between repeats of one run, too */
    TOCSIN_ALIGN_ACCEPTED,     /* what differs is accepted by rules */
} tocsin_align_verdict;

/* "IDENTICAL", "DIVERGED", "INCOMPARABLE", "UNSTABLE", "ACCEPTED". */
TOCSIN_API const char *tocsin_align_verdict_name(tocsin_align_verdict verdict);

/* How two values of one boundary differ. X(NAME, "text", "what it means"); names are stable. */
#define TOCSIN_DIFFERENCE_TABLE(X)                                                                 \
    X(CONTENT, "content", "the same shape and dtype, other bits")                                  \
    X(SHAPE, "shape", "another shape")                                                             \
    X(DTYPE, "dtype", "another dtype")                                                             \
    X(PRESENCE, "presence", "there in one run, None in the other")                                 \
    X(VALUE, "value", "another number or text")

typedef enum tocsin_difference {
#define X(name, text, meaning) TOCSIN_DIFFERENCE_##name,
    TOCSIN_DIFFERENCE_TABLE(X)
#undef X
} tocsin_difference;

TOCSIN_API const char *tocsin_difference_text(tocsin_difference difference);
TOCSIN_API const char *tocsin_difference_meaning(tocsin_difference difference);

/* Whether a difference arose where it was first seen. X(NAME, "text", "what it means"). */
#define TOCSIN_ALIGN_CAUSE_TABLE(X)                                                                \
    X(PRODUCED, "produced", "produced here: what goes in is equal, what comes out differs")        \
    X(UPSTREAM, "upstream", "not produced here: what goes in differs already")                     \
    X(UNOBSERVED, "unobserved", "what goes in was not recorded, or not all of it")

typedef enum tocsin_align_cause {
#define X(name, text, meaning) TOCSIN_ALIGN_CAUSE_##name,
    TOCSIN_ALIGN_CAUSE_TABLE(X)
#undef X
} tocsin_align_cause;

TOCSIN_API const char *tocsin_align_cause_text(tocsin_align_cause cause);
TOCSIN_API const char *tocsin_align_cause_meaning(tocsin_align_cause cause);

/* One side of a pair. */
typedef struct tocsin_align_side {
    const char *value; /* "float32[16,8]", "None", "0.125" */
    const char *site;  /* "train.py:26 (step)": the innermost call of the user's code; or "" */
    tocsin_digest digest;
    tocsin_statistics statistics; /* of a digested tensor; else zero */
    const char *name; /* what this run calls it, where a map gave it the other's name; else "" */
    const int64_t *index; /* where the element lies in a part of this name; NULL: as in the pivot */
    uint32_t ndim;
    const int64_t *holders; /* of one composed: ranks that hold the element, if it is known, */
    size_t holder_count;    /* else that have the boundary */
} tocsin_align_side;

/* Rows of a pivot's tensor that differ: `rows` of `axis` from `first` on (tocsin align --drill). */
typedef struct tocsin_align_tile {
    uint32_t axis;
    int64_t first, rows;
    bool located;         /* exactly one word of the tile differs, and: */
    const int64_t *index; /* its element in the whole tensor */
    uint32_t word;
    tocsin_word_change change;
} tocsin_align_tile;

/* A boundary at which the runs part. Texts are the result's and never NULL. */
typedef struct tocsin_align_pivot {
    int64_t rank;          /* -1: not distributed */
    int64_t step;          /* from 1 */
    const char *name;      /* "layers.0.weight" */
    const char *attribute; /* "data", "grad", "value", ... */
    const char *operation; /* "optimizer.step": the innermost call with a role, or the function */
    const char *phase;     /* "forward", "backward", "recompute", "optimizer", ... or "" */
    tocsin_difference difference;
    tocsin_align_side a, b;
    bool located;         /* exactly one word differs, and: */
    uint32_t ndim;        /* of `index` */
    const int64_t *index; /* the element in which it lies; of what has no dtype the word */
    uint32_t word;        /* of the element: 8-byte types have words 0 and 1, 16-byte ones four */
    tocsin_word_change change;
    const char *id;       /* "optimizer/layers.0.weight/grad@optimizer.step": docs/align.md */
    uint32_t micro_batch; /* of the step, from 1; 0: it belongs to none */
    uint32_t ordinal;     /* of this id within the micro-batch, from 1 */
    tocsin_align_cause cause;
    const char *source;       /* UPSTREAM: the id of what differs already; or "" */
    const char *last_equal;   /* the id of the last boundary before it that is equal; or "" */
    const char *const *stack; /* the site, then the calls around it, outermost last */
    size_t stack_count;
    const tocsin_align_tile *tiles; /* that differ, of */
    size_t tile_count, tiles_compared;
    const int64_t *shape; /* of the tensor; NULL without tiles */
    uint32_t shape_ndim;
} tocsin_align_pivot;

/* What was compared of one process, and how far it was identical. */
typedef struct tocsin_align_rank {
    int64_t rank;              /* -1: not distributed */
    uint64_t steps_a, steps_b; /* complete ones in each run */
    uint64_t compared;         /* pairs whose values are known on both sides */
    uint64_t equal;            /* of them */
    uint64_t unknown;          /* pairs with a value that was not read */
    uint64_t only_a, only_b;   /* boundaries without a partner */
    uint64_t prefix;           /* compared pairs before the first that differs */
    int64_t diverged_step;     /* 0: identical */
    bool optimal;              /* every pairing is proved to be the cheapest */
    uint64_t renamed;          /* equal pairs under two names */
    uint64_t prefix_digest[2]; /* with `certify`: a hash of the prefix, low and high; else 0 */
} tocsin_align_rank;

/* How far the difference of a process spread: from the step in which it parted. */
typedef struct tocsin_align_cone_step {
    int64_t step;
    uint64_t compared, differing;
} tocsin_align_cone_step;

typedef struct tocsin_align_reached { /* a variable or module, where it first differs */
    const char *id;
    int64_t step;
    uint32_t micro_batch;
} tocsin_align_reached;

typedef struct tocsin_align_cone {
    int64_t rank;
    const tocsin_align_cone_step *steps; /* the first 64 */
    size_t step_count;
    const tocsin_align_reached *reached; /* in order, the first 256 */
    size_t reached_count;
    uint64_t names; /* variables and modules in all that differ somewhere */
} tocsin_align_cone;

/* What activation checkpointing computed again in one run, against the first time. */
typedef struct tocsin_align_recompute {
    uint64_t compared, equal;
} tocsin_align_recompute;

typedef struct tocsin_align_recomputed {
    bool in_a;                  /* else in b */
    tocsin_align_pivot differs; /* its side a: computed again; b: the first time */
} tocsin_align_recomputed;

/* A rule that was applied. */
typedef struct tocsin_align_accepted {
    tocsin_align_rule rule;
    uint64_t count; /* differences that it accepted; 0 where there were none, or it has ended */
    int64_t step;   /* the first of them, */
    int64_t rank;   /* in the lowest of the ranks */
} tocsin_align_accepted;

/* Why a boundary has no partner: the first that is true. X(NAME, "text", "what it means"). */
#define TOCSIN_GAP_TABLE(X)                                                                        \
    X(REPEATED, "repeated", "the other run has it, fewer times")                                   \
    X(RECOMPUTE, "recompute", "the other run has it in another phase")                             \
    X(OTHER_NAME, "other-name", "the other run has the value under another name")                  \
    X(HANDED_ON, "helper", "hands on what the boundary before it held")                            \
    X(FUSED, "fused", "inside a module whose output both runs have, equal")                        \
    X(INSERTED, "inserted", "the other run has nothing in this place")                             \
    X(ONLY_THERE, "only-there", "the other run has something else in this place")                  \
    X(EXTRA_RANK, "extra-rank", "the other run has no such rank")

typedef enum tocsin_gap {
#define X(name, text, meaning) TOCSIN_GAP_##name,
    TOCSIN_GAP_TABLE(X)
#undef X
} tocsin_gap;

TOCSIN_API const char *tocsin_gap_text(tocsin_gap gap);

/* Boundaries that only one run has, alike ones as one. */
typedef struct tocsin_align_gap {
    bool in_a;
    int64_t rank;
    int64_t step; /* the first */
    uint64_t count;
    const char *name;
    const char *attribute;
    const char *operation;
    const char *reason; /* a text of TOCSIN_GAP_TABLE */
} tocsin_align_gap;

/* Does a setting decide which bits are computed? X(NAME, "text") */
#define TOCSIN_RATING_TABLE(X)                                                                     \
    X(DECIDES, "decides")                                                                          \
    X(MAY, "may decide")                                                                           \
    X(HARMLESS, "harmless")

typedef enum tocsin_rating {
#define X(name, text) TOCSIN_RATING_##name,
    TOCSIN_RATING_TABLE(X)
#undef X
} tocsin_rating;

TOCSIN_API const char *tocsin_rating_text(tocsin_rating rating);

/* What is not compared as a result of training, but decides what follows: a generator of random
 * numbers, or a setting (determinism.py). */
typedef struct tocsin_align_condition {
    int64_t rank;
    int64_t step;     /* where it differs first */
    const char *name; /* "torch", "OMP_NUM_THREADS" */
    bool generator;
    const char *a, *b;    /* of a setting: its texts; "" where a run does not have it */
    tocsin_rating rating; /* of a setting */
} tocsin_align_condition;

/* Differences at a boundary that does not repeat (tocsin/stability.h): scored, no pivots. */
typedef struct tocsin_align_unstable {
    tocsin_unstable_boundary boundary; /* `step` and `rank`: the first difference of these runs */
    uint32_t repeats;                  /* of which boundary.differs differ */
    uint64_t count;                    /* differences here */
} tocsin_align_unstable;

/* Why a boundary of several ranks has no value that another run's could be compared with.
 * X(NAME, "text", "what it means"); names are stable. */
#define TOCSIN_INCOMPARABLE_TABLE(X)                                                               \
    X(PARTIAL, "partial", "a sum over ranks that was still to be made")                            \
    X(MISSING, "shard missing", "the ranks' pieces do not cover the tensor")                       \
    X(LAYOUT, "layout", "the ranks' pieces overlap, or are of different tensors")                  \
    X(LOCAL, "local", "each rank has its own value")                                               \
    X(UNREAD, "unread", "the memory of a piece was not read")                                      \
    X(REPLICAS, "replicas differ", "ranks that hold the same piece have different bits")

typedef enum tocsin_incomparable {
#define X(name, text, meaning) TOCSIN_INCOMPARABLE_##name,
    TOCSIN_INCOMPARABLE_TABLE(X)
#undef X
        TOCSIN_INCOMPARABLE_COUNT
} tocsin_incomparable;

TOCSIN_API const char *tocsin_incomparable_text(tocsin_incomparable reason);
TOCSIN_API const char *tocsin_incomparable_meaning(tocsin_incomparable reason);

/* Two ranks of one run that hold the same part of a tensor and not the same bits. */
typedef struct tocsin_align_replicas {
    bool in_a;
    int64_t rank_a, rank_b;   /* they are the sides of: */
    tocsin_align_pivot first; /* where that was seen first */
    uint64_t count;           /* how often it was */
} tocsin_align_replicas;

/* The ranks of a run that were compared as one process. */
typedef struct tocsin_align_composition {
    size_t ranks;        /* 0: they were not */
    uint64_t boundaries; /* of several ranks, taken as one */
    uint64_t incomparable[TOCSIN_INCOMPARABLE_COUNT];
} tocsin_align_composition;

typedef struct tocsin_align_result {
    tocsin_align_verdict verdict;
    const tocsin_align_pivot *pivots; /* at most 64 a rank, likely origins first */
    size_t pivot_count;
    size_t downstream; /* ranks that parted later, by what they received */
    const tocsin_align_rank *ranks;
    size_t rank_count;
    const tocsin_align_condition *conditions; /* that differ: settings by rating, generators */
    size_t condition_count;
    const tocsin_align_gap *gaps; /* at most 64 */
    size_t gap_count;
    const char *const *not_covered;
    size_t not_covered_count;
    uint64_t events;                       /* read, of both runs */
    const tocsin_align_unstable *unstable; /* at most 64 a rank */
    size_t unstable_count;
    tocsin_align_composition composed_a, composed_b;
    const tocsin_align_replicas *replicas; /* at most 16 a run */
    size_t replica_count;
    const tocsin_align_cone *cones; /* of the ranks that parted */
    size_t cone_count;
    const tocsin_align_accepted *accepted; /* every rule, in the order of the file */
    size_t accepted_count;
    uint64_t accepted_differences;             /* by all of them */
    tocsin_align_recompute recompute[2];       /* of a and b, all ranks */
    const tocsin_align_recomputed *recomputed; /* that differ: at most 16 a rank */
    size_t recomputed_count;
    bool itself; /* of one run */
} tocsin_align_result;

/* Which part of a recorded digest is compared. All but the first are baselines: what other tools
 * look at, to see what they miss (docs/align.md). */
typedef enum tocsin_align_digest {
    TOCSIN_ALIGN_DIGEST_ALL,
    TOCSIN_ALIGN_DIGEST_XOR,
    TOCSIN_ALIGN_DIGEST_SUM, /* of words, without their places */
    TOCSIN_ALIGN_DIGEST_NORM /* the sum of squares */
} tocsin_align_digest;

/* ---- following the comparison -------------------------------------------------------------- */

typedef enum tocsin_align_outcome {
    TOCSIN_ALIGN_SAME,
    TOCSIN_ALIGN_DIFFERS,
    TOCSIN_ALIGN_NOT_KNOWN, /* without a digest on one side */
    TOCSIN_ALIGN_ONLY_A,
    TOCSIN_ALIGN_ONLY_B
} tocsin_align_outcome;

/* A boundary of one run. Texts live as long as the call of the visitor and are never NULL. */
typedef struct tocsin_align_place {
    const char *name, *attribute, *operation, *phase;
    const char *site;
    uint64_t call;    /* the innermost one of its thread in this run, from 1; 0: none */
    uint64_t time_ns; /* this run's own clock */
    bool digested;
    tocsin_digest digest;
} tocsin_align_place;

/* A row of the comparison: two paired boundaries, or one alone. */
typedef struct tocsin_align_pair {
    size_t process;  /* number of the pair of processes, from 0 */
    int64_t rank;    /* -1: not distributed */
    uint32_t thread; /* from 0 */
    int64_t step;    /* from 1 */
    tocsin_align_outcome outcome;
    const tocsin_align_place *a, *b; /* NULL: this run has none */
} tocsin_align_pair;

/* Called with every row: process by process, in each step by step, in each thread by thread, in
 * order. What it returns, unless OK, ends the comparison. */
typedef tocsin_status tocsin_align_visit(void *context, const tocsin_align_pair *pair,
                                         tocsin_error *error);

typedef struct tocsin_align_options {
    size_t struct_bytes;        /* sizeof this struct */
    uint64_t cells_max;         /* of one pairing; 0: 2^26 */
    tocsin_align_digest digest; /* baselines: part of a digest, */
    double tolerance;           /* > 0: norms and largest values are near enough, relatively, */
    bool few_probes;            /* losses and what the outermost module returns, nothing else */
    tocsin_stability *unstable; /* differences there are no pivots; NULL: all are */
    tocsin_stability *learn;    /* the runs are repeats: add what differs; or NULL */
    const char *const *notes;   /* what the caller knows not to be covered */
    size_t note_count;
    tocsin_align_visit *visit;  /* shown every row; NULL: nobody is */
    void *context;              /* the visitor's */
    const tocsin_name_map *map; /* between the names of two frameworks, or NULL */
    bool whole;         /* compare what the ranks hold together, also where layouts are the same */
    bool settings_only; /* read no further than the step in which they stand */
    uint64_t skip;      /* steps of `a` that are passed over: `b` was resumed after them */
    const tocsin_align_rules *rules; /* differences that they accept are no pivots; or NULL */
    bool itself;  /* both are one run: the verdict is of what it computed again */
    bool certify; /* hash the identical prefix of each rank */
} tocsin_align_options;

/* Compare two runs that have just been opened: their events are read. `options` may be NULL. The
 * result is the caller's and refers to neither run. A divergence is a result, not an error.
 * Errors: E_ARGUMENT (options), E_LIMIT (a step with more than 2^24
 * boundaries), E_MEMORY, and those of reading. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_align_runs(const tocsin_run *a,
                                                             const tocsin_run *b,
                                                             const tocsin_align_options *options,
                                                             tocsin_align_result **result,
                                                             tocsin_error *error);
TOCSIN_API void tocsin_align_result_free(tocsin_align_result *result);

#ifdef __cplusplus
}
#endif
#endif
