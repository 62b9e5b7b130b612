/* lib/tensor/dtype.c - the dtype table and the decoding of 1-byte dtypes.
 *
 * Numbers, names and sizes come from TOCSIN_DTYPE_TABLE alone; what the kernels need beyond (parts
 * of an element, encoding) stands here. fp8 formats: OCP 8-bit Floating Point Specification 1.0
 * (E4M3 without infinities, E5M2), OCP Microscaling Formats 1.0 (E8M0), and the FNUZ variants of
 * arXiv 2206.02915 (one NaN at 0x80, no infinities, no negative zero, bias larger by one).
 */
#include "tensor/tensor.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define WORDS(bytes) ((bytes) <= 4 ? 1 : (bytes) / 4)
#define LAYOUT(name, text, bytes, components, encoding)                                            \
    [TOCSIN_DTYPE_##name] = {text, bytes, components, WORDS(bytes), TOCSIN_ENCODING_##encoding},

/* The parts of the layout that the public table does not tell. */
#define PARTS_BOOL                                1, BYTE
#define PARTS_UINT8                               1, BYTE
#define PARTS_INT8                                1, BYTE
#define PARTS_INT16                               1, I16
#define PARTS_INT32                               1, I32
#define PARTS_INT64                               1, I64
#define PARTS_UINT16                              1, U16
#define PARTS_UINT32                              1, U32
#define PARTS_UINT64                              1, U64
#define PARTS_FLOAT16                             1, F16
#define PARTS_BFLOAT16                            1, BF16
#define PARTS_FLOAT32                             1, F32
#define PARTS_FLOAT64                             1, F64
#define PARTS_COMPLEX32                           2, F16_PAIR
#define PARTS_COMPLEX64                           2, F32
#define PARTS_COMPLEX128                          2, F64
#define PARTS_FLOAT8_E4M3FN                       1, BYTE
#define PARTS_FLOAT8_E5M2                         1, BYTE
#define PARTS_FLOAT8_E4M3FNUZ                     1, BYTE
#define PARTS_FLOAT8_E5M2FNUZ                     1, BYTE
#define PARTS_FLOAT8_E8M0FNU                      1, BYTE
#define PARTS_NONE                                0, BYTE

#define EXPANDED_LAYOUT(name, text, bytes, parts) LAYOUT(name, text, bytes, parts)

static const tocsin_dtype_layout layouts[] = {
#define X(number, name, text, bytes) EXPANDED_LAYOUT(name, text, bytes, PARTS_##name)
    TOCSIN_DTYPE_TABLE(X)
#undef X
};
#define LAYOUT_COUNT (sizeof layouts / sizeof layouts[0])

const tocsin_dtype_layout *tocsin_dtype_layout_of(tocsin_dtype dtype)
{
    size_t number = (size_t)dtype;
    return number < LAYOUT_COUNT && layouts[number].bytes ? &layouts[number] : NULL;
}

const char *tocsin_dtype_name(tocsin_dtype dtype)
{
    size_t number = (size_t)dtype;
    return number < LAYOUT_COUNT ? layouts[number].name : "unknown";
}

size_t tocsin_dtype_bytes(tocsin_dtype dtype)
{
    const tocsin_dtype_layout *layout = tocsin_dtype_layout_of(dtype);
    return layout ? layout->bytes : 0;
}

tocsin_dtype tocsin_dtype_from_name(const char *name)
{
    for (size_t number = 1; name && number < LAYOUT_COUNT; ++number) {
        if (strcmp(layouts[number].name, name) == 0)
            return (tocsin_dtype)number;
    }
    return TOCSIN_DTYPE_NONE;
}

/* An 8-bit float with sign, `8 - 1 - mantissa_bits` exponent bits and subnormals, no specials. */
static double minifloat_decode(uint8_t bits, int mantissa_bits, int bias)
{
    int magnitude = bits & 0x7f;
    int exponent = magnitude >> mantissa_bits;
    int mantissa = magnitude & ((1 << mantissa_bits) - 1);
    if (exponent == 0)
        exponent = 1;
    else
        mantissa |= 1 << mantissa_bits;
    double value = ldexp(mantissa, exponent - bias - mantissa_bits);
    return bits & 0x80 ? -value : value;
}

double tocsin_byte_decode(tocsin_dtype dtype, uint8_t bits)
{
    const int magnitude = bits & 0x7f;
    switch (dtype) {
    case TOCSIN_DTYPE_BOOL:
        return bits != 0;
    case TOCSIN_DTYPE_UINT8:
        return bits;
    case TOCSIN_DTYPE_INT8:
        return bits < 128 ? bits : bits - 256;
    case TOCSIN_DTYPE_FLOAT8_E4M3FN:
        return magnitude == 0x7f ? (double)NAN : minifloat_decode(bits, 3, 7);
    case TOCSIN_DTYPE_FLOAT8_E5M2:
        if (magnitude > 0x7c)
            return (double)NAN;
        if (magnitude == 0x7c)
            return bits & 0x80 ? -(double)INFINITY : (double)INFINITY;
        return minifloat_decode(bits, 2, 15);
    case TOCSIN_DTYPE_FLOAT8_E4M3FNUZ:
        return bits == 0x80 ? (double)NAN : minifloat_decode(bits, 3, 8);
    case TOCSIN_DTYPE_FLOAT8_E5M2FNUZ:
        return bits == 0x80 ? (double)NAN : minifloat_decode(bits, 2, 16);
    case TOCSIN_DTYPE_FLOAT8_E8M0FNU:
        return bits == 0xff ? (double)NAN : ldexp(1.0, bits - 127);
    default:
        assert(false && "a 1-byte dtype");
        return (double)NAN;
    }
}
