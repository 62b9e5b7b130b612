/* Folders that are filled as a whole or left as they were. */
#include <dirent.h>
#include <errno.h>
#include <exchange/exchange.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_dot(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

tocsin_status tocsin_folder_make(const char *path, bool *created, tocsin_error *error)
{
    *created = mkdir(path, 0777) == 0;
    if (*created)
        return TOCSIN_OK;
    if (errno != EEXIST)
        return tocsin_error_system(error, "create", path);
    DIR *directory = opendir(path);
    if (directory == NULL)
        return tocsin_error_system(error, "open", path);
    bool empty = true;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        empty &= is_dot(entry->d_name);
    closedir(directory);
    return empty ? TOCSIN_OK
                 : tocsin_error_at(error, TOCSIN_E_EXISTS, path, -1,
                                   "the folder exists and is not empty");
}

void tocsin_folder_clear(const char *path, bool itself)
{
    DIR *directory = opendir(path);
    if (directory == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        if (!is_dot(entry->d_name))
            (void)unlinkat(dirfd(directory), entry->d_name, 0);
    closedir(directory);
    if (itself)
        (void)rmdir(path);
}
