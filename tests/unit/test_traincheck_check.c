/* From TrainCheck's files to a verdict: replicas and shards, first data, what a healthy trace
 * teaches, and what hashes do not tell. */
#include "traincheck_scratch.h"
#include <tocsin/check.h>
#include <tocsin/infer.h>

#define REPLICAS                                                                                   \
    "{\"text_description\":\"t\",\"relation\":\"ConsistencyRelation\",\"params\":[{\"var_type\":"  \
    "\"torch.nn.Parameter\",\"attr_name\":\"data\"},{\"var_type\":\"torch.nn.Parameter\","         \
    "\"attr_name\":\"data\"}],\"precondition\":{\"var\":{\"inverted\":false,\"preconditions\":["   \
    "{\"clauses\":[{\"type\":\"unequal\",\"prop_name\":\"process_id\"},{\"type\":\"consistent\","  \
    "\"prop_name\":\"attributes.nbytes\"},{\"type\":\"constant\",\"prop_name\":"                   \
    "\"attributes.partition_dim\",\"values\":[-1.0]}]}]}},\"num_positive_examples\":1}\n"

/* A round of one rank: "w" is replicated, "s" a shard. */
static void put_round(const traincheck_folder *folder, int rank, int step, int w, int s,
                      int partition)
{
    char file[60], meta[100], more[100];
    snprintf(file, sizeof file, "trace_VAR_%d_%d.log", 10 + rank, 10 + rank);
    snprintf(meta, sizeof meta, "\"step\":%d,\"stage\":\"%s\",\"_DATA_PARALLEL_RANK\":%d", step,
             step == 0 ? "init" : "training", rank);
    snprintf(more, sizeof more, ",\"partition_dim\":%d", partition);
    traincheck_put_sample(folder, file, 10 + rank, 10 * step + 1, meta, "w", w, more);
    traincheck_put_sample(folder, file, 10 + rank, 10 * step + 1, meta, "s", s,
                          ",\"partition_dim\":0");
}

/* Ranks begin with different weights, as before a broadcast, and then agree but for `drift`. */
static traincheck_folder two_ranks(int drift, int partition)
{
    traincheck_folder folder = traincheck_new();
    for (int rank = 0; rank < 2; ++rank) {
        put_round(&folder, rank, 0, 5 + rank, 70 + rank, partition);
        for (int step = 1; step < 5; ++step)
            put_round(&folder, rank, step, 100 * step + (step > 2 ? rank * drift : 0),
                      1000 * step + rank, partition);
    }
    traincheck_import(&folder);
    return folder;
}

