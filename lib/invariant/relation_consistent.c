/* Consistent and the cross-rank part of APIArg: processes compared at the same point of training.
 *
 * A window holds what processes reported for one step: per replica (variable, attribute, ordinal of
 * the optimizer.step in the step) and per collective (ordinal in the step) the first report, with
 * which every later one is compared: W - 1 pairs for W ranks, no quadratic enumeration, no clock.
 * A report is final when it arrives, so a process that stalls holds up nobody.
 * Data: WINDOWS_MAX windows, step modulo WINDOWS_MAX; a newer step takes its slot from an older
 * one, a report older than its slot's step is too late and not compared. Memory is bounded by
 * WINDOWS_MAX * variables.
 */
#include <assert.h>
#include <invariant/relation.h>

#define WINDOWS_MAX     64
#define REPLICAS_MAX    (1u << 18) /* in one window */
#define COLLECTIVES_MAX (1u << 12)

typedef struct report { /* the first process's */
    tocsin_population population;
    const tocsin_process *process;
    const char *name; /* variable or function */
    tocsin_symbol symbol;
    int32_t rank;
    bool present;
    tocsin_digest digest;
    tocsin_scalar shape;
    uint8_t dtype;
    tocsin_scalar operation; /* collectives: reduce op or 0 */
    uint32_t field_count;
    const tocsin_field *fields; /* in the window's arena */
} report;

typedef struct window {
    int64_t step; /* 0: unused */
    uint32_t contrasts;
    tocsin_map index; /* replica or collective -> report index + 1 */
    TOCSIN_VEC(report) reports;
    tocsin_arena arena;
} window;

typedef struct windows {
    window slots[WINDOWS_MAX];
} windows;

static void *open_windows(tocsin_observer *observer)
{
    windows *made = tocsin_zalloc(1, sizeof *made);
    if (made == NULL)
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
    return made;
}

static void close_windows(void *own)
{
    windows *all = own;
    for (size_t i = 0; i < WINDOWS_MAX; ++i) {
        tocsin_map_free(&all->slots[i].index);
        TOCSIN_VEC_FREE(&all->slots[i].reports);
        tocsin_arena_free(&all->slots[i].arena);
    }
    tocsin_free(all);
}

/* The window of a step; NULL when it has passed. */
static window *window_of(windows *all, int64_t step)
{
    assert(step > 0);
    window *slot = &all->slots[step % WINDOWS_MAX];
    if (slot->step > step)
        return NULL;
    if (slot->step < step) {
        tocsin_map_clear(&slot->index);
        slot->reports.count = 0;
        slot->contrasts = 0;
        tocsin_arena_reset(&slot->arena);
        slot->step = step;
    }
    return slot;
}

/* Move the scratch fields into the report. */
static bool keep_fields(tocsin_observer *observer, window *slot, report *made)
{
    size_t count = tocsin_fields_sort(observer->fields.items, observer->fields.count);
    tocsin_field *fields = TOCSIN_ARENA_ARRAY(&slot->arena, tocsin_field, count);
    if (fields == NULL)
        return false;
    memcpy(fields, observer->fields.items, count * sizeof *fields);
    made->fields = fields;
    made->field_count = (uint32_t)count;
    return true;
}

