/* prove/diagnose.h - the two runs of a proof, and why they differ. */
#ifndef TOCSIN_PROVE_DIAGNOSE_H
#define TOCSIN_PROVE_DIAGNOSE_H

#include "prove/verdict.h"

/* Both plans run over relations, and compared. */
typedef struct tocsin_attempt {
    tocsin_prover prover;
    tocsin_run logical, parallel;
    tocsin_comparison comparison;
} tocsin_attempt;

/* Report the causes of what tier 0 found and of the outputs that differ: if one cause explains all,
 * that one; else all independent ones, found by taking what was found as right and running again.
 */
tocsin_status tocsin_diagnose(tocsin_attempt *attempt, const tocsin_sanity *sanity,
                              tocsin_report *report, tocsin_error *error);

/* Is this the text of an incident that says that a rule is missing? */
bool tocsin_is_missing_rule(const char *text);

#endif
