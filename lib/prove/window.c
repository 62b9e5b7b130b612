/* window.c - the ranges that the digits of logical relations have.
 *
 * Data structure: an intern table of positions (atom, axis, stride, extent) and for each a sorted
 * array of ranges. The range of the whole extent is always a window and is not stored. Cost: one
 * look-up and a binary search per digit of a logical relation, once per relation.
 */
#include <assert.h>

#include "prove/universe.h"

enum { WINDOWS_MAX = 1 << 16 }; /* of one position; further ones are not offered */

struct position {
    tocsin_atom_id atom;
    uint32_t axis;
    int64_t stride, extent;
};

/* Index of the first window that does not come before (count, start). */
static uint32_t lower_bound(const struct tocsin_window_list *list, int64_t start, int64_t count)
{
    uint32_t low = 0, high = list->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const tocsin_window *window = &list->items[middle];
        if (window->count < count || (window->count == count && window->start < start))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool insert(struct tocsin_window_list *list, int64_t start, int64_t count)
{
    uint32_t at = lower_bound(list, start, count);
    if (at < list->count && list->items[at].start == start && list->items[at].count == count)
        return true;
    if (list->count == WINDOWS_MAX)
        return true;
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity ? list->capacity * 2 : 4;
        tocsin_window *items = tocsin_realloc(list->items, capacity, sizeof *items);
        if (!items)
            return false;
        list->items = items;
        list->capacity = capacity;
    }
    memmove(list->items + at + 1, list->items + at, (list->count - at) * sizeof *list->items);
    list->items[at] = (tocsin_window){.start = start, .count = count};
    ++list->count;
    return true;
}

static bool register_digit(tocsin_universe *universe, tocsin_atom_id atom,
                           const tocsin_digit *digit)
{
    if (digit->axis == TOCSIN_DIGIT_BROADCAST || !tocsin_affine_is_constant(&digit->start) ||
        tocsin_range_is_whole(&digit->start, digit->count, digit->extent))
        return true;
    const struct position position = {atom, digit->axis, digit->stride, digit->extent};
    uint32_t key = tocsin_intern_put(&universe->window_keys, &position, sizeof position);
    if (!key)
        return false;
    assert(key <= universe->windows.count + 1);
    if (key > universe->windows.count &&
        !TOCSIN_VEC_PUSH(&universe->windows, (struct tocsin_window_list){0}))
        return false;
    return insert(&universe->windows.items[key - 1], digit->start.base, digit->count);
}

bool tocsin_windows_register(tocsin_universe *universe, const tocsin_relation *relation)
{
    for (uint32_t k = 0; !relation->segmented && k < relation->count; ++k) {
        const tocsin_term *term = &relation->terms[k];
        for (uint32_t i = 0; i < term->digit_total; ++i) {
            if (!register_digit(universe, term->atom, &term->digits[i])) {
                tocsin_universe_fail(universe, TOCSIN_E_MEMORY);
                return false;
            }
        }
    }
    return true;
}

const tocsin_window *tocsin_windows_of(const tocsin_universe *universe, tocsin_atom_id atom,
                                       uint32_t axis, int64_t stride, int64_t extent,
                                       uint32_t *count)
{
    const struct position position = {atom, axis, stride, extent};
    uint32_t key = tocsin_intern_find(&universe->window_keys, &position, sizeof position);
    *count = 0;
    if (!key || key > universe->windows.count)
        return NULL;
    *count = universe->windows.items[key - 1].count;
    return universe->windows.items[key - 1].items;
}
