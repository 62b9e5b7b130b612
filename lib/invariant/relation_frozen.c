/* What is frozen: buffers of a frozen module stand still, and a frozen parameter that is registered
 * anew over the same memory stays frozen.
 *
 * A module is frozen if each of its own parameters was frozen at every update so far, no optimizer
 * holds it and it never moved: a GAN's other network and an averaged copy are not. Whether its
 * buffers stand still is the script's choice, which inference learns. What wraps a model registers
 * its parameters anew, as nn.Parameter(data), and that is trainable unless told otherwise; a
 * parameter is judged at the first update after that if the update before saw it frozen, it was
 * frozen when it was replaced, and an optimizer holds it now. Made only when asked for.
 * Data: a word a parameter and a word a module. Cost: O(states of optimizer.step).
 */
#include <assert.h>
#include <invariant/relation.h>

static const uint8_t kinds[] = {TOCSIN_POPULATION_FROZEN_BUFFER,
                                TOCSIN_POPULATION_RENEWED_PARAMETER, 0};

enum { SEEN_FROZEN = 1, REPLACED_FROZEN = 2, RENEWED = 4 }; /* a parameter's word */
enum { HAS_PARAMETERS = 1, IN_USE = 2 };                    /* a module's word */

typedef struct frozen {
    tocsin_population renewed;
    tocsin_map parameters; /* process and name -> word */
    tocsin_map modules;    /* process and name -> word */
} frozen;

