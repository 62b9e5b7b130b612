/* tests/prop/random_operators.h - the operators of random plans: each adds the logical operator and
 * its parallel version, conversions included, or nothing (false). See random_plan.h. */
#ifndef TOCSIN_TESTS_RANDOM_OPERATORS_H
#define TOCSIN_TESTS_RANDOM_OPERATORS_H

#include "prop/random_plan.h"

/* The logical and the parallel operator on these copies; the result has `states`. */
static inline int random_apply(random_plan *p, const char *name, const int *copies, int count,
                               random_value result, const int states[AXES], const char *attributes,
                               bool shape_attribute)
{
    int values[4];
    for (int i = 0; i < count; ++i)
        values[i] = p->copies[copies[i]].value;
    int value = random_add_value(p, result);
    random_add_logical(p, name, values, count, value, attributes, shape_attribute);
    int copy = random_copy_of(p, value, states);
    random_op op = random_op_of(name, copies, count, copy, attributes);
    op.shape_attribute = shape_attribute;
    random_add_op(p, op);
    return copy;
}

static inline bool random_nonlinear(random_plan *p)
{
    static const char *const names[][2] = {{"silu", ""}, {"sigmoid", ""}, {"gelu", ""},
                                           {"sin", ""},  {"tanh", ""},    {"exp", ""},
                                           {"relu", ""}, {"log", ""},     {"pow", "exponent=2.0"}};
    int which = random_below(p, (int)TOCSIN_COUNT_OF(names));
    int copy = random_no_partial(p, random_pick(p));
    if (copy < 0)
        return false;
    random_value value = {.ndim = p->values[p->copies[copy].value].ndim};
    memcpy(value.shape, p->values[p->copies[copy].value].shape, sizeof value.shape);
    random_apply(p, names[which][0], &copy, 1, value, p->copies[copy].state, names[which][1],
                 false);
    return true;
}

/* The shape of a copy's value, as that of a new real one. */
static inline random_value random_like(const random_plan *p, int copy)
{
    random_value value = {.ndim = p->values[p->copies[copy].value].ndim};
    memcpy(value.shape, p->values[p->copies[copy].value].shape, sizeof value.shape);
    return value;
}

static inline bool random_scale(random_plan *p)
{
    static const char *const factors[] = {"factor=2.0", "factor=0.5", "factor=-3.0",
                                          "factor=0.7071067811865476"};
    int copy = random_pick(p);
    bool negates = random_chance(p, 20);
    random_apply(p, negates ? "neg" : "scale", &copy, 1, random_like(p, copy),
                 p->copies[copy].state, negates ? "" : factors[random_below(p, 4)], false);
    return true;
}

static inline bool random_add_operator(random_plan *p)
{
    int copies[2] = {random_pick(p), -1};
    copies[1] = random_match(p, &copies[0], random_pick_like(p, copies[0]));
    if (copies[1] < 0)
        return false;
    bool subtracts = random_chance(p, 20);
    random_apply(p, subtracts ? "sub" : "add", copies, 2, random_like(p, copies[0]),
                 p->copies[copies[0]].state, "", false);
    return true;
}

/* A row added to each row; partial sums would count it several times. */
static inline bool random_bias(random_plan *p)
{
    int copies[2] = {random_no_partial(p, random_pick_ndim(p, 2, 3)), -1};
    if (copies[0] < 0)
        return false;
    random_value value = random_like(p, copies[0]);
    int state[AXES], last = value.ndim - 1;
    for (int axis = 0; axis < AXES; ++axis)
        state[axis] = p->copies[copies[0]].state[axis] == last ? 0 : WHOLE;
    bool multiplies = random_chance(p, 40);
    copies[1] = random_input(p, 1, &value.shape[last], state, NULL);
    if (p->copies[copies[1]].phase == FW && p->phase == STEP)
        return false;
    random_apply(p, multiplies ? "mul" : "add", copies, 2, value, p->copies[copies[0]].state, "",
                 false);
    return true;
}

