/* Random relations over small atoms, evaluated element by element: every operation of the algebra
 * must keep the value, and what is equal must have one id however it was built.
 *
 * The atom A stands for sum over (k, l) of h(A, index, k, l), with contraction axes 0 and 1 of
 * extents K_EXTENT and L_EXTENT, where h is a hash: so the evaluator knows what partial sums are
 * worth. Factors have denominators that divide SCALE.
 */
#include <base/base.h>
#include <inttypes.h>
#include <prove/universe.h>
#include <stdio.h>
#include <stdlib.h>

#include "cmocka_test.h"
#include "test_seed.h"

enum { ATOMS = 3, AXES = 3, DIMS_MAX = 3, DIGITS_MAX = 24, K_EXTENT = 12, L_EXTENT = 8 };
enum { CASES = 400, SYMBOL_VALUES = 2, SCALE = 6, TERMS_MAX = 6 };

static const int64_t atom_shapes[ATOMS][AXES] = {{8, 12, 1}, {6, 4, 2}, {16, 3, 2}};
static uint64_t random_state;
static tocsin_universe *universe;

static uint32_t random_below(uint32_t limit)
{
    random_state += UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(tocsin_mix64(random_state) >> 33) % limit;
}

static int64_t random_range(int64_t low, int64_t high) /* both may occur */
{
    return low + random_below((uint32_t)(high - low + 1));
}

/* ---- evaluation ------------------------------------------------------------------------------ */

static int64_t at(const tocsin_affine *affine, const int64_t *symbols)
{
    return affine->base + affine->weight[0] * symbols[0] + affine->weight[1] * symbols[1];
}

static bool within(const tocsin_box_entry *entry, int64_t index, const int64_t *symbols)
{
    int64_t digit = index / entry->stride % entry->extent;
    int64_t start = at(&entry->start, symbols);
    return digit >= start && digit < start + entry->count;
}

/* h: small integers. */
static int64_t element(tocsin_atom_id atom, const int64_t *index, int64_t k, int64_t l)
{
    int64_t words[7] = {atom, index[0], index[1], index[2], k, l, 0};
    return (int64_t)(tocsin_hash64(words, sizeof words, 1) % 17) - 8;
}

static int64_t partial_value(const tocsin_term *term, const int64_t *index, const int64_t *symbols)
{
    int64_t sum = 0;
    for (int64_t k = 0; k < K_EXTENT; ++k) {
        for (int64_t l = 0; l < L_EXTENT; ++l) {
            bool inside = true;
            for (uint32_t i = 0; i < term->box_count; ++i)
                inside = inside && within(&term->box[i], term->box[i].axis == 0 ? k : l, symbols);
            if (inside)
                sum += element(term->atom, index, k, l);
        }
    }
    return sum;
}

/* SCALE times the term's value at the element `where` of a tensor of `ndim` dims. */
static int64_t term_value(const tocsin_term *term, const int64_t *where, uint32_t ndim,
                          const int64_t *symbols)
{
    int64_t index[AXES] = {0};
    uint32_t first = 0;
    for (uint32_t dim = 0; dim < ndim; ++dim) {
        int64_t rest = where[dim];
        for (uint32_t i = term->digit_count[dim]; i-- > 0;) {
            const tocsin_digit *digit = &term->digits[first + i];
            int64_t value = rest % digit->count;
            rest /= digit->count;
            if (digit->axis != TOCSIN_DIGIT_BROADCAST)
                index[digit->axis] += (at(&digit->start, symbols) + value) * digit->stride;
        }
        assert_int_equal(rest, 0);
        first += term->digit_count[dim];
    }
    for (uint32_t i = 0; i < term->pinned_count; ++i) {
        const tocsin_digit *digit = &term->digits[first + i];
        index[digit->axis] += at(&digit->start, symbols) * digit->stride;
    }
    int64_t numerator, denominator;
    assert_true(tocsin_factor_is_rational(universe, term->factor, &numerator, &denominator));
    assert_int_equal(SCALE % denominator, 0);
    return partial_value(term, index, symbols) * numerator * (SCALE / denominator);
}

