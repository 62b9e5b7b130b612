/* named_rule.c - under which name and signature call_rule.c knows each operator. */
#include <stdio.h>
#include <tocsin/tensor.h>

#include "certify/local_rule.h"

/* ---- operators known by a signature ---------------------------------------------------------- */

static certify_outcome judge_call(certify_checker *checker, const certify_judgement *now,
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

static certify_outcome judge_table(certify_checker *checker, const certify_judgement *now,
                                   tocsin_operator_code code, const char *key)
{
    const tocsin_signature *signature = &checker->table_signatures[code];
    return judge_call(checker, now, signature, signature->linear, key);
}

/* By the operator's own text. */
static certify_outcome judge_kind(certify_checker *checker, const certify_judgement *now,
                                  uint16_t linear)
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

static certify_outcome judge_maximum(certify_checker *checker, certify_judgement *now)
{
    tocsin_signature signature;
    char key[48];
    const uint32_t ndim = certify_ndim(checker, certify_input(now, 0));
    const bool keep = certify_integer_of(now->step->plan, now->step->op, "keepdim", 0) != 0;
    const certify_call call = {.step = now->step,
                               .signature = &signature,
                               .key = key,
                               .output = now->output,
                               .maximum = true};
    if (!certify_reduced_dims(now, ndim, &now->bits))
        return certify_different(checker, "a dim is out of range");
    reduction_signature(&signature, ndim, now->bits, keep);
    snprintf(key, sizeof key, "amax:%x:%d", now->bits, keep);
    return certify_congruent(checker, &call);
}

static certify_outcome judge_softmax(certify_checker *checker, certify_judgement *now)
{
    tocsin_signature signature;
    char key[48];
    const uint32_t ndim = certify_ndim(checker, certify_input(now, 0));
    now->dim = certify_dim(certify_integer_of(now->step->plan, now->step->op, "dim", -1), ndim);
    if (now->dim < 0)
        return certify_different(checker, "dim is out of range");
    reduction_signature(&signature, ndim, 0, false);
    signature.whole[now->dim] = true;
    snprintf(key, sizeof key, "softmax:%d", now->dim);
    return judge_call(checker, now, &signature, 0, key);
}

/* linear, mm, bmm and matmul are one contraction. */
static certify_outcome judge_contraction(certify_checker *checker, certify_judgement *now)
{
    const bool transposed = now->step->op->code == TOCSIN_OPERATOR_LINEAR;
    const uint32_t left = certify_ndim(checker, certify_input(now, 0));
    const uint32_t right = certify_ndim(checker, certify_input(now, 1));
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

static certify_outcome take_multiple(certify_checker *checker, const certify_judgement *now,
                                     const certify_form *index)
{
    return certify_take_expanded(checker, now, certify_input(now, (uint32_t)now->dim), index,
                                 &now->factor);
}

static certify_outcome judge_product(certify_checker *checker, certify_judgement *now)
{
    for (int i = 0; i < 2; i++)
        if (certify_is_constant(checker, certify_input(now, (uint32_t)i), &now->factor)) {
            now->dim = 1 - i; /* the input that is multiplied */
            now->rule = take_multiple;
            return certify_judge(checker, now);
        }
    return judge_table(checker, now, TOCSIN_OPERATOR_MULTIPLY, "mul");
}

static certify_outcome judge_quotient(certify_checker *checker, certify_judgement *now)
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

static certify_outcome take_value(certify_checker *checker, const certify_judgement *now,
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

static certify_outcome judge_reciprocal(certify_checker *checker, certify_judgement *now)
{
    certify_number value;
    if (certify_is_constant(checker, certify_input(now, 0), &value) &&
        certify_inverse(&value, &now->factor)) {
        now->rule = take_value;
        return certify_judge_multiple(checker, now);
    }
    return judge_table(checker, now, TOCSIN_OPERATOR_RECIPROCAL, "reciprocal");
}

static certify_outcome judge_power(certify_checker *checker, certify_judgement *now)
{
    char key[48];
    const double exponent = certify_real_of(now->step->plan, now->step->op, "exponent", 1.0);
    if (exponent == 1.0)
        return certify_judge_multiple(checker, now);
    snprintf(key, sizeof key, "pow:%.17g", exponent);
    return judge_table(checker, now, TOCSIN_OPERATOR_POWER, key);
}

/* With a branch that is zero, linear in the other one. */
static certify_outcome judge_where(certify_checker *checker, certify_judgement *now)
{
    certify_number value;
    for (uint32_t branch = 1; branch <= 2; branch++)
        if (certify_is_constant(checker, certify_input(now, 3 - branch), &value) &&
            certify_is_zero(&value))
            return judge_kind(checker, now, (uint16_t)(1U << branch));
    return judge_kind(checker, now, 0);
}

static certify_outcome judge_masked_fill(certify_checker *checker, certify_judgement *now)
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
static certify_outcome judge_embedding(certify_checker *checker, certify_judgement *now)
{
    const uint32_t table = certify_ndim(checker, certify_input(now, 0));
    const uint32_t index = certify_ndim(checker, certify_input(now, 1));
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
    signature.whole[0] = true;
    return judge_call(checker, now, &signature, 1, "embedding");
}

/* gradient[i.. d..] indices[i..] -> [_ d..], summed over i.. */
static certify_outcome judge_scatter(certify_checker *checker, certify_judgement *now)
{
    const uint32_t gradient = certify_ndim(checker, certify_input(now, 0));
    const uint32_t index = certify_ndim(checker, certify_input(now, 1));
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
    const certify_relation *by = &checker->certificate->relations.items[certify_input(now, 1) - 1];
    call.scattered =
        !by->joined && by->count == 1 &&
        certify_masked_bounds(checker, checker->certificate->terms.items[by->first_part].atom,
                              "masked_index", &call.low, &call.high);
    if (call.scattered && certify_shape(checker, certify_output(now))[0] != call.high - call.low)
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
static certify_outcome judge_cast(certify_checker *checker, certify_judgement *now)
{
    char key[24];
    const int from = dtype_rank(now->step->from_dtype), to = dtype_rank(now->step->to_dtype);
    if (from == 0 || to == 0 || from <= to)
        return certify_judge_multiple(checker, now);
    snprintf(key, sizeof key, "cast:%d", to);
    return judge_table(checker, now, TOCSIN_OPERATOR_EXP, key); /* element by element */
}

certify_outcome certify_judge_named(certify_checker *checker, certify_judgement *now)
{
    switch ((tocsin_operator_code)now->step->op->code) {
    case TOCSIN_OPERATOR_CAST:
        return judge_cast(checker, now);
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
