/* Relations over loading and saving: what was loaded is what is trained on, what an optimizer has
 * loaded is of its parameter and as wide, what is resumed is resumed whole, what is saved is a
 * whole model. What is healthy and near to a mistake holds, or is not judged. */
#include "seen_instances.h"

/* What is made only when asked for, too. */
static relation_bench *loading_bench(void)
{
    static const uint8_t kinds[] = {TOCSIN_POPULATION_LOADED_TENSOR, TOCSIN_POPULATION_NAMED_STATE,
                                    TOCSIN_POPULATION_TYPED_STATE, TOCSIN_POPULATION_RESUMED_UPDATE,
                                    TOCSIN_POPULATION_SAVED_MODEL};
    static const uint8_t predicates[] = {
        TOCSIN_PREDICATE_IN_PLACE,     TOCSIN_PREDICATE_OF_ITS_PARAMETER,
        TOCSIN_PREDICATE_KEEPS_DTYPE,  TOCSIN_PREDICATE_OPTIMIZER_LOADED,
        TOCSIN_PREDICATE_RATE_GOES_ON, TOCSIN_PREDICATE_SAVED_TOO};
    tocsin_population populations[TOCSIN_COUNT_OF(kinds)];
    tocsin_fact facts[TOCSIN_COUNT_OF(predicates)];
    relation_bench *made = calloc(1, sizeof *made);
    assert_int_equal(tocsin_vocabulary_new(&made->vocabulary, NULL), TOCSIN_OK);
    for (size_t i = 0; i < TOCSIN_COUNT_OF(kinds); ++i)
        populations[i] =
            tocsin_population_of(made->vocabulary, &(tocsin_population_key){.kind = kinds[i]});
    for (size_t i = 0; i < TOCSIN_COUNT_OF(predicates); ++i)
        facts[i] = tocsin_fact_of(made->vocabulary, &(tocsin_fact_key){.predicate = predicates[i]});
    tocsin_wanted wanted = {.populations = populations,
                            .population_count = TOCSIN_COUNT_OF(kinds),
                            .facts = facts,
                            .fact_count = TOCSIN_COUNT_OF(predicates)};
    tocsin_observer_options options = {
        .vocabulary = made->vocabulary, .sink = collect, .context = made, .wanted = &wanted};
    assert_int_equal(tocsin_observer_new(&options, &made->observer, NULL), TOCSIN_OK);
    made->process[0].observer = made->process[1].observer = made->observer;
    made->process[1].index = 1;
    fake_start(&made->process[0]);
    return made;
}

/* ---- states with values -------------------------------------------------------------------- */

typedef struct fake_tensor {
    const char *name;
    tocsin_variable_kind kind; /* 0: parameter */
    uint64_t digest;
    uint8_t dtype; /* 0: float32 */
    uint8_t ndim;  /* 0: 2 */
    int64_t loading, place;
    uint32_t memory; /* of its parameter, of that dtype: */
    uint8_t parameter_dtype;
    double lr; /* 0: none */
} fake_tensor;

static void say(fake_process *process, const char *attribute, fake_tensor tensor)
{
    tocsin_value values[4];
    uint32_t count = 0;
    int64_t sizes[2] = {4, 4};
    if (tensor.loading != 0)
        values[count++] = (tocsin_value){.kind = TOCSIN_VALUE_INT,
                                         .name = define_string(process, "loading"),
                                         .as.integer = tensor.loading};
    values[count++] = (tocsin_value){.kind = TOCSIN_VALUE_INT,
                                     .name = define_string(process, "place"),
                                     .as.integer = tensor.place};
    if (tensor.memory != 0)
        values[count++] = (tocsin_value){.kind = TOCSIN_VALUE_TENSOR,
                                         .name = define_string(process, "parameter"),
                                         .dtype = tensor.parameter_dtype,
                                         .count = tensor.memory};
    if (tensor.lr != 0)
        values[count++] = (tocsin_value){
            .kind = TOCSIN_VALUE_FLOAT, .name = define_string(process, "lr"), .as.real = tensor.lr};
    tocsin_variable_kind kind = tensor.kind != 0 ? tensor.kind : TOCSIN_VARIABLE_PARAMETER;
    uint8_t ndim = tensor.ndim != 0 ? tensor.ndim : 2;
    tocsin_event event = {
        .kind = TOCSIN_EVENT_STATE,
        .value_count = count,
        .values = values,
        .state = {.variable = define_variable(process, tensor.name, kind),
                  .attribute = define_string(process, attribute),
                  .moment = TOCSIN_MOMENT_EXIT,
                  .flags = TOCSIN_STATE_PRESENT | TOCSIN_STATE_DIGESTED,
                  .dtype = tensor.dtype != 0 ? tensor.dtype : (uint8_t)TOCSIN_DTYPE_FLOAT32,
                  .ndim = ndim,
                  .shape = define_shape(process, ndim, sizes),
                  .digest = {tensor.digest, 1, 1}}};
    emit(process, &event);
}

