/* trace_identity.c - which process wrote a file, and does it still run.
 *
 * A process is named by pid and start time, for pids recur, under a boot id, for start times count
 * from the boot. Where /proc says nothing the fields stay zero and the process counts as dead.
 */
#include "trace/trace_format.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "ring files are memory of this machine");

/* The text of a small file in /proc; these reads are no points of failure of ours. */
static bool load_text(const char *path, char *text, size_t capacity)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t count = read(fd, text, capacity - 1);
    close(fd);
    if (count < 0)
        return false;
    text[count] = 0;
    return true;
}

static void load_boot_id(uint8_t boot[TOCSIN_BOOT_BYTES])
{
    char text[64];
    memset(boot, 0, TOCSIN_BOOT_BYTES);
    if (!load_text("/proc/sys/kernel/random/boot_id", text, sizeof text))
        return;
    const char *next = text;
    for (size_t i = 0; i < TOCSIN_BOOT_BYTES; ++i) {
        unsigned byte;
        if (*next == '-')
            ++next;
        if (sscanf(next, "%2x", &byte) != 1)
            return;
        boot[i] = (uint8_t)byte;
        next += 2;
    }
}

/* State, number of threads and start time: fields 3, 20 and 22 of /proc/PID/stat. The name before
 * them may contain anything, so they are counted from the last ")". */
static bool load_stat(uint64_t pid, char *state, unsigned long *threads, uint64_t *start_ticks)
{
    char path[64];
    char text[1024];
    snprintf(path, sizeof path, "/proc/%llu/stat", (unsigned long long)pid);
    if (!load_text(path, text, sizeof text))
        return false;
    const char *rest = strrchr(text, ')');
    unsigned long long start = 0;
    if (!rest || sscanf(rest + 1,
                        " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lu "
                        "%*s %llu",
                        state, threads, &start) != 3)
        return false;
    *start_ticks = start;
    return true;
}

void tocsin_identity_of_self(tocsin_identity *identity)
{
    assert(identity);
    *identity = (tocsin_identity){.pid = (uint64_t)getpid(),
                                  .wall_ns = tocsin_wall_clock_ns(),
                                  .monotonic_ns = tocsin_clock_ns()};
    char state;
    unsigned long threads;
    if (!load_stat(identity->pid, &state, &threads, &identity->start_ticks))
        identity->start_ticks = 0;
    load_boot_id(identity->boot);
    if (gethostname(identity->host, TOCSIN_HOST_BYTES) != 0)
        identity->host[0] = 0;
    identity->host[TOCSIN_HOST_BYTES] = 0;
}

bool tocsin_identity_is_alive(const tocsin_identity *identity)
{
    uint8_t boot[TOCSIN_BOOT_BYTES];
    char state;
    unsigned long threads;
    uint64_t start_ticks;
    load_boot_id(boot);
    if (identity->pid == 0 || memcmp(boot, identity->boot, sizeof boot) != 0 ||
        !load_stat(identity->pid, &state, &threads, &start_ticks) ||
        start_ticks != identity->start_ticks)
        return false;
    /* A leader that has exited is a zombie while its other threads go on. */
    return !((state == 'Z' || state == 'X') && threads <= 1);
}

void tocsin_identity_encode(const tocsin_identity *identity, const char *magic,
                            uint8_t out[TOCSIN_IDENTITY_BYTES])
{
    assert(identity && strlen(magic) == TOCSIN_MAGIC_BYTES);
    memset(out, 0, TOCSIN_IDENTITY_BYTES);
    memcpy(out, magic, TOCSIN_MAGIC_BYTES);
    tocsin_put_u32(out + 8, TOCSIN_TRACE_VERSION);
    tocsin_put_u32(out + 12, TOCSIN_IDENTITY_BYTES);
    tocsin_put_u64(out + 24, identity->pid);
    tocsin_put_u64(out + 32, identity->start_ticks);
    tocsin_put_u64(out + 40, identity->wall_ns);
    tocsin_put_u64(out + 48, identity->monotonic_ns);
    memcpy(out + 56, identity->boot, TOCSIN_BOOT_BYTES);
    memcpy(out + 72, identity->host, TOCSIN_HOST_BYTES);
    tocsin_put_u32(out + 136, identity->page_bytes);
    tocsin_put_u32(out + 140, identity->dictionary_ring_bytes);
    tocsin_put_u32(out + 144, identity->ring_bytes);
    tocsin_put_u64(out + 152, tocsin_hash64(out, 152, 0));
}

tocsin_status tocsin_identity_decode(const uint8_t in[TOCSIN_IDENTITY_BYTES], const char *magic,
                                     tocsin_identity *identity, const char *where,
                                     tocsin_error *error)
{
    assert(identity && strlen(magic) == TOCSIN_MAGIC_BYTES);
    memset(identity, 0, sizeof *identity);
    if (memcmp(in, magic, TOCSIN_MAGIC_BYTES) != 0)
        return tocsin_error_at(error, TOCSIN_E_FORMAT, where, 0, "not a Tocsin trace");
    uint32_t version = tocsin_get_u32(in + 8);
    if (version != TOCSIN_TRACE_VERSION || tocsin_get_u64(in + 16) != 0)
        return tocsin_error_at(error, TOCSIN_E_VERSION, where, 8,
                               "trace version %u (features %#llx) is not the version 1 read here",
                               version, (unsigned long long)tocsin_get_u64(in + 16));
    if (tocsin_get_u64(in + 152) != tocsin_hash64(in, 152, 0))
        return tocsin_error_at(error, TOCSIN_E_CORRUPT, where, 0, "the file header is damaged");
    identity->pid = tocsin_get_u64(in + 24);
    identity->start_ticks = tocsin_get_u64(in + 32);
    identity->wall_ns = tocsin_get_u64(in + 40);
    identity->monotonic_ns = tocsin_get_u64(in + 48);
    memcpy(identity->boot, in + 56, TOCSIN_BOOT_BYTES);
    memcpy(identity->host, in + 72, TOCSIN_HOST_BYTES);
    identity->page_bytes = tocsin_get_u32(in + 136);
    identity->dictionary_ring_bytes = tocsin_get_u32(in + 140);
    identity->ring_bytes = tocsin_get_u32(in + 144);
    return TOCSIN_OK;
}
