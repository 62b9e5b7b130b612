/* prove/evaluate_operator.c - one operator on arrays: attributes, reductions, look-ups, constants.
 *
 * Layout, element-wise operators and those known by signature have files of their own.
 */
#include <assert.h>
#include <math.h>

#include "prove/evaluate_kernel.h"

/* ---- attributes -------------------------------------------------------------------------------
 */

static const tocsin_attribute *find_attribute(const tocsin_kernel *kernel, const tocsin_plan_op *op,
                                              const char *key)
{
    return tocsin_plan_attribute(kernel->plan, op->attributes, key);
}

int64_t tocsin_kernel_integer(const tocsin_kernel *kernel, const tocsin_plan_op *op,
                              const char *key, int64_t absent)
{
    const tocsin_attribute *attribute = find_attribute(kernel, op, key);
    bool is_integer =
        attribute && attribute->kind == TOCSIN_ATTRIBUTE_INTEGERS && attribute->count == 1;
    return is_integer ? attribute->integers[0] : absent;
}

double tocsin_kernel_real(const tocsin_kernel *kernel, const tocsin_plan_op *op, const char *key,
                          double absent)
{
    const tocsin_attribute *attribute = find_attribute(kernel, op, key);
    if (attribute && attribute->kind == TOCSIN_ATTRIBUTE_REAL)
        return attribute->real;
    if (attribute && attribute->kind == TOCSIN_ATTRIBUTE_INTEGERS && attribute->count == 1)
        return (double)attribute->integers[0];
    return absent;
}

const char *tocsin_kernel_text(const tocsin_kernel *kernel, const tocsin_plan_op *op,
                               const char *key, const char *absent)
{
    const tocsin_attribute *attribute = find_attribute(kernel, op, key);
    bool is_text = attribute && attribute->kind == TOCSIN_ATTRIBUTE_TEXT;
    return is_text ? tocsin_plan_text(kernel->plan, attribute->text) : absent;
}

bool tocsin_kernel_dim(const tocsin_kernel *kernel, const tocsin_plan_op *op, const char *key,
                       int64_t absent, uint8_t ndim, uint32_t *dim)
{
    int64_t value = tocsin_kernel_integer(kernel, op, key, absent);
    if (value < 0)
        value += ndim;
    *dim = (uint32_t)value;
    return value >= 0 && value < ndim;
}

uint64_t tocsin_kernel_function(const tocsin_kernel *kernel, const tocsin_plan_op *op)
{
    bool of_table = op->code != TOCSIN_OPERATOR_CALL && op->signature == TOCSIN_PLAN_NONE;
    const char *name =
        of_table ? tocsin_operators[op->code].name : tocsin_plan_text(kernel->plan, op->name);
    uint64_t hash = tocsin_hash64(name, strlen(name), 0);
    const tocsin_attribute_set *set = &kernel->plan->attribute_sets.items[op->attributes];
    for (uint32_t i = 0; i < set->count; ++i) {
        const tocsin_attribute *attribute = &set->items[i];
        const char *key = tocsin_plan_text(kernel->plan, attribute->key);
        hash = tocsin_hash64(key, strlen(key), hash + attribute->kind);
        if (attribute->kind == TOCSIN_ATTRIBUTE_INTEGERS) {
            hash = tocsin_hash64(attribute->integers, attribute->count * sizeof(int64_t), hash);
        } else if (attribute->kind == TOCSIN_ATTRIBUTE_REAL) {
            hash = tocsin_hash64(&attribute->real, sizeof attribute->real, hash);
        } else {
            const char *text = tocsin_plan_text(kernel->plan, attribute->text);
            hash = tocsin_hash64(text, strlen(text), hash);
        }
    }
    return hash;
}

void tocsin_kernel_ask(tocsin_kernel *kernel, double count, double degree)
{
    kernel->collision += count * count / 2 * fmax(degree, 1) / (double)TOCSIN_FIELD_Q;
}

/* ---- reductions -------------------------------------------------------------------------------
 */

