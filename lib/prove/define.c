/* define.c - names for logical sums and concatenations, and finding the one that a rank's is a
 * part of.
 *
 * A definition is an atom that equals a relation of several terms or segments. Definitions are
 * found by the set of atoms that occur in them, those in segments also by each single atom, since a
 * rank may hold some of the segments only.
 *
 * To fold a relation R is to guess and to verify. Guess: take a term of R and a term of the
 * definition D of the same atom; the difference of their first indices along the atom's axes says
 * where the slice begins, the quotient of the factors and what the box has in addition are shared
 * by all terms. Verify: cut D there, apply factor and box, and compare the value with R (settle.c).
 * A wrong guess costs time, never soundness. What is no slice may be a part of a definition in
 * another shape (fold_map.c). A logical sum is folded before it is defined, so that a value has one
 * definition in whatever shapes it is used.
 *
 * Cost: a fold cuts one definition, which is linear in its terms; results are remembered.
 */
#include "prove/fold.h"

#include <assert.h>
#include <stdlib.h>

enum { ATOM_AXES_MAX = TOCSIN_PLAN_NDIM_MAX, ATTEMPTS_MAX = 64 /* guesses per fold */ };

struct entry {
    tocsin_atom_id definition;
    uint32_t next; /* index + 1 of the next of the same key */
};

struct tocsin_definitions {
    tocsin_map by_set;  /* hash of the set of atoms -> index + 1 into entries */
    tocsin_map by_atom; /* an atom of a segmented definition -> index + 1 into entries */
    tocsin_map folded;  /* relation -> relation */
    tocsin_intern axes; /* of boxes, beyond those of signatures */
    TOCSIN_VEC(struct entry) entries;
};

void tocsin_definitions_free(struct tocsin_definitions *definitions)
{
    if (definitions == NULL)
        return;
    tocsin_map_free(&definitions->by_set);
    tocsin_map_free(&definitions->by_atom);
    tocsin_map_free(&definitions->folded);
    tocsin_intern_free(&definitions->axes);
    TOCSIN_VEC_FREE(&definitions->entries);
    tocsin_free(definitions);
}

static struct tocsin_definitions *definitions_of(tocsin_universe *universe)
{
    if (universe->definitions == NULL)
        universe->definitions = tocsin_zalloc(1, sizeof *universe->definitions);
    if (universe->definitions == NULL)
        tocsin_universe_fail(universe, TOCSIN_E_MEMORY);
    return universe->definitions;
}

uint16_t tocsin_universe_axis(tocsin_universe *universe, const void *key, size_t bytes)
{
    enum { FIRST = 256 }; /* more than axes of a signature */
    struct tocsin_definitions *definitions = definitions_of(universe);
    const uint32_t number =
        definitions == NULL ? 0 : tocsin_intern_put(&definitions->axes, key, bytes);
    if (definitions != NULL && number == 0)
        tocsin_universe_fail(universe, TOCSIN_E_MEMORY);
    return number == 0 || number > UINT16_MAX - FIRST ? 0 : (uint16_t)(FIRST + number);
}

/* ---- pieces and sets of atoms ---------------------------------------------------------------- */

/* A relation without segments is one piece. Pieces may be in pieces themselves, along other dims.
 */
static uint32_t piece_count(const tocsin_relation *relation)
{
    return relation->segmented ? relation->count : 1;
}

static const tocsin_relation *piece_of(const tocsin_universe *universe,
                                       const tocsin_relation *relation, uint32_t index)
{
    return relation->segmented ? tocsin_relation_get(universe, relation->segments[index])
                               : relation;
}

static bool is_nested(const tocsin_universe *universe, const tocsin_relation *relation)
{
    for (uint32_t i = 0; i < piece_count(relation); i++)
        if (relation->segmented && piece_of(universe, relation, i)->segmented)
            return true;
    return false;
}

