/* lib/tensor/cuda/digest_tiles.c - from views of tensors to the tiles of the GPU kernel.
 *
 * Data structure: an array of tiles, each with the weight of its own first word, and for each
 * tensor the range of its tiles. A tensor is cut into *runs*, where memory and exponents both
 * continue: a contiguous tensor, or shard of whole rows, is one run; a shard of columns has a run
 * per row. A run is cut into tiles at addresses that are multiples of 16 bytes; the first tile
 * then begins a little before the run, at an exponent that may be negative: powers of r have the
 * order p - 1, so it is taken mod p - 1.
 *
 * Invariant: every element of the view is in exactly one tile, and the weight of the word at offset
 * x of a tile is the tile's weight times r^(x / bytes of a word).
 *
 * Cost: 32 bytes and one field multiplication a tile (128 KiB of a tensor, or one run).
 */
#include "tensor/cuda/digest_tiles.h"

#include <assert.h>

#include "tensor/mersenne61.h"

#define ROOT_ORDER (M61_PRIME - 1)

_Static_assert(DIGEST_TILE_BYTES % DIGEST_STEP_BYTES == 0, "whole steps make a tile");
_Static_assert(DIGEST_THREADS == 1u << DIGEST_THREAD_BITS, "every bit of a thread has a ratio");

/* ---- constants ------------------------------------------------------------------------------ */

typedef enum number_class {
    CLASS_INTEGER,
    CLASS_F16,
    CLASS_BF16,
    CLASS_F32,
    CLASS_F64,
    CLASS_E4M3FN,
    CLASS_E5M2,
    CLASS_FNUZ,
    CLASS_E8M0,
    CLASS_COUNT
} number_class;

_Static_assert(CLASS_COUNT == DIGEST_NUMBER_CLASSES, "the kernel's table is as long");

uint32_t tocsin_digest_number_class(tocsin_dtype dtype)
{
    switch (dtype) {
    case TOCSIN_DTYPE_FLOAT16:
    case TOCSIN_DTYPE_COMPLEX32:
        return CLASS_F16;
    case TOCSIN_DTYPE_BFLOAT16:
        return CLASS_BF16;
    case TOCSIN_DTYPE_FLOAT32:
    case TOCSIN_DTYPE_COMPLEX64:
        return CLASS_F32;
    case TOCSIN_DTYPE_FLOAT64:
    case TOCSIN_DTYPE_COMPLEX128:
        return CLASS_F64;
    case TOCSIN_DTYPE_FLOAT8_E4M3FN:
        return CLASS_E4M3FN;
    case TOCSIN_DTYPE_FLOAT8_E5M2:
        return CLASS_E5M2;
    case TOCSIN_DTYPE_FLOAT8_E4M3FNUZ:
    case TOCSIN_DTYPE_FLOAT8_E5M2FNUZ:
        return CLASS_FNUZ;
    case TOCSIN_DTYPE_FLOAT8_E8M0FNU:
        return CLASS_E8M0;
    default:
        return CLASS_INTEGER;
    }
}

/* A float whose exponent's bits are all 1 when it is not finite: adding 1 to the exponent's last
 * bit then carries into the sign's place, which the mask has cleared, and nowhere else. */
#define IEEE(bits, infinite, mask0, mask1, carry_, sign)                                           \
    {                                                                                              \
        .magnitude = UINT64_MAX >> (65 - (bits)), .largest_not_nan = (infinite),                   \
        .infinity = (infinite), .quick_mask = {mask0, mask1}, .quick_carry = (carry_),             \
        .quick_sign = (sign), .component_bits = (bits)                                             \
    }
/* One pattern is NaN, nothing is infinite; every vector is looked at. */
#define ONE_PATTERN(pattern)                                                                       \
    {                                                                                              \
        .flip = 0xff ^ (pattern), .magnitude = 0xff, .largest_not_nan = 0xfe,                      \
        .infinity = UINT64_MAX, .quick_carry = 0x80000000, .quick_sign = 0x80000000,               \
        .component_bits = 8                                                                        \
    }

