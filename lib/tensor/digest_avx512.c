/* lib/tensor/digest_avx512.c - the x86-64 kernel for AVX-512 with IFMA: fp32, bf16, fp16.
 *
 * These are the dtypes of parameters and gradients; the others go to digest_avx2.c, whose comments
 * on steps, tiles and statistics hold here too. One step is 16 components: one vector.
 *
 * The polynomial. vpmadd52 multiplies 52-bit numbers and adds the low or the high 52 bits of the
 * product to a 64-bit lane. A weight is split at bit 52: word * low52 gives a low and a high part,
 * and word * top9 (41 bits) has the same scale as the high part: three instructions for 8 words.
 * For words below 2^16 a split at bit 36 keeps both products within 52 bits: two instructions.
 * Sums of at most 32 terms a lane and tile stay below 2^58.
 *
 * Zeros are what is neither non-zero nor non-finite: no correction for the padding of a last step.
 */
#include "tensor/tensor.h"

#if defined(__x86_64__)

#include <assert.h>
#include <immintrin.h>
#include <stdalign.h>
#include <string.h>

#include "tensor/mersenne61.h"

#define AVX512 __attribute__((target("avx2,fma,f16c,avx512f,avx512dq,avx512ifma")))
#define AVX512_INLINE                                                                              \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512dq,avx512ifma"),                            \
                   always_inline)) static inline

#define STEP_WORDS     16
#define STEP_LIMBS     (STEP_WORDS * 2)
#define WIDE_SPLIT     52
#define NARROW_SPLIT   36
#define CLASS_NAN      0x81 /* quiet, signalling */
#define CLASS_INFINITY 0x18 /* positive, negative */

typedef struct vector_tally {
    __m512i even_sum; /* of the words, 64-bit lanes */
    __m512i odd_sum;
    __m512i exclusive;
    __m512i nonzero; /* 64-bit lanes between tiles, 32-bit lanes within */
    __m512 absmax;
    __m512d lanes[2];
    uint64_t nan_count;
    uint64_t inf_count;
} vector_tally;

/* Per step, 8 each: low limbs of the even words, top limbs of the even words, both of the odd. */
typedef struct limb_table {
    alignas(64) uint64_t limbs[TOCSIN_TILE_WORDS * 2];
} limb_table;

static void split_weights(limb_table *table, const uint64_t *weights, size_t count, unsigned split)
{
    size_t padded = (count + STEP_WORDS - 1) / STEP_WORDS * STEP_WORDS;
    assert(padded <= TOCSIN_TILE_WORDS);
    for (size_t i = 0; i < padded; ++i) {
        uint64_t weight = i < count ? weights[i] : 0;
        size_t in_step = i % STEP_WORDS;
        uint64_t *slot =
            table->limbs + i / STEP_WORDS * STEP_LIMBS + in_step % 2 * 16 + in_step / 2;
        slot[0] = weight & ((UINT64_C(1) << split) - 1);
        slot[8] = weight >> split;
    }
}

/* The large locals of a walk, once for all encodings. */
typedef struct tile_scratch {
    limb_table table;
    alignas(64) unsigned char staged[TOCSIN_TILE_WORDS * 4];
} tile_scratch;

typedef struct limb_products {
    __m512i low[2]; /* even, odd words */
    __m512i high[2];
    __m512i top[2];
} limb_products;

AVX512_INLINE void add_words(vector_tally *tally, limb_products *products, __m512i words,
                             const uint64_t *limbs, bool is_wide)
{
    const __m512i parts[2] = {_mm512_and_si512(words, _mm512_set1_epi64(0xffffffff)),
                              _mm512_srli_epi64(words, 32)};
    tally->even_sum = _mm512_add_epi64(tally->even_sum, parts[0]);
    tally->odd_sum = _mm512_add_epi64(tally->odd_sum, parts[1]);
    tally->exclusive = _mm512_xor_si512(tally->exclusive, words);
#pragma GCC unroll 2
    for (size_t i = 0; i < 2; ++i) {
        __m512i low = _mm512_load_si512(limbs + i * 16);
        __m512i top = _mm512_load_si512(limbs + i * 16 + 8);
        products->low[i] = _mm512_madd52lo_epu64(products->low[i], parts[i], low);
        if (is_wide)
            products->high[i] = _mm512_madd52hi_epu64(products->high[i], parts[i], low);
        products->top[i] = _mm512_madd52lo_epu64(products->top[i], parts[i], top);
    }
}

AVX512_INLINE uint64_t horizontal_sum(__m512i lanes)
{
    return (uint64_t)_mm512_reduce_add_epi64(lanes);
}

