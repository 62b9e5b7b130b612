/* tests/prop/random_plan.h - random logical models with a parallel plan that is right by
 * construction, and ways to make it wrong.
 *
 * A *copy* is a parallel value: which logical value it is, and how along each of three axes (tensor
 * parallel devices, data parallel replicas, micro-batches): whole, split on a dim, or a partial
 * sum. Operators take the states to their result by rules that are right for each axis on its own;
 * what does not fit is converted by collectives first. A dim that several axes split is cut by
 * replicas first, then micro-batches, then devices.
 *
 * Segment `fw` runs once for each micro-batch, `step` after all of them, on accumulated values.
 * Plans are made of records, so that a mutation changes one, and are written as text.
 */
#ifndef TOCSIN_TESTS_RANDOM_PLAN_H
#define TOCSIN_TESTS_RANDOM_PLAN_H

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/base.h"

enum { TP, DP, MB, AXES }; /* devices, replicas, micro-batches */
enum { WHOLE = -1, PARTIAL = -2 };
enum { FW, STEP, ANY };
enum { GROUP_NONE, GROUP_TP, GROUP_DP, GROUP_WORLD, GROUP_KINDS };
enum { RANDOM_REVERSED = 1, RANDOM_SAME_REPLICA };
enum { NDIM = 4, RECORDS = 320, LOGICAL = 96, TEXT = 96, ELEMENTS_MAX = 2048 };

typedef struct random_value {
    int ndim;
    int64_t shape[NDIM];
    const char *dtype; /* NULL: float32 */
    bool input;
} random_value;

typedef struct random_copy {
    int value;
    int state[AXES];
    int phase;
    bool input;
    bool keep;
    int mutation; /* of an input: RANDOM_REVERSED, RANDOM_SAME_REPLICA */
} random_copy;

/* One operator; logical ones name values, parallel ones copies. */
typedef struct random_op {
    char name[24];
    int inputs[4], input_count;
    int output;
    char attributes[TEXT];
    bool shape_attribute; /* shape=[...] of the output */
    const char *role_key; /* an attribute that differs between devices: base + device * step */
    int64_t role_base, role_step;
    int64_t role_width; /* > 0: also end = that + width */
    int group;
    int phase;
    bool reversed; /* a mutation: the group's other order */
} random_op;

typedef struct random_output {
    int copy;
    int fold[AXES]; /* of DP, MB: 0 equal, 1 sum, 2 mean */
} random_output;

typedef struct random_plan {
    uint64_t state;
    int size[AXES];
    int phase;
    random_value values[LOGICAL];
    int value_count;
    random_op logical_ops[LOGICAL];
    int logical_op_count;
    random_copy copies[RECORDS];
    int copy_count;
    random_op ops[RECORDS];
    int op_count;
    random_output outputs[LOGICAL];
    int output_count;
    int mutated_op, mutated_device; /* on that device alone; the others have `original`. -1: none */
    random_op original;
    char mutation[128];
} random_plan;

static inline uint64_t random_next(random_plan *p)
{
    p->state += UINT64_C(0x9e3779b97f4a7c15);
    return tocsin_mix64(p->state);
}

static inline int random_below(random_plan *p, int limit)
{
    return (int)(random_next(p) % (uint64_t)limit);
}

static inline bool random_chance(random_plan *p, int percent)
{
    return random_below(p, 100) < percent;
}

/* ---- records ------------------------------------------------------------------------------------
 */

static inline int64_t random_count(const random_value *value)
{
    int64_t count = 1;
    for (int d = 0; d < value->ndim; ++d)
        count *= value->shape[d];
    return count;
}

static inline bool random_room(const random_plan *p)
{
    return p->copy_count + 16 < RECORDS && p->op_count + 16 < RECORDS &&
           p->value_count + 4 < LOGICAL && p->logical_op_count + 4 < LOGICAL;
}

static inline int random_add_value(random_plan *p, random_value value)
{
    p->values[p->value_count] = value;
    return p->value_count++;
}

