/* plan_check.c - is what was built a plan?
 *
 * One pass over groups, then over each role: names, schedule, who writes a value, and each
 * operator. What is no plan ends the check with an error; what is a plan but cannot run marks its
 * operators as flawed.
 * Data structure: arrays indexed by string, value, segment or group, whose entries carry the stamp
 * of the role that wrote them, so that a new role needs no clearing.
 * Cost: linear in the plan, but for the order of segments: segments that read from one another x
 * the turns of the reader, below 2^12 x 2^20.
 */
#include "plan/plan_check.h"

#include <assert.h>
#include <stdio.h>

#define FORMAT(c, ...) tocsin_error_set((c)->error, TOCSIN_E_FORMAT, __VA_ARGS__)

enum { SEGMENTS_MAX = 4096 }; /* of a role */

/* Who writes a value of the role at hand. */
typedef struct writer {
    uint32_t op; /* the first one; WRITER_NONE, WRITER_INPUT */
    uint32_t segment;
} writer;
#define WRITER_NONE  UINT32_MAX
#define WRITER_INPUT (UINT32_MAX - 1)

typedef enum order { ORDER_RIGHT, ORDER_LATE, ORDER_AMBIGUOUS } order;

/* What is known of the order of one segment's values and the segment that reads them. */
typedef struct segment_order {
    uint32_t reader;  /* segment + 1 */
    uint8_t order[2]; /* of values that are separate for micro-batches, of persistent ones */
} segment_order;

typedef struct checker {
    tocsin_plan *plan;
    tocsin_error *error;
    tocsin_plan_role *role;
    uint32_t stamp;               /* of the role, from 1; 0 is for the groups */
    uint32_t *named;              /* by string: 2 * stamp: a value's name, + 1: a segment's */
    uint32_t *group_caller;       /* by group: 2 * stamp, + 1 if the role is in it */
    writer *writers;              /* by value of the role */
    segment_order *orders;        /* by segment that writes */
    uint32_t *first_turn;         /* by segment: into turn_of; one more at the end */
    uint32_t *turn_of;            /* turns of the role, by segment */
    tocsin_map positions;         /* segment << 32 | micro-batch + 1 -> position in the schedule */
    tocsin_map known;             /* code << 32 | attribute set: attributes are right */
    tocsin_signature *signatures; /* of the operator table, by code */
    uint8_t *listed;              /* by device * replicas + replica: has a role */
} checker;

static const char *text_of(const checker *c, uint32_t string)
{
    return tocsin_plan_text(c->plan, string);
}

static tocsin_plan_value *value_of(const checker *c, uint32_t id)
{
    assert(id < c->role->value_count);
    return &c->plan->values.items[c->role->first_value + id];
}

static const char *value_name(const checker *c, uint32_t id)
{
    return text_of(c, value_of(c, id)->name);
}

/* ---- roles cover the mesh, names are unique ---------------------------------------------------
 */

static tocsin_status check_groups(checker *c)
{
    for (size_t i = 0; i < c->plan->groups.count; ++i) {
        uint32_t name = c->plan->groups.items[i].name;
        if (c->named[name])
            return FORMAT(c, "two groups are called %s", text_of(c, name));
        c->named[name] = 1;
    }
    for (size_t i = 0; i < c->plan->groups.count; ++i)
        c->named[c->plan->groups.items[i].name] = 0;
    return TOCSIN_OK;
}

static tocsin_status check_listed(checker *c)
{
    const tocsin_plan_role *role = c->role;
    size_t first = (size_t)role->device * tocsin_plan_replicas(c->plan) + role->first_replica;
    for (uint32_t i = 0; i < role->replica_count; ++i) {
        if (c->listed[first + i])
            return FORMAT(c, "rank %u has two roles",
                          tocsin_plan_rank(c->plan, role->device, role->first_replica + i));
        c->listed[first + i] = 1;
    }
    return TOCSIN_OK;
}

