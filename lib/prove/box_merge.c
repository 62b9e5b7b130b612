/* box_merge.c - one form for all sums of partial sums of one atom and map.
 *
 * A box with ranges on the contraction axes a1, a2, ... and a factor is a function on the grid of
 * those axes: the factor within the ranges, 0 outside (no range: all of the axis). A sum of boxes
 * is a sum of such functions, and is written in the one way that this recursion gives: along the
 * first axis, for each function of the remaining axes that occurs, the set of maximal intervals on
 * which it does, in the one form that box_digits.c gives such a set. So adjacent ranges become one,
 * what is all of an axis vanishes, and what is counted twice stands out with factor 2, in whatever
 * order the sum was built. Maxima are joined likewise, without factors.
 *
 * Starts that depend on symbols in different ways cannot be compared; such ranges are kept apart
 * (as unlike axes would be), in the order of their weights.
 * Cost: a sort per axis, and the elementary intervals times the boxes that cover each: for disjoint
 * boxes on one axis O(n log n). The work on many axes is limited (WORK_MAX).
 */
#include "prove/box_merge.h"

#include <assert.h>
#include <stdlib.h>

enum { KEYS_MAX = 64, WORK_MAX = 1 << 20 };

/* A contraction axis and the least period that is one of all its ranges. */
struct key {
    tocsin_atom_id atom;
    uint32_t axis;
    int64_t period;
};

