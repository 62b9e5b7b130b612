/* lib/base/base.h - layer 0: what every other module stands on. The one header of the module.
 *
 *   1 errors      2 memory     3 arena   4 vec     5 map       6 intern table   7 string builder
 *   8 files       9 JSON out  10 JSON in 11 varint 12 hash    13 thread pool   14 faults, clock
 *
 * Threads: nothing here has hidden shared state except the fault counters, which are atomic. An
 * object belongs to one thread at a time unless its section says otherwise.
 * Memory: objects marked "zero is empty" need no init call: `tocsin_map map = {0};`.
 */
#ifndef TOCSIN_BASE_H
#define TOCSIN_BASE_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <tocsin/status.h>

/* ---- 1. Errors (tocsin/status.h, continued) ------------------------------------------------ */

/* Evaluate a tocsin_status expression; return it from the enclosing function unless it is OK. */
#define TOCSIN_TRY(expression)                                                                     \
    do {                                                                                           \
        tocsin_status try_status_ = (expression);                                                  \
        if (try_status_ != TOCSIN_OK)                                                              \
            return try_status_;                                                                    \
    } while (0)

/* E_MEMORY with the standard message. */
tocsin_status tocsin_error_memory(tocsin_error *error);

/* The status for the current errno, with `verb` ("open", "write"), the place and strerror's text:
 * E_NOT_FOUND (ENOENT, ENOTDIR), E_EXISTS (EEXIST), E_MEMORY (ENOMEM), else E_IO. */
tocsin_status tocsin_error_system(tocsin_error *error, const char *verb, const char *where);

#define TOCSIN_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* ---- 2. Memory ----------------------------------------------------------------------------- */

/* All heap memory of the library comes from here, so that fault injection reaches each call.
 * Each returns NULL when out of memory or when count * bytes overflows; 0 bytes give a valid
 * pointer. Free with tocsin_free (accepts NULL). */
TOCSIN_MUST_CHECK void *tocsin_alloc(size_t bytes);
TOCSIN_MUST_CHECK void *tocsin_zalloc(size_t count, size_t bytes); /* zeroed */
TOCSIN_MUST_CHECK void *tocsin_realloc(void *memory, size_t count, size_t bytes);
void tocsin_free(void *memory);

/* A copy of `bytes` bytes with a 0 after them; NULL when out of memory. */
TOCSIN_MUST_CHECK char *tocsin_copy_text(const char *text, size_t bytes);

/* ---- 3. Arena ------------------------------------------------------------------------------ */

/* Bump allocation, freed all at once or back to a mark. Zero is empty (64 KiB chunks). */
typedef struct tocsin_arena {
    struct tocsin_arena_chunk *chunk; /* the newest; older ones hang behind it */
    size_t chunk_bytes;               /* size of ordinary chunks; 0: 64 KiB */
    size_t used_bytes;                /* handed out and not reset, padding included */
} tocsin_arena;

typedef struct tocsin_arena_mark {
    struct tocsin_arena_chunk *chunk;
    size_t chunk_used;
    size_t used_bytes;
} tocsin_arena_mark;

/* `align` is a power of two <= 4096. NULL when out of memory. Not zeroed. */
TOCSIN_MUST_CHECK void *tocsin_arena_alloc(tocsin_arena *arena, size_t bytes, size_t align);
/* A copy of `bytes` bytes with a 0 after them. */
TOCSIN_MUST_CHECK char *tocsin_arena_copy(tocsin_arena *arena, const void *bytes, size_t count);
/* A copy of the items of a TOCSIN_VEC. NULL when out of memory, never for an empty one. */
TOCSIN_MUST_CHECK void *tocsin_arena_copy_items(tocsin_arena *arena, const void *items,
                                                size_t count, size_t item_bytes);
#define TOCSIN_ARENA_NEW(arena, type)                                                              \
    ((type *)tocsin_arena_alloc((arena), sizeof(type), _Alignof(type)))
