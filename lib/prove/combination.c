/* combination.c - linear combinations of relations, and maxima of partial maxima.
 *
 * Terms of the operands are put side by side and brought into normal form (normal_form.c).
 * Segmented operands are cut at their common boundaries first. Cost: that of sorting the terms.
 */
#include <assert.h>

#include "prove/box_merge.h"
#include "prove/universe.h"

static bool same_shape(const tocsin_relation *a, const tocsin_relation *b)
{
    return a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
}

static bool check_shapes(tocsin_universe *universe, const tocsin_relation_id *relations,
                         uint32_t count)
{
    for (uint32_t i = 1; i < count; ++i) {
        if (!same_shape(tocsin_relation_get(universe, relations[0]),
                        tocsin_relation_get(universe, relations[i])))
            return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_LAYOUT,
                                          "values of unequal shapes are combined");
    }
    return true;
}

static tocsin_relation_id add_terms(tocsin_universe *universe, const tocsin_relation_id *relations,
                                    const tocsin_factor_id *factors, uint32_t count)
{
    size_t total = 0;
    for (uint32_t i = 0; i < count; ++i)
        total += tocsin_relation_get(universe, relations[i])->count;
    if (total > TOCSIN_TERMS_MAX)
        return tocsin_universe_fail(universe, TOCSIN_E_LIMIT);
    tocsin_term *terms = TOCSIN_SCRATCH(universe, tocsin_term, total);
    if (!terms)
        return 0;
    uint32_t used = 0;
    for (uint32_t i = 0; i < count; ++i) {
        const tocsin_relation *relation = tocsin_relation_get(universe, relations[i]);
        for (uint32_t k = 0; k < relation->count; ++k, ++used) {
            terms[used] = relation->terms[k];
            if (factors)
                terms[used].factor =
                    tocsin_factor_multiply(universe, terms[used].factor, factors[i]);
        }
    }
    const tocsin_relation *first = tocsin_relation_get(universe, relations[0]);
    return tocsin_relation_of_normal_terms(universe, terms, used, first->shape, first->ndim);
}

/* The ends of the pieces along `dim`, of all operands that are segmented along it, ascending and
 * without repetition; `ends` has room for all. */
static uint32_t shared_ends(const tocsin_universe *universe, const tocsin_relation_id *relations,
                            uint32_t count, uint32_t dim, int64_t *ends)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < count; ++i) {
        const tocsin_relation *relation = tocsin_relation_get(universe, relations[i]);
        if (!relation->segmented || relation->segment_dim != dim)
            continue;
        int64_t end = 0;
        uint32_t at = 0;
        for (uint32_t k = 0; k < relation->count; ++k) {
            end += tocsin_relation_get(universe, relation->segments[k])->shape[dim];
            while (at < total && ends[at] < end)
                ++at;
            if (at < total && ends[at] == end)
                continue;
            memmove(ends + at + 1, ends + at, (total - at) * sizeof *ends);
            ends[at] = end;
            ++total;
        }
    }
    return total;
}

/* The part [start, end) of each operand along `dim`; false: some boundary cuts a digit. */
static bool cut_all(tocsin_universe *universe, const tocsin_relation_id *relations, uint32_t count,
                    uint32_t dim, int64_t start, int64_t end, tocsin_relation_id *parts)
{
    for (uint32_t i = 0; i < count; ++i) {
        parts[i] = tocsin_relation_slice(universe, relations[i], dim, tocsin_affine_of(start),
                                         end - start, 1);
        if (!parts[i])
            return false;
    }
    return true;
}

static tocsin_relation_id add_pieces(tocsin_universe *universe, const tocsin_relation_id *relations,
                                     const tocsin_factor_id *factors, uint32_t count, uint32_t dim)
{
    size_t ends_max = 0;
    for (uint32_t i = 0; i < count; ++i) {
        const tocsin_relation *relation = tocsin_relation_get(universe, relations[i]);
        ends_max += relation->segmented ? relation->count : 0;
    }
    if (ends_max > TOCSIN_SEGMENTS_MAX)
        return tocsin_universe_fail(universe, TOCSIN_E_LIMIT);
    int64_t *ends = TOCSIN_SCRATCH(universe, int64_t, ends_max);
    tocsin_relation_id *pieces = TOCSIN_SCRATCH(universe, tocsin_relation_id, ends_max);
    tocsin_relation_id *parts = TOCSIN_SCRATCH(universe, tocsin_relation_id, count);
    if (!ends || !pieces || !parts)
        return 0;
    uint32_t piece_count = shared_ends(universe, relations, count, dim, ends);
    int64_t start = 0;
    for (uint32_t k = 0; k < piece_count; ++k) {
        if (!cut_all(universe, relations, count, dim, start, ends[k], parts))
            return 0;
        pieces[k] = tocsin_relation_add(universe, parts, factors, count);
        if (!pieces[k])
            return 0;
        start = ends[k];
    }
    return tocsin_relation_of_segments(universe, pieces, piece_count, dim);
}

