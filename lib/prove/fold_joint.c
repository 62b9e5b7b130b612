/* fold_joint.c - a sum whose terms are partial, each over a contraction of its own.
 *
 * Of the sum over tokens of a + b a rank with half of the tokens has half of sum(a) + half of
 * sum(b): the same half of two contractions. Restricting each atom of a definition D along an axis
 * of its own is one restriction of D, a *joint* axis, on which D is partial. An atom whose part was
 * summed up as a multiple (it repeats along the dim) is restricted by that share of its factor.
 *
 * A joint axis is interned by D and, for each atom, which digit of which contraction is restricted;
 * its extent is the greatest common divisor of theirs, so that it does not depend on the range. To
 * fold R: take the range out of all terms, fold what is left to a part of D, put the range back as
 * one of the joint axis. Exact, since a restriction of atoms goes through maps and factors.
 *
 * Cost: as a fold, and quadratic in the number of atoms (a few).
 */
#include "prove/fold.h"

#include <assert.h>
#include <stdlib.h>

enum { ATOMS_MAX = 32 };

/* How one atom is restricted. Interned: no padding. */
typedef struct restriction {
    tocsin_atom_id atom;
    tocsin_atom_id contraction; /* 0: by a share of its factor */
    uint32_t axis;
    uint32_t pad_;
    int64_t stride, extent;
} restriction;

typedef struct joint {
    tocsin_universe *universe;
    tocsin_box_entry range; /* of extent, start and count in lowest terms */
    tocsin_factor_id inverse_share;
    uint32_t count;
    restriction atoms[ATOMS_MAX];
} joint;

static int64_t greatest_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a < 0 ? -a : a;
}

/* Extent, start and count divided by their greatest divisor. */
static tocsin_box_entry in_lowest_terms(const tocsin_box_entry *entry)
{
    tocsin_box_entry made = *entry;
    int64_t by = greatest_divisor(entry->extent, entry->count);
    by = greatest_divisor(by, entry->start.base);
    for (int s = 0; s < TOCSIN_SYMBOL_COUNT; s++)
        by = greatest_divisor(by, entry->start.weight[s]);
    made.extent /= by;
    made.count /= by;
    made.start.base /= by;
    for (int s = 0; s < TOCSIN_SYMBOL_COUNT; s++)
        made.start.weight[s] /= by;
    return made;
}

static bool is_range(const joint *in, const tocsin_box_entry *entry)
{
    const tocsin_box_entry own = in_lowest_terms(entry);
    return entry->kind == TOCSIN_BOX_SUM && own.extent == in->range.extent &&
           own.count == in->range.count && tocsin_affine_equal(&own.start, &in->range.start);
}

/* Terms of one atom are restricted in one way. false: this one is not. */
static bool agree(joint *in, const restriction *wanted)
{
    uint32_t at = 0;
    while (at < in->count && in->atoms[at].atom < wanted->atom)
        at++;
    if (at < in->count && in->atoms[at].atom == wanted->atom)
        return memcmp(&in->atoms[at], wanted, sizeof *wanted) == 0;
    if (in->count == ATOMS_MAX)
        return false;
    memmove(&in->atoms[at + 1], &in->atoms[at], (in->count - at) * sizeof in->atoms[0]);
    in->atoms[at] = *wanted;
    in->count++;
    return true;
}

/* The term without the range. false: it is not restricted like the others, or out of memory. */
static bool release_term(joint *in, const tocsin_term *term, tocsin_term *made)
{
    restriction found = {.atom = term->atom};
    uint32_t at = 0;

    while (at < term->box_count && !is_range(in, &term->box[at]))
        at++;
    *made = *term;
    if (at == term->box_count) {
        made->factor = tocsin_factor_multiply(in->universe, term->factor, in->inverse_share);
        return agree(in, &found);
    }
    tocsin_box_entry *box = TOCSIN_SCRATCH(in->universe, tocsin_box_entry, term->box_count);
    if (box == NULL)
        return false;
    memcpy(box, term->box, at * sizeof box[0]);
    memcpy(box + at, term->box + at + 1, (term->box_count - at - 1) * sizeof box[0]);
    made->box = box;
    made->box_count--;
    found.contraction = term->box[at].atom;
    found.axis = term->box[at].axis;
    found.stride = term->box[at].stride;
    found.extent = term->box[at].extent;
    return agree(in, &found);
}

