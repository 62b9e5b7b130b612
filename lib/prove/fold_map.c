/* fold_map.c - a relation as a rearranged part of a definition.
 *
 * A sum may be viewed or permuted before it meets an operator that wants one term, and be defined
 * in another shape than it has there; and what is one range of every dim in one shape need not be
 * one in another (a flattened [batch, tokens] of which a rank has all of the batch and some of the
 * tokens). A relation R is a rearranged part of the definition D when R = D o M for a map M from
 * the dims of R to those of D.
 *
 * Each term of D says which span of an atom's axis each span of D's dims is: a list of *links*.
 * Guess: through the links of a term of D, the digits of R's term of the same atom become digits
 * over D's dims; what this term repeats, others tell. Verify: through the links the other way
 * round, the guessed digits become a map for every term of D; the sum must have the same elements
 * as R. A wrong guess costs time, never soundness.
 *
 * Cost: per guess, linear in the terms of R and D, quadratic in the digits of one term (a few), and
 * three internings.
 */
#include "prove/fold.h"

#include <assert.h>

enum { NDIM_MAX = TOCSIN_PLAN_NDIM_MAX, ENTRIES_MAX = TOCSIN_DRAFT_DIGITS_MAX };

/* Digits with their dims, in order of the dims; those of dim `ndim` are pinned. */
typedef struct map {
    uint32_t count;
    uint8_t dim[ENTRIES_MAX];
    tocsin_digit digits[ENTRIES_MAX];
} map;

static bool push(map *to, const tocsin_digit *digit, uint8_t dim)
{
    if (to->count == ENTRIES_MAX)
        return false;
    to->dim[to->count] = dim;
    to->digits[to->count++] = *digit;
    return true;
}

static bool is_broadcast(const tocsin_digit *digit)
{
    return digit->axis == TOCSIN_DIGIT_BROADCAST;
}

static map map_of(const tocsin_term *term, uint8_t ndim)
{
    map made;
    uint32_t next = 0;

    made.count = term->digit_total + term->pinned_count;
    assert(made.count <= ENTRIES_MAX);
    memcpy(made.digits, term->digits, made.count * sizeof made.digits[0]);
    for (uint8_t d = 0; d < ndim; d++)
        for (uint8_t i = 0; i < term->digit_count[d]; i++)
            made.dim[next++] = d;
    while (next < made.count)
        made.dim[next++] = ndim;
    return made;
}

/* ---- links ----------------------------------------------------------------------------------- */

/* (index along axis / stride) mod extent is `first` at the link's first element. */
typedef struct span {
    uint32_t axis; /* or dim; or TOCSIN_DIGIT_BROADCAST */
    int64_t stride, extent, first;
} span;

/* `count` steps of the one go along with those of the other. */
typedef struct fold_link {
    span from, to;
} fold_link;

typedef struct link_list {
    uint32_t count;
    fold_link items[ENTRIES_MAX];
} link_list;

/* From the atom's axes to the dims that have this term, or from the dims to the axes. */
static bool make_links(const tocsin_term *term, uint8_t ndim, bool to_dims, link_list *made)
{
    const tocsin_digit *digit = term->digits;

    made->count = 0;
    for (uint8_t d = 0; d < ndim; d++) {
        int64_t inner = 1;
        for (uint8_t i = 0; i < term->digit_count[d]; i++)
            inner *= digit[i].count;
        for (uint8_t i = 0; i < term->digit_count[d]; i++, digit++) {
            inner /= digit->count;
            if (digit->count == 1)
                continue;
            if (made->count == ENTRIES_MAX || !tocsin_affine_is_constant(&digit->start))
                return false;
            const span atom = {digit->axis, digit->stride, digit->extent, digit->start.base};
            const span dim = {d, inner, digit->count, 0};
            made->items[made->count++] = to_dims ? (fold_link){.from = atom, .to = dim}
                                                 : (fold_link){.from = dim, .to = atom};
        }
    }
    return true;
}

/* The link that begins highest below `below` on the axis, or NULL. */
static const fold_link *link_below(const link_list *links, uint32_t axis, int64_t below)
{
    const fold_link *best = NULL;
    for (uint32_t i = 0; i < links->count; i++) {
        const fold_link *link = &links->items[i];
        if (link->from.axis == axis && link->from.stride < below &&
            (best == NULL || link->from.stride > best->from.stride))
            best = link;
    }
    return best;
}

