/* prove/evaluate_layout.c - arrays, and the operators that only move elements.
 *
 * Every movement is one strided gather, but for joins (cat, stack, pad), which scatter each input
 * into its place. Cost: linear in the elements moved.
 */
#include <assert.h>
#include <stdio.h>

#include "prove/evaluate_kernel.h"

/* ---- arrays ------------------------------------------------------------------------------------
 */

tocsin_status tocsin_array_new(tocsin_kernel *kernel, tocsin_array *array,
                               const tocsin_array *inputs, uint32_t input_count,
                               tocsin_element **data)
{
    assert(array->count >= 0 && array->data == NULL);
    if ((uint64_t)array->count > kernel->elements_limit - kernel->elements)
        return tocsin_error_set(kernel->error, TOCSIN_E_LIMIT,
                                "the plan has more than %llu elements to evaluate",
                                (unsigned long long)kernel->elements_limit);
    *data = TOCSIN_ARENA_ARRAY(&kernel->arena, tocsin_element, array->count);
    if (!*data)
        return tocsin_error_memory(kernel->error);
    kernel->elements += (uint64_t)array->count;
    array->data = *data;
    for (uint32_t i = 0; i < input_count; ++i) {
        array->opaque |= inputs[i].opaque;
        array->chosen |= inputs[i].chosen;
        array->weak |= inputs[i].weak;
        array->rational |= inputs[i].rational;
        if (inputs[i].degree > array->degree)
            array->degree = inputs[i].degree;
        if (!array->reason)
            array->reason = inputs[i].reason;
    }
    return TOCSIN_OK;
}

tocsin_status tocsin_array_undefine(tocsin_kernel *kernel, tocsin_array *array, const char *format,
                                    ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(text, sizeof text, format, arguments) < 0)
        text[0] = '\0';
    va_end(arguments);
    array->reason = tocsin_arena_copy(&kernel->arena, text, strlen(text));
    if (!array->reason)
        return tocsin_error_memory(kernel->error);
    tocsin_element *data = (tocsin_element *)array->data;
    if (!data)
        TOCSIN_TRY(tocsin_array_new(kernel, array, NULL, 0, &data));
    for (int64_t i = 0; i < array->count; ++i)
        data[i] = TOCSIN_ELEMENT_UNDEFINED;
    return TOCSIN_OK;
}

tocsin_status tocsin_kernel_spend(tocsin_kernel *kernel, double operations)
{
    if (operations > (double)(kernel->operations_limit - kernel->operations))
        return tocsin_error_set(kernel->error, TOCSIN_E_LIMIT,
                                "the plan takes more than %llu operations to evaluate",
                                (unsigned long long)kernel->operations_limit);
    kernel->operations += (uint64_t)operations;
    return TOCSIN_OK;
}

bool tocsin_array_same_shape(const tocsin_array *a, const tocsin_array *b)
{
    return a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
}

void tocsin_array_strides(const tocsin_array *array, int64_t *strides)
{
    int64_t stride = 1;
    for (uint8_t d = array->ndim; d-- > 0;) {
        strides[d] = stride;
        stride *= array->shape[d];
    }
}

/* Move between two walks over the same shape; one of them is dense. */
static void move(tocsin_element *out, const tocsin_element *in, const int64_t *shape, uint8_t ndim,
                 const int64_t *strides, int64_t count, bool scatter)
{
    int64_t index[TOCSIN_PLAN_NDIM_MAX] = {0}, at = 0;
    for (int64_t i = 0; i < count; ++i) {
        if (scatter)
            out[at] = in[i];
        else
            out[i] = in[at];
        for (uint8_t d = ndim; d-- > 0;) {
            at += strides[d];
            if (++index[d] < shape[d])
                break;
            at -= strides[d] * shape[d];
            index[d] = 0;
        }
    }
}

/* The last place that a walk reaches. */
static int64_t last_place(const int64_t *shape, uint8_t ndim, int64_t offset,
                          const int64_t *strides)
{
    for (uint8_t d = 0; d < ndim; ++d)
        offset += (shape[d] - 1) * strides[d];
    return offset;
}

