/* lib/align/whole.c - the processes of a run, step by step, as if they were one.
 *
 * A run of one process is compared with one of several, or two of different layouts, by what the
 * ranks hold together: boundaries of one symbol and one occurrence in the step become one. Pieces
 * that tile their tensor add up to its digest (docs/digest.md); what all ranks have alike is taken
 * once; the rest is present without a value, and counted with the reason.
 *
 * Data structure: for each thread a list of places, linked in the order of the lowest rank; what
 * only later ranks have stands behind what precedes it there or, if nothing does, by its phase.
 * Each place has its members, ascending by rank. A process alone passes through as it is.
 * Invariant: a composed boundary equals that of a process that holds all of the tensor exactly if
 * the bits are equal.
 * Cost: linear in boundaries, and tiling (shard.c); memory is that of one step of all ranks.
 */
#include <assert.h>

#include "align/align.h"

typedef struct member {
    const tocsin_boundary *boundary;
    uint64_t value;
    uint32_t rank; /* index of the reader */
    uint32_t next; /* of the place; NONE */
} member;

typedef struct place {
    uint32_t symbol;
    uint32_t first, last, count; /* members */
    uint32_t next;               /* place; NONE */
} place;

struct tocsin_whole {
    tocsin_boundary_reader **readers;
    size_t count;
    bool compose;
    tocsin_intern *names;
    const tocsin_align_options *options;
    TOCSIN_VEC(tocsin_boundary_stream) streams; /* by thread */
    TOCSIN_VEC(place) places;                   /* of the thread at hand: */
    TOCSIN_VEC(member) members;
    TOCSIN_VEC(tocsin_box) boxes; /* of the place at hand */
    tocsin_map by_symbol;         /* symbol and occurrence -> place + 1 */
    tocsin_map occurrences;       /* symbol -> how often this rank had it */
    tocsin_arena window;
    tocsin_meetings no_meetings;
    tocsin_whole_account account;
    int64_t step;
    bool complete;
};

/* ---- places ---------------------------------------------------------------------------------- */

static uint64_t course_at(const tocsin_whole *whole, uint32_t index)
{
    const place *at = &whole->places.items[index];
    return at->first == TOCSIN_ALIGN_NONE ? 0 : whole->members.items[at->first].boundary->course;
}

/* Behind which place a boundary goes that no lower rank has. Where a rank comes into another phase
 * it may be a later stage of a pipeline: its forward pass follows that of the lower ranks, its
 * backward pass comes before theirs. */
static uint32_t predecessor(const tocsin_whole *whole, uint32_t cursor,
                            const tocsin_boundary *boundary)
{
    if (course_at(whole, cursor) == boundary->course)
        return cursor;
    for (uint32_t next; (next = whole->places.items[cursor].next) != TOCSIN_ALIGN_NONE;
         cursor = next) {
        uint64_t course = course_at(whole, next);
        if (course > boundary->course || (course == boundary->course && boundary->backward))
            break;
    }
    return cursor;
}

/* The place of the next occurrence of this symbol in the rank at hand; a new one stands behind
 * *cursor, or later. *cursor becomes it. false: out of memory. */
static bool find_place(tocsin_whole *whole, uint32_t symbol, const tocsin_boundary *boundary,
                       uint32_t *cursor)
{
    uint64_t *occurrence = tocsin_map_at(&whole->occurrences, symbol);
    if (!occurrence)
        return false;
    uint64_t *found =
        tocsin_map_at(&whole->by_symbol, (uint64_t)symbol << 32 | (uint32_t)(*occurrence)++);
    if (!found)
        return false;
    if (*found == 0) {
        uint32_t index = (uint32_t)whole->places.count;
        *cursor = predecessor(whole, *cursor, boundary);
        place made = {.symbol = symbol,
                      .first = TOCSIN_ALIGN_NONE,
                      .last = TOCSIN_ALIGN_NONE,
                      .next = whole->places.items[*cursor].next};
        if (!TOCSIN_VEC_PUSH(&whole->places, made))
            return false;
        *found = index + 1u;
        whole->places.items[*cursor].next = index;
    }
    *cursor = (uint32_t)(*found - 1);
    return true;
}

