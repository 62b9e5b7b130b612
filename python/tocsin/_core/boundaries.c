/* boundaries.c - tensors that pass the boundaries of calls, as states of the module they pass.
 *
 * For comparing two runs. What is recorded depends on the mode: outputs of modules and the
 * gradients that come back to them; also inputs, and what collectives take and give; also inputs
 * and outputs of every hooked function. A boundary is named after its module, a function's after
 * the module it is called in. Gradients are seen by a hook on the tensor, which autograd drops with
 * the graph.
 *
 * Nothing is kept of a tensor. Tensors are found in tuples, lists and dicts, nested NESTING_MAX
 * deep. Cost: one pass over each tensor's memory, on the CPU; one hook of autograd an output.
 */
#include "boundaries.h"

#include "pieces.h"

#include <assert.h>

enum { TENSORS_MAX = 64, NESTING_MAX = 4, ITEMS_MAX = 256 };

static const struct {
    const char *name;
    unsigned what;
} modes[] = {
    {"online", 0},
    {"trusted", BOUNDARIES_OUTPUTS | BOUNDARIES_GRADIENTS},
    {"full",
     BOUNDARIES_OUTPUTS | BOUNDARIES_GRADIENTS | BOUNDARIES_INPUTS | BOUNDARIES_COLLECTIVES},
    {"drill", BOUNDARIES_OUTPUTS | BOUNDARIES_GRADIENTS | BOUNDARIES_INPUTS |
                  BOUNDARIES_COLLECTIVES | BOUNDARIES_FUNCTIONS},
};

unsigned boundaries_what;

bool boundaries_choose(const char *mode)
{
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(mode, modes[i].name) == 0) {
            boundaries_what = modes[i].what;
            return true;
        }
    }
    return false;
}

/* ---- one tensor ------------------------------------------------------------------------------ */

typedef struct tensor_passage { /* what passes which boundary */
    tocsin_id variable;
    tocsin_attribute attribute;
    tocsin_moment moment;
    bool hook; /* ask autograd for the gradient */
    int left;  /* tensors that are still looked at */
} tensor_passage;

static void record_tensor(const tensor_passage *passage, PyObject *tensor)
{
    tensor_meta meta;
    if (!tocsin_recorder_looks_closely(observe_recorder) || !tensor_meta_read(tensor, &meta))
        return;
    tocsin_tensor_view view = {.data = meta.data,
                               .dtype = (tocsin_dtype)meta.dtype,
                               .ndim = meta.ndim,
                               .shape = meta.sizes,
                               .strides = meta.strides};
    tocsin_sample sample = {.variable = passage->variable,
                            .attribute = passage->attribute,
                            .moment = passage->moment,
                            .flags = TOCSIN_STATE_PRESENT,
                            .lr = Py_NAN,
                            .dtype = (tocsin_dtype)meta.dtype,
                            .ndim = meta.ndim,
                            .shape = meta.sizes,
                            .view = meta.readable ? &view : NULL};
    sample.flags |= meta.requires_grad ? TOCSIN_STATE_REQUIRES_GRAD : 0u;
    tocsin_recorder_sample(observe_recorder, &sample, NULL);
    tensor_meta_release(&meta);
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* What a gradient hook remembers, as one Python int: the variable, and the recorder's generation,
 * for a child may run the backward pass of its parent's forward. */
static PyObject *remember(tocsin_id variable)
{
    uint64_t generation = tocsin_recorder_generation(observe_recorder);
    return PyLong_FromUnsignedLongLong(generation << 32 | variable);
}

/* The hook: called by autograd with the gradient, in the thread that runs backward. */
static PyObject *gradient_arrived(PyObject *self, PyObject *gradient)
{
    unsigned long long remembered = PyLong_AsUnsignedLongLong(self);
    bool held = tocsin_hook_hold();
    if (observe_recorder != NULL && tocsin_recorder_writer(observe_recorder) != NULL &&
        remembered >> 32 == tocsin_recorder_generation(observe_recorder) &&
        tensor_is_exact(gradient)) {
        tensor_passage passage = {.variable = (tocsin_id)remembered,
                                  .attribute = TOCSIN_ATTRIBUTE_GRAD_OUTPUT,
                                  .moment = TOCSIN_MOMENT_EXIT};
        record_tensor(&passage, gradient);
    }
    tocsin_hook_release(held);
    Py_RETURN_NONE;
}

static PyMethodDef gradient_method = {"tocsin_gradient", gradient_arrived, METH_O, NULL};

/* A leaf keeps its hooks for good, and its gradient is read at the step anyway. */
static void ask_for_gradient(tocsin_id variable, PyObject *tensor)
{
    tensor_meta meta;
    if (!tocsin_recorder_looks_closely(observe_recorder) || !tensor_meta_read(tensor, &meta))
        return;
    bool wanted = meta.requires_grad && meta.has_grad_fn;
    tensor_meta_release(&meta);
    PyObject *self = wanted ? remember(variable) : NULL;
    PyObject *hook = self == NULL ? NULL : PyCFunction_New(&gradient_method, self);
    PyObject *handle =
        hook == NULL ? NULL : PyObject_CallMethod(tensor, "register_hook", "O", hook);
    Py_XDECREF(handle);
    Py_XDECREF(hook);
    Py_XDECREF(self);
    observe_clear_error();
}

/* ---- what passes ----------------------------------------------------------------------------- */

static void record_value(tensor_passage *passage, PyObject *value, int nesting);

static void record_sequence(tensor_passage *passage, PyObject *sequence, int nesting)
{
    Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence);
    for (Py_ssize_t i = 0; i < count && i < ITEMS_MAX; i++)
        record_value(passage, PySequence_Fast_GET_ITEM(sequence, i), nesting);
}

