/* prove/trace.h - why an operator or an output is wrong: inside of the localiser. */
#ifndef TOCSIN_PROVE_TRACE_H
#define TOCSIN_PROVE_TRACE_H

#include "prove/localise.h"

enum {
    TOCSIN_CANDIDATE_INCIDENT = 1,
    TOCSIN_CANDIDATE_ASTRAY,   /* its value is another than its logical counterpart's */
    TOCSIN_CANDIDATE_CONSTANT, /* its constant is */
    TOCSIN_CANDIDATE_OUTPUT    /* makes an output that is wrong though nothing before it is */
};

/* Indices over the parallel plan; arrays in the arena. */
typedef struct tocsin_tracer {
    const tocsin_run *run, *logical;
    const uint32_t *match;
    tocsin_roots *roots;
    uint32_t *paired;   /* by op: the logical op of the same label, or TOCSIN_PLAN_NONE */
    uint32_t *role_of;  /* by op */
    uint32_t *sender;   /* by match number: the send, or TOCSIN_PLAN_NONE */
    uint32_t *producer; /* by plan value: the first op that writes it, or TOCSIN_PLAN_NONE */
    uint8_t *needed, *candidate, *derived; /* by op */
    uint8_t *tainted;                      /* by plan value */
    const tocsin_box_entry *entry; /* the contraction whose partial sum is followed; NULL: any */
    tocsin_arena arena;
} tocsin_tracer;

/* Is `own` a slice or partial sum of what `expected` is, as far as atoms and the order of axes
 * tell? True when either is unknown, and for the inner steps of a sharded look-up. */
bool tocsin_tracer_resembles(const tocsin_tracer *tracer, tocsin_relation_id own,
                             tocsin_relation_id expected);

/* Prepare a tracer (roots may be NULL); its arena is the caller's to free. (localise.c) */
tocsin_status tocsin_tracer_init(tocsin_tracer *tracer, const tocsin_run *run,
                                 const tocsin_run *logical, const uint32_t *match,
                                 tocsin_roots *roots, tocsin_error *error);
/* Mark what the failed outputs need; *failed: how many there are. (localise.c) */
tocsin_status tocsin_tracer_need(tocsin_tracer *tracer, const tocsin_comparison *comparison,
                                 size_t *failed, tocsin_error *error);
/* own / expected when all terms share one ratio of factors. */
bool tocsin_tracer_ratio(const tocsin_tracer *tracer, tocsin_relation_id own,
                         tocsin_relation_id expected, tocsin_factor_id *ratio);

/* Has the op other constants than its logical counterpart, that should be the same on every rank?
 * (A factor may be that of a local mean.) */
bool tocsin_tracer_other_constant(const tocsin_tracer *tracer, uint32_t op);

/* Each adds roots; false: out of memory. */
/* An operator that is a first candidate, in one execution; `incident` NULL: it is astray. */
bool tocsin_tracer_explain(tocsin_tracer *tracer, uint32_t unit, uint32_t slot, uint32_t op,
                           const tocsin_incident *incident);
/* An input that does not exist in the logical model. */
bool tocsin_tracer_input(tocsin_tracer *tracer, const tocsin_incident *incident);
/* An output that differs though nothing before it is a candidate. */
bool tocsin_tracer_output(tocsin_tracer *tracer, const tocsin_check *check);

#endif
