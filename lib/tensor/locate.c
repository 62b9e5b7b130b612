/* lib/tensor/locate.c - which word changed, from two digests alone.
 *
 * If one word changed by d at exponent e, then S0 changed by d, X by the flipped bits and P by
 * d * r^e. So r^e = dP / d, and e is its discrete logarithm to the base r. The group has order
 * p - 1 = 2 * 3^2 * 5^2 * 7 * 11 * 13 * 31 * 41 * 61 * 151 * 331 * 1321, all of whose prime powers
 * are small: Pohlig and Hellman (IEEE Trans. Inf. Theory 24, 1978) find e modulo each of them by
 * counting up, and Garner's mixed radix joins the residues.
 *
 * Invariant: what is reported explains all three differences.
 * Cost: twelve exponentiations and at most 2000 multiplications mod p, about 10 microseconds.
 */
#include <assert.h>
#include <stdbool.h>

#include "tensor/mersenne61.h"
#include "tensor/tensor.h"

static const uint16_t orders[] = {2, 9, 25, 7, 11, 13, 31, 41, 61, 151, 331, 1321};
#define ORDER_COUNT (sizeof orders / sizeof *orders)

static uint64_t m61_inverse(uint64_t value)
{
    assert(value != 0);
    return m61_pow(value, M61_PRIME - 2);
}

/* The exponent of `power` modulo `order`, a divisor of p - 1. */
static uint64_t logarithm_modulo(uint64_t power, uint64_t order)
{
    uint64_t cofactor = (M61_PRIME - 1) / order;
    uint64_t base = m61_pow(M61_BASE, cofactor);
    uint64_t target = m61_pow(power, cofactor);
    uint64_t reached = 1;
    uint64_t exponent = 0;
    while (reached != target && exponent < order) {
        reached = m61_mul(reached, base);
        ++exponent;
    }
    assert(exponent < order); /* r is a primitive root */
    return exponent;
}

static uint64_t inverse_modulo(uint64_t value, uint64_t modulus)
{
    for (uint64_t candidate = 1; candidate < modulus; ++candidate) {
        if (value % modulus * candidate % modulus == 1)
            return candidate;
    }
    assert(false && "the orders are coprime");
    return 0;
}

/* e with r^e = power, for power != 0. */
static uint64_t logarithm(uint64_t power)
{
    uint64_t exponent = 0;
    uint64_t modulus = 1; /* exponent is known modulo this */
    for (size_t i = 0; i < ORDER_COUNT; ++i) {
        uint64_t order = orders[i];
        uint64_t residue = logarithm_modulo(power, order);
        uint64_t missing = (residue + order - exponent % order) % order;
        exponent += modulus * (missing * inverse_modulo(modulus, order) % order);
        modulus *= order;
    }
    assert(modulus == M61_PRIME - 1);
    return exponent;
}

/* Can a word change by `delta` when exactly the bits `flipped` flip? A bit that is set adds its
 * value, one that is cleared takes it away: delta = flipped - 2 * cleared. */
static bool split_flips(int64_t delta, uint32_t flipped, uint32_t *cleared)
{
    int64_t twice = (int64_t)flipped - delta;
    if (twice < 0 || twice % 2 != 0 || twice / 2 > UINT32_MAX)
        return false;
    *cleared = (uint32_t)(twice / 2);
    return (*cleared & ~flipped) == 0;
}

bool tocsin_digest_locate(tocsin_digest before, tocsin_digest after, uint64_t word_count,
                          tocsin_word_change *change)
{
    int64_t delta = (int64_t)(after.sum - before.sum);
    uint64_t flipped = before.exclusive ^ after.exclusive;
    uint32_t cleared;
    if (before.polynomial >= M61_PRIME || after.polynomial >= M61_PRIME)
        return false; /* from a damaged message or trace */
    if (delta == 0 || delta > UINT32_MAX || delta < -(int64_t)UINT32_MAX || flipped > UINT32_MAX)
        return false;
    if (!split_flips(delta, (uint32_t)flipped, &cleared))
        return false;
    uint64_t difference = m61_add(after.polynomial, M61_PRIME - before.polynomial);
    uint64_t step = delta > 0 ? (uint64_t)delta : M61_PRIME - (uint64_t)-delta;
    if (difference == 0)
        return false;
    uint64_t word = logarithm(m61_mul(difference, m61_inverse(step)));
    if (word >= word_count)
        return false;
    *change = (tocsin_word_change){
        .word = word, .delta = delta, .set = (uint32_t)flipped & ~cleared, .cleared = cleared};
    return true;
}
