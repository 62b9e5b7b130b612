/* Aligning runs of random events: a run is identical to its copy, two unlike ones are aligned
 * without harm whatever they hold, and every allocation and read that fails is reported and leaks
 * nothing.
 */
#include "every_fault.h"
#include "trace_sample.h"

#include <math.h>
#include <tocsin/align.h>
#include <tocsin/record.h>
#include <tocsin/report.h>

static void write_run(const scratch *run, uint64_t seed, int events)
{
    tocsin_trace_writer *writer = scratch_writer(run, 0, 0);
    trace_sample sample = sample_begin(writer, seed);
    for (int i = 0; i < events; ++i) {
        tocsin_event event = sample_event(&sample);
        tocsin_trace_emit(writer, &event);
    }
    assert_int_equal(tocsin_trace_writer_close(writer, NULL), TOCSIN_OK);
}

typedef struct pair_of_runs {
    scratch a, b;
    uint64_t cells_max;
    tocsin_stability *learn, *unstable;
    tocsin_perfetto *perfetto; /* follows, or NULL */
    const tocsin_name_map *map;
    tocsin_align_rules *rules;
    uint64_t skip;
    tocsin_align_digest digest; /* baselines */
    double tolerance;
} pair_of_runs;

static tocsin_status align(const pair_of_runs *pair, tocsin_align_result **result,
                           tocsin_error *error)
{
    tocsin_run *a = NULL, *b = NULL;
    tocsin_align_options options = {.struct_bytes = sizeof options,
                                    .cells_max = pair->cells_max,
                                    .learn = pair->learn,
                                    .unstable = pair->unstable,
                                    .rules = pair->rules,
                                    .skip = pair->skip,
                                    .digest = pair->digest,
                                    .tolerance = pair->tolerance};
    *result = NULL;
    options.visit = pair->perfetto ? tocsin_perfetto_visit : NULL;
    options.context = pair->perfetto;
    options.map = pair->map;
    tocsin_status status = tocsin_run_open(pair->a.directory, false, &a, error);
    if (status == TOCSIN_OK)
        status = tocsin_run_open(pair->b.directory, false, &b, error);
    if (status == TOCSIN_OK)
        status = tocsin_align_runs(a, b, &options, result, error);
    if (a)
        tocsin_run_close(a);
    if (b)
        tocsin_run_close(b);
    return status;
}

static void test_equal_runs(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; ++seed) {
        pair_of_runs pair = {.a = scratch_new(), .b = scratch_new()};
        write_run(&pair.a, seed, 3000);
        write_run(&pair.b, seed, 3000);
        tocsin_align_result *result;
        assert_int_equal(align(&pair, &result, NULL), TOCSIN_OK);
        assert_int_equal(result->verdict, TOCSIN_ALIGN_IDENTICAL);
        assert_int_equal(result->rank_count, 1);
        assert_int_equal(result->ranks[0].equal, result->ranks[0].compared);
        assert_int_equal(result->ranks[0].only_a + result->ranks[0].only_b, 0);
        assert_int_equal(result->events, 6000);
        tocsin_align_result_free(result);
        scratch_free(&pair.a);
        scratch_free(&pair.b);
    }
}

static void test_unlike_runs(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; ++seed) {
        /* few cells: by anchors */
        pair_of_runs pair = {
            .a = scratch_new(), .b = scratch_new(), .cells_max = seed % 2 ? 0 : 20000};
        write_run(&pair.a, seed, 1000);
        write_run(&pair.b, seed + 100, 1200);
        tocsin_align_result *result;
        tocsin_status status = align(&pair, &result, NULL);
        assert_true(status == TOCSIN_OK || (pair.cells_max && status == TOCSIN_E_LIMIT));
        if (result) {
            assert_int_equal(result->verdict, TOCSIN_ALIGN_DIVERGED);
            assert_true(result->pivot_count > 0 && result->gap_count > 0);
        }
        tocsin_align_result_free(result);
        scratch_free(&pair.a);
        scratch_free(&pair.b);
    }
}

