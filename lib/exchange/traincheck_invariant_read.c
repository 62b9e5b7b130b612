/* TrainCheck's invariants -> ours.
 *
 * A line is an invariant: a relation, its parameters and a precondition for each part of an
 * example. Each relation has one translation below; what has none is reported, never dropped in
 * silence. Clauses about identities are decided here: the two halves of a pair always belong to two
 * processes in the same step, so "process_id differs" is true and "process_id is equal" is not.
 * "prop_dtype" and the like are words that are compared, nothing is evaluated.
 */
#include <assert.h>
#include <exchange/exchange.h>
#include <invariant/instance.h>
#include <math.h>
#include <stdio.h>

#define CLAUSES_MAX      64u
#define CONJUNCTIONS_MAX 64u
#define NAME_BYTES       300

typedef struct translation {
    tocsin_vocabulary *vocabulary;
    const tocsin_json_value *root;
    const tocsin_json_value *params[2];
    const char *group; /* the part of an example that the precondition speaks of */
    bool pair;
    tocsin_population_key population;
    tocsin_fact_key fact;
    tocsin_arena arena;
    tocsin_conjunction any[CONJUNCTIONS_MAX];
    uint32_t any_count;
    bool unconditional;
    bool inverted;
    bool no_memory;
    const char *why; /* there is no translation */
} translation;

static void *refuse(translation *made, const char *why)
{
    if (made->why == NULL)
        made->why = why;
    return NULL;
}

static const char *text_of(const tocsin_json_value *object, const char *key)
{
    return tocsin_json_get_text(tocsin_json_get_member(object, key));
}

static bool is_text(const tocsin_json_value *object, const char *key, const char *text)
{
    const char *found = text_of(object, key);
    return found != NULL && strcmp(found, text) == 0;
}

static tocsin_symbol symbol(translation *made, const char *text)
{
    tocsin_symbol id = tocsin_symbol_of(made->vocabulary, text);
    made->no_memory |= id == 0;
    return id;
}

/* ---- clauses ------------------------------------------------------------------------------- */

typedef enum truth { TRUTH_OPEN, TRUTH_TRUE, TRUTH_FALSE } truth;

/* What is known of the clause whatever the run: identities. */
static truth truth_of_identity(const translation *made, uint32_t kind)
{
    if (made->pair)
        return kind == TOCSIN_CLAUSE_UNEQUAL || kind == TOCSIN_CLAUSE_EXIST ? TRUTH_TRUE
                                                                            : TRUTH_FALSE;
    return kind == TOCSIN_CLAUSE_CONSISTENT || kind == TOCSIN_CLAUSE_EXIST ? TRUTH_TRUE
                                                                           : TRUTH_FALSE;
}

static truth truth_of_step(const translation *made, uint32_t kind)
{
    if (kind == TOCSIN_CLAUSE_CONSTANT)
        return TRUTH_OPEN;
    return kind == TOCSIN_CLAUSE_UNEQUAL && made->pair ? TRUTH_FALSE : TRUTH_TRUE;
}

/* "attributes.nbytes" -> "var.nbytes". NULL: not a field here. */
static const char *field_of(const char *property, char name[NAME_BYTES])
{
    static const struct {
        const char *theirs, *ours;
    } words[] = {{"var_name", "var.name"},
                 {"var_type", "var.type"},
                 {"attributes.tensor_model_parallel", "var.tensor_parallel"},
                 {"meta_vars._DATA_PARALLEL_RANK", "meta.rank"}};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(words); ++i)
        if (strcmp(property, words[i].theirs) == 0)
            return words[i].ours;
    const char *rest = strchr(property, '.');
    bool meta = strncmp(property, "meta_vars.", 10) == 0;
    if ((!meta && strncmp(property, "attributes.", 11) != 0) || rest[1] == 0 ||
        strncmp(rest, ".context_managers", 17) == 0)
        return NULL;
    snprintf(name, NAME_BYTES, "%s.%.280s", meta ? "meta" : "var", rest + 1);
    return name;
}

