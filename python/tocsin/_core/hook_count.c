/* hook_count.c - the smallest observer: it counts calls. It serves the engine's tests and measures
 * what interception alone costs.
 *
 * Cost: one increment on enter and one on leave, in the field that a hook has for its observer:
 * calls in the low 32 bits, exceptions in the high.
 */
#include "hook_engine.h"

static uint64_t count_enter(tocsin_hook *hook, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames)
{
    (void)args;
    (void)nargs;
    (void)kwnames;
    hook->observer++;
    return 1;
}

static void count_leave(tocsin_hook *hook, uint64_t token, PyObject *const *args, Py_ssize_t nargs,
                        PyObject *kwnames, PyObject *result, PyObject *exception_type)
{
    (void)token;
    (void)args;
    (void)nargs;
    (void)kwnames;
    (void)result;
    if (exception_type) {
        hook->observer += UINT64_C(1) << 32;
    }
}

static PyObject *count_start(PyObject *module, PyObject *argument)
{
    (void)module;
    static const tocsin_observer counter = {count_enter, count_leave};
    int on = PyObject_IsTrue(argument);
    if (on < 0) {
        return NULL;
    }
    tocsin_hook_observe(on ? &counter : NULL);
    Py_RETURN_NONE;
}

/* Add the hook's counts to those under its name. 0, or -1 with an exception. */
static int counts_add(PyObject *counts, const tocsin_hook *hook)
{
    unsigned long long calls = hook->observer & UINT32_MAX;
    unsigned long long exceptions = hook->observer >> 32;
    PyObject *before = PyDict_GetItemString(counts, hook->name); /* borrowed */
    if (before) {
        unsigned long long calls_before, exceptions_before;
        if (!PyArg_ParseTuple(before, "KK", &calls_before, &exceptions_before)) {
            return -1;
        }
        calls += calls_before;
        exceptions += exceptions_before;
    }
    PyObject *pair = Py_BuildValue("(KK)", calls, exceptions);
    int result = pair ? PyDict_SetItemString(counts, hook->name, pair) : -1;
    Py_XDECREF(pair);
    return result;
}

/* counts() -> {name: (calls, exceptions)} of the names that were called; starts again from 0. */
static PyObject *count_read(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    PyObject *counts = PyDict_New();
    for (uint32_t i = 0; counts && i < tocsin_hook_count(); i++) {
        tocsin_hook *hook = tocsin_hook_at(i);
        if (hook->observer != 0 && counts_add(counts, hook) < 0) {
            Py_CLEAR(counts);
        }
        hook->observer = 0;
    }
    return counts;
}

int tocsin_hook_count_module_exec(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"count", count_start, METH_O, PyDoc_STR("count(on): count hooked calls, nothing else")},
        {"counts", count_read, METH_NOARGS, PyDoc_STR("counts() -> {name: (calls, exceptions)}")},
        {NULL, NULL, 0, NULL}};
    return PyModule_AddFunctions(module, methods);
}
