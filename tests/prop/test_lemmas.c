/* Every lemma of the prover (tocsin_verify_lemmas) holds over the finite field in each of several
 * random models, its plans can be run, and the prover itself proves it. A lemma whose right side is
 * another's does not: evaluation can tell. */
#include <tocsin/verify.h>

#include "cmocka_test.h"
#include "plan/plan.h"
#include "prove/evaluate.h"
#include "test_seed.h"

enum { TRIALS = 20 };

static tocsin_plan *read_side(const tocsin_lemma *lemma, const char *text)
{
    tocsin_plan *plan = NULL;
    tocsin_error error = {0};
    if (tocsin_plan_read_text(text, strlen(text), lemma->name, NULL, &plan, &error) != TOCSIN_OK)
        fail_msg("%s: %s (%s)", lemma->name, error.message, error.where);
    return plan;
}

static tocsin_evaluate_outcome evaluate(const tocsin_plan *left, const tocsin_plan *right,
                                        uint64_t seed)
{
    tocsin_evaluation *evaluation = NULL;
    tocsin_error error = {0};
    if (tocsin_evaluate(left, right, seed, NULL, &evaluation, &error) != TOCSIN_OK)
        fail_msg("%s", error.message);
    tocsin_evaluate_outcome outcome = evaluation->outcome;
    if (outcome == TOCSIN_EVALUATED_EQUAL) {
        assert_int_equal(evaluation->missing, 0);
        assert_true(evaluation->output_count > 0);
    }
    tocsin_evaluation_free(evaluation);
    return outcome;
}

static void test_lemmas_hold_over_the_field(void **state)
{
    size_t count;
    const tocsin_lemma *lemmas = tocsin_verify_lemmas(&count);
    (void)state;
    assert_true(count > 0);
    const uint64_t first = test_seed(0);
    for (size_t k = 0; k < count; ++k) {
        tocsin_plan *left = read_side(&lemmas[k], lemmas[k].left);
        tocsin_plan *right = read_side(&lemmas[k], lemmas[k].right);
        for (uint64_t trial = 0; trial < TRIALS; ++trial)
            if (evaluate(left, right, first + trial) != TOCSIN_EVALUATED_EQUAL)
                fail_msg("%s does not hold in model %d", lemmas[k].name, (int)trial);
        tocsin_plan_free(left);
        tocsin_plan_free(right);
    }
}

static void test_lemmas_are_proved(void **state)
{
    size_t count, unproved = 0;
    const tocsin_lemma *lemmas = tocsin_verify_lemmas(&count);
    (void)state;
    for (size_t k = 0; k < count; ++k) {
        tocsin_plan *left = read_side(&lemmas[k], lemmas[k].left);
        tocsin_plan *right = read_side(&lemmas[k], lemmas[k].right);
        tocsin_verify_result *result = NULL;
        tocsin_error error = {0};
        if (tocsin_verify(left, right, NULL, &result, &error) != TOCSIN_OK)
            fail_msg("%s: %s", lemmas[k].name, error.message);
        if (result->verdict != TOCSIN_VERDICT_PROVED) {
            ++unproved;
            print_error("%s is %s: %s %s %s\n", lemmas[k].name,
                        tocsin_verdict_text(result->verdict),
                        result->cause_count ? result->causes[0].op : "",
                        result->cause_count ? result->causes[0].relation : "",
                        result->unknown_count ? result->unknown[0] : "");
        }
        tocsin_verify_result_free(result);
        tocsin_plan_free(left);
        tocsin_plan_free(right);
    }
    assert_int_equal(unproved, 0);
}

static void test_wrong_lemmas_do_not_hold(void **state)
{
    size_t count;
    const tocsin_lemma *lemmas = tocsin_verify_lemmas(&count);
    (void)state;
    for (size_t k = 0; k < count; ++k) {
        const tocsin_lemma *other = &lemmas[(k + 1) % count];
        tocsin_plan *left = read_side(&lemmas[k], lemmas[k].left);
        tocsin_plan *right = read_side(other, other->right);
        if (evaluate(left, right, 1) == TOCSIN_EVALUATED_EQUAL)
            fail_msg("%s holds with the right side of %s", lemmas[k].name, other->name);
        tocsin_plan_free(left);
        tocsin_plan_free(right);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lemmas_hold_over_the_field),
        cmocka_unit_test(test_lemmas_are_proved),
        cmocka_unit_test(test_wrong_lemmas_do_not_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
