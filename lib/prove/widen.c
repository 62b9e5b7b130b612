/* widen.c - from the slice that a rank holds to the logical operand it is a slice of.
 *
 * Every digit of the map is replaced by a window: a range of the same digit position that occurs in
 * a logical relation (window.c), or its whole extent. The windows that contain a digit's range for
 * all values of the symbols, smallest first, are its candidates; a *choice* takes one for each
 * digit. Dims that only repeat one element say nothing about the logical size and become size 1.
 *
 * The *profile* of a dim is what is left when the atom is forgotten: which part of the logical dim
 * the local one runs over.
 *
 * Cost: one look-up and a scan of the position's windows per digit, and one interning.
 */
#include "prove/layout.h"

#include <assert.h>

enum { CHOICES_MAX = 64 };

typedef struct bounds {
    int64_t low, end; /* all that the range takes in */
} bounds;

static bool contains(const tocsin_window *window, const bounds *range)
{
    return window->start <= range->low && range->end <= window->start + window->count;
}

/* The candidate number *index of the digit, or the whole extent when there is none so large; then
 * *index is what is left over. */
static tocsin_window candidate(const tocsin_universe *universe, tocsin_atom_id atom,
                               const tocsin_digit *digit, const bounds *range, uint32_t index,
                               uint32_t *candidates)
{
    tocsin_window found = {.start = 0, .count = digit->extent};
    uint32_t window_count, seen = 0;

    if (digit->count == digit->extent) {
        *candidates = 1;
        return found;
    }
    const tocsin_window *windows =
        tocsin_windows_of(universe, atom, digit->axis, digit->stride, digit->extent, &window_count);
    for (uint32_t i = 0; i < window_count; i++) {
        if (!contains(&windows[i], range))
            continue;
        if (seen++ == index)
            found = windows[i];
    }
    *candidates = seen + 1;
    return found;
}

static bool range_of(tocsin_universe *universe, const tocsin_digit *digit,
                     const int64_t size[TOCSIN_SYMBOL_COUNT], bounds *range)
{
    int64_t high;
    if (!tocsin_affine_bounds(&digit->start, size, &range->low, &high) ||
        __builtin_add_overflow(high, digit->count, &range->end))
        return tocsin_universe_refuse_overflow(universe) != 0;
    if (range->low < 0 || range->end > digit->extent)
        return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_SHARD,
                                      "some replica or micro-batch has the range [%lld, %lld), "
                                      "which is not within [0, %lld)",
                                      (long long)range->low, (long long)range->end,
                                      (long long)digit->extent) != 0;
    return true;
}

/* The windows of a choice >= 2: its number is written in mixed radix over the candidates. The first
 * and the last combination are the choices 0 and 1. */
static bool choose(tocsin_universe *universe, const tocsin_term *term, uint32_t choice,
                   const bounds *ranges, tocsin_window *windows)
{
    uint32_t rest = choice < 2 ? 0 : choice - 1;
    bool all_last = true;

    for (uint32_t i = term->digit_total; i-- > 0;) {
        const tocsin_digit *digit = &term->digits[i];
        uint32_t candidates, index = choice == 1 ? UINT32_MAX : 0;
        if (digit->axis == TOCSIN_DIGIT_BROADCAST)
            continue;
        windows[i] = candidate(universe, term->atom, digit, &ranges[i], index, &candidates);
        if (choice < 2)
            continue;
        index = rest % candidates;
        rest /= candidates;
        all_last &= index + 1 == candidates;
        if (index > 0)
            windows[i] = candidate(universe, term->atom, digit, &ranges[i], index, &candidates);
    }
    return choice < 2 || (rest == 0 && !all_last);
}

/* The widened digits of one dim; *size is the dim's. */
static bool widen_dim(tocsin_universe *universe, const tocsin_digit *digits, uint32_t count,
                      bool keep_counts, tocsin_window *windows, tocsin_draft *draft, int64_t *size)
{
    bool repeats = true; /* one element only */

    for (uint32_t i = 0; i < count; i++)
        repeats &= digits[i].axis == TOCSIN_DIGIT_BROADCAST;
    *size = 1;
    for (uint32_t i = 0; i < count; i++) {
        tocsin_digit digit = digits[i];
        if (digit.axis == TOCSIN_DIGIT_BROADCAST)
            windows[i] =
                (tocsin_window){.start = 0, .count = repeats && !keep_counts ? 0 : digit.count};
        if (windows[i].count == 0)
            continue;
        digit.start = tocsin_affine_of(windows[i].start);
        digit.count = windows[i].count;
        tocsin_draft_push(draft, &digit);
        if (__builtin_mul_overflow(*size, digit.count, size))
            return tocsin_universe_refuse_overflow(universe) != 0;
    }
    return true;
}

