/* box_digits.c - ranges of a contraction axis as digits of a box, and back.
 *
 * On an axis of period T (its extent, or less when all ranges repeat), the box entries of the axis
 * are digits and stand for ranges [low, high) of [0, T): the product of the counts of all digits
 * but the innermost. In the other direction a set of disjoint ranges is written in one way:
 *   1. T becomes the least period of the set;
 *   2. from left to right, ranges of equal length at equal distances d become one item, a range of
 *      the digit (k / d) and one of (k mod d), where d divides T and no range crosses a multiple of
 *      d; items of equal form at equal distances likewise, until nothing changes.
 * So a set has one form however it came about: [0,4) + [8,12) of 16 is [0,4) of 8.
 * All ranges of a set move alike with the symbols. A weight that d divides moves the quotient; one
 * that it does not divide moves the remainder, if that stays below d for all values of the symbol.
 * Cost: linear in the ranges for each prime factor of their number, and for each level.
 */
#include <assert.h>

#include "prove/box_merge.h"

enum { LEVELS_MAX = 8, RANGES_MAX = 1 << 16 };

bool tocsin_ranges_reserve(tocsin_universe *universe, struct tocsin_ranges *ranges, uint64_t more)
{
    if (more <= ranges->capacity - ranges->count)
        return true;
    if (more > RANGES_MAX) {
        tocsin_universe_fail(universe, TOCSIN_E_LIMIT);
        return false;
    }
    uint32_t capacity = ranges->capacity * 2 + (uint32_t)more;
    struct tocsin_range *items = TOCSIN_SCRATCH(universe, struct tocsin_range, capacity);
    if (!items)
        return false;
    if (ranges->count)
        memcpy(items, ranges->items, ranges->count * sizeof *items);
    ranges->items = items;
    ranges->capacity = capacity;
    return true;
}

/* ---- digits to ranges ------------------------------------------------------------------------ */

/* What repeats the entry within the one above it (or within the period): distance, times. */
struct repetition {
    int64_t distance, times;
};

/* The repetitions of all entries, from the outermost; false: the entries do not divide the period
 * evenly. */
static bool find_repetitions(const tocsin_box_entry *entries, uint32_t count, int64_t period,
                             struct repetition *repetitions, uint64_t *total)
{
    uint32_t used = 0;
    int64_t above = period;
    *total = 1;
    for (uint32_t i = count; i-- > 0;) {
        int64_t own;
        if (__builtin_mul_overflow(entries[i].stride, entries[i].extent, &own) || own > above ||
            above % own != 0)
            return false;
        repetitions[used++] = (struct repetition){own, above / own};
        repetitions[used++] = (struct repetition){entries[i].stride, i ? entries[i].count : 1};
        above = entries[i].stride;
        for (uint32_t k = used - 2; k < used; ++k) {
            if (__builtin_mul_overflow(*total, (uint64_t)repetitions[k].times, total))
                *total = UINT64_MAX;
        }
    }
    return true;
}

bool tocsin_ranges_expand(tocsin_universe *universe, const tocsin_box_entry *entries,
                          uint32_t count, int64_t period, struct tocsin_ranges *ranges)
{
    struct repetition repetitions[2 * TOCSIN_BOX_ENTRIES_MAX];
    uint64_t total;
    if (!find_repetitions(entries, count, period, repetitions, &total))
        return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_SHARD,
                                      "ranges of one contraction axis do not fit one another");
    if (!tocsin_ranges_reserve(universe, ranges, total))
        return false;
    tocsin_affine start = tocsin_affine_of(0);
    int64_t length = period;
    for (uint32_t i = 0; i < count; ++i) {
        tocsin_affine offset;
        if (!tocsin_affine_scale(&entries[i].start, entries[i].stride, &offset) ||
            !tocsin_affine_add(&start, &offset, &start))
            return tocsin_universe_refuse_overflow(universe);
    }
    if (count > 0 && __builtin_mul_overflow(entries[0].count, entries[0].stride, &length))
        return tocsin_universe_refuse_overflow(universe);
    for (uint64_t k = 0; k < total; ++k) {
        struct tocsin_range range = {.start = start};
        uint64_t rest = k;
        bool fits = true;
        for (uint32_t i = 0; i < 2 * count; ++i) {
            int64_t step = (int64_t)(rest % (uint64_t)repetitions[i].times), distance;
            rest /= (uint64_t)repetitions[i].times;
            fits = fits && !__builtin_mul_overflow(step, repetitions[i].distance, &distance) &&
                   !__builtin_add_overflow(range.start.base, distance, &range.start.base);
        }
        if (!fits || __builtin_add_overflow(range.start.base, length, &range.end))
            return tocsin_universe_refuse_overflow(universe);
        ranges->items[ranges->count++] = range;
    }
    return true;
}

