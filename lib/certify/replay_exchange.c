/* replay_exchange.c - which calls of a group meet, and which messages.
 *
 * The k-th calls of all members of a group meet; the messages of one (source, destination, tag)
 * arrive in order. With symbolic micro-batches, every operator must meet the same operators, of its
 * own micro-batch, each time.
 */
#include <assert.h>

#include "certify/replay.h"

/* ---- collectives ----------------------------------------------------------------------------- */

static bool wake(replay *run, uint32_t unit_index)
{
    if (run->units.items[unit_index].queued)
        return true;
    run->units.items[unit_index].queued = true;
    return TOCSIN_VEC_PUSH(&run->ready, unit_index);
}

/* Has (unit, op) met `partner` every time so far? With symbolic micro-batches it must. */
static certify_outcome meets_same(replay *run, const replay_member *who, uint64_t partner,
                                  bool *first)
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
static uint32_t position_of(const replay *run, const replay_unit *one, uint32_t group)
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

static replay_gathering *gathering_of(replay *run, replay_unit *one, uint32_t group)
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
        replay_gathering made = {.count = (uint32_t)count,
                                 .over_replicas = all && !run->each_replica};
        made.members = TOCSIN_ARENA_ARRAY(&run->arena, replay_member, count);
        if (made.members == NULL || !TOCSIN_VEC_PUSH(&run->gatherings, made))
            return NULL;
        for (uint64_t m = 0; m < count; m++)
            made.members[m] = (replay_member){.unit = NOBODY, .op = NOBODY};
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
static certify_outcome judge_gathering(replay *run, replay_gathering *now)
{
    const replay_member *first = &now->members[0];
    uint64_t partner = (uint64_t)first->unit << 32 | first->op;
    bool fresh = true, any = false, claimed = false;
    certify_outcome outcome = CERTIFY_DONE;
    uint32_t *relations = TOCSIN_ARENA_ARRAY(&run->arena, uint32_t, 2 * (size_t)now->count);

    if (relations == NULL)
        return CERTIFY_FAILED;
    for (uint32_t m = 0; m < now->count && outcome == CERTIFY_DONE; m++) {
        const replay_member *one = &now->members[m];
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

certify_outcome certify_run_collective(const replay_step *now, progress *made)
{
    replay *run = now->run;
    replay_unit *one = &run->units.items[now->unit];
    const uint32_t group = now->op->group;
    const uint32_t position = group == TOCSIN_PLAN_NONE ? NOBODY : position_of(run, one, group);
    certify_outcome outcome = CERTIFY_DONE;

    if (position == NOBODY || now->op->flawed || now->op->input_count > 1)
        return certify_unclear(run->checker, "a collective that cannot run");
    replay_gathering *meeting = gathering_of(run, one, group);
    if (meeting == NULL)
        return CERTIFY_FAILED;
    replay_member *self = &meeting->members[position];
    if (self->unit == NOBODY) {
        *self =
            (replay_member){.unit = now->unit, .op = now->op_index, .microbatch = now->microbatch};
        if (now->op->input_count == 1)
            self->input = certify_read(run, now->unit, now->microbatch, now->inputs[0], false);
        if (now->op->output_count == 1) {
            self->output = certify_fact(run, now->unit, now->microbatch, now->outputs[0]);
            run->checker->facts += now->judged && self->output != 0;
            if (self->output != 0 && certify_is_overwritten(now, now->outputs[0]))
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
        certify_write(now);
    }
    return outcome;
}

/* ---- point to point -------------------------------------------------------------------------- */

static replay_mailbox *mailbox_of(replay *run, uint32_t from, uint32_t to, int64_t tag)
{
    const uint64_t key[2] = {(uint64_t)from << 32 | to, (uint64_t)tag};
    const uint32_t number = tocsin_intern_put(&run->channels, key, sizeof key);
    if (number == 0 || (number > run->boxes.count &&
                        !TOCSIN_VEC_PUSH(&run->boxes, (replay_mailbox){.reader = NOBODY})))
        return NULL;
    return &run->boxes.items[number - 1];
}

static certify_outcome judge_letter(const replay_step *now, const replay_member *sender)
{
    replay *run = now->run;
    const replay_member self = {
        .unit = now->unit, .op = now->op_index, .microbatch = now->microbatch};
    const uint32_t output = certify_fact(run, now->unit, now->microbatch, now->outputs[0]);
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
    if (certify_is_overwritten(now, now->outputs[0]))
        return certify_unclear(run->checker, "every micro-batch overwrites the result");
    return now->judged ? certify_same(run->checker, output, sender->input) : CERTIFY_DONE;
}

static certify_outcome run_send(const replay_step *now, replay_mailbox *box, progress *made)
{
    replay *run = now->run;
    replay_unit *one = &run->units.items[now->unit];
    const bool blocking = certify_integer_of(run->plan, now->op, "blocking", 0) != 0;

    if (!one->sent) {
        const replay_letter sent = {.from = {.unit = now->unit,
                                             .op = now->op_index,
                                             .microbatch = now->microbatch,
                                             .input = certify_read(run, now->unit, now->microbatch,
                                                                   now->inputs[0], false)}};
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

certify_outcome certify_run_message(const replay_step *now, progress *made)
{
    replay *run = now->run;
    const replay_unit *one = &run->units.items[now->unit];
    const int64_t device = certify_integer_of(run->plan, now->op, "peer", -1);
    const int64_t tag = certify_integer_of(run->plan, now->op, "tag", 0);
    const bool sends = now->op->code == TOCSIN_OPERATOR_SEND;
    uint32_t peer = NOBODY;

    if (device >= 0 && device < (int64_t)tocsin_plan_devices(run->plan))
        peer =
            run->unit_of[(size_t)device * run->replicas + (run->each_replica ? one->replica : 0)];
    if (peer == NOBODY)
        return certify_unclear(run->checker, "a message to or from nobody");
    replay_mailbox *box = mailbox_of(run, sends ? now->unit : peer, sends ? peer : now->unit, tag);
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
    const replay_member sender = box->items.items[box->taken++].from;
    *made = ADVANCE;
    if (!wake(run, sender.unit))
        return CERTIFY_FAILED;
    certify_write(now);
    return judge_letter(now, &sender);
}
