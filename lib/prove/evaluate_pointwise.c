/* prove/evaluate_pointwise.c - operators that work element by element, with broadcasting.
 *
 * sigmoid, silu and tanh are made of exp, so that their laws hold; gelu is x times an oracle; the
 * rest without a law in field.h is an oracle. On small integers, comparisons, maxima and relu are
 * what they are for numbers. What an oracle says may be 0, or equal to another number, for the
 * function that it stands for: whether it is, is a choice.
 */
#include <assert.h>
#include <math.h>

#include "prove/evaluate_kernel.h"

/* Keys of the oracles that are no operator's. */
#define ZERO_KEY  UINT64_C(0x510e527fade682d1)
#define CAST_KEYS UINT64_C(0x9b05688c2b3e6c1f)

typedef struct evaluator {
    const tocsin_kernel *kernel;
    const tocsin_field *field;
    uint64_t key;        /* of the oracle */
    tocsin_element a, b; /* constants */
    double real;
    bool exact;  /* no root of a non-square */
    bool opaque; /* an operand is */
    bool chosen;
} evaluator;

/* x: the operands' elements, none undefined. */
typedef tocsin_element function(evaluator *point, const tocsin_element *x);

static tocsin_element one(void)
{
    return tocsin_element_of_integer(1);
}

/* Is the number 0? Not for certain when it is an oracle's. */
static bool is_zero(evaluator *point, tocsin_element x)
{
    int64_t integer;
    if (x.p == 0 || !point->opaque || !tocsin_element_is_finite(x) ||
        tocsin_element_is_integer(x, &integer))
        return x.p == 0;
    point->chosen = true;
    return (tocsin_oracle_of(point->field, ZERO_KEY, tocsin_element_multiply(x, x)).p & 1) != 0;
}

static tocsin_element boolean(bool value)
{
    return tocsin_element_of_integer(value);
}

static int compare(evaluator *point, tocsin_element a, tocsin_element b)
{
    return tocsin_element_compare(point->field, a, b, &point->chosen);
}

static tocsin_element subtract(evaluator *point, const tocsin_element *x)
{
    return tocsin_element_subtract(x[0], tocsin_element_multiply(point->a, x[1]));
}

static tocsin_element negate(evaluator *point, const tocsin_element *x)
{
    (void)point;
    return tocsin_element_negate(x[0]);
}

static tocsin_element scale(evaluator *point, const tocsin_element *x)
{
    return tocsin_element_multiply(x[0], point->a);
}

static tocsin_element add_scalar(evaluator *point, const tocsin_element *x)
{
    return tocsin_element_add(x[0], point->a);
}

static tocsin_element multiply(evaluator *point, const tocsin_element *x)
{
    (void)point;
    return tocsin_element_multiply(x[0], x[1]);
}

static tocsin_element divide(evaluator *point, const tocsin_element *x)
{
    (void)point;
    return tocsin_element_multiply(x[0], tocsin_element_inverse(x[1]));
}

static tocsin_element reciprocal(evaluator *point, const tocsin_element *x)
{
    (void)point;
    return tocsin_element_inverse(x[0]);
}

static tocsin_element square_root(evaluator *point, const tocsin_element *x)
{
    return tocsin_element_sqrt(point->field, x[0], &point->exact);
}

static tocsin_element reciprocal_root(evaluator *point, const tocsin_element *x)
{
    return tocsin_element_inverse(square_root(point, x));
}

static tocsin_element oracle(evaluator *point, const tocsin_element *x)
{
    return tocsin_oracle_of(point->field, point->key, x[0]);
}

/* Multiples of 1/2 up to 64 are powers of the square root; others are oracles. */
static bool is_root_power(double exponent)
{
    return 2 * exponent == floor(2 * exponent) && fabs(exponent) <= 64;
}

static tocsin_element power(evaluator *point, const tocsin_element *x)
{
    if (!is_root_power(point->real))
        return oracle(point, x);
    int64_t exponent = (int64_t)(2 * point->real);
    if (exponent % 2 == 0)
        return tocsin_element_power(x[0], exponent / 2);
    return tocsin_element_power(square_root(point, x), exponent);
}

static tocsin_element exponential(evaluator *point, const tocsin_element *x)
{
    return tocsin_element_exp(point->field, x[0]);
}

