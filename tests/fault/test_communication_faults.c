/* Each allocation of a judgement on collectives fails once: the call says so, and leaks nothing. */
#include "every_fault.h"
#include "made_collective.h"

static tocsin_status judge(void *context, tocsin_error *error)
{
    uint8_t states[1];
    tocsin_guard_finding *finding;
    TOCSIN_TRY(made_judge(context, 0, states, 1, &finding, error));
    assert_int_equal(states[0], TOCSIN_GUARD_CALL_FAILED);
    tocsin_guard_finding_free(finding);
    return TOCSIN_OK;
}

static void test_faults(void **state)
{
    static made_collective made;
    uint64_t seed = 5;
    (void)state;
    made_begin(&made, TOCSIN_GUARD_CALL_ALL_GATHER, 4, &seed);
    made.details = true;
    made.received[1][2][0] ^= 4;
    made_tell(&made);
    assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, judge, &made) >= 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_faults)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
