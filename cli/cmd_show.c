/* cmd_show.c - `tocsin show`: invariants in words. */
#include "cli.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <tocsin/invariant.h>

static void print_invariant(const tocsin_invariant_set *set, size_t index, bool details)
{
    printf("%s  %s\n", tocsin_invariant_id(set, index), tocsin_invariant_sentence(set, index));
    if (!details) {
        return;
    }
    uint64_t instances;
    uint32_t runs;
    tocsin_invariant_support(set, index, &instances, &runs);
    if (runs > 0) {
        printf("    %s, seen to hold %" PRIu64 " times in %" PRIu32 " run%s\n",
               tocsin_invariant_relation(set, index), instances, runs, runs == 1 ? "" : "s");
    } else {
        printf("    %s, written by hand\n", tocsin_invariant_relation(set, index));
    }
}

static const char *next_id(const void *context, size_t index)
{
    return index < tocsin_invariants_count(context) ? tocsin_invariant_id(context, index) : NULL;
}

/* Print those whose id is `wanted`, or all. */
static int print_set(const tocsin_invariant_set *set, const char *wanted, bool details)
{
    size_t count = tocsin_invariants_count(set);
    size_t printed = 0;
    for (size_t i = 0; i < count; i++) {
        if (!wanted || strcmp(tocsin_invariant_id(set, i), wanted) == 0) {
            print_invariant(set, i, details || wanted);
            printed++;
        }
    }
    if (wanted && printed == 0) {
        cli_error("no invariant %s in this file", wanted);
        const char *suggestion = cli_suggest(wanted, next_id, set);
        if (suggestion) {
            cli_hint("did you mean %s?", suggestion);
        }
        return CLI_INPUT;
    }
    return CLI_HOLDS;
}

int cmd_show(int argc, char **argv)
{
    bool details = false;
    const cli_option options[] = {
        {"long", 'l', CLI_FLAG, NULL, "with relation and support", &details},
    };
    const cli_usage usage = {
        .command = "show",
        .synopsis = "FILE [ID]",
        .about = "Print the invariants of a file, each in one sentence, or the one with this id.",
        .example = "tocsin show inv.jsonl",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    cli_operands operands;
    int exit_code;
    if (cli_options_end(&usage, argc, argv, &operands, &exit_code)) {
        return exit_code;
    }
    if (operands.count < 1 || operands.count > 2) {
        cli_error("tocsin show needs a file of invariants");
        cli_hint("tocsin show inv.jsonl");
        return CLI_INPUT;
    }
    tocsin_invariant_set *set;
    tocsin_error error;
    if (tocsin_invariants_load(operands.items[0], &set, &error) != TOCSIN_OK) {
        return cli_fail(&error);
    }
    exit_code = print_set(set, operands.count == 2 ? operands.items[1] : NULL, details);
    tocsin_invariants_free(set);
    return exit_code;
}
