/* lib/infer/infer.h - the parts of inference. The one header of the module.
 *
 *   instances -> example tables -> bytes -> sum of all runs -> clauses -> preconditions
 *
 * 1 bits   2 what may be said   3 example tables   4 clauses   5 deduction   6 learning
 *
 * All learning happens on tables in which equal circumstances (field vectors) are one row, so its
 * cost depends on how many different circumstances there are and not on the length of the runs.
 */
#ifndef TOCSIN_LIB_INFER_H
#define TOCSIN_LIB_INFER_H

#include <base/base.h>
#include <invariant/instance.h>
#include <stdbool.h>
#include <stdint.h>
#include <tocsin/infer.h>

#define TOCSIN_INFER_RUNS_MAX       TOCSIN_REFERENCES_MAX /* run sets are one word */
#define TOCSIN_INFER_ROWS_MAX       16384     /* different circumstances in one population */
#define TOCSIN_INFER_CELLS_MAX      (1 << 22) /* (circumstance, fact) in one population */
#define TOCSIN_INFER_FILE_BYTES_MAX ((size_t)1 << 30)

/* ---- 1. Bits: sets of rows, `words` words each, bits past the last row 0 -------------------- */

static inline size_t tocsin_bits_words(size_t count)
{
    return (count + 63) / 64;
}

static inline void tocsin_bits_set(uint64_t *bits, size_t index)
{
    bits[index / 64] |= UINT64_C(1) << (index % 64);
}

static inline bool tocsin_bits_test(const uint64_t *bits, size_t index)
{
    return (bits[index / 64] >> (index % 64)) & 1;
}

static inline bool tocsin_bits_any(const uint64_t *bits, size_t words)
{
    for (size_t i = 0; i < words; ++i)
        if (bits[i])
            return true;
    return false;
}

/* a & b, empty? */
static inline bool tocsin_bits_meet(const uint64_t *a, const uint64_t *b, size_t words)
{
    for (size_t i = 0; i < words; ++i)
        if (a[i] & b[i])
            return true;
    return false;
}

/* Is a a subset of b? */
static inline bool tocsin_bits_within(const uint64_t *a, const uint64_t *b, size_t words)
{
    for (size_t i = 0; i < words; ++i)
        if (a[i] & ~b[i])
            return false;
    return true;
}

static inline void tocsin_bits_and(uint64_t *to, const uint64_t *from, size_t words)
{
    for (size_t i = 0; i < words; ++i)
        to[i] &= from[i];
}

/* ---- 2. What may be said (bias.c) ----------------------------------------------------------- */

/* "Wide" learning has no bias but that identities explain nothing: the facts of all populations are
 * claimed, and fields of any kind may explain them (docs/inference.md). */

/* Why hypotheses are dropped: X(NAME, "reason"). KEPT is no reason. */
#define TOCSIN_DROP_TABLE(X)                                                                       \
    X(KEPT, "")                                                                                    \
    X(UNSTABLE_ORDER, "order is learned between the steps of the training loop only")              \
    X(OPTIMIZER_INTERNAL, "works inside an optimizer, clipping or a schedule, which differ")       \
    X(ARCHITECTURE, "what a model calls is its architecture")                                      \
    X(DATA_FLOW, "which tensors meet in a call is the model's data flow")                          \
    X(MAGNITUDE, "a number: a hyper-parameter or a size")                                          \
    X(OPTION, "an option of an object or a factory: the user's choice")                            \
    X(NEVER_VARIED, "a choice that never varied in the runs may be varied by the user")            \
    X(SAME_CONSTANT, "both sides never varied: equal by coincidence")                              \
    X(NEVER_REACHED, "a limit that was never reached, or a size that never varied")                \
    X(SIZE_COINCIDENCE, "the size of a parameter or of an argument of another rank")               \
    X(ONE_RUN, "seen in one run only")                                                             \
    X(CONTRADICTORY, "superficial: true and false in the same circumstances")                      \
    X(NO_PRECONDITION, "superficial: no safe precondition")                                        \
    X(ONE_RUN_PRECONDITION, "its precondition was met in one run only")                            \
    X(NOT_STABLE, "not stable over runs: learned from the others, it alarms on one of them")       \
    X(IMPLIED, "another invariant says it, and more")                                              \
    X(SAID_OF_ROLE, "the same is said of the function's role")                                     \
    X(TOO_MANY, "too many different circumstances")