/* The first term, NULL of zero. */
static const tocsin_term *first_term(const tocsin_universe *universe,
                                     const tocsin_relation *relation)
{
    const tocsin_term *found = NULL;
    if (!relation->segmented)
        return relation->count > 0 ? relation->terms : NULL;
    for (uint32_t i = 0; found == NULL && i < relation->count; i++)
        found = first_term(universe, piece_of(universe, relation, i));
    return found;
}

static uint32_t term_count(const tocsin_universe *universe, const tocsin_relation *relation)
{
    uint32_t total = relation->segmented ? 0 : relation->count;
    for (uint32_t i = 0; relation->segmented && i < relation->count; i++)
        total += term_count(universe, piece_of(universe, relation, i));
    return total;
}

/* Write the atom of every term; answers where the next one goes. */
static tocsin_atom_id *put_atoms(const tocsin_universe *universe, const tocsin_relation *relation,
                                 tocsin_atom_id *atoms)
{
    for (uint32_t i = 0; i < relation->count; i++)
        if (relation->segmented)
            atoms = put_atoms(universe, piece_of(universe, relation, i), atoms);
        else
            *atoms++ = relation->terms[i].atom;
    return atoms;
}

static int compare_atoms(const void *a, const void *b)
{
    const tocsin_atom_id x = *(const tocsin_atom_id *)a, y = *(const tocsin_atom_id *)b;
    return (x > y) - (x < y);
}

/* The set of atoms, ascending, in scratch; NULL: out of memory. */
static tocsin_atom_id *atoms_of(tocsin_universe *universe, const tocsin_relation *relation,
                                uint32_t *count)
{
    const uint32_t total = term_count(universe, relation);
    uint32_t unique = 0;
    tocsin_atom_id *atoms = TOCSIN_SCRATCH(universe, tocsin_atom_id, total);
    if (atoms == NULL)
        return NULL;
    (void)put_atoms(universe, relation, atoms);
    qsort(atoms, total, sizeof atoms[0], compare_atoms);
    for (uint32_t i = 0; i < total; i++)
        if (unique == 0 || atoms[unique - 1] != atoms[i])
            atoms[unique++] = atoms[i];
    *count = unique;
    return atoms;
}

static uint64_t hash_of_set(const tocsin_atom_id *atoms, uint32_t count)
{
    return tocsin_hash64(atoms, count * sizeof atoms[0], 0);
}

/* ---- the index ------------------------------------------------------------------------------- */

static int64_t elements_of(const tocsin_universe *universe, tocsin_atom_id definition)
{
    const tocsin_atom *atom = tocsin_atom_get(universe, definition);
    int64_t count = 1;
    for (uint8_t d = 0; d < atom->ndim; d++)
        if (__builtin_mul_overflow(count, atom->shape[d], &count))
            return INT64_MAX;
    return count;
}

/* Smaller definitions come first: a value that has a definition of its own is not taken for a part
 * of another one. */
static bool add_entry(tocsin_universe *universe, tocsin_map *map, uint64_t key,
                      tocsin_atom_id definition)
{
    struct tocsin_definitions *definitions = universe->definitions;
    const int64_t elements = elements_of(universe, definition);
    uint64_t *head = tocsin_map_at(map, key);
    if (head == NULL ||
        !TOCSIN_VEC_PUSH(&definitions->entries, (struct entry){.definition = definition}))
        return tocsin_universe_fail(universe, TOCSIN_E_MEMORY) != 0;
    struct entry *entries = definitions->entries.items;
    const uint32_t added = (uint32_t)definitions->entries.count;
    uint32_t before = 0, next = (uint32_t)*head;
    while (next != 0 && elements_of(universe, entries[next - 1].definition) < elements) {
        before = next;
        next = entries[next - 1].next;
    }
    entries[added - 1].next = next;
    if (before == 0)
        *head = added;
    else
        entries[before - 1].next = added;
    return true;
}

