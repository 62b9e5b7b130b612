/* report_align.h - an alignment's result, for the two forms in which it is printed. */
#ifndef TOCSIN_LIB_REPORT_ALIGN_H
#define TOCSIN_LIB_REPORT_ALIGN_H

#include "report/report.h"

typedef struct tocsin_alignment_view {
    const tocsin_align_result *result;
    const char *a, *b; /* the runs as the user named them */
    bool all;
} tocsin_alignment_view;

/* Each appends to `out`; failures stick there. */
void tocsin_report_text_alignment(tocsin_string *out, const tocsin_alignment_view *view);
void tocsin_report_json_alignment(tocsin_string *out, const tocsin_alignment_view *view);
/* What differs at boundaries that do not repeat (report_align_unstable.c). */
void tocsin_report_text_unstable(tocsin_string *out, const tocsin_alignment_view *view);
void tocsin_report_json_unstable(tocsin_json *json, const tocsin_align_result *result);
/* What was composed from several ranks (report_align_whole.c), and which hold one side of a pivot.
 */
typedef void tocsin_report_write_pivot(tocsin_json *json, const tocsin_align_pivot *pivot);
void tocsin_report_text_whole(tocsin_string *out, const tocsin_alignment_view *view);
void tocsin_report_json_whole(tocsin_json *json, const tocsin_align_result *result,
                              tocsin_report_write_pivot *write_pivot);
void tocsin_report_text_holders(tocsin_string *out, const tocsin_align_side *side);
void tocsin_report_json_holders(tocsin_json *json, const tocsin_align_side *side);
/* The rows of a pivot that differ (report_align_tiles.c). */
void tocsin_report_text_tiles(tocsin_string *out, const tocsin_align_pivot *pivot);
void tocsin_report_json_tiles(tocsin_json *json, const tocsin_align_pivot *pivot);

/* What differs of the conditions; of one kind, as a member. */
void tocsin_report_text_conditions(tocsin_string *out, const tocsin_align_result *result);
void tocsin_report_json_conditions(tocsin_json *json, const tocsin_align_result *result,
                                   bool generators);
/* How far the difference spread, and what rules accept (report_align_cone.c). */
void tocsin_report_text_cone(tocsin_string *out, const tocsin_alignment_view *view);
void tocsin_report_json_cone(tocsin_json *json, const tocsin_align_result *result);
void tocsin_report_text_accepted(tocsin_string *out, const tocsin_align_result *result);
void tocsin_report_json_accepted(tocsin_json *json, const tocsin_align_result *result);

/* What each run computed again (report_align_recompute.c). */
void tocsin_report_text_recompute(tocsin_string *out, const tocsin_alignment_view *view);
void tocsin_report_json_recompute(tocsin_json *json, const tocsin_align_result *result,
                                  tocsin_report_write_pivot *write_pivot);

/* "rank": -1, not distributed, is null. */
void tocsin_report_json_rank(tocsin_json *json, int64_t rank);

#endif
