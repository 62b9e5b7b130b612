/* local_rule.c - what each operator's output is, element by element.
 *
 * Structure and linear combinations are written as out(i) = sum of factor * input(f(i)), with f in
 * linear forms; constants as such; sums over dims as sums over coordinates, and the claim's own sum
 * atoms are put out as what they mean. Everything else goes to call_rule.c with its signature.
 */
#include <assert.h>

#include "certify/local_rule.h"

/* ---- one output ------------------------------------------------------------------------------ */

certify_outcome certify_subtract(certify_checker *checker, uint32_t relation,
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
    const certify_judgement *now = context;
    const certify_number one = certify_integer(1);
    const certify_outcome outcome =
        certify_evaluate(checker, certify_output(now), index, &one, NULL, 0);
    return outcome == CERTIFY_DONE ? now->rule(checker, now, index) : outcome;
}

certify_outcome certify_judge(certify_checker *checker, const certify_judgement *now)
{
    return certify_everywhere(checker, certify_shape(checker, certify_output(now)),
                              certify_ndim(checker, certify_output(now)), local_difference, now);
}

/* Does the output have this shape? */
bool certify_has_shape(const certify_checker *checker, uint32_t relation, const int64_t *shape,
                       uint32_t ndim)
{
    return certify_ndim(checker, relation) == ndim &&
           memcmp(certify_shape(checker, relation), shape, ndim * sizeof shape[0]) == 0;
}

certify_outcome certify_wrong_shape(certify_checker *checker)
{
    return certify_different(checker, "the result has another shape");
}

/* ---- linear combinations and constants ------------------------------------------------------- */

static certify_outcome take_same(certify_checker *checker, const certify_judgement *now,
                                 const certify_form *index)
{
    return certify_subtract(checker, certify_input(now, 0), index, &now->factor);
}

/* The first input, plus the factor times each other. */
static certify_outcome take_sum(certify_checker *checker, const certify_judgement *now,
                                const certify_form *index)
{
    const certify_number one = certify_integer(1);
    certify_outcome outcome = CERTIFY_DONE;
    for (uint32_t k = 0; k < now->step->op->input_count && outcome == CERTIFY_DONE; k++)
        outcome = certify_take_expanded(checker, now, certify_input(now, k), index,
                                        k == 0 ? &one : &now->factor);
    return outcome;
}

certify_outcome certify_subtract_constant(certify_checker *checker, double value)
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
    return certify_subtract_constant(checker, (double)value);
}

static certify_outcome take_shifted(certify_checker *checker, const certify_judgement *now,
                                    const certify_form *index)
{
    const certify_number one = certify_integer(1);
    const certify_outcome outcome = certify_subtract(checker, certify_input(now, 0), index, &one);
    return outcome == CERTIFY_DONE
               ? certify_subtract_constant(
                     checker, certify_real_of(now->step->plan, now->step->op, "value", 0.0))
               : outcome;
}

static certify_outcome take_constant(certify_checker *checker, const certify_judgement *now,
                                     const certify_form *index)
{
    (void)index;
    return certify_subtract_constant(checker,
                                     certify_real_of(now->step->plan, now->step->op, "value", 0.0));
}

/* start + step * i, as the numbers 0, 1, 2, ... there */
static certify_outcome take_numbers(certify_checker *checker, const certify_judgement *now,
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
    return certify_subtract_constant(checker, (double)(now->start + at->base));
}

static certify_outcome judge_numbers(certify_checker *checker, certify_judgement *now)
{
    now->start = certify_integer_of(now->step->plan, now->step->op, "start", 0);
    now->by = certify_integer_of(now->step->plan, now->step->op, "step", 1);
    now->rule = take_numbers;
    if (certify_ndim(checker, certify_output(now)) != 1 || now->start < 0 ||
        now->start > CERTIFY_SIZE_MAX / 2)
        return certify_unclear(checker, "numbers with several dims, or too large");
    return certify_judge(checker, now);
}