static tocsin_status check_coverage(checker *c)
{
    uint32_t replicas = tocsin_plan_replicas(c->plan);
    size_t ranks = (size_t)tocsin_plan_devices(c->plan) * replicas;
    for (size_t i = 0; i < ranks; ++i) {
        if (!c->listed[i])
            return FORMAT(
                c, "rank %u has no role",
                tocsin_plan_rank(c->plan, (uint32_t)(i / replicas), (uint32_t)(i % replicas)));
    }
    return TOCSIN_OK;
}

static tocsin_status check_names(checker *c)
{
    for (uint32_t i = 0; i < c->role->value_count; ++i) {
        uint32_t name = value_of(c, i)->name;
        if (c->named[name] == 2 * c->stamp)
            return FORMAT(c, "two values of a role are called %s", text_of(c, name));
        c->named[name] = 2 * c->stamp;
        c->writers[i] = (writer){WRITER_NONE, 0};
    }
    return TOCSIN_OK;
}

/* ---- schedule ---------------------------------------------------------------------------------
 */

static uint64_t position_key(uint32_t segment, int32_t microbatch)
{
    return (uint64_t)segment << 32 | (uint32_t)(microbatch + 1);
}

static const tocsin_plan_segment *segment_of(const checker *c, uint32_t segment)
{
    return &c->plan->segments.items[c->role->first_segment + segment];
}

/* A role without a schedule runs its segments once, in order. */
static tocsin_status complete_schedule(checker *c)
{
    tocsin_plan *plan = c->plan;
    uint32_t count = c->role->segment_count;
    if (c->role->turn_count > 0 || count == 0)
        return TOCSIN_OK;
    if (count > TOCSIN_PLAN_VALUES_MAX - plan->turns.count)
        return tocsin_error_set(c->error, TOCSIN_E_LIMIT,
                                "a plan has at most %d turns in schedules", TOCSIN_PLAN_VALUES_MAX);
    if (!TOCSIN_VEC_RESERVE(&plan->turns, count))
        return tocsin_error_memory(c->error);
    c->role->first_turn = (uint32_t)plan->turns.count;
    c->role->turn_count = count;
    for (uint32_t i = 0; i < count; ++i)
        plan->turns.items[plan->turns.count++] = (tocsin_plan_turn){.segment = i, .microbatch = -1};
    return TOCSIN_OK;
}

/* Sort the turns by segment, and index them. */
static tocsin_status index_schedule(checker *c)
{
    if (c->plan->turns.count == 0)
        return TOCSIN_OK; /* no role has a segment */
    const tocsin_plan_turn *turns = c->plan->turns.items + c->role->first_turn;
    uint32_t segments = c->role->segment_count;
    memset(c->first_turn, 0, (segments + 1) * sizeof *c->first_turn);
    tocsin_map_clear(&c->positions);
    for (uint32_t i = 0; i < c->role->turn_count; ++i) {
        assert(turns[i].segment < segments);
        ++c->first_turn[turns[i].segment + 1];
        uint64_t *position =
            tocsin_map_at(&c->positions, position_key(turns[i].segment, turns[i].microbatch));
        if (!position)
            return tocsin_error_memory(c->error);
        if (*position)
            return FORMAT(c, "the schedule runs segment %s twice for one micro-batch",
                          text_of(c, segment_of(c, turns[i].segment)->name));
        *position = (uint64_t)i + 1;
    }
    for (uint32_t s = 0; s < segments; ++s)
        c->first_turn[s + 1] += c->first_turn[s];
    for (uint32_t i = c->role->turn_count; i-- > 0;) /* fills each segment's turns from the end */
        c->turn_of[--c->first_turn[turns[i].segment + 1]] = i;
    /* Now entry s + 1 holds where segment s begins: shift back. */
    memmove(c->first_turn, c->first_turn + 1, segments * sizeof *c->first_turn);
    c->first_turn[segments] = c->role->turn_count;
    return TOCSIN_OK;
}

