/* sanity_diagnosis.c - what is wrong with a lane whose members make different sequences of calls.
 *
 * The sequences of all broken lanes are written out. In each lane one member is the reference: one
 * whose sequence most members have, at a tie the longest (a call is forgotten more often than
 * added). Each other member is aligned with it, greedily: where the two differ, the nearest place
 * at which they agree again tells whether the member lacks calls or has extra ones.
 * Calls are told apart by signature, micro-batch and, when the plan has them, label, module and
 * source, so that in a row of like calls the missing one is named. Differences of several lanes are
 * then put together: one rank's extra call here that it lacks there is a wrong group, or peer.
 *
 * Cost: linear in the calls on broken lanes, WINDOW comparisons for each difference.
 */
#include <assert.h>

#include "prove/sanity_model.h"

enum {
    WINDOW = 256,             /* calls that are looked ahead for agreement */
    DIFFERENCES_MAX = 1 << 14 /* then the rest is counted as hidden */
};

typedef enum difference_kind {
    DIFFERENCE_MISSING,  /* `holder` makes the call, `lacker` does not */
    DIFFERENCE_REPLACED, /* `lacker` makes `other` instead */
    DIFFERENCE_SWAPPED,  /* `lacker` makes it in another order with `other` */
    DIFFERENCE_UNEVEN    /* the parts of a gather or scatter do not add up */
} difference_kind;

typedef struct call_difference {
    uint8_t kind;
    bool certain;
    bool at_holder;                /* a majority says that the holder is wrong */
    bool merged;                   /* told as part of another */
    uint32_t lane, holder, lacker; /* actors */
    tocsin_sanity_visit call, other;
    uint32_t next; /* the lacker's next difference + 1 */
} call_difference;

typedef struct lane_diagnosis {
    tocsin_sanity_model *model;
    TOCSIN_VEC(call_difference) differences;
    tocsin_map by_lacker; /* actor: its first difference + 1 */
} lane_diagnosis;

typedef struct call_sequence {
    const tocsin_sanity_visit *calls;
    uint32_t count;
    uint32_t actor;
} call_sequence;

static call_sequence sequence_of(const tocsin_sanity_model *model, uint32_t slot)
{
    const tocsin_sanity_slot *from = &model->slots.items[slot];
    return (call_sequence){.calls = from->count ? &model->visits.items[from->first_visit] : NULL,
                           .count = from->count,
                           .actor = from->actor};
}

/* ---- comparing calls ------------------------------------------------------------------------- */

static bool same_names(const tocsin_plan *plan, uint32_t a, uint32_t b)
{
    const tocsin_plan_op *left = &plan->ops.items[a], *right = &plan->ops.items[b];
    return left->label == right->label && left->fqn == right->fqn && left->source == right->source;
}

/* Is it the same call? Of a send and its receive the names differ anyway. */
static bool same_call(const tocsin_sanity_model *model, bool names, tocsin_sanity_visit a,
                      tocsin_sanity_visit b)
{
    const tocsin_sanity_step *left = &model->steps.items[a.step];
    const tocsin_sanity_step *right = &model->steps.items[b.step];
    return a.microbatch == b.microbatch && left->signature == right->signature &&
           (!names || same_names(model->plan, left->op, right->op));
}

/* May they meet? */
static bool may_meet(const tocsin_sanity_model *model, tocsin_sanity_visit a, tocsin_sanity_visit b)
{
    return tocsin_sanity_agree(model, model->steps.items[a.step].signature,
                               model->steps.items[b.step].signature);
}

/* ---- alignment ------------------------------------------------------------------------------- */

typedef struct lane_alignment {
    lane_diagnosis *diagnosis;
    uint32_t lane;
    bool names, certain;
    call_sequence reference, member;
} lane_alignment;

/* Is the next call the same, or are both at the end? */
static bool agree_at(const lane_alignment *alignment, uint32_t i, uint32_t j)
{
    const call_sequence *reference = &alignment->reference, *member = &alignment->member;
    if (i >= reference->count || j >= member->count)
        return i == reference->count && j == member->count;
    return same_call(alignment->diagnosis->model, alignment->names, reference->calls[i],
                     member->calls[j]);
}

