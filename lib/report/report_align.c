/* report_align.c - an alignment's result, printed. */
#include "report/report_align.h"

static size_t count_settings(const tocsin_align_result *result)
{
    size_t count = 0;
    for (size_t c = 0; c < result->condition_count; ++c)
        count += !result->conditions[c].generator;
    return count;
}

tocsin_status tocsin_report_print_settings(const tocsin_align_result *result, const char *a,
                                           const char *b, tocsin_report_format format, FILE *stream,
                                           tocsin_error *error)
{
    tocsin_string out = {0};
    size_t count = count_settings(result);
    if (format == TOCSIN_REPORT_JSON) {
        tocsin_json json = {.out = &out};
        tocsin_json_begin_object(&json);
        tocsin_json_key(&json, "schema");
        tocsin_json_unsigned(&json, 1);
        tocsin_json_key(&json, "same");
        tocsin_json_bool(&json, count == 0);
        tocsin_report_json_conditions(&json, result, false);
        tocsin_json_end_object(&json);
        tocsin_string_append_char(&out, '\n');
    } else {
        tocsin_report_append_visible(&out, a);
        tocsin_string_append_text(&out, " (A) and ");
        tocsin_report_append_visible(&out, b);
        tocsin_string_printf(&out, " (B): %zu setting%s differ%s\n", count, count == 1 ? "" : "s",
                             count == 1 ? "s" : "");
        tocsin_align_result settings = {.conditions = result->conditions, .condition_count = count};
        tocsin_report_text_conditions(&out, &settings);
    }
    return tocsin_report_write_out(&out, stream, error);
}

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
