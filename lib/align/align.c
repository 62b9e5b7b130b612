/* lib/align/align.c - two runs: processes matched by rank, and compared.
 *
 * Processes that know a rank are matched by it, the others (loader workers, jobs of one process) in
 * the order in which they began. All pairs are compared one after the other; outcome.c makes one
 * result of them.
 *
 * Memory: one step of two processes, the names of both runs, and the result, which is one arena.
 */
#include "align/aligner.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct side { /* the processes of a run in order */
    tocsin_trace *trace;
    int64_t rank;
    uint64_t wall_ns;
    const char *path;
} side;
typedef TOCSIN_VEC(side) sides;

/* ---- processes ------------------------------------------------------------------------------- */

static int order_sides(const void *left, const void *right)
{
    const side *a = left, *b = right;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->wall_ns != b->wall_ns)
        return a->wall_ns < b->wall_ns ? -1 : 1;
    return strcmp(a->path, b->path);
}

/* The rank stands among the first events; what was read is read again from the start, by a trace of
 * its own. */
static tocsin_status find_rank(const tocsin_trace *trace, int64_t *rank, tocsin_error *error)
{
    tocsin_trace *look;
    TOCSIN_TRY(tocsin_trace_open(tocsin_trace_path(trace), false, &look, error));
    tocsin_status status = TOCSIN_OK;
    *rank = -1;
    while (status == TOCSIN_OK && *rank < 0) {
        const tocsin_event *event;
        status = tocsin_trace_next(look, &event, error);
        if (status != TOCSIN_OK || !event || event->kind == TOCSIN_EVENT_STATE)
            break;
        if (event->kind == TOCSIN_EVENT_META && event->value_count > 0 &&
            event->values[0].kind == TOCSIN_VALUE_INT &&
            strcmp(tocsin_trace_string(look, event->key), "rank") == 0)
            *rank = event->values[0].as.integer;
    }
    tocsin_trace_close(look);
    return status;
}

static tocsin_status list_sides(const tocsin_run *run, sides *list, tocsin_error *error)
{
    for (size_t p = 0; p < tocsin_run_process_count(run); ++p) {
        tocsin_trace *trace = tocsin_run_process(run, p);
        tocsin_trace_facts facts;
        side one = {.trace = trace, .path = tocsin_trace_path(trace)};
        tocsin_trace_get_facts(trace, &facts);
        one.wall_ns = facts.wall_ns;
        TOCSIN_TRY(find_rank(trace, &one.rank, error));
        if (!TOCSIN_VEC_PUSH(list, one))
            return tocsin_error_memory(error);
    }
    if (list->count > 0)
        qsort(list->items, list->count, sizeof *list->items, order_sides);
    return TOCSIN_OK;
}

static tocsin_status open_whole(tocsin_aligner *aligner, const side *list, size_t count,
                                bool compose, tocsin_whole **whole)
{
    tocsin_trace **traces = tocsin_alloc(count * sizeof(tocsin_trace *));
    if (!traces)
        return tocsin_error_memory(aligner->error);
    for (size_t k = 0; k < count; ++k)
        traces[k] = list[k].trace;
    tocsin_status status = tocsin_whole_new(traces, count, compose, &aligner->names,
                                            &aligner->options, whole, aligner->error);
    tocsin_free(traces);
    return status;
}

static tocsin_status find_parting(tocsin_aligner *aligner, tocsin_whole *a, tocsin_whole *b)
{
    tocsin_parting parting;
    tocsin_status status =
        tocsin_parting_find(a, b, &aligner->names, &aligner->result->arena, &aligner->options,
                            aligner->mapping, aligner->partings.count, &parting, aligner->error);
    if (status == TOCSIN_OK && !TOCSIN_VEC_PUSH(&aligner->partings, parting))
        status = tocsin_error_memory(aligner->error);
    if (status != TOCSIN_OK)
        tocsin_parting_free(&parting);
    return status;
}

