/* sanity_deadlock.c - does every rank come to the end of its schedule?
 *
 * The actors run one after the other until each blocks: in a collective that not all members have
 * called, a receive without its send, a wait for either. The call that completes a round wakes
 * those who are blocked in it. Who is still blocked when nobody can run waits for a member that has
 * not arrived, which is itself blocked: following these edges ends in a circle, the deadlock.
 * Calls on broken lanes are left out: they have findings of their own.
 *
 * Invariant: a round is complete when as many members have arrived as its lane has slots.
 * Cost: linear in calls; 4 bytes per round.
 */
#include <assert.h>

#include "prove/sanity_model.h"

enum { NAMED_MAX = 8 }; /* calls of a circle, and blocked ranks, that a text names */

typedef struct rank_fiber {
    uint32_t turn, step; /* the next step; step TOCSIN_PLAN_NONE: the first of the turn */
    bool blocked;
    uint32_t lane, round;      /* what it is blocked in */
    tocsin_sanity_visit visit; /* by this step */
    uint32_t next;             /* another rank_fiber that is blocked on the lane, + 1 */
    tocsin_map issued;         /* (async result, micro-batch): lane, round */
    uint8_t color;             /* while circles are looked for */
} rank_fiber;

typedef struct plan_run {
    tocsin_sanity_model *model;
    rank_fiber *fibers; /* of each actor */
    uint32_t **arrived; /* [lane][round] */
    uint32_t *blocked;  /* [lane]: first blocked fiber + 1 */
    uint32_t *ready;    /* stack of fibers that can run */
    uint32_t ready_count;
    tocsin_arena arena;
} plan_run;

static bool is_complete(const plan_run *simulation, uint32_t lane, uint32_t round)
{
    return simulation->arrived[lane][round] == simulation->model->lanes.items[lane].slot_count;
}

static void wake(plan_run *simulation, uint32_t lane, uint32_t round)
{
    uint32_t *link = &simulation->blocked[lane];
    while (*link) {
        uint32_t index = *link - 1;
        rank_fiber *fiber = &simulation->fibers[index];
        if (fiber->round == round) {
            *link = fiber->next;
            fiber->blocked = false;
            simulation->ready[simulation->ready_count++] = index;
        } else {
            link = &fiber->next;
        }
    }
}

static void block(plan_run *simulation, uint32_t index, uint32_t lane, uint32_t round,
                  tocsin_sanity_visit visit)
{
    rank_fiber *fiber = &simulation->fibers[index];
    assert(!fiber->blocked);
    fiber->blocked = true;
    fiber->lane = lane;
    fiber->round = round;
    fiber->visit = visit;
    fiber->next = simulation->blocked[lane];
    simulation->blocked[lane] = index + 1;
}

static bool is_rendezvous(const tocsin_plan *plan, const tocsin_plan_op *op)
{
    const tocsin_attribute *attribute = tocsin_plan_attribute(plan, op->attributes, "blocking");
    return attribute && attribute->kind == TOCSIN_ATTRIBUTE_INTEGERS && attribute->count == 1 &&
           attribute->integers[0] != 0;
}

static uint64_t issue_key(const tocsin_sanity_model *model, uint32_t actor, uint32_t value,
                          int32_t microbatch)
{
    const tocsin_plan_role *role = &model->plan->roles.items[model->actors.items[actor].role];
    bool persistent = model->plan->values.items[role->first_value + value].persistent;
    return ((uint64_t)value << 32) | (uint32_t)(persistent ? -1 : microbatch);
}

/* A wait: blocked until the call that makes the value is complete. */
static void take_wait(plan_run *simulation, uint32_t index, tocsin_sanity_visit visit)
{
    const tocsin_sanity_step *step = &simulation->model->steps.items[visit.step];
    const uint64_t *call =
        tocsin_map_find(&simulation->fibers[index].issued,
                        issue_key(simulation->model, index, step->value, visit.microbatch));
    if (call && !is_complete(simulation, (uint32_t)(*call >> 32), (uint32_t)*call))
        block(simulation, index, (uint32_t)(*call >> 32), (uint32_t)*call, visit);
}

static tocsin_status take_call(plan_run *simulation, uint32_t index, uint32_t port,
                               tocsin_sanity_visit visit, tocsin_error *error)
{
    tocsin_sanity_model *model = simulation->model;
    tocsin_sanity_slot *slot = &model->slots.items[port];
    uint32_t lane = slot->lane, round = slot->count++;
    if (model->lanes.items[lane].broken)
        return TOCSIN_OK;
    assert(round < model->lanes.items[lane].rounds.count);
    ++simulation->arrived[lane][round];
    const tocsin_sanity_step *step = &model->steps.items[visit.step];
    if (is_complete(simulation, lane, round))
        wake(simulation, lane, round);
    else if (!step->async) {
        const tocsin_plan_op *op = &model->plan->ops.items[step->op];
        if (op->code != TOCSIN_OPERATOR_SEND || is_rendezvous(model->plan, op))
            block(simulation, index, lane, round, visit);
    }
    if (step->async && !tocsin_map_put(&simulation->fibers[index].issued,
                                       issue_key(model, index, step->value, visit.microbatch),
                                       ((uint64_t)lane << 32) | round))
        return tocsin_error_memory(error);
    return TOCSIN_OK;
}

