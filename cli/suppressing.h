/* suppressing.h - files of suppressions: what `check`, `run` and `suppress` share. */
#ifndef TOCSIN_CLI_SUPPRESSING_H
#define TOCSIN_CLI_SUPPRESSING_H

#include "checking.h"

/* The files as one collection, as of today; prints its own error and returns an exit code. */
int cli_suppressions_load(const cli_texts *files, tocsin_suppressions **suppressions);
/* What these files suppress is no finding of the opened run. None: nothing happens. */
int cli_checking_suppress(cli_checking *checking, const cli_texts *files);

#endif
