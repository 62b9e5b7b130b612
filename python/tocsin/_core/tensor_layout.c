/* tensor_layout.c - reading a torch tensor's metadata without calling torch.
 *
 * Attribute reads cost 245-480 ns a tensor and are visible to __torch_function__ modes and to
 * jit.trace. The same facts lie at fixed offsets in the C++ object, but the offsets are nobody's
 * promise, so they are *measured* in this process, at start-up: Python makes tensors with
 * distinctive shapes, strides, offsets and flags, and says what they are; an offset is a candidate
 * for a fact when the right value stands there in every probe. A fact without exactly one candidate
 * is refused, and afterwards a second battery of tensors must read as its attributes say. If
 * anything is off, the slow path (attributes) stays in use.
 *
 * Data structure: one table of offsets, written once under the GIL before observing starts.
 * Invariant: `layout.ready` implies that the whole battery was read correctly.
 * Cost: 8-16 ns a read; calibration is a few milliseconds. Decision record: 0002-tensor-layout.md.
 */
#include "tensor_layout.h"

#include <assert.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum {
    IMPL_BYTES = 208,     /* of a TensorImpl, scanned: it is 176-200 bytes in torch 1.13 to 2.13 */
    STORAGE_BYTES = 96,   /* of a StorageImpl */
    AUTOGRAD_BYTES = 304, /* of an AutogradMeta */
    INLINE_AXES = 5,      /* SizesAndStrides keeps up to five axes in place */
    OBJECT_BYTES_MAX = 128,
    DTYPE_CODES = 256
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
    uint64_t undefined; /* what stands at `grad` when there is none: torch's undefined tensor */
    uint64_t lazy_bits; /* conjugate and negative bit in `keys` */
    uint8_t dtypes[DTYPE_CODES]; /* torch's code -> tocsin_dtype */
} tensor_layout;

static tensor_layout layout;
static PyTypeObject *tensor_type, *parameter_type;

