/* EventContain, existential: every call of F calls G; every optimizer.step does something.
 *
 * Population CALL (by function and by role): facts "calls G" for functions called directly inside
 * and for roles at any depth (deeper functions follow by composition), same thread, returned; when
 * asked for or learning is wide also "calls G with arg.K = V": callee_arguments.c.
 * Population SAMPLED_CALL by function, when somebody asks for it or learning is wide: calls during
 * which a variable was read, in any thread; facts "changes A from X": two readings of an attribute
 * of some variable, one after the other, differed in this way, and the later one fell into the
 * call. Population SAMPLED_CALL by role (optimizer.step with gradients read at its start): facts
 * "finds a gradient" and "holds a trainable parameter". EFFECTIVE_CALL belongs to
 * relation_forall.c, which knows which parameters had to change. Cost: O(functions / 64) per call.
 */
#include <assert.h>
#include <invariant/callee_arguments.h>
#include <invariant/relation.h>
#include <stdio.h>

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

static void judge_changes(tocsin_observer *observer, const tocsin_process *process,
                          const tocsin_frame *frame, tocsin_population population)
{
    if (!frame->reads)
        return;
    tocsin_instance instance = {.population = population,
                                .ordinal = frame->ordinals[0],
                                .evidence =
                                    tocsin_observer_evidence(observer, process, frame, NULL)};
    tocsin_observer_begin(observer);
    tocsin_observer_add_call_fields(observer, frame);
    for (size_t i = 0; i < frame->changes.count; ++i)
        tocsin_observer_add_fact(observer, frame->changes.items[i]);
    tocsin_observer_emit(observer, &instance);
}

static void *open_callees(tocsin_observer *observer)
{
    return tocsin_callee_arguments_new(observer);
}

static void close_callees(void *own)
{
    tocsin_callee_arguments_free(own);
}

static void callable(tocsin_observer *observer, tocsin_callable *made)
{
    if (observer->own[TOCSIN_PART_CONTAIN] != NULL)
        tocsin_callee_arguments_callable(observer->own[TOCSIN_PART_CONTAIN], made);
    if ((observer->filtered || observer->wide) && made->role == TOCSIN_ROLE_NONE)
        tocsin_callable_population(observer, made, TOCSIN_POPULATION_SAMPLED_CALL);
    /* a module's call says little without its name */
    if (made->role != TOCSIN_ROLE_FORWARD && made->role != TOCSIN_ROLE_USER &&
        made->role != TOCSIN_ROLE_INITIALIZE)
        tocsin_callable_population(observer, made, TOCSIN_POPULATION_CALL);
    if (made->role == TOCSIN_ROLE_OPTIMIZER_STEP)
        tocsin_callable_population(observer, made, TOCSIN_POPULATION_SAMPLED_CALL);
}

static void enter(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event)
{
    (void)thread;
    if (observer->own[TOCSIN_PART_CONTAIN] != NULL)
        tocsin_callee_arguments_enter(observer->own[TOCSIN_PART_CONTAIN], process, frame, event);
}

static void leave(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event, bool completed)
{
    (void)event;
    tocsin_callee_arguments *callees = observer->own[TOCSIN_PART_CONTAIN];
    if (callees != NULL)
        tocsin_callee_arguments_leave(callees, thread, frame, completed);
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
            if (callees != NULL)
                tocsin_callee_arguments_add(callees, frame);
            tocsin_observer_emit(observer, &instance);
        }
        tocsin_population sampled = populations[TOCSIN_POPULATION_SAMPLED_CALL];
        if (sampled != 0 && i == 0)
            judge_changes(observer, process, frame, sampled);
        else if (sampled != 0)
            judge_sampled(observer, process, frame, sampled);
    }
}

/* ---- changes ------------------------------------------------------------------------------- */

static const char *word_of(const tocsin_sample *sample)
{
    if ((sample->flags & TOCSIN_STATE_PRESENT) == 0)
        return "none";
    bool zero = (sample->flags & TOCSIN_STATE_HASHED) != 0
                    ? sample->digest.sum == 0
                    : sample->absmax == 0 && sample->bad_count == 0;
    return zero ? "zero" : "non_zero";
}

