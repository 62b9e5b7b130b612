/* relation_segment.c - concatenation: pieces along a dim, and joining those that continue one
 * another.
 *
 * Two pieces continue one another when their terms pair up with equal atom, factor, box and maps
 * but for the dim in hand, and there, after equal digits of count 1, either the next digit of the
 * second piece begins where that of the first ends, with all digits within it equal, or all is
 * equal and repeats (a broadcast digit). An *open* piece grows in scratch, so that joining n pieces
 * interns one relation and not n. Cost: linear in the words of the pieces, for one or few terms
 * each.
 */
#include <assert.h>

#include "prove/universe.h"

enum { TERMS_MATCHED_MAX = 64 }; /* more terms than that are compared in their own order only */

struct open_piece {
    tocsin_relation_id id; /* while it is a whole relation; 0: grown */
    tocsin_term *terms;    /* in scratch once grown */
    uint32_t count;
    int64_t length; /* along the dim; 0: there is none */
};

struct joining {
    tocsin_universe *universe;
    uint32_t dim;
    uint8_t ndim;
    int64_t shape[TOCSIN_PLAN_NDIM_MAX];
    tocsin_relation_id *closed;
    uint32_t closed_count;
    struct open_piece open;
};

/* ---- digits of the dim ----------------------------------------------------------------------- */

static uint32_t first_digit(const tocsin_term *term, uint32_t dim)
{
    uint32_t first = 0;
    for (uint32_t i = 0; i < dim; ++i)
        first += term->digit_count[i];
    return first;
}

static bool same_digits(const tocsin_digit *a, const tocsin_digit *b, uint32_t count)
{
    return count == 0 || memcmp(a, b, count * sizeof *a) == 0;
}

static bool repeats(const tocsin_digit *digits, uint32_t count, uint32_t at)
{
    return at < count && digits[at].axis == TOCSIN_DIGIT_BROADCAST;
}

/* a and b are equal but for how often they repeat what stands from digit `at` on. */
static bool join_repeated(const tocsin_digit *a, uint32_t a_count, const tocsin_digit *b,
                          uint32_t b_count, uint32_t at, tocsin_digit *joined, uint32_t *count)
{
    const uint32_t a_rest = at + repeats(a, a_count, at), b_rest = at + repeats(b, b_count, at);
    int64_t times;
    if (a_count - a_rest != b_count - b_rest || !same_digits(a, b, at) ||
        !same_digits(a + a_rest, b + b_rest, a_count - a_rest) ||
        __builtin_add_overflow(a_rest > at ? a[at].count : 1, b_rest > at ? b[at].count : 1,
                               &times))
        return false;
    if (at)
        memcpy(joined, a, at * sizeof *a);
    joined[at] = (tocsin_digit){
        .axis = TOCSIN_DIGIT_BROADCAST, .stride = 1, .extent = times, .count = times};
    if (a_count > a_rest)
        memcpy(joined + at + 1, a + a_rest, (a_count - a_rest) * sizeof *a);
    *count = at + 1 + a_count - a_rest;
    return true;
}

/* The digits of a followed by b, in `joined` (room for one more than a has); 0 < *count. */
static bool join_digits(const tocsin_digit *a, uint32_t a_count, const tocsin_digit *b,
                        uint32_t b_count, tocsin_digit *joined, uint32_t *count)
{
    uint32_t at = 0;
    while (at < a_count && at < b_count && a[at].count == 1 && same_digits(a + at, b + at, 1))
        ++at;
    if (a_count == b_count && at < a_count && a[at].axis == b[at].axis &&
        a[at].axis != TOCSIN_DIGIT_BROADCAST && a[at].stride == b[at].stride &&
        a[at].extent == b[at].extent && tocsin_affine_same_weights(&a[at].start, &b[at].start) &&
        b[at].start.base - a[at].count == a[at].start.base &&
        b[at].count <= a[at].extent - a[at].count &&
        same_digits(a + at + 1, b + at + 1, a_count - at - 1)) {
        memcpy(joined, a, a_count * sizeof *a);
        joined[at].count += b[at].count;
        *count = a_count;
        return true;
    }
    if (!repeats(a, a_count, at) && !repeats(b, b_count, at))
        at = 0;
    return join_repeated(a, a_count, b, b_count, at, joined, count);
}

/* ---- terms ----------------------------------------------------------------------------------- */

