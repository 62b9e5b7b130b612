/* lookup.c - table look-ups, whole and over a shard of the table's rows.
 *
 * A rank that holds rows [lo, hi) of a table looks up what it has and adds nothing for the rest:
 *
 *     mask = (i < lo) | (i >= hi)          local = masked_fill(i - lo, mask, 0)
 *     out  = masked_fill(embedding(rows, local), mask, 0)          summed over the ranks
 *
 * which is the look-up in the whole table as a partial sum over the table's row axis (a one-hot
 * contraction). The three steps are recognised through two foreign values that carry lo and hi in
 * their keys, `masked_index` and `unmasked_rows`; nothing else can be made of those, so a mask with
 * other bounds leaves them foreign and the plan unproved. Some systems' embedding does all of it in
 * one operator with attributes start and stop.
 */
#include "prove/lookup.h"

#include <assert.h>

static bool give(const tocsin_execution *run, tocsin_relation_id relation)
{
    run->outputs[0] = relation;
    return relation != 0;
}

static bool refuse(tocsin_prover *prover, int cause, const char *name, const char *text)
{
    tocsin_universe_refuse(prover->universe, cause, "%s: %s", name, text);
    return false;
}

/* table[v d..] indices[i..] -> [i.. d..]; `v` contracted or merely whole. */
static void lookup_signature(tocsin_signature *signature, uint32_t table_ndim, uint32_t index_ndim,
                             bool contracted)
{
    memset(signature, 0, sizeof *signature);
    signature->input_count = 2;
    signature->output_count = 1;
    signature->axis_count = (uint8_t)(table_ndim + index_ndim);
    signature->linear = 1;
    tocsin_signature_operand *table = &signature->operands[0], *index = &signature->operands[1],
                             *out = &signature->operands[2];
    table->ndim = (uint8_t)table_ndim;
    index->ndim = (uint8_t)index_ndim;
    out->ndim = (uint8_t)(table_ndim - 1 + index_ndim);
    for (uint32_t d = 0; d < table_ndim; d++) {
        snprintf(signature->axis_name[d], sizeof signature->axis_name[d],
                 d == 0 ? "row" : "column %u", d);
        table->axis[d] = (int8_t)d;
        if (d > 0)
            out->axis[index_ndim + d - 1] = (int8_t)d;
    }
    for (uint32_t d = 0; d < index_ndim; d++) {
        snprintf(signature->axis_name[table_ndim + d], sizeof signature->axis_name[0], "index %u",
                 d);
        index->axis[d] = out->axis[d] = (int8_t)(table_ndim + d);
    }
    signature->contracted[0] = contracted;
}

/* gradient[i.. d..] indices[i..] -> [v d..], summed over i.. */
static void scatter_signature(tocsin_signature *signature, uint32_t gradient_ndim,
                              uint32_t index_ndim)
{
    memset(signature, 0, sizeof *signature);
    signature->input_count = 2;
    signature->output_count = 1;
    signature->axis_count = (uint8_t)gradient_ndim;
    signature->linear = 1;
    tocsin_signature_operand *gradient = &signature->operands[0], *index = &signature->operands[1],
                             *out = &signature->operands[2];
    gradient->ndim = (uint8_t)gradient_ndim;
    index->ndim = (uint8_t)index_ndim;
    out->ndim = (uint8_t)(1 + gradient_ndim - index_ndim);
    out->axis[0] = TOCSIN_AXIS_ANY;
    for (uint32_t d = 0; d < gradient_ndim; d++) {
        snprintf(signature->axis_name[d], sizeof signature->axis_name[d], "%s %u",
                 d < index_ndim ? "index" : "column", d);
        gradient->axis[d] = (int8_t)d;
        if (d < index_ndim) {
            index->axis[d] = (int8_t)d;
            signature->contracted[d] = true;
        } else {
            out->axis[1 + d - index_ndim] = (int8_t)d;
        }
    }
}

/* ---- recognising --------------------------------------------------------------------------------- */

/* The atom of a relation that is one whole term with factor 1, or NULL. */
static const tocsin_atom *plain_atom(const tocsin_prover *prover, tocsin_relation_id relation)
{
    const tocsin_relation *view = tocsin_relation_get(prover->universe, relation);
    if (view->segmented || view->count != 1 || view->terms[0].factor != 0 ||
        view->terms[0].box_count != 0)
        return NULL;
    return tocsin_atom_get(prover->universe, view->terms[0].atom);
}

static const char *key_text(const tocsin_prover *prover, const tocsin_atom *atom)
{
    return atom == NULL || atom->kind != TOCSIN_ATOM_CALL
               ? ""
               : tocsin_intern_text(&prover->kind_texts, atom->operator_key, NULL);
}

