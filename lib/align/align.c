/* lib/align/align.c - two runs: processes matched by rank, and the result.
 *
 * Processes that know a rank are matched by it, the others (loader workers, jobs of one process) in
 * the order in which they began. All pairs are compared one after the other; then the frontier
 * decides which of the ranks that parted did so by themselves, and their differences are the
 * pivots.
 *
 * Memory: one step of two processes, the names of both runs, and the result, which is one arena.
 */
#include "align/align.h"
#include "align/mapping.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct alignment {
    tocsin_align_result shown; /* first: what the caller has */
    tocsin_arena arena;
} alignment;

typedef struct side { /* the processes of a run in order */
    tocsin_trace *trace;
    int64_t rank;
    uint64_t wall_ns;
    const char *path;
} side;
typedef TOCSIN_VEC(side) sides;

typedef struct run_aligner {
    alignment *result;
    tocsin_intern names;
    TOCSIN_VEC(tocsin_parting) partings;
    TOCSIN_VEC(tocsin_align_pivot) pivots;
    TOCSIN_VEC(tocsin_align_gap) gaps;
    TOCSIN_VEC(tocsin_align_condition) conditions;
    TOCSIN_VEC(const char *) not_covered;
    TOCSIN_VEC(tocsin_align_unstable) unstable;
    TOCSIN_VEC(tocsin_align_replicas) replicas;
    tocsin_align_options options;
    TOCSIN_VEC(tocsin_align_cone) cones;
    TOCSIN_VEC(tocsin_align_recomputed) recomputed;
    tocsin_mapping *mapping; /* NULL: names are as they are */
    bool starved;            /* a text of the result could not be kept */
    tocsin_error *error;
} run_aligner;

/* ---- texts of the result --------------------------------------------------------------------- */

/* NULL when memory has run out, and then for good: `starved` is looked at in the end. */
static const char *keep(run_aligner *aligner, const char *text)
{
    const char *kept = tocsin_arena_copy(&aligner->result->arena, text, strlen(text));
    aligner->starved = aligner->starved || !kept;
    return kept;
}

static const char *name_of(run_aligner *aligner, uint32_t text)
{
    const char *found = text ? tocsin_intern_text(&aligner->names, text, NULL) : "";
    return keep(aligner, found ? found : "");
}

static bool not_cover(run_aligner *aligner, const char *format, ...) TOCSIN_PRINTF(2, 3);
static bool not_cover(run_aligner *aligner, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return TOCSIN_VEC_PUSH(&aligner->not_covered, keep(aligner, text));
}

/* ---- pivots ---------------------------------------------------------------------------------- */

static const int64_t *sizes_of(const run_aligner *aligner, const tocsin_boundary *boundary)
{
    size_t bytes = 0;
    uint32_t shape = boundary->whole ? boundary->whole : boundary->shape;
    const char *sizes = shape ? tocsin_intern_text(&aligner->names, shape, &bytes) : NULL;
    return bytes == boundary->ndim * sizeof(int64_t) ? (const int64_t *)(const void *)sizes : NULL;
}

static int64_t size_at(const int64_t *sizes, uint32_t axis)
{
    int64_t size; /* interned bytes need not be aligned */
    memcpy(&size, (const char *)sizes + axis * sizeof size, sizeof size);
    return size;
}

static const char *describe(run_aligner *aligner, const tocsin_boundary *boundary)
{
    if (boundary->text)
        return keep(aligner, boundary->text);
    if (!boundary->present)
        return "None";
    char text[256];
    const int64_t *sizes = sizes_of(aligner, boundary);
    int bytes =
        snprintf(text, sizeof text, "%s[", tocsin_dtype_name((tocsin_dtype)boundary->dtype));
    for (uint32_t axis = 0; sizes && axis < boundary->ndim && bytes < 200; ++axis)
        bytes += snprintf(text + bytes, sizeof text - (size_t)bytes, "%s%" PRId64, axis ? "," : "",
                          size_at(sizes, axis));
    snprintf(text + bytes, sizeof text - (size_t)bytes, "]");
    return keep(aligner, text);
}

