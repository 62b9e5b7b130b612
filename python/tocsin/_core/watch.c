/* watch.c - Python code of ours that is told of certain calls, and the states it writes.
 *
 * For what is rare or lives in Python objects (checkpoints, loaders, generators): checkpoints.py,
 * ledger.py, training_state.py. A watcher is called when the call returns, before its EXIT is
 * written, with the thread's re-entry flag held; what it writes belongs to that call.
 *
 * Data structure: one callable per role, and a short list of hooks without a role: some are watched
 * instead of being recorded, as they return or as they begin, others are told of both. Cost of a
 * watched call: about 1 us and what the watcher does.
 */
#include "observe.h"
#include "pieces.h"

#include <string.h>

enum { ROLES_MAX = 32, WATCHES_MAX = 16, PAIR_LIST_MAX = TOCSIN_EVENT_VALUES_MAX };

typedef struct hook_watch {
    uint32_t hook;
    bool silent; /* the calls are not recorded, */
    bool early;  /* and told of as they begin only */
    PyObject *watcher;
} hook_watch;

static PyObject *role_watchers[ROLES_MAX];
static hook_watch watches[WATCHES_MAX];
static int watch_count;
static PyObject *before_step, *before_run, *after_backward; /* seldom set */

void watch_clear(void)
{
    Py_CLEAR(before_step);
    Py_CLEAR(before_run);
    Py_CLEAR(after_backward);
    for (int role = 0; role < ROLES_MAX; role++)
        Py_CLEAR(role_watchers[role]);
    for (int i = 0; i < watch_count; i++)
        Py_CLEAR(watches[i].watcher);
    watch_count = 0;
}

static const hook_watch *watch_of(const tocsin_hook *hook)
{
    for (int i = 0; i < watch_count; i++)
        if (watches[i].hook == hook->index)
            return &watches[i];
    return NULL;
}

bool watch_is_silent(const tocsin_hook *hook)
{
    const hook_watch *watch = watch_of(hook);
    return watch != NULL && watch->silent;
}

bool watch_is_aloud(const tocsin_hook *hook)
{
    const hook_watch *watch = watch_of(hook);
    return watch != NULL && !watch->silent;
}

bool watch_is_early(const tocsin_hook *hook)
{
    const hook_watch *watch = watch_of(hook);
    return watch != NULL && watch->early;
}

static PyObject *watcher_of(const tocsin_hook *hook, bool begins)
{
    if (hook->role != TOCSIN_ROLE_NONE)
        return hook->role < ROLES_MAX ? role_watchers[hook->role] : NULL;
    const hook_watch *watch = watch_of(hook);
    return watch == NULL || (watch->early && !begins) ? NULL : watch->watcher;
}

/* result: NULL when the call begins. */
static void tell(const tocsin_hook *hook, PyObject *const *args, Py_ssize_t nargs,
                 PyObject *kwnames, PyObject *result)
{
    PyObject *watcher = Py_XNewRef(watcher_of(hook, result == NULL));
    if (watcher == NULL)
        return;
    Py_ssize_t keywords = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    PyObject *positional = PyTuple_New(nargs), *named = PyDict_New();
    for (Py_ssize_t i = 0; positional != NULL && i < nargs; i++)
        PyTuple_SET_ITEM(positional, i, Py_NewRef(args[i]));
    bool ok = positional != NULL && named != NULL;
    for (Py_ssize_t i = 0; ok && i < keywords; i++)
        ok = PyDict_SetItem(named, PyTuple_GET_ITEM(kwnames, i), args[nargs + i]) == 0;
    PyObject *answer = NULL;
    if (ok && result == NULL)
        answer = PyObject_CallFunction(watcher, "sOO", hook->name, positional, named);
    else if (ok)
        answer = PyObject_CallFunction(watcher, "sOOO", hook->name, positional, named, result);
    Py_XDECREF(answer);
    Py_XDECREF(named);
    Py_XDECREF(positional);
    Py_DECREF(watcher);
    observe_clear_error();
}

void watch_entered(const tocsin_hook *hook, PyObject *const *args, Py_ssize_t nargs,
                   PyObject *kwnames)
{
    tell(hook, args, nargs, kwnames, NULL);
}

void watch_returned(const tocsin_hook *hook, PyObject *const *args, Py_ssize_t nargs,
                    PyObject *kwnames, PyObject *result)
{
    tell(hook, args, nargs, kwnames, result);
}

static void tell_of(PyObject *kept, PyObject *object)
{
    PyObject *watcher = Py_XNewRef(kept);
    if (__builtin_expect(watcher == NULL, 1))
        return;
    PyObject *answer = PyObject_CallOneArg(watcher, object);
    Py_XDECREF(answer);
    Py_DECREF(watcher);
    observe_clear_error();
}