/* Run one rank_fiber until it blocks or ends. */
static tocsin_status run(plan_run *simulation, uint32_t index, tocsin_error *error)
{
    tocsin_sanity_model *model = simulation->model;
    const tocsin_sanity_actor *actor = &model->actors.items[index];
    const tocsin_plan_role *role = &model->plan->roles.items[actor->role];
    const uint32_t *segment_step = &model->segment_step[role->first_segment];
    rank_fiber *fiber = &simulation->fibers[index];
    uint32_t turns = tocsin_sanity_turns(role);
    for (; fiber->turn < turns; ++fiber->turn, fiber->step = TOCSIN_PLAN_NONE) {
        tocsin_plan_turn turn = tocsin_sanity_turn(model->plan, role, fiber->turn);
        if (fiber->step == TOCSIN_PLAN_NONE)
            fiber->step = segment_step[turn.segment];
        while (fiber->step < segment_step[turn.segment + 1]) {
            tocsin_sanity_visit visit = {.step = fiber->step++, .microbatch = turn.microbatch};
            uint32_t port = tocsin_sanity_port(model, actor, visit.step);
            if (!model->steps.items[visit.step].signature)
                take_wait(simulation, index, visit);
            else if (port != TOCSIN_PLAN_NONE)
                TOCSIN_TRY(take_call(simulation, index, port, visit, error));
            if (fiber->blocked)
                return TOCSIN_OK;
        }
    }
    return TOCSIN_OK;
}

/* ---- circles --------------------------------------------------------------------------------- */

/* A member that `index` waits for. */
static uint32_t waits_for(const plan_run *simulation, uint32_t index)
{
    const rank_fiber *fiber = &simulation->fibers[index];
    const tocsin_sanity_lane *lane = &simulation->model->lanes.items[fiber->lane];
    for (uint32_t s = lane->first_slot; s < lane->first_slot + lane->slot_count; ++s) {
        const tocsin_sanity_slot *slot = &simulation->model->slots.items[s];
        if (slot->count <= fiber->round)
            return slot->actor;
    }
    return TOCSIN_PLAN_NONE;
}

/* How many are blocked in the same round. */
static uint32_t company(const plan_run *simulation, uint32_t index)
{
    const rank_fiber *fiber = &simulation->fibers[index];
    uint32_t count = 0;
    for (uint32_t f = simulation->blocked[fiber->lane]; f; f = simulation->fibers[f - 1].next)
        count += simulation->fibers[f - 1].round == fiber->round;
    return count;
}

static void append_place(const plan_run *simulation, uint32_t index, tocsin_string *text)
{
    tocsin_sanity_call call =
        tocsin_sanity_call_of(simulation->model, index, simulation->fibers[index].visit);
    tocsin_sanity_place_text(simulation->model, call.device, call.replica, text);
}

static void describe_circle(const plan_run *simulation, uint32_t start, tocsin_string *text)
{
    uint32_t index = start, named = 0;
    do {
        const rank_fiber *fiber = &simulation->fibers[index];
        tocsin_sanity_call call = tocsin_sanity_call_of(simulation->model, index, fiber->visit);
        append_place(simulation, index, text);
        tocsin_string_append_text(text, " waits in ");
        tocsin_sanity_call_text(simulation->model, &call, text);
        tocsin_string_append_text(text, " for ");
        index = waits_for(simulation, index);
        append_place(simulation, index, text);
        tocsin_string_append_text(text, index == start ? "" : "; ");
    } while (index != start && ++named < NAMED_MAX);
    if (index != start)
        tocsin_string_append_text(text, "...");
}

static void describe_blocked(const plan_run *simulation, tocsin_string *text)
{
    uint32_t count = 0;
    tocsin_string_append_text(text, "the same order on all of them; blocked: ");
    for (uint32_t f = 0; f < simulation->model->actors.count; ++f) {
        if (!simulation->fibers[f].blocked || ++count > NAMED_MAX)
            continue;
        tocsin_string_append_text(text, count > 1 ? ", " : "");
        append_place(simulation, f, text);
    }
    if (count > NAMED_MAX)
        tocsin_string_printf(text, " and %u more", count - NAMED_MAX);
}

