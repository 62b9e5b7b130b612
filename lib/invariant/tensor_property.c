/* The properties of tensors in calls: what their values say, and what another tool wrote of them.
 *
 * A value has room for dtype, shape and two flags. Other tools record more of a tensor; importers
 * put it into the text of its Python type, "torch.FloatTensor;grad=None;is_cuda=False", which is
 * decoded once. Data: a list of properties a description, symbols of fields by (place, property).
 * Cost: two look-ups a tensor, one a field.
 */
#include <assert.h>
#include <invariant/tensor_property.h>
#include <stdio.h>
#include <stdlib.h>

#define DESCRIBED_MAX 48u /* properties of a description */
#define SIZES_MAX     8u  /* dimensions whose size is a property */
#define NAME_BYTES    64

typedef struct description {
    uint32_t first; /* in the reader's properties */
    uint32_t count;
} description;

struct tocsin_property_reader {
    tocsin_observer *observer;
    tocsin_map descriptions; /* scalar of a text -> index + 1 */
    TOCSIN_VEC(description) list;
    TOCSIN_VEC(tocsin_property) properties;
    tocsin_map fields; /* (place, property) -> symbol */
    tocsin_symbol dtype, ndim, shape, requires_grad, is_leaf, is_cpu, itemsize, nbytes;
    tocsin_symbol sizes[SIZES_MAX];
};

static tocsin_symbol symbol(tocsin_observer *observer, const char *text)
{
    return tocsin_observer_need(observer, tocsin_symbol_of(observer->vocabulary, text));
}

