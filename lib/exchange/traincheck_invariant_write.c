/* Our invariants -> TrainCheck's, as far as it can say them.
 *
 * The reverse of traincheck_invariant_read.c: relations over functions by name and over replicas,
 * clauses over meta variables and attributes. What it cannot say (roles, quantified relations,
 * conditions on arguments) is reported, and not written. One line an invariant, in the set's order.
 */
#include <assert.h>
#include <exchange/exchange.h>
#include <invariant/instance.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct rendering {
    const tocsin_vocabulary *vocabulary;
    const tocsin_invariant *invariant;
    tocsin_population_key population;
    tocsin_fact_key fact;
    tocsin_json json;
    const char *why; /* it cannot be said */
} rendering;

static void refuse(rendering *made, const char *why)
{
    if (made->why == NULL)
        made->why = why;
}

static void put(rendering *made, const char *key, const char *text)
{
    tocsin_json_key(&made->json, key);
    tocsin_json_text(&made->json, text);
}

/* ---- values ------------------------------------------------------------------------------- */

static const char *put_value(rendering *made, const char *field, const tocsin_literal *value)
{
    size_t bytes = strlen(field);
    bool dtype = bytes > 5 && strcmp(field + bytes - 5, "dtype") == 0;
    switch (value->kind) {
    case TOCSIN_VALUE_BOOL:
        tocsin_json_bool(&made->json, value->integer != 0);
        return "bool";
    case TOCSIN_VALUE_INT:
        tocsin_json_integer(&made->json, value->integer);
        return "int";
    case TOCSIN_VALUE_FLOAT:
        tocsin_json_real(&made->json, value->real);
        return "float";
    case TOCSIN_VALUE_STRING:
        if (dtype) {
            char text[64];
            snprintf(text, sizeof text, "torch.%.50s", value->text);
            tocsin_json_text(&made->json, text);
        } else {
            tocsin_json_text(&made->json, value->text);
        }
        return "str";
    default:
        tocsin_json_text(&made->json, "MD_NONE");
        return "str";
    }
}

/* ---- parameters ---------------------------------------------------------------------------- */

static void put_function(rendering *made, uint8_t role, tocsin_symbol name)
{
    if (role != TOCSIN_ROLE_NONE)
        refuse(made, "it speaks of a role, not of a function");
    tocsin_json_begin_object(&made->json);
    put(made, "param_type", "APIParam");
    put(made, "api_full_name", tocsin_symbol_text(made->vocabulary, name));
    tocsin_json_end_object(&made->json);
}

/* {"name": {"type": value}} of the argument in "calls G with arg.name = value"; a type, a dtype and
 * a length stand for an object, a tensor and a list. */
static void put_argument(rendering *made, const char *field, const tocsin_literal *value)
{
    static const char *const types[] = {[TOCSIN_VALUE_NONE] = "NoneType",
                                        [TOCSIN_VALUE_BOOL] = "bool",
                                        [TOCSIN_VALUE_INT] = "int",
                                        [TOCSIN_VALUE_FLOAT] = "float",
                                        [TOCSIN_VALUE_STRING] = "str"};
    const char *name = strncmp(field, "arg.", 4) == 0 ? field + 4 : field;
    size_t bytes = strcspn(name, ".");
    char argument[80];
    snprintf(argument, sizeof argument, "%.*s", (int)(bytes < 70 ? bytes : 70), name);
    bool is_type = strcmp(name + bytes, ".type") == 0 && value->kind == TOCSIN_VALUE_STRING;
    if (name[bytes] != 0 && !is_type)
        refuse(made, "a property of an argument");
    tocsin_json_key(&made->json, argument);
    tocsin_json_begin_object(&made->json);
    tocsin_json_key(&made->json, is_type ? value->text : types[value->kind]);
    if (is_type) {
        tocsin_json_begin_object(&made->json);
        tocsin_json_end_object(&made->json);
    } else if (value->kind == TOCSIN_VALUE_NONE) {
        tocsin_json_null(&made->json);
    } else {
        (void)put_value(made, "", value);
    }
    tocsin_json_end_object(&made->json);
}

