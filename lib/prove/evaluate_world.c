/* prove/evaluate_world.c - see evaluate_world.h.
 *
 * Ranks advance in turn until each waits or has ended. A collective happens when all members of its
 * group stand at a collective of that group; a receive when a message with its source and tag is
 * there, in the order of sending; a send never waits. When nobody moves, those who have not ended
 * are stuck.
 */
#include "prove/evaluate_world.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <tocsin/tensor.h>

int64_t tocsin_affine_at(const tocsin_affine *affine, uint32_t replica, int64_t microbatch)
{
    const int64_t *weight = affine->weight; /* unsigned: overflow is a wrong plan, not a crash */
    uint64_t at = (uint64_t)affine->base + (uint64_t)weight[TOCSIN_SYMBOL_REPLICA] * replica;
    if (microbatch > 0)
        at += (uint64_t)weight[TOCSIN_SYMBOL_MICROBATCH] * (uint64_t)microbatch;
    return (int64_t)at;
}

/* ---- inputs ------------------------------------------------------------------------------------
 */

/* Does the operator hand on its first operand's (cat, stack: every operand's) elements? */
static bool hands_on(tocsin_operator_code code)
{
    return code >= TOCSIN_OPERATOR_IDENTITY && code <= TOCSIN_OPERATOR_PAD;
}

static void lower(uint64_t *bound, uint64_t to)
{
    if (to > 0 && (*bound == 0 || to < *bound))
        *bound = to;
}

/* Where an operator's use bounds its operands, into `of`, per value of the role. */
static void bound_operands(const tocsin_plan *plan, const tocsin_plan_role *role,
                           const tocsin_plan_op *op, uint64_t *of)
{
    const uint32_t *inputs = plan->operands.items + op->first_operand;
    const uint32_t *outputs = inputs + op->input_count;
    if (op->signature != TOCSIN_PLAN_NONE)
        return;
    if (op->code == TOCSIN_OPERATOR_EMBEDDING && op->input_count == 2) {
        const tocsin_plan_value *table = &plan->values.items[role->first_value + inputs[0]];
        lower(&of[inputs[1]], table->ndim ? (uint64_t)*tocsin_plan_shape(plan, table) : 0);
    } else if (op->code == TOCSIN_OPERATOR_EMBEDDING_BACKWARD && op->input_count == 2) {
        const tocsin_attribute *rows = tocsin_plan_attribute(plan, op->attributes, "rows");
        if (rows && rows->kind == TOCSIN_ATTRIBUTE_INTEGERS && rows->count == 1)
            lower(&of[inputs[1]], (uint64_t)rows->integers[0]);
    } else if (hands_on((tocsin_operator_code)op->code)) {
        bool joins = op->code == TOCSIN_OPERATOR_CAT || op->code == TOCSIN_OPERATOR_STACK;
        for (uint32_t i = 0; i < (joins ? op->input_count : 1u); ++i)
            for (uint32_t o = 0; o < op->output_count; ++o)
                lower(&of[inputs[i]], of[outputs[o]]);
    }
}

/* A constant of the operator that an input may be compared with: half of the integers of inputs are
 * such ones, or inputs that a plan singles out would hardly occur. */
static void note_constant(const tocsin_plan *plan, const tocsin_plan_op *op,
                          tocsin_input_bounds *bounds)
{
    const tocsin_attribute *value = NULL;
    if (op->code == TOCSIN_OPERATOR_FULL || op->code == TOCSIN_OPERATOR_ADD_SCALAR)
        value = tocsin_plan_attribute(plan, op->attributes, "value");
    if (!value || bounds->constant_count == TOCSIN_COUNT_OF(bounds->constants))
        return;
    double real = value->kind == TOCSIN_ATTRIBUTE_REAL ? value->real
                  : value->kind == TOCSIN_ATTRIBUTE_INTEGERS && value->count == 1
                      ? (double)value->integers[0]
                      : 0.5;
    if (!(fabs(real) < 0x1p40) || real != floor(real))
        return;
    int64_t constant =
        op->code == TOCSIN_OPERATOR_FULL ? (int64_t)real : -(int64_t)real; /* x + value is 0 */
    for (uint32_t k = 0; k < bounds->constant_count; ++k)
        if (bounds->constants[k] == constant)
            return;
    bounds->constants[bounds->constant_count++] = constant;
}

