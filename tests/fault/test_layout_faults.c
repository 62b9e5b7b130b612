/* Out of memory at each allocation of views, cuts, joins, widening and definitions: the universe
 * has failed, the operation answers 0, and nothing leaks. */
#include <base/base.h>
#include <prove/slice_relation.h>
#include <stdio.h>

#include "every_fault.h"

enum { ROUNDS = 40, WINDOWS = 8 };

static const int64_t sizes[TOCSIN_SYMBOL_COUNT] = {4, 2};

/* One value of the logical model, and a rank's part of it. */
static bool one_round(tocsin_universe *universe, int round)
{
    const int64_t shape[2] = {8, 12}, heads[3] = {8, 3, 4}, head[3] = {2, 1, 4};
    const int64_t elements = 24, both = 48, pair[2] = {2, 24};
    tocsin_relation_id atoms[2], parts[2];
    tocsin_window windows[WINDOWS];
    char name[16];

    tocsin_universe_set_logical(universe, true);
    for (int i = 0; i < 2; ++i) {
        int bytes = snprintf(name, sizeof name, "x%d.%d", round, i);
        tocsin_atom_id atom = tocsin_atom_input(universe, name, (size_t)bytes, shape, 2);
        atoms[i] = atom ? tocsin_relation_whole(universe, atom) : 0;
        if (!atoms[i])
            return false;
    }
    tocsin_relation_id sum = tocsin_relation_add(universe, atoms, NULL, 2);
    tocsin_relation_id fused = tocsin_relation_cat(universe, atoms, 2, 1);
    if (!sum || !fused || !tocsin_relation_view(universe, sum, heads, 3) ||
        !tocsin_relation_define(universe, sum, "sum", TOCSIN_PLAN_NONE) ||
        !tocsin_relation_define(universe, fused, "cat", TOCSIN_PLAN_NONE))
        return false;
    tocsin_universe_set_logical(universe, false);
    const tocsin_affine own = {.weight = {2, 0}};
    tocsin_relation_id rows = tocsin_relation_slice(universe, sum, 0, own, 2, 1);
    tocsin_relation_id some = tocsin_relation_slice(universe, fused, 0, own, 2, 1);
    if (!rows || !some || !tocsin_relation_fold(universe, some, sizes) ||
        !tocsin_relation_cat_over(universe, some, 0, TOCSIN_SYMBOL_REPLICA, 4))
        return false;
    tocsin_relation_id folded = tocsin_relation_fold(universe, rows, sizes);
    tocsin_relation_id flat = tocsin_relation_view(universe, rows, &elements, 1);
    if (!flat || !tocsin_relation_fold(universe, flat, sizes))
        return false;
    tocsin_relation_id pieces = tocsin_relation_view(universe, some, &both, 1);
    if (!pieces || tocsin_relation_view(universe, pieces, pair, 2) != some)
        return false;
    if (!folded || !tocsin_relation_widen(universe, folded, 0, 0, sizes, windows, WINDOWS))
        return false;
    for (int i = 0; i < 2; ++i) {
        const tocsin_affine start = {.base = 4 * i};
        parts[i] = tocsin_relation_slice(universe, rows, 1, start, 4, 1);
        if (!parts[i] || !tocsin_relation_view(universe, parts[i], head, 3))
            return false;
    }
    return tocsin_relation_cat(universe, parts, 2, 1) != 0;
}

static tocsin_status make_use_and_free(void *context, tocsin_error *error)
{
    (void)context;
    tocsin_universe *universe = tocsin_universe_new();
    if (!universe)
        return tocsin_error_memory(error);
    bool done = true;
    tocsin_universe_set_sizes(universe, sizes);
    for (int round = 0; round < ROUNDS && done; ++round)
        done = one_round(universe, round);
    tocsin_status status = tocsin_universe_status(universe, error);
    assert_true(done || status != TOCSIN_OK);
    tocsin_universe_free(universe);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    assert_in_range(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, make_use_and_free, NULL), 10,
                    10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
