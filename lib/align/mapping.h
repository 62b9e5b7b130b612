/* mapping.h - a step's boundaries by a map of names: parts joined to the tensors of the other run.
 */
#ifndef TOCSIN_ALIGN_MAPPING_H
#define TOCSIN_ALIGN_MAPPING_H

#include "align/align.h"
#include "align/name_map.h"

/* How often a rule's tensors could not be compared. */
typedef struct tocsin_map_use {
    uint64_t layout;     /* they lie otherwise, and were not recorded as pieces */
    uint64_t incomplete; /* a part is missing, or has no digest, or another form */
} tocsin_map_use;

/* `map` and `names` are borrowed. Errors: E_MEMORY. */
TOCSIN_MUST_CHECK tocsin_status tocsin_mapping_new(const tocsin_name_map *map, tocsin_intern *names,
                                                   const tocsin_align_options *options,
                                                   tocsin_mapping **mapping, tocsin_error *error);
void tocsin_mapping_free(tocsin_mapping *mapping);

/* Both streams of a thread as the map sees them, valid until the next call: renamed, joined, what
 * was read at one point in b in the order of a. Boundaries that no rule names stay, and can only be
 * paired with those of their own name. Errors: E_MEMORY. */
TOCSIN_MUST_CHECK tocsin_status tocsin_mapping_apply(tocsin_mapping *mapping,
                                                     const tocsin_boundary_stream *a,
                                                     const tocsin_boundary_stream *b,
                                                     const tocsin_boundary_stream **mapped_a,
                                                     const tocsin_boundary_stream **mapped_b,
                                                     tocsin_error *error);
/* The first boundary of a's own stream that is part of this one of the mapped. */
uint32_t tocsin_mapping_origin(const tocsin_mapping *mapping, uint32_t mapped);
/* Of the rule at `index` of the map. */
tocsin_map_use tocsin_mapping_use(const tocsin_mapping *mapping, size_t index);

#endif
