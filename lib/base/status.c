/* status.c - statuses and errors as text.
 *
 * An error is a fixed-size value owned by the caller: reporting one allocates nothing, so it works
 * when memory has run out. Texts that do not fit are cut.
 */
#include <assert.h>
#include <base/base.h>
#include <errno.h>
#include <stdio.h>

const char *tocsin_status_text(tocsin_status status)
{
    switch (status) {
#define X(code, name, meaning)                                                                     \
    case TOCSIN_##name:                                                                            \
        return meaning;
        TOCSIN_STATUS_TABLE(X)
#undef X
    }
    return "unknown status";
}

static void set_place(tocsin_error *error, const char *where, int64_t offset)
{
    snprintf(error->where, sizeof error->where, "%s", where ? where : "");
    error->offset = offset;
}

tocsin_status tocsin_error_set(tocsin_error *error, tocsin_status code, const char *format, ...)
{
    assert(code != TOCSIN_OK);
    if (error) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(error->message, sizeof error->message, format, arguments);
        va_end(arguments);
        error->code = code;
        set_place(error, NULL, -1);
    }
    return code;
}

tocsin_status tocsin_error_at(tocsin_error *error, tocsin_status code, const char *where,
                              int64_t offset, const char *format, ...)
{
    assert(code != TOCSIN_OK);
    if (error) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(error->message, sizeof error->message, format, arguments);
        va_end(arguments);
        error->code = code;
        set_place(error, where, offset);
    }
    return code;
}

tocsin_status tocsin_error_memory(tocsin_error *error)
{
    return tocsin_error_set(error, TOCSIN_E_MEMORY, "out of memory");
}

tocsin_status tocsin_error_system(tocsin_error *error, const char *verb, const char *where)
{
    int number = errno;
    tocsin_status code = TOCSIN_E_IO;
    if (number == ENOENT || number == ENOTDIR)
        code = TOCSIN_E_NOT_FOUND;
    else if (number == EEXIST)
        code = TOCSIN_E_EXISTS;
    else if (number == ENOMEM)
        code = TOCSIN_E_MEMORY;
    char text[128];
    /* GNU strerror_r: thread-safe, and may return a constant instead of `text`. */
    const char *reason = strerror_r(number, text, sizeof text);
    return tocsin_error_at(error, code, where, -1, "cannot %s: %s", verb, reason);
}
