/* share.c - jobs for all ranks, one at a time to whoever is free.
 *
 * Data structure: the desk on rank 0, under one mutex: the next job, the results in the order in
 * which they arrived (one text and a table of places), the lowest failure. The calling thread of
 * rank 0 serves the other ranks, and a second thread does rank 0's own share, because a shared
 * counter in MPI's one-sided memory would stand still while rank 0 computes, and the other ranks
 * with it. Invariant: jobs start in ascending order and none after a failure, so when the lowest
 * failing job fails all below it have been started, and they are waited for: which failure is
 * reported never depends on timing. Cost: a request and an answer a job, and its result copied
 * once into the text.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include "scale.h"

#define NO_JOB ((uint64_t)-1)

struct tocsin_scale_output {
    tocsin_string text;
};

typedef struct result_place {
    uint64_t begin, bytes;
} result_place;

struct tocsin_scale_results {
    uint64_t count;
    uint64_t bytes;
    result_place *places; /* of each job's result in `text` */
    char *text;
};

/* A worker's request: what became of its last job, and then the result or the error. */
typedef struct job_request {
    uint64_t job; /* NO_JOB: its first request */
    uint64_t bytes;
    int64_t status;
} job_request;

typedef struct job_desk {
    tocsin_scale *scale;
    tocsin_scale_job *job;
    void *context;
    char *piece; /* of a result that arrives; unused when there is one rank */
    pthread_mutex_t mutex;
    /* The rest is guarded by the mutex. */
    uint64_t next;
    uint64_t count; /* lowered to `next` after a failure */
    result_place *places;
    tocsin_string text;
    uint64_t failed_job;
    tocsin_status status;
    tocsin_error error;
} job_desk;

void tocsin_scale_write(tocsin_scale_output *output, const void *bytes, size_t count)
{
    tocsin_string_append(&output->text, bytes, count);
}

const char *tocsin_scale_result(const tocsin_scale_results *results, size_t index, size_t *bytes)
{
    assert(index < results->count);
    *bytes = (size_t)results->places[index].bytes;
    return *bytes > 0 ? results->text + results->places[index].begin : "";
}

void tocsin_scale_results_free(tocsin_scale_results *results)
{
    if (!results)
        return;
    tocsin_free(results->places);
    tocsin_free(results->text);
    tocsin_free(results);
}

/* ---- the desk ------------------------------------------------------------------------------ */

static tocsin_status desk_open(job_desk *desk, size_t count, tocsin_error *error)
{
    if (count > TOCSIN_SCALE_JOBS_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "%zu jobs, %zu at most", count,
                                TOCSIN_SCALE_JOBS_MAX);
    desk->count = count;
    desk->text.limit_bytes = TOCSIN_SCALE_TOTAL_BYTES_MAX;
    desk->places = tocsin_zalloc(count, sizeof *desk->places);
    if (!desk->places)
        return tocsin_error_memory(error);
    if (desk->scale->transport) {
        desk->piece = tocsin_alloc(TOCSIN_SCALE_PIECE_BYTES);
        if (!desk->piece)
            return tocsin_error_memory(error);
    }
    return TOCSIN_OK;
}

static void desk_close(job_desk *desk)
{
    pthread_mutex_destroy(&desk->mutex);
    tocsin_free(desk->piece);
    tocsin_free(desk->places);
    tocsin_string_free(&desk->text);
}

/* The functions below are called with the mutex held. */

static uint64_t desk_take(job_desk *desk)
{
    return desk->next < desk->count ? desk->next++ : NO_JOB;
}

static void desk_fail(job_desk *desk, uint64_t job, tocsin_status status, const tocsin_error *error)
{
    assert(status != TOCSIN_OK);
    desk->count = desk->next;
    if (desk->status != TOCSIN_OK && job >= desk->failed_job)
        return;
    desk->failed_job = job;
    desk->status = status;
    desk->error = *error;
}

/* What was appended since `begin` is the result of `job`. */
static void desk_keep(job_desk *desk, uint64_t job, uint64_t begin)
{
    tocsin_error error = {.offset = -1};
    tocsin_status status = tocsin_string_check(&desk->text, &error);
    if (status != TOCSIN_OK)
        desk_fail(desk, job, status, &error);
    else
        desk->places[job] = (result_place){.begin = begin, .bytes = desk->text.bytes - begin};
}

/* ---- a rank's own share -------------------------------------------------------------------- */

