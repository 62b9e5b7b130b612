/* Properties of the digest over random views: every kernel equals the scalar one bit for bit, the
 * scalar one equals the definition, shards compose in any order, memory layout does not matter.
 *
 * The seed is printed; TOCSIN_SEED=... repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "prop/digest_oracle.h"
#include "tensor/tensor.h"
#include "test_seed.h"

#define BUFFER_BYTES ((size_t)1 << 20)
#define AXES_MAX     5

static uint64_t seed;
static unsigned char *buffer; /* of random bytes with special values sprinkled in */

/* A view with storage for its arrays. */
typedef struct random_view {
    tocsin_tensor_view view;
    int64_t shape[AXES_MAX];
    int64_t strides[AXES_MAX];
    int64_t whole[AXES_MAX];
    int64_t offset[AXES_MAX];
} random_view;

/* Bit patterns around every boundary of the statistics, for each component width. */
static void sprinkle(unsigned char *bytes, size_t count, uint64_t *state)
{
    static const uint64_t wide[] = {0,
                                    UINT64_C(0x8000000000000000),
                                    UINT64_C(0x7ff0000000000000),
                                    UINT64_C(0xfff0000000000000),
                                    UINT64_C(0x7ff0000000000001),
                                    UINT64_C(0x7fefffffffffffff),
                                    UINT64_C(0x0000000000000001),
                                    UINT64_MAX};
    static const uint32_t single[] = {0,          0x80000000, 0x7f800000, 0xff800000, 0x7f800001,
                                      0xffc00000, 0x7f7fffff, 0x00000001, 0x007fffff, UINT32_MAX};
    static const uint16_t half[] = {0,      0x8000, 0x7c00, 0xfc00, 0x7c01, 0x7bff, 0x0001,
                                    0x7f80, 0xff80, 0x7f81, 0x7f7f, 0x00ff, 0xffff};
    for (size_t i = 0; i < count; ++i) {
        size_t at = (size_t)oracle_below(state, BUFFER_BYTES - 8);
        switch (oracle_below(state, 3)) {
        case 0:
            memcpy(bytes + at / 8 * 8, &wide[oracle_below(state, 8)], 8);
            break;
        case 1:
            memcpy(bytes + at / 4 * 4, &single[oracle_below(state, 10)], 4);
            break;
        default:
            memcpy(bytes + at / 2 * 2, &half[oracle_below(state, 13)], 2);
        }
    }
}

/* Tame: small finite numbers as fp32, so that most tiles have no special value. */
static void refill(uint64_t *state, bool is_tame)
{
    for (size_t i = 0; i < BUFFER_BYTES; i += 8) {
        uint64_t bits = oracle_random(state);
        if (is_tame)
            bits = (bits & UINT64_C(0xbfffbfffbfffbfff));
        memcpy(buffer + i, &bits, 8);
    }
    if (!is_tame)
        sprinkle(buffer, 20000, state);
}

static tocsin_dtype random_dtype(uint64_t *state)
{
    return (tocsin_dtype)(1 + oracle_below(state, TOCSIN_DTYPE_FLOAT8_E8M0FNU));
}

/* A view inside the buffer with at most `limit` elements: axes permuted in memory, with gaps, zero,
 * negative and overlapping strides, at any byte alignment, as a shard of a larger whole. */
