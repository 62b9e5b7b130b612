/* json_lines.c - files of JSON values, one a line, whose first line says what they are.
 *
 * What is wrong with a line is an error of that line. Memory is that of one line.
 */
#include "base/base.h"

tocsin_status tocsin_json_lines_refuse(const tocsin_json_lines *lines, const char *message)
{
    return tocsin_error_at(lines->error, TOCSIN_E_FORMAT, lines->path, -1, "line %llu: %s",
                           (unsigned long long)lines->line, message);
}

static tocsin_status read_header(const tocsin_json_lines *lines, const tocsin_json_value *line)
{
    const char *format = tocsin_json_get_text(tocsin_json_get_member(line, "format"));
    int64_t version;
    if (format == NULL || strcmp(format, lines->format) != 0)
        return tocsin_error_at(lines->error, TOCSIN_E_FORMAT, lines->path, -1,
                               "line %llu: not %s: no \"format\":\"%s\"",
                               (unsigned long long)lines->line, lines->title, lines->format);
    if (!tocsin_json_get_integer(tocsin_json_get_member(line, "version"), &version))
        return tocsin_json_lines_refuse(lines, "there is no \"version\"");
    if (version != lines->version)
        return tocsin_error_at(lines->error, TOCSIN_E_VERSION, lines->path, -1,
                               "version %lld of the format is not supported, only %d",
                               (long long)version, lines->version);
    return lines->header != NULL ? lines->header(lines, line) : TOCSIN_OK;
}

static tocsin_status read_line(const tocsin_json_lines *lines, const char *text, size_t bytes)
{
    tocsin_json_value *root;
    tocsin_error inner = {.code = TOCSIN_OK};
    tocsin_status status = tocsin_json_parse(text, bytes, lines->path, &root, &inner);
    if (status == TOCSIN_E_FORMAT)
        return tocsin_json_lines_refuse(lines, inner.message);
    if (status != TOCSIN_OK) {
        if (lines->error != NULL)
            *lines->error = inner;
        return status;
    }
    status = lines->line == 1 ? read_header(lines, root) : lines->item(lines, root);
    tocsin_json_free(root);
    return status;
}

static tocsin_status read_lines(tocsin_json_lines *lines, tocsin_reader *file)
{
    for (;;) {
        const char *text;
        size_t bytes;
        TOCSIN_TRY(tocsin_reader_line(file, lines->line_bytes_max, &text, &bytes, lines->error));
        if (text == NULL)
            break;
        ++lines->line;
        if (bytes > 0 || lines->line == 1)
            TOCSIN_TRY(read_line(lines, text, bytes));
    }
    return lines->line > 0 ? TOCSIN_OK : tocsin_json_lines_refuse(lines, "the file is empty");
}

tocsin_status tocsin_json_lines_read(tocsin_json_lines *lines)
{
    tocsin_reader file;
    TOCSIN_TRY(tocsin_reader_open(&file, lines->path, lines->error));
    tocsin_status status = read_lines(lines, &file);
    tocsin_reader_close(&file);
    return status;
}
