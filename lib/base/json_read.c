/* json_read.c - JSON text to values: jansson behind a small door; nobody else includes it.
 *
 * A tocsin_json_value is a json_t under another name. jansson takes its memory from malloc (its
 * allocator is a setting of the whole process, which may not be ours alone), so of a parse only the
 * start is a fault point.
 */
#include <assert.h>
#include <base/base.h>
#include <jansson.h>

static const json_t *as_json(const tocsin_json_value *value)
{
    return (const json_t *)value;
}

tocsin_status tocsin_json_parse(const char *text, size_t bytes, const char *where,
                                tocsin_json_value **root, tocsin_error *error)
{
    assert(text || bytes == 0);
    assert(root);
    *root = NULL;
    if (tocsin_fault_hit(TOCSIN_FAULT_MEMORY))
        return tocsin_error_memory(error);
    /* No JSON text holds the byte 0, but jansson (2.14) loses one that stands behind a number. */
    const char *zero = bytes ? memchr(text, '\0', bytes) : NULL;
    if (zero)
        return tocsin_error_at(error, TOCSIN_E_FORMAT, where, zero - text,
                               "not valid JSON: a byte 0");
    json_error_t problem = {0};
    json_t *json =
        json_loadb(bytes ? text : "", bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &problem);
    if (!json && json_error_code(&problem) == json_error_out_of_memory)
        return tocsin_error_memory(error);
    if (!json)
        return tocsin_error_at(error, TOCSIN_E_FORMAT, where, problem.position,
                               "not valid JSON (line %d, column %d): %s", problem.line,
                               problem.column, problem.text);
    *root = (tocsin_json_value *)json;
    return TOCSIN_OK;
}

void tocsin_json_free(tocsin_json_value *root)
{
    json_decref((json_t *)root);
}

tocsin_json_kind tocsin_json_get_kind(const tocsin_json_value *value)
{
    if (!value)
        return TOCSIN_JSON_NULL;
    switch (json_typeof(as_json(value))) {
    case JSON_OBJECT:
        return TOCSIN_JSON_OBJECT;
    case JSON_ARRAY:
        return TOCSIN_JSON_ARRAY;
    case JSON_STRING:
        return TOCSIN_JSON_STRING;
    case JSON_INTEGER:
        return TOCSIN_JSON_INTEGER;
    case JSON_REAL:
        return TOCSIN_JSON_REAL;
    case JSON_TRUE:
    case JSON_FALSE:
        return TOCSIN_JSON_BOOL;
    case JSON_NULL:
        break;
    }
    return TOCSIN_JSON_NULL;
}

size_t tocsin_json_get_count(const tocsin_json_value *value)
{
    /* Either answers 0 for what it is not. */
    return json_array_size(as_json(value)) + json_object_size(as_json(value));
}

const tocsin_json_value *tocsin_json_get_item(const tocsin_json_value *array, size_t index)
{
    return (const tocsin_json_value *)json_array_get(as_json(array), index);
}

const tocsin_json_value *tocsin_json_get_member(const tocsin_json_value *object, const char *key)
{
    return (const tocsin_json_value *)json_object_get(as_json(object), key);
}

const char *tocsin_json_get_text(const tocsin_json_value *value)
{
    return json_string_value(as_json(value));
}

bool tocsin_json_get_integer(const tocsin_json_value *value, int64_t *integer)
{
    if (tocsin_json_get_kind(value) != TOCSIN_JSON_INTEGER)
        return false;
    *integer = (int64_t)json_integer_value(as_json(value));
    return true;
}

bool tocsin_json_get_real(const tocsin_json_value *value, double *real)
{
    if (!json_is_number(as_json(value)))
        return false;
    *real = json_number_value(as_json(value));
    return true;
}

bool tocsin_json_get_bool(const tocsin_json_value *value, bool *boolean)
{
    if (tocsin_json_get_kind(value) != TOCSIN_JSON_BOOL)
        return false;
    *boolean = json_is_true(as_json(value));
    return true;
}

bool tocsin_json_next_member(const tocsin_json_value *object, void **cursor, const char **key,
                             const tocsin_json_value **value)
{
    json_t *json = (json_t *)as_json(object);
    *cursor = *cursor ? json_object_iter_next(json, *cursor) : json_object_iter(json);
    if (!*cursor)
        return false;
    *key = json_object_iter_key(*cursor);
    *value = (const tocsin_json_value *)json_object_iter_value(*cursor);
    return true;
}