static const digest_number_class classes[DIGEST_NUMBER_CLASSES] = {
    [CLASS_INTEGER] = {.largest_not_nan = UINT64_MAX, .infinity = 1, .component_bits = 64},
    [CLASS_F16] = IEEE(16, 0x7c00, 0x7c007c00, 0x7c007c00, 0x04000400, 0x80008000),
    [CLASS_BF16] = IEEE(16, 0x7f80, 0x7f807f80, 0x7f807f80, 0x00800080, 0x80008000),
    [CLASS_F32] = IEEE(32, 0x7f800000, 0x7f800000, 0x7f800000, 0x00800000, 0x80000000),
    [CLASS_F64] = IEEE(64, UINT64_C(0x7ff0000000000000), 0, 0x7ff00000, 0x00100000, 0x80000000),
    [CLASS_E4M3FN] = {.magnitude = 0x7f, /* 0x7f is NaN, and there is no infinity */
                      .largest_not_nan = 0x7e,
                      .infinity = UINT64_MAX,
                      .quick_mask = {0x7f7f7f7f, 0x7f7f7f7f},
                      .quick_carry = 0x01010101,
                      .quick_sign = 0x80808080,
                      .component_bits = 8},
    [CLASS_E5M2] = IEEE(8, 0x7c, 0x7c7c7c7c, 0x7c7c7c7c, 0x04040404, 0x80808080),
    [CLASS_FNUZ] = ONE_PATTERN(0x80),
    [CLASS_E8M0] = ONE_PATTERN(0xff),
};

digest_constants tocsin_digest_constants(void)
{
    digest_constants constants;
    memset(&constants, 0, sizeof constants);
    memcpy(constants.classes, classes, sizeof classes);
    for (size_t size = 0; size < DIGEST_WORD_SIZES; ++size) {
        digest_ratios *ratios = &constants.ratios[size];
        uint64_t words = DIGEST_VECTOR_BYTES >> size;
        for (size_t k = 0; k < DIGEST_UNROLLED; ++k)
            ratios->round[k] = m61_pow(M61_BASE, words * DIGEST_THREADS * (k + 1));
        for (size_t i = 0; i < DIGEST_THREAD_BITS; ++i)
            ratios->thread[i] = m61_pow(M61_BASE, words << i);
    }
    return constants;
}

/* ---- runs ----------------------------------------------------------------------------------- */

/* An axis along which runs lie. */
typedef struct run_axis {
    uint64_t count;
    uint64_t index;
    int64_t stride_bytes;
    uint64_t step; /* in the exponent */
} run_axis;

typedef struct run_list {
    run_axis axes[TOCSIN_NDIM_MAX]; /* innermost first */
    uint32_t axis_count;
    uint64_t run_count;
    uint64_t run_bytes;
    uint64_t first_exponent;
} run_list;

/* The view has passed tocsin_walk_init: it has elements, its whole at most 2^60 words, and its
 * strides span at most 2^61 bytes. */
static run_list list_runs(const tocsin_tensor_view *view, const tocsin_dtype_layout *layout)
{
    const int64_t *whole = view->global_shape ? view->global_shape : view->shape;
    run_list list = {.run_count = 1};
    uint64_t run = 1;         /* elements */
    uint64_t whole_inner = 1; /* elements of the whole in one step along the axis */
    int64_t contiguous = 1;   /* stride of a contiguous view */
    for (uint32_t d = view->ndim; d-- > 0;) {
        uint64_t count = (uint64_t)view->shape[d];
        int64_t stride = view->strides ? view->strides[d] : contiguous;
        uint64_t step = whole_inner * layout->words_per_element;
        if (view->offset)
            list.first_exponent += (uint64_t)view->offset[d] * step;
        if (count > 1 && list.axis_count == 0 && stride == (int64_t)run && whole_inner == run) {
            run *= count;
        } else if (count > 1) {
            list.axes[list.axis_count++] = (run_axis){
                .count = count, .stride_bytes = stride * (int64_t)layout->bytes, .step = step};
            list.run_count *= count;
        }
        whole_inner *= (uint64_t)whole[d];
        contiguous *= (int64_t)count;
    }
    list.run_bytes = run * layout->bytes;
    return list;
}

/* ---- tiles ---------------------------------------------------------------------------------- */

typedef struct tile_form {
    uint32_t number_class;
    uint32_t word_bytes;
    uint64_t tile_ratio; /* weight of a step from tile to tile */
} tile_form;

/* How many tiles a run takes, beginning anywhere. */
static uint64_t tiles_of_run(uint64_t bytes)
{
    return (bytes + DIGEST_VECTOR_BYTES - 1 + DIGEST_TILE_BYTES - 1) / DIGEST_TILE_BYTES;
}

