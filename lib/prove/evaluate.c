/* prove/evaluate.c - both plans run, and their outputs compared. See evaluate.h.
 *
 * The logical plan's arrays are kept whole. Each output of a role is folded over replicas and
 * micro-batches as it declares, and compared element by element; a map of what was compared tells
 * what no rank has.
 */
#include "prove/evaluate.h"

#include <assert.h>
#include <math.h>

#include "prove/evaluate_world.h"

enum { DEFAULT_ELEMENTS = 1 << 24, DEFAULT_OPERATIONS = 1 << 30 };

typedef struct comparison {
    const tocsin_plan *logical, *parallel;
    tocsin_kernel kernel;
    tocsin_world logical_world, parallel_world;
    tocsin_input_bounds bounds;
    uint8_t **covered; /* per logical output: elements that were compared */
    TOCSIN_VEC(tocsin_evaluated_output) outputs;
    double compared, degree;
    bool chosen;
} comparison;

static const tocsin_array *logical_value(const comparison *c, const tocsin_plan_output *output)
{
    return tocsin_world_value(&c->logical_world, &c->logical_world.ranks[0], output->value, 0);
}

/* The logical output of this kind and name: its index in the role; UINT32_MAX: none. */
static uint32_t find_logical(const comparison *c, uint8_t kind, const char *name)
{
    const tocsin_plan_role *role = c->logical->roles.items;
    for (uint32_t o = 0; o < role->output_count; ++o) {
        const tocsin_plan_output *output = &c->logical->outputs.items[role->first_output + o];
        if (output->kind == kind && strcmp(tocsin_plan_text(c->logical, output->name), name) == 0)
            return o;
    }
    return UINT32_MAX;
}

/* The rank's output of the same kind, name and start as `like`, which is another replica's. */
static const tocsin_plan_output *find_alike(const comparison *c, const tocsin_world_rank *rank,
                                            const tocsin_plan_output *like, uint8_t ndim)
{
    for (uint32_t o = 0; rank->role && o < rank->role->output_count; ++o) {
        const tocsin_plan_output *output =
            &c->parallel->outputs.items[rank->role->first_output + o];
        if (output->kind == like->kind && output->name == like->name &&
            (ndim == 0 || memcmp(&c->parallel->starts.items[output->first_start],
                                 &c->parallel->starts.items[like->first_start],
                                 ndim * sizeof(tocsin_affine)) == 0))
            return output;
    }
    return NULL;
}

static void unknown(tocsin_evaluated_output *result, uint32_t replica, uint32_t microbatch,
                    const char *reason)
{
    if (result->outcome >= TOCSIN_EVALUATED_UNKNOWN)
        return;
    result->outcome = TOCSIN_EVALUATED_UNKNOWN;
    result->replica = replica;
    result->microbatch = microbatch;
    result->reason = reason ? reason : "an undefined element";
}

/* Compare one element; false: it decides the output, look no further. */
static bool compare_element(tocsin_evaluated_output *result, const tocsin_array *expected,
                            const tocsin_array *found, int64_t at, int64_t k, uint32_t replica,
                            uint32_t microbatch)
{
    tocsin_element a = expected->data[at], b = found->data[k];
    if (tocsin_element_equal(a, b))
        return true;
    if (tocsin_element_is_undefined(a) || tocsin_element_is_undefined(b)) {
        unknown(result, replica, microbatch,
                tocsin_element_is_undefined(b) ? found->reason : expected->reason);
        return true;
    }
    result->outcome = TOCSIN_EVALUATED_DIFFERENT;
    result->reason = "";
    result->replica = replica;
    result->microbatch = microbatch;
    result->expected = a;
    result->found = b;
    return false;
}

