/* execute.c - a plan run over relations: units, turns, meetings of collectives, mailboxes.
 *
 * The state is one array of relation ids per unit. Units are run in a ready queue; a unit that
 * waits leaves it and comes back when what it waits for is complete, so the cost is linear in
 * executions. A k-th call on a group meets the k-th calls of the other members, as in
 * torch.distributed; sends and receives of one (source, destination, tag) meet in order.
 */
#include "prove/execute.h"

#include "prove/rebase.h"

#include <assert.h>

struct tocsin_unit_group {
    uint32_t calls;
    uint32_t
        position; /* in the group; UINT32_MAX: not looked up yet, UINT32_MAX - 1: not a member */
};

struct tocsin_meeting {
    uint32_t group, first_op;
    uint32_t member_count, posted;
    bool over_replicas, complete;
    tocsin_relation_id *inputs, *outputs;
    uint32_t *unit; /* by position: who posted, UINT32_MAX none yet */
};

struct letter {
    tocsin_relation_id relation;
    uint32_t slot; /* the sender's micro-batch */
};

struct tocsin_mailbox {
    TOCSIN_VEC(struct letter) items;
    uint32_t taken;
    uint32_t waiting; /* unit, or UINT32_MAX */
};

enum { OPERANDS_ON_STACK = 64 };
#define POSITION_UNKNOWN UINT32_MAX
#define POSITION_NONE    (UINT32_MAX - 1)

typedef enum progress { PROGRESS_DONE, PROGRESS_BLOCKED, PROGRESS_FAILED } progress;

/* ---- preparing ------------------------------------------------------------------------------- */

static bool add_turn(tocsin_run *run, uint32_t segment, int32_t microbatch)
{
    return TOCSIN_VEC_PUSH(&run->turns,
                           (tocsin_plan_turn){.segment = segment, .microbatch = microbatch});
}

/* The turns of a role: all of them, or when micro-batches are symbolic each segment once. */
static bool add_turns(tocsin_run *run, const tocsin_plan_role *role)
{
    const tocsin_plan *plan = run->plan;
    const size_t first = run->turns.count;

    for (uint32_t t = 0; t < role->turn_count; t++) {
        const tocsin_plan_turn *turn = &plan->turns.items[role->first_turn + t];
        bool seen = false;
        for (size_t k = first; !run->enumerate_microbatches && k < run->turns.count && !seen; k++)
            seen = run->turns.items[k].segment == turn->segment;
        if (!seen && !add_turn(run, turn->segment, turn->microbatch))
            return false;
    }
    return true;
}

static bool add_unit(tocsin_run *run, uint32_t role_index, uint32_t replica)
{
    const tocsin_plan_role *role = &run->plan->roles.items[role_index];
    const uint32_t slots = run->enumerate_microbatches ? run->plan->microbatches : 1;
    const size_t groups = run->plan->groups.count;
    tocsin_unit unit = {.role = role_index, .replica = replica, .slots = slots};

    if (role->value_count > 0 && slots > (UINT32_C(1) << 30) / role->value_count)
        return false;
    const size_t values = (size_t)slots * role->value_count;
    unit.values = TOCSIN_ARENA_ARRAY(&run->arena, tocsin_relation_id, values + 1);
    unit.groups = TOCSIN_ARENA_ARRAY(&run->arena, struct tocsin_unit_group, groups + 1);
    if (unit.values == NULL || unit.groups == NULL)
        return false;
    memset(unit.values, 0, values * sizeof unit.values[0]);
    for (size_t g = 0; g < groups; g++)
        unit.groups[g] = (struct tocsin_unit_group){.position = POSITION_UNKNOWN};
    run->unit_of[(size_t)role->device * run->replicas + (run->enumerate_replicas ? replica : 0)] =
        (uint32_t)run->units.count;
    unit.queued = true;
    return TOCSIN_VEC_PUSH(&run->ready, (uint32_t)run->units.count) &&
           TOCSIN_VEC_PUSH(&run->units, unit);
}

