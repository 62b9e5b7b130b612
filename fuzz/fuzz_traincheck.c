/* Any bytes as TrainCheck's trace and as its invariants: an error, or a run and a set that can be
 * read. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tocsin/exchange.h>
#include <tocsin/trace.h>
#include <unistd.h>

#include "memory_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    if (folder == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        (void)unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
    (void)rmdir(path);
}

static void read_run(const char *path)
{
    tocsin_error error;
    tocsin_run *run;
    if (tocsin_run_open(path, false, &run, &error) != TOCSIN_OK)
        abort();
    for (size_t i = 0; i < tocsin_run_process_count(run); ++i) {
        tocsin_trace *trace = tocsin_run_process(run, i);
        const tocsin_event *event;
        do
            if (tocsin_trace_next(trace, &event, &error) != TOCSIN_OK)
                abort();
        while (event != NULL);
        if (!tocsin_trace_is_complete(trace))
            abort();
    }
    tocsin_run_close(run);
}

static void read_invariants(const char *path)
{
    tocsin_error error;
    tocsin_invariant_set *set = NULL;
    (void)tocsin_traincheck_is_invariant_file(path);
    if (tocsin_traincheck_invariants_load(path, NULL, &set, &error) != TOCSIN_OK)
        return;
    for (size_t i = 0; i < tocsin_invariants_count(set); ++i)
        if (tocsin_invariant_sentence(set, i)[0] == 0)
            abort();
    tocsin_invariants_free(set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char folder[64], path[96], run[96], kept[112];
    tocsin_error error;
    make_memory_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/trace_API_1_1.log", folder);
    snprintf(run, sizeof run, "%s/run", folder);
    snprintf(kept, sizeof kept, "%s/traincheck", run);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        abort();
    if (tocsin_traincheck_import(folder, run, NULL, NULL, &error) == TOCSIN_OK)
        read_run(run);
    read_invariants(path);
    remove_folder(kept);
    remove_folder(run);
    remove_folder(folder);
    return 0;
}
