/* The observer: processes, threads, open calls and variables of a run, from its events.
 *
 * Data: per process maps from dictionary ids to what they mean here, per thread a stack of open
 * calls whose frames are reused, per variable its last digest. Nothing grows with the length of the
 * run: frames die with their calls, counts and windows carry the step they belong to, and values
 * enter the vocabulary only where their variety is bounded. Processes meet in windows by (step,
 * ordinal of the call in the step) alone, never by time.
 * Cost: O(1) map look-ups an event, plus the size of the instances it makes.
 */
#include <assert.h>
#include <invariant/relation.h>
#include <math.h>
#include <stdlib.h>

#define PROCESSES_MAX (1u << 16)
#define THREADS_MAX   (1u << 16)
#define OPEN_MAX      (1u << 14)
#define METAS_MAX     1024u

/* ---- failures, filter, emission ------------------------------------------------------------ */

void tocsin_observer_fail(tocsin_observer *observer, tocsin_status status, const char *what)
{
    if (observer->status != TOCSIN_OK)
        return;
    observer->status = status;
    tocsin_error_set(observer->error, status, "%s", what);
}

uint32_t tocsin_observer_need(tocsin_observer *observer, uint32_t id)
{
    if (id == 0)
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory for the names of a run");
    return id;
}

#define PUSH(observer, vec, ...)                                                                   \
    do {                                                                                           \
        if (!TOCSIN_VEC_PUSH(vec, __VA_ARGS__))                                                    \
            tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");                      \
    } while (0)

tocsin_population tocsin_observer_population(tocsin_observer *observer,
                                             const tocsin_population_key *key)
{
    tocsin_population id =
        tocsin_observer_need(observer, tocsin_population_of(observer->vocabulary, key));
    if (observer->filtered && tocsin_map_find(&observer->wanted_populations, id) == NULL)
        return 0;
    return id;
}

tocsin_fact tocsin_observer_fact(tocsin_observer *observer, const tocsin_fact_key *key)
{
    if (!observer->filtered)
        return tocsin_observer_need(observer, tocsin_fact_of(observer->vocabulary, key));
    tocsin_fact id = tocsin_fact_find(observer->vocabulary, key);
    return tocsin_map_find(&observer->wanted_facts, id) != NULL ? id : 0;
}

tocsin_fact tocsin_observer_simple_fact(tocsin_observer *observer, tocsin_predicate predicate)
{
    tocsin_fact_key key = {.predicate = (uint8_t)predicate};
    return tocsin_observer_fact(observer, &key);
}

void tocsin_observer_begin(tocsin_observer *observer)
{
    observer->fields.count = 0;
    observer->facts.count = 0;
}

void tocsin_observer_add_field(tocsin_observer *observer, tocsin_symbol name, tocsin_scalar a,
                               tocsin_scalar b)
{
    if (name != 0 && (a != 0 || b != 0) && tocsin_observer_wants_field(observer, name))
        PUSH(observer, &observer->fields, (tocsin_field){.name = name, .a = a, .b = b});
}

void tocsin_observer_add_call_fields(tocsin_observer *observer, const tocsin_frame *frame)
{
    for (size_t i = 0; i < frame->fields.count; ++i)
        tocsin_observer_add_field(observer, frame->fields.items[i].name, frame->fields.items[i].a,
                                  frame->fields.items[i].b);
}

void tocsin_observer_add_fact(tocsin_observer *observer, tocsin_fact fact)
{
    if (fact != 0)
        PUSH(observer, &observer->facts, fact);
}

size_t tocsin_fields_sort(tocsin_field *fields, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; ++i) { /* insertion: short, and nearly sorted */
        tocsin_field field = fields[i];
        if (kept == 0 || fields[kept - 1].name < field.name) {
            fields[kept++] = field;
            continue;
        }
        size_t at = kept;
        while (at > 0 && fields[at - 1].name > field.name)
            --at;
        if (at > 0 && fields[at - 1].name == field.name)
            continue;
        memmove(&fields[at + 1], &fields[at], (kept - at) * sizeof *fields);
        fields[at] = field;
        ++kept;
    }
    return kept;
}