/* 128.0 is 128: tables of numbers made them floats. */
static tocsin_scalar scalar_of(translation *made, const char *field, const tocsin_json_value *value)
{
    tocsin_literal literal = {.kind = TOCSIN_VALUE_NONE};
    bool boolean;
    switch (tocsin_json_get_kind(value)) {
    case TOCSIN_JSON_NULL:
        break;
    case TOCSIN_JSON_BOOL:
        literal.kind = TOCSIN_VALUE_BOOL;
        literal.integer = tocsin_json_get_bool(value, &boolean) && boolean;
        break;
    case TOCSIN_JSON_INTEGER:
        literal.kind = TOCSIN_VALUE_INT;
        (void)tocsin_json_get_integer(value, &literal.integer);
        break;
    case TOCSIN_JSON_REAL:
        literal.kind = TOCSIN_VALUE_FLOAT;
        (void)tocsin_json_get_real(value, &literal.real);
        if (literal.real == trunc(literal.real) && fabs(literal.real) < 0x1p53)
            literal = (tocsin_literal){.kind = TOCSIN_VALUE_INT, .integer = (int64_t)literal.real};
        break;
    case TOCSIN_JSON_STRING:
        literal.kind = TOCSIN_VALUE_STRING;
        literal.text = tocsin_json_get_text(value);
        if (strcmp(literal.text, "MD_NONE") == 0)
            literal = (tocsin_literal){.kind = TOCSIN_VALUE_NONE};
        else if (strcmp(field, "var.dtype") == 0 && strncmp(literal.text, "torch.", 6) == 0)
            literal.text += 6;
        break;
    default:
        refuse(made, "a clause compares with a list or an object");
        return 0;
    }
    tocsin_scalar scalar = tocsin_scalar_of(made->vocabulary, &literal);
    made->no_memory |= scalar == 0;
    return scalar;
}

static uint32_t clause_kind(const tocsin_json_value *clause)
{
    static const char *const words[] = {"", "constant", "consistent", "unequal", "exist"};
    for (uint32_t kind = 1; kind < TOCSIN_COUNT_OF(words); ++kind)
        if (is_text(clause, "type", words[kind]))
            return kind;
    return 0;
}

/* A conjunction being made: a clause with n values splits it in n. */
typedef struct conjunctions {
    tocsin_clause clauses[CONJUNCTIONS_MAX][CLAUSES_MAX];
    uint32_t counts[CONJUNCTIONS_MAX];
    uint32_t count;
} conjunctions;

static void add_clause(translation *made, conjunctions *all, uint32_t kind, const char *field,
                       const tocsin_json_value *values)
{
    size_t choices = kind == TOCSIN_CLAUSE_CONSTANT ? tocsin_json_get_count(values) : 1;
    uint32_t count = all->count;
    if (choices == 0) {
        all->count = 0; /* a constant without a value is never true */
        return;
    }
    if (count * choices > CONJUNCTIONS_MAX || all->counts[0] == CLAUSES_MAX) {
        refuse(made, "its precondition has too many clauses");
        return;
    }
    for (size_t choice = choices; choice-- > 0;) {
        tocsin_clause clause = {.kind = kind, .field = symbol(made, field)};
        if (kind == TOCSIN_CLAUSE_CONSTANT)
            clause.value = scalar_of(made, field, tocsin_json_get_item(values, choice));
        for (uint32_t i = 0; i < count; ++i) {
            uint32_t at = (uint32_t)choice * count + i; /* its own place last of all */
            uint32_t length = all->counts[i];
            if (choice > 0)
                memcpy(all->clauses[at], all->clauses[i], length * sizeof clause);
            all->clauses[at][length] = clause;
            all->counts[at] = length + 1;
        }
    }
    all->count = count * (uint32_t)choices;
}

/* Known truth of a clause, or it is added. */
static truth take_clause(translation *made, conjunctions *all, const tocsin_json_value *clause)
{
    char name[NAME_BYTES];
    uint32_t kind = clause_kind(clause);
    const char *property = text_of(clause, "prop_name");
    if (kind == 0 || property == NULL) {
        refuse(made, "a clause of unknown form");
        return TRUTH_FALSE;
    }
    const tocsin_json_value *path = tocsin_json_get_member(clause, "additional_path");
    if (tocsin_json_get_kind(path) == TOCSIN_JSON_ARRAY && tocsin_json_get_count(path) > 0) {
        refuse(made, "a clause about a part of a value");
        return TRUTH_FALSE;
    }
    bool attribute = strncmp(property, "attributes.", 11) == 0;
    if (strcmp(property, "process_id") == 0 || strcmp(property, "thread_id") == 0 ||
        (attribute && tocsin_attribute_is_id(property + 11)))
        return truth_of_identity(made, kind);
    if (strcmp(property, "meta_vars.step") == 0 && truth_of_step(made, kind) != TRUTH_OPEN)
        return truth_of_step(made, kind);
    if (!made->pair && kind == TOCSIN_CLAUSE_CONSISTENT)
        return TRUTH_TRUE; /* of one record with itself */
    if (!made->pair && kind == TOCSIN_CLAUSE_UNEQUAL)
        return TRUTH_FALSE;
    const char *field = field_of(property, name);
    if (field == NULL) {
        refuse(made, "a clause about a property that runs do not have");
        return TRUTH_FALSE;
    }
    add_clause(made, all, kind, field, tocsin_json_get_member(clause, "values"));
    return TRUTH_OPEN;
}