/* An integer input: below its bound when it is an index, else perhaps a constant or next to it. */
static int64_t integer_input(const tocsin_input_bounds *bounds, uint64_t random, uint64_t bound,
                             bool is_index)
{
    if (random >> 63 && bounds->constant_count > 0) {
        int64_t constant = bounds->constants[(random >> 40) % bounds->constant_count] +
                           (int64_t)(random >> 32 & 3) % 3 - 1;
        if (!is_index || (constant >= 0 && (uint64_t)constant < bound))
            return constant;
    }
    return (int64_t)(random % bound);
}

tocsin_status tocsin_input_bounds_find(const tocsin_plan *logical, tocsin_input_bounds *bounds,
                                       tocsin_error *error)
{
    const tocsin_plan_role *role = logical->roles.items;
    uint64_t *of = tocsin_zalloc(role->value_count, sizeof *of);
    if (!of)
        return tocsin_error_memory(error);
    bounds->logical = logical;
    bounds->default_bound = 2;
    bounds->constant_count = 0;
    for (uint32_t s = role->segment_count; s-- > 0;) {
        const tocsin_plan_segment *segment = &logical->segments.items[role->first_segment + s];
        for (uint32_t k = segment->op_count; k-- > 0;) {
            bound_operands(logical, role, &logical->ops.items[segment->first_op + k], of);
            note_constant(logical, &logical->ops.items[segment->first_op + k], bounds);
        }
    }
    for (uint32_t v = 0; v < role->value_count; ++v) {
        const tocsin_plan_value *value = &logical->values.items[role->first_value + v];
        for (uint8_t d = 0; d < value->ndim; ++d)
            if ((uint64_t)tocsin_plan_shape(logical, value)[d] > bounds->default_bound)
                bounds->default_bound = (uint64_t)tocsin_plan_shape(logical, value)[d];
    }
    for (uint32_t i = 0; i < role->input_count; ++i) {
        const tocsin_plan_input *input = &logical->inputs.items[role->first_input + i];
        uint64_t *bound = tocsin_map_at(&bounds->bound, input->name);
        if (!bound) {
            tocsin_free(of);
            return tocsin_error_memory(error);
        }
        lower(bound, of[input->value]);
    }
    tocsin_free(of);
    return TOCSIN_OK;
}

/* `*is_index`: no other integer can be. */
static uint64_t bound_of(const tocsin_input_bounds *bounds, const char *name, size_t bytes,
                         uint8_t dtype, bool *is_index)
{
    uint32_t id = tocsin_intern_find(&bounds->logical->strings, name, bytes);
    const uint64_t *bound = id ? tocsin_map_find(&bounds->bound, id) : NULL;
    *is_index = true;
    if (dtype == TOCSIN_DTYPE_BOOL)
        return 2;
    if (bound && *bound)
        return *bound;
    *is_index = false;
    bool is_integer = dtype >= TOCSIN_DTYPE_UINT8 && dtype <= TOCSIN_DTYPE_UINT64;
    return is_integer ? bounds->default_bound : 0;
}

