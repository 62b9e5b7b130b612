/* EventContain for every variable: what optimizer.step does to each parameter, gradient, buffer.
 *
 * Judged when optimizer.step returns, from the states read inside it. A parameter is DRIVEN, and
 * must change, only when nothing legitimate keeps it: a finite-precision fp32 or fp64 tensor, a
 * non-zero gradient, lr > 0, and lr * |grad|max above the resolution of |data|max (warm-up from
 * lr = 0, all-zero gradients and updates below half an ulp are healthy; bf16 and fp16 weights may
 * stand still for thousands of steps and are not judged). A parameter that another optimizer holds
 * is that optimizer's business.
 * Cost: O(states of the call) instances.
 */
#include <assert.h>
#include <invariant/relation.h>
#include <math.h>

typedef struct step_view { /* the optimizer.step being judged */
    tocsin_observer *observer;
    const tocsin_process *process;
    const tocsin_frame *frame;
    const tocsin_population *populations;
    bool driven; /* some parameter of this optimizer had to change, */
    bool moved;  /* and some did */
} step_view;

static tocsin_sample_fields fields_of(tocsin_population_kind kind)
{
    switch (kind) {
    case TOCSIN_POPULATION_HELD_PARAMETER:
    case TOCSIN_POPULATION_MODEL_PARAMETER:
        return TOCSIN_FIELDS_WITHOUT_OWNERS;
    case TOCSIN_POPULATION_TRAINABLE_PARAMETER:
        return TOCSIN_FIELDS_WITHOUT_PRESENCE;
    default:
        return TOCSIN_FIELDS_ALL;
    }
}

static void judge(step_view *view, tocsin_population_kind kind, const tocsin_sample *sample,
                  tocsin_predicate predicate, bool holds)
{
    tocsin_observer *observer = view->observer;
    if (view->populations[kind] == 0)
        return;
    tocsin_instance instance = {.population = view->populations[kind],
                                .evidence = tocsin_observer_evidence(
                                    observer, view->process, view->frame, sample->variable->name)};
    instance.evidence.bad_count = sample->bad_count;
    tocsin_observer_begin(observer);
    tocsin_fields_of_sample(observer, view->frame, sample, fields_of(kind));
    if (holds)
        tocsin_observer_add_fact(observer, tocsin_observer_simple_fact(observer, predicate));
    tocsin_observer_emit(observer, &instance);
}

static bool has(const tocsin_sample *sample, uint32_t flag)
{
    return (sample->flags & flag) != 0;
}

/* Are NaN and Inf counted? An imported hash comes without statistics. */
static bool is_counted(const tocsin_sample *sample)
{
    return has(sample, TOCSIN_STATE_DIGESTED) && !has(sample, TOCSIN_STATE_HASHED);
}

static bool is_floating(uint8_t dtype)
{
    return dtype == TOCSIN_DTYPE_FLOAT16 || dtype == TOCSIN_DTYPE_BFLOAT16 ||
           dtype == TOCSIN_DTYPE_FLOAT32 || dtype == TOCSIN_DTYPE_FLOAT64;
}

/* Must this update be visible in the parameter's bits? */
static bool is_driven(const tocsin_frame *frame, const tocsin_sample *gradient,
                      const tocsin_sample *data)
{
    double resolution = data->dtype == TOCSIN_DTYPE_FLOAT32   ? 0x1p-22
                        : data->dtype == TOCSIN_DTYPE_FLOAT64 ? 0x1p-51
                                                              : (double)NAN;
    double lr = isnan(gradient->lr) ? frame->lr : gradient->lr;
    if (isnan(resolution) || !has(gradient, TOCSIN_STATE_DIGESTED) || gradient->bad_count != 0)
        return false;
    if (has(gradient, TOCSIN_STATE_IN_OPTIMIZER) && !has(gradient, TOCSIN_STATE_IN_THIS_OPTIMIZER))
        return false;
    double update = lr * gradient->absmax; /* a comparison with NaN is false: not judged */
    return update > 0 && update > resolution * data->absmax_before;
}

