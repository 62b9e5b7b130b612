/* replay.c - the schedule, step by step: what is read when, what meets, and every step judged.
 *
 * All micro-batches are replayed, so that the k-th calls of a group really meet and nobody waits
 * for ever; with symbolic micro-batches the facts of a step are judged at its first run, and every
 * later run must do the same: read what is written by then, and meet the same operators of the same
 * micro-batch. Symbolic replicas need roles and groups that treat all replicas alike.
 *
 * A value that ACCUMULATE adds to may be read once all that is added has been; its fact is that
 * sum. Cost: linear in the steps of all units and micro-batches.
 */
#include <assert.h>

#include "certify/replay.h"

/* ---- naming what is wrong -------------------------------------------------------------------- */

static certify_outcome at_step(replay *run, uint32_t unit_index, int32_t microbatch,
                               uint32_t op_index, certify_outcome outcome)
{
    if (outcome != CERTIFY_DIFFERENT && outcome != CERTIFY_UNCLEAR)
        return outcome;
    const tocsin_plan_op *op = &run->plan->ops.items[op_index];
    const char *label = tocsin_plan_text(run->plan, op->label);
    snprintf(run->text, run->text_bytes, "%s %s (%s, operator %u) of unit %u, micro-batch %d: %s",
             run->side == 0 ? "logical" : "parallel",
             label[0] != '\0' ? label : tocsin_plan_text(run->plan, op->name),
             tocsin_plan_text(run->plan, op->name), op_index, unit_index, microbatch,
             run->checker->why);
    return outcome;
}

static certify_outcome at_value(replay *run, uint32_t unit_index, uint32_t value,
                                certify_outcome outcome)
{
    if (outcome != CERTIFY_DIFFERENT && outcome != CERTIFY_UNCLEAR)
        return outcome;
    const tocsin_plan_role *role = run->units.items[unit_index].role;
    snprintf(run->text, run->text_bytes, "%s value %%%s of unit %u: %s",
             run->side == 0 ? "logical" : "parallel",
             tocsin_plan_text(run->plan, run->plan->values.items[role->first_value + value].name),
             unit_index, run->checker->why);
    return outcome;
}

/* ---- values ---------------------------------------------------------------------------------- */

uint32_t certify_value(const certificate *from, const tocsin_plan *plan, int side,
                       uint32_t unit_index, uint32_t slot, uint32_t value)
{
    const uint32_t slots = side == 0 || from->each_microbatch ? plan->microbatches : 1;
    assert(slot < slots);
    return from->cells
        .items[from->facts[side].items[(size_t)unit_index * slots + slot].first + value];
}

static bool is_single(const replay *run, const replay_unit *one, uint32_t value)
{
    return run->single[one->role->first_value + value];
}

/* The relation of a value at a micro-batch. */
uint32_t certify_fact(const replay *run, uint32_t unit_index, int32_t microbatch, uint32_t value)
{
    const replay_unit *one = &run->units.items[unit_index];
    const bool first = !run->each_microbatch || microbatch < 0 || is_single(run, one, value);
    return certify_value(run->from, run->plan, run->side, unit_index,
                         first ? 0 : (uint32_t)microbatch, value);
}

static size_t state_of(const replay *run, const replay_unit *one, int32_t microbatch,
                       uint32_t value)
{
    const bool first = microbatch < 0 || is_single(run, one, value);
    return one->first_state + (first ? 0 : (size_t)microbatch) * one->role->value_count + value;
}

/* What an operator reads: 0 when nothing is known of it. */
uint32_t certify_read(const replay *run, uint32_t unit_index, int32_t microbatch, uint32_t value,
                      bool alias)
{
    const replay_unit *one = &run->units.items[unit_index];
    const size_t state = state_of(run, one, microbatch, value);
    const bool there = run->written[state] == WRITTEN || (alias && run->written[state] != 0);
    if (!there || run->pending[state] > 0 ||
        (microbatch < 0 && run->microbatches > 1 && !is_single(run, one, value)))
        return 0;
    return certify_fact(run, unit_index, microbatch, value);
}

static const tocsin_plan_turn *turn_of(const replay *run, const replay_unit *one, uint32_t turn)
{
    return &run->plan->turns.items[one->role->first_turn + turn];
}

static const tocsin_plan_segment *segment_of(const replay *run, const replay_unit *one,
                                             uint32_t segment)
{
    return &run->plan->segments.items[one->role->first_segment + segment];
}

