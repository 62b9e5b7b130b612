/* plan/nnscaler_signature.c - axis signatures of operators from nnScaler's annotations.
 *
 * nnScaler annotates its operators like einops, "L^ N E^, (h+ d^ 3) E^ -> L^ N E^": `+` for what is
 * summed over, `^` for what its partitioner must not cut. From that comes the signature of the
 * operator and of each of its derivatives: the derivative with respect to one input has the axes of
 * that input, and is a sum over all other axes (chain rule; an axis that couples its elements stays
 * whole). A dim of several axes is split by a view before the operator, so that each axis is a dim.
 *
 * An unmarked axis that no output has is one that the annotation says nothing about: it is taken to
 * be whole, the safe side. Some functions are annotated more strictly than they are, to keep the
 * partitioner away; for these the table below stands, and the plan says so as an assumption.
 * Cost: linear in the annotation, a few look-ups for each axis.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan/nnscaler.h"

typedef struct known_function {
    const char *name;
    const char *signature; /* NULL: as annotated */
    uint16_t linear;
} known_function;

static const known_function known_functions[] = {
    {"embedding", NULL, 1 << 1},
    {"create_mask", "[n s^] [n s^ h^] -> [1 1 _ _]", 0},
    {"apply_rotary_emb", "[b s^ h d^] [b s^ g d^] [s^ e^] -> [b s^ h d^] [b s^ g d^]", 0},
    {"gate_fw", "[a h^] [e^ h^] -> [a k^] [a k^]", 0},
    {"nnscaler_moe_gmm", "[a h^] [a e^] [a e^] [E+ d+ h^] [E+ d+ h^] [E+ h^ d+] -> [a h^]", 0},
};

static const known_function *find_known(const char *name)
{
    for (size_t i = 0; i < TOCSIN_COUNT_OF(known_functions); ++i) {
        if (strcmp(known_functions[i].name, name) == 0)
            return &known_functions[i];
    }
    return NULL;
}

static tocsin_status fail_annotation(tocsin_nn *nn, const tocsin_nn_operator *op, const char *why)
{
    return tocsin_nn_fail(nn, TOCSIN_E_UNSUPPORTED, "the annotation of %s%llu %s", op->name,
                          (unsigned long long)op->id, why);
}

/* ---- from a signature's text ----------------------------------------------------------------- */

/* The axis of dim `d` of a tensor; an ellipsis stands for axes that are aligned at their right
 * ends. */
static bool take_operand(tocsin_nn_annotation *annotation, const tocsin_signature *signature,
                         const tocsin_signature_operand *operand, const tocsin_nn_tensor *tensor,
                         tocsin_nn_shape *shape)
{
    if (operand->ellipsis ? tensor->ndim < operand->ndim : tensor->ndim != operand->ndim)
        return false;
    uint32_t leading = tensor->ndim - (uint32_t)operand->ndim;
    if (signature->axis_count + leading > TOCSIN_NN_AXES_MAX)
        return false;
    for (uint32_t d = 0; d < tensor->ndim; ++d) {
        int axis;
        if (d >= leading) {
            axis = operand->axis[d - leading];
        } else if (tensor->full[d] == 1) {
            axis = TOCSIN_AXIS_ONE;
        } else {
            axis = signature->axis_count + (int)(leading - 1 - d);
            snprintf(annotation->name[axis], sizeof annotation->name[axis], "lead%u",
                     (unsigned)(uint8_t)(leading - d));
            annotation->mark[axis] = ' ';
            if ((uint32_t)axis >= annotation->axis_count)
                annotation->axis_count = (uint32_t)axis + 1;
        }
        shape->dims[d] =
            (tocsin_nn_axis){axis < 0 ? TOCSIN_AXIS_ANY : (int8_t)axis, tensor->size[d]};
    }
    shape->tensor = tensor;
    shape->ndim = tensor->ndim;
    return true;
}

/* False: the text does not fit the operator's tensors. */
static bool take_signature(const tocsin_nn_operator *op, const char *text,
                           tocsin_nn_annotation *annotation)
{
    tocsin_signature signature;
    if (tocsin_signature_parse(text, strlen(text), &signature, NULL) != TOCSIN_OK ||
        signature.input_count != op->input_count || signature.output_count != op->output_count)
        return false;
    *annotation = (tocsin_nn_annotation){.axis_count = signature.axis_count,
                                         .input_count = op->input_count,
                                         .output_count = op->output_count,
                                         .linear = signature.linear};
    for (uint32_t a = 0; a < signature.axis_count; ++a) {
        memcpy(annotation->name[a], signature.axis_name[a], sizeof annotation->name[a]);
        annotation->mark[a] = signature.contracted[a] ? '+' : signature.whole[a] ? '^' : ' ';
    }
    for (uint32_t i = 0; i < op->input_count + op->output_count; ++i) {
        bool is_input = i < op->input_count;
        uint32_t at = is_input ? i : i - op->input_count;
        if (!take_operand(annotation, &signature, &signature.operands[i],
                          is_input ? op->inputs[at] : op->outputs[at],
                          is_input ? &annotation->inputs[at] : &annotation->outputs[at]))
            return false;
    }
    return true;
}

