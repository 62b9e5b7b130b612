/* plan/nnscaler.c - reader of nnScaler execution plans: the world, the devices, their schedules.
 *
 * The file describes one replica; ranks are replica * devices + device. A device becomes a role
 * that stands for all its replicas; each cell that it runs becomes a segment, its order of
 * execution the schedule (so that 1F1B stays what it is). How operators, adapters and tensors are
 * read stands in nnscaler.h and the other nnscaler_*.c.
 * Invariant: nothing of the pickle is trusted; what does not have the expected form is an error
 * with a name in it. Cost: linear in the operators listed and the cells run.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan/nnscaler.h"

enum { DEVICES_MAX = 1 << 16 }; /* of one replica */

tocsin_status tocsin_nn_fail(tocsin_nn *nn, tocsin_status code, const char *format, ...)
{
    char message[TOCSIN_ERROR_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    (void)tocsin_error_at(nn->error, code, nn->where, -1, "nnScaler plan: %s", message);
    return code;
}

/* ---- the world ------------------------------------------------------------------------------- */

/* The number after `_KEY` in a file's name, at most 2^20; 0: there is none. */
static uint32_t number_in_name(const char *name, const char *key)
{
    const char *base = strrchr(name, '/');
    for (const char *at = base ? base : name; (at = strstr(at, key)) != NULL; ++at) {
        char *end;
        const char *digits = at + strlen(key);
        if (*digits < '0' || *digits > '9')
            continue;
        unsigned long number = strtoul(digits, &end, 10);
        if (number <= 1 << 20)
            return (uint32_t)number;
    }
    return 0;
}

static tocsin_status find_world(tocsin_nn *nn, const tocsin_plan_options *options,
                                tocsin_plan_world *world)
{
    *world = options ? options->world : (tocsin_plan_world){0};
    struct {
        uint32_t *size;
        const char *key;
    } parts[] = {
        {&world->dp, "_dp"}, {&world->pp, "_pp"}, {&world->tp, "_tp"}, {&world->nm, "_nm"}};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(parts); ++i) {
        if (*parts[i].size == 0)
            *parts[i].size = number_in_name(nn->where, parts[i].key);
        if (*parts[i].size == 0)
            return tocsin_nn_fail(nn, TOCSIN_E_FORMAT,
                                  "%s is neither given nor in the file's name (as %s2)",
                                  parts[i].key + 1, parts[i].key);
    }
    return TOCSIN_OK;
}

static tocsin_status set_world(tocsin_nn *nn, const tocsin_pickle_value *module,
                               const tocsin_plan_options *options)
{
    tocsin_plan_world world;
    int64_t ranks;
    TOCSIN_TRY(find_world(nn, options, &world));
    uint32_t devices = tocsin_pickle_count(tocsin_pickle_member(module, "devices"));
    if (devices == 0 || devices > DEVICES_MAX ||
        !tocsin_nn_integer(tocsin_pickle_member(module, "runtime_ndevs"), &ranks))
        return tocsin_nn_fail(nn, TOCSIN_E_FORMAT, "it does not say for how many devices it is");
    if ((uint64_t)world.pp * world.tp != devices)
        return tocsin_nn_fail(nn, TOCSIN_E_FORMAT,
                              "it is for %u devices, but pp=%u tp=%u makes %llu", devices, world.pp,
                              world.tp, (unsigned long long)world.pp * world.tp);
    if (ranks < 0 || (uint64_t)world.dp * devices != (uint64_t)ranks)
        return tocsin_nn_fail(nn, TOCSIN_E_FORMAT, "it is for %lld ranks, but dp=%u makes %llu",
                              (long long)ranks, world.dp, (unsigned long long)world.dp * devices);
    TOCSIN_TRY(tocsin_plan_add_axis(nn->plan, "dp", world.dp, true, nn->error));
    TOCSIN_TRY(tocsin_plan_add_axis(nn->plan, "pp", world.pp, false, nn->error));
    TOCSIN_TRY(tocsin_plan_add_axis(nn->plan, "tp", world.tp, false, nn->error));
    nn->devices = devices;
    nn->replicas = world.dp;
    nn->microbatches = world.nm;
    return tocsin_plan_set_microbatches(nn->plan, world.nm, nn->error);
}