/* 1 / (1 + exp(-x)) */
static tocsin_element sigmoid(evaluator *point, const tocsin_element *x)
{
    tocsin_element e = tocsin_element_exp(point->field, tocsin_element_negate(x[0]));
    return tocsin_element_inverse(tocsin_element_add(one(), e));
}

static tocsin_element silu(evaluator *point, const tocsin_element *x)
{
    return tocsin_element_multiply(x[0], sigmoid(point, x));
}

/* 2 sigmoid(2 x) - 1 */
static tocsin_element tanh_of(evaluator *point, const tocsin_element *x)
{
    tocsin_element doubled = tocsin_element_add(x[0], x[0]);
    tocsin_element s = sigmoid(point, &doubled);
    return tocsin_element_subtract(tocsin_element_add(s, s), one());
}

static tocsin_element gelu(evaluator *point, const tocsin_element *x)
{
    return tocsin_element_multiply(x[0], oracle(point, x));
}

static tocsin_element relu(evaluator *point, const tocsin_element *x)
{
    int64_t integer;
    if (tocsin_element_is_integer(x[0], &integer))
        return integer > 0 ? x[0] : tocsin_element_of_integer(0);
    return oracle(point, x);
}

/* |x| = |-x| */
static tocsin_element absolute(evaluator *point, const tocsin_element *x)
{
    int64_t integer;
    tocsin_element negative = tocsin_element_negate(x[0]);
    if (tocsin_element_is_integer(x[0], &integer))
        return integer < 0 ? negative : x[0];
    return oracle(point, negative.p < x[0].p ? &negative : x);
}

static tocsin_element clamp(evaluator *point, const tocsin_element *x)
{
    int64_t integer, low, high;
    if (tocsin_element_is_integer(x[0], &integer) && tocsin_element_is_integer(point->a, &low) &&
        tocsin_element_is_integer(point->b, &high))
        return integer < low ? point->a : integer > high ? point->b : x[0];
    return oracle(point, x);
}

static tocsin_element maximum(evaluator *point, const tocsin_element *x)
{
    return compare(point, x[0], x[1]) >= 0 ? x[0] : x[1];
}

static tocsin_element minimum(evaluator *point, const tocsin_element *x)
{
    return compare(point, x[0], x[1]) <= 0 ? x[0] : x[1];
}

static tocsin_element equal(evaluator *point, const tocsin_element *x)
{
    if (!tocsin_element_is_finite(x[0]) || !tocsin_element_is_finite(x[1])) /* infinite */
        return boolean(x[0].p == x[1].p);
    return boolean(is_zero(point, tocsin_element_subtract(x[0], x[1])));
}

static tocsin_element not_equal(evaluator *point, const tocsin_element *x)
{
    return boolean(equal(point, x).p == 0);
}

static tocsin_element less(evaluator *point, const tocsin_element *x)
{
    return boolean(compare(point, x[0], x[1]) < 0);
}

static tocsin_element less_equal(evaluator *point, const tocsin_element *x)
{
    return boolean(compare(point, x[0], x[1]) <= 0);
}

static tocsin_element greater(evaluator *point, const tocsin_element *x)
{
    return boolean(compare(point, x[0], x[1]) > 0);
}

static tocsin_element greater_equal(evaluator *point, const tocsin_element *x)
{
    return boolean(compare(point, x[0], x[1]) >= 0);
}

static tocsin_element and_of(evaluator *point, const tocsin_element *x)
{
    return boolean(!is_zero(point, x[0]) && !is_zero(point, x[1]));
}

static tocsin_element or_of(evaluator *point, const tocsin_element *x)
{
    return boolean(!is_zero(point, x[0]) || !is_zero(point, x[1]));
}

static tocsin_element not_of(evaluator *point, const tocsin_element *x)
{
    return boolean(is_zero(point, x[0]));
}

static tocsin_element where(evaluator *point, const tocsin_element *x)
{
    return is_zero(point, x[0]) ? x[2] : x[1];
}

static tocsin_element masked_fill(evaluator *point, const tocsin_element *x)
{
    return is_zero(point, x[1]) ? x[0] : point->a;
}

