/* Relations over what modules, parameters, buffers and attributes go through: frozen parts,
 * parameters registered anew, groups without decay, numberings, train() of one's own, siblings. */
#include "seen_instances.h"

/* Sees the populations that are made only when asked for. */
static relation_bench *asking_bench(void)
{
    static const uint8_t kinds[] = {
        TOCSIN_POPULATION_RENEWED_PARAMETER, TOCSIN_POPULATION_SPARED_PARAMETER,
        TOCSIN_POPULATION_CHANGED_ATTRIBUTE, TOCSIN_POPULATION_TRAINING_METHOD,
        TOCSIN_POPULATION_SIBLING_PARAMETER, TOCSIN_POPULATION_FROZEN_BUFFER};
    static const uint8_t predicates[] = {
        TOCSIN_PREDICATE_STAYS_FROZEN, TOCSIN_PREDICATE_NOT_DECAYED, TOCSIN_PREDICATE_KEPT_APART,
        TOCSIN_PREDICATE_CALLED_FIRST, TOCSIN_PREDICATE_AS_SIBLINGS, TOCSIN_PREDICATE_DATA_STAYS};
    relation_bench *made = calloc(1, sizeof *made);
    tocsin_population populations[TOCSIN_COUNT_OF(kinds)];
    tocsin_fact facts[TOCSIN_COUNT_OF(predicates)];
    assert_int_equal(tocsin_vocabulary_new(&made->vocabulary, NULL), TOCSIN_OK);
    for (size_t i = 0; i < TOCSIN_COUNT_OF(kinds); ++i) {
        tocsin_population_key population = {.kind = kinds[i]};
        if (kinds[i] == TOCSIN_POPULATION_FROZEN_BUFFER)
            population.role = TOCSIN_ROLE_OPTIMIZER_STEP;
        tocsin_fact_key fact = {.predicate = predicates[i]};
        populations[i] = tocsin_population_of(made->vocabulary, &population);
        facts[i] = tocsin_fact_of(made->vocabulary, &fact);
    }
    tocsin_wanted wanted = {.populations = populations,
                            .population_count = TOCSIN_COUNT_OF(kinds),
                            .facts = facts,
                            .fact_count = TOCSIN_COUNT_OF(predicates)};
    tocsin_observer_options options = {
        .vocabulary = made->vocabulary, .sink = collect, .context = made, .wanted = &wanted};
    assert_int_equal(tocsin_observer_new(&options, &made->observer, NULL), TOCSIN_OK);
    made->process[0].observer = made->process[1].observer = made->observer;
    made->process[1].index = 1;
    return made;
}

static tocsin_value text(fake_process *process, const char *name, const char *value)
{
    return (tocsin_value){.kind = TOCSIN_VALUE_STRING,
                          .name = define_string(process, name),
                          .as.text = define_string(process, value)};
}

static tocsin_value number(fake_process *process, uint8_t kind, const char *name, int64_t value)
{
    return (tocsin_value){.kind = kind, .name = define_string(process, name), .as.integer = value};
}

/* A state "value" with what it says. */
static void say(fake_process *process, const char *variable, tocsin_variable_kind kind,
                uint32_t flags, const tocsin_value *values, uint32_t count)
{
    tocsin_event event = {.kind = TOCSIN_EVENT_STATE, .value_count = count, .values = values};
    event.state = (tocsin_state){.variable = define_variable(process, variable, kind),
                                 .attribute = define_string(process, "value"),
                                 .moment = TOCSIN_MOMENT_EXIT,
                                 .flags = TOCSIN_STATE_PRESENT | flags};
    emit(process, &event);
}

static const char *const step_name = "torch.optim.Optimizer.step";

static void begin(fake_process *process)
{
    process->thread = 1;
    enter(process, step_name, TOCSIN_ROLE_OPTIMIZER_STEP);
}

static void end(fake_process *process)
{
    leave(process, step_name, TOCSIN_ROLE_OPTIMIZER_STEP);
    meta_int(process, "step", ++process->step);
}

/* ---- frozen -------------------------------------------------------------------------------- */

static void steps(relation_bench *bench, int count)
{
    for (int i = 0; i < count; ++i)
        train(&bench->process[0], (fake_step){.stage = NULL});
}

