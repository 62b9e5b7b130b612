/* builder.c - making a plan, statement by statement.
 *
 * Every call appends to the plan's flat arrays; what belongs to a role or segment goes to the one
 * begun last, so that their ranges stay contiguous. Attribute sets and signatures are interned by
 * canonical bytes: equal ones have one index, here and in every later comparison.
 * Invariant: all indices in the arrays are in range and every count is below its limit, whatever
 * the caller passes. What needs the whole plan is checked by tocsin_plan_finish (plan_check.c).
 * Cost: amortised O(size of what is added).
 */
#include "plan/plan.h"

#include <assert.h>

#define FORMAT(...) tocsin_error_set(error, TOCSIN_E_FORMAT, __VA_ARGS__)
#define LIMIT(...)  tocsin_error_set(error, TOCSIN_E_LIMIT, __VA_ARGS__)

/* Append to a vec with an explicit limit. */
#define PUSH(vec, limit, what, ...)                                                                \
    do {                                                                                           \
        if ((vec)->count >= (limit))                                                               \
            return LIMIT("a plan has at most %lld %s", (long long)(limit), what);                  \
        if (!TOCSIN_VEC_PUSH(vec, __VA_ARGS__))                                                    \
            return tocsin_error_memory(error);                                                     \
    } while (0)

/* ---- the plan and its strings -----------------------------------------------------------------
 */

/* A range of nothing, as a role's without segments or an operator's without operands, is pointed to
 * as any other is: the arrays exist. */
static bool reserve_ranges(tocsin_plan *plan)
{
    return TOCSIN_VEC_RESERVE(&plan->members, 1) && TOCSIN_VEC_RESERVE(&plan->values, 1) &&
           TOCSIN_VEC_RESERVE(&plan->dims, 1) && TOCSIN_VEC_RESERVE(&plan->starts, 1) &&
           TOCSIN_VEC_RESERVE(&plan->inputs, 1) && TOCSIN_VEC_RESERVE(&plan->outputs, 1) &&
           TOCSIN_VEC_RESERVE(&plan->segments, 1) && TOCSIN_VEC_RESERVE(&plan->turns, 1) &&
           TOCSIN_VEC_RESERVE(&plan->ops, 1) && TOCSIN_VEC_RESERVE(&plan->operands, 1);
}

static bool fill_new(tocsin_plan *plan)
{
    plan->replica_axis = TOCSIN_PLAN_NONE;
    plan->microbatches = 1;
    plan->strings.limit_count = TOCSIN_PLAN_VALUES_MAX;
    if (!reserve_ranges(plan))
        return false;
    if (tocsin_intern_put(&plan->strings, "", 0) != 1)
        return false;
    for (unsigned code = 0; code < TOCSIN_OPERATOR_COUNT; ++code) {
        const char *name = tocsin_operators[code].name;
        if (tocsin_intern_put(&plan->strings, name, strlen(name)) != code + 2)
            return false;
    }
    uint32_t set = 0;
    return tocsin_plan_add_attributes(plan, NULL, 0, &set, NULL) == TOCSIN_OK && set == 0;
}

tocsin_plan *tocsin_plan_new(void)
{
    tocsin_plan *plan = tocsin_zalloc(1, sizeof *plan);
    if (!plan)
        return NULL;
    if (!fill_new(plan)) {
        tocsin_plan_free(plan);
        return NULL;
    }
    return plan;
}

uint32_t tocsin_plan_string(tocsin_plan *plan, const char *text, size_t bytes)
{
    return tocsin_intern_put(&plan->strings, text, bytes);
}

tocsin_status tocsin_plan_string_error(const tocsin_plan *plan, tocsin_error *error)
{
    if (tocsin_intern_count(&plan->strings) >= plan->strings.limit_count)
        return LIMIT("a plan has at most %d names", TOCSIN_PLAN_VALUES_MAX);
    return tocsin_error_memory(error);
}

static bool is_string(const tocsin_plan *plan, uint32_t id)
{
    return id >= 1 && id <= tocsin_intern_count(&plan->strings);
}

