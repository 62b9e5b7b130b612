/* Any bytes as a file of invariants: an error or a set that can be saved and read again. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <tocsin/invariant.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    tocsin_error error;
    tocsin_invariant_set *set;
    int fd = memfd_create("invariants", MFD_CLOEXEC);
    if (fd < 0 || (size > 0 && write(fd, data, size) != (ssize_t)size))
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (tocsin_invariants_load(path, &set, &error) == TOCSIN_OK) {
        size_t count = tocsin_invariants_count(set);
        if (tocsin_invariants_append(set, path, &error) != TOCSIN_OK ||
            tocsin_invariants_count(set) != count)
            abort();
        for (size_t i = 0; i < count; ++i)
            if (tocsin_invariant_sentence(set, i)[0] == 0)
                abort();
        tocsin_invariants_free(set);
    }
    close(fd);
    return 0;
}
