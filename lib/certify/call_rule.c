/* call_rule.c - operators of which only the axis signature is known: equal operands, equal results.
 *
 * The output is claimed to be a slice of an atom: the operator on operands R, at an index F(i),
 * over a box. The signature says which elements of the operands an element of the output depends
 * on: those with the same indices of the free axes, and all along the others. So the claim follows
 * if
 *
 *     operand(i, k) = R(F(i), G(k))        for all i, and all k of the axes that are run over,
 *
 * where G is one-to-one onto the box for a contracted axis, and the identity onto all of it for an
 * axis that must be whole. F is read off the claim, G off its box; nothing is searched. An operand
 * in which the operator is linear may be q times R, or R over a box of its own: q and that box are
 * then those of the output.
 */
#include <assert.h>
#include <stdlib.h>

#include "certify/certify.h"

enum {
    INPUTS_MAX = TOCSIN_SIGNATURE_OPERANDS_MAX,
    AXES_MAX = TOCSIN_SIGNATURE_AXES_MAX + 2 * TOCSIN_PLAN_NDIM_MAX
};

typedef struct axis_use {
    int64_t local, extent; /* sizes in the operands, and in the atom's operands; 0 not seen */
    int output_dim;        /* -1: none */
    bool contracted, whole, any;
    bool ignored;        /* the operator does not depend on it: one element speaks for all */
    uint32_t coordinate; /* its own form's place among the indices; UINT32_MAX: none */
} axis_use;

typedef struct operand_use {
    uint32_t relation, whole;             /* the operand, and the atom's */
    int8_t axis[2][TOCSIN_PLAN_NDIM_MAX]; /* by dim of either: into axes; -1: the one element */
    certify_number factor;
    const certify_term *box; /* the term whose ranges the operand carries, or NULL */
} operand_use;

typedef struct application {
    const certify_call *call;
    const certify_term *claim;
    uint32_t claimed; /* relation */
    const certify_atom *atom;
    operand_use operands[INPUTS_MAX];
    axis_use axes[AXES_MAX];
    uint32_t axis_count, input_count, index_count, judged;
    int8_t output_axis[2][TOCSIN_PLAN_NDIM_MAX]; /* by dim of the claim, of the atom */
    uint32_t output_lead[2];                     /* dims of `...` in the claim, in the atom */
    int64_t sizes[TOCSIN_PLAN_NDIM_MAX + AXES_MAX];
    uint32_t output_ndim;
    int64_t times; /* a contraction over equal elements */
    int mask;      /* 1, 2: the mask's lower, upper bound is judged in place of operand 1 */
} application;

/* ---- the digits of a contraction axis -----------------------------------------------------------
 */

certify_outcome certify_pieces(certify_checker *checker, const certify_span *spans,
                               uint32_t span_count, uint32_t atom, uint32_t axis, bool maximum,
                               int64_t extent, certify_piece pieces[CERTIFY_PIECES_MAX],
                               uint32_t *count)
{
    int64_t reached = 1;
    *count = 0;
    while (reached < extent) {
        const certify_span *next = NULL;
        for (uint32_t k = 0; k < span_count; k++)
            if (spans[k].atom == atom && spans[k].axis == axis && spans[k].stride >= reached &&
                (next == NULL || spans[k].stride < next->stride))
                next = &spans[k];
        if (*count + 2 > CERTIFY_PIECES_MAX || (next != NULL && next->stride % reached != 0))
            return certify_unclear(checker, "the box of a contraction does not nest");
        const int64_t end = next == NULL ? extent : next->stride;
        if (extent % end != 0 || end % reached != 0)
            return certify_unclear(checker, "the box of a contraction does not nest");
        if (end > reached)
            pieces[(*count)++] = (certify_piece){.stride = reached, .count = end / reached};
        reached = end;
        if (next == NULL)
            continue;
        if (next->maximum != maximum)
            return certify_different(checker, "a partial sum stands where a maximum belongs");
        pieces[(*count)++] =
            (certify_piece){.stride = next->stride, .count = next->count, .start = next->start};
        if (extent % (next->stride * next->extent) != 0)
            return certify_different(checker, "a box is larger than its axis");
        reached = next->stride * next->extent;
    }
    uint32_t used = 0, found = 0;
    for (uint32_t k = 0; k < span_count; k++)
        found += spans[k].atom == atom && spans[k].axis == axis;
    for (uint32_t k = 0; k < *count; k++) /* each span once: none overlaps another */
        for (uint32_t m = 0; m < span_count; m++)
            used += spans[m].atom == atom && spans[m].axis == axis &&
                    spans[m].stride == pieces[k].stride && spans[m].count == pieces[k].count &&
                    certify_form_compare(&spans[m].start, &pieces[k].start) == 0;
    return used == found ? CERTIFY_DONE : certify_different(checker, "the ranges of a box overlap");
}

