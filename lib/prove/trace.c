/* trace.c - why an operator or an output is wrong.
 *
 * For an operator: its operands are compared with those of the logical operator of the same label.
 * A difference of a kind (other atoms, a partial sum, shards out of order, axes permuted, another
 * factor) is followed upstream, through operators whose own input already shows it, to the operator
 * that made it. For an output the difference of the two normal forms names the class, and the chain
 * of reductions and factors behind the output the operator.
 */
#include "prove/difference.h"

#include <assert.h>

/* One execution of an op. */
typedef struct place {
    uint32_t unit, slot, op;
} place;

enum { STEPS_MAX = 4096, TEXT_BYTES = 300 };

static const tocsin_relation *view_of(const tocsin_tracer *tracer, tocsin_relation_id relation)
{
    return tocsin_relation_get(tracer->run->prover->universe, relation);
}

static bool known(tocsin_relation_id relation)
{
    return relation != 0 && relation != TOCSIN_POISON;
}

static const tocsin_plan_op *op_at(const tocsin_tracer *tracer, uint32_t op)
{
    return &tracer->run->plan->ops.items[op];
}

/* Value number `k` among the operands of the op: inputs, then outputs. */
static tocsin_relation_id operand(const tocsin_tracer *tracer, place at, uint32_t k)
{
    const tocsin_plan_op *op = op_at(tracer, at.op);
    return tocsin_run_value(tracer->run, at.unit, at.slot,
                            tracer->run->plan->operands.items[op->first_operand + k]);
}

static tocsin_relation_id logical_operand(const tocsin_tracer *tracer, uint32_t op, uint32_t k)
{
    const tocsin_plan *plan = tracer->logical->plan;
    return tocsin_run_value(tracer->logical, 0, 0,
                            plan->operands.items[plan->ops.items[op].first_operand + k]);
}

/* ---- going upstream -------------------------------------------------------------------------- */

/* The execution that made a value. false: an input, or unknown. */
static bool producer_of(const tocsin_tracer *tracer, place at, uint32_t value, place *found)
{
    const tocsin_plan *plan = tracer->run->plan;
    const tocsin_plan_role *role = &plan->roles.items[tracer->run->units.items[at.unit].role];
    const uint32_t op = tracer->producer[role->first_value + value];
    if (op == TOCSIN_PLAN_NONE)
        return false;
    *found = (place){.unit = at.unit, .slot = at.slot, .op = op};
    if (plan->ops.items[op].code != TOCSIN_OPERATOR_RECV)
        return true;
    const uint32_t match = tracer->match[op];
    const uint32_t sender = match == TOCSIN_PLAN_NONE ? TOCSIN_PLAN_NONE : tracer->sender[match];
    if (sender == TOCSIN_PLAN_NONE)
        return true;
    const tocsin_plan_role *other = &plan->roles.items[tracer->role_of[sender]];
    const uint32_t replica =
        tracer->run->enumerate_replicas ? tracer->run->units.items[at.unit].replica : 0;
    const uint32_t unit =
        tracer->run->unit_of[(size_t)other->device * tracer->run->replicas + replica];
    if (unit != UINT32_MAX)
        *found = (place){.unit = unit, .slot = at.slot, .op = sender};
    return true;
}

/* Does the value show the difference by itself? (What ATOMS and MAP mean needs a counterpart.) */
static bool shows(const tocsin_tracer *tracer, tocsin_relation_id relation, tocsin_difference what,
                  tocsin_relation_id counterpart)
{
    if (!known(relation))
        return false;
    switch (what) {
    case TOCSIN_DIFFERENCE_PARTIAL:
        return tracer->entry == NULL ? tocsin_is_partial(view_of(tracer, relation))
                                     : tocsin_has_entry(view_of(tracer, relation), tracer->entry);
    case TOCSIN_DIFFERENCE_SEGMENTED:
        return view_of(tracer, relation)->segmented;
    case TOCSIN_DIFFERENCE_NONE:
        return false;
    default:
        return known(counterpart) && tocsin_difference_of(tracer, relation, counterpart) == what;
    }
}

/* An input that shows the difference already; UINT32_MAX: none. */
static uint32_t showing_input(const tocsin_tracer *tracer, place at, tocsin_difference what)
{
    const tocsin_plan_op *op = op_at(tracer, at.op);
    const uint32_t pair = tracer->paired[at.op];
    for (uint32_t i = 0; i < op->input_count; i++) {
        tocsin_relation_id counterpart = 0;
        if (pair != TOCSIN_PLAN_NONE &&
            tracer->logical->plan->ops.items[pair].input_count == op->input_count)
            counterpart = logical_operand(tracer, pair, i);
        if (shows(tracer, operand(tracer, at, i), what, counterpart))
            return i;
    }
    return UINT32_MAX;
}

