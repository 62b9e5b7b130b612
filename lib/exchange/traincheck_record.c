/* A line of a TrainCheck trace -> a record.
 *
 * Two readers: a scan that takes three numbers out of a line without building anything, for the
 * order of files and the ranks of processes, and a full parse. The parse is strict JSON first; a
 * line that fails is tried once more with the tokens replaced that Python's json writes and JSON
 * does not have. Cost: one pass over the line each.
 */
#include <exchange/exchange.h>
#include <stdlib.h>

#define DIGITS_MAX 18 /* of an integer that surely fits 64 bits */

/* ---- the scan ------------------------------------------------------------------------------ */

static const char *skip_space(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r'))
        ++at;
    return at;
}

/* From after the opening quote to after the closing one; NULL: there is none. */
static const char *skip_string(const char *at, const char *end)
{
    while (at < end && *at != '"')
        at += *at == '\\' ? 2 : 1;
    return at < end ? at + 1 : NULL;
}

/* To after the value; NULL: the line ends in it. */
static const char *skip_value(const char *at, const char *end)
{
    unsigned depth = 0;
    while (at < end) {
        switch (*at) {
        case '"':
            at = skip_string(at + 1, end);
            if (at == NULL)
                return NULL;
            break;
        case '{':
        case '[':
            ++depth;
            ++at;
            break;
        case '}':
        case ']':
            if (depth == 0)
                return at;
            --depth;
            ++at;
            break;
        case ',':
            if (depth == 0)
                return at;
            /* fall through */
        default:
            ++at;
            continue;
        }
        if (depth == 0)
            return at;
    }
    return NULL;
}

static bool read_integer(const char *at, const char *end, int64_t *integer)
{
    bool negative = at < end && *at == '-';
    const char *start = at + negative;
    int64_t value = 0;
    for (at = start; at < end && *at >= '0' && *at <= '9' && at - start < DIGITS_MAX; ++at)
        value = value * 10 + (*at - '0');
    *integer = negative ? -value : value;
    return at > start;
}

typedef struct member { /* of the object that is scanned */
    const char *key;
    size_t key_bytes;
    const char *value;
} member;

/* The next member of the object at `at` (after "{" or a value). Returns where its value begins;
 * NULL: there is none. */
static const char *next_member(const char *at, const char *end, member *found)
{
    at = skip_space(at, end);
    if (at < end && *at == ',')
        at = skip_space(at + 1, end);
    if (at >= end || *at != '"')
        return NULL;
    found->key = at + 1;
    at = skip_string(at + 1, end);
    if (at == NULL)
        return NULL;
    found->key_bytes = (size_t)(at - 1 - found->key);
    at = skip_space(at, end);
    if (at >= end || *at != ':')
        return NULL;
    found->value = skip_space(at + 1, end);
    return found->value;
}

static bool is_key(const member *found, const char *key)
{
    return found->key_bytes == strlen(key) && memcmp(found->key, key, found->key_bytes) == 0;
}

static void find_rank(const char *at, const char *end, int64_t *rank)
{
    member found;
    if (at >= end || *at != '{')
        return;
    for (++at; (at = next_member(at, end, &found)) != NULL;) {
        if (is_key(&found, "_DATA_PARALLEL_RANK") && !read_integer(found.value, end, rank))
            *rank = -1;
        at = skip_value(found.value, end);
        if (at == NULL)
            return;
    }
}

bool tocsin_traincheck_record_glimpse(const char *line, size_t bytes,
                                      tocsin_traincheck_glimpse *glimpse)
{
    const char *end = line + bytes;
    const char *at = skip_space(line, end);
    bool has_process = false, has_time = false;
    int64_t time_ns = 0;
    member found;
    *glimpse = (tocsin_traincheck_glimpse){.rank = -1};
    if (at >= end || *at != '{')
        return false;
    for (++at; at != NULL && (at = next_member(at, end, &found)) != NULL;) {
        if (is_key(&found, "process_id"))
            has_process = read_integer(found.value, end, &glimpse->process);
        else if (is_key(&found, "time"))
            has_time = read_integer(found.value, end, &time_ns);
        else if (is_key(&found, "meta_vars"))
            find_rank(found.value, end, &glimpse->rank);
        else if (is_key(&found, "var_name"))
            glimpse->is_state = true;
        at = skip_value(found.value, end);
    }
    glimpse->time_ns = time_ns > 0 ? (uint64_t)time_ns : 0;
    return has_process && has_time;
}

