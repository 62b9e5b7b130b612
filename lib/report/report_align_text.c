/* report_align_text.c - an alignment's result for people. */
#include "report/report_align.h"

#include <inttypes.h>

#define GAP_LINES   12
#define PIVOT_LINES 16
#define STACK_LINES 8

static void append_bits(tocsin_string *out, const char *what, uint32_t bits)
{
    if (bits == 0)
        return;
    tocsin_string_printf(out, ", %s", what);
    for (unsigned bit = 0; bit < 32; ++bit) {
        if (bits >> bit & 1)
            tocsin_string_printf(out, " %u", bit);
    }
}

static void append_element(tocsin_string *out, const tocsin_align_pivot *pivot)
{
    tocsin_string_append_text(out, "    element   [");
    for (uint32_t axis = 0; axis < pivot->ndim; ++axis)
        tocsin_string_printf(out, "%s%" PRId64, axis ? "," : "", pivot->index[axis]);
    tocsin_string_append_char(out, ']');
    if (pivot->word > 0)
        tocsin_string_printf(out, " word %" PRIu32, pivot->word);
    tocsin_string_printf(out, ", its bits as a number %+" PRId64, pivot->change.delta);
    append_bits(out, "set", pivot->change.set);
    append_bits(out, "cleared", pivot->change.cleared);
    tocsin_string_append_text(out, " (and no other)\n");
}

static void append_side(tocsin_string *out, const char *name, const tocsin_align_side *side,
                        bool located)
{
    tocsin_string_printf(out, "    run %s     ", name);
    tocsin_report_append_visible(out, side->value);
    if (side->digest.sum || side->digest.polynomial)
        tocsin_string_printf(out, "  digest %016" PRIx64, side->digest.polynomial);
    if (side->statistics.nan_count || side->statistics.inf_count)
        tocsin_string_printf(out, "  %" PRIu64 " NaN, %" PRIu64 " Inf", side->statistics.nan_count,
                             side->statistics.inf_count);
    if (side->name[0]) {
        tocsin_string_append_text(out, "  as ");
        tocsin_report_append_visible(out, side->name);
    }
    for (uint32_t axis = 0; axis < side->ndim; ++axis)
        tocsin_string_printf(out, "%s%" PRId64 "%s", axis ? "," : "[", side->index[axis],
                             axis + 1 == side->ndim ? "]" : "");
    if (located)
        tocsin_report_text_holders(out, side);
    if (side->site[0]) {
        tocsin_string_append_text(out, "  at ");
        tocsin_report_append_visible(out, side->site);
    }
    tocsin_string_append_char(out, '\n');
}

static void append_where(tocsin_string *out, int64_t step, int64_t rank)
{
    tocsin_string_printf(out, "step %" PRId64, step);
    if (rank >= 0)
        tocsin_string_printf(out, ", rank %" PRId64, rank);
}

static void append_call(tocsin_string *out, const char *label, const char *text)
{
    tocsin_string_printf(out, "    %-9s ", label);
    tocsin_report_append_visible(out, text);
    tocsin_string_append_char(out, '\n');
}

/* Random numbers go into some functions without being seen as an input. */
static bool generator_differs(const tocsin_align_result *result, const tocsin_align_pivot *pivot)
{
    for (size_t c = 0; c < result->condition_count; ++c) {
        const tocsin_align_condition *condition = &result->conditions[c];
        if (condition->generator && condition->rank == pivot->rank &&
            condition->step <= pivot->step && strncmp(condition->name, "torch", 5) == 0)
            return true;
    }
    return false;
}