static tocsin_status add_difference(const lane_alignment *alignment, call_difference difference,
                                    tocsin_error *error)
{
    lane_diagnosis *diagnosis = alignment->diagnosis;
    if (diagnosis->differences.count >= DIFFERENCES_MAX) {
        ++diagnosis->model->result->hidden;
        return TOCSIN_OK;
    }
    difference.lane = alignment->lane;
    difference.certain = alignment->certain;
    uint64_t *first = tocsin_map_at(&diagnosis->by_lacker, difference.lacker);
    if (!first)
        return tocsin_error_memory(error);
    difference.next = (uint32_t)*first;
    if (!TOCSIN_VEC_PUSH(&diagnosis->differences, difference))
        return tocsin_error_memory(error);
    *first = diagnosis->differences.count;
    return TOCSIN_OK;
}

/* `count` calls of one side that the other lacks. */
static tocsin_status add_missing(const lane_alignment *alignment, const call_sequence *holder,
                                 uint32_t first, uint32_t count, tocsin_error *error)
{
    bool extra = holder == &alignment->member;
    for (uint32_t k = 0; k < count; ++k)
        TOCSIN_TRY(add_difference(alignment,
                                  (call_difference){.kind = DIFFERENCE_MISSING,
                                                    .at_holder = extra,
                                                    .holder = holder->actor,
                                                    .lacker = extra ? alignment->reference.actor
                                                                    : alignment->member.actor,
                                                    .call = holder->calls[first + k]},
                                  error));
    return TOCSIN_OK;
}

static tocsin_status add_unlike(const lane_alignment *alignment, difference_kind kind, uint32_t i,
                                uint32_t j, tocsin_error *error)
{
    return add_difference(alignment,
                          (call_difference){.kind = (uint8_t)kind,
                                            .holder = alignment->reference.actor,
                                            .lacker = alignment->member.actor,
                                            .call = alignment->reference.calls[i],
                                            .other = alignment->member.calls[j]},
                          error);
}

/* The two differ at *i and *j: say how, and move behind the difference. */
static tocsin_status explain(const lane_alignment *alignment, uint32_t *i, uint32_t *j,
                             tocsin_error *error)
{
    const call_sequence *reference = &alignment->reference, *member = &alignment->member;
    const tocsin_sanity_model *model = alignment->diagnosis->model;
    uint32_t left = reference->count - *i, right = member->count - *j;
    if (left > 1 && right > 1 && agree_at(alignment, *i, *j + 1) &&
        agree_at(alignment, *i + 1, *j)) {
        TOCSIN_TRY(add_unlike(alignment, DIFFERENCE_SWAPPED, *i, *j, error));
        *i += 2;
        *j += 2;
        return TOCSIN_OK;
    }
    if (left == right && !may_meet(model, reference->calls[*i], member->calls[*j]) &&
        agree_at(alignment, *i + 1, *j + 1)) {
        TOCSIN_TRY(add_unlike(alignment, DIFFERENCE_REPLACED, *i, *j, error));
        ++*i;
        ++*j;
        return TOCSIN_OK;
    }
    for (uint32_t d = 1; d <= WINDOW && (d <= left || d <= right); ++d) {
        if (d <= left && agree_at(alignment, *i + d, *j)) {
            TOCSIN_TRY(add_missing(alignment, reference, *i, d, error));
            *i += d;
            return TOCSIN_OK;
        }
        if (d <= right && agree_at(alignment, *i, *j + d)) {
            TOCSIN_TRY(add_missing(alignment, member, *j, d, error));
            *j += d;
            return TOCSIN_OK;
        }
    }
    if (left && right) {
        if (!may_meet(model, reference->calls[*i], member->calls[*j]))
            TOCSIN_TRY(add_unlike(alignment, DIFFERENCE_REPLACED, *i, *j, error));
        ++*i;
        ++*j;
        return TOCSIN_OK;
    }
    TOCSIN_TRY(add_missing(alignment, left ? reference : member, left ? *i : *j,
                           left ? left : right, error));
    *i += left;
    *j += right;
    return TOCSIN_OK;
}

