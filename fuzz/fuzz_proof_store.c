/* Any bytes as a file of the cache of proofs, behind a right checksum: known or not, never a crash;
 * and what is known is within its own limits. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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
    static char path[64];
    if (path[0] == '\0')
        snprintf(path, sizeof path, "/tmp/tocsin-fuzz-store-%ld", (long)getpid());
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        return 0;
    const tocsin_hash128 checksum = tocsin_hash128_of(data, size, 0), header = {0};
    fprintf(file, "%016llx%016llx\n", (unsigned long long)checksum.high,
            (unsigned long long)checksum.low);
    fwrite(data, 1, size, file);
    fclose(file);
    tocsin_known known = {0}, copy = {0};
    bool found = false;
    tocsin_error error;
    if (tocsin_known_load(&known, &copy, path, header, ROLES, &found, &error) == TOCSIN_OK && found)
        look_at(&known);
    tocsin_known_free(&known);
    tocsin_known_free(&copy);
    unlink(path);
    return 0;
}
