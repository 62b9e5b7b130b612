/* Reading damaged traces: cut anywhere, any bit flipped, rings that lie. Never a crash, never a
 * wrong event without a word. */
#include "trace/trace_reader.h"
#include "trace/trace_writer.h"
#include "trace_sample.h"
#include <sys/mman.h>
#include <sys/wait.h>

enum { EVENTS = 60, FLUSH_EVERY = 20 };

/* A run with one small complete file, and that file's events as lines of JSON. */
typedef struct fixture {
    scratch run;
    char path[SCRATCH_PATH_BYTES];
    uint8_t *bytes;
    size_t count;
    char *lines[EVENTS + 1];
} fixture;

static char *line_of(tocsin_trace *trace, const tocsin_event *event)
{
    const char *line;
    size_t bytes;
    assert_int_equal(tocsin_trace_event_json(trace, event, &line, &bytes, NULL), TOCSIN_OK);
    assert_int_equal(strlen(line), bytes);
    char *copy = strdup(line);
    assert_non_null(copy);
    return copy;
}

static int set_up(void **state)
{
    static fixture made;
    made.run = scratch_new();
    tocsin_trace_writer *writer = scratch_writer(&made.run, 0, 60000);
    trace_sample source = sample_begin(writer, 7);
    for (int i = 0; i < EVENTS; ++i) {
        tocsin_event event = sample_event(&source);
        tocsin_trace_emit(writer, &event);
        if (i % FLUSH_EVERY == FLUSH_EVERY - 1)
            assert_int_equal(tocsin_trace_writer_flush(writer, NULL), TOCSIN_OK);
    }
    assert_int_equal(tocsin_trace_writer_close(writer, NULL), TOCSIN_OK);
    scratch_find(&made.run, "process-", ".trace", made.path);
    made.bytes = scratch_read(made.path, &made.count);
    tocsin_trace *trace = scratch_open(made.path, false);
    for (int i = 0; i < EVENTS; ++i)
        made.lines[i] = line_of(trace, scratch_next(trace));
    assert_null(scratch_next(trace));
    tocsin_trace_close(trace);
    *state = &made;
    return 0;
}

static int tear_down(void **state)
{
    fixture *made = *state;
    for (int i = 0; i < EVENTS; ++i)
        free(made->lines[i]);
    free(made->bytes);
    scratch_free(&made->run);
    return 0;
}

/* Read `path`; every event must be one of the fixture's, in order. Returns how many there are, or
 * -1 when the file is refused. */
static int read_subset(const fixture *made, const char *path, uint64_t *corrupt, bool *complete)
{
    tocsin_error error;
    tocsin_trace *trace;
    tocsin_status status = tocsin_trace_open(path, false, &trace, &error);
    if (status != TOCSIN_OK) {
        assert_true(error.message[0] != 0);
        assert_true(status == TOCSIN_E_FORMAT || status == TOCSIN_E_VERSION);
        return -1;
    }
    int count = 0;
    int next = 0;
    uint64_t reports = 0;
    for (const tocsin_event *event;;) {
        status = tocsin_trace_next(trace, &event, &error);
        if (status == TOCSIN_E_CORRUPT) {
            ++reports;
            continue;
        }
        assert_int_equal(status, TOCSIN_OK);
        if (!event)
            break;
        /* A lost header loses the pid, a lost dictionary the names: not facts of the event. */
        char *line = line_of(trace, event);
        if (tocsin_trace_corrupt_blocks(trace) == 0) {
            while (next < EVENTS && strcmp(line, made->lines[next]) != 0)
                ++next;
            if (next == EVENTS)
                fail_msg("an event that was never written: %s", line);
            ++next;
        }
        free(line);
        ++count;
    }
    *corrupt = tocsin_trace_corrupt_blocks(trace);
    *complete = tocsin_trace_is_complete(trace);
    assert_true((reports > 0) == (*corrupt > 0));
    tocsin_trace_close(trace);
    return count;
}

/* A file in memory with the fixture's bytes, named by its path in /proc. */
static int open_copy(const fixture *made, char path[SCRATCH_PATH_BYTES])
{
    int fd = memfd_create("trace", 0);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, made->bytes, made->count, 0), made->count);
    snprintf(path, SCRATCH_PATH_BYTES, "/proc/self/fd/%d", fd);
    return fd;
}