static tocsin_status assume_world(tocsin_nn *nn)
{
    TOCSIN_TRY(tocsin_plan_assume(
        nn->plan, "the gradient of the loss is the same on every rank and for every micro-batch",
        nn->error));
    if (nn->replicas == 1 && nn->microbatches == 1)
        return TOCSIN_OK;
    char text[160];
    snprintf(text, sizeof text,
             "the data loader gives micro-batch mb of replica dp part dp * %u + mb of the batch, "
             "along dim 0",
             nn->microbatches);
    TOCSIN_TRY(tocsin_plan_assume(nn->plan, text, nn->error));
    return tocsin_plan_assume(nn->plan, "the loss is summed over replicas and micro-batches",
                              nn->error);
}

/* ---- sequences ------------------------------------------------------------------------------- */

/* execplan._seq: {device: [cell, ...]}. */
static tocsin_status find_sequences(tocsin_nn *nn, const tocsin_pickle_value *execplan)
{
    const tocsin_pickle_value *seq = tocsin_pickle_member(execplan, "_seq");
    if (seq && seq->kind == TOCSIN_PICKLE_OBJECT)
        seq = seq->object->pairs;
    nn->sequences = tocsin_zalloc(nn->devices, sizeof *nn->sequences);
    if (!nn->sequences)
        return tocsin_error_memory(nn->error);
    for (uint32_t i = 0; seq && seq->kind == TOCSIN_PICKLE_DICT && i < seq->count; i += 2) {
        int64_t device;
        if (!tocsin_nn_integer(seq->items[i], &device) || device < 0 || device >= nn->devices)
            return tocsin_nn_fail(nn, TOCSIN_E_FORMAT, "it has a schedule for none of its devices");
        nn->sequences[device] = seq->items[i + 1];
    }
    for (uint32_t i = 0; i < nn->devices; ++i) {
        if (!nn->sequences[i])
            return tocsin_nn_fail(nn, TOCSIN_E_FORMAT, "it has no schedule for device %u", i);
    }
    return TOCSIN_OK;
}

/* Remember which tensors a cell or primitive writes. */
static tocsin_status index_outputs(tocsin_nn *nn, const tocsin_pickle_value *cell)
{
    const tocsin_pickle_value *outputs = tocsin_pickle_member(cell, "_outputs");
    for (uint32_t i = 0; i < tocsin_pickle_count(outputs); ++i) {
        const tocsin_pickle_value *output = tocsin_pickle_item(outputs, i);
        uint64_t id;
        if (!tocsin_nn_is_tensor(output))
            continue;
        TOCSIN_TRY(tocsin_nn_id(nn, output, &id));
        if (!tocsin_map_put(&nn->made, id, 1))
            return tocsin_error_memory(nn->error);
    }
    return TOCSIN_OK;
}

static tocsin_status index_node(tocsin_nn *nn, uint32_t device, const tocsin_pickle_value *node)
{
    uint64_t id;
    bool is_adapter = tocsin_pickle_is(node, "IRAdapter");
    if (!is_adapter && !tocsin_pickle_is(node, "IRBpOperation"))
        return TOCSIN_OK;
    TOCSIN_TRY(index_outputs(nn, node));
    if (!is_adapter)
        return TOCSIN_OK;
    TOCSIN_TRY(tocsin_nn_id(nn, node, &id));
    if (!tocsin_map_put(&nn->adapters, (uint64_t)device << 40 | id, (uint64_t)(uintptr_t)node))
        return tocsin_error_memory(nn->error);
    const tocsin_pickle_value *prims = tocsin_pickle_member(node, "_prims");
    for (uint32_t i = 0; i < tocsin_pickle_count(prims); ++i)
        TOCSIN_TRY(index_outputs(nn, tocsin_pickle_item(prims, i)));
    return TOCSIN_OK;
}