/* Boundaries of one rank come behind the place that stands for the start (index 0). */
static bool add_rank(tocsin_whole *whole, uint32_t rank, const tocsin_boundary_stream *stream)
{
    uint32_t cursor = 0;
    tocsin_map_clear(&whole->occurrences);
    for (size_t k = 0; k < stream->items.count; ++k) {
        if (!find_place(whole, stream->items.items[k].symbol, &stream->boundaries.items[k],
                        &cursor))
            return false;
        place *at = &whole->places.items[cursor];
        uint32_t index = (uint32_t)whole->members.count;
        member one = {.boundary = &stream->boundaries.items[k],
                      .value = stream->items.items[k].value,
                      .rank = rank,
                      .next = TOCSIN_ALIGN_NONE};
        if (!TOCSIN_VEC_PUSH(&whole->members, one))
            return false;
        if (at->count++ == 0)
            at->first = index;
        else
            whole->members.items[at->last].next = index;
        at->last = index;
    }
    return true;
}

static const member *first_of(const tocsin_whole *whole, const place *at)
{
    return &whole->members.items[at->first];
}

static const member *next_of(const tocsin_whole *whole, const member *one)
{
    return one->next == TOCSIN_ALIGN_NONE ? NULL : &whole->members.items[one->next];
}

static int64_t rank_of(const tocsin_whole *whole, const member *one)
{
    return tocsin_boundary_reader_rank(whole->readers[one->rank]);
}

/* ---- composing ------------------------------------------------------------------------------- */

/* There, but with no value that could be compared. */
static void give_up(tocsin_whole *whole, tocsin_boundary *boundary, tocsin_incomparable reason)
{
    boundary->digested = false;
    boundary->text = NULL;
    boundary->present = true;
    ++whole->account.incomparable[reason];
}

static tocsin_boundary without_texts(const tocsin_boundary *boundary)
{
    tocsin_boundary kept = *boundary;
    kept.text = NULL;
    kept.chain = NULL;
    kept.shards = NULL;
    kept.shard_count = 0;
    return kept;
}

/* Once for each variable. */
static bool add_replicas(tocsin_whole *whole, const member *a, const member *b)
{
    tocsin_whole_account *account = &whole->account;
    for (size_t r = 0; r < account->replicas.count; ++r) {
        const tocsin_boundary *known = &account->replicas.items[r].a;
        if (known->name == a->boundary->name && known->attribute == a->boundary->attribute) {
            ++account->replicas.items[r].count;
            return true;
        }
    }
    if (account->replicas.count == TOCSIN_WHOLE_REPLICAS_MAX)
        return true;
    tocsin_replicas_found found = {.a = without_texts(a->boundary),
                                   .b = without_texts(b->boundary),
                                   .step = whole->step,
                                   .rank_a = rank_of(whole, a),
                                   .rank_b = rank_of(whole, b),
                                   .count = 1};
    return TOCSIN_VEC_PUSH(&account->replicas, found);
}

/* Were digests of none taken? Then nothing is lost. */
static bool are_unread(const tocsin_whole *whole, const place *at)
{
    for (const member *one = first_of(whole, at); one; one = next_of(whole, one)) {
        if (one->value != 0)
            return false;
    }
    return true;
}

/* Are all members pieces of one tensor, with digests? */
static bool are_alike(const tocsin_whole *whole, const place *at, tocsin_incomparable *reason)
{
    const tocsin_boundary *first = first_of(whole, at)->boundary;
    for (const member *one = first_of(whole, at); one; one = next_of(whole, one)) {
        const tocsin_boundary *boundary = one->boundary;
        *reason = boundary->partial ? TOCSIN_INCOMPARABLE_PARTIAL : TOCSIN_INCOMPARABLE_LAYOUT;
        if (boundary->partial || boundary->whole == 0 || boundary->whole != first->whole ||
            boundary->dtype != first->dtype || boundary->ndim != first->ndim)
            return false;
        *reason = TOCSIN_INCOMPARABLE_UNREAD;
        if (!boundary->digested)
            return false;
    }
    return true;
}

