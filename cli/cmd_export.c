/* cmd_export.c - `tocsin export`: an imported run -> the recording that it was made of. */
#include "cli.h"

#include <inttypes.h>
#include <string.h>
#include <tocsin/exchange.h>

int cmd_export(int argc, char **argv)
{
    const char *folder = NULL;
    bool quiet = false;
    const cli_option options[] = {
        {"output", 'o', CLI_TEXT, "FOLDER", "where the traces go: a new folder", &folder},
        {"quiet", 'q', CLI_FLAG, NULL, "print errors only", &quiet},
    };
    const cli_usage usage = {
        .command = "export",
        .synopsis = "traincheck -o FOLDER RUN",
        .about =
            "Write the records that a run was imported from, as TrainCheck wrote them. Only what\n"
            "the import left out is not there.",
        .example = "tocsin export traincheck -o traces run",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    cli_operands operands;
    int exit_code;
    if (cli_options_end(&usage, argc, argv, &operands, &exit_code)) {
        return exit_code;
    }
    if (operands.count != 2 || strcmp(operands.items[0], "traincheck") != 0 || !folder) {
        cli_error("tocsin export needs the format traincheck, a run and -o FOLDER");
        cli_hint("tocsin export traincheck -o FOLDER RUN");
        return CLI_INPUT;
    }
    uint64_t files = 0;
    tocsin_error error;
    if (tocsin_traincheck_export(operands.items[1], folder, &files, &error) != TOCSIN_OK) {
        return cli_fail(&error);
    }
    if (!quiet) {
        cli_note("exported %" PRIu64 " file%s into %s", files, files == 1 ? "" : "s", folder);
    }
    return CLI_HOLDS;
}