/* Compare an array with the slice of a logical one that begins at `starts`. */
static void compare_arrays(comparison *c, tocsin_evaluated_output *result, uint32_t logical_index,
                           const tocsin_array *found, const tocsin_affine *starts, uint32_t replica,
                           uint32_t microbatch)
{
    const tocsin_plan_role *role = c->logical->roles.items;
    const tocsin_array *expected =
        logical_value(c, &c->logical->outputs.items[role->first_output + logical_index]);
    int64_t start[TOCSIN_PLAN_NDIM_MAX], strides[TOCSIN_PLAN_NDIM_MAX], at = 0;
    int64_t index[TOCSIN_PLAN_NDIM_MAX] = {0};
    if (!expected->data || !found->data) {
        unknown(result, replica, microbatch, "nothing wrote the output");
        return;
    }
    result->ndim = found->ndim;
    result->opaque |= expected->opaque || found->opaque;
    c->chosen |= expected->chosen || found->chosen;
    c->degree = fmax(c->degree, fmax(expected->degree, found->degree));
    c->compared += (double)found->count;
    bool fits = expected->ndim == found->ndim;
    for (uint8_t d = 0; fits && d < found->ndim; ++d) {
        start[d] = tocsin_affine_at(&starts[d], replica, microbatch);
        fits = start[d] >= 0 && start[d] <= expected->shape[d] - found->shape[d];
    }
    if (!fits) {
        unknown(result, replica, microbatch, "the slice is outside of the logical output");
        return;
    }
    tocsin_array_strides(expected, strides);
    for (uint8_t d = 0; d < found->ndim; ++d)
        at += start[d] * strides[d];
    for (int64_t k = 0; k < found->count; ++k) {
        c->covered[logical_index][at] = 1;
        if (result->outcome != TOCSIN_EVALUATED_DIFFERENT &&
            !compare_element(result, expected, found, at, k, replica, microbatch))
            for (uint8_t d = 0; d < found->ndim; ++d)
                result->index[d] = start[d] + index[d];
        for (uint8_t d = found->ndim; d-- > 0;) {
            at += strides[d];
            if (++index[d] < found->shape[d])
                break;
            at -= strides[d] * found->shape[d];
            index[d] = 0;
        }
    }
}

/* ---- folds --------------------------------------------------------------------------------------
 */

/* The one array that these make together. */
static tocsin_status fold(comparison *c, const tocsin_array *arrays, uint32_t count, uint8_t how,
                          tocsin_array *sum)
{
    *sum =
        (tocsin_array){.shape = arrays[0].shape, .ndim = arrays[0].ndim, .count = arrays[0].count};
    for (uint32_t i = 0; i < count; ++i)
        if (!arrays[i].data)
            return TOCSIN_OK;
    return tocsin_array_combine(&c->kernel, arrays, count, how == TOCSIN_FOLD_MEAN ? "avg" : "sum",
                                sum);
}

/* The value of one replica in micro-batch m, or of all micro-batches when they are folded. */
static tocsin_status value_of_replica(comparison *c, const tocsin_world_rank *rank,
                                      const tocsin_plan_output *output, uint32_t microbatch,
                                      tocsin_array *array)
{
    size_t microbatches = c->parallel->microbatches;
    uint8_t how = output->fold[TOCSIN_SYMBOL_MICROBATCH];
    const tocsin_array *first = tocsin_world_value(&c->parallel_world, rank, output->value, 0);
    *array = *tocsin_world_value(&c->parallel_world, rank, output->value, microbatch);
    if (how == TOCSIN_FOLD_EQUAL || rank->single[output->value]) /* one value has no fold */
        return TOCSIN_OK;
    tocsin_array *arrays = TOCSIN_ARENA_ARRAY(&c->kernel.arena, tocsin_array, microbatches);
    if (!arrays)
        return tocsin_error_memory(c->kernel.error);
    for (uint32_t m = 0; m < microbatches; ++m)
        arrays[m] = first[m];
    return fold(c, arrays, (uint32_t)microbatches, how, array);
}

/* All replicas of the device folded into one, whatever roles they have. */
static tocsin_status value_of_all(comparison *c, const tocsin_world_rank *rank,
                                  const tocsin_plan_output *output, uint32_t microbatch,
                                  tocsin_array *array)
{
    size_t replicas = tocsin_plan_replicas(c->parallel);
    tocsin_array *arrays = TOCSIN_ARENA_ARRAY(&c->kernel.arena, tocsin_array, replicas);
    if (!arrays)
        return tocsin_error_memory(c->kernel.error);
    TOCSIN_TRY(value_of_replica(c, rank, output, microbatch, array));
    for (uint32_t r = 0; r < replicas; ++r) {
        const tocsin_world_rank *replica =
            &c->parallel_world.ranks[tocsin_plan_rank(c->parallel, rank->device, r)];
        const tocsin_plan_output *own = find_alike(c, replica, output, array->ndim);
        arrays[r] =
            (tocsin_array){.shape = array->shape, .ndim = array->ndim, .count = array->count};
        if (own)
            TOCSIN_TRY(value_of_replica(c, replica, own, microbatch, &arrays[r]));
    }
    return fold(c, arrays, (uint32_t)replicas, output->fold[TOCSIN_SYMBOL_REPLICA], array);
}

