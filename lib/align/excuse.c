/* lib/align/excuse.c - differences that are not to blame: known not to repeat, or accepted by a
 * rule.
 *
 * Both are known by what the boundary is, in whichever step and call. Which rule accepts a symbol
 * is looked up once a process.
 *
 * Cost: a look-up for each differing boundary, where there is a map or a rule.
 */
#include "align/align.h"

/* ---- what does not repeat -------------------------------------------------------------------- */

static tocsin_unstable_boundary map_key(const tocsin_comparison *comparison,
                                        const tocsin_boundary *boundary)
{
    return (tocsin_unstable_boundary){
        .name = tocsin_intern_string(comparison->names, boundary->name),
        .attribute = tocsin_intern_string(comparison->names, boundary->attribute),
        .operation = tocsin_intern_string(comparison->names, boundary->operation),
        .phase = tocsin_intern_string(comparison->names, boundary->phase),
        .step = comparison->step,
        .rank = tocsin_whole_rank(comparison->a)};
}

/* `index`: where the boundary stands among the unstable ones, else SIZE_MAX. */
static bool find_unstable(const tocsin_comparison *comparison, const tocsin_boundary *boundary,
                          size_t *index)
{
    *index = SIZE_MAX;
    if (!comparison->options->unstable)
        return true;
    tocsin_unstable_boundary key = map_key(comparison, boundary);
    return tocsin_stability_find(comparison->options->unstable, &key, index);
}

static bool count_unstable(const tocsin_comparison *comparison, size_t index)
{
    tocsin_excuses *unstable = &comparison->parting->unstable;
    for (size_t u = 0; u < unstable->count; ++u) {
        if (unstable->items[u].index == index) {
            ++unstable->items[u].count;
            return true;
        }
    }
    if (unstable->count == TOCSIN_ALIGN_UNSTABLE_MAX)
        return true;
    tocsin_excuse_used used = {.index = index, .step = comparison->step, .count = 1};
    return TOCSIN_VEC_PUSH(unstable, used);
}

static bool learn(const tocsin_comparison *comparison, const tocsin_boundary *boundary)
{
    if (!comparison->options->learn)
        return true;
    tocsin_unstable_boundary key = map_key(comparison, boundary);
    return tocsin_stability_note(comparison->options->learn, &key);
}

/* ---- what is accepted ------------------------------------------------------------------------ */

#define NO_RULE                                                                                    \
    UINT64_MAX /* of a symbol; else the rule's index + 1, and 0 before it is looked up */

/* `index`: which rule accepts the boundary, else SIZE_MAX. */
static bool find_rule(const tocsin_comparison *comparison, const tocsin_paired_step *pair,
                      uint32_t at, size_t *index)
{
    *index = SIZE_MAX;
    if (!comparison->options->rules)
        return true;
    uint64_t *known = tocsin_map_at(&comparison->parting->rule_of, pair->a->items.items[at].symbol);
    if (!known)
        return false;
    if (*known == 0) {
        tocsin_string id = {0};
        tocsin_boundary_id(pair->names, &pair->a->boundaries.items[at], &id);
        bool ok = id.status == TOCSIN_OK;
        size_t found = tocsin_align_rules_find(comparison->options->rules, tocsin_string_text(&id));
        tocsin_string_free(&id);
        if (!ok)
            return false;
        *known = found == SIZE_MAX ? NO_RULE : found + 1;
    }
    *index = *known == NO_RULE ? SIZE_MAX : (size_t)*known - 1;
    return true;
}

static bool count_rule(const tocsin_comparison *comparison, size_t index)
{
    tocsin_excuses *accepted = &comparison->parting->accepted;
    while (accepted->count <= index) {
        if (!TOCSIN_VEC_PUSH(accepted, (tocsin_excuse_used){.index = accepted->count}))
            return false;
    }
    tocsin_excuse_used *used = &accepted->items[index];
    used->step = used->count == 0 ? comparison->step : used->step;
    ++used->count;
    return true;
}

/* ---- both ------------------------------------------------------------------------------------ */

bool tocsin_excuse_find(const tocsin_comparison *comparison, const tocsin_paired_step *pair,
                        uint32_t at, bool count, bool *excused)
{
    const tocsin_boundary *boundary = &pair->a->boundaries.items[at];
    size_t unstable, rule;
    if ((count && !learn(comparison, boundary)) ||
        !find_unstable(comparison, boundary, &unstable) || !find_rule(comparison, pair, at, &rule))
        return false;
    *excused = unstable != SIZE_MAX || rule != SIZE_MAX;
    if (count && rule != SIZE_MAX)
        return count_rule(comparison, rule);
    return !count || unstable == SIZE_MAX || count_unstable(comparison, unstable);
}

/* ---- result ---------------------------------------------------------------------------------- */

/* What all ranks found the rule to accept. */
static void add_up(size_t index, const tocsin_parting *partings, size_t count,
                   tocsin_align_accepted *accepted)
{
    for (size_t p = 0; p < count; ++p) {
        const tocsin_excuses *used = &partings[p].accepted;
        if (index >= used->count || used->items[index].count == 0)
            continue;
        if (accepted->count == 0) {
            accepted->step = used->items[index].step;
            accepted->rank = partings[p].rank.rank;
        }
        accepted->count += used->items[index].count;
    }
}

bool tocsin_excuse_list(const tocsin_align_rules *rules, const tocsin_parting *partings,
                        size_t count, tocsin_arena *arena, tocsin_align_result *result)
{
    size_t rule_count = rules ? tocsin_align_rules_count(rules) : 0;
    tocsin_align_accepted *all = TOCSIN_ARENA_ARRAY(arena, tocsin_align_accepted, rule_count + 1);
    if (!all)
        return false;
    for (size_t r = 0; r < rule_count; ++r) {
        tocsin_align_accepted *one = &all[r];
        *one = (tocsin_align_accepted){.rule = *tocsin_align_rules_get(rules, r), .rank = -1};
        const char **texts[TOCSIN_ALIGN_RULE_TEXTS];
        tocsin_align_rule_texts(&one->rule, texts);
        for (size_t t = 0; t < TOCSIN_ALIGN_RULE_TEXTS; ++t) {
            *texts[t] = tocsin_arena_copy(arena, *texts[t], strlen(*texts[t]));
            if (!*texts[t])
                return false;
        }
        add_up(r, partings, count, one);
        result->accepted_differences += one->count;
    }
    result->accepted = all;
    result->accepted_count = rule_count;
    return true;
}
