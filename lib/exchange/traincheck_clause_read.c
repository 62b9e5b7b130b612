/* The preconditions of TrainCheck's invariants -> ours.
 *
 * Clauses about identities are decided here: the two halves of a pair always belong to two
 * processes in the same step, so "process_id differs" is true and "process_id is equal" is not.
 * "prop_dtype" and the like are words that are compared, nothing is evaluated. A clause with
 * several values splits its conjunction. Cost: O(clauses * values).
 */
#include <assert.h>
#include <exchange/traincheck_translation.h>
#include <math.h>
#include <stdio.h>

#define CLAUSES_MAX 64u
#define NAME_BYTES  300

void *tocsin_translation_refuse(tocsin_translation *made, const char *why)
{
    if (made->why == NULL)
        made->why = why;
    return NULL;
}

const char *tocsin_json_member_text(const tocsin_json_value *object, const char *key)
{
    return tocsin_json_get_text(tocsin_json_get_member(object, key));
}

bool tocsin_json_member_is(const tocsin_json_value *object, const char *key, const char *text)
{
    const char *found = tocsin_json_member_text(object, key);
    return found != NULL && strcmp(found, text) == 0;
}

tocsin_symbol tocsin_translation_symbol(tocsin_translation *made, const char *text)
{
    tocsin_symbol id = tocsin_symbol_of(made->vocabulary, text);
    made->no_memory |= id == 0;
    return id;
}

/* ---- clauses ------------------------------------------------------------------------------- */

typedef enum truth { TRUTH_OPEN, TRUTH_TRUE, TRUTH_FALSE } truth;

/* What is known of the clause whatever the run: identities. */
static truth truth_of_identity(const tocsin_translation *made, uint32_t kind)
{
    if (made->pair)
        return kind == TOCSIN_CLAUSE_UNEQUAL || kind == TOCSIN_CLAUSE_EXIST ? TRUTH_TRUE
                                                                            : TRUTH_FALSE;
    return kind == TOCSIN_CLAUSE_CONSISTENT || kind == TOCSIN_CLAUSE_EXIST ? TRUTH_TRUE
                                                                           : TRUTH_FALSE;
}

static truth truth_of_step(const tocsin_translation *made, uint32_t kind)
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

/* "var.dtype", "output.grad_dtype" */
static bool is_dtype(const char *field)
{
    size_t bytes = strlen(field);
    return bytes > 5 && strcmp(field + bytes - 5, "dtype") == 0;
}

/* 128.0 is 128: tables of numbers made them floats. */
tocsin_scalar tocsin_translation_scalar(tocsin_translation *made, const char *field,
                                        const tocsin_json_value *value)
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
        else if (is_dtype(field) && strncmp(literal.text, "torch.", 6) == 0)
            literal.text += 6;
        break;
    default:
        tocsin_translation_refuse(made, "a clause compares with a list or an object");
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
        if (tocsin_json_member_is(clause, "type", words[kind]))
            return kind;
    return 0;
}

/* A conjunction being made: a clause with n values splits it in n. */
typedef struct conjunctions {
    tocsin_clause clauses[TOCSIN_TRANSLATION_CONJUNCTIONS_MAX][CLAUSES_MAX];
    uint32_t counts[TOCSIN_TRANSLATION_CONJUNCTIONS_MAX];
    uint32_t count;
} conjunctions;

