/* Runs as directories: run.json is checked, processes are found as they appear and keep their
 * place. */
#include "trace_scratch.h"
#include <sys/resource.h>

static void expect_refused(const char *directory, tocsin_status expected, const char *word)
{
    tocsin_error error = {0};
    tocsin_run *run;
    assert_int_equal(tocsin_run_open(directory, false, &run, &error), expected);
    assert_null(run);
    assert_non_null(strstr(error.message, word));
    assert_non_null(strstr(error.where, directory));
}

static void describe(const scratch *run, const char *json)
{
    char path[SCRATCH_PATH_BYTES];
    snprintf(path, sizeof path, "%s/run.json", run->directory);
    scratch_write(path, json, strlen(json));
}

static void test_what_is_no_run_is_refused(void **state)
{
    (void)state;
    scratch run = scratch_new();
    char path[SCRATCH_PATH_BYTES];
    expect_refused("/nonexistent/run", TOCSIN_E_NOT_FOUND, "No such file");
    describe(&run, "{");
    expect_refused(run.directory, TOCSIN_E_FORMAT, "");
    describe(&run, "[]");
    expect_refused(run.directory, TOCSIN_E_FORMAT, "description");
    describe(&run, "{\"format\":\"other\",\"version\":1}");
    expect_refused(run.directory, TOCSIN_E_FORMAT, "description");
    describe(&run, "{\"format\":\"tocsin-run\",\"version\":\"1\"}");
    expect_refused(run.directory, TOCSIN_E_FORMAT, "description");
    describe(&run, "{\"format\":\"tocsin-run\",\"version\":2}");
    expect_refused(run.directory, TOCSIN_E_VERSION, "version 2");
    snprintf(path, sizeof path, "%s/run.json", run.directory);
    unlink(path);
    expect_refused(run.directory, TOCSIN_E_FORMAT, "run.json");
    scratch_free(&run);
}

static void test_unknown_members_and_files_are_left_alone(void **state)
{
    (void)state;
    scratch run = scratch_new();
    char path[SCRATCH_PATH_BYTES];
    const char *json = "{\"later\":[1,{}],\"format\":\"tocsin-run\",\"version\":1}";
    describe(&run, json);
    snprintf(path, sizeof path, "%s/process-notes.txt", run.directory);
    scratch_write(path, "x", 1);
    snprintf(path, sizeof path, "%s/findings.trace", run.directory);
    scratch_write(path, "x", 1);
    tocsin_run *read;
    assert_int_equal(tocsin_run_open(run.directory, false, &read, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_run_process_count(read), 0);
    assert_string_equal(tocsin_run_json(read), json);
    assert_string_equal(tocsin_run_directory(read), run.directory);
    tocsin_run_close(read);
    scratch_free(&run);
}

static void test_processes_appear_and_keep_their_place(void **state)
{
    (void)state;
    scratch run = scratch_new();
    tocsin_run *read;
    assert_int_equal(tocsin_run_open(run.directory, true, &read, NULL), TOCSIN_OK);
    tocsin_trace_writer *first = scratch_writer(&run, 0, 0);
    assert_int_equal(tocsin_run_process_count(read), 0);
    assert_int_equal(tocsin_run_refresh(read, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_run_process_count(read), 1);
    tocsin_trace *trace = tocsin_run_process(read, 0);
    tocsin_trace_writer *second = scratch_writer(&run, 0, 0);
    /* A process that has only begun its file: nothing to read yet, nothing wrong. */
    char path[SCRATCH_PATH_BYTES];
    snprintf(path, sizeof path, "%s/process-a-1.trace", run.directory);
    scratch_write(path, "TOCT", 4);
    assert_int_equal(tocsin_run_refresh(read, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_run_refresh(read, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_run_process_count(read), 3);
    assert_ptr_equal(tocsin_run_process(read, 0), trace);
    assert_string_equal(tocsin_trace_path(tocsin_run_process(read, 1)), path);
    assert_null(scratch_next(tocsin_run_process(read, 1)));
    assert_int_equal(tocsin_trace_trailing_bytes(tocsin_run_process(read, 1)), 4);
    scratch_meta(first, 0, 1);
    scratch_meta(second, 0, 2);
    assert_int_equal(tocsin_trace_writer_close(first, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_trace_writer_close(second, NULL), TOCSIN_OK);
    assert_int_equal(scratch_next(trace)->values[0].as.integer, 1);
    assert_int_equal(scratch_next(tocsin_run_process(read, 2))->values[0].as.integer, 2);
    /* The process goes on with its file. */
    char other[SCRATCH_PATH_BYTES];
    size_t count;
    snprintf(other, sizeof other, "%s", tocsin_trace_path(trace));
    uint8_t *whole = scratch_read(other, &count);
    scratch_write(path, whole, count);
    free(whole);
    assert_int_equal(scratch_next(tocsin_run_process(read, 1))->values[0].as.integer, 1);
    tocsin_run_close(read);

    scratch_write(path, "something else", 14);
    tocsin_error error;
    assert_int_equal(tocsin_run_open(run.directory, false, &read, &error), TOCSIN_E_FORMAT);
    assert_non_null(strstr(error.where, "process-a-1.trace"));
    scratch_free(&run);
}

/* DataLoader workers make a file each, in each epoch. */
static void test_more_processes_than_open_files(void **state)
{
    (void)state;
    enum { PROCESSES = 100, FILES = 40 };
    scratch run = scratch_new();
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit few = {.rlim_cur = FILES, .rlim_max = before.rlim_max};
    for (int i = 0; i < PROCESSES; ++i) {
        tocsin_trace_writer *writer = scratch_writer(&run, 16 << 10, 0);
        scratch_meta(writer, 0, i);
        assert_int_equal(tocsin_trace_writer_close(writer, NULL), TOCSIN_OK);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int follow = 0; follow < 2; ++follow) {
        tocsin_run *read;
        assert_int_equal(tocsin_run_open(run.directory, follow, &read, NULL), TOCSIN_OK);
        assert_int_equal(tocsin_run_process_count(read), PROCESSES);
        for (size_t i = 0; i < PROCESSES; ++i) {
            assert_non_null(scratch_next(tocsin_run_process(read, i)));
            assert_null(scratch_next(tocsin_run_process(read, i)));
            assert_null(scratch_next(tocsin_run_process(read, i)));
        }
        tocsin_run_close(read);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    scratch_free(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_no_run_is_refused),
        cmocka_unit_test(test_unknown_members_and_files_are_left_alone),
        cmocka_unit_test(test_processes_appear_and_keep_their_place),
        cmocka_unit_test(test_more_processes_than_open_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
