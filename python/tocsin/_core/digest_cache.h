/* digest_cache.h - digests of tensors that were read a moment ago. */
#ifndef TOCSIN_CORE_DIGEST_CACHE_H
#define TOCSIN_CORE_DIGEST_CACHE_H

#include "tensor_layout.h"

#include <tocsin/record.h>

/* The digest of this very view of this very memory, as it is now; NULL: not known. Valid until the
 * next call of _keep. */
const tocsin_sample_digest *digest_cache_find(const tensor_meta *meta, const void *counter,
                                              uint32_t version);
/* Remember the digest of an exact tensor. */
void digest_cache_keep(PyObject *tensor, const tensor_meta *meta, const void *counter,
                       uint32_t version, const tocsin_sample_digest *digest);
/* Whatever was known may be wrong, or nothing is to be kept any more. */
void digest_cache_clear(void);

#endif
