/* optimizers.c - what an optimizer says about itself.
 *
 * Data structure: a short list of weak references; the position is the optimizer's slot.
 * Invariant: a slot belongs to one optimizer as long as that lives; it is given again only when all
 * slots have been given.
 * Cost: linear in the number of optimizers, which is one or two.
 */
#include "observe.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { SLOTS_MAX = 64 };

typedef struct optimizer_entry {
    PyObject *reference; /* weak */
    const void *address; /* of the optimizer, to skip what is another for sure */
} optimizer_entry;

static optimizer_entry entries[SLOTS_MAX];
static int entry_count;
static bool full; /* some optimizer has no slot */

/* A borrowed item of a dict by C name, or NULL. */
static PyObject *dict_item(PyObject *dict, const char *name)
{
    return PyDict_Check(dict) ? PyDict_GetItemString(dict, name) : NULL;
}

/* New reference to the list param_groups, or NULL. */
static PyObject *groups_of(PyObject *optimizer)
{
    PyObject *groups = PyObject_GetAttrString(optimizer, "param_groups");
    if (groups != NULL && !PyList_Check(groups))
        Py_CLEAR(groups);
    observe_clear_error();
    return groups;
}

/* The next slot, or that of an optimizer that is gone; -1: none. */
static int free_slot(void)
{
    if (entry_count < SLOTS_MAX)
        return entry_count;
    for (int slot = 0; slot < SLOTS_MAX; slot++) {
        PyObject *live = weak_get(entries[slot].reference);
        Py_XDECREF(live);
        if (live == NULL)
            return slot;
    }
    full = true;
    return -1;
}

bool optimizer_is_gone(int64_t slot)
{
    if (slot < 0 || slot >= entry_count)
        return false;
    PyObject *live = weak_get(entries[slot].reference);
    Py_XDECREF(live);
    return live == NULL;
}

bool optimizers_all_known(void)
{
    return !full;
}

int optimizer_slot(PyObject *optimizer)
{
    for (int slot = 0; slot < entry_count; slot++) {
        if (entries[slot].address != optimizer)
            continue;
        PyObject *live = weak_get(entries[slot].reference);
        Py_XDECREF(live);
        if (live == optimizer)
            return slot;
    }
    int slot = free_slot();
    PyObject *reference = slot < 0 ? NULL : PyWeakref_NewRef(optimizer, NULL);
    PyErr_Clear();
    if (reference == NULL)
        return -1;
    Py_XSETREF(entries[slot].reference, reference);
    entries[slot].address = optimizer;
    entry_count += slot == entry_count;
    return slot;
}

/* A float or int, or a one-element tensor on the CPU (capturable optimizers keep lr in one). */
static double number_of(PyObject *object)
{
    tensor_meta meta;
    double number = NAN;
    if (object == NULL)
        return NAN;
    if (PyFloat_Check(object) || PyLong_Check(object)) {
        number = PyFloat_AsDouble(object);
        PyErr_Clear();
    } else if (tensor_is_exact(object) && tensor_meta_read(object, &meta)) {
        bool one = meta.readable && (meta.ndim == 0 || (meta.ndim == 1 && meta.sizes[0] == 1));
        if (one && meta.dtype == TOCSIN_DTYPE_FLOAT64) {
            memcpy(&number, meta.data, sizeof number);
        } else if (one && meta.dtype == TOCSIN_DTYPE_FLOAT32) {
            float single;
            memcpy(&single, meta.data, sizeof single);
            number = (double)single;
        }
        tensor_meta_release(&meta);
    }
    return number;
}

double optimizer_group_lr(PyObject *optimizer, Py_ssize_t group)
{
    PyObject *groups = groups_of(optimizer);
    double lr = NAN;
    if (groups != NULL && group >= 0 && group < PyList_GET_SIZE(groups))
        lr = number_of(dict_item(PyList_GET_ITEM(groups, group), "lr"));
    Py_XDECREF(groups);
    return lr;
}

static void append_real(value_list *list, tocsin_id name, double real)
{
    if (list->count < TOCSIN_EVENT_VALUES_MAX && !isnan(real))
        list->items[list->count++] =
            (tocsin_value){.kind = TOCSIN_VALUE_FLOAT, .name = name, .as.real = real};
}

static double least_lr(PyObject *groups)
{
    double least = NAN;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(groups); i++)
        least = fmin(least, number_of(dict_item(PyList_GET_ITEM(groups, i), "lr")));
    return least;
}

static int64_t parameter_count(PyObject *groups)
{
    int64_t count = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(groups); i++) {
        PyObject *parameters = dict_item(PyList_GET_ITEM(groups, i), "params");
        count += parameters != NULL && PyList_Check(parameters) ? PyList_GET_SIZE(parameters) : 0;
    }
    return count;
}