static void test_cut_anywhere_is_readable_to_the_last_whole_block(void **state)
{
    const fixture *made = *state;
    char path[SCRATCH_PATH_BYTES];
    int fd = open_copy(made, path);
    int before = 0;
    int steps = 0;
    for (size_t count = 0; count < made->count; ++count) {
        uint64_t corrupt;
        bool complete;
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, made->bytes, count, 0), count);
        int events = read_subset(made, path, &corrupt, &complete);
        assert_int_equal(corrupt, 0);
        assert_in_range(events, before, EVENTS);
        assert_int_equal(events % FLUSH_EVERY, 0);
        /* Complete as soon as the footer block is whole; what follows is for finding it. */
        assert_int_equal(complete, count >= made->count - TOCSIN_TRACE_END_BYTES);
        steps += events != before;
        before = events;
    }
    assert_int_equal(before, EVENTS);
    assert_int_equal(steps, EVENTS / FLUSH_EVERY);
    close(fd);
}

static void test_any_flipped_bit_is_noticed(void **state)
{
    const fixture *made = *state;
    char path[SCRATCH_PATH_BYTES];
    int fd = open_copy(made, path);
    for (size_t bit = 0; bit < 8 * made->count; ++bit) {
        uint64_t corrupt;
        bool complete;
        uint8_t byte = made->bytes[bit / 8] ^ (uint8_t)(1u << bit % 8);
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
        int events = read_subset(made, path, &corrupt, &complete);
        assert_int_equal(pwrite(fd, &made->bytes[bit / 8], 1, (off_t)(bit / 8)), 1);
        bool behind_footer = bit / 8 >= made->count - TOCSIN_TRACE_END_BYTES;
        if (events >= 0 && !behind_footer && corrupt == 0 && complete)
            fail_msg("bit %zu was flipped and nothing noticed it", bit);
        if (behind_footer)
            assert_int_equal(events, EVENTS);
    }
    close(fd);
}

/* What was not damaged is read, behind the damage too. */
static void test_reading_goes_on_behind_a_damaged_block(void **state)
{
    const fixture *made = *state;
    scratch run = scratch_new();
    char path[SCRATCH_PATH_BYTES];
    snprintf(path, sizeof path, "%s/process-x-1.trace", run.directory);
    size_t at[64];
    size_t blocks = 0;
    for (size_t i = TOCSIN_IDENTITY_BYTES; i + TOCSIN_BLOCK_HEADER_BYTES <= made->count; ++i)
        if (memcmp(made->bytes + i, TOCSIN_BLOCK_MAGIC, TOCSIN_MAGIC_BYTES) == 0)
            at[blocks++] = i;
    assert_int_equal(blocks, 1 + EVENTS / FLUSH_EVERY + 1);     /* dictionary, events, footer */
    const size_t places[] = {9, TOCSIN_BLOCK_HEADER_BYTES + 3}; /* header, payload */
    for (size_t i = 0; i < 2; ++i) {
        uint64_t corrupt;
        bool complete;
        made->bytes[at[2] + places[i]] ^= 1;
        scratch_write(path, made->bytes, made->count);
        int events = read_subset(made, path, &corrupt, &complete);
        made->bytes[at[2] + places[i]] ^= 1;
        assert_int_equal(events, EVENTS - FLUSH_EVERY);
        assert_int_equal(corrupt, 1);
        assert_true(complete);
    }
    /* The dictionary gone: events without names. */
    made->bytes[at[0] + TOCSIN_BLOCK_HEADER_BYTES] ^= 1;
    scratch_write(path, made->bytes, made->count);
    made->bytes[at[0] + TOCSIN_BLOCK_HEADER_BYTES] ^= 1;
    tocsin_trace *trace = scratch_open(path, false);
    for (int i = 0; i < EVENTS; ++i) {
        const tocsin_event *event = scratch_next(trace);
        assert_non_null(event);
        if (event->function)
            assert_string_equal(tocsin_trace_function_name(trace, event->function), "?");
        free(line_of(trace, event));
    }
    assert_null(scratch_next(trace));
    tocsin_trace_close(trace);
    scratch_free(&run);
}

static void expect_refused(const char *path, tocsin_status expected)
{
    tocsin_error error = {0};
    tocsin_trace *trace;
    assert_int_equal(tocsin_trace_open(path, false, &trace, &error), expected);
    assert_null(trace);
    assert_true(error.message[0] != 0);
    assert_non_null(strstr(error.where, path));
}

