/* cmd_infer.c - `tocsin infer`: healthy recordings -> invariants.
 *
 * Under mpirun the ranks share the counting of the runs, and of each run when there are more ranks
 * than runs; rank 0 does the rest, and it alone prints.
 */
#include "relations.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <tocsin/infer.h>
#include <tocsin/scale.h>
#include <unistd.h>

#define THREADS_MAX 1024

static void show_progress(void *context, const char *phase, uint64_t done, uint64_t total)
{
    cli_progress_update(context, phase, done, total);
}

static void explain_dropped(void *context, const char *relation, const char *sentence,
                            const char *reason)
{
    cli_progress_end(context);
    printf("dropped (%s): %s\n  because %s\n", relation, sentence, reason);
}

typedef struct infer_command {
    cli_operands runs;
    const char *output; /* NULL: only counted, for `keep` */
    const char *keep;
    cli_texts add;
    cli_texts relations;
    bool wide;
    bool explains;
    bool force;
    bool quiet;
    uint64_t threads;
} infer_command;

/* Can a file be made under this name? */
static bool can_create(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int length = slash ? (int)(slash - path) + 1 : 0;
    snprintf(folder, sizeof folder, "%.*s.", length, path);
    return access(folder, W_OK | X_OK) == 0;
}

/* May this file be written? Found out before the work is done. */
static int validate_output(const infer_command *command, const char *path, const char *option)
{
    bool to_stdout = strcmp(path, "-") == 0;
    bool exists = !to_stdout && access(path, F_OK) == 0;
    if (exists && !command->force) {
        cli_error("%s exists already", path);
        cli_hint("choose another name with %s, or add --force to replace it", option);
        return CLI_INPUT;
    }
    if (!to_stdout && !exists && !can_create(path)) {
        cli_error("cannot create: %s, %s", strerror(errno), path);
        return CLI_INPUT;
    }
    return CLI_HOLDS;
}

static int validate(const infer_command *command)
{
    bool idle = command->runs.count + command->add.count == 0;
    bool silent = !command->output && !command->keep;
    if (idle || silent || command->threads > THREADS_MAX) {
        cli_error(idle     ? "no recording to infer from"
                  : silent ? "no output file"
                           : "too many threads");
        cli_hint("tocsin infer RUN... -o inv.jsonl");
        return CLI_INPUT;
    }
    int exit_code = command->output ? validate_output(command, command->output, "-o") : CLI_HOLDS;
    if (exit_code == CLI_HOLDS && command->keep) {
        exit_code = validate_output(command, command->keep, "--keep");
    }
    if (exit_code == CLI_HOLDS && command->output && strcmp(command->output, "-") == 0 &&
        (command->explains || (command->keep && strcmp(command->keep, "-") == 0))) {
        cli_error("%s and -o - would mix on the standard output",
                  command->explains ? "--explain-dropped" : "--keep -");
        exit_code = CLI_INPUT;
    }
    return exit_code;
}

/* ---- counting ------------------------------------------------------------------------------ */

typedef struct counting {
    const infer_command *command;
    const tocsin_infer_options *options;
    uint32_t shards; /* of each run */
} counting;

static tocsin_status count_run(void *context, size_t index, tocsin_scale_output *output,
                               tocsin_error *error)
{
    const counting *work = context;
    char *bytes;
    size_t count;
    const char *run = work->command->runs.items[index / work->shards];
    uint32_t shard = (uint32_t)index % work->shards;
    tocsin_status status = work->shards == 1
                               ? tocsin_reference_count(run, work->options, &bytes, &count, error)
                               : tocsin_reference_count_shard(run, shard, work->shards,
                                                              work->options, &bytes, &count, error);
    if (status == TOCSIN_OK) {
        tocsin_scale_write(output, bytes, count);
    }
    tocsin_reference_bytes_free(bytes);
    return status;
}

/* The results from `first` on are the shards of one run. */
static tocsin_status add_counted(tocsin_references *references, const tocsin_scale_results *results,
                                 size_t first, uint32_t shards, tocsin_error *error)
{
    const char *bytes[TOCSIN_SHARDS_MAX];
    size_t counts[TOCSIN_SHARDS_MAX];
    for (uint32_t i = 0; i < shards; i++) {
        bytes[i] = tocsin_scale_result(results, first + i, &counts[i]);
    }
    return shards == 1 ? tocsin_references_add(references, bytes[0], counts[0], error)
                       : tocsin_references_add_shards(references, bytes, counts, shards, error);
}

