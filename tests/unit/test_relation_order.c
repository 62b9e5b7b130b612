/* Relations over the order of calls that the shipped library judges: clipping under a GradScaler,
 * schedulers, checkpointed regions, evaluations of what was never trained. What is healthy and near
 * to a mistake is judged and holds, or is not judged. */
#include "library_bench.h"

#define SCALER(name) "torch.amp.GradScaler." name, TOCSIN_ROLE_SCALER

static tocsin_value number(fake_process *process, const char *name, double real)
{
    return (tocsin_value){
        .kind = TOCSIN_VALUE_FLOAT, .name = define_string(process, name), .as.real = real};
}

/* ---- clipping ------------------------------------------------------------------------------ */

static void clip(fake_process *process, double limit)
{
    tocsin_value values[] = {{.kind = TOCSIN_VALUE_OBJECT, .name = define_string(process, "arg0")},
                             number(process, "arg1", limit)};
    enter_with(process, "torch.nn.utils.clip_grad_norm_", TOCSIN_ROLE_CLIP_GRAD, values, 2);
    leave(process, "torch.nn.utils.clip_grad_norm_", TOCSIN_ROLE_CLIP_GRAD);
}

static void scaled_step(fake_process *process, bool unscaled)
{
    enter(process, SCALER("step"));
    if (!unscaled)
        call(process, SCALER("unscale_"));
    optimizer_step(process, 0.1);
    leave(process, SCALER("step"));
}

static void update_scale(fake_process *process, double scale)
{
    enter(process, SCALER("update"));
    meta_value(process, "scaler.scale", number(process, "", scale));
    leave(process, SCALER("update"));
}

typedef struct scaled_update {
    bool unscaled;
    double limit; /* 0: no clipping */
    double scale; /* 0: 1024 */
} scaled_update;

static void scaled(fake_process *process, scaled_update how)
{
    call(process, SCALER("scale"));
    call(process, "torch.autograd.backward", TOCSIN_ROLE_BACKWARD);
    if (how.unscaled)
        call(process, SCALER("unscale_"));
    if (how.limit > 0)
        clip(process, how.limit);
    scaled_step(process, how.unscaled);
    update_scale(process, how.scale > 0 ? how.scale : 1024);
}

static size_t wrong_clippings(scaled_update how)
{
    relation_bench *bench = library_bench();
    for (int i = 0; i < 3; ++i)
        scaled(&bench->process[0], how);
    size_t count = FAILS(bench, UNSCALING, NULL, BEFORE_CLIPPING);
    assert_int_equal(count + HOLDS(bench, UNSCALING, NULL, BEFORE_CLIPPING), 2);
    bench_free(bench);
    return count;
}

static void test_clipping_of_scaled_gradients(void **state)
{
    (void)state;
    assert_int_equal(wrong_clippings((scaled_update){.limit = 1}), 2); /* not before an update */
    assert_int_equal(wrong_clippings((scaled_update){.limit = 0}), 0);
    assert_int_equal(wrong_clippings((scaled_update){.limit = 1, .unscaled = true}), 0);
    assert_int_equal(wrong_clippings((scaled_update){.limit = 0.5 * 1024}), 0); /* scaled, too */
    assert_int_equal(wrong_clippings((scaled_update){.limit = (double)INFINITY}), 0);
    assert_int_equal(wrong_clippings((scaled_update){.limit = 1, .scale = 1}), 0);
}

static void test_clipping_for_another_optimizer(void **state)
{
    (void)state;
    relation_bench *bench = library_bench();
    fake_process *process = &bench->process[0];
    for (int i = 0; i < 3; ++i) { /* one unscales and clips, the other does neither */
        call(process, "torch.autograd.backward", TOCSIN_ROLE_BACKWARD);
        call(process, "torch.autograd.backward", TOCSIN_ROLE_BACKWARD);
        call(process, SCALER("unscale_"));
        clip(process, 1);
        scaled_step(process, true);
        scaled_step(process, false);
        update_scale(process, 1024);
    }
    assert_int_equal(FAILS(bench, UNSCALING, NULL, BEFORE_CLIPPING), 0);
    assert_true(HOLDS(bench, UNSCALING, NULL, BEFORE_CLIPPING) > 0);
    bench_free(bench);
}

