/* Every allocation and file operation of the guard's judgements and ledger fails once: an error, no
 * leak, and nobody is named for it. */
#include "every_fault.h"
#include <guard/guard.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static tocsin_status judge_gradients(void *context, tocsin_error *error)
{
    (void)context;
    const char *const names[] = {"w"};
    tocsin_guard_gradient_row rows[5] = {{0}};
    for (int r = 0; r < 5; ++r)
        rows[r] = (tocsin_guard_gradient_row){
            .nan = r < 2, .element = 3, .norm = r, .flags = TOCSIN_GUARD_NORM};
    const tocsin_guard_gradients gradients = {
        .rows = rows, .rank_count = 5, .names = names, .name_count = 1};
    tocsin_guard_gradient_verdict verdict;
    tocsin_guard_finding *finding;
    char *text = NULL;
    size_t bytes;
    TOCSIN_TRY(tocsin_guard_judge_gradients(&gradients, &verdict, &finding, error));
    tocsin_status status = tocsin_guard_finding_json(finding, &text, &bytes, error);
    tocsin_guard_text_free(text);
    tocsin_guard_finding_free(finding);
    return status;
}

static tocsin_status judge_norms(void *context, tocsin_error *error)
{
    (void)context;
    tocsin_guard_gradient_row rows[5] = {{0}};
    for (int r = 0; r < 5; ++r)
        rows[r] = (tocsin_guard_gradient_row){
            .norm = r == 3, .flags = TOCSIN_GUARD_NORM | TOCSIN_GUARD_NORM_REPLICATED};
    const tocsin_guard_gradients gradients = {.rows = rows, .rank_count = 5};
    tocsin_guard_gradient_verdict verdict;
    tocsin_guard_finding *finding;
    TOCSIN_TRY(tocsin_guard_judge_gradients(&gradients, &verdict, &finding, error));
    assert_int_equal(finding->rank_count, 1);
    tocsin_guard_finding_free(finding);
    return TOCSIN_OK;
}

static tocsin_status judge_vote(void *context, tocsin_error *error)
{
    (void)context;
    const uint32_t named[] = {1};
    const tocsin_digest healthy[2] = {{0}}, faulty[2] = {{.sum = 1}, {.sum = 2}};
    const tocsin_digest *rows[] = {healthy, faulty, healthy};
    const tocsin_guard_voters voters = {.replicas = 3, .named = named, .named_count = 1};
    tocsin_guard_vote *vote;
    tocsin_guard_finding *finding = NULL;
    TOCSIN_TRY(tocsin_guard_vote_new(&voters, &vote, error));
    tocsin_status status = tocsin_guard_vote_add(vote, rows, NULL, 2, error);
    if (status == TOCSIN_OK)
        status = tocsin_guard_vote_judge(vote, &finding, error);
    tocsin_guard_vote_free(vote);
    tocsin_guard_finding_free(finding);
    return status;
}

static tocsin_status judge_comparison(void *context, tocsin_error *error)
{
    (void)context;
    const tocsin_guard_comparison_row rows[3] = {{.differ = 1}, {0}, {0}};
    const tocsin_guard_comparison comparison = {
        .check = TOCSIN_GUARD_MEMORY, .rows = rows, .row_count = 3};
    tocsin_guard_finding *finding = NULL;
    tocsin_status status = tocsin_guard_judge_comparison(&comparison, &finding, error);
    tocsin_guard_finding_free(finding);
    return status;
}

/* Rank 1 is convicted by the batch of rank 0; that of rank 4 stays open. */
static tocsin_status judge_replay(void *context, tocsin_error *error)
{
    (void)context;
    const tocsin_guard_run runs[] = {
        {.owner = 0, .executor = 0},
        {.owner = 0, .executor = 1, .result = {.sum = 1}},
        {.owner = 0, .executor = 2},
        {.owner = 4, .executor = 4},
        {.owner = 4, .executor = 3, .result = {.sum = 1}},
        {.owner = 4, .executor = 2, .result = {.sum = 2}},
    };
    const tocsin_guard_replay replay = {
        .rank_count = 6, .runs = runs, .run_count = TOCSIN_COUNT_OF(runs)};
    tocsin_guard_finding *finding = NULL;
    tocsin_guard_run *requests;
    size_t count;
    TOCSIN_TRY(tocsin_guard_replay_requests(&replay, &requests, &count, error));
    tocsin_guard_requests_free(requests);
    TOCSIN_TRY(tocsin_guard_judge_replay(&replay, &finding, error));
    assert_int_equal(finding->rank_count, 1);
    assert_int_equal(finding->cover_count, 3);
    tocsin_guard_finding_free(finding);
    return TOCSIN_OK;
}

static void test_judgements(void **state)
{
    (void)state;
    every_fault_operation *const operations[] = {judge_gradients, judge_norms, judge_vote,
                                                 judge_comparison, judge_replay};
    for (size_t o = 0; o < TOCSIN_COUNT_OF(operations); ++o)
        assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, operations[o], NULL) > 5);
}

static tocsin_status pass_over(void *context, const ledger_line *line, tocsin_error *error)
{
    (void)line;
    (void)error;
    ++*(size_t *)context;
    return TOCSIN_OK;
}

static tocsin_status keep_ledger(void *context, tocsin_error *error)
{
    const char *path = context;
    size_t lines = 0;
    ledger_summary summary;
    unlink(path);
    TOCSIN_TRY(tocsin_guard_ledger_append(path, "{\"a\":1}", 7, error));
    TOCSIN_TRY(tocsin_guard_ledger_append(path, "{\"a\":2}", 7, error));
    TOCSIN_TRY(tocsin_ledger_read(path, pass_over, &lines, &summary, error));
    assert_int_equal(lines, 2);
    return TOCSIN_OK;
}

static void test_ledger(void **state)
{
    (void)state;
    char folder[] = "/tmp/tocsin-ledger-XXXXXX", path[96];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/rank-0.jsonl", folder);
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, keep_ledger, path) > 5);
    assert_true(every_fault(TOCSIN_FAULT_IO, TOCSIN_E_IO, keep_ledger, path) > 5);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_judgements),
                                       cmocka_unit_test(test_ledger)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
