/* packages.h - where the Python part of Tocsin lies. */
#ifndef TOCSIN_CLI_PACKAGES_H
#define TOCSIN_CLI_PACKAGES_H

#include <limits.h>

/* The folder whose sitecustomize.py lets an interpreter load the recorder. One that has the package
 * installed finds it without; this is for the others of the job (docs/hooking.md). The package
 * itself lies beside it. On failure a message has been printed, and the exit code is returned. */
int cli_inject_folder(char path[PATH_MAX]);

#define CLI_PYTHON_PATH_BYTES 65536

/* PYTHONPATH with a folder in front of what we inherited. Otherwise the error is printed, and the
 * exit code returned. */
int cli_lead_python_path(const char *folder, char path[CLI_PYTHON_PATH_BYTES]);

#endif
