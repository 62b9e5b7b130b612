/* Properties of transfers in random collectives: a healthy one passes, also while not all have told
 * of it; one or two changed words are always seen and found where they are; sums of digests do not
 * depend on who adds them up. The seed is printed; TOCSIN_SEED=... repeats a run. */
#include <stdio.h>
#include <stdlib.h>

#include "made_collective.h"
#include "test_seed.h"

#define ROUNDS 3000

static uint64_t seed;

static tocsin_guard_call_state judged(made_collective *made, tocsin_guard_finding **finding)
{
    uint8_t states[2] = {0};
    tocsin_error error;
    bool message = made->kind == TOCSIN_GUARD_CALL_SEND;
    uint32_t own = message ? made->root : (uint32_t)oracle_below(&seed, made->members);
    made_tell(made);
    assert_int_equal(made_judge(made, own, states, message && made->root == made->target ? 2 : 1,
                                finding, &error),
                     TOCSIN_OK);
    return (tocsin_guard_call_state)states[0];
}

static uint32_t *random_word(made_collective *made, uint32_t *from, uint32_t *to)
{
    do {
        *from = (uint32_t)oracle_below(&seed, made->members);
        *to = (uint32_t)oracle_below(&seed, made->members);
    } while (made->words[*from][*to] == 0);
    return &made->received[*from][*to][oracle_below(&seed, made->words[*from][*to])];
}

static void begin(made_collective *made)
{
    made_begin(made, (uint32_t)oracle_below(&seed, 6), 1 + (uint32_t)oracle_below(&seed, 6), &seed);
}

static void test_healthy(void **state)
{
    static made_collective made;
    (void)state;
    for (int round = 0; round < ROUNDS; ++round) {
        tocsin_guard_finding *finding;
        begin(&made);
        assert_int_equal(judged(&made, &finding), TOCSIN_GUARD_CALL_PASSED);
        assert_null(finding);
    }
}

static void test_changed_words(void **state)
{
    static made_collective made;
    (void)state;
    for (int round = 0; round < ROUNDS; ++round) {
        tocsin_guard_finding *finding;
        uint32_t from, to, pair[32];
        begin(&made);
        made.details = true;
        uint32_t *word = random_word(&made, &from, &to), before = *word;
        *word ^= (uint32_t)1 << oracle_below(&seed, 32);
        if (round % 2) { /* and what it lost goes to another, so that the sum stays */
            uint32_t other_from, other_to, *other = random_word(&made, &other_from, &other_to);
            if (other == word)
                continue;
            *other += before - *word;
        }
        assert_int_equal(judged(&made, &finding), TOCSIN_GUARD_CALL_FAILED);
        assert_non_null(finding);
        snprintf((char *)pair, sizeof pair, "\"from\":%u,\"to\":%u", from, to);
        assert_non_null(strstr(finding->evidence, (char *)pair));
        assert_true(finding->rank_count == 0 || finding->ranks[0] == from ||
                    finding->ranks[0] == to || round % 2);
        tocsin_guard_finding_free(finding);
    }
}

int main(void)
{
    seed = test_seed(61);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_healthy),
        cmocka_unit_test(test_changed_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