typedef enum reduction { REDUCE_SUM, REDUCE_MAX, REDUCE_MIN } reduction;

/* Fold `more` into *sum; `*chosen` when the order was random. */
static void fold(const tocsin_kernel *kernel, reduction how, tocsin_element *sum,
                 tocsin_element more, bool *chosen)
{
    if (how == REDUCE_SUM)
        *sum = tocsin_element_add(*sum, more);
    else if (tocsin_element_is_undefined(*sum) || tocsin_element_is_undefined(more))
        *sum = TOCSIN_ELEMENT_UNDEFINED;
    else if (tocsin_element_compare(&kernel->field, more, *sum, chosen) *
                 (how == REDUCE_MAX ? 1 : -1) >
             0)
        *sum = more;
}

static tocsin_element neutral(reduction how)
{
    return how == REDUCE_SUM   ? tocsin_element_of_integer(0)
           : how == REDUCE_MAX ? TOCSIN_ELEMENT_NEGATIVE
                               : TOCSIN_ELEMENT_POSITIVE;
}

tocsin_status tocsin_array_combine(tocsin_kernel *kernel, const tocsin_array *inputs,
                                   uint32_t count, const char *how, tocsin_array *out)
{
    reduction kind = strcmp(how, "max") == 0   ? REDUCE_MAX
                     : strcmp(how, "min") == 0 ? REDUCE_MIN
                                               : REDUCE_SUM;
    bool is_average = strcmp(how, "avg") == 0;
    if (kind == REDUCE_SUM && !is_average && strcmp(how, "sum") != 0)
        return tocsin_array_undefine(kernel, out, "no rule for a reduction by %s", how);
    tocsin_element *data;
    bool chosen = false;
    double degree = 0;
    TOCSIN_TRY(tocsin_kernel_spend(kernel, (double)out->count * count));
    TOCSIN_TRY(tocsin_array_new(kernel, out, inputs, count, &data));
    for (int64_t k = 0; k < out->count; ++k)
        data[k] = neutral(kind);
    for (uint32_t i = 0; i < count; ++i) {
        if (inputs[i].count != out->count)
            return tocsin_array_undefine(kernel, out, "the reduced shapes do not fit");
        for (int64_t k = 0; k < out->count; ++k)
            fold(kernel, kind, &data[k], inputs[i].data[k], &chosen);
        degree += inputs[i].degree;
    }
    tocsin_element share = tocsin_element_inverse(tocsin_element_of_integer(count));
    for (int64_t k = 0; is_average && k < out->count; ++k)
        data[k] = tocsin_element_multiply(data[k], share);
    if (out->rational)
        out->degree = degree;
    out->chosen |= chosen;
    out->opaque |= chosen;
    return TOCSIN_OK;
}

/* Bit d: dim d is reduced; all without `dims`. false: no such dim. */
static bool reduced_dims(const tocsin_kernel *kernel, const tocsin_plan_op *op, uint8_t ndim,
                         uint32_t *mask)
{
    const tocsin_attribute *dims = find_attribute(kernel, op, "dims");
    *mask = (UINT32_C(1) << ndim) - 1;
    if (!dims || dims->kind != TOCSIN_ATTRIBUTE_INTEGERS)
        return !dims;
    *mask = 0;
    for (uint32_t i = 0; i < dims->count; ++i) {
        int64_t dim = dims->integers[i] < 0 ? dims->integers[i] + ndim : dims->integers[i];
        if (dim < 0 || dim >= ndim)
            return false;
        *mask |= UINT32_C(1) << dim;
    }
    return true;
}

/* Strides of the output along the dims of the input, 0 for reduced ones; how many are reduced. */
static int64_t reduced_strides(const tocsin_array *in, uint32_t mask, int64_t *strides)
{
    int64_t stride = 1, reduced = 1;
    for (uint8_t d = in->ndim; d-- > 0;) {
        bool is_reduced = mask >> d & 1;
        strides[d] = is_reduced ? 0 : stride;
        *(is_reduced ? &reduced : &stride) *= in->shape[d];
    }
    return reduced;
}

