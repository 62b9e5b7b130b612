/* plan/nnscaler_adapter.c - communication of an nnScaler plan: adapters and weight reducers.
 *
 * An adapter is a list of primitives; those that autograd sees are fused, and stand for one
 * collective in forward and another in backward direction. A primitive names the devices of its
 * group without an order that the runtime keeps: torch sorts a group's ranks, so shards are joined
 * and cut in ascending order of ranks. Under TOCSIN_PLAN_ORDER_METADATA they are joined and cut in
 * the order of the slices that the plan's tensors declare, which is what its author meant.
 * A weight reducer sums the gradients of weights over its devices in all replicas.
 * Cost: linear in operands and group members.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan/nnscaler.h"

/* What a primitive does in one direction. */
typedef enum action {
    ACTION_NONE,
    ACTION_COPY,
    ACTION_REDUCE,
    ACTION_GATHER,
    ACTION_SCATTER, /* reduce_scatter */
    ACTION_CHUNK,
    ACTION_EXCHANGE,      /* all_to_all: cut odim, join idim */
    ACTION_EXCHANGE_BACK, /* the other way round */
    ACTION_MOVE,
    ACTION_BROADCAST
} action;

static const struct primitive {
    const char *class;
    uint8_t forward, backward;
    bool fused; /* its tensors are those of the adapter */
} primitives[] = {
    {"IdentityPrim", ACTION_COPY, ACTION_COPY, false},
    {"AllReducePrim", ACTION_REDUCE, ACTION_REDUCE, false},
    {"AllGatherPrim", ACTION_GATHER, ACTION_GATHER, false},
    {"ReduceScatterPrim", ACTION_SCATTER, ACTION_SCATTER, false},
    {"AllToAllPrim", ACTION_EXCHANGE, ACTION_EXCHANGE, false},
    {"ChunkPrim", ACTION_CHUNK, ACTION_CHUNK, false},
    {"MovePrim", ACTION_MOVE, ACTION_MOVE, false},
    {"BroadcastPrim", ACTION_BROADCAST, ACTION_BROADCAST, false},
    {"AllReduceIdentityPrim", ACTION_REDUCE, ACTION_COPY, true},
    {"IdentityAllreducePrim", ACTION_COPY, ACTION_REDUCE, true},
    {"AllReduceAllReducePrim", ACTION_REDUCE, ACTION_REDUCE, true},
    {"AllGatherReduceScatterPrim", ACTION_GATHER, ACTION_SCATTER, true},
    {"ReduceScatterAllGatherPrim", ACTION_SCATTER, ACTION_GATHER, true},
    {"AllGatherSplitPrim", ACTION_GATHER, ACTION_CHUNK, true},
    {"SplitAllGatherPrim", ACTION_CHUNK, ACTION_GATHER, true},
    {"AllToAllAllToAllPrim", ACTION_EXCHANGE, ACTION_EXCHANGE_BACK, true},
};

/* A primitive at work. */
typedef struct context {
    tocsin_nn *nn;
    const tocsin_pickle_value *adapter, *prim, *arguments;
    uint64_t adapter_id;
    uint32_t index; /* of the primitive in the adapter */
    const struct primitive *kind;
    bool forward;
    bool takes_shard;                       /* out of the collective, rather than put it in */
    const tocsin_nn_tensor *input, *output; /* NULL: none */
    tocsin_nn_draft like;
} context;

/* ---- groups ---------------------------------------------------------------------------------- */

/* Runs of consecutive devices are written as 0-7. */
static void write_group_name(const uint32_t *devices, uint32_t count, bool all, tocsin_string *name)
{
    tocsin_string_append_text(name, all ? "all:" : "devices:");
    for (uint32_t i = 0; i < count;) {
        uint32_t last = i;
        while (last + 1 < count && devices[last + 1] == devices[last] + 1)
            ++last;
        tocsin_string_printf(name, i ? ".%u" : "%u", devices[i]);
        if (last > i)
            tocsin_string_printf(name, "-%u", devices[last]);
        i = last + 1;
    }
}

