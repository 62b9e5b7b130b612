/* plan_operator.c - operator lines of the `.plan` text: nearly all of a plan's bytes.
 *
 *     OUTPUTS = NAME(INPUTS) {ATTRIBUTES} KEYWORDS
 *
 * A line is taken apart in one pass. Names are looked up by their string's id in an array whose
 * entries carry the role's stamp; attribute sets are interned by their text as it stands, so that
 * a set is parsed once. Nothing is allocated for a line whose names and attributes are known.
 */
#include "plan/plan_text.h"

#include <assert.h>
#include <math.h>

/* ---- values -----------------------------------------------------------------------------------
 */

tocsin_status tocsin_plan_reader_binding(tocsin_plan_reader *r, uint32_t name, uint32_t **value)
{
    size_t needed = (size_t)name + 1;
    if (needed > r->bindings.count) {
        if (!TOCSIN_VEC_RESERVE(&r->bindings, needed - r->bindings.count))
            return tocsin_token_located(r, tocsin_error_memory(&r->inner));
        memset(r->bindings.items + r->bindings.count, 0,
               (needed - r->bindings.count) * sizeof *r->bindings.items);
        r->bindings.count = needed;
    }
    tocsin_plan_binding *binding = &r->bindings.items[name];
    if (binding->stamp != r->stamp)
        *binding = (tocsin_plan_binding){.stamp = r->stamp, .value = TOCSIN_PLAN_NONE};
    *value = &binding->value;
    return TOCSIN_OK;
}

static const tocsin_plan_value *value_of(const tocsin_plan_reader *r, uint32_t id)
{
    const tocsin_plan_role *role = &r->plan->roles.items[r->plan->roles.count - 1];
    assert(id < role->value_count);
    return &r->plan->values.items[role->first_value + id];
}

tocsin_status tocsin_plan_reader_define(tocsin_plan_reader *r, const tocsin_plan_value *value,
                                        const tocsin_plan_type *type, uint32_t *id)
{
    uint32_t *bound = NULL;
    tocsin_plan_value typed = *value;
    TOCSIN_TRY(tocsin_plan_reader_binding(r, value->name, &bound));
    typed.ndim = type->ndim;
    typed.dtype = type->dtype;
    if (*bound == TOCSIN_PLAN_NONE)
        TOCSIN_TRY(tocsin_token_located(
            r, tocsin_plan_add_value(r->plan, &typed, type->shape, bound, &r->inner)));
    else
        TOCSIN_TRY(tocsin_token_located(
            r, tocsin_plan_define_value(r->plan, *bound, &typed, type->shape, &r->inner)));
    *id = *bound;
    return TOCSIN_OK;
}

/* Is the value of this type? `type` of dtype none fits any. */
static tocsin_status check_type(tocsin_plan_reader *r, uint32_t id, const tocsin_plan_type *type)
{
    const tocsin_plan_value *value = value_of(r, id);
    if (value->ndim != type->ndim || value->dtype != type->dtype ||
        (type->ndim > 0 && memcmp(tocsin_plan_shape(r->plan, value), type->shape,
                                  type->ndim * sizeof *type->shape) != 0))
        return tocsin_token_fail(r, TOCSIN_E_FORMAT, "%%%s has another type before",
                                 tocsin_plan_text(r->plan, value->name));
    return TOCSIN_OK;
}

/* %NAME, after the %. */
static tocsin_status read_value_name(tocsin_plan_reader *r, uint32_t *name)
{
    return tocsin_token_string(r, TOCSIN_TOKEN_NAME, "the name of a value", name);
}

