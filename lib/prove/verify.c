/* verify.c - the public call: tier 0, the two runs, the comparison, causes, coverage, verdict.
 *
 * Replicas and micro-batches are symbols when tier 0 finds them alike (sanity.h) and the caller did
 * not ask to enumerate. A refusal in the symbolic run that enumeration may mend (a collective that
 * the symbolic rules cannot express) leads to a second, enumerated run.
 */
#include <assert.h>
#include <sys/resource.h>
#include <time.h>

#include "prove/certificate.h"
#include "prove/diagnose.h"
#include "prove/evaluate.h"
#include "prove/proof_state.h"

enum { CHOSEN_RUNS = 48 }; /* evaluations that tell different from equal with probability 1/2 */

const char *tocsin_verdict_text(tocsin_verdict verdict)
{
    static const char *const texts[] = {
#define X(name, text, code) [TOCSIN_VERDICT_##name] = text,
        TOCSIN_VERDICT_TABLE(X)
#undef X
    };
    return (size_t)verdict < TOCSIN_COUNT_OF(texts) ? texts[verdict] : "unknown verdict";
}

int tocsin_verdict_exit_code(tocsin_verdict verdict)
{
    static const int codes[] = {
#define X(name, text, code) [TOCSIN_VERDICT_##name] = code,
        TOCSIN_VERDICT_TABLE(X)
#undef X
    };
    return (size_t)verdict < TOCSIN_COUNT_OF(codes) ? codes[verdict] : 4;
}

const char *tocsin_cause_text(tocsin_cause_class class)
{
    static const char *const texts[] = {
#define X(name, text, meaning) [TOCSIN_CAUSE_##name] = text,
        TOCSIN_CAUSE_TABLE(X)
#undef X
    };
    return (size_t) class < TOCSIN_COUNT_OF(texts) ? texts[class] : "unknown cause";
}

const char *tocsin_cause_meaning(tocsin_cause_class class)
{
    static const char *const meanings[] = {
#define X(name, text, meaning) [TOCSIN_CAUSE_##name] = meaning,
        TOCSIN_CAUSE_TABLE(X)
#undef X
    };
    return (size_t) class < TOCSIN_COUNT_OF(meanings) ? meanings[class] : "";
}

static double now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static uint64_t peak_rss_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

/* ---- the two runs ---------------------------------------------------------------------------- */

static void attempt_free(tocsin_attempt *one)
{
    tocsin_comparison_free(&one->comparison);
    tocsin_run_free(&one->parallel);
    tocsin_run_free(&one->logical);
    tocsin_prover_free(&one->prover);
}

typedef struct manner {
    bool replicas, microbatches; /* enumerated */
    bool strict, naming;         /* slice_relation.h */
} manner;

static tocsin_status attempt_run(tocsin_attempt *one, const tocsin_plan *logical,
                                 const tocsin_plan *parallel, const manner *how,
                                 tocsin_error *error)
{
    *one = (tocsin_attempt){0};
    TOCSIN_TRY(tocsin_prover_init(&one->prover, logical, parallel, error));
    tocsin_universe_set_strict(one->prover.universe, how->strict);
    tocsin_universe_set_naming(one->prover.universe, how->naming);
    TOCSIN_TRY(tocsin_run_init(&one->logical, &one->prover, TOCSIN_LOGICAL, true, true, error));
    tocsin_universe_set_plan(one->prover.universe, logical);
    tocsin_universe_set_logical(one->prover.universe, true);
    TOCSIN_TRY(tocsin_run_all(&one->logical, error));
    tocsin_universe_set_logical(one->prover.universe, false);
    one->prover.size[TOCSIN_SYMBOL_REPLICA] = how->replicas ? 1 : tocsin_plan_replicas(parallel);
    one->prover.size[TOCSIN_SYMBOL_MICROBATCH] = how->microbatches ? 1 : parallel->microbatches;
    tocsin_universe_set_sizes(one->prover.universe, one->prover.size);
    TOCSIN_TRY(tocsin_run_init(&one->parallel, &one->prover, TOCSIN_PARALLEL, how->replicas,
                               how->microbatches, error));
    TOCSIN_TRY(tocsin_run_all(&one->parallel, error));
    tocsin_universe_set_naming(one->prover.universe, false); /* causes are found without */
    return tocsin_compare(&one->parallel, &one->logical, &one->comparison, error);
}

