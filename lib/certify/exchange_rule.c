/* exchange_rule.c - collectives, and what adds up over members, replicas and micro-batches.
 *
 * Every output is written as a function of its index and of the positions' inputs, straight from
 * what the collective does; where members stand for all replicas, position = replica * members +
 * member, and the inputs are taken at each replica number. Positions that an index runs over are
 * told apart by refining the cell.
 */
#include <assert.h>

#include "certify/certify.h"

/* ---- sums ------------------------------------------------------------------------------------ */

typedef struct total {
    uint32_t out;
    const certify_addend *addends;
    size_t count;
    certify_number minus;      /* - factor */
    const certify_form *shift; /* added to the index along `dim`, or NULL */
    uint32_t dim;
} total;

/* Append scale * the relation, with some symbols fixed. */
static certify_outcome evaluate_at(certify_checker *checker, const certify_addend *one,
                                   const certify_form *index, const certify_number *scale)
{
    certify_form kept[TOCSIN_SYMBOL_COUNT];
    memcpy(kept, checker->symbol, sizeof kept);
    for (int s = 0; s < TOCSIN_SYMBOL_COUNT; s++)
        if (one->fixed[s] >= 0)
            checker->symbol[s] = certify_constant(one->fixed[s]);
    const certify_outcome outcome = certify_evaluate(checker, one->relation, index, scale, NULL, 0);
    memcpy(checker->symbol, kept, sizeof kept);
    return outcome;
}

static certify_outcome total_difference(certify_checker *checker, const void *context,
                                        const certify_form *index)
{
    const total *sum = context;
    const certify_number one = certify_integer(1);
    const uint32_t ndim = certify_ndim(checker, sum->out);
    certify_form at[CERTIFY_NDIM_MAX];

    certify_outcome outcome = certify_evaluate(checker, sum->out, index, &one, NULL, 0);
    memcpy(at, index, ndim * sizeof at[0]);
    for (size_t k = 0; k < sum->count && outcome == CERTIFY_DONE; k++)
        outcome = evaluate_at(checker, &sum->addends[k], at, &sum->minus);
    return outcome;
}

static certify_outcome same_shape(certify_checker *checker, uint32_t one, uint32_t other)
{
    const uint32_t ndim = certify_ndim(checker, one);
    return certify_ndim(checker, other) == ndim &&
                   memcmp(certify_shape(checker, one), certify_shape(checker, other),
                          ndim * sizeof(int64_t)) == 0
               ? CERTIFY_DONE
               : certify_different(checker, "the shapes differ");
}

certify_outcome certify_total(certify_checker *checker, uint32_t out, const certify_addend *addends,
                              size_t count, const certify_number *factor)
{
    const certify_number minus = certify_integer(-1);
    total sum = {.out = out, .addends = addends, .count = count};

    if (!certify_multiply(&minus, factor, &sum.minus))
        return certify_unclear(checker, "a factor is too large");
    for (size_t k = 0; k < count; k++) {
        const certify_outcome outcome = same_shape(checker, out, addends[k].relation);
        if (outcome != CERTIFY_DONE)
            return outcome;
    }
    return certify_everywhere(checker, certify_shape(checker, out), certify_ndim(checker, out),
                              total_difference, &sum);
}

certify_outcome certify_same(certify_checker *checker, uint32_t one, uint32_t other)
{
    const certify_addend addend = {.relation = other, .fixed = {-1, -1}};
    const certify_number factor = certify_integer(1);
    return one == other ? CERTIFY_DONE : certify_total(checker, one, &addend, 1, &factor);
}

/* ---- slices ---------------------------------------------------------------------------------- */

typedef struct slice {
    uint32_t one, other, atom;
    const tocsin_affine *starts;
} slice;

