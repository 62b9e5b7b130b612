/* lib/align/outcome.c - what all comparisons of two runs add up to: lists, verdict, limits.
 *
 * Lists grow while processes are compared and become arrays of the result in the end. Ranks that
 * parted by themselves (frontier.c) give the pivots; the others are counted. Cost: linear in what
 * is shown, which is bounded for each rank.
 */
#include "align/aligner.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

bool tocsin_aligner_not_cover(tocsin_aligner *aligner, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return TOCSIN_VEC_PUSH(&aligner->not_covered, tocsin_aligner_keep(aligner, text));
}

/* ---- of one comparison ----------------------------------------------------------------------- */

static bool add_pivot(tocsin_aligner *aligner, const tocsin_parting *parting,
                      const tocsin_difference_found *found)
{
    return TOCSIN_VEC_PUSH(
        &aligner->pivots,
        tocsin_aligner_pivot(aligner, parting->rank.rank, parting->rank.diverged_step, found));
}

/* What was composed of a run. */
bool tocsin_aligner_add_account(tocsin_aligner *aligner, const tocsin_whole *whole, size_t ranks,
                                bool in_a)
{
    const tocsin_whole_account *account = tocsin_whole_get_account(whole);
    tocsin_align_result *shown = &aligner->result->shown;
    tocsin_align_composition *composed = in_a ? &shown->composed_a : &shown->composed_b;
    *composed = (tocsin_align_composition){.ranks = ranks, .boundaries = account->boundaries};
    memcpy(composed->incomparable, account->incomparable, sizeof composed->incomparable);
    for (size_t r = 0; r < account->replicas.count; ++r) {
        const tocsin_replicas_found *found = &account->replicas.items[r];
        tocsin_difference_found pair = {.a = found->a,
                                        .b = found->b,
                                        .difference = TOCSIN_DIFFERENCE_CONTENT,
                                        .source = "",
                                        .last_equal = ""};
        tocsin_align_replicas shown_pair = {
            .in_a = in_a,
            .rank_a = found->rank_a,
            .rank_b = found->rank_b,
            .first = tocsin_aligner_pivot(aligner, -1, found->step, &pair),
            .count = found->count};
        if (!TOCSIN_VEC_PUSH(&aligner->replicas, shown_pair))
            return false;
    }
    return true;
}

static bool add_gaps(tocsin_aligner *aligner, const tocsin_parting *parting)
{
    for (size_t g = 0; g < parting->gaps.count; ++g) {
        tocsin_align_gap gap = parting->gaps.items[g].gap;
        if (aligner->gaps.count == TOCSIN_ALIGN_GAPS_MAX)
            return true;
        gap.rank = parting->rank.rank;
        gap.name = tocsin_aligner_keep(aligner, gap.name);
        gap.attribute = tocsin_aligner_keep(aligner, gap.attribute);
        gap.operation = tocsin_aligner_keep(aligner, gap.operation);
        if (!TOCSIN_VEC_PUSH(&aligner->gaps, gap))
            return false;
    }
    return true;
}

static bool add_conditions(tocsin_aligner *aligner, const tocsin_parting *parting)
{
    for (size_t c = 0; c < parting->conditions.count; ++c) {
        tocsin_align_condition condition = parting->conditions.items[c];
        condition.rank = parting->rank.rank;
        condition.name = tocsin_aligner_keep(aligner, condition.name);
        condition.a = tocsin_aligner_keep(aligner, condition.a);
        condition.b = tocsin_aligner_keep(aligner, condition.b);
        if (aligner->starved || !TOCSIN_VEC_PUSH(&aligner->conditions, condition))
            return false;
        aligner->conditions.count =
            tocsin_conditions_order(aligner->conditions.items, aligner->conditions.count);
    }
    return true;
}

static bool add_unstable(tocsin_aligner *aligner, const tocsin_parting *parting)
{
    for (size_t u = 0; u < parting->unstable.count; ++u) {
        const tocsin_excuse_used *found = &parting->unstable.items[u];
        tocsin_align_unstable shown = {
            .boundary = tocsin_stability_get(aligner->options.unstable, found->index),
            .repeats = tocsin_stability_repeats(aligner->options.unstable),
            .count = found->count};
        shown.boundary.name = tocsin_aligner_keep(aligner, shown.boundary.name);
        shown.boundary.attribute = tocsin_aligner_keep(aligner, shown.boundary.attribute);
        shown.boundary.operation = tocsin_aligner_keep(aligner, shown.boundary.operation);
        shown.boundary.phase = tocsin_aligner_keep(aligner, shown.boundary.phase);
        shown.boundary.step = found->step;
        shown.boundary.rank = parting->rank.rank;
        if (!TOCSIN_VEC_PUSH(&aligner->unstable, shown))
            return false;
    }
    return true;
}

