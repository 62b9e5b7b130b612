/* hook_engine.h - shared by the files of the patch engine, hook*.c only. */
#ifndef TOCSIN_HOOK_ENGINE_H
#define TOCSIN_HOOK_ENGINE_H

#include "hook.h"

#include <stdatomic.h>

typedef enum hook_kind {
    HOOK_BUILTIN,    /* PyCFunction: its vectorcall field */
    HOOK_DESCRIPTOR, /* method descriptor: its vectorcall field */
    HOOK_FUNCTION,   /* Python function: its vectorcall field */
    HOOK_CODE        /* Python function: its __code__ (Python 3.11) */
} hook_kind;

typedef struct hook_entry {
    tocsin_hook hook; /* first: an entry is a hook */
    hook_kind kind;
    bool active;
    vectorcallfunc original; /* runs the callable as if it were not hooked */
    vectorcallfunc field;    /* what the vectorcall field held, NULL included */
    PyObject *code;          /* HOOK_CODE: the function's own code */
    PyObject *gate_code;     /* HOOK_CODE: the code that it has while hooked */
    PyObject *gate;          /* HOOK_CODE: the callable in gate_code's constants */
} hook_entry;

/* The entry of a callable, or NULL. A look-up in an open-addressed table, about 2 ns. */
hook_entry *tocsin_hook_find(const PyObject *callable);

/* Run `original(callable, ...)` and let the observer see it. */
PyObject *tocsin_hook_run(hook_entry *entry, vectorcallfunc original, PyObject *callable,
                          PyObject *const *args, size_t nargsf, PyObject *kwnames);

/* Each checks that it can intercept entry->hook.target and fills in the entry (_prepare), switches
 * interception on (_enable), or restores the callable (_disable). 0, or -1 with an exception. */
int tocsin_hook_builtin_prepare(hook_entry *entry);
int tocsin_hook_descriptor_prepare(hook_entry *entry);
int tocsin_hook_function_prepare(hook_entry *entry);
void tocsin_hook_field_enable(hook_entry *entry);
void tocsin_hook_field_disable(hook_entry *entry);
int tocsin_hook_code_prepare(hook_entry *entry);
int tocsin_hook_code_enable(hook_entry *entry);
int tocsin_hook_code_disable(hook_entry *entry);

/* Refuse generators and coroutines, and note the names of the function's parameters. */
int tocsin_hook_function_check(hook_entry *entry);

/* Is less than a safe rest of this thread's C stack left? Then RecursionError is set. Calls through
 * a hook use C stack where the interpreter itself would not. */
bool tocsin_hook_stack_exhausted(void);

/* The interpreter counts calls that come from C, or the frame of a gate, against its recursion
 * limit; the callable that is not hooked would not have them. Not counted between _begin and _end,
 * whose place the check above takes. */
static inline PyThreadState *tocsin_hook_uncounted_begin(void)
{
    PyThreadState *thread = PyThreadState_Get();
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
    thread->recursion_remaining++;
#elif PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030E0000
    thread->c_recursion_remaining += 2; /* PY_EVAL_C_STACK_UNITS */
#endif
    return thread;
}

static inline void tocsin_hook_uncounted_end(PyThreadState *thread)
{
    (void)thread;
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
    thread->recursion_remaining--;
#elif PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030E0000
    thread->c_recursion_remaining -= 2;
#endif
}

/* Add the types and functions of each part to the module. 0, or -1 with an exception. */
int tocsin_hook_module_exec(PyObject *module);
int tocsin_hook_code_module_exec(PyObject *module);
int tocsin_hook_count_module_exec(PyObject *module);
int tocsin_guard_module_exec(PyObject *module);
int tocsin_multi_digest_module_exec(PyObject *module);
int tocsin_device_digest_module_exec(PyObject *module);
int tocsin_gate_module_exec(PyObject *module);

#endif
