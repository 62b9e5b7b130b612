/* replay_batches.c - the runs of a replay by batch, and what each batch shows.
 *
 * Data: the runs sorted by owner, executor, attempt; executors are slices of them, batches slices
 * of the executors. A result is confirmed when two *steady* ranks have it, ranks that got it every
 * time they computed the batch. Invariant: a batch with two confirmed results, or none, convicts
 * nobody. Cost: O(runs log runs), and the square of a batch's runs, which are few.
 */
#include "guard/guard.h"

#include <stdlib.h>

int tocsin_runs_compare(const void *a, const void *b)
{
    const tocsin_guard_run *left = a, *right = b;
    if (left->owner != right->owner)
        return left->owner < right->owner ? -1 : 1;
    if (left->executor != right->executor)
        return left->executor < right->executor ? -1 : 1;
    return (left->attempt > right->attempt) - (left->attempt < right->attempt);
}

static tocsin_status check_runs(const batch_table *table, uint32_t rank_count, tocsin_error *error)
{
    for (size_t r = 0; r < table->run_count; ++r) {
        const tocsin_guard_run *run = &table->runs[r];
        if (run->owner >= rank_count || run->executor >= rank_count)
            return tocsin_error_set(error, TOCSIN_E_ARGUMENT,
                                    "a run of the batch of rank %u by rank %u, of %u ranks",
                                    run->owner, run->executor, rank_count);
        if (r > 0 && tocsin_runs_compare(run - 1, run) == 0)
            return tocsin_error_set(error, TOCSIN_E_ARGUMENT,
                                    "attempt %u at the batch of rank %u by rank %u twice",
                                    run->attempt, run->owner, run->executor);
    }
    return TOCSIN_OK;
}

/* ---- slices -------------------------------------------------------------------------------- */

static bool add_executor(batch_table *table, size_t *run)
{
    batch_executor executor = {
        .rank = table->runs[*run].executor, .first = (uint32_t)*run, .steady = true};
    const tocsin_guard_run *first = &table->runs[*run];
    for (; *run < table->run_count; ++*run) {
        const tocsin_guard_run *next = &table->runs[*run];
        if (next->owner != first->owner || next->executor != first->executor)
            break;
        executor.steady &= digest_equal(&next->result, &first->result);
    }
    executor.end = (uint32_t)*run;
    return TOCSIN_VEC_PUSH(&table->executors, executor);
}

static bool has_own_result(const batch_table *table, const replay_batch *batch)
{
    for (uint32_t e = batch->first; e < batch->end; ++e) {
        const batch_executor *executor = &table->executors.items[e];
        if (executor->rank == batch->owner)
            return table->runs[executor->first].attempt == 0;
    }
    return false;
}

static tocsin_status add_batch(batch_table *table, size_t *run, tocsin_error *error)
{
    size_t begin = *run;
    replay_batch batch = {.owner = table->runs[begin].owner,
                          .first = (uint32_t)table->executors.count};
    while (*run < table->run_count && table->runs[*run].owner == batch.owner) {
        batch.nonfinite |= (table->runs[*run].flags & TOCSIN_GUARD_RUN_NONFINITE) != 0;
        if (!add_executor(table, run))
            return tocsin_error_memory(error);
    }
    batch.end = (uint32_t)table->executors.count;
    if (*run - begin > BATCH_RUNS_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "more than %d runs of the batch of rank %u",
                                BATCH_RUNS_MAX, batch.owner);
    if (!has_own_result(table, &batch))
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT,
                                "no first run of the batch of rank %u by itself", batch.owner);
    return TOCSIN_VEC_PUSH(&table->batches, batch) ? TOCSIN_OK : tocsin_error_memory(error);
}

/* ---- what a batch shows -------------------------------------------------------------------- */

static const tocsin_digest *first_result(const batch_table *table, uint32_t executor)
{
    return &table->runs[table->executors.items[executor].first].result;
}

