/* lib/tensor/tensor.h - the inside of the tensor module.
 *
 * A digest is made in three parts. walk.c checks the view and turns it into a sequence of *tiles*:
 * at most TOCSIN_TILE_WORDS words, near each other in memory, whose weights r^e are one table times
 * one factor per tile. A kernel (digest_scalar.c, digest_avx2.c) adds all tiles to a *tally*.
 * digest.c turns the tally into the public result. The tiling alone fixes the order of floating
 * point additions, so kernels agree in every bit. The kernel for GPUs, with tiles of its own, is in
 * cuda/ (docs/gpu.md).
 */
#ifndef TOCSIN_LIB_TENSOR_TENSOR_H
#define TOCSIN_LIB_TENSOR_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tocsin/tensor.h>

#define TOCSIN_TILE_WORDS            768 /* 9 or 12 KiB of limbs: the table stays in L1 */
#define TOCSIN_LANES                 16
#define TOCSIN_WORDS_PER_ELEMENT_MAX 4

/* How the bits of one component (an element, or a part of a complex one) are read as a number. */
typedef enum tocsin_encoding {
    TOCSIN_ENCODING_BYTE, /* all 1-byte dtypes: a histogram, decoded at the end */
    TOCSIN_ENCODING_I16,
    TOCSIN_ENCODING_U16,
    TOCSIN_ENCODING_F16,
    TOCSIN_ENCODING_BF16,
    TOCSIN_ENCODING_I32,
    TOCSIN_ENCODING_U32,
    TOCSIN_ENCODING_F32,
    TOCSIN_ENCODING_F16_PAIR, /* complex32: two fp16 components in one word */
    TOCSIN_ENCODING_I64,
    TOCSIN_ENCODING_U64,
    TOCSIN_ENCODING_F64
} tocsin_encoding;
#define TOCSIN_ENCODING_COUNT (TOCSIN_ENCODING_F64 + 1)

typedef struct tocsin_dtype_layout {
    const char *name;
    uint8_t bytes;
    uint8_t components;        /* per element: 2 for complex */
    uint8_t words_per_element; /* 1, 2 or 4 */
    uint8_t encoding;          /* tocsin_encoding */
} tocsin_dtype_layout;

/* NULL for NONE and unknown numbers. */
const tocsin_dtype_layout *tocsin_dtype_layout_of(tocsin_dtype dtype);

/* The number that a byte of a 1-byte dtype stands for; NaN and infinities as such. */
double tocsin_byte_decode(tocsin_dtype dtype, uint8_t bits);

/* ---- tiles --------------------------------------------------------------------------------- */

typedef struct tocsin_walk_level {
    uint64_t count;
    uint64_t index;
    int64_t stride_bytes;
    uint64_t ratio;            /* weight of one step along this level */
    const unsigned char *base; /* at the current indices of this level and all outer ones */
    uint64_t weight;
} tocsin_walk_level;

typedef struct tocsin_tile {
    const unsigned char *base;
    size_t element_count;
    uint64_t weight; /* r^e of the tile's first word */
} tocsin_tile;

typedef struct tocsin_walk {
    tocsin_dtype dtype;
    const tocsin_dtype_layout *layout;
    uint64_t element_count; /* 0: no tile at all */

    /* Axes of stride 0 are not walked: they multiply the result. */
    uint64_t repeat_count;
    uint64_t repeat_weight; /* sum of r^e over the repeated positions */

    /* One tile: element k lies offsets[k] bytes after the tile's base; its word w has the weight
     * weights[k * words_per_element + w] times the tile's. */
    size_t tile_element_count;
    size_t last_tile_element_count; /* of every last step along levels[0] */
    size_t row_element_count; /* elements k ... k + row - 1 are contiguous, k multiple of row */
    int64_t offsets[TOCSIN_TILE_WORDS];
    uint64_t weights[TOCSIN_TILE_WORDS];

    /* Odometer over the tiles, innermost level first. */
    bool finished;
    uint32_t level_count;
    tocsin_walk_level levels[TOCSIN_NDIM_MAX + 1];
} tocsin_walk;

/* Check the view and prepare the walk. Errors: those of tocsin_tensor_digest. */
tocsin_status tocsin_walk_init(tocsin_walk *walk, const tocsin_tensor_view *view,
                               tocsin_error *error);
/* The next tile, in memory order (small strides innermost). False when there is none. */
bool tocsin_walk_next(tocsin_walk *walk, tocsin_tile *tile);

/* The elements of a tile as rows of contiguous bytes; row i starts at base + offsets[i * pitch]. */
typedef struct tocsin_tile_rows {
    const unsigned char *base;
    const int64_t *offsets;
    size_t pitch;
    size_t row_count;
    size_t row_bytes; /* a multiple of step_bytes when there is more than one row */
} tocsin_tile_rows;

/* The tile where it lies, if its rows are whole steps of a kernel; else copied to `staged`. */
tocsin_tile_rows tocsin_tile_rows_of(const tocsin_walk *walk, const tocsin_tile *tile,
                                     size_t step_bytes,
                                     unsigned char staged[TOCSIN_TILE_WORDS * 4]);

/* ---- kernels ------------------------------------------------------------------------------- */

/* What a kernel counts. Component k of a tile is added to lanes[k % 16] as fma(x, x, lane), in
 * the order of the tiles. 1-byte dtypes fill the histogram instead of the statistics. */
typedef struct tocsin_tally {
    uint64_t sum;
    uint64_t exclusive;
    uint64_t polynomial;
    uint64_t nan_count;
    uint64_t inf_count;
    uint64_t zero_count;
    double absmax;
    double lanes[TOCSIN_LANES];
    uint64_t histogram[256];
} tocsin_tally;

/* Add all tiles of the walk to the tally. */
typedef void tocsin_digest_kernel(tocsin_walk *walk, tocsin_tally *tally);
void tocsin_digest_walk_scalar(tocsin_walk *walk, tocsin_tally *tally);
void tocsin_digest_walk_avx2(tocsin_walk *walk, tocsin_tally *tally);
void tocsin_digest_walk_avx512(tocsin_walk *walk, tocsin_tally *tally);
/* Can this build and CPU run the kernel? */
bool tocsin_digest_avx2_is_supported(void);   /* AVX2, FMA, F16C */
bool tocsin_digest_avx512_is_supported(void); /* AVX-512 F, DQ, IFMA, and the above */

/* tocsin_tensor_digest by a given kernel. */
tocsin_status tocsin_digest_with(tocsin_digest_kernel *kernel, const tocsin_tensor_view *view,
                                 tocsin_digest *digest, tocsin_statistics *statistics,
                                 tocsin_error *error);

#endif
