/* tocsin/tensor.h - a tensor as memory, and its digest and statistics in one pass.
 *
 * The digest is an algebra, not a hash: S0 = sum of words mod 2^64, X = xor of words,
 * P = sum of word * r^e(word) over F_p, p = 2^61 - 1, r = 37, where e is the word's index in the
 * *global logical* tensor (contiguous strides of the global shape). It does not depend on memory
 * layout, thread count or block order, any change of one or two words changes (S0, P) for sure
 * (Theorems A and B), and the digests of shards add up to the digest of the whole.
 * Maths: docs/digest.md.
 *
 * Words: one 32-bit word per element for dtypes of 1, 2 or 4 bytes (zero-extended), two words
 * (low, high: an innermost axis of length 2) for 8 bytes, four for 16 bytes.
 *
 * Threads: all functions are pure; they read the tensor's memory and write only their outputs.
 * Memory: nothing is allocated.
 */
#ifndef TOCSIN_TENSOR_H
#define TOCSIN_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tocsin/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TOCSIN_NDIM_MAX 64

/* X(number, NAME, "name as PyTorch prints it", bytes). Numbers are stable: they stand in files. */
#define TOCSIN_DTYPE_TABLE(X)                           \
    X(0, NONE, "none", 0)                               \
    X(1, BOOL, "bool", 1)                               \
    X(2, UINT8, "uint8", 1)                             \
    X(3, INT8, "int8", 1)                               \
    X(4, INT16, "int16", 2)                             \
    X(5, INT32, "int32", 4)                             \
    X(6, INT64, "int64", 8)                             \
    X(7, UINT16, "uint16", 2)                           \
    X(8, UINT32, "uint32", 4)                           \
    X(9, UINT64, "uint64", 8)                           \
    X(10, FLOAT16, "float16", 2)                        \
    X(11, BFLOAT16, "bfloat16", 2)                      \
    X(12, FLOAT32, "float32", 4)                        \
    X(13, FLOAT64, "float64", 8)                        \
    X(14, COMPLEX32, "complex32", 4)                    \
    X(15, COMPLEX64, "complex64", 8)                    \
    X(16, COMPLEX128, "complex128", 16)                 \
    X(17, FLOAT8_E4M3FN, "float8_e4m3fn", 1)            \
    X(18, FLOAT8_E5M2, "float8_e5m2", 1)                \
    X(19, FLOAT8_E4M3FNUZ, "float8_e4m3fnuz", 1)        \
    X(20, FLOAT8_E5M2FNUZ, "float8_e5m2fnuz", 1)        \
    X(21, FLOAT8_E8M0FNU, "float8_e8m0fnu", 1)

typedef enum tocsin_dtype {
#define X(number, name, text, bytes) TOCSIN_DTYPE_##name = number,
    TOCSIN_DTYPE_TABLE(X)
#undef X
} tocsin_dtype;

/* "float32" or "unknown"; never NULL. */
TOCSIN_API const char *tocsin_dtype_name(tocsin_dtype dtype);
/* Bytes of one element; 0 for NONE and unknown numbers. */
TOCSIN_API size_t tocsin_dtype_bytes(tocsin_dtype dtype);
/* The dtype that PyTorch calls `name` (without "torch."), or TOCSIN_DTYPE_NONE. */
TOCSIN_API tocsin_dtype tocsin_dtype_from_name(const char *name);

/* A borrowed view of a (shard of a) tensor.
 *   data            first element; may be NULL only when the tensor has no element
 *   shape, strides  `ndim` entries each, strides in elements (0, negative and overlapping ones
 *                   allowed); strides NULL means contiguous (row-major)
 *   global_shape    shape of the whole tensor of which this is a shard; NULL: this is the whole
 *   offset          per-axis position of this shard in the whole; NULL: all zero */
typedef struct tocsin_tensor_view {
    const void *data;
    tocsin_dtype dtype;
    uint32_t ndim;
    const int64_t *shape;
    const int64_t *strides;
    const int64_t *global_shape;
    const int64_t *offset;
} tocsin_tensor_view;

