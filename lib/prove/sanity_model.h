/* prove/sanity_model.h - what the parts of the sanity check share (sanity.h is its door).
 *
 *   actor  a rank that is followed: one role on one device in one replica
 *   step   an operator that communicates or waits; a role's steps lie in the order of its segments
 *   lane   what calls are counted on: a process group (of one replica), or the channel of one tag
 *          from one device to another. The k-th calls of all members of a lane meet.
 *   slot   one member of a lane
 *   port   the slot of one step of one actor
 *
 * A plan has no control flow, so each member's calls on a lane are a fixed sequence: matching
 * needs no simulation, deadlock does.
 */
#ifndef TOCSIN_PROVE_SANITY_MODEL_H
#define TOCSIN_PROVE_SANITY_MODEL_H

#include "prove/sanity.h"

typedef struct tocsin_sanity_step {
    uint32_t op;
    uint32_t value;     /* wait: the value whose making is awaited; async: the value it makes */
    uint32_t signature; /* interned kind, attributes, dtype, shape; 0: a wait */
    bool async;
    bool uneven; /* a gather or scatter of parts that are not all equal */
} tocsin_sanity_step;

typedef struct tocsin_sanity_actor {
    uint32_t role, device, replica;
    uint32_t first_port; /* into ports, one for each step of the role */
} tocsin_sanity_actor;

typedef struct tocsin_sanity_visit {
    uint32_t step;
    int32_t microbatch;
} tocsin_sanity_visit;

typedef struct tocsin_sanity_slot {
    uint32_t lane, actor;
    uint32_t count;       /* calls so far */
    uint32_t first_visit; /* into visits, while a broken lane is diagnosed */
} tocsin_sanity_slot;

typedef struct tocsin_sanity_lane {
    uint32_t first_slot, slot_count;
    uint32_t group; /* TOCSIN_PLAN_NONE: point to point; the sender's slot is the first */
    bool broken;    /* the members' sequences differ */
    bool uneven;
    TOCSIN_VEC(tocsin_sanity_visit) rounds; /* call k of the member that made it first */
} tocsin_sanity_lane;

/* A step that cannot have partners: its caller is no member, it has no such peer. */
typedef struct tocsin_sanity_stray {
    uint32_t actor, step;
    tocsin_cause_class class;
    const char *relation, *expected; /* constants */
} tocsin_sanity_stray;

typedef struct tocsin_sanity_model {
    const tocsin_plan *plan;
    tocsin_sanity *result;
    uint32_t replicas; /* that are followed */
    TOCSIN_VEC(tocsin_sanity_step) steps;
    uint32_t *segment_step; /* first step of each segment of the plan, and the end */
    tocsin_intern signatures;
    TOCSIN_VEC(tocsin_sanity_actor) actors; /* [device * replicas + replica] */
    TOCSIN_VEC(tocsin_sanity_lane) lanes;
    TOCSIN_VEC(tocsin_sanity_slot) slots;
    TOCSIN_VEC(uint32_t) ports;
    TOCSIN_VEC(tocsin_sanity_visit) visits;
    TOCSIN_VEC(tocsin_sanity_stray) strays;
    tocsin_intern folds;  /* what makes two findings one: id - 1 is the index of the finding */
    tocsin_intern places; /* (finding, device, replica) */
} tocsin_sanity_model;

/* ---- the schedule ---------------------------------------------------------------------------- */

static inline uint32_t tocsin_sanity_turns(const tocsin_plan_role *role)
{
    return role->turn_count ? role->turn_count : role->segment_count;
}

/* Turn `index` of the role; without a schedule the segments run once each, in order. */
static inline tocsin_plan_turn tocsin_sanity_turn(const tocsin_plan *plan,
                                                  const tocsin_plan_role *role, uint32_t index)
{
    if (role->turn_count)
        return plan->turns.items[role->first_turn + index];
    return (tocsin_plan_turn){.segment = index, .microbatch = -1};
}

