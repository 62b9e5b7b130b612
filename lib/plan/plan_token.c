/* plan_token.c - words and numbers of the `.plan` text.
 *
 * A cursor over one line in memory; nothing is copied but quoted words with escapes. Every error
 * carries the line's number and the byte's offset in the file.
 */
#include "plan/plan_text.h"

#include <assert.h>
#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <tocsin/tensor.h>

#define N TOCSIN_TOKEN_NAME
#define W TOCSIN_TOKEN_WORD
#define D TOCSIN_TOKEN_DIGIT
#define I TOCSIN_TOKEN_IDENTIFIER
/* clang-format off */
const uint8_t tocsin_token_class[256] = {
    ['A'] = N|W|I, ['B'] = N|W|I, ['C'] = N|W|I, ['D'] = N|W|I, ['E'] = N|W|I, ['F'] = N|W|I,
    ['G'] = N|W|I, ['H'] = N|W|I, ['I'] = N|W|I, ['J'] = N|W|I, ['K'] = N|W|I, ['L'] = N|W|I,
    ['M'] = N|W|I, ['N'] = N|W|I, ['O'] = N|W|I, ['P'] = N|W|I, ['Q'] = N|W|I, ['R'] = N|W|I,
    ['S'] = N|W|I, ['T'] = N|W|I, ['U'] = N|W|I, ['V'] = N|W|I, ['W'] = N|W|I, ['X'] = N|W|I,
    ['Y'] = N|W|I, ['Z'] = N|W|I,
    ['a'] = N|W|I, ['b'] = N|W|I, ['c'] = N|W|I, ['d'] = N|W|I, ['e'] = N|W|I, ['f'] = N|W|I,
    ['g'] = N|W|I, ['h'] = N|W|I, ['i'] = N|W|I, ['j'] = N|W|I, ['k'] = N|W|I, ['l'] = N|W|I,
    ['m'] = N|W|I, ['n'] = N|W|I, ['o'] = N|W|I, ['p'] = N|W|I, ['q'] = N|W|I, ['r'] = N|W|I,
    ['s'] = N|W|I, ['t'] = N|W|I, ['u'] = N|W|I, ['v'] = N|W|I, ['w'] = N|W|I, ['x'] = N|W|I,
    ['y'] = N|W|I, ['z'] = N|W|I,
    ['0'] = N|W|I|D, ['1'] = N|W|I|D, ['2'] = N|W|I|D, ['3'] = N|W|I|D, ['4'] = N|W|I|D,
    ['5'] = N|W|I|D, ['6'] = N|W|I|D, ['7'] = N|W|I|D, ['8'] = N|W|I|D, ['9'] = N|W|I|D,
    ['_'] = N|W|I, ['.'] = N|W, ['-'] = N|W, ['/'] = N|W,
    [':'] = W, ['<'] = W, ['>'] = W, ['['] = W, [']'] = W, ['('] = W, [')'] = W, ['+'] = W,
    ['*'] = W,
};
/* clang-format on */
#undef N
#undef W
#undef D
#undef I

/* ---- errors -----------------------------------------------------------------------------------
 */

