/* tocsin/communication.h - whether a collective delivered what it should.
 *
 * Each member of a process group writes a record of a call: digests of what it sent, taken before
 * the call, and of what it received, taken after. The records of all members are put together and
 * judged by the digest's algebra (tocsin/tensor.h, docs/guard.md).
 *
 * What is only moved: the words that member s sends to member t stand at (s * members + t) *
 * TOCSIN_GUARD_TRANSFER_WORDS(members) in one imagined tensor. Then the digests of all that was
 * sent, and of all that was received, add up to the digest of the same tensor, so one digest of
 * each kind and member is enough to see that every word arrived at its place; a change of one or
 * two words is seen for sure. Only if they differ are digests of each transfer wanted.
 *
 * What is summed up: results are equal on all members. A slice of them is computed again from the
 * slices of all inputs, which all members are sent; or all of it, of which each member computes one
 * part, from what the others send to it alone, and tells what came of it.
 *
 * Threads: all functions are pure.
 */
#ifndef TOCSIN_COMMUNICATION_H
#define TOCSIN_COMMUNICATION_H

#include <tocsin/guard.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TOCSIN_GUARD_CALLS_MAX       (1u << 20) /* records of all ranks in one judgement */
#define TOCSIN_GUARD_MEMBERS_MAX     (1u << 14)
#define TOCSIN_GUARD_SLICE_BYTES_MAX (1u << 28)

/* The longest transfer between two members, in words. */
#define TOCSIN_GUARD_TRANSFER_WORDS(members)                                                       \
    (((uint64_t)1 << 60) / (uint64_t)(members) / (uint64_t)(members))

/* X(number, NAME, "as in findings"). SEND and RECEIVE are one call of two records; RECEIVE_ANY says
 * that a member receives from whoever sends, so that its messages cannot be told apart. */
#define TOCSIN_GUARD_CALL_TABLE(X)                                                                 \
    X(0, BROADCAST, "broadcast")                                                                   \
    X(1, ALL_GATHER, "all-gather")                                                                 \
    X(2, ALL_TO_ALL, "all-to-all")                                                                 \
    X(3, GATHER, "gather")                                                                         \
    X(4, SCATTER, "scatter")                                                                       \
    X(5, SEND, "message")                                                                          \
    X(6, RECEIVE, "message")                                                                       \
    X(7, RECEIVE_ANY, "message to any")                                                            \
    X(8, ALL_REDUCE, "all-reduce")                                                                 \
    X(9, REDUCE_SCATTER, "reduce-scatter")                                                         \
    X(10, REDUCE, "reduce")

typedef enum tocsin_guard_call_kind {
#define X(number, name, text) TOCSIN_GUARD_CALL_##name = number,
    TOCSIN_GUARD_CALL_TABLE(X)
#undef X
} tocsin_guard_call_kind;

typedef enum tocsin_guard_operation {
    TOCSIN_GUARD_SUM,
    TOCSIN_GUARD_AVERAGE,
    TOCSIN_GUARD_MINIMUM,
    TOCSIN_GUARD_MAXIMUM
} tocsin_guard_operation;

/* Of a reduction: is more known than its slice? */
typedef enum tocsin_guard_whole {
    TOCSIN_GUARD_WHOLE_NONE,
    TOCSIN_GUARD_WHOLE_HELD,    /* this member keeps what it gave and got */
    TOCSIN_GUARD_WHOLE_VERIFIED /* it has computed its part of the result again */
} tocsin_guard_whole;

/* A record (136 bytes), followed by `payload` bytes and zeros up to a multiple of 8. The payload of
 * a transfer is empty, or 2 * members digests: what went to member 0, 1, ..., what came from them.
 * That of a reduction is empty (not recomputed); of an all-reduce or reduce the slice of this
 * member's input, and, if it is `source`, of the result; of a reduce-scatter the slices of this
 * member's inputs for member 0, 1, ..., and of its result. If the whole was verified, it is a
 * tocsin_guard_reduced: what this member found in its part. */
typedef struct tocsin_guard_call {
    uint64_t group;  /* the same number on all members, and of no other group */
    uint64_t number; /* of the call in its group; of a message in its channel (source, target) */
    uint32_t kind;
    uint32_t members, member;
    uint32_t source, target; /* members: of a message; source: who tells the slice of an all-reduce,
                                the root of a reduce */
    uint32_t width;          /* bytes of an element */
    uint32_t dtype, operation;
    uint32_t ring;          /* 1: reduced in the order of gloo's ring, it seems; 2: seen before */
    uint32_t whole;         /* tocsin_guard_whole */
    uint64_t count;         /* elements: of the longest transfer, of a reduction's whole input */
    uint64_t first, length; /* the slice; of a reduce-scatter in each member's part */
    uint64_t payload;
    tocsin_digest sent, received; /* received: also the result of an all-reduce */
} tocsin_guard_call;

/* The digest of all that `member` sends (outgoing), or receives: transfers[m] is that of what goes
 * to, or comes from, member m as a tensor of its own; zero where nothing does. */
TOCSIN_API tocsin_digest tocsin_guard_transfer_sum(const tocsin_digest *transfers, uint32_t members,
                                                   uint32_t member, bool outgoing);

/* ---- reductions ------------------------------------------------------------------------------ */

/* The order in which a sum is added up. */
typedef enum tocsin_guard_ring {
    TOCSIN_GUARD_RING_NONE,   /* unknown */
    TOCSIN_GUARD_RING_EVEN,   /* of gloo's all-reduce: as many pieces as it takes, equally long */
    TOCSIN_GUARD_RING_FILLED, /* of gloo's reduce: pieces as long as may be */
} tocsin_guard_ring;

