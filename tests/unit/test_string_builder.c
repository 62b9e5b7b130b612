/* The string builder ends its text, keeps its first failure, and stays under its limit. */
#include "cmocka_test.h"
#include <base/base.h>

static void pieces_join(void **state)
{
    (void)state;
    tocsin_string string = {0};
    assert_string_equal(tocsin_string_text(&string), "");
    tocsin_string_append_text(&string, "a");
    tocsin_string_append(&string, "\0b", 2);
    tocsin_string_append_char(&string, 'c');
    tocsin_string_printf(&string, "%d", 42);
    tocsin_string_append(&string, NULL, 0);
    assert_int_equal(string.bytes, 6);
    assert_memory_equal(tocsin_string_text(&string), "a\0bc42", 7);
    assert_int_equal(tocsin_string_check(&string, NULL), TOCSIN_OK);
    tocsin_string_clear(&string);
    assert_string_equal(tocsin_string_text(&string), "");
    tocsin_string_free(&string);
}

/* 256 is where formatting changes from the stack to the string. */
static void any_length_is_formatted(void **state)
{
    (void)state;
    for (int length = 250; length < 262; ++length) {
        tocsin_string string = {0};
        tocsin_string_append_char(&string, '<');
        tocsin_string_printf(&string, "%*d", length, 7);
        tocsin_string_append_char(&string, '>');
        assert_int_equal(string.bytes, length + 2);
        assert_int_equal(strlen(string.text), length + 2);
        assert_string_equal(string.text + length, "7>");
        tocsin_string_free(&string);
    }
}

static void the_limit_holds_and_the_failure_stays(void **state)
{
    (void)state;
    tocsin_string string = {.limit_bytes = 5};
    tocsin_string_append_text(&string, "12345");
    assert_int_equal(string.status, TOCSIN_OK);
    tocsin_string_append_char(&string, '6');
    assert_int_equal(string.status, TOCSIN_E_LIMIT);
    tocsin_string_printf(&string, "%s", "");
    assert_string_equal(tocsin_string_text(&string), "12345");
    tocsin_error error;
    assert_int_equal(tocsin_string_check(&string, &error), TOCSIN_E_LIMIT);
    assert_string_equal(error.message, "a text is longer than 5 bytes");
    tocsin_string_clear(&string);
    tocsin_string_printf(&string, "%0300d", 1);
    assert_int_equal(string.status, TOCSIN_E_LIMIT);
    tocsin_string_free(&string);
    assert_int_equal(string.limit_bytes, 5);
}

static void test_fits(void **state)
{
    (void)state;
    assert_true(tocsin_text_fits("*", ""));
    assert_true(tocsin_text_fits("forward/*/output@*", "forward/a.b/output@call"));
    assert_true(tocsin_text_fits("*a*b*", "xxaxxbxx"));
    assert_false(tocsin_text_fits("a*b", "a"));
    assert_false(tocsin_text_fits("forward", "forward/"));
    assert_true(tocsin_text_fits("a?c", "abc"));
    assert_false(tocsin_text_fits("?", ""));
}

static void test_dates(void **state)
{
    (void)state;
    assert_true(tocsin_text_is_date("2027-01-31"));
    assert_false(tocsin_text_is_date("2027-13-31"));
    assert_false(tocsin_text_is_date("2027-00-31"));
    assert_false(tocsin_text_is_date("2027-01-32"));
    assert_false(tocsin_text_is_date("2027-1-31"));
    assert_false(tocsin_text_is_date("2027/01/31"));
    assert_false(tocsin_text_is_date("2027-01-31 "));
    assert_false(tocsin_text_is_date(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_join),
        cmocka_unit_test(any_length_is_formatted),
        cmocka_unit_test(the_limit_holds_and_the_failure_stays),
        cmocka_unit_test(test_fits),
        cmocka_unit_test(test_dates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
