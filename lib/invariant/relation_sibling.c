/* Siblings: a parameter of repeated layers is initialised like the same one of the others.
 *
 * Parameters are siblings if their names differ in numbers only ("layers.3.mlp.weight"), their
 * shape and dtype are the same, and the modules that have them come of one class below
 * torch.nn.Module. Of four or more, all but one with elements of unequal size, the one whose
 * elements are all equal and not zero keeps a placeholder: what initialises the others left it out.
 * Healthy, and not judged: zeros (a residual branch that begins as nothing), the first and the last
 * (which are special in many models), normalisation layers (a new one among pretrained ones),
 * layers that stand in a list of different ones ("0.weight", "2.weight" of torch's own modules),
 * and single elements. Judged once a process, at its first update, from what was read before it.
 * Made only when asked for. Data: an entry a parameter until then. Cost: O(parameters log
 * parameters).
 */
#include <ctype.h>
#include <invariant/relation.h>
#include <math.h>
#include <stdlib.h>

#define PARAMETERS_MAX (1u << 20)
#define NAME_BYTES     512
#define FAMILY_MIN     4

static const uint8_t kinds[] = {TOCSIN_POPULATION_SIBLING_PARAMETER, 0};

typedef struct initial { /* a parameter before the first update */
    const tocsin_process *process;
    const tocsin_variable *variable;
    uint64_t siblings; /* hash of what they share; 0: it can have none */
    size_t order;
    bool placeholder; /* all its elements are equal, and not zero */
    bool zero;
} initial;

typedef struct sibling {
    tocsin_population population;
    tocsin_map families; /* process and name of a module -> hash of its family, torch's odd */
    tocsin_map judged;   /* tocsin_process * -> 1 */
    TOCSIN_VEC(initial) parameters;
} sibling;