/* %NAME:TYPE [keep], ... up to the =. `*again`: a value that had a type before, or NONE. */
static tocsin_status read_outputs(tocsin_plan_reader *r, uint32_t *again)
{
    tocsin_plan_type type;
    r->outputs.count = 0;
    *again = TOCSIN_PLAN_NONE;
    if (tocsin_token_accept(r, '='))
        return TOCSIN_OK;
    do {
        tocsin_plan_value value = {0};
        uint32_t id = 0;
        uint32_t *bound = NULL;
        TOCSIN_TRY(tocsin_token_expect(r, '%'));
        TOCSIN_TRY(read_value_name(r, &value.name));
        TOCSIN_TRY(tocsin_token_expect(r, ':'));
        TOCSIN_TRY(tocsin_token_type(r, &type));
        tocsin_token_skip_blanks(r);
        if (r->line_end - r->at >= 4 && memcmp(r->at, "keep", 4) == 0) {
            r->at += 4;
            value.persistent = true;
        }
        TOCSIN_TRY(tocsin_plan_reader_binding(r, value.name, &bound));
        if (*bound != TOCSIN_PLAN_NONE && value_of(r, *bound)->ndim != TOCSIN_PLAN_NDIM_UNKNOWN) {
            *again = id = *bound;
            TOCSIN_TRY(check_type(r, id, &type));
        } else {
            TOCSIN_TRY(tocsin_plan_reader_define(r, &value, &type, &id));
        }
        if (!TOCSIN_VEC_PUSH(&r->outputs, id))
            return tocsin_token_located(r, tocsin_error_memory(&r->inner));
    } while (tocsin_token_accept(r, ','));
    return tocsin_token_expect(r, '=');
}

/* %NAME or %NAME:TYPE. A name that is new stands for a value that something later may write. */
static tocsin_status read_input(tocsin_plan_reader *r)
{
    tocsin_plan_type type;
    tocsin_plan_value value = {.ndim = TOCSIN_PLAN_NDIM_UNKNOWN};
    uint32_t *bound = NULL;
    TOCSIN_TRY(tocsin_token_expect(r, '%'));
    TOCSIN_TRY(read_value_name(r, &value.name));
    TOCSIN_TRY(tocsin_plan_reader_binding(r, value.name, &bound));
    uint32_t id = *bound;
    if (tocsin_token_accept(r, ':')) {
        TOCSIN_TRY(tocsin_token_type(r, &type));
        bool known = id != TOCSIN_PLAN_NONE && value_of(r, id)->ndim != TOCSIN_PLAN_NDIM_UNKNOWN;
        if (known)
            TOCSIN_TRY(check_type(r, id, &type));
        else
            TOCSIN_TRY(tocsin_plan_reader_define(r, &value, &type, &id));
    } else if (id == TOCSIN_PLAN_NONE) {
        TOCSIN_TRY(
            tocsin_token_located(r, tocsin_plan_add_value(r->plan, &value, NULL, &id, &r->inner)));
        *bound = id;
    }
    if (!TOCSIN_VEC_PUSH(&r->inputs, id))
        return tocsin_token_located(r, tocsin_error_memory(&r->inner));
    return TOCSIN_OK;
}

static tocsin_status read_inputs(tocsin_plan_reader *r)
{
    r->inputs.count = 0;
    TOCSIN_TRY(tocsin_token_expect(r, '('));
    if (tocsin_token_accept(r, ')'))
        return TOCSIN_OK;
    do
        TOCSIN_TRY(read_input(r));
    while (tocsin_token_accept(r, ','));
    return tocsin_token_expect(r, ')');
}

/* ---- attributes -------------------------------------------------------------------------------
 */

static tocsin_status push_integer(tocsin_plan_reader *r)
{
    int64_t value = 0;
    TOCSIN_TRY(tocsin_token_integer(r, INT64_MIN, INT64_MAX, &value));
    if (!TOCSIN_VEC_PUSH(&r->integers, value))
        return tocsin_token_located(r, tocsin_error_memory(&r->inner));
    return TOCSIN_OK;
}

/* [1,2,...], after the bracket. */
static tocsin_status read_list(tocsin_plan_reader *r, tocsin_attribute *attribute)
{
    size_t first = r->integers.count;
    if (!tocsin_token_accept(r, ']')) {
        do
            TOCSIN_TRY(push_integer(r));
        while (tocsin_token_accept(r, ','));
        TOCSIN_TRY(tocsin_token_expect(r, ']'));
    }
    attribute->kind = TOCSIN_ATTRIBUTE_INTEGERS;
    attribute->count = (uint32_t)(r->integers.count - first);
    return TOCSIN_OK;
}

/* Does this bare word begin as a number does? */
static bool begins_number(const char *word, size_t bytes)
{
    size_t at = bytes > 0 && (*word == '-' || *word == '+');
    if (at < bytes && word[at] == '.')
        ++at;
    return at < bytes && tocsin_token_class[(unsigned char)word[at]] & TOCSIN_TOKEN_DIGIT;
}

