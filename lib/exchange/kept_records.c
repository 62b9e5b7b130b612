/* The imported lines themselves, beside the run's events: RUN/traincheck/NAME.zst.
 *
 * Events carry what relations look at; whatever else a record says is kept here, so that the run
 * can be exported without loss. Each file is a sequence of zstd frames of some MiB of lines.
 */
#include <assert.h>
#include <exchange/exchange.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <zstd.h>

enum { CHUNK_BYTES = 1 << 20, LEVEL = 3 };

typedef struct kept_file {
    int fd; /* -1: nothing was written yet */
    char *path;
    tocsin_string lines; /* not written yet */
} kept_file;

struct tocsin_kept_records {
    char *folder;
    size_t count;
    kept_file *files;
};

static void free_kept(tocsin_kept_records *kept)
{
    for (size_t i = 0; kept != NULL && kept->files != NULL && i < kept->count; ++i) {
        tocsin_string_free(&kept->files[i].lines);
        tocsin_free(kept->files[i].path);
    }
    if (kept != NULL) {
        tocsin_free(kept->files);
        tocsin_free(kept->folder);
    }
    tocsin_free(kept);
}

tocsin_status tocsin_kept_records_new(const char *run, size_t count, tocsin_kept_records **kept,
                                      tocsin_error *error)
{
    tocsin_string folder = {0};
    *kept = NULL;
    tocsin_string_printf(&folder, "%s/" TOCSIN_TRAINCHECK_FOLDER, run);
    tocsin_status status = tocsin_string_check(&folder, error);
    tocsin_kept_records *made = tocsin_zalloc(1, sizeof *made);
    if (status == TOCSIN_OK && made != NULL) {
        made->count = count;
        made->files = tocsin_zalloc(count, sizeof *made->files);
        made->folder = folder.text;
        folder = (tocsin_string){0};
    }
    if (status == TOCSIN_OK && (made == NULL || made->files == NULL))
        status = tocsin_error_memory(error);
    if (status == TOCSIN_OK && mkdir(made->folder, 0777) != 0)
        status = tocsin_error_system(error, "create", made->folder);
    tocsin_string_free(&folder);
    for (size_t i = 0; made != NULL && made->files != NULL && i < count; ++i)
        made->files[i].fd = -1;
    if (status != TOCSIN_OK)
        free_kept(made);
    else
        *kept = made;
    return status;
}

static tocsin_status open_file(const tocsin_kept_records *kept, kept_file *file, const char *name,
                               tocsin_error *error)
{
    tocsin_string path = {0};
    tocsin_string_printf(&path, "%s/%s.zst", kept->folder, name);
    tocsin_status status = tocsin_string_check(&path, error);
    if (status == TOCSIN_OK)
        status = tocsin_file_open(path.text, O_WRONLY | O_CREAT | O_EXCL, 0666, &file->fd, error);
    if (status != TOCSIN_OK) {
        tocsin_string_free(&path);
        return status;
    }
    file->path = path.text; /* the string's memory is the file's now */
    return TOCSIN_OK;
}

static tocsin_status write_frame(kept_file *file, tocsin_error *error)
{
    size_t bound = ZSTD_compressBound(file->lines.bytes);
    void *frame = tocsin_alloc(bound);
    if (frame == NULL)
        return tocsin_error_memory(error);
    size_t bytes = ZSTD_compress(frame, bound, file->lines.text, file->lines.bytes, LEVEL);
    tocsin_status status = ZSTD_isError(bytes)
                               ? tocsin_error_memory(error) /* the one way it can fail here */
                               : tocsin_file_write(file->fd, frame, bytes, file->path, error);
    tocsin_free(frame);
    tocsin_string_clear(&file->lines);
    return status;
}

tocsin_status tocsin_kept_records_add(tocsin_kept_records *kept, size_t index, const char *name,
                                      const char *line, size_t bytes, tocsin_error *error)
{
    assert(index < kept->count);
    kept_file *file = &kept->files[index];
    if (file->fd < 0)
        TOCSIN_TRY(open_file(kept, file, name, error));
    tocsin_string_append(&file->lines, line, bytes);
    tocsin_string_append_char(&file->lines, '\n');
    TOCSIN_TRY(tocsin_string_check(&file->lines, error));
    return file->lines.bytes >= CHUNK_BYTES ? write_frame(file, error) : TOCSIN_OK;
}

tocsin_status tocsin_kept_records_close(tocsin_kept_records *kept, tocsin_error *error)
{
    tocsin_status status = TOCSIN_OK;
    for (size_t i = 0; kept != NULL && i < kept->count; ++i) {
        kept_file *file = &kept->files[i];
        if (status == TOCSIN_OK && file->fd >= 0 && file->lines.bytes > 0)
            status = write_frame(file, error);
        tocsin_status closed =
            tocsin_file_close(&file->fd, file->path, status == TOCSIN_OK ? error : NULL);
        status = status == TOCSIN_OK ? closed : status;
    }
    free_kept(kept);
    return status;
}