static uint32_t words_per_element(uint8_t dtype)
{
    size_t bytes = tocsin_dtype_bytes((tocsin_dtype)dtype);
    return bytes > 4 ? (uint32_t)(bytes / 4) : 1;
}

/* The element of a tensor of which one word differs. */
static void locate(run_aligner *aligner, const tocsin_difference_found *found,
                   tocsin_align_pivot *pivot)
{
    const int64_t *sizes = sizes_of(aligner, &found->a); /* of the whole, if it is a piece */
    uint32_t words = words_per_element(found->a.dtype);
    bool flat = found->a.dtype == TOCSIN_DTYPE_NONE; /* a digest of what has no shape here */
    uint64_t count = flat ? UINT64_C(1) << 60 : words;
    if (aligner->options.digest != TOCSIN_ALIGN_DIGEST_ALL || aligner->options.tolerance > 0.0 ||
        found->difference != TOCSIN_DIFFERENCE_CONTENT || (found->a.ndim > 0 && !sizes))
        return;
    for (uint32_t axis = 0; axis < found->a.ndim; ++axis)
        count *= (uint64_t)size_at(sizes, axis);
    if (!tocsin_digest_locate(found->a.digest, found->b.digest, count, &pivot->change))
        return;
    int64_t *index = TOCSIN_ARENA_ARRAY(&aligner->result->arena, int64_t, found->a.ndim + 1);
    if (!index) {
        aligner->starved = true;
        return;
    }
    uint64_t element = pivot->change.word / words;
    for (uint32_t axis = found->a.ndim; axis-- > 0;) {
        uint64_t size = (uint64_t)size_at(sizes, axis);
        index[axis] = (int64_t)(element % size);
        element /= size;
    }
    if (flat)
        index[0] = (int64_t)pivot->change.word;
    pivot->located = true;
    pivot->ndim = flat ? 1 : found->a.ndim;
    pivot->index = index;
    pivot->word = (uint32_t)(pivot->change.word % words);
}

static bool holds(const run_aligner *aligner, const tocsin_shard *shard,
                  const tocsin_align_pivot *pivot)
{
    for (uint32_t axis = 0; shard->shape && axis < pivot->ndim; ++axis) {
        int64_t begin = tocsin_shard_axis(&aligner->names, shard->offset, axis);
        int64_t size = tocsin_shard_axis(&aligner->names, shard->shape, axis);
        if (pivot->index[axis] < begin || pivot->index[axis] - begin >= size)
            return false;
    }
    return true;
}

/* The ranks that hold the element of the pivot; all that have the boundary, if it is not known. */
static void note_holders(run_aligner *aligner, const tocsin_boundary *boundary,
                         const tocsin_align_pivot *pivot, tocsin_align_side *shown)
{
    int64_t *ranks =
        TOCSIN_ARENA_ARRAY(&aligner->result->arena, int64_t, boundary->shard_count + 1);
    aligner->starved = aligner->starved || !ranks;
    shown->holders = ranks;
    for (uint32_t s = 0; ranks && s < boundary->shard_count; ++s) {
        if (!pivot->located || holds(aligner, &boundary->shards[s], pivot))
            ranks[shown->holder_count++] = boundary->shards[s].rank;
    }
}

static tocsin_align_side side_of(run_aligner *aligner, const tocsin_boundary *boundary)
{
    return (tocsin_align_side){.value = describe(aligner, boundary),
                               .site = name_of(aligner, boundary->site),
                               .digest = boundary->digest,
                               .statistics = boundary->statistics};
}

static const char *id_of(run_aligner *aligner, const tocsin_boundary *boundary)
{
    tocsin_string id = {0};
    tocsin_boundary_id(&aligner->names, boundary, &id);
    aligner->starved = aligner->starved || id.status != TOCSIN_OK;
    const char *kept = keep(aligner, tocsin_string_text(&id));
    tocsin_string_free(&id);
    return kept;
}