/* self.beta1 and self.beta2 of the Adam family. */
static void append_betas(value_list *list, tocsin_trace_writer *writer, PyObject *group)
{
    PyObject *betas = group == NULL ? NULL : dict_item(group, "betas");
    if (betas == NULL || !PyTuple_Check(betas))
        return;
    char name[24];
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(betas) && i < 2; i++) {
        snprintf(name, sizeof name, "self.beta%zd", i + 1);
        append_real(list, value_text_id(writer, name), number_of(PyTuple_GET_ITEM(betas, i)));
    }
}

void optimizer_summarize(value_list *list, tocsin_trace_writer *writer, PyObject *optimizer,
                         int slot)
{
    static const char *const switches[] = {"foreach",  "fused",   "capturable",
                                           "maximize", "amsgrad", "nesterov"},
                             *const reals[] = {"momentum", "dampening", "weight_decay", "eps"};
    PyObject *groups = groups_of(optimizer);
    if (groups == NULL)
        return;
    char name[64];
    const char *type = strrchr(Py_TYPE(optimizer)->tp_name, '.');
    value_append_text(list, writer, value_text_id(writer, "self.type"),
                      type == NULL ? Py_TYPE(optimizer)->tp_name : type + 1);
    append_real(list, value_text_id(writer, "self.lr"), least_lr(groups));
    PyObject *group = PyList_GET_SIZE(groups) > 0 ? PyList_GET_ITEM(groups, 0) : NULL;
    for (size_t i = 0; group != NULL && i < sizeof switches / sizeof *switches; i++) {
        PyObject *value = dict_item(group, switches[i]);
        snprintf(name, sizeof name, "self.%s", switches[i]);
        if (value != NULL)
            value_summarize(list, writer, value, value_text_id(writer, name));
    }
    for (size_t i = 0; group != NULL && i < sizeof reals / sizeof *reals; i++) {
        snprintf(name, sizeof name, "self.%s", reals[i]);
        append_real(list, value_text_id(writer, name), number_of(dict_item(group, reals[i])));
    }
    append_betas(list, writer, group);
    value_append_int(list, value_text_id(writer, "self.slot"), slot);
    value_append_int(list, value_text_id(writer, "self.param_count"), parameter_count(groups));
    Py_DECREF(groups);
}

uint64_t optimizers_fingerprint(uint64_t seed)
{
    const uint64_t prime = UINT64_C(0x9e3779b97f4a7c15);
    for (int slot = 0; slot < entry_count; slot++) {
        PyObject *optimizer = weak_get(entries[slot].reference);
        PyObject *groups = optimizer == NULL ? NULL : groups_of(optimizer);
        seed = (seed ^ (uint64_t)(groups != NULL)) * prime;
        for (Py_ssize_t i = 0; groups != NULL && i < PyList_GET_SIZE(groups); i++) {
            PyObject *parameters = dict_item(PyList_GET_ITEM(groups, i), "params");
            seed = (seed ^ 1) * prime;
            for (Py_ssize_t k = 0;
                 parameters != NULL && PyList_Check(parameters) && k < PyList_GET_SIZE(parameters);
                 k++) {
                seed = (seed ^ (uint64_t)(uintptr_t)PyList_GET_ITEM(parameters, k)) * prime;
                seed ^= seed >> 29;
            }
        }
        Py_XDECREF(groups);
        Py_XDECREF(optimizer);
    }
    return seed;
}

PyObject *optimizer_parameter(int slot, Py_ssize_t group, Py_ssize_t index)
{
    PyObject *optimizer =
        slot < 0 || slot >= entry_count ? NULL : weak_get(entries[slot].reference);
    PyObject *groups = optimizer == NULL ? NULL : groups_of(optimizer);
    PyObject *parameters = groups == NULL || group < 0 || group >= PyList_GET_SIZE(groups)
                               ? NULL
                               : dict_item(PyList_GET_ITEM(groups, group), "params");
    bool found = parameters != NULL && PyList_Check(parameters) && index >= 0 &&
                 index < PyList_GET_SIZE(parameters);
    PyObject *parameter = found ? Py_NewRef(PyList_GET_ITEM(parameters, index)) : NULL;
    Py_XDECREF(groups);
    Py_XDECREF(optimizer);
    return parameter;
}

PyObject *optimizers_list(void)
{
    PyObject *list = PyList_New(0);
    for (int slot = 0; list != NULL && slot < entry_count; slot++) {
        PyObject *optimizer = weak_get(entries[slot].reference);
        PyObject *pair = optimizer == NULL ? NULL : Py_BuildValue("(iO)", slot, optimizer);
        if (pair != NULL && PyList_Append(list, pair) < 0)
            Py_CLEAR(list);
        Py_XDECREF(pair);
        Py_XDECREF(optimizer);
    }
    return list;
}
