/* chains.h - orders of calls, put together from the invariants that state them pair by pair. */
#ifndef TOCSIN_CLI_CHAINS_H
#define TOCSIN_CLI_CHAINS_H

#include <tocsin/invariant.h>

/* Print the calls that take turns, then what else is called between two calls of another. Returns
 * an exit code. */
int cli_chains_print(const tocsin_invariant_set *set);

#endif
