/* hook_code.c - intercepting Python functions by their __code__ (CPython 3.11).
 *
 * CPython 3.11 ignores the vectorcall field of Python functions when Python code calls them. While
 * hooked, such a function runs the code that tocsin.gate assembles: same name, signature, flags and
 * place, and a body that hands all parameters to a *gate*, a C callable in its constants. The gate
 * lets the observer see the call and runs the *body*: a second function object around the original
 * code, with the original globals, closure and attribute dictionary.
 *
 * The frame of the gate code is invisible to tracebacks, warnings and sys._getframe (see gate.py)
 * and does not count against the recursion limit.
 *
 * Invariant: a gate is called with the parameters in the order of co_varnames: positional,
 * keyword-only, the tuple of *args, the dict of **kwargs.
 */
#include "hook_engine.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#define SPREAD_ON_STACK 24

typedef struct hook_gate {
    PyObject ob_base;
    vectorcallfunc vectorcall;
    hook_entry *entry;
    PyObject *body;          /* the function that runs the original code */
    PyObject *kw_only_names; /* tuple, may be empty */
    Py_ssize_t positional_count;
    Py_ssize_t flat_count; /* parameters in all, *args and **kwargs as one each */
    bool has_var_args;
    bool has_var_keywords;
} hook_gate;

/* ---- calling through a gate ---------------------------------------------------------------- */

static PyObject *call_body(const hook_gate *gate, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kwnames)
{
    vectorcallfunc original = ((PyFunctionObject *)gate->body)->vectorcall;
    return tocsin_hook_run(gate->entry, original, gate->body, args, (size_t)nargs, kwnames);
}

/* torch.fx runs a function's code with placeholders where *args and **kwargs would be. */
static PyObject *call_flat(const hook_gate *gate, PyObject *const *args)
{
    PyObject *module = PyImport_ImportModule("tocsin.gate");
    if (!module) {
        return NULL;
    }
    PyObject *flat = PyTuple_New(gate->flat_count);
    PyObject *result = NULL;
    if (flat) {
        for (Py_ssize_t i = 0; i < gate->flat_count; i++) {
            Py_INCREF(args[i]);
            PyTuple_SET_ITEM(flat, i, args[i]);
        }
        result = PyObject_CallMethod(module, "run_flat", "OO", gate->body, flat);
        Py_DECREF(flat);
    }
    Py_DECREF(module);
    return result;
}

/* The keyword names of a call: the keyword-only parameters, then the keys of **kwargs. */
static PyObject *keyword_names(const hook_gate *gate, PyObject *var_keywords)
{
    Py_ssize_t kw_only_count = PyTuple_GET_SIZE(gate->kw_only_names);
    Py_ssize_t extra_count = var_keywords ? PyDict_GET_SIZE(var_keywords) : 0;
    if (extra_count == 0) {
        PyObject *names = kw_only_count ? gate->kw_only_names : NULL;
        Py_XINCREF(names);
        return names;
    }
    PyObject *names = PyTuple_New(kw_only_count + extra_count);
    if (!names) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < kw_only_count; i++) {
        PyObject *name = PyTuple_GET_ITEM(gate->kw_only_names, i);
        Py_INCREF(name);
        PyTuple_SET_ITEM(names, i, name);
    }
    PyObject *key, *value;
    Py_ssize_t position = 0;
    for (Py_ssize_t i = kw_only_count; PyDict_Next(var_keywords, &position, &key, &value); i++) {
        Py_INCREF(key);
        PyTuple_SET_ITEM(names, i, key);
    }
    return names;
}

/* Call the body with *args and **kwargs spread; all values are kept alive by the gate's frame. */
static PyObject *call_spread(const hook_gate *gate, PyObject *const *args)
{
    Py_ssize_t kw_only_count = PyTuple_GET_SIZE(gate->kw_only_names);
    PyObject *const *rest = args + gate->positional_count + kw_only_count;
    PyObject *var_args = gate->has_var_args ? *rest++ : NULL;
    PyObject *var_keywords = gate->has_var_keywords ? *rest : NULL;
    if ((var_args && !PyTuple_CheckExact(var_args)) ||
        (var_keywords && !PyDict_CheckExact(var_keywords))) {
        return call_flat(gate, args);
    }
    Py_ssize_t var_count = var_args ? PyTuple_GET_SIZE(var_args) : 0;
    Py_ssize_t extra_count = var_keywords ? PyDict_GET_SIZE(var_keywords) : 0;
    Py_ssize_t nargs = gate->positional_count + var_count;
    PyObject *on_stack[SPREAD_ON_STACK];
    PyObject **spread = on_stack;
    size_t total_count = (size_t)(nargs + kw_only_count + extra_count);
    if (total_count > SPREAD_ON_STACK &&
        !(spread = PyMem_Malloc(total_count * sizeof(PyObject *)))) {
        return PyErr_NoMemory();
    }
    memcpy(spread, args, (size_t)gate->positional_count * sizeof(PyObject *));
    if (var_count) {
        memcpy(spread + gate->positional_count, &PyTuple_GET_ITEM(var_args, 0),
               (size_t)var_count * sizeof(PyObject *));
    }
    memcpy(spread + nargs, args + gate->positional_count,
           (size_t)kw_only_count * sizeof(PyObject *));
    PyObject *key, **next = spread + nargs + kw_only_count;
    for (Py_ssize_t position = 0;
         extra_count && PyDict_Next(var_keywords, &position, &key, next);) {
        next++;
    }
    assert((size_t)(next - spread) == total_count);
    PyObject *names = keyword_names(gate, var_keywords);
    PyObject *result = PyErr_Occurred() ? NULL : call_body(gate, spread, nargs, names);
    Py_XDECREF(names);
    if (spread != on_stack) {
        PyMem_Free(spread);
    }
    return result;
}

