/* checkpoint_digests.c - the digests of a checkpoint, gathered piece by piece.
 *
 * Data: an entry a name, found by an intern table: entry i has the name of id i + 1.
 * Invariant: an entry's digest is that of as many elements as `elements` counts; elements that were
 * added twice are counted twice, so that overlapping pieces do not look complete.
 * Cost: a look-up of the name and three additions a piece; about 100 bytes an entry.
 */
#include "guard/checkpoint_digests.h"

#include <assert.h>
#include <stdlib.h>

#define WORDS_MAX (UINT64_C(1) << 60) /* as of tocsin_tensor_digest */

tocsin_status tocsin_checkpoint_digests_new(tocsin_checkpoint_digests **digests,
                                            tocsin_error *error)
{
    *digests = tocsin_zalloc(1, sizeof **digests);
    if (!*digests)
        return tocsin_error_memory(error);
    (*digests)->names.limit_count = TOCSIN_CHECKPOINT_ENTRIES_MAX;
    (*digests)->origin.replicas = 1;
    return TOCSIN_OK;
}

void tocsin_checkpoint_digests_free(tocsin_checkpoint_digests *digests)
{
    if (!digests)
        return;
    tocsin_intern_free(&digests->names);
    tocsin_arena_free(&digests->arena);
    TOCSIN_VEC_FREE(&digests->entries);
    tocsin_free(digests);
}

tocsin_checkpoint_origin tocsin_checkpoint_digests_origin(const tocsin_checkpoint_digests *digests)
{
    return digests->origin;
}

void tocsin_checkpoint_digests_set_origin(tocsin_checkpoint_digests *digests,
                                          tocsin_checkpoint_origin origin)
{
    digests->origin = origin;
}

size_t tocsin_checkpoint_digests_count(const tocsin_checkpoint_digests *digests)
{
    return digests->entries.count;
}

size_t tocsin_checkpoint_digests_voted(const tocsin_checkpoint_digests *digests)
{
    size_t count = 0;
    for (size_t i = 0; i < digests->entries.count; ++i)
        count += digests->entries.items[i].voted;
    return count;
}

/* ---- adding -----------------------------------------------------------------------------------
 */

/* Elements of a shape; false: negative, or more than a tensor may have. */
static bool count_elements(const int64_t *shape, uint32_t ndim, uint64_t *elements)
{
    uint64_t product = 1;
    bool empty = false;
    for (uint32_t axis = 0; axis < ndim; ++axis) {
        if (shape[axis] < 0)
            return false;
        empty = empty || shape[axis] == 0;
    }
    for (uint32_t axis = 0; axis < ndim && !empty; ++axis)
        if (__builtin_mul_overflow(product, (uint64_t)shape[axis], &product) || product > WORDS_MAX)
            return false;
    *elements = empty ? 0 : product;
    return true;
}

static tocsin_status check_entry(const char *name, tocsin_checkpoint_entry *entry,
                                 tocsin_error *error)
{
    if (strlen(name) > TOCSIN_CHECKPOINT_NAME_BYTES_MAX)
        return tocsin_error_at(error, TOCSIN_E_ARGUMENT, name, -1,
                               "a name of more than %d bytes in a checkpoint",
                               TOCSIN_CHECKPOINT_NAME_BYTES_MAX);
    if (entry->ndim > TOCSIN_NDIM_MAX ||
        !count_elements(entry->shape, entry->ndim, &entry->whole) ||
        (entry->dtype != TOCSIN_DTYPE_NONE && tocsin_dtype_bytes(entry->dtype) == 0))
        return tocsin_error_at(error, TOCSIN_E_ARGUMENT, name, -1,
                               "no tensor has such a dtype and shape");
    if (entry->dtype == TOCSIN_DTYPE_NONE)
        entry->whole = 0;
    return TOCSIN_OK;
}

static tocsin_status add_entry(tocsin_checkpoint_digests *digests, const char *name,
                               const tocsin_checkpoint_entry *entry, tocsin_error *error)
{
    tocsin_checkpoint_entry added = *entry;
    if (digests->entries.count == TOCSIN_CHECKPOINT_ENTRIES_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "more than %u entries in a checkpoint",
                                TOCSIN_CHECKPOINT_ENTRIES_MAX);
    added.shape =
        tocsin_arena_copy_items(&digests->arena, entry->shape, entry->ndim, sizeof *entry->shape);
    if (!added.shape || !TOCSIN_VEC_RESERVE(&digests->entries, 1) ||
        tocsin_intern_put(&digests->names, name, strlen(name)) == 0)
        return tocsin_error_memory(error);
    digests->entries.items[digests->entries.count++] = added;
    return TOCSIN_OK;
}

