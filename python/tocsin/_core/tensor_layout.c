/* tensor_layout.c - reading a torch tensor's metadata without calling torch.
 *
 * Attribute reads cost hundreds of nanoseconds and more, and are visible to __torch_function__
 * modes and to jit.trace. The same facts lie at fixed offsets in the C++ object;
 * tensor_calibration.c finds them at start-up. Where it could not, the slow path reads attributes.
 *
 * Data structure: one table of offsets (tensor_layout_table.h).
 * Invariant: memory is only said to be readable when it lies inside its storage.
 * Cost: about 15 ns a read; the slow path 1.5 us.
 */
#include "tensor_layout_table.h"

#include <assert.h>
#include <string.h>

tensor_layout tensor_offsets;
static PyTypeObject *tensor_type, *parameter_type;

void tensor_layout_set_types(PyTypeObject *tensor, PyTypeObject *parameter)
{
    Py_XSETREF(tensor_type, (PyTypeObject *)Py_NewRef(tensor));
    Py_XSETREF(parameter_type, (PyTypeObject *)Py_NewRef(parameter));
}

bool tensor_is_exact(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    return type == tensor_type || type == parameter_type;
}

bool tensor_is_parameter(PyObject *object)
{
    return Py_TYPE(object) == parameter_type;
}

/* ---- 1. Fast path -------------------------------------------------------------------------- */

static uint64_t load_word(const char *base, int offset)
{
    uint64_t word;
    memcpy(&word, base + offset, sizeof word);
    return word;
}

static const char *load_pointer(const char *base, int offset)
{
    return (const char *)(uintptr_t)load_word(base, offset);
}

/* Do all elements lie inside the storage? Guards against a storage that was shrunk under its
 * tensors (resize_(0), sharded parameters). */
static bool inside_storage(const tensor_meta *meta, uint64_t storage_bytes)
{
    uint64_t last = (uint64_t)meta->offset;
    if (meta->offset < 0)
        return false;
    for (uint32_t axis = 0; axis < meta->ndim; axis++) {
        int64_t size = meta->sizes[axis], stride = meta->strides[axis];
        uint64_t reach;
        if (size < 0 || stride < 0)
            return false;
        if (size == 0)
            return true;
        if (__builtin_mul_overflow((uint64_t)(size - 1), (uint64_t)stride, &reach) ||
            __builtin_add_overflow(last, reach, &last))
            return false;
    }
    uint64_t bytes = tocsin_dtype_bytes((tocsin_dtype)meta->dtype);
    return bytes != 0 && last < storage_bytes / bytes;
}

static bool read_impl(const char *impl, tensor_meta *meta)
{
    uint64_t ndim = load_word(impl, tensor_offsets.ndim);
    uint16_t code;
    if (ndim > TOCSIN_NDIM_MAX)
        return false;
    memcpy(&code, impl + tensor_offsets.dtype, sizeof code);
    meta->dtype =
        code < TENSOR_DTYPE_CODES ? tensor_offsets.dtypes[code] : (uint8_t)TOCSIN_DTYPE_NONE;
    meta->ndim = (uint8_t)ndim;
    if (ndim <= TENSOR_INLINE_AXES) {
        meta->sizes = (const int64_t *)(const void *)(impl + tensor_offsets.sizes);
        meta->strides = (const int64_t *)(const void *)(impl + tensor_offsets.strides);
    } else {
        meta->sizes = (const int64_t *)(const void *)load_pointer(impl, tensor_offsets.sizes);
        meta->strides = meta->sizes + ndim;
    }
    const char *autograd = load_pointer(impl, tensor_offsets.autograd);
    meta->has_grad_fn = autograd != NULL && load_word(autograd, tensor_offsets.grad_fn) != 0;
    meta->requires_grad =
        meta->has_grad_fn || (autograd != NULL && autograd[tensor_offsets.requires_grad] != 0);
    meta->on_cpu = impl[tensor_offsets.device] == 0;
    meta->owner = NULL;

    const char *storage = load_pointer(impl, tensor_offsets.storage);
    meta->storage = storage;
    meta->offset = (int64_t)load_word(impl, tensor_offsets.offset);
    meta->data = NULL;
    meta->readable = false;
    if (storage != NULL && meta->on_cpu && meta->dtype != TOCSIN_DTYPE_NONE &&
        (load_word(impl, tensor_offsets.keys) & tensor_offsets.lazy_bits) == 0) {
        const char *base = load_pointer(storage, tensor_offsets.storage_data);
        meta->readable = load_word(impl, tensor_offsets.numel) == 0 ||
                         (base != NULL &&
                          inside_storage(meta, load_word(storage, tensor_offsets.storage_bytes)));
        if (meta->readable && base != NULL)
            meta->data =
                base + meta->offset * (int64_t)tocsin_dtype_bytes((tocsin_dtype)meta->dtype);
    }
    return true;
}