/* `count` items of `bytes` bytes; NULL also when the size overflows. */
static inline void *tocsin_arena_array(tocsin_arena *arena, size_t count, size_t bytes,
                                       size_t align)
{
    return count > SIZE_MAX / bytes ? NULL : tocsin_arena_alloc(arena, count * bytes, align);
}
#define TOCSIN_ARENA_ARRAY(arena, type, count)                                                     \
    ((type *)tocsin_arena_array((arena), (size_t)(count), sizeof(type), _Alignof(type)))

tocsin_arena_mark tocsin_arena_get_mark(const tocsin_arena *arena);
/* Forget everything allocated since the mark. Marks taken after it become invalid. */
void tocsin_arena_reset_to(tocsin_arena *arena, tocsin_arena_mark mark);
/* Forget everything; one chunk is kept for reuse. */
void tocsin_arena_reset(tocsin_arena *arena);
void tocsin_arena_free(tocsin_arena *arena);

/* ---- 4. Vec -------------------------------------------------------------------------------- */

/* A growable array: `TOCSIN_VEC(int) numbers = {0};`, then .items[i] for i < .count. Zero is empty.
 * The macros evaluate `vec` more than once. */
#define TOCSIN_VEC(type)                                                                           \
    struct {                                                                                       \
        type *items;                                                                               \
        size_t count;                                                                              \
        size_t capacity;                                                                           \
    }
/* Append one item (a compound literal may contain commas). false: out of memory, vec unchanged. */
#define TOCSIN_VEC_PUSH(vec, ...)                                                                  \
    (TOCSIN_VEC_RESERVE(vec, 1) && ((vec)->items[(vec)->count++] = (__VA_ARGS__), true))
/* Make room for `more` further items. false: out of memory or overflow, vec unchanged. */
#define TOCSIN_VEC_RESERVE(vec, more)                                                              \
    tocsin_vec_grow(&(vec)->items, &(vec)->capacity, (vec)->count, (more), sizeof *(vec)->items)
#define TOCSIN_VEC_FREE(vec)                                                                       \
    (tocsin_free((vec)->items), (vec)->items = NULL, (vec)->count = 0, (vec)->capacity = 0, (void)0)

/* Behind TOCSIN_VEC_RESERVE; `items` is the address of the typed pointer. Doubles the capacity. */
TOCSIN_MUST_CHECK bool tocsin_vec_grow(void *items, size_t *capacity, size_t count, size_t more,
                                       size_t item_bytes);

/* ---- 5. Map -------------------------------------------------------------------------------- */

/* uint64_t -> uint64_t, open addressing with linear probing; all keys allowed. Zero is empty.
 * Pointers are stored as (uintptr_t). A map keyed by bytes is an intern table (6) and a vec indexed
 * by its ids. */
typedef struct tocsin_map {
    struct tocsin_map_slot *slots;
    size_t capacity; /* power of two, or 0 */
    size_t count;    /* keys, key 0 included */
    bool has_zero;   /* key 0 stands outside the slots, where 0 means empty */
    uint64_t zero_value;
} tocsin_map;

/* The value of `key`, or NULL. Valid until the next insertion or removal. */
uint64_t *tocsin_map_find(const tocsin_map *map, uint64_t key);
/* The value of `key`, inserted as 0 when new; NULL when out of memory (map unchanged). */
TOCSIN_MUST_CHECK uint64_t *tocsin_map_at(tocsin_map *map, uint64_t key);
/* Set key to value. false: out of memory. */
TOCSIN_MUST_CHECK bool tocsin_map_put(tocsin_map *map, uint64_t key, uint64_t value);
/* Was there such a key? */
bool tocsin_map_remove(tocsin_map *map, uint64_t key);
/* Visit all in unspecified order: start with *cursor = 0; false at the end. The map must not change
 * meanwhile (values may). */
bool tocsin_map_next(const tocsin_map *map, size_t *cursor, uint64_t *key, uint64_t **value);
void tocsin_map_clear(tocsin_map *map); /* keeps the capacity */
void tocsin_map_free(tocsin_map *map);