static void put_called_with(rendering *made)
{
    const char *callee = tocsin_symbol_text(made->vocabulary, made->fact.name);
    tocsin_literal value = tocsin_scalar_literal(made->vocabulary, made->fact.value);
    if (made->fact.role != TOCSIN_ROLE_NONE)
        refuse(made, "it speaks of a role, not of a function");
    tocsin_json_begin_object(&made->json);
    put(made, "param_type", "APIParam");
    put(made, "api_full_name", callee);
    tocsin_json_key(&made->json, "arguments");
    tocsin_json_begin_object(&made->json);
    tocsin_json_key(&made->json, "args");
    tocsin_json_begin_object(&made->json);
    put_argument(made, tocsin_symbol_text(made->vocabulary, made->fact.other), &value);
    tocsin_json_end_object(&made->json);
    put(made, "func_name", callee);
    tocsin_json_end_object(&made->json);
    tocsin_json_end_object(&made->json);
}

static void put_change_word(rendering *made, const char *key, const char *word, size_t bytes)
{
    tocsin_json_key(&made->json, key);
    if (bytes == 4 && memcmp(word, "none", bytes) == 0)
        tocsin_json_null(&made->json);
    else if (bytes == 8 && memcmp(word, "non_zero", bytes) == 0)
        tocsin_json_text(&made->json, "non_zero");
    else
        refuse(made, "a change from or to zero");
}

static void put_change(rendering *made)
{
    tocsin_literal value = tocsin_scalar_literal(made->vocabulary, made->fact.value);
    const char *text = value.kind == TOCSIN_VALUE_STRING ? value.text : "";
    const char *arrow = strchr(text, '>');
    if (arrow == NULL) {
        refuse(made, "a change of unknown form");
        return;
    }
    tocsin_json_begin_object(&made->json);
    put(made, "param_type", "VarTypeParam");
    put(made, "var_type", "torch.nn.Parameter");
    put(made, "attr_name", tocsin_symbol_text(made->vocabulary, made->fact.name));
    put_change_word(made, "pre_value", text, (size_t)(arrow - text));
    put_change_word(made, "post_value", arrow + 1, strlen(arrow + 1));
    tocsin_json_end_object(&made->json);
}

static void put_variable(rendering *made)
{
    bool parameter = made->population.variable == TOCSIN_VARIABLE_PARAMETER;
    tocsin_json_begin_object(&made->json);
    put(made, "param_type", "VarTypeParam");
    put(made, "var_type", parameter ? "torch.nn.Parameter" : "torch.Tensor");
    put(made, "attr_name", tocsin_symbol_text(made->vocabulary, made->population.name));
    tocsin_json_end_object(&made->json);
}

/* The sizes in "(16, 10)". */
static void put_sizes(rendering *made, const char *text)
{
    tocsin_json_begin_array(&made->json);
    for (const char *at = text + strspn(text, "("); *at != 0 && *at != ')';) {
        char *end;
        long long size = strtoll(at, &end, 10);
        if (end == at) {
            refuse(made, "a shape of unknown form");
            break;
        }
        tocsin_json_integer(&made->json, size);
        at = end + strspn(end, ", ");
    }
    tocsin_json_end_array(&made->json);
}

/* The property of what is returned, and its value. */
static void put_property_value(rendering *made)
{
    const char *field = tocsin_symbol_text(made->vocabulary, made->fact.name);
    tocsin_literal value = tocsin_scalar_literal(made->vocabulary, made->fact.value);
    if (strncmp(field, "output.", 7) != 0 || strchr(field, '[') != NULL)
        refuse(made, "it speaks of one returned value, not of all tensors");
    tocsin_json_begin_object(&made->json);
    put(made, "param_type", "VarTypeParam");
    put(made, "var_type", "torch.Tensor");
    put(made, "attr_name", field + strcspn(field, ".") + 1);
    tocsin_json_key(&made->json, "const_value");
    if (value.kind == TOCSIN_VALUE_STRING && strcmp(field, "output.shape") == 0)
        put_sizes(made, value.text);
    else if (value.kind == TOCSIN_VALUE_NONE)
        tocsin_json_null(&made->json);
    else
        (void)put_value(made, field, &value);
    tocsin_json_end_object(&made->json);
}