/* Room for the tiles has been made. */
static void add_run(tocsin_digest_tiles *tiles, const tile_form *form, uint64_t address,
                    uint64_t bytes, uint64_t exponent)
{
    uint64_t base = address - address % DIGEST_VECTOR_BYTES;
    uint64_t begin = address - base;
    uint64_t end = begin + bytes;
    uint64_t before = begin / form->word_bytes; /* words from `base` to the run's first */
    uint64_t weight = m61_pow(M61_BASE, (exponent + ROOT_ORDER - before) % ROOT_ORDER);
    for (uint64_t at = 0; at < end; at += DIGEST_TILE_BYTES) {
        uint64_t rest = end - at;
        assert(tiles->tiles.count < tiles->tiles.capacity);
        tiles->tiles.items[tiles->tiles.count++] =
            (digest_tile){.base = base + at,
                          .weight = weight,
                          .begin = at == 0 ? (uint32_t)begin : 0,
                          .end = rest < DIGEST_TILE_BYTES ? (uint32_t)rest : DIGEST_TILE_BYTES,
                          .number_class = form->number_class,
                          .word_bytes = form->word_bytes};
        weight = m61_mul(weight, form->tile_ratio);
    }
}

static void add_runs(tocsin_digest_tiles *tiles, run_list *list, const tile_form *form,
                     uint64_t address)
{
    uint64_t exponent = list->first_exponent;
    for (uint64_t i = 0; i < list->run_count; ++i) {
        add_run(tiles, form, address, list->run_bytes, exponent);
        for (uint32_t d = 0; d < list->axis_count; ++d) {
            run_axis *axis = &list->axes[d];
            if (++axis->index < axis->count) {
                address += (uint64_t)axis->stride_bytes;
                exponent += axis->step;
                break;
            }
            axis->index = 0; /* back to the axis' beginning, and on along the next */
            address -= (uint64_t)axis->stride_bytes * (axis->count - 1);
            exponent -= axis->step * (axis->count - 1);
        }
    }
}

static tocsin_status check_runs(const tocsin_tensor_view *view, const run_list *list,
                                uint64_t alignment, uint64_t tiles_before, tocsin_error *error)
{
    if ((uintptr_t)view->data % alignment != 0)
        return tocsin_error_set(error, TOCSIN_E_UNSUPPORTED,
                                "the tensor's address is not a multiple of %llu bytes",
                                (unsigned long long)alignment);
    if (list->run_count > 1 && list->run_bytes < TOCSIN_DEVICE_RUN_BYTES_MIN)
        return tocsin_error_set(error, TOCSIN_E_UNSUPPORTED,
                                "only %llu bytes of the tensor lie side by side, at least %d are "
                                "needed: copy it to a contiguous tensor first",
                                (unsigned long long)list->run_bytes, TOCSIN_DEVICE_RUN_BYTES_MIN);
    uint64_t room = TOCSIN_DEVICE_TILES_MAX - tiles_before;
    if (tiles_of_run(list->run_bytes) > room ||
        list->run_count > room / tiles_of_run(list->run_bytes))
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "the tensors have more than %zu tiles",
                                TOCSIN_DEVICE_TILES_MAX);
    return TOCSIN_OK;
}

tocsin_status tocsin_digest_tiles_add(tocsin_digest_tiles *tiles, const tocsin_tensor_view *view,
                                      tocsin_error *error)
{
    tocsin_walk walk; /* for what it checks, and whether there is any element */
    TOCSIN_TRY(tocsin_walk_init(&walk, view, error));
    if (tiles->ranges.count == TOCSIN_DEVICE_TENSORS_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "more than %zu tensors",
                                TOCSIN_DEVICE_TENSORS_MAX);
    digest_range range = {.first = tiles->tiles.count};
    if (!walk.finished) {
        const tocsin_dtype_layout *layout = walk.layout;
        uint32_t word_bytes = layout->bytes < 4 ? layout->bytes : 4;
        uint64_t component_bytes = (uint64_t)layout->bytes / layout->components;
        run_list list = list_runs(view, layout);
        TOCSIN_TRY(check_runs(view, &list,
                              component_bytes > word_bytes ? component_bytes : word_bytes,
                              tiles->tiles.count, error));
        if (!TOCSIN_VEC_RESERVE(&tiles->tiles, list.run_count * tiles_of_run(list.run_bytes)))
            return tocsin_error_memory(error);
        tile_form form = {.number_class = tocsin_digest_number_class(view->dtype),
                          .word_bytes = word_bytes,
                          .tile_ratio = m61_pow(M61_BASE, DIGEST_TILE_BYTES / word_bytes)};
        add_runs(tiles, &list, &form, (uint64_t)(uintptr_t)view->data);
        range.count = tiles->tiles.count - range.first;
    }
    return TOCSIN_VEC_PUSH(&tiles->ranges, range) ? TOCSIN_OK : tocsin_error_memory(error);
}

void tocsin_digest_tiles_free(tocsin_digest_tiles *tiles)
{
    TOCSIN_VEC_FREE(&tiles->tiles);
    TOCSIN_VEC_FREE(&tiles->ranges);
}
