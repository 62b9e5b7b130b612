/* Coverage: which calls occurred in a run, so that an invariant that was never judged is not only
 * counted but explained.
 *
 * Data: per process a bit for each function id that was seen; per function name and per role the
 * number of processes that called it.
 * Invariant: a name or role is counted once a process, however many ids have it.
 * Cost: one bit test a call; the first call of a function in a process looks up its name.
 */
#include <assert.h>
#include <check/check.h>
#include <inttypes.h>

#define FUNCTIONS_MAX (1u << 24) /* ids of a process: the limit of its dictionary */

typedef struct tocsin_coverage_process {
    TOCSIN_VEC(uint64_t) ids; /* bits: seen */
    tocsin_map names;         /* functions counted for this process */
    uint64_t roles;           /* bits: roles counted for this process */
} tocsin_coverage_process;

static tocsin_coverage_process *process_at(tocsin_coverage *coverage, size_t index)
{
    while (coverage->processes.count <= index)
        if (!TOCSIN_VEC_PUSH(&coverage->processes, NULL))
            return NULL;
    if (coverage->processes.items[index] == NULL)
        coverage->processes.items[index] = tocsin_zalloc(1, sizeof(tocsin_coverage_process));
    return coverage->processes.items[index];
}

/* Was the bit set? It is from now on. */
static bool test_and_set(tocsin_coverage_process *process, tocsin_id id, bool *failed)
{
    size_t word = id / 64;
    uint64_t bit = UINT64_C(1) << (id % 64);
    while (process->ids.count <= word) {
        if (!TOCSIN_VEC_PUSH(&process->ids, 0)) {
            *failed = true;
            return false;
        }
    }
    bool was = (process->ids.items[word] & bit) != 0;
    process->ids.items[word] |= bit;
    return was;
}

static bool count_function(tocsin_coverage *coverage, tocsin_coverage_process *process,
                           const char *name)
{
    uint32_t id = tocsin_intern_put(&coverage->functions, name, strlen(name));
    if (id == 0)
        return false;
    while (coverage->callers.count < id)
        if (!TOCSIN_VEC_PUSH(&coverage->callers, 0))
            return false;
    if (tocsin_map_find(&process->names, id) != NULL)
        return true;
    ++coverage->callers.items[id - 1];
    return tocsin_map_put(&process->names, id, 1);
}

static void count_role(tocsin_coverage *coverage, tocsin_coverage_process *process,
                       tocsin_role role)
{
    unsigned number = (unsigned)role;
    if (number == TOCSIN_ROLE_NONE || number >= TOCSIN_COVERAGE_ROLES_MAX ||
        (process->roles >> number & 1) != 0)
        return;
    process->roles |= UINT64_C(1) << number;
    ++coverage->role_callers[number];
}

tocsin_status tocsin_coverage_see(tocsin_coverage *coverage, size_t process_index,
                                  const tocsin_dictionary *dictionary, const tocsin_event *event,
                                  tocsin_error *error)
{
    if (event->kind != TOCSIN_EVENT_ENTER || event->function >= FUNCTIONS_MAX)
        return TOCSIN_OK;
    bool failed = false;
    tocsin_coverage_process *process = process_at(coverage, process_index);
    if (process == NULL)
        return tocsin_error_memory(error);
    if (test_and_set(process, event->function, &failed))
        return TOCSIN_OK;
    const char *name = dictionary->function_name(dictionary->producer, event->function);
    if (failed || !count_function(coverage, process, name))
        return tocsin_error_memory(error);
    count_role(coverage, process, dictionary->function_role(dictionary->producer, event->function));
    return TOCSIN_OK;
}

void tocsin_coverage_free(tocsin_coverage *coverage)
{
    for (size_t i = 0; i < coverage->processes.count; ++i) {
        tocsin_coverage_process *process = coverage->processes.items[i];
        if (process == NULL)
            continue;
        TOCSIN_VEC_FREE(&process->ids);
        tocsin_map_free(&process->names);
        tocsin_free(process);
    }
    TOCSIN_VEC_FREE(&coverage->processes);
    TOCSIN_VEC_FREE(&coverage->callers);
    tocsin_intern_free(&coverage->functions);
}

/* ---- reasons ------------------------------------------------------------------------------- */

/* What an invariant is about: "optimizer.step", and how many processes called it. False: it speaks
 * of no call. */
static bool find_call(const tocsin_coverage *coverage, const tocsin_vocabulary *vocabulary,
                      const tocsin_population_key *key, const char **call, uint32_t *callers)
{
    uint8_t role = key->kind == TOCSIN_POPULATION_COLLECTIVES ? TOCSIN_ROLE_COLLECTIVE : key->role;
    *callers = 0;
    if (role != TOCSIN_ROLE_NONE) {
        *call = tocsin_role_name((tocsin_role)role);
        if (role < TOCSIN_COVERAGE_ROLES_MAX)
            *callers = coverage->role_callers[role];
        return true;
    }
    if (key->name == 0 || key->kind == TOCSIN_POPULATION_USER)
        return false;
    *call = tocsin_symbol_text(vocabulary, key->name);
    uint32_t id = tocsin_intern_find(&coverage->functions, *call, strlen(*call));
    if (id != 0)
        *callers = coverage->callers.items[id - 1];
    return true;
}