static bool index_definition(tocsin_universe *universe, tocsin_atom_id definition,
                             const tocsin_relation *relation)
{
    struct tocsin_definitions *definitions = definitions_of(universe);
    const tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    uint32_t count = 0;
    tocsin_atom_id *atoms = definitions == NULL ? NULL : atoms_of(universe, relation, &count);
    bool added = atoms != NULL &&
                 add_entry(universe, &definitions->by_set, hash_of_set(atoms, count), definition);

    for (uint32_t i = 0; added && relation->segmented && i < count; i++)
        added = add_entry(universe, &definitions->by_atom, atoms[i], definition);
    tocsin_scratch_reset(universe, mark);
    return added;
}

/* ---- guessing -------------------------------------------------------------------------------- */

/* A dim of the definition is a mixed-radix number of the digits of each of its terms; what a digit
 * says about the start covers the span [inner, inner * count) of it. */
enum { SPANS_MAX = 16 };
typedef struct dim_guess {
    tocsin_affine start;
    uint32_t span_count;
    int64_t covered; /* product of the spans' counts; the dim's size when all is known */
    struct {
        int64_t inner, end;
    } spans[SPANS_MAX];
} dim_guess;

typedef struct guess {
    dim_guess dims[TOCSIN_PLAN_NDIM_MAX];
    tocsin_fold_shared shared;
} guess;

/* The index along every axis of the atom at the term's first element. */
static bool first_indices(const tocsin_term *term, tocsin_affine index[ATOM_AXES_MAX])
{
    memset(index, 0, ATOM_AXES_MAX * sizeof index[0]);
    for (uint32_t i = 0; i < term->digit_total + term->pinned_count; i++) {
        const tocsin_digit *digit = &term->digits[i];
        tocsin_affine share;
        if (digit->axis == TOCSIN_DIGIT_BROADCAST)
            continue;
        assert(digit->axis < ATOM_AXES_MAX);
        if (!tocsin_affine_scale(&digit->start, digit->stride, &share) ||
            !tocsin_affine_add(&index[digit->axis], &share, &index[digit->axis]))
            return false;
    }
    return true;
}

/* The digit of the dims with the largest stride below `below` along the axis, or digit_total. */
static uint32_t next_digit(const tocsin_term *term, uint32_t axis, int64_t below)
{
    uint32_t best = term->digit_total;
    for (uint32_t i = 0; i < term->digit_total; i++) {
        const tocsin_digit *digit = &term->digits[i];
        if (digit->axis == axis && digit->stride < below &&
            (best == term->digit_total || digit->stride > term->digits[best].stride))
            best = i;
    }
    return best;
}

/* The start has `steps` in the span, unless something is known about it. false: overflow. */
static bool learn(dim_guess *dim, int64_t inner, int64_t count, const tocsin_affine *steps)
{
    tocsin_affine share;

    for (uint32_t i = 0; i < dim->span_count; i++)
        if (inner < dim->spans[i].end && dim->spans[i].inner < inner * count)
            return true;
    if (count == 1 || dim->span_count == SPANS_MAX)
        return true;
    dim->spans[dim->span_count].inner = inner;
    dim->spans[dim->span_count++].end = inner * count;
    dim->covered *= count;
    return tocsin_affine_scale(steps, inner, &share) &&
           tocsin_affine_add(&dim->start, &share, &dim->start);
}

