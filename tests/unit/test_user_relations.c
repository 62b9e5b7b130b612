/* Relations of the user: what they hear of, what they make, what they may not do, and what becomes
 * of their invariants with and without them. */
#include "seen_instances.h"
#include <invariant/plugin.h>
#include <tocsin/check.h>
#include <tocsin/relation.h>

/* ---- a relation that counts ---------------------------------------------------------------- */

typedef struct counts {
    unsigned enters, leaves, states, metas, steps, finishes, closes;
    int64_t last_step;
    const char *misuse; /* what to do wrong at the first call */
} counts;

static void *begin_counting(const void *context, tocsin_relation_host *host)
{
    assert_int_equal(host->version, TOCSIN_RELATION_VERSION);
    return (void *)(uintptr_t)context;
}

static void end_counting(void *own)
{
    ++((counts *)own)->closes;
}

static void misuse(const char *what, tocsin_relation_host *host)
{
    char text[TOCSIN_PLUGIN_TEXT_BYTES_MAX + 2];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    if (strcmp(what, "no begin") == 0)
        host->fact(host, "is late");
    else if (strcmp(what, "fail") == 0)
        (host->fail)(host, "it is too dark here"); /* cmocka has a macro of that name */
    else
        host->begin(host, strcmp(what, "long") == 0 ? text : "two\nlines");
    host->emit(host, NULL, NULL);
}

static void count_enter(void *own, tocsin_relation_host *host, const tocsin_relation_view *view)
{
    counts *count = own;
    ++count->enters;
    assert_string_equal(view->function, "torch.optim.Optimizer.step");
    assert_int_equal(view->role, TOCSIN_ROLE_OPTIMIZER_STEP);
    const tocsin_value *lr = tocsin_relation_value(view, "self.lr");
    assert_non_null(lr);
    assert_null(tocsin_relation_value(view, "self.rl"));
    count->last_step = view->step;
    if (count->misuse != NULL) {
        misuse(count->misuse, host);
        return;
    }
    host->begin(host, "update");
    host->context(host);
    host->field_bool(host, "is_first", view->step == 1);
    host->field_int(host, "small", 3);
    host->field_int(host, "large", 1000);
    host->field_real(host, "rate", lr->as.real);
    host->field_text(host, "word", "plain");
    if (lr->as.real < 0.5)
        host->fact(host, "has a small learning rate");
    host->emit(host, NULL, "the learning rate is large");
}

static void count_leave(void *own, tocsin_relation_host *host, const tocsin_relation_view *view)
{
    (void)host;
    ++((counts *)own)->leaves;
    assert_true(view->completed);
}

static void count_state(void *own, tocsin_relation_host *host, const tocsin_relation_view *view)
{
    ++((counts *)own)->states;
    assert_true((view->event->state.flags & TOCSIN_STATE_DIGESTED) != 0);
    host->begin(host, "gradient");
    host->context(host);
    host->fact(host, "is seen");
    host->emit(host, NULL, NULL);
}

static void count_meta(void *own, tocsin_relation_host *host, const tocsin_relation_view *view)
{
    (void)host;
    ++((counts *)own)->metas;
    assert_int_equal(view->event->kind, TOCSIN_EVENT_META);
}

static void count_step(void *own, tocsin_relation_host *host, const tocsin_relation_view *view)
{
    (void)host;
    counts *count = own;
    ++count->steps;
    assert_int_equal(view->step, count->last_step);
}

static void count_finish(void *own, tocsin_relation_host *host, const tocsin_relation_view *view)
{
    ++((counts *)own)->finishes;
    assert_int_equal(view->step, -1);
    host->begin(host, "run");
    host->context(host); /* of nothing */
    host->fact(host, "ends");
    host->emit(host, "the run", NULL);
}

static const tocsin_relation_call steps[] = {
    {.role = TOCSIN_ROLE_OPTIMIZER_STEP, .arguments = true},
    {.function = "torch.nn.functional.nothing_that_is_called"}};