static void add_clause(tocsin_translation *made, conjunctions *all, uint32_t kind,
                       const char *field, const tocsin_json_value *values)
{
    size_t choices = kind == TOCSIN_CLAUSE_CONSTANT ? tocsin_json_get_count(values) : 1;
    uint32_t count = all->count;
    if (choices == 0) {
        all->count = 0; /* a constant without a value is never true */
        return;
    }
    if (count * choices > TOCSIN_TRANSLATION_CONJUNCTIONS_MAX || all->counts[0] == CLAUSES_MAX) {
        tocsin_translation_refuse(made, "its precondition has too many clauses");
        return;
    }
    for (size_t choice = choices; choice-- > 0;) {
        tocsin_clause clause = {.kind = kind, .field = tocsin_translation_symbol(made, field)};
        if (kind == TOCSIN_CLAUSE_CONSTANT)
            clause.value =
                tocsin_translation_scalar(made, field, tocsin_json_get_item(values, choice));
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

#define AUTOCAST "meta_vars.context_managers.torch.amp.autocast_mode.autocast"

/* Clauses about autocast are one here: "meta.autocast is 'torch.float16'". That it is on, and for
 * which device, goes without saying; without a dtype it cannot be said. */
static truth take_autocast(tocsin_translation *made, conjunctions *all, uint32_t kind,
                           const char *property, const tocsin_json_value *clause,
                           const tocsin_json_value *conjunction)
{
    const char *rest = property + strlen(AUTOCAST);
    const tocsin_json_value *values = tocsin_json_get_member(clause, "values");
    bool enabled = true, has_dtype = false;
    for (size_t i = 0; i < tocsin_json_get_count(conjunction); ++i)
        has_dtype |= tocsin_json_member_is(tocsin_json_get_item(conjunction, i), "prop_name",
                                           AUTOCAST ".dtype");
    (void)tocsin_json_get_bool(tocsin_json_get_item(values, 0), &enabled);
    if (!has_dtype || (rest[0] != 0 && kind != TOCSIN_CLAUSE_CONSTANT)) {
        tocsin_translation_refuse(made, "a clause about autocast of any dtype");
        return TRUTH_FALSE;
    }
    if (strcmp(rest, ".dtype") != 0)
        return strcmp(rest, ".enabled") == 0 && !enabled ? TRUTH_FALSE : TRUTH_TRUE;
    add_clause(made, all, kind, "meta.autocast", values);
    return TRUTH_OPEN;
}

/* Known truth of a clause, or it is added. */
static truth take_clause(tocsin_translation *made, conjunctions *all,
                         const tocsin_json_value *clause, const tocsin_json_value *conjunction)
{
    char name[NAME_BYTES];
    uint32_t kind = clause_kind(clause);
    const char *property = tocsin_json_member_text(clause, "prop_name");
    if (kind == 0 || property == NULL) {
        tocsin_translation_refuse(made, "a clause of unknown form");
        return TRUTH_FALSE;
    }
    if (strncmp(property, AUTOCAST, strlen(AUTOCAST)) == 0)
        return take_autocast(made, all, kind, property, clause, conjunction);
    const tocsin_json_value *path = tocsin_json_get_member(clause, "additional_path");
    if (tocsin_json_get_kind(path) == TOCSIN_JSON_ARRAY && tocsin_json_get_count(path) > 0) {
        tocsin_translation_refuse(made, "a clause about a part of a value");
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
        tocsin_translation_refuse(made, "a clause about a property that runs do not have");
        return TRUTH_FALSE;
    }
    add_clause(made, all, kind, field, tocsin_json_get_member(clause, "values"));
    return TRUTH_OPEN;
}

static void keep_conjunctions(tocsin_translation *made, const conjunctions *all)
{
    for (uint32_t i = 0; i < all->count; ++i) {
        if (made->any_count == TOCSIN_TRANSLATION_CONJUNCTIONS_MAX) {
            tocsin_translation_refuse(made, "its precondition has too many parts");
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

static void take_conjunction(tocsin_translation *made, const tocsin_json_value *conjunction)
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
        !tocsin_json_member_is(conjunction, "clauses", "Unconditional")) {
        tocsin_translation_refuse(made, "a precondition of unknown form");
        return;
    }
    for (size_t i = 0; i < tocsin_json_get_count(clauses) && made->why == NULL; ++i)
        if (take_clause(made, all, tocsin_json_get_item(clauses, i), clauses) == TRUTH_FALSE)
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
           tocsin_json_member_is(tocsin_json_get_item(parts, 0), "clauses", "Unconditional");
}

void tocsin_translation_take_precondition(tocsin_translation *made)
{
    const tocsin_json_value *groups = tocsin_json_get_member(made->root, "precondition");
    const tocsin_json_value *group = tocsin_json_get_member(groups, made->group);
    void *cursor = NULL;
    const char *name;
    const tocsin_json_value *other;
    if (group == NULL) {
        tocsin_translation_refuse(made, "it has no precondition for its relation");
        return;
    }
    while (tocsin_json_next_member(groups, &cursor, &name, &other))
        if (other != group && !is_unconditional(other))
            tocsin_translation_refuse(made, "a precondition on a second part of its examples");
    (void)tocsin_json_get_bool(tocsin_json_get_member(group, "inverted"), &made->inverted);
    const tocsin_json_value *parts = tocsin_json_get_member(group, "preconditions");
    for (size_t i = 0; i < tocsin_json_get_count(parts) && made->why == NULL; ++i)
        take_conjunction(made, tocsin_json_get_item(parts, i));
    bool never = made->inverted ? made->unconditional : made->any_count == 0;
    if (never)
        tocsin_translation_refuse(
            made, "its precondition is true in no run but the one it was learned from");
    if (made->unconditional)
        made->any_count = 0;
    if (made->any_count == 0)
        made->inverted = false;
}

/* ---- what relations add -------------------------------------------------------------------- */

/* The conjunction and one clause more; no clauses after a failure. */
static tocsin_conjunction and_also(tocsin_translation *made, const tocsin_conjunction *from,
                                   tocsin_clause clause)
{
    tocsin_clause *clauses = TOCSIN_ARENA_ARRAY(&made->arena, tocsin_clause, from->count + 1);
    made->no_memory |= clauses == NULL;
    if (clauses == NULL)
        return (tocsin_conjunction){.count = 0};
    if (from->count > 0)
        memcpy(clauses, from->clauses, from->count * sizeof *clauses);
    clauses[from->count] = clause;
    return (tocsin_conjunction){.count = from->count + 1, .clauses = clauses};
}

void tocsin_translation_add_also(tocsin_translation *made)
{
    for (size_t k = 0; k < TOCSIN_COUNT_OF(made->also); ++k) {
        tocsin_clause clause = made->also[k];
        if (clause.kind == 0)
            continue;
        if (made->inverted) {
            tocsin_translation_refuse(made, "it judges tensors under an inverted precondition");
            return;
        }
        if (made->any_count == 0)
            made->any[made->any_count++] = (tocsin_conjunction){.count = 0};
        for (uint32_t i = 0; i < made->any_count && !made->no_memory; ++i)
            made->any[i] = and_also(made, &made->any[i], clause);
    }
}

/* TrainCheck does not compare the first data of a variable. Imported states say whether they are
 * ("initial"); in a run that Tocsin recorded none are, for they are read after optimizer.step,
 * which there has a learning rate. So: and it is not initial, or and there is a learning rate. */
void tocsin_translation_leave_out_first(tocsin_translation *made)
{
    if (made->why != NULL || made->no_memory)
        return;
    if (made->inverted || made->any_count > TOCSIN_TRANSLATION_CONJUNCTIONS_MAX / 2) {
        tocsin_translation_refuse(
            made, "it compares variables under an inverted or very long precondition");
        return;
    }
    tocsin_literal no = {.kind = TOCSIN_VALUE_BOOL};
    tocsin_clause settled = {.kind = TOCSIN_CLAUSE_CONSTANT,
                             .field = tocsin_translation_symbol(made, "var.initial"),
                             .value = tocsin_scalar_of(made->vocabulary, &no)};
    tocsin_clause native = {.kind = TOCSIN_CLAUSE_EXIST,
                            .field = tocsin_translation_symbol(made, "self.lr")};
    if (made->any_count == 0)
        made->any[made->any_count++] = (tocsin_conjunction){.count = 0};
    uint32_t count = made->any_count;
    made->no_memory |= settled.value == 0;
    for (uint32_t i = 0; i < count && !made->no_memory; ++i) {
        made->any[made->any_count++] = and_also(made, &made->any[i], native);
        made->any[i] = and_also(made, &made->any[i], settled);
    }
}
