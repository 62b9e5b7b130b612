/* arena.c - bump allocation from a chain of chunks.
 *
 * Data structure: a singly linked list of chunks, newest first; only the newest is allocated from.
 * An item larger than a chunk gets a chunk of its own size. Invariant: used_bytes is the sum of
 * `used` over all chunks. Cost: one comparison and an addition per item; resetting frees the chunks
 * that are newer than the mark.
 */
#include <assert.h>
#include <base/base.h>
#include <stddef.h>

#define CHUNK_BYTES_DEFAULT ((size_t)64 * 1024)
#define ALIGN_MAX           ((size_t)4096)

struct tocsin_arena_chunk {
    struct tocsin_arena_chunk *older;
    size_t bytes; /* of data[] */
    size_t used;
    _Alignas(max_align_t) unsigned char data[];
};

static size_t padding_for(const struct tocsin_arena_chunk *chunk, size_t align)
{
    uintptr_t next = (uintptr_t)(chunk->data + chunk->used);
    return (size_t)(-next & (align - 1));
}

static bool fits(const struct tocsin_arena_chunk *chunk, size_t bytes, size_t align)
{
    size_t padding = padding_for(chunk, align);
    size_t left = chunk->bytes - chunk->used;
    return padding <= left && bytes <= left - padding;
}

static bool add_chunk(tocsin_arena *arena, size_t bytes, size_t align)
{
    size_t chunk_bytes = arena->chunk_bytes ? arena->chunk_bytes : CHUNK_BYTES_DEFAULT;
    if (bytes > PTRDIFF_MAX - 2 * ALIGN_MAX)
        return false;
    if (chunk_bytes < bytes + align)
        chunk_bytes = bytes + align;
    struct tocsin_arena_chunk *chunk = tocsin_alloc(sizeof *chunk + chunk_bytes);
    if (!chunk)
        return false;
    *chunk = (struct tocsin_arena_chunk){.older = arena->chunk, .bytes = chunk_bytes};
    arena->chunk = chunk;
    return true;
}

void *tocsin_arena_alloc(tocsin_arena *arena, size_t bytes, size_t align)
{
    assert(align > 0 && (align & (align - 1)) == 0);
    assert(align <= ALIGN_MAX);
    if (!arena->chunk || !fits(arena->chunk, bytes, align)) {
        if (!add_chunk(arena, bytes, align))
            return NULL;
    }
    struct tocsin_arena_chunk *chunk = arena->chunk;
    size_t padding = padding_for(chunk, align);
    void *memory = chunk->data + chunk->used + padding;
    chunk->used += padding + bytes;
    arena->used_bytes += padding + bytes;
    return memory;
}

char *tocsin_arena_copy(tocsin_arena *arena, const void *bytes, size_t count)
{
    char *copy = count < SIZE_MAX ? tocsin_arena_alloc(arena, count + 1, 1) : NULL;
    if (!copy)
        return NULL;
    if (count)
        memcpy(copy, bytes, count);
    copy[count] = 0;
    return copy;
}

void *tocsin_arena_copy_items(tocsin_arena *arena, const void *items, size_t count,
                              size_t item_bytes)
{
    void *copy = tocsin_arena_alloc(arena, count * item_bytes + 1, _Alignof(max_align_t));
    if (copy != NULL && count > 0)
        memcpy(copy, items, count * item_bytes);
    return copy;
}

tocsin_arena_mark tocsin_arena_get_mark(const tocsin_arena *arena)
{
    return (tocsin_arena_mark){.chunk = arena->chunk,
                               .chunk_used = arena->chunk ? arena->chunk->used : 0,
                               .used_bytes = arena->used_bytes};
}

static void drop_newest(tocsin_arena *arena)
{
    struct tocsin_arena_chunk *chunk = arena->chunk;
    arena->chunk = chunk->older;
    tocsin_free(chunk);
}

void tocsin_arena_reset_to(tocsin_arena *arena, tocsin_arena_mark mark)
{
    while (arena->chunk != mark.chunk) {
        assert(arena->chunk && "the mark is not of this arena, or is no longer valid");
        drop_newest(arena);
    }
    if (arena->chunk) {
        assert(mark.chunk_used <= arena->chunk->used);
        arena->chunk->used = mark.chunk_used;
    }
    arena->used_bytes = mark.used_bytes;
}

void tocsin_arena_reset(tocsin_arena *arena)
{
    while (arena->chunk && arena->chunk->older)
        drop_newest(arena);
    if (arena->chunk)
        arena->chunk->used = 0;
    arena->used_bytes = 0;
}

void tocsin_arena_free(tocsin_arena *arena)
{
    while (arena->chunk)
        drop_newest(arena);
    arena->used_bytes = 0;
}
