/* sanity_roles.c - the part of the sanity check that looks at each role alone.
 *
 * One pass over a role's operators notes, for each value, where it is written and read; from that
 * follow the steps, whether one symbolic micro-batch can speak for all, and the events of
 * asynchronous results (made, waited for, read), which are then followed through the schedule.
 *
 * Positions. A place in the schedule is turn * 2^32 + operator. A persistent value is safe when its
 * last write stands before its first read. Other values belong to a micro-batch: if segment T reads
 * what P makes, P must come before T for each micro-batch; each pair (P, T) is looked at once.
 *
 * Cost: linear in operands, plus micro-batches * pairs of segments; memory that of one role.
 */
#include <assert.h>

#include "prove/sanity_model.h"

enum { TURN_TABLE_MAX = 1 << 26 }; /* entries of `position`: segments * micro-batches of a role */

typedef struct value_facts {
    uint32_t root;     /* the asynchronous result that this is, or a view of it, + 1 */
    uint32_t async_op; /* of a root: the op that makes it */
    uint32_t producer; /* segment of the role, + 1; persistent ones: unused */
    uint64_t written;  /* persistent: the last write, + 1 */
    uint64_t read;     /* persistent: the first read */
} value_facts;

typedef struct segment_facts {
    uint32_t runs, first, last; /* turns */
    bool per_microbatch;
} segment_facts;

/* Of an asynchronous result; what was found once is not found again. */
enum pending_state { PENDING_MADE = 1, PENDING_OVER };

enum event_kind { EVENT_ISSUE, EVENT_WAIT, EVENT_READ };
typedef struct result_event {
    uint32_t op;
    uint8_t kind;
    uint32_t root;   /* value; TOCSIN_PLAN_NONE: a blocking collective with a buffer */
    uint32_t buffer; /* ISSUE: string of the attribute `buffer`, or 0 */
} result_event;

typedef struct role_scan {
    tocsin_sanity_model *model;
    const tocsin_plan *plan;
    const tocsin_plan_role *role;
    uint32_t columns; /* of `position`: micro-batches + 1 */
    value_facts *values;
    segment_facts *segments;
    uint32_t *position;      /* [segment][microbatch + 1]: turn + 1, 0: never */
    uint32_t *segment_event; /* first event of each segment, and the end */
    TOCSIN_VEC(result_event) events;
    tocsin_map crossings; /* (producing segment, reading segment) looked at */
    tocsin_map pending;   /* (root, micro-batch): a pending_state */
    tocsin_map buffers;   /* buffer: (root, micro-batch) that fills it */
} role_scan;

static void not_uniform(role_scan *scan)
{
    scan->model->result->uniform_microbatches = false;
}

/* ---- the schedule ---------------------------------------------------------------------------- */

static void note_turn(role_scan *scan, uint32_t index, tocsin_plan_turn turn)
{
    assert(turn.segment < scan->role->segment_count);
    assert(turn.microbatch + 1 < (int64_t)scan->columns);
    segment_facts *segment = &scan->segments[turn.segment];
    if (!segment->runs)
        segment->first = index;
    segment->last = index;
    ++segment->runs;
    segment->per_microbatch |= turn.microbatch >= 0;
    uint32_t column = (uint32_t)(turn.microbatch + 1);
    uint32_t *position = &scan->position[(size_t)turn.segment * scan->columns + column];
    if (*position)
        not_uniform(scan); /* the same twice */
    *position = index + 1;
}

static void note_turns(role_scan *scan)
{
    uint32_t turns = tocsin_sanity_turns(scan->role);
    for (uint32_t i = 0; i < turns; ++i)
        note_turn(scan, i, tocsin_sanity_turn(scan->plan, scan->role, i));
    for (uint32_t s = 0; s < scan->role->segment_count; ++s) {
        const segment_facts *segment = &scan->segments[s];
        bool once = scan->position[(size_t)s * scan->columns] != 0;
        uint32_t wanted = segment->per_microbatch ? scan->plan->microbatches : 1;
        if (segment->runs && (segment->runs != wanted || once == segment->per_microbatch))
            not_uniform(scan);
    }
}

/* Does `writer` come before `reader` for every micro-batch? */
static bool comes_before(const role_scan *scan, uint32_t writer, uint32_t reader)
{
    const segment_facts *from = &scan->segments[writer], *to = &scan->segments[reader];
    if (!from->runs)
        return false;
    if (!from->per_microbatch)
        return from->last < to->first;
    if (!to->per_microbatch)
        return false; /* one value is read where there is one for each micro-batch */
    const uint32_t *made = &scan->position[(size_t)writer * scan->columns];
    const uint32_t *used = &scan->position[(size_t)reader * scan->columns];
    for (uint32_t m = 1; m < scan->columns; ++m)
        if (used[m] && (!made[m] || made[m] > used[m]))
            return false;
    return true;
}

