/* Scaled gradients: they are unscaled before they are clipped.
 *
 * Judged when a GradScaler unscales, by itself inside its step, or because the script asks it to:
 * was there a clipping since the last backward pass that no unscaling preceded? A scaler that is
 * switched off unscales nothing. A limit that is not small against the scale is meant for scaled
 * gradients. Nothing says whose gradients are clipped, so an unscaling since the last backward pass
 * or step excuses every clipping that follows it; a process where an optimizer has stepped without
 * the scaler is not judged, and none is before its scaler's first update, by when that has shown.
 * Made only when asked for: there is nothing to infer. Data: a few words a process. Cost: O(open
 * calls) per call of a scaler, an optimizer or a clipping.
 */
#include <invariant/relation.h>
#include <math.h>

#define SCALE_USUAL   65536.0 /* PyTorch's first one, where the scale is not known (on a GPU) */
#define LIMIT_PORTION 0.01    /* of the scale: limits above are meant for scaled gradients */

static const uint8_t kinds[] = {TOCSIN_POPULATION_UNSCALING, 0};

typedef struct scaled_process {
    bool unscaled;  /* since the last backward pass or step of the scaler, on request */
    bool clipped;   /* since then, and not unscaled before */
    bool settled;   /* its scaler has been updated */
    bool mixed;     /* an optimizer stepped without a scaler */
    double scale;   /* 0: not known */
    tocsin_id site; /* of the clipping */
} scaled_process;

typedef struct scaling {
    tocsin_population population;
    tocsin_map processes; /* tocsin_process * -> scaled_process * */
} scaling;