static void test_clipping_of_an_input(void **state)
{
    (void)state;
    relation_bench *bench = library_bench();
    fake_process *process = &bench->process[0];
    for (int parameter = 0; parameter < 2; ++parameter) {
        for (int i = 0; i < 3; ++i) {
            tocsin_value values[] = {
                {.kind = TOCSIN_VALUE_SEQUENCE, .count = 1, .name = define_string(process, "arg0")},
                tensor_value(process, "", TOCSIN_DTYPE_FLOAT32, 2, 2),
                number(process, "arg1", 1)};
            values[1].flags = TOCSIN_VALUE_IN_SEQUENCE;
            if (parameter)
                values[1].flags |= TOCSIN_VALUE_IS_PARAMETER;
            call(process, "torch.autograd.backward", TOCSIN_ROLE_BACKWARD);
            enter_with(process, "torch.nn.utils.clip_grad_norm_", TOCSIN_ROLE_CLIP_GRAD, values, 3);
            leave(process, "torch.nn.utils.clip_grad_norm_", TOCSIN_ROLE_CLIP_GRAD);
            scaled_step(process, false);
            update_scale(process, 1024);
        }
        assert_int_equal(FAILS(bench, UNSCALING, NULL, BEFORE_CLIPPING), parameter ? 3 : 0);
    }
    bench_free(bench);
}

static void test_clipping_beside_a_scaler(void **state)
{
    (void)state;
    relation_bench *bench = library_bench();
    fake_process *process = &bench->process[0];
    for (int i = 0; i < 3; ++i) { /* what is clipped belongs to an optimizer without a scaler */
        call(process, "torch.autograd.backward", TOCSIN_ROLE_BACKWARD);
        clip(process, 1);
        scaled_step(process, false);
        update_scale(process, 1024);
        optimizer_step(process, 0.1);
    }
    assert_int_equal(JUDGED(bench, UNSCALING, NULL), 0);
    bench_free(bench);
}

/* ---- schedulers ---------------------------------------------------------------------------- */

/* memory: which scheduler; epoch: what it is told, negative: nothing. */
static void schedule(fake_process *process, uint32_t memory, int64_t epoch)
{
    tocsin_value values[] = {
        {.kind = TOCSIN_VALUE_OBJECT, .name = define_string(process, "self"), .count = memory},
        {.kind = TOCSIN_VALUE_NONE, .name = define_string(process, "epoch")}};
    if (epoch >= 0) {
        values[1].kind = TOCSIN_VALUE_INT;
        values[1].as.integer = epoch;
    }
    enter_with(process, "torch.optim.lr_scheduler.LRScheduler.step", TOCSIN_ROLE_SCHEDULER_STEP,
               values, 2);
}

static void scheduled(fake_process *process, uint32_t memory, int times)
{
    for (int i = 0; i < times; ++i) {
        schedule(process, memory, -1);
        leave(process, "torch.optim.lr_scheduler.LRScheduler.step", TOCSIN_ROLE_SCHEDULER_STEP);
    }
}

static void test_scheduler_that_runs_ahead(void **state)
{
    (void)state;
    relation_bench *bench = library_bench();
    fake_process *process = &bench->process[0];
    for (int i = 0; i < 3; ++i) {
        train(process, (fake_step){.stage = NULL});
        scheduled(process, 7, 2);
    }
    assert_int_equal(FAILS(bench, SCHEDULED_UPDATE, NULL, KEEPS_PACE), 2);
    scheduled(process, 7, 50); /* plotted at the end */
    assert_int_equal(FAILS(bench, SCHEDULED_UPDATE, NULL, KEEPS_PACE), 2);
    bench_free(bench);
}

static void test_scheduler_of_each_process(void **state)
{
    (void)state;
    relation_bench *bench = library_bench();
    fake_process *process = &bench->process[0];
    meta_int(process, "world_size", 2);
    for (int i = 0; i < 3; ++i) {
        train(process, (fake_step){.stage = NULL});
        scheduled(process, 7, i == 2 ? 3 : 2);
    }
    assert_int_equal(HOLDS(bench, SCHEDULED_UPDATE, NULL, KEEPS_PACE), 2);
    train(process, (fake_step){.stage = NULL});
    assert_int_equal(FAILS(bench, SCHEDULED_UPDATE, NULL, KEEPS_PACE), 1);
    bench_free(bench);
}

