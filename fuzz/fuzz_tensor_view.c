/* Bytes as a description of a tensor view: refused cleanly, or digested alike by every kernel.
 *
 * Input: dtype, ndim, flags (1: strides, 2: whole and offset), start, then per axis size, stride
 * (signed), offset, room after it; the rest fills the memory of the tensor. Small descriptions stay
 * inside the buffer and are digested; others must only be refused without touching memory, so their
 * numbers are scaled far beyond what is allowed.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/tensor.h"

#define MEMORY_BYTES 4096
#define AXES_MAX     6

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct reader {
    const uint8_t *data;
    size_t left;
} reader;

static uint8_t next_byte(reader *input)
{
    if (input->left == 0)
        return 0;
    --input->left;
    return *input->data++;
}

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void compare(const tocsin_tensor_view *view, tocsin_digest_kernel *kernel)
{
    tocsin_digest a = {0}, b = {0};
    tocsin_statistics p = {0}, q = {0};
    tocsin_error error;
    tocsin_status expected = tocsin_tensor_digest_scalar(view, &a, &p, &error);
    require(tocsin_digest_with(kernel, view, &b, &q, &error) == expected);
    require(memcmp(&a, &b, sizeof a) == 0);
    require(memcmp(&p, &q, sizeof p) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    reader input = {data, size};
    int64_t shape[AXES_MAX], strides[AXES_MAX], whole[AXES_MAX], offset[AXES_MAX];
    tocsin_tensor_view view = {.dtype = (tocsin_dtype)next_byte(&input),
                               .ndim = next_byte(&input) % (AXES_MAX + 1),
                               .shape = shape};
    uint8_t flags = next_byte(&input);
    int64_t start = next_byte(&input);
    view.strides = flags & 1 ? strides : NULL;
    view.global_shape = flags & 2 ? whole : NULL;
    view.offset = flags & 2 ? offset : NULL;
    int64_t lowest = 0, highest = 0, elements = 1;
    for (uint32_t d = 0; d < view.ndim; ++d) {
        shape[d] = (int8_t)next_byte(&input);
        strides[d] = (int8_t)next_byte(&input);
        offset[d] = (int8_t)next_byte(&input);
        whole[d] = shape[d] + offset[d] + (int8_t)next_byte(&input);
        int64_t reach = shape[d] > 1 ? strides[d] * (shape[d] - 1) : 0;
        lowest += reach < 0 ? reach : 0;
        highest += reach > 0 ? reach : 0;
        elements *= shape[d] > 0 ? shape[d] : 1; /* at most 127^6 */
    }
    if (!view.strides) {
        lowest = 0;
        highest = elements - 1;
    }

    int64_t bytes = (int64_t)tocsin_dtype_bytes(view.dtype);
    bool fits =
        elements <= 4 * MEMORY_BYTES && (highest - lowest + 1) * bytes + start <= MEMORY_BYTES;
    uint8_t memory[MEMORY_BYTES] = {0};
    view.data = memory + start - lowest * bytes;
    if (!fits) { /* make it an impossible one */
        for (uint32_t d = 0; d < view.ndim; ++d)
            shape[d] *= INT64_C(1) << 55;
        for (uint32_t d = 0; d < view.ndim; ++d)
            strides[d] *= INT64_C(1) << 55;
        view.global_shape = NULL;
        view.data = NULL;
    }
    for (size_t i = (size_t)start; i < MEMORY_BYTES && input.left > 0; ++i)
        memory[i] = next_byte(&input);
    compare(&view, tocsin_digest_walk_scalar);
    if (tocsin_digest_avx2_is_supported())
        compare(&view, tocsin_digest_walk_avx2);
    if (tocsin_digest_avx512_is_supported())
        compare(&view, tocsin_digest_walk_avx512);
    return 0;
}
