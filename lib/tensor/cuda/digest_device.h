/* lib/tensor/cuda/digest_device.h - the digest on a device, by a given image of the kernels. */
#ifndef TOCSIN_LIB_TENSOR_CUDA_DIGEST_DEVICE_H
#define TOCSIN_LIB_TENSOR_CUDA_DIGEST_DEVICE_H

#include <tocsin/tensor_device.h>

/* tocsin_device_digest_open with these bytes instead of those of the build. */
TOCSIN_MUST_CHECK tocsin_status tocsin_device_digest_open_image(const void *image,
                                                                const tocsin_tensor_view *views,
                                                                size_t count,
                                                                tocsin_device_digest **opened,
                                                                tocsin_error *error);

#endif
