/* prove/evaluate_call.c - operators known by their axis signature alone.
 *
 * A random function that has exactly the properties the signature declares:
 *
 *     out[i] = sum over c of  N(i, c) * product over linear operands j of L_j(i, c)
 *
 * c runs over the contracted axes. N is an oracle over the rows of the operands that are not
 * linear: their elements at (i, c), all of them along whole axes. L_j is the element at (i, c), or,
 * along whole axes, the elements weighted by oracles of their place. The place i enters the
 * oracles along axes that must be whole or that no operand has, and never along free ones.
 * For the table's contractions (linear, mm, ...) N is 1: the sum is the true one.
 * Cost: elements of the output times those of the rows and of the contracted axes.
 */
#include <assert.h>

#include "prove/evaluate_kernel.h"

enum { AXES_MAX = 64 };

/* One operand's place in the loops. */
typedef struct bound_operand {
    int64_t stride[AXES_MAX]; /* per loop axis; 0: none, or broadcast */
    bool has[AXES_MAX];
    bool ignored; /* has an axis that it declares not to matter */
} bound_operand;

typedef struct evaluated_call {
    tocsin_kernel *kernel;
    const tocsin_signature *signature;
    const tocsin_array *inputs;
    const tocsin_array *out;
    bound_operand operands[TOCSIN_SIGNATURE_OPERANDS_MAX];
    int64_t size[AXES_MAX]; /* -1: not bound */
    bool whole[AXES_MAX];
    bool in_output[AXES_MAX];
    uint32_t axis_count;
    uint32_t ellipsis_first, ellipsis_count;
    uint32_t contracted[AXES_MAX], contracted_count; /* of this output */
    uint32_t output_axes[TOCSIN_PLAN_NDIM_MAX];      /* loop axis of every dim, AXES_MAX: size 1 */
    uint64_t key;
    bool plain; /* N = 1 */
} evaluated_call;

static const tocsin_signature *find_signature(tocsin_kernel *kernel, const tocsin_plan_op *op)
{
    if (op->signature != TOCSIN_PLAN_NONE)
        return &kernel->plan->signatures.items[op->signature];
    const char *text = tocsin_operators[op->code].signature;
    if (kernel->signatures[op->code] || !text[0])
        return kernel->signatures[op->code];
    tocsin_signature *parsed = TOCSIN_ARENA_NEW(&kernel->arena, tocsin_signature);
    if (!parsed || tocsin_signature_parse(text, strlen(text), parsed, NULL) != TOCSIN_OK)
        return NULL;
    kernel->signatures[op->code] = parsed;
    return parsed;
}

/* The loop axis of dim d of an operand, a new one for `_`; AXES_MAX for `1`. */
static uint32_t axis_of(evaluated_call *call, const tocsin_signature_operand *operand, uint8_t ndim,
                        uint8_t d)
{
    uint8_t leading = (uint8_t)(ndim - operand->ndim);
    if (d < leading)
        return call->ellipsis_first + call->ellipsis_count - leading + d;
    int8_t axis = operand->axis[d - leading];
    if (axis == TOCSIN_AXIS_ONE)
        return AXES_MAX;
    if (axis != TOCSIN_AXIS_ANY)
        return (uint32_t)axis;
    if (call->axis_count < AXES_MAX) {
        call->size[call->axis_count] = -1;
        call->whole[call->axis_count] = true;
    }
    return call->axis_count++;
}

