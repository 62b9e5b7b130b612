/* The relations of TrainCheck and their parameters -> populations and facts of ours.
 *
 * Each relation has one translation below; what has none is reported, never dropped in silence.
 * Tensors in calls are named by their place, as TrainCheck does: relation_output.c.
 */
#include <assert.h>
#include <exchange/traincheck_translation.h>
#include <stdio.h>

#define FIELD_BYTES 120

/* ---- relations ----------------------------------------------------------------------------- */

static const char *function_of(tocsin_translation *made, size_t index)
{
    const tocsin_json_value *param = made->params[index];
    const char *name = tocsin_json_member_text(param, "api_full_name");
    if (name == NULL || !tocsin_json_member_is(param, "param_type", "APIParam"))
        return tocsin_translation_refuse(made, "a parameter that is no function");
    if (tocsin_json_get_member(param, "exception") != NULL)
        return tocsin_translation_refuse(made, "a function that raises an exception");
    return name;
}

/* The arguments that a function is called with, by name; NULL: any. */
static const tocsin_json_value *arguments_of(const tocsin_json_value *param)
{
    const tocsin_json_value *arguments =
        tocsin_json_get_member(tocsin_json_get_member(param, "arguments"), "args");
    return tocsin_json_get_count(arguments) > 0 ? arguments : NULL;
}

/* A function with any arguments. */
static const char *plain_function_of(tocsin_translation *made, size_t index)
{
    if (arguments_of(made->params[index]) != NULL)
        return tocsin_translation_refuse(made, "a function with given arguments");
    return function_of(made, index);
}

static void by_function(tocsin_translation *made, uint8_t kind, const char *name)
{
    if (name != NULL)
        made->population =
            (tocsin_population_key){.kind = kind, .name = tocsin_translation_symbol(made, name)};
}

static void take_distinct(tocsin_translation *made)
{
    made->group = "distinct_arg";
    by_function(made, TOCSIN_POPULATION_FURTHER_CALL, plain_function_of(made, 0));
    made->fact = (tocsin_fact_key){.predicate = TOCSIN_PREDICATE_DISTINCT};
}

static tocsin_clause there(tocsin_symbol field)
{
    return (tocsin_clause){.kind = TOCSIN_CLAUSE_EXIST, .field = field};
}

/* Is its precondition one of the form "unless"? */
static bool is_inverted(const tocsin_translation *made)
{
    const tocsin_json_value *groups = tocsin_json_get_member(made->root, "precondition");
    bool inverted = false;
    return tocsin_json_get_bool(
               tocsin_json_get_member(tocsin_json_get_member(groups, made->group), "inverted"),
               &inverted) &&
           inverted;
}

/* Cover(A, B): before each further B an A. Lead(A, B): after each A but the last a B, before the
 * next A; where the precondition cannot say "but the last", it is looked up at that next A. */
static void take_order(tocsin_translation *made, bool cover)
{
    made->group = cover ? "func_cover" : "func_lead";
    const char *first = plain_function_of(made, 0), *second = plain_function_of(made, 1);
    if (first == NULL || second == NULL)
        return;
    bool leads = !cover && !is_inverted(made);
    by_function(made, leads ? TOCSIN_POPULATION_LEADING_CALL : TOCSIN_POPULATION_REPEATED_CALL,
                cover ? second : first);
    made->fact =
        (tocsin_fact_key){.predicate = leads ? TOCSIN_PREDICATE_LEADS : TOCSIN_PREDICATE_FOLLOWS,
                          .name = tocsin_translation_symbol(made, cover ? first : second)};
    tocsin_literal no = {.kind = TOCSIN_VALUE_BOOL};
    if (leads)
        made->also[0] = (tocsin_clause){.kind = TOCSIN_CLAUSE_CONSTANT,
                                        .field = tocsin_translation_symbol(made, "call.last"),
                                        .value = tocsin_scalar_of(made->vocabulary, &no)};
    made->no_memory |= leads && made->also[0].value == 0;
}

/* "non_zero", None; NULL: another word. */
static const char *change_word(const tocsin_json_value *param, const char *key)
{
    const tocsin_json_value *value = tocsin_json_get_member(param, key);
    if (value != NULL && tocsin_json_get_kind(value) == TOCSIN_JSON_NULL)
        return "none";
    return tocsin_json_member_is(param, key, "non_zero") ? "non_zero" : NULL;
}

/* What "arg.NAME" or a property of it must be. A list is known by its length, an object by its
 * type, a tensor by its dtype. False: nothing that can be said. */
