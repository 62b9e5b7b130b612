/* Findings: the invariant between ranks and cause, the JSON, texts of many ranks. */
#include "cmocka_test.h"
#include <guard/guard.h>

static tocsin_guard_finding content(void)
{
    return (tocsin_guard_finding){.check = TOCSIN_GUARD_MEMORY,
                                  .cause = TOCSIN_GUARD_UNATTRIBUTABLE,
                                  .moment = {.step = 12, .passed = 9},
                                  .tensor = "fc.\"w\"",
                                  .bucket = -1,
                                  .text = "changed",
                                  .evidence = "{\"a\":1}"};
}

static void assert_json(const tocsin_guard_finding *finding, const char *expected)
{
    char *text;
    size_t bytes;
    assert_int_equal(tocsin_guard_finding_json(finding, &text, &bytes, NULL), TOCSIN_OK);
    assert_string_equal(text, expected);
    assert_int_equal(bytes, strlen(expected));
    tocsin_guard_text_free(text);
}

static void test_json(void **state)
{
    (void)state;
    tocsin_guard_finding *finding, given = content();
    assert_int_equal(tocsin_guard_finding_new(&given, &finding, NULL), TOCSIN_OK);
    assert_json(finding,
                "{\"schema\":1,\"check\":\"memory\",\"step\":12,\"cause\":\"unattributable\","
                "\"ranks\":[],\"covers\":[],\"tensor\":\"fc.\\\"w\\\"\",\"bucket\":null,"
                "\"index\":[],\"replicas\":0,\"suspect_window\":[10,12],\"text\":\"changed\","
                "\"evidence\":{\"a\":1}}");
    tocsin_guard_finding_free(finding);

    const uint32_t ranks[] = {2, 5}, covered[] = {1, 0, 3};
    const size_t ends[] = {1, 3};
    const int64_t index[] = {4, 0};
    given.cause = TOCSIN_GUARD_PERSISTENT;
    given.ranks = ranks;
    given.rank_count = 2;
    given.cover_ranks = covered;
    given.cover_ends = ends;
    given.cover_count = 2;
    given.covers_cut = true;
    given.bucket = 3;
    given.index = index;
    given.index_count = 2;
    given.replicas = 8;
    given.evidence = "{}";
    given.moment.passed = 12; /* in this very step, before */
    assert_int_equal(tocsin_guard_finding_new(&given, &finding, NULL), TOCSIN_OK);
    assert_json(finding, "{\"schema\":1,\"check\":\"memory\",\"step\":12,\"cause\":\"persistent\","
                         "\"ranks\":[2,5],\"covers\":[[1],[0,3]],\"covers_cut\":true,"
                         "\"tensor\":\"fc.\\\"w\\\"\",\"bucket\":3,\"index\":[4,0],\"replicas\":8,"
                         "\"suspect_window\":[12,12],\"text\":\"changed\",\"evidence\":{}}");
    tocsin_guard_finding_free(finding);
    tocsin_guard_finding_free(NULL);
}

static void assert_refused(tocsin_guard_finding given, tocsin_status expected)
{
    tocsin_guard_finding *finding;
    tocsin_error error;
    assert_int_equal(tocsin_guard_finding_new(&given, &finding, &error), expected);
    assert_null(finding);
    assert_int_equal(error.code, expected);
}

static void test_refused(void **state)
{
    (void)state;
    const uint32_t ranks[] = {2, 2};
    for (tocsin_guard_cause cause = TOCSIN_GUARD_TRANSIENT; cause <= TOCSIN_GUARD_UNATTRIBUTABLE;
         ++cause) {
        tocsin_guard_finding given = content();
        bool fault = cause <= TOCSIN_GUARD_PERSISTENT;
        given.cause = cause;
        given.ranks = ranks;
        given.rank_count = fault ? 0 : 1; /* a fault of nobody, somebody without a fault */
        assert_refused(given, TOCSIN_E_ARGUMENT);
    }
    tocsin_guard_finding given = content();
    given.cause = TOCSIN_GUARD_TRANSIENT;
    given.ranks = ranks;
    given.rank_count = 2;
    assert_refused(given, TOCSIN_E_ARGUMENT); /* not ascending */
    given = content();
    given.evidence = "[]";
    assert_refused(given, TOCSIN_E_ARGUMENT);
    given.evidence = "{\n}";
    assert_refused(given, TOCSIN_E_ARGUMENT);
    given.evidence = "{";
    assert_refused(given, TOCSIN_E_FORMAT);
    given = content();
    given.check = (tocsin_guard_check)99;
    assert_refused(given, TOCSIN_E_ARGUMENT);
    given = content();
    given.index_count = TOCSIN_NDIM_MAX + 1;
    assert_refused(given, TOCSIN_E_LIMIT);
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(tocsin_guard_check_name(TOCSIN_GUARD_REPLAY), "replay");
    assert_string_equal(tocsin_guard_cause_name(TOCSIN_GUARD_DATA), "data");
    assert_string_equal(tocsin_guard_cause_name((tocsin_guard_cause)77), "unknown");
    assert_int_equal(tocsin_guard_check_number("peer"), TOCSIN_GUARD_PEER);
    assert_int_equal(tocsin_guard_cause_number("software"), TOCSIN_GUARD_SOFTWARE);
    assert_int_equal(tocsin_guard_cause_number("Software"), -1);
}

static void test_ranks_text(void **state)
{
    (void)state;
    uint32_t ranks[20];
    tocsin_string text = {0};
    for (uint32_t r = 0; r < 20; ++r)
        ranks[r] = r + 1;
    tocsin_draft_ranks_text(&text, ranks, 1);
    assert_string_equal(text.text, "rank 1");
    tocsin_string_clear(&text);
    tocsin_draft_ranks_text(&text, ranks, 3);
    assert_string_equal(text.text, "ranks 1, 2 and 3");
    tocsin_string_clear(&text);
    tocsin_draft_ranks_text(&text, ranks, 20);
    assert_string_equal(text.text, "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 12 more");
    tocsin_string_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_json), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_ranks_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