/* A box on the axes that are still to be looked at. */
struct piece {
    const tocsin_box_entry *entries; /* ascending by axis and stride */
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

/* One range of a box on the axis in hand. */
struct span {
    struct tocsin_range range;
    struct piece rest;
};

/* A function of the remaining axes and the intervals on which it is the sum. */
struct level {
    struct pieces rest;
    struct tocsin_ranges ranges;
};

struct levels {
    struct level *items;
    uint32_t count, capacity;
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

static bool spend(struct grid *grid, uint32_t work)
{
    grid->work += work;
    if (grid->work <= WORK_MAX)
        return true;
    tocsin_universe_fail(grid->universe, TOCSIN_E_LIMIT);
    return false;
}

/* How many of the entries, from the first, are of this axis? */
static uint32_t entries_of(const tocsin_box_entry *entries, uint32_t count, tocsin_atom_id atom,
                           uint32_t axis)
{
    uint32_t own = 0;
    while (own < count && entries[own].atom == atom && entries[own].axis == axis)
        ++own;
    return own;
}

static int compare_keys(const void *left, const void *right)
{
    const struct key *a = left, *b = right;
    if (a->atom != b->atom)
        return a->atom < b->atom ? -1 : 1;
    return a->axis < b->axis ? -1 : a->axis > b->axis;
}

static int compare_spans(const void *left, const void *right)
{
    const tocsin_affine *a = &((const struct span *)left)->range.start;
    const tocsin_affine *b = &((const struct span *)right)->range.start;
    for (int symbol = 0; symbol < TOCSIN_SYMBOL_COUNT; ++symbol) {
        if (a->weight[symbol] != b->weight[symbol])
            return a->weight[symbol] < b->weight[symbol] ? -1 : 1;
    }
    return a->base < b->base ? -1 : a->base > b->base;
}

/* The boxes' ranges along `key`, sorted; NULL: refused or failed. */
static struct span *spans_of(struct grid *grid, const struct piece *boxes, uint32_t count,
                             const struct key *key, uint32_t *span_count)
{
    struct tocsin_ranges ranges = {0};
    uint32_t *ends = TOCSIN_SCRATCH(grid->universe, uint32_t, count); /* into ranges */
    for (uint32_t i = 0; ends && i < count; ++i) {
        uint32_t own = entries_of(boxes[i].entries, boxes[i].count, key->atom, key->axis);
        if (!tocsin_ranges_expand(grid->universe, boxes[i].entries, own, key->period, &ranges))
            return NULL;
        ends[i] = ranges.count;
    }
    struct span *spans = TOCSIN_SCRATCH(grid->universe, struct span, ranges.count);
    if (!ends || !spans)
        return NULL;
    for (uint32_t i = 0, k = 0; i < count; ++i) {
        struct piece rest = boxes[i];
        uint32_t own = entries_of(rest.entries, rest.count, key->atom, key->axis);
        rest.entries += own;
        rest.count -= own;
        for (; k < ends[i]; ++k)
            spans[k] = (struct span){ranges.items[k], rest};
    }
    qsort(spans, ranges.count, sizeof *spans, compare_spans);
    *span_count = ranges.count;
    return spans;
}

/* The function `rest` on [start, end): a new interval, or the last one goes on. */
static bool add_interval(struct grid *grid, struct levels *levels, const struct pieces *rest,
                         const struct tocsin_range *range)
{
    uint32_t at = 0;
    while (at < levels->count && !same_pieces(&levels->items[at].rest, rest))
        ++at;
    if (!spend(grid, at + 1))
        return false;
    if (at == levels->capacity) {
        uint32_t capacity = levels->capacity ? levels->capacity * 2 : 4;
        struct level *items = TOCSIN_SCRATCH(grid->universe, struct level, capacity);
        if (!items)
            return false;
        if (levels->count)
            memcpy(items, levels->items, levels->count * sizeof *items);
        levels->items = items;
        levels->capacity = capacity;
    }
    if (at == levels->count)
        levels->items[levels->count++] = (struct level){.rest = *rest};
    struct tocsin_ranges *ranges = &levels->items[at].ranges;
    if (ranges->count > 0 && ranges->items[ranges->count - 1].end == range->start.base) {
        ranges->items[ranges->count - 1].end = range->end;
        return true;
    }
    if (!tocsin_ranges_reserve(grid->universe, ranges, 1))
        return false;
    ranges->items[ranges->count++] = *range;
    return true;
}

/* Write the levels: each box of the intervals before each piece of the function. */
static bool write_levels(struct grid *grid, const struct key *key, const struct levels *levels,
                         struct pieces *out)
{
    const tocsin_box_entry model = {
        .atom = key->atom, .axis = (uint16_t)key->axis, .kind = (uint16_t)grid->kind};
    for (uint32_t i = 0; i < levels->count; ++i) {
        const struct level *level = &levels->items[i];
        struct tocsin_axis_box *boxes;
        uint32_t box_count;
        if (!tocsin_ranges_compress(grid->universe, level->ranges.items, level->ranges.count,
                                    key->period, &model, &boxes, &box_count))
            return false;
        for (uint32_t k = 0; k < box_count * level->rest.count; ++k) {
            const struct tocsin_axis_box *box = &boxes[k / level->rest.count];
            struct piece piece = level->rest.items[k % level->rest.count];
            tocsin_box_entry *entries =
                TOCSIN_SCRATCH(grid->universe, tocsin_box_entry, box->count + piece.count);
            if (!entries)
                return false;
            if (box->count)
                memcpy(entries, box->entries, box->count * sizeof *entries);
            if (piece.count)
                memcpy(entries + box->count, piece.entries, piece.count * sizeof *entries);
            piece.entries = entries;
            piece.count += box->count;
            if (!append(grid->universe, out, piece))
                return false;
        }
    }
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
    struct levels levels = {0};
    struct tocsin_range range = spans[0].range;
    uint32_t next = 0, covering = 0;
    while (covering > 0 || next < count) {
        if (covering == 0)
            range.start.base = spans[next].range.start.base;
        for (; next < count && spans[next].range.start.base == range.start.base; ++next) {
            active[covering] = spans[next].rest;
            ends[covering++] = spans[next].range.end;
        }
        range.end = next < count ? spans[next].range.start.base : INT64_MAX;
        for (uint32_t i = 0; i < covering; ++i)
            range.end = ends[i] < range.end ? ends[i] : range.end;
        struct pieces rest = {0};
        if (!decompose(grid, active, covering, key + 1, &rest) ||
            (rest.count > 0 && !add_interval(grid, &levels, &rest, &range)))
            return false;
        uint32_t kept = 0;
        for (uint32_t i = 0; i < covering; ++i) {
            active[kept] = active[i];
            ends[kept] = ends[i];
            kept += ends[i] > range.end;
        }
        covering = kept;
        range.start.base = range.end;
    }
    return write_levels(grid, &grid->keys[key], &levels, out);
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
    if (!spend(grid, count))
        return false;
    if (key == grid->key_count)
        return decompose_point(grid, boxes, count, out);
    uint32_t span_count;
    struct span *spans = spans_of(grid, boxes, count, &grid->keys[key], &span_count);
    if (!spans)
        return false;
    for (uint32_t first = 0, end = 0; first < span_count; first = end) {
        while (end < span_count &&
               tocsin_affine_same_weights(&spans[end].range.start, &spans[first].range.start))
            ++end;
        if (!sweep(grid, spans + first, end - first, key, out))
            return false;
    }
    return true;
}

/* The least number that both divide; they are positive. false: it is out of range. */
static bool least_multiple(int64_t a, int64_t b, int64_t *multiple)
{
    return !__builtin_mul_overflow(a / tocsin_greatest_divisor(a, b), b, multiple);
}

/* An axis on which some box has a range. The boxes of one may repeat after 4, of another after 6:
 * its period is one that all of them divide. */
static bool add_key(struct grid *grid, const tocsin_box_entry *top)
{
    int64_t period;
    if (__builtin_mul_overflow(top->stride, top->extent, &period))
        return tocsin_universe_refuse_overflow(grid->universe);
    uint32_t at = 0;
    while (at < grid->key_count &&
           (grid->keys[at].atom != top->atom || grid->keys[at].axis != top->axis))
        ++at;
    if (at == KEYS_MAX) {
        tocsin_universe_fail(grid->universe, TOCSIN_E_LIMIT);
        return false;
    }
    if (at == grid->key_count)
        grid->keys[grid->key_count++] = (struct key){top->atom, top->axis, period};
    else if (!least_multiple(grid->keys[at].period, period, &grid->keys[at].period))
        return tocsin_universe_refuse_overflow(grid->universe);
    return true;
}

static bool find_keys(struct grid *grid, const struct piece *boxes, uint32_t count)
{
    grid->key_count = 0;
    for (uint32_t i = 0; i < count; ++i) {
        const tocsin_box_entry *entries = boxes[i].entries;
        for (uint32_t first = 0; first < boxes[i].count;) {
            first += entries_of(entries + first, boxes[i].count - first, entries[first].atom,
                                entries[first].axis);
            if (!add_key(grid, &entries[first - 1]))
                return false;
        }
    }
    qsort(grid->keys, grid->key_count, sizeof *grid->keys, compare_keys);
    return true;
}

/* ---- terms ----------------------------------------------------------------------------------- */

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

/* The term of `model` with the box of both pieces. */
static bool compose(tocsin_universe *universe, const tocsin_term *model, const struct piece *sum,
                    const struct piece *max, tocsin_term *term)
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
    assert(term->box_count == count && "the pieces are normal");
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
                        struct term_list *out)
{
    struct grid grid = {.universe = universe, .kind = TOCSIN_BOX_SUM};
    struct pieces merged = {0};
    if (!find_keys(&grid, boxes, count) || !decompose(&grid, boxes, count, 0, &merged))
        return false;
    for (uint32_t i = 0; i < merged.count; ++i) {
        tocsin_term term;
        if (!compose(universe, model, &merged.items[i], max, &term) ||
            !append_term(universe, out, &term))
            return false;
    }
    return true;
}

/* Terms of one atom and map. */
static bool merge_group(tocsin_universe *universe, const tocsin_term *terms, uint32_t count,
                        struct term_list *out)
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
        if (!merge_alike(universe, &terms[0], alike, taken, &members[0].max, out))
            return false;
        done += taken;
    }
    return true;
}

bool tocsin_boxes_merge(tocsin_universe *universe, tocsin_term **terms, uint32_t *count,
                        uint8_t ndim)
{
    bool distinct = true;
    for (uint32_t i = 1; i < *count && distinct; ++i)
        distinct = tocsin_term_compare(&(*terms)[i - 1], &(*terms)[i], ndim) != 0;
    if (distinct)
        return true;
    struct term_list out = {0};
    for (uint32_t first = 0, end; first < *count; first = end) {
        const tocsin_term *group = &(*terms)[first];
        end = first + 1;
        while (end < *count && tocsin_term_compare(group, &(*terms)[end], ndim) == 0)
            ++end;
        if (end == first + 1 ? !append_term(universe, &out, group)
                             : !merge_group(universe, group, end - first, &out))
            return false;
    }
    *terms = out.items;
    *count = out.count;
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
    return compose(universe, &terms[0], &first.sum, &merged.items[0], united);
}
