/* Relations: from events to instances, what is judged, what is not, and the traps of training. */
#include "fake_training.h"

/* ---- what the sink saw --------------------------------------------------------------------- */

typedef struct seen_instance {
    tocsin_population_key population;
    char entity[64];
    int64_t step;
    int32_t rank, other_rank;
    uint32_t line;
    tocsin_fact_key facts[32];
    uint32_t fact_count;
    tocsin_field fields[48];
    uint32_t field_count;
} seen_instance;

typedef struct relation_bench {
    tocsin_vocabulary *vocabulary;
    tocsin_observer *observer;
    seen_instance *list;
    size_t count, capacity;
    fake_process process[2];
} relation_bench;

static tocsin_status collect(void *context, const tocsin_instance *instance, tocsin_error *error)
{
    relation_bench *bench = context;
    (void)error;
    if (bench->count == bench->capacity) {
        bench->capacity = bench->capacity * 2 + 64;
        bench->list = realloc(bench->list, bench->capacity * sizeof *bench->list);
        assert_non_null(bench->list);
    }
    seen_instance *seen = &bench->list[bench->count++];
    memset(seen, 0, sizeof *seen);
    seen->population = tocsin_population_get_key(bench->vocabulary, instance->population);
    snprintf(seen->entity, sizeof seen->entity, "%s", instance->evidence.entity);
    seen->step = instance->evidence.step;
    seen->rank = instance->evidence.rank;
    seen->other_rank = instance->evidence.other_rank;
    seen->line = instance->evidence.line;
    assert_true(instance->fact_count <= 32 && instance->field_count <= 48);
    for (uint32_t i = 0; i < instance->fact_count; ++i) {
        assert_true(i == 0 || instance->facts[i - 1] < instance->facts[i]);
        seen->facts[seen->fact_count++] =
            tocsin_fact_get_key(bench->vocabulary, instance->facts[i]);
    }
    for (uint32_t i = 0; i < instance->field_count; ++i) {
        assert_true(i == 0 || instance->fields[i - 1].name < instance->fields[i].name);
        seen->fields[seen->field_count++] = instance->fields[i];
    }
    return TOCSIN_OK;
}

static relation_bench *bench_new(void)
{
    relation_bench *made = calloc(1, sizeof *made);
    assert_int_equal(tocsin_vocabulary_new(&made->vocabulary, NULL), TOCSIN_OK);
    tocsin_observer_options options = {
        .vocabulary = made->vocabulary, .sink = collect, .context = made, .contrast = true};
    assert_int_equal(tocsin_observer_new(&options, &made->observer, NULL), TOCSIN_OK);
    for (size_t i = 0; i < 2; ++i) {
        made->process[i].observer = made->observer;
        made->process[i].index = i;
    }
    fake_start(&made->process[0]);
    return made;
}

static void bench_free(relation_bench *bench)
{
    assert_int_equal(bench->process[0].status, TOCSIN_OK);
    assert_int_equal(bench->process[1].status, TOCSIN_OK);
    assert_int_equal(tocsin_observer_finish(bench->observer, NULL), TOCSIN_OK);
    tocsin_observer_free(bench->observer);
    tocsin_vocabulary_free(bench->vocabulary);
    fake_free(&bench->process[0]);
    fake_free(&bench->process[1]);
    free(bench->list);
    free(bench);
}

static void forget(relation_bench *bench)
{
    bench->count = 0;
}

static bool has_predicate(const seen_instance *seen, uint8_t predicate)
{
    for (uint32_t i = 0; i < seen->fact_count; ++i)
        if (seen->facts[i].predicate == predicate)
            return true;
    return false;
}

