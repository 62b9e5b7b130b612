/* Verdicts of the guard against what they are by definition: votes against classes counted one by
 * one, covers against all subsets, replays against ranks that are known to be faulty.
 */
#include "cmocka_test.h"
#include "test_seed.h"
#include <guard/guard.h>
#include <stdlib.h>

static uint64_t state_of_random;

static uint64_t draw(uint64_t below)
{
    state_of_random += UINT64_C(0x9e3779b97f4a7c15);
    return tocsin_mix64(state_of_random) % below;
}

static tocsin_digest digest_of(uint64_t value)
{
    return (tocsin_digest){.sum = value, .exclusive = value & 3, .polynomial = value * 7};
}

/* ---- votes --------------------------------------------------------------------------------- */

enum { REPLICAS_MAX = 9, TENSORS_MAX = 6, VOTES = 4000 };

typedef struct vote_ballot {
    uint32_t replicas;
    size_t tensors;
    tocsin_digest digests[REPLICAS_MAX][TENSORS_MAX];
    const tocsin_digest *rows[REPLICAS_MAX];
} vote_ballot;

static void draw_ballot(vote_ballot *ballot)
{
    uint64_t values = 1 + draw(3), chance = 1 + draw(12);
    ballot->replicas = 1 + (uint32_t)draw(REPLICAS_MAX);
    ballot->tensors = draw(TENSORS_MAX + 1);
    for (uint32_t r = 0; r < ballot->replicas; ++r) {
        ballot->rows[r] = ballot->digests[r];
        for (size_t t = 0; t < ballot->tensors; ++t)
            ballot->digests[r][t] = digest_of(draw(chance) ? 100 + t : draw(values));
    }
}

static bool rows_equal(const vote_ballot *ballot, uint32_t a, uint32_t b)
{
    for (size_t t = 0; t < ballot->tensors; ++t) {
        if (!digest_equal(&ballot->digests[a][t], &ballot->digests[b][t]))
            return false;
    }
    return true;
}

/* A replica of the strict majority, or UINT32_MAX. */
static uint32_t majority_of(const vote_ballot *ballot)
{
    for (uint32_t a = 0; a < ballot->replicas; ++a) {
        uint32_t alike = 0;
        for (uint32_t b = 0; b < ballot->replicas; ++b)
            alike += rows_equal(ballot, a, b);
        if (2 * alike > ballot->replicas)
            return a;
    }
    return UINT32_MAX;
}

static bool all_equal(const vote_ballot *ballot)
{
    for (uint32_t r = 1; r < ballot->replicas; ++r) {
        if (!rows_equal(ballot, 0, r))
            return false;
    }
    return true;
}

static void check_vote(const vote_ballot *ballot, const tocsin_guard_finding *finding)
{
    uint32_t most = majority_of(ballot), named = 0;
    assert_int_equal(finding == NULL, all_equal(ballot));
    if (!finding)
        return;
    for (uint32_t r = 0; r < ballot->replicas && most != UINT32_MAX; ++r) {
        if (rows_equal(ballot, r, most))
            continue;
        assert_true(named < finding->rank_count);
        assert_int_equal(finding->ranks[named++], 10 + r);
    }
    assert_int_equal(named, finding->rank_count);
    assert_int_equal(finding->cause == TOCSIN_GUARD_TRANSIENT, named > 0);
}

static void test_votes(void **state)
{
    (void)state;
    static const uint32_t ranks[] = {10, 11, 12, 13, 14, 15, 16, 17, 18};
    state_of_random = test_seed(0);
    for (int count = 0; count < VOTES; ++count) {
        vote_ballot ballot;
        tocsin_guard_vote *vote;
        tocsin_guard_finding *finding;
        draw_ballot(&ballot);
        const tocsin_guard_voters voters = {.check = TOCSIN_GUARD_WEIGHTS,
                                            .moment = {.step = 5, .passed = 4},
                                            .replicas = ballot.replicas,
                                            .ranks = ranks};
        assert_int_equal(tocsin_guard_vote_new(&voters, &vote, NULL), TOCSIN_OK);
        size_t first = ballot.tensors / 2; /* in two portions */
        assert_int_equal(tocsin_guard_vote_add(vote, ballot.rows, NULL, first, NULL), TOCSIN_OK);
        for (uint32_t r = 0; r < ballot.replicas; ++r)
            ballot.rows[r] += first;
        assert_int_equal(
            tocsin_guard_vote_add(vote, ballot.rows, NULL, ballot.tensors - first, NULL),
            TOCSIN_OK);
        assert_int_equal(tocsin_guard_vote_judge(vote, &finding, NULL), TOCSIN_OK);
        check_vote(&ballot, finding);
        tocsin_guard_finding_free(finding);
        tocsin_guard_vote_free(vote);
    }
}

