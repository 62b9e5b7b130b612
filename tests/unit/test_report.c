/* test_report.c - a check's result as text and as JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "check/check.h"
#include "report/report.h"

static const tocsin_finding unchanged = {
    .code = "TOC002",
    .invariant = "inv-1",
    .relation = "EventContain",
    .sentence = "Every step changes each parameter that has a gradient.",
    .rendered = "head.weight did not change",
    .entity = "head.weight",
    .site = "train.py:31 in train",
    .step = 2,
    .last_step = 9,
    .rank = 1,
    .occurrences = 8,
    .cluster = 1,
    .cause = "update missing",
    .severity = "error",
};
static const tocsin_finding missing = {
    .code = "TOC003",
    .invariant = "inv-2",
    .relation = "APISequence",
    .sentence = "zero_grad comes before each step.",
    .rendered = "zero_grad was not called",
    .entity = "zero_grad",
    .site = "",
    .step = 2,
    .last_step = 2,
    .rank = -1,
    .occurrences = 1,
    .cluster = 1,
    .cause = "order of calls",
    .severity = "warning",
};
static const tocsin_finding hostile = {
    .code = "TOC004",
    .invariant = "inv-3",
    .relation = "APIArg",
    .sentence = "\"quoted\" \x1b[31m",
    .rendered = "a\nb\x1b]0;title\x07 \xff",
    .entity = "e\\",
    .site = "",
    .step = -1,
    .last_step = -1,
    .rank = -1,
    .occurrences = 3,
    .cluster = 2,
    .cause = "c",
    .severity = "warning",
};

static char *print(const tocsin_check_report *report, tocsin_report_format format, bool all,
                   bool colour)
{
    char *printed = NULL;
    size_t bytes = 0;
    tocsin_error error;
    FILE *stream = open_memstream(&printed, &bytes);
    assert_non_null(stream);
    assert_int_equal(tocsin_report_print(report, format, all, colour, stream, &error), TOCSIN_OK);
    assert_int_equal(fclose(stream), 0);
    return printed;
}

static void assert_prints(const tocsin_check_report *report, tocsin_report_format format, bool all,
                          const char *expected)
{
    char *printed = print(report, format, all, false);
    assert_string_equal(printed, expected);
    free(printed);
}

static void test_verdicts(void **state)
{
    (void)state;
    tocsin_check_report report = {.run = "r", .summary = {.holds = 3, .violated = 1}};
    assert_int_equal(tocsin_report_verdict(&report), TOCSIN_VERDICT_VIOLATED);
    report.summary.violated = 0;
    assert_int_equal(tocsin_report_verdict(&report), TOCSIN_VERDICT_HOLDS);
    report.summary = (tocsin_check_summary){.unknown = 5};
    assert_int_equal(tocsin_report_verdict(&report), TOCSIN_VERDICT_UNKNOWN);
}

static void test_healthy_text(void **state)
{
    (void)state;
    tocsin_check_report report = {.run = "r", .summary = {.holds = 12}};
    assert_prints(&report, TOCSIN_REPORT_TEXT, false, "HOLDS: r: 0 violated, 12 hold, 0 unknown\n");
    tocsin_unknown unknown = {.invariant = "inv-1",
                              .sentence = "A is B.",
                              .reason = TOCSIN_UNKNOWN_NO_CALL,
                              .why = "clip_grad was never called"};
    report.summary.unknown = 1;
    report.summary.holds = 1;
    report.unknowns = &unknown;
    report.unknown_count = 1;
    assert_prints(&report, TOCSIN_REPORT_TEXT, false,
                  "HOLDS: r: 0 violated, 1 holds, 1 unknown\n"
                  "\n"
                  "not covered:\n"
                  "  1 invariant never judged:\n"
                  "    1: clip_grad was never called\n");
    assert_prints(&report, TOCSIN_REPORT_TEXT, true,
                  "HOLDS: r: 0 violated, 1 holds, 1 unknown\n"
                  "\n"
                  "not covered:\n"
                  "  1 invariant never judged:\n"
                  "    1: clip_grad was never called\n"
                  "      inv-1  A is B.\n");
}

static void test_nothing_judged_is_not_success(void **state)
{
    (void)state;
    tocsin_check_report report = {.run = "r", .summary = {.unknown = 2, .corrupt_blocks = 1}};
    assert_prints(&report, TOCSIN_REPORT_TEXT, false,
                  "UNKNOWN: r: 0 violated, 0 hold, 2 unknown\n"
                  "\n"
                  "not covered:\n"
                  "  2 invariants never judged:\n"
                  "  1 corrupt block: the events in it are lost, and what follows it is not "
                  "judged\n");
}

/* Groups by size, those of equal size by their words; the tail is summed up. */
static void test_reasons_are_grouped(void **state)
{
    (void)state;
    static const char *const whys[] = {"f", "a", "b", "c", "d", "b", "e", "b", "e", "g"};
    tocsin_unknown unknowns[TOCSIN_COUNT_OF(whys)];
    for (size_t i = 0; i < TOCSIN_COUNT_OF(whys); i++) {
        unknowns[i] = (tocsin_unknown){.invariant = "inv", .sentence = "S.", .why = whys[i]};
    }
    tocsin_check_report report = {.run = "r",
                                  .summary = {.unknown = 10},
                                  .unknowns = unknowns,
                                  .unknown_count = TOCSIN_COUNT_OF(whys)};
    assert_prints(&report, TOCSIN_REPORT_TEXT, false,
                  "UNKNOWN: r: 0 violated, 0 hold, 10 unknown\n"
                  "\n"
                  "not covered:\n"
                  "  10 invariants never judged:\n"
                  "    3: b\n"
                  "    2: e\n"
                  "    1: a\n"
                  "    1: c\n"
                  "    3: 3 other reasons (--all)\n");
}

