/* lib/tensor/digest_avx2.c - the x86-64 kernel for AVX2, FMA and F16C.
 *
 * The polynomial. A weight r^e < 2^61 is split into limbs so that word * limb fits a 64-bit lane
 * many times: 3 limbs of 21, 20, 20 bits for 32-bit words (2^53 a product, at most 128 terms a
 * lane and tile), 2 limbs of 31, 30 bits for words below 2^16. Each tile uses the same table of
 * limbs and is then scaled once by its own weight. Per 8 words: 6 (4) multiplications and as many
 * additions.
 *
 * S0 without masking: sum of the 64-bit lanes is lo + 2^32 hi, sum of the shifted lanes is hi.
 *
 * Statistics follow the scalar kernel bit for bit: component k of a tile goes to lane k % 16. One
 * *step* is 16 components, whatever their size; the last step of a tile is padded with zero bits,
 * which change nothing but the number of zeros, corrected at the end. Non-finite values are masked
 * to zero (fp32 and narrower: only in tiles that have any). Squares of fp32 and narrower are exact
 * in double; wider ones are rounded once, by fma, in both kernels.
 *
 * Tiles that are not contiguous are first gathered into a buffer of one tile (2 KiB, in L1).
 * About 2/3 of the speed of digest_avx512.c, which see for fp32, bf16 and fp16.
 */
#include "tensor/tensor.h"

#if defined(__x86_64__)

#include <assert.h>
#include <cpuid.h>
#include <immintrin.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>

#include "tensor/mersenne61.h"

#define AVX2               __attribute__((target("avx2,fma,f16c")))
#define AVX2_INLINE        __attribute__((target("avx2,fma,f16c"), always_inline)) static inline

#define GROUP_WORDS        8 /* in one vector */
#define LIMBS_MAX          3
#define STEP_BYTES_MAX     128
#define LARGEST_FLOAT_BITS 0x7f7fffff

/* The running sums; 64-bit lanes except where noted. */
typedef struct vector_tally {
    __m256i sum;      /* of whole 64-bit lanes */
    __m256i high_sum; /* of their high halves */
    __m256i exclusive;
    __m256i nan;         /* 32-bit lanes within a tile, 64-bit between tiles */
    __m256i non_finite;  /* likewise */
    __m256i zero;        /* likewise */
    __m256i absmax_bits; /* unsigned 32-bit lanes: magnitudes of components up to 4 bytes */
    __m256d absmax;      /* magnitudes of 8-byte components */
    __m256d lanes[4];
} vector_tally;

/* For each group of 8 words and each limb, the limbs of the 8 words. */
typedef struct limb_table {
    alignas(32) uint32_t limbs[TOCSIN_TILE_WORDS * LIMBS_MAX];
} limb_table;

/* The large locals of a walk, once for all encodings. */
typedef struct tile_scratch {
    limb_table table;
    alignas(32) unsigned char staged[TOCSIN_TILE_WORDS * 4];
} tile_scratch;

/* ---- words --------------------------------------------------------------------------------- */

static void split_weights(limb_table *table, const uint64_t *weights, size_t count,
                          size_t limb_count)
{
    size_t padded = (count + 31) / 32 * 32;
    assert(padded <= TOCSIN_TILE_WORDS);
    for (size_t i = 0; i < padded; ++i) {
        uint64_t weight = i < count ? weights[i] : 0;
        uint32_t *slot =
            table->limbs + i / GROUP_WORDS * GROUP_WORDS * limb_count + i % GROUP_WORDS;
        if (limb_count == 2) {
            slot[0] = weight & 0x7fffffff;
            slot[GROUP_WORDS] = (uint32_t)(weight >> 31);
        } else {
            slot[0] = weight & 0x1fffff;
            slot[GROUP_WORDS] = weight >> 21 & 0xfffff;
            slot[2 * GROUP_WORDS] = (uint32_t)(weight >> 41);
        }
    }
}

