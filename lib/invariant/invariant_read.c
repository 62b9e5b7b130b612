/* Reading invariants: docs/formats/invariants.md. Every line is checked completely before anything
 * is made of it; an error names the line and what is wrong with it.
 */
#include <assert.h>
#include <invariant/invariant_set.h>
#include <invariant/plugin.h>
#include <invariant/statement.h>
#include <math.h>
#include <stdlib.h>

/* The context of the lines is the set. */
static tocsin_vocabulary *vocabulary_of(const tocsin_json_lines *lines)
{
    const tocsin_invariant_set *set = lines->context;
    return set->vocabulary;
}

/* Only these members (a NULL-terminated list) may stand in the object. */
static tocsin_status check_members(const tocsin_json_lines *lines, const tocsin_json_value *object,
                                   const char *what, const char *const *allowed)
{
    void *cursor = NULL;
    const char *key;
    const tocsin_json_value *value;
    if (tocsin_json_get_kind(object) != TOCSIN_JSON_OBJECT)
        return tocsin_json_lines_refuse(lines, "%s is not an object", what);
    while (tocsin_json_next_member(object, &cursor, &key, &value)) {
        size_t i = 0;
        while (allowed[i] != NULL && strcmp(allowed[i], key) != 0)
            ++i;
        if (allowed[i] == NULL)
            return tocsin_json_lines_refuse(lines, "%s has an unknown member \"%.60s\"", what, key);
    }
    return TOCSIN_OK;
}

static tocsin_status get_text(const tocsin_json_lines *lines, const tocsin_json_value *object,
                              const char *what, const char *key, const char **text)
{
    *text = tocsin_json_get_text(tocsin_json_get_member(object, key));
    if (*text == NULL)
        return tocsin_json_lines_refuse(lines, "%s needs \"%s\", a string", what, key);
    if (**text == 0 || strlen(*text) > 1024)
        return tocsin_json_lines_refuse(lines, "\"%s\" of %s is empty or longer than 1024 bytes",
                                        key, what);
    return TOCSIN_OK;
}

static tocsin_status get_symbol(const tocsin_json_lines *lines, const tocsin_json_value *object,
                                const char *what, const char *key, tocsin_symbol *symbol)
{
    const char *text;
    TOCSIN_TRY(get_text(lines, object, what, key, &text));
    *symbol = tocsin_symbol_of(vocabulary_of(lines), text);
    return *symbol != 0 ? TOCSIN_OK : tocsin_error_memory(lines->error);
}

static tocsin_status get_scalar(const tocsin_json_lines *lines, const tocsin_json_value *object,
                                const char *what, tocsin_scalar *scalar)
{
    const tocsin_json_value *value = tocsin_json_get_member(object, "value");
    tocsin_literal literal = {.kind = TOCSIN_VALUE_NONE};
    bool boolean = false;
    if (value == NULL)
        return tocsin_json_lines_refuse(lines, "%s needs \"value\"", what);
    switch (tocsin_json_get_kind(value)) {
    case TOCSIN_JSON_NULL:
        break;
    case TOCSIN_JSON_BOOL:
        literal.kind = TOCSIN_VALUE_BOOL;
        tocsin_json_get_bool(value, &boolean);
        literal.integer = boolean;
        break;
    case TOCSIN_JSON_INTEGER:
        literal.kind = TOCSIN_VALUE_INT;
        tocsin_json_get_integer(value, &literal.integer);
        break;
    case TOCSIN_JSON_REAL:
        literal.kind = TOCSIN_VALUE_FLOAT;
        tocsin_json_get_real(value, &literal.real);
        break;
    case TOCSIN_JSON_STRING:
        literal.kind = TOCSIN_VALUE_STRING;
        literal.text = tocsin_json_get_text(value);
        break;
    default: {
        const char *real = tocsin_json_get_text(tocsin_json_get_member(value, "float"));
        literal.kind = TOCSIN_VALUE_FLOAT;
        if (real != NULL && strcmp(real, "nan") == 0)
            literal.real = (double)NAN;
        else if (real != NULL && strcmp(real, "inf") == 0)
            literal.real = (double)INFINITY;
        else if (real != NULL && strcmp(real, "-inf") == 0)
            literal.real = -(double)INFINITY;
        else
            return tocsin_json_lines_refuse(
                lines, "\"value\" of %s is neither a scalar nor {\"float\":\"nan\"}", what);
    }
    }
    *scalar = tocsin_scalar_of(vocabulary_of(lines), &literal);
    return *scalar != 0 ? TOCSIN_OK : tocsin_error_memory(lines->error);
}