/* The relation without the range, or 0. */
static tocsin_relation_id release(joint *in, tocsin_relation_id id)
{
    const tocsin_relation *relation = tocsin_relation_get(in->universe, id);
    tocsin_relation_id made = 0;

    if (relation->segmented) {
        tocsin_relation_id *pieces =
            TOCSIN_SCRATCH(in->universe, tocsin_relation_id, relation->count);
        for (uint32_t i = 0; pieces != NULL && i < relation->count; i++)
            if ((pieces[i] = release(in, relation->segments[i])) == 0)
                return 0;
        return pieces == NULL ? 0
                              : tocsin_relation_of_segments(in->universe, pieces, relation->count,
                                                            relation->segment_dim);
    }
    tocsin_term *terms = TOCSIN_SCRATCH(in->universe, tocsin_term, relation->count);
    for (uint32_t k = 0; terms != NULL && k < relation->count; k++)
        if (!release_term(in, &relation->terms[k], &terms[k]))
            return 0;
    if (terms != NULL)
        made = tocsin_relation_of_terms(in->universe, terms, relation->count, relation->shape,
                                        relation->ndim);
    return made;
}

/* `part`, a part of a definition, restricted to the range of the joint axis. */
static tocsin_relation_id restrict_part(const joint *in, tocsin_relation_id part)
{
    tocsin_universe *universe = in->universe;
    const tocsin_relation *relation = tocsin_relation_get(universe, part);
    const tocsin_term *term = relation->segmented || relation->count != 1 ? NULL : relation->terms;
    restriction key[ATOMS_MAX + 1] = {{.atom = 0}}; /* the definition first */
    tocsin_box_entry box[TOCSIN_BOX_ENTRIES_MAX];
    int64_t extent = 0;

    if (term == NULL || tocsin_atom_get(universe, term->atom)->kind != TOCSIN_ATOM_DEFINED ||
        term->box_count == TOCSIN_BOX_ENTRIES_MAX)
        return 0;
    key[0].atom = term->atom;
    memcpy(key + 1, in->atoms, in->count * sizeof key[0]);
    for (uint32_t i = 0; i < in->count; i++)
        if (in->atoms[i].contraction != 0)
            extent = greatest_divisor(extent, in->atoms[i].extent);
    const uint16_t axis = tocsin_universe_axis(universe, key, (in->count + 1) * sizeof key[0]);
    if (axis == 0)
        return 0;
    assert(extent % in->range.extent == 0);
    tocsin_box_entry *added = &box[term->box_count];
    if (term->box_count > 0)
        memcpy(box, term->box, term->box_count * sizeof box[0]);
    *added = in->range;
    added->atom = term->atom;
    added->axis = axis;
    added->stride = 1;
    added->extent = extent;
    added->count *= extent / in->range.extent;
    if (!tocsin_affine_scale(&in->range.start, extent / in->range.extent, &added->start))
        return 0;
    tocsin_term made = *term;
    made.box = box;
    made.box_count++;
    return tocsin_relation_of_term(universe, &made, relation->shape, relation->ndim);
}

const tocsin_term *tocsin_fold_partial_term(const tocsin_universe *universe,
                                            const tocsin_relation *relation)
{
    const tocsin_term *found = NULL;

    for (uint32_t i = 0; relation->segmented && found == NULL && i < relation->count; i++)
        found = tocsin_fold_partial_term(universe,
                                         tocsin_relation_get(universe, relation->segments[i]));
    for (uint32_t k = 0; !relation->segmented && found == NULL && k < relation->count; k++)
        if (relation->terms[k].box_count > 0)
            found = &relation->terms[k];
    return found;
}

tocsin_relation_id tocsin_fold_jointly(tocsin_universe *universe, tocsin_relation_id id,
                                       const int64_t size[TOCSIN_SYMBOL_COUNT])
{
    const tocsin_term *first =
        tocsin_fold_partial_term(universe, tocsin_relation_get(universe, id));
    tocsin_relation_id made = 0;

    for (uint32_t b = 0; made == 0 && first != NULL && b < first->box_count; b++) {
        const tocsin_arena_mark mark = tocsin_scratch_mark(universe);
        joint in = {.universe = universe, .range = in_lowest_terms(&first->box[b])};
        in.inverse_share = tocsin_factor_rational(universe, in.range.extent, in.range.count);
        const tocsin_relation_id rest = first->box[b].kind == TOCSIN_BOX_SUM ? release(&in, id) : 0;
        const tocsin_relation_id part = rest == 0 ? 0 : tocsin_relation_fold(universe, rest, size);
        if (part != 0 && tocsin_universe_is_lenient(universe))
            made = restrict_part(&in, part);
        tocsin_scratch_reset(universe, mark);
    }
    return made;
}
