/* tests/prop/relation_values.h - relations by their definition alone, for the tests: an element of
 * a relation from the elements of its atoms, digit by digit. Also the random generator.
 */
#ifndef TOCSIN_TESTS_RELATION_VALUES_H
#define TOCSIN_TESTS_RELATION_VALUES_H

#include <prove/slice_relation.h>
#include <stdlib.h>

enum { RELATION_VALUES_ATOMS_MAX = 256 };

typedef struct relation_values {
    const tocsin_universe *universe;
    const double *atoms[RELATION_VALUES_ATOMS_MAX]; /* by id; row-major; NULL: by its definition */
    int64_t symbol[TOCSIN_SYMBOL_COUNT];            /* the values that they have */
} relation_values;

static inline uint64_t relation_random(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return tocsin_mix64(*state);
}

static inline uint32_t relation_random_below(uint64_t *state, uint32_t limit)
{
    return (uint32_t)(relation_random(state) >> 33) % limit;
}

static inline void relation_values_require(bool truth, const char *what)
{
    if (!truth) {
        fprintf(stderr, "a relation that is not well-formed: %s\n", what);
        abort();
    }
}

static inline int64_t relation_values_start(const relation_values *values,
                                            const tocsin_affine *start)
{
    int64_t at = start->base;
    for (int s = 0; s < TOCSIN_SYMBOL_COUNT; s++)
        at += start->weight[s] * values->symbol[s];
    return at;
}

static inline double relation_values_element(const relation_values *values, tocsin_relation_id id,
                                             const int64_t *index);

static inline double relation_values_atom(const relation_values *values, tocsin_atom_id id,
                                          const int64_t *index)
{
    const tocsin_atom *atom = tocsin_atom_get(values->universe, id);
    int64_t at = 0;

    for (uint32_t axis = 0; axis < atom->ndim; axis++) {
        relation_values_require(index[axis] >= 0 && index[axis] < atom->shape[axis],
                                "an index out of the atom");
        at = at * atom->shape[axis] + index[axis];
    }
    if (atom->kind == TOCSIN_ATOM_ONE)
        return 1.0;
    if (atom->kind == TOCSIN_ATOM_IOTA)
        return (double)at;
    if (id < RELATION_VALUES_ATOMS_MAX && values->atoms[id] != NULL)
        return values->atoms[id][at];
    relation_values_require(atom->kind == TOCSIN_ATOM_DEFINED, "an atom without values");
    return relation_values_element(values, atom->operands[0], index);
}

static inline double relation_values_term(const relation_values *values, const tocsin_term *term,
                                          uint8_t ndim, const int64_t *shape, const int64_t *index)
{
    int64_t at[32] = {0}, numerator = 0, denominator = 1;
    const tocsin_digit *digit = term->digits;

    relation_values_require(term->box_count == 0, "a partial sum");
    for (uint8_t d = 0; d < ndim; d++) {
        int64_t block = shape[d], rest = index[d];
        for (uint8_t k = 0; k < term->digit_count[d]; k++, digit++) {
            block /= digit->count;
            const int64_t step = rest / block;
            rest %= block;
            if (digit->axis == TOCSIN_DIGIT_BROADCAST)
                continue;
            const int64_t position = relation_values_start(values, &digit->start) + step;
            relation_values_require(position >= 0 && position < digit->extent,
                                    "a digit out of its extent");
            at[digit->axis] += position * digit->stride;
        }
        relation_values_require(block == 1 && rest == 0, "digits that do not make up the dim");
    }
    for (uint32_t k = 0; k < term->pinned_count; k++, digit++)
        at[digit->axis] += relation_values_start(values, &digit->start) * digit->stride;
    relation_values_require(
        tocsin_factor_is_rational(values->universe, term->factor, &numerator, &denominator),
        "a factor that is not rational");
    return (double)numerator / (double)denominator * relation_values_atom(values, term->atom, at);
}

/* The element at `index` for the symbols' values. */
static inline double relation_values_element(const relation_values *values, tocsin_relation_id id,
                                             const int64_t *index)
{
    const tocsin_relation *relation = tocsin_relation_get(values->universe, id);
    double sum = 0;

    if (relation->segmented) {
        int64_t inside[TOCSIN_PLAN_NDIM_MAX];
        memcpy(inside, index, relation->ndim * sizeof inside[0]);
        for (uint32_t i = 0; i < relation->count; i++) {
            const int64_t length = tocsin_relation_get(values->universe, relation->segments[i])
                                       ->shape[relation->segment_dim];
            if (inside[relation->segment_dim] < length)
                return relation_values_element(values, relation->segments[i], inside);
            inside[relation->segment_dim] -= length;
        }
        relation_values_require(false, "an index behind the last segment");
    }
    for (uint32_t k = 0; k < relation->count; k++)
        sum += relation_values_term(values, &relation->terms[k], relation->ndim, relation->shape,
                                    index);
    return sum;
}

#endif
