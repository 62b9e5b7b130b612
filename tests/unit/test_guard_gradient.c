/* Check 1: which NaN and Inf are an alarm, whose they are, and what a scaler may do. */
#include "cmocka_test.h"
#include <guard/guard.h>
#include <math.h>

enum { RANKS = 4 };

typedef struct fixture {
    tocsin_guard_gradient_row rows[RANKS];
    tocsin_guard_gradients gradients;
    tocsin_guard_gradient_verdict verdict;
    tocsin_guard_finding *finding;
} fixture;

static fixture healthy(void)
{
    static const char *const names[] = {"a.weight", "b.weight"};
    fixture f = {.gradients = {.moment = {.step = 7, .passed = 6},
                               .rank_count = RANKS,
                               .names = names,
                               .name_count = 2}};
    for (int r = 0; r < RANKS; ++r)
        f.rows[r] =
            (tocsin_guard_gradient_row){.bucket = -1,
                                        .parameter = -1,
                                        .element = -1,
                                        .norm = 1.25,
                                        .flags = TOCSIN_GUARD_NORM | TOCSIN_GUARD_NORM_REPLICATED};
    return f;
}

static void set_norms(fixture *f, double norm)
{
    for (int r = 0; r < RANKS; ++r)
        f->rows[r].norm = norm;
}

static void set_scales(fixture *f, double scale)
{
    for (int r = 0; r < RANKS; ++r)
        f->rows[r].scale = scale;
}

static void judge(fixture *f, tocsin_guard_gradient_verdict expected)
{
    f->gradients.rows = f->rows;
    assert_int_equal(tocsin_guard_judge_gradients(&f->gradients, &f->verdict, &f->finding, NULL),
                     TOCSIN_OK);
    assert_int_equal(f->verdict, expected);
    assert_int_equal(f->finding != NULL, expected == TOCSIN_GUARD_GRADIENT_FINDING);
}

static void expect_finding(fixture *f, tocsin_guard_cause cause, const char *part)
{
    judge(f, TOCSIN_GUARD_GRADIENT_FINDING);
    assert_int_equal(f->finding->cause, cause);
    assert_non_null(strstr(f->finding->text, part));
    assert_int_equal(f->finding->moment.passed, 6);
    assert_int_equal(f->finding->replicas, f->gradients.rank_count);
    tocsin_guard_finding_free(f->finding);
}

static void test_pass(void **state)
{
    (void)state;
    fixture f = healthy();
    f.rows[2].large = 9; /* large values alone are no fault */
    judge(&f, TOCSIN_GUARD_GRADIENT_PASS);
    f.rows[1].flags = 0; /* a norm that is not there does not matter */
    f.rows[1].norm = (double)NAN;
    judge(&f, TOCSIN_GUARD_GRADIENT_PASS);
    f = healthy();
    f.rows[1].norm = 1.5; /* norms of shards differ */
    f.rows[1].flags = TOCSIN_GUARD_NORM;
    judge(&f, TOCSIN_GUARD_GRADIENT_PASS);
}

static void test_local(void **state)
{
    (void)state;
    fixture f = healthy();
    f.rows[2].nan = 3;
    f.rows[2].bucket = 1;
    f.rows[2].parameter = 1;
    f.rows[2].element = 17;
    set_norms(&f, (double)NAN);
    judge(&f, TOCSIN_GUARD_GRADIENT_FINDING);
    assert_int_equal(f.finding->rank_count, 0); /* where, not who */
    assert_int_equal(f.finding->cause, TOCSIN_GUARD_UNATTRIBUTABLE);
    assert_string_equal(f.finding->tensor, "b.weight");
    assert_int_equal(f.finding->bucket, 1);
    assert_int_equal(f.finding->index[0], 17);
    assert_non_null(strstr(f.finding->evidence, "\"located\":[2]"));
    tocsin_guard_finding_free(f.finding);
    f.rows[0].inf = f.rows[1].inf = 1;
    expect_finding(&f, TOCSIN_GUARD_SOFTWARE, "ranks 0, 1 and 2 hold Inf");
    f.rows[0].parameter = 5; /* names fewer than the rows say */
    expect_finding(&f, TOCSIN_GUARD_SOFTWARE, "before they are reduced");
    f = healthy();
    f.rows[0].nan = 1; /* one rank alone: no other to compare with */
    f.gradients.rank_count = 1;
    expect_finding(&f, TOCSIN_GUARD_UNATTRIBUTABLE, "rank 0 hold NaN");
}

