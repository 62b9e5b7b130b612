/* APIArg, within one process: arguments that are constant, and arguments that never repeat.
 *
 * Population CALL_ARGUMENTS, by function, calls of modules excepted: the facts "arg.K is V" were
 * made with the call's fields. Population FURTHER_CALL, each call of a function after its first in
 * a step, for functions where a repetition means a mistake (initialisers, the user's own,
 * checkpoints): fact "distinct", its words and whole numbers are not those of an earlier call in
 * this step. Cost: one hash of the values a call; the set of hashes is emptied at each step.
 */
#include <assert.h>
#include <invariant/relation.h>
#include <invariant/statement.h>

#define DISTINCT_MAX (1u << 16) /* calls a step that are remembered */

static bool judges_distinct(uint8_t role)
{
    return role == TOCSIN_ROLE_INITIALIZE || role == TOCSIN_ROLE_USER ||
           role == TOCSIN_ROLE_CHECKPOINT;
}

/* 0: nothing that could tell two calls apart. */
static uint64_t hash_arguments(const tocsin_frame *frame, const tocsin_event *event)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < event->value_count; ++i) {
        const tocsin_value *value = &event->values[i];
        uint64_t part = 0;
        if (value->kind == TOCSIN_VALUE_STRING && value->as.text == 0)
            return 0; /* one string too many for the recorder: it may be any */
        if (value->kind == TOCSIN_VALUE_INT)
            part = tocsin_mix64((uint64_t)value->as.integer) | 1;
        else if (value->kind == TOCSIN_VALUE_STRING || value->kind == TOCSIN_VALUE_MODULE)
            part = value->as.text != 0 ? tocsin_mix64(value->as.text) | 1 : 0;
        if (part != 0)
            hash = tocsin_mix64(hash + part + (uint64_t)value->name * 31);
    }
    return hash == 0 ? 0 : tocsin_mix64(hash ^ frame->callables[0]) | 1;
}

static void judge_distinct(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame,
                           const tocsin_event *event, tocsin_population population)
{
    uint64_t hash = hash_arguments(frame, event);
    if (hash == 0)
        return;
    if (process->argument_step != frame->step) {
        tocsin_map_clear(&process->argument_sets);
        process->argument_step = frame->step;
    }
    if (process->argument_sets.count >= DISTINCT_MAX)
        return;
    uint64_t *seen = tocsin_map_at(&process->argument_sets, hash);
    if (seen == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return;
    }
    bool distinct = (*seen)++ == 0;
    if (frame->ordinals[0] < 2)
        return;
    tocsin_instance instance = {.population = population,
                                .ordinal = frame->ordinals[0],
                                .evidence =
                                    tocsin_observer_evidence(observer, process, frame, NULL)};
    tocsin_observer_begin(observer);
    tocsin_observer_add_call_fields(observer, frame);
    if (distinct)
        tocsin_observer_add_fact(observer,
                                 tocsin_observer_simple_fact(observer, TOCSIN_PREDICATE_DISTINCT));
    tocsin_observer_emit(observer, &instance);
}

static void callable(tocsin_observer *observer, tocsin_callable *made)
{
    if (made->role != TOCSIN_ROLE_NONE)
        return;
    tocsin_callable_population(observer, made, TOCSIN_POPULATION_CALL_ARGUMENTS);
    tocsin_callable_population(observer, made, TOCSIN_POPULATION_FURTHER_CALL);
}

static void enter(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event)
{
    (void)thread;
    assert(frame->callable_count > 0);
    const tocsin_population *populations =
        observer->callables.items[frame->callables[0]].populations;
    tocsin_population constant = populations[TOCSIN_POPULATION_CALL_ARGUMENTS];
    tocsin_population further = populations[TOCSIN_POPULATION_FURTHER_CALL];
    if (constant != 0 && frame->role != TOCSIN_ROLE_FORWARD) {
        tocsin_instance instance = {.population = constant,
                                    .ordinal = frame->ordinals[0],
                                    .evidence =
                                        tocsin_observer_evidence(observer, process, frame, NULL)};
        tocsin_observer_begin(observer);
        tocsin_observer_add_call_fields(observer, frame);
        for (size_t i = 0; i < frame->arguments.count; ++i)
            tocsin_observer_add_fact(observer, frame->arguments.items[i]);
        tocsin_observer_emit(observer, &instance);
    }
    if (further != 0 && judges_distinct(frame->role))
        judge_distinct(observer, process, frame, event, further);
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    tocsin_population_key key = tocsin_population_get_key(vocabulary, invariant->population);
    tocsin_need_call(needs, key.role, key.name, true);
}

static const uint8_t kinds[] = {TOCSIN_POPULATION_CALL_ARGUMENTS, TOCSIN_POPULATION_FURTHER_CALL,
                                0};
const tocsin_relation_part tocsin_relation_argument = {
    .kinds = kinds, .callable = callable, .enter = enter, .need = need};
