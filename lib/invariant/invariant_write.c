/* Invariants as JSON Lines: docs/formats/invariants.md. */
#include <assert.h>
#include <invariant/invariant_set.h>
#include <invariant/statement.h>
#include <math.h>

static void put_scalar(const tocsin_vocabulary *vocabulary, tocsin_scalar scalar, tocsin_json *json)
{
    tocsin_literal literal = tocsin_scalar_literal(vocabulary, scalar);
    char text[TOCSIN_REAL_TEXT_BYTES];
    switch (literal.kind) {
    case TOCSIN_VALUE_NONE:
        tocsin_json_null(json);
        break;
    case TOCSIN_VALUE_BOOL:
        tocsin_json_bool(json, literal.integer != 0);
        break;
    case TOCSIN_VALUE_INT:
        tocsin_json_integer(json, literal.integer);
        break;
    case TOCSIN_VALUE_FLOAT:
        if (isfinite(literal.real)) {
            tocsin_json_real(json, literal.real);
            break;
        }
        tocsin_real_text(literal.real, text); /* JSON has no infinities and no NaN */
        tocsin_json_begin_object(json);
        tocsin_json_key(json, "float");
        tocsin_json_text(json, text);
        tocsin_json_end_object(json);
        break;
    default:
        tocsin_json_text(json, literal.text);
    }
}

static void put_callable(const tocsin_vocabulary *vocabulary, uint8_t role, tocsin_symbol name,
                         tocsin_json *json)
{
    if (role != TOCSIN_ROLE_NONE)
        tocsin_json_put_text(json, "role", tocsin_role_name((tocsin_role)role));
    else
        tocsin_json_put_text(json, "function", tocsin_symbol_text(vocabulary, name));
}

/* "relation/subject" */
static void put_subject(const char *name, tocsin_json *json)
{
    size_t bytes = strcspn(name, "/");
    tocsin_json_key(json, "name");
    tocsin_json_string(json, name, bytes);
    tocsin_json_put_text(json, "subject", name + bytes + (name[bytes] != 0));
}

static void put_population(const tocsin_vocabulary *vocabulary, tocsin_population population,
                           tocsin_json *json)
{
    tocsin_population_key key = tocsin_population_get_key(vocabulary, population);
    const tocsin_population_trait *trait = tocsin_population_get_trait(key.kind);
    tocsin_json_key(json, "population");
    tocsin_json_begin_object(json);
    tocsin_json_put_text(json, "kind", trait->slug);
    switch (trait->members) {
    case TOCSIN_MEMBERS_NONE:
        break;
    case TOCSIN_MEMBERS_CALL:
        put_callable(vocabulary, key.role, key.name, json);
        break;
    case TOCSIN_MEMBERS_REPLICA:
        tocsin_json_put_text(json, "variable", tocsin_variable_slug(key.variable));
        tocsin_json_put_text(json, "attribute", tocsin_symbol_text(vocabulary, key.name));
        tocsin_json_put_text(json, "role", tocsin_role_name((tocsin_role)key.role));
        tocsin_json_put_text(json, "moment", key.moment == TOCSIN_MOMENT_ENTER ? "enter" : "exit");
        break;
    case TOCSIN_MEMBERS_VARIABLE:
        tocsin_json_put_text(json, "variable", tocsin_variable_slug(key.variable));
        break;
    case TOCSIN_MEMBERS_USER:
        put_subject(tocsin_symbol_text(vocabulary, key.name), json);
        break;
    case TOCSIN_MEMBERS_ARGUMENT:
        tocsin_json_put_text(json, "argument", tocsin_symbol_text(vocabulary, key.name));
        break;
    }
    tocsin_json_end_object(json);
}

static void put_fact(const tocsin_vocabulary *vocabulary, tocsin_fact fact, tocsin_json *json)
{
    tocsin_fact_key key = tocsin_fact_get_key(vocabulary, fact);
    tocsin_json_key(json, "fact");
    tocsin_json_begin_object(json);
    tocsin_json_put_text(json, "is", tocsin_predicate_slug(key.predicate));
    tocsin_fact_members members = tocsin_predicate_members(key.predicate);
    bool argument = members == TOCSIN_FACT_MEMBERS_ARGUMENT;
    if (members == TOCSIN_FACT_MEMBERS_CALLEE || argument)
        put_callable(vocabulary, key.role, key.name, json);
    else if (members == TOCSIN_FACT_MEMBERS_CLAIM)
        tocsin_json_put_text(json, "claim", tocsin_symbol_text(vocabulary, key.name));
    else if (members != TOCSIN_FACT_MEMBERS_NONE)
        tocsin_json_put_text(json, "field", tocsin_symbol_text(vocabulary, key.name));
    if (members == TOCSIN_FACT_MEMBERS_OTHER)
        tocsin_json_put_text(json, "other", tocsin_symbol_text(vocabulary, key.other));
    if (argument)
        tocsin_json_put_text(json, "field", tocsin_symbol_text(vocabulary, key.other));
    if (members == TOCSIN_FACT_MEMBERS_VALUE || argument) {
        tocsin_json_key(json, "value");
        put_scalar(vocabulary, key.value, json);
    }
    tocsin_json_end_object(json);
}

