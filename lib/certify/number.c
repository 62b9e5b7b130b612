/* number.c - exact factors of the checker: a rational, a power of two, powers of opaque constants.
 *
 * A constant of a plan means the simplest fraction within one unit in the last place, if its
 * denominator is below 2^20 and its numerator below 2^53, found by continued fractions on the
 * number and else on its mantissa; what has none is an opaque number of which nothing is used but
 * that it is equal to itself. Anything beyond 64 bits is a failure, never a wrong value.
 */
#include <math.h>

#include "certify/certify.h"

enum { STEPS_MAX = 40 };

static int64_t greatest_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a < 0 ? -a : a;
}

/* Lowest terms, powers of two apart; denominator > 0. */
static certify_number tidy(certify_number value)
{
    if (value.numerator == 0)
        return (certify_number){.denominator = 1};
    while (value.numerator % 2 == 0) {
        value.numerator /= 2;
        value.two++;
    }
    while (value.denominator % 2 == 0) {
        value.denominator /= 2;
        value.two--;
    }
    const int64_t divisor = greatest_divisor(value.numerator, value.denominator);
    value.numerator /= divisor;
    value.denominator /= divisor;
    return value;
}

certify_number certify_integer(int64_t value)
{
    return tidy((certify_number){.numerator = value, .denominator = 1});
}

/* The first continued fraction of x > 0 within one unit in its last place. */
static bool fraction_near(double x, int64_t *numerator, int64_t *denominator)
{
    const double unit = nextafter(x, INFINITY) - x, limit = 9007199254740992.0; /* 2^53 */
    int64_t p = 1, q = 0, p_before = 0, q_before = 1;
    double rest = x;

    for (int step = 0; step < STEPS_MAX && rest < limit; step++) {
        const int64_t whole = (int64_t)rest;
        int64_t p_next, q_next;
        if (__builtin_mul_overflow(whole, p, &p_next) ||
            __builtin_add_overflow(p_next, p_before, &p_next) || p_next >= (INT64_C(1) << 53) ||
            __builtin_mul_overflow(whole, q, &q_next) ||
            __builtin_add_overflow(q_next, q_before, &q_next) || q_next >= (INT64_C(1) << 20))
            return false;
        p_before = p;
        q_before = q;
        p = p_next;
        q = q_next;
        if (p > 0 && fabs((double)p / (double)q - x) <= unit) {
            *numerator = p;
            *denominator = q;
            return true;
        }
        rest = 1.0 / (rest - (double)whole);
    }
    return false;
}

bool certify_real(double value, certify_number *number)
{
    if (!isfinite(value))
        return false;
    *number = (certify_number){.denominator = 1};
    if (value == 0)
        return true;
    const double magnitude = fabs(value);
    int exponent = 0;
    if (!fraction_near(magnitude, &number->numerator, &number->denominator)) {
        const double mantissa = 2 * frexp(magnitude, &exponent);
        number->two = exponent - 1;
        if (!fraction_near(mantissa, &number->numerator, &number->denominator)) {
            number->numerator = number->denominator = 1;
            number->opaque_count = 1;
            number->opaque[0].exponent = 1;
            memcpy(&number->opaque[0].bits, &mantissa, sizeof mantissa);
        }
    }
    if (value < 0)
        number->numerator = -number->numerator;
    *number = tidy(*number);
    return true;
}

static bool multiply_opaque(const certify_number *a, const certify_number *b,
                            certify_number *product)
{
    uint32_t i = 0, j = 0;
    product->opaque_count = 0;
    while (i < a->opaque_count || j < b->opaque_count) {
        const bool left =
            j == b->opaque_count || (i < a->opaque_count && a->opaque[i].bits <= b->opaque[j].bits);
        const bool right =
            i == a->opaque_count || (j < b->opaque_count && b->opaque[j].bits <= a->opaque[i].bits);
        const uint64_t bits = left ? a->opaque[i].bits : b->opaque[j].bits;
        int64_t exponent = left ? a->opaque[i].exponent : 0;
        if (right && __builtin_add_overflow(exponent, b->opaque[j].exponent, &exponent))
            return false;
        i += left;
        j += right;
        if (exponent == 0)
            continue;
        if (product->opaque_count == CERTIFY_OPAQUE_MAX)
            return false;
        product->opaque[product->opaque_count].bits = bits;
        product->opaque[product->opaque_count++].exponent = exponent;
    }
    return true;
}

