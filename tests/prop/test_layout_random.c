/* Random sequences of structural operations on relations, and the same on arrays of numbers, for
 * every value of the symbols: the relation, evaluated digit by digit, has the array's elements.
 * A refusal is allowed (the value then stays as it was), but they must be few.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "layout_values.h"
#include "test_seed.h"

#include <cmocka.h>

/* ---- operations: each makes the relation and the array on its own ---------------------------- */

/* Where element `index` of the result comes from. */
typedef void source(const struct value *from, const void *arguments, const int64_t *index,
                    int64_t *at);

static void gather(struct value *to, const struct value *from, const int64_t *shape, uint8_t ndim,
                   source *where, const void *arguments)
{
    int64_t index[TOCSIN_PLAN_NDIM_MAX], at[TOCSIN_PLAN_NDIM_MAX];

    allocate(to, shape, ndim);
    for (int c = 0; c < COMBINATIONS; c++) {
        for (int64_t i = 0; i < element_count(shape, ndim); i++) {
            unflatten(shape, ndim, i, index);
            where(from, arguments, index, at);
            to->data[c][i] = from->data[c][flat_index(from->shape, from->ndim, at)];
        }
    }
}

static bool make_view(struct world *world, const struct value *from, struct value *to)
{
    int64_t shape[NDIM];
    uint8_t ndim = from->ndim;

    memcpy(shape, from->shape, sizeof shape);
    for (uint32_t moves = 1 + below(world, 2); moves-- > 0;) {
        const uint32_t move = below(world, 3);
        const uint8_t d = ndim > 0 ? (uint8_t)below(world, ndim) : 0;
        if (move == 0 && ndim > 1 && d + 1 < ndim) { /* merge two dims */
            shape[d] *= shape[d + 1];
            memmove(shape + d + 1, shape + d + 2, (size_t)(ndim - d - 2) * sizeof shape[0]);
            ndim--;
        } else if (move == 1 && ndim > 0 && ndim < NDIM) { /* split one */
            int64_t inner = 1 + below(world, 6);
            while (shape[d] % inner != 0)
                inner--;
            memmove(shape + d + 1, shape + d, (size_t)(ndim - d) * sizeof shape[0]);
            shape[d] /= inner;
            shape[d + 1] = inner;
            ndim++;
        } else if (ndim < NDIM) { /* a new dim of size 1 */
            memmove(shape + d + 1, shape + d, (size_t)(ndim - d) * sizeof shape[0]);
            shape[d] = 1;
            ndim++;
        }
    }
    allocate(to, shape, ndim);
    for (int c = 0; c < COMBINATIONS; c++)
        memcpy(to->data[c], from->data[c], (size_t)element_count(shape, ndim) * sizeof(double));
    /* what logical views do is imitated by the others */
    tocsin_universe_set_logical(world->universe, below(world, 2) == 0);
    to->relation = tocsin_relation_view(world->universe, from->relation, shape, ndim);
    tocsin_universe_set_logical(world->universe, false);
    return true;
}

static void from_permuted(const struct value *from, const void *arguments, const int64_t *index,
                          int64_t *at)
{
    const uint8_t *dims = arguments;
    for (uint8_t d = 0; d < from->ndim; d++)
        at[dims[d]] = index[d];
}

static bool make_permuted(struct world *world, const struct value *from, struct value *to)
{
    uint8_t dims[NDIM];
    int64_t shape[NDIM];

    for (uint8_t d = 0; d < from->ndim; d++) {
        const uint8_t other = (uint8_t)below(world, d + 1u);
        dims[d] = dims[other];
        dims[other] = d;
    }
    for (uint8_t d = 0; d < from->ndim; d++)
        shape[d] = from->shape[dims[d]];
    gather(to, from, shape, from->ndim, from_permuted, dims);
    to->relation = tocsin_relation_permute(world->universe, from->relation, dims);
    return true;
}

struct range {
    uint8_t dim;
    int64_t start, step;
};