/* ---- from the pickle ------------------------------------------------------------------------- */

/* The annotation's axis called `identifier`, new if needed. */
static bool find_axis(tocsin_nn_annotation *annotation, const char *identifier, int8_t *axis)
{
    size_t bytes = strlen(identifier);
    for (uint32_t a = 0; a < annotation->axis_count; ++a) {
        if (strcmp(annotation->name[a], identifier) == 0) {
            *axis = (int8_t)a;
            return true;
        }
    }
    if (annotation->axis_count == TOCSIN_NN_AXES_MAX || bytes >= sizeof annotation->name[0])
        return false;
    *axis = (int8_t)annotation->axis_count;
    memcpy(annotation->name[*axis], identifier, bytes + 1);
    annotation->mark[*axis] = ' ';
    ++annotation->axis_count;
    return true;
}

static bool is_axis_name(const char *identifier)
{
    bool letter = (identifier[0] >= 'a' && identifier[0] <= 'z') ||
                  (identifier[0] >= 'A' && identifier[0] <= 'Z');
    for (const char *c = identifier; *c && letter; ++c)
        letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
                 *c == '_';
    return letter;
}

/* `+` or `^` of one axis, which may be an enumerator of ReduceType. */
static char read_mark(const tocsin_pickle_value *mark)
{
    if (mark && mark->kind == TOCSIN_PICKLE_OBJECT)
        mark = tocsin_pickle_item(mark->object->arguments, 0);
    const char *text = tocsin_pickle_text(mark);
    return text[0] == '+' || text[0] == '^' ? text[0] : ' ';
}

/* Where one dim of an operand is taken apart. */
typedef struct dim_reader {
    tocsin_nn *nn;
    const tocsin_nn_operator *op;
    tocsin_nn_annotation *annotation;
    const tocsin_pickle_value *sizes; /* local sizes by identifier */
} dim_reader;

/* The axis and local size (0: unknown) of one identifier. */
static tocsin_status read_identifier(dim_reader *r, const char *identifier, char mark,
                                     tocsin_nn_axis *axis)
{
    axis->axis = TOCSIN_AXIS_ANY;
    axis->size = 0;
    if (identifier[0] >= '0' && identifier[0] <= '9') {
        axis->size = strtoll(identifier, NULL, 10);
        return TOCSIN_OK;
    }
    if (!tocsin_nn_integer(tocsin_pickle_member(r->sizes, identifier), &axis->size))
        axis->size = 0;
    if (!is_axis_name(identifier)) /* `?`, `*` */
        return TOCSIN_OK;
    if (!find_axis(r->annotation, identifier, &axis->axis))
        return fail_annotation(r->nn, r->op, "has too many axes, or one with too long a name");
    if (mark != ' ')
        r->annotation->mark[axis->axis] = mark;
    return TOCSIN_OK;
}

/* Dim `d` of `shape->tensor`. A group whose sizes do not multiply to the dim's is taken as whole.
 */
static tocsin_status read_dim(dim_reader *r, const tocsin_pickle_value *dim, uint32_t d,
                              tocsin_nn_shape *shape)
{
    const tocsin_pickle_value *identifiers = tocsin_pickle_member(dim, "_identifiers");
    const tocsin_pickle_value *marks = tocsin_pickle_member(dim, "_reduces");
    uint32_t count = tocsin_pickle_count(identifiers);
    int64_t rest = shape->tensor->size[d];
    if (count == 0 || shape->ndim + count > TOCSIN_PLAN_NDIM_MAX)
        return fail_annotation(r->nn, r->op, "has a dim without axes, or with too many");
    tocsin_nn_axis *axes = shape->dims + shape->ndim;
    bool right = true;
    for (uint32_t i = count; i-- > 0;) {
        TOCSIN_TRY(read_identifier(r, tocsin_pickle_text(tocsin_pickle_item(identifiers, i)),
                                   read_mark(tocsin_pickle_item(marks, i)), &axes[i]));
        if (i == 0) {
            axes[i].size = rest; /* the outermost carries the shard */
        } else {
            right = right && axes[i].size > 0 && rest % axes[i].size == 0;
            rest = right ? rest / axes[i].size : 1;
        }
    }
    if (right) {
        shape->ndim = (uint8_t)(shape->ndim + count);
        shape->grouped = shape->grouped || count > 1;
    } else {
        axes[0] = (tocsin_nn_axis){TOCSIN_AXIS_ANY, shape->tensor->size[d]};
        ++shape->ndim;
    }
    return TOCSIN_OK;
}

