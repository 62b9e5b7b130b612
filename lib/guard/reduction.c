/* reduction.c - a slice or a part of a reduction, computed again.
 *
 * Floating point sums depend on their order. gloo's ring is known (docs/guard.md): the whole is cut
 * into one chunk a member; chunk k begins at the member before k and takes up the others backwards,
 * each sum rounded to the element's type. There bits are compared, and if they are equal there is
 * no more to do. Of any other order only a bound is known, around a sum in twice the precision of
 * double (Knuth's two-sum).
 * Numbers are kept as doubles: adding two floats, halves or bfloats in double and rounding once
 * more gives the same bits as their own addition (53 >= 2 * 24 + 2). Cost: O(members) an element,
 * in the ring's order a few nanoseconds for each of them.
 */
#include "guard/guard.h"

#include <math.h>
#include <tocsin/communication.h>

/* gloo passes on pieces of at most this, and of at least two a member. */
#define SEGMENT_BYTES (1u << 20)

/* ---- numbers --------------------------------------------------------------------------------- */

/* A binary format: digits with the leading one, the exponents of the smallest subnormal and normal
 * number, the largest number. digits 0: an integer. */
typedef struct number_format {
    int digits, smallest, normal;
    double largest;
} number_format;

static number_format format_of(tocsin_dtype dtype)
{
    switch (dtype) {
    case TOCSIN_DTYPE_FLOAT16:
        return (number_format){11, -24, -14, 65504.0};
    case TOCSIN_DTYPE_BFLOAT16:
        return (number_format){8, -133, -126, 0x1.fep127};
    case TOCSIN_DTYPE_FLOAT32:
        return (number_format){24, -149, -126, 0x1.fffffep127};
    case TOCSIN_DTYPE_FLOAT64:
        return (number_format){53, -1074, -1022, 0x1.fffffffffffffp1023};
    default:
        return (number_format){.digits = 0};
    }
}

static bool is_integer(tocsin_dtype dtype)
{
    switch (dtype) {
    case TOCSIN_DTYPE_UINT8:
    case TOCSIN_DTYPE_INT8:
    case TOCSIN_DTYPE_INT16:
    case TOCSIN_DTYPE_INT32:
    case TOCSIN_DTYPE_INT64:
    case TOCSIN_DTYPE_UINT16:
    case TOCSIN_DTYPE_UINT32:
    case TOCSIN_DTYPE_UINT64:
        return true;
    default:
        return false;
    }
}

static bool is_signed(tocsin_dtype dtype)
{
    return dtype == TOCSIN_DTYPE_INT8 || dtype == TOCSIN_DTYPE_INT16 ||
           dtype == TOCSIN_DTYPE_INT32 || dtype == TOCSIN_DTYPE_INT64;
}

static double half_decode(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double magnitude = exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
                       : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                      : ldexp(fraction, -24);
    return bits >> 15 ? -magnitude : magnitude;
}

static double real_at(const void *elements, uint64_t i, tocsin_dtype dtype)
{
    const unsigned char *at = (const unsigned char *)elements + i * tocsin_dtype_bytes(dtype);
    uint16_t half;
    uint32_t word;
    float single;
    double value;
    switch (dtype) {
    case TOCSIN_DTYPE_FLOAT16:
        memcpy(&half, at, sizeof half);
        return half_decode(half);
    case TOCSIN_DTYPE_BFLOAT16:
        memcpy(&half, at, sizeof half);
        word = (uint32_t)half << 16;
        memcpy(&single, &word, sizeof single);
        return (double)single;
    case TOCSIN_DTYPE_FLOAT32:
        memcpy(&single, at, sizeof single);
        return (double)single;
    default:
        memcpy(&value, at, sizeof value);
        return value;
    }
}

/* An integer, extended to 64 bits as its type does. */
static uint64_t integer_at(const void *elements, uint64_t i, tocsin_dtype dtype)
{
    size_t bytes = tocsin_dtype_bytes(dtype);
    const unsigned char *at = (const unsigned char *)elements + i * bytes;
    uint64_t value = 0;
    for (size_t b = bytes; b-- > 0;)
        value = value << 8 | at[b];
    if (is_signed(dtype) && bytes < 8 && value >> (8 * bytes - 1) != 0)
        value |= UINT64_MAX << (8 * bytes);
    return value;
}

