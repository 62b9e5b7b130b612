/* The algebra of relations, case by case: factors, atoms, normal form, partial sums, symbols,
 * maxima, concatenation, texts and refusals. (Random cases: tests/prop/test_relation_random.c.) */
#include <base/base.h>
#include <math.h>
#include <prove/universe.h>

#include "cmocka_test.h"

static tocsin_universe *universe;

static int make_universe(void **state)
{
    (void)state;
    universe = tocsin_universe_new();
    return universe ? 0 : -1;
}

static int free_universe(void **state)
{
    (void)state;
    tocsin_universe_free(universe);
    return 0;
}

/* ---- building blocks ------------------------------------------------------------------------- */

static tocsin_atom_id input(const char *name, int64_t rows, int64_t columns)
{
    const int64_t shape[2] = {rows, columns};
    return tocsin_atom_input(universe, name, strlen(name), shape, 2);
}

/* Rows [start, start + count) of a matrix, all columns. */
static tocsin_relation_id rows_of(tocsin_atom_id atom, tocsin_affine start, int64_t count)
{
    const tocsin_affine starts[2] = {start, {0}};
    const int64_t shape[2] = {count, tocsin_atom_get(universe, atom)->shape[1]};
    return tocsin_relation_slice_of(universe, atom, starts, shape);
}

/* All of the atom, but of its contraction axis 2 only [start, start + count) of `extent`. */
static tocsin_relation_id partial(tocsin_atom_id atom, tocsin_affine start, int64_t count,
                                  int64_t extent, tocsin_box_kind kind)
{
    const tocsin_relation *whole =
        tocsin_relation_get(universe, tocsin_relation_whole(universe, atom));
    const tocsin_box_entry entry = {.atom = atom,
                                    .axis = 2,
                                    .kind = (uint16_t)kind,
                                    .stride = 1,
                                    .extent = extent,
                                    .start = start,
                                    .count = count};
    tocsin_term term = whole->terms[0];
    term.box = &entry;
    term.box_count = 1;
    return tocsin_relation_of_term(universe, &term, whole->shape, whole->ndim);
}

static tocsin_relation_id sum_part(tocsin_atom_id atom, int64_t start, int64_t count)
{
    return partial(atom, tocsin_affine_of(start), count, 16, TOCSIN_BOX_SUM);
}

static tocsin_relation_id add(tocsin_relation_id a, tocsin_relation_id b)
{
    const tocsin_relation_id both[2] = {a, b};
    return tocsin_relation_add(universe, both, NULL, 2);
}

static tocsin_affine moving(int64_t base, int64_t replica, int64_t microbatch)
{
    return (tocsin_affine){base, {replica, microbatch}};
}

static void expect_text(tocsin_relation_id relation, const char *expected)
{
    tocsin_string text = {0};
    assert_int_not_equal(relation, 0);
    tocsin_relation_text(universe, universe->plan, relation, &text, 1000);
    assert_string_equal(tocsin_string_text(&text), expected);
    tocsin_string_free(&text);
}

