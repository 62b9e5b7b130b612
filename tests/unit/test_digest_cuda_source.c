/* The source of the GPU kernel, compiled for the CPU: tiles and threads give the digest and the
 * counts of the scalar kernel, bit for bit, for every dtype, around every boundary of vectors,
 * steps and tiles, at every alignment, in shards and in any order of blocks and threads.
 *
 * The seed is printed; TOCSIN_SEED=... repeats a run.
 */
#include "cmocka_test.h"

#include <stdio.h>
#include <stdlib.h>

#include "cuda/emulated_grid.h"
#include "tensor/cuda/digest_tiles.h"
#include "test_seed.h"

#define BUFFER_BYTES ((size_t)3 << 17) /* three tiles */
#define AXES_MAX     4

static uint64_t seed;
static unsigned char *buffer;

/* One or several tensors through the emulated grid. */
static void emulate(const tocsin_tensor_view *views, size_t count, digest_sums *results,
                    uint64_t *state)
{
    tocsin_digest_tiles tiles = {0};
    tocsin_error error;
    for (size_t i = 0; i < count; ++i) {
        if (tocsin_digest_tiles_add(&tiles, &views[i], &error) != TOCSIN_OK)
            fail_msg("%s", error.message);
    }
    digest_constants constants = tocsin_digest_constants();
    digest_sums *sums = calloc(tiles.tiles.count + 1, sizeof *sums);
    assert_non_null(sums);
    emulated_digest_tiles(tiles.tiles.items, (uint32_t)tiles.tiles.count, sums, &constants, state);
    emulated_digest_tensors(tiles.ranges.items, (uint32_t)count, sums, results, state);
    free(sums);
    tocsin_digest_tiles_free(&tiles);
}

static void expect(const tocsin_tensor_view *view, const digest_sums *actual, const char *what)
{
    tocsin_digest digest;
    tocsin_statistics statistics;
    assert_int_equal(tocsin_tensor_digest_scalar(view, &digest, &statistics, NULL), TOCSIN_OK);
    if (digest.sum == actual->sum && digest.exclusive == actual->exclusive &&
        digest.polynomial == actual->polynomial && statistics.nan_count == actual->nan_count &&
        statistics.inf_count == actual->inf_count)
        return;
    fprintf(stderr, "seed %llu, %s: %s at %p, shape", (unsigned long long)seed, what,
            tocsin_dtype_name(view->dtype), view->data);
    for (uint32_t d = 0; d < view->ndim; ++d)
        fprintf(stderr, " %lld", (long long)view->shape[d]);
    fprintf(stderr, "\nsum %d exclusive %d polynomial %d nan %llu %llu inf %llu %llu\n",
            digest.sum == actual->sum, digest.exclusive == actual->exclusive,
            digest.polynomial == actual->polynomial, (unsigned long long)statistics.nan_count,
            (unsigned long long)actual->nan_count, (unsigned long long)statistics.inf_count,
            (unsigned long long)actual->inf_count);
    fail();
}

static void check_flat(tocsin_dtype dtype, size_t offset, int64_t elements, const char *what,
                       uint64_t *state)
{
    tocsin_tensor_view view = {
        .data = buffer + offset, .dtype = dtype, .ndim = 1, .shape = &elements};
    digest_sums actual;
    emulate(&view, 1, &actual, state);
    expect(&view, &actual, what);
}

/* The address must be a multiple of this. */
static size_t alignment(tocsin_dtype dtype)
{
    if (dtype == TOCSIN_DTYPE_COMPLEX128)
        return 8;
    if (dtype == TOCSIN_DTYPE_COMPLEX64)
        return 4;
    return tocsin_dtype_bytes(dtype);
}

/* ---- numbers -------------------------------------------------------------------------------- */

