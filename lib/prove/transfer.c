/* transfer.c - the relation of an operator's outputs from the relations of its inputs.
 *
 * One function per rule of the operator table (plan/operators.h), found through a table by code.
 * Structure and linear combinations are exact; everything else is the generic rule of congruence.c
 * with a signature of the table, of the op, or made here for the rank at hand (reductions, softmax,
 * embeddings). A memo keyed by kind, input relations and output shapes makes repeated executions
 * (other ranks, replicas, micro-batches, layers of equal operands) one look-up.
 */
#include "prove/prover.h"

#include <assert.h>
#include <math.h>

#include "prove/lookup.h"

typedef bool transfer_rule(tocsin_prover *prover, const tocsin_kind *kind,
                           const tocsin_execution *run);

/* ---- attributes
 * ----------------------------------------------------------------------------------- */

static const tocsin_attribute *attribute(const tocsin_kind *kind, const char *key)
{
    return tocsin_plan_attribute(kind->plan, kind->attributes, key);
}

int64_t tocsin_kind_integer(const tocsin_kind *kind, const char *key, int64_t otherwise)
{
    const tocsin_attribute *found = attribute(kind, key);
    if (found == NULL || found->kind != TOCSIN_ATTRIBUTE_INTEGERS || found->count != 1)
        return otherwise;
    return found->integers[0];
}

double tocsin_kind_real(const tocsin_kind *kind, const char *key, double otherwise)
{
    const tocsin_attribute *found = attribute(kind, key);
    if (found == NULL || found->kind == TOCSIN_ATTRIBUTE_TEXT)
        return otherwise;
    if (found->kind == TOCSIN_ATTRIBUTE_INTEGERS)
        return found->count == 1 ? (double)found->integers[0] : otherwise;
    return found->real;
}

const char *tocsin_kind_text(const tocsin_kind *kind, const char *key, const char *otherwise)
{
    const tocsin_attribute *found = attribute(kind, key);
    if (found == NULL || found->kind != TOCSIN_ATTRIBUTE_TEXT)
        return otherwise;
    return tocsin_plan_text(kind->plan, found->text);
}

const int64_t *tocsin_kind_list(const tocsin_kind *kind, const char *key, uint32_t *count)
{
    const tocsin_attribute *found = attribute(kind, key);
    *count = 0;
    if (found == NULL || found->kind != TOCSIN_ATTRIBUTE_INTEGERS)
        return NULL;
    *count = found->count;
    return found->integers;
}

/* ---- small steps
 * ------------------------------------------------------------------------------------ */

static bool refuse(tocsin_prover *prover, int cause, const tocsin_kind *kind, const char *text)
{
    tocsin_universe_refuse(prover->universe, cause, "%s: %s", kind->name, text);
    return false;
}

static bool give(const tocsin_execution *run, uint32_t output, tocsin_relation_id relation)
{
    run->outputs[output] = relation;
    return relation != 0;
}

static uint32_t ndim_of(const tocsin_prover *prover, tocsin_relation_id relation)
{
    return tocsin_relation_get(prover->universe, relation)->ndim;
}

/* A dim counted from the end when negative; UINT32_MAX: out of range. */
static uint32_t dim_of(int64_t dim, uint32_t ndim)
{
    if (dim < 0)
        dim += ndim;
    return dim < 0 || dim >= (int64_t)ndim ? UINT32_MAX : (uint32_t)dim;
}

static tocsin_relation_id expanded(tocsin_prover *prover, const tocsin_execution *run,
                                   uint32_t input)
{
    return tocsin_relation_expand(prover->universe, run->inputs[input], run->output_shapes[0],
                                  run->output_ndim[0]);
}

static tocsin_affine constant_start(int64_t start)
{
    return (tocsin_affine){.base = start};
}

/* ---- structure
 * ---------------------------------------------------------------------------------------- */

static bool rule_identity(tocsin_prover *prover, const tocsin_kind *kind,
                          const tocsin_execution *run)
{
    (void)prover;
    (void)kind;
    return give(run, 0, run->inputs[0]);
}

static bool rule_copies(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    (void)prover;
    (void)kind;
    for (uint32_t j = 0; j < run->output_count; j++)
        run->outputs[j] = run->inputs[0];
    return true;
}

/* The relation as one term, by definition; 0: refused. */
static tocsin_relation_id as_one_term(tocsin_prover *prover, const tocsin_kind *kind,
                                      const tocsin_execution *run, tocsin_relation_id relation)
{
    if (run->op != TOCSIN_PLAN_NONE)
        return tocsin_relation_define(prover->universe, relation, kind->name, run->op);
    return tocsin_relation_fold(prover->universe, relation, prover->size);
}