static void test_schedulers_in_step(void **state)
{
    (void)state;
    relation_bench *bench = library_bench();
    fake_process *process = &bench->process[0];
    scheduled(process, 7, 20); /* wound forward: training goes on where it was */
    for (int i = 0; i < 4; ++i) {
        train(process, (fake_step){.stage = NULL});
        scheduled(process, 7, 1);
        scheduled(process, 8, 1); /* another one, of the epoch */
        for (int epoch = 0; epoch < 3; ++epoch) {
            schedule(process, 9, epoch); /* is told where to be */
            leave(process, "torch.optim.lr_scheduler.LRScheduler.step", TOCSIN_ROLE_SCHEDULER_STEP);
        }
        schedule(process, 10, -1); /* a sequence of two that are one after the other */
        scheduled(process, 11, 2);
        leave(process, "torch.optim.lr_scheduler.LRScheduler.step", TOCSIN_ROLE_SCHEDULER_STEP);
        call(process, "torch.nn.functional.mse_loss", TOCSIN_ROLE_LOSS); /* not finite: no update */
        scheduled(process, 7, 1);
        if (i == 2)
            scheduled(process, 12, 9); /* a new one is wound forward */
    }
    assert_int_equal(FAILS(bench, SCHEDULED_UPDATE, NULL, KEEPS_PACE), 0);
    assert_int_equal(HOLDS(bench, SCHEDULED_UPDATE, NULL, KEEPS_PACE), 3 * 3);
    bench_free(bench);
}

/* ---- checkpointed regions ------------------------------------------------------------------ */

typedef struct fake_region {
    bool preserved;
    bool draws;
    bool unread; /* the recorder did not read the generators */
    bool seeds;
    bool without_gradient;
} fake_region;

static void read_generator(fake_process *process, uint64_t sum)
{
    tocsin_event event = {.kind = TOCSIN_EVENT_STATE};
    event.state.variable = define_variable(process, "torch", TOCSIN_VARIABLE_RNG);
    event.state.attribute = define_string(process, "value");
    event.state.moment = TOCSIN_MOMENT_EXIT;
    event.state.flags = TOCSIN_STATE_PRESENT | TOCSIN_STATE_DIGESTED;
    event.state.digest.sum = sum;
    emit(process, &event);
}

static void recompute(fake_process *process, fake_region how)
{
    const char *name = "torch.utils.checkpoint.checkpoint";
    tocsin_value preserve = {.kind = TOCSIN_VALUE_BOOL,
                             .name = define_string(process, "preserve_rng_state"),
                             .as.integer = how.preserved};
    tocsin_value result = tensor_value(process, "return", TOCSIN_DTYPE_FLOAT32, 2, 2);
    result.flags = how.without_gradient ? 0 : TOCSIN_VALUE_HAS_GRAD_FN;
    enter_with(process, name, TOCSIN_ROLE_NONE, &preserve, 1);
    if (!how.unread)
        read_generator(process, 5);
    if (how.seeds)
        call(process, "torch.manual_seed", TOCSIN_ROLE_NONE);
    if (!how.unread)
        read_generator(process, how.draws ? 6 : 5);
    leave_with(process, name, TOCSIN_ROLE_NONE, TOCSIN_EVENT_EXIT, &result, 1);
}

static void test_regions_that_draw(void **state)
{
    (void)state;
    relation_bench *bench = library_bench();
    fake_process *process = &bench->process[0];
    recompute(process, (fake_region){.draws = true});
    assert_int_equal(FAILS(bench, RECOMPUTED_CALL, NULL, REDRAWS), 1);
    recompute(process, (fake_region){.draws = false});
    recompute(process, (fake_region){.preserved = true, .draws = true});
    recompute(process, (fake_region){.preserved = true, .unread = true});
    recompute(process, (fake_region){.draws = true, .seeds = true});
    assert_int_equal(HOLDS(bench, RECOMPUTED_CALL, NULL, REDRAWS), 4);
    recompute(process, (fake_region){.draws = true, .without_gradient = true});
    recompute(process, (fake_region){.unread = true}); /* a context_fn, or a mode */
    assert_int_equal(JUDGED(bench, RECOMPUTED_CALL, NULL), 5);
    bench_free(bench);
}

/* ---- evaluated first ----------------------------------------------------------------------- */

static void normalize(fake_process *process, uint32_t memory, bool training)
{
    const char *name = "torch.nn.utils.spectral_norm.SpectralNorm.compute_weight";
    tocsin_value values[] = {
        {.kind = TOCSIN_VALUE_OBJECT, .name = define_string(process, "self"), .count = memory},
        {.kind = TOCSIN_VALUE_MODULE,
         .name = define_string(process, "module"),
         .as.text = define_string(process, "critic.0"),
         .flags = training ? TOCSIN_VALUE_TRAINING : 0}};
    enter_with(process, name, TOCSIN_ROLE_NONE, values, 2);
    leave(process, name, TOCSIN_ROLE_NONE);
}