static void from_range(const struct value *from, const void *arguments, const int64_t *index,
                       int64_t *at)
{
    const struct range *range = arguments;
    memcpy(at, index, from->ndim * sizeof at[0]);
    at[range->dim] = range->start + range->step * index[range->dim];
}

static bool make_slice(struct world *world, const struct value *from, struct value *to)
{
    struct range range = {.step = below(world, 3) == 0 ? 2 : 1};
    int64_t shape[NDIM];

    if (from->ndim == 0)
        return false;
    range.dim = (uint8_t)below(world, from->ndim);
    memcpy(shape, from->shape, sizeof shape);
    const uint32_t size = (uint32_t)shape[range.dim];
    range.start = below(world, size);
    shape[range.dim] = 1 + below(world, (uint32_t)((size - range.start - 1) / range.step) + 1);
    gather(to, from, shape, from->ndim, from_range, &range);
    to->relation =
        tocsin_relation_slice(world->universe, from->relation, range.dim,
                              (tocsin_affine){.base = range.start}, shape[range.dim], range.step);
    return true;
}

static void from_selected(const struct value *from, const void *arguments, const int64_t *index,
                          int64_t *at)
{
    const struct range *range = arguments;
    for (uint8_t d = 0; d < from->ndim; d++)
        at[d] = d == range->dim ? range->start : *index++;
}

static bool make_selected(struct world *world, const struct value *from, struct value *to)
{
    struct range range = {0};
    int64_t shape[NDIM];
    uint8_t ndim = 0;

    if (from->ndim == 0)
        return false;
    range.dim = (uint8_t)below(world, from->ndim);
    range.start = below(world, (uint32_t)from->shape[range.dim]);
    for (uint8_t d = 0; d < from->ndim; d++)
        if (d != range.dim)
            shape[ndim++] = from->shape[d];
    gather(to, from, shape, ndim, from_selected, &range);
    to->relation = tocsin_relation_select(world->universe, from->relation, range.dim, range.start);
    return true;
}

static void from_expanded(const struct value *from, const void *arguments, const int64_t *index,
                          int64_t *at)
{
    const uint8_t lead = *(const uint8_t *)arguments;
    for (uint8_t d = 0; d < from->ndim; d++)
        at[d] = from->shape[d] == 1 ? 0 : index[d + lead];
}

static bool make_expanded(struct world *world, const struct value *from, struct value *to)
{
    const uint8_t lead = from->ndim < NDIM ? (uint8_t)below(world, 2) : 0;
    int64_t shape[NDIM];

    for (uint8_t d = 0; d < lead; d++)
        shape[d] = 1 + below(world, 3);
    for (uint8_t d = 0; d < from->ndim; d++)
        shape[d + lead] = from->shape[d] == 1 ? 1 + below(world, 3) : from->shape[d];
    const uint8_t ndim = (uint8_t)(from->ndim + lead);
    if (element_count(shape, ndim) > ELEMENTS_MAX)
        return false;
    gather(to, from, shape, ndim, from_expanded, &lead);
    to->relation = tocsin_relation_expand(world->universe, from->relation, shape, ndim);
    return true;
}

/* The part that belongs to the own replica or micro-batch. */
static bool make_chunk(struct world *world, const struct value *from, struct value *to)
{
    const int symbol = (int)below(world, TOCSIN_SYMBOL_COUNT);
    struct range range = {.step = 1};
    int64_t shape[NDIM], index[NDIM], at[NDIM];
    tocsin_affine position = {0};

    if (from->ndim == 0)
        return false;
    range.dim = (uint8_t)below(world, from->ndim);
    memcpy(shape, from->shape, sizeof shape);
    if (shape[range.dim] % sizes[symbol] != 0)
        return false;
    shape[range.dim] /= sizes[symbol];
    position.weight[symbol] = 1;
    allocate(to, shape, from->ndim);
    for (int c = 0; c < COMBINATIONS; c++) {
        set_symbols(world, c);
        range.start = world->values.symbol[symbol] * shape[range.dim];
        for (int64_t i = 0; i < element_count(shape, from->ndim); i++) {
            unflatten(shape, from->ndim, i, index);
            from_range(from, &range, index, at);
            to->data[c][i] = from->data[c][flat_index(from->shape, from->ndim, at)];
        }
    }
    to->relation = tocsin_relation_chunk_at(world->universe, from->relation, range.dim,
                                            (uint32_t)sizes[symbol], position);
    return true;
}