static int64_t relation_value(tocsin_relation_id id, const int64_t *where, const int64_t *symbols)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    int64_t sum = 0;
    if (relation->segmented) {
        int64_t inner[DIMS_MAX];
        memcpy(inner, where, relation->ndim * sizeof *inner);
        uint32_t k = 0;
        for (;; ++k) {
            assert_true(k < relation->count);
            int64_t length =
                tocsin_relation_get(universe, relation->segments[k])->shape[relation->segment_dim];
            if (inner[relation->segment_dim] < length)
                break;
            inner[relation->segment_dim] -= length;
        }
        return relation_value(relation->segments[k], inner, symbols);
    }
    for (uint32_t k = 0; k < relation->count; ++k)
        sum += term_value(&relation->terms[k], where, relation->ndim, symbols);
    return sum;
}

/* A tensor that a test builds by itself. */
struct tensor {
    uint8_t ndim;
    int64_t shape[DIMS_MAX];
};

/* Visit all elements; false: there are no more. Start with zeros. */
static bool next_element(const struct tensor *tensor, int64_t *where)
{
    for (uint32_t dim = tensor->ndim; dim-- > 0;) {
        if (++where[dim] < tensor->shape[dim])
            return true;
        where[dim] = 0;
    }
    return false;
}

static bool next_symbols(int64_t *symbols)
{
    static const struct tensor values = {2, {SYMBOL_VALUES, SYMBOL_VALUES}};
    return next_element(&values, symbols);
}

/* ---- random terms ---------------------------------------------------------------------------- */

struct sample_term {
    tocsin_term view;
    uint8_t counts[DIMS_MAX];
    tocsin_digit digits[DIGITS_MAX];
    tocsin_box_entry box[4];
};

/* A random range within [0, extent); symbolic ones stay within it for all values. */
static void random_start(int64_t extent, int64_t count, bool symbolic, tocsin_affine *start)
{
    *start = tocsin_affine_of(0);
    int64_t room = extent - count;
    for (int symbol = 0; symbol < 2 && symbolic; ++symbol) {
        start->weight[symbol] = random_range(0, room / (SYMBOL_VALUES - 1));
        room -= start->weight[symbol] * (SYMBOL_VALUES - 1);
    }
    start->base = random_range(0, room);
}

/* The digits of one axis, outermost first, by random factors. */
static uint32_t split_axis(uint32_t axis, int64_t size, bool symbolic, tocsin_digit *digits)
{
    uint32_t count = 0;
    int64_t rest = size;
    while (rest > 1 || (count == 0 && random_below(2))) {
        int64_t extent = rest;
        for (int64_t factor = 2; factor <= rest; ++factor) {
            if (rest % factor == 0 && random_below(2)) {
                extent = factor;
                break;
            }
        }
        rest /= extent;
        tocsin_digit *digit = &digits[count++];
        *digit = (tocsin_digit){.axis = axis, .stride = rest, .extent = extent};
        digit->count = random_below(2) ? extent : random_range(1, extent);
        random_start(extent, digit->count, symbolic && random_below(2), &digit->start);
        if (rest == 1)
            break;
    }
    return count;
}

static void random_box(struct sample_term *term, bool symbolic)
{
    static const int64_t extents[2] = {K_EXTENT, L_EXTENT};
    for (uint16_t axis = 0; axis < 2; ++axis) {
        int64_t inner = random_below(2) ? 4 : 1;
        for (int level = 0; level < 2; ++level) {
            int64_t extent = level ? inner : extents[axis] / inner;
            if (random_below(2))
                continue;
            tocsin_box_entry *entry = &term->box[term->view.box_count++];
            *entry = (tocsin_box_entry){.atom = term->view.atom,
                                        .axis = axis,
                                        .kind = TOCSIN_BOX_SUM,
                                        .stride = level ? 1 : inner,
                                        .extent = extent};
            entry->count = random_range(1, extent);
            random_start(extent, entry->count, symbolic && random_below(2), &entry->start);
        }
    }
}