/* Pieces (the halves of a rotated head, say, whose heads are then joined) become one value by
 * definition before a view, on either side, also where a rank's view would not cut across them: a
 * rank may hold one head of many. What the logical model does not define keeps its pieces. */
static bool rule_view(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    tocsin_relation_id input = run->inputs[0];
    if (tocsin_relation_get(prover->universe, input)->segmented) {
        const tocsin_relation_id one = as_one_term(prover, kind, run, input);
        input = one == 0 ? input : one;
    }
    return give(
        run, 0,
        tocsin_relation_view(prover->universe, input, run->output_shapes[0], run->output_ndim[0]));
}

static bool rule_permute(tocsin_prover *prover, const tocsin_kind *kind,
                         const tocsin_execution *run)
{
    uint32_t count;
    uint8_t dims[TOCSIN_PLAN_NDIM_MAX];
    const uint32_t ndim = ndim_of(prover, run->inputs[0]);
    const int64_t *list = tocsin_kind_list(kind, "dims", &count);
    if (list == NULL || count != ndim)
        return refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "dims do not fit the operand");
    for (uint32_t d = 0; d < count; d++) {
        const uint32_t dim = dim_of(list[d], ndim);
        if (dim == UINT32_MAX)
            return refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "a dim is out of range");
        dims[d] = (uint8_t)dim;
    }
    return give(run, 0, tocsin_relation_permute(prover->universe, run->inputs[0], dims));
}

static bool rule_expand(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    (void)kind;
    return give(run, 0, expanded(prover, run, 0));
}

static bool rule_slice(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    const tocsin_relation *input = tocsin_relation_get(prover->universe, run->inputs[0]);
    const uint32_t dim = dim_of(tocsin_kind_integer(kind, "dim", 0), input->ndim);
    const int64_t step = tocsin_kind_integer(kind, "step", 1);
    if (dim == UINT32_MAX)
        return refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "dim is out of range");
    const int64_t size = input->shape[dim];
    int64_t start = tocsin_kind_integer(kind, "start", 0);
    int64_t end = tocsin_kind_integer(kind, "end", size);
    start = start < 0 ? start + size : start;
    end = end < 0 ? end + size : end > size ? size : end;
    if (start < 0 || end <= start || step < 1)
        return refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "the range is out of the operand");
    return give(run, 0,
                tocsin_relation_slice(prover->universe, run->inputs[0], dim, constant_start(start),
                                      (end - start + step - 1) / step, step));
}

static bool rule_select(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    const tocsin_relation *input = tocsin_relation_get(prover->universe, run->inputs[0]);
    const uint32_t dim = dim_of(tocsin_kind_integer(kind, "dim", 0), input->ndim);
    if (dim == UINT32_MAX)
        return refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "dim is out of range");
    int64_t index = tocsin_kind_integer(kind, "index", 0);
    index = index < 0 ? index + input->shape[dim] : index;
    if (index < 0 || index >= input->shape[dim])
        return refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "index is out of range");
    return give(run, 0, tocsin_relation_select(prover->universe, run->inputs[0], dim, index));
}

static bool rule_split(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    const uint32_t ndim = ndim_of(prover, run->inputs[0]);
    const uint32_t dim = dim_of(tocsin_kind_integer(kind, "dim", 0), ndim);
    int64_t start = 0;
    if (dim == UINT32_MAX)
        return refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "dim is out of range");
    for (uint32_t j = 0; j < run->output_count; j++) {
        if (run->output_ndim[j] != ndim)
            return refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "a part has another ndim");
        const int64_t count = run->output_shapes[j][dim];
        if (!give(run, j,
                  tocsin_relation_slice(prover->universe, run->inputs[0], dim,
                                        constant_start(start), count, 1)))
            return false;
        start += count;
    }
    return true;
}

static bool rule_unbind(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    const uint32_t dim =
        dim_of(tocsin_kind_integer(kind, "dim", 0), ndim_of(prover, run->inputs[0]));
    if (dim == UINT32_MAX)
        return refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "dim is out of range");
    for (uint32_t j = 0; j < run->output_count; j++)
        if (!give(run, j, tocsin_relation_select(prover->universe, run->inputs[0], dim, j)))
            return false;
    return true;
}

static bool rule_cat(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    const uint32_t dim =
        dim_of(tocsin_kind_integer(kind, "dim", 0), ndim_of(prover, run->inputs[0]));
    if (dim == UINT32_MAX)
        return refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "dim is out of range");
    return give(run, 0, tocsin_relation_cat(prover->universe, run->inputs, run->input_count, dim));
}

