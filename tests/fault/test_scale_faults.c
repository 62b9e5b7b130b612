/* lib/scale with one rank: every allocation that fails is reported and leaks nothing. tests/mpi
 * does the same with several. */
#include <stdlib.h>
#include <tocsin/scale.h>

#include "every_fault.h"

static tocsin_status write_index(void *context, size_t index, tocsin_scale_output *output,
                                 tocsin_error *error)
{
    (void)context;
    (void)error;
    char result[1000] = {(char)index};
    tocsin_scale_write(output, result, sizeof result);
    return TOCSIN_OK;
}

static tocsin_status use(tocsin_scale *scale, tocsin_error *error)
{
    tocsin_scale_results *results;
    char *copy;
    size_t bytes;
    TOCSIN_TRY(tocsin_scale_broadcast(scale, "text", 4, &copy, &bytes, error));
    tocsin_scale_free(copy);
    tocsin_status status = tocsin_scale_run(scale, 10, write_index, NULL, &results, error);
    assert_int_equal(results != NULL, status == TOCSIN_OK);
    tocsin_scale_results_free(results);
    return status;
}

static tocsin_status begin_and_use(void *context, tocsin_error *error)
{
    (void)context;
    tocsin_scale *scale;
    TOCSIN_TRY(tocsin_scale_begin(&scale, error));
    tocsin_status status = use(scale, error);
    assert_int_equal(tocsin_scale_end(scale, 3), 3);
    return status;
}

static void test_every_allocation(void **state)
{
    (void)state;
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, begin_and_use, NULL) >= 6);
}

int main(void)
{
    setenv("TOCSIN_MPI", "off", 1); /* whatever launched the tests */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
