/* APISequence: between two calls of X, Y is called.
 *
 * Instances: each call of X except the first of its thread. Facts: every Y that returned after the
 * previous X was left. X and Y are roles, and by name the functions of roles that gather several
 * meanings (train() and eval() are both "mode"). Calls beyond the 4th of a step are a loop's, not a
 * step's, and are not judged.
 * Cost: O(callables with an order) per call of X, O(1) per other call.
 */
#include <assert.h>
#include <invariant/relation.h>

static void judge(tocsin_observer *observer, const tocsin_process *process,
                  const tocsin_thread *thread, const tocsin_frame *frame, uint32_t which)
{
    uint32_t callable = frame->callables[which];
    uint64_t previous = thread->moments.items[callable].left;
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

void tocsin_sequence_enter(tocsin_observer *observer, tocsin_process *process,
                           tocsin_thread *thread, tocsin_frame *frame)
{
    assert(frame->callable_count > 0);
    for (uint32_t i = 0; i < frame->callable_count; ++i) {
        uint32_t index = frame->callables[i];
        const tocsin_callable *callable = &observer->callables.items[index];
        if (callable->populations[TOCSIN_POPULATION_REPEATED_CALL] == 0 || !callable->ordered ||
            frame->ordinals[i] > TOCSIN_SEQUENCE_MAX)
            continue;
        if (index < thread->moments.count && thread->moments.items[index].left != 0)
            judge(observer, process, thread, frame, i);
    }
}
