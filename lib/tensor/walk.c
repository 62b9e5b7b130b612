/* lib/tensor/walk.c - from a view of a tensor to tiles in memory order.
 *
 * Data structure: a list of axes (count, stride, exponent step). Axes of size 1 are dropped,
 * negative strides are reversed (the exponent then falls along the axis: its step is taken mod
 * p - 1, the order of r), axes of stride 0 become a factor of the result, the others are sorted by
 * stride and merged where memory and exponents both continue. The innermost axes that fit make the
 * tile; one more axis is split into equal chunks to fill it; the rest is an odometer that costs
 * one field multiplication per tile.
 *
 * Invariant: every logical element is in exactly one tile (or stands for all its repetitions),
 * with the weight r^(index of its first word in the contiguous whole), whatever the strides.
 *
 * Cost: O(ndim^2 + min(words, 768)) to prepare, O(1) per tile.
 */
#include <assert.h>
#include <string.h>

#include "tensor/mersenne61.h"
#include "tensor/tensor.h"

#define WORDS_MAX        (UINT64_C(1) << 60) /* exponents stay below p - 1 */
#define EXTENT_BYTES_MAX (INT64_C(1) << 61)
#define ROOT_ORDER       (M61_PRIME - 1)

typedef struct axis {
    uint64_t count;
    int64_t stride_bytes;
    uint64_t step; /* in the exponent, mod p - 1 */
} axis;

typedef struct axis_list {
    axis axes[TOCSIN_NDIM_MAX];
    uint32_t count;
    uint64_t first_exponent; /* of the element at `data` */
    const unsigned char *data;
} axis_list;

/* ---- checks -------------------------------------------------------------------------------- */

static tocsin_status check_shape(const tocsin_tensor_view *view, tocsin_error *error)
{
    const int64_t *whole = view->global_shape ? view->global_shape : view->shape;
    for (uint32_t d = 0; d < view->ndim; ++d) {
        int64_t offset = view->offset ? view->offset[d] : 0;
        if (view->shape[d] < 0 || whole[d] < 0)
            return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "axis %u has a negative size",
                                    (unsigned)d);
        if (offset < 0 || view->shape[d] > whole[d] || offset > whole[d] - view->shape[d])
            return tocsin_error_set(error, TOCSIN_E_ARGUMENT,
                                    "the shard lies outside the whole along axis %u", (unsigned)d);
    }
    return TOCSIN_OK;
}

static tocsin_status check_view(const tocsin_tensor_view *view, tocsin_error *error)
{
    if (!view)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "no tensor view");
    if (!tocsin_dtype_layout_of(view->dtype))
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "unknown dtype number %d",
                                (int)view->dtype);
    if (view->ndim > TOCSIN_NDIM_MAX)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "%u axes, at most %d are supported",
                                (unsigned)view->ndim, TOCSIN_NDIM_MAX);
    if (view->ndim > 0 && !view->shape)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "a view with axes needs a shape");
    return check_shape(view, error);
}

/* Words of a tensor of this shape; false when there are more than WORDS_MAX. */
static bool count_words(const int64_t *shape, uint32_t ndim, uint64_t words_per_element,
                        uint64_t *words)
{
    for (uint32_t d = 0; d < ndim; ++d) {
        if (shape[d] == 0) {
            *words = 0;
            return true;
        }
    }
    *words = words_per_element;
    for (uint32_t d = 0; d < ndim; ++d) {
        if (__builtin_mul_overflow(*words, (uint64_t)shape[d], words) || *words > WORDS_MAX)
            return false;
    }
    return true;
}

/* ---- axes ---------------------------------------------------------------------------------- */

static tocsin_status too_far(tocsin_error *error)
{
    return tocsin_error_set(error, TOCSIN_E_LIMIT, "the strides span more than 2^61 bytes");
}

