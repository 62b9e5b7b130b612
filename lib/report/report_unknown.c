/* report_unknown.c - the invariants that were not judged, grouped by the reason, in words. */
#include "report/report.h"

#include <inttypes.h>
#include <stdlib.h>

#define REASONS_SHOWN 4

/* Unknowns first .. first + count - 1 of the sorted ones have the same reason. */
typedef struct reason_group {
    size_t first;
    size_t count;
} reason_group;

static int compare_unknowns(const void *a, const void *b)
{
    const tocsin_unknown *const *x = a;
    const tocsin_unknown *const *y = b;
    int order = strcmp((*x)->why, (*y)->why);
    return order != 0 ? order : strcmp((*x)->invariant, (*y)->invariant);
}

/* The largest first; groups of equal size stay in the order of their words. */
static int compare_groups(const void *a, const void *b)
{
    const reason_group *x = a;
    const reason_group *y = b;
    if (x->count != y->count) {
        return x->count > y->count ? -1 : 1;
    }
    return x->first < y->first ? -1 : 1;
}

static size_t make_groups(const tocsin_unknown **sorted, size_t count, reason_group *groups)
{
    size_t made = 0;
    qsort(sorted, count, sizeof(tocsin_unknown *), compare_unknowns);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || strcmp(sorted[i]->why, sorted[i - 1]->why) != 0) {
            groups[made++] = (reason_group){.first = i};
        }
        groups[made - 1].count++;
    }
    qsort(groups, made, sizeof *groups, compare_groups);
    return made;
}

static void append_group(tocsin_string *out, const tocsin_unknown *const *group, size_t count,
                         bool all)
{
    tocsin_string_printf(out, "    %zu: ", count);
    tocsin_report_append_visible(out, group[0]->why);
    tocsin_string_append_char(out, '\n');
    for (size_t i = 0; all && i < count; i++) {
        tocsin_string_append_text(out, "      ");
        tocsin_report_append_visible(out, group[i]->invariant);
        tocsin_string_append_text(out, "  ");
        tocsin_report_append_visible(out, group[i]->sentence);
        tocsin_string_append_char(out, '\n');
    }
}

static void append_groups(tocsin_string *out, const tocsin_unknown *const *sorted,
                          const reason_group *groups, size_t count, bool all)
{
    size_t shown = all || count <= REASONS_SHOWN + 1 ? count : REASONS_SHOWN;
    size_t rest = 0;
    for (size_t i = 0; i < shown; i++) {
        append_group(out, sorted + groups[i].first, groups[i].count, all);
    }
    for (size_t i = shown; i < count; i++) {
        rest += groups[i].count;
    }
    if (rest > 0) {
        tocsin_string_printf(out, "    %zu: %zu other reasons (--all)\n", rest, count - shown);
    }
}

void tocsin_report_text_unknown(tocsin_string *out, const tocsin_check_report *report, bool all)
{
    uint64_t unknown = report->summary.unknown;
    size_t count = report->unknown_count;
    tocsin_string_printf(out, "  %" PRIu64 " invariant%s never judged:\n", unknown,
                         unknown == 1 ? "" : "s");
    const tocsin_unknown **sorted = tocsin_zalloc(count, sizeof *sorted);
    reason_group *groups = tocsin_zalloc(count, sizeof *groups);
    if (!sorted || !groups) {
        out->status = TOCSIN_E_MEMORY;
    } else {
        for (size_t i = 0; i < count; i++) {
            sorted[i] = &report->unknowns[i];
        }
        append_groups(out, sorted, groups, make_groups(sorted, count, groups), all);
    }
    tocsin_free(sorted);
    tocsin_free(groups);
}
