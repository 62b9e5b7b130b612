/* multi_digest.c - digests and statistics of many tensors in one call.
 *
 * Data structure: the tensors are taken in batches; of each batch the layout is read under the GIL,
 * then the GIL is released and memory is read, once.
 * Invariant: a reference to every tensor is held meanwhile. Whoever resizes one of them in another
 * thread breaks the rule that holds for torch's own operations, too.
 * Cost: one read of memory; 0.1 us a tensor beside it. No recorder need run.
 */
#include "hook_engine.h"
#include "tensor_layout.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum {
    BATCH = 64,
    LARGE_MAX = 64 /* large elements of a tensor that are counted */
};

/* What is asked of one tensor, and found. */
typedef struct scan {
    tocsin_tensor_view view;
    tocsin_digest digest;
    tocsin_statistics statistics;
    uint64_t large; /* finite components beyond `limit` */
    int64_t first;  /* the first element that is NaN or Inf; -1: none */
} scan;

typedef struct batch {
    tensor_meta metas[BATCH];
    scan scans[BATCH];
    size_t count;
} batch;

static PyObject *raise_error(const tocsin_error *error, Py_ssize_t tensor)
{
    return PyErr_Format(PyExc_ValueError, "tensor %zd: %s", tensor, error->message);
}

static void batch_release(batch *b)
{
    for (size_t i = 0; i < b->count; i++)
        tensor_meta_release(&b->metas[i]);
    b->count = 0;
}

/* The layout of up to BATCH tensors from `begin` on; false: an exception is set. */
static bool batch_read(batch *b, PyObject *tensors, Py_ssize_t begin)
{
    Py_ssize_t total = PyTuple_GET_SIZE(tensors);
    for (Py_ssize_t i = begin; i < total && b->count < BATCH; i++) {
        PyObject *tensor = PyTuple_GET_ITEM(tensors, i);
        tensor_meta *meta = &b->metas[b->count];
        if (!tensor_is_exact(tensor)) {
            PyErr_Format(PyExc_TypeError, "tensor %zd is a %.200s, not a plain tensor", i,
                         Py_TYPE(tensor)->tp_name);
            return false;
        }
        if (!tensor_meta_read(tensor, meta)) {
            PyErr_Format(PyExc_ValueError, "tensor %zd cannot be read", i);
            return false;
        }
        b->scans[b->count++].view = (tocsin_tensor_view){.data = meta->data,
                                                         .dtype = (tocsin_dtype)meta->dtype,
                                                         .ndim = meta->ndim,
                                                         .shape = meta->sizes,
                                                         .strides = meta->strides};
        if (!meta->readable) {
            PyErr_Format(PyExc_ValueError,
                         "tensor %zd cannot be read: it is not dense, not on the CPU, of a dtype "
                         "without digest, or lazily conjugated or negated",
                         i);
            return false;
        }
    }
    return true;
}

/* ---- 1. What is bad ------------------------------------------------------------------------ */

/* Beyond it the sum over the ranks or the square, in the type in which torch adds up, may overflow.
 */
static double large_limit(tocsin_dtype dtype, double ranks)
{
    switch (dtype) {
    case TOCSIN_DTYPE_FLOAT16:
    case TOCSIN_DTYPE_COMPLEX32:
        return 65504.0 / ranks;
    case TOCSIN_DTYPE_BFLOAT16:
    case TOCSIN_DTYPE_FLOAT32:
    case TOCSIN_DTYPE_COMPLEX64:
        return fmin((double)FLT_MAX / ranks, 1e15);
    case TOCSIN_DTYPE_FLOAT64:
    case TOCSIN_DTYPE_COMPLEX128:
        return fmin(DBL_MAX / ranks, 1e150);
    case TOCSIN_DTYPE_FLOAT8_E4M3FN:
        return 448.0 / ranks;
    case TOCSIN_DTYPE_FLOAT8_E4M3FNUZ:
        return 240.0 / ranks;
    case TOCSIN_DTYPE_FLOAT8_E5M2:
    case TOCSIN_DTYPE_FLOAT8_E5M2FNUZ:
        return 57344.0 / ranks;
    default:
        return INFINITY;
    }
}

/* A view of which one axis is halved after the other, the outermost first. */
typedef struct part {
    tocsin_tensor_view view;
    int64_t shape[TOCSIN_NDIM_MAX];
} part;

static void part_begin(part *p, const tocsin_tensor_view *view)
{
    p->view = *view;
    memcpy(p->shape, view->shape, view->ndim * sizeof p->shape[0]);
    p->view.shape = p->shape;
}

