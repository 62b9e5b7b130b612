/* gate_functions.c - the functions of tocsin._core behind the gate of checkpoints (tocsin/gate.h).
 *
 * The digests of a checkpoint are a capsule. A tensor comes as (address, dtype, shape, strides) of
 * memory that the caller keeps alive; the GIL is released while it is read.
 */
#include "hook_engine.h"

#include <stdbool.h>
#include <string.h>
#include <tocsin/gate.h>

#define CAPSULE "tocsin.checkpoint_digests"

static PyObject *raise_error(const tocsin_error *error)
{
    PyObject *type = error->code == TOCSIN_E_MEMORY      ? PyExc_MemoryError
                     : error->code == TOCSIN_E_NOT_FOUND ? PyExc_FileNotFoundError
                     : error->code == TOCSIN_E_IO        ? PyExc_OSError
                                                         : PyExc_ValueError;
    return error->where[0] == '\0' ? PyErr_Format(type, "%s", error->message)
                                   : PyErr_Format(type, "%s: %s", error->where, error->message);
}

static void free_capsule(PyObject *capsule)
{
    tocsin_checkpoint_digests_free(PyCapsule_GetPointer(capsule, CAPSULE));
}

static PyObject *make_capsule(tocsin_checkpoint_digests *digests)
{
    PyObject *capsule = PyCapsule_New(digests, CAPSULE, free_capsule);
    if (capsule == NULL)
        tocsin_checkpoint_digests_free(digests);
    return capsule;
}

/* A converter of PyArg_ParseTuple. */
static int to_digests(PyObject *object, void *address)
{
    void *digests = PyCapsule_GetPointer(object, CAPSULE);
    *(tocsin_checkpoint_digests **)address = digests;
    return digests != NULL;
}

/* checkpoint_digests_new() */
static PyObject *digests_new(PyObject *module, PyObject *ignored)
{
    tocsin_checkpoint_digests *digests;
    tocsin_error error;
    (void)module;
    (void)ignored;
    if (tocsin_checkpoint_digests_new(&digests, &error) != TOCSIN_OK)
        return raise_error(&error);
    return make_capsule(digests);
}

/* ---- adding -----------------------------------------------------------------------------------
 */

typedef struct axis_list {
    int64_t items[TOCSIN_NDIM_MAX];
    uint32_t count;
} axis_list;

static int to_axes(PyObject *object, void *address)
{
    axis_list *axes = address;
    PyObject *tuple = PySequence_Tuple(object);
    if (tuple == NULL)
        return 0;
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    axes->count = (uint32_t)count;
    if (count > TOCSIN_NDIM_MAX)
        PyErr_Format(PyExc_ValueError, "a tensor of more than %d axes", TOCSIN_NDIM_MAX);
    for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); i++)
        axes->items[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
    Py_DECREF(tuple);
    return PyErr_Occurred() == NULL;
}

static bool read_digest(const Py_buffer *given, tocsin_digest *digest)
{
    uint64_t numbers[3];
    if (given->len != (Py_ssize_t)sizeof numbers) {
        PyErr_Format(PyExc_ValueError, "a digest has %zu bytes", sizeof numbers);
        return false;
    }
    memcpy(numbers, given->buf, sizeof numbers);
    *digest = (tocsin_digest){numbers[0], numbers[1], numbers[2]};
    return true;
}

/* The digest of the view, unless one is given. */
static bool take_digest(const char *name, const tocsin_tensor_view *view, const Py_buffer *given,
                        tocsin_digest *digest)
{
    tocsin_error error;
    tocsin_status status;
    if (given->buf != NULL)
        return read_digest(given, digest);
    Py_BEGIN_ALLOW_THREADS;
    status = tocsin_tensor_digest(view, digest, NULL, &error);
    Py_END_ALLOW_THREADS;
    if (status != TOCSIN_OK)
        PyErr_Format(PyExc_ValueError, "%s: %s", name, error.message);
    return status == TOCSIN_OK;
}