/* How many values the symbol takes for the comparisons: a folded value is compared once, but for a
 * slice that moves with the symbol all the same: then with each of its places. */
static uint32_t places_of(const comparison *c, const tocsin_plan_output *output, uint8_t ndim,
                          int symbol, bool one_value, uint32_t count)
{
    for (uint8_t d = 0; d < ndim; ++d)
        if (c->parallel->starts.items[output->first_start + d].weight[symbol] != 0)
            return count;
    return one_value ? 1 : count;
}

static tocsin_status compare_output(comparison *c, const tocsin_plan_role *role,
                                    const tocsin_plan_output *output)
{
    const tocsin_plan *plan = c->parallel;
    const char *name = tocsin_plan_text(plan, output->name);
    const bool fold_replicas = output->fold[TOCSIN_SYMBOL_REPLICA] != TOCSIN_FOLD_EQUAL;
    const bool fold_microbatches = output->fold[TOCSIN_SYMBOL_MICROBATCH] != TOCSIN_FOLD_EQUAL;
    const uint8_t ndim = plan->values.items[role->first_value + output->value].ndim;
    tocsin_evaluated_output result = {
        .kind = output->kind, .name = name, .device = role->device, .reason = ""};
    uint32_t logical_index = find_logical(c, output->kind, name);
    if (logical_index == UINT32_MAX)
        unknown(&result, role->first_replica, 0, "the logical plan has no such output");
    uint32_t replicas =
        places_of(c, output, ndim, TOCSIN_SYMBOL_REPLICA, fold_replicas, role->replica_count);
    for (uint32_t r = 0; logical_index != UINT32_MAX && r < replicas; ++r) {
        const tocsin_world_rank *rank =
            &c->parallel_world.ranks[tocsin_plan_rank(plan, role->device, role->first_replica + r)];
        bool once = fold_microbatches || rank->single[output->value];
        uint32_t places =
            places_of(c, output, ndim, TOCSIN_SYMBOL_MICROBATCH, once, plan->microbatches);
        for (uint32_t m = 0; m < places; ++m) {
            tocsin_array array;
            TOCSIN_TRY(fold_replicas ? value_of_all(c, rank, output, m, &array)
                                     : value_of_replica(c, rank, output, m, &array));
            compare_arrays(c, &result, logical_index, &array,
                           &plan->starts.items[output->first_start], rank->replica, m);
        }
    }
    return TOCSIN_VEC_PUSH(&c->outputs, result) ? TOCSIN_OK : tocsin_error_memory(c->kernel.error);
}

/* ---- the whole ----------------------------------------------------------------------------------
 */

static tocsin_status begin_coverage(comparison *c)
{
    const tocsin_plan_role *role = c->logical->roles.items;
    c->covered = TOCSIN_ARENA_ARRAY(&c->kernel.arena, uint8_t *, role->output_count);
    if (!c->covered)
        return tocsin_error_memory(c->kernel.error);
    for (uint32_t o = 0; o < role->output_count; ++o) {
        size_t count =
            (size_t)logical_value(c, &c->logical->outputs.items[role->first_output + o])->count;
        c->covered[o] = tocsin_arena_alloc(&c->kernel.arena, count, 1);
        if (!c->covered[o])
            return tocsin_error_memory(c->kernel.error);
        memset(c->covered[o], 0, count);
    }
    return TOCSIN_OK;
}

static uint64_t count_missing(const comparison *c)
{
    const tocsin_plan_role *role = c->logical->roles.items;
    uint64_t missing = 0;
    for (uint32_t o = 0; o < role->output_count; ++o) {
        int64_t count = logical_value(c, &c->logical->outputs.items[role->first_output + o])->count;
        for (int64_t k = 0; k < count; ++k)
            missing += !c->covered[o][k];
    }
    return missing;
}