static void keep_conjunctions(translation *made, const conjunctions *all)
{
    for (uint32_t i = 0; i < all->count; ++i) {
        if (made->any_count == CONJUNCTIONS_MAX) {
            refuse(made, "its precondition has too many parts");
            return;
        }
        tocsin_clause *clauses = TOCSIN_ARENA_ARRAY(&made->arena, tocsin_clause, CLAUSES_MAX);
        if (clauses == NULL) {
            made->no_memory = true;
            return;
        }
        memcpy(clauses, all->clauses[i], sizeof all->clauses[i]);
        made->any[made->any_count++] =
            (tocsin_conjunction){.count = all->counts[i], .clauses = clauses};
        made->unconditional |= all->counts[i] == 0;
    }
}

static void take_conjunction(translation *made, const tocsin_json_value *conjunction)
{
    conjunctions *all = TOCSIN_ARENA_NEW(&made->arena, conjunctions);
    const tocsin_json_value *clauses = tocsin_json_get_member(conjunction, "clauses");
    if (all == NULL) {
        made->no_memory = true;
        return;
    }
    all->count = 1;
    all->counts[0] = 0;
    if (tocsin_json_get_kind(clauses) != TOCSIN_JSON_ARRAY &&
        !is_text(conjunction, "clauses", "Unconditional")) {
        refuse(made, "a precondition of unknown form");
        return;
    }
    for (size_t i = 0; i < tocsin_json_get_count(clauses) && made->why == NULL; ++i)
        if (take_clause(made, all, tocsin_json_get_item(clauses, i)) == TRUTH_FALSE)
            return; /* the conjunction is never true */
    if (made->why == NULL)
        keep_conjunctions(made, all);
}

static bool is_unconditional(const tocsin_json_value *group)
{
    const tocsin_json_value *parts = tocsin_json_get_member(group, "preconditions");
    bool inverted = false;
    (void)tocsin_json_get_bool(tocsin_json_get_member(group, "inverted"), &inverted);
    return !inverted && tocsin_json_get_count(parts) == 1 &&
           is_text(tocsin_json_get_item(parts, 0), "clauses", "Unconditional");
}

static void take_precondition(translation *made)
{
    const tocsin_json_value *groups = tocsin_json_get_member(made->root, "precondition");
    const tocsin_json_value *group = tocsin_json_get_member(groups, made->group);
    void *cursor = NULL;
    const char *name;
    const tocsin_json_value *other;
    if (group == NULL) {
        refuse(made, "it has no precondition for its relation");
        return;
    }
    while (tocsin_json_next_member(groups, &cursor, &name, &other))
        if (other != group && !is_unconditional(other))
            refuse(made, "a precondition on a second part of its examples");
    (void)tocsin_json_get_bool(tocsin_json_get_member(group, "inverted"), &made->inverted);
    const tocsin_json_value *parts = tocsin_json_get_member(group, "preconditions");
    for (size_t i = 0; i < tocsin_json_get_count(parts) && made->why == NULL; ++i)
        take_conjunction(made, tocsin_json_get_item(parts, i));
    bool never = made->inverted ? made->unconditional : made->any_count == 0;
    if (never)
        refuse(made, "its precondition is true in no run but the one it was learned from");
    if (made->unconditional)
        made->any_count = 0;
    if (made->any_count == 0)
        made->inverted = false;
}

/* ---- relations ----------------------------------------------------------------------------- */

static const char *function_of(translation *made, size_t index)
{
    const tocsin_json_value *param = made->params[index];
    const char *name = text_of(param, "api_full_name");
    if (name == NULL || !is_text(param, "param_type", "APIParam"))
        return refuse(made, "a parameter that is no function");
    if (tocsin_json_get_member(param, "exception") != NULL ||
        tocsin_json_get_count(tocsin_json_get_member(param, "arguments")) > 0)
        return refuse(made, "a function with given arguments or an exception");
    return name;
}

