/* factor_guess.c - guesses at a wrong factor, to be tested by running the plan with it.
 *
 * A factor passes through all linear steps, so what it makes wrong may be far from where it was
 * made, and many operators have factors that differ from the logical model's by right (a mean over
 * the local part of a batch). Which one is wrong shows when the plan is proved with it put right.
 */
#include <assert.h>

#include "prove/trace.h"

typedef struct guesses {
    tocsin_tracer tracer;
    tocsin_hypotheses *list;
    uint32_t limit;
} guesses;

static const tocsin_kind *kind_of(const guesses *all, tocsin_side side, uint32_t op)
{
    const tocsin_prover *prover = all->tracer.run->prover;
    return &prover->kinds.items[prover->op_kind[side][op] - 1];
}

/* The factor of a SCALE. */
static tocsin_factor_id factor_of(const guesses *all, const tocsin_kind *kind)
{
    tocsin_universe *universe = all->tracer.run->prover->universe;
    const double divisor = tocsin_kind_real(kind, "divisor", 0.0);
    if (divisor != 0.0)
        return tocsin_factor_inverse(universe, tocsin_factor_real(universe, divisor));
    return tocsin_factor_real(universe, tocsin_kind_real(kind, "factor", 1.0));
}

static const char *factor_text(guesses *all, const char *what, tocsin_factor_id factor)
{
    tocsin_string text = {0};
    tocsin_string_append_text(&text, what);
    tocsin_factor_text(all->tracer.run->prover->universe, factor, &text);
    const char *copy = tocsin_arena_copy(&all->list->arena, tocsin_string_text(&text), text.bytes);
    tocsin_string_free(&text);
    return copy;
}

/* Guess that all ops like `op` (same label and kind) are off: their results times `change` would be
 * right. */
static bool add(guesses *all, uint32_t op, int cause, tocsin_factor_id change, tocsin_factor_id own,
                tocsin_factor_id wanted)
{
    const tocsin_plan *plan = all->tracer.run->plan;
    const uint32_t *kinds = all->tracer.run->prover->op_kind[TOCSIN_PARALLEL];
    const uint32_t label = plan->ops.items[op].label;
    TOCSIN_VEC(uint32_t) ops = {0};
    bool sound = true;

    if (all->list->items.count >= all->limit || change == 0)
        return true;
    for (size_t k = 0; k < all->list->items.count; k++) { /* guessed already? */
        const tocsin_hypothesis *other = &all->list->items.items[k];
        if (other->factor == change && kinds[other->ops[0]] == kinds[op] &&
            plan->ops.items[other->ops[0]].label == label)
            return true;
    }
    for (uint32_t k = 0; k < plan->ops.count && sound; k++)
        if (all->tracer.needed[k] && plan->ops.items[k].label == label && kinds[k] == kinds[op])
            sound = TOCSIN_VEC_PUSH(&ops, k);
    uint32_t *copy = TOCSIN_ARENA_ARRAY(&all->list->arena, uint32_t, ops.count + 1);
    sound = sound && copy != NULL && ops.count > 0;
    if (sound) {
        memcpy(copy, ops.items, ops.count * sizeof copy[0]);
        const tocsin_hypothesis made = {.ops = copy,
                                        .count = (uint32_t)ops.count,
                                        .cause = cause,
                                        .factor = change,
                                        .relation = factor_text(all, "factor ", own),
                                        .expected = factor_text(all, "factor ", wanted)};
        sound = made.relation != NULL && made.expected != NULL &&
                TOCSIN_VEC_PUSH(&all->list->items, made);
    }
    TOCSIN_VEC_FREE(&ops);
    return sound;
}

/* A scaling with another factor than its logical counterpart, or than the same one elsewhere. */
static bool guess_scalings(guesses *all)
{
    const tocsin_plan *plan = all->tracer.run->plan;
    tocsin_universe *universe = all->tracer.run->prover->universe;
    tocsin_map first = {0}; /* label -> op + 1: what the other ones may be compared with */
    bool sound = true;

    for (uint32_t k = 0; k < plan->ops.count && sound; k++) {
        const tocsin_plan_op *op = &plan->ops.items[k];
        if (op->code != TOCSIN_OPERATOR_SCALE || !all->tracer.needed[k])
            continue;
        const tocsin_factor_id own = factor_of(all, kind_of(all, TOCSIN_PARALLEL, k));
        const uint32_t pair = all->tracer.paired[k];
        if (pair != TOCSIN_PLAN_NONE &&
            all->tracer.logical->plan->ops.items[pair].code == TOCSIN_OPERATOR_SCALE) {
            const tocsin_factor_id other = factor_of(all, kind_of(all, TOCSIN_LOGICAL, pair));
            if (own != other)
                sound = add(
                    all, k, TOCSIN_CAUSE_WRONG_CONSTANT,
                    tocsin_factor_multiply(universe, other, tocsin_factor_inverse(universe, own)),
                    own, other);
        }
        uint64_t *seen = sound ? tocsin_map_at(&first, op->label) : NULL;
        sound = seen != NULL;
        if (sound && *seen == 0)
            *seen = k + UINT64_C(1);
        const uint32_t peer = sound ? (uint32_t)(*seen - 1) : k;
        const tocsin_factor_id other = factor_of(all, kind_of(all, TOCSIN_PARALLEL, peer));
        if (sound && other != own) /* one of the two */
            sound =
                add(all, k, TOCSIN_CAUSE_WRONG_SCALE,
                    tocsin_factor_multiply(universe, other, tocsin_factor_inverse(universe, own)),
                    own, other) &&
                add(all, peer, TOCSIN_CAUSE_WRONG_SCALE,
                    tocsin_factor_multiply(universe, own, tocsin_factor_inverse(universe, other)),
                    other, own);
    }
    tocsin_map_free(&first);
    return sound;
}

