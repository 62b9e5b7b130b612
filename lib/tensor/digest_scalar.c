/* lib/tensor/digest_scalar.c - the reference kernel: one element after the other.
 *
 * Written to be read next to docs/digest.md, not to be fast; every other kernel must agree with it
 * in every bit of the tally. Cost: about 10 ns an element.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "tensor/mersenne61.h"
#include "tensor/tensor.h"

/* The first `bytes` bytes as a little-endian number, whatever the alignment and the host. */
static uint64_t load_bits(const unsigned char *bytes, size_t count)
{
    uint64_t bits = 0;
    for (size_t i = count; i-- > 0;)
        bits = bits << 8 | bytes[i];
    return bits;
}

/* IEEE 754 binary16. */
static double half_decode(uint64_t bits)
{
    int exponent = (int)(bits >> 10 & 0x1f);
    int mantissa = (int)(bits & 0x3ff);
    double value;
    if (exponent == 0x1f)
        value = mantissa ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        value = ldexp(mantissa, -24);
    else
        value = ldexp(mantissa | 0x400, exponent - 25);
    return bits & 0x8000 ? -value : value;
}

static double single_decode(uint64_t bits)
{
    uint32_t narrow = (uint32_t)bits;
    float value;
    memcpy(&value, &narrow, sizeof value);
    return (double)value;
}

static double double_decode(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double component_decode(uint64_t bits, tocsin_encoding encoding)
{
    switch (encoding) {
    case TOCSIN_ENCODING_I16:
        return (int16_t)bits;
    case TOCSIN_ENCODING_I32:
        return (int32_t)bits;
    case TOCSIN_ENCODING_I64:
        return (double)(int64_t)bits;
    case TOCSIN_ENCODING_U16:
    case TOCSIN_ENCODING_U32:
    case TOCSIN_ENCODING_U64:
        return (double)bits;
    case TOCSIN_ENCODING_F16:
    case TOCSIN_ENCODING_F16_PAIR:
        return half_decode(bits);
    case TOCSIN_ENCODING_BF16:
        return single_decode(bits << 16);
    case TOCSIN_ENCODING_F32:
        return single_decode(bits);
    case TOCSIN_ENCODING_F64:
        return double_decode(bits);
    case TOCSIN_ENCODING_BYTE:
        break;
    }
    assert(false && "bytes are counted, not decoded");
    return 0;
}

static void count_value(tocsin_tally *tally, double value, size_t lane)
{
    if (isnan(value)) {
        ++tally->nan_count;
    } else if (isinf(value)) {
        ++tally->inf_count;
    } else {
        tally->zero_count += value == 0;
        tally->absmax = fmax(tally->absmax, fabs(value));
        tally->lanes[lane] = fma(value, value, tally->lanes[lane]);
    }
}

static void count_element(tocsin_tally *tally, const unsigned char *element,
                          const tocsin_dtype_layout *layout, size_t index_in_tile)
{
    size_t component_bytes = (size_t)layout->bytes / layout->components;
    if (layout->encoding == TOCSIN_ENCODING_BYTE) {
        ++tally->histogram[*element];
        return;
    }
    for (size_t c = 0; c < layout->components; ++c) {
        uint64_t bits = load_bits(element + c * component_bytes, component_bytes);
        size_t component = index_in_tile * layout->components + c;
        count_value(tally, component_decode(bits, (tocsin_encoding)layout->encoding),
                    component % TOCSIN_LANES);
    }
}

void tocsin_digest_walk_scalar(tocsin_walk *walk, tocsin_tally *tally)
{
    const tocsin_dtype_layout *layout = walk->layout;
    const size_t words_per_element = layout->words_per_element;
    const size_t word_bytes = layout->bytes < 4 ? layout->bytes : 4;
    tocsin_tile tile;
    while (tocsin_walk_next(walk, &tile)) {
        for (size_t k = 0; k < tile.element_count; ++k) {
            const unsigned char *element = tile.base + walk->offsets[k];
            for (size_t w = 0; w < words_per_element; ++w) {
                uint64_t word = load_bits(element + w * word_bytes, word_bytes);
                uint64_t weight = m61_mul(tile.weight, walk->weights[k * words_per_element + w]);
                tally->sum += word;
                tally->exclusive ^= word;
                tally->polynomial = m61_add(tally->polynomial, m61_mul(word, weight));
            }
            count_element(tally, element, layout, k);
        }
    }
}