/* With long sums by their names if `how` says so; when that does not prove the plan, and there were
 * any, with all of them written out, in which causes are found, too. */
static tocsin_status attempt_run_both(tocsin_attempt *one, const tocsin_plan *logical,
                                      const tocsin_plan *parallel, manner how, tocsin_error *error)
{
    TOCSIN_TRY(attempt_run(one, logical, parallel, &how, error));
    if (tocsin_comparison_equal(&one->comparison) ||
        !tocsin_universe_was_named(one->prover.universe))
        return TOCSIN_OK;
    how.naming = false;
    attempt_free(one);
    return attempt_run(one, logical, parallel, &how, error);
}

static tocsin_status prove(tocsin_attempt *one, const tocsin_plan *logical,
                           const tocsin_plan *parallel, const tocsin_sanity *sanity,
                           const tocsin_verify_options *options, tocsin_error *error)
{
    manner how = {.replicas = options->enumerate || !sanity->uniform_replicas,
                  .microbatches = options->enumerate || !sanity->uniform_microbatches,
                  .naming = options->certificate_path == NULL}; /* checkers follow few levels */
    const bool large = tocsin_plan_get_size(parallel).executions > TOCSIN_ENUMERATION_LIMIT;
    TOCSIN_TRY(attempt_run_both(one, logical, parallel, how, error));
    if (tocsin_comparison_equal(&one->comparison) || large)
        return TOCSIN_OK;
    /* what is wrong shows better rank by rank, and symbols cannot express everything */
    if (!how.replicas || !how.microbatches) {
        how.replicas = how.microbatches = true;
        attempt_free(one);
        TOCSIN_TRY(attempt_run_both(one, logical, parallel, how, error));
    }
    if (tocsin_comparison_equal(&one->comparison) ||
        !tocsin_universe_was_lenient(one->prover.universe))
        return TOCSIN_OK;
    /* and where it begins, when partial values are not followed any further than need be */
    how.strict = true;
    how.naming = false;
    attempt_free(one);
    return attempt_run(one, logical, parallel, &how, error);
}

/* ---- coverage -------------------------------------------------------------------------------- */

static void count_outputs(const tocsin_attempt *one, tocsin_verify_result *result)
{
    const tocsin_plan *plan = one->parallel.plan;
    for (size_t k = 0; k < one->comparison.checks.count; k++) {
        const tocsin_check *check = &one->comparison.checks.items[k];
        const bool equal = check->status == TOCSIN_CHECK_EQUAL;
        const bool gradient = plan->outputs.items[check->output].kind == TOCSIN_OUTPUT_GRADIENT;
        result->outputs += check->ranks;
        result->outputs_proved += equal ? check->ranks : 0;
        result->gradients += gradient ? check->ranks : 0;
        result->gradients_proved += gradient && equal ? check->ranks : 0;
    }
    result->outputs += one->comparison.uncovered.count;
    result->outputs_pct = result->outputs == 0
                              ? 0.0
                              : 100.0 * (double)result->outputs_proved / (double)result->outputs;
}

/* Is every result of this execution known? */
static bool is_known(const tocsin_run *run, uint32_t unit, uint32_t slot, const tocsin_plan_op *op)
{
    const uint32_t *outputs = run->plan->operands.items + op->first_operand + op->input_count;
    for (uint32_t j = 0; j < op->output_count; j++) {
        const tocsin_relation_id relation = tocsin_run_value(run, unit, slot, outputs[j]);
        if (relation == 0 || relation == TOCSIN_POISON)
            return false;
    }
    return true;
}

