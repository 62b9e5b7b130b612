/* The weakest safe precondition of a fact (TrainCheck, OSDI'25, section 3.4: "weakest yet safe").
 *
 *   1 conjunction   all clauses true of every positive; those that no negative violates are
 *                   irrelevant and pruned (figure 4); safe if no negative satisfies the rest
 *   2 disjunction   not safe yet: clauses that exclude the negatives left, the most significant
 *                   first, until every positive is covered (figure 5): a && b && (c || d)
 *   3 split         else the positives of the most significant clause are a case of their own,
 *                   deduced by the same three steps, then the next clause for what is left
 *   4 minimal       a clause that a conjunction stays safe without is taken out, least preferred
 *                   first
 *
 * Significance is that of a G-test of "the clause holds" against "the fact is true" over the
 * instances of the case: how surely the clause has to do with the fact, and is true where the fact
 * is. Of clauses that are equally significant the one that covers more comes first, then the one
 * that is preferred.
 *
 * Data: sets of rows as bits. Invariant: every group is false of every negative; together the
 * groups are true of every positive. Cost: O(clauses * rows / 64) a step, at most BUDGET steps. */
#include <assert.h>
#include <infer/infer.h>
#include <math.h>
#include <stdlib.h>

struct search {
    const tocsin_question *question;
    tocsin_arena *arena;
    size_t words;
    unsigned budget;
};

struct ranked_clause {
    uint32_t clause;
    uint32_t position; /* in order of preference */
    int64_t significance;
    uint64_t weight; /* instances covered */
};

static uint64_t *copy_bits(struct search *search, const uint64_t *bits)
{
    uint64_t *copy = TOCSIN_ARENA_ARRAY(search->arena, uint64_t, search->words);
    if (copy != NULL && search->words > 0)
        memcpy(copy, bits, search->words * sizeof *copy);
    return copy;
}

static const uint64_t *rows_of(const struct search *search, uint32_t clause)
{
    return tocsin_clause_rows(search->question->clauses, clause);
}

static int compare_indices(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Add base && extra && more as one more conjunction. False: out of memory. */
static bool add_group(struct search *search, tocsin_deduction *deduction, const uint32_t *base,
                      size_t base_count, const uint32_t *extra, const tocsin_group *more)
{
    assert(deduction->count < TOCSIN_DEDUCTION_GROUPS_MAX);
    size_t count = 0, capacity = base_count + 1 + (more != NULL ? more->count : 0);
    uint32_t *clauses = TOCSIN_ARENA_ARRAY(search->arena, uint32_t, capacity);
    if (clauses == NULL)
        return false;
    for (size_t i = 0; i < base_count; ++i)
        clauses[count++] = base[i];
    if (extra != NULL)
        clauses[count++] = *extra;
    for (size_t i = 0; more != NULL && i < more->count; ++i)
        clauses[count++] = more->clauses[i];
    if (count > 1)
        qsort(clauses, count, sizeof *clauses, compare_indices);
    deduction->groups[deduction->count++] = (tocsin_group){.clauses = clauses, .count = count};
    return true;
}

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked_clause *x = a, *y = b;
    if (x->significance != y->significance)
        return x->significance < y->significance ? 1 : -1;
    if (x->weight != y->weight)
        return x->weight < y->weight ? 1 : -1;
    return (x->position > y->position) - (x->position < y->position);
}

static uint64_t weigh(const struct search *search, const uint64_t *a, const uint64_t *b)
{
    uint64_t weight = 0;
    for (size_t w = 0; w < search->words; ++w)
        for (uint64_t word = a[w] & b[w]; word != 0; word &= word - 1)
            weight += search->question->weights[w * 64 + (size_t)__builtin_ctzll(word)];
    return weight;
}

static double log_weight(double weight)
{
    return weight > 0 ? weight * log(weight) : 0;
}

/* The G statistic of the four-fold table of clause and fact, in 1/1024, so that what is equal but
 * for rounding is equal; negative when the clause is true where the fact is not. `covered` of
 * `positives` instances, `met` of `negatives`. */
static int64_t measure(double covered, double positives, double met, double negatives)
{
    double all = positives + negatives, holds = covered + met;
    double g = 2 * (log_weight(covered) + log_weight(positives - covered) + log_weight(met) +
                    log_weight(negatives - met) - log_weight(positives) - log_weight(negatives) -
                    log_weight(holds) - log_weight(all - holds) + log_weight(all));
    double rounded = floor((g < 1e12 ? g : 1e12) * 1024 + 0.5);
    return covered * negatives > met * positives ? (int64_t)rounded : -(int64_t)rounded;
}

