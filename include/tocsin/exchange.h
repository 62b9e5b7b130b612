/* tocsin/exchange.h - runs and invariants in the files of TrainCheck 0.1 and 0.2.
 *
 * What is read and written, and how it maps to runs: docs/formats/traincheck-files.md. Nothing in
 * these files is ever evaluated as code.
 */
#ifndef TOCSIN_EXCHANGE_H
#define TOCSIN_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tocsin/invariant.h>
#include <tocsin/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tocsin_import_options {
    size_t struct_bytes; /* sizeof this struct */
    /* Each record that is left out: the file's name, its line from 1, and why. May be NULL. */
    void (*dropped)(void *context, const char *file, uint64_t line, const char *why);
    void *context;
} tocsin_import_options;

typedef struct tocsin_import_summary {
    uint64_t files;
    uint64_t processes;
    uint64_t ranks;   /* processes with a rank */
    uint64_t records; /* imported, of which */
    uint64_t calls;   /* starts of calls, and */
    uint64_t states;  /* states of variables */
    uint64_t
        unreadable; /* left out: lines that are no record, the broken end of a file included, */
    uint64_t duplicates; /* lines that were there already, */
    uint64_t unmatched;  /* ends of calls without their start */
    uint64_t incomplete; /* calls without their end: imported, left open */
} tocsin_import_summary;

/* Import the traces in `directory` (trace_*, proxy_log.json) as a new run. `run` must not exist, or
 * be an empty folder; on failure it is left as it was. `summary` may be NULL.
 * Errors: E_ARGUMENT, E_NOT_FOUND (no such folder, or no trace in it), E_EXISTS, E_IO, E_LIMIT,
 * E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_traincheck_import(
    const char *directory, const char *run, const tocsin_import_options *options,
    tocsin_import_summary *summary, tocsin_error *error);

/* Write the records of an imported run into `directory`, which must not exist, or be an empty
 * folder: its files as they were imported, without what was left out then. `files` (may be NULL):
 * how many. On failure the folder is left as it was.
 * Errors: E_ARGUMENT, those of tocsin_run_open, E_NOT_FOUND (the run was not imported), E_EXISTS,
 * E_CORRUPT, E_IO, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_traincheck_export(const char *run,
                                                                    const char *directory,
                                                                    uint64_t *files,
                                                                    tocsin_error *error);

/* Does the file begin as an invariant file of TrainCheck does? False also when it cannot be read.
 */
TOCSIN_API bool tocsin_traincheck_is_invariant_file(const char *path);

typedef struct tocsin_foreign_options {
    size_t struct_bytes; /* sizeof this struct */
    /* An invariant that has no equivalent here: its line from 1, what it says, and why. */
    void (*skipped)(void *context, const char *file, uint64_t line, const char *text,
                    const char *why);
    void *context;
} tocsin_foreign_options;

/* Read a file of TrainCheck's invariants; *set is new when it is NULL, else added to.
 * Errors: E_NOT_FOUND, E_IO, E_FORMAT (line in the message), E_LIMIT, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status
tocsin_traincheck_invariants_load(const char *path, const tocsin_foreign_options *options,
                                  tocsin_invariant_set **set, tocsin_error *error);

/* Write the invariants that TrainCheck can say to `path` ("-": stdout), one a line; `skipped` tells
 * the others by their place in the set, from 1. `written` (may be NULL): how many.
 * Errors: E_ARGUMENT, E_EXISTS (not `force`), E_IO, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_traincheck_invariants_save(
    const tocsin_invariant_set *set, const char *path, bool force,
    const tocsin_foreign_options *options, uint64_t *written, tocsin_error *error);

#ifdef __cplusplus
}
#endif
#endif