/* ---- mesh, micro-batches, groups --------------------------------------------------------------
 */

tocsin_status tocsin_plan_add_axis(tocsin_plan *plan, const char *name, uint32_t size,
                                   bool is_replica, tocsin_error *error)
{
    if (plan->groups.count > 0 || plan->roles.count > 0)
        return FORMAT("the mesh comes before groups and roles");
    if (plan->axis_count == TOCSIN_PLAN_AXES_MAX)
        return LIMIT("a mesh has at most %d axes", TOCSIN_PLAN_AXES_MAX);
    if (is_replica && plan->replica_axis != TOCSIN_PLAN_NONE)
        return FORMAT("a mesh has at most one replica axis, and %s would be the second", name);
    uint64_t ranks = (uint64_t)tocsin_plan_devices(plan) * tocsin_plan_replicas(plan);
    if (size == 0)
        return FORMAT("axis %s of the mesh has size 0", name);
    if (ranks * size > TOCSIN_PLAN_RANKS_MAX)
        return LIMIT("a mesh has at most %d ranks", TOCSIN_PLAN_RANKS_MAX);
    uint32_t id = tocsin_plan_string(plan, name, strlen(name));
    if (id == 0)
        return tocsin_plan_string_error(plan, error);
    for (uint32_t i = 0; i < plan->axis_count; ++i) {
        if (plan->axes[i].name == id)
            return FORMAT("the mesh has two axes %s", name);
    }
    if (is_replica)
        plan->replica_axis = plan->axis_count;
    plan->axes[plan->axis_count++] = (tocsin_plan_axis){.name = id, .size = size};
    return TOCSIN_OK;
}

tocsin_status tocsin_plan_set_microbatches(tocsin_plan *plan, uint64_t count, tocsin_error *error)
{
    if (count == 0)
        return FORMAT("a step has at least one micro-batch");
    if (count > TOCSIN_PLAN_MICROBATCHES_MAX)
        return LIMIT("a step has at most %d micro-batches", TOCSIN_PLAN_MICROBATCHES_MAX);
    plan->microbatches = (uint32_t)count;
    return TOCSIN_OK;
}

/* Members in range, of one kind. */
static tocsin_status check_members(const tocsin_plan *plan, const char *name,
                                   const tocsin_plan_member *members, uint32_t count,
                                   tocsin_error *error)
{
    uint32_t devices = tocsin_plan_devices(plan), replicas = tocsin_plan_replicas(plan);
    for (uint32_t i = 0; i < count; ++i) {
        int32_t replica = members[i].replica;
        if (members[i].device >= devices)
            return FORMAT("member %u of group %s is device %u of %u", i, name, members[i].device,
                          devices);
        if (replica < TOCSIN_MEMBER_ALL || replica >= (int64_t)replicas)
            return FORMAT("member %u of group %s is of replica %d of %u", i, name, replica,
                          replicas);
        int32_t first = members[0].replica;
        if ((replica < 0 || first < 0) && replica != first)
            return FORMAT("the members of group %s name all replicas, one each, or none, but not "
                          "some of one kind and some of another",
                          name);
    }
    return TOCSIN_OK;
}

/* No rank twice. Members in ascending order, the usual case, need no table. */
static tocsin_status check_distinct(const char *name, const tocsin_plan_member *members,
                                    uint32_t count, tocsin_error *error)
{
    bool ascending = true;
    for (uint32_t i = 1; i < count && ascending; ++i)
        ascending = members[i - 1].device < members[i].device;
    if (ascending)
        return TOCSIN_OK;
    tocsin_map seen = {0};
    tocsin_status status = TOCSIN_OK;
    for (uint32_t i = 0; i < count && status == TOCSIN_OK; ++i) {
        uint64_t key = (uint64_t)members[i].device << 32 | (uint32_t)members[i].replica;
        uint64_t *at = tocsin_map_at(&seen, key);
        if (!at)
            status = tocsin_error_memory(error);
        else if (*at)
            status = FORMAT("group %s has the same member twice, at %u and %u", name,
                            (unsigned)(*at - 1), i);
        else
            *at = (uint64_t)i + 1;
    }
    tocsin_map_free(&seen);
    return status;
}

