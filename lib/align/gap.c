/* lib/align/gap.c - boundaries that only one run has, and why.
 *
 * The reasons are tried in the order of TOCSIN_GAP_TABLE, from what is certain (the other run has
 * the same boundary) to what is only where it stands. All look at this step of this thread alone.
 *
 * Cost: a few passes over the step for each of the at most TOCSIN_ALIGN_GAPS_MAX kinds.
 */
#include "align/align.h"

typedef struct lone_boundary {
    const tocsin_paired_step *pair;
    const tocsin_boundary_stream *of, *other;
    uint32_t at; /* in `of` */
    bool in_a;
} lone_boundary;

static const tocsin_boundary *boundary_of(const lone_boundary *lone)
{
    return &lone->of->boundaries.items[lone->at];
}

static bool is_repeated(const lone_boundary *lone)
{
    for (size_t k = 0; k < lone->other->items.count; ++k) {
        if (lone->other->items.items[k].symbol == lone->of->items.items[lone->at].symbol)
            return true;
    }
    return false;
}

static bool is_recomputed(const lone_boundary *lone)
{
    const tocsin_boundary *boundary = boundary_of(lone);
    for (size_t k = 0; k < lone->other->items.count; ++k) {
        const tocsin_boundary *one = &lone->other->boundaries.items[k];
        if (one->name == boundary->name && one->attribute == boundary->attribute &&
            one->operation == boundary->operation &&
            (one->point & TOCSIN_MOMENT_MASK) == (boundary->point & TOCSIN_MOMENT_MASK))
            return true;
    }
    return false;
}

/* The value among what has no partner in the other run either: items [begin, end) of it. */
static bool stands_between(const lone_boundary *lone, uint32_t begin, uint32_t end)
{
    for (uint32_t k = begin; k < end; ++k) {
        if (lone->other->items.items[k].value == lone->of->items.items[lone->at].value)
            return true;
    }
    return false;
}

static bool has_other_name(const lone_boundary *lone)
{
    const uint32_t *partner = lone->pair->partner;
    uint32_t count = (uint32_t)lone->pair->a->items.count, next = 0;
    if (lone->of->items.items[lone->at].value == 0)
        return false;
    for (uint32_t i = 0; i < count; ++i) {
        if (!lone->in_a && partner[i] == TOCSIN_ALIGN_NONE && stands_between(lone, i, i + 1))
            return true;
        if (lone->in_a && partner[i] != TOCSIN_ALIGN_NONE) {
            if (stands_between(lone, next, partner[i]))
                return true;
            next = partner[i] + 1;
        }
    }
    return lone->in_a && stands_between(lone, next, (uint32_t)lone->other->items.count);
}

static bool hands_on(const lone_boundary *lone)
{
    const tocsin_boundary *boundary = boundary_of(lone);
    if (lone->at == 0 || !boundary->digested)
        return false;
    const tocsin_boundary *before = boundary - 1;
    return before->digested && before->dtype == boundary->dtype &&
           before->digest.sum == boundary->digest.sum &&
           before->digest.polynomial == boundary->digest.polynomial &&
           before->digest.exclusive == boundary->digest.exclusive;
}

/* How long the name of `outer` is, if the boundary is within that module or of a function called in
 * it; -1: it is not. */
static int64_t depth_inside(const lone_boundary *lone, const tocsin_boundary *outer)
{
    const tocsin_boundary *inner = boundary_of(lone);
    const char *name = tocsin_intern_string(lone->pair->names, inner->name);
    const char *module = tocsin_intern_string(lone->pair->names, outer->name);
    size_t length = strlen(module);
    if (inner->name == outer->name)
        return inner->operation != outer->operation ? (int64_t)length : -1;
    bool inside = length == 0 || (strncmp(name, module, length) == 0 && name[length] == '.');
    return inside ? (int64_t)length : -1;
}

/* Is the output of the nearest module around it equal? */
static bool is_fused(const lone_boundary *lone)
{
    const tocsin_boundary *boundary = boundary_of(lone);
    int64_t nearest = -1;
    bool equal = false;
    for (uint32_t i = 0; i < lone->pair->a->items.count; ++i) {
        const tocsin_boundary *outer = &lone->pair->a->boundaries.items[i];
        if (outer->phase != boundary->phase || !outer->chain || !outer->chain->module ||
            strcmp(tocsin_intern_string(lone->pair->names, outer->attribute), "output") != 0)
            continue;
        int64_t depth = depth_inside(lone, outer);
        if (depth >= 0 && depth >= nearest) {
            nearest = depth;
            equal = tocsin_pair_state_of(lone->pair, i) == TOCSIN_PAIR_EQUAL;
        }
    }
    return equal;
}

/* Has the other run no boundary without partner between the partners of its neighbours? */
static bool is_inserted(const lone_boundary *lone)
{
    const uint32_t *partner = lone->pair->partner;
    uint32_t count_a = (uint32_t)lone->pair->a->items.count;
    uint32_t count_b = (uint32_t)lone->pair->b->items.count;
    uint32_t before_a = 0, before_b = 0; /* one behind the last pair before it */
    for (uint32_t i = 0; i <= count_a; ++i) {
        uint32_t j = i == count_a ? count_b : partner[i];
        if (j == TOCSIN_ALIGN_NONE)
            continue;
        if (lone->in_a ? i > lone->at : j > lone->at)
            return lone->in_a ? j == before_b : i == before_a;
        before_a = i + 1;
        before_b = j + 1;
    }
    return false;
}

static tocsin_gap reason_of(const lone_boundary *lone)
{
    if (is_repeated(lone))
        return TOCSIN_GAP_REPEATED;
    if (is_recomputed(lone))
        return TOCSIN_GAP_RECOMPUTE;
    if (has_other_name(lone))
        return TOCSIN_GAP_OTHER_NAME;
    if (hands_on(lone))
        return TOCSIN_GAP_HANDED_ON;
    if (is_fused(lone))
        return TOCSIN_GAP_FUSED;
    return is_inserted(lone) ? TOCSIN_GAP_INSERTED : TOCSIN_GAP_ONLY_THERE;
}

bool tocsin_gap_add(const tocsin_comparison *comparison, const tocsin_paired_step *pair,
                    uint32_t at, bool in_a)
{
    tocsin_parting *parting = comparison->parting;
    lone_boundary lone = {.pair = pair,
                          .of = in_a ? pair->a : pair->b,
                          .other = in_a ? pair->b : pair->a,
                          .at = at,
                          .in_a = in_a};
    uint32_t symbol = lone.of->items.items[at].symbol;
    for (size_t g = 0; g < parting->gaps.count; ++g) {
        if (parting->gaps.items[g].symbol == symbol && parting->gaps.items[g].gap.in_a == in_a) {
            ++parting->gaps.items[g].gap.count;
            return true;
        }
    }
    if (parting->gaps.count == TOCSIN_ALIGN_GAPS_MAX)
        return true;
    const tocsin_boundary *boundary = boundary_of(&lone);
    tocsin_gap_found found = {
        .symbol = symbol,
        .gap = {.in_a = in_a,
                .step = comparison->step,
                .count = 1,
                .name = tocsin_intern_string(pair->names, boundary->name),
                .attribute = tocsin_intern_string(pair->names, boundary->attribute),
                .operation = tocsin_intern_string(pair->names, boundary->operation),
                .reason = tocsin_gap_text(reason_of(&lone))}};
    return TOCSIN_VEC_PUSH(&parting->gaps, found);
}