/* The slice of a logical input: each element is a function of the name and the logical index. */
static tocsin_status fill_input(const tocsin_world *world, const tocsin_world_rank *rank,
                                const tocsin_plan_input *input, int64_t microbatch,
                                const tocsin_input_bounds *bounds)
{
    const tocsin_plan *plan = world->plan;
    size_t bytes;
    const char *name = tocsin_intern_text(&plan->strings, input->name, &bytes);
    tocsin_array *array = tocsin_world_value(world, rank, input->value, microbatch);
    bool is_index;
    const uint64_t bound =
        bound_of(bounds, name, bytes,
                 plan->values.items[rank->role->first_value + input->value].dtype, &is_index);
    const uint64_t key = tocsin_oracle_begin(&world->kernel->field, tocsin_hash64(name, bytes, 1));
    tocsin_element *data;
    assert(array);
    if (array->data)
        return TOCSIN_OK;
    TOCSIN_TRY(tocsin_kernel_spend(world->kernel, (double)array->count));
    TOCSIN_TRY(tocsin_array_new(world->kernel, array, NULL, 0, &data));
    array->degree = 1;
    int64_t index[TOCSIN_PLAN_NDIM_MAX], start[TOCSIN_PLAN_NDIM_MAX];
    for (uint8_t d = 0; d < array->ndim; ++d)
        index[d] = start[d] = tocsin_affine_at(&plan->starts.items[input->first_start + d],
                                               rank->replica, microbatch);
    for (int64_t k = 0; k < array->count; ++k) {
        uint64_t state = key;
        for (uint8_t d = 0; d < array->ndim; ++d)
            state = tocsin_oracle_absorb(state, (uint64_t)index[d]);
        data[k] = bound ? tocsin_element_of_integer(
                              integer_input(bounds, tocsin_mix64(state), bound, is_index))
                        : tocsin_oracle_value(state);
        for (uint8_t d = array->ndim; d-- > 0;) {
            if (++index[d] < start[d] + array->shape[d])
                break;
            index[d] = start[d];
        }
    }
    return TOCSIN_OK;
}

static tocsin_status fill_inputs(const tocsin_world *world, const tocsin_world_rank *rank,
                                 const tocsin_input_bounds *bounds)
{
    const tocsin_plan *plan = world->plan;
    for (uint32_t i = 0; i < rank->role->input_count; ++i) {
        const tocsin_plan_input *input = &plan->inputs.items[rank->role->first_input + i];
        uint32_t count = rank->single[input->value] ? 1 : plan->microbatches;
        for (uint32_t m = 0; m < count; ++m)
            TOCSIN_TRY(fill_input(world, rank, input, m, bounds));
    }
    return TOCSIN_OK;
}

/* ---- ranks -------------------------------------------------------------------------------------
 */

tocsin_array *tocsin_world_value(const tocsin_world *world, const tocsin_world_rank *rank,
                                 uint32_t value, int64_t microbatch)
{
    uint32_t microbatches = world->plan->microbatches;
    assert(value < rank->role->value_count && microbatch < (int64_t)microbatches);
    size_t first = (size_t)value * microbatches;
    if (rank->single[value] || microbatches == 1)
        return &rank->values[first];
    return microbatch < 0 ? NULL : &rank->values[first + (size_t)microbatch];
}

/* A value is single when it is persistent, or made outside of micro-batches. */
static bool *find_single(const tocsin_plan *plan, const tocsin_plan_role *role, tocsin_arena *arena)
{
    bool *single = TOCSIN_ARENA_ARRAY(arena, bool, role->value_count);
    if (!single)
        return NULL;
    for (uint32_t v = 0; v < role->value_count; ++v)
        single[v] = true;
    for (uint32_t t = 0; t < role->turn_count; ++t) {
        const tocsin_plan_turn *turn = &plan->turns.items[role->first_turn + t];
        const tocsin_plan_segment *segment =
            &plan->segments.items[role->first_segment + turn->segment];
        for (uint32_t k = 0; turn->microbatch >= 0 && k < segment->op_count; ++k) {
            const tocsin_plan_op *op = &plan->ops.items[segment->first_op + k];
            const uint32_t *outputs = plan->operands.items + op->first_operand + op->input_count;
            for (uint32_t o = 0; o < op->output_count; ++o)
                single[outputs[o]] = false;
        }
    }
    for (uint32_t v = 0; v < role->value_count; ++v) {
        const tocsin_plan_value *value = &plan->values.items[role->first_value + v];
        single[v] = (single[v] && !value->per_microbatch) || value->persistent;
    }
    return single;
}