/* Sizes and strides of one operand; NULL or what does not fit. */
static const char *bind_operand(evaluated_call *call, uint32_t number, const tocsin_array *array,
                                bound_operand *bound)
{
    const tocsin_signature_operand *operand = &call->signature->operands[number];
    int64_t strides[TOCSIN_PLAN_NDIM_MAX];
    if (array->ndim < operand->ndim || (array->ndim > operand->ndim && !operand->ellipsis))
        return "an operand has other dims than its signature";
    tocsin_array_strides(array, strides);
    for (uint8_t d = 0; d < array->ndim; ++d) {
        uint32_t axis = axis_of(call, operand, array->ndim, d);
        if (call->axis_count > AXES_MAX)
            return "a signature with too many axes";
        if (axis == AXES_MAX) {
            if (array->shape[d] != 1)
                return "an operand's dim is not 1";
            continue;
        }
        bool is_ellipsis =
            axis >= call->ellipsis_first && axis < call->ellipsis_first + call->ellipsis_count;
        if (is_ellipsis && array->shape[d] == 1) {
            if (call->size[axis] < 0)
                call->size[axis] = 1;
            continue;
        }
        if (call->size[axis] >= 0 && call->size[axis] != array->shape[d] &&
            !(is_ellipsis && call->size[axis] == 1))
            return "an axis has two sizes";
        call->size[axis] = array->shape[d];
        bound->has[axis] = true;
        bound->stride[axis] += strides[d]; /* twice in one operand: its diagonal */
    }
    return NULL;
}

static const char *bind(evaluated_call *call, const tocsin_plan_op *op)
{
    const tocsin_signature *signature = call->signature;
    if (signature->input_count != op->input_count || signature->output_count != op->output_count)
        return "an operator with other operands than its signature";
    call->axis_count = signature->axis_count;
    for (uint32_t a = 0; a < AXES_MAX; ++a) {
        call->size[a] = -1;
        call->whole[a] = a < signature->axis_count && signature->whole[a];
    }
    call->ellipsis_first = call->axis_count;
    for (uint32_t i = 0; i < op->input_count; ++i)
        if (signature->operands[i].ellipsis && call->inputs[i].ndim > signature->operands[i].ndim &&
            call->inputs[i].ndim - signature->operands[i].ndim > (int)call->ellipsis_count)
            call->ellipsis_count = (uint32_t)(call->inputs[i].ndim - signature->operands[i].ndim);
    call->axis_count += call->ellipsis_count;
    for (uint32_t i = 0; i < op->input_count; ++i) {
        const char *wrong = bind_operand(call, i, &call->inputs[i], &call->operands[i]);
        if (wrong)
            return wrong;
    }
    return NULL;
}

/* Which loops this output has; NULL or what does not fit. */
static const char *bind_output(evaluated_call *call, uint32_t number)
{
    const tocsin_signature *signature = call->signature;
    const tocsin_signature_operand *operand = &signature->operands[signature->input_count + number];
    const tocsin_array *out = call->out;
    memset(call->in_output, 0, sizeof call->in_output);
    call->contracted_count = 0;
    if (out->ndim < operand->ndim || (out->ndim > operand->ndim && !operand->ellipsis) ||
        out->ndim - operand->ndim > (int)call->ellipsis_count)
        return "the output has other dims than its signature";
    for (uint8_t d = 0; d < out->ndim; ++d) {
        uint32_t axis = axis_of(call, operand, out->ndim, d);
        if (call->axis_count > AXES_MAX)
            return "a signature with too many axes";
        call->output_axes[d] = axis;
        if (axis == AXES_MAX)
            continue;
        if (call->size[axis] < 0) { /* no operand has it */
            call->size[axis] = out->shape[d];
            call->whole[axis] = true;
        }
        if (call->size[axis] != out->shape[d])
            return "the output has another shape than its signature";
        call->in_output[axis] = true;
    }
    for (uint32_t a = 0; a < signature->axis_count; ++a)
        if (signature->contracted[a] && !call->in_output[a] && call->size[a] >= 0)
            call->contracted[call->contracted_count++] = a;
    for (uint32_t i = 0; i < signature->input_count; ++i) {
        call->operands[i].ignored = false;
        for (uint32_t a = 0; a < call->axis_count; ++a)
            call->operands[i].ignored |= call->operands[i].has[a] && !call->in_output[a] &&
                                         !call->whole[a] && call->size[a] > 1 &&
                                         !(a < signature->axis_count && signature->contracted[a]);
    }
    return NULL;
}

