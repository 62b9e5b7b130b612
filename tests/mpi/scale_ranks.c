/* scale_ranks.c MODE [FOLDER] - lib/scale as a command uses it, to be started by mpirun.
 *
 * Each rank checks what it sees and counts what is wrong; the exit code is 1 if any rank saw
 * something wrong. Rank 0 prints what must be equal for every number of ranks.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <tocsin/scale.h>
#include <unistd.h>

#include "base/base.h"

typedef struct rank_view {
    tocsin_scale *scale;
    const char *folder;
    int rank;
    int last; /* rank */
    int wrong;
} rank_view;

#define EXPECT(world, condition)                                                                   \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %d, line %d: not so: %s\n", (world)->rank, __LINE__,             \
                    #condition);                                                                   \
            ++(world)->wrong;                                                                      \
        }                                                                                          \
    } while (0)

/* Results differ in length, from none to more than a piece (1 MiB). */
static size_t result_bytes(size_t index)
{
    return index % 97 == 96 ? ((size_t)3 << 20) + 5 : index * 37 % 211;
}

static uint8_t result_byte(size_t index, size_t at)
{
    return (uint8_t)tocsin_mix64(index * 1000003 + at);
}

static tocsin_status write_result(void *context, size_t index, tocsin_scale_output *output,
                                  tocsin_error *error)
{
    (void)context;
    size_t bytes = result_bytes(index);
    char *result = tocsin_alloc(bytes);
    if (!result)
        return tocsin_error_memory(error);
    for (size_t at = 0; at < bytes; ++at)
        result[at] = (char)result_byte(index, at);
    tocsin_scale_write(output, result, bytes / 2);
    tocsin_scale_write(output, result + bytes / 2, bytes - bytes / 2);
    tocsin_free(result);
    return TOCSIN_OK;
}

/* The hash of all results; they are what write_result writes. */
static uint64_t check_results(rank_view *world, const tocsin_scale_results *results, size_t count)
{
    uint64_t hash = 0;
    for (size_t index = 0; index < count; ++index) {
        size_t bytes;
        const char *result = tocsin_scale_result(results, index, &bytes);
        EXPECT(world, bytes == result_bytes(index));
        size_t same = 0;
        while (same < bytes && (uint8_t)result[same] == result_byte(index, same))
            ++same;
        EXPECT(world, same == bytes);
        hash = tocsin_hash64(result, bytes, hash);
    }
    return hash;
}

/* ---- modes --------------------------------------------------------------------------------- */

static void mode_work(rank_view *world)
{
    tocsin_error error;
    static const size_t counts[] = {0, 1, 3, 500};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(counts); ++i) {
        tocsin_scale_results *results;
        tocsin_status status =
            tocsin_scale_run(world->scale, counts[i], write_result, NULL, &results, &error);
        EXPECT(world, status == TOCSIN_OK);
        EXPECT(world, (results != NULL) == (world->rank == 0));
        status = tocsin_scale_share(world->scale, &results, &error);
        EXPECT(world, status == TOCSIN_OK && results);
        uint64_t hash = check_results(world, results, counts[i]);
        if (world->rank == 0)
            printf("%zu jobs: %016llx\n", counts[i], (unsigned long long)hash);
        tocsin_scale_results_free(results);
    }
    tocsin_scale_results *none = NULL;
    EXPECT(world, tocsin_scale_share(world->scale, &none, &error) == TOCSIN_E_ARGUMENT);
}

static void mode_broadcast(rank_view *world)
{
    static const size_t sizes[] = {0, 1, 1000, ((size_t)2 << 24) + 7}; /* over two MPI messages */
    for (size_t i = 0; i < TOCSIN_COUNT_OF(sizes); ++i) {
        char *bytes = world->rank == 0 ? malloc(sizes[i] + 1) : NULL;
        for (size_t at = 0; bytes && at < sizes[i]; ++at)
            bytes[at] = (char)result_byte(i, at);
        char *copy;
        size_t count;
        tocsin_status status =
            tocsin_scale_broadcast(world->scale, bytes, bytes ? sizes[i] : 0, &copy, &count, NULL);
        EXPECT(world, status == TOCSIN_OK && count == sizes[i] && copy[count] == 0);
        size_t same = 0;
        while (same < count && (uint8_t)copy[same] == result_byte(i, same))
            ++same;
        EXPECT(world, same == sizes[i]);
        tocsin_scale_free(copy);
        free(bytes);
    }
    char *copy;
    size_t count;
    tocsin_error error;
    tocsin_status status = tocsin_scale_broadcast(
        world->scale, "", TOCSIN_SCALE_TOTAL_BYTES_MAX + 1, &copy, &count, &error);
    EXPECT(world, status == TOCSIN_E_LIMIT && !copy && strstr(error.message, "at most"));
}

static void touch(const char *folder, size_t index)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%zu", folder, index);
    close(open(path, O_CREAT | O_WRONLY, 0600));
}

