/* plan.c - what a plan says about itself: accessors, numbering of ranks, size.
 *
 * Ranks are numbered row-major over all axes of the mesh; devices likewise, over the axes other
 * than the replica axis. Every accessor is O(axes) or O(attributes of one operator).
 */
#include "plan/plan.h"

#include <assert.h>

const char *tocsin_plan_text(const tocsin_plan *plan, uint32_t string)
{
    const char *text = tocsin_intern_text(&plan->strings, string, NULL);
    assert(text);
    return text;
}

uint32_t tocsin_plan_replicas(const tocsin_plan *plan)
{
    return plan->replica_axis == TOCSIN_PLAN_NONE ? 1 : plan->axes[plan->replica_axis].size;
}

uint32_t tocsin_plan_devices(const tocsin_plan *plan)
{
    uint32_t count = 1; /* at most TOCSIN_PLAN_RANKS_MAX */
    for (uint32_t i = 0; i < plan->axis_count; ++i)
        count *= i == plan->replica_axis ? 1 : plan->axes[i].size;
    return count;
}

void tocsin_plan_coordinates(const tocsin_plan *plan, uint32_t device,
                             uint32_t coordinates[TOCSIN_PLAN_AXES_MAX])
{
    assert(device < tocsin_plan_devices(plan));
    for (uint32_t i = plan->axis_count; i-- > 0;) {
        coordinates[i] = 0;
        if (i != plan->replica_axis) {
            coordinates[i] = device % plan->axes[i].size;
            device /= plan->axes[i].size;
        }
    }
    assert(device == 0);
}

uint32_t tocsin_plan_rank(const tocsin_plan *plan, uint32_t device, uint32_t replica)
{
    uint32_t coordinates[TOCSIN_PLAN_AXES_MAX];
    tocsin_plan_coordinates(plan, device, coordinates);
    assert(replica < tocsin_plan_replicas(plan));
    uint32_t rank = 0;
    for (uint32_t i = 0; i < plan->axis_count; ++i)
        rank = rank * plan->axes[i].size + (i == plan->replica_axis ? replica : coordinates[i]);
    return rank;
}

void tocsin_plan_device_text(const tocsin_plan *plan, uint32_t device, tocsin_string *text)
{
    uint32_t coordinates[TOCSIN_PLAN_AXES_MAX];
    tocsin_plan_coordinates(plan, device, coordinates);
    const char *separator = "";
    for (uint32_t i = 0; i < plan->axis_count; ++i) {
        if (i == plan->replica_axis)
            continue;
        tocsin_string_printf(text, "%s%s=%u", separator, tocsin_plan_text(plan, plan->axes[i].name),
                             coordinates[i]);
        separator = " ";
    }
}

const tocsin_attribute *tocsin_plan_attribute(const tocsin_plan *plan, uint32_t attribute_set,
                                              const char *key)
{
    assert(attribute_set < plan->attribute_sets.count);
    tocsin_attribute_set set = plan->attribute_sets.items[attribute_set];
    for (uint32_t i = 0; i < set.count; ++i) {
        if (strcmp(tocsin_plan_text(plan, set.items[i].key), key) == 0)
            return &set.items[i];
    }
    return NULL;
}

uint64_t tocsin_plan_group_size(const tocsin_plan *plan, uint32_t group)
{
    assert(group < plan->groups.count);
    tocsin_plan_group g = plan->groups.items[group];
    bool all = plan->members.items[g.first_member].replica == TOCSIN_MEMBER_ALL;
    return (uint64_t)g.member_count * (all ? tocsin_plan_replicas(plan) : 1);
}

const tocsin_plan_flaw *tocsin_plan_flaw_of(const tocsin_plan *plan, uint32_t op)
{
    size_t low = 0, high = plan->flaws.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (plan->flaws.items[middle].op < op)
            low = middle + 1;
        else
            high = middle;
    }
    assert(low < plan->flaws.count && plan->flaws.items[low].op == op);
    return &plan->flaws.items[low];
}

