/* trace_run.c - a run as a directory: run.json and the files of its processes.
 *
 * Processes are numbered in the order in which they are found; those found together by name. A
 * process keeps its number, so followers may hold it across _refresh.
 */
#include "trace/trace_reader.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { RUN_JSON_BYTES_MAX = 16 << 20, PROCESSES_MAX = 1 << 20 };

typedef struct name_list {
    tocsin_arena arena;
    TOCSIN_VEC(char *) names;
} name_list;

struct tocsin_run {
    char *directory;
    bool follow;
    tocsin_string json;
    tocsin_intern known; /* file names, so that _refresh finds the new ones */
    TOCSIN_VEC(tocsin_trace *) processes;
};

/* ---- run.json ------------------------------------------------------------------------------- */

static tocsin_status check_json(const tocsin_run *run, const char *path, tocsin_error *error)
{
    tocsin_json_value *root;
    TOCSIN_TRY(tocsin_json_parse(run->json.text, run->json.bytes, path, &root, error));
    const char *format = tocsin_json_get_text(tocsin_json_get_member(root, "format"));
    int64_t version;
    bool versioned = tocsin_json_get_integer(tocsin_json_get_member(root, "version"), &version);
    tocsin_status status = TOCSIN_OK;
    if (!format || strcmp(format, "tocsin-run") != 0 || !versioned)
        status = tocsin_error_at(error, TOCSIN_E_FORMAT, path, -1,
                                 "not the description of a Tocsin run");
    else if (version != 1)
        status =
            tocsin_error_at(error, TOCSIN_E_VERSION, path, -1,
                            "run version %lld is not the version 1 read here", (long long)version);
    tocsin_json_free(root);
    return status;
}

/* There is no run.json. */
static tocsin_status tell_no_run(const tocsin_run *run, tocsin_error *error)
{
    static const char *const names[] = {"repeat-1", "a"};
    for (size_t n = 0; n < TOCSIN_COUNT_OF(names); ++n) {
        tocsin_string path = {0};
        tocsin_string_printf(&path, "%s/%s/run.json", run->directory, names[n]);
        bool found = path.status == TOCSIN_OK && access(path.text, F_OK) == 0;
        tocsin_string_free(&path);
        if (found)
            return tocsin_error_at(error, TOCSIN_E_FORMAT, run->directory, -1,
                                   "a folder of several runs: name one of them, as %s/%s",
                                   run->directory, names[n]);
    }
    return tocsin_error_at(error, TOCSIN_E_FORMAT, run->directory, -1,
                           "not a run: it has no run.json");
}

static tocsin_status load_json(tocsin_run *run, tocsin_error *error)
{
    tocsin_string path = {0};
    tocsin_string_printf(&path, "%s/run.json", run->directory);
    tocsin_status status = tocsin_string_check(&path, error);
    if (status == TOCSIN_OK) {
        DIR *directory = opendir(run->directory);
        if (!directory)
            status = tocsin_error_system(error, "open", run->directory);
        else
            closedir(directory);
    }
    if (status == TOCSIN_OK) {
        status = tocsin_file_load(path.text, RUN_JSON_BYTES_MAX, &run->json, error);
        if (status == TOCSIN_E_NOT_FOUND)
            status = tell_no_run(run, error);
    }
    if (status == TOCSIN_OK)
        status = check_json(run, path.text, error);
    tocsin_string_free(&path);
    return status;
}

/* ---- processes ------------------------------------------------------------------------------ */