void watch_step(PyObject *optimizer)
{
    tell_of(before_step, optimizer);
}

void watch_run(PyObject *model)
{
    tell_of(before_run, model);
}

void watch_backward_ended(void)
{
    tell_of(after_backward, Py_None);
}

/* watch_before_step(callable or None): told of each optimizer that is about to step. */
PyObject *watch_before_step(PyObject *module, PyObject *watcher)
{
    (void)module;
    Py_XSETREF(before_step, watcher == Py_None ? NULL : Py_NewRef(watcher));
    Py_RETURN_NONE;
}

/* watch_before_run(callable or None): told of each outermost model that is about to run. */
PyObject *watch_before_run(PyObject *module, PyObject *watcher)
{
    (void)module;
    Py_XSETREF(before_run, watcher == Py_None ? NULL : Py_NewRef(watcher));
    Py_RETURN_NONE;
}

/* watch_after_backward(callable or None): called (with None) when a backward pass that accumulates
 * gradients, and is not inside another one, has returned. */
PyObject *watch_after_backward(PyObject *module, PyObject *watcher)
{
    (void)module;
    Py_XSETREF(after_backward, watcher == Py_None ? NULL : Py_NewRef(watcher));
    Py_RETURN_NONE;
}

/* watch_role(role name, callable): told of recorded calls of the role that returned. */
PyObject *watch_role(PyObject *module, PyObject *arguments)
{
    const char *name;
    PyObject *watcher;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "sO:watch_role", &name, &watcher))
        return NULL;
    tocsin_role role = tocsin_role_from_name(name);
    if (role == TOCSIN_ROLE_NONE)
        return PyErr_Format(PyExc_ValueError, "unknown role");
    Py_XSETREF(role_watchers[role], Py_NewRef(watcher));
    Py_RETURN_NONE;
}

static PyObject *add_watch(PyObject *arguments, bool silent, bool early)
{
    unsigned int index;
    PyObject *watcher;
    if (!PyArg_ParseTuple(arguments, "IO", &index, &watcher))
        return NULL;
    if (watch_count == WATCHES_MAX)
        return PyErr_Format(PyExc_ValueError, "too many watched hooks");
    watches[watch_count++] = (hook_watch){index, silent, early, Py_NewRef(watcher)};
    Py_RETURN_NONE;
}

/* watch_hook(index, callable): told of calls of a hook without a role, which are not recorded. */
PyObject *watch_hook(PyObject *module, PyObject *arguments)
{
    (void)module;
    return add_watch(arguments, true, false);
}

/* watch_before(index, callable): told of calls of a hook without a role, which are not recorded, as
 * they begin (name, args, kwargs). */
PyObject *watch_before(PyObject *module, PyObject *arguments)
{
    (void)module;
    return add_watch(arguments, true, true);
}

/* watch_call(index, callable): told of calls of a hook without a role that are recorded, when they
 * begin (name, args, kwargs) and when they have returned (name, args, kwargs, result). */
PyObject *watch_call(PyObject *module, PyObject *arguments)
{
    (void)module;
    return add_watch(arguments, false, false);
}

/* sampling(role, moment, attribute, kind) -> 0 none, 1 presence, 2 digest */
PyObject *watch_sampling(PyObject *module, PyObject *arguments)
{
    const char *role, *attribute;
    int moment, kind;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "sisi:sampling", &role, &moment, &attribute, &kind))
        return NULL;
    int index = tocsin_attribute_from_name(attribute);
    if (index < 0 || moment < TOCSIN_MOMENT_ENTER || moment > TOCSIN_MOMENT_EXIT ||
        kind < TOCSIN_VARIABLE_PARAMETER || kind > TOCSIN_VARIABLE_BOUNDARY)
        return PyErr_Format(PyExc_ValueError, "no such state");
    if (observe_recorder == NULL)
        return PyLong_FromLong(TOCSIN_SAMPLING_NONE);
    return PyLong_FromLong(tocsin_recorder_sampling(observe_recorder, tocsin_role_from_name(role),
                                                    (tocsin_moment)moment, (tocsin_attribute)index,
                                                    (tocsin_variable_kind)kind));
}

/* The values of a sequence of (name, value) pairs. */
static bool fill_values(value_list *list, tocsin_trace_writer *writer, PyObject *pairs)
{
    Py_ssize_t count = pairs == Py_None ? 0 : PyTuple_GET_SIZE(pairs);
    for (Py_ssize_t i = 0; i < count && i < PAIR_LIST_MAX; i++) {
        PyObject *name, *value;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(pairs, i), "UO", &name, &value))
            return false;
        value_summarize(list, writer, value, value_string_id(writer, name));
    }
    return true;
}

