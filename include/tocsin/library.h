/* tocsin/library.h - invariants that hold in every healthy PyTorch training, shipped with the
 * library: no reference run is needed. What they say, and what they are silent on: docs/library.md.
 */
#ifndef TOCSIN_LIBRARY_H
#define TOCSIN_LIBRARY_H

#include <tocsin/invariant.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The shipped invariants as a set of their own; free with tocsin_invariants_free. Errors:
 * E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_library_load(tocsin_invariant_set **set,
                                                               tocsin_error *error);
/* Add them to a set; those it has already stay as they are. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_library_append(tocsin_invariant_set *set,
                                                                 tocsin_error *error);

#ifdef __cplusplus
}
#endif
#endif