static const uint32_t *outputs_of(const replay *run, const tocsin_plan_op *op)
{
    return run->plan->operands.items + op->first_operand + op->input_count;
}

/* ---- preparing ------------------------------------------------------------------------------- */

static bool add_unit(replay *run, uint32_t role_index, uint32_t replica)
{
    const tocsin_plan_role *role = &run->plan->roles.items[role_index];
    replay_unit one = {.role = role, .role_index = role_index, .replica = replica, .queued = true};
    const uint64_t states = (uint64_t)role->value_count * run->microbatches;

    one.first_state = run->state_count;
    if (run->state_count + states > STATE_MAX)
        return false;
    run->state_count += (size_t)states;
    one.judged = TOCSIN_ARENA_ARRAY(&run->arena, bool, role->segment_count + 1);
    one.calls = TOCSIN_ARENA_ARRAY(&run->arena, uint32_t, run->plan->groups.count + 1);
    if (one.judged == NULL || one.calls == NULL)
        return false;
    memset(one.judged, 0, role->segment_count * sizeof one.judged[0]);
    memset(one.calls, 0, run->plan->groups.count * sizeof one.calls[0]);
    run->unit_of[(size_t)role->device * run->replicas + (run->each_replica ? replica : 0)] =
        (uint32_t)run->units.count;
    return TOCSIN_VEC_PUSH(&run->ready, (uint32_t)run->units.count) &&
           TOCSIN_VEC_PUSH(&run->units, one);
}

static certify_outcome add_units(replay *run)
{
    const tocsin_plan *plan = run->plan;
    const size_t ranks = (size_t)tocsin_plan_devices(plan) * run->replicas;

    run->unit_of = TOCSIN_ARENA_ARRAY(&run->arena, uint32_t, ranks + 1);
    run->single = TOCSIN_ARENA_ARRAY(&run->arena, uint8_t, plan->values.count + 1);
    if (run->unit_of == NULL || run->single == NULL)
        return CERTIFY_FAILED;
    memset(run->unit_of, 0xff, ranks * sizeof run->unit_of[0]);
    for (size_t r = 0; r < plan->roles.count; r++) {
        const tocsin_plan_role *role = &plan->roles.items[r];
        const uint32_t count = run->each_replica ? role->replica_count : 1;
        if (!run->each_replica &&
            (role->first_replica != 0 || role->replica_count != tocsin_plan_replicas(plan)))
            return certify_unclear(run->checker, "a role of some replicas, which are symbolic");
        for (uint32_t k = 0; k < count; k++)
            if (!add_unit(run, (uint32_t)r, role->first_replica + k))
                return CERTIFY_FAILED;
    }
    for (size_t m = 0; m < plan->members.count && !run->each_replica; m++)
        if (plan->members.items[m].replica >= 0)
            return certify_unclear(run->checker, "a group of some replicas, which are symbolic");
    run->written = tocsin_zalloc(run->state_count + 1, 1);
    run->pending = tocsin_zalloc(run->state_count + 1, sizeof run->pending[0]);
    return run->written == NULL || run->pending == NULL ? CERTIFY_FAILED : CERTIFY_DONE;
}

/* How often a role runs each segment for micro-batches; symbolic ones run for all. */
static certify_outcome check_turns(replay *run, const tocsin_plan_role *role)
{
    const tocsin_arena_mark mark = tocsin_arena_get_mark(&run->arena);
    uint32_t *runs = TOCSIN_ARENA_ARRAY(&run->arena, uint32_t, role->segment_count + 1);
    bool *once = TOCSIN_ARENA_ARRAY(&run->arena, bool, role->segment_count + 1);
    bool alike = true;

    if (runs == NULL || once == NULL)
        return CERTIFY_FAILED;
    memset(runs, 0, role->segment_count * sizeof runs[0]);
    memset(once, 0, role->segment_count * sizeof once[0]);
    for (uint32_t t = 0; t < role->turn_count; t++) {
        const tocsin_plan_turn *turn = &run->plan->turns.items[role->first_turn + t];
        runs[turn->segment]++;
        once[turn->segment] |= turn->microbatch < 0;
        if (turn->microbatch >= (int32_t)run->microbatches)
            return certify_unclear(run->checker, "a turn of no micro-batch");
    }
    for (uint32_t s = 0; s < role->segment_count; s++) {
        alike &= runs[s] == 0 || runs[s] == (once[s] ? 1 : run->microbatches);
        const tocsin_plan_segment *segment = &run->plan->segments.items[role->first_segment + s];
        for (uint32_t k = 0; k < segment->op_count && once[s]; k++) {
            const tocsin_plan_op *op = &run->plan->ops.items[segment->first_op + k];
            for (uint32_t j = 0; j < op->output_count; j++)
                run->single[role->first_value + outputs_of(run, op)[j]] = 1;
        }
    }
    tocsin_arena_reset_to(&run->arena, mark);
    return alike || run->each_microbatch
               ? CERTIFY_DONE
               : certify_unclear(run->checker, "a segment runs for some micro-batches only");
}