static inline bool random_multiply(random_plan *p)
{
    int a = random_pick(p), b = random_pick_like(p, a), states[AXES];
    if (random_chance(p, 50)) { /* a partial sum times what is whole on that axis stays partial */
        for (int axis = 0; axis < DP + 1 && b >= 0; ++axis)
            if (p->copies[a].state[axis] == PARTIAL)
                b = random_convert(p, b, axis, WHOLE);
        bool fits = b >= 0;
        for (int axis = 0; fits && axis < AXES; ++axis) {
            int x = p->copies[a].state[axis], y = p->copies[b].state[axis];
            states[axis] = x;
            fits = x == PARTIAL ? y == WHOLE : x == y;
        }
        if (fits) {
            int copies[2] = {a, b};
            random_apply(p, "mul", copies, 2, random_like(p, a), states, "", false);
            return true;
        }
    }
    if (b < 0)
        return false;
    a = random_no_partial(p, a);
    b = random_no_partial(p, b);
    if (a < 0 || b < 0 || (b = random_match(p, &a, b)) < 0)
        return false;
    int copies[2] = {a, b};
    bool divides = random_chance(p, 15);
    random_apply(p, divides ? "div" : "mul", copies, 2, random_like(p, a), p->copies[a].state, "",
                 false);
    return true;
}

/* x[..., k] w[n, k]: w is a new input, split as x wants it. */
static inline bool random_linear(random_plan *p)
{
    int x = random_pick_ndim(p, 1, 3), weight_state[AXES], states[AXES];
    if (x < 0)
        return false;
    random_value value = random_like(p, x);
    int last = value.ndim - 1;
    int64_t shape[2] = {random_size(p), value.shape[last]};
    random_copy weight = {.state = {WHOLE, WHOLE, WHOLE}};
    for (int k = 0; k < AXES; ++k) {
        const int order[AXES] = {MB, DP, TP};
        int axis = order[k], state = p->copies[x].state[axis];
        weight_state[axis] = WHOLE;
        states[axis] = state == last ? PARTIAL : state;
        if (state == last)
            weight_state[axis] = 1;
        else if (state == WHOLE && axis != MB && random_chance(p, axis == TP ? 60 : 15) &&
                 shape[0] % (random_parts(p, &weight, 0) * p->size[axis]) == 0) {
            weight_state[axis] = 0;
            states[axis] = last;
        }
        weight.state[axis] = weight_state[axis];
    }
    int copies[2] = {x, random_input(p, 2, shape, weight_state, NULL)};
    if (p->copies[copies[1]].phase == FW && p->phase == STEP)
        return false;
    value.shape[last] = shape[0];
    if (random_count(&value) > ELEMENTS_MAX)
        return false;
    random_apply(p, "linear", copies, 2, value, states, "", false);
    return true;
}

/* a[m, k] b[k, n] of computed values: both whole where they do not fit. */
static inline bool random_product(random_plan *p)
{
    int a = random_pick_ndim(p, 2, 2), b = random_pick_ndim(p, 2, 2), states[AXES];
    if (a < 0 || b < 0 || random_like(p, a).shape[1] != random_like(p, b).shape[0])
        return false;
    random_value value = random_like(p, a);
    value.shape[1] = random_like(p, b).shape[1];
    for (int k = 0; k < AXES && a >= 0 && b >= 0; ++k) {
        const int order[AXES] = {MB, DP, TP};
        int axis = order[k], x = p->copies[a].state[axis], y = p->copies[b].state[axis];
        bool fits = (x == WHOLE && y != 0) || (y == WHOLE && x != 1) || (x == 1 && y == 0);
        if (x == PARTIAL || y == PARTIAL)
            fits = x == WHOLE || y == WHOLE;
        if (fits)
            continue;
        a = random_convert(p, a, axis, WHOLE);
        b = random_convert(p, b, axis, WHOLE);
    }
    for (int axis = 0; axis < AXES && a >= 0 && b >= 0; ++axis) {
        int x = p->copies[a].state[axis], y = p->copies[b].state[axis];
        if (x == PARTIAL || y == PARTIAL || (x == 1 && y == 0))
            states[axis] = PARTIAL;
        else
            states[axis] = x == 0 ? 0 : y == 1 ? 1 : WHOLE;
        if (!((x == WHOLE && y != 0) || (y == WHOLE && x != 1) || (x == 1 && y == 0)))
            return false;
    }
    if (a < 0 || b < 0 || random_count(&value) > ELEMENTS_MAX)
        return false;
    int copies[2] = {a, b};
    random_apply(p, "mm", copies, 2, value, states, "", false);
    return true;
}

