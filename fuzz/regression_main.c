/* Replays fuzz corpora without a fuzzing engine: every file of every directory given is one
 * input. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    uint8_t *data = NULL;
    size_t size = 0;
    size_t capacity = 0;
    for (;;) {
        if (size == capacity) {
            capacity = capacity ? capacity * 2 : 4096;
            uint8_t *grown = realloc(data, capacity);
            if (!grown) {
                free(data);
                fclose(file);
                return 1;
            }
            data = grown;
        }
        size_t count = fread(data + size, 1, capacity - size, file);
        if (count == 0)
            break;
        size += count;
    }
    fclose(file);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 0;
}

static int replay_directory(const char *directory, size_t *replayed)
{
    DIR *entries = opendir(directory);
    if (!entries) {
        perror(directory);
        return 1;
    }
    int failed = 0;
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (entry->d_name[0] == '.')
            continue;
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        failed |= replay_file(path);
        ++*replayed;
    }
    closedir(entries);
    return failed;
}

int main(int argc, char **argv)
{
    size_t replayed = 0;
    int failed = 0;
    for (int i = 1; i < argc; ++i)
        failed |= replay_directory(argv[i], &replayed);
    printf("replayed %zu inputs\n", replayed);
    return failed || replayed == 0;
}
