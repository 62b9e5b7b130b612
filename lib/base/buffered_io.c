/* buffered_io.c - files read in pieces, and files that appear only when they are complete.
 *
 * Writer: bytes go to a hidden temporary file in the same directory; _commit flushes it to the disk
 * and renames it over the target (or links it, when nothing may be replaced), so a crash leaves the
 * old file or the new one. Reader: one buffer; a line is returned in place while it fits there.
 * Cost: one system call per 64 KiB.
 */
#include <assert.h>
#include <base/base.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)64 * 1024)

/* ---- reader -------------------------------------------------------------------------------- */

tocsin_status tocsin_reader_open(tocsin_reader *reader, const char *path, tocsin_error *error)
{
    *reader = (tocsin_reader){.fd = -1};
    reader->path = tocsin_copy_text(path, strlen(path));
    reader->buffer = tocsin_alloc(BUFFER_BYTES);
    tocsin_status status = TOCSIN_OK;
    if (!reader->path || !reader->buffer)
        status = tocsin_error_memory(error);
    else
        status = tocsin_file_open(path, O_RDONLY, 0, &reader->fd, error);
    if (status != TOCSIN_OK)
        tocsin_reader_close(reader);
    return status;
}

/* Read the next piece into the empty buffer; end == 0 afterwards means the end of the file. */
static tocsin_status refill(tocsin_reader *reader, tocsin_error *error)
{
    assert(reader->begin == reader->end);
    reader->begin = 0;
    reader->end = 0;
    return tocsin_file_read(reader->fd, reader->buffer, BUFFER_BYTES, -1, &reader->end,
                            reader->path, error);
}

static void consume(tocsin_reader *reader, size_t bytes)
{
    assert(bytes <= reader->end - reader->begin);
    reader->begin += bytes;
    reader->offset += bytes;
}

tocsin_status tocsin_reader_read(tocsin_reader *reader, void *memory, size_t bytes, size_t *count,
                                 tocsin_error *error)
{
    assert(reader->fd >= 0);
    *count = 0;
    while (*count < bytes) {
        if (reader->begin == reader->end) {
            TOCSIN_TRY(refill(reader, error));
            if (reader->end == 0)
                break;
        }
        size_t part = reader->end - reader->begin;
        if (part > bytes - *count)
            part = bytes - *count;
        memcpy((unsigned char *)memory + *count, reader->buffer + reader->begin, part);
        consume(reader, part);
        *count += part;
    }
    return TOCSIN_OK;
}

static tocsin_status line_too_long(const tocsin_reader *reader, size_t limit_bytes,
                                   tocsin_error *error)
{
    return tocsin_error_at(error, TOCSIN_E_LIMIT, reader->path, (int64_t)reader->offset,
                           "a line is longer than %zu bytes", limit_bytes);
}

/* The rest of a line that does not end in this buffer, collected in reader->line. */
static tocsin_status collect_line(tocsin_reader *reader, size_t limit_bytes, tocsin_error *error)
{
    bool ended = false;
    while (!ended) {
        if (reader->begin == reader->end) {
            TOCSIN_TRY(refill(reader, error));
            if (reader->end == 0)
                return TOCSIN_OK;
        }
        const uint8_t *start = reader->buffer + reader->begin;
        size_t part = reader->end - reader->begin;
        const uint8_t *newline = memchr(start, '\n', part);
        ended = newline != NULL;
        if (ended)
            part = (size_t)(newline - start);
        if (part > limit_bytes - reader->line.bytes)
            return line_too_long(reader, limit_bytes, error);
        tocsin_string_append(&reader->line, start, part);
        TOCSIN_TRY(tocsin_string_check(&reader->line, error));
        consume(reader, part + (ended ? 1 : 0));
    }
    return TOCSIN_OK;
}

