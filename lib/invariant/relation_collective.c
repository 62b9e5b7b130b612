/* The cross-rank part of APIArg: the n-th collective of a group in a step, on every two ranks.
 *
 * Keyed by the group (its ranks) and the ordinal of the call among the outermost collectives of
 * that group in the step; windows as in pair_window.c. Judged when the call starts, before it can
 * hang. A rank outside the group does nothing in the call and does not count. Messages between two
 * ranks (send, recv) are no collectives: what one sends, the other receives. Cost: O(1) look-ups a
 * call.
 */
#include <assert.h>
#include <invariant/pair_window.h>
#include <stdlib.h>

#define COLLECTIVES_MAX (1u << 12) /* of a group in a step */
#define GROUP_BYTES_MAX 255        /* a longer text was cut: which ranks it names is not known */

static void same(tocsin_observer *observer, const char *what, bool equal)
{
    if (!equal)
        return;
    tocsin_fact_key key = {.predicate = TOCSIN_PREDICATE_SAME};
    key.name = tocsin_observer_need(observer, tocsin_symbol_of(observer->vocabulary, what));
    if (observer->status == TOCSIN_OK)
        tocsin_observer_add_fact(observer, tocsin_observer_fact(observer, &key));
}

static void callable(tocsin_observer *observer, tocsin_callable *made)
{
    (void)observer;
    made->interesting |= made->role == TOCSIN_ROLE_COLLECTIVE;
}

static const char *function_of(const tocsin_observer *observer, const tocsin_frame *frame)
{
    tocsin_symbol name = observer->callables.items[frame->callables[0]].name;
    return tocsin_symbol_text(observer->vocabulary, name);
}

static bool is_message(const char *function)
{
    static const char *const names[] = {"send",
                                        "recv",
                                        "isend",
                                        "irecv",
                                        "batch_isend_irecv",
                                        "send_object_list",
                                        "recv_object_list"};
    const char *dot = strrchr(function, '.');
    for (size_t i = 0; i < TOCSIN_COUNT_OF(names); ++i)
        if (strcmp(dot != NULL ? dot + 1 : function, names[i]) == 0)
            return true;
    return false;
}

/* Does "0,2,5" or "0+2" (first + stride, `count` of them) name the rank? */
static bool names_rank(const char *ranks, long count, long rank)
{
    char *end;
    long first = strtol(ranks, &end, 10);
    if (*end == '+') {
        long stride = strtol(end + 1, NULL, 10);
        return stride > 0 && rank >= first && (rank - first) % stride == 0 &&
               (rank - first) / stride < count;
    }
    while (first != rank && *end == ',')
        first = strtol(end + 1, &end, 10);
    return first == rank;
}

/* The group as a number that is the same on all its ranks: 0 for all ranks of the run. False: the
 * call does not concern this rank, or nobody else. */
static bool find_group(tocsin_observer *observer, tocsin_process *process,
                       const tocsin_event *event, tocsin_scalar *group)
{
    const tocsin_dictionary *dictionary = &process->dictionary;
    *group = 0;
    for (uint32_t i = 0; i < event->value_count; ++i) {
        const tocsin_value *value = &event->values[i];
        if (value->kind != TOCSIN_VALUE_STRING)
            continue;
        const char *text = dictionary->string(dictionary->producer, value->as.text);
        if (strncmp(text, "group:", 6) != 0)
            continue;
        char *ranks;
        long count = strtol(text + 6, &ranks, 10);
        if (count == process->world_size)
            return true;
        if (count < 2 || *ranks != ':' || strlen(text) >= GROUP_BYTES_MAX ||
            !names_rank(ranks + 1, count, process->rank))
            return false;
        *group = tocsin_scalar_of_string(observer, process, value->as.text);
        return observer->status == TOCSIN_OK;
    }
    return true;
}

