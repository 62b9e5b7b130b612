/* python_module.c - becoming a Python module of the package. */
#include "python_module.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

int cli_python_path(char path[CLI_PYTHON_PATH_BYTES])
{
    char inject[PATH_MAX];
    const int result = cli_inject_folder(inject);
    if (result != CLI_HOLDS)
        return result;
    *strrchr(inject, '/') = '\0';
    return cli_lead_python_path(inject, path);
}

static void start(const char *python, char **command)
{
    command[0] = strdup(python);
    if (command[0] != NULL)
        execvp(python, command);
    free(command[0]);
}

int cli_become_python(const char *module, int argc, char **argv)
{
    const char *wanted = getenv("TOCSIN_PYTHON");
    bool chosen = wanted != NULL && wanted[0] != '\0';
    char **command = calloc((size_t)argc + 4, sizeof *command);
    char *name = strdup(module);
    static char option[] = "-m", path[CLI_PYTHON_PATH_BYTES];
    int result = cli_python_path(path);

    if (result == CLI_HOLDS && setenv("PYTHONPATH", path, 1) != 0) {
        cli_error("out of memory");
        result = CLI_INTERNAL;
    }
    if (command == NULL || name == NULL) {
        cli_error("out of memory");
        result = CLI_INTERNAL;
    } else if (result == CLI_HOLDS) {
        command[1] = option;
        command[2] = name;
        memcpy(command + 3, argv, (size_t)argc * sizeof *command);
        start(chosen ? wanted : "python", command);
        if (!chosen)
            start("python3", command);
        cli_error("cannot start %s", chosen ? wanted : "python");
        cli_hint("set TOCSIN_PYTHON to the interpreter that has torch");
        result = CLI_INPUT;
    }
    free(name);
    free(command);
    return result;
}
