/* What ranks share: evidence that they hold copies, their random states, the samples of an epoch;
 * and losses. */
#include "seen_instances.h"

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

/* ---- copies -------------------------------------------------------------------------------- */

typedef struct fake_update {
    uint64_t before, gradient, after; /* digests */
    bool zero;                        /* the data before it */
    bool alike;                       /* the gradient's elements are */
    bool sums, sums_numbers;          /* between the backward pass and the step */
    bool sums_inside;                 /* the step */
    uint32_t flags;
} fake_update;

static void read_tensor(fake_process *process, const char *attribute, uint8_t moment,
                        uint64_t digest, double absmax, bool alike, uint32_t flags)
{
    const int64_t sizes[2] = {4, 4};
    tocsin_event event = {.kind = TOCSIN_EVENT_STATE};
    event.state = (tocsin_state){
        .variable = define_variable(process, "norm.weight", TOCSIN_VARIABLE_PARAMETER),
        .attribute = define_string(process, attribute),
        .moment = moment,
        .dtype = TOCSIN_DTYPE_FLOAT32,
        .ndim = 2,
        .shape = define_shape(process, 2, sizes),
        .flags = TOCSIN_STATE_PRESENT | TOCSIN_STATE_DIGESTED | flags,
        .digest = {digest, digest, digest},
        .statistics = {.absmax = absmax, .sum_squares = absmax * absmax * (alike ? 16 : 3)}};
    emit(process, &event);
}

static void reduce(fake_process *process, uint8_t ndim)
{
    tocsin_value operand = tensor_value(process, "tensor", TOCSIN_DTYPE_FLOAT32, 4, 4);
    operand.ndim = ndim;
    enter_with(process, "torch.distributed.all_reduce", TOCSIN_ROLE_COLLECTIVE, &operand, 1);
    leave(process, "torch.distributed.all_reduce", TOCSIN_ROLE_COLLECTIVE);
}

static void update(fake_process *process, fake_update made)
{
    call(process, "torch.Tensor.backward", TOCSIN_ROLE_BACKWARD);
    if (made.sums || made.sums_numbers)
        reduce(process, made.sums ? 2 : 0);
    enter(process, "torch.optim.Optimizer.step", TOCSIN_ROLE_OPTIMIZER_STEP);
    read_tensor(process, "grad", TOCSIN_MOMENT_ENTER, made.gradient, 1, made.alike, made.flags);
    read_tensor(process, "data", TOCSIN_MOMENT_ENTER, made.before, made.zero ? 0 : 1, false,
                made.flags);
    if (made.sums_inside)
        reduce(process, 2);
    read_tensor(process, "data", TOCSIN_MOMENT_EXIT, made.after, 1, false, made.flags);
    leave(process, "torch.optim.Optimizer.step", TOCSIN_ROLE_OPTIMIZER_STEP);
    meta_int(process, "step", ++process->step);
}

/* "var.replicated" of the gradient and of the data: 'y', 'n', or '-' if there is none. */
static const char *replicated(fake_update first, fake_update second, const char *parallel)
{
    static char answer[3];
    relation_bench *bench = two_ranks();
    fake_update made[2] = {first, second};
    for (int rank = 0; rank < 2; ++rank) {
        if (parallel != NULL)
            meta_text(&bench->process[rank], "data_parallel", parallel);
        update(&bench->process[rank], made[rank]);
    }
    strcpy(answer, "??");
    for (size_t i = 0; i < bench->count; ++i) {
        const seen_instance *seen = &bench->list[i];
        if (seen->population.kind != TOCSIN_POPULATION_REPLICAS)
            continue;
        char *is = &answer[seen->population.moment == TOCSIN_MOMENT_ENTER ? 0 : 1];
        *is = '-';
        for (uint32_t f = 0; f < seen->field_count; ++f)
            if (strcmp(tocsin_symbol_text(bench->vocabulary, seen->fields[f].name),
                       "var.replicated") == 0)
                *is =
                    tocsin_scalar_literal(bench->vocabulary, seen->fields[f].a).integer ? 'y' : 'n';
    }
    bench_free(bench);
    return answer;
}

static void test_evidence_of_copies(void **state)
{
    (void)state;
    fake_update copy = {.before = 7, .gradient = 5, .after = 9, .sums = true};
    fake_update apart = {.before = 7, .gradient = 6, .after = 8, .sums = true};
    assert_string_equal(replicated(copy, copy, NULL), "yy");
    assert_string_equal(replicated(copy, apart, NULL),
                        "yy"); /* they should be equal, and are not */
    /* ranks that train apart from equal seeds; that sum up their losses only */
    fake_update alone = {.before = 7, .gradient = 6, .after = 8};
    assert_string_equal(replicated(alone, (fake_update){7, 5, 9, .flags = 0}, NULL), "nn");
    alone.sums_numbers = true;
    assert_string_equal(replicated(alone, (fake_update){7, 5, 9, .sums_numbers = true}, NULL),
                        "nn");
    /* an optimizer that averages weights now and then */
    fake_update inside = {.before = 7, .gradient = 5, .after = 9, .sums_inside = true};
    assert_string_equal(replicated(inside, (fake_update){7, 6, 8, .sums_inside = true}, NULL),
                        "nn");
    /* one DistributedDataParallel over all of them; over some of them */
    assert_string_equal(replicated(alone, (fake_update){6, 5, 9, .flags = 0}, "world"), "yy");
    assert_string_equal(replicated(alone, (fake_update){6, 5, 9, .flags = 0}, "some"), "nn");
    /* zeros at the start are no evidence: a sharded bias */
    fake_update zero = {.before = 7, .gradient = 6, .after = 8, .sums = true, .zero = true};
    fake_update other_zero = {.before = 7, .gradient = 5, .after = 9, .sums = true, .zero = true};
    assert_string_equal(replicated(zero, other_zero, NULL), "nn");
}