static void *open_sibling(tocsin_observer *observer)
{
    sibling *own = tocsin_zalloc(1, sizeof *own);
    if (own == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    tocsin_population_key key = {.kind = TOCSIN_POPULATION_SIBLING_PARAMETER};
    own->population = observer->filtered ? tocsin_observer_population(observer, &key) : 0;
    return own;
}

static void close_sibling(void *memory)
{
    sibling *own = memory;
    tocsin_map_free(&own->families);
    tocsin_map_free(&own->judged);
    TOCSIN_VEC_FREE(&own->parameters);
    tocsin_free(own);
}

/* ---- what was read before the first update -------------------------------------------------- */

/* Of the module that has the variable (a parameter, or the module's "__class__"). */
static uint64_t owner_key(const tocsin_process *process, const tocsin_variable *variable)
{
    const char *dot = strrchr(variable->name, '.');
    size_t bytes = dot == NULL ? 0 : (size_t)(dot - variable->name);
    return tocsin_hash64(variable->name, bytes, (uint64_t)(uintptr_t)process);
}

/* "__class__" of a module: its family. Normalisation layers have none. */
static void note_family(tocsin_observer *observer, sibling *own, const tocsin_process *process,
                        const tocsin_sample *sample, const tocsin_event *event)
{
    static const char suffix[] = "__class__";
    size_t bytes = strlen(sample->variable->name), tail = sizeof suffix - 1;
    if (bytes < tail || strcmp(sample->variable->name + bytes - tail, suffix) != 0 ||
        event->value_count == 0 || event->values[0].kind != TOCSIN_VALUE_STRING)
        return;
    const char *family =
        process->dictionary.string(process->dictionary.producer, event->values[0].as.text);
    uint64_t hash = tocsin_hash64(family, strlen(family), 1) & ~UINT64_C(1);
    if (strstr(family, "Norm") != NULL)
        return;
    if (!tocsin_map_put(&own->families, owner_key(process, sample->variable),
                        hash | (strncmp(family, "torch.", 6) == 0)))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

/* The name with each of its numbers replaced; 0: it has none. */
static uint64_t pattern_of(const char *name)
{
    char text[NAME_BYTES];
    size_t bytes = 0;
    bool repeated = false;
    for (const char *at = name; *at != 0;) {
        size_t part = strcspn(at, "."), digits = strspn(at, "0123456789");
        bool number = part > 0 && digits >= part;
        if (bytes + part + 2 > sizeof text)
            return 0;
        memcpy(text + bytes, number ? "*" : at, number ? 1 : part);
        bytes += number ? 1 : part;
        text[bytes++] = '.';
        repeated |= number;
        at += part + (at[part] == '.');
    }
    return repeated ? tocsin_hash64(text, bytes, 2) : 0;
}

/* "0.weight": is the module that has it itself in a list? */
static bool owner_is_numbered(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot != NULL && dot > name && isdigit((unsigned char)dot[-1]) != 0;
}

static void note_parameter(tocsin_observer *observer, sibling *own, const tocsin_process *process,
                           const tocsin_sample *sample, const tocsin_event *event)
{
    const tocsin_statistics *statistics = &event->state.statistics;
    const int64_t *sizes;
    uint32_t ndim =
        process->dictionary.shape(process->dictionary.producer, event->state.shape, &sizes);
    double count = 1;
    for (uint32_t i = 0; i < ndim; ++i)
        count *= (double)sizes[i];
    uint64_t pattern = pattern_of(sample->variable->name);
    if (count < 2 || pattern == 0 || sample->bad_count != 0 ||
        own->parameters.count >= PARAMETERS_MAX)
        return;
    double squares = count * statistics->absmax * statistics->absmax;
    initial read = {.process = process,
                    .variable = sample->variable,
                    .siblings = pattern,
                    .order = own->parameters.count,
                    .zero = statistics->absmax == 0};
    read.placeholder = !read.zero && fabs(statistics->sum_squares - squares) <= 1e-9 * squares;
    read.siblings ^= tocsin_hash64(sizes, ndim * sizeof *sizes, sample->dtype);
    if (!TOCSIN_VEC_PUSH(&own->parameters, read))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

static void state(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame,
                  const tocsin_sample *sample, const tocsin_event *event)
{
    sibling *own = observer->own[TOCSIN_PART_SIBLING];
    const uint32_t read = TOCSIN_STATE_DIGESTED | TOCSIN_STATE_HASHED;
    if (own->population == 0 || frame == NULL || frame->role != TOCSIN_ROLE_OPTIMIZER_STEP ||
        tocsin_map_find(&own->judged, (uint64_t)(uintptr_t)process) != NULL)
        return;
    if (sample->variable->kind == TOCSIN_VARIABLE_ATTRIBUTE &&
        sample->attribute == TOCSIN_ATTRIBUTE_VALUE)
        note_family(observer, own, process, sample, event);
    else if (sample->variable->kind == TOCSIN_VARIABLE_PARAMETER &&
             sample->attribute == TOCSIN_ATTRIBUTE_DATA && sample->moment == TOCSIN_MOMENT_ENTER &&
             (sample->flags & read) == TOCSIN_STATE_DIGESTED)
        note_parameter(observer, own, process, sample, event);
}

/* ---- judging --------------------------------------------------------------------------------- */

static int compare_parameters(const void *a, const void *b)
{
    const initial *x = a, *y = b;
    if (x->siblings != y->siblings)
        return x->siblings < y->siblings ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

static void emit(tocsin_observer *observer, const sibling *own, const tocsin_process *process,
                 const tocsin_frame *frame, const initial *one, bool holds)
{
    tocsin_instance instance = {
        .population = own->population,
        .evidence = tocsin_observer_evidence(observer, process, frame, one->variable->name)};
    tocsin_observer_begin(observer);
    tocsin_observer_add_call_fields(observer, frame);
    if (holds)
        tocsin_observer_add_fact(
            observer, tocsin_observer_simple_fact(observer, TOCSIN_PREDICATE_AS_SIBLINGS));
    tocsin_observer_emit(observer, &instance);
}

static void judge(tocsin_observer *observer, const sibling *own, const tocsin_process *process,
                  const tocsin_frame *frame, const initial *siblings, size_t count)
{
    size_t placeholders = 0, zeros = 0, odd = 0;
    for (size_t i = 0; i < count; ++i) {
        placeholders += siblings[i].placeholder;
        zeros += siblings[i].zero;
        odd = siblings[i].placeholder ? i : odd;
    }
    bool skipped = placeholders == 1 && zeros == 0 && odd != 0 && odd != count - 1;
    for (size_t i = 0; i < count; ++i)
        emit(observer, own, process, frame, &siblings[i], !(skipped && i == odd));
}

/* The process's own parameters with their families, sorted into siblings, at the front. */
static size_t gather(sibling *own, const tocsin_process *process)
{
    size_t count = 0;
    for (size_t i = 0; i < own->parameters.count; ++i) {
        initial *one = &own->parameters.items[i];
        if (one->process != process)
            continue;
        const uint64_t *family = tocsin_map_find(&own->families, owner_key(process, one->variable));
        bool judged =
            family != NULL && ((*family & 1) == 0 || !owner_is_numbered(one->variable->name));
        one->siblings = judged ? (one->siblings ^ *family) | 1 : 0;
        initial moved = *one;
        *one = own->parameters.items[count];
        own->parameters.items[count++] = moved;
    }
    if (count > 1)
        qsort(own->parameters.items, count, sizeof(initial), compare_parameters);
    return count;
}

static void leave(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event, bool completed)
{
    sibling *own = observer->own[TOCSIN_PART_SIBLING];
    (void)thread;
    (void)event;
    if (own->population == 0 || frame->role != TOCSIN_ROLE_OPTIMIZER_STEP ||
        tocsin_map_find(&own->judged, (uint64_t)(uintptr_t)process) != NULL)
        return;
    size_t count = gather(own, process);
    const initial *all = own->parameters.items;
    for (size_t i = 0, next; completed && i < count; i = next) {
        for (next = i + 1; next < count && all[next].siblings == all[i].siblings;)
            ++next;
        if (all[i].siblings != 0 && next - i >= FAMILY_MIN)
            judge(observer, own, process, frame, &all[i], next - i);
    }
    for (size_t i = count; i < own->parameters.count; ++i)
        own->parameters.items[i - count] = own->parameters.items[i];
    own->parameters.count -= count;
    if (completed && !tocsin_map_put(&own->judged, (uint64_t)(uintptr_t)process, 1))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    (void)vocabulary;
    (void)invariant;
    tocsin_need_state(needs, TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_DATA,
                      TOCSIN_VARIABLE_PARAMETER, true); /* the first is read before, too */
    tocsin_need_state(needs, TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_VALUE,
                      TOCSIN_VARIABLE_ATTRIBUTE, false);
}

const tocsin_relation_part tocsin_relation_sibling = {.kinds = kinds,
                                                      .open = open_sibling,
                                                      .close = close_sibling,
                                                      .leave = leave,
                                                      .state = state,
                                                      .need = need};
