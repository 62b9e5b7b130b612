/* cmd_align.c - `tocsin align`: where two runs that should be the same part first. */
#include "accepting.h"
#include "drilling.h"
#include "replaying.h"

#include <math.h>
#include <stdlib.h>
#include <tocsin/report.h>

typedef struct align_options {
    unsigned format;
    bool all;
    unsigned digest, probes; /* baselines */
    const char *tolerance;
    tocsin_align_options compare_by;
    const char *unstable;
    const char *perfetto; /* file, or NULL */
    const char *map;      /* file or name, or NULL */
    bool drill, force;
    const char *replay; /* checkpoint, or NULL */
    const char *output; /* folder of the runs that are made, or NULL */
    unsigned mode;
    cli_drill_target *target; /* where they part is put there, and not printed; or NULL */
    bool whole;
    uint64_t skip;
    cli_accepting accepting;
    const char *certificate; /* file, or NULL */
} align_options;

/* How to compare, by what was typed. */
static bool choose(align_options *options)
{
    options->compare_by = (tocsin_align_options){.struct_bytes = sizeof options->compare_by,
                                                 .digest = (tocsin_align_digest)options->digest,
                                                 .few_probes = options->probes == 1,
                                                 .whole = options->whole,
                                                 .skip = options->skip};
    if (!options->tolerance)
        return true;
    char *end;
    double tolerance = strtod(options->tolerance, &end);
    options->compare_by.tolerance = tolerance;
    return end != options->tolerance && *end == '\0' && isfinite(tolerance) && tolerance > 0.0;
}

static int exit_code_of(tocsin_align_verdict verdict)
{
    switch (verdict) {
    case TOCSIN_ALIGN_IDENTICAL:
    case TOCSIN_ALIGN_ACCEPTED:
        return CLI_HOLDS;
    case TOCSIN_ALIGN_DIVERGED:
        return CLI_FINDING;
    case TOCSIN_ALIGN_INCOMPARABLE:
    case TOCSIN_ALIGN_UNSTABLE:
        break;
    }
    return CLI_UNDECIDED;
}

static int align(const char *path_a, const char *path_b, const align_options *options)
{
    tocsin_run *a = NULL, *b = NULL;
    tocsin_align_options by = options->compare_by;
    tocsin_align_result *result = NULL;
    tocsin_error error;
    int exit_code;
    tocsin_perfetto *perfetto = NULL;
    tocsin_name_map *map = NULL;
    tocsin_align_rules *rules = NULL;
    tocsin_status status = tocsin_run_open(path_a, false, &a, &error);
    if (status == TOCSIN_OK)
        status = tocsin_run_open(path_b, false, &b, &error);
    if (status == TOCSIN_OK && options->unstable)
        status = tocsin_stability_read(options->unstable, &by.unstable, &error);
    if (status == TOCSIN_OK && options->map)
        status = tocsin_name_map_load(options->map, &map, &error);
    by.map = map;
    if (status == TOCSIN_OK)
        status = cli_accepting_load(&options->accepting, &rules, &error);
    by.rules = rules;
    by.certify = options->certificate != NULL;
    if (status == TOCSIN_OK && options->perfetto) {
        status = tocsin_perfetto_open(options->perfetto, path_a, path_b, &perfetto, &error);
        by.visit = tocsin_perfetto_visit;
        by.context = perfetto;
    }
    if (status == TOCSIN_OK)
        status = tocsin_align_runs(a, b, &by, &result, &error);
    if (status == TOCSIN_OK && perfetto)
        status = tocsin_perfetto_finish(perfetto, result, &error);
    if (status == TOCSIN_OK && options->target)
        cli_drill_aim(options->target, result);
    if (status == TOCSIN_OK && options->certificate)
        status = tocsin_report_save_certificate(result, tocsin_run_json(a), tocsin_run_json(b),
                                                options->certificate, &error);
    if (status == TOCSIN_OK && options->accepting.id)
        status = cli_accepting_add(&options->accepting, result, rules, &error);
    else if (status == TOCSIN_OK && !(options->target && options->target->found))
        status = tocsin_report_print_alignment(
            result, path_a, path_b, options->format ? TOCSIN_REPORT_JSON : TOCSIN_REPORT_TEXT,
            options->all, stdout, &error);
    if (status != TOCSIN_OK)
        exit_code = cli_fail(&error);
    else
        exit_code = options->accepting.id ? CLI_HOLDS : exit_code_of(result->verdict);
    tocsin_perfetto_free(perfetto);
    tocsin_name_map_free(map);
    tocsin_align_result_free(result);
    tocsin_stability_free(by.unstable);
    tocsin_align_rules_free(rules);
    if (a)
        tocsin_run_close(a);
    if (b)
        tocsin_run_close(b);
    return exit_code;
}

