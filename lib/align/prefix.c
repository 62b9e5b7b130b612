/* lib/align/prefix.c - one number for everything that was equal from the start.
 *
 * A chain: each boundary of the identical prefix, its place and its value, is hashed with the
 * number so far. Texts go in by their bytes, never by the ids of one comparison, so that two people
 * who compare copies of the runs get the same number (XXH3; it is not meant against forgery).
 *
 * Cost: some ten short hashes a boundary, only when a certificate is asked for.
 */
#include "align/align.h"

static uint64_t hash_of(const tocsin_intern *names, uint32_t text)
{
    size_t bytes = 0;
    const char *found = text ? tocsin_intern_text(names, text, &bytes) : NULL;
    return tocsin_hash64(found ? found : "", found ? bytes : 0, 0);
}

void tocsin_prefix_add(const tocsin_comparison *comparison, const tocsin_boundary *boundary)
{
    if (!comparison->options->certify)
        return;
    const tocsin_intern *names = comparison->names;
    uint64_t *so_far = comparison->parting->rank.prefix_digest;
    const char *text = boundary->text ? boundary->text : "";
    uint64_t words[] = {
        so_far[0],
        so_far[1],
        (uint64_t)comparison->step,
        boundary->micro_batch,
        hash_of(names, boundary->name),
        hash_of(names, boundary->attribute),
        hash_of(names, boundary->operation),
        hash_of(names, boundary->phase),
        hash_of(names, boundary->shape),
        tocsin_hash64(text, strlen(text), 0),
        (uint64_t)boundary->dtype | (uint64_t)boundary->present << 8 |
            (uint64_t)boundary->digested << 9,
        boundary->digest.sum,
        boundary->digest.exclusive,
        boundary->digest.polynomial,
    };
    tocsin_hash128 hash = tocsin_hash128_of(words, sizeof words, 0);
    so_far[0] = hash.low;
    so_far[1] = hash.high;
}