/* Does the atom compare some value with one integer? Which value and integer. */
static bool comparison(const tocsin_prover *prover, tocsin_relation_id relation, const char *name,
                       tocsin_relation_id *value, int64_t *bound)
{
    const tocsin_atom *atom = plain_atom(prover, relation);
    int64_t denominator;
    if (strcmp(key_text(prover, atom), name) != 0 || atom->operand_count != 2)
        return false;
    const tocsin_relation *constant = tocsin_relation_get(prover->universe, atom->operands[1]);
    *value = atom->operands[0];
    *bound = 0;
    if (constant->segmented || constant->count > 1)
        return false;
    if (constant->count == 0)
        return true;
    return tocsin_atom_get(prover->universe, constant->terms[0].atom)->kind == TOCSIN_ATOM_ONE &&
           tocsin_factor_is_rational(prover->universe, constant->terms[0].factor, bound,
                                     &denominator) &&
           denominator == 1;
}

/* (i < lo) | (i >= hi): the widened i, lo and hi. */
static bool outside_mask(const tocsin_prover *prover, tocsin_relation_id mask,
                         tocsin_relation_id *index, int64_t *low, int64_t *high)
{
    const tocsin_atom *either = plain_atom(prover, mask);
    tocsin_relation_id other;
    if (strcmp(key_text(prover, either), "or") != 0 || either->operand_count != 2)
        return false;
    for (uint32_t swap = 0; swap < 2; swap++)
        if (comparison(prover, either->operands[swap], "lt", index, low) &&
            comparison(prover, either->operands[1 - swap], "ge", &other, high))
            return *index == other;
    return false;
}

/* Is `shifted` equal to `index` - low, where `index` widens to the given relation? Gives the local
 * index relation. */
static tocsin_relation_id unshifted(tocsin_prover *prover, tocsin_relation_id shifted,
                                    tocsin_relation_id index, int64_t low)
{
    tocsin_universe *universe = prover->universe;
    const tocsin_relation *view = tocsin_relation_get(universe, shifted);
    tocsin_relation_id parts[2] = {shifted, 0};
    tocsin_window windows[64];

    if (low != 0) {
        parts[1] = tocsin_relation_constant(
            universe, tocsin_factor_rational(universe, low, 1), false, view->shape, view->ndim);
        if (parts[1] == 0)
            return 0;
    }
    const tocsin_relation_id local =
        low == 0 ? shifted : tocsin_relation_add(universe, parts, NULL, 2);
    if (local == 0 || tocsin_relation_get(universe, local)->count != 1)
        return 0;
    for (uint32_t choice = 0; choice < 2; choice++)
        if (tocsin_relation_widen(universe, local, choice, 0, prover->size, windows,
                                  TOCSIN_COUNT_OF(windows)) == index)
            return local;
    return 0;
}

static const tocsin_signature *unary(const tocsin_prover *prover)
{
    return &prover->table_signatures[TOCSIN_OPERATOR_EXP]; /* [...] -> [...] */
}

/* ---- rules ------------------------------------------------------------------------------------------ */

/* The look-up that `rows` (an `unmasked_rows` atom of the shard [low, high)) becomes when masked:
 * a partial sum over rows. */
static bool masked_rows(tocsin_prover *prover, const tocsin_execution *run, const tocsin_atom *rows,
                        int64_t low, int64_t high)
{
    tocsin_universe *universe = prover->universe;
    const tocsin_relation *view = tocsin_relation_get(universe, run->inputs[0]);
    const tocsin_relation *table = tocsin_relation_get(universe, rows->operands[0]);
    const uint32_t key = tocsin_prover_key(prover, "embedding");
    bool made;
    const tocsin_atom_id whole =
        key == 0 ? 0
                 : tocsin_atom_call(universe, key, "embedding", rows->operands, 2, 0, rows->shape,
                                    rows->ndim, TOCSIN_PLAN_NONE, &made);
    if (whole == 0)
        return false;
    const tocsin_box_entry range = {.atom = whole,
                                    .axis = 0,
                                    .kind = TOCSIN_BOX_SUM,
                                    .stride = 1,
                                    .extent = tocsin_atom_get(universe, table->terms[0].atom)
                                                  ->shape[table->terms[0].digits[0].axis],
                                    .start = {.base = low},
                                    .count = high - low};
    tocsin_term term = view->terms[0];
    term.atom = whole;
    term.box = &range;
    term.box_count = 1;
    return give(run, tocsin_relation_of_term(universe, &term, view->shape, view->ndim));
}

bool tocsin_rule_masked_fill(tocsin_prover *prover, const tocsin_kind *kind,
                             const tocsin_execution *run)
{
    const double value = tocsin_kind_real(kind, "value", 0.0);
    const tocsin_atom *atom = plain_atom(prover, run->inputs[0]);
    const char *text = key_text(prover, atom);
    long long row_low, row_high;
    int64_t low, high;
    tocsin_relation_id index;

    if (value == 0.0 && run->op == TOCSIN_PLAN_NONE &&
        outside_mask(prover, run->inputs[1], &index, &low, &high)) {
        if (sscanf(text, "unmasked_rows:%lld:%lld", &row_low, &row_high) == 2 && row_low == low &&
            row_high == high && atom->operands[1] == index)
            return masked_rows(prover, run, atom, low, high);
        const tocsin_relation_id local = unshifted(prover, run->inputs[0], index, low);
        if (local != 0) {
            const uint32_t key = tocsin_prover_key(prover, "masked_index:%lld:%lld",
                                                   (long long)low, (long long)high);
            tocsin_execution step = *run;
            step.inputs = &local;
            step.input_count = 1;
            return key != 0 &&
                   tocsin_congruence(prover, key, "masked_index", unary(prover), &step);
        }
    }
    const uint32_t key = tocsin_prover_key(prover, "masked_fill:%.17g", value);
    tocsin_signature signature = prover->table_signatures[TOCSIN_OPERATOR_MASKED_FILL];
    signature.linear = value == 0.0; /* a product with 0 and 1 */
    return key != 0 && tocsin_congruence(prover, key, "masked_fill", &signature, run);
}