/* Deal the digits of the axes to dims, or pin those of count 1; the shape follows. */
static void random_term(struct sample_term *term, struct tensor *tensor, bool symbolic)
{
    *term = (struct sample_term){0};
    tocsin_digit pool[DIGITS_MAX], pinned[DIGITS_MAX];
    uint32_t pool_count = 0, pinned_count = 0, used = 0;
    term->view.atom = TOCSIN_ATOM_ID_IOTA + 1 + random_below(ATOMS);
    const int64_t *shape = tocsin_atom_get(universe, term->view.atom)->shape;
    for (uint32_t axis = 0; axis < AXES; ++axis)
        pool_count += split_axis(axis, shape[axis], symbolic, pool + pool_count);
    if (random_below(3) == 0) {
        int64_t times = random_range(1, 3);
        pool[pool_count++] = (tocsin_digit){
            .axis = TOCSIN_DIGIT_BROADCAST, .stride = 1, .extent = times, .count = times};
    }
    tensor->ndim = (uint8_t)random_range(1, DIMS_MAX);
    for (uint32_t dim = 0; dim < tensor->ndim; ++dim)
        tensor->shape[dim] = 1;
    bool shuffled = random_below(2);
    uint32_t dim = 0;
    while (pool_count > 0) {
        uint32_t pick = shuffled ? random_below(pool_count) : 0;
        tocsin_digit digit = pool[pick];
        memmove(pool + pick, pool + pick + 1, (--pool_count - pick) * sizeof *pool);
        if (digit.count == 1 && digit.axis != TOCSIN_DIGIT_BROADCAST && random_below(2)) {
            pinned[pinned_count++] = digit;
            continue;
        }
        while (dim + 1 < tensor->ndim && random_below(3) == 0)
            ++dim;
        ++term->counts[dim];
        tensor->shape[dim] *= digit.count;
        term->digits[used++] = digit;
    }
    memcpy(term->digits + used, pinned, pinned_count * sizeof *pinned);
    random_box(term, symbolic);
    const int64_t numerators[] = {1, 1, 2, -1, 3, -2};
    term->view.factor = tocsin_factor_rational(universe, numerators[random_below(6)],
                                               (int64_t[]){1, 1, 2, 3}[random_below(4)]);
    term->view.digit_total = used;
    term->view.pinned_count = pinned_count;
}

/* Addresses within the sample; after copies, too. */
static const tocsin_term *view_of(struct sample_term *term)
{
    term->view.digit_count = term->counts;
    term->view.digits = term->digits;
    term->view.box = term->box;
    return &term->view;
}

/* A term of the same tensor: another factor and box, now and then another atom's constant. */
static void vary_term(const struct sample_term *model, struct sample_term *term, bool symbolic)
{
    *term = *model;
    term->view.box_count = 0;
    random_box(term, symbolic);
    term->view.factor = tocsin_factor_rational(universe, (int64_t[]){1, 2, -1}[random_below(3)],
                                               (int64_t[]){1, 2, 3}[random_below(3)]);
}

static tocsin_relation_id intern(struct sample_term *term, const struct tensor *tensor)
{
    tocsin_relation_id id =
        tocsin_relation_of_term(universe, view_of(term), tensor->shape, tensor->ndim);
    if (!id)
        fail_msg("refused: %s", tocsin_universe_refusal(universe)->text);
    return id;
}

/* Cut a digit into two that say the same, if it can be; the box likewise. */
static void split_digits(struct sample_term *term, uint32_t ndim)
{
    uint32_t first = 0;
    for (uint32_t dim = 0; dim < ndim; first += term->counts[dim], ++dim) {
        for (uint32_t i = 0; i < term->counts[dim] && term->view.digit_total < DIGITS_MAX - 4;
             ++i) {
            tocsin_digit *outer = &term->digits[first + i];
            int64_t inner = random_below(2) ? 2 : 3;
            bool divides = outer->extent % inner == 0 && outer->count % inner == 0 &&
                           outer->start.base % inner == 0 && outer->start.weight[0] % inner == 0 &&
                           outer->start.weight[1] % inner == 0;
            if (!divides || random_below(2))
                continue;
            memmove(outer + 1, outer,
                    (term->view.digit_total + term->view.pinned_count - first - i) * sizeof *outer);
            bool broadcast = outer->axis == TOCSIN_DIGIT_BROADCAST;
            outer[1].extent = outer[1].count = inner;
            outer[1].start = tocsin_affine_of(0);
            outer->extent /= inner;
            outer->count /= inner;
            outer->stride *= broadcast ? 1 : inner;
            outer->start.base /= inner;
            outer->start.weight[0] /= inner;
            outer->start.weight[1] /= inner;
            ++term->counts[dim];
            ++term->view.digit_total;
        }
    }
}

