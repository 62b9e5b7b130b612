/* lib/invariant/instance.h - instances, and how invariants are made of them. The one header of the
 * module for the layers above (infer, check).
 *
 *   1 vocabulary   2 populations and facts   3 instances   4 observer   5 invariants
 *
 * A relation turns the events of a run into instances. An instance belongs to a population, has
 * fields and makes facts true; a fact that is not in its set is false in it. An invariant says:
 * each instance of this population whose fields satisfy the precondition has this fact. Inference
 * and checking are fed by the same observer, so an invariant that is true of all instances of a run
 * can not alarm on that run.
 */
#ifndef TOCSIN_INSTANCE_H
#define TOCSIN_INSTANCE_H

#include <base/base.h>
#include <stdbool.h>
#include <stdint.h>
#include <tocsin/dictionary.h>
#include <tocsin/event.h>
#include <tocsin/invariant.h>

/* ---- 1. Vocabulary ------------------------------------------------------------------------- */

/* Names, values, populations and facts as dense ids from 1 (0: none, absent; also returned when
 * memory or the limit of 2^22 entries ran out). Equal content, equal id. Ids depend on the order of
 * first use: whatever must not depend on it is ordered with the _compare functions.
 * Threads: one writer at a time; look-ups may be concurrent while nobody writes. */
typedef struct tocsin_vocabulary tocsin_vocabulary;

typedef uint32_t tocsin_symbol;     /* a name: of a function, field, attribute, variable */
typedef uint32_t tocsin_scalar;     /* a typed value: None, True, 3, 0.1, "mean" */
typedef uint32_t tocsin_population; /* see 2 */
typedef uint32_t tocsin_fact;       /* see 2 */

typedef struct tocsin_literal { /* what a scalar stands for */
    uint8_t kind;               /* tocsin_value_kind: NONE, BOOL, INT, FLOAT or STRING */
    int64_t integer;            /* BOOL, INT */
    double real;                /* FLOAT */
    const char *text;           /* STRING */
} tocsin_literal;

TOCSIN_MUST_CHECK tocsin_status tocsin_vocabulary_new(tocsin_vocabulary **vocabulary,
                                                      tocsin_error *error);
/* A copy in which every id means the same. */
TOCSIN_MUST_CHECK tocsin_status tocsin_vocabulary_copy(const tocsin_vocabulary *vocabulary,
                                                       tocsin_vocabulary **copy,
                                                       tocsin_error *error);
void tocsin_vocabulary_free(tocsin_vocabulary *vocabulary);

TOCSIN_MUST_CHECK tocsin_symbol tocsin_symbol_of(tocsin_vocabulary *vocabulary, const char *text);
const char *tocsin_symbol_text(const tocsin_vocabulary *vocabulary, tocsin_symbol symbol);

TOCSIN_MUST_CHECK tocsin_scalar tocsin_scalar_of(tocsin_vocabulary *vocabulary,
                                                 const tocsin_literal *literal);
/* The same without adding anything; 0 when new. */
tocsin_scalar tocsin_scalar_find(const tocsin_vocabulary *vocabulary,
                                 const tocsin_literal *literal);
tocsin_literal tocsin_scalar_literal(const tocsin_vocabulary *vocabulary, tocsin_scalar scalar);
/* By kind, then by value; absent first. */
int tocsin_scalar_compare(const tocsin_vocabulary *vocabulary, tocsin_scalar a, tocsin_scalar b);

/* ---- 2. Populations and facts -------------------------------------------------------------- */

typedef enum tocsin_relation_kind {
    TOCSIN_RELATION_CONSISTENT = 1,
    TOCSIN_RELATION_CONTAIN = 2, /* EventContain, existential */
    TOCSIN_RELATION_FORALL = 3,  /* EventContain, for every variable */
    TOCSIN_RELATION_SEQUENCE = 4,
    TOCSIN_RELATION_ARGUMENT = 5,
    TOCSIN_RELATION_OUTPUT = 6,
    TOCSIN_RELATION_CHECKPOINT = 7,
    TOCSIN_RELATION_DATA = 8,
    TOCSIN_RELATION_PLAN = 9,
    TOCSIN_RELATION_USER = 10, /* tocsin/relation.h */
    TOCSIN_RELATION_COUNT = 11
} tocsin_relation_kind;

