/* observe.c - the observer: what is written at a hooked call.
 *
 * Data structure: per thread, how many observed calls, module calls and backward passes are open.
 * The token of a call carries the call's number and the counts at its ENTER, so that leaving
 * restores them whatever happened in between.
 * Invariant: each ENTER gets its EXIT or RAISE. A call that the selection does not want writes
 * nothing, but roots, stages, steps and states are followed all the same.
 * Cost: 0.23 us for a call with two tensors, 0.48 us for an outermost module call with its site
 * (docs/recording.md).
 */
#include "observe.h"

#include "boundaries.h"
#include "digest_cache.h"
#include "jitter.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

tocsin_recorder *observe_recorder;

enum {
    DEPTH_BITS = 12,
    DEPTH_MAX = (1 << DEPTH_BITS) - 1, /* deeper calls count as this deep */
    STOP_MS_MAX = 1000
};

typedef struct thread_state {
    uint32_t depth;     /* open observed calls */
    uint32_t modules;   /* open module calls */
    uint32_t backwards; /* open backward passes */
    PyObject *closing;  /* the optimizer whose open step was given a closure; borrowed: it is an
                           argument of that call */
} thread_state;

static _Thread_local thread_state this_thread;
static int inside; /* threads in enter() or leave(): Python code that they run may let others run */
static uint32_t names_generation; /* of hook->observer and hook->function */

/* ---- 1. Cost ------------------------------------------------------------------------------- */

static uint64_t cost_ticks;
static uint64_t origin_ticks, origin_ns;

static inline uint64_t ticks(void)
{
#if defined(__x86_64__)
    return __rdtsc();
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#endif
}

static uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t observe_cost_begin(void)
{
    return ticks();
}

void observe_cost_end(uint64_t begin)
{
    cost_ticks += ticks() - begin;
}

/* From the rates of both clocks since the start: no calibration, exact after the first second. */
void observe_flush_cost(void)
{
    uint64_t passed_ticks = ticks() - origin_ticks, passed_ns = monotonic_ns() - origin_ns;
    if (observe_recorder != NULL && passed_ticks > 0)
        tocsin_recorder_add_cost(
            observe_recorder,
            (uint64_t)((double)cost_ticks * ((double)passed_ns / (double)passed_ticks)));
    cost_ticks = 0;
}

/* ---- 2. Names ------------------------------------------------------------------------------ */

/* hook->observer: what is recorded of a call, and the ids of the positional parameters' names. */
typedef struct call_plan {
    bool recorded;
    bool silent; /* watched instead (watch.c) */
    bool aloud;  /* recorded and watched, without a role */
    bool early;  /* watched as it begins */
    bool arguments;
    uint32_t count;
    tocsin_id ids[];
} call_plan;

static inline const call_plan *plan_of(const tocsin_hook *hook)
{
    return (const call_plan *)(uintptr_t)hook->observer;
}

static tocsin_id return_name, self_name;

/* Hooks by index: add_param_group (seen, not recorded) and init_process_group, and what to call
 * after the latter. */
static uint32_t optimizer_birth = UINT32_MAX, group_birth = UINT32_MAX;
static PyObject *on_group;

static void forget_names(void)
{
    for (uint32_t i = 0; i < tocsin_hook_count(); i++) {
        tocsin_hook *hook = tocsin_hook_at(i);
        PyMem_Free((void *)(uintptr_t)hook->observer);
        hook->observer = 0;
    }
    tocsin_hook_forget_functions();
    return_name = self_name = 0;
}

/* Steps and whatever has states read around it are recorded in any case: the states refer to them.
 */
static void choose_what(call_plan *plan, const tocsin_hook *hook)
{
    tocsin_role role = (tocsin_role)hook->role;
    plan->recorded =
        tocsin_recorder_wants_call(observe_recorder, hook->name, role, &plan->arguments) ||
        role == TOCSIN_ROLE_OPTIMIZER_STEP ||
        tocsin_recorder_samples(observe_recorder, role, TOCSIN_MOMENT_ENTER) ||
        tocsin_recorder_samples(observe_recorder, role, TOCSIN_MOMENT_EXIT);
    plan->silent = watch_is_silent(hook);
    plan->early = watch_is_early(hook);
    plan->recorded = plan->recorded && !plan->silent;
    plan->aloud = role == TOCSIN_ROLE_NONE && watch_is_aloud(hook);
    plan->arguments = plan->arguments && (hook->flags & TOCSIN_HOOK_ARGUMENTS) != 0;
}

