/* Every allocation and system call of the recorder fails once. Opening reports it; while recording
 * nothing fails visibly, whatever is lost; nothing leaks (sanitizer build). */
#include "every_fault.h"
#include <dirent.h>
#include <record/record.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char directory[64];
static char selection_path[128];

static int enter_directory(void **state)
{
    (void)state;
    static const char text[] = "tocsin-selection 1\nrole loss args\nfunction torch.relu\n"
                               "state optimizer.step exit data digest parameter\n";
    snprintf(directory, sizeof directory, "/tmp/tocsin-record-faults-XXXXXX");
    if (mkdtemp(directory) == NULL)
        return -1;
    snprintf(selection_path, sizeof selection_path, "%s/selection", directory);
    return tocsin_file_store(selection_path, text, sizeof text - 1, true, NULL) == TOCSIN_OK ? 0
                                                                                             : -1;
}

static void empty_directory(void)
{
    DIR *entries = opendir(directory);
    for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        if (strcmp(path, selection_path) != 0)
            (void)unlink(path);
    }
    closedir(entries);
}

static int leave_directory(void **state)
{
    (void)state;
    empty_directory();
    (void)unlink(selection_path);
    return rmdir(directory);
}

static tocsin_status open_and_close(void *context, tocsin_error *error)
{
    (void)context;
    tocsin_recorder_options options = {
        .struct_bytes = sizeof options, .directory = directory, .selection = selection_path};
    tocsin_recorder *recorder;
    tocsin_status status = tocsin_recorder_open(&options, &recorder, error);
    if (status != TOCSIN_OK) {
        assert_null(recorder);
        return status;
    }
    return tocsin_recorder_close(recorder, error);
}

static void test_opening(void **state)
{
    (void)state;
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, open_and_close, NULL) > 10);
    assert_true(every_fault(TOCSIN_FAULT_IO, TOCSIN_E_IO, open_and_close, NULL) > 1);
}

/* A little of everything, with a fault somewhere in it. */
static void record_something(tocsin_recorder *recorder)
{
    float value = 1.0F;
    tocsin_tensor_view view = {.data = &value, .dtype = TOCSIN_DTYPE_FLOAT32};
    tocsin_trace_writer *writer = tocsin_recorder_writer(recorder);
    tocsin_sample sample = {
        .variable = writer == NULL
                        ? 0
                        : tocsin_trace_define_variable(writer, "w", TOCSIN_VARIABLE_PARAMETER, "P"),
        .moment = TOCSIN_MOMENT_EXIT,
        .dtype = TOCSIN_DTYPE_FLOAT32,
        .view = &view};
    (void)tocsin_recorder_sample(recorder, &sample, NULL);
    tocsin_recorder_meta_int(recorder, tocsin_recorder_meta_key(recorder, "mine"), 1);
    tocsin_recorder_backward_passed(recorder);
    tocsin_recorder_optimizer_stepped(recorder, 0);
    tocsin_recorder_summary summary;
    tocsin_recorder_summarize(recorder, &summary);
    assert_int_equal(summary.steps, 1);
}

static void record_with_faults(tocsin_fault kind)
{
    for (uint64_t nth = 1;; ++nth) {
        tocsin_recorder_options options = {.struct_bytes = sizeof options, .directory = directory};
        tocsin_recorder *recorder;
        assert_int_equal(tocsin_recorder_open(&options, &recorder, NULL), TOCSIN_OK);
        tocsin_fault_arm(kind, nth);
        record_something(recorder);
        tocsin_status status = tocsin_recorder_close(recorder, NULL);
        bool fired = tocsin_fault_disarm(kind);
        empty_directory();
        if (!fired) {
            assert_int_equal(status, TOCSIN_OK);
            assert_true(nth > 3);
            return;
        }
    }
}

static void test_recording(void **state)
{
    (void)state;
    record_with_faults(TOCSIN_FAULT_MEMORY);
    record_with_faults(TOCSIN_FAULT_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opening),
        cmocka_unit_test(test_recording),
    };
    return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}
