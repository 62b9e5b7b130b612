/* From slices back to logical operands: windows, profiles, definitions. */
#include <prove/slice_relation.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <tocsin/verify.h>

#include <cmocka.h>

static const int64_t sizes[TOCSIN_SYMBOL_COUNT] = {4, 2}; /* replicas, micro-batches */

#define SHAPE(...)                                                                                 \
    (const int64_t[]){__VA_ARGS__}, (uint8_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

enum { WINDOWS = 16 };

static int make_universe(void **state)
{
    tocsin_universe *universe = tocsin_universe_new();
    tocsin_universe_set_sizes(universe, sizes);
    *state = universe;
    return universe == NULL ? -1 : 0;
}

static int free_universe(void **state)
{
    tocsin_universe_free(*state);
    return 0;
}

static tocsin_atom_id input(tocsin_universe *universe, const char *name, const int64_t *shape,
                            uint8_t ndim)
{
    return tocsin_atom_input(universe, name, strlen(name), shape, ndim);
}

static tocsin_relation_id whole(tocsin_universe *universe, const char *name, const int64_t *shape,
                                uint8_t ndim)
{
    return tocsin_relation_whole(universe, input(universe, name, shape, ndim));
}

static tocsin_affine at(int64_t base, int64_t replica, int64_t microbatch)
{
    return (tocsin_affine){.base = base, .weight = {replica, microbatch}};
}

static tocsin_relation_id part(tocsin_universe *universe, tocsin_relation_id relation, uint32_t dim,
                               tocsin_affine start, int64_t count)
{
    const tocsin_relation_id made = tocsin_relation_slice(universe, relation, dim, start, count, 1);
    assert_int_not_equal(made, 0);
    return made;
}

static const tocsin_term *term_of(tocsin_universe *universe, tocsin_relation_id id)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    assert_int_not_equal(id, 0);
    assert_false(relation->segmented);
    assert_int_equal(relation->count, 1);
    return &relation->terms[0];
}

static tocsin_relation_id sum(tocsin_universe *universe, tocsin_relation_id a, tocsin_relation_id b)
{
    return tocsin_relation_add(universe, (tocsin_relation_id[]){a, b}, NULL, 2);
}

/* The relation as a partial sum over 1/4 of 16, or what it is made of for each replica. */
static tocsin_relation_id partial(tocsin_universe *universe, tocsin_relation_id relation,
                                  tocsin_atom_id atom)
{
    const tocsin_relation *view = tocsin_relation_get(universe, relation);
    const tocsin_box_entry box = {
        .atom = atom, .axis = 3, .stride = 1, .extent = 16, .start = at(0, 4, 0), .count = 4};
    tocsin_term terms[4];

    assert_true(view->count <= 4);
    for (uint32_t k = 0; k < view->count; k++) {
        terms[k] = view->terms[k];
        terms[k].box = &box;
        terms[k].box_count = 1;
    }
    return tocsin_relation_of_terms(universe, terms, view->count, view->shape, view->ndim);
}

/* ---- windows --------------------------------------------------------------------------------- */

static void the_smallest_window_is_the_first_choice(void **state)
{
    tocsin_universe *universe = *state;
    tocsin_window windows[WINDOWS];

    tocsin_universe_set_logical(universe, true);
    const tocsin_relation_id fused = whole(universe, "qkv", SHAPE(32, 96));
    const tocsin_relation_id key = part(universe, fused, 1, at(32, 0, 0), 32);
    const tocsin_relation_id pair = part(universe, fused, 1, at(32, 0, 0), 64);
    tocsin_universe_set_logical(universe, false);
    /* a rank's quarter of the batch and half of the key's features */
    const tocsin_relation_id own =
        part(universe, part(universe, fused, 0, at(0, 8, 4), 4), 1, at(48, 0, 0), 16);

    assert_int_equal(tocsin_relation_widen(universe, own, 0, 0, sizes, windows, WINDOWS), key);
    assert_int_equal(windows[0].count, 32);
    assert_int_equal(windows[1].start, 32);
    assert_int_equal(windows[1].count, 32);
    assert_int_equal(tocsin_relation_widen(universe, own, 1, 0, sizes, windows, WINDOWS), fused);
    assert_int_equal(tocsin_relation_widen(universe, own, 2, 0, sizes, windows, WINDOWS), pair);
    assert_int_equal(windows[1].count, 64);
    assert_int_equal(tocsin_relation_widen(universe, own, 3, 0, sizes, windows, WINDOWS), 0);
    /* what the logical model holds is its own widening */
    assert_int_equal(tocsin_relation_widen(universe, key, 0, 0, sizes, windows, WINDOWS), key);
}

