/* tocsin/report.h - the result of checking a run, for people and for programs.
 *
 * The verdict comes first, then what was found, in the order in which it happened, then what was
 * suppressed and what was not covered. Control characters in names from the run are shown as '?' in
 * text.
 */
#ifndef TOCSIN_REPORT_H
#define TOCSIN_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <tocsin/align.h>
#include <tocsin/check.h>
#include <tocsin/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tocsin_report_format { TOCSIN_REPORT_TEXT, TOCSIN_REPORT_JSON } tocsin_report_format;

typedef enum tocsin_verdict {
    TOCSIN_VERDICT_HOLDS,    /* nothing violated (or it is suppressed), at least one was judged */
    TOCSIN_VERDICT_VIOLATED, /* at least one invariant violated */
    TOCSIN_VERDICT_UNKNOWN   /* nothing could be judged */
} tocsin_verdict;

typedef struct tocsin_check_report {
    const char *run; /* the run as the user named it; borrowed */
    tocsin_check_summary summary;
    const tocsin_finding **findings; /* in report order; the findings are borrowed */
    size_t finding_count;
    tocsin_unknown *unknowns; /* their texts are borrowed */
    size_t unknown_count;
    tocsin_invariant_counts *counts; /* of every invariant */
    size_t count_count;
    const tocsin_suppressions *suppressions; /* borrowed; NULL: none */
    bool partial;                            /* checking stopped before the end of the run */
} tocsin_check_report;

/* Collect a checker's result; the checker and its set must outlive the report. Errors: E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_report_collect(const tocsin_checker *checker,
                                                                 const char *run,
                                                                 tocsin_check_report *report,
                                                                 tocsin_error *error);
TOCSIN_API void tocsin_report_release(tocsin_check_report *report);

TOCSIN_API tocsin_verdict tocsin_report_verdict(const tocsin_check_report *report);

/* Print to `stream`; `all`: text shows every finding in full instead of the first of each step, and
 * every invariant that was not judged; JSON has the counts of every invariant. `colour`: text may
 * use terminal colours. Errors: E_MEMORY, E_IO. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_report_print(const tocsin_check_report *report,
                                                               tocsin_report_format format,
                                                               bool all, bool colour, FILE *stream,
                                                               tocsin_error *error);

/* One finding, as it is found, on one line (and its call site): "step 2, rank 0: TOC003 ...".
 * Errors: E_MEMORY, E_IO. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_report_print_finding(
    const tocsin_finding *finding, bool colour, FILE *stream, tocsin_error *error);

/* Where two runs part; `a`, `b`: as the user named them. `all`: text shows every pivot and gap.
 * Errors: E_MEMORY, E_IO. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_report_print_alignment(
    const tocsin_align_result *result, const char *a, const char *b, tocsin_report_format format,
    bool all, FILE *stream, tocsin_error *error);

/* The settings that differ, of an alignment that looked for no more (settings_only). Errors:
 * E_MEMORY, E_IO. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status
tocsin_report_print_settings(const tocsin_align_result *result, const char *a, const char *b,
                             tocsin_report_format format, FILE *stream, tocsin_error *error);

/* Two runs side by side as a trace for ui.perfetto.dev (protobuf): processes, threads, slices for
 * steps, calls and boundaries, arrows between paired ones (the first 10,000, and 100,000 that
 * differ), pivots as instants. Time is the row of the pairing, one microsecond each; the runs' own
 * clocks are annotations. Pass tocsin_perfetto_visit with the object as options.visit and
 * options.context to tocsin_align_runs, then finish. */
typedef struct tocsin_perfetto tocsin_perfetto;
/* The file appears, or is replaced, at _finish. Errors: E_MEMORY, E_IO. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_perfetto_open(const char *path, const char *a,
                                                                const char *b,
                                                                tocsin_perfetto **perfetto,
                                                                tocsin_error *error);
TOCSIN_API tocsin_status tocsin_perfetto_visit(void *context, const tocsin_align_pair *pair,
                                               tocsin_error *error);
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_perfetto_finish(tocsin_perfetto *perfetto,
                                                                  const tocsin_align_result *result,
                                                                  tocsin_error *error);
TOCSIN_API void tocsin_perfetto_free(tocsin_perfetto *perfetto);

/* Write what was identical to a file, which is replaced: docs/formats/align-certificate.md. The
 * alignment was made with `certify`; `run_a`, `run_b`: the text of each run.json.
 * Errors: E_FORMAT (run.json), E_MEMORY, E_IO. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status
tocsin_report_save_certificate(const tocsin_align_result *result, const char *run_a,
                               const char *run_b, const char *path, tocsin_error *error);

/* What was run, from run.json's text: command, folder, host, times, exit status, versions.
 * Errors: E_FORMAT, E_MEMORY, E_IO. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_report_print_run(const char *run_json,
                                                                   FILE *stream,
                                                                   tocsin_error *error);

#ifdef __cplusplus
}
#endif
#endif
