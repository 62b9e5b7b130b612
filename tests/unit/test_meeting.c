/* Which rank parted by itself, from events: what went into a collective was there before it, what
 * came out may be another rank's. */
#include "trace_scratch.h"

#include <tocsin/align.h>

static void state(tocsin_trace_writer *writer, const char *attribute, tocsin_moment moment,
                  uint64_t content)
{
    tocsin_event event = {
        .kind = TOCSIN_EVENT_STATE,
        .state = {.variable =
                      tocsin_trace_define_variable(writer, "v", TOCSIN_VARIABLE_BOUNDARY, ""),
                  .attribute = tocsin_trace_define_string(writer, attribute, strlen(attribute)),
                  .moment = (uint8_t)moment,
                  .dtype = TOCSIN_DTYPE_FLOAT32,
                  .flags = TOCSIN_STATE_PRESENT | TOCSIN_STATE_DIGESTED,
                  .digest = {.sum = content, .exclusive = content, .polynomial = content}}};
    tocsin_trace_emit(writer, &event);
}

/* One all-reduce in a step, with what this rank gave and got. */
static void write_rank(const scratch *run, int64_t rank, uint64_t given, uint64_t got)
{
    tocsin_trace_writer *writer = scratch_writer(run, 0, 0);
    tocsin_id reduce = tocsin_trace_define_function(writer, "torch.distributed.all_reduce",
                                                    TOCSIN_ROLE_COLLECTIVE);
    tocsin_id end = tocsin_trace_define_function(writer, "tocsin.step_end", TOCSIN_ROLE_STEP_END);
    scratch_meta(writer, tocsin_trace_define_string(writer, "rank", 4), rank);
    uint64_t call = scratch_enter(writer, reduce);
    state(writer, "input", TOCSIN_MOMENT_ENTER, given);
    state(writer, "output", TOCSIN_MOMENT_EXIT, got);
    scratch_exit(writer, reduce, call);
    scratch_exit(writer, end, scratch_enter(writer, end));
    assert_int_equal(tocsin_trace_writer_close(writer, NULL), TOCSIN_OK);
}

static void write_both(const scratch *run, uint64_t given, uint64_t got)
{
    write_rank(run, 0, 5, got);
    write_rank(run, 1, given, got);
}

/* Rank 1 of the second run gives another value. */
static void test_what_went_in(void **unused)
{
    (void)unused;
    scratch first = scratch_new(), second = scratch_new();
    tocsin_run *a, *b;
    tocsin_align_result *result;
    write_both(&first, 6, 11);
    write_both(&second, 7, 12);
    assert_int_equal(tocsin_run_open(first.directory, false, &a, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_run_open(second.directory, false, &b, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_align_runs(a, b, NULL, &result, NULL), TOCSIN_OK);
    assert_int_equal(result->rank_count, 2);
    assert_int_equal(result->pivot_count, 1);
    assert_int_equal(result->pivots[0].rank, 1);
    assert_string_equal(result->pivots[0].attribute, "input");
    assert_int_equal(result->downstream, 1);
    tocsin_align_result_free(result);
    tocsin_run_close(a);
    tocsin_run_close(b);
    scratch_free(&first);
    scratch_free(&second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_went_in)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
