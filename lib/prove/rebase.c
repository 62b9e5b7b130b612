/* rebase.c - wrong values as if they were right, for the diagnosis after the first cause. */
#include "prove/rebase.h"

#include <assert.h>
#include <stdlib.h>

enum { TERMS_MAX = 64, BOX_MAX = 64, SEGMENTS_MAX = 1024 };

const tocsin_rebase *tocsin_rebase_of(const tocsin_rebases *rebases, uint32_t op)
{
    if (rebases == NULL)
        return NULL;
    const uint64_t *found = tocsin_map_find(&rebases->by_op, op);
    return found == NULL ? NULL : &rebases->items.items[*found - 1];
}

/* The logical op's first result; 0: unknown. */
static tocsin_relation_id result_of(const tocsin_run *logical, uint32_t op_index)
{
    const tocsin_plan_op *op = &logical->plan->ops.items[op_index];
    if (op->output_count == 0)
        return 0;
    const tocsin_relation_id relation = tocsin_run_value(
        logical, 0, 0, logical->plan->operands.items[op->first_operand + op->input_count]);
    return relation == TOCSIN_POISON ? 0 : relation;
}

/* Let the op give what its logical counterpart gives. false: that is not known. */
static bool expect(tocsin_rebase *rebase, const tocsin_run *logical, uint32_t pair)
{
    const tocsin_relation_id relation = pair == TOCSIN_PLAN_NONE ? 0 : result_of(logical, pair);
    if (relation == 0)
        return false;
    const tocsin_relation *view = tocsin_relation_get(logical->prover->universe, relation);
    if (!view->segmented && view->count == 1)
        rebase->atom = view->terms[0].atom;
    else
        rebase->expected = relation;
    return true;
}

tocsin_status tocsin_rebases_add(tocsin_rebases *rebases, const tocsin_run *logical,
                                 const tocsin_root *root, bool *added, tocsin_error *error)
{
    tocsin_rebase made = {0};
    if (root->op == TOCSIN_PLAN_NONE || tocsin_rebase_of(rebases, root->op) != NULL)
        return TOCSIN_OK;
    switch ((tocsin_cause_class)root->cause) {
    case TOCSIN_CAUSE_MISSING_REDUCTION:
    case TOCSIN_CAUSE_WRONG_GROUP:
        made.reduced = true;
        (void)expect(&made, logical, root->pair);
        break;
    case TOCSIN_CAUSE_WRONG_ORDER:
        made.ordered = true;
        break;
    default:
        if (!expect(&made, logical, root->pair))
            return TOCSIN_OK;
    }
    if (!TOCSIN_VEC_PUSH(&rebases->items, made) ||
        !tocsin_map_put(&rebases->by_op, root->op, rebases->items.count))
        return tocsin_error_memory(error);
    *added = true;
    return TOCSIN_OK;
}

void tocsin_rebases_free(tocsin_rebases *rebases)
{
    tocsin_map_free(&rebases->by_op);
    TOCSIN_VEC_FREE(&rebases->items);
}

tocsin_relation_id tocsin_relation_as_reduced(tocsin_universe *universe,
                                              tocsin_relation_id relation)
{
    const tocsin_relation *view = tocsin_relation_get(universe, relation);
    tocsin_term terms[TERMS_MAX];
    uint32_t count = 0;

    if (view->segmented || view->count == 0 || view->count > TERMS_MAX)
        return relation;
    for (uint32_t k = 0; k < view->count; k++) { /* several boxes of one value stand for it once */
        bool repeated = false;
        for (uint32_t j = 0; j < count && view->terms[k].box_count > 0; j++)
            repeated |= terms[j].atom == view->terms[k].atom;
        if (repeated)
            continue;
        terms[count] = view->terms[k];
        terms[count++].box_count = 0;
    }
    const tocsin_relation_id made =
        tocsin_relation_of_terms(universe, terms, count, view->shape, view->ndim);
    return made == 0 ? relation : made;
}

typedef struct piece {
    tocsin_relation_id relation;
    int64_t start;
} piece;

static int by_start(const void *left, const void *right)
{
    const int64_t a = ((const piece *)left)->start, b = ((const piece *)right)->start;
    return a < b ? -1 : a > b;
}

tocsin_relation_id tocsin_relation_as_ordered(tocsin_universe *universe,
                                              tocsin_relation_id relation)
{
    const tocsin_relation *view = tocsin_relation_get(universe, relation);
    piece pieces[SEGMENTS_MAX];
    tocsin_relation_id sorted[SEGMENTS_MAX];
    if (!view->segmented || view->count > SEGMENTS_MAX)
        return relation;
    for (uint32_t k = 0; k < view->count; k++) {
        const tocsin_relation *segment = tocsin_relation_get(universe, view->segments[k]);
        uint32_t first = 0;
        pieces[k] = (piece){.relation = view->segments[k]};
        if (segment->segmented || segment->count == 0)
            return relation;
        for (uint32_t d = 0; d < view->segment_dim; d++)
            first += segment->terms[0].digit_count[d];
        if (segment->terms[0].digit_count[view->segment_dim] > 0)
            pieces[k].start = segment->terms[0].digits[first].start.base;
    }
    const uint32_t count = view->count, dim = view->segment_dim;
    qsort(pieces, count, sizeof pieces[0], by_start);
    for (uint32_t k = 0; k < count; k++)
        sorted[k] = pieces[k].relation;
    const tocsin_relation_id made = tocsin_relation_cat(universe, sorted, count, dim);
    return made == 0 ? relation : made;
}

