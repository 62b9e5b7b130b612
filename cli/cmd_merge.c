/* cmd_merge.c - `tocsin merge`: several files of invariants as one. */
#include "invariants.h"

int cmd_merge(int argc, char **argv)
{
    const char *output = NULL;
    bool force = false;
    const cli_option options[] = {
        {"output", 'o', CLI_TEXT, "FILE", "where the invariants go (-: stdout)", &output},
        {"force", 'f', CLI_FLAG, NULL, "replace the file", &force},
    };
    const cli_usage usage = {
        .command = "merge",
        .synopsis = "FILE...",
        .about =
            "Put the invariants of several files into one. One that stands in several files is\n"
            "written once, with the support that the first of them gives.",
        .example = "tocsin merge ours.jsonl theirs.jsonl -o both.jsonl",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    cli_operands operands;
    tocsin_invariant_set *set = NULL;
    int exit_code;
    if (cli_options_end(&usage, argc, argv, &operands, &exit_code)) {
        return exit_code;
    }
    if (operands.count == 0 || !output) {
        cli_error(operands.count == 0 ? "no file of invariants" : "no output file");
        cli_hint("tocsin merge FILE... -o both.jsonl");
        return CLI_INPUT;
    }
    exit_code = cli_invariants_read_all(&operands, &set);
    return exit_code == CLI_HOLDS ? cli_invariants_store(set, output, force) : exit_code;
}
