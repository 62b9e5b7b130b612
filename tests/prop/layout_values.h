/* layout_values.h - a relation beside the array of its elements, for every value of the symbols. */
#ifndef TOCSIN_TESTS_LAYOUT_VALUES_H
#define TOCSIN_TESTS_LAYOUT_VALUES_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "relation_values.h"

#include <cmocka.h>

enum {
    CASES = 600,
    STEPS = 14,
    ATOMS = 3,
    POOL = 6,
    NDIM = 5,
    ELEMENTS_MAX = 1500,
    REPLICAS = 2,
    MICROBATCHES = 3,
    COMBINATIONS = REPLICAS * MICROBATCHES
};

static const int64_t sizes[TOCSIN_SYMBOL_COUNT] = {REPLICAS, MICROBATCHES};

/* A relation and its elements, for every combination of the symbols' values. */
struct value {
    tocsin_relation_id relation;
    uint8_t ndim;
    int64_t shape[NDIM];
    double *data[COMBINATIONS];
};

struct world {
    tocsin_universe *universe;
    relation_values values;
    struct value pool[POOL];
    double *atoms[ATOMS];
    uint64_t state;
    uint64_t tried[16], refused[16];
};

static uint32_t below(struct world *world, uint32_t limit)
{
    return relation_random_below(&world->state, limit);
}

static int64_t element_count(const int64_t *shape, uint8_t ndim)
{
    int64_t count = 1;
    for (uint8_t d = 0; d < ndim; d++)
        count *= shape[d];
    return count;
}

static int64_t flat_index(const int64_t *shape, uint8_t ndim, const int64_t *index)
{
    int64_t at = 0;
    for (uint8_t d = 0; d < ndim; d++)
        at = at * shape[d] + index[d];
    return at;
}

static void unflatten(const int64_t *shape, uint8_t ndim, int64_t at, int64_t *index)
{
    for (uint8_t d = ndim; d-- > 0;) {
        index[d] = at % shape[d];
        at /= shape[d];
    }
}

static void set_symbols(struct world *world, int combination)
{
    world->values.symbol[TOCSIN_SYMBOL_REPLICA] = combination / MICROBATCHES;
    world->values.symbol[TOCSIN_SYMBOL_MICROBATCH] = combination % MICROBATCHES;
}

static void free_value(struct value *value)
{
    for (int c = 0; c < COMBINATIONS; c++)
        free(value->data[c]);
    memset(value, 0, sizeof *value);
}

static void allocate(struct value *value, const int64_t *shape, uint8_t ndim)
{
    memset(value, 0, sizeof *value);
    value->ndim = ndim;
    memcpy(value->shape, shape, ndim * sizeof shape[0]);
    for (int c = 0; c < COMBINATIONS; c++)
        value->data[c] = calloc((size_t)element_count(shape, ndim), sizeof(double));
}

static void check(struct world *world, const struct value *value, const char *what)
{
    const tocsin_relation *relation = tocsin_relation_get(world->universe, value->relation);
    int64_t index[TOCSIN_PLAN_NDIM_MAX];

    assert_int_equal(relation->ndim, value->ndim);
    for (uint8_t d = 0; d < value->ndim; d++)
        assert_int_equal(relation->shape[d], value->shape[d]);
    for (int c = 0; c < COMBINATIONS; c++) {
        set_symbols(world, c);
        for (int64_t i = 0; i < element_count(value->shape, value->ndim); i++) {
            unflatten(value->shape, value->ndim, i, index);
            const double element = relation_values_element(&world->values, value->relation, index);
            if (fabs(element - value->data[c][i]) > 1e-9)
                fail_msg("%s: element %lld is %g, not %g", what, (long long)i, element,
                         value->data[c][i]);
        }
    }
}

#endif
