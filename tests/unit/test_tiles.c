/* Tiles: what the recorder reads of tensors in the step that it looks closely at, and which rows
 * aligning two such recordings names. */
#include "trace_scratch.h"
#include <record/record.h>
#include <tocsin/align.h>

enum { ROWS = 100, COLUMNS = 3 };

typedef struct tiny_training {
    scratch place;
    tocsin_recorder *recorder;
    float named[ROWS][COLUMNS], other[ROWS][COLUMNS];
} tiny_training;

static void begin(tiny_training *training)
{
    training->place = scratch_new();
    tocsin_recorder_options options = {.struct_bytes = sizeof options,
                                       .directory = training->place.directory};
    assert_int_equal(tocsin_recorder_open(&options, &training->recorder, NULL), TOCSIN_OK);
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < COLUMNS; column++)
            training->named[row][column] = training->other[row][column] =
                (float)(row * COLUMNS + column) / 7.0f;
}

static void sample(tiny_training *training, const char *name, const float *data, bool turned)
{
    static const int64_t shape[] = {ROWS, COLUMNS}, turned_shape[] = {COLUMNS, ROWS};
    static const int64_t turned_strides[] = {1, COLUMNS};
    tocsin_tensor_view view = {.data = data,
                               .dtype = TOCSIN_DTYPE_FLOAT32,
                               .ndim = 2,
                               .shape = turned ? turned_shape : shape,
                               .strides = turned ? turned_strides : NULL};
    tocsin_sample state = {
        .variable = tocsin_trace_define_variable(tocsin_recorder_writer(training->recorder), name,
                                                 TOCSIN_VARIABLE_PARAMETER, "Parameter"),
        .attribute = TOCSIN_ATTRIBUTE_GRAD,
        .moment = TOCSIN_MOMENT_ENTER,
        .flags = TOCSIN_STATE_PRESENT,
        .dtype = TOCSIN_DTYPE_FLOAT32,
        .ndim = 2,
        .shape = view.shape,
        .view = &view};
    assert_true(tocsin_recorder_sample(training->recorder, &state, NULL));
}

/* One step in which both tensors are read. */
static void step(tiny_training *training, bool turned)
{
    sample(training, "named", training->named[0], turned);
    sample(training, "other", training->other[0], turned);
    tocsin_recorder_optimizer_stepped(training->recorder, 0);
}

static void end(tiny_training *training)
{
    assert_int_equal(tocsin_recorder_close(training->recorder, NULL), TOCSIN_OK);
}

/* The tiles of each tensor in each step, whose digests add up to that of the whole. */
static void count_tiles(const tiny_training *training, unsigned counts[3][2])
{
    char path[SCRATCH_PATH_BYTES];
    const tocsin_event *event;
    tocsin_digest whole = {0}, sum = {0};
    unsigned step = 0, tensor = 0;
    scratch_find(&training->place, "process-", ".trace", path);
    tocsin_trace *trace = scratch_open(path, false);
    while ((event = scratch_next(trace))) {
        if (event->kind == TOCSIN_EVENT_EXIT)
            ++step;
        if (event->kind != TOCSIN_EVENT_STATE)
            continue;
        tensor = strcmp(tocsin_trace_variable_name(trace, event->state.variable), "other") == 0;
        if (!(event->state.flags & TOCSIN_STATE_PIECE)) {
            whole = event->state.digest;
            sum = (tocsin_digest){0};
            continue;
        }
        assert_int_equal(event->values[0].as.integer, counts[step][tensor]++);
        sum = tocsin_digest_merge(sum, event->state.digest);
        if (counts[step][tensor] == (tensor ? 50 : 100))
            assert_memory_equal(&sum, &whole, sizeof sum);
    }
    tocsin_trace_close(trace);
}

/* Only in the step asked for; the named tensor row by row, the other in no more than 64 tiles. */
static void test_recording(void **state)
{
    (void)state;
    tiny_training training;
    unsigned counts[3][2] = {{0}};
    begin(&training);
    assert_true(tocsin_recorder_looks_closely(training.recorder));
    assert_int_equal(tocsin_recorder_drill(training.recorder, 2, "named", "grad", NULL), TOCSIN_OK);
    for (int k = 1; k <= 3; k++) {
        assert_int_equal(tocsin_recorder_looks_closely(training.recorder), k == 2);
        step(&training, false);
    }
    end(&training);
    count_tiles(&training, counts);
    assert_int_equal(counts[0][0] + counts[0][1] + counts[2][0] + counts[2][1], 0);
    assert_int_equal(counts[1][0], ROWS);
    assert_int_equal(counts[1][1], ROWS / 2);
    scratch_free(&training.place);
}

