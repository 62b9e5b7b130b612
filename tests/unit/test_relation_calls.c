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

/* How many limits does a value returned by a call with max_tokens = 5, min_tokens = 3 keep, as is
 * said of the function or of its arguments? */
static size_t limits_kept(relation_bench *bench, tocsin_role role, tocsin_value returned,
                          uint8_t population)
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
            bool limit = fact->predicate == TOCSIN_PREDICATE_RETURN_AT_MOST ||
                         fact->predicate == TOCSIN_PREDICATE_RETURN_AT_LEAST;
            kept += limit && bench->list[i].population.kind == population;
        }
    return kept;
}

static void test_limits_of_what_is_returned(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    static const uint8_t populations[] = {TOCSIN_POPULATION_CALL_OUTPUT,
                                          TOCSIN_POPULATION_USER_CALL};
    tocsin_value number = {.kind = TOCSIN_VALUE_INT, .as.integer = 6};
    tocsin_value tensor = tensor_value(process, "return", TOCSIN_DTYPE_INT64, 1, 5);
    for (size_t i = 0; i < TOCSIN_COUNT_OF(populations); ++i) {
        tocsin_value list = {.kind = TOCSIN_VALUE_SEQUENCE, .count = 4};
        assert_int_equal(limits_kept(bench, TOCSIN_ROLE_USER, list, populations[i]), 2);
        assert_int_equal(limits_kept(bench, TOCSIN_ROLE_USER, number, populations[i]), 1);
        list.count = 2;
        assert_int_equal(limits_kept(bench, TOCSIN_ROLE_USER, list, populations[i]), 1);
        assert_int_equal(limits_kept(bench, TOCSIN_ROLE_USER, tensor, populations[i]), 3);
        assert_int_equal(limits_kept(bench, TOCSIN_ROLE_NONE, tensor, populations[i]), 0);
    }
    bench_free(bench);
}

/* process(NAME = a list of 3) returns `rows` rows: how many arguments are judged, and how often is
 * it said that there are as many? */
static size_t lengths_kept(relation_bench *bench, const char *name, int64_t rows, size_t *judged)
{
    fake_process *process = &bench->process[0];
    tocsin_value list = {.kind = TOCSIN_VALUE_SEQUENCE, .count = 3};
    list.name = define_string(process, name);
    tocsin_value returned = tensor_value(process, "return", TOCSIN_DTYPE_FLOAT32, rows, 4);
    enter_with(process, "process", TOCSIN_ROLE_USER, &list, 1);
    forget(bench);
    leave_with(process, "process", TOCSIN_ROLE_USER, TOCSIN_EVENT_EXIT, &returned, 1);
    *judged = HOLDS(bench, USER_CALL, NULL, RETURN_IS) + FAILS(bench, USER_CALL, NULL, RETURN_IS);
    size_t kept = 0;
    for (size_t i = 0; i < bench->count; ++i)
        kept += has_predicate(&bench->list[i], TOCSIN_PREDICATE_RETURN_MATCHES);
    return kept;
}

static void test_as_many_as_were_given(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    size_t judged;
    assert_int_equal(lengths_kept(bench, "images", 3, &judged), 2); /* function and argument */
    assert_int_equal(judged, 1);
    assert_int_equal(lengths_kept(bench, "images", 1, &judged), 0);
    assert_int_equal(judged, 1);
    assert_int_equal(lengths_kept(bench, "arg0", 3, &judged), 1); /* what it is called is unknown */
    assert_int_equal(judged, 0);
    for (int64_t rows = 0; rows < 12; ++rows) /* few of many sizes are remembered */
        (void)lengths_kept(bench, "images", 100 + rows, &judged);
    for (size_t i = 0; i < bench->count; ++i)
        for (uint32_t f = 0; f < bench->list[i].fact_count; ++f)
            assert_true(bench->list[i].facts[f].predicate != TOCSIN_PREDICATE_RETURN_IS ||
                        strcmp(tocsin_symbol_text(bench->vocabulary, bench->list[i].facts[f].name),
                               "return.shape[0]") != 0);
    bench_free(bench);
}

/* ---- tensors by their place ----------------------------------------------------------------- */

typedef struct stated { /* is this fact stated, is that field there? */
    tocsin_vocabulary *vocabulary;
    const char *fact, *other, *field;
    bool has_fact, has_field;
} stated;

static tocsin_status note_stated(void *context, const tocsin_instance *instance,
                                 tocsin_error *error)
{
    stated *seen = context;
    (void)error;
    if (tocsin_population_get_key(seen->vocabulary, instance->population).kind !=
        TOCSIN_POPULATION_CALL_OUTPUT)
        return TOCSIN_OK;
    for (uint32_t i = 0; i < instance->fact_count; ++i) {
        tocsin_fact_key key = tocsin_fact_get_key(seen->vocabulary, instance->facts[i]);
        const char *other = key.other != 0 ? tocsin_symbol_text(seen->vocabulary, key.other) : NULL;
        seen->has_fact |= strcmp(tocsin_symbol_text(seen->vocabulary, key.name), seen->fact) == 0 &&
                          (other == NULL) == (seen->other == NULL) &&
                          (other == NULL || strcmp(other, seen->other) == 0);
    }
    for (uint32_t i = 0; i < instance->field_count; ++i)
        seen->has_field |= strcmp(tocsin_symbol_text(seen->vocabulary, instance->fields[i].name),
                                  seen->field) == 0;
    return TOCSIN_OK;
}

