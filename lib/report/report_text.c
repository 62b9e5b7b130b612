/* report_text.c - a check's result for people.
 *
 * Findings come in report order: by step, in a step upstream causes first. Those of a cluster
 * mostly have one cause, seen through several invariants, so the first of a cluster is shown in
 * full and the others in a line each, a few of them.
 */
#include "report/report.h"

#include <assert.h>
#include <inttypes.h>

#define CLUSTER_LINES 4

#define BOLD          "\033[1m"
#define RED           "\033[1;31m"
#define GREEN         "\033[1;32m"
#define PLAIN         "\033[0m"

void tocsin_report_append_visible(tocsin_string *out, const char *text)
{
    for (const char *byte = text; *byte; byte++) {
        bool is_control = (unsigned char)*byte < 0x20 || *byte == 0x7f;
        tocsin_string_append_char(out, is_control ? '?' : *byte);
    }
}

static void append_place(tocsin_string *out, const tocsin_finding *finding)
{
    if (finding->step >= 0) {
        tocsin_string_printf(out, "step %" PRId64, finding->step);
    } else {
        tocsin_string_append_text(out, "step unknown");
    }
    if (finding->rank >= 0) {
        tocsin_string_printf(out, ", rank %" PRId32, finding->rank);
    }
}

static void append_styled(tocsin_string *out, bool colour, const char *style, const char *text)
{
    tocsin_string_append_text(out, colour ? style : "");
    tocsin_report_append_visible(out, text);
    tocsin_string_append_text(out, colour ? PLAIN : "");
}

void tocsin_report_text_finding(tocsin_string *out, const tocsin_finding *finding,
                                tocsin_text_style style)
{
    assert(finding && finding->code && finding->rendered);
    append_place(out, finding);
    tocsin_string_append_text(out, ": ");
    append_styled(out, style.colour, RED, finding->code);
    tocsin_string_append_char(out, ' ');
    tocsin_report_append_visible(out, finding->rendered);
    tocsin_string_append_char(out, '\n');
}

static void append_details(tocsin_string *out, const tocsin_finding *finding)
{
    tocsin_string_append_text(out, "  expected: ");
    tocsin_report_append_visible(out, finding->sentence);
    tocsin_string_append_char(out, '\n');
    if (finding->site && finding->site[0]) {
        tocsin_string_append_text(out, "  at: ");
        tocsin_report_append_visible(out, finding->site);
        tocsin_string_append_char(out, '\n');
    }
    tocsin_string_append_text(out, "  invariant: ");
    tocsin_report_append_visible(out, finding->invariant);
    if (finding->occurrences > 1 && finding->last_step >= 0) {
        tocsin_string_printf(out, ", violated %" PRIu64 " times, last at step %" PRId64,
                             finding->occurrences, finding->last_step);
    } else if (finding->occurrences > 1) {
        tocsin_string_printf(out, ", violated %" PRIu64 " times", finding->occurrences);
    }
    tocsin_string_append_char(out, '\n');
}

static void append_full(tocsin_string *out, const tocsin_finding *finding, tocsin_text_style style)
{
    tocsin_string_append_char(out, '\n');
    tocsin_report_text_finding(out, finding, style);
    append_details(out, finding);
}

static void append_brief(tocsin_string *out, const tocsin_finding *finding, bool later)
{
    tocsin_string_append_text(out, "    ");
    if (later) {
        append_place(out, finding);
        tocsin_string_append_text(out, ": ");
    }
    tocsin_report_append_visible(out, finding->code);
    tocsin_string_append_char(out, ' ');
    tocsin_report_append_visible(out, finding->sentence);
    tocsin_string_append_char(out, '\n');
}

/* The findings from `first` on that belong to its cluster. */
static void append_cluster(tocsin_string *out, const tocsin_check_report *report, size_t first,
                           tocsin_text_style style)
{
    const tocsin_finding *cause = report->findings[first];
    size_t shown = 0;
    size_t left = 0;
    append_full(out, cause, style);
    for (size_t i = first + 1; i < report->finding_count; i++) {
        const tocsin_finding *finding = report->findings[i];
        if (finding->cluster != cause->cluster) {
            continue;
        }
        if (style.all) {
            append_full(out, finding, style);
        } else if (shown < CLUSTER_LINES) {
            tocsin_string_append_text(out, shown == 0 ? "  probably from the same cause:\n" : "");
            append_brief(out, finding, finding->step != cause->step);
            shown++;
        } else {
            left++;
        }
    }
    if (left > 0) {
        tocsin_string_printf(out, "    and %zu more (--all)\n", left);
    }
}

static void append_verdict(tocsin_string *out, const tocsin_check_report *report,
                           tocsin_text_style style)
{
    static const struct {
        const char *word;
        const char *style;
    } verdicts[] = {
        [TOCSIN_VERDICT_HOLDS] = {"HOLDS", GREEN},
        [TOCSIN_VERDICT_VIOLATED] = {"VIOLATED", RED},
        [TOCSIN_VERDICT_UNKNOWN] = {"UNKNOWN", BOLD},
    };
    const tocsin_check_summary *summary = &report->summary;
    tocsin_verdict verdict = tocsin_report_verdict(report);

    append_styled(out, style.colour, verdicts[verdict].style, verdicts[verdict].word);
    tocsin_string_append_text(out, report->partial ? " (partial): " : ": ");
    tocsin_report_append_visible(out, report->run);
    tocsin_string_printf(out, ": %" PRIu64 " violated, %" PRIu64 " hold%s, %" PRIu64 " unknown",
                         summary->violated, summary->holds, summary->holds == 1 ? "s" : "",
                         summary->unknown);
    if (summary->suppressed > 0) {
        tocsin_string_printf(out, ", %" PRIu64 " suppressed", summary->suppressed);
    }
    tocsin_string_append_char(out, '\n');
}

static void append_uncovered(tocsin_string *out, const tocsin_check_report *report, bool all)
{
    const tocsin_check_summary *summary = &report->summary;
    if (!report->partial && summary->unknown == 0 && summary->incomplete_processes == 0 &&
        summary->corrupt_blocks == 0) {
        return;
    }
    tocsin_string_append_text(out, "\nnot covered:\n");
    if (report->partial) {
        tocsin_string_append_text(out, "  what came after checking was stopped\n");
    }
    if (summary->unknown > 0) {
        tocsin_report_text_unknown(out, report, all);
    }
    if (summary->incomplete_processes > 0) {
        tocsin_string_printf(
            out, "  the end of %" PRIu64 " process%s: killed, or the file is cut off\n",
            summary->incomplete_processes, summary->incomplete_processes == 1 ? "" : "es");
    }
    if (summary->corrupt_blocks > 0) {
        tocsin_string_printf(
            out,
            "  %" PRIu64
            " corrupt block%s: the events in it are lost, and what follows it is not judged\n",
            summary->corrupt_blocks, summary->corrupt_blocks == 1 ? "" : "s");
    }
}

void tocsin_report_text(tocsin_string *out, const tocsin_check_report *report,
                        tocsin_text_style style)
{
    assert(out && report);
    uint32_t printed = 0;
    append_verdict(out, report, style);
    for (size_t i = 0; i < report->finding_count; i++) {
        if (report->findings[i]->cluster > printed) { /* numbered in report order */
            append_cluster(out, report, i, style);
            printed = report->findings[i]->cluster;
        }
    }
    if (report->suppressions) {
        tocsin_report_text_suppressed(out, report->suppressions);
    }
    append_uncovered(out, report, style.all);
}
