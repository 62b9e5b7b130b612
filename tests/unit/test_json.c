/* JSON out and in: exact text, any bytes, numbers that read back, strict parsing. */
#include "cmocka_test.h"
#include <base/base.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>

static void assert_quoted(const char *text, size_t bytes, const char *expected)
{
    tocsin_string string = {0};
    tocsin_json json = {.out = &string};
    tocsin_json_string(&json, text, bytes);
    assert_string_equal(tocsin_string_text(&string), expected);
    tocsin_string_free(&string);
}

static void containers_nest_with_commas(void **state)
{
    (void)state;
    tocsin_string string = {0};
    tocsin_json json = {.out = &string};
    tocsin_json_begin_object(&json);
    tocsin_json_key(&json, "a");
    tocsin_json_begin_array(&json);
    tocsin_json_integer(&json, INT64_MIN);
    tocsin_json_unsigned(&json, UINT64_MAX);
    tocsin_json_begin_array(&json);
    tocsin_json_end_array(&json);
    tocsin_json_begin_object(&json);
    tocsin_json_end_object(&json);
    tocsin_json_end_array(&json);
    tocsin_json_key(&json, "b\n");
    tocsin_json_bool(&json, true);
    tocsin_json_key(&json, "c");
    tocsin_json_text(&json, NULL);
    tocsin_json_key(&json, "d");
    tocsin_json_text(&json, "x");
    tocsin_json_key(&json, "e");
    tocsin_json_real(&json, NAN);
    tocsin_json_end_object(&json);
    assert_string_equal(string.text, "{\"a\":[-9223372036854775808,18446744073709551615,[],{}],"
                                     "\"b\\n\":true,\"c\":null,\"d\":\"x\",\"e\":null}");
    tocsin_string_free(&string);
}

static void strings_are_escaped(void **state)
{
    (void)state;
    assert_quoted(NULL, 0, "\"\"");
    assert_quoted("a\"b\\c/d", 7, "\"a\\\"b\\\\c/d\"");
    assert_quoted("\b\t\n\v\f\r", 6, "\"\\b\\t\\n\\u000b\\f\\r\"");
    assert_quoted("\0\x1f\x7f", 3, "\"\\u0000\\u001f\\u007f\"");
    assert_quoted("\xc3\xa9\xe2\x82\xac\xf0\x9f\x94\x94", 9,
                  "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x94\x94\"");
}

#define BAD "\xef\xbf\xbd"
/* Cut, overlong, surrogate, beyond U+10FFFF, stray continuation: one U+FFFD for each bad byte. */
static void bytes_that_are_not_utf8_are_replaced(void **state)
{
    (void)state;
    assert_quoted("a\xff"
                  "b",
                  3, "\"a" BAD "b\"");
    assert_quoted("\xc3", 1, "\"" BAD "\"");
    assert_quoted("\xe2\x82", 2, "\"" BAD BAD "\"");
    assert_quoted("\xc0\x80", 2, "\"" BAD BAD "\"");
    assert_quoted("\xe0\x80\x80", 3, "\"" BAD BAD BAD "\"");
    assert_quoted("\xed\xa0\x80", 3, "\"" BAD BAD BAD "\"");
    assert_quoted("\xf4\x90\x80\x80", 4, "\"" BAD BAD BAD BAD "\"");
    assert_quoted("\x80x", 2, "\"" BAD "x\"");
    assert_quoted("\xf0\x9f\x94\"", 4, "\"" BAD BAD BAD "\\\"\"");
}

