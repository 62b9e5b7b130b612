/* `tocsin import traincheck`: a folder of TrainCheck's traces -> a run.
 *
 * Two passes over the lines. The first is a scan for the processes and their ranks, which a run
 * tells at its start; the second parses, earliest line first over all files, and routes each record
 * to its process. Lines that are no record, and lines that came before, are left out and reported.
 * Memory: a hash a line, plus what each process keeps. Cost: parsing dominates.
 */
#include <assert.h>
#include <exchange/exchange.h>
#include <stdlib.h>
#include <time.h>
#include <tocsin/run.h>

#define PROCESSES_MAX 4096u

typedef struct found_process {
    int64_t pid;
    int64_t rank; /* -1: none */
    uint64_t start_ns;
    bool has_states;
    tocsin_import_process *importing;
} found_process;

typedef struct import {
    const tocsin_import_options *options;
    const char *directory;
    const char *run;
    TOCSIN_VEC(found_process) processes; /* by pid, ascending */
    tocsin_map index;                    /* pid -> place + 1 */
    int64_t world_size;
    tocsin_map seen; /* hashes of lines */
    tocsin_kept_records *kept;
    tocsin_import_summary summary;
} import;

/* ---- processes and their ranks ------------------------------------------------------------- */

static tocsin_status note_process(import *job, const tocsin_traincheck_glimpse *glimpse,
                                  tocsin_error *error)
{
    uint64_t *place = tocsin_map_at(&job->index, (uint64_t)glimpse->process);
    if (place == NULL)
        return tocsin_error_memory(error);
    if (*place == 0) {
        found_process found = {.pid = glimpse->process, .rank = -1, .start_ns = glimpse->time_ns};
        if (job->processes.count == PROCESSES_MAX)
            return tocsin_error_at(error, TOCSIN_E_LIMIT, job->directory, -1,
                                   "more than %u processes", PROCESSES_MAX);
        if (!TOCSIN_VEC_PUSH(&job->processes, found))
            return tocsin_error_memory(error);
        *place = job->processes.count;
    }
    found_process *process = &job->processes.items[*place - 1];
    process->has_states |= glimpse->is_state;
    if (glimpse->rank >= 0 && glimpse->rank <= INT32_MAX)
        process->rank = glimpse->rank;
    return TOCSIN_OK;
}

static int compare_processes(const void *a, const void *b)
{
    int64_t x = ((const found_process *)a)->pid, y = ((const found_process *)b)->pid;
    return (x > y) - (x < y);
}

/* A trace that carries ranks is believed. Else each process that has variables is given one (or
 * each process, when none has), in the order of the process ids. */
static void give_ranks(import *job)
{
    bool ranked = false, tracked = false;
    int64_t next = 0;
    for (size_t i = 0; i < job->processes.count; ++i) {
        ranked |= job->processes.items[i].rank >= 0;
        tracked |= job->processes.items[i].has_states;
    }
    for (size_t i = 0; i < job->processes.count; ++i) {
        found_process *process = &job->processes.items[i];
        if (!ranked && (process->has_states || !tracked))
            process->rank = next++;
        job->world_size += process->rank >= 0;
    }
    job->summary.ranks = (uint64_t)job->world_size;
}

static tocsin_status find_processes(import *job, tocsin_error *error)
{
    tocsin_traincheck_files *files;
    tocsin_traincheck_line line;
    TOCSIN_TRY(tocsin_traincheck_files_open(job->directory, &files, error));
    job->summary.files = tocsin_traincheck_files_count(files);
    tocsin_status status;
    while ((status = tocsin_traincheck_files_next(files, &line, error)) == TOCSIN_OK &&
           line.text != NULL) {
        tocsin_traincheck_glimpse glimpse;
        if (tocsin_traincheck_record_glimpse(line.text, line.bytes, &glimpse) &&
            glimpse.process >= 0)
            status = note_process(job, &glimpse, error);
        if (status != TOCSIN_OK)
            break;
    }
    tocsin_traincheck_files_close(files);
    if (status != TOCSIN_OK)
        return status;
    if (job->processes.count > 1)
        qsort(job->processes.items, job->processes.count, sizeof *job->processes.items,
              compare_processes);
    for (size_t i = 0; i < job->processes.count; ++i)
        *tocsin_map_find(&job->index, (uint64_t)job->processes.items[i].pid) = i + 1;
    give_ranks(job);
    return TOCSIN_OK;
}

static tocsin_status open_processes(import *job, tocsin_error *error)
{
    for (size_t i = 0; i < job->processes.count; ++i) {
        found_process *process = &job->processes.items[i];
        TOCSIN_TRY(tocsin_import_process_new(job->run, process->pid, process->rank,
                                             process->rank >= 0 ? job->world_size : 0,
                                             process->start_ns, &process->importing, error));
    }
    return TOCSIN_OK;
}

/* ---- records ------------------------------------------------------------------------------- */

static void drop(import *job, const tocsin_traincheck_line *line, const char *why)
{
    const tocsin_import_options *options = job->options;
    if (options != NULL && options->dropped != NULL)
        options->dropped(options->context, line->name, line->number, why);
}

/* Was there an equal line? */
static tocsin_status is_duplicate(import *job, const tocsin_traincheck_line *line, bool *duplicate,
                                  tocsin_error *error)
{
    uint64_t *count =
        tocsin_map_at(&job->seen, tocsin_hash64(line->text, line->bytes, 0x7472616365));
    if (count == NULL)
        return tocsin_error_memory(error);
    *duplicate = (*count)++ > 0;
    return TOCSIN_OK;
}

