/* name.c - long sums as summands by their names.
 *
 * A residual stream is x + a1 + b1 + a2 + ..., two terms more per layer; written out in every
 * relation, a proof would be quadratic in the layers. But an operator that wants one term has the
 * sum defined before the stream goes on. From then on that one term, its *name*, stands for it in
 * other sums, and no sum has many more than SUM_MAX terms. The parallel side follows: a part of a
 * sum whose name stands in logical sums is that part of the name, whether or not the rank hands it
 * to such an operator itself. Between two names sums are flat, and their order does not matter.
 *
 * A name equals its sum, so what is proved with names is proved. What is not may be without them
 * (the ranks add in an order that crosses a name): verify.c tries again.
 *
 * Data structure: a map from long logical sums to names; a mark on the atoms that are used so.
 * Cost: a look-up on the logical side, a fold on the other, per long summand.
 */
#include "prove/universe.h"

#include <assert.h>

enum { SUM_MAX = 8 }; /* terms of a sum that is not long */

void tocsin_universe_set_naming(tocsin_universe *universe, bool naming)
{
    universe->naming = naming;
}

bool tocsin_universe_was_named(const tocsin_universe *universe)
{
    return universe->named;
}

static bool is_long(const tocsin_relation *relation)
{
    return !relation->segmented && relation->count > SUM_MAX;
}

/* The atom that the name, of one term, is a part of. */
static tocsin_atom *atom_of(tocsin_universe *universe, tocsin_relation_id name)
{
    const tocsin_relation *view = tocsin_relation_get(universe, name);
    assert(!view->segmented && view->count == 1);
    return universe->atoms.items[view->terms[0].atom - 1];
}

bool tocsin_relation_set_name(tocsin_universe *universe, tocsin_relation_id sum,
                              tocsin_relation_id name)
{
    assert(universe->logical);
    return !universe->naming || !is_long(tocsin_relation_get(universe, sum)) ||
           tocsin_map_put(&universe->names, sum, name) ||
           tocsin_universe_fail(universe, TOCSIN_E_MEMORY) != 0;
}

tocsin_relation_id tocsin_relation_by_name(tocsin_universe *universe, tocsin_relation_id id)
{
    if (!universe->naming || !is_long(tocsin_relation_get(universe, id)))
        return id;
    if (universe->logical) {
        const uint64_t *name = tocsin_map_find(&universe->names, id);
        if (name == NULL)
            return id;
        universe->named = atom_of(universe, (tocsin_relation_id)*name)->named = true;
        return (tocsin_relation_id)*name;
    }
    const tocsin_relation_id name = universe->named ? tocsin_relation_fold_sum(universe, id) : 0;
    if (universe->status != TOCSIN_OK)
        return 0;
    return name != 0 && atom_of(universe, name)->named ? name : id;
}
