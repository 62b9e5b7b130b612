/* vote.c - check 3: replicas of the same tensors that differ.
 *
 * Data: the replicas' partition into classes that agreed in every tensor so far. A tensor on which
 * all agree leaves it as it is; any other one refines it. Invariant: two replicas are in one class
 * if and only if all their digests were equal. At the end a class of more than half of the replicas
 * contains every healthy one as long as more than half are healthy, whatever the others did, so
 * nobody healthy is outside of it.
 * Cost: O(replicas) a tensor, and where they differ a sort of those that are not with the most.
 */
#include "guard/guard.h"

#include <stdlib.h>

#define EVIDENCE_TENSORS_MAX 16
#define EVIDENCE_RANKS_MAX   64

/* One of the first tensors that differed. */
typedef struct divergence {
    const char *name;
    uint64_t tensor;
    uint32_t most;    /* replicas with the value that most have */
    uint32_t outlier; /* the first replica with another one */
    tocsin_digest expected, seen;
} divergence;

struct tocsin_guard_vote {
    tocsin_guard_voters voters;
    uint32_t *ranks;
    uint32_t *named;
    uint32_t *classes; /* of the partition, per replica */
    uint32_t *values;  /* per replica: 0 like the most, else by digest */
    uint32_t *others;  /* replicas that are not like the most */
    uint64_t *differs; /* per replica: tensors in which it was not like the most */
    uint32_t class_count;
    tocsin_map pairs; /* class, value -> class */
    uint64_t tensors, divergent, undecided;
    divergence first[EVIDENCE_TENSORS_MAX];
};

static tocsin_status check_voters(const tocsin_guard_voters *voters, tocsin_error *error)
{
    if (voters->replicas == 0)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "a vote of no replicas");
    if (voters->replicas > TOCSIN_GUARD_RANKS_MAX || voters->named_count > TOCSIN_GUARD_RANKS_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "more than %u replicas",
                                TOCSIN_GUARD_RANKS_MAX);
    for (uint32_t r = 1; voters->ranks && r < voters->replicas; ++r) {
        if (voters->ranks[r - 1] >= voters->ranks[r])
            return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "ranks of replicas are ascending");
    }
    return TOCSIN_OK;
}

tocsin_status tocsin_guard_vote_new(const tocsin_guard_voters *voters, tocsin_guard_vote **vote,
                                    tocsin_error *error)
{
    *vote = NULL;
    TOCSIN_TRY(check_voters(voters, error));
    uint32_t count = voters->replicas;
    tocsin_guard_vote *made = tocsin_zalloc(1, sizeof *made);
    if (!made)
        return tocsin_error_memory(error);
    made->voters = *voters;
    made->class_count = 1;
    made->ranks = tocsin_zalloc(count, sizeof *made->ranks);
    made->named = tocsin_zalloc(voters->named_count, sizeof *made->named);
    made->classes = tocsin_zalloc(count, sizeof *made->classes);
    made->values = tocsin_zalloc(count, sizeof *made->values);
    made->others = tocsin_zalloc(count, sizeof *made->others);
    made->differs = tocsin_zalloc(count, sizeof *made->differs);
    if (!made->ranks || !made->named || !made->classes || !made->values || !made->others ||
        !made->differs) {
        tocsin_guard_vote_free(made);
        return tocsin_error_memory(error);
    }
    for (uint32_t r = 0; r < count; ++r)
        made->ranks[r] = voters->ranks ? voters->ranks[r] : r;
    if (voters->named_count)
        memcpy(made->named, voters->named, voters->named_count * sizeof *made->named);
    *vote = made;
    return TOCSIN_OK;
}

void tocsin_guard_vote_free(tocsin_guard_vote *vote)
{
    if (!vote)
        return;
    tocsin_free(vote->ranks);
    tocsin_free(vote->named);
    tocsin_free(vote->classes);
    tocsin_free(vote->values);
    tocsin_free(vote->others);
    tocsin_free(vote->differs);
    tocsin_map_free(&vote->pairs);
    tocsin_free(vote);
}

/* ---- one tensor ---------------------------------------------------------------------------- */

typedef struct tensor_column {
    const tocsin_digest *const *rows;
    size_t tensor;
} tensor_column;

static const tocsin_digest *column_at(const tensor_column *column, uint32_t replica)
{
    return &column->rows[replica][column->tensor];
}

static int compare_others(const void *a, const void *b, void *context)
{
    const uint32_t *left = a, *right = b;
    int order = digest_compare(column_at(context, *left), column_at(context, *right));
    return order ? order : (*left > *right) - (*left < *right);
}