/* A digit within the link's span, in terms of the other side. */
static bool cross(const fold_link *link, const tocsin_digit *digit,
                  const int64_t size[TOCSIN_SYMBOL_COUNT], tocsin_digit *made)
{
    const span *from = &link->from, *to = &link->to;
    int64_t low, high;

    *made = *digit;
    if (to->axis == TOCSIN_DIGIT_BROADCAST) {
        *made = (tocsin_digit){.axis = TOCSIN_DIGIT_BROADCAST,
                               .stride = 1,
                               .extent = digit->count,
                               .count = digit->count};
        return true;
    }
    const int64_t ratio = digit->stride / from->stride;
    const bool top = digit->stride * digit->extent == from->stride * from->extent;
    const int64_t unit = top ? ratio : ratio * digit->extent;
    if (digit->stride % from->stride != 0 || from->first % unit != 0 || to->first % unit != 0 ||
        to->extent % unit != 0)
        return false;
    made->axis = to->axis;
    made->stride = to->stride * ratio; /* at most the size of the axis or dim */
    if (top) {
        made->extent = to->extent / ratio;
        made->start.base += (to->first - from->first) / ratio;
    }
    return tocsin_affine_bounds(&made->start, size, &low, &high) && low >= 0 &&
           high <= made->extent - made->count;
}

/* Translate a digit, cut at the borders of the links. A part of count 1 that no link has is left
 * out. */
static bool translate(const link_list *links, const tocsin_digit *digit,
                      const int64_t size[TOCSIN_SYMBOL_COUNT], uint8_t dim, map *to)
{
    tocsin_digit whole[TOCSIN_DIGITS_MAX];
    const fold_link *over[TOCSIN_DIGITS_MAX];
    uint32_t count = 0;
    int64_t below = digit->stride * digit->extent, where;
    tocsin_draft cut;

    if (is_broadcast(digit))
        return push(to, digit, dim);
    while (below > digit->stride) {
        const fold_link *link = link_below(links, digit->axis, below);
        const int64_t end = link == NULL ? 1 : link->from.stride * link->from.extent;
        const bool inside = end >= below;
        int64_t low = link == NULL ? 1 : inside ? link->from.stride : end;
        low = low < digit->stride ? digit->stride : low;
        if (below % low != 0 || count == TOCSIN_COUNT_OF(whole))
            return false;
        whole[count] = (tocsin_digit){
            .axis = digit->axis, .stride = low, .extent = below / low, .count = below / low};
        over[count++] = inside ? link : NULL;
        below = low;
    }
    cut.total = 0;
    cut.full = false;
    if (tocsin_digits_cut(whole, count, digit->start, digit->count, size, &cut, &where) !=
            TOCSIN_CUT_DONE ||
        cut.total != count)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        tocsin_digit made;
        if (over[i] == NULL && cut.digits[i].count == 1)
            continue;
        if (over[i] == NULL || !cross(over[i], &cut.digits[i], size, &made) ||
            !push(to, &made, dim))
            return false;
    }
    return true;
}

static bool translate_all(const link_list *links, const map *from,
                          const int64_t size[TOCSIN_SYMBOL_COUNT], map *to)
{
    to->count = 0;
    for (uint32_t i = 0; i < from->count; i++)
        if (!translate(links, &from->digits[i], size, from->dim[i], to))
            return false;
    return true;
}

/* ---- guessing -------------------------------------------------------------------------------- */

/* Does some digit have a part of the same span? */
static bool overlaps(const map *in, const tocsin_digit *digit)
{
    for (uint32_t i = 0; i < in->count; i++) {
        const tocsin_digit *other = &in->digits[i];
        if (other->axis == digit->axis && other->stride < digit->stride * digit->extent &&
            digit->stride < other->stride * other->extent)
            return true;
    }
    return false;
}

/* Which part of every dim of the atom the digits are about: 1 to its size. */
static void sizes_covered(const map *guess, const tocsin_atom *atom, int64_t covered[NDIM_MAX])
{
    for (uint8_t d = 0; d < atom->ndim; d++)
        covered[d] = 1;
    for (uint32_t i = 0; i < guess->count; i++) {
        const tocsin_digit *digit = &guess->digits[i];
        if (!is_broadcast(digit) &&
            __builtin_mul_overflow(covered[digit->axis], digit->extent, &covered[digit->axis]))
            covered[digit->axis] = 0;
    }
}

static bool says_all(const map *guess, const tocsin_atom *atom)
{
    int64_t covered[NDIM_MAX];
    bool all = true;

    sizes_covered(guess, atom, covered);
    for (uint8_t d = 0; d < atom->ndim; d++)
        all &= covered[d] == atom->shape[d];
    for (uint32_t i = 0; i < guess->count; i++)
        all &= !is_broadcast(&guess->digits[i]);
    return all;
}