/* Whatever bytes go in, what comes out is JSON that another implementation reads. */
static void any_bytes_give_valid_json(void **state)
{
    (void)state;
    uint64_t random = 7;
    for (int round = 0; round < 20000; ++round) {
        char bytes[12];
        for (size_t i = 0; i < sizeof bytes; ++i) {
            random = tocsin_mix64(random + 1);
            /* Mostly leads and continuations, so that sequences form and break. */
            bytes[i] = (char)(random % 4 ? 0x80 | (random >> 8) : 1 + (random >> 8) % 127);
        }
        tocsin_string string = {0};
        tocsin_json json = {.out = &string};
        tocsin_json_string(&json, bytes, sizeof bytes);
        tocsin_json_value *root = NULL;
        assert_int_equal(tocsin_json_parse(string.text, string.bytes, "", &root, NULL), TOCSIN_OK);
        assert_non_null(tocsin_json_get_text(root));
        tocsin_json_free(root);
        tocsin_string_free(&string);
    }
}

static void assert_real(double value, const char *expected)
{
    char text[TOCSIN_REAL_TEXT_BYTES];
    assert_int_equal(tocsin_real_text(value, text), strlen(expected));
    assert_string_equal(text, expected);
}

static void reals_read_back(void **state)
{
    (void)state;
    assert_real(0, "0.0");
    assert_real(-0.0, "-0.0");
    assert_real(1, "1.0");
    assert_real(0.1, "0.1");
    assert_real(0.1 + 0.2, "0.30000000000000004");
    assert_real(1e300, "1e+300");
    assert_real(123456789012345678.0, "1.2345678901234568e+17");
    assert_real(-DBL_MAX, "-1.7976931348623157e+308");
    assert_real(NAN, "nan");
    assert_real(INFINITY, "inf");
    assert_real(-INFINITY, "-inf");
    uint64_t random = 3;
    for (int round = 0; round < 50000; ++round) {
        random = tocsin_mix64(random + 1);
        double value = 0;
        memcpy(&value, &random, sizeof value);
        char text[TOCSIN_REAL_TEXT_BYTES];
        tocsin_real_text(value, text);
        if (isfinite(value))
            assert_true(strtod(text, NULL) == value);
    }
}

static void reals_do_not_follow_the_locale(void **state)
{
    (void)state;
    const char *const commas[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "ps_AF.UTF-8"};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(commas); ++i) {
        if (setlocale(LC_NUMERIC, commas[i]))
            assert_real(1.5, "1.5");
    }
    setlocale(LC_NUMERIC, "C");
}

static void values_are_found(void **state)
{
    (void)state;
    const char text[] = "{\"b\":[1,2.5,\"x\",true,null],\"a\":{\"k\":-3}}";
    tocsin_json_value *root = NULL;
    assert_int_equal(tocsin_json_parse(text, strlen(text), "here", &root, NULL), TOCSIN_OK);
    const tocsin_json_value *list = tocsin_json_get_member(root, "b");
    assert_int_equal(tocsin_json_get_kind(list), TOCSIN_JSON_ARRAY);
    assert_int_equal(tocsin_json_get_count(list), 5);
    assert_int_equal(tocsin_json_get_count(root), 2);
    int64_t integer = 0;
    double real = 0;
    bool boolean = false;
    assert_true(tocsin_json_get_integer(tocsin_json_get_item(list, 0), &integer));
    assert_int_equal(integer, 1);
    assert_true(tocsin_json_get_real(tocsin_json_get_item(list, 0), &real));
    assert_true(real == 1.0);
    assert_true(tocsin_json_get_real(tocsin_json_get_item(list, 1), &real));
    assert_true(real == 2.5);
    assert_false(tocsin_json_get_integer(tocsin_json_get_item(list, 1), &integer));
    assert_string_equal(tocsin_json_get_text(tocsin_json_get_item(list, 2)), "x");
    assert_true(tocsin_json_get_bool(tocsin_json_get_item(list, 3), &boolean));
    assert_true(boolean);
    assert_int_equal(tocsin_json_get_kind(tocsin_json_get_item(list, 4)), TOCSIN_JSON_NULL);
    assert_null(tocsin_json_get_item(list, 5));
    const tocsin_json_value *inner = tocsin_json_get_member(root, "a");
    assert_true(tocsin_json_get_integer(tocsin_json_get_member(inner, "k"), &integer));
    assert_int_equal(integer, -3);
    tocsin_json_free(root);
}

