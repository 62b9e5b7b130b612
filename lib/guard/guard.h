/* lib/guard/guard.h - layer 3: decisions about the evidence of guarded steps. Internal to it.
 *
 *   finding.c           a finding: its memory, its invariant, its JSON
 *   gradient_check.c    check 1: NaN and Inf in gradients
 *   vote.c              check 3: replicas that differ
 *   replay_batches.c    check 2: runs sorted by batch, and what each batch shows
 *   replay_request.c    which runs are still wanted
 *   replay_judge.c      the verdict on a replay
 *   vertex_cover.c      sets of ranks that would explain all mismatches
 *   comparison.c        a rank that differs from itself
 *   ledger.c            the file of findings
 *   ledger_report.c     the ledgers of all ranks put together
 *   calls.c, delivery.c, reduction.c, transfer_sum.c: collectives (tocsin/communication.h, calls.h)
 *   checkpoint_*.c      digests of a checkpoint (tocsin/gate.h, checkpoint_digests.h)
 *   gate.c              may a checkpoint be published
 */
#ifndef TOCSIN_GUARD_INTERNAL_H
#define TOCSIN_GUARD_INTERNAL_H

#include <base/base.h>
#include <tocsin/guard.h>

/* ---- finding.c ----------------------------------------------------------------------------- */

/* A finding as it is put together. Zero is empty; ended by _finish or _free. */
typedef struct finding_draft {
    tocsin_guard_finding content; /* its texts and arrays: borrowed until _finish copies them */
    TOCSIN_VEC(uint32_t) ranks;
    tocsin_string text;
    tocsin_string evidence;
    tocsin_json json; /* into evidence; the outer object is open */
} finding_draft;

void tocsin_draft_begin(finding_draft *draft, tocsin_guard_check check, tocsin_guard_moment moment,
                        size_t replicas);
/* Make the finding, and free the draft whether that succeeds or not. */
tocsin_status tocsin_draft_finish(finding_draft *draft, tocsin_guard_finding **finding,
                                  tocsin_error *error);
void tocsin_draft_free(finding_draft *draft);
/* "rank 3", "ranks 1, 2 and 7", the first few of many. */
void tocsin_draft_ranks_text(tocsin_string *text, const uint32_t *ranks, size_t count);
/* A member of the open object: a list of ranks, a digest as three numbers in hex. */
void tocsin_draft_put_ranks(tocsin_json *json, const char *key, const uint32_t *ranks,
                            size_t count);
void tocsin_draft_put_digest(tocsin_json *json, const char *key, tocsin_digest digest);
/* TRANSIENT, or PERSISTENT if one of the ranks was named before. */
tocsin_guard_cause tocsin_draft_cause(const finding_draft *draft, const uint32_t *named,
                                      size_t named_count);

/* ---- vertex_cover.c ------------------------------------------------------------------------ */

/* Two ranks of which at least one did wrong. */
typedef struct rank_pair {
    uint32_t a, b;
} rank_pair;

/* Sets of ranks, one after another in `ranks`; set i ends at ends.items[i]. Zero is empty. */
typedef struct cover_list {
    TOCSIN_VEC(uint32_t) ranks;
    TOCSIN_VEC(size_t) ends;
    bool cut; /* there may be more */
} cover_list;

/* Every set of ranks that contains one of each pair and would not without any one of its own, the
 * smallest first, at most TOCSIN_GUARD_COVERS_MAX. false: out of memory. */
bool tocsin_vertex_covers(const rank_pair *pairs, size_t count, cover_list *covers);
void tocsin_vertex_covers_free(cover_list *covers);

/* ---- replay_batches.c ---------------------------------------------------------------------- */

#define BATCH_RUNS_MAX 64 /* of one batch, by all ranks together */

/* Whose runs of a batch are all alike is steady. */
typedef struct batch_executor {
    uint32_t rank;
    uint32_t first, end;   /* its runs in `runs` */
    uint32_t right, wrong; /* runs with the confirmed result and without, if there is one */
    bool steady;
} batch_executor;

typedef enum batch_state {
    BATCH_AGREES,    /* all runs gave the same */
    BATCH_CONVICTED, /* one result is confirmed: two steady ranks have it; some rank had another */
    BATCH_OPEN       /* runs differ, and no result or several are confirmed */
} batch_state;

typedef struct replay_batch {
    uint32_t owner;
    uint32_t first, end; /* its executors in `executors` */
    batch_state state;
    tocsin_digest confirmed; /* CONVICTED */
    bool nonfinite;          /* some result is */
} replay_batch;

/* The runs of a replay in order. Zero is empty. */
typedef struct batch_table {
    tocsin_guard_run *runs; /* by owner, executor, attempt */
    size_t run_count;
    TOCSIN_VEC(replay_batch) batches; /* by owner */
    TOCSIN_VEC(batch_executor) executors;
    size_t open, convicted; /* batches of these states */
} batch_table;

/* Errors: those of tocsin_guard_replay_requests. Free it either way. */
tocsin_status tocsin_batches_read(const tocsin_guard_replay *replay, batch_table *table,
                                  tocsin_error *error);
void tocsin_batches_free(batch_table *table);
/* For qsort: by owner, executor, attempt. */
int tocsin_runs_compare(const void *a, const void *b);
/* Did an executor have another result than the confirmed one? */
static inline bool batch_convicts(const replay_batch *batch, const batch_executor *executor)
{
    return batch->state == BATCH_CONVICTED && executor->wrong > 0;
}
/* Are most batches open, and their owners not steady? */
bool tocsin_batches_do_not_repeat(const batch_table *table, uint32_t rank_count);

/* ---- ledger.c ------------------------------------------------------------------------------ */

typedef struct ledger_line {
    const char *path;
    uint64_t number; /* of the line in the file, from 1 */
    const char *json;
    size_t bytes;
    const tocsin_json_value *value; /* an object */
} ledger_line;

typedef tocsin_status ledger_visitor(void *context, const ledger_line *line, tocsin_error *error);

/* What was read, and what could not be. */
typedef struct ledger_summary {
    uint64_t lines;   /* visited */
    uint64_t damaged; /* complete lines that are no JSON objects: half written, then went on */
    uint64_t first_damaged; /* its number; 0: none */
    uint64_t torn_bytes;    /* of a last line that was never completed */
} ledger_summary;

/* Every line of a ledger, the header not among them. Errors: those of the visitor, E_NOT_FOUND,
 * E_IO, E_FORMAT and E_VERSION (the header), E_LIMIT (a long line), E_MEMORY. */
tocsin_status tocsin_ledger_read(const char *path, ledger_visitor *visit, void *context,
                                 ledger_summary *summary, tocsin_error *error);

static inline bool digest_equal(const tocsin_digest *a, const tocsin_digest *b)
{
    return a->sum == b->sum && a->exclusive == b->exclusive && a->polynomial == b->polynomial;
}

/* Their order is by members; it means nothing but is the same everywhere. */
static inline int digest_compare(const tocsin_digest *a, const tocsin_digest *b)
{
    if (a->sum != b->sum)
        return a->sum < b->sum ? -1 : 1;
    if (a->exclusive != b->exclusive)
        return a->exclusive < b->exclusive ? -1 : 1;
    return (a->polynomial > b->polynomial) - (a->polynomial < b->polynomial);
}

#endif