static tocsin_status index_device(tocsin_nn *nn, uint32_t device, tocsin_map *seen)
{
    const tocsin_pickle_value *sequence = nn->sequences[device];
    for (uint32_t i = 0; i < tocsin_pickle_count(sequence); ++i) {
        const tocsin_pickle_value *cell = tocsin_nn_cell(tocsin_pickle_item(sequence, i));
        const tocsin_pickle_value *nodes = tocsin_pickle_member(cell, "_nodes");
        uint64_t *last = tocsin_map_at(seen, (uint64_t)(uintptr_t)cell);
        if (!last)
            return tocsin_error_memory(nn->error);
        if (*last == device + UINT64_C(1))
            continue;
        *last = device + UINT64_C(1);
        TOCSIN_TRY(index_node(nn, device, cell));
        for (uint32_t k = 0; k < tocsin_pickle_count(nodes); ++k)
            TOCSIN_TRY(index_node(nn, device, tocsin_pickle_item(nodes, k)));
    }
    return TOCSIN_OK;
}

/* Each device's side of each adapter, for the order of shards; which gradients are made at all. */
static tocsin_status index_cells(tocsin_nn *nn)
{
    tocsin_map seen = {0}; /* cell -> device + 1: micro-batches share cells */
    tocsin_status status = TOCSIN_OK;
    for (uint32_t device = 0; device < nn->devices && status == TOCSIN_OK; ++device)
        status = index_device(nn, device, &seen);
    tocsin_map_free(&seen);
    return status;
}

/* ---- cells ----------------------------------------------------------------------------------- */

static tocsin_status load_data(tocsin_nn *nn, const tocsin_pickle_value *cell)
{
    const tocsin_pickle_value *outputs = tocsin_pickle_member(cell, "_outputs");
    for (uint32_t i = 0; i < tocsin_pickle_count(outputs); ++i) {
        const tocsin_nn_tensor *tensor;
        const tocsin_pickle_value *value = tocsin_pickle_item(outputs, i);
        if (!tocsin_nn_is_tensor(value))
            continue;
        TOCSIN_TRY(tocsin_nn_read_tensor(nn, value, &tensor));
        if (!tensor->name[0])
            return tocsin_nn_fail(nn, TOCSIN_E_FORMAT, "data tensor %llu has no name",
                                  (unsigned long long)tensor->id);
        TOCSIN_TRY(tocsin_nn_load(nn, tensor));
    }
    return TOCSIN_OK;
}

static tocsin_status translate_node(tocsin_nn *nn, const tocsin_pickle_value *node)
{
    if (tocsin_pickle_is(node, "IRDimops"))
        return tocsin_nn_forward(nn, node);
    if (tocsin_pickle_is(node, "IRBpOperation"))
        return tocsin_nn_backward(nn, node);
    if (tocsin_pickle_is(node, "IRAdapter"))
        return tocsin_nn_adapter(nn, node);
    if (tocsin_pickle_is(node, "IRWeightReducer"))
        return tocsin_nn_reducer(nn, node);
    return tocsin_nn_fail(nn, TOCSIN_E_UNSUPPORTED, "a node of class %s (%s) is not known",
                          tocsin_pickle_class(node),
                          tocsin_pickle_text(tocsin_pickle_member(node, "name")));
}

static tocsin_status translate_cell(tocsin_nn *nn, const tocsin_pickle_value *cell)
{
    if (!tocsin_pickle_is(cell, "IRSegment"))
        return translate_node(nn, cell);
    const tocsin_pickle_value *nodes = tocsin_pickle_member(cell, "_nodes");
    for (uint32_t i = 0; i < tocsin_pickle_count(nodes); ++i)
        TOCSIN_TRY(translate_node(nn, tocsin_pickle_item(nodes, i)));
    return TOCSIN_OK;
}

static const char *kind_of(const tocsin_pickle_value *cell)
{
    return tocsin_pickle_is(cell, "IRSegment")         ? "segment"
           : tocsin_pickle_is(cell, "IRAdapter")       ? "adapter"
           : tocsin_pickle_is(cell, "IRWeightReducer") ? "reducer"
                                                       : "operator";
}