/* False: the file takes no names now, or there is no memory. Tried again at the next call. */
static bool learn_hook(tocsin_hook *hook, tocsin_trace_writer *writer)
{
    uint32_t count = hook->arg_names == NULL ? 0 : hook->positional_count;
    tocsin_id function = tocsin_trace_define_function(writer, hook->name, (tocsin_role)hook->role);
    call_plan *plan =
        function == 0 ? NULL : PyMem_Calloc(1, sizeof *plan + count * sizeof *plan->ids);
    if (plan == NULL)
        return false;
    choose_what(plan, hook);
    plan->count = count;
    for (uint32_t i = 0; i < count; i++)
        plan->ids[i] = value_string_id(writer, PyTuple_GET_ITEM(hook->arg_names, i));
    if (return_name == 0)
        return_name = value_text_id(writer, "return");
    if (self_name == 0)
        self_name = value_text_id(writer, "self");
    assert(hook->observer == 0);
    hook->observer = (uint64_t)(uintptr_t)plan;
    hook->function = function;
    return true;
}

/* The writer, with the hook's names known to it; NULL: this call is not recorded. */
static tocsin_trace_writer *ready_writer(tocsin_hook *hook)
{
    tocsin_trace_writer *writer =
        observe_recorder == NULL ? NULL : tocsin_recorder_writer(observe_recorder);
    if (writer == NULL)
        return NULL;
    uint32_t generation = tocsin_recorder_generation(observe_recorder);
    if (__builtin_expect(names_generation != generation, 0)) {
        forget_names();
        names_generation = generation;
    }
    if (__builtin_expect(hook->function == 0, 0) && !learn_hook(hook, writer))
        return NULL;
    return writer;
}

static tocsin_id position_name(const tocsin_hook *hook, tocsin_trace_writer *writer,
                               Py_ssize_t position)
{
    const call_plan *plan = plan_of(hook);
    bool method = (hook->flags & (TOCSIN_HOOK_METHOD | TOCSIN_HOOK_MODULE_CALL)) != 0;
    if (method && position == 0)
        return self_name;
    if (position < plan->count)
        return plan->ids[position];
    return value_position_id(writer, position - method);
}

static void summarize_arguments(value_list *list, tocsin_hook *hook, tocsin_trace_writer *writer,
                                PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    for (Py_ssize_t i = 0; i < nargs; i++)
        value_summarize(list, writer, args[i], position_name(hook, writer, i));
    if ((hook->flags & TOCSIN_HOOK_METHOD) != 0 && nargs > 0)
        value_tag_object(list, args[0]);
    Py_ssize_t keywords = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    for (Py_ssize_t i = 0; i < keywords; i++)
        value_summarize(list, writer, args[nargs + i],
                        value_string_id(writer, PyTuple_GET_ITEM(kwnames, i)));
}

/* ---- 3. Context: grad mode, autocast, stage ------------------------------------------------ */

static PyObject *is_grad_enabled, *is_autocast_enabled, *autocast_dtype;

void observe_set_context(PyObject *grad_enabled, PyObject *autocast_enabled, PyObject *autocast)
{
    Py_XSETREF(is_grad_enabled, Py_NewRef(grad_enabled));
    Py_XSETREF(is_autocast_enabled, Py_NewRef(autocast_enabled));
    Py_XSETREF(autocast_dtype, Py_NewRef(autocast));
}

/* What a predicate without arguments says; `otherwise` when it cannot be asked. */
static bool ask(PyObject *predicate, bool otherwise)
{
    PyObject *answer = predicate == NULL ? NULL : PyObject_CallNoArgs(predicate);
    bool result = answer == NULL ? otherwise : answer == Py_True;
    Py_XDECREF(answer);
    observe_clear_error();
    return result;
}