static void count_accumulations(replay *run, const replay_unit *one)
{
    for (uint32_t t = 0; t < one->role->turn_count; t++) {
        const tocsin_plan_turn *turn = turn_of(run, one, t);
        const tocsin_plan_segment *segment = segment_of(run, one, turn->segment);
        for (uint32_t k = 0; k < segment->op_count; k++) {
            const tocsin_plan_op *op = &run->plan->ops.items[segment->first_op + k];
            if (op->code == TOCSIN_OPERATOR_ACCUMULATE)
                run->pending[state_of(run, one, turn->microbatch, outputs_of(run, op)[0])]++;
        }
    }
}

/* The atom of a logical input, or 0. */
static uint32_t input_atom(const replay *run, uint32_t name)
{
    size_t bytes;
    const char *text = tocsin_intern_text(&run->plan->strings, name, &bytes);
    const uint32_t own = tocsin_intern_find(&run->from->texts, text, bytes);
    for (size_t k = 0; k < run->from->atoms.count && own != 0; k++)
        if (run->from->atoms.items[k].kind == CERTIFY_INPUT &&
            run->from->atoms.items[k].text == own)
            return (uint32_t)k + 1;
    return 0;
}

static certify_outcome check_input(replay *run, uint32_t unit_index, const tocsin_plan_input *input,
                                   uint32_t slot)
{
    const replay_unit *one = &run->units.items[unit_index];
    const uint32_t relation = certify_fact(run, unit_index, (int32_t)slot, input->value);
    const uint32_t atom = input_atom(run, input->name);
    const tocsin_plan_value *value =
        &run->plan->values.items[one->role->first_value + input->value];
    tocsin_affine starts[TOCSIN_PLAN_NDIM_MAX];

    if (relation == 0)
        return CERTIFY_DONE;
    if (atom == 0)
        return certify_different(run->checker, "the certificate has no such input");
    for (uint32_t d = 0; d < value->ndim; d++) {
        starts[d] = run->plan->starts.items[input->first_start + d];
        if ((run->each_replica &&
             !certify_fix(&starts[d], TOCSIN_SYMBOL_REPLICA, (int64_t)one->replica)) ||
            (run->each_microbatch &&
             !certify_fix(&starts[d], TOCSIN_SYMBOL_MICROBATCH, (int64_t)slot)))
            return certify_unclear(run->checker, "a start is too large");
    }
    run->checker->facts++;
    return certify_slice(run->checker, relation, 0, atom, starts);
}

static certify_outcome check_inputs(replay *run, uint32_t unit_index)
{
    const replay_unit *one = &run->units.items[unit_index];
    for (uint32_t i = 0; i < one->role->input_count; i++) {
        const tocsin_plan_input *input = &run->plan->inputs.items[one->role->first_input + i];
        const bool single = is_single(run, one, input->value);
        for (uint32_t m = 0; m < (single ? 1 : run->microbatches); m++) {
            run->written[state_of(run, one, (int32_t)m, input->value)] = WRITTEN;
            if (m > 0 && !run->each_microbatch)
                continue;
            const certify_outcome outcome =
                at_value(run, unit_index, input->value, check_input(run, unit_index, input, m));
            if (outcome != CERTIFY_DONE)
                return outcome;
        }
    }
    return CERTIFY_DONE;
}

static certify_outcome prepare(replay *run)
{
    certify_outcome outcome = add_units(run);
    for (size_t r = 0; r < run->plan->roles.count && outcome == CERTIFY_DONE; r++) {
        const tocsin_plan_role *role = &run->plan->roles.items[r];
        for (uint32_t v = 0; v < role->value_count; v++)
            run->single[role->first_value + v] =
                run->plan->values.items[role->first_value + v].persistent;
        outcome = check_turns(run, role);
    }
    for (uint32_t u = 0; u < run->units.count && outcome == CERTIFY_DONE; u++) {
        count_accumulations(run, &run->units.items[u]);
        outcome = check_inputs(run, u);
    }
    return outcome;
}