static bool is_integer(const char *word, size_t bytes)
{
    size_t at = *word == '-' || *word == '+';
    while (at < bytes && tocsin_token_class[(unsigned char)word[at]] & TOCSIN_TOKEN_DIGIT)
        ++at;
    return at == bytes;
}

/* Perhaps inf, -inf or nan. */
static bool read_special(const char *word, size_t bytes, double *real)
{
    if (tocsin_token_is(word, bytes, "inf"))
        *real = (double)INFINITY;
    else if (tocsin_token_is(word, bytes, "-inf"))
        *real = -(double)INFINITY;
    else if (tocsin_token_is(word, bytes, "nan"))
        *real = (double)NAN;
    else
        return false;
    return true;
}

static tocsin_status read_attribute_value(tocsin_plan_reader *r, tocsin_attribute *attribute)
{
    if (tocsin_token_accept(r, '['))
        return read_list(r, attribute);
    const char *begin = r->at, *word = NULL;
    size_t bytes = 0;
    TOCSIN_TRY(tocsin_token_word(r, TOCSIN_TOKEN_WORD, "a value of the attribute", &word, &bytes));
    bool bare = *begin != '"';
    if (bare && begins_number(word, bytes)) {
        r->at = begin;
        if (is_integer(word, bytes)) {
            attribute->kind = TOCSIN_ATTRIBUTE_INTEGERS;
            attribute->count = 1;
            return push_integer(r);
        }
        attribute->kind = TOCSIN_ATTRIBUTE_REAL;
        if (!tocsin_token_real(word, bytes, &attribute->real))
            return tocsin_token_fail(r, TOCSIN_E_FORMAT,
                                     "%.*s is not a number (a word that begins as one is quoted)",
                                     (int)(bytes > 40 ? 40 : bytes), word);
        r->at = begin + bytes;
        return TOCSIN_OK;
    }
    if (bare && read_special(word, bytes, &attribute->real)) {
        attribute->kind = TOCSIN_ATTRIBUTE_REAL;
        return TOCSIN_OK;
    }
    attribute->kind = TOCSIN_ATTRIBUTE_TEXT;
    attribute->text = tocsin_plan_string(r->plan, word, bytes);
    if (attribute->text == 0)
        return tocsin_token_located(r, tocsin_plan_string_error(r->plan, &r->inner));
    return TOCSIN_OK;
}

/* KEY=VALUE, ... up to the closing brace. */
static tocsin_status parse_attributes(tocsin_plan_reader *r, uint32_t *set)
{
    tocsin_attribute items[TOCSIN_PLAN_ATTRIBUTES_MAX];
    uint32_t count = 0;
    r->integers.count = 0;
    if (!tocsin_token_accept(r, '}')) {
        do {
            if (count == TOCSIN_PLAN_ATTRIBUTES_MAX)
                return tocsin_token_fail(r, TOCSIN_E_LIMIT, "an operator has at most %d attributes",
                                         TOCSIN_PLAN_ATTRIBUTES_MAX);
            items[count] = (tocsin_attribute){0};
            tocsin_token_skip_blanks(r);
            TOCSIN_TRY(tocsin_token_string(r, TOCSIN_TOKEN_NAME, "the name of an attribute",
                                           &items[count].key));
            TOCSIN_TRY(tocsin_token_expect(r, '='));
            TOCSIN_TRY(read_attribute_value(r, &items[count]));
            ++count;
        } while (tocsin_token_accept(r, ','));
        TOCSIN_TRY(tocsin_token_expect(r, '}'));
    }
    const int64_t *integers = r->integers.items; /* it no longer moves */
    for (uint32_t i = 0; i < count; ++i) {
        items[i].integers = integers;
        if (items[i].kind == TOCSIN_ATTRIBUTE_INTEGERS && items[i].count > 0)
            integers += items[i].count;
    }
    return tocsin_token_located(r,
                                tocsin_plan_add_attributes(r->plan, items, count, set, &r->inner));
}

/* Where the braces close: the first } that is not in a quoted word. NULL: nowhere. */
static const char *find_brace(const char *at, const char *end)
{
    bool quoted = false;
    for (; at < end; ++at) {
        if (*at == '}' && !quoted)
            return at;
        if (*at == '"')
            quoted = !quoted;
        else if (*at == '\\' && quoted && at + 1 < end)
            ++at;
    }
    return NULL;
}

