/* trace_scratch.h - runs in temporary directories, for the tests of traces. */
#ifndef TOCSIN_TRACE_SCRATCH_H
#define TOCSIN_TRACE_SCRATCH_H

#include "cmocka_test.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tocsin/trace.h>
#include <unistd.h>

#define SCRATCH_PATH_BYTES 600

typedef struct scratch {
    char directory[256];
} scratch;

static inline void scratch_write(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static inline uint8_t *scratch_read(const char *path, size_t *count)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long end = ftell(file);
    assert_true(end >= 0);
    rewind(file);
    uint8_t *bytes = malloc((size_t)end + 1);
    assert_non_null(bytes);
    *count = fread(bytes, 1, (size_t)end, file);
    assert_int_equal(*count, end);
    fclose(file);
    return bytes;
}

/* A new empty run. */
static inline scratch scratch_new(void)
{
    scratch run;
    char json[SCRATCH_PATH_BYTES];
    const char *base = getenv("TMPDIR");
    snprintf(run.directory, sizeof run.directory, "%s/tocsin-trace-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(run.directory));
    snprintf(json, sizeof json, "%s/run.json", run.directory);
    const char *text = "{\"format\":\"tocsin-run\",\"version\":1}\n";
    scratch_write(json, text, strlen(text));
    return run;
}

static inline void scratch_free(const scratch *run)
{
    DIR *entries = opendir(run->directory);
    assert_non_null(entries);
    for (struct dirent *entry; (entry = readdir(entries));) {
        char path[SCRATCH_PATH_BYTES];
        snprintf(path, sizeof path, "%s/%s", run->directory, entry->d_name);
        if (entry->d_name[0] != '.')
            unlink(path);
    }
    closedir(entries);
    rmdir(run->directory);
}

/* The path of the file in the run that begins and ends so; "" when there is none. */
static inline void scratch_find(const scratch *run, const char *prefix, const char *suffix,
                                char path[SCRATCH_PATH_BYTES])
{
    path[0] = 0;
    DIR *entries = opendir(run->directory);
    assert_non_null(entries);
    for (struct dirent *entry; (entry = readdir(entries));) {
        size_t bytes = strlen(entry->d_name);
        if (bytes >= strlen(suffix) && strncmp(entry->d_name, prefix, strlen(prefix)) == 0 &&
            strcmp(entry->d_name + bytes - strlen(suffix), suffix) == 0)
            snprintf(path, SCRATCH_PATH_BYTES, "%s/%s", run->directory, entry->d_name);
    }
    closedir(entries);
}

static inline tocsin_trace_writer *scratch_writer(const scratch *run, uint32_t ring_bytes,
                                                  uint32_t flush_ms)
{
    tocsin_error error;
    tocsin_trace_writer *writer;
    tocsin_trace_writer_options options = {.struct_bytes = sizeof options,
                                           .directory = run->directory,
                                           .ring_bytes = ring_bytes,
                                           .flush_ms = flush_ms};
    assert_int_equal(tocsin_trace_writer_open(&options, &writer, &error), TOCSIN_OK);
    return writer;
}

static inline uint64_t scratch_enter(tocsin_trace_writer *writer, tocsin_id function)
{
    tocsin_event event = {.kind = TOCSIN_EVENT_ENTER, .function = function};
    return tocsin_trace_emit(writer, &event);
}

static inline void scratch_exit(tocsin_trace_writer *writer, tocsin_id function, uint64_t call)
{
    tocsin_event event = {.kind = TOCSIN_EVENT_EXIT, .function = function, .call = call};
    tocsin_trace_emit(writer, &event);
}

static inline void scratch_meta(tocsin_trace_writer *writer, tocsin_id key, int64_t number)
{
    tocsin_value value = {.kind = TOCSIN_VALUE_INT, .as.integer = number};
    tocsin_event event = {
        .kind = TOCSIN_EVENT_META, .key = key, .value_count = 1, .values = &value};
    tocsin_trace_emit(writer, &event);
}

static inline tocsin_trace *scratch_open(const char *path, bool follow)
{
    tocsin_error error;
    tocsin_trace *trace;
    tocsin_status status = tocsin_trace_open(path, follow, &trace, &error);
    if (status != TOCSIN_OK)
        fail_msg("open %s: %s", path, error.message);
    return trace;
}

/* The next event, damage passed over; NULL at the end. */
static inline const tocsin_event *scratch_next(tocsin_trace *trace)
{
    tocsin_error error;
    const tocsin_event *event;
    tocsin_status status;
    while ((status = tocsin_trace_next(trace, &event, &error)) == TOCSIN_E_CORRUPT)
        ;
    if (status != TOCSIN_OK)
        fail_msg("next: %s", error.message);
    return event;
}

#endif