static bool take_argument(tocsin_translation *made, const char *name,
                          const tocsin_json_value *typed, tocsin_fact_key *fact)
{
    void *cursor = NULL;
    const char *type = NULL, *property = "";
    const tocsin_json_value *value = NULL;
    if (tocsin_json_get_count(typed) != 1 ||
        !tocsin_json_next_member(typed, &cursor, &type, &value))
        return false;
    tocsin_literal literal = {.kind = TOCSIN_VALUE_NONE};
    const char *dtype = tocsin_json_member_text(value, "dtype");
    bool truth = false;
    switch (tocsin_json_get_kind(value)) {
    case TOCSIN_JSON_BOOL:
        literal.kind = TOCSIN_VALUE_BOOL;
        literal.integer = tocsin_json_get_bool(value, &truth) && truth;
        break;
    case TOCSIN_JSON_INTEGER:
        literal.kind = TOCSIN_VALUE_INT;
        (void)tocsin_json_get_integer(value, &literal.integer);
        break;
    case TOCSIN_JSON_REAL:
        literal.kind = TOCSIN_VALUE_FLOAT;
        (void)tocsin_json_get_real(value, &literal.real);
        break;
    case TOCSIN_JSON_STRING:
        literal =
            (tocsin_literal){.kind = TOCSIN_VALUE_STRING, .text = tocsin_json_get_text(value)};
        break;
    case TOCSIN_JSON_ARRAY:
        property = ".length";
        literal.kind = TOCSIN_VALUE_INT;
        literal.integer = (int64_t)tocsin_json_get_count(value);
        break;
    case TOCSIN_JSON_OBJECT:
        property = dtype != NULL ? ".dtype" : ".type";
        literal = (tocsin_literal){.kind = TOCSIN_VALUE_STRING, .text = type};
        if (dtype != NULL)
            literal.text = strncmp(dtype, "torch.", 6) == 0 ? dtype + 6 : dtype;
        break;
    case TOCSIN_JSON_NULL:
        break;
    }
    char field[FIELD_BYTES];
    snprintf(field, sizeof field, "%s%.60s%s", strcmp(name, "self") == 0 ? "" : "arg.", name,
             property);
    fact->other = tocsin_translation_symbol(made, field);
    fact->value = tocsin_scalar_of(made->vocabulary, &literal);
    made->no_memory |= fact->value == 0;
    return true;
}

/* One fact an argument. */
static void take_arguments(tocsin_translation *made, const char *callee,
                           const tocsin_json_value *arguments)
{
    void *cursor = NULL;
    const char *name;
    const tocsin_json_value *value;
    uint32_t count = 0;
    while (tocsin_json_next_member(arguments, &cursor, &name, &value)) {
        tocsin_fact_key fact = {.predicate = TOCSIN_PREDICATE_CALLS_WITH,
                                .name = tocsin_translation_symbol(made, callee)};
        if (count > TOCSIN_TRANSLATION_FACTS_MAX || !take_argument(made, name, value, &fact)) {
            tocsin_translation_refuse(made, "arguments of another form");
            return;
        }
        *(count == 0 ? &made->fact : &made->more[count - 1]) = fact;
        made->more_count = count++;
    }
}

/* Contain(F, G): each F calls G, at any depth. Contain(F, G with arguments): each of these is
 * given to some such call. Contain(F, change): while F runs, the attribute of
 * some variable changes in this way. */
static void take_containment(tocsin_translation *made)
{
    made->group = "parent_func_call_pre";
    by_function(made, TOCSIN_POPULATION_CALL, plain_function_of(made, 0));
    const tocsin_json_value *child = made->params[1];
    if (tocsin_json_member_is(child, "param_type", "APIParam")) {
        const char *callee = function_of(made, 1);
        if (callee != NULL && arguments_of(child) != NULL)
            take_arguments(made, callee, arguments_of(child));
        else if (callee != NULL)
            made->fact = (tocsin_fact_key){.predicate = TOCSIN_PREDICATE_CALLS,
                                           .name = tocsin_translation_symbol(made, callee)};
        return;
    }
    const char *attribute = tocsin_json_member_text(child, "attr_name");
    const char *before = change_word(child, "pre_value"), *after = change_word(child, "post_value");
    if (!tocsin_json_member_is(child, "param_type", "VarTypeParam") || attribute == NULL ||
        (strcmp(attribute, "data") != 0 && strcmp(attribute, "grad") != 0) || before == NULL ||
        after == NULL) {
        tocsin_translation_refuse(
            made, "what it contains is neither a call nor a plain change of data or grad");
        return;
    }
    char text[40];
    snprintf(text, sizeof text, "%s>%s", before, after);
    tocsin_literal literal = {.kind = TOCSIN_VALUE_STRING, .text = text};
    made->population.kind = TOCSIN_POPULATION_SAMPLED_CALL;
    made->fact = (tocsin_fact_key){.predicate = TOCSIN_PREDICATE_CHANGES,
                                   .name = tocsin_translation_symbol(made, attribute),
                                   .value = tocsin_scalar_of(made->vocabulary, &literal)};
    made->no_memory |= made->fact.value == 0;
}

