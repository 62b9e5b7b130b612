/* Ranks that differ from themselves: witnesses, and checks that may differ without a fault. */
#include "cmocka_test.h"
#include <guard/guard.h>

enum { RANKS = 5 };

typedef struct fixture {
    tocsin_guard_comparison_row rows[RANKS];
    tocsin_guard_comparison comparison;
} fixture;

static fixture equal_rows(tocsin_guard_check check)
{
    static const char *const names[] = {"layer.0", "layer.1"};
    fixture f = {.comparison = {.check = check,
                                .moment = {.step = 4, .passed = 3},
                                .row_count = RANKS,
                                .names = names,
                                .name_count = 2}};
    for (int r = 0; r < RANKS; ++r)
        f.rows[r] = (tocsin_guard_comparison_row){.compared = 2, .item = -1, .word = -1};
    return f;
}

static void differ(fixture *f, int rank)
{
    f->rows[rank].differ = 1;
    f->rows[rank].item = 1;
    f->rows[rank].word = 33;
    f->rows[rank].seen.sum = 5;
}

static void expect(fixture *f, tocsin_guard_cause cause, size_t named, const char *part)
{
    tocsin_guard_finding *finding;
    f->comparison.rows = f->rows;
    assert_int_equal(tocsin_guard_judge_comparison(&f->comparison, &finding, NULL), TOCSIN_OK);
    assert_non_null(finding);
    assert_int_equal(finding->cause, cause);
    assert_int_equal(finding->rank_count, named);
    assert_non_null(strstr(finding->text, part));
    assert_string_equal(finding->tensor, "layer.1");
    assert_int_equal(finding->index[0], 33);
    tocsin_guard_finding_free(finding);
}

static void test_memory(void **state)
{
    (void)state;
    static const uint32_t ranks[] = {8, 9, 10, 11, 12}, before[] = {9};
    tocsin_guard_finding *finding;
    fixture f = equal_rows(TOCSIN_GUARD_MEMORY);
    f.comparison.rows = f.rows;
    assert_int_equal(tocsin_guard_judge_comparison(&f.comparison, &finding, NULL), TOCSIN_OK);
    assert_null(finding);
    differ(&f, 1);
    expect(&f, TOCSIN_GUARD_TRANSIENT, 1, "between two steps on rank 1, first layer.1");
    differ(&f, 4);
    expect(&f, TOCSIN_GUARD_TRANSIENT, 2, "on ranks 1 and 4");
    f.comparison.ranks = ranks;
    f.comparison.named = before;
    f.comparison.named_count = 1;
    expect(&f, TOCSIN_GUARD_PERSISTENT, 2, "on ranks 9 and 12");
    differ(&f, 0);
    expect(&f, TOCSIN_GUARD_SOFTWARE, 0, "the program does it");
    f.comparison.row_count = 4; /* two of four */
    f.comparison.ranks = NULL;
    f.rows[0].differ = 1;
    expect(&f, TOCSIN_GUARD_UNATTRIBUTABLE, 0, "too few ranks");
    f.comparison.row_count = 2; /* one of each: no majority of witnesses */
    f.comparison.ranks = NULL;
    f.rows[0].differ = 0;
    expect(&f, TOCSIN_GUARD_UNATTRIBUTABLE, 0, "too few ranks");
}

static void test_recompute(void **state)
{
    (void)state;
    fixture f = equal_rows(TOCSIN_GUARD_RECOMPUTE);
    differ(&f, 1);
    expect(&f, TOCSIN_GUARD_NONDETERMINISTIC, 0, "may be no fault");
    f.comparison.deterministic = true;
    expect(&f, TOCSIN_GUARD_TRANSIENT, 1, "recomputed activations differ");
}

static void test_refused(void **state)
{
    (void)state;
    static const uint32_t ranks[] = {3, 2, 1, 4, 5};
    tocsin_guard_finding *finding;
    fixture f = equal_rows(TOCSIN_GUARD_SAVED);
    f.comparison.rows = f.rows;
    f.comparison.ranks = ranks;
    assert_int_equal(tocsin_guard_judge_comparison(&f.comparison, &finding, NULL),
                     TOCSIN_E_ARGUMENT);
    f.comparison.row_count = 0;
    assert_int_equal(tocsin_guard_judge_comparison(&f.comparison, &finding, NULL),
                     TOCSIN_E_ARGUMENT);
    f.comparison.row_count = TOCSIN_GUARD_RANKS_MAX + 1;
    assert_int_equal(tocsin_guard_judge_comparison(&f.comparison, &finding, NULL), TOCSIN_E_LIMIT);
    assert_null(finding);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_recompute),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
