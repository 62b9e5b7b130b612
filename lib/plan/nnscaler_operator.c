/* plan/nnscaler_operator.c - forward and backward operators of an nnScaler plan.
 *
 * An operator that Tocsin has an exact rule for becomes that one; so does its derivative where that
 * is exact (structure, sums, constants). Everything else is a call with the signature that its
 * annotation gives (nnscaler_signature.c); its derivative is one call for each input that it
 * differentiates, named X.backward, on the out-gradients and the forward inputs.
 * A table names the exact ones. Cost: linear in the operands.
 */
#include <assert.h>
#include <stdio.h>

#include "plan/nnscaler.h"

/* An operator being translated, forward or backward. */
typedef struct context {
    tocsin_nn *nn;
    tocsin_nn_operator op;
    /* backward: the out-gradients that it reads, the in-gradients that it makes */
    const tocsin_nn_tensor *gradients[TOCSIN_NN_OPERANDS_MAX], *results[TOCSIN_NN_OPERANDS_MAX];
    uint32_t gradient_count, result_count;
} context;

/* Translates what it knows; *done stays false for what it does not. */
typedef tocsin_status translation(context *c, bool *done);

static void start(context *c, tocsin_nn_draft *draft, tocsin_operator_code code)
{
    tocsin_nn_draft_init(draft, code, &c->op.like);
    draft->op.label = c->op.like.op.label;
}

static tocsin_status read_into(context *c, tocsin_nn_draft *draft, const tocsin_nn_tensor *tensor)
{
    uint32_t value;
    TOCSIN_TRY(tocsin_nn_read(c->nn, tensor, &value));
    tocsin_nn_input(draft, value);
    return TOCSIN_OK;
}

/* Emit a draft whose one output is the tensor. */
static tocsin_status emit_to(context *c, tocsin_nn_draft *draft, const tocsin_nn_tensor *tensor)
{
    tocsin_nn_result result;
    TOCSIN_TRY(tocsin_nn_begin_result(c->nn, tensor, TOCSIN_NN_MERGE, &result));
    tocsin_nn_output(draft, result.value);
    TOCSIN_TRY(tocsin_nn_emit(c->nn, draft));
    return tocsin_nn_end_result(c->nn, &result, draft);
}

/* One tensor to one tensor. */
static tocsin_status emit_unary(context *c, tocsin_nn_draft *draft, const tocsin_nn_tensor *from,
                                const tocsin_nn_tensor *to)
{
    TOCSIN_TRY(read_into(c, draft, from));
    return emit_to(c, draft, to);
}

static bool is_unary(const context *c)
{
    return c->op.input_count == 1 && c->op.output_count == 1;
}

static bool is_unary_backward(const context *c)
{
    return c->op.input_count == 1 && c->gradient_count == 1 && c->result_count == 1;
}

/* The constant that stands beside the only tensor, as `x + 1e-5`. */
static bool has_constant(const context *c, double *constant)
{
    return c->op.input_count == 1 && c->op.argument_count == 2 && c->op.position[0] == 0 &&
           tocsin_nn_number(c->op.arguments[1], constant);
}

static bool argument_is(const context *c, const char *key, int64_t wanted, int64_t otherwise)
{
    int64_t value = otherwise;
    tocsin_nn_integer(tocsin_pickle_member(tocsin_nn_arguments(c->op.forward), key), &value);
    return value == wanted;
}

/* ---- copies ---------------------------------------------------------------------------------- */

static tocsin_status copy_forward(context *c, bool *done)
{
    tocsin_nn_draft draft;
    tocsin_nn_result results[TOCSIN_NN_OPERANDS_MAX];
    if (c->op.input_count != 1)
        return TOCSIN_OK;
    *done = true;
    start(c, &draft, c->op.output_count == 1 ? TOCSIN_OPERATOR_IDENTITY : TOCSIN_OPERATOR_COPIES);
    TOCSIN_TRY(read_into(c, &draft, c->op.inputs[0]));
    for (uint32_t i = 0; i < c->op.output_count; ++i) {
        TOCSIN_TRY(tocsin_nn_begin_result(c->nn, c->op.outputs[i], TOCSIN_NN_MERGE, &results[i]));
        tocsin_nn_output(&draft, results[i].value);
    }
    TOCSIN_TRY(tocsin_nn_emit(c->nn, &draft));
    for (uint32_t i = 0; i < c->op.output_count; ++i)
        TOCSIN_TRY(tocsin_nn_end_result(c->nn, &results[i], &draft));
    return TOCSIN_OK;
}