static bool is_process_file(const char *name)
{
    size_t bytes = strlen(name);
    size_t suffix_bytes = strlen(".trace");
    return strncmp(name, "process-", strlen("process-")) == 0 && bytes > suffix_bytes &&
           strcmp(name + bytes - suffix_bytes, ".trace") == 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Process files not known yet, sorted. */
static tocsin_status list_new(const tocsin_run *run, name_list *list, tocsin_error *error)
{
    DIR *directory =
        tocsin_fault_hit(TOCSIN_FAULT_IO) ? (errno = EIO, NULL) : opendir(run->directory);
    if (!directory)
        return tocsin_error_system(error, "open", run->directory);
    tocsin_status status = TOCSIN_OK;
    for (struct dirent *entry; status == TOCSIN_OK && (entry = readdir(directory));) {
        size_t bytes = strlen(entry->d_name);
        if (!is_process_file(entry->d_name) ||
            tocsin_intern_find(&run->known, entry->d_name, bytes))
            continue;
        char *name = tocsin_arena_copy(&list->arena, entry->d_name, bytes);
        if (!name || !TOCSIN_VEC_PUSH(&list->names, name))
            status = tocsin_error_memory(error);
    }
    closedir(directory);
    if (status == TOCSIN_OK && list->names.count > 1)
        qsort(list->names.items, list->names.count, sizeof *list->names.items, compare_names);
    return status;
}

static tocsin_status add_process(tocsin_run *run, const char *name, tocsin_error *error)
{
    if (run->processes.count == PROCESSES_MAX)
        return tocsin_error_at(error, TOCSIN_E_LIMIT, run->directory, -1, "more than %d processes",
                               PROCESSES_MAX);
    tocsin_string path = {0};
    tocsin_trace *trace = NULL;
    tocsin_string_printf(&path, "%s/%s", run->directory, name);
    tocsin_status status = tocsin_string_check(&path, error);
    if (status == TOCSIN_OK)
        status = tocsin_trace_open(path.text, run->follow, &trace, error);
    tocsin_string_free(&path);
    if (status != TOCSIN_OK)
        return status;
    if (!TOCSIN_VEC_RESERVE(&run->processes, 1) ||
        !tocsin_intern_put(&run->known, name, strlen(name))) {
        tocsin_trace_close(trace);
        return tocsin_error_memory(error);
    }
    tocsin_trace_rest(trace);
    run->processes.items[run->processes.count++] = trace;
    return TOCSIN_OK;
}

tocsin_status tocsin_run_refresh(tocsin_run *run, tocsin_error *error)
{
    assert(run);
    name_list list = {0};
    tocsin_status status = list_new(run, &list, error);
    for (size_t i = 0; status == TOCSIN_OK && i < list.names.count; ++i)
        status = add_process(run, list.names.items[i], error);
    TOCSIN_VEC_FREE(&list.names);
    tocsin_arena_free(&list.arena);
    return status;
}

/* ---- the run -------------------------------------------------------------------------------- */

tocsin_status tocsin_run_open(const char *directory, bool follow, tocsin_run **result,
                              tocsin_error *error)
{
    assert(directory && result);
    *result = NULL;
    tocsin_run *run = tocsin_zalloc(1, sizeof *run);
    if (!run)
        return tocsin_error_memory(error);
    run->follow = follow;
    run->directory = tocsin_copy_text(directory, strlen(directory));
    tocsin_status status = run->directory ? load_json(run, error) : tocsin_error_memory(error);
    if (status == TOCSIN_OK)
        status = tocsin_run_refresh(run, error);
    if (status != TOCSIN_OK) {
        tocsin_run_close(run);
        return status;
    }
    *result = run;
    return TOCSIN_OK;
}

void tocsin_run_close(tocsin_run *run)
{
    if (!run)
        return;
    for (size_t i = 0; i < run->processes.count; ++i)
        tocsin_trace_close(run->processes.items[i]);
    TOCSIN_VEC_FREE(&run->processes);
    tocsin_intern_free(&run->known);
    tocsin_string_free(&run->json);
    tocsin_free(run->directory);
    tocsin_free(run);
}

size_t tocsin_run_process_count(const tocsin_run *run)
{
    return run->processes.count;
}

tocsin_trace *tocsin_run_process(const tocsin_run *run, size_t index)
{
    assert(index < run->processes.count);
    return run->processes.items[index];
}

const char *tocsin_run_directory(const tocsin_run *run)
{
    return run->directory;
}

const char *tocsin_run_json(const tocsin_run *run)
{
    return tocsin_string_text(&run->json);
}