/* a followed by b as one term in scratch; *joined: they continue one another. false: failed. */
static bool join_terms(struct joining *joining, const tocsin_term *a, const tocsin_term *b,
                       tocsin_term *result, bool *joined)
{
    uint32_t dim = joining->dim, first = first_digit(a, dim);
    uint32_t a_count = a->digit_count[dim], b_count = b->digit_count[dim];
    uint32_t a_after = a->digit_total + a->pinned_count - first - a_count;
    uint32_t b_after = b->digit_total + b->pinned_count - first - b_count;
    *joined = false;
    if (a->atom != b->atom || a->factor != b->factor || !tocsin_term_same_box(a, b) ||
        a->pinned_count != b->pinned_count || a_after != b_after ||
        memcmp(a->digit_count, b->digit_count, dim) != 0 ||
        memcmp(a->digit_count + dim + 1, b->digit_count + dim + 1, joining->ndim - dim - 1) != 0 ||
        !same_digits(a->digits, b->digits, first) ||
        !same_digits(a->digits + first + a_count, b->digits + first + b_count, a_after))
        return true;
    tocsin_digit *digits =
        TOCSIN_SCRATCH(joining->universe, tocsin_digit, first + a_count + 1 + a_after);
    uint8_t *counts = TOCSIN_SCRATCH(joining->universe, uint8_t, joining->ndim);
    if (!digits || !counts)
        return false;
    uint32_t count;
    if (!join_digits(a->digits + first, a_count, b->digits + first, b_count, digits + first,
                     &count))
        return true;
    if (first)
        memcpy(digits, a->digits, first * sizeof *digits);
    if (a_after)
        memcpy(digits + first + count, a->digits + first + a_count, a_after * sizeof *digits);
    memcpy(counts, a->digit_count, joining->ndim);
    counts[dim] = (uint8_t)count;
    *result = *a;
    result->digits = digits;
    result->digit_count = counts;
    result->digit_total = a->digit_total - a_count + count;
    *joined = true;
    return true;
}