static bool add_recomputed(tocsin_aligner *aligner, const tocsin_parting *parting)
{
    tocsin_align_result *shown = &aligner->result->shown;
    for (unsigned run = 0; run < 2; ++run) {
        shown->recompute[run].compared += parting->recompute[run].compared;
        shown->recompute[run].equal += parting->recompute[run].equal;
    }
    for (size_t r = 0; r < parting->recomputed.count; ++r) {
        const tocsin_recomputed_found *found = &parting->recomputed.items[r];
        tocsin_align_recomputed one = {
            .in_a = found->in_a,
            .differs =
                tocsin_aligner_pivot(aligner, parting->rank.rank, found->step, &found->difference)};
        if (!TOCSIN_VEC_PUSH(&aligner->recomputed, one))
            return false;
    }
    return true;
}

/* The verdict on a run that is compared with itself. */
static tocsin_align_verdict judge_itself(const tocsin_align_recompute *recompute)
{
    return recompute->compared == 0                 ? TOCSIN_ALIGN_INCOMPARABLE
           : recompute->equal < recompute->compared ? TOCSIN_ALIGN_DIVERGED
                                                    : TOCSIN_ALIGN_IDENTICAL;
}

static bool add_cone(tocsin_aligner *aligner, const tocsin_parting *parting)
{
    tocsin_align_cone cone;
    return parting->rank.diverged_step == 0 ||
           (tocsin_cone_keep(parting, &aligner->result->arena, &cone) &&
            TOCSIN_VEC_PUSH(&aligner->cones, cone));
}

/* ---- result ---------------------------------------------------------------------------------- */

/* "rank 3: " or "". */
static const char *rank_text(int64_t rank, char text[32])
{
    text[0] = '\0';
    if (rank >= 0)
        snprintf(text, 32, "rank %" PRId64 ": ", rank);
    return text;
}

static bool say_limits(tocsin_aligner *aligner)
{
    for (size_t p = 0; p < aligner->partings.count; ++p) {
        const tocsin_parting *parting = &aligner->partings.items[p];
        const tocsin_align_rank *rank = &parting->rank;
        char where[32];
        rank_text(rank->rank, where);
        bool ok = true;
        if (rank->steps_a != rank->steps_b + aligner->options.skip)
            ok = tocsin_aligner_not_cover(aligner,
                                          "%srun A has %" PRIu64 " steps, run B %" PRIu64
                                          " steps; the further ones were not compared",
                                          where, rank->steps_a, rank->steps_b);
        if (ok && rank->unknown > 0)
            ok = tocsin_aligner_not_cover(
                aligner, "%s%" PRIu64 " boundaries were recorded as present, without a digest",
                where, rank->unknown);
        if (ok && parting->meetings_cut)
            ok = tocsin_aligner_not_cover(aligner, "%scommunication after its first %d calls",
                                          where, 1 << 20);
        if (!ok)
            return false;
    }
    for (size_t n = 0; n < aligner->options.note_count; ++n) {
        if (!tocsin_aligner_not_cover(aligner, "%s", aligner->options.notes[n]))
            return false;
    }
    if (aligner->options.skip > 0 &&
        !tocsin_aligner_not_cover(aligner, "the first %" PRIu64 " steps of run A",
                                  aligner->options.skip))
        return false;
    return tocsin_aligner_not_cover(
        aligner, "what was not recorded, and what happens between two boundaries");
}

