/* Boundaries that only one run has, in steps made by hand: the reason that is given for each. */
#include "made_step.h"

#define OF(NAME, ATTRIBUTE, PHASE, CALL)                                                           \
    .name = NAME, .attribute = ATTRIBUTE, .operation = "call", .phase = PHASE, .call = CALL,       \
    .moment = TOCSIN_MOMENT_EXIT, .module = true

static const made_boundary inner = {OF("block.inner", "output", "forward", 2), .a = 5, .b = 5};
static const made_boundary outer = {OF("block", "output", "forward", 1), .a = 6, .b = 6};
static const made_boundary apart = {OF("apart", "output", "forward", 3), .a = 9, .b = 9};

/* The reason for item `at`, which only one run has. */
static const char *reason_of(made_step *step, uint32_t at, bool in_a)
{
    tocsin_paired_step pair = made_pair(step);
    tocsin_parting parting = {.rank = {.rank = -1}};
    tocsin_comparison comparison = {.names = &step->names, .parting = &parting, .step = 2};
    assert_true(tocsin_gap_add(&comparison, &pair, at, in_a));
    assert_true(tocsin_gap_add(&comparison, &pair, at, in_a));
    assert_int_equal(parting.gaps.count, 1); /* alike ones are counted */
    assert_int_equal(parting.gaps.items[0].gap.count, 2);
    assert_int_equal(parting.gaps.items[0].gap.in_a, in_a);
    const char *reason = parting.gaps.items[0].gap.reason;
    tocsin_parting_free(&parting);
    return reason;
}

static made_boundary alone(made_boundary boundary, bool in_a)
{
    boundary.in = in_a ? IN_A : IN_B;
    return boundary;
}

static void test_reasons(void **state)
{
    (void)state;
    for (unsigned in_a = 0; in_a < 2; ++in_a) {
        made_step step = {0};
        made_add(&step, inner);
        uint32_t at = made_add(&step, alone(inner, in_a));
        assert_string_equal(reason_of(&step, at, in_a), "repeated");
        made_boundary again = alone(inner, in_a);
        again.phase = "recompute";
        at = made_add(&step, again);
        assert_string_equal(reason_of(&step, at, in_a), "recompute");
        made_free(&step);
    }
}

static void test_values(void **state)
{
    (void)state;
    for (unsigned in_a = 0; in_a < 2; ++in_a) {
        made_step step = {0};
        made_boundary left = alone(apart, in_a), right = alone(apart, !in_a);
        right.name = "elsewhere";
        made_add(&step, outer);
        uint32_t at = made_add(&step, left);
        made_add(&step, inner);
        made_add(&step, right);
        assert_string_equal(reason_of(&step, at, in_a), "other-name");
        made_boundary view = alone(inner, in_a);
        view.name = "view";
        made_add(&step, inner);
        at = made_add(&step, view);
        assert_string_equal(reason_of(&step, at, in_a), "helper");
        made_free(&step);
    }
}

static void test_places(void **state)
{
    (void)state;
    for (unsigned in_a = 0; in_a < 2; ++in_a) {
        for (unsigned equal = 0; equal < 2; ++equal) {
            made_step step = {0};
            made_boundary whole = outer, other = alone(apart, !in_a);
            whole.b = equal ? 6 : 7;
            uint32_t at = made_add(&step, alone(inner, in_a));
            made_add(&step, whole);
            assert_string_equal(reason_of(&step, at, in_a), equal ? "fused" : "inserted");
            other.a = other.b = 11;
            at = made_add(&step, alone(apart, in_a));
            assert_string_equal(reason_of(&step, at, in_a), "inserted");
            other.name = "elsewhere";
            made_add(&step, other);
            assert_string_equal(reason_of(&step, at, in_a), "only-there");
            made_free(&step);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
