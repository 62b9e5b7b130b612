/* run_folder.c - a folder that holds several runs. */
#include "run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

bool cli_run_folder_join(const char *folder, const char *name, char path[PATH_MAX])
{
    int written = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    if (written < 0 || written >= PATH_MAX) {
        cli_error("the name of the folder %s is too long", folder);
        return false;
    }
    return true;
}

static bool is_empty(const char *path)
{
    DIR *directory = opendir(path);
    const struct dirent *entry;
    bool empty = directory != NULL;
    while (empty && (entry = readdir(directory)) != NULL) {
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    }
    if (directory) {
        closedir(directory);
    }
    return empty;
}

/* The folder of the run of this name, if there is one. */
static bool find_run(const char *folder, const char *name, char path[PATH_MAX])
{
    char description[PATH_MAX];
    return name && cli_run_folder_join(folder, name, path) &&
           cli_run_folder_join(path, "run.json", description) && access(description, F_OK) == 0;
}

static int remove_runs(const char *folder, cli_run_names names)
{
    char path[PATH_MAX];
    int result = CLI_HOLDS;
    for (size_t i = 0; result == CLI_HOLDS && find_run(folder, names(i), path); i++) {
        result = cli_recording_remove_files(path);
        rmdir(path);
    }
    return result;
}

int cli_run_folder_make(const char *wanted, char *const *command, cli_run_names names, bool force,
                        char path[PATH_MAX])
{
    char run[PATH_MAX];
    if (!wanted) {
        cli_recording_default_directory(command, (int64_t)time(NULL), path);
    } else if (strlen(wanted) < PATH_MAX) {
        strcpy(path, wanted);
    } else {
        cli_error("the name of the folder is too long");
        return CLI_INPUT;
    }
    if (mkdir(path, 0777) == 0 || (errno == EEXIST && is_empty(path))) {
        return CLI_HOLDS;
    }
    if (errno != EEXIST) {
        cli_error("cannot create %s: %s", path, strerror(errno));
        return CLI_INPUT;
    }
    bool holds_runs = find_run(path, names(0), run);
    if (holds_runs && force) {
        return remove_runs(path, names);
    }
    cli_error("%s exists already%s", path, holds_runs ? "" : " and holds no such runs");
    cli_hint(holds_runs ? "choose another name with -o, or add --force to replace them"
                        : "choose another name with -o");
    return CLI_INPUT;
}
