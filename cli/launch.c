/* launch.c - a training job as our child.
 *
 * The child stays in our process group, so the terminal's Ctrl-C reaches it directly and job
 * control works as without us. There are no signal handlers: the signals that matter are blocked
 * and taken one by one while waiting, so nothing runs asynchronously in this program.
 * If we die, the job goes on: it is the user's.
 */
#include "launch.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- checks before the start --------------------------------------------------------------- */

static bool is_executable_file(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

static bool is_in_path(const char *program)
{
    const char *path = getenv("PATH");
    if (!path) {
        path = "/usr/local/bin:/usr/bin:/bin";
    }
    for (;;) {
        size_t length = strcspn(path, ":");
        char candidate[PATH_MAX];
        int written =
            length ? snprintf(candidate, sizeof candidate, "%.*s/%s", (int)length, path, program)
                   : snprintf(candidate, sizeof candidate, "./%s", program);
        if (written > 0 && (size_t)written < sizeof candidate && is_executable_file(candidate)) {
            return true;
        }
        if (path[length] == '\0') {
            return false;
        }
        path += length + 1;
    }
}

/* The script of "python [-X option]... script.py": NULL for -c, -m, stdin or another program. */
static const char *python_script(char *const *command)
{
    const char *slash = strrchr(command[0], '/');
    const char *name = slash ? slash + 1 : command[0];
    if (strncmp(name, "python", 6) != 0) {
        return NULL;
    }
    for (size_t i = 1; command[i]; i++) {
        const char *word = command[i];
        if (word[0] != '-') {
            return word;
        }
        if (word[1] == '\0' || strcmp(word, "--") == 0) {
            return NULL;
        }
        if (word[1] == '-') { /* --check-hash-based-pycs VALUE is the only long one with a value */
            i += strcmp(word, "--check-hash-based-pycs") == 0 && command[i + 1];
            continue;
        }
        const char *letter = word + strcspn(word, "cmWX");
        if (*letter == 'c' || *letter == 'm') {
            return NULL;
        }
        i += *letter && !letter[1] && command[i + 1]; /* -X dev, but not -Xdev */
    }
    return NULL;
}

tocsin_status cli_launch_check(char *const *command, tocsin_error *error)
{
    assert(command && command[0]);
    bool has_slash = strchr(command[0], '/') != NULL;
    if (has_slash ? !is_executable_file(command[0]) : !is_in_path(command[0])) {
        return tocsin_error_at(error, TOCSIN_E_NOT_FOUND, command[0], -1, "command not found");
    }
    const char *script = python_script(command);
    if (script && access(script, R_OK) != 0) {
        return tocsin_error_at(error, TOCSIN_E_NOT_FOUND, script, -1, "cannot read the script: %s",
                               strerror(errno));
    }
    return TOCSIN_OK;
}

/* ---- start --------------------------------------------------------------------------------- */

/* Those that are passed on, and that of the child's end. USR1 and USR2 are how schedulers and
 * trainers ask for a checkpoint; they would end us. */
static void watched_signals(sigset_t *set)
{
    static const int watched[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD};
    sigemptyset(set);
    for (size_t i = 0; i < sizeof watched / sizeof watched[0]; i++) {
        sigaddset(set, watched[i]);
    }
}

static bool asks_to_stop(int taken)
{
    return taken > 0 && taken != SIGCHLD && taken != SIGUSR1 && taken != SIGUSR2;
}

/* In the child: false with errno. */
static bool behave(const cli_launch_manner *manner)
{
    if (manner->output_to_errors && dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        return false;
    }
    if (manner->pinned && sched_setaffinity(0, sizeof manner->cpus, &manner->cpus) != 0) {
        return false;
    }
    errno = 0;
    return nice(manner->nice_by) != -1 || errno == 0;
}

/* In the child: never returns; a failure to execute is reported through the pipe. */
static _Noreturn void become(const cli_launch *job, char *const *command,
                             const cli_launch_variable *variables, size_t variable_count,
                             const cli_launch_manner *manner, int report_fd)
{
    int failure = 0;
    if (manner && !behave(manner)) {
        failure = errno;
    }
    for (size_t i = 0; i < variable_count && !failure; i++) {
        int refused = variables[i].value ? setenv(variables[i].name, variables[i].value, 1)
                                         : unsetenv(variables[i].name);
        failure = refused ? errno : 0;
    }
    if (!failure) {
        sigaction(SIGCHLD, &job->on_child, NULL);
        sigprocmask(SIG_SETMASK, &job->mask, NULL);
        execvp(command[0], command);
        failure = errno;
    }
    ssize_t written = write(report_fd, &failure, sizeof failure);
    (void)written; /* without a report the parent sees exit code 127 */
    _exit(127);
}

/* The errno with which exec failed in the child, or 0: the pipe closed by a successful exec. */
static int read_report(int report_fd)
{
    int failure = 0;
    ssize_t count;
    do {
        count = read(report_fd, &failure, sizeof failure);
    } while (count < 0 && errno == EINTR);
    return count == (ssize_t)sizeof failure ? failure : 0;
}

tocsin_status cli_launch_start(cli_launch *job, char *const *command,
                               const cli_launch_variable *variables, size_t variable_count,
                               const cli_launch_manner *manner, tocsin_error *error)
{
    assert(job && command && command[0]);
    assert(variables || variable_count == 0);
    /* Where SIGCHLD is ignored, the kernel throws the status of children away. */
    const struct sigaction keep_status = {.sa_handler = SIG_DFL};
    sigset_t watched;
    int report[2];

    *job = (cli_launch){.pid = -1};
    if (pipe2(report, O_CLOEXEC) != 0) {
        return tocsin_error_set(error, TOCSIN_E_IO, "cannot create a pipe: %s", strerror(errno));
    }
    watched_signals(&watched);
    sigprocmask(SIG_BLOCK, &watched, &job->mask);
    sigaction(SIGCHLD, &keep_status, &job->on_child);
    job->pid = fork();
    if (job->pid == 0) {
        become(job, command, variables, variable_count, manner, report[1]);
    }
    int failure = job->pid < 0 ? errno : 0;
    close(report[1]);
    if (!failure) {
        failure = read_report(report[0]);
    }
    close(report[0]);
    if (failure) {
        if (job->pid > 0) {
            waitpid(job->pid, NULL, 0);
        }
        cli_launch_end(job);
        return tocsin_error_at(error, failure == ENOENT ? TOCSIN_E_NOT_FOUND : TOCSIN_E_IO,
                               command[0], -1, "cannot execute: %s", strerror(failure));
    }
    signal(SIGPIPE, SIG_IGN);
    return TOCSIN_OK;
}

/* ---- wait ---------------------------------------------------------------------------------- */

static bool has_ended(cli_launch *job)
{
    int status;
    if (job->ended) {
        return true;
    }
    pid_t pid = waitpid(job->pid, &status, WNOHANG);
    if (pid != job->pid) {
        return false;
    }
    job->ended = true;
    job->exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return true;
}

bool cli_launch_wait(cli_launch *job, int timeout_ms)
{
    assert(job && job->pid > 0);
    sigset_t watched;
    watched_signals(&watched);

    while (!has_ended(job)) {
        siginfo_t info;
        struct timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
        int taken =
            timeout_ms < 0 ? sigwaitinfo(&watched, &info) : sigtimedwait(&watched, &info, &timeout);
        if (taken < 0 && errno == EAGAIN) {
            return has_ended(job);
        }
        job->interrupted = job->interrupted || asks_to_stop(taken);
        /* SI_KERNEL is the terminal's: it has gone to the whole foreground group already. */
        if (taken > 0 && taken != SIGCHLD && info.si_code != SI_KERNEL) {
            kill(job->pid, taken);
        }
    }
    return true;
}

void cli_launch_end(cli_launch *job)
{
    assert(job);
    sigset_t watched;
    struct timespec now = {0};
    watched_signals(&watched);
    for (int taken; (taken = sigtimedwait(&watched, NULL, &now)) > 0;) {
        /* A Ctrl-C that was meant for the job and came as it ended must not end us. */
        job->interrupted = job->interrupted || asks_to_stop(taken);
    }
    sigaction(SIGCHLD, &job->on_child, NULL);
    sigprocmask(SIG_SETMASK, &job->mask, NULL);
}
