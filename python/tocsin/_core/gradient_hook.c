/* gradient_hook.c - what autograd calls when a gradient has arrived.
 *
 * Hooks are visible: torch warns of each when its tensor is pickled, unless it says that it need
 * not be saved, which a function in C cannot say. So they are objects of a type of ours. Setting
 * one is a function of torch, which a __torch_function__ mode of the user's would see: where there
 * is one, modes are switched off meanwhile.
 *
 * Invariant: a hook remembers the recording that it was made in, for a child may run the backward
 * pass of its parent's forward. Cost: 1 us to set one, 0.1 us to call one.
 */
#include "gradient_hook.h"

typedef struct gradient_hook {
    PyObject_HEAD tocsin_id variable;
    uint32_t generation;
    gradient_told *told;
} gradient_hook;

static PyObject *mode_is_enabled, *set_unseen;

static bool is_recorded(const gradient_hook *hook)
{
    return observe_recorder != NULL && tocsin_recorder_writer(observe_recorder) != NULL &&
           hook->generation == tocsin_recorder_generation(observe_recorder);
}

/* In the thread that runs backward. */
static PyObject *call(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    const gradient_hook *hook = (const gradient_hook *)self;
    PyObject *tensor;
    (void)keywords;
    if (!PyArg_UnpackTuple(arguments, "gradient_hook", 1, 1, &tensor))
        return NULL;
    uint64_t begin = observe_cost_begin();
    bool held = tocsin_hook_hold();
    if (is_recorded(hook))
        hook->told(hook->variable, tensor);
    tocsin_hook_release(held);
    observe_cost_end(begin);
    Py_RETURN_NONE;
}

static PyObject *unserializable(PyObject *self, void *closure)
{
    (void)self;
    (void)closure;
    Py_RETURN_TRUE;
}

static PyGetSetDef attributes[] = {
    {"__torch_unserializable__", unserializable, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject hook_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tocsin._core.GradientHook",
    .tp_basicsize = sizeof(gradient_hook),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_call = call,
    .tp_getset = attributes,
};

PyObject *gradient_hook_new(tocsin_id variable, gradient_told *told)
{
    gradient_hook *hook = PyObject_New(gradient_hook, &hook_type);
    if (hook == NULL)
        return NULL;
    hook->variable = variable;
    hook->generation = tocsin_recorder_generation(observe_recorder);
    hook->told = told;
    return (PyObject *)hook;
}

void gradient_hook_set(PyObject *tensor, PyObject *hook)
{
    PyObject *enabled = mode_is_enabled == NULL ? NULL : PyObject_CallNoArgs(mode_is_enabled);
    PyObject *done = enabled == Py_True
                         ? PyObject_CallFunctionObjArgs(set_unseen, tensor, hook, NULL)
                         : PyObject_CallMethod(tensor, "register_hook", "O", hook);
    Py_XDECREF(done);
    Py_XDECREF(enabled);
    observe_clear_error();
}

PyObject *gradient_hooks_unseen(PyObject *module, PyObject *arguments)
{
    PyObject *enabled, *set;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OO:gradient_hooks_unseen", &enabled, &set))
        return NULL;
    Py_XSETREF(mode_is_enabled, Py_NewRef(enabled));
    Py_XSETREF(set_unseen, Py_NewRef(set));
    Py_RETURN_NONE;
}

int gradient_hook_module_exec(PyObject *module)
{
    (void)module;
    return PyType_Ready(&hook_type);
}
