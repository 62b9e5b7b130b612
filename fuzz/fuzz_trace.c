/* Any bytes as a trace file, with any bytes as its ring file: no crash, no runaway.
 *
 * Input: a u32 that says how many of the following bytes are the trace file; the rest is the ring
 * file. With the top bit set, block checksums of the trace part are made right first, so that what
 * lies behind them is reached. */
#include "trace/trace_format.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <tocsin/trace.h>
#include <unistd.h>

#include "memory_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char directory[64];
static char trace_path[96];
static char ring_path[96];

static void leave(void)
{
    unlink(trace_path);
    unlink(ring_path);
    rmdir(directory);
}

static void enter(void)
{
    make_memory_folder(directory, sizeof directory);
    snprintf(trace_path, sizeof trace_path, "%s/process-x-1.trace", directory);
    snprintf(ring_path, sizeof ring_path, "%s/process-x-1.ring", directory);
    atexit(leave);
}

static void store(const char *path, const uint8_t *bytes, size_t count)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, bytes, count) != (ssize_t)count)
        abort();
    close(fd);
}

/* Correct the checksums of file header and blocks, as far as they follow each other. */
static void correct(uint8_t *bytes, size_t count)
{
    if (count < TOCSIN_IDENTITY_BYTES)
        return;
    tocsin_put_u64(bytes + 152, tocsin_hash64(bytes, 152, 0));
    for (size_t at = TOCSIN_IDENTITY_BYTES; count - at >= TOCSIN_BLOCK_HEADER_BYTES;) {
        tocsin_put_u32(bytes + at + 60, (uint32_t)tocsin_hash64(bytes + at, 60, 0));
        size_t end = at + TOCSIN_BLOCK_HEADER_BYTES + tocsin_get_u32(bytes + at + 28);
        if (end > count - TOCSIN_BLOCK_TRAILER_BYTES)
            return;
        tocsin_put_u64(bytes + end, tocsin_hash64(bytes + at, end - at, 0));
        at = end + TOCSIN_BLOCK_TRAILER_BYTES;
    }
}

static void read_all(bool follow)
{
    tocsin_trace *trace;
    if (tocsin_trace_open(trace_path, follow, &trace, NULL) != TOCSIN_OK)
        return;
    for (;;) {
        const tocsin_event *event;
        const char *line;
        size_t bytes;
        tocsin_status status = tocsin_trace_next(trace, &event, NULL);
        if (status == TOCSIN_E_CORRUPT)
            continue;
        if (status != TOCSIN_OK || !event)
            break;
        if (event->value_count > TOCSIN_EVENT_VALUES_MAX ||
            tocsin_trace_event_json(trace, event, &line, &bytes, NULL) != TOCSIN_OK)
            abort();
    }
    tocsin_trace_close(trace);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4)
        return 0;
    if (!directory[0])
        enter();
    uint32_t word = tocsin_get_u32(data);
    size_t trace_bytes = word & 0x7fffffff;
    if (trace_bytes > size - 4)
        trace_bytes = size - 4;
    uint8_t *copy = malloc(trace_bytes + 1);
    if (!copy)
        return 0;
    memcpy(copy, data + 4, trace_bytes);
    if (word >> 31)
        correct(copy, trace_bytes);
    store(trace_path, copy, trace_bytes);
    store(ring_path, data + 4 + trace_bytes, size - 4 - trace_bytes);
    free(copy);
    read_all(false);
    read_all(true);
    return 0;
}
