/* cmd_show.c - `tocsin show`: invariants in words. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "chains.h"
#include "invariants.h"

/* What they are grouped by; in the order of the option's words. */
static const char *(*const facets[])(const tocsin_invariant_set *set, size_t index) = {
    NULL, tocsin_invariant_call, tocsin_invariant_relation, tocsin_invariant_cause};

typedef struct grouping {
    const tocsin_invariant_set *set;
    const char *(*facet)(const tocsin_invariant_set *set, size_t index);
} grouping;

static void print_invariant(const tocsin_invariant_set *set, size_t index, bool details)
{
    printf("%s  %s\n", tocsin_invariant_id(set, index), tocsin_invariant_sentence(set, index));
    if (!details) {
        return;
    }
    uint64_t instances;
    uint32_t runs;
    tocsin_invariant_support(set, index, &instances, &runs);
    uint32_t held_out = tocsin_invariant_held_out(set, index);
    if (runs > 0) {
        printf("    %s, seen to hold %" PRIu64 " times in %" PRIu32 " run%s",
               tocsin_invariant_relation(set, index), instances, runs, runs == 1 ? "" : "s");
        if (held_out > 0) {
            printf("; what the others teach was confirmed by %" PRIu32 " of them", held_out);
        }
        printf("\n");
    } else {
        printf("    %s, written by hand\n", tocsin_invariant_relation(set, index));
    }
}

/* By facet; what is equal in it stays in the order of the set. */
static int compare(const void *a, const void *b, void *context)
{
    const grouping *by = context;
    size_t x = *(const size_t *)a;
    size_t y = *(const size_t *)b;
    int order = strcmp(by->facet(by->set, x), by->facet(by->set, y));
    return order != 0 ? order : (x > y) - (x < y);
}

static void print_groups(const grouping *by, const size_t *order, size_t count, bool details)
{
    for (size_t first = 0; first < count;) {
        const char *facet = by->facet(by->set, order[first]);
        size_t end = first + 1;
        while (end < count && strcmp(by->facet(by->set, order[end]), facet) == 0) {
            end++;
        }
        printf("%s%s (%zu)\n", first > 0 ? "\n" : "", facet[0] ? facet : "no call", end - first);
        for (; first < end; first++) {
            print_invariant(by->set, order[first], details);
        }
    }
}

static int print_all(const tocsin_invariant_set *set, unsigned by, bool details)
{
    size_t count = tocsin_invariants_count(set);
    grouping groups = {.set = set, .facet = facets[by]};
    size_t *order = malloc((count + 1) * sizeof *order);
    if (!order) {
        cli_error("out of memory");
        return CLI_INTERNAL;
    }
    for (size_t i = 0; i < count; i++) {
        order[i] = i;
    }
    if (groups.facet) {
        qsort_r(order, count, sizeof *order, compare, &groups);
        print_groups(&groups, order, count, details);
    }
    for (size_t i = 0; !groups.facet && i < count; i++) {
        print_invariant(set, i, details);
    }
    free(order);
    return CLI_HOLDS;
}

int cmd_show(int argc, char **argv)
{
    bool details = false;
    bool library = false;
    bool chains = false;
    unsigned by = 0;
    const cli_option options[] = {
        {"library", 0, CLI_FLAG, NULL, "those of the shipped library", &library},
        {"long", 'l', CLI_FLAG, NULL, "with relation and support", &details},
        {"by", 0, CLI_CHOICE, "none|call|relation|cause", "group them", &by},
        {"chains", 0, CLI_FLAG, NULL, "only the orders of calls, put together", &chains},
    };
    const cli_usage usage = {
        .command = "show",
        .synopsis = "FILE|--library [ID]",
        .about = "Print the invariants of a file or of the shipped library, each in one sentence,\n"
                 "or the one with this id.",
        .example = "tocsin show inv.jsonl",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    cli_operands operands;
    int exit_code;
    if (cli_options_end(&usage, argc, argv, &operands, &exit_code)) {
        return exit_code;
    }
    size_t names = library ? 0 : 1; /* operands before the id */
    if (operands.count < names || operands.count > names + 1) {
        cli_error("tocsin show needs a file of invariants");
        cli_hint("tocsin show inv.jsonl");
        return CLI_INPUT;
    }
    assert(by < sizeof facets / sizeof facets[0]);
    tocsin_invariant_set *set = NULL;
    exit_code = cli_invariants_read(library ? NULL : operands.items[0], &set);
    if (exit_code != CLI_HOLDS) {
        return exit_code;
    }
    if (operands.count > names) {
        size_t index = cli_invariants_find(set, operands.items[names]);
        exit_code = index == SIZE_MAX ? CLI_INPUT : CLI_HOLDS;
        if (exit_code == CLI_HOLDS) {
            print_invariant(set, index, true);
        }
    } else {
        exit_code = chains ? cli_chains_print(set) : print_all(set, by, details);
    }
    tocsin_invariants_free(set);
    return exit_code;
}