/* out = parts[0], parts[1], ... along the dim, part i's data being that of combination[i][c]. */
static void concatenate(struct value *to, const struct value *const *parts, uint32_t count,
                        uint8_t dim, int (*combination)[COMBINATIONS])
{
    int64_t shape[NDIM], index[NDIM];

    memcpy(shape, parts[0]->shape, sizeof shape);
    shape[dim] = 0;
    for (uint32_t p = 0; p < count; p++)
        shape[dim] += parts[p]->shape[dim];
    allocate(to, shape, parts[0]->ndim);
    for (int c = 0; c < COMBINATIONS; c++) {
        for (int64_t i = 0; i < element_count(shape, to->ndim); i++) {
            uint32_t p = 0;
            unflatten(shape, to->ndim, i, index);
            for (; index[dim] >= parts[p]->shape[dim]; p++)
                index[dim] -= parts[p]->shape[dim];
            to->data[c][i] = parts[p]->data[combination == NULL ? c : combination[p][c]]
                                           [flat_index(parts[p]->shape, to->ndim, index)];
        }
    }
}

/* No equal elements and no strides: where these were cut may be forgotten. */
static bool is_plain(struct world *world, tocsin_relation_id id)
{
    const tocsin_relation *relation = tocsin_relation_get(world->universe, id);
    bool plain = true;

    for (uint32_t i = 0; i < relation->count; i++) {
        if (relation->segmented) {
            plain &= is_plain(world, relation->segments[i]);
            continue;
        }
        const tocsin_term *term = &relation->terms[i];
        for (uint32_t k = 0; k < term->digit_total; k++)
            plain &= term->digits[k].axis != TOCSIN_DIGIT_BROADCAST &&
                     (k == 0 || term->digits[k].axis != term->digits[k - 1].axis);
    }
    return plain;
}

/* Two or three pieces of one value, in some order, or of two values of like shape. */
static bool make_cat(struct world *world, const struct value *from, struct value *to)
{
    struct value pieces[3];
    const struct value *parts[3] = {NULL};
    tocsin_relation_id relations[3] = {0};
    uint32_t count = 0;

    if (from->ndim == 0)
        return false;
    const uint8_t dim = (uint8_t)below(world, from->ndim);
    const int64_t size = from->shape[dim];
    if (2 * element_count(from->shape, from->ndim) > ELEMENTS_MAX)
        return false;
    int64_t start = 0;
    while (count < 3 && start < size) { /* cut it up */
        struct range range = {.dim = dim, .start = start, .step = 1};
        int64_t shape[NDIM];
        memcpy(shape, from->shape, sizeof shape);
        shape[dim] = count == 2 ? size - start : 1 + below(world, (uint32_t)(size - start));
        gather(&pieces[count], from, shape, from->ndim, from_range, &range);
        pieces[count].relation = tocsin_relation_slice(
            world->universe, from->relation, dim, (tocsin_affine){.base = start}, shape[dim], 1);
        assert_int_not_equal(pieces[count].relation, 0); /* constant ranges always have an answer */
        start += shape[dim];
        count++;
    }
    const bool in_order = below(world, 2) == 0;
    const uint32_t used = in_order ? count : 1 + below(world, count);
    for (uint32_t p = 0; p < used; p++) {
        parts[p] = &pieces[in_order ? p : (p + 1) % count];
        relations[p] = parts[p]->relation;
    }
    concatenate(to, parts, used, dim, NULL);
    to->relation = tocsin_relation_cat(world->universe, relations, used, dim);
    if (in_order && start == size && is_plain(world, from->relation))
        assert_int_equal(to->relation, from->relation); /* what was cut is whole again */
    for (uint32_t p = 0; p < count; p++)
        free_value(&pieces[p]);
    return true;
}

