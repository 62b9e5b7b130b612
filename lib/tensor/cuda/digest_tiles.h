/* lib/tensor/cuda/digest_tiles.h - what the GPU kernel is told: tiles, ranges, constants. */
#ifndef TOCSIN_LIB_TENSOR_CUDA_DIGEST_TILES_H
#define TOCSIN_LIB_TENSOR_CUDA_DIGEST_TILES_H

#include "base/base.h"
#include "tensor/cuda/digest_kernel.h"
#include "tensor/tensor.h"

#define TOCSIN_DEVICE_TENSORS_MAX   ((size_t)1 << 20)
#define TOCSIN_DEVICE_TILES_MAX     ((size_t)1 << 22) /* 512 GiB of whole tiles */
#define TOCSIN_DEVICE_RUN_BYTES_MIN 64

/* All tensors of one launch. Zero is empty. */
typedef struct tocsin_digest_tiles {
    TOCSIN_VEC(digest_tile) tiles;
    TOCSIN_VEC(digest_range) ranges; /* one a tensor, in the order in which they were added */
} tocsin_digest_tiles;

/* Append a tensor in the memory of a device; nothing of it is read. Errors: those of
 * tocsin_tensor_digest, E_UNSUPPORTED where the kernel would be no use (see tensor_device.h),
 * E_LIMIT, E_MEMORY. After an error the tiles hold a part of it: free them. */
tocsin_status tocsin_digest_tiles_add(tocsin_digest_tiles *tiles, const tocsin_tensor_view *view,
                                      tocsin_error *error);
void tocsin_digest_tiles_free(tocsin_digest_tiles *tiles);

digest_constants tocsin_digest_constants(void);

/* The class of a dtype's components: an index into digest_constants.classes. */
uint32_t tocsin_digest_number_class(tocsin_dtype dtype);

/* The compiled kernels: fat binary; no bytes where the build had no nvcc. Its parts are listed as
 * "sm_90 compute_75"; "" when there are none. Made by CMake. */
extern const unsigned char tocsin_digest_image[];
extern const size_t tocsin_digest_image_bytes;
extern const char tocsin_digest_image_parts[];

#endif
