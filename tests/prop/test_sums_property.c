/* Properties of sums that are computed again: what is found in parts is what is found at once, each
 * changed bit is found in the order of the ring, whatever the numbers, and slices meet each element
 * in time. The seed is printed; TOCSIN_SEED=... repeats a run. */
#include <stdio.h>
#include <stdlib.h>
#include <tocsin/communication.h>

#include "cmocka_test.h"
#include "prop/digest_oracle.h"
#include "test_seed.h"

#define ROUNDS      400
#define MEMBERS_MAX 5
#define COUNT_MAX   300

static uint64_t seed;

typedef struct made_sum {
    float inputs[MEMBERS_MAX][COUNT_MAX], result[COUNT_MAX];
    const void *pointers[MEMBERS_MAX];
    tocsin_guard_call call;
    uint32_t members;
    uint64_t count;
} made_sum;

/* Any bits: subnormal, huge, Inf and NaN among them; or numbers of one size, that cancel out. */
static float random_float(bool any)
{
    uint32_t bits = (uint32_t)oracle_random(&seed);
    float value;
    if (!any)
        bits = (bits & 0x807fffff) | 0x3f800000;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Added up here as gloo does, in floats: chunk k from the member before k on, backwards. The pieces
 * of so short an input are half a chunk each, for both rings. */
static void make(made_sum *made)
{
    made->members = 1 + (uint32_t)oracle_below(&seed, MEMBERS_MAX);
    made->count = 1 + oracle_below(&seed, COUNT_MAX);
    bool any = oracle_below(&seed, 2) == 1, average = oracle_below(&seed, 2) == 1;
    uint64_t bytes = made->count * 4, piece = (bytes + 2 * made->members - 1) / (2 * made->members);
    uint64_t chunk = 2 * ((piece + 3) / 4);
    for (uint32_t m = 0; m < made->members; ++m) {
        for (uint64_t i = 0; i < made->count; ++i)
            made->inputs[m][i] = random_float(any);
        made->pointers[m] = made->inputs[m];
    }
    for (uint64_t i = 0; i < made->count; ++i) {
        uint64_t start = i / chunk + made->members - 1;
        volatile float sum = made->inputs[start % made->members][i];
        for (uint32_t back = 1; back < made->members; ++back)
            sum = sum + made->inputs[(start + made->members - back) % made->members][i];
        made->result[i] = average ? sum / (float)made->members : sum;
    }
    made->call = (tocsin_guard_call){.kind = oracle_below(&seed, 2) ? TOCSIN_GUARD_CALL_ALL_REDUCE
                                                                    : TOCSIN_GUARD_CALL_REDUCE,
                                     .members = made->members,
                                     .width = 4,
                                     .dtype = TOCSIN_DTYPE_FLOAT32,
                                     .operation = average ? TOCSIN_GUARD_AVERAGE : TOCSIN_GUARD_SUM,
                                     .ring = 1,
                                     .count = made->count};
}

static void check(const made_sum *made, uint64_t first, uint64_t length,
                  tocsin_guard_reduced *found)
{
    const void *inputs[MEMBERS_MAX];
    tocsin_error error;
    for (uint32_t m = 0; m < made->members; ++m)
        inputs[m] = made->inputs[m] + first;
    const tocsin_guard_part part = {
        .first = first, .length = length, .inputs = inputs, .result = made->result + first};
    assert_int_equal(tocsin_guard_part_check(&made->call, &part, found, &error), TOCSIN_OK);
}

static tocsin_guard_reduced check_whole(const made_sum *made)
{
    tocsin_guard_reduced found = {0};
    check(made, 0, made->count, &found);
    assert_int_equal(found.recomputed, made->count);
    return found;
}

static tocsin_guard_reduced check_parts(const made_sum *made)
{
    tocsin_guard_reduced found = {0};
    for (uint64_t at = 0; at < made->count;) {
        uint64_t length = oracle_below(&seed, made->count - at + 1);
        check(made, at, length, &found);
        at += length;
    }
    return found;
}

static void test_healthy(void **state)
{
    static made_sum made;
    (void)state;
    for (int round = 0; round < ROUNDS; ++round) {
        make(&made);
        tocsin_guard_reduced found = check_whole(&made);
        assert_int_equal(found.wrong + found.other, 0);
        made.call.ring = 0;
        assert_int_equal(check_whole(&made).wrong, 0); /* rounding alone breaks no bound */
    }
}

/* Another bit in some elements: of a result, or of what went into the sum, where it shows. */
static void test_changed_bits(void **state)
{
    static made_sum made;
    (void)state;
    for (int round = 0; round < ROUNDS; ++round) {
        make(&made);
        uint64_t changes = 0, first = made.count;
        for (uint64_t i = 0; i < made.count; ++i) {
            if (isnan(made.result[i]) || oracle_below(&seed, 8))
                continue;
            uint32_t bits;
            memcpy(&bits, &made.result[i], sizeof bits);
            bits ^= (bits << 1) == 0 ? 1 : (uint32_t)1 << oracle_below(&seed, 31);
            memcpy(&made.result[i], &bits, sizeof bits);
            first = changes++ ? first : i;
        }
        tocsin_guard_reduced found = check_whole(&made), parts = check_parts(&made);
        assert_int_equal(found.other, changes);
        assert_true(found.wrong <= changes);
        assert_true(changes == 0 || found.first == first);
        assert_memory_equal(&found, &parts, sizeof found);
    }
}

static void test_slices(void **state)
{
    (void)state;
    for (int round = 0; round < 40; ++round) {
        uint64_t key = oracle_random(&seed), span = oracle_below(&seed, 1u << (1 + round % 18));
        uint64_t begin = oracle_below(&seed, 1u << 30), position = oracle_below(&seed, 1000);
        uint64_t stride = 1 + oracle_below(&seed, 60);
        unsigned char *met = calloc(span + 1, 1);
        assert_non_null(met);
        for (uint64_t step = 0; step < 61; ++step) {
            uint64_t first, length;
            tocsin_guard_reduction_slice(key, begin + step * stride, position, span, &first,
                                         &length);
            assert_true(length <= span && first <= span - length);
            assert_true(length == span || (length >= 1024 && length <= 1024 + span / 61));
            memset(met + first, 1, length);
        }
        assert_null(memchr(met, 0, span));
        free(met);
    }
}

int main(void)
{
    seed = test_seed(61);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_healthy),
        cmocka_unit_test(test_changed_bits),
        cmocka_unit_test(test_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
