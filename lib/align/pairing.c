/* lib/align/pairing.c - the cheapest pairing of two sequences, with a proof that it is.
 *
 * Equal items at both ends are paired first: with these costs some optimum pairs them (moving the
 * first partner to the front never adds a gap). The rest is solved in a band of diagonals. A path
 * that leaves the band by one more diagonal on either side has at least `reach + 1` items alone on
 * both sides, beside those by which the sequences differ in length, and pays at least DIFFERENT, or
 * a gap, for each item whose value the other sequence lacks. When what was found is not dearer
 * than that, it is an optimum; else the band is doubled.
 *
 * Anchors are for stretches that are too large for that: items that occur exactly once in both
 * (first by symbol and value, then by symbol), in the longest ascending chain.
 *
 * Cost: linear for equal sequences; else items times band. Memory: one byte a cell.
 */
#include "align/pairing.h"

#include <assert.h>
#include <stdlib.h>

#define CELLS_DEFAULT (UINT64_C(1) << 26)
#define REACH_FIRST   16u
#define DEPTH_MAX     32 /* stretches within stretches */

typedef struct pairing_search {
    tocsin_align_sequence a, b;
    uint64_t cells_max;
    tocsin_pairing *pairing;
    tocsin_error *error;
} pairing_search;

/* ---- bound ----------------------------------------------------------------------------------- */

static uint64_t value_key(const tocsin_align_item *item)
{
    /* Items that are not known are equal if they are the same thing. */
    return item->value ? item->value : tocsin_mix64(item->symbol + UINT64_C(0x9e3779b97f4a7c15));
}

/* How many items of `a` cannot be paired at a cost below DIFFERENT. */
static tocsin_status count_missing(tocsin_align_sequence a, tocsin_align_sequence b,
                                   uint64_t *missing, tocsin_error *error)
{
    tocsin_map left = {0};
    tocsin_status status = TOCSIN_OK;
    for (uint32_t j = 0; j < b.count; ++j) {
        uint64_t *count = tocsin_map_at(&left, value_key(&b.items[j]));
        if (!count) {
            status = tocsin_error_memory(error);
            break;
        }
        ++*count;
    }
    *missing = 0;
    for (uint32_t i = 0; status == TOCSIN_OK && i < a.count; ++i) {
        uint64_t *count = tocsin_map_find(&left, value_key(&a.items[i]));
        if (count && *count > 0)
            --*count;
        else
            ++*missing;
    }
    tocsin_map_free(&left);
    return status;
}

static uint64_t maximum(uint64_t x, uint64_t y)
{
    return x > y ? x : y;
}

/* No path that leaves the band costs less. `a_missing`: items of a without an equal in b. */
static uint64_t cost_outside(tocsin_align_sequence a, tocsin_align_sequence b, uint32_t reach,
                             uint64_t a_missing, uint64_t b_missing)
{
    uint64_t more_a = a.count > b.count ? a.count - b.count : 0;
    uint64_t more_b = b.count > a.count ? b.count - a.count : 0;
    uint64_t alone_a = more_a + reach + 1, alone_b = more_b + reach + 1;
    if (alone_a > a.count || alone_b > b.count)
        return UINT64_MAX; /* there is no such path */
    uint64_t opens = 2 * (TOCSIN_ALIGN_GAP_OPEN - TOCSIN_ALIGN_GAP_EXTEND);
    /* More alone than that is dearer: an item alone costs more than one that is paired. */
    uint64_t paired_a = maximum(alone_a, a_missing) - alone_a;
    uint64_t paired_b = maximum(alone_b, b_missing) - alone_b;
    return opens + TOCSIN_ALIGN_GAP_EXTEND * (alone_a + alone_b) +
           TOCSIN_ALIGN_DIFFERENT * maximum(paired_a, paired_b);
}

/* ---- anchors --------------------------------------------------------------------------------- */

typedef struct item_anchor {
    uint32_t a, b;
    uint32_t before; /* in the longest chain that ends here; NONE */
} item_anchor;
typedef TOCSIN_VEC(item_anchor) anchor_list;

static uint64_t anchor_key(const tocsin_align_item *item, bool by_value)
{
    return tocsin_mix64(item->symbol + 1) ^ (by_value ? tocsin_mix64(~item->value) : 0);
}

#define TWICE UINT64_MAX

/* key -> index + 1 of the one item that has it, or TWICE. */
static bool index_items(tocsin_align_sequence sequence, bool by_value, tocsin_map *places)
{
    for (uint32_t i = 0; i < sequence.count; ++i) {
        uint64_t *place = tocsin_map_at(places, anchor_key(&sequence.items[i], by_value));
        if (!place)
            return false;
        *place = *place == 0 ? (uint64_t)i + 1 : TWICE;
    }
    return true;
}