static void a_range_must_fit_for_all_values_of_the_symbols(void **state)
{
    tocsin_universe *universe = *state;
    tocsin_window windows[WINDOWS];
    const int64_t eight[TOCSIN_SYMBOL_COUNT] = {8, 2};

    tocsin_universe_set_logical(universe, true);
    const tocsin_relation_id x = whole(universe, "x", SHAPE(32, 6));
    const tocsin_relation_id front = part(universe, x, 0, at(0, 0, 0), 16);
    tocsin_universe_set_logical(universe, false);
    const tocsin_relation_id own = part(universe, x, 0, at(0, 4, 0), 4);
    assert_int_equal(tocsin_relation_widen(universe, own, 0, 0, sizes, windows, WINDOWS), front);
    assert_int_equal(tocsin_relation_widen(universe, own, 0, 0, eight, windows, WINDOWS), x);
    const int64_t nine[TOCSIN_SYMBOL_COUNT] = {9, 2};
    assert_int_equal(tocsin_relation_widen(universe, own, 0, 0, nine, windows, WINDOWS), 0);
    assert_int_equal(tocsin_universe_refusal(universe)->cause, TOCSIN_CAUSE_WRONG_SHARD);
}

static void factors_stay_and_boxes_go(void **state)
{
    tocsin_universe *universe = *state;
    tocsin_window windows[WINDOWS];
    const tocsin_atom_id y = input(universe, "y", SHAPE(8, 6));
    const tocsin_factor_id half = tocsin_factor_rational(universe, 1, 2);
    const tocsin_relation_id y_half =
        tocsin_relation_scale(universe, tocsin_relation_whole(universe, y), half);

    assert_int_equal(tocsin_relation_widen(
                         universe, partial(universe, part(universe, y_half, 0, at(0, 2, 0), 2), y),
                         0, 0, sizes, windows, WINDOWS),
                     y_half);
    const tocsin_relation_id two = sum(universe, y_half, whole(universe, "z", SHAPE(8, 6)));
    assert_int_equal(tocsin_relation_widen(universe, two, 0, 0, sizes, windows, WINDOWS), 0);
    assert_true(tocsin_universe_refusal(universe)->text[0] != '\0');
}

static void repeated_elements_have_no_size(void **state)
{
    tocsin_universe *universe = *state;
    tocsin_window windows[WINDOWS];
    const tocsin_relation_id b = whole(universe, "b", SHAPE(6));
    const tocsin_relation_id local = tocsin_relation_expand(universe, b, SHAPE(2, 6));
    const tocsin_relation_id logical = tocsin_relation_expand(universe, b, SHAPE(8, 6));
    const tocsin_relation_id single = tocsin_relation_expand(universe, b, SHAPE(1, 6));

    const tocsin_relation_id widened =
        tocsin_relation_widen(universe, logical, 0, 0, sizes, windows, WINDOWS);
    assert_int_equal(tocsin_relation_widen(universe, local, 0, 0, sizes, windows, WINDOWS),
                     widened);
    assert_int_equal(tocsin_relation_widen(universe, single, 0, 0, sizes, windows, WINDOWS),
                     widened);
    assert_int_equal(tocsin_relation_widen(universe, local, 0, 1, sizes, windows, WINDOWS), local);
}

/* ---- profiles -------------------------------------------------------------------------------- */

static uint32_t profile_of(tocsin_universe *universe, tocsin_relation_id relation, uint32_t dim,
                           tocsin_digit profile[8], int64_t *extent)
{
    tocsin_window windows[WINDOWS];
    assert_int_not_equal(tocsin_relation_widen(universe, relation, 0, 0, sizes, windows, WINDOWS),
                         0);
    return tocsin_term_profile(term_of(universe, relation), windows, dim, profile, 8, extent);
}

