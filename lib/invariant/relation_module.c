/* Modules and their attributes: a numbering of all modules overwrites nothing, and a train() of
 * one's own is called before the first update.
 *
 * Attributes change for good reasons: counters, schedules, caches. What nobody means is this: who
 * numbers the modules of a model (an attribute new to at least two of them, each given another
 * value, as one does for book-keeping) overwrites with it an attribute of that name that a module
 * had. A schedule that is set on all modules gives them one value. Made only when asked for.
 * Whether a class that overrides train() relies on being called is the program's: inference learns
 * it. An attribute "__class__" says what a module is, and with "trained" that its class overrides
 * train(), and whether it ran.
 * Data: the last value of each attribute, and what the open optimizer.step showed of them, at most
 * CHANGES_MAX. Cost: O(1) a state; changes of one step are compared by name.
 */
#include <invariant/relation.h>
#include <stdlib.h>

#define CHANGES_MAX 4096u

static const uint8_t kinds[] = {TOCSIN_POPULATION_CHANGED_ATTRIBUTE,
                                TOCSIN_POPULATION_TRAINING_METHOD, 0};

typedef struct change { /* of an attribute, in an open call */
    const tocsin_process *process;
    const tocsin_variable *variable;
    uint64_t value;
    bool added; /* its module did not have it */
} change;

typedef struct method { /* train() of a class of the user */
    const tocsin_process *process;
    const char *class_name;
    bool called;
} method;

typedef struct module {
    tocsin_population changed, method;
    tocsin_map values; /* tocsin_variable * -> hash of its value */
    TOCSIN_VEC(change) changes;
    TOCSIN_VEC(method) methods;
} module;