static bool is_alias(uint16_t code)
{
    return code <= TOCSIN_OPERATOR_STACK && code != TOCSIN_OPERATOR_CALL;
}

/* Where the difference of input `input` of `at` was made. For a partial sum `*consumer` is the
 * first operator on the way back down that is no mere alias: it used the sum too early. */
static place origin(const tocsin_tracer *tracer, place at, uint32_t input, tocsin_difference what,
                    place *consumer)
{
    *consumer = at;
    for (int steps = 0; steps < STEPS_MAX; steps++) {
        place above;
        const tocsin_plan_op *op = op_at(tracer, at.op);
        const uint32_t value = tracer->run->plan->operands.items[op->first_operand + input];
        if (!producer_of(tracer, at, value, &above))
            return at;
        if (!is_alias(op->code) && op->code != TOCSIN_OPERATOR_SEND &&
            op->code != TOCSIN_OPERATOR_RECV)
            *consumer = at;
        at = above;
        input = showing_input(tracer, at, what);
        if (input == UINT32_MAX)
            return at;
    }
    return at;
}

/* ---- texts ----------------------------------------------------------------------------------- */

static const char *keep(tocsin_tracer *tracer, const char *text)
{
    return tocsin_arena_copy(&tracer->roots->arena, text, strlen(text));
}

static const char *relation_text(tocsin_tracer *tracer, tocsin_relation_id relation)
{
    if (!known(relation))
        return "";
    tocsin_string text = {.limit_bytes = 4 * TEXT_BYTES};
    tocsin_relation_text(tracer->run->prover->universe, tracer->logical->plan, relation, &text,
                         TEXT_BYTES);
    const char *copy = keep(tracer, tocsin_string_text(&text));
    tocsin_string_free(&text);
    return copy;
}

static bool add_root(tocsin_tracer *tracer, tocsin_root root)
{
    if (root.relation == NULL || root.expected == NULL || root.fix == NULL)
        return false;
    root.pair = root.op == TOCSIN_PLAN_NONE ? TOCSIN_PLAN_NONE : tracer->paired[root.op];
    return TOCSIN_VEC_PUSH(&tracer->roots->items, root);
}

static const char *label_of(const tocsin_tracer *tracer, uint32_t op)
{
    const tocsin_plan *plan = tracer->run->plan;
    const char *label = tocsin_plan_text(plan, plan->ops.items[op].label);
    return label[0] != '\0' ? label : tocsin_plan_text(plan, plan->ops.items[op].name);
}

static const char *fix_text(tocsin_tracer *tracer, const char *format, ...) TOCSIN_PRINTF(2, 3);
static const char *fix_text(tocsin_tracer *tracer, const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return keep(tracer, text);
}

/* ---- operators ------------------------------------------------------------------------------- */

static bool is_reduction(uint16_t code)
{
    return code == TOCSIN_OPERATOR_ALL_REDUCE || code == TOCSIN_OPERATOR_REDUCE_SCATTER;
}

/* A partial sum that input `input` of `at` should not be. */
static bool root_of_partial(tocsin_tracer *tracer, place at, uint32_t input)
{
    place consumer;
    const tocsin_relation_id relation = operand(tracer, at, input);
    const place maker = origin(tracer, at, input, TOCSIN_DIFFERENCE_PARTIAL, &consumer);
    const bool reduced = is_reduction(op_at(tracer, consumer.op)->code);
    return add_root(
        tracer,
        (tocsin_root){.cause = reduced ? TOCSIN_CAUSE_WRONG_GROUP : TOCSIN_CAUSE_MISSING_REDUCTION,
                      .unit = consumer.unit,
                      .op = consumer.op,
                      .output = TOCSIN_PLAN_NONE,
                      .relation = relation_text(tracer, relation),
                      .expected = "the whole sum",
                      .fix = reduced ? fix_text(tracer,
                                                "let %s run over all ranks that hold a "
                                                "part of the sum",
                                                label_of(tracer, consumer.op))
                                     : fix_text(tracer, "insert a reduction between %s and %s",
                                                label_of(tracer, maker.op),
                                                label_of(tracer, consumer.op))});
}

