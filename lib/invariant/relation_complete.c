/* Complete checkpoints: where a model is saved, all of its parameters are.
 *
 * A script may save adapters, a head or what is trainable on purpose, so this is learned from
 * healthy runs: whether the parameters of the model that the last update found are among what
 * torch.save was given, when at least one is, by its name and as it is now. A part of a model that
 * is saved under names of its own, averages and older weights are not judged; nor are frozen
 * parameters that can be had again, because they hold what was loaded or trained before: below an
 * adapter.
 * Data: the live variables of a process, and the names in the call that saves. Cost: O(1) map
 * look-ups a state, O(variables) a save.
 */
#include <assert.h>
#include <invariant/relation.h>

#define HASHES_MAX (1u << 18) /* where there are more the better is assumed */

static const uint8_t kinds[] = {TOCSIN_POPULATION_SAVED_MODEL, 0};

typedef struct live {
    const tocsin_process *process;
    tocsin_sample sample;  /* after the last update that read it, */
    int64_t step;          /* in this step */
    tocsin_digest trained; /* data after the last update that found it trainable */
} live;

typedef struct complete {
    tocsin_population population;
    tocsin_map index; /* variable -> parameters + 1 */
    TOCSIN_VEC(live) parameters;
    tocsin_map saved; /* names, and names with digests, in the call that is open */
    tocsin_map had;   /* digests that were loaded, or trained */
} complete;

static void *open_complete(tocsin_observer *observer)
{
    complete *own = tocsin_zalloc(1, sizeof *own);
    if (own == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    tocsin_population_key key = {.kind = TOCSIN_POPULATION_SAVED_MODEL};
    own->population = tocsin_observer_population(observer, &key);
    return own;
}

static void close_complete(void *memory)
{
    complete *own = memory;
    tocsin_map_free(&own->index);
    tocsin_map_free(&own->saved);
    tocsin_map_free(&own->had);
    TOCSIN_VEC_FREE(&own->parameters);
    tocsin_free(own);
}

static void keep_live(tocsin_observer *observer, complete *own, const tocsin_process *process,
                      const tocsin_sample *sample, int64_t step)
{
    uint64_t *known = tocsin_map_at(&own->index, (uint64_t)(uintptr_t)sample->variable);
    if (known != NULL && *known == 0 && TOCSIN_VEC_PUSH(&own->parameters, (live){0}))
        *known = own->parameters.count;
    if (known == NULL || *known == 0) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return;
    }
    live *of = &own->parameters.items[*known - 1];
    of->process = process;
    of->sample = *sample;
    of->step = step;
    if ((sample->flags & TOCSIN_STATE_REQUIRES_GRAD) != 0)
        of->trained = sample->digest;
}

static void put(tocsin_observer *observer, tocsin_map *map, uint64_t hash)
{
    if (map->count < HASHES_MAX && !tocsin_map_put(map, hash, 1))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

static uint64_t hash_data(const tocsin_process *process, const tocsin_digest *digest)
{
    return tocsin_hash64(digest, sizeof *digest, (uint64_t)(uintptr_t)process);
}

static uint64_t hash_with(const tocsin_variable *variable, const tocsin_sample *sample)
{
    return tocsin_hash64(&sample->digest, sizeof sample->digest, variable->symbol) | 1;
}

static uint64_t hash_name(const tocsin_variable *variable)
{
    return (uint64_t)variable->symbol << 1;
}

static void state(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame,
                  const tocsin_sample *sample, const tocsin_event *event)
{
    complete *own = observer->own[TOCSIN_PART_COMPLETE];
    const tocsin_variable *variable = sample->variable;
    (void)event;
    if (own->population == 0 || frame == NULL || variable->kind != TOCSIN_VARIABLE_PARAMETER)
        return;
    if (sample->attribute == TOCSIN_ATTRIBUTE_SAVED && frame->role == TOCSIN_ROLE_CHECKPOINT) {
        put(observer, &own->saved, hash_name(variable));
        put(observer, &own->saved, hash_with(variable, sample));
    } else if (sample->attribute == TOCSIN_ATTRIBUTE_LOADED) {
        put(observer, &own->had, hash_data(process, &sample->digest));
    } else if (sample->attribute == TOCSIN_ATTRIBUTE_DATA && sample->moment == TOCSIN_MOMENT_EXIT &&
               frame->role == TOCSIN_ROLE_OPTIMIZER_STEP &&
               (sample->flags & TOCSIN_STATE_IN_MODEL) != 0 &&
               (sample->flags & TOCSIN_STATE_DIGESTED) != 0) {
        keep_live(observer, own, process, sample, frame->step);
    }
}

static void judge_parameter(tocsin_observer *observer, const complete *own,
                            const tocsin_process *process, const tocsin_frame *frame,
                            const live *of)
{
    const tocsin_variable *variable = of->sample.variable;
    bool saved = tocsin_map_find(&own->saved, hash_name(variable)) != NULL;
    bool frozen = (of->sample.flags & TOCSIN_STATE_REQUIRES_GRAD) == 0;
    if (!saved && frozen &&
        (own->had.count >= HASHES_MAX ||
         tocsin_map_find(&own->had, hash_data(process, &of->sample.digest)) != NULL))
        return;
    tocsin_observer_judge(observer, process, frame, own->population, &of->sample,
                          TOCSIN_PREDICATE_SAVED_TOO, saved);
}

/* Those that the latest update of the process found: others belong to a model that is gone, or wait
 * for their own optimizer. */
static void judge(tocsin_observer *observer, complete *own, const tocsin_process *process,
                  const tocsin_frame *frame)
{
    int64_t latest = 0;
    bool any = false;
    for (size_t i = 0; i < own->parameters.count; ++i)
        if (own->parameters.items[i].process == process && own->parameters.items[i].step > latest)
            latest = own->parameters.items[i].step;
    for (size_t i = 0; i < own->parameters.count && !any; ++i) {
        const live *of = &own->parameters.items[i];
        any = of->process == process && of->step == latest &&
              tocsin_map_find(&own->saved, hash_with(of->sample.variable, &of->sample)) != NULL;
    }
    for (size_t i = 0; i < own->parameters.count && any; ++i)
        if (own->parameters.items[i].process == process)
            put(observer, &own->had, hash_data(process, &own->parameters.items[i].trained));
    for (size_t i = 0; i < own->parameters.count && any && observer->status == TOCSIN_OK; ++i) {
        const live *of = &own->parameters.items[i];
        if (of->process == process && of->step == latest)
            judge_parameter(observer, own, process, frame, of);
    }
}

static void leave(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event, bool completed)
{
    complete *own = observer->own[TOCSIN_PART_COMPLETE];
    (void)thread;
    (void)event;
    if (frame->role != TOCSIN_ROLE_CHECKPOINT || own->saved.count == 0)
        return;
    if (completed)
        judge(observer, own, process, frame);
    tocsin_map_clear(&own->saved);
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    (void)vocabulary;
    (void)invariant;
    tocsin_need_state(needs, TOCSIN_ROLE_CHECKPOINT, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_SAVED,
                      TOCSIN_VARIABLE_PARAMETER, true);
    tocsin_need_state(needs, TOCSIN_ROLE_CHECKPOINT, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_LOADED,
                      TOCSIN_VARIABLE_PARAMETER, true);
    tocsin_need_state(needs, TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_DATA,
                      TOCSIN_VARIABLE_PARAMETER, true);
}

const tocsin_relation_part tocsin_relation_complete = {.kinds = kinds,
                                                       .open = open_complete,
                                                       .close = close_complete,
                                                       .leave = leave,
                                                       .state = state,
                                                       .need = need};
