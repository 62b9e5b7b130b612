/* prove/conform.h - communication calls in one form, whether a plan has them or a run made them. */
#ifndef TOCSIN_PROVE_CONFORM_H
#define TOCSIN_PROVE_CONFORM_H

#include <tocsin/conform.h>

#include "base/base.h"
#include "plan/plan.h"

/* Kinds are the plan's operators, and one for calls that plans do not have (gather to a root). */
enum { TOCSIN_CALL_FOREIGN = TOCSIN_OPERATOR_COUNT };

typedef enum tocsin_call_reduction {
    TOCSIN_CALL_NO_REDUCTION, /* or unknown */
    TOCSIN_CALL_SUM,
    TOCSIN_CALL_AVG,
    TOCSIN_CALL_MAX,
    TOCSIN_CALL_MIN,
    TOCSIN_CALL_OTHER_REDUCTION
} tocsin_call_reduction;

/* An ordered list of ranks, interned; of a long one the recording may have cut the end off. */
typedef struct tocsin_call_group {
    uint32_t ranks; /* interned; 0: unknown */
    uint32_t count;
    bool cut; /* `ranks` is a beginning */
} tocsin_call_group;

typedef struct tocsin_call {
    uint16_t kind;     /* tocsin_operator_code, or _FOREIGN */
    uint8_t reduction; /* tocsin_call_reduction */
    uint8_t dtype;     /* 0: unknown */
    uint8_t ndim;
    const int64_t *shape; /* of the operand; NULL: unknown, or 0-d */
    int64_t elements;     /* -1: unknown */
    tocsin_call_group group;
    int64_t peer;         /* broadcast, send, recv: global rank; -1: unknown or none */
    int64_t tag;          /* send, recv; else 0 */
    uint32_t op;          /* planned: into plan->ops */
    int32_t microbatch;   /* planned */
    bool optional;        /* planned: DistributedDataParallel may make it where nobody sees it */
    const char *function; /* issued */
    const char *file;     /* issued: call site, or "" */
    const char *within;   /* issued: function of the site */
    uint32_t line;
} tocsin_call;

typedef TOCSIN_VEC(tocsin_call) tocsin_calls;

/* ---- the plan's side (conform_plan.c) -------------------------------------------------------- */

/* The calls of one rank in one step, in order, without waits. */
tocsin_status tocsin_conform_planned(const tocsin_plan *plan, uint32_t rank, tocsin_intern *groups,
                                     tocsin_calls *calls, tocsin_error *error);

/* ---- the run's side (conform_trace.c) ---------------------------------------------------------
 */

/* What the calls of a process lack. */
typedef struct tocsin_conform_gaps {
    uint64_t objects;  /* collectives of Python objects, left out */
    uint64_t unnamed;  /* calls whose group's ranks are not recorded */
    uint64_t batches;  /* of sends and receives */
    uint64_t messages; /* sends and receives */
    uint64_t barriers; /* left out, because the plan has none */
    bool ddp;          /* DistributedDataParallel was called */
    bool damaged;      /* blocks of the trace are lost */
} tocsin_conform_gaps;

typedef struct tocsin_call_reader {
    tocsin_trace *trace;
    tocsin_intern *groups;
    uint32_t world_size;
    uint32_t *ranks;             /* room for one group */
    int64_t rank;                /* -1: not known yet */
    int64_t recorded_world_size; /* -1: likewise */
    bool barriers;               /* wanted */
    bool step_ended; /* the last tocsin_conform_step ended with a step, not with the trace */
    tocsin_conform_gaps gaps;
    tocsin_map functions; /* function id: 1 not in the table, else its number + 2 */
} tocsin_call_reader;

/* Close it also after a failure. */
tocsin_status tocsin_call_reader_open(tocsin_call_reader *reader, tocsin_trace *trace,
                                      tocsin_intern *groups, uint32_t world_size,
                                      tocsin_error *error);
/* The calls up to the end of the step or of the trace; `calls` is emptied first. */
tocsin_status tocsin_conform_step(tocsin_call_reader *reader, tocsin_calls *calls,
                                  tocsin_error *error);
void tocsin_call_reader_close(tocsin_call_reader *reader);

/* ---- comparing and telling (conform_calls.c) --------------------------------------------------
 */

/* May the run's call be the plan's? If not, how do they differ. */
bool tocsin_call_matches(const tocsin_intern *groups, const tocsin_call *planned,
                         const tocsin_call *issued, tocsin_deviation *deviation);
/* "0,1", "0 to 6 by 2" */
void tocsin_call_group_text(const tocsin_intern *groups, tocsin_call_group group,
                            tocsin_string *text);
/* `plan` NULL: an issued call. */
void tocsin_call_text(const tocsin_plan *plan, const tocsin_intern *groups, const tocsin_call *call,
                      tocsin_string *text);

#endif