/* Learn where in the dims of `whole`, but for `except`, the term `part` begins. */
static bool guess_starts(const tocsin_term *whole, const tocsin_term *part, uint8_t ndim,
                         uint32_t except, guess *made)
{
    tocsin_affine from[ATOM_AXES_MAX], to[ATOM_AXES_MAX];
    uint8_t dim_of[TOCSIN_DRAFT_DIGITS_MAX];
    int64_t inner[TOCSIN_DRAFT_DIGITS_MAX]; /* elements of the dim that one of the digit covers */
    uint32_t next = 0;

    if (whole->digit_total > TOCSIN_DRAFT_DIGITS_MAX || !first_indices(whole, from) ||
        !first_indices(part, to))
        return false;
    for (uint8_t d = 0; d < ndim; d++) {
        int64_t product = 1;
        for (uint32_t i = next + whole->digit_count[d]; i-- > next;) {
            dim_of[i] = d;
            inner[i] = product;
            product *= whole->digits[i].count;
        }
        next += whole->digit_count[d];
    }
    for (uint32_t axis = 0; axis < ATOM_AXES_MAX; axis++) {
        if (!tocsin_affine_subtract(&to[axis], &from[axis], &to[axis]))
            return false;
        int64_t below = INT64_MAX;
        for (uint32_t i; (i = next_digit(whole, axis, below)) < whole->digit_total;) {
            below = whole->digits[i].stride;
            const tocsin_affine steps = tocsin_affine_divide(&to[axis], below);
            to[axis] = tocsin_affine_remainder(&to[axis], below, &steps);
            if (dim_of[i] != except &&
                !learn(&made->dims[dim_of[i]], inner[i], whole->digits[i].count, &steps))
                return false;
        }
    }
    return true;
}

bool tocsin_fold_guess_shared(tocsin_universe *universe, const tocsin_term *whole,
                              const tocsin_term *part, tocsin_fold_shared *made)
{
    uint32_t own = 0; /* entries that both have */

    made->factor = part->factor;
    if (whole->factor != 0)
        made->factor = tocsin_factor_multiply(universe, part->factor,
                                              tocsin_factor_inverse(universe, whole->factor));
    made->box_count = 0;
    for (uint32_t i = 0; i < part->box_count; i++) {
        if (own < whole->box_count &&
            memcmp(&part->box[i], &whole->box[own], sizeof part->box[0]) == 0)
            own++;
        else
            made->box[made->box_count++] = part->box[i];
    }
    return own == whole->box_count;
}

/* ---- verifying ------------------------------------------------------------------------------- */

tocsin_relation_id tocsin_fold_with_shared(tocsin_universe *universe, tocsin_relation_id id,
                                           const tocsin_fold_shared *shared)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    const tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    tocsin_relation_id made = 0;

    if (shared->factor == 0 && shared->box_count == 0)
        return id;
    if (relation->segmented) {
        tocsin_relation_id *pieces = TOCSIN_SCRATCH(universe, tocsin_relation_id, relation->count);
        for (uint32_t i = 0; pieces != NULL && i < relation->count; i++) {
            pieces[i] = tocsin_fold_with_shared(universe, relation->segments[i], shared);
            if (pieces[i] == 0)
                goto out;
        }
        if (pieces != NULL)
            made = tocsin_relation_of_segments(universe, pieces, relation->count,
                                               relation->segment_dim);
        goto out;
    }
    tocsin_term *terms = TOCSIN_SCRATCH(universe, tocsin_term, relation->count);
    for (uint32_t k = 0; terms != NULL && k < relation->count; k++) {
        const tocsin_term *term = &relation->terms[k];
        const uint32_t count = term->box_count + shared->box_count;
        tocsin_box_entry *box = TOCSIN_SCRATCH(universe, tocsin_box_entry, count);
        if (box == NULL)
            goto out;
        if (term->box_count > 0)
            memcpy(box, term->box, term->box_count * sizeof box[0]);
        memcpy(box + term->box_count, shared->box, shared->box_count * sizeof box[0]);
        terms[k] = *term;
        terms[k].factor = tocsin_factor_multiply(universe, term->factor, shared->factor);
        terms[k].box = box;
        terms[k].box_count = count;
        if (count > TOCSIN_BOX_ENTRIES_MAX)
            goto out;
    }
    if (terms != NULL)
        made = tocsin_relation_of_terms(universe, terms, relation->count, relation->shape,
                                        relation->ndim);