static tocsin_status take_record(import *job, const tocsin_traincheck_line *line,
                                 const tocsin_traincheck_record *record, tocsin_error *error)
{
    uint64_t *place = tocsin_map_find(&job->index, (uint64_t)record->process);
    const char *why = NULL;
    if (place == NULL) { /* the scan found no number where the parser found one */
        ++job->summary.unreadable;
        drop(job, line, "its process is not a plain number");
        return TOCSIN_OK;
    }
    tocsin_import_process *process = job->processes.items[*place - 1].importing;
    TOCSIN_TRY(tocsin_import_process_add(process, record, &why, error));
    if (why != NULL) {
        if (record->kind == TOCSIN_TRAINCHECK_CALL)
            ++job->summary.duplicates;
        else
            ++job->summary.unmatched;
        drop(job, line, why);
        return TOCSIN_OK;
    }
    ++job->summary.records;
    job->summary.calls += record->kind == TOCSIN_TRAINCHECK_CALL;
    job->summary.states += record->kind == TOCSIN_TRAINCHECK_STATE;
    return tocsin_kept_records_add(job->kept, line->file, line->name, line->text, line->bytes,
                                   error);
}

static tocsin_status take_line(import *job, const tocsin_traincheck_line *line, tocsin_error *error)
{
    tocsin_json_value *root = NULL;
    tocsin_traincheck_record record;
    bool duplicate = false;
    TOCSIN_TRY(is_duplicate(job, line, &duplicate, error));
    if (duplicate) {
        ++job->summary.duplicates;
        drop(job, line, "an equal line came before");
        return TOCSIN_OK;
    }
    tocsin_status status =
        tocsin_traincheck_record_parse(line->text, line->bytes, &root, &record, error);
    if (status == TOCSIN_E_FORMAT) {
        ++job->summary.unreadable;
        drop(job, line, line->last ? "the end of the file is broken off" : "not a record");
        return TOCSIN_OK;
    }
    if (status == TOCSIN_OK)
        status = take_record(job, line, &record, error);
    tocsin_json_free(root);
    return status;
}

static tocsin_status take_lines(import *job, tocsin_error *error)
{
    tocsin_traincheck_files *files;
    tocsin_traincheck_line line;
    TOCSIN_TRY(tocsin_traincheck_files_open(job->directory, &files, error));
    tocsin_status status =
        tocsin_kept_records_new(job->run, tocsin_traincheck_files_count(files), &job->kept, error);
    while (status == TOCSIN_OK &&
           (status = tocsin_traincheck_files_next(files, &line, error)) == TOCSIN_OK &&
           line.text != NULL)
        status = take_line(job, &line, error);
    tocsin_traincheck_files_close(files);
    return status;
}

/* ---- the run ------------------------------------------------------------------------------- */

static void clear_run(const char *run, bool created)
{
    tocsin_string kept = {0};
    tocsin_string_printf(&kept, "%s/" TOCSIN_TRAINCHECK_FOLDER, run);
    if (kept.status == TOCSIN_OK)
        tocsin_folder_clear(kept.text, true);
    tocsin_string_free(&kept);
    tocsin_folder_clear(run, created);
}

static tocsin_status describe(const import *job, int64_t started, bool ended, tocsin_error *error)
{
    const char *const command[] = {"tocsin", "import", "traincheck", job->directory};
    tocsin_run_description description = {.command = command,
                                          .command_count = TOCSIN_COUNT_OF(command),
                                          .cwd = "",
                                          .host = "traincheck",
                                          .mode = "import",
                                          .started = started,
                                          .has_ended = ended,
                                          .ended = (int64_t)time(NULL)};
    return tocsin_run_describe(job->run, &description, error);
}

/* What closing says explains a failed definition, which looks like a lack of memory. */
static void combine(tocsin_status *status, tocsin_status closed, const tocsin_error *closing,
                    tocsin_error *error)
{
    if (closed == TOCSIN_OK || (*status != TOCSIN_OK && *status != TOCSIN_E_MEMORY))
        return;
    *status = closed;
    if (error != NULL)
        *error = *closing;
}

static tocsin_status write_run(import *job, tocsin_error *error)
{
    int64_t started = (int64_t)time(NULL);
    tocsin_error closing;
    TOCSIN_TRY(describe(job, started, false, error));
    tocsin_status status = open_processes(job, error);
    if (status == TOCSIN_OK)
        status = take_lines(job, error);
    for (size_t i = 0; i < job->processes.count; ++i) {
        tocsin_import_process *process = job->processes.items[i].importing;
        combine(&status, tocsin_import_process_close(process, &job->summary.incomplete, &closing),
                &closing, error);
    }
    combine(&status, tocsin_kept_records_close(job->kept, &closing), &closing, error);
    return status == TOCSIN_OK ? describe(job, started, true, error) : status;
}

tocsin_status tocsin_traincheck_import(const char *directory, const char *run,
                                       const tocsin_import_options *options,
                                       tocsin_import_summary *summary, tocsin_error *error)
{
    if (directory == NULL || run == NULL ||
        (options != NULL && options->struct_bytes != sizeof *options))
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "import options");
import job = {.options = options, .directory = directory, .run = run };
    bool created = false;
    tocsin_status status = find_processes(&job, error);
    if (status == TOCSIN_OK)
        status = tocsin_folder_make(run, &created, error);
    if (status == TOCSIN_OK) {
        job.summary.processes = job.processes.count;
        status = write_run(&job, error);
        if (status != TOCSIN_OK)
            clear_run(run, created);
    }
    if (status == TOCSIN_OK && summary != NULL)
        *summary = job.summary;
    TOCSIN_VEC_FREE(&job.processes);
    tocsin_map_free(&job.index);
    tocsin_map_free(&job.seen);
    return status;
}
