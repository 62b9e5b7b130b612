/* lib/tensor/cuda/digest_kernel.h - what one thread of the GPU digest computes.
 *
 * Common to C17 and CUDA C++: digest_kernel.cu makes a kernel of it, the tests compile the same
 * text for the CPU and go through a grid's threads one by one. The host decides everything that
 * needs thought (digest_tiles.c): where a tile begins, the weight of its first word, which bytes
 * of it belong to the tensor. A thread only reads and adds.
 *
 * A tile is 128 KiB of memory that begins at a multiple of 16 bytes, read as vectors of 16 bytes.
 * Thread t of 256 takes the vectors t, t + 256, t + 512, ... so that neighbours read neighbours,
 * from the last to the first: with R = r^(words in 256 vectors) and u the vector's own polynomial
 * it keeps h = h * R^4 + u0 + u1 R + u2 R^2 + u3 R^3 (Horner, four vectors a step), and multiplies
 * h by r^(words in t vectors) and by the tile's weight at the end. Bytes of the tile outside the
 * tensor count as zeros, which add nothing to any sum.
 *
 * A vector's own polynomial needs few products: four words below 2^32 and 37^0 ... 37^3 stay below
 * 2^48, four below 2^16 even in 32 bits.
 *
 * All sums are of integers and canonical residues: neither the order of threads nor that of
 * tiles matters. Bounds stand where the sums are.
 */
#ifndef TOCSIN_LIB_TENSOR_CUDA_DIGEST_KERNEL_H
#define TOCSIN_LIB_TENSOR_CUDA_DIGEST_KERNEL_H

#include <stdint.h>
#include <string.h>

#include "tensor/mersenne61.h"

/* Functions that are rarely called, and then worth a call: they would be most of the code. */
#if defined(__CUDACC__)
#define DIGEST_RARE __host__ __device__ static __noinline__
#else
#define DIGEST_RARE static inline
#endif

#define DIGEST_TILE_BYTES   131072u
#define DIGEST_THREADS      256u
#define DIGEST_VECTOR_BYTES 16u
#define DIGEST_UNROLLED     4u /* vectors a thread reads at once */
#define DIGEST_ROUND_BYTES  (DIGEST_THREADS * DIGEST_VECTOR_BYTES)
#define DIGEST_STEP_BYTES   (DIGEST_ROUND_BYTES * DIGEST_UNROLLED)

/* Powers of r = 37 as plain numbers. */
#define DIGEST_R1 37u
#define DIGEST_R2 1369u
#define DIGEST_R3 50653u
#define DIGEST_R4 1874161u
#define DIGEST_R8 UINT64_C(3512479453921)

/* Names of the kernels in the compiled image. */
#define DIGEST_TILES_KERNEL   "tocsin_digest_tiles"
#define DIGEST_TENSORS_KERNEL "tocsin_digest_tensors"

/* What a tile, and at the end a tensor, adds up to. Words are zero-extended in `exclusive`. */
typedef struct digest_sums {
    uint64_t sum;
    uint64_t exclusive;
    uint64_t polynomial; /* canonical */
    uint64_t nan_count;
    uint64_t inf_count;
} digest_sums;

/* A piece of a tensor. The bytes [begin, end) after `base` belong to it. */
typedef struct digest_tile {
    uint64_t base;   /* address on the device, a multiple of 16 */
    uint64_t weight; /* r^e of the word at `base` */
    uint32_t begin;
    uint32_t end; /* at most DIGEST_TILE_BYTES */
    uint32_t number_class;
    uint32_t word_bytes; /* 1, 2 or 4: of a word in memory */
} digest_tile;

/* The tiles of one tensor. */
typedef struct digest_range {
    uint64_t first;
    uint64_t count;
} digest_range;

/* How a component says that it is not finite: m = (bits ^ flip) & magnitude is NaN above
 * `largest_not_nan`, infinite at `infinity`. A whole vector is judged first: only when some
 * ((word & quick_mask) + quick_carry) & quick_sign is not 0 are its components looked at, one by
 * one. quick_mask[1] is for the odd words of a vector, the high halves of fp64. */
