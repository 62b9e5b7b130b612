/* cmd_explain.c - `tocsin explain`: what a finding's code means and what to do. */
#include "cli.h"

#include <tocsin/invariant.h>

static const char *next_code(const void *context, size_t index)
{
    (void)context;
    const tocsin_code *code = tocsin_code_at(index);
    return code ? code->code : NULL;
}

static int explain(const char *name)
{
    const tocsin_code *code = tocsin_code_find(name);
    if (!code) {
        cli_error("no finding has the code %s", name);
        const char *suggestion = cli_suggest(name, next_code, NULL);
        if (suggestion) {
            cli_hint("did you mean %s?", suggestion);
        } else {
            cli_hint("tocsin explain lists all codes");
        }
        return CLI_INPUT;
    }
    printf("%s (%s): %s\n\n%s\n", code->code, code->relation, code->title, code->explanation);
    return CLI_HOLDS;
}

int cmd_explain(int argc, char **argv)
{
    const cli_usage usage = {
        .command = "explain",
        .synopsis = "[CODE]",
        .about =
            "Say what the code of a finding means and what to do. Without one, list all codes.",
        .example = "tocsin explain TOC002",
    };
    cli_operands operands;
    int exit_code;
    if (cli_options_end(&usage, argc, argv, &operands, &exit_code)) {
        return exit_code;
    }
    if (operands.count > 1) {
        cli_error("tocsin explain takes one code");
        return CLI_INPUT;
    }
    if (operands.count == 1) {
        return explain(operands.items[0]);
    }
    const tocsin_code *code;
    for (size_t i = 0; (code = tocsin_code_at(i)) != NULL; i++) {
        printf("%s  %-16s  %s\n", code->code, code->relation, code->title);
    }
    return CLI_HOLDS;
}