tocsin_status tocsin_run_init(tocsin_run *run, tocsin_prover *prover, tocsin_side side,
                              bool enumerate_replicas, bool enumerate_microbatches,
                              tocsin_error *error)
{
    const tocsin_plan *plan = prover->plan[side];
    *run = (tocsin_run){.prover = prover,
                        .side = side,
                        .plan = plan,
                        .enumerate_replicas = enumerate_replicas,
                        .enumerate_microbatches = enumerate_microbatches,
                        .replicas = enumerate_replicas ? tocsin_plan_replicas(plan) : 1};
    const size_t ranks = (size_t)tocsin_plan_devices(plan) * run->replicas;
    run->unit_of = TOCSIN_ARENA_ARRAY(&run->arena, uint32_t, ranks);
    run->first_turn = TOCSIN_ARENA_ARRAY(&run->arena, uint32_t, plan->roles.count + 1);
    run->each_microbatch = TOCSIN_ARENA_ARRAY(&run->arena, uint8_t, plan->values.count + 1);
    if (run->unit_of == NULL || run->first_turn == NULL || run->each_microbatch == NULL)
        return tocsin_error_memory(error);
    memset(run->each_microbatch, 0, plan->values.count);
    tocsin_plan_mark_microbatches(plan, run->each_microbatch);
    memset(run->unit_of, 0xff, ranks * sizeof run->unit_of[0]);
    for (size_t r = 0; r < plan->roles.count; r++) {
        const tocsin_plan_role *role = &plan->roles.items[r];
        run->first_turn[r] = (uint32_t)run->turns.count;
        if (!add_turns(run, role))
            return tocsin_error_memory(error);
        const uint32_t count = enumerate_replicas ? role->replica_count : 1;
        for (uint32_t k = 0; k < count; k++)
            if (!add_unit(run, (uint32_t)r, role->first_replica + k))
                return tocsin_error_memory(error);
    }
    run->first_turn[plan->roles.count] = (uint32_t)run->turns.count;
    return TOCSIN_OK;
}

void tocsin_run_free(tocsin_run *run)
{
    for (size_t b = 0; b < run->boxes.count; b++)
        TOCSIN_VEC_FREE(&run->boxes.items[b].items);
    TOCSIN_VEC_FREE(&run->units);
    TOCSIN_VEC_FREE(&run->turns);
    TOCSIN_VEC_FREE(&run->ready);
    TOCSIN_VEC_FREE(&run->meetings);
    TOCSIN_VEC_FREE(&run->boxes);
    TOCSIN_VEC_FREE(&run->incidents);
    tocsin_map_free(&run->exchanges);
    tocsin_intern_free(&run->channels);
    tocsin_map_free(&run->mailboxes);
    tocsin_arena_free(&run->arena);
    *run = (tocsin_run){0};
}

/* ---- values ---------------------------------------------------------------------------------- */

const tocsin_plan_value *tocsin_run_plan_value(const tocsin_run *run, uint32_t unit, uint32_t value)
{
    const tocsin_plan_role *role = &run->plan->roles.items[run->units.items[unit].role];
    assert(value < role->value_count);
    return &run->plan->values.items[role->first_value + value];
}

static tocsin_relation_id *cell(const tocsin_run *run, uint32_t unit_index, uint32_t slot,
                                uint32_t value)
{
    const tocsin_unit *unit = &run->units.items[unit_index];
    const tocsin_plan_role *role = &run->plan->roles.items[unit->role];
    const tocsin_plan_value *plan_value = tocsin_run_plan_value(run, unit_index, value);
    const bool one = plan_value->persistent || slot >= unit->slots ||
                     !run->each_microbatch[role->first_value + value];
    return &unit->values[(size_t)(one ? 0 : slot) * role->value_count + value];
}

tocsin_relation_id tocsin_run_value(const tocsin_run *run, uint32_t unit, uint32_t slot,
                                    uint32_t value)
{
    return *cell(run, unit, slot, value);
}

/* The symbols that this run does not keep are fixed. */
static tocsin_relation_id input_relation(const tocsin_run *run, const tocsin_unit *unit,
                                         uint32_t slot, const tocsin_plan_input *input,
                                         const tocsin_plan_value *value)
{
    const tocsin_plan *plan = run->plan;
    tocsin_universe *universe = run->prover->universe;
    size_t bytes;
    const char *name = tocsin_intern_text(&plan->strings, input->name, &bytes);
    const int64_t *shape = tocsin_plan_shape(plan, value);
    tocsin_affine starts[TOCSIN_PLAN_NDIM_MAX];
    tocsin_atom_id atom;

    if (run->side == TOCSIN_LOGICAL)
        atom = tocsin_atom_input(universe, name, bytes, shape, value->ndim);
    else
        atom = tocsin_atom_find_input(universe, name, bytes);
    if (atom == 0) {
        tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_INPUT,
                               "the logical model has no input %s", name);
        return 0;
    }
    const tocsin_atom *known = tocsin_atom_get(universe, atom);
    if (known->ndim != value->ndim) {
        tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_INPUT,
                               "%s has %u dims in the logical model, %u here", name, known->ndim,
                               value->ndim);
        return 0;
    }
    for (uint32_t d = 0; d < value->ndim; d++) {
        starts[d] = plan->starts.items[input->first_start + d];
        if (run->enumerate_replicas) {
            starts[d].base += starts[d].weight[TOCSIN_SYMBOL_REPLICA] * (int64_t)unit->replica;
            starts[d].weight[TOCSIN_SYMBOL_REPLICA] = 0;
        }
        if (run->enumerate_microbatches) {
            starts[d].base += starts[d].weight[TOCSIN_SYMBOL_MICROBATCH] * (int64_t)slot;
            starts[d].weight[TOCSIN_SYMBOL_MICROBATCH] = 0;
        }
    }
    return tocsin_relation_slice_of(universe, atom, starts, shape);
}

