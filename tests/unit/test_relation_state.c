/* Relations over the state of training that the shipped library judges: mode, ties, stalled
 * weights, evaluations, samples, the plan. What is healthy and near to a mistake is judged and
 * holds, or is not judged. */
#include "library_bench.h"

static void steps(relation_bench *bench, int count)
{
    for (int i = 0; i < count; ++i)
        train(&bench->process[0], (fake_step){.stage = NULL});
}

static void set_training(relation_bench *bench, bool training)
{
    for (size_t i = 0; i < bench->process[0].parameter_count; ++i) {
        uint32_t *flags = &bench->process[0].parameters[i].flags;
        *flags = training ? *flags | TOCSIN_STATE_MODULE_TRAINING
                          : *flags & ~(uint32_t)TOCSIN_STATE_MODULE_TRAINING;
    }
}

/* ---- mode ---------------------------------------------------------------------------------- */

static void test_training_mode_is_kept(void **state)
{
    (void)state;
    relation_bench *bench = library_bench();
    steps(bench, 3);
    assert_int_equal(HOLDS(bench, TRAINED_CALL, NULL, KEEPS_MODE), 2);
    /* a part in evaluation mode is a frozen normalisation layer */
    bench->process[0].parameters[0].flags &= ~(uint32_t)TOCSIN_STATE_MODULE_TRAINING;
    steps(bench, 1);
    assert_int_equal(FAILS(bench, TRAINED_CALL, NULL, KEEPS_MODE), 0);
    set_training(bench, false);
    steps(bench, 1);
    assert_int_equal(FAILS(bench, TRAINED_CALL, NULL, KEEPS_MODE), 1);
    bench_free(bench);
}

static void test_training_in_evaluation_mode_from_the_start(void **state)
{
    (void)state;
    relation_bench *bench = library_bench();
    set_training(bench, false);
    steps(bench, 3);
    assert_int_equal(JUDGED(bench, TRAINED_CALL, NULL), 0);
    set_training(bench, true);
    steps(bench, 2);
    assert_int_equal(FAILS(bench, TRAINED_CALL, NULL, KEEPS_MODE), 0);
    bench_free(bench);
}

static void test_gradients_applied_again(void **state)
{
    (void)state;
    relation_bench *bench = library_bench();
    fake_process *process = &bench->process[0];
    for (int i = 0; i < 2; ++i)
        train(process, (fake_step){.micro_steps = 2});
    assert_int_equal(JUDGED(bench, UNDRIVEN_CALL, NULL), 0); /* there were backward passes */
    optimizer_step(process, 0.1);
    assert_int_equal(HOLDS(bench, UNDRIVEN_CALL, NULL, NEW_GRADIENTS), 1); /* made by hand */
    optimizer_step(process, 0.1);
    assert_int_equal(FAILS(bench, UNDRIVEN_CALL, NULL, NEW_GRADIENTS), 1);
    bench_free(bench);
}

/* ---- ties and stalled weights -------------------------------------------------------------- */

static void test_ties(void **state)
{
    (void)state;
    relation_bench *bench = library_bench();
    fake_parameter *tied = &bench->process[0].parameters[1];
    tied->flags |= TOCSIN_STATE_TIED;
    steps(bench, 3);
    assert_int_equal(HOLDS(bench, TIED_PAIR, "fc2.weight", TIED_STAYS), 2);
    assert_int_equal(JUDGED(bench, TIED_PAIR, "fc1.weight"), 0);
    tied->flags &= ~(uint32_t)TOCSIN_STATE_TIED;
    steps(bench, 2); /* told once */
    assert_int_equal(FAILS(bench, TIED_PAIR, "fc2.weight", TIED_STAYS), 1);
    bench_free(bench);
}

static void test_stalled_weights(void **state)
{
    (void)state;
    relation_bench *bench = library_bench();
    fake_parameter *half = &bench->process[0].parameters[0];
    fake_parameter *full = &bench->process[0].parameters[1];
    half->dtype = TOCSIN_DTYPE_BFLOAT16;
    half->stuck = full->stuck = true;
    steps(bench, 15);
    assert_int_equal(JUDGED(bench, STALLED_PARAMETER, NULL), 0);
    half->stuck = false; /* the 16th update arrives */
    steps(bench, 1);
    assert_int_equal(HOLDS(bench, STALLED_PARAMETER, "fc1.weight", MOVES), 1);
    half->stuck = true;
    half->zero_gradient = true; /* nothing to do: does not count */
    steps(bench, 16);
    half->zero_gradient = false;
    steps(bench, 15);
    assert_int_equal(FAILS(bench, STALLED_PARAMETER, NULL, MOVES), 0);
    steps(bench, 1);
    assert_int_equal(FAILS(bench, STALLED_PARAMETER, "fc1.weight", MOVES), 1);
    assert_int_equal(JUDGED(bench, STALLED_PARAMETER, "fc2.weight"), 0); /* fp32 */
    bench_free(bench);
}

