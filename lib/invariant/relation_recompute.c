/* Checkpointed regions: one that draws random numbers is recomputed with the same ones.
 *
 * Judged when a call of torch.utils.checkpoint returns something that has a gradient. Unless it is
 * told preserve_rng_state=False it restores the random state itself. If it is, the recorder reads
 * the generators before and after the region (not where a context_fn is given, which may restore
 * them): one that moved has given numbers that the backward pass will not draw again. Unless the
 * region seeds them itself. Made only when asked for: there is nothing to infer. Data: the open
 * regions, each with what its generators were; they are dropped at the end of a step. Cost: O(open
 * regions) per reading.
 */
#include <invariant/relation.h>

#define REGIONS_MAX    1024u
#define GENERATORS_MAX 4u

static const uint8_t kinds[] = {TOCSIN_POPULATION_RECOMPUTED_CALL, 0};

typedef struct region {
    const tocsin_process *process;
    uint64_t call;
    bool preserved;
    bool read;  /* its generators were read after it, too */
    bool drawn; /* one of them had moved */
    uint32_t count;
    const tocsin_variable *generators[GENERATORS_MAX];
    tocsin_digest before[GENERATORS_MAX];
} region;

typedef struct recompute {
    tocsin_symbol function, seeds[2];
    TOCSIN_VEC(region) regions;
} recompute;

