/* cmd_plan.c - `tocsin plan`: print a plan as .plan text, or export one from PyTorch. */
#include <string.h>
#include <tocsin/plan.h>

#include "cli.h"
#include "python_module.h"

static int show(const char *path)
{
    tocsin_plan *plan = NULL;
    tocsin_error error;
    tocsin_status status = tocsin_plan_read(path, NULL, &plan, &error);
    if (status == TOCSIN_OK)
        status = tocsin_plan_write(plan, stdout, &error);
    tocsin_plan_free(plan);
    return status == TOCSIN_OK ? CLI_HOLDS : cli_fail(&error);
}

int cmd_plan(int argc, char **argv)
{
    const cli_usage usage = {
        .command = "plan",
        .synopsis = "show FILE | export SCRIPT:build --mesh dp=2,tp=2 -o FILE",
        .about =
            "show: print a plan (.plan, .pkl, .pkl.zst) as .plan text.\n"
            "export: write the plans of a PyTorch training step, logical and parallel, on one\n"
            "CPU without any launcher; `tocsin plan export --help` says more.",
        .example = "tocsin plan show plan.pkl.zst",
    };
    cli_operands operands;
    int exit_code;

    if (argc >= 2 && strcmp(argv[1], "export") == 0)
        return cli_become_python("tocsin.plan", argc - 1, argv + 1);
    if (cli_options_end(&usage, argc, argv, &operands, &exit_code))
        return exit_code;
    if (operands.count == 2 && strcmp(operands.items[0], "show") == 0)
        return show(operands.items[1]);
    cli_error("tocsin plan takes `show FILE` or `export ...`");
    cli_hint("tocsin plan --help");
    return CLI_INPUT;
}
