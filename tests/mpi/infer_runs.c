/* infer_runs FOLDER: write recordings of four healthy runs there, for infer_ranks.sh. */
#include <stdlib.h>

#include "healthy_runs.h"

int main(int argc, char **argv)
{
    for (int i = 0; argc == 2 && i < 4; ++i) {
        char path[4096];
        snprintf(path, sizeof path, "%s/run%d", argv[1], i);
        if (!write_run(path, 4 + i, (uint64_t)i * 1000))
            return EXIT_FAILURE;
    }
    return argc == 2 ? EXIT_SUCCESS : EXIT_FAILURE;
}