/* ---- incidents ------------------------------------------------------------------------------- */

static bool report(tocsin_run *run, uint32_t unit, uint32_t op, tocsin_incident_kind kind,
                   int cause, const char *text)
{
    const size_t bytes = strlen(text);
    char *copy = tocsin_arena_copy(&run->arena, text, bytes);
    return copy != NULL &&
           TOCSIN_VEC_PUSH(&run->incidents, (tocsin_incident){.kind = (uint8_t)kind,
                                                              .cause = cause,
                                                              .unit = unit,
                                                              .turn = run->units.items[unit].turn,
                                                              .op = op,
                                                              .order = (uint32_t)run->executions,
                                                              .text = copy});
}

static bool report_refusal(tocsin_run *run, uint32_t unit, uint32_t op)
{
    const tocsin_refusal *why = tocsin_universe_refusal(run->prover->universe);
    return report(run, unit, op, TOCSIN_INCIDENT_REFUSED, why->cause, why->text);
}

static bool load_inputs(tocsin_run *run, uint32_t unit_index)
{
    const tocsin_unit *unit = &run->units.items[unit_index];
    const tocsin_plan_role *role = &run->plan->roles.items[unit->role];

    for (uint32_t i = 0; i < role->input_count; i++) {
        const tocsin_plan_input *input = &run->plan->inputs.items[role->first_input + i];
        const tocsin_plan_value *value = tocsin_run_plan_value(run, unit_index, input->value);
        const uint32_t slots = value->persistent ? 1 : unit->slots;
        for (uint32_t slot = 0; slot < slots; slot++) {
            tocsin_relation_id relation = input_relation(run, unit, slot, input, value);
            if (relation == 0) {
                if (!report_refusal(run, unit_index, TOCSIN_PLAN_NONE))
                    return false;
                relation = TOCSIN_POISON;
            }
            *cell(run, unit_index, slot, input->value) = relation;
        }
    }
    return true;
}

/* ---- one operator ---------------------------------------------------------------------------- */

typedef struct step {
    tocsin_run *run;
    uint32_t unit, slot, op_index;
    bool symbolic_microbatch; /* the turn stands for all micro-batches */
    const tocsin_plan_op *op;
    const uint32_t *inputs, *outputs; /* values */
} step;

static void poison_outputs(const step *now)
{
    for (uint32_t j = 0; j < now->op->output_count; j++)
        *cell(now->run, now->unit, now->slot, now->outputs[j]) = TOCSIN_POISON;
}

/* The input relations; false: one is undefined (an incident) or poison, and the outputs are poison.
 */
static bool gather(const step *now, tocsin_relation_id *relations, bool *sound)
{
    *sound = true;
    bool ready = true;
    for (uint32_t i = 0; i < now->op->input_count; i++) {
        relations[i] = *cell(now->run, now->unit, now->slot, now->inputs[i]);
        if (relations[i] == 0) {
            const tocsin_plan_value *value =
                tocsin_run_plan_value(now->run, now->unit, now->inputs[i]);
            char text[200];
            snprintf(text, sizeof text, "reads %%%s, which nothing has written before",
                     tocsin_plan_text(now->run->plan, value->name));
            *sound = report(now->run, now->unit, now->op_index, TOCSIN_INCIDENT_UNDEFINED,
                            TOCSIN_CAUSE_UNDEFINED_VALUE, text) &&
                     *sound;
            ready = false;
        } else if (relations[i] == TOCSIN_POISON) {
            ready = false;
        }
    }
    if (!ready)
        poison_outputs(now);
    return ready;
}