/* ---- 6. Intern table ----------------------------------------------------------------------- */

/* Byte strings -> dense ids 1, 2, 3, ... in order of first appearance. Zero is empty. */
typedef struct tocsin_intern {
    tocsin_arena arena;
    TOCSIN_VEC(struct tocsin_intern_entry) entries; /* entry id - 1 */
    uint32_t *slots;                                /* ids; 0 is empty */
    uint32_t capacity;                              /* power of two, or 0 */
    uint32_t limit_count;                           /* ids at most; 0: 2^24 */
} tocsin_intern;

struct tocsin_intern_entry {
    const char *text;
    uint32_t bytes;
    uint32_t hash;
};

/* The id of these bytes, new if needed. 0: out of memory, or the limit is reached. */
TOCSIN_MUST_CHECK uint32_t tocsin_intern_put(tocsin_intern *table, const void *bytes, size_t count);
/* The id of these bytes, or 0. */
uint32_t tocsin_intern_find(const tocsin_intern *table, const void *bytes, size_t count);
/* The bytes of `id`, with a 0 after them, at an address that stays until _free. NULL for ids never
 * given. `count` may be NULL. */
const char *tocsin_intern_text(const tocsin_intern *table, uint32_t id, size_t *count);
/* The same as a text; "" for ids never given. */
const char *tocsin_intern_string(const tocsin_intern *table, uint32_t id);
uint32_t tocsin_intern_count(const tocsin_intern *table); /* the highest id */
void tocsin_intern_free(tocsin_intern *table);

/* ---- 7. String builder --------------------------------------------------------------------- */

/* Bytes that grow at the end, up to a limit. A failure sticks: appending goes on doing nothing, and
 * one look at `status` after the last append is enough. Zero is empty. */
typedef struct tocsin_string {
    char *text; /* `bytes` bytes and a 0; NULL while nothing was appended */
    size_t bytes;
    size_t capacity;
    size_t limit_bytes;   /* 0: 1 GiB */
    tocsin_status status; /* OK, E_MEMORY or E_LIMIT */
} tocsin_string;

void tocsin_string_append(tocsin_string *string, const void *bytes, size_t count);
void tocsin_string_append_text(tocsin_string *string, const char *text);
void tocsin_string_append_char(tocsin_string *string, char character);
void tocsin_string_printf(tocsin_string *string, const char *format, ...) TOCSIN_PRINTF(2, 3);
void tocsin_string_vprintf(tocsin_string *string, const char *format, va_list arguments)
    TOCSIN_PRINTF(2, 0);
/* The text so far, never NULL ("" after a failure at the start). */
const char *tocsin_string_text(const tocsin_string *string);
/* status as an error with a message. */
TOCSIN_MUST_CHECK tocsin_status tocsin_string_check(const tocsin_string *string,
                                                    tocsin_error *error);
/* Empty it and forget a failure; the memory is kept. */
void tocsin_string_clear(tocsin_string *string);
void tocsin_string_free(tocsin_string *string);

/* Length of the well-formed UTF-8 sequence at `text`, which has `available` > 0 bytes; 0: none. */
size_t tocsin_utf8_length(const char *text, size_t available);

/* Does the whole text fit a pattern in which * stands for any characters and ? for one? */
bool tocsin_text_fits(const char *pattern, const char *text);
/* "2027-01-31"? Such texts are in the order of time. */
bool tocsin_text_is_date(const char *text);

/* ---- 8. Files ------------------------------------------------------------------------------ */

/* System calls with errors as statuses, EINTR handled, each one a point where a fault can be
 * injected. `where` names the file in errors. */
TOCSIN_MUST_CHECK tocsin_status tocsin_file_open(const char *path, int flags, mode_t mode, int *fd,
                                                 tocsin_error *error); /* adds O_CLOEXEC */