/* "torch.nn.Module.__call__ of layers.0, train.py:26 (forward)". */
static const char *describe_call(run_aligner *aligner, const tocsin_call_chain *call)
{
    char text[1024];
    const char *operation = name_of(aligner, call->operation);
    const char *module = name_of(aligner, call->module);
    const char *site = name_of(aligner, call->site);
    if (aligner->starved)
        return NULL;
    snprintf(text, sizeof text, "%s%s%s%s%s", operation, module[0] ? " of " : "", module,
             site[0] ? ", " : "", site);
    return keep(aligner, text);
}

static void stack_of(run_aligner *aligner, const tocsin_boundary *boundary,
                     tocsin_align_pivot *pivot)
{
    size_t calls = 0;
    for (const tocsin_call_chain *call = boundary->chain; call; call = call->around)
        ++calls;
    const char **stack = TOCSIN_ARENA_ARRAY(&aligner->result->arena, const char *, calls + 1);
    aligner->starved = aligner->starved || !stack;
    if (aligner->starved)
        return;
    if (pivot->a.site[0])
        stack[pivot->stack_count++] = pivot->a.site;
    for (const tocsin_call_chain *call = boundary->chain; call; call = call->around)
        stack[pivot->stack_count++] = describe_call(aligner, call);
    pivot->stack = stack;
}

static tocsin_align_pivot make_pivot(run_aligner *aligner, int64_t rank, int64_t step,
                                     const tocsin_difference_found *found)
{
    tocsin_align_pivot pivot = {.rank = rank,
                                .step = step,
                                .name = name_of(aligner, found->a.name),
                                .attribute = name_of(aligner, found->a.attribute),
                                .operation = name_of(aligner, found->a.operation),
                                .phase = name_of(aligner, found->a.phase),
                                .difference = found->difference,
                                .id = id_of(aligner, &found->a),
                                .micro_batch = found->a.micro_batch,
                                .ordinal = found->ordinal,
                                .cause = found->cause,
                                .source = found->source,
                                .last_equal = found->last_equal,
                                .a = side_of(aligner, &found->a),
                                .b = side_of(aligner, &found->b)};
    locate(aligner, found, &pivot);
    if (!tocsin_tiles_show(found, &aligner->names, words_per_element(found->a.dtype),
                           &aligner->result->arena, &pivot))
        aligner->starved = true;
    tocsin_arena *arena = &aligner->result->arena;
    if (!tocsin_align_own_place(arena, &aligner->names, &found->a, &pivot, &pivot.a) ||
        !tocsin_align_own_place(arena, &aligner->names, &found->b, &pivot, &pivot.b))
        aligner->starved = true;
    stack_of(aligner, &found->a, &pivot);
    note_holders(aligner, &found->a, &pivot, &pivot.a);
    note_holders(aligner, &found->b, &pivot, &pivot.b);
    return pivot;
}

static bool add_pivot(run_aligner *aligner, const tocsin_parting *parting,
                      const tocsin_difference_found *found)
{
    return TOCSIN_VEC_PUSH(&aligner->pivots, make_pivot(aligner, parting->rank.rank,
                                                        parting->rank.diverged_step, found));
}

/* What was composed of a run. */
static bool add_account(run_aligner *aligner, const tocsin_whole *whole, size_t ranks, bool in_a)
{
    const tocsin_whole_account *account = tocsin_whole_get_account(whole);
    tocsin_align_result *shown = &aligner->result->shown;
    tocsin_align_composition *composed = in_a ? &shown->composed_a : &shown->composed_b;
    *composed = (tocsin_align_composition){.ranks = ranks, .boundaries = account->boundaries};
    memcpy(composed->incomparable, account->incomparable, sizeof composed->incomparable);
    for (size_t r = 0; r < account->replicas.count; ++r) {
        const tocsin_replicas_found *found = &account->replicas.items[r];
        tocsin_difference_found pair = {.a = found->a,
                                        .b = found->b,
                                        .difference = TOCSIN_DIFFERENCE_CONTENT,
                                        .source = "",
                                        .last_equal = ""};
        tocsin_align_replicas shown_pair = {.in_a = in_a,
                                            .rank_a = found->rank_a,
                                            .rank_b = found->rank_b,
                                            .first = make_pivot(aligner, -1, found->step, &pair),
                                            .count = found->count};
        if (!TOCSIN_VEC_PUSH(&aligner->replicas, shown_pair))
            return false;
    }
    return true;
}