/* The group of these devices in this order, in the caller's replica or in all of them. */
static tocsin_status find_group(tocsin_nn *nn, const uint32_t *devices, uint32_t count, bool all,
                                uint32_t *group)
{
    tocsin_string name = {0};
    write_group_name(devices, count, all, &name);
    tocsin_status status = tocsin_string_check(&name, nn->error);
    uint32_t string = status == TOCSIN_OK ? tocsin_plan_string(nn->plan, name.text, name.bytes) : 0;
    if (status == TOCSIN_OK && !string)
        status = tocsin_plan_string_error(nn->plan, nn->error);
    tocsin_string_free(&name);
    TOCSIN_TRY(status);
    uint64_t *known = tocsin_map_at(&nn->groups, string);
    if (!known)
        return tocsin_error_memory(nn->error);
    if (!*known) {
        tocsin_plan_member *members =
            TOCSIN_ARENA_ARRAY(&nn->arena, tocsin_plan_member, (size_t)count);
        if (!members)
            return tocsin_error_memory(nn->error);
        for (uint32_t i = 0; i < count; ++i)
            members[i] =
                (tocsin_plan_member){devices[i], all ? TOCSIN_MEMBER_ALL : TOCSIN_MEMBER_SAME};
        TOCSIN_TRY(tocsin_plan_add_group(nn->plan, tocsin_plan_text(nn->plan, string), members,
                                         count, group, nn->error));
        *known = (uint64_t)*group + 1;
    }
    *group = (uint32_t)(*known - 1);
    return TOCSIN_OK;
}

