/* Names for what has several terms or pieces, and finding of what a rank's value is a part. */
#include <stdio.h>
#include <string.h>
#include <tocsin/verify.h>

#include "cmocka_test.h"
#include "plan/plan.h"
#include "prove/slice_relation.h"

/* ---- pieces within pieces -------------------------------------------------------------------- */

static tocsin_relation_id input(tocsin_universe *universe, const char *name)
{
    static const int64_t shape[2] = {2, 3};
    return tocsin_relation_whole(universe,
                                 tocsin_atom_input(universe, name, strlen(name), shape, 2));
}

static tocsin_relation_id joined(tocsin_universe *universe, tocsin_relation_id a,
                                 tocsin_relation_id b, uint32_t dim)
{
    const tocsin_relation_id both[2] = {a, b};
    const tocsin_relation_id made = tocsin_relation_cat(universe, both, 2, dim);
    if (made == 0)
        fail_msg("%s", tocsin_universe_refusal(universe)->text);
    return made;
}

/* Two rows of zeros below three columns of [x x], which are the end of one x and the beginning of
 * another. */
static tocsin_relation_id nested(tocsin_universe *universe, tocsin_relation_id x, int64_t start)
{
    static const int64_t shape[2] = {2, 6};
    const tocsin_relation_id zeros = tocsin_relation_constant(universe, 0, true, shape, 2);
    const tocsin_relation_id all = joined(universe, joined(universe, x, x, 1), zeros, 0);
    return tocsin_relation_slice(universe, all, 1, (tocsin_affine){.base = start}, 3, 1);
}

static void test_pieces_within_pieces_are_defined(void **state)
{
    (void)state;
    const int64_t size[TOCSIN_SYMBOL_COUNT] = {1, 1};
    tocsin_universe *universe = tocsin_universe_new();
    tocsin_universe_set_logical(universe, true);
    const tocsin_relation_id x = input(universe, "x"), whole = nested(universe, x, 1);
    const tocsin_relation *view = tocsin_relation_get(universe, whole);
    assert_true(view->segmented && tocsin_relation_get(universe, view->segments[0])->segmented);
    const tocsin_relation_id name = tocsin_relation_define(universe, whole, "view", 0);
    assert_true(name != 0);
    assert_int_equal(tocsin_relation_get(universe, name)->count, 1);
    tocsin_universe_set_logical(universe, false);
    tocsin_universe_set_sizes(universe, size);
    assert_int_equal(tocsin_relation_fold(universe, whole, size), name);
    /* a multiple of it is that multiple of the name; another value of the same atoms is none */
    const tocsin_factor_id three = tocsin_factor_rational(universe, 3, 1);
    const tocsin_relation_id triple = tocsin_relation_scale(universe, whole, three);
    assert_int_equal(tocsin_relation_fold(universe, triple, size),
                     tocsin_relation_scale(universe, name, three));
    assert_int_equal(tocsin_relation_fold(universe, nested(universe, x, 2), size), 0);
    assert_int_equal(tocsin_universe_status(universe, NULL), TOCSIN_OK);
    tocsin_universe_free(universe);
}

/* ---- in plans -------------------------------------------------------------------------------- */

static tocsin_plan *read_plan(const char *text)
{
    tocsin_plan *plan = NULL;
    tocsin_error error = {0};
    if (tocsin_plan_read_text(text, strlen(text), "plan", NULL, &plan, &error) != TOCSIN_OK)
        fail_msg("%s: %s", error.where, error.message);
    return plan;
}

#define REPEATED(start, end)                                                                       \
    "segment s\n%xx:float32[2,6] = cat(%x, %x) {dim=1}\n"                                          \
    "%p:float32[4,6] = pad(%xx) {dim=0, before=0, after=2}\n"                                      \
    "%q:float32[4,3] = slice(%p) {dim=1, start=" start ", end=" end "}\n"                          \
    "%v:float32[12] = view(%q) {shape=[12]}\n%e:float32[12] = exp(%v)\n"

#define ROLE(rank, start, end)                                                                     \
    "role tp=" rank "\nin %x:float32[2,3] = x[0 : 2, 0 : 3]\n" REPEATED(                           \
        start, end) "out other y[0 : 12] = %e\nend\n"

static void test_a_part_of_a_repetition_is_viewed(void **state)
{
    static const char *const right =
        "tocsin-plan 1\nmesh tp=2\n" ROLE("0", "1", "4") ROLE("1", "1", "4");
    static const char *const wrong =
        "tocsin-plan 1\nmesh tp=2\n" ROLE("0", "1", "4") ROLE("1", "2", "5");
    (void)state;
    tocsin_plan *logical =
        read_plan("tocsin-plan 1\nmesh one=1\nrole one=0\n"
                  "in %x:float32[2,3] = x\n" REPEATED("1", "4") "out other y = %e\nend\n");
    for (int k = 0; k < 2; k++) {
        tocsin_plan *parallel = read_plan(k == 0 ? right : wrong);
        tocsin_verify_result *result = NULL;
        assert_int_equal(tocsin_verify(logical, parallel, NULL, &result, NULL), TOCSIN_OK);
        assert_int_equal(result->verdict, k == 0 ? TOCSIN_VERDICT_PROVED : TOCSIN_VERDICT_REFUTED);
        tocsin_verify_result_free(result);
        tocsin_plan_free(parallel);
    }
    tocsin_plan_free(logical);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_within_pieces_are_defined),
        cmocka_unit_test(test_a_part_of_a_repetition_is_viewed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
