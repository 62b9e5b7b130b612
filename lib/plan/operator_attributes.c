/* operator_attributes.c - which attributes the known operators take.
 *
 * One table, searched linearly (plan_check.c asks once for each pair of operator and attribute
 * set). An operator with an exact rule refuses attributes that the table does not list: the prover
 * would pass over them. The attributes of the others are part of their identity.
 */
#include "plan/plan_check.h"

#include <assert.h>

enum { OPTIONAL, REQUIRED };

/* What a value must be: one integer, a list of them, a real (or one integer), a word, one of the
 * reductions. */
typedef enum attribute_form { INTEGER, LIST, REAL, WORD, REDUCTION, SUM_OR_AVG } attribute_form;

typedef struct attribute_rule {
    uint8_t code;
    uint8_t need;
    uint8_t form;
    const char *key;
} attribute_rule;

static const attribute_rule rules[] = {
    {TOCSIN_OPERATOR_CAST, OPTIONAL, WORD, "dtype"},
    {TOCSIN_OPERATOR_VIEW, OPTIONAL, LIST, "shape"},
    {TOCSIN_OPERATOR_PERMUTE, REQUIRED, LIST, "dims"},
    {TOCSIN_OPERATOR_EXPAND, OPTIONAL, LIST, "shape"},
    {TOCSIN_OPERATOR_SLICE, REQUIRED, INTEGER, "dim"},
    {TOCSIN_OPERATOR_SLICE, REQUIRED, INTEGER, "start"},
    {TOCSIN_OPERATOR_SLICE, REQUIRED, INTEGER, "end"},
    {TOCSIN_OPERATOR_SLICE, OPTIONAL, INTEGER, "step"},
    {TOCSIN_OPERATOR_SELECT, REQUIRED, INTEGER, "dim"},
    {TOCSIN_OPERATOR_SELECT, REQUIRED, INTEGER, "index"},
    {TOCSIN_OPERATOR_SPLIT, REQUIRED, INTEGER, "dim"},
    {TOCSIN_OPERATOR_SPLIT, REQUIRED, LIST, "sizes"},
    {TOCSIN_OPERATOR_UNBIND, REQUIRED, INTEGER, "dim"},
    {TOCSIN_OPERATOR_CAT, REQUIRED, INTEGER, "dim"},
    {TOCSIN_OPERATOR_STACK, REQUIRED, INTEGER, "dim"},
    {TOCSIN_OPERATOR_PAD, REQUIRED, INTEGER, "dim"},
    {TOCSIN_OPERATOR_PAD, REQUIRED, INTEGER, "before"},
    {TOCSIN_OPERATOR_PAD, REQUIRED, INTEGER, "after"},
    {TOCSIN_OPERATOR_ADD, OPTIONAL, REAL, "alpha"},
    {TOCSIN_OPERATOR_SCALE, REQUIRED, REAL, "factor"},
    {TOCSIN_OPERATOR_SCALE, OPTIONAL, REAL, "divisor"}, /* for reports: factor is its reciprocal */
    {TOCSIN_OPERATOR_ADD_SCALAR, REQUIRED, REAL, "value"},
    {TOCSIN_OPERATOR_SUM, REQUIRED, LIST, "dims"},
    {TOCSIN_OPERATOR_SUM, OPTIONAL, INTEGER, "keepdim"},
    {TOCSIN_OPERATOR_MEAN, REQUIRED, LIST, "dims"},
    {TOCSIN_OPERATOR_MEAN, OPTIONAL, INTEGER, "keepdim"},
    {TOCSIN_OPERATOR_FULL, REQUIRED, REAL, "value"},
    {TOCSIN_OPERATOR_FULL, OPTIONAL, LIST, "shape"},
    {TOCSIN_OPERATOR_ARANGE, REQUIRED, INTEGER, "start"},
    {TOCSIN_OPERATOR_ARANGE, REQUIRED, INTEGER, "end"},
    {TOCSIN_OPERATOR_ARANGE, OPTIONAL, INTEGER, "step"},
    {TOCSIN_OPERATOR_POWER, REQUIRED, REAL, "exponent"},
    {TOCSIN_OPERATOR_MASKED_FILL, REQUIRED, REAL, "value"},
    {TOCSIN_OPERATOR_AMAX, REQUIRED, LIST, "dims"},
    {TOCSIN_OPERATOR_AMAX, OPTIONAL, INTEGER, "keepdim"},
    {TOCSIN_OPERATOR_SOFTMAX, REQUIRED, INTEGER, "dim"},
    {TOCSIN_OPERATOR_EMBEDDING_BACKWARD, REQUIRED, INTEGER, "rows"},
    {TOCSIN_OPERATOR_ALL_REDUCE, REQUIRED, REDUCTION, "op"},
    {TOCSIN_OPERATOR_ALL_GATHER, REQUIRED, INTEGER, "dim"},
    {TOCSIN_OPERATOR_REDUCE_SCATTER, REQUIRED, INTEGER, "dim"},
    {TOCSIN_OPERATOR_REDUCE_SCATTER, REQUIRED, SUM_OR_AVG, "op"},
    {TOCSIN_OPERATOR_ALL_TO_ALL, REQUIRED, INTEGER, "split_dim"},
    {TOCSIN_OPERATOR_ALL_TO_ALL, REQUIRED, INTEGER, "join_dim"},
    {TOCSIN_OPERATOR_BROADCAST, REQUIRED, INTEGER, "root"},
    {TOCSIN_OPERATOR_SEND, REQUIRED, INTEGER, "peer"},
    {TOCSIN_OPERATOR_SEND, OPTIONAL, INTEGER, "tag"},
    {TOCSIN_OPERATOR_SEND, OPTIONAL, INTEGER, "blocking"},
    {TOCSIN_OPERATOR_RECV, REQUIRED, INTEGER, "peer"},
    {TOCSIN_OPERATOR_RECV, OPTIONAL, INTEGER, "tag"},
};