/* Move to the next element of the input; *at follows in the output. */
static void advance(const tocsin_array *in, const int64_t *strides, int64_t *index, int64_t *at)
{
    for (uint8_t d = in->ndim; d-- > 0;) {
        *at += strides[d];
        if (++index[d] < in->shape[d])
            return;
        *at -= strides[d] * in->shape[d];
        index[d] = 0;
    }
}

static tocsin_status reduce(tocsin_kernel *kernel, const tocsin_plan_op *op, const tocsin_array *in,
                            tocsin_array *out)
{
    reduction how = op->code == TOCSIN_OPERATOR_AMAX ? REDUCE_MAX : REDUCE_SUM;
    uint32_t mask;
    int64_t strides[TOCSIN_PLAN_NDIM_MAX], index[TOCSIN_PLAN_NDIM_MAX] = {0}, at = 0;
    if (!reduced_dims(kernel, op, in->ndim, &mask))
        return tocsin_array_undefine(kernel, out, "no such dim to reduce");
    int64_t reduced = reduced_strides(in, mask, strides);
    if (reduced > 0 && in->count / reduced != out->count)
        return tocsin_array_undefine(kernel, out, "the reduced shape does not fit");
    tocsin_element *data;
    bool chosen = false;
    TOCSIN_TRY(tocsin_kernel_spend(kernel, (double)in->count));
    TOCSIN_TRY(tocsin_array_new(kernel, out, in, 1, &data));
    for (int64_t k = 0; k < out->count; ++k)
        data[k] = neutral(how);
    for (int64_t k = 0; k < in->count; ++k) {
        fold(kernel, how, &data[at], in->data[k], &chosen);
        advance(in, strides, index, &at);
    }
    tocsin_element share = tocsin_element_inverse(tocsin_element_of_integer(reduced));
    for (int64_t k = 0; op->code == TOCSIN_OPERATOR_MEAN && k < out->count; ++k)
        data[k] = tocsin_element_multiply(data[k], share);
    if (out->rational && how == REDUCE_SUM)
        out->degree *= (double)reduced;
    out->chosen |= chosen;
    out->opaque |= chosen;
    return TOCSIN_OK;
}

static tocsin_status softmax(tocsin_kernel *kernel, const tocsin_plan_op *op,
                             const tocsin_array *in, tocsin_array *out)
{
    uint32_t dim;
    int64_t strides[TOCSIN_PLAN_NDIM_MAX], index[TOCSIN_PLAN_NDIM_MAX] = {0}, at = 0;
    if (!tocsin_kernel_dim(kernel, op, "dim", -1, in->ndim, &dim) ||
        !tocsin_array_same_shape(in, out))
        return tocsin_array_undefine(kernel, out, "softmax over no dim");
    int64_t row = reduced_strides(in, UINT32_C(1) << dim, strides);
    tocsin_element *data;
    TOCSIN_TRY(tocsin_kernel_spend(kernel, (double)in->count * 40)); /* exp, inverse */
    TOCSIN_TRY(tocsin_array_new(kernel, out, in, 1, &data));
    size_t sum_count = (size_t)(row ? in->count / row : 0);
    tocsin_element *sums = tocsin_zalloc(sum_count, sizeof *sums);
    if (!sums)
        return tocsin_error_memory(kernel->error);
    for (int64_t k = 0; k < in->count; ++k) {
        data[k] = tocsin_element_exp(&kernel->field, in->data[k]);
        sums[at] = tocsin_element_add(sums[at], data[k]);
        advance(in, strides, index, &at);
    }
    for (size_t s = 0; s < sum_count; ++s)
        sums[s] = tocsin_element_inverse(sums[s]);
    for (int64_t k = 0; k < in->count; ++k) {
        data[k] = tocsin_element_multiply(data[k], sums[at]);
        if (tocsin_element_is_undefined(data[k]) && !out->reason)
            out->reason = "a softmax over nothing";
        advance(in, strides, index, &at);
    }
    tocsin_free(sums);
    tocsin_kernel_ask(kernel, (double)in->count, in->degree);
    out->opaque |= out->weak;
    out->weak = out->rational = true;
    out->degree = (double)row + 1;
    return TOCSIN_OK;
}

