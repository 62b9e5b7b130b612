/* word_table.c - blocks of 64-bit words to dense ids.
 *
 * Data structure: entries by id, and an open-addressing index of ids with linear probing. The hash
 * beside each block spares most comparisons and never stands for one. Invariant: at most half of
 * the index is in use. Cost: O(words) per call; nothing is ever removed.
 */
#include <assert.h>

#include "prove/universe.h"

#define IDS_MAX (UINT32_C(1) << 29)

static uint32_t hash_of(const uint64_t *words, uint32_t count)
{
    return (uint32_t)(tocsin_hash64(words, (size_t)count * sizeof *words, 0) >> 32);
}

/* The index slot that holds the block's id, or the empty one where it belongs. */
static uint32_t *probe(const tocsin_word_table *table, uint32_t hash, const uint64_t *words,
                       uint32_t count)
{
    assert(table->capacity > 0);
    uint32_t mask = table->capacity - 1;
    for (uint32_t index = hash & mask;; index = (index + 1) & mask) {
        uint32_t id = table->slots[index];
        if (id == 0)
            return &table->slots[index];
        const struct tocsin_word_entry *entry = &table->entries.items[id - 1];
        if (entry->hash == hash && entry->count == count &&
            memcmp(entry->words, words, (size_t)count * sizeof *words) == 0)
            return &table->slots[index];
    }
}

uint32_t tocsin_words_find(const tocsin_word_table *table, const uint64_t *words, uint32_t count)
{
    assert(count > 0);
    if (table->capacity == 0)
        return 0;
    return *probe(table, hash_of(words, count), words, count);
}

static bool grow_index(tocsin_word_table *table)
{
    uint32_t capacity = table->capacity ? table->capacity * 2 : 256;
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

uint32_t tocsin_words_put(tocsin_word_table *table, tocsin_arena *arena, const uint64_t *words,
                          uint32_t count, bool *made)
{
    assert(count > 0);
    *made = false;
    if (table->entries.count >= table->capacity / 2 && !grow_index(table))
        return 0;
    uint32_t hash = hash_of(words, count);
    uint32_t *slot = probe(table, hash, words, count);
    if (*slot != 0)
        return *slot;
    size_t bytes = (size_t)count * sizeof *words;
    uint64_t *copy = tocsin_arena_alloc(arena, bytes, _Alignof(uint64_t));
    if (!copy || table->entries.count >= IDS_MAX)
        return 0;
    memcpy(copy, words, bytes);
    if (!TOCSIN_VEC_PUSH(&table->entries, (struct tocsin_word_entry){copy, count, hash}))
        return 0;
    *slot = (uint32_t)table->entries.count;
    *made = true;
    return *slot;
}

void tocsin_words_free(tocsin_word_table *table)
{
    TOCSIN_VEC_FREE(&table->entries);
    tocsin_free(table->slots);
    table->slots = NULL;
    table->capacity = 0;
}