static tocsin_status read_shape(dim_reader *r, const tocsin_pickle_value *operand,
                                const tocsin_nn_tensor *tensor, tocsin_nn_shape *shape)
{
    const tocsin_pickle_value *dims = tocsin_pickle_member(operand, "_dims");
    *shape = (tocsin_nn_shape){.tensor = tensor};
    if (tocsin_pickle_count(dims) != tensor->ndim)
        return fail_annotation(r->nn, r->op, "does not fit the dims of its tensors");
    for (uint32_t d = 0; d < tensor->ndim; ++d)
        TOCSIN_TRY(read_dim(r, tocsin_pickle_item(dims, d), d, shape));
    for (uint32_t d = 1; d < shape->ndim; ++d) { /* an axis stands once in an operand */
        for (uint32_t e = 0; e < d && shape->dims[d].axis >= 0; ++e) {
            if (shape->dims[e].axis == shape->dims[d].axis) {
                r->annotation->mark[shape->dims[d].axis] = '^';
                shape->dims[d].axis = TOCSIN_AXIS_ANY;
            }
        }
    }
    return TOCSIN_OK;
}

static void mark_outputs(tocsin_nn_annotation *annotation)
{
    for (uint32_t i = 0; i < annotation->output_count; ++i) {
        const tocsin_nn_shape *shape = &annotation->outputs[i];
        for (uint32_t d = 0; d < shape->ndim; ++d) {
            if (shape->dims[d].axis >= 0)
                annotation->in_output[shape->dims[d].axis] = true;
        }
    }
}

static tocsin_status take_annotation(tocsin_nn *nn, const tocsin_nn_operator *op,
                                     tocsin_nn_annotation *annotation)
{
    const tocsin_pickle_value *anno = tocsin_pickle_member(op->forward, "_anno");
    const tocsin_pickle_value *inputs = tocsin_pickle_member(anno, "_inputs");
    const tocsin_pickle_value *outputs = tocsin_pickle_member(anno, "_outputs");
    dim_reader r = {.nn = nn,
                    .op = op,
                    .annotation = annotation,
                    .sizes = tocsin_pickle_member(anno, "_identifiers")};
    *annotation =
        (tocsin_nn_annotation){.input_count = op->input_count, .output_count = op->output_count};
    if (op->input_count > TOCSIN_SIGNATURE_OPERANDS_MAX ||
        op->output_count > TOCSIN_SIGNATURE_OPERANDS_MAX)
        return fail_annotation(nn, op, "has too many operands");
    for (uint32_t i = 0; i < op->input_count; ++i)
        TOCSIN_TRY(read_shape(&r, tocsin_pickle_item(inputs, op->position[i]), op->inputs[i],
                              &annotation->inputs[i]));
    for (uint32_t i = 0; i < op->output_count; ++i)
        TOCSIN_TRY(read_shape(&r, tocsin_pickle_item(outputs, i), op->outputs[i],
                              &annotation->outputs[i]));
    mark_outputs(annotation);
    for (uint32_t a = 0; a < annotation->axis_count; ++a) {
        if (annotation->in_output[a] && annotation->mark[a] == '+')
            annotation->mark[a] = ' ';
        if (!annotation->in_output[a] && annotation->mark[a] == ' ')
            annotation->mark[a] = '^';
    }
    return TOCSIN_OK;
}

tocsin_status tocsin_nn_annotate(tocsin_nn *nn, const tocsin_nn_operator *op,
                                 tocsin_nn_annotation *annotation)
{
    const char *declared = tocsin_declarations_find(&nn->declarations, op->name, strlen(op->name));
    const known_function *known = find_known(op->name);
    if (declared && take_signature(op, declared, annotation)) {
        mark_outputs(annotation);
        return TOCSIN_OK;
    }
    if (declared)
        return tocsin_nn_fail(nn, TOCSIN_E_FORMAT,
                              "the declared signature %s does not fit the tensors of %s%llu",
                              declared, op->name, (unsigned long long)op->id);
    if (known && known->signature && take_signature(op, known->signature, annotation)) {
        char text[256];
        snprintf(text, sizeof text, "%s has the axes %s, whatever the plan annotates", op->name,
                 known->signature);
        mark_outputs(annotation);
        return tocsin_plan_assume(nn->plan, text, nn->error);
    }
    TOCSIN_TRY(take_annotation(nn, op, annotation));
    annotation->linear = known ? known->linear : 0;
    return TOCSIN_OK;
}

