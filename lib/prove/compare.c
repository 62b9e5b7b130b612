/* compare.c - the outputs of a run against the logical ones, and which operators they need.
 *
 * The declared folds (sum or mean over replicas and micro-batches) are applied to the output's
 * relation, the declared slice to the logical output's; then equality is equality of values
 * (settle.c). What nobody declares, wholly or in part, is listed, too.
 */
#include "prove/compare.h"

#include "prove/cover.h"

#include <assert.h>

/* ---- folds ----------------------------------------------------------------------------------- */

static bool usable(tocsin_relation_id relation)
{
    return relation != 0 && relation != TOCSIN_POISON;
}

static tocsin_relation_id mean_of(tocsin_universe *universe, tocsin_relation_id sum, int64_t count)
{
    return sum == 0
               ? 0
               : tocsin_relation_scale(universe, sum, tocsin_factor_rational(universe, 1, count));
}

/* Over the micro-batches of one unit. */
static tocsin_relation_id fold_microbatches(const tocsin_run *run, uint32_t unit,
                                            const tocsin_plan_output *output, bool per_microbatch)
{
    tocsin_universe *universe = run->prover->universe;
    const uint8_t fold = output->fold[TOCSIN_SYMBOL_MICROBATCH];
    const int64_t count = run->plan->microbatches;
    tocsin_relation_id sum = tocsin_run_value(run, unit, 0, output->value);

    if (fold == TOCSIN_FOLD_EQUAL || !per_microbatch || !usable(sum))
        return sum;
    if (!run->enumerate_microbatches) {
        sum = tocsin_relation_sum_over(universe, sum, TOCSIN_SYMBOL_MICROBATCH, count);
    } else {
        for (uint32_t slot = 1; slot < count && sum != 0; slot++) {
            const tocsin_relation_id other = tocsin_run_value(run, unit, slot, output->value);
            if (!usable(other))
                return other;
            const tocsin_relation_id both[2] = {sum, other};
            sum = tocsin_relation_add(universe, both, NULL, 2);
        }
    }
    return fold == TOCSIN_FOLD_MEAN ? mean_of(universe, sum, count) : sum;
}

static tocsin_affine start_of(const tocsin_run *run, uint32_t unit, uint32_t slot,
                              const tocsin_plan_output *output, uint32_t dim)
{
    tocsin_affine start = run->plan->starts.items[output->first_start + dim];
    if (run->enumerate_replicas) {
        start.base += start.weight[TOCSIN_SYMBOL_REPLICA] * (int64_t)run->units.items[unit].replica;
        start.weight[TOCSIN_SYMBOL_REPLICA] = 0;
    }
    if (run->enumerate_microbatches) {
        start.base += start.weight[TOCSIN_SYMBOL_MICROBATCH] * (int64_t)slot;
        start.weight[TOCSIN_SYMBOL_MICROBATCH] = 0;
    }
    return start;
}

/* Do two units declare the same slice of the same logical output? */
static bool same_output(const tocsin_run *run, uint32_t unit, const tocsin_plan_output *output,
                        uint32_t other_unit, const tocsin_plan_output *other)
{
    const tocsin_plan_value *value = tocsin_run_plan_value(run, unit, output->value);
    const tocsin_plan_value *other_value = tocsin_run_plan_value(run, other_unit, other->value);
    if (output->kind != other->kind || output->name != other->name ||
        value->ndim != other_value->ndim || value->ndim == TOCSIN_PLAN_NDIM_UNKNOWN)
        return false;
    for (uint32_t d = 0; d < value->ndim; d++) {
        const tocsin_affine start = start_of(run, unit, 0, output, d);
        const tocsin_affine other_start = start_of(run, other_unit, 0, other, d);
        if (memcmp(&start, &other_start, sizeof start) != 0 ||
            tocsin_plan_shape(run->plan, value)[d] != tocsin_plan_shape(run->plan, other_value)[d])
            return false;
    }
    return true;
}

/* Over the replicas of the unit's device; enumerated, the same output of the other replicas' roles
 * is found by its slice. */