AVX512_INLINE uint64_t join_products(const limb_products *products, unsigned split)
{
    __m512i low = _mm512_add_epi64(products->low[0], products->low[1]);
    __m512i top = _mm512_add_epi64(_mm512_add_epi64(products->top[0], products->top[1]),
                                   _mm512_add_epi64(products->high[0], products->high[1]));
    return m61_reduce((m61_wide)horizontal_sum(low) + ((m61_wide)horizontal_sum(top) << split));
}

/* The largest magnitude (imm8: maximum of magnitudes, sign cleared) and the number of non-zeros. */
AVX512_INLINE void add_magnitudes(vector_tally *tally, __m512 values)
{
    const __m512i magnitude_bits = _mm512_set1_epi32(0x7fffffff);
    const __m512i one = _mm512_set1_epi32(1);
    __mmask16 nonzero = _mm512_test_epi32_mask(_mm512_castps_si512(values), magnitude_bits);
#pragma GCC diagnostic push /* unoptimised, gcc's intrinsic is a macro with a 16-bit mask of -1 */
#pragma GCC diagnostic ignored "-Wsign-conversion"
    tally->absmax = _mm512_range_ps(tally->absmax, values, 0xb);
#pragma GCC diagnostic pop
    tally->nonzero = _mm512_mask_add_epi32(tally->nonzero, nonzero, tally->nonzero, one);
}

AVX512_INLINE void add_squares(vector_tally *tally, __m512d low, __m512d high)
{
    tally->lanes[0] = _mm512_fmadd_pd(low, low, tally->lanes[0]);
    tally->lanes[1] = _mm512_fmadd_pd(high, high, tally->lanes[1]);
}

AVX512_INLINE void add_finite(vector_tally *tally, __m512 values)
{
    add_magnitudes(tally, values);
    add_squares(tally, _mm512_cvtps_pd(_mm512_castps512_ps256(values)),
                _mm512_cvtps_pd(_mm512_extractf32x8_ps(values, 1)));
}

/* Count and clear what is not finite. */
AVX512_INLINE void add_any(vector_tally *tally, __m512 values)
{
    __mmask16 nan = _mm512_fpclass_ps_mask(values, CLASS_NAN);
    __mmask16 infinite = _mm512_fpclass_ps_mask(values, CLASS_INFINITY);
    tally->nan_count += (uint64_t)__builtin_popcount(nan);
    tally->inf_count += (uint64_t)__builtin_popcount(infinite);
    __mmask16 finite = (__mmask16) ~(nan | infinite);
    add_finite(tally, _mm512_maskz_mov_ps(finite, values));
}

AVX512_INLINE __m512d load_doubles(const unsigned char *floats)
{
    __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)floats);
    return _mm512_cvtps_pd(_mm256_castsi256_ps(bits));
}

AVX512_INLINE void add_step(vector_tally *tally, limb_products *products,
                            const unsigned char *bytes, const uint64_t *limbs,
                            tocsin_encoding encoding, bool masked)
{
    __m512 values;
    if (encoding == TOCSIN_ENCODING_F32) {
        __m512i words = _mm512_loadu_si512(bytes);
        __asm__("" : "+v"(words)); /* gcc would load it four times and run out of load slots */
        add_words(tally, products, words, limbs, true);
        values = _mm512_castsi512_ps(words);
    } else {
        __m256i raw = _mm256_loadu_si256((const __m256i *)(const void *)bytes);
        __m512i words = _mm512_cvtepu16_epi32(raw);
        add_words(tally, products, words, limbs, false);
        values = encoding == TOCSIN_ENCODING_BF16
                     ? _mm512_castsi512_ps(_mm512_slli_epi32(words, 16))
                     : _mm512_cvtph_ps(raw);
    }
    if (masked) {
        add_any(tally, values);
    } else if (encoding == TOCSIN_ENCODING_F32) {
        add_magnitudes(tally, values);
        __asm__("" : "+r"(bytes)); /* clang would join these loads to the one above, scalarly */
        add_squares(tally, load_doubles(bytes), load_doubles(bytes + 32));
    } else {
        add_finite(tally, values);
    }
}

/* Squares of fp32 cannot overflow a lane, so it is finite if and only if all components were. */
AVX512_INLINE bool is_finite(const vector_tally *tally)
{
    return (_mm512_fpclass_pd_mask(tally->lanes[0], CLASS_NAN | CLASS_INFINITY) |
            _mm512_fpclass_pd_mask(tally->lanes[1], CLASS_NAN | CLASS_INFINITY)) == 0;
}

/* Add the rows of a tile and set `*value` to the polynomial of the tile before its own weight.
 * Without `masked` all floats are taken for finite; returns false, with nothing added, when
 * they are not. */
