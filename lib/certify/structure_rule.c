/* structure_rule.c - views, permutations, ranges and joins, element by element. */
#include "certify/local_rule.h"

/* ---- structure ------------------------------------------------------------------------------- */

/* The flat index, taken apart by the input's shape. */
static certify_outcome take_view(certify_checker *checker, const certify_judgement *now,
                                 const certify_form *index)
{
    const uint32_t out = certify_output(now), in = certify_input(now, 0);
    const uint32_t ndim = certify_ndim(checker, in);
    certify_form flat = certify_constant(0), above, at[CERTIFY_NDIM_MAX];
    int64_t stride = 1;

    for (uint32_t d = certify_ndim(checker, out); d-- > 0; stride *= certify_shape(checker, out)[d])
        if (!certify_form_add(&flat, &index[d], stride))
            return certify_unclear(checker, "an index is too large");
    for (uint32_t d = ndim; d-- > 0;) {
        const certify_outcome outcome =
            certify_divide(&checker->space, &flat, certify_shape(checker, in)[d], &above, &at[d],
                           &checker->refinement);
        if (outcome == CERTIFY_UNCLEAR)
            return certify_unclear(checker, "an index cannot be divided");
        if (outcome != CERTIFY_DONE)
            return outcome;
        flat = above;
    }
    return certify_subtract(checker, in, at, &now->factor);
}

static certify_outcome take_permuted(certify_checker *checker, const certify_judgement *now,
                                     const certify_form *index)
{
    const uint32_t ndim = certify_ndim(checker, certify_input(now, 0));
    certify_form at[CERTIFY_NDIM_MAX];
    for (uint32_t d = 0; d < ndim; d++)
        at[certify_dim(now->list[d], ndim)] = index[d];
    return certify_subtract(checker, certify_input(now, 0), at, &now->factor);
}

/* Aligned at the right; a dim of size 1 is repeated. */
certify_outcome certify_take_expanded(certify_checker *checker, const certify_judgement *now,
                                      uint32_t relation, const certify_form *index,
                                      const certify_number *factor)
{
    const uint32_t out_ndim = certify_ndim(checker, certify_output(now));
    const uint32_t ndim = certify_ndim(checker, relation);
    certify_form at[CERTIFY_NDIM_MAX];

    if (ndim > out_ndim)
        return certify_wrong_shape(checker);
    for (uint32_t d = 0; d < ndim; d++) {
        const int64_t size = certify_shape(checker, relation)[d];
        const uint32_t out = d + out_ndim - ndim;
        if (size != 1 && size != certify_shape(checker, certify_output(now))[out])
            return certify_wrong_shape(checker);
        at[d] = size == 1 ? certify_constant(0) : index[out];
    }
    return certify_subtract(checker, relation, at, factor);
}

static certify_outcome take_expand(certify_checker *checker, const certify_judgement *now,
                                   const certify_form *index)
{
    return certify_take_expanded(checker, now, certify_input(now, 0), index, &now->factor);
}

/* start + by * index along dim */
static certify_outcome take_range(certify_checker *checker, const certify_judgement *now,
                                  const certify_form *index)
{
    certify_form at[CERTIFY_NDIM_MAX];
    memcpy(at, index, certify_ndim(checker, certify_input(now, 0)) * sizeof at[0]);
    at[now->dim] = certify_constant(now->start);
    if (!certify_form_add(&at[now->dim], &index[now->dim], now->by))
        return certify_unclear(checker, "an index is too large");
    return certify_subtract(checker, certify_input(now, 0), at, &now->factor);
}

/* The dim is not in the output; its index is start. */
static certify_outcome take_selected(certify_checker *checker, const certify_judgement *now,
                                     const certify_form *index)
{
    certify_form at[CERTIFY_NDIM_MAX];
    const uint32_t ndim = certify_ndim(checker, certify_input(now, 0));
    for (uint32_t d = 0; d < ndim; d++)
        at[d] = (int)d == now->dim ? certify_constant(now->start) : index[d - ((int)d > now->dim)];
    return certify_subtract(checker, certify_input(now, 0), at, &now->factor);
}

