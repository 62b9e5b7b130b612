/* Consistent: replicas of a variable on two ranks, at the same point of training.
 *
 * Keyed by variable, attribute and ordinal of the optimizer.step in the step; windows as in
 * pair_window.c. While inferring, pairs of different variables show what equality depends on.
 *
 * Ranks may hold unlike things under one name. "var.replicated" says that there is evidence of
 * copies: a DistributedDataParallel over all ranks; or data that were equal before the first update
 * (and not zero) on ranks that sum up tensors between backward pass and update; or, of data, the
 * very same gradient, of elements that are not all alike, applied on both. What is marked as
 * tensor-parallel is no copy. Data: a word a variable for each of its first data and its last
 * gradient, a word a process. Another tool's hashes are no evidence: the field is absent.
 */
#include <assert.h>
#include <invariant/pair_window.h>
#include <stdlib.h>

#define REPLICAS_MAX (1u << 18) /* in one window */

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
    tocsin_add_rank(observer, process);
}

/* ---- evidence of copies -------------------------------------------------------------------- */

typedef struct consistent {
    void *windows;
    tocsin_map starts;    /* variable -> hash of its data before the first update, or UNKNOWN */
    tocsin_map gradients; /* variable -> hash of what was applied last, or UNKNOWN */
    tocsin_map sums;      /* process -> 1: has summed up tensors since its last backward pass */
} consistent;

enum { UNKNOWN = 0 };

