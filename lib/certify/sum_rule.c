/* sum_rule.c - sums and means over dims, as sums over coordinates.
 *
 * The claim's own sum atoms are put out as what they mean, so that both sides are sums of the same
 * things; how the prover arranged its atoms does not matter.
 */
#include <stdio.h>

#include "certify/local_rule.h"

/* ---- sums over dims -------------------------------------------------------------------------- */

/* "sum:BITS:KEEP": what the atom of that name means. */
static bool is_sum_atom(const certify_checker *checker, uint32_t id, uint32_t *bits, int *keep)
{
    const certify_atom *atom = certify_atom_of(checker, id);
    return atom->kind == CERTIFY_CALL && atom->output == 0 && atom->operand_count == 1 &&
           sscanf(tocsin_intern_text(&checker->certificate->texts, atom->text, NULL), "sum:%x:%d",
                  bits, keep) == 2;
}

/* Put an entry of a sum atom out: the sum, over its box, of the atom's operand. */
static certify_outcome expand_sum(certify_checker *checker, const certify_entry *entry,
                                  uint32_t bits, bool keep)
{
    const certify_atom *atom = certify_atom_of(checker, entry->atom);
    const uint32_t operand = checker->certificate->parts.items[atom->first_operand];
    const uint32_t ndim = certify_ndim(checker, operand), first = checker->space.count;
    certify_form at[CERTIFY_NDIM_MAX];
    certify_span inner[CERTIFY_BOX_MAX];
    uint32_t inner_count = 0, from = 0;

    for (uint32_t k = 0; k < entry->span_count; k++)
        if (entry->spans[k].atom != entry->atom)
            inner[inner_count++] = entry->spans[k];
        else if (entry->spans[k].axis >= ndim || !(bits >> entry->spans[k].axis & 1))
            return certify_different(checker, "a sum's box restricts what is not summed");
    for (uint32_t d = 0; d < ndim; d++) {
        const int64_t extent = certify_shape(checker, operand)[d];
        if (!(bits >> d & 1)) {
            if (from >= atom->ndim)
                return certify_different(checker, "a sum's atom has too few dims");
            at[d] = entry->index[from++];
            continue;
        }
        certify_piece pieces[CERTIFY_PIECES_MAX];
        uint32_t count;
        certify_outcome outcome = certify_pieces(checker, entry->spans, entry->span_count,
                                                 entry->atom, d, false, extent, pieces, &count);
        at[d] = certify_constant(0);
        for (uint32_t k = 0; k < count && outcome == CERTIFY_DONE; k++) {
            certify_form digit;
            outcome = certify_new_coordinate(checker, pieces[k].count, &digit);
            if (outcome == CERTIFY_DONE &&
                (!certify_form_add(&at[d], &pieces[k].start, pieces[k].stride) ||
                 !certify_form_add(&at[d], &digit, pieces[k].stride)))
                return certify_unclear(checker, "an index is too large");
        }
        if (outcome != CERTIFY_DONE)
            return outcome;
        from += keep;
    }
    if (from != atom->ndim)
        return certify_different(checker, "a sum's atom has another number of dims");
    return certify_evaluate_sum(checker, operand, at, &entry->factor, inner, inner_count,
                                checker->space.count - first);
}

/* The actual sum, over the reduced dims' coordinates. */
static certify_outcome subtract_reduced(certify_checker *checker, const certify_judgement *now,
                                        const certify_form *index)
{
    const uint32_t in = certify_input(now, 0), ndim = certify_ndim(checker, in);
    const uint32_t first = checker->space.count;
    const certify_number minus = certify_integer(-1);
    certify_form at[CERTIFY_NDIM_MAX];
    certify_number scale;
    certify_outcome outcome = CERTIFY_DONE;

    for (uint32_t d = 0, from = 0; d < ndim && outcome == CERTIFY_DONE; d++) {
        const bool reduced = now->bits >> d & 1;
        if (reduced)
            outcome = certify_new_coordinate(checker, certify_shape(checker, in)[d], &at[d]);
        else
            at[d] = index[from];
        from += !reduced || now->by; /* by: the dims are kept */
    }
    if (outcome != CERTIFY_DONE)
        return outcome;
    if (!certify_multiply(&minus, &now->factor, &scale))
        return certify_unclear(checker, "a factor is too large");
    return certify_evaluate_sum(checker, in, at, &scale, NULL, 0, checker->space.count - first);
}

