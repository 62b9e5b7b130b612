/* identity_map.c - numbers by the identity of Python objects.
 *
 * Data structure: open addressing with linear probing, at most half full.
 * Invariant: each key is referenced by the map, so no other object can have its address.
 * Cost: a look-up is one multiplication and about one cache line.
 */
#include "identity_map.h"

#include <assert.h>
#include <stdbool.h>

void identity_map_clear(identity_map *map)
{
    struct identity_slot *slots = map->slots;
    size_t capacity = map->capacity;
    map->slots = NULL;
    map->capacity = map->count = 0;
    for (size_t i = 0; i < capacity; i++)
        Py_XDECREF(slots[i].key);
    PyMem_Free(slots);
}

static void insert(identity_map *map, PyObject *key, uint64_t value)
{
    size_t at = identity_hash(key);
    assert(map->count < map->capacity);
    while (map->slots[at & (map->capacity - 1)].key != NULL)
        at++;
    map->slots[at & (map->capacity - 1)] = (struct identity_slot){key, value};
    map->count++;
}

static bool grow(identity_map *map)
{
    identity_map larger = {.capacity = map->capacity == 0 ? 64 : map->capacity * 2};
    larger.slots = PyMem_Calloc(larger.capacity, sizeof *larger.slots);
    if (larger.slots == NULL)
        return false;
    for (size_t i = 0; i < map->capacity; i++)
        if (map->slots[i].key != NULL)
            insert(&larger, map->slots[i].key, map->slots[i].value);
    PyMem_Free(map->slots);
    *map = larger;
    return true;
}

void identity_map_put(identity_map *map, PyObject *key, uint64_t value)
{
    uint64_t *known = identity_map_find(map, key);
    if (known != NULL) {
        *known = value;
        return;
    }
    if (map->count >= IDENTITY_MAP_LIMIT)
        identity_map_clear(map);
    if (2 * (map->count + 1) > map->capacity && !grow(map))
        return;
    insert(map, Py_NewRef(key), value);
}