/* "role" or "function". */
static tocsin_status get_callable(const tocsin_json_lines *lines, const tocsin_json_value *object,
                                  const char *what, uint8_t *role, tocsin_symbol *name)
{
    const char *text;
    bool by_role = tocsin_json_get_member(object, "role") != NULL;
    bool by_name = tocsin_json_get_member(object, "function") != NULL;
    if (by_role == by_name)
        return tocsin_json_lines_refuse(lines, "%s needs either \"role\" or \"function\"", what);
    if (by_name)
        return get_symbol(lines, object, what, "function", name);
    TOCSIN_TRY(get_text(lines, object, what, "role", &text));
    *role = (uint8_t)tocsin_role_from_name(text);
    if (*role == TOCSIN_ROLE_NONE)
        return tocsin_json_lines_refuse(lines, "unknown role \"%.60s\"", text);
    return TOCSIN_OK;
}

static tocsin_status get_variable(const tocsin_json_lines *lines, const tocsin_json_value *object,
                                  uint8_t *kind)
{
    const char *text;
    TOCSIN_TRY(get_text(lines, object, "population", "variable", &text));
    for (uint8_t k = 1; tocsin_variable_slug(k) != NULL; ++k)
        if (strcmp(tocsin_variable_slug(k), text) == 0) {
            *kind = k;
            return TOCSIN_OK;
        }
    return tocsin_json_lines_refuse(lines, "unknown variable \"%.60s\"", text);
}

static tocsin_status get_replica(const tocsin_json_lines *lines, const tocsin_json_value *object,
                                 tocsin_population_key *key)
{
    const char *moment, *role;
    TOCSIN_TRY(get_variable(lines, object, &key->variable));
    TOCSIN_TRY(get_text(lines, object, "population", "moment", &moment));
    TOCSIN_TRY(get_text(lines, object, "population", "role", &role));
    TOCSIN_TRY(get_symbol(lines, object, "population", "attribute", &key->name));
    key->role = (uint8_t)tocsin_role_from_name(role);
    if (key->role != TOCSIN_ROLE_OPTIMIZER_STEP)
        return tocsin_json_lines_refuse(lines,
                                        "replicas are compared at role \"optimizer.step\" only");
    if (strcmp(moment, "enter") == 0)
        key->moment = TOCSIN_MOMENT_ENTER;
    else if (strcmp(moment, "exit") == 0)
        key->moment = TOCSIN_MOMENT_EXIT;
    else
        return tocsin_json_lines_refuse(lines, "\"moment\" is neither \"enter\" nor \"exit\"");
    return TOCSIN_OK;
}

/* "name" and "subject" of a user's relation. */
static tocsin_status get_subject(const tocsin_json_lines *lines, const tocsin_json_value *object,
                                 tocsin_symbol *name)
{
    const char *relation, *subject;
    tocsin_string text = {0};
    TOCSIN_TRY(get_text(lines, object, "population", "name", &relation));
    TOCSIN_TRY(get_text(lines, object, "population", "subject", &subject));
    if (!tocsin_plugin_is_name(relation) || !tocsin_plugin_is_text(subject))
        return tocsin_json_lines_refuse(lines, "\"name\" or \"subject\" can not be of a relation");
    tocsin_string_printf(&text, "%s/%s", relation, subject);
    tocsin_status status = tocsin_string_check(&text, lines->error);
    if (status == TOCSIN_OK) {
        *name = tocsin_symbol_of(vocabulary_of(lines), text.text);
        status = *name != 0 ? TOCSIN_OK : tocsin_error_memory(lines->error);
    }
    tocsin_string_free(&text);
    return status;
}

