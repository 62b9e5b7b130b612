/* What a recorder must record so that a set can be checked: docs/formats/selection.md.
 *
 * Each population asks for its call, each fact for its callee, each clause on arguments for the
 * arguments; populations of variables ask for the states they are judged from. The union, ordered,
 * is the file. Cost: O(invariants * clauses).
 */
#include <assert.h>
#include <invariant/invariant_set.h>
#include <invariant/statement.h>
#include <stdlib.h>

#define ROLES_MAX 32

typedef enum state_amount { AMOUNT_NONE, AMOUNT_PRESENCE, AMOUNT_DIGEST } state_amount;
typedef enum call_detail { WANT_NONE, WANT_CALL, WANT_ARGUMENTS } call_detail;

typedef struct state_need {
    uint8_t role;
    uint8_t moment;
    bool gradient;
    bool buffer;
    state_amount amount;
} state_need;

typedef struct function_need {
    const char *name;
    call_detail want;
} function_need;

typedef struct requirements {
    const tocsin_vocabulary *vocabulary;
    call_detail roles[ROLES_MAX];
    tocsin_map function_of; /* symbol -> index + 1 */
    TOCSIN_VEC(function_need) functions;
    TOCSIN_VEC(state_need) states; /* distinct but for amount: a handful */
    bool failed;
} requirements;

static void need_call(requirements *needs, uint8_t role, tocsin_symbol name, call_detail want)
{
    if (role != TOCSIN_ROLE_NONE) {
        if (needs->roles[role] < want)
            needs->roles[role] = want;
        return;
    }
    uint64_t *index = tocsin_map_at(&needs->function_of, name);
    if (index == NULL) {
        needs->failed = true;
        return;
    }
    if (*index == 0) {
        function_need need = {.name = tocsin_symbol_text(needs->vocabulary, name)};
        needs->failed |= !TOCSIN_VEC_PUSH(&needs->functions, need);
        *index = needs->functions.count;
    }
    if (!needs->failed && needs->functions.items[*index - 1].want < want)
        needs->functions.items[*index - 1].want = want;
}

static void need_state(requirements *needs, state_need wanted)
{
    need_call(needs, wanted.role, 0, WANT_CALL);
    for (size_t i = 0; i < needs->states.count; ++i) {
        state_need *known = &needs->states.items[i];
        if (known->role == wanted.role && known->moment == wanted.moment &&
            known->gradient == wanted.gradient && known->buffer == wanted.buffer) {
            if (known->amount < wanted.amount)
                known->amount = wanted.amount;
            return;
        }
    }
    needs->failed |= !TOCSIN_VEC_PUSH(&needs->states, wanted);
}

static void need_gradient(requirements *needs, state_amount amount)
{
    need_state(needs, (state_need){.role = TOCSIN_ROLE_OPTIMIZER_STEP,
                                   .moment = TOCSIN_MOMENT_ENTER,
                                   .gradient = true,
                                   .amount = amount});
}

static void need_data(requirements *needs, bool buffer)
{
    need_state(needs, (state_need){.role = TOCSIN_ROLE_OPTIMIZER_STEP,
                                   .moment = TOCSIN_MOMENT_EXIT,
                                   .buffer = buffer,
                                   .amount = AMOUNT_DIGEST});
}

