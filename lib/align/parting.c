/* lib/align/parting.c - two processes step by step, and the first point at which they differ.
 *
 * Both are read a step at a time; the boundaries of each thread are paired. What was read at one
 * point (a moment of one call) has no order among itself, so the first differing pair of a thread
 * brings all differing pairs of its point. Gradients of a point are listed from the last parameter
 * to the first, because backward comes to them in that order; all else as it was read.
 *
 * Cost: that of reading and pairing; memory is that of one step of both runs.
 */
#include "align/align.h"
#include "align/mapping.h"

#include <assert.h>

#define MEETINGS_MAX ((size_t)1 << 20)

/* ---- differences ----------------------------------------------------------------------------- */

static tocsin_difference difference_of(const tocsin_boundary *a, const tocsin_boundary *b)
{
    if (a->present != b->present)
        return TOCSIN_DIFFERENCE_PRESENCE;
    if (a->dtype != b->dtype)
        return TOCSIN_DIFFERENCE_DTYPE;
    if (a->shape != b->shape || a->ndim != b->ndim || a->whole != b->whole ||
        a->offset != b->offset)
        return TOCSIN_DIFFERENCE_SHAPE;
    bool digested = a->digested && b->digested;
    if (digested &&
        (a->digest.sum != b->digest.sum || a->digest.polynomial != b->digest.polynomial ||
         a->digest.exclusive != b->digest.exclusive))
        return TOCSIN_DIFFERENCE_CONTENT;
    return TOCSIN_DIFFERENCE_VALUE;
}

/* What lives no longer than the window. */
static bool copy_parts(const tocsin_comparison *comparison, tocsin_boundary *boundary)
{
    if (boundary->part_count > 0) {
        tocsin_boundary_part *parts =
            TOCSIN_ARENA_ARRAY(comparison->arena, tocsin_boundary_part, boundary->part_count);
        if (!parts)
            return false;
        memcpy(parts, boundary->parts, boundary->part_count * sizeof *parts);
        boundary->parts = parts;
    }
    if (boundary->shard_count > 0) {
        tocsin_shard *shards =
            TOCSIN_ARENA_ARRAY(comparison->arena, tocsin_shard, boundary->shard_count);
        if (!shards)
            return false;
        memcpy(shards, boundary->shards, boundary->shard_count * sizeof *shards);
        boundary->shards = shards;
    }
    if (!boundary->text)
        return true;
    boundary->text = tocsin_arena_copy(comparison->arena, boundary->text, strlen(boundary->text));
    return boundary->text != NULL;
}

/* The chain outlives its window. */
static bool copy_chain(const tocsin_comparison *comparison, tocsin_boundary *boundary)
{
    const tocsin_call_chain **next = &boundary->chain;
    for (const tocsin_call_chain *from = boundary->chain; from; from = from->around) {
        tocsin_call_chain *link = TOCSIN_ARENA_NEW(comparison->arena, tocsin_call_chain);
        if (!link)
            return false;
        *link = *from;
        *next = link;
        next = &link->around;
    }
    return true;
}

/* The id of an item of the first run; "": of none. NULL: out of memory. */
static const char *keep_id(const tocsin_comparison *comparison, const tocsin_paired_step *pair,
                           uint32_t at)
{
    if (at == TOCSIN_ALIGN_NONE)
        return "";
    tocsin_string id = {0};
    tocsin_boundary_id(comparison->names, &pair->a->boundaries.items[at], &id);
    const char *kept = id.status == TOCSIN_OK
                           ? tocsin_arena_copy(comparison->arena, tocsin_string_text(&id), id.bytes)
                           : NULL;
    tocsin_string_free(&id);
    return kept;
}

bool tocsin_difference_make(const tocsin_comparison *comparison, const tocsin_boundary *a,
                            const tocsin_boundary *b, tocsin_difference_found *found)
{
    *found = (tocsin_difference_found){.a = *a,
                                       .b = *b,
                                       .difference = difference_of(a, b),
                                       .ordinal = 1,
                                       .cause = TOCSIN_ALIGN_CAUSE_UNOBSERVED,
                                       .source = "",
                                       .last_equal = ""};
    return tocsin_tiles_differ(a, b, comparison->arena, &found->tiles) &&
           copy_parts(comparison, &found->a) && copy_parts(comparison, &found->b) &&
           copy_chain(comparison, &found->a) && copy_chain(comparison, &found->b);
}