/* ---- properties ------------------------------------------------------------------------------ */

static void expect_sum_of_terms(tocsin_relation_id id, struct sample_term *terms, uint32_t count,
                                const struct tensor *tensor)
{
    int64_t symbols[2] = {0, 0};
    do {
        int64_t where[DIMS_MAX] = {0};
        do {
            int64_t expected = 0;
            for (uint32_t k = 0; k < count; ++k)
                expected += term_value(view_of(&terms[k]), where, tensor->ndim, symbols);
            assert_int_equal(relation_value(id, where, symbols), expected);
        } while (next_element(tensor, where));
    } while (next_symbols(symbols));
}

static void terms_keep_their_value(void **state)
{
    (void)state;
    for (int round = 0; round < CASES; ++round) {
        struct sample_term term;
        struct tensor tensor;
        random_term(&term, &tensor, true);
        tocsin_relation_id id = intern(&term, &tensor);
        expect_sum_of_terms(id, &term, 1, &tensor);
        struct sample_term cut = term;
        split_digits(&cut, tensor.ndim);
        assert_int_equal(intern(&cut, &tensor), id);
        /* A normal form is its own normal form. */
        const tocsin_relation *relation = tocsin_relation_get(universe, id);
        assert_int_equal(tocsin_relation_of_terms(universe, relation->terms, relation->count,
                                                  relation->shape, relation->ndim),
                         id);
    }
}

/* Sum of ids[first .. end) by a random tree of additions. */
static tocsin_relation_id add_tree(const tocsin_relation_id *ids, uint32_t count)
{
    if (count == 1)
        return ids[0];
    if (random_below(3) == 0)
        return tocsin_relation_add(universe, ids, NULL, count);
    uint32_t middle = 1 + random_below(count - 1);
    tocsin_relation_id halves[2] = {add_tree(ids, middle), add_tree(ids + middle, count - middle)};
    assert_true(halves[0] && halves[1]);
    return tocsin_relation_add(universe, halves, NULL, 2);
}

static void shuffle(tocsin_relation_id *ids, uint32_t count)
{
    for (uint32_t i = count; i > 1; --i) {
        uint32_t j = random_below(i);
        tocsin_relation_id swap = ids[j];
        ids[j] = ids[i - 1];
        ids[i - 1] = swap;
    }
}

static void sums_do_not_depend_on_order(void **state)
{
    (void)state;
    for (int round = 0; round < CASES / 2; ++round) {
        struct sample_term terms[TERMS_MAX];
        tocsin_relation_id ids[TERMS_MAX];
        struct tensor tensor;
        bool symbolic = random_below(2);
        uint32_t count = (uint32_t)random_range(2, TERMS_MAX);
        random_term(&terms[0], &tensor, symbolic);
        for (uint32_t k = 0; k < count; ++k) {
            if (k)
                vary_term(&terms[0], &terms[k], symbolic);
            ids[k] = intern(&terms[k], &tensor);
        }
        tocsin_relation_id sum = tocsin_relation_add(universe, ids, NULL, count);
        assert_true(sum);
        expect_sum_of_terms(sum, terms, count, &tensor);
        for (int again = 0; again < 3; ++again) {
            shuffle(ids, count);
            assert_int_equal(add_tree(ids, count), sum);
        }
        tocsin_factor_id opposite[2] = {0, tocsin_factor_rational(universe, -1, 1)};
        tocsin_relation_id all_and_last[2] = {sum, ids[count - 1]};
        tocsin_relation_id less = tocsin_relation_add(universe, all_and_last, opposite, 2);
        if (!symbolic) /* else digits of ranges that move may come apart for good */
            assert_int_equal(less, add_tree(ids, count - 1));
        assert_true(less);
        tocsin_relation_id twice[2] = {sum, sum};
        tocsin_relation_id nothing = tocsin_relation_add(universe, twice, opposite, 2);
        assert_int_equal(tocsin_relation_get(universe, nothing)->count, 0);
    }
}

