/* lookup_rule.c - look-ups in a shard of a table's rows, behind a mask.
 *
 * A rank that holds rows [low, high) of a table looks up, for an index v, what it has, and nothing
 * for the rest. The certificate names the steps by two operators, which mean
 *
 *     masked_index:LOW:HIGH(v)     = v - LOW where LOW <= v < HIGH, else 0
 *     unmasked_rows:LOW:HIGH(t, v) = row LOW + masked_index:LOW:HIGH(v) of t
 *
 * so that behind the mask again, unmasked_rows is embedding(t, v) restricted to the box [LOW, HIGH)
 * of the table's rows; and gradients behind the mask, scattered by masked_index, are rows [LOW,
 * HIGH) of embedding_backward. Each mask is taken apart down to its two comparisons, whose operands
 * must be that very v, element for element, and whose bounds LOW and HIGH.
 */
#include <stdio.h>

#include "certify/certify.h"

/* What is compared: parts are judged one by one, so that no two mistakes cancel. */
enum { PART_BELOW, PART_ABOVE, PART_VALUE, PART_TABLE };

typedef struct masked {
    const certify_step *step;
    const certify_term *claim;
    int64_t low, high;
    int part;
} masked;

static const char *key_of(const certify_checker *checker, uint32_t id)
{
    const certify_atom *atom = certify_atom_of(checker, id);
    return atom->kind == CERTIFY_CALL
               ? tocsin_intern_text(&checker->certificate->texts, atom->text, NULL)
               : "";
}

static uint32_t operand_of(const certify_checker *checker, uint32_t id, uint32_t number)
{
    const certify_atom *atom = certify_atom_of(checker, id);
    return number < atom->operand_count
               ? checker->certificate->parts.items[atom->first_operand + number]
               : 0;
}

bool certify_masked_bounds(const certify_checker *checker, uint32_t atom, const char *name,
                           int64_t *low, int64_t *high)
{
    long long from, to;
    char format[40], again[80];
    snprintf(format, sizeof format, "%.24s:%%lld:%%lld", name);
    if (sscanf(key_of(checker, atom), format, &from, &to) != 2 || from < 0 || to <= from)
        return false;
    snprintf(again, sizeof again, "%.24s:%lld:%lld", name, from, to);
    *low = from;
    *high = to;
    return strcmp(again, key_of(checker, atom)) == 0;
}

/* The index into an operand that is broadcast to what `index` runs over, aligned at the right. */
static certify_outcome broadcast(certify_checker *checker, uint32_t relation,
                                 const certify_form *index, uint32_t count, certify_form *at)
{
    const uint32_t ndim = certify_ndim(checker, relation);
    if (ndim > count)
        return certify_different(checker, "a mask has too many dims");
    for (uint32_t d = 0; d < ndim; d++)
        at[d] = certify_shape(checker, relation)[d] == 1 ? certify_constant(0)
                                                         : index[d + count - ndim];
    return CERTIFY_DONE;
}

certify_outcome certify_single(certify_checker *checker, uint32_t relation,
                               const certify_form *index, certify_entry *entry)
{
    const size_t mark = checker->bag.count;
    const certify_number one = certify_integer(1);
    const bool expand = checker->expand;
    checker->expand = false;
    const certify_outcome outcome = certify_evaluate(checker, relation, index, &one, NULL, 0);
    checker->expand = expand;
    if (outcome != CERTIFY_DONE)
        return outcome;
    if (checker->bag.count != mark + 1)
        return certify_different(checker, "a value is not one term");
    *entry = checker->bag.items[mark];
    checker->bag.count = mark;
    return CERTIFY_DONE;
}

/* Append the relation at an index to which it is broadcast. */
static certify_outcome append(certify_checker *checker, uint32_t relation,
                              const certify_form *index, uint32_t count, int64_t factor)
{
    certify_form at[CERTIFY_NDIM_MAX];
    const certify_number scale = certify_integer(factor);
    const certify_outcome outcome = broadcast(checker, relation, index, count, at);
    return outcome == CERTIFY_DONE ? certify_evaluate(checker, relation, at, &scale, NULL, 0)
                                   : outcome;
}

static bool is_plain(const certify_entry *entry)
{
    const certify_number one = certify_integer(1);
    return entry->span_count == 0 && certify_equal(&entry->factor, &one);
}