/* A dim that no digit is about repeats in all terms: any index will do. */
static bool pin_rest(map *guess, const tocsin_atom *atom, uint8_t ndim)
{
    int64_t covered[NDIM_MAX];

    sizes_covered(guess, atom, covered);
    for (uint8_t d = 0; d < atom->ndim; d++) {
        const tocsin_digit any = {.axis = d, .stride = 1, .extent = atom->shape[d], .count = 1};
        if (covered[d] != atom->shape[d] && (covered[d] != 1 || !push(guess, &any, ndim)))
            return false;
    }
    return true;
}

typedef struct cursor {
    const map *in;
    uint32_t next;
    bool split; /* `rest` is what is left of digit `next` */
    tocsin_digit rest;
} cursor;

static const tocsin_digit *peek(const cursor *at, uint8_t dim)
{
    if (at->split)
        return &at->rest;
    return at->next < at->in->count && at->in->dim[at->next] == dim ? &at->in->digits[at->next]
                                                                    : NULL;
}

/* The outermost part of the digit at the cursor, of `count` steps. */
static bool take(cursor *at, int64_t count, tocsin_digit *taken)
{
    tocsin_digit digit = at->split ? at->rest : at->in->digits[at->next];

    *taken = digit;
    at->split = digit.count != count;
    at->next += !at->split;
    return !at->split || (digit.count % count == 0 &&
                          tocsin_digit_split(&digit, digit.count / count, taken, &at->rest));
}

/* What `guess` repeats and `other` does not is taken from `other`. false: they do not fit. */
static bool complete_with(map *guess, const map *other, uint8_t ndim)
{
    map made = {.count = 0};
    cursor left = {.in = guess}, right = {.in = other};
    tocsin_digit a, b;

    for (uint8_t dim = 0; dim <= ndim; dim++) {
        for (;;) {
            const tocsin_digit *one = peek(&left, dim), *two = peek(&right, dim);
            bool fits = true;
            if (one == NULL && two == NULL)
                break;
            if (one != NULL && one->count == 1) {
                fits = take(&left, 1, &a) && push(&made, &a, dim);
            } else if (two != NULL && two->count == 1) {
                fits = take(&right, 1, &b) && (overlaps(guess, &b) || push(&made, &b, dim));
            } else {
                const int64_t count = one == NULL || two == NULL ? 0
                                      : one->count < two->count  ? one->count
                                                                 : two->count;
                fits = count > 0 && take(&left, count, &a) && take(&right, count, &b) &&
                       push(&made, is_broadcast(&a) ? &b : &a, dim);
            }
            if (!fits)
                return false;
        }
    }
    *guess = made;
    return true;
}

typedef struct folding {
    tocsin_relation_id id;
    const tocsin_relation *relation;
    tocsin_atom_id definition;
    const tocsin_atom *atom;
    const tocsin_relation *whole; /* what it is defined as */
    const int64_t *size;
} folding;

/* Ask the other terms for what the first repeats. false: part of a dim stays unknown. */
static bool complete(const folding *fold, map *guess)
{
    const tocsin_relation *relation = fold->relation, *whole = fold->whole;
    link_list links;

    for (uint32_t m = 0; m < relation->count; m++) {
        const map own = map_of(&relation->terms[m], relation->ndim);
        for (uint32_t k = 0; k < whole->count; k++) {
            map other;
            if (says_all(guess, fold->atom))
                return true;
            if (whole->terms[k].atom == relation->terms[m].atom &&
                make_links(&whole->terms[k], whole->ndim, true, &links) &&
                translate_all(&links, &own, fold->size, &other))
                complete_with(guess, &other, relation->ndim);
        }
    }
    return pin_rest(guess, fold->atom, relation->ndim);
}

/* ---- verifying ------------------------------------------------------------------------------- */

/* `term` with another map, in scratch. false: out of memory. */
static bool term_of_map(tocsin_universe *universe, const tocsin_term *term, const map *by,
                        uint8_t ndim, tocsin_term *made)
{
    tocsin_digit *digits = TOCSIN_SCRATCH(universe, tocsin_digit, by->count);
    uint8_t *counts = TOCSIN_SCRATCH(universe, uint8_t, NDIM_MAX + 1);
    uint32_t total = 0;

    if (digits == NULL || counts == NULL)
        return false;
    for (uint8_t d = 0; d <= ndim; d++) {
        const uint32_t before = total;
        for (uint32_t i = 0; i < by->count; i++)
            if (by->dim[i] == d)
                digits[total++] = by->digits[i];
        if (d < ndim && total - before > TOCSIN_DIGITS_MAX)
            return false;
        counts[d] = (uint8_t)(total - before);
    }
    assert(total == by->count);
    *made = *term;
    made->digit_count = counts;
    made->digits = digits;
    made->digit_total = total - counts[ndim];
    made->pinned_count = counts[ndim];
    return made->pinned_count <= TOCSIN_PINNED_MAX;
}

