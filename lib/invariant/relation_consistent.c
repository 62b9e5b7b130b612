/* Consistent: replicas of a variable on two ranks, at the same point of training.
 *
 * Keyed by variable, attribute and ordinal of the optimizer.step in the step; windows as in
 * pair_window.c. While inferring, pairs of different variables show what equality depends on.
 */
#include <assert.h>
#include <invariant/pair_window.h>

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

static void emit_pair(tocsin_observer *observer, const tocsin_process *process,
                      const tocsin_frame *frame, const tocsin_report *first,
                      const tocsin_report *second, tocsin_population population)
{
    tocsin_instance instance = {
        .population = population,
        .evidence = tocsin_observer_evidence(observer, process, frame, second->name)};
    instance.evidence.other_rank = first->rank;
    if (first->symbol != second->symbol)
        instance.evidence.other = first->name;
    tocsin_pair_fields(observer, first);
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
    tocsin_window *slot = tocsin_window_of(observer->own[TOCSIN_PART_CONSISTENT], frame->step);
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
    replica_fields(observer, process, frame, sample, made.shape);
    const tocsin_report *known = tocsin_window_find(slot, key);
    if (known == NULL) {
        tocsin_window_keep(observer, slot, key, &made);
        return;
    }
    tocsin_report first = *known;
    if (first.process == process || (!first.present && !made.present))
        return;
    emit_pair(observer, process, frame, &first, &made, population);
    const tocsin_report *other = observer->contrast ? contrasting(slot, process, &made) : NULL;
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
const tocsin_relation_part tocsin_relation_consistent = {.kinds = kinds,
                                                         .open = tocsin_windows_open,
                                                         .close = tocsin_windows_close,
                                                         .leave = leave,
                                                         .need = need};
