/* From a table's facts to invariants or reasons against.
 *
 * A hypothesis is (population, fact) with at least one positive example (TrainCheck, algorithm 1).
 * It is kept when a safe precondition exists, when its support does not hang on one run, and when
 * it is stable: what the other runs teach must not alarm on the run left out. Cost: per fact, one
 * deduction, and one more for each run that alone shows some negative. */
#include <assert.h>
#include <infer/hypothesis.h>
#include <infer/infer.h>
#include <stdlib.h>

enum { CONTEXT_MAX = 12 }; /* clauses of context in one precondition */

struct judge {
    const tocsin_vocabulary *vocabulary;
    const tocsin_table *table;
    uint32_t run_count;
    tocsin_arena *arena; /* keeps results */
    tocsin_arena scratch;
    tocsin_arena clause_arena;
    tocsin_clause_table clauses; /* clauses NULL: not needed yet; sizes are right */
    uint64_t *weights;
    uint64_t *row_hashes; /* of the rows' fields */
    uint64_t *positives, *negatives;
    const tocsin_cell **cells; /* by fact */
    size_t *cell_begin;        /* facts + 1 */
};

/* Replicas in different processes are independent witnesses; runs are not needed for that. */
static bool needs_two_runs(const struct judge *judge)
{
    return judge->run_count > 1 && !judge->table->pair;
}

static bool is_one_run(uint64_t runs)
{
    return (runs & (runs - 1)) == 0;
}

static uint64_t runs_of(const struct judge *judge, const uint64_t *rows, const uint64_t *also)
{
    uint64_t runs = 0;
    for (size_t i = 0; i < judge->clauses.row_count; ++i)
        if (tocsin_bits_test(rows, i) && tocsin_bits_test(also, i))
            runs |= judge->table->rows.items[i].runs;
    return runs;
}

static tocsin_status sort_cells(struct judge *judge, tocsin_error *error)
{
    const tocsin_table *table = judge->table;
    size_t facts = table->facts.count;
    judge->cell_begin = TOCSIN_ARENA_ARRAY(&judge->scratch, size_t, facts + 2);
    judge->cells = TOCSIN_ARENA_ARRAY(&judge->scratch, const tocsin_cell *, table->cells.count);
    if (judge->cell_begin == NULL || judge->cells == NULL)
        return tocsin_error_memory(error);
    /* Counting sort; shifted by one so that filling leaves the begins in place. */
    memset(judge->cell_begin, 0, (facts + 2) * sizeof *judge->cell_begin);
    for (size_t i = 0; i < table->cells.count; ++i)
        ++judge->cell_begin[table->cells.items[i].fact + 2];
    for (size_t f = 2; f < facts + 2; ++f)
        judge->cell_begin[f] += judge->cell_begin[f - 1];
    for (size_t i = 0; i < table->cells.count; ++i)
        judge->cells[judge->cell_begin[table->cells.items[i].fact + 1]++] = &table->cells.items[i];
    assert(judge->cell_begin[facts] == table->cells.count);
    return TOCSIN_OK;
}

typedef enum precision { PRECISION_UNKNOWN, PRECISION_PLAIN, PRECISION_CAST } precision;

static precision precision_of(const struct judge *judge, const tocsin_row *row)
{
    for (uint32_t f = 0; f < row->field_count; ++f) {
        if (strcmp(tocsin_symbol_text(judge->vocabulary, row->fields[f].name), "meta.autocast") !=
            0)
            continue;
        tocsin_literal literal = tocsin_scalar_literal(judge->vocabulary, row->fields[f].a);
        bool plain = literal.kind == TOCSIN_VALUE_STRING && literal.text[0] == 0;
        return plain ? PRECISION_PLAIN : PRECISION_CAST;
    }
    return PRECISION_UNKNOWN;
}

/* Under autocast what a call returns has the precision that its kind of operation is given, not
 * that of its arguments: such rows say nothing of "return.dtype equals arg.x.dtype". Where it is
 * known, that is claimed outside autocast only, by the clause of context that is left. */
