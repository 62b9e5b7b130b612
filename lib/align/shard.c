/* lib/align/shard.c - where a piece of a tensor lies in the whole, and whether pieces tile it.
 *
 * A recorded piece (tocsin/event.h) says the shape of the whole and where it begins. That is read
 * here, with every number checked: a piece that does not lie inside its whole counts as not
 * digested.
 *
 * Invariant: pieces tile if none is empty, no two overlap, and their volumes add up to the whole's.
 * Cost of tiling: sorting, then comparing those that overlap on the first axis: linear for slices
 * of it, quadratic in ranks where all of them span it.
 */
#include "align/align.h"

#include <stdlib.h>

static const char whole_text[] = "whole", offset_text[] = "offset", partial_text[] = "partial";

bool tocsin_shard_is_place(const tocsin_trace *trace, const tocsin_event *event, uint32_t v)
{
    const char *name = tocsin_trace_string(trace, event->values[v].name);
    return event->kind == TOCSIN_EVENT_STATE && (event->state.flags & TOCSIN_STATE_PIECE) &&
           (strcmp(name, whole_text) == 0 || strcmp(name, offset_text) == 0 ||
            strcmp(name, partial_text) == 0);
}

/* The integers of this name, one for each axis; false: others than that. */
static bool read_axes(const tocsin_trace *trace, const tocsin_event *event, const char *name,
                      int64_t *axes)
{
    uint32_t count = 0;
    for (uint32_t v = 0; v < event->value_count; ++v) {
        const tocsin_value *value = &event->values[v];
        if (strcmp(tocsin_trace_string(trace, value->name), name) != 0)
            continue;
        if (value->kind != TOCSIN_VALUE_INT || count == event->state.ndim)
            return false;
        axes[count++] = value->as.integer;
    }
    return count == event->state.ndim;
}

static const char *pending_reduction(const tocsin_trace *trace, const tocsin_event *event)
{
    for (uint32_t v = 0; v < event->value_count; ++v) {
        const tocsin_value *value = &event->values[v];
        if (value->kind == TOCSIN_VALUE_STRING &&
            strcmp(tocsin_trace_string(trace, value->name), partial_text) == 0)
            return tocsin_trace_string(trace, value->as.text);
    }
    return NULL;
}

static bool lies_inside(const int64_t *whole, const int64_t *offset, const int64_t *shape,
                        uint32_t ndim)
{
    for (uint32_t axis = 0; axis < ndim; ++axis) {
        if (shape[axis] < 0 || offset[axis] < 0 || shape[axis] > whole[axis] ||
            offset[axis] > whole[axis] - shape[axis])
            return false;
    }
    return true;
}

bool tocsin_shard_read(const tocsin_trace *trace, const tocsin_event *event, tocsin_intern *names,
                       tocsin_boundary *boundary)
{
    int64_t whole[TOCSIN_NDIM_MAX], offset[TOCSIN_NDIM_MAX];
    const int64_t *shape = NULL;
    uint32_t ndim = boundary->ndim;
    const char *pending = pending_reduction(trace, event);
    bool known = ndim == 0 || tocsin_trace_shape(trace, event->state.shape, &shape) == ndim;
    known = known && read_axes(trace, event, whole_text, whole) &&
            read_axes(trace, event, offset_text, offset) && lies_inside(whole, offset, shape, ndim);
    if (pending) {
        boundary->partial = tocsin_intern_put(names, pending, strlen(pending));
        if (boundary->partial == 0)
            return false;
    }
    if (!known) {
        boundary->digested = false;
        return true;
    }
    if (ndim == 0 || memcmp(whole, shape, ndim * sizeof *whole) == 0) {
        boundary->replica = true; /* all of it */
        return true;
    }
    boundary->whole = tocsin_intern_put(names, whole, ndim * sizeof *whole);
    boundary->offset = tocsin_intern_put(names, offset, ndim * sizeof *offset);
    return boundary->whole && boundary->offset;
}

int64_t tocsin_shard_axis(const tocsin_intern *names, uint32_t sizes, uint32_t axis)
{
    size_t bytes = 0;
    int64_t size = 0; /* interned bytes need not be aligned */
    const char *text = sizes ? tocsin_intern_text(names, sizes, &bytes) : NULL;
    if (text && (axis + 1) * sizeof size <= bytes)
        memcpy(&size, text + axis * sizeof size, sizeof size);
    return size;
}

/* ---- boxes ----------------------------------------------------------------------------------- */

/* UINT64_MAX: more than that. */
static uint64_t volume_of(const int64_t *sizes, uint32_t ndim)
{
    uint64_t volume = 1;
    for (uint32_t axis = 0; axis < ndim; ++axis) {
        if (__builtin_mul_overflow(volume, (uint64_t)sizes[axis], &volume))
            volume = UINT64_MAX;
        if (sizes[axis] == 0)
            return 0;
    }
    return volume;
}