bool tocsin_checkpoint_same_form(const tocsin_checkpoint_entry *a, const tocsin_checkpoint_entry *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
}

tocsin_status tocsin_checkpoint_put(tocsin_checkpoint_digests *digests, const char *name,
                                    const tocsin_checkpoint_entry *entry, tocsin_error *error)
{
    tocsin_checkpoint_entry given = *entry;
    TOCSIN_TRY(check_entry(name, &given, error));
    uint32_t id = tocsin_intern_find(&digests->names, name, strlen(name));
    if (id == 0)
        return add_entry(digests, name, &given, error);
    tocsin_checkpoint_entry *there = &digests->entries.items[id - 1];
    if (!tocsin_checkpoint_same_form(there, &given))
        return tocsin_error_at(error, TOCSIN_E_ARGUMENT, name, -1,
                               "pieces of one tensor have different dtypes or whole shapes");
    if (given.dtype == TOCSIN_DTYPE_NONE) {
        if (given.hash.low != there->hash.low || given.hash.high != there->hash.high)
            return tocsin_error_at(error, TOCSIN_E_ARGUMENT, name, -1,
                                   "two values have this name in a checkpoint");
        return TOCSIN_OK;
    }
    if (__builtin_add_overflow(there->elements, given.elements, &there->elements) ||
        there->elements > INT64_MAX) /* far too many, which is not complete either */
        there->elements = INT64_MAX;
    there->digest = tocsin_digest_merge(there->digest, given.digest);
    there->voted = there->voted && given.voted;
    return TOCSIN_OK;
}

tocsin_status tocsin_checkpoint_digests_add_tensor(tocsin_checkpoint_digests *digests,
                                                   const char *name,
                                                   const tocsin_tensor_view *piece,
                                                   tocsin_digest digest, bool voted,
                                                   tocsin_error *error)
{
    tocsin_checkpoint_entry entry = {.dtype = piece->dtype,
                                     .voted = voted,
                                     .ndim = piece->ndim,
                                     .shape =
                                         piece->global_shape ? piece->global_shape : piece->shape,
                                     .digest = digest};
    if (piece->dtype == TOCSIN_DTYPE_NONE || piece->ndim > TOCSIN_NDIM_MAX ||
        !count_elements(piece->shape, piece->ndim, &entry.elements))
        return tocsin_error_at(error, TOCSIN_E_ARGUMENT, name, -1,
                               "no tensor has such a dtype and shape");
    return tocsin_checkpoint_put(digests, name, &entry, error);
}

tocsin_status tocsin_checkpoint_digests_add_value(tocsin_checkpoint_digests *digests,
                                                  const char *name, const char *text, size_t bytes,
                                                  tocsin_error *error)
{
    static const int64_t no_shape[1];
    tocsin_checkpoint_entry entry = {
        .dtype = TOCSIN_DTYPE_NONE, .shape = no_shape, .hash = tocsin_hash128_of(text, bytes, 0)};
    return tocsin_checkpoint_put(digests, name, &entry, error);
}

tocsin_status tocsin_checkpoint_digests_merge(tocsin_checkpoint_digests *digests,
                                              const tocsin_checkpoint_digests *other,
                                              tocsin_error *error)
{
    assert(digests != other);
    for (size_t i = 0; i < other->entries.count; ++i)
        TOCSIN_TRY(tocsin_checkpoint_put(digests, tocsin_checkpoint_name(other, i),
                                         &other->entries.items[i], error));
    return TOCSIN_OK;
}

/* ---- in order ---------------------------------------------------------------------------------
 */

static int compare_names(const void *a, const void *b, void *context)
{
    const tocsin_checkpoint_digests *digests = context;
    return strcmp(tocsin_checkpoint_name(digests, *(const size_t *)a),
                  tocsin_checkpoint_name(digests, *(const size_t *)b));
}

size_t *tocsin_checkpoint_order(const tocsin_checkpoint_digests *digests)
{
    size_t *order = tocsin_zalloc(digests->entries.count, sizeof *order);
    if (!order)
        return NULL;
    for (size_t i = 0; i < digests->entries.count; ++i)
        order[i] = i;
    qsort_r(order, digests->entries.count, sizeof *order, compare_names,
            (void *)(uintptr_t)digests);
    return order;
}

const char *tocsin_checkpoint_digests_incomplete(const tocsin_checkpoint_digests *digests)
{
    const char *first = NULL;
    for (size_t i = 0; i < digests->entries.count; ++i) {
        const tocsin_checkpoint_entry *entry = &digests->entries.items[i];
        const char *name = tocsin_checkpoint_name(digests, i);
        if (entry->elements != entry->whole && (!first || strcmp(name, first) < 0))
            first = name;
    }
    return first;
}