static uint32_t turn_count_of(const checker *c, uint32_t segment)
{
    return c->first_turn[segment + 1] - c->first_turn[segment];
}

static tocsin_plan_turn turn_at(const checker *c, uint32_t segment, uint32_t index)
{
    return c->plan->turns.items[c->role->first_turn + c->turn_of[c->first_turn[segment] + index]];
}

/* Does it run without a micro-batch? */
static bool runs_once(const checker *c, uint32_t segment)
{
    return turn_count_of(c, segment) > 0 && turn_at(c, segment, 0).microbatch < 0;
}

static tocsin_status check_segments(checker *c)
{
    if (c->role->segment_count > SEGMENTS_MAX)
        return tocsin_error_set(c->error, TOCSIN_E_LIMIT, "a role has at most %d segments",
                                SEGMENTS_MAX);
    TOCSIN_TRY(complete_schedule(c));
    TOCSIN_TRY(index_schedule(c));
    for (uint32_t s = 0; s < c->role->segment_count; ++s) {
        uint32_t name = segment_of(c, s)->name;
        if (c->named[name] == 2 * c->stamp + 1)
            return FORMAT(c, "two segments of a role are called %s", text_of(c, name));
        c->named[name] = 2 * c->stamp + 1; /* the values' names have been checked before */
        uint32_t turns = turn_count_of(c, s);
        for (uint32_t i = 0; turns > 1 && i < turns; ++i) {
            if (turn_at(c, s, i).microbatch < 0)
                return FORMAT(c, "segment %s runs without a micro-batch, and also with one",
                              text_of(c, name));
        }
        c->orders[s] = (segment_order){0};
    }
    return TOCSIN_OK;
}

/* Does segment `from` run before segment `to` wherever `to` reads a value of it? A turn of `from`
 * that never comes leaves the value unwritten, which is the verifier's to report. */
static order find_order(const checker *c, uint32_t from, uint32_t to, bool persistent)
{
    uint32_t from_turns = turn_count_of(c, from), to_turns = turn_count_of(c, to);
    if (from_turns == 0 || to_turns == 0)
        return ORDER_RIGHT;
    uint32_t first_from = c->turn_of[c->first_turn[from]];
    if (persistent || runs_once(c, from))
        return first_from < c->turn_of[c->first_turn[to]] ? ORDER_RIGHT : ORDER_LATE;
    if (runs_once(c, to) && from_turns > 1)
        return ORDER_AMBIGUOUS;
    if (runs_once(c, to))
        return first_from < c->turn_of[c->first_turn[to]] ? ORDER_RIGHT : ORDER_LATE;
    for (uint32_t i = 0; i < to_turns; ++i) {
        uint32_t at = c->turn_of[c->first_turn[to] + i];
        int32_t microbatch = turn_at(c, to, i).microbatch;
        const uint64_t *written = tocsin_map_find(&c->positions, position_key(from, microbatch));
        if (written && *written - 1 > at)
            return ORDER_LATE;
    }
    return ORDER_RIGHT;
}

static order order_of(checker *c, uint32_t from, uint32_t to, bool persistent)
{
    segment_order *known = &c->orders[from];
    if (known->reader != to + 1) {
        known->reader = to + 1;
        known->order[0] = (uint8_t)find_order(c, from, to, false);
        known->order[1] = (uint8_t)find_order(c, from, to, true);
    }
    return (order)known->order[persistent];
}

/* ---- inputs and outputs -----------------------------------------------------------------------
 */

/* The lowest and highest value of base + weight * [0, ...] over the role's replicas and all
 * micro-batches lie in [0, 2^47]. */
