/* cmd_suppress.c - `tocsin suppress`: list a file of suppressions, or add one to it. */
#include "suppressing.h"

#include <string.h>
#include <unistd.h>

static void print_suppression(const tocsin_suppression *suppression)
{
    bool by_id = suppression->invariant[0] != '\0';
    printf("%s", by_id ? suppression->invariant : suppression->code);
    if (suppression->entity[0] != '\0') {
        printf(" for %s", suppression->entity);
    }
    if (suppression->until[0] != '\0') {
        printf(", %s %s", suppression->expired ? "ended" : "until", suppression->until);
    }
    printf(": %s\n", suppression->reason);
}

static int list(const char *path)
{
    cli_texts files = {.items = {path}, .count = 1};
    tocsin_suppressions *suppressions;
    int exit_code = cli_suppressions_load(&files, &suppressions);
    if (exit_code != CLI_HOLDS) {
        return exit_code;
    }
    for (size_t i = 0; i < tocsin_suppressions_count(suppressions); i++) {
        print_suppression(tocsin_suppressions_get(suppressions, i));
    }
    tocsin_suppressions_free(suppressions);
    return CLI_HOLDS;
}

/* A file that is not there yet is made. */
static int add(const char *path, const tocsin_suppression *suppression)
{
    cli_texts files = {.items = {path}, .count = access(path, F_OK) == 0 ? 1 : 0};
    tocsin_suppressions *suppressions;
    tocsin_error error;
    int exit_code = cli_suppressions_load(&files, &suppressions);
    if (exit_code != CLI_HOLDS) {
        return exit_code;
    }
    tocsin_status status = tocsin_suppressions_add(suppressions, suppression, &error);
    if (status == TOCSIN_OK) {
        status = tocsin_suppressions_save(suppressions, path, &error);
    }
    tocsin_suppressions_free(suppressions);
    return status == TOCSIN_OK ? CLI_HOLDS : cli_fail(&error);
}

int cmd_suppress(int argc, char **argv)
{
    tocsin_suppression suppression = {
        .invariant = "", .code = "", .entity = "", .reason = "", .until = ""};
    const cli_option options[] = {
        {"reason", 0, CLI_TEXT, "TEXT", "why it is meant", &suppression.reason},
        {"entity", 0, CLI_TEXT, "PATTERN", "only for these names; * and ? stand for any",
         &suppression.entity},
        {"until", 0, CLI_TEXT, "DATE", "last day, like 2027-01-31 (UTC)", &suppression.until},
    };
    const cli_usage usage = {
        .command = "suppress",
        .synopsis = "FILE [ID|CODE]",
        .about = "List a file of suppressions, or add one: violations of this invariant, or of\n"
                 "this code, are meant. Use the file with check --suppress FILE.",
        .example = "tocsin suppress known.jsonl TOC004 --reason 'GAN' --until 2027-01-31",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    cli_operands operands;
    int exit_code;
    if (cli_options_end(&usage, argc, argv, &operands, &exit_code)) {
        return exit_code;
    }
    if (operands.count < 1 || operands.count > 2) {
        cli_error("tocsin suppress needs a file of suppressions");
        cli_hint("tocsin suppress known.jsonl TOC004 --reason TEXT");
        return CLI_INPUT;
    }
    if (operands.count == 1) {
        return list(operands.items[0]);
    }
    if (strncmp(operands.items[1], "inv-", 4) == 0) {
        suppression.invariant = operands.items[1];
    } else {
        suppression.code = operands.items[1];
    }
    return add(operands.items[0], &suppression);
}