static tocsin_relation_id fold_replicas(const tocsin_run *run, uint32_t unit,
                                        const tocsin_plan_output *output, tocsin_relation_id sum,
                                        bool per_microbatch)
{
    tocsin_universe *universe = run->prover->universe;
    const uint8_t fold = output->fold[TOCSIN_SYMBOL_REPLICA];
    const uint32_t replicas = tocsin_plan_replicas(run->plan);
    const uint32_t device = run->plan->roles.items[run->units.items[unit].role].device;

    if (fold == TOCSIN_FOLD_EQUAL || !usable(sum) || replicas == 1)
        return sum;
    if (!run->enumerate_replicas) {
        sum = tocsin_relation_sum_over(universe, sum, TOCSIN_SYMBOL_REPLICA, replicas);
    } else {
        for (uint32_t r = 0; r < replicas && sum != 0; r++) {
            const uint32_t other = run->unit_of[(size_t)device * replicas + r];
            if (other == unit || other == UINT32_MAX)
                continue;
            const tocsin_plan_role *role = &run->plan->roles.items[run->units.items[other].role];
            tocsin_relation_id next = TOCSIN_POISON;
            for (uint32_t k = 0; k < role->output_count; k++) {
                const tocsin_plan_output *same = &run->plan->outputs.items[role->first_output + k];
                if (same_output(run, unit, output, other, same))
                    next = fold_microbatches(run, other, same, per_microbatch);
            }
            if (!usable(next))
                return next;
            const tocsin_relation_id both[2] = {sum, next};
            sum = tocsin_relation_add(universe, both, NULL, 2);
        }
    }
    return fold == TOCSIN_FOLD_MEAN ? mean_of(universe, sum, replicas) : sum;
}

/* ---- the expected side ----------------------------------------------------------------------- */

/* The logical outputs, by what names them, and what the ranks declare of each. */
typedef struct expectation {
    const tocsin_run *logical;
    tocsin_map by_name;   /* kind, name -> index + 1 */
    tocsin_cover *covers; /* by index */
} expectation;

static uint64_t name_key(uint8_t kind, uint32_t name)
{
    return (uint64_t)kind << 32 | name;
}

static bool expect_outputs(expectation *expected, const tocsin_run *logical)
{
    const tocsin_plan *plan = logical->plan;
    *expected = (expectation){.logical = logical};
    expected->covers = tocsin_zalloc(plan->outputs.count + 1, sizeof expected->covers[0]);
    bool sound = expected->covers != NULL;
    for (uint32_t k = 0; sound && k < plan->outputs.count; k++) {
        const tocsin_plan_output *output = &plan->outputs.items[k];
        uint64_t *first = tocsin_map_at(&expected->by_name, name_key(output->kind, output->name));
        sound = first != NULL;
        if (sound && *first == 0)
            *first = (uint64_t)k + 1;
    }
    return sound;
}

static void expectation_free(expectation *expected)
{
    for (size_t k = 0; expected->covers != NULL && k < expected->logical->plan->outputs.count; k++)
        tocsin_cover_free(&expected->covers[k]);
    tocsin_free(expected->covers);
    tocsin_map_free(&expected->by_name);
}

/* The first logical output of the same kind and name, into plan->outputs; TOCSIN_PLAN_NONE: none.
 */
static uint32_t logical_output(const expectation *expected, const tocsin_plan *parallel,
                               const tocsin_plan_output *output)
{
    size_t bytes;
    const char *name = tocsin_intern_text(&parallel->strings, output->name, &bytes);
    const uint32_t own = tocsin_intern_find(&expected->logical->plan->strings, name, bytes);
    const uint64_t *found =
        own == 0 ? NULL : tocsin_map_find(&expected->by_name, name_key(output->kind, own));
    return found == NULL ? TOCSIN_PLAN_NONE : (uint32_t)(*found - 1);
}

/* Does the logical plan's output stand for all of what it names, rather than for a slice? */
static bool is_whole_output(const tocsin_run *logical, const tocsin_plan_output *output)
{
    const tocsin_plan_value *value = tocsin_run_plan_value(logical, 0, output->value);
    for (uint32_t d = 0; value->ndim != TOCSIN_PLAN_NDIM_UNKNOWN && d < value->ndim; d++) {
        const tocsin_affine start = logical->plan->starts.items[output->first_start + d];
        if (start.base != 0 || start.weight[0] != 0 || start.weight[1] != 0)
            return false;
    }
    return true;
}

