/* plan/nnscaler_role.c - one device of an nnScaler plan: values with one producer, segments.
 *
 * Data structure: maps from tensor numbers to versions and values; for each segment the versions
 * that it found and left, by which it is recognised when its cell runs for another micro-batch.
 * Invariant: every value has one operator that writes it, but for the sums of weights' gradients,
 * to which only ACCUMULATE writes. Cost: a few map look-ups for each operand of each cell run.
 */
#include <assert.h>
#include <stdio.h>

#include "plan/nnscaler.h"

void tocsin_nn_role_clear(tocsin_nn_role *role)
{
    tocsin_map *maps[] = {&role->versions, &role->values,  &role->current, &role->inputs,
                          &role->sums,     &role->reduced, &role->wanted,  &role->gradients,
                          &role->used,     &role->first};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(maps); ++i)
        tocsin_map_clear(maps[i]);
    role->records.count = 0;
    role->touches.count = 0;
    role->weights.count = 0;
    role->auxiliary_count = 0;
    role->segment = TOCSIN_PLAN_NONE;
}

void tocsin_nn_role_free(tocsin_nn_role *role)
{
    tocsin_map *maps[] = {&role->versions, &role->values,  &role->current, &role->inputs,
                          &role->sums,     &role->reduced, &role->wanted,  &role->gradients,
                          &role->used,     &role->first};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(maps); ++i)
        tocsin_map_free(maps[i]);
    TOCSIN_VEC_FREE(&role->records);
    TOCSIN_VEC_FREE(&role->touches);
    TOCSIN_VEC_FREE(&role->weights);
}

/* ---- values ---------------------------------------------------------------------------------- */

static tocsin_status add_value(tocsin_nn *nn, const char *name, const int64_t *shape, uint32_t ndim,
                               uint8_t dtype, bool persistent, uint32_t *value)
{
    uint32_t string = tocsin_plan_string(nn->plan, name, strlen(name));
    if (!string)
        return tocsin_plan_string_error(nn->plan, nn->error);
    tocsin_plan_value added = {
        .name = string, .ndim = (uint8_t)ndim, .dtype = dtype, .persistent = persistent};
    return tocsin_plan_add_value(nn->plan, &added, shape, value, nn->error);
}

tocsin_status tocsin_nn_auxiliary(tocsin_nn *nn, const tocsin_nn_tensor *like, const int64_t *shape,
                                  uint32_t ndim, uint32_t *value)
{
    char name[24];
    snprintf(name, sizeof name, "x%u", ++nn->role.auxiliary_count);
    return add_value(nn, name, shape, ndim, like->dtype, false, value);
}

/* The value of a version of a tensor: "t621", "t621.2". */
static tocsin_status version_value(tocsin_nn *nn, const tocsin_nn_tensor *tensor, uint32_t version,
                                   uint32_t *value)
{
    assert(version > 0);
    if (version >> 24)
        return tocsin_nn_fail(nn, TOCSIN_E_LIMIT, "tensor %llu is written too often",
                              (unsigned long long)tensor->id);
    uint64_t *known = tocsin_map_at(&nn->role.values, (uint64_t)version << 40 | tensor->id);
    if (!known)
        return tocsin_error_memory(nn->error);
    if (!*known) {
        char name[40];
        snprintf(name, sizeof name, version == 1 ? "t%llu" : "t%llu.%u",
                 (unsigned long long)tensor->id, version);
        TOCSIN_TRY(add_value(nn, name, tensor->size, tensor->ndim, tensor->dtype, false, value));
        *known = (uint64_t)*value + 1;
    }
    *value = (uint32_t)(*known - 1);
    return TOCSIN_OK;
}

/* The number that stands for the gradients of one weight. */
static uint64_t gradient_id(const tocsin_nn *nn, const tocsin_nn_tensor *gradient)
{
    const uint64_t *first = tocsin_map_find(&nn->role.gradients, gradient->id);
    return first ? *first : gradient->id;
}