/* checkpoint_digests_add(digests, name, (address, dtype, shape, strides), whole, offset, voted,
 * digest or None): whole and offset are those of the piece, or the shape and zeros. */
static PyObject *digests_add(PyObject *module, PyObject *arguments)
{
    tocsin_checkpoint_digests *digests;
    const char *name, *dtype;
    unsigned long long address;
    axis_list shape, strides, whole, offset;
    int voted;
    Py_buffer given = {.buf = NULL};
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O&s(KsO&O&)O&O&pz*:checkpoint_digests_add", to_digests,
                          &digests, &name, &address, &dtype, to_axes, &shape, to_axes, &strides,
                          to_axes, &whole, to_axes, &offset, &voted, &given))
        return NULL;
    const tocsin_tensor_view view = {.data = (const void *)(uintptr_t)address,
                                     .dtype = tocsin_dtype_from_name(dtype),
                                     .ndim = shape.count,
                                     .shape = shape.items,
                                     .strides = strides.items,
                                     .global_shape = whole.items,
                                     .offset = offset.items};
    tocsin_digest digest;
    tocsin_error error;
    PyObject *result = NULL;
    if (strides.count != shape.count || whole.count != shape.count || offset.count != shape.count)
        PyErr_SetString(PyExc_ValueError, "shape, strides, whole and offset differ in their axes");
    else if (view.dtype == TOCSIN_DTYPE_NONE)
        PyErr_Format(PyExc_ValueError, "%s: no digest of the dtype %s is known", name, dtype);
    else if (take_digest(name, &view, &given, &digest))
        result = tocsin_checkpoint_digests_add_tensor(digests, name, &view, digest, voted != 0,
                                                      &error) == TOCSIN_OK
                     ? Py_NewRef(Py_None)
                     : raise_error(&error);
    PyBuffer_Release(&given);
    return result;
}

/* checkpoint_digests_add_value(digests, name, text) */
static PyObject *digests_add_value(PyObject *module, PyObject *arguments)
{
    tocsin_checkpoint_digests *digests;
    const char *name, *text;
    Py_ssize_t bytes;
    tocsin_error error;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O&ss#:checkpoint_digests_add_value", to_digests, &digests,
                          &name, &text, &bytes))
        return NULL;
    if (tocsin_checkpoint_digests_add_value(digests, name, text, (size_t)bytes, &error) !=
        TOCSIN_OK)
        return raise_error(&error);
    Py_RETURN_NONE;
}

/* checkpoint_digests_merge(digests, text of others) */
static PyObject *digests_merge(PyObject *module, PyObject *arguments)
{
    tocsin_checkpoint_digests *digests, *other;
    const char *text;
    Py_ssize_t bytes;
    tocsin_error error;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O&s#:checkpoint_digests_merge", to_digests, &digests, &text,
                          &bytes))
        return NULL;
    tocsin_status status =
        tocsin_checkpoint_digests_parse(text, (size_t)bytes, "another rank", &other, &error);
    if (status == TOCSIN_OK)
        status = tocsin_checkpoint_digests_merge(digests, other, &error);
    tocsin_checkpoint_digests_free(other);
    if (status != TOCSIN_OK)
        return raise_error(&error);
    Py_RETURN_NONE;
}

/* ---- texts and files --------------------------------------------------------------------------
 */

/* checkpoint_digests_write(digests) -> str */
static PyObject *digests_write(PyObject *module, PyObject *capsule)
{
    tocsin_checkpoint_digests *digests;
    tocsin_error error;
    char *text;
    size_t bytes;
    (void)module;
    if (!to_digests(capsule, &digests))
        return NULL;
    if (tocsin_checkpoint_digests_write(digests, &text, &bytes, &error) != TOCSIN_OK)
        return raise_error(&error);
    PyObject *result = PyUnicode_DecodeUTF8(text, (Py_ssize_t)bytes, NULL);
    tocsin_checkpoint_text_free(text);
    return result;
}