/* "input[0].shape[1]" -> the tensor's place and the path in it. */
static void put_place(rendering *made, tocsin_symbol name, bool input)
{
    const char *field = tocsin_symbol_text(made->vocabulary, name);
    int place = -1, size = -1, used = 0;
    char property[64] = "";
    if (sscanf(field, input ? "input[%d].%63[^[]%n" : "output[%d].%63[^[]%n", &place, property,
               &used) != 2 ||
        (field[used] != 0 && sscanf(field + used, "[%d]", &size) != 1))
        refuse(made, "it speaks of an argument by name, not of a tensor by its place");
    tocsin_json_begin_object(&made->json);
    put(made, "param_type", "InputOutputParam");
    put(made, "name", input ? "input_tensors" : "output_tensors");
    tocsin_json_key(&made->json, "index");
    tocsin_json_integer(&made->json, place);
    put(made, "type", "torch.Tensor");
    tocsin_json_key(&made->json, "additional_path");
    tocsin_json_begin_array(&made->json);
    tocsin_json_text(&made->json, property);
    if (size >= 0)
        tocsin_json_integer(&made->json, size);
    tocsin_json_end_array(&made->json);
    put(made, "api_name", tocsin_symbol_text(made->vocabulary, made->population.name));
    tocsin_json_key(&made->json, "is_input");
    tocsin_json_bool(&made->json, input);
    tocsin_json_end_object(&made->json);
}

static void put_parameters(rendering *made)
{
    const tocsin_fact_key *fact = &made->fact;
    if (fact->predicate == TOCSIN_PREDICATE_FOLLOWS)
        put_function(made, fact->role, fact->name);
    if (fact->predicate == TOCSIN_PREDICATE_RETURN_MATCHES)
        put_place(made, fact->other, true);
    if (made->population.kind == TOCSIN_POPULATION_REPLICAS) {
        put_variable(made);
        put_variable(made);
    } else {
        put_function(made, made->population.role, made->population.name);
    }
    if (fact->predicate == TOCSIN_PREDICATE_CALLS || fact->predicate == TOCSIN_PREDICATE_LEADS)
        put_function(made, fact->role, fact->name);
    else if (fact->predicate == TOCSIN_PREDICATE_CALLS_WITH)
        put_called_with(made);
    else if (fact->predicate == TOCSIN_PREDICATE_CHANGES)
        put_change(made);
    else if (fact->predicate == TOCSIN_PREDICATE_RETURN_IS)
        put_property_value(made);
    else if (fact->predicate == TOCSIN_PREDICATE_RETURN_MATCHES)
        put_place(made, fact->name, false);
}

/* Relation and parameters; returns the group of its precondition, NULL when there is none. */
static const char *put_relation(rendering *made)
{
    static const struct {
        uint8_t population, predicate;
        const char *relation, *group;
    } relations[] = {
        {TOCSIN_POPULATION_REPLICAS, TOCSIN_PREDICATE_EQUAL, "ConsistencyRelation", "var"},
        {TOCSIN_POPULATION_FURTHER_CALL, TOCSIN_PREDICATE_DISTINCT, "DistinctArgumentRelation",
         "distinct_arg"},
        {TOCSIN_POPULATION_REPEATED_CALL, TOCSIN_PREDICATE_FOLLOWS, "FunctionCoverRelation",
         "func_cover"},
        {TOCSIN_POPULATION_LEADING_CALL, TOCSIN_PREDICATE_LEADS, "FunctionLeadRelation",
         "func_lead"},
        {TOCSIN_POPULATION_CALL, TOCSIN_PREDICATE_CALLS, "APIContainRelation",
         "parent_func_call_pre"},
        {TOCSIN_POPULATION_CALL, TOCSIN_PREDICATE_CALLS_WITH, "APIContainRelation",
         "parent_func_call_pre"},
        {TOCSIN_POPULATION_SAMPLED_CALL, TOCSIN_PREDICATE_CHANGES, "APIContainRelation",
         "parent_func_call_pre"},
        {TOCSIN_POPULATION_CALL_OUTPUT, TOCSIN_PREDICATE_RETURN_IS, "ConsistentOutputRelation",
         "pre_event"},
        {TOCSIN_POPULATION_CALL_OUTPUT, TOCSIN_PREDICATE_RETURN_MATCHES,
         "ConsistentInputOutputRelation", "pre_event"}};
    size_t i = 0;
    while (i < TOCSIN_COUNT_OF(relations) && (relations[i].population != made->population.kind ||
                                              relations[i].predicate != made->fact.predicate))
        ++i;
    if (i == TOCSIN_COUNT_OF(relations)) {
        refuse(made, "TrainCheck has no such relation");
        return NULL;
    }
    put(made, "relation", relations[i].relation);
    tocsin_json_key(&made->json, "params");
    tocsin_json_begin_array(&made->json);
    put_parameters(made);
    tocsin_json_end_array(&made->json);
    return relations[i].group;
}

/* ---- preconditions ------------------------------------------------------------------------- */