tocsin_status tocsin_array_gather(tocsin_kernel *kernel, const tocsin_array *in, int64_t offset,
                                  const int64_t *strides, tocsin_array *out)
{
    if (out->count > 0 &&
        (offset < 0 || last_place(out->shape, out->ndim, offset, strides) >= in->count))
        return tocsin_array_undefine(kernel, out, "shapes do not fit");
    tocsin_element *data;
    TOCSIN_TRY(tocsin_kernel_spend(kernel, (double)out->count));
    TOCSIN_TRY(tocsin_array_new(kernel, out, in, 1, &data));
    move(data, in->data + offset, out->shape, out->ndim, strides, out->count, false);
    return TOCSIN_OK;
}

tocsin_status tocsin_array_slice(tocsin_kernel *kernel, const tocsin_array *in, uint32_t dim,
                                 int64_t start, int64_t step, tocsin_array *out)
{
    int64_t strides[TOCSIN_PLAN_NDIM_MAX];
    if (out->ndim != in->ndim || dim >= in->ndim || step < 1 || start < 0 ||
        start > in->shape[dim] ||
        (out->shape[dim] > 0 && (in->shape[dim] - start - 1) / step < out->shape[dim] - 1) ||
        (out->shape[dim] > 0 && start == in->shape[dim]))
        return tocsin_array_undefine(kernel, out, "a slice leaves its operand");
    for (uint8_t d = 0; d < in->ndim; ++d)
        if (d != dim && out->shape[d] != in->shape[d])
            return tocsin_array_undefine(kernel, out, "a slice has another shape");
    tocsin_array_strides(in, strides);
    int64_t offset = start * strides[dim];
    strides[dim] *= step;
    return tocsin_array_gather(kernel, in, offset, strides, out);
}

/* Write `in`, whose shape is out's but for `dim`, to [start, ..) of out's dim. */
static bool place(tocsin_element *data, const tocsin_array *out, const tocsin_array *in,
                  uint32_t dim, int64_t start)
{
    int64_t strides[TOCSIN_PLAN_NDIM_MAX];
    if (in->ndim != out->ndim || start < 0 || start + in->shape[dim] > out->shape[dim])
        return false;
    for (uint8_t d = 0; d < in->ndim; ++d)
        if (d != dim && in->shape[d] != out->shape[d])
            return false;
    tocsin_array_strides(out, strides);
    move(data + start * strides[dim], in->data, in->shape, in->ndim, strides, in->count, true);
    return true;
}

tocsin_status tocsin_array_cat(tocsin_kernel *kernel, const tocsin_array *inputs, uint32_t count,
                               uint32_t dim, tocsin_array *out)
{
    tocsin_element *data;
    int64_t start = 0;
    if (dim >= out->ndim)
        return tocsin_array_undefine(kernel, out, "no such dim to join on");
    TOCSIN_TRY(tocsin_kernel_spend(kernel, (double)out->count));
    TOCSIN_TRY(tocsin_array_new(kernel, out, inputs, count, &data));
    for (uint32_t i = 0; i < count; ++i) {
        if (!place(data, out, &inputs[i], dim, start))
            return tocsin_array_undefine(kernel, out, "the joined shapes do not fit");
        start += inputs[i].shape[dim];
    }
    if (start != out->shape[dim])
        return tocsin_array_undefine(kernel, out, "the joined shapes do not fit");
    return TOCSIN_OK;
}

/* ---- operators ---------------------------------------------------------------------------------
 */

/* The same elements in the same order under another shape. */
static tocsin_status share(tocsin_kernel *kernel, const tocsin_array *in, tocsin_array *out)
{
    if (in->count != out->count)
        return tocsin_array_undefine(kernel, out, "a view of another number of elements");
    const int64_t *shape = out->shape;
    uint8_t ndim = out->ndim;
    *out = *in;
    out->shape = shape;
    out->ndim = ndim;
    return TOCSIN_OK;
}