tocsin_status tocsin_plan_add_group(tocsin_plan *plan, const char *name,
                                    const tocsin_plan_member *members, uint32_t count,
                                    uint32_t *group, tocsin_error *error)
{
    if (count == 0)
        return FORMAT("group %s has no members", name);
    if (count > TOCSIN_PLAN_VALUES_MAX - plan->members.count)
        return LIMIT("a plan has at most %d members of groups", TOCSIN_PLAN_VALUES_MAX);
    TOCSIN_TRY(check_members(plan, name, members, count, error));
    TOCSIN_TRY(check_distinct(name, members, count, error));
    uint32_t id = tocsin_plan_string(plan, name, strlen(name));
    if (id == 0)
        return tocsin_plan_string_error(plan, error);
    tocsin_plan_group added = {
        .name = id, .first_member = (uint32_t)plan->members.count, .member_count = count};
    if (!TOCSIN_VEC_RESERVE(&plan->members, count))
        return tocsin_error_memory(error);
    PUSH(&plan->groups, TOCSIN_PLAN_RANKS_MAX, "groups", added);
    for (uint32_t i = 0; i < count; ++i) {
        tocsin_plan_member member = members[i];
        if (plan->replica_axis == TOCSIN_PLAN_NONE)
            member.replica = TOCSIN_MEMBER_SAME; /* the only one, in one notation */
        plan->members.items[plan->members.count++] = member;
    }
    *group = (uint32_t)plan->groups.count - 1;
    return TOCSIN_OK;
}

/* ---- attributes and signatures ----------------------------------------------------------------
 */

static int compare_keys(const tocsin_plan *plan, uint32_t a, uint32_t b)
{
    return strcmp(tocsin_plan_text(plan, a), tocsin_plan_text(plan, b));
}

/* Sort by key (few items: insertion), refuse doubles and what is out of range. */
static tocsin_status sort_attributes(const tocsin_plan *plan, const tocsin_attribute *items,
                                     uint32_t count, tocsin_attribute *sorted, tocsin_error *error)
{
    for (uint32_t i = 0; i < count; ++i) {
        tocsin_attribute item = items[i];
        if (!is_string(plan, item.key) || item.key == 1)
            return FORMAT("an attribute without a key");
        const char *key = tocsin_plan_text(plan, item.key);
        if (item.kind > TOCSIN_ATTRIBUTE_TEXT ||
            (item.kind == TOCSIN_ATTRIBUTE_TEXT && !is_string(plan, item.text)))
            return FORMAT("attribute %s is neither integers nor a real nor a text", key);
        if (item.kind == TOCSIN_ATTRIBUTE_INTEGERS && item.count > TOCSIN_PLAN_INTEGERS_MAX)
            return LIMIT("attribute %s has more than %d integers", key, TOCSIN_PLAN_INTEGERS_MAX);
        uint32_t at = i;
        while (at > 0 && compare_keys(plan, sorted[at - 1].key, item.key) > 0) {
            sorted[at] = sorted[at - 1];
            --at;
        }
        if (at > 0 && sorted[at - 1].key == item.key)
            return FORMAT("attribute %s is given twice", key);
        sorted[at] = item;
    }
    return TOCSIN_OK;
}

/* The bytes by which the set is interned. All NaNs are one value. */
static void append_attribute_key(const tocsin_attribute *item, tocsin_string *key)
{
    uint32_t head[3] = {item->key, item->kind, 0};
    if (item->kind == TOCSIN_ATTRIBUTE_INTEGERS)
        head[2] = item->count;
    else if (item->kind == TOCSIN_ATTRIBUTE_TEXT)
        head[2] = item->text;
    tocsin_string_append(key, head, sizeof head);
    if (item->kind == TOCSIN_ATTRIBUTE_INTEGERS && item->count > 0) {
        tocsin_string_append(key, item->integers, item->count * sizeof *item->integers);
    } else if (item->kind == TOCSIN_ATTRIBUTE_REAL) {
        double real = item->real == item->real ? item->real : (double)__builtin_nanf("");
        tocsin_string_append(key, &real, sizeof real);
    }
}