/* Shards along dim 0, each viewed as one row, are gathered in order: the value as [shards, ...]. */
static bool make_rows(struct world *world, const struct value *from, struct value *to)
{
    tocsin_relation_id rows[6];
    int64_t shape[NDIM];
    const uint32_t count = 2 + below(world, TOCSIN_COUNT_OF(rows) - 1);

    if (from->ndim == 0 || from->ndim == NDIM || from->shape[0] % count != 0)
        return false;
    memcpy(shape + 1, from->shape, from->ndim * sizeof shape[0]);
    shape[0] = 1;
    shape[1] /= count;
    for (uint32_t i = 0; i < count; i++) {
        const tocsin_affine start = {.base = i * shape[1]};
        rows[i] = tocsin_relation_slice(world->universe, from->relation, 0, start, shape[1], 1);
        rows[i] = tocsin_relation_view(world->universe, rows[i], shape, (uint8_t)(from->ndim + 1));
        if (rows[i] == 0)
            break;
    }
    shape[0] = count;
    allocate(to, shape, (uint8_t)(from->ndim + 1));
    for (int c = 0; c < COMBINATIONS; c++)
        memcpy(to->data[c], from->data[c], (size_t)element_count(shape, to->ndim) * sizeof(double));
    to->relation = rows[count - 1] == 0 ? 0 : tocsin_relation_cat(world->universe, rows, count, 0);
    return true;
}

static bool make_cat_over(struct world *world, const struct value *from, struct value *to)
{
    const int symbol = (int)below(world, TOCSIN_SYMBOL_COUNT);
    const struct value *parts[MICROBATCHES];
    int combination[MICROBATCHES][COMBINATIONS];

    if (from->ndim == 0 || sizes[symbol] * element_count(from->shape, from->ndim) > ELEMENTS_MAX)
        return false;
    const uint8_t dim = (uint8_t)below(world, from->ndim);
    for (int p = 0; p < sizes[symbol]; p++) {
        parts[p] = from;
        for (int c = 0; c < COMBINATIONS; c++)
            combination[p][c] = symbol == TOCSIN_SYMBOL_REPLICA
                                    ? p * MICROBATCHES + c % MICROBATCHES
                                    : c / MICROBATCHES * MICROBATCHES + p;
    }
    concatenate(to, parts, (uint32_t)sizes[symbol], dim, combination);
    to->relation =
        tocsin_relation_cat_over(world->universe, from->relation, dim, symbol, sizes[symbol]);
    return true;
}

static bool make_sum(struct world *world, const struct value *from, struct value *to)
{
    const struct value *other = &world->pool[below(world, POOL)];
    const tocsin_relation_id terms[2] = {from->relation, other->relation};

    if (other->ndim != from->ndim ||
        memcmp(other->shape, from->shape, from->ndim * sizeof from->shape[0]) != 0)
        return false;
    allocate(to, from->shape, from->ndim);
    for (int c = 0; c < COMBINATIONS; c++)
        for (int64_t i = 0; i < element_count(from->shape, from->ndim); i++)
            to->data[c][i] = from->data[c][i] + other->data[c][i];
    to->relation = tocsin_relation_add(world->universe, terms, NULL, 2);
    return true;
}

typedef bool operation(struct world *world, const struct value *from, struct value *to);
static const struct {
    const char *name;
    operation *make;
    double refused_max; /* share of the tries */
} operations[] = {
    {"view", make_view, 0.05},      {"permute", make_permuted, 0.0},   {"slice", make_slice, 0.25},
    {"select", make_selected, 0.0}, {"expand", make_expanded, 0.0},    {"chunk", make_chunk, 0.5},
    {"cat", make_cat, 0.05},        {"cat over", make_cat_over, 0.25}, {"sum", make_sum, 0.0},
    {"rows", make_rows, 0.1},
};

/* ---- the test -------------------------------------------------------------------------------- */