static void expect_refusal(tocsin_relation_id relation, int cause, const char *part)
{
    assert_int_equal(relation, 0);
    assert_int_equal(tocsin_universe_status(universe, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_universe_refusal(universe)->cause, cause);
    if (!strstr(tocsin_universe_refusal(universe)->text, part))
        fail_msg("'%s' lacks '%s'", tocsin_universe_refusal(universe)->text, part);
}

/* ---- factors --------------------------------------------------------------------------------- */

static void expect_factor(tocsin_factor_id factor, const char *expected)
{
    tocsin_string text = {0};
    tocsin_factor_text(universe, factor, &text);
    assert_string_equal(tocsin_string_text(&text), expected);
    tocsin_string_free(&text);
}

static void factors_are_exact(void **state)
{
    (void)state;
    assert_int_equal(tocsin_factor_rational(universe, -3, -3), 0);
    assert_int_equal(tocsin_factor_rational(universe, 0, 7), TOCSIN_FACTOR_ZERO);
    expect_factor(tocsin_factor_rational(universe, 4, -6), "-2/3");
    expect_factor(tocsin_factor_real(universe, 0.1), "1/10");
    expect_factor(tocsin_factor_real(universe, 1e-5), "1/100000");
    expect_factor(tocsin_factor_real(universe, 1.0 / 3), "1/3");
    expect_factor(tocsin_factor_real(universe, 4503599627370495.0), "4503599627370495");
    expect_factor(tocsin_factor_real(universe, -sqrt(0.5)), "-0.7071067811865476");
    expect_factor(tocsin_factor_real(universe, 0.0), "0");
    tocsin_factor_id root = tocsin_factor_real(universe, sqrt(0.5));
    tocsin_factor_id three = tocsin_factor_rational(universe, 3, 1);
    expect_factor(tocsin_factor_multiply(universe, root, three), "3 * 0.7071067811865476");
    /* Twice the constant is the constant twice. */
    assert_int_equal(
        tocsin_factor_real(universe, 2 * sqrt(0.5)),
        tocsin_factor_multiply(universe, root, tocsin_factor_rational(universe, 2, 1)));
    tocsin_factor_id inverse = tocsin_factor_inverse(universe, root);
    assert_int_equal(tocsin_factor_multiply(universe, root, inverse), 0);
    assert_int_not_equal(root, inverse);
    int64_t numerator, denominator;
    assert_false(tocsin_factor_is_rational(universe, root, &numerator, &denominator));
    assert_true(tocsin_factor_is_rational(universe, three, &numerator, &denominator));
    assert_int_equal(numerator, 3);
}

static void factors_add_when_alike(void **state)
{
    (void)state;
    bool zero;
    tocsin_factor_id sum;
    tocsin_factor_id half = tocsin_factor_rational(universe, 1, 2);
    tocsin_factor_id third = tocsin_factor_rational(universe, 1, 3);
    assert_true(tocsin_factor_add(universe, half, third, &sum, &zero));
    expect_factor(sum, "5/6");
    assert_false(zero);
    assert_true(
        tocsin_factor_add(universe, half, tocsin_factor_rational(universe, -1, 2), &sum, &zero));
    assert_true(zero);
    tocsin_factor_id root = tocsin_factor_real(universe, sqrt(0.5));
    assert_false(tocsin_factor_add(universe, half, root, &sum, &zero));
    assert_true(tocsin_factor_add(universe, root, root, &sum, &zero));
    expect_factor(sum, "1.4142135623730951");
    assert_int_equal(tocsin_universe_status(universe, NULL), TOCSIN_OK);
}

static void factor_overflow_is_a_limit(void **state)
{
    (void)state;
    tocsin_factor_id large = tocsin_factor_rational(universe, INT64_MAX, 1);
    tocsin_error error;
    assert_int_equal(tocsin_factor_multiply(universe, large, large), 0);
    assert_int_equal(tocsin_universe_status(universe, &error), TOCSIN_E_LIMIT);
    assert_int_equal(error.code, TOCSIN_E_LIMIT);
    tocsin_universe *other = tocsin_universe_new();
    for (int square = 0; square < 2; ++square) {
        tocsin_factor_id power = tocsin_factor_real(other, square ? 2 : sqrt(0.5));
        for (int i = 0; i < 70; ++i)
            power = tocsin_factor_multiply(other, power, power);
        assert_int_equal(tocsin_universe_status(other, NULL), TOCSIN_E_LIMIT);
        tocsin_universe_free(other);
        other = tocsin_universe_new();
    }
    tocsin_universe_free(other);
    /* From then on there is no answer. */
    const int64_t shape[1] = {2};
    assert_int_equal(tocsin_relation_constant(universe, 0, false, shape, 1), 0);
    assert_int_equal(tocsin_atom_input(universe, "x", 1, shape, 1), 0);
}

/* ---- atoms ----------------------------------------------------------------------------------- */

static void atoms_are_interned(void **state)
{
    (void)state;
    const int64_t shape[2] = {4, 6};
    tocsin_atom_id x = input("x", 4, 6);
    assert_int_equal(input("x", 4, 6), x);
    assert_int_not_equal(input("y", 4, 6), x);
    assert_int_equal(tocsin_atom_find_input(universe, "x", 1), x);
    assert_int_equal(tocsin_atom_find_input(universe, "z", 1), 0);
    const tocsin_relation_id operands[3] = {tocsin_relation_whole(universe, x), 0, 0};
    bool made;
    tocsin_atom_id call = tocsin_atom_call(universe, 7, "silu", operands, 1, 0, shape, 2, 3, &made);
    assert_true(made);
    assert_int_equal(tocsin_atom_call(universe, 7, "silu", operands, 1, 0, shape, 2, 9, &made),
                     call);
    assert_false(made);
    assert_int_equal(tocsin_atom_find_call(universe, 7, operands, 1, 0), call);
    assert_int_equal(tocsin_atom_find_call(universe, 7, operands, 1, 1), 0);
    assert_int_equal(tocsin_atom_find_call(universe, 8, operands, 1, 0), 0);
    /* An operand that is none is not the lack of an operand. */
    assert_int_equal(tocsin_atom_find_call(universe, 7, operands, 2, 0), 0);
}

static void logical_atoms_are_marked(void **state)
{
    (void)state;
    tocsin_atom_id x = input("x", 4, 6);
    tocsin_relation_id whole = tocsin_relation_whole(universe, x);
    assert_true(tocsin_relation_get(universe, whole)->foreign);
    tocsin_universe_set_logical(universe, true);
    assert_int_equal(input("x", 4, 6), x);
    assert_int_equal(tocsin_relation_whole(universe, x), whole);
    assert_false(tocsin_relation_get(universe, whole)->foreign);
    assert_true(tocsin_atom_get(universe, x)->logical);
}

/* ---- normal form ----------------------------------------------------------------------------- */

/* Of atom x[4, 6]: the tensor of the digits, all in dim 0 of as many dims as `counts` says. */
static tocsin_relation_id of_digits(tocsin_atom_id atom, const tocsin_digit *digits,
                                    const uint8_t *counts, uint8_t ndim, const int64_t *shape)
{
    tocsin_term term = {.atom = atom, .digit_count = counts, .digits = digits};
    for (uint32_t dim = 0; dim < ndim; ++dim)
        term.digit_total += counts[dim];
    return tocsin_relation_of_term(universe, &term, shape, ndim);
}

static void digits_merge(void **state)
{
    (void)state;
    tocsin_atom_id x = input("x", 4, 6);
    const tocsin_digit split[3] = {
        {.axis = 0, .stride = 1, .extent = 4, .start = {.base = 1}, .count = 2},
        {.axis = 1, .stride = 3, .extent = 2, .start = {.base = 1}, .count = 1},
        {.axis = 1, .stride = 1, .extent = 3, .count = 2},
    };
    const uint8_t counts[2] = {1, 2};
    const int64_t shape[2] = {2, 2};
    expect_text(of_digits(x, split, counts, 2, shape), "x[1:3, 3:5]");
    const tocsin_digit spread[2] = {
        {.axis = TOCSIN_DIGIT_BROADCAST, .stride = 9, .extent = 9, .count = 2},
        {.axis = TOCSIN_DIGIT_BROADCAST, .stride = 1, .extent = 1, .count = 3},
    };
    const uint8_t one_dim[1] = {2};
    const int64_t six[1] = {6};
    tocsin_relation_id ones = of_digits(TOCSIN_ATOM_ID_ONE, spread, one_dim, 1, six);
    assert_int_equal(ones, tocsin_relation_constant(universe, 0, false, six, 1));
    expect_text(ones, "1[*6]");
    expect_text(tocsin_relation_constant(universe, 0, true, six, 1), "0");
}

static void ranges_outside_are_refused(void **state)
{
    (void)state;
    tocsin_atom_id x = input("x", 4, 6);
    expect_refusal(rows_of(x, tocsin_affine_of(3), 2), TOCSIN_CAUSE_WRONG_SHARD, "[0,4)");
    expect_refusal(rows_of(x, tocsin_affine_of(-1), 2), TOCSIN_CAUSE_WRONG_SHARD, "[0,4)");
    expect_refusal(rows_of(x, moving(0, 1, 0), 5), TOCSIN_CAUSE_WRONG_SHARD, "[0,4)");
    expect_refusal(
        tocsin_relation_fix(universe, rows_of(x, moving(0, 2, 0), 2), TOCSIN_SYMBOL_REPLICA, 2),
        TOCSIN_CAUSE_WRONG_SHARD, "[0,4)");
    expect_refusal(tocsin_relation_fix(universe, rows_of(x, moving(0, 2, 0), 2),
                                       TOCSIN_SYMBOL_REPLICA, INT64_MAX),
                   TOCSIN_CAUSE_UNPROVED_OUTPUT, "64 bits");
}

static void empty_tensors_are_zero(void **state)
{
    (void)state;
    tocsin_atom_id x = input("x", 4, 6);
    tocsin_relation_id empty = rows_of(x, tocsin_affine_of(2), 0);
    assert_int_equal(tocsin_relation_get(universe, empty)->count, 0);
}

/* ---- partial sums ---------------------------------------------------------------------------- */

static void parts_become_the_whole(void **state)
{
    (void)state;
    tocsin_atom_id y = input("y", 4, 6);
    tocsin_relation_id low = sum_part(y, 0, 8), high = sum_part(y, 8, 8);
    expect_text(low, "y[0:4, 0:6] partial axis 2 in [0,8) of 16");
    assert_int_equal(add(low, high), tocsin_relation_whole(universe, y));
    expect_text(add(low, low), "2 * y[0:4, 0:6] partial axis 2 in [0,8) of 16");
    expect_text(add(add(low, high), low), "2 * y[0:4, 0:6] partial axis 2 in [0,8) of 16 + "
                                          "y[0:4, 0:6] partial axis 2 in [8,16) of 16");
    expect_text(add(sum_part(y, 0, 2), sum_part(y, 5, 2)),
                "y[0:4, 0:6] partial axis 2 in [0,2) of 16 + "
                "y[0:4, 0:6] partial axis 2 in [5,7) of 16");
    /* Every other block: one range of the remainder. */
    expect_text(add(sum_part(y, 0, 4), sum_part(y, 8, 4)),
                "y[0:4, 0:6] partial axis 2 in [0,4) of 8");
    tocsin_factor_id minus = tocsin_factor_rational(universe, -1, 1);
    assert_int_equal(
        tocsin_relation_get(universe, add(low, tocsin_relation_scale(universe, low, minus)))->count,
        0);
    assert_int_equal(tocsin_relation_scale(universe, low, 0), low);
}

static void unlike_opaque_factors_stay_apart(void **state)
{
    (void)state;
    tocsin_atom_id y = input("y", 4, 6);
    tocsin_relation_id whole = tocsin_relation_whole(universe, y);
    tocsin_factor_id root = tocsin_factor_real(universe, sqrt(0.5));
    tocsin_relation_id scaled = tocsin_relation_scale(universe, whole, root);
    tocsin_relation_id both = add(scaled, whole);
    assert_int_equal(tocsin_relation_get(universe, both)->count, 2);
    assert_int_equal(add(whole, scaled), both);
    assert_int_equal(tocsin_relation_get(universe, add(both, both))->count, 2);
}

static void unequal_shapes_are_refused(void **state)
{
    (void)state;
    tocsin_relation_id x = tocsin_relation_whole(universe, input("x", 4, 6));
    tocsin_relation_id y = tocsin_relation_whole(universe, input("y", 6, 4));
    expect_refusal(add(x, y), TOCSIN_CAUSE_WRONG_LAYOUT, "unequal shapes");
}

/* ---- symbols --------------------------------------------------------------------------------- */

static void sums_over_symbols(void **state)
{
    (void)state;
    tocsin_atom_id y = input("y", 4, 6);
    tocsin_relation_id whole = tocsin_relation_whole(universe, y);
    tocsin_relation_id part = partial(y, moving(0, 8, 4), 4, 16, TOCSIN_BOX_SUM);
    expect_text(part, "y[0:4, 0:6] partial axis 2 in [dp*8+mb*4,+4) of 16");
    tocsin_relation_id replica =
        tocsin_relation_sum_over(universe, part, TOCSIN_SYMBOL_MICROBATCH, 2);
    expect_text(replica, "y[0:4, 0:6] partial axis 2 in [dp*8,+8) of 16");
    assert_int_equal(tocsin_relation_sum_over(universe, replica, TOCSIN_SYMBOL_REPLICA, 2), whole);
    /* In the other order the replicas' ranges leave gaps, which the micro-batches fill; that they
     * stay within them is known only when the number of micro-batches is. */
    expect_refusal(tocsin_relation_sum_over(universe, part, TOCSIN_SYMBOL_REPLICA, 2),
                   TOCSIN_CAUSE_WRONG_SHARD, "leave gaps");
    tocsin_universe_set_sizes(universe, (const int64_t[]){2, 2});
    tocsin_relation_id early = tocsin_relation_sum_over(universe, part, TOCSIN_SYMBOL_REPLICA, 2);
    expect_text(early, "y[0:4, 0:6] partial axis 2 in [mb*4,+4) of 8");
    assert_int_equal(tocsin_relation_sum_over(universe, early, TOCSIN_SYMBOL_MICROBATCH, 2), whole);
    /* What does not depend on it is counted as often. */
    expect_text(tocsin_relation_sum_over(universe, whole, TOCSIN_SYMBOL_REPLICA, 3),
                "3 * y[0:4, 0:6]");
    /* The last replica first is the same sum. */
    assert_int_equal(tocsin_relation_sum_over(universe,
                                              partial(y, moving(12, -4, 0), 4, 16, TOCSIN_BOX_SUM),
                                              TOCSIN_SYMBOL_REPLICA, 4),
                     whole);
}

static void sums_that_are_none_are_refused(void **state)
{
    (void)state;
    tocsin_atom_id y = input("y", 4, 6);
    expect_refusal(tocsin_relation_sum_over(universe,
                                            partial(y, moving(0, 3, 0), 4, 16, TOCSIN_BOX_SUM),
                                            TOCSIN_SYMBOL_REPLICA, 2),
                   TOCSIN_CAUSE_WRONG_SHARD, "axis 2 of y that are reduced overlap");
    expect_refusal(tocsin_relation_sum_over(universe,
                                            partial(y, moving(0, 5, 0), 4, 16, TOCSIN_BOX_SUM),
                                            TOCSIN_SYMBOL_REPLICA, 2),
                   TOCSIN_CAUSE_WRONG_SHARD, "leave gaps");
    expect_refusal(tocsin_relation_sum_over(universe, rows_of(y, moving(0, 2, 0), 2),
                                            TOCSIN_SYMBOL_REPLICA, 2),
                   TOCSIN_CAUSE_WRONG_GROUP, "sums different slices of y over the replicas");
    expect_refusal(tocsin_relation_sum_over(universe,
                                            partial(y, moving(0, 8, 0), 8, 16, TOCSIN_BOX_MAX),
                                            TOCSIN_SYMBOL_REPLICA, 2),
                   TOCSIN_CAUSE_WRONG_COLLECTIVE, "partial maxima");
}

static void symbols_are_fixed(void **state)
{
    (void)state;
    tocsin_atom_id x = input("x", 8, 6);
    tocsin_relation_id part = rows_of(x, moving(1, 4, 2), 1);
    assert_int_equal(tocsin_relation_get(universe, part)->symbols, 3);
    tocsin_relation_id fixed = tocsin_relation_fix(universe, part, TOCSIN_SYMBOL_REPLICA, 1);
    assert_int_equal(tocsin_relation_get(universe, fixed)->symbols, 2);
    expect_text(fixed, "x[mb*2+5:+1, 0:6]");
    assert_int_equal(tocsin_relation_fix(universe, fixed, TOCSIN_SYMBOL_REPLICA, 0), fixed);
    assert_int_equal(tocsin_relation_fix(universe, fixed, TOCSIN_SYMBOL_MICROBATCH, 1),
                     rows_of(x, tocsin_affine_of(7), 1));
}

/* ---- maxima ---------------------------------------------------------------------------------- */

static tocsin_relation_id max_part(tocsin_atom_id atom, int64_t start, int64_t count)
{
    return partial(atom, tocsin_affine_of(start), count, 16, TOCSIN_BOX_MAX);
}

static void maxima_join(void **state)
{
    (void)state;
    tocsin_atom_id y = input("y", 4, 6);
    tocsin_relation_id whole = tocsin_relation_whole(universe, y);
    tocsin_relation_id parts[3] = {max_part(y, 4, 8), max_part(y, 0, 6), max_part(y, 12, 4)};
    expect_text(parts[0], "y[0:4, 0:6] maximum over axis 2 in [4,12) of 16");
    assert_int_equal(tocsin_relation_join_max(universe, parts, 3), whole);
    parts[2] = parts[0];
    expect_text(tocsin_relation_join_max(universe, parts, 3),
                "y[0:4, 0:6] maximum over axis 2 in [0,12) of 16");
    parts[0] = max_part(y, 14, 2);
    parts[2] = max_part(y, 9, 2);
    expect_refusal(tocsin_relation_join_max(universe, parts, 3), TOCSIN_CAUSE_WRONG_COLLECTIVE,
                   "leave gaps");
    parts[0] = tocsin_relation_whole(universe, input("z", 4, 6));
    expect_refusal(tocsin_relation_join_max(universe, parts, 3), TOCSIN_CAUSE_WRONG_COLLECTIVE,
                   "not partial maxima");
    expect_refusal(add(max_part(y, 0, 4), max_part(y, 4, 4)), TOCSIN_CAUSE_WRONG_COLLECTIVE,
                   "adds partial maxima of y");
    tocsin_relation_id moves = partial(y, moving(0, 4, 0), 8, 16, TOCSIN_BOX_MAX);
    expect_text(tocsin_relation_max_over(universe, moves, TOCSIN_SYMBOL_REPLICA, 2),
                "y[0:4, 0:6] maximum over axis 2 in [0,12) of 16");
    assert_int_equal(tocsin_relation_max_over(universe, moves, TOCSIN_SYMBOL_REPLICA, 3), whole);
    assert_int_equal(tocsin_relation_max_over(universe, whole, TOCSIN_SYMBOL_REPLICA, 3), whole);
    tocsin_relation_id sums = partial(y, moving(0, 8, 0), 8, 16, TOCSIN_BOX_SUM);
    expect_refusal(tocsin_relation_max_over(universe, sums, TOCSIN_SYMBOL_REPLICA, 2),
                   TOCSIN_CAUSE_WRONG_COLLECTIVE, "partial sums");
    tocsin_factor_id minus = tocsin_factor_rational(universe, -1, 1);
    expect_refusal(tocsin_relation_max_over(universe, tocsin_relation_scale(universe, moves, minus),
                                            TOCSIN_SYMBOL_REPLICA, 2),
                   TOCSIN_CAUSE_WRONG_COLLECTIVE, "negated");
}

/* ---- concatenation --------------------------------------------------------------------------- */

static tocsin_relation_id join(tocsin_relation_id a, tocsin_relation_id b, uint32_t dim)
{
    const tocsin_relation_id both[2] = {a, b};
    return tocsin_relation_of_segments(universe, both, 2, dim);
}

static void pieces_join(void **state)
{
    (void)state;
    tocsin_atom_id x = input("x", 8, 6);
    tocsin_relation_id top = rows_of(x, tocsin_affine_of(0), 3);
    tocsin_relation_id rest = rows_of(x, tocsin_affine_of(3), 5);
    assert_int_equal(join(top, rest, 0), tocsin_relation_whole(universe, x));
    expect_text(join(rest, top, 0), "cat along dim 0 of (x[3:8, 0:6] | x[0:3, 0:6])");
    expect_text(join(top, top, 0), "x[(*2, 0:3), 0:6]");
    expect_text(join(rows_of(x, moving(0, 4, 0), 2), rows_of(x, moving(2, 4, 0), 2), 0),
                "x[dp*4:+4, 0:6]");
    const int64_t shape[2] = {2, 6};
    tocsin_relation_id zeros = tocsin_relation_constant(universe, 0, true, shape, 2);
    tocsin_relation_id padded = join(top, zeros, 0);
    expect_text(padded, "cat along dim 0 of (x[0:3, 0:6] | 0)");
    assert_int_equal(tocsin_relation_get(universe, padded)->shape[0], 5);
    /* However the pieces are put together. */
    assert_int_equal(join(join(top, zeros, 0), zeros, 0), join(top, join(zeros, zeros, 0), 0));
    expect_refusal(join(top, rest, 1), TOCSIN_CAUSE_WRONG_LAYOUT, "unequal shapes");
}

static void segmented_sums_are_cut(void **state)
{
    (void)state;
    tocsin_atom_id x = input("x", 8, 6), y = input("y", 8, 6);
    const int64_t shape[2] = {2, 6};
    tocsin_relation_id zeros = tocsin_relation_constant(universe, 0, true, shape, 2);
    tocsin_relation_id low = join(rows_of(x, tocsin_affine_of(0), 6), zeros, 0);
    tocsin_relation_id high = join(zeros, rows_of(x, tocsin_affine_of(2), 6), 0);
    expect_text(add(low, high), "cat along dim 0 of (x[0:2, 0:6] | 2 * x[2:6, 0:6] | x[6:8, 0:6])");
    tocsin_relation_id complement =
        join(rows_of(x, tocsin_affine_of(0), 2),
             join(rows_of(y, tocsin_affine_of(2), 4), rows_of(x, tocsin_affine_of(6), 2), 0), 0);
    tocsin_factor_id minus = tocsin_factor_rational(universe, -1, 1);
    tocsin_relation_id difference =
        add(complement, tocsin_relation_scale(universe, complement, minus));
    assert_int_equal(tocsin_relation_get(universe, difference)->count, 0);
    assert_false(tocsin_relation_get(universe, difference)->segmented);
    tocsin_relation_id fixed = tocsin_relation_fix(universe, complement, 0, 1);
    assert_int_equal(fixed, complement);
    expect_text(tocsin_relation_sum_over(universe, low, TOCSIN_SYMBOL_REPLICA, 2),
                "cat along dim 0 of (2 * x[0:6, 0:6] | 0)");
}

/* ---- counting -------------------------------------------------------------------------------- */

static void counting_is_one_value(void **state)
{
    (void)state;
    expect_text(tocsin_relation_iota(universe, 3, 5, 1), "arange[3:8]");
    assert_int_equal(
        join(tocsin_relation_iota(universe, 0, 4, 1), tocsin_relation_iota(universe, 4, 4, 1), 0),
        tocsin_relation_iota(universe, 0, 8, 1));
    assert_int_equal(
        join(tocsin_relation_iota(universe, 1, 3, 2), tocsin_relation_iota(universe, 7, 2, 2), 0),
        tocsin_relation_iota(universe, 1, 5, 2));
    expect_text(tocsin_relation_iota(universe, 5, 3, -1), "5[*3] + -1 * arange[0:3]");
    expect_refusal(tocsin_relation_iota(universe, 0, 2, INT64_MAX), TOCSIN_CAUSE_UNPROVED_OUTPUT,
                   "64 bits");
}

/* ---- windows --------------------------------------------------------------------------------- */

static void logical_ranges_are_windows(void **state)
{
    (void)state;
    tocsin_atom_id x = input("x", 8, 6);
    uint32_t count;
    (void)rows_of(x, tocsin_affine_of(0), 3);
    tocsin_windows_of(universe, x, 0, 1, 8, &count);
    assert_int_equal(count, 0);
    tocsin_universe_set_logical(universe, true);
    (void)rows_of(x, tocsin_affine_of(4), 4);
    (void)rows_of(x, tocsin_affine_of(0), 3);
    (void)rows_of(x, tocsin_affine_of(0), 4);
    (void)rows_of(x, tocsin_affine_of(0), 8);
    (void)rows_of(x, moving(0, 2, 0), 2);
    const tocsin_window *windows = tocsin_windows_of(universe, x, 0, 1, 8, &count);
    assert_int_equal(count, 3);
    const tocsin_window expected[3] = {{0, 3}, {0, 4}, {4, 4}};
    assert_memory_equal(windows, expected, sizeof expected);
    tocsin_windows_of(universe, x, 1, 1, 6, &count);
    assert_int_equal(count, 0);
}

/* ---- texts ----------------------------------------------------------------------------------- */

static const char plan_text[] = "tocsin-plan 1\n"
                                "mesh one=1\n"
                                "role one=0\n"
                                "in %x:float32[4,16] = x\n"
                                "in %w:float32[6,16] = w\n"
                                "segment fw\n"
                                "%y:float32[4,6] = linear(%x, %w) label=linear47\n"
                                "out other y = %y\n"
                                "end\n";

static void texts_name_operators_and_axes(void **state)
{
    (void)state;
    tocsin_plan *plan = NULL;
    tocsin_error error = {0};
    if (tocsin_plan_read_memory(plan_text, sizeof plan_text - 1, "t.plan", NULL, &plan, &error) !=
        TOCSIN_OK)
        fail_msg("%s", error.message);
    tocsin_universe_set_plan(universe, plan);
    tocsin_relation_id operands[2] = {tocsin_relation_whole(universe, input("x", 4, 16)),
                                      tocsin_relation_whole(universe, input("w", 6, 16))};
    const int64_t shape[2] = {4, 6};
    bool made;
    tocsin_universe_set_logical(universe, true);
    tocsin_atom_id y = tocsin_atom_call(universe, 1, "linear", operands, 2, 0, shape, 2, 0, &made);
    tocsin_universe_set_logical(universe, false);
    tocsin_signature parsed;
    const char *linear = tocsin_operators[TOCSIN_OPERATOR_MATMUL].signature; /* as transferred */
    assert_int_equal(tocsin_signature_parse(linear, strlen(linear), &parsed, NULL), TOCSIN_OK);
    uint16_t k = 0;
    while (strcmp(parsed.axis_name[k], "k") != 0)
        ++k;
    const tocsin_box_entry entry = {.atom = y, .axis = k, .stride = 1, .extent = 16, .count = 8};
    const tocsin_relation *whole =
        tocsin_relation_get(universe, tocsin_relation_whole(universe, y));
    tocsin_term term = whole->terms[0];
    term.box = &entry;
    term.box_count = 1;
    term.factor = tocsin_factor_rational(universe, 1, 2);
    expect_text(tocsin_relation_of_term(universe, &term, shape, 2),
                "1/2 * linear47[0:4, 0:6] partial k in [0,8) of 16");
    operands[0] = tocsin_relation_whole(universe, y);
    tocsin_atom_id foreign =
        tocsin_atom_call(universe, 2, "rope", operands, 2, 1, shape, 2, 5, &made);
    expect_text(tocsin_relation_whole(universe, foreign), "rope(linear47, w).1[0:4, 0:6]");
    tocsin_universe_set_plan(universe, NULL);
    expect_text(tocsin_relation_whole(universe, foreign), "rope(linear(x, w), w).1[0:4, 0:6]");
    tocsin_plan_free(plan);
}

static void texts_show_digits(void **state)
{
    (void)state;
    tocsin_atom_id x = input("x", 4, 6);
    const tocsin_digit digits[3] = {
        {.axis = 1, .stride = 2, .extent = 3, .start = {.base = 1}, .count = 2},
        {.axis = 0, .stride = 1, .extent = 4, .count = 4},
        {.axis = 1, .stride = 1, .extent = 2, .start = {.base = 1}, .count = 1},
    };
    const uint8_t counts[1] = {2};
    const int64_t shape[1] = {8};
    tocsin_term term = {
        .atom = x, .digit_count = counts, .digits = digits, .digit_total = 2, .pinned_count = 1};
    expect_text(tocsin_relation_of_term(universe, &term, shape, 1),
                "x[(axis1/2 1:3, 0:4); axis1%2 1]");
}

static void texts_are_cut(void **state)
{
    (void)state;
    tocsin_relation_id whole = tocsin_relation_whole(universe, input("x", 4, 6));
    tocsin_string text = {0};
    tocsin_string_append_text(&text, "is ");
    tocsin_relation_text(universe, NULL, whole, &text, 8);
    assert_string_equal(tocsin_string_text(&text), "is x[0:4...");
    tocsin_string_free(&text);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_universe, free_universe)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(factors_are_exact),
        TEST(factors_add_when_alike),
        TEST(factor_overflow_is_a_limit),
        TEST(atoms_are_interned),
        TEST(logical_atoms_are_marked),
        TEST(digits_merge),
        TEST(ranges_outside_are_refused),
        TEST(empty_tensors_are_zero),
        TEST(parts_become_the_whole),
        TEST(unlike_opaque_factors_stay_apart),
        TEST(unequal_shapes_are_refused),
        TEST(sums_over_symbols),
        TEST(sums_that_are_none_are_refused),
        TEST(symbols_are_fixed),
        TEST(maxima_join),
        TEST(pieces_join),
        TEST(segmented_sums_are_cut),
        TEST(counting_is_one_value),
        TEST(logical_ranges_are_windows),
        TEST(texts_name_operators_and_axes),
        TEST(texts_show_digits),
        TEST(texts_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
