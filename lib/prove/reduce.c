/* reduce.c - rules of reductions along dims, and of softmax, which has the same signature but for
 * the result.
 *
 * Sums are linear: they are taken term by term and segment by segment, so that sums of sums stay
 * flat; what only repeats along a reduced dim gives a multiple. A sum or maximum over a range of an
 * axis is a partial one, which the box of its term says.
 */
#include "prove/transfer.h"

/* Which dims are reduced, as bits; all when there is no `dims`. */
static bool reduced_dims(const tocsin_kind *kind, uint32_t ndim, uint32_t *bits)
{
    uint32_t count;
    const int64_t *dims = tocsin_kind_list(kind, "dims", &count);
    *bits = 0;
    if (dims == NULL)
        *bits = (UINT32_C(1) << ndim) - 1;
    for (uint32_t k = 0; k < count; k++) {
        const uint32_t dim = tocsin_rule_dim(dims[k], ndim);
        if (dim == UINT32_MAX)
            return false;
        *bits |= UINT32_C(1) << dim;
    }
    return true;
}

/* x[a b c] -> [a c], or [a 1 c] when the dim is kept; the reduced axes carry `contracted` or not.
 */
static void reduction_signature(tocsin_signature *signature, uint32_t ndim, uint32_t bits,
                                bool keep, bool contracted)
{
    memset(signature, 0, sizeof *signature);
    signature->input_count = signature->output_count = 1;
    signature->axis_count = (uint8_t)ndim;
    signature->linear = contracted;
    tocsin_signature_operand *from = &signature->operands[0], *to = &signature->operands[1];
    from->ndim = (uint8_t)ndim;
    for (uint32_t d = 0; d < ndim; d++) {
        const bool reduced = bits >> d & 1;
        tocsin_rule_name_axis(signature, d, "dim", d);
        from->axis[d] = (int8_t)d;
        signature->contracted[d] = reduced;
        if (!reduced || keep)
            to->axis[to->ndim++] = reduced ? (int8_t)TOCSIN_AXIS_ONE : (int8_t)d;
    }
}

static bool reduce_one(tocsin_prover *prover, const char *name, uint32_t bits, bool keep,
                       bool contracted, const tocsin_execution *run)
{
    tocsin_signature signature;
    reduction_signature(&signature, tocsin_rule_ndim(prover, run->inputs[0]), bits, keep,
                        contracted);
    const uint32_t key = tocsin_prover_key(prover, "%s:%x:%d", name, bits, keep);
    return key != 0 && tocsin_congruence(prover, key, name, &signature, run);
}

/* Reduced dims along which one element is repeated: their sum is a multiple. */
static uint32_t repeated_dims(const tocsin_relation *view, uint32_t bits)
{
    const tocsin_term *term = &view->terms[0];
    uint32_t repeated = 0, first = 0;
    for (uint32_t d = 0; d < view->ndim; d++) {
        bool plain = true;
        for (uint32_t k = 0; k < term->digit_count[d]; k++)
            plain &= term->digits[first + k].axis == TOCSIN_DIGIT_BROADCAST;
        first += term->digit_count[d];
        repeated |= (uint32_t)(plain && (bits >> d & 1)) << d;
    }
    return repeated;
}

static bool scale_output(tocsin_prover *prover, const tocsin_execution *run, int64_t times)
{
    if (times == 1)
        return true;
    return tocsin_rule_give(
        run, 0,
        tocsin_relation_scale(prover->universe, run->outputs[0],
                              tocsin_factor_rational(prover->universe, times, 1)));
}

static bool sum_terms(tocsin_prover *prover, uint32_t bits, bool keep, const tocsin_execution *run);

/* Sum over the repeated dims, then over the others of `bits`. */
static bool sum_repeated(tocsin_prover *prover, uint32_t bits, uint32_t repeated,
                         const tocsin_execution *run)
{
    tocsin_universe *universe = prover->universe;
    const tocsin_relation *view = tocsin_relation_get(universe, run->inputs[0]);
    tocsin_relation_id relation = run->inputs[0];
    int64_t shape[TOCSIN_PLAN_NDIM_MAX], count = 1;
    uint32_t rest = 0, kept = 0, reduced_ndim = 0;

    for (uint32_t d = 0; d < view->ndim; d++) {
        if (repeated >> d & 1) {
            count *= view->shape[d];
            continue;
        }
        rest |= (bits >> d & 1) << kept++;
        if ((bits >> d & 1) == 0)
            shape[reduced_ndim++] = view->shape[d];
    }
    for (uint32_t d = view->ndim; d-- > 0 && relation != 0;)
        if (repeated >> d & 1)
            relation = tocsin_relation_select(universe, relation, d, 0);
    if (relation != 0)
        relation =
            tocsin_relation_scale(universe, relation, tocsin_factor_rational(universe, count, 1));
    if (relation == 0)
        return false;
    tocsin_relation_id sum = relation;
    if (rest != 0) {
        const int64_t *shapes[1] = {shape};
        const uint8_t ndim = (uint8_t)reduced_ndim;
        tocsin_execution step = *run;
        step.inputs = &relation;
        step.outputs = &sum;
        step.output_shapes = shapes;
        step.output_ndim = &ndim;
        if (!sum_terms(prover, rest, false, &step))
            return false;
    }
    return tocsin_rule_give(
        run, 0, tocsin_relation_view(universe, sum, run->output_shapes[0], run->output_ndim[0]));
}