static tocsin_status check_start(checker *c, tocsin_affine start, const char *name)
{
    uint32_t last_replica = c->role->first_replica + c->role->replica_count - 1;
    int64_t replicas[2] = {c->role->first_replica, last_replica};
    int64_t microbatches[2] = {0, (int64_t)c->plan->microbatches - 1};
    for (unsigned corner = 0; corner < 4; ++corner) {
        int64_t replica = 0, microbatch = 0, at = start.base;
        if (__builtin_mul_overflow(start.weight[0], replicas[corner & 1], &replica) ||
            __builtin_mul_overflow(start.weight[1], microbatches[corner >> 1], &microbatch) ||
            __builtin_add_overflow(at, replica, &at) ||
            __builtin_add_overflow(at, microbatch, &at) || at > TOCSIN_PLAN_INDEX_MAX)
            return tocsin_error_set(c->error, TOCSIN_E_LIMIT, "the slice of %s starts beyond 2^47",
                                    name);
        if (at < 0)
            return FORMAT(c, "the slice of %s starts at %lld", name, (long long)at);
    }
    return TOCSIN_OK;
}

static tocsin_status check_inputs(checker *c)
{
    for (uint32_t i = 0; i < c->role->input_count; ++i) {
        const tocsin_plan_input *input = &c->plan->inputs.items[c->role->first_input + i];
        const tocsin_plan_value *value = value_of(c, input->value);
        const char *name = text_of(c, value->name);
        if (c->writers[input->value].op != WRITER_NONE)
            return FORMAT(c, "value %s is an input twice", name);
        c->writers[input->value].op = WRITER_INPUT;
        for (uint32_t d = 0; d < value->ndim; ++d) {
            tocsin_affine start = c->plan->starts.items[input->first_start + d];
            TOCSIN_TRY(check_start(c, start, name));
            if (start.weight[TOCSIN_SYMBOL_MICROBATCH] != 0 && !value->per_microbatch)
                return FORMAT(c,
                              "the slice of %s depends on the micro-batch, but it is one value "
                              "for all of them",
                              name);
        }
    }
    return TOCSIN_OK;
}

static tocsin_status check_outputs(checker *c)
{
    for (uint32_t i = 0; i < c->role->output_count; ++i) {
        const tocsin_plan_output *output = &c->plan->outputs.items[c->role->first_output + i];
        const tocsin_plan_value *value = value_of(c, output->value);
        for (uint32_t d = 0; d < value->ndim; ++d)
            TOCSIN_TRY(check_start(c, c->plan->starts.items[output->first_start + d],
                                   text_of(c, value->name)));
    }
    return TOCSIN_OK;
}

/* ---- operators --------------------------------------------------------------------------------
 */

static tocsin_status mark_flawed(checker *c, uint32_t op, tocsin_flaw_kind kind, const char *why)
{
    tocsin_plan_op *flawed = &c->plan->ops.items[op];
    if (flawed->flawed)
        return TOCSIN_OK;
    uint32_t text = tocsin_plan_string(c->plan, why, strlen(why));
    if (text == 0)
        return tocsin_plan_string_error(c->plan, c->error);
    tocsin_plan_flaw flaw = {.op = op, .kind = (uint8_t)kind, .text = text};
    if (!TOCSIN_VEC_PUSH(&c->plan->flaws, flaw))
        return tocsin_error_memory(c->error);
    flawed->flawed = true;
    return TOCSIN_OK;
}

/* Remember who writes the results. */
static tocsin_status check_results(checker *c, uint32_t op_index, uint32_t segment)
{
    const tocsin_plan_op *op = &c->plan->ops.items[op_index];
    const uint32_t *results = c->plan->operands.items + op->first_operand + op->input_count;
    bool accumulates = op->code == TOCSIN_OPERATOR_ACCUMULATE;
    for (uint32_t i = 0; i < op->output_count; ++i) {
        writer *w = &c->writers[results[i]];
        const tocsin_plan_value *value = value_of(c, results[i]);
        if (value->ndim == TOCSIN_PLAN_NDIM_UNKNOWN)
            return FORMAT(c, "value %s is written, but has no type", text_of(c, value->name));
        if (accumulates && !value->persistent)
            return FORMAT(c, "accumulate adds to %s, which is not kept (write `keep`)",
                          text_of(c, value->name));
        if (w->op == WRITER_NONE)
            *w = (writer){op_index, segment};
        else if (w->op == WRITER_INPUT || !accumulates ||
                 c->plan->ops.items[w->op].code != TOCSIN_OPERATOR_ACCUMULATE)
            return FORMAT(c, "value %s is written twice", text_of(c, value->name));
    }
    return TOCSIN_OK;
}