static bool same_place(const certify_checker *checker, const certify_entry *a,
                       const certify_entry *b)
{
    if (a->atom != b->atom || b->sum_count != 0)
        return false;
    for (uint32_t d = 0; d < certify_atom_of(checker, a->atom)->ndim; d++)
        if (certify_form_compare(&a->index[d], &b->index[d]) != 0)
            return false;
    return true;
}

/* The claim, its sum atoms put out unless the actual sum has that very atom, constant along the
 * dims; less the actual sum. */
static certify_outcome reduced_difference(certify_checker *checker, const void *context,
                                          const certify_form *index)
{
    const certify_judgement *now = context;
    const certify_number one = certify_integer(1);

    certify_outcome outcome = subtract_reduced(checker, now, index);
    const size_t actual = checker->bag.count;
    if (outcome == CERTIFY_DONE)
        outcome = certify_evaluate(checker, certify_output(now), index, &one, NULL, 0);
    const size_t count = checker->bag.count - actual;
    certify_entry *claimed = TOCSIN_ARENA_ARRAY(&checker->arena, certify_entry, count + 1);
    if (outcome != CERTIFY_DONE || claimed == NULL)
        return outcome != CERTIFY_DONE ? outcome : CERTIFY_FAILED;
    if (count > 0)
        memcpy(claimed, checker->bag.items + actual, count * sizeof claimed[0]);
    checker->bag.count = actual;
    for (size_t k = 0; k < count && outcome == CERTIFY_DONE; k++) {
        uint32_t bits;
        int keep;
        bool expand = is_sum_atom(checker, claimed[k].atom, &bits, &keep);
        for (size_t m = 0; m < actual && expand; m++)
            expand = !same_place(checker, &claimed[k], &checker->bag.items[m]);
        if (expand)
            outcome = expand_sum(checker, &claimed[k], bits, keep != 0);
        else if (!TOCSIN_VEC_PUSH(&checker->bag, claimed[k]))
            outcome = CERTIFY_FAILED;
    }
    return outcome;
}

bool certify_reduced_dims(const certify_judgement *now, uint32_t ndim, uint32_t *bits)
{
    uint32_t count;
    const int64_t *dims = certify_list_of(now->step->plan, now->step->op, "dims", &count);
    *bits = dims == NULL ? (1U << ndim) - 1 : 0;
    for (uint32_t k = 0; k < count; k++) {
        const int dim = certify_dim(dims[k], ndim);
        if (dim < 0)
            return false;
        *bits |= 1U << dim;
    }
    return true;
}

certify_outcome certify_judge_reduction(certify_checker *checker, certify_judgement *now)
{
    const uint32_t in = certify_input(now, 0), ndim = certify_ndim(checker, in);
    int64_t shape[CERTIFY_NDIM_MAX], elements = 1;
    uint32_t kept = 0;

    now->by = certify_integer_of(now->step->plan, now->step->op, "keepdim", 0) != 0;
    if (!certify_reduced_dims(now, ndim, &now->bits))
        return certify_different(checker, "a dim is out of range");
    for (uint32_t d = 0; d < ndim; d++) {
        const bool reduced = now->bits >> d & 1;
        if (reduced)
            elements *= certify_shape(checker, in)[d];
        if (!reduced || now->by)
            shape[kept++] = reduced ? 1 : certify_shape(checker, in)[d];
    }
    if (now->step->op->code == TOCSIN_OPERATOR_MEAN) {
        const certify_number count = certify_integer(elements);
        if (!certify_inverse(&count, &now->factor))
            return certify_unclear(checker, "a mean of nothing");
    }
    return certify_has_shape(checker, certify_output(now), shape, kept)
               ? certify_everywhere(checker, shape, kept, reduced_difference, now)
               : certify_wrong_shape(checker);
}