static bool add_difference(const tocsin_comparison *comparison, const tocsin_paired_step *pair,
                           uint32_t at)
{
    tocsin_difference_found found;
    uint32_t source;
    if (!tocsin_difference_make(comparison, &pair->a->boundaries.items[at],
                                &pair->b->boundaries.items[pair->partner[at]], &found))
        return false;
    found.ordinal = tocsin_boundary_ordinal(pair->a, at);
    found.cause = tocsin_align_cause_find(pair, at, &source);
    found.source = keep_id(comparison, pair, source);
    found.last_equal = keep_id(comparison, pair, tocsin_align_cause_last_equal(pair, at));
    return found.source && found.last_equal && TOCSIN_VEC_PUSH(&comparison->parting->found, found);
}

static bool is_condition(const tocsin_boundary *boundary)
{
    return boundary->generator || boundary->setting;
}

static const char *setting_text(const tocsin_comparison *comparison,
                                const tocsin_boundary *boundary)
{
    if (!boundary || !boundary->text)
        return "";
    return tocsin_arena_copy(comparison->arena, boundary->text, strlen(boundary->text));
}

/* A condition that differs is said once. Either may be NULL: the run does not have it. */
static bool add_condition(const tocsin_comparison *comparison, const tocsin_boundary *a,
                          const tocsin_boundary *b)
{
    tocsin_parting *parting = comparison->parting;
    const tocsin_boundary *any = a ? a : b;
    const char *name = tocsin_intern_string(comparison->names, any->name);
    for (size_t c = 0; c < parting->conditions.count; ++c) {
        if (strcmp(parting->conditions.items[c].name, name) == 0 &&
            parting->conditions.items[c].generator == any->generator)
            return true;
    }
    if (parting->conditions.count == TOCSIN_ALIGN_CONDITIONS_MAX)
        return true;
    tocsin_align_condition condition = {.step = comparison->step,
                                        .name = name,
                                        .generator = any->generator,
                                        .rating = (tocsin_rating)any->rating,
                                        .a = setting_text(comparison, a),
                                        .b = setting_text(comparison, b)};
    return condition.a && condition.b && TOCSIN_VEC_PUSH(&parting->conditions, condition);
}

/* ---- the first point --------------------------------------------------------------------------
 */

/* All differing pairs of the point of the first one, gradients backwards. */
static bool add_point(const tocsin_comparison *comparison, const tocsin_paired_step *pair,
                      uint32_t first)
{
    const tocsin_boundary_stream *a = pair->a;
    uint64_t point = a->boundaries.items[first].point;
    uint32_t end = first;
    while (end < a->items.count && a->boundaries.items[end].point == point)
        ++end;
    for (unsigned gradients = 0; gradients < 2; ++gradients) {
        for (uint32_t k = first; k < end; ++k) {
            uint32_t i = gradients ? end - 1 - (k - first) : k;
            bool excused;
            if (is_condition(&a->boundaries.items[i]) ||
                a->boundaries.items[i].gradient != (gradients == 1) ||
                tocsin_pair_state_of(pair, i) != TOCSIN_PAIR_DIFFERENT)
                continue;
            if (!tocsin_excuse_find(comparison, pair, i, false, &excused))
                return false;
            if (excused)
                continue;
            if (comparison->parting->found.count == TOCSIN_ALIGN_PIVOTS_MAX)
                return true;
            if (!add_difference(comparison, pair, i))
                return false;
        }
    }
    return true;
}

/* ---- boundaries of one run only ---------------------------------------------------------------
 */

/* A boundary without a partner. */
static bool add_alone(const tocsin_comparison *comparison, const tocsin_paired_step *pair,
                      uint32_t at, bool in_a)
{
    const tocsin_boundary *boundary = &(in_a ? pair->a : pair->b)->boundaries.items[at];
    if (is_condition(boundary)) {
        const tocsin_boundary *earlier =
            in_a ? NULL : tocsin_resume_setting(comparison, boundary->name);
        bool same = earlier && strcmp(earlier->text ? earlier->text : "",
                                      boundary->text ? boundary->text : "") == 0;
        return boundary->generator || same ||
               add_condition(comparison, in_a ? boundary : earlier, in_a ? NULL : boundary);
    }
    ++*(in_a ? &comparison->parting->rank.only_a : &comparison->parting->rank.only_b);
    return tocsin_gap_add(comparison, pair, at, in_a);
}

/* ---- a step ---------------------------------------------------------------------------------- */