/* The gradients of all copies are added. One that no device makes is of a copy that the loss does
 * not depend on: autograd passes over it. */
static tocsin_status copy_backward(context *c, bool *done)
{
    tocsin_nn_draft draft;
    const tocsin_nn_tensor *made[TOCSIN_NN_OPERANDS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->gradient_count; ++i) {
        const tocsin_nn_tensor *gradient = c->gradients[i];
        if (tocsin_map_find(&c->nn->made, gradient->id) || gradient->is_loss)
            made[count++] = gradient;
    }
    if (count == 0 || c->result_count != 1)
        return TOCSIN_OK;
    *done = true;
    start(c, &draft, count == 1 ? TOCSIN_OPERATOR_IDENTITY : TOCSIN_OPERATOR_ADD);
    for (uint32_t i = 0; i < count; ++i)
        TOCSIN_TRY(read_into(c, &draft, made[i]));
    return emit_to(c, &draft, c->results[0]);
}

static tocsin_status cast_forward(context *c, bool *done)
{
    tocsin_nn_draft draft;
    *done = is_unary(c);
    start(c, &draft, TOCSIN_OPERATOR_CAST);
    return *done ? emit_unary(c, &draft, c->op.inputs[0], c->op.outputs[0]) : TOCSIN_OK;
}

static tocsin_status cast_backward(context *c, bool *done)
{
    tocsin_nn_draft draft;
    *done = is_unary_backward(c);
    start(c, &draft, TOCSIN_OPERATOR_CAST);
    return *done ? emit_unary(c, &draft, c->gradients[0], c->results[0]) : TOCSIN_OK;
}

/* ---- structure ------------------------------------------------------------------------------- */

static tocsin_status emit_view(context *c, const tocsin_nn_tensor *from, const tocsin_nn_tensor *to)
{
    tocsin_nn_draft draft;
    start(c, &draft, TOCSIN_OPERATOR_VIEW);
    tocsin_nn_set_integers(c->nn, &draft, "shape", to->size, to->ndim);
    return emit_unary(c, &draft, from, to);
}

static tocsin_status view_forward(context *c, bool *done)
{
    *done = is_unary(c);
    return *done ? emit_view(c, c->op.inputs[0], c->op.outputs[0]) : TOCSIN_OK;
}

static tocsin_status view_backward(context *c, bool *done)
{
    *done = is_unary_backward(c);
    return *done ? emit_view(c, c->gradients[0], c->results[0]) : TOCSIN_OK;
}

/* The exchange of two dims is its own inverse. */
static tocsin_status emit_transpose(context *c, bool *done, const tocsin_nn_tensor *from,
                                    const tocsin_nn_tensor *to)
{
    const tocsin_pickle_value *arguments = tocsin_nn_arguments(c->op.forward);
    int64_t a, b, dims[TOCSIN_PLAN_NDIM_MAX];
    int64_t ndim = c->op.inputs[0]->ndim;
    if (!tocsin_nn_integer(tocsin_pickle_member(arguments, "dim0"), &a) ||
        !tocsin_nn_integer(tocsin_pickle_member(arguments, "dim1"), &b))
        return TOCSIN_OK;
    a += a < 0 ? ndim : 0;
    b += b < 0 ? ndim : 0;
    if (a < 0 || b < 0 || a >= ndim || b >= ndim)
        return TOCSIN_OK;
    *done = true;
    for (int64_t d = 0; d < ndim; ++d)
        dims[d] = d == a ? b : d == b ? a : d;
    tocsin_nn_draft draft;
    start(c, &draft, TOCSIN_OPERATOR_PERMUTE);
    tocsin_nn_set_integers(c->nn, &draft, "dims", dims, (uint32_t)ndim);
    return emit_unary(c, &draft, from, to);
}

static tocsin_status transpose_forward(context *c, bool *done)
{
    return is_unary(c) ? emit_transpose(c, done, c->op.inputs[0], c->op.outputs[0]) : TOCSIN_OK;
}