/* The replica whose value a strict majority has, if any has it (Boyer and Moore). */
static uint32_t find_candidate(const tocsin_guard_vote *vote, const tensor_column *column)
{
    uint32_t candidate = 0, lead = 0;
    for (uint32_t r = 0; r < vote->voters.replicas; ++r) {
        if (lead == 0)
            candidate = r;
        bool equal = digest_equal(column_at(column, r), column_at(column, candidate));
        lead = equal ? lead + 1 : lead - 1;
    }
    return candidate;
}

/* Number the values of this tensor in vote->values, that of the candidate 0. Returns how many
 * replicas have the candidate's. */
static uint32_t number_values(tocsin_guard_vote *vote, tensor_column *column, uint32_t candidate)
{
    uint32_t other_count = 0, value = 0;
    for (uint32_t r = 0; r < vote->voters.replicas; ++r) {
        vote->values[r] = 0;
        if (!digest_equal(column_at(column, r), column_at(column, candidate)))
            vote->others[other_count++] = r;
    }
    qsort_r(vote->others, other_count, sizeof *vote->others, compare_others, column);
    for (uint32_t i = 0; i < other_count; ++i) {
        uint32_t replica = vote->others[i];
        const tocsin_digest *before = i ? column_at(column, vote->others[i - 1]) : NULL;
        value += !before || !digest_equal(before, column_at(column, replica));
        vote->values[replica] = value;
        ++vote->differs[replica];
    }
    return vote->voters.replicas - other_count;
}

static bool refine(tocsin_guard_vote *vote)
{
    uint32_t next = 1;
    tocsin_map_clear(&vote->pairs);
    for (uint32_t r = 0; r < vote->voters.replicas; ++r) {
        if (vote->classes[r] == 0 && vote->values[r] == 0)
            continue; /* stays with the most */
        uint64_t pair = (uint64_t)vote->classes[r] << 32 | vote->values[r];
        uint64_t *number = tocsin_map_at(&vote->pairs, pair);
        if (!number)
            return false;
        if (*number == 0)
            *number = next++;
        vote->classes[r] = (uint32_t)*number;
    }
    vote->class_count = next;
    return true;
}

static void note_divergence(tocsin_guard_vote *vote, const tensor_column *column, const char *name,
                            uint32_t candidate, uint32_t most)
{
    if (vote->divergent > EVIDENCE_TENSORS_MAX)
        return;
    divergence *noted = &vote->first[vote->divergent - 1];
    uint32_t outlier = 0;
    while (vote->values[outlier] == 0)
        ++outlier;
    *noted = (divergence){.name = name ? name : "",
                          .tensor = vote->tensors,
                          .most = most,
                          .outlier = outlier,
                          .expected = *column_at(column, candidate),
                          .seen = *column_at(column, outlier)};
}

static bool add_tensor(tocsin_guard_vote *vote, tensor_column *column, const char *name)
{
    bool equal = true;
    for (uint32_t r = 1; r < vote->voters.replicas && equal; ++r)
        equal = digest_equal(column_at(column, r), column_at(column, 0));
    if (!equal) {
        uint32_t candidate = find_candidate(vote, column);
        uint32_t most = number_values(vote, column, candidate);
        ++vote->divergent;
        vote->undecided += 2 * most <= vote->voters.replicas;
        note_divergence(vote, column, name, candidate, most);
        if (!refine(vote))
            return false;
    }
    ++vote->tensors;
    return true;
}

tocsin_status tocsin_guard_vote_add(tocsin_guard_vote *vote, const tocsin_digest *const *rows,
                                    const char *const *names, size_t count, tocsin_error *error)
{
    if (count > TOCSIN_GUARD_TENSORS_MAX - vote->tensors)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "a vote over more than %u tensors",
                                TOCSIN_GUARD_TENSORS_MAX);
    for (size_t t = 0; t < count; ++t) {
        tensor_column column = {.rows = rows, .tensor = t};
        if (!add_tensor(vote, &column, names ? names[t] : NULL))
            return tocsin_error_memory(error);
    }
    return TOCSIN_OK;
}

/* ---- the verdict --------------------------------------------------------------------------- */

/* The class of a strict majority of all; UINT32_MAX: there is none. */
static uint32_t majority_class(const tocsin_guard_vote *vote)
{
    uint32_t candidate = 0, lead = 0, count = 0;
    for (uint32_t r = 0; r < vote->voters.replicas; ++r) {
        if (lead == 0)
            candidate = vote->classes[r];
        lead = vote->classes[r] == candidate ? lead + 1 : lead - 1;
    }
    for (uint32_t r = 0; r < vote->voters.replicas; ++r)
        count += vote->classes[r] == candidate;
    return 2 * count > vote->voters.replicas ? candidate : UINT32_MAX;
}

