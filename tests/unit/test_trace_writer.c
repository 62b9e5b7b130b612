/* Writing traces: nesting, time, threads, rings that wrap and fill, forked children. */
#include "trace/trace_writer.h"
#include "trace_scratch.h"

#include <pthread.h>
#include <sys/wait.h>

static void trace_path(const scratch *run, char path[SCRATCH_PATH_BYTES])
{
    scratch_find(run, "process-", ".trace", path);
    assert_true(path[0] != 0);
}

static void close_writer(tocsin_trace_writer *writer)
{
    tocsin_error error;
    assert_int_equal(tocsin_trace_writer_close(writer, &error), TOCSIN_OK);
}

/* ---- one thread ----------------------------------------------------------------------------- */

static void test_definitions_are_dense_and_equal_ones_are_one(void **state)
{
    (void)state;
    scratch run = scratch_new();
    tocsin_trace_writer *writer = scratch_writer(&run, 0, 0);
    int64_t sizes[] = {2, 0, INT64_C(1) << 40};
    assert_int_equal(tocsin_trace_define_string(writer, "abc", 2), 1);
    assert_int_equal(tocsin_trace_define_string(writer, "ab", 2), 1);
    assert_int_equal(tocsin_trace_define_string(writer, NULL, 0), 2);
    assert_int_equal(tocsin_trace_define_function(writer, "f", TOCSIN_ROLE_LOSS), 1);
    assert_int_equal(tocsin_trace_define_function(writer, "f", TOCSIN_ROLE_USER), 2);
    assert_int_equal(tocsin_trace_define_function(writer, "f", TOCSIN_ROLE_LOSS), 1);
    assert_int_equal(tocsin_trace_define_variable(writer, "w", TOCSIN_VARIABLE_BUFFER, "T"), 1);
    assert_int_equal(tocsin_trace_define_shape(writer, 3, sizes), 1);
    assert_int_equal(tocsin_trace_define_shape(writer, 2, sizes), 2);
    assert_int_equal(tocsin_trace_define_shape(writer, 65, sizes), 0);
    assert_int_equal(tocsin_trace_define_site(writer, "t.py", 7, "main"), 1);
    char *longest = calloc(1, 40000);
    memset(longest, 'x', 40000);
    tocsin_id text = tocsin_trace_define_string(writer, longest, 40000);
    close_writer(writer);

    char path[SCRATCH_PATH_BYTES];
    trace_path(&run, path);
    tocsin_trace *trace = scratch_open(path, false);
    assert_null(scratch_next(trace));
    assert_string_equal(tocsin_trace_string(trace, 1), "ab");
    assert_string_equal(tocsin_trace_string(trace, 2), "");
    assert_string_equal(tocsin_trace_string(trace, 0), "");
    assert_string_equal(tocsin_trace_string(trace, 99), "?");
    assert_string_equal(tocsin_trace_function_name(trace, 2), "f");
    assert_int_equal(tocsin_trace_function_role(trace, 2), TOCSIN_ROLE_USER);
    assert_string_equal(tocsin_trace_function_name(trace, 3), "?");
    assert_string_equal(tocsin_trace_variable_name(trace, 1), "w");
    assert_string_equal(tocsin_trace_variable_type(trace, 1), "T");
    assert_int_equal(tocsin_trace_variable_kind(trace, 1), TOCSIN_VARIABLE_BUFFER);
    const int64_t *read_sizes;
    assert_int_equal(tocsin_trace_shape(trace, 1, &read_sizes), 3);
    assert_memory_equal(read_sizes, sizes, sizeof sizes);
    assert_int_equal(tocsin_trace_shape(trace, 0, &read_sizes), 0);
    assert_null(read_sizes);
    uint32_t line;
    const char *function;
    assert_string_equal(tocsin_trace_site(trace, 1, &line, &function), "t.py");
    assert_int_equal(line, 7);
    assert_string_equal(function, "main");
    assert_int_equal(strlen(tocsin_trace_string(trace, text)), 32768);
    tocsin_trace_close(trace);
    free(longest);
    scratch_free(&run);
}

static void expect_event(tocsin_trace *trace, uint8_t kind, uint32_t depth, uint64_t call)
{
    const tocsin_event *event = scratch_next(trace);
    assert_non_null(event);
    assert_int_equal(event->kind, kind);
    assert_int_equal(event->depth, depth);
    assert_int_equal(event->call, call);
}

