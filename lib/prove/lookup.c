/* lookup.c - table look-ups, whole and over a shard of the table's rows.
 *
 * A rank that holds rows [lo, hi) of a table looks up what it has and adds nothing for the rest:
 *
 *     mask = (i < lo) | (i >= hi)          local = masked_fill(i - lo, mask, 0)
 *     out  = masked_fill(embedding(rows, local), mask, 0)          summed over the ranks
 *
 * which is the look-up in the whole table as a partial sum over the table's row axis (a one-hot
 * contraction); backward, masked gradients scattered by `local` into hi - lo rows are rows [lo, hi)
 * of the whole table's gradient. The steps are recognised through foreign values that carry lo and
 * hi in their keys, `masked_index` and `unmasked_rows`. What they were made from is remembered by
 * relation, and at each step the mask is built anew from it and must be the very relation that the
 * plan uses, element for element. Nothing else can be made of those values, so a mask with other
 * bounds or another layout leaves them foreign and the plan unproved. Some systems' embedding does
 * all of it in one operator with attributes start and stop.
 */
#include "prove/transfer.h"

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
        tocsin_rule_name_axis(signature, d, d == 0 ? "row" : "column", d);
        table->axis[d] = (int8_t)d;
        if (d > 0)
            out->axis[index_ndim + d - 1] = (int8_t)d;
    }
    for (uint32_t d = 0; d < index_ndim; d++) {
        tocsin_rule_name_axis(signature, table_ndim + d, "index", d);
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
        tocsin_rule_name_axis(signature, d, d < index_ndim ? "index" : "column", d);
        gradient->axis[d] = (int8_t)d;
        if (d < index_ndim) {
            index->axis[d] = (int8_t)d;
            signature->contracted[d] = true;
        } else {
            out->axis[1 + d - index_ndim] = (int8_t)d;
        }
    }
}

/* ---- recognising ----------------------------------------------------------------------------- */

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

/* The bounds of a mask (i < lo) | (i >= hi), of whatever i. */
static bool mask_bounds(const tocsin_prover *prover, tocsin_relation_id mask, int64_t *low,
                        int64_t *high)
{
    const tocsin_atom *either = plain_atom(prover, mask);
    tocsin_relation_id below, above;
    if (strcmp(key_text(prover, either), "or") != 0 || either->operand_count != 2)
        return false;
    for (uint32_t swap = 0; swap < 2; swap++)
        if (comparison(prover, either->operands[swap], "lt", &below, low) &&
            comparison(prover, either->operands[1 - swap], "ge", &above, high))
            return below == above;
    return false;
}

/* ---- building the mask ----------------------------------------------------------------------- */

static tocsin_relation_id integer_like(tocsin_prover *prover, tocsin_relation_id relation,
                                       int64_t value)
{
    const tocsin_relation *view = tocsin_relation_get(prover->universe, relation);
    return tocsin_relation_constant(
        prover->universe, value == 0 ? 0 : tocsin_factor_rational(prover->universe, value, 1),
        value == 0, view->shape, view->ndim);
}

static tocsin_relation_id apply(tocsin_prover *prover, tocsin_operator_code code,
                                tocsin_relation_id left, tocsin_relation_id right)
{
    const tocsin_relation *view = tocsin_relation_get(prover->universe, left);
    const tocsin_relation_id operands[2] = {left, right};
    const int64_t *shapes[1] = {view->shape};
    const uint8_t ndim = view->ndim;
    tocsin_relation_id made = 0;
    const char *name = tocsin_operators[code].name;
    const tocsin_execution step = {.op = TOCSIN_PLAN_NONE,
                                   .inputs = operands,
                                   .outputs = &made,
                                   .output_shapes = shapes,
                                   .output_ndim = &ndim,
                                   .input_count = 2,
                                   .output_count = 1};
    const uint32_t key = tocsin_prover_key(prover, "%s", name);
    if (left == 0 || right == 0 || key == 0 ||
        !tocsin_congruence(prover, key, name, &prover->table_signatures[code], &step))
        return 0;
    return made;
}

/* (index < low) | (index >= high) */
static tocsin_relation_id mask_of(tocsin_prover *prover, tocsin_relation_id index, int64_t low,
                                  int64_t high)
{
    const tocsin_relation_id below =
        apply(prover, TOCSIN_OPERATOR_LESS, index, integer_like(prover, index, low));
    const tocsin_relation_id above =
        apply(prover, TOCSIN_OPERATOR_GREATER_EQUAL, index, integer_like(prover, index, high));
    return below == 0 || above == 0 ? 0 : apply(prover, TOCSIN_OPERATOR_OR, below, above);
}

