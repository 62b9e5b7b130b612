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

#include "certify/certify.h"

enum { STATE_MAX = 1 << 28 };
#define NOBODY UINT32_MAX
enum { WRITTEN = 1, UNDER_WAY = 2 }; /* the latter until the wait */

typedef struct unit {
    const tocsin_plan_role *role;
    uint32_t role_index, replica;
    uint32_t turn, op;  /* next */
    size_t first_state; /* [micro-batch][value], into states */
    bool queued, sent;
    bool *judged;    /* by segment */
    uint32_t *calls; /* by group */
} unit;

typedef struct member {
    uint32_t unit, op; /* NOBODY: has not come */
    int32_t microbatch;
    uint32_t input, output; /* relations */
} member;

typedef struct gathering {
    uint32_t count, come;
    bool over_replicas;
    member *members;
} gathering;

typedef struct letter {
    member from;
    bool taken;
} letter;

typedef struct mailbox {
    TOCSIN_VEC(letter) items;
    uint32_t taken;
    uint32_t reader; /* waiting unit, or NOBODY */
} mailbox;

typedef struct replay {
    certify_checker *checker;
    const certificate *from;
    const tocsin_plan *plan;
    int side;
    bool each_replica, each_microbatch;
    uint32_t microbatches, replicas;
    TOCSIN_VEC(unit) units;
    uint32_t *unit_of; /* [device * replicas + replica] */
    uint8_t *single;   /* by value of the plan: one for all micro-batches */
    uint8_t *written;  /* states */
    uint32_t *pending; /* states: accumulations to come */
    size_t state_count;
    TOCSIN_VEC(uint32_t) ready;
    TOCSIN_VEC(gathering) gatherings;
    TOCSIN_VEC(mailbox) boxes;
    tocsin_intern meetings; /* (group, call, instance) -> gathering + 1 */
    tocsin_intern channels; /* (source, destination, tag) -> box + 1 */
    tocsin_map partners;    /* (unit, op) -> what it met first, + 1 */
    tocsin_arena arena;
    char *text;
    size_t text_bytes;
} replay;

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

static bool is_single(const replay *run, const unit *one, uint32_t value)
{
    return run->single[one->role->first_value + value];
}

/* The relation of a value at a micro-batch. */
static uint32_t fact(const replay *run, uint32_t unit_index, int32_t microbatch, uint32_t value)
{
    const unit *one = &run->units.items[unit_index];
    const bool first = !run->each_microbatch || microbatch < 0 || is_single(run, one, value);
    return certify_value(run->from, run->plan, run->side, unit_index,
                         first ? 0 : (uint32_t)microbatch, value);
}

static size_t state_of(const replay *run, const unit *one, int32_t microbatch, uint32_t value)
{
    const bool first = microbatch < 0 || is_single(run, one, value);
    return one->first_state + (first ? 0 : (size_t)microbatch) * one->role->value_count + value;
}

/* What an operator reads: 0 when nothing is known of it. */
static uint32_t read_value(const replay *run, uint32_t unit_index, int32_t microbatch,
                           uint32_t value, bool alias)
{
    const unit *one = &run->units.items[unit_index];
    const size_t state = state_of(run, one, microbatch, value);
    const bool there = run->written[state] == WRITTEN || (alias && run->written[state] != 0);
    if (!there || run->pending[state] > 0 ||
        (microbatch < 0 && run->microbatches > 1 && !is_single(run, one, value)))
        return 0;
    return fact(run, unit_index, microbatch, value);
}

static const tocsin_plan_turn *turn_of(const replay *run, const unit *one, uint32_t turn)
{
    return &run->plan->turns.items[one->role->first_turn + turn];
}

static const tocsin_plan_segment *segment_of(const replay *run, const unit *one, uint32_t segment)
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
    unit one = {.role = role, .role_index = role_index, .replica = replica, .queued = true};
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

static void count_accumulations(replay *run, const unit *one)
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
    const unit *one = &run->units.items[unit_index];
    const uint32_t relation = fact(run, unit_index, (int32_t)slot, input->value);
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
        if (run->each_replica) {
            starts[d].base += starts[d].weight[TOCSIN_SYMBOL_REPLICA] * (int64_t)one->replica;
            starts[d].weight[TOCSIN_SYMBOL_REPLICA] = 0;
        }
        if (run->each_microbatch) {
            starts[d].base += starts[d].weight[TOCSIN_SYMBOL_MICROBATCH] * (int64_t)slot;
            starts[d].weight[TOCSIN_SYMBOL_MICROBATCH] = 0;
        }
    }
    run->checker->facts++;
    return certify_slice(run->checker, relation, 0, atom, starts);
}

