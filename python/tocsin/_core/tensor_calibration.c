/* tensor_calibration.c - finding where a tensor's facts lie.
 *
 * The offsets are nobody's promise, so they are *measured* in this process, at start-up: Python
 * makes tensors with distinctive shapes, strides, offsets and flags, and says what they are; an
 * offset is a candidate for a fact when the right value stands there in every probe. A fact without
 * exactly one candidate is refused, and afterwards a second battery of tensors must read as its
 * attributes say. If anything is off, the slow path (attributes) stays in use.
 *
 * Data structure: a set of candidate offsets per fact, narrowed probe by probe.
 * Cost: a few milliseconds, once. Decision record: docs/decisions/0002-tensor-layout.md.
 */
#include "tensor_layout_table.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum {
    IMPL_BYTES = 208,     /* of a TensorImpl, scanned: it is 176-200 bytes in torch 1.13 to 2.13 */
    STORAGE_BYTES = 96,   /* of a StorageImpl */
    AUTOGRAD_BYTES = 304, /* of an AutogradMeta */
    COUNTER_BYTES = 32,   /* of a VersionCounter */
    OBJECT_BYTES_MAX = 128
};

static uint64_t load_word(const char *base, int offset)
{
    uint64_t word;
    memcpy(&word, base + offset, sizeof word);
    return word;
}

/* ---- 1. Probes ------------------------------------------------------------------------ */

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
    unsigned int version;
} probe;

static bool parse_probe(PyObject *tuple, probe *p)
{
    return PyArg_ParseTuple(tuple, "OKKKKKO!O!IppKppppI", &p->tensor, &p->impl, &p->storage,
                            &p->storage_data, &p->storage_bytes, &p->offset, &PyTuple_Type,
                            &p->shape, &PyTuple_Type, &p->strides, &p->dtype, &p->requires_grad,
                            &p->has_grad_fn, &p->grad, &p->on_cpu, &p->conj, &p->neg, &p->fresh,
                            &p->version) != 0;
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
    int64_t values[TENSOR_INLINE_AXES];
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
    if (count < 2 || count > TENSOR_INLINE_AXES)
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
    uint8_t dtype_of[TENSOR_DTYPE_CODES];
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
        if (at + 2 > bytes || code >= TENSOR_DTYPE_CODES - 1 || dtype >= 64 ||
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
    candidates counters[IMPL_BYTES / 8]; /* by the offset of the counter: of the version in it */
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
    uint64_t address = load_word(impl, tensor_offsets.autograd);
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
    uint64_t address = load_word(impl, tensor_offsets.autograd);
    if (p->grad != 0 || address == 0)
        return;
    (void)careful_copy(address, meta, sizeof meta);
    uint64_t word = load_word(meta, tensor_offsets.grad);
    c->undefined_differs |= c->undefined_seen && word != tensor_offsets.undefined;
    c->undefined_seen = true;
    tensor_offsets.undefined = word;
}

static bool holds_version(const char *at, const void *truth)
{
    return memcmp(at, truth, sizeof(uint32_t)) == 0;
}

static bool any_possible(const candidates *set)
{
    return !set->used || memchr(set->possible, true, sizeof set->possible) != NULL;
}

/* The version stands in an object of its own, wherever a pointer leads. */
static void narrow_version(calibration *c, const probe *p)
{
    char impl[IMPL_BYTES], counter[COUNTER_BYTES];
    size_t bytes = careful_copy(p->impl, impl, sizeof impl);
    for (size_t at = 0; at + 8 <= bytes; at += 8) {
        candidates *set = &c->counters[at / 8];
        if (!any_possible(set))
            continue;
        size_t copied = careful_copy(load_word(impl, (int)at), counter, sizeof counter);
        narrow(set, counter, copied, 4, 4, holds_version, &p->version);
    }
}

/* Two numbers, or -1: nothing but the versions is unknown then. */
static void find_version(const calibration *c)
{
    int count = 0;
    for (int i = 0; i < IMPL_BYTES / 8; i++) {
        for (int at = 0; c->counters[i].used && at < COUNTER_BYTES; at += 4) {
            if (!c->counters[i].possible[at])
                continue;
            count++;
            tensor_offsets.counter = i * 8;
            tensor_offsets.version = at;
        }
    }
    if (count != 1)
        tensor_offsets.counter = tensor_offsets.version = -1;
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
    } first[] = {{FACT_IMPL, &tensor_offsets.impl},
                 {FACT_STORAGE, &tensor_offsets.storage},
                 {FACT_AUTOGRAD, &tensor_offsets.autograd},
                 {FACT_NDIM, &tensor_offsets.ndim},
                 {FACT_SIZES, &tensor_offsets.sizes},
                 {FACT_STRIDES, &tensor_offsets.strides},
                 {FACT_OFFSET, &tensor_offsets.offset},
                 {FACT_NUMEL, &tensor_offsets.numel},
                 {FACT_DEVICE, &tensor_offsets.device},
                 {FACT_STORAGE_DATA, &tensor_offsets.storage_data},
                 {FACT_STORAGE_BYTES, &tensor_offsets.storage_bytes}};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        if ((*first[i].offset = the_one(&c->facts[first[i].fact], first[i].fact, false)) < 0)
            return false;
    if ((tensor_offsets.dtype = the_dtype(c, &tensor_offsets)) < 0 ||
        (tensor_offsets.keys = the_keys(c, &tensor_offsets)) < 0)
        return false;
    if (!each_probe(probes, c, narrow_meta))
        return false;
    tensor_offsets.requires_grad =
        the_one(&c->facts[FACT_REQUIRES_GRAD], FACT_REQUIRES_GRAD, false);
    if (tensor_offsets.requires_grad < 0)
        return false;
    tensor_offsets.grad = the_one(&c->facts[FACT_GRAD], FACT_GRAD, false);
    if (tensor_offsets.grad < 0)
        return false;
    tensor_offsets.grad_fn = the_one(&c->facts[FACT_GRAD_FN], FACT_GRAD_FN, true);
    if (tensor_offsets.grad_fn < 0 || !each_probe(probes, c, learn_undefined))
        return false;
    if (c->undefined_differs || !c->undefined_seen)
        PyErr_SetString(PyExc_ValueError, "tensor layout: an absent gradient has many values");
    if (c->undefined_differs || !c->undefined_seen || !each_probe(probes, c, narrow_version))
        return false;
    find_version(c);
    return true;
}