static tocsin_status transpose_backward(context *c, bool *done)
{
    return is_unary_backward(c) ? emit_transpose(c, done, c->gradients[0], c->results[0])
                                : TOCSIN_OK;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* The dims of a sum or mean, all if none are given. */
static bool reduced_dims(const context *c, int64_t *dims, uint32_t *count)
{
    const tocsin_pickle_value *arguments = tocsin_nn_arguments(c->op.forward);
    const tocsin_pickle_value *given = tocsin_pickle_member(arguments, "dim");
    int64_t ndim = c->op.inputs[0]->ndim;
    bool all = !given || given->kind == TOCSIN_PICKLE_NONE;
    bool list = given && (given->kind == TOCSIN_PICKLE_TUPLE || given->kind == TOCSIN_PICKLE_LIST);
    *count = all ? (uint32_t)ndim : list ? tocsin_pickle_count(given) : 1;
    if (*count > TOCSIN_PLAN_NDIM_MAX)
        return false;
    for (uint32_t i = 0; i < *count; ++i) {
        dims[i] = i;
        if (!all && !tocsin_nn_integer(list ? tocsin_pickle_item(given, i) : given, &dims[i]))
            return false;
        dims[i] += dims[i] < 0 ? ndim : 0;
        if (dims[i] < 0 || dims[i] >= ndim)
            return false;
    }
    return true;
}

/* A sum of everything has shape [1] in nnScaler, and [] here: a view stands between. */
static tocsin_status emit_reduction(context *c, bool *done, tocsin_operator_code code)
{
    int64_t dims[TOCSIN_PLAN_NDIM_MAX];
    uint32_t count, scalar;
    if (!is_unary(c) || !reduced_dims(c, dims, &count))
        return TOCSIN_OK;
    *done = true;
    const tocsin_nn_tensor *from = c->op.inputs[0], *to = c->op.outputs[0];
    bool keep = argument_is(c, "keepdim", 1, 0);
    tocsin_nn_draft draft, view;
    start(c, &draft, code);
    tocsin_nn_set_integers(c->nn, &draft, "dims", dims, count);
    tocsin_nn_set_integer(c->nn, &draft, "keepdim", keep);
    if (keep || count < from->ndim || to->ndim == 0)
        return emit_unary(c, &draft, from, to);
    TOCSIN_TRY(read_into(c, &draft, from));
    TOCSIN_TRY(tocsin_nn_auxiliary(c->nn, to, NULL, 0, &scalar));
    tocsin_nn_output(&draft, scalar);
    TOCSIN_TRY(tocsin_nn_emit(c->nn, &draft));
    tocsin_nn_draft_init(&view, TOCSIN_OPERATOR_VIEW, &c->op.like);
    tocsin_nn_set_integers(c->nn, &view, "shape", to->size, to->ndim);
    tocsin_nn_input(&view, scalar);
    return emit_to(c, &view, to);
}

static tocsin_status sum_forward(context *c, bool *done)
{
    return emit_reduction(c, done, TOCSIN_OPERATOR_SUM);
}

static tocsin_status mean_forward(context *c, bool *done)
{
    return emit_reduction(c, done, TOCSIN_OPERATOR_MEAN);
}

/* The gradient of a sum of everything, or of one that keeps its dims, is broadcast. */
static tocsin_status sum_backward(context *c, bool *done)
{
    int64_t dims[TOCSIN_PLAN_NDIM_MAX];
    uint32_t count;
    if (!is_unary_backward(c) || !reduced_dims(c, dims, &count) ||
        (count < c->op.inputs[0]->ndim && !argument_is(c, "keepdim", 1, 0)))
        return TOCSIN_OK;
    *done = true;
    tocsin_nn_draft draft;
    start(c, &draft, TOCSIN_OPERATOR_EXPAND);
    tocsin_nn_set_integers(c->nn, &draft, "shape", c->results[0]->size, c->results[0]->ndim);
    return emit_unary(c, &draft, c->gradients[0], c->results[0]);
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

static tocsin_status add_forward(context *c, bool *done)
{
    double constant;
    tocsin_nn_draft draft;
    if (!argument_is(c, "alpha", 1, 1) || c->op.output_count != 1)
        return TOCSIN_OK;
    if (has_constant(c, &constant)) {
        *done = true;
        start(c, &draft, TOCSIN_OPERATOR_ADD_SCALAR);
        tocsin_nn_set_real(c->nn, &draft, "value", constant);
        return emit_unary(c, &draft, c->op.inputs[0], c->op.outputs[0]);
    }
    if (c->op.input_count != 2 || c->op.argument_count != 2)
        return TOCSIN_OK;
    *done = true;
    start(c, &draft, TOCSIN_OPERATOR_ADD);
    for (uint32_t i = 0; i < 2; ++i)
        TOCSIN_TRY(read_into(c, &draft, c->op.inputs[i]));
    return emit_to(c, &draft, c->op.outputs[0]);
}

static bool same_shape(const tocsin_nn_tensor *a, const tocsin_nn_tensor *b)
{
    return a->ndim == b->ndim && memcmp(a->size, b->size, a->ndim * sizeof a->size[0]) == 0;
}

/* A gradient for an operand that was broadcast: summed over the dims that it lacks. */
static tocsin_status emit_unbroadcast(context *c, tocsin_nn_draft *draft,
                                      const tocsin_nn_tensor *from, const tocsin_nn_tensor *to)
{
    int64_t dims[TOCSIN_PLAN_NDIM_MAX], left[TOCSIN_PLAN_NDIM_MAX];
    uint32_t count = 0, left_count = 0, value;
    uint32_t leading = from->ndim > to->ndim ? (uint32_t)(from->ndim - to->ndim) : 0;
    for (uint32_t d = 0; d < from->ndim; ++d) {
        bool lacks = d < leading || (to->size[d - leading] == 1 && from->size[d] != 1);
        if (lacks)
            dims[count++] = d;
        else
            left[left_count++] = from->size[d];
    }
    tocsin_nn_draft view;
    tocsin_nn_set_integers(c->nn, draft, "dims", dims, count);
    tocsin_nn_set_integer(c->nn, draft, "keepdim", 0);
    if (left_count == to->ndim)
        return emit_unary(c, draft, from, to);
    TOCSIN_TRY(read_into(c, draft, from));
    TOCSIN_TRY(tocsin_nn_auxiliary(c->nn, to, left, left_count, &value));
    tocsin_nn_output(draft, value);
    TOCSIN_TRY(tocsin_nn_emit(c->nn, draft));
    tocsin_nn_draft_init(&view, TOCSIN_OPERATOR_VIEW, &c->op.like);
    tocsin_nn_set_integers(c->nn, &view, "shape", to->size, to->ndim);
    tocsin_nn_input(&view, value);
    return emit_to(c, &view, to);
}

/* "BW.linear47", or "BW.linear47#1" when there are several. */
static tocsin_status label_derivative(context *c, tocsin_nn_draft *draft, uint32_t result)
{
    char label[272];
    const char *own = tocsin_plan_text(c->nn->plan, c->op.like.op.label);
    if (c->result_count == 1)
        return TOCSIN_OK;
    int bytes = snprintf(label, sizeof label, "%s#%u", own, result);
    assert(bytes > 0 && (size_t)bytes < sizeof label);
    draft->op.label = tocsin_plan_string(c->nn->plan, label, (size_t)bytes);
    return draft->op.label ? TOCSIN_OK : tocsin_plan_string_error(c->nn->plan, c->nn->error);
}

static tocsin_status add_backward(context *c, bool *done)
{
    if (!argument_is(c, "alpha", 1, 1) || c->gradient_count != 1)
        return TOCSIN_OK;
    *done = true;
    for (uint32_t i = 0; i < c->result_count; ++i) {
        tocsin_nn_draft draft;
        bool same = same_shape(c->gradients[0], c->results[i]);
        start(c, &draft, same ? TOCSIN_OPERATOR_IDENTITY : TOCSIN_OPERATOR_SUM);
        TOCSIN_TRY(label_derivative(c, &draft, i));
        if (same)
            TOCSIN_TRY(emit_unary(c, &draft, c->gradients[0], c->results[i]));
        else
            TOCSIN_TRY(emit_unbroadcast(c, &draft, c->gradients[0], c->results[i]));
    }
    return TOCSIN_OK;
}

/* `x * constant`, `x / constant`; a division keeps its divisor for reports. */
static tocsin_status emit_scale(context *c, bool *done, const tocsin_nn_tensor *from,
                                const tocsin_nn_tensor *to)
{
    double constant;
    if (!has_constant(c, &constant))
        return TOCSIN_OK;
    bool divides = strcmp(c->op.name, "div") == 0;
    const tocsin_pickle_value *rounding =
        tocsin_pickle_member(tocsin_nn_arguments(c->op.forward), "rounding_mode");
    if (divides && (constant == 0 || (rounding && rounding->kind != TOCSIN_PICKLE_NONE)))
        return TOCSIN_OK;
    *done = true;
    tocsin_nn_draft draft;
    start(c, &draft, TOCSIN_OPERATOR_SCALE);
    tocsin_nn_set_real(c->nn, &draft, "factor", divides ? 1 / constant : constant);
    if (divides)
        tocsin_nn_set_real(c->nn, &draft, "divisor", constant);
    return emit_unary(c, &draft, from, to);
}

static tocsin_status scale_forward(context *c, bool *done)
{
    return c->op.output_count == 1 ? emit_scale(c, done, c->op.inputs[0], c->op.outputs[0])
                                   : TOCSIN_OK;
}

static tocsin_status scale_backward(context *c, bool *done)
{
    return is_unary_backward(c) ? emit_scale(c, done, c->gradients[0], c->results[0]) : TOCSIN_OK;
}

static tocsin_status power_forward(context *c, bool *done)
{
    double exponent;
    tocsin_nn_draft draft;
    if (!has_constant(c, &exponent) || c->op.output_count != 1)
        return TOCSIN_OK;
    *done = true;
    start(c, &draft, TOCSIN_OPERATOR_POWER);
    tocsin_nn_set_real(c->nn, &draft, "exponent", exponent);
    return emit_unary(c, &draft, c->op.inputs[0], c->op.outputs[0]);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static const struct exact {
    const char *name;
    translation *forward, *backward;
} exact[] = {
    {"identity", copy_forward, copy_backward},
    {"multiref", copy_forward, copy_backward},
    {"float", cast_forward, cast_backward},
    {"to", cast_forward, cast_backward},
    {"contiguous", copy_forward, copy_backward},
    {"view", view_forward, view_backward},
    {"reshape", view_forward, view_backward},
    {"transpose", transpose_forward, transpose_backward},
    {"sum", sum_forward, sum_backward},
    {"mean", mean_forward, NULL},
    {"add", add_forward, add_backward},
    {"mul", scale_forward, scale_backward},
    {"div", scale_forward, scale_backward},
    {"pow", power_forward, NULL},
};

static const struct exact *find_exact(const char *name)
{
    for (size_t i = 0; i < TOCSIN_COUNT_OF(exact); ++i) {
        if (strcmp(exact[i].name, name) == 0)
            return &exact[i];
    }
    return NULL;
}

/* The same operator, with the same operands in the same order, in Tocsin's table. */
static tocsin_operator_code find_same(const context *c)
{
    static const struct {
        const char *name;
        tocsin_operator_code code;
    } same[] = {
        {"linear", TOCSIN_OPERATOR_LINEAR},   {"matmul", TOCSIN_OPERATOR_MATMUL},
        {"mul", TOCSIN_OPERATOR_MULTIPLY},    {"div", TOCSIN_OPERATOR_DIVIDE},
        {"sub", TOCSIN_OPERATOR_SUBTRACT},    {"neg", TOCSIN_OPERATOR_NEGATE},
        {"rsqrt", TOCSIN_OPERATOR_RSQRT},     {"sqrt", TOCSIN_OPERATOR_SQUARE_ROOT},
        {"exp", TOCSIN_OPERATOR_EXP},         {"log", TOCSIN_OPERATOR_LOG},
        {"sin", TOCSIN_OPERATOR_SIN},         {"cos", TOCSIN_OPERATOR_COS},
        {"tanh", TOCSIN_OPERATOR_TANH},       {"sigmoid", TOCSIN_OPERATOR_SIGMOID},
        {"silu", TOCSIN_OPERATOR_SILU},       {"relu", TOCSIN_OPERATOR_RELU},
        {"gelu", TOCSIN_OPERATOR_GELU},       {"abs", TOCSIN_OPERATOR_ABSOLUTE},
        {"softmax", TOCSIN_OPERATOR_SOFTMAX},
    };
    for (size_t i = 0; i < TOCSIN_COUNT_OF(same); ++i) {
        const tocsin_operator *known = &tocsin_operators[same[i].code];
        if (strcmp(same[i].name, c->op.name) == 0 && known->input_count == (int)c->op.input_count &&
            c->op.argument_count == c->op.input_count && c->op.output_count == 1)
            return same[i].code;
    }
    return TOCSIN_OPERATOR_CALL;
}

/* Chance and the shard of a rank do not go together; what is assumed stands in the plan. */
static tocsin_status assume_chance(context *c)
{
    const tocsin_pickle_value *arguments = tocsin_nn_arguments(c->op.forward);
    if (strcmp(c->op.name, "dropout") != 0 && !tocsin_pickle_member(arguments, "dropout") &&
        !tocsin_pickle_member(arguments, "dropout_p"))
        return TOCSIN_OK;
    return tocsin_plan_assume(
        c->nn->plan, "dropout draws the same for one logical element on every rank", c->nn->error);
}

static tocsin_status set_call_name(context *c, tocsin_nn_draft *draft, const char *suffix)
{
    char name[256];
    int bytes = snprintf(name, sizeof name, "%s%s", c->op.name, suffix);
    if (bytes < 0 || (size_t)bytes >= sizeof name)
        return tocsin_nn_fail(c->nn, TOCSIN_E_LIMIT, "the name of an operator is too long");
    draft->op.name = tocsin_plan_string(c->nn->plan, name, (size_t)bytes);
    return draft->op.name ? TOCSIN_OK : tocsin_plan_string_error(c->nn->plan, c->nn->error);
}

/* The operand as the annotation wants it. */
static tocsin_status read_shape(context *c, tocsin_nn_draft *draft, const tocsin_nn_shape *shape,
                                const tocsin_nn_tensor *tensor)
{
    uint32_t value, split;
    TOCSIN_TRY(tocsin_nn_read(c->nn, tensor, &value));
    TOCSIN_TRY(tocsin_nn_split(c->nn, shape, &c->op.like, value, &split));
    tocsin_nn_input(draft, split);
    return TOCSIN_OK;
}

/* Where a call puts one output, and the way from there to the tensor. */
typedef struct call_output {
    tocsin_nn_result result;
    uint32_t value; /* what the call writes: the result's, or one of the annotation's shape */
} call_output;

static tocsin_status begin_output(context *c, tocsin_nn_draft *draft, const tocsin_nn_shape *shape,
                                  const tocsin_nn_tensor *tensor, call_output *output)
{
    TOCSIN_TRY(tocsin_nn_begin_result(c->nn, tensor, TOCSIN_NN_MERGE, &output->result));
    output->value = output->result.value;
    if (shape->grouped) {
        int64_t sizes[TOCSIN_PLAN_NDIM_MAX];
        for (uint32_t d = 0; d < shape->ndim; ++d)
            sizes[d] = shape->dims[d].size;
        TOCSIN_TRY(tocsin_nn_auxiliary(c->nn, tensor, sizes, shape->ndim, &output->value));
    }
    tocsin_nn_output(draft, output->value);
    return TOCSIN_OK;
}

static tocsin_status end_output(context *c, const tocsin_nn_draft *draft,
                                const tocsin_nn_tensor *tensor, const call_output *output)
{
    if (output->value != output->result.value) {
        tocsin_nn_draft view;
        tocsin_nn_draft_init(&view, TOCSIN_OPERATOR_VIEW, draft);
        tocsin_nn_set_integers(c->nn, &view, "shape", tensor->size, tensor->ndim);
        TOCSIN_TRY(tocsin_nn_emit_simple(c->nn, &view, output->value, output->result.value));
    }
    return tocsin_nn_end_result(c->nn, &output->result, draft);
}

static tocsin_status call_forward(context *c)
{
    tocsin_nn_annotation annotation;
    tocsin_nn_draft draft;
    call_output outputs[TOCSIN_SIGNATURE_OPERANDS_MAX];
    TOCSIN_TRY(tocsin_nn_annotate(c->nn, &c->op, &annotation));
    start(c, &draft, TOCSIN_OPERATOR_CALL);
    TOCSIN_TRY(set_call_name(c, &draft, ""));
    TOCSIN_TRY(tocsin_nn_add_signature(c->nn, &annotation, NULL, &draft.op.signature));
    TOCSIN_TRY(tocsin_nn_set_attributes(c->nn, &c->op, &draft));
    for (uint32_t i = 0; i < annotation.input_count; ++i)
        TOCSIN_TRY(read_shape(c, &draft, &annotation.inputs[i], c->op.inputs[i]));
    for (uint32_t i = 0; i < annotation.output_count; ++i)
        TOCSIN_TRY(begin_output(c, &draft, &annotation.outputs[i], c->op.outputs[i], &outputs[i]));
    TOCSIN_TRY(tocsin_nn_emit(c->nn, &draft));
    for (uint32_t i = 0; i < annotation.output_count; ++i)
        TOCSIN_TRY(end_output(c, &draft, c->op.outputs[i], &outputs[i]));
    return TOCSIN_OK;
}

static bool is_gradient_of(tocsin_nn *nn, const tocsin_nn_tensor *gradient,
                           const tocsin_nn_tensor *tensor)
{
    uint64_t id;
    return tensor->gradient && tocsin_nn_id(nn, tensor->gradient, &id) == TOCSIN_OK &&
           id == gradient->id;
}

/* The forward input that a result is the gradient of: by number, else by shape. */
static tocsin_status find_input(context *c, const tocsin_nn_tensor *result, uint32_t *input)
{
    for (uint32_t i = 0; i < c->op.input_count; ++i) {
        *input = i;
        if (is_gradient_of(c->nn, result, c->op.inputs[i]))
            return TOCSIN_OK;
    }
    for (uint32_t i = 0; i < c->op.input_count; ++i) {
        *input = i;
        if (same_shape(result, c->op.inputs[i]))
            return TOCSIN_OK;
    }
    return tocsin_nn_fail(c->nn, TOCSIN_E_FORMAT,
                          "tensor %llu is the gradient of no input of %s%llu",
                          (unsigned long long)result->id, c->op.name, (unsigned long long)c->op.id);
}

/* The forward output whose gradient an operand is: by number, else by position. */
static uint32_t find_output(context *c, uint32_t gradient)
{
    for (uint32_t i = 0; i < c->op.output_count; ++i) {
        if (is_gradient_of(c->nn, c->gradients[gradient], c->op.outputs[i]))
            return i;
    }
    return gradient < c->op.output_count ? gradient : c->op.output_count - 1;
}

static tocsin_status call_derivative(context *c, const tocsin_nn_annotation *annotation,
                                     tocsin_nn_derivative *derivative, uint32_t result)
{
    tocsin_nn_draft draft;
    call_output output;
    const tocsin_nn_tensor *to = c->results[result];
    TOCSIN_TRY(find_input(c, to, &derivative->wrt));
    start(c, &draft, TOCSIN_OPERATOR_CALL);
    TOCSIN_TRY(set_call_name(c, &draft, ".backward"));
    TOCSIN_TRY(label_derivative(c, &draft, result));
    TOCSIN_TRY(tocsin_nn_add_signature(c->nn, annotation, derivative, &draft.op.signature));
    TOCSIN_TRY(tocsin_nn_set_attributes(c->nn, &c->op, &draft));
    if (c->op.input_count > 1)
        tocsin_nn_set_integer(c->nn, &draft, "wrt", derivative->wrt);
    for (uint32_t i = 0; i < c->gradient_count; ++i)
        TOCSIN_TRY(
            read_shape(c, &draft, &annotation->outputs[derivative->gradients[i]], c->gradients[i]));
    for (uint32_t i = 0; i < c->op.input_count; ++i)
        TOCSIN_TRY(read_shape(c, &draft, &annotation->inputs[i], c->op.inputs[i]));
    TOCSIN_TRY(begin_output(c, &draft, &annotation->inputs[derivative->wrt], to, &output));
    TOCSIN_TRY(tocsin_nn_emit(c->nn, &draft));
    return end_output(c, &draft, to, &output);
}

static tocsin_status call_backward(context *c)
{
    tocsin_nn_annotation annotation;
    tocsin_nn_derivative derivative = {.gradient_count = c->gradient_count};
    TOCSIN_TRY(tocsin_nn_annotate(c->nn, &c->op, &annotation));
    if (c->gradient_count + c->op.input_count >= TOCSIN_SIGNATURE_OPERANDS_MAX ||
        c->op.output_count == 0)
        return tocsin_nn_fail(c->nn, TOCSIN_E_UNSUPPORTED,
                              "the backward operator of %s%llu has too many operands", c->op.name,
                              (unsigned long long)c->op.id);
    for (uint32_t i = 0; i < c->gradient_count; ++i)
        derivative.gradients[i] = find_output(c, i);
    for (uint32_t i = 0; i < c->result_count; ++i)
        TOCSIN_TRY(call_derivative(c, &annotation, &derivative, i));
    return TOCSIN_OK;
}

/* ---- cells ----------------------------------------------------------------------------------- */

/* The gradients of the weights that are used are outputs of the plan. */
static tocsin_status want_gradients(context *c)
{
    for (uint32_t i = 0; i < c->op.input_count; ++i) {
        const tocsin_nn_tensor *tensor = c->op.inputs[i];
        if (tensor->is_weight && !tensor->is_gradient && tensor->gradient)
            TOCSIN_TRY(tocsin_nn_want(c->nn, tensor));
    }
    return TOCSIN_OK;
}

tocsin_status tocsin_nn_forward(tocsin_nn *nn, const tocsin_pickle_value *cell)
{
    context c = {.nn = nn};
    bool done = false;
    TOCSIN_TRY(tocsin_nn_read_operator(nn, cell, false, &c.op));
    TOCSIN_TRY(want_gradients(&c));
    TOCSIN_TRY(assume_chance(&c));
    const struct exact *rule = find_exact(c.op.name);
    if (rule)
        TOCSIN_TRY(rule->forward(&c, &done));
    if (done)
        return TOCSIN_OK;
    tocsin_operator_code code = find_same(&c);
    if (code == TOCSIN_OPERATOR_CALL)
        return call_forward(&c);
    tocsin_nn_draft draft;
    start(&c, &draft, code);
    TOCSIN_TRY(tocsin_nn_set_attributes(nn, &c.op, &draft));
    for (uint32_t i = 0; i < c.op.input_count; ++i)
        TOCSIN_TRY(read_into(&c, &draft, c.op.inputs[i]));
    return emit_to(&c, &draft, c.op.outputs[0]);
}

static tocsin_status read_gradients(context *c, const tocsin_pickle_value *cell)
{
    const tocsin_pickle_value *inputs = tocsin_pickle_member(cell, "_inputs");
    const tocsin_pickle_value *outputs = tocsin_pickle_member(cell, "_outputs");
    c->gradient_count = tocsin_pickle_count(inputs);
    c->result_count = tocsin_pickle_count(outputs);
    if (c->gradient_count > TOCSIN_NN_OPERANDS_MAX || c->result_count > TOCSIN_NN_OPERANDS_MAX)
        return tocsin_nn_fail(c->nn, TOCSIN_E_LIMIT,
                              "the backward operator of %s has more than %d operands", c->op.name,
                              TOCSIN_NN_OPERANDS_MAX);
    for (uint32_t i = 0; i < c->gradient_count; ++i)
        TOCSIN_TRY(tocsin_nn_read_tensor(c->nn, tocsin_pickle_item(inputs, i), &c->gradients[i]));
    for (uint32_t i = 0; i < c->result_count; ++i)
        TOCSIN_TRY(tocsin_nn_read_tensor(c->nn, tocsin_pickle_item(outputs, i), &c->results[i]));
    return TOCSIN_OK;
}

tocsin_status tocsin_nn_backward(tocsin_nn *nn, const tocsin_pickle_value *cell)
{
    context c = {.nn = nn};
    bool done = false;
    TOCSIN_TRY(tocsin_nn_read_operator(nn, tocsin_pickle_member(cell, "_mirror"), true, &c.op));
    TOCSIN_TRY(read_gradients(&c, cell));
    const struct exact *rule = find_exact(c.op.name);
    if (rule && rule->backward)
        TOCSIN_TRY(rule->backward(&c, &done));
    return done ? TOCSIN_OK : call_backward(&c);
}