typedef enum tocsin_drop {
#define X(name, reason) TOCSIN_DROP_##name,
    TOCSIN_DROP_TABLE(X)
#undef X
        TOCSIN_DROP_COUNT
} tocsin_drop;

const char *tocsin_drop_reason(tocsin_drop drop);

/* May this fact ever be claimed of this population? Decided before anything is counted, from what
 * kind of statement it is and never from which function or model it is about. KEPT: yes. */
tocsin_drop tocsin_bias_of_fact(const tocsin_vocabulary *vocabulary, tocsin_population population,
                                tocsin_fact fact);
/* Must the fact have been false somewhere, so that a precondition explains it? */
bool tocsin_bias_wants_contrast(const tocsin_vocabulary *vocabulary, tocsin_fact fact);
/* What the rules below ask of a field's name and of its value. Tables keep them by id, so that no
 * text is looked at for each instance. */
enum {
    TOCSIN_TRAIT_KNOWN = 1,
    TOCSIN_TRAIT_IDENTITY = 2, /* of names */
    TOCSIN_TRAIT_SHAPE = 4,
    TOCSIN_TRAIT_ARGUMENT = 8,
    TOCSIN_TRAIT_COUNTED = 16,  /* its whole numbers are no sizes */
    TOCSIN_TRAIT_WHOLE = 32,    /* of values: a whole number */
    TOCSIN_TRAIT_NUMBER = 64,   /* any other number */
    TOCSIN_TRAIT_CONTRAST = 128 /* of names: may tell that an instance can only argue against */
};
uint8_t tocsin_bias_name_traits(const char *name);
uint8_t tocsin_bias_value_traits(const tocsin_vocabulary *vocabulary, tocsin_scalar value);
/* Does the field say that nothing is to be claimed of the instance, so that it can only argue
 * against: a pair that are no copies of each other, a parameter that the optimizer does not hold?
 */
bool tocsin_bias_is_contrast(const tocsin_vocabulary *vocabulary, tocsin_population population,
                             bool wide, const tocsin_field *field);
/* May clauses of preconditions speak of this field? */
bool tocsin_bias_allows_field(bool wide, tocsin_relation_kind relation, bool pair, uint8_t name,
                              uint8_t value);
/* Is "field = constant" a clause? (Else only whether it is present, or equal in both halves.) */
bool tocsin_bias_allows_constant(const tocsin_vocabulary *vocabulary, bool wide,
                                 tocsin_symbol field, tocsin_scalar value);
/* An invariant may hold only in contexts like those it was seen in. Then a constant of such a field
 * stays in the precondition though nothing contradicts leaving it out:
 *   PRECISION  when it is constant where the fact was true
 *   MODE       when it never varied at all; else deduction knows whether it matters */
typedef enum tocsin_context {
    TOCSIN_CONTEXT_NONE,
    TOCSIN_CONTEXT_PRECISION,
    TOCSIN_CONTEXT_MODE
} tocsin_context;

tocsin_context tocsin_bias_context(const tocsin_vocabulary *vocabulary,
                                   tocsin_population population, tocsin_symbol field);
bool tocsin_bias_is_tensor_dtype(const char *field);
/* Would a clause about `field` repeat the fact? */
bool tocsin_bias_is_about(const tocsin_vocabulary *vocabulary, tocsin_fact fact,
                          tocsin_symbol field);
/* Smaller: kept first when either of two clauses would do. */
int tocsin_bias_preference(const tocsin_vocabulary *vocabulary, const tocsin_clause *clause);

