/* boundaries.c - tensors that pass the boundaries of calls, as states of the module they pass.
 *
 * For comparing two runs. What is recorded depends on the mode: outputs of modules and the
 * gradients that come back to them; also inputs, and what collectives take and give; also inputs
 * and outputs of every hooked function. A boundary is named after its module, a function's after
 * the module it is called in. Gradients are seen by a hook on the tensor, which autograd drops with
 * the graph.
 *
 * Nothing is kept of a tensor. Tensors are found in tuples, lists, dicts and dataclasses, nested
 * NESTING_MAX deep. Cost: one pass over each tensor's memory, on the CPU; one hook of autograd an
 * output.
 */
#include "boundaries.h"

#include "collectives.h"
#include "digest_cache.h"
#include "gradient_hook.h"
#include "pieces.h"

#include <assert.h>

enum {
    TENSORS_MAX = 64,
    NESTING_MAX = 4,
    ITEMS_MAX = 256,
    NAMED_MAX = 128, /* open calls of modules that are told apart */
};

static const struct {
    const char *name;
    unsigned what, places;
} modes[] = {
    {"online", 0, 0},
    {"trusted", BOUNDARIES_OUTPUTS | BOUNDARIES_GRADIENTS | BOUNDARIES_ONCE, BOUNDARIES_MODULES},
    {"full", BOUNDARIES_OUTPUTS | BOUNDARIES_GRADIENTS | BOUNDARIES_INPUTS | BOUNDARIES_ONCE,
     BOUNDARIES_MODULES | BOUNDARIES_COLLECTIVES},
    /* each tensor anew: what was written behind torch's back in between shows */
    {"drill", BOUNDARIES_OUTPUTS | BOUNDARIES_GRADIENTS | BOUNDARIES_INPUTS,
     BOUNDARIES_MODULES | BOUNDARIES_COLLECTIVES | BOUNDARIES_FUNCTIONS},
};
static const struct {
    const char *name;
    unsigned place;
} places[] = {{"modules", BOUNDARIES_MODULES},
              {"ops", BOUNDARIES_FUNCTIONS},
              {"collectives", BOUNDARIES_COLLECTIVES}};

unsigned boundaries_what;

static bool is_word(const char *word, const char *text, size_t bytes)
{
    return strlen(word) == bytes && memcmp(word, text, bytes) == 0;
}

/* The places of a list; 0: there is an unknown one. */
static unsigned places_of(const char *list)
{
    unsigned found = 0;
    for (;;) {
        size_t bytes = strcspn(list, ","), i = 0;
        while (i < sizeof places / sizeof *places && !is_word(places[i].name, list, bytes))
            i++;
        if (i == sizeof places / sizeof *places)
            return 0;
        found |= places[i].place;
        if (list[bytes] == '\0')
            return found;
        list += bytes + 1;
    }
}

bool boundaries_choose(const char *text)
{
    size_t bytes = strcspn(text, ":"), i = 0;
    while (i < sizeof modes / sizeof *modes && !is_word(modes[i].name, text, bytes))
        i++;
    if (i == sizeof modes / sizeof *modes)
        return false;
    unsigned chosen = text[bytes] == ':' ? places_of(text + bytes + 1) : modes[i].places;
    if (text[bytes] == ':' &&
        (chosen == 0 || (modes[i].what == 0 && chosen != BOUNDARIES_COLLECTIVES)))
        return false;
    boundaries_what = modes[i].what | chosen;
    return true;
}

/* ---- one tensor ------------------------------------------------------------------------------ */

typedef struct tensor_passage { /* what passes which boundary */
    tocsin_id variable;
    tocsin_attribute attribute;
    tocsin_moment moment;
    bool hook; /* ask autograd for the gradient */
    bool once; /* its digest may be known */
    int left;  /* tensors that are still looked at */
} tensor_passage;

