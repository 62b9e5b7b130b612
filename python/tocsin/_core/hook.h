/* hook.h - intercepting calls of Python, torch and C callables in place.
 *
 * A hook belongs to one callable object. The object keeps its identity, its name, its signature and
 * its place in every dictionary; only the way it runs is changed, so names captured before hooking
 * are reached too. What happens at a hooked call is the business of one observer, see below.
 *
 * How each kind of callable is intercepted is described in docs/hooking.md.
 */
#ifndef TOCSIN_HOOK_H
#define TOCSIN_HOOK_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <tocsin/event.h>

enum {                              /* tocsin_hook.flags */
       TOCSIN_HOOK_ARGUMENTS = 1,   /* record arguments and returns, not only that it was called */
       TOCSIN_HOOK_METHOD = 2,      /* args[0] is the bound object ("self") */
       TOCSIN_HOOK_MODULE_CALL = 4, /* torch.nn.Module.__call__: args[0] is the module */
       TOCSIN_HOOK_OUTERMOST = 8,   /* only when no call of the same role is open on the thread */
       TOCSIN_HOOK_OUTERMOST_SELF = 16, /* only when none is open for the same args[0] */
       TOCSIN_HOOK_HOLD = 32,           /* a tracer: neither it nor what it calls is observed */
       TOCSIN_HOOK_BOUND = 64           /* a builtin that is called through bound methods only */
};

/* One hooked callable. Hooks are never freed while the process lives and never move: pointers to
 * them stay valid. */
typedef struct tocsin_hook {
    uint32_t index;     /* dense from 0, tocsin_hook_at(index) */
    tocsin_id function; /* free for the observer: its dictionary id; 0 at first and after
                           tocsin_hook_forget_functions() */
    uint16_t role;      /* tocsin_role */
    uint16_t flags;
    const char *name;          /* qualified public name, UTF-8: "torch.nn.functional.relu" */
    PyObject *target;          /* the hooked object (strong) */
    PyObject *arg_names;       /* tuple of str: names of the positional parameters, then of the
                                  keyword-only ones; NULL when unknown (builtins) */
    uint32_t positional_count; /* how many of them may be given by position */
    uint64_t observer;         /* free for the observer; starts as 0 */
} tocsin_hook;

/* The observer. Both functions are called with the GIL held and with the thread's re-entry flag
 * set: hooked callables that they call run unobserved. They must run no torch operation, keep no
 * reference, and leave the error indicator as they found it (leave: an exception may be set when
 * `result` is NULL; the engine has already set it aside, so the observer sees it only as
 * `exception_type`).
 *
 * args holds nargs positional arguments followed by the values of kwnames (tuple of str or NULL).
 * On Python 3.11 Python functions come with their defaults filled in, *args spread and **kwargs as
 * keywords; elsewhere as the caller wrote them. */
typedef struct tocsin_observer {
    /* Returns a token for leave; 0: this call is not recorded, leave will not be called. */
    uint64_t (*enter)(tocsin_hook *hook, PyObject *const *args, Py_ssize_t nargs,
                      PyObject *kwnames);
    /* result: borrowed, NULL when the call raised exception_type (else NULL). The arguments are
     * still alive. */
    void (*leave)(tocsin_hook *hook, uint64_t token, PyObject *const *args, Py_ssize_t nargs,
                  PyObject *kwnames, PyObject *result, PyObject *exception_type);
} tocsin_observer;

/* Install the observer (static storage; NULL: none) and start or stop calling it. Cheap: hooked
 * callables read one flag. Any thread with the GIL. */
void tocsin_hook_observe(const tocsin_observer *observer);

/* The number of hooks made so far and the index-th of them. */
uint32_t tocsin_hook_count(void);
tocsin_hook *tocsin_hook_at(uint32_t index);

/* Set `function` of all hooks to 0: a forked child writes a dictionary of its own. */
void tocsin_hook_forget_functions(void);

/* The thread's re-entry flag: while held, hooked callables run unobserved on this thread. For code
 * of ours that calls Python outside of enter and leave. Returns whether it was held before; pass
 * that to _release. */
bool tocsin_hook_hold(void);
void tocsin_hook_release(bool held_before);

/* core_module.c calls this once when the extension is imported; defined by observe.c, which adds
 * its own functions and types to the module. 0, or -1 with an exception. */
int tocsin_observe_module_exec(PyObject *module);

/* Python side (module tocsin._core), for recorder.py and targets.py:
 * - hook(callable, name, role: str, flags: int) -> int: the index; of a callable that was hooked
 *   before, the same one. TypeError: this kind of callable cannot be hooked.
 * - unhook(index): restores the callable exactly.
 * - hooks() -> list[(index, name, role, kind, active)].
 * - hold() -> bool, release(bool): the re-entry flag.
 * - pause(), resume(): nest; no call of any thread is observed while paused.
 *
 * When a process with TOCSIN_RUN set has imported torch, attach.py calls
 * - tocsin.recorder.start(directory: str, mode: "record" | "run", selection: str | None,
 *   packages: tuple[str, ...]), which chooses what is hooked by calling
 * - tocsin.targets.install(names: set[str] | None, roles: set[str] | None, packages); names and
 *   roles None: everything.
 * Several callables may share one name: every optimizer's step is "torch.optim.Optimizer.step".
 */
#endif
