/* APISequence: between two calls of X, Y is called.
 *
 * Instances: each call of X except the first of its thread. Facts: every Y that returned after the
 * previous X was left. X and Y are roles, and by name the functions of roles that gather several
 * meanings (train() and eval() are both "mode"). Calls beyond the 4th of a step are a loop's, not a
 * step's, and are not judged.
 *
 * Of optimizer.step the previous call is that of the same optimizer. Nothing says which optimizer
 * the other calls of a step serve, so where there are several, those have no order that carries
 * over to other programs and are not judged; nor is anything of a step that runs a closure, which
 * contains what else comes before it, nor a backward pass inside another. Clearing twice, or a
 * scheduler that accelerate steps once per process, is one action repeated as long as no backward
 * pass and no update lies between: of such calls only the first is judged.
 * Cost: O(callables with an order) per call of X, O(1) per other call.
 */
#include <assert.h>
#include <invariant/relation.h>

static bool is_role_of_a_step(uint8_t role)
{
    return role == TOCSIN_ROLE_BACKWARD || role == TOCSIN_ROLE_ZERO_GRAD ||
           role == TOCSIN_ROLE_CLIP_GRAD || role == TOCSIN_ROLE_SCHEDULER_STEP ||
           role == TOCSIN_ROLE_LOSS || role == TOCSIN_ROLE_SCALER;
}

/* Has neither a backward pass nor an update returned since? */
static bool is_repeated(const tocsin_observer *observer, const tocsin_thread *thread,
                        uint64_t previous)
{
    for (size_t other = 0; other < thread->moments.count; ++other) {
        uint8_t role = observer->callables.items[other].role;
        if ((role == TOCSIN_ROLE_BACKWARD || role == TOCSIN_ROLE_OPTIMIZER_STEP) &&
            thread->moments.items[other].completed > previous)
            return false;
    }
    return true;
}

/* A closure runs inside optimizer.step; reentrant checkpointing runs a backward pass inside one. */
static bool is_inside(const tocsin_thread *thread)
{
    for (size_t i = 0; i + 1 < thread->open; ++i)
        if (thread->frames.items[i].role == TOCSIN_ROLE_OPTIMIZER_STEP ||
            thread->frames.items[i].role == TOCSIN_ROLE_BACKWARD)
            return true;
    return false;
}

uint64_t tocsin_sequence_previous(const tocsin_observer *observer, const tocsin_process *process,
                                  const tocsin_thread *thread, const tocsin_frame *frame,
                                  uint32_t callable)
{
    if (callable >= thread->moments.count)
        return 0;
    uint8_t role = frame->role;
    uint64_t previous = thread->moments.items[callable].left;
    if (role == TOCSIN_ROLE_OPTIMIZER_STEP && frame->slot >= 0)
        return thread->steps[frame->slot];
    if (is_role_of_a_step(role) && (process->unordered || is_inside(thread)))
        return 0;
    bool repeatable = role == TOCSIN_ROLE_ZERO_GRAD || role == TOCSIN_ROLE_CLIP_GRAD ||
                      role == TOCSIN_ROLE_SCHEDULER_STEP;
    return repeatable && is_repeated(observer, thread, previous) ? 0 : previous;
}

static void judge(tocsin_observer *observer, const tocsin_process *process,
                  const tocsin_thread *thread, const tocsin_frame *frame, uint32_t which,
                  uint64_t previous)
{
    uint32_t callable = frame->callables[which];
    tocsin_instance instance = {
        .population =
            observer->callables.items[callable].populations[TOCSIN_POPULATION_REPEATED_CALL],
        .ordinal = frame->ordinals[which],
        .evidence = tocsin_observer_evidence(observer, process, frame, NULL)};
    tocsin_observer_begin(observer);
    tocsin_observer_add_call_fields(observer, frame);
    for (size_t other = 0; other < thread->moments.count; ++other)
        if (other != callable && observer->callables.items[other].ordered &&
            thread->moments.items[other].completed > previous)
            tocsin_observer_add_fact(observer, observer->callables.items[other].follows);
    tocsin_observer_emit(observer, &instance);
}

static void give_population(tocsin_observer *observer, tocsin_callable *made)
{
    if (made->role != TOCSIN_ROLE_FORWARD) /* a module's call says little without its name */
        tocsin_callable_population(observer, made, TOCSIN_POPULATION_REPEATED_CALL);
}

static void enter(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event)
{
    (void)event;
    assert(frame->callable_count > 0);
    for (uint32_t i = 0; i < frame->callable_count; ++i) {
        uint32_t index = frame->callables[i];
        const tocsin_callable *callable = &observer->callables.items[index];
        if (callable->populations[TOCSIN_POPULATION_REPEATED_CALL] == 0 || !callable->ordered ||
            frame->ordinals[i] > TOCSIN_SEQUENCE_MAX)
            continue;
        uint64_t previous = tocsin_sequence_previous(observer, process, thread, frame, index);
        if (previous != 0)
            judge(observer, process, thread, frame, i, previous);
    }
}

static const uint8_t kinds[] = {TOCSIN_POPULATION_REPEATED_CALL, 0};
const tocsin_relation_part tocsin_relation_sequence = {
    .kinds = kinds, .cost = 2, .callable = give_population, .enter = enter};
