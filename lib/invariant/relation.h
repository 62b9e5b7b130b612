/* lib/invariant/relation.h - the observer from inside: what relations see of a run.
 *
 * The observer follows processes, threads, open calls and variables; each relation is a file that
 * looks at them at certain events and emits instances. Failures stick in the observer (`status`),
 * so relations return nothing and the event's caller gets the first failure.
 */
#ifndef TOCSIN_LIB_RELATION_H
#define TOCSIN_LIB_RELATION_H

#include <invariant/instance.h>

#define TOCSIN_ROLES_MAX     32 /* role sets are 32-bit masks */
#define TOCSIN_DTYPES_MAX    32
#define TOCSIN_TENSORS_MAX   8 /* tensor arguments of a call that outputs are compared with */
#define TOCSIN_SEQUENCE_MAX  4 /* calls a step: more often is a loop, not a step of a sequence */
#define TOCSIN_CONTRASTS_MAX 64
#define TOCSIN_SLOTS_MAX     64 /* optimizers of a process that are told apart */

/* Something that can be called: a function by its name, or a role. */
typedef struct tocsin_callable {
    tocsin_symbol name; /* roles: their text */
    uint8_t role;       /* NONE: a function */
    bool ordered;       /* has a place in sequences */
    tocsin_population
        populations[TOCSIN_POPULATION_KIND_COUNT]; /* 0: not wanted, or not sensible */
    bool interesting;                              /* the fields of its calls are */
    tocsin_fact calls;                             /* 0: not wanted */
    tocsin_fact follows;
    tocsin_fact leads;
} tocsin_callable;

/* Names of the fields that one argument can give. */
typedef struct tocsin_field_names {
    tocsin_symbol whole; /* "arg.p" */
    tocsin_symbol dtype; /* "arg.input.dtype" ... */
    tocsin_symbol ndim;
    tocsin_symbol requires_grad;
    tocsin_symbol is_parameter;
    tocsin_symbol type;
    tocsin_symbol training;
    tocsin_symbol length; /* of a list; only when wide or wanted */
    tocsin_symbol shape;
    tocsin_symbol batch; /* "arg.input.shape[0]" */
} tocsin_field_names;

typedef struct tocsin_tensor_argument {
    uint32_t names; /* index into the observer's field names */
    uint8_t dtype;
    uint8_t ndim;
    uint8_t flags; /* of its value; IN_SEQUENCE: the first element of a list */
    tocsin_id shape;
    tocsin_id type;
} tocsin_tensor_argument;

/* Attributes of variables, and their words. */
#define TOCSIN_ATTRIBUTE_TABLE(X)                                                                  \
    X(DATA, "data")                                                                                \
    X(GRAD, "grad")                                                                                \
    X(SAVED, "saved")                                                                              \
    X(LOADED, "loaded")                                                                            \
    X(SAMPLES, "samples")                                                                          \
    X(VALUE, "value")

typedef enum tocsin_attribute {
    TOCSIN_ATTRIBUTE_OTHER,
#define X(name, word) TOCSIN_ATTRIBUTE_##name,
    TOCSIN_ATTRIBUTE_TABLE(X)
#undef X
        TOCSIN_ATTRIBUTE_COUNT
} tocsin_attribute;

typedef struct tocsin_variable {
    const char *name;
    tocsin_symbol symbol;
    tocsin_scalar name_scalar;
    tocsin_scalar type;
    uint8_t kind;         /* tocsin_variable_kind */
    struct {              /* data and gradient as last read: relation_contain.c */
        const char *word; /* "none", "zero", "non_zero"; NULL: not read yet */
        tocsin_digest digest;
    } seen[2];
    uint32_t attribute_count;
    tocsin_field *attributes; /* state_fields.c */
    bool has_data;            /* its data was digested before: */
    bool updated;             /* an optimizer that holds it has stepped before; since then: */
    bool observed;            /* its gradient was looked at outside optimizer.step, */
    bool cleared;             /* and was once None or zero */
    bool was_there;           /* the last backward pass found a gradient, and */
    bool was_digested;        /* this is it: */
    tocsin_digest gradient_before;
    double absmax;
    tocsin_digest digest;
    uint64_t epoch;    /* of the two below: the optimizer.step being evaluated */
    uint32_t gradient; /* sample index + 1; 0: none */
    uint32_t data;
} tocsin_variable;

