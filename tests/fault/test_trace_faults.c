/* Every allocation and every file operation of reading and writing traces fails once. A writer that
 * cannot be opened leaves no file; a job whose file takes no more goes on; nothing leaks (sanitizer
 * build). */
#include "every_fault.h"
#include "trace/trace_writer.h"
#include "trace_sample.h"
#include <signal.h>
#include <sys/resource.h>

enum { EVENTS = 50 };

static size_t files_in(const scratch *run)
{
    size_t count = 0;
    DIR *entries = opendir(run->directory);
    assert_non_null(entries);
    while (readdir(entries))
        ++count;
    closedir(entries);
    return count - 3; /* ".", "..", run.json */
}

static tocsin_status open_and_close(void *context, tocsin_error *error)
{
    const scratch *run = context;
    tocsin_trace_writer_options options = {
        .struct_bytes = sizeof options, .directory = run->directory, .flush_ms = 60000};
    tocsin_trace_writer *writer;
    tocsin_status status = tocsin_trace_writer_open(&options, &writer, error);
    if (status != TOCSIN_OK) {
        assert_null(writer);
        assert_int_equal(files_in(run), 0);
        return status;
    }
    status = tocsin_trace_writer_close(writer, error);
    char path[SCRATCH_PATH_BYTES];
    scratch_find(run, "process-", ".trace", path);
    unlink(path);
    scratch_find(run, "process-", ".ring", path);
    if (path[0])
        unlink(path);
    return status;
}

static void test_open_fails_cleanly_without_memory(void **state)
{
    (void)state;
    scratch run = scratch_new();
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, open_and_close, &run) > 5);
    scratch_free(&run);
}

/* Without its ring file a writer works: then only some failures are its caller's. */
static void test_open_survives_or_reports_failing_files(void **state)
{
    (void)state;
    scratch run = scratch_new();
    int survived = 0;
    int failed = 0;
    for (uint64_t nth = 1;; ++nth) {
        tocsin_error error = {0};
        tocsin_fault_arm(TOCSIN_FAULT_IO, nth);
        tocsin_status status = open_and_close(&run, &error);
        if (!tocsin_fault_disarm(TOCSIN_FAULT_IO))
            break;
        assert_true(status == TOCSIN_OK || error.message[0] != 0);
        survived += status == TOCSIN_OK;
        failed += status != TOCSIN_OK;
    }
    assert_true(survived > 0 && failed > 0);
    scratch_free(&run);
}

/* Emitting while the nth operation fails: emitters never notice, what is lost is counted, and the
 * file has all the rest with its names. */
static void emit_with_fault(const scratch *run, tocsin_fault kind, uint64_t nth, bool *fired)
{
    tocsin_trace_writer *writer = scratch_writer(run, 0, 60000);
    trace_sample source = sample_begin(writer, 3);
    tocsin_fault_arm(kind, nth);
    for (int i = 0; i < EVENTS; ++i) {
        tocsin_event event = sample_event(&source);
        tocsin_trace_emit(writer, &event);
        (void)tocsin_trace_define_string(writer, (const char *)&i, sizeof i);
        if (i % 10 == 9) {
            tocsin_status flushed = tocsin_trace_writer_flush(writer, NULL);
            assert_true(flushed == TOCSIN_OK || kind == TOCSIN_FAULT_IO);
        }
    }
    tocsin_trace_statistics statistics;
    tocsin_trace_writer_statistics(writer, &statistics);
    *fired = tocsin_fault_disarm(kind);
    assert_int_equal(tocsin_trace_writer_close(writer, NULL), TOCSIN_OK);

    char path[SCRATCH_PATH_BYTES];
    scratch_find(run, "process-", ".trace", path);
    tocsin_trace *trace = scratch_open(path, false);
    uint64_t count = 0;
    while (scratch_next(trace))
        ++count;
    assert_int_equal(count + statistics.lost, EVENTS);
    assert_true(*fired || statistics.lost == 0);
    assert_int_equal(tocsin_trace_corrupt_blocks(trace), 0);
    assert_string_equal(tocsin_trace_variable_name(trace, source.variables[0]), "data");
    tocsin_trace_facts facts;
    tocsin_trace_get_facts(trace, &facts);
    assert_int_equal(facts.lost, statistics.lost);
    assert_true(facts.complete);
    tocsin_trace_close(trace);
    unlink(path);
}