/* Attributes that differ between a rank and the logical model by right: local shapes and positions,
 * and factors of local means. */
static bool depends_on_rank(uint16_t code)
{
    switch (code) {
    case TOCSIN_OPERATOR_VIEW:
    case TOCSIN_OPERATOR_EXPAND:
    case TOCSIN_OPERATOR_SPLIT:
    case TOCSIN_OPERATOR_SLICE:
    case TOCSIN_OPERATOR_PAD:
    case TOCSIN_OPERATOR_FULL:
    case TOCSIN_OPERATOR_ARANGE:
    case TOCSIN_OPERATOR_EMBEDDING:
    case TOCSIN_OPERATOR_EMBEDDING_BACKWARD:
        return true;
    default:
        return tocsin_operator_communicates((tocsin_operator_code)code);
    }
}

bool tocsin_tracer_other_constant(const tocsin_tracer *tracer, uint32_t op)
{
    const uint32_t pair = tracer->paired[op];
    const tocsin_prover *prover = tracer->run->prover;
    if (pair == TOCSIN_PLAN_NONE)
        return false;
    const uint32_t own = prover->op_kind[TOCSIN_PARALLEL][op];
    const uint32_t other = prover->op_kind[TOCSIN_LOGICAL][pair];
    const tocsin_kind *left = &prover->kinds.items[own - 1];
    const tocsin_kind *right = &prover->kinds.items[other - 1];
    return own != other && left->code == right->code && strcmp(left->name, right->name) == 0 &&
           !depends_on_rank(left->code);
}

/* The attributes of the op and its pair, as text when they differ. */
static bool other_constants(tocsin_tracer *tracer, uint32_t op, const char **own,
                            const char **expected)
{
    const tocsin_prover *prover = tracer->run->prover;
    if (!tocsin_tracer_other_constant(tracer, op))
        return false;
    *own = keep(tracer, tocsin_intern_text(&prover->kind_texts,
                                           prover->op_kind[TOCSIN_PARALLEL][op], NULL));
    *expected =
        keep(tracer, tocsin_intern_text(&prover->kind_texts,
                                        prover->op_kind[TOCSIN_LOGICAL][tracer->paired[op]], NULL));
    return true;
}

static bool root_of_constants(tocsin_tracer *tracer, place at, const char *own,
                              const char *expected)
{
    const uint16_t code = op_at(tracer, at.op)->code;
    return add_root(tracer, (tocsin_root){.cause = code == TOCSIN_OPERATOR_PERMUTE ||
                                                           code == TOCSIN_OPERATOR_SLICE
                                                       ? TOCSIN_CAUSE_WRONG_LAYOUT
                                                       : TOCSIN_CAUSE_WRONG_CONSTANT,
                                          .unit = at.unit,
                                          .op = at.op,
                                          .output = TOCSIN_PLAN_NONE,
                                          .relation = own,
                                          .expected = expected,
                                          .fix = ""});
}

static int cause_of(tocsin_difference what)
{
    switch (what) {
    case TOCSIN_DIFFERENCE_ATOMS:
        return TOCSIN_CAUSE_WRONG_INPUT;
    case TOCSIN_DIFFERENCE_PARTIAL:
    case TOCSIN_DIFFERENCE_MIXED:
        return TOCSIN_CAUSE_MISSING_REDUCTION;
    case TOCSIN_DIFFERENCE_RANGES:
        return TOCSIN_CAUSE_WRONG_SHARD;
    case TOCSIN_DIFFERENCE_SEGMENTED:
        return TOCSIN_CAUSE_WRONG_ORDER;
    case TOCSIN_DIFFERENCE_MAP:
        return TOCSIN_CAUSE_WRONG_LAYOUT;
    case TOCSIN_DIFFERENCE_WEIGHTS:
        return TOCSIN_CAUSE_EXTRA_TERM;
    case TOCSIN_DIFFERENCE_FACTOR:
        return TOCSIN_CAUSE_WRONG_SCALE;
    case TOCSIN_DIFFERENCE_NONE:
        break;
    }
    return TOCSIN_CAUSE_WRONG_OPERATOR;
}