static bool rule_stack(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    const tocsin_relation *first = tocsin_relation_get(prover->universe, run->inputs[0]);
    const uint32_t ndim = first->ndim;
    const uint32_t dim = dim_of(tocsin_kind_integer(kind, "dim", 0), ndim + 1);
    int64_t shape[TOCSIN_PLAN_NDIM_MAX + 1];
    if (dim == UINT32_MAX || ndim >= TOCSIN_PLAN_NDIM_MAX)
        return refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "dim is out of range");
    for (uint32_t d = 0; d <= ndim; d++)
        shape[d] = d == dim ? 1 : first->shape[d - (d > dim)];
    const tocsin_arena_mark mark = tocsin_arena_get_mark(&prover->arena);
    tocsin_relation_id *parts =
        TOCSIN_ARENA_ARRAY(&prover->arena, tocsin_relation_id, run->input_count);
    bool done = parts != NULL;
    for (uint32_t i = 0; done && i < run->input_count; i++) {
        parts[i] =
            tocsin_relation_view(prover->universe, run->inputs[i], shape, (uint8_t)(ndim + 1));
        done = parts[i] != 0;
    }
    if (done)
        run->outputs[0] = tocsin_relation_cat(prover->universe, parts, run->input_count, dim);
    tocsin_arena_reset_to(&prover->arena, mark);
    return done && run->outputs[0] != 0;
}

static bool rule_pad(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    const tocsin_relation *input = tocsin_relation_get(prover->universe, run->inputs[0]);
    const uint32_t dim = dim_of(tocsin_kind_integer(kind, "dim", 0), input->ndim);
    const int64_t margin[2] = {tocsin_kind_integer(kind, "before", 0),
                               tocsin_kind_integer(kind, "after", 0)};
    int64_t shape[TOCSIN_PLAN_NDIM_MAX];
    tocsin_relation_id parts[3];
    uint32_t count = 0;
    if (dim == UINT32_MAX || margin[0] < 0 || margin[1] < 0)
        return refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "padding is out of range");
    const uint8_t ndim = input->ndim;
    memcpy(shape, input->shape, ndim * sizeof shape[0]);
    for (uint32_t side = 0; side < 2; side++) {
        if (side == 1)
            parts[count++] = run->inputs[0];
        if (margin[side] == 0)
            continue;
        shape[dim] = margin[side];
        parts[count] = tocsin_relation_constant(prover->universe, 0, true, shape, ndim);
        if (parts[count++] == 0)
            return false;
    }
    return give(run, 0, tocsin_relation_cat(prover->universe, parts, count, dim));
}

/* ---- linear combinations
 * ---------------------------------------------------------------------------- */

static bool combine(tocsin_prover *prover, const tocsin_execution *run, tocsin_factor_id last)
{
    tocsin_relation_id terms[64];
    tocsin_factor_id factors[64];
    tocsin_relation_id sum = 0;

    for (uint32_t first = 0; first < run->input_count;) { /* at most 63 new terms at a time */
        uint32_t count = 0;
        if (sum != 0) {
            terms[count] = sum;
            factors[count++] = 0;
        }
        for (; first < run->input_count && count < TOCSIN_COUNT_OF(terms); first++) {
            terms[count] = expanded(prover, run, first);
            if (terms[count] == 0)
                return false;
            factors[count++] = first > 0 ? last : 0;
        }
        sum = tocsin_relation_add(prover->universe, terms, factors, count);
        if (sum == 0)
            return false;
    }
    return give(run, 0, sum);
}

static bool rule_add(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    const double alpha = tocsin_kind_real(kind, "alpha", 1.0);
    return combine(prover, run, alpha == 1.0 ? 0 : tocsin_factor_real(prover->universe, alpha));
}

static bool rule_subtract(tocsin_prover *prover, const tocsin_kind *kind,
                          const tocsin_execution *run)
{
    const double alpha = tocsin_kind_real(kind, "alpha", 1.0);
    return combine(prover, run, tocsin_factor_real(prover->universe, -alpha));
}

static bool rule_negate(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    (void)kind;
    return give(run, 0,
                tocsin_relation_scale(prover->universe, run->inputs[0],
                                      tocsin_factor_rational(prover->universe, -1, 1)));
}

static tocsin_relation_id scaled(tocsin_prover *prover, tocsin_relation_id relation, double factor)
{
    if (factor == 0.0) {
        const tocsin_relation *view = tocsin_relation_get(prover->universe, relation);
        return tocsin_relation_constant(prover->universe, 0, true, view->shape, view->ndim);
    }
    return tocsin_relation_scale(prover->universe, relation,
                                 tocsin_factor_real(prover->universe, factor));
}