/* ---- look-ups, constants -----------------------------------------------------------------------
 */

/* out[..., :] = table[indices[...], :], or for the gradient out[indices[...], :] += in[..., :]. */
static tocsin_status look_up(tocsin_kernel *kernel, const tocsin_plan_op *op,
                             const tocsin_array *inputs, tocsin_array *out)
{
    const bool is_gradient = op->code == TOCSIN_OPERATOR_EMBEDDING_BACKWARD;
    const tocsin_array *table = is_gradient ? out : &inputs[0]; /* [rows, width] */
    const tocsin_array *lines = is_gradient ? &inputs[0] : out; /* [..., width] */
    const tocsin_array *indices = &inputs[1];
    /* The rows of the whole table that this one has; stop -1: all. */
    const int64_t start = tocsin_kernel_integer(kernel, op, "start", 0);
    const int64_t stop = tocsin_kernel_integer(kernel, op, "stop", -1);
    if (op->input_count != 2 || table->ndim < 1 || table->shape[0] < 1)
        return tocsin_array_undefine(kernel, out, "a look-up without a table");
    int64_t width = table->count / table->shape[0];
    if (lines->count / (width ? width : 1) != indices->count || lines->count % (width ? width : 1))
        return tocsin_array_undefine(kernel, out, "a look-up of another shape");
    tocsin_element *data;
    TOCSIN_TRY(tocsin_kernel_spend(kernel, (double)(table->count + lines->count)));
    TOCSIN_TRY(tocsin_array_new(kernel, out, inputs, 1, &data));
    memset(data, 0, (size_t)out->count * sizeof *data);
    out->opaque |= indices->opaque;
    out->chosen |= indices->chosen;
    for (int64_t i = 0; i < indices->count; ++i) {
        int64_t row;
        bool is_index = tocsin_element_is_integer(indices->data[i], &row);
        if (is_index && stop >= 0 && (row < start || row >= stop))
            continue; /* the row is another rank's: nothing of the sum */
        row -= start;
        if (!is_index || row < 0 || row >= table->shape[0])
            return tocsin_array_undefine(kernel, out, "%s of an index out of range",
                                         tocsin_operators[op->code].name);
        for (int64_t w = 0; w < width; ++w) {
            if (is_gradient)
                data[row * width + w] =
                    tocsin_element_add(data[row * width + w], inputs[0].data[i * width + w]);
            else
                data[i * width + w] = inputs[0].data[row * width + w];
        }
    }
    if (is_gradient && out->rational)
        out->degree *= (double)indices->count;
    return TOCSIN_OK;
}

static tocsin_status constant(tocsin_kernel *kernel, const tocsin_plan_op *op, tocsin_array *out)
{
    tocsin_element *data;
    bool is_range = op->code == TOCSIN_OPERATOR_ARANGE;
    tocsin_element value = tocsin_element_of_real(
        &kernel->field, is_range ? tocsin_kernel_real(kernel, op, "start", 0)
                                 : tocsin_kernel_real(kernel, op, "value", 0));
    tocsin_element step = tocsin_element_of_real(
        &kernel->field, is_range ? tocsin_kernel_real(kernel, op, "step", 1) : 0);
    TOCSIN_TRY(tocsin_kernel_spend(kernel, (double)out->count));
    TOCSIN_TRY(tocsin_array_new(kernel, out, NULL, 0, &data));
    for (int64_t k = 0; k < out->count; ++k) {
        data[k] = value;
        if (is_range)
            value = tocsin_element_add(value, step);
    }
    return TOCSIN_OK;
}

