/* Every allocation of loading the shipped library, and of observing a training for it, fails once:
 * it is reported, and nothing leaks. */
#include "../unit/fake_training.h"
#include "every_fault.h"
#include <tocsin/library.h>

static tocsin_status ignore(void *context, const tocsin_instance *instance, tocsin_error *error)
{
    (void)context;
    (void)instance;
    (void)error;
    return TOCSIN_OK;
}

static void read_batch(fake_process *process, int64_t number)
{
    static const char *const names[] = {"batch", "epoch", "size", "workers", "id", "id"};
    const int64_t numbers[] = {number, 0, 2, 2, number * 2, number * 2 + 1};
    tocsin_value values[TOCSIN_COUNT_OF(names)];
    for (size_t i = 0; i < TOCSIN_COUNT_OF(names); ++i)
        values[i] = (tocsin_value){.kind = TOCSIN_VALUE_INT,
                                   .name = define_string(process, names[i]),
                                   .as.integer = numbers[i]};
    tocsin_event event = {
        .kind = TOCSIN_EVENT_STATE, .value_count = TOCSIN_COUNT_OF(values), .values = values};
    event.state =
        (tocsin_state){.variable = define_variable(process, "loader0", TOCSIN_VARIABLE_LEDGER),
                       .attribute = define_string(process, "samples"),
                       .moment = TOCSIN_MOMENT_EXIT,
                       .flags = TOCSIN_STATE_PRESENT | TOCSIN_STATE_DIGESTED,
                       .digest = {(uint64_t)number, 1, 1},
                       .statistics = {.sum_squares = 1}};
    enter(process, "next", TOCSIN_ROLE_DATA_NEXT);
    emit(process, &event);
    leave(process, "next", TOCSIN_ROLE_DATA_NEXT);
}

static tocsin_status feed(tocsin_observer *observer)
{
    fake_process process = {.observer = observer};
    fake_start(&process);
    process.parameters[0].dtype = TOCSIN_DTYPE_BFLOAT16;
    meta_int(&process, "expect.steps", 3);
    for (int i = 0; i < 3; ++i) {
        read_batch(&process, i);
        train(&process, (fake_step){.stage = NULL});
        meta_text(&process, "stage", "evaluation");
        enter(&process, "torch.save", TOCSIN_ROLE_CHECKPOINT);
        emit_state(&process, &process.parameters[0], "saved", TOCSIN_MOMENT_EXIT, true, true,
                   process.parameters[0].data, 1, 0, (double)NAN);
        leave(&process, "torch.save", TOCSIN_ROLE_CHECKPOINT);
    }
    tocsin_status status = process.status;
    fake_free(&process);
    return status;
}

static tocsin_status load(void *context, tocsin_error *error)
{
    (void)context;
    tocsin_invariant_set *set;
    TOCSIN_TRY(tocsin_library_load(&set, error));
    tocsin_invariants_free(set);
    return TOCSIN_OK;
}

static void test_loading(void **state)
{
    (void)state;
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, load, NULL) > 50);
}

static tocsin_status observe(const tocsin_observer_options *options)
{
    tocsin_observer *observer;
    TOCSIN_TRY(tocsin_observer_new(options, &observer, NULL));
    tocsin_status status = feed(observer);
    tocsin_status finished = tocsin_observer_finish(observer, NULL);
    tocsin_observer_free(observer);
    return status != TOCSIN_OK ? status : finished;
}

/* The fakes' own tables allocate too, so a fault may also be none of the observer's. */
static void test_observing(void **state)
{
    (void)state;
    tocsin_invariant_set *set;
    tocsin_population populations[128];
    tocsin_fact facts[128];
    assert_int_equal(tocsin_library_load(&set, NULL), TOCSIN_OK);
    size_t count = tocsin_invariants_count(set);
    assert_true(count <= 128);
    for (size_t i = 0; i < count; ++i) {
        populations[i] = tocsin_invariants_get(set, i)->population;
        facts[i] = tocsin_invariants_get(set, i)->fact;
    }
    tocsin_wanted wanted = {
        .populations = populations, .population_count = count, .facts = facts, .fact_count = count};
    bool fired = true;
    uint64_t nth = 1, failed = 0;
    for (; fired; ++nth) {
        tocsin_vocabulary *vocabulary;
        assert_int_equal(
            tocsin_vocabulary_copy(tocsin_invariants_vocabulary(set), &vocabulary, NULL),
            TOCSIN_OK);
        tocsin_observer_options options = {
            .vocabulary = vocabulary, .sink = ignore, .wanted = &wanted};
        tocsin_fault_arm(TOCSIN_FAULT_MEMORY, nth);
        tocsin_status status = observe(&options);
        fired = tocsin_fault_disarm(TOCSIN_FAULT_MEMORY);
        assert_true(status == TOCSIN_OK || (fired && status == TOCSIN_E_MEMORY));
        failed += status == TOCSIN_E_MEMORY;
        tocsin_vocabulary_free(vocabulary);
    }
    assert_true(failed > 50);
    tocsin_invariants_free(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_loading),
                                       cmocka_unit_test(test_observing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
