/* EventContain, existential: every call of F calls G; every optimizer.step does something.
 *
 * Population CALL (by function and by role): facts "calls G" for functions called directly inside
 * and for roles at any depth (deeper functions follow by composition), same thread, returned.
 * Population SAMPLED_CALL (optimizer.step with gradients read at its start): facts "finds a
 * gradient" and "holds a trainable parameter". EFFECTIVE_CALL belongs to relation_forall.c, which
 * knows which parameters had to change.
 * Cost: O(functions / 64) per call.
 */
#include <assert.h>
#include <invariant/relation.h>

static void add_callees(tocsin_observer *observer, const tocsin_frame *frame)
{
    for (size_t word = 0; word < frame->inside.count; ++word)
        for (uint64_t bits = frame->inside.items[word]; bits != 0; bits &= bits - 1) {
            size_t callable = word * 64 + (size_t)__builtin_ctzll(bits);
            assert(callable < observer->callables.count);
            tocsin_observer_add_fact(observer, observer->callables.items[callable].calls);
        }
    for (uint32_t roles = frame->roles_inside; roles != 0; roles &= roles - 1) {
        uint32_t callable = observer->role_callables[__builtin_ctz(roles)];
        assert(callable != 0);
        tocsin_observer_add_fact(observer, observer->callables.items[callable - 1].calls);
    }
}

static void judge_sampled(tocsin_observer *observer, const tocsin_process *process,
                          const tocsin_frame *frame, tocsin_population population)
{
    bool sampled = false, gradient = false, trainable = false;
    for (size_t i = 0; i < frame->samples.count; ++i) {
        const tocsin_sample *sample = &frame->samples.items[i];
        if (sample->attribute != TOCSIN_ATTRIBUTE_GRAD || sample->moment != TOCSIN_MOMENT_ENTER ||
            (sample->flags & TOCSIN_STATE_HASHED) !=
                0) /* another tool's: who holds it is unknown */
            continue;
        sampled = true;
        if ((sample->flags & TOCSIN_STATE_IN_THIS_OPTIMIZER) == 0)
            continue;
        gradient |= (sample->flags & TOCSIN_STATE_PRESENT) != 0;
        trainable |= (sample->flags & TOCSIN_STATE_REQUIRES_GRAD) != 0;
    }
    if (!sampled)
        return;
    tocsin_instance instance = {.population = population,
                                .ordinal = frame->ordinals[frame->callable_count - 1],
                                .evidence =
                                    tocsin_observer_evidence(observer, process, frame, NULL)};
    tocsin_observer_begin(observer);
    tocsin_observer_add_call_fields(observer, frame);
    if (gradient)
        tocsin_observer_add_fact(
            observer, tocsin_observer_simple_fact(observer, TOCSIN_PREDICATE_FINDS_GRADIENT));
    if (trainable)
        tocsin_observer_add_fact(
            observer, tocsin_observer_simple_fact(observer, TOCSIN_PREDICATE_HOLDS_TRAINABLE));
    tocsin_observer_emit(observer, &instance);
}

static void callable(tocsin_observer *observer, tocsin_callable *made)
{
    /* a module's call says little without its name */
    if (made->role != TOCSIN_ROLE_FORWARD && made->role != TOCSIN_ROLE_USER &&
        made->role != TOCSIN_ROLE_INITIALIZE)
        tocsin_callable_population(observer, made, TOCSIN_POPULATION_CALL);
    if (made->role == TOCSIN_ROLE_OPTIMIZER_STEP)
        tocsin_callable_population(observer, made, TOCSIN_POPULATION_SAMPLED_CALL);
}

static void leave(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event, bool completed)
{
    (void)thread;
    (void)event;
    if (!completed)
        return;
    for (uint32_t i = 0; i < frame->callable_count; ++i) {
        const tocsin_population *populations =
            observer->callables.items[frame->callables[i]].populations;
        /* what a GradScaler calls depends on the gradients: a step is skipped when they overflow */
        if (populations[TOCSIN_POPULATION_CALL] != 0 && frame->role != TOCSIN_ROLE_SCALER) {
            tocsin_instance instance = {
                .population = populations[TOCSIN_POPULATION_CALL],
                .ordinal = frame->ordinals[i],
                .evidence = tocsin_observer_evidence(observer, process, frame, NULL)};
            tocsin_observer_begin(observer);
            tocsin_observer_add_call_fields(observer, frame);
            add_callees(observer, frame);
            tocsin_observer_emit(observer, &instance);
        }
        if (populations[TOCSIN_POPULATION_SAMPLED_CALL] != 0)
            judge_sampled(observer, process, frame, populations[TOCSIN_POPULATION_SAMPLED_CALL]);
    }
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    if (tocsin_population_get_key(vocabulary, invariant->population).kind ==
        TOCSIN_POPULATION_SAMPLED_CALL)
        tocsin_need_state(needs, TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_ENTER,
                          TOCSIN_ATTRIBUTE_GRAD, TOCSIN_VARIABLE_PARAMETER, false);
}

static const uint8_t kinds[] = {TOCSIN_POPULATION_CALL, TOCSIN_POPULATION_SAMPLED_CALL, 0};
const tocsin_relation_part tocsin_relation_contain = {
    .kinds = kinds, .callable = callable, .leave = leave, .need = need};
