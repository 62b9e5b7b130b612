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

static tocsin_invariant_set *curated(const traincheck_folder *folder)
{
    char path[SCRATCH_PATH_BYTES];
    tocsin_invariant_set *set = NULL;
    traincheck_put(folder, "invariants.json", REPLICAS);
    snprintf(path, sizeof path, "%s/invariants.json", folder->traces.directory);
    assert_int_equal(tocsin_traincheck_invariants_load(path, NULL, &set, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_invariants_count(set), 1);
    return set;
}

static tocsin_check_summary verdict(int drift, int partition, int64_t *step, char entity[20])
{
    traincheck_folder folder = two_ranks(drift, partition);
    tocsin_invariant_set *set = curated(&folder);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replicas_are_compared_and_shards_are_not),
        cmocka_unit_test(test_a_healthy_trace_teaches_that_replicas_are_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
