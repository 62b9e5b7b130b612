/* cmd_align.c - `tocsin align`: where two runs that should be the same part first. */
#include "cli.h"

#include <math.h>
#include <stdlib.h>
#include <tocsin/align.h>
#include <tocsin/report.h>

typedef struct align_options {
    unsigned format;
    bool all;
    unsigned digest, probes; /* baselines */
    const char *tolerance;
    tocsin_align_options library;
    const char *unstable;
    const char *perfetto; /* file, or NULL */
    const char *map;      /* file or name, or NULL */
    bool whole;
} align_options;

/* The library's options by what was typed. */
static bool choose(align_options *options)
{
    options->library = (tocsin_align_options){.struct_bytes = sizeof options->library,
                                              .digest = (tocsin_align_digest)options->digest,
                                              .few_probes = options->probes == 1,
                                              .whole = options->whole};
    if (!options->tolerance)
        return true;
    char *end;
    double tolerance = strtod(options->tolerance, &end);
    options->library.tolerance = tolerance;
    return end != options->tolerance && *end == '\0' && isfinite(tolerance) && tolerance > 0.0;
}

static int align(const char *path_a, const char *path_b, const align_options *options)
{
    tocsin_run *a = NULL, *b = NULL;
    tocsin_align_options by = options->library;
    tocsin_align_result *result = NULL;
    tocsin_error error;
    int exit_code;
    tocsin_perfetto *perfetto = NULL;
    tocsin_name_map *map = NULL;
    tocsin_status status = tocsin_run_open(path_a, false, &a, &error);
    if (status == TOCSIN_OK)
        status = tocsin_run_open(path_b, false, &b, &error);
    if (status == TOCSIN_OK && options->unstable)
        status = tocsin_stability_read(options->unstable, &by.unstable, &error);
    if (status == TOCSIN_OK && options->map)
        status = tocsin_name_map_load(options->map, &map, &error);
    by.map = map;
    if (status == TOCSIN_OK && options->perfetto) {
        status = tocsin_perfetto_open(options->perfetto, path_a, path_b, &perfetto, &error);
        by.visit = tocsin_perfetto_visit;
        by.context = perfetto;
    }
    if (status == TOCSIN_OK)
        status = tocsin_align_runs(a, b, &by, &result, &error);
    if (status == TOCSIN_OK && perfetto)
        status = tocsin_perfetto_finish(perfetto, result, &error);
    if (status == TOCSIN_OK)
        status = tocsin_report_print_alignment(
            result, path_a, path_b, options->format ? TOCSIN_REPORT_JSON : TOCSIN_REPORT_TEXT,
            options->all, stdout, &error);
    if (status == TOCSIN_OK)
        exit_code = result->verdict == TOCSIN_ALIGN_IDENTICAL  ? CLI_HOLDS
                    : result->verdict == TOCSIN_ALIGN_DIVERGED ? CLI_FINDING
                                                               : CLI_UNDECIDED;
    else
        exit_code = cli_fail(&error);
    tocsin_perfetto_free(perfetto);
    tocsin_name_map_free(map);
    tocsin_align_result_free(result);
    tocsin_stability_free(by.unstable);
    if (a)
        tocsin_run_close(a);
    if (b)
        tocsin_run_close(b);
    return exit_code;
}

int cmd_align(int argc, char **argv)
{
    align_options align_by = {0};
    const cli_option options[] = {
        {"format", 0, CLI_CHOICE, "text|json", "form of the result (default: text)",
         &align_by.format},
        {"all", 0, CLI_FLAG, NULL, "show every difference of the first point", &align_by.all},
        {"digest", 0, CLI_CHOICE, "all|xor|sum|norm",
         "baseline: compare this part of each digest alone", &align_by.digest},
        {"tolerance", 0, CLI_TEXT, "R", "baseline: equal if norm and largest value agree within R",
         &align_by.tolerance},
        {"probes", 0, CLI_CHOICE, "all|few", "baseline: losses and the model's output alone",
         &align_by.probes},
        {"unstable", 0, CLI_TEXT, "FILE", "of record --repeat: what differs there proves nothing",
         &align_by.unstable},
        {"perfetto", 0, CLI_TEXT, "FILE", "also both runs side by side, for ui.perfetto.dev",
         &align_by.perfetto},
        {"map", 0, CLI_TEXT, "MAP", "names of two frameworks: a file, megatron-hf, ...",
         &align_by.map},
        {"whole", 0, CLI_FLAG, NULL,
         "compare what all ranks hold together (always, if layouts differ)", &align_by.whole},
    };
    const cli_usage usage = {
        .command = "align",
        .synopsis = "RUN_A RUN_B",
        .about =
            "Compare two recorded runs that should be the same, bit by bit, and name the first\n"
            "boundaries at which they part. Exit status: 0 identical, 1 they part, 3 nothing\n"
            "could be compared, or only what does not repeat differs. Baselines are how other\n"
            "tools compare; they see less, and are here to be measured against.",
        .example = "tocsin align before after",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    cli_operands operands;
    int exit_code;
    if (cli_options_end(&usage, argc, argv, &operands, &exit_code)) {
        return exit_code;
    }
    if (operands.count != 2) {
        cli_error("tocsin align needs two recorded runs, not %zu", operands.count);
        cli_hint("tocsin align RUN_A RUN_B");
        return CLI_INPUT;
    }
    if (!choose(&align_by)) {
        cli_error("--tolerance takes a number above 0, not '%s'", align_by.tolerance);
        cli_hint("tocsin align --tolerance 1e-3 RUN_A RUN_B");
        return CLI_INPUT;
    }
    return align(operands.items[0], operands.items[1], &align_by);
}