static void test_calls_nest(void **state)
{
    (void)state;
    scratch run = scratch_new();
    tocsin_trace_writer *writer = scratch_writer(&run, 0, 0);
    tocsin_id f = tocsin_trace_define_function(writer, "f", TOCSIN_ROLE_NONE);
    scratch_meta(writer, 0, 1);
    assert_int_equal(scratch_enter(writer, f), 1);
    assert_int_equal(scratch_enter(writer, f), 2);
    scratch_meta(writer, 0, 2);
    scratch_exit(writer, f, 2);
    assert_int_equal(scratch_enter(writer, f), 3);
    assert_int_equal(scratch_enter(writer, f), 4);
    scratch_exit(writer, f, 1);  /* 3 and 4 never end */
    scratch_exit(writer, f, 1);  /* closed already */
    scratch_exit(writer, f, 77); /* not of this thread */
    scratch_meta(writer, 0, 3);
    close_writer(writer);

    char path[SCRATCH_PATH_BYTES];
    trace_path(&run, path);
    tocsin_trace *trace = scratch_open(path, false);
    expect_event(trace, TOCSIN_EVENT_META, 0, 0);
    expect_event(trace, TOCSIN_EVENT_ENTER, 0, 1);
    expect_event(trace, TOCSIN_EVENT_ENTER, 1, 2);
    expect_event(trace, TOCSIN_EVENT_META, 2, 2);
    expect_event(trace, TOCSIN_EVENT_EXIT, 2, 2);
    expect_event(trace, TOCSIN_EVENT_ENTER, 1, 3);
    expect_event(trace, TOCSIN_EVENT_ENTER, 2, 4);
    expect_event(trace, TOCSIN_EVENT_EXIT, 3, 1);
    expect_event(trace, TOCSIN_EVENT_EXIT, 0, 1);
    expect_event(trace, TOCSIN_EVENT_EXIT, 0, 77);
    expect_event(trace, TOCSIN_EVENT_META, 0, 0);
    assert_null(scratch_next(trace));
    assert_true(tocsin_trace_is_complete(trace));
    assert_false(tocsin_trace_is_alive(trace));
    tocsin_trace_close(trace);
    scratch_free(&run);
}

/* Deeper than the writer remembers calls: depth stays right, and unwinding finds the way back. */
static void test_deep_recursion(void **state)
{
    (void)state;
    enum { DEPTH = TOCSIN_RING_DEPTH_MAX + 100 };
    scratch run = scratch_new();
    tocsin_trace_writer *writer = scratch_writer(&run, 0, 0);
    for (int i = 0; i < DEPTH; ++i)
        scratch_enter(writer, 0);
    for (int i = DEPTH; i > 0; --i)
        scratch_exit(writer, 0, (uint64_t)i);
    close_writer(writer);
    char path[SCRATCH_PATH_BYTES];
    trace_path(&run, path);
    tocsin_trace *trace = scratch_open(path, false);
    for (uint32_t i = 0; i < DEPTH; ++i)
        expect_event(trace, TOCSIN_EVENT_ENTER, i, i + 1);
    for (uint32_t i = DEPTH; i > 0; --i)
        expect_event(trace, TOCSIN_EVENT_EXIT, i, i);
    assert_null(scratch_next(trace));
    tocsin_trace_close(trace);
    scratch_free(&run);
}

static void test_time_of_a_thread_never_goes_back(void **state)
{
    (void)state;
    scratch run = scratch_new();
    tocsin_trace_writer *writer = scratch_writer(&run, 0, 0);
    uint64_t times[] = {5000, 4000, 6000, UINT64_C(1) << 62};
    for (int i = 0; i < 4; ++i) {
        tocsin_event event = {.kind = TOCSIN_EVENT_ENTER, .time_ns = times[i]};
        tocsin_trace_emit(writer, &event);
    }
    close_writer(writer);
    char path[SCRATCH_PATH_BYTES];
    trace_path(&run, path);
    tocsin_trace *trace = scratch_open(path, false);
    assert_int_equal(scratch_next(trace)->time_ns, 5000);
    assert_int_equal(scratch_next(trace)->time_ns, 5000);
    assert_int_equal(scratch_next(trace)->time_ns, 6000);
    assert_int_equal(scratch_next(trace)->time_ns, UINT64_C(1) << 62);
    tocsin_trace_close(trace);
    scratch_free(&run);
}