static tocsin_status begin_rank(tocsin_world *world, const tocsin_plan_role *role, uint32_t replica)
{
    const tocsin_plan *plan = world->plan;
    tocsin_kernel *kernel = world->kernel;
    uint32_t number = tocsin_plan_rank(plan, role->device, replica);
    uint64_t count = (uint64_t)role->value_count * plan->microbatches;
    assert(number < world->rank_count);
    tocsin_world_rank *rank = &world->ranks[number];
    if (count > kernel->elements_limit - kernel->elements)
        return tocsin_error_set(kernel->error, TOCSIN_E_LIMIT, "the plan has too many values");
    kernel->elements += count;
    *rank = (tocsin_world_rank){.role = role, .device = role->device, .replica = replica};
    rank->single = find_single(plan, role, &kernel->arena);
    rank->values = TOCSIN_ARENA_ARRAY(&kernel->arena, tocsin_array, count);
    if (!rank->single || !rank->values)
        return tocsin_error_memory(kernel->error);
    for (uint32_t v = 0; v < role->value_count; ++v) {
        const tocsin_plan_value *value = &plan->values.items[role->first_value + v];
        tocsin_array array = {
            .shape = tocsin_plan_shape(plan, value), .ndim = value->ndim, .count = 1};
        for (uint8_t d = 0; d < value->ndim; ++d)
            if (__builtin_mul_overflow(array.count, array.shape[d], &array.count) ||
                array.count < 0)
                return tocsin_error_set(kernel->error, TOCSIN_E_LIMIT, "a value is too large");
        for (uint32_t m = 0; m < plan->microbatches; ++m)
            rank->values[(size_t)v * plan->microbatches + m] = array;
    }
    return TOCSIN_OK;
}

static const tocsin_plan_op *current_op(const tocsin_world *world, tocsin_world_rank *rank,
                                        int64_t *microbatch)
{
    const tocsin_plan *plan = world->plan;
    for (; rank->role && rank->turn < rank->role->turn_count; ++rank->turn, rank->op = 0) {
        const tocsin_plan_turn *turn = &plan->turns.items[rank->role->first_turn + rank->turn];
        const tocsin_plan_segment *segment =
            &plan->segments.items[rank->role->first_segment + turn->segment];
        *microbatch = turn->microbatch;
        if (rank->op < segment->op_count)
            return &plan->ops.items[segment->first_op + rank->op];
    }
    return NULL;
}

/* ---- operators on one rank ----------------------------------------------------------------------
 */

/* Operand i as an array; one without data when the micro-batch does not see it. */
static tocsin_array operand_of(const tocsin_world *world, const tocsin_world_rank *rank,
                               const tocsin_plan_op *op, uint32_t i, int64_t microbatch)
{
    uint32_t value = world->plan->operands.items[op->first_operand + i];
    tocsin_array *array = tocsin_world_value(world, rank, value, microbatch);
    if (array)
        return *array;
    tocsin_array none = rank->values[(size_t)value * world->plan->microbatches];
    return (tocsin_array){.shape = none.shape, .ndim = none.ndim, .count = none.count};
}

/* The same without data: what an operator writes. */
static tocsin_array empty_output(const tocsin_world *world, const tocsin_world_rank *rank,
                                 const tocsin_plan_op *op, uint32_t o, int64_t microbatch)
{
    tocsin_array array = operand_of(world, rank, op, op->input_count + o, microbatch);
    return (tocsin_array){.shape = array.shape, .ndim = array.ndim, .count = array.count};
}

static void store(const tocsin_world *world, const tocsin_world_rank *rank,
                  const tocsin_plan_op *op, uint32_t o, int64_t microbatch,
                  const tocsin_array *array)
{
    uint32_t value = world->plan->operands.items[op->first_operand + op->input_count + o];
    tocsin_array *to = tocsin_world_value(world, rank, value, microbatch);
    assert(array->data);
    if (to) /* else a value of micro-batches, made outside of them: nobody sees it */
        *to = *array;
}

/* output += input; the first one is the output. */
static tocsin_status accumulate(const tocsin_world *world, const tocsin_world_rank *rank,
                                const tocsin_plan_op *op, int64_t microbatch)
{
    tocsin_array terms[2] = {operand_of(world, rank, op, 1, microbatch),
                             operand_of(world, rank, op, 0, microbatch)};
    tocsin_array sum = empty_output(world, rank, op, 0, microbatch);
    bool first = !terms[0].data;
    if (!terms[1].data)
        TOCSIN_TRY(tocsin_array_undefine(world->kernel, &sum, "accumulate of what nothing wrote"));
    else
        TOCSIN_TRY(tocsin_array_combine(world->kernel, terms + first, first ? 1 : 2, "sum", &sum));
    store(world, rank, op, 0, microbatch, &sum);
    return TOCSIN_OK;
}