static void leave_out_cast(const struct judge *judge, tocsin_fact_key fact, uint64_t *rows)
{
    bool any = false;
    if (judge->table->wide || fact.predicate != TOCSIN_PREDICATE_RETURN_MATCHES ||
        !tocsin_bias_is_tensor_dtype(tocsin_symbol_text(judge->vocabulary, fact.name)))
        return;
    for (size_t i = 0; i < judge->table->rows.count && !any; ++i)
        any = precision_of(judge, &judge->table->rows.items[i]) != PRECISION_UNKNOWN;
    for (size_t i = 0; i < judge->table->rows.count && any; ++i)
        if (precision_of(judge, &judge->table->rows.items[i]) != PRECISION_PLAIN)
            rows[i / 64] &= ~(UINT64_C(1) << (i % 64));
}

/* Split the rows by the fact. A pair of different variables that happens to be equal (two biases
 * that are still zero) is no example at all: such pairs can only argue against. */
static tocsin_drop find_examples(struct judge *judge, size_t fact, tocsin_invariant *invariant,
                                 uint64_t *fingerprint)
{
    const tocsin_table *table = judge->table;
    size_t words = judge->clauses.words;
    memset(judge->positives, 0, words * sizeof *judge->positives);
    memset(judge->negatives, 0, words * sizeof *judge->negatives);
    tocsin_fact_key key = tocsin_fact_get_key(judge->vocabulary, invariant->fact);
    for (size_t i = 0; i < table->rows.count; ++i)
        tocsin_bits_set(judge->negatives, i);
    leave_out_cast(judge, key, judge->negatives);
    uint64_t runs = 0;
    invariant->instances = 0;
    for (size_t i = judge->cell_begin[fact]; i < judge->cell_begin[fact + 1]; ++i) {
        const tocsin_cell *cell = judge->cells[i];
        const tocsin_row *row = &table->rows.items[cell->row];
        assert(cell->count > 0 && cell->count <= row->count);
        if (!tocsin_bits_test(judge->negatives, cell->row))
            continue;
        if (cell->count < row->count && !row->contrast)
            return TOCSIN_DROP_CONTRADICTORY;
        if (cell->count < row->count)
            continue;
        judge->negatives[cell->row / 64] &= ~(UINT64_C(1) << (cell->row % 64));
        if (row->contrast)
            continue;
        tocsin_bits_set(judge->positives, cell->row);
        invariant->instances += cell->count;
        runs |= row->runs;
    }
    invariant->runs = (uint32_t)__builtin_popcountll(runs);
    *fingerprint = 0;
    for (size_t i = 0; i < table->rows.count; ++i) {
        const tocsin_row *row = &table->rows.items[i];
        uint64_t count = row->count * 2 + tocsin_bits_test(judge->positives, i);
        *fingerprint += tocsin_mix64(judge->row_hashes[i] ^ tocsin_mix64(count));
    }
    return tocsin_bits_any(judge->positives, words) ? TOCSIN_DROP_KEPT
                                                    : TOCSIN_DROP_NO_PRECONDITION;
}

/* Does fact `index` say "return.ndim equals ARGUMENT.ndim", of the argument named by `stem` bytes?
 */
static bool is_ndim_match(const struct judge *judge, size_t index, const char *argument,
                          size_t stem)
{
    tocsin_fact_key fact = tocsin_fact_get_key(judge->vocabulary, judge->table->facts.items[index]);
    const char *other = tocsin_symbol_text(judge->vocabulary, fact.other);
    return fact.predicate == TOCSIN_PREDICATE_RETURN_MATCHES &&
           strncmp(other, argument, stem) == 0 && strcmp(other + stem, ".ndim") == 0;
}

/* A first size shared with an argument of other rank is a coincidence: a batch as large as the
 * layer is wide. Has the argument the result's rank in all positives? */
