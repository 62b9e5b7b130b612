/* transfer.c - the relation of an operator's outputs from the relations of its inputs.
 *
 * One function per rule of the operator table (plan/operators.h), found through a table by code.
 * Structure (structure.c) and linear combinations are exact; everything else is the generic rule of
 * congruence.c with a signature of the table, of the op, or made here for the rank at hand
 * (reductions, softmax, embeddings). A memo keyed by kind, input relations and output shapes makes
 * repeated executions (other ranks, replicas, micro-batches, layers of equal operands) one look-up.
 */
#include "prove/prover.h"

#include <assert.h>
#include <math.h>

#include "prove/transfer.h"

/* ---- attributes ------------------------------------------------------------------------------ */

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

/* ---- linear combinations --------------------------------------------------------------------- */

/* The operand broadcast to the shape of the sum; a long sum by its name. */
static tocsin_relation_id summand(tocsin_prover *prover, const tocsin_execution *run,
                                  uint32_t input)
{
    const tocsin_relation_id named = tocsin_relation_by_name(prover->universe, run->inputs[input]);
    return named == 0 ? 0
                      : tocsin_relation_expand(prover->universe, named, run->output_shapes[0],
                                               run->output_ndim[0]);
}

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
            terms[count] = summand(prover, run, first);
            if (terms[count] == 0)
                return false;
            factors[count++] = first > 0 ? last : 0;
        }
        sum = tocsin_relation_add(prover->universe, terms, factors, count);
        if (sum == 0)
            return false;
    }
    return tocsin_rule_give(run, 0, sum);
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
    return tocsin_rule_give(run, 0,
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
        return tocsin_rule_give(
            run, 0, scaled(prover, run->inputs[0], tocsin_kind_real(kind, "factor", 1.0)));
    if (!(fabs(tocsin_kind_real(kind, "factor", 1.0) * divisor - 1.0) < 1e-12))
        return tocsin_rule_refuse(prover, TOCSIN_CAUSE_WRONG_SCALE, kind,
                                  "the factor is not the reciprocal of the divisor");
    const tocsin_factor_id factor =
        tocsin_factor_inverse(universe, tocsin_factor_real(universe, divisor));
    return tocsin_rule_give(run, 0, tocsin_relation_scale(universe, run->inputs[0], factor));
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
        return tocsin_rule_give(run, 0, later);
    const tocsin_relation_id terms[2] = {run->inputs[0],
                                         constant(prover, tocsin_kind_real(kind, "value", 0.0),
                                                  run->output_shapes[0], run->output_ndim[0])};
    return terms[1] != 0 &&
           tocsin_rule_give(run, 0, tocsin_relation_add(prover->universe, terms, NULL, 2));
}

static bool rule_full(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    return tocsin_rule_give(run, 0,
                            constant(prover, tocsin_kind_real(kind, "value", 0.0),
                                     run->output_shapes[0], run->output_ndim[0]));
}

static bool rule_arange(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    if (run->output_ndim[0] != 1)
        return tocsin_rule_refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind,
                                  "the result has one dim");
    return tocsin_rule_give(
        run, 0,
        tocsin_relation_iota(prover->universe, tocsin_kind_integer(kind, "start", 0),
                             run->output_shapes[0][0], tocsin_kind_integer(kind, "step", 1)));
}

/* ---- operators whose signature depends on the operand ---------------------------------------- */