static inline uint32_t tocsin_sanity_port(const tocsin_sanity_model *model,
                                          const tocsin_sanity_actor *actor, uint32_t step)
{
    const tocsin_plan_role *role = &model->plan->roles.items[actor->role];
    return model->ports.items[actor->first_port + step - model->segment_step[role->first_segment]];
}

/* ---- roles alone (sanity_roles.c) ------------------------------------------------------------ */

/* Fill steps and segment_step; decide what of uniformity lies within roles; find results that are
 * read before their wait. */
tocsin_status tocsin_sanity_roles(tocsin_sanity_model *model, tocsin_error *error);

/* ---- partners (sanity_lanes.c) --------------------------------------------------------------- */

/* Fill actors, lanes, slots and ports; follow every actor and mark the broken lanes. */
tocsin_status tocsin_sanity_match(tocsin_sanity_model *model, tocsin_error *error);

/* The signature of a communication operator, interned; 0: out of memory. */
uint32_t tocsin_sanity_signature(tocsin_sanity_model *model, const tocsin_plan_role *role,
                                 const tocsin_plan_op *op, bool *uneven);
/* May calls of these signatures meet? */
bool tocsin_sanity_agree(const tocsin_sanity_model *model, uint32_t a, uint32_t b);
/* Of a gather, the extent of the caller's part and of the whole; likewise of a scatter. */
void tocsin_sanity_extents(const tocsin_sanity_model *model, uint32_t signature, int64_t *part,
                           int64_t *whole);

/* Visit the communication calls of an actor in order, but for those without partners (port NONE),
 * until the visitor fails. */
typedef tocsin_status tocsin_sanity_visitor(tocsin_sanity_model *model, uint32_t actor,
                                            uint32_t slot, tocsin_sanity_visit visit,
                                            tocsin_error *error);
tocsin_status tocsin_sanity_follow(tocsin_sanity_model *model, uint32_t actor,
                                   tocsin_sanity_visitor *visitor, tocsin_error *error);

/* ---- what is wrong with a broken lane (sanity_diagnosis.c) ------------------------------------
 */

tocsin_status tocsin_sanity_diagnose(tocsin_sanity_model *model, tocsin_error *error);

/* ---- who waits for whom (sanity_deadlock.c) ---------------------------------------------------
 */

tocsin_status tocsin_sanity_simulate(tocsin_sanity_model *model, tocsin_error *error);

/* ---- findings (sanity.c) ----------------------------------------------------------------------
 */

/* Would it be a finding of its own? Only then are its texts needed. */
bool tocsin_sanity_is_new(const tocsin_sanity_model *model, const tocsin_sanity_finding *finding);
/* Add a finding, or fold it into one of the same class on the same operator of another place. The
 * texts are copied, the places made from `call`. */
tocsin_status tocsin_sanity_note(tocsin_sanity_model *model, const tocsin_sanity_finding *finding,
                                 tocsin_error *error);
/* The same, `times` over, with the texts of two builders, which are freed. */
tocsin_status tocsin_sanity_note_texts(tocsin_sanity_model *model, tocsin_sanity_finding *finding,
                                       uint64_t times, tocsin_string *relation,
                                       tocsin_string *expected, tocsin_error *error);
/* As `call`s of findings: replica NONE when one stands for all. */
tocsin_sanity_call tocsin_sanity_call_of(const tocsin_sanity_model *model, uint32_t actor,
                                         tocsin_sanity_visit visit);
/* "pp=0 tp=1", with the replica when replicas are told apart. */
void tocsin_sanity_place_text(const tocsin_sanity_model *model, uint32_t device, uint32_t replica,
                              tocsin_string *text);
/* "all_reduce12: all_reduce(op=sum) float32[4,128] in tp.0, micro-batch 1". */
void tocsin_sanity_call_text(const tocsin_sanity_model *model, const tocsin_sanity_call *call,
                             tocsin_string *text);

#endif