/* ---- operators ------------------------------------------------------------------------------- */

static bool has_flag(const tocsin_plan *plan, const tocsin_plan_op *op, const char *key)
{
    const tocsin_attribute *attribute = tocsin_plan_attribute(plan, op->attributes, key);
    return attribute && attribute->kind == TOCSIN_ATTRIBUTE_INTEGERS && attribute->count == 1 &&
           attribute->integers[0] != 0;
}

static bool add_event(role_scan *scan, uint32_t op, uint8_t kind, uint32_t root, uint32_t buffer)
{
    return TOCSIN_VEC_PUSH(&scan->events,
                           (result_event){.op = op, .kind = kind, .root = root, .buffer = buffer});
}

static tocsin_status add_communication(role_scan *scan, uint32_t index, const uint32_t *outputs,
                                       tocsin_error *error)
{
    const tocsin_plan_op *op = &scan->plan->ops.items[index];
    tocsin_sanity_step step = {.op = index, .value = TOCSIN_PLAN_NONE};
    step.signature = tocsin_sanity_signature(scan->model, scan->role, op, &step.uneven);
    step.async = op->output_count == 1 && has_flag(scan->plan, op, "async");
    if (step.async) {
        step.value = outputs[0];
        scan->values[step.value].root = step.value + 1;
        scan->values[step.value].async_op = index;
    }
    const tocsin_attribute *buffer = tocsin_plan_attribute(scan->plan, op->attributes, "buffer");
    uint32_t text = buffer && buffer->kind == TOCSIN_ATTRIBUTE_TEXT ? buffer->text : 0;
    if (!step.signature || !TOCSIN_VEC_PUSH(&scan->model->steps, step) ||
        ((step.async || text) && !add_event(scan, index, EVENT_ISSUE, step.value, text)))
        return tocsin_error_memory(error);
    return TOCSIN_OK;
}

/* What an operator does to asynchronous results, and communication. */
static tocsin_status scan_communication(role_scan *scan, uint32_t index, tocsin_error *error)
{
    const tocsin_plan_op *op = &scan->plan->ops.items[index];
    const uint32_t *operands = &scan->plan->operands.items[op->first_operand];
    const uint32_t *outputs = operands + op->input_count;
    bool alias = tocsin_operator_is_alias(op->code);
    for (uint32_t i = 0; i < op->input_count; ++i) {
        uint32_t root = scan->values[operands[i]].root;
        if (!root || alias)
            continue;
        bool wait = op->code == TOCSIN_OPERATOR_WAIT;
        tocsin_sanity_step step = {.op = index, .value = root - 1};
        if (!add_event(scan, index, wait ? EVENT_WAIT : EVENT_READ, root - 1, 0) ||
            (wait && !TOCSIN_VEC_PUSH(&scan->model->steps, step)))
            return tocsin_error_memory(error);
    }
    for (uint32_t i = 0; alias && i < op->output_count; ++i)
        scan->values[outputs[i]].root = scan->values[operands[0]].root;
    if (tocsin_operator_communicates(op->code))
        return add_communication(scan, index, outputs, error);
    return TOCSIN_OK;
}

static void scan_outputs(role_scan *scan, uint32_t segment, uint32_t index)
{
    const tocsin_plan_op *op = &scan->plan->ops.items[index];
    const uint32_t *outputs = &scan->plan->operands.items[op->first_operand + op->input_count];
    const segment_facts *facts = &scan->segments[segment];
    for (uint32_t i = 0; i < op->output_count; ++i) {
        assert(outputs[i] < scan->role->value_count);
        value_facts *value = &scan->values[outputs[i]];
        value->producer = segment + 1;
        uint64_t place = (((uint64_t)facts->last << 32) | index) + 1;
        if (place > value->written)
            value->written = place;
        bool persistent = scan->plan->values.items[scan->role->first_value + outputs[i]].persistent;
        if (persistent && facts->runs > 1 && op->code != TOCSIN_OPERATOR_ACCUMULATE)
            not_uniform(scan);
    }
}

static tocsin_status scan_inputs(role_scan *scan, uint32_t segment, uint32_t index,
                                 tocsin_error *error)
{
    const tocsin_plan_op *op = &scan->plan->ops.items[index];
    const uint32_t *inputs = &scan->plan->operands.items[op->first_operand];
    for (uint32_t i = 0; i < op->input_count; ++i) {
        assert(inputs[i] < scan->role->value_count);
        value_facts *value = &scan->values[inputs[i]];
        if (scan->plan->values.items[scan->role->first_value + inputs[i]].persistent) {
            uint64_t place = ((uint64_t)scan->segments[segment].first << 32) | index;
            if (place < value->read)
                value->read = place;
        } else if (value->producer && value->producer - 1 != segment) {
            uint64_t pair = ((uint64_t)value->producer << 32) | segment;
            uint64_t *seen = tocsin_map_at(&scan->crossings, pair);
            if (!seen)
                return tocsin_error_memory(error);
            if (!*seen && !comes_before(scan, value->producer - 1, segment))
                not_uniform(scan);
            *seen = 1;
        }
    }
    return TOCSIN_OK;
}

