/* lib/guard/ledger_report.h - the inside of a report on ledgers. */
#ifndef TOCSIN_LIB_GUARD_LEDGER_REPORT_H
#define TOCSIN_LIB_GUARD_LEDGER_REPORT_H

#include <tocsin/guard_report.h>

#include "guard/guard.h"

/* A finding, once. Texts are in the report's arena. */
typedef struct reported_finding {
    const char *json; /* the line of the first rank that has it */
    const char *check, *cause, *action, *text;
    int64_t step;
    int64_t window[2]; /* both 0: not told */
    const int64_t *ranks;
    const char *const *hosts;   /* of each rank, or "" */
    const char *const *devices; /* of each rank, or "" */
    size_t rank_count;
    size_t order;                  /* of appearance */
    double last_time;              /* seconds since 1970 */
    TOCSIN_VEC(int64_t) reporters; /* ranks that have it, ascending */
} reported_finding;

/* A rank that findings name, on one host. */
typedef struct named_rank {
    int64_t rank;
    const char *host, *device;
    int64_t last_step;
    uint64_t transient, persistent; /* steps, findings that named it so */
} named_rank;

struct tocsin_guard_report {
    char *folder;
    tocsin_arena arena;
    tocsin_intern keys;                    /* finding i + 1 */
    TOCSIN_VEC(reported_finding) findings; /* by step, then as they appeared */
    TOCSIN_VEC(named_rank) culprits;       /* as findings name them */
    size_t ledgers, torn;
    uint64_t damaged;
    int64_t rank; /* of the ledger at hand */
    tocsin_string text, json;
};

/* Is it time to replace this one? */
static inline bool culprit_replace(const named_rank *culprit)
{
    return culprit->persistent > 0 || culprit->transient > 1;
}

#endif