certify_outcome certify_mask_operand(certify_checker *checker, uint32_t mask,
                                     const certify_form *index, uint32_t count, bool above,
                                     int64_t bound)
{
    certify_entry either, side;
    certify_form at[CERTIFY_NDIM_MAX];
    certify_number value;
    const certify_number wanted = certify_integer(bound);

    certify_outcome outcome = broadcast(checker, mask, index, count, at);
    if (outcome == CERTIFY_DONE)
        outcome = certify_single(checker, mask, at, &either);
    if (outcome != CERTIFY_DONE)
        return outcome;
    if (!is_plain(&either) || strcmp(key_of(checker, either.atom), "or") != 0 ||
        certify_atom_of(checker, either.atom)->operand_count != 2)
        return certify_different(checker, "the mask is none of two bounds");
    const uint32_t ndim = certify_atom_of(checker, either.atom)->ndim;
    for (uint32_t k = 0; k < 2; k++) {
        const uint32_t compared = operand_of(checker, either.atom, k);
        outcome = broadcast(checker, compared, either.index, ndim, at);
        if (outcome == CERTIFY_DONE)
            outcome = certify_single(checker, compared, at, &side);
        if (outcome != CERTIFY_DONE)
            return outcome;
        if (!is_plain(&side) || strcmp(key_of(checker, side.atom), above ? "ge" : "lt") != 0 ||
            certify_atom_of(checker, side.atom)->operand_count != 2)
            continue;
        if (!certify_is_constant(checker, operand_of(checker, side.atom, 1), &value) ||
            !certify_equal(&value, &wanted))
            return certify_different(checker, "the mask has another bound");
        return append(checker, operand_of(checker, side.atom, 0), side.index,
                      certify_atom_of(checker, side.atom)->ndim, 1);
    }
    return certify_different(checker, "the mask is none of two bounds");
}

/* ---- the index behind the mask --------------------------------------------------------------- */

static certify_outcome index_difference(certify_checker *checker, const void *context,
                                        const certify_form *index)
{
    const masked *now = context;
    const uint32_t count = certify_ndim(checker, now->step->outputs[0]);
    const uint32_t value = operand_of(checker, now->claim->atom, 0);
    certify_entry claim;

    certify_outcome outcome = certify_single(checker, now->step->outputs[0], index, &claim);
    if (outcome == CERTIFY_DONE && !is_plain(&claim))
        return certify_different(checker, "a masked index has a factor");
    if (outcome == CERTIFY_DONE)
        outcome =
            append(checker, value, claim.index, certify_atom_of(checker, claim.atom)->ndim, -1);
    if (outcome != CERTIFY_DONE)
        return outcome;
    if (now->part == PART_VALUE) { /* input + low - v */
        outcome = append(checker, now->step->inputs[0], index, count, 1);
        return outcome == CERTIFY_DONE ? certify_subtract_integer(checker, -now->low) : outcome;
    }
    return certify_mask_operand(checker, now->step->inputs[1], index, count,
                                now->part == PART_ABOVE,
                                now->part == PART_ABOVE ? now->high : now->low);
}

/* ---- the rows behind the mask ---------------------------------------------------------------- */

/* The claim is a partial look-up: its box must be [low, high) of the table's rows. */
static certify_outcome check_box(certify_checker *checker, const masked *now,
                                 const certify_entry *claim)
{
    const certify_span *span = claim->spans;
    const uint32_t table = operand_of(checker, claim->atom, 0);
    if (claim->span_count == 0)
        return now->low == 0 && certify_shape(checker, table)[0] == now->high
                   ? CERTIFY_DONE
                   : certify_different(checker, "the claim covers other rows than the mask");
    return claim->span_count == 1 && span->atom == claim->atom && span->axis == 0 &&
                   !span->maximum && span->stride == 1 && span->start.count == 0 &&
                   span->start.base == now->low && span->count == now->high - now->low &&
                   span->extent == certify_shape(checker, table)[0]
               ? CERTIFY_DONE
               : certify_different(checker, "the claim covers other rows than the mask");
}

static certify_outcome rows_difference(certify_checker *checker, const void *context,
                                       const certify_form *index)
{
    const masked *now = context;
    const uint32_t count = certify_ndim(checker, now->step->outputs[0]);
    certify_form at[CERTIFY_NDIM_MAX];
    certify_entry claim, rows;
    int64_t low, high;

    certify_outcome outcome = certify_single(checker, now->step->outputs[0], index, &claim);
    if (outcome == CERTIFY_DONE)
        outcome = broadcast(checker, now->step->inputs[0], index, count, at);
    if (outcome == CERTIFY_DONE)
        outcome = certify_single(checker, now->step->inputs[0], at, &rows);
    if (outcome != CERTIFY_DONE)
        return outcome;
    const certify_atom *atom = certify_atom_of(checker, rows.atom);
    bool same = certify_masked_bounds(checker, rows.atom, "unmasked_rows", &low, &high) &&
                low == now->low && high == now->high && rows.span_count == 0 &&
                atom->operand_count == 2 &&
                atom->ndim == certify_atom_of(checker, claim.atom)->ndim &&
                certify_equal(&rows.factor, &claim.factor);
    for (uint32_t k = 0; k < 2 && same; k++)
        same = operand_of(checker, rows.atom, k) == operand_of(checker, claim.atom, k);
    for (uint32_t d = 0; d < atom->ndim && same; d++)
        same = certify_form_compare(&rows.index[d], &claim.index[d]) == 0;
    if (!same)
        return certify_different(checker, "the claim is another look-up than the masked one");
    if (now->part == PART_VALUE)
        return check_box(checker, now, &claim);
    const uint32_t value = operand_of(checker, rows.atom, 1);
    outcome = append(checker, value, rows.index, certify_ndim(checker, value), -1);
    return outcome != CERTIFY_DONE
               ? outcome
               : certify_mask_operand(checker, now->step->inputs[1], index, count,
                                      now->part == PART_ABOVE,
                                      now->part == PART_ABOVE ? now->high : now->low);
}

