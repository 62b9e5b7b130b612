/* conform_plan.c - the communication of one rank in one step, as its plan has it.
 *
 * The role of the rank is followed through its schedule; groups are resolved to global ranks.
 * Cost: linear in the calls of the rank, and in the members of the groups it uses.
 */
#include <assert.h>

#include "prove/conform.h"

enum { CALLS_MAX = 1 << 24, MEMBERS_MAX = 1 << 22 };

typedef struct rank_planner {
    const tocsin_plan *plan;
    const tocsin_plan_role *role;
    uint32_t replica;
    tocsin_intern *groups;
    tocsin_map resolved; /* group of the plan: interned ranks */
    TOCSIN_VEC(uint32_t) ranks;
} rank_planner;

static const tocsin_plan_role *find_role(const tocsin_plan *plan, uint32_t rank, uint32_t *replica)
{
    for (size_t r = 0; r < plan->roles.count; ++r) {
        const tocsin_plan_role *role = &plan->roles.items[r];
        for (uint32_t k = 0; k < role->replica_count; ++k) {
            *replica = role->first_replica + k;
            if (tocsin_plan_rank(plan, role->device, *replica) == rank)
                return role;
        }
    }
    return NULL;
}

static tocsin_status resolve(rank_planner *planner, uint32_t group, tocsin_call_group *resolved,
                             tocsin_error *error)
{
    const tocsin_plan *plan = planner->plan;
    const tocsin_plan_group *declared = &plan->groups.items[group];
    const tocsin_plan_member *members = &plan->members.items[declared->first_member];
    bool all = declared->member_count && members[0].replica == TOCSIN_MEMBER_ALL;
    uint64_t count = (uint64_t)declared->member_count * (all ? tocsin_plan_replicas(plan) : 1);
    if (count == 0 || count > MEMBERS_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "a group of %llu ranks",
                                (unsigned long long)count);
    uint64_t *known = tocsin_map_at(&planner->resolved, group);
    if (!known)
        return tocsin_error_memory(error);
    if (!*known) {
        planner->ranks.count = 0;
        if (!TOCSIN_VEC_RESERVE(&planner->ranks, count))
            return tocsin_error_memory(error);
        for (uint64_t k = 0; k < count; ++k) {
            const tocsin_plan_member *member = &members[k % declared->member_count];
            uint32_t replica = all                   ? (uint32_t)(k / declared->member_count)
                               : member->replica < 0 ? planner->replica
                                                     : (uint32_t)member->replica;
            planner->ranks.items[k] = tocsin_plan_rank(plan, member->device, replica);
        }
        *known = tocsin_intern_put(planner->groups, planner->ranks.items,
                                   (size_t)count * sizeof(uint32_t));
        if (!*known)
            return tocsin_error_memory(error);
    }
    *resolved = (tocsin_call_group){.ranks = (uint32_t)*known, .count = (uint32_t)count};
    return TOCSIN_OK;
}

static int64_t integer_of(const tocsin_plan *plan, const tocsin_plan_op *op, const char *key)
{
    const tocsin_attribute *attribute = tocsin_plan_attribute(plan, op->attributes, key);
    bool has = attribute && attribute->kind == TOCSIN_ATTRIBUTE_INTEGERS && attribute->count == 1;
    return has ? attribute->integers[0] : 0;
}

static tocsin_call_reduction reduction_of(const tocsin_plan *plan, const tocsin_plan_op *op)
{
    if (op->code != TOCSIN_OPERATOR_ALL_REDUCE && op->code != TOCSIN_OPERATOR_REDUCE_SCATTER)
        return TOCSIN_CALL_NO_REDUCTION;
    const tocsin_attribute *attribute = tocsin_plan_attribute(plan, op->attributes, "op");
    if (!attribute || attribute->kind != TOCSIN_ATTRIBUTE_TEXT)
        return TOCSIN_CALL_SUM;
    const char *text = tocsin_plan_text(plan, attribute->text);
    return strcmp(text, "sum") == 0   ? TOCSIN_CALL_SUM
           : strcmp(text, "avg") == 0 ? TOCSIN_CALL_AVG
           : strcmp(text, "max") == 0 ? TOCSIN_CALL_MAX
           : strcmp(text, "min") == 0 ? TOCSIN_CALL_MIN
                                      : TOCSIN_CALL_OTHER_REDUCTION;
}

