/* Any bytes as a file of suppressions: an error, or suppressions that are whole and can be matched.
 */
#include <check/check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    tocsin_error error;
    tocsin_suppressions *known, *copy;
    int fd = memfd_create("suppressions", MFD_CLOEXEC);
    if (fd < 0 || (size > 0 && write(fd, data, size) != (ssize_t)size))
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (tocsin_suppressions_new("2026-11-29", &known, &error) != TOCSIN_OK ||
        tocsin_suppressions_new("2026-11-29", &copy, &error) != TOCSIN_OK)
        abort();
    if (tocsin_suppressions_read(known, path, &error) == TOCSIN_OK) {
        for (size_t i = 0; i < tocsin_suppressions_count(known); ++i) {
            const tocsin_suppression *one = tocsin_suppressions_get(known, i);
            if (one->reason[0] == 0 || (one->expired && one->until[0] == 0) ||
                tocsin_suppressions_add(copy, one, &error) != TOCSIN_OK)
                abort();
            /* what it names, it suppresses; a pattern fits itself */
            bool matched = tocsin_suppressions_match(known, one->invariant, one->code, one->entity);
            if (!matched && !one->expired)
                abort();
        }
    }
    tocsin_suppressions_free(known);
    tocsin_suppressions_free(copy);
    close(fd);
    return 0;
}
