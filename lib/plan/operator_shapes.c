/* operator_shapes.c - do the shapes of an operator's operands fit what it does?
 *
 * The shapes of results are given in a plan; here they are compared with what the operands imply,
 * by the operator's own rule or by its axis signature. Nothing is allocated; a check is linear in
 * the dims of the operands.
 */
#include "plan/plan_check.h"

#include <assert.h>
#include <stdio.h>

typedef struct shape {
    uint32_t ndim;
    const int64_t *size;
} shape;

typedef struct fit {
    const tocsin_plan *plan;
    const tocsin_plan_role *role;
    const tocsin_plan_op *op;
    char *why;
} fit;

static bool refuse(fit *f, const char *format, ...) TOCSIN_PRINTF(2, 3);
static bool refuse(fit *f, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(f->why, TOCSIN_FLAW_TEXT_BYTES, format, arguments);
    va_end(arguments);
    return false;
}

static const tocsin_plan_value *operand(const fit *f, uint32_t index)
{
    assert(index < (uint32_t)f->op->input_count + f->op->output_count);
    uint32_t value = f->plan->operands.items[f->op->first_operand + index];
    return &f->plan->values.items[f->role->first_value + value];
}

static shape shape_at(const fit *f, uint32_t index)
{
    const tocsin_plan_value *value = operand(f, index);
    assert(value->ndim <= TOCSIN_PLAN_NDIM_MAX);
    return (shape){value->ndim, tocsin_plan_shape(f->plan, value)};
}

static shape input(const fit *f, uint32_t index)
{
    return shape_at(f, index);
}

static shape output(const fit *f, uint32_t index)
{
    return shape_at(f, (uint32_t)f->op->input_count + index);
}

static int64_t integer(const fit *f, const char *key, int64_t otherwise)
{
    const tocsin_attribute *a = tocsin_plan_attribute(f->plan, f->op->attributes, key);
    return a && a->kind == TOCSIN_ATTRIBUTE_INTEGERS && a->count == 1 ? a->integers[0] : otherwise;
}

/* The attribute `key` as a dim of something with `ndim` dims. */
static bool dim_of(fit *f, const char *key, uint32_t ndim, uint32_t *dim)
{
    int64_t given = integer(f, key, -1);
    if (given < 0 || given >= ndim)
        return refuse(f, "%s=%lld is no dim of %u", key, (long long)given, ndim);
    *dim = (uint32_t)given;
    return true;
}

/* Equal in all dims but `except` (-1: in all). */
static bool same(fit *f, shape a, shape b, int64_t except)
{
    if (a.ndim != b.ndim)
        return refuse(f, "%u dims against %u", a.ndim, b.ndim);
    for (uint32_t d = 0; d < a.ndim; ++d) {
        if (d != except && a.size[d] != b.size[d])
            return refuse(f, "dim %u has size %lld against %lld", d, (long long)a.size[d],
                          (long long)b.size[d]);
    }
    return true;
}

static bool has_size(fit *f, shape s, uint32_t dim, int64_t size)
{
    if (s.size[dim] != size)
        return refuse(f, "dim %u of the result has size %lld, not %lld", dim,
                      (long long)s.size[dim], (long long)size);
    return true;
}

/* An attribute that repeats the result's shape must repeat it truly. */
static bool shape_attribute(fit *f)
{
    const tocsin_attribute *a = tocsin_plan_attribute(f->plan, f->op->attributes, "shape");
    return !a || same(f, (shape){a->count, a->integers}, output(f, 0), -1);
}

/* ---- structure --------------------------------------------------------------------------------
 */

static int64_t elements(shape s)
{
    int64_t count = 1; /* below 2^62: builder.c */
    for (uint32_t d = 0; d < s.ndim; ++d)
        count *= s.size[d];
    return count;
}

static bool fits_view(fit *f)
{
    int64_t before = elements(input(f, 0)), after = elements(output(f, 0));
    if (before != after)
        return refuse(f, "a view of %lld elements as %lld", (long long)before, (long long)after);
    return shape_attribute(f);
}

static bool fits_permute(fit *f)
{
    shape in = input(f, 0), out = output(f, 0);
    const tocsin_attribute *dims = tocsin_plan_attribute(f->plan, f->op->attributes, "dims");
    uint32_t seen = 0;
    if (dims->count != in.ndim || out.ndim != in.ndim)
        return refuse(f, "%u dims permuted by %u numbers into %u dims", in.ndim, dims->count,
                      out.ndim);
    for (uint32_t d = 0; d < in.ndim; ++d) {
        int64_t from = dims->integers[d];
        if (from < 0 || from >= in.ndim || (seen & 1u << from))
            return refuse(f, "dims is not a permutation of 0 to %u", in.ndim - 1);
        seen |= 1u << from;
        if (!has_size(f, out, d, in.size[from]))
            return false;
    }
    return true;
}

