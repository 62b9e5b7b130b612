/* label_counts.c - what the integer targets of a loss look like: how many, how many are ignored.
 *
 * One pass over the memory of the argument `target`, read only, if it holds integers, lies in one
 * piece on the CPU and has at most LABELS_MAX elements. Written with the loss's EXIT:
 * "target.count", "target.ignored" (equal to ignore_index), and of the others "target.min",
 * "target.max" and "target.zeros".
 */
#include "observe.h"

#include <string.h>

enum { LABELS_MAX = 1 << 20 };
static const int64_t default_ignored = -100; /* of torch.nn.functional.cross_entropy and nll_loss */

typedef struct label_counts {
    int64_t count, ignored, zeros, least, most;
} label_counts;

/* The argument of that name (borrowed), NULL: not given. */
static PyObject *argument_of(const tocsin_hook *hook, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames, const char *name)
{
    Py_ssize_t keywords = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    Py_ssize_t known = hook->arg_names == NULL ? 0 : PyTuple_GET_SIZE(hook->arg_names);
    for (Py_ssize_t i = 0; i < keywords; i++)
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), name) == 0)
            return args[nargs + i];
    for (Py_ssize_t i = 0; i < nargs && i < known; i++)
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(hook->arg_names, i), name) == 0)
            return args[i];
    return NULL;
}

/* The number of elements, if they lie one after another; else -1. */
static int64_t dense_count(const tensor_meta *meta)
{
    int64_t count = 1;
    for (uint32_t axis = meta->ndim; axis-- > 0;) {
        if (meta->sizes[axis] != 1 && meta->strides[axis] != count)
            return -1;
        count *= meta->sizes[axis];
    }
    return count;
}

static int64_t label_at(const tensor_meta *meta, int64_t index)
{
    const unsigned char *data = meta->data;
    int64_t wide;
    int32_t narrow;
    switch ((tocsin_dtype)meta->dtype) {
    case TOCSIN_DTYPE_INT64:
        memcpy(&wide, data + 8 * index, sizeof wide);
        return wide;
    case TOCSIN_DTYPE_INT32:
        memcpy(&narrow, data + 4 * index, sizeof narrow);
        return narrow;
    default:
        return data[index];
    }
}

static void count_labels(const tensor_meta *meta, int64_t ignored, label_counts *counts)
{
    for (int64_t i = 0; i < counts->count; i++) {
        int64_t label = label_at(meta, i);
        if (label == ignored) {
            counts->ignored++;
            continue;
        }
        bool first = i == counts->ignored;
        counts->zeros += label == 0;
        counts->least = first || label < counts->least ? label : counts->least;
        counts->most = first || label > counts->most ? label : counts->most;
    }
}

void label_counts_append(value_list *list, tocsin_trace_writer *writer, const tocsin_hook *hook,
                         PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *target = argument_of(hook, args, nargs, kwnames, "target");
    PyObject *given = argument_of(hook, args, nargs, kwnames, "ignore_index");
    int64_t ignored =
        given != NULL && PyLong_Check(given) ? PyLong_AsLongLong(given) : default_ignored;
    tensor_meta meta;
    PyErr_Clear();
    if (target == NULL || !tensor_is_exact(target) || !tensor_meta_read(target, &meta))
        return;
    bool integers = meta.dtype == TOCSIN_DTYPE_INT64 || meta.dtype == TOCSIN_DTYPE_INT32 ||
                    meta.dtype == TOCSIN_DTYPE_UINT8;
    label_counts counts = {.count = integers && meta.readable ? dense_count(&meta) : -1};
    if (counts.count > 0 && counts.count <= LABELS_MAX) {
        count_labels(&meta, ignored, &counts);
        value_append_int(list, value_text_id(writer, "target.count"), counts.count);
        value_append_int(list, value_text_id(writer, "target.ignored"), counts.ignored);
        if (counts.ignored < counts.count) {
            value_append_int(list, value_text_id(writer, "target.min"), counts.least);
            value_append_int(list, value_text_id(writer, "target.max"), counts.most);
            value_append_int(list, value_text_id(writer, "target.zeros"), counts.zeros);
        }
    }
    tensor_meta_release(&meta);
}