/* The logical index along a contracted axis where the local one is `local`. */
static certify_outcome contracted_index(certify_checker *checker, const application *use,
                                        uint32_t axis, const certify_entry *claim,
                                        const certify_form *local, certify_form *logical)
{
    const axis_use *one = &use->axes[axis];
    certify_piece pieces[CERTIFY_PIECES_MAX];
    certify_form above = *local, rest;
    uint32_t count;
    int64_t total = 1;

    *logical = certify_constant(0);
    certify_outcome outcome =
        certify_pieces(checker, claim->spans, claim->span_count, use->claim->atom, axis,
                       use->call->maximum, one->extent, pieces, &count);
    if (outcome != CERTIFY_DONE || one->extent == 1)
        return outcome;
    for (uint32_t k = 0; k < count; k++)
        total *= pieces[k].count;
    if (total != one->local)
        return certify_different(checker, "the box has %lld elements of an axis, the operands %lld",
                                 (long long)total, (long long)one->local);
    for (uint32_t k = 0; k < count; k++) {
        certify_form digit = above;
        if (k + 1 < count) {
            outcome = certify_divide(&checker->space, &digit, pieces[k].count, &above, &rest,
                                     &checker->refinement);
            if (outcome != CERTIFY_DONE)
                return outcome;
            digit = rest;
        }
        if (!certify_form_add(logical, &pieces[k].start, pieces[k].stride) ||
            !certify_form_add(logical, &digit, pieces[k].stride))
            return certify_unclear(checker, "an index is too large");
    }
    return CERTIFY_DONE;
}

/* ---- sizes and axes -------------------------------------------------------------------------- */

static certify_outcome bind(certify_checker *checker, axis_use *axis, int64_t local, int64_t extent)
{
    if ((axis->local > 1 && local > 1 && axis->local != local) ||
        (axis->extent > 1 && extent > 1 && axis->extent != extent))
        return certify_different(checker, "the operands have different sizes along one axis");
    axis->local = local > axis->local ? local : axis->local;
    axis->extent = extent > axis->extent ? extent : axis->extent;
    return CERTIFY_DONE;
}

static axis_use *new_axis(application *use)
{
    if (use->axis_count == AXES_MAX)
        return NULL;
    use->axes[use->axis_count] = (axis_use){.output_dim = -1, .coordinate = UINT32_MAX};
    return &use->axes[use->axis_count++];
}

/* The size of a dim as the signature counts dims. `side` 0: of the operand, 1: of the atom's. */
static int64_t size_of(const certify_checker *checker, const application *use, uint32_t input,
                       int side, uint32_t dim)
{
    const operand_use *operand = &use->operands[input];
    const uint32_t relation = side == 0 ? operand->relation : operand->whole;
    const uint32_t ndim = certify_ndim(checker, relation);
    if (side == 0 && use->call->transposed && input == 1 && dim + 2 >= ndim)
        dim = dim + 1 == ndim ? ndim - 2 : ndim - 1;
    return certify_shape(checker, relation)[dim];
}

/* The axis of a dim: those of `...` count from the right, behind the named ones. */
static int axis_of(const application *use, const tocsin_signature_operand *form, uint32_t lead,
                   uint32_t dim)
{
    return dim < lead ? (int)(use->call->signature->axis_count + lead - 1 - dim)
                      : form->axis[dim - lead];
}