/* Candidates true of some positives but not of all, the most significant first. */
static struct ranked_clause *rank_partial(struct search *search, const uint64_t *positives,
                                          const uint64_t *alive, size_t *count)
{
    const tocsin_question *question = search->question;
    double all_positives = (double)weigh(search, positives, positives);
    double all_negatives = (double)weigh(search, alive, alive);
    struct ranked_clause *ranked =
        TOCSIN_ARENA_ARRAY(search->arena, struct ranked_clause, question->candidate_count);
    if (ranked == NULL)
        return NULL;
    *count = 0;
    for (size_t i = 0; i < question->candidate_count; ++i) {
        const uint64_t *rows = rows_of(search, question->candidates[i]);
        if (tocsin_bits_within(positives, rows, search->words))
            continue;
        uint64_t weight = weigh(search, rows, positives);
        if (weight == 0)
            continue;
        double met = (double)weigh(search, rows, alive);
        ranked[(*count)++] = (struct ranked_clause){
            .clause = question->candidates[i],
            .position = (uint32_t)i,
            .significance = measure((double)weight, all_positives, met, all_negatives),
            .weight = weight};
    }
    if (*count > 1)
        qsort(ranked, *count, sizeof *ranked, compare_ranked);
    return ranked;
}

static void remove_bits(uint64_t *from, const uint64_t *bits, size_t words)
{
    for (size_t w = 0; w < words; ++w)
        from[w] &= ~bits[w];
}

/* Step 2. *found stays false when the clauses that exclude `alive` cannot cover the positives. */
static tocsin_status disjoin(struct search *search, const uint64_t *positives,
                             const uint64_t *alive, const uint32_t *base, size_t base_count,
                             const struct ranked_clause *ranked, size_t ranked_count,
                             tocsin_deduction *deduction, tocsin_error *error)
{
    uint64_t *open = copy_bits(search, positives);
    if (open == NULL)
        return tocsin_error_memory(error);
    uint32_t chosen[TOCSIN_DEDUCTION_DISJUNCTS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < ranked_count && tocsin_bits_any(open, search->words); ++i) {
        const uint64_t *rows = rows_of(search, ranked[i].clause);
        if (tocsin_bits_meet(rows, alive, search->words) ||
            !tocsin_bits_meet(rows, open, search->words))
            continue;
        if (count == TOCSIN_DEDUCTION_DISJUNCTS_MAX)
            return TOCSIN_OK;
        chosen[count++] = ranked[i].clause;
        remove_bits(open, rows, search->words);
    }
    if (tocsin_bits_any(open, search->words))
        return TOCSIN_OK;
    for (size_t i = 0; i < count; ++i)
        if (!add_group(search, deduction, base, base_count, &chosen[i], NULL))
            return tocsin_error_memory(error);
    deduction->found = true;
    return TOCSIN_OK;
}

static tocsin_status solve(struct search *search, const uint64_t *positives,
                           const uint64_t *negatives, unsigned depth, tocsin_deduction *deduction,
                           tocsin_error *error);

/* Step 3. */
static tocsin_status split(struct search *search, const uint64_t *positives, const uint64_t *alive,
                           const uint32_t *base, size_t base_count,
                           const struct ranked_clause *ranked, size_t ranked_count, unsigned depth,
                           tocsin_deduction *deduction, tocsin_error *error)
{
    uint64_t *open = copy_bits(search, positives);
    uint64_t *part = copy_bits(search, positives), *rest = copy_bits(search, positives);
    if (open == NULL || part == NULL || rest == NULL)
        return tocsin_error_memory(error);
    for (size_t i = 0; i < ranked_count && tocsin_bits_any(open, search->words); ++i) {
        const uint64_t *rows = rows_of(search, ranked[i].clause);
        if (!tocsin_bits_meet(rows, open, search->words) ||
            tocsin_bits_within(alive, rows, search->words))
            continue;
        for (size_t w = 0; w < search->words; ++w) {
            part[w] = positives[w] & rows[w];
            rest[w] = alive[w] & rows[w];
        }
        tocsin_deduction sub = {0};
        TOCSIN_TRY(solve(search, part, rest, depth + 1, &sub, error));
        if (!sub.found)
            continue;
        if (deduction->count + sub.count > TOCSIN_DEDUCTION_GROUPS_MAX)
            return TOCSIN_OK;
        for (size_t g = 0; g < sub.count; ++g)
            if (!add_group(search, deduction, base, base_count, &ranked[i].clause, &sub.groups[g]))
                return tocsin_error_memory(error);
        remove_bits(open, rows, search->words);
    }
    deduction->found = !tocsin_bits_any(open, search->words);
    return TOCSIN_OK;
}

/* Steps 1 to 3 for some of the positives and the negatives that are left in their case. */
static tocsin_status solve(struct search *search, const uint64_t *positives,
                           const uint64_t *negatives, unsigned depth, tocsin_deduction *deduction,
                           tocsin_error *error)
{
    const tocsin_question *question = search->question;
    if (search->budget == 0 || depth > TOCSIN_DEDUCTION_DEPTH_MAX)
        return TOCSIN_OK;
    --search->budget;
    uint32_t *base = TOCSIN_ARENA_ARRAY(search->arena, uint32_t, question->candidate_count);
    uint64_t *alive = copy_bits(search, negatives);
    if (base == NULL || alive == NULL)
        return tocsin_error_memory(error);
    size_t base_count = 0;
    for (size_t i = 0; i < question->candidate_count; ++i) {
        const uint64_t *rows = rows_of(search, question->candidates[i]);
        if (!tocsin_bits_within(positives, rows, search->words) ||
            tocsin_bits_within(negatives, rows, search->words))
            continue;
        base[base_count++] = question->candidates[i];
        tocsin_bits_and(alive, rows, search->words);
    }
    if (!tocsin_bits_any(alive, search->words)) {
        if (!add_group(search, deduction, base, base_count, NULL, NULL))
            return tocsin_error_memory(error);
        deduction->found = true;
        return TOCSIN_OK;
    }
    size_t ranked_count;
    struct ranked_clause *ranked = rank_partial(search, positives, alive, &ranked_count);
    if (ranked == NULL)
        return tocsin_error_memory(error);
    TOCSIN_TRY(disjoin(search, positives, alive, base, base_count, ranked, ranked_count, deduction,
                       error));
    if (!deduction->found)
        TOCSIN_TRY(split(search, positives, alive, base, base_count, ranked, ranked_count, depth,
                         deduction, error));
    return TOCSIN_OK;
}