/* To the nearest number of the format, ties to even. */
static double round_to(double value, const number_format *format)
{
    if (format->digits == 53)
        return value;
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    int exponent = (int)(bits >> 52 & 2047) - 1023;
    if (exponent >= format->normal && exponent < -format->normal) { /* a carry stays finite */
        int dropped = 53 - format->digits;
        uint64_t unit = (uint64_t)1 << dropped;
        bits = (bits + unit / 2 - 1 + (bits >> dropped & 1)) & ~(unit - 1);
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    if (value == 0.0 || !isfinite(value))
        return value;
    int quantum = ilogb(value) - format->digits + 1;
    if (quantum < format->smallest)
        quantum = format->smallest;
    double rounded = ldexp(nearbyint(ldexp(value, -quantum)), quantum);
    return fabs(rounded) > format->largest ? copysign((double)INFINITY, value) : rounded;
}

/* ---- one element ----------------------------------------------------------------------------- */

typedef struct element_sum {
    double high, low; /* of the exact sum, or the exact result */
    double magnitude; /* sum of magnitudes */
    bool nonfinite;   /* an input is NaN or Inf */
} element_sum;

static element_sum sum_exactly(const tocsin_guard_reduction *reduction, uint64_t i)
{
    element_sum sum = {0};
    for (uint32_t m = 0; m < reduction->members; ++m) {
        double x = real_at(reduction->inputs[m], i, reduction->dtype);
        sum.nonfinite |= !isfinite(x);
        sum.magnitude += fabs(x);
        double high = sum.high + x, part = high - sum.high;
        sum.low += (sum.high - (high - part)) + (x - part);
        sum.high = high;
    }
    return sum;
}

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

/* Elements of a member's chunk in gloo's ring. */
static uint64_t ring_chunk(const tocsin_guard_reduction *reduction)
{
    uint64_t members = reduction->members, bytes = tocsin_dtype_bytes(reduction->dtype);
    uint64_t total = reduction->count * bytes, piece = SEGMENT_BYTES;
    if (reduction->ring == TOCSIN_GUARD_RING_FILLED) {
        uint64_t even = divide_up(total, 2 * members);
        piece = divide_up(even < piece ? even : piece, bytes) * bytes;
    }
    uint64_t segments = divide_up(total, piece ? piece : bytes);
    if (segments < 2 * members)
        segments = 2 * members;
    segments = divide_up(segments, members) * members;
    if (reduction->ring != TOCSIN_GUARD_RING_FILLED)
        piece = divide_up(divide_up(total, segments), bytes) * bytes;
    uint64_t chunk = piece / bytes * (segments / members);
    return chunk ? chunk : 1;
}

static double sum_in_ring(const tocsin_guard_reduction *reduction, uint64_t i,
                          const number_format *format, uint64_t chunk)
{
    uint64_t members = reduction->members;
    uint64_t m = ((reduction->first + i) / chunk + members - 1) % members; /* before the chunk's */
    double sum = real_at(reduction->inputs[m], i, reduction->dtype);
    for (uint64_t left = members - 1; left > 0; --left) {
        m = (m == 0 ? members : m) - 1;
        sum = round_to(sum + real_at(reduction->inputs[m], i, reduction->dtype), format);
    }
    if (reduction->operation == TOCSIN_GUARD_AVERAGE)
        sum = round_to(sum / (double)members, format);
    return sum;
}

static bool same_number(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static void note(tocsin_guard_reduced *reduced, uint64_t element, double expected, double seen,
                 double bound)
{
    if (reduced->wrong + reduced->other == 0) {
        reduced->first = element;
        reduced->expected = expected;
        reduced->seen = seen;
        reduced->bound = bound;
    }
}

static void check_sum(const tocsin_guard_reduction *reduction, uint64_t i,
                      const number_format *format, uint64_t chunk, tocsin_guard_reduced *reduced)
{
    double seen = real_at(reduction->result, i, reduction->dtype), expected = 0;
    if (reduction->ring) {
        expected = sum_in_ring(reduction, i, format, chunk);
        if (same_number(expected, seen))
            return; /* an order gives it */
    }
    element_sum sum = sum_exactly(reduction, i);
    double steps = (double)reduction->members + 2, unit = ldexp(steps, -format->digits);
    double divisor = reduction->operation == TOCSIN_GUARD_AVERAGE ? (double)reduction->members : 1;
    double bound = unit < 0.5 ? unit / (1 - unit) * sum.magnitude / divisor * (1 + 0x1p-20) +
                                    steps * ldexp(1, format->normal)
                              : (double)INFINITY;
    bool overflow = !(sum.magnitude < format->largest / 2);
    bool right = sum.nonfinite ? !isfinite(seen)
                 : overflow    ? true
                               : fabs(seen - sum.high / divisor - sum.low / divisor) <= bound;
    if (!reduction->ring) {
        if (right)
            return;
        expected = (sum.high + sum.low) / divisor;
    }
    note(reduced, reduction->first + i, expected, seen, bound);
    reduced->wrong += !right;
    reduced->other += reduction->ring != TOCSIN_GUARD_RING_NONE;
}

static void check_real_choice(const tocsin_guard_reduction *reduction, uint64_t i,
                              tocsin_guard_reduced *reduced)
{
    bool least = reduction->operation == TOCSIN_GUARD_MINIMUM;
    double best = real_at(reduction->inputs[0], i, reduction->dtype);
    bool unordered = isnan(best);
    for (uint32_t m = 1; m < reduction->members; ++m) {
        double x = real_at(reduction->inputs[m], i, reduction->dtype);
        unordered |= isnan(x);
        best = (least ? x < best : x > best) ? x : best;
    }
    double seen = real_at(reduction->result, i, reduction->dtype);
    if (unordered || seen == best) /* backends treat NaN unlike */
        return;
    note(reduced, reduction->first + i, best, seen, 0);
    ++reduced->wrong;
}

static void check_integer(const tocsin_guard_reduction *reduction, uint64_t i,
                          tocsin_guard_reduced *reduced)
{
    tocsin_dtype dtype = reduction->dtype;
    uint64_t mask = UINT64_MAX >> (64 - 8 * tocsin_dtype_bytes(dtype));
    uint64_t flip = is_signed(dtype) ? (uint64_t)1 << 63 : 0; /* makes order that of unsigned */
    uint64_t result = integer_at(reduction->inputs[0], i, dtype);
    for (uint32_t m = 1; m < reduction->members; ++m) {
        uint64_t x = integer_at(reduction->inputs[m], i, dtype);
        bool less = (x ^ flip) < (result ^ flip);
        if (reduction->operation == TOCSIN_GUARD_SUM)
            result += x;
        else if (less == (reduction->operation == TOCSIN_GUARD_MINIMUM))
            result = x;
    }
    uint64_t seen = integer_at(reduction->result, i, dtype);
    if (((seen ^ result) & mask) == 0)
        return;
    note(reduced, reduction->first + i, (double)result, (double)seen, 0);
    ++reduced->wrong;
}

/* ---- a part ---------------------------------------------------------------------------------- */

void tocsin_guard_reduced_add(tocsin_guard_reduced *sum, const tocsin_guard_reduced *part)
{
    tocsin_guard_reduced first = sum->wrong + sum->other == 0 ? *part : *sum;
    first.recomputed = sum->recomputed + part->recomputed;
    first.wrong = sum->wrong + part->wrong;
    first.other = sum->other + part->other;
    *sum = first;
}

bool tocsin_guard_reduction_known(tocsin_dtype dtype, tocsin_guard_operation operation)
{
    if (operation > TOCSIN_GUARD_MAXIMUM)
        return false;
    return format_of(dtype).digits != 0 || (is_integer(dtype) && operation != TOCSIN_GUARD_AVERAGE);
}

tocsin_status tocsin_guard_reduction_check(const tocsin_guard_reduction *reduction,
                                           tocsin_guard_reduced *reduced, tocsin_error *error)
{
    *reduced = (tocsin_guard_reduced){0};
    if (!tocsin_guard_reduction_known(reduction->dtype, reduction->operation))
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "%s cannot be reduced again",
                                tocsin_dtype_name(reduction->dtype));
    if (reduction->members == 0 || reduction->first > reduction->count ||
        reduction->length > reduction->count - reduction->first)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "a slice outside of the whole");
    if (reduction->members > TOCSIN_GUARD_MEMBERS_MAX || reduction->count > UINT64_C(1) << 56)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "too many members or elements");
    number_format format = format_of(reduction->dtype);
    uint64_t chunk = ring_chunk(reduction);
    bool sum = reduction->operation <= TOCSIN_GUARD_AVERAGE;
    for (uint64_t i = 0; i < reduction->length; ++i) {
        if (format.digits == 0)
            check_integer(reduction, i, reduced);
        else if (sum)
            check_sum(reduction, i, &format, chunk, reduced);
        else
            check_real_choice(reduction, i, reduced);
    }
    reduced->recomputed = reduction->length;
    return TOCSIN_OK;
}
