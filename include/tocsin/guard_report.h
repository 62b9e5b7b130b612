/* tocsin/guard_report.h - what the guard of a job found: the ledgers of its ranks, put together.
 *
 * All ranks write down the findings that they all have; here each stands once. A rank is to be
 * replaced when a persistent fault names it, or transient ones do at several steps; nobody is named
 * for what cannot be attributed. Form of the JSON: docs/guard.md.
 *
 * Threads: an object belongs to one thread at a time.
 */
#ifndef TOCSIN_GUARD_REPORT_H
#define TOCSIN_GUARD_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tocsin/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TOCSIN_GUARD_REPORT_FINDINGS_MAX (1u << 20)
#define TOCSIN_GUARD_REPORT_CULPRITS_MAX 4096

typedef struct tocsin_guard_report tocsin_guard_report;

/* Read every rank-N.jsonl of a folder. What a crash left half written, and lines that are no
 * findings, are counted. Errors: E_NOT_FOUND, E_IO, E_FORMAT and E_VERSION (a file that is no
 * ledger), E_LIMIT, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_guard_report_read(const char *folder,
                                                                    tocsin_guard_report **report,
                                                                    tocsin_error *error);
TOCSIN_API void tocsin_guard_report_free(tocsin_guard_report *report);

TOCSIN_API size_t tocsin_guard_report_ledgers(const tocsin_guard_report *report);
TOCSIN_API size_t tocsin_guard_report_findings(const tocsin_guard_report *report);

/* What a job ended with that a finding stopped at `since` (seconds since 1970) or later:
 * TOCSIN_GUARD_EXIT_NAMED if one of them names ranks, else TOCSIN_GUARD_EXIT_UNNAMED; 0: none did.
 */
TOCSIN_API int tocsin_guard_report_exit(const tocsin_guard_report *report, double since);

/* As text or one JSON object, which ends in "\n" and a 0 and lives until _free. Errors: E_MEMORY,
 * E_LIMIT. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_guard_report_text(tocsin_guard_report *report,
                                                                    const char **text,
                                                                    tocsin_error *error);
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_guard_report_json(tocsin_guard_report *report,
                                                                    const char **json,
                                                                    tocsin_error *error);

#ifdef __cplusplus
}
#endif
#endif
