/* Callables: functions and roles of a run, each with the populations of its calls.
 *
 * Which populations make sense for which callable is decided by the relations, once per callable,
 * so that an event costs no more than looking at ids that are 0 or not.
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

bool tocsin_frame_is_of(const tocsin_observer *observer, const tocsin_frame *frame,
                        const char *function)
{
    const tocsin_callable *called = &observer->callables.items[frame->callables[0]];
    return strcmp(tocsin_symbol_text(observer->vocabulary, called->name), function) == 0;
}

void tocsin_callable_population(tocsin_observer *observer, tocsin_callable *callable, uint8_t kind)
{
    tocsin_population_key key = {.kind = kind, .role = callable->role};
    if (callable->role == TOCSIN_ROLE_NONE)
        key.name = callable->name;
    callable->populations[kind] = tocsin_observer_population(observer, &key);
    callable->interesting |= callable->populations[kind] != 0;
}

static void add_facts(tocsin_observer *observer, tocsin_callable *callable)
{
    tocsin_fact_key key = {.predicate = TOCSIN_PREDICATE_CALLS, .role = callable->role};
    if (callable->role == TOCSIN_ROLE_NONE)
        key.name = callable->name;
    callable->calls = tocsin_observer_fact(observer, &key);
    key.predicate = TOCSIN_PREDICATE_FOLLOWS;
    callable->follows = tocsin_observer_fact(observer, &key);
    key.predicate = TOCSIN_PREDICATE_LEADS;
    callable->leads =
        observer->filtered || observer->wide ? tocsin_observer_fact(observer, &key) : 0;
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
    callable.ordered = role != TOCSIN_ROLE_NONE && role != TOCSIN_ROLE_FORWARD &&
                       role != TOCSIN_ROLE_INITIALIZE && role != TOCSIN_ROLE_USER &&
                       role != TOCSIN_ROLE_STEP_END;
    for (size_t i = 0; i < observer->active_count; ++i)
        if (observer->active[i]->callable != NULL)
            observer->active[i]->callable(observer, &callable);
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
