/* Out of memory at each allocation of the relation algebra: the universe fails for good, every
 * later operation answers 0, and nothing leaks. */
#include <base/base.h>
#include <prove/universe.h>
#include <stdio.h>

#include "every_fault.h"

enum { ATOMS = 200, PARTS = 40 };

static tocsin_relation_id sum_of_parts(tocsin_universe *universe, tocsin_relation_id whole)
{
    tocsin_relation_id parts[PARTS];
    if (!whole)
        return 0;
    const tocsin_relation *view = tocsin_relation_get(universe, whole);
    for (int64_t i = 0; i < PARTS; ++i) {
        const tocsin_box_entry entry = {.atom = view->terms[0].atom,
                                        .stride = 1,
                                        .extent = PARTS,
                                        .start = {.base = i},
                                        .count = 1};
        tocsin_term term = view->terms[0];
        term.box = &entry;
        term.box_count = 1;
        parts[i] = tocsin_relation_of_term(universe, &term, view->shape, view->ndim);
        if (!parts[i])
            return 0;
    }
    return tocsin_relation_add(universe, parts, NULL, PARTS);
}

static tocsin_relation_id work(tocsin_universe *universe)
{
    const int64_t shape[2] = {8, 6};
    tocsin_relation_id all[ATOMS], result = 0;
    tocsin_universe_set_logical(universe, true);
    for (int i = 0; i < ATOMS; ++i) {
        char name[16];
        int bytes = snprintf(name, sizeof name, "x%d", i);
        tocsin_atom_id atom = tocsin_atom_input(universe, name, (size_t)bytes, shape, 2);
        const tocsin_affine starts[2] = {tocsin_affine_of(i % 4), tocsin_affine_of(0)};
        const int64_t part[2] = {4, 6};
        all[i] = atom ? tocsin_relation_slice_of(universe, atom, starts, part) : 0;
        if (!all[i])
            return 0;
    }
    tocsin_universe_set_logical(universe, false);
    result = tocsin_relation_add(universe, all, NULL, ATOMS);
    tocsin_relation_id pieces[2] = {all[0], all[1]};
    tocsin_relation_id joined = tocsin_relation_of_segments(universe, pieces, 2, 0);
    tocsin_relation_id twice[2] = {joined, joined};
    if (!result || !joined || !tocsin_relation_add(universe, twice, NULL, 2))
        return 0;
    return sum_of_parts(universe, all[0]);
}

static tocsin_status make_use_and_free(void *context, tocsin_error *error)
{
    (void)context;
    tocsin_universe *universe = tocsin_universe_new();
    if (!universe)
        return tocsin_error_memory(error);
    tocsin_relation_id result = work(universe);
    tocsin_status status = tocsin_universe_status(universe, error);
    assert_true(status == TOCSIN_OK ? result != 0 : result == 0);
    if (status != TOCSIN_OK)
        assert_int_equal(work(universe), 0);
    tocsin_universe_free(universe);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    assert_in_range(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, make_use_and_free, NULL), 10,
                    10000);
}

/* A refusal that finds no memory for a name is still a refusal. */
static tocsin_status refuse(void *context, tocsin_error *error)
{
    tocsin_universe *universe = context;
    const int64_t part[1] = {2};
    tocsin_atom_id atom = tocsin_atom_find_input(universe, "x", 1);
    const tocsin_affine start = {.weight = {2, 0}};
    tocsin_relation_id slice = tocsin_relation_slice_of(universe, atom, &start, part);
    assert_int_equal(tocsin_relation_sum_over(universe, slice, TOCSIN_SYMBOL_REPLICA, 2), 0);
    assert_non_null(strstr(tocsin_universe_refusal(universe)->text, "different slices"));
    return tocsin_universe_status(universe, error);
}

static void refusals_need_no_memory(void **state)
{
    (void)state;
    const int64_t shape[1] = {4};
    tocsin_universe *universe = tocsin_universe_new();
    assert_int_not_equal(tocsin_atom_input(universe, "x", 1, shape, 1), 0);
    assert_int_equal(refuse(universe, NULL), TOCSIN_OK);
    for (uint64_t nth = 1; nth < 4; ++nth) {
        tocsin_fault_arm(TOCSIN_FAULT_MEMORY, nth);
        assert_int_equal(refuse(universe, NULL), TOCSIN_OK);
        tocsin_fault_disarm(TOCSIN_FAULT_MEMORY);
    }
    tocsin_universe_free(universe);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(refusals_need_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