/* ---- covers -------------------------------------------------------------------------------- */

enum { NODES_MAX = 10, PAIRS_MAX = 20, GRAPHS = 3000 };

static bool covers_all(const rank_pair *pairs, size_t count, uint32_t set)
{
    for (size_t p = 0; p < count; ++p) {
        if (!(set >> pairs[p].a & 1) && !(set >> pairs[p].b & 1))
            return false;
    }
    return true;
}

static bool covers_minimally(const rank_pair *pairs, size_t count, uint32_t set)
{
    if (!covers_all(pairs, count, set))
        return false;
    for (uint32_t node = 0; node < NODES_MAX; ++node) {
        if (set >> node & 1 && covers_all(pairs, count, set & ~(1u << node)))
            return false;
    }
    return true;
}

static void check_covers(const rank_pair *pairs, size_t count, const cover_list *covers)
{
    size_t expected = 0, begin = 0, size = 0;
    bool seen[1u << NODES_MAX] = {false};
    for (uint32_t set = 1; set < 1u << NODES_MAX; ++set)
        expected += covers_minimally(pairs, count, set);
    assert_int_equal(covers->cut, expected > TOCSIN_GUARD_COVERS_MAX);
    assert_int_equal(covers->ends.count, covers->cut ? TOCSIN_GUARD_COVERS_MAX : expected);
    for (size_t c = 0; c < covers->ends.count; ++c) {
        uint32_t set = 0;
        size_t end = covers->ends.items[c];
        assert_true(end - begin >= size);
        size = end - begin;
        for (; begin < end; ++begin)
            set |= 1u << covers->ranks.items[begin];
        assert_true(covers_minimally(pairs, count, set));
        assert_false(seen[set]);
        seen[set] = true;
    }
}

static void test_covers(void **state)
{
    (void)state;
    state_of_random = test_seed(1);
    for (int graph = 0; graph < GRAPHS; ++graph) {
        rank_pair pairs[PAIRS_MAX];
        size_t count = 1 + draw(PAIRS_MAX);
        uint64_t nodes = 2 + draw(NODES_MAX - 1);
        for (size_t p = 0; p < count; ++p) {
            uint32_t a = (uint32_t)draw(nodes), b = (uint32_t)draw(nodes - 1);
            pairs[p] = (rank_pair){.a = a, .b = b + (b >= a)};
        }
        cover_list covers;
        assert_true(tocsin_vertex_covers(pairs, count, &covers));
        check_covers(pairs, count, &covers);
        tocsin_vertex_covers_free(&covers);
    }
}

/* ---- replays ------------------------------------------------------------------------------- */

enum { RANKS_MAX = 12, RUNS_MAX = 2000, REPLAYS = 3000, ROUNDS_MAX = 16 };

/* A job in which some ranks are faulty: each of their runs is wrong with some chance, and then
 * gives a result that no other rank gives; persistently the same, or another each time. */
typedef struct faulty_job {
    uint32_t ranks;
    bool faulty[RANKS_MAX];
    uint64_t chance; /* in 8, of a faulty run to be wrong */
    bool same;
    tocsin_guard_run runs[RUNS_MAX];
    size_t run_count;
    bool wrong[RANKS_MAX]; /* some run was */
    bool ring_differs;     /* some first run was */
} faulty_job;

static void add_run(faulty_job *job, uint32_t owner, uint32_t executor, uint32_t attempt)
{
    uint64_t result = owner;
    if (job->faulty[executor] && draw(8) < job->chance) {
        result = UINT64_C(1000) * (executor + 1) + owner;
        if (!job->same)
            result += UINT64_C(1000000) * (1 + draw(3));
        job->wrong[executor] = true;
        job->ring_differs = true;
    }
    assert_true(job->run_count < RUNS_MAX);
    job->runs[job->run_count++] = (tocsin_guard_run){
        .owner = owner, .executor = executor, .attempt = attempt, .result = digest_of(result)};
}