/* Every kind of population: X(number, NAME, relation, "slug in files", pair?, members of the key).
 * Numbers are of this build only; files have the slugs. */
#define TOCSIN_POPULATION_TABLE(X)                                                                 \
    X(1, REPLICAS, CONSISTENT, "replicas", 1, REPLICA)                                             \
    X(2, CALL, CONTAIN, "call", 0, CALL)                                                           \
    X(3, EFFECTIVE_CALL, CONTAIN, "effective call", 0, CALL)                                       \
    X(4, DRIVEN_PARAMETER, FORALL, "parameter with a non-zero gradient", 0, CALL)                  \
    X(5, IDLE_PARAMETER, FORALL, "parameter without gradient", 0, CALL)                            \
    X(6, FROZEN_PARAMETER, FORALL, "frozen parameter", 0, CALL)                                    \
    X(7, HELD_PARAMETER, FORALL, "parameter of the optimizer", 0, CALL)                            \
    X(8, TRAINABLE_PARAMETER, FORALL, "trainable parameter of the optimizer", 0, CALL)             \
    X(9, MODEL_PARAMETER, FORALL, "trainable parameter of the model", 0, CALL)                     \
    X(10, RETURNING_PARAMETER, FORALL, "parameter updated again", 0, CALL)                         \
    X(11, PARAMETER, FORALL, "parameter", 0, CALL)                                                 \
    X(12, GRADIENT, FORALL, "gradient", 0, CALL)                                                   \
    X(13, BUFFER, FORALL, "buffer", 0, CALL)                                                       \
    X(14, REPEATED_CALL, SEQUENCE, "repeated call", 0, CALL)                                       \
    X(15, CALL_ARGUMENTS, ARGUMENT, "call", 0, CALL)                                               \
    X(16, COLLECTIVES, ARGUMENT, "collectives", 1, NONE)                                           \
    X(17, CALL_OUTPUT, OUTPUT, "call", 0, CALL)                                                    \
    X(18, SAMPLED_CALL, CONTAIN, "sampled call", 0, CALL)                                          \
    X(19, FURTHER_CALL, ARGUMENT, "further call in a step", 0, CALL)                               \
    X(20, RESTING_VARIABLE, FORALL, "variable between steps", 0, VARIABLE)                         \
    X(21, STALLED_PARAMETER, FORALL, "half-precision parameter with gradient", 0, NONE)            \
    X(22, TIED_PAIR, FORALL, "tied parameters", 0, NONE)                                           \
    X(23, SAVED_TENSOR, CHECKPOINT, "saved tensor", 0, NONE)                                       \
    X(24, BATCH, DATA, "batch", 1, NONE)                                                           \
    X(25, EPOCH, DATA, "epoch", 0, NONE)                                                           \
    X(26, RUN, PLAN, "run", 0, NONE)                                                               \
    X(27, TRAINED_CALL, CONTAIN, "update after training mode", 0, NONE)                            \
    X(28, NEXT_BATCH, DATA, "batch after another", 0, NONE)                                        \
    X(29, UNDRIVEN_CALL, CONTAIN, "update without a backward pass", 0, NONE)                       \
    X(30, USER, USER, "user", 0, USER)                                                             \
    X(31, USER_CALL, OUTPUT, "user's call with argument", 0, ARGUMENT)                             \
    X(32, LOADED_TENSOR, CHECKPOINT, "loaded tensor", 0, NONE)                                     \
    X(33, NAMED_STATE, CHECKPOINT, "loaded optimizer state", 0, NONE)                              \
    X(34, TYPED_STATE, CHECKPOINT, "optimizer state of a checkpoint", 0, NONE)                     \
    X(35, RESUMED_UPDATE, CHECKPOINT, "first update after loading", 0, NONE)                       \
    X(36, SAVED_MODEL, CHECKPOINT, "parameter of a saved model", 0, NONE)                          \
    X(37, COPYING_RANKS, DATA, "random states of data-parallel ranks", 1, NONE)                    \
    X(38, SHARDING_RANKS, DATA, "random states of tensor-parallel ranks", 1, NONE)                 \
    X(39, WHOLE_EPOCH, DATA, "whole epoch", 0, NONE)                                               \
    X(40, LOSS, OUTPUT, "loss", 0, NONE)                                                           \
    X(41, UNSCALING, SEQUENCE, "unscaling of gradients", 0, NONE)                                  \
    X(42, SCHEDULED_UPDATE, SEQUENCE, "update after lr_scheduler.step", 0, NONE)                   \
    X(43, RECOMPUTED_CALL, ARGUMENT, "checkpointed call", 0, CALL)                                 \
    X(44, FIRST_TRAINING, SEQUENCE, "first call in training mode", 0, CALL)                        \
    X(45, LEADING_CALL, SEQUENCE, "call before another", 0, CALL)                                  \
    X(46, FROZEN_BUFFER, FORALL, "buffer of a frozen module", 0, CALL)                             \
    X(47, RENEWED_PARAMETER, FORALL, "frozen parameter registered anew", 0, NONE)                  \
    X(48, SPARED_PARAMETER, FORALL, "bias or norm beside a group without decay", 0, NONE)          \
    X(49, CHANGED_ATTRIBUTE, FORALL, "changed attribute", 0, NONE)                                 \
    X(50, TRAINING_METHOD, SEQUENCE, "train() of its own", 0, NONE)                                \
    X(51, SIBLING_PARAMETER, FORALL, "parameter of repeated layers", 0, NONE)