static bool touched(const char *folder, size_t index)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%zu", folder, index);
    return access(path, F_OK) == 0;
}

/* Ends only when as many jobs as there are ranks are under way at once. */
static tocsin_status await_all(void *context, size_t index, tocsin_scale_output *output,
                               tocsin_error *error)
{
    (void)output;
    (void)error;
    const rank_view *world = context;
    touch(world->folder, index);
    for (int other = 0; other <= world->last; ++other)
        while (!touched(world->folder, (size_t)other))
            usleep(1000);
    return TOCSIN_OK;
}

static void mode_together(rank_view *world)
{
    tocsin_scale_results *results;
    tocsin_status status =
        tocsin_scale_run(world->scale, (size_t)world->last + 1, await_all, world, &results, NULL);
    EXPECT(world, status == TOCSIN_OK);
    tocsin_scale_results_free(results);
}

/* 20 and 21 fail; where there are several ranks, 20 only after 21 has. */
static tocsin_status refuse(void *context, size_t index, tocsin_scale_output *output,
                            tocsin_error *error)
{
    const rank_view *world = context;
    tocsin_scale_write(output, "x", 1);
    if (index < 20)
        return TOCSIN_OK;
    while (index == 20 && world->last > 0 && !touched(world->folder, 21))
        usleep(1000);
    if (index == 20)
        usleep(50000); /* until rank 0 has heard of 21, in all likelihood */
    touch(world->folder, index);
    return tocsin_error_at(error, TOCSIN_E_CORRUPT, "somewhere", 7, "job %zu refuses", index);
}

static void mode_fail(rank_view *world)
{
    tocsin_scale_results *results;
    tocsin_error error;
    tocsin_status status = tocsin_scale_run(world->scale, 100000, refuse, world, &results, &error);
    EXPECT(world, status == TOCSIN_E_CORRUPT && error.code == TOCSIN_E_CORRUPT);
    EXPECT(world, strcmp(error.message, "job 20 refuses") == 0);
    EXPECT(world, strcmp(error.where, "somewhere") == 0 && error.offset == 7 && !results);
    EXPECT(world, !touched(world->folder, 21 + (size_t)world->last));
    /* The ranks still work together. */
    mode_work(world);
}

static void mode_limits(rank_view *world)
{
    tocsin_scale_results *results;
    tocsin_error error;
    tocsin_status status = tocsin_scale_run(world->scale, TOCSIN_SCALE_JOBS_MAX + 1, write_result,
                                            NULL, &results, &error);
    EXPECT(world, status == TOCSIN_E_LIMIT && !results && strstr(error.message, "at most"));
    if (world->last == 0)
        return;
    status = tocsin_scale_run(world->scale, 10 + (size_t)world->rank, write_result, NULL, &results,
                              &error);
    EXPECT(world, status == TOCSIN_E_ARGUMENT && !results);
    EXPECT(world, strncmp(error.message, "the ranks count 10 to ", 22) == 0);
    if (world->rank == 0)
        status = tocsin_scale_agree(world->scale, TOCSIN_OK, &error);
    else
        status = tocsin_scale_run(world->scale, 1, write_result, NULL, &results, &error);
    EXPECT(world, status == TOCSIN_E_INTERNAL);
}

static void mode_agree(rank_view *world)
{
    tocsin_error error;
    EXPECT(world, tocsin_scale_agree(world->scale, TOCSIN_OK, &error) == TOCSIN_OK);
    tocsin_status status = TOCSIN_OK;
    if (world->rank == world->last) /* every other rank is fine */
        status = tocsin_error_at(&error, TOCSIN_E_NOT_FOUND, "a.plan", -1, "cannot open");
    status = tocsin_scale_agree(world->scale, status, &error);
    EXPECT(world, status == TOCSIN_E_NOT_FOUND && error.code == TOCSIN_E_NOT_FOUND);
    char expected[64] = "cannot open";
    if (world->last > 0)
        snprintf(expected, sizeof expected, "rank %d: cannot open", world->last);
    EXPECT(world, strcmp(error.message, expected) == 0 && strcmp(error.where, "a.plan") == 0);
    /* All fail, some without a place for an error: the lowest rank's is everybody's. */
    status = tocsin_scale_agree(world->scale, TOCSIN_E_IO, NULL);
    EXPECT(world, status == TOCSIN_E_IO);
}