/* What two runs differ in as repeats, makes no pivot of them. */
static void test_unstable(void **state)
{
    (void)state;
    pair_of_runs pair = {.a = scratch_new(), .b = scratch_new()};
    tocsin_stability *map;
    tocsin_align_result *result;
    write_run(&pair.a, 3, 1000);
    write_run(&pair.b, 103, 1200);
    assert_int_equal(tocsin_stability_new(2, &map, NULL), TOCSIN_OK);
    pair.learn = map;
    assert_int_equal(align(&pair, &result, NULL), TOCSIN_OK);
    assert_int_equal(result->verdict, TOCSIN_ALIGN_DIVERGED);
    tocsin_align_rank learned = result->ranks[0];
    tocsin_align_result_free(result);
    assert_true(tocsin_stability_count(map) > 0);

    pair.learn = NULL;
    pair.unstable = map;
    assert_int_equal(align(&pair, &result, NULL), TOCSIN_OK);
    assert_int_equal(result->verdict, TOCSIN_ALIGN_UNSTABLE);
    assert_int_equal(result->pivot_count, 0);
    assert_int_equal(result->ranks[0].equal, learned.equal);
    assert_int_equal(result->ranks[0].prefix, learned.prefix);
    uint64_t differences = 0;
    for (size_t u = 0; u < result->unstable_count; ++u) {
        differences += result->unstable[u].count;
        assert_int_equal(result->unstable[u].boundary.differs, 1);
        assert_int_equal(result->unstable[u].repeats, 2);
    }
    if (result->unstable_count < 64)
        assert_int_equal(differences, learned.compared - learned.equal);
    tocsin_align_result_free(result);
    tocsin_stability_free(map);
    scratch_free(&pair.a);
    scratch_free(&pair.b);
}

static tocsin_status learn_once(void *context, tocsin_error *error)
{
    pair_of_runs pair = *(pair_of_runs *)context;
    tocsin_align_result *result = NULL;
    char path[SCRATCH_PATH_BYTES];
    snprintf(path, sizeof path, "%s/unstable.jsonl", pair.a.directory);
    tocsin_status status = tocsin_stability_new(2, &pair.learn, error);
    if (status == TOCSIN_OK)
        status = align(&pair, &result, error);
    if (status == TOCSIN_OK)
        status = tocsin_stability_save(pair.learn, path, error);
    tocsin_align_result_free(result);
    tocsin_stability_free(pair.learn);
    pair.learn = NULL;
    if (status == TOCSIN_OK)
        status = tocsin_stability_read(path, &pair.unstable, error);
    result = NULL;
    if (status == TOCSIN_OK)
        status = align(&pair, &result, error);
    tocsin_align_result_free(result);
    tocsin_stability_free(pair.unstable);
    return status;
}

static tocsin_status align_once(void *context, tocsin_error *error)
{
    tocsin_align_result *result;
    tocsin_status status = align(context, &result, error);
    tocsin_align_result_free(result);
    return status;
}

/* The steps before a resumed run, and the ways of others to compare. */
static void test_resumed_and_baselines(void **state)
{
    (void)state;
    pair_of_runs pair = {.a = scratch_new(), .b = scratch_new(), .skip = 1};
    write_run(&pair.a, 3, 600);
    write_run(&pair.b, 103, 600);
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, align_once, &pair) > 20);
    tocsin_align_result *result;
    pair.skip = UINT64_MAX;
    assert_int_equal(align(&pair, &result, NULL), TOCSIN_OK);
    assert_int_equal(result->verdict, TOCSIN_ALIGN_INCOMPARABLE);
    tocsin_align_result_free(result);
    pair.skip = 0;
    pair.tolerance = 1e-3;
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, align_once, &pair) > 20);
    pair.tolerance = -1.0;
    assert_int_equal(align(&pair, &result, NULL), TOCSIN_E_ARGUMENT);
    pair.tolerance = (double)NAN;
    assert_int_equal(align(&pair, &result, NULL), TOCSIN_E_ARGUMENT);
    pair.tolerance = 0.0;
    pair.digest = (tocsin_align_digest)9;
    assert_int_equal(align(&pair, &result, NULL), TOCSIN_E_ARGUMENT);
    assert_null(result);
    scratch_free(&pair.a);
    scratch_free(&pair.b);
}

