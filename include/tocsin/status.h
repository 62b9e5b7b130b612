/* tocsin/status.h - how every function of Tocsin reports failure.
 *
 * A fallible function returns a tocsin_status and takes, as its last argument, a caller-owned
 * `tocsin_error *` that may be NULL. The error is written only on failure. The library never
 * prints, exits or installs signal handlers: it lives inside training jobs.
 *
 * Threads: a tocsin_error belongs to one call at a time; nothing here is shared.
 */
#ifndef TOCSIN_STATUS_H
#define TOCSIN_STATUS_H

#include <stdint.h>

#if defined(__GNUC__)
#define TOCSIN_MUST_CHECK __attribute__((warn_unused_result))
#define TOCSIN_PRINTF(format_index, first_argument) \
    __attribute__((format(printf, format_index, first_argument)))
#define TOCSIN_API __attribute__((visibility("default")))
#else
#define TOCSIN_MUST_CHECK
#define TOCSIN_PRINTF(format_index, first_argument)
#define TOCSIN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* X(code, name, meaning). Numbers are stable; gaps are for later codes. */
#define TOCSIN_STATUS_TABLE(X)                                                   \
    X(0, OK, "success")                                                          \
    X(1, E_MEMORY, "out of memory")                                              \
    X(2, E_IO, "the operating system refused a read or write")                   \
    X(3, E_ARGUMENT, "the caller passed something the function does not accept") \
    X(4, E_NOT_FOUND, "no such file, run, function or name")                     \
    X(5, E_FORMAT, "the input is not in the expected format")                    \
    X(6, E_VERSION, "the input was written by an incompatible version")          \
    X(7, E_CORRUPT, "a checksum or an invariant of the format does not hold")    \
    X(8, E_LIMIT, "an explicit limit was exceeded")                              \
    X(9, E_UNSUPPORTED, "valid, but not supported by this build or machine")     \
    X(10, E_EXISTS, "the output exists already")                                 \
    X(11, E_STATE, "the call does not fit the object's state")                   \
    X(20, E_INTERNAL, "a bug in Tocsin")

typedef enum tocsin_status {
#define X(code, name, meaning) TOCSIN_##name = code,
    TOCSIN_STATUS_TABLE(X)
#undef X
} tocsin_status;

#define TOCSIN_ERROR_MESSAGE_BYTES 512
#define TOCSIN_ERROR_WHERE_BYTES 256

/* What went wrong and where. `where` is a path or another name of the place, or "". */
typedef struct tocsin_error {
    tocsin_status code;
    char message[TOCSIN_ERROR_MESSAGE_BYTES];
    char where[TOCSIN_ERROR_WHERE_BYTES];
    int64_t offset; /* byte offset in `where`, -1 when none */
} tocsin_error;

/* The short meaning of a status, never NULL; "unknown status" for a number not in the table. */
TOCSIN_API const char *tocsin_status_text(tocsin_status status);

/* Fill `error` (nullable) with `code`, a formatted message and no place. Returns `code`. */
TOCSIN_API tocsin_status tocsin_error_set(tocsin_error *error, tocsin_status code,
                                          const char *format, ...) TOCSIN_PRINTF(3, 4);

/* Like tocsin_error_set, with the place: `where` (nullable, cut to fit) and a byte offset (-1:
 * none). */
TOCSIN_API tocsin_status tocsin_error_at(tocsin_error *error, tocsin_status code, const char *where,
                                         int64_t offset, const char *format, ...)
    TOCSIN_PRINTF(5, 6);

#ifdef __cplusplus
}
#endif
#endif