/* A collective's result, as if the collective were right when it is re-based. */
static tocsin_relation_id rebased(const step *now, tocsin_relation_id relation)
{
    const tocsin_rebase *rebase = tocsin_rebase_of(now->run->rebases, now->op_index);
    tocsin_universe *universe = now->run->prover->universe;
    if (rebase == NULL || relation == 0 || relation == TOCSIN_POISON)
        return relation;
    if (rebase->ordered)
        relation = tocsin_relation_as_ordered(universe, relation);
    if (rebase->reduced)
        relation = tocsin_relation_as_reduced(universe, relation);
    return rebase->factor != 0 ? tocsin_relation_scale(universe, relation, rebase->factor)
                               : relation;
}

/* Write a result, unless it does not have the shape that the plan declares: then poison. */
static bool store(const step *now, uint32_t output, tocsin_relation_id relation)
{
    tocsin_relation_id *target = cell(now->run, now->unit, now->slot, now->outputs[output]);
    const tocsin_plan_value *value =
        tocsin_run_plan_value(now->run, now->unit, now->outputs[output]);
    *target = relation;
    if (relation == 0 || relation == TOCSIN_POISON)
        return true;
    const tocsin_relation *view = tocsin_relation_get(now->run->prover->universe, relation);
    if (view->ndim == value->ndim && memcmp(view->shape, tocsin_plan_shape(now->run->plan, value),
                                            view->ndim * sizeof view->shape[0]) == 0)
        return true;
    *target = TOCSIN_POISON;
    return report(now->run, now->unit, now->op_index, TOCSIN_INCIDENT_REFUSED,
                  TOCSIN_CAUSE_WRONG_LAYOUT, "the result has another shape than declared");
}

static bool is_foreign(const tocsin_run *run, tocsin_relation_id relation)
{
    return tocsin_relation_get(run->prover->universe, relation)->foreign;
}

/* output += input: over all micro-batches at once when they are symbolic. */
static bool accumulate(const step *now, tocsin_relation_id relation)
{
    tocsin_universe *universe = now->run->prover->universe;
    tocsin_relation_id *target = cell(now->run, now->unit, now->slot, now->outputs[0]);
    const tocsin_plan_value *value = tocsin_run_plan_value(now->run, now->unit, now->outputs[0]);

    if (now->symbolic_microbatch && value->persistent)
        relation = tocsin_relation_sum_over(universe, relation, TOCSIN_SYMBOL_MICROBATCH,
                                            now->run->prover->size[TOCSIN_SYMBOL_MICROBATCH]);
    const tocsin_rebase *rebase = tocsin_rebase_of(now->run->rebases, now->op_index);
    if (rebase != NULL && rebase->factor != 0 && relation != 0)
        relation = tocsin_relation_scale(universe, relation, rebase->factor);
    if (relation != 0 && *target != 0 && *target != TOCSIN_POISON) {
        const tocsin_relation_id both[2] = {*target, relation};
        relation = tocsin_relation_add(universe, both, NULL, 2);
    } else if (*target == TOCSIN_POISON) {
        return true;
    }
    if (relation != 0) {
        *target = relation;
        return true;
    }
    *target = TOCSIN_POISON;
    return report_refusal(now->run, now->unit, now->op_index);
}

/* A cast is the identity, for rounding is not looked at; but one to integers cuts fractions off,
 * and one to truth values asks whether the number is not 0. */
static bool transfer(const step *now, const tocsin_execution *execution)
{
    tocsin_prover *prover = now->run->prover;
    if (now->op->code != TOCSIN_OPERATOR_CAST)
        return tocsin_transfer(prover, execution);
    const tocsin_cast_kind cast =
        tocsin_cast_kind_of(tocsin_run_plan_value(now->run, now->unit, now->inputs[0])->dtype,
                            tocsin_run_plan_value(now->run, now->unit, now->outputs[0])->dtype);
    if (cast == TOCSIN_CAST_ALL)
        return tocsin_transfer(prover, execution);
    const uint32_t key = tocsin_prover_key(prover, "cast:%d", (int)cast);
    return key != 0 && tocsin_congruence(prover, key, "cast",
                                         &prover->table_signatures[TOCSIN_OPERATOR_EXP], execution);
}