static bool has_rank_of_result(const struct judge *judge, const char *argument, size_t stem)
{
    const tocsin_table *table = judge->table;
    size_t fact = 0, positives = 0, ranks = 0;
    while (fact < table->facts.count && !is_ndim_match(judge, fact, argument, stem))
        ++fact;
    if (fact == table->facts.count)
        return false;
    for (size_t w = 0; w < judge->clauses.words; ++w)
        positives += (size_t)__builtin_popcountll(judge->positives[w]);
    for (size_t i = judge->cell_begin[fact]; i < judge->cell_begin[fact + 1]; ++i)
        ranks += tocsin_bits_test(judge->positives, judge->cells[i]->row) &&
                 judge->cells[i]->count == table->rows.items[judge->cells[i]->row].count;
    return ranks == positives;
}

/* "return.dtype = arg.input.dtype" where both were always float32 says nothing about equality; a
 * shape shared with a parameter is the model's architecture. */
static tocsin_drop weigh_match(const struct judge *judge, tocsin_fact_key fact)
{
    const char *other = tocsin_symbol_text(judge->vocabulary, fact.other);
    const char *dot = strrchr(other, '.');
    size_t stem = dot != NULL ? (size_t)(dot - other) : strlen(other);
    tocsin_scalar seen = 0;
    bool varied = false;
    if (strcmp(other + stem, ".shape[0]") == 0 && !has_rank_of_result(judge, other, stem))
        return TOCSIN_DROP_SIZE_COINCIDENCE;
    for (size_t i = 0; i < judge->table->rows.count; ++i) {
        const tocsin_row *row = &judge->table->rows.items[i];
        for (uint32_t f = 0; tocsin_bits_test(judge->positives, i) && f < row->field_count; ++f) {
            const tocsin_field *field = &row->fields[f];
            const char *name = tocsin_symbol_text(judge->vocabulary, field->name);
            bool flag =
                strncmp(name, other, stem) == 0 && strcmp(name + stem, ".is_parameter") == 0;
            if (flag && tocsin_scalar_literal(judge->vocabulary, field->a).integer != 0)
                return TOCSIN_DROP_SIZE_COINCIDENCE;
            varied |= field->name == fact.other && seen != 0 && field->a != seen;
            seen = field->name == fact.other ? field->a : seen;
        }
    }
    /* A shape is no field: of its values nothing is known. */
    return seen != 0 && !varied ? TOCSIN_DROP_SAME_CONSTANT : TOCSIN_DROP_KEPT;
}

/* Without a tensor among its arguments a function makes tensors in the precision that it is told or
 * that is the default: the user's choice. */
static bool is_factory_precision(const struct judge *judge, const tocsin_invariant *invariant)
{
    tocsin_fact_key fact = tocsin_fact_get_key(judge->vocabulary, invariant->fact);
    if (fact.predicate != TOCSIN_PREDICATE_RETURN_IS ||
        !tocsin_bias_is_tensor_dtype(tocsin_symbol_text(judge->vocabulary, fact.name)))
        return false;
    for (size_t i = 0; i < judge->table->rows.count; ++i) {
        const tocsin_row *row = &judge->table->rows.items[i];
        for (uint32_t f = 0; tocsin_bits_test(judge->positives, i) && f < row->field_count; ++f)
            if (tocsin_bias_is_tensor_dtype(
                    tocsin_symbol_text(judge->vocabulary, row->fields[f].name)))
                return false;
    }
    return true;
}

/* Does the table have a fact like this one of another predicate or value? */
static size_t facts_like(const struct judge *judge, tocsin_fact_key wanted, bool any_value)
{
    size_t count = 0;
    for (size_t i = 0; i < judge->table->facts.count; ++i) {
        tocsin_fact_key key = tocsin_fact_get_key(judge->vocabulary, judge->table->facts.items[i]);
        count += key.predicate == wanted.predicate && key.name == wanted.name &&
                 key.other == wanted.other && (any_value || key.value == wanted.value);
    }
    return count;
}

