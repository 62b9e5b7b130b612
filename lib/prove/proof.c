/* proof.c - what a proof found out about values in the middle of a plan.
 *
 * The logical values are indexed by the set of atoms of their relation; the candidates for a value
 * of the parallel plan are those with the same atoms. Where the value lies in a candidate is read
 * off the digits of one term, and then verified exactly: the candidate's slice, scaled, must be the
 * same relation. Cost: linear in the logical values once, then in the candidates that are tried.
 */
#include "prove/proof.h"

#include <assert.h>
#include <stdlib.h>

#include "prove/proof_state.h"

enum { CANDIDATES_MAX = 16 };

static int by_atom(const void *a, const void *b)
{
    const tocsin_atom_id x = *(const tocsin_atom_id *)a, y = *(const tocsin_atom_id *)b;
    return (x > y) - (x < y);
}

/* A hash of the set of atoms; 0: there is none (segments, zero), or out of memory. */
static uint64_t atoms_key(const tocsin_relation *relation)
{
    tocsin_atom_id few[64];
    if (relation->segmented || relation->count == 0)
        return 0;
    tocsin_atom_id *atoms = relation->count <= TOCSIN_COUNT_OF(few)
                                ? few
                                : tocsin_alloc(relation->count * sizeof *atoms);
    if (atoms == NULL)
        return 0;
    for (uint32_t k = 0; k < relation->count; k++)
        atoms[k] = relation->terms[k].atom;
    qsort(atoms, relation->count, sizeof *atoms, by_atom);
    uint32_t kept = 1;
    for (uint32_t k = 1; k < relation->count; k++)
        if (atoms[k] != atoms[kept - 1])
            atoms[kept++] = atoms[k];
    const uint64_t key = tocsin_hash64(atoms, kept * sizeof *atoms, 0) | 1;
    if (atoms != few)
        tocsin_free(atoms);
    return key;
}

static tocsin_relation_id usable(tocsin_relation_id relation)
{
    return relation == TOCSIN_POISON ? 0 : relation;
}

static tocsin_status index_values(tocsin_proof *proof, tocsin_error *error)
{
    const tocsin_run *run = &proof->attempt->logical;
    const tocsin_plan_role *role = &run->plan->roles.items[0];

    proof->indexed = true;
    proof->next = tocsin_zalloc((size_t)role->value_count + 1, sizeof *proof->next);
    if (proof->next == NULL)
        return tocsin_error_memory(error);
    for (uint32_t value = role->value_count; value-- > 0;) { /* the first shall be found first */
        const tocsin_relation_id relation = usable(tocsin_run_value(run, 0, 0, value));
        const uint64_t key =
            relation == 0 ? 0 : atoms_key(tocsin_relation_get(run->prover->universe, relation));
        if (key == 0)
            continue;
        uint64_t *first = tocsin_map_at(&proof->first, key);
        if (first == NULL)
            return tocsin_error_memory(error);
        proof->next[value] = (uint32_t)*first;
        *first = (uint64_t)value + 1;
    }
    return TOCSIN_OK;
}

/* Where dim `dim` of `part` begins in `whole`: their digits run over the same axes, and an index
 * along the dim is the mixed-radix value of the digits. */
static bool start_of(const tocsin_term *part, const tocsin_term *whole, uint32_t dim,
                     tocsin_affine *start)
{
    uint32_t first[2] = {0, 0};
    int64_t inner = 1;

    *start = (tocsin_affine){0};
    for (uint32_t d = 0; d < dim; d++) {
        first[0] += part->digit_count[d];
        first[1] += whole->digit_count[d];
    }
    if (part->digit_count[dim] != whole->digit_count[dim])
        return false;
    for (uint32_t k = part->digit_count[dim]; k-- > 0;) {
        const tocsin_digit *a = &part->digits[first[0] + k], *b = &whole->digits[first[1] + k];
        if (a->axis != b->axis || a->stride != b->stride ||
            inner > TOCSIN_PLAN_INDEX_MAX / b->count)
            return false;
        start->base += (a->start.base - b->start.base) * inner;
        for (int s = 0; s < TOCSIN_SYMBOL_COUNT; s++)
            start->weight[s] += (a->start.weight[s] - b->start.weight[s]) * inner;
        inner *= b->count;
    }
    return true;
}

