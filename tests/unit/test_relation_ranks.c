/* Relations between processes, the filter of what is wanted, limits and failures. */
#include "seen_instances.h"

/* ---- processes ----------------------------------------------------------------------------- */

static relation_bench *two_ranks(void)
{
    relation_bench *bench = bench_new();
    fake_start(&bench->process[1]);
    for (int rank = 0; rank < 2; ++rank) {
        meta_int(&bench->process[rank], "rank", rank);
        meta_int(&bench->process[rank], "world_size", 2);
    }
    return bench;
}

static void test_replicas(void **state)
{
    (void)state;
    relation_bench *bench = two_ranks();
    for (int i = 0; i < 2; ++i)
        for (int rank = 0; rank < 2; ++rank)
            train(&bench->process[rank], (fake_step){.stage = NULL});
    /* 2 parameters, data and gradient, 2 steps; and contrasts, all of them unequal */
    assert_int_equal(HOLDS(bench, REPLICAS, NULL, EQUAL), 8);
    assert_true(FAILS(bench, REPLICAS, NULL, EQUAL) > 0);
    for (size_t i = 0; i < bench->count; ++i) {
        const seen_instance *seen = &bench->list[i];
        if (seen->population.kind != TOCSIN_POPULATION_REPLICAS)
            continue;
        bool same_name = false, same_rank = true;
        for (uint32_t f = 0; f < seen->field_count; ++f) {
            const char *name = tocsin_symbol_text(bench->vocabulary, seen->fields[f].name);
            if (strcmp(name, "var.name") == 0)
                same_name = seen->fields[f].a == seen->fields[f].b;
            if (strcmp(name, "meta.rank") == 0)
                same_rank = seen->fields[f].a == seen->fields[f].b;
        }
        assert_int_equal(same_name, has_predicate(seen, TOCSIN_PREDICATE_EQUAL));
        assert_false(same_rank);
        assert_int_equal(seen->rank, 1);
        assert_int_equal(seen->other_rank, 0);
    }
    forget(bench);
    bench->process[1].parameters[0].data ^= 4; /* drift */
    for (int rank = 0; rank < 2; ++rank)
        train(&bench->process[rank], (fake_step){.stage = NULL});
    assert_true(FAILS(bench, REPLICAS, "fc1.weight", EQUAL) > 0);
    bench_free(bench);
}

static void test_a_stalled_process_holds_up_nobody(void **state)
{
    (void)state;
    relation_bench *bench = two_ranks();
    for (int i = 0; i < 200; ++i)
        train(&bench->process[0], (fake_step){.stage = NULL});
    assert_int_equal(HOLDS(bench, DRIVEN_PARAMETER, NULL, DATA_CHANGES), 400);
    assert_int_equal(JUDGED(bench, REPLICAS, NULL), 0);
    bool more[2] = {true, true};
    assert_int_equal(tocsin_observer_laggard(bench->observer, more, 2), 1);
    more[1] = false;
    assert_int_equal(tocsin_observer_laggard(bench->observer, more, 2), 0);
    more[0] = false;
    assert_int_equal(tocsin_observer_laggard(bench->observer, more, 2), 2);
    /* the late one is compared where its step's window still stands */
    for (int i = 0; i < 200; ++i)
        train(&bench->process[1], (fake_step){.stage = NULL});
    size_t compared = HOLDS(bench, REPLICAS, NULL, EQUAL);
    assert_true(compared >= 64 * 3 && compared <= 64 * 4);
    bench_free(bench);
}

static void collective(fake_process *process, const char *name, int64_t rows, const char *op)
{
    tocsin_value values[2] = {tensor_value(process, "tensor", TOCSIN_DTYPE_FLOAT32, rows, 2),
                              {.kind = TOCSIN_VALUE_STRING, .name = define_string(process, "op")}};
    values[1].as.text = define_string(process, op);
    enter_with(process, name, TOCSIN_ROLE_COLLECTIVE, values, 2);
    call(process, "inner", TOCSIN_ROLE_COLLECTIVE); /* not a collective of its own */
    leave(process, name, TOCSIN_ROLE_COLLECTIVE);
}

static void test_collectives(void **state)
{
    (void)state;
    relation_bench *bench = two_ranks();
    collective(&bench->process[0], "all_reduce", 4, "sum");
    collective(&bench->process[0], "all_reduce", 4, "sum");
    collective(&bench->process[1], "all_reduce", 4, "sum");
    const seen_instance *seen = &bench->list[bench->count - 1];
    while (seen->population.kind != TOCSIN_POPULATION_COLLECTIVES)
        --seen;
    assert_int_equal(seen->fact_count, 4);
    collective(&bench->process[1], "broadcast", 8, "max");
    seen = &bench->list[bench->count - 1];
    while (seen->population.kind != TOCSIN_POPULATION_COLLECTIVES)
        --seen;
    assert_int_equal(seen->fact_count, 1); /* the dtype alone */
    assert_int_equal(JUDGED(bench, COLLECTIVES, NULL), 2);
    bench_free(bench);
}

