/* json_write.c - JSON text from calls.
 *
 * State: the depth, and one bit per open container that says whether it needs a comma. Invariant: a
 * comma or colon is written before the item that needs it, never after. Cost: O(bytes).
 */
#include <assert.h>
#include <base/base.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void begin_item(tocsin_json *json)
{
    if (json->after_key) {
        json->after_key = false;
        return;
    }
    if (json->depth == 0)
        return;
    uint64_t bit = UINT64_C(1) << (json->depth - 1);
    if (json->filled & bit)
        tocsin_string_append_char(json->out, ',');
    json->filled |= bit;
}

static void open_container(tocsin_json *json, char bracket)
{
    begin_item(json);
    assert(json->depth < TOCSIN_JSON_DEPTH_MAX);
    ++json->depth;
    json->filled &= ~(UINT64_C(1) << (json->depth - 1));
    tocsin_string_append_char(json->out, bracket);
}

static void close_container(tocsin_json *json, char bracket)
{
    assert(json->depth > 0);
    assert(!json->after_key);
    --json->depth;
    tocsin_string_append_char(json->out, bracket);
}

void tocsin_json_begin_object(tocsin_json *json)
{
    open_container(json, '{');
}

void tocsin_json_end_object(tocsin_json *json)
{
    close_container(json, '}');
}

void tocsin_json_begin_array(tocsin_json *json)
{
    open_container(json, '[');
}

void tocsin_json_end_array(tocsin_json *json)
{
    close_container(json, ']');
}

/* Unicode 15, table 3-7. */
size_t tocsin_utf8_length(const char *bytes, size_t available)
{
    const unsigned char *text = (const unsigned char *)bytes;
    unsigned lead = text[0];
    if (lead < 0x80)
        return 1;
    size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || length > available)
        return 0;
    unsigned low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (text[1] < low || text[1] > high)
        return 0;
    for (size_t i = 2; i < length; ++i) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    }
    return length;
}

static void append_escaped(tocsin_string *out, unsigned char character)
{
    static const char letters[] = "btn?fr"; /* 8..13; vertical tab has no letter */
    if (character == '"' || character == '\\')
        tocsin_string_printf(out, "\\%c", character);
    else if (character >= 8 && character <= 13 && character != 11)
        tocsin_string_printf(out, "\\%c", letters[character - 8]);
    else
        tocsin_string_printf(out, "\\u%04x", character);
}

static void append_quoted(tocsin_string *out, const char *text, size_t bytes)
{
    assert(text || bytes == 0);
    const unsigned char *rest = (const unsigned char *)text;
    size_t plain = 0; /* bytes at `rest` that stand for themselves and are not yet appended */
    tocsin_string_append_char(out, '"');
    for (size_t left = bytes; left > plain;) {
        unsigned char next = rest[plain];
        size_t length = tocsin_utf8_length((const char *)rest + plain, left - plain);
        if (length > 0 && next >= 0x20 && next != '"' && next != '\\' && next != 0x7f) {
            plain += length;
            continue;
        }
        tocsin_string_append(out, rest, plain);
        if (length == 0)
            tocsin_string_append_text(out, "\xef\xbf\xbd");
        else
            append_escaped(out, next);
        rest += plain + 1;
        left -= plain + 1;
        plain = 0;
    }
    tocsin_string_append(out, rest, plain);
    tocsin_string_append_char(out, '"');
}

void tocsin_json_key(tocsin_json *json, const char *key)
{
    assert(json->depth > 0 && !json->after_key);
    begin_item(json);
    append_quoted(json->out, key, strlen(key));
    tocsin_string_append_char(json->out, ':');
    json->after_key = true;
}

void tocsin_json_string(tocsin_json *json, const char *text, size_t bytes)
{
    begin_item(json);
    append_quoted(json->out, text, bytes);
}

void tocsin_json_text(tocsin_json *json, const char *text)
{
    if (text)
        tocsin_json_string(json, text, strlen(text));
    else
        tocsin_json_null(json);
}

void tocsin_json_integer(tocsin_json *json, int64_t value)
{
    begin_item(json);
    tocsin_string_printf(json->out, "%" PRId64, value);
}

void tocsin_json_unsigned(tocsin_json *json, uint64_t value)
{
    begin_item(json);
    tocsin_string_printf(json->out, "%" PRIu64, value);
}

void tocsin_json_bool(tocsin_json *json, bool value)
{
    begin_item(json);
    tocsin_string_append_text(json->out, value ? "true" : "false");
}

void tocsin_json_verbatim(tocsin_json *json, const char *text, size_t bytes)
{
    begin_item(json);
    tocsin_string_append(json->out, text, bytes);
}

void tocsin_json_null(tocsin_json *json)
{
    begin_item(json);
    tocsin_string_append_text(json->out, "null");
}

void tocsin_json_real(tocsin_json *json, double value)
{
    char text[TOCSIN_REAL_TEXT_BYTES];
    size_t bytes = tocsin_real_text(value, text);
    begin_item(json);
    if (isfinite(value))
        tocsin_string_append(json->out, text, bytes);
    else
        tocsin_string_append_text(json->out, "null");
}

/* Replace the locale's decimal point (one or more bytes that no number contains) by ".". Returns
 * the new length; *has_point says whether the text is not that of an integer. */
static size_t use_plain_point(char *text, bool *has_point)
{
    size_t kept = 0;
    bool in_point = false;
    *has_point = false;
    for (size_t i = 0; text[i] != 0; ++i) {
        bool plain = strchr("0123456789+-e", text[i]) != NULL;
        *has_point |= !plain || text[i] == 'e';
        if (plain)
            text[kept++] = text[i];
        else if (!in_point)
            text[kept++] = '.';
        in_point = !plain;
    }
    text[kept] = 0;
    return kept;
}

size_t tocsin_real_text(double value, char text[TOCSIN_REAL_TEXT_BYTES])
{
    if (!isfinite(value)) {
        const char *name = isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
        memcpy(text, name, strlen(name) + 1);
        return strlen(name);
    }
    /* 17 digits always suffice, 15 often do, and %g drops trailing zeros. */
    for (int digits = 15; digits <= 17; ++digits) {
        int length = snprintf(text, TOCSIN_REAL_TEXT_BYTES, "%.*g", digits, value);
        assert(length > 0 && length < TOCSIN_REAL_TEXT_BYTES - 2);
        (void)length;
        if (strtod(text, NULL) == value)
            break;
    }
    bool has_point = false;
    size_t bytes = use_plain_point(text, &has_point);
    if (!has_point) {
        memcpy(text + bytes, ".0", 3);
        bytes += 2;
    }
    assert(bytes < TOCSIN_REAL_TEXT_BYTES);
    return bytes;
}

void tocsin_json_put_text(tocsin_json *json, const char *key, const char *text)
{
    tocsin_json_key(json, key);
    tocsin_json_text(json, text);
}

void tocsin_json_put_unsigned(tocsin_json *json, const char *key, uint64_t value)
{
    tocsin_json_key(json, key);
    tocsin_json_unsigned(json, value);
}
