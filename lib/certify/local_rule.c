/* local_rule.c - what each operator's output is, element by element.
 *
 * Structure and linear combinations are written as out(i) = sum of factor * input(f(i)), with f in
 * linear forms; constants as such; sums over dims as sums over coordinates, and the claim's own sum
 * atoms are put out as what they mean. Everything else goes to call_rule.c with its signature.
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <tocsin/tensor.h>

#include "certify/certify.h"

/* ---- attributes ---------------------------------------------------------------------------------
 */

static const tocsin_attribute *attribute(const tocsin_plan *plan, const tocsin_plan_op *op,
                                         const char *key, tocsin_attribute_kind kind)
{
    const tocsin_attribute *found = tocsin_plan_attribute(plan, op->attributes, key);
    return found != NULL && found->kind == (uint8_t)kind ? found : NULL;
}

int64_t certify_integer_of(const tocsin_plan *plan, const tocsin_plan_op *op, const char *key,
                           int64_t otherwise)
{
    const tocsin_attribute *found = attribute(plan, op, key, TOCSIN_ATTRIBUTE_INTEGERS);
    return found != NULL && found->count == 1 ? found->integers[0] : otherwise;
}

double certify_real_of(const tocsin_plan *plan, const tocsin_plan_op *op, const char *key,
                       double otherwise)
{
    const tocsin_attribute *found = attribute(plan, op, key, TOCSIN_ATTRIBUTE_REAL);
    if (found != NULL)
        return found->real;
    found = attribute(plan, op, key, TOCSIN_ATTRIBUTE_INTEGERS);
    return found != NULL && found->count == 1 ? (double)found->integers[0] : otherwise;
}

const char *certify_text_of(const tocsin_plan *plan, const tocsin_plan_op *op, const char *key,
                            const char *otherwise)
{
    const tocsin_attribute *found = attribute(plan, op, key, TOCSIN_ATTRIBUTE_TEXT);
    return found != NULL ? tocsin_plan_text(plan, found->text) : otherwise;
}

const int64_t *certify_list_of(const tocsin_plan *plan, const tocsin_plan_op *op, const char *key,
                               uint32_t *count)
{
    const tocsin_attribute *found = attribute(plan, op, key, TOCSIN_ATTRIBUTE_INTEGERS);
    *count = found != NULL ? found->count : 0;
    return found != NULL ? found->integers : NULL;
}

int certify_dim(int64_t dim, uint32_t ndim)
{
    const int64_t counted = dim < 0 ? dim + (int64_t)ndim : dim;
    return counted < 0 || counted >= (int64_t)ndim ? -1 : (int)counted;
}

/* What the user named stands behind its length, so that no two kinds have one text. */
static void append_counted(const tocsin_plan *plan, uint32_t string, tocsin_string *text)
{
    size_t bytes;
    const char *counted = tocsin_intern_text(&plan->strings, string, &bytes);
    tocsin_string_printf(text, "%zu:", bytes);
    tocsin_string_append(text, counted, bytes);
}

void certify_kind_text(const tocsin_plan *plan, const tocsin_plan_op *op, tocsin_string *text)
{
    const tocsin_attribute_set set = plan->attribute_sets.items[op->attributes];
    if (op->code == TOCSIN_OPERATOR_CALL)
        append_counted(plan, op->name, text);
    else
        tocsin_string_append_text(text, tocsin_plan_text(plan, op->name));
    for (uint32_t k = 0; k < set.count; k++) {
        const tocsin_attribute *one = &set.items[k];
        tocsin_string_append_char(text, '|');
        append_counted(plan, one->key, text);
        tocsin_string_append_char(text, '=');
        if (one->kind == TOCSIN_ATTRIBUTE_REAL) {
            tocsin_string_printf(text, "%a", one->real);
        } else if (one->kind == TOCSIN_ATTRIBUTE_TEXT) {
            tocsin_string_append_char(text, '"');
            append_counted(plan, one->text, text);
        } else {
            for (uint32_t i = 0; i < one->count; i++)
                tocsin_string_printf(text, "%lld,", (long long)one->integers[i]);
        }
    }
    if (op->code == TOCSIN_OPERATOR_CALL && op->signature != TOCSIN_PLAN_NONE)
        tocsin_string_printf(text, "|%s", plan->signatures.items[op->signature].text);
}

/* ---- one output ------------------------------------------------------------------------------ */

typedef struct judgement judgement;
/* Append - actual at the index. */
typedef certify_outcome subtract_rule(certify_checker *checker, const judgement *now,
                                      const certify_form *index);

struct judgement {
    const certify_step *step;
    uint32_t output;
    subtract_rule *rule;
    int dim;           /* of input 0, or of the output for a join */
    int64_t start, by; /* along it */
    uint32_t bits;     /* reduced dims */
    const int64_t *list;
    certify_number factor;
};

static uint32_t input_of(const judgement *now, uint32_t input)
{
    return now->step->inputs[input];
}

static uint32_t output_of(const judgement *now)
{
    return now->step->outputs[now->output];
}

static certify_outcome subtract(certify_checker *checker, uint32_t relation,
                                const certify_form *index, const certify_number *factor)
{
    const certify_number minus = certify_integer(-1);
    certify_number scale;
    if (!certify_multiply(&minus, factor, &scale))
        return certify_unclear(checker, "a factor is too large");
    return certify_evaluate(checker, relation, index, &scale, NULL, 0);
}