/* A copy in the plan's arena, integers included. */
static tocsin_attribute *copy_attributes(tocsin_plan *plan, const tocsin_attribute *items,
                                         size_t count)
{
    tocsin_attribute *copy = TOCSIN_ARENA_ARRAY(&plan->arena, tocsin_attribute, count);
    for (size_t i = 0; copy && i < count; ++i) {
        copy[i] = (tocsin_attribute){.key = items[i].key, .kind = items[i].kind};
        if (copy[i].kind == TOCSIN_ATTRIBUTE_REAL)
            copy[i].real = items[i].real;
        if (copy[i].kind == TOCSIN_ATTRIBUTE_TEXT)
            copy[i].text = items[i].text;
        if (copy[i].kind != TOCSIN_ATTRIBUTE_INTEGERS)
            continue;
        int64_t *integers = TOCSIN_ARENA_ARRAY(&plan->arena, int64_t, (size_t)items[i].count);
        if (!integers)
            return NULL;
        if (items[i].count > 0)
            memcpy(integers, items[i].integers, items[i].count * sizeof *integers);
        copy[i].integers = integers;
        copy[i].count = items[i].count;
    }
    return copy;
}

/* The set of this key. What a new one needs is allocated before its id is given, so that a failure
 * cannot leave an id without a set. */
static tocsin_status intern_attributes(tocsin_plan *plan, const tocsin_string *key,
                                       const tocsin_attribute *sorted, uint32_t count,
                                       uint32_t *attribute_set, tocsin_error *error)
{
    TOCSIN_TRY(tocsin_string_check(key, error));
    uint32_t id = tocsin_intern_find(&plan->attribute_keys, key->text, key->bytes);
    if (id == 0) {
        tocsin_attribute *copy = copy_attributes(plan, sorted, count);
        if (!copy || !TOCSIN_VEC_RESERVE(&plan->attribute_sets, 1))
            return tocsin_error_memory(error);
        id = tocsin_intern_put(&plan->attribute_keys, key->text, key->bytes);
        if (id == 0)
            return tocsin_error_memory(error);
        assert(id == plan->attribute_sets.count + 1);
        plan->attribute_sets.items[plan->attribute_sets.count++] =
            (tocsin_attribute_set){.items = copy, .count = count};
    }
    *attribute_set = id - 1;
    return TOCSIN_OK;
}

tocsin_status tocsin_plan_add_attributes(tocsin_plan *plan, const tocsin_attribute *items,
                                         uint32_t count, uint32_t *attribute_set,
                                         tocsin_error *error)
{
    tocsin_attribute sorted[TOCSIN_PLAN_ATTRIBUTES_MAX];
    if (count > TOCSIN_PLAN_ATTRIBUTES_MAX)
        return LIMIT("an operator has at most %d attributes", TOCSIN_PLAN_ATTRIBUTES_MAX);
    TOCSIN_TRY(sort_attributes(plan, items, count, sorted, error));
    tocsin_string key = {0};
    for (uint32_t i = 0; i < count; ++i)
        append_attribute_key(&sorted[i], &key);
    tocsin_status status = intern_attributes(plan, &key, sorted, count, attribute_set, error);
    tocsin_string_free(&key);
    return status;
}

/* The index of a parsed signature, by its canonical text. */
static tocsin_status intern_signature(tocsin_plan *plan, tocsin_signature *signature,
                                      uint32_t *index, tocsin_error *error)
{
    tocsin_string canonical = {0};
    tocsin_signature_write(signature, true, &canonical);
    tocsin_status status = tocsin_string_check(&canonical, error);
    if (status == TOCSIN_OK && !TOCSIN_VEC_RESERVE(&plan->signatures, 1))
        status = tocsin_error_memory(error);
    if (status == TOCSIN_OK) {
        uint32_t id = tocsin_intern_put(&plan->signature_keys, canonical.text, canonical.bytes);
        if (id == 0) {
            status = tocsin_error_memory(error);
        } else {
            signature->text = tocsin_intern_text(&plan->signature_keys, id, NULL);
            if (id > plan->signatures.count)
                plan->signatures.items[plan->signatures.count++] = *signature;
            assert(id <= plan->signatures.count);
            *index = id - 1;
        }
    }
    tocsin_string_free(&canonical);
    return status;
}