static const certify_term *single_claim(const certify_checker *checker, uint32_t relation)
{
    const certify_relation *view = &checker->certificate->relations.items[relation - 1];
    return view->joined || view->count != 1 ? NULL
                                            : &checker->certificate->terms.items[view->first_part];
}

static const certify_term *first_term(const certify_checker *checker, uint32_t relation)
{
    return single_claim(checker, relation);
}

certify_outcome certify_masked_fill(certify_checker *checker, const certify_step *step, bool *mine)
{
    masked now = {.step = step, .claim = single_claim(checker, step->outputs[0])};
    const certify_term *input = first_term(checker, step->inputs[0]);
    certify_difference *difference = NULL;
    certify_outcome outcome = CERTIFY_DONE;

    *mine = false;
    if (now.claim == NULL)
        return CERTIFY_DONE;
    if (certify_masked_bounds(checker, now.claim->atom, "masked_index", &now.low, &now.high) &&
        certify_atom_of(checker, now.claim->atom)->operand_count == 1)
        difference = index_difference;
    else if (input != NULL && strcmp(key_of(checker, now.claim->atom), "embedding") == 0 &&
             certify_masked_bounds(checker, input->atom, "unmasked_rows", &now.low, &now.high))
        difference = rows_difference;
    if (difference == NULL)
        return CERTIFY_DONE;
    *mine = true;
    for (now.part = PART_BELOW; now.part <= PART_VALUE && outcome == CERTIFY_DONE; now.part++)
        outcome = certify_everywhere(checker, certify_shape(checker, step->outputs[0]),
                                     certify_ndim(checker, step->outputs[0]), difference, &now);
    return outcome;
}

/* ---- rows by a masked index ------------------------------------------------------------------ */

static certify_outcome unmasked_difference(certify_checker *checker, const void *context,
                                           const certify_form *index)
{
    const masked *now = context;
    const uint32_t table = operand_of(checker, now->claim->atom, 0);
    const uint32_t value = operand_of(checker, now->claim->atom, 1);
    const uint32_t local = certify_ndim(checker, now->step->inputs[1]);
    const uint32_t whole = certify_ndim(checker, value);
    const uint32_t columns = certify_ndim(checker, table) - 1;
    const certify_number one = certify_integer(1), minus = certify_integer(-1);
    certify_form at[CERTIFY_NDIM_MAX];
    certify_entry claim, by;
    certify_number scale;
    int64_t low, high;

    certify_outcome outcome = certify_single(checker, now->step->outputs[0], index, &claim);
    if (outcome != CERTIFY_DONE)
        return outcome;
    if (now->part == PART_TABLE) { /* row k of the shard is row low + k of the table */
        at[0] = index[local + columns];
        for (uint32_t d = 0; d < columns; d++)
            at[1 + d] = index[local + d];
        outcome = certify_evaluate(checker, now->step->inputs[0], at, &one, NULL, 0);
        at[0].base += now->low;
        for (uint32_t d = 0; d < columns; d++)
            at[1 + d] = claim.index[whole + d];
        if (outcome == CERTIFY_DONE && !certify_multiply(&claim.factor, &minus, &scale))
            return certify_unclear(checker, "a factor is too large");
        return outcome == CERTIFY_DONE ? certify_evaluate(checker, table, at, &scale, NULL, 0)
                                       : outcome;
    }
    outcome = certify_single(checker, now->step->inputs[1], index, &by);
    if (outcome != CERTIFY_DONE)
        return outcome;
    if (!is_plain(&by) || !certify_masked_bounds(checker, by.atom, "masked_index", &low, &high) ||
        low != now->low || high != now->high || claim.span_count != 0)
        return certify_different(checker, "the rows are not looked up by an index of that mask");
    outcome = append(checker, operand_of(checker, by.atom, 0), by.index,
                     certify_atom_of(checker, by.atom)->ndim, 1);
    return outcome == CERTIFY_DONE ? certify_evaluate(checker, value, claim.index, &minus, NULL, 0)
                                   : outcome;
}

