/* Stored traces read as they always did: tests/golden/trace/NAME.trace gives the lines of
 * NAME.jsonl. tests/ref/trace_reader.py is held to the same lines. With TOCSIN_BLESS=NAME that one
 * is made anew: only "extended" ever should be, the others are of the first recorders. */
#include "trace/trace_writer.h"
#include "trace_sample.h"
#include <pthread.h>
#include <sys/wait.h>

static const char *const names[] = {"stored", "compressed", "killed", "damaged", "extended"};

enum { EVENTS = 40 };

static void golden_path(const char *name, const char *suffix, char path[SCRATCH_PATH_BYTES])
{
    const char *source = getenv("TOCSIN_SOURCE");
    snprintf(path, SCRATCH_PATH_BYTES, "%s/tests/golden/trace/%s%s", source ? source : ".", name,
             suffix);
}

static void emit_sample(tocsin_trace_writer *writer, uint64_t seed)
{
    trace_sample source = sample_begin(writer, seed);
    for (int i = 0; i < EVENTS; ++i) {
        tocsin_event event = sample_event(&source);
        tocsin_trace_emit(writer, &event);
        if (i == EVENTS / 2)
            assert_int_equal(tocsin_trace_writer_flush(writer, NULL), TOCSIN_OK);
    }
}

static void *emit_in_thread(void *writer)
{
    emit_sample(writer, 2);
    return NULL;
}

/* Two threads; then close, or die as os._exit and SIGKILL do. */
static void write_process(const scratch *run, const char *name)
{
    tocsin_trace_writer *writer = scratch_writer(run, 1, 60000);
    if (strcmp(name, "compressed") != 0) { /* readable without zstd */
        tocsin_compressor_free(writer->compressor);
        writer->compressor = NULL;
    }
    pthread_t thread;
    emit_sample(writer, 1);
    assert_int_equal(pthread_create(&thread, NULL, emit_in_thread, writer), 0);
    pthread_join(thread, NULL);
    if (strcmp(name, "killed") == 0)
        _exit(0);
    assert_int_equal(tocsin_trace_writer_close(writer, NULL), TOCSIN_OK);
    _exit(0);
}

static void copy_file(const scratch *run, const char *suffix, const char *name)
{
    char from[SCRATCH_PATH_BYTES];
    char to[SCRATCH_PATH_BYTES];
    size_t count;
    scratch_find(run, "process-", suffix, from);
    golden_path(name, suffix, to);
    if (!from[0])
        return;
    uint8_t *bytes = scratch_read(from, &count);
    if (strcmp(name, "damaged") == 0)
        bytes[count / 2] ^= 1;
    scratch_write(to, bytes, count);
    free(bytes);
}

static void print_lines(const char *name, FILE *out)
{
    char path[SCRATCH_PATH_BYTES];
    golden_path(name, ".trace", path);
    tocsin_trace *trace = scratch_open(path, false);
    for (const tocsin_event *event; (event = scratch_next(trace));) {
        const char *line;
        size_t bytes;
        assert_int_equal(tocsin_trace_event_json(trace, event, &line, &bytes, NULL), TOCSIN_OK);
        fprintf(out, "%s\n", line);
    }
    assert_int_equal(tocsin_trace_corrupt_blocks(trace) > 0, strcmp(name, "damaged") == 0);
    assert_int_equal(tocsin_trace_is_complete(trace), strcmp(name, "killed") != 0);
    tocsin_trace_close(trace);
}

static void bless(const char *name)
{
    char path[SCRATCH_PATH_BYTES];
    scratch run = scratch_new();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        write_process(&run, name);
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    copy_file(&run, ".trace", name);
    copy_file(&run, ".ring", name);
    scratch_free(&run);
    golden_path(name, ".jsonl", path);
    FILE *lines = fopen(path, "w");
    assert_non_null(lines);
    print_lines(name, lines);
    assert_int_equal(fclose(lines), 0);
}

static void test_stored_traces_read_as_ever(void **state)
{
    (void)state;
    for (size_t i = 0; i < TOCSIN_COUNT_OF(names); ++i) {
        const char *blessed = getenv("TOCSIN_BLESS");
        if (blessed && strcmp(blessed, names[i]) == 0)
            bless(names[i]);
        char path[SCRATCH_PATH_BYTES];
        char *text = NULL;
        size_t bytes = 0;
        FILE *out = open_memstream(&text, &bytes);
        assert_non_null(out);
        print_lines(names[i], out);
        fclose(out);
        size_t expected_bytes;
        golden_path(names[i], ".jsonl", path);
        uint8_t *expected = scratch_read(path, &expected_bytes);
        assert_int_equal(bytes, expected_bytes);
        assert_memory_equal(text, expected, bytes);
        assert_true(bytes > 1000);
        free(expected);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stored_traces_read_as_ever)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
