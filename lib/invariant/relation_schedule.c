/* Schedules: between two updates a scheduler is stepped once, or, as accelerate does, once for each
 * process.
 *
 * Judged when the next update begins, so that a schedule that is only plotted at the end of a run
 * is not. Counted are calls of one scheduler (known by its memory) without an argument, in a row:
 * with no loss, batch, clearing, backward pass, update or change of stage between them, which tell
 * iterations apart that make no update. Before the first update a schedule may be wound forward,
 * and so may a new one that comes later: that is judged from its second time on. What a scheduler
 * calls itself (a sequence of others) does not count. Made only when asked for: there is nothing to
 * infer. Data: a few words a scheduler, SCHEDULERS_MAX of them a process; with more all are
 * forgotten. Cost: O(schedulers) an update.
 */
#include <invariant/relation.h>

#define SCHEDULERS_MAX 64

static const uint8_t kinds[] = {TOCSIN_POPULATION_SCHEDULED_UPDATE, 0};

typedef struct scheduler {
    uint32_t memory; /* its tag */
    uint32_t row;    /* steps in a row */
    uint32_t most;   /* since the last update */
    bool known;      /* was stepped between two updates before */
    tocsin_id site;  /* of its last step */
} scheduler;

typedef struct scheduled_process {
    bool counting; /* some row is not 0 */
    uint32_t count;
    scheduler schedulers[SCHEDULERS_MAX];
} scheduled_process;

typedef struct schedule {
    tocsin_population population;
    tocsin_map processes; /* tocsin_process * -> scheduled_process * */
} schedule;

static void *open_schedule(tocsin_observer *observer)
{
    schedule *own = tocsin_zalloc(1, sizeof *own);
    if (own == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    tocsin_population_key key = {.kind = TOCSIN_POPULATION_SCHEDULED_UPDATE};
    own->population = observer->filtered ? tocsin_observer_population(observer, &key) : 0;
    return own;
}

static void close_schedule(void *memory)
{
    schedule *own = memory;
    tocsin_process_memories_free(&own->processes);
    tocsin_free(own);
}

static scheduled_process *process_of(tocsin_observer *observer, const tocsin_process *process)
{
    schedule *own = observer->own[TOCSIN_PART_SCHEDULE];
    return tocsin_process_memory(observer, &own->processes, process, sizeof(scheduled_process));
}

/* The tag of the scheduler in a call that only steps it; 0: there is none. */
static uint32_t stepped_memory(const tocsin_event *event)
{
    if (event->value_count == 0 || event->values[0].kind != TOCSIN_VALUE_OBJECT)
        return 0;
    for (uint32_t i = 1; i < event->value_count; ++i)
        if (event->values[i].kind != TOCSIN_VALUE_NONE)
            return 0; /* told where to go: an epoch, a metric */
    return event->values[0].count;
}

static void count_step(scheduled_process *state, const tocsin_frame *frame, uint32_t memory)
{
    uint32_t i = 0;
    while (i < state->count && state->schedulers[i].memory != memory)
        ++i;
    if (i == SCHEDULERS_MAX)
        i = state->count = 0;
    scheduler *found = &state->schedulers[i];
    if (i == state->count) {
        *found = (scheduler){.memory = memory};
        ++state->count;
    }
    if (++found->row > found->most) {
        found->most = found->row;
        found->site = frame->site;
    }
    state->counting = true;
}

static void end_rows(scheduled_process *state)
{
    for (uint32_t i = 0; i < state->count && state->counting; ++i)
        state->schedulers[i].row = 0;
    state->counting = false;
}

static void judge(tocsin_observer *observer, const tocsin_process *process,
                  const tocsin_frame *frame, const scheduler *stepped)
{
    const schedule *own = observer->own[TOCSIN_PART_SCHEDULE];
    const tocsin_dictionary *dictionary = &process->dictionary;
    uint32_t limit = process->world_size > 1 ? (uint32_t)process->world_size : 1;
    tocsin_instance instance = {
        .population = own->population,
        .evidence = tocsin_observer_evidence(observer, process, frame, "lr_scheduler.step")};
    if (stepped->site != 0)
        instance.evidence.file =
            dictionary->site(dictionary->producer, stepped->site, &instance.evidence.line,
                             &instance.evidence.function);
    tocsin_observer_begin(observer);
    if (stepped->most <= limit)
        tocsin_observer_add_fact(
            observer, tocsin_observer_simple_fact(observer, TOCSIN_PREDICATE_KEEPS_PACE));
    tocsin_observer_emit(observer, &instance);
}

static void judge_all(tocsin_observer *observer, const tocsin_process *process,
                      const tocsin_frame *frame, scheduled_process *state)
{
    for (uint32_t i = 0; i < state->count; ++i) {
        scheduler *stepped = &state->schedulers[i];
        if (stepped->most == 0)
            continue;
        if (process->step == 1 || (process->step > 1 && stepped->known))
            judge(observer, process, frame, stepped);
        stepped->known |= process->step > 0;
        stepped->most = stepped->row = 0;
    }
}

static void enter(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event)
{
    static const uint8_t ends[] = {TOCSIN_ROLE_LOSS,      TOCSIN_ROLE_DATA_NEXT,
                                   TOCSIN_ROLE_ZERO_GRAD, TOCSIN_ROLE_BACKWARD,
                                   TOCSIN_ROLE_SCALER,    TOCSIN_ROLE_OPTIMIZER_STEP};
    const schedule *own = observer->own[TOCSIN_PART_SCHEDULE];
    bool steps = frame->role == TOCSIN_ROLE_SCHEDULER_STEP;
    if (own->population == 0 || (!steps && memchr(ends, frame->role, sizeof ends) == NULL))
        return;
    scheduled_process *state = process_of(observer, process);
    if (state == NULL)
        return;
    uint32_t memory = steps ? stepped_memory(event) : 0;
    if (memory != 0 && !tocsin_thread_is_inside(thread, TOCSIN_ROLE_SCHEDULER_STEP))
        count_step(state, frame, memory);
    else if (!steps)
        end_rows(state);
    if (frame->role == TOCSIN_ROLE_OPTIMIZER_STEP)
        judge_all(observer, process, frame, state);
}

static void meta(tocsin_observer *observer, tocsin_process *process, const tocsin_event *event)
{
    const schedule *own = observer->own[TOCSIN_PART_SCHEDULE];
    const tocsin_dictionary *dictionary = &process->dictionary;
    if (own->population == 0 ||
        strcmp(dictionary->string(dictionary->producer, event->key), "stage") != 0)
        return;
    scheduled_process *state = process_of(observer, process);
    if (state != NULL)
        end_rows(state);
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    static const uint8_t roles[] = {TOCSIN_ROLE_LOSS,     TOCSIN_ROLE_DATA_NEXT,
                                    TOCSIN_ROLE_SCALER,   TOCSIN_ROLE_ZERO_GRAD,
                                    TOCSIN_ROLE_BACKWARD, TOCSIN_ROLE_OPTIMIZER_STEP};
    (void)vocabulary;
    (void)invariant;
    tocsin_need_call(needs, TOCSIN_ROLE_SCHEDULER_STEP, 0, true);
    for (size_t i = 0; i < TOCSIN_COUNT_OF(roles); ++i)
        tocsin_need_call(needs, roles[i], 0, false);
}

const tocsin_relation_part tocsin_relation_schedule = {.kinds = kinds,
                                                       .open = open_schedule,
                                                       .close = close_schedule,
                                                       .enter = enter,
                                                       .meta = meta,
                                                       .need = need};