/* A state, with what was known of the variable before. */
typedef struct tocsin_sample {
    tocsin_variable *variable;
    uint32_t flags; /* TOCSIN_STATE_* */
    uint8_t attribute;
    uint8_t moment;
    uint8_t dtype;
    uint8_t ndim;
    tocsin_id attribute_name;
    tocsin_id shape;
    bool has_before; /* DATA: an earlier digest is known, and */
    bool changed;    /* this one differs from it */
    bool observed;   /* GRAD: of the variable, when this sample was taken */
    bool cleared;
    bool left_over; /* GRAD: as far as is known what the last backward pass had found already */
    double absmax_before;
    double lr;
    double absmax;
    uint64_t bad_count; /* NaN and Inf */
    tocsin_digest digest;
} tocsin_sample;

typedef struct tocsin_frame { /* an open call */
    uint64_t call;
    int64_t step; /* 1-based */
    tocsin_id site;
    uint8_t role;
    bool interesting;      /* some relation needs its fields */
    uint32_t callables[2]; /* its function and, when it has a role, its role */
    uint32_t callable_count;
    uint32_t ordinals[2];  /* of this call in its step, per callable */
    uint32_t roles_inside; /* mask of roles completed strictly inside, at any depth */
    double lr;             /* self.lr; NaN when unknown */
    int32_t slot;          /* self.slot of an optimizer.step; -1: unknown */
    uint32_t tensor_count;
    tocsin_tensor_argument tensors[TOCSIN_TENSORS_MAX];
    TOCSIN_VEC(tocsin_field) fields; /* arguments and meta at its start, ascending */
    TOCSIN_VEC(tocsin_number) numbers;
    TOCSIN_VEC(tocsin_number) lengths; /* of lists given to a function of the user's */
    TOCSIN_VEC(tocsin_fact) arguments; /* what is true of its arguments */
    TOCSIN_VEC(uint64_t)
    inside;                            /* bits: functions completed directly inside; when
                                          checking, at any depth */
    TOCSIN_VEC(uint64_t) inside_with;  /* bits: callee_arguments.c */
    bool has_places;                   /* some argument is known by its place alone; when asked */
    bool reads;                        /* a variable was read while it was open, */
    TOCSIN_VEC(tocsin_fact) changes;   /* and these wanted changes were seen */
    TOCSIN_VEC(tocsin_sample) samples; /* optimizer.step: data and grad of parameters, buffers */
} tocsin_frame;

typedef struct tocsin_moment_pair { /* of a callable in a thread, on the thread's own clock */
    uint64_t left;                  /* last left, by return or exception; 0: never */
    uint64_t completed;             /* last left by return */
} tocsin_moment_pair;

typedef struct tocsin_thread {
    TOCSIN_VEC(tocsin_frame) frames; /* `open` are in use; the others keep their memory */
    size_t open;
    uint64_t clock;                         /* events of calls so far */
    uint64_t steps[TOCSIN_SLOTS_MAX];       /* when each optimizer's step was last left; 0: never */
    TOCSIN_VEC(tocsin_moment_pair) moments; /* by callable */
} tocsin_thread;

typedef struct tocsin_meta {
    tocsin_symbol name; /* "meta.stage" */
    tocsin_scalar value;
    bool identity; /* a field of pairs only */
} tocsin_meta;

typedef struct tocsin_count { /* calls of a callable in a step */
    int64_t step;
    uint32_t count;
} tocsin_count;

typedef struct tocsin_process {
    tocsin_dictionary dictionary;
    TOCSIN_VEC(tocsin_thread) threads;
    TOCSIN_VEC(tocsin_meta) metas;
    TOCSIN_VEC(tocsin_count) counts; /* by callable */
    tocsin_map functions;            /* id -> callable + 1, role's callable + 1 in the high half */
    tocsin_map names;                /* value name id -> field names + 1 */
    tocsin_map keys;                 /* name of a value of a state -> its field */
    tocsin_map strings;              /* string id -> scalar */
    tocsin_map shapes;               /* shape id -> scalar */
    tocsin_map variables;            /* id -> tocsin_variable * */
    tocsin_map argument_sets;        /* hashes of arguments seen in `argument_step` */
    int64_t argument_step;
    tocsin_map collectives; /* group -> how many outermost ones in `collective_step` */
    int64_t collective_step;
    bool unordered;     /* has several optimizers, or steps that run a closure */
    int64_t step;       /* completed */
    int64_t micro_step; /* -1: unknown */
    int32_t rank;       /* -1: not distributed */
    int32_t world_size;
    size_t index; /* of the observer's processes */
} tocsin_process;

struct tocsin_needs; /* what a recorder must record: selection_write.c */