static size_t evaluations_too_early(bool loaded, bool updated)
{
    relation_bench *bench = library_bench();
    fake_process *process = &bench->process[0];
    if (loaded)
        call(process, "torch.nn.Module.load_state_dict", TOCSIN_ROLE_CHECKPOINT);
    if (updated) /* then it may be a copy of what was trained */
        train(process, (fake_step){.stage = NULL});
    normalize(process, 1, false);
    normalize(process, 1, true);
    normalize(process, 2, true);
    normalize(process, 2, false);
    normalize(process, 2, true);
    normalize(process, 3, false); /* never trained: only asked */
    size_t count = FAILS(bench, FIRST_TRAINING, "critic.0", NOT_EVALUATED);
    assert_int_equal(JUDGED(bench, FIRST_TRAINING, NULL), 2);
    bench_free(bench);
    return count;
}

static void test_evaluation_before_training(void **state)
{
    (void)state;
    assert_int_equal(evaluations_too_early(false, false), 1);
    assert_int_equal(evaluations_too_early(true, false), 0);
    assert_int_equal(evaluations_too_early(false, true), 0);
}

/* ---- what follows a call ------------------------------------------------------------------- */

static relation_bench *wide_bench(void)
{
    relation_bench *made = calloc(1, sizeof *made);
    assert_int_equal(tocsin_vocabulary_new(&made->vocabulary, NULL), TOCSIN_OK);
    tocsin_observer_options options = {
        .vocabulary = made->vocabulary, .sink = collect, .context = made, .wide = true};
    assert_int_equal(tocsin_observer_new(&options, &made->observer, NULL), TOCSIN_OK);
    for (size_t i = 0; i < 2; ++i) {
        made->process[i].observer = made->observer;
        made->process[i].index = i;
    }
    fake_start(&made->process[0]);
    return made;
}

/* How many calls of the role `role` were judged and have (or lack) `callee` after them? */
static size_t led(const relation_bench *bench, uint8_t role, uint8_t callee, bool holds)
{
    size_t count = 0;
    for (size_t i = 0; i < bench->count; ++i) {
        const seen_instance *seen = &bench->list[i];
        bool found = false;
        for (uint32_t f = 0; f < seen->fact_count; ++f)
            found |=
                seen->facts[f].predicate == TOCSIN_PREDICATE_LEADS && seen->facts[f].role == callee;
        count += seen->population.kind == TOCSIN_POPULATION_LEADING_CALL &&
                 seen->population.role == role && found == holds;
    }
    return count;
}

static void finish_run(relation_bench *bench, bool ended)
{
    if (ended)
        meta_int(&bench->process[0], "cost_ns_per_step", 1000);
    assert_int_equal(tocsin_observer_finish(bench->observer, NULL), TOCSIN_OK);
}

static void test_the_last_call(void **state)
{
    (void)state;
    for (int ended = 0; ended < 2; ++ended) {
        relation_bench *bench = wide_bench();
        for (int i = 0; i < 3; ++i)
            train(&bench->process[0], (fake_step){.stage = NULL});
        assert_int_equal(led(bench, TOCSIN_ROLE_BACKWARD, TOCSIN_ROLE_OPTIMIZER_STEP, true), 2);
        finish_run(bench, ended);
        assert_int_equal(led(bench, TOCSIN_ROLE_BACKWARD, TOCSIN_ROLE_OPTIMIZER_STEP, true),
                         2 + ended);
        /* the loop ends with an update: no pass follows the last one */
        assert_int_equal(led(bench, TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_ROLE_BACKWARD, true), 2);
        assert_int_equal(led(bench, TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_ROLE_BACKWARD, false),
                         ended);
        bench_free(bench);
    }
}

static void test_a_pass_that_nothing_uses(void **state)
{
    (void)state;
    relation_bench *bench = wide_bench();
    fake_process *process = &bench->process[0];
    for (int i = 0; i < 2; ++i)
        train(process, (fake_step){.stage = NULL});
    call(process, "torch.autograd.backward", TOCSIN_ROLE_BACKWARD);
    finish_run(bench, true);
    assert_int_equal(led(bench, TOCSIN_ROLE_BACKWARD, TOCSIN_ROLE_OPTIMIZER_STEP, true), 2);
    assert_int_equal(led(bench, TOCSIN_ROLE_BACKWARD, TOCSIN_ROLE_OPTIMIZER_STEP, false), 1);
    bench_free(bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clipping_of_scaled_gradients),
        cmocka_unit_test(test_clipping_for_another_optimizer),
        cmocka_unit_test(test_clipping_of_an_input),
        cmocka_unit_test(test_clipping_beside_a_scaler),
        cmocka_unit_test(test_scheduler_that_runs_ahead),
        cmocka_unit_test(test_scheduler_of_each_process),
        cmocka_unit_test(test_schedulers_in_step),
        cmocka_unit_test(test_regions_that_draw),
        cmocka_unit_test(test_evaluation_before_training),
        cmocka_unit_test(test_the_last_call),
        cmocka_unit_test(test_a_pass_that_nothing_uses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
