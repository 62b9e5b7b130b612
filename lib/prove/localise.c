/* localise.c - from wrong outputs back to the first wrong operators.
 *
 *   1. An operator is a *candidate* when an output that failed needs it and it was refused, made a
 *      foreign value, or is paired (by label) with a logical operator whose value is another one.
 *   2. Taint flows from candidates along values and messages; a candidate whose inputs are clean is
 *      a *first* one. There is one for every independent cause that shows so.
 *   3. trace.c asks why: compares its operands with those of its logical counterpart and follows a
 *      wrong one upstream through structure, sums and collectives to where it went wrong.
 *   4. A failed output that no candidate taints is wrong by linear steps alone (a reduction, a
 *      factor, a slice): trace.c classifies it by the difference of the two normal forms.
 *
 * Pairing by label serves this diagnosis only; no proof rests on it.
 */
#include "prove/localise.h"

#include <assert.h>

#include "prove/trace.h"

/* ---- preparing ------------------------------------------------------------------------------- */

static bool pair_labels(tocsin_tracer *tracer)
{
    const tocsin_plan *logical = tracer->logical->plan, *parallel = tracer->run->plan;
    tocsin_map by_label = {0}; /* logical string -> op + 1, 0 when several have it */
    bool sound = true;

    for (uint32_t k = 0; k < logical->ops.count && sound; k++) {
        const tocsin_plan_op *op = &logical->ops.items[k];
        const bool known = tocsin_map_find(&by_label, op->label) != NULL;
        sound = tocsin_map_put(&by_label, op->label, known ? 0 : k + UINT64_C(1));
    }
    for (size_t k = 0; k < parallel->ops.count && sound; k++) {
        size_t bytes;
        const char *label =
            tocsin_intern_text(&parallel->strings, parallel->ops.items[k].label, &bytes);
        const uint32_t own = bytes == 0 ? 0 : tocsin_intern_find(&logical->strings, label, bytes);
        const uint64_t *found = own == 0 ? NULL : tocsin_map_find(&by_label, own);
        tracer->paired[k] =
            found == NULL || *found == 0 ? TOCSIN_PLAN_NONE : (uint32_t)(*found - 1);
    }
    tocsin_map_free(&by_label);
    return sound;
}

static void index_ops(tocsin_tracer *tracer)
{
    const tocsin_plan *plan = tracer->run->plan;
    memset(tracer->producer, 0xff, plan->values.count * sizeof tracer->producer[0]);
    memset(tracer->sender, 0xff, plan->ops.count * sizeof tracer->sender[0]);
    for (uint32_t r = 0; r < plan->roles.count; r++) {
        const tocsin_plan_role *role = &plan->roles.items[r];
        for (uint32_t s = 0; s < role->segment_count; s++) {
            const tocsin_plan_segment *segment = &plan->segments.items[role->first_segment + s];
            for (uint32_t k = 0; k < segment->op_count; k++) {
                const uint32_t index = segment->first_op + k;
                const tocsin_plan_op *op = &plan->ops.items[index];
                const uint32_t *outputs =
                    plan->operands.items + op->first_operand + op->input_count;
                tracer->role_of[index] = r;
                for (uint32_t j = 0; j < op->output_count; j++)
                    if (tracer->producer[role->first_value + outputs[j]] == TOCSIN_PLAN_NONE)
                        tracer->producer[role->first_value + outputs[j]] = index;
                if (op->code == TOCSIN_OPERATOR_SEND && tracer->match[index] != TOCSIN_PLAN_NONE)
                    tracer->sender[tracer->match[index]] = index;
            }
        }
    }
}

