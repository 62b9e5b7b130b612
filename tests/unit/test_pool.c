/* The pool runs every index once, on every number of threads, and reports the lowest failure. */
#include "cmocka_test.h"
#include <base/base.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>

enum { JOBS = 5000 };

typedef struct batch {
    atomic_uint runs[JOBS];
    size_t first_bad; /* jobs from here on fail */
} batch;

static tocsin_status run_job(void *context, size_t index, tocsin_error *error)
{
    batch *all = context;
    atomic_fetch_add(&all->runs[index], 1);
    if (index % 7 == 0)
        sched_yield();
    if (index >= all->first_bad)
        return tocsin_error_set(error, TOCSIN_E_STATE, "job %zu", index);
    return TOCSIN_OK;
}

static void every_index_runs_once(void **state)
{
    (void)state;
    for (unsigned threads = 0; threads < 6; ++threads) {
        tocsin_pool *pool = NULL;
        assert_int_equal(tocsin_pool_new(threads, &pool, NULL), TOCSIN_OK);
        assert_true(tocsin_pool_threads(pool) >= 1);
        if (threads > 0)
            assert_int_equal(tocsin_pool_threads(pool), threads);
        for (int round = 0; round < 3; ++round) {
            static batch all;
            memset(&all, 0, sizeof all);
            all.first_bad = JOBS;
            assert_int_equal(tocsin_pool_run(pool, JOBS, run_job, &all, NULL), TOCSIN_OK);
            for (size_t i = 0; i < JOBS; ++i)
                assert_int_equal(atomic_load(&all.runs[i]), 1);
            assert_int_equal(tocsin_pool_run(pool, 0, run_job, &all, NULL), TOCSIN_OK);
        }
        tocsin_pool_free(pool);
    }
    tocsin_pool_free(NULL);
}

static void the_lowest_failure_is_reported(void **state)
{
    (void)state;
    tocsin_pool *pool = NULL;
    assert_int_equal(tocsin_pool_new(4, &pool, NULL), TOCSIN_OK);
    for (size_t bad = 0; bad < 200; ++bad) {
        static batch all;
        memset(&all, 0, sizeof all);
        all.first_bad = bad;
        tocsin_error error = {0};
        assert_int_equal(tocsin_pool_run(pool, JOBS, run_job, &all, &error), TOCSIN_E_STATE);
        char expected[32];
        snprintf(expected, sizeof expected, "job %zu", bad);
        assert_string_equal(error.message, expected);
        assert_int_equal(error.code, TOCSIN_E_STATE);
        for (size_t i = 0; i <= bad; ++i)
            assert_int_equal(atomic_load(&all.runs[i]), 1);
    }
    static batch fine = {.first_bad = JOBS};
    assert_int_equal(tocsin_pool_run(pool, JOBS, run_job, &fine, NULL), TOCSIN_OK);
    tocsin_pool_free(pool);
}

static tocsin_status fail_silently(void *context, size_t index, tocsin_error *error)
{
    (void)context;
    (void)index;
    (void)error;
    return TOCSIN_E_LIMIT;
}

static void a_failure_without_message_has_a_code(void **state)
{
    (void)state;
    tocsin_pool *pool = NULL;
    assert_int_equal(tocsin_pool_new(2, &pool, NULL), TOCSIN_OK);
    tocsin_error error;
    assert_int_equal(tocsin_pool_run(pool, 3, fail_silently, NULL, &error), TOCSIN_E_LIMIT);
    assert_int_equal(error.code, TOCSIN_E_LIMIT);
    assert_int_equal(tocsin_pool_run(pool, 3, fail_silently, NULL, NULL), TOCSIN_E_LIMIT);
    tocsin_pool_free(pool);
}

static void the_callers_signal_mask_is_kept(void **state)
{
    (void)state;
    sigset_t before;
    sigset_t after;
    sigprocmask(SIG_SETMASK, NULL, &before);
    tocsin_pool *pool = NULL;
    assert_int_equal(tocsin_pool_new(3, &pool, NULL), TOCSIN_OK);
    sigprocmask(SIG_SETMASK, NULL, &after);
    for (int number = 1; number < 32; ++number)
        assert_int_equal(sigismember(&before, number), sigismember(&after, number));
    tocsin_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_index_runs_once),
        cmocka_unit_test(the_lowest_failure_is_reported),
        cmocka_unit_test(a_failure_without_message_has_a_code),
        cmocka_unit_test(the_callers_signal_mask_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