tocsin_status tocsin_plan_add_signature(tocsin_plan *plan, const char *text, size_t bytes,
                                        uint32_t *signature, tocsin_error *error)
{
    uint32_t source = tocsin_intern_find(&plan->signature_sources, text, bytes);
    if (source == 0) {
        tocsin_signature parsed;
        uint32_t index = 0;
        TOCSIN_TRY(tocsin_signature_parse(text, bytes, &parsed, error));
        TOCSIN_TRY(intern_signature(plan, &parsed, &index, error));
        if (!TOCSIN_VEC_RESERVE(&plan->signature_of_source, 1))
            return tocsin_error_memory(error);
        source = tocsin_intern_put(&plan->signature_sources, text, bytes);
        if (source == 0)
            return tocsin_error_memory(error);
        assert(source == plan->signature_of_source.count + 1);
        plan->signature_of_source.items[plan->signature_of_source.count++] = index;
    }
    *signature = plan->signature_of_source.items[source - 1];
    return TOCSIN_OK;
}

/* ---- roles ------------------------------------------------------------------------------------
 */

static tocsin_plan_role *last_role(tocsin_plan *plan)
{
    return plan->roles.count ? &plan->roles.items[plan->roles.count - 1] : NULL;
}

tocsin_status tocsin_plan_begin_role(tocsin_plan *plan, uint32_t device, uint32_t first_replica,
                                     uint32_t replica_count, tocsin_error *error)
{
    uint32_t devices = tocsin_plan_devices(plan), replicas = tocsin_plan_replicas(plan);
    if (device >= devices)
        return FORMAT("a role of device %u, but the mesh has %u", device, devices);
    if (replica_count == 0 || first_replica >= replicas || replica_count > replicas - first_replica)
        return FORMAT("a role of %u replicas from %u on, but the mesh has %u", replica_count,
                      first_replica, replicas);
    tocsin_plan_role role = {
        .device = device,
        .first_replica = first_replica,
        .replica_count = replica_count,
        .first_value = (uint32_t)plan->values.count,
        .first_input = (uint32_t)plan->inputs.count,
        .first_segment = (uint32_t)plan->segments.count,
        .first_turn = (uint32_t)plan->turns.count,
        .first_output = (uint32_t)plan->outputs.count,
    };
    PUSH(&plan->roles, TOCSIN_PLAN_RANKS_MAX, "roles", role);
    return TOCSIN_OK;
}

/* Check a type and append its shape to dims. */
static tocsin_status add_shape(tocsin_plan *plan, const tocsin_plan_value *value,
                               const int64_t *shape, tocsin_error *error)
{
    int64_t elements = 1;
    if (value->ndim > TOCSIN_PLAN_NDIM_MAX)
        return LIMIT("a value has at most %d dims", TOCSIN_PLAN_NDIM_MAX);
    if (plan->dims.count > TOCSIN_PLAN_OPERAND_TOTAL_MAX - TOCSIN_PLAN_NDIM_MAX)
        return LIMIT("a plan has at most %d dims", TOCSIN_PLAN_OPERAND_TOTAL_MAX);
    for (uint32_t d = 0; d < value->ndim; ++d) {
        if (shape[d] < 1 || shape[d] > TOCSIN_PLAN_INDEX_MAX)
            return LIMIT("the size %lld of dim %u of %s is not from 1 to 2^47", (long long)shape[d],
                         d, tocsin_plan_text(plan, value->name));
        if (__builtin_mul_overflow(elements, shape[d], &elements) ||
            elements >= TOCSIN_PLAN_ELEMENTS_MAX)
            return LIMIT("%s has 2^62 elements or more", tocsin_plan_text(plan, value->name));
    }
    if (!TOCSIN_VEC_RESERVE(&plan->dims, value->ndim))
        return tocsin_error_memory(error);
    if (value->ndim > 0)
        memcpy(plan->dims.items + plan->dims.count, shape, value->ndim * sizeof *shape);
    plan->dims.count += value->ndim;
    return TOCSIN_OK;
}

