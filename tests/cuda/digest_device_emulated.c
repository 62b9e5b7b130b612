/* The digest on a device, from _open to _close, against the emulated driver: the same results as
 * the scalar kernel, step after step; read no earlier than they are there; every failing call of
 * the driver reported, and nothing kept after it. ctest runs it where dlopen finds the emulated
 * driver.
 */
#include "cmocka_test.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "cuda/emulated_driver.h"
#include "every_fault.h"
#include "prop/digest_oracle.h"
#include "tensor/cuda/cuda_driver.h"
#include "tensor/cuda/digest_device.h"

#define TENSORS 5

static emulated_driver_control *control;
static void *driver;
static const char image[] = "the emulated driver has its own kernels";

static unsigned char *memory; /* "on the device" */
#define MEMORY_BYTES ((size_t)1 << 19)

static const int64_t shapes[TENSORS][2] = {{100, 130}, {0, 7}, {3, 40000}, {1, 1}, {20, 80}};
static const int64_t shard_whole[2] = {25, 100};
static const int64_t shard_offset[2] = {5, 17};

static void make_views(tocsin_tensor_view *views)
{
    static const tocsin_dtype dtypes[TENSORS] = {TOCSIN_DTYPE_FLOAT32, TOCSIN_DTYPE_BFLOAT16,
                                                 TOCSIN_DTYPE_BFLOAT16, TOCSIN_DTYPE_FLOAT64,
                                                 TOCSIN_DTYPE_FLOAT8_E4M3FN};
    static const size_t offsets[TENSORS] = {0, 0, 65538, 400000, 410003};
    for (size_t i = 0; i < TENSORS; ++i)
        views[i] = (tocsin_tensor_view){
            .data = memory + offsets[i], .dtype = dtypes[i], .ndim = 2, .shape = shapes[i]};
    views[TENSORS - 1].global_shape = shard_whole;
    views[TENSORS - 1].offset = shard_offset;
}

static void refill(uint64_t number)
{
    uint64_t state = number;
    for (size_t i = 0; i < MEMORY_BYTES; i += 8) {
        uint64_t bits = oracle_random(&state);
        memcpy(memory + i, &bits, 8);
    }
}

static void expect_results(const tocsin_tensor_view *views, const tocsin_device_result *results)
{
    for (size_t i = 0; i < TENSORS; ++i) {
        tocsin_digest digest;
        tocsin_statistics statistics;
        assert_int_equal(tocsin_tensor_digest_scalar(&views[i], &digest, &statistics, NULL), 0);
        assert_memory_equal(&digest, &results[i].digest, sizeof digest);
        assert_int_equal(statistics.nan_count, results[i].nan_count);
        assert_int_equal(statistics.inf_count, results[i].inf_count);
    }
}

static tocsin_device_digest *open_all(const tocsin_tensor_view *views)
{
    tocsin_device_digest *digest = NULL;
    tocsin_error error;
    if (tocsin_device_digest_open_image(image, views, TENSORS, &digest, &error) != TOCSIN_OK)
        fail_msg("%s", error.message);
    return digest;
}

