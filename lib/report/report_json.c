/* report_json.c - a check's result as one JSON object on one line, schema 1.
 *
 * Members are only ever added within a schema. Unknown steps and ranks are null.
 */
#include "report/report.h"

#include <assert.h>

/* Negative means unknown. */
static void write_number(tocsin_json *json, const char *key, int64_t number)
{
    tocsin_json_key(json, key);
    if (number < 0) {
        tocsin_json_null(json);
    } else {
        tocsin_json_integer(json, number);
    }
}

static void write_finding(tocsin_json *json, const tocsin_finding *finding)
{
    assert(finding && finding->code && finding->rendered);
    tocsin_json_begin_object(json);
    tocsin_json_put_text(json, "code", finding->code);
    tocsin_json_put_text(json, "invariant", finding->invariant);
    write_number(json, "step", finding->step);
    write_number(json, "last_step", finding->last_step);
    write_number(json, "rank", finding->rank);
    tocsin_json_put_unsigned(json, "occurrences", finding->occurrences);
    tocsin_json_put_unsigned(json, "cluster", finding->cluster);
    tocsin_json_put_text(json, "cause", finding->cause);
    tocsin_json_put_text(json, "severity", finding->severity);
    tocsin_json_put_text(json, "relation", finding->relation);
    tocsin_json_put_text(json, "entity", finding->entity);
    tocsin_json_put_text(json, "site", finding->site);
    tocsin_json_put_text(json, "sentence", finding->sentence);
    tocsin_json_put_text(json, "rendered", finding->rendered);
    tocsin_json_end_object(json);
}

static void write_unknown(tocsin_json *json, const tocsin_unknown *unknown)
{
    tocsin_json_begin_object(json);
    tocsin_json_put_text(json, "invariant", unknown->invariant);
    tocsin_json_put_text(json, "reason", tocsin_unknown_reason_name(unknown->reason));
    tocsin_json_put_text(json, "why", unknown->why);
    tocsin_json_put_unsigned(json, "seen", unknown->seen);
    tocsin_json_put_text(json, "sentence", unknown->sentence);
    tocsin_json_end_object(json);
}

static void write_suppression(tocsin_json *json, const tocsin_suppression *suppression)
{
    tocsin_json_begin_object(json);
    tocsin_json_put_text(json, "invariant", suppression->invariant);
    tocsin_json_put_text(json, "code", suppression->code);
    tocsin_json_put_text(json, "entity", suppression->entity);
    tocsin_json_put_text(json, "reason", suppression->reason);
    tocsin_json_put_text(json, "until", suppression->until);
    tocsin_json_key(json, "expired");
    tocsin_json_bool(json, suppression->expired);
    tocsin_json_put_unsigned(json, "occurrences", suppression->occurrences);
    tocsin_json_end_object(json);
}

static void write_suppressions(tocsin_json *json, const tocsin_suppressions *suppressions)
{
    tocsin_json_key(json, "suppressions");
    tocsin_json_begin_array(json);
    for (size_t i = 0; i < tocsin_suppressions_count(suppressions); i++) {
        write_suppression(json, tocsin_suppressions_get(suppressions, i));
    }
    tocsin_json_end_array(json);
}

static void write_counts(tocsin_json *json, const tocsin_invariant_counts *counts)
{
    tocsin_json_begin_object(json);
    tocsin_json_put_text(json, "id", counts->invariant);
    tocsin_json_put_unsigned(json, "judged", counts->judged);
    tocsin_json_put_unsigned(json, "violated", counts->violated);
    tocsin_json_end_object(json);
}

void tocsin_report_json(tocsin_string *out, const tocsin_check_report *report, bool counts)
{
    static const char *const verdicts[] = {"holds", "violated", "unknown"};
    const tocsin_check_summary *summary = &report->summary;
    tocsin_json json = {.out = out};

    tocsin_json_begin_object(&json);
    tocsin_json_put_unsigned(&json, "schema", 1);
    tocsin_json_put_text(&json, "verdict", verdicts[tocsin_report_verdict(report)]);
    tocsin_json_put_unsigned(&json, "holds", summary->holds);
    tocsin_json_put_unsigned(&json, "violated", summary->violated);
    tocsin_json_put_unsigned(&json, "unknown", summary->unknown);
    tocsin_json_put_unsigned(&json, "suppressed", summary->suppressed);
    tocsin_json_key(&json, "partial");
    tocsin_json_bool(&json, report->partial);
    tocsin_json_put_text(&json, "run", report->run);
    tocsin_json_put_unsigned(&json, "events", summary->events);
    tocsin_json_put_unsigned(&json, "corrupt_blocks", summary->corrupt_blocks);
    tocsin_json_put_unsigned(&json, "incomplete_processes", summary->incomplete_processes);
    tocsin_json_key(&json, "findings");
    tocsin_json_begin_array(&json);
    for (size_t i = 0; i < report->finding_count; i++) {
        write_finding(&json, report->findings[i]);
    }
    tocsin_json_end_array(&json);
    tocsin_json_key(&json, "not_judged");
    tocsin_json_begin_array(&json);
    for (size_t i = 0; i < report->unknown_count; i++) {
        write_unknown(&json, &report->unknowns[i]);
    }
    tocsin_json_end_array(&json);
    if (report->suppressions) {
        write_suppressions(&json, report->suppressions);
    }
    if (counts) {
        tocsin_json_key(&json, "invariants");
        tocsin_json_begin_array(&json);
        for (size_t i = 0; i < report->count_count; i++) {
            write_counts(&json, &report->counts[i]);
        }
        tocsin_json_end_array(&json);
    }
    tocsin_json_end_object(&json);
    tocsin_string_append_char(out, '\n');
}