/* ---- evaluations --------------------------------------------------------------------------- */

static void evaluate(relation_bench *bench)
{
    meta_text(&bench->process[0], "stage", "evaluation");
    call(&bench->process[0], "torch.nn.Module.__call__", TOCSIN_ROLE_FORWARD);
}

static void test_evaluation_leaves_weights(void **state)
{
    (void)state;
    relation_bench *bench = library_bench();
    fake_parameter *written = &bench->process[0].parameters[0];
    steps(bench, 3);
    uint64_t earlier = written->data;
    steps(bench, 1);
    evaluate(bench);
    steps(bench, 1);
    assert_int_equal(HOLDS(bench, RESTING_VARIABLE, NULL, DATA_STAYS), 2);
    written->data = earlier; /* the best weights so far */
    evaluate(bench);
    steps(bench, 1);
    assert_int_equal(FAILS(bench, RESTING_VARIABLE, NULL, DATA_STAYS), 0);
    written->data = 12345;
    call(&bench->process[0], "torch.load", TOCSIN_ROLE_CHECKPOINT);
    evaluate(bench);
    steps(bench, 1);
    assert_int_equal(FAILS(bench, RESTING_VARIABLE, NULL, DATA_STAYS), 0);
    written->data = 54321; /* averaged weights that stay */
    evaluate(bench);
    steps(bench, 1);
    assert_int_equal(FAILS(bench, RESTING_VARIABLE, "fc1.weight", DATA_STAYS), 1);
    assert_int_equal(FAILS(bench, RESTING_VARIABLE, "fc2.weight", DATA_STAYS), 0);
    bench_free(bench);
}

static void test_weights_that_scripts_write_to(void **state)
{
    (void)state;
    relation_bench *bench = library_bench();
    for (int i = 0; i < 6; ++i) {
        bench->process[0].parameters[0].data ^= 1 << 20; /* clamped after every update */
        if (i % 2 == 1)
            evaluate(bench);
        steps(bench, 1);
    }
    assert_int_equal(JUDGED(bench, RESTING_VARIABLE, "fc1.weight"), 0);
    assert_true(HOLDS(bench, RESTING_VARIABLE, "fc2.weight", DATA_STAYS) > 0);
    bench_free(bench);
}

/* ---- samples ------------------------------------------------------------------------------- */

typedef struct fake_batch {
    int64_t number, epoch;
    int64_t first; /* of four ids in a row */
    uint64_t digest;
    int64_t workers;
    bool shuffled;
} fake_batch;

static void read_batch(fake_process *process, fake_batch batch)
{
    const struct {
        const char *name;
        int64_t value;
    } facts[] = {{"batch", batch.number}, {"epoch", batch.epoch},     {"size", 4},
                 {"dataset_size", 64},    {"workers", batch.workers}, {"id", batch.first},
                 {"id", batch.first + 1}, {"id", batch.first + 2},    {"id", batch.first + 3}};
    tocsin_value values[TOCSIN_COUNT_OF(facts) + 1];
    size_t count = TOCSIN_COUNT_OF(facts);
    for (size_t i = 0; i < count; ++i)
        values[i] = (tocsin_value){.kind = TOCSIN_VALUE_INT,
                                   .name = define_string(process, facts[i].name),
                                   .as.integer = facts[i].value};
    values[count++] = (tocsin_value){.kind = TOCSIN_VALUE_BOOL,
                                     .name = define_string(process, "shuffle"),
                                     .as.integer = batch.shuffled};
    tocsin_event event = {
        .kind = TOCSIN_EVENT_STATE, .value_count = (uint32_t)count, .values = values};
    event.state =
        (tocsin_state){.variable = define_variable(process, "loader0", TOCSIN_VARIABLE_LEDGER),
                       .attribute = define_string(process, "samples"),
                       .moment = TOCSIN_MOMENT_EXIT,
                       .flags = TOCSIN_STATE_PRESENT | TOCSIN_STATE_DIGESTED,
                       .digest = {batch.digest, batch.digest, batch.digest},
                       .statistics = {.sum_squares = 1, .absmax = 1}};
    enter(process, "torch.utils.data.DataLoader.__next__", TOCSIN_ROLE_DATA_NEXT);
    emit(process, &event);
    leave(process, "torch.utils.data.DataLoader.__next__", TOCSIN_ROLE_DATA_NEXT);
}