/* Two ranges may make one that repeats after 6, where a third repeats after 4. */
static void ranges_of_unlike_periods(void **state)
{
    (void)state;
    const tocsin_box_entry ranges[] = {
        {.stride = 1, .extent = K_EXTENT, .count = 2},
        {.stride = 1, .extent = 4, .start = {.base = 1}, .count = 3},
        {.stride = 1, .extent = K_EXTENT, .start = {.base = 6}, .count = 2}};
    enum { RANGES = sizeof ranges / sizeof *ranges };
    struct sample_term terms[RANGES];
    struct tensor tensor;
    tocsin_relation_id ids[RANGES];
    random_term(&terms[0], &tensor, false);
    for (uint32_t k = 0; k < RANGES; ++k) {
        terms[k] = terms[0];
        terms[k].box[0] = ranges[k];
        terms[k].box[0].atom = terms[k].view.atom;
        terms[k].box[0].kind = TOCSIN_BOX_SUM;
        terms[k].view.box_count = 1;
        ids[k] = intern(&terms[k], &tensor);
    }
    tocsin_relation_id sum = tocsin_relation_add(universe, ids, NULL, RANGES);
    expect_sum_of_terms(sum, terms, RANGES, &tensor);
    for (uint32_t last = 0; last < RANGES; ++last) {
        tocsin_relation_id two[2] = {ids[(last + 1) % RANGES], ids[(last + 2) % RANGES]};
        tocsin_relation_id halves[2] = {tocsin_relation_add(universe, two, NULL, 2), ids[last]};
        assert_int_equal(tocsin_relation_add(universe, halves, NULL, 2), sum);
    }
}

/* Cut [0, K) x [0, L) into rectangles at random; in the end they are all of it. */
static uint32_t cut_box(const struct sample_term *model, const int64_t *low, const int64_t *high,
                        const struct tensor *tensor, tocsin_relation_id *ids, int depth)
{
    int axis = (int)random_below(2);
    if (depth > 0 && high[axis] - low[axis] > 1) {
        int64_t middle = random_range(low[axis] + 1, high[axis] - 1);
        int64_t upper[2] = {high[0], high[1]}, lower[2] = {low[0], low[1]};
        upper[axis] = lower[axis] = middle;
        uint32_t count = cut_box(model, low, upper, tensor, ids, depth - 1);
        return count + cut_box(model, lower, high, tensor, ids + count, depth - 1);
    }
    struct sample_term term = *model;
    term.view.box_count = 2;
    for (uint16_t i = 0; i < 2; ++i)
        term.box[i] = (tocsin_box_entry){.atom = term.view.atom,
                                         .axis = i,
                                         .stride = 1,
                                         .extent = i ? L_EXTENT : K_EXTENT,
                                         .start = {.base = low[i]},
                                         .count = high[i] - low[i]};
    ids[0] = intern(&term, tensor);
    return 1;
}

static void boxes_that_are_all_vanish(void **state)
{
    (void)state;
    for (int round = 0; round < CASES / 2; ++round) {
        struct sample_term whole;
        struct tensor tensor;
        tocsin_relation_id ids[64];
        random_term(&whole, &tensor, false);
        whole.view.box_count = 0;
        const int64_t low[2] = {0, 0}, high[2] = {K_EXTENT, L_EXTENT};
        uint32_t count = cut_box(&whole, low, high, &tensor, ids, (int)random_below(6));
        shuffle(ids, count);
        assert_int_equal(add_tree(ids, count), intern(&whole, &tensor));
        /* Without one of them it is the whole less that one. */
        if (count == 1)
            continue;
        tocsin_relation_id pair[2] = {intern(&whole, &tensor), ids[count - 1]};
        tocsin_factor_id opposite[2] = {0, tocsin_factor_rational(universe, -1, 1)};
        assert_int_equal(add_tree(ids, count - 1),
                         tocsin_relation_add(universe, pair, opposite, 2));
    }
}

