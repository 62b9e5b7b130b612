/* Runs of several ranks compared with one of one process: composed if the pieces tile the tensor;
 * else present, with the reason; whatever a recording says of its pieces, and whichever allocation
 * or read fails.
 */
#include "every_fault.h"
#include "trace_scratch.h"

#include <math.h>
#include <tocsin/align.h>

enum { ROWS = 6, COLUMNS = 4, RANKS_MAX = 3, STEPS = 2 };

typedef struct piece {
    int64_t whole[2], offset[2], shape[2];
    bool plain;          /* no piece: as a process writes that has all of it */
    const char *partial; /* "sum" */
    float changed;       /* added to its first element */
} piece;

typedef struct run_of_ranks {
    scratch at;
    size_t ranks; /* 0: one process without a rank */
    piece pieces[RANKS_MAX];
} run_of_ranks;

static void fill(const piece *held, float *data)
{
    for (int64_t row = 0; row < held->shape[0]; ++row)
        for (int64_t column = 0; column < held->shape[1]; ++column)
            data[row * held->shape[1] + column] = 10 * ((float)held->offset[0] + (float)row) +
                                                  ((float)held->offset[1] + (float)column) + 0.5F;
    data[0] += held->changed;
}

static uint32_t put_place(tocsin_trace_writer *writer, const piece *held, tocsin_value *values)
{
    uint32_t count = 0;
    tocsin_id whole = tocsin_trace_define_string(writer, "whole", 5);
    tocsin_id offset = tocsin_trace_define_string(writer, "offset", 6);
    for (int axis = 0; axis < 2; ++axis)
        values[count++] = (tocsin_value){
            .kind = TOCSIN_VALUE_INT, .name = whole, .as.integer = held->whole[axis]};
    for (int axis = 0; axis < 2; ++axis)
        values[count++] = (tocsin_value){
            .kind = TOCSIN_VALUE_INT, .name = offset, .as.integer = held->offset[axis]};
    if (held->partial)
        values[count++] = (tocsin_value){
            .kind = TOCSIN_VALUE_STRING,
            .name = tocsin_trace_define_string(writer, "partial", 7),
            .as.text = tocsin_trace_define_string(writer, held->partial, strlen(held->partial))};
    return held->plain ? 0 : count;
}

static void put_state(tocsin_trace_writer *writer, const piece *held)
{
    float data[2 * ROWS * COLUMNS] = {0};
    tocsin_value values[8];
    fill(held, data);
    tocsin_tensor_view view = {.data = data,
                               .dtype = TOCSIN_DTYPE_FLOAT32,
                               .ndim = 2,
                               .shape = held->shape,
                               .global_shape = held->plain ? NULL : held->whole,
                               .offset = held->plain ? NULL : held->offset};
    tocsin_event event = {
        .kind = TOCSIN_EVENT_STATE,
        .values = values,
        .value_count = put_place(writer, held, values),
        .state = {.variable =
                      tocsin_trace_define_variable(writer, "weight", TOCSIN_VARIABLE_PARAMETER, ""),
                  .attribute = tocsin_trace_define_string(writer, "data", 4),
                  .moment = TOCSIN_MOMENT_EXIT,
                  .dtype = TOCSIN_DTYPE_FLOAT32,
                  .ndim = 2,
                  .shape = tocsin_trace_define_shape(writer, 2, held->shape),
                  .flags = TOCSIN_STATE_PRESENT | (held->plain ? 0u : TOCSIN_STATE_PIECE),
                  .lr = NAN}};
    /* Of a place that is none there is some digest, too. */
    tocsin_status status =
        tocsin_tensor_digest(&view, &event.state.digest, &event.state.statistics, NULL);
    (void)status;
    event.state.flags |= TOCSIN_STATE_DIGESTED;
    tocsin_trace_emit_on(writer, 1, &event);
}