/* Input `input` of `at` differs from its logical counterpart: follow it. */
static bool root_of_input(tocsin_tracer *tracer, place at, uint32_t input, tocsin_difference what,
                          tocsin_relation_id counterpart)
{
    place consumer, made = at;
    const char *own, *expected;
    if (what == TOCSIN_DIFFERENCE_PARTIAL)
        return root_of_partial(tracer, at, input);
    if (what != TOCSIN_DIFFERENCE_ATOMS)
        made = origin(tracer, at, input, what, &consumer);
    if (what == TOCSIN_DIFFERENCE_FACTOR && other_constants(tracer, made.op, &own, &expected))
        return own != NULL && expected != NULL && root_of_constants(tracer, made, own, expected);
    return add_root(tracer,
                    (tocsin_root){.cause = cause_of(what),
                                  .unit = made.unit,
                                  .op = made.op,
                                  .output = TOCSIN_PLAN_NONE,
                                  .relation = relation_text(tracer, operand(tracer, at, input)),
                                  .expected = relation_text(tracer, counterpart),
                                  .fix = ""});
}

/* Terms of an addition that are too few or too many. */
static int cause_of_terms(const tocsin_tracer *tracer, tocsin_relation_id own,
                          tocsin_relation_id expected)
{
    const tocsin_difference what = tocsin_difference_of(tracer, own, expected);
    if (what == TOCSIN_DIFFERENCE_MIXED || what == TOCSIN_DIFFERENCE_RANGES)
        return cause_of(what);
    const bool more = tocsin_has_other_atom(tracer, own, expected);
    const bool fewer = tocsin_has_other_atom(tracer, expected, own);
    if (more && fewer)
        return TOCSIN_CAUSE_WRONG_INPUT;
    if (!more && !fewer && what == TOCSIN_DIFFERENCE_WEIGHTS)
        return TOCSIN_CAUSE_EXTRA_TERM;
    return more ? TOCSIN_CAUSE_EXTRA_TERM : TOCSIN_CAUSE_MISSING_TERM;
}

static bool root_of_result(tocsin_tracer *tracer, place at, const tocsin_incident *incident)
{
    const uint32_t pair = tracer->paired[at.op];
    const tocsin_plan_op *op = op_at(tracer, at.op);
    const tocsin_relation_id own = op->output_count > 0 ? operand(tracer, at, op->input_count) : 0;
    tocsin_relation_id expected = 0;
    int cause = incident != NULL ? incident->cause : TOCSIN_CAUSE_WRONG_OPERATOR;

    if (pair != TOCSIN_PLAN_NONE && op->output_count > 0 &&
        tracer->logical->plan->ops.items[pair].output_count > 0)
        expected =
            logical_operand(tracer, pair, tracer->logical->plan->ops.items[pair].input_count);
    if (known(own) && known(expected) &&
        (op->code == TOCSIN_OPERATOR_ADD || op->code == TOCSIN_OPERATOR_SUBTRACT ||
         op->code == TOCSIN_OPERATOR_ACCUMULATE))
        cause = cause_of_terms(tracer, own, expected);
    else if (known(own) && known(expected) &&
             tocsin_difference_of(tracer, own, expected) == TOCSIN_DIFFERENCE_MAP)
        cause = TOCSIN_CAUSE_WRONG_LAYOUT;
    const bool told = incident != NULL && incident->kind != TOCSIN_INCIDENT_FOREIGN;
    return add_root(tracer, (tocsin_root){.cause = cause,
                                          .unit = at.unit,
                                          .op = at.op,
                                          .output = TOCSIN_PLAN_NONE,
                                          .relation = told ? keep(tracer, incident->text)
                                                           : relation_text(tracer, own),
                                          .expected = relation_text(tracer, expected),
                                          .fix = ""});
}