/* tensor: whose digest may be known, or kept; NULL: read it anew. */
static void record_meta(const tensor_passage *passage, PyObject *tensor, const tensor_meta *meta)
{
    tocsin_trace_writer *writer = tocsin_recorder_writer(observe_recorder);
    if (writer == NULL || !tocsin_recorder_looks_closely(observe_recorder))
        return;
    tocsin_tensor_view view = {.data = meta->data,
                               .dtype = (tocsin_dtype)meta->dtype,
                               .ndim = meta->ndim,
                               .shape = meta->sizes,
                               .strides = meta->strides};
    tocsin_sample sample = {.variable = passage->variable,
                            .attribute = passage->attribute,
                            .moment = passage->moment,
                            .flags = TOCSIN_STATE_PRESENT,
                            .lr = Py_NAN,
                            .dtype = (tocsin_dtype)meta->dtype,
                            .ndim = meta->ndim,
                            .shape = meta->sizes,
                            .shape_id = value_shape_id(writer, meta->ndim, meta->sizes)};
    sample.flags |= meta->requires_grad ? TOCSIN_STATE_REQUIRES_GRAD : 0u;
    const void *counter;
    uint32_t version;
    bool once = tensor != NULL && meta->readable && tensor_version_read(tensor, &counter, &version);
    if (once)
        sample.known = digest_cache_find(meta, counter, version);
    if (meta->readable)
        sample.view = &view; /* of what is known, too: it may be read by tiles */
    tocsin_sample_digest digest;
    bool digested = tocsin_recorder_sample(observe_recorder, &sample, &digest);
    if (once && digested && sample.known == NULL)
        digest_cache_keep(tensor, meta, counter, version, &digest);
}

static void record_tensor(const tensor_passage *passage, PyObject *tensor)
{
    tensor_meta meta;
    if (!tensor_meta_read(tensor, &meta))
        return;
    record_meta(passage, passage->once ? tensor : NULL, &meta);
    tensor_meta_release(&meta);
}

/* ---- gradients ------------------------------------------------------------------------------- */

static void gradient_arrived(tocsin_id variable, PyObject *gradient)
{
    tensor_passage passage = {.variable = variable,
                              .attribute = TOCSIN_ATTRIBUTE_GRAD_OUTPUT,
                              .moment = TOCSIN_MOMENT_EXIT,
                              .once = (boundaries_what & BOUNDARIES_ONCE) != 0};
    if (tensor_is_exact(gradient))
        record_tensor(&passage, gradient);
}

/* A leaf keeps its hooks for good, and its gradient is read at the step anyway. */
static void ask_for_gradient(tocsin_id variable, PyObject *tensor)
{
    tensor_meta meta;
    if (!tocsin_recorder_looks_closely(observe_recorder) || !tensor_meta_read(tensor, &meta))
        return;
    bool wanted = meta.requires_grad && meta.has_grad_fn && meta.storage != NULL;
    tensor_meta_release(&meta);
    PyObject *hook = wanted ? gradient_hook_new(variable, gradient_arrived) : NULL;
    if (hook != NULL)
        gradient_hook_set(tensor, hook);
    Py_XDECREF(hook);
    observe_clear_error();
}

/* ---- gradients of parameters that are averaged by C++ -----------------------------------------
 */

static void record_gradient(tocsin_id variable, PyObject *parameter, tocsin_attribute attribute,
                            tocsin_moment moment)
{
    tensor_meta meta;
    if (variable == 0 || !tocsin_recorder_looks_closely(observe_recorder) ||
        !tensor_is_exact(parameter) || !tensor_meta_read_grad(parameter, &meta))
        return;
    tensor_passage passage = {.variable = variable, .attribute = attribute, .moment = moment};
    record_meta(&passage, NULL, &meta);
    tensor_meta_release(&meta);
}

/* Called by autograd when the gradient of a parameter is complete in this process. What comes after
 * this hook, as DistributedDataParallel's reducer does, finds it as it was. */
static void gradient_accumulated(tocsin_id variable, PyObject *parameter)
{
    record_gradient(variable, parameter, TOCSIN_ATTRIBUTE_GRAD_LOCAL, TOCSIN_MOMENT_ENTER);
}

