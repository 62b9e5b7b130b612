/* "Every call of F calls G with arg.K = V": what wide learning states, and what is judged. */
#include "fake_training.h"

typedef struct asked { /* how often the outer call was judged, and had the fact */
    tocsin_vocabulary *vocabulary;
    tocsin_population outer;
    tocsin_fact_key fact;
    size_t judged, had;
} asked;

static tocsin_status note(void *context, const tocsin_instance *instance, tocsin_error *error)
{
    asked *about = context;
    (void)error;
    tocsin_population_key key = tocsin_population_get_key(about->vocabulary, instance->population);
    if (instance->population != about->outer || key.kind != TOCSIN_POPULATION_CALL)
        return TOCSIN_OK;
    ++about->judged;
    for (uint32_t i = 0; i < instance->fact_count; ++i) {
        tocsin_fact_key fact = tocsin_fact_get_key(about->vocabulary, instance->facts[i]);
        about->had += memcmp(&fact, &about->fact, sizeof fact) == 0;
    }
    return TOCSIN_OK;
}

typedef enum observing { DEFAULT, WIDE, CHECKING } observing;

static fake_process *start(asked *about, observing how, const char *field, tocsin_literal value)
{
    static fake_process process;
    memset(about, 0, sizeof *about);
    assert_int_equal(tocsin_vocabulary_new(&about->vocabulary, NULL), TOCSIN_OK);
    tocsin_population_key key = {.kind = TOCSIN_POPULATION_CALL};
    key.name = tocsin_symbol_of(about->vocabulary, "outer");
    about->outer = tocsin_population_of(about->vocabulary, &key);
    about->fact = (tocsin_fact_key){.predicate = TOCSIN_PREDICATE_CALLS_WITH,
                                    .name = tocsin_symbol_of(about->vocabulary, "dropout"),
                                    .other = tocsin_symbol_of(about->vocabulary, field),
                                    .value = tocsin_scalar_of(about->vocabulary, &value)};
    tocsin_fact fact = tocsin_fact_of(about->vocabulary, &about->fact);
    tocsin_wanted wanted = {&about->outer, 1, &fact, 1, &about->fact.other, 1};
    tocsin_observer_options options = {.vocabulary = about->vocabulary,
                                       .sink = note,
                                       .context = about,
                                       .wanted = how == CHECKING ? &wanted : NULL,
                                       .wide = how == WIDE};
    process = (fake_process){.index = 0};
    assert_int_equal(tocsin_observer_new(&options, &process.observer, NULL), TOCSIN_OK);
    fake_start(&process);
    return &process;
}

static void stop(asked *about, fake_process *process)
{
    assert_int_equal(process->status, TOCSIN_OK);
    assert_int_equal(tocsin_observer_finish(process->observer, NULL), TOCSIN_OK);
    tocsin_observer_free(process->observer);
    tocsin_vocabulary_free(about->vocabulary);
    fake_free(process);
}

/* outer -> middle -> dropout(NAME = p) */
static void run(fake_process *process, const char *name, double p, uint8_t end)
{
    tocsin_value value = {.kind = TOCSIN_VALUE_FLOAT, .as.real = p};
    value.name = define_string(process, name);
    enter(process, "outer", TOCSIN_ROLE_NONE);
    enter(process, "middle", TOCSIN_ROLE_NONE);
    enter_with(process, "dropout", TOCSIN_ROLE_NONE, &value, 1);
    leave_with(process, "dropout", TOCSIN_ROLE_NONE, end, NULL, 0);
    leave(process, "middle", TOCSIN_ROLE_NONE);
    leave(process, "outer", TOCSIN_ROLE_NONE);
}

static const tocsin_literal HALF = {.kind = TOCSIN_VALUE_FLOAT, .real = 0.5};

static void test_it_is_stated_only_when_it_is_of_interest(void **state)
{
    (void)state;
    for (observing how = DEFAULT; how <= CHECKING; ++how) {
        asked about;
        fake_process *process = start(&about, how, "arg.p", HALF);
        run(process, "p", 0.5, TOCSIN_EVENT_EXIT);
        assert_int_equal(about.judged, 1);
        assert_int_equal(about.had, how != DEFAULT);
        run(process, "p", 0.25, TOCSIN_EVENT_EXIT);
        assert_int_equal(about.judged, 2);
        assert_int_equal(about.had, how != DEFAULT);
        run(process, "p", 0.5, TOCSIN_EVENT_RAISE); /* it was not done */
        assert_int_equal(about.judged, 3);
        assert_int_equal(about.had, how != DEFAULT);
        run(process, "q", 0.5, TOCSIN_EVENT_EXIT);
        assert_int_equal(about.had, how != DEFAULT);
        stop(&about, process);
    }
}

/* Another tool's recording, or a builtin: which argument is called p is not known. */
static void test_what_is_not_known_is_no_violation(void **state)
{
    (void)state;
    asked about;
    fake_process *process = start(&about, CHECKING, "arg.p", HALF);
    run(process, "arg0", 0.25, TOCSIN_EVENT_EXIT);
    assert_int_equal(about.had, 1);
    run(process, "argument", 0.25, TOCSIN_EVENT_EXIT);
    assert_int_equal(about.had, 1);
    enter(process, "outer", TOCSIN_ROLE_NONE); /* but it must be called */
    leave(process, "outer", TOCSIN_ROLE_NONE);
    assert_int_equal(about.judged, 3);
    assert_int_equal(about.had, 1);
    stop(&about, process);
    process = start(&about, CHECKING, "arg.arg0", HALF);
    run(process, "arg0", 0.25, TOCSIN_EVENT_EXIT);
    run(process, "arg0", 0.5, TOCSIN_EVENT_EXIT);
    assert_int_equal(about.judged, 2);
    assert_int_equal(about.had, 1);
    stop(&about, process);
}

static void test_properties_of_arguments(void **state)
{
    (void)state;
    tocsin_literal two = {.kind = TOCSIN_VALUE_INT, .integer = 2};
    tocsin_literal type = {.kind = TOCSIN_VALUE_STRING, .text = "a.Library"};
    for (observing how = DEFAULT; how <= CHECKING; ++how)
        for (int object = 0; object < 2; ++object) {
            asked about;
            fake_process *process =
                start(&about, how, object ? "arg.x.type" : "arg.x.length", object ? type : two);
            tocsin_value value = {.kind = object ? TOCSIN_VALUE_OBJECT : TOCSIN_VALUE_SEQUENCE,
                                  .count = object ? 0 : 2};
            value.name = define_string(process, "x");
            value.type = object ? define_string(process, "a.Library") : 0;
            enter(process, "outer", TOCSIN_ROLE_NONE);
            enter_with(process, "dropout", TOCSIN_ROLE_NONE, &value, 1);
            leave(process, "dropout", TOCSIN_ROLE_NONE);
            leave(process, "outer", TOCSIN_ROLE_NONE);
            assert_int_equal(about.had, how != DEFAULT);
            stop(&about, process);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_is_stated_only_when_it_is_of_interest),
        cmocka_unit_test(test_what_is_not_known_is_no_violation),
        cmocka_unit_test(test_properties_of_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
