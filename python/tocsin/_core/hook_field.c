/* hook_field.c - intercepting callables through the vectorcall field of their objects.
 *
 * Writing the field changes neither identity nor hash nor any attribute of the object.
 *
 * C callables: only those of the calling convention METH_VARARGS (with or without keywords), which
 * torch's are; for the other conventions the interpreter has instructions that call the C function
 * itself. Builtins of that convention have no vectorcall of their own: the field is NULL and the
 * type's tp_call is used. Limit: a method descriptor is seen when it is called as x.f(a) or
 * T.f(x, a); a bound method object (f = x.f; f(a), and x.f(*args)) has the C function in it and is
 * not. The methods of pybind11's classes are builtins of another convention, but reached through
 * method objects, which use the field (TOCSIN_HOOK_BOUND).
 *
 * Python functions: on 3.10 and from 3.12 on, where the interpreter honours the field; on 3.11 only
 * those that are called through a type slot (hook.c chooses).
 */
#include "hook_engine.h"

#include <assert.h>

/* Call a METH_VARARGS builtin as the interpreter does: with a tuple and a dict. */
static PyObject *call_by_type(PyObject *callable, PyObject *const *args, size_t nargsf,
                              PyObject *kwnames)
{
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    Py_ssize_t keyword_count = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    PyObject *positional = PyTuple_New(nargs);
    PyObject *keywords = NULL, *result = NULL;
    if (!positional) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < nargs; i++) {
        Py_INCREF(args[i]);
        PyTuple_SET_ITEM(positional, i, args[i]);
    }
    if (keyword_count > 0 && !(keywords = PyDict_New())) {
        goto done;
    }
    for (Py_ssize_t i = 0; i < keyword_count; i++) {
        if (PyDict_SetItem(keywords, PyTuple_GET_ITEM(kwnames, i), args[nargs + i]) < 0) {
            goto done;
        }
    }
    if (Py_EnterRecursiveCall(" while calling a Python object") == 0) {
        result = Py_TYPE(callable)->tp_call(callable, positional, keywords);
        Py_LeaveRecursiveCall();
    }
done:
    Py_DECREF(positional);
    Py_XDECREF(keywords);
    return result;
}

static PyObject *hooked_vectorcall(PyObject *callable, PyObject *const *args, size_t nargsf,
                                   PyObject *kwnames)
{
    hook_entry *entry = tocsin_hook_find(callable);
    assert(entry);
    return tocsin_hook_run(entry, entry->original, callable, args, nargsf, kwnames);
}

static PyObject *hooked_function(PyObject *callable, PyObject *const *args, size_t nargsf,
                                 PyObject *kwnames)
{
    if (tocsin_hook_stack_exhausted()) {
        return NULL;
    }
#if PY_VERSION_HEX >= 0x030C0000
    PyThreadState *thread = tocsin_hook_uncounted_begin();
    PyObject *result = hooked_vectorcall(callable, args, nargsf, kwnames);
    tocsin_hook_uncounted_end(thread);
    return result;
#else
    return hooked_vectorcall(callable, args, nargsf, kwnames);
#endif
}

/* A vectorcall field, and how to write it: the interpreter must forget what it has cached about a
 * Python function. */
static vectorcallfunc field_get(const hook_entry *entry)
{
    PyObject *target = entry->hook.target;
    switch (entry->kind) {
    case HOOK_BUILTIN:
        return ((PyCFunctionObject *)target)->vectorcall;
    case HOOK_DESCRIPTOR:
        return ((PyMethodDescrObject *)target)->vectorcall;
    default:
        assert(entry->kind == HOOK_FUNCTION);
        return ((PyFunctionObject *)target)->vectorcall;
    }
}

static void field_set(const hook_entry *entry, vectorcallfunc value)
{
    PyObject *target = entry->hook.target;
    switch (entry->kind) {
    case HOOK_BUILTIN:
        ((PyCFunctionObject *)target)->vectorcall = value;
        return;
    case HOOK_DESCRIPTOR:
        ((PyMethodDescrObject *)target)->vectorcall = value;
        return;
    default:
        assert(entry->kind == HOOK_FUNCTION);
#if PY_VERSION_HEX >= 0x030C0000
        PyFunction_SetVectorcall((PyFunctionObject *)target, value);
#else
        ((PyFunctionObject *)target)->vectorcall = value;
#endif
    }
}

static int convention_check(int flags, const char *kind)
{
    if ((flags & ~METH_KEYWORDS & ~METH_CLASS & ~METH_STATIC & ~METH_COEXIST) == METH_VARARGS) {
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "cannot hook a %s that is not METH_VARARGS", kind);
    return -1;
}

int tocsin_hook_builtin_prepare(hook_entry *entry)
{
    entry->kind = HOOK_BUILTIN;
    entry->original = ((PyCFunctionObject *)entry->hook.target)->vectorcall;
    if ((entry->hook.flags & TOCSIN_HOOK_BOUND) && entry->original) {
        return 0;
    }
    entry->original = call_by_type;
    return convention_check(PyCFunction_GET_FLAGS(entry->hook.target), "builtin");
}

int tocsin_hook_descriptor_prepare(hook_entry *entry)
{
    PyMethodDescrObject *descriptor = (PyMethodDescrObject *)entry->hook.target;
    entry->kind = HOOK_DESCRIPTOR;
    entry->original = descriptor->vectorcall;
    return convention_check(descriptor->d_method->ml_flags, "method descriptor");
}

int tocsin_hook_function_check(hook_entry *entry)
{
    const int exotic = CO_GENERATOR | CO_COROUTINE | CO_ITERABLE_COROUTINE | CO_ASYNC_GENERATOR;
    PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(entry->hook.target);
    if (code->co_flags & exotic) {
        PyErr_SetString(PyExc_TypeError, "cannot hook a generator or a coroutine function");
        return -1;
    }
    PyObject *names = PyObject_GetAttrString((PyObject *)code, "co_varnames");
    if (!names) {
        return -1;
    }
    PyObject *arg_names = PyTuple_GetSlice(names, 0, code->co_argcount + code->co_kwonlyargcount);
    Py_DECREF(names);
    if (!arg_names) {
        return -1;
    }
    Py_XSETREF(entry->hook.arg_names, arg_names); /* hooked again, maybe with other code */
    entry->hook.positional_count = (uint32_t)code->co_argcount;
    return 0;
}

int tocsin_hook_function_prepare(hook_entry *entry)
{
    entry->kind = HOOK_FUNCTION;
    entry->original = ((PyFunctionObject *)entry->hook.target)->vectorcall;
    return tocsin_hook_function_check(entry);
}

void tocsin_hook_field_enable(hook_entry *entry)
{
    entry->field = field_get(entry);
    field_set(entry, entry->kind == HOOK_FUNCTION ? hooked_function : hooked_vectorcall);
}

void tocsin_hook_field_disable(hook_entry *entry)
{
    field_set(entry, entry->field);
}
