/* tocsin/stability.h - the nondeterminism map: which boundaries do not repeat.
 *
 * A program is run several times; boundaries at which a repeat differs from the first one are
 * unstable: a difference between two runs there proves nothing. tocsin_align_runs learns the map
 * from repeats, and uses it (tocsin/align.h). Format of the file: docs/formats/unstable.md.
 *
 * Threads: an object belongs to one thread at a time.
 */
#ifndef TOCSIN_STABILITY_H
#define TOCSIN_STABILITY_H

#include <stddef.h>
#include <stdint.h>
#include <tocsin/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TOCSIN_STABILITY_REPEATS_MAX    1024
#define TOCSIN_STABILITY_BOUNDARIES_MAX (1u << 20)

typedef struct tocsin_stability tocsin_stability;

/* A boundary that does not repeat, in whichever step and rank. Texts are the map's, never NULL. */
typedef struct tocsin_unstable_boundary {
    const char *name;      /* "layers.0.weight" */
    const char *attribute; /* "grad", "output", ... */
    const char *operation; /* "optimizer.step" */
    const char *phase;     /* "forward", ... or "" */
    int64_t step;          /* the first in which it differed, from 1 */
    int64_t rank;          /* where it did; -1: not distributed */
    uint32_t differs;      /* how many repeats are not as the first one */
} tocsin_unstable_boundary;

/* A map of a program that is run `repeats` times, 2 to REPEATS_MAX; nothing is unstable yet.
 * Errors: E_ARGUMENT, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_stability_new(uint32_t repeats,
                                                                tocsin_stability **stability,
                                                                tocsin_error *error);
TOCSIN_API void tocsin_stability_free(tocsin_stability *stability);

TOCSIN_API uint32_t tocsin_stability_repeats(const tocsin_stability *stability);
TOCSIN_API size_t tocsin_stability_count(const tocsin_stability *stability);
TOCSIN_API tocsin_unstable_boundary tocsin_stability_get(const tocsin_stability *stability,
                                                         size_t index);

/* Errors: E_NOT_FOUND, E_IO, E_FORMAT (where: file and line), E_VERSION, E_LIMIT, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_stability_read(const char *path,
                                                                 tocsin_stability **stability,
                                                                 tocsin_error *error);
/* The file is replaced. Errors: E_IO, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_stability_save(const tocsin_stability *stability,
                                                                 const char *path,
                                                                 tocsin_error *error);

#ifdef __cplusplus
}
#endif
#endif