/* ---- 3. Example tables (example_table.c) ---------------------------------------------------- */

/* A row: one field vector. A cell: (row, fact) with the instances in which the fact was true. */
typedef struct tocsin_row {
    const tocsin_field *fields; /* ascending by symbol; only fields that clauses may speak of */
    uint32_t field_count;
    bool contrast;  /* nothing is to be claimed of them: may only argue against */
    uint64_t count; /* instances */
    uint64_t runs;  /* set of runs */
} tocsin_row;

typedef struct tocsin_cell {
    uint32_t row;
    uint32_t fact; /* index in the table's facts */
    uint64_t count;
} tocsin_cell;

typedef struct tocsin_table {
    tocsin_population population;
    tocsin_relation_kind relation; /* of the population */
    bool pair;
    bool wide;             /* of the examples */
    bool internal;         /* calls of a function that works inside an optimizer or the like */
    bool overflow;         /* a limit was reached: nothing is learned from this table */
    tocsin_intern vectors; /* field vector -> row + 1 */
    TOCSIN_VEC(tocsin_row) rows;
    TOCSIN_VEC(tocsin_fact) facts; /* by first appearance */
    TOCSIN_VEC(uint8_t) drops;     /* tocsin_drop of each fact */
    tocsin_map fact_index;         /* fact -> index + 1 */
    TOCSIN_VEC(tocsin_cell) cells;
    tocsin_map cell_index; /* row << 32 | fact index -> cell + 1 */
} tocsin_table;

/* All populations of all runs. Filled by one thread, then read by many. */
typedef struct tocsin_examples {
    tocsin_vocabulary *vocabulary; /* borrowed */
    bool wide;
    uint32_t run; /* the run that is being added */
    TOCSIN_VEC(tocsin_table *) tables;
    tocsin_map table_index;           /* population -> table + 1 */
    TOCSIN_VEC(uint8_t) name_traits;  /* by symbol; 0: not asked yet */
    TOCSIN_VEC(uint8_t) value_traits; /* by scalar */
    tocsin_scalar halves[2];          /* of an identity in a pair: other, the same; 0: not yet */
    tocsin_string key;                /* scratch */
} tocsin_examples;

/* A tocsin_instance_sink; `context` is a tocsin_examples. */
TOCSIN_MUST_CHECK tocsin_status tocsin_examples_add(void *context, const tocsin_instance *instance,
                                                    tocsin_error *error);
/* Set `internal` of the tables it is true of (internals.c). */
TOCSIN_MUST_CHECK tocsin_status tocsin_examples_mark_internal(tocsin_examples *examples,
                                                              tocsin_error *error);
void tocsin_examples_free(tocsin_examples *examples);

/* The parts of _add, for readers of counted examples. The table of a population; NULL: no memory.
 */
tocsin_table *tocsin_examples_table(tocsin_examples *examples, tocsin_population population);
/* The row whose fields stand in examples->key; *index is left alone when the table is full, which
 * sets `overflow`. */
TOCSIN_MUST_CHECK tocsin_status tocsin_table_row(const tocsin_examples *examples,
                                                 tocsin_table *table, bool contrast,
                                                 uint32_t *index, tocsin_error *error);
TOCSIN_MUST_CHECK tocsin_status tocsin_table_fact(const tocsin_examples *examples,
                                                  tocsin_table *table, tocsin_fact fact,
                                                  uint32_t *index, tocsin_error *error);
/* The count of a cell; *count is NULL when the table is full. */
TOCSIN_MUST_CHECK tocsin_status tocsin_table_cell(tocsin_table *table, uint32_t row, uint32_t fact,
                                                  uint64_t **count, tocsin_error *error);

/* Append what was counted, in terms of no vocabulary; add it again, as the run examples->run. After
 * a failed _decode the examples are good for _free only. Errors: E_FORMAT, E_LIMIT, E_MEMORY. */
