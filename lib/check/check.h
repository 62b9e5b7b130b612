/* lib/check/check.h - findings: violations of one invariant, gathered; and what occurred in a run,
 * to say why an invariant was never judged. Inside the module only. */
#ifndef TOCSIN_CHECK_MODULE_H
#define TOCSIN_CHECK_MODULE_H

#include <invariant/instance.h>
#include <tocsin/check.h>

#define TOCSIN_OFFENDERS_NAMED 5
#define TOCSIN_OFFENDERS_MAX   (1u << 16) /* told apart; further ones are not counted */

/* All violations of one invariant. Texts are owned. */
typedef struct tocsin_violations {
    const tocsin_vocabulary *vocabulary;
    const tocsin_invariant *judged;
    tocsin_finding finding;  /* rendered anew when it is asked for after a change */
    tocsin_intern offenders; /* of the first step only: they name the place to look */
    char *seen;              /* what was seen at the first occurrence */
    char *site;
    char *rendered;
    bool stale; /* `rendered` is older than `offenders` */
    bool told;  /* the caller's `found` has been called */
} tocsin_violations;

TOCSIN_MUST_CHECK tocsin_status tocsin_violations_new(const tocsin_invariant_set *set,
                                                      const tocsin_vocabulary *vocabulary,
                                                      size_t index, const tocsin_instance *instance,
                                                      tocsin_violations **violations,
                                                      tocsin_error *error);
/* Count one more violation. Of an earlier step it is the first occurrence from now on: processes
 * are not always read in the order of their steps. */
TOCSIN_MUST_CHECK tocsin_status tocsin_violations_add(tocsin_violations *violations,
                                                      const tocsin_instance *instance,
                                                      tocsin_error *error);
/* The finding with its text up to date. */
TOCSIN_MUST_CHECK tocsin_status tocsin_violations_render(tocsin_violations *violations,
                                                         tocsin_error *error);
void tocsin_violations_free(tocsin_violations *violations);
/* Report order: step, then cause, then falling specificity, then id. */
int tocsin_violations_compare(const tocsin_violations *a, const tocsin_violations *b);

/* ---- cluster.c ----------------------------------------------------------------------------- */

/* Number the clusters of `count` findings in report order. */
TOCSIN_MUST_CHECK tocsin_status tocsin_violations_cluster(tocsin_violations *const *violations,
                                                          size_t count, tocsin_error *error);

/* ---- suppression.c ------------------------------------------------------------------------- */

/* Does one of them suppress this violation? It is counted. NULL: there are none. */
bool tocsin_suppressions_match(tocsin_suppressions *suppressions, const char *invariant,
                               const char *code, const char *entity);

/* ---- coverage.c ---------------------------------------------------------------------------- */

#define TOCSIN_COVERAGE_ROLES_MAX 64

/* Which calls occurred in a run. Zero is empty. Memory: a bit per function and process. */
typedef struct tocsin_coverage {
    TOCSIN_VEC(struct tocsin_coverage_process *) processes;
    tocsin_intern functions;                          /* called by some process */
    TOCSIN_VEC(uint32_t) callers;                     /* by function - 1: by how many processes */
    uint32_t role_callers[TOCSIN_COVERAGE_ROLES_MAX]; /* the same by role */
    bool selective;                                   /* only selected calls are in the run */
} tocsin_coverage;

/* An event of process `process` (dense from 0) is read. */
TOCSIN_MUST_CHECK tocsin_status tocsin_coverage_see(tocsin_coverage *coverage, size_t process,
                                                    const tocsin_dictionary *dictionary,
                                                    const tocsin_event *event, tocsin_error *error);
/* Which clauses of a precondition that does not hold do hold? Bit i: clause i, counted through all
 * conjunctions; those beyond 64 are left out. */
uint64_t tocsin_coverage_clauses(const tocsin_precondition *when, const tocsin_instance *instance);
/* Why was the invariant never judged, although instances of its population were seen `seen` times,
 * on which the clauses `held` held, not all at once? The words are appended to `why`. */
tocsin_unknown_reason tocsin_coverage_explain(const tocsin_coverage *coverage,
                                              const tocsin_vocabulary *vocabulary,
                                              const tocsin_invariant *invariant, uint64_t seen,
                                              uint64_t held, tocsin_string *why);
/* Why is an invariant of a user's relation not judged when the relation is not there? `population`
 * as in tocsin_invariants_lacks. */
tocsin_unknown_reason tocsin_coverage_explain_absent(const char *population, tocsin_string *why);
void tocsin_coverage_free(tocsin_coverage *coverage);

#endif