static void *open_recompute(tocsin_observer *observer)
{
    recompute *own = tocsin_zalloc(1, sizeof *own);
    if (own == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    tocsin_vocabulary *vocabulary = observer->vocabulary;
    own->function = tocsin_symbol_of(vocabulary, "torch.utils.checkpoint.checkpoint");
    own->seeds[0] = tocsin_symbol_of(vocabulary, "torch.manual_seed");
    own->seeds[1] = tocsin_symbol_of(vocabulary, "torch.set_rng_state");
    (void)tocsin_observer_need(observer, own->function);
    (void)tocsin_observer_need(observer, own->seeds[0]);
    (void)tocsin_observer_need(observer, own->seeds[1]);
    return own;
}

static void close_recompute(void *memory)
{
    recompute *own = memory;
    TOCSIN_VEC_FREE(&own->regions);
    tocsin_free(own);
}

static void callable(tocsin_observer *observer, tocsin_callable *made)
{
    const recompute *own = observer->own[TOCSIN_PART_RECOMPUTE];
    if (observer->filtered && made->role == TOCSIN_ROLE_NONE && made->name == own->function)
        tocsin_callable_population(observer, made, TOCSIN_POPULATION_RECOMPUTED_CALL);
}

static tocsin_population population_of(const tocsin_observer *observer, const tocsin_frame *frame)
{
    return observer->callables.items[frame->callables[0]]
        .populations[TOCSIN_POPULATION_RECOMPUTED_CALL];
}

static region *region_of(recompute *own, const tocsin_process *process, const tocsin_frame *frame)
{
    for (size_t i = own->regions.count; i-- > 0;)
        if (own->regions.items[i].process == process && own->regions.items[i].call == frame->call)
            return &own->regions.items[i];
    return NULL;
}

static bool is_preserved(const tocsin_process *process, const tocsin_event *event)
{
    const tocsin_dictionary *dictionary = &process->dictionary;
    for (uint32_t i = 0; i < event->value_count; ++i) {
        const tocsin_value *value = &event->values[i];
        if (value->kind == TOCSIN_VALUE_BOOL && value->as.integer == 0 &&
            strcmp(dictionary->string(dictionary->producer, value->name), "preserve_rng_state") ==
                0)
            return false;
    }
    return true;
}

static void enter(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event)
{
    recompute *own = observer->own[TOCSIN_PART_RECOMPUTE];
    (void)thread;
    if (population_of(observer, frame) == 0 || own->regions.count >= REGIONS_MAX)
        return;
    region opened = {
        .process = process, .call = frame->call, .preserved = is_preserved(process, event)};
    if (!TOCSIN_VEC_PUSH(&own->regions, opened))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

static void state(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame,
                  const tocsin_sample *sample, const tocsin_event *event)
{
    recompute *own = observer->own[TOCSIN_PART_RECOMPUTE];
    (void)event;
    if (frame == NULL || sample->variable->kind != TOCSIN_VARIABLE_RNG ||
        (sample->flags & TOCSIN_STATE_DIGESTED) == 0 || population_of(observer, frame) == 0)
        return;
    region *open = region_of(own, process, frame);
    for (uint32_t i = 0; open != NULL && i < open->count; ++i) {
        if (open->generators[i] != sample->variable)
            continue;
        open->read = true;
        open->drawn |= memcmp(&open->before[i], &sample->digest, sizeof sample->digest) != 0;
        return;
    }
    if (open == NULL || open->count == GENERATORS_MAX)
        return;
    open->generators[open->count] = sample->variable;
    open->before[open->count++] = sample->digest;
}

/* Is anything that was returned part of a graph? What cannot be seen through may be. */
static bool has_gradient(const tocsin_event *event)
{
    bool tensors = false;
    for (uint32_t i = 0; i < event->value_count; ++i) {
        const tocsin_value *value = &event->values[i];
        tensors |= value->kind == TOCSIN_VALUE_TENSOR;
        if (value->kind == TOCSIN_VALUE_TENSOR &&
            (value->flags & (TOCSIN_VALUE_REQUIRES_GRAD | TOCSIN_VALUE_HAS_GRAD_FN)) != 0)
            return true;
    }
    return !tensors;
}

static bool seeds_itself(const tocsin_observer *observer, const recompute *own,
                         const tocsin_frame *frame)
{
    for (size_t i = 0; i < TOCSIN_COUNT_OF(own->seeds); ++i) {
        const uint64_t *known = tocsin_map_find(&observer->callable_of, own->seeds[i]);
        size_t callable = known != NULL ? (size_t)*known - 1 : 0;
        if (known != NULL && callable / 64 < frame->inside.count &&
            (frame->inside.items[callable / 64] >> (callable % 64) & 1) != 0)
            return true;
    }
    return false;
}

static void leave(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event, bool completed)
{
    recompute *own = observer->own[TOCSIN_PART_RECOMPUTE];
    tocsin_population population = population_of(observer, frame);
    region *open = population != 0 ? region_of(own, process, frame) : NULL;
    (void)thread;
    if (open == NULL)
        return;
    region closed = *open;
    *open = own->regions.items[--own->regions.count];
    if (!completed || !has_gradient(event) || !(closed.preserved || closed.read))
        return;
    tocsin_instance instance = {.population = population,
                                .ordinal = frame->ordinals[0],
                                .evidence =
                                    tocsin_observer_evidence(observer, process, frame, NULL)};
    tocsin_observer_begin(observer);
    tocsin_observer_add_call_fields(observer, frame);
    if (closed.preserved || !closed.drawn || seeds_itself(observer, own, frame))
        tocsin_observer_add_fact(observer,
                                 tocsin_observer_simple_fact(observer, TOCSIN_PREDICATE_REDRAWS));
    tocsin_observer_emit(observer, &instance);
}

/* A region cannot outlive a step: the end of its call was lost. */
static void step(tocsin_observer *observer, tocsin_process *process)
{
    recompute *own = observer->own[TOCSIN_PART_RECOMPUTE];
    size_t kept = 0;
    for (size_t i = 0; i < own->regions.count; ++i)
        if (own->regions.items[i].process != process)
            own->regions.items[kept++] = own->regions.items[i];
    own->regions.count = kept;
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    static const char *const seeds[] = {"torch.manual_seed", "torch.set_rng_state"};
    tocsin_population_key key = tocsin_population_get_key(vocabulary, invariant->population);
    tocsin_need_call(needs, TOCSIN_ROLE_NONE, key.name, true);
    for (size_t i = 0; i < TOCSIN_COUNT_OF(seeds); ++i)
        tocsin_need_function(needs, seeds[i], false);
}

const tocsin_relation_part tocsin_relation_recompute = {.kinds = kinds,
                                                        .open = open_recompute,
                                                        .close = close_recompute,
                                                        .callable = callable,
                                                        .enter = enter,
                                                        .leave = leave,
                                                        .state = state,
                                                        .step = step,
                                                        .need = need};