static tocsin_status align(const lane_alignment *alignment, tocsin_error *error)
{
    uint32_t i = 0, j = 0;
    while (i < alignment->reference.count || j < alignment->member.count) {
        if (i < alignment->reference.count && j < alignment->member.count &&
            same_call(alignment->diagnosis->model, alignment->names, alignment->reference.calls[i],
                      alignment->member.calls[j])) {
            ++i;
            ++j;
        } else {
            TOCSIN_TRY(explain(alignment, &i, &j, error));
        }
    }
    return TOCSIN_OK;
}

/* ---- one lane -------------------------------------------------------------------------------- */

static uint64_t sequence_hash(const tocsin_sanity_model *model, call_sequence sequence)
{
    uint64_t hash = sequence.count;
    for (uint32_t k = 0; k < sequence.count; ++k) {
        const tocsin_sanity_step *step = &model->steps.items[sequence.calls[k].step];
        const tocsin_plan_op *op = &model->plan->ops.items[step->op];
        uint64_t call = ((uint64_t)step->signature << 32) | (uint32_t)sequence.calls[k].microbatch;
        hash = tocsin_mix64(hash ^ call);
        hash = tocsin_mix64(hash + op->label);
    }
    return hash;
}

/* The slot whose sequence most members have; *certain: no other is as frequent. */
static tocsin_status choose_reference(const tocsin_sanity_model *model,
                                      const tocsin_sanity_lane *lane, uint32_t *reference,
                                      bool *certain, tocsin_error *error)
{
    tocsin_map votes = {0};
    tocsin_status status = TOCSIN_OK;
    for (uint32_t s = lane->first_slot; s < lane->first_slot + lane->slot_count; ++s) {
        uint64_t *count = tocsin_map_at(&votes, sequence_hash(model, sequence_of(model, s)));
        if (!count)
            status = tocsin_error_memory(error);
        else
            ++*count;
    }
    uint64_t most = 0, best = 0;
    for (uint32_t s = lane->first_slot; s < lane->first_slot + lane->slot_count; ++s) {
        uint64_t hash = sequence_hash(model, sequence_of(model, s));
        const uint64_t *count = tocsin_map_find(&votes, hash);
        if (status != TOCSIN_OK || !count)
            break;
        if (*count == most && hash != best)
            *certain = false;
        if (*count > most ||
            (*count == most && model->slots.items[s].count > model->slots.items[*reference].count))
            *reference = s;
        if (*count > most) {
            most = *count;
            *certain = true;
        }
        if (*reference == s)
            best = hash;
    }
    tocsin_map_free(&votes);
    return status;
}

/* Do the parts of each gather and scatter add up to the whole? */
static tocsin_status check_parts(const lane_alignment *alignment, const tocsin_sanity_lane *lane,
                                 tocsin_error *error)
{
    const tocsin_sanity_model *model = alignment->diagnosis->model;
    for (uint32_t k = 0; k < lane->rounds.count; ++k) {
        int64_t sum = 0, part = 0, whole = 0;
        for (uint32_t s = lane->first_slot; s < lane->first_slot + lane->slot_count; ++s) {
            uint32_t step = sequence_of(model, s).calls[k].step;
            tocsin_sanity_extents(model, model->steps.items[step].signature, &part, &whole);
            if (__builtin_add_overflow(sum, part, &sum))
                sum = -1;
        }
        if (sum != whole)
            TOCSIN_TRY(add_unlike(alignment, DIFFERENCE_UNEVEN, k, k, error));
    }
    return TOCSIN_OK;
}

static tocsin_status diagnose_lane(lane_diagnosis *diagnosis, uint32_t index, tocsin_error *error)
{
    tocsin_sanity_model *model = diagnosis->model;
    const tocsin_sanity_lane *lane = &model->lanes.items[index];
    uint32_t first = lane->first_slot, reference = first;
    bool certain = false;
    bool grouped = lane->group != TOCSIN_PLAN_NONE;
    if (grouped)
        TOCSIN_TRY(choose_reference(model, lane, &reference, &certain, error));
    lane_alignment alignment = {.diagnosis = diagnosis,
                                .lane = index,
                                .names = grouped,
                                .certain = certain && lane->slot_count > 2,
                                .reference = sequence_of(model, reference)};
    for (uint32_t s = first; s < first + lane->slot_count; ++s) {
        alignment.member = sequence_of(model, s);
        if (s != reference)
            TOCSIN_TRY(align(&alignment, error));
    }
    if (!lane->broken)
        return check_parts(&alignment, lane, error);
    return TOCSIN_OK;
}