static tocsin_align_result *align(const tiny_training *a, const tiny_training *b)
{
    tocsin_run *runs[2];
    tocsin_align_result *result;
    assert_int_equal(tocsin_run_open(a->place.directory, false, &runs[0], NULL), TOCSIN_OK);
    assert_int_equal(tocsin_run_open(b->place.directory, false, &runs[1], NULL), TOCSIN_OK);
    assert_int_equal(tocsin_align_runs(runs[0], runs[1], NULL, &result, NULL), TOCSIN_OK);
    tocsin_run_close(runs[0]);
    tocsin_run_close(runs[1]);
    return result;
}

/* Two rows in full, one element of a third: each is named, for any memory layout. */
static void test_rows(void **state)
{
    (void)state;
    for (int turned = 0; turned < 2; turned++) {
        tiny_training a, b;
        begin(&a);
        begin(&b);
        for (int column = 0; column < COLUMNS; column++) {
            b.named[40][column] += 1.0f;
            b.named[41][column] -= 1.0f;
        }
        b.named[99][1] += 3.0f;
        tiny_training *both[] = {&a, &b};
        for (int k = 0; k < 2; k++) {
            assert_int_equal(tocsin_recorder_drill(both[k]->recorder, 1, "named", "grad", NULL),
                             TOCSIN_OK);
            step(both[k], turned);
            end(both[k]);
        }
        tocsin_align_result *result = align(&a, &b);
        assert_int_equal(result->pivot_count, 1);
        const tocsin_align_pivot *pivot = &result->pivots[0];
        assert_false(pivot->located);
        if (turned) { /* its rows are the columns here */
            assert_int_equal(pivot->tile_count, COLUMNS);
            assert_int_equal(pivot->tiles_compared, COLUMNS);
            assert_false(pivot->tiles[0].located);
        } else {
            assert_int_equal(pivot->tiles_compared, ROWS);
            assert_int_equal(pivot->tile_count, 3);
            assert_int_equal(pivot->tiles[0].first, 40);
            assert_int_equal(pivot->tiles[1].first, 41);
            assert_int_equal(pivot->tiles[2].first, 99);
            assert_false(pivot->tiles[0].located || pivot->tiles[1].located);
            assert_true(pivot->tiles[2].located);
            assert_int_equal(pivot->tiles[2].index[0], 99);
            assert_int_equal(pivot->tiles[2].index[1], 1);
        }
        tocsin_align_result_free(result);
        scratch_free(&a.place);
        scratch_free(&b.place);
    }
}

/* A recording without tiles, or with others, is compared as any. */
static void test_one_side(void **state)
{
    (void)state;
    tiny_training a, b;
    begin(&a);
    begin(&b);
    b.other[7][0] += 1.0f;
    assert_int_equal(tocsin_recorder_drill(a.recorder, 1, "other", "grad", NULL), TOCSIN_OK);
    assert_int_equal(tocsin_recorder_drill(b.recorder, 1, "named", "grad", NULL), TOCSIN_OK);
    step(&a, false);
    step(&b, false);
    end(&a);
    end(&b);
    tocsin_align_result *result = align(&a, &b);
    assert_int_equal(result->pivot_count, 1);
    assert_int_equal(result->pivots[0].tile_count, 0);
    assert_int_equal(result->pivots[0].index[0], 7);
    assert_int_equal(result->ranks[0].compared, 2);
    tocsin_align_result_free(result);
    scratch_free(&a.place);
    scratch_free(&b.place);
}

