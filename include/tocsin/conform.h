/* tocsin/conform.h - did a run communicate as its plan says?
 *
 * A proof speaks of the plan; this compares the plan with what a recorded run really did: for each
 * rank and step, the sequence of collectives, sends and receives, with their groups, reductions,
 * dtypes and shapes. What cannot be compared is said.
 *
 * Threads: a call uses the calling thread alone.
 */
#ifndef TOCSIN_CONFORM_H
#define TOCSIN_CONFORM_H

#include <tocsin/plan.h>
#include <tocsin/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(NAME, "text", "what it means"). Stable names: they stand in JSON. */
#define TOCSIN_DEVIATION_TABLE(X)                                                                  \
    X(MISSING, "missing-call", "the plan has a call that the run did not make")                    \
    X(EXTRA, "extra-call", "the run made a call that the plan does not have")                      \
    X(ORDER, "other-order", "the run made two calls in another order")                             \
    X(KIND, "other-kind", "the run made another kind of call")                                     \
    X(GROUP, "other-group", "the call went over other ranks, or in another order of ranks")        \
    X(REDUCTION, "other-reduction", "the call combined its operands in another way")               \
    X(SHAPE, "other-shape", "the operand had another shape")                                       \
    X(DTYPE, "other-dtype", "the operand had another dtype")                                       \
    X(PEER, "other-peer", "the call had another source, destination or tag")

typedef enum tocsin_deviation {
#define X(name, text, meaning) TOCSIN_DEVIATION_##name,
    TOCSIN_DEVIATION_TABLE(X)
#undef X
} tocsin_deviation;

TOCSIN_API const char *tocsin_deviation_text(tocsin_deviation deviation);
TOCSIN_API const char *tocsin_deviation_meaning(tocsin_deviation deviation);

/* The first deviation of a step of a rank; equal ones of several ranks and steps are one. Texts are
 * the result's and never NULL. */
typedef struct tocsin_conform_finding {
    tocsin_deviation deviation;
    uint32_t rank;       /* where it was seen first */
    uint64_t step;       /* from 0 */
    uint64_t index;      /* of the call in this rank's step as the plan has it, from 0 */
    const char *planned; /* "all_reduce12: all_reduce sum float32[4,8] over ranks 0,1", or "" */
    const char *fqn;     /* of the planned operator, or "" */
    const char *source;  /* of the planned operator, or "" */
    const char *issued;  /* "torch.distributed.all_reduce sum float32[4,8] over ranks 0,1", or "" */
    const char *site;    /* "train.py:26 (step)": of the issued call, or "" */
    const char *ranks;   /* all that show it: "0,1" */
    uint64_t occurrences; /* steps of ranks that show it */
} tocsin_conform_finding;

typedef struct tocsin_conform_result {
    uint64_t ranks; /* of the plan that the run has */
    uint64_t steps; /* compared, over all ranks; 0: nothing could be decided */
    uint64_t calls; /* of the plan, compared with a call of the run */
    const tocsin_conform_finding *findings;
    size_t finding_count;
    const char *const *limits; /* "the recording has no ranks of process groups" */
    size_t limit_count;
} tocsin_conform_result;

/* Compare. `run` has just been opened: its events are read. The result is the caller's and refers
 * to neither. Errors: E_ARGUMENT (the run has another number of ranks than the plan), E_LIMIT,
 * E_MEMORY, and those of reading the run. A deviation is a result, not an error. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_conform(const tocsin_plan *plan,
                                                          const tocsin_run *run,
                                                          tocsin_conform_result **result,
                                                          tocsin_error *error);
TOCSIN_API void tocsin_conform_result_free(tocsin_conform_result *result);

#ifdef __cplusplus
}
#endif
#endif
