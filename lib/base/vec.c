/* vec.c - growth of typed arrays.
 *
 * Capacity doubles, so that n pushes copy fewer than 2n items; sizes are checked before use.
 */
#include <assert.h>
#include <base/base.h>

bool tocsin_vec_grow(void *items, size_t *capacity, size_t count, size_t more, size_t item_bytes)
{
    assert(items && capacity && item_bytes > 0);
    assert(count <= *capacity);
    if (more <= *capacity - count)
        return true;
    size_t needed = 0;
    if (__builtin_add_overflow(count, more, &needed))
        return false;
    size_t grown = *capacity < SIZE_MAX / 2 ? *capacity * 2 : needed;
    if (grown < needed)
        grown = needed;
    if (grown < 8)
        grown = 8;
    /* The address of a typed pointer is read and written bytewise: its type is unknown here. */
    void *old = NULL;
    memcpy(&old, items, sizeof old);
    void *moved = tocsin_realloc(old, grown, item_bytes);
    if (!moved)
        return false;
    memcpy(items, &moved, sizeof moved);
    *capacity = grown;
    return true;
}
