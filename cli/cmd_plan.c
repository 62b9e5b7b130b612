/* cmd_plan.c - `tocsin plan`: print a plan as .plan text, or export one from PyTorch. */
#include <stdlib.h>
#include <string.h>
#include <tocsin/plan.h>
#include <unistd.h>

#include "cli.h"

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

/* The exporter is Python, since what it traces is: `python -m tocsin.plan export ...`. */
static int export_plan(int argc, char **argv)
{
    const char *python = getenv("TOCSIN_PYTHON");
    char **command = calloc((size_t)argc + 4, sizeof *command);
    if (command == NULL) {
        cli_error("out of memory");
        return CLI_INTERNAL;
    }
    if (python == NULL || python[0] == '\0')
        python = "python3";
    command[0] = strdup(python);
    command[1] = strdup("-m");
    command[2] = strdup("tocsin.plan");
    for (int i = 0; i < argc; i++)
        command[3 + i] = argv[i];
    execvp(python, command);
    cli_error("cannot start %s", python);
    cli_hint("pip install tocsin in the environment that has torch, or set TOCSIN_PYTHON");
    return CLI_INPUT;
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
        return export_plan(argc - 1, argv + 1);
    if (cli_options_end(&usage, argc, argv, &operands, &exit_code))
        return exit_code;
    if (operands.count == 2 && strcmp(operands.items[0], "show") == 0)
        return show(operands.items[1]);
    cli_error("tocsin plan takes `show FILE` or `export ...`");
    cli_hint("tocsin plan --help");
    return CLI_INPUT;
}