static void by_function(translation *made, uint8_t kind, const char *name)
{
    if (name != NULL)
        made->population = (tocsin_population_key){.kind = kind, .name = symbol(made, name)};
}

static void take_distinct(translation *made)
{
    made->group = "distinct_arg";
    by_function(made, TOCSIN_POPULATION_FURTHER_CALL, function_of(made, 0));
    made->fact = (tocsin_fact_key){.predicate = TOCSIN_PREDICATE_DISTINCT};
}

/* Cover(A, B): before each further B an A. Lead(A, B): after each A a B, before the next A. */
static void take_order(translation *made, bool cover)
{
    made->group = cover ? "func_cover" : "func_lead";
    const char *first = function_of(made, 0), *second = function_of(made, 1);
    if (first == NULL || second == NULL)
        return;
    by_function(made, TOCSIN_POPULATION_REPEATED_CALL, cover ? second : first);
    made->fact = (tocsin_fact_key){.predicate = TOCSIN_PREDICATE_FOLLOWS,
                                   .name = symbol(made, cover ? first : second)};
}

/* "non_zero", None; NULL: another word. */
static const char *change_word(const tocsin_json_value *param, const char *key)
{
    const tocsin_json_value *value = tocsin_json_get_member(param, key);
    if (value != NULL && tocsin_json_get_kind(value) == TOCSIN_JSON_NULL)
        return "none";
    return is_text(param, key, "non_zero") ? "non_zero" : NULL;
}

/* Contain(F, G): each F calls G, at any depth. Contain(F, change): while F runs, the attribute of
 * some variable changes in this way. */
static void take_containment(translation *made)
{
    made->group = "parent_func_call_pre";
    by_function(made, TOCSIN_POPULATION_CALL, function_of(made, 0));
    const tocsin_json_value *child = made->params[1];
    if (is_text(child, "param_type", "APIParam")) {
        const char *callee = function_of(made, 1);
        if (callee != NULL)
            made->fact = (tocsin_fact_key){.predicate = TOCSIN_PREDICATE_CALLS,
                                           .name = symbol(made, callee)};
        return;
    }
    const char *attribute = text_of(child, "attr_name");
    const char *before = change_word(child, "pre_value"), *after = change_word(child, "post_value");
    if (!is_text(child, "param_type", "VarTypeParam") || attribute == NULL ||
        (strcmp(attribute, "data") != 0 && strcmp(attribute, "grad") != 0) || before == NULL ||
        after == NULL) {
        refuse(made, "what it contains is neither a call nor a plain change of data or grad");
        return;
    }
    char text[40];
    snprintf(text, sizeof text, "%s>%s", before, after);
    tocsin_literal literal = {.kind = TOCSIN_VALUE_STRING, .text = text};
    made->population.kind = TOCSIN_POPULATION_SAMPLED_CALL;
    made->fact = (tocsin_fact_key){.predicate = TOCSIN_PREDICATE_CHANGES,
                                   .name = symbol(made, attribute),
                                   .value = tocsin_scalar_of(made->vocabulary, &literal)};
    made->no_memory |= made->fact.value == 0;
}

static bool is_parameter_type(const char *type)
{
    size_t bytes = strlen(type);
    return bytes >= 9 && strcmp(type + bytes - 9, "Parameter") == 0;
}

static void take_consistency(translation *made)
{
    made->group = "var";
    made->pair = true;
    const char *types[2], *attributes[2];
    for (size_t i = 0; i < 2; ++i) {
        types[i] = text_of(made->params[i], "var_type");
        attributes[i] = text_of(made->params[i], "attr_name");
        if (types[i] == NULL || attributes[i] == NULL ||
            text_of(made->params[i], "var_name") != NULL) {
            refuse(made, "it compares variables that it names");
            return;
        }
    }
    bool gradient = strcmp(attributes[0], "grad") == 0;
    if (strcmp(types[0], types[1]) != 0 || strcmp(attributes[0], attributes[1]) != 0) {
        refuse(made, "it compares two different attributes");
        return;
    }
    if (!gradient && strcmp(attributes[0], "data") != 0) {
        refuse(made, "it compares an attribute that is neither data nor grad");
        return;
    }
    made->population =
        (tocsin_population_key){.kind = TOCSIN_POPULATION_REPLICAS,
                                .role = TOCSIN_ROLE_OPTIMIZER_STEP,
                                .variable = is_parameter_type(types[0]) ? TOCSIN_VARIABLE_PARAMETER
                                                                        : TOCSIN_VARIABLE_BUFFER,
                                .moment = gradient ? TOCSIN_MOMENT_ENTER : TOCSIN_MOMENT_EXIT,
                                .name = symbol(made, attributes[0])};
    made->fact = (tocsin_fact_key){.predicate = TOCSIN_PREDICATE_EQUAL};
}