static bool fits_expand(fit *f)
{
    shape in = input(f, 0), out = output(f, 0);
    if (in.ndim > out.ndim)
        return refuse(f, "%u dims expanded to %u", in.ndim, out.ndim);
    for (uint32_t d = 0; d < in.ndim; ++d) {
        if (in.size[d] != 1 && !has_size(f, out, d + out.ndim - in.ndim, in.size[d]))
            return false;
    }
    return shape_attribute(f);
}

static bool fits_slice(fit *f)
{
    shape in = input(f, 0), out = output(f, 0);
    uint32_t dim = 0;
    if (!dim_of(f, "dim", in.ndim, &dim) || !same(f, in, out, dim))
        return false;
    int64_t start = integer(f, "start", 0), end = integer(f, "end", 0),
            step = integer(f, "step", 1);
    if (start < 0 || end <= start || end > in.size[dim] || step < 1)
        return refuse(f, "[%lld:%lld:%lld] is no slice of dim %u of size %lld", (long long)start,
                      (long long)end, (long long)step, dim, (long long)in.size[dim]);
    return has_size(f, out, dim, (end - start - 1) / step + 1);
}

/* `few` has the dims of `many` without `dim`. */
static bool lacks_dim(fit *f, shape few, shape many, uint32_t dim)
{
    if (few.ndim + 1 != many.ndim)
        return refuse(f, "%u dims against %u and one", many.ndim, few.ndim);
    for (uint32_t d = 0; d < few.ndim; ++d) {
        int64_t size = many.size[d < dim ? d : d + 1];
        if (few.size[d] != size)
            return refuse(f, "dim %u has size %lld, not %lld", d, (long long)few.size[d],
                          (long long)size);
    }
    return true;
}

static bool fits_select(fit *f)
{
    shape in = input(f, 0);
    uint32_t dim = 0;
    if (!dim_of(f, "dim", in.ndim, &dim))
        return false;
    int64_t index = integer(f, "index", -1);
    if (index < 0 || index >= in.size[dim])
        return refuse(f, "index %lld of dim %u of size %lld", (long long)index, dim,
                      (long long)in.size[dim]);
    return lacks_dim(f, output(f, 0), in, dim);
}

static bool fits_split(fit *f)
{
    shape in = input(f, 0);
    const tocsin_attribute *sizes = tocsin_plan_attribute(f->plan, f->op->attributes, "sizes");
    uint32_t dim = 0;
    int64_t left = 0;
    if (!dim_of(f, "dim", in.ndim, &dim))
        return false;
    if (sizes->count != f->op->output_count)
        return refuse(f, "%u sizes for %u results", sizes->count, f->op->output_count);
    left = in.size[dim];
    for (uint32_t i = 0; i < sizes->count; ++i) {
        shape out = output(f, i);
        if (!same(f, in, out, dim) || !has_size(f, out, dim, sizes->integers[i]))
            return false;
        left -= out.size[dim];
        if (left < 0)
            break;
    }
    if (left != 0)
        return refuse(f, "the sizes do not add up to %lld", (long long)in.size[dim]);
    return true;
}

static bool fits_unbind(fit *f)
{
    shape in = input(f, 0);
    uint32_t dim = 0;
    if (!dim_of(f, "dim", in.ndim, &dim))
        return false;
    if (in.size[dim] != f->op->output_count)
        return refuse(f, "%u results of dim %u of size %lld", f->op->output_count, dim,
                      (long long)in.size[dim]);
    for (uint32_t i = 0; i < f->op->output_count; ++i) {
        if (!lacks_dim(f, output(f, i), in, dim))
            return false;
    }
    return true;
}

static bool fits_cat(fit *f)
{
    shape out = output(f, 0);
    uint32_t dim = 0;
    int64_t left = 0;
    if (!dim_of(f, "dim", out.ndim, &dim))
        return false;
    left = out.size[dim];
    for (uint32_t i = 0; i < f->op->input_count; ++i) {
        shape in = input(f, i);
        if (!same(f, in, out, dim))
            return false;
        left -= in.size[dim];
        if (left < 0)
            break;
    }
    if (left != 0)
        return refuse(f, "the parts do not add up to %lld on dim %u", (long long)out.size[dim],
                      dim);
    return true;
}

