/* lib/align/frontier.c - which of the ranks that parted did so by themselves.
 *
 * Time does not order ranks; communication does. The n-th meeting of a group is one event for all
 * its members: what a member knew when it came in, all may know when they leave. A rank that comes
 * into a meeting parted, or having left an earlier tainted one, taints it. A message is a meeting
 * of two that carries one way. A rank is an origin if it had parted before it left any meeting that
 * others tainted: these are the minimal elements of happens-before (Lamport, CACM 21, 1978) among
 * the ranks' first differences.
 *
 * Cost: linear in meetings for each rank that a taint reaches; they are few, each at most once.
 */
#include "align/align.h"

#include <assert.h>
#include <stdlib.h>

typedef struct attendance {
    uint64_t meeting; /* group and ordinal */
    uint32_t rank;    /* index of the parting */
    uint32_t at;      /* which of its meetings */
    tocsin_meeting_kind kind;
} attendance;
typedef TOCSIN_VEC(attendance) attendances;

static int order_attendances(const void *left, const void *right)
{
    const attendance *a = left, *b = right;
    if (a->meeting != b->meeting)
        return a->meeting < b->meeting ? -1 : 1;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

/* tainted[r]: the first meeting into which rank r comes tainted; received[r]: how many it has left
 * when it may first have received something from others. Both shrink until nothing changes. */
static bool spread(const attendances *all, size_t *tainted, size_t *received)
{
    bool changed = false;
    for (size_t begin = 0, end; begin < all->count; begin = end) {
        size_t sources = 0, source = 0;
        for (end = begin; end < all->count && all->items[end].meeting == all->items[begin].meeting;
             ++end) {
            const attendance *one = &all->items[end];
            if (one->kind != TOCSIN_MEETING_RECEIVED && one->at >= tainted[one->rank]) {
                ++sources;
                source = one->rank;
            }
        }
        for (size_t k = begin; sources > 0 && k < end; ++k) {
            const attendance *one = &all->items[k];
            if (one->kind == TOCSIN_MEETING_SENT || (sources == 1 && one->rank == source))
                continue; /* nothing comes from others */
            size_t left = (size_t)one->at + 1;
            if (left < received[one->rank]) {
                received[one->rank] = left;
                changed = true;
            }
            if (left < tainted[one->rank]) {
                tainted[one->rank] = left;
                changed = true;
            }
        }
    }
    return changed;
}

tocsin_status tocsin_frontier_find(tocsin_parting *partings, size_t count, tocsin_error *error)
{
    attendances all = {0};
    size_t *tainted = tocsin_zalloc(count, sizeof *tainted);
    size_t *received = tocsin_zalloc(count, sizeof *received);
    bool ok = tainted && received;
    for (size_t r = 0; ok && r < count; ++r) {
        tainted[r] = partings[r].parted;
        received[r] = SIZE_MAX;
        for (size_t m = 0; ok && m < partings[r].meetings.count; ++m) {
            const tocsin_meeting *meeting = &partings[r].meetings.items[m];
            attendance one = {.meeting = (uint64_t)meeting->group << 32 | meeting->ordinal,
                              .rank = (uint32_t)r,
                              .at = (uint32_t)m,
                              .kind = meeting->kind};
            ok = TOCSIN_VEC_PUSH(&all, one);
        }
    }
    if (ok) {
        if (all.count > 0)
            qsort(all.items, all.count, sizeof *all.items, order_attendances);
        while (spread(&all, tainted, received)) {
        }
        for (size_t r = 0; r < count; ++r)
            partings[r].origin = partings[r].parted != SIZE_MAX && received[r] > partings[r].parted;
    }
    TOCSIN_VEC_FREE(&all);
    tocsin_free(tainted);
    tocsin_free(received);
    return ok ? TOCSIN_OK : tocsin_error_memory(error);
}