static certify_outcome slice_difference(certify_checker *checker, const void *context,
                                        const certify_form *index)
{
    const slice *cut = context;
    const certify_number one = certify_integer(1), minus = certify_integer(-1);
    const uint32_t ndim = certify_ndim(checker, cut->one);
    certify_form *at = TOCSIN_ARENA_ARRAY(&checker->arena, certify_form, CERTIFY_NDIM_MAX);

    if (at == NULL)
        return CERTIFY_FAILED;
    const certify_outcome outcome = certify_evaluate(checker, cut->one, index, &one, NULL, 0);
    if (outcome != CERTIFY_DONE)
        return outcome;
    for (uint32_t d = 0; d < ndim; d++) {
        at[d] = index[d];
        at[d].base += cut->starts[d].base;
        for (int s = 0; s < TOCSIN_SYMBOL_COUNT; s++)
            if (!certify_form_add(&at[d], &checker->symbol[s], cut->starts[d].weight[s]))
                return certify_unclear(checker, "an index is too large");
    }
    if (cut->other != 0)
        return certify_evaluate(checker, cut->other, at, &minus, NULL, 0);
    return TOCSIN_VEC_PUSH(&checker->bag,
                           (certify_entry){.factor = minus, .atom = cut->atom, .index = at})
               ? CERTIFY_DONE
               : CERTIFY_FAILED;
}

certify_outcome certify_slice(certify_checker *checker, uint32_t one, uint32_t other, uint32_t atom,
                              const tocsin_affine *starts)
{
    const slice cut = {.one = one, .other = other, .atom = atom, .starts = starts};
    const uint32_t ndim = certify_ndim(checker, one);
    const uint32_t other_ndim =
        other != 0 ? certify_ndim(checker, other) : certify_atom_of(checker, atom)->ndim;
    const int64_t *shape = certify_shape(checker, one);
    const int64_t *whole =
        other != 0 ? certify_shape(checker, other)
                   : checker->certificate->sizes.items + certify_atom_of(checker, atom)->first_size;

    if (ndim != other_ndim)
        return certify_different(checker, "it has %u dims, the logical value %u", ndim, other_ndim);
    for (uint32_t d = 0; d < ndim; d++) {
        int64_t least = starts[d].base, most = starts[d].base;
        for (int s = 0; s < TOCSIN_SYMBOL_COUNT; s++) {
            int64_t reach;
            if (__builtin_mul_overflow(starts[d].weight[s],
                                       (int64_t)checker->certificate->symbol_size[s] - 1, &reach) ||
                __builtin_add_overflow(reach > 0 ? most : least, reach, reach > 0 ? &most : &least))
                return certify_unclear(checker, "a start is too large");
        }
        if (least < 0 || most > whole[d] - shape[d])
            return certify_different(checker, "dim %u goes beyond the logical value", d);
    }
    return certify_everywhere(checker, shape, ndim, slice_difference, &cut);
}

/* ---- collectives ----------------------------------------------------------------------------- */

typedef struct meeting {
    const certify_exchange *exchange;
    uint32_t member; /* whose output is judged */
    int dim, split;
    int64_t positions, replicas; /* replicas: 1 when not over replicas */
    certify_number factor;
} meeting;

static certify_outcome dims_of(certify_checker *checker, meeting *now, const char *dim,
                               const char *split)
{
    const certify_exchange *exchange = now->exchange;
    const uint32_t ndim = certify_ndim(checker, exchange->inputs[0]);
    for (uint32_t m = 0; m < exchange->count; m++)
        if (certify_ndim(checker, exchange->inputs[m]) != ndim)
            return certify_different(checker, "members bring different numbers of dims");
    now->dim = certify_dim(certify_integer_of(exchange->plan, exchange->op, dim, 0), ndim);
    now->split =
        split == NULL
            ? 0
            : certify_dim(certify_integer_of(exchange->plan, exchange->op, split, 0), ndim);
    if (now->dim < 0 || now->split < 0 ||
        certify_ndim(checker, exchange->outputs[now->member]) != ndim)
        return certify_different(checker, "a dim is out of range");
    return CERTIFY_DONE;
}

/* Do all dims but two have the sizes of the output? */
static certify_outcome other_dims(certify_checker *checker, const meeting *now, uint32_t input)
{
    const uint32_t out = now->exchange->outputs[now->member];
    for (uint32_t d = 0; d < certify_ndim(checker, out); d++)
        if ((int)d != now->dim && (int)d != now->split &&
            certify_shape(checker, input)[d] != certify_shape(checker, out)[d])
            return certify_different(checker, "members bring other sizes than the result has");
    return CERTIFY_DONE;
}