static bool add_gaps(run_aligner *aligner, const tocsin_parting *parting)
{
    for (size_t g = 0; g < parting->gaps.count; ++g) {
        tocsin_align_gap gap = parting->gaps.items[g].gap;
        if (aligner->gaps.count == TOCSIN_ALIGN_GAPS_MAX)
            return true;
        gap.rank = parting->rank.rank;
        gap.name = keep(aligner, gap.name);
        gap.attribute = keep(aligner, gap.attribute);
        gap.operation = keep(aligner, gap.operation);
        if (!TOCSIN_VEC_PUSH(&aligner->gaps, gap))
            return false;
    }
    return true;
}

static bool add_conditions(run_aligner *aligner, const tocsin_parting *parting)
{
    for (size_t c = 0; c < parting->conditions.count; ++c) {
        tocsin_align_condition condition = parting->conditions.items[c];
        condition.rank = parting->rank.rank;
        condition.name = keep(aligner, condition.name);
        condition.a = keep(aligner, condition.a);
        condition.b = keep(aligner, condition.b);
        if (aligner->starved || !TOCSIN_VEC_PUSH(&aligner->conditions, condition))
            return false;
        aligner->conditions.count =
            tocsin_conditions_order(aligner->conditions.items, aligner->conditions.count);
    }
    return true;
}

static bool add_unstable(run_aligner *aligner, const tocsin_parting *parting)
{
    for (size_t u = 0; u < parting->unstable.count; ++u) {
        const tocsin_excuse_used *found = &parting->unstable.items[u];
        tocsin_align_unstable shown = {
            .boundary = tocsin_stability_get(aligner->options.unstable, found->index),
            .repeats = tocsin_stability_repeats(aligner->options.unstable),
            .count = found->count};
        shown.boundary.name = keep(aligner, shown.boundary.name);
        shown.boundary.attribute = keep(aligner, shown.boundary.attribute);
        shown.boundary.operation = keep(aligner, shown.boundary.operation);
        shown.boundary.phase = keep(aligner, shown.boundary.phase);
        shown.boundary.step = found->step;
        shown.boundary.rank = parting->rank.rank;
        if (!TOCSIN_VEC_PUSH(&aligner->unstable, shown))
            return false;
    }
    return true;
}

static bool add_recomputed(run_aligner *aligner, const tocsin_parting *parting)
{
    tocsin_align_result *shown = &aligner->result->shown;
    for (unsigned run = 0; run < 2; ++run) {
        shown->recompute[run].compared += parting->recompute[run].compared;
        shown->recompute[run].equal += parting->recompute[run].equal;
    }
    for (size_t r = 0; r < parting->recomputed.count; ++r) {
        const tocsin_recomputed_found *found = &parting->recomputed.items[r];
        tocsin_align_recomputed one = {
            .in_a = found->in_a,
            .differs = make_pivot(aligner, parting->rank.rank, found->step, &found->difference)};
        if (!TOCSIN_VEC_PUSH(&aligner->recomputed, one))
            return false;
    }
    return true;
}

/* The verdict on a run that is compared with itself. */
static tocsin_align_verdict judge_itself(const tocsin_align_recompute *recompute)
{
    return recompute->compared == 0                 ? TOCSIN_ALIGN_INCOMPARABLE
           : recompute->equal < recompute->compared ? TOCSIN_ALIGN_DIVERGED
                                                    : TOCSIN_ALIGN_IDENTICAL;
}

