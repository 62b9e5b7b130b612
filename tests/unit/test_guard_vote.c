/* Check 3: who is named by a vote, and when nobody is. */
#include "cmocka_test.h"
#include <guard/guard.h>
#include <stdlib.h>

enum { REPLICAS_MAX = 8, TENSORS = 4 };

static const char *const names[] = {"w0", "w1", "w2", "w3"};

typedef struct fixture {
    tocsin_digest digests[REPLICAS_MAX][TENSORS];
    tocsin_guard_voters voters;
    tocsin_guard_finding *finding;
} fixture;

static fixture agreeing(uint32_t replicas)
{
    fixture f = {.voters = {.check = TOCSIN_GUARD_WEIGHTS,
                            .moment = {.step = 7, .passed = 6},
                            .replicas = replicas}};
    for (uint32_t r = 0; r < REPLICAS_MAX; ++r) {
        for (int t = 0; t < TENSORS; ++t)
            f.digests[r][t] = (tocsin_digest){.sum = (uint64_t)t + 1, .exclusive = 2};
    }
    return f;
}

static const tocsin_guard_finding *judge(fixture *f)
{
    const tocsin_digest *rows[REPLICAS_MAX];
    tocsin_guard_vote *vote;
    tocsin_guard_finding_free(f->finding);
    for (uint32_t r = 0; r < REPLICAS_MAX; ++r)
        rows[r] = f->digests[r];
    assert_int_equal(tocsin_guard_vote_new(&f->voters, &vote, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_guard_vote_add(vote, rows, names, TENSORS, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_guard_vote_judge(vote, &f->finding, NULL), TOCSIN_OK);
    tocsin_guard_vote_free(vote);
    return f->finding;
}

static void expect_nobody(fixture *f, tocsin_guard_cause cause, const char *part)
{
    const tocsin_guard_finding *finding = judge(f);
    assert_non_null(finding);
    assert_int_equal(finding->rank_count, 0);
    assert_int_equal(finding->cause, cause);
    assert_non_null(strstr(finding->text, part));
    tocsin_guard_finding_free(f->finding);
    f->finding = NULL;
}

static void test_agree(void **state)
{
    (void)state;
    for (uint32_t replicas = 1; replicas <= REPLICAS_MAX; ++replicas) {
        fixture f = agreeing(replicas);
        assert_null(judge(&f));
        f.voters.moment.passed = -1;
        assert_null(judge(&f));
    }
}

static void test_outlier(void **state)
{
    (void)state;
    static const uint32_t ranks[] = {1, 3, 5}, before[] = {4, 5};
    fixture f = agreeing(3);
    f.voters.ranks = ranks;
    f.digests[2][1].polynomial = 1; /* any of the three numbers counts */
    const tocsin_guard_finding *finding = judge(&f);
    assert_int_equal(finding->rank_count, 1);
    assert_int_equal(finding->ranks[0], 5);
    assert_int_equal(finding->cause, TOCSIN_GUARD_TRANSIENT);
    assert_string_equal(finding->tensor, "w1");
    assert_string_equal(finding->text, "tensors of rank 5 differ from those of the other 2 "
                                       "replicas, in 1 of 4 tensors, first in w1");
    f.voters.named = before;
    f.voters.named_count = 2;
    assert_int_equal(judge(&f)->cause, TOCSIN_GUARD_PERSISTENT);
    tocsin_guard_finding_free(f.finding);
}

/* Outliers of different tensors; three of seven; and half, which is no minority. */
static void test_several(void **state)
{
    (void)state;
    fixture f = agreeing(7);
    f.digests[0][0].sum = 50;
    f.digests[3][2].exclusive = 51;
    f.digests[6][3].sum = 52;
    const tocsin_guard_finding *finding = judge(&f);
    assert_int_equal(finding->rank_count, 3);
    assert_int_equal(finding->ranks[0], 0);
    assert_int_equal(finding->ranks[1], 3);
    assert_int_equal(finding->ranks[2], 6);
    f.digests[4][1].sum = 53; /* each tensor has a majority, all of them together have none */
    expect_nobody(&f, TOCSIN_GUARD_UNATTRIBUTABLE, "no strict majority");
}

static void test_nobody(void **state)
{
    (void)state;
    fixture f = agreeing(2);
    f.digests[1][0].sum = 9;
    expect_nobody(&f, TOCSIN_GUARD_UNATTRIBUTABLE, "two can tell that");
    f = agreeing(4);
    f.digests[1][0].sum = f.digests[2][0].sum = 9;
    expect_nobody(&f, TOCSIN_GUARD_UNATTRIBUTABLE, "no strict majority");
    for (uint32_t r = 1; r < 3; ++r) /* halves, in most tensors */
        f.digests[r][1].sum = f.digests[r][2].sum = 9;
    expect_nobody(&f, TOCSIN_GUARD_SOFTWARE, "the program updates them unlike");
    f = agreeing(3);
    f.digests[1][0].sum = 9;
    f.voters.moment.passed = -1;
    expect_nobody(&f, TOCSIN_GUARD_SOFTWARE, "never agreed");
    f = agreeing(4);
    for (uint32_t r = 0; r < 4; ++r) {
        for (int t = 0; t < 3; ++t)
            f.digests[r][t].sum = 100 + r;
    }
    expect_nobody(&f, TOCSIN_GUARD_SOFTWARE, "the program updates them unlike");
}

/* One tensor is not most tensors: there is no telling. */
static void test_one_tensor(void **state)
{
    (void)state;
    const tocsin_digest digests[] = {{.sum = 1}, {.sum = 2}, {.sum = 3}};
    const tocsin_digest *rows[] = {&digests[0], &digests[1], &digests[2]};
    const tocsin_guard_voters voters = {.moment = {.step = 1}, .replicas = 3};
    tocsin_guard_vote *vote;
    tocsin_guard_finding *finding;
    assert_int_equal(tocsin_guard_vote_new(&voters, &vote, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_guard_vote_add(vote, rows, NULL, 1, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_guard_vote_judge(vote, &finding, NULL), TOCSIN_OK);
    assert_int_equal(finding->cause, TOCSIN_GUARD_UNATTRIBUTABLE);
    assert_string_equal(finding->text,
                        "3 replicas differ and no strict majority agrees, in 1 of 1 tensors");
    tocsin_guard_finding_free(finding);
    tocsin_guard_vote_free(vote);
}

/* Many tensors of many replicas, every one different on one replica. */
static void test_large(void **state)
{
    (void)state;
    enum { REPLICAS = 1024, COUNT = 1000 };
    tocsin_digest *digests = calloc(2 * COUNT, sizeof *digests);
    const tocsin_digest **rows = calloc(REPLICAS, sizeof *rows);
    const tocsin_guard_voters voters = {.moment = {.step = 1}, .replicas = REPLICAS};
    tocsin_guard_vote *vote;
    tocsin_guard_finding *finding;
    for (size_t t = 0; t < COUNT; ++t)
        digests[COUNT + t].sum = t + 1;
    for (size_t r = 0; r < REPLICAS; ++r)
        rows[r] = r == 700 ? digests + COUNT : digests;
    assert_int_equal(tocsin_guard_vote_new(&voters, &vote, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_guard_vote_add(vote, rows, NULL, COUNT, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_guard_vote_judge(vote, &finding, NULL), TOCSIN_OK);
    assert_int_equal(finding->rank_count, 1);
    assert_int_equal(finding->ranks[0], 700);
    tocsin_guard_finding_free(finding);
    assert_int_equal(tocsin_guard_vote_add(vote, rows, NULL, TOCSIN_GUARD_TENSORS_MAX, NULL),
                     TOCSIN_E_LIMIT);
    tocsin_guard_vote_free(vote);
    free(rows);
    free(digests);
}

static void test_refused(void **state)
{
    (void)state;
    static const uint32_t ranks[] = {1, 1};
    tocsin_guard_vote *vote;
    tocsin_guard_voters voters = {.replicas = 0};
    assert_int_equal(tocsin_guard_vote_new(&voters, &vote, NULL), TOCSIN_E_ARGUMENT);
    voters.replicas = 2;
    voters.ranks = ranks;
    assert_int_equal(tocsin_guard_vote_new(&voters, &vote, NULL), TOCSIN_E_ARGUMENT);
    voters.replicas = TOCSIN_GUARD_RANKS_MAX + 1;
    assert_int_equal(tocsin_guard_vote_new(&voters, &vote, NULL), TOCSIN_E_LIMIT);
    assert_null(vote);
    tocsin_guard_vote_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agree),     cmocka_unit_test(test_outlier),
        cmocka_unit_test(test_several),   cmocka_unit_test(test_nobody),
        cmocka_unit_test(test_large),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_one_tensor)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
