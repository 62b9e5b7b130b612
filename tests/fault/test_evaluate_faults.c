/* Evaluation of plans: every allocation that fails is reported and leaks nothing, and both limits
 * are kept. */
#include <tocsin/verify.h>

#include "every_fault.h"
#include "plan/plan.h"
#include "prove/evaluate.h"

typedef struct pair_of_plans {
    tocsin_plan *left, *right;
} pair_of_plans;

static tocsin_plan *read_side(const char *text)
{
    tocsin_plan *plan = NULL;
    assert_int_equal(tocsin_plan_read_text(text, strlen(text), "side", NULL, &plan, NULL),
                     TOCSIN_OK);
    return plan;
}

static tocsin_status evaluate(void *context, tocsin_error *error)
{
    const pair_of_plans *sides = context;
    tocsin_evaluation *evaluation;
    tocsin_status status = tocsin_evaluate(sides->left, sides->right, 1, NULL, &evaluation, error);
    if (status == TOCSIN_OK)
        assert_int_equal(evaluation->outcome, TOCSIN_EVALUATED_EQUAL);
    else
        assert_null(evaluation);
    tocsin_evaluation_free(evaluation);
    return status;
}

/* The lemmas reach every family of operators and collectives. */
static void test_every_allocation(void **state)
{
    size_t count;
    const tocsin_lemma *lemmas = tocsin_verify_lemmas(&count);
    uint64_t faults = 0;
    (void)state;
    for (size_t k = 0; k < count; ++k) {
        pair_of_plans sides = {read_side(lemmas[k].left), read_side(lemmas[k].right)};
        faults += every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, evaluate, &sides);
        tocsin_plan_free(sides.left);
        tocsin_plan_free(sides.right);
    }
    assert_true(faults > count);
}

static void test_limits(void **state)
{
    size_t count;
    const tocsin_lemma *lemma = tocsin_verify_lemmas(&count);
    pair_of_plans sides = {read_side(lemma->left), read_side(lemma->right)};
    const tocsin_evaluate_limits limits[] = {{.elements = 20}, {.operations = 20}};
    (void)state;
    for (size_t k = 0; k < TOCSIN_COUNT_OF(limits); ++k) {
        tocsin_evaluation *evaluation;
        tocsin_error error = {0};
        assert_int_equal(
            tocsin_evaluate(sides.left, sides.right, 1, &limits[k], &evaluation, &error),
            TOCSIN_E_LIMIT);
        assert_true(error.message[0] != 0);
        assert_null(evaluation);
    }
    tocsin_plan_free(sides.left);
    tocsin_plan_free(sides.right);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
