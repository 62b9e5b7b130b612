/* cmd_env.c - `tocsin env`: what must be fixed so that two runs compute the same bits. */
#include "cli.h"
#include "python_module.h"

int cmd_env(int argc, char **argv)
{
    static char json[] = "json", format[] = "--format", gpu_option[] = "--gpu";
    unsigned chosen = 0;
    bool gpu = false;
    const cli_option options[] = {
        {"gpu", 0, CLI_FLAG, NULL, "also what only GPUs need (default: if there is one)", &gpu},
        {"format", 0, CLI_CHOICE, "text|json", "form of the result (default: text)", &chosen},
    };
    const cli_usage usage = {
        .command = "env",
        .synopsis = "",
        .about =
            "Audit what decides whether two runs compute the same bits: environment variables and\n"
            "torch's switches, each as ok, missing, too late, bad value, deprecated or ghost\n"
            "(nobody reads it). Asks the Python that has torch ($TOCSIN_PYTHON, else python).\n"
            "tocsin.deterministic(seed) sets what a script can set. Exit status: 0 all is\n"
            "fixed, 1 something is not.",
        .example = "OMP_NUM_THREADS=4 tocsin env",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    cli_operands operands;
    int exit_code;
    if (cli_options_end(&usage, argc, argv, &operands, &exit_code)) {
        return exit_code;
    }
    if (operands.count != 0) {
        cli_error("tocsin env takes no '%s'", operands.items[0]);
        cli_hint("tocsin env");
        return CLI_INPUT;
    }
    char *arguments[3];
    int count = 0;
    if (gpu) {
        arguments[count++] = gpu_option;
    }
    if (chosen) {
        arguments[count++] = format;
        arguments[count++] = json;
    }
    return cli_become_python("tocsin.environment", count, arguments);
}
