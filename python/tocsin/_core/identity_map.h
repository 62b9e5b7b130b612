/* identity_map.h - numbers by the identity of immortal or rarely made Python objects. */
#ifndef TOCSIN_CORE_IDENTITY_MAP_H
#define TOCSIN_CORE_IDENTITY_MAP_H

#include <Python.h>
#include <stdint.h>

/* Object -> uint64_t. Holds a reference to each key, so that an address means one object; when
 * `limit` keys are reached, all are let go and the map starts afresh. Zero is empty. For
 * code objects, interned strings and enum members, never for tensors. Needs the GIL. */
typedef struct identity_map {
    struct identity_slot *slots;
    size_t capacity; /* power of two, or 0 */
    size_t count;
} identity_map;

enum { IDENTITY_MAP_LIMIT = 8192 };

struct identity_slot {
    PyObject *key;
    uint64_t value;
};

static inline size_t identity_hash(const void *key)
{
    return (size_t)(((uint64_t)(uintptr_t)key >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 20);
}

/* The value of `key`, or NULL. */
static inline uint64_t *identity_map_find(const identity_map *map, const PyObject *key)
{
    if (map->capacity == 0)
        return NULL;
    for (size_t at = identity_hash(key);; at++) {
        struct identity_slot *slot = &map->slots[at & (map->capacity - 1)];
        if (slot->key == key)
            return &slot->value;
        if (slot->key == NULL)
            return NULL;
    }
}

/* Remember key -> value. Without memory nothing is remembered. */
void identity_map_put(identity_map *map, PyObject *key, uint64_t value);
void identity_map_clear(identity_map *map);

#endif