/* A limit counts that was reached at least once, and a size that varied. */
static bool is_size_shown(const struct judge *judge, tocsin_fact_key key)
{
    const char *other = tocsin_symbol_text(judge->vocabulary, key.other);
    const char *dot = strrchr(other, '.');
    if (key.predicate == TOCSIN_PREDICATE_RETURN_AT_MOST ||
        key.predicate == TOCSIN_PREDICATE_RETURN_AT_LEAST) {
        key.predicate = TOCSIN_PREDICATE_RETURN_MATCHES;
        return facts_like(judge, key, false) > 0;
    }
    if (key.predicate != TOCSIN_PREDICATE_RETURN_MATCHES || dot == NULL ||
        strcmp(dot, ".length") != 0)
        return true;
    return facts_like(judge,
                      (tocsin_fact_key){.predicate = TOCSIN_PREDICATE_RETURN_IS, .name = key.name},
                      true) > 1;
}

static tocsin_drop weigh_evidence(const struct judge *judge, const tocsin_invariant *invariant)
{
    if (needs_two_runs(judge) && invariant->runs < 2)
        return TOCSIN_DROP_ONE_RUN;
    if (judge->table->wide)
        return TOCSIN_DROP_KEPT;
    if (!tocsin_bits_any(judge->negatives, judge->clauses.words) &&
        tocsin_bias_wants_contrast(judge->vocabulary, invariant->fact))
        return TOCSIN_DROP_NEVER_VARIED;
    if (is_factory_precision(judge, invariant))
        return TOCSIN_DROP_OPTION;
    tocsin_fact_key key = tocsin_fact_get_key(judge->vocabulary, invariant->fact);
    if (!is_size_shown(judge, key))
        return TOCSIN_DROP_NEVER_REACHED;
    return key.predicate == TOCSIN_PREDICATE_RETURN_MATCHES ? weigh_match(judge, key)
                                                            : TOCSIN_DROP_KEPT;
}

static tocsin_status deduce(struct judge *judge, tocsin_fact fact, const uint64_t *positives,
                            const uint64_t *negatives, tocsin_deduction *deduction,
                            tocsin_error *error)
{
    if (!tocsin_bits_any(negatives, judge->clauses.words)) { /* nothing to explain */
        *deduction = (tocsin_deduction){.found = true, .count = 1};
        return TOCSIN_OK;
    }
    if (judge->clauses.clauses == NULL)
        TOCSIN_TRY(tocsin_clause_table_build(judge->vocabulary, judge->table, &judge->clause_arena,
                                             &judge->clauses, error));
    tocsin_question question = {.clauses = &judge->clauses,
                                .weights = judge->weights,
                                .positives = positives,
                                .negatives = negatives};
    TOCSIN_TRY(tocsin_clause_candidates(judge->vocabulary, &judge->clauses, fact, positives,
                                        &judge->scratch, &question.candidates,
                                        &question.candidate_count, error));
    return tocsin_deduce(&question, &judge->scratch, deduction, error);
}

/* Cases that only one run has met are too special to be claimed. What is left is still safe. */
static tocsin_status drop_special_groups(struct judge *judge, tocsin_deduction *deduction,
                                         tocsin_error *error)
{
    uint64_t *rows = TOCSIN_ARENA_ARRAY(&judge->scratch, uint64_t, judge->clauses.words);
    if (rows == NULL)
        return tocsin_error_memory(error);
    size_t kept = 0;
    for (size_t g = 0; g < deduction->count; ++g) {
        tocsin_deduction one = {.found = true, .count = 1, .groups = {deduction->groups[g]}};
        tocsin_deduction_rows(&judge->clauses, &one, rows);
        if (!is_one_run(runs_of(judge, rows, judge->positives)))
            deduction->groups[kept++] = deduction->groups[g];
    }
    deduction->count = kept;
    return TOCSIN_OK;
}

/* The precondition, or where none is safe, and learning is wide, when the fact is false: it holds
 * unless. Such a claim reaches farther than what was seen. `rows`: where the claim applies. */