static void say_in(fake_process *process, const char *function, const char *attribute,
                   const fake_tensor *tensors, size_t count)
{
    tocsin_role role =
        strstr(function, "step") != NULL ? TOCSIN_ROLE_OPTIMIZER_STEP : TOCSIN_ROLE_CHECKPOINT;
    enter(process, function, role);
    for (size_t i = 0; i < count; ++i)
        say(process, attribute, tensors[i]);
    leave(process, function, role);
}

#define IN(process, function, attribute, ...)                                                      \
    say_in(process, function, attribute, (const fake_tensor[]){__VA_ARGS__},                       \
           sizeof((const fake_tensor[]){__VA_ARGS__}) / sizeof(fake_tensor))
#define LOAD      "torch.load"
#define SAVE      "torch.save"
#define MODEL     "torch.nn.Module.load_state_dict"
#define OPTIMIZER "torch.optim.Optimizer.load_state_dict"
#define STEP      "torch.optim.Optimizer.step"

/* ---- loaded weights ------------------------------------------------------------------------ */

static void fill(fake_process *process, uint32_t memory)
{
    tocsin_value filled = tensor_value(process, "tensor", TOCSIN_DTYPE_FLOAT32, 4, 4);
    filled.count = memory;
    enter_with(process, "torch.nn.init.normal_", TOCSIN_ROLE_INITIALIZE, &filled, 1);
    leave(process, "torch.nn.init.normal_", TOCSIN_ROLE_INITIALIZE);
}

static void load_two(fake_process *process)
{
    IN(process, MODEL, "loaded", {.name = "a.weight", .digest = 5, .loading = 1},
       {.name = "a.bias", .digest = 6, .loading = 1, .ndim = 1},
       {.name = "b.weight", .digest = 7, .loading = 1});
}

/* The model runs with these data. */
static void run_with(fake_process *process, uint64_t a, uint64_t bias, uint64_t b)
{
    say(process, "loaded",
        (fake_tensor){.name = "a.weight", .digest = a, .loading = 1, .memory = 11});
    say(process, "loaded",
        (fake_tensor){.name = "a.bias", .digest = bias, .loading = 1, .memory = 12, .ndim = 1});
    say(process, "loaded",
        (fake_tensor){.name = "b.weight", .digest = b, .loading = 1, .memory = 13});
}

static void step_with(fake_process *process, uint64_t a, uint64_t bias, uint64_t b)
{
    run_with(process, a, bias, b);
    call(process, STEP, TOCSIN_ROLE_OPTIMIZER_STEP);
}

static void test_loaded_weights_are_drawn_again(void **state)
{
    (void)state;
    relation_bench *bench = loading_bench();
    fake_process *process = &bench->process[0];
    load_two(process);
    for (uint32_t memory = 11; memory <= 13; ++memory)
        fill(process, memory);
    run_with(process, 50, 6, 70);                            /* the bias is zero again */
    assert_int_equal(JUDGED(bench, LOADED_TENSOR, NULL), 0); /* it may be evaluated only */
    call(&bench->process[1], STEP, TOCSIN_ROLE_OPTIMIZER_STEP);
    assert_int_equal(JUDGED(bench, LOADED_TENSOR, NULL), 0);
    call(process, STEP, TOCSIN_ROLE_OPTIMIZER_STEP);
    assert_int_equal(FAILS(bench, LOADED_TENSOR, "a.weight", IN_PLACE), 1);
    assert_int_equal(FAILS(bench, LOADED_TENSOR, "b.weight", IN_PLACE), 1);
    assert_int_equal(HOLDS(bench, LOADED_TENSOR, "a.bias", IN_PLACE), 1);
    call(process, STEP, TOCSIN_ROLE_OPTIMIZER_STEP); /* told once */
    assert_int_equal(FAILS(bench, LOADED_TENSOR, "a.weight", IN_PLACE), 1);
    bench_free(bench);
}

