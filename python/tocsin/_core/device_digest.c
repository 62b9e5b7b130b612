/* device_digest.c - tocsin/tensor_device.h for Python: digests of tensors on a GPU.
 *
 * Data structure: a capsule around one tocsin_device_digest; it is closed with the capsule.
 * Invariant: tensors are named by what Python knows of them (address, dtype, shape, strides); none
 * is touched here. Whoever opens a digest keeps the tensors.
 * Cost: opening some milliseconds, a launch some microseconds.
 */
#include "hook_engine.h"

#include <stdlib.h>
#include <string.h>
#include <tocsin/tensor_device.h>

#define CAPSULE "tocsin.device_digest"

typedef struct device_tensors {
    tocsin_device_digest *digest;
    size_t count;
} device_tensors;

static PyObject *raise_error(tocsin_status status, const tocsin_error *error)
{
    if (status == TOCSIN_E_MEMORY)
        return PyErr_Format(PyExc_MemoryError, "%s", error->message);
    return PyErr_Format(status == TOCSIN_E_UNSUPPORTED ? PyExc_NotImplementedError
                                                       : PyExc_RuntimeError,
                        "%s", error->message);
}

static void close_capsule(PyObject *capsule)
{
    device_tensors *tensors = PyCapsule_GetPointer(capsule, CAPSULE);
    if (tensors == NULL)
        return;
    Py_BEGIN_ALLOW_THREADS;
    tocsin_device_digest_close(tensors->digest);
    Py_END_ALLOW_THREADS;
    PyMem_Free(tensors);
}