static uint32_t draw_job(faulty_job *job)
{
    uint32_t faulty = 0;
    *job = (faulty_job){
        .ranks = 2 + (uint32_t)draw(RANKS_MAX - 1), .chance = 1 + draw(8), .same = draw(2) == 0};
    for (uint64_t times = draw(4); times > 0; --times) {
        uint64_t rank = draw(job->ranks);
        faulty += !job->faulty[rank];
        job->faulty[rank] = true;
    }
    uint32_t offset = 1 + (uint32_t)draw(job->ranks - 1);
    for (uint32_t owner = 0; owner < job->ranks; ++owner) {
        add_run(job, owner, owner, 0);
        add_run(job, owner, (owner + job->ranks - offset) % job->ranks, 0);
    }
    return faulty;
}

/* Run what is asked for until nothing is. */
static void run_requests(faulty_job *job)
{
    for (int round = 0;; ++round) {
        tocsin_guard_run *requests;
        size_t count;
        tocsin_guard_replay replay = {
            .rank_count = job->ranks, .runs = job->runs, .run_count = job->run_count};
        assert_true(round < ROUNDS_MAX);
        assert_int_equal(tocsin_guard_replay_requests(&replay, &requests, &count, NULL), TOCSIN_OK);
        for (size_t r = 0; r < count; ++r)
            add_run(job, requests[r].owner, requests[r].executor, requests[r].attempt);
        tocsin_guard_requests_free(requests);
        if (count == 0)
            return;
    }
}

static void shuffle(faulty_job *job)
{
    for (size_t r = job->run_count; r > 1; --r) {
        size_t other = draw(r);
        tocsin_guard_run kept = job->runs[r - 1];
        job->runs[r - 1] = job->runs[other];
        job->runs[other] = kept;
    }
}

/* Some reported set holds faulty ranks only: the truth is among the explanations. */
static void check_truth_is_covered(const faulty_job *job, const tocsin_guard_finding *finding)
{
    size_t begin = 0;
    bool found = finding->cover_count == 0 || finding->covers_cut;
    for (size_t c = 0; c < finding->cover_count; ++c) {
        bool all = true;
        for (; begin < finding->cover_ends[c]; ++begin)
            all &= job->faulty[finding->cover_ranks[begin]];
        found |= all;
    }
    assert_true(found);
}

static void check_replay(const faulty_job *job, uint32_t faulty,
                         const tocsin_guard_finding *finding)
{
    uint32_t wrong = 0;
    assert_int_equal(finding != NULL, job->ring_differs);
    if (!finding)
        return;
    for (uint32_t r = 0; r < job->ranks; ++r)
        wrong += job->wrong[r];
    for (size_t r = 0; r < finding->rank_count; ++r)
        assert_true(job->wrong[finding->ranks[r]]); /* nobody healthy, however many are faulty */
    check_truth_is_covered(job, finding);
    /* Three healthy ranks among the five that are asked: everybody is found. */
    if (faulty <= 2 && job->ranks >= 5)
        assert_int_equal(finding->rank_count, wrong);
    else if (faulty == 1 && job->ranks >= 3)
        assert_int_equal(finding->rank_count, 1);
    if (job->ranks < 3)
        assert_int_equal(finding->rank_count, 0);
    if (finding->rank_count && job->chance == 8)
        assert_int_equal(finding->cause, TOCSIN_GUARD_PERSISTENT);
}

static void test_replays(void **state)
{
    (void)state;
    static faulty_job job;
    state_of_random = test_seed(2);
    for (int replay = 0; replay < REPLAYS; ++replay) {
        tocsin_guard_finding *finding;
        uint32_t faulty = draw_job(&job);
        run_requests(&job);
        shuffle(&job);
        const tocsin_guard_replay judged = {.moment = {.step = 9, .passed = 4},
                                            .rank_count = job.ranks,
                                            .runs = job.runs,
                                            .run_count = job.run_count};
        assert_int_equal(tocsin_guard_judge_replay(&judged, &finding, NULL), TOCSIN_OK);
        check_replay(&job, faulty, finding);
        tocsin_guard_finding_free(finding);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_votes), cmocka_unit_test(test_covers),
                                       cmocka_unit_test(test_replays)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