/* ---- 2. Slow path: attributes -------------------------------------------------------------- */

static bool slow_bool(PyObject *tensor, const char *name)
{
    PyObject *value = PyObject_GetAttrString(tensor, name);
    bool result = value == Py_True;
    if (value == NULL)
        PyErr_Clear();
    Py_XDECREF(value);
    return result;
}

/* Fill axes[first...] from a sequence of ints; returns their number, or -1. */
static int slow_axes(PyObject *sequence, int64_t *axes)
{
    PyObject *tuple = sequence == NULL ? NULL : PySequence_Tuple(sequence);
    int count = -1;
    if (tuple != NULL && PyTuple_GET_SIZE(tuple) <= TOCSIN_NDIM_MAX) {
        count = (int)PyTuple_GET_SIZE(tuple);
        for (int i = 0; i < count; i++)
            axes[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
    }
    Py_XDECREF(tuple);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return -1;
    }
    return count;
}

static uint8_t slow_dtype(PyObject *tensor)
{
    PyObject *dtype = PyObject_GetAttrString(tensor, "dtype");
    PyObject *text = dtype == NULL ? NULL : PyObject_Str(dtype);
    const char *name = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    uint8_t number = TOCSIN_DTYPE_NONE;
    if (name != NULL && strncmp(name, "torch.", 6) == 0)
        number = (uint8_t)tocsin_dtype_from_name(name + 6);
    Py_XDECREF(text);
    Py_XDECREF(dtype);
    PyErr_Clear();
    return number;
}

static const void *slow_data(PyObject *tensor)
{
    PyObject *address = PyObject_CallMethod(tensor, "data_ptr", NULL);
    const void *data = address == NULL ? NULL : PyLong_AsVoidPtr(address);
    Py_XDECREF(address);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return NULL;
    }
    return data;
}

static bool slow_read(PyObject *tensor, tensor_meta *meta)
{
    PyObject *shape = PyObject_GetAttrString(tensor, "shape");
    PyObject *strides = shape == NULL ? NULL : PyObject_CallMethod(tensor, "stride", NULL);
    int ndim = slow_axes(shape, meta->axes);
    bool strided = slow_axes(strides, meta->axes + TOCSIN_NDIM_MAX) == ndim;
    Py_XDECREF(strides);
    Py_XDECREF(shape);
    PyErr_Clear();
    if (ndim < 0)
        return false;
    meta->ndim = (uint8_t)ndim;
    meta->sizes = meta->axes;
    meta->strides = meta->axes + TOCSIN_NDIM_MAX;
    meta->dtype = slow_dtype(tensor);
    meta->requires_grad = slow_bool(tensor, "requires_grad");
    meta->has_grad_fn = meta->requires_grad && !slow_bool(tensor, "is_leaf");
    meta->on_cpu = slow_bool(tensor, "is_cpu");
    bool lazy = false;
    for (int i = 0; i < 2; i++) {
        PyObject *bit = PyObject_CallMethod(tensor, i == 0 ? "is_conj" : "is_neg", NULL);
        lazy = lazy || bit != Py_False;
        Py_XDECREF(bit);
    }
    PyErr_Clear();
    meta->readable = strided && meta->on_cpu && !lazy && meta->dtype != TOCSIN_DTYPE_NONE;
    meta->data = meta->readable ? slow_data(tensor) : NULL;
    for (int axis = 0; axis < ndim && meta->data == NULL; axis++)
        if (meta->axes[axis] == 0)
            ndim = -1; /* no element: NULL data is right */
    meta->readable = meta->readable && (meta->data != NULL || ndim < 0);
    meta->storage = meta->data; /* good enough: of views of one storage the addresses differ */
    meta->offset = 0;
    meta->owner = Py_NewRef(tensor);
    return true;
}

/* ---- 3. The door --------------------------------------------------------------------------- */

bool tensor_meta_read(PyObject *tensor, tensor_meta *meta)
{
    assert(tensor_is_exact(tensor));
    if (!tensor_offsets.ready)
        return slow_read(tensor, meta);
    const char *impl = load_pointer((const char *)tensor, tensor_offsets.impl);
    return impl != NULL && read_impl(impl, meta);
}