/* `factor` or `divisor`: x / 3 is exactly a third of x, which no double is. */
static bool rule_scale(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    tocsin_universe *universe = prover->universe;
    const double divisor = tocsin_kind_real(kind, "divisor", 0.0);
    if (divisor == 0.0)
        return give(run, 0, scaled(prover, run->inputs[0], tocsin_kind_real(kind, "factor", 1.0)));
    const tocsin_factor_id factor =
        tocsin_factor_inverse(universe, tocsin_factor_real(universe, divisor));
    return give(run, 0, tocsin_relation_scale(universe, run->inputs[0], factor));
}

static tocsin_relation_id constant(tocsin_prover *prover, double value, const int64_t *shape,
                                   uint8_t ndim)
{
    const bool zero = value == 0.0;
    return tocsin_relation_constant(prover->universe,
                                    zero ? 0 : tocsin_factor_real(prover->universe, value), zero,
                                    shape, ndim);
}

/* The numbers 0, 1, 2, ... shifted by an integer are a later stretch of them. */
static tocsin_relation_id shifted_iota(tocsin_prover *prover, tocsin_relation_id relation,
                                       double value)
{
    const tocsin_relation *view = tocsin_relation_get(prover->universe, relation);
    tocsin_digit digits[64];
    if (view->segmented || view->count != 1 || value != floor(value) || fabs(value) > 1e12)
        return 0;
    tocsin_term term = view->terms[0];
    const tocsin_atom *atom = tocsin_atom_get(prover->universe, term.atom);
    if (atom->kind != TOCSIN_ATOM_IOTA || term.factor != 0 || term.box_count != 0 ||
        term.pinned_count != 0 || term.digit_total > TOCSIN_COUNT_OF(digits))
        return 0;
    uint32_t found = 0;
    for (uint32_t k = 0; k < term.digit_total; k++) {
        digits[k] = term.digits[k];
        if (digits[k].axis == TOCSIN_DIGIT_BROADCAST)
            continue;
        if (digits[k].stride != 1 || found++ > 0)
            return 0;
        digits[k].start.base += (int64_t)value;
        if (digits[k].start.base < 0)
            return 0;
    }
    term.digits = digits;
    return found == 1 ? tocsin_relation_of_term(prover->universe, &term, view->shape, view->ndim)
                      : 0;
}

static bool rule_add_scalar(tocsin_prover *prover, const tocsin_kind *kind,
                            const tocsin_execution *run)
{
    const tocsin_relation_id later =
        shifted_iota(prover, run->inputs[0], tocsin_kind_real(kind, "value", 0.0));
    if (later != 0)
        return give(run, 0, later);
    const tocsin_relation_id terms[2] = {run->inputs[0],
                                         constant(prover, tocsin_kind_real(kind, "value", 0.0),
                                                  run->output_shapes[0], run->output_ndim[0])};
    return terms[1] != 0 && give(run, 0, tocsin_relation_add(prover->universe, terms, NULL, 2));
}

static bool rule_full(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    return give(run, 0,
                constant(prover, tocsin_kind_real(kind, "value", 0.0), run->output_shapes[0],
                         run->output_ndim[0]));
}

static bool rule_arange(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    if (run->output_ndim[0] != 1)
        return refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "the result has one dim");
    return give(run, 0,
                tocsin_relation_iota(prover->universe, tocsin_kind_integer(kind, "start", 0),
                                     run->output_shapes[0][0],
                                     tocsin_kind_integer(kind, "step", 1)));
}

/* ---- reductions
 * --------------------------------------------------------------------------------------- */

/* Which dims are reduced, as bits; all when there is no `dims`. */
static bool reduced_dims(const tocsin_kind *kind, uint32_t ndim, uint32_t *bits)
{
    uint32_t count;
    const int64_t *dims = tocsin_kind_list(kind, "dims", &count);
    *bits = 0;
    if (dims == NULL)
        *bits = (UINT32_C(1) << ndim) - 1;
    for (uint32_t k = 0; k < count; k++) {
        const uint32_t dim = dim_of(dims[k], ndim);
        if (dim == UINT32_MAX)
            return false;
        *bits |= UINT32_C(1) << dim;
    }
    return true;
}

/* x[a b c] -> [a c], or [a 1 c] when the dim is kept; the reduced axes carry `contracted` or not.
 */