/* A slice of an atom, which may move with the symbols. */
static void make_start(struct world *world, uint32_t a, struct value *to)
{
    static const int64_t extents[] = {2, 3, 4, 6, 8, 12};
    int64_t extent[3], shape[3], index[3];
    tocsin_affine starts[3] = {{0}};
    char name[8];
    const uint8_t ndim = (uint8_t)(1 + below(world, 3));

    for (uint8_t d = 0; d < ndim; d++) {
        extent[d] = extents[below(world, TOCSIN_COUNT_OF(extents))];
        shape[d] = extent[d];
        const uint32_t how = below(world, 4);
        if (how < TOCSIN_SYMBOL_COUNT && extent[d] % sizes[how] == 0) {
            shape[d] /= sizes[how];
            starts[d].weight[how] = shape[d];
        } else if (how == 2) {
            starts[d].base = below(world, (uint32_t)extent[d]);
            shape[d] = 1 + below(world, (uint32_t)(extent[d] - starts[d].base));
        }
    }
    snprintf(name, sizeof name, "x%u", a);
    const tocsin_atom_id atom =
        tocsin_atom_input(world->universe, name, strlen(name), extent, ndim);
    const int64_t count = element_count(extent, ndim);
    world->atoms[a] = calloc((size_t)count, sizeof(double));
    for (int64_t i = 0; i < count; i++)
        world->atoms[a][i] = below(world, 1000000);
    world->values.atoms[atom] = world->atoms[a];
    allocate(to, shape, ndim);
    for (int c = 0; c < COMBINATIONS; c++) {
        set_symbols(world, c);
        for (int64_t i = 0; i < element_count(shape, ndim); i++) {
            unflatten(shape, ndim, i, index);
            for (uint8_t d = 0; d < ndim; d++)
                index[d] += relation_values_start(&world->values, &starts[d]);
            to->data[c][i] = world->atoms[a][flat_index(extent, ndim, index)];
        }
    }
    to->relation = tocsin_relation_slice_of(world->universe, atom, starts, shape);
    check(world, to, "slice of an atom");
}

static void run_case(struct world *world)
{
    world->universe = tocsin_universe_new();
    assert_non_null(world->universe);
    world->values = (relation_values){.universe = world->universe};
    tocsin_universe_set_sizes(world->universe, sizes);
    for (uint32_t a = 0; a < POOL; a++) {
        if (a < ATOMS)
            make_start(world, a, &world->pool[a]);
        else {
            const struct value *parts[1] = {&world->pool[a % ATOMS]};
            if (parts[0]->ndim > 0)
                concatenate(&world->pool[a], parts, 1, 0, NULL);
            world->pool[a].relation = parts[0]->relation;
        }
    }
    for (int step = 0; step < STEPS; step++) {
        struct value *from = &world->pool[below(world, POOL)], made = {0};
        const uint32_t op = below(world, TOCSIN_COUNT_OF(operations));
        if (!operations[op].make(world, from, &made))
            continue;
        world->tried[op]++;
        if (made.relation == 0) {
            assert_true(tocsin_universe_refusal(world->universe)->text[0] != '\0');
            world->refused[op]++;
            free_value(&made);
            continue;
        }
        check(world, &made, operations[op].name);
        struct value *to = &world->pool[below(world, POOL)];
        free_value(to);
        *to = made;
    }
    assert_int_equal(tocsin_universe_status(world->universe, NULL), TOCSIN_OK);
    for (uint32_t i = 0; i < POOL; i++)
        free_value(&world->pool[i]);
    for (uint32_t i = 0; i < ATOMS; i++)
        free(world->atoms[i]);
    tocsin_universe_free(world->universe);
}

static void layouts_keep_every_element(void **state)
{
    static struct world world;

    (void)state;
    const uint64_t first = test_seed(1);
    for (uint64_t i = 0; i < CASES; i++) {
        world.state = first + i;
        run_case(&world);
    }
    for (uint32_t op = 0; op < TOCSIN_COUNT_OF(operations); op++) {
        print_message("%-8s %5llu tried, %llu refused\n", operations[op].name,
                      (unsigned long long)world.tried[op], (unsigned long long)world.refused[op]);
        assert_true(world.tried[op] > 50);
        assert_true((double)world.refused[op] <=
                    operations[op].refused_max * (double)world.tried[op]);
    }
}

