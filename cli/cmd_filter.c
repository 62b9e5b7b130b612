/* cmd_filter.c - `tocsin filter`: the invariants of a file that fit a description. */
#include "invariants.h"

#include <fnmatch.h>
#include <string.h>

static const char *const severities[] = {"any", "error", "warning"};

typedef struct filter {
    cli_texts ids;
    cli_texts relations; /* names or codes */
    cli_texts calls;     /* patterns */
    cli_texts causes;    /* patterns */
    unsigned severity;   /* 0: any */
    uint64_t runs_min;
    uint64_t times_min;
    bool invert;
} filter;

static bool is_in(const cli_texts *texts, const char *text)
{
    for (size_t i = 0; i < texts->count; i++) {
        if (strcmp(texts->items[i], text) == 0) {
            return true;
        }
    }
    return false;
}

static bool fits_one(const cli_texts *patterns, const char *text)
{
    for (size_t i = 0; i < patterns->count; i++) {
        if (fnmatch(patterns->items[i], text, FNM_NOESCAPE) == 0) {
            return true;
        }
    }
    return false;
}

static bool fits(const filter *wanted, const tocsin_invariant_set *set, size_t index)
{
    uint64_t times;
    uint32_t runs;
    tocsin_invariant_support(set, index, &times, &runs);
    return (wanted->ids.count == 0 || is_in(&wanted->ids, tocsin_invariant_id(set, index))) &&
           (wanted->relations.count == 0 ||
            is_in(&wanted->relations, tocsin_invariant_relation(set, index)) ||
            is_in(&wanted->relations, tocsin_invariant_code(set, index))) &&
           (wanted->calls.count == 0 ||
            fits_one(&wanted->calls, tocsin_invariant_call(set, index))) &&
           (wanted->causes.count == 0 ||
            fits_one(&wanted->causes, tocsin_invariant_cause(set, index))) &&
           (wanted->severity == 0 ||
            strcmp(severities[wanted->severity], tocsin_invariant_severity(set, index)) == 0) &&
           runs >= wanted->runs_min && times >= wanted->times_min;
}

static bool keep(const void *context, const tocsin_invariant_set *set, size_t index)
{
    const filter *wanted = context;
    return fits(wanted, set, index) != wanted->invert;
}

static bool is_relation(const char *text)
{
    const tocsin_code *code;
    for (size_t i = 0; (code = tocsin_code_at(i)) != NULL; i++) {
        if (strcmp(code->code, text) == 0 || strcmp(code->relation, text) == 0) {
            return true;
        }
    }
    return false;
}

static int check_relations(const cli_texts *relations)
{
    for (size_t i = 0; i < relations->count; i++) {
        if (!is_relation(relations->items[i])) {
            cli_error("there is no relation %s", relations->items[i]);
            cli_hint("tocsin explain lists all codes and relations");
            return CLI_INPUT;
        }
    }
    return CLI_HOLDS;
}

static int run_filter(const filter *wanted, const cli_operands *files, const char *output,
                      bool force)
{
    tocsin_invariant_set *set = NULL;
    tocsin_error error;
    int exit_code = check_relations(&wanted->relations);
    if (exit_code == CLI_HOLDS) {
        exit_code = cli_invariants_read_all(files, &set);
    }
    if (exit_code != CLI_HOLDS) {
        return exit_code;
    }
    if (tocsin_invariants_keep(set, keep, wanted, &error) != TOCSIN_OK) {
        tocsin_invariants_free(set);
        return cli_fail(&error);
    }
    return cli_invariants_store(set, output, force);
}

int cmd_filter(int argc, char **argv)
{
    filter wanted = {.invert = false};
    const char *output = NULL;
    bool force = false;
    const cli_option options[] = {
        {"id", 0, CLI_TEXTS, "ID", "with this id; repeatable, as are the next three", &wanted.ids},
        {"relation", 0, CLI_TEXTS, "NAME", "of this relation or code", &wanted.relations},
        {"call", 0, CLI_TEXTS, "PATTERN", "about calls of this function or role", &wanted.calls},
        {"cause", 0, CLI_TEXTS, "PATTERN", "whose violation points to this", &wanted.causes},
        {"severity", 0, CLI_CHOICE, "any|error|warning", "as grave as this", &wanted.severity},
        {"min-runs", 0, CLI_COUNT, "N", "that at least N runs supported", &wanted.runs_min},
        {"min-times", 0, CLI_COUNT, "N", "seen to hold at least N times", &wanted.times_min},
        {"invert", 'v', CLI_FLAG, NULL, "those that do not fit", &wanted.invert},
        {"output", 'o', CLI_TEXT, "FILE", "where the invariants go (-: stdout)", &output},
        {"force", 'f', CLI_FLAG, NULL, "replace the file", &force},
    };
    const cli_usage usage = {
        .command = "filter",
        .synopsis = "FILE...",
        .about = "Write the invariants that fit all that is said here. In a pattern * stands for\n"
                 "any characters and ? for one.",
        .example = "tocsin filter inv.jsonl --relation TOC003 --min-runs 2 -o strong.jsonl",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    cli_operands operands;
    int exit_code;
    if (cli_options_end(&usage, argc, argv, &operands, &exit_code)) {
        return exit_code;
    }
    if (operands.count == 0 || !output) {
        cli_error(operands.count == 0 ? "no file of invariants" : "no output file");
        cli_hint("tocsin filter FILE --relation NAME -o some.jsonl");
        return CLI_INPUT;
    }
    return run_filter(&wanted, &operands, output, force);
}