static void judge_gradient(step_view *view, const tocsin_sample *gradient)
{
    const tocsin_variable *variable = gradient->variable;
    bool held = has(gradient, TOCSIN_STATE_IN_THIS_OPTIMIZER);
    bool trainable = has(gradient, TOCSIN_STATE_REQUIRES_GRAD);
    bool present = has(gradient, TOCSIN_STATE_PRESENT);
    bool in_model = has(gradient, TOCSIN_STATE_IN_MODEL);
    /* a tensor without a module that gets gradients (a temperature, a latent) is in use as well */
    bool used = present && !(has(gradient, TOCSIN_STATE_DIGESTED) && gradient->absmax == 0);
    if (held)
        judge(view, TOCSIN_POPULATION_HELD_PARAMETER, gradient, TOCSIN_PREDICATE_IN_MODEL,
              in_model || used);
    if (held && trainable)
        judge(view, TOCSIN_POPULATION_TRAINABLE_PARAMETER, gradient,
              TOCSIN_PREDICATE_GRADIENT_PRESENT, present);
    /* a teacher that is only asked gets no gradient, what was trained before has an old one */
    if (in_model && trainable && present && !gradient->left_over)
        judge(view, TOCSIN_POPULATION_MODEL_PARAMETER, gradient, TOCSIN_PREDICATE_IN_OPTIMIZER,
              has(gradient, TOCSIN_STATE_IN_OPTIMIZER));
    if (held && present && variable->updated && gradient->observed)
        judge(view, TOCSIN_POPULATION_RETURNING_PARAMETER, gradient,
              TOCSIN_PREDICATE_GRADIENT_CLEARED, gradient->cleared);
    if (is_counted(gradient) && is_floating(gradient->dtype))
        judge(view, TOCSIN_POPULATION_GRADIENT, gradient, TOCSIN_PREDICATE_FINITE,
              gradient->bad_count == 0);
}

static void judge_data(step_view *view, const tocsin_sample *gradient, const tocsin_sample *data)
{
    if (!has(data, TOCSIN_STATE_DIGESTED))
        return;
    bool floating = is_counted(data) && is_floating(data->dtype);
    if (data->variable->kind == TOCSIN_VARIABLE_BUFFER) {
        /* constant buffers may hold -Inf by design (attention masks) */
        if (floating && data->has_before && data->changed)
            judge(view, TOCSIN_POPULATION_BUFFER, data, TOCSIN_PREDICATE_FINITE,
                  data->bad_count == 0);
        return;
    }
    if (data->variable->kind != TOCSIN_VARIABLE_PARAMETER)
        return;
    if (floating)
        judge(view, TOCSIN_POPULATION_PARAMETER, data, TOCSIN_PREDICATE_FINITE,
              data->bad_count == 0);
    if (!data->has_before)
        return;
    if (!has(data, TOCSIN_STATE_REQUIRES_GRAD)) {
        if (has(data, TOCSIN_STATE_IN_THIS_OPTIMIZER)) /* averaged copies are written to */
            judge(view, TOCSIN_POPULATION_FROZEN_PARAMETER, data, TOCSIN_PREDICATE_DATA_STAYS,
                  !data->changed);
    } else if (gradient != NULL && !has(gradient, TOCSIN_STATE_PRESENT)) {
        judge(view, TOCSIN_POPULATION_IDLE_PARAMETER, data, TOCSIN_PREDICATE_DATA_STAYS,
              !data->changed);
    } else if (gradient != NULL && is_driven(view->frame, gradient, data)) {
        judge(view, TOCSIN_POPULATION_DRIVEN_PARAMETER, data, TOCSIN_PREDICATE_DATA_CHANGES,
              data->changed);
        if (has(gradient, TOCSIN_STATE_IN_THIS_OPTIMIZER)) {
            view->driven = true;
            view->moved |= data->changed;
        }
    }
}

static void judge_call(step_view *view)
{
    tocsin_observer *observer = view->observer;
    const tocsin_frame *frame = view->frame;
    tocsin_population population = view->populations[TOCSIN_POPULATION_EFFECTIVE_CALL];
    if (population == 0 || !view->driven)
        return;
    tocsin_instance instance = {.population = population,
                                .ordinal = frame->ordinals[frame->callable_count - 1],
                                .evidence =
                                    tocsin_observer_evidence(observer, view->process, frame, NULL)};
    tocsin_observer_begin(observer);
    tocsin_observer_add_call_fields(observer, frame);
    if (view->moved)
        tocsin_observer_add_fact(
            observer, tocsin_observer_simple_fact(observer, TOCSIN_PREDICATE_CHANGES_PARAMETER));
    tocsin_observer_emit(observer, &instance);
}