/* One process of each run; or, to compose, all that count. */
static tocsin_status compare_jobs(tocsin_aligner *aligner, const side *a, size_t a_count,
                                  const side *b, size_t b_count, bool compose)
{
    tocsin_whole *whole_a = NULL, *whole_b = NULL;
    tocsin_status status = open_whole(aligner, a, a_count, compose, &whole_a);
    if (status == TOCSIN_OK)
        status = open_whole(aligner, b, b_count, compose, &whole_b);
    if (status == TOCSIN_OK)
        status = find_parting(aligner, whole_a, whole_b);
    if (status == TOCSIN_OK && compose &&
        !(tocsin_aligner_add_account(aligner, whole_a, a_count, true) &&
          tocsin_aligner_add_account(aligner, whole_b, b_count, false)))
        status = tocsin_error_memory(aligner->error);
    tocsin_whole_free(whole_a);
    tocsin_whole_free(whole_b);
    return status;
}

static bool say_alone(tocsin_aligner *aligner, const side *one, bool in_a)
{
    const char *name = strrchr(one->path, '/'), *run = in_a ? "A" : "B";
    name = name ? name + 1 : one->path;
    if (one->rank < 0)
        return tocsin_aligner_not_cover(aligner, "process %s is in run %s only", name, run);
    tocsin_align_gap gap = {.in_a = in_a,
                            .rank = one->rank,
                            .step = 1,
                            .count = 1,
                            .name = "",
                            .attribute = "",
                            .operation = "",
                            .reason = tocsin_gap_text(TOCSIN_GAP_EXTRA_RANK)};
    return (aligner->gaps.count == TOCSIN_ALIGN_GAPS_MAX || TOCSIN_VEC_PUSH(&aligner->gaps, gap)) &&
           tocsin_aligner_not_cover(aligner, "rank %" PRId64 " is in run %s only", one->rank, run);
}

/* Both lists ascend by rank; those of one rank are matched in order. */
static tocsin_status compare_processes(tocsin_aligner *aligner, const sides *a, const sides *b)
{
    size_t i = 0, j = 0;
    while (i < a->count || j < b->count) {
        int order = i == a->count   ? 1
                    : j == b->count ? -1
                                    : (a->items[i].rank > b->items[j].rank) -
                                          (a->items[i].rank < b->items[j].rank);
        bool ok = true;
        if (order == 0)
            TOCSIN_TRY(compare_jobs(aligner, &a->items[i++], 1, &b->items[j++], 1, false));
        else if (order < 0)
            ok = say_alone(aligner, &a->items[i++], true);
        else
            ok = say_alone(aligner, &b->items[j++], false);
        if (!ok)
            return tocsin_error_memory(aligner->error);
    }
    return TOCSIN_OK;
}

/* The first process of each rank, or the first one, if none knows a rank; and the others. */
static bool choose_job(const sides *all, sides *job, sides *rest)
{
    bool distributed = all->count > 0 && all->items[all->count - 1].rank >= 0;
    for (size_t k = 0; k < all->count; ++k) {
        const side *one = &all->items[k];
        bool first = distributed ? one->rank >= 0 && (k == 0 || one[-1].rank != one->rank) : k == 0;
        if (!TOCSIN_VEC_PUSH(first ? job : rest, *one))
            return false;
    }
    return true;
}

/* Are the ranks other ones, or the pieces that they hold? */
static tocsin_status are_unlike(const sides *a, const sides *b, bool *unlike, tocsin_error *error)
{
    *unlike = a->count != b->count;
    for (size_t k = 0; !*unlike && k < a->count; ++k) {
        uint64_t left, right;
        *unlike = a->items[k].rank != b->items[k].rank;
        if (*unlike || a->items[k].rank < 0)
            return TOCSIN_OK; /* a process alone has no pieces */
        TOCSIN_TRY(tocsin_shard_layout(a->items[k].path, &left, error));
        TOCSIN_TRY(tocsin_shard_layout(b->items[k].path, &right, error));
        *unlike = left != right;
    }
    return TOCSIN_OK;
}

