/* hook.c - the registry of hooks and the one function through which every hooked call runs.
 *
 * Hooks are allocated one by one and never move or go away: a callable that was called just before
 * it was unhooked may still be on its way through. An open-addressed table of at most 1/4 load maps
 * the address of a callable to its hook; targets are held strongly, so no address is reused.
 *
 * Invariant: everything here but `observer` and `paused` is written and read with the GIL held.
 * Cost of a call: observer off, one load and a predictable branch; on, two thread-local stores more
 * than what the observer itself does.
 */
#include "hook_engine.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#define STACK_RESERVE_BYTES ((size_t)256 << 10)
#define HOOK_COUNT_MAX      ((uint32_t)1 << 20)

/* An observed call of a role that is recorded only when outermost, on the C stack of its thread. */
typedef struct open_call {
    const struct open_call *outer;
    const PyObject *self; /* compared, never dereferenced */
    uint16_t role;
} open_call;

static struct {
    hook_entry **entries; /* by index */
    uint32_t count;
    uint32_t capacity;
    hook_entry **table; /* by address of the target */
    uint32_t table_size;
    uint32_t table_shift;
} registry;

static _Atomic(const tocsin_observer *) observer;
static atomic_int paused;
static _Thread_local bool held;
static _Thread_local const open_call *open_calls;
static _Thread_local uintptr_t stack_limit; /* 0: not known yet, 1: unknown */

/* ---- registry ------------------------------------------------------------------------------ */

/* Fibonacci hashing: the high bits of address x 2^64/phi; objects are 16-byte aligned. */
static uint32_t table_slot(const PyObject *callable)
{
    uint64_t hash = ((uint64_t)(uintptr_t)callable >> 4) * UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)(hash >> registry.table_shift);
}

hook_entry *tocsin_hook_find(const PyObject *callable)
{
    if (registry.table_size == 0) {
        return NULL;
    }
    uint32_t slot = table_slot(callable);
    while (registry.table[slot] && registry.table[slot]->hook.target != callable) {
        slot = (slot + 1) & (registry.table_size - 1);
    }
    return registry.table[slot];
}

static void table_insert(hook_entry *entry)
{
    uint32_t slot = table_slot(entry->hook.target);
    while (registry.table[slot]) {
        slot = (slot + 1) & (registry.table_size - 1);
    }
    registry.table[slot] = entry;
}

/* Room for one more hook in both arrays. */
static int registry_reserve(void)
{
    if (registry.count < registry.capacity) {
        return 0;
    }
    uint32_t capacity = registry.capacity ? registry.capacity * 2 : 256;
    if (capacity > HOOK_COUNT_MAX) {
        PyErr_SetString(PyExc_RuntimeError, "too many hooks");
        return -1;
    }
    hook_entry **entries = PyMem_Realloc(registry.entries, capacity * sizeof(*entries));
    if (!entries) {
        PyErr_NoMemory();
        return -1;
    }
    registry.entries = entries;
    uint32_t table_size = capacity * 4;
    hook_entry **table = PyMem_Calloc(table_size, sizeof(*table));
    if (!table) {
        PyErr_NoMemory();
        return -1;
    }
    PyMem_Free(registry.table);
    registry.table = table;
    registry.table_size = table_size;
    registry.table_shift = 64 - (uint32_t)__builtin_ctz(table_size);
    registry.capacity = capacity;
    for (uint32_t i = 0; i < registry.count; i++) {
        table_insert(entries[i]);
    }
    return 0;
}

uint32_t tocsin_hook_count(void)
{
    return registry.count;
}

tocsin_hook *tocsin_hook_at(uint32_t index)
{
    assert(index < registry.count);
    return &registry.entries[index]->hook;
}

void tocsin_hook_forget_functions(void)
{
    for (uint32_t i = 0; i < registry.count; i++) {
        registry.entries[i]->hook.function = 0;
    }
}

/* ---- running a hooked call ----------------------------------------------------------------- */

void tocsin_hook_observe(const tocsin_observer *next)
{
    atomic_store_explicit(&observer, next, memory_order_release);
}

bool tocsin_hook_hold(void)
{
    bool before = held;
    held = true;
    return before;
}

void tocsin_hook_release(bool held_before)
{
    held = held_before;
}

static bool is_inner(const tocsin_hook *hook, const PyObject *self)
{
    for (const open_call *call = open_calls; call; call = call->outer) {
        if (call->role == hook->role &&
            ((hook->flags & TOCSIN_HOOK_OUTERMOST) || call->self == self)) {
            return true;
        }
    }
    return false;
}

/* `leave` with the exception, if there is one, set aside. */
static void leave(const tocsin_observer *now, hook_entry *entry, uint64_t token,
                  PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject *result)
{
    held = true;
    if (result) {
        now->leave(&entry->hook, token, args, nargs, kwnames, result, NULL);
    } else {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        now->leave(&entry->hook, token, args, nargs, kwnames, NULL, type);
        PyErr_Restore(type, value, traceback);
    }
    held = false;
}