static void scaling_and_fixing(void **state)
{
    (void)state;
    for (int round = 0; round < CASES / 2; ++round) {
        struct sample_term terms[2];
        struct tensor tensor;
        random_term(&terms[0], &tensor, true);
        vary_term(&terms[0], &terms[1], true);
        tocsin_relation_id ids[2] = {intern(&terms[0], &tensor), intern(&terms[1], &tensor)};
        tocsin_relation_id sum = tocsin_relation_add(universe, ids, NULL, 2);
        tocsin_relation_id scaled =
            tocsin_relation_scale(universe, sum, tocsin_factor_rational(universe, -6, 1));
        int symbol = (int)random_below(2);
        int64_t value = random_below(SYMBOL_VALUES);
        tocsin_relation_id fixed = tocsin_relation_fix(universe, sum, symbol, value);
        assert_true(sum && scaled && fixed);
        assert_false(tocsin_relation_get(universe, fixed)->symbols >> symbol & 1);
        int64_t symbols[2] = {0, 0};
        do {
            int64_t where[DIMS_MAX] = {0};
            int64_t at_value[2] = {symbols[0], symbols[1]};
            at_value[symbol] = value;
            do {
                assert_int_equal(relation_value(scaled, where, symbols),
                                 -6 * relation_value(sum, where, symbols));
                assert_int_equal(relation_value(fixed, where, symbols),
                                 relation_value(sum, where, at_value));
            } while (next_element(&tensor, where));
        } while (next_symbols(symbols));
    }
}

/* A term whose box tiles, skips or overlaps over the symbols. */
static void random_moving_box(struct sample_term *term)
{
    int64_t count = random_range(1, 3), weight = random_range(0, 3);
    int other = (int)random_below(2);
    term->view.box_count = 1;
    term->box[0] = (tocsin_box_entry){.atom = term->view.atom,
                                      .axis = 0,
                                      .stride = 1,
                                      .extent = K_EXTENT,
                                      .start = {.base = random_range(0, 3)},
                                      .count = count};
    term->box[0].start.weight[other] = weight;
    term->box[0].start.weight[1 - other] = random_range(0, 3);
}

static void sums_over_symbols(void **state)
{
    (void)state;
    const int64_t sizes[2] = {SYMBOL_VALUES, SYMBOL_VALUES};
    tocsin_universe_set_sizes(universe, sizes);
    uint32_t decided = 0;
    for (int round = 0; round < CASES; ++round) {
        struct sample_term term;
        struct tensor tensor;
        random_term(&term, &tensor, false);
        random_moving_box(&term);
        tocsin_relation_id id = intern(&term, &tensor);
        int symbol = (int)random_below(2);
        tocsin_relation_id total = tocsin_relation_sum_over(universe, id, symbol, SYMBOL_VALUES);
        int64_t weight = term.box[0].start.weight[symbol];
        if (!total) {
            assert_true(weight > 0 && weight != term.box[0].count);
            continue;
        }
        ++decided;
        int64_t symbols[2] = {0, 0};
        do {
            int64_t where[DIMS_MAX] = {0};
            do {
                int64_t expected = 0;
                int64_t moving[2] = {symbols[0], symbols[1]};
                for (moving[symbol] = 0; moving[symbol] < SYMBOL_VALUES; ++moving[symbol])
                    expected += relation_value(id, where, moving);
                assert_int_equal(relation_value(total, where, symbols), expected);
            } while (next_element(&tensor, where));
        } while (next_symbols(symbols));
    }
    assert_in_range(decided, CASES / 4, CASES);
}