static void keep_report(tocsin_observer *observer, window *slot, uint64_t key, report *made)
{
    if (!keep_fields(observer, slot, made) || !TOCSIN_VEC_PUSH(&slot->reports, *made) ||
        !tocsin_map_put(&slot->index, key, slot->reports.count))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

/* Turn the scratch fields (half b) into fields of the pair with `first` (half a). */
static void pair_fields(tocsin_observer *observer, const report *first)
{
    size_t count = tocsin_fields_sort(observer->fields.items, observer->fields.count);
    observer->fields.count = count;
    size_t a = 0;
    for (size_t b = 0; b < count; ++b) {
        tocsin_field *field = &observer->fields.items[b];
        while (a < first->field_count && first->fields[a].name < field->name)
            ++a;
        bool both = a < first->field_count && first->fields[a].name == field->name;
        field->b = field->a;
        field->a = both ? first->fields[a].a : 0;
    }
    for (a = 0; a < first->field_count; ++a) {
        size_t b = 0;
        while (b < count && observer->fields.items[b].name != first->fields[a].name)
            ++b;
        if (b == count)
            tocsin_observer_add_field(observer, first->fields[a].name, first->fields[a].a, 0);
    }
}

/* What a precondition may say about one half of a pair beyond the call: its rank, and with
 * set_meta, whatever tells replicas from shards. */
static void add_rank(tocsin_observer *observer, const tocsin_process *process)
{
    tocsin_scalar rank = tocsin_scalar_of_int(observer, process->rank);
    tocsin_observer_add_field(observer, observer->meta_rank, rank, rank);
}

static bool is_distributed(const tocsin_process *process)
{
    return process->rank >= 0 && process->world_size > 1;
}

/* ---- replicas ------------------------------------------------------------------------------ */

static void replica_fields(tocsin_observer *observer, const tocsin_process *process,
                           const tocsin_frame *frame, const tocsin_sample *sample,
                           tocsin_scalar shape)
{
    const tocsin_variable *variable = sample->variable;
    tocsin_observer_begin(observer);
    tocsin_fields_of_sample(observer, frame, sample, TOCSIN_FIELDS_ALL);
    tocsin_observer_add_field(observer, observer->var_name, variable->name_scalar,
                              variable->name_scalar);
    tocsin_observer_add_field(observer, observer->var_shape, shape, shape);
    tocsin_state_add_attributes(observer, variable);
    add_rank(observer, process);
}

static void emit_pair(tocsin_observer *observer, const tocsin_process *process,
                      const tocsin_frame *frame, const report *first, const report *second,
                      tocsin_population population)
{
    tocsin_instance instance = {
        .population = population,
        .evidence = tocsin_observer_evidence(observer, process, frame, second->name)};
    instance.evidence.other_rank = first->rank;
    if (first->symbol != second->symbol)
        instance.evidence.other = first->name;
    pair_fields(observer, first);
    bool equal = first->present == second->present &&
                 memcmp(&first->digest, &second->digest, sizeof first->digest) == 0;
    if (equal)
        tocsin_observer_add_fact(observer,
                                 tocsin_observer_simple_fact(observer, TOCSIN_PREDICATE_EQUAL));
    tocsin_observer_emit(observer, &instance);
}

static tocsin_population replica_population(tocsin_observer *observer,
                                            const tocsin_process *process,
                                            const tocsin_sample *sample)
{
    const tocsin_dictionary *dictionary = &process->dictionary;
    tocsin_population_key key = {.kind = TOCSIN_POPULATION_REPLICAS,
                                 .role = TOCSIN_ROLE_OPTIMIZER_STEP,
                                 .variable = sample->variable->kind,
                                 .moment = sample->moment};
    key.name = tocsin_observer_need(
        observer,
        tocsin_symbol_of(observer->vocabulary,
                         dictionary->string(dictionary->producer, sample->attribute_name)));
    return observer->status == TOCSIN_OK ? tocsin_observer_population(observer, &key) : 0;
}

/* A different variable of equal shape from another process, to show what equality depends on. */
static const report *contrasting(window *slot, const tocsin_process *process, const report *made)
{
    size_t count = slot->reports.count;
    if (slot->contrasts >= TOCSIN_CONTRASTS_MAX || count == 0)
        return NULL;
    size_t start = made->symbol % count; /* deterministic, and not always the first */
    for (size_t i = 0; i < count && i < 16; ++i) {
        const report *other = &slot->reports.items[(start + i) % count];
        if (other->population == made->population && other->symbol != made->symbol &&
            other->shape == made->shape && other->process != process &&
            other->dtype == made->dtype && other->present &&
            memcmp(&other->digest, &made->digest, sizeof made->digest) != 0)
            return other;
    }
    return NULL;
}

static void compare_replica(tocsin_observer *observer, tocsin_process *process,
                            const tocsin_frame *frame, const tocsin_sample *sample,
                            tocsin_population population)
{
    window *slot = window_of(observer->own[TOCSIN_PART_CONSISTENT], frame->step);
    if (slot == NULL || slot->reports.count >= REPLICAS_MAX)
        return;
    uint64_t key = (uint64_t)sample->variable->symbol << 16 |
                   (uint64_t)(sample->attribute == TOCSIN_ATTRIBUTE_GRAD) << 15 |
                   (frame->ordinals[1] & 0x7fff);
    report made = {.population = population,
                   .process = process,
                   .name = sample->variable->name,
                   .symbol = sample->variable->symbol,
                   .rank = process->rank,
                   .present = (sample->flags & TOCSIN_STATE_PRESENT) != 0,
                   .digest = sample->digest,
                   .dtype = sample->dtype,
                   .shape = tocsin_scalar_of_shape(observer, process, sample->shape)};
    if (!made.present)
        made.digest = (tocsin_digest){0};
    replica_fields(observer, process, frame, sample, made.shape);
    uint64_t *known = tocsin_map_find(&slot->index, key);
    if (known == NULL) {
        keep_report(observer, slot, key, &made);
        return;
    }
    report first = slot->reports.items[*known - 1];
    if (first.process == process || (!first.present && !made.present))
        return;
    emit_pair(observer, process, frame, &first, &made, population);
    const report *other = observer->contrast ? contrasting(slot, process, &made) : NULL;
    if (other == NULL)
        return;
    ++slot->contrasts;
    replica_fields(observer, process, frame, sample, made.shape);
    emit_pair(observer, process, frame, other, &made, population);
}

static void leave(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event, bool completed)
{
    (void)thread;
    (void)event;
    if (!completed || frame->role != TOCSIN_ROLE_OPTIMIZER_STEP || !is_distributed(process))
        return;
    for (size_t i = 0; i < frame->samples.count && observer->status == TOCSIN_OK; ++i) {
        const tocsin_sample *sample = &frame->samples.items[i];
        bool present = (sample->flags & TOCSIN_STATE_PRESENT) != 0;
        /* a step that runs a closure reads gradients after each of its passes: the last counts */
        bool final = sample->variable->gradient == i + 1 || sample->variable->data == i + 1;
        if (!final || (present && (sample->flags & TOCSIN_STATE_DIGESTED) == 0))
            continue;
        tocsin_population population = replica_population(observer, process, sample);
        if (population != 0)
            compare_replica(observer, process, frame, sample, population);
    }
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    tocsin_population_key key = tocsin_population_get_key(vocabulary, invariant->population);
    bool gradient = key.moment == TOCSIN_MOMENT_ENTER;
    tocsin_need_state(needs, TOCSIN_ROLE_OPTIMIZER_STEP, key.moment,
                      gradient ? TOCSIN_ATTRIBUTE_GRAD : TOCSIN_ATTRIBUTE_DATA,
                      key.variable == TOCSIN_VARIABLE_BUFFER && !gradient
                          ? TOCSIN_VARIABLE_BUFFER
                          : TOCSIN_VARIABLE_PARAMETER,
                      true);
}

static const uint8_t kinds[] = {TOCSIN_POPULATION_REPLICAS, 0};
const tocsin_relation_part tocsin_relation_consistent = {
    .kinds = kinds, .open = open_windows, .close = close_windows, .leave = leave, .need = need};

/* ---- collectives --------------------------------------------------------------------------- */

static void same(tocsin_observer *observer, const char *what, bool equal)
{
    if (!equal)
        return;
    tocsin_fact_key key = {.predicate = TOCSIN_PREDICATE_SAME};
    key.name = tocsin_observer_need(observer, tocsin_symbol_of(observer->vocabulary, what));
    if (observer->status == TOCSIN_OK)
        tocsin_observer_add_fact(observer, tocsin_observer_fact(observer, &key));
}

static report collective_report(tocsin_observer *observer, tocsin_process *process,
                                const tocsin_frame *frame, const tocsin_event *event)
{
    tocsin_symbol function = observer->callables.items[frame->callables[0]].name;
    report made = {.process = process,
                   .name = tocsin_symbol_text(observer->vocabulary, function),
                   .symbol = function,
                   .rank = process->rank,
                   .present = true};
    bool tensor = false;
    for (uint32_t i = 0; i < event->value_count; ++i) {
        const tocsin_value *value = &event->values[i];
        if (value->kind == TOCSIN_VALUE_TENSOR && !tensor) {
            tensor = true;
            made.shape = tocsin_scalar_of_shape(observer, process, value->as.shape);
            made.dtype = value->dtype;
        } else if (value->kind == TOCSIN_VALUE_STRING &&
                   strcmp(process->dictionary.string(process->dictionary.producer, value->name),
                          "op") == 0) {
            made.operation = tocsin_scalar_of_string(observer, process, value->as.text);
        }
    }
    return made;
}

static bool is_outermost(const tocsin_thread *thread)
{
    for (size_t i = 0; i + 1 < thread->open; ++i)
        if (thread->frames.items[i].role == TOCSIN_ROLE_COLLECTIVE)
            return false;
    return true;
}

static void enter(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event)
{
    if (frame->role != TOCSIN_ROLE_COLLECTIVE || !is_outermost(thread))
        return;
    tocsin_population_key population_key = {.kind = TOCSIN_POPULATION_COLLECTIVES};
    tocsin_population population = tocsin_observer_population(observer, &population_key);
    if (process->collective_step != frame->step) {
        process->collective_step = frame->step;
        process->collectives = 0;
    }
    uint32_t ordinal = ++process->collectives;
    if (population == 0 || !is_distributed(process) || ordinal > COLLECTIVES_MAX)
        return;
    window *slot = window_of(observer->own[TOCSIN_PART_COLLECTIVE], frame->step);
    if (slot == NULL)
        return;
    report made = collective_report(observer, process, frame, event);
    made.population = population;
    tocsin_observer_begin(observer);
    tocsin_observer_add_call_fields(observer, frame);
    add_rank(observer, process);
    uint64_t key = UINT64_C(1) << 63 | ordinal; /* symbols are below 2^22: no replica's key */
    uint64_t *known = tocsin_map_find(&slot->index, key);
    if (known == NULL) {
        keep_report(observer, slot, key, &made);
        return;
    }
    report first = slot->reports.items[*known - 1];
    if (first.process == process)
        return;
    tocsin_instance instance = {.population = population,
                                .ordinal = ordinal,
                                .evidence =
                                    tocsin_observer_evidence(observer, process, frame, made.name)};
    instance.evidence.other_rank = first.rank;
    if (first.symbol != made.symbol)
        instance.evidence.other = first.name;
    pair_fields(observer, &first);
    same(observer, "function", first.symbol == made.symbol);
    same(observer, "shape", first.shape == made.shape);
    same(observer, "dtype", first.dtype == made.dtype);
    same(observer, "op", first.operation == made.operation);
    tocsin_observer_emit(observer, &instance);
}

static void need_collectives(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                             struct tocsin_needs *needs)
{
    (void)vocabulary;
    (void)invariant;
    tocsin_need_call(needs, TOCSIN_ROLE_COLLECTIVE, 0, true);
}

static const uint8_t collective_kinds[] = {TOCSIN_POPULATION_COLLECTIVES, 0};
const tocsin_relation_part tocsin_relation_collective = {.kinds = collective_kinds,
                                                         .open = open_windows,
                                                         .close = close_windows,
                                                         .enter = enter,
                                                         .need = need_collectives};
