/* hash.c - XXH3 behind two functions; nobody else includes xxhash.h. */
#include <base/base.h>

#define XXH_INLINE_ALL /* no link-time dependency, and the short-input path inlines */
#include <xxhash.h>

uint64_t tocsin_hash64(const void *bytes, size_t count, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, count, seed);
}

tocsin_hash128 tocsin_hash128_of(const void *bytes, size_t count, uint64_t seed)
{
    XXH128_hash_t hash = XXH3_128bits_withSeed(bytes, count, seed);
    return (tocsin_hash128){.low = hash.low64, .high = hash.high64};
}