static bool fits_stack(fit *f)
{
    shape out = output(f, 0);
    uint32_t dim = 0;
    if (!dim_of(f, "dim", out.ndim, &dim) || !has_size(f, out, dim, f->op->input_count))
        return false;
    for (uint32_t i = 0; i < f->op->input_count; ++i) {
        if (!lacks_dim(f, input(f, i), out, dim))
            return false;
    }
    return true;
}

static bool fits_pad(fit *f)
{
    shape in = input(f, 0), out = output(f, 0);
    uint32_t dim = 0;
    if (!dim_of(f, "dim", in.ndim, &dim) || !same(f, in, out, dim))
        return false;
    int64_t before = integer(f, "before", -1), after = integer(f, "after", -1);
    if (before < 0 || after < 0 || before > TOCSIN_PLAN_INDEX_MAX || after > TOCSIN_PLAN_INDEX_MAX)
        return refuse(f, "padding by %lld and %lld", (long long)before, (long long)after);
    return has_size(f, out, dim, before + in.size[dim] + after);
}

/* ---- elements and reductions ------------------------------------------------------------------
 */

/* Join `s`, right-aligned, into the sizes `joined` of `*ndim` dims (outermost last). */
static bool broadcast(fit *f, shape s, int64_t joined[TOCSIN_PLAN_NDIM_MAX], uint32_t *ndim)
{
    for (uint32_t d = 0; d < s.ndim; ++d) {
        int64_t size = s.size[s.ndim - 1 - d];
        if (d == *ndim)
            joined[(*ndim)++] = 1;
        if (size != 1 && joined[d] != 1 && joined[d] != size)
            return refuse(f, "sizes %lld and %lld do not broadcast", (long long)joined[d],
                          (long long)size);
        if (size != 1)
            joined[d] = size;
    }
    return true;
}

static bool is_joined(fit *f, shape s, const int64_t joined[], uint32_t ndim)
{
    if (s.ndim != ndim)
        return refuse(f, "the result has %u dims, not %u", s.ndim, ndim);
    for (uint32_t d = 0; d < ndim; ++d) {
        if (!has_size(f, s, d, joined[ndim - 1 - d]))
            return false;
    }
    return true;
}

static bool fits_elementwise(fit *f)
{
    int64_t joined[TOCSIN_PLAN_NDIM_MAX];
    uint32_t ndim = 0;
    for (uint32_t i = 0; i < f->op->input_count; ++i) {
        if (!broadcast(f, input(f, i), joined, &ndim))
            return false;
    }
    return is_joined(f, output(f, 0), joined, ndim);
}

static bool fits_reduction(fit *f)
{
    shape in = input(f, 0), out = output(f, 0);
    const tocsin_attribute *dims = tocsin_plan_attribute(f->plan, f->op->attributes, "dims");
    int64_t keep = integer(f, "keepdim", 0);
    int64_t kept[TOCSIN_PLAN_NDIM_MAX];
    uint32_t ndim = 0, reduced = 0;
    for (uint32_t i = 0; i < dims->count; ++i) {
        int64_t dim = dims->integers[i];
        if (dim < 0 || dim >= in.ndim || (reduced & 1u << dim))
            return refuse(f, "dims are not different dims of %u", in.ndim);
        reduced |= 1u << dim;
    }
    if (keep != 0 && keep != 1)
        return refuse(f, "keepdim=%lld", (long long)keep);
    for (uint32_t d = 0; d < in.ndim; ++d) {
        if (!(reduced & 1u << d))
            kept[ndim++] = in.size[d];
        else if (keep)
            kept[ndim++] = 1;
    }
    return same(f, out, (shape){ndim, kept}, -1);
}

static bool fits_arange(fit *f)
{
    shape out = output(f, 0);
    int64_t start = integer(f, "start", 0), end = integer(f, "end", 0),
            step = integer(f, "step", 1);
    int64_t limit = TOCSIN_PLAN_INDEX_MAX;
    if (start < -limit || start > limit || end < -limit || end > limit || step < -limit ||
        step > limit || step == 0 || (step > 0 ? end <= start : end >= start))
        return refuse(f, "%lld to %lld by %lld is no range", (long long)start, (long long)end,
                      (long long)step);
    int64_t span = step > 0 ? end - start : start - end, by = step > 0 ? step : -step;
    if (out.ndim != 1)
        return refuse(f, "the result has %u dims, not 1", out.ndim);
    return has_size(f, out, 0, (span - 1) / by + 1);
}