static tocsin_status tally(const tocsin_comparison *comparison, const tocsin_paired_step *pair,
                           uint32_t *first)
{
    const tocsin_boundary_stream *a = pair->a, *b = pair->b;
    tocsin_align_rank *rank = &comparison->parting->rank;
    bool ok = true, differed = comparison->parting->differed;
    uint32_t next = 0;
    *first = TOCSIN_ALIGN_NONE;
    for (uint32_t i = 0; ok && i <= a->items.count; ++i) {
        uint32_t j = i < a->items.count ? pair->partner[i] : (uint32_t)b->items.count;
        if (j == TOCSIN_ALIGN_NONE) {
            ok = add_alone(comparison, pair, i, true);
            continue;
        }
        for (; ok && next < j; ++next) {
            ok = add_alone(comparison, pair, next, false);
        }
        next = j + 1;
        if (i == a->items.count)
            break;
        tocsin_pair_state state = tocsin_pair_state_of(pair, i);
        if (is_condition(&a->boundaries.items[i])) {
            ok =
                ok && (state != TOCSIN_PAIR_DIFFERENT ||
                       add_condition(comparison, &a->boundaries.items[i], &b->boundaries.items[j]));
            continue;
        }
        bool same = state == TOCSIN_PAIR_EQUAL, differs = state == TOCSIN_PAIR_DIFFERENT;
        rank->compared += same || differs;
        rank->unknown += state == TOCSIN_PAIR_UNKNOWN;
        rank->equal += same;
        rank->renamed += same && a->items.items[i].symbol != b->items.items[j].symbol;
        bool excused = true;
        if (differs)
            ok = ok && tocsin_excuse_find(comparison, pair, i, true, &excused);
        if (ok && !excused) {
            ok = tocsin_cone_add(comparison, pair, i);
            *first = *first == TOCSIN_ALIGN_NONE ? i : *first;
        }
        differed = differed || differs;
        if (same && !differed) {
            ++rank->prefix;
            tocsin_prefix_add(comparison, &a->boundaries.items[i]);
        }
    }
    return ok ? TOCSIN_OK : tocsin_error_memory(comparison->error);
}

/* Meetings up to where this process parts: `first` of `thread`; NONE: it did not in this step. */
static bool follow_meetings(const tocsin_comparison *comparison, size_t thread, uint32_t first)
{
    tocsin_parting *parting = comparison->parting;
    const tocsin_meetings *meetings = tocsin_whole_meetings(comparison->a);
    bool parts = parting->parted == SIZE_MAX && first != TOCSIN_ALIGN_NONE;
    for (size_t m = 0; m < meetings->count; ++m) {
        const tocsin_meeting *meeting = &meetings->items[m];
        if (parts && meeting->thread == thread && meeting->item > first) {
            parting->parted = parting->meetings.count;
            parts = false;
        }
        if (parting->meetings.count == MEETINGS_MAX) {
            parting->meetings_cut = true;
        } else if (!TOCSIN_VEC_PUSH(&parting->meetings, *meeting)) {
            return false;
        }
    }
    if (parts)
        parting->parted = parting->meetings.count;
    return true;
}

static const tocsin_boundary_stream nothing;

static const tocsin_boundary_stream *stream_of(const tocsin_whole *process, size_t thread)
{
    return thread < tocsin_whole_stream_count(process) ? tocsin_whole_stream(process, thread)
                                                       : &nothing;
}

/* Compare one thread's step; *first: the first item of a that differs, or NONE. */
static tocsin_status compare_thread(const tocsin_comparison *comparison, size_t thread, bool look,
                                    uint32_t *first)
{
    const tocsin_boundary_stream *a = stream_of(comparison->a, thread);
    const tocsin_boundary_stream *b = stream_of(comparison->b, thread);
    if (comparison->mapping)
        TOCSIN_TRY(tocsin_mapping_apply(comparison->mapping, a, b, &a, &b, comparison->error));
    tocsin_pairing pairing;
    TOCSIN_TRY(
        tocsin_pairing_find((tocsin_align_sequence){a->items.items, (uint32_t)a->items.count},
                            (tocsin_align_sequence){b->items.items, (uint32_t)b->items.count},
                            comparison->options->cells_max, &pairing, comparison->error));
    tocsin_paired_step pair = {.a = a,
                               .b = b,
                               .partner = pairing.partner,
                               .names = comparison->names,
                               .options = comparison->options,
                               .step = comparison->step};
    tocsin_align_pair where = {.process = comparison->process,
                               .rank = tocsin_whole_rank(comparison->a),
                               .thread = (uint32_t)thread,
                               .step = comparison->step};
    tocsin_status status = tally(comparison, &pair, first);
    if (status == TOCSIN_OK)
        status = tocsin_align_visit_rows(comparison->options, comparison->names, &where, a, b,
                                         &pairing, comparison->error);
    if (status == TOCSIN_OK && look && *first != TOCSIN_ALIGN_NONE &&
        !add_point(comparison, &pair, *first))
        status = tocsin_error_memory(comparison->error);
    if (!pairing.optimal)
        comparison->parting->rank.optimal = false;
    if (comparison->mapping && *first != TOCSIN_ALIGN_NONE)
        *first = tocsin_mapping_origin(comparison->mapping, *first);
    tocsin_free(pairing.partner);
    return status;
}

