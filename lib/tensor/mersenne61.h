/* lib/tensor/mersenne61.h - arithmetic in F_p, p = 2^61 - 1, and the base r of the digest.
 *
 * Residues are kept canonical, in [0, p). Reduction uses 2^61 = 1 (mod p): fold the high part onto
 * the low part. p is prime and r = 37 is a primitive root, so that r^0 ... r^(p-2) are distinct;
 * Theorem B rests on this.
 */
#ifndef TOCSIN_LIB_TENSOR_MERSENNE61_H
#define TOCSIN_LIB_TENSOR_MERSENNE61_H

#include <stdint.h>

#define M61_PRIME ((UINT64_C(1) << 61) - 1)
#define M61_BASE  UINT64_C(37)

__extension__ typedef unsigned __int128 m61_wide;

/* The GPU kernel (cuda/digest_kernel.cu) is compiled from the same functions. */
#if defined(__CUDACC__)
#define TOCSIN_HOST_DEVICE __host__ __device__
#else
#define TOCSIN_HOST_DEVICE
#endif

/* x mod p for x < 2^124: the first fold is below 2^63 + 2^61, the second at most p + 4. */
TOCSIN_HOST_DEVICE static inline uint64_t m61_reduce(m61_wide x)
{
    uint64_t folded = ((uint64_t)x & M61_PRIME) + (uint64_t)(x >> 61);
    folded = (folded & M61_PRIME) + (folded >> 61);
    return folded >= M61_PRIME ? folded - M61_PRIME : folded;
}

TOCSIN_HOST_DEVICE static inline uint64_t m61_add(uint64_t a, uint64_t b)
{
    uint64_t sum = a + b;
    return sum >= M61_PRIME ? sum - M61_PRIME : sum;
}

TOCSIN_HOST_DEVICE static inline uint64_t m61_mul(uint64_t a, uint64_t b)
{
    return m61_reduce((m61_wide)a * b);
}

TOCSIN_HOST_DEVICE static inline uint64_t m61_pow(uint64_t base, uint64_t exponent)
{
    uint64_t power = 1;
    for (; exponent; exponent >>= 1) {
        if (exponent & 1)
            power = m61_mul(power, base);
        base = m61_mul(base, base);
    }
    return power;
}

#endif
