/* cuts.c - a parameter as a part of another framework's tensor, digested as such.
 *
 * q, k and v of one framework are one tensor in another, in which rows of them alternate by group.
 * Seen with one more axis, [groups, rows of a group, ...], each of them is a box of that tensor,
 * and boxes can be digested so that they add up. Exchanged axes are strides in another order.
 * Nothing is copied. Cost: one more pass over the memory of these parameters, only if a map was
 * asked for.
 */
#include "cuts.h"

#include <math.h>
#include <tocsin/name_map.h>

static tocsin_name_map *map;

PyObject *cuts_load_map(PyObject *module, PyObject *source)
{
    tocsin_error error;
    const char *path = PyUnicode_AsUTF8(source);
    (void)module;
    if (path == NULL)
        return NULL;
    tocsin_name_map_free(map);
    if (tocsin_name_map_load(path, &map, &error) != TOCSIN_OK)
        return PyErr_Format(PyExc_ValueError, "%s", error.message);
    Py_RETURN_NONE;
}

PyObject *cuts_find_name(PyObject *module, PyObject *name)
{
    tocsin_mapped_name found;
    const char *text = PyUnicode_AsUTF8(name);
    (void)module;
    if (text == NULL)
        return NULL;
    if (map == NULL || !tocsin_name_map_look_up(map, text, &found))
        Py_RETURN_NONE;
    return Py_BuildValue("sIIs", found.whole, found.part, found.parts, found.layout);
}

bool cut_read(PyObject *object, tocsin_trace_writer *writer, tensor_cut *cut)
{
    const char *name;
    long long groups, total, before;
    *cut = (tensor_cut){.groups = 0};
    if (object == Py_None)
        return true;
    if (!PyArg_ParseTuple(object, "sLLL", &name, &groups, &total, &before))
        return false;
    *cut = (tensor_cut){
        .variable = tocsin_trace_define_variable(writer, name, TOCSIN_VARIABLE_BOUNDARY, "part"),
        .groups = groups,
        .total = total,
        .before = before};
    return true;
}

typedef struct cut_box {
    uint32_t ndim;
    int64_t shape[TOCSIN_NDIM_MAX], strides[TOCSIN_NDIM_MAX];
    int64_t whole[TOCSIN_NDIM_MAX], offset[TOCSIN_NDIM_MAX];
} cut_box;

static bool cut_axis(const tensor_cut *cut, const tensor_meta *meta, cut_box *box)
{
    if (meta->ndim == 0 || meta->ndim + 1 > TOCSIN_NDIM_MAX || meta->sizes[0] % cut->groups != 0)
        return false;
    int64_t rows = meta->sizes[0] / cut->groups;
    if (cut->before + rows > cut->total)
        return false;
    *box = (cut_box){.ndim = meta->ndim + 1};
    for (uint32_t axis = 1; axis < meta->ndim; axis++) {
        box->shape[axis + 1] = box->whole[axis + 1] = meta->sizes[axis];
        box->strides[axis + 1] = meta->strides[axis];
    }
    box->shape[0] = box->whole[0] = cut->groups;
    box->strides[0] = rows * meta->strides[0];
    box->shape[1] = rows;
    box->strides[1] = meta->strides[0];
    box->whole[1] = cut->total;
    box->offset[1] = cut->before;
    return true;
}

static bool exchange_axes(const tensor_meta *meta, cut_box *box)
{
    if (meta->ndim != 2)
        return false;
    *box = (cut_box){.ndim = 2};
    for (uint32_t axis = 0; axis < 2; axis++) {
        box->shape[axis] = box->whole[axis] = meta->sizes[1 - axis];
        box->strides[axis] = meta->strides[1 - axis];
    }
    return true;
}

void cut_emit(const tensor_cut *cut, tocsin_trace_writer *writer, tocsin_attribute attribute,
              tocsin_moment moment, const tensor_meta *meta)
{
    cut_box box;
    value_list list;
    if (!(cut->groups > 0 ? cut_axis(cut, meta, &box) : exchange_axes(meta, &box)))
        return;
    value_list_begin(&list, TOCSIN_ROLE_NONE);
    if (2 * box.ndim > TOCSIN_EVENT_VALUES_MAX)
        return;
    tocsin_id whole = value_text_id(writer, "whole"), offset = value_text_id(writer, "offset");
    for (uint32_t axis = 0; axis < box.ndim; axis++)
        value_append_int(&list, whole, box.whole[axis]);
    for (uint32_t axis = 0; axis < box.ndim; axis++)
        value_append_int(&list, offset, box.offset[axis]);
    tocsin_tensor_view view = {.data = meta->data,
                               .dtype = (tocsin_dtype)meta->dtype,
                               .ndim = box.ndim,
                               .shape = box.shape,
                               .strides = box.strides,
                               .global_shape = box.whole,
                               .offset = box.offset};
    tocsin_sample sample = {.variable = cut->variable,
                            .attribute = attribute,
                            .moment = moment,
                            .flags = TOCSIN_STATE_PRESENT | TOCSIN_STATE_PIECE,
                            .lr = Py_NAN,
                            .dtype = (tocsin_dtype)meta->dtype,
                            .ndim = box.ndim,
                            .shape = box.shape,
                            .values = list.items,
                            .value_count = list.count,
                            .view = &view};
    (void)tocsin_recorder_sample(observe_recorder, &sample, NULL);
}