static void put_divergence(tocsin_json *json, const tocsin_guard_vote *vote,
                           const divergence *noted)
{
    tocsin_json_begin_object(json);
    tocsin_json_put_text(json, "tensor", noted->name);
    tocsin_json_put_unsigned(json, "number", noted->tensor);
    tocsin_json_put_unsigned(json, "agree", noted->most);
    tocsin_json_put_unsigned(json, "first_unlike", vote->ranks[noted->outlier]);
    tocsin_draft_put_digest(json, "most", noted->expected);
    tocsin_draft_put_digest(json, "unlike", noted->seen);
    tocsin_json_end_object(json);
}

static void put_evidence(finding_draft *draft, const tocsin_guard_vote *vote)
{
    tocsin_json *json = &draft->json;
    uint32_t told = 0;
    tocsin_json_put_unsigned(json, "tensors", vote->tensors);
    tocsin_json_put_unsigned(json, "differ", vote->divergent);
    tocsin_json_put_unsigned(json, "without_majority", vote->undecided);
    tocsin_json_put_unsigned(json, "classes", vote->class_count);
    tocsin_json_key(json, "unlike");
    tocsin_json_begin_array(json);
    for (uint32_t r = 0; r < vote->voters.replicas && told < EVIDENCE_RANKS_MAX; ++r) {
        if (vote->differs[r] == 0)
            continue;
        tocsin_json_begin_object(json);
        tocsin_json_put_unsigned(json, "rank", vote->ranks[r]);
        tocsin_json_put_unsigned(json, "tensors", vote->differs[r]);
        tocsin_json_end_object(json);
        ++told;
    }
    tocsin_json_end_array(json);
    tocsin_json_key(json, "first");
    tocsin_json_begin_array(json);
    for (size_t d = 0; d < vote->divergent && d < EVIDENCE_TENSORS_MAX; ++d)
        put_divergence(json, vote, &vote->first[d]);
    tocsin_json_end_array(json);
}

static bool name_outliers(finding_draft *draft, const tocsin_guard_vote *vote, uint32_t majority)
{
    for (uint32_t r = 0; r < vote->voters.replicas; ++r) {
        if (vote->classes[r] != majority && !TOCSIN_VEC_PUSH(&draft->ranks, vote->ranks[r]))
            return false;
    }
    tocsin_string_append_text(&draft->text, "tensors of ");
    tocsin_draft_ranks_text(&draft->text, draft->ranks.items, draft->ranks.count);
    tocsin_string_printf(&draft->text, " differ from those of the other %zu replicas",
                         vote->voters.replicas - draft->ranks.count);
    draft->content.cause = tocsin_draft_cause(draft, vote->named, vote->voters.named_count);
    return true;
}

/* Why nobody is named. */
static void tell_undecided(finding_draft *draft, const tocsin_guard_vote *vote)
{
    uint32_t replicas = vote->voters.replicas;
    tocsin_string_printf(&draft->text, "%u replicas differ", replicas);
    if (vote->voters.moment.passed < 0) {
        draft->content.cause = TOCSIN_GUARD_SOFTWARE;
        tocsin_string_append_text(&draft->text, " and never agreed before: they did not begin "
                                                "alike, or are no replicas");
    } else if (replicas == 2) {
        tocsin_string_append_text(&draft->text, ": two can tell that, but not which is wrong");
    } else if (vote->tensors > 1 && 2 * vote->undecided > vote->tensors) {
        draft->content.cause = TOCSIN_GUARD_SOFTWARE;
        tocsin_string_append_text(&draft->text, " without a majority in most tensors: the program "
                                                "updates them unlike");
    } else {
        tocsin_string_append_text(&draft->text, " and no strict majority agrees");
    }
}

tocsin_status tocsin_guard_vote_judge(tocsin_guard_vote *vote, tocsin_guard_finding **finding,
                                      tocsin_error *error)
{
    *finding = NULL;
    if (vote->divergent == 0)
        return TOCSIN_OK;
    finding_draft draft;
    uint32_t majority = majority_class(vote);
    bool named = majority != UINT32_MAX && vote->voters.moment.passed >= 0;
    tocsin_draft_begin(&draft, vote->voters.check, vote->voters.moment, vote->voters.replicas);
    put_evidence(&draft, vote);
    draft.content.tensor = vote->first[0].name;
    if (!named)
        tell_undecided(&draft, vote);
    else if (!name_outliers(&draft, vote, majority))
        draft.text.status = TOCSIN_E_MEMORY;
    tocsin_string_printf(&draft.text, ", in %llu of %llu tensors",
                         (unsigned long long)vote->divergent, (unsigned long long)vote->tensors);
    if (vote->first[0].name[0])
        tocsin_string_printf(&draft.text, ", first in %s", vote->first[0].name);
    return tocsin_draft_finish(&draft, finding, error);
}