tocsin_relation_id tocsin_relation_widen(tocsin_universe *universe, tocsin_relation_id id,
                                         uint32_t choice, uint64_t keep_counts,
                                         const int64_t size[TOCSIN_SYMBOL_COUNT],
                                         tocsin_window *windows, uint32_t limit)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    bounds ranges[TOCSIN_DRAFT_DIGITS_MAX];
    int64_t shape[TOCSIN_PLAN_NDIM_MAX];
    tocsin_draft draft;

    if (relation->segmented || relation->count != 1)
        return tocsin_universe_refuse(universe, TOCSIN_CAUSE_MISSING_REDUCTION,
                                      "a sum or a concatenation is used as if it were one value");
    const tocsin_term *term = &relation->terms[0];
    if (term->digit_total > limit ||
        term->digit_total + term->pinned_count > TOCSIN_DRAFT_DIGITS_MAX)
        return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_LAYOUT,
                                      "a value is cut into too many parts");
    if (choice >= CHOICES_MAX)
        return 0;
    for (uint32_t i = 0; i < term->digit_total; i++)
        if (term->digits[i].axis != TOCSIN_DIGIT_BROADCAST &&
            !range_of(universe, &term->digits[i], size, &ranges[i]))
            return 0;
    if (!choose(universe, term, choice, ranges, windows))
        return 0;
    draft.total = draft.pinned = 0;
    draft.full = false;
    uint32_t first = 0;
    for (uint8_t d = 0; d < relation->ndim; d++) {
        const uint32_t before = draft.total;
        if (!widen_dim(universe, term->digits + first, term->digit_count[d],
                       (keep_counts >> d & 1) != 0, windows + first, &draft, &shape[d]))
            return 0;
        draft.digit_count[d] = (uint8_t)(draft.total - before);
        first += term->digit_count[d];
    }
    assert(!draft.full && first == term->digit_total);
    if (term->pinned_count > 0)
        memcpy(draft.digits + draft.total, term->digits + term->digit_total,
               term->pinned_count * sizeof draft.digits[0]);
    const tocsin_term wide = {.atom = term->atom,
                              .factor = term->factor,
                              .digit_count = draft.digit_count,
                              .digits = draft.digits,
                              .digit_total = draft.total,
                              .pinned_count = term->pinned_count};
    return tocsin_relation_of_term(universe, &wide, shape, relation->ndim);
}

/* ---- profiles -------------------------------------------------------------------------------- */

/* `inner` stands right behind `outer` and outer.stride = inner.stride * inner.extent: are the two
 * one range? */
static bool merge(tocsin_digit *outer, const tocsin_digit *inner)
{
    if (outer->count != 1 && !tocsin_range_is_whole(&inner->start, inner->count, inner->extent))
        return false;
    tocsin_affine start;
    if (!tocsin_affine_scale(&outer->start, inner->extent, &start) ||
        !tocsin_affine_add(&start, &inner->start, &start))
        return false;
    outer->start = start;
    outer->stride = inner->stride;
    outer->extent *= inner->extent; /* both divide the size of the widened dim */
    outer->count *= inner->count;
    return true;
}

uint32_t tocsin_term_profile(const tocsin_term *term, const tocsin_window *windows, uint32_t dim,
                             tocsin_digit *profile, uint32_t limit, int64_t *extent)
{
    uint32_t first = 0, count = 0;
    int64_t stride = 1;

    for (uint32_t d = 0; d < dim; d++)
        first += term->digit_count[d];
    const uint32_t end = first + term->digit_count[dim];
    bool repeats = true; /* one element only */
    for (uint32_t i = first; i < end; i++)
        repeats &= term->digits[i].axis == TOCSIN_DIGIT_BROADCAST;
    *extent = 0;
    if (repeats)
        return 0;
    for (uint32_t i = first; i < end; i++)
        stride *= windows[i].count;
    *extent = stride;
    for (uint32_t i = first; i < end; i++) {
        const tocsin_digit *digit = &term->digits[i];
        tocsin_digit entry = {.extent = windows[i].count, .count = digit->count};
        if (windows[i].count == 1)
            continue;
        entry.stride = stride /= windows[i].count;
        if (digit->axis != TOCSIN_DIGIT_BROADCAST) {
            entry.start = digit->start;
            entry.start.base -= windows[i].start;
        }
        if (count > 0 && merge(&profile[count - 1], &entry))
            continue;
        if (count == limit)
            return limit + 1;
        profile[count++] = entry;
    }
    return count;
}