/* One axis for each name, each dim of `...`, and each `_` of an operand (of both its sides). */
static certify_outcome bind_operand(certify_checker *checker, application *use, uint32_t input)
{
    operand_use *operand = &use->operands[input];
    const tocsin_signature_operand *form = &use->call->signature->operands[input];
    const uint32_t any_first = use->axis_count;

    for (uint32_t k = 0; k < form->ndim; k++)
        if (form->axis[k] == TOCSIN_AXIS_ANY) {
            axis_use *any = new_axis(use);
            if (any == NULL)
                return certify_unclear(checker, "too many axes");
            any->any = true;
        }
    for (int side = 0; side < 2; side++) {
        const uint32_t ndim = certify_ndim(checker, side == 0 ? operand->relation : operand->whole);
        uint32_t any = any_first;
        for (uint32_t d = 0; d < ndim; d++) {
            int axis = axis_of(use, form, ndim - form->ndim, d);
            const int64_t size = size_of(checker, use, input, side, d);
            if (axis == TOCSIN_AXIS_ANY)
                axis = (int)any++;
            operand->axis[side][d] = (int8_t)axis;
            if (axis == TOCSIN_AXIS_ONE && size != 1)
                return certify_different(checker, "an axis of size 1 has another size");
            const certify_outcome outcome =
                axis < 0
                    ? CERTIFY_DONE
                    : bind(checker, &use->axes[axis], side == 0 ? size : 0, side == 1 ? size : 0);
            if (outcome != CERTIFY_DONE)
                return outcome;
        }
    }
    return CERTIFY_DONE;
}

/* The dims of `...` may be other ones in the atom: only elements are compared. */
static certify_outcome count_ellipsis(certify_checker *checker, application *use,
                                      uint32_t *ellipsis)
{
    const tocsin_signature *signature = use->call->signature;
    const tocsin_signature_operand *out =
        &signature->operands[use->input_count + use->call->output];
    const uint32_t out_ndim[2] = {use->output_ndim, use->atom->ndim};

    *ellipsis = 0;
    for (int side = 0; side < 2; side++) {
        if (out_ndim[side] < out->ndim || (out_ndim[side] > out->ndim && !out->ellipsis))
            return certify_different(checker, "the result has another number of dims");
        use->output_lead[side] = out_ndim[side] - out->ndim;
        *ellipsis = *ellipsis > use->output_lead[side] ? *ellipsis : use->output_lead[side];
        for (uint32_t i = 0; i < use->input_count; i++) {
            const tocsin_signature_operand *form = &signature->operands[i];
            const uint32_t ndim = certify_ndim(checker, side == 0 ? use->operands[i].relation
                                                                  : use->operands[i].whole);
            if (ndim < form->ndim || (ndim > form->ndim && !form->ellipsis) ||
                ndim - form->ndim > use->output_lead[side])
                return certify_different(checker, "an operand has another number of dims");
        }
    }
    return CERTIFY_DONE;
}

/* Which axis each dim of each operand and of the result is. */
static certify_outcome bind_operands(certify_checker *checker, application *use)
{
    const tocsin_signature *signature = use->call->signature;
    const tocsin_signature_operand *out =
        &signature->operands[use->input_count + use->call->output];
    uint32_t ellipsis;

    use->output_ndim = certify_ndim(checker, use->claimed);
    certify_outcome outcome = count_ellipsis(checker, use, &ellipsis);
    for (uint32_t a = 0; outcome == CERTIFY_DONE && a < signature->axis_count + ellipsis; a++) {
        axis_use *axis = new_axis(use);
        if (axis == NULL)
            return certify_unclear(checker, "too many axes");
        axis->contracted = a < signature->axis_count && signature->contracted[a];
        axis->whole = a < signature->axis_count && signature->whole[a];
    }
    for (uint32_t i = 0; i < use->input_count && outcome == CERTIFY_DONE; i++)
        outcome = bind_operand(checker, use, i);
    for (int side = 0; side < 2 && outcome == CERTIFY_DONE; side++)
        for (uint32_t d = 0; d < use->output_lead[side] + out->ndim; d++) {
            const int axis = axis_of(use, out, use->output_lead[side], d);
            use->output_axis[side][d] = (int8_t)axis;
            if (axis >= 0)
                use->axes[axis].output_dim = (int)d;
        }
    return outcome;
}

