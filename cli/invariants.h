/* invariants.h - files of invariants, as the commands that manage them take them. */
#ifndef TOCSIN_CLI_INVARIANTS_H
#define TOCSIN_CLI_INVARIANTS_H

#include <tocsin/invariant.h>

#include "cli.h"

/* Add a file, Tocsin's or TrainCheck's, to *set, which is new when it is NULL; path NULL: the
 * shipped library as a new set. The caller frees it. Prints its own error, frees the set and
 * returns an exit code. */
int cli_invariants_read(const char *path, tocsin_invariant_set **set);
/* The same for all files. */
int cli_invariants_read_all(const cli_operands *files, tocsin_invariant_set **set);
/* Write the set to `path`, say on stderr how many there are, and free it. */
int cli_invariants_store(tocsin_invariant_set *set, const char *path, bool force);
/* The index of the one with this id, or SIZE_MAX after an error message. */
size_t cli_invariants_find(const tocsin_invariant_set *set, const char *id);

#endif