tocsin_status tocsin_tracer_init(tocsin_tracer *tracer, const tocsin_run *run,
                                 const tocsin_run *logical, const uint32_t *match,
                                 tocsin_roots *roots, tocsin_error *error)
{
    const tocsin_plan *plan = run->plan;
    *tracer = (tocsin_tracer){.run = run, .logical = logical, .match = match, .roots = roots};
    const size_t ops = plan->ops.count + 1, values = plan->values.count + 1;
    tracer->paired = TOCSIN_ARENA_ARRAY(&tracer->arena, uint32_t, ops);
    tracer->role_of = TOCSIN_ARENA_ARRAY(&tracer->arena, uint32_t, ops);
    tracer->sender = TOCSIN_ARENA_ARRAY(&tracer->arena, uint32_t, ops);
    tracer->producer = TOCSIN_ARENA_ARRAY(&tracer->arena, uint32_t, values);
    tracer->needed = TOCSIN_ARENA_ARRAY(&tracer->arena, uint8_t, ops);
    tracer->candidate = TOCSIN_ARENA_ARRAY(&tracer->arena, uint8_t, ops);
    tracer->derived = TOCSIN_ARENA_ARRAY(&tracer->arena, uint8_t, ops);
    tracer->tainted = TOCSIN_ARENA_ARRAY(&tracer->arena, uint8_t, values);
    if (tracer->paired == NULL || tracer->role_of == NULL || tracer->sender == NULL ||
        tracer->producer == NULL || tracer->needed == NULL || tracer->candidate == NULL ||
        tracer->derived == NULL || tracer->tainted == NULL || !pair_labels(tracer))
        return tocsin_error_memory(error);
    memset(tracer->candidate, 0, ops);
    memset(tracer->derived, 0, ops);
    memset(tracer->tainted, 0, values);
    index_ops(tracer);
    return TOCSIN_OK;
}

/* ---- candidates ------------------------------------------------------------------------------ */

typedef bool visit_execution(tocsin_tracer *tracer, uint32_t unit, uint32_t slot, uint32_t op);

/* Every execution of every unit, until a visit says false (out of memory). */
static bool for_each_execution(tocsin_tracer *tracer, visit_execution *visit)
{
    const tocsin_run *run = tracer->run;
    for (uint32_t u = 0; u < run->units.count; u++) {
        const uint32_t role_index = run->units.items[u].role;
        const tocsin_plan_role *role = &run->plan->roles.items[role_index];
        for (uint32_t t = run->first_turn[role_index]; t < run->first_turn[role_index + 1]; t++) {
            const tocsin_plan_turn *turn = &run->turns.items[t];
            const tocsin_plan_segment *segment =
                &run->plan->segments.items[role->first_segment + turn->segment];
            const uint32_t slot = run->enumerate_microbatches && turn->microbatch > 0
                                      ? (uint32_t)turn->microbatch
                                      : 0;
            for (uint32_t k = 0; k < segment->op_count; k++)
                if (tracer->needed[segment->first_op + k] &&
                    !visit(tracer, u, slot, segment->first_op + k))
                    return false;
        }
    }
    return true;
}

static bool changes_nothing(uint16_t code)
{
    return code >= TOCSIN_OPERATOR_IDENTITY && code <= TOCSIN_OPERATOR_COPIES;
}

/* Is the value of the paired logical operator another one? */
static bool is_astray(const tocsin_tracer *tracer, uint32_t unit, uint32_t slot, uint32_t index)
{
    const tocsin_run *run = tracer->run;
    const uint32_t pair = tracer->paired[index];
    if (pair == TOCSIN_PLAN_NONE)
        return false;
    const tocsin_plan_op *op = &run->plan->ops.items[index];
    const tocsin_plan_op *other = &tracer->logical->plan->ops.items[pair];
    if (changes_nothing(op->code) && changes_nothing(other->code))
        return false; /* systems number these as they please */
    if (op->output_count != other->output_count)
        return true;
    for (uint32_t j = 0; j < op->output_count; j++) {
        const tocsin_relation_id own = tocsin_run_value(
            run, unit, slot, run->plan->operands.items[op->first_operand + op->input_count + j]);
        const tocsin_relation_id expected = tocsin_run_value(
            tracer->logical, 0, 0,
            tracer->logical->plan->operands.items[other->first_operand + other->input_count + j]);
        if (!tocsin_tracer_resembles(tracer, own, expected))
            return true;
    }
    return false;
}

