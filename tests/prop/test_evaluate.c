/* Random plans: what the prover says against what evaluation over a finite field finds.
 *
 *   a plan that is right by construction evaluates equal, and is PROVED;
 *   a mutated plan that evaluates different is not PROVED;
 *   a mutated plan that is PROVED evaluates equal.
 *
 * The seed is printed; TOCSIN_CASES sets the number of plans. A failing
 * case is repeated with fewer operators, and the smallest that fails is printed as text.
 */
#include <stdlib.h>
#include <tocsin/verify.h>

#include "cmocka_test.h"
#include "plan/plan.h"
#include "prop/plan_pairs.h"
#include "prop/random_text.h"
#include "prove/evaluate.h"
#include "test_seed.h"

static tocsin_plan *read_plan(const tocsin_string *text, const char *name, tocsin_error *error)
{
    tocsin_plan *plan = NULL;
    assert_int_equal(text->status, TOCSIN_OK);
    tocsin_status status = tocsin_plan_read_text(text->text, text->bytes, name, NULL, &plan, error);
    return status == TOCSIN_OK ? plan : NULL;
}

static int cases_of_run(int standard)
{
    const char *text = getenv("TOCSIN_CASES");
    return text ? atoi(text) : standard;
}

/* One case: NULL, or what is wrong. */
typedef const char *property(const tocsin_plan *logical, const tocsin_plan *parallel,
                             const random_plan *random);

static const char *run_case(uint64_t seed, int ops, bool mutate, property *holds, bool print)
{
    static random_plan random;
    static char why[TOCSIN_ERROR_MESSAGE_BYTES + TOCSIN_ERROR_WHERE_BYTES + 64];
    tocsin_string logical_text = {0}, parallel_text = {0};
    tocsin_error error = {0};
    random_make(&random, seed, ops);
    bool mutated = mutate && random_mutate(&random);
    random_logical_text(&random, &logical_text);
    random_parallel_text(&random, &parallel_text);
    if (print)
        fprintf(stderr, "%s\n%s\nmutation: %s\n", logical_text.text, parallel_text.text,
                random.mutation);
    const char *wrong = NULL;
    tocsin_plan *logical = read_plan(&logical_text, "logical", &error), *parallel = NULL;
    if (logical)
        parallel = read_plan(&parallel_text, "parallel", &error);
    if (logical && parallel && (mutated || !mutate))
        wrong = holds(logical, parallel, &random);
    else if (!mutate) {
        snprintf(why, sizeof why, "%s: %s", error.where, error.message);
        wrong = why;
    }
    tocsin_plan_free(logical);
    tocsin_plan_free(parallel);
    tocsin_string_free(&logical_text);
    tocsin_string_free(&parallel_text);
    return wrong;
}

static void run_cases(int cases, bool mutate, property *holds)
{
    uint64_t first = test_seed(20260);
    for (int k = 0; k < cases; ++k) {
        uint64_t seed = first + (uint64_t)k;
        int ops = 4 + (int)(seed % 19);
        const char *wrong = run_case(seed, ops, mutate, holds, false);
        if (!wrong)
            continue;
        int small = 1;
        while (small < ops && !run_case(seed, small, mutate, holds, false))
            ++small;
        wrong = run_case(seed, small, mutate, holds, true);
        fail_msg("seed %" PRIu64 " with %d operators: %s", seed, small, wrong);
    }
}

static const char *why_not_equal(const tocsin_evaluation *evaluation)
{
    static char text[512];
    for (size_t i = 0; i < evaluation->output_count; ++i) {
        const tocsin_evaluated_output *output = &evaluation->outputs[i];
        if (output->outcome == TOCSIN_EVALUATED_EQUAL)
            continue;
        snprintf(text, sizeof text, "%s on device %u: outcome %d at [%" PRId64 ", ..] %s %s",
                 output->name, output->device, output->outcome, output->index[0], output->reason,
                 evaluation->stuck);
        return text;
    }
    snprintf(text, sizeof text, "missing %" PRIu64 " %s", evaluation->missing, evaluation->stuck);
    return text;
}

/* Equal, but for what is undefined in the logical model too: 0 / 0 of padding. */
static bool is_equal(const tocsin_evaluation *evaluation)
{
    for (size_t i = 0; i < evaluation->output_count; ++i) {
        const tocsin_evaluated_output *output = &evaluation->outputs[i];
        if (output->outcome != TOCSIN_EVALUATED_EQUAL && !strstr(output->reason, "division"))
            return false;
    }
    return !evaluation->stuck[0] && evaluation->missing == 0;
}

static const char *evaluates_equal(const tocsin_plan *logical, const tocsin_plan *parallel,
                                   const random_plan *random)
{
    tocsin_evaluation *evaluation = NULL;
    tocsin_error error = {0};
    const char *wrong = NULL;
    for (uint64_t trial = 0, trials = 1; trial < trials && !wrong; ++trial) {
        assert_int_equal(tocsin_evaluate(logical, parallel, trial, NULL, &evaluation, &error),
                         TOCSIN_OK);
        wrong = is_equal(evaluation) ? NULL : why_not_equal(evaluation);
        if (evaluation->chosen && !random)
            trials = 20; /* one trial tells different maxima apart with probability 1/2 */
        tocsin_evaluation_free(evaluation);
    }
    return wrong;
}

