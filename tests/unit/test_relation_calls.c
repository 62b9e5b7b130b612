/* Relations of calls: what is called at any depth when it is asked for, memory that is filled
 * twice, limits that a returned value keeps. */
#include "seen_instances.h"

static tocsin_status count_facts(void *context, const tocsin_instance *instance,
                                 tocsin_error *error)
{
    (void)error;
    *(size_t *)context += instance->fact_count;
    return TOCSIN_OK;
}

/* An invariant about a deeper call can be checked, but is not claimed of its own accord. */
static void test_calls_at_any_depth(void **state)
{
    (void)state;
    for (int asked = 0; asked < 2; ++asked) {
        size_t facts = 0;
        tocsin_vocabulary *vocabulary;
        tocsin_observer *observer;
        assert_int_equal(tocsin_vocabulary_new(&vocabulary, NULL), TOCSIN_OK);
        tocsin_population_key population = {.kind = TOCSIN_POPULATION_CALL};
        population.name = tocsin_symbol_of(vocabulary, "outer");
        tocsin_fact_key fact = {.predicate = TOCSIN_PREDICATE_CALLS};
        fact.name = tocsin_symbol_of(vocabulary, "inner");
        tocsin_population wanted_population = tocsin_population_of(vocabulary, &population);
        tocsin_fact wanted_fact = tocsin_fact_of(vocabulary, &fact);
        tocsin_wanted wanted = {.populations = &wanted_population,
                                .population_count = 1,
                                .facts = &wanted_fact,
                                .fact_count = 1};
        tocsin_observer_options options = {.vocabulary = vocabulary,
                                           .sink = count_facts,
                                           .context = &facts,
                                           .wanted = asked == 1 ? &wanted : NULL};
        assert_int_equal(tocsin_observer_new(&options, &observer, NULL), TOCSIN_OK);
        fake_process process = {.observer = observer};
        fake_start(&process);
        enter(&process, "outer", TOCSIN_ROLE_NONE);
        enter(&process, "middle", TOCSIN_ROLE_NONE);
        call(&process, "inner", TOCSIN_ROLE_NONE);
        facts = 0;
        leave(&process, "middle", TOCSIN_ROLE_NONE);
        facts = 0;
        leave(&process, "outer", TOCSIN_ROLE_NONE);
        assert_int_equal(process.status, TOCSIN_OK);
        assert_int_equal(facts, 1); /* middle, or the inner one */
        tocsin_observer_free(observer);
        tocsin_vocabulary_free(vocabulary);
        fake_free(&process);
    }
}

static void fill(fake_process *process, uint32_t memory, double std)
{
    tocsin_value values[2] = {tensor_value(process, "self", TOCSIN_DTYPE_FLOAT32, 4, 4),
                              {.kind = TOCSIN_VALUE_FLOAT, .as.real = std}};
    values[0].count = memory;
    values[1].name = define_string(process, "std");
    enter_with(process, "torch.Tensor.normal_", TOCSIN_ROLE_INITIALIZE, values, 2);
    leave(process, "torch.Tensor.normal_", TOCSIN_ROLE_INITIALIZE);
}

static void test_weights_are_drawn_once(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    meta_text(process, "stage", "init");
    fill(process, 7, 0.02);
    fill(process, 8, 0.02); /* other weights */
    fill(process, 8, 0.01); /* drawn anew as something else */
    assert_int_equal(HOLDS(bench, FURTHER_CALL, NULL, DISTINCT), 2);
    assert_int_equal(FAILS(bench, FURTHER_CALL, NULL, DISTINCT), 0);
    fill(process, 8, 0.02);
    assert_int_equal(FAILS(bench, FURTHER_CALL, NULL, DISTINCT), 1);
    forget(bench);
    fill(process, 0, 0.02); /* which memory is not known */
    enter(process, "torch.nn.init.normal_", TOCSIN_ROLE_INITIALIZE);
    fill(process, 7, 0.02); /* an initialiser's own business */
    leave(process, "torch.nn.init.normal_", TOCSIN_ROLE_INITIALIZE);
    meta_text(process, "stage", "training");
    fill(process, 8, 0.02);       /* noise in a buffer */
    for (int i = 0; i < 2; ++i) { /* whole numbers tell two of its calls no more apart */
        tocsin_value one = {.kind = TOCSIN_VALUE_INT, .name = define_string(process, "to")};
        enter_with(process, "torch.Tensor.random_", TOCSIN_ROLE_INITIALIZE, &one, 1);
        leave(process, "torch.Tensor.random_", TOCSIN_ROLE_INITIALIZE);
    }
    assert_int_equal(HOLDS(bench, FURTHER_CALL, NULL, DISTINCT), 0);
    assert_int_equal(FAILS(bench, FURTHER_CALL, NULL, DISTINCT), 0);
    bench_free(bench);
}

/* How many limits does a value returned by a call with max_tokens = 5, min_tokens = 3 keep? */
static size_t limits_kept(relation_bench *bench, tocsin_role role, tocsin_value returned)
{
    fake_process *process = &bench->process[0];
    tocsin_value values[3] = {{.kind = TOCSIN_VALUE_INT, .as.integer = 5},
                              {.kind = TOCSIN_VALUE_INT, .as.integer = 3},
                              {.kind = TOCSIN_VALUE_INT, .as.integer = 4}};
    values[0].name = define_string(process, "max_tokens");
    values[1].name = define_string(process, "min_tokens");
    values[2].name = define_string(process, "maximize"); /* no limit */
    const char *name = role == TOCSIN_ROLE_USER ? "generate" : "torch.clamp";
    enter_with(process, name, role, values, 3);
    forget(bench);
    leave_with(process, name, role, TOCSIN_EVENT_EXIT, &returned, 1);
    size_t kept = 0;
    for (size_t i = 0; i < bench->count; ++i)
        for (uint32_t f = 0; f < bench->list[i].fact_count; ++f) {
            const tocsin_fact_key *fact = &bench->list[i].facts[f];
            kept += fact->predicate == TOCSIN_PREDICATE_RETURN_AT_MOST ||
                    fact->predicate == TOCSIN_PREDICATE_RETURN_AT_LEAST;
        }
    return kept;
}

static void test_limits_of_what_is_returned(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    tocsin_value list = {.kind = TOCSIN_VALUE_SEQUENCE, .count = 4};
    tocsin_value number = {.kind = TOCSIN_VALUE_INT, .as.integer = 6};
    assert_int_equal(limits_kept(bench, TOCSIN_ROLE_USER, list), 2);
    assert_int_equal(limits_kept(bench, TOCSIN_ROLE_USER, number), 1);
    list.count = 2;
    assert_int_equal(limits_kept(bench, TOCSIN_ROLE_USER, list), 1);
    tocsin_value tensor = tensor_value(process, "return", TOCSIN_DTYPE_INT64, 1, 5);
    assert_int_equal(limits_kept(bench, TOCSIN_ROLE_USER, tensor), 3);
    assert_int_equal(limits_kept(bench, TOCSIN_ROLE_NONE, tensor), 0);
    bench_free(bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_at_any_depth),
        cmocka_unit_test(test_weights_are_drawn_once),
        cmocka_unit_test(test_limits_of_what_is_returned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