static bool transfer_step(const step *now, tocsin_relation_id *inputs, tocsin_relation_id *outputs,
                          const int64_t **shapes, uint8_t *ndims)
{
    tocsin_run *run = now->run;
    const tocsin_rebase *rebase = tocsin_rebase_of(run->rebases, now->op_index);
    tocsin_universe *universe = run->prover->universe;
    bool foreign_input = false;

    for (uint32_t i = 0; i < now->op->input_count; i++) {
        if (rebase != NULL && rebase->reduced)
            inputs[i] = tocsin_relation_as_reduced(universe, inputs[i]);
        foreign_input |= is_foreign(run, inputs[i]);
    }
    for (uint32_t j = 0; j < now->op->output_count; j++) {
        const tocsin_plan_value *value = tocsin_run_plan_value(run, now->unit, now->outputs[j]);
        shapes[j] = tocsin_plan_shape(run->plan, value);
        ndims[j] = value->ndim;
    }
    const tocsin_execution execution = {.kind = run->prover->op_kind[run->side][now->op_index],
                                        .op = run->side == TOCSIN_LOGICAL ? now->op_index
                                                                          : TOCSIN_PLAN_NONE,
                                        .inputs = inputs,
                                        .outputs = outputs,
                                        .output_shapes = shapes,
                                        .output_ndim = ndims,
                                        .input_count = now->op->input_count,
                                        .output_count = now->op->output_count};
    if (!transfer(now, &execution)) {
        poison_outputs(now);
        return report_refusal(run, now->unit, now->op_index);
    }
    bool foreign = false;
    for (uint32_t j = 0; j < now->op->output_count; j++) {
        if (rebase != NULL && rebase->atom != 0 && j == 0)
            outputs[j] = tocsin_relation_with_atom(universe, outputs[j], rebase->atom);
        if (rebase != NULL && rebase->expected != 0 && j == 0)
            outputs[j] = tocsin_relation_like(universe, outputs[j], rebase->expected);
        if (rebase != NULL && rebase->factor != 0)
            outputs[j] = tocsin_relation_scale(universe, outputs[j], rebase->factor);
        foreign |= is_foreign(run, outputs[j]);
        if (!store(now, j, outputs[j]))
            return false;
    }
    return !foreign || foreign_input ||
           report(run, now->unit, now->op_index, TOCSIN_INCIDENT_FOREIGN,
                  TOCSIN_CAUSE_WRONG_OPERATOR, "the logical model has no such value");
}

static progress run_local(const step *now)
{
    tocsin_relation_id few_in[OPERANDS_ON_STACK], few_out[OPERANDS_ON_STACK];
    const int64_t *few_shapes[OPERANDS_ON_STACK];
    uint8_t few_ndims[OPERANDS_ON_STACK];
    tocsin_relation_id *inputs = few_in, *outputs = few_out;
    const int64_t **shapes = few_shapes;
    uint8_t *ndims = few_ndims;
    const uint32_t in = now->op->input_count, out = now->op->output_count;
    bool sound;

    if (in > OPERANDS_ON_STACK)
        inputs = TOCSIN_ARENA_ARRAY(&now->run->arena, tocsin_relation_id, in);
    if (out > OPERANDS_ON_STACK) {
        outputs = TOCSIN_ARENA_ARRAY(&now->run->arena, tocsin_relation_id, out);
        shapes = TOCSIN_ARENA_ARRAY(&now->run->arena, const int64_t *, out);
        ndims = TOCSIN_ARENA_ARRAY(&now->run->arena, uint8_t, out);
    }
    if (inputs == NULL || outputs == NULL || shapes == NULL || ndims == NULL)
        return PROGRESS_FAILED;
    if (!gather(now, inputs, &sound))
        return sound ? PROGRESS_DONE : PROGRESS_FAILED;
    if (now->op->code == TOCSIN_OPERATOR_ACCUMULATE)
        return accumulate(now, inputs[0]) ? PROGRESS_DONE : PROGRESS_FAILED;
    return transfer_step(now, inputs, outputs, shapes, ndims) ? PROGRESS_DONE : PROGRESS_FAILED;
}

/* ---- collectives ----------------------------------------------------------------------------- */

static const tocsin_plan_member *members_of(const tocsin_run *run, uint32_t group)
{
    return run->plan->members.items + run->plan->groups.items[group].first_member;
}

static bool is_over_replicas(const tocsin_run *run, uint32_t group)
{
    return members_of(run, group)[0].replica == TOCSIN_MEMBER_ALL;
}

/* Members as this run tells them apart. */
static uint32_t position_count(const tocsin_run *run, uint32_t group)
{
    const uint32_t members = run->plan->groups.items[group].member_count;
    return is_over_replicas(run, group) && run->enumerate_replicas ? members * run->replicas
                                                                   : members;
}

