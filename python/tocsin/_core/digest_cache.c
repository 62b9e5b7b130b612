/* digest_cache.c - digests of tensors that were read a moment ago.
 *
 * What one module returns, the next one takes: the same memory, often read twice or three times.
 * An entry is right as long as torch has not counted a write, and the memory is still that of the
 * tensor that was read. The latter is known by a weak reference to it: while it lives and has this
 * storage and this counter, neither can have been given back and used again. (Its place alone says
 * nothing: the next activation of the same size often lies where the last one was.)
 *
 * Writes that torch does not count (numpy's, gloo's, those through `.data`) are not seen. So
 * communication clears the cache, it lasts no longer than a step, and parameters are left out.
 *
 * Data structure: a direct-mapped table by address, storage and count of writes. Cost: 40 ns.
 */
#include "digest_cache.h"

#include "observe.h"

#include <assert.h>
#include <string.h>

enum { ENTRIES = 256, AXES_MAX = 5 };

typedef struct kept_digest {
    PyObject *tensor; /* weak; NULL: an empty entry */
    const void *data, *storage, *counter;
    uint32_t version;
    uint8_t dtype, ndim;
    int64_t sizes[AXES_MAX], strides[AXES_MAX];
    tocsin_sample_digest digest;
} kept_digest;

static kept_digest entries[ENTRIES];

static kept_digest *entry_of(const tensor_meta *meta, const void *counter)
{
    uint64_t hash = ((uint64_t)(uintptr_t)meta->data ^ (uint64_t)(uintptr_t)counter << 20) *
                    UINT64_C(0x9E3779B97F4A7C15);
    return &entries[hash >> 56];
}
static_assert(ENTRIES == 1 << (64 - 56), "the index is what is left of the hash");

static bool same_axes(const kept_digest *entry, const tensor_meta *meta)
{
    size_t bytes = meta->ndim * sizeof *meta->sizes;
    return entry->ndim == meta->ndim && memcmp(entry->sizes, meta->sizes, bytes) == 0 &&
           memcmp(entry->strides, meta->strides, bytes) == 0;
}

/* Does the tensor that was read still have the memory that was read? */
static bool still_there(const kept_digest *entry)
{
    PyObject *tensor = weak_get(entry->tensor);
    tensor_meta meta;
    const void *counter;
    uint32_t version;
    bool there = tensor != NULL && tensor_is_exact(tensor) && tensor_meta_read(tensor, &meta);
    if (there) {
        there = meta.storage == entry->storage && meta.data == entry->data &&
                tensor_version_read(tensor, &counter, &version) && counter == entry->counter;
        tensor_meta_release(&meta);
    }
    Py_XDECREF(tensor);
    return there;
}

const tocsin_sample_digest *digest_cache_find(const tensor_meta *meta, const void *counter,
                                              uint32_t version)
{
    const kept_digest *entry = entry_of(meta, counter);
    if (entry->tensor == NULL || entry->data != meta->data || entry->storage != meta->storage ||
        entry->counter != counter || entry->version != version || entry->dtype != meta->dtype ||
        !same_axes(entry, meta) || !still_there(entry))
        return NULL;
    return &entry->digest;
}

void digest_cache_keep(PyObject *tensor, const tensor_meta *meta, const void *counter,
                       uint32_t version, const tocsin_sample_digest *digest)
{
    if (meta->ndim > AXES_MAX || tensor_is_parameter(tensor))
        return;
    kept_digest *entry = entry_of(meta, counter);
    PyObject *reference = PyWeakref_NewRef(tensor, NULL);
    if (reference == NULL) {
        PyErr_Clear();
        return;
    }
    Py_XSETREF(entry->tensor, reference);
    entry->data = meta->data;
    entry->storage = meta->storage;
    entry->counter = counter;
    entry->version = version;
    entry->dtype = meta->dtype;
    entry->ndim = meta->ndim;
    memcpy(entry->sizes, meta->sizes, meta->ndim * sizeof *meta->sizes);
    memcpy(entry->strides, meta->strides, meta->ndim * sizeof *meta->strides);
    entry->digest = *digest;
}

void digest_cache_clear(void)
{
    for (int i = 0; i < ENTRIES; i++)
        Py_CLEAR(entries[i].tensor);
}