/* The slug of a kind of population. */
static const char *subject_of(uint8_t kind)
{
    static const char *const slugs[] = {
#define X(number, name, relation, slug, ...) [number] = slug,
        TOCSIN_POPULATION_TABLE(X)
#undef X
    };
    assert(kind < TOCSIN_COUNT_OF(slugs) && slugs[kind] != NULL);
    return slugs[kind];
}

uint64_t tocsin_coverage_clauses(const tocsin_precondition *when, const tocsin_instance *instance)
{
    uint64_t held = 0;
    uint32_t number = 0;
    for (uint32_t i = 0; i < when->count; ++i)
        for (uint32_t c = 0; c < when->any[i].count && number < 64; ++c, ++number)
            if (tocsin_clause_holds(&when->any[i].clauses[c], instance->fields,
                                    instance->field_count))
                held |= UINT64_C(1) << number;
    return held;
}

/* The clauses that never held, if there are some and no alternative to them. */
static void say_condition(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                          uint64_t held, tocsin_string *why)
{
    const tocsin_precondition *when = &invariant->when;
    bool pair = tocsin_population_is_pair(vocabulary, invariant->population);
    uint32_t named = 0;
    for (uint32_t c = 0; when->count == 1 && !when->inverted && c < when->any[0].count && c < 64;
         ++c) {
        if ((held >> c & 1) != 0)
            continue;
        tocsin_string_append_text(why, named++ > 0 ? " and " : "");
        tocsin_clause_say(vocabulary, &when->any[0].clauses[c], pair, why);
    }
    if (named == 0)
        tocsin_string_append_text(why, "the condition");
    tocsin_string_append_text(why, " never held");
}

tocsin_unknown_reason tocsin_coverage_explain(const tocsin_coverage *coverage,
                                              const tocsin_vocabulary *vocabulary,
                                              const tocsin_invariant *invariant, uint64_t seen,
                                              uint64_t held, tocsin_string *why)
{
    tocsin_population_key key = tocsin_population_get_key(vocabulary, invariant->population);
    const char *subject = key.kind == TOCSIN_POPULATION_USER
                              ? tocsin_symbol_text(vocabulary, key.name)
                              : subject_of(key.kind);
    const char *call = "";
    uint32_t callers;
    bool of_call = find_call(coverage, vocabulary, &key, &call, &callers);
    if (seen > 0) {
        say_condition(vocabulary, invariant, held, why);
        tocsin_string_printf(why, " for a '%s'", subject);
        if (of_call)
            tocsin_string_printf(why, " of %s", call);
        return TOCSIN_UNKNOWN_CONDITION_NEVER_MET;
    }
    if (tocsin_intern_count(&coverage->functions) == 0) {
        tocsin_string_append_text(why, "the recording has no calls at all");
        return TOCSIN_UNKNOWN_NOT_RECORDED;
    }
    if (of_call && callers == 0 && coverage->selective) {
        tocsin_string_printf(why, "%s was not called, or is not among what was recorded", call);
        return TOCSIN_UNKNOWN_NOT_RECORDED;
    }
    if (of_call && callers == 0) {
        tocsin_string_printf(why, "%s was never called", call);
        return TOCSIN_UNKNOWN_NO_CALL;
    }
    if (of_call && callers == 1 && tocsin_population_is_pair(vocabulary, invariant->population)) {
        tocsin_string_printf(why, "only one process called %s: no two ranks to compare", call);
        return TOCSIN_UNKNOWN_ONE_RANK;
    }
    tocsin_string_printf(why, "there was no '%s'", subject);
    if (of_call)
        tocsin_string_printf(why, " at %s", call);
    return TOCSIN_UNKNOWN_NO_SUBJECT;
}

tocsin_unknown_reason tocsin_coverage_explain_absent(const char *population, tocsin_string *why)
{
    tocsin_string_printf(why, "the relation %.*s was not given (--relation)",
                         (int)strcspn(population, "/"), population);
    return TOCSIN_UNKNOWN_NO_RELATION;
}

const char *tocsin_unknown_reason_name(tocsin_unknown_reason reason)
{
    static const char *const names[] = {
        [TOCSIN_UNKNOWN_NOT_RECORDED] = "not_recorded",
        [TOCSIN_UNKNOWN_NO_CALL] = "no_call",
        [TOCSIN_UNKNOWN_ONE_RANK] = "one_rank",
        [TOCSIN_UNKNOWN_NO_SUBJECT] = "no_subject",
        [TOCSIN_UNKNOWN_CONDITION_NEVER_MET] = "condition_never_met",
        [TOCSIN_UNKNOWN_NO_RELATION] = "no_relation",
    };
    assert((unsigned)reason < TOCSIN_COUNT_OF(names));
    return names[reason];
}