typedef enum tocsin_population_kind {
#define X(number, name, relation, slug, pair, members) TOCSIN_POPULATION_##name = number,
    TOCSIN_POPULATION_TABLE(X)
#undef X
        TOCSIN_POPULATION_KIND_COUNT = 52
} tocsin_population_kind;

typedef struct tocsin_population_key {
    uint8_t kind;       /* tocsin_population_kind */
    uint8_t role;       /* tocsin_role of the call; NONE: by function name */
    uint8_t variable;   /* REPLICAS, RESTING_VARIABLE: tocsin_variable_kind */
    uint8_t moment;     /* REPLICAS: tocsin_moment */
    tocsin_symbol name; /* by function name: the function; REPLICAS: the attribute; USER: relation
                           and subject, "loss/update"; USER_CALL: the argument, "arg.max_length";
                           else 0 */
} tocsin_population_key;

/* Every predicate: X(number, NAME, "slug in files", members). */
#define TOCSIN_PREDICATE_TABLE(X)                                                                  \
    X(1, EQUAL, "equal", NONE)                                                                     \
    X(2, CALLS, "calls", CALLEE) /* role or name: the callee */                                    \
    X(3, CHANGES_PARAMETER, "changes a parameter", NONE)                                           \
    X(4, FINDS_GRADIENT, "finds a gradient", NONE)                                                 \
    X(5, HOLDS_TRAINABLE, "holds a trainable parameter", NONE)                                     \
    X(6, DATA_CHANGES, "data changes", NONE)                                                       \
    X(7, DATA_STAYS, "data stays", NONE)                                                           \
    X(8, GRADIENT_PRESENT, "gradient present", NONE)                                               \
    X(9, GRADIENT_CLEARED, "gradient cleared since the previous step", NONE)                       \
    X(10, IN_OPTIMIZER, "held by an optimizer", NONE)                                              \
    X(11, IN_MODEL, "belongs to the model", NONE)                                                  \
    X(12, FINITE, "finite", NONE)                                                                  \
    X(13, FOLLOWS, "preceded by", CALLEE)        /* role or name: what was completed */            \
    X(14, ARGUMENT_IS, "argument equals", VALUE) /* name: the field; value */                      \
    X(15, DISTINCT, "arguments distinct within the step", NONE)                                    \
    X(16, SAME, "same", FIELD)                     /* name: what both ranks share */               \
    X(17, RETURN_IS, "return equals", VALUE)       /* name: "return.dtype"; value */               \
    X(18, RETURN_MATCHES, "return matches", OTHER) /* name: "return.dtype"; other: field */        \
    X(19, CHANGES, "changes", VALUE)               /* name: attribute; value: "non_zero>none" */   \
    X(20, RETURN_AT_MOST, "return at most", OTHER) /* name: "return.shape[0]"; other: field */     \
    X(21, RETURN_AT_LEAST, "return at least", OTHER)                                               \
    X(22, DIFFERS, "differs", FIELD) /* name: what differs between ranks */                        \
    X(23, MOVES, "moves within 16 updates", NONE)                                                  \
    X(24, AS_LIVE, "equals the live tensor", NONE)                                                 \
    X(25, TIED_STAYS, "tie stays", NONE)                                                           \
    X(26, DISJOINT, "no sample twice", NONE)                                                       \
    X(27, REORDERED, "in another order than before", NONE)                                         \
    X(28, STEPS_AS_PLANNED, "steps as planned", NONE)                                              \
    X(29, KEEPS_MODE, "keeps training mode", NONE)                                                 \
    X(30, NEW_DATA, "other data than the batch before", NONE)                                      \
    X(31, NEW_GRADIENTS, "other gradients than the update before", NONE)                           \
    X(32, CALLS_WITH, "calls with", ARGUMENT) /* callee; other: field; value */                    \
    X(33, CLAIM, "user", CLAIM)               /* name: in the words of a user's relation */        \
    X(34, IN_PLACE, "still as loaded", NONE)                                                       \
    X(35, OF_ITS_PARAMETER, "saved for the same parameter", NONE)                                  \
    X(36, KEEPS_DTYPE, "keeps its dtype", NONE)                                                    \
    X(37, OPTIMIZER_LOADED, "optimizer loaded", NONE)                                              \
    X(38, RATE_GOES_ON, "learning rate of the checkpoint", NONE)                                   \
    X(39, SAVED_TOO, "saved with its model", NONE)                                                 \
    X(40, COVERS, "covers the data set", NONE)                                                     \
    X(41, BEFORE_CLIPPING, "before clipping", NONE)                                                \
    X(42, KEEPS_PACE, "scheduler keeps pace", NONE)                                                \
    X(43, REDRAWS, "draws the same again", NONE)                                                   \
    X(44, NOT_EVALUATED, "not evaluated before", NONE)                                             \
    X(45, LEADS, "followed by", CALLEE) /* role or name: what was completed after it */            \
    X(46, STAYS_FROZEN, "stays frozen", NONE)                                                      \
    X(47, NOT_DECAYED, "not decayed", NONE)                                                        \
    X(48, KEPT_APART, "not overwritten by a numbering", NONE)                                      \
    X(49, CALLED_FIRST, "called before the first update", NONE)                                    \
    X(50, AS_SIBLINGS, "initialised as its siblings", NONE)