/* Where the unit stands in the group. */
static uint32_t own_position(const tocsin_run *run, const tocsin_unit *unit, uint32_t group)
{
    const uint32_t device = run->plan->roles.items[unit->role].device;
    const tocsin_plan_member *members = members_of(run, group);
    const uint32_t count = run->plan->groups.items[group].member_count;

    for (uint32_t m = 0; m < count; m++) {
        if (members[m].device != device ||
            (members[m].replica >= 0 && (uint32_t)members[m].replica != unit->replica))
            continue;
        return is_over_replicas(run, group) && run->enumerate_replicas ? unit->replica * count + m
                                                                       : m;
    }
    return POSITION_NONE;
}

static struct tocsin_meeting *meeting_of(tocsin_run *run, tocsin_unit *unit, uint32_t group,
                                         uint32_t op)
{
    struct tocsin_unit_group *own = &unit->groups[group];
    const bool per_replica = members_of(run, group)[0].replica == TOCSIN_MEMBER_SAME;
    const uint64_t instance = per_replica && run->enumerate_replicas ? unit->replica : 0;
    const uint64_t key = (uint64_t)group << 40 ^ instance << 24 ^ own->calls;
    uint64_t *slot = tocsin_map_at(&run->exchanges, key);
    if (slot == NULL || own->calls >= UINT32_C(1) << 24 || instance >= UINT32_C(1) << 16)
        return NULL;
    if (*slot == 0) {
        struct tocsin_meeting made = {.group = group,
                                      .first_op = op,
                                      .member_count = position_count(run, group),
                                      .over_replicas =
                                          is_over_replicas(run, group) && !run->enumerate_replicas};
        const size_t count = made.member_count;
        made.inputs = TOCSIN_ARENA_ARRAY(&run->arena, tocsin_relation_id, count);
        made.outputs = TOCSIN_ARENA_ARRAY(&run->arena, tocsin_relation_id, count);
        made.unit = TOCSIN_ARENA_ARRAY(&run->arena, uint32_t, count);
        if (made.inputs == NULL || made.outputs == NULL || made.unit == NULL ||
            !TOCSIN_VEC_PUSH(&run->meetings, made))
            return NULL;
        memset(made.inputs, 0, count * sizeof made.inputs[0]);
        memset(made.unit, 0xff, count * sizeof made.unit[0]);
        *slot = run->meetings.count;
    }
    return &run->meetings.items[*slot - 1];
}

static bool wake(tocsin_run *run, uint32_t unit)
{
    if (run->units.items[unit].queued || run->units.items[unit].done)
        return true;
    run->units.items[unit].queued = true;
    return TOCSIN_VEC_PUSH(&run->ready, unit);
}

/* All have come: compute, and wake them. */
static bool complete(tocsin_run *run, struct tocsin_meeting *meeting)
{
    bool poisoned = false;
    const uint32_t kind = run->prover->op_kind[run->side][meeting->first_op];
    const tocsin_kind copy = run->prover->kinds.items[kind - 1];

    meeting->complete = true;
    for (uint32_t m = 0; m < meeting->member_count; m++)
        poisoned |= meeting->inputs[m] == TOCSIN_POISON;
    const tocsin_exchange exchange = {.kind = &copy,
                                      .member_count = meeting->member_count,
                                      .over_replicas = meeting->over_replicas,
                                      .inputs = meeting->inputs,
                                      .outputs = meeting->outputs};
    if (poisoned) {
        for (uint32_t m = 0; m < meeting->member_count; m++)
            meeting->outputs[m] = TOCSIN_POISON;
    } else if (copy.code == TOCSIN_OPERATOR_BARRIER) {
        for (uint32_t m = 0; m < meeting->member_count; m++)
            meeting->outputs[m] = 0;
    } else if (!tocsin_exchange_relations(run->prover, &exchange)) {
        for (uint32_t m = 0; m < meeting->member_count; m++) {
            meeting->outputs[m] = TOCSIN_POISON;
            if (meeting->unit[m] != UINT32_MAX &&
                !report_refusal(run, meeting->unit[m], meeting->first_op))
                return false;
        }
    }
    for (uint32_t m = 0; m < meeting->member_count; m++)
        if (meeting->unit[m] != UINT32_MAX && !wake(run, meeting->unit[m]))
            return false;
    return true;
}