typedef struct digest_number_class {
    uint64_t flip;
    uint64_t magnitude;
    uint64_t largest_not_nan;
    uint64_t infinity;
    uint32_t quick_mask[2];
    uint32_t quick_carry;
    uint32_t quick_sign;
    uint32_t component_bits;
    uint32_t unused;
} digest_number_class;

#define DIGEST_NUMBER_CLASSES 9
#define DIGEST_WORD_SIZES     3 /* words of 1, 2 and 4 bytes */
#define DIGEST_THREAD_BITS    8 /* of a thread's number */

/* Powers of r for one size of words, W words a vector: round[k] = r^(W * 256 * (k + 1)),
 * thread[i] = r^(W * 2^i). */
typedef struct digest_ratios {
    uint64_t round[DIGEST_UNROLLED];
    uint64_t thread[DIGEST_THREAD_BITS];
} digest_ratios;

/* The kernel's parameter; the same at every launch. */
typedef struct digest_constants {
    digest_ratios ratios[DIGEST_WORD_SIZES];
    digest_number_class classes[DIGEST_NUMBER_CLASSES];
} digest_constants;

typedef struct digest_vector {
    uint32_t words[4];
} digest_vector;

/* ---- sums ---------------------------------------------------------------------------------- */

TOCSIN_HOST_DEVICE static inline digest_sums digest_sums_none(void)
{
    digest_sums none = {0, 0, 0, 0, 0};
    return none;
}

