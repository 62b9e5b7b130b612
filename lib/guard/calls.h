/* lib/guard/calls.h - calls of collectives, as all their members tell of them. Internal to it.
 *
 *   calls.c        records sorted into calls; what becomes of each
 *   delivery.c     the verdict on one call, and the finding
 *   transfer_sum.c where transfers stand in one imagined tensor
 *   reduction.c    a slice or a part, computed again
 *   slice.c        which slice
 */
#ifndef TOCSIN_GUARD_CALLS_H
#define TOCSIN_GUARD_CALLS_H

#include "guard/guard.h"

#include <tocsin/communication.h>

typedef struct call_record {
    const tocsin_guard_call *call;
    const unsigned char *payload;
    uint32_t rank;  /* whose */
    uint32_t place; /* among the rank's records */
} call_record;

/* All records of one call, by member; of a message the sender's and the receiver's. */
typedef struct whole_call {
    const call_record *records;
    uint32_t count;
} whole_call;

/* A transfer that did not arrive as it was sent: indices of records. */
typedef struct bad_transfer {
    uint32_t source, target;
    tocsin_digest sent, received;
} bad_transfer;

/* What is wrong with a call. Zero is nothing; freed with TOCSIN_VEC_FREE(&failure->transfers). */
typedef struct call_failure {
    TOCSIN_VEC(bad_transfer) transfers; /* what was moved, or: */
    bool results_differ;                /* what was reduced */
    tocsin_guard_reduced reduced;
    int64_t culprit;     /* index of a record, -1: nobody can be named */
} call_failure;

static inline bool call_is_message(uint32_t kind)
{
    return kind == TOCSIN_GUARD_CALL_SEND || kind == TOCSIN_GUARD_CALL_RECEIVE;
}

static inline bool call_is_reduction(uint32_t kind)
{
    return kind >= TOCSIN_GUARD_CALL_ALL_REDUCE;
}

/* Elements that a slice is taken from: of a reduce-scatter one member's part. */
static inline uint64_t call_span(const tocsin_guard_call *call)
{
    return call->kind == TOCSIN_GUARD_CALL_REDUCE_SCATTER ? call->count / call->members
                                                          : call->count;
}

/* Judge one call of which all members have told. */
tocsin_status tocsin_call_judge(const whole_call *whole, tocsin_guard_call_state *state,
                                call_failure *failure, tocsin_error *error);
/* The finding about it. `failed`: calls that failed besides. */
tocsin_status tocsin_call_finding(const whole_call *whole, const call_failure *failure,
                                  const tocsin_guard_calls *calls, uint64_t failed,
                                  tocsin_guard_finding **finding, tocsin_error *error);

#endif