static const tocsin_relation_state gradients_before[] = {
    {TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_ENTER, "grad", TOCSIN_VARIABLE_PARAMETER, true}};

static tocsin_relation_definition counting(const char *name, counts *count)
{
    return (tocsin_relation_definition){.version = TOCSIN_RELATION_VERSION,
                                        .name = name,
                                        .calls = steps,
                                        .call_count = TOCSIN_COUNT_OF(steps),
                                        .states = gradients_before,
                                        .state_count = 1,
                                        .context = count,
                                        .open = begin_counting,
                                        .close = end_counting,
                                        .enter = count_enter,
                                        .leave = count_leave,
                                        .state = count_state,
                                        .meta = count_meta,
                                        .step = count_step,
                                        .finish = count_finish};
}

/* ---- observing ----------------------------------------------------------------------------- */

/* Three steps, seen by these relations. */
static tocsin_status observe(relation_bench *bench, const tocsin_relations *relations,
                             tocsin_error *error)
{
    tocsin_observer_options options = {
        .vocabulary = bench->vocabulary, .sink = collect, .context = bench, .relations = relations};
    fake_process *process = &bench->process[0];
    assert_int_equal(tocsin_observer_new(&options, &process->observer, error), TOCSIN_OK);
    fake_start(process);
    for (int i = 0; i < 3; ++i)
        train(process, (fake_step){.lr = i == 2 ? 1.0 : 0.1});
    tocsin_status status = process->status;
    if (status == TOCSIN_OK)
        status = tocsin_observer_finish(process->observer, error);
    else
        *error = process->error;
    tocsin_observer_free(process->observer);
    return status;
}

static relation_bench *bench_alone(void)
{
    relation_bench *made = calloc(1, sizeof *made);
    assert_int_equal(tocsin_vocabulary_new(&made->vocabulary, NULL), TOCSIN_OK);
    return made;
}

static void free_alone(relation_bench *bench)
{
    tocsin_vocabulary_free(bench->vocabulary);
    fake_free(&bench->process[0]);
    free(bench->list);
    free(bench);
}

/* Instances of a subject, and how many of them have a fact. */
static size_t count_subject(const relation_bench *bench, const char *name, size_t *holds)
{
    size_t count = 0;
    *holds = 0;
    for (size_t i = 0; i < bench->count; ++i) {
        const seen_instance *seen = &bench->list[i];
        if (seen->population.kind != TOCSIN_POPULATION_USER ||
            strcmp(tocsin_symbol_text(bench->vocabulary, seen->population.name), name) != 0)
            continue;
        ++count;
        *holds += has_predicate(seen, TOCSIN_PREDICATE_CLAIM);
    }
    return count;
}