static tocsin_status run_locally(const tocsin_world *world, const tocsin_world_rank *rank,
                                 const tocsin_plan_op *op, int64_t microbatch)
{
    if (op->code == TOCSIN_OPERATOR_ACCUMULATE && op->input_count == 1 && op->output_count == 1)
        return accumulate(world, rank, op, microbatch);
    tocsin_array *arrays =
        tocsin_zalloc((size_t)op->input_count + op->output_count + 1, sizeof *arrays);
    if (!arrays)
        return tocsin_error_memory(world->kernel->error);
    tocsin_array *outputs = arrays + op->input_count;
    for (uint32_t i = 0; i < op->input_count; ++i)
        arrays[i] = operand_of(world, rank, op, i, microbatch);
    for (uint32_t o = 0; o < op->output_count; ++o)
        outputs[o] = empty_output(world, rank, op, o, microbatch);
    if (op->code == TOCSIN_OPERATOR_CAST) {
        const uint32_t *operands = &world->plan->operands.items[op->first_operand];
        const tocsin_plan_value *values = &world->plan->values.items[rank->role->first_value];
        world->kernel->cast = (uint8_t)tocsin_cast_kind_of(values[operands[0]].dtype,
                                                           values[operands[op->input_count]].dtype);
    }
    tocsin_status status = tocsin_kernel_run(world->kernel, op, arrays, outputs);
    for (uint32_t o = 0; status == TOCSIN_OK && o < op->output_count; ++o)
        store(world, rank, op, o, microbatch, &outputs[o]);
    tocsin_free(arrays);
    return status;
}

/* ---- communication ------------------------------------------------------------------------------
 */

static void get_stuck(tocsin_world *world, const tocsin_world_rank *rank, const tocsin_plan_op *op,
                      const char *why)
{
    if (!world->stuck[0])
        snprintf(world->stuck, sizeof world->stuck, "rank %u at %s: %s",
                 tocsin_plan_rank(world->plan, rank->device, rank->replica),
                 tocsin_plan_text(world->plan, op->name), why);
}

/* The rank that a peer attribute names: that device in the caller's replica. */
static bool peer_rank(const tocsin_world *world, const tocsin_world_rank *rank,
                      const tocsin_plan_op *op, uint32_t *peer)
{
    int64_t device = tocsin_kernel_integer(world->kernel, op, "peer", -1);
    if (device < 0 || device >= tocsin_plan_devices(world->plan))
        return false;
    *peer = tocsin_plan_rank(world->plan, (uint32_t)device, rank->replica);
    return true;
}

/* Sends at once; receives what is there. `*moved`: it did. */
static tocsin_status send_or_receive(tocsin_world *world, const tocsin_world_rank *rank,
                                     const tocsin_plan_op *op, int64_t microbatch, bool *moved)
{
    uint32_t self = tocsin_plan_rank(world->plan, rank->device, rank->replica), peer;
    int64_t tag = tocsin_kernel_integer(world->kernel, op, "tag", 0);
    if (!peer_rank(world, rank, op, &peer)) {
        get_stuck(world, rank, op, "no such peer");
        return TOCSIN_OK;
    }
    if (op->code == TOCSIN_OPERATOR_SEND) {
        tocsin_message message = {.source = self,
                                  .destination = peer,
                                  .tag = tag,
                                  .array = operand_of(world, rank, op, 0, microbatch)};
        *moved = true;
        return TOCSIN_VEC_PUSH(&world->messages, message)
                   ? TOCSIN_OK
                   : tocsin_error_memory(world->kernel->error);
    }
    for (size_t m = 0; m < world->messages.count; ++m) {
        tocsin_message *message = &world->messages.items[m];
        if (message->taken || message->source != peer || message->destination != self ||
            message->tag != tag)
            continue;
        tocsin_array out = empty_output(world, rank, op, 0, microbatch);
        if (message->array.data && tocsin_array_same_shape(&message->array, &out))
            out = message->array;
        else
            TOCSIN_TRY(tocsin_array_undefine(world->kernel, &out,
                                             message->array.data ? "recv of another shape"
                                                                 : "send of what nothing wrote"));
        store(world, rank, op, 0, microbatch, &out);
        message->taken = *moved = true;
        return TOCSIN_OK;
    }
    return TOCSIN_OK;
}

