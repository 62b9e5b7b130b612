/* prove/evaluate.h - plans interpreted over a finite field: an oracle that shares nothing with the
 * prover.
 *
 * Both plans run from end to end on the same random inputs: every rank, replica and micro-batch on
 * its own, collectives over their declared ordered groups, messages by (source, destination, tag)
 * in order. Then every output of the parallel plan is compared with its slice of the logical one.
 * Equal everywhere means equal as real functions but for `epsilon`; different is a counterexample
 * over the field. Where a function without laws of its own (an *opaque* one: sin, a user's
 * operator, a maximum of reals) took part, a difference may rest on a law of that function which
 * the model does not have; such outputs say so.
 *
 * For plans small enough to be run: there are explicit limits.
 */
#ifndef TOCSIN_PROVE_EVALUATE_H
#define TOCSIN_PROVE_EVALUATE_H

#include "base/base.h"
#include "plan/plan.h"
#include "prove/field.h"

typedef struct tocsin_evaluate_limits {
    uint64_t elements;   /* of all values of all ranks and micro-batches; 0: 2^24 */
    uint64_t operations; /* on elements; 0: 2^30 */
} tocsin_evaluate_limits;

typedef enum tocsin_evaluate_outcome {
    TOCSIN_EVALUATED_EQUAL,
    TOCSIN_EVALUATED_UNKNOWN, /* see `reason` */
    TOCSIN_EVALUATED_DIFFERENT
} tocsin_evaluate_outcome;

/* One output of one device: over all replicas and micro-batches, the worst of them. */
typedef struct tocsin_evaluated_output {
    uint8_t kind;    /* tocsin_output_kind */
    uint8_t outcome; /* tocsin_evaluate_outcome */
    bool opaque;     /* an opaque function took part */
    uint8_t ndim;    /* of `index` */
    const char *name;
    uint32_t device;
    uint32_t replica, microbatch; /* the first that shows the outcome; 0 when they are folded */
    int64_t index[TOCSIN_PLAN_NDIM_MAX]; /* DIFFERENT: where, in the logical output */
    tocsin_element expected, found;      /* DIFFERENT: the logical and the parallel value */
    const char *reason;                  /* UNKNOWN: why; else "" */
} tocsin_evaluated_output;

typedef struct tocsin_evaluation {
    tocsin_evaluate_outcome outcome; /* the worst; also UNKNOWN when a plan is stuck */
    const tocsin_evaluated_output *outputs;
    size_t output_count;
    uint64_t missing;  /* elements of logical outputs that no rank has: the plans do not say why */
    const char *stuck; /* why a plan could not run to its end ("rank 3 waits at ..."), or "" */
    double epsilon;    /* bound on the probability that EQUAL is wrong; 1 when `chosen` */
    bool chosen;       /* the random order or the sign of a root mattered: each evaluation tells
                          different from equal with probability 1/2 only; repeat with other seeds */
    uint64_t elements; /* looked at */
    uint64_t operations; /* done */
    tocsin_arena arena;  /* owns all of the above */
} tocsin_evaluation;

/* Errors: E_LIMIT, E_MEMORY. A wrong plan is a result, not an error. */
TOCSIN_MUST_CHECK tocsin_status tocsin_evaluate(const tocsin_plan *logical,
                                                const tocsin_plan *parallel, uint64_t seed,
                                                const tocsin_evaluate_limits *limits,
                                                tocsin_evaluation **evaluation,
                                                tocsin_error *error);
void tocsin_evaluation_free(tocsin_evaluation *evaluation);

#endif
