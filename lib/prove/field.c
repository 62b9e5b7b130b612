/* prove/field.c - see field.h.
 *
 * Residues are canonical, in [0, p) and [0, q). Both primes are a little below a power of two, so a
 * product of two residues is reduced by folding: 2^61 = 2373 (mod p), 2^60 = 1187 (mod q).
 */
#include "prove/field.h"

#include <assert.h>
#include <math.h>

__extension__ typedef unsigned __int128 wide;

enum { P_BITS = 61, P_FOLD = 2373, Q_BITS = 60, Q_FOLD = 1187 };
static const uint64_t integer_limit = UINT64_C(1) << 40;

static uint64_t add_mod(uint64_t a, uint64_t b, uint64_t prime)
{
    uint64_t sum = a + b;
    return sum >= prime ? sum - prime : sum;
}

/* Two folds bring x < 2^122 below 2^61 + 2^24. */
static uint64_t multiply_p(uint64_t a, uint64_t b)
{
    const uint64_t mask = (UINT64_C(1) << P_BITS) - 1;
    wide x = (wide)a * b;
    x = (x & mask) + (x >> P_BITS) * P_FOLD;
    uint64_t folded = (uint64_t)(x & mask) + (uint64_t)(x >> P_BITS) * P_FOLD;
    return folded >= TOCSIN_FIELD_P ? folded - TOCSIN_FIELD_P : folded;
}

static uint64_t multiply_q(uint64_t a, uint64_t b)
{
    const uint64_t mask = (UINT64_C(1) << Q_BITS) - 1;
    wide x = (wide)a * b;
    x = (x & mask) + (x >> Q_BITS) * Q_FOLD;
    uint64_t folded = (uint64_t)(x & mask) + (uint64_t)(x >> Q_BITS) * Q_FOLD;
    return folded >= TOCSIN_FIELD_Q ? folded - TOCSIN_FIELD_Q : folded;
}

static uint64_t power_p(uint64_t base, uint64_t exponent)
{
    uint64_t power = 1;
    for (; exponent; exponent >>= 1) {
        if (exponent & 1)
            power = multiply_p(power, base);
        base = multiply_p(base, base);
    }
    return power;
}

static uint64_t power_q(uint64_t base, uint64_t exponent)
{
    uint64_t power = 1;
    for (; exponent; exponent >>= 1) {
        if (exponent & 1)
            power = multiply_q(power, base);
        base = multiply_q(base, base);
    }
    return power;
}

tocsin_field tocsin_field_new(uint64_t seed)
{
    /* Every square but 1 and 0 generates the subgroup of order q. */
    uint64_t root = 2 + tocsin_mix64(seed ^ UINT64_C(0x6a09e667f3bcc908)) % (TOCSIN_FIELD_P - 4);
    tocsin_field field = {.seed = seed, .exp_base = multiply_p(root, root)};
    assert(field.exp_base > 1 && power_p(field.exp_base, TOCSIN_FIELD_Q) == 1);
    return field;
}

tocsin_element tocsin_element_of_integer(int64_t value)
{
    uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    tocsin_element a = {size % TOCSIN_FIELD_P, size % TOCSIN_FIELD_Q};
    return value < 0 ? tocsin_element_negate(a) : a;
}

bool tocsin_element_is_integer(tocsin_element a, int64_t *value)
{
    if (a.p < integer_limit)
        *value = (int64_t)a.p;
    else if (a.p < TOCSIN_FIELD_P && TOCSIN_FIELD_P - a.p < integer_limit)
        *value = -(int64_t)(TOCSIN_FIELD_P - a.p);
    else
        return false;
    return true;
}