static bool refuse_division(tocsin_prover *prover, const tocsin_kind *kind)
{
    return tocsin_rule_refuse(prover, TOCSIN_CAUSE_WRONG_CONSTANT, kind, "divides by zero");
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
    if (!divisor->segmented && divisor->count == 0)
        return refuse_division(prover, kind);
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

/* Is it an infinite constant, or the like? */
static bool is_infinite(const tocsin_prover *prover, tocsin_relation_id relation)
{
    const tocsin_relation *view = tocsin_relation_get(prover->universe, relation);
    for (uint32_t k = 0; !view->segmented && k < view->count; k++)
        if (!tocsin_factor_is_finite(prover->universe, view->terms[k].factor))
            return true;
    return false;
}

static bool is_zero_of_infinity(const tocsin_prover *prover, const tocsin_relation_id factors[2])
{
    for (uint32_t i = 0; i < 2; i++) {
        const tocsin_relation *view = tocsin_relation_get(prover->universe, factors[i]);
        if (!view->segmented && view->count == 0 && is_infinite(prover, factors[1 - i]))
            return true;
    }
    return false;
}

/* A product with a constant is a multiple. */
static bool rule_multiply(tocsin_prover *prover, const tocsin_kind *kind,
                          const tocsin_execution *run)
{
    if (is_zero_of_infinity(prover, run->inputs))
        return tocsin_rule_give(run, 0,
                                constant(prover, NAN, run->output_shapes[0], run->output_ndim[0]));
    for (uint32_t i = 0; i < 2; i++) {
        bool zero;
        tocsin_factor_id value;
        if (!constant_value(prover, run->inputs[i], &zero, &value))
            continue;
        const tocsin_relation_id other = tocsin_rule_expanded(prover, run, 1 - i);
        if (zero)
            return tocsin_rule_give(run, 0,
                                    tocsin_relation_constant(prover->universe, 0, true,
                                                             run->output_shapes[0],
                                                             run->output_ndim[0]));
        return other != 0 &&
               tocsin_rule_give(run, 0, tocsin_relation_scale(prover->universe, other, value));
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
    const bool is_constant = constant_value(prover, run->inputs[0], &zero, &value);
    if (is_constant && zero)
        return refuse_division(prover, kind);
    if (is_constant)
        return tocsin_rule_give(
            run, 0,
            tocsin_relation_constant(prover->universe,
                                     tocsin_factor_inverse(prover->universe, value), false,
                                     run->output_shapes[0], run->output_ndim[0]));
    const uint32_t key = tocsin_prover_key(prover, "reciprocal");
    return key != 0 &&
           tocsin_congruence(prover, key, "reciprocal",
                             &prover->table_signatures[TOCSIN_OPERATOR_RECIPROCAL], run);
}

static bool rule_power(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    const double exponent = tocsin_kind_real(kind, "exponent", 1.0);
    if (exponent == 1.0)
        return tocsin_rule_give(run, 0, run->inputs[0]);
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
    if (tocsin_rule_ndim(prover, run->inputs[0]) < 2 ||
        tocsin_rule_ndim(prover, run->inputs[1]) < 2)
        return tocsin_rule_refuse(prover, TOCSIN_CAUSE_WRONG_LAYOUT, kind,
                                  "an operand has fewer than two dims");
    return contract(prover, run);
}

/* x W^T; a vector x has no second dim to be a matrix's. */
static bool rule_linear(tocsin_prover *prover, const tocsin_kind *kind, const tocsin_execution *run)
{
    static const uint8_t transposed[2] = {1, 0};
    if (tocsin_rule_ndim(prover, run->inputs[0]) < 2 ||
        tocsin_rule_ndim(prover, run->inputs[1]) != 2)
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

/* ---- the table ------------------------------------------------------------------------------- */

/* Rules named in the operator table. Collectives are not transferred but exchanged. */
#define RULE_CONGRUENCE         rule_congruence
#define RULE_LINEAR             rule_linear
#define RULE_MATMUL             rule_matmul
#define RULE_WHERE              rule_where
#define RULE_IDENTITY           tocsin_rule_identity
#define RULE_COPIES             tocsin_rule_copies
#define RULE_VIEW               tocsin_rule_view
#define RULE_PERMUTE            tocsin_rule_permute
#define RULE_EXPAND             tocsin_rule_expand
#define RULE_SLICE              tocsin_rule_slice
#define RULE_SELECT             tocsin_rule_select
#define RULE_SPLIT              tocsin_rule_split
#define RULE_UNBIND             tocsin_rule_unbind
#define RULE_CAT                tocsin_rule_cat
#define RULE_STACK              tocsin_rule_stack
#define RULE_PAD                tocsin_rule_pad
#define RULE_ADD                rule_add
#define RULE_SUBTRACT           rule_subtract
#define RULE_NEGATE             rule_negate
#define RULE_SCALE              rule_scale
#define RULE_ADD_SCALAR         rule_add_scalar
#define RULE_SUM                tocsin_rule_sum
#define RULE_MEAN               tocsin_rule_mean
#define RULE_ACCUMULATE         tocsin_rule_identity
#define RULE_FULL               rule_full
#define RULE_ARANGE             rule_arange
#define RULE_MULTIPLY           rule_multiply
#define RULE_RECIPROCAL         rule_reciprocal
#define RULE_POWER              rule_power
#define RULE_DIVIDE             rule_divide
#define RULE_AMAX               tocsin_rule_amax
#define RULE_SOFTMAX            tocsin_rule_softmax
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

static tocsin_transfer_rule *const rules[TOCSIN_OPERATOR_COUNT] = {
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
        return tocsin_rule_refuse(prover, TOCSIN_CAUSE_WRONG_OPERATOR, &copy,
                                  "has other operands than its kind");
    if (rules[copy.code](prover, &copy, execution))
        return true;
    for (uint32_t j = 0; j < execution->output_count; j++)
        execution->outputs[j] = 0;
    return false;
}
