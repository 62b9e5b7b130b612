/* Names of the event schema: stable words, both ways. */
#include "cmocka_test.h"
#include <tocsin/event.h>

static void test_roles_have_names_both_ways(void **state)
{
    (void)state;
    assert_string_equal(tocsin_role_name(TOCSIN_ROLE_OPTIMIZER_STEP), "optimizer.step");
    assert_string_equal(tocsin_role_name(TOCSIN_ROLE_NONE), "");
    assert_string_equal(tocsin_role_name((tocsin_role)99), "");
    for (int role = TOCSIN_ROLE_FORWARD; role <= TOCSIN_ROLE_USER; ++role)
        assert_int_equal(tocsin_role_from_name(tocsin_role_name((tocsin_role)role)), role);
    assert_int_equal(tocsin_role_from_name("no such role"), TOCSIN_ROLE_NONE);
    assert_int_equal(tocsin_role_from_name(""), TOCSIN_ROLE_NONE);
}

static void test_kinds_have_names(void **state)
{
    (void)state;
    assert_string_equal(tocsin_event_kind_name(TOCSIN_EVENT_ENTER), "enter");
    assert_string_equal(tocsin_event_kind_name(TOCSIN_EVENT_META), "meta");
    assert_string_equal(tocsin_event_kind_name((tocsin_event_kind)6), "");
    assert_string_equal(tocsin_value_kind_name(TOCSIN_VALUE_NONE), "none");
    assert_string_equal(tocsin_value_kind_name(TOCSIN_VALUE_BIG), "big");
    assert_string_equal(tocsin_value_kind_name((tocsin_value_kind)10), "");
    assert_string_equal(tocsin_variable_kind_name(TOCSIN_VARIABLE_BUFFER), "buffer");
    assert_string_equal(tocsin_variable_kind_name(TOCSIN_VARIABLE_RNG), "rng");
    assert_string_equal(tocsin_variable_kind_name(TOCSIN_VARIABLE_ATTRIBUTE), "attribute");
    assert_string_equal(tocsin_variable_kind_name((tocsin_variable_kind)9), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roles_have_names_both_ways),
        cmocka_unit_test(test_kinds_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
