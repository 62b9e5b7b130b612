/* plan/nnscaler_attributes.c - an operator of an nnScaler plan: its tensors, names and attributes.
 *
 * An IRDimops lists its arguments (tensors and constants) and keyword arguments. Of these, what
 * belongs to the meaning of the operator becomes attributes. Left out is what only says how large
 * the local shard is: it differs between plans that are equal. That is sound where the shapes of
 * the operands say the same (checked here); where they do not, the attribute stays, and the
 * operator is equal to no logical one.
 * Cost: a few look-ups for each argument.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan/nnscaler.h"

bool tocsin_nn_number(const tocsin_pickle_value *value, double *number)
{
    int64_t integer;
    if (tocsin_pickle_is(value, "IRObject"))
        value = tocsin_pickle_member(value, "_value");
    if (value && value->kind == TOCSIN_PICKLE_REAL) {
        *number = value->real;
        return true;
    }
    if (!tocsin_nn_integer(value, &integer))
        return false;
    *number = (double)integer;
    return true;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* A tensor remembers a cell of the graph before partitioning that reads it. If that has the same
 * name and makes the same full tensor, it is the logical operator, whose number is the same in
 * every plan of the model. */
static uint64_t logical_id(const tocsin_nn_operator *op, uint64_t own)
{
    for (uint32_t i = 0; i < op->input_count && op->output_count > 0; ++i) {
        const tocsin_pickle_value *cell = op->inputs[i]->consumer;
        const tocsin_pickle_value *made =
            tocsin_pickle_item(tocsin_pickle_member(cell, "_outputs"), 0);
        const tocsin_pickle_value *full = tocsin_pickle_member(made, "_full_tensor");
        int64_t full_id, id;
        if (tocsin_pickle_is(cell, "IRDimops") &&
            strcmp(tocsin_pickle_text(tocsin_pickle_member(cell, "name")), op->name) == 0 &&
            tocsin_nn_integer(tocsin_pickle_member(full, "_id"), &full_id) &&
            (uint64_t)full_id == op->outputs[0]->full_id &&
            tocsin_nn_integer(tocsin_pickle_member(cell, "_id"), &id) && id >= 0)
            return (uint64_t)id;
    }
    return own;
}

static tocsin_status intern(tocsin_nn *nn, const char *text, size_t bytes, uint32_t *string)
{
    *string = tocsin_plan_string(nn->plan, text, bytes);
    return *string ? TOCSIN_OK : tocsin_plan_string_error(nn->plan, nn->error);
}

/* The innermost module, or a weight's name. */
static const char *find_module(const tocsin_nn_operator *op)
{
    const tocsin_pickle_value *stack = tocsin_pickle_member(op->forward, "_module_stack");
    if (stack && stack->kind == TOCSIN_PICKLE_OBJECT)
        stack = stack->object->pairs;
    if (stack && stack->kind == TOCSIN_PICKLE_DICT && stack->count >= 2)
        return tocsin_pickle_text(stack->items[stack->count - 2]);
    for (uint32_t i = 0; i < op->input_count; ++i) {
        if (op->inputs[i]->is_weight)
            return op->inputs[i]->name;
    }
    return "";
}

/* `File "model.py", line 210, in forward, ...` -> "model.py:210". */
static tocsin_status set_source(tocsin_nn *nn, tocsin_nn_operator *op)
{
    static const char head[] = "File \"", middle[] = "\", line ";
    const char *comment = tocsin_pickle_text(tocsin_pickle_member(op->forward, "_comment"));
    const char *quote = strstr(comment, middle);
    if (strncmp(comment, head, sizeof head - 1) != 0 || !quote)
        return TOCSIN_OK;
    const char *path = comment + sizeof head - 1;
    long line = strtol(quote + sizeof middle - 1, NULL, 10);
    char source[1024];
    int bytes = snprintf(source, sizeof source, "%.*s:%ld", (int)(quote - path), path, line);
    if (quote < path || bytes < 0 || (size_t)bytes >= sizeof source)
        return TOCSIN_OK;
    return intern(nn, source, (size_t)bytes, &op->like.op.source);
}