static bool add_cone(run_aligner *aligner, const tocsin_parting *parting)
{
    tocsin_align_cone cone;
    return parting->rank.diverged_step == 0 ||
           (tocsin_cone_keep(parting, &aligner->result->arena, &cone) &&
            TOCSIN_VEC_PUSH(&aligner->cones, cone));
}

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

static tocsin_status open_whole(run_aligner *aligner, const side *list, size_t count, bool compose,
                                tocsin_whole **whole)
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

static tocsin_status find_parting(run_aligner *aligner, tocsin_whole *a, tocsin_whole *b)
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
static tocsin_status compare_jobs(run_aligner *aligner, const side *a, size_t a_count,
                                  const side *b, size_t b_count, bool compose)
{
    tocsin_whole *whole_a = NULL, *whole_b = NULL;
    tocsin_status status = open_whole(aligner, a, a_count, compose, &whole_a);
    if (status == TOCSIN_OK)
        status = open_whole(aligner, b, b_count, compose, &whole_b);
    if (status == TOCSIN_OK)
        status = find_parting(aligner, whole_a, whole_b);
    if (status == TOCSIN_OK && compose &&
        !(add_account(aligner, whole_a, a_count, true) &&
          add_account(aligner, whole_b, b_count, false)))
        status = tocsin_error_memory(aligner->error);
    tocsin_whole_free(whole_a);
    tocsin_whole_free(whole_b);
    return status;
}

static bool say_alone(run_aligner *aligner, const side *one, bool in_a)
{
    const char *name = strrchr(one->path, '/'), *run = in_a ? "A" : "B";
    name = name ? name + 1 : one->path;
    if (one->rank < 0)
        return not_cover(aligner, "process %s is in run %s only", name, run);
    tocsin_align_gap gap = {.in_a = in_a,
                            .rank = one->rank,
                            .step = 1,
                            .count = 1,
                            .name = "",
                            .attribute = "",
                            .operation = "",
                            .reason = tocsin_gap_text(TOCSIN_GAP_EXTRA_RANK)};
    return (aligner->gaps.count == TOCSIN_ALIGN_GAPS_MAX || TOCSIN_VEC_PUSH(&aligner->gaps, gap)) &&
           not_cover(aligner, "rank %" PRId64 " is in run %s only", one->rank, run);
}

/* Both lists ascend by rank; those of one rank are matched in order. */
static tocsin_status compare_processes(run_aligner *aligner, const sides *a, const sides *b)
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
static tocsin_status compare_runs(run_aligner *aligner, const sides *a, const sides *b)
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

/* ---- result ---------------------------------------------------------------------------------- */

/* "rank 3: " or "". */
static const char *rank_text(int64_t rank, char text[32])
{
    text[0] = '\0';
    if (rank >= 0)
        snprintf(text, 32, "rank %" PRId64 ": ", rank);
    return text;
}

static bool say_limits(run_aligner *aligner)
{
    for (size_t p = 0; p < aligner->partings.count; ++p) {
        const tocsin_parting *parting = &aligner->partings.items[p];
        const tocsin_align_rank *rank = &parting->rank;
        char where[32];
        rank_text(rank->rank, where);
        bool ok = true;
        if (rank->steps_a != rank->steps_b + aligner->options.skip)
            ok = not_cover(aligner,
                           "%srun A has %" PRIu64 " steps, run B %" PRIu64
                           " steps; the further ones were not compared",
                           where, rank->steps_a, rank->steps_b);
        if (ok && rank->unknown > 0)
            ok = not_cover(aligner,
                           "%s%" PRIu64 " boundaries were recorded as present, without a digest",
                           where, rank->unknown);
        if (ok && parting->meetings_cut)
            ok = not_cover(aligner, "%scommunication after its first %d calls", where, 1 << 20);
        if (!ok)
            return false;
    }
    for (size_t n = 0; n < aligner->options.note_count; ++n) {
        if (!not_cover(aligner, "%s", aligner->options.notes[n]))
            return false;
    }
    if (aligner->options.skip > 0 &&
        !not_cover(aligner, "the first %" PRIu64 " steps of run A", aligner->options.skip))
        return false;
    return not_cover(aligner, "what was not recorded: activations, and what happens between two "
                              "boundaries");
}