static tocsin_status scan_segments(role_scan *scan, tocsin_error *error)
{
    const tocsin_plan_segment *segments = &scan->plan->segments.items[scan->role->first_segment];
    for (uint32_t s = 0; s < scan->role->segment_count; ++s)
        for (uint32_t i = 0; scan->segments[s].runs && i < segments[s].op_count; ++i)
            scan_outputs(scan, s, segments[s].first_op + i);
    for (uint32_t s = 0; s < scan->role->segment_count; ++s) {
        scan->model->segment_step[scan->role->first_segment + s] =
            (uint32_t)scan->model->steps.count;
        scan->segment_event[s] = (uint32_t)scan->events.count;
        for (uint32_t i = 0; scan->segments[s].runs && i < segments[s].op_count; ++i) {
            TOCSIN_TRY(scan_inputs(scan, s, segments[s].first_op + i, error));
            TOCSIN_TRY(scan_communication(scan, segments[s].first_op + i, error));
        }
    }
    scan->segment_event[scan->role->segment_count] = (uint32_t)scan->events.count;
    for (uint32_t v = 0; v < scan->role->value_count; ++v)
        if (scan->plan->values.items[scan->role->first_value + v].persistent &&
            scan->values[v].written > scan->values[v].read)
            not_uniform(scan);
    return TOCSIN_OK;
}

/* ---- asynchronous results -------------------------------------------------------------------- */

static uint64_t pending_key(const role_scan *scan, uint32_t root, int32_t microbatch)
{
    if (scan->plan->values.items[scan->role->first_value + root].persistent)
        microbatch = -1;
    return ((uint64_t)root << 32) | (uint32_t)microbatch;
}

/* `partner`: of the call that is pending, or TOCSIN_PLAN_NONE, with its micro-batch. */
static tocsin_status note_wait(role_scan *scan, uint32_t op, int32_t microbatch, uint32_t partner,
                               int32_t issued, const char *relation, const char *expected,
                               tocsin_error *error)
{
    bool all = scan->role->replica_count == tocsin_plan_replicas(scan->plan);
    tocsin_sanity_call call = {.device = scan->role->device,
                               .replica = all ? TOCSIN_PLAN_NONE : scan->role->first_replica,
                               .op = op,
                               .microbatch = microbatch};
    tocsin_sanity_finding finding = {.class = TOCSIN_CAUSE_MISSING_WAIT,
                                     .call = call,
                                     .partner = call,
                                     .certain = true,
                                     .group = scan->plan->ops.items[op].group,
                                     .partner_group = TOCSIN_PLAN_NONE};
    finding.partner.op = partner;
    finding.partner.microbatch = issued;
    finding.expected = expected;
    tocsin_string text = {0};
    bool is_new = tocsin_sanity_is_new(scan->model, &finding);
    if (is_new)
        tocsin_sanity_call_text(scan->model, &finding.call, &text);
    tocsin_string_append_text(&text, relation);
    if (is_new && partner != TOCSIN_PLAN_NONE)
        tocsin_sanity_call_text(scan->model, &finding.partner, &text);
    tocsin_status status = tocsin_string_check(&text, error);
    finding.relation = tocsin_string_text(&text);
    if (status == TOCSIN_OK)
        status = tocsin_sanity_note(scan->model, &finding, error);
    tocsin_string_free(&text);
    return status;
}

static tocsin_status issue(role_scan *scan, const result_event *event, int32_t microbatch,
                           tocsin_error *error)
{
    if (event->buffer) {
        uint64_t *filled = tocsin_map_at(&scan->buffers, event->buffer);
        if (!filled)
            return tocsin_error_memory(error);
        uint64_t *state = *filled ? tocsin_map_find(&scan->pending, *filled - 1) : NULL;
        if (state && *state == PENDING_MADE) {
            *state = PENDING_OVER;
            uint32_t first = scan->values[(*filled - 1) >> 32].async_op;
            TOCSIN_TRY(note_wait(scan, event->op, microbatch, first,
                                 (int32_t)(uint32_t)(*filled - 1),
                                 " uses the same buffer as the still pending ",
                                 "a wait for the first before the second", error));
        }
        *filled =
            event->root == TOCSIN_PLAN_NONE ? 0 : pending_key(scan, event->root, microbatch) + 1;
    }
    if (event->root != TOCSIN_PLAN_NONE &&
        !tocsin_map_put(&scan->pending, pending_key(scan, event->root, microbatch), PENDING_MADE))
        return tocsin_error_memory(error);
    return TOCSIN_OK;
}