/* To truth values, or to integers (or the real part), which is an oracle for what is none. */
static tocsin_element cast(evaluator *point, const tocsin_element *x)
{
    int64_t integer;
    if (point->kernel->cast == TOCSIN_CAST_TRUTH)
        return boolean(!is_zero(point, x[0]));
    if (tocsin_element_is_integer(x[0], &integer))
        return x[0];
    return tocsin_oracle_of(point->field, CAST_KEYS + point->kernel->cast, x[0]);
}

/* What an operator does to the flags of its array. */
enum {
    IS_OPAQUE = 1,   /* an oracle */
    IS_EXP = 2,      /* exp inside: weak after, opaque on weak operands */
    IS_ROOT = 4,     /* weak after; may be inexact, and its sign is a choice */
    IS_PRODUCT = 8,  /* degrees add */
    IS_INVERSE = 16, /* denominators */
    IS_SUM = 32      /* degrees add when there are denominators */
};

typedef struct point_operator {
    uint16_t code;
    uint8_t inputs;
    uint8_t flags;
    function *run;
} point_operator;

static const point_operator operators[] = {
    {TOCSIN_OPERATOR_SUBTRACT, 2, IS_SUM, subtract},
    {TOCSIN_OPERATOR_NEGATE, 1, 0, negate},
    {TOCSIN_OPERATOR_SCALE, 1, 0, scale},
    {TOCSIN_OPERATOR_ADD_SCALAR, 1, 0, add_scalar},
    {TOCSIN_OPERATOR_MULTIPLY, 2, IS_PRODUCT, multiply},
    {TOCSIN_OPERATOR_DIVIDE, 2, IS_PRODUCT | IS_INVERSE, divide},
    {TOCSIN_OPERATOR_RECIPROCAL, 1, IS_INVERSE, reciprocal},
    {TOCSIN_OPERATOR_POWER, 1, IS_PRODUCT, power},
    {TOCSIN_OPERATOR_SQUARE_ROOT, 1, IS_ROOT, square_root},
    {TOCSIN_OPERATOR_RSQRT, 1, IS_ROOT | IS_INVERSE, reciprocal_root},
    {TOCSIN_OPERATOR_EXP, 1, IS_EXP, exponential},
    {TOCSIN_OPERATOR_LOG, 1, IS_OPAQUE, oracle},
    {TOCSIN_OPERATOR_SIN, 1, IS_OPAQUE, oracle},
    {TOCSIN_OPERATOR_COS, 1, IS_OPAQUE, oracle},
    {TOCSIN_OPERATOR_TANH, 1, IS_EXP | IS_INVERSE, tanh_of},
    {TOCSIN_OPERATOR_SIGMOID, 1, IS_EXP | IS_INVERSE, sigmoid},
    {TOCSIN_OPERATOR_SILU, 1, IS_EXP | IS_INVERSE | IS_PRODUCT, silu},
    {TOCSIN_OPERATOR_RELU, 1, IS_OPAQUE, relu},
    {TOCSIN_OPERATOR_GELU, 1, IS_OPAQUE | IS_PRODUCT, gelu},
    {TOCSIN_OPERATOR_ABSOLUTE, 1, IS_OPAQUE, absolute},
    {TOCSIN_OPERATOR_CLAMP, 1, IS_OPAQUE, clamp},
    {TOCSIN_OPERATOR_MAXIMUM, 2, 0, maximum},
    {TOCSIN_OPERATOR_MINIMUM, 2, 0, minimum},
    {TOCSIN_OPERATOR_EQUAL, 2, 0, equal},
    {TOCSIN_OPERATOR_NOT_EQUAL, 2, 0, not_equal},
    {TOCSIN_OPERATOR_LESS, 2, 0, less},
    {TOCSIN_OPERATOR_LESS_EQUAL, 2, 0, less_equal},
    {TOCSIN_OPERATOR_GREATER, 2, 0, greater},
    {TOCSIN_OPERATOR_GREATER_EQUAL, 2, 0, greater_equal},
    {TOCSIN_OPERATOR_AND, 2, 0, and_of},
    {TOCSIN_OPERATOR_OR, 2, 0, or_of},
    {TOCSIN_OPERATOR_NOT, 1, 0, not_of},
    {TOCSIN_OPERATOR_WHERE, 3, 0, where},
    {TOCSIN_OPERATOR_MASKED_FILL, 2, 0, masked_fill},
    {TOCSIN_OPERATOR_CAST, 1, IS_OPAQUE, cast},
};