/* After the opening brace. */
static tocsin_status read_attributes(tocsin_plan_reader *r, uint32_t *set)
{
    const char *begin = r->at, *close = find_brace(r->at, r->line_end);
    if (!close)
        return tocsin_token_fail(r, TOCSIN_E_FORMAT, "the attributes do not end on their line");
    size_t bytes = (size_t)(close - begin);
    uint32_t known = tocsin_intern_find(&r->attribute_texts, begin, bytes);
    if (known) {
        r->at = close + 1;
        *set = r->attribute_set_of_text.items[known - 1];
        return TOCSIN_OK;
    }
    TOCSIN_TRY(parse_attributes(r, set));
    assert(r->at == close + 1);
    if (!TOCSIN_VEC_RESERVE(&r->attribute_set_of_text, 1) ||
        !tocsin_intern_put(&r->attribute_texts, begin, bytes))
        return tocsin_token_located(r, tocsin_error_memory(&r->inner));
    r->attribute_set_of_text.items[r->attribute_set_of_text.count++] = *set;
    return TOCSIN_OK;
}

/* ---- keywords ---------------------------------------------------------------------------------
 */

enum {
    SEEN_PHASE = 1,
    SEEN_FQN = 2,
    SEEN_SOURCE = 4,
    SEEN_LABEL = 8,
    SEEN_GROUP = 16,
    SEEN_SIGNATURE = 32
};

static tocsin_status see(tocsin_plan_reader *r, unsigned *seen, unsigned keyword)
{
    if (*seen & keyword)
        return tocsin_token_fail(r, TOCSIN_E_FORMAT, "a keyword stands twice");
    *seen |= keyword;
    return TOCSIN_OK;
}

static tocsin_status read_signature(tocsin_plan_reader *r, tocsin_plan_op *op)
{
    const char *word = NULL;
    size_t bytes = 0;
    TOCSIN_TRY(tocsin_token_word(r, TOCSIN_TOKEN_WORD, "a signature", &word, &bytes));
    op->code = TOCSIN_OPERATOR_CALL;
    return tocsin_token_located(
        r, tocsin_plan_add_signature(r->plan, word, bytes, &op->signature, &r->inner));
}

static tocsin_status read_group(tocsin_plan_reader *r, tocsin_plan_op *op)
{
    uint32_t name = 0;
    TOCSIN_TRY(tocsin_token_string(r, TOCSIN_TOKEN_NAME, "the name of a group", &name));
    const uint64_t *group = tocsin_map_find(&r->groups, name);
    if (!group)
        return tocsin_token_fail(r, TOCSIN_E_FORMAT, "there is no group %s",
                                 tocsin_plan_text(r->plan, name));
    op->group = (uint32_t)(*group - 1);
    return TOCSIN_OK;
}

/* fw bw opt re */
static tocsin_plan_phase phase_of(const char *word, size_t bytes)
{
    if (tocsin_token_is(word, bytes, "fw"))
        return TOCSIN_PHASE_FORWARD;
    if (tocsin_token_is(word, bytes, "bw"))
        return TOCSIN_PHASE_BACKWARD;
    if (tocsin_token_is(word, bytes, "opt"))
        return TOCSIN_PHASE_OPTIMIZER;
    return tocsin_token_is(word, bytes, "re") ? TOCSIN_PHASE_RECOMPUTE : TOCSIN_PHASE_NONE;
}