/* Sizes of the result, and one coordinate for every axis that is run over. */
static certify_outcome lay_out(certify_checker *checker, application *use)
{
    const int64_t *shape = certify_shape(checker, use->claimed);
    const int64_t *whole = checker->certificate->sizes.items + use->atom->first_size;

    use->index_count = 0;
    use->times = 1;
    for (uint32_t d = 0; d < use->output_ndim; d++) {
        const int a = use->output_axis[0][d];
        if ((a >= 0 && use->axes[a].local > 0 && shape[d] != use->axes[a].local) ||
            (a == TOCSIN_AXIS_ONE && shape[d] != 1))
            return certify_different(checker, "the result has another size than its operands");
        use->sizes[use->index_count++] = shape[d];
    }
    for (uint32_t d = 0; d < use->atom->ndim; d++) {
        const int a = use->output_axis[1][d];
        const bool bound = a >= 0 && use->axes[a].extent > 0;
        const int64_t size =
            bound ? use->axes[a].extent : shape[d - use->output_lead[1] + use->output_lead[0]];
        const bool shard = use->call->scattered && d == 0 && whole[d] >= use->call->high;
        if ((whole[d] != size && !shard) || (!bound && d < use->output_lead[1]))
            return certify_different(checker, "the atom has another size than its operands");
    }
    for (uint32_t a = 0; a < use->axis_count; a++) {
        axis_use *axis = &use->axes[a];
        if (axis->output_dim >= 0 && axis->contracted)
            return certify_unclear(checker, "a contracted axis is in the result");
        if (axis->local == 0 || (axis->output_dim >= 0 && !axis->whole))
            continue;
        axis->coordinate = use->index_count;
        use->sizes[use->index_count++] = axis->local;
        if (axis->contracted && !axis->whole && axis->extent == 1 && axis->local > 1) {
            if (!use->call->maximum && __builtin_mul_overflow(use->times, axis->local, &use->times))
                return certify_unclear(checker, "a size is too large");
        } else if (!axis->contracted && !axis->whole && !axis->any) {
            axis->ignored = true;
        } else if ((!axis->contracted || axis->whole) && axis->local != axis->extent) {
            return certify_different(checker, "an axis must be whole but is not");
        }
    }
    return CERTIFY_DONE;
}

/* ---- the judgement --------------------------------------------------------------------------- */

/* Where the claim's atom is at this index: the claim's one entry. */
static certify_outcome evaluate_claim(certify_checker *checker, const application *use,
                                      const certify_form *index, certify_entry *entry)
{
    const size_t mark = checker->bag.count;
    const certify_number one = certify_integer(1);
    const bool expand = checker->expand;
    checker->expand = false;
    const certify_outcome outcome = certify_evaluate(checker, use->claimed, index, &one, NULL, 0);
    checker->expand = expand;
    if (outcome != CERTIFY_DONE)
        return outcome;
    assert(checker->bag.count == mark + 1);
    *entry = checker->bag.items[mark];
    checker->bag.count = mark;
    return CERTIFY_DONE;
}

/* The nth term of this atom (0: of any) in a relation and its parts; *nth counts down to 0. */
static const certify_term *find_term(const certificate *from, uint32_t relation, uint32_t atom,
                                     uint32_t *nth)
{
    const certify_relation *view = &from->relations.items[relation - 1];
    const certify_term *found = NULL;
    for (uint32_t k = 0; k < view->count && found == NULL; k++) {
        if (view->joined) {
            found = find_term(from, from->parts.items[view->first_part + k], atom, nth);
            continue;
        }
        const certify_term *term = &from->terms.items[view->first_part + k];
        if ((atom == 0 || term->atom == atom) && --*nth == 0)
            found = term;
    }
    return found;
}

/* The logical index that the operand's first element along an ignored axis has: read off the first
 * term of the first operand that has the axis, and judged like every other index. */
