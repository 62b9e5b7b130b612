/* foreign.h - files of invariants, whoever wrote them. */
#ifndef TOCSIN_CLI_FOREIGN_H
#define TOCSIN_CLI_FOREIGN_H

#include <tocsin/invariant.h>

/* Read a file of Tocsin's or TrainCheck's invariants into *set, which is new when it is NULL. What
 * has no counterpart here is named on stderr. */
TOCSIN_MUST_CHECK tocsin_status cli_invariants_load(const char *path, tocsin_invariant_set **set,
                                                    tocsin_error *error);

#endif
