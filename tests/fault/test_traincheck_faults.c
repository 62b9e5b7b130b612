/* Importing with every allocation and every system call made to fail in turn. */
#include "every_fault.h"
#include "traincheck_scratch.h"

static void fill(const traincheck_folder *folder)
{
    traincheck_put_call(folder, "trace_API_9_5.log", 10, "a", "f",
                        "\"0\":{\"torch.Tensor\":{\"dtype\":\"torch.float32\",\"shape\":[2]}},"
                        "\"1\":{\"float\":NaN}");
    traincheck_put_return(folder, "trace_API_9_5.log", 12, "a", "f", "{\"str\":\"x\"}");
    traincheck_put_sample(folder, "trace_VAR_9_9.log", 9, 11, "\"step\":0", "w", 5, "");
    traincheck_put_sample(folder, "trace_VAR_8_8.log", 8, 11, "\"step\":0", "w", 5, "");
}

static tocsin_status import(void *context, tocsin_error *error)
{
    const traincheck_folder *folder = context;
    tocsin_status status =
        tocsin_traincheck_import(folder->traces.directory, folder->run, NULL, NULL, error);
    if (status == TOCSIN_OK)
        assert_int_equal(nftw(folder->run, traincheck_remove, 8, FTW_DEPTH | FTW_PHYS), 0);
    else
        assert_int_equal(access(folder->run, F_OK), -1); /* nothing is left */
    return status;
}

static void test_every_failure_is_reported_and_leaves_nothing(void **state)
{
    (void)state;
    traincheck_folder folder = traincheck_new();
    fill(&folder);
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, import, &folder) > 50);
    traincheck_free(&folder);
}

/* Without the file of its rings a writer works: some failures are nobody's. */
static void test_an_import_survives_or_reports_failing_files(void **state)
{
    (void)state;
    traincheck_folder folder = traincheck_new();
    fill(&folder);
    int survived = 0, failed = 0;
    for (uint64_t nth = 1;; ++nth) {
        tocsin_error error = {0};
        tocsin_fault_arm(TOCSIN_FAULT_IO, nth);
        tocsin_status status = import(&folder, &error);
        if (!tocsin_fault_disarm(TOCSIN_FAULT_IO))
            break;
        assert_true(status == TOCSIN_OK || error.message[0] != 0);
        survived += status == TOCSIN_OK;
        failed += status != TOCSIN_OK;
    }
    assert_true(survived > 0 && failed > 20);
    traincheck_free(&folder);
}

static tocsin_status export(void *context, tocsin_error *error)
{
    const traincheck_folder *folder = context;
    char back[SCRATCH_PATH_BYTES];
    snprintf(back, sizeof back, "%s/back", folder->traces.directory);
    tocsin_status status = tocsin_traincheck_export(folder->run, back, NULL, error);
    if (status == TOCSIN_OK)
        assert_int_equal(nftw(back, traincheck_remove, 8, FTW_DEPTH | FTW_PHYS), 0);
    else
        assert_int_equal(access(back, F_OK), -1);
    return status;
}

static void test_every_failure_of_exporting(void **state)
{
    (void)state;
    traincheck_folder folder = traincheck_new();
    fill(&folder);
    traincheck_import(&folder);
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, export, &folder) > 10);
    assert_true(every_fault(TOCSIN_FAULT_IO, TOCSIN_E_IO, export, &folder) > 10);
    traincheck_free(&folder);
}

static tocsin_status load(void *context, tocsin_error *error)
{
    tocsin_invariant_set *set = NULL;
    tocsin_status status = tocsin_traincheck_invariants_load(context, NULL, &set, error);
    tocsin_invariants_free(set);
    return status;
}

static void test_every_failure_of_reading_invariants(void **state)
{
    (void)state;
    traincheck_folder folder = traincheck_new();
    char path[SCRATCH_PATH_BYTES];
    traincheck_put(
        &folder, "invariants.json",
        "{\"relation\":\"ConsistencyRelation\",\"params\":[{\"var_type\":\"Parameter\","
        "\"attr_name\":\"data\"},{\"var_type\":\"Parameter\",\"attr_name\":\"data\"}],"
        "\"precondition\":{\"var\":{\"inverted\":false,\"preconditions\":[{\"clauses\":["
        "{\"type\":\"constant\",\"prop_name\":\"attributes.a\",\"values\":[1,2]}]}]}}}\n");
    snprintf(path, sizeof path, "%s/invariants.json", folder.traces.directory);
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, load, path) > 20);
    assert_true(every_fault(TOCSIN_FAULT_IO, TOCSIN_E_IO, load, path) > 1);
    traincheck_free(&folder);
}

static tocsin_status save(void *context, tocsin_error *error)
{
    return tocsin_traincheck_invariants_save(context, "/dev/null", true, NULL, NULL, error);
}

static void test_every_failure_of_writing_invariants(void **state)
{
    (void)state;
    traincheck_folder folder = traincheck_new();
    char path[SCRATCH_PATH_BYTES];
    tocsin_invariant_set *set = NULL;
    traincheck_put(&folder, "invariants.json",
                   "{\"relation\":\"ConsistencyRelation\",\"params\":[{\"var_type\":\"Parameter\","
                   "\"attr_name\":\"grad\"},{\"var_type\":\"Parameter\",\"attr_name\":\"grad\"}],"
                   "\"precondition\":{\"var\":{\"inverted\":false,\"preconditions\":[{\"clauses\":["
                   "{\"type\":\"constant\",\"prop_name\":\"attributes.a\",\"values\":[1]}]}]}}}\n");
    snprintf(path, sizeof path, "%s/invariants.json", folder.traces.directory);
    assert_int_equal(tocsin_traincheck_invariants_load(path, NULL, &set, NULL), TOCSIN_OK);
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, save, set) > 2);
    assert_true(every_fault(TOCSIN_FAULT_IO, TOCSIN_E_IO, save, set) > 0);
    tocsin_invariants_free(set);
    traincheck_free(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_failure_is_reported_and_leaves_nothing),
        cmocka_unit_test(test_an_import_survives_or_reports_failing_files),
        cmocka_unit_test(test_every_failure_of_exporting),
        cmocka_unit_test(test_every_failure_of_reading_invariants),
        cmocka_unit_test(test_every_failure_of_writing_invariants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