static int compare_ids(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static size_t sort_facts(tocsin_fact *facts, size_t count)
{
    bool sorted = true;
    for (size_t i = 1; i < count && sorted; ++i)
        sorted = facts[i - 1] < facts[i];
    if (sorted)
        return count;
    qsort(facts, count, sizeof *facts, compare_ids);
    size_t kept = 1;
    for (size_t i = 1; i < count; ++i)
        if (facts[i] != facts[kept - 1])
            facts[kept++] = facts[i];
    return kept;
}

#ifndef NDEBUG
/* A fact that has no sentence could be counted and kept, but not read again. */
static bool can_be_stated(const tocsin_observer *observer, const tocsin_instance *instance)
{
    const tocsin_vocabulary *vocabulary = observer->vocabulary;
    uint8_t kind = tocsin_population_get_key(vocabulary, instance->population).kind;
    for (uint32_t i = 0; i < instance->fact_count; ++i) {
        tocsin_fact_key key = tocsin_fact_get_key(vocabulary, instance->facts[i]);
        if (!tocsin_fact_key_exists(kind, &key))
            return false;
    }
    return true;
}
#endif

void tocsin_observer_emit(tocsin_observer *observer, tocsin_instance *instance)
{
    if (observer->status != TOCSIN_OK)
        return;
    assert(instance->population != 0);
    observer->fields.count = tocsin_fields_sort(observer->fields.items, observer->fields.count);
    observer->facts.count = sort_facts(observer->facts.items, observer->facts.count);
    instance->field_count = (uint32_t)observer->fields.count;
    instance->fields = observer->fields.items;
    instance->fact_count = (uint32_t)observer->facts.count;
    instance->facts = observer->facts.items;
    assert(can_be_stated(observer, instance));
    ++observer->instances;
    observer->status = observer->sink(observer->context, instance, observer->error);
}

tocsin_evidence tocsin_observer_evidence(const tocsin_observer *observer,
                                         const tocsin_process *process, const tocsin_frame *frame,
                                         const char *entity)
{
    const tocsin_dictionary *dictionary = &process->dictionary;
    tocsin_evidence evidence = {.step = frame->step,
                                .rank = process->rank,
                                .other_rank = -1,
                                .pid = dictionary->pid,
                                .entity = entity,
                                .other = "",
                                .file = "",
                                .function = "",
                                .numbers = frame->numbers.items,
                                .number_count = (uint32_t)frame->numbers.count};
    if (entity == NULL)
        evidence.entity = tocsin_symbol_text(observer->vocabulary,
                                             observer->callables.items[frame->callables[0]].name);
    if (frame->site != 0)
        evidence.file =
            dictionary->site(dictionary->producer, frame->site, &evidence.line, &evidence.function);
    return evidence;
}

/* ---- processes and threads ----------------------------------------------------------------- */

static void free_process(tocsin_process *process)
{
    size_t cursor = 0;
    uint64_t key, *value;
    for (size_t t = 0; t < process->threads.count; ++t) {
        tocsin_thread *thread = &process->threads.items[t];
        for (size_t f = 0; f < thread->frames.count; ++f) {
            TOCSIN_VEC_FREE(&thread->frames.items[f].fields);
            TOCSIN_VEC_FREE(&thread->frames.items[f].arguments);
            TOCSIN_VEC_FREE(&thread->frames.items[f].numbers);
            TOCSIN_VEC_FREE(&thread->frames.items[f].lengths);
            TOCSIN_VEC_FREE(&thread->frames.items[f].inside);
            TOCSIN_VEC_FREE(&thread->frames.items[f].inside_with);
            TOCSIN_VEC_FREE(&thread->frames.items[f].changes);
            TOCSIN_VEC_FREE(&thread->frames.items[f].samples);
        }
        TOCSIN_VEC_FREE(&thread->frames);
        TOCSIN_VEC_FREE(&thread->moments);
    }
    TOCSIN_VEC_FREE(&process->threads);
    TOCSIN_VEC_FREE(&process->metas);
    TOCSIN_VEC_FREE(&process->counts);
    while (tocsin_map_next(&process->variables, &cursor, &key, &value))
        tocsin_variable_free((tocsin_variable *)(uintptr_t)*value);
    tocsin_map_free(&process->functions);
    tocsin_map_free(&process->names);
    tocsin_map_free(&process->keys);
    tocsin_map_free(&process->strings);
    tocsin_map_free(&process->shapes);
    tocsin_map_free(&process->variables);
    tocsin_map_free(&process->argument_sets);
    tocsin_map_free(&process->collectives);
    tocsin_free(process);
}

static tocsin_process *process_at(tocsin_observer *observer, size_t index,
                                  const tocsin_dictionary *dictionary)
{
    if (index >= PROCESSES_MAX) {
        tocsin_observer_fail(observer, TOCSIN_E_LIMIT, "more than 65536 processes in a run");
        return NULL;
    }
    while (observer->processes.count <= index && observer->status == TOCSIN_OK)
        PUSH(observer, &observer->processes, NULL);
    if (observer->status != TOCSIN_OK)
        return NULL;
    tocsin_process *process = observer->processes.items[index];
    if (process == NULL) {
        process = tocsin_zalloc(1, sizeof *process);
        if (process == NULL) {
            tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
            return NULL;
        }
        process->index = index;
        process->rank = -1;
        process->micro_step = -1;
        process->argument_step = process->collective_step = -1;
        observer->processes.items[index] = process;
    }
    process->dictionary = *dictionary;
    return process;
}

static tocsin_thread *thread_at(tocsin_observer *observer, tocsin_process *process, uint32_t index)
{
    if (index >= THREADS_MAX) {
        tocsin_observer_fail(observer, TOCSIN_E_LIMIT, "more than 65536 threads in a process");
        return NULL;
    }
    while (process->threads.count <= index && observer->status == TOCSIN_OK)
        PUSH(observer, &process->threads, (tocsin_thread){.clock = 0});
    return observer->status == TOCSIN_OK ? &process->threads.items[index] : NULL;
}

/* An unused frame on top of the thread's stack, its vecs empty but with their memory. */
static tocsin_frame *push_frame(tocsin_observer *observer, tocsin_thread *thread)
{
    if (thread->open >= OPEN_MAX) {
        tocsin_observer_fail(observer, TOCSIN_E_LIMIT, "more than 16384 open calls in a thread");
        return NULL;
    }
    if (thread->open == thread->frames.count)
        PUSH(observer, &thread->frames, (tocsin_frame){.call = 0});
    if (observer->status != TOCSIN_OK)
        return NULL;
    tocsin_frame *frame = &thread->frames.items[thread->open++];
    frame->fields.count = frame->arguments.count = frame->inside.count = 0;
    frame->changes.count = frame->inside_with.count = 0;
    frame->has_places = false;
    frame->reads = false;
    frame->samples.count = frame->numbers.count = frame->lengths.count = 0;
    frame->roles_inside = 0;
    frame->tensor_count = 0;
    frame->callable_count = 0;
    frame->lr = (double)NAN;
    frame->slot = -1;
    return frame;
}

/* ---- calls --------------------------------------------------------------------------------- */

static void resolve_function(tocsin_observer *observer, tocsin_process *process,
                             tocsin_frame *frame, tocsin_id function)
{
    const tocsin_dictionary *dictionary = &process->dictionary;
    uint64_t *known = tocsin_map_find(&process->functions, function);
    uint64_t packed = known != NULL ? *known : 0;
    if (known == NULL) {
        tocsin_role role = dictionary->function_role(dictionary->producer, function);
        const char *text = dictionary->function_name(dictionary->producer, function);
        tocsin_symbol name =
            tocsin_observer_need(observer, tocsin_symbol_of(observer->vocabulary, text));
        size_t by_name = tocsin_observer_callable(observer, name, TOCSIN_ROLE_NONE);
        size_t by_role = 0;
        bool has_role = tocsin_role_name(role)[0] != 0; /* later versions may have others */
        if (has_role)
            by_role = tocsin_observer_callable(observer, 0, (uint8_t)role);
        if (observer->status != TOCSIN_OK)
            return;
        observer->callables.items[by_name].ordered |=
            has_role && tocsin_role_is_diverse((uint8_t)role);
        packed = (uint64_t)(by_name + 1) | (has_role ? (uint64_t)(by_role + 1) << 32 : 0);
        if (!tocsin_map_put(&process->functions, function, packed))
            tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
    }
    frame->callables[0] = (uint32_t)packed - 1;
    frame->callable_count = 1;
    frame->role = TOCSIN_ROLE_NONE;
    if (packed >> 32 != 0) {
        frame->callables[1] = (uint32_t)(packed >> 32) - 1;
        frame->callable_count = 2;
        frame->role = observer->callables.items[frame->callables[1]].role;
    }
}

static void count_call(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame)
{
    frame->interesting = !observer->filtered; /* a shard sees what all relations together see */
    for (uint32_t i = 0; i < frame->callable_count; ++i) {
        uint32_t callable = frame->callables[i];
        while (process->counts.count <= callable && observer->status == TOCSIN_OK)
            PUSH(observer, &process->counts, (tocsin_count){.step = -1});
        if (observer->status != TOCSIN_OK)
            return;
        tocsin_count *count = &process->counts.items[callable];
        if (count->step != frame->step)
            *count = (tocsin_count){.step = frame->step};
        frame->ordinals[i] = ++count->count;
        frame->interesting |= observer->callables.items[callable].interesting;
    }
}

static void enter(tocsin_observer *observer, tocsin_process *process, const tocsin_event *event)
{
    tocsin_thread *thread = thread_at(observer, process, event->thread);
    if (thread == NULL)
        return;
    tocsin_id outer_site = thread->open > 0 ? thread->frames.items[thread->open - 1].site : 0;
    tocsin_frame *frame = push_frame(observer, thread);
    if (frame == NULL)
        return;
    frame->call = event->call;
    frame->step = process->step + 1;
    frame->site = event->site != 0 ? event->site : outer_site;
    resolve_function(observer, process, frame, event->function);
    if (observer->status != TOCSIN_OK)
        return;
    count_call(observer, process, frame);
    if (frame->interesting || frame->role == TOCSIN_ROLE_OPTIMIZER_STEP)
        tocsin_fields_of_call(observer, process, frame, event);
    for (size_t i = 0; i < observer->active_count; ++i)
        if (observer->active[i]->enter != NULL)
            observer->active[i]->enter(observer, process, thread, frame, event);
}

static tocsin_moment_pair *moments_of(tocsin_observer *observer, tocsin_thread *thread,
                                      size_t callable)
{
    while (thread->moments.count <= callable && observer->status == TOCSIN_OK)
        PUSH(observer, &thread->moments, (tocsin_moment_pair){.left = 0});
    return observer->status == TOCSIN_OK ? &thread->moments.items[callable] : NULL;
}

/* GradScaler.step stands for optimizer.step: whether it makes the step depends on the gradients.
 * What comes after a step that it skipped is no further micro-batch. */
static void stand_for_step(tocsin_observer *observer, tocsin_process *process,
                           tocsin_thread *thread, const tocsin_frame *frame)
{
    const char *name = tocsin_symbol_text(observer->vocabulary,
                                          observer->callables.items[frame->callables[0]].name);
    if (strcmp(name, "torch.amp.GradScaler.step") != 0)
        return;
    size_t step = tocsin_observer_callable(observer, 0, TOCSIN_ROLE_OPTIMIZER_STEP);
    tocsin_moment_pair *moments =
        observer->status == TOCSIN_OK ? moments_of(observer, thread, step) : NULL;
    if (moments == NULL)
        return;
    moments->completed = thread->clock;
    if (process->micro_step > 0)
        process->micro_step = 0;
    if (thread->open >= 2) /* also for the user's function that calls the scaler */
        thread->frames.items[thread->open - 2].roles_inside |= UINT32_C(1)
                                                               << TOCSIN_ROLE_OPTIMIZER_STEP;
}

/* When checking, a call contains what the calls in it contain: whoever writes "F calls G" by hand,
 * or for another tool, need not say how deep. (Learning keeps to direct calls, which imply it,
 * unless it is wide.) */
static void pass_on_inside(tocsin_observer *observer, tocsin_frame *outer,
                           const tocsin_frame *frame)
{
    if (!observer->filtered && !observer->wide)
        return;
    while (outer->inside.count < frame->inside.count && observer->status == TOCSIN_OK)
        PUSH(observer, &outer->inside, 0);
    for (size_t i = 0; i < frame->inside.count && observer->status == TOCSIN_OK; ++i)
        outer->inside.items[i] |= frame->inside.items[i];
}

/* The call is over: tell the enclosing call and the thread's sequence. */
static void close_call(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                       const tocsin_frame *frame, bool completed)
{
    ++thread->clock;
    for (uint32_t i = 0; i < frame->callable_count; ++i) {
        uint32_t callable = frame->callables[i];
        tocsin_moment_pair *moments = moments_of(observer, thread, callable);
        if (moments == NULL)
            return;
        moments->left = thread->clock;
        if (completed)
            moments->completed = thread->clock;
    }
    if (completed && frame->role == TOCSIN_ROLE_SCALER)
        stand_for_step(observer, process, thread, frame);
    if (thread->open < 2 || observer->status != TOCSIN_OK)
        return;
    tocsin_frame *outer = &thread->frames.items[thread->open - 2];
    outer->roles_inside |= frame->roles_inside;
    pass_on_inside(observer, outer, frame);
    if (!completed)
        return;
    if (frame->role != TOCSIN_ROLE_NONE)
        outer->roles_inside |= UINT32_C(1) << frame->role;
    size_t word = frame->callables[0] / 64;
    while (outer->inside.count <= word && observer->status == TOCSIN_OK)
        PUSH(observer, &outer->inside, 0);
    if (observer->status == TOCSIN_OK)
        outer->inside.items[word] |= UINT64_C(1) << (frame->callables[0] % 64);
}

/* Link each variable to its gradient at the start and its data at the end of optimizer.step. */
static void link_samples(tocsin_observer *observer, const tocsin_frame *frame)
{
    uint64_t epoch = ++observer->epoch;
    for (size_t i = 0; i < frame->samples.count; ++i) {
        const tocsin_sample *sample = &frame->samples.items[i];
        tocsin_variable *variable = sample->variable;
        if (variable->epoch != epoch) {
            variable->epoch = epoch;
            variable->gradient = variable->data = 0;
        }
        if (sample->attribute == TOCSIN_ATTRIBUTE_GRAD && sample->moment == TOCSIN_MOMENT_ENTER)
            variable->gradient = (uint32_t)i + 1;
        else if (sample->attribute == TOCSIN_ATTRIBUTE_DATA && sample->moment == TOCSIN_MOMENT_EXIT)
            variable->data = (uint32_t)i + 1;
    }
}

/* When an optimizer's step was left last; one that ran a closure has no place in the order. */
static void remember_step(tocsin_process *process, tocsin_thread *thread, const tocsin_frame *frame)
{
    bool closure = (frame->roles_inside & UINT32_C(1) << TOCSIN_ROLE_BACKWARD) != 0;
    process->unordered |= closure;
    if (frame->slot >= 0)
        thread->steps[frame->slot] = closure ? 0 : thread->clock;
}

static void leave(tocsin_observer *observer, tocsin_process *process, const tocsin_event *event)
{
    tocsin_thread *thread = thread_at(observer, process, event->thread);
    if (thread == NULL)
        return;
    size_t at = thread->open;
    while (at > 0 && thread->frames.items[at - 1].call != event->call)
        --at;
    if (at == 0) /* its ENTER was lost, or never recorded */
        return;
    thread->open = at; /* calls above it have lost their EXIT */
    tocsin_frame *frame = &thread->frames.items[at - 1];
    bool completed = event->kind == TOCSIN_EVENT_EXIT;
    close_call(observer, process, thread, frame, completed);
    if (frame->role == TOCSIN_ROLE_OPTIMIZER_STEP) {
        link_samples(observer, frame);
        remember_step(process, thread, frame);
    }
    for (size_t i = 0; i < observer->active_count && observer->status == TOCSIN_OK; ++i)
        if (observer->active[i]->leave != NULL)
            observer->active[i]->leave(observer, process, thread, frame, event, completed);
    --thread->open;
}

static void state(tocsin_observer *observer, tocsin_process *process, const tocsin_event *event)
{
    tocsin_thread *thread = thread_at(observer, process, event->thread);
    if (thread == NULL)
        return;
    tocsin_frame *frame = thread->open > 0 ? &thread->frames.items[thread->open - 1] : NULL;
    tocsin_observer_state(observer, process, frame, event);
}

/* ---- meta ---------------------------------------------------------------------------------- */

static void set_meta(tocsin_observer *observer, tocsin_process *process, const char *key,
                     tocsin_scalar value)
{
    char name[5 + 256 + 1] = "meta.";
    strncpy(name + 5, key, 256);
    tocsin_symbol symbol =
        tocsin_observer_need(observer, tocsin_symbol_of(observer->vocabulary, name));
    for (size_t i = 0; i < process->metas.count; ++i) {
        if (process->metas.items[i].name == symbol) {
            process->metas.items[i].value = value;
            return;
        }
    }
    if (process->metas.count >= METAS_MAX)
        tocsin_observer_fail(observer, TOCSIN_E_LIMIT, "more than 1024 meta variables");
    else
        PUSH(observer, &process->metas,
             (tocsin_meta){
                 .name = symbol, .value = value, .identity = tocsin_field_is_identity(name)});
}

static void set_step(tocsin_observer *observer, tocsin_process *process, int64_t step)
{
    bool changed = process->step != step;
    process->step = step;
    for (size_t i = 0; i < observer->active_count && changed; ++i)
        if (observer->active[i]->step != NULL)
            observer->active[i]->step(observer, process);
}

static void meta(tocsin_observer *observer, tocsin_process *process, const tocsin_event *event)
{
    if (event->value_count == 0)
        return;
    const tocsin_value *value = &event->values[0];
    const char *key = process->dictionary.string(process->dictionary.producer, event->key);
    bool integer = value->kind == TOCSIN_VALUE_INT;
    if (strcmp(key, "step") == 0) {
        if (integer && value->as.integer >= 0 && value->as.integer < INT64_MAX)
            set_step(observer, process, value->as.integer);
    } else if (strcmp(key, "micro_step") == 0) {
        process->micro_step = integer ? value->as.integer : -1;
    } else {
        if (integer && value->as.integer >= 0 && value->as.integer <= INT32_MAX) {
            if (strcmp(key, "rank") == 0)
                process->rank = (int32_t)value->as.integer;
            else if (strcmp(key, "world_size") == 0)
                process->world_size = (int32_t)value->as.integer;
        }
        bool identity = strcmp(key, "rank") == 0 || strcmp(key, "local_rank") == 0;
        tocsin_scalar scalar = identity && integer
                                   ? tocsin_scalar_of_int(observer, value->as.integer)
                                   : tocsin_scalar_of_value(observer, process, value);
        set_meta(observer, process, key, scalar);
    }
    for (size_t i = 0; i < observer->active_count; ++i)
        if (observer->active[i]->meta != NULL)
            observer->active[i]->meta(observer, process, event);
}

/* ---- the observer -------------------------------------------------------------------------- */

static bool fill_fields(tocsin_observer *observer, const tocsin_wanted *wanted)
{
    observer->filters_fields = wanted->fields != NULL;
    for (size_t i = 0; i < wanted->field_count && wanted->fields != NULL; ++i) {
        while (observer->wanted_fields.count <= wanted->fields[i])
            if (!TOCSIN_VEC_PUSH(&observer->wanted_fields, false))
                return false;
        observer->wanted_fields.items[wanted->fields[i]] = true;
    }
    return true;
}

static bool fill_set(tocsin_map *set, const uint32_t *ids, size_t count)
{
    bool done = true;
    for (size_t i = 0; i < count; ++i)
        done &= tocsin_map_put(set, ids[i], 1);
    return done;
}

/* Is any population of the relation wanted? */
static bool is_wanted(const tocsin_observer *observer, const tocsin_relation_part *part,
                      const tocsin_wanted *wanted)
{
    bool found = wanted == NULL;
    if (part == &tocsin_relation_user && observer->relations == NULL)
        return false;
    for (size_t i = 0; wanted != NULL && i < wanted->population_count; ++i) {
        uint8_t kind = tocsin_population_get_key(observer->vocabulary, wanted->populations[i]).kind;
        found |= strchr((const char *)part->kinds, kind) != NULL;
    }
    return found;
}

static void open_relations(tocsin_observer *observer, const tocsin_observer_options *options)
{
    for (size_t i = 0; i < TOCSIN_PART_COUNT && observer->status == TOCSIN_OK; ++i) {
        const tocsin_relation_part *part = tocsin_relation_parts[i];
        if (!is_wanted(observer, part, options->wanted) ||
            (options->shards > 1 &&
             !tocsin_relation_part_is_in(i, options->shard, options->shards)))
            continue;
        observer->active[observer->active_count++] = part;
        if (part->open != NULL)
            observer->own[i] = part->open(observer);
    }
}

static void name_fields(tocsin_observer *observer)
{
    const struct {
        tocsin_symbol *symbol;
        const char *text;
    } names[] = {{&observer->var_name, "var.name"},
                 {&observer->var_type, "var.type"},
                 {&observer->var_dtype, "var.dtype"},
                 {&observer->var_ndim, "var.ndim"},
                 {&observer->var_shape, "var.shape"},
                 {&observer->var_requires_grad, "var.requires_grad"},
                 {&observer->var_is_leaf, "var.is_leaf"},
                 {&observer->var_tensor_parallel, "var.tensor_parallel"},
                 {&observer->var_tied, "var.tied"},
                 {&observer->var_training, "var.training"},
                 {&observer->var_in_this_optimizer, "var.in_this_optimizer"},
                 {&observer->var_in_model, "var.in_model"},
                 {&observer->var_replicated, "var.replicated"},
                 {&observer->meta_first_micro, "meta.first_micro"},
                 {&observer->meta_rank, "meta.rank"},
                 {&observer->meta_step, "meta.step"},
                 {&observer->meta_data_parallel, "meta.data_parallel"}};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(names); ++i)
        *names[i].symbol =
            tocsin_observer_need(observer, tocsin_symbol_of(observer->vocabulary, names[i].text));
    for (unsigned truth = 0; truth < 2; ++truth) {
        tocsin_literal literal = {.kind = TOCSIN_VALUE_BOOL, .integer = truth};
        observer->truth[truth] =
            tocsin_observer_need(observer, tocsin_scalar_of(observer->vocabulary, &literal));
    }
    for (unsigned dtype = 0; dtype < TOCSIN_DTYPES_MAX; ++dtype) {
        tocsin_literal literal = {.kind = TOCSIN_VALUE_STRING,
                                  .text = tocsin_dtype_name((tocsin_dtype)dtype)};
        observer->dtypes[dtype] =
            tocsin_observer_need(observer, tocsin_scalar_of(observer->vocabulary, &literal));
    }
    tocsin_literal opaque = {.kind = TOCSIN_VALUE_STRING, .text = "an int"};
    observer->opaque_int =
        tocsin_observer_need(observer, tocsin_scalar_of(observer->vocabulary, &opaque));
    opaque.text = "a float";
    observer->opaque_float =
        tocsin_observer_need(observer, tocsin_scalar_of(observer->vocabulary, &opaque));
}

