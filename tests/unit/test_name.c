/* Long sums as summands by their names: a residual stream's relations stay short on both sides;
 * what is not proved so is proved without, and mistakes are found and named as ever. */
#include <stdlib.h>
#include <tocsin/verify.h>

#include "cmocka_test.h"
#include "plan/plan.h"
#include "prove/compare.h"

/* x(k+1) = x(k) + exp(x(k)), rows cut over two ranks. */
typedef enum stream {
    STREAM_PLAIN,
    STREAM_APART,    /* x(0) + (the sum of all exp): an order that crosses names */
    STREAM_GATHERED, /* a rank takes exp of all rows, and never of its own */
    STREAM_WRONG     /* in one layer rank 1 adds its exp twice */
} stream;

enum { LAYERS = 24, WRONG_LAYER = 17, TERMS_MAX = 10 };

static void put_layer(tocsin_string *text, stream kind, uint32_t rank, int k)
{
    const bool gathered = kind == STREAM_GATHERED;
    const char *shape = "float32[4,3]";
    if (gathered) {
        tocsin_string_printf(text, "%%g%d:float32[8,3] = all_gather(%%x%d) {dim=0} group=all\n", k,
                             k);
        tocsin_string_printf(text, "%%h%d:float32[8,3] = exp(%%g%d)\n", k, k);
        tocsin_string_printf(text, "%%e%d:%s = slice(%%h%d) {dim=0, start=%u, end=%u}\n", k, shape,
                             k, 4 * rank, 4 * rank + 4);
    } else {
        tocsin_string_printf(text, "%%e%d:%s = exp(%%x%d)\n", k, shape, k);
    }
    if (kind == STREAM_WRONG && rank == 1 && k == WRONG_LAYER)
        tocsin_string_printf(text, "%%x%d:%s = add(%%x%d, %%e%d) {alpha=2.0} label=add%d\n", k + 1,
                             shape, k, k, k);
    else if (kind == STREAM_APART && k > 0)
        tocsin_string_printf(text, "%%s%d:%s = add(%%%s%d, %%e%d)\n%%x%d:%s = add(%%x0, %%s%d)\n",
                             k, shape, k == 1 ? "e" : "s", k - 1, k, k + 1, shape, k);
    else
        tocsin_string_printf(text, "%%x%d:%s = add(%%x%d, %%e%d) label=add%d\n", k + 1, shape, k, k,
                             k);
}

static tocsin_plan *parallel_plan(stream kind)
{
    tocsin_string text = {0};
    tocsin_plan *plan = NULL;
    tocsin_error error = {0};
    tocsin_string_append_text(&text, "tocsin-plan 1\nmesh r=2\ngroup all = (r=0) (r=1)\n");
    for (uint32_t rank = 0; rank < 2; rank++) {
        tocsin_string_printf(&text, "role r=%u\nin %%x0:float32[4,3] = x[%u : 4, 0 : 3]\n", rank,
                             4 * rank);
        tocsin_string_append_text(&text, "segment s\n");
        for (int k = 0; k < LAYERS; k++)
            put_layer(&text, kind, rank, k);
        tocsin_string_printf(&text, "out other y[%u : 4, 0 : 3] = %%x%d\nend\n", 4 * rank, LAYERS);
    }
    if (tocsin_plan_read_text(text.text, text.bytes, "parallel", NULL, &plan, &error) != TOCSIN_OK)
        fail_msg("%s: %s", error.where, error.message);
    tocsin_string_free(&text);
    return plan;
}

static tocsin_plan *logical_plan(void)
{
    tocsin_string text = {0};
    tocsin_plan *plan = NULL;
    tocsin_error error = {0};
    tocsin_string_append_text(&text, "tocsin-plan 1\nmesh one=1\nrole one=0\n"
                                     "in %x0:float32[8,3] = x\nsegment s\n");
    for (int k = 0; k < LAYERS; k++)
        tocsin_string_printf(&text,
                             "%%e%d:float32[8,3] = exp(%%x%d)\n"
                             "%%x%d:float32[8,3] = add(%%x%d, %%e%d) label=add%d\n",
                             k, k, k + 1, k, k, k);
    tocsin_string_printf(&text, "out other y = %%x%d\nend\n", LAYERS);
    if (tocsin_plan_read_text(text.text, text.bytes, "logical", NULL, &plan, &error) != TOCSIN_OK)
        fail_msg("%s: %s", error.where, error.message);
    tocsin_string_free(&text);
    return plan;
}