static void test_other_files_are_refused(void **state)
{
    const fixture *made = *state;
    scratch run = scratch_new();
    char path[SCRATCH_PATH_BYTES];
    snprintf(path, sizeof path, "%s/process-x-1.trace", run.directory);
    expect_refused(path, TOCSIN_E_NOT_FOUND);
    scratch_write(path, "#!/bin/sh\n", 10);
    expect_refused(path, TOCSIN_E_FORMAT);
    made->bytes[8] ^= 2; /* version 3 */
    scratch_write(path, made->bytes, made->count);
    made->bytes[8] ^= 2;
    expect_refused(path, TOCSIN_E_VERSION);
    made->bytes[23] ^= 128; /* an unknown feature */
    scratch_write(path, made->bytes, made->count);
    made->bytes[23] ^= 128;
    expect_refused(path, TOCSIN_E_VERSION);
    scratch_free(&run);
}

static void test_facts(void **state)
{
    const fixture *made = *state;
    tocsin_trace *trace = scratch_open(made->path, false);
    while (scratch_next(trace))
        ;
    tocsin_trace_facts facts;
    tocsin_trace_get_facts(trace, &facts);
    assert_int_equal(facts.pid, getpid());
    assert_int_equal(facts.events, EVENTS);
    assert_int_equal(facts.enters + facts.exits + facts.raises + facts.states + facts.metas,
                     EVENTS);
    assert_int_equal(facts.threads, 1);
    assert_int_equal(facts.functions, 4);
    assert_int_equal(facts.variables, 6);
    assert_int_equal(facts.shapes, 3);
    assert_int_equal(facts.sites, 2);
    assert_int_equal(facts.blocks, 1 + EVENTS / FLUSH_EVERY);
    assert_int_equal(facts.file_bytes, made->count);
    assert_true(facts.complete && !facts.alive);
    assert_true(facts.first_ns > 0 && facts.last_ns > facts.first_ns);
    assert_true(facts.wall_ns > UINT64_C(1600000000) * 1000000000);
    tocsin_trace_close(trace);
}

/* Ids far apart do not make tables that are mostly empty. */
static void test_holes_in_the_dictionary_are_limited(void **state)
{
    (void)state;
    tocsin_names names = {.holes = 0};
    for (uint64_t id = TOCSIN_TRACE_HOLES_MAX; id <= TOCSIN_TRACE_ID_MAX;
         id += TOCSIN_TRACE_HOLES_MAX / 2) {
        uint8_t record[2 + 1 + TOCSIN_VARINT_BYTES_MAX] = {0, 0, TOCSIN_DEFINE_STRING};
        size_t bytes = 3 + tocsin_varint_put(record + 3, id);
        bool damaged = false;
        tocsin_put_u16(record, (uint16_t)(bytes - 2));
        assert_int_equal(tocsin_names_read(&names, record, bytes, &damaged, NULL), TOCSIN_OK);
        assert_int_equal(damaged, id > TOCSIN_TRACE_HOLES_MAX);
    }
    assert_int_equal(names.strings.count, TOCSIN_TRACE_HOLES_MAX);
    tocsin_names_free(&names);
}

/* ---- rings ---------------------------------------------------------------------------------- */

/* A killed process's files, loaded: the first FLUSH_EVERY events are in the trace file. */
static void make_killed(scratch *run, char trace_path[SCRATCH_PATH_BYTES],
                        char ring_path[SCRATCH_PATH_BYTES])
{
    *run = scratch_new();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        tocsin_trace_writer_options options = {.struct_bytes = sizeof options,
                                               .directory = run->directory,
                                               .ring_bytes = 16 << 10,
                                               .flush_ms = 60000};
        tocsin_trace_writer *writer;
        if (tocsin_trace_writer_open(&options, &writer, NULL) != TOCSIN_OK)
            _exit(1);
        trace_sample source = sample_begin(writer, 7);
        for (int i = 0; i < EVENTS; ++i) {
            tocsin_event event = sample_event(&source);
            tocsin_trace_emit(writer, &event);
            if (i == FLUSH_EVERY - 1 && tocsin_trace_writer_flush(writer, NULL) != TOCSIN_OK)
                _exit(2);
        }
        (void)tocsin_trace_define_string(writer, "late", 4);
        _exit(0);
    }
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    scratch_find(run, "process-", ".trace", trace_path);
    scratch_find(run, "process-", ".ring", ring_path);
    assert_true(trace_path[0] && ring_path[0]);
}