/* The tensors change between steps; a result belongs to the contents when the stream got there. */
static void test_steps(void **unused)
{
    (void)unused;
    tocsin_tensor_view views[TENSORS];
    make_views(views);
    refill(1);
    tocsin_device_digest *digest = open_all(views);
    uint64_t blocking = control->blocking_calls;
    tocsin_device_result results[TENSORS];
    memset(results, 0x77, sizeof results);
    bool is_there = true;
    assert_int_equal(tocsin_device_digest_read(digest, true, results, &is_there, NULL),
                     TOCSIN_E_STATE);
    for (uint64_t step = 0; step < 6; ++step) {
        refill(step);
        assert_int_equal(tocsin_device_digest_launch(digest, NULL, NULL), TOCSIN_OK);
        assert_int_equal(tocsin_device_digest_fetch(digest, NULL, NULL), TOCSIN_OK);
        unsigned looked = 0;
        for (is_there = false; !is_there; ++looked) {
            tocsin_device_result before = results[0];
            assert_int_equal(tocsin_device_digest_read(digest, false, results, &is_there, NULL),
                             TOCSIN_OK);
            if (!is_there)
                assert_memory_equal(&before, &results[0], sizeof before);
        }
        assert_true(looked > 1); /* it was not there at once */
        expect_results(views, results);
        const void *on_device = (const void *)(uintptr_t)tocsin_device_digest_results(digest);
        assert_memory_equal(on_device, results, sizeof results);
    }
    assert_int_equal(control->blocking_calls, blocking); /* a graph could have been captured */
    refill(99);
    assert_int_equal(tocsin_device_digest_launch(digest, NULL, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_device_digest_fetch(digest, NULL, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_device_digest_read(digest, true, results, &is_there, NULL), TOCSIN_OK);
    assert_true(is_there);
    expect_results(views, results);
    tocsin_device_digest_close(digest);
    assert_int_equal(control->held, 0);
}

static void test_no_tensors(void **unused)
{
    (void)unused;
    tocsin_device_digest *digest = NULL;
    bool is_there = false;
    assert_int_equal(tocsin_device_digest_open_image(image, NULL, 0, &digest, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_device_digest_launch(digest, NULL, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_device_digest_fetch(digest, NULL, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_device_digest_read(digest, false, NULL, &is_there, NULL), TOCSIN_OK);
    assert_true(is_there);
    tocsin_device_digest_close(digest);
    tocsin_device_digest_close(NULL);
    assert_int_equal(control->held, 0);
}

static tocsin_status one_step(const tocsin_tensor_view *views, tocsin_error *error)
{
    tocsin_device_digest *digest = NULL;
    tocsin_device_result results[TENSORS];
    bool is_there = false;
    tocsin_status status = tocsin_device_digest_open_image(image, views, TENSORS, &digest, error);
    assert_true((status == TOCSIN_OK) == (digest != NULL));
    if (status == TOCSIN_OK)
        status = tocsin_device_digest_launch(digest, NULL, error);
    if (status == TOCSIN_OK)
        status = tocsin_device_digest_fetch(digest, NULL, error);
    if (status == TOCSIN_OK)
        status = tocsin_device_digest_read(digest, true, results, &is_there, error);
    assert_int_equal(is_there, status == TOCSIN_OK);
    tocsin_device_digest_close(digest);
    return status;
}

/* Every call of the driver that can fail, in turn, and each kind of failure. */
static void test_failing_driver(void **unused)
{
    (void)unused;
    static const struct {
        int failure;
        tocsin_status status;
    } failures[] = {{CUDA_OUT_OF_MEMORY, TOCSIN_E_MEMORY},
                    {CUDA_INVALID_IMAGE, TOCSIN_E_UNSUPPORTED},
                    {901, TOCSIN_E_STATE},
                    {700, TOCSIN_E_IO}};
    tocsin_tensor_view views[TENSORS];
    make_views(views);
    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; ++i) {
        control->failure = failures[i].failure;
        for (uint64_t nth = 1;; ++nth) {
            tocsin_error error = {0};
            control->call_count = 0;
            control->failing_call = nth;
            tocsin_status status = one_step(views, &error);
            control->failing_call = 0;
            assert_int_equal(control->held, 0);
            if (status == TOCSIN_OK) { /* only giving back is left, and nobody hears of that */
                assert_true(nth > 18);
                break;
            }
            assert_int_equal(status, failures[i].status);
            assert_non_null(strstr(error.message, "CUDA cannot"));
        }
    }
}

static tocsin_status faulty_step(void *context, tocsin_error *error)
{
    return one_step(context, error);
}

/* Every allocation on the host. */
static void test_no_memory(void **unused)
{
    (void)unused;
    tocsin_tensor_view views[TENSORS];
    make_views(views);
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, faulty_step, views) > 2);
    assert_int_equal(control->held, 0);
}

static void test_no_context(void **unused)
{
    (void)unused;
    tocsin_device_digest *digest = NULL;
    tocsin_error error = {0};
    control->has_no_context = 1;
    assert_int_equal(tocsin_device_digest_open_image(image, NULL, 0, &digest, &error),
                     TOCSIN_E_STATE);
    assert_non_null(strstr(error.message, "no current CUDA context"));
    assert_null(digest);
    control->has_no_context = 0;
    control->call_count = 0;
    control->failing_call = 1;
    control->failure = CUDA_NOT_INITIALIZED; /* nobody has called cuInit */
    assert_int_equal(tocsin_device_digest_open_image(image, NULL, 0, &digest, &error),
                     TOCSIN_E_STATE);
    control->failing_call = 0;
    assert_int_equal(control->held, 0);
}

static int find_driver(void **unused)
{
    (void)unused;
    driver = dlopen(CUDA_DRIVER_LIBRARY, RTLD_NOW);
    control = driver ? dlsym(driver, "emulated_control") : NULL;
    if (!control) {
        print_error("%s is not the emulated one\n", CUDA_DRIVER_LIBRARY);
        return -1;
    }
    memory = aligned_alloc(64, MEMORY_BYTES);
    return memory ? 0 : -1;
}

static int free_memory(void **unused)
{
    (void)unused;
    free(memory);
    return dlclose(driver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),          cmocka_unit_test(test_no_tensors),
        cmocka_unit_test(test_failing_driver), cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_no_context),
    };
    return cmocka_run_group_tests(tests, find_driver, free_memory);
}