/* Everything is accepted: no pivots, and nothing to complain of. */
static void test_accepted(void **state)
{
    (void)state;
    pair_of_runs pair = {.a = scratch_new(), .b = scratch_new()};
    write_run(&pair.a, 3, 1000);
    write_run(&pair.b, 103, 1000);
    tocsin_align_rule rule = {
        .id = "*", .because = "-", .by = "", .on = "2026-11-29", .until = "2026-11-30"};
    rule.a = rule.b = "";
    assert_int_equal(tocsin_align_rules_new("2026-11-29", &pair.rules, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_align_rules_add(pair.rules, &rule, NULL), TOCSIN_OK);
    tocsin_align_result *result;
    assert_int_equal(align(&pair, &result, NULL), TOCSIN_OK);
    assert_int_equal(result->verdict, TOCSIN_ALIGN_ACCEPTED);
    assert_int_equal(result->pivot_count, 0);
    assert_int_equal(result->cone_count, 0);
    assert_int_equal(result->accepted_count, 1);
    assert_int_equal(result->accepted[0].count, result->ranks[0].compared - result->ranks[0].equal);
    tocsin_align_result_free(result);
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, align_once, &pair) > 50);
    tocsin_align_rules_free(pair.rules);
    scratch_free(&pair.a);
    scratch_free(&pair.b);
}

typedef struct rules_file {
    scratch folder;
    char path[600];
} rules_file;

/* Read, add one, save. */
static tocsin_status extend_rules(void *context, tocsin_error *error)
{
    const rules_file *file = context;
    tocsin_align_rules *rules = NULL;
    tocsin_align_rule rule = {
        .id = "a", .because = "b", .by = "c", .on = "2026-11-29", .until = "2026-11-30"};
    rule.a = rule.b = "1";
    tocsin_status status = tocsin_align_rules_new("2026-11-29", &rules, error);
    if (status == TOCSIN_OK)
        status = tocsin_align_rules_read(rules, file->path, error);
    if (status == TOCSIN_OK)
        status = tocsin_align_rules_add(rules, &rule, error);
    if (status == TOCSIN_OK)
        status = tocsin_align_rules_save(rules, file->path, error);
    tocsin_align_rules_free(rules);
    return status;
}

static void test_rules(void **state)
{
    (void)state;
    rules_file file = {.folder = scratch_new()};
    tocsin_align_rules *rules;
    snprintf(file.path, sizeof file.path, "%s/rules.jsonl", file.folder.directory);
    assert_int_equal(tocsin_align_rules_new("2026-11-29", &rules, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_align_rules_save(rules, file.path, NULL), TOCSIN_OK);
    tocsin_align_rules_free(rules);
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, extend_rules, &file) > 5);
    assert_true(every_fault(TOCSIN_FAULT_IO, TOCSIN_E_IO, extend_rules, &file) > 3);
    scratch_free(&file.folder);
}

static void test_faults(void **state)
{
    (void)state;
    pair_of_runs pair = {.a = scratch_new(), .b = scratch_new()};
    write_run(&pair.a, 8, 120);
    write_run(&pair.b, 9, 120);
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, align_once, &pair) > 50);
    assert_true(every_fault(TOCSIN_FAULT_IO, TOCSIN_E_IO, align_once, &pair) > 5);
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, learn_once, &pair) > 50);
    assert_true(every_fault(TOCSIN_FAULT_IO, TOCSIN_E_IO, learn_once, &pair) > 5);
    scratch_free(&pair.a);
    scratch_free(&pair.b);
}

static tocsin_status trace_once(void *context, tocsin_error *error)
{
    pair_of_runs pair = *(const pair_of_runs *)context;
    tocsin_align_result *result = NULL;
    TOCSIN_TRY(tocsin_perfetto_open("/dev/null", "a", "b\xff", &pair.perfetto, error));
    tocsin_status status = align(&pair, &result, error);
    if (status == TOCSIN_OK)
        status = tocsin_perfetto_finish(pair.perfetto, result, error);
    tocsin_align_result_free(result);
    tocsin_perfetto_free(pair.perfetto);
    return status;
}