/* Are the operands written before they are read? */
static tocsin_status check_reads(checker *c, uint32_t op_index, uint32_t segment)
{
    const tocsin_plan_op *op = &c->plan->ops.items[op_index];
    const uint32_t *operands = c->plan->operands.items + op->first_operand;
    for (uint32_t i = 0; i < op->input_count; ++i) {
        writer w = c->writers[operands[i]];
        const tocsin_plan_value *value = value_of(c, operands[i]);
        order when = ORDER_RIGHT;
        if (w.op == WRITER_INPUT && value->per_microbatch && runs_once(c, segment) &&
            c->plan->microbatches > 1)
            when = ORDER_AMBIGUOUS;
        else if (w.op < WRITER_INPUT && w.segment == segment)
            when = w.op < op_index ? ORDER_RIGHT : ORDER_LATE;
        else if (w.op < WRITER_INPUT)
            when = order_of(c, w.segment, segment, value->persistent);
        if (when == ORDER_AMBIGUOUS)
            return FORMAT(c,
                          "%s in segment %s, which runs once, reads %s, of which each micro-batch "
                          "has its own",
                          text_of(c, op->name), text_of(c, segment_of(c, segment)->name),
                          text_of(c, value->name));
        if (when == ORDER_LATE) {
            char why[TOCSIN_FLAW_TEXT_BYTES];
            snprintf(why, sizeof why, "reads %s before it is written", value_name(c, operands[i]));
            TOCSIN_TRY(mark_flawed(c, op_index, TOCSIN_FLAW_ORDER, why));
        }
    }
    return TOCSIN_OK;
}

/* Is the role, in all its replicas, in the group? */
static bool is_caller_in_group(checker *c, uint32_t group)
{
    if (c->group_caller[group] >> 1 == c->stamp)
        return c->group_caller[group] & 1;
    tocsin_plan_group g = c->plan->groups.items[group];
    const tocsin_plan_member *members = c->plan->members.items + g.first_member;
    uint32_t first = c->role->first_replica, count = c->role->replica_count, found = 0;
    for (uint32_t i = 0; i < g.member_count && found < count; ++i) {
        if (members[i].device != c->role->device)
            continue;
        if (members[i].replica < 0)
            found = count;
        else if ((uint32_t)members[i].replica - first < count)
            ++found; /* members are different: builder.c */
    }
    c->group_caller[group] = c->stamp << 1 | (found == count);
    return found == count;
}

static tocsin_status check_communication(checker *c, uint32_t op_index)
{
    const tocsin_plan_op *op = &c->plan->ops.items[op_index];
    const char *name = text_of(c, op->name);
    bool point_to_point = op->code == TOCSIN_OPERATOR_SEND || op->code == TOCSIN_OPERATOR_RECV;
    if (!tocsin_operator_communicates((tocsin_operator_code)op->code)) {
        if (op->group != TOCSIN_PLAN_NONE && op->code != TOCSIN_OPERATOR_CALL)
            return FORMAT(c, "%s is no collective, yet has a group", name);
        return TOCSIN_OK;
    }
    char why[TOCSIN_FLAW_TEXT_BYTES];
    if (point_to_point) {
        const tocsin_attribute *peer = tocsin_plan_attribute(c->plan, op->attributes, "peer");
        assert(peer && peer->count == 1);
        if (peer->integers[0] >= 0 && peer->integers[0] < tocsin_plan_devices(c->plan))
            return TOCSIN_OK;
        snprintf(why, sizeof why, "the peer is device %lld of %u", (long long)peer->integers[0],
                 tocsin_plan_devices(c->plan));
        return mark_flawed(c, op_index, TOCSIN_FLAW_PEER, why);
    }
    if (op->group == TOCSIN_PLAN_NONE)
        return FORMAT(c, "%s needs a group", name);
    if (!is_caller_in_group(c, op->group)) {
        snprintf(why, sizeof why, "the caller is not a member of group %s",
                 text_of(c, c->plan->groups.items[op->group].name));
        return mark_flawed(c, op_index, TOCSIN_FLAW_GROUP, why);
    }
    if (op->code == TOCSIN_OPERATOR_BROADCAST) {
        const tocsin_attribute *root = tocsin_plan_attribute(c->plan, op->attributes, "root");
        uint64_t members = tocsin_plan_group_size(c->plan, op->group);
        assert(root && root->count == 1);
        if (root->integers[0] < 0 || (uint64_t)root->integers[0] >= members)
            return mark_flawed(c, op_index, TOCSIN_FLAW_GROUP, "the group has no such root");
    }
    return TOCSIN_OK;
}