static void test_values_beyond_the_limit_are_cut(void **state)
{
    (void)state;
    scratch run = scratch_new();
    tocsin_trace_writer *writer = scratch_writer(&run, 0, 0);
    tocsin_value values[100];
    for (int i = 0; i < 100; ++i)
        values[i] = (tocsin_value){.kind = TOCSIN_VALUE_INT,
                                   .flags = 255,
                                   .name = UINT32_MAX,
                                   .type = UINT32_MAX,
                                   .count = UINT32_MAX,
                                   .as.integer = INT64_MIN + i};
    tocsin_event event = {.kind = TOCSIN_EVENT_ENTER,
                          .function = UINT32_MAX,
                          .site = UINT32_MAX,
                          .value_count = 100,
                          .values = values};
    tocsin_trace_emit(writer, &event);
    close_writer(writer);
    char path[SCRATCH_PATH_BYTES];
    trace_path(&run, path);
    tocsin_trace *trace = scratch_open(path, false);
    const tocsin_event *read = scratch_next(trace);
    assert_int_equal(read->value_count, TOCSIN_EVENT_VALUES_MAX);
    assert_memory_equal(read->values, values, sizeof *values * TOCSIN_EVENT_VALUES_MAX);
    tocsin_trace_close(trace);
    scratch_free(&run);
}

static void test_second_writer_of_a_process_has_a_file_of_its_own(void **state)
{
    (void)state;
    scratch run = scratch_new();
    tocsin_trace_writer *first = scratch_writer(&run, 0, 0);
    tocsin_trace_writer *second = scratch_writer(&run, 0, 0);
    scratch_meta(first, 0, 1);
    scratch_meta(second, 0, 2);
    scratch_meta(first, 0, 3);
    close_writer(first);
    close_writer(second);
    tocsin_error error;
    tocsin_run *read;
    assert_int_equal(tocsin_run_open(run.directory, false, &read, &error), TOCSIN_OK);
    assert_int_equal(tocsin_run_process_count(read), 2);
    uint64_t counts[2] = {0};
    for (size_t i = 0; i < 2; ++i)
        while (scratch_next(tocsin_run_process(read, i)))
            ++counts[i];
    assert_int_equal(counts[0] + counts[1], 3);
    assert_true(counts[0] == 1 || counts[1] == 1);
    tocsin_run_close(read);
    char ring[SCRATCH_PATH_BYTES];
    scratch_find(&run, "process-", ".ring", ring);
    assert_string_equal(ring, "");
    scratch_free(&run);
}

static void test_bad_options_are_refused(void **state)
{
    (void)state;
    tocsin_error error;
    tocsin_trace_writer *writer;
    tocsin_trace_writer_options options = {.struct_bytes = sizeof options,
                                           .directory = "/nonexistent/run"};
    assert_int_equal(tocsin_trace_writer_open(&options, &writer, &error), TOCSIN_E_NOT_FOUND);
    assert_null(writer);
    assert_non_null(strstr(error.where, "/nonexistent/run"));
    options.struct_bytes = 3;
    assert_int_equal(tocsin_trace_writer_open(&options, &writer, NULL), TOCSIN_E_ARGUMENT);
    assert_int_equal(tocsin_trace_writer_open(NULL, &writer, NULL), TOCSIN_E_ARGUMENT);
    assert_int_equal(tocsin_trace_writer_close(NULL, NULL), TOCSIN_OK);
    tocsin_trace_writer_abandon(NULL);
}

/* ---- rings and threads ---------------------------------------------------------------------- */

typedef struct emitting {
    tocsin_trace_writer *writer;
    int64_t thread;
    int64_t count;
} emitting;

static void *emit_numbers(void *argument)
{
    const emitting *job = argument;
    for (int64_t i = 0; i < job->count; ++i)
        scratch_meta(job->writer, (tocsin_id)job->thread, i);
    return NULL;
}

/* Small rings, many events, more than one thread: the rings wrap and fill many times, emitters
 * wait, and each event arrives once, in the order of its thread and merged by time. */