/* On all ranks, into the references of rank 0. */
static tocsin_status count_shared(tocsin_scale *scale, const infer_command *command,
                                  const tocsin_infer_options *options,
                                  tocsin_references *references, tocsin_error *error)
{
    size_t per_run = (size_t)tocsin_scale_size(scale) / command->runs.count;
    counting work = {.command = command,
                     .options = options,
                     .shards = per_run < 1                   ? 1
                               : per_run > TOCSIN_SHARDS_MAX ? TOCSIN_SHARDS_MAX
                                                             : (uint32_t)per_run};
    tocsin_scale_results *results = NULL;
    tocsin_status status = tocsin_scale_run(scale, command->runs.count * work.shards, count_run,
                                            &work, &results, error);
    for (size_t i = 0; results && i < command->runs.count && status == TOCSIN_OK; i++) {
        status = add_counted(references, results, i * work.shards, work.shards, error);
    }
    tocsin_scale_results_free(results);
    return status;
}

static tocsin_status count_runs(tocsin_scale *scale, const infer_command *command,
                                const tocsin_infer_options *options, tocsin_references *references,
                                tocsin_error *error)
{
    tocsin_status status = TOCSIN_OK;
    for (size_t i = 0; i < command->add.count && status == TOCSIN_OK; i++) {
        status = tocsin_scale_rank(scale) == 0
                     ? tocsin_references_load(references, command->add.items[i], error)
                     : TOCSIN_OK;
    }
    status = tocsin_scale_agree(scale, status, error);
    if (status != TOCSIN_OK || command->runs.count == 0) {
        return status;
    }
    if (tocsin_scale_size(scale) > 1) {
        return count_shared(scale, command, options, references, error);
    }
    return tocsin_references_add_runs(references, (const char *const *)command->runs.items,
                                      command->runs.count, options, error);
}

/* ---- results ------------------------------------------------------------------------------- */

/* A run to name in a hint: the first that was given, or of those that were added. */
static const char *first_run(const infer_command *command, const tocsin_references *references)
{
    return command->runs.count > 0 ? command->runs.items[0]
                                   : tocsin_references_get(references, 0).run;
}

static void summarise(const infer_command *command, const tocsin_references *references,
                      const tocsin_infer_summary *summary)
{
    char events[CLI_NUMBER_BYTES];
    char hypotheses[CLI_NUMBER_BYTES];
    char kept[CLI_NUMBER_BYTES];
    size_t run_count = tocsin_references_count(references);
    cli_note("%s invariants from %zu run%s (%s events, %s hypotheses)",
             cli_count(summary->kept, kept), run_count, run_count == 1 ? "" : "s",
             cli_count(summary->events, events), cli_count(summary->hypotheses, hypotheses));
    if (run_count == 1) {
        cli_note("one run cannot tell a habit from a rule: give two or three that differ in seed,"
                 " batch size or learning rate");
    }
    if (strcmp(command->output, "-") != 0) {
        cli_hint("tocsin show %s; tocsin check -i %s %s", command->output, command->output,
                 first_run(command, references));
    }
}

/* Which runs the invariants came from stands beside them. */
static tocsin_status write_provenance(const infer_command *command,
                                      const tocsin_references *references,
                                      const tocsin_infer_summary *summary, tocsin_error *error)
{
    struct stat status;
    char path[PATH_MAX];
    bool is_file = strcmp(command->output, "-") != 0 && stat(command->output, &status) == 0 &&
                   S_ISREG(status.st_mode);
    if (!is_file ||
        snprintf(path, sizeof path, "%s.provenance.json", command->output) >= (int)sizeof path) {
        return TOCSIN_OK;
    }
    return tocsin_references_write_provenance(references, summary, path, error);
}

static int save(const infer_command *command, const tocsin_references *references,
                const tocsin_invariant_set *set, const tocsin_infer_summary *summary)
{
    tocsin_error error;
    size_t run_count = tocsin_references_count(references);
    if (tocsin_invariants_count(set) == 0) {
        cli_error("nothing could be inferred from %zu recording%s with %" PRIu64 " events",
                  run_count, run_count == 1 ? "" : "s", summary->events);
        cli_hint("tocsin info %s", first_run(command, references));
        return CLI_UNDECIDED;
    }
    if (tocsin_invariants_save(set, command->output, command->force, &error) != TOCSIN_OK ||
        write_provenance(command, references, summary, &error) != TOCSIN_OK) {
        return cli_fail(&error);
    }
    if (!command->quiet) {
        summarise(command, references, summary);
    }
    return CLI_HOLDS;
}