static PyObject *gate_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf,
                                 PyObject *kwnames)
{
    const hook_gate *gate = (const hook_gate *)self;
    if (PyVectorcall_NARGS(nargsf) != gate->flat_count || kwnames) {
        PyErr_SetString(PyExc_TypeError, "a gate is called by the code that holds it only");
        return NULL;
    }
    if (tocsin_hook_stack_exhausted()) {
        return NULL;
    }
    PyThreadState *thread = tocsin_hook_uncounted_begin();
    bool as_is = gate->flat_count == gate->positional_count;
    PyObject *result =
        as_is ? call_body(gate, args, gate->flat_count, NULL) : call_spread(gate, args);
    tocsin_hook_uncounted_end(thread);
    return result;
}

/* ---- the type ------------------------------------------------------------------------------ */

static void gate_dealloc(PyObject *self)
{
    hook_gate *gate = (hook_gate *)self;
    Py_XDECREF(gate->body);
    Py_XDECREF(gate->kw_only_names);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *gate_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<tocsin gate of %R>", ((hook_gate *)self)->body);
}

static PyTypeObject gate_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tocsin._core.Gate",
    .tp_basicsize = sizeof(hook_gate),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(hook_gate, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_dealloc = gate_dealloc,
    .tp_repr = gate_repr,
};

/* Takes over the reference to body. */
static PyObject *gate_new(hook_entry *entry, PyObject *body)
{
    const PyCodeObject *code = (const PyCodeObject *)entry->code;
    hook_gate *gate = PyObject_New(hook_gate, &gate_type);
    if (!gate) {
        Py_DECREF(body);
        return NULL;
    }
    gate->vectorcall = gate_vectorcall;
    gate->entry = entry;
    gate->body = body;
    gate->positional_count = code->co_argcount;
    gate->has_var_args = (code->co_flags & CO_VARARGS) != 0;
    gate->has_var_keywords = (code->co_flags & CO_VARKEYWORDS) != 0;
    gate->flat_count =
        code->co_argcount + code->co_kwonlyargcount + gate->has_var_args + gate->has_var_keywords;
    gate->kw_only_names = PyTuple_GetSlice(entry->hook.arg_names, code->co_argcount,
                                           code->co_argcount + code->co_kwonlyargcount);
    if (!gate->kw_only_names) {
        Py_DECREF(gate);
        return NULL;
    }
    return (PyObject *)gate;
}

/* ---- interception -------------------------------------------------------------------------- */

int tocsin_hook_code_prepare(hook_entry *entry)
{
    PyObject *function = entry->hook.target;
    entry->kind = HOOK_CODE;
    if (tocsin_hook_function_check(entry) < 0) {
        return -1;
    }
    Py_XSETREF(entry->code, PyFunction_GET_CODE(function));
    Py_INCREF(entry->code);
    PyObject *module = PyImport_ImportModule("tocsin.gate");
    if (!module) {
        return -1;
    }
    PyObject *body = PyObject_CallMethod(module, "make_body", "O", function);
    PyObject *gate = body ? gate_new(entry, body) : NULL;
    PyObject *code = gate ? PyObject_CallMethod(module, "assemble", "OO", entry->code, gate) : NULL;
    Py_DECREF(module);
    if (!code) {
        Py_XDECREF(gate);
        return -1;
    }
    Py_XSETREF(entry->gate, gate);
    Py_XSETREF(entry->gate_code, code);
    return 0;
}

int tocsin_hook_code_enable(hook_entry *entry)
{
    PyObject *function = entry->hook.target;
    /* Someone may have given the function other code since it was unhooked. */
    if (PyFunction_GET_CODE(function) != entry->code && tocsin_hook_code_prepare(entry) < 0) {
        return -1;
    }
    return PyObject_SetAttrString(function, "__code__", entry->gate_code);
}

int tocsin_hook_code_disable(hook_entry *entry)
{
    if (PyFunction_GET_CODE(entry->hook.target) != entry->gate_code) {
        return 0; /* replaced by someone else: theirs stays */
    }
    return PyObject_SetAttrString(entry->hook.target, "__code__", entry->code);
}

/* original(function): the function that Dynamo shall trace in place of a hooked one: itself, or the
 * body behind its gate, with the defaults that the hooked function has now. */
static PyObject *original_of(PyObject *module, PyObject *function)
{
    (void)module;
    const hook_entry *entry = PyFunction_Check(function) ? tocsin_hook_find(function) : NULL;
    if (!entry || entry->kind != HOOK_CODE || !entry->active) {
        Py_INCREF(function);
        return function;
    }
    PyObject *body = ((hook_gate *)entry->gate)->body;
    PyObject *defaults = PyFunction_GET_DEFAULTS(function);
    PyObject *kw_defaults = PyFunction_GET_KW_DEFAULTS(function);
    if ((PyFunction_GET_DEFAULTS(body) != defaults &&
         PyFunction_SetDefaults(body, defaults ? defaults : Py_None) < 0) ||
        (PyFunction_GET_KW_DEFAULTS(body) != kw_defaults &&
         PyFunction_SetKwDefaults(body, kw_defaults ? kw_defaults : Py_None) < 0)) {
        return NULL;
    }
    Py_INCREF(body);
    return body;
}

int tocsin_hook_code_module_exec(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"original", original_of, METH_O, PyDoc_STR("the function that holds the original code")},
        {NULL, NULL, 0, NULL}};
    return PyType_Ready(&gate_type) < 0 ? -1 : PyModule_AddFunctions(module, methods);
}
