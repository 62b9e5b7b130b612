/* Statements: every meaningful (population kind, predicate), as a table with its English sentence.
 *
 * A statement that is not in the table can neither be inferred nor written by hand. Templates hold
 * {call} (role or function of the population), {callee}, {field}, {other}, {value} (members of the
 * fact), {variable}, {attribute}, {moment} (of replicas), {argument} (of the user's calls),
 * {relation}, {subject} (of users' relations); violations also {ranks}, {bad}, {detail} (from the
 * evidence) and {actual} (the field's value in the instance).
 */
#include <assert.h>
#include <invariant/statement.h>

static const tocsin_population_trait population_traits[TOCSIN_POPULATION_KIND_COUNT] = {
#define X(number, name, relation_name, slug_text, is_pair, members_name)                           \
    [number] = {.slug = slug_text,                                                                 \
                .relation = TOCSIN_RELATION_##relation_name,                                       \
                .pair = is_pair,                                                                   \
                .members = TOCSIN_MEMBERS_##members_name},
    TOCSIN_POPULATION_TABLE(X)
#undef X
};

typedef struct predicate_trait {
    const char *slug;
    tocsin_fact_members members;
} predicate_trait;

static const predicate_trait predicate_traits[TOCSIN_PREDICATE_COUNT] = {
#define X(number, name, slug_text, members_name)                                                   \
    [number] = {.slug = slug_text, .members = TOCSIN_FACT_MEMBERS_##members_name},
    TOCSIN_PREDICATE_TABLE(X)
#undef X
};

/* What goes wrong first, upstream before downstream: X(NAME, "words"). */
#define CAUSE_TABLE(X)                                                                             \
    X(PLAN, "plan not followed")                                                                   \
    X(ATTRIBUTE, "attribute changed")                                                              \
    X(MODE, "wrong mode")                                                                          \
    X(DATA, "data or random state")                                                                \
    X(CHECKPOINT, "checkpoint")                                                                    \
    X(OWNERSHIP, "who is trained by which optimizer")                                              \
    X(ORDER, "order of calls")                                                                     \
    X(ARGUMENT, "arguments of a call")                                                             \
    X(COLLECTIVE, "collectives of the ranks")                                                      \
    X(GRADIENT_MISSING, "gradient missing")                                                        \
    X(GRADIENT_VALUE, "gradient wrong")                                                            \
    X(UPDATE, "update missing")                                                                    \
    X(OUTSIDE, "data changed outside an update")                                                   \
    X(REPLICAS, "replicas apart")                                                                  \
    X(OUTPUT, "what a call does or returns")                                                       \
    X(NUMBERS, "NaN or Inf")                                                                       \
    X(USER, "a relation of your own")

typedef enum cause {
#define X(name, words) CAUSE_##name,
    CAUSE_TABLE(X)
#undef X
} cause;

static const char *const cause_words[] = {
#define X(name, words) [CAUSE_##name] = words,
    CAUSE_TABLE(X)
#undef X
};

typedef struct statement {
    uint8_t kind;
    uint8_t predicate;
    cause cause;
    double specificity;
    const char *sentence;
    const char *violation; /* what is seen instead, after the entity's name */
} statement;

#define OF(kind_name, predicate_name, cause_name)                                                  \
    TOCSIN_POPULATION_##kind_name, TOCSIN_PREDICATE_##predicate_name, CAUSE_##cause_name

static const statement statements[] = {
    {OF(REPLICAS, EQUAL, REPLICAS), 0.90,
     "The {attribute} of each {variable} {moment} {call} is equal on every two ranks",
     "{attribute} differs between {ranks}"},
    {OF(CALL, CALLS, OUTPUT), 0.50, "Every call of {call} calls {callee}",
     "{callee} was not called inside"},
    {OF(CALL, CALLS_WITH, OUTPUT), 0.51,
     "Every call of {call} calls {callee} with {other} = {value}",
     "{callee} was not called inside with {other} = {value}"},
    {OF(SAMPLED_CALL, CHANGES, OUTPUT), 0.60,
     "Every call of {call} turns some {field} from {value}", "no {field} went from {value}"},
    {OF(SAMPLED_CALL, FINDS_GRADIENT, GRADIENT_MISSING), 0.72,
     "Every call of {call} finds a gradient on some parameter", "no parameter has a gradient"},
    {OF(SAMPLED_CALL, HOLDS_TRAINABLE, OWNERSHIP), 0.75,
     "Every call of {call} has a trainable parameter to update",
     "there is no trainable parameter to update"},
    {OF(EFFECTIVE_CALL, CHANGES_PARAMETER, UPDATE), 0.74,
     "Every call of {call} with a learning rate and a non-zero gradient changes some parameter",
     "no parameter changed"},
    {OF(DRIVEN_PARAMETER, DATA_CHANGES, UPDATE), 0.92,
     "Every call of {call} changes each parameter that has a non-zero gradient",
     "data did not change"},
    {OF(IDLE_PARAMETER, DATA_STAYS, OUTSIDE), 0.85,
     "Every call of {call} leaves each parameter without gradient as it is",
     "data changed without a gradient"},
    {OF(FROZEN_PARAMETER, DATA_STAYS, OUTSIDE), 0.86,
     "Every call of {call} leaves each frozen parameter as it is", "data changed although frozen"},
    {OF(HELD_PARAMETER, IN_MODEL, OWNERSHIP), 0.95,
     "Every parameter that {call} updates belongs to a model that runs",
     "not part of any model that runs"},
    {OF(TRAINABLE_PARAMETER, GRADIENT_PRESENT, GRADIENT_MISSING), 0.91,
     "Every trainable parameter of the optimizer has a gradient at {call}", "no gradient"},
    {OF(MODEL_PARAMETER, IN_OPTIMIZER, OWNERSHIP), 0.96,
     "At {call}, every trainable parameter of the model is held by an optimizer",
     "held by no optimizer"},
    {OF(RETURNING_PARAMETER, GRADIENT_CLEARED, GRADIENT_VALUE), 0.93,
     "Between two calls of {call} that update a parameter, its gradient is cleared",
     "gradient not cleared since the previous step"},
    {OF(PARAMETER, FINITE, NUMBERS), 0.88, "Every parameter is finite after {call}",
     "{bad} elements are NaN or Inf"},
    {OF(GRADIENT, FINITE, NUMBERS), 0.89, "Every gradient is finite at {call}",
     "{bad} elements of the gradient are NaN or Inf"},
    {OF(BUFFER, FINITE, NUMBERS), 0.87, "Every buffer that changes is finite after {call}",
     "{bad} elements are NaN or Inf"},
    {OF(RESTING_VARIABLE, DATA_STAYS, OUTSIDE), 0.90,
     "An evaluation leaves every {variable} as it was",
     "data changed between two updates, over an evaluation"},
    {OF(STALLED_PARAMETER, MOVES, UPDATE), 0.87,
     "Every half-precision parameter with a gradient moves within 16 updates",
     "did not move in 16 updates: they are below its resolution"},
    {OF(FROZEN_BUFFER, DATA_STAYS, OUTSIDE), 0.84,
     "Every call of {call} finds each buffer of a frozen module as it was",
     "data changed although all parameters of its module are frozen"},
    {OF(RENEWED_PARAMETER, STAYS_FROZEN, OWNERSHIP), 0.97,
     "A frozen parameter that is registered anew over the same memory stays frozen",
     "was frozen, registered anew over the same memory, and is trainable now: requires_grad was "
     "not "
     "handed on"},
    {OF(SPARED_PARAMETER, NOT_DECAYED, OWNERSHIP), 0.90,
     "An optimizer with a group for what is not decayed has biases and weights of normalisation in "
     "it",
     "has weight decay, and the group without weight decay beside its own is empty"},
    {OF(CHANGED_ATTRIBUTE, KEPT_APART, ATTRIBUTE), 0.90,
     "Numbering the modules of a model leaves the attributes that they had",
     "the attribute was overwritten when all modules were numbered"},
    {OF(TRAINING_METHOD, CALLED_FIRST, MODE), 0.78,
     "A model with a train() of its own has it called before the first update",
     "its class overrides train(), which was not called before the first update"},
    {OF(SIBLING_PARAMETER, AS_SIBLINGS, NUMBERS), 0.91,
     "A parameter of repeated layers is initialised like its siblings",
     "all its elements were equal before the first update, those of its siblings were not: its "
     "initialisation was skipped"},
    {OF(UNDRIVEN_CALL, NEW_GRADIENTS, ORDER), 0.77,
     "No update applies the gradients of the update before it again",
     "applies the gradients of the update before it again: backward was not called"},
    {OF(TRAINED_CALL, KEEPS_MODE, MODE), 0.76,
     "A model that was updated in training mode is in training mode at every later update",
     "the model is in evaluation mode: train() was not called again"},
    {OF(TIED_PAIR, TIED_STAYS, OWNERSHIP), 0.94, "Parameters that share memory go on sharing it",
     "no longer shares its memory"},
    {OF(SAVED_TENSOR, AS_LIVE, CHECKPOINT), 0.90,
     "Of one model all parameters are saved as they are, or none",
     "saved data is not the live tensor's, unlike that of other parameters"},
    {OF(LOADED_TENSOR, IN_PLACE, CHECKPOINT), 0.91,
     "Loaded weights are not all initialised anew before their first update",
     "was loaded, then initialised anew before its first update"},
    {OF(NAMED_STATE, OF_ITS_PARAMETER, CHECKPOINT), 0.92,
     "Optimizer state is loaded for the parameter that it was saved for",
     "is what was saved for another parameter"},
    {OF(TYPED_STATE, KEEPS_DTYPE, CHECKPOINT), 0.91,
     "Optimizer state keeps its dtype when it is loaded, if its parameter does",
     "its dtype is narrower than in the checkpoint that was loaded"},
    {OF(RESUMED_UPDATE, OPTIMIZER_LOADED, CHECKPOINT), 0.78,
     "Where a model and an optimizer are loaded from a file, the optimizer is, too",
     "the optimizer in the checkpoint was not loaded: its state and learning rate start over"},
    {OF(RESUMED_UPDATE, RATE_GOES_ON, CHECKPOINT), 0.77,
     "The first update after loading has the learning rate of the checkpoint's optimizer",
     "the learning rate is not that of the checkpoint's optimizer"},
    {OF(SAVED_MODEL, SAVED_TOO, CHECKPOINT), 0.90,
     "Where a model is saved, each parameter of it is",
     "was not saved with the rest of its model"},
    {OF(BATCH, DISJOINT, DATA), 0.86, "No two ranks train on the same batch of samples",
     "{ranks} train on the same samples"},
    {OF(NEXT_BATCH, NEW_DATA, DATA), 0.85,
     "A batch of other samples holds other data than the batch before it",
     "two batches of different samples held the same data: their workers draw alike"},
    {OF(EPOCH, REORDERED, DATA), 0.81,
     "A shuffled epoch begins with other samples than the one before",
     "the same order of samples as in the epoch before"},
    {OF(WHOLE_EPOCH, COVERS, DATA), 0.84,
     "In an epoch that comes to its end the ranks together read every sample of the data set",
     "the ranks together read only a part of the data set in an epoch: it was sharded twice"},
    {OF(COPYING_RANKS, DIFFERS, DATA), 0.61,
     "The random state of {field} differs between every two data-parallel ranks with dropout",
     "random state is the same on {ranks}: they drop the same elements"},
    {OF(SHARDING_RANKS, SAME, DATA), 0.62,
     "The random state of {field} is the same on every two tensor-parallel ranks with dropout",
     "random state differs between {ranks}: they drop different elements"},
    {OF(LOSS, FINITE, NUMBERS), 0.70, "Every loss is finite", "the loss is not finite"},
    {OF(RUN, STEPS_AS_PLANNED, PLAN), 0.85, "As many steps are made as were planned",
     "the number of steps is not the planned one"},
    {OF(REPEATED_CALL, FOLLOWS, ORDER), 0.40, "Between two calls of {call}, {callee} is called",
     "{callee} was not called since the previous call"},
    {OF(UNSCALING, BEFORE_CLIPPING, ORDER), 0.78,
     "Scaled gradients are unscaled before they are clipped",
     "gradients were clipped while they were still scaled: unscale_ was not called before"},
    {OF(SCHEDULED_UPDATE, KEEPS_PACE, ORDER), 0.76,
     "Between two updates a scheduler is stepped at most once for each process",
     "a scheduler was stepped several times between two updates"},
    {OF(RECOMPUTED_CALL, REDRAWS, ARGUMENT), 0.79,
     "A checkpointed region that draws random numbers draws the same when it is recomputed",
     "random numbers were drawn, and preserve_rng_state is False: the backward pass draws others"},
    {OF(FIRST_TRAINING, NOT_EVALUATED, ORDER), 0.77,
     "No module is evaluated by {call} before its first pass in training mode",
     "was evaluated before its first pass in training mode: the vectors of its spectral_norm were "
     "random"},
    {OF(LEADING_CALL, LEADS, ORDER), 0.39,
     "After every call of {call}, {callee} is called before the next one and before the end",
     "{callee} was not called after it"},
    {OF(CALL_ARGUMENTS, ARGUMENT_IS, ARGUMENT), 0.30, "Every call of {call} has {field} = {value}",
     "{field} is {actual}, not {value}"},
    {OF(FURTHER_CALL, DISTINCT, ARGUMENT), 0.35,
     "No two calls of {call} in one step have the same arguments",
     "the arguments are those of an earlier call in this step"},
    {OF(COLLECTIVES, SAME, COLLECTIVE), 0.80,
     "The n-th collective of a group in a step has the same {field} on every two ranks",
     "{field} differs between {ranks}"},
    {OF(CALL_OUTPUT, RETURN_IS, OUTPUT), 0.32, "Every call of {call} returns {field} = {value}",
     "{field} is not {value}"},
    {OF(CALL_OUTPUT, RETURN_MATCHES, OUTPUT), 0.33,
     "Every call of {call} returns {field} equal to {other}", "{field} is not equal to {other}"},
    {OF(USER_CALL, RETURN_IS, OUTPUT), 0.32,
     "A function of the user's that is given {argument} returns {field} = {value}",
     "{field} is not {value}"},
    {OF(USER_CALL, RETURN_MATCHES, OUTPUT), 0.33,
     "A function of the user's that is given {argument} returns {field} equal to {other}",
     "{field} is not equal to {other}"},
    {OF(USER_CALL, RETURN_AT_MOST, OUTPUT), 0.34,
     "A function of the user's that is given {argument} returns {field} of at most {other}",
     "{field} is more than {other}"},
    {OF(USER_CALL, RETURN_AT_LEAST, OUTPUT), 0.34,
     "A function of the user's that is given {argument} returns {field} of at least {other}",
     "{field} is less than {other}"},
    {OF(CALL_OUTPUT, RETURN_AT_MOST, OUTPUT), 0.34,
     "Every call of {call} returns {field} of at most {other}", "{field} is more than {other}"},
    {OF(CALL_OUTPUT, RETURN_AT_LEAST, OUTPUT), 0.34,
     "Every call of {call} returns {field} of at least {other}", "{field} is less than {other}"},
    {OF(USER, CLAIM, USER), 0.55, "{relation}: every {subject} {field}", "{detail}"},
};

const tocsin_population_trait *tocsin_population_get_trait(uint8_t kind)
{
    assert(kind > 0 && kind < TOCSIN_POPULATION_KIND_COUNT);
    return &population_traits[kind];
}

const char *tocsin_predicate_slug(uint8_t predicate)
{
    assert(predicate > 0 && predicate < TOCSIN_PREDICATE_COUNT);
    return predicate_traits[predicate].slug;
}

tocsin_fact_members tocsin_predicate_members(uint8_t predicate)
{
    assert(predicate > 0 && predicate < TOCSIN_PREDICATE_COUNT);
    return predicate_traits[predicate].members;
}

const char *tocsin_variable_slug(uint8_t kind)
{
    static const char *const slugs[] = {[TOCSIN_VARIABLE_PARAMETER] = "parameter",
                                        [TOCSIN_VARIABLE_BUFFER] = "buffer",
                                        [TOCSIN_VARIABLE_OPTIMIZER_STATE] = "optimizer state"};
    return kind < TOCSIN_COUNT_OF(slugs) ? slugs[kind] : NULL;
}

static const statement *find_statement(uint8_t kind, uint8_t predicate)
{
    for (size_t i = 0; i < TOCSIN_COUNT_OF(statements); ++i)
        if (statements[i].kind == kind && statements[i].predicate == predicate)
            return &statements[i];
    return NULL;
}

bool tocsin_statement_exists(uint8_t kind, uint8_t predicate)
{
    return find_statement(kind, predicate) != NULL;
}

static void say_literal(const tocsin_literal *literal, tocsin_string *out)
{
    char text[TOCSIN_REAL_TEXT_BYTES];
    switch (literal->kind) {
    case TOCSIN_VALUE_NONE:
        tocsin_string_append_text(out, "None");
        break;
    case TOCSIN_VALUE_BOOL:
        tocsin_string_append_text(out, literal->integer ? "True" : "False");
        break;
    case TOCSIN_VALUE_INT:
        tocsin_string_printf(out, "%lld", (long long)literal->integer);
        break;
    case TOCSIN_VALUE_FLOAT:
        tocsin_string_append(out, text, tocsin_real_text(literal->real, text));
        break;
    default:
        tocsin_string_printf(out, "'%s'", literal->text);
    }
}

void tocsin_scalar_say(const tocsin_vocabulary *vocabulary, tocsin_scalar scalar,
                       tocsin_string *out)
{
    if (scalar == 0) {
        tocsin_string_append_text(out, "absent");
        return;
    }
    tocsin_literal literal = tocsin_scalar_literal(vocabulary, scalar);
    say_literal(&literal, out);
}

static const char *call_text(const tocsin_vocabulary *vocabulary, uint8_t role, tocsin_symbol name)
{
    return role != TOCSIN_ROLE_NONE ? tocsin_role_name((tocsin_role)role)
                                    : tocsin_symbol_text(vocabulary, name);
}

/* What a template is about; instance is NULL in sentences. */
typedef struct subject {
    const tocsin_vocabulary *vocabulary;
    tocsin_population_key population;
    tocsin_fact_key fact;
    const tocsin_instance *instance;
} subject;

static void say_actual(const subject *about, tocsin_string *out)
{
    const tocsin_evidence *evidence = &about->instance->evidence;
    tocsin_scalar actual = 0;
    for (uint32_t i = 0; i < evidence->number_count; ++i)
        if (evidence->numbers[i].name == about->fact.name) {
            say_literal(&evidence->numbers[i].literal, out);
            return;
        }
    for (uint32_t i = 0; i < about->instance->field_count; ++i)
        if (about->instance->fields[i].name == about->fact.name)
            actual = about->instance->fields[i].a;
    tocsin_scalar_say(about->vocabulary, actual, out);
}

static void say_detail(const subject *about, tocsin_string *out)
{
    const char *detail = about->instance->evidence.detail;
    if (detail != NULL && detail[0] != 0)
        tocsin_string_append_text(out, detail);
    else
        tocsin_string_printf(out, "this one does not: %s",
                             tocsin_symbol_text(about->vocabulary, about->fact.name));
}

static bool say_evidence(const subject *about, const char *token, size_t bytes, tocsin_string *out)
{
#define IS(text) (bytes == sizeof text - 1 && memcmp(token, text, sizeof text - 1) == 0)
    if (about->instance == NULL)
        return false;
    const tocsin_evidence *evidence = &about->instance->evidence;
    int32_t low = evidence->rank < evidence->other_rank ? evidence->rank : evidence->other_rank;
    int32_t high = evidence->rank < evidence->other_rank ? evidence->other_rank : evidence->rank;
    if (IS("ranks"))
        tocsin_string_printf(out, "ranks %d and %d", (int)low, (int)high);
    else if (IS("bad"))
        tocsin_string_printf(out, "%llu", (unsigned long long)evidence->bad_count);
    else if (IS("actual"))
        say_actual(about, out);
    else if (IS("detail"))
        say_detail(about, out);
    else
        return false;
    return true;
}

static void say_token(const subject *about, const char *token, size_t bytes, tocsin_string *out)
{
    const tocsin_vocabulary *vocabulary = about->vocabulary;
    const tocsin_population_key *population = &about->population;
    const tocsin_fact_key *fact = &about->fact;
    const char *name = tocsin_symbol_text(vocabulary, population->name);
    if (say_evidence(about, token, bytes, out))
        return;
    if (IS("call"))
        tocsin_string_append_text(
            out, call_text(vocabulary, population->role,
                           population->kind == TOCSIN_POPULATION_REPLICAS ? 0 : population->name));
    else if (IS("attribute") || IS("argument"))
        tocsin_string_append_text(out, name);
    else if (IS("variable"))
        tocsin_string_append_text(out, tocsin_variable_slug(population->variable));
    else if (IS("moment"))
        tocsin_string_append_text(out,
                                  population->moment == TOCSIN_MOMENT_ENTER ? "before" : "after");
    else if (IS("relation"))
        tocsin_string_append(out, name, strcspn(name, "/"));
    else if (IS("subject"))
        tocsin_string_append_text(out, name + strcspn(name, "/") + 1);
    else if (IS("callee"))
        tocsin_string_append_text(out, call_text(vocabulary, fact->role, fact->name));
    else if (IS("field"))
        tocsin_string_append_text(out, tocsin_symbol_text(vocabulary, fact->name));
    else if (IS("other"))
        tocsin_string_append_text(out, tocsin_symbol_text(vocabulary, fact->other));
    else if (IS("value"))
        tocsin_scalar_say(vocabulary, fact->value, out);
    else
        assert(false && "unknown token in a statement");
#undef IS
}

static void say_template(const subject *about, const char *template, tocsin_string *out)
{
    for (const char *at = template; *at != 0;) {
        size_t plain = strcspn(at, "{");
        tocsin_string_append(out, at, plain);
        at += plain;
        if (*at == '{') {
            size_t bytes = strcspn(at + 1, "}");
            say_token(about, at + 1, bytes, out);
            at += bytes + 2;
        }
    }
}

void tocsin_clause_say(const tocsin_vocabulary *vocabulary, const tocsin_clause *clause, bool pair,
                       tocsin_string *out)
{
    const char *both = pair ? " on both" : "";
    tocsin_string_append_text(out, tocsin_symbol_text(vocabulary, clause->field));
    switch (clause->kind) {
    case TOCSIN_CLAUSE_CONSTANT:
        tocsin_string_append_text(out, " is ");
        tocsin_scalar_say(vocabulary, clause->value, out);
        tocsin_string_append_text(out, both);
        break;
    case TOCSIN_CLAUSE_CONSISTENT:
        tocsin_string_append_text(out, " is the same");
        tocsin_string_append_text(out, both);
        break;
    case TOCSIN_CLAUSE_UNEQUAL:
        if (clause->value == 0) {
            tocsin_string_append_text(out, " differs");
            break;
        }
        tocsin_string_append_text(out, " is not ");
        tocsin_scalar_say(vocabulary, clause->value, out);
        tocsin_string_append_text(out, both);
        break;
    default:
        tocsin_string_append_text(out, " is there");
        tocsin_string_append_text(out, both);
    }
}

static void say_precondition(const tocsin_vocabulary *vocabulary, const tocsin_precondition *when,
                             bool pair, tocsin_string *out)
{
    for (uint32_t i = 0; i < when->count; ++i) {
        const tocsin_conjunction *all = &when->any[i];
        tocsin_string_append_text(out, i > 0 ? ", or " : when->inverted ? ", unless " : ", when ");
        if (all->count == 0)
            tocsin_string_append_text(out, "always");
        for (uint32_t c = 0; c < all->count; ++c) {
            if (c > 0)
                tocsin_string_append_text(out, " and ");
            tocsin_clause_say(vocabulary, &all->clauses[c], pair, out);
        }
    }
}

void tocsin_invariant_say(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                          tocsin_string *out)
{
    subject about = {.vocabulary = vocabulary,
                     .population = tocsin_population_get_key(vocabulary, invariant->population),
                     .fact = tocsin_fact_get_key(vocabulary, invariant->fact)};
    const statement *found = find_statement(about.population.kind, about.fact.predicate);
    assert(found != NULL);
    say_template(&about, found->sentence, out);
    say_precondition(vocabulary, &invariant->when,
                     tocsin_population_is_pair(vocabulary, invariant->population), out);
    tocsin_string_append_char(out, '.');
}

void tocsin_instance_describe(const tocsin_vocabulary *vocabulary, const tocsin_instance *instance,
                              tocsin_fact fact, tocsin_string *out)
{
    subject about = {.vocabulary = vocabulary,
                     .population = tocsin_population_get_key(vocabulary, instance->population),
                     .fact = tocsin_fact_get_key(vocabulary, fact),
                     .instance = instance};
    const statement *found = find_statement(about.population.kind, about.fact.predicate);
    assert(found != NULL);
    say_template(&about, found->violation, out);
}

double tocsin_invariant_specificity(const tocsin_vocabulary *vocabulary,
                                    const tocsin_invariant *invariant)
{
    tocsin_population_key population = tocsin_population_get_key(vocabulary, invariant->population);
    const statement *found =
        find_statement(population.kind, tocsin_fact_get_key(vocabulary, invariant->fact).predicate);
    assert(found != NULL);
    /* gradients differ before the parameters that they update do */
    bool earlier = population.moment == TOCSIN_MOMENT_ENTER;
    return found->specificity + (earlier ? 0.005 : 0);
}

const char *tocsin_severity_of(const tocsin_vocabulary *vocabulary,
                               const tocsin_invariant *invariant)
{
    switch (tocsin_population_relation(vocabulary, invariant->population)) {
    case TOCSIN_RELATION_SEQUENCE:
    case TOCSIN_RELATION_OUTPUT:
        return "warning";
    case TOCSIN_RELATION_ARGUMENT: /* ranks that call different collectives are stuck */
        return tocsin_population_is_pair(vocabulary, invariant->population) ? "error" : "warning";
    case TOCSIN_RELATION_CONTAIN: {
        tocsin_fact_key fact = tocsin_fact_get_key(vocabulary, invariant->fact);
        return fact.predicate == TOCSIN_PREDICATE_CALLS ? "warning" : "error";
    }
    case TOCSIN_RELATION_DATA: /* equal masks do less than they could, and no harm */
        return tocsin_fact_get_key(vocabulary, invariant->fact).predicate ==
                       TOCSIN_PREDICATE_DIFFERS
                   ? "warning"
                   : "error";
    default:
        return "error";
    }
}

/* train(), eval() and what they set: whatever is stated of them, the cause is a mode. */
static bool is_about_mode(const tocsin_vocabulary *vocabulary, const tocsin_fact_key *fact)
{
    const char *name = tocsin_symbol_text(vocabulary, fact->name);
    const char *last = strrchr(name, '.');
    return fact->role == TOCSIN_ROLE_MODE ||
           (last != NULL && (strcmp(last, ".training") == 0 || strcmp(last, ".train") == 0 ||
                             strcmp(last, ".eval") == 0));
}

const char *tocsin_cause_of(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                            int *order)
{
    tocsin_population_key population = tocsin_population_get_key(vocabulary, invariant->population);
    tocsin_fact_key fact = tocsin_fact_get_key(vocabulary, invariant->fact);
    const statement *found = find_statement(population.kind, fact.predicate);
    assert(found != NULL);
    cause is = is_about_mode(vocabulary, &fact) ? CAUSE_MODE : found->cause;
    if (order != NULL)
        *order = (int)is;
    return cause_words[is];
}