static progress run_collective(const step *now)
{
    tocsin_run *run = now->run;
    tocsin_unit *unit = &run->units.items[now->unit];
    const uint32_t group = now->op->group;
    tocsin_relation_id input = 0;
    bool sound = true;

    if (now->op->input_count > 0)
        (void)gather(now, &input, &sound);
    if (!sound)
        return PROGRESS_FAILED;
    if (group == TOCSIN_PLAN_NONE) {
        poison_outputs(now);
        return PROGRESS_DONE; /* tier 0 reports it */
    }
    if (unit->groups[group].position == POSITION_UNKNOWN)
        unit->groups[group].position = own_position(run, unit, group);
    const uint32_t position = unit->groups[group].position;
    if (position == POSITION_NONE) { /* a flaw, reported as such */
        poison_outputs(now);
        return PROGRESS_DONE;
    }
    struct tocsin_meeting *meeting = meeting_of(run, unit, group, now->op_index);
    if (meeting == NULL)
        return PROGRESS_FAILED;
    if (meeting->unit[position] == UINT32_MAX) {
        meeting->unit[position] = now->unit;
        meeting->inputs[position] = input == 0 && now->op->input_count > 0 ? TOCSIN_POISON : input;
        if (run->prover->op_kind[run->side][meeting->first_op] !=
            run->prover->op_kind[run->side][now->op_index])
            meeting->inputs[position] = TOCSIN_POISON; /* tier 0 reports it */
        if (++meeting->posted == meeting->member_count && !complete(run, meeting))
            return PROGRESS_FAILED;
    }
    if (!meeting->complete)
        return PROGRESS_BLOCKED;
    unit->groups[group].calls++;
    return now->op->output_count == 0 || store(now, 0, rebased(now, meeting->outputs[position]))
               ? PROGRESS_DONE
               : PROGRESS_FAILED;
}

/* ---- point to point -------------------------------------------------------------------------- */

static struct tocsin_mailbox *mailbox_of(tocsin_run *run, uint32_t from, uint32_t to, int64_t tag)
{
    const uint64_t key[2] = {(uint64_t)from << 32 | to, (uint64_t)tag};
    const uint32_t number = tocsin_intern_put(&run->channels, key, sizeof key);
    uint64_t *slot = number == 0 ? NULL : tocsin_map_at(&run->mailboxes, number);
    if (slot == NULL)
        return NULL;
    if (*slot == 0) {
        if (!TOCSIN_VEC_PUSH(&run->boxes, (struct tocsin_mailbox){.waiting = UINT32_MAX}))
            return NULL;
        *slot = run->boxes.count;
    }
    return &run->boxes.items[*slot - 1];
}

static bool report_stray(const step *now, uint32_t slot)
{
    char text[120];
    snprintf(text, sizeof text, "receives micro-batch %u in the turn of micro-batch %u", slot,
             now->slot);
    return report(now->run, now->unit, now->op_index, TOCSIN_INCIDENT_STRAY,
                  TOCSIN_CAUSE_WRONG_INPUT, text);
}

static progress run_message(const step *now)
{
    tocsin_run *run = now->run;
    const tocsin_unit *unit = &run->units.items[now->unit];
    const tocsin_kind *kind =
        &run->prover->kinds.items[run->prover->op_kind[run->side][now->op_index] - 1];
    const int64_t peer_device = tocsin_kind_integer(kind, "peer", -1);
    const int64_t tag = tocsin_kind_integer(kind, "tag", 0);
    const bool sends = now->op->code == TOCSIN_OPERATOR_SEND;
    uint32_t peer = UINT32_MAX;

    if (peer_device >= 0 && peer_device < tocsin_plan_devices(run->plan))
        peer = run->unit_of[(size_t)peer_device * run->replicas +
                            (run->enumerate_replicas ? unit->replica : 0)];
    if (peer == UINT32_MAX) {
        poison_outputs(now);
        return PROGRESS_DONE; /* tier 0 reports it */
    }
    struct tocsin_mailbox *box =
        mailbox_of(run, sends ? now->unit : peer, sends ? peer : now->unit, tag);
    if (box == NULL)
        return PROGRESS_FAILED;
    if (sends) {
        tocsin_relation_id input = 0;
        bool sound;
        if (!gather(now, &input, &sound))
            input = TOCSIN_POISON;
        return sound &&
                       TOCSIN_VEC_PUSH(&box->items,
                                       (struct letter){.relation = input, .slot = now->slot}) &&
                       (box->waiting == UINT32_MAX || wake(run, box->waiting))
                   ? PROGRESS_DONE
                   : PROGRESS_FAILED;
    }
    if (box->taken == box->items.count) {
        box->waiting = now->unit;
        return PROGRESS_BLOCKED;
    }
    box->waiting = UINT32_MAX;
    const struct letter letter = box->items.items[box->taken++];
    if (letter.slot != now->slot && !report_stray(now, letter.slot))
        return PROGRESS_FAILED;
    return store(now, 0, letter.relation) ? PROGRESS_DONE : PROGRESS_FAILED;
}

