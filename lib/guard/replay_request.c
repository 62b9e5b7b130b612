/* replay_request.c - which runs would still tell something.
 *
 * A batch whose runs differ without a confirmed result asks for one more rank at a time, at most
 * TOCSIN_GUARD_EXECUTORS_MAX, and from the third on for reruns by its owner; a convicted rank for
 * reruns of the first batch that convicts it; reruns that differ among themselves for reruns by two
 * witnesses, since then the operation may not repeat anywhere.
 * Data: what is asked for, and how much of it each rank got in this round and how often its runs
 * differed from another's: new ranks are chosen by that, near the owner first. Invariant: it
 * follows from the runs alone, so all ranks ask alike. Cost: O(runs log runs).
 */
#include "guard/guard.h"

#include <stdlib.h>

#define CANDIDATES_MAX 64 /* ranks that are looked at to choose one */

typedef struct request_list {
    batch_table table;
    uint32_t rank_count;
    uint32_t *suspicion; /* per rank: open batches it computed, and batches that convict it */
    uint32_t *load;      /* per rank: requests of this round */
    bool *rerun;         /* per rank: convicted, reruns asked for or made */
    TOCSIN_VEC(tocsin_guard_run) requests;
} request_list;

static bool add_request(request_list *list, uint32_t owner, uint32_t executor, uint32_t attempt)
{
    ++list->load[executor];
    return TOCSIN_VEC_PUSH(
        &list->requests,
        (tocsin_guard_run){.owner = owner, .executor = executor, .attempt = attempt});
}

/* Attempts 1 .. TOCSIN_GUARD_RERUNS that are not there. */
static bool add_reruns(request_list *list, const replay_batch *batch,
                       const batch_executor *executor)
{
    for (uint32_t attempt = 1; attempt <= TOCSIN_GUARD_RERUNS; ++attempt) {
        bool there = false;
        for (uint32_t r = executor->first; r < executor->end; ++r)
            there |= list->table.runs[r].attempt == attempt;
        if (!there && !add_request(list, batch->owner, executor->rank, attempt))
            return false;
    }
    return true;
}

static void count_suspicion(request_list *list)
{
    for (size_t b = 0; b < list->table.batches.count; ++b) {
        const replay_batch *batch = &list->table.batches.items[b];
        for (uint32_t e = batch->first; e < batch->end; ++e) {
            const batch_executor *executor = &list->table.executors.items[e];
            list->suspicion[executor->rank] +=
                batch->state == BATCH_OPEN || batch_convicts(batch, executor);
        }
    }
}

static bool has_run(const request_list *list, const replay_batch *batch, uint32_t rank)
{
    for (uint32_t e = batch->first; e < batch->end; ++e) {
        if (list->table.executors.items[e].rank == rank)
            return true;
    }
    return false;
}

/* One that has not computed the batch: of least suspicion, then load, then distance. */
static bool add_new_executor(request_list *list, const replay_batch *batch)
{
    uint32_t best = UINT32_MAX, looked_at = 0;
    for (uint32_t step = 1; step < list->rank_count && looked_at < CANDIDATES_MAX; ++step) {
        uint32_t rank = (batch->owner + step) % list->rank_count;
        if (has_run(list, batch, rank))
            continue;
        ++looked_at;
        if (best == UINT32_MAX || list->suspicion[rank] < list->suspicion[best] ||
            (list->suspicion[rank] == list->suspicion[best] && list->load[rank] < list->load[best]))
            best = rank;
    }
    return best == UINT32_MAX || add_request(list, batch->owner, best, 0);
}

static bool ask_open(request_list *list, const replay_batch *batch)
{
    uint32_t executors = batch->end - batch->first;
    uint32_t most = list->rank_count < TOCSIN_GUARD_EXECUTORS_MAX ? list->rank_count
                                                                  : TOCSIN_GUARD_EXECUTORS_MAX;
    if (executors < most && !add_new_executor(list, batch))
        return false;
    for (uint32_t e = batch->first; e < batch->end && executors >= (most < 3 ? most : 3); ++e) {
        const batch_executor *executor = &list->table.executors.items[e];
        if (executor->rank == batch->owner && !add_reruns(list, batch, executor))
            return false;
    }
    return true;
}

/* Reruns by two ranks that have the confirmed result. */
static bool ask_witnesses(request_list *list, const replay_batch *batch)
{
    uint32_t asked = 0;
    for (uint32_t e = batch->first; e < batch->end && asked < 2; ++e) {
        const batch_executor *executor = &list->table.executors.items[e];
        if (executor->wrong > 0)
            continue;
        ++asked;
        if (!add_reruns(list, batch, executor))
            return false;
    }
    return true;
}

static bool ask_convicted(request_list *list, const replay_batch *batch)
{
    bool unsteady = false;
    for (uint32_t e = batch->first; e < batch->end; ++e) {
        const batch_executor *executor = &list->table.executors.items[e];
        if (!batch_convicts(batch, executor))
            continue;
        uint32_t reruns = executor->end - executor->first - 1;
        if (!list->rerun[executor->rank] && !add_reruns(list, batch, executor))
            return false;
        list->rerun[executor->rank] = true;
        if (reruns < 2)
            continue;
        const tocsin_guard_run *runs = &list->table.runs[executor->first];
        for (uint32_t r = 2; r <= reruns; ++r)
            unsteady |= !digest_equal(&runs[1].result, &runs[r].result);
    }
    return !unsteady || ask_witnesses(list, batch);
}

static bool ask_all(request_list *list)
{
    list->suspicion = tocsin_zalloc(list->rank_count, sizeof *list->suspicion);
    list->load = tocsin_zalloc(list->rank_count, sizeof *list->load);
    list->rerun = tocsin_zalloc(list->rank_count, sizeof *list->rerun);
    if (!list->suspicion || !list->load || !list->rerun)
        return false;
    if (tocsin_batches_do_not_repeat(&list->table, list->rank_count))
        return true;
    count_suspicion(list);
    for (size_t b = 0; b < list->table.batches.count; ++b) {
        const replay_batch *batch = &list->table.batches.items[b];
        if (batch->state == BATCH_OPEN && !ask_open(list, batch))
            return false;
        if (batch->state == BATCH_CONVICTED && !ask_convicted(list, batch))
            return false;
    }
    if (list->requests.count)
        qsort(list->requests.items, list->requests.count, sizeof *list->requests.items,
              tocsin_runs_compare);
    return true;
}

tocsin_status tocsin_guard_replay_requests(const tocsin_guard_replay *replay,
                                           tocsin_guard_run **requests, size_t *count,
                                           tocsin_error *error)
{
    request_list list = {.rank_count = replay->rank_count};
    *requests = NULL;
    *count = 0;
    tocsin_status status = tocsin_batches_read(replay, &list.table, error);
    if (status == TOCSIN_OK && !ask_all(&list))
        status = tocsin_error_memory(error);
    tocsin_batches_free(&list.table);
    tocsin_free(list.suspicion);
    tocsin_free(list.load);
    tocsin_free(list.rerun);
    if (status != TOCSIN_OK) {
        TOCSIN_VEC_FREE(&list.requests);
        return status;
    }
    *requests = list.requests.items;
    *count = list.requests.count;
    return TOCSIN_OK;
}

void tocsin_guard_requests_free(tocsin_guard_run *requests)
{
    tocsin_free(requests);
}