static certify_outcome read_ignored(certify_checker *checker, const application *use, uint32_t axis,
                                    certify_form *logical)
{
    const certificate *from = checker->certificate;
    *logical = certify_constant(0);
    for (uint32_t i = 0; i < use->input_count; i++) {
        const operand_use *operand = &use->operands[i];
        const uint32_t ndim = certify_ndim(checker, operand->relation);
        uint32_t one = 1, other = 1, dim = 0, before[2] = {0, 0};
        while (dim < ndim && operand->axis[0][dim] != (int8_t)axis)
            dim++;
        if (dim == ndim || operand->axis[1][dim] != (int8_t)axis ||
            certify_shape(checker, operand->whole)[dim] == 1)
            continue;
        const certify_term *term[2] = {find_term(from, operand->whole, 0, &one),
                                       find_term(from, operand->relation, 0, &other)};
        if (term[0] == NULL || term[1] == NULL || term[0]->digits[dim] != 1)
            return certify_unclear(checker, "an axis that is ignored cannot be told");
        for (int side = 0; side < 2; side++)
            for (uint32_t d = 0; d < dim; d++)
                before[side] += term[side]->digits[d];
        const certify_digit *whole = &from->digits.items[term[0]->first_digit + before[0]];
        logical->base = -whole->start.base;
        for (uint32_t k = 0; k < term[1]->digits[dim]; k++) {
            const certify_digit *digit = &from->digits.items[term[1]->first_digit + before[1] + k];
            if (digit->axis != whole->axis || digit->stride % whole->stride != 0)
                continue;
            const int64_t times = digit->stride / whole->stride;
            logical->base += digit->start.base * times;
            for (int s = 0; s < TOCSIN_SYMBOL_COUNT; s++)
                if (!certify_form_add(logical, &checker->symbol[s], digit->start.weight[s] * times))
                    return certify_unclear(checker, "an index is too large");
        }
        return CERTIFY_DONE;
    }
    return CERTIFY_DONE;
}

/* The local and logical index of every axis at this point. */
static certify_outcome place_axes(certify_checker *checker, const application *use,
                                  const certify_form *index, certify_form *local,
                                  certify_form *logical)
{
    certify_entry place, *claim = &place;
    certify_outcome outcome = evaluate_claim(checker, use, index, claim);
    for (uint32_t d = 0; d < use->output_ndim && outcome == CERTIFY_DONE; d++) {
        const int a = use->output_axis[0][d];
        if (a >= 0 && use->axes[a].local > 0)
            local[a] = index[d];
    }
    for (uint32_t d = 0; d < use->atom->ndim && outcome == CERTIFY_DONE; d++) {
        const int a = use->output_axis[1][d];
        const bool bound = a >= 0 && use->axes[a].extent > 0;
        if (bound)
            logical[a] = claim->index[d];
        certify_form same = index[d - use->output_lead[1] + use->output_lead[0]];
        same.base += use->call->scattered && d == 0 ? use->call->low : 0;
        if (d >= use->output_lead[1] && (!bound || use->axes[a].whole) &&
            certify_form_compare(&claim->index[d], &same) != 0)
            return certify_different(checker, "an axis of the result must be whole but is not");
    }
    for (uint32_t a = 0; a < use->axis_count && outcome == CERTIFY_DONE; a++) {
        const axis_use *axis = &use->axes[a];
        if (axis->coordinate == UINT32_MAX)
            continue;
        local[a] = logical[a] = index[axis->coordinate];
        if (axis->ignored) {
            local[a] = certify_constant(0);
            outcome = read_ignored(checker, use, a, &logical[a]);
        } else if (axis->contracted && !axis->whole)
            outcome = contracted_index(checker, use, a, claim, &local[a], &logical[a]);
    }
    return outcome;
}

/* Operand 1 of a quotient: the atom's operand is the reciprocal of what is divided by. */
static certify_outcome subtract_divisor(certify_checker *checker, const operand_use *operand,
                                        const certify_form *index)
{
    const certify_number one = certify_integer(1), minus = certify_integer(-1);
    const size_t mark = checker->bag.count;
    const certify_outcome outcome = certify_evaluate(checker, operand->whole, index, &one, NULL, 0);
    if (outcome != CERTIFY_DONE)
        return outcome;
    if (checker->bag.count != mark + 1)
        return certify_different(checker, "the divisor's reciprocal is not one value");
    const certify_entry entry = checker->bag.items[mark];
    const certify_atom *atom = certify_atom_of(checker, entry.atom);
    checker->bag.count = mark;
    if (atom->kind != CERTIFY_CALL || !certify_equal(&entry.factor, &one) ||
        entry.span_count != 0 || atom->operand_count != 1 ||
        strcmp(tocsin_intern_text(&checker->certificate->texts, atom->text, NULL), "reciprocal") !=
            0)
        return certify_different(checker, "the divisor has no reciprocal there");
    const uint32_t divisor = checker->certificate->parts.items[atom->first_operand];
    if (certify_ndim(checker, divisor) != atom->ndim)
        return certify_different(checker, "a reciprocal has another number of dims");
    return certify_evaluate(checker, divisor, entry.index, &minus, NULL, 0);
}

