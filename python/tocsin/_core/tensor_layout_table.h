/* tensor_layout_table.h - the offsets at which a tensor's facts lie: found by tensor_calibration.c,
 * used by tensor_layout.c, nobody else's business. */
#ifndef TOCSIN_CORE_TENSOR_LAYOUT_TABLE_H
#define TOCSIN_CORE_TENSOR_LAYOUT_TABLE_H

#include "tensor_layout.h"

enum {
    TENSOR_INLINE_AXES = 5, /* SizesAndStrides keeps up to five axes in place */
    TENSOR_DTYPE_CODES = 256
};

/* Byte offsets; -1 while unknown. */
typedef struct tensor_layout {
    bool ready;
    int impl;           /* PyObject -> TensorImpl* */
    int storage;        /* TensorImpl -> StorageImpl* */
    int autograd;       /* TensorImpl -> AutogradMeta* or NULL */
    int ndim;           /* TensorImpl: size_t */
    int sizes;          /* TensorImpl: int64_t[5], or a pointer when there are more axes */
    int strides;        /* TensorImpl: int64_t[5]; out of line they follow the sizes */
    int offset;         /* TensorImpl: storage offset in elements */
    int numel;          /* TensorImpl */
    int dtype;          /* TensorImpl: uint16_t */
    int device;         /* TensorImpl: int8_t, 0 = CPU */
    int keys;           /* TensorImpl: dispatch key set */
    int storage_data;   /* StorageImpl: data pointer */
    int storage_bytes;  /* StorageImpl: size_t */
    int requires_grad;  /* AutogradMeta: bool */
    int grad_fn;        /* AutogradMeta: pointer */
    int grad;           /* AutogradMeta: TensorImpl* */
    int counter;        /* TensorImpl -> VersionCounter* or NULL; -1: not found, all else was */
    int version;        /* VersionCounter: uint32_t */
    uint64_t undefined; /* what stands at `grad` when there is none: torch's undefined tensor */
    uint64_t lazy_bits; /* conjugate and negative bit in `keys` */
    uint8_t dtypes[TENSOR_DTYPE_CODES]; /* torch's code -> tocsin_dtype */
} tensor_layout;

/* Invariant: `ready` implies that a whole battery of tensors was read correctly. Written once,
 * under the GIL, before observing starts. */
extern tensor_layout tensor_offsets;

/* The exact types whose objects are read. */
void tensor_layout_set_types(PyTypeObject *tensor, PyTypeObject *parameter);

#endif
