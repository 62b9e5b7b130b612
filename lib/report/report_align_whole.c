/* report_align_whole.c - of an alignment's result what was composed from several ranks, and which
 * ranks hold what differs. */
#include "report/report_align.h"

#include <inttypes.h>

#define RANKS_SHOWN 8

static void append_composition(tocsin_string *out, const char *run,
                               const tocsin_align_composition *composed)
{
    uint64_t incomparable = 0;
    for (size_t r = 0; r < TOCSIN_INCOMPARABLE_COUNT; ++r)
        incomparable += composed->incomparable[r];
    if (composed->ranks < 2 && incomparable == 0)
        return;
    tocsin_string_printf(out, "  run %s composed from %zu rank%s: %" PRIu64 " boundaries", run,
                         composed->ranks, composed->ranks == 1 ? "" : "s", composed->boundaries);
    if (incomparable > 0)
        tocsin_string_printf(out, ", %" PRIu64 " incomparable:", incomparable);
    bool first = true;
    for (size_t r = 0; r < TOCSIN_INCOMPARABLE_COUNT; ++r) {
        if (composed->incomparable[r] == 0)
            continue;
        tocsin_string_printf(out, "%s %" PRIu64 " %s (%s)", first ? "" : ",",
                             composed->incomparable[r],
                             tocsin_incomparable_text((tocsin_incomparable)r),
                             tocsin_incomparable_meaning((tocsin_incomparable)r));
        first = false;
    }
    tocsin_string_append_char(out, '\n');
}

static void append_replicas(tocsin_string *out, const tocsin_align_replicas *replicas)
{
    const tocsin_align_pivot *pivot = &replicas->first;
    tocsin_string_printf(
        out, "  replicas differ in run %s: ranks %" PRId64 " and %" PRId64 ", step %" PRId64 ": ",
        replicas->in_a ? "A" : "B", replicas->rank_a, replicas->rank_b, pivot->step);
    tocsin_report_append_visible(out, pivot->name);
    tocsin_string_append_char(out, ' ');
    tocsin_report_append_visible(out, pivot->attribute);
    tocsin_string_append_text(out, " at ");
    tocsin_report_append_visible(out, pivot->operation);
    if (pivot->located) {
        tocsin_string_append_text(out, ", element [");
        for (uint32_t axis = 0; axis < pivot->ndim; ++axis)
            tocsin_string_printf(out, "%s%" PRId64, axis ? "," : "", pivot->index[axis]);
        tocsin_string_append_text(out, "] and no other");
    }
    if (replicas->count > 1)
        tocsin_string_printf(out, "; %" PRIu64 " times", replicas->count);
    tocsin_string_append_char(out, '\n');
}

void tocsin_report_text_whole(tocsin_string *out, const tocsin_alignment_view *view)
{
    append_composition(out, "A", &view->result->composed_a);
    append_composition(out, "B", &view->result->composed_b);
    for (size_t r = 0; r < view->result->replica_count; ++r)
        append_replicas(out, &view->result->replicas[r]);
}

void tocsin_report_text_holders(tocsin_string *out, const tocsin_align_side *side)
{
    if (side->holder_count < 1)
        return;
    tocsin_string_append_text(out, side->holder_count > 1 ? "  on ranks" : "  on rank");
    for (size_t h = 0; h < side->holder_count && h < RANKS_SHOWN; ++h)
        tocsin_string_printf(out, " %" PRId64, side->holders[h]);
    if (side->holder_count > RANKS_SHOWN)
        tocsin_string_append_text(out, " ...");
}

/* ---- JSON ------------------------------------------------------------------------------------ */

void tocsin_report_json_holders(tocsin_json *json, const tocsin_align_side *side)
{
    tocsin_json_key(json, "ranks");
    tocsin_json_begin_array(json);
    for (size_t h = 0; h < side->holder_count; ++h)
        tocsin_json_integer(json, side->holders[h]);
    tocsin_json_end_array(json);
}

static void write_composition(tocsin_json *json, const char *run,
                              const tocsin_align_composition *composed)
{
    if (composed->ranks == 0)
        return;
    tocsin_json_begin_object(json);
    tocsin_json_put_text(json, "run", run);
    tocsin_json_put_unsigned(json, "ranks", composed->ranks);
    tocsin_json_put_unsigned(json, "boundaries", composed->boundaries);
    tocsin_json_key(json, "incomparable");
    tocsin_json_begin_object(json);
    for (size_t r = 0; r < TOCSIN_INCOMPARABLE_COUNT; ++r) {
        if (composed->incomparable[r] == 0)
            continue;
        tocsin_json_key(json, tocsin_incomparable_text((tocsin_incomparable)r));
        tocsin_json_unsigned(json, composed->incomparable[r]);
    }
    tocsin_json_end_object(json);
    tocsin_json_end_object(json);
}

void tocsin_report_json_whole(tocsin_json *json, const tocsin_align_result *result,
                              tocsin_report_write_pivot *write_pivot)
{
    tocsin_json_key(json, "composed");
    tocsin_json_begin_array(json);
    write_composition(json, "a", &result->composed_a);
    write_composition(json, "b", &result->composed_b);
    tocsin_json_end_array(json);
    tocsin_json_key(json, "replicas");
    tocsin_json_begin_array(json);
    for (size_t r = 0; r < result->replica_count; ++r) {
        const tocsin_align_replicas *replicas = &result->replicas[r];
        tocsin_json_begin_object(json);
        tocsin_json_put_text(json, "run", replicas->in_a ? "a" : "b");
        tocsin_json_key(json, "ranks");
        tocsin_json_begin_array(json);
        tocsin_json_integer(json, replicas->rank_a);
        tocsin_json_integer(json, replicas->rank_b);
        tocsin_json_end_array(json);
        tocsin_json_put_unsigned(json, "count", replicas->count);
        tocsin_json_key(json, "first");
        write_pivot(json, &replicas->first);
        tocsin_json_end_object(json);
    }
    tocsin_json_end_array(json);
}