/* What the map could not make comparable. */
static bool say_mapping(run_aligner *aligner)
{
    const tocsin_name_map *map = aligner->options.map;
    for (size_t r = 0; map && r < tocsin_name_map_rule_count(map); ++r) {
        const tocsin_map_rule *rule = tocsin_name_map_rule(map, r);
        tocsin_map_use use = tocsin_mapping_use(aligner->mapping, r);
        if (use.layout > 0 &&
            !not_cover(aligner, "%s and %s: incomparable: %s, %" PRIu64 " times", rule->a,
                       rule->b[0], tocsin_map_layout_text(rule->layout), use.layout))
            return false;
        if (use.incomplete > 0 &&
            !not_cover(aligner,
                       "%s and %s: incomparable: a part is missing or not digested, %" PRIu64
                       " times",
                       rule->a, rule->b[0], use.incomplete))
            return false;
    }
    return true;
}

static tocsin_status collect(run_aligner *aligner)
{
    tocsin_align_result *shown = &aligner->result->shown;
    tocsin_align_rank *ranks =
        TOCSIN_ARENA_ARRAY(&aligner->result->arena, tocsin_align_rank, aligner->partings.count + 1);
    if (!ranks)
        return tocsin_error_memory(aligner->error);
    TOCSIN_TRY(
        tocsin_frontier_find(aligner->partings.items, aligner->partings.count, aligner->error));
    bool ok = true, diverged = false;
    uint64_t compared = 0;
    for (size_t p = 0; ok && p < aligner->partings.count; ++p) {
        const tocsin_parting *parting = &aligner->partings.items[p];
        ranks[p] = parting->rank;
        compared += parting->rank.compared;
        shown->events += parting->events;
        diverged = diverged || parting->rank.diverged_step > 0;
        if (parting->rank.diverged_step > 0 && !parting->origin)
            ++shown->downstream;
        for (size_t f = 0; ok && parting->origin && f < parting->found.count; ++f)
            ok = add_pivot(aligner, parting, &parting->found.items[f]);
        ok = ok && add_gaps(aligner, parting) && add_conditions(aligner, parting) &&
             add_unstable(aligner, parting) && add_cone(aligner, parting) &&
             add_recomputed(aligner, parting);
    }
    ok = ok && tocsin_excuse_list(aligner->options.rules, aligner->partings.items,
                                  aligner->partings.count, &aligner->result->arena, shown);
    if (!ok || !say_mapping(aligner) || !say_limits(aligner) || aligner->starved)
        return tocsin_error_memory(aligner->error);
    diverged = diverged || aligner->replicas.count > 0;
    shown->verdict = diverged                          ? TOCSIN_ALIGN_DIVERGED
                     : compared == 0                   ? TOCSIN_ALIGN_INCOMPARABLE
                     : aligner->unstable.count > 0     ? TOCSIN_ALIGN_UNSTABLE
                     : shown->accepted_differences > 0 ? TOCSIN_ALIGN_ACCEPTED
                                                       : TOCSIN_ALIGN_IDENTICAL;
    shown->itself = aligner->options.itself;
    if (shown->itself)
        shown->verdict = judge_itself(&shown->recompute[0]);
    shown->ranks = ranks;
    shown->rank_count = aligner->partings.count;
    return TOCSIN_OK;
}