bool tensor_is_exact(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    return (type == tensor_type || type == parameter_type) && type != NULL;
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
static bool inside_storage(const tensor_meta *meta, int64_t offset, uint64_t storage_bytes)
{
    uint64_t last = (uint64_t)offset;
    if (offset < 0)
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
    uint64_t ndim = load_word(impl, layout.ndim);
    uint16_t code;
    if (ndim > TOCSIN_NDIM_MAX)
        return false;
    memcpy(&code, impl + layout.dtype, sizeof code);
    meta->dtype = code < DTYPE_CODES ? layout.dtypes[code] : (uint8_t)TOCSIN_DTYPE_NONE;
    meta->ndim = (uint8_t)ndim;
    if (ndim <= INLINE_AXES) {
        meta->sizes = (const int64_t *)(const void *)(impl + layout.sizes);
        meta->strides = (const int64_t *)(const void *)(impl + layout.strides);
    } else {
        meta->sizes = (const int64_t *)(const void *)load_pointer(impl, layout.sizes);
        meta->strides = meta->sizes + ndim;
    }
    const char *autograd = load_pointer(impl, layout.autograd);
    meta->has_grad_fn = autograd != NULL && load_word(autograd, layout.grad_fn) != 0;
    meta->requires_grad =
        meta->has_grad_fn || (autograd != NULL && autograd[layout.requires_grad] != 0);
    meta->on_cpu = impl[layout.device] == 0;
    meta->owner = NULL;

    const char *storage = load_pointer(impl, layout.storage);
    meta->storage = storage;
    meta->data = NULL;
    meta->readable = false;
    if (storage != NULL && meta->on_cpu && meta->dtype != TOCSIN_DTYPE_NONE &&
        (load_word(impl, layout.keys) & layout.lazy_bits) == 0) {
        int64_t offset = (int64_t)load_word(impl, layout.offset);
        const char *base = load_pointer(storage, layout.storage_data);
        meta->readable = load_word(impl, layout.numel) == 0 ||
                         (base != NULL &&
                          inside_storage(meta, offset, load_word(storage, layout.storage_bytes)));
        if (meta->readable && base != NULL)
            meta->data = base + offset * (int64_t)tocsin_dtype_bytes((tocsin_dtype)meta->dtype);
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
    meta->storage = meta->data;
    meta->owner = Py_NewRef(tensor);
    return true;
}

/* ---- 3. The door --------------------------------------------------------------------------- */

bool tensor_meta_read(PyObject *tensor, tensor_meta *meta)
{
    assert(tensor_is_exact(tensor));
    if (!layout.ready)
        return slow_read(tensor, meta);
    const char *impl = load_pointer((const char *)tensor, layout.impl);
    return impl != NULL && read_impl(impl, meta);
}

bool tensor_meta_read_grad(PyObject *tensor, tensor_meta *meta)
{
    assert(tensor_is_exact(tensor));
    if (layout.ready) {
        const char *impl = load_pointer((const char *)tensor, layout.impl);
        const char *autograd = impl == NULL ? NULL : load_pointer(impl, layout.autograd);
        const char *grad = autograd == NULL ? NULL : load_pointer(autograd, layout.grad);
        return grad != NULL && (uint64_t)(uintptr_t)grad != layout.undefined &&
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

void tensor_meta_release(tensor_meta *meta)
{
    Py_CLEAR(meta->owner);
}

bool tensor_requires_grad(PyObject *tensor)
{
    tensor_meta meta;
    bool requires_grad = tensor_meta_read(tensor, &meta) && meta.requires_grad;
    if (meta.owner != NULL)
        tensor_meta_release(&meta);
    return requires_grad;
}

/* ---- 4. Calibration ------------------------------------------------------------------------ */

/* One tensor and the truth about it; field order is that of layout.py's tuples. */
typedef struct probe {
    PyObject *tensor;
    unsigned long long impl, storage, storage_data, storage_bytes, offset;
    PyObject *shape, *strides;
    unsigned int dtype;
    int requires_grad, has_grad_fn;
    unsigned long long grad; /* TensorImpl of the gradient, 0: none */
    int on_cpu, conj, neg;
    int fresh; /* plain tensor that autograd never touched: no AutogradMeta */
} probe;

static bool parse_probe(PyObject *tuple, probe *p)
{
    return PyArg_ParseTuple(tuple, "OKKKKKO!O!IppKpppp", &p->tensor, &p->impl, &p->storage,
                            &p->storage_data, &p->storage_bytes, &p->offset, &PyTuple_Type,
                            &p->shape, &PyTuple_Type, &p->strides, &p->dtype, &p->requires_grad,
                            &p->has_grad_fn, &p->grad, &p->on_cpu, &p->conj, &p->neg,
                            &p->fresh) != 0;
}

/* Copy `bytes` from an address that may be unmapped: the kernel says EFAULT where a load would be
 * a segmentation fault. Returns how many bytes could be read. */
static size_t careful_copy(unsigned long long address, char *copy, size_t bytes)
{
    int ends[2];
    ssize_t got = 0;
    memset(copy, 0, bytes);
    if (address < 4096 || pipe2(ends, O_CLOEXEC) != 0)
        return 0;
    ssize_t put = write(ends[1], (const void *)(uintptr_t)address, bytes);
    if (put > 0)
        got = read(ends[0], copy, (size_t)put);
    close(ends[0]);
    close(ends[1]);
    return got > 0 ? (size_t)got : 0;
}

/* A set of candidate offsets, one bit per byte of the scanned object. */
typedef struct candidates {
    bool possible[AUTOGRAD_BYTES];
    bool used;
} candidates;

enum {
    FACT_IMPL,
    FACT_STORAGE,
    FACT_AUTOGRAD,
    FACT_NDIM,
    FACT_SIZES,
    FACT_STRIDES,
    FACT_OFFSET,
    FACT_NUMEL,
    FACT_DTYPE,
    FACT_DEVICE,
    FACT_STORAGE_DATA,
    FACT_STORAGE_BYTES,
    FACT_REQUIRES_GRAD,
    FACT_GRAD_FN,
    FACT_GRAD,
    FACT_COUNT
};
static const char *const fact_names[FACT_COUNT] = {
    "impl",         "storage",       "autograd",      "ndim",    "sizes",
    "strides",      "offset",        "numel",         "dtype",   "device",
    "storage_data", "storage_bytes", "requires_grad", "grad_fn", "grad"};

/* Keep the offsets at which `holds(copy + offset, truth)`. */
typedef bool holds(const char *at, const void *truth);

static void narrow(candidates *set, const char *copy, size_t bytes, size_t step, size_t width,
                   holds *test, const void *truth)
{
    for (size_t at = 0; at < AUTOGRAD_BYTES; at++) {
        bool fits = at % step == 0 && at + width <= bytes && test(copy + at, truth);
        set->possible[at] = fits && (set->possible[at] || !set->used);
    }
    set->used = true;
}

static bool holds_word(const char *at, const void *truth)
{
    return memcmp(at, truth, sizeof(uint64_t)) == 0;
}

static bool holds_set_pointer(const char *at, const void *truth)
{
    bool want = *(const int *)truth != 0;
    uint64_t word = load_word(at, 0);
    return want ? word > 4096 && word % 8 == 0 : word == 0;
}

static bool holds_byte(const char *at, const void *truth)
{
    return *at == (char)(*(const int *)truth != 0);
}

/* c10::Device in an optional: type (0 = CPU), index (-1: none), engaged. */
static bool holds_device(const char *at, const void *truth)
{
    bool on_cpu = *(const int *)truth != 0;
    return (at[0] == 0) == on_cpu && at[0] < 64 && at[1] == -1 && at[2] == 1;
}

typedef struct axes_truth {
    int64_t values[INLINE_AXES];
    size_t count;
} axes_truth;

static bool holds_axes(const char *at, const void *truth)
{
    const axes_truth *axes = truth;
    return memcmp(at, axes->values, axes->count * sizeof(int64_t)) == 0;
}

/* The axes of a tuple; false when there are fewer than two or more than fit in place: those say
 * too little about where they stand, or stand elsewhere. */
static bool axes_of(PyObject *tuple, axes_truth *axes)
{
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    if (count < 2 || count > INLINE_AXES)
        return false;
    axes->count = (size_t)count;
    for (Py_ssize_t i = 0; i < count; i++)
        axes->values[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
    return true;
}

static uint64_t element_count(PyObject *shape)
{
    uint64_t count = 1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(shape); i++)
        count *= (uint64_t)PyLong_AsLongLong(PyTuple_GET_ITEM(shape, i));
    return count;
}

/* What a dtype code must satisfy over all probes: one code per dtype, one dtype per code. */
typedef struct code_book {
    uint8_t dtype_of[DTYPE_CODES];
    uint16_t code_of[64];
    bool broken;
} code_book;

static void narrow_dtype(code_book *books, const char *copy, size_t bytes, unsigned int dtype)
{
    for (size_t at = 0; at + 2 <= IMPL_BYTES; at += 2) {
        code_book *book = &books[at / 2];
        uint16_t code = 0;
        if (at + 2 <= bytes)
            memcpy(&code, copy + at, 2);
        if (at + 2 > bytes || code >= DTYPE_CODES - 1 || dtype >= 64 ||
            (book->dtype_of[code] != 0 && book->dtype_of[code] != dtype) ||
            (book->code_of[dtype] != 0 && book->code_of[dtype] != code + 1)) {
            book->broken = true;
            continue;
        }
        book->dtype_of[code] = (uint8_t)dtype;
        book->code_of[dtype] = (uint16_t)(code + 1);
    }
}

typedef struct calibration {
    candidates facts[FACT_COUNT];
    code_book books[IMPL_BYTES / 2];
    /* per word of the TensorImpl: bits set in all conj (neg) probes, bits set in any other */
    uint64_t conj_all[IMPL_BYTES / 8], conj_other[IMPL_BYTES / 8];
    uint64_t neg_all[IMPL_BYTES / 8], neg_other[IMPL_BYTES / 8];
    bool undefined_seen, undefined_differs;
} calibration;

static void narrow_bits(calibration *c, const probe *p, const char *impl)
{
    for (size_t i = 0; i < IMPL_BYTES / 8; i++) {
        uint64_t word = load_word(impl, (int)(i * 8));
        if (p->conj)
            c->conj_all[i] &= word;
        else
            c->conj_other[i] |= word;
        if (p->neg)
            c->neg_all[i] &= word;
        else
            c->neg_other[i] |= word;
    }
}

static void narrow_autograd(calibration *c, const probe *p, const char *impl)
{
    if (p->fresh || p->requires_grad)
        narrow(&c->facts[FACT_AUTOGRAD], impl, IMPL_BYTES, 8, 8, holds_set_pointer,
               &p->requires_grad);
}

/* Everything that stands in the TensorImpl and the StorageImpl. */
static void narrow_impl(calibration *c, const probe *p)
{
    char object[OBJECT_BYTES_MAX], impl[IMPL_BYTES], storage[STORAGE_BYTES];
    size_t object_bytes = (size_t)Py_TYPE(p->tensor)->tp_basicsize;
    object_bytes = careful_copy((unsigned long long)(uintptr_t)p->tensor, object,
                                object_bytes < sizeof object ? object_bytes : sizeof object);
    size_t bytes = careful_copy(p->impl, impl, sizeof impl);
    narrow(&c->facts[FACT_IMPL], object, object_bytes, 8, 8, holds_word, &p->impl);
    narrow(&c->facts[FACT_DEVICE], impl, bytes, 1, 3, holds_device, &p->on_cpu);
    narrow_dtype(c->books, impl, bytes, p->dtype);
    narrow_bits(c, p, impl);
    narrow_autograd(c, p, impl);

    axes_truth axes;
    if (axes_of(p->shape, &axes))
        narrow(&c->facts[FACT_SIZES], impl, bytes, 8, axes.count * 8, holds_axes, &axes);
    if (axes_of(p->strides, &axes))
        narrow(&c->facts[FACT_STRIDES], impl, bytes, 8, axes.count * 8, holds_axes, &axes);
    uint64_t ndim = (uint64_t)PyTuple_GET_SIZE(p->shape), numel = element_count(p->shape);
    narrow(&c->facts[FACT_NDIM], impl, bytes, 8, 8, holds_word, &ndim);
    narrow(&c->facts[FACT_NUMEL], impl, bytes, 8, 8, holds_word, &numel);
    narrow(&c->facts[FACT_OFFSET], impl, bytes, 8, 8, holds_word, &p->offset);
    if (p->storage == 0)
        return;
    narrow(&c->facts[FACT_STORAGE], impl, bytes, 8, 8, holds_word, &p->storage);
    bytes = careful_copy(p->storage, storage, sizeof storage);
    narrow(&c->facts[FACT_STORAGE_BYTES], storage, bytes, 8, 8, holds_word, &p->storage_bytes);
    if (p->on_cpu)
        narrow(&c->facts[FACT_STORAGE_DATA], storage, bytes, 8, 8, holds_word, &p->storage_data);
}

/* Everything that stands in the AutogradMeta; needs its offset. */
static void narrow_meta(calibration *c, const probe *p)
{
    char impl[IMPL_BYTES], meta[AUTOGRAD_BYTES];
    (void)careful_copy(p->impl, impl, sizeof impl);
    uint64_t address = load_word(impl, layout.autograd);
    if (address == 0)
        return;
    size_t bytes = careful_copy(address, meta, sizeof meta);
    int leaf_requires = p->requires_grad && !p->has_grad_fn;
    if (!p->has_grad_fn)
        narrow(&c->facts[FACT_REQUIRES_GRAD], meta, bytes, 1, 1, holds_byte, &leaf_requires);
    narrow(&c->facts[FACT_GRAD_FN], meta, bytes, 8, 8, holds_set_pointer, &p->has_grad_fn);
    if (p->grad != 0)
        narrow(&c->facts[FACT_GRAD], meta, bytes, 8, 8, holds_word, &p->grad);
}

/* What stands in place of a gradient where there is none; the same everywhere. */
static void learn_undefined(calibration *c, const probe *p)
{
    char impl[IMPL_BYTES], meta[AUTOGRAD_BYTES];
    (void)careful_copy(p->impl, impl, sizeof impl);
    uint64_t address = load_word(impl, layout.autograd);
    if (p->grad != 0 || address == 0)
        return;
    (void)careful_copy(address, meta, sizeof meta);
    uint64_t word = load_word(meta, layout.grad);
    c->undefined_differs |= c->undefined_seen && word != layout.undefined;
    c->undefined_seen = true;
    layout.undefined = word;
}

/* The one candidate, or -1 with ValueError. `adjacent`: a second candidate right behind the first
 * is the other half of a std::shared_ptr and says the same. */
static int the_one(const candidates *set, int fact, bool adjacent)
{
    int found = -1, count = 0;
    for (int at = 0; at < AUTOGRAD_BYTES; at++) {
        if (!set->used || !set->possible[at])
            continue;
        if (count == 0 || !adjacent || at != found + 8)
            count++;
        if (found < 0)
            found = at;
    }
    if (count == 1)
        return found;
    PyErr_Format(PyExc_ValueError, "tensor layout: %d places fit %s", count, fact_names[fact]);
    return -1;
}

static int the_dtype(const calibration *c, tensor_layout *out)
{
    int found = -1;
    for (int i = 0; i < IMPL_BYTES / 2; i++) {
        if (c->books[i].broken)
            continue;
        if (found >= 0) {
            PyErr_SetString(PyExc_ValueError, "tensor layout: several places fit dtype");
            return -1;
        }
        found = i * 2;
        memcpy(out->dtypes, c->books[i].dtype_of, sizeof out->dtypes);
    }
    if (found < 0)
        PyErr_SetString(PyExc_ValueError, "tensor layout: no place fits dtype");
    return found;
}

/* The word in which one bit says "conjugate" and another says "negative". */
static int the_keys(const calibration *c, tensor_layout *out)
{
    int found = -1;
    for (int i = 0; i < IMPL_BYTES / 8; i++) {
        uint64_t conj = c->conj_all[i] & ~c->conj_other[i], neg = c->neg_all[i] & ~c->neg_other[i];
        if (__builtin_popcountll(conj) != 1 || __builtin_popcountll(neg) != 1)
            continue;
        if (found >= 0) {
            PyErr_SetString(PyExc_ValueError, "tensor layout: several places fit key set");
            return -1;
        }
        found = i * 8;
        out->lazy_bits = conj | neg;
    }
    if (found < 0)
        PyErr_SetString(PyExc_ValueError, "tensor layout: no place fits key set");
    return found;
}

static bool each_probe(PyObject *probes, calibration *c,
                       void (*visit)(calibration *, const probe *))
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(probes); i++) {
        probe p;
        if (!parse_probe(PyList_GET_ITEM(probes, i), &p))
            return false;
        visit(c, &p);
    }
    return !PyErr_Occurred();
}

static bool find_offsets(PyObject *probes, calibration *c)
{
    memset(c->conj_all, 0xff, sizeof c->conj_all);
    memset(c->neg_all, 0xff, sizeof c->neg_all);
    if (!each_probe(probes, c, narrow_impl))
        return false;
    struct {
        int fact, *offset;
    } first[] = {{FACT_IMPL, &layout.impl},
                 {FACT_STORAGE, &layout.storage},
                 {FACT_AUTOGRAD, &layout.autograd},
                 {FACT_NDIM, &layout.ndim},
                 {FACT_SIZES, &layout.sizes},
                 {FACT_STRIDES, &layout.strides},
                 {FACT_OFFSET, &layout.offset},
                 {FACT_NUMEL, &layout.numel},
                 {FACT_DEVICE, &layout.device},
                 {FACT_STORAGE_DATA, &layout.storage_data},
                 {FACT_STORAGE_BYTES, &layout.storage_bytes}};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        if ((*first[i].offset = the_one(&c->facts[first[i].fact], first[i].fact, false)) < 0)
            return false;
    if ((layout.dtype = the_dtype(c, &layout)) < 0 || (layout.keys = the_keys(c, &layout)) < 0)
        return false;
    if (!each_probe(probes, c, narrow_meta))
        return false;
    layout.requires_grad = the_one(&c->facts[FACT_REQUIRES_GRAD], FACT_REQUIRES_GRAD, false);
    if (layout.requires_grad < 0)
        return false;
    layout.grad = the_one(&c->facts[FACT_GRAD], FACT_GRAD, false);
    if (layout.grad < 0)
        return false;
    layout.grad_fn = the_one(&c->facts[FACT_GRAD_FN], FACT_GRAD_FN, true);
    if (layout.grad_fn < 0 || !each_probe(probes, c, learn_undefined))
        return false;
    if (c->undefined_differs || !c->undefined_seen)
        PyErr_SetString(PyExc_ValueError, "tensor layout: an absent gradient has many values");
    return !c->undefined_differs && c->undefined_seen;
}

/* ---- 5. Verification ----------------------------------------------------------------------- */

static bool same_axes(PyObject *tuple, const int64_t *axes, uint8_t ndim)
{
    if (PyTuple_GET_SIZE(tuple) != ndim)
        return false;
    for (Py_ssize_t i = 0; i < ndim; i++)
        if (PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i)) != axes[i])
            return false;
    return true;
}