/* checkpoint_digests_read(path) */
static PyObject *digests_read(PyObject *module, PyObject *arguments)
{
    tocsin_checkpoint_digests *digests;
    PyObject *path;
    tocsin_error error;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O&:checkpoint_digests_read", PyUnicode_FSConverter, &path))
        return NULL;
    tocsin_status status =
        tocsin_checkpoint_digests_read(PyBytes_AS_STRING(path), &digests, &error);
    Py_DECREF(path);
    return status == TOCSIN_OK ? make_capsule(digests) : raise_error(&error);
}

/* checkpoint_digests_save(digests, path) */
static PyObject *digests_save(PyObject *module, PyObject *arguments)
{
    tocsin_checkpoint_digests *digests;
    PyObject *path;
    tocsin_error error;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O&O&:checkpoint_digests_save", to_digests, &digests,
                          PyUnicode_FSConverter, &path))
        return NULL;
    tocsin_status status = tocsin_checkpoint_digests_save(digests, PyBytes_AS_STRING(path), &error);
    Py_DECREF(path);
    if (status != TOCSIN_OK)
        return raise_error(&error);
    Py_RETURN_NONE;
}

/* checkpoint_digests_describe(digests) -> dict */
static PyObject *digests_describe(PyObject *module, PyObject *capsule)
{
    tocsin_checkpoint_digests *digests;
    (void)module;
    if (!to_digests(capsule, &digests))
        return NULL;
    tocsin_checkpoint_origin origin = tocsin_checkpoint_digests_origin(digests);
    return Py_BuildValue(
        "{snsnszsssssLsI}", "entries", (Py_ssize_t)tocsin_checkpoint_digests_count(digests),
        "voted", (Py_ssize_t)tocsin_checkpoint_digests_voted(digests), "incomplete",
        tocsin_checkpoint_digests_incomplete(digests), "gate", tocsin_gate_mode_name(origin.mode),
        "state", tocsin_gate_state_name(origin.state), "step", (long long)origin.step, "replicas",
        (unsigned)origin.replicas);
}

/* ---- comparing --------------------------------------------------------------------------------
 */

static PyObject *describe_difference(const tocsin_checkpoint_difference *difference)
{
    PyObject *index = PyList_New(0);
    for (uint32_t axis = 0; index != NULL && axis < difference->ndim; axis++) {
        PyObject *place = PyLong_FromLongLong(difference->index[axis]);
        if (place == NULL || PyList_Append(index, place) < 0)
            Py_CLEAR(index);
        Py_XDECREF(place);
    }
    if (index == NULL)
        return NULL;
    return Py_BuildValue("{sssssssOsNsIsI}", "kind",
                         tocsin_checkpoint_difference_name(difference->kind), "name",
                         difference->name, "text", difference->text, "one_word",
                         difference->one_word ? Py_True : Py_False, "index", index, "set",
                         (unsigned)difference->set, "cleared", (unsigned)difference->cleared);
}

/* checkpoint_digests_compare(saved, found) -> list of dicts */
static PyObject *digests_compare(PyObject *module, PyObject *arguments)
{
    tocsin_checkpoint_digests *saved, *found;
    tocsin_checkpoint_differences *differences;
    tocsin_error error;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O&O&:checkpoint_digests_compare", to_digests, &saved,
                          to_digests, &found))
        return NULL;
    if (tocsin_checkpoint_digests_compare(saved, found, &differences, &error) != TOCSIN_OK)
        return raise_error(&error);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < differences->count; i++) {
        PyObject *one = describe_difference(&differences->items[i]);
        if (one == NULL || PyList_Append(list, one) < 0)
            Py_CLEAR(list);
        Py_XDECREF(one);
    }
    tocsin_checkpoint_differences_free(differences);
    return list;
}

/* ---- the gate ---------------------------------------------------------------------------------
 */