static void reduction_signature(tocsin_signature *signature, uint32_t ndim, uint32_t bits,
                                bool keep, bool contracted)
{
    memset(signature, 0, sizeof *signature);
    signature->input_count = signature->output_count = 1;
    signature->axis_count = (uint8_t)ndim;
    signature->linear = contracted;
    tocsin_signature_operand *from = &signature->operands[0], *to = &signature->operands[1];
    from->ndim = (uint8_t)ndim;
    for (uint32_t d = 0; d < ndim; d++) {
        const bool reduced = bits >> d & 1;
        snprintf(signature->axis_name[d], sizeof signature->axis_name[d], "dim %u", d);
        from->axis[d] = (int8_t)d;
        signature->contracted[d] = reduced;
        if (!reduced || keep)
            to->axis[to->ndim++] = reduced ? (int8_t)TOCSIN_AXIS_ONE : (int8_t)d;
    }
}

static bool reduce_one(tocsin_prover *prover, const char *name, uint32_t bits, bool keep,
                       bool contracted, const tocsin_execution *run)
{
    tocsin_signature signature;
    reduction_signature(&signature, ndim_of(prover, run->inputs[0]), bits, keep, contracted);
    const uint32_t key = tocsin_prover_key(prover, "%s:%x:%d", name, bits, keep);
    return key != 0 && tocsin_congruence(prover, key, name, &signature, run);
}

/* Reduced dims along which one element is repeated: their sum is a multiple. */
static uint32_t repeated_dims(const tocsin_relation *view, uint32_t bits)
{
    const tocsin_term *term = &view->terms[0];
    uint32_t repeated = 0, first = 0;
    for (uint32_t d = 0; d < view->ndim; d++) {
        bool plain = true;
        for (uint32_t k = 0; k < term->digit_count[d]; k++)
            plain &= term->digits[first + k].axis == TOCSIN_DIGIT_BROADCAST;
        first += term->digit_count[d];
        repeated |= (uint32_t)(plain && (bits >> d & 1)) << d;
    }
    return repeated;
}

static bool sum_terms(tocsin_prover *prover, uint32_t bits, bool keep, const tocsin_execution *run);

/* Sum over the repeated dims, then over the others of `bits`. */
static bool sum_repeated(tocsin_prover *prover, uint32_t bits, uint32_t repeated,
                         const tocsin_execution *run)
{
    tocsin_universe *universe = prover->universe;
    const tocsin_relation *view = tocsin_relation_get(universe, run->inputs[0]);
    tocsin_relation_id relation = run->inputs[0];
    int64_t shape[TOCSIN_PLAN_NDIM_MAX], count = 1;
    uint32_t rest = 0, kept = 0, reduced_ndim = 0;

    for (uint32_t d = 0; d < view->ndim; d++) {
        if (repeated >> d & 1) {
            count *= view->shape[d];
            continue;
        }
        rest |= (bits >> d & 1) << kept++;
        if ((bits >> d & 1) == 0)
            shape[reduced_ndim++] = view->shape[d];
    }
    for (uint32_t d = view->ndim; d-- > 0 && relation != 0;)
        if (repeated >> d & 1)
            relation = tocsin_relation_select(universe, relation, d, 0);
    if (relation != 0)
        relation =
            tocsin_relation_scale(universe, relation, tocsin_factor_rational(universe, count, 1));
    if (relation == 0)
        return false;
    tocsin_relation_id sum = relation;
    if (rest != 0) {
        const int64_t *shapes[1] = {shape};
        const uint8_t ndim = (uint8_t)reduced_ndim;
        tocsin_execution step = *run;
        step.inputs = &relation;
        step.outputs = &sum;
        step.output_shapes = shapes;
        step.output_ndim = &ndim;
        if (!sum_terms(prover, rest, false, &step))
            return false;
    }
    return give(run, 0,
                tocsin_relation_view(universe, sum, run->output_shapes[0], run->output_ndim[0]));
}