static tocsin_status permute(tocsin_kernel *kernel, const tocsin_plan_op *op,
                             const tocsin_array *in, tocsin_array *out)
{
    const tocsin_attribute *dims = tocsin_plan_attribute(kernel->plan, op->attributes, "dims");
    int64_t strides[TOCSIN_PLAN_NDIM_MAX], permuted[TOCSIN_PLAN_NDIM_MAX];
    if (!dims || dims->kind != TOCSIN_ATTRIBUTE_INTEGERS || dims->count != in->ndim ||
        out->ndim != in->ndim)
        return tocsin_array_undefine(kernel, out, "permute without one dim each");
    tocsin_array_strides(in, strides);
    for (uint8_t d = 0; d < in->ndim; ++d) {
        int64_t from = dims->integers[d] < 0 ? dims->integers[d] + in->ndim : dims->integers[d];
        if (from < 0 || from >= in->ndim || in->shape[from] != out->shape[d])
            return tocsin_array_undefine(kernel, out, "permute to another shape");
        permuted[d] = strides[from];
    }
    return tocsin_array_gather(kernel, in, 0, permuted, out);
}

static tocsin_status expand(tocsin_kernel *kernel, const tocsin_array *in, tocsin_array *out)
{
    int64_t strides[TOCSIN_PLAN_NDIM_MAX], expanded[TOCSIN_PLAN_NDIM_MAX] = {0};
    if (in->ndim > out->ndim)
        return tocsin_array_undefine(kernel, out, "expand to fewer dims");
    tocsin_array_strides(in, strides);
    for (uint8_t d = 0; d < in->ndim; ++d) {
        uint8_t to = (uint8_t)(out->ndim - in->ndim + d);
        if (in->shape[d] != out->shape[to] && in->shape[d] != 1)
            return tocsin_array_undefine(kernel, out, "expand of a dim that is not 1");
        expanded[to] = in->shape[d] == 1 ? 0 : strides[d];
    }
    return tocsin_array_gather(kernel, in, 0, expanded, out);
}

/* One index of one dim, which vanishes. */
static tocsin_status select_index(tocsin_kernel *kernel, const tocsin_array *in, uint32_t dim,
                                  int64_t index, tocsin_array *out)
{
    int64_t strides[TOCSIN_PLAN_NDIM_MAX];
    if (index < 0)
        index += in->shape[dim];
    if (index < 0 || index >= in->shape[dim] || out->ndim + 1 != in->ndim)
        return tocsin_array_undefine(kernel, out, "no such index to select");
    tocsin_array_strides(in, strides);
    int64_t offset = index * strides[dim];
    for (uint32_t d = dim; d + 1 < in->ndim; ++d)
        strides[d] = strides[d + 1];
    for (uint8_t d = 0; d < out->ndim; ++d)
        if (out->shape[d] != in->shape[d < dim ? d : d + 1])
            return tocsin_array_undefine(kernel, out, "select has another shape");
    return tocsin_array_gather(kernel, in, offset, strides, out);
}

static tocsin_status split(tocsin_kernel *kernel, const tocsin_plan_op *op, uint32_t dim,
                           const tocsin_array *in, tocsin_array *outputs)
{
    int64_t start = 0;
    for (uint32_t i = 0; i < op->output_count; ++i) {
        if (op->code == TOCSIN_OPERATOR_UNBIND) {
            TOCSIN_TRY(select_index(kernel, in, dim, i, &outputs[i]));
            continue;
        }
        TOCSIN_TRY(tocsin_array_slice(kernel, in, dim, start, 1, &outputs[i]));
        start += dim < outputs[i].ndim ? outputs[i].shape[dim] : 0;
    }
    return TOCSIN_OK;
}

/* Each input gets a dim of size 1, and they are joined on it. */
static tocsin_status stack(tocsin_kernel *kernel, const tocsin_plan_op *op,
                           const tocsin_array *inputs, tocsin_array *out)
{
    uint32_t dim;
    if (!tocsin_kernel_dim(kernel, op, "dim", 0, out->ndim, &dim))
        return tocsin_array_undefine(kernel, out, "no such dim to stack on");
    tocsin_array *thin = TOCSIN_ARENA_ARRAY(&kernel->arena, tocsin_array, op->input_count);
    int64_t *shape = TOCSIN_ARENA_ARRAY(&kernel->arena, int64_t, out->ndim);
    if (!thin || !shape)
        return tocsin_error_memory(kernel->error);
    memcpy(shape, out->shape, out->ndim * sizeof *shape);
    shape[dim] = 1;
    for (uint32_t i = 0; i < op->input_count; ++i) {
        thin[i] = inputs[i];
        thin[i].shape = shape;
        thin[i].ndim = out->ndim;
        bool fits = inputs[i].ndim + 1 == out->ndim;
        for (uint8_t d = 0; fits && d < inputs[i].ndim; ++d)
            fits = inputs[i].shape[d] == shape[d < dim ? d : d + 1];
        if (!fits)
            return tocsin_array_undefine(kernel, out, "the stacked shapes do not fit");
    }
    return tocsin_array_cat(kernel, thin, op->input_count, dim, out);
}