static void need_states(requirements *needs, const tocsin_population_key *key)
{
    switch (key->kind) {
    case TOCSIN_POPULATION_EFFECTIVE_CALL:
    case TOCSIN_POPULATION_DRIVEN_PARAMETER:
        need_gradient(needs, AMOUNT_DIGEST);
        need_data(needs, false);
        break;
    case TOCSIN_POPULATION_IDLE_PARAMETER:
        need_gradient(needs, AMOUNT_PRESENCE);
        need_data(needs, false);
        break;
    case TOCSIN_POPULATION_SAMPLED_CALL:
    case TOCSIN_POPULATION_HELD_PARAMETER:
    case TOCSIN_POPULATION_TRAINABLE_PARAMETER:
    case TOCSIN_POPULATION_MODEL_PARAMETER:
        need_gradient(needs, AMOUNT_PRESENCE);
        break;
    case TOCSIN_POPULATION_RETURNING_PARAMETER:
        need_gradient(needs, AMOUNT_PRESENCE);
        need_state(needs, (state_need){.role = TOCSIN_ROLE_BACKWARD,
                                       .moment = TOCSIN_MOMENT_ENTER,
                                       .gradient = true,
                                       .amount = AMOUNT_DIGEST});
        need_state(needs, (state_need){.role = TOCSIN_ROLE_ZERO_GRAD,
                                       .moment = TOCSIN_MOMENT_EXIT,
                                       .gradient = true,
                                       .amount = AMOUNT_DIGEST});
        break;
    case TOCSIN_POPULATION_FROZEN_PARAMETER:
    case TOCSIN_POPULATION_PARAMETER:
        need_data(needs, false);
        break;
    case TOCSIN_POPULATION_GRADIENT:
        need_gradient(needs, AMOUNT_DIGEST);
        break;
    case TOCSIN_POPULATION_BUFFER:
        need_data(needs, true);
        break;
    case TOCSIN_POPULATION_REPLICAS:
        if (key->moment == TOCSIN_MOMENT_ENTER)
            need_gradient(needs, AMOUNT_DIGEST);
        else
            need_data(needs, key->variable == TOCSIN_VARIABLE_BUFFER);
        break;
    default:
        break;
    }
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

static void need_invariant(requirements *needs, const tocsin_invariant *invariant)
{
    tocsin_population_key population =
        tocsin_population_get_key(needs->vocabulary, invariant->population);
    tocsin_fact_key fact = tocsin_fact_get_key(needs->vocabulary, invariant->fact);
    tocsin_relation_kind relation =
        tocsin_population_relation(needs->vocabulary, invariant->population);
    bool arguments = relation == TOCSIN_RELATION_ARGUMENT || relation == TOCSIN_RELATION_OUTPUT ||
                     speaks_of_arguments(needs->vocabulary, invariant);
    call_detail want = arguments ? WANT_ARGUMENTS : WANT_CALL;
    if (population.kind == TOCSIN_POPULATION_COLLECTIVES)
        need_call(needs, TOCSIN_ROLE_COLLECTIVE, 0, WANT_ARGUMENTS);
    else
        need_call(needs, population.role,
                  population.kind == TOCSIN_POPULATION_REPLICAS ? 0 : population.name, want);
    if (population.kind == TOCSIN_POPULATION_EFFECTIVE_CALL ||
        population.kind == TOCSIN_POPULATION_DRIVEN_PARAMETER)
        need_call(needs, TOCSIN_ROLE_OPTIMIZER_STEP, 0, WANT_ARGUMENTS); /* self.lr */
    bool callee = tocsin_predicate_members(fact.predicate) == TOCSIN_FACT_MEMBERS_CALLEE;
    if (callee)
        need_call(needs, fact.role, fact.name, WANT_CALL);
    if (callee && fact.role == TOCSIN_ROLE_OPTIMIZER_STEP)
        need_call(needs, TOCSIN_ROLE_SCALER, 0, WANT_CALL); /* it may skip the step */
    need_states(needs, &population);
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
        order = x->gradient - y->gradient;
    return order != 0 ? order : x->buffer - y->buffer;
}

static void print_needs(requirements *needs, tocsin_string *out)
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
        tocsin_string_printf(out, "state %s %s %s %s %s\n",
                             tocsin_role_name((tocsin_role)state->role),
                             state->moment == TOCSIN_MOMENT_ENTER ? "enter" : "exit",
                             state->gradient ? "grad" : "data",
                             state->amount == AMOUNT_DIGEST ? "digest" : "presence",
                             state->buffer ? "buffer" : "parameter");
    }
}

tocsin_status tocsin_invariants_write_selection(const tocsin_invariant_set *set, const char *path,
                                                tocsin_error *error)
{
    requirements needs = {.vocabulary = set->vocabulary};
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
    tocsin_map_free(&needs.function_of);
    TOCSIN_VEC_FREE(&needs.functions);
    TOCSIN_VEC_FREE(&needs.states);
    return status;
}
