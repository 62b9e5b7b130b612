/* cmd_plan.c - `tocsin plan`: print a plan as .plan text, or export one from PyTorch. */
#include <stdlib.h>
#include <string.h>
#include <tocsin/plan.h>
#include <unistd.h>

#include "cli.h"
#include "packages.h"

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

/* Let the interpreter find the package: its folder in front of PYTHONPATH. */
static int add_package_folder(void)
{
    char inject[PATH_MAX];
    static char path[65536];
    const char *inherited = getenv("PYTHONPATH");
    const int result = cli_inject_folder(inject);
    if (result != CLI_HOLDS)
        return result;
    *strrchr(inject, '/') = '\0';
    const int written = snprintf(path, sizeof path, "%s%s%s", inject,
                                 inherited != NULL && inherited[0] != '\0' ? ":" : "",
                                 inherited != NULL ? inherited : "");
    if (written < 0 || (size_t)written >= sizeof path || setenv("PYTHONPATH", path, 1) != 0) {
        cli_error("the environment variable PYTHONPATH is too long");
        return CLI_INPUT;
    }
    return CLI_HOLDS;
}

/* The exporter is Python, since what it traces is: `python -m tocsin.plan export ...`. */
static int export_plan(int argc, char **argv)
{
    static char option[] = "-m", module[] = "tocsin.plan";
    const char *wanted = getenv("TOCSIN_PYTHON");
    char *pythons[] = {(char[]){"python"}, (char[]){"python3"}};
    char **command = calloc((size_t)argc + 4, sizeof *command);

    if (command == NULL) {
        cli_error("out of memory");
        return CLI_INTERNAL;
    }
    int result = add_package_folder();
    if (result == CLI_HOLDS) {
        command[1] = option;
        command[2] = module;
        memcpy(command + 3, argv, (size_t)argc * sizeof *command);
        command[0] = pythons[0];
        if (wanted != NULL && wanted[0] != '\0')
            execvp(wanted, command);
        for (size_t k = 0; k < 2 && (wanted == NULL || wanted[0] == '\0'); k++) {
            command[0] = pythons[k];
            execvp(pythons[k], command);
        }
        cli_error("cannot start %s", wanted != NULL && wanted[0] != '\0' ? wanted : "python");
        cli_hint("set TOCSIN_PYTHON to the interpreter that has torch");
        result = CLI_INPUT;
    }
    free(command);
    return result;
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