/* ---- findings -------------------------------------------------------------------------------- */

static void append_call(const tocsin_sanity_model *model, const tocsin_sanity_call *call,
                        tocsin_string *text)
{
    tocsin_sanity_place_text(model, call->device, call->replica, text);
    tocsin_string_append_text(text, " calls ");
    tocsin_sanity_call_text(model, call, text);
}

/* The texts of a finding: `class` and calls are set. */
static void describe(const tocsin_sanity_model *model, const call_difference *difference,
                     const tocsin_sanity_finding *finding, tocsin_string *relation,
                     tocsin_string *expected)
{
    if (finding->missing) {
        tocsin_sanity_place_text(model, finding->call.device, finding->call.replica, relation);
        tocsin_string_append_text(relation, " does not call ");
        tocsin_sanity_call_text(model, &finding->call, relation);
        append_call(model, &finding->partner, expected);
        return;
    }
    append_call(model, &finding->call, relation);
    if (finding->partner.op == TOCSIN_PLAN_NONE) {
        bool sends = model->plan->ops.items[finding->call.op].code == TOCSIN_OPERATOR_SEND;
        tocsin_sanity_place_text(model, finding->partner.device, finding->partner.replica,
                                 expected);
        tocsin_string_append_text(expected, finding->group != TOCSIN_PLAN_NONE
                                                ? " and the other members do not make this call"
                                            : sends ? " has no receive for it"
                                                    : " has no send for it");
        return;
    }
    if (difference->kind == DIFFERENCE_UNEVEN)
        tocsin_string_append_text(relation, ", and the parts do not add up to the whole");
    if (difference->kind == DIFFERENCE_SWAPPED)
        tocsin_string_append_text(relation, " first; the order differs");
    append_call(model, &finding->partner, expected);
}

/* `wrong`: the difference, or the pair of differences that make a wrong group or peer. */
static tocsin_status emit(lane_diagnosis *diagnosis, const call_difference *wrong,
                          const call_difference *needed, tocsin_error *error)
{
    tocsin_sanity_model *model = diagnosis->model;
    bool grouped = model->lanes.items[wrong->lane].group != TOCSIN_PLAN_NONE;
    tocsin_sanity_finding finding = {.certain = wrong->certain,
                                     .group = model->lanes.items[wrong->lane].group,
                                     .partner_group = TOCSIN_PLAN_NONE,
                                     .class = TOCSIN_CAUSE_UNMATCHED};
    finding.call = tocsin_sanity_call_of(model, wrong->holder, wrong->call);
    finding.partner = tocsin_sanity_call_of(model, wrong->lacker, wrong->call);
    if (needed) {
        finding.partner = tocsin_sanity_call_of(model, needed->holder, needed->call);
        finding.partner_group = model->lanes.items[needed->lane].group;
        finding.certain |= needed->certain;
        if (needed->lane == wrong->lane)
            finding.class = TOCSIN_CAUSE_DEADLOCK;
        else if (grouped)
            finding.class = TOCSIN_CAUSE_WRONG_GROUP;
    } else if (wrong->kind != DIFFERENCE_MISSING) { /* the member is the suspect */
        finding.partner = finding.call;
        finding.call = tocsin_sanity_call_of(model, wrong->lacker, wrong->other);
        if (wrong->kind == DIFFERENCE_SWAPPED)
            finding.class = TOCSIN_CAUSE_DEADLOCK;
        else if (grouped)
            finding.class = TOCSIN_CAUSE_WRONG_COLLECTIVE;
    } else if (wrong->at_holder || !grouped) {
        finding.partner.op = TOCSIN_PLAN_NONE;
    } else {
        tocsin_sanity_call holder = finding.call;
        finding.missing = true;
        finding.call = finding.partner;
        finding.partner = holder;
    }
    tocsin_string relation = {0}, expected = {0};
    if (tocsin_sanity_is_new(model, &finding))
        describe(model, wrong, &finding, &relation, &expected);
    return tocsin_sanity_note_texts(model, &finding, 1, &relation, &expected, error);
}