/* autocast_dtype() of recorder.py names the dtype. */
static void observe_autocast(void)
{
    PyObject *name = ask(is_autocast_enabled, false) ? PyObject_CallNoArgs(autocast_dtype) : NULL;
    const char *text = name == NULL || !PyUnicode_Check(name) ? "" : PyUnicode_AsUTF8(name);
    if (text != NULL)
        tocsin_recorder_meta_text(observe_recorder, TOCSIN_META_AUTOCAST, text, strlen(text));
    Py_XDECREF(name);
    observe_clear_error();
}

/* Only where the mode of training shows; initializers and clipping switch gradients off inside. */
static bool shows_context(tocsin_role role)
{
    return role == TOCSIN_ROLE_FORWARD || role == TOCSIN_ROLE_LOSS ||
           role == TOCSIN_ROLE_BACKWARD || role == TOCSIN_ROLE_OPTIMIZER_STEP ||
           role == TOCSIN_ROLE_USER;
}

/* Meta variables as they are at such a call. Training is what backward says it is: a model left in
 * eval mode does not turn training into evaluation. Modules called during backward are recomputed
 * parts of a model. */
static void observe_context(const tocsin_hook *hook, const thread_state *thread, PyObject *self)
{
    bool enabled = ask(is_grad_enabled, true);
    tocsin_recorder_meta_bool(observe_recorder, TOCSIN_META_GRAD_ENABLED, enabled);
    observe_autocast();
    if (hook->role == TOCSIN_ROLE_BACKWARD) {
        tocsin_recorder_observed_stage(observe_recorder, "training");
    } else if ((hook->flags & TOCSIN_HOOK_MODULE_CALL) != 0 && thread->modules == 0 &&
               thread->backwards == 0 && self != NULL && value_is_module(self) &&
               variables_saw_root(self)) {
        bool training = enabled && value_module_is_training(self);
        tocsin_recorder_observed_stage(observe_recorder, training ? "training" : "evaluation");
        watch_run(self);
    }
}

/* ---- 4. Enter ------------------------------------------------------------------------------ */

/* From the top: a mark (so that no token is 0), the generation (a child may return from calls that
 * its parent entered), the call's number in its thread (0: not recorded), and the counts. */
static const uint64_t token_mark = UINT64_C(1) << 63;
static const uint64_t call_mask = (UINT64_C(1) << (60 - 2 * DEPTH_BITS)) - 1;

static uint64_t token_stamp(void)
{
    return token_mark | (uint64_t)(names_generation & 7) << 60;
}

static uint64_t token_of(uint64_t call, const thread_state *thread)
{
    uint64_t depth = thread->depth < DEPTH_MAX ? thread->depth : DEPTH_MAX;
    uint64_t modules = thread->modules < DEPTH_MAX ? thread->modules : DEPTH_MAX;
    assert(call <= call_mask);
    return token_stamp() | call << (2 * DEPTH_BITS) | depth << DEPTH_BITS | modules;
}

static uint64_t token_call(uint64_t token)
{
    return token >> (2 * DEPTH_BITS) & call_mask;
}

static bool token_is_ours(uint64_t token)
{
    assert((token & token_mark) != 0);
    return (token ^ token_stamp()) >> 60 == 0;
}

/* What is said of the arguments. The fields of an optimizer decide whether its step may change
 * anything, and a module's name and mode is what its call is about: those are always said. */
static void summarize_call(value_list *list, tocsin_hook *hook, tocsin_trace_writer *writer,
                           PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    value_list_begin(list, (tocsin_role)hook->role);
    if (hook->role == TOCSIN_ROLE_OPTIMIZER_STEP && nargs > 0) {
        value_summarize(list, writer, args[0], self_name);
        optimizer_summarize(list, writer, args[0], optimizer_slot(args[0]));
    } else if (plan_of(hook)->arguments) {
        summarize_arguments(list, hook, writer, args, nargs, kwnames);
    } else if ((hook->flags & TOCSIN_HOOK_MODULE_CALL) != 0 && nargs > 0) {
        value_summarize(list, writer, args[0], self_name);
    }
}

