/* Loaded weights: they are not all initialised anew before the model runs.
 *
 * A script may initialise a head after it loaded a model, mask, average or scale what it loaded, or
 * draw it again after it was used. What it does not do on purpose is to draw every matrix of a
 * module again that it has just loaded. So the tensors of a module are looked at when it next runs,
 * and judged at the update that follows: one is not in place if its data are not what was loaded,
 * its memory was filled by an initialiser since, and no matrix of the module is as loaded. The
 * recorder says which loading they are of. Made only when asked for: there is nothing to infer.
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

typedef struct found { /* in a model that ran since the last update */
    const tocsin_process *process;
    tocsin_sample sample;
    uint64_t loading;
    bool same, refilled;
} found;

typedef struct loaded {
    tocsin_population population;
    uint64_t clock;   /* of loadings and fills */
    tocsin_map index; /* process, loading and variable -> tensors + 1 */
    TOCSIN_VEC(loaded_tensor) tensors;
    tocsin_map filled; /* process and memory -> clock */
    TOCSIN_VEC(found) found;
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
    TOCSIN_VEC_FREE(&own->tensors);
    TOCSIN_VEC_FREE(&own->found);
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
    own->tensors.count = 0;
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
    const uint64_t *filled = tocsin_map_find(&own->filled, key_of(process, 0, memory->count));
    return filled != NULL && *filled > tensor->clock;
}

static void state(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame,
                  const tocsin_sample *sample, const tocsin_event *event)
{
    loaded *own = observer->own[TOCSIN_PART_LOADED];
    if (own->population == 0 || sample->attribute != TOCSIN_ATTRIBUTE_LOADED ||
        sample->variable->kind != TOCSIN_VARIABLE_PARAMETER ||
        (sample->flags & TOCSIN_STATE_DIGESTED) == 0)
        return;
    const tocsin_value *number = tocsin_event_value(process, event, "loading");
    if (number == NULL || number->kind != TOCSIN_VALUE_INT)
        return;
    uint64_t loading = (uint64_t)number->as.integer;
    if (frame != NULL && frame->role == TOCSIN_ROLE_CHECKPOINT) {
        keep(observer, own, process, sample, loading);
        return;
    }
    const uint64_t *known =
        tocsin_map_find(&own->index, key_of(process, loading, sample->variable->symbol));
    if (known == NULL || own->found.count >= TENSORS_MAX)
        return;
    const loaded_tensor *tensor = &own->tensors.items[*known - 1];
    if (tensor->dtype != sample->dtype || tensor->shape != sample->shape)
        return;
    found made = {
        process, *sample, loading,
        memcmp(&tensor->digest, &sample->digest, sizeof sample->digest) == 0,
        is_refilled(own, process, tensor, tocsin_event_value(process, event, "parameter"))};
    if (!TOCSIN_VEC_PUSH(&own->found, made))
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
        tocsin_observer_judge(observer, process, frame, own->population, sample,
                              TOCSIN_PREDICATE_IN_PLACE,
                              kept || tensors[i].same || !tensors[i].refilled);
    }
}

static void judge_all(tocsin_observer *observer, loaded *own, const tocsin_process *process,
                      const tocsin_frame *frame)
{
    size_t kept = 0;
    for (size_t first = 0, end; first < own->found.count; first = end) {
        const found *of = &own->found.items[first];
        for (end = first + 1; end < own->found.count; ++end)
            if (own->found.items[end].process != of->process ||
                own->found.items[end].loading != of->loading)
                break;
        if (of->process == process)
            judge(observer, own, process, frame, of, end - first);
        else /* of another process */
            for (size_t i = first; i < end; ++i)
                own->found.items[kept++] = own->found.items[i];
    }
    own->found.count = kept;
}

static void enter(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event)
{
    loaded *own = observer->own[TOCSIN_PART_LOADED];
    (void)thread;
    if (frame->role == TOCSIN_ROLE_OPTIMIZER_STEP && own->found.count > 0)
        judge_all(observer, own, process, frame);
    if (frame->role != TOCSIN_ROLE_INITIALIZE || own->tensors.count == 0 ||
        event->value_count == 0 || event->values[0].kind != TOCSIN_VALUE_TENSOR ||
        event->values[0].count == 0)
        return;
    if (own->filled.count >= TENSORS_MAX)
        forget(own);
    if (!tocsin_map_put(&own->filled, key_of(process, 0, event->values[0].count), ++own->clock))
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
                                                     .state = state,
                                                     .need = need};