tocsin_relation_id tocsin_relation_with_atom(tocsin_universe *universe, tocsin_relation_id relation,
                                             tocsin_atom_id atom)
{
    const tocsin_relation *view = tocsin_relation_get(universe, relation);
    if (view->segmented || view->count != 1 || view->terms[0].box_count > BOX_MAX)
        return relation;
    const tocsin_atom *own = tocsin_atom_get(universe, view->terms[0].atom);
    const tocsin_atom *other = tocsin_atom_get(universe, atom);
    tocsin_term term = view->terms[0];
    tocsin_box_entry box[BOX_MAX];
    if (own->ndim != other->ndim ||
        memcmp(own->shape, other->shape, own->ndim * sizeof own->shape[0]) != 0)
        return relation;
    for (uint32_t b = 0; b < term.box_count; b++) {
        box[b] = term.box[b];
        if (box[b].atom == term.atom)
            box[b].atom = atom;
    }
    term.box = box;
    term.atom = atom;
    const tocsin_relation_id made =
        tocsin_relation_of_term(universe, &term, view->shape, view->ndim);
    return made == 0 ? relation : made;
}

/* Where dim `dim` of `own` begins in `expected`: told by a term of one atom with one digit on each
 * side. */
static bool start_in(const tocsin_relation *own, const tocsin_relation *expected, uint32_t dim,
                     tocsin_affine *start)
{
    *start = (tocsin_affine){0};
    if (own->shape[dim] == expected->shape[dim])
        return true;
    for (uint32_t k = 0; k < own->count; k++) {
        for (uint32_t j = 0; j < expected->count; j++) {
            const tocsin_term *part = &own->terms[k], *whole = &expected->terms[j];
            uint32_t first[2] = {0, 0};
            for (uint32_t d = 0; d < dim; d++) {
                first[0] += part->digit_count[d];
                first[1] += whole->digit_count[d];
            }
            const tocsin_digit *a = &part->digits[first[0]], *b = &whole->digits[first[1]];
            if (part->atom != whole->atom || part->digit_count[dim] != 1 ||
                whole->digit_count[dim] != 1 || a->axis == TOCSIN_DIGIT_BROADCAST ||
                a->axis != b->axis || a->stride != b->stride)
                continue;
            *start = a->start;
            start->base -= b->start.base;
            return true;
        }
    }
    return false;
}

/* The factor by which `own` differs from `expected` by right (that of a local mean): the smallest
 * of its terms', since what is wrong is mostly counted too often. 0: 1, or none that is rational.
 */
static tocsin_factor_id shared_ratio(tocsin_universe *universe, const tocsin_relation *own,
                                     const tocsin_relation *expected)
{
    tocsin_factor_id best = 0;
    double least = 0;
    for (uint32_t k = 0; k < own->count; k++) {
        for (uint32_t j = 0; j < expected->count; j++) {
            int64_t numerator, denominator;
            if (own->terms[k].atom != expected->terms[j].atom)
                continue;
            const tocsin_factor_id ratio =
                tocsin_factor_multiply(universe, own->terms[k].factor,
                                       tocsin_factor_inverse(universe, expected->terms[j].factor));
            if (!tocsin_factor_is_rational(universe, ratio, &numerator, &denominator))
                continue;
            const double value = (double)numerator / (double)denominator;
            if (value > 0 && (least == 0 || value < least)) {
                least = value;
                best = ratio;
            }
        }
    }
    return best;
}

tocsin_relation_id tocsin_relation_like(tocsin_universe *universe, tocsin_relation_id own,
                                        tocsin_relation_id expected)
{
    const tocsin_relation *part = tocsin_relation_get(universe, own);
    const tocsin_relation *whole = tocsin_relation_get(universe, expected);
    tocsin_relation_id made = expected;
    if (part->segmented || whole->segmented || part->ndim != whole->ndim)
        return own;
    const tocsin_factor_id ratio = shared_ratio(universe, part, whole);
    for (uint32_t d = 0; d < part->ndim && made != 0; d++) {
        tocsin_affine start;
        if (!start_in(part, whole, d, &start))
            return own;
        if (part->shape[d] != whole->shape[d])
            made = tocsin_relation_slice(universe, made, d, start, part->shape[d], 1);
    }
    if (made != 0)
        made = tocsin_relation_scale(universe, made, ratio);
    return made == 0 ? own : made;
}