static tocsin_report make_report(tocsin_observer *observer, tocsin_process *process,
                                 const tocsin_frame *frame, const tocsin_event *event)
{
    tocsin_report made = {.process = process,
                          .name = function_of(observer, frame),
                          .symbol = observer->callables.items[frame->callables[0]].name,
                          .rank = process->rank,
                          .present = true};
    bool tensor = false, lists = false;
    for (uint32_t i = 0; i < event->value_count; ++i) {
        const tocsin_value *value = &event->values[i];
        lists |= value->kind == TOCSIN_VALUE_SEQUENCE;
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
    if (lists && strstr(made.name, "all_to_all") != NULL)
        made.shape = 0; /* each rank says how much goes to whom: sizes may differ */
    return made;
}

static bool is_outermost(const tocsin_thread *thread)
{
    for (size_t i = 0; i + 1 < thread->open; ++i)
        if (thread->frames.items[i].role == TOCSIN_ROLE_COLLECTIVE)
            return false;
    return true;
}

/* The ordinal of this call in its step and group, from 1; 0 after a failure. */
static uint64_t count_call(tocsin_observer *observer, tocsin_process *process,
                           const tocsin_frame *frame, tocsin_scalar group)
{
    if (process->collective_step != frame->step) {
        process->collective_step = frame->step;
        tocsin_map_clear(&process->collectives);
    }
    uint64_t *count = tocsin_map_at(&process->collectives, (uint64_t)group + 1);
    if (count == NULL)
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
    return count != NULL ? ++*count : 0;
}

static void compare(tocsin_observer *observer, const tocsin_process *process,
                    const tocsin_frame *frame, const tocsin_report *first,
                    const tocsin_report *made, uint32_t ordinal)
{
    tocsin_instance instance = {.population = made->population,
                                .ordinal = ordinal,
                                .evidence =
                                    tocsin_observer_evidence(observer, process, frame, made->name)};
    instance.evidence.other_rank = first->rank;
    if (first->symbol != made->symbol)
        instance.evidence.other = first->name;
    tocsin_pair_fields(observer, first);
    same(observer, "function", first->symbol == made->symbol);
    same(observer, "shape", first->shape == made->shape || first->shape == 0 || made->shape == 0);
    same(observer, "dtype", first->dtype == made->dtype);
    same(observer, "op", first->operation == made->operation);
    tocsin_observer_emit(observer, &instance);
}

static void enter(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event)
{
    tocsin_scalar group;
    if (frame->role != TOCSIN_ROLE_COLLECTIVE || !tocsin_process_is_distributed(process) ||
        !is_outermost(thread) || is_message(function_of(observer, frame)) ||
        !find_group(observer, process, event, &group))
        return;
    tocsin_population_key population_key = {.kind = TOCSIN_POPULATION_COLLECTIVES};
    tocsin_population population = tocsin_observer_population(observer, &population_key);
    uint64_t ordinal = count_call(observer, process, frame, group);
    if (population == 0 || ordinal == 0 || ordinal >= COLLECTIVES_MAX)
        return;
    tocsin_window *slot = tocsin_window_of(observer->own[TOCSIN_PART_COLLECTIVE], frame->step);
    if (slot == NULL)
        return;
    tocsin_report made = make_report(observer, process, frame, event);
    made.population = population;
    tocsin_observer_begin(observer);
    tocsin_observer_add_call_fields(observer, frame);
    tocsin_add_rank(observer, process);
    uint64_t key = (uint64_t)group << 32 | ordinal;
    const tocsin_report *first = tocsin_window_find(slot, key);
    if (first == NULL)
        tocsin_window_keep(observer, slot, key, &made);
    else if (first->process != process)
        compare(observer, process, frame, first, &made, (uint32_t)ordinal);
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    (void)vocabulary;
    (void)invariant;
    tocsin_need_call(needs, TOCSIN_ROLE_COLLECTIVE, 0, true);
}

static const uint8_t kinds[] = {TOCSIN_POPULATION_COLLECTIVES, 0};
const tocsin_relation_part tocsin_relation_collective = {.kinds = kinds,
                                                         .open = tocsin_windows_open,
                                                         .close = tocsin_windows_close,
                                                         .callable = callable,
                                                         .enter = enter,
                                                         .need = need};
