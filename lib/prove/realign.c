/* realign.c - a value as a slice of a logical one, by the dims in which the logical one has its
 * digits.
 *
 * A digit of count 1 takes no room: in which dim it stands follows from the operators that a rank
 * applied, and there may be several logical values of the same elements. To realign R is to take a
 * logical relation L of the same atom, guess from the first indices where in it R begins, cut it
 * there, and compare the two values (settle.c). A wrong guess costs time, never soundness.
 *
 * Logical relations of one term are indexed by atom when the first is looked for, on the parallel
 * side. Cost: one cut for each logical relation of the atom with as many dims, at most
 * CANDIDATES_MAX; only where an operator does not find its operands.
 */
#include "prove/layout.h"

#include <assert.h>

enum { CANDIDATES_MAX = 64, AXES_MAX = TOCSIN_PLAN_NDIM_MAX };

struct candidate {
    tocsin_relation_id relation;
    uint32_t next; /* index + 1 of the next of the same atom */
};

struct tocsin_alignments {
    tocsin_map by_atom; /* -> index + 1 */
    tocsin_map seen;    /* relations that are candidates */
    TOCSIN_VEC(struct candidate) candidates;
};

void tocsin_alignments_free(struct tocsin_alignments *alignments)
{
    if (alignments == NULL)
        return;
    tocsin_map_free(&alignments->by_atom);
    tocsin_map_free(&alignments->seen);
    TOCSIN_VEC_FREE(&alignments->candidates);
    tocsin_free(alignments);
}

/* The term without factor and box. */
static tocsin_relation_id bare(tocsin_universe *universe, const tocsin_relation *relation)
{
    tocsin_term term = relation->terms[0];
    term.factor = 0;
    term.box = NULL;
    term.box_count = 0;
    return tocsin_relation_of_term(universe, &term, relation->shape, relation->ndim);
}

static bool is_of_one_term(const tocsin_relation *relation)
{
    return !relation->segmented && relation->count == 1 &&
           relation->terms[0].atom != TOCSIN_ATOM_ID_ONE;
}

static bool add_candidate(tocsin_universe *universe, struct tocsin_alignments *alignments,
                          tocsin_relation_id id)
{
    const tocsin_atom_id atom = tocsin_relation_get(universe, id)->terms[0].atom;
    if (tocsin_map_find(&alignments->seen, id) != NULL)
        return true;
    uint64_t *head = tocsin_map_at(&alignments->by_atom, atom);
    if (head == NULL || !tocsin_map_put(&alignments->seen, id, 1) ||
        !TOCSIN_VEC_PUSH(&alignments->candidates,
                         (struct candidate){.relation = id, .next = (uint32_t)*head}))
        return false;
    *head = alignments->candidates.count;
    return true;
}

/* The index, made at its first use. NULL: out of memory. */
static const struct tocsin_alignments *alignments_of(tocsin_universe *universe)
{
    if (universe->alignments != NULL)
        return universe->alignments;
    struct tocsin_alignments *made = tocsin_zalloc(1, sizeof *made);
    bool done = made != NULL;
    const size_t count = universe->relations.count;
    for (size_t i = 0; done && i < count; i++) {
        const struct tocsin_stored_relation *stored = universe->relations.items[i];
        if (!stored->registered || !is_of_one_term(&stored->view))
            continue;
        const tocsin_relation_id id = bare(universe, &stored->view);
        done = id != 0 && add_candidate(universe, made, id);
    }
    universe->alignments = made;
    if (!done)
        tocsin_universe_fail(universe, TOCSIN_E_MEMORY);
    return done ? made : NULL;
}

/* ---- one candidate --------------------------------------------------------------------------- */

/* The index along every axis of the atom at the term's first element. false: overflow. */
static bool first_indices(const tocsin_term *term, tocsin_affine index[AXES_MAX])
{
    memset(index, 0, AXES_MAX * sizeof index[0]);
    for (uint32_t i = 0; i < term->digit_total + term->pinned_count; i++) {
        const tocsin_digit *digit = &term->digits[i];
        tocsin_affine share;
        if (digit->axis == TOCSIN_DIGIT_BROADCAST)
            continue;
        assert(digit->axis < AXES_MAX);
        if (!tocsin_affine_scale(&digit->start, digit->stride, &share) ||
            !tocsin_affine_add(&index[digit->axis], &share, &index[digit->axis]))
            return false;
    }
    return true;
}