static certify_outcome gather_difference(certify_checker *checker, const void *context,
                                         const certify_form *index)
{
    const meeting *now = context;
    const certify_exchange *exchange = now->exchange;
    const uint32_t ndim = certify_ndim(checker, exchange->inputs[0]);
    const bool to_all = exchange->op->code == TOCSIN_OPERATOR_ALL_TO_ALL;
    const certify_number one = certify_integer(1), minus = certify_integer(-1);
    certify_form at[CERTIFY_NDIM_MAX], position, member, rest;
    int64_t offset = 0;

    certify_outcome outcome =
        certify_evaluate(checker, exchange->outputs[now->member], index, &one, NULL, 0);
    if (outcome != CERTIFY_DONE)
        return outcome;
    memcpy(at, index, ndim * sizeof at[0]);
    if (exchange->over_replicas) { /* [member 0 of replica 0, member 1 of replica 0, ...] */
        const int64_t part = certify_shape(checker, exchange->inputs[0])[now->dim];
        outcome = certify_divide(&checker->space, &index[now->dim], part, &position, &rest,
                                 &checker->refinement);
        at[now->dim] = rest;
        if (outcome == CERTIFY_DONE)
            outcome = certify_divide(&checker->space, &position, exchange->count, &rest, &member,
                                     &checker->refinement);
        if (outcome != CERTIFY_DONE)
            return outcome;
        if (member.count > 0) {
            checker->refinement = (certify_refinement){
                .coordinate = member.part[0].coordinate, .cut = true, .value = 1};
            return CERTIFY_REFINE;
        }
        const certify_form kept = checker->symbol[TOCSIN_SYMBOL_REPLICA];
        checker->symbol[TOCSIN_SYMBOL_REPLICA] = rest;
        outcome = certify_evaluate(checker, exchange->inputs[member.base], at, &minus, NULL, 0);
        checker->symbol[TOCSIN_SYMBOL_REPLICA] = kept;
        return outcome;
    }
    for (uint32_t m = 0; m < exchange->count; m++) {
        const int64_t *shape = certify_shape(checker, exchange->inputs[m]);
        const int64_t size =
            to_all && now->split == now->dim ? shape[now->dim] / now->positions : shape[now->dim];
        bool below;
        outcome = certify_side(&checker->space, &index[now->dim], offset + size, &below,
                               &checker->refinement);
        if (outcome != CERTIFY_DONE)
            return outcome;
        if (below) {
            at[now->dim].base -= offset;
            if (to_all)
                at[now->split].base += now->member * (shape[now->split] / now->positions);
            return certify_evaluate(checker, exchange->inputs[m], at, &minus, NULL, 0);
        }
        offset += size;
    }
    return certify_different(checker, "the result is larger than its parts");
}

static certify_outcome judge_gather(certify_checker *checker, meeting *now)
{
    const certify_exchange *exchange = now->exchange;
    const bool to_all = exchange->op->code == TOCSIN_OPERATOR_ALL_TO_ALL;
    const int64_t *shape = certify_shape(checker, exchange->outputs[now->member]);
    int64_t total_size = 0;

    certify_outcome outcome = to_all ? dims_of(checker, now, "join_dim", "split_dim")
                                     : dims_of(checker, now, "dim", NULL);
    if (outcome == CERTIFY_DONE && !to_all)
        now->split = now->dim;
    if (outcome == CERTIFY_DONE && to_all && exchange->over_replicas)
        return certify_unclear(checker, "all_to_all over symbolic replicas");
    for (uint32_t m = 0; m < exchange->count && outcome == CERTIFY_DONE; m++) {
        const int64_t *input = certify_shape(checker, exchange->inputs[m]);
        outcome = other_dims(checker, now, exchange->inputs[m]);
        if (to_all && input[now->split] % now->positions != 0)
            return certify_different(checker, "the size is no multiple of the group's");
        if (to_all && now->split != now->dim &&
            input[now->split] / now->positions != shape[now->split])
            return certify_different(checker, "the result has another size than the parts");
        if (exchange->over_replicas &&
            input[now->dim] != certify_shape(checker, exchange->inputs[0])[now->dim])
            return certify_different(checker, "members bring different sizes");
        total_size +=
            to_all && now->split == now->dim ? input[now->dim] / now->positions : input[now->dim];
    }
    if (outcome == CERTIFY_DONE && total_size * now->replicas != shape[now->dim])
        return certify_different(checker, "the result has another size than its parts together");
    if (outcome != CERTIFY_DONE)
        return outcome;
    return certify_everywhere(checker, shape, certify_ndim(checker, exchange->outputs[now->member]),
                              gather_difference, now);
}