static void test_loaded_weights_that_are_changed_on_purpose(void **state)
{
    (void)state;
    relation_bench *bench = loading_bench();
    fake_process *process = &bench->process[0];
    load_two(process);
    fill(process, 13);
    step_with(process, 5, 6, 70); /* a new head */
    load_two(process);
    step_with(process, 50, 60, 70); /* scaled, masked, averaged */
    for (uint32_t memory = 11; memory <= 13; ++memory)
        fill(process, memory);
    load_two(process); /* initialised before */
    step_with(process, 5, 6, 7);
    load_two(process);
    run_with(process, 5, 6, 7); /* used, then drawn again */
    for (uint32_t memory = 11; memory <= 13; ++memory)
        fill(process, memory);
    call(process, STEP, TOCSIN_ROLE_OPTIMIZER_STEP);
    assert_int_equal(HOLDS(bench, LOADED_TENSOR, NULL, IN_PLACE), 12);
    assert_int_equal(FAILS(bench, LOADED_TENSOR, NULL, IN_PLACE), 0);
    bench_free(bench);
}

static void test_other_loadings_are_not_mixed(void **state)
{
    (void)state;
    relation_bench *bench = loading_bench();
    fake_process *process = &bench->process[0];
    load_two(process);
    fill(process, 11);
    IN(process, STEP, "loaded", {.name = "a.weight", .digest = 50, .loading = 2, .memory = 11});
    IN(process, STEP, "loaded",
       {.name = "a.weight",
        .digest = 50,
        .loading = 1,
        .memory = 11,
        .dtype = TOCSIN_DTYPE_BFLOAT16});
    assert_int_equal(JUDGED(bench, LOADED_TENSOR, NULL), 0);
    bench_free(bench);
}

/* ---- optimizer state ----------------------------------------------------------------------- */

#define MOMENT(text, value)                                                                        \
    {                                                                                              \
        .name = text, .digest = value, .kind = TOCSIN_VARIABLE_OPTIMIZER_STATE                     \
    }

static void test_state_of_another_parameter(void **state)
{
    (void)state;
    relation_bench *bench = loading_bench();
    fake_process *process = &bench->process[0];
    IN(process, SAVE, "saved", MOMENT("a#exp_avg", 1), MOMENT("b#exp_avg", 2), MOMENT("b#step", 9),
       MOMENT("model0.a#exp_avg", 3), MOMENT("model1.a#exp_avg", 4));
    IN(process, STEP, "loaded", MOMENT("a#exp_avg", 1), MOMENT("b#exp_avg", 2));
    assert_int_equal(HOLDS(bench, NAMED_STATE, NULL, OF_ITS_PARAMETER), 2);
    IN(process, STEP, "loaded", MOMENT("a#exp_avg", 2), MOMENT("b#exp_avg", 1));
    assert_int_equal(FAILS(bench, NAMED_STATE, "a#exp_avg", OF_ITS_PARAMETER), 1);
    assert_int_equal(FAILS(bench, NAMED_STATE, "b#exp_avg", OF_ITS_PARAMETER), 1);
    forget(bench);
    IN(process, STEP, "loaded", MOMENT("a#exp_avg", 77), MOMENT("new#exp_avg", 1),
       MOMENT("model0.a#exp_avg", 4)); /* of a file, renamed, numbered */
    IN(&bench->process[1], STEP, "loaded", MOMENT("a#exp_avg", 2)); /* another process */
    assert_int_equal(JUDGED(bench, NAMED_STATE, NULL), 0);
    IN(process, SAVE, "saved", MOMENT("a#exp_avg", 2), MOMENT("b#exp_avg", 8)); /* another model */
    IN(process, STEP, "loaded", MOMENT("a#exp_avg", 2));
    assert_int_equal(HOLDS(bench, NAMED_STATE, NULL, OF_ITS_PARAMETER), 1);
    bench_free(bench);
}