static tocsin_status get_population(const tocsin_json_lines *lines, const tocsin_json_value *line,
                                    tocsin_population *population, uint8_t *kind_out)
{
    static const char *const allowed[] = {"kind",   "role", "function", "variable", "attribute",
                                          "moment", "name", "subject",  "argument", NULL};
    const tocsin_json_value *object = tocsin_json_get_member(line, "population");
    const char *kind, *relation;
    tocsin_population_key key = {.kind = 0};
    TOCSIN_TRY(check_members(lines, object, "\"population\"", allowed));
    TOCSIN_TRY(get_text(lines, object, "population", "kind", &kind));
    TOCSIN_TRY(get_text(lines, line, "the invariant", "relation", &relation));
    for (uint8_t k = 1; k < TOCSIN_POPULATION_KIND_COUNT && key.kind == 0; ++k) {
        const tocsin_population_trait *trait = tocsin_population_get_trait(k);
        if (trait->slug != NULL && strcmp(trait->slug, kind) == 0 &&
            strcmp(tocsin_relation_name(trait->relation), relation) == 0)
            key.kind = k;
    }
    if (key.kind == 0)
        return tocsin_json_lines_refuse(lines, "relation \"%.40s\" has no population \"%.60s\"",
                                        relation, kind);
    tocsin_population_members members = tocsin_population_get_trait(key.kind)->members;
    if (members == TOCSIN_MEMBERS_CALL)
        TOCSIN_TRY(get_callable(lines, object, "population", &key.role, &key.name));
    else if (members == TOCSIN_MEMBERS_REPLICA)
        TOCSIN_TRY(get_replica(lines, object, &key));
    else if (members == TOCSIN_MEMBERS_VARIABLE)
        TOCSIN_TRY(get_variable(lines, object, &key.variable));
    else if (members == TOCSIN_MEMBERS_USER)
        TOCSIN_TRY(get_subject(lines, object, &key.name));
    else if (members == TOCSIN_MEMBERS_ARGUMENT)
        TOCSIN_TRY(get_symbol(lines, object, "population", "argument", &key.name));
    *kind_out = key.kind;
    *population = tocsin_population_of(vocabulary_of(lines), &key);
    return *population != 0 ? TOCSIN_OK : tocsin_error_memory(lines->error);
}

static tocsin_status get_claim(const tocsin_json_lines *lines, const tocsin_json_value *object,
                               tocsin_symbol *name)
{
    const char *text;
    TOCSIN_TRY(get_text(lines, object, "fact", "claim", &text));
    if (!tocsin_plugin_is_text(text))
        return tocsin_json_lines_refuse(lines, "\"claim\" can not be of a relation");
    return get_symbol(lines, object, "fact", "claim", name);
}

static tocsin_status get_fact(const tocsin_json_lines *lines, const tocsin_json_value *line,
                              uint8_t kind, tocsin_fact *fact)
{
    static const char *const allowed[] = {"is",    "role",  "function", "field",
                                          "other", "value", "claim",    NULL};
    const tocsin_json_value *object = tocsin_json_get_member(line, "fact");
    const char *is;
    tocsin_fact_key key = {.predicate = 0};
    TOCSIN_TRY(check_members(lines, object, "\"fact\"", allowed));
    TOCSIN_TRY(get_text(lines, object, "fact", "is", &is));
    for (uint8_t p = 1; p < TOCSIN_PREDICATE_COUNT && key.predicate == 0; ++p)
        if (tocsin_predicate_slug(p) != NULL && strcmp(tocsin_predicate_slug(p), is) == 0)
            key.predicate = p;
    if (key.predicate == 0 || !tocsin_statement_exists(kind, key.predicate))
        return tocsin_json_lines_refuse(
            lines, "the fact \"%.60s\" can not be stated of this population", is);
    tocsin_fact_members members = tocsin_predicate_members(key.predicate);
    bool argument = members == TOCSIN_FACT_MEMBERS_ARGUMENT;
    if (members == TOCSIN_FACT_MEMBERS_CALLEE || argument)
        TOCSIN_TRY(get_callable(lines, object, "fact", &key.role, &key.name));
    else if (members == TOCSIN_FACT_MEMBERS_CLAIM)
        TOCSIN_TRY(get_claim(lines, object, &key.name));
    else if (members != TOCSIN_FACT_MEMBERS_NONE)
        TOCSIN_TRY(get_symbol(lines, object, "fact", "field", &key.name));
    if (members == TOCSIN_FACT_MEMBERS_OTHER)
        TOCSIN_TRY(get_symbol(lines, object, "fact", "other", &key.other));
    if (argument)
        TOCSIN_TRY(get_symbol(lines, object, "fact", "field", &key.other));
    if (members == TOCSIN_FACT_MEMBERS_VALUE || argument)
        TOCSIN_TRY(get_scalar(lines, object, "fact", &key.value));
    *fact = tocsin_fact_of(vocabulary_of(lines), &key);
    return *fact != 0 ? TOCSIN_OK : tocsin_error_memory(lines->error);
}