static void *open_consistent(tocsin_observer *observer)
{
    consistent *own = tocsin_zalloc(1, sizeof *own);
    if (own == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    own->windows = tocsin_windows_open(observer);
    if (own->windows != NULL)
        return own;
    tocsin_free(own);
    return NULL;
}

static void close_consistent(void *memory)
{
    consistent *own = memory;
    tocsin_windows_close(own->windows);
    tocsin_map_free(&own->starts);
    tocsin_map_free(&own->gradients);
    tocsin_map_free(&own->sums);
    tocsin_free(own);
}

static bool wants_evidence(const tocsin_observer *observer, const tocsin_process *process)
{
    return tocsin_process_is_distributed(process) &&
           tocsin_observer_wants_field(observer, observer->var_replicated);
}

static uint64_t word_of(const tocsin_map *map, const void *key)
{
    const uint64_t *known = tocsin_map_find(map, (uint64_t)(uintptr_t)key);
    return known != NULL ? *known : UNKNOWN;
}

static void set_word(tocsin_observer *observer, tocsin_map *map, const void *key, uint64_t word)
{
    if (!tocsin_map_put(map, (uint64_t)(uintptr_t)key, word))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

static uint64_t hash_of(const tocsin_sample *sample)
{
    uint64_t hash = tocsin_hash64(&sample->digest, sizeof sample->digest, 0);
    return hash != UNKNOWN ? hash : UNKNOWN + 1;
}

/* Numbers of one size are soon the same somewhere else: zeros, the gradient of a mean. */
static bool is_varied(const tocsin_process *process, const tocsin_sample *sample,
                      const tocsin_statistics *statistics)
{
    const int64_t *sizes = NULL;
    uint32_t ndim = process->dictionary.shape(process->dictionary.producer, sample->shape, &sizes);
    double count = 1;
    for (uint32_t d = 0; sizes != NULL && d < ndim; ++d)
        count *= (double)sizes[d];
    double alike = count * statistics->absmax * statistics->absmax;
    return sample->bad_count == 0 && statistics->sum_squares > 0 &&
           statistics->sum_squares < alike * (1 - 1e-6);
}

static void state(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame,
                  const tocsin_sample *sample, const tocsin_event *event)
{
    consistent *own = observer->own[TOCSIN_PART_CONSISTENT];
    if (frame == NULL || frame->role != TOCSIN_ROLE_OPTIMIZER_STEP ||
        !wants_evidence(observer, process))
        return;
    bool digested =
        (sample->flags & (TOCSIN_STATE_DIGESTED | TOCSIN_STATE_HASHED)) == TOCSIN_STATE_DIGESTED;
    const void *variable = sample->variable;
    if (sample->attribute == TOCSIN_ATTRIBUTE_DATA &&
        tocsin_map_find(&own->starts, (uint64_t)(uintptr_t)variable) == NULL)
        set_word(observer, &own->starts, variable,
                 digested && sample->moment == TOCSIN_MOMENT_ENTER && sample->absmax > 0
                     ? hash_of(sample)
                     : UNKNOWN);
    if (sample->attribute == TOCSIN_ATTRIBUTE_GRAD && sample->moment == TOCSIN_MOMENT_ENTER)
        set_word(observer, &own->gradients, variable,
                 digested && is_varied(process, sample, &event->state.statistics) ? hash_of(sample)
                                                                                  : UNKNOWN);
}

/* Does the call sum up tensors over all ranks? Numbers (losses, norms) are not what is trained. */
static bool sums_tensors(const tocsin_observer *observer, const tocsin_process *process,
                         const tocsin_frame *frame, const tocsin_event *event)
{
    const tocsin_dictionary *dictionary = &process->dictionary;
    const char *function = tocsin_symbol_text(observer->vocabulary,
                                              observer->callables.items[frame->callables[0]].name);
    bool sums =
        strstr(function, "all_reduce") != NULL || strstr(function, "reduce_scatter") != NULL;
    bool tensor = false;
    for (uint32_t i = 0; sums && i < event->value_count; ++i) {
        const tocsin_value *value = &event->values[i];
        tensor |= value->kind == TOCSIN_VALUE_TENSOR && value->ndim > 0;
        if (value->kind != TOCSIN_VALUE_STRING)
            continue;
        const char *text = dictionary->string(dictionary->producer, value->as.text);
        if (strncmp(text, "group:", 6) == 0)
            sums = strtol(text + 6, NULL, 10) == process->world_size;
    }
    return sums && tensor;
}

static bool is_inside(const tocsin_thread *thread, uint8_t role)
{
    for (size_t i = 0; i + 1 < thread->open; ++i)
        if (thread->frames.items[i].role == role)
            return true;
    return false;
}

/* What an optimizer sums up by itself are no gradients any more: weights that are averaged now and
 * then. */
static void enter(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event)
{
    consistent *own = observer->own[TOCSIN_PART_CONSISTENT];
    if (!wants_evidence(observer, process))
        return;
    if (frame->role == TOCSIN_ROLE_BACKWARD && !is_inside(thread, TOCSIN_ROLE_BACKWARD))
        set_word(observer, &own->sums, process, 0);
    else if (frame->role == TOCSIN_ROLE_COLLECTIVE &&
             !is_inside(thread, TOCSIN_ROLE_OPTIMIZER_STEP) &&
             sums_tensors(observer, process, frame, event))
        set_word(observer, &own->sums, process, 1);
}

static void note_evidence(const tocsin_observer *observer, const tocsin_process *process,
                          const tocsin_sample *sample, tocsin_report *report)
{
    const consistent *own = observer->own[TOCSIN_PART_CONSISTENT];
    report->hashed = (sample->flags & TOCSIN_STATE_HASHED) != 0;
    report->shared = (sample->flags & TOCSIN_STATE_TENSOR_PARALLEL) == 0;
    report->data_parallel = tocsin_process_is_data_parallel(observer, process);
    report->summed = word_of(&own->sums, process) != 0;
    report->start = word_of(&own->starts, sample->variable);
    report->applied =
        sample->attribute == TOCSIN_ATTRIBUTE_DATA ? word_of(&own->gradients, sample->variable) : 0;
}

static bool are_replicated(const tocsin_report *a, const tocsin_report *b)
{
    bool start = a->start != UNKNOWN && a->start == b->start && a->summed && b->summed;
    bool applied = a->applied != UNKNOWN && a->applied == b->applied;
    return a->symbol == b->symbol && a->shape == b->shape && a->shared && b->shared &&
           ((a->data_parallel && b->data_parallel) || start || applied);
}

/* ---- pairs --------------------------------------------------------------------------------- */

static void emit_pair(tocsin_observer *observer, const tocsin_process *process,
                      const tocsin_frame *frame, const tocsin_report *first,
                      const tocsin_report *second)
{
    tocsin_instance instance = {
        .population = second->population,
        .evidence = tocsin_observer_evidence(observer, process, frame, second->name)};
    instance.evidence.other_rank = first->rank;
    if (first->symbol != second->symbol)
        instance.evidence.other = first->name;
    tocsin_pair_fields(observer, first);
    if (!first->hashed && !second->hashed) {
        tocsin_scalar replicated = observer->truth[are_replicated(first, second)];
        tocsin_observer_add_field(observer, observer->var_replicated, replicated, replicated);
    }
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
static const tocsin_report *contrasting(tocsin_window *slot, const tocsin_process *process,
                                        const tocsin_report *made)
{
    size_t count = slot->reports.count;
    if (slot->contrasts >= TOCSIN_CONTRASTS_MAX || count == 0)
        return NULL;
    size_t start = made->symbol % count; /* deterministic, and not always the first */
    for (size_t i = 0; i < count && i < 16; ++i) {
        const tocsin_report *other = &slot->reports.items[(start + i) % count];
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
    const consistent *own = observer->own[TOCSIN_PART_CONSISTENT];
    tocsin_window *slot = tocsin_window_of(own->windows, frame->step);
    if (slot == NULL || slot->reports.count >= REPLICAS_MAX)
        return;
    uint64_t key = (uint64_t)sample->variable->symbol << 16 |
                   (uint64_t)(sample->attribute == TOCSIN_ATTRIBUTE_GRAD) << 15 |
                   (frame->ordinals[1] & 0x7fff);
    tocsin_report made = {.population = population,
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
    note_evidence(observer, process, sample, &made);
    replica_fields(observer, process, frame, sample, made.shape);
    const tocsin_report *known = tocsin_window_find(slot, key);
    if (known == NULL) {
        tocsin_window_keep(observer, slot, key, &made);
        return;
    }
    tocsin_report first = *known;
    if (first.process == process || (!first.present && !made.present))
        return;
    emit_pair(observer, process, frame, &first, &made);
    const tocsin_report *other = observer->contrast ? contrasting(slot, process, &made) : NULL;
    if (other == NULL)
        return;
    ++slot->contrasts;
    replica_fields(observer, process, frame, sample, made.shape);
    emit_pair(observer, process, frame, other, &made);
}

static void leave(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event, bool completed)
{
    (void)thread;
    (void)event;
    if (!completed || frame->role != TOCSIN_ROLE_OPTIMIZER_STEP ||
        !tocsin_process_is_distributed(process))
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

/* Do clauses speak of evidence of copies? */
static bool asks_for_evidence(const tocsin_vocabulary *vocabulary, const tocsin_precondition *when)
{
    for (uint32_t i = 0; i < when->count; ++i)
        for (uint32_t c = 0; c < when->any[i].count; ++c) {
            tocsin_symbol field = when->any[i].clauses[c].field;
            if (strcmp(tocsin_symbol_text(vocabulary, field), "var.replicated") == 0)
                return true;
        }
    return false;
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    tocsin_population_key key = tocsin_population_get_key(vocabulary, invariant->population);
    bool gradient = key.moment == TOCSIN_MOMENT_ENTER;
    bool buffer = key.variable == TOCSIN_VARIABLE_BUFFER && !gradient;
    tocsin_need_state(needs, TOCSIN_ROLE_OPTIMIZER_STEP, key.moment,
                      gradient ? TOCSIN_ATTRIBUTE_GRAD : TOCSIN_ATTRIBUTE_DATA,
                      buffer ? TOCSIN_VARIABLE_BUFFER : TOCSIN_VARIABLE_PARAMETER, true);
    if (!asks_for_evidence(vocabulary, &invariant->when))
        return;
    tocsin_need_call(needs, TOCSIN_ROLE_COLLECTIVE, 0, true);
    tocsin_need_call(needs, TOCSIN_ROLE_BACKWARD, 0, false);
    if (buffer)
        return;
    tocsin_need_state(needs, TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_ENTER, TOCSIN_ATTRIBUTE_DATA,
                      TOCSIN_VARIABLE_PARAMETER, true);
    tocsin_need_state(needs, TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_ENTER, TOCSIN_ATTRIBUTE_GRAD,
                      TOCSIN_VARIABLE_PARAMETER, true);
}

static const uint8_t kinds[] = {TOCSIN_POPULATION_REPLICAS, 0};
const tocsin_relation_part tocsin_relation_consistent = {.kinds = kinds,
                                                         .open = open_consistent,
                                                         .close = close_consistent,
                                                         .enter = enter,
                                                         .leave = leave,
                                                         .state = state,
                                                         .need = need};
