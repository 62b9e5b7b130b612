/* report.c - collecting a checker's result and printing it. */
#include "report/report.h"

#include <assert.h>

tocsin_status tocsin_report_collect(const tocsin_checker *checker, const char *run,
                                    tocsin_check_report *report, tocsin_error *error)
{
    assert(checker && run && report);
    *report = (tocsin_check_report){.run = run};
    tocsin_checker_summary(checker, &report->summary);

    const tocsin_check_summary *summary = &report->summary;
    report->finding_count = tocsin_checker_finding_count(checker);
    report->unknown_count = tocsin_checker_unknown_count(checker);
    report->count_count =
        summary->holds + summary->violated + summary->unknown + summary->suppressed;
    report->suppressions = tocsin_checker_suppressions(checker);
    report->findings = tocsin_zalloc(report->finding_count, sizeof *report->findings);
    report->unknowns = tocsin_zalloc(report->unknown_count, sizeof *report->unknowns);
    report->counts = tocsin_zalloc(report->count_count, sizeof *report->counts);
    if (!report->findings || !report->unknowns || !report->counts) {
        tocsin_report_release(report);
        return tocsin_error_memory(error);
    }
    for (size_t i = 0; i < report->finding_count; i++) {
        report->findings[i] = tocsin_checker_finding(checker, i);
        assert(report->findings[i]);
    }
    for (size_t i = 0; i < report->unknown_count; i++) {
        report->unknowns[i] = *tocsin_checker_unknown(checker, i);
    }
    for (size_t i = 0; i < report->count_count; i++) {
        report->counts[i] = tocsin_checker_counts(checker, i);
    }
    return TOCSIN_OK;
}

void tocsin_report_release(tocsin_check_report *report)
{
    assert(report);
    tocsin_free(report->findings);
    tocsin_free(report->unknowns);
    tocsin_free(report->counts);
    *report = (tocsin_check_report){0};
}

tocsin_verdict tocsin_report_verdict(const tocsin_check_report *report)
{
    assert(report);
    if (report->summary.violated > 0) {
        return TOCSIN_VERDICT_VIOLATED;
    }
    bool judged = report->summary.holds > 0 || report->summary.suppressed > 0;
    return judged ? TOCSIN_VERDICT_HOLDS : TOCSIN_VERDICT_UNKNOWN;
}

tocsin_status tocsin_report_write_out(tocsin_string *out, FILE *stream, tocsin_error *error)
{
    assert(stream);
    tocsin_status status = tocsin_string_check(out, error);
    if (status == TOCSIN_OK &&
        (fwrite(out->text, 1, out->bytes, stream) != out->bytes || fflush(stream) != 0)) {
        status = tocsin_error_system(error, "write", "the report");
    }
    tocsin_string_free(out);
    return status;
}

tocsin_status tocsin_report_print(const tocsin_check_report *report, tocsin_report_format format,
                                  bool all, bool colour, FILE *stream, tocsin_error *error)
{
    assert(report);
    tocsin_string out = {0};
    if (format == TOCSIN_REPORT_JSON) {
        tocsin_report_json(&out, report, all);
    } else {
        tocsin_report_text(&out, report, (tocsin_text_style){.all = all, .colour = colour});
    }
    return tocsin_report_write_out(&out, stream, error);
}

tocsin_status tocsin_report_print_finding(const tocsin_finding *finding, bool colour, FILE *stream,
                                          tocsin_error *error)
{
    assert(finding);
    tocsin_string out = {0};
    tocsin_report_text_finding(&out, finding, (tocsin_text_style){.colour = colour});
    return tocsin_report_write_out(&out, stream, error);
}