/* The axes of the view with more than one position, outermost first; negative strides reversed. */
static tocsin_status collect_axes(const tocsin_tensor_view *view, uint64_t words_per_element,
                                  size_t element_bytes, axis_list *list, tocsin_error *error)
{
    const int64_t *whole = view->global_shape ? view->global_shape : view->shape;
    uint64_t step = words_per_element;
    int64_t contiguous = 1; /* stride in elements; the whole has at most 2^60 of them */
    int64_t extent = 0;
    list->count = 0;
    list->first_exponent = 0;
    list->data = view->data;
    for (uint32_t d = view->ndim; d-- > 0;) {
        int64_t stride = view->strides ? view->strides[d] : contiguous;
        uint64_t count = (uint64_t)view->shape[d];
        if (view->offset)
            list->first_exponent += step * (uint64_t)view->offset[d];
        if (count > 1) {
            int64_t reach;
            int64_t bytes;
            if (__builtin_mul_overflow(stride, (int64_t)element_bytes, &bytes) ||
                __builtin_mul_overflow(bytes, (int64_t)(count - 1), &reach) ||
                reach < -EXTENT_BYTES_MAX || reach > EXTENT_BYTES_MAX)
                return too_far(error);
            extent += reach < 0 ? -reach : reach;
            if (extent > EXTENT_BYTES_MAX)
                return too_far(error);
            axis *added = &list->axes[list->count++];
            *added = (axis){.count = count, .stride_bytes = bytes, .step = step};
            if (bytes < 0) {
                list->data += reach;
                list->first_exponent += step * (count - 1);
                added->stride_bytes = -bytes;
                added->step = ROOT_ORDER - step;
            }
        }
        contiguous *= (int64_t)count;
        step *= (uint64_t)whole[d];
    }
    assert(list->first_exponent < WORDS_MAX);
    assert(list->count <= TOCSIN_NDIM_MAX);
    return TOCSIN_OK;
}

/* Sum of ratio^i for i < count, by doubling. */
static uint64_t geometric_sum(uint64_t ratio, uint64_t count)
{
    uint64_t sum = 0;             /* of the terms so far */
    uint64_t shift = 1;           /* ratio^(number of terms so far) */
    uint64_t block = 1;           /* sum of the first 2^k terms */
    uint64_t block_shift = ratio; /* ratio^(2^k) */
    for (; count; count >>= 1) {
        if (count & 1) {
            sum = m61_add(sum, m61_mul(shift, block));
            shift = m61_mul(shift, block_shift);
        }
        block = m61_add(block, m61_mul(block, block_shift));
        block_shift = m61_mul(block_shift, block_shift);
    }
    return sum;
}

/* Take the axes of stride 0 out of the list: the same memory under several indices. */
static void fold_repeats(axis_list *list, tocsin_walk *walk)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < list->count; ++i) {
        axis current = list->axes[i];
        if (current.stride_bytes != 0) {
            list->axes[kept++] = current;
            continue;
        }
        uint64_t ratio = m61_pow(M61_BASE, current.step);
        walk->repeat_count *= current.count;
        walk->repeat_weight = m61_mul(walk->repeat_weight, geometric_sum(ratio, current.count));
    }
    list->count = kept;
}

/* Sort by stride, smallest first; equal strides keep their order (the inner axis first). */
static void sort_axes(axis_list *list)
{
    for (uint32_t i = 1; i < list->count; ++i) {
        axis moving = list->axes[i];
        uint32_t j = i;
        for (; j > 0 && list->axes[j - 1].stride_bytes > moving.stride_bytes; --j)
            list->axes[j] = list->axes[j - 1];
        list->axes[j] = moving;
    }
}

/* Join an axis to the one inside it where both memory and exponents go on without a gap. */
static void merge_axes(axis_list *list)
{
    uint32_t last = 0;
    for (uint32_t i = 1; i < list->count; ++i) {
        axis *inner = &list->axes[last];
        axis outer = list->axes[i];
        m61_wide next_step = (m61_wide)inner->step * inner->count % ROOT_ORDER;
        if (inner->stride_bytes <= outer.stride_bytes / (int64_t)inner->count &&
            inner->stride_bytes * (int64_t)inner->count == outer.stride_bytes &&
            (uint64_t)next_step == outer.step)
            inner->count *= outer.count;
        else
            list->axes[++last] = outer;
    }
    if (list->count > 0)
        list->count = last + 1;
}

/* ---- the tile and the odometer ------------------------------------------------------------- */

/* Repeat the first `period` weights `count` times, each repetition times `ratio` of the one
 * before. By doubling, so that few multiplications depend on each other. */