static certify_outcome local_difference(certify_checker *checker, const void *context,
                                        const certify_form *index)
{
    const judgement *now = context;
    const certify_number one = certify_integer(1);
    const certify_outcome outcome = certify_evaluate(checker, output_of(now), index, &one, NULL, 0);
    return outcome == CERTIFY_DONE ? now->rule(checker, now, index) : outcome;
}

static certify_outcome judge(certify_checker *checker, const judgement *now)
{
    return certify_everywhere(checker, certify_shape(checker, output_of(now)),
                              certify_ndim(checker, output_of(now)), local_difference, now);
}

/* Does the output have this shape? */
static bool has_shape(const certify_checker *checker, uint32_t relation, const int64_t *shape,
                      uint32_t ndim)
{
    return certify_ndim(checker, relation) == ndim &&
           memcmp(certify_shape(checker, relation), shape, ndim * sizeof shape[0]) == 0;
}

static certify_outcome wrong_shape(certify_checker *checker)
{
    return certify_different(checker, "the result has another shape");
}

/* ---- structure ------------------------------------------------------------------------------- */

static certify_outcome take_same(certify_checker *checker, const judgement *now,
                                 const certify_form *index)
{
    return subtract(checker, input_of(now, 0), index, &now->factor);
}

/* The flat index, taken apart by the input's shape. */
static certify_outcome take_view(certify_checker *checker, const judgement *now,
                                 const certify_form *index)
{
    const uint32_t out = output_of(now), in = input_of(now, 0);
    const uint32_t ndim = certify_ndim(checker, in);
    certify_form flat = certify_constant(0), above, at[CERTIFY_NDIM_MAX];
    int64_t stride = 1;

    for (uint32_t d = certify_ndim(checker, out); d-- > 0; stride *= certify_shape(checker, out)[d])
        if (!certify_form_add(&flat, &index[d], stride))
            return certify_unclear(checker, "an index is too large");
    for (uint32_t d = ndim; d-- > 0;) {
        const certify_outcome outcome =
            certify_divide(&checker->space, &flat, certify_shape(checker, in)[d], &above, &at[d],
                           &checker->refinement);
        if (outcome == CERTIFY_UNCLEAR)
            return certify_unclear(checker, "an index cannot be divided");
        if (outcome != CERTIFY_DONE)
            return outcome;
        flat = above;
    }
    return subtract(checker, in, at, &now->factor);
}

static certify_outcome take_permuted(certify_checker *checker, const judgement *now,
                                     const certify_form *index)
{
    const uint32_t ndim = certify_ndim(checker, input_of(now, 0));
    certify_form at[CERTIFY_NDIM_MAX];
    for (uint32_t d = 0; d < ndim; d++)
        at[certify_dim(now->list[d], ndim)] = index[d];
    return subtract(checker, input_of(now, 0), at, &now->factor);
}

/* Aligned at the right; a dim of size 1 is repeated. */
static certify_outcome take_expanded(certify_checker *checker, const judgement *now,
                                     uint32_t relation, const certify_form *index,
                                     const certify_number *factor)
{
    const uint32_t out_ndim = certify_ndim(checker, output_of(now));
    const uint32_t ndim = certify_ndim(checker, relation);
    certify_form at[CERTIFY_NDIM_MAX];

    if (ndim > out_ndim)
        return wrong_shape(checker);
    for (uint32_t d = 0; d < ndim; d++) {
        const int64_t size = certify_shape(checker, relation)[d];
        const uint32_t out = d + out_ndim - ndim;
        if (size != 1 && size != certify_shape(checker, output_of(now))[out])
            return wrong_shape(checker);
        at[d] = size == 1 ? certify_constant(0) : index[out];
    }
    return subtract(checker, relation, at, factor);
}

static certify_outcome take_expand(certify_checker *checker, const judgement *now,
                                   const certify_form *index)
{
    return take_expanded(checker, now, input_of(now, 0), index, &now->factor);
}

/* start + by * index along dim */
static certify_outcome take_range(certify_checker *checker, const judgement *now,
                                  const certify_form *index)
{
    certify_form at[CERTIFY_NDIM_MAX];
    memcpy(at, index, certify_ndim(checker, input_of(now, 0)) * sizeof at[0]);
    at[now->dim] = certify_constant(now->start);
    if (!certify_form_add(&at[now->dim], &index[now->dim], now->by))
        return certify_unclear(checker, "an index is too large");
    return subtract(checker, input_of(now, 0), at, &now->factor);
}

/* The dim is not in the output; its index is start. */
static certify_outcome take_selected(certify_checker *checker, const judgement *now,
                                     const certify_form *index)
{
    certify_form at[CERTIFY_NDIM_MAX];
    const uint32_t ndim = certify_ndim(checker, input_of(now, 0));
    for (uint32_t d = 0; d < ndim; d++)
        at[d] = (int)d == now->dim ? certify_constant(now->start) : index[d - ((int)d > now->dim)];
    return subtract(checker, input_of(now, 0), at, &now->factor);
}

