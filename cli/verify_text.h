/* verify_text.h - the result of `tocsin verify` as text and as JSON. */
#ifndef TOCSIN_CLI_VERIFY_TEXT_H
#define TOCSIN_CLI_VERIFY_TEXT_H

#include <stdio.h>
#include <tocsin/compose.h>

/* What was compared, and what came of it. */
typedef struct cli_verification {
    const char *logical_path, *parallel_path;
    const tocsin_verify_files_answer *answer;
} cli_verification;

void cli_verify_print_text(const cli_verification *verification, FILE *stream);
void cli_verify_print_json(const cli_verification *verification, FILE *stream);

#endif