/* ---- one local operator ---------------------------------------------------------------------- */

/* Does the result name its input's memory? Then it may be made before the wait. */
static bool is_alias(uint16_t code)
{
    switch (code) {
    case TOCSIN_OPERATOR_WAIT:
    case TOCSIN_OPERATOR_IDENTITY:
    case TOCSIN_OPERATOR_COPIES:
    case TOCSIN_OPERATOR_VIEW:
    case TOCSIN_OPERATOR_PERMUTE:
    case TOCSIN_OPERATOR_EXPAND:
    case TOCSIN_OPERATOR_SLICE:
    case TOCSIN_OPERATOR_SELECT:
    case TOCSIN_OPERATOR_SPLIT:
    case TOCSIN_OPERATOR_UNBIND:
        return true;
    default:
        return false;
    }
}

void certify_write(const replay_step *now)
{
    const replay_unit *one = &now->run->units.items[now->unit];
    bool under_way = tocsin_operator_communicates((tocsin_operator_code)now->op->code) &&
                     certify_integer_of(now->run->plan, now->op, "async", 0) != 0;
    if (is_alias(now->op->code)) {
        uint8_t *state =
            &now->run->written[state_of(now->run, one, now->microbatch, now->inputs[0])];
        if (now->op->code == TOCSIN_OPERATOR_WAIT && *state != 0)
            *state = WRITTEN;
        under_way = *state == UNDER_WAY;
    }
    for (uint32_t j = 0; j < now->op->output_count; j++) {
        const size_t state = state_of(now->run, one, now->microbatch, now->outputs[j]);
        now->run->written[state] = under_way ? UNDER_WAY : WRITTEN;
        if (now->op->code == TOCSIN_OPERATOR_ACCUMULATE)
            now->run->pending[state]--;
    }
}

/* Is an output one value that every micro-batch writes anew? */
bool certify_is_overwritten(const replay_step *now, uint32_t value)
{
    return now->microbatch >= 0 && now->run->microbatches > 1 &&
           is_single(now->run, &now->run->units.items[now->unit], value);
}

static certify_outcome judge_local(const replay_step *now)
{
    replay *run = now->run;
    const uint32_t in = now->op->input_count, out = now->op->output_count;
    const tocsin_arena_mark mark = tocsin_arena_get_mark(&run->arena);
    uint32_t *relations = TOCSIN_ARENA_ARRAY(&run->arena, uint32_t, in + out + 1);
    bool known = !now->op->flawed, claimed = false;
    certify_outcome outcome = CERTIFY_DONE;

    if (relations == NULL)
        return CERTIFY_FAILED;
    for (uint32_t i = 0; i < in; i++) {
        relations[i] =
            certify_read(run, now->unit, now->microbatch, now->inputs[i], is_alias(now->op->code));
        known &= relations[i] != 0;
    }
    for (uint32_t j = 0; j < out; j++) {
        relations[in + j] = certify_fact(run, now->unit, now->microbatch, now->outputs[j]);
        claimed |= relations[in + j] != 0;
        if (relations[in + j] != 0 && now->op->code != TOCSIN_OPERATOR_ACCUMULATE &&
            certify_is_overwritten(now, now->outputs[j]))
            outcome = certify_unclear(run->checker, "every micro-batch overwrites the result");
        run->checker->facts += now->judged && relations[in + j] != 0;
    }
    if (outcome == CERTIFY_DONE && claimed && !known)
        outcome =
            certify_different(run->checker, "a result of what is not known, or not yet there");
    if (outcome == CERTIFY_DONE && claimed && now->judged &&
        now->op->code != TOCSIN_OPERATOR_ACCUMULATE) {
        const tocsin_plan_value *values =
            run->plan->values.items + run->units.items[now->unit].role->first_value;
        const certify_step local = {.plan = run->plan,
                                    .op = now->op,
                                    .inputs = relations,
                                    .outputs = relations + in,
                                    .from_dtype = in > 0 ? values[now->inputs[0]].dtype : 0,
                                    .to_dtype = out > 0 ? values[now->outputs[0]].dtype : 0};
        outcome = certify_local(run->checker, &local);
    }
    certify_write(now);
    tocsin_arena_reset_to(&run->arena, mark);
    return outcome;
}

/* ---- running --------------------------------------------------------------------------------- */