/* What one attempt finds: are all outputs equal, and how long is the longest sum. */
typedef struct outcome {
    bool equal, named;
    uint32_t longest;
} outcome;

static outcome attempt(const tocsin_plan *logical, const tocsin_plan *parallel, bool naming)
{
    tocsin_prover prover;
    tocsin_run first, second;
    tocsin_comparison comparison;
    outcome found = {.longest = 0};
    assert_int_equal(tocsin_prover_init(&prover, logical, parallel, NULL), TOCSIN_OK);
    tocsin_universe_set_naming(prover.universe, naming);
    tocsin_universe_set_logical(prover.universe, true);
    assert_int_equal(tocsin_run_init(&first, &prover, TOCSIN_LOGICAL, true, true, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_run_all(&first, NULL), TOCSIN_OK);
    tocsin_universe_set_logical(prover.universe, false);
    prover.size[TOCSIN_SYMBOL_REPLICA] = prover.size[TOCSIN_SYMBOL_MICROBATCH] = 1;
    tocsin_universe_set_sizes(prover.universe, prover.size);
    assert_int_equal(tocsin_run_init(&second, &prover, TOCSIN_PARALLEL, true, true, NULL),
                     TOCSIN_OK);
    assert_int_equal(tocsin_run_all(&second, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_compare(&second, &first, &comparison, NULL), TOCSIN_OK);
    found.equal = tocsin_comparison_equal(&comparison);
    found.named = tocsin_universe_was_named(prover.universe);
    for (uint32_t id = 1; id <= tocsin_universe_relations(prover.universe); id++) {
        const tocsin_relation *relation = tocsin_relation_get(prover.universe, id);
        if (!relation->segmented && relation->count > found.longest)
            found.longest = relation->count;
    }
    tocsin_comparison_free(&comparison);
    tocsin_run_free(&second);
    tocsin_run_free(&first);
    tocsin_prover_free(&prover);
    return found;
}

static void assert_verdict(const tocsin_plan *logical, const tocsin_plan *parallel,
                           tocsin_verdict expected, const char *op)
{
    tocsin_verify_result *result = NULL;
    assert_int_equal(tocsin_verify(logical, parallel, NULL, &result, NULL), TOCSIN_OK);
    assert_int_equal(result->verdict, expected);
    assert_int_equal(result->cause_count, op != NULL);
    if (op != NULL)
        assert_non_null(strstr(result->causes[0].op, op));
    tocsin_verify_result_free(result);
}

static void test_sums_stay_short(void **state)
{
    static const stream kinds[] = {STREAM_PLAIN, STREAM_GATHERED};
    (void)state;
    for (size_t i = 0; i < TOCSIN_COUNT_OF(kinds); i++) {
        tocsin_plan *logical = logical_plan(), *parallel = parallel_plan(kinds[i]);
        const outcome with = attempt(logical, parallel, true);
        const outcome without = attempt(logical, parallel, false);
        assert_true(with.equal && without.equal);
        assert_true(with.named && !without.named);
        assert_in_range(with.longest, 2, TERMS_MAX);
        assert_int_equal(without.longest, LAYERS + 1);
        assert_verdict(logical, parallel, TOCSIN_VERDICT_PROVED, NULL);
        tocsin_plan_free(parallel);
        tocsin_plan_free(logical);
    }
}

static void test_another_order_is_proved(void **state)
{
    (void)state;
    tocsin_plan *logical = logical_plan(), *parallel = parallel_plan(STREAM_APART);
    const outcome with = attempt(logical, parallel, true);
    assert_true(with.named && !with.equal);
    assert_true(attempt(logical, parallel, false).equal);
    assert_verdict(logical, parallel, TOCSIN_VERDICT_PROVED, NULL);
    tocsin_plan_free(parallel);
    tocsin_plan_free(logical);
}

static void test_a_mistake_in_a_late_layer_is_named(void **state)
{
    (void)state;
    tocsin_plan *logical = logical_plan(), *parallel = parallel_plan(STREAM_WRONG);
    assert_false(attempt(logical, parallel, true).equal);
    assert_verdict(logical, parallel, TOCSIN_VERDICT_REFUTED, "add17");
    tocsin_plan_free(parallel);
    tocsin_plan_free(logical);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_stay_short),
        cmocka_unit_test(test_another_order_is_proved),
        cmocka_unit_test(test_a_mistake_in_a_late_layer_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
