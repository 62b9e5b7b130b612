/* lib/scale with one rank, which needs no MPI: tests/mpi has more. */
#include <stdio.h>
#include <tocsin/scale.h>

#include "base/base.h"
#include "cmocka_test.h"

static int begin(void **state)
{
    return tocsin_scale_alone((tocsin_scale **)state, NULL) != TOCSIN_OK;
}

static int end(void **state)
{
    return tocsin_scale_end(*state, 0);
}

typedef struct seen_jobs {
    size_t next;
    size_t failing;
} seen_jobs;

static tocsin_status square(void *context, size_t index, tocsin_scale_output *output,
                            tocsin_error *error)
{
    seen_jobs *seen = context;
    assert_int_equal(index, seen->next++);
    if (index == seen->failing)
        return tocsin_error_at(error, TOCSIN_E_FORMAT, "place", 3, "job %zu", index);
    char text[32];
    int bytes = snprintf(text, sizeof text, "%zu", index * index);
    if (index > 0) /* the first result is empty */
        tocsin_scale_write(output, text, (size_t)bytes);
    return TOCSIN_OK;
}

static void test_run(void **state)
{
    seen_jobs seen = {.failing = 100};
    tocsin_scale_results *results;
    assert_int_equal(tocsin_scale_run(*state, 100, square, &seen, &results, NULL), TOCSIN_OK);
    assert_int_equal(seen.next, 100);
    size_t bytes;
    assert_string_equal(tocsin_scale_result(results, 0, &bytes), "");
    assert_int_equal(bytes, 0);
    for (size_t index = 1; index < 100; ++index) {
        char text[32];
        int expected = snprintf(text, sizeof text, "%zu", index * index);
        const char *result = tocsin_scale_result(results, index, &bytes);
        assert_int_equal(bytes, expected);
        assert_memory_equal(result, text, bytes);
    }
    tocsin_scale_results *same = results;
    assert_int_equal(tocsin_scale_share(*state, &results, NULL), TOCSIN_OK);
    assert_ptr_equal(results, same);
    tocsin_scale_results_free(results);
    tocsin_scale_results_free(NULL);
}

static void test_failing_job(void **state)
{
    seen_jobs seen = {.failing = 7};
    tocsin_scale_results *results;
    tocsin_error error = {0};
    assert_int_equal(tocsin_scale_run(*state, 100, square, &seen, &results, &error),
                     TOCSIN_E_FORMAT);
    assert_null(results);
    assert_int_equal(seen.next, 8); /* none after it */
    assert_int_equal(error.code, TOCSIN_E_FORMAT);
    assert_string_equal(error.message, "job 7");
    assert_string_equal(error.where, "place");
    assert_int_equal(error.offset, 3);
    assert_int_equal(tocsin_scale_share(*state, &results, &error), TOCSIN_E_ARGUMENT);
}

static void test_limits(void **state)
{
    seen_jobs seen = {0};
    tocsin_scale_results *results;
    tocsin_error error = {0};
    assert_int_equal(
        tocsin_scale_run(*state, TOCSIN_SCALE_JOBS_MAX + 1, square, &seen, &results, &error),
        TOCSIN_E_LIMIT);
    assert_null(results);
    assert_int_equal(seen.next, 0);
    assert_non_null(strstr(error.message, "16777217 jobs"));
    char *copy;
    size_t bytes;
    assert_int_equal(
        tocsin_scale_broadcast(*state, "", TOCSIN_SCALE_TOTAL_BYTES_MAX + 1, &copy, &bytes, &error),
        TOCSIN_E_LIMIT);
    assert_null(copy);
}

/* More than one job may write: the job fails, even if it does not look. */
static tocsin_status write_too_much(void *context, size_t index, tocsin_scale_output *output,
                                    tocsin_error *error)
{
    (void)index;
    (void)error;
    tocsin_scale_write(output, "begins", 6);
    tocsin_scale_write(output, context, TOCSIN_SCALE_RESULT_BYTES_MAX);
    return TOCSIN_OK;
}

static void test_long_result(void **state)
{
    char byte = 0; /* not looked at: the limit is checked first */
    tocsin_scale_results *results;
    tocsin_error error = {0};
    assert_int_equal(tocsin_scale_run(*state, 3, write_too_much, &byte, &results, &error),
                     TOCSIN_E_LIMIT);
    assert_null(results);
    assert_int_equal(error.code, TOCSIN_E_LIMIT);
}

static void test_agree_and_broadcast(void **state)
{
    tocsin_error error = {0};
    assert_int_equal(tocsin_scale_agree(*state, TOCSIN_OK, &error), TOCSIN_OK);
    tocsin_status status = tocsin_error_set(&error, TOCSIN_E_IO, "as it was");
    assert_int_equal(tocsin_scale_agree(*state, status, &error), TOCSIN_E_IO);
    assert_string_equal(error.message, "as it was");
    char *copy;
    size_t bytes;
    assert_int_equal(tocsin_scale_broadcast(*state, "a\0b", 3, &copy, &bytes, NULL), TOCSIN_OK);
    assert_int_equal(bytes, 3);
    assert_memory_equal(copy, "a\0b", 4);
    tocsin_scale_free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_run, begin, end),
        cmocka_unit_test_setup_teardown(test_failing_job, begin, end),
        cmocka_unit_test_setup_teardown(test_limits, begin, end),
        cmocka_unit_test_setup_teardown(test_long_result, begin, end),
        cmocka_unit_test_setup_teardown(test_agree_and_broadcast, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
