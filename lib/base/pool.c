/* pool.c - indexed jobs on a few threads.
 *
 * Data structure: one current batch under one mutex; threads take the next index until none is
 * left. Invariant: indices start in ascending order, so when the lowest failing index fails all
 * indices below it have been started and are waited for: which failure is reported never depends on
 * timing. Cost: one lock and unlock per job; jobs should take microseconds or more.
 */
#include <assert.h>
#include <base/base.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#define THREADS_MAX 1024U

struct tocsin_pool {
    unsigned threads; /* the caller included */
    unsigned started; /* workers that exist */
    pthread_t *workers;
    pthread_mutex_t mutex;
    pthread_cond_t work; /* there are indices to take, or the pool ends */
    pthread_cond_t idle; /* the last running job has ended */
    /* The rest is guarded by the mutex. */
    tocsin_pool_job *job;
    void *context;
    size_t next;    /* the next index to start */
    size_t count;   /* indices of the batch; lowered to `next` after a failure */
    size_t running; /* jobs started and not ended */
    size_t failed_index;
    tocsin_status status;
    tocsin_error error;
    bool ending;
};

/* Start indices until none is left. Called and left with the mutex held. */
static void take_jobs(tocsin_pool *pool)
{
    while (pool->next < pool->count) {
        size_t index = pool->next++;
        ++pool->running;
        pthread_mutex_unlock(&pool->mutex);
        tocsin_error error = {.offset = -1};
        tocsin_status status = pool->job(pool->context, index, &error);
        pthread_mutex_lock(&pool->mutex);
        if (status != TOCSIN_OK && (pool->status == TOCSIN_OK || index < pool->failed_index)) {
            pool->status = status;
            pool->error = error;
            pool->failed_index = index;
            pool->count = pool->next;
        }
        if (--pool->running == 0 && pool->next >= pool->count)
            pthread_cond_broadcast(&pool->idle);
    }
}

static void *work(void *argument)
{
    tocsin_pool *pool = argument;
    pthread_mutex_lock(&pool->mutex);
    while (!pool->ending) {
        take_jobs(pool);
        if (!pool->ending)
            pthread_cond_wait(&pool->work, &pool->mutex);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

static unsigned usable_cpus(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    int count = CPU_COUNT(&set);
    return count > 0 ? (unsigned)count : 1;
}

/* Workers inherit a mask that blocks everything: signals belong to the host program's threads. */
static tocsin_status start_workers(tocsin_pool *pool, tocsin_error *error)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int result = 0;
    while (result == 0 && pool->started < pool->threads - 1) {
        result = tocsin_fault_hit(TOCSIN_FAULT_IO)
                     ? EAGAIN
                     : pthread_create(&pool->workers[pool->started], NULL, work, pool);
        if (result == 0)
            ++pool->started;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (result == 0)
        return TOCSIN_OK;
    errno = result;
    return tocsin_error_system(error, "start a thread", NULL);
}

tocsin_status tocsin_pool_new(unsigned threads, tocsin_pool **result, tocsin_error *error)
{
    assert(result);
    *result = NULL;
    tocsin_pool *pool = tocsin_zalloc(1, sizeof *pool);
    if (!pool)
        return tocsin_error_memory(error);
    pool->threads = threads ? threads : usable_cpus();
    if (pool->threads > THREADS_MAX)
        pool->threads = THREADS_MAX;
    pthread_mutex_init(&pool->mutex, NULL); /* default attributes: cannot fail on Linux */
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->idle, NULL);
    pool->workers = tocsin_zalloc(pool->threads, sizeof *pool->workers);
    tocsin_status status = pool->workers ? start_workers(pool, error) : tocsin_error_memory(error);
    if (status == TOCSIN_OK)
        *result = pool;
    else
        tocsin_pool_free(pool);
    return status;
}

unsigned tocsin_pool_threads(const tocsin_pool *pool)
{
    return pool->threads;
}

tocsin_status tocsin_pool_run(tocsin_pool *pool, size_t count, tocsin_pool_job *job, void *context,
                              tocsin_error *error)
{
    assert(job);
    pthread_mutex_lock(&pool->mutex);
    assert(pool->running == 0 && pool->next >= pool->count && "one batch at a time");
    pool->job = job;
    pool->context = context;
    pool->next = 0;
    pool->count = count;
    pool->status = TOCSIN_OK;
    pthread_cond_broadcast(&pool->work);
    take_jobs(pool);
    while (pool->running > 0)
        pthread_cond_wait(&pool->idle, &pool->mutex);
    tocsin_status status = pool->status;
    if (status != TOCSIN_OK && error) {
        *error = pool->error;
        error->code = status;
    }
    pthread_mutex_unlock(&pool->mutex);
    return status;
}

void tocsin_pool_free(tocsin_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->mutex);
    pool->ending = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
    for (unsigned i = 0; i < pool->started; ++i)
        pthread_join(pool->workers[i], NULL);
    pthread_cond_destroy(&pool->idle);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->mutex);
    tocsin_free(pool->workers);
    tocsin_free(pool);
}