certify_outcome certify_unmasked_rows(certify_checker *checker, const certify_step *step,
                                      bool *mine)
{
    masked now = {.step = step, .claim = single_claim(checker, step->outputs[0])};
    int64_t sizes[CERTIFY_NDIM_MAX + 1];
    const uint32_t out = step->outputs[0], ndim = certify_ndim(checker, out);
    certify_outcome outcome = CERTIFY_DONE;

    *mine = now.claim != NULL &&
            certify_masked_bounds(checker, now.claim->atom, "unmasked_rows", &now.low, &now.high);
    if (!*mine)
        return CERTIFY_DONE;
    const certify_atom *atom = certify_atom_of(checker, now.claim->atom);
    const uint32_t table = operand_of(checker, now.claim->atom, 0);
    const uint32_t local = certify_ndim(checker, step->inputs[1]);
    const uint32_t shard = certify_ndim(checker, step->inputs[0]);
    if (atom->operand_count != 2 || shard < 1 || certify_ndim(checker, table) != shard ||
        ndim != local + shard - 1 ||
        atom->ndim != certify_ndim(checker, operand_of(checker, now.claim->atom, 1)) + shard - 1 ||
        certify_shape(checker, step->inputs[0])[0] != now.high - now.low ||
        certify_shape(checker, table)[0] < now.high)
        return certify_different(checker, "the rows of the shard are not those of the mask");
    for (uint32_t d = 1; d < shard; d++) /* the columns of the atom are the table's */
        if (checker->certificate->sizes.items[atom->first_size + atom->ndim - shard + d] !=
            certify_shape(checker, table)[d])
            return certify_different(checker, "the rows have another size than the table's");
    for (uint32_t d = 0; d < ndim; d++) {
        sizes[d] = certify_shape(checker, out)[d];
        if (sizes[d] != (d < local ? certify_shape(checker, step->inputs[1])[d]
                                   : certify_shape(checker, step->inputs[0])[d - local + 1]))
            return certify_different(checker, "the result has another size than its operands");
    }
    sizes[ndim] = now.high - now.low;
    for (now.part = PART_VALUE; now.part <= PART_TABLE && outcome == CERTIFY_DONE; now.part++)
        outcome = certify_everywhere(checker, sizes, ndim + 1, unmasked_difference, &now);
    return outcome;
}

/* ---- gradients by a masked index ------------------------------------------------------------- */

certify_outcome certify_unmasked(certify_checker *checker, uint32_t relation,
                                 const certify_form *index, bool gradient, int64_t low,
                                 int64_t high)
{
    certify_entry entry;
    int64_t from, to;
    certify_form at[CERTIFY_NDIM_MAX];
    certify_outcome outcome = certify_single(checker, relation, index, &entry);

    if (outcome != CERTIFY_DONE)
        return outcome;
    const certify_atom *atom = certify_atom_of(checker, entry.atom);
    const bool fits =
        gradient
            ? strcmp(key_of(checker, entry.atom), "masked_fill:0") == 0 && atom->operand_count == 2
            : is_plain(&entry) &&
                  certify_masked_bounds(checker, entry.atom, "masked_index", &from, &to) &&
                  from == low && to == high && atom->operand_count == 1;
    if (!fits || entry.span_count != 0)
        return certify_different(checker, "it is scattered by a mask but not masked by it");
    const uint32_t inner = operand_of(checker, entry.atom, 0);
    outcome = broadcast(checker, inner, entry.index, atom->ndim, at);
    return outcome == CERTIFY_DONE ? certify_evaluate(checker, inner, at, &entry.factor, NULL, 0)
                                   : outcome;
}

certify_outcome certify_gradient_mask(certify_checker *checker, uint32_t gradient,
                                      const certify_form *index, bool above, int64_t bound)
{
    certify_entry entry = {0};
    const certify_outcome outcome = certify_single(checker, gradient, index, &entry);
    if (outcome != CERTIFY_DONE)
        return outcome;
    if (strcmp(key_of(checker, entry.atom), "masked_fill:0") != 0 ||
        certify_atom_of(checker, entry.atom)->operand_count != 2)
        return certify_different(checker, "a gradient scattered by a mask is not masked by it");
    return certify_mask_operand(checker, operand_of(checker, entry.atom, 1), entry.index,
                                certify_atom_of(checker, entry.atom)->ndim, above, bound);
}
