/* What a parameter and its model keep over many updates: the model's mode, shared memory, and that
 * half-precision weights move at all.
 *
 * Judged when optimizer.step returns. A model that was updated in training mode goes on so (one
 * that is trained in evaluation mode from the start is meant so). Parameters that share memory go
 * on sharing it. An update without a backward pass before it does not apply the gradients of the
 * last one again. A bf16 or fp16 parameter that had a gradient in 16 updates in a row has moved in
 * one of them: below its resolution none of them reaches it. These are made only when asked for:
 * they hold in every healthy training, there is nothing to infer. Data: a word a variable and a
 * word an optimizer. Cost: O(states of the call).
 */
#include <assert.h>
#include <invariant/relation.h>

#define UPDATES 16u

static const uint8_t kinds[] = {TOCSIN_POPULATION_TRAINED_CALL, TOCSIN_POPULATION_TIED_PAIR,
                                TOCSIN_POPULATION_STALLED_PARAMETER,
                                TOCSIN_POPULATION_UNDRIVEN_CALL, 0};

enum { TIED = 1, MOVED = 2, COUNT = 4 }; /* a variable's word: two flags, and updates so far */

typedef struct life {
    tocsin_population trained, tied, stalled, undriven;
    tocsin_map gradients; /* process and optimizer -> hash of what its last update applied */
    tocsin_map variables; /* tocsin_variable * -> word */
    tocsin_map modes;     /* process and optimizer -> 1: was updated in training mode */
} life;

static tocsin_population population(tocsin_observer *observer, uint8_t kind)
{
    tocsin_population_key key = {.kind = kind};
    return observer->filtered ? tocsin_observer_population(observer, &key) : 0;
}

static void *open_life(tocsin_observer *observer)
{
    life *own = tocsin_zalloc(1, sizeof *own);
    if (own == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    own->trained = population(observer, TOCSIN_POPULATION_TRAINED_CALL);
    own->tied = population(observer, TOCSIN_POPULATION_TIED_PAIR);
    own->stalled = population(observer, TOCSIN_POPULATION_STALLED_PARAMETER);
    own->undriven = population(observer, TOCSIN_POPULATION_UNDRIVEN_CALL);
    return own;
}

static void close_life(void *memory)
{
    life *own = memory;
    tocsin_map_free(&own->gradients);
    tocsin_map_free(&own->variables);
    tocsin_map_free(&own->modes);
    tocsin_free(own);
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

static uint64_t optimizer_key(const tocsin_process *process, const tocsin_frame *frame)
{
    return tocsin_mix64((uint64_t)(uintptr_t)process + (uint64_t)(frame->slot + 1));
}

/* Gradients may be made without a backward pass; but not be those of the update before. */
static void judge_gradients(tocsin_observer *observer, life *own, const tocsin_process *process,
                            const tocsin_frame *frame)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < frame->samples.count; ++i) {
        const tocsin_sample *sample = &frame->samples.items[i];
        if (sample->variable->gradient == i + 1 && has(sample, TOCSIN_STATE_DIGESTED) &&
            has(sample, TOCSIN_STATE_IN_THIS_OPTIMIZER) && sample->absmax > 0)
            hash += tocsin_hash64(&sample->digest, sizeof sample->digest,
                                  (uint64_t)(uintptr_t)sample->variable);
    }
    uint64_t *before = word_of(observer, &own->gradients, optimizer_key(process, frame));
    if (before == NULL)
        return;
    bool closure = (frame->roles_inside & UINT32_C(1) << TOCSIN_ROLE_BACKWARD) != 0;
    if (hash != 0 && *before != 0 && process->micro_step == 0 && !closure)
        tocsin_observer_judge(observer, process, frame, own->undriven, NULL,
                              TOCSIN_PREDICATE_NEW_GRADIENTS, hash != *before);
    *before = hash;
}

static void judge_mode(tocsin_observer *observer, life *own, const tocsin_process *process,
                       const tocsin_frame *frame)
{
    bool trained = false, training = false;
    for (size_t i = 0; i < frame->samples.count; ++i) {
        const tocsin_sample *sample = &frame->samples.items[i];
        if (sample->variable->gradient != i + 1 || !has(sample, TOCSIN_STATE_PRESENT) ||
            !has(sample, TOCSIN_STATE_IN_THIS_OPTIMIZER) || !has(sample, TOCSIN_STATE_IN_MODEL))
            continue;
        trained = true;
        training |= has(sample, TOCSIN_STATE_MODULE_TRAINING);
    }
    uint64_t *before =
        trained ? word_of(observer, &own->modes, optimizer_key(process, frame)) : NULL;
    if (before == NULL)
        return;
    if (*before != 0)
        tocsin_observer_judge(observer, process, frame, own->trained, NULL,
                              TOCSIN_PREDICATE_KEEPS_MODE, training);
    *before |= training;
}