/* TrainCheck does not compare the first data of a variable. Imported states say whether they are
 * ("initial"); in a run that Tocsin recorded none are, for they are read after optimizer.step,
 * which there has a learning rate. So: and it is not initial, or and there is a learning rate. */
static void leave_out_first(translation *made)
{
    if (made->why != NULL || made->no_memory)
        return;
    if (made->inverted || made->any_count > CONJUNCTIONS_MAX / 2) {
        refuse(made, "it compares variables under an inverted or very long precondition");
        return;
    }
    tocsin_literal no = {.kind = TOCSIN_VALUE_BOOL};
    tocsin_clause settled = {.kind = TOCSIN_CLAUSE_CONSTANT,
                             .field = symbol(made, "var.initial"),
                             .value = tocsin_scalar_of(made->vocabulary, &no)};
    tocsin_clause native = {.kind = TOCSIN_CLAUSE_EXIST, .field = symbol(made, "self.lr")};
    if (made->any_count == 0)
        made->any[made->any_count++] = (tocsin_conjunction){.count = 0};
    uint32_t count = made->any_count;
    for (uint32_t i = 0; i < count; ++i) {
        const tocsin_conjunction *from = &made->any[i];
        size_t room = from->count + 1;
        tocsin_clause *here = TOCSIN_ARENA_ARRAY(&made->arena, tocsin_clause, room);
        tocsin_clause *there = TOCSIN_ARENA_ARRAY(&made->arena, tocsin_clause, room);
        made->no_memory |= here == NULL || there == NULL || settled.value == 0;
        if (made->no_memory)
            return;
        if (from->count > 0) {
            memcpy(here, from->clauses, from->count * sizeof *here);
            memcpy(there, from->clauses, from->count * sizeof *there);
        }
        here[from->count] = settled;
        there[from->count] = native;
        made->any[made->any_count++] =
            (tocsin_conjunction){.count = (uint32_t)room, .clauses = there};
        made->any[i] = (tocsin_conjunction){.count = (uint32_t)room, .clauses = here};
    }
}

static void take_relation(translation *made)
{
    const tocsin_json_value *params = tocsin_json_get_member(made->root, "params");
    const char *relation = text_of(made->root, "relation");
    for (size_t i = 0; i < TOCSIN_COUNT_OF(made->params); ++i)
        made->params[i] = tocsin_json_get_item(params, i);
    if (strcmp(relation, "ConsistencyRelation") == 0)
        take_consistency(made);
    else if (strcmp(relation, "APIContainRelation") == 0)
        take_containment(made);
    else if (strcmp(relation, "DistinctArgumentRelation") == 0)
        take_distinct(made);
    else if (strcmp(relation, "FunctionCoverRelation") == 0)
        take_order(made, true);
    else if (strcmp(relation, "FunctionLeadRelation") == 0)
        take_order(made, false);
    else
        refuse(made, "its relation has no counterpart here");
}

static tocsin_status add_translated(translation *made, tocsin_invariant_set *set,
                                    tocsin_error *error)
{
    int64_t examples = 0;
    (void)tocsin_json_get_integer(tocsin_json_get_member(made->root, "num_positive_examples"),
                                  &examples);
    tocsin_invariant invariant = {
        .population = tocsin_population_of(made->vocabulary, &made->population),
        .fact = tocsin_fact_of(made->vocabulary, &made->fact),
        .when = {.inverted = made->inverted, .count = made->any_count, .any = made->any},
        .instances = examples > 0 ? (uint64_t)examples : 0};
    if (made->no_memory || invariant.population == 0 || invariant.fact == 0)
        return tocsin_error_memory(error);
    return tocsin_invariants_add(set, &invariant, error);
}

/* ---- the file ------------------------------------------------------------------------------ */