/* A relation: one file, one constant `tocsin_relation_<name>` and one line in the table below. It
 * is told of what happens and emits instances. Every hook may be NULL; a relation none of whose
 * kinds is wanted is not asked at all, so none may need what another leaves behind (but CONTAIN
 * what ARGUMENT makes: they are always in one shard). */
typedef struct tocsin_relation_part {
    const uint8_t *kinds; /* of the populations that it makes, ended by 0; no other makes them */
    uint8_t cost;         /* of inferring, beside the others: shards are made equal by it; 0: 1 */
    /* Its memory, or NULL after tocsin_observer_fail: observer->own[TOCSIN_PART_<NAME>]. */
    void *(*open)(tocsin_observer *observer);
    void (*close)(void *own);
    /* A new function or role: give it populations by tocsin_callable_population. */
    void (*callable)(tocsin_observer *observer, tocsin_callable *callable);
    /* A call begins; its frame is the thread's last one. */
    void (*enter)(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event);
    /* It was left by return (completed) or by an exception. The enclosing call and the thread know
     * already; the frame is still the thread's last one. */
    void (*leave)(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event, bool completed);
    /* A state was read; frame: of the innermost open call, or NULL. The variable's memory (digest,
     * cleared, ...) includes this state already, the sample says what was known before. */
    void (*state)(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame,
                  const tocsin_sample *sample, const tocsin_event *event);
    void (*meta)(tocsin_observer *observer, tocsin_process *process, const tocsin_event *event);
    /* process->step has changed: forget what belongs to earlier steps. */
    void (*step)(tocsin_observer *observer, tocsin_process *process);
    void (*finish)(tocsin_observer *observer); /* no more events will come */
    /* Ask for what judging this invariant, of one of the kinds, takes beyond its call, the
     * arguments that its clauses speak of and its callee. */
    void (*need)(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs);
} tocsin_relation_part;

/* X(NAME, name), in the order in which they are asked. */
#define TOCSIN_RELATION_PARTS(X)                                                                   \
    X(OUTPUT, output)                                                                              \
    X(CONTAIN, contain)                                                                            \
    X(FORALL, forall)                                                                              \
    X(CONSISTENT, consistent)                                                                      \
    X(SEQUENCE, sequence)                                                                          \
    X(ARGUMENT, argument)                                                                          \
    X(COLLECTIVE, collective)                                                                      \
    X(CHECKPOINT, checkpoint)                                                                      \
    X(COMPLETE, complete)                                                                          \
    X(LOADED, loaded)                                                                              \
    X(MOMENTS, moments)                                                                            \
    X(RESUMED, resumed)                                                                            \
    X(BETWEEN, between)                                                                            \
    X(LIFE, life)                                                                                  \
    X(LEDGER, ledger)                                                                              \
    X(RANDOM, random)                                                                              \
    X(LOSS, loss)                                                                                  \
    X(PLAN, plan)                                                                                  \
    X(USER, user)                                                                                  \
    X(SCALING, scaling)                                                                            \
    X(SCHEDULE, schedule)                                                                          \
    X(RECOMPUTE, recompute)                                                                        \
    X(UNTRAINED, untrained)                                                                        \
    X(LEAD, lead)                                                                                  \
    X(FROZEN, frozen)                                                                              \
    X(DECAY, decay)                                                                                \
    X(MODULE, module)                                                                              \
    X(SIBLING, sibling)

enum {
#define X(NAME, name) TOCSIN_PART_##NAME,
    TOCSIN_RELATION_PARTS(X)
#undef X
        TOCSIN_PART_COUNT
};
#define X(NAME, name) extern const tocsin_relation_part tocsin_relation_##name;
TOCSIN_RELATION_PARTS(X)
#undef X
extern const tocsin_relation_part *const tocsin_relation_parts[TOCSIN_PART_COUNT]; /* relation.c */

/* Is part `index` one of shard `shard` of `shards`? Each is in one; they cost about the same. */
bool tocsin_relation_part_is_in(size_t index, uint32_t shard, uint32_t shards);
/* The relation that makes populations of this kind; NULL: none. */
const tocsin_relation_part *tocsin_relation_part_of(uint8_t kind);