static inline bool random_permute(random_plan *p)
{
    int copy = random_pick_ndim(p, 2, 4), dims[NDIM], states[AXES];
    char text[TEXT];
    if (copy < 0)
        return false;
    random_value from = random_like(p, copy), value = from;
    for (int d = 0; d < from.ndim; ++d)
        dims[d] = d;
    for (int d = from.ndim; d-- > 1;) {
        int e = random_below(p, d + 1), other = dims[d];
        dims[d] = dims[e];
        dims[e] = other;
    }
    int bytes = snprintf(text, sizeof text, "dims=[");
    for (int d = 0; d < from.ndim; ++d)
        bytes += snprintf(text + bytes, sizeof text - (size_t)bytes, "%s%d", d ? "," : "", dims[d]);
    snprintf(text + bytes, sizeof text - (size_t)bytes, "]");
    for (int axis = 0; axis < AXES; ++axis) {
        states[axis] = p->copies[copy].state[axis];
        for (int d = 0; d < from.ndim && p->copies[copy].state[axis] >= 0; ++d)
            if (dims[d] == p->copies[copy].state[axis])
                states[axis] = d;
    }
    for (int d = 0; d < from.ndim; ++d)
        value.shape[d] = from.shape[dims[d]];
    random_apply(p, "permute", &copy, 1, value, states, text, false);
    return true;
}

/* Two dims become one; the inner one must not be split. */
static inline bool random_merge(random_plan *p)
{
    int copy = random_pick_ndim(p, 2, 4), states[AXES];
    if (copy < 0)
        return false;
    int at = random_below(p, random_like(p, copy).ndim - 1);
    copy = random_unsplit(p, copy, at + 1);
    if (copy < 0 || random_splits(&p->copies[copy], at + 1))
        return false;
    random_value value = random_like(p, copy);
    value.shape[at] *= value.shape[at + 1];
    for (int d = at + 1; d + 1 < value.ndim; ++d)
        value.shape[d] = value.shape[d + 1];
    --value.ndim;
    for (int axis = 0; axis < AXES; ++axis) {
        int state = p->copies[copy].state[axis];
        states[axis] = state > at ? state - 1 : state;
    }
    random_apply(p, "view", &copy, 1, value, states, "", true);
    return true;
}

/* One dim becomes two; what splits it splits the outer one. */
static inline bool random_cut(random_plan *p)
{
    int copy = random_pick_ndim(p, 1, 3), states[AXES];
    if (copy < 0)
        return false;
    random_value value = random_like(p, copy);
    int at = random_below(p, value.ndim);
    int64_t size = value.shape[at], parts = random_parts(p, &p->copies[copy], at);
    int64_t outer = parts;
    for (int64_t factor = 2; parts * factor < size; ++factor)
        if (size % (parts * factor) == 0 && random_chance(p, 60))
            outer = parts * factor;
    if (outer <= 1 || outer >= size || size % outer != 0)
        return false;
    for (int d = value.ndim; d > at + 1; --d)
        value.shape[d] = value.shape[d - 1];
    value.shape[at] = outer;
    value.shape[at + 1] = size / outer;
    ++value.ndim;
    for (int axis = 0; axis < AXES; ++axis) {
        int state = p->copies[copy].state[axis];
        states[axis] = state > at ? state + 1 : state;
    }
    random_apply(p, "view", &copy, 1, value, states, "", true);
    return true;
}