/* ---- definitions ----------------------------------------------------------------------------- */

/* An atom that is added to a value of this shape: all of it, repeated along some dims, or with two
 * equal dims swapped. */
static tocsin_relation_id make_summand(struct world *world, uint32_t a, const int64_t *shape,
                                       uint8_t ndim)
{
    int64_t extent[NDIM];
    uint8_t dims[NDIM];
    char name[8];

    for (uint8_t d = 0; d < ndim; d++) {
        extent[d] = below(world, 5) == 0 ? 1 : shape[d];
        dims[d] = d;
    }
    snprintf(name, sizeof name, "x%u", a);
    const tocsin_atom_id atom =
        tocsin_atom_input(world->universe, name, strlen(name), extent, ndim);
    const int64_t count = element_count(extent, ndim);
    if (world->values.atoms[atom] == NULL) {
        double *data = calloc((size_t)count, sizeof(double));
        for (int64_t i = 0; i < count; i++)
            data[i] = below(world, 1000000);
        world->values.atoms[atom] = data;
    }
    tocsin_relation_id summand = tocsin_relation_whole(world->universe, atom);
    const uint8_t d = (uint8_t)below(world, ndim);
    if (d > 0 && extent[d] == extent[0]) {
        dims[0] = d;
        dims[d] = 0;
        summand = tocsin_relation_permute(world->universe, summand, dims);
    }
    return tocsin_relation_expand(world->universe, summand, shape, ndim);
}

static tocsin_relation_id make_definition(struct world *world, int64_t *shape, uint8_t *ndim)
{
    tocsin_relation_id pieces[3], summands[4];
    tocsin_factor_id factors[4];
    uint32_t atoms = 0;
    const uint32_t piece_count = below(world, 3) == 0 ? 2 + below(world, 2) : 1;
    const uint8_t dim = (uint8_t)below(world, 3);
    static const int64_t extents[] = {4, 6, 12};

    *ndim = 3;
    for (uint8_t d = 0; d < *ndim; d++)
        shape[d] = extents[below(world, TOCSIN_COUNT_OF(extents))];
    const int64_t length = shape[dim];
    for (uint32_t p = 0; p < piece_count; p++) {
        const uint32_t count = piece_count > 1 ? below(world, 3) : 2 + below(world, 3);
        for (uint32_t k = 0; k < count; k++) {
            summands[k] = make_summand(world, atoms++, shape, *ndim);
            factors[k] =
                tocsin_factor_rational(world->universe, 1 + below(world, 3), 1 + below(world, 3));
        }
        pieces[p] = count > 0 ? tocsin_relation_add(world->universe, summands, factors, count)
                              : tocsin_relation_constant(world->universe, 0, true, shape, *ndim);
    }
    shape[dim] = length * piece_count;
    tocsin_relation_id made = tocsin_relation_cat(world->universe, pieces, piece_count, dim);
    if (below(world, 3) == 0 && dim < 2) { /* dims of several digits */
        shape[0] *= shape[1];
        shape[1] = shape[2];
        const tocsin_relation_id view =
            tocsin_relation_view(world->universe, made, shape, (uint8_t)(*ndim - 1));
        if (view != 0) {
            made = view;
            --*ndim;
        } else {
            shape[2] = shape[1];
            shape[1] = tocsin_relation_get(world->universe, made)->shape[1];
            shape[0] /= shape[1];
        }
    }
    return made;
}