static void *open_frozen(tocsin_observer *observer)
{
    frozen *own = tocsin_zalloc(1, sizeof *own);
    if (own == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    tocsin_population_key key = {.kind = TOCSIN_POPULATION_RENEWED_PARAMETER};
    own->renewed = observer->filtered ? tocsin_observer_population(observer, &key) : 0;
    return own;
}

static void close_frozen(void *memory)
{
    frozen *own = memory;
    tocsin_map_free(&own->parameters);
    tocsin_map_free(&own->modules);
    tocsin_free(own);
}

static void callable(tocsin_observer *observer, tocsin_callable *made)
{
    if (made->role == TOCSIN_ROLE_OPTIMIZER_STEP)
        tocsin_callable_population(observer, made, TOCSIN_POPULATION_FROZEN_BUFFER);
}

static bool has(const tocsin_sample *sample, uint32_t flag)
{
    return (sample->flags & flag) != 0;
}

static uint64_t *word_of(tocsin_observer *observer, tocsin_map *map, uint64_t key)
{
    uint64_t *word = tocsin_map_at(map, key);
    if (word == NULL)
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
    return word;
}

/* A parameter whose type changes is another variable under the same name. */
static uint64_t name_key(const tocsin_process *process, const tocsin_variable *variable)
{
    return tocsin_mix64((uint64_t)(uintptr_t)process) + variable->symbol;
}

/* ---- parameters registered anew ------------------------------------------------------------- */

static bool is_replaced(const tocsin_process *process, const tocsin_event *event)
{
    const tocsin_dictionary *dictionary = &process->dictionary;
    return event->value_count > 0 && event->values[0].kind == TOCSIN_VALUE_BOOL &&
           event->values[0].as.integer != 0 &&
           strcmp(dictionary->string(dictionary->producer, event->values[0].name), "replaced") == 0;
}

static void state(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame,
                  const tocsin_sample *sample, const tocsin_event *event)
{
    frozen *own = observer->own[TOCSIN_PART_FROZEN];
    (void)frame;
    if (own->renewed == 0 || sample->variable->kind != TOCSIN_VARIABLE_PARAMETER ||
        sample->attribute != TOCSIN_ATTRIBUTE_VALUE)
        return;
    uint64_t *word = word_of(observer, &own->parameters, name_key(process, sample->variable));
    if (word == NULL)
        return;
    bool trainable = has(sample, TOCSIN_STATE_REQUIRES_GRAD);
    if (is_replaced(process, event)) /* once frozen, until the next update has seen it */
        *word |= trainable ? 0 : REPLACED_FROZEN;
    else
        *word |= RENEWED;
}

static void judge_parameter(tocsin_observer *observer, frozen *own, const tocsin_process *process,
                            const tocsin_frame *frame, const tocsin_sample *data)
{
    const uint64_t renewed = SEEN_FROZEN | REPLACED_FROZEN | RENEWED;
    uint64_t *word = word_of(observer, &own->parameters, name_key(process, data->variable));
    if (word == NULL)
        return;
    bool trainable = has(data, TOCSIN_STATE_REQUIRES_GRAD);
    if ((*word & renewed) == renewed && (!trainable || has(data, TOCSIN_STATE_IN_OPTIMIZER)))
        tocsin_observer_judge(observer, process, frame, own->renewed, data,
                              TOCSIN_PREDICATE_STAYS_FROZEN, !trainable);
    *word = trainable ? 0 : SEEN_FROZEN;
}

/* ---- buffers of frozen modules -------------------------------------------------------------- */

static uint64_t module_key(const tocsin_process *process, const tocsin_variable *variable)
{
    const char *dot = strrchr(variable->name, '.');
    size_t bytes = dot == NULL ? 0 : (size_t)(dot - variable->name);
    return tocsin_hash64(variable->name, bytes, (uint64_t)(uintptr_t)process);
}

static bool is_floating(uint8_t dtype)
{
    return dtype == TOCSIN_DTYPE_FLOAT16 || dtype == TOCSIN_DTYPE_BFLOAT16 ||
           dtype == TOCSIN_DTYPE_FLOAT32 || dtype == TOCSIN_DTYPE_FLOAT64;
}

static void note_parameter(tocsin_observer *observer, frozen *own, const tocsin_process *process,
                           const tocsin_sample *data)
{
    uint64_t *word = word_of(observer, &own->modules, module_key(process, data->variable));
    if (word == NULL)
        return;
    bool moved = !has(data, TOCSIN_STATE_DIGESTED) || (data->has_before && data->changed);
    bool used = has(data, TOCSIN_STATE_REQUIRES_GRAD) || has(data, TOCSIN_STATE_IN_OPTIMIZER);
    *word |= HAS_PARAMETERS | (moved || used ? IN_USE : 0);
}

static void judge_buffer(tocsin_observer *observer, frozen *own, const tocsin_process *process,
                         const tocsin_frame *frame, tocsin_population population,
                         const tocsin_sample *data)
{
    if (!has(data, TOCSIN_STATE_DIGESTED) || !data->has_before || !is_floating(data->dtype))
        return;
    const uint64_t *word = tocsin_map_find(&own->modules, module_key(process, data->variable));
    if (word != NULL && *word == HAS_PARAMETERS)
        tocsin_observer_judge(observer, process, frame, population, data,
                              TOCSIN_PREDICATE_DATA_STAYS, !data->changed);
}

static void leave(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event, bool completed)
{
    frozen *own = observer->own[TOCSIN_PART_FROZEN];
    (void)thread;
    (void)event;
    if (!completed || frame->role != TOCSIN_ROLE_OPTIMIZER_STEP)
        return;
    tocsin_population buffers =
        observer->callables.items[frame->callables[1]].populations[TOCSIN_POPULATION_FROZEN_BUFFER];
    const tocsin_sample *samples = frame->samples.items;
    for (size_t i = 0; i < frame->samples.count && observer->status == TOCSIN_OK; ++i) {
        const tocsin_variable *variable = samples[i].variable;
        if (variable->data != i + 1 || variable->kind != TOCSIN_VARIABLE_PARAMETER)
            continue;
        if (own->renewed != 0)
            judge_parameter(observer, own, process, frame, &samples[i]);
        if (buffers != 0)
            note_parameter(observer, own, process, &samples[i]);
    }
    for (size_t i = 0; buffers != 0 && i < frame->samples.count; ++i)
        if (samples[i].variable->data == i + 1 &&
            samples[i].variable->kind == TOCSIN_VARIABLE_BUFFER)
            judge_buffer(observer, own, process, frame, buffers, &samples[i]);
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    bool buffers = tocsin_population_get_key(vocabulary, invariant->population).kind ==
                   TOCSIN_POPULATION_FROZEN_BUFFER;
    tocsin_need_state(needs, TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_DATA,
                      TOCSIN_VARIABLE_PARAMETER, buffers);
    if (buffers)
        tocsin_need_state(needs, TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_EXIT,
                          TOCSIN_ATTRIBUTE_DATA, TOCSIN_VARIABLE_BUFFER, true);
    else
        tocsin_need_state(needs, TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_EXIT,
                          TOCSIN_ATTRIBUTE_VALUE, TOCSIN_VARIABLE_PARAMETER, false);
}

const tocsin_relation_part tocsin_relation_frozen = {.kinds = kinds,
                                                     .open = open_frozen,
                                                     .close = close_frozen,
                                                     .callable = callable,
                                                     .leave = leave,
                                                     .state = state,
                                                     .need = need};