out:
    tocsin_scratch_reset(universe, mark);
    return made;
}

typedef struct folding {
    tocsin_relation_id id;
    const tocsin_relation *relation;
    const int64_t *size;
    uint32_t attempts;            /* left */
    uint32_t skip;                /* so many answers are passed over */
    tocsin_atom_id atom;          /* the candidate, */
    const tocsin_relation *whole; /* what it is defined as, */
    uint32_t segment_dim;         /* and the dim of segments if one of the two has any; else ndim */
} folding;

static tocsin_relation_id verify(tocsin_universe *universe, const folding *fold, const guess *made)
{
    const tocsin_relation *relation = fold->relation;
    tocsin_affine starts[TOCSIN_PLAN_NDIM_MAX];

    for (uint8_t d = 0; d < relation->ndim; d++)
        starts[d] =
            relation->shape[d] == fold->whole->shape[d] ? tocsin_affine_of(0) : made->dims[d].start;
    tocsin_relation_id cut =
        tocsin_relation_cut(universe, tocsin_atom_get(universe, fold->atom)->operands[0], starts,
                            relation->shape, fold->size);
    if (cut != 0)
        cut = tocsin_fold_with_shared(universe, cut, &made->shared);
    if (cut == 0 || !tocsin_relation_same_value(universe, cut, fold->id))
        return 0;
    const tocsin_relation_id slice =
        tocsin_relation_slice_of(universe, fold->atom, starts, relation->shape);
    return slice == 0 ? 0 : tocsin_fold_with_shared(universe, slice, &made->shared);
}

static bool is_complete(const folding *fold, const guess *made)
{
    for (uint8_t d = 0; d < fold->whole->ndim; d++)
        if (fold->relation->shape[d] < fold->whole->shape[d] &&
            made->dims[d].covered < fold->whole->shape[d] && d != fold->segment_dim)
            return false;
    return true;
}

/* Where the first term repeats elements it says nothing: ask all the others. What none says
 * anything about repeats in all of them, and any start will do. */
static bool complete_guess(const tocsin_universe *universe, const folding *fold, guess *made)
{
    for (uint32_t i = 0; i < piece_count(fold->whole); i++) {
        const tocsin_relation *whole = piece_of(universe, fold->whole, i);
        for (uint32_t j = 0; j < piece_count(fold->relation); j++) {
            const tocsin_relation *part = piece_of(universe, fold->relation, j);
            for (uint32_t k = 0; k < whole->count; k++)
                for (uint32_t m = 0; m < part->count; m++)
                    if (whole->terms[k].atom == part->terms[m].atom &&
                        !guess_starts(&whole->terms[k], &part->terms[m], whole->ndim,
                                      fold->segment_dim, made))
                        return false;
            if (is_complete(fold, made))
                return true;
        }
    }
    return true;
}

/* Begin with one term of a piece of each. `offset`: of the definition's piece along the dim of
 * segments, less that of the relation's. */
static tocsin_relation_id try_terms(tocsin_universe *universe, folding *fold,
                                    const tocsin_relation *whole, const tocsin_term *term,
                                    const tocsin_relation *part, int64_t offset)
{
    guess made;

    if (fold->attempts == 0)
        return 0;
    fold->attempts--;
    for (uint8_t d = 0; d < whole->ndim; d++) {
        made.dims[d].start = tocsin_affine_of(0);
        made.dims[d].span_count = 0;
        made.dims[d].covered = 1;
    }
    if (!tocsin_fold_guess_shared(universe, term, &part->terms[0], &made.shared) ||
        !guess_starts(term, &part->terms[0], whole->ndim, UINT32_MAX, &made))
        return 0;
    for (uint32_t k = 0; k < whole->count && k < part->count; k++)
        if (whole->terms[k].atom == part->terms[k].atom &&
            !guess_starts(&whole->terms[k], &part->terms[k], whole->ndim, UINT32_MAX, &made))
            return 0;
    if (!is_complete(fold, &made) && !complete_guess(universe, fold, &made))
        return 0;
    if (fold->segment_dim < whole->ndim)
        made.dims[fold->segment_dim].start.base += offset;
    return verify(universe, fold, &made);
}