/* Which boundary it is, whether the difference arose there, and the calls around it. */
static void append_origin(tocsin_string *out, const tocsin_align_result *result,
                          const tocsin_align_pivot *pivot)
{
    append_call(out, "id", pivot->id);
    tocsin_string_printf(out, "    %-9s %s", "cause", tocsin_align_cause_meaning(pivot->cause));
    if (pivot->source[0]) {
        tocsin_string_append_text(out, ": ");
        tocsin_report_append_visible(out, pivot->source);
    }
    if (pivot->cause == TOCSIN_ALIGN_CAUSE_PRODUCED && generator_differs(result, pivot))
        tocsin_string_append_text(out, " (the generator of torch too)");
    tocsin_string_append_char(out, '\n');
    if (pivot->last_equal[0])
        append_call(out, "equal", pivot->last_equal);
    size_t first = pivot->a.site[0] ? 1 : 0; /* the site stands beside the value */
    for (size_t c = first; c < pivot->stack_count && c < first + STACK_LINES; ++c)
        append_call(out, c == first ? "in" : "", pivot->stack[c]);
}

/* "step 3, micro-batch 2, rank 0: layers.0 output #2 at ... (forward): the same shape ...". */
static void append_pivot(tocsin_string *out, const tocsin_align_result *result,
                         const tocsin_align_pivot *pivot, bool full)
{
    tocsin_string_append_text(out, full ? "\n" : "    ");
    append_where(out, pivot->step, pivot->rank);
    if (pivot->micro_batch > 1)
        tocsin_string_printf(out, ", micro-batch %" PRIu32, pivot->micro_batch);
    tocsin_string_append_text(out, ": ");
    tocsin_report_append_visible(out, pivot->name);
    tocsin_string_append_char(out, ' ');
    tocsin_report_append_visible(out, pivot->attribute);
    if (pivot->ordinal > 1)
        tocsin_string_printf(out, " #%" PRIu32, pivot->ordinal);
    tocsin_string_append_text(out, " at ");
    tocsin_report_append_visible(out, pivot->operation);
    if (pivot->phase[0])
        tocsin_string_printf(out, " (%s)", pivot->phase);
    tocsin_string_printf(out, ": %s\n", tocsin_difference_meaning(pivot->difference));
    if (!full)
        return;
    if (pivot->located)
        append_element(out, pivot);
    tocsin_report_text_tiles(out, pivot);
    append_side(out, "A", &pivot->a, pivot->located);
    append_side(out, "B", &pivot->b, pivot->located);
    append_origin(out, result, pivot);
}

static void append_pivots(tocsin_string *out, const tocsin_alignment_view *view)
{
    const tocsin_align_result *result = view->result;
    for (size_t p = 0; p < result->pivot_count; ++p) {
        bool first = p == 0 || result->pivots[p - 1].rank != result->pivots[p].rank;
        if (p == 1 && !view->all)
            tocsin_string_append_text(out, "  differing at the same point or on other ranks:\n");
        if (p == PIVOT_LINES && !view->all) {
            tocsin_string_printf(out, "    and %zu more (--all)\n", result->pivot_count - p);
            break;
        }
        append_pivot(out, result, &result->pivots[p], first || view->all);
    }
    if (result->downstream > 0)
        tocsin_string_printf(out, "\n%zu rank%s parted later, after communication with these.\n",
                             result->downstream, result->downstream == 1 ? "" : "s");
}

static void append_ranks(tocsin_string *out, const tocsin_align_result *result)
{
    for (size_t r = 0; r < result->rank_count; ++r) {
        const tocsin_align_rank *rank = &result->ranks[r];
        if (rank->rank >= 0)
            tocsin_string_printf(out, "  rank %" PRId64 ": ", rank->rank);
        else
            tocsin_string_append_text(out, "  ");
        tocsin_string_printf(out, "%" PRIu64 " of %" PRIu64 " compared boundaries equal",
                             rank->equal, rank->compared);
        if (rank->diverged_step > 0)
            tocsin_string_printf(
                out, ", the first %" PRIu64 " of them in a row; parted in step %" PRId64,
                rank->prefix, rank->diverged_step);
        if (rank->renamed)
            tocsin_string_printf(out, "; %" PRIu64 " under other names", rank->renamed);
        if (rank->only_a || rank->only_b)
            tocsin_string_printf(out, "; %" PRIu64 " in A only, %" PRIu64 " in B only",
                                 rank->only_a, rank->only_b);
        tocsin_string_append_text(out, rank->optimal ? "\n" : "; paired by anchors\n");
    }
}