static void test_full_rings_lose_nothing(void **state)
{
    (void)state;
    enum { THREADS = 4, COUNT = 20000 };
    scratch run = scratch_new();
    tocsin_trace_writer *writer = scratch_writer(&run, 1, 1000);
    pthread_t threads[THREADS];
    emitting jobs[THREADS];
    for (int i = 0; i < THREADS; ++i) {
        jobs[i] = (emitting){writer, i + 1, COUNT};
        assert_int_equal(pthread_create(&threads[i], NULL, emit_numbers, &jobs[i]), 0);
    }
    for (int i = 0; i < THREADS; ++i)
        pthread_join(threads[i], NULL);
    tocsin_trace_statistics statistics;
    tocsin_trace_writer_statistics(writer, &statistics);
    assert_int_equal(statistics.events, THREADS * COUNT);
    assert_int_equal(statistics.lost, 0);
    close_writer(writer);

    char path[SCRATCH_PATH_BYTES];
    trace_path(&run, path);
    tocsin_trace *trace = scratch_open(path, false);
    int64_t next[THREADS + 1] = {0};
    for (const tocsin_event *event; (event = scratch_next(trace));) {
        assert_in_range(event->key, 1, THREADS);
        assert_int_equal(event->values[0].as.integer, next[event->key]++);
    }
    for (int i = 1; i <= THREADS; ++i)
        assert_int_equal(next[i], COUNT);
    tocsin_trace_facts facts;
    tocsin_trace_get_facts(trace, &facts);
    assert_int_equal(facts.events, THREADS * COUNT);
    assert_int_equal(facts.metas, THREADS * COUNT);
    assert_int_equal(facts.corrupt_blocks, 0);
    struct stat file;
    assert_int_equal(stat(path, &file), 0);
    assert_int_equal(facts.file_bytes, file.st_size);
    tocsin_trace_close(trace);
    scratch_free(&run);
}

/* While the writer thread stands still an emitter stops at the end of its ring, and goes on after.
 */
static void test_emitters_wait_for_room(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    scratch run = scratch_new();
    tocsin_trace_writer *writer = scratch_writer(&run, 1, 1);
    pthread_mutex_lock(&writer->flush_lock); /* the writer thread takes it in every pass */
    emitting job = {writer, 1, COUNT};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, emit_numbers, &job), 0);
    tocsin_trace_statistics statistics = {0};
    for (uint64_t before = 1; before != statistics.events || before == 0; usleep(5000)) {
        before = statistics.events;
        tocsin_trace_writer_statistics(writer, &statistics);
    }
    assert_in_range(statistics.events, 1, COUNT / 2);
    pthread_mutex_unlock(&writer->flush_lock);
    pthread_join(thread, NULL);
    tocsin_trace_writer_statistics(writer, &statistics);
    assert_int_equal(statistics.events, COUNT);
    assert_int_equal(statistics.lost, 0);
    assert_true(statistics.wait_ns > 0);
    close_writer(writer);
    scratch_free(&run);
}

/* A dead thread's ring serves the next thread; its events stay those of another stream. */
static void test_rings_of_dead_threads_are_used_again(void **state)
{
    (void)state;
    enum { ROUNDS = 50 };
    scratch run = scratch_new();
    tocsin_trace_writer *writer = scratch_writer(&run, 0, 0);
    for (int i = 0; i < ROUNDS; ++i) {
        pthread_t thread;
        emitting job = {writer, i, 3};
        assert_int_equal(pthread_create(&thread, NULL, emit_numbers, &job), 0);
        pthread_join(thread, NULL);
        assert_int_equal(tocsin_trace_writer_flush(writer, NULL), TOCSIN_OK);
    }
    assert_true(writer->ring_count < ROUNDS / 2);
    tocsin_trace_statistics statistics;
    tocsin_trace_writer_statistics(writer, &statistics);
    assert_int_equal(statistics.events, 3 * ROUNDS);
    close_writer(writer);
    char path[SCRATCH_PATH_BYTES];
    trace_path(&run, path);
    tocsin_trace *trace = scratch_open(path, false);
    for (uint32_t i = 0; i < 3 * ROUNDS; ++i) {
        const tocsin_event *event = scratch_next(trace);
        assert_non_null(event);
        assert_int_equal(event->thread, i / 3 + 1);
        assert_int_equal(event->key, i / 3);
    }
    assert_null(scratch_next(trace));
    tocsin_trace_close(trace);
    scratch_free(&run);
}