static void extend_weights(uint64_t *weights, size_t period, size_t count, uint64_t ratio)
{
    for (size_t filled = 1; filled < count; filled *= 2) {
        size_t added = count - filled < filled ? count - filled : filled;
        for (size_t i = 0; i < added * period; ++i)
            weights[filled * period + i] = m61_mul(weights[i], ratio);
        ratio = m61_mul(ratio, ratio);
    }
}

static void extend_offsets(int64_t *offsets, size_t period, size_t count, int64_t stride_bytes)
{
    for (size_t i = period; i < period * count; ++i)
        offsets[i] = offsets[i - period] + stride_bytes;
}

/* Add `count` positions along an axis to the tile. */
static void extend_tile(tocsin_walk *walk, const axis *along, size_t count, uint64_t ratio)
{
    size_t period = walk->tile_element_count;
    size_t words_per_element = walk->layout->words_per_element;
    assert(period * count * words_per_element <= TOCSIN_TILE_WORDS);
    extend_weights(walk->weights, period * words_per_element, count, ratio);
    extend_offsets(walk->offsets, period, count, along->stride_bytes);
    if (walk->row_element_count == period &&
        along->stride_bytes == (int64_t)(period * walk->layout->bytes))
        walk->row_element_count *= count;
    walk->tile_element_count *= count;
}

static void add_level(tocsin_walk *walk, uint64_t count, int64_t stride_bytes, uint64_t ratio)
{
    walk->levels[walk->level_count++] =
        (tocsin_walk_level){.count = count, .stride_bytes = stride_bytes, .ratio = ratio};
}

/* Fill the tile with the innermost axes and chunks of the next one; the rest are levels. */
static void build_tile(tocsin_walk *walk, const axis_list *list)
{
    const size_t capacity = TOCSIN_TILE_WORDS / walk->layout->words_per_element;
    walk->tile_element_count = 1;
    walk->row_element_count = 1;
    walk->offsets[0] = 0;
    walk->weights[0] = 1;
    extend_weights(walk->weights, 1, walk->layout->words_per_element, M61_BASE);

    uint32_t next = 0;
    for (; next < list->count; ++next) {
        const axis *whole = &list->axes[next];
        if (whole->count > capacity / walk->tile_element_count)
            break;
        extend_tile(walk, whole, (size_t)whole->count, m61_pow(M61_BASE, whole->step));
    }
    walk->last_tile_element_count = walk->tile_element_count;
    walk->level_count = 0;
    if (next < list->count) {
        const axis *split = &list->axes[next++];
        uint64_t ratio = m61_pow(M61_BASE, split->step);
        uint64_t room = capacity / walk->tile_element_count;
        uint64_t chunk_count = (split->count + room - 1) / room;
        /* Equal chunks, in whole vectors where possible. */
        uint64_t chunk = (split->count + chunk_count - 1) / chunk_count;
        chunk = (chunk + 15) / 16 * 16 <= room ? (chunk + 15) / 16 * 16 : chunk;
        chunk_count = (split->count + chunk - 1) / chunk;
        uint64_t last = split->count - (chunk_count - 1) * chunk;
        walk->last_tile_element_count = walk->tile_element_count * (size_t)last;
        extend_tile(walk, split, (size_t)chunk, ratio);
        add_level(walk, chunk_count, split->stride_bytes * (int64_t)chunk, m61_pow(ratio, chunk));
    } else {
        add_level(walk, 1, 0, 1);
    }
    for (; next < list->count; ++next)
        add_level(walk, list->axes[next].count, list->axes[next].stride_bytes,
                  m61_pow(M61_BASE, list->axes[next].step));
}