static void members_come_in_file_order(void **state)
{
    (void)state;
    const char text[] = "{\"z\":0,\"a\":1,\"m\":2}";
    tocsin_json_value *root = NULL;
    assert_int_equal(tocsin_json_parse(text, strlen(text), "", &root, NULL), TOCSIN_OK);
    void *cursor = NULL;
    const char *key = NULL;
    const tocsin_json_value *value = NULL;
    for (int64_t i = 0; i < 3; ++i) {
        assert_true(tocsin_json_next_member(root, &cursor, &key, &value));
        assert_int_equal(key[0], "zam"[i]);
        int64_t integer = -1;
        assert_true(tocsin_json_get_integer(value, &integer));
        assert_int_equal(integer, i);
    }
    assert_false(tocsin_json_next_member(root, &cursor, &key, &value));
    tocsin_json_free(root);
}

static void look_ups_accept_what_is_not_there(void **state)
{
    (void)state;
    tocsin_json_value *root = NULL;
    assert_int_equal(tocsin_json_parse("3", 1, "", &root, NULL), TOCSIN_OK);
    const tocsin_json_value *wrong[] = {NULL, root};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(wrong); ++i) {
        void *cursor = NULL;
        const char *key = NULL;
        const tocsin_json_value *value = NULL;
        bool boolean = false;
        assert_int_equal(tocsin_json_get_count(wrong[i]), 0);
        assert_null(tocsin_json_get_member(wrong[i], "x"));
        assert_null(tocsin_json_get_item(wrong[i], 0));
        assert_null(tocsin_json_get_text(wrong[i]));
        assert_false(tocsin_json_get_bool(wrong[i], &boolean));
        assert_false(tocsin_json_next_member(wrong[i], &cursor, &key, &value));
    }
    assert_int_equal(tocsin_json_get_kind(NULL), TOCSIN_JSON_NULL);
    tocsin_json_free(root);
    tocsin_json_free(NULL);
}

static void bad_json_is_refused_with_its_place(void **state)
{
    (void)state;
    const char *const bad[] = {
        "",         "{",           "{\"a\":1,\"a\":2}",    "[1,]", "nan", "1 2",
        "\"\xff\"", "\"\\ud800\"", "99999999999999999999", "'a'"};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(bad); ++i) {
        tocsin_json_value *root = NULL;
        tocsin_error error = {0};
        assert_int_equal(tocsin_json_parse(bad[i], strlen(bad[i]), "f.json", &root, &error),
                         TOCSIN_E_FORMAT);
        assert_null(root);
        assert_string_equal(error.where, "f.json");
        assert_non_null(strstr(error.message, "line 1"));
    }
}

static void a_byte_0_is_refused_wherever_it_stands(void **state)
{
    (void)state;
    static const char text[] = "{\"a\": 7, \"b\": [1.5, \"x\", true]}";
    for (size_t place = 0; place <= sizeof text - 1; ++place) {
        char bad[sizeof text] = {0};
        tocsin_json_value *root = NULL;
        tocsin_error error = {0};
        memcpy(bad, text, place);
        memcpy(bad + place + 1, text + place, sizeof text - 1 - place);
        assert_int_equal(tocsin_json_parse(bad, sizeof bad, "f.json", &root, &error),
                         TOCSIN_E_FORMAT);
        assert_int_equal(error.offset, place);
        assert_null(root);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(containers_nest_with_commas),
        cmocka_unit_test(strings_are_escaped),
        cmocka_unit_test(bytes_that_are_not_utf8_are_replaced),
        cmocka_unit_test(any_bytes_give_valid_json),
        cmocka_unit_test(reals_read_back),
        cmocka_unit_test(reals_do_not_follow_the_locale),
        cmocka_unit_test(values_are_found),
        cmocka_unit_test(members_come_in_file_order),
        cmocka_unit_test(look_ups_accept_what_is_not_there),
        cmocka_unit_test(bad_json_is_refused_with_its_place),
        cmocka_unit_test(a_byte_0_is_refused_wherever_it_stands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
