/* Statements: every meaningful (population kind, predicate), as a table with its English sentence.
 *
 * A statement that is not in the table can neither be inferred nor written by hand. Templates hold
 * {call} (role or function of the population), {callee}, {field}, {other}, {value} (members of the
 * fact), {variable}, {attribute}, {moment} (of replicas); violations also {ranks},
 * {bad} (from the evidence) and {actual} (the field's value in the instance).
 */
#include <assert.h>
#include <invariant/statement.h>

static const tocsin_population_trait population_traits[TOCSIN_POPULATION_KIND_COUNT] = {
#define X(number, name, relation_name, slug_text, is_pair)                                         \
    [number] = {.slug = slug_text,                                                                 \
                .relation = TOCSIN_RELATION_##relation_name,                                       \
                .pair = is_pair,                                                                   \
                .members = (number) == TOCSIN_POPULATION_REPLICAS      ? TOCSIN_MEMBERS_REPLICA    \
                           : (number) == TOCSIN_POPULATION_COLLECTIVES ? TOCSIN_MEMBERS_NONE       \
                                                                       : TOCSIN_MEMBERS_CALL},
    TOCSIN_POPULATION_TABLE(X)
#undef X
};

static const char *const predicate_slugs[TOCSIN_PREDICATE_COUNT] = {
#define X(number, name, slug) [number] = slug,
    TOCSIN_PREDICATE_TABLE(X)
#undef X
};

typedef struct statement {
    uint8_t kind;
    uint8_t predicate;
    double specificity;
    const char *sentence;
    const char *violation; /* what is seen instead, after the entity's name */
} statement;

#define OF(kind_name, predicate_name)                                                              \
    TOCSIN_POPULATION_##kind_name, TOCSIN_PREDICATE_##predicate_name

static const statement statements[] = {
    {OF(REPLICAS, EQUAL), 0.90,
     "The {attribute} of each {variable} {moment} {call} is equal on every two ranks",
     "{attribute} differs between {ranks}"},
    {OF(CALL, CALLS), 0.50, "Every call of {call} calls {callee}",
     "{callee} was not called inside"},
    {OF(SAMPLED_CALL, FINDS_GRADIENT), 0.72,
     "Every call of {call} finds a gradient on some parameter", "no parameter has a gradient"},
    {OF(SAMPLED_CALL, HOLDS_TRAINABLE), 0.75,
     "Every call of {call} has a trainable parameter to update",
     "there is no trainable parameter to update"},
    {OF(EFFECTIVE_CALL, CHANGES_PARAMETER), 0.74,
     "Every call of {call} with a learning rate and a non-zero gradient changes some parameter",
     "no parameter changed"},
    {OF(DRIVEN_PARAMETER, DATA_CHANGES), 0.92,
     "Every call of {call} changes each parameter that has a non-zero gradient",
     "data did not change"},
    {OF(IDLE_PARAMETER, DATA_STAYS), 0.85,
     "Every call of {call} leaves each parameter without gradient as it is",
     "data changed without a gradient"},
    {OF(FROZEN_PARAMETER, DATA_STAYS), 0.86,
     "Every call of {call} leaves each frozen parameter as it is", "data changed although frozen"},
    {OF(HELD_PARAMETER, IN_MODEL), 0.95,
     "Every parameter that {call} updates belongs to a model that runs",
     "not part of any model that runs"},
    {OF(TRAINABLE_PARAMETER, GRADIENT_PRESENT), 0.91,
     "Every trainable parameter of the optimizer has a gradient at {call}", "no gradient"},
    {OF(MODEL_PARAMETER, IN_OPTIMIZER), 0.96,
     "At {call}, every trainable parameter of the model is held by an optimizer",
     "held by no optimizer"},
    {OF(RETURNING_PARAMETER, GRADIENT_CLEARED), 0.93,
     "Between two calls of {call} that update a parameter, its gradient is cleared",
     "gradient not cleared since the previous step"},
    {OF(PARAMETER, FINITE), 0.88, "Every parameter is finite after {call}",
     "{bad} elements are NaN or Inf"},
    {OF(GRADIENT, FINITE), 0.89, "Every gradient is finite at {call}",
     "{bad} elements of the gradient are NaN or Inf"},
    {OF(BUFFER, FINITE), 0.87, "Every buffer that changes is finite after {call}",
     "{bad} elements are NaN or Inf"},
    {OF(REPEATED_CALL, FOLLOWS), 0.40, "Between two calls of {call}, {callee} is called",
     "{callee} was not called since the previous call"},
    {OF(CALL_ARGUMENTS, ARGUMENT_IS), 0.30, "Every call of {call} has {field} = {value}",
     "{field} is {actual}, not {value}"},
    {OF(FURTHER_CALL, DISTINCT), 0.35, "No two calls of {call} in one step have the same arguments",
     "the arguments are those of an earlier call in this step"},
    {OF(COLLECTIVES, SAME), 0.80,
     "The n-th collective of a step has the same {field} on every two ranks",
     "{field} differs between {ranks}"},
    {OF(CALL_OUTPUT, RETURN_IS), 0.32, "Every call of {call} returns {field} = {value}",
     "{field} is not {value}"},
    {OF(CALL_OUTPUT, RETURN_MATCHES), 0.33, "Every call of {call} returns {field} equal to {other}",
     "{field} is not equal to {other}"},
};

