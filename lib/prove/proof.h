/* prove/proof.h - what a proof found out about values in the middle of a plan. The door of the
 * module.
 *
 * A *claim* about a value of a role says which slice of which value of the logical model it is, up
 * to a factor, for every replica and micro-batch at once.
 */
#ifndef TOCSIN_PROVE_PROOF_H
#define TOCSIN_PROVE_PROOF_H

#include <tocsin/verify.h>

#include "base/base.h"
#include "plan/plan.h"

typedef struct tocsin_proof tocsin_proof;

/* value = numerator / denominator * logical[starts : shape of the value] */
typedef struct tocsin_claim {
    uint32_t logical;               /* value of the logical plan's role */
    int64_t numerator, denominator; /* denominator > 0 */
    uint8_t ndim;
    tocsin_affine starts[TOCSIN_PLAN_NDIM_MAX];
} tocsin_claim;

/* Called when the verdict is PROVED, before the proof is forgotten. */
typedef tocsin_status tocsin_proof_visitor(void *context, tocsin_proof *proof, tocsin_error *error);

/* tocsin_verify, and the visitor (or NULL). */
TOCSIN_MUST_CHECK tocsin_status tocsin_verify_visit(const tocsin_plan *logical,
                                                    const tocsin_plan *parallel,
                                                    const tocsin_verify_options *options,
                                                    tocsin_proof_visitor *visitor, void *context,
                                                    tocsin_verify_result **result,
                                                    tocsin_error *error);

/* Did one symbolic replica and micro-batch speak for all, and each message reach the micro-batch
 * that it came from? Else there are no claims. */
bool tocsin_proof_is_symbolic(const tocsin_proof *proof);
/* By op of the parallel plan: tocsin_sanity.match. */
const uint32_t *tocsin_proof_match(const tocsin_proof *proof);
/* *found: the claim about a value of a role of the parallel plan, if there is one. Of several equal
 * logical values the first is taken. Errors: E_MEMORY, E_LIMIT. */
TOCSIN_MUST_CHECK tocsin_status tocsin_proof_claim(tocsin_proof *proof, uint32_t role,
                                                   uint32_t value, tocsin_claim *claim, bool *found,
                                                   tocsin_error *error);

/* A result of one's own with copies of all texts. The causes are not copied. */
TOCSIN_MUST_CHECK tocsin_status tocsin_verify_result_copy(const tocsin_verify_result *source,
                                                          tocsin_verify_result **result,
                                                          tocsin_error *error);
#endif
