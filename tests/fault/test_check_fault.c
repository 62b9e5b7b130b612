/* Every allocation and every system call of loading, observing, checking, saving fails once: it is
 * reported, and nothing leaks. A training of 10^6 events needs no more memory than a short one. */
#include "../unit/fake_training.h"
#include "every_fault.h"
#include <malloc.h>
#include <tocsin/check.h>

static const char *rules_path(char path[SCRATCH_PATH_BYTES])
{
    const char *source = getenv("TOCSIN_SOURCE");
    snprintf(path, SCRATCH_PATH_BYTES, "%s/tests/golden/invariants/by_hand.jsonl",
             source != NULL ? source : ".");
    return path;
}

/* ---- files of invariants ------------------------------------------------------------------- */

static tocsin_status load_and_save(void *context, tocsin_error *error)
{
    const scratch *run = context;
    char path[SCRATCH_PATH_BYTES], saved[SCRATCH_PATH_BYTES];
    tocsin_invariant_set *set;
    TOCSIN_TRY(tocsin_invariants_load(rules_path(path), &set, error));
    snprintf(saved, sizeof saved, "%s/saved", run->directory);
    tocsin_status status = tocsin_invariants_save(set, saved, 1, error);
    if (status == TOCSIN_OK)
        status = tocsin_invariants_write_selection(set, saved, error);
    tocsin_invariants_free(set);
    return status;
}

static void test_files(void **state)
{
    (void)state;
    scratch run = scratch_new();
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, load_and_save, &run) > 50);
    assert_true(every_fault(TOCSIN_FAULT_IO, TOCSIN_E_IO, load_and_save, &run) > 3);
    scratch_free(&run);
}

/* ---- observing ----------------------------------------------------------------------------- */

static tocsin_status ignore(void *context, const tocsin_instance *instance, tocsin_error *error)
{
    (void)context;
    (void)instance;
    (void)error;
    return TOCSIN_OK;
}

/* Two ranks of a training with everything in it. */
static tocsin_status feed(tocsin_observer *observer, unsigned steps)
{
    fake_process ranks[2] = {{.observer = observer}, {.observer = observer, .index = 1}};
    for (int rank = 0; rank < 2; ++rank) {
        fake_start(&ranks[rank]);
        meta_int(&ranks[rank], "rank", rank);
        meta_int(&ranks[rank], "world_size", 2);
    }
    for (unsigned i = 0; i < steps; ++i)
        for (int rank = 0; rank < 2; ++rank) {
            fake_process *process = &ranks[rank];
            tocsin_value values[2] = {tensor_value(process, "input", TOCSIN_DTYPE_FLOAT32, 4, 4),
                                      {.kind = TOCSIN_VALUE_FLOAT, .as.real = i * 0.7}};
            values[1].name = define_string(process, "p");
            enter_with(process, "all_reduce", TOCSIN_ROLE_COLLECTIVE, values, 2);
            leave_with(process, "all_reduce", TOCSIN_ROLE_COLLECTIVE, TOCSIN_EVENT_EXIT, values, 1);
            train(process, (fake_step){.no_zero_grad = i % 5 == 4});
        }
    fake_free(&ranks[0]);
    fake_free(&ranks[1]);
    return ranks[0].status != TOCSIN_OK ? ranks[0].status : ranks[1].status;
}

static void test_observer(void **state)
{
    (void)state;
    /* the fakes' own tables allocate too: only the observer's verdict counts here */
    for (uint64_t nth = 1;; ++nth) {
        tocsin_vocabulary *vocabulary;
        tocsin_observer *observer;
        assert_int_equal(tocsin_vocabulary_new(&vocabulary, NULL), TOCSIN_OK);
        tocsin_observer_options options = {
            .vocabulary = vocabulary, .sink = ignore, .contrast = true};
        assert_int_equal(tocsin_observer_new(&options, &observer, NULL), TOCSIN_OK);
        tocsin_fault_arm(TOCSIN_FAULT_MEMORY, nth);
        tocsin_status status = feed(observer, 3);
        bool fired = tocsin_fault_disarm(TOCSIN_FAULT_MEMORY);
        assert_true(status == TOCSIN_OK || (fired && status == TOCSIN_E_MEMORY));
        tocsin_observer_free(observer);
        tocsin_vocabulary_free(vocabulary);
        if (!fired) {
            assert_true(nth > 100);
            break;
        }
    }
}

