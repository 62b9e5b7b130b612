/* relations.h - the user's own relations, as --relation gives them. */
#ifndef TOCSIN_CLI_RELATIONS_H
#define TOCSIN_CLI_RELATIONS_H

#include <tocsin/relation.h>

#include "cli.h"

#define CLI_RELATION_HELP "a relation of your own: a library FILE.so, or a command; repeatable"

/* What was given: one that ends in ".so" is a shared library, any other a command for the shell.
 * *relations is NULL when nothing was given, and to be freed. */
tocsin_status cli_relations_open(const cli_texts *given, tocsin_relations **relations,
                                 tocsin_error *error);

#endif