static void put_property(rendering *made, const char *field)
{
    static const struct {
        const char *ours, *theirs;
    } words[] = {{"var.name", "var_name"},
                 {"var.type", "var_type"},
                 {"var.tensor_parallel", "attributes.tensor_model_parallel"},
                 {"meta.rank", "meta_vars._DATA_PARALLEL_RANK"}};
    tocsin_string property = {0};
    size_t i = 0;
    while (i < TOCSIN_COUNT_OF(words) && strcmp(words[i].ours, field) != 0)
        ++i;
    if (i < TOCSIN_COUNT_OF(words))
        tocsin_string_append_text(&property, words[i].theirs);
    else if (strncmp(field, "meta.", 5) == 0)
        tocsin_string_printf(&property, "meta_vars.%s", field + 5);
    else if (strncmp(field, "var.", 4) == 0)
        tocsin_string_printf(&property, "attributes.%s", field + 4);
    else
        refuse(made, "a condition on what TrainCheck's conditions cannot see");
    put(made, "prop_name", tocsin_string_text(&property));
    if (property.status != TOCSIN_OK)
        made->json.out->status = property.status;
    tocsin_string_free(&property);
}

static void put_clause(rendering *made, const char *type, const char *field,
                       const tocsin_literal *value)
{
    const char *dtype = "str";
    tocsin_json_begin_object(&made->json);
    put(made, "type", type);
    put_property(made, field);
    put(made, "additional_path", "None");
    if (value != NULL) {
        tocsin_json_key(&made->json, "values");
        tocsin_json_begin_array(&made->json);
        dtype = put_value(made, field, value);
        tocsin_json_end_array(&made->json);
    }
    put(made, "prop_dtype", dtype);
    tocsin_json_end_object(&made->json);
}

/* What a pair of ours always is. */
static void put_pair_clauses(rendering *made)
{
    static const char *const clauses[][3] = {{"unequal", "process_id", "int"},
                                             {"consistent", "var_name", "str"},
                                             {"consistent", "meta_vars.step", "int"}};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(clauses); ++i) {
        tocsin_json_begin_object(&made->json);
        put(made, "type", clauses[i][0]);
        put(made, "prop_name", clauses[i][1]);
        put(made, "additional_path", "None");
        put(made, "prop_dtype", clauses[i][2]);
        tocsin_json_end_object(&made->json);
    }
}

/* The two halves of what reading made of "not the first data": TrainCheck implies it. */
static bool is_implied(const char *field)
{
    return strcmp(field, "var.initial") == 0 || strcmp(field, "var.name") == 0;
}

static bool is_about_native_runs(const rendering *made, const tocsin_conjunction *all)
{
    for (uint32_t i = 0; i < all->count; ++i)
        if (all->clauses[i].kind == TOCSIN_CLAUSE_EXIST &&
            strcmp(tocsin_symbol_text(made->vocabulary, all->clauses[i].field), "self.lr") == 0)
            return true;
    return false;
}

/* What TrainCheck takes for granted: that a tensor's property is known, and that a call that
 * another follows is not the last. */
static bool is_granted(const char *field)
{
    return strcmp(field, "call.last") == 0 || strncmp(field, "output", 6) == 0 ||
           strncmp(field, "input[", 6) == 0;
}

static void put_conjunction(rendering *made, const tocsin_conjunction *all, bool pair)
{
    static const char *const types[] = {"", "constant", "consistent", "unequal", "exist"};
    tocsin_json_begin_object(&made->json);
    tocsin_json_key(&made->json, "clauses");
    uint32_t said = 0;
    for (uint32_t i = 0; i < all->count; ++i)
        said += !is_granted(tocsin_symbol_text(made->vocabulary, all->clauses[i].field));
    if (said == 0 && !pair) {
        tocsin_json_text(&made->json, "Unconditional");
        tocsin_json_end_object(&made->json);
        return;
    }
    tocsin_json_begin_array(&made->json);
    for (uint32_t i = 0; i < all->count; ++i) {
        const tocsin_clause *clause = &all->clauses[i];
        const char *field = tocsin_symbol_text(made->vocabulary, clause->field);
        if ((pair && is_implied(field)) || is_granted(field))
            continue;
        tocsin_literal value = {0};
        bool constant = clause->kind == TOCSIN_CLAUSE_CONSTANT;
        if (clause->kind == TOCSIN_CLAUSE_UNEQUAL && clause->value != 0)
            refuse(made, "a condition that something has not a value");
        if (constant)
            value = tocsin_scalar_literal(made->vocabulary, clause->value);
        put_clause(made, types[clause->kind], field, constant ? &value : NULL);
    }
    if (pair)
        put_pair_clauses(made);
    tocsin_json_end_array(&made->json);
    tocsin_json_end_object(&made->json);
}