/* What the map could not make comparable. */
static bool say_mapping(tocsin_aligner *aligner)
{
    const tocsin_name_map *map = aligner->options.map;
    for (size_t r = 0; map && r < tocsin_name_map_rule_count(map); ++r) {
        const tocsin_map_rule *rule = tocsin_name_map_rule(map, r);
        tocsin_map_use use = tocsin_mapping_use(aligner->mapping, r);
        if (use.layout > 0 &&
            !tocsin_aligner_not_cover(aligner, "%s and %s: incomparable: %s, %" PRIu64 " times",
                                      rule->a, rule->b[0], tocsin_map_layout_text(rule->layout),
                                      use.layout))
            return false;
        if (use.incomplete > 0 &&
            !tocsin_aligner_not_cover(
                aligner,
                "%s and %s: incomparable: a part is missing or not digested, %" PRIu64 " times",
                rule->a, rule->b[0], use.incomplete))
            return false;
    }
    return true;
}

static tocsin_status collect(tocsin_aligner *aligner)
{
    tocsin_align_result *shown = &aligner->result->shown;
    tocsin_align_rank *ranks =
        TOCSIN_ARENA_ARRAY(&aligner->result->arena, tocsin_align_rank, aligner->partings.count + 1);
    if (!ranks)
        return tocsin_error_memory(aligner->error);
    TOCSIN_TRY(
        tocsin_frontier_find(aligner->partings.items, aligner->partings.count, aligner->error));
    bool ok = true, diverged = false;
    uint64_t compared = 0;
    for (size_t p = 0; ok && p < aligner->partings.count; ++p) {
        const tocsin_parting *parting = &aligner->partings.items[p];
        ranks[p] = parting->rank;
        compared += parting->rank.compared;
        shown->events += parting->events;
        diverged = diverged || parting->rank.diverged_step > 0;
        if (parting->rank.diverged_step > 0 && !parting->origin)
            ++shown->downstream;
        for (size_t f = 0; ok && parting->origin && f < parting->found.count; ++f)
            ok = add_pivot(aligner, parting, &parting->found.items[f]);
        ok = ok && add_gaps(aligner, parting) && add_conditions(aligner, parting) &&
             add_unstable(aligner, parting) && add_cone(aligner, parting) &&
             add_recomputed(aligner, parting);
    }
    ok = ok && tocsin_excuse_list(aligner->options.rules, aligner->partings.items,
                                  aligner->partings.count, &aligner->result->arena, shown);
    if (!ok || !say_mapping(aligner) || !say_limits(aligner))
        return tocsin_error_memory(aligner->error);
    diverged = diverged || aligner->replicas.count > 0;
    shown->verdict = diverged                          ? TOCSIN_ALIGN_DIVERGED
                     : compared == 0                   ? TOCSIN_ALIGN_INCOMPARABLE
                     : aligner->unstable.count > 0     ? TOCSIN_ALIGN_UNSTABLE
                     : shown->accepted_differences > 0 ? TOCSIN_ALIGN_ACCEPTED
                                                       : TOCSIN_ALIGN_IDENTICAL;
    shown->itself = aligner->options.itself;
    if (shown->itself)
        shown->verdict = judge_itself(&shown->recompute[0]);
    shown->ranks = ranks;
    shown->rank_count = aligner->partings.count;
    return TOCSIN_OK;
}

/* The items of a list, for the result. */
static void *hand_over(tocsin_aligner *aligner, const void *items, size_t count, size_t item_bytes)
{
    void *kept = tocsin_arena_copy_items(&aligner->result->arena, items, count, item_bytes);
    aligner->starved = aligner->starved || !kept;
    return kept;
}

#define HAND_OVER(aligner, list, member, member_count)                                             \
    ((aligner)->result->shown.member_count = (aligner)->list.count,                                \
     (aligner)->result->shown.member = hand_over(                                                  \
         aligner, (aligner)->list.items, (aligner)->list.count, sizeof *(aligner)->list.items))

tocsin_status tocsin_aligner_conclude(tocsin_aligner *aligner)
{
    TOCSIN_TRY(collect(aligner));
    HAND_OVER(aligner, pivots, pivots, pivot_count);
    HAND_OVER(aligner, gaps, gaps, gap_count);
    HAND_OVER(aligner, conditions, conditions, condition_count);
    HAND_OVER(aligner, unstable, unstable, unstable_count);
    HAND_OVER(aligner, replicas, replicas, replica_count);
    HAND_OVER(aligner, cones, cones, cone_count);
    HAND_OVER(aligner, recomputed, recomputed, recomputed_count);
    HAND_OVER(aligner, not_covered, not_covered, not_covered_count);
    return aligner->starved ? tocsin_error_memory(aligner->error) : TOCSIN_OK;
}