/* Instances of the kind, of the entity unless NULL: how many have (or lack) the predicate. */
static size_t count_of(const relation_bench *bench, uint8_t kind, const char *entity,
                       uint8_t predicate, bool holds)
{
    size_t count = 0;
    for (size_t i = 0; i < bench->count; ++i) {
        const seen_instance *seen = &bench->list[i];
        count += seen->population.kind == kind &&
                 (entity == NULL || strcmp(seen->entity, entity) == 0) &&
                 has_predicate(seen, predicate) == holds;
    }
    return count;
}

#define HOLDS(bench, kind, entity, predicate)                                                      \
    count_of(bench, TOCSIN_POPULATION_##kind, entity, TOCSIN_PREDICATE_##predicate, true)
#define FAILS(bench, kind, entity, predicate)                                                      \
    count_of(bench, TOCSIN_POPULATION_##kind, entity, TOCSIN_PREDICATE_##predicate, false)
#define JUDGED(bench, kind, entity)                                                                \
    (HOLDS(bench, kind, entity, EQUAL) + FAILS(bench, kind, entity, EQUAL))

/* Does the latest instance of the kind for the callee (a role, or a function) have "calls" or
 * "preceded by" it? */
static bool latest_has(const relation_bench *bench, uint8_t kind, uint8_t role, uint8_t predicate,
                       uint8_t callee_role, const char *callee)
{
    for (size_t i = bench->count; i-- > 0;) {
        const seen_instance *seen = &bench->list[i];
        if (seen->population.kind != kind || seen->population.role != role)
            continue;
        for (uint32_t f = 0; f < seen->fact_count; ++f) {
            const tocsin_fact_key *fact = &seen->facts[f];
            if (fact->predicate == predicate && fact->role == callee_role &&
                (callee == NULL ||
                 strcmp(tocsin_symbol_text(bench->vocabulary, fact->name), callee) == 0))
                return true;
        }
        return false;
    }
    fail_msg("no such instance");
    return false;
}

static const char *field_text(const relation_bench *bench, const seen_instance *seen,
                              const char *name)
{
    for (uint32_t i = 0; i < seen->field_count; ++i)
        if (strcmp(tocsin_symbol_text(bench->vocabulary, seen->fields[i].name), name) == 0)
            return tocsin_scalar_literal(bench->vocabulary, seen->fields[i].a).text;
    return NULL;
}

/* ---- every variable ------------------------------------------------------------------------ */

static void test_a_healthy_step(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    for (int i = 0; i < 3; ++i)
        train(&bench->process[0], (fake_step){.stage = NULL});
    assert_int_equal(HOLDS(bench, DRIVEN_PARAMETER, NULL, DATA_CHANGES), 6);
    assert_int_equal(HOLDS(bench, HELD_PARAMETER, NULL, IN_MODEL), 6);
    assert_int_equal(HOLDS(bench, TRAINABLE_PARAMETER, NULL, GRADIENT_PRESENT), 6);
    assert_int_equal(HOLDS(bench, MODEL_PARAMETER, NULL, IN_OPTIMIZER), 6);
    assert_int_equal(HOLDS(bench, PARAMETER, NULL, FINITE), 6);
    assert_int_equal(HOLDS(bench, GRADIENT, NULL, FINITE), 6);
    assert_int_equal(HOLDS(bench, EFFECTIVE_CALL, NULL, CHANGES_PARAMETER), 3);
    assert_int_equal(HOLDS(bench, SAMPLED_CALL, NULL, FINDS_GRADIENT), 3);
    assert_int_equal(HOLDS(bench, SAMPLED_CALL, NULL, HOLDS_TRAINABLE), 3);
    /* not at the first step: nothing to clear */
    assert_int_equal(HOLDS(bench, RETURNING_PARAMETER, NULL, GRADIENT_CLEARED), 4);
    assert_int_equal(FAILS(bench, RETURNING_PARAMETER, NULL, GRADIENT_CLEARED), 0);
    assert_int_equal(FAILS(bench, DRIVEN_PARAMETER, NULL, DATA_CHANGES), 0);
    assert_int_equal(JUDGED(bench, IDLE_PARAMETER, NULL), 0);
    assert_int_equal(JUDGED(bench, FROZEN_PARAMETER, NULL), 0);
    assert_int_equal(JUDGED(bench, REPLICAS, NULL), 0);
    assert_int_equal(bench->list[bench->count - 1].step, 3);
    bench_free(bench);
}

static void test_a_stuck_parameter_is_named(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    train(&bench->process[0], (fake_step){.stage = NULL});
    bench->process[0].parameters[1].stuck = true;
    forget(bench);
    train(&bench->process[0], (fake_step){.stage = NULL});
    assert_int_equal(FAILS(bench, DRIVEN_PARAMETER, "fc2.weight", DATA_CHANGES), 1);
    assert_int_equal(HOLDS(bench, DRIVEN_PARAMETER, "fc1.weight", DATA_CHANGES), 1);
    assert_int_equal(HOLDS(bench, EFFECTIVE_CALL, NULL, CHANGES_PARAMETER), 1);
    bench->process[0].parameters[0].stuck = true;
    train(&bench->process[0], (fake_step){.stage = NULL});
    assert_int_equal(FAILS(bench, EFFECTIVE_CALL, NULL, CHANGES_PARAMETER), 1);
    for (size_t i = 0; i < bench->count; ++i)
        if (bench->list[i].population.kind == TOCSIN_POPULATION_DRIVEN_PARAMETER)
            assert_true(bench->list[i].line > 0);
    bench_free(bench);
}

static void test_legitimate_standstill_is_not_judged(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_parameter *p = bench->process[0].parameters;
    train(&bench->process[0], (fake_step){.lr = -1}); /* warm-up from lr = 0 */
    p[0].zero_gradient = p[1].zero_gradient = true;
    train(&bench->process[0], (fake_step){.stage = NULL});
    p[0].zero_gradient = p[1].zero_gradient = false;
    p[0].dtype = p[1].dtype = TOCSIN_DTYPE_BFLOAT16;
    p[0].stuck = p[1].stuck = true;
    train(&bench->process[0], (fake_step){.stage = NULL});
    p[0].dtype = p[1].dtype = TOCSIN_DTYPE_FLOAT32;
    p[0].gradient = p[1].gradient = 1e-9; /* below the resolution of weights of 1 */
    train(&bench->process[0], (fake_step){.stage = NULL});
    assert_int_equal(JUDGED(bench, DRIVEN_PARAMETER, NULL), 0);
    assert_int_equal(JUDGED(bench, EFFECTIVE_CALL, NULL), 0);
    p[0].absmax = p[1].absmax = 1e-9; /* of weights as small it is visible */
    train(&bench->process[0], (fake_step){.stage = NULL});
    train(&bench->process[0], (fake_step){.stage = NULL});
    assert_int_equal(FAILS(bench, DRIVEN_PARAMETER, NULL, DATA_CHANGES), 4);
    bench_free(bench);
}

static void test_none_gradients_and_frozen_parameters_stay(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    process->parameters[0].no_gradient = true;
    add_parameter(process, (fake_parameter){.name = "embedding",
                                            .flags = TOCSIN_STATE_IS_LEAF | TOCSIN_STATE_IN_MODEL,
                                            .no_gradient = true});
    train(process, (fake_step){.stage = NULL});
    assert_int_equal(FAILS(bench, TRAINABLE_PARAMETER, "fc1.weight", GRADIENT_PRESENT), 1);
    assert_int_equal(JUDGED(bench, TRAINABLE_PARAMETER, "embedding"), 0);
    assert_int_equal(HOLDS(bench, IDLE_PARAMETER, "fc1.weight", DATA_STAYS), 1);
    assert_int_equal(HOLDS(bench, FROZEN_PARAMETER, "embedding", DATA_STAYS), 1);
    assert_int_equal(JUDGED(bench, MODEL_PARAMETER, "embedding"), 0);
    process->parameters[0].moves = process->parameters[2].moves = true;
    train(process, (fake_step){.stage = NULL});
    assert_int_equal(FAILS(bench, IDLE_PARAMETER, "fc1.weight", DATA_STAYS), 1);
    assert_int_equal(FAILS(bench, FROZEN_PARAMETER, "embedding", DATA_STAYS), 1);
    bench_free(bench);
}

static void test_stale_optimizer(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    process->parameters[1].flags =
        FAKE_TRAINABLE & ~(uint32_t)(TOCSIN_STATE_IN_OPTIMIZER | TOCSIN_STATE_IN_THIS_OPTIMIZER);
    add_parameter(process,
                  (fake_parameter){.name = "optimizer0.group0.param1",
                                   .flags = FAKE_TRAINABLE & ~(uint32_t)TOCSIN_STATE_IN_MODEL,
                                   .no_gradient = true});
    train(process, (fake_step){.stage = NULL});
    assert_int_equal(FAILS(bench, MODEL_PARAMETER, "fc2.weight", IN_OPTIMIZER), 1);
    assert_int_equal(FAILS(bench, DRIVEN_PARAMETER, "fc2.weight", DATA_CHANGES), 1);
    assert_int_equal(FAILS(bench, HELD_PARAMETER, "optimizer0.group0.param1", IN_MODEL), 1);
    assert_int_equal(HOLDS(bench, EFFECTIVE_CALL, NULL, CHANGES_PARAMETER), 1);
    bench_free(bench);
}

static void test_everything_frozen(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    for (size_t i = 0; i < 2; ++i) {
        process->parameters[i].flags &= ~(uint32_t)TOCSIN_STATE_REQUIRES_GRAD;
        process->parameters[i].no_gradient = true;
    }
    train(process, (fake_step){.stage = NULL});
    assert_int_equal(FAILS(bench, SAMPLED_CALL, NULL, FINDS_GRADIENT), 1);
    assert_int_equal(FAILS(bench, SAMPLED_CALL, NULL, HOLDS_TRAINABLE), 1);
    assert_int_equal(JUDGED(bench, EFFECTIVE_CALL, NULL), 0);
    bench_free(bench);
}

static void test_two_optimizers_mind_their_own(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    uint32_t mine = FAKE_TRAINABLE;
    uint32_t other = FAKE_TRAINABLE & ~(uint32_t)TOCSIN_STATE_IN_THIS_OPTIMIZER;
    for (int i = 0; i < 3; ++i) {
        process->parameters[0].flags = mine;
        process->parameters[1].flags = other;
        train(process, (fake_step){.stage = NULL});
        process->parameters[0].flags = other;
        process->parameters[1].flags = mine;
        train(process, (fake_step){.same_optimizer_only = true});
    }
    assert_int_equal(HOLDS(bench, DRIVEN_PARAMETER, NULL, DATA_CHANGES), 6);
    assert_int_equal(FAILS(bench, DRIVEN_PARAMETER, NULL, DATA_CHANGES), 0);
    assert_int_equal(FAILS(bench, RETURNING_PARAMETER, NULL, GRADIENT_CLEARED), 0);
    assert_int_equal(HOLDS(bench, RETURNING_PARAMETER, NULL, GRADIENT_CLEARED), 4);
    assert_int_equal(FAILS(bench, MODEL_PARAMETER, NULL, IN_OPTIMIZER), 0);
    bench_free(bench);
}

static void test_gradients_that_are_not_cleared(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    for (int i = 0; i < 3; ++i)
        train(&bench->process[0], (fake_step){.no_zero_grad = true});
    assert_int_equal(FAILS(bench, RETURNING_PARAMETER, "fc1.weight", GRADIENT_CLEARED), 2);
    assert_int_equal(HOLDS(bench, RETURNING_PARAMETER, NULL, GRADIENT_CLEARED), 0);
    for (size_t i = 0; i < bench->count; ++i)
        if (bench->list[i].population.kind == TOCSIN_POPULATION_RETURNING_PARAMETER)
            assert_true(bench->list[i].step >= 2);
    bench_free(bench);
}

static void test_ways_to_clear_gradients(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    train(process, (fake_step){.stage = NULL});
    forget(bench);
    /* accumulation: only the first backward starts from none */
    train(process, (fake_step){.micro_steps = 6});
    assert_int_equal(HOLDS(bench, RETURNING_PARAMETER, NULL, GRADIENT_CLEARED), 2);
    /* p.grad = None, without a call of zero_grad: seen when backward starts */
    enter(process, "torch.Tensor.backward", TOCSIN_ROLE_BACKWARD);
    gradients(process, TOCSIN_MOMENT_ENTER, false, 0);
    leave(process, "torch.Tensor.backward", TOCSIN_ROLE_BACKWARD);
    optimizer_step(process, 0.1);
    assert_int_equal(HOLDS(bench, RETURNING_PARAMETER, NULL, GRADIENT_CLEARED), 4);
    /* set_to_none=False: present and zero */
    enter(process, "torch.optim.Optimizer.zero_grad", TOCSIN_ROLE_ZERO_GRAD);
    gradients(process, TOCSIN_MOMENT_EXIT, true, 0);
    leave(process, "torch.optim.Optimizer.zero_grad", TOCSIN_ROLE_ZERO_GRAD);
    optimizer_step(process, 0.1);
    assert_int_equal(HOLDS(bench, RETURNING_PARAMETER, NULL, GRADIENT_CLEARED), 6);
    /* nothing was looked at in between: not judged */
    optimizer_step(process, 0.1);
    assert_int_equal(JUDGED(bench, RETURNING_PARAMETER, NULL), 6);
    bench_free(bench);
}

static void test_numbers_that_are_not_finite(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    add_parameter(process, (fake_parameter){.name = "mask",
                                            .kind = TOCSIN_VARIABLE_BUFFER,
                                            .flags = TOCSIN_STATE_IN_MODEL,
                                            .bad = 6});
    process->parameters[0].bad_gradient = 3;
    process->parameters[1].bad = 1;
    train(process, (fake_step){.stage = NULL});
    assert_int_equal(FAILS(bench, GRADIENT, "fc1.weight", FINITE), 1);
    assert_int_equal(HOLDS(bench, GRADIENT, "fc2.weight", FINITE), 1);
    assert_int_equal(FAILS(bench, PARAMETER, "fc2.weight", FINITE), 1);
    assert_int_equal(JUDGED(bench, BUFFER, "mask"), 0); /* a constant mask of -Inf is healthy */
    process->parameters[2].moves = true;
    train(process, (fake_step){.stage = NULL});
    assert_int_equal(FAILS(bench, BUFFER, "mask", FINITE), 1);
    bench_free(bench);
}

/* ---- calls in calls, and sequences --------------------------------------------------------- */

static void test_calls_inside_calls(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    enter(process, "outer", TOCSIN_ROLE_NONE);
    enter(process, "middle", TOCSIN_ROLE_NONE);
    call(process, "inner", TOCSIN_ROLE_CLIP_GRAD);
    leave(process, "middle", TOCSIN_ROLE_NONE);
    enter(process, "broken", TOCSIN_ROLE_NONE);
    leave_with(process, "broken", TOCSIN_ROLE_NONE, TOCSIN_EVENT_RAISE, NULL, 0);
    leave(process, "outer", TOCSIN_ROLE_NONE);
    const seen_instance *outer = NULL;
    for (size_t i = 0; i < bench->count; ++i)
        if (bench->list[i].population.kind == TOCSIN_POPULATION_CALL)
            outer = &bench->list[i];
    assert_non_null(outer);
    assert_string_equal(outer->entity, "outer");
    assert_true(latest_has(bench, TOCSIN_POPULATION_CALL, 0, TOCSIN_PREDICATE_CALLS, 0, "middle"));
    assert_false(latest_has(bench, TOCSIN_POPULATION_CALL, 0, TOCSIN_PREDICATE_CALLS, 0, "inner"));
    assert_false(latest_has(bench, TOCSIN_POPULATION_CALL, 0, TOCSIN_PREDICATE_CALLS, 0, "broken"));
    assert_true(latest_has(bench, TOCSIN_POPULATION_CALL, 0, TOCSIN_PREDICATE_CALLS,
                           TOCSIN_ROLE_CLIP_GRAD, NULL));
    bench_free(bench);
}

static void test_a_lost_exit_does_not_swallow_what_follows(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    enter(process, "outer", TOCSIN_ROLE_NONE);
    enter(process, "lost", TOCSIN_ROLE_NONE);
    --process->depth; /* its EXIT never comes */
    call(process, "inner", TOCSIN_ROLE_NONE);
    leave(process, "outer", TOCSIN_ROLE_NONE);
    call(process, "later", TOCSIN_ROLE_NONE);
    assert_string_equal(bench->list[bench->count - 1].entity, "later");
    tocsin_event stray = {.kind = TOCSIN_EVENT_EXIT, .call = 12345};
    emit(process, &stray);
    bench_free(bench);
}

static void test_sequences(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    const uint8_t step = TOCSIN_ROLE_OPTIMIZER_STEP, follows = TOCSIN_PREDICATE_FOLLOWS;
    const uint8_t kind = TOCSIN_POPULATION_REPEATED_CALL;
    train(process, (fake_step){.stage = NULL});
    assert_int_equal(JUDGED(bench, REPEATED_CALL, NULL), 0); /* all are first in their thread */
    train(process, (fake_step){.stage = NULL});
    assert_true(latest_has(bench, kind, step, follows, TOCSIN_ROLE_ZERO_GRAD, NULL));
    assert_true(latest_has(bench, kind, step, follows, TOCSIN_ROLE_BACKWARD, NULL));
    train(process, (fake_step){.no_zero_grad = true});
    assert_false(latest_has(bench, kind, step, follows, TOCSIN_ROLE_ZERO_GRAD, NULL));
    assert_true(latest_has(bench, kind, step, follows, TOCSIN_ROLE_LOSS, NULL));
    train(process, (fake_step){.no_backward = true});
    assert_false(latest_has(bench, kind, step, follows, TOCSIN_ROLE_BACKWARD, NULL));
    bench_free(bench);
}

static void test_a_loop_is_no_sequence(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    train(&bench->process[0], (fake_step){.micro_steps = 9});
    size_t backward = 0;
    for (size_t i = 0; i < bench->count; ++i)
        backward += bench->list[i].population.kind == TOCSIN_POPULATION_REPEATED_CALL &&
                    bench->list[i].population.role == TOCSIN_ROLE_BACKWARD;
    assert_int_equal(backward, 3); /* the 2nd to the 4th */
    bench_free(bench);
}

static void test_functions_of_one_role_are_told_apart(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    call(process, "Module.eval", TOCSIN_ROLE_MODE);
    call(process, "Module.train", TOCSIN_ROLE_MODE);
    call(process, "Module.eval", TOCSIN_ROLE_MODE);
    assert_true(latest_has(bench, TOCSIN_POPULATION_REPEATED_CALL, 0, TOCSIN_PREDICATE_FOLLOWS, 0,
                           "Module.train"));
    call(process, "Module.eval", TOCSIN_ROLE_MODE);
    assert_false(latest_has(bench, TOCSIN_POPULATION_REPEATED_CALL, 0, TOCSIN_PREDICATE_FOLLOWS, 0,
                            "Module.train"));
    bench_free(bench);
}

static void test_threads_have_sequences_of_their_own(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    call(process, "step", TOCSIN_ROLE_SCHEDULER_STEP);
    process->thread = 2;
    call(process, "step", TOCSIN_ROLE_SCHEDULER_STEP);
    call(process, "backward", TOCSIN_ROLE_BACKWARD);
    process->thread = 1;
    assert_int_equal(JUDGED(bench, REPEATED_CALL, NULL), 0);
    call(process, "step", TOCSIN_ROLE_SCHEDULER_STEP);
    assert_false(latest_has(bench, TOCSIN_POPULATION_REPEATED_CALL, TOCSIN_ROLE_SCHEDULER_STEP,
                            TOCSIN_PREDICATE_FOLLOWS, TOCSIN_ROLE_BACKWARD, NULL));
    bench_free(bench);
}

/* ---- arguments and outputs ----------------------------------------------------------------- */

static bool last_has_argument(const relation_bench *bench, const char *field, const char *text)
{
    for (size_t i = bench->count; i-- > 0;) {
        const seen_instance *seen = &bench->list[i];
        if (seen->population.kind != TOCSIN_POPULATION_CALL_ARGUMENTS)
            continue;
        for (uint32_t f = 0; f < seen->fact_count; ++f) {
            const tocsin_fact_key *fact = &seen->facts[f];
            tocsin_string said = {0};
            tocsin_literal value = tocsin_scalar_literal(bench->vocabulary, fact->value);
            if (value.kind == TOCSIN_VALUE_FLOAT)
                tocsin_string_printf(&said, "%g", value.real);
            else if (value.kind == TOCSIN_VALUE_STRING)
                tocsin_string_append_text(&said, value.text);
            else
                tocsin_string_printf(&said, "%lld", (long long)value.integer);
            bool equal = strcmp(tocsin_symbol_text(bench->vocabulary, fact->name), field) == 0 &&
                         strcmp(tocsin_string_text(&said), text) == 0;
            tocsin_string_free(&said);
            if (equal)
                return true;
        }
        return false;
    }
    return false;
}

static void test_arguments(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    tocsin_value values[5] = {
        tensor_value(process, "input", TOCSIN_DTYPE_FLOAT32, 16, 4),
        {.kind = TOCSIN_VALUE_FLOAT, .name = define_string(process, "p"), .as.real = 0.25},
        {.kind = TOCSIN_VALUE_INT, .name = define_string(process, "size"), .as.integer = 4096},
        {.kind = TOCSIN_VALUE_BOOL, .name = define_string(process, "training"), .as.integer = 1},
        {.kind = TOCSIN_VALUE_STRING, .name = define_string(process, "reduction")}};
    values[4].as.text = define_string(process, "mean");
    enter_with(process, "dropout", TOCSIN_ROLE_NONE, values, 5);
    leave(process, "dropout", TOCSIN_ROLE_NONE);
    assert_true(last_has_argument(bench, "arg.p", "0.25"));
    assert_true(last_has_argument(bench, "arg.training", "1"));
    assert_true(last_has_argument(bench, "arg.reduction", "mean"));
    assert_true(last_has_argument(bench, "arg.input.dtype", "float32"));
    assert_true(last_has_argument(bench, "arg.input.ndim", "2"));
    assert_false(last_has_argument(bench, "arg.size", "4096"));
    const seen_instance *seen = &bench->list[0];
    assert_string_equal(field_text(bench, seen, "arg.p"), "a float");
    assert_string_equal(field_text(bench, seen, "arg.size"), "an int");
    assert_string_equal(field_text(bench, seen, "arg.reduction"), "mean");
    bench_free(bench);
}

static void test_repeated_arguments(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    tocsin_value value = {.kind = TOCSIN_VALUE_INT, .name = define_string(process, "layer")};
    for (int i = 0; i < 3; ++i) {
        value.as.integer = i;
        enter_with(process, "my_init", TOCSIN_ROLE_USER, &value, 1);
        leave(process, "my_init", TOCSIN_ROLE_USER);
    }
    assert_int_equal(HOLDS(bench, FURTHER_CALL, NULL, DISTINCT), 2);
    enter_with(process, "my_init", TOCSIN_ROLE_USER, &value, 1);
    leave(process, "my_init", TOCSIN_ROLE_USER);
    assert_int_equal(FAILS(bench, FURTHER_CALL, NULL, DISTINCT), 1);
    meta_int(process, "step", 1); /* another step: not a repetition */
    enter_with(process, "my_init", TOCSIN_ROLE_USER, &value, 1);
    leave(process, "my_init", TOCSIN_ROLE_USER);
    assert_int_equal(JUDGED(bench, FURTHER_CALL, NULL), 3);
    bench_free(bench);
}

static void test_outputs(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    tocsin_value input = tensor_value(process, "input", TOCSIN_DTYPE_BFLOAT16, 16, 4);
    tocsin_value same = tensor_value(process, "return", TOCSIN_DTYPE_BFLOAT16, 16, 4);
    tocsin_value cut = tensor_value(process, "return", TOCSIN_DTYPE_FLOAT32, 1, 4);
    enter_with(process, "relu", TOCSIN_ROLE_NONE, &input, 1);
    leave_with(process, "relu", TOCSIN_ROLE_NONE, TOCSIN_EVENT_EXIT, &same, 1);
    const seen_instance *seen = &bench->list[bench->count - 1];
    while (seen->population.kind != TOCSIN_POPULATION_CALL_OUTPUT)
        --seen;
    assert_int_equal(seen->fact_count, 3 + 4); /* dtype, ndim, requires_grad; 4 that match */
    enter_with(process, "relu", TOCSIN_ROLE_NONE, &input, 1);
    leave_with(process, "relu", TOCSIN_ROLE_NONE, TOCSIN_EVENT_EXIT, &cut, 1);
    seen = &bench->list[bench->count - 1];
    while (seen->population.kind != TOCSIN_POPULATION_CALL_OUTPUT)
        --seen;
    assert_int_equal(seen->fact_count, 3 + 1); /* of the matches only ndim is left */
    bench_free(bench);
}

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
    tocsin_wanted wanted = {&wanted_population, 1, &wanted_fact, 1};
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

static tocsin_status refuse(void *context, const tocsin_instance *instance, tocsin_error *error)
{
    (void)context;
    (void)instance;
    return tocsin_error_set(error, TOCSIN_E_IO, "no more");
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
        cmocka_unit_test(test_a_healthy_step),
        cmocka_unit_test(test_a_stuck_parameter_is_named),
        cmocka_unit_test(test_legitimate_standstill_is_not_judged),
        cmocka_unit_test(test_none_gradients_and_frozen_parameters_stay),
        cmocka_unit_test(test_stale_optimizer),
        cmocka_unit_test(test_everything_frozen),
        cmocka_unit_test(test_two_optimizers_mind_their_own),
        cmocka_unit_test(test_gradients_that_are_not_cleared),
        cmocka_unit_test(test_ways_to_clear_gradients),
        cmocka_unit_test(test_numbers_that_are_not_finite),
        cmocka_unit_test(test_calls_inside_calls),
        cmocka_unit_test(test_a_lost_exit_does_not_swallow_what_follows),
        cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_a_loop_is_no_sequence),
        cmocka_unit_test(test_functions_of_one_role_are_told_apart),
        cmocka_unit_test(test_threads_have_sequences_of_their_own),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_repeated_arguments),
        cmocka_unit_test(test_outputs),
        cmocka_unit_test(test_replicas),
        cmocka_unit_test(test_a_stalled_process_holds_up_nobody),
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_only_what_is_wanted),
        cmocka_unit_test(test_a_failing_sink_stops_the_observer),
        cmocka_unit_test(test_too_deep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