/* Is `rows` without any row that satisfies all clauses but the one at `left_out`? */
static bool excludes(const struct search *search, const uint32_t *clauses, size_t count,
                     size_t left_out, const uint64_t *rows)
{
    for (size_t w = 0; w < search->words; ++w) {
        uint64_t word = rows[w];
        for (size_t i = 0; i < count && word != 0; ++i)
            if (i != left_out)
                word &= rows_of(search, clauses[i])[w];
        if (word != 0)
            return false;
    }
    return true;
}

/* Step 4. Clause indices ascend with preference: from the last down, the least preferred goes. */
static bool minimize(struct search *search, tocsin_group *group)
{
    uint32_t *clauses = TOCSIN_ARENA_ARRAY(search->arena, uint32_t, group->count);
    if (clauses == NULL)
        return false;
    const uint64_t *negatives = search->question->negatives;
    size_t count = group->count;
    if (count > 0)
        memcpy(clauses, group->clauses, count * sizeof *clauses);
    assert(excludes(search, clauses, count, SIZE_MAX, negatives));
    for (size_t i = count; i-- > 0;) {
        if (!excludes(search, clauses, count, i, negatives))
            continue;
        memmove(&clauses[i], &clauses[i + 1], (count - i - 1) * sizeof *clauses);
        --count;
    }
    *group = (tocsin_group){.clauses = clauses, .count = count};
    return true;
}

/* Does b hold wherever a holds, because a has all of b's clauses? Both ascending. */
static bool implies(const tocsin_group *a, const tocsin_group *b)
{
    size_t matched = 0;
    for (size_t i = 0; i < a->count && matched < b->count; ++i)
        matched += a->clauses[i] == b->clauses[matched];
    return matched == b->count;
}

static void drop_implied(tocsin_deduction *deduction)
{
    size_t kept = 0;
    for (size_t i = 0; i < deduction->count; ++i) {
        bool implied = false;
        for (size_t j = 0; j < deduction->count && !implied; ++j) {
            bool equal = deduction->groups[i].count == deduction->groups[j].count;
            implied = i != j && implies(&deduction->groups[i], &deduction->groups[j]) &&
                      (!equal || j < i);
        }
        if (!implied)
            deduction->groups[kept++] = deduction->groups[i];
    }
    deduction->count = kept;
}

void tocsin_deduction_rows(const tocsin_clause_table *clauses, const tocsin_deduction *deduction,
                           uint64_t *rows)
{
    for (size_t w = 0; w < clauses->words; ++w) {
        rows[w] = 0;
        for (size_t g = 0; g < deduction->count; ++g) {
            const tocsin_group *group = &deduction->groups[g];
            uint64_t word = UINT64_MAX;
            for (size_t i = 0; i < group->count; ++i)
                word &= tocsin_clause_rows(clauses, group->clauses[i])[w];
            rows[w] |= word;
        }
    }
    if (clauses->row_count % 64 != 0)
        rows[clauses->words - 1] &= (UINT64_C(1) << (clauses->row_count % 64)) - 1;
}

tocsin_status tocsin_deduce(const tocsin_question *question, tocsin_arena *arena,
                            tocsin_deduction *deduction, tocsin_error *error)
{
    struct search search = {.question = question,
                            .arena = arena,
                            .words = question->clauses->words,
                            .budget = TOCSIN_DEDUCTION_BUDGET};
    *deduction = (tocsin_deduction){0};
    assert(tocsin_bits_any(question->positives, search.words));
    assert(!tocsin_bits_meet(question->positives, question->negatives, search.words));
    TOCSIN_TRY(solve(&search, question->positives, question->negatives, 0, deduction, error));
    if (!deduction->found)
        return TOCSIN_OK;
    for (size_t g = 0; g < deduction->count; ++g)
        if (!minimize(&search, &deduction->groups[g]))
            return tocsin_error_memory(error);
    drop_implied(deduction);
    uint64_t *rows = copy_bits(&search, question->positives);
    if (rows == NULL)
        return tocsin_error_memory(error);
    tocsin_deduction_rows(question->clauses, deduction, rows);
    assert(tocsin_bits_within(question->positives, rows, search.words));
    assert(!tocsin_bits_meet(question->negatives, rows, search.words));
    return TOCSIN_OK;
}