/* Number of operands, by the operator table or the call's own signature. */
static tocsin_status check_counts(checker *c, const tocsin_plan_op *op)
{
    const tocsin_operator *known = &tocsin_operators[op->code];
    int inputs = known->input_count, outputs = known->output_count;
    int least = 1;
    if (op->signature != TOCSIN_PLAN_NONE) {
        inputs = c->plan->signatures.items[op->signature].input_count;
        outputs = c->plan->signatures.items[op->signature].output_count;
    } else if (op->code == TOCSIN_OPERATOR_CALL) {
        least = 0;
    }
    bool broadcast = op->code == TOCSIN_OPERATOR_BROADCAST;
    bool right = (inputs < 0 ? op->input_count >= (broadcast ? 0 : least) &&
                                   (!broadcast || op->input_count <= 1)
                             : op->input_count == inputs) &&
                 (outputs < 0 ? op->output_count >= least : op->output_count == outputs);
    if (!right)
        return FORMAT(c, "%s with %u inputs and %u outputs", text_of(c, op->name), op->input_count,
                      op->output_count);
    return TOCSIN_OK;
}

/* Attributes are looked at once for each operator and attribute set. */
static tocsin_status check_attributes(checker *c, const tocsin_plan_op *op)
{
    uint64_t *known = tocsin_map_at(&c->known, (uint64_t)op->code << 32 | op->attributes);
    if (!known)
        return tocsin_error_memory(c->error);
    if (*known)
        return TOCSIN_OK;
    *known = 1;
    return tocsin_operator_check_attributes(c->plan, op, c->error);
}

static tocsin_status check_op(checker *c, uint32_t op_index, uint32_t segment)
{
    const tocsin_plan_op *op = &c->plan->ops.items[op_index];
    TOCSIN_TRY(check_counts(c, op));
    TOCSIN_TRY(check_attributes(c, op));
    TOCSIN_TRY(check_reads(c, op_index, segment));
    TOCSIN_TRY(check_communication(c, op_index));
    const tocsin_signature *signature = NULL;
    if (op->signature != TOCSIN_PLAN_NONE)
        signature = &c->plan->signatures.items[op->signature];
    else if (tocsin_operators[op->code].signature[0])
        signature = &c->signatures[op->code];
    char why[TOCSIN_FLAW_TEXT_BYTES];
    if (op->flawed || tocsin_operator_fits(c->plan, c->role, op, signature, why))
        return TOCSIN_OK;
    return mark_flawed(c, op_index, TOCSIN_FLAW_SHAPE, why);
}

static tocsin_status check_ops(checker *c)
{
    for (unsigned pass = 0; pass < 2; ++pass) {
        for (uint32_t s = 0; s < c->role->segment_count; ++s) {
            tocsin_plan_segment segment = *segment_of(c, s);
            for (uint32_t i = 0; i < segment.op_count; ++i) {
                uint32_t op = segment.first_op + i;
                c->plan->checked_op = op;
                TOCSIN_TRY(pass == 0 ? check_results(c, op, s) : check_op(c, op, s));
            }
        }
    }
    c->plan->checked_op = TOCSIN_PLAN_NONE;
    return TOCSIN_OK;
}