/* Read up to `bytes`; *count < bytes only at the end of the file. offset -1: the current position.
 */
TOCSIN_MUST_CHECK tocsin_status tocsin_file_read(int fd, void *memory, size_t bytes, int64_t offset,
                                                 size_t *count, const char *where,
                                                 tocsin_error *error);
/* Write all. */
TOCSIN_MUST_CHECK tocsin_status tocsin_file_write(int fd, const void *memory, size_t bytes,
                                                  const char *where, tocsin_error *error);
TOCSIN_MUST_CHECK tocsin_status tocsin_file_sync(int fd, const char *where, tocsin_error *error);
TOCSIN_MUST_CHECK tocsin_status tocsin_file_resize(int fd, uint64_t bytes, const char *where,
                                                   tocsin_error *error);
TOCSIN_MUST_CHECK tocsin_status tocsin_file_size(int fd, uint64_t *bytes, const char *where,
                                                 tocsin_error *error);
/* mmap MAP_SHARED; unmap with tocsin_file_unmap. `offset` is a multiple of the page size. */
TOCSIN_MUST_CHECK tocsin_status tocsin_file_map(int fd, uint64_t offset, size_t bytes,
                                                bool writable, void **memory, const char *where,
                                                tocsin_error *error);
void tocsin_file_unmap(void *memory, size_t bytes);
/* Close reports what write could not (NFS, quota). *fd becomes -1; a negative *fd is OK. */
TOCSIN_MUST_CHECK tocsin_status tocsin_file_close(int *fd, const char *where, tocsin_error *error);

/* Give a file or folder another name; what has that name is replaced (a folder only if it is
 * empty). `exchange`: both names must be there and are exchanged at once; E_UNSUPPORTED where the
 * file system cannot. */
TOCSIN_MUST_CHECK tocsin_status tocsin_file_rename(const char *from, const char *to, bool exchange,
                                                   tocsin_error *error);
/* fsync of the folder in which `path` lies: names in it last. */
TOCSIN_MUST_CHECK tocsin_status tocsin_file_sync_folder(const char *path, tocsin_error *error);

/* The whole file appended to `content`; E_LIMIT if it has more than `limit_bytes`. */
TOCSIN_MUST_CHECK tocsin_status tocsin_file_load(const char *path, size_t limit_bytes,
                                                 tocsin_string *content, tocsin_error *error);
/* Replace the file at once: temporary file beside it, fsync, rename. Readers see the old or the new
 * content, never a part. E_EXISTS when it exists and not `force`. */
TOCSIN_MUST_CHECK tocsin_status tocsin_file_store(const char *path, const void *bytes, size_t count,
                                                  bool force, tocsin_error *error);

/* Buffered reading. Free with _close. */
typedef struct tocsin_reader {
    int fd;
    char *path; /* a copy, for errors */
    uint8_t *buffer;
    size_t begin, end;  /* unread bytes of the buffer */
    uint64_t offset;    /* in the file, of the next unread byte */
    tocsin_string line; /* the last line, when it did not fit the buffer */
} tocsin_reader;

TOCSIN_MUST_CHECK tocsin_status tocsin_reader_open(tocsin_reader *reader, const char *path,
                                                   tocsin_error *error);
/* *count < bytes only at the end of the file. */
TOCSIN_MUST_CHECK tocsin_status tocsin_reader_read(tocsin_reader *reader, void *memory,
                                                   size_t bytes, size_t *count,
                                                   tocsin_error *error);
/* The next line without its "\n", valid until the next call; *line is NULL at the end of the file.
 * E_LIMIT if it has more than `limit_bytes`. Lines may contain 0 bytes. */
TOCSIN_MUST_CHECK tocsin_status tocsin_reader_line(tocsin_reader *reader, size_t limit_bytes,
                                                   const char **line, size_t *bytes,
                                                   tocsin_error *error);
void tocsin_reader_close(tocsin_reader *reader);