/* Align what has been recorded just now. `note`: what this does not cover; `target` as in the
 * options. */
static int align_pair(const cli_paired_runs *pair, const align_options *options, const char *note,
                      cli_drill_target *target)
{
    align_options again = *options;
    again.target = target;
    again.compare_by.notes = &note;
    again.compare_by.note_count = 1;
    return align(pair->paths[0], pair->paths[1], &again);
}

/* Once more at what the first look found, if that was cut too coarsely there. */
static int look_closely(cli_paired_runs *pair, const align_options *options)
{
    char note[256];
    cli_drill_target closer = {0};
    const cli_drill_target *target = options->target;
    int exit_code = cli_drill_record(pair, target);
    if (exit_code != CLI_HOLDS)
        return exit_code;
    snprintf(note, sizeof note, "both were run again, and calls were looked at in step %lld alone",
             (long long)target->step);
    exit_code = align_pair(pair, options, note, &closer);
    if (exit_code == CLI_HOLDS) {
        cli_note("the second runs do not part: what the first ones showed does not repeat");
        return CLI_FINDING;
    }
    if (!closer.found)
        return exit_code;
    if (closer.coarse) {
        pair->output = pair->folder;
        pair->force = true;
        exit_code = cli_drill_record(pair, &closer);
        if (exit_code != CLI_HOLDS)
            return exit_code;
    }
    return align_pair(pair, options, note, NULL);
}

static int drill_again(const align_options *options, const tocsin_run *const runs[2],
                       char *const *commands[2])
{
    static cli_paired_runs pair;
    tocsin_run_command *from[2] = {NULL, NULL};
    tocsin_error error;
    int exit_code = CLI_HOLDS;
    pair = (cli_paired_runs){.output = options->output, .force = options->force};
    for (size_t i = 0; exit_code == CLI_HOLDS && !commands[1] && i < 2; i++)
        if (tocsin_run_command_read(runs[i], &from[i], &error) != TOCSIN_OK)
            exit_code = cli_fail(&error);
    if (exit_code == CLI_HOLDS)
        exit_code = cli_drill_commands(from, runs, commands);
    pair.commands[0] = commands[0];
    pair.commands[1] = commands[1];
    if (exit_code == CLI_HOLDS)
        exit_code = look_closely(&pair, options);
    tocsin_run_command_free(from[0]);
    tocsin_run_command_free(from[1]);
    return exit_code;
}

/* Where they part, both commands are run again and looked at closely. */
static int drill(const cli_operands *operands, align_options *options)
{
    cli_drill_target target = {0};
    char *const *commands[2];
    tocsin_run *runs[2] = {NULL, NULL};
    tocsin_error error;
    cli_paired_runs_split(operands->items + operands->plain, commands);
    options->target = &target;
    int exit_code = align(operands->items[0], operands->items[1], options);
    if (!target.found)
        return exit_code;
    tocsin_status status = tocsin_run_open(operands->items[0], false, &runs[0], &error);
    if (status == TOCSIN_OK)
        status = tocsin_run_open(operands->items[1], false, &runs[1], &error);
    if (status == TOCSIN_OK)
        exit_code = drill_again(options, (const tocsin_run *const[]){runs[0], runs[1]}, commands);
    else
        exit_code = cli_fail(&error);
    for (size_t i = 0; i < 2; i++)
        if (runs[i])
            tocsin_run_close(runs[i]);
    return exit_code;
}