static int compare_devices(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The devices of a list, ascending, in the arena. */
static tocsin_status read_devices(tocsin_nn *nn, const tocsin_pickle_value *list,
                                  uint32_t **devices, uint32_t *count)
{
    *count = tocsin_pickle_count(list);
    *devices = TOCSIN_ARENA_ARRAY(&nn->arena, uint32_t, (size_t)*count);
    if (!*devices)
        return tocsin_error_memory(nn->error);
    for (uint32_t i = 0; i < *count; ++i) {
        int64_t device;
        if (!tocsin_nn_integer(tocsin_pickle_item(list, i), &device) || device < 0 ||
            device >= nn->devices)
            return tocsin_nn_fail(nn, TOCSIN_E_FORMAT,
                                  "a group has a member that is none of the %u devices",
                                  nn->devices);
        (*devices)[i] = (uint32_t)device;
    }
    if (*count)
        qsort(*devices, *count, sizeof **devices, compare_devices);
    return TOCSIN_OK;
}

static uint32_t position_of(const uint32_t *devices, uint32_t count, uint32_t device)
{
    uint32_t i = 0;
    while (i < count && devices[i] != device)
        ++i;
    return i;
}

/* ---- order of shards ------------------------------------------------------------------------- */

static bool is_forward(const tocsin_pickle_value *adapter)
{
    return tocsin_nn_true(adapter, "_forward");
}

static const tocsin_pickle_value *first_of(const tocsin_pickle_value *owner, const char *key)
{
    const tocsin_pickle_value *value = tocsin_pickle_item(tocsin_pickle_member(owner, key), 0);
    return tocsin_nn_is_tensor(value) ? value : NULL;
}

/* Where the shard that `device` puts into this collective (or, of a reduce_scatter, takes out of
 * it) begins along `dim`, by its metadata. */
static tocsin_status shard_start(context *c, uint32_t device, int64_t dim, int64_t *start)
{
    uint64_t key = (uint64_t)device << 40 | c->adapter_id;
    const uint64_t *found = tocsin_map_find(&c->nn->adapters, key);
    const tocsin_pickle_value *adapter =
        found ? (const tocsin_pickle_value *)(uintptr_t)*found : NULL;
    const tocsin_pickle_value *prim =
        tocsin_pickle_item(tocsin_pickle_member(adapter, "_prims"), c->index);
    const tocsin_pickle_value *shard =
        first_of(c->kind->fused ? adapter : prim, c->takes_shard ? "_outputs" : "_inputs");
    const tocsin_nn_tensor *tensor;
    *start = 0;
    if (!shard)
        return TOCSIN_OK; /* it takes no part: the verifier will say so */
    TOCSIN_TRY(tocsin_nn_read_tensor(c->nn, shard, &tensor));
    *start = dim >= 0 && dim < tensor->ndim ? tensor->start[dim] : 0;
    return TOCSIN_OK;
}

/* Sort by the shards' starts; equal ones keep their order (insertion; groups are small). */
static tocsin_status order_by_metadata(context *c, uint32_t *devices, uint32_t count, int64_t dim)
{
    int64_t *starts = TOCSIN_ARENA_ARRAY(&c->nn->arena, int64_t, (size_t)count);
    if (!starts)
        return tocsin_error_memory(c->nn->error);
    for (uint32_t i = 0; i < count; ++i)
        TOCSIN_TRY(shard_start(c, devices[i], dim, &starts[i]));
    for (uint32_t i = 1; i < count; ++i) {
        uint32_t device = devices[i], at = i;
        int64_t start = starts[i];
        for (; at > 0 && starts[at - 1] > start; --at) {
            starts[at] = starts[at - 1];
            devices[at] = devices[at - 1];
        }
        starts[at] = start;
        devices[at] = device;
    }
    return TOCSIN_OK;
}

/* ---- primitives ------------------------------------------------------------------------------ */

static tocsin_status fail_prim(context *c, const char *why)
{
    return tocsin_nn_fail(c->nn, TOCSIN_E_FORMAT, "%s of adapter %llu %s",
                          tocsin_pickle_class(c->prim), (unsigned long long)c->adapter_id, why);
}

static tocsin_status get_integer(context *c, const char *key, int64_t *value)
{
    if (!tocsin_nn_integer(tocsin_pickle_member(c->arguments, key), value)) {
        char why[64];
        snprintf(why, sizeof why, "has no argument %s", key);
        return fail_prim(c, why);
    }
    return TOCSIN_OK;
}

static void start(context *c, tocsin_nn_draft *draft, tocsin_operator_code code)
{
    tocsin_nn_draft_init(draft, code, &c->like);
    draft->op.label = c->like.op.label;
}

static tocsin_status need_both(context *c)
{
    return c->input && c->output ? TOCSIN_OK : fail_prim(c, "lacks a tensor");
}

/* The second writer of a gradient adds to it, but not where a collective works in place. */
static tocsin_nn_mode mode_of(const context *c)
{
    return c->input->id != c->output->id ? TOCSIN_NN_MERGE : TOCSIN_NN_REPLACE;
}

static tocsin_status emit_from_to(context *c, tocsin_nn_draft *draft, tocsin_nn_mode mode)
{
    tocsin_nn_result result;
    uint32_t value;
    TOCSIN_TRY(tocsin_nn_read(c->nn, c->input, &value));
    tocsin_nn_input(draft, value);
    TOCSIN_TRY(tocsin_nn_begin_result(c->nn, c->output, mode, &result));
    tocsin_nn_output(draft, result.value);
    TOCSIN_TRY(tocsin_nn_emit(c->nn, draft));
    return tocsin_nn_end_result(c->nn, &result, draft);
}

static tocsin_status do_copy(context *c)
{
    tocsin_nn_draft draft;
    if (!c->input || !c->output || c->input->id == c->output->id)
        return TOCSIN_OK;
    start(c, &draft, TOCSIN_OPERATOR_IDENTITY);
    return emit_from_to(c, &draft, TOCSIN_NN_MERGE);
}

/* A collective of the group. `dim`: along which shards are joined or cut, -1 if none are. */
static tocsin_status do_collective(context *c, tocsin_nn_draft *draft, int64_t dim)
{
    uint32_t *devices, count;
    TOCSIN_TRY(need_both(c));
    TOCSIN_TRY(read_devices(c->nn, tocsin_pickle_member(c->arguments, "ranks"), &devices, &count));
    if (dim >= 0 && c->nn->order == TOCSIN_PLAN_ORDER_METADATA)
        TOCSIN_TRY(order_by_metadata(c, devices, count, dim));
    TOCSIN_TRY(find_group(c->nn, devices, count, false, &draft->op.group));
    return emit_from_to(c, draft, mode_of(c));
}

static tocsin_status do_reduce(context *c)
{
    tocsin_nn_draft draft;
    start(c, &draft, TOCSIN_OPERATOR_ALL_REDUCE);
    tocsin_nn_set_text(c->nn, &draft, "op", "sum");
    return do_collective(c, &draft, -1);
}

static tocsin_status do_gather(context *c)
{
    tocsin_nn_draft draft;
    int64_t dim;
    TOCSIN_TRY(get_integer(c, "dim", &dim));
    start(c, &draft, TOCSIN_OPERATOR_ALL_GATHER);
    tocsin_nn_set_integer(c->nn, &draft, "dim", dim);
    return do_collective(c, &draft, dim);
}

static tocsin_status do_scatter(context *c)
{
    tocsin_nn_draft draft;
    int64_t dim;
    TOCSIN_TRY(get_integer(c, "dim", &dim));
    start(c, &draft, TOCSIN_OPERATOR_REDUCE_SCATTER);
    tocsin_nn_set_integer(c->nn, &draft, "dim", dim);
    tocsin_nn_set_text(c->nn, &draft, "op", "sum");
    c->takes_shard = true;
    return do_collective(c, &draft, dim);
}

static tocsin_status do_exchange(context *c, const char *join_key, const char *split_key)
{
    tocsin_nn_draft draft;
    int64_t join, split;
    TOCSIN_TRY(get_integer(c, join_key, &join));
    TOCSIN_TRY(get_integer(c, split_key, &split));
    start(c, &draft, TOCSIN_OPERATOR_ALL_TO_ALL);
    tocsin_nn_set_integer(c->nn, &draft, "split_dim", split);
    tocsin_nn_set_integer(c->nn, &draft, "join_dim", join);
    return do_collective(c, &draft, join);
}

/* The device's own of `count` equal parts: by its place in the group, or by metadata. */
static tocsin_status do_chunk(context *c)
{
    tocsin_nn_draft draft;
    uint32_t *devices, count;
    int64_t dim;
    TOCSIN_TRY(need_both(c));
    TOCSIN_TRY(get_integer(c, "dim", &dim));
    TOCSIN_TRY(read_devices(c->nn, tocsin_pickle_member(c->arguments, "ranks"), &devices, &count));
    int64_t part = position_of(devices, count, c->nn->role.device);
    if (dim < 0 || dim >= c->input->ndim || part == count)
        return fail_prim(c, "cuts a dim that is not there, or is of another device");
    if (c->nn->order == TOCSIN_PLAN_ORDER_METADATA && dim < c->output->ndim)
        part = (c->output->start[dim] - c->input->start[dim]) / c->output->size[dim];
    int64_t size = c->input->size[dim] / count;
    start(c, &draft, TOCSIN_OPERATOR_SLICE);
    tocsin_nn_set_integer(c->nn, &draft, "dim", dim);
    tocsin_nn_set_integer(c->nn, &draft, "start", part * size);
    tocsin_nn_set_integer(c->nn, &draft, "end", (part + 1) * size);
    /* Outside of autograd a chunk may be cut a second time, for a second receiver. */
    bool by_autograd = tocsin_nn_true(c->adapter, "_differentiable");
    return emit_from_to(c, &draft, by_autograd ? mode_of(c) : TOCSIN_NN_REPLACE);
}

static tocsin_status emit_received(context *c, tocsin_nn_draft *draft,
                                   const tocsin_nn_tensor *tensor, tocsin_nn_mode mode)
{
    tocsin_nn_result result;
    TOCSIN_TRY(tocsin_nn_begin_result(c->nn, tensor, mode, &result));
    tocsin_nn_output(draft, result.value);
    TOCSIN_TRY(tocsin_nn_emit(c->nn, draft));
    return tocsin_nn_end_result(c->nn, &result, draft);
}

/* Both sides name the tensor that they have; the adapter's number pairs them. */
static tocsin_status do_move(context *c)
{
    tocsin_nn_draft draft;
    int64_t source, target;
    uint32_t value;
    const tocsin_nn_tensor *tensor = c->input ? c->input : c->output;
    TOCSIN_TRY(get_integer(c, "src", &source));
    TOCSIN_TRY(get_integer(c, "dst", &target));
    if (!tensor)
        return fail_prim(c, "lacks a tensor");
    if (source == target)
        return do_copy(c);
    bool sends = source == c->nn->role.device;
    start(c, &draft, sends ? TOCSIN_OPERATOR_SEND : TOCSIN_OPERATOR_RECV);
    tocsin_nn_set_integer(c->nn, &draft, "peer", sends ? target : source);
    tocsin_nn_set_integer(c->nn, &draft, "tag", (int64_t)c->adapter_id);
    if (!sends)
        return emit_received(c, &draft, tensor, TOCSIN_NN_MERGE);
    TOCSIN_TRY(tocsin_nn_read(c->nn, tensor, &value));
    tocsin_nn_input(&draft, value);
    return tocsin_nn_emit(c->nn, &draft);
}

static tocsin_status do_broadcast(context *c)
{
    tocsin_nn_draft draft;
    uint32_t *devices, count, value;
    int64_t source;
    const tocsin_nn_tensor *tensor = c->output ? c->output : c->input;
    TOCSIN_TRY(get_integer(c, "src", &source));
    TOCSIN_TRY(read_devices(c->nn, tocsin_pickle_member(c->arguments, "ranks"), &devices, &count));
    if (!tensor || source < 0 || source >= c->nn->devices)
        return fail_prim(c, "lacks a tensor or a source");
    bool is_root = source == c->nn->role.device;
    uint32_t root = position_of(devices, count, (uint32_t)source);
    start(c, &draft, TOCSIN_OPERATOR_BROADCAST);
    tocsin_nn_set_integer(c->nn, &draft, "root", root);
    TOCSIN_TRY(find_group(c->nn, devices, count, false, &draft.op.group));
    if (is_root) {
        TOCSIN_TRY(need_both(c));
        TOCSIN_TRY(tocsin_nn_read(c->nn, c->input, &value));
        tocsin_nn_input(&draft, value);
    }
    return emit_received(c, &draft, tensor, is_root ? TOCSIN_NN_REPLACE : TOCSIN_NN_MERGE);
}

static tocsin_status do_action(context *c)
{
    switch ((action)(c->forward ? c->kind->forward : c->kind->backward)) {
    case ACTION_COPY:
        return do_copy(c);
    case ACTION_REDUCE:
        return do_reduce(c);
    case ACTION_GATHER:
        return do_gather(c);
    case ACTION_SCATTER:
        return do_scatter(c);
    case ACTION_CHUNK:
        return do_chunk(c);
    case ACTION_EXCHANGE:
        return do_exchange(c, "idim", "odim");
    case ACTION_EXCHANGE_BACK:
        return do_exchange(c, "odim", "idim");
    case ACTION_MOVE:
        return do_move(c);
    case ACTION_BROADCAST:
        return do_broadcast(c);
    case ACTION_NONE:
        break;
    }
    assert(false && "an action");
    return TOCSIN_OK;
}

/* ---- adapters -------------------------------------------------------------------------------- */

static const struct primitive *find_primitive(const char *class)
{
    for (size_t i = 0; i < TOCSIN_COUNT_OF(primitives); ++i) {
        if (strcmp(primitives[i].class, class) == 0)
            return &primitives[i];
    }
    return NULL;
}

static tocsin_status set_label(context *c, const char *class)
{
    char label[128];
    int bytes =
        snprintf(label, sizeof label, "%.64s%llu", class, (unsigned long long)c->adapter_id);
    assert(bytes > 0 && (size_t)bytes < sizeof label);
    tocsin_nn_draft_init(&c->like, TOCSIN_OPERATOR_CALL, NULL);
    c->like.op.phase = c->forward ? TOCSIN_PHASE_FORWARD : TOCSIN_PHASE_BACKWARD;
    c->like.op.label = tocsin_plan_string(c->nn->plan, label, (size_t)bytes);
    return c->like.op.label ? TOCSIN_OK : tocsin_plan_string_error(c->nn->plan, c->nn->error);
}

static tocsin_status read_optional(tocsin_nn *nn, const tocsin_pickle_value *value,
                                   const tocsin_nn_tensor **tensor)
{
    *tensor = NULL;
    return value ? tocsin_nn_read_tensor(nn, value, tensor) : TOCSIN_OK;
}

static tocsin_status do_primitive(context *c)
{
    const char *class = tocsin_pickle_class(c->prim);
    c->kind = find_primitive(class);
    if (!c->kind)
        return tocsin_nn_fail(c->nn, TOCSIN_E_UNSUPPORTED, "the adapter primitive %s is not known",
                              class);
    c->arguments = tocsin_nn_arguments(c->prim);
    const tocsin_pickle_value *owner = c->kind->fused ? c->adapter : c->prim;
    TOCSIN_TRY(read_optional(c->nn, first_of(owner, "_inputs"), &c->input));
    TOCSIN_TRY(read_optional(c->nn, first_of(owner, "_outputs"), &c->output));
    TOCSIN_TRY(set_label(c, class));
    c->takes_shard = false;
    return do_action(c);
}

tocsin_status tocsin_nn_adapter(tocsin_nn *nn, const tocsin_pickle_value *cell)
{
    context c = {.nn = nn, .adapter = cell, .forward = is_forward(cell)};
    const tocsin_pickle_value *prims = tocsin_pickle_member(cell, "_prims");
    TOCSIN_TRY(tocsin_nn_id(nn, cell, &c.adapter_id));
    for (c.index = 0; c.index < tocsin_pickle_count(prims); ++c.index) {
        c.prim = tocsin_pickle_item(prims, c.index);
        TOCSIN_TRY(do_primitive(&c));
    }
    return TOCSIN_OK;
}

/* ---- weight reducers ------------------------------------------------------------------------- */

/* Each device has its own number for its gradient of the weight: that of its own use of it. */
static tocsin_status reduce_weight(context *c, const tocsin_nn_tensor *weight, uint32_t group)
{
    const uint64_t *own = tocsin_map_find(&c->nn->role.wanted, weight->id);
    if (own)
        weight = (const tocsin_nn_tensor *)(uintptr_t)*own;
    tocsin_nn_draft draft;
    const tocsin_nn_tensor *gradient;
    uint32_t local, reduced;
    TOCSIN_TRY(tocsin_nn_read_tensor(c->nn, weight->gradient, &gradient));
    TOCSIN_TRY(tocsin_nn_read(c->nn, gradient, &local));
    TOCSIN_TRY(tocsin_nn_auxiliary(c->nn, gradient, gradient->size, gradient->ndim, &reduced));
    start(c, &draft, TOCSIN_OPERATOR_ALL_REDUCE);
    draft.op.group = group;
    draft.op.fqn = tocsin_plan_string(c->nn->plan, weight->name, strlen(weight->name));
    if (!draft.op.fqn)
        return tocsin_plan_string_error(c->nn->plan, c->nn->error);
    tocsin_nn_set_text(c->nn, &draft, "op", "sum");
    TOCSIN_TRY(tocsin_nn_emit_simple(c->nn, &draft, local, reduced));
    if (!tocsin_map_put(&c->nn->role.reduced, gradient->id, (uint64_t)reduced + 1))
        return tocsin_error_memory(c->nn->error);
    return TOCSIN_OK;
}

/* A reducer that this device has no part in changes nothing. */
tocsin_status tocsin_nn_reducer(tocsin_nn *nn, const tocsin_pickle_value *cell)
{
    context c = {.nn = nn, .adapter = cell};
    uint32_t *devices, count, group;
    const tocsin_pickle_value *weights = tocsin_pickle_member(cell, "_inputs");
    TOCSIN_TRY(tocsin_nn_id(nn, cell, &c.adapter_id));
    TOCSIN_TRY(read_devices(nn, tocsin_pickle_member(cell, "_device"), &devices, &count));
    if (position_of(devices, count, nn->role.device) == count)
        return TOCSIN_OK;
    TOCSIN_TRY(find_group(nn, devices, count, true, &group));
    TOCSIN_TRY(set_label(&c, "IRWeightReducer"));
    for (uint32_t i = 0; i < tocsin_pickle_count(weights); ++i) {
        const tocsin_pickle_value *value = tocsin_pickle_item(weights, i);
        const tocsin_nn_tensor *weight;
        if (!tocsin_nn_is_tensor(value))
            continue;
        TOCSIN_TRY(tocsin_nn_read_tensor(nn, value, &weight));
        if (weight->gradient)
            TOCSIN_TRY(reduce_weight(&c, weight, group));
    }
    return TOCSIN_OK;
}