/* Every allocation that the last rank makes fails once: all ranks hear of it. */
static void mode_faults(rank_view *world)
{
    uint64_t nth = 1;
    for (char fired = 1; fired; ++nth) {
        if (world->rank == world->last)
            tocsin_fault_arm(TOCSIN_FAULT_MEMORY, nth);
        tocsin_error error = {0};
        tocsin_scale_results *results;
        char *copy = NULL;
        size_t count = 0;
        tocsin_status status =
            tocsin_scale_run(world->scale, 40, write_result, NULL, &results, &error);
        if (status == TOCSIN_OK)
            status = tocsin_scale_share(world->scale, &results, &error);
        if (status == TOCSIN_OK)
            status = tocsin_scale_broadcast(world->scale, "text", 4, &copy, &count, &error);
        tocsin_scale_free(copy);
        tocsin_scale_results_free(results);
        fired = world->rank == world->last && tocsin_fault_disarm(TOCSIN_FAULT_MEMORY);
        tocsin_status told =
            tocsin_scale_agree(world->scale, fired ? TOCSIN_E_MEMORY : TOCSIN_OK, NULL);
        EXPECT(world, status == told);
        EXPECT(world, status == TOCSIN_OK || strstr(error.message, "out of memory"));
        fired = told != TOCSIN_OK;
    }
    EXPECT(world, nth > 3);
}

/* Rank 0 cannot start its own thread. */
static void mode_thread(rank_view *world)
{
    tocsin_scale_results *results;
    tocsin_error error = {0};
    if (world->rank == 0)
        tocsin_fault_arm(TOCSIN_FAULT_IO, 1);
    tocsin_status status = tocsin_scale_run(world->scale, 40, write_result, NULL, &results, &error);
    if (world->rank == 0)
        EXPECT(world, tocsin_fault_disarm(TOCSIN_FAULT_IO) == (world->last > 0));
    EXPECT(world, (status == TOCSIN_E_IO) == (world->last > 0));
    EXPECT(world, status == TOCSIN_OK || strstr(error.message, "start a thread"));
    tocsin_scale_results_free(results);
}

/* The last rank leaves while the others work; they are told. */
static void mode_leave(rank_view *world)
{
    if (world->rank == world->last)
        return;
    tocsin_scale_results *results;
    tocsin_error error;
    char expected[64];
    snprintf(expected, sizeof expected, "rank %d ended before the work was done", world->last);
    for (int again = 0; again < 2; ++again) {
        tocsin_status status =
            tocsin_scale_run(world->scale, 40, write_result, NULL, &results, &error);
        EXPECT(world, status == TOCSIN_E_STATE && strcmp(error.message, expected) == 0);
    }
}

/* The rank that gets job 3 dies of it. */
static tocsin_status die(void *context, size_t index, tocsin_scale_output *output,
                         tocsin_error *error)
{
    (void)output;
    (void)error;
    const char *how = context;
    if (index != 3)
        usleep(1000);
    else if (strcmp(how, "killed") == 0)
        kill(getpid(), SIGKILL);
    else
        _exit(strcmp(how, "exit") == 0 ? 0 : 7);
    return TOCSIN_OK;
}

static void mode_die(rank_view *world, const char *how)
{
    tocsin_scale_results *results;
    tocsin_error error;
    char context[16];
    snprintf(context, sizeof context, "%s", how);
    if (tocsin_scale_run(world->scale, 1000, die, context, &results, &error) == TOCSIN_OK)
        fprintf(stderr, "rank %d outlived job 3\n", world->rank);
}

/* Says that it is there, and works until it is interrupted. */
static void mode_forever(rank_view *world)
{
    touch(world->folder, (size_t)world->rank);
    if (world->rank == world->last)
        for (;;)
            pause();
    tocsin_scale_results *results;
    if (tocsin_scale_run(world->scale, 1, write_result, NULL, &results, NULL) == TOCSIN_OK)
        fprintf(stderr, "rank %d did not wait\n", world->rank);
}

static int run_mode(rank_view *world, const char *mode)
{
    static const struct {
        const char *name;
        void (*run)(struct rank_view *world);
    } modes[] = {{"work", mode_work},         {"broadcast", mode_broadcast},
                 {"together", mode_together}, {"fail", mode_fail},
                 {"limits", mode_limits},     {"agree", mode_agree},
                 {"faults", mode_faults},     {"thread", mode_thread},
                 {"leave", mode_leave},       {"forever", mode_forever}};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(modes); ++i) {
        if (strcmp(modes[i].name, mode) == 0) {
            modes[i].run(world);
            return world->wrong > 0;
        }
    }
    if (strncmp(mode, "codes-", 6) == 0) /* codes-XY: rank 0 ends with X, the last with Y */
        return world->rank == 0 ? mode[6] - '0' : world->rank == world->last ? mode[7] - '0' : 0;
    mode_die(world, mode);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fputs("scale_ranks MODE [FOLDER]\n", stderr);
        return 2;
    }
    rank_view world = {.folder = argc > 2 ? argv[2] : "."};
    tocsin_error error;
    if (tocsin_scale_begin(&world.scale, &error) != TOCSIN_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 2;
    }
    world.rank = tocsin_scale_rank(world.scale);
    world.last = tocsin_scale_size(world.scale) - 1;
    return tocsin_scale_end(world.scale, run_mode(&world, argv[1]));
}