/* The digit of the dims with the largest stride below `below` along the axis, or NULL. */
static const tocsin_digit *next_digit(const tocsin_term *term, uint32_t axis, int64_t below)
{
    const tocsin_digit *best = NULL;
    for (uint32_t i = 0; i < term->digit_total; i++)
        if (term->digits[i].axis == axis && term->digits[i].stride < below &&
            (best == NULL || term->digits[i].stride > best->stride))
            best = &term->digits[i];
    return best;
}

/* The dim of a digit of the term, and how many elements of the dim one step of it covers. */
static uint8_t dim_of(const tocsin_term *term, const tocsin_digit *digit, int64_t *inner)
{
    const uint32_t at = (uint32_t)(digit - term->digits);
    uint32_t end = 0;
    uint8_t dim = 0;

    for (end = term->digit_count[0]; end <= at; end += term->digit_count[dim])
        dim++;
    *inner = 1;
    for (uint32_t i = at + 1; i < end; i++)
        *inner *= term->digits[i].count;
    return dim;
}

/* Where in the dims of `whole` the term `part` begins; 0 along what `whole` repeats. */
static bool guess_starts(const tocsin_term *whole, const tocsin_term *part, uint8_t ndim,
                         tocsin_affine *starts)
{
    tocsin_affine from[AXES_MAX], to[AXES_MAX], share;

    if (!first_indices(whole, from) || !first_indices(part, to))
        return false;
    for (uint8_t d = 0; d < ndim; d++)
        starts[d] = tocsin_affine_of(0);
    for (uint32_t axis = 0; axis < AXES_MAX; axis++) {
        const tocsin_digit *digit;
        int64_t inner;
        if (!tocsin_affine_subtract(&to[axis], &from[axis], &to[axis]))
            return false;
        for (int64_t below = INT64_MAX; (digit = next_digit(whole, axis, below)) != NULL;
             below = digit->stride) {
            const tocsin_affine steps = tocsin_affine_divide(&to[axis], digit->stride);
            const uint8_t dim = dim_of(whole, digit, &inner);
            to[axis] = tocsin_affine_remainder(&to[axis], digit->stride, &steps);
            if (!tocsin_affine_scale(&steps, inner, &share) ||
                !tocsin_affine_add(&share, &starts[dim], &starts[dim]))
                return false;
        }
    }
    return true;
}

/* The candidate's slice that has the elements of `part`, or 0. */
static tocsin_relation_id slice_like(tocsin_universe *universe, tocsin_relation_id candidate,
                                     tocsin_relation_id part,
                                     const int64_t size[TOCSIN_SYMBOL_COUNT])
{
    const tocsin_relation *whole = tocsin_relation_get(universe, candidate);
    const tocsin_relation *relation = tocsin_relation_get(universe, part);
    tocsin_affine starts[TOCSIN_PLAN_NDIM_MAX];

    if (whole->ndim != relation->ndim || whole->ndim == 0)
        return 0;
    for (uint8_t d = 0; d < whole->ndim; d++)
        if (relation->shape[d] > whole->shape[d])
            return 0;
    if (!guess_starts(&whole->terms[0], &relation->terms[0], whole->ndim, starts))
        return 0;
    const tocsin_relation_id cut =
        tocsin_relation_cut(universe, candidate, starts, relation->shape, size);
    return cut != 0 && tocsin_relation_same_value(universe, cut, part) ? cut : 0;
}

/* The slice with the factor and the box of `like`. */
static tocsin_relation_id dressed(tocsin_universe *universe, tocsin_relation_id slice,
                                  const tocsin_relation *like)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, slice);
    if (!is_of_one_term(relation))
        return 0;
    tocsin_term term = relation->terms[0];
    term.factor = like->terms[0].factor;
    term.box = like->terms[0].box;
    term.box_count = like->terms[0].box_count;
    return tocsin_relation_of_term(universe, &term, relation->shape, relation->ndim);
}

uint32_t tocsin_relation_realign(tocsin_universe *universe, tocsin_relation_id id,
                                 const int64_t size[TOCSIN_SYMBOL_COUNT], tocsin_relation_id *forms,
                                 uint32_t limit)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    const struct tocsin_alignments *alignments = NULL;
    uint32_t count = 0;

    if (is_of_one_term(relation))
        alignments = alignments_of(universe);
    if (alignments == NULL)
        return 0;
    const uint64_t *head = tocsin_map_find(&alignments->by_atom, relation->terms[0].atom);
    const tocsin_relation_id part = head == NULL ? 0 : bare(universe, relation);
    uint32_t next = part == 0 ? 0 : (uint32_t)*head;
    for (uint32_t tried = 0; next != 0 && tried < CANDIDATES_MAX && count < limit; tried++) {
        const struct candidate *candidate = &alignments->candidates.items[next - 1];
        const tocsin_relation_id slice = slice_like(universe, candidate->relation, part, size);
        const tocsin_relation_id form = slice == 0 ? 0 : dressed(universe, slice, relation);
        bool is_new = form != 0 && form != id;
        for (uint32_t i = 0; is_new && i < count; i++)
            is_new = forms[i] != form;
        if (is_new)
            forms[count++] = form;
        next = candidate->next;
    }
    return count;
}