typedef enum tocsin_predicate {
#define X(number, name, slug, members) TOCSIN_PREDICATE_##name = number,
    TOCSIN_PREDICATE_TABLE(X)
#undef X
        TOCSIN_PREDICATE_COUNT = 51
} tocsin_predicate;

typedef struct tocsin_fact_key {
    uint8_t predicate; /* tocsin_predicate */
    uint8_t role;      /* CALLS, CALLS_WITH, FOLLOWS of a role */
    uint16_t zero;     /* 0: keys are compared as bytes */
    tocsin_symbol name;
    tocsin_symbol other;
    tocsin_scalar value;
} tocsin_fact_key;

TOCSIN_MUST_CHECK tocsin_population tocsin_population_of(tocsin_vocabulary *vocabulary,
                                                         const tocsin_population_key *key);
tocsin_population_key tocsin_population_get_key(const tocsin_vocabulary *vocabulary,
                                                tocsin_population population);
TOCSIN_MUST_CHECK tocsin_fact tocsin_fact_of(tocsin_vocabulary *vocabulary,
                                             const tocsin_fact_key *key);
/* The same without adding anything; 0 when new. */
tocsin_fact tocsin_fact_find(const tocsin_vocabulary *vocabulary, const tocsin_fact_key *key);
tocsin_fact_key tocsin_fact_get_key(const tocsin_vocabulary *vocabulary, tocsin_fact fact);