static void collective_of(fake_process *process, const char *name, const char *group)
{
    tocsin_value values[2] = {tensor_value(process, "tensor", TOCSIN_DTYPE_FLOAT32, 4, 2),
                              {.kind = TOCSIN_VALUE_STRING, .name = define_string(process, "pg")}};
    values[1].as.text = define_string(process, group);
    enter_with(process, name, TOCSIN_ROLE_COLLECTIVE, values, 2);
    leave(process, name, TOCSIN_ROLE_COLLECTIVE);
}

static void test_collectives_of_groups(void **state)
{
    (void)state;
    relation_bench *bench = two_ranks();
    for (int rank = 0; rank < 2; ++rank)
        meta_int(&bench->process[rank], "world_size", 4);
    /* rank 0 also belongs to a group of its own with ranks 2 and 3, in whatever order */
    collective_of(&bench->process[0], "broadcast", "group:3:0,2,3");
    collective_of(&bench->process[0], "all_reduce", "group:2:0,1");
    collective_of(&bench->process[0], "all_gather", "group:4:0+1");
    collective_of(&bench->process[1], "all_gather", "group:4:0+1");
    collective_of(&bench->process[1], "barrier", "group:2:0+2"); /* not of this rank */
    collective_of(&bench->process[1], "all_reduce", "group:2:0,1");
    assert_int_equal(JUDGED(bench, COLLECTIVES, NULL), 2);
    for (size_t i = 0; i < bench->count; ++i)
        if (bench->list[i].population.kind == TOCSIN_POPULATION_COLLECTIVES)
            assert_int_equal(bench->list[i].fact_count, 4);
    /* what one sends, the other receives */
    collective_of(&bench->process[0], "torch.distributed.send", "");
    collective_of(&bench->process[1], "torch.distributed.recv", "");
    assert_int_equal(JUDGED(bench, COLLECTIVES, NULL), 2);
    /* no group: all ranks */
    collective_of(&bench->process[0], "all_reduce", "");
    collective_of(&bench->process[1], "broadcast", "group:4:0,1,2,3");
    assert_int_equal(JUDGED(bench, COLLECTIVES, NULL), 3);
    const seen_instance *seen = &bench->list[bench->count - 1];
    while (seen->population.kind != TOCSIN_POPULATION_COLLECTIVES)
        --seen;
    assert_int_equal(seen->fact_count, 3); /* not the function */
    bench_free(bench);
}

/* How much goes to whom may differ between ranks where it is said. */
static void test_all_to_all(void **state)
{
    (void)state;
    for (int lists = 0; lists < 2; ++lists) {
        relation_bench *bench = two_ranks();
        for (int rank = 0; rank < 2; ++rank) {
            fake_process *process = &bench->process[rank];
            tocsin_value values[3] = {
                tensor_value(process, "output", TOCSIN_DTYPE_FLOAT32, 4 + rank, 2),
                {.kind = TOCSIN_VALUE_SEQUENCE, .count = 1},
                {.kind = TOCSIN_VALUE_INT, .flags = TOCSIN_VALUE_IN_SEQUENCE}};
            values[1].name = define_string(process, "output_split_sizes");
            enter_with(process, "all_to_all_single", TOCSIN_ROLE_COLLECTIVE, values, lists ? 3 : 1);
            leave(process, "all_to_all_single", TOCSIN_ROLE_COLLECTIVE);
        }
        const seen_instance *seen = &bench->list[bench->count - 1];
        while (seen->population.kind != TOCSIN_POPULATION_COLLECTIVES)
            --seen;
        assert_int_equal(seen->fact_count, lists ? 4 : 3);
        bench_free(bench);
    }
}

/* ---- the filter, and memory ---------------------------------------------------------------- */

static tocsin_status count_only(void *context, const tocsin_instance *instance, tocsin_error *error)
{
    (void)error;
    assert_int_equal(instance->fact_count <= 1, 1);
    ++*(size_t *)context;
    return TOCSIN_OK;
}

