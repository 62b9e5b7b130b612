/* A process that is spoken with by lines: one is said, one is answered.
 *
 * Its stdin and stdout are one socket, so that saying something to a process that is gone is an
 * error and no signal. Invariant: there is a deadline to every exchange and a limit to every line,
 * whatever the process does. It is the first of a process group, which is killed when it does not
 * end by itself.
 * Cost: two system calls and two switches between processes an exchange.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <invariant/plugin.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES_MAX (1u << 20)
#define READ_BYTES     (1u << 14)
#define END_MS         1000 /* for a process that was told to end */
#define MS_NS          UINT64_C(1000000)

extern char **environ;

static tocsin_status fail(const tocsin_dialogue *dialogue, const char *what, tocsin_error *error)
{
    return tocsin_error_at(error, TOCSIN_E_IO, dialogue->command, -1, "%s", what);
}

/* ---- beginning and ending ------------------------------------------------------------------ */

static int spawn_with(posix_spawn_file_actions_t *actions, posix_spawnattr_t *attributes,
                      const char *command, int fd, pid_t *pid)
{
    char *const arguments[] = {(char[]){"sh"}, (char[]){"-c"}, (char *)(uintptr_t)command, NULL};
    sigset_t none;
    sigemptyset(&none);
    int failure = posix_spawn_file_actions_adddup2(actions, fd, STDIN_FILENO);
    if (failure == 0)
        failure = posix_spawn_file_actions_adddup2(actions, fd, STDOUT_FILENO);
    if (failure == 0)
        failure = posix_spawnattr_setsigmask(attributes, &none);
    if (failure == 0)
        failure =
            posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    if (failure == 0)
        failure = posix_spawn(pid, "/bin/sh", actions, attributes, arguments, environ);
    return failure;
}

