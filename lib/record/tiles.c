/* tiles.c - in the step that is looked at closely, tensors are also read by tiles.
 *
 * A tile is some rows of the first axis that is longer than one, as a PIECE of its tensor
 * (tocsin/event.h), so that the tiles of two runs say which rows differ, and in which of them one
 * element alone. The named tensor is cut finely, others coarsely, and all of them only while a
 * budget lasts: a step may have many.
 *
 * Cost: a second pass over each tensor of the step, and an event a tile.
 */
#include <assert.h>

#include "record/record.h"

enum {
    NAMED_TILES_MAX = 4096,
    OTHER_TILES_MAX = 64,
    BUDGET = 1 << 17, /* tiles of tensors that are not named, in all */
    AXES_MAX = (TOCSIN_EVENT_VALUES_MAX - 1) / 2
};

tocsin_status tocsin_drill_begin(tocsin_drill *drill, int64_t step, const char *name,
                                 const char *attribute, tocsin_error *error)
{
    *drill = (tocsin_drill){.step = step, .budget = BUDGET};
    drill->name = tocsin_copy_text(name, strlen(name));
    drill->attribute = tocsin_copy_text(attribute, strlen(attribute));
    return drill->name && drill->attribute ? TOCSIN_OK : tocsin_error_memory(error);
}

void tocsin_drill_end(tocsin_drill *drill)
{
    tocsin_free(drill->name);
    tocsin_free(drill->attribute);
    *drill = (tocsin_drill){0};
}

static bool is_named(const tocsin_drill *drill, tocsin_trace_writer *writer,
                     const tocsin_sample *sample)
{
    return strcmp(tocsin_attribute_name(sample->attribute), drill->attribute) == 0 &&
           tocsin_trace_variable_is(writer, sample->variable, drill->name);
}

/* A tensor that is cut along one axis. */
typedef struct tiling {
    const tocsin_sample *sample;
    uint32_t axis;
    int64_t shape[AXES_MAX], strides[AXES_MAX]; /* of a tile */
    int64_t whole[AXES_MAX], offset[AXES_MAX];
    tocsin_id names[3]; /* "tile", "whole", "offset" */
} tiling;

static bool tiling_begin(tiling *cut, tocsin_trace_writer *writer, const tocsin_sample *sample)
{
    const tocsin_tensor_view *view = sample->view;
    static const char *const names[] = {"tile", "whole", "offset"};
    if (view->ndim == 0 || view->ndim > AXES_MAX)
        return false;
    cut->sample = sample;
    cut->axis = 0;
    int64_t stride = 1;
    for (uint32_t axis = view->ndim; axis-- > 0;) {
        cut->shape[axis] = view->shape[axis];
        cut->strides[axis] = view->strides ? view->strides[axis] : stride;
        cut->whole[axis] = view->global_shape ? view->global_shape[axis] : view->shape[axis];
        cut->offset[axis] = view->offset ? view->offset[axis] : 0;
        stride *= view->shape[axis] ? view->shape[axis] : 1;
        if (view->shape[axis] > 1)
            cut->axis = axis;
    }
    for (size_t n = 0; n < TOCSIN_COUNT_OF(names); n++)
        cut->names[n] = tocsin_trace_define_string(writer, names[n], strlen(names[n]));
    return view->shape[cut->axis] > 1;
}

static tocsin_value number(tocsin_id name, int64_t integer)
{
    return (tocsin_value){.kind = TOCSIN_VALUE_INT, .name = name, .as.integer = integer};
}

/* Rows `first` to `first` + `rows` of the sample's tensor. */
static void emit_tile(tiling *cut, tocsin_trace_writer *writer, tocsin_id attribute,
                      int64_t ordinal, int64_t first, int64_t rows)
{
    const tocsin_sample *sample = cut->sample;
    const tocsin_tensor_view *whole = sample->view;
    int64_t at = cut->offset[cut->axis];
    tocsin_value values[1 + 2 * AXES_MAX];
    uint32_t count = 0;
    cut->shape[cut->axis] = rows;
    cut->offset[cut->axis] = at + first;
    values[count++] = number(cut->names[0], ordinal);
    for (uint32_t axis = 0; axis < whole->ndim; axis++)
        values[count++] = number(cut->names[1], cut->whole[axis]);
    for (uint32_t axis = 0; axis < whole->ndim; axis++)
        values[count++] = number(cut->names[2], cut->offset[axis]);
    tocsin_tensor_view view = {.data = (const char *)whole->data +
                                       first * cut->strides[cut->axis] *
                                           (int64_t)tocsin_dtype_bytes(whole->dtype),
                               .dtype = whole->dtype,
                               .ndim = whole->ndim,
                               .shape = cut->shape,
                               .strides = cut->strides,
                               .global_shape = cut->whole,
                               .offset = cut->offset};
    tocsin_event event = {
        .kind = TOCSIN_EVENT_STATE,
        .values = values,
        .value_count = count,
        .state = {.variable = sample->variable,
                  .attribute = attribute,
                  .moment = (uint8_t)sample->moment,
                  .dtype = (uint8_t)sample->dtype,
                  .ndim = (uint8_t)whole->ndim,
                  .flags = sample->flags | TOCSIN_STATE_PRESENT | TOCSIN_STATE_DIGESTED |
                           TOCSIN_STATE_PIECE,
                  .shape = tocsin_trace_define_shape(writer, whole->ndim, cut->shape),
                  .lr = sample->lr}};
    if (tocsin_tensor_digest(&view, &event.state.digest, &event.state.statistics, NULL) ==
        TOCSIN_OK)
        tocsin_trace_emit(writer, &event);
    cut->offset[cut->axis] = at;
}

void tocsin_drill_tiles(tocsin_drill *drill, tocsin_trace_writer *writer, tocsin_id attribute,
                        const tocsin_sample *sample)
{
    tiling cut;
    assert(sample->view);
    if (!tiling_begin(&cut, writer, sample))
        return;
    bool named = is_named(drill, writer, sample);
    int64_t rows = cut.shape[cut.axis], most = named ? NAMED_TILES_MAX : OTHER_TILES_MAX;
    int64_t step = (rows + most - 1) / most, count = (rows + step - 1) / step;
    if (!named && (uint64_t)count > drill->budget)
        return;
    drill->budget -= named ? 0 : (uint64_t)count;
    for (int64_t tile = 0; tile < count; tile++) {
        int64_t first = tile * step;
        emit_tile(&cut, writer, attribute, tile, first, rows - first < step ? rows - first : step);
    }
}