static void record_dict(tensor_passage *passage, PyObject *dict, int nesting)
{
    Py_ssize_t at = 0;
    PyObject *key, *value;
    while (PyDict_Next(dict, &at, &key, &value))
        record_value(passage, value, nesting);
}

static void record_value(tensor_passage *passage, PyObject *value, int nesting)
{
    if (passage->left == 0 || nesting == 0)
        return;
    if (tensor_is_exact(value)) {
        passage->left--;
        record_tensor(passage, value);
        if (passage->hook)
            ask_for_gradient(passage->variable, value);
    } else if (piece_is(value)) {
        passage->left--;
        piece_record(value, passage->variable, passage->attribute, passage->moment);
    } else if (PyTuple_Check(value) || PyList_Check(value)) {
        record_sequence(passage, value, nesting - 1);
    } else if (PyDict_Check(value)) {
        record_dict(passage, value, nesting - 1);
    }
}

/* ---- calls ----------------------------------------------------------------------------------- */

static bool is_module(const tocsin_hook *hook)
{
    return (hook->flags & TOCSIN_HOOK_MODULE_CALL) != 0;
}

bool boundaries_want(const tocsin_hook *hook)
{
    if (boundaries_what == 0)
        return false;
    if (is_module(hook))
        return true;
    if (hook->role == TOCSIN_ROLE_COLLECTIVE)
        return (boundaries_what & BOUNDARIES_COLLECTIVES) != 0;
    if (strstr(hook->name, "empty") != NULL)
        return false; /* returns what happened to lie there */
    return (boundaries_what & BOUNDARIES_FUNCTIONS) != 0 &&
           (hook->role == TOCSIN_ROLE_NONE || hook->role == TOCSIN_ROLE_LOSS ||
            hook->role == TOCSIN_ROLE_USER);
}

tocsin_id boundaries_name(tocsin_trace_writer *writer, const tocsin_hook *hook, PyObject *self,
                          tocsin_id around)
{
    tocsin_id name = is_module(hook) && self != NULL ? variables_boundary(writer, self) : around;
    return name != 0 ? name
                     : tocsin_trace_define_variable(writer, is_module(hook) ? "" : hook->name,
                                                    TOCSIN_VARIABLE_BOUNDARY, "");
}

void boundaries_enter(const tocsin_hook *hook, tocsin_id variable, PyObject *const *args,
                      Py_ssize_t nargs, PyObject *kwnames)
{
    if ((boundaries_what & BOUNDARIES_INPUTS) == 0)
        return;
    tensor_passage passage = {.variable = variable,
                              .attribute = TOCSIN_ATTRIBUTE_INPUT,
                              .moment = TOCSIN_MOMENT_ENTER,
                              .left = TENSORS_MAX};
    Py_ssize_t count = nargs + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
    for (Py_ssize_t i = is_module(hook) ? 1 : 0; i < count; i++)
        record_value(&passage, args[i], NESTING_MAX);
}

void boundaries_leave(const tocsin_hook *hook, tocsin_id variable, PyObject *const *args,
                      Py_ssize_t nargs, PyObject *kwnames, PyObject *result)
{
    tensor_passage passage = {.variable = variable,
                              .attribute = TOCSIN_ATTRIBUTE_OUTPUT,
                              .moment = TOCSIN_MOMENT_EXIT,
                              .hook =
                                  is_module(hook) && (boundaries_what & BOUNDARIES_GRADIENTS) != 0,
                              .left = TENSORS_MAX};
    record_value(&passage, result, NESTING_MAX);
    /* A collective fills its arguments; one that has not ended yet returns what to wait for. */
    Py_ssize_t count = nargs + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
    for (Py_ssize_t i = 0; hook->role == TOCSIN_ROLE_COLLECTIVE && result == Py_None && i < count;
         i++)
        record_value(&passage, args[i], NESTING_MAX);
}