static bool is_candidate(tocsin_universe *universe, folding *fold, tocsin_atom_id definition)
{
    const tocsin_relation *relation = fold->relation;

    fold->atom = definition;
    fold->whole = tocsin_relation_get(universe, tocsin_atom_get(universe, definition)->operands[0]);
    if (fold->whole->ndim != relation->ndim)
        return false;
    fold->segment_dim = fold->whole->segmented ? fold->whole->segment_dim
                        : relation->segmented  ? relation->segment_dim
                                               : relation->ndim;
    if (relation->segmented && relation->segment_dim != fold->segment_dim)
        return false;
    for (uint8_t d = 0; d < relation->ndim; d++)
        if (relation->shape[d] > fold->whole->shape[d])
            return false;
    return true;
}

/* Pieces in pieces are all of the definition, up to a factor, or no part of it. */
static tocsin_relation_id try_all_of_it(tocsin_universe *universe, const folding *fold)
{
    const tocsin_term *first = first_term(universe, fold->relation);
    guess made = {.shared.box_count = 0};

    for (uint8_t d = 0; d < fold->whole->ndim; d++)
        if (fold->relation->shape[d] != fold->whole->shape[d])
            return 0;
    if (first == NULL)
        return 0;
    made.shared.factor = first->factor; /* the definition's first factor is 1 */
    return verify(universe, fold, &made);
}

static tocsin_relation_id try_definition(tocsin_universe *universe, folding *fold,
                                         tocsin_atom_id definition)
{
    const tocsin_relation *part = NULL;
    int64_t part_offset = 0, offset = 0;

    if (!is_candidate(universe, fold, definition))
        return 0;
    if (is_nested(universe, fold->whole) || is_nested(universe, fold->relation))
        return try_all_of_it(universe, fold);
    for (uint32_t i = 0; i < piece_count(fold->relation); i++) { /* the first that is not zero */
        part = piece_of(universe, fold->relation, i);
        if (part->count > 0)
            break;
        part_offset += part->shape[fold->segment_dim];
    }
    if (part == NULL || part->count == 0)
        return 0;
    for (uint32_t i = 0; i < piece_count(fold->whole); i++) {
        const tocsin_relation *piece = piece_of(universe, fold->whole, i);
        for (uint32_t k = 0; k < piece->count; k++) {
            if (piece->terms[k].atom != part->terms[0].atom)
                continue;
            const tocsin_relation_id slice =
                try_terms(universe, fold, piece, &piece->terms[k], part, offset - part_offset);
            if (slice != 0)
                return slice;
        }
        if (fold->whole->segmented)
            offset += piece->shape[fold->segment_dim];
    }
    return 0;
}

/* How a candidate is tried: as a slice of it, or as a part of it in another shape. */
typedef tocsin_relation_id trial(tocsin_universe *universe, folding *fold,
                                 tocsin_atom_id definition);

static tocsin_relation_id try_map(tocsin_universe *universe, folding *fold,
                                  tocsin_atom_id definition)
{
    return tocsin_fold_by_map(universe, fold->id, definition, fold->size, &fold->attempts);
}

static tocsin_relation_id try_all(tocsin_universe *universe, folding *fold, trial *attempt,
                                  const tocsin_map *map, uint64_t key)
{
    const uint64_t *head = tocsin_map_find(map, key);
    uint32_t next = head == NULL ? 0 : (uint32_t)*head;

    while (next != 0) {
        const struct entry *entry = &universe->definitions->entries.items[next - 1];
        const tocsin_relation_id slice = attempt(universe, fold, entry->definition);
        if (slice != 0 && fold->skip-- == 0)
            return slice;
        next = entry->next;
    }
    return 0;
}

