/* report_suppressed.c - the violations that a file of suppressions has taken out of the findings.
 */
#include "report/report.h"

#include <inttypes.h>

static void append_what(tocsin_string *out, const tocsin_suppression *suppression)
{
    bool by_id = suppression->invariant[0] != '\0';
    tocsin_report_append_visible(out, by_id ? suppression->invariant : suppression->code);
    if (suppression->entity[0] != '\0') {
        tocsin_string_append_text(out, " for ");
        tocsin_report_append_visible(out, suppression->entity);
    }
}

static void append_used(tocsin_string *out, const tocsin_suppression *suppression)
{
    tocsin_string_append_text(out, "  ");
    append_what(out, suppression);
    tocsin_string_printf(out, ", %" PRIu64 " time%s: ", suppression->occurrences,
                         suppression->occurrences == 1 ? "" : "s");
    tocsin_report_append_visible(out, suppression->reason);
    if (suppression->until[0] != '\0') {
        tocsin_string_append_text(out, " (until ");
        tocsin_report_append_visible(out, suppression->until);
        tocsin_string_append_char(out, ')');
    }
    tocsin_string_append_char(out, '\n');
}

static void append_expired(tocsin_string *out, const tocsin_suppression *suppression)
{
    tocsin_string_append_text(out, "  ");
    append_what(out, suppression);
    tocsin_string_append_text(out, ", until ");
    tocsin_report_append_visible(out, suppression->until);
    tocsin_string_append_text(out, ": ");
    tocsin_report_append_visible(out, suppression->reason);
    tocsin_string_append_char(out, '\n');
}

void tocsin_report_text_suppressed(tocsin_string *out, const tocsin_suppressions *suppressions)
{
    size_t count = tocsin_suppressions_count(suppressions);
    bool any_used = false;
    bool any_expired = false;
    for (size_t i = 0; i < count; i++) {
        const tocsin_suppression *suppression = tocsin_suppressions_get(suppressions, i);
        if (suppression->occurrences > 0) {
            tocsin_string_append_text(out, any_used ? "" : "\nsuppressed:\n");
            any_used = true;
            append_used(out, suppression);
        }
    }
    for (size_t i = 0; i < count; i++) {
        const tocsin_suppression *suppression = tocsin_suppressions_get(suppressions, i);
        if (suppression->expired) {
            tocsin_string_append_text(out, any_expired ? "" : "\nno longer suppressed:\n");
            any_expired = true;
            append_expired(out, suppression);
        }
    }
}