static void test_only_what_is_wanted(void **state)
{
    (void)state;
    size_t instances = 0;
    tocsin_vocabulary *vocabulary;
    assert_int_equal(tocsin_vocabulary_new(&vocabulary, NULL), TOCSIN_OK);
    tocsin_population_key population = {.kind = TOCSIN_POPULATION_DRIVEN_PARAMETER,
                                        .role = TOCSIN_ROLE_OPTIMIZER_STEP};
    tocsin_fact_key fact = {.predicate = TOCSIN_PREDICATE_DATA_CHANGES};
    tocsin_population wanted_population = tocsin_population_of(vocabulary, &population);
    tocsin_fact wanted_fact = tocsin_fact_of(vocabulary, &fact);
    tocsin_wanted wanted = {.populations = &wanted_population,
                            .population_count = 1,
                            .facts = &wanted_fact,
                            .fact_count = 1};
    tocsin_observer_options options = {
        .vocabulary = vocabulary, .sink = count_only, .context = &instances, .wanted = &wanted};
    tocsin_observer *observer;
    assert_int_equal(tocsin_observer_new(&options, &observer, NULL), TOCSIN_OK);
    fake_process process = {.observer = observer};
    fake_start(&process);
    train(&process, (fake_step){.stage = NULL});
    assert_int_equal(instances, 2);
    assert_int_equal(tocsin_observer_instances(observer), 2);
    /* strings, functions and facts that vary for ever do not gather */
    for (int i = 0; i < 1000; ++i) {
        tocsin_value value = {.kind = TOCSIN_VALUE_FLOAT,
                              .name = define_string(&process, "loss"),
                              .as.real = i * 0.37};
        enter_with(&process, "log", TOCSIN_ROLE_NONE, &value, 1);
        leave(&process, "log", TOCSIN_ROLE_NONE);
    }
    tocsin_literal literal = {.kind = TOCSIN_VALUE_FLOAT, .real = 37};
    assert_int_equal(tocsin_scalar_find(vocabulary, &literal), 0);
    assert_int_equal(process.status, TOCSIN_OK);
    tocsin_observer_free(observer);
    tocsin_vocabulary_free(vocabulary);
    fake_free(&process);
}

/* The one field of the calls of "f" that are seen. */
static tocsin_status one_field(void *context, const tocsin_instance *instance, tocsin_error *error)
{
    (void)error;
    assert_int_equal(instance->field_count, 1);
    *(tocsin_field *)context = instance->fields[0];
    return TOCSIN_OK;
}

static void test_only_fields_that_are_wanted(void **state)
{
    (void)state;
    tocsin_vocabulary *vocabulary;
    assert_int_equal(tocsin_vocabulary_new(&vocabulary, NULL), TOCSIN_OK);
    tocsin_population_key population = {.kind = TOCSIN_POPULATION_CALL_ARGUMENTS};
    population.name = tocsin_symbol_of(vocabulary, "f");
    tocsin_population wanted_population = tocsin_population_of(vocabulary, &population);
    tocsin_literal eight = {.kind = TOCSIN_VALUE_INT, .integer = 8};
    tocsin_fact_key fact = {.predicate = TOCSIN_PREDICATE_ARGUMENT_IS,
                            .name = tocsin_symbol_of(vocabulary, "arg.n"),
                            .value = tocsin_scalar_of(vocabulary, &eight)};
    tocsin_fact wanted_fact = tocsin_fact_of(vocabulary, &fact);
    const char *const names[] = {"meta.stage", "meta.step"};
    for (size_t i = 0; i < 2; ++i) { /* a step is a field only for those that ask for it */
        tocsin_symbol field = tocsin_symbol_of(vocabulary, names[i]);
        tocsin_field seen = {.name = 0};
        tocsin_wanted wanted = {.populations = &wanted_population,
                                .population_count = 1,
                                .facts = &wanted_fact,
                                .fact_count = 1,
                                .fields = &field,
                                .field_count = 1};
        tocsin_observer_options options = {
            .vocabulary = vocabulary, .sink = one_field, .context = &seen, .wanted = &wanted};
        tocsin_observer *observer;
        assert_int_equal(tocsin_observer_new(&options, &observer, NULL), TOCSIN_OK);
        fake_process process = {.observer = observer};
        fake_start(&process);
        meta_text(&process, "stage", "training");
        meta_int(&process, "step", 20);
        tocsin_value value = {.kind = TOCSIN_VALUE_INT, .as.integer = 8};
        value.name = define_string(&process, "n");
        enter_with(&process, "f", TOCSIN_ROLE_NONE, &value, 1);
        assert_int_equal(process.status, TOCSIN_OK);
        assert_int_equal(tocsin_observer_instances(observer), 1);
        assert_int_equal(seen.name, field);
        tocsin_literal is = tocsin_scalar_literal(vocabulary, seen.a);
        assert_true(i == 0 ? strcmp(is.text, "training") == 0 : is.integer == 20);
        tocsin_observer_free(observer);
        fake_free(&process);
    }
    tocsin_vocabulary_free(vocabulary);
}