static const char *difference(const probe *p, const tensor_meta *meta)
{
    bool lazy = p->conj || p->neg;
    if (meta->dtype != p->dtype)
        return "dtype";
    if (!same_axes(p->shape, meta->sizes, meta->ndim))
        return "shape";
    if (p->storage != 0 && !same_axes(p->strides, meta->strides, meta->ndim))
        return "strides";
    if (meta->requires_grad != (p->requires_grad != 0))
        return "requires_grad";
    if (meta->has_grad_fn != (p->has_grad_fn != 0))
        return "grad_fn";
    if (meta->on_cpu != (p->on_cpu != 0))
        return "device";
    if (meta->readable != (p->on_cpu && p->storage != 0 && !lazy))
        return "readable";
    uint64_t bytes = tocsin_dtype_bytes((tocsin_dtype)p->dtype);
    if (meta->readable && element_count(p->shape) != 0 &&
        (uint64_t)(uintptr_t)meta->data != p->storage_data + p->offset * bytes)
        return "data";
    return NULL;
}

static bool verify(PyObject *battery)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(battery); i++) {
        probe p;
        tensor_meta meta, grad;
        if (!parse_probe(PyList_GET_ITEM(battery, i), &p))
            return false;
        const char *wrong =
            tensor_meta_read(p.tensor, &meta) ? difference(&p, &meta) : "readable at all";
        if (wrong == NULL && tensor_meta_read_grad(p.tensor, &grad) != (p.grad != 0))
            wrong = "grad";
        if (wrong != NULL) {
            PyErr_Format(PyExc_ValueError, "tensor layout: %s is read wrong of %R", wrong,
                         PyList_GET_ITEM(battery, i));
            return false;
        }
    }
    return !PyErr_Occurred();
}