tocsin_status tocsin_plan_add_value(tocsin_plan *plan, const tocsin_plan_value *value,
                                    const int64_t *shape, uint32_t *id, tocsin_error *error)
{
    tocsin_plan_role *role = last_role(plan);
    if (!role)
        return FORMAT("a value outside of a role");
    if (!is_string(plan, value->name) || value->name == 1)
        return FORMAT("a value without a name");
    tocsin_plan_value added = *value;
    added.first_dim = (uint32_t)plan->dims.count;
    if (added.ndim != TOCSIN_PLAN_NDIM_UNKNOWN)
        TOCSIN_TRY(add_shape(plan, value, shape, error));
    PUSH(&plan->values, TOCSIN_PLAN_VALUES_MAX, "values", added);
    *id = role->value_count++;
    return TOCSIN_OK;
}

/* The value `id` of the role begun last, or NULL. */
static tocsin_plan_value *value_at(tocsin_plan *plan, uint32_t id)
{
    tocsin_plan_role *role = last_role(plan);
    return role && id < role->value_count ? &plan->values.items[role->first_value + id] : NULL;
}

tocsin_status tocsin_plan_define_value(tocsin_plan *plan, uint32_t id,
                                       const tocsin_plan_value *value, const int64_t *shape,
                                       tocsin_error *error)
{
    tocsin_plan_value *defined = value_at(plan, id);
    if (!defined || defined->ndim != TOCSIN_PLAN_NDIM_UNKNOWN || defined->name != value->name)
        return FORMAT("no value of which only the name is known");
    uint32_t first_dim = (uint32_t)plan->dims.count;
    TOCSIN_TRY(add_shape(plan, value, shape, error));
    *defined = *value;
    defined->first_dim = first_dim;
    return TOCSIN_OK;
}

/* Append the starts of a slice; each within +-2^47, weights too. */
static tocsin_status add_starts(tocsin_plan *plan, const tocsin_plan_value *value,
                                const tocsin_affine *starts, tocsin_error *error)
{
    for (uint32_t d = 0; d < value->ndim; ++d) {
        int64_t parts[] = {starts[d].base, starts[d].weight[0], starts[d].weight[1]};
        for (unsigned i = 0; i < TOCSIN_COUNT_OF(parts); ++i) {
            if (parts[i] < -TOCSIN_PLAN_INDEX_MAX || parts[i] > TOCSIN_PLAN_INDEX_MAX)
                return LIMIT("dim %u of the slice of %s starts beyond 2^47", d,
                             tocsin_plan_text(plan, value->name));
        }
    }
    if (plan->starts.count > TOCSIN_PLAN_OPERAND_TOTAL_MAX - TOCSIN_PLAN_NDIM_MAX)
        return LIMIT("a plan has at most %d starts of slices", TOCSIN_PLAN_OPERAND_TOTAL_MAX);
    if (!TOCSIN_VEC_RESERVE(&plan->starts, value->ndim))
        return tocsin_error_memory(error);
    for (uint32_t d = 0; d < value->ndim; ++d) {
        tocsin_affine start = starts[d];
        if (plan->replica_axis == TOCSIN_PLAN_NONE)
            start.weight[TOCSIN_SYMBOL_REPLICA] = 0; /* the only replica is 0 */
        plan->starts.items[plan->starts.count++] = start;
    }
    return TOCSIN_OK;
}