/* Do keys read from a file name a population, and a fact that can be stated of its kind? */
bool tocsin_population_key_exists(const tocsin_population_key *key);
bool tocsin_fact_key_exists(uint8_t population_kind, const tocsin_fact_key *key);
/* Of the numbers in keys and what they mean: files that hold keys are of builds with the same. */
uint64_t tocsin_keys_fingerprint(void);

tocsin_relation_kind tocsin_population_relation(const tocsin_vocabulary *vocabulary,
                                                tocsin_population population);
/* Are its instances pairs, whose fields have two values? */
bool tocsin_population_is_pair(const tocsin_vocabulary *vocabulary, tocsin_population population);
/* By content, independent of ids. */
int tocsin_population_compare(const tocsin_vocabulary *vocabulary, tocsin_population a,
                              tocsin_population b);
int tocsin_fact_compare(const tocsin_vocabulary *vocabulary, tocsin_fact a, tocsin_fact b);

/* Would a clause about `field` repeat the fact ("arg.p is 0.1 when arg.p is 0.1")? */
bool tocsin_fact_is_about(const tocsin_vocabulary *vocabulary, tocsin_fact fact,
                          tocsin_symbol field);
/* Does the field name an identity (pid, thread, id, address, time, step, a variable's or a target's
 * name)? Constants of such fields are no clause; observers make them in pairs only, if at all. */
bool tocsin_field_is_identity(const char *field);

/* ---- 3. Instances -------------------------------------------------------------------------- */

typedef struct tocsin_field {
    tocsin_symbol name;
    tocsin_scalar a; /* absent (0) is possible in one half of a pair only */
    tocsin_scalar b; /* pairs: of the other half; else equal to a */
} tocsin_field;

typedef struct tocsin_instance tocsin_instance;
typedef struct tocsin_invariant tocsin_invariant;

/* The exact value of a field that is only "an int" or "a float" to preconditions. */
typedef struct tocsin_number {
    tocsin_symbol name;
    tocsin_literal literal;
} tocsin_number;

typedef struct tocsin_evidence {
    int64_t step;       /* 1-based; -1: unknown */
    int32_t rank;       /* -1: not distributed */
    int32_t other_rank; /* pairs: of the other half; else -1 */
    int64_t pid;
    const char *entity; /* variable or function; lives during the sink's call */
    const char *other;  /* pairs: the other entity, when its name differs; else "" */
    const char *file;   /* call site; "" when unknown */
    uint32_t line;
    const char *function;
    uint64_t bad_count; /* NaN and Inf in the variable */
    const char *detail; /* USER: what is seen when a fact does not hold; NULL: nothing more */
    const tocsin_number *numbers;
    uint32_t number_count;
} tocsin_evidence;

struct tocsin_instance {
    tocsin_population population;
    uint32_t field_count;
    uint32_t fact_count;
    uint32_t ordinal;           /* of this call among the calls of its population in this step,
                                   from 1; 0: the population is not of calls */
    const tocsin_field *fields; /* distinct names, ascending by symbol */
    const tocsin_fact *facts;   /* distinct, ascending */
    tocsin_evidence evidence;
};