/* ---- the whole --------------------------------------------------------------------------------
 */

static bool allocate(checker *c)
{
    const tocsin_plan *plan = c->plan;
    size_t values = 0, segments = 0, turns = 0;
    for (size_t i = 0; i < plan->roles.count; ++i) {
        const tocsin_plan_role *role = &plan->roles.items[i];
        values = role->value_count > values ? role->value_count : values;
        segments = role->segment_count > segments ? role->segment_count : segments;
        turns = role->turn_count > turns ? role->turn_count : turns;
    }
    if (turns < segments)
        turns = segments; /* complete_schedule */
    size_t ranks = (size_t)tocsin_plan_devices(plan) * tocsin_plan_replicas(plan);
    c->named = tocsin_zalloc((size_t)tocsin_intern_count(&plan->strings) + 1, sizeof *c->named);
    c->group_caller = tocsin_zalloc(plan->groups.count, sizeof *c->group_caller);
    c->writers = tocsin_zalloc(values, sizeof *c->writers);
    c->orders = tocsin_zalloc(segments, sizeof *c->orders);
    c->first_turn = tocsin_zalloc(segments + 1, sizeof *c->first_turn);
    c->turn_of = tocsin_zalloc(turns, sizeof *c->turn_of);
    c->listed = tocsin_zalloc(ranks, sizeof *c->listed);
    c->signatures = tocsin_zalloc(TOCSIN_OPERATOR_COUNT, sizeof *c->signatures);
    return c->named && c->group_caller && c->writers && c->orders && c->first_turn && c->turn_of &&
           c->listed && c->signatures;
}

static void release(checker *c)
{
    tocsin_free(c->named);
    tocsin_free(c->group_caller);
    tocsin_free(c->writers);
    tocsin_free(c->orders);
    tocsin_free(c->first_turn);
    tocsin_free(c->turn_of);
    tocsin_free(c->listed);
    tocsin_free(c->signatures);
    tocsin_map_free(&c->positions);
    tocsin_map_free(&c->known);
}

static tocsin_status check_role(checker *c)
{
    TOCSIN_TRY(check_listed(c));
    TOCSIN_TRY(check_names(c));
    TOCSIN_TRY(check_segments(c));
    TOCSIN_TRY(check_inputs(c));
    TOCSIN_TRY(check_outputs(c));
    return check_ops(c);
}

static tocsin_status check_plan(checker *c)
{
    if (!allocate(c))
        return tocsin_error_memory(c->error);
    for (unsigned code = 0; code < TOCSIN_OPERATOR_COUNT; ++code) {
        const char *text = tocsin_operators[code].signature;
        if (text[0])
            TOCSIN_TRY(tocsin_signature_parse(text, strlen(text), &c->signatures[code], c->error));
    }
    if (c->plan->microbatches == 0 || c->plan->microbatches > TOCSIN_PLAN_MICROBATCHES_MAX)
        return FORMAT(c, "a step has %u micro-batches", c->plan->microbatches);
    c->plan->checked_role = c->plan->checked_op = TOCSIN_PLAN_NONE;
    TOCSIN_TRY(check_groups(c));
    for (size_t i = 0; i < c->plan->roles.count; ++i) {
        c->role = &c->plan->roles.items[i];
        c->stamp = (uint32_t)i + 1;
        c->plan->checked_role = (uint32_t)i;
        TOCSIN_TRY(check_role(c));
    }
    c->plan->checked_role = TOCSIN_PLAN_NONE;
    return check_coverage(c);
}

tocsin_status tocsin_plan_finish(tocsin_plan *plan, tocsin_error *error)
{
    checker c = {.plan = plan, .error = error};
    assert(plan->flaws.count == 0);
    tocsin_status status = check_plan(&c);
    release(&c);
    return status;
}
