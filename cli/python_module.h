/* python_module.h - commands that are Python, since what they look at is. */
#ifndef TOCSIN_CLI_PYTHON_MODULE_H
#define TOCSIN_CLI_PYTHON_MODULE_H

#include "packages.h"

/* The PYTHONPATH with which an interpreter finds the package of this command. Otherwise the error
 * is printed, and the exit code returned. */
int cli_python_path(char path[CLI_PYTHON_PATH_BYTES]);

/* Become `python -m MODULE ARGUMENTS`, with the package of this command on its path: the
 * interpreter that TOCSIN_PYTHON names, else `python`, else `python3`. Returns only when none could
 * be started: the error is printed, and the exit code returned. */
int cli_become_python(const char *module, int argc, char **argv);

#endif