/* Threads hand over to each other, so that times alternate: the merge must, too. */
static void test_threads_are_merged_by_time(void **state)
{
    (void)state;
    enum { ROUNDS = 200 };
    scratch run = scratch_new();
    tocsin_trace_writer *writer = scratch_writer(&run, 0, 1);
    for (int i = 0; i < ROUNDS; ++i) {
        if (i % 3) {
            scratch_meta(writer, 0, i);
        } else {
            pthread_t thread;
            emitting job = {writer, i, 1};
            assert_int_equal(pthread_create(&thread, NULL, emit_numbers, &job), 0);
            pthread_join(thread, NULL);
        }
    }
    close_writer(writer);
    char path[SCRATCH_PATH_BYTES];
    trace_path(&run, path);
    tocsin_trace *trace = scratch_open(path, false);
    for (int i = 0; i < ROUNDS; ++i) {
        const tocsin_event *event = scratch_next(trace);
        assert_non_null(event);
        assert_int_equal(i % 3 ? event->values[0].as.integer : (int64_t)event->key, i);
    }
    tocsin_trace_close(trace);
    scratch_free(&run);
}

static void test_follower_sees_events_as_they_come(void **state)
{
    (void)state;
    scratch run = scratch_new();
    tocsin_trace_writer *writer = scratch_writer(&run, 0, 1);
    char path[SCRATCH_PATH_BYTES];
    trace_path(&run, path);
    tocsin_trace *trace = scratch_open(path, true);
    assert_null(scratch_next(trace));
    assert_true(tocsin_trace_is_alive(trace));
    for (int64_t i = 0; i < 100; ++i) {
        scratch_meta(writer, tocsin_trace_define_string(writer, "step", 4), i);
        if (i == 0)
            assert_int_equal(tocsin_trace_writer_flush(writer, NULL), TOCSIN_OK);
        const tocsin_event *event;
        while (!(event = scratch_next(trace))) /* comes with the next mark at the latest */
            usleep(200);
        assert_int_equal(event->values[0].as.integer, i);
        assert_string_equal(tocsin_trace_string(trace, event->key), "step");
        assert_null(scratch_next(trace));
    }
    assert_false(tocsin_trace_is_complete(trace));
    close_writer(writer);
    assert_null(scratch_next(trace));
    assert_true(tocsin_trace_is_complete(trace));
    tocsin_trace_close(trace);
    scratch_free(&run);
}

/* ---- forked children ------------------------------------------------------------------------ */

static int child_of(const scratch *run, tocsin_trace_writer *parents)
{
    tocsin_trace_writer_abandon(parents);
    tocsin_trace_writer_options options = {.struct_bytes = sizeof options,
                                           .directory = run->directory};
    tocsin_trace_writer *writer;
    if (tocsin_trace_writer_open(&options, &writer, NULL) != TOCSIN_OK)
        return 1;
    tocsin_event event = {.kind = TOCSIN_EVENT_ENTER, .function = 42};
    tocsin_trace_emit(writer, &event);
    return tocsin_trace_writer_close(writer, NULL) == TOCSIN_OK ? 0 : 2;
}

