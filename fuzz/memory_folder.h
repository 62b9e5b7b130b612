/* memory_folder.h - where a target makes its folder: in memory if it can, for with a disk an input
 * may take ten times as long. */
#ifndef TOCSIN_FUZZ_MEMORY_FOLDER_H
#define TOCSIN_FUZZ_MEMORY_FOLDER_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void make_memory_folder(char *path, size_t bytes)
{
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(path, bytes, "%s/tocsin-fuzz-XXXXXX", base);
    if (!mkdtemp(path))
        abort();
}

#endif