tocsin_status tocsin_reader_line(tocsin_reader *reader, size_t limit_bytes, const char **line,
                                 size_t *bytes, tocsin_error *error)
{
    assert(reader->fd >= 0);
    assert(limit_bytes < SIZE_MAX);
    *line = NULL;
    *bytes = 0;
    if (reader->begin == reader->end) {
        TOCSIN_TRY(refill(reader, error));
        if (reader->end == 0)
            return TOCSIN_OK;
    }
    const uint8_t *start = reader->buffer + reader->begin;
    const uint8_t *newline = memchr(start, '\n', reader->end - reader->begin);
    if (newline) {
        *bytes = (size_t)(newline - start);
        if (*bytes > limit_bytes)
            return line_too_long(reader, limit_bytes, error);
        consume(reader, *bytes + 1);
        *line = (const char *)start;
        return TOCSIN_OK;
    }
    tocsin_string_clear(&reader->line);
    TOCSIN_TRY(collect_line(reader, limit_bytes, error));
    *line = tocsin_string_text(&reader->line);
    *bytes = reader->line.bytes;
    return TOCSIN_OK;
}

void tocsin_reader_close(tocsin_reader *reader)
{
    if (reader->fd >= 0)
        close(reader->fd); /* opened for reading: nothing can be lost */
    tocsin_free(reader->path);
    tocsin_free(reader->buffer);
    tocsin_string_free(&reader->line);
    *reader = (tocsin_reader){.fd = -1};
}

/* ---- writer -------------------------------------------------------------------------------- */

/* "dir/.name.<pid>.<time>.<n>.tmp" for "dir/name": the same file system, so that rename is atomic,
 * and a name of this writer's own, also on a disk that several machines share. */
static char *temporary_name(const char *path)
{
    static atomic_uint serial;
    const char *slash = strrchr(path, '/');
    size_t directory_bytes = slash ? (size_t)(slash - path) + 1 : 0;
    tocsin_string name = {0};
    tocsin_string_append(&name, path, directory_bytes);
    tocsin_string_printf(&name, ".%s.%ld.%llx.%u.tmp", path + directory_bytes, (long)getpid(),
                         (unsigned long long)tocsin_wall_clock_ns(), atomic_fetch_add(&serial, 1));
    if (name.status != TOCSIN_OK)
        tocsin_string_free(&name);
    return name.text;
}

static tocsin_status exists(const char *path, tocsin_error *error)
{
    return tocsin_error_at(error, TOCSIN_E_EXISTS, path, -1, "the file exists already");
}

static tocsin_status open_temporary(tocsin_writer *writer, tocsin_error *error)
{
    char *name = temporary_name(writer->path);
    if (!name)
        return tocsin_error_memory(error);
    tocsin_status status =
        tocsin_file_open(name, O_WRONLY | O_CREAT | O_EXCL, 0666, &writer->fd, error);
    if (status == TOCSIN_OK) {
        writer->owns_fd = true;
        writer->temporary_path = name;
        return TOCSIN_OK;
    }
    if (error) /* the user knows the target, not the temporary name */
        snprintf(error->where, sizeof error->where, "%s", writer->path);
    tocsin_free(name);
    return status;
}

static tocsin_status prepare(tocsin_writer *writer, const char *path, tocsin_error *error)
{
    writer->path = tocsin_copy_text(path, strlen(path));
    writer->buffer = tocsin_alloc(BUFFER_BYTES);
    if (!writer->path || !writer->buffer)
        return tocsin_error_memory(error);
    if (strcmp(path, "-") == 0) {
        writer->fd = STDOUT_FILENO;
        return TOCSIN_OK;
    }
    struct stat facts;
    bool present = stat(path, &facts) == 0;
    if (present && !S_ISREG(facts.st_mode)) { /* /dev/null, a pipe: must not be replaced */
        writer->owns_fd = true;
        return tocsin_file_open(path, O_WRONLY, 0, &writer->fd, error);
    }
    /* Early, so that no work is done in vain; _commit checks again without a race. */
    return present && !writer->force ? exists(path, error) : open_temporary(writer, error);
}