/* All positions' inputs at one index: `append` for each. */
static certify_outcome append_all(certify_checker *checker, const meeting *now,
                                  const certify_form *at, const certify_number *scale)
{
    certify_outcome outcome = CERTIFY_DONE;
    for (uint32_t m = 0; m < now->exchange->count; m++)
        for (int64_t r = 0; r < now->replicas && outcome == CERTIFY_DONE; r++) {
            const certify_addend addend = {.relation = now->exchange->inputs[m],
                                           .fixed = {now->exchange->over_replicas ? r : -1, -1}};
            outcome = evaluate_at(checker, &addend, at, scale);
        }
    return outcome;
}

static certify_outcome reduce_difference(certify_checker *checker, const void *context,
                                         const certify_form *index)
{
    const meeting *now = context;
    const certify_exchange *exchange = now->exchange;
    const uint32_t out = exchange->outputs[now->member], ndim = certify_ndim(checker, out);
    const certify_number one = certify_integer(1), minus = certify_integer(-1);
    certify_form at[CERTIFY_NDIM_MAX];
    certify_number scale;

    certify_outcome outcome = certify_evaluate(checker, out, index, &one, NULL, 0);
    if (outcome != CERTIFY_DONE)
        return outcome;
    memcpy(at, index, ndim * sizeof at[0]);
    if (exchange->op->code == TOCSIN_OPERATOR_REDUCE_SCATTER) {
        const int64_t part = certify_shape(checker, out)[now->dim];
        at[now->dim].base += part * now->member;
        if (exchange->over_replicas &&
            !certify_form_add(&at[now->dim], &checker->symbol[TOCSIN_SYMBOL_REPLICA],
                              part * exchange->count))
            return certify_unclear(checker, "an index is too large");
    }
    if (!certify_multiply(&minus, &now->factor, &scale))
        return certify_unclear(checker, "a factor is too large");
    return append_all(checker, now, at, &scale);
}

/* The maximum: all are ranges of one partial maximum, which together are the result's. */
static certify_outcome maximum_difference(certify_checker *checker, const void *context,
                                          const certify_form *index)
{
    const meeting *now = context;
    const certify_number one = certify_integer(1);

    checker->expand = false;
    certify_outcome outcome =
        certify_evaluate(checker, now->exchange->outputs[now->member], index, &one, NULL, 0);
    if (outcome == CERTIFY_DONE)
        outcome = append_all(checker, now, index, &one);
    if (outcome != CERTIFY_DONE)
        return outcome;
    const certify_entry *items = checker->bag.items;
    const uint64_t parts = (uint64_t)now->exchange->count * (uint64_t)now->replicas;
    if (checker->bag.count != 1 + parts)
        return certify_unclear(checker, "a maximum of sums");
    for (size_t k = 0; k < checker->bag.count; k++) {
        bool same = items[k].atom == items[0].atom && certify_equal(&items[k].factor, &one);
        for (uint32_t d = 0; same && d < certify_atom_of(checker, items[0].atom)->ndim; d++)
            same = certify_form_compare(&items[k].index[d], &items[0].index[d]) == 0;
        if (!same)
            return certify_different(checker, "a maximum of different values");
    }
    outcome = certify_boxes_cover(checker, items, 1, checker->bag.count);
    checker->bag.count = 0;
    return outcome;
}