/* The value to which the gradients of a weight are added: "t643.sum". */
static tocsin_status sum_value(tocsin_nn *nn, const tocsin_nn_tensor *tensor, uint32_t *value)
{
    uint64_t id = gradient_id(nn, tensor);
    uint64_t *known = tocsin_map_at(&nn->role.sums, id);
    if (!known)
        return tocsin_error_memory(nn->error);
    if (!*known) {
        char name[32];
        snprintf(name, sizeof name, "t%llu.sum", (unsigned long long)id);
        TOCSIN_TRY(add_value(nn, name, tensor->size, tensor->ndim, tensor->dtype, true, value));
        *known = (uint64_t)*value + 1;
    }
    *value = (uint32_t)(*known - 1);
    return TOCSIN_OK;
}

static bool is_sum(const tocsin_nn_tensor *tensor)
{
    return tensor->is_weight && tensor->is_gradient;
}

/* Gradients of weights are not of one micro-batch. */
static uint64_t current_key(const tocsin_nn *nn, const tocsin_nn_tensor *tensor)
{
    int32_t microbatch = is_sum(tensor) ? -1 : nn->role.microbatch;
    return (uint64_t)(microbatch + 1) << 40 | tensor->id;
}

static uint32_t current_version(const tocsin_nn *nn, const tocsin_nn_tensor *tensor)
{
    const uint64_t *version = tocsin_map_find(&nn->role.current, current_key(nn, tensor));
    return version ? (uint32_t)*version : 0;
}

static uint32_t versions_given(const tocsin_nn *nn, const tocsin_nn_tensor *tensor)
{
    const uint64_t *count = tocsin_map_find(&nn->role.versions, tensor->id);
    return count ? (uint32_t)*count : 0;
}

static tocsin_status touch(tocsin_nn *nn, const tocsin_nn_tensor *tensor, tocsin_nn_touch_kind kind,
                           uint32_t version)
{
    tocsin_nn_touch added = {.tensor = tensor->id, .version = version, .kind = (uint8_t)kind};
    if (!TOCSIN_VEC_PUSH(&nn->role.touches, added))
        return tocsin_error_memory(nn->error);
    return TOCSIN_OK;
}

/* What was written inside the cell at hand says nothing about the circumstances. */
static tocsin_status touch_read(tocsin_nn *nn, const tocsin_nn_tensor *tensor,
                                tocsin_nn_touch_kind kind, uint32_t version)
{
    for (size_t i = nn->role.touches.count; i-- > nn->role.first_touch;) {
        const tocsin_nn_touch *seen = &nn->role.touches.items[i];
        if (seen->tensor == tensor->id)
            return TOCSIN_OK;
    }
    return touch(nn, tensor, kind, version);
}

