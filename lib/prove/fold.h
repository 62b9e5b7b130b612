/* prove/fold.h - shared by define.c, fold_map.c and fold_joint.c: finding out of which definition a
 * relation is a part. Inside of the relation algebra, like layout.h.
 */
#ifndef TOCSIN_PROVE_FOLD_H
#define TOCSIN_PROVE_FOLD_H

#include "prove/layout.h"

/* What all terms of the relation have in addition to those of the definition. */
typedef struct tocsin_fold_shared {
    tocsin_factor_id factor;
    uint32_t box_count;
    tocsin_box_entry box[TOCSIN_BOX_ENTRIES_MAX];
} tocsin_fold_shared;

/* Guess it from one term of the definition and one of the relation. (define.c) */
bool tocsin_fold_guess_shared(tocsin_universe *universe, const tocsin_term *whole,
                              const tocsin_term *part, tocsin_fold_shared *shared);
/* Every term times the factor, restricted to the box. (define.c) */
tocsin_relation_id tocsin_fold_with_shared(tocsin_universe *universe, tocsin_relation_id id,
                                           const tocsin_fold_shared *shared);

/* The relation `id` as a rearranged part of the defined atom, which may have other dims; 0: it is
 * none. *attempts is how many guesses are left. Both without segments. (fold_map.c) */
tocsin_relation_id tocsin_fold_by_map(tocsin_universe *universe, tocsin_relation_id id,
                                      tocsin_atom_id definition,
                                      const int64_t size[TOCSIN_SYMBOL_COUNT], uint32_t *attempts);

/* The first term that is partial, or NULL. (fold_joint.c) */
const tocsin_term *tocsin_fold_partial_term(const tocsin_universe *universe,
                                            const tocsin_relation *relation);
/* The relation `id`, of partial terms each of a contraction of its own, as a partial part of a
 * definition; 0: it is none. (fold_joint.c) */
tocsin_relation_id tocsin_fold_jointly(tocsin_universe *universe, tocsin_relation_id id,
                                       const int64_t size[TOCSIN_SYMBOL_COUNT]);

#endif
