/* difference.c - in what way a value is not its logical counterpart.
 *
 * Heuristic by design: two relations are compared by their atoms, the order of axes, boxes, ranges
 * and factors, so that a report can say what is wrong. No proof rests on it.
 */
#include "prove/difference.h"

static const tocsin_relation *view_of(const tocsin_tracer *tracer, tocsin_relation_id relation)
{
    return tocsin_relation_get(tracer->run->prover->universe, relation);
}

static bool known(tocsin_relation_id relation)
{
    return relation != 0 && relation != TOCSIN_POISON;
}

static bool in_terms(const tocsin_relation *view, tocsin_atom_id atom)
{
    for (uint32_t k = 0; k < view->count; k++)
        if (view->terms[k].atom == atom)
            return true;
    return false;
}

/* Has `a` (of any form) an atom that `b` has not? */
bool tocsin_has_other_atom(const tocsin_tracer *tracer, tocsin_relation_id a, tocsin_relation_id b)
{
    const tocsin_relation *left = view_of(tracer, a), *right = view_of(tracer, b);
    if (left->segmented) {
        for (uint32_t k = 0; k < left->count; k++)
            if (tocsin_has_other_atom(tracer, left->segments[k], b))
                return true;
        return false;
    }
    if (!right->segmented) {
        for (uint32_t k = 0; k < left->count; k++)
            if (!in_terms(right, left->terms[k].atom))
                return true;
        return false;
    }
    for (uint32_t k = 0; k < left->count; k++) {
        bool found = false;
        for (uint32_t s = 0; s < right->count && !found; s++) {
            const tocsin_relation *segment = view_of(tracer, right->segments[s]);
            found = !segment->segmented && in_terms(segment, left->terms[k].atom);
        }
        if (!found)
            return true;
    }
    return false;
}

/* Do the dims run over the same axes of the atom in the same steps? Ranges do not matter, and where
 * the digits differ in number (a rank's may merge or vanish) nothing is said. */
static bool same_axes(const tocsin_tracer *tracer, const tocsin_relation *own,
                      const tocsin_relation *expected)
{
    uint32_t first[2] = {0, 0};
    if (own->segmented && expected->segmented && own->ndim == expected->ndim)
        return own->segment_dim == expected->segment_dim &&
               same_axes(tracer, view_of(tracer, own->segments[0]),
                         view_of(tracer, expected->segments[0]));
    if (own->segmented || expected->segmented || own->count == 0 || expected->count == 0 ||
        own->ndim != expected->ndim || own->terms[0].atom != expected->terms[0].atom)
        return true;
    const tocsin_term *left = &own->terms[0], *right = &expected->terms[0];
    for (uint32_t d = 0; d < own->ndim; d++) {
        const uint32_t count = left->digit_count[d];
        for (uint32_t k = 0; count == right->digit_count[d] && k < count; k++) {
            const tocsin_digit *a = &left->digits[first[0] + k];
            const tocsin_digit *b = &right->digits[first[1] + k];
            if (a->axis != b->axis || (a->axis != TOCSIN_DIGIT_BROADCAST && a->stride != b->stride))
                return false;
        }
        first[0] += count;
        first[1] += right->digit_count[d];
    }
    return true;
}

bool tocsin_is_partial(const tocsin_relation *view)
{
    for (uint32_t k = 0; !view->segmented && k < view->count; k++)
        if (view->terms[k].box_count > 0)
            return true;
    return false;
}

/* Has it a partial sum over this contraction? */
bool tocsin_has_entry(const tocsin_relation *view, const tocsin_box_entry *entry)
{
    for (uint32_t k = 0; !view->segmented && k < view->count; k++)
        for (uint32_t b = 0; b < view->terms[k].box_count; b++)
            if (view->terms[k].box[b].atom == entry->atom &&
                view->terms[k].box[b].axis == entry->axis)
                return true;
    return false;
}

static bool same_factors(const tocsin_relation *own, const tocsin_relation *expected)
{
    for (uint32_t k = 0; k < own->count && !own->segmented; k++)
        for (uint32_t j = 0; j < expected->count && !expected->segmented; j++)
            if (own->terms[k].atom == expected->terms[j].atom &&
                own->terms[k].factor != expected->terms[j].factor)
                return false;
    return true;
}

/* Are the factors of the terms, in the order of atoms, in one proportion to the expected ones? True
 * for partial sums, of which parts may be missing for a while. */
static bool same_proportions(const tocsin_tracer *tracer, const tocsin_relation *own,
                             const tocsin_relation *expected)
{
    tocsin_universe *universe = tracer->run->prover->universe;
    tocsin_factor_id ratio = 0;
    if (own->segmented || expected->segmented || own->count != expected->count || own->count < 2 ||
        tocsin_is_partial(own) || tocsin_is_partial(expected))
        return true;
    for (uint32_t k = 0; k < own->count; k++) {
        if (own->terms[k].atom != expected->terms[k].atom)
            return true;
        const tocsin_factor_id one =
            tocsin_factor_multiply(universe, own->terms[k].factor,
                                   tocsin_factor_inverse(universe, expected->terms[k].factor));
        if (k > 0 && one != ratio)
            return false;
        ratio = one;
    }
    return true;
}

/* The expected term of the same atom, or NULL. */
static const tocsin_term *counterpart_of(const tocsin_term *term, const tocsin_relation *expected)
{
    for (uint32_t k = 0; k < expected->count; k++)
        if (expected->terms[k].atom == term->atom)
            return &expected->terms[k];
    return NULL;
}