/* Called for each instance; its memory is the observer's and lives until the call returns. */
typedef tocsin_status tocsin_instance_sink(void *context, const tocsin_instance *instance,
                                           tocsin_error *error);

/* Append what was seen instead of `fact`, to follow the entity's name: "no gradient". */
void tocsin_instance_describe(const tocsin_vocabulary *vocabulary, const tocsin_instance *instance,
                              tocsin_fact fact, tocsin_string *out);
/* How precisely a violation says what is wrong, in (0, 1): a variable by name > a call > an order
 * of calls > an argument. */
double tocsin_invariant_specificity(const tocsin_vocabulary *vocabulary,
                                    const tocsin_invariant *invariant);
/* "error": a violation shows that the state of training is wrong; "warning": that something is done
 * otherwise than it always was. */
const char *tocsin_severity_of(const tocsin_vocabulary *vocabulary,
                               const tocsin_invariant *invariant);
/* What goes wrong first when this is violated, in a few words: "gradient missing". `order`, unless
 * NULL: how early it stands in a step; of several causes the smallest is upstream of the others. */
const char *tocsin_cause_of(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                            int *order);

/* ---- 4. Observer --------------------------------------------------------------------------- */

/* Consumes the events of all processes of one run and hands over instances. Memory is bounded by
 * the number of variables, of functions and of open calls, not by the length of the run. */
typedef struct tocsin_observer tocsin_observer;

/* Only these populations, facts and fields are of interest. */
typedef struct tocsin_wanted {
    const tocsin_population *populations;
    size_t population_count;
    const tocsin_fact *facts;
    size_t fact_count;
    const tocsin_symbol *fields; /* NULL: all */
    size_t field_count;
} tocsin_wanted;

typedef struct tocsin_observer_options {
    tocsin_vocabulary *vocabulary; /* borrowed; written to while events are fed */
    tocsin_instance_sink *sink;
    void *context;
    const tocsin_wanted *wanted;              /* NULL: everything. Copied. */
    const struct tocsin_relations *relations; /* the user's; NULL: none. Borrowed. */
    bool contrast;   /* inferring: also sample pairs of different variables (at most 64 a window),
                        which show what makes replicas equal */
    bool wide;       /* inferring: also facts that only wide learning may claim */
    uint32_t shard;  /* only the relations of this shard of `shards`; all shards make what one */
    uint32_t shards; /* observer would, each population in one of them. 0: all relations */
} tocsin_observer_options;

TOCSIN_MUST_CHECK tocsin_status tocsin_observer_new(const tocsin_observer_options *options,
                                                    tocsin_observer **observer,
                                                    tocsin_error *error);
/* The next event of process `process` (indices as the caller likes, dense from 0; the dictionary
 * must stay valid until _free). Events of one process come in their order; processes in any
 * interleaving, best by tocsin_observer_laggard. Errors: E_MEMORY, E_LIMIT, those of the sink. */
TOCSIN_MUST_CHECK tocsin_status tocsin_observer_feed(tocsin_observer *observer, size_t process,
                                                     const tocsin_dictionary *dictionary,
                                                     const tocsin_event *event,
                                                     tocsin_error *error);
/* Which process to read next: the one of the earliest step among those with more[process]. Returns
 * `count` when none has more. Keeps cross-process windows small. */
size_t tocsin_observer_laggard(const tocsin_observer *observer, const bool *more, size_t count);
/* Training steps completed in process `process` so far. */
int64_t tocsin_observer_step(const tocsin_observer *observer, size_t process);
/* No more events will come: close the windows. */
TOCSIN_MUST_CHECK tocsin_status tocsin_observer_finish(tocsin_observer *observer,
                                                       tocsin_error *error);
uint64_t tocsin_observer_instances(const tocsin_observer *observer);
void tocsin_observer_free(tocsin_observer *observer);

/* ---- 5. Invariants ------------------------------------------------------------------------- */

