/* report_align_unstable.c - of an alignment's result the differences that repeats of one run have,
 * too. */
#include "report/report_align.h"

#include <inttypes.h>

#define LINES 8

static void append_one(tocsin_string *out, const tocsin_align_unstable *unstable)
{
    const tocsin_unstable_boundary *boundary = &unstable->boundary;
    tocsin_string_printf(out, "  step %" PRId64, boundary->step);
    if (boundary->rank >= 0)
        tocsin_string_printf(out, ", rank %" PRId64, boundary->rank);
    tocsin_string_append_text(out, ": ");
    tocsin_report_append_visible(out, boundary->name);
    tocsin_string_append_char(out, ' ');
    tocsin_report_append_visible(out, boundary->attribute);
    tocsin_string_append_text(out, " at ");
    tocsin_report_append_visible(out, boundary->operation);
    if (boundary->phase[0])
        tocsin_string_printf(out, " (%s)", boundary->phase);
    tocsin_string_printf(out, ": unstable boundary (differs in %u of %u repeats)",
                         boundary->differs, unstable->repeats);
    if (unstable->count > 1)
        tocsin_string_printf(out, ", %" PRIu64 " times", unstable->count);
    tocsin_string_append_char(out, '\n');
}

void tocsin_report_text_unstable(tocsin_string *out, const tocsin_alignment_view *view)
{
    const tocsin_align_result *result = view->result;
    if (result->unstable_count > 0)
        tocsin_string_append_text(
            out, "\ndiffering where repeats of one run do, which proves nothing:\n");
    for (size_t u = 0; u < result->unstable_count; ++u) {
        if (u == LINES && !view->all) {
            tocsin_string_printf(out, "  and %zu more (--all)\n", result->unstable_count - u);
            return;
        }
        append_one(out, &result->unstable[u]);
    }
}

void tocsin_report_json_unstable(tocsin_json *json, const tocsin_align_result *result)
{
    tocsin_json_key(json, "unstable");
    tocsin_json_begin_array(json);
    for (size_t u = 0; u < result->unstable_count; ++u) {
        const tocsin_unstable_boundary *boundary = &result->unstable[u].boundary;
        const struct {
            const char *key, *text;
        } texts[] = {{"fqn", boundary->name},
                     {"role", boundary->attribute},
                     {"op", boundary->operation},
                     {"phase", boundary->phase}};
        tocsin_json_begin_object(json);
        for (size_t t = 0; t < TOCSIN_COUNT_OF(texts); ++t) {
            tocsin_json_key(json, texts[t].key);
            tocsin_json_text(json, texts[t].text);
        }
        tocsin_json_key(json, "step");
        tocsin_json_integer(json, boundary->step);
        tocsin_json_key(json, "rank");
        if (boundary->rank < 0)
            tocsin_json_null(json);
        else
            tocsin_json_integer(json, boundary->rank);
        tocsin_json_put_unsigned(json, "differs", boundary->differs);
        tocsin_json_put_unsigned(json, "repeats", result->unstable[u].repeats);
        tocsin_json_put_unsigned(json, "count", result->unstable[u].count);
        tocsin_json_end_object(json);
    }
    tocsin_json_end_array(json);
}