static const point_operator *find(tocsin_operator_code code)
{
    for (size_t i = 0; i < TOCSIN_COUNT_OF(operators); ++i)
        if (operators[i].code == code)
            return &operators[i];
    return NULL;
}

bool tocsin_kernel_is_pointwise(tocsin_operator_code code)
{
    return code == TOCSIN_OPERATOR_ADD || find(code) != NULL;
}

/* The operand under the output's shape: itself, or a copy with its dims of size 1 repeated. */
static tocsin_status broadcast(tocsin_kernel *kernel, const tocsin_array *in,
                               const tocsin_array *out, const tocsin_element **data, bool *fits)
{
    int64_t strides[TOCSIN_PLAN_NDIM_MAX], repeated[TOCSIN_PLAN_NDIM_MAX] = {0};
    *data = in->data;
    if (tocsin_array_same_shape(in, out))
        return TOCSIN_OK;
    *fits &= in->ndim <= out->ndim;
    tocsin_array_strides(in, strides);
    for (uint8_t d = 0; *fits && d < in->ndim; ++d) {
        uint8_t to = (uint8_t)(out->ndim - in->ndim + d);
        *fits = in->shape[d] == out->shape[to] || in->shape[d] == 1;
        repeated[to] = in->shape[d] == 1 ? 0 : strides[d];
    }
    if (!*fits)
        return TOCSIN_OK;
    tocsin_array copy = {.shape = out->shape, .ndim = out->ndim, .count = out->count};
    TOCSIN_TRY(tocsin_array_gather(kernel, in, 0, repeated, &copy));
    *data = copy.data;
    return TOCSIN_OK;
}

static void set_flags(tocsin_kernel *kernel, const evaluator *point, unsigned flags,
                      const tocsin_array *inputs, uint32_t input_count, tocsin_array *out)
{
    double sum = 0;
    for (uint32_t i = 0; i < input_count; ++i)
        sum += inputs[i].degree;
    if ((flags & IS_PRODUCT) || ((flags & IS_SUM) && out->rational))
        out->degree = sum;
    if (point->real != 1)
        out->degree *= fmax(1, fabs(point->real));
    if (flags & (IS_OPAQUE | IS_EXP | IS_ROOT)) {
        tocsin_kernel_ask(kernel, (double)out->count, out->degree);
        out->degree += 1;
    }
    out->rational |= (flags & IS_INVERSE) != 0 || point->real < 0;
    out->opaque |=
        (flags & IS_OPAQUE) || ((flags & IS_EXP) && out->weak) || !point->exact || point->chosen;
    out->chosen |= point->chosen || (flags & IS_ROOT);
    out->weak |= (flags & (IS_EXP | IS_ROOT)) != 0;
}

static unsigned power_flags(double exponent)
{
    if (!is_root_power(exponent))
        return IS_OPAQUE;
    return exponent == floor(exponent) ? 0 : IS_ROOT;
}

static void read_constants(tocsin_kernel *kernel, const tocsin_plan_op *op, evaluator *point)
{
    double a = 1;
    if (op->code == TOCSIN_OPERATOR_SCALE)
        a = tocsin_kernel_real(kernel, op, "factor", 1);
    else if (op->code == TOCSIN_OPERATOR_SUBTRACT)
        a = tocsin_kernel_real(kernel, op, "alpha", 1);
    else if (op->code == TOCSIN_OPERATOR_CLAMP)
        a = tocsin_kernel_real(kernel, op, "min", -INFINITY);
    else if (op->code == TOCSIN_OPERATOR_ADD_SCALAR || op->code == TOCSIN_OPERATOR_MASKED_FILL)
        a = tocsin_kernel_real(kernel, op, "value", 0);
    point->a = tocsin_element_of_real(point->field, a);
    point->b =
        tocsin_element_of_real(point->field, tocsin_kernel_real(kernel, op, "max", INFINITY));
    if (op->code == TOCSIN_OPERATOR_POWER)
        point->real = tocsin_kernel_real(kernel, op, "exponent", 1);
}