/* ---- to a signature -------------------------------------------------------------------------- */

/* `kept`: axes of the derivative's result, NULL for the forward operator. */
static void write_shape(const tocsin_nn_annotation *annotation, const tocsin_nn_shape *shape,
                        const bool *kept, tocsin_string *text)
{
    tocsin_string_append_text(text, text->bytes ? " [" : "[");
    for (uint32_t d = 0; d < shape->ndim; ++d) {
        int axis = shape->dims[d].axis;
        if (d)
            tocsin_string_append_char(text, ' ');
        if (axis < 0) {
            tocsin_string_append_char(text, shape->dims[d].size == 1 ? '1' : '_');
            continue;
        }
        char mark = annotation->mark[axis];
        if (kept && mark != '^')
            mark = kept[axis] ? ' ' : '+';
        tocsin_string_append_text(text, annotation->name[axis]);
        if (mark != ' ')
            tocsin_string_append_char(text, mark);
    }
    tocsin_string_append_char(text, ']');
}

static void write_derivative(const tocsin_nn_annotation *annotation,
                             const tocsin_nn_derivative *derivative, tocsin_string *text)
{
    bool kept[TOCSIN_NN_AXES_MAX] = {false};
    const tocsin_nn_shape *result = &annotation->inputs[derivative->wrt];
    for (uint32_t d = 0; d < result->ndim; ++d) {
        if (result->dims[d].axis >= 0)
            kept[result->dims[d].axis] = true;
    }
    for (uint32_t i = 0; i < derivative->gradient_count; ++i)
        write_shape(annotation, &annotation->outputs[derivative->gradients[i]], kept, text);
    for (uint32_t i = 0; i < annotation->input_count; ++i)
        write_shape(annotation, &annotation->inputs[i], kept, text);
    tocsin_string_append_text(text, " ->");
    write_shape(annotation, result, kept, text);
    if (derivative->gradient_count == 1) /* of several it is linear in all at once only */
        tocsin_string_append_text(text, " linear=0");
}

static void write_forward(const tocsin_nn_annotation *annotation, tocsin_string *text)
{
    for (uint32_t i = 0; i < annotation->input_count; ++i)
        write_shape(annotation, &annotation->inputs[i], NULL, text);
    tocsin_string_append_text(text, " ->");
    for (uint32_t i = 0; i < annotation->output_count; ++i)
        write_shape(annotation, &annotation->outputs[i], NULL, text);
    const char *separator = " linear=";
    for (uint32_t i = 0; i < annotation->input_count; ++i) {
        if (annotation->linear >> i & 1) {
            tocsin_string_printf(text, "%s%u", separator, i);
            separator = ",";
        }
    }
}

tocsin_status tocsin_nn_add_signature(tocsin_nn *nn, const tocsin_nn_annotation *annotation,
                                      const tocsin_nn_derivative *derivative, uint32_t *signature)
{
    tocsin_string text = {0};
    if (derivative)
        write_derivative(annotation, derivative, &text);
    else
        write_forward(annotation, &text);
    tocsin_status status = tocsin_string_check(&text, nn->error);
    if (status == TOCSIN_OK)
        status = tocsin_plan_add_signature(nn->plan, text.text, text.bytes, signature, nn->error);
    tocsin_string_free(&text);
    return status;
}

tocsin_status tocsin_nn_split(tocsin_nn *nn, const tocsin_nn_shape *shape,
                              const tocsin_nn_draft *like, uint32_t value, uint32_t *split)
{
    *split = value;
    if (!shape->grouped)
        return TOCSIN_OK;
    int64_t sizes[TOCSIN_PLAN_NDIM_MAX];
    assert(shape->ndim <= TOCSIN_PLAN_NDIM_MAX);
    for (uint32_t d = 0; d < shape->ndim; ++d)
        sizes[d] = shape->dims[d].size;
    tocsin_nn_draft view;
    tocsin_nn_draft_init(&view, TOCSIN_OPERATOR_VIEW, like);
    tocsin_nn_set_integers(nn, &view, "shape", sizes, shape->ndim);
    TOCSIN_TRY(tocsin_nn_auxiliary(nn, shape->tensor, sizes, shape->ndim, split));
    return tocsin_nn_emit_simple(nn, &view, value, *split);
}