/* Settings come first: they explain what follows. */
void tocsin_report_text_conditions(tocsin_string *out, const tocsin_align_result *result)
{
    for (size_t c = 0; c < result->condition_count; ++c) {
        const tocsin_align_condition *condition = &result->conditions[c];
        tocsin_string_append_text(out, condition->generator ? "  the generator of " : "  setting ");
        tocsin_report_append_visible(out, condition->name);
        if (condition->generator) {
            tocsin_string_append_text(out, " differs from ");
            append_where(out, condition->step, condition->rank);
            tocsin_string_append_text(out, " on\n");
            continue;
        }
        tocsin_string_append_text(out, ": ");
        tocsin_report_append_visible(out, condition->a[0] ? condition->a : "not set");
        tocsin_string_append_text(out, " in A, ");
        tocsin_report_append_visible(out, condition->b[0] ? condition->b : "not set");
        tocsin_string_printf(out, " in B (%s bits)\n",
                             condition->rating == TOCSIN_RATING_HARMLESS
                                 ? "harmless to"
                                 : tocsin_rating_text(condition->rating));
    }
}

static void append_gaps(tocsin_string *out, const tocsin_alignment_view *view)
{
    const tocsin_align_result *result = view->result;
    if (result->gap_count > 0)
        tocsin_string_append_text(out, "\nin one run only:\n");
    for (size_t g = 0; g < result->gap_count; ++g) {
        const tocsin_align_gap *gap = &result->gaps[g];
        if (g == GAP_LINES && !view->all) {
            tocsin_string_printf(out, "  and %zu more (--all)\n", result->gap_count - g);
            return;
        }
        tocsin_string_printf(out, "  %s: ", gap->in_a ? "A" : "B");
        if (gap->operation[0] == '\0') { /* a whole rank */
            tocsin_string_printf(out, "rank %" PRId64 " (%s)\n", gap->rank, gap->reason);
            continue;
        }
        tocsin_report_append_visible(out, gap->name);
        tocsin_string_append_char(out, ' ');
        tocsin_report_append_visible(out, gap->attribute);
        tocsin_string_append_text(out, " at ");
        tocsin_report_append_visible(out, gap->operation);
        tocsin_string_append_text(out, ", first in ");
        append_where(out, gap->step, gap->rank);
        tocsin_string_printf(out, ", %" PRIu64 " time%s (%s)\n", gap->count,
                             gap->count == 1 ? "" : "s", gap->reason);
    }
}

void tocsin_report_text_alignment(tocsin_string *out, const tocsin_alignment_view *view)
{
    const tocsin_align_result *result = view->result;
    tocsin_string_printf(out, "%s: ", tocsin_align_verdict_name(result->verdict));
    tocsin_report_append_visible(out, view->a);
    if (result->itself) {
        tocsin_string_append_text(out, " with itself\n");
    } else {
        tocsin_string_append_text(out, " (A) and ");
        tocsin_report_append_visible(out, view->b);
        tocsin_string_append_text(out, " (B)\n");
        append_ranks(out, result);
    }
    tocsin_report_text_recompute(out, view);
    tocsin_report_text_whole(out, view);
    tocsin_report_text_conditions(out, result);
    append_pivots(out, view);
    tocsin_report_text_cone(out, view);
    tocsin_report_text_accepted(out, result);
    tocsin_report_text_unstable(out, view);
    append_gaps(out, view);
    tocsin_string_append_text(out, "\nnot covered:\n");
    for (size_t n = 0; n < result->not_covered_count; ++n) {
        tocsin_string_append_text(out, "  - ");
        tocsin_report_append_visible(out, result->not_covered[n]);
        tocsin_string_append_char(out, '\n');
    }
}