static tocsin_id boundary_named(PyObject *name)
{
    tocsin_trace_writer *writer =
        observe_recorder == NULL ? NULL : tocsin_recorder_writer(observe_recorder);
    const char *text = writer == NULL ? NULL : PyUnicode_AsUTF8(name);
    return text == NULL ? 0
                        : tocsin_trace_define_variable(writer, text, TOCSIN_VARIABLE_BOUNDARY, "");
}

PyObject *boundaries_gradient_hook(PyObject *module, PyObject *name)
{
    (void)module;
    tocsin_id variable = boundary_named(name);
    PyObject *hook = variable == 0 ? NULL : gradient_hook_new(variable, gradient_accumulated);
    if (hook == NULL && !PyErr_Occurred())
        Py_RETURN_NONE;
    return hook;
}

PyObject *boundaries_record_gradient(PyObject *module, PyObject *arguments)
{
    PyObject *name, *parameter;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "UO:record_gradient", &name, &parameter))
        return NULL;
    record_gradient(boundary_named(name), parameter, TOCSIN_ATTRIBUTE_GRAD_REDUCED,
                    TOCSIN_MOMENT_EXIT);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

/* ---- what passes ----------------------------------------------------------------------------- */

static void record_value(tensor_passage *passage, PyObject *value, int nesting);

/* A hook on a tensor is set by Python code, which may let another thread change the sequence. */
static void record_sequence(tensor_passage *passage, PyObject *sequence, int nesting)
{
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence) && i < ITEMS_MAX; i++) {
        PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(sequence, i));
        record_value(passage, item, nesting);
        Py_DECREF(item);
    }
}

static void record_dict(tensor_passage *passage, PyObject *dict, int nesting)
{
    Py_ssize_t at = 0;
    PyObject *key, *value;
    while (PyDict_Next(dict, &at, &key, &value)) {
        Py_INCREF(value);
        record_value(passage, value, nesting);
        Py_DECREF(value);
    }
}

/* The table of a dataclass's fields (borrowed), NULL: it is none. Looked up where classes keep it,
 * so that no code of the user's runs. A module that is a dataclass is a module. */
static PyObject *dataclass_fields(PyObject *value)
{
    static PyObject *name; /* interned */
    if (name == NULL)
        name = PyUnicode_InternFromString("__dataclass_fields__");
    PyObject *classes = Py_TYPE(value)->tp_mro, *fields = NULL;
    if (name == NULL || classes == NULL || value_is_module(value))
        classes = NULL;
    for (Py_ssize_t i = 0; classes != NULL && fields == NULL && i < PyTuple_GET_SIZE(classes);
         i++) {
        PyObject *own = ((PyTypeObject *)PyTuple_GET_ITEM(classes, i))->tp_dict;
        fields = own == NULL ? NULL : PyDict_GetItemWithError(own, name);
    }
    observe_clear_error();
    return fields != NULL && PyDict_Check(fields) ? fields : NULL;
}

static void record_fields(tensor_passage *passage, PyObject *value, PyObject *fields, int nesting)
{
    Py_ssize_t at = 0;
    PyObject *key, *field, *own = value_object_dict(value); /* NULL: they lie in slots */
    while (PyDict_Next(fields, &at, &key, &field)) {
        PyObject *item = own == NULL ? PyObject_GenericGetAttr(value, key)
                                     : Py_XNewRef(PyDict_GetItemWithError(own, key));
        observe_clear_error();
        if (item != NULL)
            record_value(passage, item, nesting);
        Py_XDECREF(item);
    }
    Py_XDECREF(own);
}

