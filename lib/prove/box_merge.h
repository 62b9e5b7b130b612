/* prove/box_merge.h - between normal_form.c and box_merge.c. */
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

#endif
