/* Arguments, returns and attributes as TrainCheck writes them -> values of events.
 *
 * An argument is {"its type": value}: None, a bool, number or string as such, a tensor as an object
 * with dtype and shape, a module as an object of its plain attributes, any other object as {}.
 */
#include <assert.h>
#include <exchange/exchange.h>
#include <stdio.h>
#include <stdlib.h>

enum { ELEMENTS_MAX = 4, DESCRIBED_NAME_MAX = 60, DESCRIPTION_MAX = 2048 };

static tocsin_id check(tocsin_definer *definer, tocsin_id id)
{
    definer->failed |= id == 0;
    return id;
}

tocsin_id tocsin_define_text(tocsin_definer *definer, const char *text)
{
    size_t bytes = strlen(text);
    if (bytes > TOCSIN_TRAINCHECK_TEXT_MAX)
        for (bytes = TOCSIN_TRAINCHECK_TEXT_MAX; bytes > 0 && (text[bytes] & 0xc0) == 0x80;)
            --bytes; /* not within a character */
    return check(definer, tocsin_trace_define_string(definer->writer, text, bytes));
}

tocsin_id tocsin_define_function(tocsin_definer *definer, const char *name, tocsin_role role)
{
    return check(definer, tocsin_trace_define_function(definer->writer, name, role));
}

tocsin_id tocsin_define_variable(tocsin_definer *definer, const char *name,
                                 tocsin_variable_kind kind, const char *type)
{
    return check(definer, tocsin_trace_define_variable(definer->writer, name, kind, type));
}

static void push(tocsin_value_list *list, const tocsin_value *value)
{
    if (list->count < TOCSIN_EVENT_VALUES_MAX)
        list->items[list->count++] = *value;
}

uint64_t tocsin_json_hash(const tocsin_json_value *value, uint64_t seed)
{
    tocsin_json_kind kind = tocsin_json_get_kind(value);
    uint64_t hash = tocsin_mix64(seed + (uint64_t)kind + 1);
    int64_t integer = 0;
    double real = 0;
    bool boolean = false;
    const char *key;
    const tocsin_json_value *member;
    void *cursor = NULL;
    switch (kind) {
    case TOCSIN_JSON_BOOL:
        (void)tocsin_json_get_bool(value, &boolean);
        return tocsin_mix64(hash + boolean);
    case TOCSIN_JSON_INTEGER:
        (void)tocsin_json_get_integer(value, &integer);
        return tocsin_mix64(hash ^ (uint64_t)integer);
    case TOCSIN_JSON_REAL:
        (void)tocsin_json_get_real(value, &real);
        return tocsin_hash64(&real, sizeof real, hash);
    case TOCSIN_JSON_STRING:
        return tocsin_hash64(tocsin_json_get_text(value), strlen(tocsin_json_get_text(value)),
                             hash);
    case TOCSIN_JSON_ARRAY:
        for (size_t i = 0; i < tocsin_json_get_count(value); ++i)
            hash = tocsin_json_hash(tocsin_json_get_item(value, i), hash);
        return tocsin_mix64(hash);
    case TOCSIN_JSON_OBJECT:
        while (tocsin_json_next_member(value, &cursor, &key, &member))
            hash = tocsin_json_hash(member, tocsin_hash64(key, strlen(key), hash));
        return tocsin_mix64(hash);
    case TOCSIN_JSON_NULL:
        break;
    }
    return hash;
}

/* ---- tensors ------------------------------------------------------------------------------- */

tocsin_dtype tocsin_dtype_of(const tocsin_json_value *value)
{
    const char *text = tocsin_json_get_text(value);
    if (text == NULL || strncmp(text, "torch.", 6) != 0)
        return TOCSIN_DTYPE_NONE;
    return tocsin_dtype_from_name(text + 6);
}

tocsin_id tocsin_define_shape(tocsin_definer *definer, const tocsin_json_value *value,
                              uint8_t *ndim)
{
    int64_t sizes[TOCSIN_NDIM_MAX];
    size_t count = tocsin_json_get_count(value);
    *ndim = 0;
    if (tocsin_json_get_kind(value) != TOCSIN_JSON_ARRAY || count == 0 || count > TOCSIN_NDIM_MAX)
        return 0;
    for (size_t i = 0; i < count; ++i)
        if (!tocsin_json_get_integer(tocsin_json_get_item(value, i), &sizes[i]))
            return 0;
    *ndim = (uint8_t)count;
    return check(definer, tocsin_trace_define_shape(definer->writer, (uint32_t)count, sizes));
}

static bool flag_of(const tocsin_json_value *object, const char *key)
{
    bool flag = false;
    return tocsin_json_get_bool(tocsin_json_get_member(object, key), &flag) && flag;
}

