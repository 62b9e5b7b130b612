/* Rules of alignment: what a file says is what is applied, until the day it says. */
#include "cmocka_test.h"
#include "trace_scratch.h"

#include <tocsin/align_rules.h>

#include "base/base.h"

#define HEADER "{\"format\":\"tocsin-align-rules\",\"version\":1}\n"

static void path_of(const scratch *folder, char path[600])
{
    snprintf(path, 600, "%s/rules.jsonl", folder->directory);
}

static tocsin_status read_text(const scratch *folder, const char *text, tocsin_align_rules *rules,
                               tocsin_error *error)
{
    char path[600];
    path_of(folder, path);
    assert_int_equal(tocsin_file_store(path, text, strlen(text), true, NULL), TOCSIN_OK);
    return tocsin_align_rules_read(rules, path, error);
}

static tocsin_align_rules *new_rules(void)
{
    tocsin_align_rules *rules;
    assert_int_equal(tocsin_align_rules_new("2026-11-29", &rules, NULL), TOCSIN_OK);
    return rules;
}

static void test_saved_is_read(void **state)
{
    (void)state;
    scratch folder = scratch_new();
    char path[600];
    path_of(&folder, path);
    tocsin_align_rules *rules = new_rules(), *again = new_rules();
    tocsin_align_rule rule = {.id = "forward/*/output@call",
                              .because = "another kernel",
                              .by = "",
                              .on = "2026-11-29",
                              .until = "2026-11-29",
                              .a = "1:2:3",
                              .b = "4:5:6"};
    assert_int_equal(tocsin_align_rules_add(rules, &rule, NULL), TOCSIN_OK);
    rule.until = "2026-11-28";
    rule.id = "*";
    assert_int_equal(tocsin_align_rules_add(rules, &rule, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_align_rules_save(rules, path, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_align_rules_read(again, path, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_align_rules_count(again), 2);
    const tocsin_align_rule *first = tocsin_align_rules_get(again, 0);
    assert_string_equal(first->because, "another kernel");
    assert_string_equal(first->by, "");
    assert_string_equal(first->b, "4:5:6");
    assert_false(first->expired); /* the last day counts */
    assert_true(tocsin_align_rules_get(again, 1)->expired);
    assert_int_equal(tocsin_align_rules_find(again, "forward/a.b/output@call"), 0);
    assert_int_equal(tocsin_align_rules_find(again, "forward/a.b/input@call"), SIZE_MAX);
    tocsin_align_rules_free(rules);
    tocsin_align_rules_free(again);
    scratch_free(&folder);
}

static void test_bad_files(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        tocsin_status status;
        const char *says;
    } bad[] = {
        {"", TOCSIN_E_FORMAT, "the file is empty"},
        {"{}\n", TOCSIN_E_FORMAT, "line 1: not a file of rules"},
        {"{\"format\":\"tocsin-align-rules\"}\n", TOCSIN_E_FORMAT, "line 1: there is no"},
        {"{\"format\":\"tocsin-align-rules\",\"version\":2}\n", TOCSIN_E_VERSION, "version 2"},
        {HEADER "\n[]\n", TOCSIN_E_FORMAT, "line 3: a rule has the members"},
        {HEADER "{\"id\":1}\n", TOCSIN_E_FORMAT, "line 2: a member of a rule is not a text"},
        {HEADER "{\"id\":\"x\",\"because\":\" \",\"on\":\"2026-11-29\",\"until\":\"2026-11-30\"}\n",
         TOCSIN_E_FORMAT, "line 2: a rule needs a reason"},
        {HEADER "{\"id\":\"x\",\"because\":\"y\",\"on\":\"2026-11-29\"}\n", TOCSIN_E_FORMAT,
         "line 2: \"until\" is not a date"},
        {HEADER "{\"because\":\"y\",\"on\":\"2026-11-29\",\"until\":\"2026-11-30\"}\n",
         TOCSIN_E_FORMAT, "line 2: a rule needs the id"},
    };
    scratch folder = scratch_new();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
        tocsin_align_rules *rules = new_rules();
        tocsin_error error;
        assert_int_equal(read_text(&folder, bad[i].text, rules, &error), bad[i].status);
        assert_non_null(strstr(error.message, bad[i].says));
        tocsin_align_rules_free(rules);
    }
    tocsin_align_rules *rules;
    assert_int_equal(tocsin_align_rules_new("today", &rules, NULL), TOCSIN_E_ARGUMENT);
    scratch_free(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_saved_is_read),
        cmocka_unit_test(test_bad_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