static uint64_t emit_enter(tocsin_hook *hook, tocsin_trace_writer *writer,
                           const thread_state *thread, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kwnames)
{
    value_list list;
    summarize_call(&list, hook, writer, args, nargs, kwnames);
    tocsin_event event = {.kind = TOCSIN_EVENT_ENTER,
                          .function = hook->function,
                          .value_count = list.count,
                          .values = list.items};
    if (thread->depth == 0 || hook->role != TOCSIN_ROLE_NONE)
        event.site = call_site_find(writer, hook);
    return tocsin_trace_emit(writer, &event);
}

/* torch.autograd.grad() hands gradients out and accumulates none: to training it is an operation
 * like any other, not a backward pass. */
static bool accumulates(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    Py_ssize_t keywords = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    for (Py_ssize_t i = 0; i < keywords; i++)
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), "accumulate_grad") == 0)
            return args[nargs + i] != Py_False;
    return true;
}

/* Was this call of optimizer.step given a closure? It computes the gradients, inside the call. */
static bool has_closure(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    if (nargs > 1 && args[1] != Py_None)
        return true;
    Py_ssize_t keywords = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    for (Py_ssize_t i = 0; i < keywords; i++)
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), "closure") == 0)
            return args[nargs + i] != Py_None;
    return false;
}

static void sample_at_enter(const tocsin_hook *hook, thread_state *thread, PyObject *const *args,
                            Py_ssize_t nargs, PyObject *kwnames)
{
    bool step = hook->role == TOCSIN_ROLE_OPTIMIZER_STEP && nargs > 0;
    if (step && has_closure(args, nargs, kwnames))
        thread->closing = args[0]; /* read after its backward pass */
    else
        variables_sample((tocsin_role)hook->role, TOCSIN_MOMENT_ENTER, step ? args[0] : NULL);
    if (step)
        watch_step(args[0]);
}

static uint64_t observe_enter(tocsin_hook *hook, PyObject *const *args, Py_ssize_t nargs,
                              PyObject *kwnames)
{
    uint64_t begin = ticks();
    PyObject *self = nargs > 0 ? args[0] : NULL;
    if (__builtin_expect(hook->index == optimizer_birth, 0)) {
        if (self != NULL)
            (void)optimizer_slot(self);
        return 0;
    }
    tocsin_trace_writer *writer = ready_writer(hook);
    thread_state *thread = &this_thread;
    if (writer == NULL)
        return 0;
    bool recorded = plan_of(hook)->recorded &&
                    (hook->role != TOCSIN_ROLE_BACKWARD || accumulates(args, nargs, kwnames));
    bool outermost = (hook->flags & TOCSIN_HOOK_MODULE_CALL) != 0 && thread->modules == 0;
    if (shows_context((tocsin_role)hook->role) && (recorded || outermost))
        observe_context(hook, thread, self);
    uint64_t call = recorded ? emit_enter(hook, writer, thread, args, nargs, kwnames) : 0;
    uint64_t token = token_of(call, thread);
    thread->depth += recorded;
    if (__builtin_expect(boundaries_what != 0, 0))
        boundaries_enter(hook, recorded, thread->modules, thread->backwards > 0, args, nargs,
                         kwnames);
    if ((hook->flags & TOCSIN_HOOK_MODULE_CALL) != 0)
        thread->modules++;
    if (hook->role == TOCSIN_ROLE_BACKWARD)
        thread->backwards++;
    if (recorded && hook->role != TOCSIN_ROLE_NONE)
        sample_at_enter(hook, thread, args, nargs, kwnames);
    if ((recorded && plan_of(hook)->aloud) || plan_of(hook)->early)
        watch_entered(hook, args, nargs, kwnames);
    cost_ticks += ticks() - begin;
    return token;
}

static uint64_t enter(tocsin_hook *hook, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    if (__builtin_expect(jitter_on, 0))
        jitter_delay();
    inside++;
    uint64_t token = observe_enter(hook, args, nargs, kwnames);
    inside--;
    return token;
}

/* ---- 5. Leave ------------------------------------------------------------------------------ */

