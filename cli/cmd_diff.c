/* cmd_diff.c - `tocsin diff`: how two files of invariants differ. */
#include "invariants.h"

#include <string.h>

/* The invariant that only `set` has and that claims the same as this one of `other`; SIZE_MAX:
 * there is none. */
static size_t find_claim(const tocsin_invariant_set *set, const tocsin_invariant_set *other,
                         size_t index)
{
    size_t bytes = tocsin_invariant_claim_bytes(other, index);
    const char *sentence = tocsin_invariant_sentence(other, index);
    for (size_t i = 0; i < tocsin_invariants_count(set); i++) {
        if (strncmp(tocsin_invariant_sentence(set, i), sentence, bytes) == 0 &&
            tocsin_invariant_claim_bytes(set, i) == bytes &&
            !tocsin_invariants_has(other, tocsin_invariant_id(set, i))) {
            return i;
        }
    }
    return SIZE_MAX;
}

static void print_one(char sign, const tocsin_invariant_set *set, size_t index)
{
    printf("%c %s  %s\n", sign, tocsin_invariant_id(set, index),
           tocsin_invariant_sentence(set, index));
}

/* Those of `before` that `after` has not. */
static size_t print_gone(const tocsin_invariant_set *before, const tocsin_invariant_set *after)
{
    size_t count = 0;
    for (size_t i = 0; i < tocsin_invariants_count(before); i++) {
        if (!tocsin_invariants_has(after, tocsin_invariant_id(before, i))) {
            print_one('-', before, i);
            count++;
        }
    }
    return count;
}

/* Those of `after` that `before` has not, and what claims the same there. */
static size_t print_new(const tocsin_invariant_set *before, const tocsin_invariant_set *after)
{
    size_t count = 0;
    for (size_t i = 0; i < tocsin_invariants_count(after); i++) {
        if (tocsin_invariants_has(before, tocsin_invariant_id(after, i))) {
            continue;
        }
        size_t claim = find_claim(before, after, i);
        print_one('+', after, i);
        if (claim != SIZE_MAX) {
            printf("    under another condition than %s\n", tocsin_invariant_id(before, claim));
        }
        count++;
    }
    return count;
}

int cmd_diff(int argc, char **argv)
{
    const cli_usage usage = {
        .command = "diff",
        .synopsis = "BEFORE AFTER",
        .about = "Print the invariants that only one of two files has: - those that are gone, +\n"
                 "those that are new. Exit status: 0 the files say the same, 1 they differ.",
        .example = "tocsin diff old.jsonl new.jsonl",
    };
    cli_operands operands;
    int exit_code;
    if (cli_options_end(&usage, argc, argv, &operands, &exit_code)) {
        return exit_code;
    }
    if (operands.count != 2) {
        cli_error("tocsin diff needs two files of invariants, not %zu", operands.count);
        cli_hint("tocsin diff old.jsonl new.jsonl");
        return CLI_INPUT;
    }
    tocsin_invariant_set *before = NULL;
    tocsin_invariant_set *after = NULL;
    exit_code = cli_invariants_read(operands.items[0], &before);
    if (exit_code == CLI_HOLDS) {
        exit_code = cli_invariants_read(operands.items[1], &after);
    }
    if (exit_code == CLI_HOLDS) {
        size_t gone = print_gone(before, after);
        size_t added = print_new(before, after);
        exit_code = gone + added > 0 ? CLI_FINDING : CLI_HOLDS;
    }
    tocsin_invariants_free(before);
    tocsin_invariants_free(after);
    return exit_code;
}