static void judge_tie(tocsin_observer *observer, life *own, const tocsin_process *process,
                      const tocsin_frame *frame, const tocsin_sample *data)
{
    uint64_t *word = word_of(observer, &own->variables, (uint64_t)(uintptr_t)data->variable);
    if (word == NULL)
        return;
    bool tied = has(data, TOCSIN_STATE_TIED);
    if ((*word & TIED) != 0)
        tocsin_observer_judge(observer, process, frame, own->tied, data,
                              TOCSIN_PREDICATE_TIED_STAYS, tied);
    *word = (*word & ~(uint64_t)TIED) | (tied ? TIED : 0);
}

/* An update that should reach the parameter: is it the last of UPDATES without effect? */
static void judge_stall(tocsin_observer *observer, life *own, const tocsin_process *process,
                        const tocsin_frame *frame, const tocsin_sample *gradient,
                        const tocsin_sample *data)
{
    double lr = gradient->lr == gradient->lr ? gradient->lr : frame->lr; /* or NaN */
    bool half = data->dtype == TOCSIN_DTYPE_BFLOAT16 || data->dtype == TOCSIN_DTYPE_FLOAT16;
    if (!half || !has(data, TOCSIN_STATE_DIGESTED) || !data->has_before ||
        !has(gradient, TOCSIN_STATE_DIGESTED) || !has(gradient, TOCSIN_STATE_IN_THIS_OPTIMIZER) ||
        gradient->bad_count != 0 || !(lr * gradient->absmax > 0))
        return;
    uint64_t *word = word_of(observer, &own->variables, (uint64_t)(uintptr_t)data->variable);
    if (word == NULL)
        return;
    *word = (*word + COUNT) | (data->changed ? MOVED : 0);
    if (*word / COUNT < UPDATES)
        return;
    tocsin_observer_judge(observer, process, frame, own->stalled, data, TOCSIN_PREDICATE_MOVES,
                          (*word & MOVED) != 0);
    *word &= TIED;
}

static void leave(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event, bool completed)
{
    (void)thread;
    (void)event;
    life *own = observer->own[TOCSIN_PART_LIFE];
    if (!completed || frame->role != TOCSIN_ROLE_OPTIMIZER_STEP)
        return;
    if (own->trained != 0)
        judge_mode(observer, own, process, frame);
    if (own->undriven != 0)
        judge_gradients(observer, own, process, frame);
    for (size_t i = 0; i < frame->samples.count && observer->status == TOCSIN_OK; ++i) {
        const tocsin_sample *data = &frame->samples.items[i];
        const tocsin_variable *variable = data->variable;
        if (variable->data != i + 1 || variable->kind != TOCSIN_VARIABLE_PARAMETER)
            continue;
        if (own->tied != 0)
            judge_tie(observer, own, process, frame, data);
        if (own->stalled != 0 && variable->gradient != 0)
            judge_stall(observer, own, process, frame,
                        &frame->samples.items[variable->gradient - 1], data);
    }
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    uint8_t kind = tocsin_population_get_key(vocabulary, invariant->population).kind;
    bool stalled = kind == TOCSIN_POPULATION_STALLED_PARAMETER;
    bool undriven = kind == TOCSIN_POPULATION_UNDRIVEN_CALL;
    if (kind != TOCSIN_POPULATION_TIED_PAIR)
        tocsin_need_state(needs, TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_ENTER,
                          TOCSIN_ATTRIBUTE_GRAD, TOCSIN_VARIABLE_PARAMETER, stalled || undriven);
    if (kind != TOCSIN_POPULATION_TRAINED_CALL && !undriven)
        tocsin_need_state(needs, TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_EXIT,
                          TOCSIN_ATTRIBUTE_DATA, TOCSIN_VARIABLE_PARAMETER, stalled);
    tocsin_need_call(needs, TOCSIN_ROLE_OPTIMIZER_STEP, 0, true); /* self.lr, self.slot */
}

const tocsin_relation_part tocsin_relation_life = {
    .kinds = kinds, .open = open_life, .close = close_life, .leave = leave, .need = need};