tocsin_status tocsin_writer_open(tocsin_writer *writer, const char *path, bool force,
                                 tocsin_error *error)
{
    *writer = (tocsin_writer){.fd = -1, .force = force};
    tocsin_status status = prepare(writer, path, error);
    if (status != TOCSIN_OK)
        tocsin_writer_abandon(writer);
    return status;
}

static tocsin_status flush_buffer(tocsin_writer *writer, tocsin_error *error)
{
    if (writer->status == TOCSIN_OK)
        writer->status =
            tocsin_file_write(writer->fd, writer->buffer, writer->used, writer->path, error);
    else
        tocsin_error_at(error, writer->status, writer->path, -1, "an earlier write failed");
    writer->used = 0;
    return writer->status;
}

tocsin_status tocsin_writer_write(tocsin_writer *writer, const void *bytes, size_t count,
                                  tocsin_error *error)
{
    assert(writer->buffer && "the writer has ended");
    assert(bytes || count == 0);
    const unsigned char *rest = bytes;
    while (count > 0) {
        if (writer->used == BUFFER_BYTES)
            TOCSIN_TRY(flush_buffer(writer, error));
        size_t part = BUFFER_BYTES - writer->used;
        if (part > count)
            part = count;
        memcpy(writer->buffer + writer->used, rest, part);
        writer->used += part;
        rest += part;
        count -= part;
    }
    return writer->status;
}

/* Give the finished temporary file its name. */
static tocsin_status publish(tocsin_writer *writer, tocsin_error *error)
{
    bool refused = tocsin_fault_hit(TOCSIN_FAULT_IO);
    int result = -1;
    if (refused)
        errno = EIO;
    else if (writer->force)
        result = rename(writer->temporary_path, writer->path);
    else
        result =
            renameat2(AT_FDCWD, writer->temporary_path, AT_FDCWD, writer->path, RENAME_NOREPLACE);
    if (result != 0 && !refused && !writer->force && errno == EINVAL) {
        /* A file system without RENAME_NOREPLACE: link refuses to replace on all of them. */
        result = link(writer->temporary_path, writer->path);
        if (result == 0)
            unlink(writer->temporary_path);
    }
    if (result == 0) {
        tocsin_free(writer->temporary_path);
        writer->temporary_path = NULL;
        return TOCSIN_OK;
    }
    return errno == EEXIST ? exists(writer->path, error)
                           : tocsin_error_system(error, "replace", writer->path);
}

static tocsin_status finish(tocsin_writer *writer, tocsin_error *error)
{
    TOCSIN_TRY(flush_buffer(writer, error));
    if (!writer->owns_fd)
        return TOCSIN_OK;
    if (writer->temporary_path)
        TOCSIN_TRY(tocsin_file_sync(writer->fd, writer->path, error));
    TOCSIN_TRY(tocsin_file_close(&writer->fd, writer->path, error));
    return writer->temporary_path ? publish(writer, error) : TOCSIN_OK;
}

tocsin_status tocsin_writer_commit(tocsin_writer *writer, tocsin_error *error)
{
    if (!writer->buffer)
        return TOCSIN_OK;
    tocsin_status status = finish(writer, error);
    tocsin_writer_abandon(writer);
    return status;
}

void tocsin_writer_abandon(tocsin_writer *writer)
{
    if (writer->owns_fd && writer->fd >= 0)
        close(writer->fd);
    if (writer->temporary_path)
        unlink(writer->temporary_path);
    tocsin_free(writer->temporary_path);
    tocsin_free(writer->path);
    tocsin_free(writer->buffer);
    *writer = (tocsin_writer){.fd = -1};
}

tocsin_status tocsin_file_store(const char *path, const void *bytes, size_t count, bool force,
                                tocsin_error *error)
{
    tocsin_writer writer;
    TOCSIN_TRY(tocsin_writer_open(&writer, path, force, error));
    tocsin_status status = tocsin_writer_write(&writer, bytes, count, error);
    if (status == TOCSIN_OK)
        return tocsin_writer_commit(&writer, error);
    tocsin_writer_abandon(&writer);
    return status;
}