static void test_reduced(void **state)
{
    (void)state;
    fixture f = healthy();
    set_norms(&f, (double)INFINITY);
    expect_finding(&f, TOCSIN_GUARD_UNATTRIBUTABLE, "inside the reduction");
    f.rows[3].large = 1;
    expect_finding(&f, TOCSIN_GUARD_SOFTWARE, "sum may overflow");
    f = healthy();
    f.rows[1].norm = (double)INFINITY;
    judge(&f, TOCSIN_GUARD_GRADIENT_FINDING);
    assert_int_equal(f.finding->cause, TOCSIN_GUARD_TRANSIENT);
    assert_int_equal(f.finding->rank_count, 1);
    assert_int_equal(f.finding->ranks[0], 1);
    tocsin_guard_finding_free(f.finding);
    f.rows[1].norm = 1.250001; /* finite: what comes after would differ, too */
    expect_finding(&f, TOCSIN_GUARD_TRANSIENT, "another one on rank 1");
    f.rows[2].norm = 1.250001;
    expect_finding(&f, TOCSIN_GUARD_UNATTRIBUTABLE, "without a majority");
    f = healthy();
    f.rows[1].norm = 2.0;
    f.gradients.rank_count = 2; /* one of two */
    expect_finding(&f, TOCSIN_GUARD_UNATTRIBUTABLE, "without a majority");
    f = healthy();
    set_norms(&f, (double)NAN);
    f.rows[2].norm = -(double)NAN; /* the sign of a NaN means nothing */
    expect_finding(&f, TOCSIN_GUARD_UNATTRIBUTABLE, "inside the reduction");
}

static void test_scaler(void **state)
{
    (void)state;
    fixture f = healthy();
    set_scales(&f, 65536.0);
    judge(&f, TOCSIN_GUARD_GRADIENT_PASS);
    f.rows[0].inf = 3;
    set_norms(&f, (double)INFINITY);
    judge(&f, TOCSIN_GUARD_GRADIENT_SCALER_SKIP);
    f.rows[0].inf = 0; /* the sum overflowed */
    judge(&f, TOCSIN_GUARD_GRADIENT_SCALER_SKIP);
    f.gradients.skips = TOCSIN_GUARD_SKIPS_MAX - 1;
    set_scales(&f, 1.0);
    judge(&f, TOCSIN_GUARD_GRADIENT_SCALER_SKIP);
    set_scales(&f, 0.5);
    expect_finding(&f, TOCSIN_GUARD_SOFTWARE, "scale of 0.5");
    set_scales(&f, 65536.0);
    f.gradients.skips = TOCSIN_GUARD_SKIPS_MAX;
    expect_finding(&f, TOCSIN_GUARD_SOFTWARE, "skipped 33 steps");
    f.gradients.skips = 0; /* some ranks would skip and some not */
    f.rows[3].norm = 1.25;
    expect_finding(&f, TOCSIN_GUARD_TRANSIENT, "on rank 3");
}

static void test_refused(void **state)
{
    (void)state;
    fixture f = healthy();
    f.gradients.rank_count = 0;
    assert_int_equal(tocsin_guard_judge_gradients(&f.gradients, &f.verdict, &f.finding, NULL),
                     TOCSIN_E_ARGUMENT);
    f.gradients.rank_count = TOCSIN_GUARD_RANKS_MAX + 1;
    assert_int_equal(tocsin_guard_judge_gradients(&f.gradients, &f.verdict, &f.finding, NULL),
                     TOCSIN_E_LIMIT);
    assert_null(f.finding);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pass), cmocka_unit_test(test_local), cmocka_unit_test(test_reduced),
        cmocka_unit_test(test_scaler), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
