/* prove/execute.h - a plan run over relations instead of numbers.
 *
 * A *unit* is what runs one role: collapsed, all its replicas and micro-batches at once, with both
 * as symbols; enumerated, one replica, micro-batch by micro-batch. Units advance until they wait
 * for one another's collectives and messages, as ranks do.
 *
 * An operator that is refused, or that makes a foreign value of logical ones, leaves an *incident*;
 * a refused operator's results are poison, and so is what is made of them, silently.
 */
#ifndef TOCSIN_PROVE_EXECUTE_H
#define TOCSIN_PROVE_EXECUTE_H

#include "prove/prover.h"

#define TOCSIN_POISON ((tocsin_relation_id)UINT32_MAX)

typedef enum tocsin_incident_kind {
    TOCSIN_INCIDENT_REFUSED,   /* the rule does not allow it; `cause` and `text` say why */
    TOCSIN_INCIDENT_UNDEFINED, /* reads a value that nothing has written */
    TOCSIN_INCIDENT_FOREIGN,   /* the logical plan has no such value */
    TOCSIN_INCIDENT_STRAY /* a message of another micro-batch: legal, a clue when the proof fails */
} tocsin_incident_kind;

typedef struct tocsin_incident {
    uint8_t kind; /* tocsin_incident_kind */
    int cause;    /* tocsin_cause_class */
    uint32_t unit, turn, op;
    uint32_t order; /* of execution, over all units */
    const char *text;
} tocsin_incident;

typedef struct tocsin_unit {
    uint32_t role;     /* index in the plan */
    uint32_t replica;  /* enumerated; else the role's first */
    uint32_t turn, op; /* what comes next */
    bool queued, done;
    uint32_t slots; /* micro-batches kept apart */
    tocsin_relation_id
        *values; /* [slot][role-local value]; persistent ones in slot 0; 0 undefined */
    struct tocsin_unit_group *groups; /* per group of the plan: calls so far, own position */
} tocsin_unit;

/* Re-basing: an operator that was found wrong is taken as if it were right, so that what comes
 * after it can be judged. */
typedef struct tocsin_rebase {
    bool reduced; /* partial operands, or a collective's partial result, as if they were whole */
    bool ordered; /* pieces of a collective's result as if they were in order */
    tocsin_factor_id factor;     /* the result times this factor; 0: 1 */
    tocsin_relation_id expected; /* the slice of this relation that the result stands for, or 0 */
    tocsin_atom_id atom;         /* in place of the result's own, or 0 */
} tocsin_rebase;

/* By op of the parallel plan. Zero is empty. */
typedef struct tocsin_rebases {
    tocsin_map by_op; /* op -> index + 1 */
    TOCSIN_VEC(tocsin_rebase) items;
} tocsin_rebases;

typedef struct tocsin_run {
    tocsin_prover *prover;
    tocsin_side side;
    const tocsin_plan *plan;
    bool enumerate_replicas, enumerate_microbatches;
    TOCSIN_VEC(tocsin_unit) units;
    uint8_t *each_microbatch; /* by plan value: separate for every micro-batch */
    uint32_t *unit_of;        /* [device * replicas + replica] -> unit */
    uint32_t replicas;        /* units per device that unit_of tells apart: 1 when collapsed */
    TOCSIN_VEC(tocsin_plan_turn) turns; /* all roles' turns as they are run */
    uint32_t *first_turn;               /* per role, and one more */
    TOCSIN_VEC(uint32_t) ready;
    tocsin_map exchanges; /* (group, instance, call) -> index + 1 */
    TOCSIN_VEC(struct tocsin_meeting) meetings;
    tocsin_intern channels; /* (source, destination, tag) */
    tocsin_map mailboxes;   /* channel -> index + 1 */
    TOCSIN_VEC(struct tocsin_mailbox) boxes;
    TOCSIN_VEC(tocsin_incident) incidents;
    const tocsin_rebases *rebases; /* or NULL */
    uint64_t executions;
    uint32_t blocked; /* units that never finished */
    tocsin_arena arena;
} tocsin_run;

/* Prepare. Free with _free, also after a failure. */
tocsin_status tocsin_run_init(tocsin_run *run, tocsin_prover *prover, tocsin_side side,
                              bool enumerate_replicas, bool enumerate_microbatches,
                              tocsin_error *error);
/* Run everything. Refusals are incidents, not errors. */
tocsin_status tocsin_run_all(tocsin_run *run, tocsin_error *error);
void tocsin_run_free(tocsin_run *run);

/* The relation of a value: of micro-batch slot `slot` (0 when collapsed). 0, TOCSIN_POISON or an
 * id. */
tocsin_relation_id tocsin_run_value(const tocsin_run *run, uint32_t unit, uint32_t slot,
                                    uint32_t value);
const tocsin_plan_value *tocsin_run_plan_value(const tocsin_run *run, uint32_t unit,
                                               uint32_t value);

#endif