/* The digest of the words. Equal tensors (same bits, dtype width and logical order) have equal
 * digests, whatever their memory layout. */
typedef struct tocsin_digest {
    uint64_t sum;        /* S0, mod 2^64 */
    uint64_t exclusive;  /* X: xor of all words, zero-extended to 64 bits */
    uint64_t polynomial; /* P, in [0, 2^61 - 1) */
} tocsin_digest;

/* Facts about the values; complex numbers count per component. Integers and bool have no NaN and
 * no Inf; their absmax and sum of squares are computed in double. fp8 variants are decoded.
 * Non-finite values are left out of absmax and sum_squares. */
typedef struct tocsin_statistics {
    uint64_t nan_count;
    uint64_t inf_count;
    uint64_t zero_count; /* +0 and -0 */
    double absmax;
    double sum_squares; /* see below */
} tocsin_statistics;

/* The order of additions in sum_squares is fixed by dtype, shapes, strides and offset, so every
 * kernel gives the same bits: the tensor is walked in memory order in tiles of at most 768 words
 * (cut as docs/digest.md says); component k of a tile is added, by a fused multiply-add in double,
 * to lane k mod 16; the lanes are added up at the end, i to i + 8, to i + 4, to i + 2, to i + 1.
 * 1-byte dtypes: count * value^2 over the bit patterns, ascending. Axes of stride 0 multiply the
 * result. Other layouts or shards of the same values may differ in the last bits; all other fields
 * may not. */

/* Digest and statistics in one pass over memory; either output may be NULL. Uses the fastest kernel
 * this CPU has; the result is bit-equal to the scalar one. The floating point environment of the
 * thread (flush to zero, rounding, flags) neither matters nor changes. About 45 KiB of stack.
 * Errors: E_ARGUMENT (unknown dtype, ndim > TOCSIN_NDIM_MAX, negative size, NULL data with
 * elements, shard outside the whole), E_LIMIT (more than 2^60 words in the whole, strides that span
 * more than 2^61 bytes). */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_tensor_digest(const tocsin_tensor_view *view,
                                                                tocsin_digest *digest,
                                                                tocsin_statistics *statistics,
                                                                tocsin_error *error);

/* The same, by the scalar reference alone: the oracle of the fast kernels. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_tensor_digest_scalar(
    const tocsin_tensor_view *view, tocsin_digest *digest, tocsin_statistics *statistics,
    tocsin_error *error);

/* The digest of the union of two disjoint shards of the same whole, both digested with their
 * global_shape and offset. Associative and commutative. */
TOCSIN_API tocsin_digest tocsin_digest_merge(tocsin_digest a, tocsin_digest b);

/* The digest of the same words moved by `words` in the whole's logical order (P * r^words). */
TOCSIN_API tocsin_digest tocsin_digest_shift(tocsin_digest digest, uint64_t words);

/* One word that changed: its index in the whole's logical order (several words an element: see
 * above), the change of its value as an unsigned number, and the bits that were set and cleared. */
typedef struct tocsin_word_change {
    uint64_t word;
    int64_t delta;
    uint32_t set;
    uint32_t cleared;
} tocsin_word_change;

/* Where two tensors of the same shape and dtype differ, from their digests alone, if they differ in
 * exactly one word. `word_count`: of the whole. false: in none or in several, or a damaged digest,
 * whose polynomial is out of range. A larger difference passes for one word with a chance of about
 * word_count / 2^61, and only if its sum and xor could be those of one word. About 10 us. */
TOCSIN_API bool tocsin_digest_locate(tocsin_digest before, tocsin_digest after, uint64_t word_count,
                                     tocsin_word_change *change);

/* Statistics of the union of two disjoint sets of elements. */
TOCSIN_API tocsin_statistics tocsin_statistics_merge(tocsin_statistics a, tocsin_statistics b);

/* Name of the kernel in use: "scalar", "avx2" or "avx512". */
TOCSIN_API const char *tocsin_tensor_kernel(void);

#ifdef __cplusplus
}
#endif
#endif