/* The steady executors that have the result of this one, itself included. */
static uint32_t count_alike(const batch_table *table, const replay_batch *batch, uint32_t executor)
{
    uint32_t alike = 0;
    for (uint32_t e = batch->first; e < batch->end; ++e) {
        alike += table->executors.items[e].steady &&
                 digest_equal(first_result(table, e), first_result(table, executor));
    }
    return alike;
}

static bool all_agree(const batch_table *table, const replay_batch *batch)
{
    for (uint32_t e = batch->first; e < batch->end; ++e) {
        if (!table->executors.items[e].steady ||
            !digest_equal(first_result(table, e), first_result(table, batch->first)))
            return false;
    }
    return true;
}

static void count_right(batch_table *table, const replay_batch *batch)
{
    for (uint32_t e = batch->first; e < batch->end; ++e) {
        batch_executor *executor = &table->executors.items[e];
        for (uint32_t r = executor->first; r < executor->end; ++r) {
            bool right = digest_equal(&table->runs[r].result, &batch->confirmed);
            executor->right += right;
            executor->wrong += !right;
        }
    }
}

static batch_state judge_batch(batch_table *table, replay_batch *batch)
{
    bool confirmed = false;
    if (all_agree(table, batch))
        return BATCH_AGREES;
    for (uint32_t e = batch->first; e < batch->end; ++e) {
        if (!table->executors.items[e].steady || count_alike(table, batch, e) < 2)
            continue;
        if (confirmed && !digest_equal(first_result(table, e), &batch->confirmed))
            return BATCH_OPEN; /* two results are confirmed */
        batch->confirmed = *first_result(table, e);
        confirmed = true;
    }
    if (!confirmed)
        return BATCH_OPEN;
    count_right(table, batch);
    return BATCH_CONVICTED;
}

tocsin_status tocsin_batches_read(const tocsin_guard_replay *replay, batch_table *table,
                                  tocsin_error *error)
{
    *table = (batch_table){.run_count = replay->run_count};
    if (replay->run_count > TOCSIN_GUARD_RUNS_MAX || replay->rank_count > TOCSIN_GUARD_RANKS_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "more than %u runs or %u ranks",
                                TOCSIN_GUARD_RUNS_MAX, TOCSIN_GUARD_RANKS_MAX);
    table->runs = tocsin_zalloc(replay->run_count, sizeof *table->runs);
    if (!table->runs)
        return tocsin_error_memory(error);
    if (replay->run_count)
        memcpy(table->runs, replay->runs, replay->run_count * sizeof *table->runs);
    qsort(table->runs, table->run_count, sizeof *table->runs, tocsin_runs_compare);
    TOCSIN_TRY(check_runs(table, replay->rank_count, error));
    for (size_t run = 0; run < table->run_count;)
        TOCSIN_TRY(add_batch(table, &run, error));
    for (size_t b = 0; b < table->batches.count; ++b) {
        replay_batch *batch = &table->batches.items[b];
        batch->state = judge_batch(table, batch);
        table->open += batch->state == BATCH_OPEN;
        table->convicted += batch->state == BATCH_CONVICTED;
    }
    return TOCSIN_OK;
}

void tocsin_batches_free(batch_table *table)
{
    tocsin_free(table->runs);
    TOCSIN_VEC_FREE(&table->batches);
    TOCSIN_VEC_FREE(&table->executors);
}

bool tocsin_batches_do_not_repeat(const batch_table *table, uint32_t rank_count)
{
    size_t unsteady = 0;
    for (size_t b = 0; b < table->batches.count; ++b) {
        const replay_batch *batch = &table->batches.items[b];
        for (uint32_t e = batch->first; e < batch->end && batch->state == BATCH_OPEN; ++e) {
            const batch_executor *executor = &table->executors.items[e];
            unsteady += executor->rank == batch->owner && !executor->steady;
        }
    }
    return 2 * unsteady > rank_count;
}
