/* lib/tensor/cuda/cuda_driver.h - the functions of the CUDA driver that are used, without cuda.h.
 *
 * The driver's interface is stable: handles are pointers, addresses 64-bit numbers, results ints;
 * names with _v2 are those that its own header has used since CUDA 4.
 */
#ifndef TOCSIN_LIB_TENSOR_CUDA_CUDA_DRIVER_H
#define TOCSIN_LIB_TENSOR_CUDA_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>
#include <tocsin/status.h>

#define CUDA_DRIVER_LIBRARY       "libcuda.so.1"

#define CUDA_OUT_OF_MEMORY        2
#define CUDA_NOT_INITIALIZED      3
#define CUDA_INVALID_IMAGE        200
#define CUDA_NO_BINARY_FOR_GPU    209
#define CUDA_INVALID_PTX          218
#define CUDA_NO_JIT_COMPILER      221
#define CUDA_UNSUPPORTED_PTX      222
#define CUDA_NOT_READY            600
#define CUDA_CAPTURE_UNSUPPORTED  900 /* and some more up to CUDA_CAPTURE_LAST */
#define CUDA_CAPTURE_LAST         908
#define CUDA_EVENT_WITHOUT_TIMING 2
#define CUDA_HOST_PORTABLE        1

/* X(field, symbol, parameters) */
#define CUDA_DRIVER_TABLE(X)                                                                       \
    X(get_error_string, cuGetErrorString, (int, const char **))                                    \
    X(get_current, cuCtxGetCurrent, (void **))                                                     \
    X(push, cuCtxPushCurrent_v2, (void *))                                                         \
    X(pop, cuCtxPopCurrent_v2, (void **))                                                          \
    X(synchronize, cuCtxSynchronize, (void))                                                       \
    X(load_module, cuModuleLoadData, (void **, const void *))                                      \
    X(unload_module, cuModuleUnload, (void *))                                                     \
    X(get_function, cuModuleGetFunction, (void **, void *, const char *))                          \
    X(allocate, cuMemAlloc_v2, (uint64_t *, size_t))                                               \
    X(release, cuMemFree_v2, (uint64_t))                                                           \
    X(allocate_host, cuMemHostAlloc, (void **, size_t, unsigned))                                  \
    X(release_host, cuMemFreeHost, (void *))                                                       \
    X(copy_to_device, cuMemcpyHtoD_v2, (uint64_t, const void *, size_t))                           \
    X(copy_to_host, cuMemcpyDtoHAsync_v2, (void *, uint64_t, size_t, void *))                      \
    X(launch, cuLaunchKernel,                                                                      \
      (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,       \
       void **, void **))                                                                          \
    X(create_event, cuEventCreate, (void **, unsigned))                                            \
    X(destroy_event, cuEventDestroy_v2, (void *))                                                  \
    X(record_event, cuEventRecord, (void *, void *))                                               \
    X(query_event, cuEventQuery, (void *))                                                         \
    X(wait_event, cuEventSynchronize, (void *))

typedef struct tocsin_cuda_driver {
    void *library;
#define X(field, symbol, parameters) int(*field) parameters;
    CUDA_DRIVER_TABLE(X)
#undef X
} tocsin_cuda_driver;

/* E_UNSUPPORTED: there is no driver, or an unknown one. */
TOCSIN_MUST_CHECK tocsin_status tocsin_cuda_driver_load(tocsin_cuda_driver *driver,
                                                        tocsin_error *error);
void tocsin_cuda_driver_unload(tocsin_cuda_driver *driver);

/* OK for 0, else the status that fits, with the driver's own text. `what` failed. */
TOCSIN_MUST_CHECK tocsin_status tocsin_cuda_check(const tocsin_cuda_driver *driver, int result,
                                                  const char *what, tocsin_error *error);

#endif