/* The boxes of all members that hold something, sorted. */
static bool gather_boxes(tocsin_whole *whole, const place *at)
{
    whole->boxes.count = 0;
    for (uint32_t m = at->first; m != TOCSIN_ALIGN_NONE; m = whole->members.items[m].next) {
        if (!TOCSIN_VEC_RESERVE(&whole->boxes, 1))
            return false;
        tocsin_box *box = &whole->boxes.items[whole->boxes.count];
        box->member = m;
        whole->boxes.count += tocsin_shard_box(whole->names, whole->members.items[m].boundary, box);
    }
    tocsin_boxes_sort(whole->boxes.items, whole->boxes.count);
    return true;
}

static const member *member_of(const tocsin_whole *whole, size_t box)
{
    return &whole->members.items[whole->boxes.items[box].member];
}

/* Two members with one box and other bits: *other; NULL: there are none. */
static const member *find_unlike(const tocsin_whole *whole, const member **other)
{
    for (size_t b = 1; b < whole->boxes.count; ++b) {
        if (tocsin_box_equals(&whole->boxes.items[b - 1], &whole->boxes.items[b]) &&
            member_of(whole, b - 1)->value != member_of(whole, b)->value) {
            *other = member_of(whole, b);
            return member_of(whole, b - 1);
        }
    }
    return NULL;
}

/* The sum of the boxes, equal ones once. */
static void merge_boxes(const tocsin_whole *whole, tocsin_boundary *sum)
{
    sum->digest = (tocsin_digest){0};
    sum->statistics = (tocsin_statistics){0};
    for (size_t b = 0; b < whole->boxes.count; ++b) {
        const tocsin_boundary *piece = member_of(whole, b)->boundary;
        if (b > 0 && tocsin_box_equals(&whole->boxes.items[b - 1], &whole->boxes.items[b]))
            continue;
        sum->digest = tocsin_digest_merge(sum->digest, piece->digest);
        sum->statistics = tocsin_statistics_merge(sum->statistics, piece->statistics);
    }
}

/* Add pieces up. false: out of memory. */
static bool compose_pieces(tocsin_whole *whole, const place *at, tocsin_boundary *sum)
{
    tocsin_incomparable reason;
    int64_t sizes[TOCSIN_NDIM_MAX];
    bool alike = are_alike(whole, at, &reason);
    if (alike && !gather_boxes(whole, at))
        return false;
    if (alike) {
        for (uint32_t axis = 0; axis < sum->ndim; ++axis)
            sizes[axis] = tocsin_shard_axis(whole->names, sum->whole, axis);
        tocsin_tiling tiling =
            tocsin_boxes_tile(whole->boxes.items, whole->boxes.count, sizes, sum->ndim);
        alike = tiling == TOCSIN_TILING_EXACT;
        reason = tiling == TOCSIN_TILING_INCOMPLETE ? TOCSIN_INCOMPARABLE_MISSING
                                                    : TOCSIN_INCOMPARABLE_LAYOUT;
    }
    const member *b = NULL, *a = alike ? find_unlike(whole, &b) : NULL;
    if (a) {
        alike = false;
        reason = TOCSIN_INCOMPARABLE_REPLICAS;
        if (!add_replicas(whole, a, b))
            return false;
    }
    if (alike)
        merge_boxes(whole, sum);
    else if (!are_unread(whole, at))
        give_up(whole, sum, reason);
    if (sum->whole)
        sum->shape = sum->whole;
    sum->whole = sum->offset = 0;
    return true;
}

/* A member unlike the first one; NULL: all are equal. */
static const member *find_other(const tocsin_whole *whole, const place *at)
{
    uint64_t value = first_of(whole, at)->value;
    for (const member *one = first_of(whole, at); one; one = next_of(whole, one)) {
        if (one->value != value)
            return one;
    }
    return NULL;
}

/* What is whole on each rank. */
static bool compose_copies(tocsin_whole *whole, const place *at, tocsin_boundary *sum)
{
    const member *first = first_of(whole, at), *other = find_other(whole, at);
    if (!other)
        return true;
    bool replicas = sum->replica && other->boundary->replica && first->value && other->value;
    give_up(whole, sum, replicas ? TOCSIN_INCOMPARABLE_REPLICAS : TOCSIN_INCOMPARABLE_LOCAL);
    return !replicas || add_replicas(whole, first, other);
}