static tocsin_status compare(comparison *c)
{
    TOCSIN_TRY(tocsin_input_bounds_find(c->logical, &c->bounds, c->kernel.error));
    TOCSIN_TRY(tocsin_world_run(&c->logical_world, c->logical, &c->kernel, &c->bounds));
    TOCSIN_TRY(tocsin_world_run(&c->parallel_world, c->parallel, &c->kernel, &c->bounds));
    TOCSIN_TRY(begin_coverage(c));
    for (size_t r = 0; r < c->parallel->roles.count; ++r) {
        const tocsin_plan_role *role = &c->parallel->roles.items[r];
        for (uint32_t o = 0; o < role->output_count; ++o)
            TOCSIN_TRY(
                compare_output(c, role, &c->parallel->outputs.items[role->first_output + o]));
    }
    return TOCSIN_OK;
}

/* Move what the comparison found into a result of its own memory. */
static tocsin_status finish(comparison *c, tocsin_evaluation *result)
{
    size_t count = c->outputs.count;
    tocsin_arena *arena = &result->arena;
    tocsin_evaluated_output *outputs = TOCSIN_ARENA_ARRAY(arena, tocsin_evaluated_output, count);
    const char *stuck =
        c->logical_world.stuck[0] ? c->logical_world.stuck : c->parallel_world.stuck;
    result->stuck = tocsin_arena_copy(arena, stuck, strlen(stuck));
    if (!outputs || !result->stuck)
        return tocsin_error_memory(c->kernel.error);
    for (size_t i = 0; i < count; ++i) {
        outputs[i] = c->outputs.items[i];
        outputs[i].name = tocsin_arena_copy(arena, outputs[i].name, strlen(outputs[i].name));
        outputs[i].reason = tocsin_arena_copy(arena, outputs[i].reason, strlen(outputs[i].reason));
        if (!outputs[i].name || !outputs[i].reason)
            return tocsin_error_memory(c->kernel.error);
        if (outputs[i].outcome > result->outcome)
            result->outcome = outputs[i].outcome;
    }
    result->outputs = outputs;
    result->output_count = count;
    result->missing = count_missing(c);
    if (result->outcome == TOCSIN_EVALUATED_EQUAL && (result->missing > 0 || stuck[0]))
        result->outcome = TOCSIN_EVALUATED_UNKNOWN;
    result->chosen = c->chosen;
    result->epsilon = c->compared * c->degree / (double)TOCSIN_FIELD_Q + c->kernel.collision;
    if (c->chosen || result->epsilon > 1)
        result->epsilon = 1;
    result->elements = c->kernel.elements;
    result->operations = c->kernel.operations;
    return TOCSIN_OK;
}

static void release(comparison *c)
{
    tocsin_world_free(&c->logical_world);
    tocsin_world_free(&c->parallel_world);
    tocsin_map_free(&c->bounds.bound);
    TOCSIN_VEC_FREE(&c->outputs);
    tocsin_arena_free(&c->kernel.arena);
}

tocsin_status tocsin_evaluate(const tocsin_plan *logical, const tocsin_plan *parallel,
                              uint64_t seed, const tocsin_evaluate_limits *limits,
                              tocsin_evaluation **evaluation, tocsin_error *error)
{
    *evaluation = NULL;
    if (logical->roles.count != 1 || logical->roles.items[0].replica_count != 1 ||
        logical->microbatches != 1)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "the logical plan is itself parallel");
    tocsin_evaluation *result = tocsin_zalloc(1, sizeof *result);
    if (!result)
        return tocsin_error_memory(error);
    comparison c = {.logical = logical,
                    .parallel = parallel,
                    .kernel = {.field = tocsin_field_new(seed),
                               .elements_limit =
                                   limits && limits->elements ? limits->elements : DEFAULT_ELEMENTS,
                               .operations_limit = limits && limits->operations
                                                       ? limits->operations
                                                       : DEFAULT_OPERATIONS,
                               .error = error}};
    tocsin_status status = compare(&c);
    if (status == TOCSIN_OK)
        status = finish(&c, result);
    release(&c);
    if (status != TOCSIN_OK) {
        tocsin_evaluation_free(result);
        return status;
    }
    *evaluation = result;
    return TOCSIN_OK;
}

void tocsin_evaluation_free(tocsin_evaluation *evaluation)
{
    if (!evaluation)
        return;
    tocsin_arena_free(&evaluation->arena);
    tocsin_free(evaluation);
}