/* The next index of a row, along the operand's whole axes; false after the last. */
static bool next_in_row(const evaluated_call *call, const bound_operand *operand, int64_t *index,
                        int64_t *offset)
{
    for (uint32_t a = call->axis_count; a-- > 0;) {
        if (!call->whole[a] || !operand->has[a])
            continue;
        *offset += operand->stride[a];
        if (++index[a] < call->size[a])
            return true;
        *offset -= operand->stride[a] * call->size[a];
        index[a] = 0;
    }
    return false;
}

static bool has_row(const evaluated_call *call, const bound_operand *operand)
{
    for (uint32_t a = 0; a < call->axis_count; ++a)
        if (call->whole[a] && operand->has[a])
            return true;
    return false;
}

/* The hash of the operands that are not linear, at the loops' place; false: one is undefined. */
static bool hash_rows(const evaluated_call *call, const int64_t *offsets, uint64_t *state)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < call->signature->input_count; ++i) {
        const bound_operand *operand = &call->operands[i];
        if (operand->ignored || (call->signature->linear >> i & 1))
            continue;
        int64_t index[AXES_MAX] = {0}, offset = 0;
        uint64_t row = call->signature->commutative ? 0 : i + 1;
        do {
            tocsin_element x = call->inputs[i].data[offsets[i] + offset];
            if (tocsin_element_is_undefined(x))
                return false;
            row = tocsin_oracle_absorb(row, x.p);
        } while (next_in_row(call, operand, index, &offset));
        if (call->signature->commutative)
            sum += row;
        else
            *state = tocsin_oracle_absorb(*state, row);
    }
    if (call->signature->commutative)
        *state = tocsin_oracle_absorb(*state, sum);
    return true;
}

/* L_j: the element, or the row weighted by its places. */
static tocsin_element linear_part(const evaluated_call *call, uint32_t number, int64_t offset,
                                  uint64_t state)
{
    const bound_operand *operand = &call->operands[number];
    const tocsin_element *data = call->inputs[number].data + offset;
    if (!has_row(call, operand))
        return data[0];
    int64_t index[AXES_MAX] = {0}, at = 0;
    uint64_t place = tocsin_oracle_absorb(state, call->signature->commutative ? 0 : number + 1);
    tocsin_element sum = tocsin_element_of_integer(0);
    do {
        place = tocsin_oracle_absorb(place, 1);
        sum =
            tocsin_element_add(sum, tocsin_element_multiply(data[at], tocsin_oracle_value(place)));
    } while (next_in_row(call, operand, index, &at));
    return sum;
}

/* The term at one place of all loops. */
static tocsin_element term(const evaluated_call *call, const int64_t *offsets, uint64_t place)
{
    uint64_t state = place;
    bool defined = call->plain || hash_rows(call, offsets, &state);
    if (!defined)
        return TOCSIN_ELEMENT_UNDEFINED;
    tocsin_element product =
        call->plain ? tocsin_element_of_integer(1) : tocsin_oracle_value(state);
    for (uint32_t i = 0; i < call->signature->input_count; ++i)
        if ((call->signature->linear >> i & 1) && !call->operands[i].ignored)
            product = tocsin_element_multiply(product, linear_part(call, i, offsets[i], state));
    return product;
}

/* Sum over the contracted axes. */
static tocsin_element contract(const evaluated_call *call, int64_t *offsets, uint64_t place)
{
    int64_t index[AXES_MAX] = {0};
    tocsin_element sum = tocsin_element_of_integer(0);
    for (uint32_t c = 0; c < call->contracted_count; ++c)
        if (call->size[call->contracted[c]] == 0)
            return sum;
    for (;;) {
        sum = tocsin_element_add(sum, term(call, offsets, place));
        uint32_t c = call->contracted_count;
        for (; c > 0; --c) {
            uint32_t a = call->contracted[c - 1];
            bool wraps = ++index[a] == call->size[a];
            for (uint32_t i = 0; i < call->signature->input_count; ++i)
                offsets[i] += call->operands[i].stride[a] * (wraps ? 1 - call->size[a] : 1);
            if (!wraps)
                break;
            index[a] = 0;
        }
        if (c == 0)
            return sum;
    }
}

