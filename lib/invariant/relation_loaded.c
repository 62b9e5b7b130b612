/* Loaded weights: they are not all initialised anew before training goes on with them.
 *
 * A script may initialise a head after it loaded a model, mask, average or scale what it loaded.
 * What it does not do on purpose is to draw every matrix of a module again that it has just loaded
 * and not used. So a tensor is judged when an optimizer steps that holds a parameter of the module:
 * it is not in place if its data are not what was loaded, its memory was filled by an initialiser
 * since, no model ran in between, and no matrix of the module is as loaded. The recorder says which
 * tensors of a step belong to which loading. Made only when asked for: there is nothing to infer.
 * Data: a record a loaded tensor and a clock a filled memory, TENSORS_MAX of each; then all are
 * forgotten. Cost: O(1) map look-ups a state and a fill.
 */
#include <assert.h>
#include <invariant/relation.h>

#define TENSORS_MAX (1u << 18)

static const uint8_t kinds[] = {TOCSIN_POPULATION_LOADED_TENSOR, 0};

typedef struct loaded_tensor {
    uint64_t clock;
    tocsin_id shape;
    uint8_t dtype;
    tocsin_digest digest;
} loaded_tensor;

typedef struct fill {
    uint64_t clock;
    uint64_t ran; /* when a model had last begun to run */
} fill;

typedef struct found { /* in the step that is open */
    tocsin_sample sample;
    uint64_t loading;
    bool same, refilled;
} found;

typedef struct loaded {
    tocsin_population population;
    uint64_t clock;   /* of loadings, fills and models that begin to run */
    tocsin_map index; /* process, loading and variable -> tensors + 1 */
    TOCSIN_VEC(loaded_tensor) tensors;
    tocsin_map filled; /* process and memory -> fills + 1 */
    TOCSIN_VEC(fill) fills;
    tocsin_map ran; /* process -> clock */
    TOCSIN_VEC(found) step;
} loaded;

