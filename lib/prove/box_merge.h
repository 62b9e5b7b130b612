/* prove/box_merge.h - between normal_form.c, box_merge.c and box_digits.c. */
#ifndef TOCSIN_PROVE_BOX_MERGE_H
#define TOCSIN_PROVE_BOX_MERGE_H

#include "prove/universe.h"

/* Order by atom and map; 0: both are equal. */
int tocsin_term_compare(const tocsin_term *a, const tocsin_term *b, uint8_t ndim);

/* The normal box of `count` entries; `box` has room for as many. false: refused. */
bool tocsin_box_normalise(tocsin_universe *universe, const tocsin_box_entry *from, uint32_t count,
                          tocsin_box_entry *box, uint32_t *result);

/* Bring terms that are ascending by atom and map into normal form: one term per box, ranges joined.
 * *terms is replaced by an array in scratch when they change. false: refused, or failed. */
bool tocsin_boxes_merge(tocsin_universe *universe, tocsin_term **terms, uint32_t *count,
                        uint8_t ndim);

/* The maximum of terms of one atom and map whose boxes differ in ranges of kind MAX: the box that
 * their union is, in scratch. false: it is none (refused), or failed. */
bool tocsin_boxes_unite(tocsin_universe *universe, const tocsin_term *terms, uint32_t count,
                        tocsin_term *united);

/* ---- box_digits.c ---------------------------------------------------------------------------- */

/* [start, end) of a contraction axis; `end` goes with the base of `start`. */
struct tocsin_range {
    tocsin_affine start;
    int64_t end;
};

/* In scratch. Zero is empty. */
struct tocsin_ranges {
    struct tocsin_range *items;
    uint32_t count, capacity;
};

bool tocsin_ranges_reserve(tocsin_universe *universe, struct tocsin_ranges *ranges, uint64_t more);

/* Append the ranges of [0, period) that the entries of one axis, ascending by stride, stand for. */
bool tocsin_ranges_expand(tocsin_universe *universe, const tocsin_box_entry *entries,
                          uint32_t count, int64_t period, struct tocsin_ranges *ranges);

/* The entries of one axis, ascending by stride. */
struct tocsin_axis_box {
    tocsin_box_entry *entries;
    uint32_t count;
};

/* The one form of a set of disjoint, not adjacent ranges with equal weights, ascending: the boxes
 * whose union it is, in scratch. The ranges may be changed. `model` gives atom, axis and kind. */
bool tocsin_ranges_compress(tocsin_universe *universe, struct tocsin_range *ranges, uint32_t count,
                            int64_t period, const tocsin_box_entry *model,
                            struct tocsin_axis_box **boxes, uint32_t *box_count);

#endif