/* The declared slice of the logical value. 0: refused. */
static tocsin_relation_id slice_of_logical(const tocsin_run *run, uint32_t unit, uint32_t slot,
                                           const tocsin_plan_output *output,
                                           tocsin_relation_id logical)
{
    tocsin_universe *universe = run->prover->universe;
    const tocsin_plan_value *value = tocsin_run_plan_value(run, unit, output->value);
    const int64_t *shape = tocsin_plan_shape(run->plan, value);
    const tocsin_relation *view = tocsin_relation_get(universe, logical);

    if (view->ndim != value->ndim)
        return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_LAYOUT,
                                      "the logical output has %u dims, this one %u", view->ndim,
                                      value->ndim);
    for (uint32_t d = 0; d < value->ndim && logical != 0; d++) {
        const tocsin_affine start = start_of(run, unit, slot, output, d);
        if (start.base == 0 && start.weight[0] == 0 && start.weight[1] == 0 &&
            tocsin_relation_get(universe, logical)->shape[d] == shape[d])
            continue;
        logical = tocsin_relation_slice(universe, logical, d, start, shape[d], 1);
    }
    return logical;
}

/* ---- one check ------------------------------------------------------------------------------- */

static bool add_check(tocsin_comparison *comparison, tocsin_check check, const char *why)
{
    check.text = tocsin_arena_copy(&comparison->arena, why, strlen(why));
    return check.text != NULL && TOCSIN_VEC_PUSH(&comparison->checks, check);
}

static bool check_output(tocsin_run *run, uint32_t unit, uint32_t slot, uint32_t output_index,
                         tocsin_relation_id logical, bool per_microbatch,
                         tocsin_comparison *comparison)
{
    const tocsin_plan_output *output = &run->plan->outputs.items[output_index];
    const tocsin_plan_role *role = &run->plan->roles.items[run->units.items[unit].role];
    tocsin_universe *universe = run->prover->universe;
    tocsin_check check = {.unit = unit,
                          .output = output_index,
                          .slot = slot,
                          .ranks = run->enumerate_replicas ? 1 : role->replica_count};
    const char *why = "";

    check.relation = output->fold[TOCSIN_SYMBOL_MICROBATCH] == TOCSIN_FOLD_EQUAL
                         ? tocsin_run_value(run, unit, slot, output->value)
                         : fold_microbatches(run, unit, output, per_microbatch);
    check.relation = fold_replicas(run, unit, output, check.relation, per_microbatch);
    if (!usable(logical)) {
        check.status = TOCSIN_CHECK_UNJUDGED;
        why = "the logical model's own value is unknown";
    } else {
        check.expected = slice_of_logical(run, unit, slot, output, logical);
        if (check.relation == TOCSIN_POISON ||
            (check.relation == 0 && tocsin_run_value(run, unit, slot, output->value) == 0)) {
            check.status = TOCSIN_CHECK_LOST;
        } else if (check.relation == 0 || check.expected == 0) {
            check.status = TOCSIN_CHECK_DIFFERENT;
            why = tocsin_universe_refusal(universe)->text;
        } else {
            check.status = tocsin_relation_same_value(universe, check.relation, check.expected)
                               ? TOCSIN_CHECK_EQUAL
                               : TOCSIN_CHECK_DIFFERENT;
        }
    }
    return add_check(comparison, check, why);
}

