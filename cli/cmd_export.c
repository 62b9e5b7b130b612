/* cmd_export.c - `tocsin export`: an imported run, or invariants, as another tool writes them. */
#include "cli.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <tocsin/exchange.h>

static int export_run(const char *run, const char *folder, bool quiet)
{
    uint64_t files = 0;
    tocsin_error error;
    if (tocsin_traincheck_export(run, folder, &files, &error) != TOCSIN_OK) {
        return cli_fail(&error);
    }
    if (!quiet) {
        cli_note("exported %" PRIu64 " file%s into %s", files, files == 1 ? "" : "s", folder);
    }
    return CLI_HOLDS;
}

static void tell_skipped(void *context, const char *file, uint64_t line, const char *text,
                         const char *why)
{
    const bool *quiet = context;
    (void)file;
    (void)line;
    if (!*quiet) {
        cli_note("left out: %s (%s)", text, why);
    }
}

static int export_invariants(const char *path, const char *output, bool quiet)
{
    tocsin_invariant_set *set = NULL;
    tocsin_error error;
    tocsin_foreign_options options = {
        .struct_bytes = sizeof options, .skipped = tell_skipped, .context = &quiet};
    uint64_t written = 0;
    tocsin_status status = tocsin_invariants_load(path, &set, &error);
    if (status == TOCSIN_OK) {
        status = tocsin_traincheck_invariants_save(set, output, false, &options, &written, &error);
    }
    tocsin_invariants_free(set);
    if (status != TOCSIN_OK) {
        return cli_fail(&error);
    }
    if (!quiet && strcmp(output, "-") != 0) {
        cli_note("%" PRIu64 " invariant%s in %s", written, written == 1 ? "" : "s", output);
    }
    return CLI_HOLDS;
}

int cmd_export(int argc, char **argv)
{
    const char *output = NULL;
    bool quiet = false;
    const cli_option options[] = {
        {"output", 'o', CLI_TEXT, "PATH", "a new folder for traces, a new file for invariants",
         &output},
        {"quiet", 'q', CLI_FLAG, NULL, "print errors only", &quiet},
    };
    const cli_usage usage = {
        .command = "export",
        .synopsis = "traincheck -o PATH RUN|INVARIANTS",
        .about =
            "Write the records that a run was imported from, as TrainCheck wrote them; only what\n"
            "the import left out is not there. Or write a file of invariants as TrainCheck's, as\n"
            "far as it can say them; the others are named.",
        .example = "tocsin export traincheck -o traces run",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    cli_operands operands;
    int exit_code;
    if (cli_options_end(&usage, argc, argv, &operands, &exit_code)) {
        return exit_code;
    }
    if (operands.count != 2 || strcmp(operands.items[0], "traincheck") != 0 || !output) {
        cli_error("tocsin export needs the format traincheck, a run or invariants, and -o PATH");
        cli_hint("tocsin export traincheck -o FOLDER RUN");
        return CLI_INPUT;
    }
    struct stat status;
    if (stat(operands.items[1], &status) == 0 && S_ISREG(status.st_mode)) {
        return export_invariants(operands.items[1], output, quiet);
    }
    return export_run(operands.items[1], output, quiet);
}