static bool is_invariant(const tocsin_json_value *root)
{
    return text_of(root, "relation") != NULL &&
           tocsin_json_get_kind(tocsin_json_get_member(root, "params")) == TOCSIN_JSON_ARRAY &&
           tocsin_json_get_member(root, "precondition") != NULL;
}

bool tocsin_traincheck_is_invariant_file(const char *path)
{
    tocsin_reader reader;
    tocsin_json_value *root = NULL;
    const char *line = NULL;
    size_t bytes = 0;
    if (tocsin_reader_open(&reader, path, NULL) != TOCSIN_OK)
        return false;
    tocsin_status status;
    do
        status = tocsin_reader_line(&reader, TOCSIN_TRAINCHECK_LINE_MAX, &line, &bytes, NULL);
    while (status == TOCSIN_OK && line != NULL && bytes == 0);
    bool found = status == TOCSIN_OK && line != NULL &&
                 tocsin_python_json_parse(line, bytes, path, &root, NULL) == TOCSIN_OK &&
                 is_invariant(root);
    tocsin_json_free(root);
    tocsin_reader_close(&reader);
    return found;
}

static tocsin_status take_invariant(const tocsin_json_value *root, const char *path, uint64_t line,
                                    const tocsin_foreign_options *options,
                                    tocsin_invariant_set *set, tocsin_error *error)
{
    translation made = {.vocabulary = tocsin_invariants_vocabulary(set), .root = root};
    take_relation(&made);
    if (made.why == NULL)
        take_precondition(&made);
    if (made.pair && made.population.moment == TOCSIN_MOMENT_EXIT)
        leave_out_first(&made);
    tocsin_status status = TOCSIN_OK;
    const char *text = text_of(root, "text_description");
    if (made.no_memory)
        status = tocsin_error_memory(error);
    else if (made.why == NULL)
        status = add_translated(&made, set, error);
    else if (options != NULL && options->skipped != NULL)
        options->skipped(options->context, path, line, text != NULL ? text : "", made.why);
    tocsin_arena_free(&made.arena);
    return status;
}

static tocsin_status take_line(const char *text, size_t bytes, const char *path, uint64_t line,
                               const tocsin_foreign_options *options, tocsin_invariant_set *set,
                               tocsin_error *error)
{
    tocsin_json_value *root = NULL;
    tocsin_status status = tocsin_python_json_parse(text, bytes, path, &root, error);
    if (status == TOCSIN_OK && !is_invariant(root))
        status = TOCSIN_E_FORMAT;
    if (status == TOCSIN_E_FORMAT)
        status = tocsin_error_at(error, TOCSIN_E_FORMAT, path, -1,
                                 "line %llu is not an invariant of TrainCheck",
                                 (unsigned long long)line);
    if (status == TOCSIN_OK)
        status = take_invariant(root, path, line, options, set, error);
    tocsin_json_free(root);
    return status;
}

static tocsin_status take_file(const char *path, const tocsin_foreign_options *options,
                               tocsin_invariant_set *set, tocsin_error *error)
{
    tocsin_reader reader;
    const char *text = NULL;
    size_t bytes = 0;
    TOCSIN_TRY(tocsin_reader_open(&reader, path, error));
    tocsin_status status = TOCSIN_OK;
    for (uint64_t line = 1; status == TOCSIN_OK; ++line) {
        status = tocsin_reader_line(&reader, TOCSIN_TRAINCHECK_LINE_MAX, &text, &bytes, error);
        if (status != TOCSIN_OK || text == NULL)
            break;
        if (bytes > 0)
            status = take_line(text, bytes, path, line, options, set, error);
    }
    tocsin_reader_close(&reader);
    return status == TOCSIN_OK ? tocsin_invariants_sort(set, error) : status;
}

tocsin_status tocsin_traincheck_invariants_load(const char *path,
                                                const tocsin_foreign_options *options,
                                                tocsin_invariant_set **set, tocsin_error *error)
{
    if (path == NULL || set == NULL ||
        (options != NULL && options->struct_bytes != sizeof *options))
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "options for foreign invariants");
    tocsin_invariant_set *made = *set;
    if (made == NULL)
        TOCSIN_TRY(tocsin_invariants_new(&made, error));
    tocsin_status status = take_file(path, options, made, error);
    if (status != TOCSIN_OK && *set == NULL)
        tocsin_invariants_free(made);
    else
        *set = made;
    return status;
}
