/* normal_form.c - normal form of terms, and interning of sums of terms.
 *
 * A term is normal when its digits, pinned digits and box are:
 *   digits   no extent 1, no broadcast of count 1; adjacent ones of a dim that continue one another
 *            are one. A digit of count 1 stays in its dim: it says which slice this is.
 *   pinned   ascending by (axis, stride), continuing ones merged.
 *   box      ascending by (atom, axis, kind, stride), no whole range, continuing ones merged, and
 *            each entry's stride as low as the entry below allows, since what lies between is
 * whole: (k / s) mod E in [a, b)  is  (k / p) mod (E g) in [a g, b g)  for s = p g. A sum is normal
 * when its terms are ascending by (atom, map) and the terms of one (atom, map) are what box_merge.c
 * makes of them.
 *
 * Encoding: word 0 is ndim | segmented << 8 | segment_dim << 16 | count << 32; the shape; then per
 * term: atom | factor << 32, digit_total | pinned_count << 16 | box_count << 32, digit counts (two
 * words), digits, pinned digits, box, each seven words. The views point into the encoding.
 * Cost: linear in the words, sorting aside.
 */
#include <assert.h>
#include <stdlib.h>

#include "prove/box_merge.h"
#include "prove/universe.h"

enum { COUNT_BYTES = 16, TERM_HEAD_WORDS = 2 + COUNT_BYTES / 8, ITEM_WORDS = 7 };
static_assert(sizeof(tocsin_digit) == ITEM_WORDS * 8, "a digit has no padding");
static_assert(sizeof(tocsin_box_entry) == ITEM_WORDS * 8, "a box entry has no padding");
static_assert((int)TOCSIN_PLAN_NDIM_MAX <= (int)COUNT_BYTES, "digit counts fit their words");

/* ---- digits ---------------------------------------------------------------------------------- */

static tocsin_digit broadcast_of(int64_t count)
{
    return (tocsin_digit){
        .axis = TOCSIN_DIGIT_BROADCAST, .stride = 1, .extent = count, .count = count};
}

/* Is the digit a range within its extent? Symbolic starts are taken on trust. */
static bool check_range(tocsin_universe *universe, const tocsin_affine *start, int64_t count,
                        int64_t extent)
{
    if (count >= 1 && count <= extent &&
        (!tocsin_affine_is_constant(start) || (start->base >= 0 && start->base <= extent - count)))
        return true;
    tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_SHARD,
                           "the range that begins at %lld with length %lld is not within [0,%lld)",
                           (long long)start->base, (long long)count, (long long)extent);
    return false;
}

/* outer and inner, which stand side by side, as one digit in *outer. *joined: they continue one
 * another. false: overflow. */
static bool join_digits(tocsin_digit *outer, const tocsin_digit *inner, bool *joined)
{
    *joined = false;
    if (outer->axis != inner->axis)
        return true;
    if (outer->axis == TOCSIN_DIGIT_BROADCAST) {
        int64_t count;
        if (__builtin_mul_overflow(outer->count, inner->count, &count))
            return false;
        *outer = broadcast_of(count);
        *joined = true;
        return true;
    }
    int64_t stride;
    bool whole = tocsin_range_is_whole(&inner->start, inner->count, inner->extent);
    if (__builtin_mul_overflow(inner->stride, inner->extent, &stride) || stride != outer->stride ||
        !(whole || outer->count == 1))
        return true;
    tocsin_digit result = *outer;
    result.stride = inner->stride;
    if (__builtin_mul_overflow(outer->extent, inner->extent, &result.extent) ||
        !tocsin_affine_scale(&outer->start, inner->extent, &result.start) ||
        !tocsin_affine_add(&result.start, &inner->start, &result.start) ||
        __builtin_mul_overflow(outer->count, inner->count, &result.count))
        return false;
    *outer = result;
    *joined = true;
    return true;
}