/* operand - factor * the atom's operand over the box */
static certify_outcome operand_difference(certify_checker *checker, const void *context,
                                          const certify_form *index)
{
    const application *use = context;
    const operand_use *operand = &use->operands[use->judged];
    certify_form local[AXES_MAX], logical[AXES_MAX], at[2][TOCSIN_PLAN_NDIM_MAX];
    certify_form masked[TOCSIN_PLAN_NDIM_MAX];
    const certify_number one = certify_integer(1), minus = certify_integer(-1);
    certify_number scale;
    certify_span *spans = NULL;
    uint32_t span_count = 0;

    certify_outcome outcome = place_axes(checker, use, index, local, logical);
    if (outcome != CERTIFY_DONE)
        return outcome;
    for (int side = 0; side < 2; side++) {
        const uint32_t ndim = certify_ndim(checker, side == 0 ? operand->relation : operand->whole);
        for (uint32_t d = 0; d < ndim; d++) {
            const int a = operand->axis[side][d];
            const bool swapped =
                side == 0 && use->call->transposed && use->judged == 1 && d + 2 >= ndim;
            const uint32_t dim = !swapped ? d : d + 1 == ndim ? ndim - 2 : ndim - 1;
            const bool single = a < 0 || size_of(checker, use, use->judged, side, d) == 1;
            at[side][dim] = single ? certify_constant(0) : side == 0 ? local[a] : logical[a];
        }
    }
    for (uint32_t d = 0; use->mask > 0 && d < certify_ndim(checker, use->operands[0].relation); d++)
        masked[d] = local[use->operands[0].axis[0][d]]; /* where the gradient is */
    if (use->call->scattered && use->mask > 0)
        outcome = certify_gradient_mask(checker, use->operands[0].relation, masked, use->mask == 2,
                                        use->mask == 2 ? use->call->high : use->call->low);
    else if (use->call->scattered)
        outcome = certify_unmasked(checker, operand->relation, at[0], use->judged == 0,
                                   use->call->low, use->call->high);
    else
        outcome = certify_evaluate(checker, operand->relation, at[0], &one, NULL, 0);
    if (outcome != CERTIFY_DONE)
        return outcome;
    if (use->call->divides && use->judged == 1)
        return subtract_divisor(checker, operand, at[1]);
    if (!certify_multiply(&operand->factor, &minus, &scale))
        return certify_unclear(checker, "a factor is too large");
    if (operand->box != NULL)
        outcome = certify_spans_of(checker, operand->box, NULL, 0, &spans, &span_count);
    if (outcome != CERTIFY_DONE)
        return outcome;
    return certify_evaluate(checker, operand->whole, at[1], &scale, spans, span_count);
}

/* With another factor and box? The nth candidate, read off the first term of the operand: that term
 * is the atom's operand's, or the nth like it in what defines that. */
static bool propose(const certify_checker *checker, operand_use *operand, uint32_t nth)
{
    const certificate *from = checker->certificate;
    uint32_t one = 1, other = 1;
    certify_number inverse;

    operand->factor = certify_integer(1);
    operand->box = NULL;
    if (nth == 0)
        return true;
    const certify_term *first = find_term(from, operand->relation, 0, &one);
    const certify_term *term = find_term(from, operand->whole, 0, &other);
    if (first == NULL || term == NULL)
        return false;
    certify_number scale = term->factor;
    if (term->atom != first->atom) {
        const certify_atom *atom = certify_atom_of(checker, term->atom);
        const certify_term *found =
            atom->kind == CERTIFY_DEFINED
                ? find_term(from, from->parts.items[atom->first_operand], first->atom, &nth)
                : NULL;
        if (found == NULL || !certify_multiply(&scale, &found->factor, &scale))
            return false;
    } else if (nth > 1) {
        return false;
    }
    operand->box = first->range_count > 0 ? first : NULL;
    return certify_inverse(&scale, &inverse) &&
           certify_multiply(&first->factor, &inverse, &operand->factor);
}