static void make_view(random_view *made, uint64_t *state, uint64_t limit)
{
    tocsin_tensor_view *view = &made->view;
    view->dtype = random_dtype(state);
    view->ndim = (uint32_t)oracle_below(state, AXES_MAX + 1);
    view->shape = made->shape;
    view->strides = made->strides;
    view->global_shape = oracle_below(state, 2) ? made->whole : NULL;
    view->offset = view->global_shape ? made->offset : NULL;
    int64_t elements = 1;
    uint32_t order[AXES_MAX];
    for (uint32_t d = 0; d < view->ndim; ++d) {
        uint64_t room = limit / (uint64_t)elements;
        uint64_t size =
            oracle_below(state, 3) ? 1 + oracle_below(state, 9) : 1 + oracle_below(state, limit);
        made->shape[d] = (int64_t)(size < room ? size : room);
        if (oracle_below(state, 100) == 0)
            made->shape[d] = 0;
        elements *= made->shape[d] ? made->shape[d] : 1;
        int64_t before = (int64_t)oracle_below(state, 4);
        made->offset[d] = before;
        made->whole[d] = made->shape[d] + before + (int64_t)oracle_below(state, 4);
        uint32_t at = (uint32_t)oracle_below(state, d + 1);
        order[d] = order[at];
        order[at] = d;
    }
    int64_t stride = 1;
    int64_t lowest = 0;
    int64_t highest = 0;
    for (uint32_t i = 0; i < view->ndim; ++i) {
        uint32_t d = order[i];
        made->strides[d] = stride;
        uint64_t kind = oracle_below(state, 12);
        if (kind == 0)
            made->strides[d] = 0;
        else if (kind == 1)
            made->strides[d] = -stride;
        else if (kind == 2)
            made->strides[d] = 1; /* overlaps the axes inside */
        else if (kind == 3)
            made->strides[d] += (int64_t)oracle_below(state, 5); /* a gap */
        if (made->shape[d] > 1) {
            int64_t reach = made->strides[d] * (made->shape[d] - 1);
            lowest += reach < 0 ? reach : 0;
            highest += reach > 0 ? reach : 0;
            stride = (made->strides[d] < 0 ? -made->strides[d] : made->strides[d]) * made->shape[d];
            stride = stride > 0 ? stride : 1;
        }
    }
    int64_t bytes = (int64_t)tocsin_dtype_bytes(view->dtype);
    int64_t extent = (highest - lowest + 1) * bytes;
    if (extent > (int64_t)BUFFER_BYTES) { /* gaps multiplied: fall back to contiguous */
        view->strides = NULL;
        lowest = 0;
        extent = elements * bytes;
    }
    assert_true(extent <= (int64_t)BUFFER_BYTES);
    int64_t slack = (int64_t)oracle_below(state, (uint64_t)((int64_t)BUFFER_BYTES - extent) + 1);
    view->data = buffer + slack - lowest * bytes;
}

static void fail_view(const tocsin_tensor_view *view, const char *what, uint64_t number)
{
    fprintf(stderr, "seed %llu, case %llu: %s differs for %s, shape", (unsigned long long)seed,
            (unsigned long long)number, what, tocsin_dtype_name(view->dtype));
    for (uint32_t d = 0; d < view->ndim; ++d)
        fprintf(stderr, " %lld(%lld)", (long long)view->shape[d],
                (long long)(view->strides ? view->strides[d] : 0));
    fprintf(stderr, "\n");
    fail();
}

static void check_kernel(const tocsin_tensor_view *view, tocsin_digest_kernel *kernel,
                         const char *name, uint64_t number)
{
    tocsin_digest expected;
    tocsin_digest actual;
    tocsin_statistics expected_statistics;
    tocsin_statistics actual_statistics;
    assert_int_equal(tocsin_tensor_digest_scalar(view, &expected, &expected_statistics, NULL), 0);
    assert_int_equal(tocsin_digest_with(kernel, view, &actual, &actual_statistics, NULL), 0);
    if (!oracle_same_digest(expected, actual))
        fail_view(view, name, number);
    if (!oracle_same_statistics(expected_statistics, actual_statistics))
        fail_view(view, name, number);
}

static void test_kernels_agree(void **unused)
{
    (void)unused;
    uint64_t state = seed;
    for (uint64_t number = 0; number < 30000; ++number) {
        if (number % 2000 == 0)
            refill(&state, number / 2000 % 2);
        random_view made;
        make_view(&made, &state, number % 50 == 0 ? 20000 : 600);
        if (tocsin_digest_avx2_is_supported())
            check_kernel(&made.view, tocsin_digest_walk_avx2, "avx2", number);
        if (tocsin_digest_avx512_is_supported())
            check_kernel(&made.view, tocsin_digest_walk_avx512, "avx512", number);
    }
}

