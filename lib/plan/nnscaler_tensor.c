/* plan/nnscaler_tensor.c - tensors, numbers and cells of an nnScaler plan, as its pickle has them.
 *
 * Everything is looked up by attribute name and checked; a tensor is parsed once and remembered by
 * the address of its pickle value. Cost: a scan of about 15 attributes for each look-up.
 */
#include <assert.h>

#include "plan/nnscaler.h"
#include <tocsin/tensor.h>

/* numpy's scalar(dtype, little-endian bytes). */
static bool read_scalar(const tocsin_pickle_value *value, int64_t *integer)
{
    const tocsin_pickle_value *arguments = value->object->arguments;
    const tocsin_pickle_value *dtype = tocsin_pickle_item(arguments, 0);
    const tocsin_pickle_value *bytes = tocsin_pickle_item(arguments, 1);
    if (!tocsin_pickle_is(dtype, "dtype") || !bytes || bytes->kind != TOCSIN_PICKLE_BYTES)
        return false;
    const char *kind = tocsin_pickle_text(tocsin_pickle_item(dtype->object->arguments, 0));
    if ((kind[0] != 'i' && kind[0] != 'u') || bytes->count == 0 || bytes->count > 8)
        return false;
    const unsigned char *digits = (const unsigned char *)bytes->text;
    bool negative = kind[0] == 'i' && (digits[bytes->count - 1] & 0x80);
    uint64_t number = negative ? UINT64_MAX : 0;
    for (uint32_t i = bytes->count; i-- > 0;)
        number = number << 8 | digits[i];
    *integer = (int64_t)number;
    return kind[0] == 'i' || number <= INT64_MAX;
}

bool tocsin_nn_integer(const tocsin_pickle_value *value, int64_t *integer)
{
    if (tocsin_pickle_is(value, "scalar"))
        return read_scalar(value, integer);
    return tocsin_pickle_integer(value, integer);
}

tocsin_status tocsin_nn_id(tocsin_nn *nn, const tocsin_pickle_value *value, uint64_t *id)
{
    int64_t number;
    if (!tocsin_nn_integer(tocsin_pickle_member(value, "_id"), &number) || number < 0 ||
        number > UINT32_MAX)
        return tocsin_nn_fail(nn, TOCSIN_E_FORMAT, "an object of class %s has no number",
                              tocsin_pickle_class(value));
    *id = (uint64_t)number;
    return TOCSIN_OK;
}

bool tocsin_nn_true(const tocsin_pickle_value *value, const char *key)
{
    int64_t number;
    return tocsin_pickle_integer(tocsin_pickle_member(value, key), &number) && number != 0;
}

bool tocsin_nn_is_tensor(const tocsin_pickle_value *value)
{
    return tocsin_pickle_is(value, "IRSubTensor");
}

/* The slice: _indmap._indices = ((begin, end), ...) within the full tensor's _shape. */
static bool read_slice(const tocsin_pickle_value *value, const tocsin_pickle_value *full,
                       tocsin_nn_tensor *tensor)
{
    const tocsin_pickle_value *indices =
        tocsin_pickle_member(tocsin_pickle_member(value, "_indmap"), "_indices");
    const tocsin_pickle_value *shape = tocsin_pickle_member(full, "_shape");
    uint32_t ndim = tocsin_pickle_count(indices);
    if (ndim > TOCSIN_PLAN_NDIM_MAX || ndim != tocsin_pickle_count(shape))
        return false;
    tensor->ndim = (uint8_t)ndim;
    for (uint32_t d = 0; d < ndim; ++d) {
        const tocsin_pickle_value *range = tocsin_pickle_item(indices, d);
        int64_t begin, end, size;
        if (!tocsin_nn_integer(tocsin_pickle_item(range, 0), &begin) ||
            !tocsin_nn_integer(tocsin_pickle_item(range, 1), &end) ||
            !tocsin_nn_integer(tocsin_pickle_item(shape, d), &size) || begin < 0 || end <= begin ||
            end > size || size > TOCSIN_PLAN_INDEX_MAX)
            return false;
        tensor->start[d] = begin;
        tensor->size[d] = end - begin;
        tensor->full[d] = size;
    }
    return true;
}

static const tocsin_pickle_value *object_or_null(const tocsin_pickle_value *value)
{
    return value && value->kind == TOCSIN_PICKLE_OBJECT ? value : NULL;
}

static tocsin_status parse_tensor(tocsin_nn *nn, const tocsin_pickle_value *value,
                                  tocsin_nn_tensor *tensor)
{
    const tocsin_pickle_value *full = tocsin_pickle_member(value, "_full_tensor");
    if (!tocsin_nn_is_tensor(value) || !tocsin_pickle_is(full, "IRFullTensor"))
        return tocsin_nn_fail(nn, TOCSIN_E_FORMAT, "an object of class %s stands for a tensor",
                              tocsin_pickle_class(value));
    TOCSIN_TRY(tocsin_nn_id(nn, value, &tensor->id));
    TOCSIN_TRY(tocsin_nn_id(nn, full, &tensor->full_id));
    tensor->name = tocsin_pickle_text(tocsin_pickle_member(full, "name"));
    if (!read_slice(value, full, tensor))
        return tocsin_nn_fail(nn, TOCSIN_E_FORMAT, "tensor %llu (%s) has no slice of its whole",
                              (unsigned long long)tensor->id, tensor->name);
    const tocsin_pickle_value *gradient = tocsin_pickle_member(value, "_grad");
    tensor->gradient = tocsin_nn_is_tensor(gradient) ? gradient : NULL;
    tensor->consumer = object_or_null(tocsin_pickle_member(full, "_cell"));
    tensor->is_weight = tocsin_nn_true(full, "_is_attr");
    tensor->is_gradient = tocsin_nn_true(full, "_is_grad");
    tensor->is_loss = tocsin_nn_true(full, "_is_loss");
    const tocsin_pickle_value *dtype = tocsin_pickle_member(value, "_dtype");
    tensor->dtype = (uint8_t)tocsin_dtype_from_name(tocsin_pickle_class(dtype));
    return TOCSIN_OK;
}

tocsin_status tocsin_nn_read_tensor(tocsin_nn *nn, const tocsin_pickle_value *value,
                                    const tocsin_nn_tensor **tensor)
{
    uint64_t *known = tocsin_map_at(&nn->tensors, (uint64_t)(uintptr_t)value);
    if (!known)
        return tocsin_error_memory(nn->error);
    if (!*known) {
        tocsin_nn_tensor *parsed = TOCSIN_ARENA_NEW(&nn->arena, tocsin_nn_tensor);
        if (!parsed)
            return tocsin_error_memory(nn->error);
        *parsed = (tocsin_nn_tensor){0};
        TOCSIN_TRY(parse_tensor(nn, value, parsed));
        *known = (uint64_t)(uintptr_t)parsed;
    }
    *tensor = (const tocsin_nn_tensor *)(uintptr_t)*known;
    return TOCSIN_OK;
}

const tocsin_pickle_value *tocsin_nn_arguments(const tocsin_pickle_value *cell)
{
    const tocsin_pickle_value *arguments = tocsin_pickle_member(cell, "kwargs");
    if (!arguments)
        arguments = tocsin_pickle_member(cell, "_kwargs");
    return arguments && arguments->kind == TOCSIN_PICKLE_DICT ? arguments : NULL;
}

const tocsin_pickle_value *tocsin_nn_cell(const tocsin_pickle_value *cell)
{
    return tocsin_pickle_is(cell, "ExeReuseCell") ? tocsin_pickle_member(cell, "_cell") : cell;
}