/* Sums are linear: term by term, and segment by segment, so that sums of sums stay flat. */
static bool sum_terms(tocsin_prover *prover, uint32_t bits, bool keep, const tocsin_execution *run)
{
    tocsin_universe *universe = prover->universe;
    const tocsin_relation view = *tocsin_relation_get(universe, run->inputs[0]);
    const uint32_t count = view.count;

    if (count == 0)
        return give(run, 0,
                    tocsin_relation_constant(universe, 0, true, run->output_shapes[0],
                                             run->output_ndim[0]));
    if (count == 1 && !view.segmented) {
        const uint32_t repeated = repeated_dims(&view, bits);
        return repeated != 0 ? sum_repeated(prover, bits, repeated, run)
                             : reduce_one(prover, "sum", bits, keep, true, run);
    }
    const tocsin_arena_mark mark = tocsin_arena_get_mark(&prover->arena);
    tocsin_relation_id *parts = TOCSIN_ARENA_ARRAY(&prover->arena, tocsin_relation_id, count);
    const bool across = view.segmented && (bits >> view.segment_dim & 1) == 0;
    uint32_t kept_before = 0; /* where the segmented dim is in the result */
    bool done = parts != NULL;
    for (uint32_t d = 0; view.segmented && d < view.segment_dim; d++)
        kept_before += keep || (bits >> d & 1) == 0;
    for (uint32_t k = 0; done && k < count; k++) {
        int64_t shape[TOCSIN_PLAN_NDIM_MAX];
        const tocsin_relation_id part =
            view.segmented
                ? view.segments[k]
                : tocsin_relation_of_term(universe, &view.terms[k], view.shape, view.ndim);
        memcpy(shape, run->output_shapes[0], run->output_ndim[0] * sizeof shape[0]);
        if (across)
            shape[kept_before] = tocsin_relation_get(universe, part)->shape[view.segment_dim];
        const int64_t *shapes[1] = {shape};
        tocsin_execution one = *run;
        one.inputs = &part;
        one.outputs = &parts[k];
        one.output_shapes = shapes;
        parts[k] = 0;
        done = part != 0 && sum_terms(prover, bits, keep, &one);
    }
    if (done)
        run->outputs[0] = across ? tocsin_relation_cat(universe, parts, count, kept_before)
                                 : tocsin_relation_add(universe, parts, NULL, count);
    tocsin_arena_reset_to(&prover->arena, mark);
    return done && run->outputs[0] != 0;
}

static bool rule_sum(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    uint32_t bits;
    if (!reduced_dims(kind, ndim_of(prover, run->inputs[0]), &bits))
        return refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "a dim is out of range");
    return sum_terms(prover, bits, tocsin_kind_integer(kind, "keepdim", 0) != 0, run);
}

static bool rule_mean(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    const tocsin_relation *input = tocsin_relation_get(prover->universe, run->inputs[0]);
    const uint32_t ndim = input->ndim;
    int64_t elements = 1;
    uint32_t bits;
    if (!reduced_dims(kind, ndim, &bits))
        return refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "a dim is out of range");
    for (uint32_t d = 0; d < ndim; d++)
        if (bits >> d & 1)
            elements *= input->shape[d];
    if (!sum_terms(prover, bits, tocsin_kind_integer(kind, "keepdim", 0) != 0, run))
        return false;
    return give(run, 0,
                tocsin_relation_scale(prover->universe, run->outputs[0],
                                      tocsin_factor_rational(prover->universe, 1, elements)));
}

/* The maximum along dims: a maximum over a range of an axis is a partial maximum. */
static bool rule_amax(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    uint32_t bits;
    if (!reduced_dims(kind, ndim_of(prover, run->inputs[0]), &bits))
        return refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "a dim is out of range");
    tocsin_execution step = *run;
    step.maximum = true;
    return reduce_one(prover, "amax", bits, tocsin_kind_integer(kind, "keepdim", 0) != 0, false,
                      &step);
}

/* ---- operators whose signature depends on the operand
 * ------------------------------------------------ */

static bool rule_softmax(tocsin_prover *prover, const tocsin_kind *kind,
                         const tocsin_execution *run)
{
    tocsin_signature signature;
    const uint32_t ndim = ndim_of(prover, run->inputs[0]);
    const uint32_t dim = dim_of(tocsin_kind_integer(kind, "dim", -1), ndim);
    if (dim == UINT32_MAX)
        return refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind, "dim is out of range");
    reduction_signature(&signature, ndim, 0, false, false);
    signature.whole[dim] = true;
    const uint32_t key = tocsin_prover_key(prover, "softmax:%u", dim);
    return key != 0 && tocsin_congruence(prover, key, "softmax", &signature, run);
}