/* sum, or mean: a split dim gives partial sums; the local mean is too large by the parts. */
static inline bool random_sum(random_plan *p)
{
    int copy = random_pick_ndim(p, 1, 4), states[AXES];
    char text[TEXT];
    if (copy < 0)
        return false;
    random_value value = random_like(p, copy);
    int dim = random_below(p, value.ndim);
    bool keeps = random_chance(p, 40), averages = random_chance(p, 40);
    int64_t parts = random_parts(p, &p->copies[copy], dim);
    for (int axis = 0; axis < AXES; ++axis) {
        int state = p->copies[copy].state[axis];
        states[axis] = state == dim ? PARTIAL : state > dim && !keeps ? state - 1 : state;
    }
    for (int d = dim; !keeps && d + 1 < value.ndim; ++d)
        value.shape[d] = value.shape[d + 1];
    if (keeps)
        value.shape[dim] = 1;
    else
        --value.ndim;
    snprintf(text, sizeof text, "dims=[%d], keepdim=%d", dim, keeps);
    int result = random_apply(p, averages ? "mean" : "sum", &copy, 1, value, states, text, false);
    if (averages && parts > 1) {
        int scaled = random_with_state(p, result, TP, states[TP]);
        snprintf(text, sizeof text, "factor=%.17g", 1.0 / (double)parts);
        random_unary(p, "scale", result, scaled, text);
        p->copies[result].phase = -1; /* not the logical value */
    }
    return true;
}

static inline bool random_softmax(random_plan *p)
{
    int copy = random_no_partial(p, random_pick_ndim(p, 1, 4));
    char text[TEXT];
    if (copy < 0)
        return false;
    int dim = random_below(p, random_like(p, copy).ndim);
    copy = random_unsplit(p, copy, dim);
    if (copy < 0)
        return false;
    snprintf(text, sizeof text, "dim=%d", dim);
    random_apply(p, "softmax", &copy, 1, random_like(p, copy), p->copies[copy].state, text, false);
    return true;
}

/* amax; over a split dim, and then over the ranks. */
static inline bool random_amax(random_plan *p)
{
    int copy = random_no_partial(p, random_pick_ndim(p, 1, 4)), states[AXES];
    char text[TEXT];
    if (copy < 0)
        return false;
    random_value value = random_like(p, copy);
    int dim = random_below(p, value.ndim), done[AXES];
    if (p->copies[copy].state[MB] == dim)
        return false;
    snprintf(text, sizeof text, "dims=[%d], keepdim=1", dim);
    value.shape[dim] = 1;
    memcpy(states, p->copies[copy].state, sizeof states);
    memcpy(done, states, sizeof done);
    for (int axis = 0; axis < MB; ++axis)
        states[axis] = states[axis] == dim ? WHOLE : states[axis];
    int result = random_apply(p, "amax", &copy, 1, value, states, text, false);
    for (int axis = 0; axis < MB; ++axis) {
        if (done[axis] != dim)
            continue;
        p->copies[result].phase = -1; /* a maximum of a part */
        result = random_collective(p, "all_reduce", result, axis, WHOLE, "op=max");
    }
    return true;
}

static inline bool random_slice(random_plan *p)
{
    int copy = random_pick_ndim(p, 1, 4);
    char text[TEXT];
    if (copy < 0)
        return false;
    int dim = random_below(p, random_like(p, copy).ndim);
    copy = random_unsplit(p, copy, dim);
    if (copy < 0)
        return false;
    random_value value = random_like(p, copy);
    int64_t size = value.shape[dim], start = random_below(p, (int)size);
    int64_t end = start + 1 + random_below(p, (int)(size - start));
    if (end - start == 1 || end - start == size)
        return false;
    value.shape[dim] = end - start;
    snprintf(text, sizeof text, "dim=%d, start=%" PRId64 ", end=%" PRId64, dim, start, end);
    random_apply(p, "slice", &copy, 1, value, p->copies[copy].state, text, false);
    return true;
}