static void *open_scaling(tocsin_observer *observer)
{
    scaling *own = tocsin_zalloc(1, sizeof *own);
    if (own == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    tocsin_population_key key = {.kind = TOCSIN_POPULATION_UNSCALING};
    own->population = observer->filtered ? tocsin_observer_population(observer, &key) : 0;
    return own;
}

static void close_scaling(void *memory)
{
    scaling *own = memory;
    tocsin_process_memories_free(&own->processes);
    tocsin_free(own);
}

static scaled_process *process_of(tocsin_observer *observer, const tocsin_process *process)
{
    scaling *own = observer->own[TOCSIN_PART_SCALING];
    return tocsin_process_memory(observer, &own->processes, process, sizeof(scaled_process));
}

/* "step" of "torch.amp.GradScaler.step". */
static bool is_method(const tocsin_observer *observer, const tocsin_frame *frame, const char *name)
{
    const char *text = tocsin_symbol_text(observer->vocabulary,
                                          observer->callables.items[frame->callables[0]].name);
    const char *last = strrchr(text, '.');
    return last != NULL && strcmp(last + 1, name) == 0;
}

/* The number that gradients are clipped to; NaN: not known. */
static double limit_of(const tocsin_process *process, const tocsin_event *event)
{
    const tocsin_dictionary *dictionary = &process->dictionary;
    for (uint32_t i = 0; i < event->value_count; ++i) {
        const tocsin_value *value = &event->values[i];
        const char *name = dictionary->string(dictionary->producer, value->name);
        if (strcmp(name, "max_norm") != 0 && strcmp(name, "clip_value") != 0 &&
            strcmp(name, "arg1") != 0)
            continue;
        if (value->kind == TOCSIN_VALUE_FLOAT)
            return value->as.real;
        if (value->kind == TOCSIN_VALUE_INT)
            return (double)value->as.integer;
    }
    return (double)NAN;
}

/* What can be seen of the clipped tensors: is none a parameter? The gradient of an input may be
 * clipped to its direction whatever its scale. */
static bool spares_parameters(const tocsin_event *event)
{
    bool tensors = false;
    for (uint32_t i = 0; i < event->value_count; ++i) {
        const tocsin_value *value = &event->values[i];
        tensors |= value->kind == TOCSIN_VALUE_TENSOR;
        if (value->kind == TOCSIN_VALUE_TENSOR && (value->flags & TOCSIN_VALUE_IS_PARAMETER) != 0)
            return false;
    }
    return tensors;
}

static void judge(tocsin_observer *observer, const tocsin_process *process,
                  const tocsin_frame *frame, const scaled_process *state)
{
    scaling *own = observer->own[TOCSIN_PART_SCALING];
    const tocsin_dictionary *dictionary = &process->dictionary;
    tocsin_instance instance = {.population = own->population,
                                .evidence =
                                    tocsin_observer_evidence(observer, process, frame, NULL)};
    if (state->clipped && state->site != 0)
        instance.evidence.file =
            dictionary->site(dictionary->producer, state->site, &instance.evidence.line,
                             &instance.evidence.function);
    tocsin_observer_begin(observer);
    if (!state->clipped)
        tocsin_observer_add_fact(
            observer, tocsin_observer_simple_fact(observer, TOCSIN_PREDICATE_BEFORE_CLIPPING));
    tocsin_observer_emit(observer, &instance);
}

static void enter(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event)
{
    const scaling *own = observer->own[TOCSIN_PART_SCALING];
    bool scaler = frame->role == TOCSIN_ROLE_SCALER;
    bool step = frame->role == TOCSIN_ROLE_OPTIMIZER_STEP;
    bool clip = frame->role == TOCSIN_ROLE_CLIP_GRAD;
    if (own->population == 0 || !(scaler || step || clip))
        return;
    scaled_process *state = process_of(observer, process);
    if (state == NULL)
        return;
    bool inside = tocsin_thread_is_inside(thread, TOCSIN_ROLE_SCALER);
    if (step) {
        state->mixed |= !inside;
    } else if (clip && !state->unscaled && !tocsin_thread_is_inside(thread, frame->role)) {
        double scale = state->scale > 0 ? state->scale : SCALE_USUAL;
        if (limit_of(process, event) < scale * LIMIT_PORTION && !spares_parameters(event)) {
            state->clipped = true;
            state->site = frame->site;
        }
    } else if (scaler && is_method(observer, frame, "unscale_")) {
        if (state->settled && !state->mixed)
            judge(observer, process, frame, state);
        state->unscaled |= !inside;
    }
}

static void leave(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event, bool completed)
{
    const scaling *own = observer->own[TOCSIN_PART_SCALING];
    bool backward = frame->role == TOCSIN_ROLE_BACKWARD;
    (void)thread;
    (void)event;
    if (own->population == 0 || !(backward || frame->role == TOCSIN_ROLE_SCALER))
        return;
    bool update = !backward && is_method(observer, frame, "update");
    if (!backward && !update && !is_method(observer, frame, "step"))
        return;
    scaled_process *state = process_of(observer, process);
    if (state == NULL)
        return;
    state->unscaled = state->clipped = false;
    state->settled |= update && completed;
}

static void meta(tocsin_observer *observer, tocsin_process *process, const tocsin_event *event)
{
    const tocsin_dictionary *dictionary = &process->dictionary;
    if (event->value_count == 0 || event->values[0].kind != TOCSIN_VALUE_FLOAT ||
        strcmp(dictionary->string(dictionary->producer, event->key), "scaler.scale") != 0)
        return;
    scaled_process *state = process_of(observer, process);
    if (state != NULL)
        state->scale = event->values[0].as.real;
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    (void)vocabulary;
    (void)invariant;
    tocsin_need_call(needs, TOCSIN_ROLE_SCALER, 0, false);
    tocsin_need_call(needs, TOCSIN_ROLE_BACKWARD, 0, false);
    tocsin_need_call(needs, TOCSIN_ROLE_OPTIMIZER_STEP, 0, false);
    tocsin_need_call(needs, TOCSIN_ROLE_CLIP_GRAD, 0, true); /* the limit */
}

const tocsin_relation_part tocsin_relation_scaling = {.kinds = kinds,
                                                      .open = open_scaling,
                                                      .close = close_scaling,
                                                      .enter = enter,
                                                      .leave = leave,
                                                      .meta = meta,
                                                      .need = need};