AVX2_INLINE void add_words(vector_tally *tally, __m256i products[LIMBS_MAX], __m256i words,
                           const uint32_t *limbs, size_t limb_count)
{
    __m256i high = _mm256_srli_epi64(words, 32);
    tally->sum = _mm256_add_epi64(tally->sum, words);
    tally->high_sum = _mm256_add_epi64(tally->high_sum, high);
    tally->exclusive = _mm256_xor_si256(tally->exclusive, words);
#pragma GCC unroll 3 /* or gcc keeps the products in memory */
    for (size_t i = 0; i < limb_count; ++i) {
        const void *limb = limbs + i * GROUP_WORDS;
        __m256i even = _mm256_load_si256((const __m256i *)limb); /* and the odd ones above */
        __m256i odd = _mm256_srli_epi64(even, 32);
        products[i] = _mm256_add_epi64(products[i], _mm256_mul_epu32(words, even));
        products[i] = _mm256_add_epi64(products[i], _mm256_mul_epu32(high, odd));
    }
}

AVX2_INLINE uint64_t horizontal_sum(__m256i lanes)
{
    __m128i pair = _mm_add_epi64(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
    return (uint64_t)_mm_cvtsi128_si64(pair) + (uint64_t)_mm_extract_epi64(pair, 1);
}

/* The value mod p of a tile from the sums of its limb products. */
AVX2_INLINE uint64_t join_products(const __m256i products[LIMBS_MAX], size_t limb_count)
{
    m61_wide value = horizontal_sum(products[0]);
    if (limb_count == 2)
        return m61_reduce(value + ((m61_wide)horizontal_sum(products[1]) << 31));
    value += (m61_wide)horizontal_sum(products[1]) << 21;
    value += (m61_wide)horizontal_sum(products[2]) << 41;
    return m61_reduce(value);
}

/* ---- statistics: each adds 8 (or 4) components, to lanes[at] and on ------------------------- */

AVX2_INLINE void add_square(vector_tally *tally, size_t at, __m256d values)
{
    tally->lanes[at] = _mm256_fmadd_pd(values, values, tally->lanes[at]);
}

AVX2_INLINE void add_floats(vector_tally *tally, size_t at, __m256i bits, bool masked)
{
    __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    __m256i zero = _mm256_cmpeq_epi32(magnitude, _mm256_setzero_si256());
    tally->zero = _mm256_sub_epi32(tally->zero, zero);
    if (masked) {
        __m256i non_finite = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(LARGEST_FLOAT_BITS));
        __m256i nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(LARGEST_FLOAT_BITS + 1));
        tally->nan = _mm256_sub_epi32(tally->nan, nan);
        tally->non_finite = _mm256_sub_epi32(tally->non_finite, non_finite);
        magnitude = _mm256_andnot_si256(non_finite, magnitude);
    }
    tally->absmax_bits = _mm256_max_epu32(tally->absmax_bits, magnitude);
    __m256 values = _mm256_castsi256_ps(magnitude);
    add_square(tally, at, _mm256_cvtps_pd(_mm256_castps256_ps128(values)));
    add_square(tally, at + 1, _mm256_cvtps_pd(_mm256_extractf128_ps(values, 1)));
}

AVX2_INLINE void add_ints(vector_tally *tally, size_t at, __m256i values, bool is_signed)
{
    __m256i zero = _mm256_cmpeq_epi32(values, _mm256_setzero_si256());
    /* |INT32_MIN| is right as an unsigned number. */
    __m256i magnitude = is_signed ? _mm256_abs_epi32(values) : values;
    tally->zero = _mm256_sub_epi32(tally->zero, zero);
    tally->absmax_bits = _mm256_max_epu32(tally->absmax_bits, magnitude);
    /* Unsigned: shift the range to signed ones, convert exactly, shift back exactly. */
    __m256i shifted =
        is_signed ? values : _mm256_xor_si256(values, _mm256_set1_epi32((int)0x80000000));
    __m256d back = _mm256_set1_pd(is_signed ? 0.0 : 2147483648.0);
    __m256d low = _mm256_cvtepi32_pd(_mm256_castsi256_si128(shifted));
    __m256d high = _mm256_cvtepi32_pd(_mm256_extracti128_si256(shifted, 1));
    add_square(tally, at, _mm256_add_pd(low, back));
    add_square(tally, at + 1, _mm256_add_pd(high, back));
}