/* The relation, of one term, without what only repeats elements along the dims `bits`, which are
 * *count times as many. 0: failed. */
static tocsin_relation_id without_repeats(tocsin_prover *prover, tocsin_relation_id id,
                                          uint32_t bits, int64_t *count)
{
    const tocsin_relation *view = tocsin_relation_get(prover->universe, id);
    const tocsin_term *term = &view->terms[0];
    const tocsin_arena_mark mark = tocsin_arena_get_mark(&prover->arena);
    tocsin_digit *digits = TOCSIN_ARENA_ARRAY(&prover->arena, tocsin_digit,
                                              term->digit_total + term->pinned_count + 1);
    uint8_t digit_count[TOCSIN_PLAN_NDIM_MAX];
    int64_t shape[TOCSIN_PLAN_NDIM_MAX];
    uint32_t next = 0, kept = 0;
    tocsin_relation_id made = 0;

    *count = 1;
    for (uint8_t d = 0; digits != NULL && d < view->ndim; d++) {
        shape[d] = view->shape[d];
        digit_count[d] = 0;
        for (uint8_t k = 0; k < term->digit_count[d]; k++, next++) {
            const tocsin_digit *digit = &term->digits[next];
            if ((bits >> d & 1) != 0 && digit->axis == TOCSIN_DIGIT_BROADCAST) {
                *count *= digit->count; /* divides the number of elements */
                shape[d] /= digit->count;
                continue;
            }
            digits[kept++] = *digit;
            digit_count[d]++;
        }
    }
    if (digits != NULL && *count == 1) {
        made = id;
    } else if (digits != NULL) {
        if (term->pinned_count > 0)
            memcpy(digits + kept, term->digits + next, term->pinned_count * sizeof digits[0]);
        tocsin_term once = *term;
        once.digits = digits;
        once.digit_count = digit_count;
        once.digit_total = kept;
        made = tocsin_relation_of_term(prover->universe, &once, shape, view->ndim);
    }
    tocsin_arena_reset_to(&prover->arena, mark);
    return made;
}

/* One term: what repeats along a reduced dim counts as often. */
static bool sum_term(tocsin_prover *prover, uint32_t bits, bool keep, const tocsin_execution *run)
{
    int64_t count;
    const tocsin_relation_id once = without_repeats(prover, run->inputs[0], bits, &count);
    tocsin_execution step = *run;

    if (once == 0)
        return false;
    const tocsin_relation *view = tocsin_relation_get(prover->universe, once);
    uint32_t repeated = repeated_dims(view, bits), single = 0;
    step.inputs = &once;
    for (uint32_t d = 0; d < view->ndim; d++)
        single |= (bits >> d & 1 & (view->shape[d] == 1)) << d;
    /* perhaps one element of a logical dim; what is repeated goes first, as on the logical side */
    if (repeated == 0 && single != 0 && run->op == TOCSIN_PLAN_NONE) {
        step.known_only = true;
        if (reduce_one(prover, "sum", bits, keep, true, &step))
            return scale_output(prover, run, count);
        step.known_only = run->known_only;
        if (!tocsin_relation_get(prover->universe, once)->foreign)
            repeated |= single;
    }
    if (repeated != 0 ? !sum_repeated(prover, bits, repeated, &step)
                      : !reduce_one(prover, "sum", bits, keep, true, &step))
        return false;
    return scale_output(prover, run, count);
}