static void test_findings_of_one_step_are_one_cluster(void **state)
{
    (void)state;
    const tocsin_finding *findings[] = {&unchanged, &missing};
    tocsin_check_report report = {
        .run = "r",
        .summary = {.holds = 1, .violated = 2, .incomplete_processes = 1},
        .findings = findings,
        .finding_count = 2,
        .partial = true,
    };
    assert_prints(&report, TOCSIN_REPORT_TEXT, false,
                  "VIOLATED (partial): r: 2 violated, 1 holds, 0 unknown\n"
                  "\n"
                  "step 2, rank 1: TOC002 head.weight did not change\n"
                  "  expected: Every step changes each parameter that has a gradient.\n"
                  "  at: train.py:31 in train\n"
                  "  invariant: inv-1, violated 8 times, last at step 9\n"
                  "  probably from the same cause:\n"
                  "    TOC003 zero_grad comes before each step.\n"
                  "\n"
                  "not covered:\n"
                  "  what came after checking was stopped\n"
                  "  the end of 1 process: killed, or the file is cut off\n");
    char *printed = print(&report, TOCSIN_REPORT_TEXT, true, false);
    assert_non_null(strstr(printed, "\nstep 2: TOC003 zero_grad was not called\n"
                                    "  expected: zero_grad comes before each step.\n"
                                    "  invariant: inv-2\n"));
    free(printed);
}

/* A later finding of the first cluster is told with it, before the second cluster. */
static void test_clusters_are_told_one_by_one(void **state)
{
    (void)state;
    tocsin_finding other = missing, later = unchanged;
    other.cluster = 2;
    later.step = 5;
    const tocsin_finding *findings[] = {&unchanged, &other, &later};
    tocsin_check_report report = {
        .run = "r", .summary = {.violated = 3}, .findings = findings, .finding_count = 3};
    assert_prints(&report, TOCSIN_REPORT_TEXT, false,
                  "VIOLATED: r: 3 violated, 0 hold, 0 unknown\n"
                  "\n"
                  "step 2, rank 1: TOC002 head.weight did not change\n"
                  "  expected: Every step changes each parameter that has a gradient.\n"
                  "  at: train.py:31 in train\n"
                  "  invariant: inv-1, violated 8 times, last at step 9\n"
                  "  probably from the same cause:\n"
                  "    step 5, rank 1: TOC002 Every step changes each parameter that has a "
                  "gradient.\n"
                  "\n"
                  "step 2: TOC003 zero_grad was not called\n"
                  "  expected: zero_grad comes before each step.\n"
                  "  invariant: inv-2\n");
}

static void test_many_findings_are_counted(void **state)
{
    (void)state;
    const tocsin_finding *findings[12];
    for (size_t i = 0; i < 12; i++) {
        findings[i] = &missing;
    }
    tocsin_check_report report = {
        .run = "r", .summary = {.violated = 12}, .findings = findings, .finding_count = 12};
    char *printed = print(&report, TOCSIN_REPORT_TEXT, false, false);
    assert_non_null(strstr(printed, "    and 7 more (--all)\n"));
    free(printed);
}