static void write_rank(const run_of_ranks *run, size_t rank)
{
    tocsin_trace_identity identity = {
        .pid = 100 + (int64_t)rank, .host = "here", .wall_ns = 1, .monotonic_ns = 1};
    tocsin_trace_writer_options options = {
        .struct_bytes = sizeof options, .directory = run->at.directory, .identity = &identity};
    tocsin_trace_writer *writer;
    assert_int_equal(tocsin_trace_writer_open(&options, &writer, NULL), TOCSIN_OK);
    if (run->ranks > 0) {
        tocsin_value number = {.kind = TOCSIN_VALUE_INT, .as.integer = (int64_t)rank};
        tocsin_event meta = {.kind = TOCSIN_EVENT_META,
                             .key = tocsin_trace_define_string(writer, "rank", 4),
                             .value_count = 1,
                             .values = &number};
        tocsin_trace_emit_on(writer, 1, &meta);
    }
    tocsin_id end = tocsin_trace_define_function(writer, "tocsin.step", TOCSIN_ROLE_STEP_END);
    for (int step = 0; step < STEPS; ++step) {
        put_state(writer, &run->pieces[rank]);
        tocsin_event event = {.kind = TOCSIN_EVENT_ENTER, .function = end};
        event.call = tocsin_trace_emit_on(writer, 1, &event);
        event.kind = TOCSIN_EVENT_EXIT;
        tocsin_trace_emit_on(writer, 1, &event);
    }
    assert_int_equal(tocsin_trace_writer_close(writer, NULL), TOCSIN_OK);
}

static const piece all = {.whole = {ROWS, COLUMNS}, .shape = {ROWS, COLUMNS}, .plain = true};

static piece rows(int64_t begin, int64_t count)
{
    return (piece){.whole = {ROWS, COLUMNS}, .offset = {begin, 0}, .shape = {count, COLUMNS}};
}

typedef struct two_runs {
    run_of_ranks a, b;
} two_runs;

/* One process that has all, and ranks that hold these pieces. */
static two_runs write_runs(size_t ranks, const piece *pieces)
{
    two_runs runs = {.a = {.at = scratch_new(), .pieces = {all}},
                     .b = {.at = scratch_new(), .ranks = ranks}};
    memcpy(runs.b.pieces, pieces, ranks * sizeof *pieces);
    write_rank(&runs.a, 0);
    for (size_t rank = 0; rank < ranks; ++rank)
        write_rank(&runs.b, rank);
    return runs;
}

static void free_runs(two_runs *runs)
{
    scratch_free(&runs->a.at);
    scratch_free(&runs->b.at);
}

static tocsin_status align(const two_runs *runs, tocsin_align_result **result, tocsin_error *error)
{
    tocsin_run *a = NULL, *b = NULL;
    *result = NULL;
    tocsin_status status = tocsin_run_open(runs->a.at.directory, false, &a, error);
    if (status == TOCSIN_OK)
        status = tocsin_run_open(runs->b.at.directory, false, &b, error);
    if (status == TOCSIN_OK)
        status = tocsin_align_runs(a, b, NULL, result, error);
    if (a)
        tocsin_run_close(a);
    if (b)
        tocsin_run_close(b);
    return status;
}

static tocsin_align_result *align_pieces(size_t ranks, const piece *pieces)
{
    two_runs runs = write_runs(ranks, pieces);
    tocsin_align_result *result;
    assert_int_equal(align(&runs, &result, NULL), TOCSIN_OK);
    free_runs(&runs);
    assert_int_equal(result->composed_a.ranks, 1);
    assert_int_equal(result->composed_b.ranks, ranks);
    return result;
}

static void test_tilings(void **unused)
{
    (void)unused;
    piece copy = all;
    copy.plain = false;
    const piece sets[][RANKS_MAX] = {
        {rows(0, 4), rows(4, 2), rows(6, 0)}, /* one is empty */
        {rows(0, 3), rows(3, 3), rows(3, 3)}, /* one is there twice */
        {rows(4, 2), rows(0, 1), rows(1, 3)}, /* in any order */
        {copy, copy, all},                    /* each has all */
        {{.whole = {ROWS, COLUMNS}, .shape = {ROWS, 1}},
         {.whole = {ROWS, COLUMNS}, .offset = {0, 1}, .shape = {2, 3}},
         {.whole = {ROWS, COLUMNS}, .offset = {2, 1}, .shape = {4, 3}}}};
    for (size_t s = 0; s < TOCSIN_COUNT_OF(sets); ++s) {
        tocsin_align_result *result = align_pieces(3, sets[s]);
        assert_int_equal(result->verdict, TOCSIN_ALIGN_IDENTICAL);
        assert_int_equal(result->ranks[0].equal, STEPS);
        assert_int_equal(result->composed_b.boundaries, STEPS);
        tocsin_align_result_free(result);
    }
}