/* Append `digit` to the `*count` normal digits of a dim. */
static bool push_digit(tocsin_universe *universe, tocsin_digit *digits, uint32_t *count,
                       const tocsin_digit *digit)
{
    tocsin_digit top = *digit;
    top.pad_ = 0;
    if (top.axis == TOCSIN_DIGIT_BROADCAST)
        top = broadcast_of(top.count);
    assert(top.stride >= 1);
    if (!check_range(universe, &top.start, top.count, top.extent))
        return false;
    if (top.extent == 1)
        return true;
    while (*count > 0) {
        bool joined;
        if (!join_digits(&digits[*count - 1], &top, &joined))
            return tocsin_universe_refuse_overflow(universe);
        if (!joined)
            break;
        top = digits[--*count];
    }
    digits[(*count)++] = top;
    return true;
}

static bool normalise_dims(tocsin_universe *universe, const tocsin_term *term, const int64_t *shape,
                           uint8_t ndim, uint8_t *counts, tocsin_digit *digits, uint32_t *total)
{
    const tocsin_digit *from = term->digits;
    *total = 0;
    for (uint32_t dim = 0; dim < ndim; ++dim) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < term->digit_count[dim]; ++i) {
            if (!push_digit(universe, digits + *total, &count, from++))
                return false;
        }
        int64_t size = 1;
        for (uint32_t i = 0; i < count; ++i) {
            if (__builtin_mul_overflow(size, digits[*total + i].count, &size))
                return tocsin_universe_refuse_overflow(universe);
        }
        assert(size == shape[dim] && "the digits of a dim cover it");
        if (count > TOCSIN_DIGITS_MAX) {
            tocsin_universe_fail(universe, TOCSIN_E_LIMIT);
            return false;
        }
        counts[dim] = (uint8_t)count;
        *total += count;
    }
    (void)shape;
    assert(from == term->digits + term->digit_total);
    return true;
}

/* Pinned digits, ascending; `pinned` has room for all. Few, so insertion sort. */
static bool normalise_pinned(tocsin_universe *universe, const tocsin_digit *from, uint32_t count,
                             tocsin_digit *pinned, uint32_t *result)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; ++i) {
        tocsin_digit digit = from[i];
        digit.pad_ = 0;
        assert(digit.count == 1);
        if (!check_range(universe, &digit.start, 1, digit.extent))
            return false;
        if (digit.extent == 1 || digit.axis == TOCSIN_DIGIT_BROADCAST)
            continue;
        uint32_t at = kept++;
        for (; at > 0 &&
               (pinned[at - 1].axis > digit.axis ||
                (pinned[at - 1].axis == digit.axis && pinned[at - 1].stride > digit.stride));
             --at)
            pinned[at] = pinned[at - 1];
        pinned[at] = digit;
    }
    uint32_t merged = 0;
    for (uint32_t i = 0; i < kept; ++i) {
        tocsin_digit outer = pinned[i];
        bool joined = false;
        if (merged > 0 && !join_digits(&outer, &pinned[merged - 1], &joined))
            return tocsin_universe_refuse_overflow(universe);
        pinned[merged - joined] = outer;
        merged += !joined;
    }
    *result = merged;
    return true;
}

/* ---- boxes ----------------------------------------------------------------------------------- */

static int compare_entries(const tocsin_box_entry *a, const tocsin_box_entry *b)
{
    if (a->atom != b->atom)
        return a->atom < b->atom ? -1 : 1;
    if (a->axis != b->axis)
        return a->axis < b->axis ? -1 : 1;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    return a->stride < b->stride ? -1 : a->stride > b->stride;
}