static tocsin_status refuse(void *context, const tocsin_instance *instance, tocsin_error *error)
{
    (void)context;
    (void)instance;
    return tocsin_error_set(error, TOCSIN_E_IO, "no more");
}

/* Conditions of collectives are known though nothing else of these calls is wanted. */
static void test_collectives_alone_have_their_fields(void **state)
{
    (void)state;
    tocsin_vocabulary *vocabulary;
    assert_int_equal(tocsin_vocabulary_new(&vocabulary, NULL), TOCSIN_OK);
    tocsin_population_key population = {.kind = TOCSIN_POPULATION_COLLECTIVES};
    tocsin_population wanted_population = tocsin_population_of(vocabulary, &population);
    tocsin_fact_key fact = {.predicate = TOCSIN_PREDICATE_SAME,
                            .name = tocsin_symbol_of(vocabulary, "function")};
    tocsin_fact wanted_fact = tocsin_fact_of(vocabulary, &fact);
    tocsin_symbol field = tocsin_symbol_of(vocabulary, "meta.stage");
    tocsin_field seen = {.name = 0};
    tocsin_wanted wanted = {.populations = &wanted_population,
                            .population_count = 1,
                            .facts = &wanted_fact,
                            .fact_count = 1,
                            .fields = &field,
                            .field_count = 1};
    tocsin_observer_options options = {
        .vocabulary = vocabulary, .sink = one_field, .context = &seen, .wanted = &wanted};
    tocsin_observer *observer;
    assert_int_equal(tocsin_observer_new(&options, &observer, NULL), TOCSIN_OK);
    fake_process ranks[2] = {{.observer = observer}, {.observer = observer, .index = 1}};
    for (int rank = 0; rank < 2; ++rank) {
        fake_start(&ranks[rank]);
        meta_int(&ranks[rank], "rank", rank);
        meta_int(&ranks[rank], "world_size", 2);
        meta_text(&ranks[rank], "stage", "training");
        call(&ranks[rank], "torch.distributed.barrier", TOCSIN_ROLE_COLLECTIVE);
        assert_int_equal(ranks[rank].status, TOCSIN_OK);
    }
    assert_int_equal(tocsin_observer_instances(observer), 1);
    assert_int_equal(seen.name, field);
    assert_string_equal(tocsin_scalar_literal(vocabulary, seen.a).text, "training");
    tocsin_observer_free(observer);
    tocsin_vocabulary_free(vocabulary);
    fake_free(&ranks[0]);
    fake_free(&ranks[1]);
}

static void test_a_failing_sink_stops_the_observer(void **state)
{
    (void)state;
    tocsin_vocabulary *vocabulary;
    tocsin_observer *observer;
    assert_int_equal(tocsin_vocabulary_new(&vocabulary, NULL), TOCSIN_OK);
    tocsin_observer_options options = {.vocabulary = vocabulary, .sink = refuse};
    assert_int_equal(tocsin_observer_new(&options, &observer, NULL), TOCSIN_OK);
    fake_process process = {.observer = observer};
    fake_start(&process);
    train(&process, (fake_step){.stage = NULL});
    assert_int_equal(process.status, TOCSIN_E_IO);
    assert_int_equal(tocsin_observer_finish(observer, NULL), TOCSIN_E_IO);
    tocsin_observer_free(observer);
    tocsin_vocabulary_free(vocabulary);
    fake_free(&process);
}

static void test_too_deep(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    tocsin_event event = {.kind = TOCSIN_EVENT_ENTER};
    for (int i = 0; i < 20000; ++i)
        emit(&bench->process[0], &event);
    assert_int_equal(bench->process[0].status, TOCSIN_E_LIMIT);
    tocsin_observer_free(bench->observer);
    tocsin_vocabulary_free(bench->vocabulary);
    fake_free(&bench->process[0]);
    free(bench->list);
    free(bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replicas),
        cmocka_unit_test(test_a_stalled_process_holds_up_nobody),
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_collectives_of_groups),
        cmocka_unit_test(test_all_to_all),
        cmocka_unit_test(test_only_what_is_wanted),
        cmocka_unit_test(test_only_fields_that_are_wanted),
        cmocka_unit_test(test_collectives_alone_have_their_fields),
        cmocka_unit_test(test_a_failing_sink_stops_the_observer),
        cmocka_unit_test(test_too_deep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
