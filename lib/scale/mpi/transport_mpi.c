/* transport_mpi.c - how ranks reach each other: the only file that knows MPI (MPI-3).
 *
 * A library of its own, libtocsin_mpi.so, loaded by tocsin_scale_begin: a command that nobody
 * started by mpirun neither loads nor needs an MPI. Data structure: a communicator of our own.
 * Invariant: only the thread that opened it calls MPI (MPI_THREAD_FUNNELED). MPI's default error
 * handler stays: a failure ends all ranks. Cost: where others may compute for long, a wait looks
 * again and again and sleeps between, at most a millisecond; MPI's own waits would keep a processor
 * busy.
 */
#include <assert.h>
#include <mpi.h>
#include <time.h>
#include <tocsin/version.h>

#include "scale/scale.h"

#define TAG             1
#define LOOKS_BEFORE    100               /* a rank that answers at once is not slept through */
#define SLEEP_NS        20000             /* the first sleep; each is twice the one before */
#define SLEEP_NS_MAX    1000000           /* until here */
#define BROADCAST_BYTES ((size_t)1 << 24) /* of one MPI message; its counts are of type int */

static MPI_Comm ranks = MPI_COMM_NULL;

static const char *open_ranks(int *rank, int *size)
{
    int provided = MPI_THREAD_SINGLE;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    if (provided < MPI_THREAD_FUNNELED) {
        MPI_Finalize();
        return "this MPI does not allow threads (MPI_THREAD_FUNNELED)";
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(ranks, rank);
    MPI_Comm_size(ranks, size);
    return NULL;
}

static void close_ranks(void)
{
    MPI_Comm_free(&ranks);
    MPI_Finalize();
}

/* The wait after the `looks`-th look in vain. */
static void be_patient(unsigned looks)
{
    if (looks < LOOKS_BEFORE)
        return;
    unsigned doublings = looks - LOOKS_BEFORE;
    long sleep_ns = doublings < 6 ? SLEEP_NS << doublings : SLEEP_NS_MAX;
    nanosleep(&(struct timespec){.tv_nsec = sleep_ns}, NULL);
}

static void find_minimum(int64_t *values, int count)
{
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, values, count, MPI_INT64_T, MPI_MIN, ranks, &request);
    int done = 0;
    for (unsigned looks = 0; MPI_Test(&request, &done, MPI_STATUS_IGNORE), !done; ++looks)
        be_patient(looks);
}

static void broadcast(int root, void *bytes, size_t count)
{
    for (size_t sent = 0; sent < count; sent += BROADCAST_BYTES) {
        size_t rest = count - sent;
        size_t part = rest < BROADCAST_BYTES ? rest : BROADCAST_BYTES;
        MPI_Bcast((char *)bytes + sent, (int)part, MPI_BYTE, root, ranks);
    }
}

static int wait_message(void)
{
    MPI_Status status;
    int here = 0;
    for (unsigned looks = 0; MPI_Iprobe(MPI_ANY_SOURCE, TAG, ranks, &here, &status), !here; ++looks)
        be_patient(looks);
    return status.MPI_SOURCE;
}

static void receive_piece(int from, void *bytes, size_t count)
{
    assert(count <= TOCSIN_SCALE_PIECE_BYTES);
    MPI_Recv(bytes, (int)count, MPI_BYTE, from, TAG, ranks, MPI_STATUS_IGNORE);
}

static void send_piece(int to, const void *bytes, size_t count)
{
    assert(count <= TOCSIN_SCALE_PIECE_BYTES);
    MPI_Send(bytes, (int)count, MPI_BYTE, to, TAG, ranks);
}

extern TOCSIN_API const tocsin_scale_transport TOCSIN_SCALE_TRANSPORT;
const tocsin_scale_transport TOCSIN_SCALE_TRANSPORT = {
    .version = TOCSIN_VERSION,
    .open = open_ranks,
    .close = close_ranks,
    .minimum = find_minimum,
    .broadcast = broadcast,
    .wait = wait_message,
    .receive = receive_piece,
    .send = send_piece,
};