static certify_outcome run_step(const replay_step *now, progress *made)
{
    *made = ADVANCE;
    if (now->op->code == TOCSIN_OPERATOR_SEND || now->op->code == TOCSIN_OPERATOR_RECV)
        return certify_run_message(now, made);
    if (tocsin_operator_communicates((tocsin_operator_code)now->op->code))
        return certify_run_collective(now, made);
    return judge_local(now);
}

static certify_outcome advance(replay *run, uint32_t unit_index)
{
    for (;;) {
        replay_unit *one = &run->units.items[unit_index];
        if (one->turn == one->role->turn_count)
            return CERTIFY_DONE;
        const tocsin_plan_turn *turn = turn_of(run, one, one->turn);
        const tocsin_plan_segment *segment = segment_of(run, one, turn->segment);
        if (one->op == segment->op_count) {
            one->judged[turn->segment] = true;
            one->op = 0;
            one->turn++;
            continue;
        }
        const uint32_t index = segment->first_op + one->op;
        const tocsin_plan_op *op = &run->plan->ops.items[index];
        const replay_step now = {.run = run,
                                 .unit = unit_index,
                                 .op_index = index,
                                 .microbatch = turn->microbatch,
                                 .judged = run->each_microbatch || !one->judged[turn->segment],
                                 .op = op,
                                 .inputs = run->plan->operands.items + op->first_operand,
                                 .outputs = outputs_of(run, op)};
        progress made;
        const certify_outcome outcome =
            at_step(run, unit_index, turn->microbatch, index, run_step(&now, &made));
        if (outcome != CERTIFY_DONE || made == WAIT)
            return outcome;
        run->units.items[unit_index].op++;
    }
}

static certify_outcome run_all(replay *run)
{
    for (size_t next = 0; next < run->ready.count; next++) {
        const uint32_t index = run->ready.items[next];
        run->units.items[index].queued = false;
        const certify_outcome outcome = advance(run, index);
        if (outcome != CERTIFY_DONE)
            return outcome;
    }
    for (uint32_t u = 0; u < run->units.count; u++) {
        const replay_unit *one = &run->units.items[u];
        if (one->turn < one->role->turn_count) {
            const tocsin_plan_turn *turn = turn_of(run, one, one->turn);
            const uint32_t op = segment_of(run, one, turn->segment)->first_op + one->op;
            return at_step(run, u, turn->microbatch, op,
                           certify_different(run->checker, "it waits for ever"));
        }
    }
    return CERTIFY_DONE;
}

/* ---- what has been added up, and what was never written -------------------------------------- */

typedef TOCSIN_VEC(certify_addend) addend_list;

/* Everything that is added to a value at this micro-batch (-1: at any). */
static certify_outcome list_addends(replay *run, uint32_t unit_index, uint32_t value, int32_t at,
                                    addend_list *addends, bool *known)
{
    const replay_unit *one = &run->units.items[unit_index];
    for (uint32_t t = 0; t < one->role->turn_count; t++) {
        const tocsin_plan_turn *turn = turn_of(run, one, t);
        const tocsin_plan_segment *segment = segment_of(run, one, turn->segment);
        if (at >= 0 && turn->microbatch != at)
            continue;
        for (uint32_t k = 0; k < segment->op_count; k++) {
            const tocsin_plan_op *op = &run->plan->ops.items[segment->first_op + k];
            if (op->code != TOCSIN_OPERATOR_ACCUMULATE || outputs_of(run, op)[0] != value)
                continue;
            const certify_addend addend = {
                .relation = certify_fact(run, unit_index, turn->microbatch,
                                         run->plan->operands.items[op->first_operand]),
                .fixed = {-1, run->each_microbatch || at >= 0 ? -1 : turn->microbatch}};
            *known &= addend.relation != 0;
            if (!TOCSIN_VEC_PUSH(addends, addend))
                return CERTIFY_FAILED;
        }
    }
    return CERTIFY_DONE;
}

static certify_outcome check_accumulated(replay *run, uint32_t unit_index, uint32_t value,
                                         uint32_t slot)
{
    const certify_number one = certify_integer(1);
    const uint32_t relation = certify_fact(run, unit_index, (int32_t)slot, value);
    const bool single = is_single(run, &run->units.items[unit_index], value);
    addend_list addends = {0};
    bool known = true;

    if (relation == 0)
        return CERTIFY_DONE;
    certify_outcome outcome =
        list_addends(run, unit_index, value, single ? -1 : (int32_t)slot, &addends, &known);
    if (outcome == CERTIFY_DONE && !known)
        outcome = certify_different(run->checker, "a sum of what is not known");
    if (outcome == CERTIFY_DONE)
        outcome = certify_total(run->checker, relation, addends.items, addends.count, &one);
    TOCSIN_VEC_FREE(&addends);
    return outcome;
}