static inline bool random_cat(random_plan *p)
{
    int copies[2] = {random_pick_ndim(p, 1, 3), -1};
    char text[TEXT];
    if (copies[0] < 0)
        return false;
    int dim = random_below(p, random_like(p, copies[0]).ndim);
    bool stacks = random_chance(p, 25);
    copies[1] = random_match(p, &copies[0], random_pick_like(p, copies[0]));
    if (copies[1] >= 0 && !stacks) {
        copies[0] = random_unsplit(p, copies[0], dim);
        copies[1] = random_unsplit(p, copies[1], dim);
    }
    if (copies[0] < 0 || copies[1] < 0 ||
        memcmp(p->copies[copies[0]].state, p->copies[copies[1]].state, sizeof p->copies[0].state) !=
            0)
        return false;
    random_value value = random_like(p, copies[0]);
    int states[AXES];
    memcpy(states, p->copies[copies[0]].state, sizeof states);
    if (stacks) {
        for (int d = value.ndim; d > dim; --d)
            value.shape[d] = value.shape[d - 1];
        value.shape[dim] = 2;
        ++value.ndim;
        for (int axis = 0; axis < AXES; ++axis)
            states[axis] += states[axis] >= dim;
    } else {
        value.shape[dim] *= 2;
    }
    if (random_count(&value) > ELEMENTS_MAX)
        return false;
    snprintf(text, sizeof text, "dim=%d", dim);
    random_apply(p, stacks ? "stack" : "cat", copies, 2, value, states, text, false);
    return true;
}

/* A new leading dim, repeated. */
static inline bool random_expand(random_plan *p)
{
    int copy = random_pick_ndim(p, 1, 2), states[AXES];
    if (copy < 0)
        return false;
    random_value value = random_like(p, copy);
    for (int d = value.ndim; d > 0; --d)
        value.shape[d] = value.shape[d - 1];
    value.shape[0] = 2 + random_below(p, 2);
    ++value.ndim;
    for (int axis = 0; axis < AXES; ++axis)
        states[axis] = p->copies[copy].state[axis] + (p->copies[copy].state[axis] >= 0);
    if (random_count(&value) > ELEMENTS_MAX)
        return false;
    random_apply(p, "expand", &copy, 1, value, states, "", true);
    return true;
}

static inline bool random_pad(random_plan *p)
{
    int copy = random_pick_ndim(p, 1, 3);
    char text[TEXT];
    if (copy < 0)
        return false;
    int dim = random_below(p, random_like(p, copy).ndim);
    copy = random_unsplit(p, copy, dim);
    if (copy < 0)
        return false;
    random_value value = random_like(p, copy);
    int before = random_below(p, 3), after = before ? random_below(p, 2) : 2;
    value.shape[dim] += before + after;
    snprintf(text, sizeof text, "dim=%d, before=%d, after=%d", dim, before, after);
    random_apply(p, "pad", &copy, 1, value, p->copies[copy].state, text, false);
    return true;
}

/* A value that stands for no logical one: of this shape, in the states of `like`. */
static inline int random_scratch(random_plan *p, int like, int ndim, const char *dtype)
{
    random_value value = random_like(p, like);
    value.ndim = ndim;
    value.dtype = dtype;
    for (int d = random_like(p, like).ndim; d < ndim; ++d)
        value.shape[d] = 1;
    int copy = random_copy_of(p, random_add_value(p, value), p->copies[like].state);
    p->copies[copy].phase = -1;
    return copy;
}

static inline int random_binary(random_plan *p, const char *name, int a, int b, int output,
                                const char *attributes)
{
    const int inputs[2] = {a, b};
    random_add_op(p, random_op_of(name, inputs, 2, output, attributes));
    return output;
}

static inline int random_constant(random_plan *p, int like, int64_t base, int64_t step)
{
    int copy = random_scratch(p, like, 0, "int64");
    random_op *op = random_add_op(p, random_op_of("full", NULL, 0, copy, ""));
    op->role_key = "value";
    op->role_base = base;
    op->role_step = step;
    return copy;
}

/* The rows [device * rows, + rows) of a table: which indices are others', and the own ones. */
static inline int random_mask(random_plan *p, int indices, int64_t rows, int *own)
{
    int ndim = random_like(p, indices).ndim;
    int low = random_constant(p, indices, 0, rows), high = random_constant(p, indices, rows, rows);
    int below = random_binary(p, "lt", indices, low, random_scratch(p, indices, ndim, "bool"), "");
    int above = random_binary(p, "ge", indices, high, random_scratch(p, indices, ndim, "bool"), "");
    int other = random_binary(p, "or", below, above, random_scratch(p, indices, ndim, "bool"), "");
    int moved =
        random_binary(p, "sub", indices, low, random_scratch(p, indices, ndim, "int64"), "");
    *own = random_binary(p, "masked_fill", moved, other, random_scratch(p, indices, ndim, "int64"),
                         "value=0");
    int mask = random_scratch(p, indices, ndim + 1, "bool");
    random_unary(p, "view", other, mask, "")->shape_attribute = true;
    return mask;
}

