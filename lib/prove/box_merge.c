/* box_merge.c - one form for all sums of partial sums of one atom and map.
 *
 * A box with ranges on the contraction axes a1, a2, ... and a factor is a function on the grid of
 * those axes: the factor within the ranges, 0 outside (no range: all of the axis). A sum of boxes
 * is a sum of such functions, and is written in the one way that this recursion gives: along the
 * first axis, the maximal intervals on which the function of the remaining axes is the same one,
 * each with the form of that function. So adjacent ranges become one, ranges that are all of an
 * axis vanish, and what is counted twice stands out with factor 2, in whatever order the sum was
 * built. Maxima are joined likewise, without factors.
 *
 * Starts that depend on symbols in different ways cannot be compared; such ranges are kept apart
 * (as unlike axes would be), in the order of their weights.
 * Cost: a sort per axis, and the elementary intervals times the boxes that cover each: for disjoint
 * boxes on one axis O(n log n). The work on many axes is limited (WORK_MAX).
 */
#include "prove/box_merge.h"

#include <assert.h>
#include <stdlib.h>

enum { KEYS_MAX = 64, WORK_MAX = 1 << 20, ROUNDS_MAX = 64 };

/* A contraction axis, or the part of one that some digit covers. */
struct key {
    tocsin_atom_id atom;
    uint32_t axis;
    int64_t stride, extent;
};

/* A box on the axes that are still to be looked at. */
struct piece {
    const tocsin_box_entry *entries; /* ascending by key */
    uint32_t count;
    tocsin_factor_id factor;
};

struct pieces {
    struct piece *items;
    uint32_t count, capacity;
};

struct grid {
    tocsin_universe *universe;
    struct key keys[KEYS_MAX];
    uint32_t key_count;
    tocsin_box_kind kind;
    uint32_t work;
};

/* A box's range on the axis in hand. */
struct span {
    tocsin_affine start;
    int64_t end; /* base of the start plus the count */
    struct piece rest;
};

/* Intervals of one axis with equal functions of the remaining axes, not written yet. */
struct run {
    tocsin_affine start;
    int64_t end;
    struct pieces rest;
};