static void test_names_cannot_control_the_terminal(void **state)
{
    (void)state;
    const tocsin_finding *findings[] = {&hostile};
    tocsin_check_report report = {
        .run = "r\x1b[2J", .summary = {.violated = 1}, .findings = findings, .finding_count = 1};
    char *printed = print(&report, TOCSIN_REPORT_TEXT, true, false);
    assert_null(strchr(printed, '\x1b'));
    assert_null(strchr(printed, '\x07'));
    assert_non_null(strstr(printed, "step unknown: TOC004 a?b?]0;title?"));
    free(printed);
    printed = print(&report, TOCSIN_REPORT_TEXT, true, true);
    assert_non_null(strstr(printed, "\x1b[1;31mTOC004\x1b[0m"));
    free(printed);
}

static void test_json_has_the_promised_members(void **state)
{
    (void)state;
    const tocsin_finding *findings[] = {&unchanged, &missing, &hostile};
    tocsin_check_report report = {
        .run = "runs/a",
        .summary = {.holds = 4, .violated = 3, .unknown = 2, .events = 100},
        .findings = findings,
        .finding_count = 3,
    };
    tocsin_unknown unknown = {.invariant = "inv-4",
                              .sentence = "Ranks agree.",
                              .reason = TOCSIN_UNKNOWN_ONE_RANK,
                              .why = "one \"rank\"",
                              .seen = 7};
    tocsin_invariant_counts counts[] = {{"inv-1", 9, 8}, {"inv-4", 0, 0}};
    report.unknowns = &unknown;
    report.unknown_count = 1;
    report.counts = counts;
    report.count_count = 2;
    char *counted = print(&report, TOCSIN_REPORT_JSON, true, false);
    assert_non_null(strstr(counted,
                           "\"sentence\":\"Ranks agree.\"}],"
                           "\"invariants\":[{\"id\":\"inv-1\",\"judged\":9,\"violated\":8},"
                           "{\"id\":\"inv-4\",\"judged\":0,\"violated\":0}]}\n"));
    free(counted);
    assert_prints(
        &report, TOCSIN_REPORT_JSON, false,
        "{\"schema\":1,\"verdict\":\"violated\",\"holds\":4,\"violated\":3,\"unknown\":2,"
        "\"suppressed\":0,\"partial\":false,\"run\":\"runs/a\",\"events\":100,\"corrupt_blocks\":0,"
        "\"incomplete_processes\":0,\"findings\":["
        "{\"code\":\"TOC002\",\"invariant\":\"inv-1\",\"step\":2,\"last_step\":9,\"rank\":1,"
        "\"occurrences\":8,\"cluster\":1,\"cause\":\"update "
        "missing\",\"severity\":\"error\",\"relation\":\"EventContain\",\"entity\":\"head.weight\","
        "\"site\":\"train.py:31 in train\","
        "\"sentence\":\"Every step changes each parameter that has a gradient.\","
        "\"rendered\":\"head.weight did not change\"},"
        "{\"code\":\"TOC003\",\"invariant\":\"inv-2\",\"step\":2,\"last_step\":2,\"rank\":null,"
        "\"occurrences\":1,\"cluster\":1,\"cause\":\"order of "
        "calls\",\"severity\":\"warning\",\"relation\":\"APISequence\",\"entity\":\"zero_grad\","
        "\"site\":\"\",\"sentence\":\"zero_grad comes before each step.\","
        "\"rendered\":\"zero_grad was not called\"},"
        "{\"code\":\"TOC004\",\"invariant\":\"inv-3\",\"step\":null,\"last_step\":null,"
        "\"rank\":null,\"occurrences\":3,\"cluster\":2,\"cause\":\"c\",\"severity\":\"warning\","
        "\"relation\":\"APIArg\","
        "\"entity\":\"e\\\\\",\"site\":\"\",\"sentence\":\"\\\"quoted\\\" \\u001b[31m\","
        "\"rendered\":\"a\\nb\\u001b]0;title\\u0007 \xef\xbf\xbd\"}],"
        "\"not_judged\":[{\"invariant\":\"inv-4\",\"reason\":\"one_rank\","
        "\"why\":\"one \\\"rank\\\"\",\"seen\":7,\"sentence\":\"Ranks agree.\"}]}\n");
}

