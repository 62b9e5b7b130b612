/* settle.c - are two relations the same value?
 *
 * Relations keep each digit of count 1 in a dim, which says what slice of a logical value a rank
 * has, but nothing about the elements. A relation is *settled* when no such digit is left in a dim:
 * it goes up in the digit of its axis that continues it (outer stride = inner stride * inner
 * extent), or is pinned. Values are equal when their settled relations are one.
 *
 * Cost: quadratic in the digits of a term (a few), and one interning; only where ids differ.
 */
#include "prove/layout.h"

#include <assert.h>

/* The digit of the same axis right inside of `outer`, or NULL. */
static tocsin_digit *continuation(tocsin_digit *digits, uint32_t count, const tocsin_digit *outer)
{
    for (uint32_t i = 0; i < count; i++)
        if (digits[i].axis == outer->axis && digits[i].extent > 1 &&
            outer->stride == digits[i].stride * digits[i].extent)
            return &digits[i];
    return NULL;
}

static bool is_single(const tocsin_digit *digit)
{
    return digit->count == 1 && digit->axis != TOCSIN_DIGIT_BROADCAST;
}

/* Digits of count 1 go up in the digits that continue them; what is left of them has extent 1.
 * false: overflow. */
static bool absorb_singles(tocsin_digit *digits, uint32_t count)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = 0; i < count; i++) {
            tocsin_affine start;
            tocsin_digit *inner = is_single(&digits[i]) && digits[i].extent > 1
                                      ? continuation(digits, count, &digits[i])
                                      : NULL;
            if (inner == NULL)
                continue;
            if (!tocsin_affine_scale(&digits[i].start, inner->extent, &start) ||
                !tocsin_affine_add(&start, &inner->start, &inner->start))
                return false;
            inner->extent *= digits[i].extent; /* at most the size of the axis */
            digits[i].start = tocsin_affine_of(0);
            digits[i].extent = 1;
            changed = true;
        }
    }
    return true;
}

/* The settled form of the term, in scratch. false: too many digits, overflow, or out of memory. */
static bool settle_term(tocsin_universe *universe, const tocsin_term *term, uint8_t ndim,
                        tocsin_term *settled)
{
    const uint32_t count = term->digit_total + term->pinned_count;
    tocsin_digit *digits = TOCSIN_SCRATCH(universe, tocsin_digit, count);
    tocsin_digit *kept = TOCSIN_SCRATCH(universe, tocsin_digit, count);
    uint8_t *counts = TOCSIN_SCRATCH(universe, uint8_t, ndim);
    uint32_t next = 0, total = 0, pinned = 0;

    if (digits == NULL || kept == NULL || counts == NULL)
        return false;
    if (count > 0)
        memcpy(digits, term->digits, count * sizeof digits[0]);
    if (!absorb_singles(digits, count))
        return false;
    for (uint8_t d = 0; d < ndim; d++) {
        const uint32_t before = total;
        for (uint8_t i = 0; i < term->digit_count[d]; i++, next++)
            if (!is_single(&digits[next]))
                kept[total++] = digits[next];
        counts[d] = (uint8_t)(total - before);
    }
    assert(next == term->digit_total);
    for (uint32_t i = 0; i < count; i++)
        if (is_single(&digits[i]) && digits[i].extent > 1)
            kept[total + pinned++] = digits[i];
    *settled = *term;
    settled->digits = kept;
    settled->digit_count = counts;
    settled->digit_total = total;
    settled->pinned_count = pinned;
    return pinned <= TOCSIN_PINNED_MAX;
}

static tocsin_relation_id settle(tocsin_universe *universe, tocsin_relation_id id)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    const tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    tocsin_relation_id made = 0;

    if (relation->segmented) {
        tocsin_relation_id *pieces = TOCSIN_SCRATCH(universe, tocsin_relation_id, relation->count);
        for (uint32_t i = 0; pieces != NULL && i < relation->count; i++) {
            pieces[i] = settle(universe, relation->segments[i]);
            if (pieces[i] == 0)
                goto out;
        }
        if (pieces != NULL)
            made = tocsin_relation_of_segments(universe, pieces, relation->count,
                                               relation->segment_dim);
        goto out;
    }
    tocsin_term *terms = TOCSIN_SCRATCH(universe, tocsin_term, relation->count);
    for (uint32_t k = 0; terms != NULL && k < relation->count; k++)
        if (!settle_term(universe, &relation->terms[k], relation->ndim, &terms[k]))
            goto out;
    if (terms != NULL)
        made = tocsin_relation_of_terms(universe, terms, relation->count, relation->shape,
                                        relation->ndim);
out:
    tocsin_scratch_reset(universe, mark);
    return made;
}

bool tocsin_relation_same_value(tocsin_universe *universe, tocsin_relation_id a,
                                tocsin_relation_id b)
{
    if (a == b)
        return true;
    const tocsin_relation *left = tocsin_relation_get(universe, a);
    const tocsin_relation *right = tocsin_relation_get(universe, b);
    if (left->ndim != right->ndim ||
        (left->ndim > 0 &&
         memcmp(left->shape, right->shape, left->ndim * sizeof left->shape[0]) != 0))
        return false;
    if (!left->segmented && !right->segmented && left->count > 0 && right->count > 0 &&
        left->terms[0].atom != right->terms[0].atom)
        return false; /* atoms come in their order; that terms cancel one another is not looked at
                       */
    const tocsin_relation_id settled = settle(universe, a);
    return settled != 0 && settled == settle(universe, b);
}
