/* replay_judge.c - check 2: what the runs of a replay say, and about whom.
 *
 * Who had another result than a confirmed one is convicted. That is right as long as healthy ranks
 * compute equal bits and no two faulty ones the same wrong result: of two ranks that agree, one is
 * healthy then or both would be wrong alike. What speaks against the first is looked at before
 * anybody is named: ranks nobody convicted that do not repeat themselves, and convictions of half
 * of the ranks or more. Mismatches that no convicted rank explains are pairs with a culprit each:
 * reported as the sets of ranks that would explain them all, and nobody is named for them.
 * Cost: O(runs log runs), and a bounded search for the sets.
 */
#include "guard/guard.h"

#include <stdlib.h>

#define EVIDENCE_BATCHES_MAX 16

typedef struct convicted_rank {
    uint32_t rank;
    uint32_t right, wrong; /* of its reruns of batches that convict it */
} convicted_rank;

typedef struct replay_state {
    const tocsin_guard_replay *replay;
    batch_table table;
    uint32_t *number; /* per rank: 1 + index in culprits; 0: not convicted */
    TOCSIN_VEC(convicted_rank) culprits;
    TOCSIN_VEC(rank_pair) pairs; /* that no culprit explains */
    cover_list covers;
    size_t nonfinite;   /* batches whose result is not finite, and confirmed by all */
    bool unrepeated;    /* an unexplained batch has a rank that does not repeat itself */
    size_t rerun_open;  /* unexplained batches whose owner computed again, always the same */
    size_t unexplained; /* open batches with a pair in pairs */
} replay_state;

static void state_free(replay_state *state)
{
    tocsin_batches_free(&state->table);
    tocsin_free(state->number);
    TOCSIN_VEC_FREE(&state->culprits);
    TOCSIN_VEC_FREE(&state->pairs);
    tocsin_vertex_covers_free(&state->covers);
}

/* ---- culprits ------------------------------------------------------------------------------ */

static bool convict(replay_state *state, const replay_batch *batch, const batch_executor *executor)
{
    uint32_t *number = &state->number[executor->rank];
    if (*number == 0) {
        if (!TOCSIN_VEC_PUSH(&state->culprits, (convicted_rank){.rank = executor->rank}))
            return false;
        *number = (uint32_t)state->culprits.count;
    }
    convicted_rank *culprit = &state->culprits.items[*number - 1];
    for (uint32_t r = executor->first; r < executor->end; ++r) {
        const tocsin_guard_run *run = &state->table.runs[r];
        bool right = digest_equal(&run->result, &batch->confirmed);
        culprit->right += run->attempt > 0 && right;
        culprit->wrong += run->attempt > 0 && !right;
    }
    return true;
}

static bool find_culprits(replay_state *state)
{
    for (size_t b = 0; b < state->table.batches.count; ++b) {
        const replay_batch *batch = &state->table.batches.items[b];
        for (uint32_t e = batch->first; e < batch->end; ++e) {
            const batch_executor *executor = &state->table.executors.items[e];
            if (batch_convicts(batch, executor) && !convict(state, batch, executor))
                return false;
        }
    }
    return true;
}

/* ---- what they do not explain -------------------------------------------------------------- */

/* The pairs of an open batch: ranks with unlike first results. */
static bool add_pairs(replay_state *state, const replay_batch *batch)
{
    const batch_executor *executors = state->table.executors.items;
    const tocsin_guard_run *runs = state->table.runs;
    bool unexplained = false, rerun = false;
    for (uint32_t a = batch->first; a < batch->end; ++a) {
        if (state->number[executors[a].rank])
            continue;
        state->unrepeated |= !executors[a].steady;
        unexplained |= !executors[a].steady;
        rerun |= executors[a].rank == batch->owner && executors[a].end - executors[a].first > 1;
        for (uint32_t b = a + 1; b < batch->end; ++b) {
            if (state->number[executors[b].rank] ||
                digest_equal(&runs[executors[a].first].result, &runs[executors[b].first].result))
                continue;
            rank_pair pair = {.a = executors[a].rank, .b = executors[b].rank};
            if (!TOCSIN_VEC_PUSH(&state->pairs, pair))
                return false;
            unexplained = true;
        }
    }
    state->unexplained += unexplained;
    state->rerun_open += unexplained && rerun;
    return true;
}

static bool find_pairs(replay_state *state)
{
    for (size_t b = 0; b < state->table.batches.count; ++b) {
        const replay_batch *batch = &state->table.batches.items[b];
        if (batch->state == BATCH_OPEN && !add_pairs(state, batch))
            return false;
        state->nonfinite +=
            batch->state == BATCH_AGREES && batch->nonfinite && batch->end - batch->first > 1;
    }
    return true;
}