static inline int random_add_copy(random_plan *p, random_copy copy)
{
    p->copies[p->copy_count] = copy;
    return p->copy_count++;
}

/* A new copy of the logical value with these states. */
static inline int random_copy_of(random_plan *p, int value, const int state[AXES])
{
    random_copy copy = {.value = value, .phase = p->phase};
    memcpy(copy.state, state, sizeof copy.state);
    return random_add_copy(p, copy);
}

static inline random_op random_op_of(const char *name, const int *inputs, int input_count,
                                     int output, const char *attributes)
{
    random_op op = {.input_count = input_count, .output = output};
    snprintf(op.name, sizeof op.name, "%s", name);
    snprintf(op.attributes, sizeof op.attributes, "%s", attributes);
    if (input_count > 0)
        memcpy(op.inputs, inputs, (size_t)input_count * sizeof *inputs);
    return op;
}

static inline random_op *random_add_op(random_plan *p, random_op op)
{
    op.phase = p->phase;
    p->ops[p->op_count] = op;
    return &p->ops[p->op_count++];
}

static inline random_op *random_unary(random_plan *p, const char *name, int input, int output,
                                      const char *attributes)
{
    return random_add_op(p, random_op_of(name, &input, 1, output, attributes));
}

static inline void random_add_logical(random_plan *p, const char *name, const int *inputs,
                                      int input_count, int output, const char *attributes,
                                      bool shape_attribute)
{
    random_op op = random_op_of(name, inputs, input_count, output, attributes);
    op.shape_attribute = shape_attribute;
    p->logical_ops[p->logical_op_count++] = op;
}

static inline bool random_splits(const random_copy *copy, int dim)
{
    return copy->state[TP] == dim || copy->state[DP] == dim || copy->state[MB] == dim;
}

/* By how much the dim is cut, by all axes. */
static inline int64_t random_parts(const random_plan *p, const random_copy *copy, int dim)
{
    int64_t parts = 1;
    for (int a = 0; a < AXES; ++a)
        parts *= copy->state[a] == dim ? p->size[a] : 1;
    return parts;
}

/* ---- conversions: collectives ---------------------------------------------------------------- */

static inline int random_with_state(random_plan *p, int copy, int axis, int state)
{
    int states[AXES];
    memcpy(states, p->copies[copy].state, sizeof states);
    states[axis] = state;
    return random_copy_of(p, p->copies[copy].value, states);
}

static inline int random_collective(random_plan *p, const char *name, int copy, int axis, int state,
                                    const char *attributes)
{
    int result = random_with_state(p, copy, axis, state);
    random_unary(p, name, copy, result, attributes)->group = axis == TP ? GROUP_TP : GROUP_DP;
    return result;
}

/* Partial sums over the axis become whole: in one of four ways. */
static inline int random_reduce(random_plan *p, int copy, int axis)
{
    char text[TEXT];
    const random_value *value = &p->values[p->copies[copy].value];
    int way = random_below(p, 6);
    if (way == 0) { /* the average, times the number */
        int average = random_collective(p, "all_reduce", copy, axis, WHOLE, "op=avg");
        int result = random_with_state(p, average, axis, WHOLE);
        p->copies[average].phase = -1; /* not the logical value */
        snprintf(text, sizeof text, "factor=%d.0", p->size[axis]);
        random_unary(p, "scale", average, result, text);
        return result;
    }
    for (int d = 0; way == 1 && d < value->ndim; ++d) { /* scattered, and gathered again */
        if (random_splits(&p->copies[copy], d) || value->shape[d] % p->size[axis] != 0)
            continue;
        snprintf(text, sizeof text, "dim=%d, op=sum", d);
        int part = random_collective(p, "reduce_scatter", copy, axis, d, text);
        snprintf(text, sizeof text, "dim=%d", d);
        return random_collective(p, "all_gather", part, axis, WHOLE, text);
    }
    int other = axis == TP ? DP : TP;
    if (p->copies[copy].state[other] == PARTIAL && random_chance(p, 50)) { /* over all ranks */
        int result = random_with_state(p, copy, axis, WHOLE);
        p->copies[result].state[other] = WHOLE;
        random_unary(p, "all_reduce", copy, result, "op=sum")->group = GROUP_WORLD;
        return result;
    }
    return random_collective(p, "all_reduce", copy, axis, WHOLE, "op=sum");
}