static bool mark_astray(tocsin_tracer *tracer, uint32_t unit, uint32_t slot, uint32_t op)
{
    if (tracer->candidate[op] == 0 && is_astray(tracer, unit, slot, op))
        tracer->candidate[op] = TOCSIN_CANDIDATE_ASTRAY;
    return true;
}

/* A factor that differs from the logical one may be that of a local mean, but then it is the same
 * on all devices: name those that differ from most. */
static bool mark_odd_factors(tocsin_tracer *tracer)
{
    const tocsin_plan *plan = tracer->run->plan;
    const uint32_t *kinds = tracer->run->prover->op_kind[TOCSIN_PARALLEL];
    tocsin_map counts = {0}; /* (logical op, kind) -> ops */
    tocsin_map most = {0};   /* logical op -> kind that most have */
    bool sound = true;

    for (uint32_t k = 0; k < plan->ops.count && sound; k++) {
        if (tracer->paired[k] == TOCSIN_PLAN_NONE ||
            plan->ops.items[k].code != TOCSIN_OPERATOR_SCALE)
            continue;
        uint64_t *count = tocsin_map_at(&counts, (uint64_t)tracer->paired[k] << 32 | kinds[k]);
        uint64_t *best = count == NULL ? NULL : tocsin_map_at(&most, tracer->paired[k]);
        sound = best != NULL;
        if (sound && ++*count > *best >> 32)
            *best = *count << 32 | kinds[k];
    }
    for (uint32_t k = 0; k < plan->ops.count && sound; k++) {
        const uint64_t *best = tocsin_map_find(&most, tracer->paired[k]);
        if (tracer->needed[k] && plan->ops.items[k].code == TOCSIN_OPERATOR_SCALE && best != NULL &&
            (uint32_t)*best != kinds[k] && tocsin_tracer_other_constant(tracer, k))
            tracer->candidate[k] = TOCSIN_CANDIDATE_CONSTANT;
    }
    tocsin_map_free(&counts);
    tocsin_map_free(&most);
    return sound;
}

static bool mark_constants(tocsin_tracer *tracer)
{
    const tocsin_plan *plan = tracer->run->plan;
    for (uint32_t k = 0; k < plan->ops.count; k++)
        if (tracer->needed[k] && tracer->candidate[k] == 0 &&
            plan->ops.items[k].code != TOCSIN_OPERATOR_SCALE &&
            tocsin_tracer_other_constant(tracer, k))
            tracer->candidate[k] = TOCSIN_CANDIDATE_CONSTANT;
    return mark_odd_factors(tracer);
}

static void mark_incidents(tocsin_tracer *tracer)
{
    for (size_t k = 0; k < tracer->run->incidents.count; k++) {
        const tocsin_incident *incident = &tracer->run->incidents.items[k];
        if (incident->op != TOCSIN_PLAN_NONE && tracer->needed[incident->op])
            tracer->candidate[incident->op] = TOCSIN_CANDIDATE_INCIDENT;
    }
}

/* ---- taint ----------------------------------------------------------------------------------- */