static certify_outcome check_inputs(replay *run, uint32_t unit_index)
{
    const unit *one = &run->units.items[unit_index];
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

typedef struct step {
    replay *run;
    uint32_t unit, op_index;
    int32_t microbatch;
    bool judged; /* its facts are to be judged, not only its reads and meetings */
    const tocsin_plan_op *op;
    const uint32_t *inputs, *outputs;
} step;

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

static void write_outputs(const step *now)
{
    const unit *one = &now->run->units.items[now->unit];
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
static bool is_overwritten(const step *now, uint32_t value)
{
    return now->microbatch >= 0 && now->run->microbatches > 1 &&
           is_single(now->run, &now->run->units.items[now->unit], value);
}

static certify_outcome judge_local(const step *now)
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
            read_value(run, now->unit, now->microbatch, now->inputs[i], is_alias(now->op->code));
        known &= relations[i] != 0;
    }
    for (uint32_t j = 0; j < out; j++) {
        relations[in + j] = fact(run, now->unit, now->microbatch, now->outputs[j]);
        claimed |= relations[in + j] != 0;
        if (relations[in + j] != 0 && now->op->code != TOCSIN_OPERATOR_ACCUMULATE &&
            is_overwritten(now, now->outputs[j]))
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
    write_outputs(now);
    tocsin_arena_reset_to(&run->arena, mark);
    return outcome;
}

/* ---- collectives ----------------------------------------------------------------------------- */

typedef enum progress { ADVANCE, WAIT } progress;

static bool wake(replay *run, uint32_t unit_index)
{
    if (run->units.items[unit_index].queued)
        return true;
    run->units.items[unit_index].queued = true;
    return TOCSIN_VEC_PUSH(&run->ready, unit_index);
}

/* Has (unit, op) met `partner` every time so far? With symbolic micro-batches it must. */
static certify_outcome meets_same(replay *run, const member *who, uint64_t partner, bool *first)
{
    uint64_t *known = tocsin_map_at(&run->partners, (uint64_t)who->unit << 32 | who->op);
    if (known == NULL)
        return CERTIFY_FAILED;
    *first = *known == 0;
    if (*first)
        *known = partner + 1;
    return run->each_microbatch || *known == partner + 1
               ? CERTIFY_DONE
               : certify_unclear(run->checker, "micro-batches communicate in different ways");
}

static const tocsin_plan_member *members_of(const replay *run, uint32_t group)
{
    return run->plan->members.items + run->plan->groups.items[group].first_member;
}

/* Where the unit stands in the group; NOBODY: it is no member. */
static uint32_t position_of(const replay *run, const unit *one, uint32_t group)
{
    const uint32_t count = run->plan->groups.items[group].member_count;
    for (uint32_t m = 0; m < count; m++) {
        const tocsin_plan_member *listed = &members_of(run, group)[m];
        if (listed->device != one->role->device ||
            (listed->replica >= 0 && (uint32_t)listed->replica != one->replica))
            continue;
        return listed->replica == TOCSIN_MEMBER_ALL && run->each_replica ? one->replica * count + m
                                                                         : m;
    }
    return NOBODY;
}

static gathering *gathering_of(replay *run, unit *one, uint32_t group)
{
    const tocsin_plan_member *members = members_of(run, group);
    const bool all = members[0].replica == TOCSIN_MEMBER_ALL;
    const uint64_t instance =
        members[0].replica == TOCSIN_MEMBER_SAME && run->each_replica ? one->replica : 0;
    const uint32_t call = one->calls[group];
    const uint64_t key[2] = {(uint64_t)group << 32 | call, instance};
    const uint32_t number = tocsin_intern_put(&run->meetings, key, sizeof key);
    if (number == 0)
        return NULL;
    if (number > run->gatherings.count) {
        const uint64_t count = (uint64_t)run->plan->groups.items[group].member_count *
                               (all && run->each_replica ? run->replicas : 1);
        gathering made = {.count = (uint32_t)count, .over_replicas = all && !run->each_replica};
        made.members = TOCSIN_ARENA_ARRAY(&run->arena, member, count);
        if (made.members == NULL || !TOCSIN_VEC_PUSH(&run->gatherings, made))
            return NULL;
        for (uint64_t m = 0; m < count; m++)
            made.members[m] = (member){.unit = NOBODY, .op = NOBODY};
    }
    return &run->gatherings.items[number - 1];
}

/* Do two members ask for the same? */
static bool same_call(const replay *run, uint32_t a, uint32_t b)
{
    static const char *const integers[] = {"dim", "split_dim", "join_dim", "root"};
    const tocsin_plan_op *one = &run->plan->ops.items[a], *other = &run->plan->ops.items[b];
    bool same =
        one->code == other->code && strcmp(certify_text_of(run->plan, one, "op", "sum"),
                                           certify_text_of(run->plan, other, "op", "sum")) == 0;
    for (size_t k = 0; k < TOCSIN_COUNT_OF(integers); k++)
        same &= certify_integer_of(run->plan, one, integers[k], 0) ==
                certify_integer_of(run->plan, other, integers[k], 0);
    return same;
}

/* All have come. */
static certify_outcome judge_gathering(replay *run, gathering *now)
{
    const member *first = &now->members[0];
    uint64_t partner = (uint64_t)first->unit << 32 | first->op;
    bool fresh = true, any = false, claimed = false;
    certify_outcome outcome = CERTIFY_DONE;
    uint32_t *relations = TOCSIN_ARENA_ARRAY(&run->arena, uint32_t, 2 * (size_t)now->count);

    if (relations == NULL)
        return CERTIFY_FAILED;
    for (uint32_t m = 0; m < now->count && outcome == CERTIFY_DONE; m++) {
        const member *one = &now->members[m];
        bool is_first = false;
        outcome = meets_same(run, one, partner, &is_first);
        fresh &= is_first;
        any |= is_first;
        if (outcome == CERTIFY_DONE && !same_call(run, first->op, one->op))
            outcome = certify_different(run->checker, "members of a group call different things");
        if (outcome == CERTIFY_DONE && !run->each_microbatch &&
            one->microbatch != first->microbatch)
            outcome = certify_unclear(run->checker, "members are at different micro-batches");
        relations[m] = one->input;
        relations[now->count + m] = one->output;
        claimed |= one->output != 0;
    }
    if (outcome == CERTIFY_DONE && any && !fresh && !run->each_microbatch)
        outcome = certify_unclear(run->checker, "micro-batches communicate in different ways");
    const tocsin_plan_op *op = &run->plan->ops.items[first->op];
    if (outcome == CERTIFY_DONE && claimed && (fresh || run->each_microbatch)) {
        const certify_exchange exchange = {.plan = run->plan,
                                           .op = op,
                                           .count = now->count,
                                           .over_replicas = now->over_replicas,
                                           .inputs = relations,
                                           .outputs = relations + now->count};
        outcome = certify_collective(run->checker, &exchange);
    }
    for (uint32_t m = 0; m < now->count; m++)
        if (!wake(run, now->members[m].unit))
            return CERTIFY_FAILED;
    return outcome;
}

static certify_outcome run_collective(const step *now, progress *made)
{
    replay *run = now->run;
    unit *one = &run->units.items[now->unit];
    const uint32_t group = now->op->group;
    const uint32_t position = group == TOCSIN_PLAN_NONE ? NOBODY : position_of(run, one, group);
    certify_outcome outcome = CERTIFY_DONE;

    if (position == NOBODY || now->op->flawed || now->op->input_count > 1)
        return certify_unclear(run->checker, "a collective that cannot run");
    gathering *meeting = gathering_of(run, one, group);
    if (meeting == NULL)
        return CERTIFY_FAILED;
    member *self = &meeting->members[position];
    if (self->unit == NOBODY) {
        *self = (member){.unit = now->unit, .op = now->op_index, .microbatch = now->microbatch};
        if (now->op->input_count == 1)
            self->input = read_value(run, now->unit, now->microbatch, now->inputs[0], false);
        if (now->op->output_count == 1) {
            self->output = fact(run, now->unit, now->microbatch, now->outputs[0]);
            run->checker->facts += now->judged && self->output != 0;
            if (self->output != 0 && is_overwritten(now, now->outputs[0]))
                return certify_unclear(run->checker, "every micro-batch overwrites the result");
        }
        if (++meeting->come == meeting->count)
            outcome = judge_gathering(run, meeting);
    } else if (self->unit != now->unit) {
        return certify_unclear(run->checker, "two units stand in one place of a group");
    }
    *made = meeting->come == meeting->count ? ADVANCE : WAIT;
    if (*made == ADVANCE) {
        one->calls[group]++;
        write_outputs(now);
    }
    return outcome;
}

/* ---- point to point -------------------------------------------------------------------------- */

static mailbox *mailbox_of(replay *run, uint32_t from, uint32_t to, int64_t tag)
{
    const uint64_t key[2] = {(uint64_t)from << 32 | to, (uint64_t)tag};
    const uint32_t number = tocsin_intern_put(&run->channels, key, sizeof key);
    if (number == 0 ||
        (number > run->boxes.count && !TOCSIN_VEC_PUSH(&run->boxes, (mailbox){.reader = NOBODY})))
        return NULL;
    return &run->boxes.items[number - 1];
}

static certify_outcome judge_letter(const step *now, const member *sender)
{
    replay *run = now->run;
    const member self = {.unit = now->unit, .op = now->op_index, .microbatch = now->microbatch};
    const uint32_t output = fact(run, now->unit, now->microbatch, now->outputs[0]);
    bool fresh = false;

    certify_outcome outcome =
        meets_same(run, &self, (uint64_t)sender->unit << 32 | sender->op, &fresh);
    if (outcome == CERTIFY_DONE && !run->each_microbatch && sender->microbatch != now->microbatch)
        return certify_unclear(run->checker, "a message of another micro-batch");
    if (outcome != CERTIFY_DONE || output == 0)
        return outcome;
    run->checker->facts += now->judged;
    if (sender->input == 0)
        return certify_different(run->checker, "what is sent is not known");
    if (is_overwritten(now, now->outputs[0]))
        return certify_unclear(run->checker, "every micro-batch overwrites the result");
    return now->judged ? certify_same(run->checker, output, sender->input) : CERTIFY_DONE;
}

static certify_outcome run_send(const step *now, mailbox *box, progress *made)
{
    replay *run = now->run;
    unit *one = &run->units.items[now->unit];
    const bool blocking = certify_integer_of(run->plan, now->op, "blocking", 0) != 0;

    if (!one->sent) {
        const letter sent = {
            .from = {.unit = now->unit,
                     .op = now->op_index,
                     .microbatch = now->microbatch,
                     .input = read_value(run, now->unit, now->microbatch, now->inputs[0], false)}};
        if (!TOCSIN_VEC_PUSH(&box->items, sent) ||
            (box->reader != NOBODY && !wake(run, box->reader)))
            return CERTIFY_FAILED;
        one->sent = true;
    }
    /* a rendezvous: this unit's own letter is the newest */
    *made = blocking && box->taken < box->items.count ? WAIT : ADVANCE;
    if (*made == ADVANCE)
        one->sent = false;
    return CERTIFY_DONE;
}

static certify_outcome run_message(const step *now, progress *made)
{
    replay *run = now->run;
    const unit *one = &run->units.items[now->unit];
    const int64_t device = certify_integer_of(run->plan, now->op, "peer", -1);
    const int64_t tag = certify_integer_of(run->plan, now->op, "tag", 0);
    const bool sends = now->op->code == TOCSIN_OPERATOR_SEND;
    uint32_t peer = NOBODY;

    if (device >= 0 && device < (int64_t)tocsin_plan_devices(run->plan))
        peer =
            run->unit_of[(size_t)device * run->replicas + (run->each_replica ? one->replica : 0)];
    if (peer == NOBODY)
        return certify_unclear(run->checker, "a message to or from nobody");
    mailbox *box = mailbox_of(run, sends ? now->unit : peer, sends ? peer : now->unit, tag);
    if (box == NULL)
        return CERTIFY_FAILED;
    if (sends)
        return run_send(now, box, made);
    if (box->taken == box->items.count) {
        box->reader = now->unit;
        *made = WAIT;
        return CERTIFY_DONE;
    }
    box->reader = NOBODY;
    const member sender = box->items.items[box->taken++].from;
    *made = ADVANCE;
    if (!wake(run, sender.unit))
        return CERTIFY_FAILED;
    write_outputs(now);
    return judge_letter(now, &sender);
}

/* ---- running --------------------------------------------------------------------------------- */

static certify_outcome run_step(const step *now, progress *made)
{
    *made = ADVANCE;
    if (now->op->code == TOCSIN_OPERATOR_SEND || now->op->code == TOCSIN_OPERATOR_RECV)
        return run_message(now, made);
    if (tocsin_operator_communicates((tocsin_operator_code)now->op->code))
        return run_collective(now, made);
    return judge_local(now);
}

static certify_outcome advance(replay *run, uint32_t unit_index)
{
    for (;;) {
        unit *one = &run->units.items[unit_index];
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
        const step now = {.run = run,
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
        const unit *one = &run->units.items[u];
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
    const unit *one = &run->units.items[unit_index];
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
                .relation = fact(run, unit_index, turn->microbatch,
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
    const uint32_t relation = fact(run, unit_index, (int32_t)slot, value);
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
    const unit *one = &run->units.items[unit_index];
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
            if (fact(run, unit_index, (int32_t)m, v) != 0 && !run->written[state])
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