/* a / b = a * (1 / b) */
static bool rule_divide(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    const tocsin_relation *divisor = tocsin_relation_get(prover->universe, run->inputs[1]);
    tocsin_relation_id inverse = 0;
    const int64_t *shapes[1] = {divisor->shape};
    const uint8_t ndim = divisor->ndim;
    tocsin_execution step = {.op = run->op,
                             .inputs = &run->inputs[1],
                             .outputs = &inverse,
                             .output_shapes = shapes,
                             .output_ndim = &ndim,
                             .input_count = 1,
                             .output_count = 1};
    (void)kind;
    const uint32_t reciprocal = tocsin_prover_key(prover, "reciprocal");
    const uint32_t multiply = tocsin_prover_key(prover, "mul");
    if (reciprocal == 0 || multiply == 0 ||
        !tocsin_congruence(prover, reciprocal, "reciprocal",
                           &prover->table_signatures[TOCSIN_OPERATOR_RECIPROCAL], &step))
        return false;
    const tocsin_relation_id operands[2] = {run->inputs[0], inverse};
    step = *run;
    step.inputs = operands;
    return tocsin_congruence(prover, multiply, "mul",
                             &prover->table_signatures[TOCSIN_OPERATOR_MULTIPLY], &step);
}

/* The constant that a relation is everywhere; false: it is not one. */
static bool constant_value(const tocsin_prover *prover, tocsin_relation_id relation, bool *zero,
                           tocsin_factor_id *value)
{
    const tocsin_relation *view = tocsin_relation_get(prover->universe, relation);
    *zero = !view->segmented && view->count == 0;
    *value = 0;
    if (*zero)
        return true;
    if (view->segmented || view->count != 1 || view->terms[0].box_count != 0 ||
        tocsin_atom_get(prover->universe, view->terms[0].atom)->kind != TOCSIN_ATOM_ONE)
        return false;
    *value = view->terms[0].factor;
    return true;
}

/* A product with a constant is a multiple. */
static bool rule_multiply(tocsin_prover *prover, const tocsin_kind *kind,
                          const tocsin_execution *run)
{
    for (uint32_t i = 0; i < 2; i++) {
        bool zero;
        tocsin_factor_id value;
        if (!constant_value(prover, run->inputs[i], &zero, &value))
            continue;
        const tocsin_relation_id other = expanded(prover, run, 1 - i);
        if (zero)
            return give(run, 0,
                        tocsin_relation_constant(prover->universe, 0, true, run->output_shapes[0],
                                                 run->output_ndim[0]));
        return other != 0 && give(run, 0, tocsin_relation_scale(prover->universe, other, value));
    }
    const uint32_t key = tocsin_prover_key(prover, "mul");
    (void)kind;
    return key != 0 && tocsin_congruence(prover, key, "mul",
                                         &prover->table_signatures[TOCSIN_OPERATOR_MULTIPLY], run);
}

static bool rule_reciprocal(tocsin_prover *prover, const tocsin_kind *kind,
                            const tocsin_execution *run)
{
    bool zero;
    tocsin_factor_id value;
    if (constant_value(prover, run->inputs[0], &zero, &value) && !zero)
        return give(run, 0,
                    tocsin_relation_constant(prover->universe,
                                             tocsin_factor_inverse(prover->universe, value), false,
                                             run->output_shapes[0], run->output_ndim[0]));
    const uint32_t key = tocsin_prover_key(prover, "reciprocal");
    (void)kind;
    return key != 0 &&
           tocsin_congruence(prover, key, "reciprocal",
                             &prover->table_signatures[TOCSIN_OPERATOR_RECIPROCAL], run);
}

static bool rule_power(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    const double exponent = tocsin_kind_real(kind, "exponent", 1.0);
    if (exponent == 1.0)
        return give(run, 0, run->inputs[0]);
    const uint32_t key = tocsin_prover_key(prover, "pow:%.17g", exponent);
    return key != 0 && tocsin_congruence(prover, key, "pow",
                                         &prover->table_signatures[TOCSIN_OPERATOR_POWER], run);
}

/* linear, mm, bmm and matmul are one contraction: the last dim of a with the last but one of b. */
static bool contract(tocsin_prover *prover, const tocsin_execution *run)
{
    const uint32_t key = tocsin_prover_key(prover, "matmul");
    return key != 0 && tocsin_congruence(prover, key, "matmul",
                                         &prover->table_signatures[TOCSIN_OPERATOR_MATMUL], run);
}

static bool rule_matmul(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    if (ndim_of(prover, run->inputs[0]) < 2 || ndim_of(prover, run->inputs[1]) < 2)
        return refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind,
                      "an operand has fewer than two dims");
    return contract(prover, run);
}

/* x W^T; a vector x has no second dim to be a matrix's. */
static bool rule_linear(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    static const uint8_t transposed[2] = {1, 0};
    if (ndim_of(prover, run->inputs[0]) < 2 || ndim_of(prover, run->inputs[1]) != 2)
        return tocsin_congruence(prover, run->kind, kind->name, kind->signature, run);
    const tocsin_relation_id operands[2] = {
        run->inputs[0], tocsin_relation_permute(prover->universe, run->inputs[1], transposed)};
    tocsin_execution step = *run;
    step.inputs = operands;
    return operands[1] != 0 && contract(prover, &step);
}