/* A table split by rows over the devices: the indices are shifted, those of other devices masked,
 * and the sum over the devices has every row once. */
static inline int random_rows(random_plan *p, int table, int indices, int64_t rows, int output)
{
    int own, mask = random_mask(p, indices, rows, &own);
    int looked = random_copy_of(p, output, p->copies[indices].state);
    p->copies[looked].phase = -1;
    random_binary(p, "embedding", table, own, looked, "");
    int states[AXES];
    memcpy(states, p->copies[indices].state, sizeof states);
    states[TP] = PARTIAL;
    return random_binary(p, "masked_fill", looked, mask, random_copy_of(p, output, states),
                         "value=0.0");
}

/* The gradient of a table, whole or by rows: partial sums over the axes that split the indices. */
static inline bool random_embedding_gradient(random_plan *p)
{
    int gradient = random_pick_ndim(p, 2, 3), states[AXES], own;
    char text[TEXT];
    if (gradient < 0)
        return false;
    random_value from = random_like(p, gradient);
    int last = from.ndim - 1, index_states[AXES];
    int64_t rows = random_size(p);
    for (int axis = 0; axis < AXES; ++axis) {
        int state = p->copies[gradient].state[axis];
        index_states[axis] = state == last || state == PARTIAL ? WHOLE : state;
        states[axis] = state == last ? 1 : state == WHOLE ? WHOLE : PARTIAL;
    }
    int indices = random_input(p, last, from.shape, index_states, "int64");
    if (p->copies[indices].phase == FW && p->phase == STEP)
        return false;
    random_value value = {.ndim = 2, .shape = {rows, from.shape[last]}};
    int copies[2] = {gradient, indices};
    snprintf(text, sizeof text, "rows=%" PRId64, rows);
    if (states[TP] != WHOLE || rows % p->size[TP] != 0 || random_chance(p, 40)) {
        random_apply(p, "embedding_backward", copies, 2, value, states, text, false);
        return true;
    }
    int values[2] = {p->copies[gradient].value, p->copies[indices].value};
    int output = random_add_value(p, value);
    random_add_logical(p, "embedding_backward", values, 2, output, text, false);
    int mask = random_mask(p, indices, rows / p->size[TP], &own);
    int masked = random_copy_of(p, p->copies[gradient].value, p->copies[gradient].state);
    p->copies[masked].phase = -1;
    random_binary(p, "masked_fill", gradient, mask, masked, "value=0.0");
    states[TP] = 0;
    snprintf(text, sizeof text, "rows=%" PRId64, rows / p->size[TP]);
    random_binary(p, "embedding_backward", masked, own, random_copy_of(p, output, states), text);
    return true;
}

static inline bool random_embedding(random_plan *p)
{
    int64_t shape[2], table_shape[2] = {random_size(p), random_size(p)};
    int state[AXES], ndim = 1 + random_below(p, 2), table_state[AXES] = {WHOLE, WHOLE, WHOLE};
    for (int d = 0; d < ndim; ++d)
        shape[d] = random_size(p);
    random_states(p, ndim, shape, state);
    random_value value = {.ndim = ndim + 1, .shape = {shape[0], ndim == 2 ? shape[1] : 0}};
    value.shape[ndim] = table_shape[1];
    if (random_count(&value) > ELEMENTS_MAX)
        return false;
    int way =
        state[TP] == WHOLE ? random_below(p, 3) : 0; /* the table whole, by columns, by rows */
    if ((way == 1 && table_shape[1] % p->size[TP]) || (way == 2 && table_shape[0] % p->size[TP]))
        return false;
    table_state[TP] = way == 1 ? 1 : way == 2 ? 0 : WHOLE;
    int indices = random_input(p, ndim, shape, state, "int64");
    int copies[2] = {random_input(p, 2, table_shape, table_state, NULL), indices};
    if (way == 1)
        state[TP] = ndim;
    if (way < 2) {
        random_apply(p, "embedding", copies, 2, value, state, "", false);
        return true;
    }
    int values[2] = {p->copies[copies[0]].value, p->copies[indices].value};
    int output = random_add_value(p, value);
    random_add_logical(p, "embedding", values, 2, output, "", false);
    random_rows(p, copies[0], indices, table_shape[0] / p->size[TP], output);
    return true;
}