static void test_batches_of_ranks(void **state)
{
    (void)state;
    relation_bench *bench = library_bench();
    fake_start(&bench->process[1]);
    for (int rank = 0; rank < 2; ++rank) {
        meta_int(&bench->process[rank], "rank", rank);
        meta_int(&bench->process[rank], "world_size", 2);
    }
    for (int number = 0; number < 3; ++number)
        for (int rank = 0; rank < 2; ++rank) { /* the last of them is the same */
            int64_t first = number * 8 + (number < 2 ? rank * 4 : 0);
            read_batch(&bench->process[rank], (fake_batch){.number = number, .first = first});
            train(&bench->process[rank], (fake_step){.stage = NULL});
        }
    assert_int_equal(HOLDS(bench, BATCH, NULL, DISJOINT), 2);
    assert_int_equal(FAILS(bench, BATCH, "loader0", DISJOINT), 1);
    /* batches that no update follows are those of an evaluation */
    for (int rank = 0; rank < 2; ++rank) {
        read_batch(&bench->process[rank], (fake_batch){.number = 3, .first = 60});
        read_batch(&bench->process[rank], (fake_batch){.number = 4, .first = rank * 4});
        train(&bench->process[rank], (fake_step){.stage = NULL});
    }
    assert_int_equal(FAILS(bench, BATCH, NULL, DISJOINT), 1);
    bench_free(bench);
}

/* ---- epochs of all ranks ------------------------------------------------------------------- */

typedef struct fake_pass {
    const char *sampler;
    int batches;           /* a rank, of 4 samples; there are 64 */
    int64_t replicas;      /* 0: not said */
    bool partial;          /* a sampler that was asked for fewer samples */
    bool left;             /* before its end, on rank 1 */
    bool other_in_between; /* another loader is read in turn with it */
} fake_pass;

static void hand_over(fake_process *process, const char *loader, const fake_pass *pass, int number)
{
    const struct {
        const char *name;
        int64_t value;
    } facts[] = {{"batch", number},
                 {"epoch", 0},
                 {"size", 4},
                 {"id", 4 * number},
                 {"id", 1},
                 {"id", 2},
                 {"id", 3},
                 {"dataset_size", 64},
                 {"replicas", pass->replicas},
                 {"partial", true}};
    tocsin_value values[TOCSIN_COUNT_OF(facts) + 1];
    uint32_t count = 0;
    values[count++] = (tocsin_value){.kind = TOCSIN_VALUE_STRING,
                                     .name = define_string(process, "sampler"),
                                     .as.text = define_string(process, pass->sampler)};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(facts) - (pass->partial ? 0 : 1); ++i)
        if (facts[i].value != 0 || i != 8)
            values[count++] = (tocsin_value){.kind = TOCSIN_VALUE_INT,
                                             .name = define_string(process, facts[i].name),
                                             .as.integer = facts[i].value};
    tocsin_event event = {.kind = TOCSIN_EVENT_STATE, .value_count = count, .values = values};
    event.state =
        (tocsin_state){.variable = define_variable(process, loader, TOCSIN_VARIABLE_LEDGER),
                       .attribute = define_string(process, "samples"),
                       .moment = TOCSIN_MOMENT_EXIT,
                       .flags = TOCSIN_STATE_PRESENT};
    enter(process, "torch.utils.data.DataLoader.__next__", TOCSIN_ROLE_DATA_NEXT);
    emit(process, &event);
    leave(process, "torch.utils.data.DataLoader.__next__", TOCSIN_ROLE_DATA_NEXT);
}

static void run_out(fake_process *process)
{
    tocsin_value why = {.kind = TOCSIN_VALUE_STRING,
                        .as.text = define_string(process, "StopIteration")};
    enter(process, "torch.utils.data.DataLoader.__next__", TOCSIN_ROLE_DATA_NEXT);
    leave_with(process, "torch.utils.data.DataLoader.__next__", TOCSIN_ROLE_DATA_NEXT,
               TOCSIN_EVENT_RAISE, &why, 1);
}

/* 1: judged and whole; -1: only a part; 0: not judged. */
static int judge_pass(fake_pass pass)
{
    relation_bench *bench = library_bench();
    for (int rank = 0; rank < 2; ++rank) {
        fake_process *process = &bench->process[rank];
        if (rank == 1)
            fake_start(process);
        meta_int(process, "rank", rank);
        meta_int(process, "world_size", 2);
        for (int number = 0; number < pass.batches; ++number) {
            hand_over(process, "loader0", &pass, number);
            if (pass.other_in_between)
                hand_over(process, "loader1", &pass, number);
        }
        if (rank == 0 || !pass.left)
            run_out(process);
    }
    int judged = (int)HOLDS(bench, WHOLE_EPOCH, "loader0", COVERS) -
                 (int)FAILS(bench, WHOLE_EPOCH, "loader0", COVERS);
    bench_free(bench);
    return judged;
}

