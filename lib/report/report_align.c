/* report_align.c - an alignment's result, printed. */
#include "report/report_align.h"

tocsin_status tocsin_report_print_alignment(const tocsin_align_result *result, const char *a,
                                            const char *b, tocsin_report_format format, bool all,
                                            FILE *stream, tocsin_error *error)
{
    tocsin_string out = {0};
    tocsin_alignment_view view = {.result = result, .a = a, .b = b, .all = all};
    if (format == TOCSIN_REPORT_JSON)
        tocsin_report_json_alignment(&out, &view);
    else
        tocsin_report_text_alignment(&out, &view);
    return tocsin_report_write_out(&out, stream, error);
}
