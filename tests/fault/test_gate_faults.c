/* Every allocation and every system call of the gate fails once: each is reported, nothing leaks,
 * and what was published stays. */
#include "every_fault.h"
#include <stdio.h>
#include <stdlib.h>
#include <tocsin/gate.h>
#include <tocsin/guard.h>
#include <tocsin/guard_report.h>
#include <unistd.h>

static char directory[64], side[96], staged[96];

static int enter_directory(void **state)
{
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/tocsin-gate-XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    snprintf(side, sizeof side, "%s/side", directory);
    snprintf(staged, sizeof staged, "%s/staged", directory);
    return 0;
}

static int leave_directory(void **state)
{
    (void)state;
    unlink(side);
    unlink(staged);
    return rmdir(directory);
}

static tocsin_status gather(tocsin_checkpoint_digests *digests, uint64_t bits, tocsin_error *error)
{
    const int64_t shape[] = {3};
    const tocsin_tensor_view view = {.dtype = TOCSIN_DTYPE_INT64, .ndim = 1, .shape = shape};
    for (int i = 0; i < 20; ++i) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        TOCSIN_TRY(tocsin_checkpoint_digests_add_tensor(
            digests, name, &view, (tocsin_digest){bits, bits, bits}, true, error));
    }
    return tocsin_checkpoint_digests_add_value(digests, bits % 2 ? "odd" : "even", "1", 1, error);
}

static tocsin_status save_and_compare(void *context, tocsin_error *error)
{
    (void)context;
    tocsin_checkpoint_digests *saved = NULL, *read = NULL, *other = NULL;
    tocsin_checkpoint_differences *differences = NULL;
    tocsin_status status = tocsin_checkpoint_digests_new(&saved, error);
    if (status == TOCSIN_OK)
        status = gather(saved, 1, error);
    if (status == TOCSIN_OK)
        status = tocsin_checkpoint_digests_save(saved, side, error);
    if (status == TOCSIN_OK)
        status = tocsin_checkpoint_digests_read(side, &read, error);
    if (status == TOCSIN_OK)
        status = tocsin_checkpoint_digests_new(&other, error);
    if (status == TOCSIN_OK)
        status = gather(other, 2, error);
    if (status == TOCSIN_OK)
        status = tocsin_checkpoint_digests_compare(read, other, &differences, error);
    if (status == TOCSIN_OK)
        assert_int_equal(differences->count, 22);
    tocsin_checkpoint_differences_free(differences);
    tocsin_checkpoint_digests_free(saved);
    tocsin_checkpoint_digests_free(read);
    tocsin_checkpoint_digests_free(other);
    return status;
}

static tocsin_status publish(void *context, tocsin_error *error)
{
    (void)context;
    bool replaced;
    if (access(staged, F_OK) != 0)
        assert_int_equal(rename(side, staged), 0);
    return tocsin_gate_publish(staged, side, &replaced, error);
}

static tocsin_status read_and_print(void *context, tocsin_error *error)
{
    (void)context;
    tocsin_guard_report *report = NULL;
    const char *text;
    tocsin_status status = tocsin_guard_report_read(directory, &report, error);
    if (status == TOCSIN_OK)
        status = tocsin_guard_report_text(report, &text, error);
    if (status == TOCSIN_OK)
        status = tocsin_guard_report_json(report, &text, error);
    tocsin_guard_report_free(report);
    return status;
}

static void test_report(void **state)
{
    (void)state;
    static const char finding[] =
        "{\"check\":\"weights\",\"step\":3,\"cause\":\"transient\",\"ranks\":[0,1],"
        "\"hosts\":[\"a\",\"b\"],\"action\":\"stop\",\"text\":\"it differs\"}";
    char ledger[96];
    snprintf(ledger, sizeof ledger, "%s/rank-0.jsonl", directory);
    assert_int_equal(tocsin_guard_ledger_append(ledger, finding, sizeof finding - 1, NULL),
                     TOCSIN_OK);
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, read_and_print, NULL) > 10);
    assert_true(every_fault(TOCSIN_FAULT_IO, TOCSIN_E_IO, read_and_print, NULL) > 2);
    unlink(ledger);
}

static void test_memory(void **state)
{
    (void)state;
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, save_and_compare, NULL) > 20);
}

static void test_system_calls(void **state)
{
    (void)state;
    assert_true(every_fault(TOCSIN_FAULT_IO, TOCSIN_E_IO, save_and_compare, NULL) > 5);
    assert_int_equal(every_fault(TOCSIN_FAULT_IO, TOCSIN_E_IO, publish, NULL), 4);
    assert_int_equal(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, publish, NULL), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_system_calls),
        cmocka_unit_test(test_report),
    };
    return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}
