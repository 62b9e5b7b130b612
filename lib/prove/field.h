/* prove/field.h - real arithmetic with exp, modelled in finite fields.
 *
 * Two expressions that are equal over the reals by the laws of fields and of exp are equal here at
 * every point; two that differ are equal at a random point with probability about degree / p
 * (Schwartz and Zippel). So one evaluation with random inputs decides, with a known error.
 *
 *   p = 2 q + 1 is a safe prime, and q is prime. An element is the pair (x mod p, x mod q).
 *   exp x = g^(x mod q) mod p, g of order q: exp(a + b) = exp(a) exp(b), because exponents of g
 *     count mod q. What exp makes has no residue mod q of its own: a random one stands in, which
 *     keeps exp a function, but a second exp on top no longer sees the laws of the first.
 *   sqrt x = x^((p + 1) / 4): its square is x for the half of all x that are squares; for the
 *     others it is -x, and the caller is told.
 *   Any other function is a *random oracle*: equal arguments, equal random values.
 *   The order is a random total order that is the true one on small integers: maxima are
 *     associative, commutative and idempotent, comparisons of indices are what they should be.
 *   Infinities are elements of their own; so is *undefined* (x / 0, inf - inf), which spreads.
 *
 * Source: Schwartz-Zippel with exp through two primes: Mirage (OSDI'25), there with p = 167; the
 * 61-bit safe prime is ours. Cost: a product 2 ns, inverse, sqrt and exp about 0.2 us.
 */
#ifndef TOCSIN_PROVE_FIELD_H
#define TOCSIN_PROVE_FIELD_H

#include "base/base.h"

#define TOCSIN_FIELD_P UINT64_C(2305843009213691579) /* 2^61 - 2373 */
#define TOCSIN_FIELD_Q UINT64_C(1152921504606845789) /* 2^60 - 1187, (p - 1) / 2 */

/* p >= TOCSIN_FIELD_P: one of the specials below, and q means nothing. */
typedef struct tocsin_element {
    uint64_t p, q;
} tocsin_element;

#define TOCSIN_ELEMENT_UNDEFINED ((tocsin_element){UINT64_MAX - 2, 0})
#define TOCSIN_ELEMENT_POSITIVE  ((tocsin_element){UINT64_MAX, 0}) /* infinity */
#define TOCSIN_ELEMENT_NEGATIVE  ((tocsin_element){UINT64_MAX - 1, 0})

/* One random model: the oracles and g follow from the seed. */
typedef struct tocsin_field {
    uint64_t seed;
    uint64_t exp_base; /* g */
} tocsin_field;

tocsin_field tocsin_field_new(uint64_t seed);

static inline bool tocsin_element_is_undefined(tocsin_element a)
{
    return a.p == UINT64_MAX - 2;
}
static inline bool tocsin_element_is_finite(tocsin_element a)
{
    return a.p < TOCSIN_FIELD_P;
}
/* The same real number. */
static inline bool tocsin_element_equal(tocsin_element a, tocsin_element b)
{
    return a.p == b.p && a.p != UINT64_MAX - 2;
}

tocsin_element tocsin_element_of_integer(int64_t value);
/* Exact for a fraction with denominator < 2^20 within an ulp, and for integers; any other finite
 * constant is an unknown of its own (of the same size with either sign). */
tocsin_element tocsin_element_of_real(const tocsin_field *field, double value);
/* Is it an integer below 2^40 in size? */
bool tocsin_element_is_integer(tocsin_element a, int64_t *value);

tocsin_element tocsin_element_add(tocsin_element a, tocsin_element b);
tocsin_element tocsin_element_subtract(tocsin_element a, tocsin_element b);
tocsin_element tocsin_element_negate(tocsin_element a);
tocsin_element tocsin_element_multiply(tocsin_element a, tocsin_element b);
tocsin_element tocsin_element_inverse(tocsin_element a); /* undefined for 0; 0 for infinities */
tocsin_element tocsin_element_power(tocsin_element a, int64_t exponent);
tocsin_element tocsin_element_exp(const tocsin_field *field, tocsin_element a);
/* `*exact` becomes false when a is no square. */
tocsin_element tocsin_element_sqrt(const tocsin_field *field, tocsin_element a, bool *exact);

/* -1, 0, 1 in the random order; infinities are its ends. Not for undefined ones. `*chosen` becomes
 * true when the answer is a random choice (not equal, not integers, not infinite). */
int tocsin_element_compare(const tocsin_field *field, tocsin_element a, tocsin_element b,
                           bool *chosen);

/* ---- oracles --------------------------------------------------------------------------------- */

/* The hash of a sequence, of 64 bits: begin with a key, absorb words. */
static inline uint64_t tocsin_oracle_begin(const tocsin_field *field, uint64_t key)
{
    return tocsin_mix64(field->seed ^ tocsin_mix64(key + UINT64_C(0x9e3779b97f4a7c15)));
}
static inline uint64_t tocsin_oracle_absorb(uint64_t state, uint64_t word)
{
    return tocsin_mix64(state * UINT64_C(0xd6e8feb86659fd93) + tocsin_mix64(word ^ state));
}
/* A random element that is a function of the state. */
tocsin_element tocsin_oracle_value(uint64_t state);
/* f(a) for the function `key`; undefined for undefined. */
tocsin_element tocsin_oracle_of(const tocsin_field *field, uint64_t key, tocsin_element a);

#endif