static tocsin_status read_keyword(tocsin_plan_reader *r, tocsin_plan_op *op, unsigned *seen)
{
    if (*r->at == '@') {
        ++r->at;
        TOCSIN_TRY(see(r, seen, SEEN_FQN));
        return tocsin_token_string(r, TOCSIN_TOKEN_WORD, "a module", &op->fqn);
    }
    const char *word = NULL;
    const char *begin = r->at;
    size_t bytes = tocsin_token_keyword(r, &word);
    tocsin_plan_phase phase = phase_of(word, bytes);
    if (phase != TOCSIN_PHASE_NONE) {
        op->phase = (uint8_t)phase;
        return see(r, seen, SEEN_PHASE);
    }
    bool assigned = r->at < r->line_end && *r->at == '=';
    if (assigned)
        ++r->at;
    if (assigned && tocsin_token_is(word, bytes, "src")) {
        TOCSIN_TRY(see(r, seen, SEEN_SOURCE));
        return tocsin_token_string(r, TOCSIN_TOKEN_WORD, "FILE:LINE", &op->source);
    }
    if (assigned && tocsin_token_is(word, bytes, "label")) {
        TOCSIN_TRY(see(r, seen, SEEN_LABEL));
        return tocsin_token_string(r, TOCSIN_TOKEN_WORD, "a label", &op->label);
    }
    if (assigned && tocsin_token_is(word, bytes, "group")) {
        TOCSIN_TRY(see(r, seen, SEEN_GROUP));
        return read_group(r, op);
    }
    if (assigned && tocsin_token_is(word, bytes, "sig")) {
        TOCSIN_TRY(see(r, seen, SEEN_SIGNATURE));
        return read_signature(r, op);
    }
    r->at = begin;
    return tocsin_token_fail(r, TOCSIN_E_FORMAT,
                             "expected fw, bw, opt, re, @MODULE, src=, label=, group= or sig=");
}

/* ---- the line ---------------------------------------------------------------------------------
 */

/* The signature of an operator that is not in the table and brings none: perhaps a declared one. */
static tocsin_status find_declared(tocsin_plan_reader *r, tocsin_plan_op *op)
{
    size_t bytes = 0;
    const char *name = tocsin_intern_text(&r->plan->strings, op->name, &bytes);
    const char *text = tocsin_declarations_find(&r->declarations, name, bytes);
    if (!text)
        return TOCSIN_OK;
    return tocsin_token_located(
        r, tocsin_plan_add_signature(r->plan, text, strlen(text), &op->signature, &r->inner));
}

/* The code of the operator called `name`: builder.c interns the table's names first. */
static uint16_t code_of(uint32_t name)
{
    bool known = name >= 2 && name - 2 < TOCSIN_OPERATOR_COUNT;
    return (uint16_t)(known ? name - 2 : TOCSIN_OPERATOR_CALL);
}

tocsin_status tocsin_plan_reader_operator(tocsin_plan_reader *r)
{
    uint32_t again = 0;
    unsigned seen = 0;
    tocsin_plan_op op = {.signature = TOCSIN_PLAN_NONE, .group = TOCSIN_PLAN_NONE};
    if (!r->in_segment)
        return tocsin_token_fail(r, TOCSIN_E_FORMAT, "an operator outside of a segment");
    TOCSIN_TRY(read_outputs(r, &again));
    tocsin_token_skip_blanks(r);
    TOCSIN_TRY(tocsin_token_string(r, TOCSIN_TOKEN_NAME, "the name of an operator", &op.name));
    op.code = code_of(op.name);
    if (again != TOCSIN_PLAN_NONE && op.code != TOCSIN_OPERATOR_ACCUMULATE) {
        const char *name = tocsin_plan_text(r->plan, value_of(r, again)->name);
        return tocsin_token_fail(r, TOCSIN_E_FORMAT, "%%%s is written twice", name);
    }
    TOCSIN_TRY(read_inputs(r));
    if (tocsin_token_accept(r, '{'))
        TOCSIN_TRY(read_attributes(r, &op.attributes));
    while (!tocsin_token_at_end(r))
        TOCSIN_TRY(read_keyword(r, &op, &seen));
    if (op.code == TOCSIN_OPERATOR_CALL && op.signature == TOCSIN_PLAN_NONE &&
        r->declarations.names.capacity)
        TOCSIN_TRY(find_declared(r, &op));
    if (r->inputs.count > TOCSIN_PLAN_OPERANDS_MAX || r->outputs.count > TOCSIN_PLAN_OPERANDS_MAX)
        return tocsin_token_fail(r, TOCSIN_E_LIMIT, "an operator has at most %d operands",
                                 TOCSIN_PLAN_OPERANDS_MAX);
    op.input_count = (uint16_t)r->inputs.count;
    op.output_count = (uint16_t)r->outputs.count;
    return tocsin_token_located(
        r, tocsin_plan_add_op(r->plan, &op, r->inputs.items, r->outputs.items, &r->inner));
}