TOCSIN_MUST_CHECK tocsin_status tocsin_examples_encode(const tocsin_examples *examples,
                                                       tocsin_string *out, tocsin_error *error);
TOCSIN_MUST_CHECK tocsin_status tocsin_examples_decode(tocsin_examples *examples, const char *bytes,
                                                       size_t count, const char *where,
                                                       tocsin_error *error);

/* ---- 4. Clauses (clause_table.c) ------------------------------------------------------------ */

/* Every clause that can be said of a table's rows, and where it is true, in order of preference. */
typedef struct tocsin_clause_table {
    size_t row_count;
    size_t words;
    size_t count;
    const tocsin_clause *clauses;
    uint64_t *truth; /* count * words */
} tocsin_clause_table;

static inline const uint64_t *tocsin_clause_rows(const tocsin_clause_table *clauses, size_t index)
{
    return clauses->truth + index * clauses->words;
}

TOCSIN_MUST_CHECK tocsin_status tocsin_clause_table_build(const tocsin_vocabulary *vocabulary,
                                                          const tocsin_table *table,
                                                          tocsin_arena *arena,
                                                          tocsin_clause_table *clauses,
                                                          tocsin_error *error);
/* Indices of the clauses that may explain `fact` being true of `positives`: true of some of them,
 * not about the fact itself, and of fields that have few values there. */
TOCSIN_MUST_CHECK tocsin_status
tocsin_clause_candidates(const tocsin_vocabulary *vocabulary, const tocsin_clause_table *clauses,
                         tocsin_fact fact, const uint64_t *positives, tocsin_arena *arena,
                         const uint32_t **candidates, size_t *count, tocsin_error *error);

/* ---- 5. Deduction (deduction.c) ------------------------------------------------------------- */

#define TOCSIN_DEDUCTION_GROUPS_MAX    8
#define TOCSIN_DEDUCTION_DISJUNCTS_MAX 4
#define TOCSIN_DEDUCTION_DEPTH_MAX     3
#define TOCSIN_DEDUCTION_BUDGET        256

typedef struct tocsin_group { /* a conjunction: ascending indices into the clause table */
    const uint32_t *clauses;
    size_t count;
} tocsin_group;

typedef struct tocsin_deduction {
    bool found;
    size_t count; /* groups, any of which suffices; one empty group: unconditional */
    tocsin_group groups[TOCSIN_DEDUCTION_GROUPS_MAX];
} tocsin_deduction;

typedef struct tocsin_question {
    const tocsin_clause_table *clauses;
    const uint32_t *candidates; /* indices of usable clauses, in order of preference */
    size_t candidate_count;
    const uint64_t *weights;   /* of each row: how many instances */
    const uint64_t *positives; /* disjoint from negatives */
    const uint64_t *negatives;
} tocsin_question;

/* The weakest safe precondition: true of every positive, false of every negative, no clause of a
 * conjunction could be left out. The groups live in `arena`. */
TOCSIN_MUST_CHECK tocsin_status tocsin_deduce(const tocsin_question *question, tocsin_arena *arena,
                                              tocsin_deduction *deduction, tocsin_error *error);
/* rows: set to those where some group holds. */
void tocsin_deduction_rows(const tocsin_clause_table *clauses, const tocsin_deduction *deduction,
                           uint64_t *rows);

/* ---- 6. Learning (learn.c) ------------------------------------------------------------------ */

/* Learn from all tables, on `threads` threads, into `set` (whose vocabulary the examples use), and
 * sort it. `options` (nullable) hears of dropped hypotheses, in an order that depends on nothing
 * but the examples. */
TOCSIN_MUST_CHECK tocsin_status tocsin_learn(tocsin_examples *examples, uint32_t run_count,
                                             const tocsin_infer_options *options,
                                             tocsin_invariant_set *set,
                                             tocsin_infer_summary *summary, tocsin_error *error);

#endif
