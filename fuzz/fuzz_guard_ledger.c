/* Any bytes as a guard's ledger: an error, or lines that are each a JSON object, and after one more
 * is appended one more. */
#include <guard/guard.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static tocsin_status count_line(void *context, const ledger_line *line, tocsin_error *error)
{
    (void)error;
    if (tocsin_json_get_kind(line->value) != TOCSIN_JSON_OBJECT ||
        memchr(line->json, '\n', line->bytes))
        abort();
    ++*(uint64_t *)context;
    return TOCSIN_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    tocsin_error error;
    ledger_summary before, after;
    uint64_t lines = 0;
    int fd = memfd_create("ledger", MFD_CLOEXEC);
    if (fd < 0 || (size > 0 && write(fd, data, size) != (ssize_t)size))
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (tocsin_ledger_read(path, count_line, &lines, &before, &error) == TOCSIN_OK) {
        if (lines != before.lines ||
            tocsin_guard_ledger_append(path, "{}", 2, &error) != TOCSIN_OK ||
            tocsin_ledger_read(path, count_line, &lines, &after, &error) != TOCSIN_OK ||
            after.lines != before.lines + 1 || after.torn_bytes ||
            after.damaged != before.damaged + (before.torn_bytes > 0))
            abort();
    }
    close(fd);
    return 0;
}
