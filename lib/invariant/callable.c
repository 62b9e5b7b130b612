/* Callables: functions and roles of a run, each with the populations of its calls.
 *
 * Which populations make sense for which callable is decided here, once per callable, so that an
 * event costs no more than looking at ids that are 0 or not.
 */
#include <assert.h>
#include <invariant/relation.h>

/* Roles that gather functions of different meaning: train() and eval() are both "mode". Their
 * functions are told apart by name. */
bool tocsin_role_is_diverse(uint8_t role)
{
    return role == TOCSIN_ROLE_MODE || role == TOCSIN_ROLE_SCALER || role == TOCSIN_ROLE_USER ||
           role == TOCSIN_ROLE_CHECKPOINT;
}

static void add_population(tocsin_observer *observer, tocsin_callable *callable, uint8_t kind)
{
    tocsin_population_key key = {.kind = kind, .role = callable->role};
    if (callable->role == TOCSIN_ROLE_NONE)
        key.name = callable->name;
    callable->populations[kind] = tocsin_observer_population(observer, &key);
}

static void add_populations(tocsin_observer *observer, tocsin_callable *callable)
{
    static const uint8_t of_functions[] = {
        TOCSIN_POPULATION_CALL, TOCSIN_POPULATION_CALL_ARGUMENTS, TOCSIN_POPULATION_CALL_OUTPUT,
        TOCSIN_POPULATION_FURTHER_CALL, TOCSIN_POPULATION_REPEATED_CALL};
    static const uint8_t of_steps[] = {TOCSIN_POPULATION_SAMPLED_CALL,
                                       TOCSIN_POPULATION_EFFECTIVE_CALL,
                                       TOCSIN_POPULATION_DRIVEN_PARAMETER,
                                       TOCSIN_POPULATION_IDLE_PARAMETER,
                                       TOCSIN_POPULATION_FROZEN_PARAMETER,
                                       TOCSIN_POPULATION_HELD_PARAMETER,
                                       TOCSIN_POPULATION_TRAINABLE_PARAMETER,
                                       TOCSIN_POPULATION_MODEL_PARAMETER,
                                       TOCSIN_POPULATION_RETURNING_PARAMETER,
                                       TOCSIN_POPULATION_PARAMETER,
                                       TOCSIN_POPULATION_GRADIENT,
                                       TOCSIN_POPULATION_BUFFER};
    uint8_t role = callable->role;
    if (role == TOCSIN_ROLE_NONE) {
        for (size_t i = 0; i < TOCSIN_COUNT_OF(of_functions); ++i)
            add_population(observer, callable, of_functions[i]);
        return;
    }
    if (role == TOCSIN_ROLE_FORWARD) /* a module's call says little without its name */
        return;
    callable->ordered =
        role != TOCSIN_ROLE_INITIALIZE && role != TOCSIN_ROLE_USER && role != TOCSIN_ROLE_STEP_END;
    add_population(observer, callable, TOCSIN_POPULATION_REPEATED_CALL);
    if (role != TOCSIN_ROLE_USER && role != TOCSIN_ROLE_INITIALIZE)
        add_population(observer, callable, TOCSIN_POPULATION_CALL);
    if (role == TOCSIN_ROLE_OPTIMIZER_STEP)
        for (size_t i = 0; i < TOCSIN_COUNT_OF(of_steps); ++i)
            add_population(observer, callable, of_steps[i]);
}

static void add_facts(tocsin_observer *observer, tocsin_callable *callable)
{
    tocsin_fact_key key = {.predicate = TOCSIN_PREDICATE_CALLS, .role = callable->role};
    if (callable->role == TOCSIN_ROLE_NONE)
        key.name = callable->name;
    callable->calls = tocsin_observer_fact(observer, &key);
    key.predicate = TOCSIN_PREDICATE_FOLLOWS;
    callable->follows = tocsin_observer_fact(observer, &key);
}

size_t tocsin_observer_callable(tocsin_observer *observer, tocsin_symbol name, uint8_t role)
{
    assert((name == 0) == (role != TOCSIN_ROLE_NONE) || observer->status != TOCSIN_OK);
    assert(role < TOCSIN_ROLES_MAX);
    if (role != TOCSIN_ROLE_NONE && observer->role_callables[role] != 0)
        return observer->role_callables[role] - 1;
    uint64_t *known =
        role == TOCSIN_ROLE_NONE ? tocsin_map_find(&observer->callable_of, name) : NULL;
    if (known != NULL)
        return (size_t)*known - 1;
    if (observer->status != TOCSIN_OK)
        return SIZE_MAX;

    tocsin_callable callable = {.name = name, .role = role};
    if (role != TOCSIN_ROLE_NONE)
        callable.name = tocsin_observer_need(
            observer, tocsin_symbol_of(observer->vocabulary, tocsin_role_name((tocsin_role)role)));
    add_populations(observer, &callable);
    add_facts(observer, &callable);
    if (!TOCSIN_VEC_PUSH(&observer->callables, callable) ||
        (role == TOCSIN_ROLE_NONE &&
         !tocsin_map_put(&observer->callable_of, name, observer->callables.count)))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
    if (observer->status != TOCSIN_OK)
        return SIZE_MAX;
    if (role != TOCSIN_ROLE_NONE)
        observer->role_callables[role] = (uint32_t)observer->callables.count;
    return observer->callables.count - 1;
}