/* ---- what Python writes and JSON does not have --------------------------------------------- */

static size_t number_bytes(const char *at, const char *end)
{
    const char *start = at;
    while (at < end && (strchr("+-.eE", *at) != NULL || (*at >= '0' && *at <= '9')) && *at != 0)
        ++at;
    return (size_t)(at - start);
}

static bool is_long_integer(const char *at, size_t bytes)
{
    bool negative = bytes > 0 && *at == '-';
    return bytes > (size_t)DIGITS_MAX + negative && memchr(at, '.', bytes) == NULL &&
           memchr(at, 'e', bytes) == NULL && memchr(at, 'E', bytes) == NULL;
}

/* Does the text of these many digits fit a signed 64-bit integer? */
static bool fits(const char *at, size_t bytes)
{
    static const char greatest[] = "9223372036854775807", least[] = "9223372036854775808";
    bool negative = *at == '-';
    at += negative;
    bytes -= negative;
    if (bytes != sizeof greatest - 1)
        return bytes < sizeof greatest - 1;
    return memcmp(at, negative ? least : greatest, bytes) <= 0;
}

static void append_quoted(tocsin_string *out, const char *text, size_t bytes)
{
    tocsin_string_append_char(out, '"');
    tocsin_string_append(out, text, bytes);
    tocsin_string_append_char(out, '"');
}

/* A token outside strings that JSON does not have, as a string. Returns its bytes; 0: it is none.
 */
static size_t replace_token(const char *at, const char *end, tocsin_string *out)
{
    static const char *const names[] = {"NaN", "Infinity", "-Infinity"};
    size_t left = (size_t)(end - at);
    for (size_t i = 0; i < TOCSIN_COUNT_OF(names); ++i) {
        size_t bytes = strlen(names[i]);
        if (left >= bytes && memcmp(at, names[i], bytes) == 0) {
            append_quoted(out, names[i], bytes);
            return bytes;
        }
    }
    size_t bytes = number_bytes(at, end);
    if (!is_long_integer(at, bytes) || fits(at, bytes)) {
        tocsin_string_append(out, at, bytes);
        return bytes;
    }
    append_quoted(out, at, bytes);
    return bytes;
}

static void replace_tokens(const char *text, size_t bytes, tocsin_string *out)
{
    const char *end = text + bytes;
    for (const char *at = text; at < end;) {
        if (*at == '"') {
            const char *after = skip_string(at + 1, end);
            if (after == NULL || after > end)
                after = end;
            tocsin_string_append(out, at, (size_t)(after - at));
            at = after;
            continue;
        }
        size_t token = replace_token(at, end, out);
        if (token == 0) {
            tocsin_string_append_char(out, *at);
            token = 1;
        }
        at += token;
    }
}

tocsin_status tocsin_python_json_parse(const char *text, size_t bytes, const char *where,
                                       tocsin_json_value **root, tocsin_error *error)
{
    tocsin_error first;
    tocsin_status status = tocsin_json_parse(text, bytes, where, root, &first);
    if (status == TOCSIN_OK)
        return status;
    if (error != NULL)
        *error = first; /* its offset is one in the text */
    if (status != TOCSIN_E_FORMAT)
        return status;
    tocsin_string replaced = {0};
    replace_tokens(text, bytes, &replaced);
    if (replaced.status == TOCSIN_OK)
        status =
            tocsin_json_parse(tocsin_string_text(&replaced), replaced.bytes, where, root, NULL);
    else
        status = replaced.status;
    tocsin_string_free(&replaced);
    return status == TOCSIN_E_MEMORY ? tocsin_error_memory(error) : status;
}

