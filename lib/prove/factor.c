/* factor.c - exact factors: a rational times a product of powers of opaque real constants.
 *
 * Data structure: a block of words (numerator, denominator, exponent of two, then for each opaque
 * constant its bits and its exponent), interned; the id is the word table's less one, so that the
 * factor 1 is 0.
 * Invariant: lowest terms, the denominator > 0, both odd (0 is 0/1): powers of two, of which
 * averages over tokens, replicas and micro-batches are full, stand apart and do not overflow;
 * opaque constants are positive, ascending by bits, exponents not 0, and a normal constant is in
 * [1, 2). Two factors are equal exactly when their ids are. Cost: a few divisions and one look-up.
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>

#include "prove/universe.h"

enum { OPAQUE_MAX = 16, RATIONAL_WORDS = 3 };
enum { SHIFT_MAX = 62, CONVERGENTS_MAX = 40 };
#define DENOMINATOR_MAX (INT64_C(1) << 20)
#define NUMERATOR_MAX   (INT64_C(1) << 53)
#define EXPONENT_MAX    (INT64_C(1) << 40) /* so that exponents are added without a thought */

struct value {
    int64_t numerator, denominator;
    int64_t two; /* exponent */
    uint32_t opaque_count;
    struct {
        uint64_t bits;
        int64_t exponent;
    } opaque[OPAQUE_MAX];
};

int64_t tocsin_greatest_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a < 0 ? -a : a;
}

/* Powers of two out of numerator and denominator. */
static void set_twos_apart(struct value *value)
{
    while (value->numerator % 2 == 0 && value->numerator != 0) {
        value->numerator /= 2;
        ++value->two;
    }
    while (value->denominator % 2 == 0) {
        value->denominator /= 2;
        --value->two;
    }
    if (value->numerator == 0)
        value->two = 0;
}

static tocsin_factor_id intern(tocsin_universe *universe, const struct value *given)
{
    struct value apart = *given;
    set_twos_apart(&apart);
    const struct value *value = &apart;
    assert(value->denominator > 0);
    assert(value->opaque_count <= OPAQUE_MAX);
    if (universe->status != TOCSIN_OK)
        return 0;
    uint64_t words[RATIONAL_WORDS + 2 * OPAQUE_MAX];
    uint32_t count = RATIONAL_WORDS;
    words[0] = (uint64_t)value->numerator;
    words[1] = (uint64_t)value->denominator;
    words[2] = (uint64_t)value->two;
    for (uint32_t i = 0; i < value->opaque_count && value->numerator != 0; ++i) {
        words[count++] = value->opaque[i].bits;
        words[count++] = (uint64_t)value->opaque[i].exponent;
    }
    bool made;
    uint32_t id = tocsin_words_put(&universe->factors, &universe->arena, words, count, &made);
    return id ? id - 1 : tocsin_universe_fail(universe, TOCSIN_E_MEMORY);
}

static const struct tocsin_word_entry *entry_of(const tocsin_universe *universe,
                                                tocsin_factor_id factor)
{
    assert(factor < universe->factors.entries.count);
    return &universe->factors.entries.items[factor];
}

static struct value value_of(const tocsin_universe *universe, tocsin_factor_id factor)
{
    const struct tocsin_word_entry *entry = entry_of(universe, factor);
    struct value value = {.numerator = (int64_t)entry->words[0],
                          .denominator = (int64_t)entry->words[1],
                          .two = (int64_t)entry->words[2],
                          .opaque_count = (entry->count - RATIONAL_WORDS) / 2};
    for (uint32_t i = 0; i < value.opaque_count; ++i) {
        value.opaque[i].bits = entry->words[RATIONAL_WORDS + 2 * i];
        value.opaque[i].exponent = (int64_t)entry->words[RATIONAL_WORDS + 2 * i + 1];
    }
    return value;
}

