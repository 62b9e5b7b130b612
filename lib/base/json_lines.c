/* json_lines.c - JSON values, one a line, of which the first says what they are.
 *
 * What is wrong with a line is an error of that line. Memory is that of one line.
 */
#include "base/base.h"

#include <stdio.h>

tocsin_status tocsin_json_lines_refuse(const tocsin_json_lines *lines, const char *format, ...)
{
    char message[TOCSIN_ERROR_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return tocsin_error_at(lines->error, TOCSIN_E_FORMAT, lines->path, -1, "line %llu: %s",
                           (unsigned long long)lines->line, message);
}

tocsin_status tocsin_json_lines_fail(const tocsin_json_lines *lines, const tocsin_error *inner)
{
    if (inner->code == TOCSIN_E_ARGUMENT || inner->code == TOCSIN_E_FORMAT)
        return tocsin_json_lines_refuse(lines, "%s", inner->message);
    if (lines->error)
        *lines->error = *inner;
    return inner->code;
}

static tocsin_status read_header(const tocsin_json_lines *lines, const tocsin_json_value *line)
{
    const char *format = tocsin_json_get_text(tocsin_json_get_member(line, "format"));
    int64_t version;
    if (format == NULL || strcmp(format, lines->format) != 0)
        return tocsin_json_lines_refuse(lines, "not %s: no \"format\":\"%s\"", lines->title,
                                        lines->format);
    if (!tocsin_json_get_integer(tocsin_json_get_member(line, "version"), &version))
        return tocsin_json_lines_refuse(lines, "there is no \"version\"");
    if (version != lines->version)
        return tocsin_error_at(lines->error, TOCSIN_E_VERSION, lines->path, -1,
                               "version %lld of the format is not supported, only %d",
                               (long long)version, lines->version);
    return lines->header != NULL ? lines->header(lines, line) : TOCSIN_OK;
}

static bool is_blank(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; ++i)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r')
            return false;
    return true;
}

static tocsin_status read_line(tocsin_json_lines *lines, const char *text, size_t bytes)
{
    tocsin_json_value *root;
    tocsin_error inner = {.code = TOCSIN_OK};
    ++lines->line;
    if (lines->line > 1 && is_blank(text, bytes))
        return TOCSIN_OK;
    if (tocsin_json_parse(text, bytes, lines->path, &root, &inner) != TOCSIN_OK)
        return tocsin_json_lines_fail(lines, &inner);
    tocsin_status status = lines->line == 1 ? read_header(lines, root) : lines->item(lines, root);
    tocsin_json_free(root);
    return status;
}

static tocsin_status check_header(const tocsin_json_lines *lines)
{
    if (lines->line > 0)
        return TOCSIN_OK;
    return tocsin_error_at(lines->error, TOCSIN_E_FORMAT, lines->path, -1, "the file is empty");
}

static tocsin_status read_lines(tocsin_json_lines *lines, tocsin_reader *file)
{
    for (;;) {
        const char *text;
        size_t bytes;
        TOCSIN_TRY(tocsin_reader_line(file, lines->line_bytes_max, &text, &bytes, lines->error));
        if (text == NULL)
            return check_header(lines);
        TOCSIN_TRY(read_line(lines, text, bytes));
    }
}

tocsin_status tocsin_json_lines_read(tocsin_json_lines *lines)
{
    tocsin_reader file;
    TOCSIN_TRY(tocsin_reader_open(&file, lines->path, lines->error));
    tocsin_status status = read_lines(lines, &file);
    tocsin_reader_close(&file);
    return status;
}

tocsin_status tocsin_json_lines_read_text(tocsin_json_lines *lines, const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t length = end != NULL ? (size_t)(end - text) - at : bytes - at;
        TOCSIN_TRY(read_line(lines, text + at, length));
        at += length + 1;
    }
    return check_header(lines);
}