/* Both commands from one checkpoint. */
static int replay(const cli_operands *operands, const align_options *options)
{
    static cli_paired_runs pair;
    static const char *const modes[] = {"trusted", "online", "full", "drill"};
    pair = (cli_paired_runs){
        .output = options->output, .force = options->force, .boundaries = modes[options->mode]};
    cli_paired_runs_split(operands->items + operands->plain, pair.commands);
    if (operands->plain > 0 || !pair.commands[0] || !pair.commands[1]) {
        cli_error("--replay needs two commands, and no recorded run");
        cli_hint("tocsin align --replay CKPT -- COMMAND_A -- COMMAND_B");
        return CLI_INPUT;
    }
    int exit_code = cli_replay_record(&pair, options->replay);
    return exit_code == CLI_HOLDS ? align_pair(&pair, options, CLI_REPLAY_NOTE, NULL) : exit_code;
}

/* Do operands and options fit together? Prints what is wrong. */
static bool check(const cli_operands *operands, align_options *options)
{
    bool itself = operands->count == 1 && !options->replay && !options->drill;
    if (!options->replay && !itself &&
        (operands->plain != 2 || (operands->count > 2 && !options->drill))) {
        cli_error("tocsin align needs one or two recorded runs, not %zu", operands->count);
        cli_hint("tocsin align RUN_A RUN_B");
        return false;
    }
    if (!choose(options)) {
        cli_error("--tolerance takes a number above 0, not '%s'", options->tolerance);
        cli_hint("tocsin align --tolerance 1e-3 RUN_A RUN_B");
        return false;
    }
    options->compare_by.itself = itself;
    return cli_accepting_check(&options->accepting);
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
        {"drill", 0, CLI_FLAG, NULL, "run both again, and look closely where they part",
         &align_by.drill},
        {"replay", 0, CLI_TEXT, "CKPT", "record two commands from one checkpoint, and align them",
         &align_by.replay},
        {"mode", 0, CLI_CHOICE, "trusted|online|full|drill", "of --replay: what is recorded",
         &align_by.mode},
        {"output", 'o', CLI_TEXT, "DIR", "of --drill and --replay: folder of the new runs",
         &align_by.output},
        {"force", 'f', CLI_FLAG, NULL, "replace runs that are there", &align_by.force},
        {"skip", 0, CLI_COUNT, "N", "run B was resumed after N steps of run A", &align_by.skip},
        {"rules", 0, CLI_TEXT, "FILE", "differences that these rules accept are no divergence",
         &align_by.accepting.file},
        {"accept", 0, CLI_TEXT, "ID", "add a rule to FILE: the runs may differ here",
         &align_by.accepting.id},
        {"because", 0, CLI_TEXT, "TEXT", "why they may", &align_by.accepting.because},
        {"until", 0, CLI_TEXT, "DATE", "its last day, like 2027-01-31 (default: in 90 days)",
         &align_by.accepting.until},
        {"certificate", 0, CLI_TEXT, "FILE", "also what was identical, for others to compare",
         &align_by.certificate},
    };
    const cli_usage usage = {
        .command = "align",
        .synopsis = "RUN_A [RUN_B]",
        .about =
            "Compare two recorded runs bit by bit, and name where they part; in one run, what was\n"
            "recomputed with the first time. Exit status: 0 identical, 1 they part, 3 undecided.",
        .example = "tocsin align before after",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    cli_operands operands;
    int exit_code;
    if (cli_options_end(&usage, argc, argv, &operands, &exit_code)) {
        return exit_code;
    }
    if (!check(&operands, &align_by))
        return CLI_INPUT;
    return align_by.replay ? replay(&operands, &align_by)
           : align_by.drill
               ? drill(&operands, &align_by)
               : align(operands.items[0], operands.items[operands.count - 1], &align_by);
}