/* value *= numerator / denominator, which are in lowest terms; false: beyond 64 bits. */
static bool multiply_rational(struct value *value, int64_t numerator, int64_t denominator)
{
    int64_t left = tocsin_greatest_divisor(value->numerator, denominator),
            right = tocsin_greatest_divisor(numerator, value->denominator);
    if (left == 0 || right == 0)
        return false;
    return !__builtin_mul_overflow(value->numerator / left, numerator / right, &value->numerator) &&
           !__builtin_mul_overflow(value->denominator / right, denominator / left,
                                   &value->denominator) &&
           value->numerator != INT64_MIN;
}

tocsin_factor_id tocsin_factor_rational(tocsin_universe *universe, int64_t numerator,
                                        int64_t denominator)
{
    assert(denominator != 0);
    if (numerator == INT64_MIN || denominator == INT64_MIN)
        return tocsin_universe_fail(universe, TOCSIN_E_LIMIT);
    if (denominator < 0) {
        numerator = -numerator;
        denominator = -denominator;
    }
    int64_t divisor = tocsin_greatest_divisor(numerator, denominator);
    struct value value = {.numerator = numerator / divisor, .denominator = denominator / divisor};
    return intern(universe, &value);
}

/* The first convergent of value's continued fraction within one ulp of it, if its denominator is
 * below 2^20. value > 0 and finite. */
static bool rational_near(double value, int64_t *numerator, int64_t *denominator)
{
    double ulp = nextafter(value, INFINITY) - value;
    int64_t p[2] = {1, 0}, q[2] = {0, 1}; /* the last convergent, and the one before */
    double rest = value;
    for (int i = 0; i < CONVERGENTS_MAX && rest < (double)NUMERATOR_MAX; ++i) {
        int64_t whole = (int64_t)rest;
        int64_t next_p, next_q;
        if (__builtin_mul_overflow(whole, p[0], &next_p) ||
            __builtin_add_overflow(next_p, p[1], &next_p) || next_p >= NUMERATOR_MAX ||
            __builtin_mul_overflow(whole, q[0], &next_q) ||
            __builtin_add_overflow(next_q, q[1], &next_q) || next_q >= DENOMINATOR_MAX)
            return false;
        p[1] = p[0], p[0] = next_p;
        q[1] = q[0], q[0] = next_q;
        if (next_p > 0 && fabs((double)next_p / (double)next_q - value) <= ulp) {
            *numerator = next_p;
            *denominator = next_q;
            return true;
        }
        rest = 1.0 / (rest - (double)whole);
    }
    return false;
}

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

tocsin_factor_id tocsin_factor_real(tocsin_universe *universe, double value)
{
    if (value == 0)
        return TOCSIN_FACTOR_ZERO;
    int64_t sign = value < 0 ? -1 : 1;
    double magnitude = isnan(value) ? NAN : fabs(value);
    struct value result = {.numerator = sign, .denominator = 1};
    int64_t numerator, denominator;
    if (isfinite(value) && rational_near(magnitude, &numerator, &denominator)) {
        result.numerator = sign * numerator;
        result.denominator = denominator;
        return intern(universe, &result);
    }
    int exponent = 0;
    double mantissa = isfinite(value) ? 2 * frexp(magnitude, &exponent) : magnitude;
    result.two = exponent - isfinite(value);
    if (isfinite(value) && rational_near(mantissa, &numerator, &denominator)) {
        result.numerator = sign * numerator;
        result.denominator = denominator;
        return intern(universe, &result);
    }
    result.opaque_count = 1;
    result.opaque[0].exponent = 1;
    result.opaque[0].bits = bits_of(mantissa);
    return intern(universe, &result);
}