/* ---- the verdict --------------------------------------------------------------------------- */

static tocsin_guard_cause decide(const replay_state *state)
{
    uint32_t ranks = state->replay->rank_count;
    if (state->table.open + state->table.convicted == 0)
        return 2 * state->nonfinite > ranks && ranks > 1 ? TOCSIN_GUARD_SOFTWARE
                                                         : TOCSIN_GUARD_DATA;
    if (state->unrepeated)
        return TOCSIN_GUARD_NONDETERMINISTIC;
    if (2 * state->culprits.count >= ranks && state->culprits.count)
        return TOCSIN_GUARD_SOFTWARE;
    for (size_t c = 0; c < state->culprits.count; ++c) {
        if (state->culprits.items[c].wrong > 0)
            return TOCSIN_GUARD_PERSISTENT;
    }
    if (state->culprits.count)
        return TOCSIN_GUARD_TRANSIENT;
    return ranks >= 3 && 2 * state->rerun_open > ranks ? TOCSIN_GUARD_SOFTWARE
                                                       : TOCSIN_GUARD_UNATTRIBUTABLE;
}

static void tell_covers(finding_draft *draft, const replay_state *state)
{
    const cover_list *covers = &state->covers;
    size_t begin = 0, shown = covers->ends.count < 4 ? covers->ends.count : 4;
    for (size_t c = 0; c < shown; ++c) {
        tocsin_string_append_text(&draft->text, c ? ", or " : ": ");
        tocsin_draft_ranks_text(&draft->text, covers->ranks.items + begin,
                                covers->ends.items[c] - begin);
        begin = covers->ends.items[c];
    }
    if (shown < covers->ends.count || covers->cut)
        tocsin_string_append_text(&draft->text, shown ? ", or others" : ": too many fit");
}

static void tell_named(finding_draft *draft, const replay_state *state)
{
    tocsin_draft_ranks_text(&draft->text, draft->ranks.items, draft->ranks.count);
    tocsin_string_append_text(&draft->text, " computed a batch to another result than two other "
                                            "ranks that agree");
    if (draft->content.cause == TOCSIN_GUARD_PERSISTENT) {
        tocsin_string_append_text(&draft->text, ", and did so again");
        return;
    }
    bool rerun = true;
    for (size_t c = 0; c < state->culprits.count; ++c)
        rerun &= state->culprits.items[c].right > 0;
    tocsin_string_append_text(&draft->text,
                              rerun ? ", and not when it was run again" : "; it was not run again");
}

static void tell(finding_draft *draft, const replay_state *state)
{
    size_t differ = state->table.open + state->table.convicted;
    tocsin_string *text = &draft->text;
    switch (draft->content.cause) {
    case TOCSIN_GUARD_DATA:
        tocsin_string_printf(text,
                             "%zu batches give NaN or Inf on every rank that computes them: "
                             "the data, or the program on it",
                             state->nonfinite);
        return;
    case TOCSIN_GUARD_NONDETERMINISTIC:
        tocsin_string_printf(text,
                             "%zu batches differ, also when the same rank computes them "
                             "again: an operation does not repeat",
                             differ);
        return;
    case TOCSIN_GUARD_SOFTWARE:
        if (differ == 0)
            tocsin_string_printf(text, "%zu batches give NaN or Inf on every rank: the program",
                                 state->nonfinite);
        else
            tocsin_string_printf(text,
                                 "%zu batches differ by who computes them, too many for "
                                 "faults: the replay is not given what the step had",
                                 differ);
        return;
    case TOCSIN_GUARD_TRANSIENT:
    case TOCSIN_GUARD_PERSISTENT:
        tell_named(draft, state);
        break;
    default:
        tocsin_string_printf(text,
                             "%zu batches differ by who computes them, and nobody is "
                             "convicted",
                             differ);
    }
    if (state->covers.ends.count || state->covers.cut) {
        tocsin_string_append_text(text, draft->ranks.count ? "; besides, one of these" : "");
        tell_covers(draft, state);
    }
    if (state->replay->rank_count < 3)
        tocsin_string_append_text(text, "; fewer than 3 ranks cannot tell who");
}