/* The members of the op's group as ranks, in order; NULL and the status on failure. */
static uint32_t *members_of(const tocsin_world *world, const tocsin_world_rank *rank,
                            const tocsin_plan_op *op, uint32_t *count)
{
    const tocsin_plan *plan = world->plan;
    const tocsin_plan_group *group = &plan->groups.items[op->group];
    const tocsin_plan_member *members = plan->members.items + group->first_member;
    uint32_t replicas = tocsin_plan_replicas(plan);
    bool all = group->member_count > 0 && members[0].replica == TOCSIN_MEMBER_ALL;
    *count = all ? group->member_count * replicas : group->member_count;
    uint32_t *ranks = tocsin_zalloc(*count, sizeof *ranks);
    for (uint32_t i = 0; ranks && i < *count; ++i) {
        const tocsin_plan_member *member = &members[i % group->member_count];
        uint32_t replica = all                                     ? i / group->member_count
                           : member->replica == TOCSIN_MEMBER_SAME ? rank->replica
                                                                   : (uint32_t)member->replica;
        ranks[i] = tocsin_plan_rank(plan, member->device, replica);
    }
    return ranks;
}

/* all_to_all: block `self` of every member, joined. */
static tocsin_status exchange(tocsin_kernel *kernel, const tocsin_plan_op *op,
                              const tocsin_array *inputs, uint32_t count, uint32_t self,
                              tocsin_array *out)
{
    const size_t block_count = count;
    const tocsin_array *own = &inputs[self];
    uint32_t dim, join;
    tocsin_array *blocks = TOCSIN_ARENA_ARRAY(&kernel->arena, tocsin_array, block_count);
    int64_t *shape = TOCSIN_ARENA_ARRAY(&kernel->arena, int64_t, own->ndim);
    if (!blocks || !shape)
        return tocsin_error_memory(kernel->error);
    if (!tocsin_kernel_dim(kernel, op, "split_dim", 0, own->ndim, &dim) ||
        !tocsin_kernel_dim(kernel, op, "join_dim", 0, own->ndim, &join) ||
        own->shape[dim] % count != 0)
        return tocsin_array_undefine(kernel, out, "all_to_all of a dim that does not divide");
    memcpy(shape, own->shape, own->ndim * sizeof *shape);
    shape[dim] /= count;
    for (uint32_t i = 0; i < count; ++i) {
        if (!tocsin_array_same_shape(&inputs[i], own))
            return tocsin_array_undefine(kernel, out, "all_to_all of unlike shapes");
        blocks[i] = (tocsin_array){.shape = shape, .ndim = own->ndim, .count = own->count / count};
        TOCSIN_TRY(tocsin_array_slice(kernel, &inputs[i], dim, self * shape[dim], 1, &blocks[i]));
    }
    return tocsin_array_cat(kernel, blocks, count, join, out);
}