/* Inputs one after another along dim; `by`: each without that dim, one element of it. */
static certify_outcome take_joined(certify_checker *checker, const judgement *now,
                                   const certify_form *index)
{
    const uint32_t ndim = certify_ndim(checker, output_of(now));
    int64_t offset = now->start;
    bool below = false;

    certify_outcome outcome =
        certify_side(&checker->space, &index[now->dim], offset, &below, &checker->refinement);
    if (outcome != CERTIFY_DONE || below)
        return outcome; /* the zeros before */
    for (uint32_t k = 0; k < now->step->op->input_count; k++) {
        certify_form at[CERTIFY_NDIM_MAX];
        const uint32_t part = input_of(now, k);
        const int64_t size = now->by == 1 ? 1 : certify_shape(checker, part)[now->dim];
        outcome = certify_side(&checker->space, &index[now->dim], offset + size, &below,
                               &checker->refinement);
        if (outcome != CERTIFY_DONE)
            return outcome;
        if (below) {
            for (uint32_t d = 0, to = 0; d < ndim; d++)
                if (now->by != 1 || (int)d != now->dim)
                    at[to++] = index[d];
            if (now->by != 1)
                at[now->dim].base -= offset;
            return subtract(checker, part, at, &now->factor);
        }
        offset += size;
    }
    return CERTIFY_DONE; /* the zeros after */
}

static certify_outcome judge_view(certify_checker *checker, judgement *now)
{
    int64_t sizes[2] = {1, 1};
    for (int side = 0; side < 2; side++) {
        const uint32_t relation = side == 0 ? input_of(now, 0) : output_of(now);
        for (uint32_t d = 0; d < certify_ndim(checker, relation); d++)
            sizes[side] *= certify_shape(checker, relation)[d];
    }
    now->rule = take_view;
    return sizes[0] == sizes[1] ? judge(checker, now) : wrong_shape(checker);
}

static certify_outcome judge_permute(certify_checker *checker, judgement *now)
{
    uint32_t count, seen = 0;
    const uint32_t in = input_of(now, 0), ndim = certify_ndim(checker, in);
    int64_t shape[CERTIFY_NDIM_MAX];

    now->list = certify_list_of(now->step->plan, now->step->op, "dims", &count);
    if (count != ndim)
        return certify_different(checker, "dims do not fit the operand");
    for (uint32_t d = 0; d < ndim; d++) {
        const int dim = certify_dim(now->list[d], ndim);
        if (dim < 0 || (seen >> dim & 1))
            return certify_different(checker, "dims are no permutation");
        seen |= 1U << dim;
        shape[d] = certify_shape(checker, in)[dim];
    }
    now->rule = take_permuted;
    return has_shape(checker, output_of(now), shape, ndim) ? judge(checker, now)
                                                           : wrong_shape(checker);
}

/* slice and split: a range of dim. */
static certify_outcome judge_range(certify_checker *checker, judgement *now)
{
    const tocsin_plan *plan = now->step->plan;
    const tocsin_plan_op *op = now->step->op;
    const uint32_t in = input_of(now, 0), ndim = certify_ndim(checker, in);
    int64_t shape[CERTIFY_NDIM_MAX], count;

    now->dim = certify_dim(certify_integer_of(plan, op, "dim", 0), ndim);
    if (now->dim < 0 || certify_ndim(checker, output_of(now)) != ndim)
        return certify_different(checker, "dim is out of range");
    const int64_t size = certify_shape(checker, in)[now->dim];
    if (op->code == TOCSIN_OPERATOR_SLICE) {
        int64_t end = certify_integer_of(plan, op, "end", size);
        now->by = certify_integer_of(plan, op, "step", 1);
        now->start = certify_integer_of(plan, op, "start", 0);
        now->start += now->start < 0 ? size : 0;
        end = end < 0 ? end + size : end > size ? size : end;
        if (now->start < 0 || end <= now->start || now->by < 1)
            return certify_different(checker, "the range is out of the operand");
        count = (end - now->start + now->by - 1) / now->by;
    } else {
        now->by = 1;
        now->start = 0;
        for (uint32_t j = 0; j < now->output; j++) {
            const uint32_t before = now->step->outputs[j];
            if (before == 0)
                return certify_unclear(checker, "a part before it is unknown");
            now->start += certify_shape(checker, before)[now->dim];
        }
        count = certify_shape(checker, output_of(now))[now->dim];
    }
    memcpy(shape, certify_shape(checker, in), ndim * sizeof shape[0]);
    shape[now->dim] = count;
    now->rule = take_range;
    if (count < 1 || now->start + (count - 1) * now->by >= size)
        return certify_different(checker, "the range is out of the operand");
    return has_shape(checker, output_of(now), shape, ndim) ? judge(checker, now)
                                                           : wrong_shape(checker);
}

static certify_outcome judge_select(certify_checker *checker, judgement *now)
{
    const uint32_t in = input_of(now, 0), ndim = certify_ndim(checker, in);
    int64_t shape[CERTIFY_NDIM_MAX];

    now->dim = certify_dim(certify_integer_of(now->step->plan, now->step->op, "dim", 0), ndim);
    if (now->dim < 0)
        return certify_different(checker, "dim is out of range");
    const int64_t size = certify_shape(checker, in)[now->dim];
    now->start = now->step->op->code == TOCSIN_OPERATOR_UNBIND
                     ? (int64_t)now->output
                     : certify_integer_of(now->step->plan, now->step->op, "index", 0);
    now->start += now->start < 0 ? size : 0;
    if (now->start < 0 || now->start >= size)
        return certify_different(checker, "index is out of range");
    for (uint32_t d = 0, to = 0; d < ndim; d++)
        if ((int)d != now->dim)
            shape[to++] = certify_shape(checker, in)[d];
    now->rule = take_selected;
    return has_shape(checker, output_of(now), shape, ndim - 1) ? judge(checker, now)
                                                               : wrong_shape(checker);
}