/* Any number of terms; all but the first times alpha. */
static tocsin_status add(tocsin_kernel *kernel, const tocsin_plan_op *op,
                         const tocsin_array *inputs, tocsin_array *out)
{
    tocsin_element alpha =
        tocsin_element_of_real(&kernel->field, tocsin_kernel_real(kernel, op, "alpha", 1));
    tocsin_element *data;
    double sum = 0;
    TOCSIN_TRY(tocsin_kernel_spend(kernel, (double)out->count * op->input_count));
    TOCSIN_TRY(tocsin_array_new(kernel, out, inputs, op->input_count, &data));
    memset(data, 0, (size_t)out->count * sizeof *data);
    for (uint32_t i = 0; i < op->input_count; ++i) {
        const tocsin_element *term;
        bool fits = true;
        TOCSIN_TRY(broadcast(kernel, &inputs[i], out, &term, &fits));
        if (!fits)
            return tocsin_array_undefine(kernel, out, "the added shapes do not fit");
        for (int64_t k = 0; k < out->count; ++k)
            data[k] = tocsin_element_add(data[k], i == 0 ? term[k]
                                                         : tocsin_element_multiply(alpha, term[k]));
        sum += inputs[i].degree;
    }
    if (out->rational)
        out->degree = sum;
    return TOCSIN_OK;
}

/* A choice reads what the mask picks alone; for all others one undefined operand is enough. */
static bool is_undefined(const tocsin_plan_op *op, const tocsin_element *x, uint8_t count)
{
    if (op->code == TOCSIN_OPERATOR_WHERE || op->code == TOCSIN_OPERATOR_MASKED_FILL)
        return tocsin_element_is_undefined(x[op->code == TOCSIN_OPERATOR_WHERE ? 0 : 1]);
    for (uint8_t i = 0; i < count; ++i)
        if (tocsin_element_is_undefined(x[i]))
            return true;
    return false;
}

tocsin_status tocsin_kernel_pointwise(tocsin_kernel *kernel, const tocsin_plan_op *op,
                                      const tocsin_array *inputs, tocsin_array *out)
{
    if (op->code == TOCSIN_OPERATOR_ADD)
        return add(kernel, op, inputs, out);
    const point_operator *known = find((tocsin_operator_code)op->code);
    assert(known && known->inputs <= 3);
    if (op->input_count != known->inputs)
        return tocsin_array_undefine(kernel, out, "%s with %u operands",
                                     tocsin_operators[op->code].name, (unsigned)op->input_count);
    const tocsin_element *data[3] = {NULL};
    tocsin_element *result;
    bool fits = true;
    TOCSIN_TRY(tocsin_kernel_spend(kernel, (double)out->count * 2));
    TOCSIN_TRY(tocsin_array_new(kernel, out, inputs, op->input_count, &result));
    for (uint8_t i = 0; i < known->inputs && fits; ++i)
        TOCSIN_TRY(broadcast(kernel, &inputs[i], out, &data[i], &fits));
    if (!fits)
        return tocsin_array_undefine(kernel, out, "the operands' shapes do not fit");
    evaluator point = {.kernel = kernel,
                       .field = &kernel->field,
                       .real = 1,
                       .exact = true,
                       .key = tocsin_kernel_function(kernel, op)};
    for (uint32_t i = 0; i < op->input_count; ++i)
        point.opaque |= inputs[i].opaque;
    read_constants(kernel, op, &point);
    for (int64_t k = 0; k < out->count; ++k) {
        tocsin_element x[3];
        for (uint8_t i = 0; i < known->inputs; ++i)
            x[i] = data[i][k];
        result[k] =
            is_undefined(op, x, known->inputs) ? TOCSIN_ELEMENT_UNDEFINED : known->run(&point, x);
        if (tocsin_element_is_undefined(result[k]) && !out->reason)
            out->reason = "a division by zero, or a difference of infinities";
    }
    unsigned flags = known->flags;
    if (op->code == TOCSIN_OPERATOR_POWER)
        flags |= power_flags(point.real);
    set_flags(kernel, &point, flags, inputs, op->input_count, out);
    return TOCSIN_OK;
}
