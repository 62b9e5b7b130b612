/* Relations within a process: what is judged, what is not, and the traps of training. */
#include "seen_instances.h"

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
    assert_int_equal(FAILS(bench, DRIVEN_PARAMETER, NULL, DATA_CHANGES), 2);
    bench_free(bench);
}

static void test_none_gradients_and_frozen_parameters_stay(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    process->parameters[0].no_gradient = true;
    add_parameter(process,
                  (fake_parameter){.name = "embedding",
                                   .flags = FAKE_TRAINABLE & ~(uint32_t)TOCSIN_STATE_REQUIRES_GRAD,
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

/* Written to between steps: it moves, however often it is read. An average of the weights, which no
 * optimizer holds, may. */
static void test_changes_between_steps_count(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    const uint32_t frozen = FAKE_TRAINABLE & ~(uint32_t)TOCSIN_STATE_REQUIRES_GRAD;
    add_parameter(process,
                  (fake_parameter){.name = "frozen", .flags = frozen, .no_gradient = true});
    add_parameter(process,
                  (fake_parameter){.name = "average",
                                   .flags = frozen & ~(uint32_t)TOCSIN_STATE_IN_THIS_OPTIMIZER,
                                   .no_gradient = true});
    train(process, (fake_step){.stage = NULL});
    assert_int_equal(HOLDS(bench, FROZEN_PARAMETER, "frozen", DATA_STAYS), 1);
    process->parameters[2].data += 1;
    process->parameters[3].data += 1;
    train(process, (fake_step){.stage = NULL});
    assert_int_equal(FAILS(bench, FROZEN_PARAMETER, "frozen", DATA_STAYS), 1);
    assert_int_equal(JUDGED(bench, FROZEN_PARAMETER, "average"), 0);
    bench_free(bench);
}

/* Between two digested steps it was trained; in the second it rests. */
static void test_steps_without_digests_are_not_compared_over(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    train(process, (fake_step){.stage = NULL});
    process->undigested = true;
    train(process, (fake_step){.stage = NULL});
    process->undigested = false;
    process->parameters[0].no_gradient = true;
    train(process, (fake_step){.stage = NULL});
    assert_int_equal(HOLDS(bench, IDLE_PARAMETER, "fc1.weight", DATA_STAYS), 1);
    assert_int_equal(FAILS(bench, IDLE_PARAMETER, "fc1.weight", DATA_STAYS), 0);
    bench_free(bench);
}

static void test_a_presence_is_not_told_by_its_dtype(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    train(&bench->process[0], (fake_step){.stage = NULL});
    for (size_t i = 0; i < bench->count; ++i) {
        const seen_instance *seen = &bench->list[i];
        const char *dtype = field_text(bench, seen, "var.dtype");
        if (seen->population.kind == TOCSIN_POPULATION_TRAINABLE_PARAMETER ||
            seen->population.kind == TOCSIN_POPULATION_MODEL_PARAMETER)
            assert_null(dtype);
        if (seen->population.kind == TOCSIN_POPULATION_DRIVEN_PARAMETER)
            assert_string_equal(dtype, "float32");
    }
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

/* An encoder was trained, its optimizer is gone, its gradients are not; now a probe is trained. */
static void test_gradient_left_over(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    for (int i = 0; i < 3; ++i) {
        bool first = i == 0;
        if (!first) {
            process->parameters[1].flags &=
                ~(uint32_t)(TOCSIN_STATE_IN_OPTIMIZER | TOCSIN_STATE_IN_THIS_OPTIMIZER);
            process->parameters[1].kept_gradient = i == 1;
        }
        train(process, (fake_step){.no_zero_grad = true});
    }
    assert_int_equal(FAILS(bench, MODEL_PARAMETER, "fc2.weight", IN_OPTIMIZER), 1);
    assert_int_equal(HOLDS(bench, MODEL_PARAMETER, "fc2.weight", IN_OPTIMIZER), 1);
    assert_int_equal(HOLDS(bench, MODEL_PARAMETER, "fc1.weight", IN_OPTIMIZER), 3);
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

static size_t repeated_calls(const relation_bench *bench, uint8_t role)
{
    size_t count = 0;
    for (size_t i = 0; i < bench->count; ++i)
        count += bench->list[i].population.kind == TOCSIN_POPULATION_REPEATED_CALL &&
                 bench->list[i].population.role == role;
    return count;
}

static void test_what_is_inside_or_again_is_no_sequence(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    enter(process, "backward", TOCSIN_ROLE_BACKWARD);
    call(process, "backward", TOCSIN_ROLE_BACKWARD); /* reentrant checkpointing */
    call(process, "backward", TOCSIN_ROLE_BACKWARD);
    leave(process, "backward", TOCSIN_ROLE_BACKWARD);
    assert_int_equal(repeated_calls(bench, TOCSIN_ROLE_BACKWARD), 0);
    call(process, "zero_grad", TOCSIN_ROLE_ZERO_GRAD);
    call(process, "train", TOCSIN_ROLE_MODE);
    call(process, "zero_grad", TOCSIN_ROLE_ZERO_GRAD); /* once more before the first step */
    assert_int_equal(repeated_calls(bench, TOCSIN_ROLE_ZERO_GRAD), 0);
    call(process, "backward", TOCSIN_ROLE_BACKWARD);
    call(process, "zero_grad", TOCSIN_ROLE_ZERO_GRAD); /* throws a gradient away */
    assert_int_equal(repeated_calls(bench, TOCSIN_ROLE_ZERO_GRAD), 1);
    assert_false(latest_has(bench, TOCSIN_POPULATION_REPEATED_CALL, TOCSIN_ROLE_ZERO_GRAD,
                            TOCSIN_PREDICATE_FOLLOWS, TOCSIN_ROLE_OPTIMIZER_STEP, NULL));
    bench_free(bench);
}

static void test_a_loop_is_no_sequence(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    train(&bench->process[0], (fake_step){.micro_steps = 9});
    assert_int_equal(repeated_calls(bench, TOCSIN_ROLE_BACKWARD), 3); /* the 2nd to the 4th */
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

static void test_what_is_done_to_several_at_once_is_done_once(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    for (int i = 0; i < 2; ++i) { /* one per optimizer, or per process as accelerate does */
        call(process, "zero_grad", TOCSIN_ROLE_ZERO_GRAD);
        call(process, "zero_grad", TOCSIN_ROLE_ZERO_GRAD);
        call(process, "backward", TOCSIN_ROLE_BACKWARD);
        call(process, "step", TOCSIN_ROLE_SCHEDULER_STEP);
        call(process, "step", TOCSIN_ROLE_SCHEDULER_STEP);
    }
    assert_int_equal(JUDGED(bench, REPEATED_CALL, NULL), 3); /* not: the second of two in a row */
    bench_free(bench);
}

static void test_a_scaler_may_skip_the_step(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    for (int i = 0; i < 2; ++i) {
        call(process, "zero_grad", TOCSIN_ROLE_ZERO_GRAD);
        call(process, "torch.amp.GradScaler.step", TOCSIN_ROLE_SCALER);
    }
    call(process, "zero_grad", TOCSIN_ROLE_ZERO_GRAD);
    assert_true(latest_has(bench, TOCSIN_POPULATION_REPEATED_CALL, TOCSIN_ROLE_ZERO_GRAD,
                           TOCSIN_PREDICATE_FOLLOWS, TOCSIN_ROLE_OPTIMIZER_STEP, NULL));
    enter(process, "package.train_step", TOCSIN_ROLE_USER);
    call(process, "torch.amp.GradScaler.step", TOCSIN_ROLE_SCALER);
    leave(process, "package.train_step", TOCSIN_ROLE_USER);
    assert_true(latest_has(bench, TOCSIN_POPULATION_CALL, 0, TOCSIN_PREDICATE_CALLS,
                           TOCSIN_ROLE_OPTIMIZER_STEP, NULL));
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
    call(process, "update", TOCSIN_ROLE_OPTIMIZER_STEP);
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

static void test_modules_are_judged_by_the_functions_they_call(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    tocsin_value input = tensor_value(process, "arg0", TOCSIN_DTYPE_FLOAT32, 16, 4);
    enter_with(process, "torch.nn.Module.__call__", TOCSIN_ROLE_FORWARD, &input, 1);
    leave_with(process, "torch.nn.Module.__call__", TOCSIN_ROLE_FORWARD, TOCSIN_EVENT_EXIT, &input,
               1);
    assert_int_equal(JUDGED(bench, CALL_OUTPUT, NULL), 0);
    assert_int_equal(JUDGED(bench, CALL_ARGUMENTS, NULL), 0);
    assert_int_equal(JUDGED(bench, CALL, "torch.nn.Module.__call__"), 1);
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

/* Losses are arguments, too: their values must not fill the vocabulary of a long run. */
static void test_many_values_are_not_kept(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    tocsin_literal literal = {.kind = TOCSIN_VALUE_FLOAT};
    for (int i = 1; i <= 100; ++i) {
        tocsin_value value = {.kind = TOCSIN_VALUE_FLOAT,
                              .name = define_string(process, "loss"),
                              .as.real = i / 128.0};
        enter_with(process, "log", TOCSIN_ROLE_USER, &value, 1);
        leave(process, "log", TOCSIN_ROLE_USER);
        literal.real = value.as.real;
        assert_int_equal(tocsin_scalar_find(bench->vocabulary, &literal) != 0, i <= 8);
    }
    bench_free(bench);
}

static void test_a_role_of_a_later_version_is_none(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    call(&bench->process[0], "later", (tocsin_role)20);
    assert_true(bench->count > 0);
    for (size_t i = 0; i < bench->count; ++i)
        assert_int_equal(bench->list[i].population.role, TOCSIN_ROLE_NONE);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_healthy_step),
        cmocka_unit_test(test_a_stuck_parameter_is_named),
        cmocka_unit_test(test_legitimate_standstill_is_not_judged),
        cmocka_unit_test(test_none_gradients_and_frozen_parameters_stay),
        cmocka_unit_test(test_changes_between_steps_count),
        cmocka_unit_test(test_steps_without_digests_are_not_compared_over),
        cmocka_unit_test(test_a_presence_is_not_told_by_its_dtype),
        cmocka_unit_test(test_stale_optimizer),
        cmocka_unit_test(test_gradient_left_over),
        cmocka_unit_test(test_everything_frozen),
        cmocka_unit_test(test_two_optimizers_mind_their_own),
        cmocka_unit_test(test_gradients_that_are_not_cleared),
        cmocka_unit_test(test_ways_to_clear_gradients),
        cmocka_unit_test(test_numbers_that_are_not_finite),
        cmocka_unit_test(test_calls_inside_calls),
        cmocka_unit_test(test_a_lost_exit_does_not_swallow_what_follows),
        cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_what_is_inside_or_again_is_no_sequence),
        cmocka_unit_test(test_a_loop_is_no_sequence),
        cmocka_unit_test(test_functions_of_one_role_are_told_apart),
        cmocka_unit_test(test_what_is_done_to_several_at_once_is_done_once),
        cmocka_unit_test(test_a_scaler_may_skip_the_step),
        cmocka_unit_test(test_threads_have_sequences_of_their_own),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_modules_are_judged_by_the_functions_they_call),
        cmocka_unit_test(test_repeated_arguments),
        cmocka_unit_test(test_many_values_are_not_kept),
        cmocka_unit_test(test_a_role_of_a_later_version_is_none),
        cmocka_unit_test(test_outputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