/* The first convergent of the continued fraction of value > 0 that is within an ulp. */
static bool find_fraction(double value, int64_t *numerator, int64_t *denominator)
{
    const double ulp = nextafter(value, INFINITY) - value;
    double rest = value;
    double n0 = 0, n1 = 1, d0 = 1, d1 = 0;
    for (int step = 0; step < 64; ++step) {
        double whole = floor(rest);
        double n2 = whole * n1 + n0, d2 = whole * d1 + d0;
        if (d2 >= 0x1p20 || n2 >= 0x1p53)
            return false;
        if (n2 > 0 && fabs(n2 / d2 - value) <= ulp) {
            *numerator = (int64_t)n2;
            *denominator = (int64_t)d2;
            return true;
        }
        if (rest == whole)
            return false;
        rest = 1 / (rest - whole);
        n0 = n1, n1 = n2, d0 = d1, d1 = d2;
    }
    return false;
}

tocsin_element tocsin_element_of_real(const tocsin_field *field, double value)
{
    if (isnan(value))
        return TOCSIN_ELEMENT_UNDEFINED;
    if (isinf(value))
        return value > 0 ? TOCSIN_ELEMENT_POSITIVE : TOCSIN_ELEMENT_NEGATIVE;
    if (value < 0)
        return tocsin_element_negate(tocsin_element_of_real(field, -value));
    if (value < 0x1p53 && value == floor(value))
        return tocsin_element_of_integer((int64_t)value);
    int64_t numerator, denominator;
    if (find_fraction(value, &numerator, &denominator))
        return tocsin_element_multiply(
            tocsin_element_of_integer(numerator),
            tocsin_element_inverse(tocsin_element_of_integer(denominator)));
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return tocsin_oracle_value(
        tocsin_oracle_absorb(tocsin_oracle_begin(field, UINT64_C(0x636f6e7374)), bits));
}

static tocsin_element add_special(tocsin_element a, tocsin_element b)
{
    if (tocsin_element_is_finite(a))
        return b;
    if (tocsin_element_is_finite(b) || a.p == b.p)
        return a;
    return TOCSIN_ELEMENT_UNDEFINED;
}

tocsin_element tocsin_element_add(tocsin_element a, tocsin_element b)
{
    if (!tocsin_element_is_finite(a) || !tocsin_element_is_finite(b))
        return add_special(a, b);
    return (tocsin_element){add_mod(a.p, b.p, TOCSIN_FIELD_P), add_mod(a.q, b.q, TOCSIN_FIELD_Q)};
}

tocsin_element tocsin_element_negate(tocsin_element a)
{
    if (a.p == UINT64_MAX)
        return TOCSIN_ELEMENT_NEGATIVE;
    if (a.p == UINT64_MAX - 1)
        return TOCSIN_ELEMENT_POSITIVE;
    if (tocsin_element_is_undefined(a))
        return a;
    return (tocsin_element){a.p ? TOCSIN_FIELD_P - a.p : 0, a.q ? TOCSIN_FIELD_Q - a.q : 0};
}

tocsin_element tocsin_element_subtract(tocsin_element a, tocsin_element b)
{
    return tocsin_element_add(a, tocsin_element_negate(b));
}

/* An infinity times what has a sign: an integer or an infinity. */
static tocsin_element multiply_special(tocsin_element a, tocsin_element b)
{
    if (tocsin_element_is_undefined(a) || tocsin_element_is_undefined(b))
        return TOCSIN_ELEMENT_UNDEFINED;
    if (tocsin_element_is_finite(a)) {
        tocsin_element other = a;
        a = b;
        b = other;
    }
    int64_t sign = b.p == UINT64_MAX ? 1 : -1;
    if (tocsin_element_is_finite(b) && (!tocsin_element_is_integer(b, &sign) || sign == 0))
        return TOCSIN_ELEMENT_UNDEFINED;
    return sign > 0 ? a : tocsin_element_negate(a);
}

tocsin_element tocsin_element_multiply(tocsin_element a, tocsin_element b)
{
    if (!tocsin_element_is_finite(a) || !tocsin_element_is_finite(b))
        return multiply_special(a, b);
    return (tocsin_element){multiply_p(a.p, b.p), multiply_q(a.q, b.q)};
}