/* The lists become the result's. */
static tocsin_status hand_over(run_aligner *aligner)
{
    tocsin_align_result *shown = &aligner->result->shown;
    tocsin_arena *arena = &aligner->result->arena;
    tocsin_align_pivot *pivots =
        TOCSIN_ARENA_ARRAY(arena, tocsin_align_pivot, aligner->pivots.count + 1);
    tocsin_align_gap *gaps = TOCSIN_ARENA_ARRAY(arena, tocsin_align_gap, aligner->gaps.count + 1);
    const char **texts = TOCSIN_ARENA_ARRAY(arena, const char *, aligner->not_covered.count + 1);
    tocsin_align_condition *conditions =
        TOCSIN_ARENA_ARRAY(arena, tocsin_align_condition, aligner->conditions.count + 1);
    tocsin_align_unstable *unstable =
        TOCSIN_ARENA_ARRAY(arena, tocsin_align_unstable, aligner->unstable.count + 1);
    tocsin_align_replicas *replicas =
        TOCSIN_ARENA_ARRAY(arena, tocsin_align_replicas, aligner->replicas.count + 1);
    tocsin_align_recomputed *recomputed =
        TOCSIN_ARENA_ARRAY(arena, tocsin_align_recomputed, aligner->recomputed.count + 1);
    tocsin_align_cone *cones =
        TOCSIN_ARENA_ARRAY(arena, tocsin_align_cone, aligner->cones.count + 1);
    if (!pivots || !gaps || !texts || !conditions || !unstable || !replicas || !cones ||
        !recomputed)
        return tocsin_error_memory(aligner->error);
    for (size_t k = 0; k < aligner->pivots.count; ++k)
        pivots[k] = aligner->pivots.items[k];
    for (size_t k = 0; k < aligner->gaps.count; ++k)
        gaps[k] = aligner->gaps.items[k];
    for (size_t k = 0; k < aligner->not_covered.count; ++k)
        texts[k] = aligner->not_covered.items[k];
    for (size_t k = 0; k < aligner->conditions.count; ++k)
        conditions[k] = aligner->conditions.items[k];
    for (size_t k = 0; k < aligner->unstable.count; ++k)
        unstable[k] = aligner->unstable.items[k];
    for (size_t k = 0; k < aligner->replicas.count; ++k)
        replicas[k] = aligner->replicas.items[k];
    shown->replicas = replicas;
    shown->replica_count = aligner->replicas.count;
    for (size_t k = 0; k < aligner->recomputed.count; ++k)
        recomputed[k] = aligner->recomputed.items[k];
    shown->recomputed = recomputed;
    shown->recomputed_count = aligner->recomputed.count;
    for (size_t k = 0; k < aligner->cones.count; ++k)
        cones[k] = aligner->cones.items[k];
    shown->cones = cones;
    shown->cone_count = aligner->cones.count;
    shown->unstable = unstable;
    shown->unstable_count = aligner->unstable.count;
    shown->conditions = conditions;
    shown->condition_count = aligner->conditions.count;
    shown->pivots = pivots;
    shown->pivot_count = aligner->pivots.count;
    shown->gaps = gaps;
    shown->gap_count = aligner->gaps.count;
    shown->not_covered = texts;
    shown->not_covered_count = aligner->not_covered.count;
    return TOCSIN_OK;
}

static tocsin_status align_runs(run_aligner *aligner, const tocsin_run *a, const tocsin_run *b)
{
    sides in_a = {0}, in_b = {0};
    tocsin_status status = list_sides(a, &in_a, aligner->error);
    if (status == TOCSIN_OK)
        status = list_sides(b, &in_b, aligner->error);
    if (status == TOCSIN_OK)
        status = compare_runs(aligner, &in_a, &in_b);
    if (status == TOCSIN_OK)
        status = collect(aligner);
    if (status == TOCSIN_OK)
        status = hand_over(aligner);
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
    run_aligner aligner = {.result = tocsin_zalloc(1, sizeof *aligner.result), .error = error};
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
    alignment *whole = (alignment *)result; /* its first member */
    tocsin_arena_free(&whole->arena);
    tocsin_free(whole);
}