/* Inputs one after another along dim; `by`: each without that dim, one element of it. */
static certify_outcome take_joined(certify_checker *checker, const certify_judgement *now,
                                   const certify_form *index)
{
    const uint32_t ndim = certify_ndim(checker, certify_output(now));
    int64_t offset = now->start;
    bool below = false;

    certify_outcome outcome =
        certify_side(&checker->space, &index[now->dim], offset, &below, &checker->refinement);
    if (outcome != CERTIFY_DONE || below)
        return outcome; /* the zeros before */
    for (uint32_t k = 0; k < now->step->op->input_count; k++) {
        certify_form at[CERTIFY_NDIM_MAX];
        const uint32_t part = certify_input(now, k);
        const int64_t size = now->by == 1 ? 1 : certify_shape(checker, part)[now->dim];
        outcome = certify_side(&checker->space, &index[now->dim], offset + size, &below,
                               &checker->refinement);
        if (outcome != CERTIFY_DONE)
            return outcome;
        if (below) {
            for (uint32_t d = 0, to = 0; d < ndim; d++)
                if (now->by != 1 || (int)d != now->dim)
                    at[to++] = index[d];
            if (now->by != 1)
                at[now->dim].base -= offset;
            return certify_subtract(checker, part, at, &now->factor);
        }
        offset += size;
    }
    return CERTIFY_DONE; /* the zeros after */
}

static certify_outcome judge_view(certify_checker *checker, certify_judgement *now)
{
    int64_t sizes[2] = {1, 1};
    for (int side = 0; side < 2; side++) {
        const uint32_t relation = side == 0 ? certify_input(now, 0) : certify_output(now);
        for (uint32_t d = 0; d < certify_ndim(checker, relation); d++)
            sizes[side] *= certify_shape(checker, relation)[d];
    }
    now->rule = take_view;
    return sizes[0] == sizes[1] ? certify_judge(checker, now) : certify_wrong_shape(checker);
}

static certify_outcome judge_permute(certify_checker *checker, certify_judgement *now)
{
    uint32_t count, seen = 0;
    const uint32_t in = certify_input(now, 0), ndim = certify_ndim(checker, in);
    int64_t shape[CERTIFY_NDIM_MAX];

    now->list = certify_list_of(now->step->plan, now->step->op, "dims", &count);
    if (count != ndim)
        return certify_different(checker, "dims do not fit the operand");
    for (uint32_t d = 0; d < ndim; d++) {
        const int dim = certify_dim(now->list[d], ndim);
        if (dim < 0 || (seen >> dim & 1))
            return certify_different(checker, "dims are no permutation");
        seen |= 1U << dim;
        shape[d] = certify_shape(checker, in)[dim];
    }
    now->rule = take_permuted;
    return certify_has_shape(checker, certify_output(now), shape, ndim)
               ? certify_judge(checker, now)
               : certify_wrong_shape(checker);
}

/* slice and split: a range of dim. */
static certify_outcome judge_range(certify_checker *checker, certify_judgement *now)
{
    const tocsin_plan *plan = now->step->plan;
    const tocsin_plan_op *op = now->step->op;
    const uint32_t in = certify_input(now, 0), ndim = certify_ndim(checker, in);
    int64_t shape[CERTIFY_NDIM_MAX], count;

    now->dim = certify_dim(certify_integer_of(plan, op, "dim", 0), ndim);
    if (now->dim < 0 || certify_ndim(checker, certify_output(now)) != ndim)
        return certify_different(checker, "dim is out of range");
    const int64_t size = certify_shape(checker, in)[now->dim];
    if (op->code == TOCSIN_OPERATOR_SLICE) {
        int64_t end = certify_integer_of(plan, op, "end", size);
        now->by = certify_integer_of(plan, op, "step", 1);
        now->start = certify_integer_of(plan, op, "start", 0);
        now->start += now->start < 0 ? size : 0;
        end = end < 0 ? end + size : end > size ? size : end;
        if (now->start < 0 || end <= now->start || now->by < 1)
            return certify_different(checker, "the range is out of the operand");
        count = (end - now->start + now->by - 1) / now->by;
    } else {
        now->by = 1;
        now->start = 0;
        for (uint32_t j = 0; j < now->output; j++) {
            const uint32_t before = now->step->outputs[j];
            if (before == 0)
                return certify_unclear(checker, "a part before it is unknown");
            now->start += certify_shape(checker, before)[now->dim];
        }
        count = certify_shape(checker, certify_output(now))[now->dim];
    }
    memcpy(shape, certify_shape(checker, in), ndim * sizeof shape[0]);
    shape[now->dim] = count;
    now->rule = take_range;
    if (count < 1 || now->start + (count - 1) * now->by >= size)
        return certify_different(checker, "the range is out of the operand");
    return certify_has_shape(checker, certify_output(now), shape, ndim)
               ? certify_judge(checker, now)
               : certify_wrong_shape(checker);
}

