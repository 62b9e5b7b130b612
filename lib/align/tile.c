/* lib/align/tile.c - rows of a tensor that were read by themselves, and which of them differ.
 *
 * The recorder writes the tiles of a tensor after its state (lib/record/tiles.c). They are no
 * boundaries: they hang on the one before them. A tile's digest is in the coordinates of the whole
 * tensor, so one word that differs in a tile is found as one of the whole is.
 */
#include "align/align.h"

/* Sizes that are interned as bytes need not be aligned. */
static int64_t size_at(const char *sizes, uint32_t axis)
{
    int64_t size;
    memcpy(&size, sizes + axis * sizeof size, sizeof size);
    return size;
}

/* The axis along which a tensor of shape `local` was cut; -1: this is no tile of it. */
static int axis_of(const tocsin_event *event, const int64_t *sizes, const char *local,
                   uint32_t ndim)
{
    int axis = -1;
    if (!sizes || !local || event->value_count != 1 + 2 * ndim)
        return -1;
    for (uint32_t v = 0; v < event->value_count; ++v) {
        if (event->values[v].kind != TOCSIN_VALUE_INT)
            return -1;
    }
    for (uint32_t k = 0; k < ndim; ++k) {
        int64_t whole = event->values[1 + k].as.integer;
        int64_t offset = event->values[1 + ndim + k].as.integer;
        bool cut = sizes[k] != size_at(local, k);
        if (offset < 0 || sizes[k] < 0 || whole < sizes[k] || offset > whole - sizes[k] ||
            (cut && axis >= 0))
            return -1;
        if (cut)
            axis = (int)k;
    }
    return axis;
}

/* The interned sizes of a shape of so many axes, or NULL. */
static const char *interned_sizes(const tocsin_intern *names, uint32_t shape, uint32_t ndim)
{
    size_t bytes = 0;
    const char *sizes = shape ? tocsin_intern_text(names, shape, &bytes) : NULL;
    return ndim > 0 && bytes == ndim * sizeof(int64_t) ? sizes : NULL;
}

bool tocsin_tile_is(const tocsin_trace *trace, const tocsin_event *event)
{
    return (event->state.flags & TOCSIN_STATE_PIECE) && event->value_count > 0 &&
           strcmp(tocsin_trace_string(trace, event->values[0].name), "tile") == 0;
}

bool tocsin_tile_add(const tocsin_trace *trace, const tocsin_intern *names,
                     const tocsin_event *event, tocsin_boundary *boundary, tocsin_arena *arena)
{
    const int64_t *sizes = NULL;
    uint32_t ndim = tocsin_trace_shape(trace, event->state.shape, &sizes);
    int axis = axis_of(event, sizes, interned_sizes(names, boundary->shape, ndim), ndim);
    if (axis < 0 || !(event->state.flags & TOCSIN_STATE_DIGESTED) || ndim != boundary->ndim ||
        boundary->tile_count == TOCSIN_TILES_MAX)
        return true;
    tocsin_tile *tile = TOCSIN_ARENA_NEW(arena, tocsin_tile);
    if (!tile)
        return false;
    *tile = (tocsin_tile){.axis = (uint32_t)axis,
                          .first = event->values[1 + ndim + (uint32_t)axis].as.integer,
                          .rows = sizes[axis],
                          .digest = event->state.digest};
    *(boundary->tiles ? &boundary->last_tile->next : &boundary->tiles) = tile;
    boundary->last_tile = tile;
    ++boundary->tile_count;
    return true;
}

static bool same_digest(const tocsin_digest *a, const tocsin_digest *b)
{
    return a->sum == b->sum && a->polynomial == b->polynomial && a->exclusive == b->exclusive;
}

bool tocsin_tiles_differ(const tocsin_boundary *a, const tocsin_boundary *b, tocsin_arena *arena,
                         tocsin_tiles_found *found)
{
    *found = (tocsin_tiles_found){0};
    if (a->tile_count == 0 || a->tile_count != b->tile_count || a->shape != b->shape)
        return true;
    tocsin_tile_pair *pairs = TOCSIN_ARENA_ARRAY(arena, tocsin_tile_pair, a->tile_count);
    if (!pairs)
        return false;
    const tocsin_tile *y = b->tiles;
    size_t count = 0;
    for (const tocsin_tile *x = a->tiles; x && y; x = x->next, y = y->next) {
        if (x->axis != y->axis || x->first != y->first || x->rows != y->rows)
            return true; /* cut otherwise: nothing can be said */
        if (!same_digest(&x->digest, &y->digest))
            pairs[count++] = (tocsin_tile_pair){.axis = x->axis,
                                                .first = x->first,
                                                .rows = x->rows,
                                                .a = x->digest,
                                                .b = y->digest};
    }
    *found = (tocsin_tiles_found){.pairs = pairs, .count = count, .compared = a->tile_count};
    return true;
}

/* The sizes of a tensor, of a piece those of the whole. NULL with *ok false: out of memory, else:
 * it has none. */
static const int64_t *shape_of(const tocsin_boundary *boundary, const tocsin_intern *names,
                               tocsin_arena *arena, bool *ok)
{
    uint32_t text = boundary->whole ? boundary->whole : boundary->shape;
    const char *sizes = interned_sizes(names, text, boundary->ndim);
    int64_t *shape = sizes ? TOCSIN_ARENA_ARRAY(arena, int64_t, boundary->ndim) : NULL;
    *ok = !sizes || shape;
    if (shape)
        memcpy(shape, sizes, boundary->ndim * sizeof *shape);
    return shape;
}

bool tocsin_tiles_show(const tocsin_difference_found *found, const tocsin_intern *names,
                       uint32_t words, tocsin_arena *arena, tocsin_align_pivot *pivot)
{
    bool ok = true;
    const int64_t *shape =
        found->tiles.compared > 0 ? shape_of(&found->a, names, arena, &ok) : NULL;
    if (!shape)
        return ok;
    uint32_t ndim = found->a.ndim;
    uint64_t word_count = words;
    for (uint32_t axis = 0; axis < ndim; ++axis)
        word_count *= (uint64_t)shape[axis];
    tocsin_align_tile *tiles = TOCSIN_ARENA_ARRAY(arena, tocsin_align_tile, found->tiles.count + 1);
    if (!tiles)
        return false;
    for (size_t t = 0; t < found->tiles.count; ++t) {
        const tocsin_tile_pair *pair = &found->tiles.pairs[t];
        tocsin_align_tile *tile = &tiles[t];
        *tile = (tocsin_align_tile){.axis = pair->axis, .first = pair->first, .rows = pair->rows};
        if (!tocsin_digest_locate(pair->a, pair->b, word_count, &tile->change))
            continue;
        int64_t *index = TOCSIN_ARENA_ARRAY(arena, int64_t, ndim);
        if (!index)
            return false;
        uint64_t element = tile->change.word / words;
        for (uint32_t axis = ndim; axis-- > 0;) {
            index[axis] = (int64_t)(element % (uint64_t)shape[axis]);
            element /= (uint64_t)shape[axis];
        }
        /* A larger difference may pass for one word, but hardly for one of this very tile. */
        tile->located =
            index[pair->axis] >= pair->first && index[pair->axis] - pair->first < pair->rows;
        tile->index = index;
        tile->word = (uint32_t)(tile->change.word % words);
    }
    pivot->tiles = tiles;
    pivot->tile_count = found->tiles.count;
    pivot->tiles_compared = found->tiles.compared;
    pivot->shape = shape;
    pivot->shape_ndim = ndim;
    return true;
}
