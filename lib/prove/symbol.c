/* symbol.c - giving a symbol (replica, micro-batch) a value, and sums and maxima over all of them.
 *
 * A sum over s of A<k in [b + w s, b + w s + c)> is decided by w and c alone: w = c: the ranges lie
 * side by side; w = 0: the same range each time, so a factor; w > c: they leave gaps, which is one
 * range of the quotient digit (k / w) and one of the remainder (k mod w), if extent and starts
 * allow the division; w < c: they overlap, which is no range. w < 0 is the same sum from the other
 * end. Cost: linear in the words of the relation.
 */
#include <assert.h>

#include "prove/universe.h"

typedef tocsin_relation_id symbol_operation(tocsin_universe *universe, tocsin_relation_id relation,
                                            int symbol, int64_t amount);

/* The operation on each segment. */
static tocsin_relation_id over_segments(tocsin_universe *universe, const tocsin_relation *relation,
                                        symbol_operation *operation, int symbol, int64_t amount)
{
    tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    tocsin_relation_id *segments = TOCSIN_SCRATCH(universe, tocsin_relation_id, relation->count);
    bool valid = segments != NULL;
    for (uint32_t k = 0; k < relation->count && valid; ++k) {
        segments[k] = operation(universe, relation->segments[k], symbol, amount);
        valid = segments[k] != 0;
    }
    tocsin_relation_id id = 0;
    if (valid)
        id =
            tocsin_relation_of_segments(universe, segments, relation->count, relation->segment_dim);
    tocsin_scratch_reset(universe, mark);
    return id;
}

/* ---- fix ------------------------------------------------------------------------------------- */

static bool fix_start(tocsin_affine *start, int symbol, int64_t value)
{
    int64_t offset;
    if (__builtin_mul_overflow(start->weight[symbol], value, &offset) ||
        __builtin_add_overflow(start->base, offset, &start->base))
        return false;
    start->weight[symbol] = 0;
    return true;
}

static bool fix_term(tocsin_universe *universe, tocsin_term *term, int symbol, int64_t value)
{
    uint32_t digit_count = term->digit_total + term->pinned_count;
    tocsin_digit *digits = TOCSIN_SCRATCH(universe, tocsin_digit, digit_count);
    tocsin_box_entry *box = TOCSIN_SCRATCH(universe, tocsin_box_entry, term->box_count);
    if (!digits || !box)
        return false;
    bool fits = true;
    for (uint32_t i = 0; i < digit_count; ++i) {
        digits[i] = term->digits[i];
        fits = fix_start(&digits[i].start, symbol, value) && fits;
    }
    for (uint32_t i = 0; i < term->box_count; ++i) {
        box[i] = term->box[i];
        fits = fix_start(&box[i].start, symbol, value) && fits;
    }
    term->digits = digits;
    term->box = box;
    return fits || tocsin_universe_refuse_overflow(universe);
}

tocsin_relation_id tocsin_relation_fix(tocsin_universe *universe, tocsin_relation_id id, int symbol,
                                       int64_t value)
{
    assert(symbol >= 0 && symbol < TOCSIN_SYMBOL_COUNT);
    if (universe->status != TOCSIN_OK)
        return 0;
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    if (!(relation->symbols >> symbol & 1))
        return id;
    if (relation->segmented)
        return over_segments(universe, relation, tocsin_relation_fix, symbol, value);
    tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    tocsin_term *terms = TOCSIN_SCRATCH(universe, tocsin_term, relation->count);
    bool valid = terms != NULL;
    for (uint32_t k = 0; k < relation->count && valid; ++k) {
        terms[k] = relation->terms[k];
        valid = fix_term(universe, &terms[k], symbol, value);
    }
    tocsin_relation_id result = 0;
    if (valid)
        result = tocsin_relation_of_terms(universe, terms, relation->count, relation->shape,
                                          relation->ndim);
    tocsin_scratch_reset(universe, mark);
    return result;
}

/* ---- sums and maxima ------------------------------------------------------------------------- */