static void count_nodes(const tocsin_attempt *one, const uint8_t *needed,
                        tocsin_verify_result *result)
{
    const tocsin_run *run = &one->parallel;
    uint64_t known = 0, wanted = 0;

    for (uint32_t u = 0; u < run->units.count; u++) {
        const tocsin_unit *unit = &run->units.items[u];
        const tocsin_plan_role *role = &run->plan->roles.items[unit->role];
        for (uint32_t t = run->first_turn[unit->role]; t < run->first_turn[unit->role + 1]; t++) {
            const tocsin_plan_turn *turn = &run->turns.items[t];
            const tocsin_plan_segment *segment =
                &run->plan->segments.items[role->first_segment + turn->segment];
            const uint32_t slot = run->enumerate_microbatches && turn->microbatch > 0
                                      ? (uint32_t)turn->microbatch
                                      : 0;
            result->nodes += segment->op_count;
            for (uint32_t k = 0; k < segment->op_count; k++) {
                const uint32_t index = segment->first_op + k;
                if (!needed[index])
                    continue;
                wanted++;
                known += is_known(run, u, slot, &run->plan->ops.items[index]);
            }
        }
    }
    result->nodes_dead = result->nodes - wanted;
    result->nodes_pct = wanted == 0 ? 100.0 : 100.0 * (double)known / (double)wanted;
}

/* ---- unknown, assumptions, verdict ----------------------------------------------------------- */

/* What could not be judged, by name. */
static bool list_unknown(const tocsin_attempt *one, const uint8_t *needed, tocsin_report *report)
{
    const tocsin_plan *logical = one->logical.plan, *parallel = one->parallel.plan;
    bool sound = true;

    for (size_t k = 0; k < one->logical.incidents.count; k++) {
        const tocsin_incident *incident = &one->logical.incidents.items[k];
        const char *label = incident->op == TOCSIN_PLAN_NONE
                                ? "an input"
                                : tocsin_plan_text(logical, logical->ops.items[incident->op].label);
        sound &= tocsin_report_line(report, TOCSIN_REPORT_UNKNOWN, "logical model, %s: %s", label,
                                    incident->text);
    }
    for (size_t k = 0; k < one->parallel.incidents.count; k++) {
        const tocsin_incident *incident = &one->parallel.incidents.items[k];
        if (incident->op == TOCSIN_PLAN_NONE || !needed[incident->op] ||
            !tocsin_is_missing_rule(incident->text))
            continue;
        sound &= tocsin_report_line(
            report, TOCSIN_REPORT_UNKNOWN, "%s: %s",
            tocsin_plan_text(parallel, parallel->ops.items[incident->op].label), incident->text);
    }
    for (size_t k = 0; k < one->comparison.uncovered.count; k++) {
        const tocsin_plan_output *output =
            &logical->outputs.items[one->comparison.uncovered.items[k]];
        sound &= tocsin_report_line(
            report, TOCSIN_REPORT_UNKNOWN,
            "output %s %s: the ranks of the parallel plan do not declare all of it",
            tocsin_output_kind_text(output->kind), tocsin_plan_text(logical, output->name));
    }
    for (size_t k = 0; k < one->comparison.checks.count; k++) {
        const tocsin_check *check = &one->comparison.checks.items[k];
        if (check->status != TOCSIN_CHECK_UNJUDGED)
            continue;
        const tocsin_plan_output *output = &parallel->outputs.items[check->output];
        sound &= tocsin_report_line(report, TOCSIN_REPORT_UNKNOWN, "output %s %s: %s",
                                    tocsin_output_kind_text(output->kind),
                                    tocsin_plan_text(parallel, output->name), check->text);
    }
    return sound;
}

static bool list_assumptions(const tocsin_attempt *one, tocsin_report *report)
{
    bool sound = tocsin_report_line(
        report, TOCSIN_REPORT_ASSUMPTION,
        "equality is over the real numbers: rounding and the order of sums are outside the claim");
    for (int side = 0; side < 2; side++) {
        const tocsin_plan *plan = one->prover.plan[side];
        for (size_t k = 0; k < plan->assumptions.count; k++)
            sound &= tocsin_report_line(report, TOCSIN_REPORT_ASSUMPTION, "%s",
                                        tocsin_plan_text(plan, plan->assumptions.items[k]));
    }
    return sound;
}