/* Rows r and columns c of the last two dims: what has c - r <= diagonal stays (upper: >=). */
static tocsin_status triangle(tocsin_kernel *kernel, const tocsin_plan_op *op,
                              const tocsin_array *in, tocsin_array *out)
{
    if (in->ndim < 2 || !tocsin_array_same_shape(in, out))
        return tocsin_array_undefine(kernel, out, "a triangle of no matrix");
    tocsin_element *data;
    TOCSIN_TRY(tocsin_kernel_spend(kernel, (double)out->count));
    TOCSIN_TRY(tocsin_array_new(kernel, out, in, 1, &data));
    int64_t rows = in->shape[in->ndim - 2], columns = in->shape[in->ndim - 1];
    int64_t diagonal = tocsin_kernel_integer(kernel, op, "diagonal", 0);
    bool is_upper = tocsin_kernel_integer(kernel, op, "upper", 0) != 0;
    for (int64_t k = 0; k < in->count; ++k) {
        int64_t distance = k % columns - k / columns % rows;
        bool stays = is_upper ? distance >= diagonal : distance <= diagonal;
        data[k] = stays ? in->data[k] : tocsin_element_of_integer(0);
    }
    return TOCSIN_OK;
}

static bool is_layout(tocsin_operator_code code)
{
    return code >= TOCSIN_OPERATOR_IDENTITY && code <= TOCSIN_OPERATOR_PAD;
}

tocsin_status tocsin_kernel_run(tocsin_kernel *kernel, const tocsin_plan_op *op,
                                const tocsin_array *inputs, tocsin_array *outputs)
{
    tocsin_operator_code code =
        op->signature == TOCSIN_PLAN_NONE ? (tocsin_operator_code)op->code : TOCSIN_OPERATOR_CALL;
    const tocsin_operator *known = &tocsin_operators[code];
    assert(!tocsin_operator_communicates(code));
    for (uint32_t i = 0; i < op->input_count; ++i) {
        if (inputs[i].data)
            continue;
        for (uint32_t o = 0; o < op->output_count; ++o)
            TOCSIN_TRY(tocsin_array_undefine(kernel, &outputs[o], "%s reads what nothing wrote",
                                             tocsin_plan_text(kernel->plan, op->name)));
        return TOCSIN_OK;
    }
    bool fits = (known->input_count < 0 ? code == TOCSIN_OPERATOR_CALL || op->input_count > 0
                                        : known->input_count == op->input_count) &&
                (known->output_count < 0 || code == TOCSIN_OPERATOR_CALL ||
                 known->output_count == op->output_count);
    if (code == TOCSIN_OPERATOR_CALL)
        return tocsin_kernel_call(kernel, op, inputs, outputs);
    if (!fits) {
        for (uint32_t o = 0; o < op->output_count; ++o)
            TOCSIN_TRY(
                tocsin_array_undefine(kernel, &outputs[o], "%s with other operands", known->name));
        return TOCSIN_OK;
    }
    if (is_layout(code) && (code != TOCSIN_OPERATOR_CAST || kernel->cast == TOCSIN_CAST_ALL))
        return tocsin_kernel_layout(kernel, op, inputs, outputs);
    if (tocsin_kernel_is_pointwise(code))
        return tocsin_kernel_pointwise(kernel, op, inputs, outputs);
    switch (code) {
    case TOCSIN_OPERATOR_SUM:
    case TOCSIN_OPERATOR_MEAN:
    case TOCSIN_OPERATOR_AMAX:
        return reduce(kernel, op, inputs, outputs);
    case TOCSIN_OPERATOR_SOFTMAX:
        return softmax(kernel, op, inputs, outputs);
    case TOCSIN_OPERATOR_EMBEDDING:
    case TOCSIN_OPERATOR_EMBEDDING_BACKWARD:
        return look_up(kernel, op, inputs, outputs);
    case TOCSIN_OPERATOR_FULL:
    case TOCSIN_OPERATOR_ARANGE:
        return constant(kernel, op, outputs);
    case TOCSIN_OPERATOR_TRIANGLE:
        return triangle(kernel, op, inputs, outputs);
    default:
        return tocsin_kernel_call(kernel, op, inputs, outputs);
    }
}
