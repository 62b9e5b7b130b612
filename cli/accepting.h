/* accepting.h - rules of `tocsin align`: differences that are meant. */
#ifndef TOCSIN_CLI_ACCEPTING_H
#define TOCSIN_CLI_ACCEPTING_H

#include "cli.h"

#include <tocsin/align.h>

typedef struct cli_accepting {
    const char *file;    /* --rules, or NULL */
    const char *id;      /* --accept, or NULL */
    const char *because; /* its reason */
    const char *until;   /* its last day; NULL: in 90 days */
} cli_accepting;

/* Do the options fit together? Prints what is wrong. */
bool cli_accepting_check(const cli_accepting *accepting);
/* The file's rules as of today; none for a file that is to be made. NULL without a file. */
tocsin_status cli_accepting_load(const cli_accepting *accepting, tocsin_align_rules **rules,
                                 tocsin_error *error);
/* Add the rule of --accept to the file, with what the runs have there, and say so. Errors: also
 * E_ARGUMENT where the runs do not differ there. */
tocsin_status cli_accepting_add(const cli_accepting *accepting, const tocsin_align_result *result,
                                tocsin_align_rules *rules, tocsin_error *error);

#endif
