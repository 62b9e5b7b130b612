/* The traces of a folder as one sequence of lines, earliest first.
 *
 * A binary heap over the files, by the time of each file's next line, then by the file's place in
 * the sorted names. A line that shows no time comes right after the one before it. Memory: one line
 * and one buffer a file. Cost: O(log files) and one scan a line.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <exchange/exchange.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct source {
    char *name;
    tocsin_reader reader;
    bool open;
    const char *line; /* the next one; NULL at the end */
    size_t bytes;
    uint64_t number;
    uint64_t time_ns;
    uint64_t file_bytes;
} source;

struct tocsin_traincheck_files {
    char *directory;
    TOCSIN_VEC(source) sources;
    TOCSIN_VEC(size_t) heap; /* of sources that have a line */
    bool started;            /* the source at the top of the heap was handed out */
};

static bool is_trace(const char *name)
{
    return strncmp(name, "trace_", 6) == 0 || strcmp(name, "proxy_log.json") == 0;
}

static int compare_sources(const void *a, const void *b)
{
    return strcmp(((const source *)a)->name, ((const source *)b)->name);
}

static tocsin_status list_files(tocsin_traincheck_files *files, tocsin_error *error)
{
    DIR *directory =
        tocsin_fault_hit(TOCSIN_FAULT_IO) ? (errno = EIO, NULL) : opendir(files->directory);
    if (directory == NULL)
        return tocsin_error_system(error, "open", files->directory);
    tocsin_status status = TOCSIN_OK;
    for (struct dirent *entry; status == TOCSIN_OK && (entry = readdir(directory)) != NULL;) {
        if (!is_trace(entry->d_name))
            continue;
        source found = {.name = tocsin_copy_text(entry->d_name, strlen(entry->d_name))};
        if (files->sources.count == TOCSIN_TRAINCHECK_FILES_MAX)
            status = tocsin_error_at(error, TOCSIN_E_LIMIT, files->directory, -1,
                                     "more than %u trace files", TOCSIN_TRAINCHECK_FILES_MAX);
        else if (found.name == NULL || !TOCSIN_VEC_PUSH(&files->sources, found))
            status = tocsin_error_memory(error);
        if (status != TOCSIN_OK)
            tocsin_free(found.name);
    }
    closedir(directory);
    if (status == TOCSIN_OK && files->sources.count == 0)
        status = tocsin_error_at(error, TOCSIN_E_NOT_FOUND, files->directory, -1,
                                 "no TrainCheck trace (trace_*, proxy_log.json) in this folder");
    if (files->sources.count > 1)
        qsort(files->sources.items, files->sources.count, sizeof *files->sources.items,
              compare_sources);
    return status;
}

/* ---- the heap ------------------------------------------------------------------------------ */

static bool is_before(const tocsin_traincheck_files *files, size_t a, size_t b)
{
    const source *x = &files->sources.items[a], *y = &files->sources.items[b];
    return x->time_ns != y->time_ns ? x->time_ns < y->time_ns : a < b;
}

static void sift_down(tocsin_traincheck_files *files, size_t at)
{
    size_t *heap = files->heap.items;
    for (;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < files->heap.count; ++child)
            if (is_before(files, heap[child], heap[least]))
                least = child;
        if (least == at)
            return;
        size_t moved = heap[at];
        heap[at] = heap[least];
        heap[least] = moved;
        at = least;
    }
}

static tocsin_status read_line(source *from, tocsin_error *error)
{
    tocsin_traincheck_glimpse glimpse;
    do {
        TOCSIN_TRY(tocsin_reader_line(&from->reader, TOCSIN_TRAINCHECK_LINE_MAX, &from->line,
                                      &from->bytes, error));
        ++from->number;
    } while (from->line != NULL && from->bytes == 0);
    if (from->line != NULL && tocsin_traincheck_record_glimpse(from->line, from->bytes, &glimpse))
        from->time_ns = glimpse.time_ns;
    return TOCSIN_OK;
}

static tocsin_status open_source(const tocsin_traincheck_files *files, source *from,
                                 tocsin_error *error)
{
    tocsin_string path = {0};
    tocsin_string_printf(&path, "%s/%s", files->directory, from->name);
    tocsin_status status = tocsin_string_check(&path, error);
    if (status == TOCSIN_OK)
        status = tocsin_reader_open(&from->reader, path.text, error);
    tocsin_string_free(&path);
    if (status != TOCSIN_OK)
        return status;
    from->open = true;
    TOCSIN_TRY(tocsin_file_size(from->reader.fd, &from->file_bytes, from->reader.path, error));
    return read_line(from, error);
}

static tocsin_status fill_heap(tocsin_traincheck_files *files, tocsin_error *error)
{
    for (size_t i = 0; i < files->sources.count; ++i) {
        TOCSIN_TRY(open_source(files, &files->sources.items[i], error));
        if (files->sources.items[i].line != NULL && !TOCSIN_VEC_PUSH(&files->heap, i))
            return tocsin_error_memory(error);
    }
    for (size_t at = files->heap.count / 2; at-- > 0;)
        sift_down(files, at);
    return TOCSIN_OK;
}

/* ---- the files ----------------------------------------------------------------------------- */

tocsin_status tocsin_traincheck_files_open(const char *directory, tocsin_traincheck_files **files,
                                           tocsin_error *error)
{
    *files = NULL;
    tocsin_traincheck_files *made = tocsin_zalloc(1, sizeof *made);
    if (made == NULL)
        return tocsin_error_memory(error);
    made->directory = tocsin_copy_text(directory, strlen(directory));
    tocsin_status status =
        made->directory != NULL ? list_files(made, error) : tocsin_error_memory(error);
    if (status == TOCSIN_OK)
        status = fill_heap(made, error);
    if (status != TOCSIN_OK)
        tocsin_traincheck_files_close(made);
    else
        *files = made;
    return status;
}

void tocsin_traincheck_files_close(tocsin_traincheck_files *files)
{
    if (files == NULL)
        return;
    for (size_t i = 0; i < files->sources.count; ++i) {
        if (files->sources.items[i].open)
            tocsin_reader_close(&files->sources.items[i].reader);
        tocsin_free(files->sources.items[i].name);
    }
    TOCSIN_VEC_FREE(&files->sources);
    TOCSIN_VEC_FREE(&files->heap);
    tocsin_free(files->directory);
    tocsin_free(files);
}

size_t tocsin_traincheck_files_count(const tocsin_traincheck_files *files)
{
    return files->sources.count;
}

const char *tocsin_traincheck_files_name(const tocsin_traincheck_files *files, size_t index)
{
    assert(index < files->sources.count);
    return files->sources.items[index].name;
}

tocsin_status tocsin_traincheck_files_next(tocsin_traincheck_files *files,
                                           tocsin_traincheck_line *line, tocsin_error *error)
{
    if (files->started) {
        source *taken = &files->sources.items[files->heap.items[0]];
        TOCSIN_TRY(read_line(taken, error));
        if (taken->line == NULL)
            files->heap.items[0] = files->heap.items[--files->heap.count];
        sift_down(files, 0);
    }
    *line = (tocsin_traincheck_line){.text = NULL};
    files->started = files->heap.count > 0;
    if (!files->started)
        return TOCSIN_OK;
    size_t index = files->heap.items[0];
    const source *from = &files->sources.items[index];
    *line = (tocsin_traincheck_line){.text = from->line,
                                     .bytes = from->bytes,
                                     .file = index,
                                     .name = from->name,
                                     .number = from->number,
                                     .last = from->reader.offset >= from->file_bytes};
    return TOCSIN_OK;
}