/* ---- preconditions: built in an arena that the caller resets -------------------------------- */

static tocsin_status get_clause(const tocsin_json_lines *lines, const tocsin_json_value *object,
                                bool pair, tocsin_clause *clause)
{
    static const char *const allowed[] = {"kind", "field", "value", NULL};
    static const char *const kinds[] = {"", "constant", "consistent", "unequal", "exist"};
    const char *kind;
    TOCSIN_TRY(check_members(lines, object, "a clause", allowed));
    TOCSIN_TRY(get_text(lines, object, "a clause", "kind", &kind));
    *clause = (tocsin_clause){.kind = 0};
    for (uint32_t k = 1; k < TOCSIN_COUNT_OF(kinds); ++k)
        if (strcmp(kinds[k], kind) == 0)
            clause->kind = k;
    if (clause->kind == 0)
        return tocsin_json_lines_refuse(lines, "unknown clause kind \"%.60s\"", kind);
    bool valued =
        clause->kind == TOCSIN_CLAUSE_CONSTANT ||
        (clause->kind == TOCSIN_CLAUSE_UNEQUAL && tocsin_json_get_member(object, "value") != NULL);
    if (!pair && !valued && clause->kind != TOCSIN_CLAUSE_EXIST)
        return tocsin_json_lines_refuse(lines, "a \"%s\" clause needs a population of pairs", kind);
    TOCSIN_TRY(get_symbol(lines, object, "a clause", "field", &clause->field));
    if (valued)
        return get_scalar(lines, object, "a clause", &clause->value);
    return TOCSIN_OK;
}

static tocsin_status get_conjunction(const tocsin_json_lines *lines, const tocsin_json_value *array,
                                     bool pair, tocsin_arena *arena,
                                     tocsin_conjunction *conjunction)
{
    size_t count = tocsin_json_get_count(array);
    if (tocsin_json_get_kind(array) != TOCSIN_JSON_ARRAY || count > TOCSIN_CLAUSES_MAX)
        return tocsin_json_lines_refuse(
            lines, "\"when\" holds something else than arrays of at most %u clauses",
            TOCSIN_CLAUSES_MAX);
    tocsin_clause *clauses = TOCSIN_ARENA_ARRAY(arena, tocsin_clause, count);
    if (clauses == NULL)
        return tocsin_error_memory(lines->error);
    for (size_t i = 0; i < count; ++i)
        TOCSIN_TRY(get_clause(lines, tocsin_json_get_item(array, i), pair, &clauses[i]));
    *conjunction = (tocsin_conjunction){.count = (uint32_t)count, .clauses = clauses};
    return TOCSIN_OK;
}

static tocsin_status get_when(const tocsin_json_lines *lines, const tocsin_json_value *line,
                              bool pair, tocsin_arena *arena, tocsin_precondition *when)
{
    const tocsin_json_value *array = tocsin_json_get_member(line, "when");
    const tocsin_json_value *inverted = tocsin_json_get_member(line, "inverted");
    size_t count = tocsin_json_get_count(array);
    *when = (tocsin_precondition){.inverted = false};
    if (inverted != NULL && !tocsin_json_get_bool(inverted, &when->inverted))
        return tocsin_json_lines_refuse(lines, "\"inverted\" is not true or false");
    if (tocsin_json_get_kind(array) != TOCSIN_JSON_ARRAY || count > TOCSIN_CONJUNCTIONS_MAX)
        return tocsin_json_lines_refuse(
            lines, "the invariant needs \"when\", an array of at most %u arrays",
            TOCSIN_CONJUNCTIONS_MAX);
    if (when->inverted && count == 0)
        return tocsin_json_lines_refuse(lines, "an inverted empty \"when\" never holds");
    tocsin_conjunction *any = TOCSIN_ARENA_ARRAY(arena, tocsin_conjunction, count);
    if (any == NULL)
        return tocsin_error_memory(lines->error);
    for (size_t i = 0; i < count; ++i)
        TOCSIN_TRY(get_conjunction(lines, tocsin_json_get_item(array, i), pair, arena, &any[i]));
    when->count = (uint32_t)count;
    when->any = any;
    return TOCSIN_OK;
}

