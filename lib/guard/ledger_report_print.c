/* ledger_report_print.c - a report on ledgers as text and as JSON. */
#include <inttypes.h>

#include "guard/ledger_report.h"

static bool has_window(const reported_finding *finding)
{
    return finding->window[0] != 0 || finding->window[1] != 0;
}

/* The steps in which anything may have gone wrong; false: not told. */
static bool suspect_window(const tocsin_guard_report *report, int64_t window[2])
{
    bool any = false;
    for (size_t i = 0; i < report->findings.count; ++i) {
        const reported_finding *finding = &report->findings.items[i];
        if (!has_window(finding))
            continue;
        if (!any || finding->window[0] < window[0])
            window[0] = finding->window[0];
        if (!any || finding->window[1] > window[1])
            window[1] = finding->window[1];
        any = true;
    }
    return any;
}

static size_t unattributed(const tocsin_guard_report *report)
{
    size_t count = 0;
    for (size_t i = 0; i < report->findings.count; ++i)
        count += report->findings.items[i].rank_count == 0;
    return count;
}

static const char *verdict(const tocsin_guard_report *report)
{
    return report->findings.count == 0  ? "clean"
           : report->culprits.count > 0 ? "attributed"
                                        : "cannot attribute";
}

/* ---- text -------------------------------------------------------------------------------------
 */

static void print_place(tocsin_string *text, int64_t rank, const char *host, const char *device)
{
    tocsin_string_printf(text, "rank %" PRId64, rank);
    if (host[0])
        tocsin_string_printf(text, " on %s", host);
    if (device[0])
        tocsin_string_printf(text, " (%s)", device);
}

static void print_finding(tocsin_string *text, const reported_finding *finding)
{
    tocsin_string_printf(text, "step %" PRId64 "  %s  %s  %s\n    %s\n    ", finding->step,
                         finding->check, finding->cause, finding->action, finding->text);
    for (size_t i = 0; i < finding->rank_count; ++i) {
        if (i > 0)
            tocsin_string_append_text(text, ", ");
        print_place(text, finding->ranks[i], finding->hosts[i], finding->devices[i]);
    }
    if (finding->rank_count == 0)
        tocsin_string_append_text(text, "cannot attribute");
    if (has_window(finding))
        tocsin_string_printf(text, "; suspect steps %" PRId64 " to %" PRId64, finding->window[0],
                             finding->window[1]);
    tocsin_string_printf(text, "; in %zu ledger%s\n", finding->reporters.count,
                         finding->reporters.count == 1 ? "" : "s");
}

static void print_culprits(tocsin_string *text, const tocsin_guard_report *report)
{
    for (size_t c = 0; c < report->culprits.count; ++c) {
        const named_rank *culprit = &report->culprits.items[c];
        print_place(text, culprit->rank, culprit->host, culprit->device);
        tocsin_string_printf(text, ": %" PRIu64 " persistent, %" PRIu64 " transient: %s\n",
                             culprit->persistent, culprit->transient,
                             culprit_replace(culprit) ? "replace" : "watch");
    }
}

tocsin_status tocsin_guard_report_text(tocsin_guard_report *report, const char **text,
                                       tocsin_error *error)
{
    tocsin_string *out = &report->text;
    tocsin_string_clear(out);
    for (size_t i = 0; i < report->findings.count; ++i)
        print_finding(out, &report->findings.items[i]);
    print_culprits(out, report);
    tocsin_string_printf(out, "%s: %s, %zu finding%s in %zu ledger%s", report->folder,
                         verdict(report), report->findings.count,
                         report->findings.count == 1 ? "" : "s", report->ledgers,
                         report->ledgers == 1 ? "" : "s");
    if (report->culprits.count > 0 && unattributed(report) > 0)
        tocsin_string_printf(out, ", of which %zu cannot be attributed", unattributed(report));
    if (report->torn > 0)
        tocsin_string_printf(out, "; %zu end%s in a line that was being written", report->torn,
                             report->torn == 1 ? "s" : "");
    if (report->damaged > 0)
        tocsin_string_printf(out, "; %" PRIu64 " damaged line%s", report->damaged,
                             report->damaged == 1 ? "" : "s");
    tocsin_string_append_char(out, '\n');
    *text = tocsin_string_text(out);
    return tocsin_string_check(out, error);
}

/* ---- JSON -------------------------------------------------------------------------------------
 */

static void put_finding(tocsin_json *json, const reported_finding *finding)
{
    tocsin_json_begin_object(json);
    tocsin_json_key(json, "reported_by");
    tocsin_json_begin_array(json);
    for (size_t i = 0; i < finding->reporters.count; ++i)
        tocsin_json_integer(json, finding->reporters.items[i]);
    tocsin_json_end_array(json);
    tocsin_json_key(json, "finding");
    tocsin_json_verbatim(json, finding->json, strlen(finding->json));
    tocsin_json_end_object(json);
}

static void put_culprit(tocsin_json *json, const named_rank *culprit)
{
    tocsin_json_begin_object(json);
    tocsin_json_key(json, "rank");
    tocsin_json_integer(json, culprit->rank);
    tocsin_json_put_text(json, "host", culprit->host);
    tocsin_json_put_text(json, "device", culprit->device);
    tocsin_json_put_unsigned(json, "persistent", culprit->persistent);
    tocsin_json_put_unsigned(json, "transient", culprit->transient);
    tocsin_json_key(json, "replace");
    tocsin_json_bool(json, culprit_replace(culprit));
    tocsin_json_end_object(json);
}

tocsin_status tocsin_guard_report_json(tocsin_guard_report *report, const char **text,
                                       tocsin_error *error)
{
    tocsin_string *out = &report->json;
    tocsin_json json = {.out = out};
    int64_t window[2] = {0, 0};
    tocsin_string_clear(out);
    tocsin_json_begin_object(&json);
    tocsin_json_put_unsigned(&json, "schema", 1);
    tocsin_json_put_text(&json, "folder", report->folder);
    tocsin_json_put_text(&json, "verdict", verdict(report));
    tocsin_json_put_unsigned(&json, "ledgers", report->ledgers);
    tocsin_json_put_unsigned(&json, "torn", report->torn);
    tocsin_json_put_unsigned(&json, "damaged", report->damaged);
    tocsin_json_put_unsigned(&json, "unattributed", unattributed(report));
    tocsin_json_key(&json, "suspect_window");
    if (suspect_window(report, window)) {
        tocsin_json_begin_array(&json);
        tocsin_json_integer(&json, window[0]);
        tocsin_json_integer(&json, window[1]);
        tocsin_json_end_array(&json);
    } else {
        tocsin_json_null(&json);
    }
    tocsin_json_key(&json, "culprits");
    tocsin_json_begin_array(&json);
    for (size_t c = 0; c < report->culprits.count; ++c)
        put_culprit(&json, &report->culprits.items[c]);
    tocsin_json_end_array(&json);
    tocsin_json_key(&json, "findings");
    tocsin_json_begin_array(&json);
    for (size_t i = 0; i < report->findings.count; ++i)
        put_finding(&json, &report->findings.items[i]);
    tocsin_json_end_array(&json);
    tocsin_json_end_object(&json);
    tocsin_string_append_char(out, '\n');
    *text = tocsin_string_text(out);
    return tocsin_string_check(out, error);
}