bool certify_multiply(const certify_number *a, const certify_number *b, certify_number *product)
{
    const certify_number left = *a, right = *b;
    certify_number result = {.denominator = 1};

    if (!certify_is_zero(&left) && !certify_is_zero(&right)) {
        const int64_t one = greatest_divisor(left.numerator, right.denominator);
        const int64_t other = greatest_divisor(right.numerator, left.denominator);
        if (__builtin_mul_overflow(left.numerator / one, right.numerator / other,
                                   &result.numerator) ||
            __builtin_mul_overflow(left.denominator / other, right.denominator / one,
                                   &result.denominator) ||
            __builtin_add_overflow(left.two, right.two, &result.two) ||
            !multiply_opaque(&left, &right, &result))
            return false;
    }
    *product = result;
    return true;
}

bool certify_inverse(const certify_number *a, certify_number *inverse)
{
    certify_number result = *a;
    if (certify_is_zero(a) || a->numerator == INT64_MIN || a->two == INT64_MIN)
        return false;
    result.numerator = a->numerator < 0 ? -a->denominator : a->denominator;
    result.denominator = a->numerator < 0 ? -a->numerator : a->numerator;
    result.two = -a->two;
    for (uint32_t k = 0; k < a->opaque_count; k++) {
        if (a->opaque[k].exponent == INT64_MIN)
            return false;
        result.opaque[k].exponent = -a->opaque[k].exponent;
    }
    *inverse = result;
    return true;
}

int certify_compare_opaque(const certify_number *a, const certify_number *b)
{
    if (a->opaque_count != b->opaque_count)
        return a->opaque_count < b->opaque_count ? -1 : 1;
    for (uint32_t k = 0; k < a->opaque_count; k++) {
        if (a->opaque[k].bits != b->opaque[k].bits)
            return a->opaque[k].bits < b->opaque[k].bits ? -1 : 1;
        if (a->opaque[k].exponent != b->opaque[k].exponent)
            return a->opaque[k].exponent < b->opaque[k].exponent ? -1 : 1;
    }
    return 0;
}

bool certify_equal(const certify_number *a, const certify_number *b)
{
    return a->numerator == b->numerator && a->denominator == b->denominator && a->two == b->two &&
           certify_compare_opaque(a, b) == 0;
}

static bool shift(int64_t number, int64_t by, int64_t *shifted)
{
    return by >= 0 && by <= 62 && !__builtin_mul_overflow(number, INT64_C(1) << by, shifted);
}

bool certify_add(const certify_number *a, const certify_number *b, certify_number *sum)
{
    certify_number result = *a;
    int64_t left, right, by_a, by_b;

    if (certify_is_zero(a) || certify_is_zero(b)) {
        *sum = certify_is_zero(a) ? *b : *a;
        return true;
    }
    result.two = a->two < b->two ? a->two : b->two;
    const int64_t divisor = greatest_divisor(a->denominator, b->denominator);
    if (certify_compare_opaque(a, b) != 0 || __builtin_sub_overflow(a->two, result.two, &by_a) ||
        __builtin_sub_overflow(b->two, result.two, &by_b) || !shift(a->numerator, by_a, &left) ||
        !shift(b->numerator, by_b, &right) ||
        __builtin_mul_overflow(left, b->denominator / divisor, &left) ||
        __builtin_mul_overflow(right, a->denominator / divisor, &right) ||
        __builtin_add_overflow(left, right, &result.numerator) ||
        __builtin_mul_overflow(a->denominator, b->denominator / divisor, &result.denominator))
        return false;
    *sum = tidy(result);
    return true;
}
