/* clock.c - time in nanoseconds; 64 bits of them last 584 years. */
#include <base/base.h>
#include <time.h>

static uint64_t read_clock(clockid_t clock)
{
    struct timespec now = {0};
    clock_gettime(clock, &now); /* cannot fail: both clocks exist on every Linux */
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t tocsin_clock_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t tocsin_wall_clock_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}