/* Does `mask`, broadcast over the columns of `rows`, hide just what lies outside of [low, high)? */
static bool masks_rows(tocsin_prover *prover, tocsin_relation_id mask, tocsin_relation_id index,
                       int64_t low, int64_t high, tocsin_relation_id rows)
{
    tocsin_universe *universe = prover->universe;
    const tocsin_relation *view = tocsin_relation_get(universe, rows);
    const tocsin_relation *by_index = tocsin_relation_get(universe, index);
    int64_t shape[TOCSIN_PLAN_NDIM_MAX];
    tocsin_relation_id wanted = mask_of(prover, index, low, high);

    if (wanted == 0 || by_index->ndim > view->ndim)
        return false;
    for (uint32_t d = 0; d < view->ndim; d++)
        shape[d] = d < by_index->ndim ? by_index->shape[d] : 1;
    wanted = tocsin_relation_view(universe, wanted, shape, view->ndim);
    if (wanted == 0)
        return false;
    const tocsin_relation_id wide =
        tocsin_relation_expand(universe, wanted, view->shape, view->ndim);
    return wide != 0 && wide == tocsin_relation_expand(universe, mask, view->shape, view->ndim);
}

/* ---- what values were made from -------------------------------------------------------------- */

static bool remember(tocsin_map *map, tocsin_relation_id made, uint32_t first, uint32_t second)
{
    return made != 0 && tocsin_map_put(map, made, (uint64_t)first << 32 | second);
}

static bool recall(const tocsin_map *map, tocsin_relation_id made, uint32_t *first,
                   uint32_t *second)
{
    const uint64_t *found = tocsin_map_find(map, made);
    if (found == NULL)
        return false;
    *first = (uint32_t)(*found >> 32);
    *second = (uint32_t)*found;
    return true;
}

static bool bounds_of(const tocsin_prover *prover, tocsin_relation_id relation, const char *name,
                      int64_t *low, int64_t *high)
{
    long long from, to;
    char format[40];
    snprintf(format, sizeof format, "%.24s:%%lld:%%lld", name);
    if (sscanf(key_text(prover, plain_atom(prover, relation)), format, &from, &to) != 2)
        return false;
    *low = from;
    *high = to;
    return true;
}

static const tocsin_signature *unary(const tocsin_prover *prover)
{
    return &prover->table_signatures[TOCSIN_OPERATOR_EXP]; /* [...] -> [...] */
}

/* ---- rules ----------------------------------------------------------------------------------- */

/* index - low behind the mask of the index: a `masked_index`. false: it is none, nothing is set. */
static bool masked_index(tocsin_prover *prover, const tocsin_execution *run)
{
    tocsin_universe *universe = prover->universe;
    tocsin_relation_id index = run->inputs[0];
    int64_t low, high;

    if (!mask_bounds(prover, run->inputs[1], &low, &high))
        return false;
    if (low != 0) {
        const tocsin_relation_id parts[2] = {index, integer_like(prover, index, low)};
        index = parts[1] == 0 ? 0 : tocsin_relation_add(universe, parts, NULL, 2);
    }
    if (index == 0 || plain_atom(prover, index) == NULL ||
        mask_of(prover, index, low, high) != run->inputs[1])
        return false;
    const uint32_t key =
        tocsin_prover_key(prover, "masked_index:%lld:%lld", (long long)low, (long long)high);
    tocsin_execution step = *run;
    step.inputs = &index;
    step.input_count = 1;
    return key != 0 && tocsin_congruence(prover, key, "masked_index", unary(prover), &step) &&
           remember(&prover->masked_indices, run->outputs[0], index, 0);
}

bool tocsin_rule_masked_fill(tocsin_prover *prover, const tocsin_kind *kind,
                             const tocsin_execution *run)
{
    const double value = tocsin_kind_real(kind, "value", 0.0);
    tocsin_signature signature = prover->table_signatures[TOCSIN_OPERATOR_MASKED_FILL];
    int64_t low, high;
    uint32_t index, partial;

    if (value == 0.0 && run->op == TOCSIN_PLAN_NONE) {
        if (bounds_of(prover, run->inputs[0], "unmasked_rows", &low, &high) &&
            recall(&prover->row_indices, run->inputs[0], &index, &partial) &&
            masks_rows(prover, run->inputs[1], index, low, high, run->inputs[0]))
            return give(run, partial);
        if (masked_index(prover, run))
            return true;
    }
    const uint32_t key = tocsin_prover_key(prover, "masked_fill:%.17g", value);
    signature.linear = value == 0.0; /* a product with 0 and 1 */
    return key != 0 && tocsin_congruence(prover, key, "masked_fill", &signature, run) &&
           (value != 0.0 || run->op != TOCSIN_PLAN_NONE ||
            remember(&prover->masked_values, run->outputs[0], run->inputs[0], run->inputs[1]));
}