/* One box entry whose start has the weight w > 0 of the symbol, w > count: the same for all values
 * of the symbol as two digits. false: the extent or the start does not allow it. */
static bool divide_entry(const tocsin_universe *universe, const tocsin_box_entry *entry, int symbol,
                         int64_t size, tocsin_box_entry *quotient, tocsin_box_entry *remainder)
{
    int other = 1 - symbol;
    int64_t weight = entry->start.weight[symbol];
    int64_t other_weight = entry->start.weight[other], base = entry->start.base;
    if (entry->extent % weight != 0 || base < 0)
        return false;
    *quotient = *remainder = *entry;
    remainder->extent = weight;
    remainder->start = tocsin_affine_of(base % weight);
    quotient->extent = entry->extent / weight;
    quotient->start = tocsin_affine_of(base / weight);
    quotient->count = size;
    if (__builtin_mul_overflow(entry->stride, weight, &quotient->stride))
        return false;
    int64_t last = base % weight; /* the greatest start of the remainder */
    if (other_weight % weight == 0) {
        quotient->start.weight[other] = other_weight / weight;
    } else {
        int64_t steps = universe->symbol_size[other] - 1, distance;
        remainder->start.weight[other] = other_weight;
        if (steps < 0 || other_weight < 0 ||
            __builtin_mul_overflow(other_weight, steps, &distance) ||
            __builtin_add_overflow(last, distance, &last))
            return false;
    }
    return last <= weight - entry->count;
}

static bool refuse_ranges(tocsin_universe *universe, const tocsin_box_entry *entry, int64_t weight)
{
    char atom[TOCSIN_NAME_BYTES], axis[TOCSIN_NAME_BYTES];
    return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_SHARD,
                                  "the ranges of %s of %s that are reduced %s: each has length "
                                  "%lld, and they begin %lld apart",
                                  tocsin_axis_name(universe, entry, axis),
                                  tocsin_atom_name(universe, entry->atom, atom),
                                  weight < entry->count ? "overlap" : "leave gaps",
                                  (long long)entry->count, (long long)weight);
}

/* Append to box[*count] what `entry`, which depends on the symbol, is for all its values. */
static bool widen_entry(tocsin_universe *universe, tocsin_box_entry entry, int symbol, int64_t size,
                        tocsin_box_entry *box, uint32_t *count)
{
    int64_t weight = entry.start.weight[symbol], distance;
    if (weight == INT64_MIN || __builtin_mul_overflow(weight, size - 1, &distance))
        return tocsin_universe_refuse_overflow(universe);
    if (weight < 0) {
        if (__builtin_add_overflow(entry.start.base, distance, &entry.start.base))
            return tocsin_universe_refuse_overflow(universe);
        weight = -weight;
        distance = -distance;
        entry.start.weight[symbol] = weight;
    }
    bool idempotent = entry.kind == TOCSIN_BOX_MAX;
    if (weight == entry.count || (idempotent && weight < entry.count)) {
        entry.start.weight[symbol] = 0;
        if (__builtin_add_overflow(entry.count, distance, &entry.count))
            return tocsin_universe_refuse_overflow(universe);
        box[(*count)++] = entry;
        return true;
    }
    tocsin_box_entry parts[2];
    if (weight < entry.count || !divide_entry(universe, &entry, symbol, size, &parts[0], &parts[1]))
        return refuse_ranges(universe, &entry, weight);
    box[(*count)++] = parts[0];
    box[(*count)++] = parts[1];
    return true;
}

static bool map_depends(const tocsin_term *term, int symbol)
{
    for (uint32_t i = 0; i < term->digit_total + term->pinned_count; ++i) {
        if (term->digits[i].start.weight[symbol] != 0)
            return true;
    }
    return false;
}

static const char *const symbol_names[TOCSIN_SYMBOL_COUNT] = {"replicas", "micro-batches"};

