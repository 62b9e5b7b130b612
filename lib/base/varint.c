/* varint.c - reading LEB128 from bytes that may be hostile. */
#include <assert.h>
#include <base/base.h>

size_t tocsin_varint_get(const uint8_t *bytes, size_t available, uint64_t *value)
{
    assert(bytes || available == 0);
    assert(value);
    uint64_t result = 0;
    for (size_t i = 0; i < available && i < TOCSIN_VARINT_BYTES_MAX; ++i) {
        uint64_t digit = bytes[i] & 0x7fU;
        if (i == TOCSIN_VARINT_BYTES_MAX - 1 && digit > 1) /* bits 63.. of the tenth byte */
            return 0;
        result |= digit << (7 * i);
        if (!(bytes[i] & 0x80)) {
            *value = result;
            return i + 1;
        }
    }
    return 0;
}