typedef enum tocsin_clause_kind {
    TOCSIN_CLAUSE_CONSTANT = 1,   /* the field (both halves of a pair) has this value */
    TOCSIN_CLAUSE_CONSISTENT = 2, /* pairs: present in both halves and equal */
    TOCSIN_CLAUSE_UNEQUAL = 3,    /* present and not this value; pairs, without one: not equal */
    TOCSIN_CLAUSE_EXIST = 4       /* the field is present (in both halves) */
} tocsin_clause_kind;

typedef struct tocsin_clause {
    uint32_t kind; /* tocsin_clause_kind */
    tocsin_symbol field;
    tocsin_scalar value; /* CONSTANT, UNEQUAL to a value; else 0 */
} tocsin_clause;

typedef struct tocsin_conjunction {
    uint32_t count; /* 0: always true */
    const tocsin_clause *clauses;
} tocsin_conjunction;

/* Any of the conjunctions holds; none at all: unconditional. Inverted: not (any of them holds). */
typedef struct tocsin_precondition {
    bool inverted;
    uint32_t count;
    const tocsin_conjunction *any;
} tocsin_precondition;

struct tocsin_invariant {
    tocsin_population population;
    tocsin_fact fact;
    tocsin_precondition when;
    uint64_t instances; /* support: positive instances, and runs they came from */
    uint32_t runs;
    uint32_t held_out; /* runs that, left out, confirmed what the others taught; 0: not known */
};

/* Append it in words: "meta.stage is 'training'"; `pair`: of instances that are pairs. */
void tocsin_clause_say(const tocsin_vocabulary *vocabulary, const tocsin_clause *clause, bool pair,
                       tocsin_string *out);
bool tocsin_clause_holds(const tocsin_clause *clause, const tocsin_field *fields, uint32_t count);
bool tocsin_precondition_holds(const tocsin_precondition *when, const tocsin_instance *instance);

/* An empty set with a vocabulary of its own, in whose ids its invariants are written. */
TOCSIN_MUST_CHECK tocsin_status tocsin_invariants_new(tocsin_invariant_set **set,
                                                      tocsin_error *error);
tocsin_vocabulary *tocsin_invariants_vocabulary(const tocsin_invariant_set *set);
/* What _use has given it; NULL: nothing. */
const struct tocsin_relations *tocsin_invariants_relations(const tocsin_invariant_set *set);
/* Is invariant `index` of a user's relation that was not given? Its population, "relation/subject";
 * else NULL. */
const char *tocsin_invariants_lacks(const tocsin_invariant_set *set, size_t index);
/* Add a copy; one with the same population, fact and precondition is there already: nothing is
 * added. Clauses are put in canonical order. */
TOCSIN_MUST_CHECK tocsin_status tocsin_invariants_add(tocsin_invariant_set *set,
                                                      const tocsin_invariant *invariant,
                                                      tocsin_error *error);
/* Sort by content: from here on the order depends on nothing else. _load does it itself. */
TOCSIN_MUST_CHECK tocsin_status tocsin_invariants_sort(tocsin_invariant_set *set,
                                                       tocsin_error *error);
const tocsin_invariant *tocsin_invariants_get(const tocsin_invariant_set *set, size_t index);
/* The fields of which clauses and facts speak, to free with tocsin_free: what tocsin_wanted.fields
 * takes. Never NULL on success. */
TOCSIN_MUST_CHECK tocsin_status tocsin_invariants_fields(const tocsin_invariant_set *set,
                                                         tocsin_symbol **fields, size_t *count,
                                                         tocsin_error *error);

/* One English sentence, before an invariant is in a set (for dropped hypotheses). */
void tocsin_invariant_say(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                          tocsin_string *out);
/* "EventContain", "TOC002". */
const char *tocsin_relation_name(tocsin_relation_kind relation);
const char *tocsin_relation_code(tocsin_relation_kind relation);

#endif
