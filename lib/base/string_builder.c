/* string_builder.c - text that grows at its end.
 *
 * Invariant: while text is not NULL, text[bytes] == 0 and bytes < capacity. The first failure stays
 * in `status` and makes later appends do nothing, so that a text is never missing its middle. Cost:
 * amortised O(1) per byte.
 */
#include <assert.h>
#include <base/base.h>
#include <stdio.h>

#define LIMIT_BYTES_DEFAULT ((size_t)1 << 30)

static bool reserve(tocsin_string *string, size_t more)
{
    if (string->status != TOCSIN_OK)
        return false;
    size_t limit = string->limit_bytes ? string->limit_bytes : LIMIT_BYTES_DEFAULT;
    assert(limit < SIZE_MAX);
    if (string->bytes > limit || more > limit - string->bytes) {
        string->status = TOCSIN_E_LIMIT;
        return false;
    }
    if (!tocsin_vec_grow(&string->text, &string->capacity, string->bytes, more + 1, 1)) {
        string->status = TOCSIN_E_MEMORY;
        return false;
    }
    return true;
}

void tocsin_string_append(tocsin_string *string, const void *bytes, size_t count)
{
    if (!reserve(string, count))
        return;
    if (count)
        memcpy(string->text + string->bytes, bytes, count);
    string->bytes += count;
    string->text[string->bytes] = 0;
    assert(string->bytes < string->capacity);
}

void tocsin_string_append_text(tocsin_string *string, const char *text)
{
    tocsin_string_append(string, text, strlen(text));
}

void tocsin_string_append_char(tocsin_string *string, char character)
{
    tocsin_string_append(string, &character, 1);
}

void tocsin_string_printf(tocsin_string *string, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    tocsin_string_vprintf(string, format, arguments);
    va_end(arguments);
}

void tocsin_string_vprintf(tocsin_string *string, const char *format, va_list arguments)
{
    char small[256];
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(small, sizeof small, format, arguments);
    assert(length >= 0 && "a format that cannot be printed");
    size_t bytes = length > 0 ? (size_t)length : 0;
    if (bytes < sizeof small) {
        tocsin_string_append(string, small, bytes);
    } else if (reserve(string, bytes)) {
        vsnprintf(string->text + string->bytes, bytes + 1, format, again);
        string->bytes += bytes;
    }
    va_end(again);
}

const char *tocsin_string_text(const tocsin_string *string)
{
    return string->text ? string->text : "";
}

tocsin_status tocsin_string_check(const tocsin_string *string, tocsin_error *error)
{
    if (string->status == TOCSIN_OK)
        return TOCSIN_OK;
    if (string->status == TOCSIN_E_MEMORY)
        return tocsin_error_memory(error);
    size_t limit = string->limit_bytes ? string->limit_bytes : LIMIT_BYTES_DEFAULT;
    return tocsin_error_set(error, string->status, "a text is longer than %zu bytes", limit);
}

void tocsin_string_clear(tocsin_string *string)
{
    string->bytes = 0;
    string->status = TOCSIN_OK;
    if (string->text)
        string->text[0] = 0;
}

void tocsin_string_free(tocsin_string *string)
{
    tocsin_free(string->text);
    *string = (tocsin_string){.limit_bytes = string->limit_bytes};
}
