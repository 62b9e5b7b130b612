/* prove/cover.h - do the slices that ranks declare make up a whole logical output?
 */
#ifndef TOCSIN_PROVE_COVER_H
#define TOCSIN_PROVE_COVER_H

#include "base/base.h"
#include "plan/plan.h"

/* The declared slices of one logical output. Zero is empty. */
typedef struct tocsin_cover {
    tocsin_intern boxes; /* different ones: starts and ends by dim */
    bool whole;          /* a slice is the whole output */
    bool crowded;        /* more slices than are looked at */
} tocsin_cover;

/* Note the slice [starts, starts + shape) of an output of shape `whole`, for all values of the
 * symbols, of which there are `size`. false: out of memory. */
bool tocsin_cover_add(tocsin_cover *cover, const tocsin_affine *starts, const int64_t *shape,
                      const int64_t size[TOCSIN_SYMBOL_COUNT], const int64_t *whole, uint8_t ndim);
/* Is every element in some slice? *covered is false, too, when it is too much work to tell. false:
 * out of memory. */
bool tocsin_cover_is_whole(const tocsin_cover *cover, const int64_t *whole, uint8_t ndim,
                           bool *covered);
void tocsin_cover_free(tocsin_cover *cover);

#endif
