/* lib/tensor/cuda/cuda_driver.c - find the CUDA driver at run time.
 *
 * Data structure: a table of function pointers. Invariant: after a successful load all of them are
 * set. The driver's library counts its users, so loading it again is cheap, and it is the one that
 * a framework in the same process uses. Cost: some 20 symbol lookups.
 */
#include "tensor/cuda/cuda_driver.h"

#include <dlfcn.h>
#include <string.h>

#include "base/base.h"

typedef struct driver_symbol {
    const char *name;
    size_t offset; /* of the pointer in tocsin_cuda_driver */
} driver_symbol;

static const driver_symbol symbols[] = {
#define X(field, symbol, parameters) {#symbol, offsetof(tocsin_cuda_driver, field)},
    CUDA_DRIVER_TABLE(X)
#undef X
};

tocsin_status tocsin_cuda_driver_load(tocsin_cuda_driver *driver, tocsin_error *error)
{
    memset(driver, 0, sizeof *driver);
    driver->library = dlopen(CUDA_DRIVER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!driver->library) {
        const char *reason = dlerror();
        return tocsin_error_set(error, TOCSIN_E_UNSUPPORTED, "there is no CUDA driver: %s",
                                reason ? reason : CUDA_DRIVER_LIBRARY);
    }
    for (size_t i = 0; i < TOCSIN_COUNT_OF(symbols); ++i) {
        void *address = dlsym(driver->library, symbols[i].name);
        if (!address) {
            tocsin_cuda_driver_unload(driver);
            return tocsin_error_set(error, TOCSIN_E_UNSUPPORTED, "the CUDA driver has no %s",
                                    symbols[i].name);
        }
        memcpy((unsigned char *)driver + symbols[i].offset, &address, sizeof address);
    }
    return TOCSIN_OK;
}

void tocsin_cuda_driver_unload(tocsin_cuda_driver *driver)
{
    if (driver->library)
        dlclose(driver->library);
    memset(driver, 0, sizeof *driver);
}

static tocsin_status status_of(int result)
{
    switch (result) {
    case CUDA_OUT_OF_MEMORY:
        return TOCSIN_E_MEMORY;
    case CUDA_NOT_INITIALIZED:
        return TOCSIN_E_STATE;
    case CUDA_INVALID_IMAGE:
    case CUDA_NO_BINARY_FOR_GPU:
    case CUDA_INVALID_PTX:
    case CUDA_NO_JIT_COMPILER:
    case CUDA_UNSUPPORTED_PTX:
        return TOCSIN_E_UNSUPPORTED;
    default:
        return result >= CUDA_CAPTURE_UNSUPPORTED && result <= CUDA_CAPTURE_LAST ? TOCSIN_E_STATE
                                                                                 : TOCSIN_E_IO;
    }
}

tocsin_status tocsin_cuda_check(const tocsin_cuda_driver *driver, int result, const char *what,
                                tocsin_error *error)
{
    if (result == 0)
        return TOCSIN_OK;
    const char *text = NULL;
    if (driver->get_error_string(result, &text) != 0 || !text)
        text = "an error without a text";
    return tocsin_error_set(error, status_of(result), "CUDA cannot %s: %s (%d)", what, text,
                            result);
}