/* Is the look-up, a partial sum over the rows of its table, one over the rows [low, high)? */
static bool covers_rows(const tocsin_prover *prover, tocsin_relation_id lookup, int64_t low,
                        int64_t high)
{
    const tocsin_relation *view = tocsin_relation_get(prover->universe, lookup);
    if (view->segmented || view->count != 1)
        return false;
    const tocsin_term *term = &view->terms[0];
    const tocsin_atom *atom = tocsin_atom_get(prover->universe, term->atom);
    for (uint32_t b = 0; b < term->box_count; b++) {
        const tocsin_box_entry *entry = &term->box[b];
        if (entry->atom == term->atom && entry->axis == 0)
            return entry->stride == 1 && entry->start.base == low && entry->count == high - low &&
                   entry->start.weight[0] == 0 && entry->start.weight[1] == 0;
    }
    return low == 0 && tocsin_relation_get(prover->universe, atom->operands[0])->shape[0] == high;
}

/* Rows [low, high) looked up by a masked index: a foreign value. Behind the mask again it is a
 * partial look-up by the index itself, which is made here. */
static bool unmasked_rows(tocsin_prover *prover, const tocsin_execution *run,
                          tocsin_relation_id index, int64_t low, int64_t high)
{
    const uint32_t table_ndim = tocsin_relation_get(prover->universe, run->inputs[0])->ndim;
    const uint32_t index_ndim = tocsin_relation_get(prover->universe, index)->ndim;
    const tocsin_relation_id operands[2] = {run->inputs[0], index};
    const uint32_t whole = tocsin_prover_key(prover, "embedding");
    const uint32_t key =
        tocsin_prover_key(prover, "unmasked_rows:%lld:%lld", (long long)low, (long long)high);
    tocsin_relation_id partial = 0;
    tocsin_execution step = *run;
    tocsin_signature signature;

    step.inputs = operands;
    step.outputs = &partial;
    lookup_signature(&signature, table_ndim, index_ndim, true);
    if (key == 0 || whole == 0 || !tocsin_congruence(prover, whole, "embedding", &signature, &step))
        return false;
    if (!covers_rows(prover, partial, low, high))
        return refuse(prover, TOCSIN_CAUSE_WRONG_SHARD, "embedding",
                      "the mask's bounds are not the rows that this rank holds");
    step.outputs = run->outputs;
    signature.contracted[0] = false;
    return tocsin_congruence(prover, key, "unmasked_rows", &signature, &step) &&
           remember(&prover->row_indices, run->outputs[0], index, partial);
}

/* Does the index, on the parallel side, name one of `rows` rows only? Also where the rows are zero
 * or cancel one another, a look-up out of the table has no value. It does behind a mask, or when
 * the logical model has it and a table with as many rows. */
static bool index_fits(const tocsin_prover *prover, tocsin_relation_id index, int64_t rows)
{
    const tocsin_plan *plan = prover->plan[TOCSIN_LOGICAL];
    int64_t low, high;

    if (bounds_of(prover, index, "masked_index", &low, &high))
        return high - low == rows;
    if (tocsin_relation_get(prover->universe, index)->foreign)
        return false;
    for (size_t k = 0; k < plan->ops.count; k++) {
        const tocsin_plan_op *op = &plan->ops.items[k];
        const tocsin_kind *kind = &prover->kinds.items[prover->op_kind[TOCSIN_LOGICAL][k] - 1];
        if (kind->code == TOCSIN_OPERATOR_EMBEDDING_BACKWARD &&
            tocsin_kind_integer(kind, "rows", 0) == rows)
            return true;
        if (kind->code == TOCSIN_OPERATOR_EMBEDDING) {
            const tocsin_plan_value *table =
                &plan->values.items[plan->roles.items[0].first_value +
                                    plan->operands.items[op->first_operand]];
            if (table->ndim > 0 && tocsin_plan_shape(plan, table)[0] == rows)
                return true;
        }
    }
    return false;
}

