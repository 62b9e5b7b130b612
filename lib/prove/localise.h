/* prove/localise.h - from wrong outputs back to the first wrong operators. */
#ifndef TOCSIN_PROVE_LOCALISE_H
#define TOCSIN_PROVE_LOCALISE_H

#include "prove/compare.h"

/* One place where the plan goes wrong, before equal ones of several ranks are folded. */
typedef struct tocsin_root {
    int cause;       /* tocsin_cause_class */
    uint32_t unit;   /* of the parallel run */
    uint32_t op;     /* into the parallel plan's ops; TOCSIN_PLAN_NONE: an input or an output */
    uint32_t pair;   /* the logical op of the same label, or TOCSIN_PLAN_NONE */
    uint32_t output; /* into its outputs, when it is one that is wrong; else TOCSIN_PLAN_NONE */
    const char *relation, *expected, *fix; /* texts, "" when there is no more to say */
} tocsin_root;

typedef struct tocsin_roots {
    TOCSIN_VEC(tocsin_root) items;
    tocsin_arena arena;
} tocsin_roots;

/* The independent first causes of the failed checks of a comparison. `match`: of tier 0. Free with
 * _free, also after a failure. */
tocsin_status tocsin_localise(const tocsin_run *parallel, const tocsin_run *logical,
                              const tocsin_comparison *comparison, const uint32_t *match,
                              tocsin_roots *roots, tocsin_error *error);
void tocsin_roots_free(tocsin_roots *roots);

/* A guess at the one thing that is wrong: the results of these ops should be `factor` times what
 * they are. To be tested by running the plan with it. */
typedef struct tocsin_hypothesis {
    const uint32_t *ops;
    uint32_t count;
    int cause;
    tocsin_factor_id factor;
    const char *relation, *expected;
} tocsin_hypothesis;

typedef struct tocsin_hypotheses {
    TOCSIN_VEC(tocsin_hypothesis) items;
    tocsin_arena arena;
} tocsin_hypotheses;

/* Factors that linear steps may have wrong: scalings that differ from the logical ones or from
 * those of other ranks, and when a failed output is wrong by a factor alone, scalings, reductions
 * and repeated accumulations that make this factor. At most `limit`. */
tocsin_status tocsin_hypothesise(const tocsin_run *parallel, const tocsin_run *logical,
                                 const tocsin_comparison *comparison, const uint32_t *match,
                                 uint32_t limit, tocsin_hypotheses *hypotheses,
                                 tocsin_error *error);
void tocsin_hypotheses_free(tocsin_hypotheses *hypotheses);

#endif
