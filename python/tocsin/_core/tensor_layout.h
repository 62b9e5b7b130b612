/* tensor_layout.h - reading a torch tensor's metadata without calling torch. */
#ifndef TOCSIN_CORE_TENSOR_LAYOUT_H
#define TOCSIN_CORE_TENSOR_LAYOUT_H

#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <tocsin/tensor.h>

/* What was read of one tensor. `sizes` and `strides` point into the tensor (fast path) or into
 * `axes` (slow path): they die with the next torch call. Release with tensor_meta_release(). */
typedef struct tensor_meta {
    const void *data; /* first element; NULL: none, or none that may be read */
    const int64_t *sizes;
    const int64_t *strides;
    const void *storage; /* identity of the storage; NULL: none. Compared, never followed */
    int64_t offset;      /* of the first element in it, in elements */
    uint8_t dtype;       /* tocsin_dtype; NONE: a dtype that Tocsin does not know */
    uint8_t ndim;
    bool requires_grad;
    bool has_grad_fn;
    bool on_cpu;
    bool readable;   /* dense, on the CPU, inside its storage, no lazy conjugate or negative bit */
    PyObject *owner; /* slow path: reference that keeps `data` alive */
    int64_t axes[2 * TOCSIN_NDIM_MAX]; /* slow path only */
} tensor_meta;

/* Is `object` exactly a torch.Tensor or torch.nn.Parameter? Subclasses, fake and wrapped tensors
 * are not: what they mean by data and shape is their own business. */
bool tensor_is_exact(PyObject *object);
bool tensor_is_parameter(PyObject *object);

/* Read an exact tensor. False (no exception set) when it cannot be read. */
bool tensor_meta_read(PyObject *tensor, tensor_meta *meta);

/* Read an exact tensor's gradient: false when it has none, or none that can be read. */
bool tensor_meta_read_grad(PyObject *tensor, tensor_meta *meta);

/* How often the memory of an exact tensor has been written, as far as torch counts; `counter` is
 * one for all views of it. False where there is no such count: inference tensors, slow path. */
bool tensor_version_read(PyObject *tensor, const void **counter, uint32_t *version);

/* Drop what the slow path holds. */
static inline void tensor_meta_release(tensor_meta *meta)
{
    Py_CLEAR(meta->owner);
}

/* Python: tensor_layout_calibrate(tensor_type, parameter_type, probes, battery) -> dict of offsets.
 * Finds every offset from `probes` (tuples, see layout.py), then demands that each tensor of
 * `battery` reads as its attributes say. Raises ValueError with the reason, and leaves the slow
 * path in use, when an offset is missing or ambiguous or any reading is wrong. */
PyObject *tensor_layout_calibrate(PyObject *module, PyObject *arguments);
/* Python: tensor_version(tensor) -> as torch counts it, or None (for tests). */
PyObject *tensor_version(PyObject *module, PyObject *tensor);
/* Python: tensor_layout_disable(): slow path from now on (for tests). */
PyObject *tensor_layout_disable(PyObject *module, PyObject *ignored);
/* Python: tensor_memory(tensor) -> a tuple that is equal for tensors that are the same view of the
 * same storage; None: not an exact tensor, or without storage. */
PyObject *tensor_memory(PyObject *module, PyObject *tensor);
/* Python: tensor_layout_read(tensor) -> (data, shape, strides, dtype, requires_grad, has_grad_fn,
 * on_cpu, readable, has_grad) as observed, or None (for tests). */
PyObject *tensor_layout_read(PyObject *module, PyObject *tensor);

#endif