tocsin_status tocsin_observer_new(const tocsin_observer_options *options,
                                  tocsin_observer **observer, tocsin_error *error)
{
    assert(options->vocabulary != NULL && options->sink != NULL);
    tocsin_observer *made = tocsin_zalloc(1, sizeof *made);
    *observer = NULL;
    if (made == NULL)
        return tocsin_error_memory(error);
    made->vocabulary = options->vocabulary;
    made->sink = options->sink;
    made->context = options->context;
    made->relations = options->relations;
    made->contrast = options->contrast;
    made->wide = options->wide && options->wanted == NULL;
    made->filtered = options->wanted != NULL;
    made->error = error;
    if (made->filtered &&
        (!fill_set(&made->wanted_populations, options->wanted->populations,
                   options->wanted->population_count) ||
         !fill_set(&made->wanted_facts, options->wanted->facts, options->wanted->fact_count) ||
         !fill_fields(made, options->wanted)))
        tocsin_observer_fail(made, TOCSIN_E_MEMORY, "out of memory");
    name_fields(made);
    open_relations(made, options);
    tocsin_status status = made->status;
    if (status != TOCSIN_OK)
        tocsin_observer_free(made);
    else
        *observer = made;
    return status;
}

tocsin_status tocsin_observer_feed(tocsin_observer *observer, size_t process_index,
                                   const tocsin_dictionary *dictionary, const tocsin_event *event,
                                   tocsin_error *error)
{
    observer->error = error;
    tocsin_process *process = NULL;
    if (observer->status == TOCSIN_OK)
        process = process_at(observer, process_index, dictionary);
    if (process == NULL)
        return observer->status;
    switch (event->kind) {
    case TOCSIN_EVENT_ENTER:
        enter(observer, process, event);
        break;
    case TOCSIN_EVENT_EXIT:
    case TOCSIN_EVENT_RAISE:
        leave(observer, process, event);
        break;
    case TOCSIN_EVENT_STATE:
        state(observer, process, event);
        break;
    case TOCSIN_EVENT_META:
        meta(observer, process, event);
        break;
    default: /* a later version's event: it means nothing here */
        break;
    }
    return observer->status;
}

