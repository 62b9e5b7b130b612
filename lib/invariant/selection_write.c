/* What a recorder must record so that a set can be checked: docs/formats/selection.md.
 *
 * Each population asks for its call, each fact for its callee, each clause on arguments for the
 * arguments; each relation for what it judges its populations from. The union, ordered, is the
 * file. Cost: O(invariants * clauses).
 */
#include <assert.h>
#include <invariant/invariant_set.h>
#include <invariant/relation.h>
#include <invariant/statement.h>
#include <stdlib.h>

#define ROLES_MAX 32

typedef enum call_detail { WANT_NONE, WANT_CALL, WANT_ARGUMENTS } call_detail;

typedef struct state_need {
    uint8_t role;
    uint8_t moment;
    uint8_t attribute; /* tocsin_attribute */
    uint8_t variable;  /* tocsin_variable_kind */
    bool digest;
} state_need;

typedef struct function_need {
    const char *name;
    call_detail want;
} function_need;

typedef struct tocsin_needs {
    const tocsin_vocabulary *vocabulary;
    const struct tocsin_relations *relations;
    call_detail roles[ROLES_MAX];
    tocsin_intern names;                 /* of functions: id -> index + 1 */
    TOCSIN_VEC(function_need) functions; /* until printed, in the order of the names */
    TOCSIN_VEC(state_need) states;       /* distinct but for digest: a handful */
    bool failed;
} tocsin_needs;

void tocsin_need_function(tocsin_needs *needs, const char *name, bool arguments)
{
    call_detail want = arguments ? WANT_ARGUMENTS : WANT_CALL;
    uint32_t id = tocsin_intern_put(&needs->names, name, strlen(name));
    if (id == needs->functions.count + 1) {
        function_need need = {.name = tocsin_intern_text(&needs->names, id, NULL)};
        needs->failed |= !TOCSIN_VEC_PUSH(&needs->functions, need);
    }
    needs->failed |= id == 0;
    if (!needs->failed && needs->functions.items[id - 1].want < want)
        needs->functions.items[id - 1].want = want;
}

void tocsin_need_call(tocsin_needs *needs, uint8_t role, tocsin_symbol name, bool arguments)
{
    call_detail want = arguments ? WANT_ARGUMENTS : WANT_CALL;
    if (role != TOCSIN_ROLE_NONE) {
        if (needs->roles[role] < want)
            needs->roles[role] = want;
        return;
    }
    tocsin_need_function(needs, tocsin_symbol_text(needs->vocabulary, name), arguments);
}

void tocsin_need_state(tocsin_needs *needs, uint8_t role, uint8_t moment,
                       tocsin_attribute attribute, uint8_t variable, bool digest)
{
    assert(attribute > TOCSIN_ATTRIBUTE_OTHER && attribute < TOCSIN_ATTRIBUTE_COUNT);
    tocsin_need_call(needs, role, 0, false);
    for (size_t i = 0; i < needs->states.count; ++i) {
        state_need *known = &needs->states.items[i];
        if (known->role == role && known->moment == moment && known->attribute == attribute &&
            known->variable == variable) {
            known->digest |= digest;
            return;
        }
    }
    state_need wanted = {role, moment, (uint8_t)attribute, variable, digest};
    needs->failed |= !TOCSIN_VEC_PUSH(&needs->states, wanted);
}

const struct tocsin_relations *tocsin_needs_relations(const tocsin_needs *needs)
{
    return needs->relations;
}

static bool speaks_of_arguments(const tocsin_vocabulary *vocabulary, const tocsin_invariant *given)
{
    for (uint32_t i = 0; i < given->when.count; ++i) {
        const tocsin_conjunction *all = &given->when.any[i];
        for (uint32_t c = 0; c < all->count; ++c) {
            const char *field = tocsin_symbol_text(vocabulary, all->clauses[c].field);
            if (strncmp(field, "arg.", 4) == 0 || strncmp(field, "self", 4) == 0)
                return true;
        }
    }
    return false;
}