/* Every bit pattern of the 1 and 2-byte dtypes, each alone and beside others. */
static void test_every_narrow_value(void **unused)
{
    (void)unused;
    uint64_t state = seed;
    for (uint32_t value = 0; value < 65536; ++value) {
        uint16_t narrow = (uint16_t)value;
        memcpy(buffer + value * 2, &narrow, 2);
    }
    for (int number = 1; number <= TOCSIN_DTYPE_FLOAT8_E8M0FNU; ++number) {
        tocsin_dtype dtype = (tocsin_dtype)number;
        if (tocsin_dtype_bytes(dtype) == 2)
            check_flat(dtype, 0, 65536, "all values", &state);
        for (uint32_t value = 0; value < 256 && tocsin_dtype_bytes(dtype) == 1; ++value) {
            unsigned char kept = buffer[64 + value % 16];
            memset(buffer + 64, 0, 16);
            buffer[64 + value % 16] = (unsigned char)value;
            check_flat(dtype, 64, 16, "one value", &state);
            buffer[64 + value % 16] = kept;
        }
    }
}

/* Infinity and its neighbours of either sign, at every place in a vector, for the wide floats. */
static void test_wide_special_values(void **unused)
{
    (void)unused;
    static const uint64_t wide[] = {UINT64_C(0x7ff0000000000000), UINT64_C(0xfff0000000000000),
                                    UINT64_C(0x7ff0000000000001), UINT64_C(0x7fefffffffffffff),
                                    UINT64_C(0x7ff80000ffffffff), UINT64_C(0x000000007ff00000),
                                    UINT64_C(0xffffffffffffffff), UINT64_C(0x7fffffff7f800000)};
    static const uint32_t single[] = {0x7f800000, 0xff800000, 0x7f800001, 0x7f7fffff,
                                      0xffffffff, 0x7fc00000, 0x007fffff, 0x807fffff};
    uint64_t state = seed;
    memset(buffer, 0x3f, 256);
    for (size_t at = 0; at < 8; ++at) {
        for (size_t i = 0; i < 8; ++i) {
            memcpy(buffer + 64 + at * 4, &single[i], 4);
            check_flat(TOCSIN_DTYPE_FLOAT32, 64, 9, "fp32", &state);
            check_flat(TOCSIN_DTYPE_COMPLEX64, 64, 4, "complex64", &state);
            memset(buffer + 64, 0x3f, 64);
            memcpy(buffer + 64 + at * 8, &wide[i], 8);
            check_flat(TOCSIN_DTYPE_FLOAT64, 64, 9, "fp64", &state);
            check_flat(TOCSIN_DTYPE_FLOAT64, 72, 8, "fp64, odd", &state);
            check_flat(TOCSIN_DTYPE_COMPLEX128, 64, 4, "complex128", &state);
            memset(buffer + 64, 0x3f, 128);
        }
    }
}

/* ---- sizes ---------------------------------------------------------------------------------- */

static void refill(uint64_t *state)
{
    for (size_t i = 0; i < BUFFER_BYTES; i += 8) {
        uint64_t bits = oracle_random(state);
        if (oracle_below(state, 3)) /* few specials, so that vectors differ in having any */
            bits &= UINT64_C(0xbfffbfffbfffbfff);
        memcpy(buffer + i, &bits, 8);
    }
}

/* All words at their largest: every bound of every sum is reached. */
static void test_largest_words(void **unused)
{
    (void)unused;
    uint64_t state = seed;
    memset(buffer, 0xff, BUFFER_BYTES);
    for (int number = 1; number <= TOCSIN_DTYPE_FLOAT8_E8M0FNU; ++number) {
        tocsin_dtype dtype = (tocsin_dtype)number;
        check_flat(dtype, 0, (int64_t)(BUFFER_BYTES / tocsin_dtype_bytes(dtype)), "ones", &state);
    }
}