static tocsin_status perform(tocsin_scale_job *job, void *context, uint64_t index,
                             tocsin_scale_output *output, tocsin_error *error)
{
    *error = (tocsin_error){.offset = -1};
    tocsin_string_clear(&output->text);
    output->text.limit_bytes = TOCSIN_SCALE_RESULT_BYTES_MAX;
    TOCSIN_TRY(job(context, (size_t)index, output, error));
    return tocsin_string_check(&output->text, error);
}

/* On rank 0: take jobs from the desk until there are none. */
static void *work_at_desk(void *argument)
{
    job_desk *desk = argument;
    tocsin_scale_output output = {0};
    pthread_mutex_lock(&desk->mutex);
    for (uint64_t job; (job = desk_take(desk)) != NO_JOB;) {
        pthread_mutex_unlock(&desk->mutex);
        tocsin_error error;
        tocsin_status status = perform(desk->job, desk->context, job, &output, &error);
        pthread_mutex_lock(&desk->mutex);
        if (status != TOCSIN_OK) {
            desk_fail(desk, job, status, &error);
            continue;
        }
        uint64_t begin = desk->text.bytes;
        tocsin_string_append(&desk->text, output.text.text, output.text.bytes);
        desk_keep(desk, job, begin);
    }
    pthread_mutex_unlock(&desk->mutex);
    tocsin_string_free(&output.text);
    return NULL;
}

/* On the other ranks: ask rank 0 for jobs until there are none. */
static void work_for_desk(const tocsin_scale *scale, tocsin_scale_job *job, void *context)
{
    const tocsin_scale_transport *transport = scale->transport;
    tocsin_scale_output output = {0};
    tocsin_error error;
    job_request request = {.job = NO_JOB};
    for (;;) {
        transport->send(0, &request, sizeof request);
        if (request.status != TOCSIN_OK)
            transport->send(0, &error, sizeof error);
        for (uint64_t sent = 0; sent < request.bytes;) {
            uint64_t rest = request.bytes - sent;
            size_t bytes = rest < TOCSIN_SCALE_PIECE_BYTES ? rest : TOCSIN_SCALE_PIECE_BYTES;
            transport->send(0, output.text.text + sent, bytes);
            sent += bytes;
        }
        transport->wait();
        transport->receive(0, &request.job, sizeof request.job);
        if (request.job == NO_JOB)
            break;
        request.status = perform(job, context, request.job, &output, &error);
        request.bytes = request.status == TOCSIN_OK ? output.text.bytes : 0;
    }
    tocsin_string_free(&output.text);
}

/* ---- serving ------------------------------------------------------------------------------- */

/* Take what `from` brings, and give it a job. Nothing here may fail halfway: what cannot be kept is
 * still received. */
static bool serve(job_desk *desk, int from)
{
    const tocsin_scale_transport *transport = desk->scale->transport;
    job_request request;
    transport->receive(from, &request, sizeof request);
    if (request.status != TOCSIN_OK) {
        tocsin_error error;
        transport->receive(from, &error, sizeof error);
        desk_fail(desk, request.job, (tocsin_status)request.status, &error);
    } else if (request.job != NO_JOB) {
        uint64_t begin = desk->text.bytes;
        for (uint64_t rest = request.bytes; rest > 0;) {
            size_t bytes = rest < TOCSIN_SCALE_PIECE_BYTES ? rest : TOCSIN_SCALE_PIECE_BYTES;
            transport->receive(from, desk->piece, bytes);
            tocsin_string_append(&desk->text, desk->piece, bytes);
            rest -= bytes;
        }
        desk_keep(desk, request.job, begin);
    }
    uint64_t job = desk_take(desk);
    transport->send(from, &job, sizeof job);
    return job != NO_JOB;
}

static void serve_all(job_desk *desk)
{
    for (int active = desk->scale->size - 1; active > 0;) {
        int from = desk->scale->transport->wait();
        pthread_mutex_lock(&desk->mutex);
        bool busy = serve(desk, from);
        pthread_mutex_unlock(&desk->mutex);
        if (!busy)
            --active;
    }
}

/* The second thread blocks all signals: they belong to the program's own. */
static int start_thread(pthread_t *thread, job_desk *desk)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int result = tocsin_fault_hit(TOCSIN_FAULT_IO)
                     ? EAGAIN
                     : pthread_create(thread, NULL, work_at_desk, desk);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return result;
}

