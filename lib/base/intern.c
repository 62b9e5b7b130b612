/* intern.c - byte strings to dense ids.
 *
 * Data structure: texts in an arena (so their addresses stay), entries by id, and an
 * open-addressing index of ids with linear probing; the 32-bit hash beside each text spares most
 * comparisons. Invariant: at most half of the index is in use. Cost: O(bytes) per call, nothing is
 * ever removed.
 */
#include <assert.h>
#include <base/base.h>

#define LIMIT_COUNT_DEFAULT (UINT32_C(1) << 24)
#define LIMIT_COUNT_MAX     (UINT32_C(1) << 30)

static uint32_t hash_of(const void *bytes, size_t count)
{
    return (uint32_t)tocsin_hash64(bytes, count, 0);
}

/* The index slot that holds these bytes' id, or the empty one where it belongs. */
static uint32_t *probe(const tocsin_intern *table, uint32_t hash, const void *bytes, size_t count)
{
    assert(table->capacity > 0);
    uint32_t mask = table->capacity - 1;
    for (uint32_t index = hash & mask;; index = (index + 1) & mask) {
        uint32_t id = table->slots[index];
        if (id == 0)
            return &table->slots[index];
        const struct tocsin_intern_entry *entry = &table->entries.items[id - 1];
        if (entry->hash == hash && entry->bytes == count &&
            (count == 0 || memcmp(entry->text, bytes, count) == 0))
            return &table->slots[index];
    }
}

uint32_t tocsin_intern_find(const tocsin_intern *table, const void *bytes, size_t count)
{
    if (table->capacity == 0)
        return 0;
    return *probe(table, hash_of(bytes, count), bytes, count);
}

static bool grow_index(tocsin_intern *table)
{
    uint32_t capacity = table->capacity ? table->capacity * 2 : 64;
    uint32_t *slots = tocsin_zalloc(capacity, sizeof *slots);
    if (!slots)
        return false;
    for (uint32_t i = 0; i < table->entries.count; ++i) {
        uint32_t index = table->entries.items[i].hash & (capacity - 1);
        while (slots[index] != 0)
            index = (index + 1) & (capacity - 1);
        slots[index] = i + 1;
    }
    tocsin_free(table->slots);
    table->slots = slots;
    table->capacity = capacity;
    return true;
}

uint32_t tocsin_intern_put(tocsin_intern *table, const void *bytes, size_t count)
{
    uint32_t limit = table->limit_count ? table->limit_count : LIMIT_COUNT_DEFAULT;
    assert(limit <= LIMIT_COUNT_MAX);
    uint32_t hash = hash_of(bytes, count);
    uint32_t id = table->capacity ? *probe(table, hash, bytes, count) : 0;
    if (id != 0)
        return id;
    if (table->entries.count >= limit || count > UINT32_MAX)
        return 0;
    if (table->entries.count >= table->capacity / 2 && !grow_index(table))
        return 0;
    if (!TOCSIN_VEC_RESERVE(&table->entries, 1))
        return 0;
    const char *text = tocsin_arena_copy(&table->arena, bytes, count);
    if (!text)
        return 0;
    table->entries.items[table->entries.count++] =
        (struct tocsin_intern_entry){.text = text, .bytes = (uint32_t)count, .hash = hash};
    id = (uint32_t)table->entries.count;
    *probe(table, hash, text, count) = id;
    return id;
}

const char *tocsin_intern_text(const tocsin_intern *table, uint32_t id, size_t *count)
{
    if (id == 0 || id > table->entries.count)
        return NULL;
    if (count)
        *count = table->entries.items[id - 1].bytes;
    return table->entries.items[id - 1].text;
}

const char *tocsin_intern_string(const tocsin_intern *table, uint32_t id)
{
    const char *text = tocsin_intern_text(table, id, NULL);
    return text ? text : "";
}

uint32_t tocsin_intern_count(const tocsin_intern *table)
{
    return (uint32_t)table->entries.count;
}

void tocsin_intern_free(tocsin_intern *table)
{
    tocsin_arena_free(&table->arena);
    TOCSIN_VEC_FREE(&table->entries);
    tocsin_free(table->slots);
    table->slots = NULL;
    table->capacity = 0;
}
