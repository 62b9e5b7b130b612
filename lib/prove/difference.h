/* prove/difference.h - in what way a value is not its logical counterpart: inside of the localiser.
 */
#ifndef TOCSIN_PROVE_DIFFERENCE_H
#define TOCSIN_PROVE_DIFFERENCE_H

#include "prove/trace.h"

typedef enum tocsin_difference {
    TOCSIN_DIFFERENCE_NONE,
    TOCSIN_DIFFERENCE_ATOMS,     /* another value */
    TOCSIN_DIFFERENCE_PARTIAL,   /* part of a sum */
    TOCSIN_DIFFERENCE_MIXED,     /* a partial term beside a whole one in the same proportion */
    TOCSIN_DIFFERENCE_RANGES,    /* terms that cover different ranges of one dim */
    TOCSIN_DIFFERENCE_SEGMENTED, /* pieces that do not continue one another */
    TOCSIN_DIFFERENCE_MAP,       /* axes in another order */
    TOCSIN_DIFFERENCE_WEIGHTS,   /* the terms of a sum in other proportions */
    TOCSIN_DIFFERENCE_FACTOR
} tocsin_difference;

tocsin_difference tocsin_difference_of(const tocsin_tracer *tracer, tocsin_relation_id own,
                                       tocsin_relation_id expected);
/* Has `a` (of any form) an atom that `b` has not? */
bool tocsin_has_other_atom(const tocsin_tracer *tracer, tocsin_relation_id a, tocsin_relation_id b);
bool tocsin_is_partial(const tocsin_relation *view);
/* Has it a partial sum over this contraction? */
bool tocsin_has_entry(const tocsin_relation *view, const tocsin_box_entry *entry);

#endif
