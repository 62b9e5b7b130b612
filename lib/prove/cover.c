/* cover.c - do the slices that ranks declare make up a whole logical output?
 *
 * A slice whose start moves by no more than its length with a symbol is one longer slice over all
 * values of it; others are noted value by value. What is left of the whole when slice after slice
 * is taken away is a list of boxes, on a stack: a box that the next slice meets falls into at most
 * two boxes a dim. Cost: linear in slices for slices along one dim; there is a limit.
 */
#include "prove/cover.h"

#include <assert.h>

enum { BOXES_MAX = 1 << 16, STEPS_MAX = 1 << 25 };

typedef struct box {
    int64_t start[TOCSIN_PLAN_NDIM_MAX], end[TOCSIN_PLAN_NDIM_MAX];
} box;

typedef struct remnant {
    box rest;
    uint32_t next; /* slices before it do not meet the rest */
} remnant;

/* ---- slices ---------------------------------------------------------------------------------- */

static bool add_box(tocsin_cover *cover, const box *slice, const int64_t *whole, uint8_t ndim)
{
    int64_t words[2 * TOCSIN_PLAN_NDIM_MAX + 1];
    bool all = true;
    for (uint8_t d = 0; d < ndim; d++) {
        words[d] = slice->start[d];
        words[ndim + d] = slice->end[d];
        all &= slice->start[d] <= 0 && slice->end[d] >= whole[d];
    }
    cover->whole |= all;
    if (cover->whole)
        return true;
    if (tocsin_intern_count(&cover->boxes) == BOXES_MAX) {
        cover->crowded = true;
        return true;
    }
    return tocsin_intern_put(&cover->boxes, words, 2U * ndim * sizeof words[0]) != 0;
}

/* The dims whose start moves with the symbol are one, and by at most the slice's length: the slice
 * of all values, and the symbol is gone. */
static bool stretch(tocsin_affine *starts, int64_t *shape, int symbol, int64_t size, uint8_t ndim)
{
    uint8_t moving = 0, at = 0;
    for (uint8_t d = 0; d < ndim; d++) {
        if (starts[d].weight[symbol] == 0)
            continue;
        moving++;
        at = d;
    }
    if (moving != 1)
        return moving == 0;
    const int64_t weight = starts[at].weight[symbol], step = weight < 0 ? -weight : weight;
    int64_t distance;
    if (weight == INT64_MIN || step > shape[at] ||
        __builtin_mul_overflow(weight, size - 1, &distance) ||
        __builtin_add_overflow(shape[at], distance < 0 ? -distance : distance, &shape[at]))
        return false;
    if (distance < 0)
        starts[at].base += distance;
    starts[at].weight[symbol] = 0;
    return true;
}

bool tocsin_cover_add(tocsin_cover *cover, const tocsin_affine *given, const int64_t *given_shape,
                      const int64_t size[TOCSIN_SYMBOL_COUNT], const int64_t *whole, uint8_t ndim)
{
    tocsin_affine starts[TOCSIN_PLAN_NDIM_MAX];
    int64_t shape[TOCSIN_PLAN_NDIM_MAX], count[TOCSIN_SYMBOL_COUNT];
    box slice;

    assert(ndim <= TOCSIN_PLAN_NDIM_MAX && TOCSIN_SYMBOL_COUNT == 2);
    if (ndim > 0) {
        memcpy(starts, given, ndim * sizeof starts[0]);
        memcpy(shape, given_shape, ndim * sizeof shape[0]);
    }
    for (int round = 0; round < TOCSIN_SYMBOL_COUNT;
         round++) /* what one stretches, the other may */
        for (int symbol = 0; symbol < TOCSIN_SYMBOL_COUNT; symbol++)
            count[symbol] = stretch(starts, shape, symbol, size[symbol], ndim) ? 1 : size[symbol];
    for (int64_t first = 0; first < count[0] && !cover->crowded; first++) {
        for (int64_t second = 0; second < count[1] && !cover->crowded; second++) {
            for (uint8_t d = 0; d < ndim; d++) {
                slice.start[d] =
                    starts[d].base + first * starts[d].weight[0] + second * starts[d].weight[1];
                slice.end[d] = slice.start[d] + shape[d];
            }
            if (!add_box(cover, &slice, whole, ndim))
                return false;
        }
    }
    return true;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void read_box(const tocsin_cover *cover, uint32_t index, uint8_t ndim, box *slice)
{
    size_t bytes;
    const char *words = tocsin_intern_text(&cover->boxes, index + 1, &bytes);
    assert(bytes == 2U * ndim * sizeof(int64_t));
    memcpy(slice->start, words, ndim * sizeof slice->start[0]);
    memcpy(slice->end, words + ndim * sizeof slice->start[0], ndim * sizeof slice->end[0]);
}

static bool meet(const box *a, const box *b, uint8_t ndim)
{
    for (uint8_t d = 0; d < ndim; d++)
        if (a->start[d] >= b->end[d] || b->start[d] >= a->end[d])
            return false;
    return true;
}

bool tocsin_cover_is_whole(const tocsin_cover *cover, const int64_t *whole, uint8_t ndim,
                           bool *covered)
{
    const uint32_t count = tocsin_intern_count(&cover->boxes);
    TOCSIN_VEC(remnant) stack = {0};
    remnant top = {0};
    uint32_t steps = 0;
    bool sound = true;

    *covered = cover->whole;
    if (cover->whole || cover->crowded || count == 0)
        return true;
    for (uint8_t d = 0; d < ndim; d++)
        top.rest.end[d] = whole[d];
    *covered = true;
    sound = TOCSIN_VEC_PUSH(&stack, top);
    while (sound && *covered && stack.count > 0) {
        box slice;
        top = stack.items[--stack.count];
        do {
            *covered = top.next < count && steps++ < STEPS_MAX;
            if (*covered)
                read_box(cover, top.next++, ndim, &slice);
        } while (*covered && !meet(&top.rest, &slice, ndim));
        for (uint8_t d = 0; *covered && sound && d < ndim; d++) { /* what the slice leaves of it */
            remnant piece = top;
            if (top.rest.start[d] < slice.start[d]) {
                piece.rest.end[d] = top.rest.start[d] = slice.start[d];
                sound = TOCSIN_VEC_PUSH(&stack, piece);
            }
            piece = top;
            if (sound && top.rest.end[d] > slice.end[d]) {
                piece.rest.start[d] = top.rest.end[d] = slice.end[d];
                sound = TOCSIN_VEC_PUSH(&stack, piece);
            }
        }
    }
    TOCSIN_VEC_FREE(&stack);
    return sound;
}

void tocsin_cover_free(tocsin_cover *cover)
{
    tocsin_intern_free(&cover->boxes);
    *cover = (tocsin_cover){0};
}
