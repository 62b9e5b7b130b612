/* declarations.c - operators that the user declares: lines `op NAME SIGNATURE` of a file.
 *
 * Names are interned; their ids index the texts of the signatures, which have been parsed once, so
 * that an error is told here with its place. Cost: one hash look-up for each question.
 */
#include "plan/plan.h"

#include <assert.h>

enum { DECLARATIONS_BYTES_MAX = 1 << 24 };

/* One line of the file. */
typedef struct line {
    const char *path;
    int64_t offset; /* of its first byte */
    unsigned number;
    const char *at, *end;
    tocsin_error *error;
} line;

#define FAIL(l, code, begin, ...)                                                                  \
    tocsin_error_at((l)->error, code, (l)->path, (l)->offset + ((l)->at - (begin)), __VA_ARGS__)

static void skip_blanks(line *l)
{
    while (l->at < l->end && (*l->at == ' ' || *l->at == '\t'))
        ++l->at;
}

static tocsin_status declare(line *l, const char *begin, const char *name, size_t name_bytes,
                             tocsin_declarations *declarations)
{
    tocsin_signature signature;
    tocsin_error inner = {.offset = 0};
    size_t bytes = (size_t)(l->end - l->at);
    tocsin_status status = tocsin_signature_parse(l->at, bytes, &signature, &inner);
    if (status != TOCSIN_OK) {
        l->at += inner.offset;
        return FAIL(l, status, begin, "line %u: %s", l->number, inner.message);
    }
    if (tocsin_operator_from_name(name, name_bytes) != TOCSIN_OPERATOR_COUNT)
        return FAIL(l, TOCSIN_E_FORMAT, begin, "line %u: %.*s is a known operator", l->number,
                    (int)name_bytes, name);
    if (tocsin_intern_find(&declarations->names, name, name_bytes))
        return FAIL(l, TOCSIN_E_FORMAT, begin, "line %u: %.*s is declared twice", l->number,
                    (int)name_bytes, name);
    char *text = tocsin_arena_copy(&declarations->arena, l->at, bytes);
    if (!text || !TOCSIN_VEC_RESERVE(&declarations->signatures, 1) ||
        !tocsin_intern_put(&declarations->names, name, name_bytes))
        return tocsin_error_memory(l->error);
    declarations->signatures.items[declarations->signatures.count++] = text;
    assert(declarations->signatures.count == tocsin_intern_count(&declarations->names));
    return TOCSIN_OK;
}

static tocsin_status read_line(line *l, tocsin_declarations *declarations)
{
    const char *begin = l->at;
    const char *comment = memchr(l->at, '#', (size_t)(l->end - l->at));
    if (comment)
        l->end = comment;
    skip_blanks(l);
    if (l->at == l->end)
        return TOCSIN_OK;
    if (l->end - l->at < 3 || memcmp(l->at, "op", 2) != 0 || (l->at[2] != ' ' && l->at[2] != '\t'))
        return FAIL(l, TOCSIN_E_FORMAT, begin, "line %u: expected `op NAME SIGNATURE`", l->number);
    l->at += 2;
    skip_blanks(l);
    const char *name = l->at;
    while (l->at < l->end && *l->at != ' ' && *l->at != '\t')
        ++l->at;
    size_t bytes = (size_t)(l->at - name);
    if (bytes == 0 || bytes > 255)
        return FAIL(l, TOCSIN_E_FORMAT, begin, "line %u: expected a name of 1 to 255 characters",
                    l->number);
    skip_blanks(l);
    return declare(l, begin, name, bytes, declarations);
}

static tocsin_status read_lines(const char *path, const tocsin_string *content,
                                tocsin_declarations *declarations, tocsin_error *error)
{
    const char *text = tocsin_string_text(content), *end = text + content->bytes;
    unsigned number = 0;
    for (const char *at = text; at < end; ++number) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline ? newline : end;
        line l = {path, at - text, number + 1, at, stop, error};
        TOCSIN_TRY(read_line(&l, declarations));
        at = stop + 1;
    }
    return TOCSIN_OK;
}

tocsin_status tocsin_declarations_load(const char *path, tocsin_declarations *declarations,
                                       tocsin_error *error)
{
    if (!path)
        return TOCSIN_OK;
    tocsin_string content = {0};
    tocsin_status status = tocsin_file_load(path, DECLARATIONS_BYTES_MAX, &content, error);
    if (status == TOCSIN_OK)
        status = read_lines(path, &content, declarations, error);
    tocsin_string_free(&content);
    return status;
}

const char *tocsin_declarations_find(const tocsin_declarations *declarations, const char *name,
                                     size_t bytes)
{
    uint32_t id = tocsin_intern_find(&declarations->names, name, bytes);
    return id ? declarations->signatures.items[id - 1] : NULL;
}

void tocsin_declarations_free(tocsin_declarations *declarations)
{
    tocsin_intern_free(&declarations->names);
    TOCSIN_VEC_FREE(&declarations->signatures);
    tocsin_arena_free(&declarations->arena);
}