PyObject *tocsin_hook_run(hook_entry *entry, vectorcallfunc original, PyObject *callable,
                          PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    const tocsin_observer *now = atomic_load_explicit(&observer, memory_order_acquire);
    if (!now || held || atomic_load_explicit(&paused, memory_order_relaxed) > 0) {
        return original(callable, args, nargsf, kwnames);
    }
    if (entry->hook.flags & TOCSIN_HOOK_HOLD) {
        held = true;
        PyObject *result = original(callable, args, nargsf, kwnames);
        held = false;
        return result;
    }
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    open_call call = {open_calls, nargs > 0 ? args[0] : NULL, entry->hook.role};
    bool outermost_only =
        (entry->hook.flags & (TOCSIN_HOOK_OUTERMOST | TOCSIN_HOOK_OUTERMOST_SELF)) != 0;
    if (outermost_only && is_inner(&entry->hook, call.self)) {
        return original(callable, args, nargsf, kwnames);
    }
    held = true;
    uint64_t token = now->enter(&entry->hook, args, nargs, kwnames);
    held = false;
    assert(!PyErr_Occurred());
    if (token && outermost_only) {
        open_calls = &call;
    }
    PyObject *result = original(callable, args, nargsf, kwnames);
    open_calls = call.outer;
    /* Recording may have stopped meanwhile; whoever stops it closes the open calls. */
    if (token && now == atomic_load_explicit(&observer, memory_order_acquire)) {
        leave(now, entry, token, args, nargs, kwnames, result);
    }
    return result;
}

bool tocsin_hook_stack_exhausted(void)
{
    if (stack_limit == 0) {
        pthread_attr_t attributes;
        void *base = NULL;
        size_t bytes = 0;
        stack_limit = 1;
        if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
            if (pthread_attr_getstack(&attributes, &base, &bytes) == 0 &&
                bytes > 2 * STACK_RESERVE_BYTES) {
                stack_limit = (uintptr_t)base + STACK_RESERVE_BYTES;
            }
            pthread_attr_destroy(&attributes);
        }
    }
    if ((uintptr_t)__builtin_frame_address(0) >= stack_limit) {
        return false;
    }
    PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded (C stack)");
    return true;
}

/* ---- hooking and unhooking ----------------------------------------------------------------- */

static int entry_prepare(hook_entry *entry)
{
    PyObject *target = entry->hook.target;
    if (PyCFunction_CheckExact(target)) {
        return tocsin_hook_builtin_prepare(entry);
    }
    if (Py_IS_TYPE(target, &PyMethodDescr_Type)) {
        return tocsin_hook_descriptor_prepare(entry);
    }
    if (PyFunction_Check(target)) {
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
        /* 3.11 ignores the vectorcall field of Python functions for calls from Python code. Calls
         * through a type slot reach it: that is how every module call comes, at no extra frame. */
        if (!(entry->hook.flags & TOCSIN_HOOK_MODULE_CALL)) {
            return tocsin_hook_code_prepare(entry);
        }
#endif
        return tocsin_hook_function_prepare(entry);
    }
    PyErr_Format(PyExc_TypeError, "cannot hook a %.100s", Py_TYPE(target)->tp_name);
    return -1;
}

static int entry_enable(hook_entry *entry)
{
    if (entry->active) {
        return 0;
    }
    if (entry->kind != HOOK_CODE) {
        tocsin_hook_field_enable(entry);
    } else if (tocsin_hook_code_enable(entry) < 0) {
        return -1;
    }
    entry->active = true;
    return 0;
}

static void entry_free(hook_entry *entry)
{
    Py_XDECREF(entry->hook.target);
    Py_XDECREF(entry->hook.arg_names);
    Py_XDECREF(entry->code);
    Py_XDECREF(entry->gate_code);
    Py_XDECREF(entry->gate);
    PyMem_Free((void *)(uintptr_t)entry->hook.name);
    PyMem_Free(entry);
}

static hook_entry *entry_new(PyObject *target, const char *name, tocsin_role role, uint16_t flags)
{
    hook_entry *entry = PyMem_Calloc(1, sizeof(*entry));
    if (!entry) {
        PyErr_NoMemory();
        return NULL;
    }
    size_t bytes = strlen(name) + 1;
    char *copy = PyMem_Malloc(bytes);
    if (!copy) {
        PyMem_Free(entry);
        PyErr_NoMemory();
        return NULL;
    }
    memcpy(copy, name, bytes);
    Py_INCREF(target);
    entry->hook.target = target;
    entry->hook.name = copy;
    entry->hook.role = (uint16_t)role;
    entry->hook.flags = flags;
    if (entry_prepare(entry) < 0) {
        entry_free(entry);
        return NULL;
    }
    return entry;
}

/* The entry of `target`, made and registered when there is none. Making one runs Python code, in
 * which another thread may hook: nothing is reserved until that is done. */