static tocsin_checker *check(const traincheck_folder *folder, const tocsin_invariant_set *set)
{
    tocsin_checker *checker;
    tocsin_run *run;
    tocsin_checker_options options = {.struct_bytes = sizeof options};
    uint64_t events;
    assert_int_equal(tocsin_run_open(folder->run, false, &run, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_checker_new(set, &options, &checker, NULL), TOCSIN_OK);
    do
        assert_int_equal(tocsin_checker_advance(checker, run, &events, NULL), TOCSIN_OK);
    while (events > 0);
    assert_int_equal(tocsin_checker_finish(checker, NULL), TOCSIN_OK);
    tocsin_run_close(run);
    return checker;
}

static tocsin_invariant_set *curated(const traincheck_folder *folder, const char *text)
{
    char path[SCRATCH_PATH_BYTES];
    tocsin_invariant_set *set = NULL;
    traincheck_put(folder, "invariants.json", text);
    snprintf(path, sizeof path, "%s/invariants.json", folder->traces.directory);
    assert_int_equal(tocsin_traincheck_invariants_load(path, NULL, &set, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_invariants_count(set), 1);
    return set;
}

static tocsin_check_summary verdict(int drift, int partition, int64_t *step, char entity[20])
{
    traincheck_folder folder = two_ranks(drift, partition);
    tocsin_invariant_set *set = curated(&folder, REPLICAS);
    tocsin_checker *checker = check(&folder, set);
    tocsin_check_summary summary;
    tocsin_checker_summary(checker, &summary);
    if (summary.violated > 0) {
        const tocsin_finding *finding = tocsin_checker_finding(checker, 0);
        *step = finding->step;
        snprintf(entity, 20, "%s", finding->entity);
    }
    tocsin_checker_free(checker);
    tocsin_invariants_free(set);
    traincheck_free(&folder);
    return summary;
}

static void test_replicas_are_compared_and_shards_are_not(void **state)
{
    (void)state;
    int64_t step = 0;
    char entity[20] = "";
    /* the first data differ, and are left out; "s" always differs, and is a shard */
    assert_int_equal(verdict(0, -1, &step, entity).holds, 1);
    assert_int_equal(verdict(1, -1, &step, entity).violated, 1);
    assert_int_equal(step, 4); /* its step 3 */
    assert_string_equal(entity, "w");
    assert_int_equal(verdict(1, 1, &step, entity).unknown, 1); /* all are shards */
}

static void test_a_healthy_trace_teaches_that_replicas_are_equal(void **state)
{
    (void)state;
    traincheck_folder healthy = traincheck_new();
    for (int rank = 0; rank < 2; ++rank)
        for (int step = 0; step < 5; ++step) {
            char file[60], meta[100];
            snprintf(file, sizeof file, "trace_VAR_%d_%d.log", 10 + rank, 10 + rank);
            snprintf(meta, sizeof meta, "\"step\":%d,\"stage\":\"%s\",\"_DATA_PARALLEL_RANK\":%d",
                     step, step == 0 ? "init" : "training", rank);
            for (int variable = 0; variable < 2; ++variable)
                traincheck_put_sample(&healthy, file, 10 + rank, 10 * step + 1, meta,
                                      variable == 0 ? "w" : "b",
                                      100 * step + variable + (step == 0 ? 7 * rank : 0), "");
        }
    traincheck_import(&healthy);
    const char *runs[] = {healthy.run};
    tocsin_infer_options options = {.struct_bytes = sizeof options, .threads = 1};
    tocsin_invariant_set *set;
    assert_int_equal(tocsin_infer(runs, 1, &options, &set, NULL, NULL), TOCSIN_OK);
    bool learned = false;
    for (size_t i = 0; i < tocsin_invariants_count(set); ++i) {
        const char *sentence = tocsin_invariant_sentence(set, i);
        learned |= strcmp(sentence, "The data of each parameter after optimizer.step is equal on "
                                    "every two ranks, when meta.stage is 'training' on both and "
                                    "var.name is the same on both.") == 0;
        assert_null(strstr(sentence, "var.initial"));
    }
    assert_true(learned);

    traincheck_folder drifting = two_ranks(1, -1);
    tocsin_checker *checker = check(&healthy, set);
    tocsin_check_summary summary;
    tocsin_checker_summary(checker, &summary);
    assert_int_equal(summary.violated, 0);
    tocsin_checker_free(checker);
    checker = check(&drifting, set);
    tocsin_checker_summary(checker, &summary);
    assert_true(summary.violated > 0);
    tocsin_checker_free(checker);
    tocsin_invariants_free(set);
    traincheck_free(&healthy);
    traincheck_free(&drifting);
}

/* ---- calls ---------------------------------------------------------------------------------- */

#define CONTAIN(child)                                                                             \
    "{\"text_description\":\"t\",\"relation\":\"APIContainRelation\",\"params\":[{"                \
    "\"param_type\":\"APIParam\",\"api_full_name\":\"step\"}," child                               \
    "],\"precondition\":{\"parent_func_call_pre\":{\"inverted\":false,\"preconditions\":[{"        \
    "\"clauses\":\"Unconditional\"}]}},\"num_positive_examples\":1}\n"
#define CALL_OF_DEEP "{\"param_type\":\"APIParam\",\"api_full_name\":\"deep\"}"
#define GRADIENT_TO_NONE                                                                           \
    "{\"param_type\":\"VarTypeParam\",\"var_type\":\"torch.nn.Parameter\",\"attr_name\":"          \
    "\"grad\",\"pre_value\":\"non_zero\",\"post_value\":null}"
#define DATA_CHANGE                                                                                \
    "{\"param_type\":\"VarTypeParam\",\"var_type\":\"torch.nn.Parameter\",\"attr_name\":"          \
    "\"data\",\"pre_value\":\"non_zero\",\"post_value\":\"non_zero\"}"

#define API "trace_API_9_5.log"

/* A call of "step" in which "shallow" is called, and "deep" in that, if `deep`. */
static void put_step(const traincheck_folder *folder, int time, bool deep)
{
    char ids[3][20];
    for (int i = 0; i < 3; ++i)
        snprintf(ids[i], sizeof ids[i], "%d-%d", time, i);
    traincheck_put_call(folder, API, time, ids[0], "step", "");
    traincheck_put_call(folder, API, time + 1, ids[1], "shallow", "");
    if (deep) {
        traincheck_put_call(folder, API, time + 2, ids[2], "deep", "");
        traincheck_put_return(folder, API, time + 3, ids[2], "deep", "null");
    }
    traincheck_put_return(folder, API, time + 4, ids[1], "shallow", "null");
    traincheck_put_return(folder, API, time + 8, ids[0], "step", "null");
}

static void put_reading(const traincheck_folder *folder, int time, const char *mode, int data,
                        const char *grad)
{
    char line[TRAINCHECK_LINE_BYTES];
    snprintf(line, sizeof line,
             "{\"process_id\":9,\"thread_id\":6,\"time\":%d,\"meta_vars\":{\"step\":0},"
             "\"var_name\":\"w\",\"var_type\":\"torch.nn.Parameter\",\"mode\":\"%s\","
             "\"dump_loc\":\"f\",\"attributes\":{\"data\":%d,\"grad\":%s},"
             "\"type\":\"state_change\"}\n",
             time, mode, data, grad);
    traincheck_put(folder, "proxy_log.json", line);
}

static void expect_verdict(const traincheck_folder *folder, const char *text, uint64_t holds,
                           uint64_t violated, uint64_t unknown)
{
    tocsin_invariant_set *set = curated(folder, text);
    tocsin_checker *checker = check(folder, set);
    tocsin_check_summary summary;
    tocsin_checker_summary(checker, &summary);
    assert_int_equal(summary.holds, holds);
    assert_int_equal(summary.violated, violated);
    assert_int_equal(summary.unknown, unknown);
    tocsin_checker_free(checker);
    tocsin_invariants_free(set);
    char path[SCRATCH_PATH_BYTES];
    snprintf(path, sizeof path, "%s/invariants.json", folder->traces.directory);
    unlink(path);
}

static void test_a_call_contains_others_at_any_depth(void **state)
{
    (void)state;
    traincheck_folder good = traincheck_new(), bad = traincheck_new(), none = traincheck_new();
    put_step(&good, 10, true);
    put_step(&good, 20, true);
    put_step(&bad, 10, true);
    put_step(&bad, 20, false);
    traincheck_put_call(&none, API, 1, "a", "other", "");
    traincheck_import(&good);
    traincheck_import(&bad);
    traincheck_import(&none);
    expect_verdict(&good, CONTAIN(CALL_OF_DEEP), 1, 0, 0);
    expect_verdict(&bad, CONTAIN(CALL_OF_DEEP), 0, 1, 0);
    expect_verdict(&none, CONTAIN(CALL_OF_DEEP), 0, 0, 1);
    traincheck_free(&good);
    traincheck_free(&bad);
    traincheck_free(&none);
}

static void test_a_call_changes_variables(void **state)
{
    (void)state;
    traincheck_folder good = traincheck_new(), bad = traincheck_new(), blind = traincheck_new();
    traincheck_folder *const both[] = {&good, &bad};
    for (int i = 0; i < 2; ++i) {
        put_step(both[i], 10, false);
        put_reading(both[i], 11, "pre_observe", 100, "7");
        put_reading(both[i], 14, "post_observe", 200, "null");
        put_step(both[i], 20, false);
        put_reading(both[i], 21, "pre_observe", 200, "8");
        put_reading(both[i], 24, "post_observe", i == 0 ? 300 : 200, i == 0 ? "null" : "0");
    }
    put_step(&blind, 10, false);
    for (int i = 0; i < 2; ++i)
        traincheck_import(both[i]);
    traincheck_import(&blind);
    expect_verdict(&good, CONTAIN(DATA_CHANGE), 1, 0, 0);
    expect_verdict(&good, CONTAIN(GRADIENT_TO_NONE), 1, 0, 0);
    expect_verdict(&bad, CONTAIN(DATA_CHANGE), 0, 1, 0);
    expect_verdict(&bad, CONTAIN(GRADIENT_TO_NONE), 0, 1, 0);
    /* where no variable was read, nothing is known of changes */
    expect_verdict(&blind, CONTAIN(DATA_CHANGE), 0, 0, 1);
    traincheck_free(&good);
    traincheck_free(&bad);
    traincheck_free(&blind);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replicas_are_compared_and_shards_are_not),
        cmocka_unit_test(test_a_healthy_trace_teaches_that_replicas_are_equal),
        cmocka_unit_test(test_a_call_contains_others_at_any_depth),
        cmocka_unit_test(test_a_call_changes_variables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