/* The n-th occurrence of a cell is micro-batch n; a weight reducer is of none. */
static tocsin_status run_cell(tocsin_nn *nn, const tocsin_pickle_value *cell)
{
    uint64_t id;
    bool done;
    TOCSIN_TRY(tocsin_nn_id(nn, cell, &id));
    uint64_t *used = tocsin_map_at(&nn->role.used, id);
    if (!used)
        return tocsin_error_memory(nn->error);
    bool is_reducer = tocsin_pickle_is(cell, "IRWeightReducer");
    int32_t microbatch = is_reducer ? -1 : (int32_t)*used;
    if (!is_reducer && *used >= nn->microbatches)
        return tocsin_nn_fail(nn, TOCSIN_E_FORMAT,
                              "device %u runs cell %llu more often than the %u micro-batches",
                              nn->role.device, (unsigned long long)id, nn->microbatches);
    ++*used;
    if (*used > nn->microbatches_seen)
        nn->microbatches_seen = (uint32_t)*used;
    if (tocsin_pickle_is(cell, "IRDataOperation")) {
        nn->role.microbatch = microbatch;
        return load_data(nn, cell);
    }
    TOCSIN_TRY(tocsin_nn_begin_cell(nn, id, kind_of(cell), microbatch, &done));
    if (done)
        return TOCSIN_OK;
    TOCSIN_TRY(translate_cell(nn, cell));
    return tocsin_nn_end_cell(nn, id);
}

/* ---- outputs --------------------------------------------------------------------------------- */

static tocsin_status add_output(tocsin_nn *nn, tocsin_output_kind kind, const char *name,
                                const tocsin_nn_tensor *tensor, uint32_t value)
{
    tocsin_affine starts[TOCSIN_PLAN_NDIM_MAX] = {0};
    tocsin_output_fold fold = kind == TOCSIN_OUTPUT_LOSS ? TOCSIN_FOLD_SUM : TOCSIN_FOLD_EQUAL;
    for (uint32_t d = 0; d < tensor->ndim; ++d)
        starts[d].base = tensor->start[d];
    tocsin_plan_output output = {.kind = (uint8_t)kind,
                                 .fold = {(uint8_t)fold, (uint8_t)fold},
                                 .name = tocsin_plan_string(nn->plan, name, strlen(name)),
                                 .value = value};
    if (!output.name)
        return tocsin_plan_string_error(nn->plan, nn->error);
    return tocsin_plan_add_output(nn->plan, &output, starts, nn->error);
}

/* A gradient that nothing makes is still an output, unless this is the logical model: there it is
 * of a weight that the loss does not depend on. */
static tocsin_status add_gradients(tocsin_nn *nn)
{
    bool is_logical = nn->devices == 1 && nn->replicas == 1 && nn->microbatches == 1;
    for (size_t i = 0; i < nn->role.weights.count; ++i) {
        const tocsin_nn_tensor *weight = nn->role.weights.items[i];
        const tocsin_nn_tensor *gradient;
        uint32_t value;
        TOCSIN_TRY(tocsin_nn_read_tensor(nn, weight->gradient, &gradient));
        TOCSIN_TRY(tocsin_nn_find(nn, gradient, -1, &value));
        if (value == TOCSIN_PLAN_NONE && is_logical)
            continue;
        if (value == TOCSIN_PLAN_NONE)
            TOCSIN_TRY(tocsin_nn_read(nn, gradient, &value));
        TOCSIN_TRY(add_output(nn, TOCSIN_OUTPUT_GRADIENT, weight->name, weight, value));
    }
    return TOCSIN_OK;
}