/* A table that repeats one row gives that row. */
static bool repeated_row(tocsin_prover *prover, const tocsin_execution *run)
{
    const tocsin_relation *table = tocsin_relation_get(prover->universe, run->inputs[0]);
    const uint32_t index_ndim = tocsin_relation_get(prover->universe, run->inputs[1])->ndim;
    const tocsin_term *term = table->segmented || table->count != 1 ? NULL : table->terms;
    int64_t shape[TOCSIN_PLAN_NDIM_MAX];

    if (term == NULL || term->digit_count[0] != 1 || term->digits[0].axis != TOCSIN_DIGIT_BROADCAST)
        return false;
    for (uint32_t d = 0; d + 1 < index_ndim + table->ndim; d++)
        shape[d] = d < index_ndim ? 1 : table->shape[d + 1 - index_ndim];
    tocsin_relation_id row = tocsin_relation_select(prover->universe, run->inputs[0], 0, 0);
    if (row != 0)
        row = tocsin_relation_view(prover->universe, row, shape,
                                   (uint8_t)(index_ndim + table->ndim - 1));
    return row != 0 &&
           give(run, tocsin_relation_expand(prover->universe, row, run->output_shapes[0],
                                            run->output_ndim[0]));
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
    int64_t low, high;
    uint32_t origin, unused;

    if (table->ndim < 1 || table->ndim + index->ndim > TOCSIN_PLAN_NDIM_MAX)
        return refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, "embedding", "too many dims");
    if (run->op == TOCSIN_PLAN_NONE && !index_fits(prover, run->inputs[1], table->shape[0]))
        return refuse(prover, TOCSIN_CAUSE_WRONG_SHARD, "embedding",
                      "the index may be out of the table");
    if (bounds_of(prover, run->inputs[1], "masked_index", &low, &high) &&
        recall(&prover->masked_indices, run->inputs[1], &origin, &unused))
        return unmasked_rows(prover, run, origin, low, high);
    if (repeated_row(prover, run))
        return true;
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

/* gradient scattered by index into `rows` rows. */
static bool scatter(tocsin_prover *prover, const tocsin_execution *run,
                    const tocsin_relation_id operands[2], int64_t rows,
                    tocsin_relation_id *scattered)
{
    tocsin_universe *universe = prover->universe;
    const uint32_t gradient_ndim = tocsin_relation_get(universe, operands[0])->ndim;
    const uint32_t index_ndim = tocsin_relation_get(universe, operands[1])->ndim;
    tocsin_signature signature;
    int64_t shape[TOCSIN_PLAN_NDIM_MAX];
    const int64_t *shapes[1] = {shape};
    tocsin_execution step = *run;

    if (gradient_ndim < index_ndim || gradient_ndim - index_ndim + 1 != run->output_ndim[0])
        return refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, "embedding_backward",
                      "gradient and index do not fit");
    memcpy(shape, run->output_shapes[0], run->output_ndim[0] * sizeof shape[0]);
    shape[0] = rows;
    step.inputs = operands;
    step.outputs = scattered;
    step.output_shapes = shapes;
    scatter_signature(&signature, gradient_ndim, index_ndim);
    const uint32_t key = tocsin_prover_key(prover, "embedding_backward");
    return key != 0 && tocsin_congruence(prover, key, "embedding_backward", &signature, &step);
}

/* Rows [low, high) of the whole gradient: as many rows as some logical table has. */
static bool scatter_shard(tocsin_prover *prover, const tocsin_execution *run,
                          const tocsin_relation_id operands[2], int64_t low, int64_t high)
{
    const tocsin_plan *logical = prover->plan[TOCSIN_LOGICAL];
    for (size_t k = 0; k < logical->ops.count; k++) {
        const tocsin_kind *kind = &prover->kinds.items[prover->op_kind[TOCSIN_LOGICAL][k] - 1];
        const int64_t rows = kind->code == TOCSIN_OPERATOR_EMBEDDING_BACKWARD
                                 ? tocsin_kind_integer(kind, "rows", 0)
                                 : 0;
        tocsin_relation_id whole = 0;
        if (rows < high || !scatter(prover, run, operands, rows, &whole))
            continue;
        if (tocsin_relation_get(prover->universe, whole)->foreign)
            continue;
        return give(run, tocsin_relation_slice(prover->universe, whole, 0,
                                               (tocsin_affine){.base = low}, high - low, 1));
    }
    return false;
}

bool tocsin_rule_embedding_backward(tocsin_prover *prover, const tocsin_kind *kind,
                                    const tocsin_execution *run)
{
    uint32_t index, gradient, mask, unused;
    int64_t low, high;

    (void)kind;
    if (run->op == TOCSIN_PLAN_NONE &&
        !index_fits(prover, run->inputs[1], run->output_shapes[0][0]))
        return refuse(prover, TOCSIN_CAUSE_WRONG_SHARD, "embedding_backward",
                      "the index may be out of the table");
    if (run->op == TOCSIN_PLAN_NONE &&
        bounds_of(prover, run->inputs[1], "masked_index", &low, &high) &&
        high - low == run->output_shapes[0][0] &&
        recall(&prover->masked_indices, run->inputs[1], &index, &unused) &&
        recall(&prover->masked_values, run->inputs[0], &gradient, &mask) &&
        masks_rows(prover, mask, index, low, high, gradient)) {
        const tocsin_relation_id operands[2] = {gradient, index};
        if (scatter_shard(prover, run, operands, low, high))
            return true;
    }
    return scatter(prover, run, run->inputs, run->output_shapes[0][0], &run->outputs[0]);
}