static bool has_pieces(const tocsin_whole *whole, const place *at)
{
    for (const member *one = first_of(whole, at); one; one = next_of(whole, one)) {
        if (one->boundary->whole || one->boundary->partial)
            return true;
    }
    return false;
}

/* Which rank holds which part. */
static bool note_shards(tocsin_whole *whole, const place *at, tocsin_boundary *sum)
{
    tocsin_shard *shards = TOCSIN_ARENA_ARRAY(&whole->window, tocsin_shard, at->count);
    if (!shards)
        return false;
    for (const member *one = first_of(whole, at); one; one = next_of(whole, one)) {
        bool piece = one->boundary->whole != 0;
        if (rank_of(whole, one) < 0)
            continue; /* a process alone */
        shards[sum->shard_count++] = (tocsin_shard){.rank = rank_of(whole, one),
                                                    .shape = piece ? one->boundary->shape : 0,
                                                    .offset = piece ? one->boundary->offset : 0};
    }
    sum->shards = shards;
    return true;
}

/* One boundary of all members of a place. What is only on a later rank belongs to the point before
 * it, if it is of the same call. */
static bool compose(tocsin_whole *whole, const place *at, tocsin_boundary_stream *stream)
{
    const member *first = first_of(whole, at);
    tocsin_boundary sum = *first->boundary;
    bool condition = sum.generator || sum.setting;
    bool ok = true;
    if (first->rank > 0) {
        const tocsin_boundary *before =
            stream->boundaries.count ? &stream->boundaries.items[stream->boundaries.count - 1]
                                     : NULL;
        bool joined = before && before->operation == sum.operation && before->phase == sum.phase &&
                      ((before->point ^ sum.point) & 3) == 0;
        sum.point = joined ? before->point : sum.point | (uint64_t)first->rank << 48;
    }
    whole->account.boundaries += at->count > 1;
    if (!condition && has_pieces(whole, at))
        ok = compose_pieces(whole, at, &sum);
    else if (!condition)
        ok = compose_copies(whole, at, &sum);
    tocsin_align_item item;
    return ok && note_shards(whole, at, &sum) &&
           tocsin_boundary_make_item(&sum, whole->options, whole->names, at->symbol, &item) &&
           TOCSIN_VEC_PUSH(&stream->items, item) && TOCSIN_VEC_PUSH(&stream->boundaries, sum);
}

static bool compose_thread(tocsin_whole *whole, size_t thread)
{
    place start = {.first = TOCSIN_ALIGN_NONE, .next = TOCSIN_ALIGN_NONE};
    whole->places.count = whole->members.count = 0;
    tocsin_map_clear(&whole->by_symbol);
    if (!TOCSIN_VEC_PUSH(&whole->places, start))
        return false;
    for (size_t r = 0; r < whole->count; ++r) {
        if (thread < tocsin_boundary_reader_stream_count(whole->readers[r]) &&
            !add_rank(whole, (uint32_t)r, tocsin_boundary_reader_stream(whole->readers[r], thread)))
            return false;
    }
    tocsin_boundary_stream *stream = &whole->streams.items[thread];
    stream->items.count = stream->boundaries.count = 0;
    for (uint32_t p = whole->places.items[0].next; p != TOCSIN_ALIGN_NONE;
         p = whole->places.items[p].next) {
        if (!compose(whole, &whole->places.items[p], stream))
            return false;
    }
    return true;
}