static const uint8_t kinds[] = {
    TOCSIN_POPULATION_EFFECTIVE_CALL,  TOCSIN_POPULATION_DRIVEN_PARAMETER,
    TOCSIN_POPULATION_IDLE_PARAMETER,  TOCSIN_POPULATION_FROZEN_PARAMETER,
    TOCSIN_POPULATION_HELD_PARAMETER,  TOCSIN_POPULATION_TRAINABLE_PARAMETER,
    TOCSIN_POPULATION_MODEL_PARAMETER, TOCSIN_POPULATION_RETURNING_PARAMETER,
    TOCSIN_POPULATION_PARAMETER,       TOCSIN_POPULATION_GRADIENT,
    TOCSIN_POPULATION_BUFFER,          0};

static void callable(tocsin_observer *observer, tocsin_callable *made)
{
    if (made->role == TOCSIN_ROLE_OPTIMIZER_STEP)
        for (size_t i = 0; kinds[i] != 0; ++i)
            tocsin_callable_population(observer, made, kinds[i]);
}

static void leave(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event, bool completed)
{
    (void)thread;
    (void)event;
    if (!completed || frame->role != TOCSIN_ROLE_OPTIMIZER_STEP)
        return;
    assert(frame->callable_count == 2);
    const tocsin_callable *callable = &observer->callables.items[frame->callables[1]];
    step_view view = {.observer = observer,
                      .process = process,
                      .frame = frame,
                      .populations = callable->populations};
    const tocsin_sample *samples = frame->samples.items;
    for (size_t i = 0; i < frame->samples.count; ++i) {
        const tocsin_variable *variable = samples[i].variable;
        if (variable->gradient == i + 1)
            judge_gradient(&view, &samples[i]);
        if (variable->data == i + 1)
            judge_data(&view, variable->gradient ? &samples[variable->gradient - 1] : NULL,
                       &samples[i]);
    }
    judge_call(&view);
    for (size_t i = 0; i < frame->samples.count; ++i) {
        tocsin_variable *variable = samples[i].variable;
        if (has(&samples[i], TOCSIN_STATE_IN_THIS_OPTIMIZER)) {
            variable->updated = true;
            variable->observed = variable->cleared = false;
        }
    }
}

static void need_gradient(struct tocsin_needs *needs, uint8_t role, uint8_t moment, bool digest)
{
    tocsin_need_state(needs, role, moment, TOCSIN_ATTRIBUTE_GRAD, TOCSIN_VARIABLE_PARAMETER,
                      digest);
}

static void need_data(struct tocsin_needs *needs, uint8_t variable)
{
    tocsin_need_state(needs, TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_EXIT, TOCSIN_ATTRIBUTE_DATA,
                      variable, true);
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    uint8_t kind = tocsin_population_get_key(vocabulary, invariant->population).kind;
    bool driven =
        kind == TOCSIN_POPULATION_EFFECTIVE_CALL || kind == TOCSIN_POPULATION_DRIVEN_PARAMETER;
    if (driven)
        tocsin_need_call(needs, TOCSIN_ROLE_OPTIMIZER_STEP, 0, true); /* self.lr */
    if (driven || kind == TOCSIN_POPULATION_IDLE_PARAMETER ||
        kind == TOCSIN_POPULATION_FROZEN_PARAMETER || kind == TOCSIN_POPULATION_PARAMETER)
        need_data(needs, TOCSIN_VARIABLE_PARAMETER);
    else if (kind == TOCSIN_POPULATION_BUFFER)
        need_data(needs, TOCSIN_VARIABLE_BUFFER);
    if (kind != TOCSIN_POPULATION_FROZEN_PARAMETER && kind != TOCSIN_POPULATION_PARAMETER &&
        kind != TOCSIN_POPULATION_BUFFER)
        need_gradient(needs, TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_ENTER,
                      driven || kind == TOCSIN_POPULATION_GRADIENT ||
                          kind == TOCSIN_POPULATION_MODEL_PARAMETER);
    if (kind == TOCSIN_POPULATION_RETURNING_PARAMETER || kind == TOCSIN_POPULATION_MODEL_PARAMETER)
        need_gradient(needs, TOCSIN_ROLE_BACKWARD, TOCSIN_MOMENT_ENTER, true);
    if (kind == TOCSIN_POPULATION_RETURNING_PARAMETER)
        need_gradient(needs, TOCSIN_ROLE_ZERO_GRAD, TOCSIN_MOMENT_EXIT, true);
}

const tocsin_relation_part tocsin_relation_forall = {
    .kinds = kinds, .cost = 4, .callable = callable, .leave = leave, .need = need};