struct tocsin_observer {
    tocsin_vocabulary *vocabulary;
    tocsin_instance_sink *sink;
    void *context;
    const struct tocsin_relations *relations; /* NULL: none */
    bool contrast;
    bool wide;
    bool filtered;
    tocsin_map wanted_populations;
    tocsin_map wanted_facts;
    bool filters_fields;
    TOCSIN_VEC(bool) wanted_fields; /* by symbol; later symbols are not wanted */
    TOCSIN_VEC(uint8_t) contexts;   /* by symbol: fields.c */
    tocsin_status status;           /* the first failure */
    tocsin_error *error;            /* of the running _feed */
    uint64_t instances;
    uint64_t epoch;
    TOCSIN_VEC(tocsin_callable) callables;
    tocsin_map callable_of;                    /* symbol -> index + 1 */
    uint32_t role_callables[TOCSIN_ROLES_MAX]; /* index + 1 */
    TOCSIN_VEC(tocsin_field_names) names;
    tocsin_map names_of; /* base symbol -> index + 1 */
    TOCSIN_VEC(tocsin_process *) processes;
    tocsin_map variety; /* (callable, field) -> how many values facts were made of */
    const tocsin_relation_part *active[TOCSIN_PART_COUNT]; /* those that are wanted */
    size_t active_count;
    void *own[TOCSIN_PART_COUNT];
    TOCSIN_VEC(tocsin_field) fields; /* scratch of one instance */
    TOCSIN_VEC(tocsin_fact) facts;
    tocsin_scalar truth[2], opaque_int, opaque_float;
    tocsin_scalar dtypes[TOCSIN_DTYPES_MAX];
    tocsin_symbol var_name, var_type, var_dtype, var_ndim, var_shape, var_requires_grad,
        var_is_leaf, var_tensor_parallel, var_tied, var_training, var_in_this_optimizer,
        var_in_model, var_replicated, meta_first_micro, meta_rank, meta_step, meta_data_parallel;
};

/* ---- observer.c: for relations ------------------------------------------------------------- */

/* Record a failure (the first one stays). */
void tocsin_observer_fail(tocsin_observer *observer, tocsin_status status, const char *what);
/* `id` if not 0; else memory or the vocabulary ran out, which is recorded. */
uint32_t tocsin_observer_need(tocsin_observer *observer, uint32_t id);

/* 0 when not wanted. */
tocsin_population tocsin_observer_population(tocsin_observer *observer,
                                             const tocsin_population_key *key);
tocsin_fact tocsin_observer_fact(tocsin_observer *observer, const tocsin_fact_key *key);
tocsin_fact tocsin_observer_simple_fact(tocsin_observer *observer, tocsin_predicate predicate);

/* Do wanted clauses or facts speak of this field? */
static inline bool tocsin_observer_wants_field(const tocsin_observer *observer, tocsin_symbol name)
{
    return !observer->filters_fields ||
           (name < observer->wanted_fields.count && observer->wanted_fields.items[name]);
}

/* All fields of a call. */
void tocsin_observer_add_call_fields(tocsin_observer *observer, const tocsin_frame *frame);
/* Start an instance: empties the scratch fields and facts. */
void tocsin_observer_begin(tocsin_observer *observer);
/* Add to the scratch; 0 for name, scalar or fact is left out, and so are unwanted fields. */
void tocsin_observer_add_field(tocsin_observer *observer, tocsin_symbol name, tocsin_scalar a,
                               tocsin_scalar b);
void tocsin_observer_add_fact(tocsin_observer *observer, tocsin_fact fact);
/* Complete `instance` with the scratch (sorted) and hand it over. */
void tocsin_observer_emit(tocsin_observer *observer, tocsin_instance *instance);
/* The evidence of a call; entity is its function, or `entity` if not NULL. */
tocsin_evidence tocsin_observer_evidence(const tocsin_observer *observer,
                                         const tocsin_process *process, const tocsin_frame *frame,
                                         const char *entity);
/* Is the thread's last call made inside one of this role? */
static inline bool tocsin_thread_is_inside(const tocsin_thread *thread, uint8_t role)
{
    for (size_t i = 0; i + 1 < thread->open; ++i)
        if (thread->frames.items[i].role == role)
            return true;
    return false;
}

/* Sort fields ascending; of equal names the first stays. */
size_t tocsin_fields_sort(tocsin_field *fields, size_t count);

/* ---- callable.c ---------------------------------------------------------------------------- */

/* The callable of a function (role NONE) or a role; SIZE_MAX after a failure. */
size_t tocsin_observer_callable(tocsin_observer *observer, tocsin_symbol name, uint8_t role);
/* Give the callable the population of that kind of its calls, if it is wanted. */
void tocsin_callable_population(tocsin_observer *observer, tocsin_callable *callable, uint8_t kind);
/* Does the role gather functions of different meaning, to be told apart by name? */
bool tocsin_role_is_diverse(uint8_t role);
/* Is the frame a call of the function of that name? */
bool tocsin_frame_is_of(const tocsin_observer *observer, const tocsin_frame *frame,
                        const char *function);