static void test_scalar_equals_definition(void **unused)
{
    (void)unused;
    uint64_t state = seed + 1;
    refill(&state, false);
    for (uint64_t number = 0; number < 10000; ++number) {
        random_view made;
        make_view(&made, &state, number % 50 == 0 ? 2000 : 150);
        tocsin_digest digest;
        assert_int_equal(tocsin_tensor_digest_scalar(&made.view, &digest, NULL, NULL), 0);
        if (!oracle_same_digest(digest, oracle_digest(&made.view)))
            fail_view(&made.view, "the definition", number);
    }
}

/* ---- composition ---------------------------------------------------------------------------- */

#define PIECES_MAX 64

typedef struct piece {
    int64_t shape[AXES_MAX];
    int64_t offset[AXES_MAX];
} piece;

/* Cut `pieces` at random places along random axes until there are `target` of them. */
static size_t cut_pieces(piece *pieces, uint32_t ndim, size_t target, uint64_t *state)
{
    size_t count = 1;
    for (size_t attempts = 0; count < target && attempts < 4 * target; ++attempts) {
        piece *cut = &pieces[oracle_below(state, count)];
        uint32_t d = (uint32_t)oracle_below(state, ndim);
        if (cut->shape[d] < 1)
            continue;
        int64_t at = (int64_t)oracle_below(state, (uint64_t)cut->shape[d] + 1); /* may be empty */
        piece *rest = &pieces[count++];
        *rest = *cut;
        cut->shape[d] = at;
        rest->shape[d] -= at;
        rest->offset[d] += at;
    }
    return count;
}

static void check_composition(uint64_t *state, uint64_t number)
{
    random_view whole;
    do {
        make_view(&whole, state, 400);
    } while (whole.view.ndim == 0);
    tocsin_tensor_view *view = &whole.view;
    view->global_shape = NULL;
    view->offset = NULL;
    int64_t strides[TOCSIN_NDIM_MAX];
    oracle_strides(view, strides);
    tocsin_digest expected;
    tocsin_statistics expected_statistics;
    assert_int_equal(tocsin_tensor_digest(view, &expected, &expected_statistics, NULL), 0);

    piece pieces[PIECES_MAX];
    memcpy(pieces[0].shape, whole.shape, sizeof whole.shape);
    memset(pieces[0].offset, 0, sizeof pieces[0].offset);
    size_t count = cut_pieces(pieces, view->ndim, 1 + oracle_below(state, PIECES_MAX - 1), state);
    tocsin_digest sum = {0};
    tocsin_statistics statistics = {0};
    for (size_t left = count; left > 0; --left) {
        size_t picked = (size_t)oracle_below(state, left);
        piece shard = pieces[picked];
        pieces[picked] = pieces[left - 1];
        int64_t start = 0;
        for (uint32_t d = 0; d < view->ndim; ++d)
            start += shard.offset[d] * strides[d];
        const unsigned char *data =
            (const unsigned char *)view->data + start * (int64_t)tocsin_dtype_bytes(view->dtype);
        tocsin_tensor_view part = {.data = data,
                                   .dtype = view->dtype,
                                   .ndim = view->ndim,
                                   .shape = shard.shape,
                                   .strides = strides,
                                   .global_shape = whole.shape,
                                   .offset = shard.offset};
        tocsin_digest digest;
        tocsin_statistics part_statistics;
        assert_int_equal(tocsin_tensor_digest(&part, &digest, &part_statistics, NULL), 0);
        sum = tocsin_digest_merge(sum, digest);
        statistics = tocsin_statistics_merge(statistics, part_statistics);
    }
    if (!oracle_same_digest(sum, expected))
        fail_view(view, "the union of the shards", number);
    if (!oracle_close_statistics(statistics, expected_statistics))
        fail_view(view, "the statistics of the shards", number);
}