static void renew(fake_process *process, const char *name, bool was_trainable, bool is_trainable)
{
    const bool trainable[2] = {was_trainable, is_trainable};
    for (int i = 0; i < 2; ++i) {
        tocsin_value replaced = number(process, TOCSIN_VALUE_BOOL, "replaced", i == 0);
        say(process, name, TOCSIN_VARIABLE_PARAMETER, trainable[i] ? TOCSIN_STATE_REQUIRES_GRAD : 0,
            &replaced, 1);
    }
}

static void test_registered_anew(void **state)
{
    (void)state;
    relation_bench *bench = asking_bench();
    fake_process *process = &bench->process[0];
    fake_start(process);
    const uint32_t held = FAKE_TRAINABLE, frozen = held & ~(uint32_t)TOCSIN_STATE_REQUIRES_GRAD;
    const uint32_t free =
        held & ~(uint32_t)(TOCSIN_STATE_IN_OPTIMIZER | TOCSIN_STATE_IN_THIS_OPTIMIZER);
    uint32_t *flags = &process->parameters[0].flags;
    const struct {
        uint32_t before, after;
        bool was, is;
        size_t holds, fails;
    } cases[] = {
        {frozen, held, false, true, 0, 1},    /* the flag is lost */
        {frozen, frozen, false, false, 1, 0}, /* handed on */
        {frozen, held, true, true, 0, 0},     /* unfrozen before */
        {frozen, frozen, false, true, 1, 0},  /* frozen again */
        {held, held, false, true, 0, 0},      /* no update saw it frozen */
        {frozen, free, false, true, 0, 0},    /* nobody trains it */
    };
    for (size_t i = 0; i < TOCSIN_COUNT_OF(cases); ++i) {
        *flags = cases[i].before;
        steps(bench, 1);
        forget(bench);
        renew(process, "fc1.weight", cases[i].was, cases[i].is);
        *flags = cases[i].after;
        steps(bench, 2); /* told once */
        assert_int_equal(HOLDS(bench, RENEWED_PARAMETER, "fc1.weight", STAYS_FROZEN),
                         cases[i].holds);
        assert_int_equal(FAILS(bench, RENEWED_PARAMETER, "fc1.weight", STAYS_FROZEN),
                         cases[i].fails);
    }
    bench_free(bench);
}

static void test_buffers_of_frozen_modules(void **state)
{
    (void)state;
    const uint32_t frozen = TOCSIN_STATE_IS_LEAF | TOCSIN_STATE_IN_MODEL;
    const struct {
        uint32_t flags;
        bool moves; /* the parameter: an average */
        uint8_t dtype;
        bool judged;
    } cases[] = {{frozen, false, 0, true},
                 {frozen, true, 0, false},
                 {frozen | TOCSIN_STATE_IN_OPTIMIZER, false, 0, false}, /* a GAN's other network */
                 {FAKE_TRAINABLE, false, 0, false},
                 {frozen, false, TOCSIN_DTYPE_INT64, false}}; /* a counter */
    for (size_t i = 0; i < TOCSIN_COUNT_OF(cases); ++i) {
        relation_bench *bench = asking_bench();
        fake_process *process = &bench->process[0];
        fake_start(process);
        add_parameter(process, (fake_parameter){.name = "bn.weight",
                                                .flags = cases[i].flags,
                                                .moves = cases[i].moves});
        add_parameter(process, (fake_parameter){.name = "bn.running_mean",
                                                .kind = TOCSIN_VARIABLE_BUFFER,
                                                .dtype = cases[i].dtype,
                                                .flags = TOCSIN_STATE_IN_MODEL});
        add_parameter(process, (fake_parameter){.name = "cache.table",
                                                .kind = TOCSIN_VARIABLE_BUFFER,
                                                .flags = TOCSIN_STATE_IN_MODEL,
                                                .moves = true});
        steps(bench, 1);
        process->parameters[3].moves = true;
        forget(bench);
        steps(bench, 2);
        assert_int_equal(FAILS(bench, FROZEN_BUFFER, "bn.running_mean", DATA_STAYS),
                         cases[i].judged ? 2 : 0);
        assert_int_equal(JUDGED(bench, FROZEN_BUFFER, NULL), cases[i].judged ? 2 : 0);
        bench_free(bench);
    }
}

/* ---- groups -------------------------------------------------------------------------------- */