static void test_suppressed_and_expired(void **state)
{
    (void)state;
    tocsin_suppressions *suppressions;
    const tocsin_suppression wanted[] = {
        {.invariant = "inv-1", .code = "", .entity = "head.*", .reason = "tied", .until = ""},
        {.invariant = "", .code = "TOC004", .entity = "", .reason = "a GAN", .until = "2026-12-31"},
        {.invariant = "", .code = "TOC002", .entity = "", .reason = "was", .until = "2026-01-31"},
        {.invariant = "inv-9", .code = "", .entity = "", .reason = "unused", .until = ""}};
    assert_int_equal(tocsin_suppressions_new("2026-11-29", &suppressions, NULL), TOCSIN_OK);
    for (size_t i = 0; i < TOCSIN_COUNT_OF(wanted); i++) {
        assert_int_equal(tocsin_suppressions_add(suppressions, &wanted[i], NULL), TOCSIN_OK);
    }
    assert_true(tocsin_suppressions_match(suppressions, "inv-1", "TOC003", "head.bias"));
    assert_true(tocsin_suppressions_match(suppressions, "inv-2", "TOC004", "f"));
    assert_true(tocsin_suppressions_match(suppressions, "inv-2", "TOC004", "g"));
    tocsin_check_report report = {
        .run = "r", .summary = {.suppressed = 2}, .suppressions = suppressions};
    assert_int_equal(tocsin_report_verdict(&report), TOCSIN_VERDICT_HOLDS);
    assert_prints(&report, TOCSIN_REPORT_TEXT, false,
                  "HOLDS: r: 0 violated, 0 hold, 0 unknown, 2 suppressed\n"
                  "\n"
                  "suppressed:\n"
                  "  inv-1 for head.*, 1 time: tied\n"
                  "  TOC004, 2 times: a GAN (until 2026-12-31)\n"
                  "\n"
                  "no longer suppressed:\n"
                  "  TOC002, until 2026-01-31: was\n");
    char *printed = print(&report, TOCSIN_REPORT_JSON, false, false);
    assert_non_null(strstr(printed, "\"suppressions\":[{\"invariant\":\"inv-1\",\"code\":\"\","
                                    "\"entity\":\"head.*\",\"reason\":\"tied\",\"until\":\"\","
                                    "\"expired\":false,\"occurrences\":1},"));
    assert_non_null(strstr(printed, "\"until\":\"2026-01-31\",\"expired\":true"));
    free(printed);
    tocsin_suppressions_free(suppressions);
}

static void test_errors_are_reported(void **state)
{
    (void)state;
    tocsin_check_report report = {.run = "r", .summary = {.holds = 1}};
    tocsin_error error;
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    assert_int_equal(tocsin_report_print(&report, TOCSIN_REPORT_TEXT, false, false, full, &error),
                     TOCSIN_E_IO);
    assert_string_equal(error.where, "the report");
    fclose(full);

    for (uint64_t nth = 1;; nth++) {
        char *printed = NULL;
        size_t bytes = 0;
        FILE *stream = open_memstream(&printed, &bytes);
        assert_non_null(stream);
        tocsin_fault_arm(TOCSIN_FAULT_MEMORY, nth);
        tocsin_status status =
            tocsin_report_print(&report, TOCSIN_REPORT_JSON, false, false, stream, &error);
        bool fired = tocsin_fault_disarm(TOCSIN_FAULT_MEMORY);
        assert_int_equal(status, fired ? TOCSIN_E_MEMORY : TOCSIN_OK);
        fclose(stream);
        assert_true(fired == (bytes == 0));
        free(printed);
        if (!fired) {
            break;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_healthy_text),
        cmocka_unit_test(test_nothing_judged_is_not_success),
        cmocka_unit_test(test_reasons_are_grouped),
        cmocka_unit_test(test_findings_of_one_step_are_one_cluster),
        cmocka_unit_test(test_clusters_are_told_one_by_one),
        cmocka_unit_test(test_many_findings_are_counted),
        cmocka_unit_test(test_names_cannot_control_the_terminal),
        cmocka_unit_test(test_json_has_the_promised_members),
        cmocka_unit_test(test_suppressed_and_expired),
        cmocka_unit_test(test_errors_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