/* Put `entry` above the `*count` normal entries; `below`: the last one is of the same axis. */
static bool push_entry(tocsin_universe *universe, tocsin_box_entry *box, uint32_t *count,
                       tocsin_box_entry entry, bool below)
{
    tocsin_box_entry *last = below ? &box[*count - 1] : NULL;
    int64_t floor = 1;
    if (last && __builtin_mul_overflow(last->stride, last->extent, &floor))
        return tocsin_universe_refuse_overflow(universe);
    if (entry.stride < floor) {
        tocsin_universe_refuse(universe, TOCSIN_CAUSE_DOUBLE_REDUCTION,
                               "one contraction axis is restricted to a range twice");
        return false;
    }
    if (entry.stride % floor == 0) {
        int64_t gap = entry.stride / floor;
        entry.stride = floor;
        if (__builtin_mul_overflow(entry.extent, gap, &entry.extent) ||
            __builtin_mul_overflow(entry.count, gap, &entry.count) ||
            !tocsin_affine_scale(&entry.start, gap, &entry.start))
            return tocsin_universe_refuse_overflow(universe);
    }
    if (!last || entry.stride != floor || entry.count != 1) {
        box[(*count)++] = entry;
        return true;
    }
    tocsin_affine start;
    if (!tocsin_affine_scale(&entry.start, last->extent, &start) ||
        !tocsin_affine_add(&start, &last->start, &start) ||
        __builtin_mul_overflow(entry.extent, last->extent, &last->extent))
        return tocsin_universe_refuse_overflow(universe);
    last->start = start;
    return true;
}

bool tocsin_box_normalise(tocsin_universe *universe, const tocsin_box_entry *from, uint32_t count,
                          tocsin_box_entry *box, uint32_t *result)
{
    tocsin_box_entry sorted[TOCSIN_BOX_ENTRIES_MAX];
    uint32_t kept = 0;
    assert(count <= TOCSIN_BOX_ENTRIES_MAX);
    for (uint32_t i = 0; i < count; ++i) {
        assert(from[i].stride >= 1);
        if (!check_range(universe, &from[i].start, from[i].count, from[i].extent))
            return false;
        if (tocsin_range_is_whole(&from[i].start, from[i].count, from[i].extent))
            continue;
        uint32_t at = kept++;
        for (; at > 0 && compare_entries(&sorted[at - 1], &from[i]) > 0; --at)
            sorted[at] = sorted[at - 1];
        sorted[at] = from[i];
    }
    *result = 0;
    for (uint32_t i = 0; i < kept; ++i) {
        bool below = i > 0 && sorted[i].atom == sorted[i - 1].atom &&
                     sorted[i].axis == sorted[i - 1].axis && sorted[i].kind == sorted[i - 1].kind;
        if (!push_entry(universe, box, result, sorted[i], below))
            return false;
    }
    return true;
}

/* ---- terms ----------------------------------------------------------------------------------- */

static bool normalise_term(tocsin_universe *universe, const tocsin_term *term, const int64_t *shape,
                           uint8_t ndim, tocsin_term *normal)
{
    assert(term->atom > 0 && term->atom <= universe->atoms.count);
    if (term->pinned_count > TOCSIN_PINNED_MAX || term->box_count > TOCSIN_BOX_ENTRIES_MAX) {
        tocsin_universe_fail(universe, TOCSIN_E_LIMIT);
        return false;
    }
    uint8_t *counts = TOCSIN_SCRATCH(universe, uint8_t, COUNT_BYTES);
    tocsin_digit *digits =
        TOCSIN_SCRATCH(universe, tocsin_digit, term->digit_total + term->pinned_count);
    tocsin_box_entry *box = TOCSIN_SCRATCH(universe, tocsin_box_entry, term->box_count);
    if (!counts || !digits || !box)
        return false;
    *normal = (tocsin_term){.atom = term->atom,
                            .factor = term->factor,
                            .digit_count = counts,
                            .digits = digits,
                            .box = box};
    return normalise_dims(universe, term, shape, ndim, counts, digits, &normal->digit_total) &&
           normalise_pinned(universe, term->digits + term->digit_total, term->pinned_count,
                            digits + normal->digit_total, &normal->pinned_count) &&
           tocsin_box_normalise(universe, term->box, term->box_count, box, &normal->box_count);
}