tocsin_status tocsin_walk_init(tocsin_walk *walk, const tocsin_tensor_view *view,
                               tocsin_error *error)
{
    tocsin_status status = check_view(view, error);
    if (status != TOCSIN_OK)
        return status;
    walk->dtype = view->dtype;
    walk->layout = tocsin_dtype_layout_of(view->dtype);
    walk->finished = true;
    walk->element_count = 0;
    walk->repeat_count = 1;
    walk->repeat_weight = 1;

    const int64_t *whole = view->global_shape ? view->global_shape : view->shape;
    uint64_t words_per_element = walk->layout->words_per_element;
    uint64_t words;
    if (!count_words(whole, view->ndim, words_per_element, &words))
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "the tensor has more than 2^60 words");
    uint64_t shard_words = 0;
    if (words == 0 || !count_words(view->shape, view->ndim, words_per_element, &shard_words) ||
        shard_words == 0)
        return TOCSIN_OK;
    if (!view->data)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "a tensor with elements needs data");

    axis_list list;
    status = collect_axes(view, words_per_element, walk->layout->bytes, &list, error);
    if (status != TOCSIN_OK)
        return status;
    fold_repeats(&list, walk);
    sort_axes(&list);
    merge_axes(&list);
    build_tile(walk, &list);
    walk->element_count = shard_words / words_per_element / walk->repeat_count;
    walk->finished = false;
    uint64_t first_weight = m61_pow(M61_BASE, list.first_exponent);
    for (uint32_t i = 0; i < walk->level_count; ++i) {
        walk->levels[i].base = list.data;
        walk->levels[i].weight = first_weight;
    }
    return TOCSIN_OK;
}

/* Step to the next tile: the innermost level that can move does, and those inside restart there. */
static void advance(tocsin_walk *walk)
{
    uint32_t moving = 0;
    while (moving < walk->level_count &&
           walk->levels[moving].index + 1 == walk->levels[moving].count)
        ++moving;
    if (moving == walk->level_count) {
        walk->finished = true;
        return;
    }
    tocsin_walk_level *level = &walk->levels[moving];
    ++level->index;
    level->base += level->stride_bytes;
    level->weight = m61_mul(level->weight, level->ratio);
    for (uint32_t i = 0; i < moving; ++i) {
        walk->levels[i].index = 0;
        walk->levels[i].base = level->base;
        walk->levels[i].weight = level->weight;
    }
}

bool tocsin_walk_next(tocsin_walk *walk, tocsin_tile *tile)
{
    if (walk->finished)
        return false;
    const tocsin_walk_level *inner = &walk->levels[0];
    tile->base = inner->base;
    tile->weight = inner->weight;
    tile->element_count =
        inner->index + 1 == inner->count ? walk->last_tile_element_count : walk->tile_element_count;
    assert(tile->element_count > 0);
    assert(tile->weight > 0 && tile->weight < M61_PRIME);
    advance(walk);
    return true;
}

/* ---- gathering ------------------------------------------------------------------------------ */

static void gather_elements(unsigned char *restrict staged, const unsigned char *base,
                            const int64_t *offsets, size_t count, size_t bytes)
{
    for (size_t k = 0; k < count; ++k) {
        switch (bytes) { /* constant sizes become one move each */
        case 1:
            staged[k] = base[offsets[k]];
            break;
        case 2:
            memcpy(staged + k * 2, base + offsets[k], 2);
            break;
        case 4:
            memcpy(staged + k * 4, base + offsets[k], 4);
            break;
        case 8:
            memcpy(staged + k * 8, base + offsets[k], 8);
            break;
        default:
            memcpy(staged + k * 16, base + offsets[k], 16);
        }
    }
}

tocsin_tile_rows tocsin_tile_rows_of(const tocsin_walk *walk, const tocsin_tile *tile,
                                     size_t step_bytes, unsigned char staged[TOCSIN_TILE_WORDS * 4])
{
    static const int64_t no_offset[1] = {0};
    const size_t row = walk->row_element_count;
    const size_t bytes = walk->layout->bytes;
    tocsin_tile_rows rows = {.base = tile->base,
                             .offsets = no_offset,
                             .row_count = 1,
                             .row_bytes = tile->element_count * bytes};
    if (row >= tile->element_count)
        return rows;
    assert(tile->element_count % row == 0);
    if (row * bytes % step_bytes == 0) {
        rows.offsets = walk->offsets;
        rows.pitch = row;
        rows.row_count = tile->element_count / row;
        rows.row_bytes = row * bytes;
        return rows;
    }
    if (row == 1) {
        gather_elements(staged, tile->base, walk->offsets, tile->element_count, bytes);
    } else {
        for (size_t k = 0; k < tile->element_count; k += row)
            memcpy(staged + k * bytes, tile->base + walk->offsets[k], row * bytes);
    }
    rows.base = staged;
    return rows;
}
