/* The report on ledgers: a finding of all ranks stands once, nobody is named by what cannot be
 * attributed, and only a persistent or repeated fault is a reason to replace a rank. */
#include "trace_scratch.h"
#include <base/base.h>
#include <tocsin/guard.h>
#include <tocsin/guard_report.h>

#define HEADER "{\"format\":\"tocsin-guard-ledger\",\"version\":1}\n"
#define FINDING(check, step, cause, ranks, hosts)                                                  \
    "{\"schema\":1,\"check\":\"" check "\",\"step\":" step ",\"time\":1.5,\"cause\":\"" cause      \
    "\",\"ranks\":[" ranks "],\"hosts\":[" hosts "],\"devices\":[\"cuda:3\"],\"tensor\":\"w\","    \
    "\"suspect_window\":[" step "," step "],\"action\":\"stop\",\"text\":\"it differs\"}\n"

static scratch place;
static char path[SCRATCH_PATH_BYTES];

static int enter(void **state)
{
    (void)state;
    place = scratch_new();
    return 0;
}

static int leave(void **state)
{
    (void)state;
    scratch_free(&place);
    return 0;
}

static void write_ledger(const char *name, const char *text)
{
    snprintf(path, sizeof path, "%s/%s", place.directory, name);
    scratch_write(path, text, strlen(text));
}

static tocsin_guard_report *read_report(void)
{
    tocsin_guard_report *report;
    assert_int_equal(tocsin_guard_report_read(place.directory, &report, NULL), TOCSIN_OK);
    return report;
}

static bool json_has(tocsin_guard_report *report, const char *part)
{
    const char *json;
    tocsin_json_value *root;
    assert_int_equal(tocsin_guard_report_json(report, &json, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_json_parse(json, strlen(json), "json", &root, NULL), TOCSIN_OK);
    tocsin_json_free(root);
    return strstr(json, part) != NULL;
}

static bool text_has(tocsin_guard_report *report, const char *part)
{
    const char *text;
    assert_int_equal(tocsin_guard_report_text(report, &text, NULL), TOCSIN_OK);
    return strstr(text, part) != NULL;
}

static void test_merging(void **state)
{
    (void)state;
    write_ledger("rank-0.jsonl", HEADER FINDING("weights", "7", "transient", "1", "\"n1\"")
                                     FINDING("replay", "5", "unattributable", "", ""));
    write_ledger("rank-10.jsonl", HEADER FINDING("weights", "7", "transient", "1", "\"n1\"")
                                      FINDING("weights", "7", "transient", "1", "\"n1\""));
    write_ledger("rank-2.jsonl", HEADER FINDING("replay", "5", "unattributable", "", ""));
    write_ledger("rank-x.jsonl", "not a ledger");
    tocsin_guard_report *report = read_report();
    assert_int_equal(tocsin_guard_report_ledgers(report), 3);
    assert_int_equal(tocsin_guard_report_findings(report), 2);
    assert_true(json_has(report, "\"verdict\":\"attributed\""));
    assert_true(json_has(report, "{\"reported_by\":[0,2],\"finding\":{\"schema\":1,"));
    assert_true(json_has(report, "{\"reported_by\":[0,10],\"finding\":"));
    assert_true(json_has(report, "\"unattributed\":1,\"suspect_window\":[5,7]"));
    assert_true(json_has(report, "\"culprits\":[{\"rank\":1,\"host\":\"n1\",\"device\":\"cuda:3\","
                                 "\"persistent\":0,\"transient\":1,\"replace\":false}]"));
    assert_true(text_has(report, "cannot attribute; suspect steps 5 to 5; in 2 ledgers\nstep 7"));
    assert_true(text_has(report, "rank 1 on n1 (cuda:3): 0 persistent, 1 transient: watch\n"));
    tocsin_guard_report_free(report);
}

/* Two transients at one step are one event; at two steps on one host, a reason to replace. */
static void test_replacing(void **state)
{
    (void)state;
    write_ledger("rank-0.jsonl", HEADER FINDING("weights", "7", "transient", "1", "\"n1\"")
                                     FINDING("gradient", "7", "transient", "1", "\"n1\"")
                                         FINDING("weights", "9", "transient", "1", "\"n2\""));
    tocsin_guard_report *report = read_report();
    assert_false(json_has(report, "\"replace\":true"));
    assert_true(json_has(report, "\"host\":\"n2\""));
    tocsin_guard_report_free(report);
    write_ledger("rank-0.jsonl", HEADER FINDING("weights", "7", "transient", "1", "\"n1\"")
                                     FINDING("weights", "8", "transient", "1", "\"n1\""));
    report = read_report();
    assert_true(json_has(report, "\"transient\":2,\"replace\":true"));
    tocsin_guard_report_free(report);
    write_ledger("rank-0.jsonl", HEADER FINDING("replay", "8", "persistent", "1", "\"n1\""));
    report = read_report();
    assert_true(json_has(report, "\"persistent\":1,\"transient\":0,\"replace\":true"));
    tocsin_guard_report_free(report);
}

static void test_exit(void **state)
{
    (void)state;
    tocsin_guard_report *report;
    write_ledger("rank-0.jsonl", HEADER FINDING("peer", "7", "unattributable", "", ""));
    report = read_report();
    assert_int_equal(tocsin_guard_report_exit(report, 1.5), TOCSIN_GUARD_EXIT_UNNAMED);
    assert_int_equal(tocsin_guard_report_exit(report, 1.75), 0);
    tocsin_guard_report_free(report);
    write_ledger("rank-1.jsonl", HEADER FINDING("weights", "7", "transient", "1", "\"a\""));
    report = read_report();
    assert_int_equal(tocsin_guard_report_exit(report, 1.0), TOCSIN_GUARD_EXIT_NAMED);
    assert_int_equal(tocsin_guard_report_exit(report, 2.0), 0);
    tocsin_guard_report_free(report);
}

static void test_damage(void **state)
{
    (void)state;
    tocsin_guard_report *report = read_report();
    assert_true(json_has(report, "\"verdict\":\"clean\",\"ledgers\":0"));
    tocsin_guard_report_free(report);
    write_ledger("rank-0.jsonl",
                 HEADER FINDING("weights", "7", "unattributable", "1", "\"n1\"")
                     FINDING("nothing", "7", "transient", "1", "\"n1\"") "{\"check\":\n" FINDING(
                         "weights", "7", "transient", "", "") "{\"check\":\"rep");
    report = read_report();
    assert_int_equal(tocsin_guard_report_findings(report), 0);
    assert_true(json_has(report, "\"torn\":1,\"damaged\":4,"));
    assert_true(json_has(report, "\"suspect_window\":null,\"culprits\":[]"));
    assert_true(text_has(report, "clean, 0 findings in 1 ledger; 1 ends in a line that was being "
                                 "written; 4 damaged lines\n"));
    tocsin_guard_report_free(report);
    tocsin_error error;
    write_ledger("rank-1.jsonl", "{}\n");
    assert_int_equal(tocsin_guard_report_read(place.directory, &report, &error), TOCSIN_E_FORMAT);
    assert_null(report);
    assert_int_equal(tocsin_guard_report_read("/nowhere", &report, &error), TOCSIN_E_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_merging, enter, leave),
        cmocka_unit_test_setup_teardown(test_replacing, enter, leave),
        cmocka_unit_test_setup_teardown(test_damage, enter, leave),
        cmocka_unit_test_setup_teardown(test_exit, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