tocsin_status tocsin_plan_add_input(tocsin_plan *plan, uint32_t value, uint32_t name,
                                    const tocsin_affine *starts, tocsin_error *error)
{
    tocsin_plan_value *of = value_at(plan, value);
    if (!of || of->ndim == TOCSIN_PLAN_NDIM_UNKNOWN)
        return FORMAT("an input without a value");
    if (!is_string(plan, name) || name == 1)
        return FORMAT("the input %s without a logical name", tocsin_plan_text(plan, of->name));
    tocsin_plan_input input = {
        .value = value, .name = name, .first_start = (uint32_t)plan->starts.count};
    TOCSIN_TRY(add_starts(plan, of, starts, error));
    PUSH(&plan->inputs, TOCSIN_PLAN_VALUES_MAX, "inputs", input);
    of->persistent = !of->per_microbatch;
    ++last_role(plan)->input_count;
    return TOCSIN_OK;
}

tocsin_status tocsin_plan_add_output(tocsin_plan *plan, const tocsin_plan_output *output,
                                     const tocsin_affine *starts, tocsin_error *error)
{
    const tocsin_plan_value *of = value_at(plan, output->value);
    if (!of)
        return FORMAT("an output without a value");
    if (!is_string(plan, output->name) || output->name == 1 || output->kind > TOCSIN_OUTPUT_OTHER)
        return FORMAT("the output %s without a name and kind", tocsin_plan_text(plan, of->name));
    for (unsigned s = 0; s < TOCSIN_SYMBOL_COUNT; ++s) {
        if (output->fold[s] > TOCSIN_FOLD_MEAN)
            return FORMAT("the output %s has an unknown fold", tocsin_plan_text(plan, of->name));
    }
    if (of->ndim == TOCSIN_PLAN_NDIM_UNKNOWN)
        return FORMAT("the output %s is a value that nothing writes",
                      tocsin_plan_text(plan, of->name));
    tocsin_plan_output added = *output;
    added.first_start = (uint32_t)plan->starts.count;
    TOCSIN_TRY(add_starts(plan, of, starts, error));
    PUSH(&plan->outputs, TOCSIN_PLAN_VALUES_MAX, "outputs", added);
    ++last_role(plan)->output_count;
    return TOCSIN_OK;
}

/* ---- segments, operators, schedule ------------------------------------------------------------
 */

tocsin_status tocsin_plan_begin_segment(tocsin_plan *plan, uint32_t name, tocsin_error *error)
{
    tocsin_plan_role *role = last_role(plan);
    if (!role)
        return FORMAT("a segment outside of a role");
    if (!is_string(plan, name) || name == 1)
        return FORMAT("a segment without a name");
    tocsin_plan_segment segment = {.name = name, .first_op = (uint32_t)plan->ops.count};
    PUSH(&plan->segments, TOCSIN_PLAN_OPS_MAX, "segments", segment);
    ++role->segment_count;
    return TOCSIN_OK;
}

/* Is everything that the operator refers to there? Fills what may be left out. */
static tocsin_status complete_op(const tocsin_plan *plan, tocsin_plan_op *op, tocsin_error *error)
{
    if (op->code >= TOCSIN_OPERATOR_COUNT || op->phase > TOCSIN_PHASE_RECOMPUTE)
        return FORMAT("an operator of unknown code or phase");
    op->flawed = false;
    if (op->code != TOCSIN_OPERATOR_CALL)
        op->name = op->code + 2u; /* fill_new */
    op->label = op->label ? op->label : 1;
    op->fqn = op->fqn ? op->fqn : 1;
    op->source = op->source ? op->source : 1;
    if (!is_string(plan, op->name) || op->name == 1 || !is_string(plan, op->label) ||
        !is_string(plan, op->fqn) || !is_string(plan, op->source))
        return FORMAT("an operator without a name, or with a label, module or source of no name");
    const char *name = tocsin_plan_text(plan, op->name);
    if (op->signature != TOCSIN_PLAN_NONE && op->signature >= plan->signatures.count)
        return FORMAT("operator %s has a signature that was not added", name);
    if (op->signature != TOCSIN_PLAN_NONE && op->code != TOCSIN_OPERATOR_CALL)
        return FORMAT("operator %s has a signature of its own, but is not a call", name);
    if (op->code == TOCSIN_OPERATOR_CALL && op->signature == TOCSIN_PLAN_NONE && op->name > 2 &&
        op->name < TOCSIN_OPERATOR_COUNT + 2)
        return FORMAT("a call of %s, which is a known operator, needs a signature", name);
    if (op->attributes >= plan->attribute_sets.count)
        return FORMAT("operator %s has attributes that were not added", name);
    if (op->group != TOCSIN_PLAN_NONE && op->group >= plan->groups.count)
        return FORMAT("operator %s has a group that was not added", name);
    return TOCSIN_OK;
}