static void option(fake_process *process, const char *variable, double decay, const char *module,
                   bool trainable)
{
    tocsin_value values[3] = {{.kind = TOCSIN_VALUE_FLOAT, .as.real = decay},
                              number(process, TOCSIN_VALUE_INT, "parameters", 0),
                              {.kind = TOCSIN_VALUE_NONE}};
    values[0].name = define_string(process, "weight_decay");
    if (module != NULL)
        values[1] = text(process, "module", module);
    say(process, variable, TOCSIN_VARIABLE_OPTIMIZER_STATE,
        trainable ? TOCSIN_STATE_REQUIRES_GRAD : 0, values, 2);
}

static void read_groups(fake_process *process, double other_decay, bool has_empty)
{
    begin(process);
    option(process, "fc.weight#options", 0.1, "torch.nn.modules.linear.Linear", true);
    option(process, "fc.bias#options", 0.1, "torch.nn.modules.linear.Linear", true);
    option(process, "norm.weight#options", 0.1, "my.RMSNorm", true);
    option(process, "old.bias#options", 0.1, "torch.nn.modules.linear.Linear", false);
    if (has_empty)
        option(process, "group1#options", other_decay, NULL, false);
    else
        option(process, "head.bias#options", other_decay, "torch.nn.modules.linear.Linear", true);
    end(process);
}

static void test_an_empty_group_without_decay(void **state)
{
    (void)state;
    relation_bench *bench = asking_bench();
    fake_process *process = &bench->process[0];
    read_groups(process, 0, false); /* somebody is spared */
    assert_int_equal(HOLDS(bench, SPARED_PARAMETER, NULL, NOT_DECAYED), 3);
    forget(bench);
    read_groups(process, 0.1, true); /* all decay: there is no such group */
    assert_int_equal(JUDGED(bench, SPARED_PARAMETER, NULL), 0);
    read_groups(process, 0, true);
    assert_int_equal(FAILS(bench, SPARED_PARAMETER, "fc.bias", NOT_DECAYED), 1);
    assert_int_equal(FAILS(bench, SPARED_PARAMETER, "norm.weight", NOT_DECAYED), 1);
    assert_int_equal(JUDGED(bench, SPARED_PARAMETER, NULL), 2);
    bench_free(bench);
}

/* ---- modules ------------------------------------------------------------------------------- */

static void attribute(fake_process *process, const char *variable, int64_t value, bool added)
{
    tocsin_value values[2] = {number(process, TOCSIN_VALUE_INT, "value", value),
                              number(process, TOCSIN_VALUE_BOOL, "added", 1)};
    say(process, variable, TOCSIN_VARIABLE_ATTRIBUTE, 0, values, added ? 2 : 1);
}

static void test_numberings(void **state)
{
    (void)state;
    static const int64_t numbering[4] = {1, 2, 3, 4}, schedule[4] = {9, 9, 9, 9};
    const struct {
        const int64_t *values;
        size_t added; /* modules that did not have it */
        size_t fails;
    } cases[] = {{numbering, 2, 2}, {numbering, 1, 0}, {schedule, 2, 0}, {numbering, 0, 0}};
    static const char *const names[4] = {"0.id", "1.id", "1.layer.id", "2.id"};
    for (size_t c = 0; c < TOCSIN_COUNT_OF(cases); ++c) {
        relation_bench *bench = asking_bench();
        fake_process *process = &bench->process[0];
        size_t had = 4 - cases[c].added;
        begin(process);
        for (size_t i = 0; i < had; ++i)
            attribute(process, names[i], 70 + (int64_t)i, false);
        end(process);
        assert_int_equal(JUDGED(bench, CHANGED_ATTRIBUTE, NULL), 0);
        begin(process);
        for (size_t i = 0; i < 4; ++i)
            attribute(process, names[i], cases[c].values[i], i >= had);
        end(process);
        assert_int_equal(JUDGED(bench, CHANGED_ATTRIBUTE, NULL), had);
        assert_int_equal(FAILS(bench, CHANGED_ATTRIBUTE, NULL, KEPT_APART), cases[c].fails);
        bench_free(bench);
    }
}

static void is_class(fake_process *process, const char *variable, const char *family,
                     int trained /* -1: does not override train() */)
{
    tocsin_value values[3] = {text(process, "value", family), text(process, "class", "my.Model"),
                              number(process, TOCSIN_VALUE_BOOL, "trained", trained)};
    say(process, variable, TOCSIN_VARIABLE_ATTRIBUTE, 0, values, trained < 0 ? 1 : 3);
}