/* Operators that no output needs, by kind. */
static bool list_dead(const tocsin_attempt *one, const uint8_t *needed, tocsin_report *report)
{
    const tocsin_plan *plan = one->parallel.plan;
    for (size_t k = 0; k < plan->ops.count; k++) {
        if (needed[k])
            continue;
        const tocsin_plan_op *op = &plan->ops.items[k];
        const char *label = tocsin_plan_text(plan, op->label);
        if (!tocsin_report_line(report, TOCSIN_REPORT_DEAD, "%s",
                                label[0] != '\0' ? label : tocsin_plan_text(plan, op->name)))
            return false;
    }
    return true;
}

static tocsin_verdict verdict_of(const tocsin_attempt *one, const tocsin_report *report)
{
    if (report->causes.count > 0)
        return TOCSIN_VERDICT_REFUTED;
    if (report->lines[TOCSIN_REPORT_UNKNOWN].count > 0 || one->comparison.checks.count == 0 ||
        !tocsin_comparison_equal(&one->comparison))
        return TOCSIN_VERDICT_UNKNOWN;
    return TOCSIN_VERDICT_PROVED;
}

/* ---- tier 3: small plans are run over a finite field ----------------------------------------- */

typedef enum opinion {
    OPINION_NONE, /* too large, it cannot run to its end, or not everything can be compared */
    OPINION_EQUAL,
    OPINION_DIFFERENT
} opinion;

/* What evaluation says of a plan that the relations did not prove: different normal forms are not
 * yet different functions. Plans beyond the limits get no opinion. */
static tocsin_status second_opinion(const tocsin_plan *logical, const tocsin_plan *parallel,
                                    opinion *given, double *epsilon, tocsin_error *error)
{
    static const tocsin_evaluate_limits limits = {.elements = UINT64_C(1) << 21,
                                                  .operations = UINT64_C(1) << 23};
    uint64_t runs = 2;
    *given = OPINION_NONE;
    *epsilon = 1.0;
    for (uint64_t seed = 1; seed <= runs; seed++) {
        tocsin_evaluation *evaluation = NULL;
        const tocsin_status status =
            tocsin_evaluate(logical, parallel, seed, &limits, &evaluation, error);
        if (status == TOCSIN_E_LIMIT)
            return TOCSIN_OK;
        TOCSIN_TRY(status);
        const tocsin_evaluate_outcome outcome = evaluation->outcome;
        const bool whole = evaluation->missing == 0 && evaluation->stuck[0] == '\0';
        if (evaluation->chosen)
            runs = CHOSEN_RUNS;
        *epsilon *= evaluation->chosen ? 0.5 : evaluation->epsilon;
        tocsin_evaluation_free(evaluation);
        if (outcome == TOCSIN_EVALUATED_DIFFERENT) {
            *given = OPINION_DIFFERENT;
            return TOCSIN_OK;
        }
        if (outcome != TOCSIN_EVALUATED_EQUAL || !whole)
            return TOCSIN_OK;
    }
    *given = OPINION_EQUAL;
    return TOCSIN_OK;
}

