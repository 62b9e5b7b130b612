/* auditing.h - `tocsin record --audit`: does being recorded change what torch computes here? */
#ifndef TOCSIN_CLI_AUDITING_H
#define TOCSIN_CLI_AUDITING_H

#include "recording.h"

/* Before the job: a small training, once recorded as `options` say and once not, by the interpreter
 * of `command`, or where that is a launcher by the one that `tocsin env` asks. Fills the result
 * into `options`; a change is only warned of. Otherwise the error is printed, and the exit code
 * returned. */
int cli_audit_observer(cli_recording_options *options, char *const *command);

#endif
