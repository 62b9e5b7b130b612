/* prove/layout.h - shared by the files that lay out relations anew: layout, view, view_pattern,
 * join, widen and define.c. Inside of the relation algebra, like universe.h.
 */
#ifndef TOCSIN_PROVE_LAYOUT_H
#define TOCSIN_PROVE_LAYOUT_H

#include "prove/universe.h"

enum { TOCSIN_DRAFT_DIGITS_MAX = 128 };

/* One term being laid out anew: its digits, dims in order, then pinned ones. */
typedef struct tocsin_draft {
    uint32_t total;  /* digits of dims */
    uint32_t pinned; /* digits behind them */
    bool full;       /* a digit found no room */
    uint8_t digit_count[TOCSIN_PLAN_NDIM_MAX];
    tocsin_digit digits[TOCSIN_DRAFT_DIGITS_MAX];
} tocsin_draft;

static inline void tocsin_draft_push(tocsin_draft *draft, const tocsin_digit *digit)
{
    if (draft->total == TOCSIN_DRAFT_DIGITS_MAX)
        draft->full = true;
    else
        draft->digits[draft->total++] = *digit;
}

static inline void tocsin_draft_push_broadcast(tocsin_draft *draft, int64_t count)
{
    const tocsin_digit digit = {
        .axis = TOCSIN_DIGIT_BROADCAST, .stride = 1, .extent = count, .count = count};
    if (count > 1)
        tocsin_draft_push(draft, &digit);
}

/* Lays `term` out into the empty draft: digits and digit_count of every new dim; the term's own
 * pinned digits are added by the caller. false: refused. */
typedef bool tocsin_lay_out(tocsin_universe *universe, const tocsin_relation *relation,
                            const tocsin_term *term, void *context, tocsin_draft *draft);

/* Every term of an unsegmented relation laid out anew; a relation of the given shape. */
tocsin_relation_id tocsin_relation_redraw(tocsin_universe *universe,
                                          const tocsin_relation *relation, tocsin_lay_out *lay_out,
                                          void *context, const int64_t *shape, uint8_t ndim);

/* The part [starts[d], starts[d] + counts[d]) of every dim d. Constant ranges always have an
 * answer, if need be in segments; a range that depends on a symbol has one when it can be told that
 * it lies within one block of the outer digits for all values (`size`, 0: unknown). */
tocsin_relation_id tocsin_relation_cut(tocsin_universe *universe, tocsin_relation_id relation,
                                       const tocsin_affine *starts, const int64_t *counts,
                                       const int64_t size[TOCSIN_SYMBOL_COUNT]);

typedef enum tocsin_cut_result {
    TOCSIN_CUT_DONE,
    TOCSIN_CUT_IN_TWO, /* not one range of every digit: cut the dim at *where first */
    TOCSIN_CUT_REFUSED
} tocsin_cut_result;

/* Append the digits that run over [start, start + count) of the dim that has these digits: one for
 * each of them but for broadcast ones. */
tocsin_cut_result tocsin_digits_cut(const tocsin_digit *digits, uint32_t digit_count,
                                    tocsin_affine start, int64_t count,
                                    const int64_t size[TOCSIN_SYMBOL_COUNT], tocsin_draft *draft,
                                    int64_t *where);

/* digit = outer * n + inner. false: its range is not a whole number of blocks of n. (view.c) */
bool tocsin_digit_split(const tocsin_digit *digit, int64_t n, tocsin_digit *outer,
                        tocsin_digit *inner);

/* Remember how a logical view laid `term` out. false: the universe has failed. (view_pattern.c) */
bool tocsin_view_learn(tocsin_universe *universe, const tocsin_relation *relation,
                       const tocsin_term *term, const tocsin_draft *draft, uint8_t ndim);
/* Lay `term`, a part of what a logical view had, out as that view did, if the shape fits. */
bool tocsin_view_follow(tocsin_universe *universe, const tocsin_relation *relation,
                        const tocsin_term *term, const int64_t *shape, uint8_t ndim,
                        tocsin_draft *draft);

/* The least and greatest value over all values of the symbols; false: overflow, or a symbol whose
 * size is unknown. */
bool tocsin_affine_bounds(const tocsin_affine *affine, const int64_t size[TOCSIN_SYMBOL_COUNT],
                          int64_t *low, int64_t *high);

static inline int64_t tocsin_floor_divide(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* Divide by b > 0: base and weights, rounding down. */
static inline tocsin_affine tocsin_affine_divide(const tocsin_affine *a, int64_t b)
{
    return (tocsin_affine){
        .base = tocsin_floor_divide(a->base, b),
        .weight = {tocsin_floor_divide(a->weight[0], b), tocsin_floor_divide(a->weight[1], b)}};
}

static inline bool tocsin_affine_divisible(const tocsin_affine *a, int64_t b)
{
    return a->base % b == 0 && a->weight[0] % b == 0 && a->weight[1] % b == 0;
}

/* a - b * quotient, where quotient is a divided by b. */
static inline tocsin_affine tocsin_affine_remainder(const tocsin_affine *a, int64_t b,
                                                    const tocsin_affine *quotient)
{
    return (tocsin_affine){
        .base = a->base - b * quotient->base,
        .weight = {a->weight[0] - b * quotient->weight[0], a->weight[1] - b * quotient->weight[1]}};
}

#endif