static void test_what_it_hears_and_makes(void **state)
{
    (void)state;
    counts count = {0};
    tocsin_relation_definition definition = counting("counting", &count);
    tocsin_relations *relations;
    tocsin_error error;
    assert_int_equal(tocsin_relations_new(&relations, &error), TOCSIN_OK);
    assert_int_equal(tocsin_relations_add(relations, &definition, &error), TOCSIN_OK);
    relation_bench *bench = bench_alone();
    assert_int_equal(observe(bench, relations, &error), TOCSIN_OK);
    assert_int_equal(count.enters, 3);
    assert_int_equal(count.leaves, 3);
    assert_int_equal(count.states, 6);
    assert_int_equal(count.steps, 3);
    assert_int_equal(count.finishes, 1);
    assert_int_equal(count.closes, 1);
    assert_true(count.metas > 6);
    size_t holds;
    assert_int_equal(count_subject(bench, "counting/update", &holds), 3);
    assert_int_equal(holds, 2);
    assert_int_equal(count_subject(bench, "counting/gradient", &holds), 6);
    assert_int_equal(count_subject(bench, "counting/run", &holds), 1);
    const seen_instance *update = NULL, *gradient = NULL;
    for (size_t i = 0; i < bench->count; ++i) {
        const seen_instance *seen = &bench->list[i];
        const char *name = tocsin_symbol_text(bench->vocabulary, seen->population.name);
        if (update == NULL && strcmp(name, "counting/update") == 0)
            update = seen;
        if (gradient == NULL && strcmp(name, "counting/gradient") == 0)
            gradient = seen;
    }
    assert_non_null(update);
    assert_non_null(gradient);
    assert_string_equal(update->entity, "torch.optim.Optimizer.step");
    assert_int_equal(update->step, 1);
    assert_true(update->line > 0);
    assert_string_equal(field_text(bench, update, "word"), "plain");
    assert_string_equal(field_text(bench, update, "large"), "an int");
    assert_string_equal(field_text(bench, update, "rate"), "a float");
    assert_string_equal(field_text(bench, update, "meta.stage"), "training");
    assert_string_equal(gradient->entity, "fc1.weight");
    assert_string_equal(field_text(bench, gradient, "var.type"), "torch.nn.Parameter");
    free_alone(bench);
    tocsin_relations_free(relations);
}

static void expect_failure(const char *what, tocsin_status status, const char *message)
{
    counts count = {.misuse = what};
    tocsin_relation_definition definition = counting("counting", &count);
    tocsin_relations *relations;
    tocsin_error error;
    assert_int_equal(tocsin_relations_new(&relations, &error), TOCSIN_OK);
    assert_int_equal(tocsin_relations_add(relations, &definition, &error), TOCSIN_OK);
    relation_bench *bench = bench_alone();
    assert_int_equal(observe(bench, relations, &error), status);
    assert_non_null(strstr(error.message, "relation counting: "));
    assert_non_null(strstr(error.message, message));
    assert_int_equal(count.enters, 1); /* and no more */
    assert_int_equal(count.closes, 1);
    free_alone(bench);
    tocsin_relations_free(relations);
}

static void test_misuse_is_an_error_of_the_run(void **state)
{
    (void)state;
    expect_failure("no begin", TOCSIN_E_ARGUMENT, "without begin");
    expect_failure("fail", TOCSIN_E_IO, "too dark");
    expect_failure("long", TOCSIN_E_ARGUMENT, "its subjects");
    expect_failure("lines", TOCSIN_E_ARGUMENT, "its subjects");
}

static void invent(void *own, tocsin_relation_host *host, const tocsin_relation_view *view)
{
    char text[32];
    (void)own;
    (void)view;
    for (int i = 0; i < 300; ++i) {
        snprintf(text, sizeof text, "fact %d", i);
        host->begin(host, "update");
        host->fact(host, text);
        host->emit(host, NULL, NULL);
    }
}

static void test_names_without_end_are_refused(void **state)
{
    (void)state;
    const tocsin_relation_definition definition = {.version = TOCSIN_RELATION_VERSION,
                                                   .name = "inventor",
                                                   .calls = steps,
                                                   .call_count = 1,
                                                   .enter = invent};
    tocsin_relations *relations;
    tocsin_error error;
    assert_int_equal(tocsin_relations_new(&relations, &error), TOCSIN_OK);
    assert_int_equal(tocsin_relations_add(relations, &definition, &error), TOCSIN_OK);
    relation_bench *bench = bench_alone();
    assert_int_equal(observe(bench, relations, &error), TOCSIN_E_LIMIT);
    size_t holds;
    assert_int_equal(count_subject(bench, "inventor/update", &holds), 256);
    free_alone(bench);
    tocsin_relations_free(relations);
}

/* ---- definitions --------------------------------------------------------------------------- */