static bool is_parameter_type(const char *type)
{
    size_t bytes = strlen(type);
    return bytes >= 9 && strcmp(type + bytes - 9, "Parameter") == 0;
}

static void take_consistency(tocsin_translation *made)
{
    made->group = "var";
    made->pair = true;
    const char *types[2], *attributes[2];
    for (size_t i = 0; i < 2; ++i) {
        types[i] = tocsin_json_member_text(made->params[i], "var_type");
        attributes[i] = tocsin_json_member_text(made->params[i], "attr_name");
        if (types[i] == NULL || attributes[i] == NULL ||
            tocsin_json_member_text(made->params[i], "var_name") != NULL) {
            tocsin_translation_refuse(made, "it compares variables that it names");
            return;
        }
    }
    bool gradient = strcmp(attributes[0], "grad") == 0;
    if (strcmp(types[0], types[1]) != 0 || strcmp(attributes[0], attributes[1]) != 0) {
        tocsin_translation_refuse(made, "it compares two different attributes");
        return;
    }
    if (!gradient && strcmp(attributes[0], "data") != 0) {
        tocsin_translation_refuse(made, "it compares an attribute that is neither data nor grad");
        return;
    }
    made->population =
        (tocsin_population_key){.kind = TOCSIN_POPULATION_REPLICAS,
                                .role = TOCSIN_ROLE_OPTIMIZER_STEP,
                                .variable = is_parameter_type(types[0]) ? TOCSIN_VARIABLE_PARAMETER
                                                                        : TOCSIN_VARIABLE_BUFFER,
                                .moment = gradient ? TOCSIN_MOMENT_ENTER : TOCSIN_MOMENT_EXIT,
                                .name = tocsin_translation_symbol(made, attributes[0])};
    made->fact = (tocsin_fact_key){.predicate = TOCSIN_PREDICATE_EQUAL};
}

/* ---- tensors by their place ---------------------------------------------------------------- */

/* What the events of every run say of a tensor; anything else is a matter of who recorded it. */
static bool is_always_known(const char *property)
{
    static const char *const known[] = {"dtype",         "ndim",     "shape",
                                        "requires_grad", "itemsize", "nbytes"};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(known); ++i)
        if (strcmp(property, known[i]) == 0)
            return true;
    return false;
}

/* [16, 10] as shapes are written: "(16, 10)". */
static tocsin_scalar scalar_of_sizes(tocsin_translation *made, const tocsin_json_value *sizes)
{
    char text[2 + TOCSIN_NDIM_MAX * 22 + 1] = "(";
    size_t used = 1, count = tocsin_json_get_count(sizes);
    for (size_t i = 0; i < count; ++i) {
        int64_t size;
        if (count > TOCSIN_NDIM_MAX ||
            !tocsin_json_get_integer(tocsin_json_get_item(sizes, i), &size)) {
            tocsin_translation_refuse(made, "a list that is no shape");
            return 0;
        }
        used += (size_t)snprintf(text + used, sizeof text - used, i == 0 ? "%lld" : ", %lld",
                                 (long long)size);
    }
    snprintf(text + used, sizeof text - used, ")");
    tocsin_literal literal = {.kind = TOCSIN_VALUE_STRING, .text = text};
    tocsin_scalar scalar = tocsin_scalar_of(made->vocabulary, &literal);
    made->no_memory |= scalar == 0;
    return scalar;
}

/* Output(F, property, value): of every tensor that F returns. */
static void take_output(tocsin_translation *made)
{
    made->group = "pre_event";
    by_function(made, TOCSIN_POPULATION_CALL_OUTPUT, plain_function_of(made, 0));
    const char *property = tocsin_json_member_text(made->params[1], "attr_name");
    const tocsin_json_value *value = tocsin_json_get_member(made->params[1], "const_value");
    if (property == NULL || value == NULL || tocsin_attribute_is_id(property)) {
        tocsin_translation_refuse(made, "what is returned has no plain property and value");
        return;
    }
    char field[FIELD_BYTES];
    snprintf(field, sizeof field, "output.%.60s", property);
    made->fact = (tocsin_fact_key){.predicate = TOCSIN_PREDICATE_RETURN_IS,
                                   .name = tocsin_translation_symbol(made, field),
                                   .value = tocsin_json_get_kind(value) == TOCSIN_JSON_ARRAY
                                                ? scalar_of_sizes(made, value)
                                                : tocsin_translation_scalar(made, field, value)};
    if (!is_always_known(property))
        made->also[0] = there(made->fact.name);
}