static void put_clause(const tocsin_vocabulary *vocabulary, const tocsin_clause *clause,
                       tocsin_json *json)
{
    static const char *const kinds[] = {"", "constant", "consistent", "unequal", "exist"};
    assert(clause->kind > 0 && clause->kind < TOCSIN_COUNT_OF(kinds));
    tocsin_json_begin_object(json);
    tocsin_json_put_text(json, "kind", kinds[clause->kind]);
    tocsin_json_put_text(json, "field", tocsin_symbol_text(vocabulary, clause->field));
    if (clause->value != 0) {
        tocsin_json_key(json, "value");
        put_scalar(vocabulary, clause->value, json);
    }
    tocsin_json_end_object(json);
}

void tocsin_invariant_put_json(const tocsin_vocabulary *vocabulary,
                               const tocsin_invariant *invariant, tocsin_json *json)
{
    tocsin_relation_kind relation = tocsin_population_relation(vocabulary, invariant->population);
    const tocsin_precondition *when = &invariant->when;
    tocsin_json_put_text(json, "relation", tocsin_relation_name(relation));
    put_population(vocabulary, invariant->population, json);
    put_fact(vocabulary, invariant->fact, json);
    if (when->inverted) {
        tocsin_json_key(json, "inverted");
        tocsin_json_bool(json, true);
    }
    tocsin_json_key(json, "when");
    tocsin_json_begin_array(json);
    for (uint32_t i = 0; i < when->count; ++i) {
        tocsin_json_begin_array(json);
        for (uint32_t c = 0; c < when->any[i].count; ++c)
            put_clause(vocabulary, &when->any[i].clauses[c], json);
        tocsin_json_end_array(json);
    }
    tocsin_json_end_array(json);
}

static void put_header(size_t count, tocsin_json *json)
{
    tocsin_json_begin_object(json);
    tocsin_json_put_text(json, "format", TOCSIN_INVARIANTS_FORMAT);
    tocsin_json_key(json, "version");
    tocsin_json_integer(json, TOCSIN_INVARIANTS_VERSION);
    tocsin_json_key(json, "count");
    tocsin_json_unsigned(json, count);
    tocsin_json_end_object(json);
}

static void put_entry(const tocsin_invariant_set *set, const tocsin_invariant_entry *entry,
                      tocsin_json *json)
{
    tocsin_json_begin_object(json);
    tocsin_json_put_text(json, "id", entry->id);
    tocsin_invariant_put_json(set->vocabulary, &entry->invariant, json);
    tocsin_json_key(json, "support");
    tocsin_json_begin_object(json);
    tocsin_json_key(json, "instances");
    tocsin_json_unsigned(json, entry->invariant.instances);
    tocsin_json_key(json, "runs");
    tocsin_json_unsigned(json, entry->invariant.runs);
    if (entry->invariant.held_out > 0) {
        tocsin_json_key(json, "held_out");
        tocsin_json_unsigned(json, entry->invariant.held_out);
    }
    tocsin_json_end_object(json);
    tocsin_json_put_text(json, "text", entry->sentence);
    tocsin_json_end_object(json);
}

/* One line: filled into `line` by the caller's JSON calls. */
static tocsin_status write_line(tocsin_writer *writer, tocsin_string *line, tocsin_error *error)
{
    tocsin_string_append_char(line, '\n');
    TOCSIN_TRY(tocsin_string_check(line, error));
    TOCSIN_TRY(tocsin_writer_write(writer, line->text, line->bytes, error));
    tocsin_string_clear(line);
    return TOCSIN_OK;
}

static tocsin_status write_set(const tocsin_invariant_set *set, tocsin_writer *writer,
                               tocsin_string *line, tocsin_error *error)
{
    tocsin_json header = {.out = line};
    put_header(set->entries.count, &header);
    TOCSIN_TRY(write_line(writer, line, error));
    for (size_t i = 0; i < set->entries.count; ++i) {
        tocsin_json json = {.out = line};
        put_entry(set, &set->entries.items[i], &json);
        TOCSIN_TRY(write_line(writer, line, error));
    }
    return tocsin_writer_commit(writer, error);
}

tocsin_status tocsin_invariants_save(const tocsin_invariant_set *set, const char *path, int force,
                                     tocsin_error *error)
{
    tocsin_writer writer;
    tocsin_string line = {0};
    TOCSIN_TRY(tocsin_writer_open(&writer, path, force != 0, error));
    tocsin_status status = write_set(set, &writer, &line, error);
    if (status != TOCSIN_OK)
        tocsin_writer_abandon(&writer);
    tocsin_string_free(&line);
    return status;
}