static tocsin_status set_names(tocsin_nn *nn, bool backward, tocsin_nn_operator *op)
{
    uint64_t own;
    TOCSIN_TRY(tocsin_nn_id(nn, op->forward, &own));
    op->id = logical_id(op, own);
    tocsin_nn_draft_init(&op->like, TOCSIN_OPERATOR_CALL, NULL);
    op->like.op.phase = backward ? TOCSIN_PHASE_BACKWARD : TOCSIN_PHASE_FORWARD;
    char label[256];
    int bytes = snprintf(label, sizeof label, "%s%s%llu", backward ? "BW." : "", op->name,
                         (unsigned long long)op->id);
    if (bytes < 0 || (size_t)bytes >= sizeof label)
        return tocsin_nn_fail(nn, TOCSIN_E_LIMIT, "the name of an operator is too long");
    TOCSIN_TRY(intern(nn, label, (size_t)bytes, &op->like.op.label));
    const char *module = find_module(op);
    TOCSIN_TRY(intern(nn, module, strlen(module), &op->like.op.fqn));
    return set_source(nn, op);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static tocsin_status take_arguments(tocsin_nn *nn, tocsin_nn_operator *op)
{
    const tocsin_pickle_value *inputs = tocsin_pickle_member(op->forward, "_inputs");
    const tocsin_pickle_value *outputs = tocsin_pickle_member(op->forward, "_outputs");
    op->argument_count = tocsin_pickle_count(inputs);
    op->output_count = tocsin_pickle_count(outputs);
    if (op->argument_count > TOCSIN_NN_OPERANDS_MAX || op->output_count > TOCSIN_NN_OPERANDS_MAX)
        return tocsin_nn_fail(nn, TOCSIN_E_LIMIT, "operator %s has more than %d operands", op->name,
                              TOCSIN_NN_OPERANDS_MAX);
    for (uint32_t i = 0; i < op->argument_count; ++i) {
        op->arguments[i] = tocsin_pickle_item(inputs, i);
        if (!tocsin_nn_is_tensor(op->arguments[i]))
            continue;
        op->position[op->input_count] = i;
        TOCSIN_TRY(tocsin_nn_read_tensor(nn, op->arguments[i], &op->inputs[op->input_count]));
        ++op->input_count;
    }
    for (uint32_t i = 0; i < op->output_count; ++i)
        TOCSIN_TRY(tocsin_nn_read_tensor(nn, tocsin_pickle_item(outputs, i), &op->outputs[i]));
    return TOCSIN_OK;
}

tocsin_status tocsin_nn_read_operator(tocsin_nn *nn, const tocsin_pickle_value *forward,
                                      bool backward, tocsin_nn_operator *op)
{
    op->forward = forward;
    op->name = tocsin_pickle_text(tocsin_pickle_member(forward, "name"));
    op->input_count = 0;
    if (!tocsin_pickle_is(forward, "IRDimops") || !op->name[0])
        return tocsin_nn_fail(nn, TOCSIN_E_UNSUPPORTED, "an operator %s of class %s is not known",
                              op->name, tocsin_pickle_class(forward));
    TOCSIN_TRY(take_arguments(nn, op));
    return set_names(nn, backward, op);
}

/* ---- attributes ------------------------------------------------------------------------------ */

/* Without meaning for the result, or handled where the operator is. */
static bool is_skipped(const char *key)
{
    static const char *const skipped[] = {"size",  "_stacklevel", "inplace", "dtype_or_device",
                                          "dtype", "__consts"};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(skipped); ++i) {
        if (strcmp(key, skipped[i]) == 0)
            return true;
    }
    return false;
}

/* A pair of keyword arguments that tells an operator which range of a tensor's dim 0 it holds. */
static const struct range_arguments {
    const char *function, *begin, *end;
    uint32_t input;
} range_arguments[] = {
    {"embedding", "start", "stop", 1},
    {"nnscaler_moe_gmm", "local_expert_start", "local_expert_end", 3},
};

/* Is it such an argument, and says what the tensor says? A weight's slice is what it is by
 * definition; another tensor's may be a lie, so it has to be whole. */
static bool is_true_range(const tocsin_nn_operator *op, const tocsin_pickle_value *arguments,
                          const char *key)
{
    for (size_t i = 0; i < TOCSIN_COUNT_OF(range_arguments); ++i) {
        const struct range_arguments *range = &range_arguments[i];
        int64_t begin, end;
        if (strcmp(op->name, range->function) != 0 || op->input_count <= range->input ||
            (strcmp(key, range->begin) != 0 && strcmp(key, range->end) != 0))
            continue;
        const tocsin_nn_tensor *tensor = op->inputs[range->input];
        if (tensor->ndim == 0 ||
            !tocsin_nn_integer(tocsin_pickle_member(arguments, range->begin), &begin) ||
            !tocsin_nn_integer(tocsin_pickle_member(arguments, range->end), &end))
            return false;
        bool whole = tensor->size[0] == tensor->full[0];
        return begin == tensor->start[0] && end - begin == tensor->size[0] &&
               (whole || (tensor->is_weight && !tensor->is_gradient));
    }
    return false;
}