static tocsin_status pad(tocsin_kernel *kernel, const tocsin_plan_op *op, const tocsin_array *in,
                         tocsin_array *out)
{
    uint32_t dim;
    int64_t before = tocsin_kernel_integer(kernel, op, "before", 0);
    int64_t after = tocsin_kernel_integer(kernel, op, "after", 0);
    if (!tocsin_kernel_dim(kernel, op, "dim", 0, in->ndim, &dim) || out->ndim != in->ndim ||
        before < 0 || before > out->shape[dim] ||
        after != out->shape[dim] - before - in->shape[dim])
        return tocsin_array_undefine(kernel, out, "pad to another shape");
    tocsin_element *data;
    TOCSIN_TRY(tocsin_kernel_spend(kernel, (double)out->count));
    TOCSIN_TRY(tocsin_array_new(kernel, out, in, 1, &data));
    memset(data, 0, (size_t)out->count * sizeof *data);
    if (!place(data, out, in, dim, before))
        return tocsin_array_undefine(kernel, out, "pad to another shape");
    return TOCSIN_OK;
}

tocsin_status tocsin_kernel_layout(tocsin_kernel *kernel, const tocsin_plan_op *op,
                                   const tocsin_array *inputs, tocsin_array *outputs)
{
    uint32_t dim = 0;
    tocsin_array *out = outputs;
    switch (op->code) {
    case TOCSIN_OPERATOR_COPIES:
        for (uint32_t i = 0; i < op->output_count; ++i)
            TOCSIN_TRY(share(kernel, inputs, &outputs[i]));
        return TOCSIN_OK;
    case TOCSIN_OPERATOR_PERMUTE:
        return permute(kernel, op, inputs, out);
    case TOCSIN_OPERATOR_EXPAND:
        return expand(kernel, inputs, out);
    case TOCSIN_OPERATOR_STACK:
        return stack(kernel, op, inputs, out);
    case TOCSIN_OPERATOR_PAD:
        return pad(kernel, op, inputs, out);
    case TOCSIN_OPERATOR_SLICE:
    case TOCSIN_OPERATOR_SELECT:
    case TOCSIN_OPERATOR_SPLIT:
    case TOCSIN_OPERATOR_UNBIND:
    case TOCSIN_OPERATOR_CAT:
        break;
    default: /* identity, cast, wait, view */
        return share(kernel, inputs, out);
    }
    if (!tocsin_kernel_dim(kernel, op, "dim", 0, inputs->ndim, &dim)) {
        for (uint32_t i = 0; i < op->output_count; ++i)
            TOCSIN_TRY(tocsin_array_undefine(kernel, &outputs[i], "no such dim"));
        return TOCSIN_OK;
    }
    if (op->code == TOCSIN_OPERATOR_SLICE) {
        int64_t start = tocsin_kernel_integer(kernel, op, "start", 0);
        return tocsin_array_slice(kernel, inputs, dim,
                                  start < 0 ? start + inputs->shape[dim] : start,
                                  tocsin_kernel_integer(kernel, op, "step", 1), out);
    }
    if (op->code == TOCSIN_OPERATOR_SELECT)
        return select_index(kernel, inputs, dim, tocsin_kernel_integer(kernel, op, "index", 0),
                            out);
    if (op->code == TOCSIN_OPERATOR_CAT)
        return tocsin_array_cat(kernel, inputs, op->input_count, dim, out);
    return split(kernel, op, dim, inputs, outputs);
}
