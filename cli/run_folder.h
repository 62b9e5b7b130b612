/* run_folder.h - a folder that holds several runs of one experiment, each in a folder of its own.
 *
 * Only files that runs have are ever deleted, and the folders that this leaves empty.
 */
#ifndef TOCSIN_CLI_RUN_FOLDER_H
#define TOCSIN_CLI_RUN_FOLDER_H

#include <limits.h>

#include "recording.h"

/* Names of the runs in a folder, in order; NULL ends. The text lives until the next call. */
typedef const char *(*cli_run_names)(size_t index);

/* Make `wanted`, which may be empty or hold such runs: those are removed with `force`, and else an
 * error. NULL: a new name, after the command. `path`: as the user can type it. Prints its own error
 * and returns an exit code. */
int cli_run_folder_make(const char *wanted, char *const *command, cli_run_names names, bool force,
                        char path[PATH_MAX]);
/* `folder`/`name`; false, with an error printed: too long. */
bool cli_run_folder_join(const char *folder, const char *name, char path[PATH_MAX]);

#endif