/* Member `self`'s result from the members' inputs. */
static tocsin_status collect(tocsin_kernel *kernel, const tocsin_plan_op *op,
                             const tocsin_array *inputs, uint32_t count, uint32_t self,
                             tocsin_array *out)
{
    uint32_t dim;
    switch (op->code) {
    case TOCSIN_OPERATOR_ALL_REDUCE:
        return tocsin_array_combine(kernel, inputs, count,
                                    tocsin_kernel_text(kernel, op, "op", "sum"), out);
    case TOCSIN_OPERATOR_ALL_GATHER:
        if (!tocsin_kernel_dim(kernel, op, "dim", 0, out->ndim, &dim))
            break;
        return tocsin_array_cat(kernel, inputs, count, dim, out);
    case TOCSIN_OPERATOR_REDUCE_SCATTER: {
        tocsin_array sum = {
            .shape = inputs[0].shape, .ndim = inputs[0].ndim, .count = inputs[0].count};
        if (!tocsin_kernel_dim(kernel, op, "dim", 0, sum.ndim, &dim) || out->ndim != sum.ndim ||
            sum.shape[dim] != out->shape[dim] * count)
            break;
        TOCSIN_TRY(tocsin_array_combine(kernel, inputs, count,
                                        tocsin_kernel_text(kernel, op, "op", "sum"), &sum));
        return tocsin_array_slice(kernel, &sum, dim, self * out->shape[dim], 1, out);
    }
    case TOCSIN_OPERATOR_ALL_TO_ALL:
        return exchange(kernel, op, inputs, count, self, out);
    default: { /* broadcast */
        int64_t root = tocsin_kernel_integer(kernel, op, "root", 0);
        if (root < 0 || root >= count || !tocsin_array_same_shape(&inputs[root], out))
            break;
        *out = inputs[root];
        return TOCSIN_OK;
    }
    }
    return tocsin_array_undefine(kernel, out, "%s of shapes that do not fit",
                                 tocsin_operators[op->code].name);
}

/* One member's output; undefined when an input that it needs is. */
static tocsin_status finish_member(const tocsin_world *world, const tocsin_world_rank *rank,
                                   const tocsin_plan_op *op, int64_t microbatch,
                                   const tocsin_array *inputs, uint32_t count, uint32_t self)
{
    if (op->output_count == 0)
        return TOCSIN_OK;
    tocsin_array out = empty_output(world, rank, op, 0, microbatch);
    int64_t root = op->code == TOCSIN_OPERATOR_BROADCAST
                       ? tocsin_kernel_integer(world->kernel, op, "root", 0)
                       : -1;
    bool written = true;
    for (uint32_t i = 0; i < count; ++i)
        written &= inputs[i].data != NULL || (root >= 0 && root != i);
    if (written)
        TOCSIN_TRY(collect(world->kernel, op, inputs, count, self, &out));
    else
        TOCSIN_TRY(tocsin_array_undefine(world->kernel, &out, "%s of what nothing wrote",
                                         tocsin_operators[op->code].name));
    store(world, rank, op, 0, microbatch, &out);
    return TOCSIN_OK;
}

/* All members are there: do it for all, and let them go on. */
static tocsin_status meet(tocsin_world *world, const tocsin_plan_op *op, const uint32_t *members,
                          uint32_t count)
{
    tocsin_array *inputs = tocsin_zalloc(count, sizeof *inputs);
    tocsin_status status = inputs ? TOCSIN_OK : tocsin_error_memory(world->kernel->error);
    int64_t microbatch;
    for (uint32_t i = 0; inputs && i < count; ++i) {
        tocsin_world_rank *member = &world->ranks[members[i]];
        const tocsin_plan_op *own = current_op(world, member, &microbatch);
        if (own->code != op->code)
            get_stuck(world, member, own, "the members call unlike collectives");
        if (own->input_count > 0)
            inputs[i] = operand_of(world, member, own, 0, microbatch);
    }
    for (uint32_t i = 0; i < count && status == TOCSIN_OK && !world->stuck[0]; ++i) {
        tocsin_world_rank *member = &world->ranks[members[i]];
        const tocsin_plan_op *own = current_op(world, member, &microbatch);
        status = finish_member(world, member, own, microbatch, inputs, count, i);
    }
    for (uint32_t i = 0; i < count; ++i)
        ++world->ranks[members[i]].op;
    tocsin_free(inputs);
    return status;
}