static void put_batch(tocsin_json *json, const replay_state *state, const replay_batch *batch)
{
    static const char *const states[] = {"agrees", "convicts", "open"};
    tocsin_json_begin_object(json);
    tocsin_json_put_unsigned(json, "owner", batch->owner);
    tocsin_json_put_text(json, "state", states[batch->state]);
    tocsin_json_key(json, "runs");
    tocsin_json_begin_array(json);
    for (uint32_t e = batch->first; e < batch->end; ++e) {
        const batch_executor *executor = &state->table.executors.items[e];
        for (uint32_t r = executor->first; r < executor->end; ++r) {
            tocsin_json_begin_object(json);
            tocsin_json_put_unsigned(json, "executor", executor->rank);
            tocsin_json_put_unsigned(json, "attempt", state->table.runs[r].attempt);
            tocsin_draft_put_digest(json, "result", state->table.runs[r].result);
            tocsin_json_end_object(json);
        }
    }
    tocsin_json_end_array(json);
    tocsin_json_end_object(json);
}

static void put_evidence(finding_draft *draft, const replay_state *state)
{
    tocsin_json *json = &draft->json;
    size_t told = 0;
    tocsin_json_put_unsigned(json, "batches", state->table.batches.count);
    tocsin_json_put_unsigned(json, "open", state->table.open);
    tocsin_json_put_unsigned(json, "convicting", state->table.convicted);
    tocsin_json_key(json, "convicted");
    tocsin_json_begin_array(json);
    for (size_t c = 0; c < state->culprits.count; ++c) {
        const convicted_rank *culprit = &state->culprits.items[c];
        tocsin_json_begin_object(json);
        tocsin_json_put_unsigned(json, "rank", culprit->rank);
        tocsin_json_put_unsigned(json, "reruns_right", culprit->right);
        tocsin_json_put_unsigned(json, "reruns_wrong", culprit->wrong);
        tocsin_json_end_object(json);
    }
    tocsin_json_end_array(json);
    tocsin_json_key(json, "runs_of");
    tocsin_json_begin_array(json);
    for (size_t b = 0; b < state->table.batches.count && told < EVIDENCE_BATCHES_MAX; ++b) {
        const replay_batch *batch = &state->table.batches.items[b];
        if (batch->state == BATCH_AGREES && !batch->nonfinite)
            continue;
        put_batch(json, state, batch);
        ++told;
    }
    tocsin_json_end_array(json);
}

static int compare_ranks(const void *a, const void *b)
{
    const uint32_t *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

static bool name_culprits(finding_draft *draft, const replay_state *state)
{
    for (size_t c = 0; c < state->culprits.count; ++c) {
        if (!TOCSIN_VEC_PUSH(&draft->ranks, state->culprits.items[c].rank))
            return false;
    }
    qsort(draft->ranks.items, draft->ranks.count, sizeof *draft->ranks.items, compare_ranks);
    return true;
}

static tocsin_status make_finding(replay_state *state, tocsin_guard_finding **finding,
                                  tocsin_error *error)
{
    finding_draft draft;
    bool done = true;
    tocsin_draft_begin(&draft, TOCSIN_GUARD_REPLAY, state->replay->moment,
                       state->replay->rank_count);
    draft.content.cause = decide(state);
    bool named = draft.content.cause == TOCSIN_GUARD_TRANSIENT ||
                 draft.content.cause == TOCSIN_GUARD_PERSISTENT;
    if (named)
        done = name_culprits(&draft, state);
    if (done && (named || draft.content.cause == TOCSIN_GUARD_UNATTRIBUTABLE))
        done = tocsin_vertex_covers(state->pairs.items, state->pairs.count, &state->covers);
    draft.content.cover_ranks = state->covers.ranks.items;
    draft.content.cover_ends = state->covers.ends.items;
    draft.content.cover_count = state->covers.ends.count;
    draft.content.covers_cut = state->covers.cut;
    if (!done)
        draft.text.status = TOCSIN_E_MEMORY;
    put_evidence(&draft, state);
    tell(&draft, state);
    return tocsin_draft_finish(&draft, finding, error);
}

tocsin_status tocsin_guard_judge_replay(const tocsin_guard_replay *replay,
                                        tocsin_guard_finding **finding, tocsin_error *error)
{
    replay_state state = {.replay = replay};
    *finding = NULL;
    tocsin_status status = tocsin_batches_read(replay, &state.table, error);
    if (status == TOCSIN_OK) {
        state.number = tocsin_zalloc(replay->rank_count, sizeof *state.number);
        if (!state.number || !find_culprits(&state) || !find_pairs(&state))
            status = tocsin_error_memory(error);
    }
    if (status == TOCSIN_OK && state.table.open + state.table.convicted + state.nonfinite > 0)
        status = make_finding(&state, finding, error);
    state_free(&state);
    return status;
}
