/* The digest on a device where there is none, which is all that a machine without a GPU can show:
 * it is refused, with the reason. What it does where there is one: tests/cuda. */
#include "cmocka_test.h"

#include <dlfcn.h>
#include <string.h>
#include <tocsin/tensor_device.h>

#include "tensor/cuda/cuda_driver.h"
#include "tensor/cuda/digest_device.h"
#include "tensor/cuda/digest_tiles.h"

static void test_without_context(void **unused)
{
    (void)unused;
    const int64_t shape = 4;
    const float values[4] = {1, 2, 3, 4};
    tocsin_tensor_view view = {
        .data = values, .dtype = TOCSIN_DTYPE_FLOAT32, .ndim = 1, .shape = &shape};
    void *library = dlopen(CUDA_DRIVER_LIBRARY, RTLD_NOW);
    tocsin_status expected = library ? TOCSIN_E_STATE : TOCSIN_E_UNSUPPORTED;
    const char *reason = library ? "no current CUDA context" : "there is no CUDA driver";
    tocsin_device_digest *digest = (tocsin_device_digest *)&view; /* must be cleared */
    tocsin_error error = {0};
    assert_int_equal(tocsin_device_digest_open_image("", &view, 1, &digest, &error), expected);
    assert_non_null(strstr(error.message, reason));
    assert_null(digest);
    if (tocsin_digest_image_bytes > 0) {
        assert_int_equal(tocsin_device_digest_open(&view, 1, &digest, &error), expected);
        assert_non_null(strstr(error.message, reason));
    } else {
        assert_int_equal(tocsin_device_digest_open(&view, 1, &digest, &error),
                         TOCSIN_E_UNSUPPORTED);
        assert_non_null(strstr(error.message, "without nvcc"));
    }
    if (library)
        dlclose(library);
}

/* What nvcc has made, if it was there: a fat binary with the parts that it is said to have. */
static void test_image(void **unused)
{
    (void)unused;
    assert_int_equal(tocsin_digest_image_bytes > 0, tocsin_device_kernel()[0] != 0);
    if (tocsin_digest_image_bytes == 0)
        return;
    static const unsigned char magic[4] = {0x50, 0xed, 0x55, 0xba};
    assert_memory_equal(tocsin_digest_image, magic, sizeof magic);
    assert_int_equal((uintptr_t)tocsin_digest_image % 16, 0);
    assert_non_null(strstr(tocsin_device_kernel(), "compute_"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_context),
        cmocka_unit_test(test_image),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
