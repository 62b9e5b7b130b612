/* APIArg, within one process: arguments that are constant, and arguments that never repeat.
 *
 * Population CALL_ARGUMENTS, by function, calls of modules excepted: the facts "arg.K is V" were
 * made with the call's fields. Population FURTHER_CALL, each call of a function after its first in
 * a step, for functions where a repetition means a mistake (initialisers, the user's own,
 * checkpoints): fact "distinct", its words and whole numbers are not those of an earlier call in
 * this step. Filling a tensor at random (torch.Tensor.normal_) before training is a call of its own
 * only with its memory and all its numbers: drawing the same weights twice is the mistake.
 * Cost: one hash of the values a call; the set of hashes is emptied at each step.
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

static bool is_fill(const tocsin_observer *observer, const tocsin_frame *frame)
{
    tocsin_symbol name = observer->callables.items[frame->callables[0]].name;
    return frame->role == TOCSIN_ROLE_INITIALIZE &&
           strncmp(tocsin_symbol_text(observer->vocabulary, name), "torch.Tensor.", 13) == 0;
}

/* Is a tensor filled by the user's own call, before training? What constructors do is theirs, and
 * memory that is filled again while training is a buffer for noise. */
static bool is_before_training(const tocsin_observer *observer, const tocsin_process *process,
                               const tocsin_thread *thread)
{
    for (size_t i = 0; i + 1 < thread->open; ++i)
        if (thread->frames.items[i].role == TOCSIN_ROLE_INITIALIZE)
            return false;
    for (size_t i = 0; i < process->metas.count; ++i) {
        const tocsin_meta *meta = &process->metas.items[i];
        if (strcmp(tocsin_symbol_text(observer->vocabulary, meta->name), "meta.stage") != 0)
            continue;
        tocsin_literal stage = tocsin_scalar_literal(observer->vocabulary, meta->value);
        return stage.kind == TOCSIN_VALUE_STRING && strcmp(stage.text, "init") == 0;
    }
    return false;
}

/* 0: which memory is filled is not known. */
static uint64_t hash_fill(const tocsin_frame *frame, const tocsin_event *event)
{
    const tocsin_value *tensor = event->values; /* "self" comes first */
    if (event->value_count == 0 || tensor->kind != TOCSIN_VALUE_TENSOR || tensor->count == 0)
        return 0;
    uint64_t hash = tocsin_mix64(tensor->count + ((uint64_t)tensor->as.shape << 32));
    for (uint32_t i = 1; i < event->value_count; ++i) {
        const tocsin_value *value = &event->values[i];
        uint64_t number = 0;
        if (value->kind == TOCSIN_VALUE_FLOAT)
            memcpy(&number, &value->as.real, sizeof number);
        else if (value->kind == TOCSIN_VALUE_INT)
            number = (uint64_t)value->as.integer;
        hash = tocsin_mix64(hash + number + (uint64_t)value->name * 31);
    }
    return tocsin_mix64(hash ^ frame->callables[0]) | 1;
}

static void judge_distinct(tocsin_observer *observer, tocsin_process *process,
                           const tocsin_frame *frame, uint64_t hash, tocsin_population population)
{
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
        judge_distinct(observer, process, frame,
                       !is_fill(observer, frame) ? hash_arguments(frame, event)
                       : is_before_training(observer, process, thread) ? hash_fill(frame, event)
                                                                       : 0,
                       further);
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
    .kinds = kinds, .cost = 7, .callable = callable, .enter = enter, .need = need};
