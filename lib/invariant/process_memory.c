/* What a relation remembers of each process: a block of zeros at first, freed with the map. */
#include <invariant/relation.h>

void *tocsin_process_memory(tocsin_observer *observer, tocsin_map *memories,
                            const tocsin_process *process, size_t bytes)
{
    uint64_t *known = tocsin_map_at(memories, (uint64_t)(uintptr_t)process);
    if (known != NULL && *known == 0)
        *known = (uint64_t)(uintptr_t)tocsin_zalloc(1, bytes);
    if (known == NULL || *known == 0) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    return (void *)(uintptr_t)*known;
}

void tocsin_process_memories_free(tocsin_map *memories)
{
    size_t cursor = 0;
    uint64_t key, *value;
    while (tocsin_map_next(memories, &cursor, &key, &value))
        tocsin_free((void *)(uintptr_t)*value);
    tocsin_map_free(memories);
}
