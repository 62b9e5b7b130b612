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

/* The atom that the logical op's first result is, when it is one whole atom. */
static tocsin_atom_id atom_of(const tocsin_run *logical, uint32_t op_index)
{
    const tocsin_plan_op *op = &logical->plan->ops.items[op_index];
    if (op->output_count == 0)
        return 0;
    const tocsin_relation_id relation = tocsin_run_value(
        logical, 0, 0, logical->plan->operands.items[op->first_operand + op->input_count]);
    if (relation == 0 || relation == TOCSIN_POISON)
        return 0;
    const tocsin_relation *view = tocsin_relation_get(logical->prover->universe, relation);
    return view->segmented || view->count != 1 ? 0 : view->terms[0].atom;
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
        break;
    case TOCSIN_CAUSE_WRONG_ORDER:
        made.ordered = true;
        break;
    default:
        made.atom = root->pair == TOCSIN_PLAN_NONE ? 0 : atom_of(logical, root->pair);
        if (made.atom == 0)
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
