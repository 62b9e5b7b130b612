/* protobuf.c - fields of a protobuf message (protobuf.h). A field is its number and wire type as
 * one varint, then its value. Cost: one copy of each value. */
#include "report/protobuf.h"

enum { VARINT = 0, FIXED64 = 1, BYTES = 2 };

static void put_varint(tocsin_string *message, uint64_t value)
{
    uint8_t bytes[TOCSIN_VARINT_BYTES_MAX];
    tocsin_string_append(message, bytes, tocsin_varint_put(bytes, value));
}

static void put_tag(tocsin_string *message, uint32_t field, uint32_t wire)
{
    put_varint(message, (uint64_t)field << 3 | wire);
}

void tocsin_protobuf_varint(tocsin_string *message, uint32_t field, uint64_t value)
{
    put_tag(message, field, VARINT);
    put_varint(message, value);
}

void tocsin_protobuf_fixed64(tocsin_string *message, uint32_t field, uint64_t value)
{
    uint8_t bytes[8];
    for (unsigned k = 0; k < 8; ++k)
        bytes[k] = (uint8_t)(value >> 8 * k);
    put_tag(message, field, FIXED64);
    tocsin_string_append(message, bytes, sizeof bytes);
}

void tocsin_protobuf_bytes(tocsin_string *message, uint32_t field, const void *bytes, size_t count)
{
    put_tag(message, field, BYTES);
    put_varint(message, count);
    tocsin_string_append(message, bytes, count);
}

void tocsin_protobuf_text(tocsin_string *message, uint32_t field, const char *text)
{
    size_t bytes = strlen(text);
    put_tag(message, field, BYTES);
    put_varint(message, bytes);
    for (size_t at = 0; at < bytes;) {
        size_t length = tocsin_utf8_length(text + at, bytes - at);
        if (length > 0)
            tocsin_string_append(message, text + at, length);
        else
            tocsin_string_append_char(message, '?');
        at += length > 0 ? length : 1;
    }
}

void tocsin_protobuf_message(tocsin_string *message, uint32_t field, tocsin_string *inner)
{
    if (inner->status != TOCSIN_OK && message->status == TOCSIN_OK)
        message->status = inner->status;
    tocsin_protobuf_bytes(message, field, tocsin_string_text(inner), inner->bytes);
    tocsin_string_clear(inner);
}