static void *open_module(tocsin_observer *observer)
{
    module *own = tocsin_zalloc(1, sizeof *own);
    if (own == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    tocsin_population_key changed = {.kind = TOCSIN_POPULATION_CHANGED_ATTRIBUTE};
    tocsin_population_key called = {.kind = TOCSIN_POPULATION_TRAINING_METHOD};
    own->changed = observer->filtered ? tocsin_observer_population(observer, &changed) : 0;
    own->method = tocsin_observer_population(observer, &called);
    return own;
}

static void close_module(void *memory)
{
    module *own = memory;
    tocsin_map_free(&own->values);
    TOCSIN_VEC_FREE(&own->changes);
    TOCSIN_VEC_FREE(&own->methods);
    tocsin_free(own);
}

/* The last part of "layers.0.id". */
static const char *attribute_name(const tocsin_variable *variable)
{
    const char *dot = strrchr(variable->name, '.');
    return dot == NULL ? variable->name : dot + 1;
}

/* Values that number or name something; 0: others. */
static uint64_t label_of(const tocsin_value *value)
{
    if (value->kind == TOCSIN_VALUE_INT)
        return tocsin_mix64((uint64_t)value->as.integer) | 1;
    return value->kind == TOCSIN_VALUE_STRING ? tocsin_mix64(value->as.text) & ~UINT64_C(1) : 0;
}

static void note_value(tocsin_observer *observer, module *own, const tocsin_process *process,
                       const tocsin_sample *sample, const tocsin_event *event)
{
    const tocsin_value *value = tocsin_event_value(process, event, "value");
    uint64_t label = value != NULL ? label_of(value) : 0;
    if (own->changed == 0 || label == 0)
        return;
    uint64_t *before = tocsin_map_at(&own->values, (uint64_t)(uintptr_t)sample->variable);
    if (before == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return;
    }
    change seen = {process, sample->variable, label,
                   tocsin_event_value(process, event, "added") != NULL};
    bool overwritten = *before != 0 && *before != label;
    *before = label;
    if ((overwritten || seen.added) && own->changes.count < CHANGES_MAX &&
        !TOCSIN_VEC_PUSH(&own->changes, seen))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

static void state(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame,
                  const tocsin_sample *sample, const tocsin_event *event)
{
    module *own = observer->own[TOCSIN_PART_MODULE];
    if (frame == NULL || frame->role != TOCSIN_ROLE_OPTIMIZER_STEP ||
        sample->attribute != TOCSIN_ATTRIBUTE_VALUE ||
        sample->variable->kind != TOCSIN_VARIABLE_ATTRIBUTE)
        return;
    if (strcmp(attribute_name(sample->variable), "__class__") != 0) {
        note_value(observer, own, process, sample, event);
        return;
    }
    const tocsin_value *trained = tocsin_event_value(process, event, "trained");
    const tocsin_value *class = tocsin_event_value(process, event, "class");
    if (own->method == 0 || trained == NULL || trained->kind != TOCSIN_VALUE_BOOL ||
        class == NULL || class->kind != TOCSIN_VALUE_STRING)
        return;
    const tocsin_dictionary *dictionary = &process->dictionary;
    method seen = {process, dictionary->string(dictionary->producer, class->as.text),
                   trained->as.integer != 0};
    if (own->methods.count < CHANGES_MAX && !TOCSIN_VEC_PUSH(&own->methods, seen))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

static void emit(tocsin_observer *observer, const tocsin_process *process,
                 const tocsin_frame *frame, tocsin_population population, const char *entity,
                 tocsin_predicate predicate, bool holds)
{
    tocsin_instance instance = {.population = population,
                                .evidence =
                                    tocsin_observer_evidence(observer, process, frame, entity)};
    tocsin_observer_begin(observer);
    tocsin_observer_add_call_fields(observer, frame);
    if (holds)
        tocsin_observer_add_fact(observer, tocsin_observer_simple_fact(observer, predicate));
    tocsin_observer_emit(observer, &instance);
}

static int compare_changes(const void *a, const void *b)
{
    const change *x = a, *y = b;
    int order = (x->process > y->process) - (x->process < y->process);
    if (order == 0)
        order = strcmp(attribute_name(x->variable), attribute_name(y->variable));
    return order != 0 ? order : (x->value > y->value) - (x->value < y->value);
}

/* Changes of one attribute name, ordered by value: is it a numbering? */
static bool is_numbering(const change *changes, size_t count)
{
    size_t added = 0;
    for (size_t i = 0; i < count; ++i) {
        added += changes[i].added;
        if (i > 0 && changes[i].value == changes[i - 1].value)
            return false;
    }
    return added >= 2;
}

static void judge_changes(tocsin_observer *observer, module *own, const tocsin_process *process,
                          const tocsin_frame *frame, bool completed)
{
    change *changes = own->changes.items;
    size_t count = own->changes.count, kept = 0;
    if (count > 1)
        qsort(changes, count, sizeof *changes, compare_changes);
    for (size_t i = 0, next; i < count; i = next) {
        const char *name = attribute_name(changes[i].variable);
        for (next = i + 1; next < count; ++next)
            if (changes[next].process != changes[i].process ||
                strcmp(attribute_name(changes[next].variable), name) != 0)
                break;
        bool numbering = is_numbering(&changes[i], next - i);
        for (size_t k = i; k < next; ++k)
            if (changes[k].process != process)
                changes[kept++] = changes[k];
            else if (completed && !changes[k].added)
                emit(observer, process, frame, own->changed, changes[k].variable->name,
                     TOCSIN_PREDICATE_KEPT_APART, !numbering);
    }
    own->changes.count = kept;
}

static void judge_methods(tocsin_observer *observer, module *own, const tocsin_process *process,
                          const tocsin_frame *frame, bool completed)
{
    size_t kept = 0;
    for (size_t i = 0; i < own->methods.count; ++i) {
        const method seen = own->methods.items[i];
        if (seen.process != process)
            own->methods.items[kept++] = seen;
        else if (completed)
            emit(observer, process, frame, own->method, seen.class_name,
                 TOCSIN_PREDICATE_CALLED_FIRST, seen.called);
    }
    own->methods.count = kept;
}

static void leave(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event, bool completed)
{
    module *own = observer->own[TOCSIN_PART_MODULE];
    (void)thread;
    (void)event;
    if (frame->role != TOCSIN_ROLE_OPTIMIZER_STEP)
        return;
    judge_methods(observer, own, process, frame, completed);
    judge_changes(observer, own, process, frame, completed);
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    tocsin_need_state(needs, TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_VALUE,
                      TOCSIN_VARIABLE_ATTRIBUTE, false);
    if (tocsin_population_get_key(vocabulary, invariant->population).kind ==
        TOCSIN_POPULATION_TRAINING_METHOD)
        tocsin_need_call(needs, TOCSIN_ROLE_MODE, 0, false);
}

const tocsin_relation_part tocsin_relation_module = {.kinds = kinds,
                                                     .open = open_module,
                                                     .close = close_module,
                                                     .leave = leave,
                                                     .state = state,
                                                     .need = need};