/* ---- 2. Verification ----------------------------------------------------------------------- */

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

/* A version that is read wrong is not read at all. */
static void verify_version(const probe *p)
{
    const void *counter;
    uint32_t version;
    if (tensor_version_read(p->tensor, &counter, &version) && version != p->version)
        tensor_offsets.counter = -1;
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
        verify_version(&p);
    }
    return !PyErr_Occurred();
}

static PyObject *offsets_as_dict(void)
{
    return Py_BuildValue(
        "{si si si si si si si si si si si si si si si si si si}", "impl", tensor_offsets.impl,
        "storage", tensor_offsets.storage, "autograd", tensor_offsets.autograd, "ndim",
        tensor_offsets.ndim, "sizes", tensor_offsets.sizes, "strides", tensor_offsets.strides,
        "offset", tensor_offsets.offset, "numel", tensor_offsets.numel, "dtype",
        tensor_offsets.dtype, "device", tensor_offsets.device, "keys", tensor_offsets.keys,
        "storage_data", tensor_offsets.storage_data, "storage_bytes", tensor_offsets.storage_bytes,
        "requires_grad", tensor_offsets.requires_grad, "grad_fn", tensor_offsets.grad_fn, "grad",
        tensor_offsets.grad, "counter", tensor_offsets.counter, "version", tensor_offsets.version);
}

PyObject *tensor_layout_calibrate(PyObject *module, PyObject *arguments)
{
    PyObject *tensor, *parameter, *probes, *battery;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!O!O!O!", &PyType_Type, &tensor, &PyType_Type, &parameter,
                          &PyList_Type, &probes, &PyList_Type, &battery))
        return NULL;
    tensor_layout_set_types((PyTypeObject *)tensor, (PyTypeObject *)parameter);
    memset(&tensor_offsets, 0, sizeof tensor_offsets);
    calibration *c = PyMem_Calloc(1, sizeof *c);
    if (c == NULL)
        return PyErr_NoMemory();
    bool found = find_offsets(probes, c);
    PyMem_Free(c);
    if (!found)
        return NULL;
    tensor_offsets.ready = true;
    if (!verify(battery)) {
        tensor_offsets.ready = false;
        return NULL;
    }
    return offsets_as_dict();
}