static void test_equal_gradients_are_applied_to_copies(void **state)
{
    (void)state;
    fake_update first = {.before = 1, .gradient = 5, .after = 3};
    fake_update second = {.before = 2, .gradient = 5, .after = 4};
    assert_string_equal(replicated(first, second, NULL), "ny"); /* they start apart */
    first.alike = second.alike = true; /* the gradient of a mean is the same everywhere */
    assert_string_equal(replicated(first, second, NULL), "nn");
    /* marked as parts; hashes of another tool */
    first.alike = second.alike = false;
    first.flags = second.flags = TOCSIN_STATE_TENSOR_PARALLEL;
    assert_string_equal(replicated(first, second, "world"), "nn");
    first.flags = second.flags = TOCSIN_STATE_HASHED;
    assert_string_equal(replicated(first, second, NULL), "--");
}

/* ---- random states ------------------------------------------------------------------------- */

typedef struct fake_draw {
    uint64_t state; /* digest */
    double p;
    bool evaluation;
    uint32_t flags;
    const char *group;
} fake_draw;

static void draw(fake_process *process, fake_draw drawn)
{
    tocsin_value values[2] = {{.kind = TOCSIN_VALUE_FLOAT, .as.real = drawn.p},
                              {.kind = TOCSIN_VALUE_BOOL, .as.integer = !drawn.evaluation}};
    values[0].name = define_string(process, "p");
    values[1].name = define_string(process, "training");
    enter_with(process, "torch.nn.functional.dropout", TOCSIN_ROLE_NONE, values, 2);
    leave(process, "torch.nn.functional.dropout", TOCSIN_ROLE_NONE);
    if (drawn.group != NULL) {
        tocsin_value group = {.kind = TOCSIN_VALUE_STRING,
                              .name = define_string(process, "group"),
                              .as.text = define_string(process, drawn.group)};
        enter_with(process, "torch.distributed.all_reduce", TOCSIN_ROLE_COLLECTIVE, &group, 1);
        leave(process, "torch.distributed.all_reduce", TOCSIN_ROLE_COLLECTIVE);
    }
    tocsin_event event = {.kind = TOCSIN_EVENT_STATE};
    event.state = (tocsin_state){.variable = define_variable(process, "torch", TOCSIN_VARIABLE_RNG),
                                 .attribute = define_string(process, "value"),
                                 .moment = TOCSIN_MOMENT_EXIT,
                                 .flags = TOCSIN_STATE_PRESENT | TOCSIN_STATE_DIGESTED,
                                 .digest = {drawn.state, drawn.state, drawn.state}};
    enter(process, "torch.optim.Optimizer.step", TOCSIN_ROLE_OPTIMIZER_STEP);
    read_tensor(process, "grad", TOCSIN_MOMENT_ENTER, 5, 1, false, drawn.flags);
    emit(process, &event);
    leave(process, "torch.optim.Optimizer.step", TOCSIN_ROLE_OPTIMIZER_STEP);
    meta_int(process, "step", ++process->step);
}

/* Two steps of two ranks; `last`: their states after the second. */
static relation_bench *draws(const char *parallel, fake_draw drawn, uint64_t last, uint64_t other)
{
    relation_bench *bench = two_ranks();
    for (int rank = 0; rank < 2; ++rank) {
        if (parallel != NULL)
            meta_text(&bench->process[rank], "data_parallel", parallel);
        drawn.state = 100;
        draw(&bench->process[rank], drawn);
        drawn.state = rank == 0 ? last : other;
        draw(&bench->process[rank], drawn);
    }
    return bench;
}

/* Pairs that are as they should be, and others. */
#define EXPECT_DRAWS(made, kind, predicate, good, bad)                                             \
    do {                                                                                           \
        relation_bench *bench = made;                                                              \
        assert_int_equal(HOLDS(bench, kind, "torch", predicate), good);                            \
        assert_int_equal(FAILS(bench, kind, "torch", predicate), bad);                             \
        bench_free(bench);                                                                         \
    } while (0)

