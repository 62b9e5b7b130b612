/* Pairing on random edit scripts: the cost is that of a full dynamic programme written apart, the
 * pairs add up to the cost, ascend, and do not depend on which ends are equal. With few cells the
 * anchors are used: then the pairing is valid and never cheaper than the optimum. */
#include "cmocka_test.h"
#include "test_seed.h"

#include <align/pairing.h>
#include <stdio.h>
#include <stdlib.h>

enum { CASES = 3000, LENGTH_MAX = 90 };

static uint64_t random_state;

static uint32_t random_below(uint32_t limit)
{
    random_state += UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(tocsin_mix64(random_state) >> 33) % limit;
}

typedef struct item_list {
    tocsin_align_item items[2 * LENGTH_MAX];
    uint32_t count;
} item_list;

static tocsin_align_item random_item(uint32_t symbols, uint32_t values)
{
    return (tocsin_align_item){
        .symbol = random_below(symbols), .form = random_below(3), .value = random_below(values)};
}

/* b is a with items dropped, inserted, renamed, and values that differ from some point on. */
static void make_case(item_list *a, item_list *b)
{
    uint32_t symbols = 1 + random_below(60), values = 1 + random_below(200);
    uint32_t edits = random_below(30);
    uint32_t parting = random_below(3) ? LENGTH_MAX : random_below(LENGTH_MAX);
    a->count = random_below(LENGTH_MAX);
    b->count = 0;
    for (uint32_t i = 0; i < a->count; ++i)
        a->items[i] = random_item(symbols, values);
    for (uint32_t i = 0; i < a->count; ++i) {
        tocsin_align_item item = a->items[i];
        if (i >= parting)
            item.value += 1000 + i;
        uint32_t edit = edits == 0 ? 0 : random_below(100);
        if (edit < edits) {
            uint32_t kind = random_below(5);
            if (kind == 0)
                continue;
            if (kind == 1)
                item.symbol += symbols;
            if (kind == 2)
                item.value += 5000;
            if (kind == 3)
                b->items[b->count++] = random_item(2 * symbols, values);
            if (kind == 4 && b->count > 0) { /* two in another order */
                tocsin_align_item before = b->items[b->count - 1];
                b->items[b->count - 1] = item;
                item = before;
            }
        }
        b->items[b->count++] = item;
    }
}

/* ---- the reference: three full matrices ------------------------------------------------------ */

enum { FAR = 1 << 28, SIDE = 2 * LENGTH_MAX + 1 };
static uint32_t table[3][SIDE][SIDE];

static uint32_t lesser(uint32_t x, uint32_t y)
{
    return x < y ? x : y;
}

static uint32_t reference_pair_cost(const tocsin_align_item *a, const tocsin_align_item *b)
{
    if (a->symbol == b->symbol)
        return a->value == b->value ? 0 : 3;
    if (a->form != b->form)
        return FAR;
    return a->value && a->value == b->value ? 2 : 8;
}

static uint32_t reference_cost(const item_list *a, const item_list *b)
{
    for (uint32_t i = 0; i <= a->count; ++i) {
        for (uint32_t j = 0; j <= b->count; ++j) {
            uint32_t pair = i == 0 && j == 0 ? 0 : FAR, up = FAR, left = FAR;
            if (i > 0 && j > 0)
                pair = lesser(lesser(table[0][i - 1][j - 1], table[1][i - 1][j - 1]),
                              table[2][i - 1][j - 1]) +
                       reference_pair_cost(&a->items[i - 1], &b->items[j - 1]);
            if (i > 0)
                up = lesser(table[1][i - 1][j] + 4,
                            lesser(table[0][i - 1][j], table[2][i - 1][j]) + 6);
            if (j > 0)
                left = lesser(table[2][i][j - 1] + 4,
                              lesser(table[0][i][j - 1], table[1][i][j - 1]) + 6);
            table[0][i][j] = lesser(pair, FAR);
            table[1][i][j] = lesser(up, FAR);
            table[2][i][j] = lesser(left, FAR);
        }
    }
    return lesser(table[0][a->count][b->count],
                  lesser(table[1][a->count][b->count], table[2][a->count][b->count]));
}

/* What a pairing costs: pairs, and gaps between them. Within a hole of items alone on both sides
 * the order that costs least has one gap on each. */