static certify_outcome check_values(replay *run, uint32_t unit_index)
{
    const replay_unit *one = &run->units.items[unit_index];
    const tocsin_arena_mark mark = tocsin_arena_get_mark(&run->arena);
    uint8_t *added = TOCSIN_ARENA_ARRAY(&run->arena, uint8_t, one->role->value_count + 1);
    certify_outcome outcome = CERTIFY_DONE;

    if (added == NULL)
        return CERTIFY_FAILED;
    memset(added, 0, one->role->value_count);
    for (uint32_t s = 0; s < one->role->segment_count; s++) {
        const tocsin_plan_segment *segment = segment_of(run, one, s);
        for (uint32_t k = 0; k < segment->op_count; k++) {
            const tocsin_plan_op *op = &run->plan->ops.items[segment->first_op + k];
            if (op->code == TOCSIN_OPERATOR_ACCUMULATE)
                added[outputs_of(run, op)[0]] = 1;
        }
    }
    for (uint32_t v = 0; v < one->role->value_count && outcome == CERTIFY_DONE; v++)
        for (uint32_t m = 0; m < (is_single(run, one, v) ? 1 : run->microbatches); m++) {
            const size_t state = state_of(run, one, (int32_t)m, v);
            if (certify_fact(run, unit_index, (int32_t)m, v) != 0 && !run->written[state])
                outcome = certify_different(run->checker, "a fact of what is never written");
            if (outcome == CERTIFY_DONE && added[v] && (m == 0 || run->each_microbatch))
                outcome = check_accumulated(run, unit_index, v, m);
            outcome = at_value(run, unit_index, v, outcome);
            if (outcome != CERTIFY_DONE)
                break;
        }
    for (uint32_t k = 0; k < one->role->output_count && outcome == CERTIFY_DONE; k++) {
        const uint32_t value = run->plan->outputs.items[one->role->first_output + k].value;
        for (uint32_t m = 0; m < (is_single(run, one, value) ? 1 : run->microbatches); m++)
            if (run->written[state_of(run, one, (int32_t)m, value)] != WRITTEN)
                outcome = certify_different(run->checker, "an output is not there in the end");
        outcome = at_value(run, unit_index, value, outcome);
    }
    tocsin_arena_reset_to(&run->arena, mark);
    return outcome;
}

static void free_replay(replay *run)
{
    for (size_t b = 0; b < run->boxes.count; b++)
        TOCSIN_VEC_FREE(&run->boxes.items[b].items);
    TOCSIN_VEC_FREE(&run->units);
    TOCSIN_VEC_FREE(&run->ready);
    TOCSIN_VEC_FREE(&run->gatherings);
    TOCSIN_VEC_FREE(&run->boxes);
    tocsin_intern_free(&run->meetings);
    tocsin_intern_free(&run->channels);
    tocsin_map_free(&run->partners);
    tocsin_free(run->written);
    tocsin_free(run->pending);
    tocsin_arena_free(&run->arena);
}

certify_outcome certify_replay(certify_checker *checker, int side, char *text, size_t text_bytes)
{
    const certificate *from = checker->certificate;
    const tocsin_plan *plan = checker->plan[side];
    replay run = {.checker = checker,
                  .from = from,
                  .plan = plan,
                  .side = side,
                  .each_replica = side == 0 || from->each_replica,
                  .each_microbatch = side == 0 || from->each_microbatch,
                  .microbatches = plan->microbatches,
                  .text = text,
                  .text_bytes = text_bytes};
    run.replicas = run.each_replica ? tocsin_plan_replicas(plan) : 1;
    checker->side = side;
    certify_outcome outcome = prepare(&run);
    if (outcome == CERTIFY_DONE)
        outcome = run_all(&run);
    for (uint32_t u = 0; u < run.units.count && outcome == CERTIFY_DONE; u++)
        outcome = check_values(&run, u);
    if ((outcome == CERTIFY_DIFFERENT || outcome == CERTIFY_UNCLEAR) && text[0] == '\0')
        snprintf(text, text_bytes, "%s plan: %s", side == 0 ? "logical" : "parallel", checker->why);
    free_replay(&run);
    return outcome;
}