/* Note what the check spoke for. */
static bool cover_output(const tocsin_run *run, const tocsin_run *logical, uint32_t unit,
                         uint32_t slot, const tocsin_plan_output *output,
                         const tocsin_plan_output *whole, bool per_microbatch, tocsin_cover *cover)
{
    const tocsin_plan_value *value = tocsin_run_plan_value(run, unit, output->value);
    const tocsin_plan_value *all = tocsin_run_plan_value(logical, 0, whole->value);
    const int64_t size[TOCSIN_SYMBOL_COUNT] = {
        [TOCSIN_SYMBOL_REPLICA] = tocsin_plan_replicas(run->plan),
        [TOCSIN_SYMBOL_MICROBATCH] = per_microbatch ? run->plan->microbatches : 1};
    tocsin_affine starts[TOCSIN_PLAN_NDIM_MAX];
    if (value->ndim != all->ndim || value->ndim == TOCSIN_PLAN_NDIM_UNKNOWN)
        return true; /* they are not equal either */
    for (uint32_t d = 0; d < value->ndim; d++)
        starts[d] = start_of(run, unit, slot, output, d);
    return tocsin_cover_add(cover, starts, tocsin_plan_shape(run->plan, value), size,
                            tocsin_plan_shape(logical->plan, all), value->ndim);
}

static bool check_unit(tocsin_run *run, const expectation *expected, uint32_t unit,
                       tocsin_comparison *comparison)
{
    const tocsin_run *logical = expected->logical;
    const tocsin_plan_role *role = &run->plan->roles.items[run->units.items[unit].role];

    for (uint32_t k = 0; k < role->output_count; k++) {
        const uint32_t index = role->first_output + k;
        const tocsin_plan_output *output = &run->plan->outputs.items[index];
        const uint32_t counterpart = logical_output(expected, run->plan, output);
        if (counterpart == TOCSIN_PLAN_NONE) {
            const tocsin_check check = {
                .status = TOCSIN_CHECK_UNJUDGED, .unit = unit, .output = index, .ranks = 1};
            if (!add_check(comparison, check, "the logical model has no such output"))
                return false;
            continue;
        }
        const tocsin_plan_output *whole = &logical->plan->outputs.items[counterpart];
        const tocsin_relation_id value =
            is_whole_output(logical, whole) ? tocsin_run_value(logical, 0, 0, whole->value) : 0;
        const bool per_microbatch =
            run->plan->microbatches > 1 && run->each_microbatch[role->first_value + output->value];
        const bool each = per_microbatch && run->enumerate_microbatches &&
                          output->fold[TOCSIN_SYMBOL_MICROBATCH] == TOCSIN_FOLD_EQUAL;
        const uint32_t slots = each ? run->plan->microbatches : 1;
        for (uint32_t slot = 0; slot < slots; slot++)
            if (!check_output(run, unit, slot, index, value, per_microbatch, comparison) ||
                !cover_output(run, logical, unit, slot, output, whole, per_microbatch,
                              &expected->covers[counterpart]))
                return false;
    }
    return true;
}

/* Logical outputs of which no rank declares some element. */
static bool list_uncovered(const expectation *expected, tocsin_comparison *comparison)
{
    const tocsin_run *logical = expected->logical;
    for (uint32_t k = 0; k < logical->plan->outputs.count; k++) {
        const tocsin_plan_value *value =
            tocsin_run_plan_value(logical, 0, logical->plan->outputs.items[k].value);
        bool covered;
        if (value->ndim == TOCSIN_PLAN_NDIM_UNKNOWN) {
            if (!TOCSIN_VEC_PUSH(&comparison->uncovered, k))
                return false;
            continue;
        }
        if (!tocsin_cover_is_whole(&expected->covers[k], tocsin_plan_shape(logical->plan, value),
                                   value->ndim, &covered) ||
            (!covered && !TOCSIN_VEC_PUSH(&comparison->uncovered, k)))
            return false;
    }
    return true;
}

tocsin_status tocsin_compare(tocsin_run *parallel, const tocsin_run *logical,
                             tocsin_comparison *comparison, tocsin_error *error)
{
    expectation expected;
    *comparison = (tocsin_comparison){0};
    bool sound = expect_outputs(&expected, logical);
    for (uint32_t u = 0; sound && u < parallel->units.count; u++)
        sound = check_unit(parallel, &expected, u, comparison);
    sound = sound && list_uncovered(&expected, comparison);
    expectation_free(&expected);
    return sound ? tocsin_universe_status(parallel->prover->universe, error)
                 : tocsin_error_memory(error);
}

bool tocsin_comparison_equal(const tocsin_comparison *comparison)
{
    for (size_t k = 0; k < comparison->checks.count; k++)
        if (comparison->checks.items[k].status != TOCSIN_CHECK_EQUAL)
            return false;
    return true;
}