/* f(a, b) returns two tensors. Does wide learning state this of them? */
static bool states(const char *fact, const char *other)
{
    stated seen = {.fact = fact, .other = other, .field = "output.grad"};
    assert_int_equal(tocsin_vocabulary_new(&seen.vocabulary, NULL), TOCSIN_OK);
    tocsin_observer *observer;
    tocsin_observer_options options = {
        .vocabulary = seen.vocabulary, .sink = note_stated, .context = &seen, .wide = true};
    assert_int_equal(tocsin_observer_new(&options, &observer, NULL), TOCSIN_OK);
    fake_process process = {.observer = observer};
    fake_start(&process);
    tocsin_value inputs[2] = {tensor_value(&process, "a", TOCSIN_DTYPE_FLOAT32, 16, 4),
                              tensor_value(&process, "b", TOCSIN_DTYPE_FLOAT16, 4, 16)};
    inputs[0].type = define_string(&process, "torch.FloatTensor;grad=None;is_cuda=False;index=3");
    tocsin_value outputs[3] = {{.kind = TOCSIN_VALUE_SEQUENCE, .count = 2},
                               tensor_value(&process, "return", TOCSIN_DTYPE_FLOAT32, 16, 4),
                               tensor_value(&process, "return", TOCSIN_DTYPE_FLOAT32, 3, 4)};
    for (int i = 1; i < 3; ++i) {
        outputs[i].flags |= TOCSIN_VALUE_IN_SEQUENCE;
        outputs[i].type = define_string(&process, i == 1 ? "a;name=None;is_cuda=False;is_meta=True"
                                                         : "a;name=None;is_cuda=False");
    }
    enter_with(&process, "f", TOCSIN_ROLE_USER, inputs, 2);
    leave_with(&process, "f", TOCSIN_ROLE_USER, TOCSIN_EVENT_EXIT, outputs, 3);
    assert_int_equal(process.status, TOCSIN_OK);
    assert_false(seen.has_field); /* learning explains nothing by what is returned */
    tocsin_observer_free(observer);
    tocsin_vocabulary_free(seen.vocabulary);
    fake_free(&process);
    return seen.has_fact;
}

static void test_tensors_by_their_place(void **state)
{
    (void)state;
    assert_true(states("output.dtype", NULL));
    assert_true(states("output.is_cuda", NULL));
    assert_true(states("output.name", NULL));
    assert_false(states("output.shape", NULL));   /* the two differ */
    assert_false(states("output.is_meta", NULL)); /* one does not say */
    assert_false(states("output.is_leaf", NULL)); /* other tools say it, or it is not known */
    assert_true(states("output[0].dtype", "input[0].dtype"));
    assert_false(states("output[0].dtype", "input[1].dtype"));
    assert_true(states("output[0].shape[0]", "input[1].shape[1]"));
    assert_true(states("output[1].shape[1]", "input[0].shape[1]"));
    assert_false(states("output[1].shape[0]", "input[0].shape[0]"));
    assert_true(states("output[1].shape[0]", "input[0].index"));
    assert_true(states("output[0].name", "input[0].grad"));       /* both None */
    assert_false(states("output[0].is_meta", "input[0].is_cpu")); /* flags of other names */
    assert_true(states("output[0].is_cuda", "input[0].is_cuda"));
}

static void test_a_place_is_judged_where_it_is_known(void **state)
{
    (void)state;
    for (int known = 0; known < 2; ++known) {
        stated seen = {.fact = "output.grad", .field = "output.grad"};
        tocsin_observer *observer;
        assert_int_equal(tocsin_vocabulary_new(&seen.vocabulary, NULL), TOCSIN_OK);
        tocsin_population_key key = {.kind = TOCSIN_POPULATION_CALL_OUTPUT};
        key.name = tocsin_symbol_of(seen.vocabulary, "f");
        tocsin_population population = tocsin_population_of(seen.vocabulary, &key);
        tocsin_symbol field = tocsin_symbol_of(seen.vocabulary, "output.grad");
        tocsin_literal none = {.kind = TOCSIN_VALUE_NONE};
        tocsin_fact_key fact_key = {.predicate = TOCSIN_PREDICATE_RETURN_IS,
                                    .name = field,
                                    .value = tocsin_scalar_of(seen.vocabulary, &none)};
        tocsin_fact fact = tocsin_fact_of(seen.vocabulary, &fact_key);
        tocsin_wanted wanted = {&population, 1, &fact, 1, &field, 1};
        tocsin_observer_options options = {.vocabulary = seen.vocabulary,
                                           .sink = note_stated,
                                           .context = &seen,
                                           .wanted = &wanted};
        assert_int_equal(tocsin_observer_new(&options, &observer, NULL), TOCSIN_OK);
        fake_process process = {.observer = observer};
        fake_start(&process);
        tocsin_value made = tensor_value(&process, "return", TOCSIN_DTYPE_FLOAT32, 16, 4);
        made.type = known == 1 ? define_string(&process, "torch.FloatTensor;grad=None") : 0;
        enter(&process, "f", TOCSIN_ROLE_NONE);
        leave_with(&process, "f", TOCSIN_ROLE_NONE, TOCSIN_EVENT_EXIT, &made, 1);
        assert_int_equal(process.status, TOCSIN_OK);
        assert_int_equal(seen.has_fact, known);
        assert_int_equal(seen.has_field, known);
        tocsin_observer_free(observer);
        tocsin_vocabulary_free(seen.vocabulary);
        fake_free(&process);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_at_any_depth),
        cmocka_unit_test(test_weights_are_drawn_once),
        cmocka_unit_test(test_limits_of_what_is_returned),
        cmocka_unit_test(test_as_many_as_were_given),
        cmocka_unit_test(test_tensors_by_their_place),
        cmocka_unit_test(test_a_place_is_judged_where_it_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
