/* file_io.c - system calls on files, with statuses.
 *
 * Each call is one fault point; EINTR is retried and short reads and writes are continued here, so
 * that callers see either everything or an error.
 */
#include <assert.h>
#include <base/base.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Is this system call to fail? Sets errno as a failing disk would. */
static bool refuse(void)
{
    if (!tocsin_fault_hit(TOCSIN_FAULT_IO))
        return false;
    errno = EIO;
    return true;
}

tocsin_status tocsin_file_open(const char *path, int flags, mode_t mode, int *fd,
                               tocsin_error *error)
{
    assert(path && fd);
    *fd = -1;
    int opened = -1;
    do
        opened = refuse() ? -1 : open(path, flags | O_CLOEXEC, mode);
    while (opened < 0 && errno == EINTR);
    if (opened < 0)
        return tocsin_error_system(error, (flags & O_CREAT) ? "create" : "open", path);
    *fd = opened;
    return TOCSIN_OK;
}

tocsin_status tocsin_file_read(int fd, void *memory, size_t bytes, int64_t offset, size_t *count,
                               const char *where, tocsin_error *error)
{
    assert(fd >= 0 && count);
    assert(memory || bytes == 0);
    unsigned char *place = memory;
    *count = 0;
    while (*count < bytes) {
        ssize_t got = -1;
        if (!refuse())
            got = offset < 0 ? read(fd, place + *count, bytes - *count)
                             : pread(fd, place + *count, bytes - *count,
                                     (off_t)(offset + (int64_t)*count));
        if (got == 0)
            break;
        if (got > 0)
            *count += (size_t)got;
        else if (errno != EINTR)
            return tocsin_error_system(error, "read", where);
    }
    return TOCSIN_OK;
}

tocsin_status tocsin_file_write(int fd, const void *memory, size_t bytes, const char *where,
                                tocsin_error *error)
{
    assert(fd >= 0);
    assert(memory || bytes == 0);
    const unsigned char *place = memory;
    while (bytes > 0) {
        ssize_t put = refuse() ? -1 : write(fd, place, bytes);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return tocsin_error_system(error, "write", where);
        place += put;
        bytes -= (size_t)put;
    }
    return TOCSIN_OK;
}

tocsin_status tocsin_file_sync(int fd, const char *where, tocsin_error *error)
{
    int result = -1;
    do
        result = refuse() ? -1 : fsync(fd);
    while (result != 0 && errno == EINTR);
    /* Pipes and some file systems have nothing to flush. */
    if (result != 0 && errno != EINVAL && errno != ENOTSUP)
        return tocsin_error_system(error, "flush", where);
    return TOCSIN_OK;
}

tocsin_status tocsin_file_resize(int fd, uint64_t bytes, const char *where, tocsin_error *error)
{
    assert(bytes <= INT64_MAX);
    int result = -1;
    do
        result = refuse() ? -1 : ftruncate(fd, (off_t)bytes);
    while (result != 0 && errno == EINTR);
    return result == 0 ? TOCSIN_OK : tocsin_error_system(error, "resize", where);
}

tocsin_status tocsin_file_size(int fd, uint64_t *bytes, const char *where, tocsin_error *error)
{
    struct stat facts;
    if (refuse() || fstat(fd, &facts) != 0)
        return tocsin_error_system(error, "examine", where);
    *bytes = (uint64_t)facts.st_size;
    return TOCSIN_OK;
}

tocsin_status tocsin_file_map(int fd, uint64_t offset, size_t bytes, bool writable, void **memory,
                              const char *where, tocsin_error *error)
{
    assert(bytes > 0 && memory);
    assert(offset <= INT64_MAX);
    *memory = NULL;
    int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void *mapped =
        refuse() ? MAP_FAILED : mmap(NULL, bytes, protection, MAP_SHARED, fd, (off_t)offset);
    if (mapped == MAP_FAILED)
        return tocsin_error_system(error, "map", where);
    *memory = mapped;
    return TOCSIN_OK;
}

void tocsin_file_unmap(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}

tocsin_status tocsin_file_close(int *fd, const char *where, tocsin_error *error)
{
    if (*fd < 0)
        return TOCSIN_OK;
    bool refused = refuse();
    /* Linux closes the descriptor even when close reports EINTR: never retry it. */
    int result = close(*fd);
    *fd = -1;
    if (refused)
        errno = EIO;
    if (refused || (result != 0 && errno != EINTR))
        return tocsin_error_system(error, "close", where);
    return TOCSIN_OK;
}

static tocsin_status load_from(int fd, const char *path, size_t limit_bytes, tocsin_string *content,
                               tocsin_error *error)
{
    size_t total = 0;
    for (;;) {
        unsigned char part[16 * 1024];
        size_t count = 0;
        TOCSIN_TRY(tocsin_file_read(fd, part, sizeof part, -1, &count, path, error));
        if (count > limit_bytes - total)
            return tocsin_error_at(error, TOCSIN_E_LIMIT, path, (int64_t)limit_bytes,
                                   "larger than the limit of %zu bytes", limit_bytes);
        total += count;
        tocsin_string_append(content, part, count);
        TOCSIN_TRY(tocsin_string_check(content, error));
        if (count < sizeof part)
            return TOCSIN_OK;
    }
}

tocsin_status tocsin_file_load(const char *path, size_t limit_bytes, tocsin_string *content,
                               tocsin_error *error)
{
    int fd = -1;
    TOCSIN_TRY(tocsin_file_open(path, O_RDONLY, 0, &fd, error));
    tocsin_status status = load_from(fd, path, limit_bytes, content, error);
    close(fd); /* opened for reading: nothing can be lost */
    return status;
}

tocsin_status tocsin_file_rename(const char *from, const char *to, bool exchange,
                                 tocsin_error *error)
{
    int result = -1;
    if (!refuse())
        result = renameat2(AT_FDCWD, from, AT_FDCWD, to, exchange ? RENAME_EXCHANGE : 0);
    if (result == 0)
        return TOCSIN_OK;
    if (exchange && (errno == EINVAL || errno == ENOSYS))
        return tocsin_error_at(error, TOCSIN_E_UNSUPPORTED, to, -1,
                               "this file system cannot exchange two names");
    return tocsin_error_system(error, "replace", to);
}

tocsin_status tocsin_file_sync_folder(const char *path, tocsin_error *error)
{
    const char *slash = strrchr(path, '/');
    size_t bytes = slash ? (size_t)(slash - path) : 0;
    char *folder = slash == path ? tocsin_copy_text("/", 1)
                   : slash       ? tocsin_copy_text(path, bytes)
                                 : tocsin_copy_text(".", 1);
    int fd = -1;
    if (!folder)
        return tocsin_error_memory(error);
    tocsin_status status = tocsin_file_open(folder, O_RDONLY | O_DIRECTORY, 0, &fd, error);
    if (status == TOCSIN_OK)
        status = tocsin_file_sync(fd, folder, error);
    if (status == TOCSIN_OK)
        status = tocsin_file_close(&fd, folder, error);
    else if (fd >= 0)
        close(fd);
    tocsin_free(folder);
    return status;
}
