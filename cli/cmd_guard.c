/* cmd_guard.c - `tocsin guard`: what the guard of a job found, and whether a checkpoint is still
 * what was saved. */
#include <stdlib.h>
#include <string.h>
#include <tocsin/guard_report.h>

#include "cli.h"
#include "python_module.h"

static int report(const char *folder, bool json)
{
    tocsin_guard_report *report = NULL;
    tocsin_error error;
    const char *text = "";
    tocsin_status status = tocsin_guard_report_read(folder, &report, &error);
    if (status == TOCSIN_OK)
        status = json ? tocsin_guard_report_json(report, &text, &error)
                      : tocsin_guard_report_text(report, &text, &error);
    int exit_code = status == TOCSIN_OK ? CLI_HOLDS : cli_fail(&error);
    if (status == TOCSIN_OK) {
        fputs(text, stdout);
        exit_code = tocsin_guard_report_findings(report) > 0  ? CLI_FINDING
                    : tocsin_guard_report_ledgers(report) > 0 ? CLI_HOLDS
                                                              : CLI_UNDECIDED;
    }
    tocsin_guard_report_free(report);
    return exit_code;
}

int cmd_guard(int argc, char **argv)
{
    unsigned format = 0;
    const cli_option options[] = {
        {"format", 0, CLI_CHOICE, "text|json", "form of the report (default: text)", &format},
    };
    const cli_usage usage = {
        .command = "guard",
        .synopsis = "report FOLDER | verify CHECKPOINT...",
        .about =
            "report: what tocsin.Guard wrote down in its folder, the ledgers of all ranks put\n"
            "together: each finding once, whom it names, and which ranks are to be replaced.\n"
            "Exit status: 0 nothing was found, 1 something was, 3 there is no ledger.\n"
            "verify: is a checkpoint on disk still what guard.save saved? Also a resharded\n"
            "one; `tocsin guard verify --help` says more.",
        .example = "tocsin guard report --format json tocsin-guard",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    cli_operands operands;
    int exit_code;

    if (argc >= 2 && strcmp(argv[1], "verify") == 0) {
        setenv("PYTHONSAFEPATH", "1", 1); /* a folder of checkpoints may have a torch.py in it */
        return cli_become_python("tocsin.guard.verify_checkpoint", argc - 2, argv + 2);
    }
    if (cli_options_end(&usage, argc, argv, &operands, &exit_code))
        return exit_code;
    if (operands.count == 2 && strcmp(operands.items[0], "report") == 0)
        return report(operands.items[1], format != 0);
    cli_error("tocsin guard takes `report FOLDER` or `verify CHECKPOINT...`");
    cli_hint("tocsin guard --help");
    return CLI_INPUT;
}
