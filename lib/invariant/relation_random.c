/* Random states of ranks that drop elements: equal, or different?
 *
 * Data-parallel ranks draw masks of their own; ranks of one tensor-parallel group must draw the
 * same ones where their activations are replicas. Compared is torch's generator on two ranks after
 * the same optimizer.step, in which both of them dropped elements (dropout in training mode,
 * attention dropout) and their generators moved, so that seeds that nobody uses say nothing, nor
 * does the generator of the CPU in a run on devices. COPYING_RANKS: a DistributedDataParallel over
 * all ranks lives. SHARDING_RANKS: else, parameters are marked as tensor-parallel and all
 * collectives were of all ranks. What other jobs mean by their seeds is not known. Both are
 * learned: many healthy jobs seed all their ranks alike. Data: windows as in pair_window.c, a
 * record a process. Cost: O(1) a call and a state.
 */
#include <assert.h>
#include <invariant/pair_window.h>
#include <stdlib.h>

static const char *const droppers[] = {"torch.nn.functional.dropout",
                                       "torch.nn.functional.dropout1d",
                                       "torch.nn.functional.dropout2d",
                                       "torch.nn.functional.dropout3d",
                                       "torch.nn.functional.alpha_dropout",
                                       "torch.nn.functional.feature_alpha_dropout",
                                       "torch.nn.functional.scaled_dot_product_attention"};
#define ATTENTION (TOCSIN_COUNT_OF(droppers) - 1)

typedef struct drawing { /* a process */
    bool drops;          /* since its state was read last */
    bool subgroups;      /* a collective was of some of the ranks only */
    bool read;
    tocsin_digest digest;
} drawing;

typedef struct random_states {
    void *windows;
    tocsin_population copying, sharding;
    tocsin_symbol droppers[TOCSIN_COUNT_OF(droppers)];
    tocsin_map index; /* process -> drawing + 1 */
    TOCSIN_VEC(drawing) drawings;
} random_states;

static void close_states(void *memory)
{
    random_states *own = memory;
    if (own->windows != NULL)
        tocsin_windows_close(own->windows);
    tocsin_map_free(&own->index);
    TOCSIN_VEC_FREE(&own->drawings);
    tocsin_free(own);
}