static bool read_mode(const char *name, tocsin_gate_mode *mode)
{
    *mode = strcmp(name, "audit") == 0 ? TOCSIN_GATE_AUDIT : TOCSIN_GATE_VOTE;
    if (strcmp(name, tocsin_gate_mode_name(*mode)) != 0)
        PyErr_Format(PyExc_ValueError, "the gate is 'vote' or 'audit', not '%s'", name);
    return PyErr_Occurred() == NULL;
}

/* gate_decide(mode, step, gradients_step, weights_step, replay_step, replicas, differing,
 * unreadable) -> (state, reason) */
static PyObject *gate_decide(PyObject *module, PyObject *arguments)
{
    const char *mode;
    long long step, gradients, weights, replay;
    unsigned replicas;
    unsigned long long differing, unreadable;
    char reason[TOCSIN_GATE_REASON_BYTES];
    tocsin_gate_evidence evidence;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "sLLLLIKK:gate_decide", &mode, &step, &gradients, &weights,
                          &replay, &replicas, &differing, &unreadable) ||
        !read_mode(mode, &evidence.mode))
        return NULL;
    evidence.step = step;
    evidence.gradients_step = gradients;
    evidence.weights_step = weights;
    evidence.replay_step = replay;
    evidence.replicas = replicas;
    evidence.differing = differing;
    evidence.unreadable = unreadable;
    tocsin_gate_state state = tocsin_gate_decide(&evidence, reason);
    return Py_BuildValue("ss", tocsin_gate_state_name(state), reason);
}

/* checkpoint_digests_set_origin(digests, mode, state, step, replicas) */
static PyObject *digests_set_origin(PyObject *module, PyObject *arguments)
{
    tocsin_checkpoint_digests *digests;
    tocsin_checkpoint_origin origin;
    const char *mode, *state;
    long long step;
    unsigned replicas;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O&ssLI:checkpoint_digests_set_origin", to_digests, &digests,
                          &mode, &state, &step, &replicas) ||
        !read_mode(mode, &origin.mode))
        return NULL;
    origin.state = strcmp(state, "verified") == 0 ? TOCSIN_GATE_VERIFIED : TOCSIN_GATE_CANDIDATE;
    origin.step = step;
    origin.replicas = replicas;
    tocsin_checkpoint_digests_set_origin(digests, origin);
    Py_RETURN_NONE;
}

/* gate_publish(staged, path) -> a folder of that name is at `staged` now */
static PyObject *gate_publish(PyObject *module, PyObject *arguments)
{
    PyObject *staged, *path;
    tocsin_error error;
    bool replaced;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O&O&:gate_publish", PyUnicode_FSConverter, &staged,
                          PyUnicode_FSConverter, &path))
        return NULL;
    tocsin_status status =
        tocsin_gate_publish(PyBytes_AS_STRING(staged), PyBytes_AS_STRING(path), &replaced, &error);
    Py_DECREF(staged);
    Py_DECREF(path);
    return status == TOCSIN_OK ? PyBool_FromLong(replaced) : raise_error(&error);
}

static PyMethodDef functions[] = {
    {"checkpoint_digests_new", digests_new, METH_NOARGS, NULL},
    {"checkpoint_digests_add", digests_add, METH_VARARGS, NULL},
    {"checkpoint_digests_add_value", digests_add_value, METH_VARARGS, NULL},
    {"checkpoint_digests_merge", digests_merge, METH_VARARGS, NULL},
    {"checkpoint_digests_write", digests_write, METH_O, NULL},
    {"checkpoint_digests_read", digests_read, METH_VARARGS, NULL},
    {"checkpoint_digests_save", digests_save, METH_VARARGS, NULL},
    {"checkpoint_digests_describe", digests_describe, METH_O, NULL},
    {"checkpoint_digests_compare", digests_compare, METH_VARARGS, NULL},
    {"checkpoint_digests_set_origin", digests_set_origin, METH_VARARGS, NULL},
    {"gate_decide", gate_decide, METH_VARARGS, NULL},
    {"gate_publish", gate_publish, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int tocsin_gate_module_exec(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