/* The part of a definition of the same set of atoms that the relation is, or 0. */
static tocsin_relation_id find_by_set(tocsin_universe *universe, folding *fold,
                                      const tocsin_atom_id *atoms, uint32_t count)
{
    const tocsin_map *map = &universe->definitions->by_set;
    const uint64_t key = hash_of_set(atoms, count);
    const tocsin_relation_id slice = try_all(universe, fold, try_definition, map, key);
    return slice != 0 ? slice : try_all(universe, fold, try_map, map, key);
}

static const char *atom_name(const tocsin_universe *universe, tocsin_atom_id id)
{
    const tocsin_atom *atom = tocsin_atom_get(universe, id);
    const char *name = tocsin_universe_text(universe, atom->name);
    return name[0] != '\0' ? name : "1";
}

static tocsin_relation_id refuse_fold(tocsin_universe *universe, const tocsin_relation *relation,
                                      const tocsin_atom_id *atoms, uint32_t count)
{
    const bool partial = tocsin_fold_partial_term(universe, relation) != NULL;
    return tocsin_universe_refuse(
        universe, partial ? TOCSIN_CAUSE_MISSING_REDUCTION : TOCSIN_CAUSE_MISSING_TERM,
        "%s %s of %s%s%s%s", partial ? "an unreduced" : "an unknown",
        relation->segmented ? "concatenation" : "sum",
        count > 0 ? atom_name(universe, atoms[0]) : "zeros", count > 1 ? " and " : "",
        count > 1 ? atom_name(universe, atoms[1]) : "", count > 2 ? " and others" : "");
}

static tocsin_relation_id fold_anew(tocsin_universe *universe, tocsin_relation_id id,
                                    const int64_t *size, bool same_atoms)
{
    folding fold = {.id = id,
                    .relation = tocsin_relation_get(universe, id),
                    .size = size,
                    .attempts = ATTEMPTS_MAX};
    const tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    uint32_t count = 0;
    const tocsin_atom_id *atoms = atoms_of(universe, fold.relation, &count);
    tocsin_relation_id slice = 0;
    if (atoms != NULL)
        slice = find_by_set(universe, &fold, atoms, count);
    if (slice == 0 && count > 0 && !same_atoms)
        slice = try_all(universe, &fold, try_definition, &universe->definitions->by_atom, atoms[0]);
    if (slice == 0 && atoms != NULL && !same_atoms)
        slice = tocsin_fold_jointly(universe, id, size);
    if (slice == 0 && atoms != NULL)
        refuse_fold(universe, fold.relation, atoms, count);
    tocsin_scratch_reset(universe, mark);
    return slice;
}

/* `same_atoms`: as a part of what has the same set of atoms only. */
static tocsin_relation_id fold_remembered(tocsin_universe *universe, tocsin_relation_id id,
                                          const int64_t *size, bool same_atoms)
{
    struct tocsin_definitions *definitions = definitions_of(universe);
    if (definitions == NULL)
        return 0;
    const uint64_t *known = tocsin_map_find(&definitions->folded, id);
    if (known != NULL)
        return (tocsin_relation_id)*known;
    const tocsin_relation_id slice = fold_anew(universe, id, size, same_atoms);
    if (slice != 0 && !tocsin_map_put(&definitions->folded, id, slice))
        return tocsin_universe_fail(universe, TOCSIN_E_MEMORY);
    return slice;
}

tocsin_relation_id tocsin_relation_fold(tocsin_universe *universe, tocsin_relation_id id,
                                        const int64_t size[TOCSIN_SYMBOL_COUNT])
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    return !relation->segmented && relation->count <= 1
               ? id
               : fold_remembered(universe, id, size, false);
}