/* No element, one, and sizes around vectors, warps, steps and tiles, from every alignment. */
static void test_sizes(void **unused)
{
    (void)unused;
    static const size_t sizes[] = {0,
                                   16,
                                   512,
                                   DIGEST_ROUND_BYTES,
                                   DIGEST_STEP_BYTES,
                                   DIGEST_TILE_BYTES,
                                   2 * DIGEST_TILE_BYTES};
    uint64_t state = seed;
    refill(&state);
    for (int number = 1; number <= TOCSIN_DTYPE_FLOAT8_E8M0FNU; ++number) {
        tocsin_dtype dtype = (tocsin_dtype)number;
        size_t bytes = tocsin_dtype_bytes(dtype);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
            size_t alignments = DIGEST_VECTOR_BYTES / alignment(dtype);
            size_t offset = oracle_below(&state, alignments) * alignment(dtype);
            for (int64_t more = sizes[i] > 16 ? -1 : 0; more <= 1; ++more)
                check_flat(dtype, offset, (int64_t)(sizes[i] / bytes) + more, "sizes", &state);
        }
        for (size_t offset = 0; offset < DIGEST_VECTOR_BYTES; offset += alignment(dtype)) {
            for (int64_t elements = 0; elements < 20; ++elements)
                check_flat(dtype, 1024 + offset, elements, "small", &state);
        }
    }
}

/* ---- shards --------------------------------------------------------------------------------- */

typedef struct random_view {
    tocsin_tensor_view view;
    int64_t shape[AXES_MAX];
    int64_t strides[AXES_MAX];
    int64_t whole[AXES_MAX];
    int64_t offset[AXES_MAX];
} random_view;

/* A shard of a whole: rows that are contiguous, with gaps, repeats or backward steps between. */
static void make_view(random_view *made, uint64_t *state)
{
    tocsin_tensor_view *view = &made->view;
    view->dtype = (tocsin_dtype)(1 + oracle_below(state, TOCSIN_DTYPE_FLOAT8_E8M0FNU));
    const int64_t bytes = (int64_t)tocsin_dtype_bytes(view->dtype);
    view->ndim = 1 + (uint32_t)oracle_below(state, AXES_MAX);
    view->shape = made->shape;
    view->strides = made->strides;
    view->global_shape = oracle_below(state, 3) ? made->whole : NULL;
    view->offset = view->global_shape ? made->offset : NULL;
    int64_t stride = 1;
    int64_t lowest = 0;
    int64_t highest = 0;
    for (uint32_t d = view->ndim; d-- > 0;) {
        bool is_row = d + 1 == view->ndim;
        made->shape[d] = (int64_t)oracle_below(state, is_row ? 500 : 5) + (is_row ? 64 : 1);
        made->offset[d] = (int64_t)oracle_below(state, 4);
        made->whole[d] = made->shape[d] + made->offset[d] + (int64_t)oracle_below(state, 4);
        made->strides[d] = stride;
        uint64_t kind = is_row ? 4 : oracle_below(state, 8);
        if (kind == 0)
            made->strides[d] = 0;
        else if (kind == 1)
            made->strides[d] = -stride;
        else if (kind == 2)
            made->strides[d] += (int64_t)oracle_below(state, 9);
        int64_t reach = made->strides[d] * (made->shape[d] - 1);
        lowest += reach < 0 ? reach : 0;
        highest += reach > 0 ? reach : 0;
        stride = (made->strides[d] < 0 ? -made->strides[d] : made->strides[d]) * made->shape[d];
        stride = stride > 0 ? stride : 1;
    }
    int64_t extent = (highest - lowest + 1) * bytes;
    if (extent > (int64_t)BUFFER_BYTES) {
        view->ndim = 0; /* a scalar instead */
        lowest = 0;
        extent = bytes;
    }
    size_t step = alignment(view->dtype);
    size_t slack = oracle_below(state, (BUFFER_BYTES - (size_t)extent) / step + 1) * step;
    view->data = buffer + slack - lowest * bytes;
}

/* Several tensors of any dtypes in one table. */
static void test_random_tables(void **unused)
{
    (void)unused;
    enum { TENSORS = 4 };
    uint64_t state = seed + 1;
    for (int round = 0; round < 120; ++round) {
        if (round % 40 == 0)
            refill(&state);
        random_view made[TENSORS];
        tocsin_tensor_view views[TENSORS];
        digest_sums results[TENSORS];
        for (size_t i = 0; i < TENSORS; ++i) {
            make_view(&made[i], &state);
            views[i] = made[i].view;
        }
        emulate(views, TENSORS, results, &state);
        for (size_t i = 0; i < TENSORS; ++i)
            expect(&views[i], &results[i], "a table");
    }
}