/* Some part, which may move with the symbols; 0: it cannot be told. */
static tocsin_relation_id cut_somewhere(struct world *world, tocsin_relation_id id,
                                        const int64_t *shape, uint8_t ndim)
{
    for (uint8_t d = 0; d < ndim && id != 0; d++) {
        const uint32_t how = below(world, 4);
        tocsin_affine start = {0};
        int64_t count = shape[d];
        if (how < TOCSIN_SYMBOL_COUNT && shape[d] % sizes[how] == 0) {
            count /= sizes[how];
            start.weight[how] = count;
        } else if (how == 2) {
            start.base = below(world, (uint32_t)count);
            count = 1 + below(world, (uint32_t)(count - start.base));
        }
        id = tocsin_relation_slice(world->universe, id, d, start, count, 1);
    }
    return id;
}

static void compare(struct world *world, tocsin_relation_id a, tocsin_relation_id b)
{
    const tocsin_relation *relation = tocsin_relation_get(world->universe, a);
    int64_t index[TOCSIN_PLAN_NDIM_MAX];

    for (int c = 0; c < COMBINATIONS; c++) {
        set_symbols(world, c);
        for (int64_t i = 0; i < element_count(relation->shape, relation->ndim); i++) {
            unflatten(relation->shape, relation->ndim, i, index);
            const double difference = relation_values_element(&world->values, a, index) -
                                      relation_values_element(&world->values, b, index);
            assert_true(fabs(difference) < 1e-6);
        }
    }
}

static void free_definition(struct world *world)
{
    for (uint32_t a = 0; a < RELATION_VALUES_ATOMS_MAX; a++)
        free((void *)world->values.atoms[a]);
    tocsin_universe_free(world->universe);
}

static void parts_of_definitions_fold_into_slices(void **state)
{
    static struct world world;
    uint64_t tried = 0, unfolded = 0;
    const uint64_t first = test_seed(1);

    (void)state;
    for (uint64_t i = 0; i < CASES; i++) {
        int64_t shape[NDIM];
        uint8_t ndim;
        world.state = first + i;
        world.universe = tocsin_universe_new();
        assert_non_null(world.universe);
        world.values = (relation_values){.universe = world.universe};
        tocsin_universe_set_sizes(world.universe, sizes);
        tocsin_universe_set_logical(world.universe, true);
        const tocsin_relation_id whole = make_definition(&world, shape, &ndim);
        const tocsin_relation_id named =
            tocsin_relation_define(world.universe, whole, "sum", TOCSIN_PLAN_NONE);
        tocsin_universe_set_logical(world.universe, false);
        assert_int_not_equal(named, 0);
        assert_int_equal(tocsin_relation_fold(world.universe, whole, sizes), named);
        const tocsin_factor_id third = tocsin_factor_rational(world.universe, 1, 3);
        tocsin_relation_id part = cut_somewhere(&world, whole, shape, ndim);
        if (part != 0 && below(&world, 2) == 0)
            part = tocsin_relation_scale(world.universe, part, third);
        if (part != 0) {
            const tocsin_relation_id slice = tocsin_relation_fold(world.universe, part, sizes);
            tried++;
            unfolded += slice == 0;
            if (slice != 0) {
                const tocsin_relation *folded = tocsin_relation_get(world.universe, slice);
                assert_true(!folded->segmented && folded->count <= 1);
                compare(&world, part, slice);
            }
        }
        free_definition(&world);
    }
    print_message("fold     %5llu tried, %llu refused\n", (unsigned long long)tried,
                  (unsigned long long)unfolded);
    assert_true(tried > CASES / 2);
    assert_true(unfolded * 50 <= tried);
}