/* With a branch that is zero, the operator is linear in the other one. */
static bool rule_where(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    for (uint32_t branch = 1; branch <= 2; branch++) {
        const tocsin_relation *other =
            tocsin_relation_get(prover->universe, run->inputs[3 - branch]);
        if (other->segmented || other->count != 0)
            continue;
        tocsin_signature signature = prover->table_signatures[TOCSIN_OPERATOR_WHERE];
        signature.linear = (uint16_t)(1U << branch);
        return tocsin_congruence(prover, run->kind, kind->name, &signature, run);
    }
    return tocsin_congruence(prover, run->kind, kind->name, kind->signature, run);
}

static bool rule_congruence(tocsin_prover *prover, const tocsin_kind *kind,
                            const tocsin_execution *run)
{
    if (kind->signature == NULL) {
        tocsin_universe_refuse(prover->universe, TOCSIN_CAUSE_WRONG_OPERATOR,
                               "no rule for operator %s", kind->name);
        return false;
    }
    return tocsin_congruence(prover, run->kind, kind->name, kind->signature, run);
}

/* ---- the table
 * ------------------------------------------------------------------------------------------ */

/* Rules named in the operator table. Collectives are not transferred but exchanged. */
#define RULE_CONGRUENCE         rule_congruence
#define RULE_LINEAR             rule_linear
#define RULE_MATMUL             rule_matmul
#define RULE_WHERE              rule_where
#define RULE_IDENTITY           rule_identity
#define RULE_COPIES             rule_copies
#define RULE_VIEW               rule_view
#define RULE_PERMUTE            rule_permute
#define RULE_EXPAND             rule_expand
#define RULE_SLICE              rule_slice
#define RULE_SELECT             rule_select
#define RULE_SPLIT              rule_split
#define RULE_UNBIND             rule_unbind
#define RULE_CAT                rule_cat
#define RULE_STACK              rule_stack
#define RULE_PAD                rule_pad
#define RULE_ADD                rule_add
#define RULE_SUBTRACT           rule_subtract
#define RULE_NEGATE             rule_negate
#define RULE_SCALE              rule_scale
#define RULE_ADD_SCALAR         rule_add_scalar
#define RULE_SUM                rule_sum
#define RULE_MEAN               rule_mean
#define RULE_ACCUMULATE         rule_identity
#define RULE_FULL               rule_full
#define RULE_ARANGE             rule_arange
#define RULE_MULTIPLY           rule_multiply
#define RULE_RECIPROCAL         rule_reciprocal
#define RULE_POWER              rule_power
#define RULE_DIVIDE             rule_divide
#define RULE_AMAX               rule_amax
#define RULE_SOFTMAX            rule_softmax
#define RULE_MASKED_FILL        tocsin_rule_masked_fill
#define RULE_EMBEDDING          tocsin_rule_embedding
#define RULE_EMBEDDING_BACKWARD tocsin_rule_embedding_backward
#define RULE_ALL_REDUCE         NULL
#define RULE_ALL_GATHER         NULL
#define RULE_REDUCE_SCATTER     NULL
#define RULE_ALL_TO_ALL         NULL
#define RULE_BROADCAST          NULL
#define RULE_SEND               NULL
#define RULE_RECV               NULL
#define RULE_BARRIER            NULL

static transfer_rule *const rules[TOCSIN_OPERATOR_COUNT] = {
#define X(code, name, rule, inputs, outputs, signature) [TOCSIN_OPERATOR_##code] = RULE_##rule,
    TOCSIN_OPERATOR_TABLE(X)
#undef X
};

bool tocsin_transfer_fresh(tocsin_prover *prover, const tocsin_execution *execution)
{
    const tocsin_kind *kind = &prover->kinds.items[execution->kind - 1];
    const tocsin_kind copy = *kind; /* rules may add kinds */
    const int8_t inputs = tocsin_operators[copy.code].input_count;

    for (uint32_t j = 0; j < execution->output_count; j++)
        execution->outputs[j] = 0;
    if (rules[copy.code] == NULL || (inputs >= 0 && execution->input_count != (uint32_t)inputs) ||
        execution->output_count == 0)
        return refuse(prover, TOCSIN_CAUSE_WRONG_OPERATOR, &copy,
                      "has other operands than its kind");
    if (rules[copy.code](prover, &copy, execution))
        return true;
    for (uint32_t j = 0; j < execution->output_count; j++)
        execution->outputs[j] = 0;
    return false;
}