/* With groups of two, "b calls on L2 what belongs on L1" and "a calls on L1 what belongs on L2"
 * look alike. The lane with more calls is taken for the right one. */
static bool is_reversed(const tocsin_sanity_model *model, const call_difference *wrong,
                        const call_difference *needed)
{
    return needed->lacker == wrong->holder && wrong->lacker == needed->holder &&
           model->lanes.items[needed->lane].rounds.count <
               model->lanes.items[wrong->lane].rounds.count;
}

/* The call that `wrong`'s holder should have made instead: one that it lacks elsewhere. */
static call_difference *find_needed(lane_diagnosis *diagnosis, const call_difference *wrong)
{
    const tocsin_sanity_model *model = diagnosis->model;
    const tocsin_sanity_step *steps = model->steps.items;
    bool grouped = model->lanes.items[wrong->lane].group != TOCSIN_PLAN_NONE;
    const uint64_t *first = tocsin_map_find(&diagnosis->by_lacker, wrong->holder);
    for (uint32_t d = first ? (uint32_t)*first : 0; d;) {
        call_difference *other = &diagnosis->differences.items[d - 1];
        d = other->next;
        if (other->merged || other->kind != DIFFERENCE_MISSING || other == wrong ||
            other->call.microbatch != wrong->call.microbatch ||
            !may_meet(model, other->call, wrong->call))
            continue;
        if (grouped &&
            !same_names(model->plan, steps[other->call.step].op, steps[wrong->call.step].op))
            continue;
        return other;
    }
    return NULL;
}

static tocsin_status emit_all(lane_diagnosis *diagnosis, tocsin_error *error)
{
    size_t count = diagnosis->differences.count;
    for (size_t d = 0; d < count; ++d) {
        call_difference *wrong = &diagnosis->differences.items[d];
        if (wrong->merged || wrong->kind != DIFFERENCE_MISSING)
            continue;
        call_difference *needed = find_needed(diagnosis, wrong);
        if (!needed)
            continue;
        if (is_reversed(diagnosis->model, wrong, needed)) {
            call_difference *other = needed;
            needed = wrong;
            wrong = other;
        }
        wrong->merged = needed->merged = true;
        TOCSIN_TRY(emit(diagnosis, wrong, needed, error));
    }
    for (size_t d = 0; d < count; ++d)
        if (!diagnosis->differences.items[d].merged)
            TOCSIN_TRY(emit(diagnosis, &diagnosis->differences.items[d], NULL, error));
    return TOCSIN_OK;
}

/* ---- strays -----------------------------------------------------------------------------------
 */

/* The calls that others miss from the stray's actor are what it should have been: they are told as
 * one. `needed` receives one of them. */
static uint64_t merge_stray(lane_diagnosis *diagnosis, const tocsin_sanity_stray *stray,
                            const call_difference **needed)
{
    const tocsin_sanity_model *model = diagnosis->model;
    const tocsin_sanity_step *steps = model->steps.items;
    const tocsin_plan_op *op = &model->plan->ops.items[steps[stray->step].op];
    const uint64_t *first = tocsin_map_find(&diagnosis->by_lacker, stray->actor);
    uint64_t merged = 0;
    for (uint32_t d = first ? (uint32_t)*first : 0; d;) {
        call_difference *missed = &diagnosis->differences.items[d - 1];
        tocsin_sanity_visit visit = {.step = stray->step, .microbatch = missed->call.microbatch};
        d = missed->next;
        if (missed->merged || missed->kind != DIFFERENCE_MISSING ||
            !may_meet(model, visit, missed->call) ||
            (op->group != TOCSIN_PLAN_NONE &&
             !same_names(model->plan, steps[stray->step].op, steps[missed->call.step].op)))
            continue;
        missed->merged = true;
        *needed = missed;
        ++merged;
    }
    return merged;
}

