/* Random tilings of random tensors: their pieces add up to the digest of the whole, whatever the
 * order and however often a piece is there; what lacks a piece, or has one that is moved or larger,
 * is told apart. */
#include "cmocka_test.h"
#include "digest_oracle.h"
#include "test_seed.h"

#include <align/align.h>
#include <stdlib.h>

enum { PIECES_MAX = 64, SIZE_MAX_AXIS = 9 };

typedef struct tiled {
    uint32_t ndim;
    int64_t whole[TOCSIN_NDIM_MAX];
    tocsin_box boxes[2 * PIECES_MAX];
    size_t count;
} tiled;

/* Cut one of the boxes in two, if it can be. */
static void cut(tiled *tensor, uint64_t *state)
{
    tocsin_box *box = &tensor->boxes[oracle_below(state, tensor->count)];
    uint32_t axis = (uint32_t)oracle_below(state, tensor->ndim);
    if (box->size[axis] < 2)
        return;
    int64_t left = 1 + (int64_t)oracle_below(state, (uint64_t)box->size[axis] - 1);
    tocsin_box *right = &tensor->boxes[tensor->count++];
    *right = *box;
    right->begin[axis] += left;
    right->size[axis] -= left;
    box->size[axis] = left;
}

static tiled random_tiling(uint64_t *state)
{
    tiled tensor = {.ndim = 1 + (uint32_t)oracle_below(state, 4), .count = 1};
    tensor.boxes[0].ndim = tensor.ndim;
    for (uint32_t axis = 0; axis < tensor.ndim; ++axis) {
        tensor.whole[axis] = 1 + (int64_t)oracle_below(state, SIZE_MAX_AXIS);
        tensor.boxes[0].size[axis] = tensor.whole[axis];
    }
    for (uint64_t cuts = oracle_below(state, PIECES_MAX); cuts > 0; --cuts)
        cut(&tensor, state);
    return tensor;
}

static tocsin_tiling tile(tiled tensor)
{
    tocsin_boxes_sort(tensor.boxes, tensor.count);
    return tocsin_boxes_tile(tensor.boxes, tensor.count, tensor.whole, tensor.ndim);
}

static void strides_of(const tiled *tensor, int64_t *strides)
{
    int64_t stride = 1;
    for (uint32_t axis = tensor->ndim; axis-- > 0;) {
        strides[axis] = stride;
        stride *= tensor->whole[axis];
    }
}

/* A piece as a view of the whole's memory. */
static tocsin_digest digest_of(const tiled *tensor, const tocsin_box *box, const float *data)
{
    int64_t strides[TOCSIN_NDIM_MAX], first = 0;
    strides_of(tensor, strides);
    for (uint32_t axis = 0; axis < tensor->ndim; ++axis)
        first += box->begin[axis] * strides[axis];
    tocsin_tensor_view view = {.data = data + first,
                               .dtype = TOCSIN_DTYPE_FLOAT32,
                               .ndim = tensor->ndim,
                               .shape = box->size,
                               .strides = strides,
                               .global_shape = tensor->whole,
                               .offset = box->begin};
    tocsin_digest digest;
    assert_int_equal(tocsin_tensor_digest(&view, &digest, NULL, NULL), TOCSIN_OK);
    return digest;
}

static void test_pieces_add_up(void **unused)
{
    (void)unused;
    uint64_t state = test_seed(1);
    static float data[SIZE_MAX_AXIS * SIZE_MAX_AXIS * SIZE_MAX_AXIS * SIZE_MAX_AXIS];
    for (size_t i = 0; i < TOCSIN_COUNT_OF(data); ++i)
        data[i] = (float)oracle_below(&state, 1000) / 7;
    for (int round = 0; round < 400; ++round) {
        tiled tensor = random_tiling(&state);
        tocsin_box all = {.ndim = tensor.ndim};
        memcpy(all.size, tensor.whole, sizeof all.size);
        tocsin_digest whole = digest_of(&tensor, &all, data), sum = {0};
        for (size_t b = 0; b < tensor.count; ++b)
            sum = tocsin_digest_merge(sum, digest_of(&tensor, &tensor.boxes[b], data));
        assert_memory_equal(&whole, &sum, sizeof whole);
        assert_int_equal(tile(tensor), TOCSIN_TILING_EXACT);
    }
}

static void test_copies_count_once(void **unused)
{
    (void)unused;
    uint64_t state = test_seed(2);
    for (int round = 0; round < 400; ++round) {
        tiled tensor = random_tiling(&state);
        for (size_t b = 0, count = tensor.count; b < count; ++b) {
            if (oracle_below(&state, 2))
                tensor.boxes[tensor.count++] = tensor.boxes[b];
        }
        assert_int_equal(tile(tensor), TOCSIN_TILING_EXACT);
    }
}

static void test_other_than_tilings(void **unused)
{
    (void)unused;
    uint64_t state = test_seed(3);
    for (int round = 0; round < 400; ++round) {
        tiled tensor = random_tiling(&state);
        if (tensor.count == 1)
            continue;
        size_t at = oracle_below(&state, tensor.count);
        tiled less = tensor;
        less.boxes[at] = less.boxes[--less.count];
        assert_int_equal(tile(less), TOCSIN_TILING_INCOMPLETE);
        /* A larger piece overlaps one of the others. */
        uint32_t axis = (uint32_t)oracle_below(&state, tensor.ndim);
        tocsin_box *box = &tensor.boxes[at];
        if (box->begin[axis] + box->size[axis] == tensor.whole[axis])
            continue;
        ++box->size[axis];
        assert_int_equal(tile(tensor), TOCSIN_TILING_OVERLAPS);
        --box->size[axis];
        ++box->begin[axis]; /* moved, perhaps onto another one */
        assert_int_not_equal(tile(tensor), TOCSIN_TILING_EXACT);
    }
}

/* Sizes whose product is no number that fits. */
static void test_huge(void **unused)
{
    (void)unused;
    tiled tensor = {.ndim = 2, .count = 1, .whole = {INT64_MAX, INT64_MAX}};
    tensor.boxes[0] = (tocsin_box){.ndim = 2, .size = {INT64_MAX, 1}};
    assert_int_not_equal(tile(tensor), TOCSIN_TILING_EXACT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_add_up),
        cmocka_unit_test(test_copies_count_once),
        cmocka_unit_test(test_other_than_tilings),
        cmocka_unit_test(test_huge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