/* execplan._outputs names the loss of each micro-batch, the first one by the cells' own number. */
static tocsin_status add_loss(tocsin_nn *nn, const tocsin_pickle_value *execplan)
{
    const tocsin_pickle_value *loss =
        tocsin_pickle_item(tocsin_pickle_member(execplan, "_outputs"), 0);
    const tocsin_nn_tensor *tensor;
    uint32_t value;
    if (!tocsin_nn_is_tensor(loss))
        return TOCSIN_OK;
    TOCSIN_TRY(tocsin_nn_read_tensor(nn, loss, &tensor));
    TOCSIN_TRY(tocsin_nn_find(nn, tensor, 0, &value));
    if (!tensor->is_loss || value == TOCSIN_PLAN_NONE)
        return TOCSIN_OK;
    return add_output(nn, TOCSIN_OUTPUT_LOSS, "loss", tensor, value);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static tocsin_status read_role(tocsin_nn *nn, uint32_t device, const tocsin_pickle_value *execplan)
{
    const tocsin_pickle_value *sequence = nn->sequences[device];
    tocsin_nn_role_clear(&nn->role);
    nn->role.device = device;
    TOCSIN_TRY(tocsin_plan_begin_role(nn->plan, device, 0, nn->replicas, nn->error));
    for (uint32_t i = 0; i < tocsin_pickle_count(sequence); ++i)
        TOCSIN_TRY(run_cell(nn, tocsin_nn_cell(tocsin_pickle_item(sequence, i))));
    TOCSIN_TRY(add_loss(nn, execplan));
    return add_gradients(nn);
}

static tocsin_status read_plan(tocsin_nn *nn, const void *memory, size_t bytes,
                               const tocsin_plan_options *options)
{
    TOCSIN_TRY(tocsin_declarations_load(options ? options->operators_path : NULL, &nn->declarations,
                                        nn->error));
    TOCSIN_TRY(tocsin_pickle_read(memory, bytes, nn->where, &nn->pickle, nn->error));
    const tocsin_pickle_value *module = nn->pickle.root;
    const tocsin_pickle_value *execplan = tocsin_pickle_member(module, "execplan");
    if (!tocsin_pickle_is(module, "ModuleCodeGen") || !tocsin_pickle_is(execplan, "ExecutionPlan"))
        return tocsin_nn_fail(nn, TOCSIN_E_FORMAT,
                              "the pickle is no ModuleCodeGen with an ExecutionPlan");
    TOCSIN_TRY(set_world(nn, module, options));
    TOCSIN_TRY(assume_world(nn));
    TOCSIN_TRY(find_sequences(nn, execplan));
    TOCSIN_TRY(index_cells(nn));
    for (uint32_t device = 0; device < nn->devices; ++device)
        TOCSIN_TRY(read_role(nn, device, execplan));
    if (nn->microbatches_seen < nn->microbatches)
        return tocsin_nn_fail(nn, TOCSIN_E_FORMAT, "it runs %u micro-batches, not nm=%u",
                              nn->microbatches_seen, nn->microbatches);
    return tocsin_plan_finish(nn->plan, nn->error);
}

tocsin_status tocsin_plan_read_nnscaler(const void *memory, size_t bytes, const char *name,
                                        const tocsin_plan_options *options, tocsin_plan **plan,
                                        tocsin_error *error)
{
    assert(memory || bytes == 0);
    assert(name && plan);
    tocsin_error own = {0};
    tocsin_nn nn = {.where = name,
                    .error = error ? error : &own,
                    .order = options ? options->order : TOCSIN_PLAN_ORDER_GROUP,
                    .plan = tocsin_plan_new()};
    tocsin_status status =
        nn.plan ? read_plan(&nn, memory, bytes, options) : tocsin_error_memory(nn.error);
    if (status == TOCSIN_OK) {
        *plan = nn.plan;
        nn.plan = NULL;
    } else if (nn.error->where[0] == 0) { /* the plan's builder does not know the file */
        snprintf(nn.error->where, sizeof nn.error->where, "%s", name);
    }
    tocsin_plan_free(nn.plan);
    tocsin_pickle_free(&nn.pickle);
    tocsin_declarations_free(&nn.declarations);
    tocsin_free(nn.sequences);
    tocsin_nn_role_free(&nn.role);
    tocsin_map_free(&nn.tensors);
    tocsin_map_free(&nn.groups);
    tocsin_map_free(&nn.adapters);
    tocsin_map_free(&nn.made);
    tocsin_arena_free(&nn.arena);
    return status;
}