static certify_outcome judge_operand(certify_checker *checker, application *use, uint32_t input)
{
    operand_use *operand = &use->operands[input];
    const bool linear = use->call->linear >> input & 1;
    certify_outcome outcome = CERTIFY_DIFFERENT;
    char why[sizeof checker->why] = "";

    use->judged = input;
    if (use->call
            ->scattered) { /* nothing to propose: a factor of the gradient is that of the claim */
        operand->factor = input == 0 ? use->claim->factor : certify_integer(1);
        outcome = CERTIFY_DONE;
        for (use->mask = 0; use->mask <= 2 * (int)input && outcome == CERTIFY_DONE; use->mask++)
            outcome =
                certify_everywhere(checker, use->sizes, use->index_count, operand_difference, use);
        use->mask = 0;
        return outcome;
    }
    for (uint32_t nth = 0; nth < (linear ? 16U : 1U) && outcome == CERTIFY_DIFFERENT; nth++) {
        if (!propose(checker, operand, nth))
            break;
        outcome =
            certify_everywhere(checker, use->sizes, use->index_count, operand_difference, use);
        if (nth == 0 && outcome == CERTIFY_DIFFERENT)
            memcpy(why, checker->why, sizeof why);
    }
    if (outcome == CERTIFY_DIFFERENT)
        return certify_different(checker, "operand %u is not that of the atom: %.160s", input, why);
    return outcome;
}

/* ---- factor and box of the whole ------------------------------------------------------------- */

static int compare_ranges(const void *left, const void *right)
{
    const certify_range *a = left, *b = right;
    const int64_t pairs[][2] = {{a->atom, b->atom},
                                {a->axis, b->axis},
                                {a->maximum, b->maximum},
                                {a->stride, b->stride},
                                {a->extent, b->extent},
                                {a->count, b->count},
                                {a->start.base, b->start.base},
                                {a->start.weight[0], b->start.weight[0]},
                                {a->start.weight[1], b->start.weight[1]}};
    for (size_t k = 0; k < TOCSIN_COUNT_OF(pairs); k++)
        if (pairs[k][0] != pairs[k][1])
            return pairs[k][0] < pairs[k][1] ? -1 : 1;
    return 0;
}

static void mark_atoms(const certificate *from, uint32_t relation, uint8_t *marks, uint32_t *top)
{
    const certify_relation *view = &from->relations.items[relation - 1];
    for (uint32_t k = 0; k < view->count; k++) {
        if (view->joined) {
            mark_atoms(from, from->parts.items[view->first_part + k], marks, top);
            continue;
        }
        const certify_term *term = &from->terms.items[view->first_part + k];
        for (uint32_t b = 0; b <= term->range_count; b++) {
            const uint32_t atom = b == term->range_count
                                      ? term->atom
                                      : from->ranges.items[term->first_range + b].atom;
            marks[atom] = 1;
            *top = atom > *top ? atom : *top;
        }
    }
}

/* Is the atom among those that the relation is made of? Then a box of it could mean either use. */
static certify_outcome must_not_reach(certify_checker *checker, uint32_t relation, uint32_t target)
{
    const certificate *from = checker->certificate;
    uint32_t top = 0;
    uint8_t *marks = tocsin_zalloc(from->atoms.count + 1, 1);
    if (marks == NULL)
        return CERTIFY_FAILED;
    mark_atoms(from, relation, marks, &top);
    for (uint32_t id = top; id > target; id--) {
        const certify_atom *atom = &from->atoms.items[id - 1];
        for (uint32_t k = 0; marks[id] && k < atom->operand_count; k++)
            mark_atoms(from, from->parts.items[atom->first_operand + k], marks, &top);
    }
    const bool reached = marks[target];
    tocsin_free(marks);
    return reached ? certify_unclear(checker, "both operands rest on one partial value")
                   : CERTIFY_DONE;
}