static tocsin_status compose_step(tocsin_whole *whole, tocsin_error *error)
{
    size_t threads = 0;
    for (size_t r = 0; r < whole->count; ++r) {
        size_t count = tocsin_boundary_reader_stream_count(whole->readers[r]);
        threads = count > threads ? count : threads;
    }
    tocsin_arena_reset(&whole->window);
    while (whole->streams.count < threads) {
        if (!TOCSIN_VEC_PUSH(&whole->streams, (tocsin_boundary_stream){0}))
            return tocsin_error_memory(error);
    }
    for (size_t t = 0; t < threads; ++t) {
        if (!compose_thread(whole, t))
            return tocsin_error_memory(error);
    }
    return TOCSIN_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

tocsin_status tocsin_whole_new(tocsin_trace *const *traces, size_t count, bool compose,
                               tocsin_intern *names, const tocsin_align_options *options,
                               tocsin_whole **whole, tocsin_error *error)
{
    assert(count > 0 && (compose || count == 1));
    *whole = NULL;
    if (count > TOCSIN_WHOLE_RANKS_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "a run has more than %d ranks",
                                TOCSIN_WHOLE_RANKS_MAX);
    tocsin_whole *made = tocsin_zalloc(1, sizeof *made);
    if (!made)
        return tocsin_error_memory(error);
    made->compose = compose;
    made->names = names;
    made->options = options;
    made->readers = tocsin_zalloc(count, sizeof(tocsin_boundary_reader *));
    tocsin_status status = made->readers ? TOCSIN_OK : tocsin_error_memory(error);
    for (; status == TOCSIN_OK && made->count < count; ++made->count)
        status = tocsin_boundary_reader_new(traces[made->count], names, options,
                                            &made->readers[made->count], error);
    if (status == TOCSIN_OK)
        *whole = made;
    else
        tocsin_whole_free(made);
    return status;
}

void tocsin_whole_free(tocsin_whole *whole)
{
    if (!whole)
        return;
    for (size_t r = 0; r < whole->count; ++r)
        tocsin_boundary_reader_free(whole->readers[r]);
    for (size_t t = 0; t < whole->streams.count; ++t) {
        TOCSIN_VEC_FREE(&whole->streams.items[t].items);
        TOCSIN_VEC_FREE(&whole->streams.items[t].boundaries);
    }
    tocsin_free(whole->readers);
    TOCSIN_VEC_FREE(&whole->streams);
    TOCSIN_VEC_FREE(&whole->places);
    TOCSIN_VEC_FREE(&whole->members);
    TOCSIN_VEC_FREE(&whole->boxes);
    TOCSIN_VEC_FREE(&whole->account.replicas);
    tocsin_map_free(&whole->by_symbol);
    tocsin_map_free(&whole->occurrences);
    tocsin_arena_free(&whole->window);
    tocsin_free(whole);
}

tocsin_status tocsin_whole_step(tocsin_whole *whole, bool *more, tocsin_error *error)
{
    bool all = true;
    whole->complete = true;
    ++whole->step;
    for (size_t r = 0; r < whole->count; ++r) {
        bool further;
        TOCSIN_TRY(tocsin_boundary_reader_step(whole->readers[r], &further, error));
        all = all && further;
        whole->complete = whole->complete && tocsin_boundary_reader_complete(whole->readers[r]);
    }
    *more = all;
    return whole->compose && all ? compose_step(whole, error) : TOCSIN_OK;
}

size_t tocsin_whole_stream_count(const tocsin_whole *whole)
{
    return whole->compose ? whole->streams.count
                          : tocsin_boundary_reader_stream_count(whole->readers[0]);
}

const tocsin_boundary_stream *tocsin_whole_stream(const tocsin_whole *whole, size_t thread)
{
    return whole->compose ? &whole->streams.items[thread]
                          : tocsin_boundary_reader_stream(whole->readers[0], thread);
}

const tocsin_meetings *tocsin_whole_meetings(const tocsin_whole *whole)
{
    return whole->compose ? &whole->no_meetings
                          : tocsin_boundary_reader_meetings(whole->readers[0]);
}

bool tocsin_whole_complete(const tocsin_whole *whole)
{
    return whole->complete;
}

uint64_t tocsin_whole_events(const tocsin_whole *whole)
{
    uint64_t events = 0;
    for (size_t r = 0; r < whole->count; ++r)
        events += tocsin_boundary_reader_events(whole->readers[r]);
    return events;
}

int64_t tocsin_whole_rank(const tocsin_whole *whole)
{
    return whole->compose ? -1 : tocsin_boundary_reader_rank(whole->readers[0]);
}

const tocsin_whole_account *tocsin_whole_get_account(const tocsin_whole *whole)
{
    return &whole->account;
}