/* Buffered writing to a file that appears, complete, at _commit (as tocsin_file_store does). "-" is
 * standard output; what exists and is no regular file (/dev/null, a pipe) is written to, not
 * replaced. Either _commit or _abandon ends it; both may be called on an ended one. A failure
 * sticks: _write after it returns it again. */
typedef struct tocsin_writer {
    int fd;
    bool force;
    char *path;
    bool owns_fd;         /* false: standard output */
    char *temporary_path; /* NULL: nothing to rename at the end */
    uint8_t *buffer;
    size_t used;
    tocsin_status status;
} tocsin_writer;

TOCSIN_MUST_CHECK tocsin_status tocsin_writer_open(tocsin_writer *writer, const char *path,
                                                   bool force, tocsin_error *error);
TOCSIN_MUST_CHECK tocsin_status tocsin_writer_write(tocsin_writer *writer, const void *bytes,
                                                    size_t count, tocsin_error *error);
TOCSIN_MUST_CHECK tocsin_status tocsin_writer_commit(tocsin_writer *writer, tocsin_error *error);
void tocsin_writer_abandon(tocsin_writer *writer);

/* ---- 9. JSON out --------------------------------------------------------------------------- */

/* Appends JSON to a string builder, deterministically: no spaces, members in the order given.
 * `tocsin_json json = {.out = &string};` Failures stick in the string. Wrong nesting is an assert.
 */
#define TOCSIN_JSON_DEPTH_MAX 64
typedef struct tocsin_json {
    tocsin_string *out;
    uint64_t filled; /* bit d: the container at depth d has an item */
    unsigned depth;
    bool after_key;
} tocsin_json;

void tocsin_json_begin_object(tocsin_json *json);
void tocsin_json_end_object(tocsin_json *json);
void tocsin_json_begin_array(tocsin_json *json);
void tocsin_json_end_array(tocsin_json *json);
void tocsin_json_key(tocsin_json *json, const char *key);
/* Any bytes: control characters are escaped, bytes that are not UTF-8 become U+FFFD. */
void tocsin_json_string(tocsin_json *json, const char *text, size_t bytes);
void tocsin_json_text(tocsin_json *json, const char *text); /* NULL: null */
void tocsin_json_integer(tocsin_json *json, int64_t value);
void tocsin_json_unsigned(tocsin_json *json, uint64_t value);
/* The fewest of 15, 16 or 17 digits that read back as the same double, always with "." or "e"
 * (1.0), in any locale; null for NaN and infinities, which JSON does not have. */
void tocsin_json_real(tocsin_json *json, double value);
void tocsin_json_bool(tocsin_json *json, bool value);
void tocsin_json_null(tocsin_json *json);
/* A value that is JSON already: it is neither looked at nor changed. */
void tocsin_json_verbatim(tocsin_json *json, const char *text, size_t bytes);
/* A member of the object that is open: key and value. */
void tocsin_json_put_text(tocsin_json *json, const char *key, const char *text);
void tocsin_json_put_unsigned(tocsin_json *json, const char *key, uint64_t value);

/* tocsin_json_real's text, for other printers ("nan", "inf", "-inf" for what JSON does not have).
 * Returns its bytes without the 0. */
#define TOCSIN_REAL_TEXT_BYTES 40
size_t tocsin_real_text(double value, char text[TOCSIN_REAL_TEXT_BYTES]);

/* ---- 10. JSON in --------------------------------------------------------------------------- */

/* One parsed value and what is in it (jansson behind this door: nobody else includes it). Strict
 * RFC 8259: UTF-8, no duplicate keys, no NaN, nothing after the value. Values live until the root
 * is freed. */
typedef struct tocsin_json_value tocsin_json_value;

typedef enum tocsin_json_kind {
    TOCSIN_JSON_NULL,
    TOCSIN_JSON_BOOL,
    TOCSIN_JSON_INTEGER, /* 64 bits signed; a larger one is E_FORMAT */
    TOCSIN_JSON_REAL,
    TOCSIN_JSON_STRING,
    TOCSIN_JSON_ARRAY,
    TOCSIN_JSON_OBJECT
} tocsin_json_kind;

