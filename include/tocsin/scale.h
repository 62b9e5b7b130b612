/* tocsin/scale.h - one job of work shared by the processes that `mpirun -n N` started.
 *
 *     tocsin_scale *scale;
 *     tocsin_status status = tocsin_scale_begin(&scale, &error);
 *     if (status == TOCSIN_OK)
 *         status = tocsin_scale_run(scale, count, job, context, &results, &error);
 *     ... rank 0 uses `results`, and it alone prints ...
 *     return tocsin_scale_end(scale, exit_code);
 *
 * Every rank makes the same calls in the same order. Each call is a meeting: when one rank fails
 * in it, or has left (tocsin_scale_end) instead of coming, all ranks get an error and none waits
 * for ever. What a rank does alone between two calls, and can fail, ends in tocsin_scale_agree.
 * Without a launcher there is one rank, and MPI is neither loaded nor needed (docs/scale.md).
 *
 * A failure inside MPI ends all processes, as MPI does by default: none of them could go on.
 *
 * Threads: a scale belongs to the thread that began it. All ranks run the same binary.
 */
#ifndef TOCSIN_SCALE_H
#define TOCSIN_SCALE_H

#include <stddef.h>
#include <tocsin/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TOCSIN_SCALE_JOBS_MAX         ((size_t)1 << 24) /* jobs of one run */
#define TOCSIN_SCALE_RESULT_BYTES_MAX ((size_t)1 << 30) /* of one job */
#define TOCSIN_SCALE_TOTAL_BYTES_MAX  ((size_t)1 << 36) /* of all jobs of a run, or broadcast */

typedef struct tocsin_scale tocsin_scale;
typedef struct tocsin_scale_output tocsin_scale_output;   /* the result that a job writes */
typedef struct tocsin_scale_results tocsin_scale_results; /* of all jobs of a run */

/* Join the other ranks, if a launcher started this process as one of several; else, and with
 * TOCSIN_MPI=off in the environment, be the only rank. Once in a process.
 * Errors: E_UNSUPPORTED (several processes, but this build has no MPI or that of another launcher),
 * E_ARGUMENT (TOCSIN_MPI is neither "off" nor "auto"), E_MEMORY. *scale is then NULL. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_scale_begin(tocsin_scale **scale,
                                                              tocsin_error *error);
/* One rank, whatever started this process. Errors: E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_scale_alone(tocsin_scale **scale,
                                                              tocsin_error *error);
TOCSIN_API int tocsin_scale_rank(const tocsin_scale *scale); /* 0 .. size - 1 */
TOCSIN_API int tocsin_scale_size(const tocsin_scale *scale);

/* Leave, and free `scale`; waits for all others to leave. Returns the exit code of every rank: that
 * of rank 0, or if it is 0 the highest of any rank. NULL: returns `exit_code`.
 * Flush what was printed before: a launcher may kill the others once one exits with other than 0.
 */
TOCSIN_API int tocsin_scale_end(tocsin_scale *scale, int exit_code);

/* Each rank tells how it fared. Returns on every rank the status of the lowest rank that failed,
 * with its error (named "rank N: ..." unless rank 0 failed); OK if all are. `error` is read when
 * `status` is not OK.
 * Further errors: E_STATE (a rank has left). Every call below has them too. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_scale_agree(tocsin_scale *scale,
                                                              tocsin_status status,
                                                              tocsin_error *error);

/* Every rank, 0 included, gets a copy of what rank 0 passes (the others' `bytes` and `count` are
 * not looked at), followed by a 0. Free with tocsin_scale_free.
 * Errors: E_LIMIT, E_MEMORY on any rank; *copy is then NULL. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_scale_broadcast(tocsin_scale *scale,
                                                                  const void *bytes, size_t count,
                                                                  char **copy, size_t *copy_bytes,
                                                                  tocsin_error *error);
TOCSIN_API void tocsin_scale_free(char *copy);

/* Do the job `index`, on whichever rank and thread it falls; what it writes depends on the index
 * alone. It makes no call of this header but tocsin_scale_write. */
typedef tocsin_status tocsin_scale_job(void *context, size_t index, tocsin_scale_output *output,
                                       tocsin_error *error);

/* Append to the result. A failure sticks and fails the job when it returns. */
TOCSIN_API void tocsin_scale_write(tocsin_scale_output *output, const void *bytes, size_t count);

/* Do the jobs 0 .. count - 1, each once, each rank the next one as soon as it is free; `count` is
 * the same on all ranks. Rank 0 gets the results, other ranks NULL. Jobs start in ascending order
 * and none after a failure, and every rank's error is that of the lowest job that failed: results
 * and errors do not depend on the number of ranks nor on timing.
 * Handing out a job costs a message; jobs should take milliseconds or more.
 * Errors: a job's, E_ARGUMENT (the ranks' counts differ), E_LIMIT, E_MEMORY, E_IO (no thread). */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_scale_run(tocsin_scale *scale, size_t count,
                                                            tocsin_scale_job *job, void *context,
                                                            tocsin_scale_results **results,
                                                            tocsin_error *error);

/* Give the results of rank 0 to every rank that has none (*results NULL).
 * Errors: E_ARGUMENT (rank 0 has none), E_MEMORY on any rank. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_scale_share(tocsin_scale *scale,
                                                              tocsin_scale_results **results,
                                                              tocsin_error *error);

/* What the job `index` wrote, and how much; never NULL. */
TOCSIN_API const char *tocsin_scale_result(const tocsin_scale_results *results, size_t index,
                                           size_t *bytes);
TOCSIN_API void tocsin_scale_results_free(tocsin_scale_results *results);

#ifdef __cplusplus
}
#endif
#endif