/* A keyword that is also an axis of the annotation gives that axis's local size, which the shapes
 * (after the split of grouped dims) give too. */
static bool is_axis_size(const tocsin_nn_operator *op, const char *key, int64_t value)
{
    const tocsin_pickle_value *sizes =
        tocsin_pickle_member(tocsin_pickle_member(op->forward, "_anno"), "_identifiers");
    int64_t size;
    return tocsin_nn_integer(tocsin_pickle_member(sizes, key), &size) && size == value;
}

/* Dims count from the front. */
static int64_t normalise(const tocsin_nn_operator *op, const char *key, int64_t value)
{
    bool is_dim = strncmp(key, "dim", 3) == 0 && op->input_count > 0;
    return is_dim && value < 0 ? value + op->inputs[0]->ndim : value;
}

/* A list of integers; false: it is something else. */
static bool set_list(tocsin_nn *nn, const tocsin_nn_operator *op, const char *key,
                     const tocsin_pickle_value *list, tocsin_nn_draft *draft)
{
    int64_t integers[TOCSIN_NN_INTEGERS_MAX];
    uint32_t count = tocsin_pickle_count(list);
    if (count > TOCSIN_NN_INTEGERS_MAX)
        return false;
    for (uint32_t i = 0; i < count; ++i) {
        if (!tocsin_nn_integer(tocsin_pickle_item(list, i), &integers[i]))
            return false;
        integers[i] = normalise(op, key, integers[i]);
    }
    tocsin_nn_set_integers(nn, draft, key, integers, count);
    return true;
}

static tocsin_status set_attribute(tocsin_nn *nn, const tocsin_nn_operator *op, const char *key,
                                   const tocsin_pickle_value *value, tocsin_nn_draft *draft)
{
    int64_t integer;
    switch ((tocsin_pickle_kind)value->kind) {
    case TOCSIN_PICKLE_NONE:
        return TOCSIN_OK;
    case TOCSIN_PICKLE_REAL:
        tocsin_nn_set_real(nn, draft, key, value->real);
        return TOCSIN_OK;
    case TOCSIN_PICKLE_TEXT:
    case TOCSIN_PICKLE_CLASS:
        tocsin_nn_set_text(nn, draft, key, value->text);
        return TOCSIN_OK;
    case TOCSIN_PICKLE_TUPLE:
    case TOCSIN_PICKLE_LIST:
        if (set_list(nn, op, key, value, draft))
            return TOCSIN_OK;
        break;
    default:
        if (!tocsin_nn_integer(value, &integer))
            break;
        if (!is_axis_size(op, key, integer))
            tocsin_nn_set_integer(nn, draft, key, normalise(op, key, integer));
        return TOCSIN_OK;
    }
    return tocsin_nn_fail(nn, TOCSIN_E_UNSUPPORTED,
                          "argument %s of %s%llu is neither a number nor a text nor a list of "
                          "integers",
                          key, op->name, (unsigned long long)op->id);
}

tocsin_status tocsin_nn_set_attributes(tocsin_nn *nn, const tocsin_nn_operator *op,
                                       tocsin_nn_draft *draft)
{
    const tocsin_pickle_value *arguments = tocsin_nn_arguments(op->forward);
    for (uint32_t i = 0; arguments && i + 1 < arguments->count; i += 2) {
        const char *key = tocsin_pickle_text(arguments->items[i]);
        int64_t integer;
        const tocsin_pickle_value *value = arguments->items[i + 1];
        bool is_unit =
            strcmp(key, "alpha") == 0 && tocsin_nn_integer(value, &integer) && integer == 1;
        if (key[0] && !is_unit && !is_skipped(key) && !is_true_range(op, arguments, key))
            TOCSIN_TRY(set_attribute(nn, op, key, value, draft));
    }
    for (uint32_t i = 0; i < op->argument_count; ++i) {
        char key[24];
        if (tocsin_nn_is_tensor(op->arguments[i]) || tocsin_pickle_is(op->arguments[i], "IRObject"))
            continue;
        snprintf(key, sizeof key, "arg%u", i);
        TOCSIN_TRY(set_attribute(nn, op, key, op->arguments[i], draft));
    }
    return TOCSIN_OK;
}