static void test_a_changed_piece(void **unused)
{
    (void)unused;
    piece pieces[] = {rows(0, 4), rows(4, 2)};
    pieces[1].changed = 1;
    tocsin_align_result *result = align_pieces(2, pieces);
    assert_int_equal(result->verdict, TOCSIN_ALIGN_DIVERGED);
    assert_int_equal(result->pivot_count, 1);
    const tocsin_align_pivot *pivot = &result->pivots[0];
    assert_true(pivot->located && pivot->ndim == 2);
    assert_int_equal(pivot->index[0], 4);
    assert_int_equal(pivot->index[1], 0);
    assert_int_equal(pivot->b.holder_count, 1);
    assert_int_equal(pivot->b.holders[0], 1);
    assert_int_equal(pivot->a.holder_count, 0);
    tocsin_align_result_free(result);
}

static void test_copies_that_differ(void **unused)
{
    (void)unused;
    piece pieces[] = {rows(0, 4), rows(4, 2), rows(4, 2)};
    pieces[2].changed = 1;
    tocsin_align_result *result = align_pieces(3, pieces);
    assert_int_equal(result->verdict, TOCSIN_ALIGN_DIVERGED);
    assert_int_equal(result->pivot_count, 0);
    assert_int_equal(result->replica_count, 1);
    const tocsin_align_replicas *replicas = &result->replicas[0];
    assert_true(!replicas->in_a && replicas->rank_a == 1 && replicas->rank_b == 2);
    assert_int_equal(replicas->count, STEPS);
    assert_true(replicas->first.located);
    assert_int_equal(replicas->first.index[0], 4);
    tocsin_align_result_free(result);
}

static void expect(size_t ranks, const piece *pieces, tocsin_incomparable reason)
{
    tocsin_align_result *result = align_pieces(ranks, pieces);
    assert_int_equal(result->verdict, TOCSIN_ALIGN_INCOMPARABLE);
    for (int r = 0; r < TOCSIN_INCOMPARABLE_COUNT; ++r)
        assert_int_equal(result->composed_b.incomparable[r], r == (int)reason ? STEPS : 0);
    tocsin_align_result_free(result);
}

static void test_reasons(void **unused)
{
    (void)unused;
    piece changed = all, partial = rows(0, 6), other = rows(0, 3), bad = rows(3, 3);
    changed.changed = 1;
    partial.partial = "sum";
    other.whole[0] = 7;
    expect(2, (piece[]){rows(0, 4), rows(5, 1)}, TOCSIN_INCOMPARABLE_MISSING);
    expect(2, (piece[]){rows(0, 4), rows(3, 3)}, TOCSIN_INCOMPARABLE_LAYOUT);
    expect(2, (piece[]){other, rows(3, 3)}, TOCSIN_INCOMPARABLE_LAYOUT);
    expect(2, (piece[]){all, rows(3, 3)}, TOCSIN_INCOMPARABLE_LAYOUT);
    expect(2, (piece[]){all, changed}, TOCSIN_INCOMPARABLE_LOCAL);
    expect(2, (piece[]){partial, partial}, TOCSIN_INCOMPARABLE_PARTIAL);
    /* What no tensor can be. */
    const int64_t wrong[] = {-1, 4, INT64_MAX, INT64_MIN};
    for (size_t w = 0; w < TOCSIN_COUNT_OF(wrong); ++w) {
        bad.offset[0] = wrong[w];
        expect(2, (piece[]){rows(0, 3), bad}, TOCSIN_INCOMPARABLE_LAYOUT);
    }
}

static tocsin_status align_once(void *context, tocsin_error *error)
{
    tocsin_align_result *result;
    tocsin_status status = align(context, &result, error);
    tocsin_align_result_free(result);
    return status;
}

static void test_faults(void **unused)
{
    (void)unused;
    piece pieces[] = {rows(0, 4), rows(4, 2), rows(4, 2)};
    for (int round = 0; round < 2; ++round) {
        pieces[2].changed = (float)round; /* then copies differ */
        two_runs runs = write_runs(3, pieces);
        assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, align_once, &runs) > 50);
        assert_true(every_fault(TOCSIN_FAULT_IO, TOCSIN_E_IO, align_once, &runs) > 5);
        free_runs(&runs);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tilings),
        cmocka_unit_test(test_a_changed_piece),
        cmocka_unit_test(test_copies_that_differ),
        cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