/* ---- checking ------------------------------------------------------------------------------ */

static tocsin_status check_run(void *context, tocsin_error *error)
{
    const scratch *run = context;
    char path[SCRATCH_PATH_BYTES];
    tocsin_invariant_set *set;
    tocsin_run *reading = NULL;
    tocsin_checker *checker = NULL;
    TOCSIN_TRY(tocsin_invariants_load(rules_path(path), &set, error));
    tocsin_status status = tocsin_run_open(run->directory, false, &reading, error);
    if (status == TOCSIN_OK)
        status = tocsin_checker_new(set, NULL, &checker, error);
    if (status == TOCSIN_OK)
        status = tocsin_checker_advance(checker, reading, NULL, error);
    if (status == TOCSIN_OK)
        status = tocsin_checker_finish(checker, error);
    if (status == TOCSIN_OK && tocsin_checker_finding_count(checker) != 2)
        status = tocsin_error_set(error, TOCSIN_E_INTERNAL, "%zu findings",
                                  tocsin_checker_finding_count(checker));
    tocsin_checker_free(checker);
    tocsin_run_close(reading);
    tocsin_invariants_free(set);
    return status;
}

static void test_checker(void **state)
{
    (void)state;
    scratch run = scratch_new();
    fake_process process = {.writer = scratch_writer(&run, 0, 0)};
    fake_start(&process);
    for (int i = 0; i < 3; ++i) {
        process.parameters[1].stuck = i > 0;
        train(&process, (fake_step){.no_zero_grad = i == 2});
    }
    assert_int_equal(tocsin_trace_writer_close(process.writer, NULL), TOCSIN_OK);
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, check_run, &run) > 200);
    scratch_free(&run);
}

/* ---- memory -------------------------------------------------------------------------------- */

static void test_memory_is_bounded(void **state)
{
    (void)state;
    char path[SCRATCH_PATH_BYTES];
    tocsin_invariant_set *set;
    tocsin_vocabulary *vocabulary;
    tocsin_observer *observer;
    assert_int_equal(tocsin_invariants_load(rules_path(path), &set, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_vocabulary_copy(tocsin_invariants_vocabulary(set), &vocabulary, NULL),
                     TOCSIN_OK);
    size_t count = tocsin_invariants_count(set);
    tocsin_population populations[32];
    tocsin_fact facts[32];
    for (size_t i = 0; i < count; ++i) {
        populations[i] = tocsin_invariants_get(set, i)->population;
        facts[i] = tocsin_invariants_get(set, i)->fact;
    }
    tocsin_wanted wanted = {
        .populations = populations, .population_count = count, .facts = facts, .fact_count = count};
    tocsin_observer_options options = {.vocabulary = vocabulary, .sink = ignore, .wanted = &wanted};
    assert_int_equal(tocsin_observer_new(&options, &observer, NULL), TOCSIN_OK);
    assert_int_equal(feed(observer, 200), TOCSIN_OK); /* all windows have been in use */
    size_t before = mallinfo2().uordblks;
    assert_int_equal(feed(observer, 20000), TOCSIN_OK); /* 2 * 20000 * 27 events */
    size_t after = mallinfo2().uordblks;
    assert_true(after < before + (64 << 10));
    tocsin_observer_free(observer);
    tocsin_vocabulary_free(vocabulary);
    tocsin_invariants_free(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_observer),
        cmocka_unit_test(test_checker),
        cmocka_unit_test(test_memory_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