static bool fits_softmax(fit *f)
{
    uint32_t dim = 0;
    return dim_of(f, "dim", input(f, 0).ndim, &dim) && same(f, input(f, 0), output(f, 0), -1);
}

static bool fits_embedding(fit *f)
{
    shape table = input(f, 0), indices = input(f, 1), out = output(f, 0);
    if (table.ndim != 2 || out.ndim != indices.ndim + 1)
        return refuse(f, "a table of %u dims, indices of %u, a result of %u", table.ndim,
                      indices.ndim, out.ndim);
    return lacks_dim(f, indices, out, indices.ndim) &&
           has_size(f, out, indices.ndim, table.size[1]);
}

static bool fits_embedding_backward(fit *f)
{
    shape gradient = input(f, 0), indices = input(f, 1), out = output(f, 0);
    if (out.ndim != 2 || gradient.ndim != indices.ndim + 1)
        return refuse(f, "a gradient of %u dims, indices of %u, a table of %u", gradient.ndim,
                      indices.ndim, out.ndim);
    return lacks_dim(f, indices, gradient, indices.ndim) &&
           has_size(f, out, 0, integer(f, "rows", -1)) &&
           has_size(f, out, 1, gradient.size[indices.ndim]);
}

/* ---- axis signatures --------------------------------------------------------------------------
 */

typedef struct binding {
    int64_t axis[TOCSIN_SIGNATURE_AXES_MAX]; /* 0: not bound yet */
    int64_t leading[TOCSIN_PLAN_NDIM_MAX];   /* what ... stands for, innermost first */
    uint32_t leading_ndim;
    bool has_leading;
} binding;

static bool bind_operand(fit *f, const tocsin_signature *signature, uint32_t index, binding *b)
{
    const tocsin_signature_operand *o = &signature->operands[index];
    shape s = shape_at(f, index);
    if (s.ndim < o->ndim || (s.ndim > o->ndim && !o->ellipsis))
        return refuse(f, "operand %u has %u dims, its signature %u", index, s.ndim, o->ndim);
    shape leading = {s.ndim - o->ndim, s.size};
    for (uint32_t d = 0; d < o->ndim; ++d) {
        int64_t size = s.size[leading.ndim + d];
        int axis = o->axis[d];
        if (axis == TOCSIN_AXIS_ONE && size != 1)
            return refuse(f, "dim %u of operand %u has size %lld, not 1", leading.ndim + d, index,
                          (long long)size);
        if (axis < 0)
            continue;
        if (b->axis[axis] != 0 && b->axis[axis] != size)
            return refuse(f, "axis %s has size %lld and %lld", signature->axis_name[axis],
                          (long long)b->axis[axis], (long long)size);
        b->axis[axis] = size;
    }
    if (!o->ellipsis)
        return true;
    if (index >= signature->input_count && b->has_leading)
        return is_joined(f, leading, b->leading, b->leading_ndim);
    b->has_leading = true;
    return broadcast(f, leading, b->leading, &b->leading_ndim);
}

static bool fits_signature(fit *f, const tocsin_signature *signature)
{
    binding b = {0};
    uint32_t count = (uint32_t)signature->input_count + signature->output_count;
    assert(signature->input_count == f->op->input_count);
    assert(signature->output_count == f->op->output_count);
    for (uint32_t i = 0; i < count; ++i) {
        if (!bind_operand(f, signature, i, &b))
            return false;
    }
    return true;
}

/* ---- collectives ------------------------------------------------------------------------------
 */

/* `whole` has `members` times the size of `part` on `dim`. */
static bool is_gathered(fit *f, shape part, shape whole, uint32_t dim, int64_t members)
{
    if (!same(f, part, whole, dim))
        return false;
    if (whole.size[dim] / members != part.size[dim] || whole.size[dim] % members != 0)
        return refuse(f, "dim %u has size %lld and %lld over a group of %lld", dim,
                      (long long)part.size[dim], (long long)whole.size[dim], (long long)members);
    return true;
}