static hook_entry *entry_of(PyObject *target, const char *name, tocsin_role role, uint16_t flags)
{
    hook_entry *known = tocsin_hook_find(target);
    if (known) {
        return known;
    }
    hook_entry *made = entry_new(target, name, role, flags);
    if (!made) {
        return NULL;
    }
    known = tocsin_hook_find(target);
    if (known || registry_reserve() < 0) {
        entry_free(made);
        return known;
    }
    made->hook.index = registry.count;
    registry.entries[registry.count++] = made;
    table_insert(made);
    return made;
}

static PyObject *hook_callable(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *target;
    const char *name, *role_name;
    unsigned short flags;
    if (!PyArg_ParseTuple(args, "OssH:hook", &target, &name, &role_name, &flags)) {
        return NULL;
    }
    tocsin_role role = tocsin_role_from_name(role_name);
    if (role == TOCSIN_ROLE_NONE && *role_name) {
        return PyErr_Format(PyExc_ValueError, "no such role: %.100s", role_name);
    }
    hook_entry *entry = entry_of(target, name, role, flags);
    if (!entry || entry_enable(entry) < 0) {
        return NULL;
    }
    return PyLong_FromUnsignedLong(entry->hook.index);
}

static PyObject *unhook(PyObject *module, PyObject *argument)
{
    (void)module;
    unsigned long index = PyLong_AsUnsignedLong(argument);
    if (index == (unsigned long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    if (index >= registry.count) {
        PyErr_SetString(PyExc_IndexError, "no such hook");
        return NULL;
    }
    hook_entry *entry = registry.entries[index];
    if (entry->active) {
        if (entry->kind != HOOK_CODE) {
            tocsin_hook_field_disable(entry);
        } else if (tocsin_hook_code_disable(entry) < 0) {
            return NULL;
        }
        entry->active = false;
    }
    Py_RETURN_NONE;
}

static PyObject *list_hooks(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    static const char *const kinds[] = {"builtin", "descriptor", "function", "code"};
    PyObject *list = PyList_New(0);
    if (!list) {
        return NULL;
    }
    for (uint32_t i = 0; i < registry.count; i++) {
        const hook_entry *entry = registry.entries[i];
        PyObject *item = Py_BuildValue("(IsssO)", i, entry->hook.name,
                                       tocsin_role_name((tocsin_role)entry->hook.role),
                                       kinds[entry->kind], entry->active ? Py_True : Py_False);
        if (!item || PyList_Append(list, item) < 0) {
            Py_XDECREF(item);
            Py_DECREF(list);
            return NULL;
        }
        Py_DECREF(item);
    }
    return list;
}

/* ---- the re-entry flag and the pause from Python ------------------------------------------- */

static PyObject *hold(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyBool_FromLong(tocsin_hook_hold());
}

static PyObject *release(PyObject *module, PyObject *argument)
{
    (void)module;
    tocsin_hook_release(argument == Py_True);
    Py_RETURN_NONE;
}

static PyObject *pause_all(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    atomic_fetch_add_explicit(&paused, 1, memory_order_relaxed);
    Py_RETURN_NONE;
}

static PyObject *resume_all(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    if (atomic_load_explicit(&paused, memory_order_relaxed) > 0) {
        atomic_fetch_sub_explicit(&paused, 1, memory_order_relaxed);
    }
    Py_RETURN_NONE;
}

int tocsin_hook_module_exec(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"hook", hook_callable, METH_VARARGS,
         PyDoc_STR("hook(callable, name, role, flags) -> index")},
        {"unhook", unhook, METH_O, PyDoc_STR("unhook(index): restore the callable")},
        {"hooks", list_hooks, METH_NOARGS,
         PyDoc_STR("hooks() -> [(index, name, role, kind, active)]")},
        {"hold", hold, METH_NOARGS, PyDoc_STR("hold() -> bool: set the re-entry flag")},
        {"release", release, METH_O, PyDoc_STR("release(held_before)")},
        {"pause", pause_all, METH_NOARGS, PyDoc_STR("observe no call until resume()")},
        {"resume", resume_all, METH_NOARGS, PyDoc_STR("undo one pause()")},
        {NULL, NULL, 0, NULL}};
    if (PyModule_AddFunctions(module, methods) < 0 ||
        PyModule_AddIntConstant(module, "ARGUMENTS", TOCSIN_HOOK_ARGUMENTS) < 0 ||
        PyModule_AddIntConstant(module, "METHOD", TOCSIN_HOOK_METHOD) < 0 ||
        PyModule_AddIntConstant(module, "MODULE_CALL", TOCSIN_HOOK_MODULE_CALL) < 0 ||
        PyModule_AddIntConstant(module, "OUTERMOST", TOCSIN_HOOK_OUTERMOST) < 0 ||
        PyModule_AddIntConstant(module, "OUTERMOST_SELF", TOCSIN_HOOK_OUTERMOST_SELF) < 0 ||
        PyModule_AddIntConstant(module, "HOLD", TOCSIN_HOOK_HOLD) < 0 ||
        PyModule_AddIntConstant(module, "BOUND", TOCSIN_HOOK_BOUND) < 0) {
        return -1;
    }
    return 0;
}