/* More tiles than a block has threads: each adds up several. */
static void test_many_tiles(void **unused)
{
    (void)unused;
    uint64_t state = seed + 3;
    refill(&state);
    const int64_t shape[2] = {1000, 17};
    const int64_t whole[2] = {1001, 33};
    const int64_t offset[2] = {1, 15};
    tocsin_tensor_view view = {.data = buffer + 4,
                               .dtype = TOCSIN_DTYPE_FLOAT32,
                               .ndim = 2,
                               .shape = shape,
                               .global_shape = whole,
                               .offset = offset};
    digest_sums actual;
    emulate(&view, 1, &actual, &state);
    expect(&view, &actual, "many tiles");
}

/* Exponents far out: a shard at the end of a whole of nearly 2^60 words. */
static void test_large_exponents(void **unused)
{
    (void)unused;
    uint64_t state = seed + 2;
    refill(&state);
    const int64_t shape[2] = {3, 5000};
    const int64_t whole[2] = {INT64_C(1) << 30, INT64_C(1) << 28};
    const int64_t offset[2] = {(INT64_C(1) << 30) - 3, (INT64_C(1) << 28) - 5000};
    tocsin_tensor_view view = {.data = buffer + 8,
                               .dtype = TOCSIN_DTYPE_COMPLEX128,
                               .ndim = 2,
                               .shape = shape,
                               .global_shape = whole,
                               .offset = offset};
    digest_sums actual;
    emulate(&view, 1, &actual, &state);
    expect(&view, &actual, "the end of 2^60 words");
}

/* ---- what is refused ------------------------------------------------------------------------ */

static void expect_refused(const tocsin_tensor_view *view, tocsin_status expected, const char *text)
{
    tocsin_digest_tiles tiles = {0};
    tocsin_error error = {0};
    assert_int_equal(tocsin_digest_tiles_add(&tiles, view, &error), expected);
    if (!strstr(error.message, text))
        fail_msg("'%s' does not say '%s'", error.message, text);
    tocsin_digest_tiles_free(&tiles);
}

static void test_refused(void **unused)
{
    (void)unused;
    const int64_t shape[2] = {1000, 1000};
    const int64_t transposed[2] = {1, 1000};
    tocsin_tensor_view view = {
        .data = buffer, .dtype = TOCSIN_DTYPE_FLOAT32, .ndim = 2, .shape = shape};
    view.strides = transposed;
    expect_refused(&view, TOCSIN_E_UNSUPPORTED, "only 4 bytes of the tensor lie side by side");
    view.strides = NULL;
    view.data = buffer + 2;
    expect_refused(&view, TOCSIN_E_UNSUPPORTED, "not a multiple of 4 bytes");
    view.data = NULL;
    expect_refused(&view, TOCSIN_E_ARGUMENT, "needs data");
    view.data = buffer; /* never read here */
    const int64_t rows[2] = {INT64_C(1) << 23, 16};
    const int64_t whole[2] = {INT64_C(1) << 23, 32};
    view.shape = rows;
    view.global_shape = whole;
    expect_refused(&view, TOCSIN_E_LIMIT, "tiles");
    const int64_t huge = INT64_C(1) << 40;
    view = (tocsin_tensor_view){
        .data = buffer, .dtype = TOCSIN_DTYPE_FLOAT32, .ndim = 1, .shape = &huge};
    expect_refused(&view, TOCSIN_E_LIMIT, "tiles");
}

static int make_buffer(void **unused)
{
    (void)unused;
    seed = test_seed(20260730);
    buffer = aligned_alloc(64, BUFFER_BYTES);
    return buffer ? 0 : -1;
}

static int free_buffer(void **unused)
{
    (void)unused;
    free(buffer);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_narrow_value), cmocka_unit_test(test_wide_special_values),
        cmocka_unit_test(test_largest_words),      cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_random_tables),      cmocka_unit_test(test_large_exponents),
        cmocka_unit_test(test_many_tiles),         cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, make_buffer, free_buffer);
}