static tocsin_status deduce_either(struct judge *judge, tocsin_fact fact, const uint64_t *positives,
                                   const uint64_t *negatives, tocsin_deduction *deduction,
                                   bool *inverted, uint64_t *rows, tocsin_error *error)
{
    TOCSIN_TRY(deduce(judge, fact, positives, negatives, deduction, error));
    *inverted = !deduction->found && judge->table->wide;
    if (*inverted)
        TOCSIN_TRY(deduce(judge, fact, negatives, positives, deduction, error));
    tocsin_deduction_rows(&judge->clauses, deduction, rows);
    for (size_t i = 0; *inverted && i < judge->clauses.row_count; ++i)
        rows[i / 64] ^= UINT64_C(1) << (i % 64);
    return TOCSIN_OK;
}

/* Run `run` left out, what do the others teach: an alarm on it, or a claim that it confirms? */
static tocsin_status test_left_out(struct judge *judge, tocsin_fact fact, uint32_t run, bool *alarm,
                                   uint32_t *confirmed, tocsin_error *error)
{
    size_t words = judge->clauses.words;
    uint64_t *sets = TOCSIN_ARENA_ARRAY(&judge->scratch, uint64_t, words * 5);
    if (sets == NULL)
        return tocsin_error_memory(error);
    uint64_t *positives = sets, *negatives = sets + words, *unseen = sets + words * 2;
    uint64_t *rows = sets + words * 3, *of_run = sets + words * 4;
    memcpy(positives, judge->positives, words * sizeof *positives);
    memcpy(negatives, judge->negatives, words * sizeof *negatives);
    memset(unseen, 0, words * sizeof *unseen);
    memset(of_run, 0, words * sizeof *of_run);
    bool shared = false;
    for (size_t i = 0; i < judge->clauses.row_count; ++i) {
        uint64_t runs = judge->table->rows.items[i].runs, bit = UINT64_C(1) << (i % 64);
        if ((runs >> run & 1) == 0)
            continue;
        of_run[i / 64] |= positives[i / 64] & bit;
        shared |= !is_one_run(runs) && (positives[i / 64] & bit) != 0;
        if (!is_one_run(runs))
            continue;
        unseen[i / 64] |= negatives[i / 64] & bit;
        positives[i / 64] &= ~bit;
        negatives[i / 64] &= ~bit;
    }
    bool contradicted = tocsin_bits_any(unseen, words);
    if (!contradicted && shared) /* what it shares with others, they teach */
        ++*confirmed;
    if ((!contradicted && (shared || !tocsin_bits_any(of_run, words))) ||
        !tocsin_bits_any(positives, words))
        return TOCSIN_OK;
    tocsin_deduction deduction;
    bool inverted;
    TOCSIN_TRY(
        deduce_either(judge, fact, positives, negatives, &deduction, &inverted, rows, error));
    if (!deduction.found)
        return TOCSIN_OK;
    *alarm = tocsin_bits_meet(rows, unseen, words);
    *confirmed += tocsin_bits_meet(rows, of_run, words);
    return TOCSIN_OK;
}

static bool holds_everywhere(const struct judge *judge, const tocsin_clause *clause,
                             const uint64_t *rows)
{
    for (size_t i = 0; i < judge->table->rows.count; ++i) {
        const tocsin_row *row = &judge->table->rows.items[i];
        if ((rows == NULL || tocsin_bits_test(rows, i)) &&
            !tocsin_clause_holds(clause, row->fields, row->field_count))
            return false;
    }
    return true;
}