static tocsin_status judge(tocsin_attempt *one, const tocsin_sanity *sanity,
                           const tocsin_verify_options *options, tocsin_report *report,
                           tocsin_error *error)
{
    const tocsin_plan *plan = one->parallel.plan;
    uint8_t *needed = tocsin_alloc(plan->ops.count + 1);
    if (needed == NULL)
        return tocsin_error_memory(error);
    tocsin_status status = tocsin_needed_ops(plan, sanity->match, NULL, 0, needed, error);
    if (status == TOCSIN_OK) {
        count_outputs(one, report->result);
        count_nodes(one, needed, report->result);
        report->result->collapsed =
            !one->parallel.enumerate_replicas && !one->parallel.enumerate_microbatches;
    }
    opinion second = OPINION_NONE;
    double epsilon = 0;
    if (status == TOCSIN_OK && !tocsin_comparison_equal(&one->comparison) &&
        sanity->findings.count == 0)
        status = second_opinion(one->logical.plan, plan, &second, &epsilon, error);
    report->confirmed = second == OPINION_DIFFERENT;
    if (status == TOCSIN_OK && second != OPINION_EQUAL)
        status = tocsin_diagnose(one, sanity, report, error);
    if (status == TOCSIN_OK && (!list_unknown(one, needed, report) ||
                                !list_assumptions(one, report) || !list_dead(one, needed, report)))
        status = tocsin_error_memory(error);
    tocsin_free(needed);
    if (status != TOCSIN_OK)
        return status;
    report->result->verdict = verdict_of(one, report);
    report->result->confirmed =
        report->result->verdict == TOCSIN_VERDICT_REFUTED && report->confirmed;
    if (second == OPINION_EQUAL && report->result->verdict == TOCSIN_VERDICT_UNKNOWN &&
        report->lines[TOCSIN_REPORT_UNKNOWN].count == 0) {
        report->result->verdict = TOCSIN_VERDICT_PROBABLE;
        report->result->epsilon = epsilon;
    }
    return tocsin_report_finish(report, options->causes_max, error);
}

static tocsin_status visit(tocsin_attempt *one, const tocsin_sanity *sanity,
                           tocsin_proof_visitor *visitor, void *context, tocsin_error *error)
{
    tocsin_proof proof = {.attempt = one, .sanity = sanity};
    const tocsin_status status = visitor(context, &proof, error);
    tocsin_proof_free(&proof);
    return status;
}

tocsin_status tocsin_verify(const tocsin_plan *logical, const tocsin_plan *parallel,
                            const tocsin_verify_options *options, tocsin_verify_result **result,
                            tocsin_error *error)
{
    return tocsin_verify_visit(logical, parallel, options, NULL, NULL, result, error);
}

tocsin_status tocsin_verify_visit(const tocsin_plan *logical, const tocsin_plan *parallel,
                                  const tocsin_verify_options *options,
                                  tocsin_proof_visitor *visitor, void *context,
                                  tocsin_verify_result **result, tocsin_error *error)
{
    static const tocsin_verify_options defaults = {0};
    const double start = now_seconds();
    tocsin_sanity sanity = {0};
    tocsin_attempt one = {0};
    tocsin_report report;

    *result = NULL;
    if (options == NULL)
        options = &defaults;
    if (logical->roles.count != 1 || tocsin_plan_get_size(logical).ranks != 1)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT,
                                "the logical plan is itself parallel: it has %llu ranks",
                                (unsigned long long)tocsin_plan_get_size(logical).ranks);
    if (logical->microbatches != 1)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT,
                                "the logical plan has %u micro-batches, not 1",
                                logical->microbatches);
    TOCSIN_TRY(tocsin_report_init(&report, error));
    tocsin_status status = tocsin_sanity_check(parallel, &sanity, error);
    if (status == TOCSIN_OK)
        status = prove(&one, logical, parallel, &sanity, options, error);
    if (status == TOCSIN_OK)
        status = judge(&one, &sanity, options, &report, error);
    if (status == TOCSIN_OK && options->certificate_path != NULL &&
        report.result->verdict == TOCSIN_VERDICT_PROVED)
        status = tocsin_certificate_write(&one.logical, &one.parallel, &one.comparison,
                                          options->certificate_path, error);
    if (status == TOCSIN_OK && visitor != NULL && report.result->verdict == TOCSIN_VERDICT_PROVED)
        status = visit(&one, &sanity, visitor, context, error);
    if (status == TOCSIN_OK) {
        report.result->seconds = now_seconds() - start;
        report.result->peak_rss_bytes = peak_rss_bytes();
        *result = tocsin_report_take(&report);
    }
    attempt_free(&one);
    tocsin_sanity_free(&sanity);
    tocsin_report_free(&report);
    return status;
}
