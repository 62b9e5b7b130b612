/* What is emitted is what is read, for random events of all kinds and random sizes of rings: read
 * afterwards, followed while it is written, and recovered from rings. Seeds are printed on failure.
 */
#include "test_seed.h"
#include "trace_sample.h"

enum { ROUNDS = 12, EVENTS = 3000 };

/* A second sample draws the same events: it is the model. */
static uint64_t read_all(tocsin_trace *trace, trace_sample *model, uint64_t count)
{
    const tocsin_event *event;
    while ((event = scratch_next(trace))) {
        tocsin_event expected = sample_event(model);
        sample_compare(event, &expected);
        assert_int_equal(event->thread, 1);
        ++count;
    }
    return count;
}

static void check_round(uint64_t seed, bool follow)
{
    scratch run = scratch_new();
    tocsin_trace_writer *writer =
        scratch_writer(&run, UINT32_C(1) << (seed % 8 + 13), 1 + (uint32_t)seed % 5);
    trace_sample source = sample_begin(writer, seed);
    trace_sample model = source;
    char path[SCRATCH_PATH_BYTES];
    scratch_find(&run, "process-", ".trace", path);
    tocsin_trace *trace = scratch_open(path, follow);
    uint64_t count = 0;
    for (int i = 0; i < EVENTS; ++i) {
        tocsin_event event = sample_event(&source);
        if (event.kind == TOCSIN_EVENT_ENTER)
            assert_int_equal(tocsin_trace_emit(writer, &event), event.call);
        else
            tocsin_trace_emit(writer, &event);
        if (follow && i % 100 == 0)
            count = read_all(trace, &model, count);
    }
    assert_int_equal(tocsin_trace_writer_close(writer, NULL), TOCSIN_OK);
    if (!follow) {
        tocsin_trace_close(trace);
        trace = scratch_open(path, false);
    }
    assert_int_equal(read_all(trace, &model, count), EVENTS);
    assert_true(tocsin_trace_is_complete(trace));
    assert_int_equal(tocsin_trace_corrupt_blocks(trace), 0);
    tocsin_trace_close(trace);
    scratch_free(&run);
}

static void test_round_trip(void **state)
{
    (void)state;
    const uint64_t first = test_seed(20260131);
    for (uint64_t i = 0; i < ROUNDS; ++i) {
        uint64_t seed = first + i;
        print_message("seed %llu\n", (unsigned long long)seed);
        check_round(seed, i % 2 == 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