/* The copy with another state on the axis, or -1. */
static inline int random_convert(random_plan *p, int copy, int axis, int target)
{
    char text[TEXT];
    if (copy < 0 || p->copies[copy].state[axis] == target)
        return copy;
    int from = p->copies[copy].state[axis];
    const random_value *value = &p->values[p->copies[copy].value];
    if (axis == MB || target == PARTIAL)
        return -1;
    if (from >= 0 && axis == DP) { /* others cut the dim more finely: they first */
        if (p->copies[copy].state[MB] == from)
            return -1;
        if (p->copies[copy].state[TP] == from)
            copy = random_convert(p, copy, TP, WHOLE);
    }
    if (target == WHOLE && from == PARTIAL)
        return random_reduce(p, copy, axis);
    if (target == WHOLE) {
        snprintf(text, sizeof text, "dim=%d", from);
        return random_collective(p, "all_gather", copy, axis, WHOLE, text);
    }
    int64_t parts = random_parts(p, &p->copies[copy], target) * p->size[axis];
    if (value->shape[target] % parts != 0 ||
        (axis == DP && random_splits(&p->copies[copy], target)))
        return -1;
    if (from == PARTIAL) {
        snprintf(text, sizeof text, "dim=%d, op=sum", target);
        return random_collective(p, "reduce_scatter", copy, axis, target, text);
    }
    if (from >= 0) {
        snprintf(text, sizeof text, "split_dim=%d, join_dim=%d", target, from);
        return random_collective(p, "all_to_all", copy, axis, target, text);
    }
    if (axis == DP)
        return -1;
    int result = random_with_state(p, copy, axis, target);
    snprintf(text, sizeof text, "dim=%d", target);
    random_op *op = random_unary(p, "slice", copy, result, text);
    op->role_key = "start";
    op->role_step = op->role_width = value->shape[target] / parts;
    return result;
}

static inline int random_no_partial(random_plan *p, int copy)
{
    for (int axis = 0; axis < AXES && copy >= 0; ++axis) {
        if (p->copies[copy].state[axis] != PARTIAL)
            continue;
        int dim = random_below(p, 4);
        int split =
            axis == TP && dim < p->values[p->copies[copy].value].ndim && random_chance(p, 40)
                ? random_convert(p, copy, axis, dim)
                : -1;
        copy = split >= 0 ? split : random_convert(p, copy, axis, WHOLE);
    }
    return copy;
}

static inline int random_unsplit(random_plan *p, int copy, int dim)
{
    for (int axis = 0; axis < AXES && copy >= 0; ++axis)
        if (p->copies[copy].state[axis] == dim)
            copy = random_convert(p, copy, axis, WHOLE);
    return copy;
}

/* Two copies of equal logical shapes in equal states; the second as the result, -1 if that fails.
 */
static inline int random_match(random_plan *p, int *a, int b)
{
    const int order[AXES] = {MB, DP, TP};
    for (int k = 0; k < AXES && *a >= 0 && b >= 0; ++k) {
        int axis = order[k], x = p->copies[*a].state[axis], y = p->copies[b].state[axis];
        if (x == y)
            continue;
        int target = x >= 0 && axis == TP ? x : y >= 0 && axis == TP ? y : WHOLE;
        int c = random_convert(p, *a, axis, target), d = random_convert(p, b, axis, target);
        if (c < 0 || d < 0) {
            c = random_convert(p, *a, axis, WHOLE);
            d = random_convert(p, b, axis, WHOLE);
        }
        *a = c;
        b = d;
    }
    for (int axis = 0; axis < AXES && *a >= 0 && b >= 0; ++axis) /* a gather may have undone one */
        if (p->copies[*a].state[axis] != p->copies[b].state[axis])
            return -1;
    return *a < 0 ? -1 : b;
}

