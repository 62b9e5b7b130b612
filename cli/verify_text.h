/* verify_text.h - the result of `tocsin verify` as text and as JSON. */
#ifndef TOCSIN_CLI_VERIFY_TEXT_H
#define TOCSIN_CLI_VERIFY_TEXT_H

#include <stdio.h>
#include <tocsin/verify.h>

/* What was compared and how long reading took, beside the result. */
typedef struct cli_verification {
    const char *logical_path, *parallel_path;
    tocsin_plan_size size; /* of the parallel plan */
    double read_seconds;
    const tocsin_verify_result *result;
} cli_verification;

void cli_verify_print_text(const cli_verification *verification, FILE *stream);
void cli_verify_print_json(const cli_verification *verification, FILE *stream);

#endif