static tocsin_status emit_stray(lane_diagnosis *diagnosis, const tocsin_sanity_stray *stray,
                                tocsin_error *error)
{
    tocsin_sanity_model *model = diagnosis->model;
    const call_difference *needed = NULL;
    uint64_t count = merge_stray(diagnosis, stray, &needed);
    tocsin_sanity_visit visit = {.step = stray->step, .microbatch = -1};
    tocsin_sanity_finding finding = {.class = stray->class,
                                     .call = tocsin_sanity_call_of(model, stray->actor, visit),
                                     .certain = true,
                                     .partner_group = TOCSIN_PLAN_NONE};
    finding.partner = finding.call;
    finding.partner.op = TOCSIN_PLAN_NONE;
    finding.group = model->plan->ops.items[finding.call.op].group;
    tocsin_string relation = {0}, expected = {0};
    append_call(model, &finding.call, &relation);
    tocsin_string_append_text(&relation, stray->relation);
    tocsin_string_append_text(&expected, stray->expected);
    if (needed) {
        finding.partner = tocsin_sanity_call_of(model, needed->holder, needed->call);
        finding.partner_group = model->lanes.items[needed->lane].group;
        tocsin_string_append_text(&expected, ": ");
        append_call(model, &finding.partner, &expected);
    }
    return tocsin_sanity_note_texts(model, &finding, count ? count : 1, &relation, &expected,
                                    error);
}

/* ---- all broken lanes -------------------------------------------------------------------------
 */

static tocsin_status collect_call(tocsin_sanity_model *model, uint32_t actor, uint32_t index,
                                  tocsin_sanity_visit visit, tocsin_error *error)
{
    (void)actor;
    (void)error;
    tocsin_sanity_slot *slot = &model->slots.items[index];
    const tocsin_sanity_lane *lane = &model->lanes.items[slot->lane];
    if (lane->broken || lane->uneven) {
        assert(slot->first_visit + slot->count < model->visits.count);
        model->visits.items[slot->first_visit + slot->count++] = visit;
    }
    return TOCSIN_OK;
}

/* Write out the sequences of the lanes to be diagnosed. */
static tocsin_status collect(tocsin_sanity_model *model, tocsin_error *error)
{
    size_t total = 0;
    for (size_t s = 0; s < model->slots.count; ++s) {
        tocsin_sanity_slot *slot = &model->slots.items[s];
        const tocsin_sanity_lane *lane = &model->lanes.items[slot->lane];
        slot->first_visit = (uint32_t)total;
        total += lane->broken || lane->uneven ? slot->count : 0;
        slot->count = 0;
        if (total > UINT32_MAX)
            return tocsin_error_set(error, TOCSIN_E_LIMIT, "more than 2^32 unmatched calls");
    }
    if (!total)
        return TOCSIN_OK;
    if (!TOCSIN_VEC_RESERVE(&model->visits, total))
        return tocsin_error_memory(error);
    model->visits.count = total;
    for (uint32_t a = 0; a < model->actors.count; ++a)
        TOCSIN_TRY(tocsin_sanity_follow(model, a, collect_call, error));
    return TOCSIN_OK;
}

tocsin_status tocsin_sanity_diagnose(tocsin_sanity_model *model, tocsin_error *error)
{
    TOCSIN_TRY(collect(model, error));
    lane_diagnosis diagnosis = {.model = model};
    tocsin_status status = TOCSIN_OK;
    for (uint32_t l = 0; l < model->lanes.count && status == TOCSIN_OK; ++l)
        if (model->lanes.items[l].broken || model->lanes.items[l].uneven)
            status = diagnose_lane(&diagnosis, l, error);
    for (size_t k = 0; k < model->strays.count && status == TOCSIN_OK; ++k)
        status = emit_stray(&diagnosis, &model->strays.items[k], error);
    if (status == TOCSIN_OK)
        status = emit_all(&diagnosis, error);
    TOCSIN_VEC_FREE(&diagnosis.differences);
    tocsin_map_free(&diagnosis.by_lacker);
    return status;
}
