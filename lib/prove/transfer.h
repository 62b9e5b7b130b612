/* prove/transfer.h - the rules of transfer.c's table that other files implement, and the small
 * steps that rules are made of. A rule fills the outputs, or answers false and the universe says
 * why.
 */
#ifndef TOCSIN_PROVE_TRANSFER_H
#define TOCSIN_PROVE_TRANSFER_H

#include "prove/prover.h"

typedef bool tocsin_transfer_rule(tocsin_prover *prover, const tocsin_kind *kind,
                                  const tocsin_execution *run);

/* structure.c: what moves elements */
tocsin_transfer_rule tocsin_rule_identity, tocsin_rule_copies, tocsin_rule_view,
    tocsin_rule_permute, tocsin_rule_expand, tocsin_rule_slice, tocsin_rule_select,
    tocsin_rule_split, tocsin_rule_unbind, tocsin_rule_cat, tocsin_rule_stack, tocsin_rule_pad;
/* reduce.c: sums, means, maxima along dims */
tocsin_transfer_rule tocsin_rule_sum, tocsin_rule_mean, tocsin_rule_amax, tocsin_rule_softmax;
/* lookup.c: tables */
tocsin_transfer_rule tocsin_rule_masked_fill, tocsin_rule_embedding, tocsin_rule_embedding_backward;

/* ---- small steps ----------------------------------------------------------------------------- */

static inline bool tocsin_rule_refuse(tocsin_prover *prover, int cause, const tocsin_kind *kind,
                                      const char *text)
{
    tocsin_universe_refuse(prover->universe, cause, "%s: %s", kind->name, text);
    return false;
}

static inline bool tocsin_rule_give(const tocsin_execution *run, uint32_t output,
                                    tocsin_relation_id relation)
{
    run->outputs[output] = relation;
    return relation != 0;
}

static inline uint32_t tocsin_rule_ndim(const tocsin_prover *prover, tocsin_relation_id relation)
{
    return tocsin_relation_get(prover->universe, relation)->ndim;
}

/* Names of axes, for refusals. */
static inline void tocsin_rule_name_axis(tocsin_signature *signature, uint32_t axis,
                                         const char *name, uint32_t number)
{
    snprintf(signature->axis_name[axis], sizeof signature->axis_name[0], "%.7s %hhu", name,
             (uint8_t)number);
}

/* A dim counted from the end when negative; UINT32_MAX: out of range. */
static inline uint32_t tocsin_rule_dim(int64_t dim, uint32_t ndim)
{
    if (dim < 0)
        dim += ndim;
    return dim < 0 || dim >= (int64_t)ndim ? UINT32_MAX : (uint32_t)dim;
}

/* The operand broadcast to the shape of the first result. */
static inline tocsin_relation_id tocsin_rule_expanded(tocsin_prover *prover,
                                                      const tocsin_execution *run, uint32_t input)
{
    return tocsin_relation_expand(prover->universe, run->inputs[input], run->output_shapes[0],
                                  run->output_ndim[0]);
}

#endif