static bool append(tocsin_universe *universe, struct pieces *list, struct piece piece)
{
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity ? list->capacity * 2 : 4;
        struct piece *items = TOCSIN_SCRATCH(universe, struct piece, capacity);
        if (!items)
            return false;
        if (list->count)
            memcpy(items, list->items, list->count * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = piece;
    return true;
}

static bool same_entries(const struct piece *a, const struct piece *b)
{
    return a->count == b->count &&
           (a->count == 0 || memcmp(a->entries, b->entries, a->count * sizeof *a->entries) == 0);
}

static bool same_pieces(const struct pieces *a, const struct pieces *b)
{
    if (a->count != b->count)
        return false;
    for (uint32_t i = 0; i < a->count; ++i) {
        if (a->items[i].factor != b->items[i].factor || !same_entries(&a->items[i], &b->items[i]))
            return false;
    }
    return true;
}

static struct key key_of(const tocsin_box_entry *entry)
{
    return (struct key){entry->atom, entry->axis, entry->stride, entry->extent};
}

static int compare_keys(const void *left, const void *right)
{
    const struct key *a = left, *b = right;
    if (a->atom != b->atom)
        return a->atom < b->atom ? -1 : 1;
    if (a->axis != b->axis)
        return a->axis < b->axis ? -1 : 1;
    if (a->stride != b->stride)
        return a->stride < b->stride ? -1 : 1;
    return a->extent < b->extent ? -1 : a->extent > b->extent;
}

static int compare_spans(const void *left, const void *right)
{
    const struct span *a = left, *b = right;
    for (int symbol = 0; symbol < TOCSIN_SYMBOL_COUNT; ++symbol) {
        if (a->start.weight[symbol] != b->start.weight[symbol])
            return a->start.weight[symbol] < b->start.weight[symbol] ? -1 : 1;
    }
    return a->start.base < b->start.base ? -1 : a->start.base > b->start.base;
}

/* The boxes' ranges along `key`, sorted; NULL: refused or failed. */
static struct span *spans_of(struct grid *grid, const struct piece *boxes, uint32_t count,
                             const struct key *key)
{
    struct span *spans = TOCSIN_SCRATCH(grid->universe, struct span, count);
    for (uint32_t i = 0; spans && i < count; ++i) {
        struct piece rest = boxes[i];
        spans[i] = (struct span){.end = key->extent};
        if (rest.count > 0) {
            struct key first = key_of(rest.entries);
            if (compare_keys(&first, key) == 0) {
                spans[i].start = rest.entries->start;
                if (__builtin_add_overflow(rest.entries->start.base, rest.entries->count,
                                           &spans[i].end)) {
                    tocsin_universe_refuse_overflow(grid->universe);
                    return NULL;
                }
                ++rest.entries;
                --rest.count;
            }
        }
        spans[i].rest = rest;
    }
    if (spans)
        qsort(spans, count, sizeof *spans, compare_spans);
    return spans;
}

/* Write a run: its range, where it is not all of the axis, before each of its pieces. */
static bool flush(struct grid *grid, const struct key *key, struct run *run, struct pieces *out)
{
    int64_t count = run->end - run->start.base;
    bool whole = tocsin_range_is_whole(&run->start, count, key->extent);
    for (uint32_t i = 0; i < run->rest.count; ++i) {
        struct piece piece = run->rest.items[i];
        if (!whole) {
            tocsin_box_entry *entries =
                TOCSIN_SCRATCH(grid->universe, tocsin_box_entry, piece.count + 1);
            if (!entries)
                return false;
            entries[0] = (tocsin_box_entry){.atom = key->atom,
                                            .axis = (uint16_t)key->axis,
                                            .kind = (uint16_t)grid->kind,
                                            .stride = key->stride,
                                            .extent = key->extent,
                                            .start = run->start,
                                            .count = count};
            if (piece.count)
                memcpy(entries + 1, piece.entries, piece.count * sizeof *entries);
            piece.entries = entries;
            ++piece.count;
        }
        if (!append(grid->universe, out, piece))
            return false;
    }
    run->rest.count = 0;
    return true;
}

static bool decompose(struct grid *grid, const struct piece *boxes, uint32_t count, uint32_t key,
                      struct pieces *out);

/* The spans have equal weights. Go through the elementary intervals from left to right with the
 * boxes that cover each. */
static bool sweep(struct grid *grid, const struct span *spans, uint32_t count, uint32_t key,
                  struct pieces *out)
{
    struct piece *active = TOCSIN_SCRATCH(grid->universe, struct piece, count);
    int64_t *ends = TOCSIN_SCRATCH(grid->universe, int64_t, count);
    if (!active || !ends)
        return false;
    struct run run = {0};
    uint32_t next = 0, covering = 0;
    int64_t low = 0;
    while (covering > 0 || next < count) {
        if (covering == 0)
            low = spans[next].start.base;
        for (; next < count && spans[next].start.base == low; ++next) {
            active[covering] = spans[next].rest;
            ends[covering++] = spans[next].end;
        }
        int64_t high = next < count ? spans[next].start.base : INT64_MAX;
        for (uint32_t i = 0; i < covering; ++i)
            high = ends[i] < high ? ends[i] : high;
        struct pieces rest = {0};
        if (!decompose(grid, active, covering, key + 1, &rest))
            return false;
        if (run.rest.count > 0 && run.end == low && same_pieces(&run.rest, &rest)) {
            run.end = high;
        } else {
            if (!flush(grid, &grid->keys[key], &run, out))
                return false;
            run = (struct run){.start = spans[0].start, .end = high, .rest = rest};
            run.start.base = low;
        }
        uint32_t kept = 0;
        for (uint32_t i = 0; i < covering; ++i) {
            active[kept] = active[i];
            ends[kept] = ends[i];
            kept += ends[i] > high;
        }
        covering = kept;
        low = high;
    }
    return flush(grid, &grid->keys[key], &run, out);
}

/* All axes are looked at: the boxes are numbers. */
static bool decompose_point(struct grid *grid, const struct piece *boxes, uint32_t count,
                            struct pieces *out)
{
    tocsin_factor_id total = boxes[0].factor;
    for (uint32_t i = 1; i < count && grid->kind == TOCSIN_BOX_SUM; ++i) {
        bool zero;
        if (!tocsin_factor_add(grid->universe, total, boxes[i].factor, &total, &zero))
            return false;
    }
    if (total == TOCSIN_FACTOR_ZERO)
        return true;
    return append(grid->universe, out, (struct piece){.factor = total});
}

static bool decompose(struct grid *grid, const struct piece *boxes, uint32_t count, uint32_t key,
                      struct pieces *out)
{
    assert(count > 0);
    if (count == 1)
        return append(grid->universe, out, boxes[0]);
    grid->work += count;
    if (grid->work > WORK_MAX) {
        tocsin_universe_fail(grid->universe, TOCSIN_E_LIMIT);
        return false;
    }
    if (key == grid->key_count)
        return decompose_point(grid, boxes, count, out);
    struct span *spans = spans_of(grid, boxes, count, &grid->keys[key]);
    if (!spans)
        return false;
    for (uint32_t first = 0, end = 0; first < count; first = end) {
        while (end < count && tocsin_affine_same_weights(&spans[end].start, &spans[first].start))
            ++end;
        if (!sweep(grid, spans + first, end - first, key, out))
            return false;
    }
    return true;
}

/* The axes on which any of the boxes has a range. */
static bool find_keys(struct grid *grid, const struct piece *boxes, uint32_t count)
{
    grid->key_count = 0;
    for (uint32_t i = 0; i < count; ++i) {
        for (uint32_t e = 0; e < boxes[i].count; ++e) {
            struct key key = key_of(&boxes[i].entries[e]);
            uint32_t at = 0;
            while (at < grid->key_count && compare_keys(&grid->keys[at], &key) != 0)
                ++at;
            if (at < grid->key_count)
                continue;
            if (at == KEYS_MAX) {
                tocsin_universe_fail(grid->universe, TOCSIN_E_LIMIT);
                return false;
            }
            grid->keys[grid->key_count++] = key;
        }
    }
    qsort(grid->keys, grid->key_count, sizeof *grid->keys, compare_keys);
    return true;
}

/* ---- terms ---------------------------------------------------------------------------------- */

/* One term of a group, its box divided by kind. */
struct member {
    struct piece sum, max;
};

static bool divide(tocsin_universe *universe, const tocsin_term *term, struct member *member)
{
    tocsin_box_entry *entries = TOCSIN_SCRATCH(universe, tocsin_box_entry, term->box_count);
    if (!entries)
        return false;
    uint32_t sums = 0, maxima = term->box_count;
    for (uint32_t i = 0; i < term->box_count; ++i) {
        if (term->box[i].kind == TOCSIN_BOX_SUM)
            entries[sums++] = term->box[i];
    }
    for (uint32_t i = term->box_count; i-- > 0;) {
        if (term->box[i].kind == TOCSIN_BOX_MAX)
            entries[--maxima] = term->box[i];
    }
    assert(sums == maxima);
    member->sum = (struct piece){entries, sums, term->factor};
    member->max = (struct piece){entries + sums, term->box_count - sums, term->factor};
    return true;
}

static bool has_entry(const tocsin_box_entry *box, uint32_t count, const tocsin_box_entry *entry)
{
    for (uint32_t i = 0; i < count; ++i) {
        if (memcmp(&box[i], entry, sizeof *entry) == 0)
            return true;
    }
    return false;
}

/* The term of `model` with the box of both pieces. *again: its normal form is yet another one. */
static bool compose(tocsin_universe *universe, const tocsin_term *model, const struct piece *sum,
                    const struct piece *max, tocsin_term *term, bool *again)
{
    uint32_t count = sum->count + max->count;
    if (count > TOCSIN_BOX_ENTRIES_MAX) {
        tocsin_universe_fail(universe, TOCSIN_E_LIMIT);
        return false;
    }
    tocsin_box_entry *entries = TOCSIN_SCRATCH(universe, tocsin_box_entry, count);
    tocsin_box_entry *box = TOCSIN_SCRATCH(universe, tocsin_box_entry, count);
    if (!entries || !box)
        return false;
    if (sum->count)
        memcpy(entries, sum->entries, sum->count * sizeof *entries);
    if (max->count)
        memcpy(entries + sum->count, max->entries, max->count * sizeof *entries);
    *term = *model;
    term->factor = sum->factor;
    term->box = box;
    if (!tocsin_box_normalise(universe, entries, count, box, &term->box_count))
        return false;
    for (uint32_t i = 0; i < count && !*again; ++i)
        *again = !has_entry(box, term->box_count, &entries[i]);
    return true;
}

static bool refuse_maxima(tocsin_universe *universe, tocsin_atom_id atom)
{
    char name[TOCSIN_NAME_BYTES];
    return tocsin_universe_refuse(
        universe, TOCSIN_CAUSE_WRONG_COLLECTIVE,
        "adds partial maxima of %s; the maximum of the whole is the maximum of the parts",
        tocsin_atom_name(universe, atom, name));
}

struct term_list {
    tocsin_term *items;
    uint32_t count, capacity;
};

static bool append_term(tocsin_universe *universe, struct term_list *list, const tocsin_term *term)
{
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity ? list->capacity * 2 : 8;
        tocsin_term *items = TOCSIN_SCRATCH(universe, tocsin_term, capacity);
        if (!items)
            return false;
        if (list->count)
            memcpy(items, list->items, list->count * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = *term;
    return true;
}

/* Members whose factors have equal opaque parts. */
static bool merge_alike(tocsin_universe *universe, const tocsin_term *model,
                        const struct piece *boxes, uint32_t count, const struct piece *max,
                        struct term_list *out, bool *again)
{
    struct grid grid = {.universe = universe, .kind = TOCSIN_BOX_SUM};
    struct pieces merged = {0};
    if (!find_keys(&grid, boxes, count) || !decompose(&grid, boxes, count, 0, &merged))
        return false;
    for (uint32_t i = 0; i < merged.count; ++i) {
        tocsin_term term;
        if (!compose(universe, model, &merged.items[i], max, &term, again) ||
            !append_term(universe, out, &term))
            return false;
    }
    return true;
}

/* Terms of one atom and map. */
static bool merge_group(tocsin_universe *universe, const tocsin_term *terms, uint32_t count,
                        struct term_list *out, bool *again)
{
    if (count > TOCSIN_BOXES_MAX) {
        tocsin_universe_fail(universe, TOCSIN_E_LIMIT);
        return false;
    }
    struct member *members = TOCSIN_SCRATCH(universe, struct member, count);
    struct piece *alike = TOCSIN_SCRATCH(universe, struct piece, count);
    if (!members || !alike)
        return false;
    for (uint32_t i = 0; i < count; ++i) {
        if (!divide(universe, &terms[i], &members[i]))
            return false;
        if (!same_entries(&members[0].max, &members[i].max))
            return refuse_maxima(universe, terms[0].atom);
    }
    /* Classes of equal opaque parts are few: pick the least one again and again. */
    for (uint32_t done = 0; done < count;) {
        uint32_t least = 0;
        for (uint32_t i = 1; i < count - done; ++i) {
            if (tocsin_factor_compare_opaque(universe, members[i].sum.factor,
                                             members[least].sum.factor) < 0)
                least = i;
        }
        tocsin_factor_id factor = members[least].sum.factor;
        uint32_t taken = 0, kept = 0;
        for (uint32_t i = 0; i < count - done; ++i) {
            if (tocsin_factor_compare_opaque(universe, members[i].sum.factor, factor) == 0)
                alike[taken++] = members[i].sum;
            else
                members[kept++] = members[i];
        }
        if (!merge_alike(universe, &terms[0], alike, taken, &members[0].max, out, again))
            return false;
        done += taken;
    }
    return true;
}

/* One round over all groups; *again: some box changed so that there may be more to do. */
static bool merge_round(tocsin_universe *universe, const tocsin_term *terms, uint32_t count,
                        uint8_t ndim, struct term_list *out, bool *again)
{
    *again = false;
    for (uint32_t first = 0, end; first < count; first = end) {
        end = first + 1;
        while (end < count && tocsin_term_compare(&terms[first], &terms[end], ndim) == 0)
            ++end;
        if (end == first + 1) {
            if (!append_term(universe, out, &terms[first]))
                return false;
        } else if (!merge_group(universe, terms + first, end - first, out, again)) {
            return false;
        }
    }
    return true;
}

bool tocsin_boxes_merge(tocsin_universe *universe, tocsin_term **terms, uint32_t *count,
                        uint8_t ndim)
{
    bool again = false;
    for (uint32_t i = 1; i < *count && !again; ++i)
        again = tocsin_term_compare(&(*terms)[i - 1], &(*terms)[i], ndim) == 0;
    for (int round = 0; again; ++round) {
        if (round == ROUNDS_MAX) {
            tocsin_universe_fail(universe, TOCSIN_E_LIMIT);
            return false;
        }
        struct term_list out = {0};
        if (!merge_round(universe, *terms, *count, ndim, &out, &again))
            return false;
        *terms = out.items;
        *count = out.count;
    }
    return true;
}

bool tocsin_boxes_unite(tocsin_universe *universe, const tocsin_term *terms, uint32_t count,
                        tocsin_term *united)
{
    assert(count > 0);
    struct piece *boxes = TOCSIN_SCRATCH(universe, struct piece, count);
    struct member first;
    if (!boxes || !divide(universe, &terms[0], &first))
        return false;
    for (uint32_t i = 0; i < count; ++i) {
        struct member member;
        if (!divide(universe, &terms[i], &member))
            return false;
        assert(terms[i].factor == terms[0].factor && same_entries(&member.sum, &first.sum));
        boxes[i] = member.max;
    }
    struct grid grid = {.universe = universe, .kind = TOCSIN_BOX_MAX};
    struct pieces merged = {0};
    if (!find_keys(&grid, boxes, count) || !decompose(&grid, boxes, count, 0, &merged))
        return false;
    char name[TOCSIN_NAME_BYTES];
    if (merged.count != 1)
        return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_COLLECTIVE,
                                      "the parts of %s whose maximum is taken leave gaps",
                                      tocsin_atom_name(universe, terms[0].atom, name));
    bool again = false;
    return compose(universe, &terms[0], &first.sum, &merged.items[0], united, &again);
}