bool tocsin_relation_is_logical_slice(tocsin_universe *universe, tocsin_relation_id id,
                                      const int64_t size[TOCSIN_SYMBOL_COUNT])
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    const struct tocsin_alignments *alignments = NULL;

    if (is_of_one_term(relation))
        alignments = alignments_of(universe);
    if (alignments == NULL)
        return false;
    const uint64_t *head = tocsin_map_find(&alignments->by_atom, relation->terms[0].atom);
    const tocsin_relation_id part = head == NULL ? 0 : bare(universe, relation);
    uint32_t next = part == 0 ? 0 : (uint32_t)*head;
    for (uint32_t tried = 0; next != 0 && tried < CANDIDATES_MAX; tried++) {
        const struct candidate *candidate = &alignments->candidates.items[next - 1];
        if (slice_like(universe, candidate->relation, part, size) != 0)
            return true;
        next = candidate->next;
    }
    return false;
}

/* ---- concatenations -------------------------------------------------------------------------- */

static bool is_like(const tocsin_relation *piece, const tocsin_relation *first)
{
    return is_of_one_term(piece) && piece->terms[0].atom == first->terms[0].atom &&
           piece->terms[0].factor == first->terms[0].factor &&
           tocsin_term_same_box(&piece->terms[0], &first->terms[0]);
}

/* The candidate's slice of which the pieces of `relation`, all of one atom, are the parts, or 0. */
static tocsin_relation_id slice_of_pieces(tocsin_universe *universe, tocsin_relation_id candidate,
                                          const tocsin_relation *relation,
                                          const int64_t size[TOCSIN_SYMBOL_COUNT])
{
    const tocsin_relation *whole = tocsin_relation_get(universe, candidate);
    const tocsin_relation *first = tocsin_relation_get(universe, relation->segments[0]);
    tocsin_affine starts[TOCSIN_PLAN_NDIM_MAX], begin[TOCSIN_PLAN_NDIM_MAX];

    if (whole->ndim != relation->ndim)
        return 0;
    for (uint8_t d = 0; d < whole->ndim; d++)
        if (relation->shape[d] > whole->shape[d])
            return 0;
    if (!guess_starts(&whole->terms[0], &first->terms[0], whole->ndim, begin))
        return 0;
    memcpy(starts, begin, sizeof starts);
    for (uint32_t i = 0; i < relation->count; i++) {
        const tocsin_relation *piece = tocsin_relation_get(universe, relation->segments[i]);
        const tocsin_relation_id own = bare(universe, piece);
        const tocsin_relation_id cut =
            tocsin_relation_cut(universe, candidate, starts, piece->shape, size);
        if (own == 0 || cut == 0 || !tocsin_relation_same_value(universe, cut, own))
            return 0;
        starts[relation->segment_dim].base += piece->shape[relation->segment_dim];
    }
    return tocsin_relation_cut(universe, candidate, begin, relation->shape, size);
}

tocsin_relation_id tocsin_relation_realign_pieces(tocsin_universe *universe, tocsin_relation_id id,
                                                  const int64_t size[TOCSIN_SYMBOL_COUNT])
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);

    if (!relation->segmented)
        return id;
    const tocsin_relation *first = tocsin_relation_get(universe, relation->segments[0]);
    if (!is_of_one_term(first))
        return id;
    for (uint32_t i = 1; i < relation->count; i++)
        if (!is_like(tocsin_relation_get(universe, relation->segments[i]), first))
            return id;
    const struct tocsin_alignments *alignments = alignments_of(universe);
    const uint64_t *head =
        alignments == NULL ? NULL : tocsin_map_find(&alignments->by_atom, first->terms[0].atom);
    uint32_t next = head == NULL ? 0 : (uint32_t)*head;
    for (uint32_t tried = 0; next != 0 && tried < CANDIDATES_MAX; tried++) {
        const struct candidate *candidate = &alignments->candidates.items[next - 1];
        const tocsin_relation_id slice =
            slice_of_pieces(universe, candidate->relation, relation, size);
        const tocsin_relation_id made = slice == 0 ? 0 : dressed(universe, slice, first);
        if (made != 0)
            return made;
        next = candidate->next;
    }
    return id;
}