static int spawn(const char *command, int fd, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    if (tocsin_fault_hit(TOCSIN_FAULT_IO))
        return EAGAIN;
    int failure = posix_spawn_file_actions_init(&actions);
    if (failure != 0)
        return failure;
    failure = posix_spawnattr_init(&attributes);
    if (failure == 0) {
        failure = spawn_with(&actions, &attributes, command, fd, pid);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return failure;
}

tocsin_status tocsin_dialogue_begin(tocsin_dialogue *dialogue, const char *command,
                                    uint32_t timeout_ms, tocsin_error *error)
{
    int ends[2];
    *dialogue = (tocsin_dialogue){.command = command,
                                  .timeout_ms = timeout_ms,
                                  .fd = -1,
                                  .received = {.limit_bytes = LINE_BYTES_MAX + READ_BYTES}};
    if (tocsin_fault_hit(TOCSIN_FAULT_IO) ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return fail(dialogue, "cannot make a socket", error);
    int flags = fcntl(ends[1], F_GETFL);
    int failure = flags < 0 || fcntl(ends[1], F_SETFL, flags & ~O_NONBLOCK) != 0 ? errno : 0;
    if (failure == 0)
        failure = spawn(command, ends[1], &dialogue->pid);
    close(ends[1]);
    if (failure != 0) {
        close(ends[0]);
        dialogue->pid = 0;
        return fail(dialogue, "cannot start the relation", error);
    }
    dialogue->fd = ends[0];
    return TOCSIN_OK;
}

/* Has it ended within the time? It is not reaped: its number stays that of its group. */
static bool has_ended(pid_t pid, uint32_t limit_ms)
{
    uint64_t deadline_ns = tocsin_clock_ns() + limit_ms * MS_NS;
    for (;;) {
        siginfo_t ended = {.si_pid = 0};
        int failure = waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT);
        if (failure == 0 ? ended.si_pid == pid : errno != EINTR)
            return true;
        if (tocsin_clock_ns() >= deadline_ns)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* End it, and what it has started; how it ended. */
static int end_group(tocsin_dialogue *dialogue)
{
    int status = 0;
    kill(-dialogue->pid, SIGKILL);
    while (waitpid(dialogue->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    dialogue->pid = 0;
    return status;
}

void tocsin_dialogue_end(tocsin_dialogue *dialogue)
{
    if (dialogue->fd >= 0)
        close(dialogue->fd);
    if (dialogue->pid > 0) {
        has_ended(dialogue->pid, dialogue->failed ? 0 : END_MS);
        end_group(dialogue);
    }
    dialogue->fd = -1;
    tocsin_string_free(&dialogue->received);
}

/* ---- speaking ------------------------------------------------------------------------------ */

/* It has closed its end: say how it ended, if it has. */
static tocsin_status fail_gone(tocsin_dialogue *dialogue, tocsin_error *error)
{
    if (dialogue->pid == 0 || !has_ended(dialogue->pid, END_MS))
        return fail(dialogue, "the relation has closed its output", error);
    int status = end_group(dialogue);
    return tocsin_error_at(error, TOCSIN_E_IO, dialogue->command, -1,
                           WIFSIGNALED(status) ? "the relation was ended by signal %d"
                                               : "the relation ended with status %d",
                           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* Wait until it can be read or written. */
static tocsin_status wait_ready(const tocsin_dialogue *dialogue, short events, uint64_t deadline_ns,
                                tocsin_error *error)
{
    struct pollfd waited = {.fd = dialogue->fd, .events = events};
    for (;;) {
        uint64_t now_ns = tocsin_clock_ns();
        int left_ms = now_ns >= deadline_ns ? 0 : (int)((deadline_ns - now_ns + MS_NS - 1) / MS_NS);
        int ready = poll(&waited, 1, left_ms);
        if (ready > 0)
            return TOCSIN_OK;
        if (ready < 0 && errno != EINTR)
            return fail(dialogue, "cannot wait for the relation", error);
        if (ready == 0 && left_ms == 0)
            return tocsin_error_at(error, TOCSIN_E_IO, dialogue->command, -1,
                                   "the relation did not answer within %u ms",
                                   (unsigned)dialogue->timeout_ms);
    }
}

static tocsin_status say(tocsin_dialogue *dialogue, const char *line, size_t bytes,
                         uint64_t deadline_ns, tocsin_error *error)
{
    while (bytes > 0) {
        ssize_t sent = tocsin_fault_hit(TOCSIN_FAULT_IO)
                           ? (errno = EIO, -1)
                           : send(dialogue->fd, line, bytes, MSG_NOSIGNAL);
        if (sent > 0) {
            line += sent;
            bytes -= (size_t)sent;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            TOCSIN_TRY(wait_ready(dialogue, POLLOUT, deadline_ns, error));
        } else if (errno == EPIPE || errno == ECONNRESET) {
            return fail_gone(dialogue, error);
        } else if (errno != EINTR) {
            return fail(dialogue, "cannot write to the relation", error);
        }
    }
    return TOCSIN_OK;
}

/* Read until a line is whole; *length is its bytes without the end. */
static tocsin_status hear(tocsin_dialogue *dialogue, uint64_t deadline_ns, size_t *length,
                          tocsin_error *error)
{
    char chunk[READ_BYTES];
    size_t searched = 0;
    for (;;) {
        const char *text = tocsin_string_text(&dialogue->received);
        const char *end = memchr(text + searched, '\n', dialogue->received.bytes - searched);
        searched = dialogue->received.bytes;
        *length = end != NULL ? (size_t)(end - text) : searched;
        if (*length > LINE_BYTES_MAX)
            return tocsin_error_at(error, TOCSIN_E_LIMIT, dialogue->command, -1,
                                   "a line of the relation has more than %u bytes", LINE_BYTES_MAX);
        if (end != NULL)
            return TOCSIN_OK;
        ssize_t count = tocsin_fault_hit(TOCSIN_FAULT_IO)
                            ? (errno = EIO, -1)
                            : recv(dialogue->fd, chunk, sizeof chunk, 0);
        if (count > 0) {
            tocsin_string_append(&dialogue->received, chunk, (size_t)count);
            TOCSIN_TRY(tocsin_string_check(&dialogue->received, error));
        } else if (count == 0 || errno == ECONNRESET) {
            return fail_gone(dialogue, error);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            TOCSIN_TRY(wait_ready(dialogue, POLLIN, deadline_ns, error));
        } else if (errno != EINTR) {
            return fail(dialogue, "cannot read from the relation", error);
        }
    }
}

static tocsin_status ask(tocsin_dialogue *dialogue, const char *line, size_t bytes,
                         const char **answer, size_t *answer_bytes, tocsin_error *error)
{
    assert(dialogue->fd >= 0 && bytes > 0 && line[bytes - 1] == '\n');
    uint64_t deadline_ns = tocsin_clock_ns() + dialogue->timeout_ms * MS_NS;
    tocsin_string *received = &dialogue->received;
    if (dialogue->taken > 0) { /* the answer before */
        memmove(received->text, received->text + dialogue->taken,
                received->bytes - dialogue->taken);
        received->bytes -= dialogue->taken;
        received->text[received->bytes] = 0;
        dialogue->taken = 0;
    }
    if (received->bytes > 0)
        return tocsin_error_at(error, TOCSIN_E_FORMAT, dialogue->command, -1,
                               "the relation said more than one line");
    TOCSIN_TRY(say(dialogue, line, bytes, deadline_ns, error));
    TOCSIN_TRY(hear(dialogue, deadline_ns, answer_bytes, error));
    *answer = received->text;
    dialogue->taken = *answer_bytes + 1;
    return TOCSIN_OK;
}

tocsin_status tocsin_dialogue_ask(tocsin_dialogue *dialogue, const char *line, size_t bytes,
                                  const char **answer, size_t *answer_bytes, tocsin_error *error)
{
    tocsin_status status = ask(dialogue, line, bytes, answer, answer_bytes, error);
    dialogue->failed = status != TOCSIN_OK;
    return status;
}