/* Rank by rank, or what all ranks hold together, where that is asked for or the only way. */
static tocsin_status compare_runs(tocsin_aligner *aligner, const sides *a, const sides *b)
{
    sides job_a = {0}, job_b = {0}, rest_a = {0}, rest_b = {0};
    bool compose = aligner->options.whole;
    bool ok = choose_job(a, &job_a, &rest_a) && choose_job(b, &job_b, &rest_b);
    bool both = ok && job_a.count > 0 && job_b.count > 0;
    tocsin_status status = ok ? TOCSIN_OK : tocsin_error_memory(aligner->error);
    if (both && !compose)
        status = are_unlike(&job_a, &job_b, &compose, aligner->error);
    compose = compose && both;
    if (status == TOCSIN_OK && compose)
        status = compare_jobs(aligner, job_a.items, job_a.count, job_b.items, job_b.count, true);
    if (status == TOCSIN_OK)
        status = compare_processes(aligner, compose ? &rest_a : a, compose ? &rest_b : b);
    TOCSIN_VEC_FREE(&job_a);
    TOCSIN_VEC_FREE(&job_b);
    TOCSIN_VEC_FREE(&rest_a);
    TOCSIN_VEC_FREE(&rest_b);
    return status;
}

static tocsin_status align_runs(tocsin_aligner *aligner, const tocsin_run *a, const tocsin_run *b)
{
    sides in_a = {0}, in_b = {0};
    tocsin_status status = list_sides(a, &in_a, aligner->error);
    if (status == TOCSIN_OK)
        status = list_sides(b, &in_b, aligner->error);
    if (status == TOCSIN_OK)
        status = compare_runs(aligner, &in_a, &in_b);
    if (status == TOCSIN_OK)
        status = tocsin_aligner_conclude(aligner);
    TOCSIN_VEC_FREE(&in_a);
    TOCSIN_VEC_FREE(&in_b);
    return status;
}

tocsin_status tocsin_align_runs(const tocsin_run *a, const tocsin_run *b,
                                const tocsin_align_options *options, tocsin_align_result **result,
                                tocsin_error *error)
{
    *result = NULL;
    if (options && (options->struct_bytes != sizeof *options ||
                    options->digest > TOCSIN_ALIGN_DIGEST_NORM || !(options->tolerance >= 0.0)))
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "tocsin_align_options is not usable");
    tocsin_aligner aligner = {.result = tocsin_zalloc(1, sizeof *aligner.result), .error = error};
    if (!aligner.result)
        return tocsin_error_memory(error);
    if (options)
        aligner.options = *options;
    if (aligner.options.learn)
        tocsin_stability_begin(aligner.options.learn);
    tocsin_status status = aligner.options.map
                               ? tocsin_mapping_new(aligner.options.map, &aligner.names,
                                                    &aligner.options, &aligner.mapping, error)
                               : TOCSIN_OK;
    if (status == TOCSIN_OK)
        status = align_runs(&aligner, a, b);
    for (size_t p = 0; p < aligner.partings.count; ++p)
        tocsin_parting_free(&aligner.partings.items[p]);
    TOCSIN_VEC_FREE(&aligner.partings);
    TOCSIN_VEC_FREE(&aligner.pivots);
    TOCSIN_VEC_FREE(&aligner.gaps);
    TOCSIN_VEC_FREE(&aligner.conditions);
    TOCSIN_VEC_FREE(&aligner.unstable);
    TOCSIN_VEC_FREE(&aligner.replicas);
    TOCSIN_VEC_FREE(&aligner.cones);
    TOCSIN_VEC_FREE(&aligner.recomputed);
    TOCSIN_VEC_FREE(&aligner.not_covered);
    tocsin_mapping_free(aligner.mapping);
    tocsin_intern_free(&aligner.names);
    if (status == TOCSIN_OK)
        *result = &aligner.result->shown;
    else
        tocsin_align_result_free(&aligner.result->shown);
    return status;
}

void tocsin_align_result_free(tocsin_align_result *result)
{
    if (!result)
        return;
    tocsin_alignment *whole = (tocsin_alignment *)result; /* its first member */
    tocsin_arena_free(&whole->arena);
    tocsin_free(whole);
}