tocsin_relation_id tocsin_relation_add(tocsin_universe *universe,
                                       const tocsin_relation_id *relations,
                                       const tocsin_factor_id *factors, uint32_t count)
{
    assert(count > 0);
    if (universe->status != TOCSIN_OK || !check_shapes(universe, relations, count))
        return 0;
    /* Cut along the first dim that any operand is segmented along; the parts of those segmented
     * along others are cut again when they are added. */
    uint32_t dim = TOCSIN_PLAN_NDIM_MAX;
    for (uint32_t i = 0; i < count; ++i) {
        const tocsin_relation *relation = tocsin_relation_get(universe, relations[i]);
        if (relation->segmented && relation->segment_dim < dim)
            dim = relation->segment_dim;
    }
    tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    tocsin_relation_id id = dim == TOCSIN_PLAN_NDIM_MAX
                                ? add_terms(universe, relations, factors, count)
                                : add_pieces(universe, relations, factors, count, dim);
    tocsin_scratch_reset(universe, mark);
    return id;
}

tocsin_relation_id tocsin_relation_scale(tocsin_universe *universe, tocsin_relation_id relation,
                                         tocsin_factor_id factor)
{
    return factor == 0 ? relation : tocsin_relation_add(universe, &relation, &factor, 1);
}

static tocsin_relation_id refuse_maximum(tocsin_universe *universe)
{
    return tocsin_universe_refuse(universe, TOCSIN_CAUSE_WRONG_COLLECTIVE,
                                  "a maximum is taken of values that are not partial maxima of one "
                                  "value");
}

/* The only term of a relation that may be a partial maximum, or NULL. */
static const tocsin_term *single_term(const tocsin_universe *universe, tocsin_relation_id id)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    bool single = !relation->segmented && relation->count == 1 &&
                  !tocsin_factor_is_negative(universe, relation->terms[0].factor);
    return single ? relation->terms : NULL;
}

/* Do they differ in ranges of kind MAX at most? */
static bool same_but_maxima(const tocsin_term *a, const tocsin_term *b, uint8_t ndim)
{
    if (a->factor != b->factor || tocsin_term_compare(a, b, ndim) != 0)
        return false;
    uint32_t i = 0, j = 0;
    for (;; ++i, ++j) {
        while (i < a->box_count && a->box[i].kind == TOCSIN_BOX_MAX)
            ++i;
        while (j < b->box_count && b->box[j].kind == TOCSIN_BOX_MAX)
            ++j;
        if (i == a->box_count || j == b->box_count)
            return i == a->box_count && j == b->box_count;
        if (memcmp(&a->box[i], &b->box[j], sizeof a->box[i]) != 0)
            return false;
    }
}

static tocsin_relation_id unite(tocsin_universe *universe, const tocsin_relation_id *relations,
                                uint32_t count)
{
    if (count > TOCSIN_BOXES_MAX)
        return tocsin_universe_fail(universe, TOCSIN_E_LIMIT);
    tocsin_term *terms = TOCSIN_SCRATCH(universe, tocsin_term, count);
    if (!terms)
        return 0;
    const tocsin_relation *first = tocsin_relation_get(universe, relations[0]);
    for (uint32_t i = 0; i < count; ++i) {
        const tocsin_term *term = single_term(universe, relations[i]);
        if (!term || !same_but_maxima(term, first->terms, first->ndim))
            return refuse_maximum(universe);
        terms[i] = *term;
    }
    tocsin_term united;
    if (!tocsin_boxes_unite(universe, terms, count, &united))
        return 0;
    return tocsin_relation_of_normal_terms(universe, &united, 1, first->shape, first->ndim);
}

tocsin_relation_id tocsin_relation_join_max(tocsin_universe *universe,
                                            const tocsin_relation_id *relations, uint32_t count)
{
    assert(count > 0);
    if (universe->status != TOCSIN_OK || !check_shapes(universe, relations, count))
        return 0;
    bool equal = true;
    for (uint32_t i = 1; i < count && equal; ++i)
        equal = relations[i] == relations[0];
    if (equal)
        return relations[0];
    tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    tocsin_relation_id id = unite(universe, relations, count);
    tocsin_scratch_reset(universe, mark);
    return id;
}
