/* APISequence, forwards: after a call of X, Y is called before the next one, or before the end.
 *
 * The other side of relation_sequence.c, with the same exceptions: instances are calls of X, judged
 * when X is called again, or, the last one, when there are no more events and the process came to
 * its end; so what is claimed of the last call is claimed here only. The fields are those of the
 * first of both calls, and "call.last". That something comes after the last call (of a training
 * loop, say) is a habit of a program rather than of training, so it is learned only where learning
 * is wide, and judged when asked for. Data: the last call of each X in each thread, and its fields.
 * Cost: O(callables with an order) per call of X.
 */
#include <invariant/relation.h>

#define CALLS_MAX (1u << 16)

static const uint8_t kinds[] = {TOCSIN_POPULATION_LEADING_CALL, 0};

typedef struct last_call {
    tocsin_process *process;
    uint32_t thread;
    uint32_t callable;
    int32_t slot; /* of an optimizer.step; else -1 */
    bool valid;
    uint8_t role;
    uint32_t function; /* callable of the function that was called */
    uint32_t ordinal;
    int64_t step;
    tocsin_id site;
    TOCSIN_VEC(tocsin_field) fields;
} last_call;

typedef struct lead {
    TOCSIN_VEC(last_call) calls;
    tocsin_map index; /* hash of process, thread, callable and slot -> index + 1 */
    tocsin_map ended; /* tocsin_process * -> 1 */
    tocsin_symbol call_last;
} lead;

static void *open_lead(tocsin_observer *observer)
{
    lead *own = tocsin_zalloc(1, sizeof *own);
    if (own == NULL)
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
    else
        own->call_last =
            tocsin_observer_need(observer, tocsin_symbol_of(observer->vocabulary, "call.last"));
    return own;
}

static void close_lead(void *memory)
{
    lead *own = memory;
    for (size_t i = 0; i < own->calls.count; ++i)
        TOCSIN_VEC_FREE(&own->calls.items[i].fields);
    TOCSIN_VEC_FREE(&own->calls);
    tocsin_map_free(&own->index);
    tocsin_map_free(&own->ended);
    tocsin_free(own);
}

static void callable(tocsin_observer *observer, tocsin_callable *made)
{
    if ((observer->filtered || observer->wide) && made->role != TOCSIN_ROLE_FORWARD)
        tocsin_callable_population(observer, made, TOCSIN_POPULATION_LEADING_CALL);
}

static last_call *find_call(tocsin_observer *observer, tocsin_process *process,
                            const tocsin_thread *thread, uint32_t callable, int32_t slot)
{
    lead *own = observer->own[TOCSIN_PART_LEAD];
    uint32_t number = (uint32_t)(thread - process->threads.items);
    uint64_t key = tocsin_mix64((uint64_t)(uintptr_t)process + ((uint64_t)number << 32) + callable);
    uint64_t *index = tocsin_map_at(&own->index, tocsin_mix64(key + (uint64_t)(int64_t)slot));
    if (index != NULL && *index == 0 && own->calls.count < CALLS_MAX) {
        last_call made = {.process = process, .thread = number, .callable = callable, .slot = slot};
        if (TOCSIN_VEC_PUSH(&own->calls, made))
            *index = own->calls.count;
    }
    if (index == NULL || *index == 0) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    return &own->calls.items[*index - 1];
}

static void judge(tocsin_observer *observer, const last_call *first, uint64_t previous, bool last)
{
    const tocsin_thread *thread = &first->process->threads.items[first->thread];
    tocsin_frame frame = {.step = first->step, .site = first->site, .callables = {first->function}};
    tocsin_instance instance = {
        .population =
            observer->callables.items[first->callable].populations[TOCSIN_POPULATION_LEADING_CALL],
        .ordinal = first->ordinal,
        .evidence = tocsin_observer_evidence(observer, first->process, &frame, NULL)};
    tocsin_observer_begin(observer);
    tocsin_observer_add_field(observer, ((lead *)observer->own[TOCSIN_PART_LEAD])->call_last,
                              observer->truth[last], observer->truth[last]);
    for (size_t i = 0; i < first->fields.count; ++i)
        tocsin_observer_add_field(observer, first->fields.items[i].name, first->fields.items[i].a,
                                  first->fields.items[i].b);
    for (size_t other = 0; other < thread->moments.count; ++other)
        if (other != first->callable && observer->callables.items[other].ordered &&
            thread->moments.items[other].completed > previous)
            tocsin_observer_add_fact(observer, observer->callables.items[other].leads);
    tocsin_observer_emit(observer, &instance);
}

static void keep(tocsin_observer *observer, last_call *last, const tocsin_frame *frame,
                 uint32_t which)
{
    last->valid = frame->ordinals[which] <= TOCSIN_SEQUENCE_MAX;
    last->role = frame->role;
    last->function = frame->callables[0];
    last->ordinal = frame->ordinals[which];
    last->step = frame->step;
    last->site = frame->site;
    last->fields.count = 0;
    for (size_t i = 0; i < frame->fields.count && last->valid; ++i)
        if (!TOCSIN_VEC_PUSH(&last->fields, frame->fields.items[i]))
            tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

static void enter(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event)
{
    (void)event;
    for (uint32_t i = 0; i < frame->callable_count && observer->status == TOCSIN_OK; ++i) {
        uint32_t index = frame->callables[i];
        const tocsin_callable *called = &observer->callables.items[index];
        if (called->populations[TOCSIN_POPULATION_LEADING_CALL] == 0 || !called->ordered)
            continue;
        last_call *last = find_call(observer, process, thread, index, frame->slot);
        if (last == NULL)
            return;
        uint64_t previous = tocsin_sequence_previous(observer, process, thread, frame, index);
        if (previous != 0 && last->valid)
            judge(observer, last, previous, false);
        keep(observer, last, frame, i);
    }
}

static void meta(tocsin_observer *observer, tocsin_process *process, const tocsin_event *event)
{
    lead *own = observer->own[TOCSIN_PART_LEAD];
    const char *key = process->dictionary.string(process->dictionary.producer, event->key);
    if (strcmp(key, "cost_ns_per_step") == 0 && /* the recorder's last word */
        !tocsin_map_put(&own->ended, (uint64_t)(uintptr_t)process, 1))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

/* The last call of each X, of processes that came to their end. */
static void finish(tocsin_observer *observer)
{
    lead *own = observer->own[TOCSIN_PART_LEAD];
    for (size_t i = 0; i < own->calls.count && observer->status == TOCSIN_OK; ++i) {
        const last_call *last = &own->calls.items[i];
        const tocsin_thread *thread = &last->process->threads.items[last->thread];
        if (!last->valid ||
            tocsin_map_find(&own->ended, (uint64_t)(uintptr_t)last->process) == NULL)
            continue;
        tocsin_frame frame = {.role = last->role, .slot = last->slot};
        uint64_t previous =
            tocsin_sequence_previous(observer, last->process, thread, &frame, last->callable);
        if (previous != 0)
            judge(observer, last, previous, true);
    }
}

const tocsin_relation_part tocsin_relation_lead = {.kinds = kinds,
                                                   .open = open_lead,
                                                   .close = close_lead,
                                                   .callable = callable,
                                                   .enter = enter,
                                                   .meta = meta,
                                                   .finish = finish};
