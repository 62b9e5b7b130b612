/* recording.h - a run that is being recorded: its directory, its job, its run.json.
 *
 * prepare, then run; or, to do something while the job runs, start, cli_launch_wait on .job, and
 * finish. Each prints its own error and returns an exit code; CLI_HOLDS means go on.
 */
#ifndef TOCSIN_CLI_RECORDING_H
#define TOCSIN_CLI_RECORDING_H

#include <limits.h>
#include <tocsin/run.h>

#include "cli.h"
#include "launch.h"

#define RECORDING_PATH_BYTES    (PATH_MAX + 64)
#define RECORDING_VARIABLES_MAX 16

typedef struct cli_recording_options {
    const char *directory;  /* NULL: tocsin-<script>-<UTC time>-<pid> here */
    const char *mode;       /* "record" or "run" */
    const char *boundaries; /* "trusted", ...: see docs/align.md; NULL: as the environment says */
    const cli_texts *modules;
    uint64_t sample; /* digest data and gradients in each N-th step only; 0: as the environment
                        says */
    const char *map; /* names of another framework: a path, or a shipped one; or NULL */
    uint64_t groups; /* of queries, for the map; 0: not known */
    bool was_audited, audit_changed; /* auditing.h */
    bool force;
    bool quiet;
    const cli_launch_variable *variables; /* further ones of the job */
    size_t variable_count;                /* at most RECORDING_VARIABLES_MAX */
    const cli_launch_manner *manner;      /* NULL: as we are */
} cli_recording_options;

typedef struct cli_recording {
    cli_recording_options options;
    char directory[PATH_MAX];             /* absolute */
    char selection[RECORDING_PATH_BYTES]; /* where the selection of mode "run" belongs */
    char cwd[PATH_MAX];
    char host[256];
    char *const *command;
    bool created; /* the directory did not exist before */
    tocsin_run_description description;
    cli_launch job;
} cli_recording;

/* Check the command, make the directory (or empty it, with force) and write run.json. */
int cli_recording_prepare(cli_recording *recording, const cli_recording_options *options,
                          char *const *command);
/* A new name for a folder in the working directory, after the command and the time. */
void cli_recording_default_directory(char *const *command, int64_t started, char path[PATH_MAX]);
/* Delete the files of a run from a folder. */
int cli_recording_remove_files(const char *path);
/* The directory as the user can type it: relative when it lies in the working directory. */
const char *cli_recording_name(const cli_recording *recording);
/* Start the job. When it cannot start, what prepare made is removed. */
int cli_recording_start(cli_recording *recording);
/* Remove what prepare made. */
void cli_recording_discard(cli_recording *recording);
/* After the job has ended: complete run.json. The result is only about that file. */
int cli_recording_finish(cli_recording *recording);
/* Start the job, wait for its end, and finish. A job that could not start has not ended; its exit
 * code is 0. */
int cli_recording_run(cli_recording *recording);
/* One line about how the job ended, unless it succeeded or was interrupted. */
void cli_recording_explain_exit(const cli_recording *recording);
/* For a run without any process. */
void cli_recording_explain_nothing(void);

#endif
