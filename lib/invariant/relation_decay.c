/* Weight decay: where an optimizer has a group for what is not decayed, that group is not empty
 * while biases and weights of normalisation layers are decayed.
 *
 * Plain optimizers decay all they hold, and which parameters are spared is a choice; but a group
 * without parameters is never meant: its members were chosen by names that none of them has. Models
 * without biases and norms leave it empty for good reason, and are not judged; nor is what is
 * frozen. Made only when asked for, at the steps at which a recorder reads the options of groups.
 * Data: what was read in open calls, at most PARAMETERS_MAX. Cost: O(parameters) at those steps.
 */
#include <invariant/relation.h>

#define PARAMETERS_MAX (1u << 20)

static const uint8_t kinds[] = {TOCSIN_POPULATION_SPARED_PARAMETER, 0};

typedef struct option { /* of a parameter, or of a group without any */
    const tocsin_process *process;
    const tocsin_variable *variable;
    bool decayed;
    bool empty;
    bool sparable; /* a trainable bias or weight of a normalisation layer */
} option;

typedef struct decay {
    tocsin_population population;
    TOCSIN_VEC(option) options; /* of open calls */
} decay;

static void *open_decay(tocsin_observer *observer)
{
    decay *own = tocsin_zalloc(1, sizeof *own);
    if (own == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    tocsin_population_key key = {.kind = TOCSIN_POPULATION_SPARED_PARAMETER};
    own->population = observer->filtered ? tocsin_observer_population(observer, &key) : 0;
    return own;
}

static void close_decay(void *memory)
{
    decay *own = memory;
    TOCSIN_VEC_FREE(&own->options);
    tocsin_free(own);
}

/* "0.norm.bias#options" is a bias; the class of the module says whether it normalises. */
static bool is_sparable(const tocsin_process *process, const tocsin_variable *variable,
                        const tocsin_event *event)
{
    static const char bias[] = "bias#options";
    const tocsin_value *module = tocsin_event_value(process, event, "module");
    size_t bytes = strlen(variable->name), tail = sizeof bias - 1;
    if (bytes >= tail && strcmp(variable->name + bytes - tail, bias) == 0 &&
        (bytes == tail || variable->name[bytes - tail - 1] == '.'))
        return true;
    return module != NULL && module->kind == TOCSIN_VALUE_STRING &&
           strstr(process->dictionary.string(process->dictionary.producer, module->as.text),
                  "Norm") != NULL;
}

static void state(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame,
                  const tocsin_sample *sample, const tocsin_event *event)
{
    decay *own = observer->own[TOCSIN_PART_DECAY];
    if (own->population == 0 || frame == NULL || frame->role != TOCSIN_ROLE_OPTIMIZER_STEP ||
        sample->attribute != TOCSIN_ATTRIBUTE_VALUE ||
        sample->variable->kind != TOCSIN_VARIABLE_OPTIMIZER_STATE)
        return;
    const tocsin_value *weight = tocsin_event_value(process, event, "weight_decay");
    if (weight == NULL || (weight->kind != TOCSIN_VALUE_FLOAT && weight->kind != TOCSIN_VALUE_INT))
        return;
    bool whole = weight->kind == TOCSIN_VALUE_INT;
    option read = {.process = process,
                   .variable = sample->variable,
                   .decayed = whole ? weight->as.integer != 0 : weight->as.real != 0,
                   .empty = tocsin_event_value(process, event, "parameters") != NULL};
    read.sparable = !read.empty && (sample->flags & TOCSIN_STATE_REQUIRES_GRAD) != 0 &&
                    is_sparable(process, sample->variable, event);
    if (own->options.count < PARAMETERS_MAX && !TOCSIN_VEC_PUSH(&own->options, read))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

static void judge(tocsin_observer *observer, const decay *own, const tocsin_process *process,
                  const tocsin_frame *frame, const option *read, bool holds)
{
    char name[256];
    size_t bytes = strcspn(read->variable->name, "#");
    if (bytes >= sizeof name)
        bytes = sizeof name - 1;
    memcpy(name, read->variable->name, bytes);
    name[bytes] = 0;
    tocsin_instance instance = {.population = own->population,
                                .evidence =
                                    tocsin_observer_evidence(observer, process, frame, name)};
    tocsin_observer_begin(observer);
    tocsin_observer_add_call_fields(observer, frame);
    if (holds)
        tocsin_observer_add_fact(
            observer, tocsin_observer_simple_fact(observer, TOCSIN_PREDICATE_NOT_DECAYED));
    tocsin_observer_emit(observer, &instance);
}

static void leave(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event, bool completed)
{
    decay *own = observer->own[TOCSIN_PART_DECAY];
    (void)thread;
    (void)event;
    if (frame->role != TOCSIN_ROLE_OPTIMIZER_STEP)
        return;
    bool decays = false, spares = false, only_empty = true;
    size_t kept = 0, count = own->options.count;
    for (size_t i = 0; i < count; ++i) {
        const option *read = &own->options.items[i];
        if (read->process != process)
            continue;
        decays |= read->decayed && !read->empty;
        spares |= !read->decayed;
        only_empty &= read->decayed || read->empty;
    }
    for (size_t i = 0; i < count; ++i) {
        const option read = own->options.items[i];
        if (read.process != process)
            own->options.items[kept++] = read;
        else if (completed && decays && spares && read.sparable && observer->status == TOCSIN_OK)
            judge(observer, own, process, frame, &read, !(read.decayed && only_empty));
    }
    own->options.count = kept;
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    (void)vocabulary;
    (void)invariant;
    tocsin_need_state(needs, TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_DATA,
                      TOCSIN_VARIABLE_OPTIMIZER_STATE, false);
}

const tocsin_relation_part tocsin_relation_decay = {.kinds = kinds,
                                                    .open = open_decay,
                                                    .close = close_decay,
                                                    .leave = leave,
                                                    .state = state,
                                                    .need = need};