static PyObject *offsets_as_dict(void)
{
    return Py_BuildValue("{si si si si si si si si si si si si si si si si}", "impl", layout.impl,
                         "storage", layout.storage, "autograd", layout.autograd, "ndim",
                         layout.ndim, "sizes", layout.sizes, "strides", layout.strides, "offset",
                         layout.offset, "numel", layout.numel, "dtype", layout.dtype, "device",
                         layout.device, "keys", layout.keys, "storage_data", layout.storage_data,
                         "storage_bytes", layout.storage_bytes, "requires_grad",
                         layout.requires_grad, "grad_fn", layout.grad_fn, "grad", layout.grad);
}

PyObject *tensor_layout_calibrate(PyObject *module, PyObject *arguments)
{
    PyObject *tensor, *parameter, *probes, *battery;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!O!O!O!", &PyType_Type, &tensor, &PyType_Type, &parameter,
                          &PyList_Type, &probes, &PyList_Type, &battery))
        return NULL;
    Py_XSETREF(tensor_type, (PyTypeObject *)Py_NewRef(tensor));
    Py_XSETREF(parameter_type, (PyTypeObject *)Py_NewRef(parameter));
    memset(&layout, 0, sizeof layout);
    calibration *c = PyMem_Calloc(1, sizeof *c);
    if (c == NULL)
        return PyErr_NoMemory();
    bool found = find_offsets(probes, c);
    PyMem_Free(c);
    if (!found)
        return NULL;
    layout.ready = true;
    if (!verify(battery)) {
        layout.ready = false;
        return NULL;
    }
    return offsets_as_dict();
}

PyObject *tensor_layout_disable(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    layout.ready = false;
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