/* ---- ranges to digits ------------------------------------------------------------------------ */

/* A range, repeated `times[i]` at distance `distance[i]`, innermost level first. */
struct item {
    int64_t base, length;
    uint32_t levels;
    int64_t distance[LEVELS_MAX], times[LEVELS_MAX];
};

/* Is the set the same when shifted by period / parts? */
static bool repeats(const struct tocsin_range *ranges, uint32_t count, int64_t period,
                    uint32_t parts, bool cyclic)
{
    if (count % parts != 0 || period % parts != 0)
        return false;
    uint32_t each = count / parts;
    int64_t shift = period / parts;
    if (!cyclic && (ranges[0].start.base < 0 || ranges[each - 1].end > shift))
        return false;
    for (uint32_t i = each; i < count; ++i) {
        if (ranges[i].start.base != ranges[i - each].start.base + shift ||
            ranges[i].end != ranges[i - each].end + shift)
            return false;
    }
    return true;
}

/* The least period; *count becomes the number of ranges in it. A range that ends at the period goes
 * on in one that begins at 0: they count as one, which begins below 0, while periods are tried. */
static int64_t least_period(struct tocsin_range *ranges, uint32_t *count, int64_t period)
{
    struct tocsin_range *last = &ranges[*count - 1];
    bool cyclic = *count > 1 && tocsin_affine_is_constant(&ranges[0].start) &&
                  ranges[0].start.base == 0 && last->end == period;
    if (cyclic) {
        ranges[0].start.base = last->start.base - period;
        --*count;
    }
    uint32_t rest = *count;
    for (uint32_t prime = 2; prime <= rest; ++prime) {
        if (prime * prime > rest)
            prime = rest; /* what is left is a prime */
        while (rest % prime == 0) {
            rest /= prime;
            if (repeats(ranges, *count, period, prime, cyclic)) {
                *count /= prime;
                period /= prime;
            }
        }
    }
    if (cyclic) {
        last = &ranges[(*count)++];
        *last = (struct tocsin_range){tocsin_affine_of(period + ranges[0].start.base), period};
        ranges[0].start.base = 0;
    }
    return period;
}

static bool same_form(const struct item *a, const struct item *b)
{
    if (a->length != b->length || a->levels != b->levels)
        return false;
    for (uint32_t i = 0; i < a->levels; ++i) {
        if (a->distance[i] != b->distance[i] || a->times[i] != b->times[i])
            return false;
    }
    return true;
}

/* The weights' part within the remainder modulo `distance`: 0 where the distance divides them.
 * false: it may leave the remainder. */
static bool divide_weights(const tocsin_universe *universe, const tocsin_affine *start,
                           int64_t distance, int64_t room)
{
    for (int symbol = 0; symbol < TOCSIN_SYMBOL_COUNT; ++symbol) {
        int64_t weight = start->weight[symbol], steps = universe->symbol_size[symbol] - 1, reach;
        if (weight % distance == 0)
            continue;
        if (weight < 0 || steps < 0 || __builtin_mul_overflow(weight, steps, &reach) ||
            reach > room)
            return false;
        room -= reach;
    }
    return room >= 0;
}

/* Can `times` items like this one, `distance` apart, be two digits? */
static bool divides(const tocsin_universe *universe, const struct item *item,
                    const tocsin_affine *weights, int64_t distance, int64_t period)
{
    if (item->base < 0 || distance <= 0 || period % distance != 0 || item->levels == LEVELS_MAX)
        return false;
    int64_t reach = item->length; /* from the item's base to its end */
    for (uint32_t i = 0; i < item->levels; ++i)
        reach += item->distance[i] * (item->times[i] - 1);
    if (item->levels > 0) {
        int64_t last = item->distance[item->levels - 1];
        if (distance % last != 0)
            return false;
        /* The digit below is whole numbers of `last`. */
        int64_t first = item->base % distance / last;
        if (first + item->times[item->levels - 1] > distance / last)
            return false;
    }
    int64_t room = distance - item->base % distance - reach;
    return room >= 0 && divide_weights(universe, weights, distance, room);
}

