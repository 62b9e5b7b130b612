/* ledger.c - the file in which a rank keeps what was found.
 *
 * Data: JSON Lines behind a header, appended to by one write and an fsync a line. Invariant: the
 * header appears whole or not at all, and an appended line begins at the beginning of a line, so a
 * crash at any moment costs at most the line that was being written; a reader counts what is no
 * JSON and goes on. Cost of an append: a look at the last byte, one write, one fsync.
 */
#include "guard/guard.h"

#include <fcntl.h>

#define FORMAT  "tocsin-guard-ledger"
#define VERSION 1

static const char header[] = "{\"format\":\"" FORMAT "\",\"version\":1}\n";

/* ---- writing ------------------------------------------------------------------------------- */

static tocsin_status check_line(const char *json, size_t bytes, tocsin_error *error)
{
    tocsin_json_value *value = NULL;
    if (bytes > TOCSIN_GUARD_LINE_BYTES_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "a line of more than %u bytes",
                                TOCSIN_GUARD_LINE_BYTES_MAX);
    if (memchr(json, '\n', bytes))
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "a line of a ledger has no line break");
    tocsin_status status = tocsin_json_parse(json, bytes, "line", &value, error);
    bool object = tocsin_json_get_kind(value) == TOCSIN_JSON_OBJECT;
    tocsin_json_free(value);
    if (status == TOCSIN_E_MEMORY)
        return status;
    if (status != TOCSIN_OK || !object)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "a line of a ledger is a JSON object");
    return TOCSIN_OK;
}

/* Does the file end in the middle of a line? */
static tocsin_status ends_torn(int fd, bool *torn, const char *path, tocsin_error *error)
{
    uint64_t bytes;
    size_t count;
    char last = '\n';
    TOCSIN_TRY(tocsin_file_size(fd, &bytes, path, error));
    if (bytes > 0)
        TOCSIN_TRY(tocsin_file_read(fd, &last, 1, (int64_t)bytes - 1, &count, path, error));
    *torn = last != '\n';
    return TOCSIN_OK;
}

static tocsin_status write_line(int fd, const char *json, size_t bytes, const char *path,
                                tocsin_error *error)
{
    bool torn;
    tocsin_string line = {0};
    TOCSIN_TRY(ends_torn(fd, &torn, path, error));
    if (torn)
        tocsin_string_append_char(&line, '\n');
    tocsin_string_append(&line, json, bytes);
    tocsin_string_append_char(&line, '\n');
    tocsin_status status = tocsin_string_check(&line, error);
    if (status == TOCSIN_OK)
        status = tocsin_file_write(fd, line.text, line.bytes, path, error);
    if (status == TOCSIN_OK)
        status = tocsin_file_sync(fd, path, error);
    tocsin_string_free(&line);
    return status;
}

tocsin_status tocsin_guard_ledger_append(const char *path, const char *json, size_t bytes,
                                         tocsin_error *error)
{
    int fd = -1;
    TOCSIN_TRY(check_line(json, bytes, error));
    tocsin_status status = tocsin_file_open(path, O_RDWR | O_APPEND, 0, &fd, error);
    if (status == TOCSIN_E_NOT_FOUND) {
        status = tocsin_file_store(path, header, sizeof header - 1, false, error);
        if (status == TOCSIN_OK || status == TOCSIN_E_EXISTS)
            status = tocsin_file_open(path, O_RDWR | O_APPEND, 0, &fd, error);
    }
    if (status != TOCSIN_OK)
        return status;
    status = write_line(fd, json, bytes, path, error);
    tocsin_status closed = tocsin_file_close(&fd, path, status == TOCSIN_OK ? error : NULL);
    return status == TOCSIN_OK ? closed : status;
}

/* ---- reading ------------------------------------------------------------------------------- */

typedef struct ledger_reader {
    tocsin_reader file;
    ledger_visitor *visit;
    void *context;
    ledger_summary *summary;
    ledger_line line;
    bool ended; /* by a line break */
} ledger_reader;

static tocsin_status next_line(ledger_reader *reader, tocsin_error *error)
{
    uint64_t begin = reader->file.offset;
    TOCSIN_TRY(tocsin_reader_line(&reader->file, TOCSIN_GUARD_LINE_BYTES_MAX, &reader->line.json,
                                  &reader->line.bytes, error));
    reader->ended = reader->file.offset - begin > reader->line.bytes;
    ++reader->line.number;
    return TOCSIN_OK;
}

static tocsin_status read_header(ledger_reader *reader, tocsin_error *error)
{
    const ledger_line *line = &reader->line;
    tocsin_json_value *value = NULL;
    TOCSIN_TRY(next_line(reader, error));
    if (!line->json)
        return tocsin_error_at(error, TOCSIN_E_FORMAT, line->path, 0, "an empty file");
    tocsin_status status = tocsin_json_parse(line->json, line->bytes, line->path, &value, error);
    const char *format = tocsin_json_get_text(tocsin_json_get_member(value, "format"));
    int64_t version = 0;
    bool numbered = tocsin_json_get_integer(tocsin_json_get_member(value, "version"), &version);
    bool right = format && strcmp(format, FORMAT) == 0 && numbered;
    tocsin_json_free(value);
    if (status == TOCSIN_E_MEMORY)
        return status;
    if (!right)
        return tocsin_error_at(error, TOCSIN_E_FORMAT, line->path, 0, "no ledger of a guard");
    if (version != VERSION)
        return tocsin_error_at(error, TOCSIN_E_VERSION, line->path, 0,
                               "a ledger of version %lld; this is version %d", (long long)version,
                               VERSION);
    return TOCSIN_OK;
}

static tocsin_status take_line(ledger_reader *reader, tocsin_error *error)
{
    ledger_line *line = &reader->line;
    ledger_summary *summary = reader->summary;
    tocsin_json_value *value = NULL;
    if (line->bytes == 0)
        return TOCSIN_OK;
    tocsin_status status = tocsin_json_parse(line->json, line->bytes, line->path, &value, error);
    if (status == TOCSIN_E_MEMORY)
        return status;
    if (status == TOCSIN_OK && tocsin_json_get_kind(value) == TOCSIN_JSON_OBJECT) {
        line->value = value;
        ++summary->lines;
        status = reader->visit(reader->context, line, error);
    } else if (!reader->ended) {
        summary->torn_bytes = line->bytes;
        status = TOCSIN_OK;
    } else {
        ++summary->damaged;
        if (summary->first_damaged == 0)
            summary->first_damaged = line->number;
        status = TOCSIN_OK;
    }
    tocsin_json_free(value);
    line->value = NULL;
    return status;
}

tocsin_status tocsin_ledger_read(const char *path, ledger_visitor *visit, void *context,
                                 ledger_summary *summary, tocsin_error *error)
{
    ledger_reader reader = {
        .visit = visit, .context = context, .summary = summary, .line = {.path = path}};
    *summary = (ledger_summary){0};
    TOCSIN_TRY(tocsin_reader_open(&reader.file, path, error));
    tocsin_status status = read_header(&reader, error);
    while (status == TOCSIN_OK) {
        status = next_line(&reader, error);
        if (status != TOCSIN_OK || !reader.line.json)
            break;
        status = take_line(&reader, error);
    }
    tocsin_reader_close(&reader.file);
    return status;
}
