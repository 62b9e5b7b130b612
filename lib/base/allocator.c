/* allocator.c - the one place from which the library takes heap memory.
 *
 * malloc behind a fault point and a check of the size: PTRDIFF_MAX bounds every object, so sums of
 * sizes of live objects and pointer differences never overflow.
 */
#include <base/base.h>
#include <stdlib.h>

static bool refuse(size_t count, size_t bytes)
{
    size_t total = 0;
    return __builtin_mul_overflow(count, bytes, &total) || total > PTRDIFF_MAX ||
           tocsin_fault_hit(TOCSIN_FAULT_MEMORY);
}

void *tocsin_alloc(size_t bytes)
{
    return refuse(1, bytes) ? NULL : malloc(bytes ? bytes : 1);
}

void *tocsin_zalloc(size_t count, size_t bytes)
{
    bool empty = count == 0 || bytes == 0;
    return refuse(count, bytes) ? NULL : calloc(empty ? 1 : count, empty ? 1 : bytes);
}

void *tocsin_realloc(void *memory, size_t count, size_t bytes)
{
    if (refuse(count, bytes))
        return NULL;
    size_t total = count * bytes;
    return realloc(memory, total ? total : 1);
}

void tocsin_free(void *memory)
{
    free(memory);
}

char *tocsin_copy_text(const char *text, size_t bytes)
{
    char *copy = bytes < SIZE_MAX ? tocsin_alloc(bytes + 1) : NULL;
    if (!copy)
        return NULL;
    if (bytes)
        memcpy(copy, text, bytes);
    copy[bytes] = 0;
    return copy;
}
