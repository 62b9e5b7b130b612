/* prove/verdict.h - the result under construction: folding of equal causes, texts, lists. */
#ifndef TOCSIN_PROVE_VERDICT_H
#define TOCSIN_PROVE_VERDICT_H

#include "prove/localise.h"

/* Executions beyond which a failed symbolic proof is not repeated rank by rank. */
#define TOCSIN_ENUMERATION_LIMIT UINT64_C(1000000)

typedef enum tocsin_report_list {
    TOCSIN_REPORT_UNKNOWN,
    TOCSIN_REPORT_ASSUMPTION,
    TOCSIN_REPORT_DEAD,
    TOCSIN_REPORT_LISTS
} tocsin_report_list;

/* A cause and who shows it. */
typedef struct tocsin_folded_cause {
    uint64_t order;              /* of its operator in the step, about; 0 for what tier 0 found */
    tocsin_cause cause;          /* texts in the arena */
    TOCSIN_VEC(uint64_t) places; /* device << 32 | replica (UINT32_MAX: all of them) */
} tocsin_folded_cause;

/* The result and its texts, which live in one arena behind it. */
typedef struct tocsin_report {
    tocsin_verify_result *result;
    const tocsin_plan *plan; /* the parallel one */
    bool confirmed;          /* evaluation says that the plans differ */
    uint32_t round;          /* of diagnosis: what a later one finds may be an after-effect */
    TOCSIN_VEC(tocsin_folded_cause) causes;
    tocsin_intern seen[TOCSIN_REPORT_LISTS]; /* lines, each once */
    TOCSIN_VEC(const char *) lines[TOCSIN_REPORT_LISTS];
} tocsin_report;

tocsin_status tocsin_report_init(tocsin_report *report, tocsin_error *error);
/* Add a line to a list unless it is there. false: out of memory. */
bool tocsin_report_line(tocsin_report *report, tocsin_report_list list, const char *format, ...)
    TOCSIN_PRINTF(3, 4);
/* Add a cause; equal ones (operator's label, class, texts without their ranks) become one. */
tocsin_status tocsin_report_root(tocsin_report *report, const tocsin_run *run,
                                 const tocsin_root *root, tocsin_error *error);
tocsin_status tocsin_report_sanity(tocsin_report *report, const tocsin_plan *plan,
                                   const tocsin_sanity *sanity, tocsin_error *error);
/* Write the lists into the result. */
tocsin_status tocsin_report_finish(tocsin_report *report, uint32_t causes_max, tocsin_error *error);
/* The result is the caller's from now on. */
tocsin_verify_result *tocsin_report_take(tocsin_report *report);
void tocsin_report_free(tocsin_report *report);

const char *tocsin_output_kind_text(uint8_t kind);

#endif
