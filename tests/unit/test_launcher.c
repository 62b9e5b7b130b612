/* Which environments mean that a launcher started this process as one of several. */
#include <stdlib.h>

#include "cmocka_test.h"
#include "scale/scale.h"

static const char *const variables[] = {
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",  "PMI_SIZE",   "SLURM_STEP_ID",
    "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS",         "PMIX_RANK", "TOCSIN_MPI",
};

static int clear(void **state)
{
    (void)state;
    for (size_t i = 0; i < TOCSIN_COUNT_OF(variables); ++i)
        unsetenv(variables[i]);
    return 0;
}

/* `setting` is "NAME=VALUE ...". */
static void expect_launcher(const char *setting, const char *name, int64_t size)
{
    clear(NULL);
    char text[256];
    assert_true(strlen(setting) < sizeof text);
    memcpy(text, setting, strlen(setting) + 1);
    char *rest = NULL;
    for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(word, '=');
        *value++ = 0;
        assert_int_equal(setenv(word, value, 1), 0);
    }
    int64_t found = -1;
    const char *launcher = tocsin_scale_launcher(&found);
    if (name)
        assert_non_null(strstr(launcher, name));
    else
        assert_null(launcher);
    assert_int_equal(found, size);
}

static void test_launchers(void **state)
{
    (void)state;
    expect_launcher("", NULL, 1);
    expect_launcher("OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4", "Open MPI", 4);
    expect_launcher("PMI_RANK=0 PMI_SIZE=2", "MPICH", 2);
    expect_launcher("PMIX_RANK=0", "PMIx", 0);
    expect_launcher("SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=8 PMIX_RANK=1", "srun", 8);
    /* mpirun within a job of Slurm, whose step has a process per machine. */
    expect_launcher("SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 OMPI_COMM_WORLD_RANK=0"
                    " OMPI_COMM_WORLD_SIZE=16",
                    "Open MPI", 16);
    /* A batch script is no step. */
    expect_launcher("SLURM_NTASKS=8", NULL, 1);
}

static void test_odd_values(void **state)
{
    (void)state;
    expect_launcher("OMPI_COMM_WORLD_RANK= OMPI_COMM_WORLD_SIZE=4", NULL, 1);
    static const char *const sizes[] = {"", "0", "-4", "4x", "99999999999999999999"};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(sizes); ++i) {
        char setting[64] = "PMI_RANK=0 PMI_SIZE=";
        strcat(setting, sizes[i]);
        expect_launcher(setting, "MPICH", 0);
    }
}

static void expect_begin(tocsin_status expected, const char *message)
{
    tocsin_scale *scale;
    tocsin_error error = {0};
    assert_int_equal(tocsin_scale_begin(&scale, &error), expected);
    assert_int_equal(scale == NULL, expected != TOCSIN_OK);
    if (message) {
        assert_int_equal(error.code, expected);
        assert_non_null(strstr(error.message, message));
    } else {
        assert_int_equal(tocsin_scale_rank(scale), 0);
        assert_int_equal(tocsin_scale_size(scale), 1);
    }
    assert_int_equal(tocsin_scale_end(scale, 5), 5);
}

/* This program does not find libtocsin_mpi.so. */
static void test_begin(void **state)
{
    (void)state;
    expect_begin(TOCSIN_OK, NULL);
    setenv("TOCSIN_MPI", "auto", 1);
    expect_begin(TOCSIN_OK, NULL);
    setenv("TOCSIN_MPI", "no", 1);
    expect_begin(TOCSIN_E_ARGUMENT, "'no'");
    setenv("TOCSIN_MPI", "", 1);
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
    expect_begin(TOCSIN_OK, NULL);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    expect_begin(TOCSIN_E_UNSUPPORTED, "MPI cannot be used: " TOCSIN_SCALE_LIBRARY);
    setenv("TOCSIN_MPI", "off", 1);
    expect_begin(TOCSIN_OK, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_launchers, clear),
        cmocka_unit_test_setup(test_odd_values, clear),
        cmocka_unit_test_setup(test_begin, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
