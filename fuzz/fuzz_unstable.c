/* Any bytes as a map of unstable boundaries: an error, or a map that is whole and can be written
 * and read again. */
#include <align/align.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    tocsin_error error;
    tocsin_stability *map, *copy;
    int fd = memfd_create("unstable", MFD_CLOEXEC);
    if (fd < 0 || (size > 0 && write(fd, data, size) != (ssize_t)size))
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (tocsin_stability_read(path, &map, &error) == TOCSIN_OK) {
        if (tocsin_stability_new(tocsin_stability_repeats(map), &copy, &error) != TOCSIN_OK)
            abort();
        tocsin_stability_begin(copy);
        for (size_t i = 0; i < tocsin_stability_count(map); ++i) {
            tocsin_unstable_boundary one = tocsin_stability_get(map, i);
            size_t index;
            if (!tocsin_stability_find(map, &one, &index) || index != i ||
                !tocsin_stability_note(copy, &one) || tocsin_stability_count(copy) != i + 1)
                abort();
        }
        tocsin_stability_free(copy);
    }
    tocsin_stability_free(map);
    close(fd);
    return 0;
}