AVX2_INLINE void add_magnitudes(vector_tally *tally, size_t at, __m256d values)
{
    __m256d magnitude = _mm256_andnot_pd(_mm256_set1_pd(-0.0), values);
    tally->absmax = _mm256_max_pd(tally->absmax, magnitude);
    add_square(tally, at, values);
}

AVX2_INLINE void add_doubles(vector_tally *tally, size_t at, __m256i bits)
{
    const __m256i infinity = _mm256_set1_epi64x(0x7ff0000000000000);
    const __m256i largest = _mm256_set1_epi64x(0x7fefffffffffffff);
    __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi64x(INT64_MAX));
    __m256i non_finite = _mm256_cmpgt_epi64(magnitude, largest);
    __m256i zero = _mm256_cmpeq_epi64(magnitude, _mm256_setzero_si256());
    tally->nan = _mm256_sub_epi64(tally->nan, _mm256_cmpgt_epi64(magnitude, infinity));
    tally->non_finite = _mm256_sub_epi64(tally->non_finite, non_finite);
    tally->zero = _mm256_sub_epi64(tally->zero, zero);
    add_magnitudes(tally, at, _mm256_castsi256_pd(_mm256_andnot_si256(non_finite, magnitude)));
}

/* 64-bit integers to double, rounded once: the halves become exact doubles by setting the
 * exponents of 2^84 (high) and 2^52 (low); taking the offsets away again from the high one is
 * exact, and only the last addition rounds. */
AVX2_INLINE void add_longs(vector_tally *tally, size_t at, __m256i values, bool is_signed)
{
    __m256i zero = _mm256_cmpeq_epi64(values, _mm256_setzero_si256());
    tally->zero = _mm256_sub_epi64(tally->zero, zero);
    __m256i biased = is_signed ? _mm256_xor_si256(values, _mm256_set1_epi64x(INT64_MIN)) : values;
    __m256i high =
        _mm256_or_si256(_mm256_srli_epi64(biased, 32), _mm256_castpd_si256(_mm256_set1_pd(0x1p84)));
    __m256i low = _mm256_blend_epi32(biased, _mm256_castpd_si256(_mm256_set1_pd(0x1p52)), 0xaa);
    __m256d offset = _mm256_set1_pd(is_signed ? 0x1p84 + 0x1p63 + 0x1p52 : 0x1p84 + 0x1p52);
    __m256d exact = _mm256_sub_pd(_mm256_castsi256_pd(high), offset);
    add_magnitudes(tally, at, _mm256_add_pd(exact, _mm256_castsi256_pd(low)));
}

/* ---- one step of 16 components -------------------------------------------------------------- */

AVX2_INLINE __m256i load(const unsigned char *bytes)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)bytes);
}

AVX2_INLINE __m128i load_half(const unsigned char *bytes)
{
    return _mm_loadu_si128((const __m128i *)(const void *)bytes);
}

AVX2_INLINE __m256i widen_halves(__m128i halves)
{
    return _mm256_castps_si256(_mm256_cvtph_ps(halves));
}

/* 8 two-byte components. */
AVX2_INLINE void add_shorts(vector_tally *tally, size_t at, __m128i raw, __m256i words,
                            tocsin_encoding encoding, bool masked)
{
    if (encoding == TOCSIN_ENCODING_F16)
        add_floats(tally, at, widen_halves(raw), masked);
    else if (encoding == TOCSIN_ENCODING_BF16)
        add_floats(tally, at, _mm256_slli_epi32(words, 16), masked);
    else if (encoding == TOCSIN_ENCODING_I16)
        add_ints(tally, at, _mm256_cvtepi16_epi32(raw), true);
    else
        add_ints(tally, at, words, false);
}