/* The fact of a change, if it is wanted. */
static tocsin_fact change_fact(tocsin_observer *observer, const char *attribute, const char *before,
                               const char *after)
{
    char text[40];
    snprintf(text, sizeof text, "%s>%s", before, after);
    tocsin_literal literal = {.kind = TOCSIN_VALUE_STRING, .text = text};
    tocsin_fact_key key = {
        .predicate = TOCSIN_PREDICATE_CHANGES,
        .name = tocsin_observer_need(observer, tocsin_symbol_of(observer->vocabulary, attribute)),
        .value =
            observer->filtered
                ? tocsin_scalar_find(observer->vocabulary, &literal)
                : tocsin_observer_need(observer, tocsin_scalar_of(observer->vocabulary, &literal))};
    return key.value != 0 && observer->status == TOCSIN_OK ? tocsin_observer_fact(observer, &key)
                                                           : 0;
}

/* Tell every open call of the process that a variable was read, and how it changed, unless 0. */
static void note_reading(tocsin_observer *observer, tocsin_process *process, tocsin_fact change)
{
    for (size_t t = 0; t < process->threads.count; ++t)
        for (size_t f = 0; f < process->threads.items[t].open; ++f) {
            tocsin_frame *open = &process->threads.items[t].frames.items[f];
            bool known = change == 0;
            open->reads = true;
            for (size_t i = 0; i < open->changes.count; ++i)
                known |= open->changes.items[i] == change;
            if (!known && !TOCSIN_VEC_PUSH(&open->changes, change))
                tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        }
}

static void state(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame,
                  const tocsin_sample *sample, const tocsin_event *event)
{
    (void)frame;
    (void)event;
    bool gradient = sample->attribute == TOCSIN_ATTRIBUTE_GRAD;
    bool present = (sample->flags & TOCSIN_STATE_PRESENT) != 0;
    if ((!observer->filtered && !observer->wide) ||
        (!gradient && sample->attribute != TOCSIN_ATTRIBUTE_DATA) ||
        (present && (sample->flags & TOCSIN_STATE_DIGESTED) == 0))
        return;
    tocsin_variable *variable = sample->variable;
    tocsin_digest digest = present ? sample->digest : (tocsin_digest){0};
    const char *before = variable->seen[gradient].word;
    const char *after = word_of(sample);
    bool changed =
        before != NULL && (strcmp(before, after) != 0 ||
                           memcmp(&variable->seen[gradient].digest, &digest, sizeof digest) != 0);
    note_reading(observer, process,
                 changed ? change_fact(observer, gradient ? "grad" : "data", before, after) : 0);
    variable->seen[gradient].word = after;
    variable->seen[gradient].digest = digest;
}

/* For changes: whatever is read at all. */
static void need_readings(struct tocsin_needs *needs)
{
    static const uint8_t roles[] = {TOCSIN_ROLE_BACKWARD, TOCSIN_ROLE_ZERO_GRAD,
                                    TOCSIN_ROLE_OPTIMIZER_STEP};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(roles); ++i)
        for (uint8_t moment = TOCSIN_MOMENT_ENTER; moment <= TOCSIN_MOMENT_EXIT; ++moment)
            tocsin_need_state(needs, roles[i], moment, TOCSIN_ATTRIBUTE_GRAD,
                              TOCSIN_VARIABLE_PARAMETER, true);
    for (uint8_t moment = TOCSIN_MOMENT_ENTER; moment <= TOCSIN_MOMENT_EXIT; ++moment)
        tocsin_need_state(needs, TOCSIN_ROLE_OPTIMIZER_STEP, moment, TOCSIN_ATTRIBUTE_DATA,
                          TOCSIN_VARIABLE_PARAMETER, true);
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    tocsin_fact_key fact = tocsin_fact_get_key(vocabulary, invariant->fact);
    if (fact.predicate == TOCSIN_PREDICATE_CALLS_WITH)
        tocsin_need_call(needs, fact.role, fact.name, true);
    else if (fact.predicate == TOCSIN_PREDICATE_CHANGES)
        need_readings(needs);
    else if (tocsin_population_get_key(vocabulary, invariant->population).kind ==
             TOCSIN_POPULATION_SAMPLED_CALL)
        tocsin_need_state(needs, TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_ENTER,
                          TOCSIN_ATTRIBUTE_GRAD, TOCSIN_VARIABLE_PARAMETER, false);
}

static const uint8_t kinds[] = {TOCSIN_POPULATION_CALL, TOCSIN_POPULATION_SAMPLED_CALL, 0};
const tocsin_relation_part tocsin_relation_contain = {.kinds = kinds,
                                                      .open = open_callees,
                                                      .close = close_callees,
                                                      .callable = callable,
                                                      .enter = enter,
                                                      .leave = leave,
                                                      .state = state,
                                                      .need = need};