/* A new version, now the current one. */
static tocsin_status write_version(tocsin_nn *nn, const tocsin_nn_tensor *tensor, uint32_t *value)
{
    if (is_sum(tensor) && nn->microbatches > 1)
        return tocsin_nn_fail(
            nn, TOCSIN_E_UNSUPPORTED,
            "the accumulated gradient %llu (%s) is rewritten between micro-batches",
            (unsigned long long)tensor->id, tensor->name);
    uint32_t version = versions_given(nn, tensor) + 1;
    if (!tocsin_map_put(&nn->role.versions, tensor->id, version) ||
        !tocsin_map_put(&nn->role.current, current_key(nn, tensor), version))
        return tocsin_error_memory(nn->error);
    TOCSIN_TRY(touch(nn, tensor, TOCSIN_NN_WRITTEN, version));
    return version_value(nn, tensor, version, value);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static tocsin_status add_input(tocsin_nn *nn, const char *name, const tocsin_affine *starts,
                               uint32_t value)
{
    uint32_t string = tocsin_plan_string(nn->plan, name, strlen(name));
    if (!string)
        return tocsin_plan_string_error(nn->plan, nn->error);
    return tocsin_plan_add_input(nn->plan, value, string, starts, nn->error);
}

/* A weight, by its name and slice; or the gradient of the loss. */
static tocsin_status input_value(tocsin_nn *nn, const tocsin_nn_tensor *tensor, uint32_t *value)
{
    uint64_t *known = tocsin_map_at(&nn->role.inputs, tensor->id);
    if (!known)
        return tocsin_error_memory(nn->error);
    if (!*known) {
        const char *name = tensor->is_weight ? tensor->name : "dLoss";
        char own[32];
        tocsin_affine starts[TOCSIN_PLAN_NDIM_MAX] = {0};
        if (!name[0])
            return tocsin_nn_fail(nn, TOCSIN_E_FORMAT, "weight %llu has no name",
                                  (unsigned long long)tensor->id);
        snprintf(own, sizeof own, "t%llu.in", (unsigned long long)tensor->id);
        for (uint32_t d = 0; d < tensor->ndim; ++d)
            starts[d].base = tensor->start[d];
        TOCSIN_TRY(add_value(nn, own, tensor->size, tensor->ndim, tensor->dtype, true, value));
        TOCSIN_TRY(add_input(nn, name, starts, *value));
        *known = (uint64_t)*value + 1;
    }
    *value = (uint32_t)(*known - 1);
    return TOCSIN_OK;
}

tocsin_status tocsin_nn_want(tocsin_nn *nn, const tocsin_nn_tensor *weight)
{
    const tocsin_nn_tensor *own, *first_own;
    uint64_t *first = tocsin_map_at(&nn->role.wanted, weight->id);
    if (!first || (!*first && !TOCSIN_VEC_PUSH(&nn->role.weights, weight)))
        return tocsin_error_memory(nn->error);
    if (!*first)
        *first = (uint64_t)(uintptr_t)weight;
    const tocsin_nn_tensor *first_weight = (const tocsin_nn_tensor *)(uintptr_t)*first;
    TOCSIN_TRY(tocsin_nn_read_tensor(nn, weight->gradient, &own));
    TOCSIN_TRY(tocsin_nn_read_tensor(nn, first_weight->gradient, &first_own));
    if (!tocsin_map_put(&nn->role.gradients, own->id, first_own->id))
        return tocsin_error_memory(nn->error);
    return TOCSIN_OK;
}

/* Replica and micro-batch each have their own part of the batch, in that order, along dim 0. */
tocsin_status tocsin_nn_load(tocsin_nn *nn, const tocsin_nn_tensor *tensor)
{
    tocsin_affine starts[TOCSIN_PLAN_NDIM_MAX] = {0};
    char own[32];
    uint64_t *known = tocsin_map_at(&nn->role.inputs, tensor->id);
    if (!known)
        return tocsin_error_memory(nn->error);
    if (!*known) {
        for (uint32_t d = 0; d < tensor->ndim; ++d)
            starts[d].base = tensor->start[d];
        if (tensor->ndim > 0 && nn->replicas > 1)
            starts[0].weight[TOCSIN_SYMBOL_REPLICA] = (int64_t)nn->microbatches * tensor->full[0];
        if (tensor->ndim > 0 && nn->microbatches > 1)
            starts[0].weight[TOCSIN_SYMBOL_MICROBATCH] = tensor->full[0];
        snprintf(own, sizeof own, "t%llu", (unsigned long long)tensor->id);
        uint32_t string = tocsin_plan_string(nn->plan, own, strlen(own));
        if (!string)
            return tocsin_plan_string_error(nn->plan, nn->error);
        tocsin_plan_value added = {.name = string,
                                   .ndim = tensor->ndim,
                                   .dtype = tensor->dtype,
                                   .per_microbatch = nn->microbatches > 1};
        uint32_t value;
        TOCSIN_TRY(tocsin_plan_add_value(nn->plan, &added, tensor->size, &value, nn->error));
        TOCSIN_TRY(add_input(nn, tensor->name, starts, value));
        *known = (uint64_t)value + 1;
        if (!tocsin_map_put(&nn->role.versions, tensor->id, 1) ||
            !tocsin_map_put(&nn->role.values, UINT64_C(1) << 40 | tensor->id, *known))
            return tocsin_error_memory(nn->error);
    }
    if (!tocsin_map_put(&nn->role.current, current_key(nn, tensor), 1))
        return tocsin_error_memory(nn->error);
    return TOCSIN_OK;
}

/* ---- reading and writing tensors ------------------------------------------------------------- */

tocsin_status tocsin_nn_read(tocsin_nn *nn, const tocsin_nn_tensor *tensor, uint32_t *value)
{
    uint32_t version = current_version(nn, tensor);
    bool is_input = tensor->is_weight || (tensor->is_loss && tensor->is_gradient);
    if (version || is_input)
        TOCSIN_TRY(touch_read(nn, tensor, is_input ? TOCSIN_NN_EXACT : TOCSIN_NN_READ, version));
    if (version)
        return version_value(nn, tensor, version, value);
    if (is_sum(tensor))
        return sum_value(nn, tensor, value);
    if (is_input)
        return input_value(nn, tensor, value);
    version = versions_given(nn, tensor) + 1; /* what writes it later writes this one */
    TOCSIN_TRY(touch_read(nn, tensor, TOCSIN_NN_READ, version));
    return version_value(nn, tensor, version, value);
}

tocsin_status tocsin_nn_find(tocsin_nn *nn, const tocsin_nn_tensor *tensor, int32_t microbatch,
                             uint32_t *value)
{
    nn->role.microbatch = microbatch;
    const uint64_t *reduced = tocsin_map_find(&nn->role.reduced, gradient_id(nn, tensor));
    const uint64_t *sum = tocsin_map_find(&nn->role.sums, gradient_id(nn, tensor));
    uint32_t version = current_version(nn, tensor);
    *value = TOCSIN_PLAN_NONE;
    if (is_sum(tensor) && reduced)
        *value = (uint32_t)(*reduced - 1);
    else if (version)
        return version_value(nn, tensor, version, value);
    else if (is_sum(tensor) && sum)
        *value = (uint32_t)(*sum - 1);
    return TOCSIN_OK;
}

tocsin_status tocsin_nn_begin_result(tocsin_nn *nn, const tocsin_nn_tensor *tensor,
                                     tocsin_nn_mode mode, tocsin_nn_result *result)
{
    *result = (tocsin_nn_result){.then = TOCSIN_NN_DONE};
    bool merge = mode == TOCSIN_NN_MERGE && tensor->is_gradient;
    uint32_t version = current_version(nn, tensor);
    if (merge && is_sum(tensor) && !version) {
        result->then = TOCSIN_NN_ACCUMULATE;
        TOCSIN_TRY(sum_value(nn, tensor, &result->target));
    } else if (merge && version) {
        result->then = TOCSIN_NN_ADD;
        TOCSIN_TRY(touch_read(nn, tensor, TOCSIN_NN_EXACT, version));
        TOCSIN_TRY(version_value(nn, tensor, version, &result->with));
        TOCSIN_TRY(write_version(nn, tensor, &result->target));
    } else {
        if (merge)
            TOCSIN_TRY(touch_read(nn, tensor, TOCSIN_NN_EXACT, 0));
        return write_version(nn, tensor, &result->value);
    }
    return tocsin_nn_auxiliary(nn, tensor, tensor->size, tensor->ndim, &result->value);
}

tocsin_status tocsin_nn_end_result(tocsin_nn *nn, const tocsin_nn_result *result,
                                   const tocsin_nn_draft *draft)
{
    if (result->then == TOCSIN_NN_DONE)
        return TOCSIN_OK;
    bool add = result->then == TOCSIN_NN_ADD;
    tocsin_nn_draft follow;
    tocsin_nn_draft_init(&follow, add ? TOCSIN_OPERATOR_ADD : TOCSIN_OPERATOR_ACCUMULATE, draft);
    if (add)
        tocsin_nn_input(&follow, result->with);
    return tocsin_nn_emit_simple(nn, &follow, result->value, result->target);
}

/* ---- drafts ---------------------------------------------------------------------------------- */

void tocsin_nn_draft_init(tocsin_nn_draft *draft, tocsin_operator_code code,
                          const tocsin_nn_draft *like)
{
    assert(code < TOCSIN_OPERATOR_COUNT);
    draft->op = (tocsin_plan_op){
        .code = (uint16_t)code, .signature = TOCSIN_PLAN_NONE, .group = TOCSIN_PLAN_NONE};
    draft->attribute_count = draft->integer_count = 0;
    draft->status = TOCSIN_OK;
    if (like) {
        draft->op.phase = like->op.phase;
        draft->op.fqn = like->op.fqn;
        draft->op.source = like->op.source;
    }
}

void tocsin_nn_input(tocsin_nn_draft *draft, uint32_t value)
{
    if (draft->op.input_count == TOCSIN_NN_OPERANDS_MAX)
        draft->status = TOCSIN_E_LIMIT;
    else
        draft->inputs[draft->op.input_count++] = value;
}

void tocsin_nn_output(tocsin_nn_draft *draft, uint32_t value)
{
    if (draft->op.output_count == TOCSIN_NN_OPERANDS_MAX)
        draft->status = TOCSIN_E_LIMIT;
    else
        draft->outputs[draft->op.output_count++] = value;
}

static tocsin_attribute *new_attribute(tocsin_nn *nn, tocsin_nn_draft *draft, const char *key,
                                       tocsin_attribute_kind kind)
{
    uint32_t string = tocsin_plan_string(nn->plan, key, strlen(key));
    if (!string || draft->attribute_count == TOCSIN_PLAN_ATTRIBUTES_MAX) {
        draft->status = string ? TOCSIN_E_LIMIT : TOCSIN_E_MEMORY;
        return NULL;
    }
    tocsin_attribute *attribute = &draft->attributes[draft->attribute_count++];
    *attribute = (tocsin_attribute){.key = string, .kind = (uint8_t)kind};
    return attribute;
}

void tocsin_nn_set_integers(tocsin_nn *nn, tocsin_nn_draft *draft, const char *key,
                            const int64_t *values, uint32_t count)
{
    if (count > TOCSIN_NN_INTEGERS_MAX - draft->integer_count) {
        draft->status = TOCSIN_E_LIMIT;
        return;
    }
    tocsin_attribute *attribute = new_attribute(nn, draft, key, TOCSIN_ATTRIBUTE_INTEGERS);
    if (attribute) {
        int64_t *place = draft->integers + draft->integer_count;
        if (count)
            memcpy(place, values, count * sizeof *values);
        draft->integer_count += count;
        attribute->integers = place;
        attribute->count = count;
    }
}

void tocsin_nn_set_integer(tocsin_nn *nn, tocsin_nn_draft *draft, const char *key, int64_t value)
{
    tocsin_nn_set_integers(nn, draft, key, &value, 1);
}

void tocsin_nn_set_real(tocsin_nn *nn, tocsin_nn_draft *draft, const char *key, double value)
{
    tocsin_attribute *attribute = new_attribute(nn, draft, key, TOCSIN_ATTRIBUTE_REAL);
    if (attribute)
        attribute->real = value;
}

void tocsin_nn_set_text(tocsin_nn *nn, tocsin_nn_draft *draft, const char *key, const char *value)
{
    tocsin_attribute *attribute = new_attribute(nn, draft, key, TOCSIN_ATTRIBUTE_TEXT);
    if (attribute) {
        attribute->text = tocsin_plan_string(nn->plan, value, strlen(value));
        if (!attribute->text)
            draft->status = TOCSIN_E_MEMORY;
    }
}

tocsin_status tocsin_nn_emit(tocsin_nn *nn, tocsin_nn_draft *draft)
{
    if (draft->status == TOCSIN_E_MEMORY)
        return tocsin_error_memory(nn->error);
    if (draft->status != TOCSIN_OK)
        return tocsin_nn_fail(nn, draft->status, "an operator has too many operands or attributes");
    TOCSIN_TRY(tocsin_plan_add_attributes(nn->plan, draft->attributes, draft->attribute_count,
                                          &draft->op.attributes, nn->error));
    tocsin_nn_role *role = &nn->role;
    if (role->segment == TOCSIN_PLAN_NONE) {
        TOCSIN_TRY(tocsin_plan_begin_segment(nn->plan, role->segment_name, nn->error));
        role->segment = nn->plan->roles.items[nn->plan->roles.count - 1].segment_count - 1;
    }
    return tocsin_plan_add_op(nn->plan, &draft->op, draft->inputs, draft->outputs, nn->error);
}

tocsin_status tocsin_nn_emit_simple(tocsin_nn *nn, tocsin_nn_draft *draft, uint32_t input,
                                    uint32_t output)
{
    tocsin_nn_input(draft, input);
    tocsin_nn_output(draft, output);
    return tocsin_nn_emit(nn, draft);
}

/* ---- cells ----------------------------------------------------------------------------------- */

static bool fits(const tocsin_nn_role *role, const tocsin_nn_record *record)
{
    for (uint32_t i = 0; i < record->touch_count; ++i) {
        const tocsin_nn_touch *t = &role->touches.items[record->first_touch + i];
        if (t->kind == TOCSIN_NN_WRITTEN)
            continue;
        uint64_t key = (uint64_t)(role->microbatch + 1) << 40 | t->tensor;
        const uint64_t *version = tocsin_map_find(&role->current, key);
        uint64_t found = version ? *version : 0;
        if (found != t->version && (found != 0 || t->kind == TOCSIN_NN_EXACT))
            return false;
    }
    return true;
}

static bool replay(tocsin_nn_role *role, const tocsin_nn_record *record)
{
    for (uint32_t i = 0; i < record->touch_count; ++i) {
        const tocsin_nn_touch *t = &role->touches.items[record->first_touch + i];
        uint64_t key = (uint64_t)(role->microbatch + 1) << 40 | t->tensor;
        if (t->kind == TOCSIN_NN_WRITTEN && !tocsin_map_put(&role->current, key, t->version))
            return false;
    }
    return true;
}

tocsin_status tocsin_nn_begin_cell(tocsin_nn *nn, uint64_t cell, const char *kind,
                                   int32_t microbatch, bool *done)
{
    tocsin_nn_role *role = &nn->role;
    role->microbatch = microbatch;
    role->segment = TOCSIN_PLAN_NONE;
    role->first_touch = (uint32_t)role->touches.count;
    *done = false;
    uint32_t variants = 0;
    const uint64_t *first = tocsin_map_find(&role->first, cell);
    for (uint32_t next = first ? (uint32_t)*first : 0; next; ++variants) {
        const tocsin_nn_record *record = &role->records.items[next - 1];
        if (fits(role, record)) {
            *done = true;
            if (!replay(role, record))
                return tocsin_error_memory(nn->error);
            if (record->segment == TOCSIN_PLAN_NONE)
                return TOCSIN_OK;
            return tocsin_plan_add_turn(nn->plan, record->segment, microbatch, nn->error);
        }
        next = record->next;
    }
    char name[64];
    snprintf(name, sizeof name, variants ? "%s%llu.%u" : "%s%llu", kind, (unsigned long long)cell,
             variants + 1);
    role->segment_name = tocsin_plan_string(nn->plan, name, strlen(name));
    return role->segment_name ? TOCSIN_OK : tocsin_plan_string_error(nn->plan, nn->error);
}

tocsin_status tocsin_nn_end_cell(tocsin_nn *nn, uint64_t cell)
{
    tocsin_nn_role *role = &nn->role;
    uint64_t *first = tocsin_map_at(&role->first, cell);
    if (!first)
        return tocsin_error_memory(nn->error);
    tocsin_nn_record record = {.segment = role->segment,
                               .first_touch = role->first_touch,
                               .touch_count = (uint32_t)(role->touches.count - role->first_touch),
                               .next = (uint32_t)*first};
    if (!TOCSIN_VEC_PUSH(&role->records, record))
        return tocsin_error_memory(nn->error);
    *first = role->records.count;
    if (role->segment == TOCSIN_PLAN_NONE)
        return TOCSIN_OK;
    return tocsin_plan_add_turn(nn->plan, role->segment, role->microbatch, nn->error);
}
