/* SIGKILL at random moments: every event whose emit() had returned is read, and nothing twice.
 *
 * A process with three emitting threads and a forked child with a file of its own is killed. Each
 * thread counts, in memory that the test shares, the events that emit() has returned from. The
 * reader must find at least those, in order, and at most one more per thread: the one being
 * emitted. TOCSIN_KILL_ROUNDS sets the number of rounds. */
#include "trace_scratch.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { ROUNDS = 6 };
#else
enum { ROUNDS = 30 };
#endif

enum { THREADS = 3, NAMES = 400 };

typedef struct counters {
    _Atomic int64_t returned[2][THREADS]; /* of the parent, of its child */
    _Atomic int32_t pids[2];
} counters;

typedef struct emitting {
    tocsin_trace_writer *writer;
    _Atomic int64_t *returned;
    int thread;
} emitting;

/* Event i of thread t: key = the name "t:i mod NAMES", value = i. Names are defined as they come.
 */
static void *emit_until_killed(void *argument)
{
    const emitting *job = argument;
    tocsin_id names[NAMES] = {0};
    for (int64_t i = 0;; ++i) {
        tocsin_id *name = &names[i % NAMES];
        if (!*name) {
            char text[32];
            int bytes = snprintf(text, sizeof text, "%d:%lld", job->thread, (long long)(i % NAMES));
            *name = tocsin_trace_define_string(job->writer, text, (size_t)bytes);
        }
        scratch_meta(job->writer, *name, i);
        atomic_store_explicit(job->returned, i + 1, memory_order_release);
        if (i % 512 == 511)
            usleep(100);
    }
    return NULL;
}

static void emit_in_threads(const scratch *run, counters *shared, int process)
{
    tocsin_trace_writer_options options = {.struct_bytes = sizeof options,
                                           .directory = run->directory,
                                           .ring_bytes = 64 << 10,
                                           .flush_ms = 5};
    tocsin_trace_writer *writer;
    if (tocsin_trace_writer_open(&options, &writer, NULL) != TOCSIN_OK)
        _exit(1);
    static emitting jobs[THREADS];
    for (int i = 0; i < THREADS; ++i) {
        jobs[i] = (emitting){writer, &shared->returned[process][i], i};
        pthread_t thread;
        if (pthread_create(&thread, NULL, emit_until_killed, &jobs[i]) != 0)
            _exit(1);
    }
}

static void victim(const scratch *run, counters *shared)
{
    pid_t child = fork(); /* before the threads: sanitizers do not fork with any */
    atomic_store(&shared->pids[child == 0], getpid());
    emit_in_threads(run, shared, child == 0);
    for (;;)
        pause();
}

/* Read what the process left. Returns how many events there are beyond what was counted. */
static int64_t check_process(tocsin_trace *trace, _Atomic int64_t *returned)
{
    int64_t next[THREADS] = {0};
    for (const tocsin_event *event; (event = scratch_next(trace));) {
        int thread = -1;
        long long name = -1;
        assert_int_equal(event->kind, TOCSIN_EVENT_META);
        const char *text = tocsin_trace_string(trace, event->key);
        if (sscanf(text, "%d:%lld", &thread, &name) != 2)
            fail_msg("an event without its name: \"%s\"", text);
        assert_in_range(thread, 0, THREADS - 1);
        assert_int_equal(event->values[0].as.integer, next[thread]);
        assert_int_equal(name, next[thread] % NAMES);
        ++next[thread];
    }
    int64_t more = 0;
    for (int i = 0; i < THREADS; ++i) {
        int64_t counted = atomic_load(&returned[i]);
        if (next[i] < counted)
            fail_msg("thread %d: %lld events emitted, %lld read", i, (long long)counted,
                     (long long)next[i]);
        assert_in_range(next[i] - counted, 0, 1);
        more += next[i] - counted;
    }
    assert_false(tocsin_trace_is_complete(trace));
    assert_false(tocsin_trace_is_alive(trace));
    assert_int_equal(tocsin_trace_corrupt_blocks(trace), 0);
    return more;
}

static void kill_once(unsigned *random, int64_t *events)
{
    scratch run = scratch_new();
    counters *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setpgid(0, 0);
        victim(&run, shared);
    }
    for (int process = 0; process < 2; ++process)
        for (int i = 0; i < THREADS; ++i)
            while (atomic_load(&shared->returned[process][i]) == 0)
                usleep(500);
    usleep((useconds_t)(rand_r(random) % 30000));
    pid_t child = atomic_load(&shared->pids[1]);
    kill(pid, SIGKILL);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    while (kill(child, 0) == 0) { /* the grandchild is not ours to wait for */
        char path[64], state = 0;
        long threads = 0;
        snprintf(path, sizeof path, "/proc/%d/stat", child);
        FILE *stat = fopen(path, "r");
        if (!stat)
            break;
        if (fscanf(stat,
                   "%*d %*s %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %ld",
                   &state, &threads) == 2 &&
            state == 'Z' && threads <= 1) {
            fclose(stat);
            break;
        }
        fclose(stat);
        usleep(500);
    }
    tocsin_run *read;
    assert_int_equal(tocsin_run_open(run.directory, false, &read, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_run_process_count(read), 2);
    for (size_t i = 0; i < 2; ++i) {
        tocsin_trace *trace = tocsin_run_process(read, i);
        int process = tocsin_trace_pid(trace) == pid ? 0 : 1;
        assert_int_equal(tocsin_trace_pid(trace), process ? child : pid);
        (void)check_process(trace, shared->returned[process]);
        for (int t = 0; t < THREADS; ++t)
            *events += atomic_load(&shared->returned[process][t]);
    }
    tocsin_run_close(read);
    munmap(shared, sizeof *shared);
    scratch_free(&run);
}

static void test_killed_processes_lose_nothing(void **state)
{
    (void)state;
    const char *text = getenv("TOCSIN_KILL_ROUNDS");
    int rounds = text ? atoi(text) : ROUNDS;
    unsigned random = 20260131;
    int64_t events = 0;
    for (int i = 0; i < rounds; ++i)
        kill_once(&random, &events);
    print_message("%d kills of 2 processes, %lld events, none lost\n", rounds, (long long)events);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_killed_processes_lose_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