/* cat, stack and pad. */
static certify_outcome judge_join(certify_checker *checker, judgement *now)
{
    const tocsin_plan_op *op = now->step->op;
    const uint32_t out = output_of(now), ndim = certify_ndim(checker, out);
    const bool stacks = op->code == TOCSIN_OPERATOR_STACK, pads = op->code == TOCSIN_OPERATOR_PAD;
    int64_t total = 0;

    now->dim = certify_dim(certify_integer_of(now->step->plan, op, "dim", 0), ndim);
    now->by = stacks;
    now->start = pads ? certify_integer_of(now->step->plan, op, "before", 0) : 0;
    total = now->start + (pads ? certify_integer_of(now->step->plan, op, "after", 0) : 0);
    if (now->dim < 0 || now->start < 0 || total < now->start)
        return certify_different(checker, "dim or padding is out of range");
    for (uint32_t k = 0; k < op->input_count; k++) {
        const uint32_t part = input_of(now, k);
        if (certify_ndim(checker, part) + stacks != ndim)
            return wrong_shape(checker);
        for (uint32_t d = 0; d < ndim; d++)
            if ((int)d != now->dim &&
                certify_shape(checker, part)[d - (stacks && (int)d > now->dim)] !=
                    certify_shape(checker, out)[d])
                return wrong_shape(checker);
        total += stacks ? 1 : certify_shape(checker, part)[now->dim];
    }
    now->rule = take_joined;
    return total == certify_shape(checker, out)[now->dim] ? judge(checker, now)
                                                          : wrong_shape(checker);
}

/* ---- linear combinations and constants ------------------------------------------------------- */

/* The first input, plus the factor times each other. */
static certify_outcome take_sum(certify_checker *checker, const judgement *now,
                                const certify_form *index)
{
    const certify_number one = certify_integer(1);
    certify_outcome outcome = CERTIFY_DONE;
    for (uint32_t k = 0; k < now->step->op->input_count && outcome == CERTIFY_DONE; k++)
        outcome =
            take_expanded(checker, now, input_of(now, k), index, k == 0 ? &one : &now->factor);
    return outcome;
}

static certify_outcome subtract_constant(certify_checker *checker, double value)
{
    certify_number factor;
    const certify_number minus = certify_integer(-1);
    uint32_t one = 0;

    for (size_t k = 0; k < checker->certificate->atoms.count && one == 0; k++)
        if (checker->certificate->atoms.items[k].kind == CERTIFY_ONE)
            one = (uint32_t)k + 1;
    if (!certify_real(value, &factor) || !certify_multiply(&minus, &factor, &factor))
        return certify_unclear(checker, "the constant is not finite");
    if (certify_is_zero(&factor))
        return CERTIFY_DONE;
    if (one == 0)
        return certify_different(checker, "the certificate has no atom one");
    return TOCSIN_VEC_PUSH(&checker->bag, (certify_entry){.factor = factor, .atom = one})
               ? CERTIFY_DONE
               : CERTIFY_FAILED;
}

bool certify_is_constant(const certify_checker *checker, uint32_t relation, certify_number *value)
{
    const certify_relation *view = &checker->certificate->relations.items[relation - 1];
    *value = certify_integer(0);
    if (view->joined || view->count > 1)
        return false;
    if (view->count == 0)
        return true;
    const certify_term *term = &checker->certificate->terms.items[view->first_part];
    *value = term->factor;
    return certify_atom_of(checker, term->atom)->kind == CERTIFY_ONE && term->range_count == 0;
}

certify_outcome certify_subtract_integer(certify_checker *checker, int64_t value)
{
    return subtract_constant(checker, (double)value);
}

static certify_outcome take_shifted(certify_checker *checker, const judgement *now,
                                    const certify_form *index)
{
    const certify_number one = certify_integer(1);
    const certify_outcome outcome = subtract(checker, input_of(now, 0), index, &one);
    return outcome == CERTIFY_DONE
               ? subtract_constant(checker,
                                   certify_real_of(now->step->plan, now->step->op, "value", 0.0))
               : outcome;
}

static certify_outcome take_constant(certify_checker *checker, const judgement *now,
                                     const certify_form *index)
{
    (void)index;
    return subtract_constant(checker,
                             certify_real_of(now->step->plan, now->step->op, "value", 0.0));
}

/* start + step * i, as the numbers 0, 1, 2, ... there */
static certify_outcome take_numbers(certify_checker *checker, const judgement *now,
                                    const certify_form *index)
{
    uint32_t iota = 0;
    certify_form *at = TOCSIN_ARENA_ARRAY(&checker->arena, certify_form, 1);
    const certify_number minus = certify_integer(-1);

    for (size_t k = 0; k < checker->certificate->atoms.count && iota == 0; k++)
        if (checker->certificate->atoms.items[k].kind == CERTIFY_IOTA)
            iota = (uint32_t)k + 1;
    if (at == NULL)
        return CERTIFY_FAILED;
    *at = certify_constant(0);
    if (iota == 0 || !certify_form_add(at, index, now->by))
        return certify_different(checker, "the certificate has no atom iota");
    const certify_entry entry = {.factor = minus, .atom = iota, .index = at};
    if (at->count > 0 && !TOCSIN_VEC_PUSH(&checker->bag, entry))
        return CERTIFY_FAILED;
    return subtract_constant(checker, (double)(now->start + at->base));
}