static void test_right_plans_evaluate_equal(void **state)
{
    (void)state;
    run_cases(cases_of_run(300), false, evaluates_equal);
}

/* ---- the prover against evaluation ----------------------------------------------------------- */

static struct {
    int proved, refuted, unknown, equal_not_proved;
} counts;

static tocsin_verdict verdict_of(const tocsin_plan *logical, const tocsin_plan *parallel,
                                 char *cause, size_t cause_bytes)
{
    tocsin_verify_result *result = NULL;
    tocsin_error error = {0};
    tocsin_status status = tocsin_verify(logical, parallel, NULL, &result, &error);
    if (status != TOCSIN_OK)
        fail_msg("tocsin_verify: %s", error.message);
    tocsin_verdict verdict = result->verdict;
    snprintf(cause, cause_bytes, "%s", tocsin_verdict_text(verdict));
    if (result->cause_count > 0)
        snprintf(cause, cause_bytes, "%s: %s at %s: %s, expected %s", tocsin_verdict_text(verdict),
                 tocsin_cause_text(result->causes[0].class), result->causes[0].op,
                 result->causes[0].relation, result->causes[0].expected);
    else if (result->unknown_count > 0)
        snprintf(cause, cause_bytes, "%s: %s", tocsin_verdict_text(verdict), result->unknown[0]);
    tocsin_verify_result_free(result);
    ++*(verdict == TOCSIN_VERDICT_PROVED    ? &counts.proved
        : verdict == TOCSIN_VERDICT_REFUTED ? &counts.refuted
                                            : &counts.unknown);
    return verdict;
}

/* The rules need not be complete, but what is right is never REFUTED. */
static const char *is_not_refuted(const tocsin_plan *logical, const tocsin_plan *parallel,
                                  const random_plan *random)
{
    static char cause[1024];
    (void)random;
    tocsin_verdict verdict = verdict_of(logical, parallel, cause, sizeof cause);
    if (verdict == TOCSIN_VERDICT_UNKNOWN && getenv("TOCSIN_SHOW_UNKNOWN"))
        fprintf(stderr, "%s\n", cause);
    return verdict == TOCSIN_VERDICT_REFUTED ? cause : NULL;
}

/* PROVED only if evaluation agrees, in each of several random models. */
static const char *proof_agrees(const tocsin_plan *logical, const tocsin_plan *parallel,
                                const random_plan *random)
{
    static char text[1024];
    char cause[900];
    bool proved = verdict_of(logical, parallel, cause, sizeof cause) == TOCSIN_VERDICT_PROVED;
    bool equal = true;
    for (uint64_t trial = 0; equal && trial < 2; ++trial) {
        tocsin_evaluation *evaluation = NULL;
        tocsin_error error = {0};
        assert_int_equal(tocsin_evaluate(logical, parallel, trial, NULL, &evaluation, &error),
                         TOCSIN_OK);
        equal = is_equal(evaluation);
        if (!equal)
            snprintf(text, sizeof text, "PROVED, but %s (%s)", why_not_equal(evaluation),
                     random->mutation);
        tocsin_evaluation_free(evaluation);
    }
    counts.equal_not_proved += equal && !proved;
    return proved && !equal ? text : NULL;
}

static void print_counts(void)
{
    print_message("proved %d, refuted %d, unknown %d; equal but not proved %d\n", counts.proved,
                  counts.refuted, counts.unknown, counts.equal_not_proved);
    memset(&counts, 0, sizeof counts);
}

static void test_right_plans_are_proved(void **state)
{
    (void)state;
    run_cases(cases_of_run(300), false, is_not_refuted);
    int cases = counts.proved + counts.unknown, proved = counts.proved;
    print_counts();
    assert_true(proved * 10 >= cases * 9);
}

static void test_what_is_proved_evaluates_equal(void **state)
{
    (void)state;
    run_cases(cases_of_run(300), true, proof_agrees);
    print_counts();
}

static tocsin_plan *read_text(const char *text)
{
    tocsin_plan *plan = NULL;
    tocsin_error error = {0};
    if (tocsin_plan_read_text(text, strlen(text), "pair", NULL, &plan, &error) != TOCSIN_OK)
        fail_msg("%s (byte %" PRId64 " of a pair)", error.message, error.offset);
    return plan;
}

static void test_pairs(void **state)
{
    int wrong_pairs = 0;
    (void)state;
    for (size_t k = 0; k < TOCSIN_COUNT_OF(plan_pairs); ++k) {
        const plan_pair *pair = &plan_pairs[k];
        char cause[900];
        tocsin_plan *logical = read_text(pair->logical), *parallel = read_text(pair->parallel);
        const char *difference = evaluates_equal(logical, parallel, NULL);
        tocsin_verdict verdict = verdict_of(logical, parallel, cause, sizeof cause);
        if (pair->equal != !difference || pair->equal != (verdict == TOCSIN_VERDICT_PROVED)) {
            ++wrong_pairs;
            print_error("%s: evaluation %s, prover %s\n", pair->name,
                        difference ? difference : "equal", cause);
        }
        tocsin_plan_free(logical);
        tocsin_plan_free(parallel);
    }
    assert_int_equal(wrong_pairs, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_plans_evaluate_equal),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_right_plans_are_proved),
        cmocka_unit_test(test_what_is_proved_evaluates_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