static void record_value(tensor_passage *passage, PyObject *value, int nesting)
{
    PyObject *fields;
    if (passage->left == 0 || nesting == 0)
        return;
    if (tensor_is_exact(value)) {
        passage->left--;
        record_tensor(passage, value);
        if (passage->hook)
            ask_for_gradient(passage->variable, value);
    } else if (piece_is(value)) {
        passage->left--;
        if (tocsin_recorder_looks_closely(observe_recorder))
            piece_record(value, passage->variable, passage->attribute, passage->moment);
    } else if (PyTuple_Check(value) || PyList_Check(value)) {
        record_sequence(passage, value, nesting - 1);
    } else if (PyDict_Check(value)) {
        record_dict(passage, value, nesting - 1);
    } else if ((fields = dataclass_fields(value)) != NULL) {
        record_fields(passage, value, fields, nesting - 1);
    }
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Hooks of what ends an asynchronous collective: Work.wait fills what it was told of before, and
 * wait_tensor returns it. */
static uint32_t work_wait = UINT32_MAX, tensor_wait = UINT32_MAX;

PyObject *boundaries_waits(PyObject *module, PyObject *arguments)
{
    (void)module;
    if (!PyArg_ParseTuple(arguments, "II:boundaries_waits", &work_wait, &tensor_wait))
        return NULL;
    Py_RETURN_NONE;
}

static bool is_module(const tocsin_hook *hook)
{
    return (hook->flags & TOCSIN_HOOK_MODULE_CALL) != 0;
}

static bool communicates(const tocsin_hook *hook)
{
    return hook->role == TOCSIN_ROLE_COLLECTIVE || hook->index == work_wait ||
           hook->index == tensor_wait;
}

/* Does it hand on what happens to lie in memory? FSDP splits buffers before they are filled; what
 * is split is seen where it is made and where it is used. */
static bool returns_memory(const tocsin_hook *hook)
{
    return hook->role != TOCSIN_ROLE_USER &&
           (strstr(hook->name, "empty") != NULL || strstr(hook->name, "split") != NULL);
}

static bool is_wanted(const tocsin_hook *hook)
{
    if (is_module(hook) || hook->role == TOCSIN_ROLE_DATA_NEXT)
        return (boundaries_what & BOUNDARIES_MODULES) != 0;
    if (communicates(hook))
        return (boundaries_what & BOUNDARIES_COLLECTIVES) != 0;
    if ((boundaries_what & BOUNDARIES_FUNCTIONS) == 0)
        return false;
    return (hook->role == TOCSIN_ROLE_NONE || hook->role == TOCSIN_ROLE_LOSS ||
            hook->role == TOCSIN_ROLE_USER) &&
           !returns_memory(hook);
}

/* An open call of a module. */
typedef struct open_module {
    tocsin_id name;
    const PyObject *self; /* compared only */
    bool passes;          /* its tensors are recorded */
} open_module;

static _Thread_local open_module open_modules[NAMED_MAX]; /* by depth */

static const open_module *module_around(uint32_t depth)
{
    return depth > 0 && depth <= NAMED_MAX ? &open_modules[depth - 1] : NULL;
}

/* A wrapper (DistributedDataParallel, what torch.compile returns) and what it wraps have one name:
 * the outer one is the boundary. A module without a name inside another, as a compiled graph is, is
 * a part of that. */
static void open_call(const tocsin_hook *hook, tocsin_trace_writer *writer, bool recorded,
                      uint32_t depth, bool in_backward, PyObject *self)
{
    const open_module *around = module_around(depth);
    open_module call = {.name = self == NULL ? 0 : variables_boundary(writer, self),
                        .self = self,
                        .passes = recorded && is_wanted(hook)};
    if (around != NULL && (call.name == 0 || (call.name == around->name && self != around->self))) {
        call.name = around->name;
        call.passes = false;
    } else if (call.name == 0) {
        call.passes = call.passes && !in_backward; /* compiled autograd's graph */
        call.name = tocsin_trace_define_variable(writer, "", TOCSIN_VARIABLE_BOUNDARY, "");
    }
    open_modules[depth] = call;
}

/* The variable of what passes at this call: that of its module, else of the module around it, else
 * of the function. 0: nothing passes. */
static tocsin_id variable_of(const tocsin_hook *hook, uint32_t depth)
{
    const open_module *around = module_around(depth);
    if (is_module(hook))
        return depth < NAMED_MAX && open_modules[depth].passes ? open_modules[depth].name : 0;
    if (!is_wanted(hook))
        return 0;
    tocsin_trace_writer *writer = tocsin_recorder_writer(observe_recorder);
    if (around == NULL && writer != NULL)
        return tocsin_trace_define_variable(writer, hook->name, TOCSIN_VARIABLE_BOUNDARY, "");
    return around == NULL ? 0 : around->name;
}

/* The tensors of a collective that it takes or fills. Others write them, and unseen: nothing that
 * was known of any tensor holds any longer. */
static void record_used(tensor_passage *passage, const tocsin_hook *hook, PyObject *const *args,
                        Py_ssize_t nargs, PyObject *kwnames, collective_use use)
{
    Py_ssize_t count = nargs + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
    passage->once = false;
    digest_cache_clear();
    for (Py_ssize_t i = 0; i < count; i++)
        if (collective_uses(hook, i, nargs, kwnames, use))
            record_value(passage, args[i], NESTING_MAX);
}

void boundaries_enter(const tocsin_hook *hook, bool recorded, uint32_t depth, bool in_backward,
                      PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    tocsin_trace_writer *writer = tocsin_recorder_writer(observe_recorder);
    if (writer != NULL && is_module(hook) && depth < NAMED_MAX)
        open_call(hook, writer, recorded, depth, in_backward, nargs > 0 ? args[0] : NULL);
    tensor_passage passage = {.variable = recorded ? variable_of(hook, depth) : 0,
                              .attribute = TOCSIN_ATTRIBUTE_INPUT,
                              .moment = TOCSIN_MOMENT_ENTER,
                              .once = (boundaries_what & BOUNDARIES_ONCE) != 0,
                              .left = TENSORS_MAX};
    bool batch = is_module(hook) && depth == 0 && !in_backward; /* what the model is called with */
    if (passage.variable == 0) {
        return;
    } else if (hook->role == TOCSIN_ROLE_COLLECTIVE) {
        record_used(&passage, hook, args, nargs, kwnames, COLLECTIVE_TAKES);
    } else if (((boundaries_what & BOUNDARIES_INPUTS) != 0 && !communicates(hook)) || batch) {
        Py_ssize_t count = nargs + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
        for (Py_ssize_t i = is_module(hook) ? 1 : 0; i < count; i++)
            record_value(&passage, args[i], NESTING_MAX);
    }
}

/* What a collective that has ended, or has been waited for, left where. */
static void leave_collective(const tocsin_hook *hook, tensor_passage *passage,
                             PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                             PyObject *result)
{
    PyObject *filled = NULL;
    if (hook->index == work_wait)
        filled = nargs > 0 ? collective_ended(args[0], &passage->variable) : NULL;
    passage->once = false;
    digest_cache_clear();
    if (hook->index == work_wait && filled != NULL)
        record_value(passage, filled, NESTING_MAX);
    else if (hook->role == TOCSIN_ROLE_COLLECTIVE && collective_is_work(result))
        collective_begun(hook, result, passage->variable, args, nargs, kwnames);
    else if (hook->role == TOCSIN_ROLE_COLLECTIVE && (result == Py_None || PyLong_Check(result)))
        record_used(passage, hook, args, nargs, kwnames, COLLECTIVE_FILLS);
    else if (hook->index != work_wait)
        record_value(passage, result, NESTING_MAX);
    Py_XDECREF(filled);
}

void boundaries_leave(const tocsin_hook *hook, uint32_t depth, PyObject *const *args,
                      Py_ssize_t nargs, PyObject *kwnames, PyObject *result)
{
    tensor_passage passage = {.variable = variable_of(hook, depth),
                              .attribute = TOCSIN_ATTRIBUTE_OUTPUT,
                              .moment = TOCSIN_MOMENT_EXIT,
                              .hook =
                                  is_module(hook) && (boundaries_what & BOUNDARIES_GRADIENTS) != 0,
                              .once = (boundaries_what & BOUNDARIES_ONCE) != 0,
                              .left = TENSORS_MAX};
    if (passage.variable != 0 && communicates(hook))
        leave_collective(hook, &passage, args, nargs, kwnames, result);
    else if (passage.variable != 0)
        record_value(&passage, result, NESTING_MAX);
}

void boundaries_forget(void)
{
    digest_cache_clear();
    collective_forget();
}