static bool collect_anchors(tocsin_align_sequence a, tocsin_align_sequence b, bool by_value,
                            anchor_list *anchors)
{
    tocsin_map in_a = {0}, in_b = {0};
    bool ok = index_items(a, by_value, &in_a) && index_items(b, by_value, &in_b);
    for (uint32_t i = 0; ok && i < a.count; ++i) {
        uint64_t key = anchor_key(&a.items[i], by_value);
        const uint64_t *place_a = tocsin_map_find(&in_a, key);
        const uint64_t *place_b = tocsin_map_find(&in_b, key);
        if (place_b && *place_a != TWICE && *place_b != TWICE)
            ok = TOCSIN_VEC_PUSH(anchors,
                                 (item_anchor){i, (uint32_t)(*place_b - 1), TOCSIN_ALIGN_NONE});
    }
    tocsin_map_free(&in_a);
    tocsin_map_free(&in_b);
    return ok;
}

/* Keep the longest chain that ascends in b too (patience sorting); they ascend in a already. */
static bool keep_chain(anchor_list *anchors)
{
    TOCSIN_VEC(uint32_t) tails = {0}; /* tails[k]: the anchor that ends a chain of k + 1 lowest */
    for (uint32_t i = 0; i < anchors->count; ++i) {
        size_t low = 0, high = tails.count;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (anchors->items[tails.items[middle]].b < anchors->items[i].b)
                low = middle + 1;
            else
                high = middle;
        }
        anchors->items[i].before = low > 0 ? tails.items[low - 1] : TOCSIN_ALIGN_NONE;
        if (low < tails.count) {
            tails.items[low] = i;
        } else if (!TOCSIN_VEC_PUSH(&tails, i)) {
            TOCSIN_VEC_FREE(&tails);
            return false;
        }
    }
    size_t length = tails.count;
    uint32_t at = length > 0 ? tails.items[length - 1] : TOCSIN_ALIGN_NONE;
    for (size_t k = length; k-- > 0;) { /* reuse tails for the chain, from its end */
        tails.items[k] = at;
        at = anchors->items[at].before;
    }
    for (size_t k = 0; k < length; ++k)
        anchors->items[k] = anchors->items[tails.items[k]];
    anchors->count = length;
    TOCSIN_VEC_FREE(&tails);
    return true;
}

/* ---- stretches ------------------------------------------------------------------------------- */

typedef struct item_stretch { /* a[a_begin, a_end) against b[b_begin, b_end) */
    uint32_t a_begin, a_end, b_begin, b_end;
} item_stretch;

static tocsin_align_sequence part_of(tocsin_align_sequence whole, uint32_t begin, uint32_t end)
{
    return (tocsin_align_sequence){whole.items + begin, end - begin};
}

static void pair_equal_ends(const pairing_search *search, item_stretch *stretch)
{
    const tocsin_align_item *a = search->a.items, *b = search->b.items;
    uint32_t *partner = search->pairing->partner;
    while (stretch->a_begin < stretch->a_end && stretch->b_begin < stretch->b_end &&
           tocsin_align_pair_cost(&a[stretch->a_begin], &b[stretch->b_begin]) == 0)
        partner[stretch->a_begin++] = stretch->b_begin++;
    while (stretch->a_begin < stretch->a_end && stretch->b_begin < stretch->b_end &&
           tocsin_align_pair_cost(&a[stretch->a_end - 1], &b[stretch->b_end - 1]) == 0)
        partner[--stretch->a_end] = --stretch->b_end;
}

/* Solve it in bands; *solved is false where that takes too many cells. */
static tocsin_status solve_in_bands(const pairing_search *search, const item_stretch *stretch,
                                    bool *solved)
{
    tocsin_align_sequence a = part_of(search->a, stretch->a_begin, stretch->a_end);
    tocsin_align_sequence b = part_of(search->b, stretch->b_begin, stretch->b_end);
    uint32_t *partner = search->pairing->partner + stretch->a_begin;
    uint64_t a_missing, b_missing;
    *solved = false;
    TOCSIN_TRY(count_missing(a, b, &a_missing, search->error));
    TOCSIN_TRY(count_missing(b, a, &b_missing, search->error));
    for (uint64_t reach = REACH_FIRST; !*solved && reach <= UINT32_MAX; reach *= 2) {
        if (tocsin_band_cells(a, b, (uint32_t)reach) > search->cells_max)
            return TOCSIN_OK;
        uint64_t cost;
        TOCSIN_TRY(tocsin_band_solve(a, b, (uint32_t)reach, partner, &cost, search->error));
        uint64_t outside = cost_outside(a, b, (uint32_t)reach, a_missing, b_missing);
        if (cost > outside)
            continue;
        *solved = true;
        search->pairing->cost += cost;
        if (reach > search->pairing->band)
            search->pairing->band = (uint32_t)reach;
    }
    for (uint32_t i = 0; *solved && i < a.count; ++i)
        partner[i] += partner[i] == TOCSIN_ALIGN_NONE ? 0 : stretch->b_begin;
    return TOCSIN_OK;
}