bool tocsin_tracer_explain(tocsin_tracer *tracer, uint32_t unit, uint32_t slot, uint32_t op_index,
                           const tocsin_incident *incident)
{
    const place at = {.unit = unit, .slot = slot, .op = op_index};
    const tocsin_plan_op *op = op_at(tracer, op_index);
    const uint32_t pair = tracer->paired[op_index];
    const char *own, *expected;

    if (incident != NULL &&
        (incident->kind == TOCSIN_INCIDENT_UNDEFINED || incident->kind == TOCSIN_INCIDENT_STRAY))
        return root_of_result(tracer, at, incident);
    if ((op->code != TOCSIN_OPERATOR_SCALE ||
         tracer->candidate[op_index] == TOCSIN_CANDIDATE_CONSTANT) &&
        other_constants(tracer, op_index, &own, &expected))
        return own != NULL && expected != NULL && root_of_constants(tracer, at, own, expected);
    if (incident != NULL && incident->kind == TOCSIN_INCIDENT_REFUSED &&
        incident->cause == TOCSIN_CAUSE_MISSING_REDUCTION) {
        const uint32_t input = showing_input(tracer, at, TOCSIN_DIFFERENCE_PARTIAL);
        return input == UINT32_MAX ? root_of_result(tracer, at, incident)
                                   : root_of_partial(tracer, at, input);
    }
    if (pair == TOCSIN_PLAN_NONE ||
        tracer->logical->plan->ops.items[pair].input_count != op->input_count ||
        op->code == TOCSIN_OPERATOR_ADD || op->code == TOCSIN_OPERATOR_SUBTRACT)
        return root_of_result(tracer, at, incident);
    tocsin_difference worst = TOCSIN_DIFFERENCE_NONE;
    uint32_t input = 0;
    for (uint32_t i = 0; i < op->input_count; i++) { /* a factor alone explains least */
        const tocsin_difference found =
            tocsin_difference_of(tracer, operand(tracer, at, i), logical_operand(tracer, pair, i));
        if (found != TOCSIN_DIFFERENCE_NONE &&
            (worst == TOCSIN_DIFFERENCE_NONE || worst == TOCSIN_DIFFERENCE_FACTOR)) {
            worst = found;
            input = i;
        }
    }
    const bool foreign = incident != NULL && incident->kind == TOCSIN_INCIDENT_FOREIGN;
    if (worst == TOCSIN_DIFFERENCE_NONE || (worst == TOCSIN_DIFFERENCE_FACTOR && !foreign))
        return root_of_result(tracer, at, incident);
    return root_of_input(tracer, at, input, worst, logical_operand(tracer, pair, input));
}

bool tocsin_tracer_input(tocsin_tracer *tracer, const tocsin_incident *incident)
{
    return add_root(tracer, (tocsin_root){.cause = incident->cause,
                                          .unit = incident->unit,
                                          .op = TOCSIN_PLAN_NONE,
                                          .output = TOCSIN_PLAN_NONE,
                                          .relation = keep(tracer, incident->text),
                                          .expected = "",
                                          .fix = ""});
}

/* ---- outputs --------------------------------------------------------------------------------- */

/* The nearest operators behind a value: through aliases, factors and messages back to a reduction,
 * an accumulation or whatever else made it. */
static bool nearest_maker(const tocsin_tracer *tracer, place start, uint32_t value, place *maker)
{
    place at = start;
    if (!producer_of(tracer, at, value, maker))
        return false;
    for (int steps = 0; steps < STEPS_MAX; steps++) {
        const tocsin_plan_op *op = op_at(tracer, maker->op);
        const bool passes = is_alias(op->code) || op->code == TOCSIN_OPERATOR_SCALE ||
                            op->code == TOCSIN_OPERATOR_SEND || op->code == TOCSIN_OPERATOR_RECV ||
                            op->code == TOCSIN_OPERATOR_ALL_GATHER;
        if (!passes || op->input_count == 0)
            return true;
        place above;
        if (!producer_of(tracer, *maker, tracer->run->plan->operands.items[op->first_operand],
                         &above))
            return true;
        *maker = above;
    }
    return true;
}

bool tocsin_tracer_ratio(const tocsin_tracer *tracer, tocsin_relation_id own,
                         tocsin_relation_id expected, tocsin_factor_id *ratio)
{
    tocsin_universe *universe = tracer->run->prover->universe;
    const tocsin_relation *left = view_of(tracer, own), *right = view_of(tracer, expected);
    if (left->segmented || right->segmented || left->count != right->count || left->count == 0)
        return false;
    for (uint32_t k = 0; k < left->count; k++) {
        if (left->terms[k].atom != right->terms[k].atom)
            return false;
        const tocsin_factor_id one =
            tocsin_factor_multiply(universe, left->terms[k].factor,
                                   tocsin_factor_inverse(universe, right->terms[k].factor));
        if (k > 0 && one != *ratio)
            return false;
        *ratio = one;
    }
    return true;
}

static bool output_root(tocsin_tracer *tracer, const tocsin_check *check, int cause, uint32_t unit,
                        uint32_t op)
{
    return add_root(tracer, (tocsin_root){.cause = cause,
                                          .unit = unit,
                                          .op = op,
                                          .output = check->output,
                                          .relation = check->text[0] != '\0'
                                                          ? keep(tracer, check->text)
                                                          : relation_text(tracer, check->relation),
                                          .expected = relation_text(tracer, check->expected),
                                          .fix = ""});
}