/* Permuted, and with dims merged or split where that can be told. */
static tocsin_relation_id rearrange(struct world *world, tocsin_relation_id id)
{
    const tocsin_relation *relation = tocsin_relation_get(world->universe, id);
    int64_t shape[NDIM];
    uint8_t dims[NDIM], ndim = relation->ndim;

    for (uint8_t d = 0; d < ndim; d++) {
        const uint8_t other = (uint8_t)below(world, d + 1u);
        dims[d] = dims[other];
        dims[other] = d;
    }
    id = tocsin_relation_permute(world->universe, id, dims);
    memcpy(shape, tocsin_relation_get(world->universe, id)->shape, ndim * sizeof shape[0]);
    for (uint32_t moves = below(world, 3); moves-- > 0;) {
        int64_t moved[NDIM];
        uint8_t count = ndim;
        const uint8_t d = (uint8_t)below(world, ndim);
        memcpy(moved, shape, sizeof moved);
        if (below(world, 2) == 0 && d + 1 < ndim) {
            moved[d] *= moved[d + 1];
            memmove(moved + d + 1, moved + d + 2, (size_t)(ndim - d - 2) * sizeof moved[0]);
            count--;
        } else if (ndim < NDIM) {
            const int64_t inner = shape[d] % 3 == 0 ? 3 : shape[d] % 2 == 0 ? 2 : 1;
            memmove(moved + d + 1, moved + d, (size_t)(ndim - d) * sizeof moved[0]);
            moved[d] /= inner;
            moved[d + 1] = inner;
            count++;
        }
        const tocsin_relation_id view = tocsin_relation_view(world->universe, id, moved, count);
        if (view == 0)
            continue;
        id = view;
        ndim = count;
        memcpy(shape, moved, ndim * sizeof shape[0]);
    }
    return id;
}

static tocsin_atom_id atom_of(const struct world *world, tocsin_relation_id id)
{
    const tocsin_relation *relation = tocsin_relation_get(world->universe, id);
    assert_true(!relation->segmented && relation->count == 1);
    return relation->terms[0].atom;
}

/* A sum is used in several shapes, and a rank has a part of one of them. */
static void rearranged_parts_of_definitions_fold(void **state)
{
    static struct world world;
    uint64_t tried = 0, unfolded = 0, defined = 0, anew = 0;
    const uint64_t first = test_seed(1);

    (void)state;
    for (uint64_t i = 0; i < CASES; i++) {
        int64_t shape[NDIM];
        uint8_t ndim;
        world.state = first + i;
        world.universe = tocsin_universe_new();
        assert_non_null(world.universe);
        world.values = (relation_values){.universe = world.universe};
        tocsin_universe_set_sizes(world.universe, sizes);
        tocsin_universe_set_logical(world.universe, true);
        const tocsin_relation_id whole = make_definition(&world, shape, &ndim);
        const tocsin_relation_id named =
            tocsin_relation_define(world.universe, whole, "sum", TOCSIN_PLAN_NONE);
        const tocsin_relation_id other = rearrange(&world, whole);
        const bool is_sum = !tocsin_relation_get(world.universe, whole)->segmented &&
                            tocsin_relation_get(world.universe, whole)->count > 1;
        if (is_sum) {
            const tocsin_relation_id again =
                tocsin_relation_define(world.universe, other, "sum", TOCSIN_PLAN_NONE);
            defined++;
            anew += atom_of(&world, again) != atom_of(&world, named);
            compare(&world, other, again);
        }
        tocsin_universe_set_logical(world.universe, false);
        tocsin_relation_id part = is_sum ? cut_somewhere(&world, whole, shape, ndim) : 0;
        if (part != 0 && !tocsin_relation_get(world.universe, part)->segmented) {
            part = rearrange(&world, part);
            const tocsin_relation_id folded = tocsin_relation_fold(world.universe, part, sizes);
            tried++;
            unfolded += folded == 0;
            if (folded != 0) {
                assert_int_equal(tocsin_relation_get(world.universe, folded)->count, 1);
                compare(&world, part, folded);
            }
        }
        free_definition(&world);
    }
    print_message("define   %5llu tried, %llu anew\n", (unsigned long long)defined,
                  (unsigned long long)anew);
    print_message("fold     %5llu tried, %llu refused\n", (unsigned long long)tried,
                  (unsigned long long)unfolded);
    assert_true(tried > CASES / 3 && defined > CASES / 3);
    assert_true(unfolded * 50 <= tried && anew * 50 <= defined);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(layouts_keep_every_element),
                                       cmocka_unit_test(parts_of_definitions_fold_into_slices),
                                       cmocka_unit_test(rearranged_parts_of_definitions_fold)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