/* The memory's tag, from the address that is recorded as an id. */
static uint32_t memory_tag(const tocsin_json_value *tensor)
{
    int64_t address = 0;
    if (!tocsin_json_get_integer(tocsin_json_get_member(tensor, "_TRAINCHECK_data_ID"), &address) &&
        !tocsin_json_get_integer(tocsin_json_get_member(tensor, "_ML_DAIKON_data_ID"), &address))
        return 0;
    uint32_t tag = (uint32_t)tocsin_mix64((uint64_t)address);
    return tag != 0 ? tag : 1;
}

static bool ends_with(const char *text, const char *tail)
{
    size_t bytes = strlen(text), tail_bytes = strlen(tail);
    return bytes >= tail_bytes && strcmp(text + bytes - tail_bytes, tail) == 0;
}

/* Attributes that a value has room for, or that follow from those. */
static bool is_placed(const char *key)
{
    static const char *const placed[] = {"dtype",    "shape",  "ndim", "requires_grad",
                                         "itemsize", "nbytes", "data"};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(placed); ++i)
        if (strcmp(key, placed[i]) == 0)
            return true;
    return key[0] == '_';
}

/* None, flags, small numbers and words; 0: anything else. */
static int print_attribute(char *out, size_t room, const char *key, const tocsin_json_value *value)
{
    const char *text = tocsin_json_get_text(value);
    bool truth = false;
    int64_t integer;
    if (strlen(key) > DESCRIBED_NAME_MAX || strpbrk(key, ";=") != NULL)
        return 0;
    if (tocsin_json_get_kind(value) == TOCSIN_JSON_NULL)
        return snprintf(out, room, ";%s=None", key);
    if (tocsin_json_get_bool(value, &truth))
        return snprintf(out, room, ";%s=%s", key, truth ? "True" : "False");
    if (tocsin_json_get_integer(value, &integer) && integer >= -16 && integer <= 16)
        return snprintf(out, room, ";%s=%d", key, (int)integer);
    if (text == NULL || strlen(text) > DESCRIBED_NAME_MAX || strpbrk(text, ";=") != NULL)
        return 0;
    if (ends_with(key, "dtype") && strncmp(text, "torch.", 6) == 0)
        text += 6;
    return snprintf(out, room, ";%s=%s", key, text);
}

/* What else is said of a tensor, in the text of its type: lib/invariant/tensor_property.c. */
static tocsin_id describe(tocsin_definer *definer, const char *type,
                          const tocsin_json_value *tensor)
{
    char text[DESCRIPTION_MAX];
    void *cursor = NULL;
    const char *key;
    const tocsin_json_value *value;
    int bytes = snprintf(text, sizeof text, "%.200s", type);
    int begin = bytes;
    while (tocsin_json_next_member(tensor, &cursor, &key, &value)) {
        size_t room = sizeof text - (size_t)bytes;
        int more = is_placed(key) ? 0 : print_attribute(text + bytes, room, key, value);
        if (more > 0 && (size_t)more < room)
            bytes += more;
    }
    return bytes == begin
               ? 0
               : check(definer, tocsin_trace_define_string(definer->writer, text, (size_t)bytes));
}

static void fill_tensor(tocsin_definer *definer, const char *type, const tocsin_json_value *tensor,
                        tocsin_value *value)
{
    value->kind = TOCSIN_VALUE_TENSOR;
    value->dtype = (uint8_t)tocsin_dtype_of(tocsin_json_get_member(tensor, "dtype"));
    value->as.shape =
        tocsin_define_shape(definer, tocsin_json_get_member(tensor, "shape"), &value->ndim);
    value->count = memory_tag(tensor);
    value->type = describe(definer, type, tensor);
    if (flag_of(tensor, "requires_grad"))
        value->flags |= TOCSIN_VALUE_REQUIRES_GRAD;
    if (tocsin_json_get_kind(tocsin_json_get_member(tensor, "grad_fn")) != TOCSIN_JSON_NULL)
        value->flags |= TOCSIN_VALUE_HAS_GRAD_FN;
    if (ends_with(type, ".Parameter"))
        value->flags |= TOCSIN_VALUE_IS_PARAMETER;
    if (tocsin_json_get_member(tensor, "is_cpu") != NULL && !flag_of(tensor, "is_cpu"))
        value->flags |= TOCSIN_VALUE_ON_DEVICE;
}

/* ---- any value ----------------------------------------------------------------------------- */

static void fill_text(tocsin_definer *definer, const char *type, const char *text,
                      tocsin_value *value)
{
    if (strcmp(type, "int") == 0) { /* what 64 bits do not hold */
        value->kind = TOCSIN_VALUE_BIG;
    } else if (strcmp(type, "float") == 0) { /* "NaN", "Infinity" */
        value->kind = TOCSIN_VALUE_FLOAT;
        value->as.real = strtod(text, NULL);
    } else {
        value->kind = TOCSIN_VALUE_STRING;
        value->as.text = tocsin_define_text(definer, text);
    }
}