tocsin_plan_size tocsin_plan_get_size(const tocsin_plan *plan)
{
    tocsin_plan_size size = {
        .roles = plan->roles.count,
        .ranks = (uint64_t)tocsin_plan_devices(plan) * tocsin_plan_replicas(plan),
        .operators = plan->ops.count,
    };
    for (size_t r = 0; r < plan->roles.count; ++r) {
        const tocsin_plan_role *role = &plan->roles.items[r];
        uint64_t executions = 0; /* below 2^26 turns x 2^24 ops */
        for (uint32_t t = 0; t < role->turn_count; ++t) {
            uint32_t segment = plan->turns.items[role->first_turn + t].segment;
            executions += plan->segments.items[role->first_segment + segment].op_count;
        }
        if (__builtin_mul_overflow(executions, role->replica_count, &executions) ||
            __builtin_add_overflow(size.executions, executions, &size.executions))
            size.executions = UINT64_MAX;
    }
    return size;
}

void tocsin_plan_free(tocsin_plan *plan)
{
    if (!plan)
        return;
    tocsin_intern_free(&plan->strings);
    TOCSIN_VEC_FREE(&plan->groups);
    TOCSIN_VEC_FREE(&plan->members);
    TOCSIN_VEC_FREE(&plan->roles);
    TOCSIN_VEC_FREE(&plan->values);
    TOCSIN_VEC_FREE(&plan->dims);
    TOCSIN_VEC_FREE(&plan->starts);
    TOCSIN_VEC_FREE(&plan->inputs);
    TOCSIN_VEC_FREE(&plan->outputs);
    TOCSIN_VEC_FREE(&plan->segments);
    TOCSIN_VEC_FREE(&plan->turns);
    TOCSIN_VEC_FREE(&plan->ops);
    TOCSIN_VEC_FREE(&plan->operands);
    TOCSIN_VEC_FREE(&plan->attribute_sets);
    TOCSIN_VEC_FREE(&plan->signatures);
    TOCSIN_VEC_FREE(&plan->assumptions);
    TOCSIN_VEC_FREE(&plan->flaws);
    tocsin_arena_free(&plan->arena);
    tocsin_intern_free(&plan->attribute_keys);
    tocsin_intern_free(&plan->signature_keys);
    tocsin_intern_free(&plan->signature_sources);
    TOCSIN_VEC_FREE(&plan->signature_of_source);
    tocsin_free(plan);
}

/* ---- which values differ between micro-batches? */

static bool runs_per_microbatch(const tocsin_plan *plan, const tocsin_plan_role *role,
                                uint32_t segment)
{
    for (uint32_t t = 0; t < role->turn_count; t++) {
        const tocsin_plan_turn *turn = &plan->turns.items[role->first_turn + t];
        if (turn->segment == segment && turn->microbatch >= 0)
            return true;
    }
    return false;
}

/* each[first_value + value] = 1 when a segment that runs for every micro-batch makes the value. */
static void mark_role(const tocsin_plan *plan, const tocsin_plan_role *role, uint8_t *each)
{
    for (uint32_t v = 0; v < role->value_count; v++)
        each[role->first_value + v] = plan->values.items[role->first_value + v].per_microbatch;
    for (uint32_t s = 0; s < role->segment_count; s++) {
        if (!runs_per_microbatch(plan, role, s))
            continue;
        const tocsin_plan_segment *segment = &plan->segments.items[role->first_segment + s];
        for (uint32_t k = 0; k < segment->op_count; k++) {
            const tocsin_plan_op *op = &plan->ops.items[segment->first_op + k];
            const uint32_t *outputs = plan->operands.items + op->first_operand + op->input_count;
            for (uint32_t j = 0; j < op->output_count; j++)
                each[role->first_value + outputs[j]] =
                    !plan->values.items[role->first_value + outputs[j]].persistent;
        }
    }
}

void tocsin_plan_mark_microbatches(const tocsin_plan *plan, uint8_t *each)
{
    for (size_t r = 0; r < plan->roles.count; r++)
        mark_role(plan, &plan->roles.items[r], each);
}