static tocsin_status try_to_meet(tocsin_world *world, tocsin_world_rank *rank,
                                 const tocsin_plan_op *op, bool *moved)
{
    if (op->group == TOCSIN_PLAN_NONE) {
        get_stuck(world, rank, op, "a collective without a group");
        return TOCSIN_OK;
    }
    uint32_t count;
    uint32_t *members = members_of(world, rank, op, &count);
    if (!members)
        return tocsin_error_memory(world->kernel->error);
    bool all_here = true, is_member = false;
    for (uint32_t i = 0; i < count; ++i) {
        int64_t microbatch;
        tocsin_world_rank *member = &world->ranks[members[i]];
        const tocsin_plan_op *own = current_op(world, member, &microbatch);
        is_member |= member == rank;
        all_here &= own && own->group == op->group &&
                    tocsin_operator_communicates((tocsin_operator_code)own->code);
        for (uint32_t k = 0; k < i; ++k)
            all_here &= members[k] != members[i];
    }
    tocsin_status status = TOCSIN_OK;
    if (!is_member) {
        get_stuck(world, rank, op, "the caller is not in the group");
    } else if (all_here) {
        status = meet(world, op, members, count);
        *moved = true;
    }
    tocsin_free(members);
    return status;
}

/* ---- the step -----------------------------------------------------------------------------------
 */

/* Go on until the rank waits or ends. */
static tocsin_status advance(tocsin_world *world, tocsin_world_rank *rank, bool *moved)
{
    for (;;) {
        int64_t microbatch;
        bool here = false;
        const tocsin_plan_op *op = current_op(world, rank, &microbatch);
        if (!op || world->stuck[0])
            return TOCSIN_OK;
        if (op->code == TOCSIN_OPERATOR_SEND || op->code == TOCSIN_OPERATOR_RECV) {
            TOCSIN_TRY(send_or_receive(world, rank, op, microbatch, &here));
            rank->op += here;
        } else if (tocsin_operator_communicates((tocsin_operator_code)op->code)) {
            TOCSIN_TRY(try_to_meet(world, rank, op, &here));
        } else {
            TOCSIN_TRY(run_locally(world, rank, op, microbatch));
            here = true;
            ++rank->op;
        }
        if (!here)
            return TOCSIN_OK;
        *moved = true;
    }
}

static tocsin_status begin(tocsin_world *world, const tocsin_input_bounds *bounds)
{
    const tocsin_plan *plan = world->plan;
    uint64_t count = (uint64_t)tocsin_plan_devices(plan) * tocsin_plan_replicas(plan);
    if (count > world->kernel->elements_limit)
        return tocsin_error_set(world->kernel->error, TOCSIN_E_LIMIT,
                                "the plan has too many ranks");
    world->rank_count = (uint32_t)count;
    world->ranks = tocsin_zalloc(count, sizeof *world->ranks);
    if (!world->ranks)
        return tocsin_error_memory(world->kernel->error);
    for (size_t r = 0; r < plan->roles.count; ++r) {
        const tocsin_plan_role *role = &plan->roles.items[r];
        for (uint32_t k = 0; k < role->replica_count; ++k)
            TOCSIN_TRY(begin_rank(world, role, role->first_replica + k));
    }
    for (uint32_t r = 0; r < world->rank_count; ++r)
        if (world->ranks[r].role)
            TOCSIN_TRY(fill_inputs(world, &world->ranks[r], bounds));
    return TOCSIN_OK;
}

tocsin_status tocsin_world_run(tocsin_world *world, const tocsin_plan *plan, tocsin_kernel *kernel,
                               const tocsin_input_bounds *bounds)
{
    world->plan = kernel->plan = plan;
    world->kernel = kernel;
    memset(kernel->signatures, 0, sizeof kernel->signatures);
    TOCSIN_TRY(begin(world, bounds));
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t r = 0; r < world->rank_count; ++r)
            TOCSIN_TRY(advance(world, &world->ranks[r], &moved));
    }
    for (uint32_t r = 0; r < world->rank_count; ++r) {
        int64_t microbatch;
        const tocsin_plan_op *op = current_op(world, &world->ranks[r], &microbatch);
        if (op)
            get_stuck(world, &world->ranks[r], op, "waits for ever");
    }
    return TOCSIN_OK;
}

void tocsin_world_free(tocsin_world *world)
{
    tocsin_free(world->ranks);
    TOCSIN_VEC_FREE(&world->messages);
    *world = (tocsin_world){0};
}