static tocsin_status follow_event(role_scan *scan, const result_event *event, int32_t microbatch,
                                  tocsin_error *error)
{
    if (event->kind == EVENT_ISSUE)
        return issue(scan, event, microbatch, error);
    uint64_t *state = tocsin_map_find(&scan->pending, pending_key(scan, event->root, microbatch));
    if (!state || *state != PENDING_MADE)
        return TOCSIN_OK;
    *state = PENDING_OVER;
    if (event->kind == EVENT_READ)
        return note_wait(scan, event->op, microbatch, scan->values[event->root].async_op,
                         microbatch, " reads the result of the asynchronous ",
                         "a wait before the first read", error);
    return TOCSIN_OK;
}

static tocsin_status follow_events(role_scan *scan, bool ended, tocsin_error *error)
{
    uint32_t turns = tocsin_sanity_turns(scan->role);
    for (uint32_t i = 0; scan->events.count && i < turns; ++i) {
        tocsin_plan_turn turn = tocsin_sanity_turn(scan->plan, scan->role, i);
        uint32_t end = scan->segment_event[turn.segment + 1];
        for (uint32_t e = scan->segment_event[turn.segment]; e < end; ++e) {
            const result_event *event = &scan->events.items[e];
            if (!ended) {
                TOCSIN_TRY(follow_event(scan, event, turn.microbatch, error));
                continue;
            }
            if (event->kind != EVENT_ISSUE || event->root == TOCSIN_PLAN_NONE)
                continue;
            const uint64_t *state =
                tocsin_map_find(&scan->pending, pending_key(scan, event->root, turn.microbatch));
            if (state && *state == PENDING_MADE)
                TOCSIN_TRY(note_wait(scan, event->op, turn.microbatch, TOCSIN_PLAN_NONE, -1,
                                     " is asynchronous and never waited for",
                                     "a wait before the end of the step", error));
        }
    }
    return TOCSIN_OK;
}

/* ---- all roles ------------------------------------------------------------------------------- */

static tocsin_status scan_role(role_scan *scan, tocsin_arena *arena, tocsin_error *error)
{
    size_t segments = scan->role->segment_count, values = scan->role->value_count;
    if (segments * scan->columns > TURN_TABLE_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT,
                                "%zu segments of %u micro-batches are more than 2^26 turns",
                                segments, scan->plan->microbatches);
    scan->values = TOCSIN_ARENA_ARRAY(arena, value_facts, values);
    scan->segments = TOCSIN_ARENA_ARRAY(arena, segment_facts, segments);
    scan->position = TOCSIN_ARENA_ARRAY(arena, uint32_t, segments * scan->columns);
    scan->segment_event = TOCSIN_ARENA_ARRAY(arena, uint32_t, segments + 1);
    if (!scan->values || !scan->segments || !scan->position || !scan->segment_event)
        return tocsin_error_memory(error);
    for (size_t v = 0; v < values; ++v)
        scan->values[v] = (value_facts){.read = UINT64_MAX};
    memset(scan->segments, 0, segments * sizeof *scan->segments);
    memset(scan->position, 0, segments * scan->columns * sizeof *scan->position);
    scan->events.count = 0;
    tocsin_map_clear(&scan->crossings);
    tocsin_map_clear(&scan->pending);
    tocsin_map_clear(&scan->buffers);
    note_turns(scan);
    TOCSIN_TRY(scan_segments(scan, error));
    TOCSIN_TRY(follow_events(scan, false, error));
    return follow_events(scan, true, error);
}

tocsin_status tocsin_sanity_roles(tocsin_sanity_model *model, tocsin_error *error)
{
    const tocsin_plan *plan = model->plan;
    model->segment_step = tocsin_zalloc(plan->segments.count + 1, sizeof *model->segment_step);
    if (!model->segment_step)
        return tocsin_error_memory(error);
    role_scan scan = {.model = model, .plan = plan, .columns = plan->microbatches + 1};
    tocsin_arena arena = {0};
    tocsin_status status = TOCSIN_OK;
    for (size_t r = 0; r < plan->roles.count && status == TOCSIN_OK; ++r) {
        scan.role = &plan->roles.items[r];
        status = scan_role(&scan, &arena, error);
        tocsin_arena_reset(&arena);
    }
    model->segment_step[plan->segments.count] = (uint32_t)model->steps.count;
    tocsin_arena_free(&arena);
    TOCSIN_VEC_FREE(&scan.events);
    tocsin_map_free(&scan.crossings);
    tocsin_map_free(&scan.pending);
    tocsin_map_free(&scan.buffers);
    return status;
}