static void test_job_goes_on_when_writing_fails(void **state)
{
    (void)state;
    scratch run = scratch_new();
    for (int kind = 0; kind < TOCSIN_FAULT_COUNT; ++kind) {
        bool fired = true;
        uint64_t nth = 1;
        for (; fired; ++nth)
            emit_with_fault(&run, (tocsin_fault)kind, nth, &fired);
        assert_true(nth > 3);
    }
    scratch_free(&run);
}

/* A full disk: who defines more names than the dictionary's ring holds gets none, and does not
 * wait. */
static void test_definitions_on_a_full_disk(void **state)
{
    (void)state;
    enum { NAMES = 40, NAME_BYTES = 30000 };
    scratch run = scratch_new();
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    for (int round = 0; round < 10; ++round) {
        tocsin_trace_writer *writer = scratch_writer(&run, 0, 60000);
        struct rlimit full = {.rlim_cur = TOCSIN_IDENTITY_BYTES, .rlim_max = before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &full), 0);
        char *name = calloc(1, NAME_BYTES);
        assert_non_null(name);
        tocsin_id last = 1;
        for (int i = 0; i < NAMES; ++i) {
            memcpy(name, &i, sizeof i);
            last = tocsin_trace_define_string(writer, name, NAME_BYTES);
        }
        free(name);
        assert_int_equal(last, 0);
        assert_int_not_equal(tocsin_trace_writer_flush(writer, NULL), TOCSIN_OK);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(tocsin_trace_writer_close(writer, NULL), TOCSIN_OK);
    }
    signal(SIGXFSZ, SIG_DFL);
    scratch_free(&run);
}

/* No ring for a thread: its events are lost, and counted. */
static void test_thread_without_a_ring(void **state)
{
    (void)state;
    scratch run = scratch_new();
    tocsin_trace_writer *writer = scratch_writer(&run, 0, 60000);
    tocsin_fault_arm(TOCSIN_FAULT_MEMORY, 1);
    assert_int_equal(scratch_enter(writer, 1), 0);
    scratch_exit(writer, 1, 0);
    assert_true(tocsin_fault_disarm(TOCSIN_FAULT_MEMORY));
    tocsin_trace_statistics statistics;
    tocsin_trace_writer_statistics(writer, &statistics);
    assert_int_equal(statistics.lost, 2);
    assert_int_equal(tocsin_trace_writer_close(writer, NULL), TOCSIN_OK);
    scratch_free(&run);
}

/* ---- reading -------------------------------------------------------------------------------- */

static tocsin_status read_run(void *context, tocsin_error *error)
{
    const scratch *run = context;
    tocsin_run *read;
    TOCSIN_TRY(tocsin_run_open(run->directory, false, &read, error));
    tocsin_status status = TOCSIN_OK;
    for (size_t i = 0; status == TOCSIN_OK && i < tocsin_run_process_count(read); ++i) {
        tocsin_trace *trace = tocsin_run_process(read, i);
        const tocsin_event *event = NULL;
        do {
            status = tocsin_trace_next(trace, &event, error);
            const char *line;
            size_t bytes;
            if (status == TOCSIN_OK && event)
                status = tocsin_trace_event_json(trace, event, &line, &bytes, error);
        } while (status == TOCSIN_OK && event);
    }
    tocsin_run_close(read);
    return status;
}

static void test_every_failure_of_reading_is_reported(void **state)
{
    (void)state;
    scratch run = scratch_new();
    tocsin_trace_writer *writer = scratch_writer(&run, 0, 60000);
    trace_sample source = sample_begin(writer, 3);
    for (int i = 0; i < EVENTS; ++i) {
        tocsin_event event = sample_event(&source);
        tocsin_trace_emit(writer, &event);
    }
    assert_int_equal(tocsin_trace_writer_close(writer, NULL), TOCSIN_OK);
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, read_run, &run) > 20);
    assert_true(every_fault(TOCSIN_FAULT_IO, TOCSIN_E_IO, read_run, &run) > 5);
    scratch_free(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_fails_cleanly_without_memory),
        cmocka_unit_test(test_open_survives_or_reports_failing_files),
        cmocka_unit_test(test_job_goes_on_when_writing_fails),
        cmocka_unit_test(test_definitions_on_a_full_disk),
        cmocka_unit_test(test_thread_without_a_ring),
        cmocka_unit_test(test_every_failure_of_reading_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