static void sample_shard(tiny_training *training)
{
    static const int64_t shape[] = {ROWS, COLUMNS}, whole[] = {ROWS, 9}, offset[] = {0, 5};
    tocsin_trace_writer *writer = tocsin_recorder_writer(training->recorder);
    tocsin_value values[4];
    for (int k = 0; k < 4; k++) {
        const char *name = k < 2 ? "whole" : "offset";
        values[k] = (tocsin_value){.kind = TOCSIN_VALUE_INT,
                                   .name = tocsin_trace_define_string(writer, name, strlen(name)),
                                   .as.integer = k < 2 ? whole[k] : offset[k - 2]};
    }
    tocsin_tensor_view view = {.data = training->named,
                               .dtype = TOCSIN_DTYPE_FLOAT32,
                               .ndim = 2,
                               .shape = shape,
                               .global_shape = whole,
                               .offset = offset};
    tocsin_sample state = {.variable = tocsin_trace_define_variable(
                               writer, "named", TOCSIN_VARIABLE_PARAMETER, "DTensor"),
                           .attribute = TOCSIN_ATTRIBUTE_GRAD,
                           .moment = TOCSIN_MOMENT_ENTER,
                           .flags = TOCSIN_STATE_PRESENT | TOCSIN_STATE_PIECE,
                           .dtype = TOCSIN_DTYPE_FLOAT32,
                           .ndim = 2,
                           .shape = shape,
                           .view = &view,
                           .values = values,
                           .value_count = 4};
    assert_true(tocsin_recorder_sample(training->recorder, &state, NULL));
    tocsin_recorder_optimizer_stepped(training->recorder, 0);
}

/* Rows of a shard that has some of the columns: they are named as the whole tensor counts. */
static void test_shard(void **state)
{
    (void)state;
    tiny_training a, b, *both[] = {&a, &b};
    begin(&a);
    begin(&b);
    b.named[99][1] += 3.0f;
    b.named[3][2] += 3.0f;
    for (int k = 0; k < 2; k++) {
        assert_int_equal(tocsin_recorder_drill(both[k]->recorder, 1, "named", "grad", NULL),
                         TOCSIN_OK);
        sample_shard(both[k]);
        end(both[k]);
    }
    tocsin_align_result *result = align(&a, &b);
    assert_int_equal(result->pivot_count, 1);
    const tocsin_align_pivot *pivot = &result->pivots[0];
    assert_int_equal(pivot->tile_count, 2);
    assert_int_equal(pivot->shape[1], 9);
    assert_true(pivot->tiles[0].located && pivot->tiles[1].located);
    assert_int_equal(pivot->tiles[0].index[0], 3);
    assert_int_equal(pivot->tiles[0].index[1], 7);
    assert_int_equal(pivot->tiles[1].index[0], 99);
    assert_int_equal(pivot->tiles[1].index[1], 6);
    tocsin_align_result_free(result);
    scratch_free(&a.place);
    scratch_free(&b.place);
}

/* A tile that does not say truly where it lies, or stands alone, is no boundary and does no harm.
 */
static void test_hostile(void **state)
{
    (void)state;
    static const int64_t places[][4] = {
        {2, 3, -1, 0}, {2, 3, 2, 0}, {2, 3, INT64_MAX, 0}, {1, 1, 0, 0}, {9, 9, 1, 1}};
    scratch place = scratch_new();
    tocsin_trace_writer *writer = scratch_writer(&place, 0, 0);
    static const int64_t shape[] = {1, 3};
    tocsin_event event = {
        .kind = TOCSIN_EVENT_STATE,
        .state = {.variable = tocsin_trace_define_variable(writer, "v", TOCSIN_VARIABLE_PARAMETER,
                                                           "Parameter"),
                  .attribute = tocsin_trace_define_string(writer, "grad", 4),
                  .moment = TOCSIN_MOMENT_ENTER,
                  .dtype = TOCSIN_DTYPE_FLOAT32,
                  .ndim = 2,
                  .flags = TOCSIN_STATE_PRESENT | TOCSIN_STATE_DIGESTED | TOCSIN_STATE_PIECE,
                  .shape = tocsin_trace_define_shape(writer, 2, shape)}};
    tocsin_value values[5] = {
        {.kind = TOCSIN_VALUE_INT, .name = tocsin_trace_define_string(writer, "tile", 4)}};
    event.values = values;
    for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
        for (int k = 0; k < 4; k++)
            values[1 + k] = (tocsin_value){.kind = TOCSIN_VALUE_INT, .as.integer = places[p][k]};
        event.value_count = 5;
        tocsin_trace_emit(writer, &event);
        event.value_count = 2;
        tocsin_trace_emit(writer, &event);
    }
    assert_int_equal(tocsin_trace_writer_close(writer, NULL), TOCSIN_OK);
    tiny_training made = {.place = place};
    tocsin_align_result *result = align(&made, &made);
    assert_int_equal(result->verdict, TOCSIN_ALIGN_INCOMPARABLE);
    tocsin_align_result_free(result);
    scratch_free(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recording), cmocka_unit_test(test_rows),
        cmocka_unit_test(test_one_side),  cmocka_unit_test(test_shard),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