/* Of every communication operator. */
static const attribute_rule communication_rules[] = {
    {0, OPTIONAL, INTEGER, "async"},
    {0, OPTIONAL, WORD, "buffer"},
};

static const char *const rule_names[TOCSIN_OPERATOR_COUNT] = {
#define X(code, name, rule, inputs, outputs, signature) [TOCSIN_OPERATOR_##code] = #rule,
    TOCSIN_OPERATOR_TABLE(X)
#undef X
};

static const char *const form_names[] = {
    [INTEGER] = "an integer", [LIST] = "a list of integers",        [REAL] = "a number",
    [WORD] = "a word",        [REDUCTION] = "sum, avg, max or min", [SUM_OR_AVG] = "sum or avg",
};

static bool is_one_of(const char *text, const char *const words[], size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        if (strcmp(text, words[i]) == 0)
            return true;
    }
    return false;
}

static bool has_form(const tocsin_plan *plan, const tocsin_attribute *attribute,
                     attribute_form form)
{
    static const char *const reductions[] = {"sum", "avg", "max", "min"};
    bool integers = attribute->kind == TOCSIN_ATTRIBUTE_INTEGERS;
    switch (form) {
    case INTEGER:
        return integers && attribute->count == 1;
    case LIST:
        return integers;
    case REAL:
        return (integers && attribute->count == 1) || attribute->kind == TOCSIN_ATTRIBUTE_REAL;
    case WORD:
        return attribute->kind == TOCSIN_ATTRIBUTE_TEXT;
    case REDUCTION:
    case SUM_OR_AVG:
        return attribute->kind == TOCSIN_ATTRIBUTE_TEXT &&
               is_one_of(tocsin_plan_text(plan, attribute->text), reductions,
                         form == REDUCTION ? 4 : 2);
    }
    assert(false && "a form");
    return false;
}

static const attribute_rule *rule_of(unsigned code, const char *key)
{
    for (size_t i = 0; i < TOCSIN_COUNT_OF(rules); ++i) {
        if (rules[i].code == code && strcmp(rules[i].key, key) == 0)
            return &rules[i];
    }
    for (size_t i = 0; i < TOCSIN_COUNT_OF(communication_rules); ++i) {
        if (tocsin_operator_communicates((tocsin_operator_code)code) &&
            strcmp(communication_rules[i].key, key) == 0)
            return &communication_rules[i];
    }
    return NULL;
}

tocsin_status tocsin_operator_check_attributes(const tocsin_plan *plan, const tocsin_plan_op *op,
                                               tocsin_error *error)
{
    assert(op->code < TOCSIN_OPERATOR_COUNT);
    if (op->code == TOCSIN_OPERATOR_CALL)
        return TOCSIN_OK;
    const char *name = tocsin_operators[op->code].name;
    bool open = strcmp(rule_names[op->code], "CONGRUENCE") == 0;
    for (size_t i = 0; i < TOCSIN_COUNT_OF(rules); ++i) {
        if (rules[i].code == op->code && rules[i].need == REQUIRED &&
            !tocsin_plan_attribute(plan, op->attributes, rules[i].key))
            return tocsin_error_set(error, TOCSIN_E_FORMAT, "%s needs the attribute %s, %s", name,
                                    rules[i].key, form_names[rules[i].form]);
    }
    tocsin_attribute_set set = plan->attribute_sets.items[op->attributes];
    for (uint32_t i = 0; i < set.count; ++i) {
        const char *key = tocsin_plan_text(plan, set.items[i].key);
        const attribute_rule *rule = rule_of(op->code, key);
        if (!rule && !open)
            return tocsin_error_set(error, TOCSIN_E_FORMAT, "%s has no attribute %s", name, key);
        if (rule && !has_form(plan, &set.items[i], rule->form))
            return tocsin_error_set(error, TOCSIN_E_FORMAT, "the attribute %s of %s must be %s",
                                    key, name, form_names[rule->form]);
    }
    return TOCSIN_OK;
}
