/* Any bytes as a file of the cache of proofs, behind a right checksum: known or not, never a crash;
 * and what is known is within its own limits. */
#include <stdint.h>
#include <stdlib.h>

#include "compose/compose.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROLES = 2 };

static void look_at(const tocsin_known *known)
{
    for (size_t k = 0; k < known->cuts.part_of_key.count; k++)
        if (known->cuts.part_of_key.items[k] >= known->cuts.part_count)
            abort();
    for (size_t r = 0; r < ROLES; r++)
        for (size_t k = 0; k < known->roles[r].contributions.count; k++)
            if (known->roles[r].contributions.items[k].part >= known->cuts.part_count)
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const tocsin_hash128 checksum = tocsin_hash128_of(data, size, 0), header = {0};
    tocsin_string file = {0};
    tocsin_known known;
    tocsin_error error;
    bool found = false;

    tocsin_string_printf(&file, "%016llx%016llx\n", (unsigned long long)checksum.high,
                         (unsigned long long)checksum.low);
    tocsin_string_append(&file, data, size);
    if (tocsin_known_parse(&known, NULL, tocsin_string_text(&file), file.bytes, header, ROLES,
                           &found, &error) == TOCSIN_OK &&
        found)
        look_at(&known);
    tocsin_known_free(&known);
    tocsin_string_free(&file);
    return 0;
}
