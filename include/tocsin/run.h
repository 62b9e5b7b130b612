/* tocsin/run.h - run.json: what was run, where, when, with which version.
 *
 * Format: docs/formats/run.md. The environment is never written: it may hold secrets.
 */
#ifndef TOCSIN_RUN_H
#define TOCSIN_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tocsin/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All texts are borrowed; bytes that are not UTF-8 are written as U+FFFD. */
typedef struct tocsin_run_description {
    const char *const *command;
    size_t command_count;
    const char *cwd;
    const char *host;
    const char *mode; /* "record" or "run" */
    int64_t started;  /* seconds since 1970, UTC */
    bool has_ended;
    int64_t ended; /* these two only when has_ended */
    int exit_code; /* as the shell sees it: 128+n for a signal */
    bool was_audited; /* did being recorded change what torch computed, with these boundaries? */
    bool audit_changed;
    const char *boundaries; /* docs/align.md; NULL or "": none */
} tocsin_run_description;

/* Write or replace `directory`/run.json at once: readers see the old or the new one.
 * Errors: E_ARGUMENT (a time outside years 1970-9999), E_IO, E_NOT_FOUND (no such directory),
 * E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_run_describe(
    const char *directory, const tocsin_run_description *description, tocsin_error *error);

/* The command that made a run, and the folder it ran in ("" when it does not say). The words end in
 * NULL and live as long as the object. Errors: E_FORMAT (run.json does not say), E_MEMORY. */
struct tocsin_run;
typedef struct tocsin_run_command tocsin_run_command;
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_run_command_read(const struct tocsin_run *run,
                                                                   tocsin_run_command **command,
                                                                   tocsin_error *error);
TOCSIN_API void tocsin_run_command_free(tocsin_run_command *command);
TOCSIN_API char *const *tocsin_run_command_words(const tocsin_run_command *command);
TOCSIN_API const char *tocsin_run_command_folder(const tocsin_run_command *command);

#ifdef __cplusplus
}
#endif
#endif