AVX2_INLINE void add_wide(vector_tally *tally, size_t vector, __m256i bits,
                          tocsin_encoding encoding, bool masked)
{
    if (encoding == TOCSIN_ENCODING_F32)
        add_floats(tally, vector * 2, bits, masked);
    else if (encoding == TOCSIN_ENCODING_I32 || encoding == TOCSIN_ENCODING_U32)
        add_ints(tally, vector * 2, bits, encoding == TOCSIN_ENCODING_I32);
    else if (encoding == TOCSIN_ENCODING_F64)
        add_doubles(tally, vector, bits);
    else
        add_longs(tally, vector, bits, encoding == TOCSIN_ENCODING_I64);
}

AVX2_INLINE void add_step(vector_tally *tally, __m256i products[LIMBS_MAX],
                          const unsigned char *bytes, const uint32_t *limbs,
                          tocsin_encoding encoding, size_t step_bytes, bool masked)
{
    if (encoding == TOCSIN_ENCODING_BYTE) {
#pragma GCC unroll 2
        for (size_t i = 0; i < 2; ++i) {
            __m128i raw = _mm_loadl_epi64((const __m128i *)(const void *)(bytes + i * 8));
            add_words(tally, products, _mm256_cvtepu8_epi32(raw), limbs + i * 16, 2);
        }
    } else if (encoding <= TOCSIN_ENCODING_BF16) {
#pragma GCC unroll 2
        for (size_t i = 0; i < 2; ++i) {
            __m128i raw = load_half(bytes + i * 16);
            __m256i words = _mm256_cvtepu16_epi32(raw);
            add_words(tally, products, words, limbs + i * 16, 2);
            add_shorts(tally, i * 2, raw, words, encoding, masked);
        }
    } else if (encoding == TOCSIN_ENCODING_F16_PAIR) {
        add_words(tally, products, load(bytes), limbs, 3);
        add_floats(tally, 0, widen_halves(load_half(bytes)), masked);
        add_floats(tally, 2, widen_halves(load_half(bytes + 16)), masked);
    } else {
#pragma GCC unroll 4
        for (size_t i = 0; i < step_bytes / 32; ++i) {
            __m256i words = load(bytes + i * 32);
            add_words(tally, products, words, limbs + i * 24, 3);
            add_wide(tally, i, words, encoding, masked);
        }
    }
}

/* ---- one tile ------------------------------------------------------------------------------- */

AVX2_INLINE __m256i widen_counts(__m256i counts)
{
    __m256i low = _mm256_and_si256(counts, _mm256_set1_epi64x(0xffffffff));
    return _mm256_add_epi64(low, _mm256_srli_epi64(counts, 32));
}

/* Floats up to 4 bytes are first added as if all were finite. The largest magnitude then tells
 * whether that was true; if not, the tile is added with the others masked out. */
AVX2_INLINE bool is_finite(const vector_tally *tally)
{
    __m256i largest = _mm256_set1_epi32(LARGEST_FLOAT_BITS);
    __m256i above = _mm256_cmpgt_epi32(tally->absmax_bits, largest);
    return _mm256_testz_si256(above, above);
}

/* Add the rows of a tile and set `*value` to the polynomial of the tile before its own weight.
 * Without `masked` all floats are taken for finite; returns false, with nothing added, when
 * they are not. */