/* A partial sum was added to a whole value that counts once, not to its share (1/n of it): no
 * reduction can mend that. */
static bool is_mixed(const tocsin_tracer *tracer, const tocsin_relation *own,
                     const tocsin_relation *expected)
{
    tocsin_universe *universe = tracer->run->prover->universe;
    tocsin_factor_id ratios[2] = {0, 0}; /* of the first whole and the first partial term */
    bool seen[2] = {false, false};
    if (own->segmented || expected->segmented || tocsin_is_partial(expected))
        return false;
    for (uint32_t k = 0; k < own->count; k++) {
        const tocsin_term *term = &own->terms[k], *other = counterpart_of(term, expected);
        const bool partial = term->box_count > 0;
        if (other == NULL || seen[partial])
            continue;
        seen[partial] = true;
        ratios[partial] = tocsin_factor_multiply(universe, term->factor,
                                                 tocsin_factor_inverse(universe, other->factor));
    }
    return seen[0] && seen[1] && ratios[0] == ratios[1];
}

/* The one digit of a dim that is no repetition, or NULL. */
static const tocsin_digit *only_digit(const tocsin_term *term, uint32_t dim)
{
    uint32_t first = 0;
    for (uint32_t d = 0; d < dim; d++)
        first += term->digit_count[d];
    return term->digit_count[dim] == 1 && term->digits[first].axis != TOCSIN_DIGIT_BROADCAST
               ? &term->digits[first]
               : NULL;
}

static bool same_affine(tocsin_affine a, tocsin_affine b)
{
    return a.base == b.base && a.weight[0] == b.weight[0] && a.weight[1] == b.weight[1];
}

/* Do the terms of a sum begin at different places of the expected terms? */
static bool has_other_ranges(const tocsin_relation *own, const tocsin_relation *expected)
{
    if (own->segmented || expected->segmented || own->ndim != expected->ndim)
        return false;
    for (uint32_t d = 0; d < own->ndim; d++) {
        tocsin_affine offset = {0};
        bool known_offset = false;
        for (uint32_t k = 0; k < own->count; k++) {
            const tocsin_term *other = counterpart_of(&own->terms[k], expected);
            const tocsin_digit *a = only_digit(&own->terms[k], d);
            const tocsin_digit *b = other == NULL ? NULL : only_digit(other, d);
            if (a == NULL || b == NULL || a->axis != b->axis || a->stride != b->stride)
                continue;
            tocsin_affine own_offset = a->start;
            own_offset.base -= b->start.base;
            if (known_offset && !same_affine(offset, own_offset))
                return true;
            offset = own_offset;
            known_offset = true;
        }
    }
    return false;
}

tocsin_difference tocsin_difference_of(const tocsin_tracer *tracer, tocsin_relation_id own,
                                       tocsin_relation_id expected)
{
    if (!known(own) || !known(expected))
        return TOCSIN_DIFFERENCE_NONE;
    const tocsin_relation *left = view_of(tracer, own), *right = view_of(tracer, expected);
    if (tocsin_has_other_atom(tracer, own, expected) ||
        tocsin_has_other_atom(tracer, expected, own))
        return TOCSIN_DIFFERENCE_ATOMS;
    if (left->segmented && !right->segmented)
        return TOCSIN_DIFFERENCE_SEGMENTED;
    if (!same_axes(tracer, left, right))
        return TOCSIN_DIFFERENCE_MAP;
    if (has_other_ranges(left, right))
        return TOCSIN_DIFFERENCE_RANGES;
    if (is_mixed(tracer, left, right))
        return TOCSIN_DIFFERENCE_MIXED;
    if (tocsin_is_partial(left) && !tocsin_is_partial(right))
        return TOCSIN_DIFFERENCE_PARTIAL;
    if (!same_proportions(tracer, left, right))
        return TOCSIN_DIFFERENCE_WEIGHTS;
    return same_factors(left, right) ? TOCSIN_DIFFERENCE_NONE : TOCSIN_DIFFERENCE_FACTOR;
}

/* Inner steps of a sharded look-up have no logical counterpart (lookup.c). */
static bool is_inner_step(const tocsin_tracer *tracer, tocsin_relation_id relation)
{
    const tocsin_relation *view = view_of(tracer, relation);
    if (view->segmented || view->count == 0)
        return false;
    const tocsin_prover *prover = tracer->run->prover;
    const tocsin_atom *atom = tocsin_atom_get(prover->universe, view->terms[0].atom);
    if (atom->kind != TOCSIN_ATOM_CALL)
        return false;
    const char *key = tocsin_intern_text(&prover->kind_texts, atom->operator_key, NULL);
    return strncmp(key, "unmasked_rows:", 14) == 0 || strncmp(key, "masked_index:", 13) == 0;
}

bool tocsin_tracer_resembles(const tocsin_tracer *tracer, tocsin_relation_id own,
                             tocsin_relation_id expected)
{
    if (!known(own) || !known(expected) || is_inner_step(tracer, own))
        return true;
    const tocsin_difference found = tocsin_difference_of(tracer, own, expected);
    return found == TOCSIN_DIFFERENCE_NONE || found == TOCSIN_DIFFERENCE_PARTIAL ||
           found == TOCSIN_DIFFERENCE_SEGMENTED || found == TOCSIN_DIFFERENCE_FACTOR;
}