/* "output[0].shape[1]"; 0: refused. */
static tocsin_symbol place_of(tocsin_translation *made, const tocsin_json_value *param, bool output)
{
    const tocsin_json_value *path = tocsin_json_get_member(param, "additional_path");
    const char *property = tocsin_json_get_text(tocsin_json_get_item(path, 0));
    size_t steps = tocsin_json_get_count(path);
    int64_t place = -1, element = -1;
    bool is_input = false;
    (void)tocsin_json_get_integer(tocsin_json_get_member(param, "index"), &place);
    (void)tocsin_json_get_bool(tocsin_json_get_member(param, "is_input"), &is_input);
    bool sizes = steps == 2 && property != NULL && strcmp(property, "shape") == 0 &&
                 tocsin_json_get_integer(tocsin_json_get_item(path, 1), &element);
    if (property == NULL || (steps != 1 && !sizes) || element > 7 || (sizes && element < 0) ||
        is_input == output || place < 0 || place > 7 || tocsin_attribute_is_id(property)) {
        tocsin_translation_refuse(made, "a part of a tensor that calls do not have here");
        return 0;
    }
    char field[FIELD_BYTES], of[24] = "";
    if (sizes)
        snprintf(of, sizeof of, "[%d]", (int)element);
    snprintf(field, sizeof field, "%s[%d].%.60s%s", output ? "output" : "input", (int)place,
             property, of);
    return tocsin_translation_symbol(made, field);
}

/* InputOutput(property of a tensor argument, F, property of a returned tensor): they are equal. */
static void take_input_output(tocsin_translation *made)
{
    made->group = "pre_event";
    by_function(made, TOCSIN_POPULATION_CALL_OUTPUT, plain_function_of(made, 1));
    tocsin_symbol input = place_of(made, made->params[0], false);
    tocsin_symbol output = place_of(made, made->params[2], true);
    made->also[0] = there(input);
    made->also[1] = there(output);
    made->fact = (tocsin_fact_key){
        .predicate = TOCSIN_PREDICATE_RETURN_MATCHES, .name = output, .other = input};
}

/* Threshold(x, F, y): x is never below y; one of them is an argument called min or max, the other
 * a size of the tensor that F returns. */
static void take_threshold(tocsin_translation *made)
{
    made->group = "pre_event";
    by_function(made, TOCSIN_POPULATION_CALL_OUTPUT, plain_function_of(made, 1));
    bool at_most = false;
    (void)tocsin_json_get_bool(tocsin_json_get_member(made->params[0], "is_input"), &at_most);
    const tocsin_json_value *limit = made->params[at_most ? 0 : 2];
    const tocsin_json_value *size = made->params[at_most ? 2 : 0];
    const tocsin_json_value *path = tocsin_json_get_member(size, "additional_path");
    const char *argument = tocsin_json_member_text(limit, "name");
    const char *property = tocsin_json_get_text(tocsin_json_get_item(path, 0));
    int64_t place = -1, element = -1;
    (void)tocsin_json_get_integer(tocsin_json_get_member(size, "index"), &place);
    if (argument == NULL || property == NULL || strcmp(property, "shape") != 0 || place != 0 ||
        !tocsin_json_get_integer(tocsin_json_get_item(path, 1), &element) || element < 0 ||
        element > 1) {
        tocsin_translation_refuse(made, "a limit of something else than a size");
        return;
    }
    char field[FIELD_BYTES], returned[FIELD_BYTES];
    snprintf(field, sizeof field, "arg.%.60s", argument);
    snprintf(returned, sizeof returned, "return.shape[%d]", (int)element);
    made->fact = (tocsin_fact_key){.predicate = at_most ? TOCSIN_PREDICATE_RETURN_AT_MOST
                                                        : TOCSIN_PREDICATE_RETURN_AT_LEAST,
                                   .name = tocsin_translation_symbol(made, returned),
                                   .other = tocsin_translation_symbol(made, field)};
    made->also[0] = there(made->fact.other);
}

void tocsin_translation_take_relation(tocsin_translation *made)
{
    const tocsin_json_value *params = tocsin_json_get_member(made->root, "params");
    const char *relation = tocsin_json_member_text(made->root, "relation");
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
    else if (strcmp(relation, "ConsistentOutputRelation") == 0)
        take_output(made);
    else if (strcmp(relation, "ConsistentInputOutputRelation") == 0)
        take_input_output(made);
    else if (strcmp(relation, "ThresholdRelation") == 0)
        take_threshold(made);
    else
        tocsin_translation_refuse(made, "its relation has no counterpart here");
}