/* Cut the outermost digit of count > 1 of a dim into pieces of its range. */
static uint32_t cut_dim(const struct sample_term *term, const struct tensor *tensor, uint32_t dim,
                        tocsin_relation_id *pieces)
{
    uint32_t digit = 0;
    for (uint32_t i = 0; i < dim; ++i)
        digit += term->counts[i];
    uint32_t end = digit + term->counts[dim];
    while (digit < end && term->digits[digit].count == 1)
        ++digit;
    uint32_t count = 0;
    int64_t done = 0, size = digit < end ? term->digits[digit].count : 1;
    while (done < size) {
        int64_t length = random_range(1, size - done);
        struct sample_term piece = *term;
        struct tensor shape = *tensor;
        if (digit < end) {
            piece.digits[digit].count = length;
            piece.digits[digit].start.base += done;
            if (piece.digits[digit].axis == TOCSIN_DIGIT_BROADCAST)
                piece.digits[digit].extent = length;
        }
        shape.shape[dim] = tensor->shape[dim] / size * length;
        pieces[count++] = intern(&piece, &shape);
        done += length;
    }
    return count;
}

/* The normal digits of a term, so that its outermost digit is the one that was written. */
static void take_normal(struct sample_term *term, tocsin_relation_id id)
{
    const tocsin_relation *relation = tocsin_relation_get(universe, id);
    term->view = relation->terms[0];
    memcpy(term->counts, relation->terms[0].digit_count, relation->ndim);
    memcpy(term->digits, relation->terms[0].digits,
           (term->view.digit_total + term->view.pinned_count) * sizeof *term->digits);
    memcpy(term->box, relation->terms[0].box, term->view.box_count * sizeof *term->box);
}

static void pieces_become_the_whole(void **state)
{
    (void)state;
    uint32_t joined = 0;
    for (int round = 0; round < CASES; ++round) {
        struct sample_term term;
        struct tensor tensor;
        random_term(&term, &tensor, true);
        tocsin_relation_id whole = intern(&term, &tensor);
        take_normal(&term, whole);
        uint32_t dim = random_below(tensor.ndim);
        tocsin_relation_id pieces[64];
        uint32_t count = cut_dim(&term, &tensor, dim, pieces);
        tocsin_relation_id again = tocsin_relation_of_segments(universe, pieces, count, dim);
        assert_true(again);
        assert_memory_equal(tocsin_relation_get(universe, again)->shape, tensor.shape,
                            tensor.ndim * sizeof *tensor.shape);
        int64_t symbols[2] = {0, 0};
        do {
            int64_t where[DIMS_MAX] = {0};
            do {
                assert_int_equal(relation_value(again, where, symbols),
                                 relation_value(whole, where, symbols));
            } while (next_element(&tensor, where));
        } while (next_symbols(symbols));
        joined += again == whole;
    }
    assert_in_range(joined, CASES * 9 / 10, CASES);
}

static int make_universe(void **state)
{
    (void)state;
    universe = tocsin_universe_new();
    assert_non_null(universe);
    const int64_t sizes[2] = {SYMBOL_VALUES, SYMBOL_VALUES};
    if (random_below(2))
        tocsin_universe_set_sizes(universe, sizes);
    for (uint32_t atom = 0; atom < ATOMS; ++atom) {
        const char name[2] = {(char)('a' + atom), 0};
        assert_int_equal(tocsin_atom_input(universe, name, 1, atom_shapes[atom], AXES),
                         TOCSIN_ATOM_ID_IOTA + 1 + atom);
    }
    return 0;
}

static int free_universe(void **state)
{
    (void)state;
    tocsin_universe_free(universe);
    return 0;
}

int main(void)
{
    random_state = test_seed(UINT64_C(1796885310845675780));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(terms_keep_their_value, make_universe, free_universe),
        cmocka_unit_test_setup_teardown(sums_do_not_depend_on_order, make_universe, free_universe),
        cmocka_unit_test_setup_teardown(ranges_of_unlike_periods, make_universe, free_universe),
        cmocka_unit_test_setup_teardown(boxes_that_are_all_vanish, make_universe, free_universe),
        cmocka_unit_test_setup_teardown(scaling_and_fixing, make_universe, free_universe),
        cmocka_unit_test_setup_teardown(sums_over_symbols, make_universe, free_universe),
        cmocka_unit_test_setup_teardown(pieces_become_the_whole, make_universe, free_universe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
