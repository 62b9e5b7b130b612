/* packages.h - where the Python part of Tocsin lies. */
#ifndef TOCSIN_CLI_PACKAGES_H
#define TOCSIN_CLI_PACKAGES_H

#include <limits.h>

/* The folder whose sitecustomize.py lets an interpreter load the recorder. One that has the package
 * installed finds it without; this is for the others of the job (docs/hooking.md). The package
 * itself lies beside it. On failure a message has been printed, and the exit code is returned. */
int cli_inject_folder(char path[PATH_MAX]);

#endif