static bool fits_all_to_all(fit *f, int64_t members)
{
    shape in = input(f, 0), out = output(f, 0);
    uint32_t split = 0, join = 0;
    if (!dim_of(f, "split_dim", in.ndim, &split) || !dim_of(f, "join_dim", in.ndim, &join))
        return false;
    if (in.size[split] % members != 0)
        return refuse(f, "dim %u of size %lld does not split over a group of %lld", split,
                      (long long)in.size[split], (long long)members);
    if (split == join)
        return same(f, in, out, -1);
    int64_t sizes[TOCSIN_PLAN_NDIM_MAX];
    memcpy(sizes, in.size, in.ndim * sizeof *sizes);
    sizes[split] /= members;
    return is_gathered(f, (shape){in.ndim, sizes}, out, join, members);
}

static bool fits_collective(fit *f)
{
    int64_t members = (int64_t)tocsin_plan_group_size(f->plan, f->op->group);
    uint32_t dim = 0;
    switch (f->op->code) {
    case TOCSIN_OPERATOR_ALL_REDUCE:
        return same(f, input(f, 0), output(f, 0), -1);
    case TOCSIN_OPERATOR_ALL_GATHER:
        return dim_of(f, "dim", input(f, 0).ndim, &dim) &&
               is_gathered(f, input(f, 0), output(f, 0), dim, members);
    case TOCSIN_OPERATOR_REDUCE_SCATTER:
        return dim_of(f, "dim", output(f, 0).ndim, &dim) &&
               is_gathered(f, output(f, 0), input(f, 0), dim, members);
    case TOCSIN_OPERATOR_ALL_TO_ALL:
        return fits_all_to_all(f, members);
    default:
        assert(f->op->code == TOCSIN_OPERATOR_BROADCAST || f->op->code == TOCSIN_OPERATOR_BARRIER);
        return f->op->input_count == 0 || same(f, input(f, 0), output(f, 0), -1);
    }
}

static bool fits_rule(fit *f)
{
    switch (f->op->code) {
    case TOCSIN_OPERATOR_VIEW:
        return fits_view(f);
    case TOCSIN_OPERATOR_PERMUTE:
        return fits_permute(f);
    case TOCSIN_OPERATOR_EXPAND:
        return fits_expand(f);
    case TOCSIN_OPERATOR_SLICE:
        return fits_slice(f);
    case TOCSIN_OPERATOR_SELECT:
        return fits_select(f);
    case TOCSIN_OPERATOR_SPLIT:
        return fits_split(f);
    case TOCSIN_OPERATOR_UNBIND:
        return fits_unbind(f);
    case TOCSIN_OPERATOR_CAT:
        return fits_cat(f);
    case TOCSIN_OPERATOR_STACK:
        return fits_stack(f);
    case TOCSIN_OPERATOR_PAD:
        return fits_pad(f);
    case TOCSIN_OPERATOR_SUM:
    case TOCSIN_OPERATOR_MEAN:
    case TOCSIN_OPERATOR_AMAX:
        return fits_reduction(f);
    case TOCSIN_OPERATOR_FULL:
        return shape_attribute(f);
    case TOCSIN_OPERATOR_ARANGE:
        return fits_arange(f);
    case TOCSIN_OPERATOR_SOFTMAX:
        return fits_softmax(f);
    case TOCSIN_OPERATOR_EMBEDDING:
        return fits_embedding(f);
    case TOCSIN_OPERATOR_EMBEDDING_BACKWARD:
        return fits_embedding_backward(f);
    case TOCSIN_OPERATOR_ADD:
    case TOCSIN_OPERATOR_SUBTRACT:
    case TOCSIN_OPERATOR_DIVIDE:
        return fits_elementwise(f);
    default: /* identity, copies, scale and their like keep the shape */
        for (uint32_t i = 0; i < f->op->output_count; ++i) {
            if (!same(f, input(f, 0), output(f, i), -1))
                return false;
        }
        return true;
    }
}

bool tocsin_operator_fits(const tocsin_plan *plan, const tocsin_plan_role *role,
                          const tocsin_plan_op *op, const tocsin_signature *signature,
                          char why[TOCSIN_FLAW_TEXT_BYTES])
{
    fit f = {plan, role, op, why};
    for (uint32_t i = 0; i < (uint32_t)op->input_count + op->output_count; ++i) {
        if (operand(&f, i)->ndim == TOCSIN_PLAN_NDIM_UNKNOWN)
            return true;
    }
    if (signature)
        return fits_signature(&f, signature);
    if (op->code == TOCSIN_OPERATOR_CALL || op->code == TOCSIN_OPERATOR_SEND ||
        op->code == TOCSIN_OPERATOR_RECV)
        return true;
    if (tocsin_operator_communicates((tocsin_operator_code)op->code))
        return fits_collective(&f);
    return fits_rule(&f);
}