/* The value that the run passes: the input, but of a receive and of a broadcast the output. */
static void set_operand(const rank_planner *planner, const tocsin_plan_op *op, tocsin_call *call)
{
    const tocsin_plan *plan = planner->plan;
    bool received = op->code == TOCSIN_OPERATOR_RECV || op->code == TOCSIN_OPERATOR_BROADCAST;
    if (received ? !op->output_count : !op->input_count)
        return;
    uint32_t operand = op->first_operand + (received ? op->input_count : 0);
    uint32_t id = plan->operands.items[operand];
    const tocsin_plan_value *value = &plan->values.items[planner->role->first_value + id];
    if (value->ndim == TOCSIN_PLAN_NDIM_UNKNOWN)
        return;
    call->dtype = value->dtype;
    call->ndim = value->ndim;
    call->shape = tocsin_plan_shape(plan, value);
    call->elements = 1;
    for (uint8_t d = 0; d < value->ndim; ++d)
        call->elements *= call->shape[d]; /* below 2^62: plan.h */
}

static tocsin_status add_call(rank_planner *planner, uint32_t index, int32_t microbatch,
                              tocsin_calls *calls, tocsin_error *error)
{
    const tocsin_plan *plan = planner->plan;
    const tocsin_plan_op *op = &plan->ops.items[index];
    tocsin_call call = {.kind = op->code,
                        .reduction = (uint8_t)reduction_of(plan, op),
                        .elements = -1,
                        .peer = -1,
                        .op = index,
                        .microbatch = microbatch};
    call.optional = op->code == TOCSIN_OPERATOR_ALL_REDUCE && op->phase != TOCSIN_PHASE_FORWARD;
    if (op->group != TOCSIN_PLAN_NONE)
        TOCSIN_TRY(resolve(planner, op->group, &call.group, error));
    set_operand(planner, op, &call);
    if (op->code == TOCSIN_OPERATOR_SEND || op->code == TOCSIN_OPERATOR_RECV) {
        int64_t device = integer_of(plan, op, "peer");
        call.tag = integer_of(plan, op, "tag");
        if (device >= 0 && device < tocsin_plan_devices(plan))
            call.peer = tocsin_plan_rank(plan, (uint32_t)device, planner->replica);
    } else if (op->code == TOCSIN_OPERATOR_BROADCAST) {
        const char *ranks = tocsin_intern_text(planner->groups, call.group.ranks, NULL);
        int64_t root = integer_of(plan, op, "root");
        if (root >= 0 && root < call.group.count) {
            uint32_t rank = 0;
            memcpy(&rank, ranks + (size_t)root * sizeof rank, sizeof rank);
            call.peer = rank;
        }
    }
    if (calls->count >= CALLS_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "a step of more than 2^24 calls");
    return TOCSIN_VEC_PUSH(calls, call) ? TOCSIN_OK : tocsin_error_memory(error);
}

static tocsin_status follow(rank_planner *planner, tocsin_calls *calls, tocsin_error *error)
{
    const tocsin_plan *plan = planner->plan;
    const tocsin_plan_role *role = planner->role;
    uint32_t turns = role->turn_count ? role->turn_count : role->segment_count;
    for (uint32_t t = 0; t < turns; ++t) {
        tocsin_plan_turn turn = {.segment = t, .microbatch = -1};
        if (role->turn_count)
            turn = plan->turns.items[role->first_turn + t];
        const tocsin_plan_segment *segment =
            &plan->segments.items[role->first_segment + turn.segment];
        for (uint32_t i = 0; i < segment->op_count; ++i) {
            uint32_t op = segment->first_op + i;
            if (tocsin_operator_communicates((tocsin_operator_code)plan->ops.items[op].code))
                TOCSIN_TRY(add_call(planner, op, turn.microbatch, calls, error));
        }
    }
    return TOCSIN_OK;
}

tocsin_status tocsin_conform_planned(const tocsin_plan *plan, uint32_t rank, tocsin_intern *groups,
                                     tocsin_calls *calls, tocsin_error *error)
{
    rank_planner planner = {.plan = plan, .groups = groups};
    planner.role = find_role(plan, rank, &planner.replica);
    assert(planner.role); /* a finished plan has a role for every rank */
    tocsin_status status = follow(&planner, calls, error);
    tocsin_map_free(&planner.resolved);
    TOCSIN_VEC_FREE(&planner.ranks);
    return status;
}