static uint32_t cost_of(const item_list *a, const item_list *b, const uint32_t *partner)
{
    uint32_t cost = 0, alone_a = 0, next_b = 0;
    for (uint32_t i = 0; i <= a->count; ++i) {
        uint32_t j = i < a->count ? partner[i] : b->count;
        if (j == TOCSIN_ALIGN_NONE) {
            ++alone_a;
            continue;
        }
        assert_true(j >= next_b && j <= b->count);
        uint32_t alone_b = j - next_b;
        cost += alone_a ? 4 * alone_a + 2 : 0;
        cost += alone_b ? 4 * alone_b + 2 : 0;
        if (i < a->count) {
            uint32_t pair = reference_pair_cost(&a->items[i], &b->items[j]);
            assert_true(pair < FAR);
            cost += pair;
        }
        alone_a = 0;
        next_b = j + 1;
    }
    return cost;
}

static tocsin_pairing find(const item_list *a, const item_list *b, uint64_t cells_max)
{
    tocsin_pairing pairing;
    tocsin_error error;
    tocsin_status status = tocsin_pairing_find((tocsin_align_sequence){a->items, a->count},
                                               (tocsin_align_sequence){b->items, b->count},
                                               cells_max, &pairing, &error);
    if (status != TOCSIN_OK && cells_max != 0) {
        assert_int_equal(status, TOCSIN_E_LIMIT);
        assert_null(pairing.partner);
        return pairing;
    }
    assert_int_equal(status, TOCSIN_OK);
    return pairing;
}

static void test_cost_is_the_least(void **unused)
{
    (void)unused;
    static item_list a, b;
    uint32_t wide = 0;
    const uint64_t first = test_seed(0);
    for (uint32_t number = 0; number < CASES; ++number) {
        random_state = first + number;
        make_case(&a, &b);
        tocsin_pairing pairing = find(&a, &b, 0);
        uint32_t least = reference_cost(&a, &b);
        if (pairing.cost != least || cost_of(&a, &b, pairing.partner) != least)
            fail_msg("case %u: cost %llu, pairs %u, least %u", number,
                     (unsigned long long)pairing.cost, cost_of(&a, &b, pairing.partner), least);
        assert_true(pairing.optimal);
        wide += pairing.band > 16;
        tocsin_free(pairing.partner);
    }
    assert_true(wide > 0); /* bands were doubled, too */
}

static void test_anchors(void **unused)
{
    (void)unused;
    static item_list a, b;
    uint32_t used = 0, same = 0;
    const uint64_t first = test_seed(0);
    for (uint32_t number = 0; number < CASES; ++number) {
        random_state = ~(first + number);
        make_case(&a, &b);
        tocsin_pairing pairing = find(&a, &b, 600);
        if (!pairing.partner)
            continue;
        uint32_t least = reference_cost(&a, &b);
        assert_int_equal(cost_of(&a, &b, pairing.partner) <= pairing.cost, 1);
        assert_true(pairing.cost >= least);
        if (pairing.optimal)
            assert_int_equal(pairing.cost, least);
        used += !pairing.optimal;
        same += !pairing.optimal && pairing.cost == least;
        tocsin_free(pairing.partner);
    }
    assert_true(used > CASES / 20);
    assert_true(same > used / 2); /* anchors are mostly right */
}

static void test_ends(void **unused)
{
    (void)unused;
    static item_list a, b;
    a.count = b.count = 0;
    tocsin_pairing pairing = find(&a, &b, 0);
    assert_int_equal(pairing.cost, 0);
    tocsin_free(pairing.partner);
    for (uint32_t i = 0; i < 5; ++i)
        a.items[a.count++] = (tocsin_align_item){.symbol = i, .form = i, .value = i};
    pairing = find(&a, &b, 0);
    assert_int_equal(pairing.cost, 6 + 4 * 4);
    for (uint32_t i = 0; i < 5; ++i)
        assert_int_equal(pairing.partner[i], TOCSIN_ALIGN_NONE);
    tocsin_free(pairing.partner);
    pairing = find(&b, &a, 0);
    assert_int_equal(pairing.cost, 6 + 4 * 4);
    tocsin_free(pairing.partner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cost_is_the_least),
        cmocka_unit_test(test_anchors),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
