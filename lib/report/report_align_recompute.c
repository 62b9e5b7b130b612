/* report_align_recompute.c - of an alignment's result what each run computed again, against the
 * first time.
 */
#include "report/report_align.h"

#include <inttypes.h>

static void append_account(tocsin_string *out, const tocsin_align_result *result, unsigned run)
{
    const tocsin_align_recompute *account = &result->recompute[run];
    uint64_t differing = account->compared - account->equal;
    if (account->compared == 0)
        return;
    tocsin_string_append_text(out, "  recomputed");
    if (!result->itself)
        tocsin_string_printf(out, " in run %s", run == 0 ? "A" : "B");
    tocsin_string_printf(out, ": %" PRIu64 " of %" PRIu64 " boundaries as the first time",
                         account->equal, account->compared);
    tocsin_string_append_text(out, differing > 0 ? "; DIFFERENT:\n" : "\n");
    for (size_t r = 0; differing > 0 && r < result->recomputed_count; ++r) {
        const tocsin_align_pivot *pivot = &result->recomputed[r].differs;
        if (result->recomputed[r].in_a != (run == 0))
            continue;
        tocsin_string_printf(out, "    step %" PRId64, pivot->step);
        if (pivot->micro_batch > 1)
            tocsin_string_printf(out, ", micro-batch %" PRIu32, pivot->micro_batch);
        if (pivot->rank >= 0)
            tocsin_string_printf(out, ", rank %" PRId64, pivot->rank);
        tocsin_string_append_text(out, "  ");
        tocsin_report_append_visible(out, pivot->id);
        if (pivot->a.site[0]) {
            tocsin_string_append_text(out, "  at ");
            tocsin_report_append_visible(out, pivot->a.site);
        }
        tocsin_string_append_char(out, '\n');
    }
}

void tocsin_report_text_recompute(tocsin_string *out, const tocsin_alignment_view *view)
{
    append_account(out, view->result, 0);
    append_account(out, view->result, 1);
}

void tocsin_report_json_recompute(tocsin_json *json, const tocsin_align_result *result,
                                  tocsin_report_write_pivot *write_pivot)
{
    tocsin_json_key(json, "recompute");
    tocsin_json_begin_array(json);
    for (unsigned run = 0; run < (result->itself ? 1 : 2); ++run) {
        tocsin_json_begin_object(json);
        tocsin_json_put_text(json, "run", run == 0 ? "a" : "b");
        tocsin_json_put_unsigned(json, "compared", result->recompute[run].compared);
        tocsin_json_put_unsigned(json, "equal", result->recompute[run].equal);
        tocsin_json_key(json, "differing");
        tocsin_json_begin_array(json);
        for (size_t r = 0; r < result->recomputed_count; ++r) {
            if (result->recomputed[r].in_a == (run == 0))
                write_pivot(json, &result->recomputed[r].differs);
        }
        tocsin_json_end_array(json);
        tocsin_json_end_object(json);
    }
    tocsin_json_end_array(json);
}