static void load_moment(fake_process *process, uint8_t in_file, uint8_t given, uint8_t parameter,
                        uint8_t now)
{
    IN(process, MODEL, "loaded", {.name = "a", .dtype = in_file, .loading = 1});
    IN(process, OPTIMIZER, "loaded",
       {.name = "3#exp_avg",
        .dtype = given,
        .loading = 2,
        .kind = TOCSIN_VARIABLE_OPTIMIZER_STATE});
    IN(process, STEP, "loaded",
       {.name = "a#exp_avg",
        .dtype = now,
        .loading = 2,
        .place = 3,
        .memory = 1,
        .parameter_dtype = parameter,
        .kind = TOCSIN_VARIABLE_OPTIMIZER_STATE});
}

static void test_state_that_becomes_narrow(void **state)
{
    (void)state;
    const uint8_t wide = TOCSIN_DTYPE_FLOAT32, half = TOCSIN_DTYPE_BFLOAT16;
    relation_bench *bench = loading_bench();
    fake_process *process = &bench->process[0];
    load_moment(process, half, wide, half, half);
    assert_int_equal(FAILS(bench, TYPED_STATE, "a#exp_avg", KEEPS_DTYPE), 1);
    load_moment(process, half, wide, half, wide);
    load_moment(process, wide, half, wide, wide); /* kept small in the file */
    assert_int_equal(HOLDS(bench, TYPED_STATE, "a#exp_avg", KEEPS_DTYPE), 2);
    forget(bench);
    load_moment(process, wide, wide, half, half); /* the model is in another precision */
    assert_int_equal(JUDGED(bench, TYPED_STATE, NULL), 0);
    bench_free(bench);
}

/* ---- resuming ------------------------------------------------------------------------------ */

#define GROUP(rate)                                                                                \
    {                                                                                              \
        .name = "group0#options", .lr = rate, .kind = TOCSIN_VARIABLE_OPTIMIZER_STATE              \
    }

static void test_what_is_resumed(void **state)
{
    (void)state;
    relation_bench *bench = loading_bench();
    fake_process *process = &bench->process[0];
    train(process, (fake_step){.lr = 0.1});
    IN(process, LOAD, "loaded", {.name = "a.weight"}); /* weights alone */
    call(process, MODEL, TOCSIN_ROLE_CHECKPOINT);
    train(process, (fake_step){.lr = 0.1});
    IN(process, LOAD, "loaded", GROUP(0.02)); /* read, not used */
    train(process, (fake_step){.lr = 0.1});
    assert_int_equal(JUDGED(bench, RESUMED_UPDATE, NULL), 0);
    IN(process, LOAD, "loaded", GROUP(0.02), GROUP(0.5));
    call(process, MODEL, TOCSIN_ROLE_CHECKPOINT);
    call(process, OPTIMIZER, TOCSIN_ROLE_CHECKPOINT);
    train(process, (fake_step){.lr = 0.02});
    train(process, (fake_step){.lr = 0.1}); /* the schedule goes on */
    assert_int_equal(HOLDS(bench, RESUMED_UPDATE, NULL, OPTIMIZER_LOADED), 1);
    assert_int_equal(HOLDS(bench, RESUMED_UPDATE, NULL, RATE_GOES_ON), 1);
    IN(process, LOAD, "loaded", GROUP(0.02));
    call(process, MODEL, TOCSIN_ROLE_CHECKPOINT);
    train(process, (fake_step){.lr = 0.1});
    assert_int_equal(FAILS(bench, RESUMED_UPDATE, NULL, OPTIMIZER_LOADED), 1);
    assert_int_equal(FAILS(bench, RESUMED_UPDATE, NULL, RATE_GOES_ON), 1);
    bench_free(bench);
}

/* ---- complete checkpoints ------------------------------------------------------------------ */