/* What is neither a list nor an object. */
static bool fill_plain(tocsin_definer *definer, const char *type, const tocsin_json_value *json,
                       tocsin_value *value)
{
    bool boolean = false;
    switch (tocsin_json_get_kind(json)) {
    case TOCSIN_JSON_NULL:
        value->kind = TOCSIN_VALUE_NONE;
        return true;
    case TOCSIN_JSON_BOOL:
        value->kind = TOCSIN_VALUE_BOOL;
        (void)tocsin_json_get_bool(json, &boolean);
        value->as.integer = boolean;
        return true;
    case TOCSIN_JSON_INTEGER:
        value->kind = TOCSIN_VALUE_INT;
        return tocsin_json_get_integer(json, &value->as.integer);
    case TOCSIN_JSON_REAL:
        value->kind = TOCSIN_VALUE_FLOAT;
        return tocsin_json_get_real(json, &value->as.real);
    case TOCSIN_JSON_STRING:
        fill_text(definer, type, tocsin_json_get_text(json), value);
        return true;
    default:
        return false;
    }
}

static bool is_list(const tocsin_json_value *json)
{
    return tocsin_json_get_kind(json) == TOCSIN_JSON_ARRAY;
}

/* Split {"type": value}; anything else is its own value, of unnamed type. */
static const char *split_typed(const tocsin_json_value *json, const tocsin_json_value **inner)
{
    void *cursor = NULL;
    const char *type = "";
    *inner = json;
    if (tocsin_json_get_kind(json) == TOCSIN_JSON_OBJECT && tocsin_json_get_count(json) == 1)
        (void)tocsin_json_next_member(json, &cursor, &type, inner);
    return type;
}

/* All but lists. */
static void fill(tocsin_definer *definer, const char *type, const tocsin_json_value *inner,
                 tocsin_value *value)
{
    if (fill_plain(definer, type, inner, value))
        return;
    value->kind = TOCSIN_VALUE_OBJECT;
    if (tocsin_json_get_member(inner, "dtype") != NULL &&
        is_list(tocsin_json_get_member(inner, "shape"))) {
        fill_tensor(definer, type, inner, value);
        return;
    }
    value->type = type[0] != 0 ? tocsin_define_text(definer, type) : 0;
    bool training = false;
    if (tocsin_json_get_bool(tocsin_json_get_member(inner, "training"), &training)) {
        value->kind = TOCSIN_VALUE_MODULE;
        value->flags |= training ? TOCSIN_VALUE_TRAINING : 0;
    }
}

static void add_list(tocsin_value_list *list, tocsin_id name, const tocsin_json_value *items)
{
    size_t count = tocsin_json_get_count(items);
    tocsin_value head = {.kind = TOCSIN_VALUE_SEQUENCE,
                         .name = name,
                         .count = count > UINT32_MAX ? UINT32_MAX : (uint32_t)count};
    size_t shown = count < ELEMENTS_MAX ? count : ELEMENTS_MAX;
    if (list->count + 1 + shown > TOCSIN_EVENT_VALUES_MAX)
        return; /* a list is whole or not there */
    push(list, &head);
    for (size_t i = 0; i < shown; ++i) {
        const tocsin_json_value *inner;
        const char *type = split_typed(tocsin_json_get_item(items, i), &inner);
        tocsin_value element = {.flags = TOCSIN_VALUE_IN_SEQUENCE, .name = name};
        fill(list->definer, type, inner, &element);
        push(list, &element);
    }
}

void tocsin_value_add_typed(tocsin_value_list *list, const char *name,
                            const tocsin_json_value *value)
{
    const tocsin_json_value *inner;
    const char *type = split_typed(value, &inner);
    tocsin_id name_id = tocsin_define_text(list->definer, name);
    if (is_list(inner)) {
        add_list(list, name_id, inner);
        return;
    }
    tocsin_value made = {.name = name_id};
    fill(list->definer, type, inner, &made);
    push(list, &made);
}

bool tocsin_value_add_plain(tocsin_value_list *list, const char *name,
                            const tocsin_json_value *value)
{
    tocsin_value made = {.name = 0};
    if (!fill_plain(list->definer, "", value, &made))
        return false;
    made.name = tocsin_define_text(list->definer, name);
    push(list, &made);
    return true;
}

void tocsin_value_add_integer(tocsin_value_list *list, const char *name, int64_t integer)
{
    tocsin_value made = {.kind = TOCSIN_VALUE_INT,
                         .name = tocsin_define_text(list->definer, name),
                         .as.integer = integer};
    push(list, &made);
}

void tocsin_value_add_truth(tocsin_value_list *list, const char *name, bool truth)
{
    tocsin_value made = {.kind = TOCSIN_VALUE_BOOL,
                         .name = tocsin_define_text(list->definer, name),
                         .as.integer = truth};
    push(list, &made);
}
