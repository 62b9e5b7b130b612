/* packages.c - where the Python part of Tocsin lies. */
#include "packages.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* Where the Python packages lie, relative to this program: in a build tree, installed for all or
 * for one user, installed with pip install --target. */
static const char *const package_places[] = {
    "python",
#ifdef TOCSIN_PACKAGES
    TOCSIN_PACKAGES,
    TOCSIN_USER_PACKAGES,
    "..",
#endif
};

int cli_inject_folder(char path[PATH_MAX])
{
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0) {
        cli_error("cannot find the program's own file: %s", strerror(errno));
        return CLI_INTERNAL;
    }
    program[length] = '\0';
    char *slash = strrchr(program, '/');
    assert(slash);
    *slash = '\0';
    for (size_t i = 0; i < sizeof package_places / sizeof package_places[0]; i++) {
        char wanted[PATH_MAX + 256];
        snprintf(wanted, sizeof wanted, "%s/%s/tocsin_inject", program, package_places[i]);
        if (realpath(wanted, path) && access(path, R_OK | X_OK) == 0) {
            return CLI_HOLDS;
        }
    }
    cli_error("the Python part of Tocsin is not installed for %s/tocsin", program);
    cli_hint("build it with make, or install it with pip");
    return CLI_INPUT;
}

int cli_lead_python_path(const char *folder, char path[CLI_PYTHON_PATH_BYTES])
{
    const char *inherited = getenv("PYTHONPATH");
    int written = snprintf(path, CLI_PYTHON_PATH_BYTES, "%s%s%s", folder,
                           inherited && inherited[0] ? ":" : "", inherited ? inherited : "");
    if (written < 0 || written >= CLI_PYTHON_PATH_BYTES) {
        cli_error("the environment variable PYTHONPATH is too long");
        return CLI_INPUT;
    }
    return CLI_HOLDS;
}
