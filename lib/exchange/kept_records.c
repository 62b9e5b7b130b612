/* The imported lines themselves, beside the run's events: RUN/traincheck/NAME.zst.
 *
 * Events carry what relations look at; whatever else a record says is kept here, so that the run
 * can be exported without loss. Each file is a sequence of zstd frames of some MiB of lines.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
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

/* ---- the way back -------------------------------------------------------------------------- */

enum { PIECE_BYTES = 1 << 17 };

typedef struct restoring {
    tocsin_reader reader;
    tocsin_writer writer;
    ZSTD_DStream *stream;
    uint8_t *in, *out;
    const char *path;
} restoring;

static tocsin_status restore_pieces(restoring *file, tocsin_error *error)
{
    size_t left = 0; /* bytes that the frame wants more; 0: between frames */
    for (;;) {
        ZSTD_inBuffer in = {.src = file->in};
        TOCSIN_TRY(tocsin_reader_read(&file->reader, file->in, PIECE_BYTES, &in.size, error));
        if (in.size == 0)
            break;
        while (in.pos < in.size) {
            ZSTD_outBuffer out = {.dst = file->out, .size = PIECE_BYTES};
            left = ZSTD_decompressStream(file->stream, &out, &in);
            if (ZSTD_isError(left))
                return tocsin_error_at(error, TOCSIN_E_CORRUPT, file->path, -1,
                                       "the kept records are damaged");
            TOCSIN_TRY(tocsin_writer_write(&file->writer, file->out, out.pos, error));
        }
    }
    return left == 0 ? TOCSIN_OK
                     : tocsin_error_at(error, TOCSIN_E_CORRUPT, file->path, -1,
                                       "the kept records are cut off");
}

static tocsin_status restore_file(const char *from, const char *to, tocsin_error *error)
{
    restoring file = {.path = from};
    TOCSIN_TRY(tocsin_reader_open(&file.reader, from, error));
    tocsin_status status = tocsin_writer_open(&file.writer, to, false, error);
    if (status == TOCSIN_OK) {
        file.stream = tocsin_fault_hit(TOCSIN_FAULT_MEMORY) ? NULL : ZSTD_createDStream();
        file.in = tocsin_alloc(PIECE_BYTES);
        file.out = tocsin_alloc(PIECE_BYTES);
        status = file.stream != NULL && file.in != NULL && file.out != NULL
                     ? restore_pieces(&file, error)
                     : tocsin_error_memory(error);
        if (status == TOCSIN_OK)
            status = tocsin_writer_commit(&file.writer, error);
        tocsin_writer_abandon(&file.writer);
        ZSTD_freeDStream(file.stream);
        tocsin_free(file.in);
        tocsin_free(file.out);
    }
    tocsin_reader_close(&file.reader);
    return status;
}

static tocsin_status restore_named(const char *folder, const char *name, const char *directory,
                                   tocsin_error *error)
{
    tocsin_string from = {0}, to = {0};
    tocsin_string_printf(&from, "%s/%s", folder, name);
    tocsin_string_printf(&to, "%s/%.*s", directory, (int)(strlen(name) - strlen(".zst")), name);
    tocsin_status status = tocsin_string_check(&from, error);
    if (status == TOCSIN_OK)
        status = tocsin_string_check(&to, error);
    if (status == TOCSIN_OK)
        status = restore_file(from.text, to.text, error);
    tocsin_string_free(&from);
    tocsin_string_free(&to);
    return status;
}

static tocsin_status restore_folder(const char *folder, const char *directory, uint64_t *files,
                                    tocsin_error *error)
{
    DIR *entries = tocsin_fault_hit(TOCSIN_FAULT_IO) ? (errno = EIO, NULL) : opendir(folder);
    if (entries == NULL)
        return tocsin_error_system(error, "open", folder);
    tocsin_status status = TOCSIN_OK;
    for (struct dirent *entry; status == TOCSIN_OK && (entry = readdir(entries)) != NULL;) {
        size_t bytes = strlen(entry->d_name);
        if (bytes <= 4 || strcmp(entry->d_name + bytes - 4, ".zst") != 0)
            continue;
        status = restore_named(folder, entry->d_name, directory, error);
        ++*files;
    }
    closedir(entries);
    return status;
}

tocsin_status tocsin_kept_records_restore(const char *run, const char *directory, uint64_t *files,
                                          tocsin_error *error)
{
    tocsin_string folder = {0};
    *files = 0;
    tocsin_string_printf(&folder, "%s/" TOCSIN_TRAINCHECK_FOLDER, run);
    tocsin_status status = tocsin_string_check(&folder, error);
    if (status == TOCSIN_OK)
        status = restore_folder(folder.text, directory, files, error);
    tocsin_string_free(&folder);
    return status;
}