static int count_events(const char *path, uint64_t *corrupt)
{
    tocsin_trace *trace = scratch_open(path, false);
    int count = 0;
    for (const tocsin_event *event; (event = scratch_next(trace)); ++count)
        free(line_of(trace, event));
    *corrupt = tocsin_trace_corrupt_blocks(trace);
    assert_false(tocsin_trace_is_complete(trace));
    tocsin_trace_close(trace);
    return count;
}

static void test_ring_completes_the_file(void **state)
{
    const fixture *made = *state;
    scratch run;
    char trace_path[SCRATCH_PATH_BYTES];
    char ring_path[SCRATCH_PATH_BYTES];
    make_killed(&run, trace_path, ring_path);
    tocsin_trace *trace = scratch_open(trace_path, true);
    for (int i = 0; i < EVENTS; ++i) {
        const tocsin_event *event = scratch_next(trace);
        assert_non_null(event);
        char *line = line_of(trace, event);
        assert_string_equal(strstr(line, "\"thread\""), strstr(made->lines[i], "\"thread\""));
        free(line);
    }
    assert_null(scratch_next(trace));
    tocsin_trace_facts facts;
    tocsin_trace_get_facts(trace, &facts);
    assert_true(facts.recovered_bytes > 0);
    assert_int_equal(facts.corrupt_blocks, 0);
    assert_string_equal(tocsin_trace_string(trace, (tocsin_id)facts.strings), "late");
    tocsin_trace_close(trace);

    uint64_t corrupt;
    unlink(ring_path);
    assert_int_equal(count_events(trace_path, &corrupt), FLUSH_EVERY);
    assert_int_equal(corrupt, 0);
    scratch_free(&run);
}

/* The events that the file has are read whatever the ring says; a ring that contradicts itself or
 * belongs to another process is reported. */
static void test_rings_are_not_believed(void **state)
{
    (void)state;
    scratch run;
    char trace_path[SCRATCH_PATH_BYTES];
    char ring_path[SCRATCH_PATH_BYTES];
    make_killed(&run, trace_path, ring_path);
    size_t count;
    uint64_t corrupt;
    uint8_t *ring = scratch_read(ring_path, &count);
    size_t page = tocsin_get_u32(ring + 136);
    size_t threads_ring = page + page + TOCSIN_DICTIONARY_RING_BYTES;
    uint64_t random = 1;
    for (int i = 0; i < 400; ++i) { /* header, control pages, first records */
        size_t areas[] = {0, page, page + page, threads_ring, threads_ring + page};
        random = tocsin_mix64(random + 1);
        size_t place = areas[i % 5] + (size_t)(random >> 8) % 256;
        ring[place] ^= (uint8_t)(1u << (random & 7));
        scratch_write(ring_path, ring, count);
        ring[place] ^= (uint8_t)(1u << (random & 7));
        assert_in_range(count_events(trace_path, &corrupt), FLUSH_EVERY, EVENTS);
    }
    for (size_t cut = 0; cut < count; cut += cut < 256 ? 16 : 997) {
        scratch_write(ring_path, ring, cut);
        assert_in_range(count_events(trace_path, &corrupt), FLUSH_EVERY, EVENTS);
    }
    /* More rings than a writer makes, in a file without an end. */
    scratch_write(ring_path, ring, count);
    if (truncate(ring_path, (off_t)1 << 43) == 0)
        assert_int_equal(count_events(trace_path, &corrupt), EVENTS);
    ring[24] ^= 1; /* the pid */
    tocsin_put_u64(ring + 152, tocsin_hash64(ring, 152, 0));
    scratch_write(ring_path, ring, count);
    assert_int_equal(count_events(trace_path, &corrupt), FLUSH_EVERY);
    assert_int_equal(corrupt, 1);
    free(ring);
    scratch_free(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_anywhere_is_readable_to_the_last_whole_block),
        cmocka_unit_test(test_any_flipped_bit_is_noticed),
        cmocka_unit_test(test_reading_goes_on_behind_a_damaged_block),
        cmocka_unit_test(test_other_files_are_refused),
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_holes_in_the_dictionary_are_limited),
        cmocka_unit_test(test_ring_completes_the_file),
        cmocka_unit_test(test_rings_are_not_believed),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
