/* json_text.c - strings and lists of strings as JSON. */
#include "json_text.h"

void cli_json_string(FILE *stream, const char *text)
{
    fputc('"', stream);
    for (; *text != '\0'; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '"' || byte == '\\')
            fprintf(stream, "\\%c", byte);
        else if (byte < 0x20)
            fprintf(stream, "\\u%04x", byte);
        else
            fputc(byte, stream);
    }
    fputc('"', stream);
}

void cli_json_member(FILE *stream, const char *name, const char *value)
{
    cli_json_string(stream, name);
    fputc(':', stream);
    cli_json_string(stream, value);
}

void cli_json_list(FILE *stream, const char *name, const char *const *lines, size_t count)
{
    cli_json_string(stream, name);
    fputs(":[", stream);
    for (size_t k = 0; k < count; k++) {
        fputs(k == 0 ? "" : ",", stream);
        cli_json_string(stream, lines[k]);
    }
    fputc(']', stream);
}