/* Sums are linear: term by term, and segment by segment, so that sums of sums stay flat. */
static bool sum_terms(tocsin_prover *prover, uint32_t bits, bool keep, const tocsin_execution *run)
{
    tocsin_universe *universe = prover->universe;
    const tocsin_relation view = *tocsin_relation_get(universe, run->inputs[0]);
    const uint32_t count = view.count;

    if (count == 0)
        return tocsin_rule_give(run, 0,
                                tocsin_relation_constant(universe, 0, true, run->output_shapes[0],
                                                         run->output_ndim[0]));
    if (count == 1 && !view.segmented)
        return sum_term(prover, bits, keep, run);
    const tocsin_arena_mark mark = tocsin_arena_get_mark(&prover->arena);
    tocsin_relation_id *parts = TOCSIN_ARENA_ARRAY(&prover->arena, tocsin_relation_id, count);
    const bool across = view.segmented && (bits >> view.segment_dim & 1) == 0;
    uint32_t kept_before = 0; /* where the segmented dim is in the result */
    bool done = parts != NULL;
    for (uint32_t d = 0; view.segmented && d < view.segment_dim; d++)
        kept_before += keep || (bits >> d & 1) == 0;
    for (uint32_t k = 0; done && k < count; k++) {
        int64_t shape[TOCSIN_PLAN_NDIM_MAX];
        const tocsin_relation_id part =
            view.segmented
                ? view.segments[k]
                : tocsin_relation_of_term(universe, &view.terms[k], view.shape, view.ndim);
        memcpy(shape, run->output_shapes[0], run->output_ndim[0] * sizeof shape[0]);
        if (across)
            shape[kept_before] = tocsin_relation_get(universe, part)->shape[view.segment_dim];
        const int64_t *shapes[1] = {shape};
        tocsin_execution one = *run;
        one.inputs = &part;
        one.outputs = &parts[k];
        one.output_shapes = shapes;
        parts[k] = 0;
        done = part != 0 && sum_terms(prover, bits, keep, &one);
    }
    if (done)
        run->outputs[0] = across ? tocsin_relation_cat(universe, parts, count, kept_before)
                                 : tocsin_relation_add(universe, parts, NULL, count);
    tocsin_arena_reset_to(&prover->arena, mark);
    return done && run->outputs[0] != 0;
}

bool tocsin_rule_sum(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    uint32_t bits;
    if (!reduced_dims(kind, tocsin_rule_ndim(prover, run->inputs[0]), &bits))
        return tocsin_rule_refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "a dim is out of range");
    return sum_terms(prover, bits, tocsin_kind_integer(kind, "keepdim", 0) != 0, run);
}

bool tocsin_rule_mean(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    const tocsin_relation *input = tocsin_relation_get(prover->universe, run->inputs[0]);
    const uint32_t ndim = input->ndim;
    int64_t elements = 1;
    uint32_t bits;
    if (!reduced_dims(kind, ndim, &bits))
        return tocsin_rule_refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "a dim is out of range");
    for (uint32_t d = 0; d < ndim; d++)
        if (bits >> d & 1)
            elements *= input->shape[d];
    if (!sum_terms(prover, bits, tocsin_kind_integer(kind, "keepdim", 0) != 0, run))
        return false;
    return tocsin_rule_give(
        run, 0,
        tocsin_relation_scale(prover->universe, run->outputs[0],
                              tocsin_factor_rational(prover->universe, 1, elements)));
}

/* The maximum along dims: a maximum over a range of an axis is a partial maximum. */
bool tocsin_rule_amax(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    uint32_t bits;
    if (!reduced_dims(kind, tocsin_rule_ndim(prover, run->inputs[0]), &bits))
        return tocsin_rule_refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "a dim is out of range");
    const tocsin_relation *view = tocsin_relation_get(prover->universe, run->inputs[0]);
    tocsin_execution step = *run;
    tocsin_relation_id once = run->inputs[0];
    int64_t count;
    if (!view->segmented && view->count == 1)
        once = without_repeats(prover, once, bits, &count);
    step.inputs = &once;
    step.maximum = true;
    return once != 0 && reduce_one(prover, "amax", bits,
                                   tocsin_kind_integer(kind, "keepdim", 0) != 0, false, &step);
}

bool tocsin_rule_softmax(tocsin_prover *prover, const tocsin_kind *kind,
                         const tocsin_execution *run)
{
    tocsin_signature signature;
    const uint32_t ndim = tocsin_rule_ndim(prover, run->inputs[0]);
    const uint32_t dim = tocsin_rule_dim(tocsin_kind_integer(kind, "dim", -1), ndim);
    if (dim == UINT32_MAX)
        return tocsin_rule_refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "dim is out of range");
    reduction_signature(&signature, ndim, 0, false, false);
    signature.whole[dim] = true;
    const uint32_t key = tocsin_prover_key(prover, "softmax:%u", dim);
    return key != 0 && tocsin_congruence(prover, key, "softmax", &signature, run);
}
