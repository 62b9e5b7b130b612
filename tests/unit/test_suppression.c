/* Suppressions: what a file may say, what it suppresses, and that it is written as it was read. */
#include "trace_scratch.h"
#include <check/check.h>

#define HEADER "{\"format\":\"tocsin-suppressions\",\"version\":1}\n"

static tocsin_suppressions *fresh(void)
{
    tocsin_suppressions *suppressions;
    assert_int_equal(tocsin_suppressions_new("2026-11-29", &suppressions, NULL), TOCSIN_OK);
    return suppressions;
}

static tocsin_status read_text(tocsin_suppressions *suppressions, const char *text,
                               tocsin_error *error)
{
    scratch place = scratch_new();
    char path[SCRATCH_PATH_BYTES];
    snprintf(path, sizeof path, "%s/known", place.directory);
    scratch_write(path, text, strlen(text));
    tocsin_status status = tocsin_suppressions_read(suppressions, path, error);
    scratch_free(&place);
    return status;
}

static void test_what_is_suppressed(void **state)
{
    (void)state;
    tocsin_suppressions *known = fresh();
    assert_int_equal(
        read_text(known,
                  HEADER "{\"invariant\":\"inv-1\",\"reason\":\"r\"}\n"
                         "\n"
                         "{\"code\":\"TOC003\",\"entity\":\"layers.?.bias*\",\"reason\":\"r\"}\n"
                         "{\"invariant\":\"inv-2\",\"reason\":\"r\",\"until\":\"2026-11-28\"}\n"
                         "{\"invariant\":\"inv-3\",\"reason\":\"r\",\"until\":\"2026-11-29\"}\n",
                  NULL),
        TOCSIN_OK);
    assert_int_equal(tocsin_suppressions_count(known), 4);
    assert_true(tocsin_suppressions_match(known, "inv-1", "TOC001", "anything"));
    assert_false(tocsin_suppressions_match(known, "inv-11", "TOC001", "anything"));
    assert_true(tocsin_suppressions_match(known, "inv-8", "TOC003", "layers.7.bias"));
    assert_true(tocsin_suppressions_match(known, "inv-8", "TOC003", "layers.7.bias_hh"));
    assert_false(tocsin_suppressions_match(known, "inv-8", "TOC003", "layers.17.bias"));
    assert_false(tocsin_suppressions_match(known, "inv-8", "TOC003", "x.layers.7.bias"));
    assert_false(tocsin_suppressions_match(known, "inv-8", "TOC004", "layers.7.bias"));
    assert_false(tocsin_suppressions_match(known, "inv-2", "TOC001", "e")); /* ended yesterday */
    assert_true(tocsin_suppressions_get(known, 2)->expired);
    assert_true(tocsin_suppressions_match(known, "inv-3", "TOC001", "e")); /* ends today */
    assert_int_equal(tocsin_suppressions_get(known, 1)->occurrences, 2);
    assert_false(tocsin_suppressions_match(NULL, "inv-1", "TOC001", "e"));
    tocsin_suppressions_free(known);
}

static void test_patterns(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text;
        bool fits;
    } cases[] = {
        {"a", "a", true},       {"a", "b", false},      {"a", "", false},
        {"*", "", true},        {"*", "abc", true},     {"a*c", "abbc", true},
        {"a*c", "abcb", false}, {"*b*", "abc", true},   {"?", "", false},
        {"a?c", "abc", true},   {"*bc", "abcbc", true}, {"**a**", "a", true},
        {"[a]", "a", false},    {"[a]", "[a]", true},   {"a*b*c", "aXbYbZ", false},
    };
    for (size_t i = 0; i < TOCSIN_COUNT_OF(cases); ++i) {
        tocsin_suppressions *known = fresh();
        tocsin_suppression one = {.invariant = "inv-1",
                                  .code = "",
                                  .entity = cases[i].pattern,
                                  .reason = "r",
                                  .until = ""};
        assert_int_equal(tocsin_suppressions_add(known, &one, NULL), TOCSIN_OK);
        if (tocsin_suppressions_match(known, "inv-1", "TOC001", cases[i].text) != cases[i].fits)
            fail_msg("%s and %s", cases[i].pattern, cases[i].text);
        tocsin_suppressions_free(known);
    }
}