const tocsin_population_trait *tocsin_population_get_trait(uint8_t kind)
{
    assert(kind > 0 && kind < TOCSIN_POPULATION_KIND_COUNT);
    return &population_traits[kind];
}

const char *tocsin_predicate_slug(uint8_t predicate)
{
    assert(predicate > 0 && predicate < TOCSIN_PREDICATE_COUNT);
    return predicate_slugs[predicate];
}

tocsin_fact_members tocsin_predicate_members(uint8_t predicate)
{
    switch (predicate) {
    case TOCSIN_PREDICATE_CALLS:
    case TOCSIN_PREDICATE_FOLLOWS:
        return TOCSIN_FACT_MEMBERS_CALLEE;
    case TOCSIN_PREDICATE_SAME:
        return TOCSIN_FACT_MEMBERS_FIELD;
    case TOCSIN_PREDICATE_ARGUMENT_IS:
    case TOCSIN_PREDICATE_RETURN_IS:
        return TOCSIN_FACT_MEMBERS_VALUE;
    case TOCSIN_PREDICATE_RETURN_MATCHES:
        return TOCSIN_FACT_MEMBERS_OTHER;
    default:
        return TOCSIN_FACT_MEMBERS_NONE;
    }
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

static const char *variable_text(uint8_t variable)
{
    switch (variable) {
    case TOCSIN_VARIABLE_PARAMETER:
        return "parameter";
    case TOCSIN_VARIABLE_BUFFER:
        return "buffer";
    default:
        return "optimizer state";
    }
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
    else
        return false;
    return true;
}

static void say_token(const subject *about, const char *token, size_t bytes, tocsin_string *out)
{
    const tocsin_vocabulary *vocabulary = about->vocabulary;
    const tocsin_population_key *population = &about->population;
    const tocsin_fact_key *fact = &about->fact;
    if (say_evidence(about, token, bytes, out))
        return;
    if (IS("call"))
        tocsin_string_append_text(
            out, call_text(vocabulary, population->role,
                           population->kind == TOCSIN_POPULATION_REPLICAS ? 0 : population->name));
    else if (IS("attribute"))
        tocsin_string_append_text(out, tocsin_symbol_text(vocabulary, population->name));
    else if (IS("variable"))
        tocsin_string_append_text(out, variable_text(population->variable));
    else if (IS("moment"))
        tocsin_string_append_text(out,
                                  population->moment == TOCSIN_MOMENT_ENTER ? "before" : "after");
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

static void say_clause(const tocsin_vocabulary *vocabulary, const tocsin_clause *clause, bool pair,
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
        tocsin_string_append_text(out, " differs");
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
            say_clause(vocabulary, &all->clauses[c], pair, out);
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