/* Is `own` a slice of `whole`, the logical value, times a rational? */
static bool claim_of(tocsin_universe *universe, tocsin_relation_id own, tocsin_relation_id whole,
                     tocsin_claim *claim)
{
    const tocsin_relation *part = tocsin_relation_get(universe, own);
    const tocsin_relation *all = tocsin_relation_get(universe, whole);
    const tocsin_term *term = &part->terms[0], *match = NULL;

    if (part->segmented || all->segmented || part->ndim != all->ndim || part->count == 0)
        return false;
    for (uint32_t k = 0; k < all->count && match == NULL; k++)
        if (all->terms[k].atom == term->atom)
            match = &all->terms[k];
    if (match == NULL)
        return false;
    const tocsin_factor_id ratio = tocsin_factor_multiply(
        universe, term->factor, tocsin_factor_inverse(universe, match->factor));
    if (!tocsin_factor_is_rational(universe, ratio, &claim->numerator, &claim->denominator) ||
        claim->numerator == 0)
        return false;
    claim->ndim = part->ndim;
    for (uint32_t d = 0; d < claim->ndim; d++) {
        claim->starts[d] = (tocsin_affine){0};
        if (part->shape[d] != all->shape[d] && !start_of(term, match, d, &claim->starts[d]))
            return false;
    }
    tocsin_relation_id made = whole;
    for (uint32_t d = 0; d < claim->ndim && made != 0; d++)
        if (part->shape[d] != all->shape[d])
            made = tocsin_relation_slice(universe, made, d, claim->starts[d], part->shape[d], 1);
    if (made != 0)
        made = tocsin_relation_scale(universe, made, ratio);
    return made != 0 && tocsin_relation_same_value(universe, own, made);
}

tocsin_status tocsin_proof_claim(tocsin_proof *proof, uint32_t role, uint32_t value,
                                 tocsin_claim *claim, bool *found, tocsin_error *error)
{
    const tocsin_run *run = &proof->attempt->parallel;
    tocsin_universe *universe = run->prover->universe;

    *found = false;
    if (!tocsin_proof_is_symbolic(proof))
        return TOCSIN_OK;
    if (!proof->indexed)
        TOCSIN_TRY(index_values(proof, error));
    const uint32_t unit = run->unit_of[run->plan->roles.items[role].device];
    assert(run->units.items[unit].role == role);
    const tocsin_relation_id own = usable(tocsin_run_value(run, unit, 0, value));
    const uint64_t key = own == 0 ? 0 : atoms_key(tocsin_relation_get(universe, own));
    const uint64_t *first = key == 0 ? NULL : tocsin_map_find(&proof->first, key);
    uint32_t candidate = first == NULL ? 0 : (uint32_t)*first;
    for (int tried = 0; candidate != 0 && tried < CANDIDATES_MAX && !*found; tried++) {
        claim->logical = candidate - 1;
        *found = claim_of(universe, own,
                          tocsin_run_value(&proof->attempt->logical, 0, 0, claim->logical), claim);
        candidate = proof->next[claim->logical];
    }
    return tocsin_universe_status(universe, error);
}

bool tocsin_proof_is_symbolic(const tocsin_proof *proof)
{
    const tocsin_run *run = &proof->attempt->parallel;
    if (run->enumerate_replicas || run->enumerate_microbatches)
        return false;
    for (size_t k = 0; k < run->incidents.count; k++)
        if (run->incidents.items[k].kind == TOCSIN_INCIDENT_STRAY)
            return false;
    return true;
}

const uint32_t *tocsin_proof_match(const tocsin_proof *proof)
{
    return proof->sanity->match;
}

void tocsin_proof_free(tocsin_proof *proof)
{
    tocsin_map_free(&proof->first);
    tocsin_free(proof->next);
}
