/* lib/scale/scale.h - ranks, and how they reach each other (the header inside the module). */
#ifndef TOCSIN_LIB_SCALE_H
#define TOCSIN_LIB_SCALE_H

#include <tocsin/scale.h>

#include "base/base.h"

/* What is asked of MPI. The one implementation, mpi/transport_mpi.c, is a library of its own,
 * loaded when a launcher started several processes: the command itself never depends on an MPI.
 * Nothing here fails: MPI ends all processes when it does. */
typedef struct tocsin_scale_transport {
    const char *version; /* TOCSIN_VERSION of its build; the table below belongs to it */
    /* NULL, or what MPI lacks. */
    const char *(*open)(int *rank, int *size);
    void (*close)(void);
    /* Collective: each value becomes the least of all ranks. Waits without using the processor. */
    void (*minimum)(int64_t *values, int count);
    /* Collective, from `root`, and cut into messages that MPI can count. Called after `minimum`, so
     * that nobody waits long. */
    void (*broadcast)(int root, void *bytes, size_t count);
    /* Wait, without using the processor, for a message; its sender. */
    int (*wait)(void);
    /* One message of exactly `count` <= TOCSIN_SCALE_PIECE_BYTES. */
    void (*receive)(int from, void *bytes, size_t count);
    void (*send)(int to, const void *bytes, size_t count);
} tocsin_scale_transport;

/* The name under which the library exports its table, and the library. */
#define TOCSIN_SCALE_TRANSPORT tocsin_scale_transport_mpi
#define TOCSIN_SCALE_LIBRARY   "libtocsin_mpi.so"

/* Longer results travel in pieces. */
#define TOCSIN_SCALE_PIECE_BYTES ((size_t)1 << 20)

struct tocsin_scale {
    const tocsin_scale_transport *transport; /* NULL: one rank */
    int rank;
    int size;
};

/* The launcher that started this process, in words, or NULL; *size is the number of processes that
 * it started, 0 when it does not tell. By environment variables alone. */
const char *tocsin_scale_launcher(int64_t *size);

/* What a rank has come for. */
typedef enum tocsin_scale_step {
    TOCSIN_SCALE_END,
    TOCSIN_SCALE_AGREE,
    TOCSIN_SCALE_BROADCAST,
    TOCSIN_SCALE_RUN,
    TOCSIN_SCALE_SHARE
} tocsin_scale_step;

/* All ranks come together, for the same step with the same `detail`, and agree on a status as
 * tocsin_scale_agree does. Errors: E_STATE (a rank has come to leave), E_ARGUMENT (the details
 * differ), E_INTERNAL (the steps differ), or the agreed one. */
tocsin_status tocsin_scale_meet(tocsin_scale *scale, tocsin_scale_step step, int64_t detail,
                                tocsin_status status, tocsin_error *error);

#endif