/* ---- the whole ------------------------------------------------------------------------------- */

typedef bool random_operator(random_plan *p);

static inline void random_operators(random_plan *p, int count)
{
    static random_operator *const all[] = {
        random_nonlinear,    random_nonlinear,    random_scale,
        random_add_operator, random_add_operator, random_bias,
        random_multiply,     random_multiply,     random_linear,
        random_linear,       random_linear,       random_product,
        random_permute,      random_permute,      random_merge,
        random_cut,          random_cut,          random_sum,
        random_sum,          random_softmax,      random_amax,
        random_slice,        random_cat,          random_expand,
        random_pad,          random_embedding,    random_embedding_gradient};
    for (int done = 0, tries = 0; done < count && tries < 20 * count && random_room(p); ++tries)
        done += all[random_below(p, (int)TOCSIN_COUNT_OF(all))](p);
}

/* Sums over the micro-batches, kept for the step. */
static inline void random_accumulate(random_plan *p)
{
    int count = p->copy_count;
    for (int c = 0; c < count && random_room(p); ++c) {
        if (p->copies[c].phase != FW || p->copies[c].state[MB] != PARTIAL || random_chance(p, 25))
            continue;
        int copy = random_with_state(p, c, MB, WHOLE);
        p->copies[copy].keep = true;
        random_unary(p, "accumulate", c, copy, "");
        p->copies[copy].phase = STEP;
    }
}

/* Is the copy read by an operator? */
static inline bool random_is_read(const random_plan *p, int copy)
{
    for (int o = 0; o < p->op_count; ++o)
        for (int i = 0; i < p->ops[o].input_count; ++i)
            if (p->ops[o].inputs[i] == copy)
                return true;
    return false;
}

/* Every value that nothing reads, and some others, become outputs; each logical value once. */
static inline void random_outputs(random_plan *p)
{
    bool has[LOGICAL] = {false};
    for (int c = p->copy_count; c-- > 0 && p->output_count < LOGICAL && random_room(p);) {
        const random_copy *copy = &p->copies[c];
        if (copy->phase < 0 || copy->input || has[copy->value] ||
            (random_is_read(p, c) && !random_chance(p, 15)))
            continue;
        p->phase = copy->phase;
        int whole = copy->state[TP] == PARTIAL ? random_convert(p, c, TP, WHOLE) : c;
        random_output output = {.copy = whole};
        for (int axis = DP; axis < AXES; ++axis)
            output.fold[axis] = p->copies[whole].state[axis] == PARTIAL;
        for (int axis = DP; axis < AXES; ++axis) {
            if (!output.fold[axis] || !random_chance(p, 30))
                continue;
            char text[TEXT]; /* a mean of values that are larger by the number */
            int scaled = random_with_state(p, output.copy, TP, p->copies[output.copy].state[TP]);
            snprintf(text, sizeof text, "factor=%d.0", p->size[axis]);
            random_unary(p, "scale", output.copy, scaled, text);
            output.copy = scaled;
            output.fold[axis] = 2;
        }
        has[copy->value] = true;
        p->outputs[p->output_count++] = output;
    }
}

/* The plan of a seed with about `count` operators. */
static inline void random_make(random_plan *p, uint64_t seed, int count)
{
    *p = (random_plan){.state = tocsin_mix64(seed + 1), .mutated_op = -1, .mutated_device = -1};
    p->size[TP] = 2 + random_below(p, 2);
    p->size[DP] = 1 + random_below(p, 3);
    p->size[MB] = 1 + random_below(p, 2);
    p->phase = FW;
    random_fresh_input(p);
    random_fresh_input(p);
    int before = p->size[MB] > 1 ? count * 2 / 3 : count;
    random_operators(p, before);
    random_accumulate(p);
    p->phase = STEP;
    random_operators(p, count - before);
    random_outputs(p);
}

#endif