/* Counting, after the EXIT of a call that returned. */
static void count_step(const tocsin_hook *hook, const thread_state *thread, PyObject *const *args,
                       Py_ssize_t nargs, PyObject *kwnames)
{
    if (hook->role == TOCSIN_ROLE_OPTIMIZER_STEP && nargs > 0) {
        digest_cache_clear();
        int slot = optimizer_slot(args[0]);
        observe_flush_cost();
        if (optimizer_is_gone(tocsin_recorder_leader(observe_recorder)))
            tocsin_recorder_depose(observe_recorder); /* training goes on with another one */
        tocsin_recorder_optimizer_stepped(observe_recorder, slot < 0 ? UINT32_MAX : (uint32_t)slot);
    } else if (hook->role == TOCSIN_ROLE_BACKWARD && thread->backwards == 0 &&
               accumulates(args, nargs, kwnames)) {
        tocsin_recorder_backward_passed(observe_recorder);
    }
}

static void emit_exit(tocsin_hook *hook, tocsin_trace_writer *writer, uint64_t call,
                      PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject *result)
{
    value_list list;
    value_list_begin(&list, (tocsin_role)hook->role);
    if (plan_of(hook)->arguments)
        value_summarize(&list, writer, result, return_name);
    if (plan_of(hook)->arguments && hook->role == TOCSIN_ROLE_LOSS)
        label_counts_append(&list, writer, hook, args, nargs, kwnames);
    tocsin_event event = {.kind = TOCSIN_EVENT_EXIT,
                          .function = hook->function,
                          .call = call,
                          .value_count = list.count,
                          .values = list.items};
    tocsin_trace_emit(writer, &event);
}

static void emit_raise(tocsin_hook *hook, tocsin_trace_writer *writer, uint64_t call,
                       PyObject *exception_type)
{
    tocsin_value value = {.kind = TOCSIN_VALUE_STRING};
    if (exception_type != NULL && PyType_Check(exception_type))
        value.as.text = value_type_id(writer, (PyTypeObject *)exception_type);
    tocsin_event event = {.kind = TOCSIN_EVENT_RAISE,
                          .function = hook->function,
                          .call = call,
                          .value_count = 1,
                          .values = &value};
    tocsin_trace_emit(writer, &event);
}

static void call_on_group(void)
{
    PyObject *ignored = on_group == NULL ? NULL : PyObject_CallNoArgs(on_group);
    Py_XDECREF(ignored);
    observe_clear_error();
}

static void observe_leave(tocsin_hook *hook, uint64_t token, PyObject *const *args,
                          Py_ssize_t nargs, PyObject *kwnames, PyObject *result,
                          PyObject *exception_type)
{
    uint64_t begin = ticks(), call = token_call(token);
    thread_state *thread = &this_thread;
    tocsin_trace_writer *writer = ready_writer(hook);
    if (!token_is_ours(token))
        return;
    thread->depth = (uint32_t)(token >> DEPTH_BITS) & DEPTH_MAX;
    thread->modules = (uint32_t)token & DEPTH_MAX;
    if (hook->role == TOCSIN_ROLE_BACKWARD && thread->backwards > 0)
        thread->backwards--;
    if (writer == NULL)
        return;
    if (call != 0 && result != NULL) {
        if (hook->role != TOCSIN_ROLE_NONE)
            variables_sample((tocsin_role)hook->role, TOCSIN_MOMENT_EXIT,
                             hook->role == TOCSIN_ROLE_OPTIMIZER_STEP && nargs > 0 ? args[0]
                                                                                   : NULL);
        if (hook->role != TOCSIN_ROLE_NONE || plan_of(hook)->aloud)
            watch_returned(hook, args, nargs, kwnames, result);
        if (hook->role == TOCSIN_ROLE_BACKWARD && thread->backwards == 0)
            watch_backward_ended();
        if (__builtin_expect(boundaries_what != 0, 0))
            boundaries_leave(hook, thread->modules, args, nargs, kwnames, result);
        emit_exit(hook, writer, call, args, nargs, kwnames, result);
    } else if (call != 0) {
        emit_raise(hook, writer, call, exception_type);
    } else if (result != NULL && plan_of(hook)->silent) {
        watch_returned(hook, args, nargs, kwnames, result);
    }
    if (hook->role == TOCSIN_ROLE_OPTIMIZER_STEP)
        thread->closing = NULL;
    else if (hook->role == TOCSIN_ROLE_BACKWARD && thread->backwards == 0 &&
             thread->closing != NULL && accumulates(args, nargs, kwnames))
        variables_sample(TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_MOMENT_ENTER, thread->closing);
    if (hook->role == TOCSIN_ROLE_OPTIMIZER_STEP) { /* what it cost belongs to the step that ends */
        cost_ticks += ticks() - begin;
        begin = ticks();
    }
    if (result != NULL)
        count_step(hook, thread, args, nargs, kwnames);
    if (__builtin_expect(hook->index == group_birth, 0) && result != NULL)
        call_on_group();
    cost_ticks += ticks() - begin;
}