static void test_epochs_of_all_ranks(void **state)
{
    (void)state;
    fake_pass whole = {.sampler = "DistributedSampler", .batches = 8, .replicas = 2};
    fake_pass part = {.sampler = "DistributedSampler", .batches = 4, .replicas = 2};
    assert_int_equal(judge_pass(whole), 1);
    assert_int_equal(judge_pass(part), -1);
    part.sampler = "SequentialSampler"; /* a wrapper shards: 4 batches of 16 are too few */
    part.replicas = 0;
    assert_int_equal(judge_pass(part), -1);
    part.batches = 16; /* everything on both */
    assert_int_equal(judge_pass(part), 1);
    part.batches = 6; /* some are left out: what is too long */
    assert_int_equal(judge_pass(part), 1);
    part.batches = 4;
    fake_pass silent[4] = {part, part, part, part};
    silent[0].sampler = "WeightedRandomSampler";
    silent[1].partial = true;
    silent[2].left = true;
    silent[3].other_in_between = true;
    for (int i = 0; i < 4; ++i)
        assert_int_equal(judge_pass(silent[i]), 0);
    part.replicas = 4; /* it is meant for other ranks */
    assert_int_equal(judge_pass(part), 0);
}

static void test_workers_that_draw_alike(void **state)
{
    (void)state;
    relation_bench *bench = library_bench();
    fake_process *process = &bench->process[0];
    for (int i = 0; i < 8; ++i)
        read_batch(process, (fake_batch){i, 0, i * 4, .digest = (uint64_t)i + 1, .workers = 2});
    assert_int_equal(FAILS(bench, NEXT_BATCH, NULL, NEW_DATA), 0);
    for (int i = 0; i < 8; ++i) /* all the same: a data set of one value */
        read_batch(process, (fake_batch){i, 1, i * 4, .digest = 9, .workers = 2});
    assert_int_equal(FAILS(bench, NEXT_BATCH, NULL, NEW_DATA), 0);
    for (int i = 0; i < 8; ++i) /* in pairs */
        read_batch(process, (fake_batch){i, 2, i * 4, .digest = (uint64_t)i / 2, .workers = 2});
    assert_int_equal(FAILS(bench, NEXT_BATCH, "loader0", NEW_DATA), 3);
    bench_free(bench);
}

static void test_order_of_epochs(void **state)
{
    (void)state;
    relation_bench *bench = library_bench();
    fake_process *process = &bench->process[0];
    const int64_t first[] = {8, 32, 32, 16};
    for (int epoch = 0; epoch < 4; ++epoch)
        for (int i = 0; i < 2; ++i)
            read_batch(process, (fake_batch){i, epoch, first[epoch] + i * 4, .shuffled = true});
    assert_int_equal(HOLDS(bench, EPOCH, NULL, REORDERED), 2);
    assert_int_equal(FAILS(bench, EPOCH, "loader0", REORDERED), 1);
    bench_free(bench);
}

/* ---- the plan ------------------------------------------------------------------------------ */

static size_t broken_plans(int planned, int made, bool ended)
{
    relation_bench *bench = library_bench();
    meta_int(&bench->process[0], "expect.steps", planned);
    steps(bench, made);
    if (ended)
        meta_int(&bench->process[0], "cost_ns_per_step", 1000);
    assert_int_equal(tocsin_observer_finish(bench->observer, NULL), TOCSIN_OK);
    size_t count = FAILS(bench, RUN, NULL, STEPS_AS_PLANNED);
    bench_free(bench);
    return count;
}

static void test_plan(void **state)
{
    (void)state;
    assert_int_equal(broken_plans(4, 4, true), 0);
    assert_int_equal(broken_plans(4, 3, true), 1);
    assert_int_equal(broken_plans(4, 3, false), 0); /* killed, or not at its end yet */
    assert_int_equal(broken_plans(4, 5, false), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training_mode_is_kept),
        cmocka_unit_test(test_training_in_evaluation_mode_from_the_start),
        cmocka_unit_test(test_gradients_applied_again),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_stalled_weights),
        cmocka_unit_test(test_evaluation_leaves_weights),
        cmocka_unit_test(test_weights_that_scripts_write_to),
        cmocka_unit_test(test_batches_of_ranks),
        cmocka_unit_test(test_epochs_of_all_ranks),
        cmocka_unit_test(test_workers_that_draw_alike),
        cmocka_unit_test(test_order_of_epochs),
        cmocka_unit_test(test_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