/* The op that makes a factor of its own: a scaling, or a reduction by its size. 0: none. */
static tocsin_factor_id own_factor(const guesses *all, uint32_t index)
{
    tocsin_universe *universe = all->tracer.run->prover->universe;
    const tocsin_plan *plan = all->tracer.run->plan;
    const tocsin_plan_op *op = &plan->ops.items[index];
    const tocsin_kind *kind = kind_of(all, TOCSIN_PARALLEL, index);

    if (op->code == TOCSIN_OPERATOR_SCALE)
        return factor_of(all, kind);
    if ((op->code != TOCSIN_OPERATOR_ALL_REDUCE && op->code != TOCSIN_OPERATOR_REDUCE_SCATTER) ||
        op->group == TOCSIN_PLAN_NONE)
        return 0;
    const int64_t size = (int64_t)tocsin_plan_group_size(plan, op->group);
    return strcmp(tocsin_kind_text(kind, "op", "sum"), "avg") == 0
               ? tocsin_factor_rational(universe, 1, size)
               : tocsin_factor_rational(universe, size, 1);
}

/* What could make a value `ratio` times too large. */
static bool guess_makers(guesses *all, tocsin_factor_id ratio)
{
    tocsin_universe *universe = all->tracer.run->prover->universe;
    const tocsin_plan *plan = all->tracer.run->plan;
    const tocsin_factor_id change = tocsin_factor_inverse(universe, ratio);
    tocsin_map added = {0}; /* value -> accumulations so far */
    bool sound = true;

    for (uint32_t k = 0; k < plan->ops.count && sound; k++) {
        const tocsin_plan_op *op = &plan->ops.items[k];
        if (!all->tracer.needed[k])
            continue;
        const tocsin_factor_id own = own_factor(all, k);
        if (own != 0 && (own == ratio || own == change))
            sound = add(all, k,
                        op->code == TOCSIN_OPERATOR_SCALE ? TOCSIN_CAUSE_WRONG_SCALE
                                                          : TOCSIN_CAUSE_DOUBLE_REDUCTION,
                        change, own, tocsin_factor_multiply(universe, own, change));
        else if (op->code == TOCSIN_OPERATOR_SCALE)
            sound = add(all, k, TOCSIN_CAUSE_WRONG_SCALE, change, own,
                        tocsin_factor_multiply(universe, own, change));
    }
    tocsin_map_free(&added);
    return sound;
}

static bool guess_ratios(guesses *all, const tocsin_comparison *comparison)
{
    tocsin_factor_id last = 0;
    bool sound = true;
    for (size_t k = 0; k < comparison->checks.count && sound; k++) {
        const tocsin_check *check = &comparison->checks.items[k];
        tocsin_factor_id ratio = 0;
        if (check->status != TOCSIN_CHECK_DIFFERENT || check->relation == 0 ||
            check->relation == TOCSIN_POISON || check->expected == 0 ||
            !tocsin_tracer_ratio(&all->tracer, check->relation, check->expected, &ratio) ||
            ratio == 0 || ratio == last)
            continue;
        last = ratio;
        sound = guess_makers(all, ratio);
    }
    return sound;
}

tocsin_status tocsin_hypothesise(const tocsin_run *parallel, const tocsin_run *logical,
                                 const tocsin_comparison *comparison, const uint32_t *match,
                                 uint32_t limit, tocsin_hypotheses *hypotheses, tocsin_error *error)
{
    guesses all = {.list = hypotheses, .limit = limit};
    size_t failed = 0;
    *hypotheses = (tocsin_hypotheses){0};
    tocsin_status status = tocsin_tracer_init(&all.tracer, parallel, logical, match, NULL, error);
    if (status == TOCSIN_OK)
        status = tocsin_tracer_need(&all.tracer, comparison, &failed, error);
    if (status == TOCSIN_OK && failed > 0 &&
        (!guess_scalings(&all) || !guess_ratios(&all, comparison)))
        status = tocsin_error_memory(error);
    tocsin_arena_free(&all.tracer.arena);
    return status;
}

void tocsin_hypotheses_free(tocsin_hypotheses *hypotheses)
{
    TOCSIN_VEC_FREE(&hypotheses->items);
    tocsin_arena_free(&hypotheses->arena);
    *hypotheses = (tocsin_hypotheses){0};
}