static void run_desk(job_desk *desk)
{
    if (!desk->scale->transport) {
        work_at_desk(desk);
        return;
    }
    pthread_t thread;
    int failure = start_thread(&thread, desk);
    if (failure) {
        /* Nobody has a job yet: the others hear that there is none. */
        errno = failure;
        tocsin_error error;
        tocsin_status status = tocsin_error_system(&error, "start a thread", NULL);
        desk_fail(desk, 0, status, &error);
    }
    serve_all(desk);
    if (!failure)
        pthread_join(thread, NULL);
}

/* ---- results ------------------------------------------------------------------------------- */

static tocsin_scale_results *desk_results(job_desk *desk, size_t count)
{
    tocsin_scale_results *results = tocsin_zalloc(1, sizeof *results);
    if (!results)
        return NULL;
    *results = (tocsin_scale_results){
        .count = count, .bytes = desk->text.bytes, .places = desk->places, .text = desk->text.text};
    desk->places = NULL;
    desk->text = (tocsin_string){0};
    return results;
}

static tocsin_status finish_desk(job_desk *desk, size_t count, tocsin_scale_results **results,
                                 tocsin_error *error)
{
    if (desk->status != TOCSIN_OK) {
        if (error) {
            *error = desk->error;
            error->code = desk->status;
        }
        return desk->status;
    }
    *results = desk_results(desk, count);
    return *results ? TOCSIN_OK : tocsin_error_memory(error);
}

tocsin_status tocsin_scale_run(tocsin_scale *scale, size_t count, tocsin_scale_job *job,
                               void *context, tocsin_scale_results **results, tocsin_error *error)
{
    assert(job && results);
    *results = NULL;
    job_desk desk = {.scale = scale, .job = job, .context = context};
    pthread_mutex_init(&desk.mutex, NULL); /* default attributes: cannot fail on Linux */
    tocsin_status status = scale->rank == 0 ? desk_open(&desk, count, error) : TOCSIN_OK;
    status = tocsin_scale_meet(scale, TOCSIN_SCALE_RUN, (int64_t)count, status, error);
    if (status == TOCSIN_OK) {
        if (scale->rank == 0) {
            run_desk(&desk);
            status = finish_desk(&desk, count, results, error);
        } else {
            work_for_desk(scale, job, context);
        }
        status = tocsin_scale_meet(scale, TOCSIN_SCALE_RUN, (int64_t)count, status, error);
    }
    desk_close(&desk);
    if (status != TOCSIN_OK) {
        tocsin_scale_results_free(*results);
        *results = NULL;
    }
    return status;
}

static tocsin_status make_results(const uint64_t sizes[2], tocsin_scale_results **results,
                                  tocsin_error *error)
{
    tocsin_scale_results *made = tocsin_zalloc(1, sizeof *made);
    if (!made)
        return tocsin_error_memory(error);
    made->count = sizes[0];
    made->bytes = sizes[1];
    made->places = tocsin_zalloc((size_t)made->count, sizeof *made->places);
    made->text = made->places ? tocsin_alloc((size_t)made->bytes) : NULL;
    if (made->text) {
        *results = made;
        return TOCSIN_OK;
    }
    tocsin_scale_results_free(made);
    return tocsin_error_memory(error);
}

tocsin_status tocsin_scale_share(tocsin_scale *scale, tocsin_scale_results **results,
                                 tocsin_error *error)
{
    assert(results);
    assert(scale->rank == 0 || !*results);
    tocsin_status status = TOCSIN_OK;
    if (scale->rank == 0 && !*results)
        status = tocsin_error_set(error, TOCSIN_E_ARGUMENT, "rank 0 has no results to share");
    TOCSIN_TRY(tocsin_scale_meet(scale, TOCSIN_SCALE_SHARE, 0, status, error));
    if (!scale->transport)
        return TOCSIN_OK;
    uint64_t sizes[2] = {0};
    if (scale->rank == 0)
        memcpy(sizes, (uint64_t[]){(*results)->count, (*results)->bytes}, sizeof sizes);
    scale->transport->broadcast(0, sizes, sizeof sizes);
    if (scale->rank > 0)
        status = make_results(sizes, results, error);
    status = tocsin_scale_meet(scale, TOCSIN_SCALE_SHARE, 0, status, error);
    if (status == TOCSIN_OK) {
        scale->transport->broadcast(0, (*results)->places,
                                    (size_t)(*results)->count * sizeof *(*results)->places);
        scale->transport->broadcast(0, (*results)->text, (size_t)(*results)->bytes);
    } else if (scale->rank > 0) {
        tocsin_scale_results_free(*results);
        *results = NULL;
    }
    return status;
}
