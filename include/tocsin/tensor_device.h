/* tocsin/tensor_device.h - digests of tensors in the memory of an NVIDIA GPU, on a stream.
 *
 * The digest is that of tocsin/tensor.h, bit for bit; NaN and infinities are counted in the same
 * pass. Tensors are named once (_open), which allocates, copies and waits; then each _launch adds
 * two kernels to the caller's stream and nothing else: no allocation, no waiting, no copy. It may
 * be captured into a CUDA graph. _fetch adds a small copy to the host and an event; _read looks
 * whether it has arrived, so that a training loop reads a step later without ever stopping the
 * device.
 *
 *     open(views) -> launch(stream), fetch(stream) ... read() -> launch(stream), ... -> close
 *
 * The driver (libcuda.so.1) is loaded when it is there; the library neither links nor needs it. The
 * kernel is built in where the build had nvcc (docs/gpu.md).
 *
 * Covered: any dtype; tensors and shards (global_shape, offset) that are contiguous, or whose rows
 * are, with at least 64 bytes a row; addresses that are multiples of the dtype's component. Others
 * are refused by _open: copy them to a contiguous tensor first.
 *
 * Threads: one object belongs to one thread at a time. Errors of the driver are reported by its own
 * text; E_IO where nothing fits better.
 */
#ifndef TOCSIN_TENSOR_DEVICE_H
#define TOCSIN_TENSOR_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tocsin/status.h>
#include <tocsin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tocsin_device_digest tocsin_device_digest;

/* What is known of one tensor: 40 bytes, on the device as well. */
typedef struct tocsin_device_result {
    tocsin_digest digest;
    uint64_t nan_count;
    uint64_t inf_count;
} tocsin_device_result;

/* For which architectures the kernel was compiled into this library: "sm_90 compute_75"; compute_75
 * runs, translated by the driver, on that and all later ones. "" when it was built without. */
TOCSIN_API const char *tocsin_device_kernel(void);

/* Prepare the digests of `count` tensors. `data` of a view is an address on the device of the
 * calling thread's current CUDA context; the memory must stay there until _close, its contents may
 * change. Waits for the device; not allowed while the thread captures a graph.
 * Errors: those of tocsin_tensor_digest; E_UNSUPPORTED (no kernel in this build, no driver, a
 * driver that cannot run it, a tensor that is not covered), E_STATE (no current context), E_LIMIT
 * (more than 2^20 tensors or 2^22 tiles of 128 KiB), E_MEMORY (of host or device). */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status
tocsin_device_digest_open(const tocsin_tensor_view *views, size_t count,
                          tocsin_device_digest **opened, tocsin_error *error);

/* Digest all tensors as they are when the stream gets there. `stream` is a CUstream or cudaStream_t
 * of the context of _open, NULL the default one. Two launches whose work may overlap need two
 * objects. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_device_digest_launch(tocsin_device_digest *digest,
                                                                       void *stream,
                                                                       tocsin_error *error);

/* Copy the results to the host when the stream gets there; not while it is captured. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_device_digest_fetch(tocsin_device_digest *digest,
                                                                      void *stream,
                                                                      tocsin_error *error);

/* The results of the last _fetch, one a tensor, in the order of the views. *is_there: whether they
 * have arrived; if not, `results` is unchanged, and with `wait` the thread waits instead.
 * Errors: E_STATE (nothing was fetched), whatever failed on the device. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_device_digest_read(tocsin_device_digest *digest,
                                                                     bool wait,
                                                                     tocsin_device_result *results,
                                                                     bool *is_there,
                                                                     tocsin_error *error);

/* Address of the results on the device, valid where the stream has passed _launch. */
TOCSIN_API uint64_t tocsin_device_digest_results(const tocsin_device_digest *digest);

/* Wait for the device and free everything; not while the thread captures a graph. Accepts NULL. */
TOCSIN_API void tocsin_device_digest_close(tocsin_device_digest *digest);

#ifdef __cplusplus
}
#endif
#endif
