/* checking.h - a run checked against files of invariants: what `check` and `run` share. */
#ifndef TOCSIN_CLI_CHECKING_H
#define TOCSIN_CLI_CHECKING_H

#include <tocsin/check.h>
#include <tocsin/report.h>

#include "relations.h"

typedef struct cli_checking {
    tocsin_invariant_set *set;
    tocsin_checker *checker;
    tocsin_run *run;
    tocsin_relations *relations; /* NULL: none */
    const char *name;            /* of the run, as reports show it; borrowed */
    bool aloud;                  /* print each finding on stderr when it is found */
} cli_checking;

/* Each prints its own error and returns an exit code; CLI_HOLDS means go on. Start from a zeroed
 * struct; checking_close frees whatever there is. */
/* The invariants of `files`; with `library`, or when there is no file, the shipped ones. And the
 * relations of the user that they need. */
int cli_checking_load(cli_checking *checking, const cli_texts *files, bool library,
                      const cli_texts *relations);
/* Open the recording in `directory`, shown as `name`. */
int cli_checking_open(cli_checking *checking, const char *directory, const char *name, bool follow);
/* Check what is there now, or a part of it; *events counts what was new, 0: there is no more. */
int cli_checking_advance(cli_checking *checking, uint64_t *events);
/* Does a process that writes this run still live? */
bool cli_checking_is_live(const cli_checking *checking);
/* Close open windows. */
int cli_checking_finish(cli_checking *checking);
/* Print the report and return the verdict's exit code, or an error's. It is partial, too, when the
 * run is still live. */
int cli_checking_report(const cli_checking *checking, tocsin_report_format format, bool all,
                        bool partial, FILE *stream);
void cli_checking_close(cli_checking *checking);

#endif