/* Errors: E_FORMAT (where: `where`, offset: byte in text), E_MEMORY. */
TOCSIN_MUST_CHECK tocsin_status tocsin_json_parse(const char *text, size_t bytes, const char *where,
                                                  tocsin_json_value **root, tocsin_error *error);
void tocsin_json_free(tocsin_json_value *root);

/* All accept NULL and wrong kinds and then answer NULL, 0 or false, so that a path of look-ups
 * needs one check at its end. */
tocsin_json_kind tocsin_json_get_kind(const tocsin_json_value *value); /* NULL: JSON_NULL */
size_t tocsin_json_get_count(const tocsin_json_value *value);          /* array, object */
const tocsin_json_value *tocsin_json_get_item(const tocsin_json_value *array, size_t index);
const tocsin_json_value *tocsin_json_get_member(const tocsin_json_value *object, const char *key);
const char *tocsin_json_get_text(const tocsin_json_value *value); /* ends in 0, contains none */
bool tocsin_json_get_integer(const tocsin_json_value *value, int64_t *integer);
bool tocsin_json_get_real(const tocsin_json_value *value, double *real); /* integers too */
bool tocsin_json_get_bool(const tocsin_json_value *value, bool *boolean);
/* Visit members in file order: start with *cursor = NULL; false at the end. */
bool tocsin_json_next_member(const tocsin_json_value *object, void **cursor, const char **key,
                             const tocsin_json_value **value);

/* JSON values, one a line. The first line is an object with the members "format" and "version";
 * blank lines behind it are passed over. */
typedef struct tocsin_json_lines {
    const char *format, *title; /* "tocsin-suppressions", "a file of suppressions" */
    int version;
    size_t line_bytes_max; /* of a file */
    const char *path;      /* of a text in memory: its name, for errors */
    void *context;         /* the caller's */
    /* What else the first line says; NULL: nothing. */
    tocsin_status (*header)(const struct tocsin_json_lines *lines, const tocsin_json_value *line);
    tocsin_status (*item)(const struct tocsin_json_lines *lines, const tocsin_json_value *line);
    uint64_t line; /* number of the one at hand, from 1; 0 at the start */
    tocsin_error *error;
} tocsin_json_lines;

/* Errors: those of the two functions, E_FORMAT, E_VERSION, E_LIMIT (a long line), E_IO. */
TOCSIN_MUST_CHECK tocsin_status tocsin_json_lines_read(tocsin_json_lines *lines);
/* The same of a text in memory. */
TOCSIN_MUST_CHECK tocsin_status tocsin_json_lines_read_text(tocsin_json_lines *lines,
                                                            const char *text, size_t bytes);
/* E_FORMAT at the line at hand. */
tocsin_status tocsin_json_lines_refuse(const tocsin_json_lines *lines, const char *format, ...)
    TOCSIN_PRINTF(2, 3);
/* What is made of the line at hand failed: the line is refused where it says what cannot be (inner
 * E_ARGUMENT or E_FORMAT), any other error is passed on. */
tocsin_status tocsin_json_lines_fail(const tocsin_json_lines *lines, const tocsin_error *inner);

/* ---- 11. Varint ---------------------------------------------------------------------------- */

/* LEB128: 7 bits a byte, low first, the top bit says that more follow. */
#define TOCSIN_VARINT_BYTES_MAX 10