/* The term of the definition behind `by`. */
static bool compose(const folding *fold, const tocsin_term *term, const map *by, map *made)
{
    const uint8_t ndim = fold->relation->ndim;
    const map own = map_of(term, fold->whole->ndim);
    link_list links;

    if (!make_links(term, fold->whole->ndim, false, &links) ||
        !translate_all(&links, by, fold->size, made))
        return false;
    for (uint32_t i = 0; i < own.count; i++)
        if (own.digits[i].count == 1 && !push(made, &own.digits[i], ndim))
            return false;
    return true;
}

/* The definition behind `by`. */
static tocsin_relation_id composed(tocsin_universe *universe, const folding *fold, const map *by)
{
    const tocsin_relation *relation = fold->relation, *whole = fold->whole;
    const tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    tocsin_term *terms = TOCSIN_SCRATCH(universe, tocsin_term, whole->count);
    tocsin_relation_id made = 0;
    map own;

    for (uint32_t k = 0; terms != NULL && k < whole->count; k++)
        if (!compose(fold, &whole->terms[k], by, &own) ||
            !term_of_map(universe, &whole->terms[k], &own, relation->ndim, &terms[k]))
            goto out;
    if (terms != NULL)
        made = tocsin_relation_of_terms(universe, terms, whole->count, relation->shape,
                                        relation->ndim);
out:
    tocsin_scratch_reset(universe, mark);
    return made;
}

static tocsin_relation_id verify(tocsin_universe *universe, const folding *fold, const map *guess,
                                 const tocsin_fold_shared *shared)
{
    const tocsin_relation *relation = fold->relation;
    const tocsin_term bare = {.atom = fold->definition};
    tocsin_relation_id made = composed(universe, fold, guess);
    tocsin_term term;

    if (made != 0)
        made = tocsin_fold_with_shared(universe, made, shared);
    if (made == 0 || !tocsin_relation_same_value(universe, made, fold->id))
        return 0;
    const tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    made = 0;
    if (term_of_map(universe, &bare, guess, relation->ndim, &term))
        made = tocsin_relation_of_term(universe, &term, relation->shape, relation->ndim);
    tocsin_scratch_reset(universe, mark);
    return made == 0 ? 0 : tocsin_fold_with_shared(universe, made, shared);
}

static bool fits(const tocsin_relation *relation)
{
    if (relation->segmented || relation->count == 0)
        return false;
    for (uint32_t k = 0; k < relation->count; k++)
        if (relation->terms[k].digit_total + relation->terms[k].pinned_count > ENTRIES_MAX)
            return false;
    return true;
}

tocsin_relation_id tocsin_fold_by_map(tocsin_universe *universe, tocsin_relation_id id,
                                      tocsin_atom_id definition,
                                      const int64_t size[TOCSIN_SYMBOL_COUNT], uint32_t *attempts)
{
    const tocsin_atom *atom = tocsin_atom_get(universe, definition);
    const folding fold = {.id = id,
                          .relation = tocsin_relation_get(universe, id),
                          .definition = definition,
                          .atom = atom,
                          .whole = tocsin_relation_get(universe, atom->operands[0]),
                          .size = size};

    if (!fits(fold.relation) || !fits(fold.whole))
        return 0;
    const tocsin_term *part = &fold.relation->terms[0];
    const map own = map_of(part, fold.relation->ndim);
    for (uint32_t k = 0; k < fold.whole->count; k++) {
        const tocsin_term *term = &fold.whole->terms[k];
        tocsin_fold_shared shared;
        link_list links;
        map guess;
        if (term->atom != part->atom)
            continue;
        if (*attempts == 0)
            return 0;
        --*attempts;
        if (!tocsin_fold_guess_shared(universe, term, part, &shared) ||
            !make_links(term, fold.whole->ndim, true, &links) ||
            !translate_all(&links, &own, size, &guess) || !complete(&fold, &guess))
            continue;
        const tocsin_relation_id made = verify(universe, &fold, &guess, &shared);
        if (made != 0)
            return made;
    }
    return 0;
}