/* Commutative and associative. A tensor has at most 2^60 words: the counts fit. */
TOCSIN_HOST_DEVICE static inline digest_sums digest_sums_merge(digest_sums a, digest_sums b)
{
    a.sum += b.sum;
    a.exclusive ^= b.exclusive;
    a.polynomial = m61_add(a.polynomial, b.polynomial);
    a.nan_count += b.nan_count;
    a.inf_count += b.inf_count;
    return a;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* 16 bytes at a multiple of 16, little-endian words. They are read once: not to be cached. */
TOCSIN_HOST_DEVICE static inline digest_vector digest_load(const unsigned char *at)
{
    digest_vector vector;
#if defined(__CUDA_ARCH__)
    const uint4 loaded = __ldcs((const uint4 *)at);
    vector.words[0] = loaded.x;
    vector.words[1] = loaded.y;
    vector.words[2] = loaded.z;
    vector.words[3] = loaded.w;
#else
    memcpy(&vector, at, sizeof vector);
#endif
    return vector;
}

/* The vector at `offset` in the tile, with zeros for what does not belong to the tensor and is not
 * read. */
DIGEST_RARE digest_vector digest_load_edge(const unsigned char *base, uint32_t begin, uint32_t end,
                                           uint32_t offset)
{
    const unsigned char *at = base + offset;
    if (offset >= begin && offset + DIGEST_VECTOR_BYTES <= end)
        return digest_load(at);
    uint64_t halves[2] = {0, 0};
    for (uint32_t i = 0; i < 8; ++i) {
        if (offset + i >= begin && offset + i < end)
            halves[0] |= (uint64_t)at[i] << i * 8;
        if (offset + 8 + i >= begin && offset + 8 + i < end)
            halves[1] |= (uint64_t)at[8 + i] << i * 8;
    }
    digest_vector vector = {{(uint32_t)halves[0], (uint32_t)(halves[0] >> 32), (uint32_t)halves[1],
                             (uint32_t)(halves[1] >> 32)}};
    return vector;
}

/* ---- one vector ---------------------------------------------------------------------------- */

/* Four words below 2^16: at most 65535 * (37^4 - 1) / 36 < 2^32. */
TOCSIN_HOST_DEVICE static inline uint32_t digest_join_narrow(uint32_t a, uint32_t b, uint32_t c,
                                                             uint32_t d)
{
    return a + b * DIGEST_R1 + c * DIGEST_R2 + d * DIGEST_R3;
}

/* The sum of word * r^i over the vector's words, below 2^61, and the words added to `sums`; there
 * `exclusive` is of whole 32-bit words until the thread ends. */
TOCSIN_HOST_DEVICE static inline uint64_t
digest_join(digest_sums *sums, const digest_vector *vector, uint32_t word_bytes)
{
    const uint32_t *words = vector->words;
    sums->exclusive ^= words[0] ^ words[1] ^ words[2] ^ words[3];
    if (word_bytes == 4) { /* below 2^32 * 52060 < 2^48 */
        sums->sum += (uint64_t)words[0] + words[1] + words[2] + words[3];
        return words[0] + (uint64_t)words[1] * DIGEST_R1 + (uint64_t)words[2] * DIGEST_R2 +
               (uint64_t)words[3] * DIGEST_R3;
    }
    uint32_t total = 0; /* of at most 8 words below 2^16 or 16 below 2^8 */
    uint32_t joined[4];
    for (int i = 0; i < 4; ++i) {
        uint32_t low = words[i] & 0xffffu;
        uint32_t high = words[i] >> 16;
        if (word_bytes == 2) { /* two words each: joined[0] and [1], [2] and [3] are four */
            total += low + high;
            joined[i] = low + high * DIGEST_R1;
        } else {
            total += (low & 0xffu) + (low >> 8) + (high & 0xffu) + (high >> 8);
            joined[i] = digest_join_narrow(low & 0xffu, low >> 8, high & 0xffu, high >> 8);
        }
    }
    sums->sum += total;
    if (word_bytes == 2) { /* below 2^32 * (1 + 37^4) < 2^53; each factor as in _join_narrow */
        uint32_t first = joined[0] + joined[1] * DIGEST_R2;
        uint32_t second = joined[2] + joined[3] * DIGEST_R2;
        return first + (uint64_t)second * DIGEST_R4;
    }
    /* Each below 2^24, so a pair below 2^45, and times 37^8 < 2^42 below 2^87. */
    uint64_t first = joined[0] + (uint64_t)joined[1] * DIGEST_R4;
    uint64_t second = joined[2] + (uint64_t)joined[3] * DIGEST_R4;
    return m61_reduce(first + (m61_wide)second * DIGEST_R8);
}

/* The components of a vector, given as two halves: the number of NaN, and of infinities << 32. */
DIGEST_RARE uint64_t digest_count_components(uint64_t low, uint64_t high,
                                             const digest_number_class *numbers)
{
    uint64_t counts = 0;
    for (uint32_t at = 0; at < 64; at += numbers->component_bits) {
        uint64_t first = (low >> at ^ numbers->flip) & numbers->magnitude;
        uint64_t second = (high >> at ^ numbers->flip) & numbers->magnitude;
        counts +=
            (uint64_t)(first > numbers->largest_not_nan) + (second > numbers->largest_not_nan);
        counts += (uint64_t)(first == numbers->infinity) << 32;
        counts += (uint64_t)(second == numbers->infinity) << 32;
    }
    return counts;
}

TOCSIN_HOST_DEVICE static inline void digest_count(digest_sums *sums, const digest_vector *vector,
                                                   const digest_number_class *numbers)
{
    const uint32_t *words = vector->words;
    const uint32_t carry = numbers->quick_carry;
    uint32_t hits = ((words[0] & numbers->quick_mask[0]) + carry) |
                    ((words[1] & numbers->quick_mask[1]) + carry) |
                    ((words[2] & numbers->quick_mask[0]) + carry) |
                    ((words[3] & numbers->quick_mask[1]) + carry);
    if (hits & numbers->quick_sign) {
        uint64_t counts = digest_count_components(words[0] | (uint64_t)words[1] << 32,
                                                  words[2] | (uint64_t)words[3] << 32, numbers);
        sums->nan_count += counts & 0xffffffffu;
        sums->inf_count += counts >> 32;
    }
}

/* ---- one thread ---------------------------------------------------------------------------- */

/* The vectors of thread `thread` in a tile. word_bytes is the tile's, as a constant: what is not
 * needed for it is compiled away. */
TOCSIN_HOST_DEVICE static inline digest_sums
digest_thread_words(const digest_tile *tile, const digest_ratios *ratios,
                    const digest_number_class *numbers, uint32_t thread, uint32_t word_bytes)
{
    const unsigned char *base = (const unsigned char *)(uintptr_t)tile->base;
    digest_sums sums = digest_sums_none();
    uint64_t value = 0;
    uint32_t steps = (tile->end + DIGEST_STEP_BYTES - 1) / DIGEST_STEP_BYTES;
    while (steps-- > 0) {
        const uint32_t start = steps * DIGEST_STEP_BYTES;
        const uint32_t offset = start + thread * DIGEST_VECTOR_BYTES;
        digest_vector vectors[DIGEST_UNROLLED];
        if (start >= tile->begin && start + DIGEST_STEP_BYTES <= tile->end) {
            for (uint32_t k = 0; k < DIGEST_UNROLLED; ++k)
                vectors[k] = digest_load(base + offset + k * DIGEST_ROUND_BYTES);
        } else {
            for (uint32_t k = 0; k < DIGEST_UNROLLED; ++k)
                vectors[k] =
                    digest_load_edge(base, tile->begin, tile->end, offset + k * DIGEST_ROUND_BYTES);
        }
        /* Four products of residues and a number below 2^61: below 2^124. */
        m61_wide total = (m61_wide)value * ratios->round[DIGEST_UNROLLED - 1];
        total += digest_join(&sums, &vectors[0], word_bytes);
        digest_count(&sums, &vectors[0], numbers);
        for (uint32_t k = 1; k < DIGEST_UNROLLED; ++k) {
            total += (m61_wide)digest_join(&sums, &vectors[k], word_bytes) * ratios->round[k - 1];
            digest_count(&sums, &vectors[k], numbers);
        }
        value = m61_reduce(total);
    }
    for (uint32_t bit = 0; bit < DIGEST_THREAD_BITS; ++bit) {
        if (thread >> bit & 1)
            value = m61_mul(value, ratios->thread[bit]);
    }
    sums.polynomial = value;
    for (uint32_t bits = 16; bits >= word_bytes * 8; bits /= 2) /* several words in 32 bits */
        sums.exclusive = (sums.exclusive ^ sums.exclusive >> bits) & ((UINT64_C(1) << bits) - 1);
    return sums;
}

/* The same for any tile; without the tile's own weight, which its threads have in common. */
TOCSIN_HOST_DEVICE static inline digest_sums
digest_thread(const digest_tile *tile, const digest_constants *constants, uint32_t thread)
{
    const digest_number_class *numbers = &constants->classes[tile->number_class];
    if (tile->word_bytes == 4)
        return digest_thread_words(tile, &constants->ratios[2], numbers, thread, 4);
    if (tile->word_bytes == 2)
        return digest_thread_words(tile, &constants->ratios[1], numbers, thread, 2);
    return digest_thread_words(tile, &constants->ratios[0], numbers, thread, 1);
}

/* The sums of all threads of a tile, closed. */
TOCSIN_HOST_DEVICE static inline digest_sums digest_tile_close(digest_sums sums,
                                                               const digest_tile *tile)
{
    sums.polynomial = m61_mul(sums.polynomial, tile->weight);
    return sums;
}

/* Part of thread `thread` in adding up the tiles of a tensor. */
TOCSIN_HOST_DEVICE static inline digest_sums
digest_thread_tiles(const digest_range *range, const digest_sums *tiles, uint32_t thread)
{
    digest_sums sums = digest_sums_none();
    for (uint64_t i = thread; i < range->count; i += DIGEST_THREADS)
        sums = digest_sums_merge(sums, tiles[range->first + i]);
    return sums;
}

#endif