static certify_outcome judge_numbers(certify_checker *checker, judgement *now)
{
    now->start = certify_integer_of(now->step->plan, now->step->op, "start", 0);
    now->by = certify_integer_of(now->step->plan, now->step->op, "step", 1);
    now->rule = take_numbers;
    if (certify_ndim(checker, output_of(now)) != 1 || now->start < 0 ||
        now->start > CERTIFY_SIZE_MAX / 2)
        return certify_unclear(checker, "numbers with several dims, or too large");
    return judge(checker, now);
}

/* Same shape as input 0, times the factor. */
static certify_outcome judge_multiple(certify_checker *checker, judgement *now)
{
    const uint32_t in = input_of(now, 0);
    if (!has_shape(checker, output_of(now), certify_shape(checker, in), certify_ndim(checker, in)))
        return wrong_shape(checker);
    if (now->rule == NULL)
        now->rule = take_same;
    return judge(checker, now);
}

static certify_outcome judge_scale(certify_checker *checker, judgement *now)
{
    const double divisor = certify_real_of(now->step->plan, now->step->op, "divisor", 0.0);
    const double factor = certify_real_of(now->step->plan, now->step->op, "factor", 1.0);
    if (!certify_real(divisor != 0.0 ? divisor : factor, &now->factor) ||
        (divisor != 0.0 && !certify_inverse(&now->factor, &now->factor)))
        return certify_unclear(checker, "the factor is not finite");
    return judge_multiple(checker, now);
}