static void test_shards_compose(void **unused)
{
    (void)unused;
    uint64_t state = seed + 2;
    refill(&state, true);
    for (uint64_t number = 0; number < 10000; ++number)
        check_composition(&state, number);
}

/* A 1-D tensor in two parts: digest(a b) = digest(a) + shift(digest(b), |a|). */
static void test_concatenation(void **unused)
{
    (void)unused;
    uint64_t state = seed + 3;
    refill(&state, false);
    for (int number = 0; number < 2000; ++number) {
        tocsin_dtype dtype = random_dtype(&state);
        size_t bytes = tocsin_dtype_bytes(dtype);
        int64_t total = (int64_t)oracle_below(&state, 3000);
        int64_t first = (int64_t)oracle_below(&state, (uint64_t)total + 1);
        int64_t second = total - first;
        tocsin_tensor_view view = {.data = buffer, .dtype = dtype, .ndim = 1, .shape = &total};
        tocsin_digest whole, a, b;
        assert_int_equal(tocsin_tensor_digest(&view, &whole, NULL, NULL), 0);
        view.shape = &first;
        assert_int_equal(tocsin_tensor_digest(&view, &a, NULL, NULL), 0);
        view.shape = &second;
        view.data = buffer + (size_t)first * bytes;
        assert_int_equal(tocsin_tensor_digest(&view, &b, NULL, NULL), 0);
        uint64_t words = (uint64_t)first * oracle_words_per_element(dtype);
        a = tocsin_digest_merge(a, tocsin_digest_shift(b, words));
        assert_true(oracle_same_digest(whole, a));
    }
}

/* The same logical tensor in permuted memory has the same digest. */
static void test_layout_does_not_matter(void **unused)
{
    (void)unused;
    uint64_t state = seed + 4;
    static unsigned char copy[200 * 16];
    refill(&state, false);
    for (uint64_t number = 0; number < 3000; ++number) {
        random_view made;
        make_view(&made, &state, 200);
        tocsin_tensor_view dense = made.view;
        int64_t strides[TOCSIN_NDIM_MAX];
        oracle_strides(&made.view, strides);
        size_t bytes = tocsin_dtype_bytes(dense.dtype);
        int64_t count = 1;
        for (uint32_t d = 0; d < dense.ndim; ++d)
            count *= dense.shape[d];
        for (int64_t k = 0; k < count; ++k) { /* row-major copy */
            int64_t rest = k;
            int64_t element = 0;
            for (uint32_t d = dense.ndim; d-- > 0; rest /= dense.shape[d])
                element += rest % dense.shape[d] * strides[d];
            memcpy(copy + (size_t)k * bytes,
                   (const unsigned char *)made.view.data + element * (int64_t)bytes, bytes);
        }
        dense.data = copy;
        dense.strides = NULL;
        tocsin_digest strided, contiguous;
        tocsin_statistics strided_statistics, contiguous_statistics;
        assert_int_equal(tocsin_tensor_digest(&made.view, &strided, &strided_statistics, NULL), 0);
        assert_int_equal(tocsin_tensor_digest(&dense, &contiguous, &contiguous_statistics, NULL),
                         0);
        if (!oracle_same_digest(strided, contiguous))
            fail_view(&made.view, "the contiguous copy", number);
        if (!oracle_close_statistics(strided_statistics, contiguous_statistics))
            fail_view(&made.view, "statistics of the contiguous copy", number);
    }
}

int main(void)
{
    seed = test_seed(20251129);
    printf("kernel %s\n", tocsin_tensor_kernel());
    buffer = malloc(BUFFER_BYTES);
    if (!buffer)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels_agree),
        cmocka_unit_test(test_scalar_equals_definition),
        cmocka_unit_test(test_shards_compose),
        cmocka_unit_test(test_concatenation),
        cmocka_unit_test(test_layout_does_not_matter),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(buffer);
    return failed;
}
