/* Checkpoints: what is saved as one model is one model.
 *
 * A script may save anything under the names of its parameters: averaged weights, the best so far,
 * rounded ones. But of parameters that their last update changed, either all are saved as they are
 * now or none: if some are and others hold other data, the checkpoint was put together wrongly.
 * They are judged when the call that saves returns, those under the same keys of the saved object
 * together. Made only when asked for: there is nothing to infer.
 * Data: the live parameters of a process by name, and the tensors of the saving call. Cost: O(1)
 * map look-ups a state.
 */
#include <assert.h>
#include <invariant/relation.h>

#define SAVED_MAX (1u << 18) /* tensors of a call */

static const uint8_t kinds[] = {TOCSIN_POPULATION_SAVED_TENSOR, 0};

typedef struct live { /* a parameter after an update */
    const tocsin_variable *variable;
    uint8_t dtype;
    bool moved; /* by its last update */
} live;

typedef struct saved {
    tocsin_sample sample;
    uint64_t keys; /* hash of those above it */
    bool equal;
} saved;

typedef struct checkpoint {
    tocsin_population population;
    tocsin_map by_name; /* process and symbol -> index + 1 */
    TOCSIN_VEC(live) parameters;
    TOCSIN_VEC(saved) tensors; /* of the call that is open */
} checkpoint;

static void *open_checkpoint(tocsin_observer *observer)
{
    checkpoint *own = tocsin_zalloc(1, sizeof *own);
    if (own == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    tocsin_population_key key = {.kind = TOCSIN_POPULATION_SAVED_TENSOR};
    own->population = observer->filtered ? tocsin_observer_population(observer, &key) : 0;
    return own;
}

static void close_checkpoint(void *memory)
{
    checkpoint *own = memory;
    tocsin_map_free(&own->by_name);
    TOCSIN_VEC_FREE(&own->parameters);
    TOCSIN_VEC_FREE(&own->tensors);
    tocsin_free(own);
}

static uint64_t name_key(const tocsin_process *process, tocsin_symbol name)
{
    return tocsin_mix64((uint64_t)(uintptr_t)process) + name;
}

static void keep_live(tocsin_observer *observer, checkpoint *own, const tocsin_process *process,
                      const tocsin_sample *sample)
{
    uint64_t *known = tocsin_map_at(&own->by_name, name_key(process, sample->variable->symbol));
    live now = {sample->variable, sample->dtype, sample->has_before && sample->changed};
    if (known != NULL && *known == 0 && TOCSIN_VEC_PUSH(&own->parameters, now))
        *known = own->parameters.count;
    if (known == NULL || *known == 0)
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
    else
        own->parameters.items[*known - 1] = now;
}

static uint64_t keys_above(const tocsin_process *process, const tocsin_event *event)
{
    const tocsin_value *keys = tocsin_event_value(process, event, "in");
    return keys != NULL && keys->kind == TOCSIN_VALUE_STRING ? keys->as.text : 0;
}

static void state(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame,
                  const tocsin_sample *sample, const tocsin_event *event)
{
    checkpoint *own = observer->own[TOCSIN_PART_CHECKPOINT];
    if (own->population == 0 || frame == NULL || (sample->flags & TOCSIN_STATE_DIGESTED) == 0 ||
        sample->variable->kind != TOCSIN_VARIABLE_PARAMETER)
        return;
    if (sample->attribute == TOCSIN_ATTRIBUTE_DATA && sample->moment == TOCSIN_MOMENT_EXIT &&
        frame->role == TOCSIN_ROLE_OPTIMIZER_STEP) {
        keep_live(observer, own, process, sample);
        return;
    }
    if (sample->attribute != TOCSIN_ATTRIBUTE_SAVED || frame->role != TOCSIN_ROLE_CHECKPOINT)
        return;
    const uint64_t *known =
        tocsin_map_find(&own->by_name, name_key(process, sample->variable->symbol));
    const live *now = known != NULL ? &own->parameters.items[*known - 1] : NULL;
    if (now == NULL || !now->moved || now->dtype != sample->dtype ||
        own->tensors.count >= SAVED_MAX)
        return;
    saved made = {*sample, keys_above(process, event),
                  memcmp(&now->variable->digest, &sample->digest, sizeof sample->digest) == 0};
    if (!TOCSIN_VEC_PUSH(&own->tensors, made))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

static void judge(tocsin_observer *observer, const checkpoint *own, const tocsin_process *process,
                  const tocsin_frame *frame, const saved *tensor)
{
    bool live_too = false;
    for (size_t i = 0; i < own->tensors.count; ++i)
        live_too |= own->tensors.items[i].equal && own->tensors.items[i].keys == tensor->keys;
    if (!live_too)
        return;
    tocsin_observer_judge(observer, process, frame, own->population, &tensor->sample,
                          TOCSIN_PREDICATE_AS_LIVE, tensor->equal);
}

static void leave(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event, bool completed)
{
    checkpoint *own = observer->own[TOCSIN_PART_CHECKPOINT];
    (void)thread;
    (void)event;
    if (frame->role != TOCSIN_ROLE_CHECKPOINT)
        return;
    for (size_t i = 0; completed && i < own->tensors.count && observer->status == TOCSIN_OK; ++i)
        judge(observer, own, process, frame, &own->tensors.items[i]);
    own->tensors.count = 0;
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    (void)vocabulary;
    (void)invariant;
    tocsin_need_state(needs, TOCSIN_ROLE_CHECKPOINT, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_SAVED,
                      TOCSIN_VARIABLE_PARAMETER, true);
    tocsin_need_state(needs, TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_DATA,
                      TOCSIN_VARIABLE_PARAMETER, true);
}

const tocsin_relation_part tocsin_relation_checkpoint = {.kinds = kinds,
                                                         .open = open_checkpoint,
                                                         .close = close_checkpoint,
                                                         .leave = leave,
                                                         .state = state,
                                                         .need = need};