static void need_invariant(tocsin_needs *needs, const tocsin_invariant *invariant)
{
    tocsin_population_key population =
        tocsin_population_get_key(needs->vocabulary, invariant->population);
    tocsin_fact_key fact = tocsin_fact_get_key(needs->vocabulary, invariant->fact);
    bool arguments = speaks_of_arguments(needs->vocabulary, invariant);
    switch (tocsin_population_get_trait(population.kind)->members) {
    case TOCSIN_MEMBERS_CALL:
        tocsin_need_call(needs, population.role, population.name, arguments);
        break;
    case TOCSIN_MEMBERS_REPLICA:
        tocsin_need_call(needs, population.role, 0, arguments);
        break;
    default:
        break;
    }
    bool callee = tocsin_predicate_members(fact.predicate) == TOCSIN_FACT_MEMBERS_CALLEE;
    if (callee)
        tocsin_need_call(needs, fact.role, fact.name, false);
    if (callee && fact.role == TOCSIN_ROLE_OPTIMIZER_STEP)
        tocsin_need_call(needs, TOCSIN_ROLE_SCALER, 0, false); /* it may skip the step */
    const tocsin_relation_part *part = tocsin_relation_part_of(population.kind);
    if (part != NULL && part->need != NULL)
        part->need(needs->vocabulary, invariant, needs);
}

static int compare_functions(const void *a, const void *b)
{
    return strcmp(((const function_need *)a)->name, ((const function_need *)b)->name);
}

static int compare_states(const void *a, const void *b)
{
    const state_need *x = a, *y = b;
    int order = x->role - y->role;
    if (order == 0)
        order = x->moment - y->moment;
    if (order == 0)
        order = x->attribute - y->attribute;
    return order != 0 ? order : x->variable - y->variable;
}

static const char *attribute_word(uint8_t attribute)
{
    static const char *const words[TOCSIN_ATTRIBUTE_COUNT] = {"",
#define X(name, word) word,
                                                              TOCSIN_ATTRIBUTE_TABLE(X)
#undef X
    };
    return words[attribute];
}

static void print_needs(tocsin_needs *needs, tocsin_string *out)
{
    tocsin_string_append_text(out, "tocsin-selection 1\n");
    for (unsigned role = 1; role < ROLES_MAX; ++role)
        if (needs->roles[role] != WANT_NONE)
            tocsin_string_printf(out, "role %s%s\n", tocsin_role_name((tocsin_role)role),
                                 needs->roles[role] == WANT_ARGUMENTS ? " args" : "");
    if (needs->functions.count > 1)
        qsort(needs->functions.items, needs->functions.count, sizeof *needs->functions.items,
              compare_functions);
    for (size_t i = 0; i < needs->functions.count; ++i)
        if (strpbrk(needs->functions.items[i].name, " \t\r\n") == NULL)
            tocsin_string_printf(out, "function %s%s\n", needs->functions.items[i].name,
                                 needs->functions.items[i].want == WANT_ARGUMENTS ? " args" : "");
    if (needs->states.count > 1)
        qsort(needs->states.items, needs->states.count, sizeof *needs->states.items,
              compare_states);
    for (size_t i = 0; i < needs->states.count; ++i) {
        const state_need *state = &needs->states.items[i];
        tocsin_string_printf(
            out, "state %s %s %s %s %s\n", tocsin_role_name((tocsin_role)state->role),
            state->moment == TOCSIN_MOMENT_ENTER ? "enter" : "exit",
            attribute_word(state->attribute), state->digest ? "digest" : "presence",
            tocsin_variable_kind_name((tocsin_variable_kind)state->variable));
    }
}

tocsin_status tocsin_invariants_write_selection(const tocsin_invariant_set *set, const char *path,
                                                tocsin_error *error)
{
    tocsin_needs needs = {.vocabulary = set->vocabulary, .relations = set->relations};
    tocsin_string text = {0};
    for (size_t i = 0; i < set->entries.count; ++i)
        need_invariant(&needs, &set->entries.items[i].invariant);
    tocsin_status status = needs.failed ? tocsin_error_memory(error) : TOCSIN_OK;
    if (status == TOCSIN_OK) {
        print_needs(&needs, &text);
        status = tocsin_string_check(&text, error);
    }
    if (status == TOCSIN_OK)
        status = tocsin_file_store(path, text.text, text.bytes, true, error);
    tocsin_string_free(&text);
    tocsin_intern_free(&needs.names);
    TOCSIN_VEC_FREE(&needs.functions);
    TOCSIN_VEC_FREE(&needs.states);
    return status;
}