/* The clauses of context that stay in every precondition of this fact: at most `limit`. */
static size_t find_context(const struct judge *judge, tocsin_clause *context, size_t limit)
{
    size_t count = 0, first = 0;
    while (!tocsin_bits_test(judge->positives, first))
        ++first;
    const tocsin_row *row = &judge->table->rows.items[first];
    for (uint32_t f = 0; f < row->field_count && count < limit; ++f) {
        const tocsin_field *field = &row->fields[f];
        tocsin_context kind =
            tocsin_bias_context(judge->vocabulary, judge->table->population, field->name);
        if (kind == TOCSIN_CONTEXT_NONE || field->a == 0 || field->a != field->b)
            continue;
        tocsin_clause clause = {
            .kind = TOCSIN_CLAUSE_CONSTANT, .field = field->name, .value = field->a};
        if (holds_everywhere(judge, &clause, kind == TOCSIN_CONTEXT_MODE ? NULL : judge->positives))
            context[count++] = clause;
    }
    return count;
}

static tocsin_status write_precondition(const struct judge *judge,
                                        const tocsin_deduction *deduction,
                                        tocsin_precondition *when, tocsin_error *error)
{
    tocsin_clause context[CONTEXT_MAX];
    size_t context_count = judge->table->wide ? 0 : find_context(judge, context, CONTEXT_MAX);
    tocsin_conjunction *any =
        TOCSIN_ARENA_ARRAY(judge->arena, tocsin_conjunction, deduction->count);
    if (any == NULL)
        return tocsin_error_memory(error);
    for (size_t g = 0; g < deduction->count; ++g) {
        const tocsin_group *group = &deduction->groups[g];
        tocsin_clause *clauses =
            TOCSIN_ARENA_ARRAY(judge->arena, tocsin_clause, group->count + context_count);
        if (clauses == NULL)
            return tocsin_error_memory(error);
        uint32_t count = 0;
        for (size_t i = 0; i < group->count; ++i)
            clauses[count++] = judge->clauses.clauses[group->clauses[i]];
        for (size_t c = 0; c < context_count; ++c) {
            bool there = false;
            for (size_t i = 0; i < group->count; ++i)
                there |= memcmp(&clauses[i], &context[c], sizeof context[c]) == 0;
            if (!there)
                clauses[count++] = context[c];
        }
        any[g] = (tocsin_conjunction){.count = count, .clauses = clauses};
    }
    /* One empty conjunction is the unconditional precondition, which has none. */
    bool unconditional = deduction->count == 1 && any[0].count == 0;
    *when = (tocsin_precondition){.count = unconditional ? 0 : (uint32_t)deduction->count,
                                  .any = unconditional ? NULL : any};
    return TOCSIN_OK;
}

/* The deduction and what must be true of it. */
static tocsin_status explain(struct judge *judge, tocsin_hypothesis *hypothesis,
                             tocsin_error *error)
{
    tocsin_invariant *invariant = &hypothesis->invariant;
    tocsin_deduction deduction;
    bool inverted;
    uint64_t *rows = TOCSIN_ARENA_ARRAY(&judge->scratch, uint64_t, judge->clauses.words);
    if (rows == NULL)
        return tocsin_error_memory(error);
    TOCSIN_TRY(deduce_either(judge, invariant->fact, judge->positives, judge->negatives, &deduction,
                             &inverted, rows, error));
    if (!deduction.found) {
        hypothesis->drop = TOCSIN_DROP_NO_PRECONDITION;
        return TOCSIN_OK;
    }
    if (needs_two_runs(judge) && !inverted)
        TOCSIN_TRY(drop_special_groups(judge, &deduction, error));
    if (deduction.count == 0) {
        hypothesis->drop = TOCSIN_DROP_ONE_RUN_PRECONDITION;
        return TOCSIN_OK;
    }
    bool alarm = false;
    for (uint32_t run = 0; judge->run_count > 1 && run < judge->run_count && !alarm; ++run)
        TOCSIN_TRY(test_left_out(judge, invariant->fact, run, &alarm, &invariant->held_out, error));
    if (alarm) {
        hypothesis->drop = TOCSIN_DROP_NOT_STABLE;
        return TOCSIN_OK;
    }
    TOCSIN_TRY(write_precondition(judge, &deduction, &invariant->when, error));
    invariant->when.inverted = inverted;
    assert(!inverted || invariant->when.count > 0);
    return TOCSIN_OK;
}