bool tocsin_term_same_map(const tocsin_term *a, const tocsin_term *b, uint8_t ndim)
{
    return tocsin_term_compare(a, b, ndim) == 0;
}

int tocsin_term_compare(const tocsin_term *a, const tocsin_term *b, uint8_t ndim)
{
    if (a->atom != b->atom)
        return a->atom < b->atom ? -1 : 1;
    if (a->digit_total != b->digit_total)
        return a->digit_total < b->digit_total ? -1 : 1;
    if (a->pinned_count != b->pinned_count)
        return a->pinned_count < b->pinned_count ? -1 : 1;
    int order = memcmp(a->digit_count, b->digit_count, ndim);
    if (order != 0)
        return order;
    return memcmp(a->digits, b->digits, (a->digit_total + a->pinned_count) * sizeof *a->digits);
}

bool tocsin_term_same_box(const tocsin_term *a, const tocsin_term *b)
{
    return a->box_count == b->box_count &&
           memcmp(a->box, b->box, a->box_count * sizeof *a->box) == 0;
}

/* ---- encoding and interning ------------------------------------------------------------------ */

static size_t term_words(const tocsin_term *term)
{
    return TERM_HEAD_WORDS +
           (size_t)(term->digit_total + term->pinned_count + term->box_count) * ITEM_WORDS;
}

static uint64_t *encode_term(const tocsin_term *term, uint8_t ndim, uint64_t *word)
{
    *word++ = term->atom | (uint64_t)term->factor << 32;
    *word++ =
        term->digit_total | (uint64_t)term->pinned_count << 16 | (uint64_t)term->box_count << 32;
    memset(word, 0, COUNT_BYTES);
    if (ndim)
        memcpy(word, term->digit_count, ndim);
    word += COUNT_BYTES / 8;
    size_t digits = (size_t)(term->digit_total + term->pinned_count) * ITEM_WORDS;
    if (digits)
        memcpy(word, term->digits, digits * sizeof *word);
    word += digits;
    size_t box = (size_t)term->box_count * ITEM_WORDS;
    if (box)
        memcpy(word, term->box, box * sizeof *word);
    return word + box;
}

static uint64_t head_word(uint8_t ndim, bool segmented, uint32_t segment_dim, uint32_t count)
{
    return ndim | (uint64_t)segmented << 8 | (uint64_t)segment_dim << 16 | (uint64_t)count << 32;
}

/* Intern terms that are normal together. */
static tocsin_relation_id intern_terms(tocsin_universe *universe, const tocsin_term *terms,
                                       uint32_t count, const int64_t *shape, uint8_t ndim)
{
    size_t total = 1 + (size_t)ndim;
    for (uint32_t k = 0; k < count; ++k)
        total += term_words(&terms[k]);
    uint64_t *words = TOCSIN_SCRATCH(universe, uint64_t, total);
    if (!words)
        return 0;
    uint64_t *word = words;
    *word++ = head_word(ndim, false, 0, count);
    if (ndim)
        memcpy(word, shape, ndim * sizeof *word);
    word += ndim;
    for (uint32_t k = 0; k < count; ++k)
        word = encode_term(&terms[k], ndim, word);
    assert(word == words + total);
    return tocsin_relation_intern(universe, words, (uint32_t)total);
}

tocsin_relation_id tocsin_relation_intern_segments(tocsin_universe *universe,
                                                   const tocsin_relation_id *segments,
                                                   uint32_t count, uint32_t dim,
                                                   const int64_t *shape, uint8_t ndim)
{
    assert(count >= 2 && count <= TOCSIN_SEGMENTS_MAX);
    size_t total = 1 + (size_t)ndim + ((size_t)count + 1) / 2;
    uint64_t *words = TOCSIN_SCRATCH(universe, uint64_t, total);
    if (!words)
        return 0;
    words[0] = head_word(ndim, true, dim, count);
    memcpy(words + 1, shape, ndim * sizeof *words);
    words[total - 1] = 0;
    memcpy(words + 1 + ndim, segments, count * sizeof *segments);
    return tocsin_relation_intern(universe, words, (uint32_t)total);
}