AVX2_INLINE bool add_tile(vector_tally *total, const tocsin_tile_rows *rows, const uint32_t *limbs,
                          tocsin_encoding encoding, size_t step_bytes, size_t limb_count,
                          bool masked, uint64_t *value)
{
    const size_t word_bytes = encoding <= TOCSIN_ENCODING_BF16 ? step_bytes / TOCSIN_LANES : 4;
    const size_t step_limbs = step_bytes / word_bytes * limb_count;
    vector_tally tally = *total;
    __m256i products[LIMBS_MAX];
#pragma GCC unroll 3
    for (size_t i = 0; i < LIMBS_MAX; ++i)
        products[i] = _mm256_setzero_si256();
    tally.nan = tally.non_finite = tally.zero = _mm256_setzero_si256();

    for (size_t i = 0; i < rows->row_count; ++i) {
        const unsigned char *bytes = rows->base + rows->offsets[i * rows->pitch];
        const unsigned char *end = bytes + rows->row_bytes / step_bytes * step_bytes;
        for (; bytes < end; bytes += step_bytes, limbs += step_limbs)
            add_step(&tally, products, bytes, limbs, encoding, step_bytes, masked);
    }
    if (rows->row_bytes % step_bytes > 0) { /* then there is one row */
        size_t rest = rows->row_bytes % step_bytes;
        alignas(32) unsigned char padded[STEP_BYTES_MAX] = {0};
        memcpy(padded, rows->base + rows->row_bytes - rest, rest);
        add_step(&tally, products, padded, limbs, encoding, step_bytes, masked);
    }
    if (!masked && !is_finite(&tally))
        return false;
    tally.nan = _mm256_add_epi64(total->nan, widen_counts(tally.nan));
    tally.non_finite = _mm256_add_epi64(total->non_finite, widen_counts(tally.non_finite));
    tally.zero = _mm256_add_epi64(total->zero, widen_counts(tally.zero));
    *total = tally;
    *value = join_products(products, limb_count);
    return true;
}

/* X(encoding, bytes of a step, limbs, is_hopeful) */
#define WALK_TABLE(X)                                                                              \
    X(BYTE, 16, 2, false)                                                                          \
    X(I16, 32, 2, false)                                                                           \
    X(U16, 32, 2, false)                                                                           \
    X(F16, 32, 2, true)                                                                            \
    X(BF16, 32, 2, true)                                                                           \
    X(I32, 64, 3, false)                                                                           \
    X(U32, 64, 3, false)                                                                           \
    X(F32, 64, 3, true)                                                                            \
    X(F16_PAIR, 32, 3, true)                                                                       \
    X(I64, 128, 3, false)                                                                          \
    X(U64, 128, 3, false)                                                                          \
    X(F64, 128, 3, false)

/* ---- all tiles ------------------------------------------------------------------------------ */

/* Two bytes at a time from two histograms, so that equal neighbours do not wait for each other's
 * store. */
static void count_rows(tocsin_tally *tally, const tocsin_tile_rows *rows)
{
    uint64_t odd[256] = {0};
    for (size_t i = 0; i < rows->row_count; ++i) {
        const unsigned char *bytes = rows->base + rows->offsets[i * rows->pitch];
        size_t k = 0;
        for (; k + 2 <= rows->row_bytes; k += 2) {
            ++tally->histogram[bytes[k]];
            ++odd[bytes[k + 1]];
        }
        if (k < rows->row_bytes)
            ++tally->histogram[bytes[k]];
    }
    for (size_t value = 0; value < 256; ++value)
        tally->histogram[value] += odd[value];
}