static void test_wrong_files(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
        tocsin_status status;
    } cases[] = {
        {"", "the file is empty", TOCSIN_E_FORMAT},
        {"\n" HEADER, "line 1: ", TOCSIN_E_FORMAT},
        {"{\"format\":\"other\",\"version\":1}\n", "line 1: not a file of suppressions",
         TOCSIN_E_FORMAT},
        {"{\"format\":\"tocsin-suppressions\"}\n", "line 1: there is no \"version\"",
         TOCSIN_E_FORMAT},
        {"{\"format\":\"tocsin-suppressions\",\"version\":2}\n", "version 2", TOCSIN_E_VERSION},
        {HEADER "{\"invariant\":\"inv-1\"}\n", "line 2: a suppression needs a reason",
         TOCSIN_E_FORMAT},
        {HEADER "{\"invariant\":\"inv-1\",\"reason\":\"  \"}\n",
         "line 2: a suppression needs a reason", TOCSIN_E_FORMAT},
        {HEADER "{\"reason\":\"r\"}\n", "line 2: a suppression names either", TOCSIN_E_FORMAT},
        {HEADER "{\"invariant\":\"inv-1\",\"code\":\"TOC001\",\"reason\":\"r\"}\n",
         "line 2: a suppression names either", TOCSIN_E_FORMAT},
        {HEADER "{\"code\":\"TOC999\",\"reason\":\"r\"}\n", "line 2: no finding has this code",
         TOCSIN_E_FORMAT},
        {HEADER "{\"code\":\"TOC001\",\"reason\":\"r\",\"until\":\"2026-13-01\"}\n",
         "line 2: \"until\" is not a date", TOCSIN_E_FORMAT},
        {HEADER "{\"code\":\"TOC001\",\"reason\":\"r\",\"until\":\"tomorrow\"}\n",
         "line 2: \"until\" is not a date", TOCSIN_E_FORMAT},
        {HEADER "{\"code\":\"TOC001\",\"reason\":3}\n", "line 2: a member", TOCSIN_E_FORMAT},
        {HEADER "{\"code\":\"TOC001\",\"reason\":\"r\",\"why\":\"\"}\n", "and no others",
         TOCSIN_E_FORMAT},
        {HEADER "[]\n", "line 2", TOCSIN_E_FORMAT},
        {HEADER "{\n", "line 2", TOCSIN_E_FORMAT},
        {HEADER "\r\n \t\n{\r\n", "line 4", TOCSIN_E_FORMAT}, /* blank lines are passed over */
    };
    for (size_t i = 0; i < TOCSIN_COUNT_OF(cases); ++i) {
        tocsin_suppressions *known = fresh();
        tocsin_error error;
        assert_int_equal(read_text(known, cases[i].text, &error), cases[i].status);
        if (strstr(error.message, cases[i].message) == NULL)
            fail_msg("'%s' is not '%s'", error.message, cases[i].message);
        tocsin_suppressions_free(known);
    }
    tocsin_suppressions *none;
    assert_int_equal(tocsin_suppressions_new("29.11.2026", &none, NULL), TOCSIN_E_ARGUMENT);
    assert_null(none);
}

static void test_written_as_read(void **state)
{
    (void)state;
    static const char text[] =
        HEADER "{\"invariant\":\"inv-1\",\"entity\":\"a\\\"b\",\"reason\":\"one\"}\n"
               "{\"code\":\"TOC002\",\"reason\":\"two\",\"until\":\"2030-01-01\"}\n";
    tocsin_suppressions *known = fresh();
    scratch place = scratch_new();
    char path[SCRATCH_PATH_BYTES];
    size_t bytes;
    assert_int_equal(read_text(known, text, NULL), TOCSIN_OK);
    snprintf(path, sizeof path, "%s/copy", place.directory);
    assert_int_equal(tocsin_suppressions_save(known, path, NULL), TOCSIN_OK);
    uint8_t *content = scratch_read(path, &bytes);
    assert_int_equal(bytes, strlen(text));
    assert_memory_equal(content, text, bytes);
    free(content);
    scratch_free(&place);
    tocsin_suppressions_free(known);
}

static void test_memory_that_runs_out(void **state)
{
    (void)state;
    for (uint64_t nth = 1;; ++nth) {
        tocsin_suppressions *known = fresh();
        tocsin_error error;
        tocsin_suppression one = {
            .invariant = "inv-1", .code = "", .entity = "e", .reason = "r", .until = "2030-01-01"};
        tocsin_fault_arm(TOCSIN_FAULT_MEMORY, nth);
        tocsin_status status = tocsin_suppressions_add(known, &one, &error);
        bool fired = tocsin_fault_disarm(TOCSIN_FAULT_MEMORY);
        assert_int_equal(status, fired ? TOCSIN_E_MEMORY : TOCSIN_OK);
        assert_int_equal(tocsin_suppressions_count(known), fired ? 0 : 1);
        tocsin_suppressions_free(known);
        if (!fired)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_suppressed),   cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_wrong_files),          cmocka_unit_test(test_written_as_read),
        cmocka_unit_test(test_memory_that_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
