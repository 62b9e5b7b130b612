/* cmd_env.c - `tocsin env`: what must be fixed so that two runs compute the same bits. */
#include "cli.h"
#include "python_module.h"

#include <tocsin/align.h>
#include <tocsin/report.h>

/* Say in which settings two recordings differ. */
static int compare(const char *path_a, const char *path_b, bool json)
{
    tocsin_run *a = NULL, *b = NULL;
    tocsin_align_result *result = NULL;
    tocsin_align_options options = {.struct_bytes = sizeof options, .settings_only = true};
    tocsin_error error;
    tocsin_status status = tocsin_run_open(path_a, false, &a, &error);
    if (status == TOCSIN_OK)
        status = tocsin_run_open(path_b, false, &b, &error);
    if (status == TOCSIN_OK)
        status = tocsin_align_runs(a, b, &options, &result, &error);
    if (status == TOCSIN_OK)
        status = tocsin_report_print_settings(
            result, path_a, path_b, json ? TOCSIN_REPORT_JSON : TOCSIN_REPORT_TEXT, stdout, &error);
    int exit_code = status == TOCSIN_OK ? CLI_HOLDS : cli_fail(&error);
    for (size_t c = 0; exit_code == CLI_HOLDS && c < result->condition_count; c++) {
        exit_code = result->conditions[c].generator ? CLI_HOLDS : CLI_FINDING;
    }
    tocsin_align_result_free(result);
    if (a) {
        tocsin_run_close(a);
    }
    if (b) {
        tocsin_run_close(b);
    }
    return exit_code;
}

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
        .synopsis = "[RUN_A RUN_B]",
        .about =
            "Audit what decides whether two runs compute the same bits: environment variables and\n"
            "torch's switches, each as ok, missing, too late, bad value, deprecated or ghost\n"
            "(nobody reads it). Asks the Python that has torch ($TOCSIN_PYTHON, else python).\n"
            "tocsin.deterministic(seed) sets what a script can set. Of two recorded runs: in "
            "which\n"
            "of these, and of processor, libraries, packages and source, they differ, what "
            "decides\n"
            "bits first. Exit status: 0 all is fixed, or the same, 1 something is not.",
        .example = "OMP_NUM_THREADS=4 tocsin env",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    cli_operands operands;
    int exit_code;
    if (cli_options_end(&usage, argc, argv, &operands, &exit_code)) {
        return exit_code;
    }
    if (operands.count != 0 && (operands.count != 2 || gpu)) {
        cli_error("tocsin env needs two recorded runs, or none%s", gpu ? " with --gpu" : "");
        cli_hint("tocsin env RUN_A RUN_B");
        return CLI_INPUT;
    }
    if (operands.count == 2) {
        return compare(operands.items[0], operands.items[1], chosen != 0);
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
