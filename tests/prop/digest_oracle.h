/* tests/prop/digest_oracle.h - the digest by its definition alone, for the tests.
 *
 * Logical elements in row-major order, powers by repeated multiplication, residues by `%`: nothing
 * is shared with lib/tensor. Also the random generator of the property tests (splitmix64).
 */
#ifndef TOCSIN_TESTS_DIGEST_ORACLE_H
#define TOCSIN_TESTS_DIGEST_ORACLE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <tocsin/tensor.h>

#define ORACLE_PRIME ((UINT64_C(1) << 61) - 1)

__extension__ typedef unsigned __int128 oracle_wide;

static inline uint64_t oracle_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline uint64_t oracle_below(uint64_t *state, uint64_t limit)
{
    return oracle_random(state) % limit;
}

static inline uint64_t oracle_mul(uint64_t a, uint64_t b)
{
    return (uint64_t)((oracle_wide)a * b % ORACLE_PRIME);
}

static inline uint64_t oracle_pow(uint64_t exponent)
{
    uint64_t power = 1;
    uint64_t base = 37;
    for (; exponent; exponent /= 2) {
        if (exponent % 2)
            power = oracle_mul(power, base);
        base = oracle_mul(base, base);
    }
    return power;
}

static inline size_t oracle_words_per_element(tocsin_dtype dtype)
{
    size_t bytes = tocsin_dtype_bytes(dtype);
    return bytes <= 4 ? 1 : bytes / 4;
}

/* Is the view's memory extent contiguous when strides is NULL: its strides, in elements. */
static inline void oracle_strides(const tocsin_tensor_view *view, int64_t *strides)
{
    int64_t stride = 1;
    for (uint32_t d = view->ndim; d-- > 0;) {
        strides[d] = view->strides ? view->strides[d] : stride;
        stride *= view->shape[d];
    }
}

static inline tocsin_digest oracle_digest(const tocsin_tensor_view *view)
{
    tocsin_digest digest = {0};
    const size_t bytes = tocsin_dtype_bytes(view->dtype);
    const size_t words = oracle_words_per_element(view->dtype);
    const int64_t *whole = view->global_shape ? view->global_shape : view->shape;
    int64_t strides[TOCSIN_NDIM_MAX];
    int64_t index[TOCSIN_NDIM_MAX] = {0};
    oracle_strides(view, strides);
    for (uint32_t d = 0; d < view->ndim; ++d) {
        if (view->shape[d] == 0)
            return digest;
    }
    for (;;) {
        int64_t element = 0;
        uint64_t position = 0;
        for (uint32_t d = 0; d < view->ndim; ++d) {
            element += index[d] * strides[d];
            position = position * (uint64_t)whole[d] +
                       (uint64_t)(index[d] + (view->offset ? view->offset[d] : 0));
        }
        unsigned char raw[16] = {0};
        memcpy(raw, (const unsigned char *)view->data + element * (int64_t)bytes, bytes);
        for (size_t w = 0; w < words; ++w) {
            uint32_t word;
            memcpy(&word, raw + w * 4, 4);
            digest.sum += word;
            digest.exclusive ^= word;
            uint64_t term = oracle_mul(word, oracle_pow(position * words + w));
            digest.polynomial = (digest.polynomial + term) % ORACLE_PRIME;
        }
        uint32_t d = view->ndim;
        while (d > 0 && ++index[d - 1] == view->shape[d - 1])
            index[--d] = 0;
        if (d == 0)
            return digest;
    }
}

static inline bool oracle_same_digest(tocsin_digest a, tocsin_digest b)
{
    return a.sum == b.sum && a.exclusive == b.exclusive && a.polynomial == b.polynomial;
}

/* Bit for bit. */
static inline bool oracle_same_statistics(tocsin_statistics a, tocsin_statistics b)
{
    return a.nan_count == b.nan_count && a.inf_count == b.inf_count &&
           a.zero_count == b.zero_count && memcmp(&a.absmax, &b.absmax, sizeof a.absmax) == 0 &&
           memcmp(&a.sum_squares, &b.sum_squares, sizeof a.sum_squares) == 0;
}

/* Same counts and maximum; sums that differ at most by the order of additions. */
static inline bool oracle_close_statistics(tocsin_statistics a, tocsin_statistics b)
{
    double difference = fabs(a.sum_squares - b.sum_squares);
    bool is_close = a.sum_squares == b.sum_squares ||
                    difference <= 1e-12 * fmax(fabs(a.sum_squares), fabs(b.sum_squares));
    a.sum_squares = b.sum_squares = 0;
    return is_close && oracle_same_statistics(a, b);
}

#endif