/* ---- variable_state.c ---------------------------------------------------------------------- */

/* A STATE event; frame: of the innermost open call of its thread, or NULL. */
void tocsin_observer_state(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame,
                           const tocsin_event *event);
/* The attribute of that name, or OTHER. */
tocsin_attribute tocsin_attribute_of(const char *name);

/* ---- state_fields.c ------------------------------------------------------------------------ */

/* Take over what a state says of its variable beyond its own members ("partition_dim"), if it comes
 * of another tool (HASHED); add it to the scratch as fields "var.partition_dim". */
void tocsin_state_take_attributes(tocsin_observer *observer, tocsin_process *process,
                                  tocsin_variable *variable, const tocsin_event *event);
void tocsin_variable_free(tocsin_variable *variable);
void tocsin_state_add_attributes(tocsin_observer *observer, const tocsin_variable *variable);
/* What an event says under this name; NULL: nothing. */
const tocsin_value *tocsin_event_value(const tocsin_process *process, const tocsin_event *event,
                                       const char *name);

/* ---- fields.c ------------------------------------------------------------------------------ */

/* Fill the frame's fields, tensors, lr and arguments from an ENTER event. */
void tocsin_fields_of_call(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame,
                           const tocsin_event *event);
/* Field names for a base like "arg.input" or "return"; SIZE_MAX after a failure. */
size_t tocsin_field_names_of(tocsin_observer *observer, const char *base);
/* The value of a meta variable or an argument as a field: large numbers only by their type. */
tocsin_scalar tocsin_scalar_of_value(tocsin_observer *observer, tocsin_process *process,
                                     const tocsin_value *value);
tocsin_scalar tocsin_scalar_of_string(tocsin_observer *observer, tocsin_process *process,
                                      tocsin_id id);
tocsin_scalar tocsin_scalar_of_shape(tocsin_observer *observer, tocsin_process *process,
                                     tocsin_id id);
tocsin_scalar tocsin_scalar_of_int(tocsin_observer *observer, int64_t integer);
/* Add var.* and the call's meta.* and self.* fields to the scratch. Left out is what the
 * population's fact is about: whether the variable is present (its dtype would tell), and who holds
 * it. */
typedef enum tocsin_sample_fields {
    TOCSIN_FIELDS_ALL,
    TOCSIN_FIELDS_WITHOUT_PRESENCE,
    TOCSIN_FIELDS_WITHOUT_OWNERS /* nor presence */
} tocsin_sample_fields;
void tocsin_fields_of_sample(tocsin_observer *observer, const tocsin_frame *frame,
                             const tocsin_sample *sample, tocsin_sample_fields which);
/* Emit the one thing that there is to say of a sample, or, if it is NULL, of the call: does the
 * predicate hold? With all fields. */
void tocsin_observer_judge(tocsin_observer *observer, const tocsin_process *process,
                           const tocsin_frame *frame, tocsin_population population,
                           const tocsin_sample *sample, tocsin_predicate predicate, bool holds);

/* ---- relation_sequence.c -------------------------------------------------------------------- */

/* When a call of the callable, which begins now or would, was made before; 0: never, or it says
 * nothing about this one. */
uint64_t tocsin_sequence_previous(const tocsin_observer *observer, const tocsin_process *process,
                                  const tocsin_thread *thread, const tocsin_frame *frame,
                                  uint32_t callable);

/* ---- process_memory.c ----------------------------------------------------------------------- */

/* The relation's block of `bytes` for a process, zeros at first; NULL after a failure. */
void *tocsin_process_memory(tocsin_observer *observer, tocsin_map *memories,
                            const tocsin_process *process, size_t bytes);
void tocsin_process_memories_free(tocsin_map *memories);

/* ---- selection_write.c: what relations need to be recorded ---------------------------------- */

/* Calls of a role, or of a function (role NONE) by name. */
void tocsin_need_call(struct tocsin_needs *needs, uint8_t role, tocsin_symbol name, bool arguments);
/* Calls of a function, whether it is named in an invariant or not. */
void tocsin_need_function(struct tocsin_needs *needs, const char *name, bool arguments);
/* States of variables of a kind, read at the start or the end of calls of a role; digest: and their
 * content, not only whether they are there. */
void tocsin_need_state(struct tocsin_needs *needs, uint8_t role, uint8_t moment,
                       tocsin_attribute attribute, uint8_t variable, bool digest);
/* The relations of the set; NULL: none. */
const struct tocsin_relations *tocsin_needs_relations(const struct tocsin_needs *needs);

#endif
