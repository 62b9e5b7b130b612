/* Check 2: what is asked for in which round, and the table of verdicts, case by case. */
#include "cmocka_test.h"
#include <guard/guard.h>
#include <stdlib.h>

enum { RUNS_MAX = 200 };

typedef struct fixture {
    tocsin_guard_run runs[RUNS_MAX];
    tocsin_guard_replay replay;
    tocsin_guard_run *requests;
    size_t request_count;
    tocsin_guard_finding *finding;
} fixture;

static void add(fixture *f, uint32_t owner, uint32_t executor, uint32_t attempt, uint64_t result)
{
    f->runs[f->replay.run_count++] = (tocsin_guard_run){
        .owner = owner, .executor = executor, .attempt = attempt, .result = {.sum = result}};
    f->replay.runs = f->runs;
}

/* Every rank and the one before it computed its batch; result: 100 + owner. */
static void begin(fixture *f, uint32_t ranks)
{
    memset(f, 0, sizeof *f);
    f->replay.rank_count = ranks;
    f->replay.moment = (tocsin_guard_moment){.step = 20, .passed = 10};
    for (uint32_t r = 0; r < ranks; ++r) {
        add(f, r, r, 0, 100 + r);
        if (ranks > 1)
            add(f, r, (r + ranks - 1) % ranks, 0, 100 + r);
    }
}

static void set(fixture *f, uint32_t owner, uint32_t executor, uint64_t result)
{
    for (size_t r = 0; r < f->replay.run_count; ++r) {
        if (f->runs[r].owner == owner && f->runs[r].executor == executor)
            f->runs[r].result.sum = result;
    }
}

static void ask(fixture *f)
{
    tocsin_guard_requests_free(f->requests);
    assert_int_equal(
        tocsin_guard_replay_requests(&f->replay, &f->requests, &f->request_count, NULL), TOCSIN_OK);
}

static void expect_request(const fixture *f, size_t index, uint32_t owner, uint32_t executor,
                           uint32_t attempt)
{
    assert_true(index < f->request_count);
    assert_int_equal(f->requests[index].owner, owner);
    assert_int_equal(f->requests[index].executor, executor);
    assert_int_equal(f->requests[index].attempt, attempt);
}

static void judge(fixture *f, tocsin_guard_cause cause, size_t named)
{
    tocsin_guard_finding_free(f->finding);
    assert_int_equal(tocsin_guard_judge_replay(&f->replay, &f->finding, NULL), TOCSIN_OK);
    assert_non_null(f->finding);
    assert_int_equal(f->finding->cause, cause);
    assert_int_equal(f->finding->rank_count, named);
}

static void end(fixture *f)
{
    tocsin_guard_requests_free(f->requests);
    tocsin_guard_finding_free(f->finding);
}

static void test_agree(void **state)
{
    (void)state;
    fixture f;
    for (uint32_t ranks = 1; ranks <= 9; ++ranks) {
        begin(&f, ranks);
        ask(&f);
        assert_int_equal(f.request_count, 0);
        assert_int_equal(tocsin_guard_judge_replay(&f.replay, &f.finding, NULL), TOCSIN_OK);
        assert_null(f.finding);
        end(&f);
    }
}

/* Rank 2's own result was wrong once: a third rank decides who, reruns that it does not come back.
 */
static void test_transient(void **state)
{
    (void)state;
    fixture f;
    begin(&f, 5);
    set(&f, 2, 2, 7);
    ask(&f);
    assert_int_equal(f.request_count, 1);
    expect_request(&f, 0, 2, 3, 0);
    judge(&f, TOCSIN_GUARD_UNATTRIBUTABLE, 0); /* two ranks alone cannot tell */
    assert_int_equal(f.finding->cover_count, 2);
    assert_int_equal(f.finding->cover_ranks[0], 1);
    assert_int_equal(f.finding->cover_ranks[1], 2);
    add(&f, 2, 3, 0, 102);
    ask(&f);
    assert_int_equal(f.request_count, 2);
    expect_request(&f, 0, 2, 2, 1);
    expect_request(&f, 1, 2, 2, 2);
    judge(&f, TOCSIN_GUARD_TRANSIENT, 1);
    assert_non_null(strstr(f.finding->text, "it was not run again"));
    add(&f, 2, 2, 1, 102);
    add(&f, 2, 2, 2, 102);
    ask(&f);
    assert_int_equal(f.request_count, 0);
    judge(&f, TOCSIN_GUARD_TRANSIENT, 1);
    assert_int_equal(f.finding->ranks[0], 2);
    assert_int_equal(f.finding->moment.passed, 10);
    assert_string_equal(f.finding->text, "rank 2 computed a batch to another result than two other "
                                         "ranks that agree, and not when it was run again");
    end(&f);
}