static tocsin_status solve_stretch(const pairing_search *search, item_stretch stretch,
                                   unsigned depth);

/* Solve what lies between anchors. */
static tocsin_status solve_between(const pairing_search *search, const item_stretch *whole,
                                   const anchor_list *anchors, unsigned depth)
{
    item_stretch part = {.a_begin = whole->a_begin, .b_begin = whole->b_begin};
    for (size_t k = 0; k <= anchors->count; ++k) {
        bool last = k == anchors->count;
        part.a_end = last ? whole->a_end : whole->a_begin + anchors->items[k].a;
        part.b_end = last ? whole->b_end : whole->b_begin + anchors->items[k].b;
        TOCSIN_TRY(solve_stretch(search, part, depth + 1));
        if (last)
            break;
        search->pairing->partner[part.a_end] = part.b_end;
        search->pairing->cost +=
            tocsin_align_pair_cost(&search->a.items[part.a_end], &search->b.items[part.b_end]);
        part.a_begin = part.a_end + 1;
        part.b_begin = part.b_end + 1;
    }
    return TOCSIN_OK;
}

static tocsin_status solve_by_anchors(const pairing_search *search, const item_stretch *stretch,
                                      unsigned depth)
{
    tocsin_align_sequence a = part_of(search->a, stretch->a_begin, stretch->a_end);
    tocsin_align_sequence b = part_of(search->b, stretch->b_begin, stretch->b_end);
    anchor_list anchors = {0};
    bool ok = collect_anchors(a, b, true, &anchors);
    if (ok && anchors.count == 0)
        ok = collect_anchors(a, b, false, &anchors);
    ok = ok && keep_chain(&anchors);
    tocsin_status status = ok ? TOCSIN_OK : tocsin_error_memory(search->error);
    if (ok && (anchors.count == 0 || depth == DEPTH_MAX))
        status =
            tocsin_error_set(search->error, TOCSIN_E_LIMIT,
                             "%u boundaries against %u, too unlike to be paired", a.count, b.count);
    search->pairing->optimal = false;
    if (status == TOCSIN_OK)
        status = solve_between(search, stretch, &anchors, depth);
    TOCSIN_VEC_FREE(&anchors);
    return status;
}

static uint64_t cost_of_gap(uint32_t count)
{
    return count == 0 ? 0 : TOCSIN_ALIGN_GAP_OPEN + (uint64_t)TOCSIN_ALIGN_GAP_EXTEND * (count - 1);
}

static tocsin_status solve_stretch(const pairing_search *search, item_stretch stretch,
                                   unsigned depth)
{
    pair_equal_ends(search, &stretch);
    uint32_t a_count = stretch.a_end - stretch.a_begin;
    uint32_t b_count = stretch.b_end - stretch.b_begin;
    if (a_count == 0 || b_count == 0) {
        for (uint32_t i = stretch.a_begin; i < stretch.a_end; ++i)
            search->pairing->partner[i] = TOCSIN_ALIGN_NONE;
        search->pairing->cost += cost_of_gap(a_count) + cost_of_gap(b_count);
        return TOCSIN_OK;
    }
    bool solved;
    TOCSIN_TRY(solve_in_bands(search, &stretch, &solved));
    return solved ? TOCSIN_OK : solve_by_anchors(search, &stretch, depth);
}

tocsin_status tocsin_pairing_find(tocsin_align_sequence a, tocsin_align_sequence b,
                                  uint64_t cells_max, tocsin_pairing *pairing, tocsin_error *error)
{
    *pairing = (tocsin_pairing){.optimal = true};
    pairing->partner = tocsin_zalloc(a.count, sizeof *pairing->partner);
    if (!pairing->partner)
        return tocsin_error_memory(error);
    pairing_search search = {.a = a,
                             .b = b,
                             .cells_max = cells_max ? cells_max : CELLS_DEFAULT,
                             .pairing = pairing,
                             .error = error};
    item_stretch whole = {.a_end = a.count, .b_end = b.count};
    tocsin_status status = solve_stretch(&search, whole, 0);
    if (status != TOCSIN_OK) {
        tocsin_free(pairing->partner);
        pairing->partner = NULL;
    }
    return status;
}