/* The part becomes its first half, *rest its second. false: it is one element. */
static bool part_halve(part *p, part *rest)
{
    uint32_t axis = 0;
    while (axis < p->view.ndim && p->shape[axis] < 2)
        axis++;
    if (axis == p->view.ndim)
        return false;
    part_begin(rest, &p->view);
    p->shape[axis] /= 2;
    rest->shape[axis] -= p->shape[axis];
    ptrdiff_t bytes = (ptrdiff_t)tocsin_dtype_bytes(p->view.dtype);
    rest->view.data = (const char *)p->view.data + p->shape[axis] * p->view.strides[axis] * bytes;
    return true;
}

static bool part_statistics(const part *p, tocsin_statistics *statistics)
{
    return tocsin_tensor_digest(&p->view, NULL, statistics, NULL) == TOCSIN_OK;
}

/* The first element, in logical order, that is not finite; there is one. Reads half, a quarter ...
 * of the tensor again. */
static int64_t first_not_finite(const tocsin_tensor_view *view)
{
    part p, rest;
    int64_t first = 0;
    part_begin(&p, view);
    while (part_halve(&p, &rest)) {
        tocsin_statistics statistics = {0};
        if (!part_statistics(&p, &statistics))
            return -1;
        if (statistics.nan_count + statistics.inf_count > 0)
            continue;
        int64_t skipped = 1;
        for (uint32_t axis = 0; axis < p.view.ndim; axis++)
            skipped *= p.shape[axis];
        /* Outer axes are of size 1 by now, inner ones whole: the part is consecutive. */
        first += skipped;
        part_begin(&p, &rest.view);
    }
    return first;
}

/* How many components of a part are beyond the limit; stops at LARGE_MAX. Depth: log2 of size. */
static uint64_t count_large(part *p, double limit, uint64_t so_far)
{
    part rest;
    tocsin_statistics statistics = {0};
    if (so_far >= LARGE_MAX || !part_statistics(p, &statistics) || statistics.absmax <= limit)
        return so_far;
    if (!part_halve(p, &rest))
        return so_far + 1;
    so_far = count_large(p, limit, so_far);
    return count_large(&rest, limit, so_far);
}

/* ---- 2. Reading ---------------------------------------------------------------------------- */

/* Read a batch, without the GIL. Returns how many went well. */
static size_t batch_digest(batch *b, tocsin_error *error)
{
    for (size_t i = 0; i < b->count; i++)
        if (tocsin_tensor_digest(&b->scans[i].view, &b->scans[i].digest, NULL, error) != TOCSIN_OK)
            return i;
    return b->count;
}

static size_t batch_scan(batch *b, double ranks, tocsin_error *error)
{
    for (size_t i = 0; i < b->count; i++) {
        scan *s = &b->scans[i];
        if (tocsin_tensor_digest(&s->view, &s->digest, &s->statistics, error) != TOCSIN_OK)
            return i;
        bool bad = s->statistics.nan_count + s->statistics.inf_count > 0;
        double limit = large_limit(s->view.dtype, ranks);
        part whole;
        part_begin(&whole, &s->view);
        s->first = bad ? first_not_finite(&s->view) : -1;
        s->large = s->statistics.absmax > limit ? count_large(&whole, limit, 0) : 0;
    }
    return b->count;
}

/* Append what is bad of a batch to a list: (tensor, nan, inf, large, first) each. */
static bool append_bad(PyObject *list, const batch *b, Py_ssize_t begin)
{
    for (size_t i = 0; i < b->count; i++) {
        const scan *s = &b->scans[i];
        if (s->statistics.nan_count + s->statistics.inf_count + s->large == 0)
            continue;
        PyObject *bad = Py_BuildValue("nKKKL", begin + (Py_ssize_t)i,
                                      (unsigned long long)s->statistics.nan_count,
                                      (unsigned long long)s->statistics.inf_count,
                                      (unsigned long long)s->large, (long long)s->first);
        bool kept = bad != NULL && PyList_Append(list, bad) == 0;
        Py_XDECREF(bad);
        if (!kept)
            return false;
    }
    return true;
}

