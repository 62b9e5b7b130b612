/* fault.c - the n-th allocation or system call fails, on request of a test.
 *
 * One bit per armed kind, so that production code pays one relaxed load of a word that never
 * changes. While armed, calls of the kind count down from n; the one that reaches zero fails.
 */
#include <assert.h>
#include <base/base.h>

atomic_uint tocsin_fault_armed;
static atomic_llong remaining[TOCSIN_FAULT_COUNT];

void tocsin_fault_arm(tocsin_fault kind, uint64_t nth)
{
    assert(kind < TOCSIN_FAULT_COUNT);
    assert(nth >= 1 && nth <= INT64_MAX);
    atomic_store(&remaining[kind], (long long)nth);
    atomic_fetch_or(&tocsin_fault_armed, 1U << kind);
}

bool tocsin_fault_disarm(tocsin_fault kind)
{
    assert(kind < TOCSIN_FAULT_COUNT);
    atomic_fetch_and(&tocsin_fault_armed, ~(1U << kind));
    return atomic_load(&remaining[kind]) <= 0;
}

bool tocsin_fault_count(tocsin_fault kind)
{
    assert(kind < TOCSIN_FAULT_COUNT);
    if (!(atomic_load(&tocsin_fault_armed) & (1U << kind)))
        return false;
    return atomic_fetch_sub(&remaining[kind], 1) == 1;
}
