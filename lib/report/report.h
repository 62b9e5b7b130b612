/* lib/report/report.h - a check's result in words (the header inside the module). */
#ifndef TOCSIN_LIB_REPORT_H
#define TOCSIN_LIB_REPORT_H

#include <tocsin/report.h>

#include "base/base.h"

typedef struct tocsin_text_style {
    bool all;
    bool colour;
} tocsin_text_style;

/* Each appends to `out`; failures stick there. */
void tocsin_report_text(tocsin_string *out, const tocsin_check_report *report,
                        tocsin_text_style style);
void tocsin_report_json(tocsin_string *out, const tocsin_check_report *report, bool counts);
/* What was suppressed, with the reasons, and which suppressions have expired. */
void tocsin_report_text_suppressed(tocsin_string *out, const tocsin_suppressions *suppressions);
/* The invariants that were not judged, by reason, the most frequent one first; `all`: each by id
 * and sentence. */
void tocsin_report_text_unknown(tocsin_string *out, const tocsin_check_report *report, bool all);
void tocsin_report_text_finding(tocsin_string *out, const tocsin_finding *finding,
                                tocsin_text_style style);

/* Appends `text` with control characters as '?': texts come from the traced program. */
void tocsin_report_append_visible(tocsin_string *out, const char *text);
/* Writes what was built, as one piece, and frees it. */
tocsin_status tocsin_report_write_out(tocsin_string *out, FILE *stream, tocsin_error *error);

#endif