size_t tocsin_observer_laggard(const tocsin_observer *observer, const bool *more, size_t count)
{
    size_t best = count;
    int64_t best_step = 0;
    for (size_t i = 0; i < count; ++i) {
        if (!more[i])
            continue;
        int64_t step = tocsin_observer_step(observer, i);
        if (best == count || step < best_step) {
            best = i;
            best_step = step;
        }
    }
    return best;
}

int64_t tocsin_observer_step(const tocsin_observer *observer, size_t process)
{
    if (process >= observer->processes.count || observer->processes.items[process] == NULL)
        return 0;
    return observer->processes.items[process]->step;
}

tocsin_status tocsin_observer_finish(tocsin_observer *observer, tocsin_error *error)
{
    observer->error = error;
    for (size_t i = 0; i < observer->active_count && observer->status == TOCSIN_OK; ++i)
        if (observer->active[i]->finish != NULL)
            observer->active[i]->finish(observer);
    return observer->status;
}

uint64_t tocsin_observer_instances(const tocsin_observer *observer)
{
    return observer->instances;
}

void tocsin_observer_free(tocsin_observer *observer)
{
    if (observer == NULL)
        return;
    for (size_t i = 0; i < observer->processes.count; ++i)
        if (observer->processes.items[i] != NULL)
            free_process(observer->processes.items[i]);
    TOCSIN_VEC_FREE(&observer->processes);
    TOCSIN_VEC_FREE(&observer->callables);
    TOCSIN_VEC_FREE(&observer->names);
    TOCSIN_VEC_FREE(&observer->fields);
    TOCSIN_VEC_FREE(&observer->facts);
    tocsin_map_free(&observer->wanted_populations);
    tocsin_map_free(&observer->wanted_facts);
    TOCSIN_VEC_FREE(&observer->wanted_fields);
    TOCSIN_VEC_FREE(&observer->contexts);
    tocsin_map_free(&observer->callable_of);
    tocsin_map_free(&observer->names_of);
    tocsin_map_free(&observer->variety);
    for (size_t i = 0; i < TOCSIN_PART_COUNT; ++i)
        if (observer->own[i] != NULL && tocsin_relation_parts[i]->close != NULL)
            tocsin_relation_parts[i]->close(observer->own[i]);
    tocsin_free(observer);
}