static void test_train_of_its_own(void **state)
{
    (void)state;
    relation_bench *bench = asking_bench();
    fake_process *process = &bench->process[0];
    begin(process);
    is_class(process, "__class__", "my.Model", 1);
    is_class(process, "part.__class__", "torch.nn.modules.linear.Linear", -1);
    /* what another process reads meanwhile is its own */
    begin(&bench->process[1]);
    is_class(&bench->process[1], "__class__", "my.Model", 0);
    end(process);
    assert_int_equal(HOLDS(bench, TRAINING_METHOD, "my.Model", CALLED_FIRST), 1);
    assert_int_equal(JUDGED(bench, TRAINING_METHOD, NULL), 1);
    end(&bench->process[1]);
    assert_int_equal(FAILS(bench, TRAINING_METHOD, "my.Model", CALLED_FIRST), 1);
    bench_free(bench);
}

/* ---- siblings ------------------------------------------------------------------------------ */

/* A parameter before the first update: 'p' a placeholder, 'z' zeros, 'r' random. */
static void initial(fake_process *process, const char *name, char filled)
{
    int64_t size = 8;
    tocsin_event event = {.kind = TOCSIN_EVENT_STATE};
    event.state =
        (tocsin_state){.variable = define_variable(process, name, TOCSIN_VARIABLE_PARAMETER),
                       .attribute = define_string(process, "data"),
                       .moment = TOCSIN_MOMENT_ENTER,
                       .dtype = TOCSIN_DTYPE_FLOAT32,
                       .ndim = 1,
                       .flags = TOCSIN_STATE_PRESENT | TOCSIN_STATE_DIGESTED | FAKE_TRAINABLE,
                       .shape = define_shape(process, 1, &size),
                       .statistics = {.absmax = filled == 'z' ? 0 : 1,
                                      .sum_squares = filled == 'z'   ? 0
                                                     : filled == 'p' ? 8
                                                                     : 5}};
    emit(process, &event);
}

static size_t skipped(const char *fills, const char *family, const char *format)
{
    static char names[8][2][32]; /* of the parameter, of its module's class */
    relation_bench *bench = asking_bench();
    fake_process *process = &bench->process[0];
    for (size_t i = 0; fills[i] != 0; ++i) {
        snprintf(names[i][0], sizeof names[i][0], format, (int)i);
        snprintf(names[i][1], sizeof names[i][1], "%.*s.__class__",
                 (int)(strrchr(names[i][0], '.') - names[i][0]), names[i][0]);
    }
    begin(process);
    for (size_t i = 0; fills[i] != 0; ++i)
        initial(process, names[i][0], fills[i]);
    for (size_t i = 0; fills[i] != 0; ++i)
        is_class(process, names[i][1], family, -1);
    end(process);
    begin(process); /* only the first update */
    for (size_t i = 0; fills[i] != 0; ++i)
        initial(process, names[i][0], 'p');
    end(process);
    size_t count = FAILS(bench, SIBLING_PARAMETER, NULL, AS_SIBLINGS);
    bench_free(bench);
    return count;
}

static void test_siblings(void **state)
{
    (void)state;
    assert_int_equal(skipped("rrpr", "my.Mixer", "%d.gate"), 1);
    assert_int_equal(skipped("rrpr", "torch.nn.modules.linear.Linear", "layer.%d.fc.bias"), 1);
    assert_int_equal(skipped("rrrr", "my.Mixer", "%d.gate"), 0);
    assert_int_equal(skipped("pppp", "my.Mixer", "%d.gate"), 0);
    assert_int_equal(skipped("prrr", "my.Mixer", "%d.gate"), 0); /* the first */
    assert_int_equal(skipped("rrrp", "my.Mixer", "%d.gate"), 0); /* the last */
    assert_int_equal(skipped("rzrr", "my.Mixer", "%d.gate"), 0); /* a branch that begins as 0 */
    assert_int_equal(skipped("rzpr", "my.Mixer", "%d.gate"), 0);
    assert_int_equal(skipped("rppr", "my.Mixer", "%d.gate"), 0);
    assert_int_equal(skipped("rpr", "my.Mixer", "%d.gate"), 0); /* too few */
    assert_int_equal(skipped("rrpr", "my.RMSNorm", "%d.gate"), 0);
    assert_int_equal(skipped("rrpr", "torch.nn.modules.linear.Linear", "%d.bias"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_registered_anew),
        cmocka_unit_test(test_buffers_of_frozen_modules),
        cmocka_unit_test(test_an_empty_group_without_decay),
        cmocka_unit_test(test_numberings),
        cmocka_unit_test(test_train_of_its_own),
        cmocka_unit_test(test_siblings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