static tocsin_status judge_fact(struct judge *judge, size_t fact, tocsin_hypothesis *hypothesis,
                                tocsin_error *error)
{
    const tocsin_table *table = judge->table;
    *hypothesis = (tocsin_hypothesis){
        .drop = (tocsin_drop)table->drops.items[fact],
        .invariant = {.population = table->population, .fact = table->facts.items[fact]}};
    if (hypothesis->drop == TOCSIN_DROP_KEPT && table->internal && !table->wide)
        hypothesis->drop = TOCSIN_DROP_OPTIMIZER_INTERNAL;
    if (hypothesis->drop == TOCSIN_DROP_KEPT && table->overflow)
        hypothesis->drop = TOCSIN_DROP_TOO_MANY;
    if (hypothesis->drop == TOCSIN_DROP_KEPT)
        hypothesis->drop =
            find_examples(judge, fact, &hypothesis->invariant, &hypothesis->fingerprint);
    if (hypothesis->drop == TOCSIN_DROP_KEPT)
        hypothesis->drop = weigh_evidence(judge, &hypothesis->invariant);
    if (hypothesis->drop != TOCSIN_DROP_KEPT)
        return TOCSIN_OK;
    tocsin_arena_mark mark = tocsin_arena_get_mark(&judge->scratch);
    tocsin_status status = explain(judge, hypothesis, error);
    tocsin_arena_reset_to(&judge->scratch, mark);
    return status;
}

static tocsin_status prepare(struct judge *judge, tocsin_error *error)
{
    const tocsin_table *table = judge->table;
    size_t rows = table->rows.count, words = tocsin_bits_words(rows);
    judge->clauses = (tocsin_clause_table){.row_count = rows, .words = words};
    judge->weights = TOCSIN_ARENA_ARRAY(&judge->scratch, uint64_t, rows);
    judge->row_hashes = TOCSIN_ARENA_ARRAY(&judge->scratch, uint64_t, rows);
    judge->positives = TOCSIN_ARENA_ARRAY(&judge->scratch, uint64_t, words);
    judge->negatives = TOCSIN_ARENA_ARRAY(&judge->scratch, uint64_t, words);
    if (judge->weights == NULL || judge->row_hashes == NULL || judge->positives == NULL ||
        judge->negatives == NULL)
        return tocsin_error_memory(error);
    for (size_t i = 0; i < rows; ++i) {
        const tocsin_row *row = &table->rows.items[i];
        judge->weights[i] = row->count;
        judge->row_hashes[i] =
            tocsin_hash64(row->fields, row->field_count * sizeof *row->fields, 0);
    }
    return sort_cells(judge, error);
}

/* Is there a fact left to judge? */
static bool has_work(const tocsin_table *table)
{
    bool judged = false;
    for (size_t i = 0; i < table->facts.count && !judged; ++i)
        judged = table->drops.items[i] == TOCSIN_DROP_KEPT;
    return judged && !table->overflow && (!table->internal || table->wide);
}

static int compare_hypotheses(const void *a, const void *b, void *vocabulary)
{
    const tocsin_hypothesis *x = a, *y = b;
    return tocsin_fact_compare(vocabulary, x->invariant.fact, y->invariant.fact);
}

static bool has_clause(const tocsin_conjunction *all, const tocsin_clause *clause)
{
    for (uint32_t i = 0; i < all->count; ++i)
        if (memcmp(&all->clauses[i], clause, sizeof *clause) == 0)
            return true;
    return false;
}

/* Does b hold wherever a holds, seen from their clauses? */
static bool narrows(const tocsin_precondition *a, const tocsin_precondition *b)
{
    bool all = b->count == 0 || a->count > 0;
    for (uint32_t i = 0; i < a->count && b->count > 0 && all; ++i) {
        bool any = false;
        for (uint32_t j = 0; j < b->count && !any; ++j) {
            any = true;
            for (uint32_t c = 0; c < b->any[j].count && any; ++c)
                any = has_clause(&a->any[i], &b->any[j].clauses[c]);
        }
        all = any;
    }
    return all;
}