tocsin_status tocsin_token_fail(tocsin_plan_reader *r, tocsin_status status, const char *format,
                                ...)
{
    char message[TOCSIN_ERROR_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    unsigned long long line = r->line_number ? r->line_number : 1; /* an empty text has one, too */
    return tocsin_error_at(r->error, status, r->name, r->at - r->begin, "line %llu: %s", line,
                           message);
}

tocsin_status tocsin_token_located(tocsin_plan_reader *r, tocsin_status status)
{
    if (status != TOCSIN_OK)
        tocsin_token_fail(r, status, "%s", r->inner.message);
    return status;
}

tocsin_status tocsin_token_expect(tocsin_plan_reader *r, char c)
{
    if (tocsin_token_accept(r, c))
        return TOCSIN_OK;
    return tocsin_token_fail(r, TOCSIN_E_FORMAT, "expected %c", c);
}

tocsin_status tocsin_token_expect_end(tocsin_plan_reader *r)
{
    if (tocsin_token_at_end(r))
        return TOCSIN_OK;
    return tocsin_token_fail(r, TOCSIN_E_FORMAT, "expected the end of the line");
}

/* ---- words ------------------------------------------------------------------------------------
 */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One escape after its backslash: \" \\ \xHH. */
static tocsin_status append_escape(tocsin_plan_reader *r)
{
    size_t left = (size_t)(r->line_end - r->at);
    if (left >= 1 && (*r->at == '"' || *r->at == '\\')) {
        tocsin_string_append_char(&r->word, *r->at++);
        return TOCSIN_OK;
    }
    int high = left >= 3 && *r->at == 'x' ? hex_digit(r->at[1]) : -1;
    int low = high >= 0 ? hex_digit(r->at[2]) : -1;
    if (low < 0)
        return tocsin_token_fail(r, TOCSIN_E_FORMAT,
                                 "an escape is \\\", \\\\ or \\x and two digits of 0-9 a-f");
    tocsin_string_append_char(&r->word, (char)(high * 16 + low));
    r->at += 3;
    return TOCSIN_OK;
}

/* After the opening quote. */
static tocsin_status read_quoted(tocsin_plan_reader *r, const char **word, size_t *bytes)
{
    const char *begin = r->at;
    bool escaped = false;
    while (r->at < r->line_end && *r->at != '"') {
        unsigned char c = (unsigned char)*r->at;
        if (c < 0x20 || c == 0x7f)
            return tocsin_token_fail(r, TOCSIN_E_FORMAT, "a control character in a quoted word");
        if (c == '\\') {
            if (!escaped) {
                tocsin_string_clear(&r->word);
                tocsin_string_append(&r->word, begin, (size_t)(r->at - begin));
                escaped = true;
            }
            ++r->at;
            TOCSIN_TRY(append_escape(r));
            continue;
        }
        if (escaped)
            tocsin_string_append_char(&r->word, *r->at);
        ++r->at;
    }
    if (r->at == r->line_end)
        return tocsin_token_fail(r, TOCSIN_E_FORMAT, "a quoted word does not end on its line");
    *word = begin;
    *bytes = (size_t)(r->at++ - begin);
    if (!escaped)
        return TOCSIN_OK;
    *word = tocsin_string_text(&r->word);
    *bytes = r->word.bytes;
    return tocsin_token_located(r, tocsin_string_check(&r->word, &r->inner));
}

tocsin_status tocsin_token_word(tocsin_plan_reader *r, unsigned class, const char *what,
                                const char **word, size_t *bytes)
{
    if (r->at < r->line_end && *r->at == '"') {
        ++r->at;
        return read_quoted(r, word, bytes);
    }
    const char *begin = r->at, *at = begin, *end = r->line_end;
    while (at < end && tocsin_token_class[(unsigned char)*at] & class)
        ++at;
    if (at == begin)
        return tocsin_token_fail(r, TOCSIN_E_FORMAT, "expected %s", what);
    *word = begin;
    *bytes = (size_t)(at - begin);
    r->at = at;
    return TOCSIN_OK;
}

tocsin_status tocsin_token_string(tocsin_plan_reader *r, unsigned class, const char *what,
                                  uint32_t *string)
{
    const char *word = NULL;
    size_t bytes = 0;
    TOCSIN_TRY(tocsin_token_word(r, class, what, &word, &bytes));
    *string = tocsin_plan_string(r->plan, word, bytes);
    if (*string == 0)
        return tocsin_token_located(r, tocsin_plan_string_error(r->plan, &r->inner));
    return TOCSIN_OK;
}

size_t tocsin_token_keyword(tocsin_plan_reader *r, const char **word)
{
    tocsin_token_skip_blanks(r);
    *word = r->at;
    while (r->at < r->line_end &&
           tocsin_token_class[(unsigned char)*r->at] & TOCSIN_TOKEN_IDENTIFIER)
        ++r->at;
    return (size_t)(r->at - *word);
}

/* ---- numbers ----------------------------------------------------------------------------------
 */

tocsin_status tocsin_token_integer(tocsin_plan_reader *r, int64_t least, int64_t most,
                                   int64_t *value)
{
    tocsin_token_skip_blanks(r);
    const char *begin = r->at, *at = begin;
    bool negative = at < r->line_end && *at == '-';
    if (at < r->line_end && (*at == '-' || *at == '+'))
        ++at;
    const char *digits = at;
    uint64_t magnitude = 0;
    bool fits = true;
    for (; at < r->line_end && *at >= '0' && *at <= '9'; ++at) {
        fits = fits && magnitude <= (UINT64_MAX - 9) / 10;
        magnitude = magnitude * 10 + (uint64_t)(*at - '0');
    }
    if (at == digits)
        return tocsin_token_fail(r, TOCSIN_E_FORMAT, "expected an integer");
    uint64_t bound = (uint64_t)INT64_MAX + (negative ? 1 : 0);
    fits = fits && magnitude <= bound;
    int64_t result = fits ? (int64_t)(negative ? 0 - magnitude : magnitude) : 0;
    if (!fits || result < least || result > most)
        return tocsin_token_fail(r, TOCSIN_E_LIMIT, "%.*s is not from %lld to %lld",
                                 (int)(at - begin > 40 ? 40 : at - begin), begin, (long long)least,
                                 (long long)most);
    *value = result;
    r->at = at;
    return TOCSIN_OK;
}

/* [+-] digits [. digits] [e [+-] digits], with a digit before or after the point. */
static bool is_real(const char *text, size_t bytes)
{
    const char *at = text, *end = text + bytes;
    size_t digits = 0;
    if (at < end && (*at == '-' || *at == '+'))
        ++at;
    for (; at < end && *at >= '0' && *at <= '9'; ++at)
        ++digits;
    if (at < end && *at == '.')
        ++at;
    for (; at < end && *at >= '0' && *at <= '9'; ++at)
        ++digits;
    if (digits == 0 || at == end)
        return digits > 0;
    if (*at++ != 'e')
        return false;
    if (at < end && (*at == '-' || *at == '+'))
        ++at;
    const char *exponent = at;
    while (at < end && *at >= '0' && *at <= '9')
        ++at;
    return at == end && at > exponent;
}

bool tocsin_token_real(const char *text, size_t bytes, double *value)
{
    char copy[512]; /* strtod reads the point of the process's locale */
    const char *point = localeconv()->decimal_point;
    size_t used = 0, point_bytes = strlen(point);
    if (!is_real(text, bytes) || bytes + point_bytes >= sizeof copy)
        return false;
    for (size_t i = 0; i < bytes; ++i) {
        if (text[i] == '.') {
            memcpy(copy + used, point, point_bytes);
            used += point_bytes;
        } else {
            copy[used++] = text[i];
        }
    }
    copy[used] = 0;
    char *end = NULL;
    *value = strtod(copy, &end);
    return *end == 0 && *value - *value == 0; /* not infinite */
}

/* ---- types and slices -------------------------------------------------------------------------
 */

/* The dtype of this name, UINT8_MAX when there is none. */
static uint8_t dtype_of(const char *name, size_t bytes)
{
    static const struct {
        const char *name;
        uint8_t bytes, number;
    } dtypes[] = {
#define X(number, name, text, bytes) {text, sizeof(text) - 1, number},
        TOCSIN_DTYPE_TABLE(X)
#undef X
    };
    for (size_t i = 0; i < TOCSIN_COUNT_OF(dtypes); ++i) {
        if (dtypes[i].bytes == bytes && memcmp(dtypes[i].name, name, bytes) == 0)
            return dtypes[i].number;
    }
    return UINT8_MAX;
}

tocsin_status tocsin_token_type(tocsin_plan_reader *r, tocsin_plan_type *type)
{
    const char *name = NULL;
    const char *begin = r->at;
    size_t bytes = tocsin_token_keyword(r, &name);
    type->dtype = dtype_of(name, bytes);
    type->ndim = 0;
    if (type->dtype == UINT8_MAX) {
        r->at = begin;
        return tocsin_token_fail(r, TOCSIN_E_FORMAT, "expected a dtype such as float32 (or none)");
    }
    TOCSIN_TRY(tocsin_token_expect(r, '['));
    if (tocsin_token_accept(r, ']'))
        return TOCSIN_OK;
    do {
        if (type->ndim == TOCSIN_PLAN_NDIM_MAX)
            return tocsin_token_fail(r, TOCSIN_E_LIMIT, "a value has at most %d dims",
                                     TOCSIN_PLAN_NDIM_MAX);
        TOCSIN_TRY(tocsin_token_integer(r, 1, TOCSIN_PLAN_INDEX_MAX, &type->shape[type->ndim]));
        ++type->ndim;
    } while (tocsin_token_accept(r, ','));
    return tocsin_token_expect(r, ']');
}

/* AXIS*WEIGHT, where AXIS is the replica axis or mb. */
static tocsin_status read_weight(tocsin_plan_reader *r, int64_t sign, tocsin_affine *start)
{
    const tocsin_plan *plan = r->plan;
    const char *symbol = NULL;
    size_t bytes = tocsin_token_keyword(r, &symbol);
    unsigned which = TOCSIN_SYMBOL_COUNT;
    int64_t weight = 0;
    if (tocsin_token_is(symbol, bytes, "mb"))
        which = TOCSIN_SYMBOL_MICROBATCH;
    else if (plan->replica_axis != TOCSIN_PLAN_NONE &&
             tocsin_token_is(symbol, bytes,
                             tocsin_plan_text(plan, plan->axes[plan->replica_axis].name)))
        which = TOCSIN_SYMBOL_REPLICA;
    else
        return tocsin_token_fail(r, TOCSIN_E_FORMAT,
                                 "a start is a sum of an integer, K times the replica axis and K "
                                 "times mb, as in 64+dp*8+mb*4");
    TOCSIN_TRY(tocsin_token_expect(r, '*'));
    TOCSIN_TRY(tocsin_token_integer(r, -TOCSIN_PLAN_INDEX_MAX, TOCSIN_PLAN_INDEX_MAX, &weight));
    start->weight[which] += sign * weight;
    return TOCSIN_OK;
}

/* Sums stay far below 2^63: a line has fewer than 2^20 terms, and each sum is checked. */
static tocsin_status read_start(tocsin_plan_reader *r, tocsin_affine *start)
{
    const int64_t limit = TOCSIN_PLAN_INDEX_MAX;
    int64_t sign = tocsin_token_accept(r, '-') ? -1 : 1;
    *start = (tocsin_affine){0};
    for (;;) {
        tocsin_token_skip_blanks(r);
        int64_t base = 0;
        if (r->at < r->line_end && tocsin_token_class[(unsigned char)*r->at] & TOCSIN_TOKEN_DIGIT)
            TOCSIN_TRY(tocsin_token_integer(r, 0, limit, &base));
        else
            TOCSIN_TRY(read_weight(r, sign, start));
        start->base += sign * base;
        int64_t parts[] = {start->base, start->weight[0], start->weight[1]};
        for (unsigned i = 0; i < TOCSIN_COUNT_OF(parts); ++i) {
            if (parts[i] < -limit || parts[i] > limit)
                return tocsin_token_fail(r, TOCSIN_E_LIMIT, "a slice starts beyond 2^47");
        }
        if (tocsin_token_accept(r, '+'))
            sign = 1;
        else if (tocsin_token_accept(r, '-'))
            sign = -1;
        else
            return TOCSIN_OK;
    }
}

tocsin_status tocsin_token_slice(tocsin_plan_reader *r, bool *given, tocsin_plan_type *type,
                                 tocsin_affine starts[TOCSIN_PLAN_NDIM_MAX])
{
    memset(starts, 0, TOCSIN_PLAN_NDIM_MAX * sizeof *starts);
    type->ndim = 0;
    type->dtype = 0;
    *given = tocsin_token_accept(r, '[');
    if (!*given || tocsin_token_accept(r, ']'))
        return TOCSIN_OK;
    do {
        if (type->ndim == TOCSIN_PLAN_NDIM_MAX)
            return tocsin_token_fail(r, TOCSIN_E_LIMIT, "a slice has at most %d dims",
                                     TOCSIN_PLAN_NDIM_MAX);
        TOCSIN_TRY(read_start(r, &starts[type->ndim]));
        TOCSIN_TRY(tocsin_token_expect(r, ':'));
        TOCSIN_TRY(tocsin_token_integer(r, 1, TOCSIN_PLAN_INDEX_MAX, &type->shape[type->ndim]));
        ++type->ndim;
    } while (tocsin_token_accept(r, ','));
    return tocsin_token_expect(r, ']');
}