static void test_forked_child_leaves_the_parent_alone(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip(); /* it refuses threads in forked children */
#endif
    scratch run = scratch_new();
    /* The writer thread sleeps at the fork: sanitizers' allocators do not survive a fork while
     * another thread allocates (the C library's does). */
    tocsin_trace_writer *writer = scratch_writer(&run, 0, 60000);
    char path[SCRATCH_PATH_BYTES];
    trace_path(&run, path);
    scratch_enter(writer, 1);
    for (int i = 0; i < 5; ++i) {
        scratch_enter(writer, 2);
        assert_int_equal(tocsin_trace_writer_flush(writer, NULL), TOCSIN_OK);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(child_of(&run, writer));
        scratch_enter(writer, 3);
        int result;
        assert_int_equal(waitpid(child, &result, 0), child);
        assert_true(WIFEXITED(result) && WEXITSTATUS(result) == 0);
    }
    close_writer(writer);
    tocsin_trace *trace = scratch_open(path, false);
    for (uint64_t i = 1; i <= 11; ++i) {
        const tocsin_event *event = scratch_next(trace);
        assert_non_null(event);
        assert_int_equal(event->call, i);
        assert_int_not_equal(event->function, 42);
    }
    assert_null(scratch_next(trace));
    assert_true(tocsin_trace_is_complete(trace));
    tocsin_trace_close(trace);
    tocsin_run *read;
    assert_int_equal(tocsin_run_open(run.directory, false, &read, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_run_process_count(read), 6);
    tocsin_run_close(read);
    scratch_free(&run);
}

/* ---- in another process's name --------------------------------------------------------------- */

static void emit_on(tocsin_trace_writer *writer, uint32_t stream, uint64_t time_ns)
{
    tocsin_id function = tocsin_trace_define_function(writer, "f", TOCSIN_ROLE_NONE);
    tocsin_event event = {.kind = TOCSIN_EVENT_ENTER, .function = function, .time_ns = time_ns};
    assert_true(tocsin_trace_emit_on(writer, stream, &event) > 0);
}

static tocsin_trace_writer *writer_of_another(const scratch *run)
{
    tocsin_trace_identity identity = {
        .pid = 4711, .host = "elsewhere", .wall_ns = 5, .monotonic_ns = 1000};
    tocsin_trace_writer_options options = {.struct_bytes = sizeof options,
                                           .directory = run->directory,
                                           .ring_bytes = 16 << 10,
                                           .flush_ms = 1,
                                           .identity = &identity};
    tocsin_trace_writer *writer;
    assert_int_equal(tocsin_trace_writer_open(&options, &writer, NULL), TOCSIN_OK);
    return writer;
}

/* Streams in the order of their times, whenever the writer thread ran; its clock is theirs. */
static void test_an_importer_writes_in_another_name(void **state)
{
    (void)state;
    scratch run = scratch_new();
    tocsin_trace_writer *writer = writer_of_another(&run);
    for (uint64_t i = 0; i < 20000; ++i)
        emit_on(writer, 1 + (uint32_t)(i * 7 % 3 < i ? i * 7 % 3 : 0), 1000 + i);
    emit_on(writer, 2, 4); /* too late: becomes equal to the last */
    close_writer(writer);
    char path[SCRATCH_PATH_BYTES];
    scratch_find(&run, "process-elsewhere-4711", ".trace", path);
    tocsin_trace *trace = scratch_open(path, false);
    const tocsin_event *event;
    for (uint64_t i = 0; i < 20000; ++i) {
        event = scratch_next(trace);
        assert_non_null(event);
        assert_int_equal(event->time_ns, 1000 + i);
    }
    event = scratch_next(trace);
    assert_int_equal(event->time_ns, 20999);
    assert_int_equal(event->thread, 2);
    assert_null(scratch_next(trace));
    tocsin_trace_facts facts;
    tocsin_trace_get_facts(trace, &facts);
    assert_int_equal(facts.pid, 4711);
    assert_string_equal(facts.host, "elsewhere");
    assert_int_equal(facts.monotonic_ns, 1000);
    assert_int_equal(facts.threads, 3);
    assert_false(facts.alive);
    tocsin_trace_close(trace);
    scratch_free(&run);
}

static void test_streams_come_in_the_order_of_their_numbers(void **state)
{
    (void)state;
    scratch run = scratch_new();
    tocsin_trace_writer *writer = writer_of_another(&run);
    tocsin_event event = {.kind = TOCSIN_EVENT_ENTER};
    assert_int_equal(tocsin_trace_emit_on(writer, 0, &event), 0);
    assert_int_equal(tocsin_trace_emit_on(writer, 2, &event), 0);
    assert_int_equal(tocsin_trace_emit_on(writer, 1, &event), 1);
    assert_int_equal(tocsin_trace_emit_on(writer, 2, &event), 1);
    tocsin_trace_statistics statistics;
    tocsin_trace_writer_statistics(writer, &statistics);
    assert_int_equal(statistics.events, 2);
    assert_int_equal(statistics.lost, 2);
    close_writer(writer);
    scratch_free(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definitions_are_dense_and_equal_ones_are_one),
        cmocka_unit_test(test_calls_nest),
        cmocka_unit_test(test_deep_recursion),
        cmocka_unit_test(test_time_of_a_thread_never_goes_back),
        cmocka_unit_test(test_values_beyond_the_limit_are_cut),
        cmocka_unit_test(test_second_writer_of_a_process_has_a_file_of_its_own),
        cmocka_unit_test(test_bad_options_are_refused),
        cmocka_unit_test(test_full_rings_lose_nothing),
        cmocka_unit_test(test_emitters_wait_for_room),
        cmocka_unit_test(test_rings_of_dead_threads_are_used_again),
        cmocka_unit_test(test_threads_are_merged_by_time),
        cmocka_unit_test(test_follower_sees_events_as_they_come),
        cmocka_unit_test(test_forked_child_leaves_the_parent_alone),
        cmocka_unit_test(test_an_importer_writes_in_another_name),
        cmocka_unit_test(test_streams_come_in_the_order_of_their_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