static tocsin_status get_support(const tocsin_json_lines *lines, const tocsin_json_value *line,
                                 tocsin_invariant *invariant)
{
    static const char *const allowed[] = {"instances", "runs", "held_out", NULL};
    const tocsin_json_value *support = tocsin_json_get_member(line, "support");
    int64_t instances, runs, held_out = 0;
    if (support == NULL)
        return TOCSIN_OK;
    TOCSIN_TRY(check_members(lines, support, "\"support\"", allowed));
    if (!tocsin_json_get_integer(tocsin_json_get_member(support, "instances"), &instances) ||
        !tocsin_json_get_integer(tocsin_json_get_member(support, "runs"), &runs) || instances < 0 ||
        runs < 0 || runs > INT32_MAX)
        return tocsin_json_lines_refuse(lines,
                                        "\"support\" needs the counts \"instances\" and \"runs\"");
    const tocsin_json_value *left_out = tocsin_json_get_member(support, "held_out");
    if (left_out != NULL &&
        (!tocsin_json_get_integer(left_out, &held_out) || held_out < 0 || held_out > INT32_MAX))
        return tocsin_json_lines_refuse(lines, "\"held_out\" is not a count");
    invariant->instances = (uint64_t)instances;
    invariant->runs = (uint32_t)runs;
    invariant->held_out = (uint32_t)held_out;
    return TOCSIN_OK;
}

/* ---- lines --------------------------------------------------------------------------------- */

static tocsin_status read_invariant(const tocsin_json_lines *lines, const tocsin_json_value *line)
{
    static const char *const allowed[] = {"id",      "relation", "population", "fact",    "when",
                                          "support", "text",     "inverted",   "comment", NULL};
    tocsin_invariant invariant = {.population = 0};
    uint8_t kind = 0;
    TOCSIN_TRY(check_members(lines, line, "the invariant", allowed));
    TOCSIN_TRY(get_population(lines, line, &invariant.population, &kind));
    TOCSIN_TRY(get_fact(lines, line, kind, &invariant.fact));
    TOCSIN_TRY(get_support(lines, line, &invariant));
    tocsin_arena arena = {.chunk_bytes = 4096};
    tocsin_status status =
        get_when(lines, line, tocsin_population_get_trait(kind)->pair, &arena, &invariant.when);
    if (status == TOCSIN_OK)
        status = tocsin_invariants_add(lines->context, &invariant, lines->error);
    tocsin_arena_free(&arena);
    return status;
}

static tocsin_json_lines lines_of(tocsin_invariant_set *set, const char *path, tocsin_error *error)
{
    return (tocsin_json_lines){.format = TOCSIN_INVARIANTS_FORMAT,
                               .title = "a file of invariants",
                               .version = TOCSIN_INVARIANTS_VERSION,
                               .line_bytes_max = TOCSIN_LINE_BYTES_MAX,
                               .path = path,
                               .context = set,
                               .item = read_invariant,
                               .error = error};
}

tocsin_status tocsin_invariants_append_text(tocsin_invariant_set *set, const char *name,
                                            const char *text, size_t bytes, tocsin_error *error)
{
    tocsin_json_lines lines = lines_of(set, name, error);
    TOCSIN_TRY(tocsin_json_lines_read_text(&lines, text, bytes));
    return tocsin_invariants_sort(set, error);
}

tocsin_status tocsin_invariants_append(tocsin_invariant_set *set, const char *path,
                                       tocsin_error *error)
{
    tocsin_json_lines lines = lines_of(set, path, error);
    TOCSIN_TRY(tocsin_json_lines_read(&lines));
    return tocsin_invariants_sort(set, error);
}

tocsin_status tocsin_invariants_load(const char *path, tocsin_invariant_set **set,
                                     tocsin_error *error)
{
    TOCSIN_TRY(tocsin_invariants_new(set, error));
    tocsin_status status = tocsin_invariants_append(*set, path, error);
    if (status != TOCSIN_OK) {
        tocsin_invariants_free(*set);
        *set = NULL;
    }
    return status;
}