static certify_outcome judge_reduction(certify_checker *checker, meeting *now)
{
    const certify_exchange *exchange = now->exchange;
    const char *op = certify_text_of(exchange->plan, exchange->op, "op", "sum");
    const uint32_t out = exchange->outputs[now->member];
    const bool scatters = exchange->op->code == TOCSIN_OPERATOR_REDUCE_SCATTER;
    const bool maximum = strcmp(op, "max") == 0;

    now->factor = certify_integer(strcmp(op, "avg") == 0 ? now->positions : 1);
    if (!certify_inverse(&now->factor, &now->factor) || (maximum && scatters) ||
        (!maximum && strcmp(op, "avg") != 0 && strcmp(op, "sum") != 0))
        return certify_unclear(checker, "no rule for %s with op=%s",
                               tocsin_operators[exchange->op->code].name, op);
    certify_outcome outcome = CERTIFY_DONE;
    if (scatters)
        outcome = dims_of(checker, now, "dim", NULL);
    now->split = now->dim;
    for (uint32_t m = 0; m < exchange->count && outcome == CERTIFY_DONE; m++) {
        outcome = scatters ? other_dims(checker, now, exchange->inputs[m])
                           : same_shape(checker, out, exchange->inputs[m]);
        if (scatters && outcome == CERTIFY_DONE &&
            certify_shape(checker, exchange->inputs[m])[now->dim] !=
                certify_shape(checker, out)[now->dim] * now->positions)
            return certify_different(checker, "the result is not one part of the input");
    }
    return outcome != CERTIFY_DONE
               ? outcome
               : certify_everywhere(checker, certify_shape(checker, out),
                                    certify_ndim(checker, out),
                                    maximum ? maximum_difference : reduce_difference, now);
}

static certify_outcome judge_broadcast(certify_checker *checker, const meeting *now)
{
    const certify_exchange *exchange = now->exchange;
    const int64_t root = certify_integer_of(exchange->plan, exchange->op, "root", 0);
    const certify_number factor = certify_integer(1);

    if (root < 0 || root >= now->positions)
        return certify_different(checker, "the root is no member");
    const certify_addend source = {
        .relation = exchange->inputs[root % exchange->count],
        .fixed = {exchange->over_replicas ? root / exchange->count : -1, -1}};
    if (source.relation == 0)
        return certify_different(checker, "the root brings no known value");
    return certify_total(checker, exchange->outputs[now->member], &source, 1, &factor);
}

certify_outcome certify_collective(certify_checker *checker, const certify_exchange *exchange)
{
    certify_outcome outcome = CERTIFY_DONE;
    const int64_t replicas = exchange->over_replicas
                                 ? (int64_t)checker->certificate->symbol_size[TOCSIN_SYMBOL_REPLICA]
                                 : 1;

    assert(exchange->count >= 1);
    for (uint32_t m = 0; m < exchange->count && outcome == CERTIFY_DONE; m++) {
        meeting now = {.exchange = exchange,
                       .member = m,
                       .replicas = replicas,
                       .positions = (int64_t)exchange->count * replicas};
        if (exchange->outputs[m] == 0)
            continue;
        for (uint32_t k = 0; k < exchange->count; k++)
            if (exchange->inputs[k] == 0 && exchange->op->code != TOCSIN_OPERATOR_BROADCAST)
                return certify_different(checker, "a member brings no known value");
        switch (exchange->op->code) {
        case TOCSIN_OPERATOR_ALL_REDUCE:
            if (m > 0 && exchange->outputs[m] == exchange->outputs[m - 1])
                break; /* judged already */
            outcome = judge_reduction(checker, &now);
            break;
        case TOCSIN_OPERATOR_REDUCE_SCATTER:
            outcome = judge_reduction(checker, &now);
            break;
        case TOCSIN_OPERATOR_ALL_GATHER:
            if (m > 0 && exchange->outputs[m] == exchange->outputs[m - 1])
                break;
            outcome = judge_gather(checker, &now);
            break;
        case TOCSIN_OPERATOR_ALL_TO_ALL:
            outcome = judge_gather(checker, &now);
            break;
        case TOCSIN_OPERATOR_BROADCAST:
            outcome = judge_broadcast(checker, &now);
            break;
        default:
            return certify_unclear(checker, "no rule for this collective");
        }
    }
    return outcome;
}