/* One forward walk; `meets` by match number: some member's input is tainted. */
static bool spread(tocsin_tracer *tracer, uint8_t *meets)
{
    const tocsin_plan *plan = tracer->run->plan;
    bool changed = false;
    for (size_t r = 0; r < plan->roles.count; r++) {
        const tocsin_plan_role *role = &plan->roles.items[r];
        for (uint32_t s = 0; s < role->segment_count; s++) {
            const tocsin_plan_segment *segment = &plan->segments.items[role->first_segment + s];
            for (uint32_t k = 0; k < segment->op_count; k++) {
                const uint32_t index = segment->first_op + k;
                const tocsin_plan_op *op = &plan->ops.items[index];
                const uint32_t *operands = plan->operands.items + op->first_operand;
                const uint32_t match = tracer->match[index];
                bool derived = match != TOCSIN_PLAN_NONE && meets[match];
                for (uint32_t i = 0; i < op->input_count; i++)
                    derived |= tracer->tainted[role->first_value + operands[i]];
                if (derived && match != TOCSIN_PLAN_NONE && !meets[match]) {
                    meets[match] = 1;
                    changed = true;
                }
                tracer->derived[index] = derived;
                if (!derived && tracer->candidate[index] == 0)
                    continue;
                for (uint32_t j = 0; j < op->output_count; j++) {
                    uint8_t *taint =
                        &tracer->tainted[role->first_value + operands[op->input_count + j]];
                    changed |= !*taint;
                    *taint = 1;
                }
            }
        }
    }
    return changed;
}

static tocsin_status spread_all(tocsin_tracer *tracer, tocsin_error *error)
{
    uint8_t *meets = tocsin_zalloc(tracer->run->plan->ops.count + 1, 1);
    if (meets == NULL)
        return tocsin_error_memory(error);
    while (spread(tracer, meets))
        continue;
    tocsin_free(meets);
    return TOCSIN_OK;
}

/* ---- first candidates ------------------------------------------------------------------------ */

static bool is_first(const tocsin_tracer *tracer, uint32_t op, uint8_t kind)
{
    return tracer->candidate[op] == kind && !tracer->derived[op];
}

static bool explain_astray(tocsin_tracer *tracer, uint32_t unit, uint32_t slot, uint32_t op)
{
    if (!is_first(tracer, op, TOCSIN_CANDIDATE_ASTRAY) || !is_astray(tracer, unit, slot, op))
        return true;
    return tocsin_tracer_explain(tracer, unit, slot, op, NULL);
}

static bool explain_constant(tocsin_tracer *tracer, uint32_t unit, uint32_t slot, uint32_t op)
{
    if (!is_first(tracer, op, TOCSIN_CANDIDATE_CONSTANT))
        return true;
    return tocsin_tracer_explain(tracer, unit, slot, op, NULL);
}

static bool explain_incidents(tocsin_tracer *tracer)
{
    const tocsin_run *run = tracer->run;
    for (size_t k = 0; k < run->incidents.count; k++) {
        const tocsin_incident *incident = &run->incidents.items[k];
        if (incident->op == TOCSIN_PLAN_NONE) {
            if (!tocsin_tracer_input(tracer, incident))
                return false;
            continue;
        }
        if (!tracer->needed[incident->op] ||
            !is_first(tracer, incident->op, TOCSIN_CANDIDATE_INCIDENT))
            continue;
        const tocsin_plan_turn *turn =
            &run->turns
                 .items[run->first_turn[run->units.items[incident->unit].role] + incident->turn];
        const uint32_t slot =
            run->enumerate_microbatches && turn->microbatch > 0 ? (uint32_t)turn->microbatch : 0;
        if (!tocsin_tracer_explain(tracer, incident->unit, slot, incident->op, incident))
            return false;
    }
    return true;
}

static bool has_failed(const tocsin_check *check)
{
    return check->status == TOCSIN_CHECK_DIFFERENT || check->status == TOCSIN_CHECK_LOST;
}

/* What is made of a wrong output (the optimizer's step of a wrong gradient) is no cause of its own.
 */
static void mark_outputs(tocsin_tracer *tracer, const tocsin_comparison *comparison)
{
    const tocsin_plan *plan = tracer->run->plan;
    for (size_t k = 0; k < comparison->checks.count; k++) {
        const tocsin_check *check = &comparison->checks.items[k];
        const tocsin_plan_role *role =
            &plan->roles.items[tracer->run->units.items[check->unit].role];
        const uint32_t value = role->first_value + plan->outputs.items[check->output].value;
        const uint32_t op = tracer->producer[value];
        if (check->status == TOCSIN_CHECK_DIFFERENT && !tracer->tainted[value] &&
            op != TOCSIN_PLAN_NONE && tracer->candidate[op] == 0)
            tracer->candidate[op] = TOCSIN_CANDIDATE_OUTPUT;
    }
}