static void test_random_states(void **state)
{
    (void)state;
    fake_draw drawn = {.p = 0.2};
    EXPECT_DRAWS(draws("world", drawn, 1, 1), COPYING_RANKS, DIFFERS, 0,
                 1); /* not of the first step */
    EXPECT_DRAWS(draws("world", drawn, 1, 2), COPYING_RANKS, DIFFERS, 1, 0);
    EXPECT_DRAWS(draws(NULL, drawn, 1, 1), COPYING_RANKS, DIFFERS, 0,
                 0); /* what is meant is not known */
    EXPECT_DRAWS(draws(NULL, drawn, 1, 1), SHARDING_RANKS, SAME, 0, 0);
    /* nothing is dropped, or not from this generator */
    EXPECT_DRAWS(draws("world", (fake_draw){.p = 0}, 1, 1), COPYING_RANKS, DIFFERS, 0, 0);
    drawn.evaluation = true;
    EXPECT_DRAWS(draws("world", drawn, 1, 1), COPYING_RANKS, DIFFERS, 0, 0);
    drawn.evaluation = false;
    EXPECT_DRAWS(draws("world", drawn, 100, 100), COPYING_RANKS, DIFFERS, 0, 0);
    /* tensor-parallel ranks; some of the ranks */
    drawn.flags = TOCSIN_STATE_TENSOR_PARALLEL;
    EXPECT_DRAWS(draws(NULL, drawn, 1, 1), SHARDING_RANKS, SAME, 1, 0);
    EXPECT_DRAWS(draws(NULL, drawn, 1, 2), SHARDING_RANKS, SAME, 0, 1);
    EXPECT_DRAWS(draws("world", drawn, 1, 1), SHARDING_RANKS, SAME, 0, 0);
    drawn.group = "group:2:0,1";
    EXPECT_DRAWS(draws(NULL, drawn, 1, 1), SHARDING_RANKS, SAME, 1, 0);
    drawn.group = "group:1:0";
    EXPECT_DRAWS(draws(NULL, drawn, 1, 2), SHARDING_RANKS, SAME, 0, 0);
}

/* ---- losses -------------------------------------------------------------------------------- */

static void lose(fake_process *process, const char *function, double loss, uint8_t dtype,
                 int64_t rows, int64_t ignored)
{
    tocsin_value input = tensor_value(process, "input", TOCSIN_DTYPE_FLOAT32, rows, 3);
    tocsin_value returned[4] = {
        {.kind = TOCSIN_VALUE_TENSOR, .dtype = dtype, .flags = TOCSIN_VALUE_HAS_ITEM},
        {.kind = TOCSIN_VALUE_FLOAT, .flags = TOCSIN_VALUE_IN_SEQUENCE, .as.real = loss},
        {.kind = TOCSIN_VALUE_INT, .as.integer = 4},
        {.kind = TOCSIN_VALUE_INT, .as.integer = ignored}};
    returned[2].name = define_string(process, "target.count");
    returned[3].name = define_string(process, "target.ignored");
    enter_with(process, function, TOCSIN_ROLE_LOSS, &input, 1);
    leave_with(process, function, TOCSIN_ROLE_LOSS, TOCSIN_EVENT_EXIT, returned, 4);
}

static void test_losses(void **state)
{
    (void)state;
    relation_bench *bench = bench_new();
    fake_process *process = &bench->process[0];
    lose(process, "cross_entropy", 1.5, TOCSIN_DTYPE_FLOAT32, 4, 1);
    assert_int_equal(HOLDS(bench, LOSS, "cross_entropy", FINITE), 1);
    /* too large for half precision; of nothing; a target that does not fit in */
    lose(process, "cross_entropy", INFINITY, TOCSIN_DTYPE_FLOAT16, 4, 1);
    lose(process, "cross_entropy", (double)NAN, TOCSIN_DTYPE_FLOAT32, 4, 4);
    lose(process, "cross_entropy", (double)NAN, TOCSIN_DTYPE_FLOAT32, 0, 1);
    lose(process, "ctc_loss", INFINITY, TOCSIN_DTYPE_FLOAT32, 4, 1);
    assert_int_equal(FAILS(bench, LOSS, NULL, FINITE), 0);
    /* one loss inside another is one */
    enter(process, "loss_module", TOCSIN_ROLE_LOSS);
    lose(process, "cross_entropy", (double)NAN, TOCSIN_DTYPE_FLOAT32, 4, 1);
    leave(process, "loss_module", TOCSIN_ROLE_LOSS);
    assert_int_equal(FAILS(bench, LOSS, NULL, FINITE), 0);
    lose(process, "cross_entropy", (double)NAN, TOCSIN_DTYPE_FLOAT32, 4, 1);
    lose(process, "cross_entropy", -INFINITY, TOCSIN_DTYPE_BFLOAT16, 4, 0);
    assert_int_equal(FAILS(bench, LOSS, "cross_entropy", FINITE), 2);
    bench_free(bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_evidence_of_copies),
        cmocka_unit_test(test_equal_gradients_are_applied_to_copies),
        cmocka_unit_test(test_random_states),
        cmocka_unit_test(test_losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