static void *open_loaded(tocsin_observer *observer)
{
    loaded *own = tocsin_zalloc(1, sizeof *own);
    if (own == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    tocsin_population_key key = {.kind = TOCSIN_POPULATION_LOADED_TENSOR};
    own->population = observer->filtered ? tocsin_observer_population(observer, &key) : 0;
    return own;
}

static void close_loaded(void *memory)
{
    loaded *own = memory;
    tocsin_map_free(&own->index);
    tocsin_map_free(&own->filled);
    tocsin_map_free(&own->ran);
    TOCSIN_VEC_FREE(&own->tensors);
    TOCSIN_VEC_FREE(&own->fills);
    TOCSIN_VEC_FREE(&own->step);
    tocsin_free(own);
}

static uint64_t key_of(const tocsin_process *process, uint64_t a, uint64_t b)
{
    return tocsin_mix64(tocsin_mix64((uint64_t)(uintptr_t)process + a) + b);
}

static void forget(loaded *own)
{
    tocsin_map_clear(&own->index);
    tocsin_map_clear(&own->filled);
    own->tensors.count = own->fills.count = 0;
}

static void keep(tocsin_observer *observer, loaded *own, const tocsin_process *process,
                 const tocsin_sample *sample, uint64_t loading)
{
    loaded_tensor made = {++own->clock, sample->shape, sample->dtype, sample->digest};
    if (own->tensors.count >= TENSORS_MAX)
        forget(own);
    if (!TOCSIN_VEC_PUSH(&own->tensors, made) ||
        !tocsin_map_put(&own->index, key_of(process, loading, sample->variable->symbol),
                        own->tensors.count))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

static bool is_refilled(const loaded *own, const tocsin_process *process,
                        const loaded_tensor *tensor, const tocsin_value *memory)
{
    if (memory == NULL || memory->kind != TOCSIN_VALUE_TENSOR || memory->count == 0)
        return false;
    const uint64_t *known = tocsin_map_find(&own->filled, key_of(process, 0, memory->count));
    const fill *last = known != NULL ? &own->fills.items[*known - 1] : NULL;
    return last != NULL && last->clock > tensor->clock && last->ran < tensor->clock;
}

static void state(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame,
                  const tocsin_sample *sample, const tocsin_event *event)
{
    loaded *own = observer->own[TOCSIN_PART_LOADED];
    if (own->population == 0 || frame == NULL || sample->attribute != TOCSIN_ATTRIBUTE_LOADED ||
        sample->variable->kind != TOCSIN_VARIABLE_PARAMETER ||
        (sample->flags & TOCSIN_STATE_DIGESTED) == 0)
        return;
    const tocsin_value *number = tocsin_state_value(process, event, "loading");
    if (number == NULL || number->kind != TOCSIN_VALUE_INT)
        return;
    uint64_t loading = (uint64_t)number->as.integer;
    if (frame->role == TOCSIN_ROLE_CHECKPOINT) {
        keep(observer, own, process, sample, loading);
        return;
    }
    const uint64_t *known =
        tocsin_map_find(&own->index, key_of(process, loading, sample->variable->symbol));
    if (known == NULL || frame->role != TOCSIN_ROLE_OPTIMIZER_STEP)
        return;
    const loaded_tensor *tensor = &own->tensors.items[*known - 1];
    if (tensor->dtype != sample->dtype || tensor->shape != sample->shape)
        return;
    found made = {
        *sample, loading, memcmp(&tensor->digest, &sample->digest, sizeof sample->digest) == 0,
        is_refilled(own, process, tensor, tocsin_state_value(process, event, "parameter"))};
    if (!TOCSIN_VEC_PUSH(&own->step, made))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

/* The tensors of one loading. */
static void judge(tocsin_observer *observer, const loaded *own, const tocsin_process *process,
                  const tocsin_frame *frame, const found *tensors, size_t count)
{
    bool kept = true;
    for (size_t i = 0; i < count; ++i)
        kept &= tensors[i].sample.ndim < 2;
    for (size_t i = 0; i < count; ++i)
        kept |= tensors[i].sample.ndim >= 2 && tensors[i].same;
    for (size_t i = 0; i < count && observer->status == TOCSIN_OK; ++i) {
        const tocsin_sample *sample = &tensors[i].sample;
        tocsin_instance instance = {
            .population = own->population,
            .evidence = tocsin_observer_evidence(observer, process, frame, sample->variable->name)};
        tocsin_observer_begin(observer);
        tocsin_fields_of_sample(observer, frame, sample, TOCSIN_FIELDS_ALL);
        if (kept || tensors[i].same || !tensors[i].refilled)
            tocsin_observer_add_fact(
                observer, tocsin_observer_simple_fact(observer, TOCSIN_PREDICATE_IN_PLACE));
        tocsin_observer_emit(observer, &instance);
    }
}

static void leave(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event, bool completed)
{
    loaded *own = observer->own[TOCSIN_PART_LOADED];
    (void)thread;
    (void)event;
    (void)completed;
    if (frame->role != TOCSIN_ROLE_OPTIMIZER_STEP)
        return;
    for (size_t first = 0, end; first < own->step.count; first = end) {
        for (end = first; end < own->step.count &&
                          own->step.items[end].loading == own->step.items[first].loading;)
            ++end;
        judge(observer, own, process, frame, &own->step.items[first], end - first);
    }
    own->step.count = 0;
}

static void enter(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event)
{
    loaded *own = observer->own[TOCSIN_PART_LOADED];
    (void)thread;
    if (frame->role != TOCSIN_ROLE_INITIALIZE || own->tensors.count == 0 ||
        event->value_count == 0 || event->values[0].kind != TOCSIN_VALUE_TENSOR ||
        event->values[0].count == 0)
        return;
    if (own->fills.count >= TENSORS_MAX)
        forget(own);
    uint64_t *known = tocsin_map_at(&own->filled, key_of(process, 0, event->values[0].count));
    if (known != NULL && *known == 0 && TOCSIN_VEC_PUSH(&own->fills, (fill){0}))
        *known = own->fills.count;
    if (known == NULL || *known == 0) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return;
    }
    const uint64_t *ran = tocsin_map_find(&own->ran, (uint64_t)(uintptr_t)process);
    own->fills.items[*known - 1] = (fill){++own->clock, ran != NULL ? *ran : 0};
}

/* "stage" is said when a model begins to run in another way. */
static void meta(tocsin_observer *observer, tocsin_process *process, const tocsin_event *event)
{
    loaded *own = observer->own[TOCSIN_PART_LOADED];
    const tocsin_dictionary *dictionary = &process->dictionary;
    if (strcmp(dictionary->string(dictionary->producer, event->key), "stage") == 0 &&
        !tocsin_map_put(&own->ran, (uint64_t)(uintptr_t)process, ++own->clock))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    (void)vocabulary;
    (void)invariant;
    tocsin_need_state(needs, TOCSIN_ROLE_CHECKPOINT, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_LOADED,
                      TOCSIN_VARIABLE_PARAMETER, true);
    tocsin_need_call(needs, TOCSIN_ROLE_OPTIMIZER_STEP, 0, false);
    tocsin_need_call(needs, TOCSIN_ROLE_INITIALIZE, 0, true);
}

const tocsin_relation_part tocsin_relation_loaded = {.kinds = kinds,
                                                     .open = open_loaded,
                                                     .close = close_loaded,
                                                     .enter = enter,
                                                     .leave = leave,
                                                     .state = state,
                                                     .meta = meta,
                                                     .need = need};