/* A tuple of `ndim` numbers. */
static bool take_numbers(PyObject *tuple, uint32_t ndim, int64_t *numbers)
{
    for (uint32_t i = 0; i < ndim; i++)
        numbers[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
    return PyErr_Occurred() == NULL;
}

/* (address, dtype's name, shape, strides); axes: room for 2 * TOCSIN_NDIM_MAX numbers. */
static bool take_view(PyObject *row, tocsin_tensor_view *view, int64_t *axes)
{
    unsigned long long address;
    const char *name;
    PyObject *shape, *strides;
    if (!PyTuple_Check(row) || !PyArg_ParseTuple(row, "KsO!O!", &address, &name, &PyTuple_Type,
                                                 &shape, &PyTuple_Type, &strides)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a tensor is (address, dtype, shape, strides)");
        return false;
    }
    if (PyTuple_GET_SIZE(shape) != PyTuple_GET_SIZE(strides) ||
        PyTuple_GET_SIZE(shape) > TOCSIN_NDIM_MAX) {
        PyErr_SetString(PyExc_ValueError, "shape and strides do not fit each other");
        return false;
    }
    uint32_t ndim = (uint32_t)PyTuple_GET_SIZE(shape);
    *view = (tocsin_tensor_view){.data = (const void *)(uintptr_t)address,
                                 .dtype = tocsin_dtype_from_name(name),
                                 .ndim = ndim,
                                 .shape = axes,
                                 .strides = axes + TOCSIN_NDIM_MAX};
    return take_numbers(shape, ndim, axes) && take_numbers(strides, ndim, axes + TOCSIN_NDIM_MAX);
}

/* All views of a tuple; their axes lie behind them in one block. NULL: an exception is set. */
static tocsin_tensor_view *take_views(PyObject *rows)
{
    const size_t axes_bytes = 2 * TOCSIN_NDIM_MAX * sizeof(int64_t);
    size_t count = (size_t)PyTuple_GET_SIZE(rows);
    if (count > (SIZE_MAX - 1) / (sizeof(tocsin_tensor_view) + axes_bytes))
        return (tocsin_tensor_view *)PyErr_NoMemory();
    tocsin_tensor_view *views = PyMem_Malloc(count * (sizeof *views + axes_bytes) + 1);
    if (views == NULL)
        return (tocsin_tensor_view *)PyErr_NoMemory();
    int64_t *axes = (int64_t *)(void *)(views + count);
    for (size_t i = 0; i < count; i++) {
        if (!take_view(PyTuple_GET_ITEM(rows, (Py_ssize_t)i), &views[i],
                       axes + i * 2 * TOCSIN_NDIM_MAX)) {
            PyMem_Free(views);
            return NULL;
        }
    }
    return views;
}

/* device_digest_open([(address, dtype, shape, strides), ...]) -> capsule. NotImplementedError: not
 * on this machine, in this build, or for these tensors. */
static PyObject *device_digest_open(PyObject *module, PyObject *sequence)
{
    (void)module;
    PyObject *rows = PySequence_Tuple(sequence);
    tocsin_tensor_view *views = rows == NULL ? NULL : take_views(rows);
    device_tensors *tensors = views == NULL ? NULL : PyMem_Calloc(1, sizeof *tensors);
    PyObject *capsule = NULL;
    if (views != NULL && tensors == NULL)
        PyErr_NoMemory();
    if (tensors != NULL) {
        tocsin_error error;
        tocsin_status status;
        tensors->count = (size_t)PyTuple_GET_SIZE(rows);
        Py_BEGIN_ALLOW_THREADS;
        status = tocsin_device_digest_open(views, tensors->count, &tensors->digest, &error);
        Py_END_ALLOW_THREADS;
        if (status == TOCSIN_OK)
            capsule = PyCapsule_New(tensors, CAPSULE, close_capsule);
        else
            raise_error(status, &error);
        if (capsule == NULL) {
            tocsin_device_digest_close(tensors->digest);
            PyMem_Free(tensors);
        }
    }
    PyMem_Free(views);
    Py_XDECREF(rows);
    return capsule;
}

/* device_digest_launch(capsule, stream): digest all tensors, and bring the results, on a stream
 * (a number, 0 the default one); waits for nothing. */
static PyObject *device_digest_launch(PyObject *module, PyObject *arguments)
{
    PyObject *capsule;
    unsigned long long stream;
    tocsin_error error;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OK:device_digest_launch", &capsule, &stream))
        return NULL;
    device_tensors *tensors = PyCapsule_GetPointer(capsule, CAPSULE);
    if (tensors == NULL)
        return NULL;
    void *handle = (void *)(uintptr_t)stream;
    tocsin_status status = tocsin_device_digest_launch(tensors->digest, handle, &error);
    if (status == TOCSIN_OK)
        status = tocsin_device_digest_fetch(tensors->digest, handle, &error);
    return status == TOCSIN_OK ? Py_NewRef(Py_None) : raise_error(status, &error);
}

/* device_digest_read(capsule, wait) -> 40 bytes a tensor: sum, exclusive, polynomial, NaN, Inf,
 * native uint64; None: they have not arrived. */
static PyObject *device_digest_read(PyObject *module, PyObject *arguments)
{
    PyObject *capsule;
    int wait;
    tocsin_error error;
    tocsin_status status;
    bool is_there;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "Op:device_digest_read", &capsule, &wait))
        return NULL;
    device_tensors *tensors = PyCapsule_GetPointer(capsule, CAPSULE);
    if (tensors == NULL)
        return NULL;
    size_t bytes = tensors->count * sizeof(tocsin_device_result);
    tocsin_device_result *results = PyMem_Malloc(bytes + 1);
    if (results == NULL)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS;
    status = tocsin_device_digest_read(tensors->digest, wait != 0, results, &is_there, &error);
    Py_END_ALLOW_THREADS;
    PyObject *result = NULL;
    if (status != TOCSIN_OK)
        raise_error(status, &error);
    else if (is_there)
        result = PyBytes_FromStringAndSize((const char *)results, (Py_ssize_t)bytes);
    else
        result = Py_NewRef(Py_None);
    PyMem_Free(results);
    return result;
}

/* device_digest_kernel() -> for which GPUs this build has the kernel, "" for none. */
static PyObject *device_digest_kernel(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyUnicode_FromString(tocsin_device_kernel());
}

int tocsin_device_digest_module_exec(PyObject *module)
{
    static PyMethodDef functions[] = {
        {"device_digest_open", device_digest_open, METH_O,
         PyDoc_STR("device_digest_open([(address, dtype, shape, strides), ...]) -> capsule")},
        {"device_digest_launch", device_digest_launch, METH_VARARGS,
         PyDoc_STR("device_digest_launch(capsule, stream)")},
        {"device_digest_read", device_digest_read, METH_VARARGS,
         PyDoc_STR("device_digest_read(capsule, wait) -> bytes, 40 of each, or None")},
        {"device_digest_kernel", device_digest_kernel, METH_NOARGS,
         PyDoc_STR("device_digest_kernel() -> names of architectures")},
        {NULL, NULL, 0, NULL}};
    return PyModule_AddFunctions(module, functions);
}
