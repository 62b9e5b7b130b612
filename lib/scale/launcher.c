/* launcher.c - was this process started as one of several?
 *
 * Launchers tell in environment variables, so that asking costs nothing and loads nothing. The
 * first line that applies counts: mpirun within a Slurm job sets its own variables beside Slurm's.
 */
#include <errno.h>
#include <stdlib.h>

#include "scale.h"

typedef struct launcher {
    const char *name;
    const char *mark; /* a variable that the processes it starts have */
    const char *size; /* how many they are; NULL: not told */
} launcher;

static const launcher launchers[] = {
    {"mpirun of Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"mpirun of MPICH, or a launcher like it,", "PMI_RANK", "PMI_SIZE"},
    /* A step is what srun starts; a batch script has the variables of the job, but no step. */
    {"srun", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"},
    {"a PMIx launcher", "PMIX_RANK", NULL},
};

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

static int64_t parse_size(const char *text)
{
    char *end = NULL;
    errno = 0;
    long value = text ? strtol(text, &end, 10) : 0;
    return errno == 0 && end && *end == 0 && value > 0 ? value : 0;
}

const char *tocsin_scale_launcher(int64_t *size)
{
    for (size_t i = 0; i < TOCSIN_COUNT_OF(launchers); ++i) {
        if (variable(launchers[i].mark)) {
            *size = launchers[i].size ? parse_size(variable(launchers[i].size)) : 0;
            return launchers[i].name;
        }
    }
    *size = 1;
    return NULL;
}
