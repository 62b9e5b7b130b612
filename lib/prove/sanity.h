/* prove/sanity.h - tier 0 of a proof: can the plan's communication take place at all?
 *
 * Every rank's schedule is followed, communication alone: each collective must be called by all
 * declared members of its group in the same place of their sequence of calls on that group, with
 * the same kind, attributes, dtype and shape; each send needs its receive; nobody may wait for
 * ever; a result of an asynchronous collective may be read only after its wait. No maths.
 *
 * Blocking. A collective without async=1 blocks until all members have called it, a receive until
 * its send was issued; `wait` blocks until the call that made its input is complete. A send does
 * not block (an eager or batched send), unless it carries blocking=1 (a rendezvous).
 *
 * Replicas are alike, and one stands for all, unless a role or a group says otherwise; then all are
 * enumerated. Cost: linear in the operators listed and in the communication calls executed.
 */
#ifndef TOCSIN_PROVE_SANITY_H
#define TOCSIN_PROVE_SANITY_H

#include <tocsin/verify.h>

#include "base/base.h"
#include "plan/plan.h"

/* One execution of an operator. */
typedef struct tocsin_sanity_call {
    uint32_t device;
    uint32_t replica;   /* TOCSIN_PLAN_NONE: all of them */
    uint32_t op;        /* into plan->ops; TOCSIN_PLAN_NONE: no call */
    int32_t microbatch; /* -1: not of a micro-batch */
} tocsin_sanity_call;

typedef struct tocsin_sanity_finding {
    tocsin_cause_class class; /* UNMATCHED, DEADLOCK, MISSING_WAIT, WRONG_GROUP, WRONG_COLLECTIVE */
    /* The call at fault. When `missing`, this device should make it and does not: `op` is then the
     * partner's. Unless `certain` (a majority of the members agrees against it), either side may
     * be the wrong one. */
    tocsin_sanity_call call;
    bool missing;
    bool certain;
    tocsin_sanity_call partner;       /* the other side, op TOCSIN_PLAN_NONE when there is none */
    uint32_t group;                   /* of `call`; TOCSIN_PLAN_NONE: point to point, or none */
    uint32_t partner_group;           /* WRONG_GROUP: the group that is called in vain */
    const char *relation;             /* what happens */
    const char *expected;             /* what should; "" when there is no more to say */
    const tocsin_sanity_call *places; /* devices and replicas that show it, the first is `call` */
    uint32_t place_count;
    uint64_t occurrences; /* calls that show it */
} tocsin_sanity_finding;

typedef struct tocsin_sanity {
    /* Every role covers all replicas and no group picks one. */
    bool uniform_replicas;
    /* Each segment runs once, or once for every micro-batch; every communication pairs the same
     * operators and equal micro-batches, in all micro-batches alike; and whatever is read from
     * another segment, or is persistent, was completely written before, for every micro-batch. Then
     * one symbolic micro-batch speaks for all. */
    bool uniform_microbatches;
    /* For each op of the plan: a number that the ops of all members share when their calls meet
     * (the op of one of them), TOCSIN_PLAN_NONE when it does not communicate or was never called.
     * Meaningful when uniform_microbatches and no finding. */
    uint32_t *match;
    uint64_t calls; /* executions of communication operators that were looked at */
    TOCSIN_VEC(tocsin_sanity_finding) findings; /* equal ones of several places folded into one */
    uint64_t hidden;                            /* findings beyond a limit */
    tocsin_arena arena;
} tocsin_sanity;

/* `result` is overwritten; free it with _free, also after a failure. A plan with flaws is a result.
 * Errors: E_MEMORY, E_LIMIT. */
TOCSIN_MUST_CHECK tocsin_status tocsin_sanity_check(const tocsin_plan *plan, tocsin_sanity *result,
                                                    tocsin_error *error);
void tocsin_sanity_free(tocsin_sanity *result);

#endif