/* Rows [low, high) looked up by a masked index: the local index back, and the key of the result. */
static bool unmasked_rows(tocsin_prover *prover, const tocsin_execution *run, int64_t low,
                          int64_t high)
{
    tocsin_universe *universe = prover->universe;
    const tocsin_relation *index = tocsin_relation_get(universe, run->inputs[1]);
    const tocsin_relation *table = tocsin_relation_get(universe, run->inputs[0]);
    const tocsin_atom *masked = tocsin_atom_get(universe, index->terms[0].atom);
    const tocsin_relation *origin = tocsin_relation_get(universe, masked->operands[0]);
    tocsin_signature signature;
    tocsin_term term = index->terms[0];

    const bool plain = !table->segmented && table->count == 1 && table->terms[0].digit_count[0] == 1;
    const tocsin_digit *rows = plain ? &table->terms[0].digits[0] : NULL;
    if (!plain || rows->start.base != low || rows->count != high - low ||
        rows->start.weight[0] != 0 || rows->start.weight[1] != 0)
        return refuse(prover, TOCSIN_CAUSE_WRONG_SHARD, "embedding",
                      "the mask's bounds are not the rows that this rank holds");
    if (origin->count != 1 || origin->terms[0].digit_total != term.digit_total)
        return refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, "embedding", "unknown form of the index");
    term.atom = origin->terms[0].atom; /* element-wise: the same map over the index itself */
    const tocsin_relation_id operands[2] = {
        run->inputs[0], tocsin_relation_of_term(universe, &term, index->shape, index->ndim)};
    const uint32_t key = tocsin_prover_key(prover, "unmasked_rows:%lld:%lld", (long long)low,
                                           (long long)high);
    tocsin_execution step = *run;
    step.inputs = operands;
    lookup_signature(&signature, table->ndim, index->ndim, false);
    return operands[1] != 0 && key != 0 &&
           tocsin_congruence(prover, key, "unmasked_rows", &signature, &step);
}

bool tocsin_rule_embedding(tocsin_prover *prover, const tocsin_kind *kind,
                           const tocsin_execution *run)
{
    tocsin_universe *universe = prover->universe;
    const tocsin_relation *table = tocsin_relation_get(universe, run->inputs[0]);
    const tocsin_relation *index = tocsin_relation_get(universe, run->inputs[1]);
    const int64_t start = tocsin_kind_integer(kind, "start", -1);
    const int64_t stop = tocsin_kind_integer(kind, "stop", -1);
    tocsin_signature signature;
    long long low, high;

    if (table->ndim < 1 || table->ndim + index->ndim > TOCSIN_PLAN_NDIM_MAX)
        return refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, "embedding", "too many dims");
    if (sscanf(key_text(prover, plain_atom(prover, run->inputs[1])), "masked_index:%lld:%lld", &low,
               &high) == 2)
        return unmasked_rows(prover, run, low, high);
    if (start >= 0 && !table->segmented && table->count == 1 &&
        table->terms[0].digit_count[0] == 1 &&
        (table->terms[0].digits[0].start.base != start ||
         table->terms[0].digits[0].count != stop - start))
        return refuse(prover, TOCSIN_CAUSE_WRONG_SHARD, "embedding",
                      "start and stop are not the rows that this rank holds");
    lookup_signature(&signature, table->ndim, index->ndim, true);
    signature.whole[0] = start < 0; /* without a mask, a shard of the rows is no partial sum */
    const uint32_t key = tocsin_prover_key(prover, "embedding");
    return key != 0 && tocsin_congruence(prover, key, "embedding", &signature, run);
}

bool tocsin_rule_embedding_backward(tocsin_prover *prover, const tocsin_kind *kind,
                                    const tocsin_execution *run)
{
    tocsin_universe *universe = prover->universe;
    const tocsin_relation *gradient = tocsin_relation_get(universe, run->inputs[0]);
    const tocsin_relation *index = tocsin_relation_get(universe, run->inputs[1]);
    tocsin_signature signature;
    (void)kind;
    if (gradient->ndim < index->ndim ||
        gradient->ndim - index->ndim + 1 > TOCSIN_PLAN_NDIM_MAX)
        return refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, "embedding_backward",
                      "gradient and index do not fit");
    scatter_signature(&signature, gradient->ndim, index->ndim);
    const uint32_t key = tocsin_prover_key(prover, "embedding_backward");
    return key != 0 && tocsin_congruence(prover, key, "embedding_backward", &signature, run);
}