/* An output that is part of a sum: over which contraction, where was that taken, and who was to
 * reduce it? The first operator behind it that is no alias, or if that gathers contributions, the
 * reduction nearest to the output. */
static bool output_partial(tocsin_tracer *tracer, const tocsin_check *check, place start,
                           place nearest)
{
    const tocsin_plan_output *output = &tracer->run->plan->outputs.items[check->output];
    const tocsin_relation *view = view_of(tracer, check->relation);
    place last, consumer;

    for (uint32_t k = 0; k < view->count && tracer->entry == NULL; k++)
        if (view->terms[k].box_count > 0)
            tracer->entry = &view->terms[k].box[0];
    (void)producer_of(tracer, start, output->value, &last);
    consumer = last;
    const uint32_t input = showing_input(tracer, last, TOCSIN_DIFFERENCE_PARTIAL);
    if (input != UINT32_MAX)
        (void)origin(tracer, last, input, TOCSIN_DIFFERENCE_PARTIAL, &consumer);
    tracer->entry = NULL;
    const uint16_t code = op_at(tracer, consumer.op)->code;
    const bool gathers = is_reduction(code) || code == TOCSIN_OPERATOR_ACCUMULATE;
    const place blamed = gathers ? nearest : consumer;
    const uint16_t own = op_at(tracer, blamed.op)->code;
    return output_root(tracer, check,
                       is_reduction(own)                   ? TOCSIN_CAUSE_WRONG_GROUP
                       : own == TOCSIN_OPERATOR_ACCUMULATE ? TOCSIN_CAUSE_MISSING_TERM
                                                           : TOCSIN_CAUSE_MISSING_REDUCTION,
                       blamed.unit, blamed.op);
}

bool tocsin_tracer_output(tocsin_tracer *tracer, const tocsin_check *check)
{
    const tocsin_plan_output *output = &tracer->run->plan->outputs.items[check->output];
    const place start = {.unit = check->unit, .slot = check->slot};
    const tocsin_relation_id own = check->relation;
    place maker;

    if (!nearest_maker(tracer, start, output->value, &maker))
        return output_root(tracer, check, TOCSIN_CAUSE_UNPROVED_OUTPUT, check->unit,
                           TOCSIN_PLAN_NONE);
    if (check->status == TOCSIN_CHECK_LOST)
        return output_root(tracer, check, TOCSIN_CAUSE_UNDEFINED_VALUE, maker.unit, maker.op);
    if (!known(own) || !known(check->expected))
        return output_root(tracer, check, TOCSIN_CAUSE_MISSING_REDUCTION, maker.unit, maker.op);
    switch (tocsin_difference_of(tracer, own, check->expected)) {
    case TOCSIN_DIFFERENCE_ATOMS:
        return output_root(tracer, check, cause_of_terms(tracer, own, check->expected), maker.unit,
                           maker.op);
    case TOCSIN_DIFFERENCE_PARTIAL:
        return output_partial(tracer, check, start, maker);
    case TOCSIN_DIFFERENCE_SEGMENTED:
        return output_root(tracer, check, TOCSIN_CAUSE_WRONG_ORDER, maker.unit, maker.op);
    case TOCSIN_DIFFERENCE_MAP:
        return output_root(tracer, check, TOCSIN_CAUSE_WRONG_LAYOUT, maker.unit, maker.op);
    case TOCSIN_DIFFERENCE_MIXED:
    case TOCSIN_DIFFERENCE_RANGES:
        return output_root(tracer, check,
                           cause_of(tocsin_difference_of(tracer, own, check->expected)), maker.unit,
                           maker.op);
    case TOCSIN_DIFFERENCE_WEIGHTS:
        return output_root(tracer, check, TOCSIN_CAUSE_EXTRA_TERM, maker.unit, maker.op);
    case TOCSIN_DIFFERENCE_FACTOR: /* no single factor explains it, or hypotheses had found it */
        return output_root(tracer, check,
                           is_reduction(op_at(tracer, maker.op)->code) ? TOCSIN_CAUSE_WRONG_GROUP
                                                                       : TOCSIN_CAUSE_WRONG_SCALE,
                           maker.unit, maker.op);
    case TOCSIN_DIFFERENCE_NONE:
        break;
    }
    return output_root(tracer, check, TOCSIN_CAUSE_WRONG_SHARD, maker.unit, maker.op);
}