/* ---- the record ---------------------------------------------------------------------------- */

static const tocsin_json_value *member_of(const tocsin_json_value *root, const char *key,
                                          tocsin_json_kind kind)
{
    const tocsin_json_value *value = tocsin_json_get_member(root, key);
    return value != NULL && tocsin_json_get_kind(value) == kind ? value : NULL;
}

static const char *text_of(const tocsin_json_value *root, const char *key)
{
    return tocsin_json_get_text(tocsin_json_get_member(root, key));
}

static bool read_call(const tocsin_json_value *root, const char *type,
                      tocsin_traincheck_record *record)
{
    record->call = text_of(root, "func_call_id");
    record->function = text_of(root, "function");
    (void)tocsin_json_get_bool(tocsin_json_get_member(root, "is_bound_method"), &record->bound);
    if (record->call == NULL || record->function == NULL)
        return false;
    if (strcmp(type, "function_call (pre)") == 0) {
        record->kind = TOCSIN_TRAINCHECK_CALL;
        record->arguments = member_of(root, "args", TOCSIN_JSON_OBJECT);
        record->keywords = member_of(root, "kwargs", TOCSIN_JSON_OBJECT);
    } else if (strcmp(type, "function_call (post)") == 0) {
        record->kind = TOCSIN_TRAINCHECK_RETURN;
        record->returns = tocsin_json_get_member(root, "return_values");
    } else {
        record->kind = TOCSIN_TRAINCHECK_RAISE;
        record->exception = text_of(root, "exception");
        return strcmp(type, "function_call (post) (exception)") == 0;
    }
    return true;
}

static bool read_state(const tocsin_json_value *root, tocsin_traincheck_record *record)
{
    record->kind = TOCSIN_TRAINCHECK_STATE;
    record->variable = text_of(root, "var_name");
    record->type = text_of(root, "var_type");
    record->mode = text_of(root, "mode");
    record->attributes = member_of(root, "attributes", TOCSIN_JSON_OBJECT);
    return record->variable != NULL && record->type != NULL && record->attributes != NULL;
}

static bool read_record(const tocsin_json_value *root, tocsin_traincheck_record *record)
{
    int64_t time_ns = -1;
    *record = (tocsin_traincheck_record){.meta = member_of(root, "meta_vars", TOCSIN_JSON_OBJECT)};
    const char *type = text_of(root, "type");
    if (type == NULL ||
        !tocsin_json_get_integer(tocsin_json_get_member(root, "process_id"), &record->process) ||
        !tocsin_json_get_integer(tocsin_json_get_member(root, "thread_id"), &record->thread) ||
        !tocsin_json_get_integer(tocsin_json_get_member(root, "time"), &time_ns) || time_ns < 0 ||
        record->process < 0)
        return false;
    record->time_ns = (uint64_t)time_ns;
    return strcmp(type, "state_change") == 0 ? read_state(root, record)
                                             : read_call(root, type, record);
}

tocsin_status tocsin_traincheck_record_parse(const char *line, size_t bytes,
                                             tocsin_json_value **root,
                                             tocsin_traincheck_record *record, tocsin_error *error)
{
    TOCSIN_TRY(tocsin_python_json_parse(line, bytes, "a record", root, error));
    if (read_record(*root, record))
        return TOCSIN_OK;
    tocsin_json_free(*root);
    *root = NULL;
    return tocsin_error_set(error, TOCSIN_E_FORMAT, "not a record of TrainCheck");
}

bool tocsin_attribute_is_id(const char *name)
{
    size_t bytes = strlen(name);
    bool prefixed = strncmp(name, "_ML_DAIKON_", 11) == 0 || strncmp(name, "_TRAINCHECK_", 12) == 0;
    return prefixed && bytes > 3 && strcmp(name + bytes - 3, "_ID") == 0;
}