void tocsin_comparison_free(tocsin_comparison *comparison)
{
    TOCSIN_VEC_FREE(&comparison->checks);
    TOCSIN_VEC_FREE(&comparison->uncovered);
    tocsin_arena_free(&comparison->arena);
    *comparison = (tocsin_comparison){0};
}

/* ---- what the outputs need ------------------------------------------------------------------- */

typedef struct need {
    const tocsin_plan *plan;
    const uint32_t *match;
    uint8_t *ops;     /* needed */
    uint8_t *values;  /* of all roles, needed */
    uint8_t *matches; /* by match number: some member's result is needed */
} need;

/* Does anybody need this op now? */
static bool is_needed(const need *state, const tocsin_plan_role *role, uint32_t index)
{
    const tocsin_plan_op *op = &state->plan->ops.items[index];
    const uint32_t *outputs = state->plan->operands.items + op->first_operand + op->input_count;

    for (uint32_t j = 0; j < op->output_count; j++)
        if (state->values[role->first_value + outputs[j]])
            return true;
    return state->match[index] != TOCSIN_PLAN_NONE && state->matches[state->match[index]];
}

/* One backward walk over a role; true: something new was found. */
static bool walk(const need *state, const tocsin_plan_role *role)
{
    bool changed = false;
    for (uint32_t s = role->segment_count; s-- > 0;) {
        const tocsin_plan_segment *segment = &state->plan->segments.items[role->first_segment + s];
        for (uint32_t k = segment->op_count; k-- > 0;) {
            const uint32_t index = segment->first_op + k;
            const tocsin_plan_op *op = &state->plan->ops.items[index];
            if (state->ops[index] || !is_needed(state, role, index))
                continue;
            changed = true;
            state->ops[index] = 1;
            if (state->match[index] != TOCSIN_PLAN_NONE)
                state->matches[state->match[index]] = 1;
            for (uint32_t i = 0; i < op->input_count; i++)
                state->values[role->first_value +
                              state->plan->operands.items[op->first_operand + i]] = 1;
        }
    }
    return changed;
}

static void mark_output(const need *state, uint32_t output)
{
    const tocsin_plan *plan = state->plan;
    for (size_t r = 0; r < plan->roles.count; r++) {
        const tocsin_plan_role *role = &plan->roles.items[r];
        if (output >= role->first_output && output < role->first_output + role->output_count)
            state->values[role->first_value + plan->outputs.items[output].value] = 1;
    }
}

static void mark_all_outputs(const need *state)
{
    const tocsin_plan *plan = state->plan;
    for (size_t r = 0; r < plan->roles.count; r++) {
        const tocsin_plan_role *role = &plan->roles.items[r];
        for (uint32_t k = 0; k < role->output_count; k++)
            state->values[role->first_value + plan->outputs.items[role->first_output + k].value] =
                1;
    }
}

tocsin_status tocsin_needed_ops(const tocsin_plan *plan, const uint32_t *match,
                                const uint32_t *outputs, size_t output_count, uint8_t *needed,
                                tocsin_error *error)
{
    need state = {.plan = plan, .match = match, .ops = needed};
    bool changed = true;

    memset(needed, 0, plan->ops.count);
    state.values = tocsin_zalloc(plan->values.count + 1, 1);
    state.matches = tocsin_zalloc(plan->ops.count + 1, 1);
    if (state.values == NULL || state.matches == NULL) {
        tocsin_free(state.values);
        tocsin_free(state.matches);
        return tocsin_error_memory(error);
    }
    if (outputs == NULL)
        mark_all_outputs(&state);
    for (size_t k = 0; outputs != NULL && k < output_count; k++)
        mark_output(&state, outputs[k]);
    while (changed) { /* roles feed one another: at most once around per pipeline stage */
        changed = false;
        for (size_t r = plan->roles.count; r-- > 0;)
            changed |= walk(&state, &plan->roles.items[r]);
        for (size_t r = 0; changed && r < plan->roles.count; r++)
            changed |= walk(&state, &plan->roles.items[r]);
    }
    tocsin_free(state.values);
    tocsin_free(state.matches);
    return TOCSIN_OK;
}
