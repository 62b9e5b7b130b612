/* prove/compare.h - the outputs of a run against the logical ones, and which operators they need.
 */
#ifndef TOCSIN_PROVE_COMPARE_H
#define TOCSIN_PROVE_COMPARE_H

#include "prove/execute.h"
#include "prove/sanity.h"

typedef enum tocsin_check_status {
    TOCSIN_CHECK_EQUAL,
    TOCSIN_CHECK_DIFFERENT,
    TOCSIN_CHECK_LOST,    /* poison or undefined: something before it went wrong */
    TOCSIN_CHECK_UNJUDGED /* the logical side has no such output, or its own value is unknown */
} tocsin_check_status;

/* One output of one unit (of one micro-batch, when each alone must be equal). */
typedef struct tocsin_check {
    uint8_t status;        /* tocsin_check_status */
    uint32_t unit, output; /* output: into plan->outputs */
    uint32_t slot;
    uint64_t ranks; /* that this check speaks for */
    tocsin_relation_id relation, expected;
    const char *text; /* why a comparison was refused, or "" */
} tocsin_check;

typedef struct tocsin_comparison {
    TOCSIN_VEC(tocsin_check) checks;
    TOCSIN_VEC(uint32_t)
    uncovered; /* logical outputs (into plan->outputs), of which some element is
                  declared by no rank */
    tocsin_arena arena;
} tocsin_comparison;

/* Compare; `logical` has run. Free with _free, also after a failure. */
tocsin_status tocsin_compare(tocsin_run *parallel, const tocsin_run *logical,
                             tocsin_comparison *comparison, tocsin_error *error);
void tocsin_comparison_free(tocsin_comparison *comparison);
/* Is every check equal? */
bool tocsin_comparison_equal(const tocsin_comparison *comparison);

/* Mark the ops that the given outputs depend on: needed[op] = true. `outputs`: into plan->outputs,
 * NULL: all. `match`: of tier 0. One byte per op. */
tocsin_status tocsin_needed_ops(const tocsin_plan *plan, const uint32_t *match,
                                const uint32_t *outputs, size_t output_count, uint8_t *needed,
                                tocsin_error *error);

#endif