/* How many elements are looked at for one of the output, and the flags of the result. */
static double work_and_flags(evaluated_call *call, tocsin_array *out)
{
    double terms = 1, row = 1, degree = 0;
    for (uint32_t c = 0; c < call->contracted_count; ++c)
        terms *= (double)call->size[call->contracted[c]];
    for (uint32_t i = 0; i < call->signature->input_count; ++i) {
        double own = 1;
        for (uint32_t a = 0; a < call->axis_count; ++a)
            if (call->whole[a] && call->operands[i].has[a])
                own *= (double)call->size[a];
        row += own;
        if (call->signature->linear >> i & 1)
            degree += call->inputs[i].degree * (call->inputs[i].rational ? own : 1);
    }
    if (!call->plain) {
        tocsin_kernel_ask(call->kernel, (double)out->count * terms, out->degree);
        degree += 1;
        out->opaque = true;
    }
    out->degree = degree * (out->rational ? terms : 1);
    return terms * row;
}

static void fill(const evaluated_call *call, tocsin_element *data)
{
    int64_t index[TOCSIN_PLAN_NDIM_MAX] = {0};
    for (int64_t k = 0; k < call->out->count; ++k) {
        int64_t offsets[TOCSIN_SIGNATURE_OPERANDS_MAX] = {0};
        uint64_t place = call->key;
        for (uint8_t d = 0; d < call->out->ndim; ++d) {
            uint32_t axis = call->output_axes[d];
            if (axis == AXES_MAX)
                continue;
            if (call->whole[axis]) {
                place = tocsin_oracle_absorb(place, (uint64_t)index[d]);
                continue;
            }
            for (uint32_t i = 0; i < call->signature->input_count; ++i)
                offsets[i] += call->operands[i].stride[axis] * index[d];
        }
        data[k] = contract(call, offsets, place);
        for (uint8_t d = call->out->ndim; d-- > 0;) {
            if (++index[d] < call->out->shape[d])
                break;
            index[d] = 0;
        }
    }
}

static bool is_contraction(tocsin_operator_code code)
{
    return code == TOCSIN_OPERATOR_LINEAR || code == TOCSIN_OPERATOR_MM ||
           code == TOCSIN_OPERATOR_BMM || code == TOCSIN_OPERATOR_MATMUL;
}

tocsin_status tocsin_kernel_call(tocsin_kernel *kernel, const tocsin_plan_op *op,
                                 const tocsin_array *inputs, tocsin_array *outputs)
{
    evaluated_call call = {.kernel = kernel,
                           .inputs = inputs,
                           .signature = find_signature(kernel, op),
                           .plain = op->signature == TOCSIN_PLAN_NONE &&
                                    is_contraction((tocsin_operator_code)op->code)};
    const char *wrong = call.signature ? bind(&call, op) : "an operator without a signature";
    uint32_t axis_count = call.axis_count;
    uint64_t function = tocsin_kernel_function(kernel, op);
    for (uint32_t o = 0; o < op->output_count; ++o) {
        tocsin_element *data;
        call.out = &outputs[o];
        call.axis_count = axis_count;
        call.key = tocsin_oracle_absorb(tocsin_oracle_begin(&kernel->field, function), o);
        if (!wrong)
            wrong = bind_output(&call, o);
        if (wrong) {
            TOCSIN_TRY(tocsin_array_undefine(kernel, &outputs[o], "%s", wrong));
            continue;
        }
        TOCSIN_TRY(tocsin_array_new(kernel, &outputs[o], inputs, op->input_count, &data));
        double work = work_and_flags(&call, &outputs[o]);
        TOCSIN_TRY(tocsin_kernel_spend(kernel, work * (double)outputs[o].count));
        fill(&call, data);
    }
    return TOCSIN_OK;
}