static void equal_ranges_have_equal_profiles(void **state)
{
    tocsin_universe *universe = *state;
    tocsin_digit flat[8], merged[8];
    int64_t flat_extent, merged_extent;
    /* tokens [8*16], and [8 16] viewed as one dim: the same two batches of a replica */
    const tocsin_relation_id a =
        part(universe, whole(universe, "a", SHAPE(128, 6)), 0, at(0, 32, 0), 32);
    const tocsin_relation_id b = tocsin_relation_view(
        universe, part(universe, whole(universe, "b", SHAPE(8, 16, 4)), 0, at(0, 2, 0), 2),
        SHAPE(32, 4));

    assert_int_equal(profile_of(universe, a, 0, flat, &flat_extent), 1);
    assert_int_equal(profile_of(universe, b, 0, merged, &merged_extent), 1);
    assert_int_equal(flat_extent, 128);
    assert_int_equal(merged_extent, 128);
    assert_memory_equal(flat, merged, sizeof flat[0]);
    assert_int_equal(flat[0].count, 32);
    assert_int_equal(flat[0].start.weight[0], 32);
    /* one batch of the second half of the sequence is another range */
    const tocsin_relation_id c = tocsin_relation_view(
        universe,
        part(universe, part(universe, whole(universe, "b", SHAPE(8, 16, 4)), 0, at(0, 2, 0), 2), 1,
             at(8, 0, 0), 8),
        SHAPE(16, 4));
    assert_int_equal(profile_of(universe, c, 0, merged, &merged_extent), 2);
    assert_int_equal(merged[0].stride, 16);
    assert_int_equal(merged[1].start.base, 8);
}

/* Grouped queries: 2 of 8 query heads share a key head. */
static void repeated_heads_run_with_the_query_heads(void **state)
{
    tocsin_universe *universe = *state;
    tocsin_digit query[8], key[8];
    int64_t query_extent, key_extent;
    const tocsin_relation_id q =
        part(universe, whole(universe, "q", SHAPE(4, 8, 16)), 1, at(4, 0, 0), 2);
    tocsin_relation_id k = part(universe, whole(universe, "k", SHAPE(4, 4, 16)), 1, at(2, 0, 0), 1);

    k = tocsin_relation_view(universe, k, SHAPE(4, 1, 1, 16));
    k = tocsin_relation_expand(universe, k, SHAPE(4, 1, 2, 16));
    k = tocsin_relation_view(universe, k, SHAPE(4, 2, 16));
    assert_int_equal(profile_of(universe, q, 1, query, &query_extent), 1);
    assert_int_equal(profile_of(universe, k, 1, key, &key_extent), 1);
    assert_int_equal(query_extent, 8);
    assert_int_equal(key_extent, 8);
    assert_memory_equal(query, key, sizeof query[0]);
}

static void profiles_are_relative_to_windows(void **state)
{
    tocsin_universe *universe = *state;
    tocsin_digit profile[8];
    int64_t extent;

    tocsin_universe_set_logical(universe, true);
    const tocsin_relation_id fused = whole(universe, "qkv", SHAPE(4, 96));
    part(universe, fused, 1, at(32, 0, 0), 32);
    tocsin_universe_set_logical(universe, false);
    const tocsin_relation_id own = part(universe, fused, 1, at(48, 0, 0), 16);
    assert_int_equal(profile_of(universe, own, 1, profile, &extent), 1);
    assert_int_equal(extent, 32);
    assert_int_equal(profile[0].start.base, 16);
    const tocsin_relation_id wide =
        tocsin_relation_expand(universe, whole(universe, "b", SHAPE(1, 6)), SHAPE(5, 6));
    assert_int_equal(profile_of(universe, wide, 0, profile, &extent), 0);
    assert_int_equal(extent, 0);
}

/* ---- definitions ----------------------------------------------------------------------------- */

/* The residual stream: x + a + b, and a bias that is equal for all tokens. */
static void slices_of_a_sum_fold(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_relation_id bias =
        tocsin_relation_expand(universe, whole(universe, "bias", SHAPE(6)), SHAPE(32, 6));
    const tocsin_relation_id stream = sum(
        universe, bias,
        sum(universe, whole(universe, "x", SHAPE(32, 6)),
            sum(universe, whole(universe, "a", SHAPE(32, 6)), whole(universe, "b", SHAPE(32, 6)))));

    tocsin_universe_set_logical(universe, true);
    const tocsin_relation_id named =
        tocsin_relation_define(universe, stream, "add", TOCSIN_PLAN_NONE);
    tocsin_universe_set_logical(universe, false);
    assert_int_equal(term_of(universe, named)->digit_total, 2);
    const tocsin_relation_id own =
        part(universe, part(universe, stream, 0, at(0, 8, 4), 4), 1, at(3, 0, 0), 3);
    const tocsin_relation_id folded = tocsin_relation_fold(universe, own, sizes);
    assert_int_equal(folded,
                     part(universe, part(universe, named, 0, at(0, 8, 4), 4), 1, at(3, 0, 0), 3));
    assert_int_equal(tocsin_relation_fold(universe, own, sizes), folded);
    /* factors that all terms share come out */
    const tocsin_factor_id third = tocsin_factor_rational(universe, 1, 3);
    assert_int_equal(
        tocsin_relation_fold(universe, tocsin_relation_scale(universe, own, third), sizes),
        tocsin_relation_scale(universe, folded, third));
    /* one term is what it is */
    const tocsin_relation_id x = whole(universe, "x", SHAPE(32, 6));
    assert_int_equal(tocsin_relation_fold(universe, x, sizes), x);
    assert_int_equal(tocsin_relation_define(universe, x, "x", TOCSIN_PLAN_NONE), x);
}