bool tocsin_shard_box(const tocsin_intern *names, const tocsin_boundary *boundary, tocsin_box *box)
{
    box->ndim = boundary->ndim;
    for (uint32_t axis = 0; axis < box->ndim; ++axis) {
        box->begin[axis] = tocsin_shard_axis(names, boundary->offset, axis);
        box->size[axis] = tocsin_shard_axis(names, boundary->shape, axis);
    }
    return volume_of(box->size, box->ndim) > 0;
}

static int order_boxes(const void *left, const void *right)
{
    const tocsin_box *a = left, *b = right;
    for (uint32_t axis = 0; axis < a->ndim; ++axis) {
        if (a->begin[axis] != b->begin[axis])
            return a->begin[axis] < b->begin[axis] ? -1 : 1;
    }
    for (uint32_t axis = 0; axis < a->ndim; ++axis) {
        if (a->size[axis] != b->size[axis])
            return a->size[axis] < b->size[axis] ? -1 : 1;
    }
    return (a->member > b->member) - (a->member < b->member);
}

bool tocsin_box_equals(const tocsin_box *a, const tocsin_box *b)
{
    size_t bytes = a->ndim * sizeof *a->begin;
    return memcmp(a->begin, b->begin, bytes) == 0 && memcmp(a->size, b->size, bytes) == 0;
}

static bool overlap(const tocsin_box *a, const tocsin_box *b)
{
    for (uint32_t axis = 0; axis < a->ndim; ++axis) {
        if (a->begin[axis] >= b->begin[axis] + b->size[axis] ||
            b->begin[axis] >= a->begin[axis] + a->size[axis])
            return false;
    }
    return true;
}

void tocsin_boxes_sort(tocsin_box *boxes, size_t count)
{
    if (count > 0)
        qsort(boxes, count, sizeof *boxes, order_boxes);
}

tocsin_tiling tocsin_boxes_tile(const tocsin_box *boxes, size_t count, const int64_t *whole,
                                uint32_t ndim)
{
    uint64_t volume = volume_of(whole, ndim), covered = 0;
    for (size_t i = 0; i < count; ++i) {
        if (i > 0 && tocsin_box_equals(&boxes[i - 1], &boxes[i]))
            continue;
        if (__builtin_add_overflow(covered, volume_of(boxes[i].size, ndim), &covered))
            return TOCSIN_TILING_OVERLAPS;
        for (size_t j = i + 1;
             j < count && boxes[j].begin[0] < boxes[i].begin[0] + boxes[i].size[0]; ++j) {
            if (overlap(&boxes[i], &boxes[j]) && !tocsin_box_equals(&boxes[i], &boxes[j]))
                return TOCSIN_TILING_OVERLAPS;
        }
    }
    return covered == volume ? TOCSIN_TILING_EXACT : TOCSIN_TILING_INCOMPLETE;
}

/* ---- layout of a run ------------------------------------------------------------------------- */

static uint64_t layout_of_piece(const tocsin_trace *trace, const tocsin_event *event)
{
    const char *name = tocsin_trace_variable_name(trace, event->state.variable);
    const int64_t *shape = NULL;
    uint32_t ndim = tocsin_trace_shape(trace, event->state.shape, &shape);
    uint64_t hash = tocsin_hash64(name, strlen(name), 0);
    for (uint32_t v = 0; v < event->value_count; ++v) {
        if (event->values[v].kind == TOCSIN_VALUE_INT && tocsin_shard_is_place(trace, event, v))
            hash = tocsin_hash64(&event->values[v].as.integer, sizeof(int64_t), hash);
    }
    return shape ? tocsin_hash64(shape, ndim * sizeof *shape, hash) : hash;
}

static bool is_parameter_piece(const tocsin_trace *trace, const tocsin_event *event)
{
    return event->kind == TOCSIN_EVENT_STATE && (event->state.flags & TOCSIN_STATE_PIECE) &&
           tocsin_trace_variable_kind(trace, event->state.variable) == TOCSIN_VARIABLE_PARAMETER;
}

/* Each piece counts once, however often it was read. */
static tocsin_status add_pieces(tocsin_trace *trace, tocsin_map *seen, uint64_t *layout,
                                tocsin_error *error)
{
    for (;;) {
        const tocsin_event *event;
        TOCSIN_TRY(tocsin_trace_next(trace, &event, error));
        if (!event || (event->kind == TOCSIN_EVENT_EXIT &&
                       tocsin_trace_function_role(trace, event->function) == TOCSIN_ROLE_STEP_END))
            return TOCSIN_OK;
        if (!is_parameter_piece(trace, event))
            continue;
        uint64_t piece = layout_of_piece(trace, event);
        if (tocsin_map_find(seen, piece))
            continue;
        if (!tocsin_map_put(seen, piece, 1))
            return tocsin_error_memory(error);
        *layout += piece;
    }
}

tocsin_status tocsin_shard_layout(const char *path, uint64_t *layout, tocsin_error *error)
{
    tocsin_trace *trace;
    tocsin_map seen = {0};
    *layout = 0;
    TOCSIN_TRY(tocsin_trace_open(path, false, &trace, error));
    tocsin_status status = add_pieces(trace, &seen, layout, error);
    tocsin_map_free(&seen);
    tocsin_trace_close(trace);
    return status;
}