static bool refuse_slices(tocsin_universe *universe, const tocsin_term *term, int symbol,
                          tocsin_box_kind kind)
{
    char name[TOCSIN_NAME_BYTES];
    return tocsin_universe_refuse(
        universe, TOCSIN_CAUSE_WRONG_GROUP, "%s different slices of %s over the %s",
        kind == TOCSIN_BOX_SUM ? "sums" : "takes the maximum of",
        tocsin_atom_name(universe, term->atom, name), symbol_names[symbol]);
}

/* The term reduced over all values of the symbol, its box in scratch. */
static bool reduce_term(tocsin_universe *universe, tocsin_term *term, int symbol, int64_t size,
                        tocsin_box_kind kind)
{
    if (map_depends(term, symbol))
        return refuse_slices(universe, term, symbol, kind);
    tocsin_box_entry *box = TOCSIN_SCRATCH(universe, tocsin_box_entry, term->box_count + 1);
    if (!box)
        return false;
    uint32_t count = 0, dependent = 0;
    for (uint32_t i = 0; i < term->box_count; ++i) {
        const tocsin_box_entry *entry = &term->box[i];
        if (entry->start.weight[symbol] == 0) {
            box[count++] = *entry;
            continue;
        }
        if (++dependent > 1)
            return refuse_slices(universe, term, symbol, kind);
        if (entry->kind != kind)
            return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_COLLECTIVE,
                                          kind == TOCSIN_BOX_SUM
                                              ? "sums partial maxima over the %s"
                                              : "takes the maximum of partial sums over the %s",
                                          symbol_names[symbol]);
        if (!widen_entry(universe, *entry, symbol, size, box, &count))
            return false;
    }
    if (dependent == 0 && kind == TOCSIN_BOX_SUM)
        term->factor = tocsin_factor_multiply(universe, term->factor,
                                              tocsin_factor_rational(universe, size, 1));
    term->box = box;
    term->box_count = count;
    return true;
}

static tocsin_relation_id reduce(tocsin_universe *universe, const tocsin_relation *relation,
                                 int symbol, int64_t size, tocsin_box_kind kind)
{
    tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    tocsin_term *terms = TOCSIN_SCRATCH(universe, tocsin_term, relation->count);
    bool valid = terms != NULL;
    for (uint32_t k = 0; k < relation->count && valid; ++k) {
        terms[k] = relation->terms[k];
        valid = reduce_term(universe, &terms[k], symbol, size, kind);
    }
    tocsin_relation_id id = 0;
    if (valid)
        id = tocsin_relation_of_terms(universe, terms, relation->count, relation->shape,
                                      relation->ndim);
    tocsin_scratch_reset(universe, mark);
    return id;
}

tocsin_relation_id tocsin_relation_sum_over(tocsin_universe *universe, tocsin_relation_id id,
                                            int symbol, int64_t size)
{
    assert(symbol >= 0 && symbol < TOCSIN_SYMBOL_COUNT);
    assert(size >= 1);
    if (universe->status != TOCSIN_OK)
        return 0;
    if (size == 1)
        return tocsin_relation_fix(universe, id, symbol, 0);
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    if (relation->segmented)
        return over_segments(universe, relation, tocsin_relation_sum_over, symbol, size);
    return reduce(universe, relation, symbol, size, TOCSIN_BOX_SUM);
}

tocsin_relation_id tocsin_relation_max_over(tocsin_universe *universe, tocsin_relation_id id,
                                            int symbol, int64_t size)
{
    assert(symbol >= 0 && symbol < TOCSIN_SYMBOL_COUNT);
    assert(size >= 1);
    if (universe->status != TOCSIN_OK)
        return 0;
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    if (!(relation->symbols >> symbol & 1))
        return id;
    if (size == 1)
        return tocsin_relation_fix(universe, id, symbol, 0);
    if (relation->segmented)
        return over_segments(universe, relation, tocsin_relation_max_over, symbol, size);
    if (relation->count != 1 || tocsin_factor_is_negative(universe, relation->terms[0].factor))
        return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_COLLECTIVE,
                                      "takes the maximum of sums or of negated values over the %s",
                                      symbol_names[symbol]);
    return reduce(universe, relation, symbol, size, TOCSIN_BOX_MAX);
}