static void test_persistent(void **state)
{
    (void)state;
    fixture f;
    begin(&f, 5);
    set(&f, 2, 2, 7);
    set(&f, 3, 2, 8); /* as replayer, too */
    ask(&f);
    assert_int_equal(f.request_count, 2);
    expect_request(&f, 0, 2, 4, 0); /* no rank that is under suspicion already */
    expect_request(&f, 1, 3, 0, 0);
    add(&f, 2, 4, 0, 102);
    add(&f, 3, 0, 0, 103);
    ask(&f);
    assert_int_equal(f.request_count, 2); /* reruns of one batch */
    add(&f, 2, 2, 1, 7);
    add(&f, 2, 2, 2, 7);
    ask(&f);
    assert_int_equal(f.request_count, 0);
    judge(&f, TOCSIN_GUARD_PERSISTENT, 1);
    assert_int_equal(f.finding->ranks[0], 2);
    end(&f);
}

/* Its reruns differ: is it the rank or the operation? Two witnesses run again. */
static void test_intermittent(void **state)
{
    (void)state;
    fixture f;
    begin(&f, 5);
    set(&f, 2, 2, 7);
    add(&f, 2, 3, 0, 102);
    add(&f, 2, 2, 1, 102);
    add(&f, 2, 2, 2, 9);
    ask(&f);
    assert_int_equal(f.request_count, 4);
    expect_request(&f, 0, 2, 1, 1);
    expect_request(&f, 3, 2, 3, 2);
    size_t before = f.replay.run_count;
    for (uint32_t attempt = 1; attempt <= 2; ++attempt) {
        add(&f, 2, 1, attempt, 102);
        add(&f, 2, 3, attempt, 102);
    }
    ask(&f);
    assert_int_equal(f.request_count, 0);
    judge(&f, TOCSIN_GUARD_PERSISTENT, 1);
    f.replay.run_count = before; /* and now the witnesses do not repeat themselves either */
    for (uint32_t attempt = 1; attempt <= 2; ++attempt) {
        add(&f, 2, 1, attempt, 110 + attempt);
        add(&f, 2, 3, attempt, 120 + attempt);
    }
    judge(&f, TOCSIN_GUARD_NONDETERMINISTIC, 0);
    end(&f);
}

/* The third rank has a result of its own: nobody is named, a fourth is asked. */
static void test_third_differs(void **state)
{
    (void)state;
    fixture f;
    begin(&f, 6);
    set(&f, 2, 2, 7);
    add(&f, 2, 3, 0, 8);
    judge(&f, TOCSIN_GUARD_UNATTRIBUTABLE, 0);
    assert_int_equal(f.finding->cover_count, 3); /* any two of the three */
    ask(&f);
    assert_int_equal(f.request_count, 3);
    expect_request(&f, 0, 2, 2, 1);
    expect_request(&f, 2, 2, 4, 0);
    add(&f, 2, 4, 0, 102);
    judge(&f, TOCSIN_GUARD_TRANSIENT, 2);
    assert_int_equal(f.finding->ranks[0], 2);
    assert_int_equal(f.finding->ranks[1], 3);
    set(&f, 2, 4, 8); /* 7 and 102 once, 8 twice: whom the rule names it names wrongly only if two
                         faulty ranks are wrong alike */
    judge(&f, TOCSIN_GUARD_TRANSIENT, 2);
    add(&f, 2, 5, 0, 102); /* now two results are confirmed: no verdict */
    judge(&f, TOCSIN_GUARD_UNATTRIBUTABLE, 0);
    end(&f);
}

static void test_two_ranks(void **state)
{
    (void)state;
    fixture f;
    begin(&f, 2);
    set(&f, 0, 0, 7);
    ask(&f);
    assert_int_equal(f.request_count, 2);
    expect_request(&f, 0, 0, 0, 1);
    add(&f, 0, 0, 1, 7);
    add(&f, 0, 0, 2, 7);
    ask(&f);
    assert_int_equal(f.request_count, 0);
    judge(&f, TOCSIN_GUARD_UNATTRIBUTABLE, 0);
    assert_int_equal(f.finding->cover_count, 2);
    assert_non_null(strstr(f.finding->text, "fewer than 3 ranks"));
    end(&f);
}

/* Every batch differs on every rank: reruns that differ are an operation, reruns that do not are
 * a replay of something else. */
static void test_all_differ(void **state)
{
    (void)state;
    for (int repeats = 0; repeats < 2; ++repeats) {
        fixture f;
        begin(&f, 4);
        for (uint32_t owner = 0; owner < 4; ++owner)
            set(&f, owner, (owner + 3) % 4, 1000 + owner);
        ask(&f);
        assert_int_equal(f.request_count, 4);
        for (uint32_t owner = 0; owner < 4; ++owner) {
            add(&f, owner, (owner + 1) % 4, 0, 2000 + owner);
            add(&f, owner, owner, 1, repeats ? 100 + owner : 3000);
        }
        judge(&f, repeats ? TOCSIN_GUARD_SOFTWARE : TOCSIN_GUARD_NONDETERMINISTIC, 0);
        assert_int_equal(f.finding->cover_count, 0);
        ask(&f);
        assert_int_equal(f.request_count, repeats ? 8 : 0);
        end(&f);
    }
}