static certify_outcome judge_sum_of_inputs(certify_checker *checker, judgement *now)
{
    const double alpha = certify_real_of(now->step->plan, now->step->op, "alpha", 1.0);
    if (!certify_real(now->step->op->code == TOCSIN_OPERATOR_SUBTRACT ? -alpha : alpha,
                      &now->factor))
        return certify_unclear(checker, "alpha is not finite");
    now->rule = take_sum;
    return judge(checker, now);
}

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
static certify_outcome subtract_reduced(certify_checker *checker, const judgement *now,
                                        const certify_form *index)
{
    const uint32_t in = input_of(now, 0), ndim = certify_ndim(checker, in);
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
    const judgement *now = context;
    const certify_number one = certify_integer(1);

    certify_outcome outcome = subtract_reduced(checker, now, index);
    const size_t actual = checker->bag.count;
    if (outcome == CERTIFY_DONE)
        outcome = certify_evaluate(checker, output_of(now), index, &one, NULL, 0);
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

static bool reduced_dims(const judgement *now, uint32_t ndim, uint32_t *bits)
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

static certify_outcome judge_reduction(certify_checker *checker, judgement *now)
{
    const uint32_t in = input_of(now, 0), ndim = certify_ndim(checker, in);
    int64_t shape[CERTIFY_NDIM_MAX], elements = 1;
    uint32_t kept = 0;

    now->by = certify_integer_of(now->step->plan, now->step->op, "keepdim", 0) != 0;
    if (!reduced_dims(now, ndim, &now->bits))
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
    return has_shape(checker, output_of(now), shape, kept)
               ? certify_everywhere(checker, shape, kept, reduced_difference, now)
               : wrong_shape(checker);
}

/* ---- operators known by a signature ---------------------------------------------------------- */

static certify_outcome judge_call(certify_checker *checker, const judgement *now,
                                  const tocsin_signature *signature, uint16_t linear,
                                  const char *key)
{
    const certify_call call = {.step = now->step,
                               .signature = signature,
                               .key = key,
                               .output = now->output,
                               .linear = linear};
    return certify_congruent(checker, &call);
}

static certify_outcome judge_table(certify_checker *checker, const judgement *now,
                                   tocsin_operator_code code, const char *key)
{
    const tocsin_signature *signature = &checker->table_signatures[code];
    return judge_call(checker, now, signature, signature->linear, key);
}

/* By the operator's own text. */
static certify_outcome judge_kind(certify_checker *checker, const judgement *now, uint16_t linear)
{
    const tocsin_plan_op *op = now->step->op;
    tocsin_string text = {0};
    const tocsin_signature *signature = NULL;

    if (op->signature != TOCSIN_PLAN_NONE)
        signature = &now->step->plan->signatures.items[op->signature];
    else if (tocsin_operators[op->code].signature[0] != '\0')
        signature = &checker->table_signatures[op->code];
    if (signature == NULL)
        return certify_unclear(checker, "no rule for operator %.60s",
                               tocsin_plan_text(now->step->plan, op->name));
    certify_kind_text(now->step->plan, op, &text);
    const certify_outcome outcome =
        text.status != TOCSIN_OK
            ? CERTIFY_FAILED
            : judge_call(checker, now, signature, (uint16_t)(signature->linear | linear),
                         tocsin_string_text(&text));
    tocsin_string_free(&text);
    return outcome;
}

/* x[a b c] -> [a c], or with the reduced dims kept at size 1. */
static void reduction_signature(tocsin_signature *signature, uint32_t ndim, uint32_t bits,
                                bool keep)
{
    memset(signature, 0, sizeof *signature);
    signature->input_count = signature->output_count = 1;
    signature->axis_count = (uint8_t)ndim;
    tocsin_signature_operand *from = &signature->operands[0], *to = &signature->operands[1];
    from->ndim = (uint8_t)ndim;
    for (uint32_t d = 0; d < ndim; d++) {
        const bool reduced = bits >> d & 1;
        from->axis[d] = (int8_t)d;
        signature->contracted[d] = reduced;
        if (!reduced || keep)
            to->axis[to->ndim++] = reduced ? (int8_t)TOCSIN_AXIS_ONE : (int8_t)d;
    }
}

static certify_outcome judge_maximum(certify_checker *checker, judgement *now)
{
    tocsin_signature signature;
    char key[48];
    const uint32_t ndim = certify_ndim(checker, input_of(now, 0));
    const bool keep = certify_integer_of(now->step->plan, now->step->op, "keepdim", 0) != 0;
    const certify_call call = {.step = now->step,
                               .signature = &signature,
                               .key = key,
                               .output = now->output,
                               .maximum = true};
    if (!reduced_dims(now, ndim, &now->bits))
        return certify_different(checker, "a dim is out of range");
    reduction_signature(&signature, ndim, now->bits, keep);
    snprintf(key, sizeof key, "amax:%x:%d", now->bits, keep);
    return certify_congruent(checker, &call);
}

static certify_outcome judge_softmax(certify_checker *checker, judgement *now)
{
    tocsin_signature signature;
    char key[48];
    const uint32_t ndim = certify_ndim(checker, input_of(now, 0));
    now->dim = certify_dim(certify_integer_of(now->step->plan, now->step->op, "dim", -1), ndim);
    if (now->dim < 0)
        return certify_different(checker, "dim is out of range");
    reduction_signature(&signature, ndim, 0, false);
    signature.whole[now->dim] = true;
    snprintf(key, sizeof key, "softmax:%d", now->dim);
    return judge_call(checker, now, &signature, 0, key);
}

/* linear, mm, bmm and matmul are one contraction. */
static certify_outcome judge_contraction(certify_checker *checker, judgement *now)
{
    const bool transposed = now->step->op->code == TOCSIN_OPERATOR_LINEAR;
    const uint32_t left = certify_ndim(checker, input_of(now, 0));
    const uint32_t right = certify_ndim(checker, input_of(now, 1));
    const tocsin_signature *signature = &checker->table_signatures[TOCSIN_OPERATOR_MATMUL];
    const certify_call call = {.step = now->step,
                               .signature = signature,
                               .key = "matmul",
                               .output = now->output,
                               .linear = signature->linear,
                               .transposed = transposed};
    if (transposed && (left < 2 || right != 2))
        return judge_kind(checker, now, 0);
    if (left < 2 || right < 2)
        return certify_different(checker, "an operand has fewer than two dims");
    return certify_congruent(checker, &call);
}

static certify_outcome take_multiple(certify_checker *checker, const judgement *now,
                                     const certify_form *index)
{
    return take_expanded(checker, now, input_of(now, (uint32_t)now->dim), index, &now->factor);
}

static certify_outcome judge_product(certify_checker *checker, judgement *now)
{
    for (int i = 0; i < 2; i++)
        if (certify_is_constant(checker, input_of(now, (uint32_t)i), &now->factor)) {
            now->dim = 1 - i; /* the input that is multiplied */
            now->rule = take_multiple;
            return judge(checker, now);
        }
    return judge_table(checker, now, TOCSIN_OPERATOR_MULTIPLY, "mul");
}

static certify_outcome judge_quotient(certify_checker *checker, judgement *now)
{
    const tocsin_signature *signature = &checker->table_signatures[TOCSIN_OPERATOR_MULTIPLY];
    const certify_call call = {.step = now->step,
                               .signature = signature,
                               .key = "mul",
                               .output = now->output,
                               .linear = 1,
                               .divides = true};
    return certify_congruent(checker, &call);
}

static certify_outcome take_value(certify_checker *checker, const judgement *now,
                                  const certify_form *index)
{
    (void)index;
    for (size_t k = 0; k < checker->certificate->atoms.count; k++)
        if (checker->certificate->atoms.items[k].kind == CERTIFY_ONE) {
            certify_entry entry = {.factor = now->factor, .atom = (uint32_t)k + 1};
            entry.factor.numerator = -entry.factor.numerator;
            return TOCSIN_VEC_PUSH(&checker->bag, entry) ? CERTIFY_DONE : CERTIFY_FAILED;
        }
    return certify_different(checker, "the certificate has no atom one");
}

static certify_outcome judge_reciprocal(certify_checker *checker, judgement *now)
{
    certify_number value;
    if (certify_is_constant(checker, input_of(now, 0), &value) &&
        certify_inverse(&value, &now->factor)) {
        now->rule = take_value;
        return judge_multiple(checker, now);
    }
    return judge_table(checker, now, TOCSIN_OPERATOR_RECIPROCAL, "reciprocal");
}

static certify_outcome judge_power(certify_checker *checker, judgement *now)
{
    char key[48];
    const double exponent = certify_real_of(now->step->plan, now->step->op, "exponent", 1.0);
    if (exponent == 1.0)
        return judge_multiple(checker, now);
    snprintf(key, sizeof key, "pow:%.17g", exponent);
    return judge_table(checker, now, TOCSIN_OPERATOR_POWER, key);
}

/* With a branch that is zero, linear in the other one. */
static certify_outcome judge_where(certify_checker *checker, judgement *now)
{
    certify_number value;
    for (uint32_t branch = 1; branch <= 2; branch++)
        if (certify_is_constant(checker, input_of(now, 3 - branch), &value) &&
            certify_is_zero(&value))
            return judge_kind(checker, now, (uint16_t)(1U << branch));
    return judge_kind(checker, now, 0);
}

static certify_outcome judge_masked_fill(certify_checker *checker, judgement *now)
{
    char key[64];
    const double value = certify_real_of(now->step->plan, now->step->op, "value", 0.0);
    bool mine = false;
    const certify_outcome outcome =
        value == 0.0 ? certify_masked_fill(checker, now->step, &mine) : CERTIFY_DONE;
    if (mine || outcome != CERTIFY_DONE)
        return outcome;
    snprintf(key, sizeof key, "masked_fill:%.17g", value);
    return judge_call(checker, now, &checker->table_signatures[TOCSIN_OPERATOR_MASKED_FILL],
                      value == 0.0, key);
}

/* table[v d..] indices[i..] -> [i.. d..] */
static certify_outcome judge_embedding(certify_checker *checker, judgement *now)
{
    const int64_t start = certify_integer_of(now->step->plan, now->step->op, "start", -1);
    const int64_t stop = certify_integer_of(now->step->plan, now->step->op, "stop", -1);
    const uint32_t table = certify_ndim(checker, input_of(now, 0));
    const uint32_t index = certify_ndim(checker, input_of(now, 1));
    tocsin_signature signature = {.input_count = 2, .output_count = 1};

    bool mine;
    const certify_outcome outcome = certify_unmasked_rows(checker, now->step, &mine);
    if (mine || outcome != CERTIFY_DONE)
        return outcome;
    if (table < 1 || table + index > TOCSIN_PLAN_NDIM_MAX)
        return certify_unclear(checker, "too many dims");
    signature.axis_count = (uint8_t)(table + index);
    signature.operands[0].ndim = (uint8_t)table;
    signature.operands[1].ndim = (uint8_t)index;
    signature.operands[2].ndim = (uint8_t)(table - 1 + index);
    for (uint32_t d = 0; d < table; d++) {
        signature.operands[0].axis[d] = (int8_t)d;
        if (d > 0)
            signature.operands[2].axis[index + d - 1] = (int8_t)d;
    }
    for (uint32_t d = 0; d < index; d++)
        signature.operands[1].axis[d] = signature.operands[2].axis[d] = (int8_t)(table + d);
    signature.contracted[0] = true;
    signature.whole[0] = start < 0;
    if (start >= 0) { /* the rows [start, stop): the claim's box must be just these */
        const certificate *from = checker->certificate;
        const certify_relation *view = &from->relations.items[output_of(now) - 1];
        const certify_term *term = &from->terms.items[view->first_part];
        const int64_t rows = certify_shape(checker, input_of(now, 0))[0];
        bool found = false;
        for (uint32_t k = 0; !view->joined && view->count == 1 && k < term->range_count; k++) {
            const certify_range *range = &from->ranges.items[term->first_range + k];
            if (range->atom == term->atom && range->axis == 0)
                found = range->stride == 1 && range->start.base == start &&
                        range->start.weight[0] == 0 && range->start.weight[1] == 0 &&
                        range->count == stop - start;
        }
        if (rows != stop - start || (!found && start != 0))
            return certify_different(checker, "start and stop are not the rows of the claim");
    }
    const certify_call call = {.step = now->step,
                               .signature = &signature,
                               .key = "embedding",
                               .output = now->output,
                               .linear = 1,
                               .one_hot = true};
    return certify_congruent(checker, &call);
}

/* gradient[i.. d..] indices[i..] -> [_ d..], summed over i.. */
static certify_outcome judge_scatter(certify_checker *checker, judgement *now)
{
    const uint32_t gradient = certify_ndim(checker, input_of(now, 0));
    const uint32_t index = certify_ndim(checker, input_of(now, 1));
    tocsin_signature signature = {
        .input_count = 2, .output_count = 1, .axis_count = (uint8_t)gradient};

    if (gradient < index || gradient - index + 1 > TOCSIN_PLAN_NDIM_MAX)
        return certify_different(checker, "gradient and index do not fit");
    signature.operands[0].ndim = (uint8_t)gradient;
    signature.operands[1].ndim = (uint8_t)index;
    signature.operands[2].ndim = (uint8_t)(1 + gradient - index);
    signature.operands[2].axis[0] = TOCSIN_AXIS_ANY;
    for (uint32_t d = 0; d < gradient; d++) {
        signature.operands[0].axis[d] = (int8_t)d;
        if (d < index) {
            signature.operands[1].axis[d] = (int8_t)d;
            signature.contracted[d] = true;
        } else {
            signature.operands[2].axis[1 + d - index] = (int8_t)d;
        }
    }
    certify_call call = {.step = now->step,
                         .signature = &signature,
                         .key = "embedding_backward",
                         .output = now->output,
                         .linear = 1};
    const certify_relation *by = &checker->certificate->relations.items[input_of(now, 1) - 1];
    call.scattered =
        !by->joined && by->count == 1 &&
        certify_masked_bounds(checker, checker->certificate->terms.items[by->first_part].atom,
                              "masked_index", &call.low, &call.high);
    if (call.scattered && certify_shape(checker, output_of(now))[0] != call.high - call.low)
        return certify_different(checker, "the rows of the shard are not those of the mask");
    return certify_congruent(checker, &call);
}

/* How much of a number a dtype holds: 0 unknown, 1 truth, 2 integer, 3 real, 4 complex. */
static int dtype_rank(uint8_t dtype)
{
    switch ((tocsin_dtype)dtype) {
    case TOCSIN_DTYPE_NONE:
        return 0;
    case TOCSIN_DTYPE_BOOL:
        return 1;
    case TOCSIN_DTYPE_COMPLEX32:
    case TOCSIN_DTYPE_COMPLEX64:
    case TOCSIN_DTYPE_COMPLEX128:
        return 4;
    default:
        return dtype >= TOCSIN_DTYPE_UINT8 && dtype <= TOCSIN_DTYPE_UINT64 ? 2 : 3;
    }
}

/* Rounding is not looked at, but a cast to integers, say, is no identity. */
static certify_outcome judge_cast(certify_checker *checker, judgement *now)
{
    char key[16];
    const int from = dtype_rank(now->step->from_dtype), to = dtype_rank(now->step->to_dtype);
    if (from == 0 || to == 0 || from <= to)
        return judge_multiple(checker, now);
    snprintf(key, sizeof key, "cast:%d", to);
    return judge_table(checker, now, TOCSIN_OPERATOR_EXP, key); /* element by element */
}

/* ---- the table ------------------------------------------------------------------------------- */

static certify_outcome judge_output(certify_checker *checker, judgement *now)
{
    const tocsin_plan_op *op = now->step->op;
    switch ((tocsin_operator_code)op->code) {
    case TOCSIN_OPERATOR_IDENTITY:
    case TOCSIN_OPERATOR_WAIT:
    case TOCSIN_OPERATOR_COPIES:
        return judge_multiple(checker, now);
    case TOCSIN_OPERATOR_CAST:
        return judge_cast(checker, now);
    case TOCSIN_OPERATOR_VIEW:
        return judge_view(checker, now);
    case TOCSIN_OPERATOR_PERMUTE:
        return judge_permute(checker, now);
    case TOCSIN_OPERATOR_EXPAND:
        now->rule = take_expand;
        return judge(checker, now);
    case TOCSIN_OPERATOR_SLICE:
    case TOCSIN_OPERATOR_SPLIT:
        return judge_range(checker, now);
    case TOCSIN_OPERATOR_SELECT:
    case TOCSIN_OPERATOR_UNBIND:
        return judge_select(checker, now);
    case TOCSIN_OPERATOR_CAT:
    case TOCSIN_OPERATOR_STACK:
    case TOCSIN_OPERATOR_PAD:
        return judge_join(checker, now);
    case TOCSIN_OPERATOR_ADD:
    case TOCSIN_OPERATOR_SUBTRACT:
        return judge_sum_of_inputs(checker, now);
    case TOCSIN_OPERATOR_NEGATE:
        now->factor = certify_integer(-1);
        return judge_multiple(checker, now);
    case TOCSIN_OPERATOR_SCALE:
        return judge_scale(checker, now);
    case TOCSIN_OPERATOR_ADD_SCALAR:
        now->rule = take_shifted;
        return judge_multiple(checker, now);
    case TOCSIN_OPERATOR_SUM:
    case TOCSIN_OPERATOR_MEAN:
        return judge_reduction(checker, now);
    case TOCSIN_OPERATOR_FULL:
        now->rule = take_constant;
        return judge(checker, now);
    case TOCSIN_OPERATOR_ARANGE:
        return judge_numbers(checker, now);
    case TOCSIN_OPERATOR_LINEAR:
    case TOCSIN_OPERATOR_MM:
    case TOCSIN_OPERATOR_BMM:
    case TOCSIN_OPERATOR_MATMUL:
        return judge_contraction(checker, now);
    case TOCSIN_OPERATOR_MULTIPLY:
        return judge_product(checker, now);
    case TOCSIN_OPERATOR_DIVIDE:
        return judge_quotient(checker, now);
    case TOCSIN_OPERATOR_RECIPROCAL:
        return judge_reciprocal(checker, now);
    case TOCSIN_OPERATOR_POWER:
        return judge_power(checker, now);
    case TOCSIN_OPERATOR_WHERE:
        return judge_where(checker, now);
    case TOCSIN_OPERATOR_MASKED_FILL:
        return judge_masked_fill(checker, now);
    case TOCSIN_OPERATOR_AMAX:
        return judge_maximum(checker, now);
    case TOCSIN_OPERATOR_SOFTMAX:
        return judge_softmax(checker, now);
    case TOCSIN_OPERATOR_EMBEDDING:
        return judge_embedding(checker, now);
    case TOCSIN_OPERATOR_EMBEDDING_BACKWARD:
        return judge_scatter(checker, now);
    default:
        return judge_kind(checker, now, 0);
    }
}

certify_outcome certify_local(certify_checker *checker, const certify_step *step)
{
    const int8_t inputs = tocsin_operators[step->op->code].input_count;
    assert(!tocsin_operator_communicates((tocsin_operator_code)step->op->code));
    if (inputs >= 0 && step->op->input_count != (uint32_t)inputs)
        return certify_different(checker, "the operator has other operands");
    for (uint32_t j = 0; j < step->op->output_count; j++) {
        judgement now = {.step = step, .output = j, .factor = certify_integer(1)};
        if (step->outputs[j] == 0)
            continue;
        const certify_outcome outcome = judge_output(checker, &now);
        if (outcome != CERTIFY_DONE)
            return outcome;
    }
    return CERTIFY_DONE;
}