static certify_outcome judge_box(certify_checker *checker, const application *use)
{
    const certificate *from = checker->certificate;
    certify_range drawn[2][CERTIFY_BOX_MAX];
    uint32_t count[2] = {0, 0};

    for (uint32_t k = 0; k < use->claim->range_count; k++) {
        const certify_range *range = &from->ranges.items[use->claim->first_range + k];
        if (range->atom != use->claim->atom)
            drawn[0][count[0]++] = *range;
        else if (range->axis >= use->axis_count || !use->axes[range->axis].contracted ||
                 use->axes[range->axis].whole || use->axes[range->axis].extent == 1)
            return certify_different(checker, "the box restricts what is no contracted axis");
    }
    for (uint32_t i = 0; i < use->input_count; i++) {
        const certify_term *box = use->operands[i].box;
        for (uint32_t k = 0; box != NULL && k < box->range_count; k++) {
            const certify_range *range = &from->ranges.items[box->first_range + k];
            if (range->maximum)
                return certify_different(checker, "a partial maximum is used as if it were whole");
            if (count[1] == CERTIFY_BOX_MAX)
                return certify_unclear(checker, "the operands have too many ranges");
            drawn[1][count[1]++] = *range;
            for (uint32_t j = 0; j < use->input_count; j++) {
                const certify_outcome outcome =
                    j == i ? CERTIFY_DONE
                           : must_not_reach(checker, use->operands[j].whole, range->atom);
                if (outcome != CERTIFY_DONE)
                    return outcome;
            }
        }
    }
    bool same = count[0] == count[1];
    for (int side = 0; side < 2 && same && count[side] > 0; side++)
        qsort(drawn[side], count[side], sizeof drawn[side][0], compare_ranges);
    for (uint32_t k = 0; k < count[0] && same; k++)
        same = compare_ranges(&drawn[0][k], &drawn[1][k]) == 0;
    return same ? CERTIFY_DONE
                : certify_different(checker, "the box is not that of the partial operand");
}

static certify_outcome judge_factor(certify_checker *checker, const application *use)
{
    certify_number product = certify_integer(use->times);
    for (uint32_t i = 0; i < use->input_count; i++)
        if (!certify_multiply(&product, &use->operands[i].factor, &product))
            return certify_unclear(checker, "a factor is too large");
    return certify_equal(&product, &use->claim->factor)
               ? CERTIFY_DONE
               : certify_different(checker, "the factor is not that of the operands");
}

/* ---- the rule -------------------------------------------------------------------------------- */

static certify_outcome judge_order(certify_checker *checker, application *use, bool swapped)
{
    const certify_step *step = use->call->step;
    use->axis_count = 0;
    for (uint32_t i = 0; i < use->input_count; i++)
        use->operands[i] =
            (operand_use){.relation = step->inputs[i],
                          .whole = checker->certificate->parts
                                       .items[use->atom->first_operand + (swapped ? 1 - i : i)]};
    certify_outcome outcome = bind_operands(checker, use);
    if (outcome == CERTIFY_DONE)
        outcome = lay_out(checker, use);
    for (uint32_t i = 0; i < use->input_count && outcome == CERTIFY_DONE; i++)
        outcome = judge_operand(checker, use, i);
    if (outcome == CERTIFY_DONE)
        outcome = judge_factor(checker, use);
    if (outcome == CERTIFY_DONE)
        outcome = judge_box(checker, use);
    return outcome;
}

static bool is_zero(const certify_checker *checker, uint32_t relation)
{
    const certify_relation *view = &checker->certificate->relations.items[relation - 1];
    return !view->joined && view->count == 0;
}

certify_outcome certify_congruent(certify_checker *checker, const certify_call *call)
{
    const certify_step *step = call->step;
    application use = {
        .call = call, .claimed = step->outputs[call->output], .input_count = step->op->input_count};
    const certify_relation *view = &checker->certificate->relations.items[use.claimed - 1];

    if (use.input_count != call->signature->input_count ||
        step->op->output_count != call->signature->output_count)
        return certify_different(checker, "the signature has other operands");
    for (uint32_t i = 0; i < use.input_count; i++)
        if ((call->linear >> i & 1) && is_zero(checker, step->inputs[i]))
            return is_zero(checker, use.claimed)
                       ? CERTIFY_DONE
                       : certify_different(checker, "the result is zero but not claimed to be");
    if (view->joined || view->count != 1)
        return certify_different(checker, "the result is one term but not claimed to be");
    use.claim = &checker->certificate->terms.items[view->first_part];
    use.atom = certify_atom_of(checker, use.claim->atom);
    if (use.atom->kind != CERTIFY_CALL || use.atom->output != call->output ||
        use.atom->operand_count != use.input_count ||
        strcmp(tocsin_intern_text(&checker->certificate->texts, use.atom->text, NULL), call->key) !=
            0)
        return certify_different(checker, "the atom is no result of %s", call->key);
    const bool commutes = call->signature->commutative && use.input_count == 2;
    certify_outcome outcome = judge_order(checker, &use, false);
    if (commutes && (outcome == CERTIFY_DIFFERENT || outcome == CERTIFY_UNCLEAR))
        outcome = judge_order(checker, &use, true);
    return outcome;
}