static tocsin_status compare_step(tocsin_comparison *comparison)
{
    tocsin_parting *parting = comparison->parting;
    bool look = parting->rank.diverged_step == 0;
    uint64_t compared = parting->rank.compared;
    size_t threads_a = tocsin_whole_stream_count(comparison->a);
    size_t threads_b = tocsin_whole_stream_count(comparison->b);
    size_t threads = threads_a > threads_b ? threads_a : threads_b;
    size_t parted_thread = 0;
    uint32_t parted_at = TOCSIN_ALIGN_NONE;
    for (size_t t = 0; t < threads; ++t) {
        uint32_t first;
        TOCSIN_TRY(compare_thread(comparison, t, look, &first));
        if (first != TOCSIN_ALIGN_NONE && parted_at == TOCSIN_ALIGN_NONE) {
            parted_thread = t;
            parted_at = first;
        }
    }
    if (!follow_meetings(comparison, parted_thread, parted_at) ||
        !tocsin_recompute_check(comparison, comparison->a, true) ||
        (!comparison->options->itself && !tocsin_recompute_check(comparison, comparison->b, false)))
        return tocsin_error_memory(comparison->error);
    if (parted_at != TOCSIN_ALIGN_NONE && parting->rank.diverged_step == 0)
        parting->rank.diverged_step = comparison->step;
    parting->differed = parting->rank.equal < parting->rank.compared;
    return tocsin_cone_end_step(comparison, parting->rank.compared - compared)
               ? TOCSIN_OK
               : tocsin_error_memory(comparison->error);
}

static tocsin_status compare_all(tocsin_comparison *comparison)
{
    tocsin_align_rank *rank = &comparison->parting->rank;
    TOCSIN_TRY(tocsin_resume_skip(comparison));
    for (;; ++comparison->step) {
        bool more_a, more_b;
        TOCSIN_TRY(tocsin_whole_step(comparison->a, &more_a, comparison->error));
        TOCSIN_TRY(tocsin_whole_step(comparison->b, &more_b, comparison->error));
        rank->steps_a += tocsin_whole_complete(comparison->a);
        rank->steps_b += tocsin_whole_complete(comparison->b);
        if (!more_a && !more_b)
            return TOCSIN_OK;
        if (more_a && more_b)
            TOCSIN_TRY(compare_step(comparison));
        if (comparison->options->settings_only && tocsin_whole_complete(comparison->a) &&
            tocsin_whole_complete(comparison->b))
            return TOCSIN_OK;
    }
}

tocsin_status tocsin_parting_find(tocsin_whole *a, tocsin_whole *b, tocsin_intern *names,
                                  tocsin_arena *arena, const tocsin_align_options *options,
                                  tocsin_mapping *mapping, size_t process, tocsin_parting *parting,
                                  tocsin_error *error)
{
    *parting = (tocsin_parting){.parted = SIZE_MAX, .rank = {.optimal = true}};
    tocsin_comparison comparison = {.a = a,
                                    .b = b,
                                    .names = names,
                                    .arena = arena,
                                    .options = options,
                                    .mapping = mapping,
                                    .process = process,
                                    .parting = parting,
                                    .step = 1,
                                    .error = error};
    tocsin_status status = compare_all(&comparison);
    TOCSIN_VEC_FREE(&comparison.earlier);
    if (status == TOCSIN_OK) {
        parting->rank.rank = tocsin_whole_rank(comparison.a);
        parting->events = tocsin_whole_events(comparison.a) + tocsin_whole_events(comparison.b);
    }
    return status;
}

void tocsin_parting_free(tocsin_parting *parting)
{
    TOCSIN_VEC_FREE(&parting->found);
    TOCSIN_VEC_FREE(&parting->gaps);
    TOCSIN_VEC_FREE(&parting->conditions);
    TOCSIN_VEC_FREE(&parting->meetings);
    TOCSIN_VEC_FREE(&parting->accepted);
    tocsin_map_free(&parting->rule_of);
    TOCSIN_VEC_FREE(&parting->recomputed);
    TOCSIN_VEC_FREE(&parting->cone_steps);
    TOCSIN_VEC_FREE(&parting->reached);
    tocsin_map_free(&parting->reached_names);
    TOCSIN_VEC_FREE(&parting->unstable);
}