/* Half of the ranks convicted is no minority. */
static void test_half_convicted(void **state)
{
    (void)state;
    fixture f;
    begin(&f, 4);
    for (uint32_t owner = 0; owner < 2; ++owner) {
        set(&f, owner, owner, 7 + owner);
        add(&f, owner, 2, 0, 100 + owner);
    }
    judge(&f, TOCSIN_GUARD_SOFTWARE, 0);
    end(&f);
}

static void test_nonfinite(void **state)
{
    (void)state;
    fixture f;
    begin(&f, 4);
    f.runs[2].flags = f.runs[3].flags = TOCSIN_GUARD_RUN_NONFINITE; /* the batch of rank 1 */
    judge(&f, TOCSIN_GUARD_DATA, 0);
    for (size_t r = 0; r < f.replay.run_count; ++r)
        f.runs[r].flags = TOCSIN_GUARD_RUN_NONFINITE;
    judge(&f, TOCSIN_GUARD_SOFTWARE, 0);
    end(&f);
}

/* Many pairs, nobody convicted: that there are too many explanations is said. */
static void test_too_many_covers(void **state)
{
    (void)state;
    enum { RANKS = 600 };
    static tocsin_guard_run runs[2 * RANKS];
    tocsin_guard_finding *finding;
    for (uint32_t r = 0; r < RANKS; ++r) {
        runs[2 * r] = (tocsin_guard_run){.owner = r, .executor = r};
        runs[2 * r + 1] =
            (tocsin_guard_run){.owner = r, .executor = r ^ 1u, .result = {.sum = r < 560}};
    }
    const tocsin_guard_replay replay = {
        .rank_count = RANKS, .runs = runs, .run_count = TOCSIN_COUNT_OF(runs)};
    assert_int_equal(tocsin_guard_judge_replay(&replay, &finding, NULL), TOCSIN_OK);
    assert_int_equal(finding->cause, TOCSIN_GUARD_UNATTRIBUTABLE);
    assert_true(finding->covers_cut);
    assert_int_equal(finding->cover_count, 0);
    assert_non_null(strstr(finding->text, "nobody is convicted: too many fit"));
    tocsin_guard_finding_free(finding);
}

static void expect_refused(fixture *f, tocsin_status expected)
{
    assert_int_equal(tocsin_guard_judge_replay(&f->replay, &f->finding, NULL), expected);
    assert_int_equal(
        tocsin_guard_replay_requests(&f->replay, &f->requests, &f->request_count, NULL), expected);
    assert_null(f->finding);
    assert_null(f->requests);
}

static void test_refused(void **state)
{
    (void)state;
    fixture f;
    begin(&f, 3);
    f.runs[0].executor = 3;
    expect_refused(&f, TOCSIN_E_ARGUMENT);
    begin(&f, 3);
    add(&f, 0, 0, 0, 5); /* twice */
    expect_refused(&f, TOCSIN_E_ARGUMENT);
    begin(&f, 3);
    f.runs[0].attempt = 1; /* its own first run is missing */
    expect_refused(&f, TOCSIN_E_ARGUMENT);
    begin(&f, 3);
    for (uint32_t attempt = 1; attempt <= BATCH_RUNS_MAX; ++attempt)
        add(&f, 0, 0, attempt, 5);
    expect_refused(&f, TOCSIN_E_LIMIT);
    begin(&f, 3);
    f.replay.run_count = TOCSIN_GUARD_RUNS_MAX + 1;
    expect_refused(&f, TOCSIN_E_LIMIT);
}

/* More pairs than are searched: said, not guessed. */
static void test_many_pairs(void **state)
{
    (void)state;
    enum { PAIRS = 400 };
    static rank_pair pairs[PAIRS];
    cover_list covers;
    for (uint32_t p = 0; p < PAIRS; ++p)
        pairs[p] = (rank_pair){.a = 2 * p, .b = 2 * p + 1};
    assert_true(tocsin_vertex_covers(pairs, PAIRS, &covers)); /* 800 ranks */
    assert_true(covers.cut);
    assert_int_equal(covers.ends.count, 0);
    tocsin_vertex_covers_free(&covers);
    assert_true(tocsin_vertex_covers(pairs, 60, &covers)); /* 2^60 covers */
    assert_true(covers.cut);
    tocsin_vertex_covers_free(&covers);
    assert_true(tocsin_vertex_covers(pairs, 0, &covers));
    assert_false(covers.cut);
    tocsin_vertex_covers_free(&covers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agree),         cmocka_unit_test(test_transient),
        cmocka_unit_test(test_persistent),    cmocka_unit_test(test_intermittent),
        cmocka_unit_test(test_third_differs), cmocka_unit_test(test_two_ranks),
        cmocka_unit_test(test_all_differ),    cmocka_unit_test(test_half_convicted),
        cmocka_unit_test(test_nonfinite),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_many_pairs),    cmocka_unit_test(test_too_many_covers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
