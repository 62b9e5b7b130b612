/* certifying.h - `tocsin verify --check FILE LOGICAL PARALLEL`: a second opinion on a certificate.
 */
#ifndef TOCSIN_CLI_CERTIFYING_H
#define TOCSIN_CLI_CERTIFYING_H

#include <stdbool.h>
#include <tocsin/plan.h>

/* Read all three, judge, print ACCEPTED or REJECTED with the first wrong fact. Returns CLI_HOLDS,
 * CLI_FINDING, or an error's code, printed. */
int cli_certify(const char *certificate_path, const char *logical_path, const char *parallel_path,
                const tocsin_plan_options *reading, bool json);

#endif