static tocsin_status note_circle(const plan_run *simulation, uint32_t start, tocsin_error *error)
{
    tocsin_sanity_model *model = simulation->model;
    uint32_t suspect = start, least = company(simulation, start);
    bool certain = false;
    for (uint32_t i = waits_for(simulation, start); i != start; i = waits_for(simulation, i)) {
        uint32_t count = company(simulation, i);
        certain |= count != least;
        if (count < least) {
            suspect = i;
            least = count;
        }
    }
    uint32_t partner = waits_for(simulation, suspect);
    const tocsin_sanity_lane *lane = &model->lanes.items[simulation->fibers[suspect].lane];
    tocsin_sanity_finding finding = {
        .class = TOCSIN_CAUSE_DEADLOCK,
        .certain = certain,
        .call = tocsin_sanity_call_of(model, suspect, simulation->fibers[suspect].visit),
        .partner = tocsin_sanity_call_of(model, partner, simulation->fibers[partner].visit),
        .group = lane->group,
        .partner_group = TOCSIN_PLAN_NONE};
    tocsin_string relation = {0}, expected = {0};
    describe_circle(simulation, suspect, &relation);
    describe_blocked(simulation, &expected);
    return tocsin_sanity_note_texts(model, &finding, 1, &relation, &expected, error);
}

/* Every blocked rank_fiber has one edge, so each walk ends where a walk was, in a circle if it is
 * the same one. */
static tocsin_status find_circles(plan_run *simulation, tocsin_error *error)
{
    enum { NEW, ON_WALK, DONE };
    for (uint32_t f = 0; f < simulation->model->actors.count; ++f) {
        uint32_t at = f;
        while (at != TOCSIN_PLAN_NONE && simulation->fibers[at].blocked &&
               simulation->fibers[at].color == NEW) {
            simulation->fibers[at].color = ON_WALK;
            at = waits_for(simulation, at);
        }
        if (at != TOCSIN_PLAN_NONE && simulation->fibers[at].color == ON_WALK)
            TOCSIN_TRY(note_circle(simulation, at, error));
        for (at = f; at != TOCSIN_PLAN_NONE && simulation->fibers[at].color == ON_WALK;
             at = waits_for(simulation, at))
            simulation->fibers[at].color = DONE;
    }
    return TOCSIN_OK;
}

static tocsin_status prepare(plan_run *simulation, tocsin_error *error)
{
    tocsin_sanity_model *model = simulation->model;
    size_t actors = model->actors.count, lanes = model->lanes.count;
    simulation->fibers = TOCSIN_ARENA_ARRAY(&simulation->arena, rank_fiber, actors);
    simulation->ready = TOCSIN_ARENA_ARRAY(&simulation->arena, uint32_t, actors);
    simulation->arrived = TOCSIN_ARENA_ARRAY(&simulation->arena, uint32_t *, lanes);
    simulation->blocked = TOCSIN_ARENA_ARRAY(&simulation->arena, uint32_t, lanes);
    if (!simulation->fibers || !simulation->ready || !simulation->arrived || !simulation->blocked)
        return tocsin_error_memory(error);
    memset(simulation->fibers, 0, actors * sizeof *simulation->fibers);
    for (size_t l = 0; l < lanes; ++l) {
        size_t rounds = model->lanes.items[l].rounds.count;
        simulation->blocked[l] = 0;
        simulation->arrived[l] = TOCSIN_ARENA_ARRAY(&simulation->arena, uint32_t, rounds);
        if (!simulation->arrived[l])
            return tocsin_error_memory(error);
        memset(simulation->arrived[l], 0, rounds * sizeof(uint32_t));
    }
    for (size_t s = 0; s < model->slots.count; ++s)
        model->slots.items[s].count = 0;
    for (size_t a = actors; a-- > 0;) {
        simulation->fibers[a].step = TOCSIN_PLAN_NONE;
        if (model->actors.items[a].role != TOCSIN_PLAN_NONE)
            simulation->ready[simulation->ready_count++] = (uint32_t)a;
    }
    return TOCSIN_OK;
}

tocsin_status tocsin_sanity_simulate(tocsin_sanity_model *model, tocsin_error *error)
{
    plan_run simulation = {.model = model};
    tocsin_status status = prepare(&simulation, error);
    while (status == TOCSIN_OK && simulation.ready_count)
        status = run(&simulation, simulation.ready[--simulation.ready_count], error);
    if (status == TOCSIN_OK)
        status = find_circles(&simulation, error);
    for (size_t a = 0; simulation.fibers && a < model->actors.count; ++a)
        tocsin_map_free(&simulation.fibers[a].issued);
    tocsin_arena_free(&simulation.arena);
    return status;
}