typedef struct tocsin_guard_reduction {
    tocsin_dtype dtype;
    tocsin_guard_operation operation;
    tocsin_guard_ring ring;
    uint32_t members;
    uint64_t count;            /* elements of the whole input */
    uint64_t first, length;    /* the slice */
    const void *const *inputs; /* its `length` elements of each member, anyhow aligned */
    const void *result;        /* likewise */
} tocsin_guard_reduction;

typedef struct tocsin_guard_reduced {
    uint64_t recomputed; /* elements */
    uint64_t wrong;      /* elements that no order of additions gives */
    uint64_t other; /* elements that the ring's order does not give (ring only; wrong ones too) */
    uint64_t first; /* the first of them, as an element of the whole */
    double expected, seen, bound;
} tocsin_guard_reduced;

/* Add what was found in another part of the same reduction; `first` is that of the earlier call. */
TOCSIN_API void tocsin_guard_reduced_add(tocsin_guard_reduced *sum,
                                         const tocsin_guard_reduced *part);

/* The slice of a reduction that is computed again in a step: of `span` elements a 61st, but at
 * least 1024, at a place that nothing but the key knows. `position`: of the call among those of its
 * group in this step. A call of the same position and span meets each element in any 61 steps in a
 * row, and so in 61 calls if it is made every n-th step, n no multiple of 61. */
TOCSIN_API void tocsin_guard_reduction_slice(uint64_t key, uint64_t step, uint64_t position,
                                             uint64_t span, uint64_t *first, uint64_t *length);

/* true: the dtype and operation can be recomputed. */
TOCSIN_API bool tocsin_guard_reduction_known(tocsin_dtype dtype, tocsin_guard_operation operation);

/* Compute a slice of a reduction again. Integers, minima and maxima are exact. Sums are *wrong* if
 * they are further from the sum in twice the precision of double than rounding at each step can
 * bring them in any order: (members + 2) u / (1 - (members + 2) u) times the sum of magnitudes
 * (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 4.2), and what flushing of
 * subnormal numbers adds. Where that sum may overflow any result is right, and a result with NaN or
 * Inf where an input has one. Errors: E_ARGUMENT (not known, a slice outside of the whole),
 * E_LIMIT. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_guard_reduction_check(
    const tocsin_guard_reduction *reduction, tocsin_guard_reduced *reduced, tocsin_error *error);

/* Elements [first, first + length) of a reduction: those of each member's input, by member, and of
 * the result. */
typedef struct tocsin_guard_part {
    uint64_t first, length;
    const void *const *inputs;
    const void *result;
} tocsin_guard_part;

/* Compute a part of a call again and add what is found to *found. `call`: of any member, without
 * its payload. Errors: as of tocsin_guard_reduction_check. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_guard_part_check(const tocsin_guard_call *call,
                                                                   const tocsin_guard_part *part,
                                                                   tocsin_guard_reduced *found,
                                                                   tocsin_error *error);

/* ---- the judgement --------------------------------------------------------------------------- */

/* What becomes of a call. OPEN: not all members have told of it; WANTED: it failed, and is to be
 * judged again with the digests of each transfer; WHOLE: all members hold all of a reduction, each
 * is to verify its part, and it is to be judged again with what they found; REORDERED: its bits are
 * those of another order than the ring's, all of them within the bound, and many, or the order was
 * not seen before; UNCOVERED: its records cannot be compared. */
typedef enum tocsin_guard_call_state {
    TOCSIN_GUARD_CALL_OPEN,
    TOCSIN_GUARD_CALL_PASSED,
    TOCSIN_GUARD_CALL_WANTED,
    TOCSIN_GUARD_CALL_FAILED,
    TOCSIN_GUARD_CALL_REORDERED,
    TOCSIN_GUARD_CALL_UNCOVERED,
    TOCSIN_GUARD_CALL_WHOLE
} tocsin_guard_call_state;

typedef struct tocsin_guard_message {
    const void *bytes; /* records, one after another; aligned as uint64_t */
    size_t size;
} tocsin_guard_message;

typedef struct tocsin_guard_calls {
    tocsin_guard_moment moment;
    int64_t passed_whole; /* as moment.passed, of sums that were verified whole: a slice that passes
                             says nothing of the rest */
    const tocsin_guard_message *messages; /* of rank 0, 1, ... */
    size_t rank_count;
    const uint32_t *named; /* ranks that earlier findings named */
    size_t named_count;
    size_t own; /* whose states are wanted */
} tocsin_guard_calls;

/* What is left to do, of the calls of all ranks. */
typedef struct tocsin_guard_undone {
    size_t wanted;  /* that are WANTED or WHOLE */
    size_t partial; /* reductions of known types, open or with a slice alone recomputed */
} tocsin_guard_undone;

/* Judge all calls of which every member has told. states: one for each record of rank `own`, in
 * their order; `state_count` must be their number. *undone is the same on all ranks. *finding is
 * NULL if nothing failed; else it tells of the first failed call, and counts the others. Named is,
 * in groups of at least 3, the one rank whose copy of what others received alike is another one, or
 * that is at an end of all transfers that differ, with at least two ranks at the other ends.
 * Errors: E_FORMAT (a record that is cut short or contradicts itself), E_ARGUMENT, E_LIMIT,
 * E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_guard_judge_calls(
    const tocsin_guard_calls *calls, uint8_t *states, size_t state_count,
    tocsin_guard_undone *undone, tocsin_guard_finding **finding, tocsin_error *error);

#ifdef __cplusplus
}
#endif
#endif