/* Does "return.shape equals arg.x.shape" say `fact`, or "return.dtype equals arg.x.dtype" a
 * constant dtype? Both of one population. */
static bool says(const tocsin_vocabulary *vocabulary, const tocsin_invariant *strong,
                 const tocsin_invariant *weak)
{
    tocsin_fact_key a = tocsin_fact_get_key(vocabulary, strong->fact);
    tocsin_fact_key b = tocsin_fact_get_key(vocabulary, weak->fact);
    const char *a_name = tocsin_symbol_text(vocabulary, a.name);
    const char *a_dot = strrchr(a_name, '.');
    if (a.predicate != TOCSIN_PREDICATE_RETURN_MATCHES || strong == weak || a_dot == NULL ||
        !narrows(&weak->when, &strong->when))
        return false;
    if (b.predicate == TOCSIN_PREDICATE_RETURN_IS)
        return a.name == b.name && strcmp(a_dot, ".dtype") == 0;
    if (b.predicate != TOCSIN_PREDICATE_RETURN_MATCHES || strcmp(a_dot, ".shape") != 0)
        return false;
    const char *b_name = tocsin_symbol_text(vocabulary, b.name);
    const char *a_other = tocsin_symbol_text(vocabulary, a.other);
    const char *b_other = tocsin_symbol_text(vocabulary, b.other);
    size_t stem = strlen(a_other) - strlen(".shape");
    if (strlen(a_other) < strlen(".shape"))
        return false; /* only in files that no observer made */
    return strncmp(a_other, b_other, stem) == 0 &&
           (strcmp(b_other + stem, ".ndim") == 0 || strcmp(b_other + stem, ".shape[0]") == 0) &&
           strncmp(a_name, b_name, (size_t)(a_dot - a_name) + 1) == 0;
}

static void drop_said(const tocsin_vocabulary *vocabulary, tocsin_hypothesis *hypotheses,
                      size_t count)
{
    for (size_t weak = 0; weak < count; ++weak)
        for (size_t strong = 0; strong < count; ++strong)
            if (hypotheses[weak].drop == TOCSIN_DROP_KEPT &&
                hypotheses[strong].drop == TOCSIN_DROP_KEPT &&
                says(vocabulary, &hypotheses[strong].invariant, &hypotheses[weak].invariant))
                hypotheses[weak].drop = TOCSIN_DROP_IMPLIED;
}

tocsin_status tocsin_hypotheses_judge(const tocsin_vocabulary *vocabulary,
                                      const tocsin_table *table, uint32_t run_count,
                                      tocsin_arena *arena, tocsin_hypothesis **hypotheses,
                                      size_t *count, tocsin_error *error)
{
    struct judge judge = {
        .vocabulary = vocabulary, .table = table, .run_count = run_count, .arena = arena};
    assert(run_count >= 1 && run_count <= TOCSIN_INFER_RUNS_MAX);
    *count = table->facts.count;
    *hypotheses = TOCSIN_ARENA_ARRAY(arena, tocsin_hypothesis, *count);
    tocsin_status status = *hypotheses == NULL ? tocsin_error_memory(error) : TOCSIN_OK;
    if (status == TOCSIN_OK && has_work(table))
        status = prepare(&judge, error);
    for (size_t i = 0; i < *count && status == TOCSIN_OK; ++i)
        status = judge_fact(&judge, i, &(*hypotheses)[i], error);
    if (status == TOCSIN_OK && *count > 1)
        qsort_r(*hypotheses, *count, sizeof **hypotheses, compare_hypotheses,
                (void *)(uintptr_t)vocabulary);
    if (status == TOCSIN_OK && !table->wide)
        drop_said(vocabulary, *hypotheses, *count);
    tocsin_arena_free(&judge.scratch);
    tocsin_arena_free(&judge.clause_arena);
    return status;
}
