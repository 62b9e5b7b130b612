/* lib/guard/checkpoint_digests.h - the inside of the digests of a checkpoint. */
#ifndef TOCSIN_LIB_GUARD_CHECKPOINT_DIGESTS_H
#define TOCSIN_LIB_GUARD_CHECKPOINT_DIGESTS_H

#include <base/base.h>
#include <tocsin/gate.h>

/* One tensor, or one value (dtype NONE), of the name with id index + 1. */
typedef struct tocsin_checkpoint_entry {
    tocsin_dtype dtype;
    bool voted;
    uint32_t ndim;
    const int64_t *shape; /* of the whole, in the arena */
    uint64_t whole;       /* its elements */
    uint64_t elements;    /* added so far */
    tocsin_digest digest;
    tocsin_hash128 hash; /* of a value */
} tocsin_checkpoint_entry;

struct tocsin_checkpoint_digests {
    tocsin_checkpoint_origin origin;
    tocsin_intern names;
    tocsin_arena arena;
    TOCSIN_VEC(tocsin_checkpoint_entry) entries;
};

/* Add one as another set, or a file, has it: the one way in. `shape` is copied. */
TOCSIN_MUST_CHECK tocsin_status tocsin_checkpoint_put(tocsin_checkpoint_digests *digests,
                                                      const char *name,
                                                      const tocsin_checkpoint_entry *entry,
                                                      tocsin_error *error);

/* Indices of the entries by name (strcmp); tocsin_free it. NULL: out of memory. */
TOCSIN_MUST_CHECK size_t *tocsin_checkpoint_order(const tocsin_checkpoint_digests *digests);

/* Same dtype and shape of the whole? */
bool tocsin_checkpoint_same_form(const tocsin_checkpoint_entry *a,
                                 const tocsin_checkpoint_entry *b);

static inline const char *tocsin_checkpoint_name(const tocsin_checkpoint_digests *digests,
                                                 size_t index)
{
    return tocsin_intern_string(&digests->names, (uint32_t)index + 1);
}

#endif
