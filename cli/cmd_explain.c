/* cmd_explain.c - `tocsin explain`: what a finding's code means and what to do. */
#include <inttypes.h>
#include <string.h>

#include "invariants.h"

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

/* What one invariant of a file, or of the shipped library, says, when it is judged, and what its
 * violation means. */
static int explain_invariant(const char *id, const char *path)
{
    tocsin_invariant_set *set = NULL;
    int exit_code = cli_invariants_read(path, &set);
    if (exit_code != CLI_HOLDS) {
        return exit_code;
    }
    size_t index = cli_invariants_find(set, id);
    exit_code = CLI_INPUT;
    if (index != SIZE_MAX) {
        uint64_t times;
        uint32_t runs;
        tocsin_invariant_support(set, index, &times, &runs);
        printf("%s\n", tocsin_invariant_sentence(set, index));
        if (tocsin_invariant_call(set, index)[0]) {
            printf("Judged at calls of %s.\n", tocsin_invariant_call(set, index));
        }
        printf("A violation (%s) points to: %s.\n", tocsin_invariant_severity(set, index),
               tocsin_invariant_cause(set, index));
        if (runs > 0) {
            printf("Seen to hold %" PRIu64 " times in %" PRIu32 " run%s.\n\n", times, runs,
                   runs == 1 ? "" : "s");
        } else {
            printf("Not inferred: written by hand.\n\n");
        }
        exit_code = explain(tocsin_invariant_code(set, index));
    }
    tocsin_invariants_free(set);
    return exit_code;
}

int cmd_explain(int argc, char **argv)
{
    const char *file = NULL;
    const cli_option options[] = {
        {"invariants", 'i', CLI_TEXT, "FILE", "where this id stands; else the library", &file},
    };
    const cli_usage usage = {
        .command = "explain",
        .synopsis = "[CODE|ID]",
        .about = "Say what the code of a finding means and what to do, or the same for one\n"
                 "invariant. Without either, list all codes.",
        .example = "tocsin explain TOC002",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    cli_operands operands;
    int exit_code;
    if (cli_options_end(&usage, argc, argv, &operands, &exit_code)) {
        return exit_code;
    }
    if (operands.count > 1) {
        cli_error("tocsin explain takes one code or id");
        return CLI_INPUT;
    }
    if (operands.count == 1) {
        bool is_id = strncmp(operands.items[0], "inv-", 4) == 0;
        return is_id ? explain_invariant(operands.items[0], file) : explain(operands.items[0]);
    }
    const tocsin_code *code;
    for (size_t i = 0; (code = tocsin_code_at(i)) != NULL; i++) {
        printf("%s  %-16s  %s\n", code->code, code->relation, code->title);
    }
    return CLI_HOLDS;
}