static void a_shared_box_comes_out(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_atom_id y = input(universe, "y", SHAPE(8, 6));
    const tocsin_relation_id both =
        sum(universe, whole(universe, "a", SHAPE(8, 6)), whole(universe, "b", SHAPE(8, 6)));

    tocsin_universe_set_logical(universe, true);
    const tocsin_relation_id named =
        tocsin_relation_define(universe, both, "add", TOCSIN_PLAN_NONE);
    tocsin_universe_set_logical(universe, false);
    const tocsin_relation_id own = partial(universe, part(universe, both, 0, at(0, 2, 0), 2), y);
    assert_int_equal(tocsin_relation_fold(universe, own, sizes),
                     partial(universe, part(universe, named, 0, at(0, 2, 0), 2), y));
}

/* Fused projections and zero padding, cut along other dims. */
static void slices_of_a_concatenation_fold(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_relation_id pieces[4] = {
        tocsin_relation_constant(universe, 0, true, SHAPE(16, 4)),
        whole(universe, "q", SHAPE(16, 8)), whole(universe, "k", SHAPE(16, 4)),
        sum(universe, whole(universe, "v", SHAPE(16, 4)), whole(universe, "w", SHAPE(16, 4)))};
    const tocsin_relation_id fused = tocsin_relation_cat(universe, pieces, 4, 1);

    tocsin_universe_set_logical(universe, true);
    const tocsin_relation_id named =
        tocsin_relation_define(universe, fused, "cat", TOCSIN_PLAN_NONE);
    tocsin_universe_set_logical(universe, false);
    const tocsin_relation_id rows = part(universe, fused, 0, at(0, 4, 2), 2);
    assert_int_equal(tocsin_relation_fold(universe, rows, sizes),
                     part(universe, named, 0, at(0, 4, 2), 2));
    /* some of the pieces only */
    const tocsin_relation_id some = part(universe, rows, 1, at(10, 0, 0), 6);
    assert_int_equal(tocsin_relation_fold(universe, some, sizes),
                     part(universe, part(universe, named, 0, at(0, 4, 2), 2), 1, at(10, 0, 0), 6));
}

static void unknown_sums_are_refused_by_name(void **state)
{
    tocsin_universe *universe = *state;
    const tocsin_relation_id a = whole(universe, "a", SHAPE(8, 6)),
                             b = whole(universe, "b", SHAPE(8, 6)),
                             c = whole(universe, "c", SHAPE(8, 6));

    tocsin_universe_set_logical(universe, true);
    tocsin_relation_define(universe, sum(universe, a, b), "add", TOCSIN_PLAN_NONE);
    tocsin_universe_set_logical(universe, false);
    assert_int_equal(tocsin_relation_fold(universe, sum(universe, a, c), sizes), 0);
    assert_non_null(strstr(tocsin_universe_refusal(universe)->text, "sum of a and c"));
    /* shards of a that do not go with those of b */
    const tocsin_relation_id mixed =
        sum(universe, part(universe, a, 0, at(0, 2, 0), 2), part(universe, b, 0, at(2, 0, 0), 2));
    assert_int_equal(tocsin_relation_fold(universe, mixed, sizes), 0);
    /* twice the one, once the other */
    assert_int_equal(tocsin_relation_fold(universe, sum(universe, sum(universe, a, a), b), sizes),
                     0);
    const tocsin_atom_id atom = input(universe, "a", SHAPE(8, 6));
    assert_int_equal(
        tocsin_relation_fold(universe, sum(universe, partial(universe, a, atom), b), sizes), 0);
    assert_int_equal(tocsin_universe_refusal(universe)->cause, TOCSIN_CAUSE_MISSING_REDUCTION);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_universe, free_universe)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_smallest_window_is_the_first_choice),
        TEST(a_range_must_fit_for_all_values_of_the_symbols),
        TEST(factors_stay_and_boxes_go),
        TEST(repeated_elements_have_no_size),
        TEST(equal_ranges_have_equal_profiles),
        TEST(repeated_heads_run_with_the_query_heads),
        TEST(profiles_are_relative_to_windows),
        TEST(slices_of_a_sum_fold),
        TEST(a_shared_box_comes_out),
        TEST(slices_of_a_concatenation_fold),
        TEST(unknown_sums_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