static void *open_states(tocsin_observer *observer)
{
    random_states *own = tocsin_zalloc(1, sizeof *own);
    if (own == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    own->windows = tocsin_windows_open(observer);
    for (size_t i = 0; i < TOCSIN_COUNT_OF(droppers); ++i)
        own->droppers[i] =
            tocsin_observer_need(observer, tocsin_symbol_of(observer->vocabulary, droppers[i]));
    tocsin_population_key key = {.kind = TOCSIN_POPULATION_COPYING_RANKS};
    own->copying = tocsin_observer_population(observer, &key);
    key.kind = TOCSIN_POPULATION_SHARDING_RANKS;
    own->sharding = tocsin_observer_population(observer, &key);
    return own;
}

static drawing *drawing_of(tocsin_observer *observer, const tocsin_process *process)
{
    random_states *own = observer->own[TOCSIN_PART_RANDOM];
    uint64_t *known = tocsin_map_at(&own->index, (uint64_t)(uintptr_t)process);
    if (known != NULL && *known == 0 && TOCSIN_VEC_PUSH(&own->drawings, (drawing){0}))
        *known = own->drawings.count;
    if (known != NULL && *known != 0)
        return &own->drawings.items[*known - 1];
    tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
    return NULL;
}

/* ---- what a process does ------------------------------------------------------------------- */

static bool is_zero(const tocsin_value *value)
{
    return (value->kind == TOCSIN_VALUE_FLOAT && value->as.real == 0) ||
           (value->kind == TOCSIN_VALUE_INT && value->as.integer == 0);
}

/* Does the call of a dropper drop something? What is not said is the default: dropout drops,
 * attention does not. */
static bool does_drop(const tocsin_process *process, const tocsin_event *event, bool attention)
{
    const tocsin_value *p = tocsin_event_value(process, event, attention ? "dropout_p" : "p");
    const tocsin_value *training = tocsin_event_value(process, event, "training");
    bool off = training != NULL && training->kind == TOCSIN_VALUE_BOOL && !training->as.integer;
    return p != NULL ? !is_zero(p) && !off : !attention && !off;
}

static bool is_of_some_ranks(const tocsin_process *process, const tocsin_event *event)
{
    const tocsin_dictionary *dictionary = &process->dictionary;
    for (uint32_t i = 0; i < event->value_count; ++i) {
        const tocsin_value *value = &event->values[i];
        if (value->kind != TOCSIN_VALUE_STRING)
            continue;
        const char *text = dictionary->string(dictionary->producer, value->as.text);
        if (strncmp(text, "group:", 6) == 0)
            return strtol(text + 6, NULL, 10) != process->world_size;
    }
    return false;
}

static void enter(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event)
{
    const random_states *own = observer->own[TOCSIN_PART_RANDOM];
    (void)thread;
    if (!tocsin_process_is_distributed(process))
        return;
    size_t found = TOCSIN_COUNT_OF(droppers);
    tocsin_symbol name = observer->callables.items[frame->callables[0]].name;
    for (size_t i = 0; i < TOCSIN_COUNT_OF(droppers) && frame->role == TOCSIN_ROLE_NONE; ++i)
        if (own->droppers[i] == name)
            found = i;
    bool drops = found < TOCSIN_COUNT_OF(droppers) && does_drop(process, event, found == ATTENTION);
    bool subgroup = frame->role == TOCSIN_ROLE_COLLECTIVE && is_of_some_ranks(process, event);
    drawing *now = drops || subgroup ? drawing_of(observer, process) : NULL;
    if (now == NULL)
        return;
    now->drops |= drops;
    now->subgroups |= subgroup;
}

/* ---- two of them --------------------------------------------------------------------------- */

static bool has_tensor_parallel(const tocsin_frame *frame)
{
    for (size_t i = 0; i < frame->samples.count; ++i)
        if ((frame->samples.items[i].flags & TOCSIN_STATE_TENSOR_PARALLEL) != 0)
            return true;
    return false;
}

static void compare(tocsin_observer *observer, const tocsin_process *process,
                    const tocsin_frame *frame, const tocsin_report *first,
                    const tocsin_report *second)
{
    tocsin_instance instance = {
        .population = second->population,
        .evidence = tocsin_observer_evidence(observer, process, frame, second->name)};
    instance.evidence.other_rank = first->rank;
    tocsin_pair_fields(observer, first);
    const random_states *own = observer->own[TOCSIN_PART_RANDOM];
    bool equal = memcmp(&first->digest, &second->digest, sizeof first->digest) == 0;
    bool copying = second->population == own->copying;
    tocsin_fact_key key = {.predicate = copying ? TOCSIN_PREDICATE_DIFFERS : TOCSIN_PREDICATE_SAME,
                           .name = second->symbol};
    if (equal != copying)
        tocsin_observer_add_fact(observer, tocsin_observer_fact(observer, &key));
    tocsin_observer_emit(observer, &instance);
}

static void judge(tocsin_observer *observer, tocsin_process *process, const tocsin_frame *frame,
                  const tocsin_sample *sample, const drawing *now)
{
    const random_states *own = observer->own[TOCSIN_PART_RANDOM];
    bool copying = tocsin_process_is_data_parallel(observer, process);
    bool sharding = !copying && !now->subgroups && has_tensor_parallel(frame);
    tocsin_report made = {.population = copying    ? own->copying
                                        : sharding ? own->sharding
                                                   : 0,
                          .process = process,
                          .name = sample->variable->name,
                          .symbol = sample->variable->symbol,
                          .rank = process->rank,
                          .present = true,
                          .digest = sample->digest};
    tocsin_window *slot = made.population != 0 ? tocsin_window_of(own->windows, frame->step) : NULL;
    if (slot == NULL)
        return;
    tocsin_observer_begin(observer);
    tocsin_observer_add_call_fields(observer, frame);
    tocsin_add_rank(observer, process);
    const tocsin_report *first = tocsin_window_find(slot, frame->ordinals[1]);
    if (first == NULL)
        tocsin_window_keep(observer, slot, frame->ordinals[1], &made);
    else if (first->process != process && first->population == made.population)
        compare(observer, process, frame, first, &made);
}

static void state(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame,
                  const tocsin_sample *sample, const tocsin_event *event)
{
    (void)event;
    if (sample->variable->kind != TOCSIN_VARIABLE_RNG || frame == NULL ||
        frame->role != TOCSIN_ROLE_OPTIMIZER_STEP || !tocsin_process_is_distributed(process) ||
        (sample->flags & TOCSIN_STATE_DIGESTED) == 0 ||
        strcmp(sample->variable->name, "torch") != 0)
        return;
    drawing *now = drawing_of(observer, process);
    if (now == NULL)
        return;
    bool moved = now->read && memcmp(&now->digest, &sample->digest, sizeof now->digest) != 0;
    if (moved && now->drops)
        judge(observer, process, frame, sample, now);
    now->read = true;
    now->digest = sample->digest;
    now->drops = false;
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    (void)vocabulary;
    (void)invariant;
    for (size_t i = 0; i < TOCSIN_COUNT_OF(droppers); ++i)
        tocsin_need_function(needs, droppers[i], true);
    tocsin_need_call(needs, TOCSIN_ROLE_COLLECTIVE, 0, true);
    tocsin_need_state(needs, TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_VALUE,
                      TOCSIN_VARIABLE_RNG, true);
    tocsin_need_state(needs, TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_ENTER, TOCSIN_ATTRIBUTE_GRAD,
                      TOCSIN_VARIABLE_PARAMETER, false);
}

static const uint8_t kinds[] = {TOCSIN_POPULATION_COPYING_RANKS, TOCSIN_POPULATION_SHARDING_RANKS,
                                0};
const tocsin_relation_part tocsin_relation_random = {.kinds = kinds,
                                                     .open = open_states,
                                                     .close = close_states,
                                                     .enter = enter,
                                                     .state = state,
                                                     .need = need};
