/* test_seed.h - where a random test begins: at TOCSIN_SEED, or at the same number each time. It is
 * printed, so that what failed can be repeated. */
#ifndef TOCSIN_TEST_SEED_H
#define TOCSIN_TEST_SEED_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static inline uint64_t test_seed(uint64_t usual)
{
    const char *given = getenv("TOCSIN_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : usual;
    printf("TOCSIN_SEED=%" PRIu64 "\n", seed);
    return seed;
}

#endif
