/* lib/infer/hypothesis.h - a fact claimed of a population, and what became of the claim.
 * Between hypothesis.c (one table, any thread) and learn.c (all tables). */
#ifndef TOCSIN_LIB_INFER_HYPOTHESIS_H
#define TOCSIN_LIB_INFER_HYPOTHESIS_H

#include <infer/infer.h>

typedef struct tocsin_hypothesis {
    tocsin_drop drop;           /* KEPT: an invariant */
    tocsin_invariant invariant; /* its precondition lives in the table's arena */
    uint64_t fingerprint;       /* of the circumstances and in which of them the fact is true */
} tocsin_hypothesis;

/* All hypotheses of one table, in ascending order of their facts. The array and what it points to
 * live in `arena`. */
TOCSIN_MUST_CHECK tocsin_status tocsin_hypotheses_judge(const tocsin_vocabulary *vocabulary,
                                                        const tocsin_table *table,
                                                        uint32_t run_count, tocsin_arena *arena,
                                                        tocsin_hypothesis **hypotheses,
                                                        size_t *count, tocsin_error *error);

#endif
