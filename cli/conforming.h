/* conforming.h - `tocsin verify --conform PLAN RUN`: did a run communicate as its plan says? */
#ifndef TOCSIN_CLI_CONFORMING_H
#define TOCSIN_CLI_CONFORMING_H

#include <stdbool.h>
#include <tocsin/plan.h>

/* Read both, compare, print the report to stdout. Returns CLI_HOLDS when the run conforms,
 * CLI_FINDING, CLI_UNDECIDED when no step could be compared, or an error's code, printed. */
int cli_conform(const char *plan_path, const tocsin_plan_options *reading, const char *run_path,
                bool json);

#endif
