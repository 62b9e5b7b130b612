/* map.c - uint64_t -> uint64_t.
 *
 * Data structure: slots of (key, value), open addressing, linear probing from the mixed key. Key 0
 * marks an empty slot, so the entry of key 0 stands in the map itself. Removal shifts later members
 * of the probe run back instead of leaving tombstones. Invariant: at most 3/4 of the slots are in
 * use, and no empty slot lies between a key's home slot and its place. Cost: O(1) expected; 16
 * bytes a slot.
 */
#include <assert.h>
#include <base/base.h>

struct tocsin_map_slot {
    uint64_t key;
    uint64_t value;
};

static size_t home_of(const tocsin_map *map, uint64_t key)
{
    return (size_t)tocsin_mix64(key) & (map->capacity - 1);
}

/* The slot that holds `key`, or the empty slot where it belongs. */
static struct tocsin_map_slot *probe(const tocsin_map *map, uint64_t key)
{
    assert(key != 0);
    assert(map->capacity > 0);
    size_t index = home_of(map, key);
    while (map->slots[index].key != 0 && map->slots[index].key != key)
        index = (index + 1) & (map->capacity - 1);
    return &map->slots[index];
}

uint64_t *tocsin_map_find(const tocsin_map *map, uint64_t key)
{
    if (key == 0)
        return map->has_zero ? (uint64_t *)&map->zero_value : NULL;
    if (map->capacity == 0)
        return NULL;
    struct tocsin_map_slot *slot = probe(map, key);
    return slot->key == key ? &slot->value : NULL;
}

static bool reserve_one(tocsin_map *map)
{
    if ((map->count + 1) <= map->capacity / 4 * 3)
        return true;
    if (map->capacity > SIZE_MAX / 2)
        return false;
    tocsin_map grown = *map;
    grown.capacity = map->capacity ? map->capacity * 2 : 16;
    grown.slots = tocsin_zalloc(grown.capacity, sizeof *grown.slots);
    if (!grown.slots)
        return false;
    for (size_t i = 0; i < map->capacity; ++i) {
        if (map->slots[i].key != 0)
            *probe(&grown, map->slots[i].key) = map->slots[i];
    }
    tocsin_free(map->slots);
    *map = grown;
    return true;
}

uint64_t *tocsin_map_at(tocsin_map *map, uint64_t key)
{
    uint64_t *value = tocsin_map_find(map, key);
    if (value)
        return value;
    if (key == 0) {
        map->has_zero = true;
        map->zero_value = 0;
        ++map->count;
        return &map->zero_value;
    }
    if (!reserve_one(map))
        return NULL;
    struct tocsin_map_slot *slot = probe(map, key);
    *slot = (struct tocsin_map_slot){.key = key};
    ++map->count;
    return &slot->value;
}

bool tocsin_map_put(tocsin_map *map, uint64_t key, uint64_t value)
{
    uint64_t *place = tocsin_map_at(map, key);
    if (place)
        *place = value;
    return place != NULL;
}

bool tocsin_map_remove(tocsin_map *map, uint64_t key)
{
    if (!tocsin_map_find(map, key))
        return false;
    --map->count;
    if (key == 0) {
        map->has_zero = false;
        return true;
    }
    size_t mask = map->capacity - 1;
    size_t hole = (size_t)(probe(map, key) - map->slots);
    for (size_t next = (hole + 1) & mask; map->slots[next].key != 0; next = (next + 1) & mask) {
        /* The hole may be filled by an entry whose home is not behind it on the way to `next`. */
        size_t home = home_of(map, map->slots[next].key);
        if (((next - home) & mask) >= ((next - hole) & mask)) {
            map->slots[hole] = map->slots[next];
            hole = next;
        }
    }
    map->slots[hole] = (struct tocsin_map_slot){0};
    return true;
}

bool tocsin_map_next(const tocsin_map *map, size_t *cursor, uint64_t *key, uint64_t **value)
{
    /* Cursor 0 stands for key 0, cursor i + 1 for slot i. */
    if (*cursor == 0) {
        *cursor = 1;
        if (map->has_zero) {
            *key = 0;
            *value = (uint64_t *)&map->zero_value;
            return true;
        }
    }
    while (*cursor <= map->capacity) {
        struct tocsin_map_slot *slot = &map->slots[*cursor - 1];
        ++*cursor;
        if (slot->key != 0) {
            *key = slot->key;
            *value = &slot->value;
            return true;
        }
    }
    return false;
}

void tocsin_map_clear(tocsin_map *map)
{
    if (map->capacity)
        memset(map->slots, 0, map->capacity * sizeof *map->slots);
    map->count = 0;
    map->has_zero = false;
}

void tocsin_map_free(tocsin_map *map)
{
    tocsin_free(map->slots);
    *map = (tocsin_map){0};
}