static tocsin_status add_operands(tocsin_plan *plan, const char *name, const uint32_t *values,
                                  uint32_t count, tocsin_error *error)
{
    uint32_t value_count = last_role(plan)->value_count;
    for (uint32_t i = 0; i < count; ++i) {
        if (values[i] >= value_count)
            return FORMAT("operator %s has an operand %u of %u values", name, values[i],
                          value_count);
    }
    if (!TOCSIN_VEC_RESERVE(&plan->operands, count))
        return tocsin_error_memory(error);
    if (count > 0)
        memcpy(plan->operands.items + plan->operands.count, values, count * sizeof *values);
    plan->operands.count += count;
    return TOCSIN_OK;
}

tocsin_status tocsin_plan_add_op(tocsin_plan *plan, const tocsin_plan_op *op,
                                 const uint32_t *inputs, const uint32_t *outputs,
                                 tocsin_error *error)
{
    tocsin_plan_role *role = last_role(plan);
    if (!role || role->segment_count == 0)
        return FORMAT("an operator outside of a segment");
    tocsin_plan_op added = *op;
    TOCSIN_TRY(complete_op(plan, &added, error));
    const char *name = tocsin_plan_text(plan, added.name);
    if (op->input_count > TOCSIN_PLAN_OPERANDS_MAX || op->output_count > TOCSIN_PLAN_OPERANDS_MAX)
        return LIMIT("operator %s has more than %d inputs or outputs", name,
                     TOCSIN_PLAN_OPERANDS_MAX);
    if (plan->operands.count > TOCSIN_PLAN_OPERAND_TOTAL_MAX - 2 * TOCSIN_PLAN_OPERANDS_MAX)
        return LIMIT("a plan has at most %d operands", TOCSIN_PLAN_OPERAND_TOTAL_MAX);
    added.first_operand = (uint32_t)plan->operands.count;
    TOCSIN_TRY(add_operands(plan, name, inputs, op->input_count, error));
    TOCSIN_TRY(add_operands(plan, name, outputs, op->output_count, error));
    PUSH(&plan->ops, TOCSIN_PLAN_OPS_MAX, "operators", added);
    ++plan->segments.items[plan->segments.count - 1].op_count;
    return TOCSIN_OK;
}

tocsin_status tocsin_plan_add_turn(tocsin_plan *plan, uint32_t segment, int32_t microbatch,
                                   tocsin_error *error)
{
    tocsin_plan_role *role = last_role(plan);
    if (!role || segment >= role->segment_count)
        return FORMAT("the schedule names a segment that the role does not have");
    if (microbatch < -1 || microbatch >= (int64_t)plan->microbatches)
        return FORMAT("the schedule names micro-batch %d of %u", microbatch, plan->microbatches);
    tocsin_plan_turn turn = {.segment = segment, .microbatch = microbatch};
    PUSH(&plan->turns, TOCSIN_PLAN_VALUES_MAX, "turns in schedules", turn);
    ++role->turn_count;
    return TOCSIN_OK;
}

tocsin_status tocsin_plan_assume(tocsin_plan *plan, const char *text, tocsin_error *error)
{
    uint32_t id = tocsin_plan_string(plan, text, strlen(text));
    if (id == 0)
        return tocsin_plan_string_error(plan, error);
    for (size_t i = 0; i < plan->assumptions.count; ++i) {
        if (plan->assumptions.items[i] == id)
            return TOCSIN_OK;
    }
    PUSH(&plan->assumptions, TOCSIN_PLAN_RANKS_MAX, "assumptions", id);
    return TOCSIN_OK;
}
