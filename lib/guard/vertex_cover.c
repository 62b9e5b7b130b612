/* vertex_cover.c - who could have done it, if of each of these pairs one did.
 *
 * Data: the ranks as numbers 0 .. n - 1, the pairs in their order; a rank is inside, outside or
 * open. Search: the first pair without a rank inside; either its first rank is inside, or it is
 * outside and all its partners are inside. Each minimal cover is reached once, as the inside of
 * a leaf. Searched by size, so that the smallest come first however many there are.
 * Cost: bounded by STEPS_MAX; beyond that, or COVERS_MAX, the list is cut and says so.
 */
#include "guard/guard.h"

#include <assert.h>
#include <stdlib.h>

#define STEPS_MAX (1u << 18)
#define RANKS_MAX 256

typedef enum cover_side { OPEN, INSIDE, OUTSIDE } cover_side;

typedef struct cover_search {
    rank_pair pairs[4 * RANKS_MAX]; /* numbers, not ranks */
    size_t pair_count;
    uint32_t ranks[RANKS_MAX]; /* of the numbers, ascending */
    uint32_t count;
    cover_side sides[RANKS_MAX];
    uint32_t trail[RANKS_MAX]; /* numbers that were decided, in order */
    uint32_t decided, inside, size;
    uint32_t steps;
    bool pruned; /* a cover of more than `size` may exist */
    bool failed; /* out of memory */
    cover_list *covers;
} cover_search;

static int compare_ranks(const void *a, const void *b)
{
    const uint32_t *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

static int compare_pairs(const void *a, const void *b)
{
    const rank_pair *left = a, *right = b;
    if (left->a != right->a)
        return left->a < right->a ? -1 : 1;
    return (left->b > right->b) - (left->b < right->b);
}

static uint32_t number_of(const cover_search *search, uint32_t rank)
{
    const uint32_t *found =
        bsearch(&rank, search->ranks, search->count, sizeof rank, compare_ranks);
    return (uint32_t)(found - search->ranks);
}

/* Number the ranks, sort the pairs and drop those that are there twice. false: too many. */
static bool read_pairs(cover_search *search, const rank_pair *pairs, size_t count)
{
    uint32_t ranks[2 * TOCSIN_COUNT_OF(search->pairs)];
    size_t kept = 0;
    if (count > TOCSIN_COUNT_OF(search->pairs))
        return false;
    for (size_t p = 0; p < count; ++p) {
        ranks[2 * p] = pairs[p].a;
        ranks[2 * p + 1] = pairs[p].b;
    }
    qsort(ranks, 2 * count, sizeof *ranks, compare_ranks);
    for (size_t r = 0; r < 2 * count; ++r) {
        if (r > 0 && ranks[r] == ranks[r - 1])
            continue;
        if (search->count == RANKS_MAX)
            return false;
        search->ranks[search->count++] = ranks[r];
    }
    for (size_t p = 0; p < count; ++p) {
        uint32_t a = number_of(search, pairs[p].a), b = number_of(search, pairs[p].b);
        search->pairs[p] = (rank_pair){.a = a < b ? a : b, .b = a < b ? b : a};
    }
    qsort(search->pairs, count, sizeof *search->pairs, compare_pairs);
    for (size_t p = 0; p < count; ++p) {
        if (p == 0 || compare_pairs(&search->pairs[p], &search->pairs[kept - 1]) != 0)
            search->pairs[kept++] = search->pairs[p];
    }
    search->pair_count = kept;
    return true;
}

static void decide(cover_search *search, uint32_t number, cover_side side)
{
    search->sides[number] = side;
    search->trail[search->decided++] = number;
    search->inside += side == INSIDE;
}

static void undo_to(cover_search *search, uint32_t decided)
{
    while (search->decided > decided) {
        uint32_t number = search->trail[--search->decided];
        search->inside -= search->sides[number] == INSIDE;
        search->sides[number] = OPEN;
    }
}

/* Each rank inside has a partner that is not. */
static bool is_minimal(const cover_search *search)
{
    bool needed[RANKS_MAX] = {false};
    uint32_t count = 0;
    for (size_t p = 0; p < search->pair_count; ++p) {
        const rank_pair *pair = &search->pairs[p];
        bool a = search->sides[pair->a] == INSIDE, b = search->sides[pair->b] == INSIDE;
        needed[pair->a] |= a && !b;
        needed[pair->b] |= b && !a;
    }
    for (uint32_t n = 0; n < search->count; ++n)
        count += needed[n];
    return count == search->inside;
}

static void take_cover(cover_search *search)
{
    cover_list *covers = search->covers;
    if (search->inside != search->size || !is_minimal(search))
        return;
    if (covers->ends.count == TOCSIN_GUARD_COVERS_MAX) {
        covers->cut = true;
        return;
    }
    for (uint32_t n = 0; n < search->count; ++n) {
        if (search->sides[n] == INSIDE && !TOCSIN_VEC_PUSH(&covers->ranks, search->ranks[n]))
            search->failed = true;
    }
    if (!TOCSIN_VEC_PUSH(&covers->ends, covers->ranks.count))
        search->failed = true;
}

static const rank_pair *find_uncovered(const cover_search *search)
{
    for (size_t p = 0; p < search->pair_count; ++p) {
        const rank_pair *pair = &search->pairs[p];
        if (search->sides[pair->a] != INSIDE && search->sides[pair->b] != INSIDE)
            return pair;
    }
    return NULL;
}

static void search_covers(cover_search *search)
{
    if (search->inside > search->size) {
        search->pruned = true;
        return;
    }
    if (++search->steps > STEPS_MAX)
        search->covers->cut = true;
    if (search->covers->cut || search->failed)
        return;
    const rank_pair *pair = find_uncovered(search);
    if (!pair) {
        take_cover(search);
        return;
    }
    uint32_t before = search->decided;
    uint32_t branch = pair->a;
    assert(search->sides[branch] == OPEN); /* outside, it would have forced its partner inside */
    decide(search, branch, INSIDE);
    search_covers(search);
    undo_to(search, before);
    decide(search, branch, OUTSIDE);
    for (size_t p = 0; p < search->pair_count; ++p) {
        uint32_t a = search->pairs[p].a, b = search->pairs[p].b;
        uint32_t partner = a == branch ? b : b == branch ? a : branch;
        if (search->sides[partner] == OPEN)
            decide(search, partner, INSIDE);
    }
    search_covers(search);
    undo_to(search, before);
}

bool tocsin_vertex_covers(const rank_pair *pairs, size_t count, cover_list *covers)
{
    *covers = (cover_list){.cut = false};
    if (count == 0)
        return true;
    cover_search *search = tocsin_zalloc(1, sizeof *search);
    if (!search)
        return false;
    search->covers = covers;
    covers->cut = !read_pairs(search, pairs, count);
    search->pruned = true;
    for (search->size = 1; search->pruned && !covers->cut && !search->failed; ++search->size) {
        search->pruned = false;
        search_covers(search);
    }
    bool done = !search->failed;
    tocsin_free(search);
    return done;
}

void tocsin_vertex_covers_free(cover_list *covers)
{
    TOCSIN_VEC_FREE(&covers->ranks);
    TOCSIN_VEC_FREE(&covers->ends);
}