static void leave(tocsin_hook *hook, uint64_t token, PyObject *const *args, Py_ssize_t nargs,
                  PyObject *kwnames, PyObject *result, PyObject *exception_type)
{
    inside++;
    observe_leave(hook, token, args, nargs, kwnames, result, exception_type);
    inside--;
    if (__builtin_expect(jitter_on, 0))
        jitter_delay();
}

/* ---- 6. Start and stop --------------------------------------------------------------------- */

static const tocsin_observer observer = {enter, leave};
static bool observing;

static void observe_calls(bool on)
{
    observing = on;
    memset(&this_thread, 0, sizeof this_thread);
    tocsin_hook_observe(on ? &observer : NULL);
}

/* In a forked child, before any Python code there runs: what the parent records into is not mapped.
 * observe_forked() goes on; a child that is no business of Python's never calls it. */
static void stop_in_child(void)
{
    tocsin_hook_observe(NULL);
}

static int raise_deferred(void *exception)
{
    PyErr_SetObject((PyObject *)Py_TYPE((PyObject *)exception), exception);
    Py_DECREF((PyObject *)exception);
    return -1;
}

void observe_defer_error(void)
{
    PyObject *type, *exception, *traceback;
    PyErr_Fetch(&type, &exception, &traceback);
    PyErr_NormalizeException(&type, &exception, &traceback);
    if (exception == NULL || Py_AddPendingCall(raise_deferred, exception) != 0)
        Py_XDECREF(exception);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
}

void observe_set_births(uint32_t optimizer, uint32_t process_group, PyObject *grouped)
{
    optimizer_birth = optimizer;
    group_birth = process_group;
    Py_XSETREF(on_group, Py_NewRef(grouped));
}

void observe_start(tocsin_recorder *recorder)
{
    for (uint32_t i = 0; i < tocsin_hook_count(); i++)
        tocsin_hook_at(i)->observer = 0; /* whatever another observer left there */
    tocsin_hook_forget_functions();
    static bool fork_handled;
    fork_handled = fork_handled || pthread_atfork(NULL, NULL, stop_in_child) == 0;
    observe_recorder = recorder;
    names_generation = tocsin_recorder_generation(recorder);
    origin_ticks = ticks();
    origin_ns = monotonic_ns();
    cost_ticks = 0;
    observe_calls(true);
}

void observe_pause(bool paused)
{
    observe_calls(!paused);
}

bool observe_stop(void)
{
    observe_calls(false);
    for (int waited_ms = 0; inside > 0 && waited_ms < STOP_MS_MAX; waited_ms++) {
        Py_BEGIN_ALLOW_THREADS;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        Py_END_ALLOW_THREADS;
    }
    if (inside > 0)
        return false;
    observe_flush_cost();
    observe_recorder = NULL;
    forget_names();
    value_summary_forget();
    call_site_forget();
    variables_forget(false);
    boundaries_forget();
    watch_clear();
    names_generation = 0;
    return true;
}

void observe_forked(void)
{
    inside = 0;
    observe_calls(observing);
    if (observe_recorder == NULL)
        return;
    tocsin_recorder_forked(observe_recorder);
    value_summary_forget();
    call_site_forget();
    variables_forget(true);
    boundaries_forget();
    origin_ticks = ticks();
    origin_ns = monotonic_ns();
    cost_ticks = 0;
}