/* Is the output wrong although nothing before it is? */
static bool is_first_wrong(const tocsin_tracer *tracer, uint32_t value)
{
    const uint32_t op = tracer->producer[value];
    if (!tracer->tainted[value])
        return true;
    return op != TOCSIN_PLAN_NONE && tracer->candidate[op] == TOCSIN_CANDIDATE_OUTPUT &&
           !tracer->derived[op];
}

static bool explain_outputs(tocsin_tracer *tracer, const tocsin_comparison *comparison)
{
    const tocsin_plan *plan = tracer->run->plan;
    for (size_t k = 0; k < comparison->checks.count; k++) {
        const tocsin_check *check = &comparison->checks.items[k];
        const tocsin_plan_role *role =
            &plan->roles.items[tracer->run->units.items[check->unit].role];
        const uint32_t value = plan->outputs.items[check->output].value;
        if (has_failed(check) && is_first_wrong(tracer, role->first_value + value) &&
            !tocsin_tracer_output(tracer, check))
            return false;
    }
    return true;
}

tocsin_status tocsin_tracer_need(tocsin_tracer *tracer, const tocsin_comparison *comparison,
                                 size_t *failed, tocsin_error *error)
{
    TOCSIN_VEC(uint32_t) outputs = {0};
    tocsin_status status = TOCSIN_OK;

    for (size_t k = 0; k < comparison->checks.count && status == TOCSIN_OK; k++)
        if (has_failed(&comparison->checks.items[k]) &&
            !TOCSIN_VEC_PUSH(&outputs, comparison->checks.items[k].output))
            status = tocsin_error_memory(error);
    *failed = outputs.count;
    if (status == TOCSIN_OK && outputs.count > 0)
        status = tocsin_needed_ops(tracer->run->plan, tracer->match, outputs.items, outputs.count,
                                   tracer->needed, error);
    TOCSIN_VEC_FREE(&outputs);
    return status;
}

static tocsin_status localise(tocsin_tracer *tracer, const tocsin_comparison *comparison,
                              tocsin_error *error)
{
    size_t failed;
    TOCSIN_TRY(tocsin_tracer_need(tracer, comparison, &failed, error));
    if (failed == 0)
        return TOCSIN_OK;
    mark_incidents(tracer);
    (void)for_each_execution(tracer, mark_astray);
    if (!mark_constants(tracer))
        return tocsin_error_memory(error);
    TOCSIN_TRY(spread_all(tracer, error));
    mark_outputs(tracer, comparison);
    TOCSIN_TRY(spread_all(tracer, error));
    if (!explain_incidents(tracer) || !for_each_execution(tracer, explain_constant) ||
        !for_each_execution(tracer, explain_astray) || !explain_outputs(tracer, comparison))
        return tocsin_error_memory(error);
    return TOCSIN_OK;
}

tocsin_status tocsin_localise(const tocsin_run *parallel, const tocsin_run *logical,
                              const tocsin_comparison *comparison, const uint32_t *match,
                              tocsin_roots *roots, tocsin_error *error)
{
    tocsin_tracer tracer;
    *roots = (tocsin_roots){0};
    tocsin_status status = tocsin_tracer_init(&tracer, parallel, logical, match, roots, error);
    if (status == TOCSIN_OK)
        status = localise(&tracer, comparison, error);
    tocsin_arena_free(&tracer.arena);
    return status;
}

void tocsin_roots_free(tocsin_roots *roots)
{
    TOCSIN_VEC_FREE(&roots->items);
    tocsin_arena_free(&roots->arena);
    *roots = (tocsin_roots){0};
}
