/* prove/rebase.h - wrong values as if they were right, for the diagnosis after the first cause.
 *
 * Nothing here takes part in a proof: a re-based run serves to find further causes.
 */
#ifndef TOCSIN_PROVE_REBASE_H
#define TOCSIN_PROVE_REBASE_H

#include "prove/execute.h"
#include "prove/localise.h"

/* The rebase of an op, or NULL. */
const tocsin_rebase *tocsin_rebase_of(const tocsin_rebases *rebases, uint32_t op);
/* Add what would make the root's op right, as far as that is known. *added: something new. */
tocsin_status tocsin_rebases_add(tocsin_rebases *rebases, const tocsin_run *logical,
                                 const tocsin_root *root, bool *added, tocsin_error *error);
void tocsin_rebases_free(tocsin_rebases *rebases);

/* Each answers the relation itself when it has nothing to change. */
tocsin_relation_id tocsin_relation_as_reduced(tocsin_universe *universe,
                                              tocsin_relation_id relation);
tocsin_relation_id tocsin_relation_as_ordered(tocsin_universe *universe,
                                              tocsin_relation_id relation);
tocsin_relation_id tocsin_relation_with_atom(tocsin_universe *universe, tocsin_relation_id relation,
                                             tocsin_atom_id atom);
/* The part of `expected` that `own`, which has its atoms, lies at. */
tocsin_relation_id tocsin_relation_like(tocsin_universe *universe, tocsin_relation_id own,
                                        tocsin_relation_id expected);

#endif