/* Writes 1..10 bytes; returns how many. */
static inline size_t tocsin_varint_put(uint8_t *out, uint64_t value)
{
    size_t count = 0;
    while (value >= 0x80) {
        out[count++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    out[count++] = (uint8_t)value;
    return count;
}

/* Reads one value from at most `available` bytes; returns how many it took, 0 when the bytes end
 * before the value does or it has more than 64 bits. */
TOCSIN_MUST_CHECK size_t tocsin_varint_get(const uint8_t *bytes, size_t available, uint64_t *value);

/* Signed values with small magnitudes as small unsigned ones: 0, -1, 1, -2 -> 0, 1, 2, 3. */
static inline uint64_t tocsin_zigzag_encode(int64_t value)
{
    return ((uint64_t)value << 1) ^ (0 - ((uint64_t)value >> 63));
}

static inline int64_t tocsin_zigzag_decode(uint64_t value)
{
    return (int64_t)((value >> 1) ^ (0 - (value & 1)));
}

/* ---- 12. Hash ------------------------------------------------------------------------------ */

typedef struct tocsin_hash128 {
    uint64_t low, high;
} tocsin_hash128;

/* XXH3 (stable across versions and machines; not cryptographic). */
uint64_t tocsin_hash64(const void *bytes, size_t count, uint64_t seed);
tocsin_hash128 tocsin_hash128_of(const void *bytes, size_t count, uint64_t seed);

/* A bijection that spreads every input bit (splitmix64's finisher). */
static inline uint64_t tocsin_mix64(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

/* ---- 13. Thread pool ----------------------------------------------------------------------- */

typedef struct tocsin_pool tocsin_pool;

/* A job is one index. It may run on any thread of the pool, or on the caller's. */
typedef tocsin_status tocsin_pool_job(void *context, size_t index, tocsin_error *error);

/* `threads` in all, the caller of _run included (0: one per CPU this process may use). Workers
 * block all signals. Errors: E_MEMORY, E_IO (no thread). */
TOCSIN_MUST_CHECK tocsin_status tocsin_pool_new(unsigned threads, tocsin_pool **pool,
                                                tocsin_error *error);
unsigned tocsin_pool_threads(const tocsin_pool *pool);
/* Run job(context, 0 .. count-1, ...) and wait. Indices start in ascending order; after a failure
 * no further one starts. The result is that of the lowest failing index: it does not depend on
 * timing. One _run at a time; not from inside a job. */
TOCSIN_MUST_CHECK tocsin_status tocsin_pool_run(tocsin_pool *pool, size_t count,
                                                tocsin_pool_job *job, void *context,
                                                tocsin_error *error);
void tocsin_pool_free(tocsin_pool *pool);

/* ---- 14. Fault injection and clock --------------------------------------------------------- */

typedef enum tocsin_fault {
    TOCSIN_FAULT_MEMORY, /* allocations */
    TOCSIN_FAULT_IO,     /* system calls on files */
    TOCSIN_FAULT_COUNT
} tocsin_fault;

/* From now on count the calls of this kind, in all threads, and let the `nth` (from 1) fail, once.
 *
 *     for (uint64_t nth = 1;; ++nth) {
 *         tocsin_fault_arm(TOCSIN_FAULT_MEMORY, nth);
 *         tocsin_status status = operation();
 *         if (!tocsin_fault_disarm(TOCSIN_FAULT_MEMORY))
 *             break;                     // it made fewer than nth calls: all were tried
 *         assert(status == TOCSIN_E_MEMORY);
 *     }
 */
void tocsin_fault_arm(tocsin_fault kind, uint64_t nth);
/* Stop; did it fire? */
bool tocsin_fault_disarm(tocsin_fault kind);

extern atomic_uint tocsin_fault_armed; /* bit per kind */
bool tocsin_fault_count(tocsin_fault kind);

/* Must this call fail? One relaxed load while nothing is armed. */
static inline bool tocsin_fault_hit(tocsin_fault kind)
{
    unsigned armed = atomic_load_explicit(&tocsin_fault_armed, memory_order_relaxed);
    return __builtin_expect(armed != 0, 0) && tocsin_fault_count(kind);
}

/* Nanoseconds since some fixed moment (CLOCK_MONOTONIC), and since 1970 (CLOCK_REALTIME). */
uint64_t tocsin_clock_ns(void);
uint64_t tocsin_wall_clock_ns(void);

#endif