/* What rank 0 does with the counted runs. */
static int conclude(const infer_command *command, const tocsin_references *references,
                    const tocsin_infer_options *options)
{
    tocsin_error error;
    if (command->keep &&
        tocsin_references_save(references, command->keep, command->force, &error) != TOCSIN_OK) {
        return cli_fail(&error);
    }
    if (!command->output) {
        return CLI_HOLDS;
    }
    tocsin_invariant_set *set = NULL;
    tocsin_infer_summary summary;
    tocsin_status status = tocsin_references_infer(references, options, &set, &summary, &error);
    cli_progress_end(options->context);
    int exit_code =
        status == TOCSIN_OK ? save(command, references, set, &summary) : cli_fail(&error);
    tocsin_invariants_free(set);
    return exit_code;
}

static int infer_on(tocsin_scale *scale, const infer_command *command)
{
    bool first = tocsin_scale_rank(scale) == 0;
    cli_progress progress;
    cli_progress_begin(&progress, command->quiet || !first);
    tocsin_infer_options options = {
        .struct_bytes = sizeof options,
        .threads = (unsigned)command->threads,
        .wide = command->wide,
        .progress = show_progress,
        .dropped = command->explains ? explain_dropped : NULL,
        .context = &progress,
    };
    tocsin_references *references = NULL;
    tocsin_relations *relations;
    tocsin_error error;
    tocsin_status status = cli_relations_open(&command->relations, &relations, &error);
    options.relations = relations;
    if (status == TOCSIN_OK) {
        status = tocsin_references_new(&references, &error);
    }
    status = tocsin_scale_agree(scale, status, &error);
    if (status == TOCSIN_OK) {
        status = count_runs(scale, command, &options, references, &error);
    }
    cli_progress_end(&progress);
    int exit_code = CLI_HOLDS;
    if (first) { /* it speaks for all */
        exit_code =
            status == TOCSIN_OK ? conclude(command, references, &options) : cli_fail(&error);
    }
    tocsin_references_free(references);
    tocsin_relations_free(relations);
    return exit_code;
}

static int infer(const infer_command *command)
{
    tocsin_scale *scale;
    tocsin_error error;
    if (tocsin_scale_begin(&scale, &error) != TOCSIN_OK) {
        return cli_fail(&error);
    }
    int exit_code = tocsin_scale_rank(scale) == 0 ? validate(command) : CLI_HOLDS;
    tocsin_status status = tocsin_scale_agree(
        scale,
        exit_code == CLI_HOLDS ? TOCSIN_OK
                               : tocsin_error_set(&error, TOCSIN_E_ARGUMENT, "wrong arguments"),
        &error);
    if (status == TOCSIN_OK) {
        exit_code = infer_on(scale, command);
    }
    (void)fflush(stdout);
    return tocsin_scale_end(scale, exit_code);
}

int cmd_infer(int argc, char **argv)
{
    infer_command command = {0};
    const cli_option options[] = {
        {"output", 'o', CLI_TEXT, "FILE", "where the invariants go (-: stdout)", &command.output},
        {"keep", 0, CLI_TEXT, "FILE", "keep what was counted in the runs, for --add",
         &command.keep},
        {"add", 0, CLI_TEXTS, "FILE", "infer also from the runs kept there (repeatable)",
         &command.add},
        {"relation", 0, CLI_TEXTS, "FILE", CLI_RELATION_HELP, &command.relations},
        {"wide", 0, CLI_FLAG, NULL, "claim also what often is a coincidence", &command.wide},
        {"explain-dropped", 0, CLI_FLAG, NULL, "print each hypothesis that was dropped, and why",
         &command.explains},
        {"threads", 'j', CLI_COUNT, "COUNT", "threads (default: one for each CPU)",
         &command.threads},
        {"force", 'f', CLI_FLAG, NULL, "replace a file that exists", &command.force},
        {"quiet", 'q', CLI_FLAG, NULL, "print errors only", &command.quiet},
    };
    const cli_usage usage = {
        .command = "infer",
        .synopsis = "-o FILE RUN...",
        .about =
            "Infer from recordings of healthy runs what always holds. Two or three short runs\n"
            "that differ in seed, batch size, learning rate or optimizer teach more than a\n"
            "long one. Which runs it were is written to FILE.provenance.json.",
        .example = "tocsin infer healthy-1 healthy-2 -o inv.jsonl",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    int exit_code;
    if (cli_options_end(&usage, argc, argv, &command.runs, &exit_code)) {
        return exit_code;
    }
    return infer(&command);
}