AVX512_INLINE bool add_tile(vector_tally *total, const tocsin_tile_rows *rows,
                            const uint64_t *limbs, tocsin_encoding encoding, bool masked,
                            uint64_t *value)
{
    const bool is_wide = encoding == TOCSIN_ENCODING_F32;
    const size_t step_bytes = STEP_WORDS * (is_wide ? 4 : 2);
    const __m512i none = _mm512_setzero_si512();
    limb_products products = {{none, none}, {none, none}, {none, none}};
    vector_tally tally = *total;
    tally.nonzero = none;
    for (size_t i = 0; i < rows->row_count; ++i) {
        const unsigned char *bytes = rows->base + rows->offsets[i * rows->pitch];
        const unsigned char *end = bytes + rows->row_bytes / step_bytes * step_bytes;
        for (; bytes < end; bytes += step_bytes, limbs += STEP_LIMBS)
            add_step(&tally, &products, bytes, limbs, encoding, masked);
    }
    if (rows->row_bytes % step_bytes > 0) { /* then there is one row */
        size_t rest = rows->row_bytes % step_bytes;
        alignas(64) unsigned char padded[STEP_WORDS * 4] = {0};
        memcpy(padded, rows->base + rows->row_bytes - rest, rest);
        add_step(&tally, &products, padded, limbs, encoding, masked);
    }
    if (!masked && !is_finite(&tally))
        return false;
    __m512i even = _mm512_and_si512(tally.nonzero, _mm512_set1_epi64(0xffffffff));
    __m512i odd = _mm512_srli_epi64(tally.nonzero, 32);
    tally.nonzero = _mm512_add_epi64(total->nonzero, _mm512_add_epi64(even, odd));
    *total = tally;
    *value = join_products(&products, is_wide ? WIDE_SPLIT : NARROW_SPLIT);
    return true;
}

AVX512_INLINE void vector_tally_store(const vector_tally *from, tocsin_tally *to,
                                      uint64_t component_count)
{
    alignas(64) uint32_t words[STEP_WORDS];
    to->sum = horizontal_sum(from->even_sum) + horizontal_sum(from->odd_sum);
    _mm512_store_si512(words, from->exclusive);
    for (size_t i = 0; i < STEP_WORDS; ++i)
        to->exclusive ^= words[i];
    to->nan_count = from->nan_count;
    to->inf_count = from->inf_count;
    to->zero_count =
        component_count - horizontal_sum(from->nonzero) - from->nan_count - from->inf_count;
    to->absmax = (double)_mm512_reduce_max_ps(from->absmax);
    _mm512_storeu_pd(to->lanes, from->lanes[0]);
    _mm512_storeu_pd(to->lanes + 8, from->lanes[1]);
}

/* The tally is a local variable, so that it stays in registers or is spilled in whole vectors. */
AVX512_INLINE void add_walk(tocsin_walk *walk, tocsin_tally *tally, tile_scratch *scratch,
                            tocsin_encoding encoding)
{
    const bool is_wide = encoding == TOCSIN_ENCODING_F32;
    split_weights(&scratch->table, walk->weights,
                  walk->tile_element_count * walk->layout->words_per_element,
                  is_wide ? WIDE_SPLIT : NARROW_SPLIT);
    vector_tally total = {0};
    tocsin_tile tile;
    while (tocsin_walk_next(walk, &tile)) {
        tocsin_tile_rows rows =
            tocsin_tile_rows_of(walk, &tile, STEP_WORDS * (is_wide ? 4 : 2), scratch->staged);
        uint64_t value;
        if (!add_tile(&total, &rows, scratch->table.limbs, encoding, false, &value))
            (void)add_tile(&total, &rows, scratch->table.limbs, encoding, true, &value);
        tally->polynomial = m61_add(tally->polynomial, m61_mul(value, tile.weight));
    }
    vector_tally_store(&total, tally, walk->element_count * walk->layout->components);
}

AVX512 void tocsin_digest_walk_avx512(tocsin_walk *walk, tocsin_tally *tally)
{
    tile_scratch scratch;
    switch ((tocsin_encoding)walk->layout->encoding) {
    case TOCSIN_ENCODING_F32:
        add_walk(walk, tally, &scratch, TOCSIN_ENCODING_F32);
        break;
    case TOCSIN_ENCODING_BF16:
        add_walk(walk, tally, &scratch, TOCSIN_ENCODING_BF16);
        break;
    case TOCSIN_ENCODING_F16:
        add_walk(walk, tally, &scratch, TOCSIN_ENCODING_F16);
        break;
    default:
        tocsin_digest_walk_avx2(walk, tally);
    }
}

bool tocsin_digest_avx512_is_supported(void)
{
    return tocsin_digest_avx2_is_supported() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512ifma");
}

#else

#include <assert.h>

bool tocsin_digest_avx512_is_supported(void)
{
    return false;
}

void tocsin_digest_walk_avx512(tocsin_walk *walk, tocsin_tally *tally)
{
    assert(false && "not on this architecture");
    tocsin_digest_walk_scalar(walk, tally);
}

#endif