tocsin_element tocsin_element_inverse(tocsin_element a)
{
    if (tocsin_element_is_undefined(a) || a.p == 0)
        return TOCSIN_ELEMENT_UNDEFINED;
    if (!tocsin_element_is_finite(a))
        return tocsin_element_of_integer(0);
    return (tocsin_element){power_p(a.p, TOCSIN_FIELD_P - 2), power_q(a.q, TOCSIN_FIELD_Q - 2)};
}

tocsin_element tocsin_element_power(tocsin_element a, int64_t exponent)
{
    if (exponent < 0) {
        a = tocsin_element_inverse(a);
        exponent = -exponent;
    }
    if (exponent == 0)
        return tocsin_element_of_integer(1);
    if (!tocsin_element_is_finite(a))
        return a.p == UINT64_MAX - 1 && exponent % 2 == 0 ? TOCSIN_ELEMENT_POSITIVE : a;
    return (tocsin_element){power_p(a.p, (uint64_t)exponent), power_q(a.q, (uint64_t)exponent)};
}

tocsin_element tocsin_element_exp(const tocsin_field *field, tocsin_element a)
{
    if (a.p == UINT64_MAX - 1)
        return tocsin_element_of_integer(0);
    if (!tocsin_element_is_finite(a))
        return a;
    if (a.p == 0)
        return tocsin_element_of_integer(1);
    tocsin_element result = tocsin_oracle_of(field, UINT64_C(0x657870), a);
    result.p = power_p(field->exp_base, a.q);
    return result;
}

tocsin_element tocsin_element_sqrt(const tocsin_field *field, tocsin_element a, bool *exact)
{
    if (a.p == UINT64_MAX - 1)
        return TOCSIN_ELEMENT_UNDEFINED;
    if (!tocsin_element_is_finite(a) || a.p == 0)
        return a;
    tocsin_element result = tocsin_oracle_of(field, UINT64_C(0x73717274), a);
    result.p = power_p(a.p, (TOCSIN_FIELD_P + 1) / 4);
    if (multiply_p(result.p, result.p) != a.p)
        *exact = false;
    return result;
}

/* -inf, the rest by random rank, the integers in their order, +inf. */
static int order_class(tocsin_element a, int64_t *integer)
{
    if (a.p == UINT64_MAX - 1)
        return 0;
    if (a.p == UINT64_MAX)
        return 3;
    return tocsin_element_is_integer(a, integer) ? 2 : 1;
}

int tocsin_element_compare(const tocsin_field *field, tocsin_element a, tocsin_element b,
                           bool *chosen)
{
    assert(!tocsin_element_is_undefined(a) && !tocsin_element_is_undefined(b));
    if (a.p == b.p)
        return 0;
    int64_t x = 0, y = 0;
    int class_a = order_class(a, &x), class_b = order_class(b, &y);
    if (class_a == 1 || class_b == 1)
        *chosen |= class_a != 0 && class_b != 0 && class_a != 3 && class_b != 3;
    if (class_a != class_b)
        return class_a < class_b ? -1 : 1;
    if (class_a == 2)
        return x < y ? -1 : 1;
    uint64_t key = tocsin_oracle_begin(field, UINT64_C(0x6f72646572));
    uint64_t rank_a = tocsin_oracle_absorb(key, a.p), rank_b = tocsin_oracle_absorb(key, b.p);
    if (rank_a == rank_b)
        return a.p < b.p ? -1 : 1;
    return rank_a < rank_b ? -1 : 1;
}

tocsin_element tocsin_oracle_value(uint64_t state)
{
    return (tocsin_element){tocsin_mix64(state + UINT64_C(0xbb67ae8584caa73b)) % TOCSIN_FIELD_P,
                            tocsin_mix64(state + UINT64_C(0x3c6ef372fe94f82b)) % TOCSIN_FIELD_Q};
}

tocsin_element tocsin_oracle_of(const tocsin_field *field, uint64_t key, tocsin_element a)
{
    if (tocsin_element_is_undefined(a))
        return a;
    return tocsin_oracle_value(tocsin_oracle_absorb(tocsin_oracle_begin(field, key), a.p));
}