tocsin_relation_id tocsin_relation_fold_sum(tocsin_universe *universe, tocsin_relation_id id)
{
    return fold_remembered(universe, id, universe->symbol_size, true);
}

tocsin_relation_id tocsin_relation_fold_again(tocsin_universe *universe, tocsin_relation_id id,
                                              uint32_t choice,
                                              const int64_t size[TOCSIN_SYMBOL_COUNT])
{
    folding fold = {.id = id, .size = size, .attempts = ATTEMPTS_MAX};
    uint32_t count = 0;

    fold.relation = tocsin_relation_get(universe, id);
    const bool sum = fold.relation->segmented || fold.relation->count > 1;
    if (choice == 0)
        return tocsin_relation_fold(universe, id, size);
    if (universe->definitions == NULL)
        return 0;
    fold.skip = choice - !sum;
    const tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    const tocsin_atom_id *atoms = atoms_of(universe, fold.relation, &count);
    tocsin_relation_id slice = 0;
    if (atoms != NULL && sum)
        slice = find_by_set(universe, &fold, atoms, count);
    if (slice == 0 && count > 0)
        slice = try_all(universe, &fold, try_definition, &universe->definitions->by_atom, atoms[0]);
    tocsin_scratch_reset(universe, mark);
    return slice;
}

/* ---- defining -------------------------------------------------------------------------------- */

/* A sum that is a part of what is defined already, or 0. */
static tocsin_relation_id find_defined(tocsin_universe *universe, tocsin_relation_id id)
{
    folding fold = {.id = id,
                    .relation = tocsin_relation_get(universe, id),
                    .size = universe->symbol_size,
                    .attempts = ATTEMPTS_MAX};
    const tocsin_arena_mark mark = tocsin_scratch_mark(universe);
    const bool logical = universe->logical;
    uint32_t count = 0;

    if (fold.relation->segmented || definitions_of(universe) == NULL ||
        tocsin_atom_find_defined(universe, id) != 0)
        return 0;
    const tocsin_atom_id *atoms = atoms_of(universe, fold.relation, &count);
    universe->logical = false; /* guesses are no values of the logical model */
    tocsin_relation_id part = atoms == NULL ? 0 : find_by_set(universe, &fold, atoms, count);
    universe->logical = logical;
    tocsin_scratch_reset(universe, mark);
    if (part == 0)
        return 0;
    const tocsin_relation *found = tocsin_relation_get(universe, part);
    assert(found->count == 1 && !found->segmented);
    return found->terms[0].box_count > 0
               ? 0
               : tocsin_relation_of_term(universe, &found->terms[0], found->shape, found->ndim);
}

/* Multiples of one sum share its definition, whose leading factor is 1: a sum and its half would
 * else be two atoms, and a rank's slice might be taken for twice the half. */
tocsin_relation_id tocsin_relation_define(tocsin_universe *universe, tocsin_relation_id id,
                                          const char *name, uint32_t op)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    const tocsin_relation_id sum = id;
    bool made = false;

    if (!relation->segmented && relation->count <= 1)
        return id;
    const tocsin_term *first = first_term(universe, relation);
    const tocsin_factor_id factor = first == NULL ? 0 : first->factor;
    if (factor != 0) {
        id = tocsin_relation_scale(universe, id, tocsin_factor_inverse(universe, factor));
        if (id == 0)
            return 0;
        relation = tocsin_relation_get(universe, id);
    }
    tocsin_relation_id whole = find_defined(universe, id);
    if (whole == 0) {
        const tocsin_atom_id definition = tocsin_atom_defined(universe, id, name, op, &made);
        if (definition == 0 || (made && !index_definition(universe, definition, relation)))
            return 0;
        whole = tocsin_relation_whole(universe, definition);
    }
    if (factor != 0 && whole != 0)
        whole = tocsin_relation_scale(universe, whole, factor);
    return whole == 0 || tocsin_relation_set_name(universe, sum, whole) ? whole : 0;
}