/* ---- inputs, choices ------------------------------------------------------------------------- */

static inline int64_t random_size(random_plan *p)
{
    const int64_t all = (int64_t)p->size[TP] * p->size[DP] * p->size[MB];
    switch (random_below(p, 5)) {
    case 0:
        return all;
    case 1:
        return 2 * p->size[TP];
    case 2:
        return (int64_t)p->size[TP] * p->size[DP];
    case 3:
        return all * (all <= 4 ? 2 : 1);
    default:
        return p->size[TP] * 3;
    }
}

/* A logical input and a copy of it, split as `state` says. */
static inline int random_input(random_plan *p, int ndim, const int64_t *shape,
                               const int state[AXES], const char *dtype)
{
    random_value value = {.ndim = ndim, .dtype = dtype, .input = true};
    memcpy(value.shape, shape, (size_t)ndim * sizeof *shape);
    random_copy copy = {.value = random_add_value(p, value), .input = true};
    memcpy(copy.state, state, sizeof copy.state);
    copy.phase = state[MB] == WHOLE ? ANY : FW;
    return random_add_copy(p, copy);
}

/* States for an input of this shape: every axis splits a dim, or none. */
static inline void random_states(random_plan *p, int ndim, const int64_t *shape, int state[AXES])
{
    state[TP] = state[DP] = state[MB] = WHOLE;
    for (int axis = AXES; axis-- > 0;) {
        int dim = axis == TP ? random_below(p, ndim + 2) : random_below(p, 3) ? 0 : ndim;
        if (dim >= ndim || (axis == MB && p->phase == STEP))
            continue;
        random_copy copy = {.state = {state[TP], state[DP], state[MB]}};
        if (shape[dim] % (random_parts(p, &copy, dim) * p->size[axis]) == 0)
            state[axis] = dim;
    }
}

static inline int random_fresh_input(random_plan *p)
{
    int64_t shape[NDIM];
    int state[AXES], ndim = 1 + random_below(p, 3);
    do {
        for (int d = 0; d < ndim; ++d)
            shape[d] = random_size(p);
    } while (ndim == 3 && shape[0] * shape[1] * shape[2] > ELEMENTS_MAX);
    random_states(p, ndim, shape, state);
    return random_input(p, ndim, shape, state, NULL);
}

/* A copy that the present phase can read, of real numbers; the newer the likelier. */
static inline int random_pick(random_plan *p)
{
    for (int tries = 0; tries < 60; ++tries) {
        int copy = random_below(p, p->copy_count);
        if (random_chance(p, 50))
            copy = p->copy_count - 1 - random_below(p, p->copy_count < 8 ? p->copy_count : 8);
        const random_copy *c = &p->copies[copy];
        if ((c->phase == ANY || c->phase == p->phase) && !p->values[c->value].dtype)
            return copy;
    }
    return random_fresh_input(p);
}

static inline int random_pick_ndim(random_plan *p, int low, int high)
{
    for (int tries = 0; tries < 20; ++tries) {
        int copy = random_pick(p);
        int ndim = p->values[p->copies[copy].value].ndim;
        if (ndim >= low && ndim <= high)
            return copy;
    }
    return -1;
}

/* Another copy of the same logical shape; often of the same value as `like`, or a new input. */
static inline int random_pick_like(random_plan *p, int like)
{
    random_value value = p->values[p->copies[like].value];
    for (int tries = 0; tries < 12; ++tries) {
        int copy = random_pick(p);
        const random_value *other = &p->values[p->copies[copy].value];
        if (other->ndim == value.ndim &&
            memcmp(other->shape, value.shape, (size_t)value.ndim * sizeof *value.shape) == 0)
            return copy;
    }
    int state[AXES];
    memcpy(state, p->copies[like].state, sizeof state);
    for (int axis = 0; axis < AXES; ++axis)
        if (state[axis] == PARTIAL)
            state[axis] = WHOLE;
    return value.ndim ? random_input(p, value.ndim, value.shape, state, NULL) : like;
}

#endif