static void test_what_is_no_relation(void **state)
{
    (void)state;
    static const tocsin_relation_call nothing[] = {{.role = TOCSIN_ROLE_NONE}};
    static const tocsin_relation_call both[] = {{.role = TOCSIN_ROLE_LOSS, .function = "f"}};
    static const tocsin_relation_state odd[] = {
        {TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_EXIT, "shade", TOCSIN_VARIABLE_PARAMETER, true}};
    const uint32_t version = TOCSIN_RELATION_VERSION;
    const struct {
        tocsin_relation_definition definition;
        tocsin_status status;
    } cases[] = {
        {{.version = version + 1, .name = "a"}, TOCSIN_E_VERSION},
        {{.version = version}, TOCSIN_E_ARGUMENT},
        {{.version = version, .name = "Loss"}, TOCSIN_E_ARGUMENT},
        {{.version = version, .name = ""}, TOCSIN_E_ARGUMENT},
        {{.version = version, .name = "a/b"}, TOCSIN_E_ARGUMENT},
        {{.version = version, .name = "a", .calls = nothing, .call_count = 1}, TOCSIN_E_ARGUMENT},
        {{.version = version, .name = "a", .calls = both, .call_count = 1}, TOCSIN_E_ARGUMENT},
        {{.version = version, .name = "a", .states = odd, .state_count = 1}, TOCSIN_E_ARGUMENT},
        {{.version = version, .name = "a", .calls = both, .call_count = 257}, TOCSIN_E_LIMIT},
        {{.version = version, .name = "a"}, TOCSIN_OK},
        {{.version = version, .name = "a"}, TOCSIN_E_EXISTS},
    };
    tocsin_relations *relations;
    tocsin_error error;
    assert_int_equal(tocsin_relations_new(&relations, &error), TOCSIN_OK);
    for (size_t i = 0; i < TOCSIN_COUNT_OF(cases); ++i)
        assert_int_equal(tocsin_relations_add(relations, &cases[i].definition, &error),
                         cases[i].status);
    assert_int_equal(tocsin_relations_load(relations, "no_such_library.so", &error),
                     TOCSIN_E_NOT_FOUND);
    assert_int_equal(tocsin_relations_count(relations), 1);
    assert_string_equal(tocsin_relations_name(relations, 0), "a");
    tocsin_relations_free(relations);
    tocsin_relations_free(NULL);
}

/* ---- their invariants ---------------------------------------------------------------------- */

static const char rules[] =
    "{\"format\":\"tocsin-invariants\",\"version\":1}\n"
    "{\"relation\":\"User\",\"population\":{\"kind\":\"user\",\"name\":\"counting\",\"subject\":"
    "\"update\"},\"fact\":{\"is\":\"user\",\"claim\":\"has a small learning rate\"},\"when\":[]}\n";

static tocsin_invariant_set *load_rules(const scratch *run)
{
    char path[SCRATCH_PATH_BYTES];
    tocsin_invariant_set *set;
    tocsin_error error;
    snprintf(path, sizeof path, "%s/rules", run->directory);
    assert_int_equal(tocsin_file_store(path, rules, sizeof rules - 1, true, &error), TOCSIN_OK);
    assert_int_equal(tocsin_invariants_load(path, &set, &error), TOCSIN_OK);
    assert_string_equal(tocsin_invariant_sentence(set, 0),
                        "counting: every update has a small learning rate.");
    assert_string_equal(tocsin_invariant_code(set, 0), "TOC010");
    assert_string_equal(tocsin_invariant_call(set, 0), "");
    /* what is written reads as the same */
    char id[64];
    snprintf(id, sizeof id, "%s", tocsin_invariant_id(set, 0));
    assert_int_equal(tocsin_invariants_save(set, path, true, &error), TOCSIN_OK);
    assert_int_equal(tocsin_invariants_append(set, path, &error), TOCSIN_OK);
    assert_int_equal(tocsin_invariants_count(set), 1);
    assert_true(tocsin_invariants_has(set, id));
    return set;
}

