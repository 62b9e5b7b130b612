/* construct.c - relations from nothing: slices of atoms, constants, counting.
 *
 * Cost: that of interning one term.
 */
#include <assert.h>

#include "prove/universe.h"

tocsin_relation_id tocsin_relation_slice_of(tocsin_universe *universe, tocsin_atom_id atom,
                                            const tocsin_affine *starts, const int64_t *shape)
{
    if (universe->status != TOCSIN_OK)
        return 0;
    const tocsin_atom *view = tocsin_atom_get(universe, atom);
    tocsin_digit digits[TOCSIN_PLAN_NDIM_MAX];
    uint8_t counts[TOCSIN_PLAN_NDIM_MAX];
    for (uint32_t dim = 0; dim < view->ndim; ++dim) {
        counts[dim] = 1;
        digits[dim] = (tocsin_digit){.axis = dim,
                                     .stride = 1,
                                     .extent = view->shape[dim],
                                     .start = starts[dim],
                                     .count = shape[dim]};
    }
    tocsin_term term = {
        .atom = atom, .digit_count = counts, .digits = digits, .digit_total = view->ndim};
    return tocsin_relation_of_term(universe, &term, shape, view->ndim);
}

tocsin_relation_id tocsin_relation_whole(tocsin_universe *universe, tocsin_atom_id atom)
{
    if (universe->status != TOCSIN_OK)
        return 0;
    const tocsin_affine starts[TOCSIN_PLAN_NDIM_MAX] = {{0}};
    return tocsin_relation_slice_of(universe, atom, starts, tocsin_atom_get(universe, atom)->shape);
}

tocsin_relation_id tocsin_relation_constant(tocsin_universe *universe, tocsin_factor_id value,
                                            bool zero, const int64_t *shape, uint8_t ndim)
{
    assert(ndim <= TOCSIN_PLAN_NDIM_MAX);
    tocsin_digit digits[TOCSIN_PLAN_NDIM_MAX];
    uint8_t counts[TOCSIN_PLAN_NDIM_MAX];
    for (uint32_t dim = 0; dim < ndim; ++dim) {
        counts[dim] = 1;
        digits[dim] = (tocsin_digit){
            .axis = TOCSIN_DIGIT_BROADCAST, .stride = 1, .extent = shape[dim], .count = shape[dim]};
    }
    tocsin_term term = {.atom = TOCSIN_ATOM_ID_ONE,
                        .factor = zero ? TOCSIN_FACTOR_ZERO : value,
                        .digit_count = counts,
                        .digits = digits,
                        .digit_total = ndim};
    return tocsin_relation_of_term(universe, &term, shape, ndim);
}

/* start, start + step, ... with step >= 1 and start >= 0: one digit of stride `step`, and what
 * start leaves over is pinned. */
static tocsin_relation_id ascending(tocsin_universe *universe, int64_t start, int64_t count,
                                    int64_t step)
{
    const tocsin_digit digits[2] = {
        {.axis = 0,
         .stride = step,
         .extent = (TOCSIN_IOTA_EXTENT - 1) / step + 1,
         .start = tocsin_affine_of(start / step),
         .count = count},
        {.axis = 0,
         .stride = 1,
         .extent = step,
         .start = tocsin_affine_of(start % step),
         .count = 1},
    };
    const uint8_t counts[1] = {1};
    tocsin_term term = {.atom = TOCSIN_ATOM_ID_IOTA,
                        .digit_count = counts,
                        .digits = digits,
                        .digit_total = 1,
                        .pinned_count = 1};
    return tocsin_relation_of_term(universe, &term, &count, 1);
}

tocsin_relation_id tocsin_relation_iota(tocsin_universe *universe, int64_t start, int64_t count,
                                        int64_t step)
{
    if (universe->status != TOCSIN_OK)
        return 0;
    if (count < 0 || count > TOCSIN_IOTA_EXTENT || start < -TOCSIN_IOTA_EXTENT ||
        start > TOCSIN_IOTA_EXTENT || step < -TOCSIN_IOTA_EXTENT || step > TOCSIN_IOTA_EXTENT)
        return tocsin_universe_refuse_overflow(universe);
    if (step >= 1 && start >= 0)
        return ascending(universe, start, count, step);
    tocsin_relation_id parts[2] = {ascending(universe, 0, count, 1), 0};
    tocsin_factor_id factors[2] = {tocsin_factor_rational(universe, step, 1),
                                   tocsin_factor_rational(universe, start, 1)};
    parts[1] = tocsin_relation_constant(universe, 0, false, &count, 1);
    if (!parts[0] || !parts[1])
        return 0;
    return tocsin_relation_add(universe, parts, factors, 2);
}