/* Merge b's opaque constants into a's, exponents added; false: too many, or beyond 64 bits. */
static bool multiply_opaque(struct value *a, const struct value *b)
{
    struct value merged = *a;
    uint32_t i = 0, j = 0, count = 0;
    while (i < a->opaque_count || j < b->opaque_count) {
        bool from_a =
            i < a->opaque_count && (j == b->opaque_count || a->opaque[i].bits <= b->opaque[j].bits);
        bool from_b =
            j < b->opaque_count && (i == a->opaque_count || b->opaque[j].bits <= a->opaque[i].bits);
        uint64_t bits = from_a ? a->opaque[i].bits : b->opaque[j].bits;
        int64_t exponent =
            (from_a ? a->opaque[i].exponent : 0) + (from_b ? b->opaque[j].exponent : 0);
        if (exponent > EXPONENT_MAX || exponent < -EXPONENT_MAX)
            return false;
        i += from_a;
        j += from_b;
        if (exponent == 0 && isfinite(double_of(bits))) /* infinities do not cancel */
            continue;
        if (count == OPAQUE_MAX)
            return false;
        merged.opaque[count].bits = bits;
        merged.opaque[count++].exponent = exponent;
    }
    merged.opaque_count = count;
    *a = merged;
    return true;
}

tocsin_factor_id tocsin_factor_multiply(tocsin_universe *universe, tocsin_factor_id a,
                                        tocsin_factor_id b)
{
    if (a == TOCSIN_FACTOR_ZERO || b == TOCSIN_FACTOR_ZERO)
        return TOCSIN_FACTOR_ZERO;
    if (a == 0 || b == 0)
        return a == 0 ? b : a;
    struct value product = value_of(universe, a);
    const struct value other = value_of(universe, b);
    product.two += other.two;
    if (product.two > EXPONENT_MAX || product.two < -EXPONENT_MAX ||
        !multiply_rational(&product, other.numerator, other.denominator) ||
        !multiply_opaque(&product, &other))
        return tocsin_universe_fail(universe, TOCSIN_E_LIMIT);
    return intern(universe, &product);
}

int tocsin_factor_compare_opaque(const tocsin_universe *universe, tocsin_factor_id a,
                                 tocsin_factor_id b)
{
    const struct tocsin_word_entry *left = entry_of(universe, a), *right = entry_of(universe, b);
    if (left->count != right->count)
        return left->count < right->count ? -1 : 1;
    return memcmp(left->words + RATIONAL_WORDS, right->words + RATIONAL_WORDS,
                  (left->count - RATIONAL_WORDS) * sizeof *left->words);
}

static bool is_finite(const struct value *value)
{
    for (uint32_t i = 0; i < value->opaque_count; ++i)
        if (!isfinite(double_of(value->opaque[i].bits)))
            return false;
    return true;
}

bool tocsin_factor_is_finite(const tocsin_universe *universe, tocsin_factor_id factor)
{
    const struct value value = value_of(universe, factor);
    return is_finite(&value);
}

static bool is_nan(const struct value *value)
{
    for (uint32_t i = 0; i < value->opaque_count; ++i)
        if (isnan(double_of(value->opaque[i].bits)))
            return true;
    return false;
}

/* number * 2^by; false: beyond 64 bits. */
static bool shift_up(int64_t number, int64_t by, int64_t *shifted)
{
    return by <= SHIFT_MAX && !__builtin_mul_overflow(number, INT64_C(1) << by, shifted);
}

bool tocsin_factor_add(tocsin_universe *universe, tocsin_factor_id a, tocsin_factor_id b,
                       tocsin_factor_id *sum, bool *zero)
{
    *zero = false;
    if (a == TOCSIN_FACTOR_ZERO || b == TOCSIN_FACTOR_ZERO) {
        *sum = a == TOCSIN_FACTOR_ZERO ? b : a;
        *zero = *sum == TOCSIN_FACTOR_ZERO;
        return true;
    }
    struct value left = value_of(universe, a);
    const struct value right = value_of(universe, b);
    if (!is_finite(&left) && !is_finite(&right) && (is_nan(&left) || is_nan(&right) || a != b)) {
        /* an infinity less itself is no number; so is a sum with one that is none */
        *sum = tocsin_factor_real(universe, NAN);
        return true;
    }
    if (tocsin_factor_compare_opaque(universe, a, b) != 0)
        return false;
    if (!is_finite(&left)) { /* twice an infinity is it */
        *sum = a;
        return true;
    }
    int64_t divisor = tocsin_greatest_divisor(left.denominator, right.denominator);
    const int64_t least = left.two < right.two ? left.two : right.two;
    int64_t first, second;
    if (!shift_up(left.numerator, left.two - least, &first) ||
        !shift_up(right.numerator, right.two - least, &second) ||
        __builtin_mul_overflow(first, right.denominator / divisor, &first) ||
        __builtin_mul_overflow(second, left.denominator / divisor, &second) ||
        __builtin_add_overflow(first, second, &left.numerator) || left.numerator == INT64_MIN ||
        __builtin_mul_overflow(left.denominator, right.denominator / divisor, &left.denominator)) {
        tocsin_universe_fail(universe, TOCSIN_E_LIMIT);
        return false;
    }
    left.two = least;
    int64_t shared = tocsin_greatest_divisor(left.numerator, left.denominator);
    left.numerator /= shared;
    left.denominator /= shared;
    *zero = left.numerator == 0;
    *sum = *zero ? TOCSIN_FACTOR_ZERO : intern(universe, &left);
    return true;
}