static certify_outcome judge_select(certify_checker *checker, certify_judgement *now)
{
    const uint32_t in = certify_input(now, 0), ndim = certify_ndim(checker, in);
    int64_t shape[CERTIFY_NDIM_MAX];

    now->dim = certify_dim(certify_integer_of(now->step->plan, now->step->op, "dim", 0), ndim);
    if (now->dim < 0)
        return certify_different(checker, "dim is out of range");
    const int64_t size = certify_shape(checker, in)[now->dim];
    now->start = now->step->op->code == TOCSIN_OPERATOR_UNBIND
                     ? (int64_t)now->output
                     : certify_integer_of(now->step->plan, now->step->op, "index", 0);
    now->start += now->start < 0 ? size : 0;
    if (now->start < 0 || now->start >= size)
        return certify_different(checker, "index is out of range");
    for (uint32_t d = 0, to = 0; d < ndim; d++)
        if ((int)d != now->dim)
            shape[to++] = certify_shape(checker, in)[d];
    now->rule = take_selected;
    return certify_has_shape(checker, certify_output(now), shape, ndim - 1)
               ? certify_judge(checker, now)
               : certify_wrong_shape(checker);
}

/* cat, stack and pad. */
static certify_outcome judge_join(certify_checker *checker, certify_judgement *now)
{
    const tocsin_plan_op *op = now->step->op;
    const uint32_t out = certify_output(now), ndim = certify_ndim(checker, out);
    const bool stacks = op->code == TOCSIN_OPERATOR_STACK, pads = op->code == TOCSIN_OPERATOR_PAD;
    int64_t total = 0;

    now->dim = certify_dim(certify_integer_of(now->step->plan, op, "dim", 0), ndim);
    now->by = stacks;
    now->start = pads ? certify_integer_of(now->step->plan, op, "before", 0) : 0;
    total = now->start + (pads ? certify_integer_of(now->step->plan, op, "after", 0) : 0);
    if (now->dim < 0 || now->start < 0 || total < now->start)
        return certify_different(checker, "dim or padding is out of range");
    for (uint32_t k = 0; k < op->input_count; k++) {
        const uint32_t part = certify_input(now, k);
        if (certify_ndim(checker, part) + stacks != ndim)
            return certify_wrong_shape(checker);
        for (uint32_t d = 0; d < ndim; d++)
            if ((int)d != now->dim &&
                certify_shape(checker, part)[d - (stacks && (int)d > now->dim)] !=
                    certify_shape(checker, out)[d])
                return certify_wrong_shape(checker);
        total += stacks ? 1 : certify_shape(checker, part)[now->dim];
    }
    now->rule = take_joined;
    return total == certify_shape(checker, out)[now->dim] ? certify_judge(checker, now)
                                                          : certify_wrong_shape(checker);
}

certify_outcome certify_judge_structure(certify_checker *checker, certify_judgement *now)
{
    switch ((tocsin_operator_code)now->step->op->code) {
    case TOCSIN_OPERATOR_VIEW:
        return judge_view(checker, now);
    case TOCSIN_OPERATOR_PERMUTE:
        return judge_permute(checker, now);
    case TOCSIN_OPERATOR_EXPAND:
        now->rule = take_expand;
        return certify_judge(checker, now);
    case TOCSIN_OPERATOR_SLICE:
    case TOCSIN_OPERATOR_SPLIT:
        return judge_range(checker, now);
    case TOCSIN_OPERATOR_SELECT:
    case TOCSIN_OPERATOR_UNBIND:
        return judge_select(checker, now);
    case TOCSIN_OPERATOR_CAT:
    case TOCSIN_OPERATOR_STACK:
    case TOCSIN_OPERATOR_PAD:
        return judge_join(checker, now);
    default:
        return certify_judge_multiple(checker, now); /* identity, wait, copies */
    }
}
