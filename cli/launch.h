/* launch.h - a training job as our child: start, forward signals, wait. */
#ifndef TOCSIN_CLI_LAUNCH_H
#define TOCSIN_CLI_LAUNCH_H

#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <tocsin/status.h>

typedef struct cli_launch_variable {
    const char *name;
    const char *value; /* NULL: removed from the child's environment */
} cli_launch_variable;

/* What else the child is given. */
typedef struct cli_launch_manner {
    bool output_to_errors; /* stdout is our stderr */
    bool pinned;           /* to these: */
    cpu_set_t cpus;
    int nice_by; /* added to ours */
} cli_launch_manner;

typedef struct cli_launch {
    pid_t pid;
    bool ended;
    bool interrupted;          /* INT, TERM, HUP or QUIT came before the end */
    int exit_code;             /* once ended: the child's own, or 128 + signal */
    sigset_t mask;             /* the caller's, restored by cli_launch_end */
    struct sigaction on_child; /* likewise */
} cli_launch;

/* Check what can be checked before anything is created: is there such a program, and when it is
 * Python, such a script? E_NOT_FOUND with a message otherwise. */
TOCSIN_MUST_CHECK tocsin_status cli_launch_check(char *const *command, tocsin_error *error);

/* Start `command` (NULL-terminated, found in PATH) in our process group with these variables,
 * `manner` NULL: as we are. From
 * here to cli_launch_end the signals INT, TERM, HUP, QUIT, USR1, USR2 and CHLD are blocked here;
 * cli_launch_wait handles them. From here to our end PIPE is ignored: a reader of our messages who
 * goes away must not cost the job's status. Errors: E_NOT_FOUND, E_IO: the program could not be
 * executed, cli_launch_end is not due. */
TOCSIN_MUST_CHECK tocsin_status cli_launch_start(cli_launch *job, char *const *command,
                                                 const cli_launch_variable *variables,
                                                 size_t variable_count,
                                                 const cli_launch_manner *manner,
                                                 tocsin_error *error);

/* Wait for the end of the child, at most `timeout_ms` (negative: no limit). Signals that another
 * process sent to us are passed on; those of the terminal reach the child by themselves. */
bool cli_launch_wait(cli_launch *job, int timeout_ms);

/* Restore the signals. */
void cli_launch_end(cli_launch *job);

#endif