/* What tocsin_plan_finish found wrong with the op, once per unit. */
static bool report_flaw(const step *now)
{
    const tocsin_plan_flaw *flaw = tocsin_plan_flaw_of(now->run->plan, now->op_index);
    const int cause = flaw->kind == TOCSIN_FLAW_GROUP  ? TOCSIN_CAUSE_WRONG_GROUP
                      : flaw->kind == TOCSIN_FLAW_PEER ? TOCSIN_CAUSE_UNMATCHED
                                                       : TOCSIN_CAUSE_WRONG_LAYOUT;
    return now->slot > 0 || report(now->run, now->unit, now->op_index, TOCSIN_INCIDENT_REFUSED,
                                   cause, tocsin_plan_text(now->run->plan, flaw->text));
}

/* ---- running --------------------------------------------------------------------------------- */

static progress run_op(tocsin_run *run, uint32_t unit_index, const tocsin_plan_turn *turn,
                       uint32_t op_index)
{
    const tocsin_plan_op *op = &run->plan->ops.items[op_index];
    const step now = {.run = run,
                      .unit = unit_index,
                      .slot = run->enumerate_microbatches && turn->microbatch > 0
                                  ? (uint32_t)turn->microbatch
                                  : 0,
                      .op_index = op_index,
                      .symbolic_microbatch = !run->enumerate_microbatches && turn->microbatch >= 0,
                      .op = op,
                      .inputs = run->plan->operands.items + op->first_operand,
                      .outputs = run->plan->operands.items + op->first_operand + op->input_count};
    if (op->flawed && tocsin_plan_flaw_of(run->plan, op_index)->kind != TOCSIN_FLAW_ORDER &&
        !report_flaw(&now))
        return PROGRESS_FAILED;
    if (op->flawed && !tocsin_operator_communicates((tocsin_operator_code)op->code) &&
        tocsin_plan_flaw_of(run->plan, op_index)->kind == TOCSIN_FLAW_SHAPE) {
        poison_outputs(&now);
        return PROGRESS_DONE;
    }
    if (op->code == TOCSIN_OPERATOR_SEND || op->code == TOCSIN_OPERATOR_RECV)
        return run_message(&now);
    if (tocsin_operator_communicates((tocsin_operator_code)op->code))
        return run_collective(&now);
    return run_local(&now);
}

/* Until the unit ends or waits; false: out of memory or over a limit. */
static bool advance(tocsin_run *run, uint32_t unit_index)
{
    const uint32_t role_index = run->units.items[unit_index].role;
    const tocsin_plan_role *role = &run->plan->roles.items[role_index];
    const uint32_t turns = run->first_turn[role_index + 1] - run->first_turn[role_index];

    while (run->units.items[unit_index].turn < turns) {
        tocsin_unit *unit = &run->units.items[unit_index];
        const tocsin_plan_turn turn = run->turns.items[run->first_turn[role_index] + unit->turn];
        const tocsin_plan_segment *segment =
            &run->plan->segments.items[role->first_segment + turn.segment];
        while (unit->op < segment->op_count) {
            const progress made = run_op(run, unit_index, &turn, segment->first_op + unit->op);
            if (made != PROGRESS_DONE)
                return made == PROGRESS_BLOCKED;
            run->executions++;
            unit->op++;
        }
        unit->op = 0;
        unit->turn++;
    }
    run->units.items[unit_index].done = true;
    return true;
}

tocsin_status tocsin_run_all(tocsin_run *run, tocsin_error *error)
{
    for (uint32_t u = 0; u < run->units.count; u++)
        if (!load_inputs(run, u))
            return tocsin_error_memory(error);
    for (size_t next = 0; next < run->ready.count; next++) {
        const uint32_t unit = run->ready.items[next];
        run->units.items[unit].queued = false;
        if (!advance(run, unit)) {
            TOCSIN_TRY(tocsin_universe_status(run->prover->universe, error));
            return tocsin_error_memory(error);
        }
    }
    for (uint32_t u = 0; u < run->units.count; u++)
        run->blocked += !run->units.items[u].done;
    return tocsin_universe_status(run->prover->universe, error);
}