/* One pass over all tensors. `ranks` 0: digests alone. false: an exception is set. */
static bool pass(PyObject *tensors, double ranks, char *digests, PyObject *bad, double *squares)
{
    batch *b = PyMem_Calloc(1, sizeof *b);
    bool fine = b != NULL;
    if (!fine)
        PyErr_NoMemory();
    Py_ssize_t total = PyTuple_GET_SIZE(tensors);
    for (Py_ssize_t begin = 0; fine && begin < total; begin += BATCH) {
        tocsin_error error;
        size_t done;
        fine = batch_read(b, tensors, begin);
        if (fine) {
            Py_BEGIN_ALLOW_THREADS;
            done = ranks > 0.0 ? batch_scan(b, ranks, &error) : batch_digest(b, &error);
            Py_END_ALLOW_THREADS;
            fine = done == b->count;
            if (!fine)
                raise_error(&error, begin + (Py_ssize_t)done);
        }
        for (size_t i = 0; fine && i < b->count; i++) {
            memcpy(digests, &b->scans[i].digest, sizeof(tocsin_digest));
            digests += sizeof(tocsin_digest);
            *squares += b->scans[i].statistics.sum_squares;
        }
        fine = fine && (bad == NULL || append_bad(bad, b, begin));
        batch_release(b);
    }
    PyMem_Free(b);
    return fine;
}

/* ---- 3. For Python ------------------------------------------------------------------------- */

/* digest_tensors(tensors) -> bytes: sum, exclusive, polynomial of each, native uint64. */
static PyObject *digest_tensors(PyObject *module, PyObject *sequence)
{
    double squares = 0.0;
    (void)module;
    PyObject *tensors = PySequence_Tuple(sequence);
    PyObject *digests =
        tensors == NULL ? NULL
                        : PyBytes_FromStringAndSize(NULL, PyTuple_GET_SIZE(tensors) *
                                                              (Py_ssize_t)sizeof(tocsin_digest));
    if (digests != NULL && !pass(tensors, 0.0, PyBytes_AS_STRING(digests), NULL, &squares))
        Py_CLEAR(digests);
    Py_XDECREF(tensors);
    return digests;
}

/* scan_gradients(tensors, ranks) -> (digests, sum of squares of what is finite, bad). bad: a list
 * of (tensor, NaN, Inf, large, first element that is not finite or -1) of the tensors that have
 * any; large: beyond what as many ranks may add up, LARGE_MAX at most are counted. */
static PyObject *scan_gradients(PyObject *module, PyObject *arguments)
{
    PyObject *sequence;
    unsigned int ranks;
    double squares = 0.0;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OI:scan_gradients", &sequence, &ranks))
        return NULL;
    if (ranks == 0)
        return PyErr_Format(PyExc_ValueError, "there are no ranks");
    PyObject *tensors = PySequence_Tuple(sequence), *digests = NULL, *bad = NULL, *result = NULL;
    if (tensors != NULL) {
        bad = PyList_New(0);
        digests = PyBytes_FromStringAndSize(NULL, PyTuple_GET_SIZE(tensors) *
                                                      (Py_ssize_t)sizeof(tocsin_digest));
    }
    if (bad != NULL && digests != NULL &&
        pass(tensors, (double)ranks, PyBytes_AS_STRING(digests), bad, &squares))
        result = Py_BuildValue("OdO", digests, squares, bad);
    Py_XDECREF(digests);
    Py_XDECREF(bad);
    Py_XDECREF(tensors);
    return result;
}

/* digest_locate(before, after, words) -> (word, delta, set, cleared): the one word in which tensors
 * of as many words with these digests (24 bytes each) differ; None: there is no such word. */
static PyObject *digest_locate(PyObject *module, PyObject *arguments)
{
    const char *before, *after;
    Py_ssize_t before_bytes, after_bytes;
    unsigned long long words;
    tocsin_digest digests[2];
    tocsin_word_change change;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y#y#K:digest_locate", &before, &before_bytes, &after,
                          &after_bytes, &words))
        return NULL;
    if (before_bytes != (Py_ssize_t)sizeof digests[0] || after_bytes != before_bytes)
        return PyErr_Format(PyExc_ValueError, "a digest has %zu bytes", sizeof digests[0]);
    memcpy(&digests[0], before, sizeof digests[0]);
    memcpy(&digests[1], after, sizeof digests[1]);
    if (!tocsin_digest_locate(digests[0], digests[1], words, &change))
        Py_RETURN_NONE;
    return Py_BuildValue("KLII", (unsigned long long)change.word, (long long)change.delta,
                         (unsigned int)change.set, (unsigned int)change.cleared);
}

int tocsin_multi_digest_module_exec(PyObject *module)
{
    static PyMethodDef functions[] = {
        {"digest_tensors", digest_tensors, METH_O,
         PyDoc_STR("digest_tensors(tensors) -> bytes, 24 of each")},
        {"digest_locate", digest_locate, METH_VARARGS,
         PyDoc_STR("digest_locate(before, after, words) -> (word, delta, set, cleared) or None")},
        {"scan_gradients", scan_gradients, METH_VARARGS,
         PyDoc_STR("scan_gradients(tensors, ranks) -> (digests, sum of squares, bad)")},
        {NULL, NULL, 0, NULL}};
    return PyModule_AddFunctions(module, functions);
}
