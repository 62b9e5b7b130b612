/* pieces.c - what one rank holds of a sharded tensor, as a state of its own.
 *
 * A DTensor is a tensor of another class; its memory is the local tensor's. pieces.py says where
 * that lies in the whole, and the digest is computed in the whole's coordinates, so that the pieces
 * of all ranks add up (tocsin/event.h). A DTensor is recognised by its class, which is looked up
 * once torch has imported it.
 *
 * Cost: a comparison of names for each tensor of another class; a DTensor takes a call into Python,
 * about 5 us, beside its digest.
 */
#include "pieces.h"

#include <string.h>

static PyObject *reader;
static PyTypeObject *sharded_type; /* DTensor; NULL: not seen yet */

void pieces_set_reader(PyObject *function)
{
    Py_XSETREF(reader, Py_XNewRef(function));
}

/* The class that torch calls DTensor, or NULL. */
static PyTypeObject *find_type(void)
{
    PyObject *modules = PyImport_GetModuleDict(); /* borrowed */
    PyObject *module =
        modules == NULL ? NULL : PyDict_GetItemString(modules, "torch.distributed.tensor._api");
    PyObject *type = module == NULL ? NULL : PyObject_GetAttrString(module, "DTensor");
    if (type != NULL && !PyType_Check(type))
        Py_CLEAR(type);
    observe_clear_error();
    return (PyTypeObject *)type;
}

bool piece_is(PyObject *object)
{
    if (sharded_type == NULL) {
        if (reader == NULL || strcmp(Py_TYPE(object)->tp_name, "DTensor") != 0)
            return false;
        sharded_type = find_type();
    }
    return Py_TYPE(object) == sharded_type;
}

/* As many numbers as the tensor has axes. */
static bool read_axes(PyObject *tuple, uint32_t ndim, int64_t *axes)
{
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != (Py_ssize_t)ndim)
        return false;
    for (uint32_t axis = 0; axis < ndim; axis++)
        axes[axis] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, axis));
    return PyErr_Occurred() == NULL;
}

static bool read_place(PyObject *place, tensor_piece *piece)
{
    PyObject *whole, *offset;
    const char *partial;
    if (place == Py_None || !PyArg_ParseTuple(place, "OOs", &whole, &offset, &partial) ||
        strlen(partial) >= sizeof piece->partial)
        return false;
    memcpy(piece->partial, partial, strlen(partial) + 1);
    uint32_t values = 2u * piece->meta.ndim + 1u;
    return values <= TOCSIN_EVENT_VALUES_MAX && read_axes(whole, piece->meta.ndim, piece->whole) &&
           read_axes(offset, piece->meta.ndim, piece->offset);
}

bool piece_read(PyObject *tensor, bool with_gradient, tensor_piece *piece)
{
    *piece = (tensor_piece){.local = NULL};
    PyObject *result = reader == NULL
                           ? NULL
                           : PyObject_CallFunctionObjArgs(reader, tensor,
                                                          with_gradient ? Py_True : Py_False, NULL);
    PyObject *local, *place, *gradient;
    int requires_grad, is_leaf;
    bool read =
        result != NULL &&
        PyArg_ParseTuple(result, "OOppO", &local, &place, &requires_grad, &is_leaf, &gradient) &&
        tensor_is_exact(local) && tensor_meta_read(local, &piece->meta);
    if (read) {
        piece->local = Py_NewRef(local);
        piece->gradient = gradient == Py_None ? NULL : Py_NewRef(gradient);
        piece->requires_grad = requires_grad != 0;
        piece->is_leaf = is_leaf != 0;
        piece->placed = read_place(place, piece);
    }
    Py_XDECREF(result);
    observe_clear_error();
    return read;
}

bool piece_place(const tensor_meta *meta, PyObject *place, tensor_piece *piece)
{
    *piece = (tensor_piece){.meta = *meta, .requires_grad = meta->requires_grad};
    PyObject *whole, *offset;
    piece->placed = PyArg_ParseTuple(place, "OO", &whole, &offset) &&
                    2u * meta->ndim + 1u <= TOCSIN_EVENT_VALUES_MAX &&
                    read_axes(whole, meta->ndim, piece->whole) &&
                    read_axes(offset, meta->ndim, piece->offset);
    PyErr_Clear();
    return piece->placed;
}

void piece_release(tensor_piece *piece)
{
    tensor_meta_release(&piece->meta);
    Py_CLEAR(piece->local);
    Py_CLEAR(piece->gradient);
}

void piece_describe(const tensor_piece *piece, tocsin_sample *sample)
{
    sample->flags |= piece->requires_grad ? (uint32_t)TOCSIN_STATE_REQUIRES_GRAD : 0u;
    sample->dtype = (tocsin_dtype)piece->meta.dtype;
    sample->ndim = piece->meta.ndim;
    sample->shape = piece->whole;
}

void piece_fill(tensor_piece *piece, tocsin_trace_writer *writer, bool digest,
                tocsin_sample *sample, value_list *list)
{
    const tensor_meta *meta = &piece->meta;
    sample->flags |= TOCSIN_STATE_PRESENT | TOCSIN_STATE_PIECE;
    sample->flags |= piece->requires_grad ? (uint32_t)TOCSIN_STATE_REQUIRES_GRAD : 0u;
    sample->flags |= piece->is_leaf ? (uint32_t)TOCSIN_STATE_IS_LEAF : 0u;
    sample->view = NULL;
    sample->shape_id = 0;
    if (!piece->placed || list->count + 2u * meta->ndim + 1u > TOCSIN_EVENT_VALUES_MAX) {
        sample->dtype = TOCSIN_DTYPE_NONE;
        sample->ndim = 0;
        sample->shape = NULL;
        return;
    }
    sample->dtype = (tocsin_dtype)meta->dtype;
    sample->ndim = meta->ndim;
    sample->shape = meta->sizes;
    tocsin_id whole = value_text_id(writer, "whole"), offset = value_text_id(writer, "offset");
    for (uint32_t axis = 0; axis < meta->ndim; axis++)
        value_append_int(list, whole, piece->whole[axis]);
    for (uint32_t axis = 0; axis < meta->ndim; axis++)
        value_append_int(list, offset, piece->offset[axis]);
    if (piece->partial[0] != '\0')
        value_append_text(list, writer, value_text_id(writer, "partial"), piece->partial);
    sample->values = list->items;
    sample->value_count = list->count;
    piece->view = (tocsin_tensor_view){.data = meta->data,
                                       .dtype = (tocsin_dtype)meta->dtype,
                                       .ndim = meta->ndim,
                                       .shape = meta->sizes,
                                       .strides = meta->strides,
                                       .global_shape = piece->whole,
                                       .offset = piece->offset};
    if (digest && meta->readable)
        sample->view = &piece->view;
}

void piece_record(PyObject *tensor, tocsin_id variable, tocsin_attribute attribute,
                  tocsin_moment moment)
{
    tensor_piece piece;
    value_list list;
    tocsin_trace_writer *writer = tocsin_recorder_writer(observe_recorder);
    if (writer == NULL || !piece_read(tensor, false, &piece))
        return;
    value_list_begin(&list, TOCSIN_ROLE_NONE);
    tocsin_sample sample = {
        .variable = variable, .attribute = attribute, .moment = moment, .lr = Py_NAN};
    piece_fill(&piece, writer, true, &sample, &list);
    (void)tocsin_recorder_sample(observe_recorder, &sample, NULL);
    piece_release(&piece);
}