/* One level: items of equal form at equal distances become one. */
static uint32_t group(const tocsin_universe *universe, struct item *items, uint32_t count,
                      const tocsin_affine *weights, int64_t period)
{
    uint32_t kept = 0;
    for (uint32_t first = 0, end; first < count; first = end) {
        end = first + 1;
        int64_t distance = end < count ? items[end].base - items[first].base : 0;
        while (end < count && same_form(&items[first], &items[end]) &&
               items[end].base - items[end - 1].base == distance)
            ++end;
        struct item item = items[first];
        if (end - first > 1 && divides(universe, &item, weights, distance, period)) {
            item.distance[item.levels] = distance;
            item.times[item.levels++] = end - first;
        } else {
            end = first + 1;
        }
        items[kept++] = item;
    }
    return kept;
}

/* The weights of a start, as far as they belong to the digit of multiples of `distance` below
 * `above` (0: nothing above). */
static void write_weights(const tocsin_affine *weights, const struct item *item, uint32_t level,
                          tocsin_affine *start)
{
    for (int symbol = 0; symbol < TOCSIN_SYMBOL_COUNT; ++symbol) {
        /* The highest level whose distance divides the weight takes it. */
        uint32_t owner = item->levels;
        while (owner > 0 && weights->weight[symbol] % item->distance[owner - 1] != 0)
            --owner;
        int64_t unit = owner > 0 ? item->distance[owner - 1] : 1;
        start->weight[symbol] = owner == level ? weights->weight[symbol] / unit : 0;
    }
}

static tocsin_box_entry *write_item(tocsin_universe *universe, const struct item *item,
                                    const tocsin_affine *weights, int64_t period,
                                    const tocsin_box_entry *model, uint32_t *count)
{
    tocsin_box_entry *entries = TOCSIN_SCRATCH(universe, tocsin_box_entry, item->levels + 1);
    *count = 0;
    for (uint32_t level = 0; entries && level <= item->levels; ++level) {
        int64_t unit = level ? item->distance[level - 1] : 1;
        int64_t above = level < item->levels ? item->distance[level] : period;
        tocsin_box_entry entry = *model;
        entry.stride = unit;
        entry.extent = above / unit;
        entry.count = level ? item->times[level - 1] : item->length;
        int64_t base = level < item->levels ? item->base % above : item->base;
        entry.start = tocsin_affine_of(base / unit);
        write_weights(weights, item, level, &entry.start);
        if (!tocsin_range_is_whole(&entry.start, entry.count, entry.extent))
            entries[(*count)++] = entry;
    }
    return entries;
}

bool tocsin_ranges_compress(tocsin_universe *universe, struct tocsin_range *ranges, uint32_t count,
                            int64_t period, const tocsin_box_entry *model,
                            struct tocsin_axis_box **boxes, uint32_t *box_count)
{
    assert(count > 0);
    const tocsin_affine weights = ranges[0].start;
    period = least_period(ranges, &count, period);
    struct item *items = TOCSIN_SCRATCH(universe, struct item, count);
    if (!items)
        return false;
    for (uint32_t i = 0; i < count; ++i)
        items[i] = (struct item){.base = ranges[i].start.base,
                                 .length = ranges[i].end - ranges[i].start.base};
    for (uint32_t before = count + 1; count < before && count > 1;) {
        before = count;
        count = group(universe, items, count, &weights, period);
    }
    *boxes = TOCSIN_SCRATCH(universe, struct tocsin_axis_box, count);
    *box_count = count;
    for (uint32_t i = 0; i < count; ++i) {
        struct tocsin_axis_box *box = *boxes ? &(*boxes)[i] : NULL;
        if (!box)
            return false;
        box->entries = write_item(universe, &items[i], &weights, period, model, &box->count);
        if (!box->entries)
            return false;
    }
    return true;
}