AVX2_INLINE void vector_tally_store(const vector_tally *from, tocsin_tally *to,
                                    tocsin_encoding encoding, uint64_t padding)
{
    uint64_t high = horizontal_sum(from->high_sum);
    uint64_t low = horizontal_sum(from->sum) - (high << 32);
    alignas(32) uint32_t words[GROUP_WORDS];
    alignas(32) double values[4];
    to->sum = low + high;
    _mm256_store_si256((__m256i *)(void *)words, from->exclusive);
    for (size_t i = 0; i < GROUP_WORDS; ++i)
        to->exclusive ^= words[i];
    to->nan_count = horizontal_sum(from->nan);
    to->inf_count = horizontal_sum(from->non_finite) - to->nan_count;
    if (encoding != TOCSIN_ENCODING_BYTE)
        to->zero_count = horizontal_sum(from->zero) - padding;

    bool is_float = encoding == TOCSIN_ENCODING_F32 || encoding == TOCSIN_ENCODING_F16 ||
                    encoding == TOCSIN_ENCODING_BF16 || encoding == TOCSIN_ENCODING_F16_PAIR;
    _mm256_store_si256((__m256i *)(void *)words, from->absmax_bits);
    for (size_t i = 0; i < GROUP_WORDS; ++i) {
        float single;
        memcpy(&single, &words[i], sizeof single);
        double magnitude = is_float ? (double)single : (double)words[i];
        to->absmax = magnitude > to->absmax ? magnitude : to->absmax;
    }
    _mm256_store_pd(values, from->absmax);
    for (size_t i = 0; i < 4; ++i)
        to->absmax = values[i] > to->absmax ? values[i] : to->absmax;
    for (size_t i = 0; i < 4; ++i)
        _mm256_storeu_pd(to->lanes + i * 4, from->lanes[i]);
}

/* The tally is a local variable, so that it stays in registers or is spilled in whole vectors.
 * `is_hopeful`: floats that may be taken for finite at first. */
AVX2_INLINE void add_walk(tocsin_walk *walk, tocsin_tally *tally, tile_scratch *scratch,
                          tocsin_encoding encoding, size_t step_bytes, size_t limb_count,
                          bool is_hopeful)
{
    const size_t component_bytes = step_bytes / TOCSIN_LANES;
    split_weights(&scratch->table, walk->weights,
                  walk->tile_element_count * walk->layout->words_per_element, limb_count);
    vector_tally total = {0};
    uint64_t padding = 0;
    tocsin_tile tile;
    while (tocsin_walk_next(walk, &tile)) {
        tocsin_tile_rows rows = tocsin_tile_rows_of(walk, &tile, step_bytes, scratch->staged);
        uint64_t value;
        if (!is_hopeful || !add_tile(&total, &rows, scratch->table.limbs, encoding, step_bytes,
                                     limb_count, false, &value))
            (void)add_tile(&total, &rows, scratch->table.limbs, encoding, step_bytes, limb_count,
                           true, &value);
        tally->polynomial = m61_add(tally->polynomial, m61_mul(value, tile.weight));
        padding += (step_bytes - rows.row_bytes % step_bytes) % step_bytes / component_bytes;
        if (encoding == TOCSIN_ENCODING_BYTE)
            count_rows(tally, &rows);
    }
    vector_tally_store(&total, tally, encoding, padding);
}

AVX2 void tocsin_digest_walk_avx2(tocsin_walk *walk, tocsin_tally *tally)
{
    tile_scratch scratch;
    switch ((tocsin_encoding)walk->layout->encoding) {
#define X(name, step_bytes, limb_count, is_hopeful)                                                \
    case TOCSIN_ENCODING_##name:                                                                   \
        add_walk(walk, tally, &scratch, TOCSIN_ENCODING_##name, step_bytes, limb_count,            \
                 is_hopeful);                                                                      \
        break;
        WALK_TABLE(X)
#undef X
    }
}

bool tocsin_digest_avx2_is_supported(void)
{
    enum { UNKNOWN, NO, YES };
    static atomic_int known = UNKNOWN; /* CPUID traps in virtual machines: ask once */
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == UNKNOWN) {
        unsigned a, b, c = 0, d;
        bool has_f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
        answer =
            has_f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? YES : NO;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == YES;
}

#else

#include <assert.h>

bool tocsin_digest_avx2_is_supported(void)
{
    return false;
}

void tocsin_digest_walk_avx2(tocsin_walk *walk, tocsin_tally *tally)
{
    assert(false && "not on this architecture");
    tocsin_digest_walk_scalar(walk, tally);
}

#endif