static void test_a_model_is_saved_whole(void **state)
{
    (void)state;
    relation_bench *bench = loading_bench();
    fake_process *process = &bench->process[0];
    train(process, (fake_step){0});
    IN(process, SAVE, "saved", {.name = "fc2.weight", .digest = 4444}); /* an average */
    IN(process, SAVE, "saved", {.name = "weight", .digest = 5});        /* names of its own */
    assert_int_equal(JUDGED(bench, SAVED_MODEL, NULL), 0);
    fake_parameter *live = process->parameters;
    enter(process, SAVE, TOCSIN_ROLE_CHECKPOINT);
    emit_state(process, &live[0], "saved", TOCSIN_MOMENT_EXIT, true, true, live[0].data, 1, 0, 0);
    emit_state(process, &live[1], "saved", TOCSIN_MOMENT_EXIT, true, true, live[1].data, 1, 0, 0);
    leave(process, SAVE, TOCSIN_ROLE_CHECKPOINT);
    assert_int_equal(HOLDS(bench, SAVED_MODEL, NULL, SAVED_TOO), 2);
    enter(process, SAVE, TOCSIN_ROLE_CHECKPOINT);
    emit_state(process, &live[1], "saved", TOCSIN_MOMENT_EXIT, true, true, live[1].data, 1, 0, 0);
    leave(process, SAVE, TOCSIN_ROLE_CHECKPOINT);
    assert_int_equal(FAILS(bench, SAVED_MODEL, "fc1.weight", SAVED_TOO), 1);
    assert_int_equal(HOLDS(bench, SAVED_MODEL, "fc2.weight", SAVED_TOO), 2);
    bench_free(bench);
}

static void save_one(fake_process *process, fake_parameter *only)
{
    enter(process, SAVE, TOCSIN_ROLE_CHECKPOINT);
    emit_state(process, only, "saved", TOCSIN_MOMENT_EXIT, true, true, only->data, 1, 0, 0);
    leave(process, SAVE, TOCSIN_ROLE_CHECKPOINT);
}

static void test_what_lies_below_an_adapter(void **state)
{
    (void)state;
    relation_bench *bench = loading_bench();
    fake_process *process = &bench->process[0];
    fake_parameter *base = &process->parameters[0], *adapter = &process->parameters[1];
    base->no_gradient = true;
    train(process, (fake_step){0});
    base->flags &= ~(uint32_t)TOCSIN_STATE_REQUIRES_GRAD;
    train(process, (fake_step){0});
    save_one(process, adapter); /* trained before */
    assert_int_equal(JUDGED(bench, SAVED_MODEL, "fc1.weight"), 0);
    base->data = 999; /* drawn, and nowhere else */
    train(process, (fake_step){0});
    save_one(process, adapter);
    assert_int_equal(FAILS(bench, SAVED_MODEL, "fc1.weight", SAVED_TOO), 1);
    enter(process, LOAD, TOCSIN_ROLE_CHECKPOINT);
    emit_state(process, base, "loaded", TOCSIN_MOMENT_EXIT, true, true, base->data, 1, 0, 0);
    leave(process, LOAD, TOCSIN_ROLE_CHECKPOINT);
    save_one(process, adapter);
    assert_int_equal(JUDGED(bench, SAVED_MODEL, "fc1.weight"), 1);
    assert_int_equal(HOLDS(bench, SAVED_MODEL, "fc2.weight", SAVED_TOO), 3);
    bench_free(bench);
}

/* ---- inference ----------------------------------------------------------------------------- */

static void test_what_inference_sees(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    load_two(process);
    for (uint32_t memory = 11; memory <= 13; ++memory)
        fill(process, memory);
    step_with(process, 50, 60, 70);
    load_moment(process, TOCSIN_DTYPE_FLOAT16, TOCSIN_DTYPE_FLOAT32, TOCSIN_DTYPE_FLOAT16,
                TOCSIN_DTYPE_FLOAT16);
    assert_int_equal(JUDGED(bench, LOADED_TENSOR, NULL) + JUDGED(bench, TYPED_STATE, NULL), 0);
    IN(process, LOAD, "loaded", GROUP(0.1));
    call(process, MODEL, TOCSIN_ROLE_CHECKPOINT);
    train(process, (fake_step){0});
    assert_int_equal(JUDGED(bench, RESUMED_UPDATE, NULL), 1);
    bench_free(bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loaded_weights_are_drawn_again),
        cmocka_unit_test(test_loaded_weights_that_are_changed_on_purpose),
        cmocka_unit_test(test_other_loadings_are_not_mixed),
        cmocka_unit_test(test_state_of_another_parameter),
        cmocka_unit_test(test_state_that_becomes_narrow),
        cmocka_unit_test(test_what_is_resumed),
        cmocka_unit_test(test_a_model_is_saved_whole),
        cmocka_unit_test(test_what_lies_below_an_adapter),
        cmocka_unit_test(test_what_inference_sees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