static int compare_for_qsort(const void *a, const void *b, void *ndim)
{
    return tocsin_term_compare(a, b, *(const uint8_t *)ndim);
}

/* Order of equal ones does not matter: box_merge.c makes one form of them. */
static void sort_terms(tocsin_term *terms, uint32_t count, uint8_t ndim)
{
    bool sorted = true;
    for (uint32_t i = 1; i < count && sorted; ++i)
        sorted = tocsin_term_compare(&terms[i - 1], &terms[i], ndim) <= 0;
    if (!sorted)
        qsort_r(terms, count, sizeof *terms, compare_for_qsort, &ndim);
}

/* Sum of normal terms; `terms` is in scratch and may be changed. */
static tocsin_relation_id sum(tocsin_universe *universe, tocsin_term *terms, uint32_t count,
                              const int64_t *shape, uint8_t ndim)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; ++i) {
        if (terms[i].factor != TOCSIN_FACTOR_ZERO)
            terms[kept++] = terms[i];
    }
    if (kept > 1) {
        sort_terms(terms, kept, ndim);
        if (!tocsin_boxes_merge(universe, &terms, &kept, ndim))
            return 0;
    }
    return intern_terms(universe, terms, kept, shape, ndim);
}

/* Is the number of terms within limits, and the shape not empty? An empty tensor is zero. */
static bool admit(tocsin_universe *universe, uint32_t *count, const int64_t *shape, uint8_t ndim)
{
    assert(ndim <= TOCSIN_PLAN_NDIM_MAX);
    if (universe->status != TOCSIN_OK)
        return false;
    for (uint32_t dim = 0; dim < ndim; ++dim) {
        assert(shape[dim] >= 0);
        if (shape[dim] == 0)
            *count = 0;
    }
    if (*count > TOCSIN_TERMS_MAX) {
        tocsin_universe_fail(universe, TOCSIN_E_LIMIT);
        return false;
    }
    return true;
}

tocsin_relation_id tocsin_relation_of_terms(tocsin_universe *universe, const tocsin_term *terms,
                                            uint32_t count, const int64_t *shape, uint8_t ndim)
{
    if (!admit(universe, &count, shape, ndim))
        return 0;
    tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    tocsin_term *normal = TOCSIN_SCRATCH(universe, tocsin_term, count);
    bool valid = normal != NULL;
    for (uint32_t k = 0; k < count && valid; ++k)
        valid = normalise_term(universe, &terms[k], shape, ndim, &normal[k]);
    tocsin_relation_id id = valid ? sum(universe, normal, count, shape, ndim) : 0;
    tocsin_scratch_reset(universe, mark);
    return id;
}

tocsin_relation_id tocsin_relation_of_term(tocsin_universe *universe, const tocsin_term *term,
                                           const int64_t *shape, uint8_t ndim)
{
    return tocsin_relation_of_terms(universe, term, 1, shape, ndim);
}

tocsin_relation_id tocsin_relation_of_normal_terms(tocsin_universe *universe,
                                                   const tocsin_term *terms, uint32_t count,
                                                   const int64_t *shape, uint8_t ndim)
{
    if (!admit(universe, &count, shape, ndim))
        return 0;
    tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    tocsin_term *copy = TOCSIN_SCRATCH(universe, tocsin_term, count);
    if (copy && count)
        memcpy(copy, terms, count * sizeof *copy);
    tocsin_relation_id id = copy ? sum(universe, copy, count, shape, ndim) : 0;
    tocsin_scratch_reset(universe, mark);
    return id;
}