static void put_precondition(rendering *made, const char *group)
{
    static const tocsin_conjunction always = {.count = 0};
    const tocsin_precondition *when = &made->invariant->when;
    bool pair = made->population.kind == TOCSIN_POPULATION_REPLICAS;
    if (pair && when->inverted)
        refuse(made, "an inverted condition on two ranks");
    tocsin_json_key(&made->json, "precondition");
    tocsin_json_begin_object(&made->json);
    tocsin_json_key(&made->json, group);
    tocsin_json_begin_object(&made->json);
    tocsin_json_key(&made->json, "inverted");
    tocsin_json_bool(&made->json, when->inverted);
    tocsin_json_key(&made->json, "preconditions");
    tocsin_json_begin_array(&made->json);
    for (uint32_t i = 0; i < when->count; ++i)
        if (!pair || !is_about_native_runs(made, &when->any[i]))
            put_conjunction(made, &when->any[i], pair);
    if (when->count == 0)
        put_conjunction(made, &always, pair);
    tocsin_json_end_array(&made->json);
    tocsin_json_end_object(&made->json);
    tocsin_json_end_object(&made->json);
}

/* ---- the file ------------------------------------------------------------------------------ */

/* One line; why is not NULL when there is none. */
static const char *put_invariant(const tocsin_invariant_set *set, size_t index, tocsin_string *line)
{
    const tocsin_invariant *invariant = tocsin_invariants_get(set, index);
    const tocsin_vocabulary *vocabulary = tocsin_invariants_vocabulary(set);
    rendering made = {.vocabulary = vocabulary,
                      .invariant = invariant,
                      .population = tocsin_population_get_key(vocabulary, invariant->population),
                      .fact = tocsin_fact_get_key(vocabulary, invariant->fact),
                      .json = {.out = line}};
    tocsin_string_clear(line);
    tocsin_json_begin_object(&made.json);
    put(&made, "text_description", tocsin_invariant_sentence(set, index));
    const char *group = put_relation(&made);
    if (group != NULL)
        put_precondition(&made, group);
    tocsin_json_key(&made.json, "num_positive_examples");
    tocsin_json_unsigned(&made.json, invariant->instances);
    tocsin_json_key(&made.json, "num_negative_examples");
    tocsin_json_unsigned(&made.json, 0);
    tocsin_json_end_object(&made.json);
    tocsin_string_append_char(line, '\n');
    return made.why;
}

static tocsin_status write_all(const tocsin_invariant_set *set, tocsin_writer *writer,
                               const tocsin_foreign_options *options, const char *path,
                               uint64_t *written, tocsin_error *error)
{
    tocsin_string line = {0};
    tocsin_status status = TOCSIN_OK;
    for (size_t i = 0; i < tocsin_invariants_count(set) && status == TOCSIN_OK; ++i) {
        const char *why = put_invariant(set, i, &line);
        status = tocsin_string_check(&line, error);
        if (status == TOCSIN_OK && why == NULL) {
            status = tocsin_writer_write(writer, line.text, line.bytes, error);
            ++*written;
        } else if (status == TOCSIN_OK && options != NULL && options->skipped != NULL) {
            options->skipped(options->context, path, i + 1, tocsin_invariant_sentence(set, i), why);
        }
    }
    tocsin_string_free(&line);
    return status;
}

tocsin_status tocsin_traincheck_invariants_save(const tocsin_invariant_set *set, const char *path,
                                                bool force, const tocsin_foreign_options *options,
                                                uint64_t *written, tocsin_error *error)
{
    uint64_t count = 0;
    if (set == NULL || path == NULL ||
        (options != NULL && options->struct_bytes != sizeof *options))
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "options for foreign invariants");
    tocsin_writer writer;
    TOCSIN_TRY(tocsin_writer_open(&writer, path, force, error));
    tocsin_status status = write_all(set, &writer, options, path, &count, error);
    if (status == TOCSIN_OK)
        status = tocsin_writer_commit(&writer, error);
    tocsin_writer_abandon(&writer);
    if (written != NULL)
        *written = count;
    return status;
}