/* Pair each term of `open` with one of `next`, and join all. *joined: it went up. false: failed. */
static bool join_all(struct joining *joining, const struct open_piece *open,
                     const struct open_piece *next, tocsin_term *result, bool *joined)
{
    uint32_t count = open->count;
    bool taken[TERMS_MATCHED_MAX] = {false};
    *joined = count == next->count;
    for (uint32_t i = 0; i < count && *joined; ++i) {
        bool found = false;
        if (count > TERMS_MATCHED_MAX) {
            if (!join_terms(joining, &open->terms[i], &next->terms[i], &result[i], &found))
                return false;
        }
        for (uint32_t j = 0; j < count && count <= TERMS_MATCHED_MAX && !found; ++j) {
            if (taken[j])
                continue;
            if (!join_terms(joining, &open->terms[i], &next->terms[j], &result[i], &found))
                return false;
            taken[j] = found;
        }
        *joined = found;
    }
    return true;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static struct open_piece piece_of(const struct joining *joining, tocsin_relation_id id)
{
    const tocsin_relation *relation = tocsin_relation_get(joining->universe, id);
    struct open_piece piece = {.id = id, .length = relation->shape[joining->dim]};
    if (!relation->segmented) {
        piece.terms = (tocsin_term *)relation->terms; /* read only until it has grown */
        piece.count = relation->count;
    }
    return piece;
}

/* first followed by second as the open piece, when the one continues the other. false: failed. */
static bool grow(struct joining *joining, const struct open_piece *first,
                 const struct open_piece *second, bool *joined)
{
    *joined = false;
    if (first->length == 0 || !first->terms || !second->terms)
        return true;
    tocsin_term *terms = TOCSIN_SCRATCH(joining->universe, tocsin_term, first->count);
    if (!terms || !join_all(joining, first, second, terms, joined))
        return false;
    if (*joined)
        joining->open = (struct open_piece){
            .terms = terms, .count = first->count, .length = first->length + second->length};
    return true;
}

/* The open piece becomes one of the closed ones. When either has grown since they met (parts of a
 * row to a row), it may now continue the last of these. */
static bool close_piece(struct joining *joining)
{
    struct open_piece *open = &joining->open;
    if (open->length == 0)
        return true;
    bool joined = true;
    while (joined && joining->closed_count > 0) {
        struct open_piece last = piece_of(joining, joining->closed[joining->closed_count - 1]);
        if (!grow(joining, &last, open, &joined))
            return false;
        joining->closed_count -= joined;
    }
    if (!open->id) {
        int64_t shape[TOCSIN_PLAN_NDIM_MAX];
        memcpy(shape, joining->shape, sizeof shape);
        shape[joining->dim] = open->length;
        open->id = tocsin_relation_of_terms(joining->universe, open->terms, open->count, shape,
                                            joining->ndim);
        if (!open->id)
            return false;
    }
    joining->closed[joining->closed_count++] = open->id;
    open->length = 0;
    return true;
}

static bool add_piece(struct joining *joining, tocsin_relation_id id)
{
    struct open_piece piece = piece_of(joining, id);
    bool joined;
    if (piece.length == 0)
        return true;
    if (!grow(joining, &joining->open, &piece, &joined))
        return false;
    if (joined)
        return true;
    if (!close_piece(joining))
        return false;
    joining->open = piece;
    return true;
}

static bool check_piece(struct joining *joining, const tocsin_relation *piece)
{
    bool fits = piece->ndim == joining->ndim;
    for (uint32_t i = 0; fits && i < piece->ndim; ++i)
        fits = i == joining->dim || piece->shape[i] == joining->shape[i];
    if (!fits)
        return tocsin_universe_refuse(joining->universe, TOCSIN_CAUSE_WRONG_LAYOUT,
                                      "pieces of unequal shapes are joined");
    int64_t *total = &joining->shape[joining->dim];
    if (__builtin_add_overflow(*total, piece->shape[joining->dim], total))
        return tocsin_universe_refuse_overflow(joining->universe);
    return true;
}

/* Pieces that are segmented along the dim count as their segments. */
static bool is_divided(const tocsin_relation *piece, uint32_t dim)
{
    return piece->segmented && piece->segment_dim == dim;
}

static bool add_pieces(struct joining *joining, const tocsin_relation_id *segments, uint32_t count)
{
    for (uint32_t i = 0; i < count; ++i) {
        const tocsin_relation *piece = tocsin_relation_get(joining->universe, segments[i]);
        bool divided = is_divided(piece, joining->dim);
        uint32_t parts = divided ? piece->count : 1;
        for (uint32_t k = 0; k < parts; ++k) {
            if (!add_piece(joining, divided ? piece->segments[k] : segments[i]))
                return false;
        }
    }
    return close_piece(joining);
}

static tocsin_relation_id join_pieces(struct joining *joining, const tocsin_relation_id *segments,
                                      uint32_t count)
{
    tocsin_universe *universe = joining->universe;
    const tocsin_relation *first = tocsin_relation_get(universe, segments[0]);
    assert(joining->dim < first->ndim);
    joining->ndim = first->ndim;
    memcpy(joining->shape, first->shape, first->ndim * sizeof *first->shape);
    joining->shape[joining->dim] = 0;
    size_t total = 0;
    for (uint32_t i = 0; i < count; ++i) {
        const tocsin_relation *piece = tocsin_relation_get(universe, segments[i]);
        if (!check_piece(joining, piece))
            return 0;
        total += is_divided(piece, joining->dim) ? piece->count : 1;
    }
    if (total > TOCSIN_SEGMENTS_MAX)
        return tocsin_universe_fail(universe, TOCSIN_E_LIMIT);
    joining->closed = TOCSIN_SCRATCH(universe, tocsin_relation_id, total);
    if (!joining->closed || !add_pieces(joining, segments, count))
        return 0;
    if (joining->closed_count == 0)
        return segments[0];
    if (joining->closed_count == 1)
        return joining->closed[0];
    return tocsin_relation_intern_segments(universe, joining->closed, joining->closed_count,
                                           joining->dim, joining->shape, joining->ndim);
}

tocsin_relation_id tocsin_relation_of_segments(tocsin_universe *universe,
                                               const tocsin_relation_id *segments, uint32_t count,
                                               uint32_t dim)
{
    assert(count > 0);
    if (universe->status != TOCSIN_OK)
        return 0;
    struct joining joining = {.universe = universe, .dim = dim};
    tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    tocsin_relation_id id = join_pieces(&joining, segments, count);
    tocsin_scratch_reset(universe, mark);
    return id;
}