static void write_run(const scratch *run)
{
    tocsin_error error;
    fake_process process = {.writer = scratch_writer(run, 0, 0)};
    fake_start(&process);
    for (int i = 0; i < 3; ++i)
        train(&process, (fake_step){.lr = i == 2 ? 1.0 : 0.1});
    fake_free(&process);
    assert_int_equal(tocsin_trace_writer_close(process.writer, &error), TOCSIN_OK);
}

static tocsin_checker *check(tocsin_invariant_set *set, const scratch *run)
{
    tocsin_run *recorded;
    tocsin_checker *checker;
    tocsin_error error;
    uint64_t events;
    assert_int_equal(tocsin_run_open(run->directory, false, &recorded, &error), TOCSIN_OK);
    assert_int_equal(tocsin_checker_new(set, NULL, &checker, &error), TOCSIN_OK);
    do
        assert_int_equal(tocsin_checker_advance(checker, recorded, &events, &error), TOCSIN_OK);
    while (events > 0);
    assert_int_equal(tocsin_checker_finish(checker, &error), TOCSIN_OK);
    tocsin_run_close(recorded);
    return checker;
}

static void test_invariants_with_and_without(void **state)
{
    (void)state;
    scratch run = scratch_new();
    counts count = {0}, bystander = {0};
    tocsin_relation_definition definition = counting("counting", &count);
    tocsin_relation_definition other = counting("counting_too", &bystander);
    tocsin_relations *relations;
    tocsin_error error;
    write_run(&run);
    tocsin_invariant_set *set = load_rules(&run);
    tocsin_checker *checker = check(set, &run);
    assert_int_equal(tocsin_checker_unknown_count(checker), 1);
    assert_int_equal(tocsin_checker_unknown(checker, 0)->reason, TOCSIN_UNKNOWN_NO_RELATION);
    assert_non_null(strstr(tocsin_checker_unknown(checker, 0)->why, "counting was not given"));
    tocsin_checker_free(checker);

    assert_int_equal(tocsin_relations_new(&relations, &error), TOCSIN_OK);
    assert_int_equal(tocsin_relations_add(relations, &other, &error), TOCSIN_OK);
    assert_int_equal(tocsin_relations_add(relations, &definition, &error), TOCSIN_OK);
    tocsin_invariants_use(set, relations);
    checker = check(set, &run);
    assert_int_equal(tocsin_checker_finding_count(checker), 1);
    const tocsin_finding *finding = tocsin_checker_finding(checker, 0);
    assert_int_equal(finding->step, 3);
    assert_string_equal(finding->rendered,
                        "torch.optim.Optimizer.step: the learning rate is large");
    assert_int_equal(tocsin_checker_counts(checker, 0).judged, 3);
    tocsin_checker_free(checker);
    assert_int_equal(count.enters, 3);
    assert_int_equal(bystander.enters, 0); /* no invariant is of it */

    char path[SCRATCH_PATH_BYTES];
    tocsin_string selection = {0};
    snprintf(path, sizeof path, "%s/selection", run.directory);
    assert_int_equal(tocsin_invariants_write_selection(set, path, &error), TOCSIN_OK);
    assert_int_equal(tocsin_file_load(path, 4096, &selection, &error), TOCSIN_OK);
    assert_string_equal(selection.text, "tocsin-selection 1\nrole optimizer.step args\n"
                                        "function torch.nn.functional.nothing_that_is_called\n"
                                        "state optimizer.step enter grad digest parameter\n");
    tocsin_string_free(&selection);
    tocsin_invariants_free(set);
    tocsin_relations_free(relations);
    scratch_free(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_it_hears_and_makes),
        cmocka_unit_test(test_misuse_is_an_error_of_the_run),
        cmocka_unit_test(test_names_without_end_are_refused),
        cmocka_unit_test(test_what_is_no_relation),
        cmocka_unit_test(test_invariants_with_and_without),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
