/* The plan: as many steps are made as the script said it would make (tocsin.expect, or the
 * arguments of a trainer).
 *
 * Judged when there are no more events. Fewer steps than planned are a finding only of a process
 * that came to its end: one that was killed, or is still running, has not broken its plan.
 * Data: two words a process.
 */
#include <inttypes.h>
#include <invariant/relation.h>
#include <stdio.h>

static const uint8_t kinds[] = {TOCSIN_POPULATION_RUN, 0};

typedef struct plan {
    tocsin_population population;
    tocsin_map planned; /* tocsin_process * -> steps */
    tocsin_map ended;   /* tocsin_process * -> 1 */
} plan;

static void *open_plan(tocsin_observer *observer)
{
    plan *own = tocsin_zalloc(1, sizeof *own);
    if (own == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    tocsin_population_key key = {.kind = TOCSIN_POPULATION_RUN};
    own->population = observer->filtered ? tocsin_observer_population(observer, &key) : 0;
    return own;
}

static void close_plan(void *memory)
{
    plan *own = memory;
    tocsin_map_free(&own->planned);
    tocsin_map_free(&own->ended);
    tocsin_free(own);
}

static void meta(tocsin_observer *observer, tocsin_process *process, const tocsin_event *event)
{
    plan *own = observer->own[TOCSIN_PART_PLAN];
    const char *key = process->dictionary.string(process->dictionary.producer, event->key);
    bool kept = true;
    if (event->value_count == 0 || event->values[0].kind != TOCSIN_VALUE_INT)
        return;
    if (strcmp(key, "expect.steps") == 0 && event->values[0].as.integer > 0)
        kept = tocsin_map_put(&own->planned, (uint64_t)(uintptr_t)process,
                              (uint64_t)event->values[0].as.integer);
    else if (strcmp(key, "cost_ns_per_step") == 0) /* the recorder's last word */
        kept = tocsin_map_put(&own->ended, (uint64_t)(uintptr_t)process, 1);
    if (!kept)
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

static void judge(tocsin_observer *observer, const plan *own, const tocsin_process *process)
{
    uint64_t *planned = tocsin_map_find(&own->planned, (uint64_t)(uintptr_t)process);
    bool ended = tocsin_map_find(&own->ended, (uint64_t)(uintptr_t)process) != NULL;
    if (planned == NULL || process->step <= 0)
        return;
    uint64_t steps = (uint64_t)process->step;
    if (steps < *planned && !ended)
        return;
    char entity[64];
    snprintf(entity, sizeof entity, "%" PRIu64 " of %" PRIu64 " steps", steps, *planned);
    tocsin_instance instance = {.population = own->population,
                                .evidence = {.step = process->step,
                                             .rank = process->rank,
                                             .other_rank = -1,
                                             .pid = process->dictionary.pid,
                                             .entity = entity,
                                             .other = "",
                                             .file = "",
                                             .function = ""}};
    tocsin_observer_begin(observer);
    if (steps == *planned)
        tocsin_observer_add_fact(
            observer, tocsin_observer_simple_fact(observer, TOCSIN_PREDICATE_STEPS_AS_PLANNED));
    tocsin_observer_emit(observer, &instance);
}

static void finish(tocsin_observer *observer)
{
    const plan *own = observer->own[TOCSIN_PART_PLAN];
    if (own->population == 0)
        return;
    for (size_t i = 0; i < observer->processes.count && observer->status == TOCSIN_OK; ++i)
        if (observer->processes.items[i] != NULL)
            judge(observer, own, observer->processes.items[i]);
}

const tocsin_relation_part tocsin_relation_plan = {
    .kinds = kinds, .open = open_plan, .close = close_plan, .meta = meta, .finish = finish};
