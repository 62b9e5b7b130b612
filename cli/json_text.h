/* json_text.h - strings and lists of strings as JSON, written to a stream. */
#ifndef TOCSIN_CLI_JSON_TEXT_H
#define TOCSIN_CLI_JSON_TEXT_H

#include <stddef.h>
#include <stdio.h>

/* "text" with what JSON wants escaped; bytes that are no ASCII stay as they are. */
void cli_json_string(FILE *stream, const char *text);
/* "name":"value" */
void cli_json_member(FILE *stream, const char *name, const char *value);
/* "name":["line",...] */
void cli_json_list(FILE *stream, const char *name, const char *const *lines, size_t count);

#endif