tocsin_property_reader *tocsin_property_reader_new(tocsin_observer *observer)
{
    tocsin_property_reader *reader = tocsin_zalloc(1, sizeof *reader);
    if (reader == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    reader->observer = observer;
    reader->dtype = symbol(observer, "dtype");
    reader->ndim = symbol(observer, "ndim");
    reader->shape = symbol(observer, "shape");
    reader->requires_grad = symbol(observer, "requires_grad");
    reader->is_leaf = symbol(observer, "is_leaf");
    reader->is_cpu = symbol(observer, "is_cpu");
    reader->itemsize = symbol(observer, "itemsize");
    reader->nbytes = symbol(observer, "nbytes");
    for (unsigned d = 0; d < SIZES_MAX; ++d) {
        char text[16];
        snprintf(text, sizeof text, "shape[%u]", d);
        reader->sizes[d] = symbol(observer, text);
    }
    return reader;
}

void tocsin_property_reader_free(tocsin_property_reader *reader)
{
    if (reader == NULL)
        return;
    tocsin_map_free(&reader->descriptions);
    TOCSIN_VEC_FREE(&reader->list);
    TOCSIN_VEC_FREE(&reader->properties);
    tocsin_map_free(&reader->fields);
    tocsin_free(reader);
}

/* ---- descriptions -------------------------------------------------------------------------- */

/* "grad=None", "is_cuda=False", "index=3", "layout=strided" */
static void add_described(tocsin_property_reader *reader, const char *text, size_t bytes)
{
    tocsin_observer *observer = reader->observer;
    const char *equals = memchr(text, '=', bytes);
    size_t name_bytes = equals != NULL ? (size_t)(equals - text) : 0;
    if (name_bytes == 0 || name_bytes >= NAME_BYTES || bytes - name_bytes - 1 >= NAME_BYTES)
        return;
    char name[NAME_BYTES], value[NAME_BYTES], *end;
    snprintf(name, sizeof name, "%.*s", (int)name_bytes, text);
    snprintf(value, sizeof value, "%.*s", (int)(bytes - name_bytes - 1), equals + 1);
    tocsin_property property = {.name = symbol(observer, name), .kind = TOCSIN_VALUE_NONE};
    long long integer = strtoll(value, &end, 10);
    if (strcmp(value, "True") == 0 || strcmp(value, "False") == 0) {
        property.kind = TOCSIN_VALUE_BOOL;
        property.integer = value[0] == 'T';
    } else if (end != value && *end == 0) {
        property.kind = TOCSIN_VALUE_INT;
        property.integer = integer;
    } else if (strcmp(value, "None") != 0) {
        tocsin_literal literal = {.kind = TOCSIN_VALUE_STRING, .text = value};
        property.kind = TOCSIN_VALUE_STRING;
        property.integer =
            tocsin_observer_need(observer, tocsin_scalar_of(observer->vocabulary, &literal));
    }
    if (!TOCSIN_VEC_PUSH(&reader->properties, property))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

/* The description in a type's text; NULL: it is a type and no more. */
static const description *describe(tocsin_property_reader *reader, tocsin_process *process,
                                   tocsin_id type)
{
    tocsin_observer *observer = reader->observer;
    if (type == 0)
        return NULL;
    tocsin_scalar scalar = tocsin_scalar_of_string(observer, process, type);
    uint64_t *index = tocsin_map_at(&reader->descriptions, scalar);
    if (index == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    if (*index == 0) {
        const char *text = observer->status == TOCSIN_OK
                               ? tocsin_scalar_literal(observer->vocabulary, scalar).text
                               : "";
        description made = {.first = (uint32_t)reader->properties.count};
        const char *at = strchr(text, ';');
        while (at != NULL && reader->properties.count - made.first < DESCRIBED_MAX) {
            size_t bytes = strcspn(at + 1, ";");
            add_described(reader, at + 1, bytes);
            at = at[1 + bytes] != 0 ? at + 1 + bytes : NULL;
        }
        made.count = (uint32_t)reader->properties.count - made.first;
        if (!TOCSIN_VEC_PUSH(&reader->list, made)) {
            tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
            return NULL;
        }
        *index = reader->list.count;
    }
    const description *found = &reader->list.items[*index - 1];
    return found->count > 0 ? found : NULL;
}

/* ---- tensors ------------------------------------------------------------------------------- */

static void add(tocsin_properties *properties, tocsin_symbol name, uint8_t kind, int64_t integer)
{
    assert(properties->count < TOCSIN_PROPERTIES_MAX);
    properties->items[properties->count++] =
        (tocsin_property){.name = name, .kind = kind, .integer = integer};
}

static void add_sizes(tocsin_property_reader *reader, tocsin_process *process,
                      const tocsin_value *tensor, tocsin_properties *properties)
{
    const tocsin_dictionary *dictionary = &process->dictionary;
    const int64_t *sizes = NULL;
    uint32_t ndim = tensor->as.shape != 0
                        ? dictionary->shape(dictionary->producer, tensor->as.shape, &sizes)
                        : 0;
    int64_t bytes = (int64_t)tocsin_dtype_bytes((tocsin_dtype)tensor->dtype);
    add(properties, reader->itemsize, TOCSIN_VALUE_INT, bytes);
    for (uint32_t d = 0; sizes != NULL && d < ndim; ++d) {
        if (d < SIZES_MAX)
            add(properties, reader->sizes[d], TOCSIN_VALUE_INT, sizes[d]);
        if (__builtin_mul_overflow(bytes, sizes[d], &bytes))
            bytes = INT64_MAX;
    }
    add(properties, reader->nbytes, TOCSIN_VALUE_INT, bytes);
    add(properties, reader->shape, TOCSIN_VALUE_STRING,
        tocsin_scalar_of_shape(reader->observer, process, tensor->as.shape));
}

void tocsin_properties_read(tocsin_property_reader *reader, tocsin_process *process,
                            const tocsin_value *tensor, tocsin_properties *properties)
{
    tocsin_observer *observer = reader->observer;
    assert(tensor->kind == TOCSIN_VALUE_TENSOR);
    properties->count = 0;
    add(properties, reader->dtype, TOCSIN_VALUE_STRING,
        observer->dtypes[tensor->dtype % TOCSIN_DTYPES_MAX]);
    add(properties, reader->ndim, TOCSIN_VALUE_INT, tensor->ndim);
    add(properties, reader->requires_grad, TOCSIN_VALUE_BOOL,
        (tensor->flags & TOCSIN_VALUE_REQUIRES_GRAD) != 0);
    add_sizes(reader, process, tensor, properties);
    const description *described = describe(reader, process, tensor->type);
    for (uint32_t i = 0; described != NULL && i < described->count; ++i)
        properties->items[properties->count++] = reader->properties.items[described->first + i];
    if (described != NULL)
        return;
    add(properties, reader->is_leaf, TOCSIN_VALUE_BOOL,
        (tensor->flags & TOCSIN_VALUE_HAS_GRAD_FN) == 0);
    add(properties, reader->is_cpu, TOCSIN_VALUE_BOOL,
        (tensor->flags & TOCSIN_VALUE_ON_DEVICE) == 0);
}

tocsin_symbol tocsin_property_field(tocsin_property_reader *reader, bool output, int index,
                                    tocsin_symbol property)
{
    uint64_t place = (uint64_t)(index + 1) << 1 | output;
    uint64_t *field = tocsin_map_at(&reader->fields, place << 32 | property);
    if (field == NULL) {
        tocsin_observer_fail(reader->observer, TOCSIN_E_MEMORY, "out of memory");
        return 0;
    }
    if (*field == 0) {
        char stem[24] = "", text[40 + NAME_BYTES];
        if (index >= 0)
            snprintf(stem, sizeof stem, "[%d]", index);
        snprintf(text, sizeof text, "%s%s.%.63s", output ? "output" : "input", stem,
                 tocsin_symbol_text(reader->observer->vocabulary, property));
        *field = symbol(reader->observer, text);
    }
    return (tocsin_symbol)*field;
}

tocsin_scalar tocsin_property_scalar(tocsin_observer *observer, const tocsin_property *property,
                                     bool exact)
{
    tocsin_literal none = {.kind = TOCSIN_VALUE_NONE};
    switch (property->kind) {
    case TOCSIN_VALUE_BOOL:
        return observer->truth[property->integer != 0];
    case TOCSIN_VALUE_STRING:
        return (tocsin_scalar)property->integer;
    case TOCSIN_VALUE_INT:
        return exact || (property->integer >= -16 && property->integer <= 16)
                   ? tocsin_scalar_of_int(observer, property->integer)
                   : observer->opaque_int;
    default:
        return tocsin_observer_need(observer, tocsin_scalar_of(observer->vocabulary, &none));
    }
}