bool tensor_meta_read_grad(PyObject *tensor, tensor_meta *meta)
{
    assert(tensor_is_exact(tensor));
    if (tensor_offsets.ready) {
        const char *impl = load_pointer((const char *)tensor, tensor_offsets.impl);
        const char *autograd = impl == NULL ? NULL : load_pointer(impl, tensor_offsets.autograd);
        const char *grad = autograd == NULL ? NULL : load_pointer(autograd, tensor_offsets.grad);
        return grad != NULL && (uint64_t)(uintptr_t)grad != tensor_offsets.undefined &&
               read_impl(grad, meta);
    }
    if (!slow_bool(tensor, "is_leaf")) /* reading the gradient of others warns */
        return false;
    PyObject *grad = PyObject_GetAttrString(tensor, "grad");
    bool read = grad != NULL && tensor_is_exact(grad) && slow_read(grad, meta);
    Py_XDECREF(grad);
    PyErr_Clear();
    return read;
}

bool tensor_version_read(PyObject *tensor, const void **counter, uint32_t *version)
{
    assert(tensor_is_exact(tensor));
    if (!tensor_offsets.ready || tensor_offsets.counter < 0)
        return false;
    const char *impl = load_pointer((const char *)tensor, tensor_offsets.impl);
    const char *found = impl == NULL ? NULL : load_pointer(impl, tensor_offsets.counter);
    if (found == NULL)
        return false;
    memcpy(version, found + tensor_offsets.version, sizeof *version);
    *counter = found;
    return true;
}

/* ---- 4. For Python ------------------------------------------------------------------------- */

PyObject *tensor_layout_disable(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    tensor_offsets.ready = false;
    Py_RETURN_NONE;
}

static PyObject *axes_as_tuple(const int64_t *axes, uint8_t ndim)
{
    PyObject *tuple = PyTuple_New(ndim);
    for (Py_ssize_t i = 0; tuple != NULL && i < ndim; i++) {
        PyObject *axis = PyLong_FromLongLong(axes[i]);
        if (axis == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, axis);
    }
    return tuple;
}

PyObject *tensor_memory(PyObject *module, PyObject *tensor)
{
    tensor_meta meta;
    (void)module;
    if (!tensor_is_exact(tensor) || !tensor_meta_read(tensor, &meta))
        Py_RETURN_NONE;
    PyObject *shape = axes_as_tuple(meta.sizes, meta.ndim);
    PyObject *strides = axes_as_tuple(meta.strides, meta.ndim), *result = NULL;
    if (shape != NULL && strides != NULL && meta.storage == NULL)
        result = Py_NewRef(Py_None);
    else if (shape != NULL && strides != NULL)
        result = Py_BuildValue("KLOOi", (unsigned long long)(uintptr_t)meta.storage,
                               (long long)meta.offset, shape, strides, (int)meta.dtype);
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    tensor_meta_release(&meta);
    return result;
}

PyObject *tensor_version(PyObject *module, PyObject *tensor)
{
    const void *counter;
    uint32_t version;
    (void)module;
    if (!tensor_is_exact(tensor) || !tensor_version_read(tensor, &counter, &version))
        Py_RETURN_NONE;
    return PyLong_FromUnsignedLong(version);
}

PyObject *tensor_layout_read(PyObject *module, PyObject *tensor)
{
    tensor_meta meta, grad = {0};
    (void)module;
    if (!tensor_is_exact(tensor) || !tensor_meta_read(tensor, &meta))
        Py_RETURN_NONE;
    bool has_grad = tensor_meta_read_grad(tensor, &grad);
    tensor_meta_release(&grad);
    PyObject *shape = axes_as_tuple(meta.sizes, meta.ndim);
    PyObject *strides = axes_as_tuple(meta.strides, meta.ndim);
    PyObject *result =
        shape == NULL || strides == NULL
            ? NULL
            : Py_BuildValue("KOOsOOOOO", (unsigned long long)(uintptr_t)meta.data, shape, strides,
                            tocsin_dtype_name((tocsin_dtype)meta.dtype),
                            meta.requires_grad ? Py_True : Py_False,
                            meta.has_grad_fn ? Py_True : Py_False, meta.on_cpu ? Py_True : Py_False,
                            meta.readable ? Py_True : Py_False, has_grad ? Py_True : Py_False);
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    tensor_meta_release(&meta);
    return result;
}