/* View of a bytes object. */
static tocsin_tensor_view bytes_view(PyObject *bytes, int64_t *size, int64_t *stride)
{
    *size = PyBytes_GET_SIZE(bytes);
    *stride = 1;
    return (tocsin_tensor_view){.data = PyBytes_AS_STRING(bytes),
                                .dtype = TOCSIN_DTYPE_UINT8,
                                .ndim = 1,
                                .shape = size,
                                .strides = stride};
}

/* record_state(name, kind, type, attribute, amount, content, described, values): a state of a
 * variable that is not tracked by variables.c. content: an exact tensor, a DTensor, bytes, or None,
 * or a tuple of a tensor and its place in the whole, (whole, offset); its digest is taken if amount
 * is 2. described: dtype and shape are those of the tensor. values: tuple of
 * (name, value) pairs, or None. */
PyObject *watch_record_state(PyObject *module, PyObject *arguments)
{
    const char *name, *type, *attribute_name;
    int kind, amount, described;
    PyObject *content, *pairs, *place = NULL;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "sissiOpO:record_state", &name, &kind, &type, &attribute_name,
                          &amount, &content, &described, &pairs) ||
        (PyTuple_CheckExact(content) && !PyArg_ParseTuple(content, "OO", &content, &place)))
        return NULL;
    int attribute = tocsin_attribute_from_name(attribute_name);
    if (attribute < 0 || !(pairs == Py_None || PyTuple_CheckExact(pairs)))
        return PyErr_Format(PyExc_ValueError, "bad state");
    tocsin_trace_writer *writer =
        observe_recorder == NULL ? NULL : tocsin_recorder_writer(observe_recorder);
    if (writer == NULL)
        Py_RETURN_NONE;
    value_list list;
    value_list_begin(&list, TOCSIN_ROLE_CHECKPOINT); /* tensors with a tag of their memory */
    if (!fill_values(&list, writer, pairs))
        return NULL;
    tocsin_sample sample = {
        .variable = tocsin_trace_define_variable(writer, name, (tocsin_variable_kind)kind, type),
        .attribute = (tocsin_attribute)attribute,
        .moment = TOCSIN_MOMENT_EXIT,
        .flags = TOCSIN_STATE_PRESENT,
        .lr = Py_NAN,
        .values = list.items,
        .value_count = list.count};
    tensor_meta meta;
    tocsin_tensor_view view;
    int64_t size, stride;
    bool tensor = tensor_is_exact(content) && tensor_meta_read(content, &meta);
    if (tensor && meta.readable) {
        view = (tocsin_tensor_view){.data = meta.data,
                                    .dtype = (tocsin_dtype)meta.dtype,
                                    .ndim = meta.ndim,
                                    .shape = meta.sizes,
                                    .strides = meta.strides};
        sample.view = amount == TOCSIN_SAMPLING_DIGEST ? &view : NULL;
    } else if (PyBytes_CheckExact(content)) {
        view = bytes_view(content, &size, &stride);
        sample.view = &view;
    }
    if (tensor && described) {
        sample.flags |= meta.requires_grad ? TOCSIN_STATE_REQUIRES_GRAD : 0u;
        sample.dtype = (tocsin_dtype)meta.dtype;
        sample.ndim = meta.ndim;
        sample.shape = meta.sizes;
    }
    tensor_piece piece = {.local = NULL};
    bool sharded = piece_is(content) && piece_read(content, false, &piece);
    bool part = tensor && place != NULL && piece_place(&meta, place, &piece);
    if ((sharded || part) && attribute != TOCSIN_ATTRIBUTE_VALUE)
        piece_fill(&piece, writer, amount == TOCSIN_SAMPLING_DIGEST, &sample, &list);
    else if (described && piece.placed)
        piece_describe(&piece, &sample);
    tocsin_recorder_sample(observe_recorder, &sample, NULL);
    if (sharded)
        piece_release(&piece);
    if (tensor)
        tensor_meta_release(&meta);
    Py_RETURN_NONE;
}

/* tensor_item(tensor) -> the only element of a tensor on the CPU, else None */
PyObject *watch_tensor_item(PyObject *module, PyObject *tensor)
{
    tensor_meta meta;
    tocsin_value value;
    (void)module;
    bool found = tensor_is_exact(tensor) && tensor_meta_read(tensor, &meta);
    if (!found)
        Py_RETURN_NONE;
    found = value_item(&meta, &value);
    tensor_meta_release(&meta);
    if (!found)
        Py_RETURN_NONE;
    return value.kind == TOCSIN_VALUE_INT ? PyLong_FromLongLong(value.as.integer)
                                          : PyFloat_FromDouble(value.as.real);
}
