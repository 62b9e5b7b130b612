/* Resuming: the first update after a model was loaded from a file that has an optimizer, too.
 *
 * To train on with the weights alone is fine-tuning and healthy, to do so where a run is to be
 * resumed starts the schedule and the moments over. Nothing in the run tells which was meant, so
 * this is learned from healthy runs of the same kind: whether the optimizer is loaded as well, and
 * whether the first update has the learning rate that stands in the file.
 * Data: a record a process. Cost: O(1) a state or call.
 */
#include <assert.h>
#include <invariant/relation.h>
#include <math.h>

static const uint8_t kinds[] = {TOCSIN_POPULATION_RESUMED_UPDATE, 0};

typedef struct resumption { /* of a process, since its last update */
    bool file;              /* one with an optimizer was read, */
    double lr;              /* the least of its groups; NaN: unknown */
    bool model, optimizer;  /* and these loaded something */
} resumption;

typedef struct resumed {
    tocsin_population population;
    tocsin_map index; /* process -> items + 1 */
    TOCSIN_VEC(resumption) items;
} resumed;

static void *open_resumed(tocsin_observer *observer)
{
    resumed *own = tocsin_zalloc(1, sizeof *own);
    if (own == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    tocsin_population_key key = {.kind = TOCSIN_POPULATION_RESUMED_UPDATE};
    own->population = tocsin_observer_population(observer, &key);
    return own;
}

static void close_resumed(void *memory)
{
    resumed *own = memory;
    tocsin_map_free(&own->index);
    TOCSIN_VEC_FREE(&own->items);
    tocsin_free(own);
}

static resumption *resumption_of(tocsin_observer *observer, const tocsin_process *process)
{
    resumed *own = observer->own[TOCSIN_PART_RESUMED];
    uint64_t *known = tocsin_map_at(&own->index, (uint64_t)(uintptr_t)process);
    if (known != NULL && *known == 0 &&
        TOCSIN_VEC_PUSH(&own->items, (resumption){.lr = (double)NAN}))
        *known = own->items.count;
    if (known == NULL || *known == 0) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    return &own->items.items[*known - 1];
}

/* The options of a group of an optimizer in a file. */
static void state(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame,
                  const tocsin_sample *sample, const tocsin_event *event)
{
    const resumed *own = observer->own[TOCSIN_PART_RESUMED];
    const char *mark = strrchr(sample->variable->name, '#');
    if (own->population == 0 || frame == NULL || sample->attribute != TOCSIN_ATTRIBUTE_LOADED ||
        sample->variable->kind != TOCSIN_VARIABLE_OPTIMIZER_STATE || mark == NULL ||
        strcmp(mark, "#options") != 0 || !tocsin_frame_is_of(observer, frame, "torch.load"))
        return;
    resumption *of = resumption_of(observer, process);
    if (of == NULL)
        return;
    of->file = true;
    const tocsin_value *lr = tocsin_event_value(process, event, "lr");
    if (lr != NULL && lr->kind == TOCSIN_VALUE_FLOAT && !(of->lr <= lr->as.real))
        of->lr = lr->as.real;
}

static void leave(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event, bool completed)
{
    const resumed *own = observer->own[TOCSIN_PART_RESUMED];
    (void)thread;
    (void)event;
    if (own->population == 0 || frame->role != TOCSIN_ROLE_CHECKPOINT || !completed)
        return;
    bool model = tocsin_frame_is_of(observer, frame, "torch.nn.Module.load_state_dict");
    bool optimizer = tocsin_frame_is_of(observer, frame, "torch.optim.Optimizer.load_state_dict");
    resumption *of = model || optimizer ? resumption_of(observer, process) : NULL;
    if (of == NULL)
        return;
    of->model |= model;
    of->optimizer |= optimizer;
}

static bool goes_on(double lr, double saved)
{
    return isnan(lr) || isnan(saved) || fabs(lr - saved) <= 1e-6 * fabs(saved);
}

static void enter(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event)
{
    const resumed *own = observer->own[TOCSIN_PART_RESUMED];
    (void)thread;
    (void)event;
    if (own->population == 0 || frame->role != TOCSIN_ROLE_OPTIMIZER_STEP)
        return;
    resumption *of = resumption_of(observer, process);
    if (of == NULL)
        return;
    resumption made = *of;
    *of = (resumption){.lr = (double)NAN};
    if (!made.file || !made.model)
        return;
    tocsin_instance instance = {.population = own->population,
                                .evidence =
                                    tocsin_observer_evidence(observer, process, frame, NULL)};
    tocsin_observer_begin(observer);
    tocsin_observer_add_call_fields(observer, frame);
    if (made.optimizer)
        tocsin_observer_add_fact(
            observer, tocsin_observer_simple_fact(observer, TOCSIN_PREDICATE_OPTIMIZER_LOADED));
    if (goes_on(frame->lr, made.lr))
        tocsin_observer_add_fact(
            observer, tocsin_observer_simple_fact(observer, TOCSIN_PREDICATE_RATE_GOES_ON));
    tocsin_observer_emit(observer, &instance);
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    (void)vocabulary;
    (void)invariant;
    tocsin_need_state(needs, TOCSIN_ROLE_CHECKPOINT, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_LOADED,
                      TOCSIN_VARIABLE_PARAMETER, false);
    tocsin_need_call(needs, TOCSIN_ROLE_OPTIMIZER_STEP, 0, true);
}

const tocsin_relation_part tocsin_relation_resumed = {.kinds = kinds,
                                                      .open = open_resumed,
                                                      .close = close_resumed,
                                                      .enter = enter,
                                                      .leave = leave,
                                                      .state = state,
                                                      .need = need};