tocsin_factor_id tocsin_factor_inverse(tocsin_universe *universe, tocsin_factor_id a)
{
    if (a == TOCSIN_FACTOR_ZERO)
        return tocsin_factor_real(universe, INFINITY);
    struct value value = value_of(universe, a);
    int64_t sign = value.numerator < 0 ? -1 : 1;
    int64_t numerator = sign * value.denominator;
    value.denominator = sign * value.numerator;
    value.numerator = numerator;
    value.two = -value.two;
    for (uint32_t i = 0; i < value.opaque_count; ++i)
        value.opaque[i].exponent = -value.opaque[i].exponent;
    return intern(universe, &value);
}

/* The fraction with its powers of two; false: beyond 64 bits. */
static bool join_twos(const struct value *value, int64_t *numerator, int64_t *denominator)
{
    *numerator = value->numerator;
    *denominator = value->denominator;
    return value->two >= 0 ? shift_up(*numerator, value->two, numerator)
                           : shift_up(*denominator, -value->two, denominator);
}

bool tocsin_factor_is_rational(const tocsin_universe *universe, tocsin_factor_id factor,
                               int64_t *numerator, int64_t *denominator)
{
    struct value value = value_of(universe, factor);
    *numerator = value.numerator;
    *denominator = value.denominator;
    return value.opaque_count == 0 && join_twos(&value, numerator, denominator);
}

bool tocsin_factor_is_negative(const tocsin_universe *universe, tocsin_factor_id factor)
{
    return (int64_t)entry_of(universe, factor)->words[0] < 0;
}

void tocsin_factor_text(const tocsin_universe *universe, tocsin_factor_id factor,
                        tocsin_string *text)
{
    struct value value = value_of(universe, factor);
    bool single = value.opaque_count == 1 && value.opaque[0].exponent == 1 && value.two > -1000 &&
                  value.two < 1000;
    double constant = value.opaque_count ? double_of(value.opaque[0].bits) : 1;
    if (single) { /* takes the powers of two back, so that the user reads what was written */
        constant = ldexp(constant, (int)value.two);
        value.two = 0;
    }
    if (join_twos(&value, &value.numerator, &value.denominator))
        value.two = 0;
    bool written = value.opaque_count == 0 || value.denominator != 1 ||
                   (value.numerator != 1 && value.numerator != -1);
    if (written)
        tocsin_string_printf(text, "%" PRId64, value.numerator);
    else if (value.numerator < 0)
        tocsin_string_append_char(text, '-');
    if (value.denominator != 1)
        tocsin_string_printf(text, "/%" PRId64, value.denominator);
    if (value.two != 0)
        tocsin_string_printf(text, " * 2^%" PRId64, value.two);
    for (uint32_t i = 0; i < value.opaque_count; ++i) {
        char digits[TOCSIN_REAL_TEXT_BYTES];
        tocsin_real_text(single ? constant : double_of(value.opaque[i].bits), digits);
        tocsin_string_printf(text, "%s%s", written || i ? " * " : "", digits);
        if (value.opaque[i].exponent != 1)
            tocsin_string_printf(text, "^%" PRId64, value.opaque[i].exponent);
    }
}