/* Same shape as input 0, times the factor. */
certify_outcome certify_judge_multiple(certify_checker *checker, certify_judgement *now)
{
    const uint32_t in = certify_input(now, 0);
    if (!certify_has_shape(checker, certify_output(now), certify_shape(checker, in),
                           certify_ndim(checker, in)))
        return certify_wrong_shape(checker);
    if (now->rule == NULL)
        now->rule = take_same;
    return certify_judge(checker, now);
}

static certify_outcome judge_scale(certify_checker *checker, certify_judgement *now)
{
    const double divisor = certify_real_of(now->step->plan, now->step->op, "divisor", 0.0);
    const double factor = certify_real_of(now->step->plan, now->step->op, "factor", 1.0);
    if (!certify_real(divisor != 0.0 ? divisor : factor, &now->factor) ||
        (divisor != 0.0 && !certify_inverse(&now->factor, &now->factor)))
        return certify_unclear(checker, "the factor is not finite");
    return certify_judge_multiple(checker, now);
}

static certify_outcome judge_sum_of_inputs(certify_checker *checker, certify_judgement *now)
{
    const double alpha = certify_real_of(now->step->plan, now->step->op, "alpha", 1.0);
    if (!certify_real(now->step->op->code == TOCSIN_OPERATOR_SUBTRACT ? -alpha : alpha,
                      &now->factor))
        return certify_unclear(checker, "alpha is not finite");
    now->rule = take_sum;
    return certify_judge(checker, now);
}

/* ---- the table ------------------------------------------------------------------------------- */

static certify_outcome judge_output(certify_checker *checker, certify_judgement *now)
{
    const tocsin_plan_op *op = now->step->op;
    switch ((tocsin_operator_code)op->code) {
    case TOCSIN_OPERATOR_IDENTITY:
    case TOCSIN_OPERATOR_WAIT:
    case TOCSIN_OPERATOR_COPIES:
    case TOCSIN_OPERATOR_VIEW:
    case TOCSIN_OPERATOR_PERMUTE:
    case TOCSIN_OPERATOR_EXPAND:
    case TOCSIN_OPERATOR_SLICE:
    case TOCSIN_OPERATOR_SPLIT:
    case TOCSIN_OPERATOR_SELECT:
    case TOCSIN_OPERATOR_UNBIND:
    case TOCSIN_OPERATOR_CAT:
    case TOCSIN_OPERATOR_STACK:
    case TOCSIN_OPERATOR_PAD:
        return certify_judge_structure(checker, now);
    case TOCSIN_OPERATOR_ADD:
    case TOCSIN_OPERATOR_SUBTRACT:
        return judge_sum_of_inputs(checker, now);
    case TOCSIN_OPERATOR_NEGATE:
        now->factor = certify_integer(-1);
        return certify_judge_multiple(checker, now);
    case TOCSIN_OPERATOR_SCALE:
        return judge_scale(checker, now);
    case TOCSIN_OPERATOR_ADD_SCALAR:
        now->rule = take_shifted;
        return certify_judge_multiple(checker, now);
    case TOCSIN_OPERATOR_SUM:
    case TOCSIN_OPERATOR_MEAN:
        return certify_judge_reduction(checker, now);
    case TOCSIN_OPERATOR_FULL:
        now->rule = take_constant;
        return certify_judge(checker, now);
    case TOCSIN_OPERATOR_ARANGE:
        return judge_numbers(checker, now);
    default:
        return certify_judge_named(checker, now);
    }
}

certify_outcome certify_local(certify_checker *checker, const certify_step *step)
{
    const int8_t inputs = tocsin_operators[step->op->code].input_count;
    assert(!tocsin_operator_communicates((tocsin_operator_code)step->op->code));
    if (inputs >= 0 && step->op->input_count != (uint32_t)inputs)
        return certify_different(checker, "the operator has other operands");
    for (uint32_t j = 0; j < step->op->output_count; j++) {
        certify_judgement now = {.step = step, .output = j, .factor = certify_integer(1)};
        if (step->outputs[j] == 0)
            continue;
        const certify_outcome outcome = judge_output(checker, &now);
        if (outcome != CERTIFY_DONE)
            return outcome;
    }
    return CERTIFY_DONE;
}