static void test_trace_faults(void **state)
{
    (void)state;
    pair_of_runs pair = {.a = scratch_new(), .b = scratch_new()};
    write_run(&pair.a, 8, 60);
    write_run(&pair.b, 9, 60);
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, trace_once, &pair) > 50);
    assert_true(every_fault(TOCSIN_FAULT_IO, TOCSIN_E_IO, trace_once, &pair) > 5);
    scratch_free(&pair.a);
    scratch_free(&pair.b);
}

static tocsin_status map_once(void *context, tocsin_error *error)
{
    pair_of_runs pair = *(const pair_of_runs *)context;
    char path[SCRATCH_PATH_BYTES];
    tocsin_align_result *result = NULL;
    tocsin_name_map *map;
    snprintf(path, sizeof path, "%s/map", pair.a.directory);
    TOCSIN_TRY(tocsin_name_map_load(path, &map, error));
    pair.map = map;
    tocsin_status status = align(&pair, &result, error);
    tocsin_align_result_free(result);
    tocsin_name_map_free(map);
    return status;
}

static void test_map_faults(void **state)
{
    (void)state;
    static const char map[] = "{\"format\":\"tocsin-map\",\"version\":1}\n"
                              "{\"a\":\"whole\",\"b\":[\"input\",\"lr\",\"data\"]}\n"
                              "{\"a\":\"turned\",\"b\":\"grad\",\"layout\":\"transposed\"}\n"
                              "{\"a\":\"x.{x*}\",\"b\":\"{x*}\"}\n";
    pair_of_runs pair = {.a = scratch_new(), .b = scratch_new()};
    char path[SCRATCH_PATH_BYTES];
    write_run(&pair.a, 8, 120);
    write_run(&pair.b, 9, 120);
    snprintf(path, sizeof path, "%s/map", pair.a.directory);
    scratch_write(path, map, strlen(map));
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, map_once, &pair) > 50);
    scratch_free(&pair.a);
    scratch_free(&pair.b);
}

/* A run of one step that was looked at closely. */
static void write_tiles(const scratch *run, float first)
{
    const int64_t shape[] = {6, 4};
    float data[24] = {first};
    tocsin_recorder *recorder;
    tocsin_recorder_options options = {.struct_bytes = sizeof options, .directory = run->directory};
    assert_int_equal(tocsin_recorder_open(&options, &recorder, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_recorder_drill(recorder, 1, "w", "grad", NULL), TOCSIN_OK);
    data[21] = data[22] = first;
    tocsin_tensor_view view = {
        .data = data, .dtype = TOCSIN_DTYPE_FLOAT32, .ndim = 2, .shape = shape};
    tocsin_sample sample = {
        .variable = tocsin_trace_define_variable(tocsin_recorder_writer(recorder), "w",
                                                 TOCSIN_VARIABLE_PARAMETER, "Parameter"),
        .attribute = TOCSIN_ATTRIBUTE_GRAD,
        .moment = TOCSIN_MOMENT_ENTER,
        .flags = TOCSIN_STATE_PRESENT,
        .dtype = TOCSIN_DTYPE_FLOAT32,
        .ndim = 2,
        .shape = shape,
        .view = &view};
    assert_true(tocsin_recorder_sample(recorder, &sample, NULL));
    tocsin_recorder_optimizer_stepped(recorder, 0);
    assert_int_equal(tocsin_recorder_close(recorder, NULL), TOCSIN_OK);
}

static void test_faults_of_tiles(void **state)
{
    (void)state;
    pair_of_runs pair = {.a = scratch_new(), .b = scratch_new()};
    tocsin_align_result *result;
    write_tiles(&pair.a, 1.0f);
    write_tiles(&pair.b, 2.0f);
    assert_int_equal(align(&pair, &result, NULL), TOCSIN_OK);
    assert_int_equal(result->pivots[0].tile_count, 2);
    assert_true(result->pivots[0].tiles[0].located);
    tocsin_align_result_free(result);
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, align_once, &pair) > 50);
    scratch_free(&pair.a);
    scratch_free(&pair.b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_runs),      cmocka_unit_test(test_unlike_runs),
        cmocka_unit_test(test_unstable),        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_trace_faults),    cmocka_unit_test(test_map_faults),
        cmocka_unit_test(test_faults_of_tiles), cmocka_unit_test(test_resumed_and_baselines),
        cmocka_unit_test(test_accepted),        cmocka_unit_test(test_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
