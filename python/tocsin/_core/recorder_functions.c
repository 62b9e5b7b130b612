/* recorder_functions.c - the functions of tocsin._core that recorder.py, api.py and the tests use.
 *
 * All take and return plain Python values; errors of the recorder become OSError or ValueError with
 * the message and place.
 */
#include "boundaries.h"
#include "cuts.h"
#include "gradient_hook.h"
#include "jitter.h"
#include "observe.h"
#include "pieces.h"

#include <string.h>

/* The recorder lives from recorder_open to recorder_close; observe_recorder is the same while
 * observing. */
static tocsin_recorder *recorder;

static PyObject *raise_error(const tocsin_error *error)
{
    PyObject *type = error->code == TOCSIN_E_MEMORY ? PyExc_MemoryError
                     : error->code == TOCSIN_E_IO || error->code == TOCSIN_E_NOT_FOUND
                         ? PyExc_OSError
                         : PyExc_ValueError;
    return error->where[0] == '\0' ? PyErr_Format(type, "%s", error->message)
                                   : PyErr_Format(type, "%s, %s", error->message, error->where);
}

/* recorder_open(directory, selection or None, digest_every) */
static PyObject *recorder_open(PyObject *module, PyObject *arguments)
{
    tocsin_recorder_options options = {.struct_bytes = sizeof options};
    tocsin_error error;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "szI:recorder_open", &options.directory, &options.selection,
                          &options.digest_every))
        return NULL;
    if (recorder != NULL)
        return PyErr_Format(PyExc_RuntimeError, "already recording");
    if (tocsin_recorder_open(&options, &recorder, &error) != TOCSIN_OK)
        return raise_error(&error);
    Py_RETURN_NONE;
}

/* recorder_boundaries(text) -> are collectives among it: what is recorded of calls beside their
 * states, see boundaries.h */
static PyObject *recorder_boundaries(PyObject *module, PyObject *mode)
{
    const char *name = PyUnicode_Check(mode) ? PyUnicode_AsUTF8(mode) : NULL;
    (void)module;
    if (name == NULL || !boundaries_choose(name)) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "no such boundaries: %R", mode);
        return NULL;
    }
    return PyBool_FromLong((boundaries_what & BOUNDARIES_COLLECTIVES) != 0);
}

/* recorder_drill(step, name, attribute): look closely at one step, finest at that tensor */
static PyObject *recorder_drill(PyObject *module, PyObject *arguments)
{
    long long step;
    const char *name, *attribute;
    tocsin_error error;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "Lss:recorder_drill", &step, &name, &attribute))
        return NULL;
    if (recorder == NULL)
        return PyErr_Format(PyExc_RuntimeError, "recorder_open first");
    if (tocsin_recorder_drill(recorder, step, name, attribute, &error) != TOCSIN_OK)
        return raise_error(&error);
    Py_RETURN_NONE;
}

static bool add_selected(PyObject *dict, const char *name, bool arguments)
{
    return PyDict_SetItemString(dict, name, arguments ? Py_True : Py_False) == 0;
}

/* A role at which states are read. */
static bool add_sampled(PyObject *roles, const char *name)
{
    PyObject *key = PyUnicode_FromString(name);
    bool ok = key != NULL && PyDict_SetDefault(roles, key, Py_False) != NULL;
    Py_XDECREF(key);
    return ok;
}

/* recorder_selection() -> (roles, functions): name -> with arguments; None: everything */
static PyObject *recorder_selection(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    if (recorder == NULL || !tocsin_recorder_is_selective(recorder))
        Py_RETURN_NONE;
    PyObject *roles = PyDict_New(), *functions = PyDict_New(), *result = NULL;
    const char *name;
    bool arguments, ok = roles != NULL && functions != NULL;
    for (size_t i = 0;
         ok && (name = tocsin_recorder_selected_role(recorder, i, &arguments)) != NULL; i++)
        ok = add_selected(roles, name, arguments);
    for (size_t i = 0;
         ok && (name = tocsin_recorder_selected_function(recorder, i, &arguments)) != NULL; i++)
        ok = add_selected(functions, name, arguments);
    for (int role = 1; ok && role < 16; role++)
        if (tocsin_recorder_samples(recorder, (tocsin_role)role, TOCSIN_MOMENT_ENTER) ||
            tocsin_recorder_samples(recorder, (tocsin_role)role, TOCSIN_MOMENT_EXIT))
            ok = add_sampled(roles, tocsin_role_name((tocsin_role)role));
    if (ok)
        result = PyTuple_Pack(2, roles, functions);
    Py_XDECREF(roles);
    Py_XDECREF(functions);
    return result;
}

/* recorder_start(module_type, text_types, internal_prefixes, resolve, is_grad_enabled,
 * is_autocast_enabled, autocast_dtype, optimizer_birth, group_birth, grouped, group_types,
 * describe_group) */
static PyObject *recorder_start(PyObject *module, PyObject *arguments)
{
    PyObject *module_type, *texts, *prefixes, *resolve, *grad_enabled, *autocast_enabled, *autocast,
        *grouped, *group_types, *describe_group;
    unsigned int optimizer, group;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!O!O!OOOOIIOO!O:recorder_start", &PyType_Type, &module_type,
                          &PyTuple_Type, &texts, &PyTuple_Type, &prefixes, &resolve, &grad_enabled,
                          &autocast_enabled, &autocast, &optimizer, &group, &grouped, &PyTuple_Type,
                          &group_types, &describe_group))
        return NULL;
    if (recorder == NULL)
        return PyErr_Format(PyExc_RuntimeError, "recorder_open first");
    if (!value_summary_learn_types(module_type, texts))
        return NULL;
    value_summary_learn_groups(group_types, describe_group);
    call_site_set_internal(prefixes);
    variables_set_resolver(resolve);
    observe_set_context(grad_enabled, autocast_enabled, autocast);
    observe_set_births(optimizer, group, grouped);
    observe_start(recorder);
    Py_RETURN_NONE;
}

/* recorder_pieces(read): how a sharded tensor is read, see pieces.c */
static PyObject *recorder_pieces(PyObject *module, PyObject *read)
{
    (void)module;
    pieces_set_reader(read);
    Py_RETURN_NONE;
}

/* observing(on): toggle the observer, hooks staying in place */
static PyObject *observing(PyObject *module, PyObject *argument)
{
    int on = PyObject_IsTrue(argument);
    (void)module;
    if (on < 0)
        return NULL;
    if (observe_recorder == NULL)
        return PyErr_Format(PyExc_RuntimeError, "not recording");
    observe_pause(on == 0);
    Py_RETURN_NONE;
}

static PyObject *summary_dict(void)
{
    tocsin_recorder_summary summary;
    tocsin_recorder_summarize(recorder, &summary);
    return Py_BuildValue("{sL sK sK sK sK sK sK sO sK sK sK sK}", "steps", (long long)summary.steps,
                         "cost_ns", (unsigned long long)summary.cost_ns, "measured_steps",
                         (unsigned long long)summary.measured_steps, "steps_cost_ns",
                         (unsigned long long)summary.steps_cost_ns, "steps_wall_ns",
                         (unsigned long long)summary.steps_wall_ns, "hashed_bytes",
                         (unsigned long long)summary.digested_bytes, "steps_hashed_bytes",
                         (unsigned long long)summary.steps_digested_bytes, "has_file",
                         summary.has_file ? Py_True : Py_False, "events",
                         (unsigned long long)summary.trace.events, "lost",
                         (unsigned long long)summary.trace.lost, "raw_bytes",
                         (unsigned long long)summary.trace.raw_bytes, "file_bytes",
                         (unsigned long long)summary.trace.file_bytes);
}

/* recorder_summary() -> dict, or None when not recording */
static PyObject *recorder_summary(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    if (recorder == NULL)
        Py_RETURN_NONE;
    observe_flush_cost();
    return summary_dict();
}

/* recorder_flush(): everything observed so far is in the file */
static PyObject *recorder_flush(PyObject *module, PyObject *ignored)
{
    tocsin_error error;
    (void)module;
    (void)ignored;
    tocsin_trace_writer *writer =
        observe_recorder == NULL ? NULL : tocsin_recorder_writer(observe_recorder);
    if (writer != NULL && tocsin_trace_writer_flush(writer, &error) != TOCSIN_OK)
        return raise_error(&error);
    Py_RETURN_NONE;
}

/* recorder_close() -> summary, or None when not recording */
static PyObject *recorder_close(PyObject *module, PyObject *ignored)
{
    tocsin_error error;
    (void)module;
    (void)ignored;
    if (recorder == NULL)
        Py_RETURN_NONE;
    bool stopped = observe_stop();
    tocsin_recorder *closing = recorder;
    PyObject *result = summary_dict();
    recorder = NULL;
    if (!stopped) /* the file is as after a crash: whole, but for its footer */
        return result;
    if (tocsin_recorder_close(closing, &error) != TOCSIN_OK) {
        Py_XDECREF(result);
        return raise_error(&error);
    }
    return result;
}

static PyObject *recorder_forked(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    observe_forked();
    Py_RETURN_NONE;
}

/* recorder_failure() -> str why this process has no file, or None */
static PyObject *recorder_failure(PyObject *module, PyObject *ignored)
{
    tocsin_error error;
    (void)module;
    (void)ignored;
    if (recorder == NULL || tocsin_recorder_failure(recorder, &error) == TOCSIN_OK)
        Py_RETURN_NONE;
    return PyUnicode_FromFormat("%s, %s", error.message, error.where);
}

/* recorder_meta(key, value): bool, int, float or str; others as their str() */
static PyObject *recorder_meta(PyObject *module, PyObject *arguments)
{
    const char *name;
    PyObject *value;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "sO:recorder_meta", &name, &value))
        return NULL;
    if (recorder == NULL)
        Py_RETURN_NONE;
    int key = tocsin_recorder_meta_key(recorder, name), overflow = 0;
    if (key < 0)
        return PyErr_Format(PyExc_ValueError, "too many meta variables, or too long a name");
    if (PyBool_Check(value)) {
        tocsin_recorder_meta_bool(recorder, key, value == Py_True);
    } else if (PyFloat_Check(value)) {
        tocsin_recorder_meta_real(recorder, key, PyFloat_AS_DOUBLE(value));
    } else if (PyLong_Check(value)) {
        long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow == 0)
            tocsin_recorder_meta_int(recorder, key, number);
    }
    if (overflow != 0 || !(PyFloat_Check(value) || PyLong_Check(value))) {
        PyObject *text = PyObject_Str(value);
        Py_ssize_t bytes;
        const char *utf8 = text == NULL ? NULL : PyUnicode_AsUTF8AndSize(text, &bytes);
        if (utf8 != NULL)
            tocsin_recorder_meta_text(recorder, key, utf8, (size_t)bytes);
        Py_XDECREF(text);
        if (utf8 == NULL)
            return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *recorder_step(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    if (observe_recorder != NULL)
        tocsin_recorder_user_step(observe_recorder);
    Py_RETURN_NONE;
}

/* recorder_stage(name or None) */
static PyObject *recorder_stage(PyObject *module, PyObject *argument)
{
    const char *stage = argument == Py_None ? NULL : PyUnicode_AsUTF8(argument);
    (void)module;
    if (stage == NULL && argument != Py_None)
        return NULL;
    if (observe_recorder != NULL)
        tocsin_recorder_user_stage(observe_recorder, stage);
    Py_RETURN_NONE;
}

static PyObject *recorder_variables(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    return variables_resolved();
}

/* dtype_number("float32") -> Tocsin's number, 0: unknown */
static PyObject *dtype_number(PyObject *module, PyObject *name)
{
    const char *text = PyUnicode_AsUTF8(name);
    (void)module;
    return text == NULL ? NULL : PyLong_FromLong(tocsin_dtype_from_name(text));
}

static PyMethodDef functions[] = {
    {"recorder_open", recorder_open, METH_VARARGS, NULL},
    {"recorder_boundaries", recorder_boundaries, METH_O, NULL},
    {"recorder_pieces", recorder_pieces, METH_O, NULL},
    {"name_map_load", cuts_load_map, METH_O, NULL},
    {"name_map_find", cuts_find_name, METH_O, NULL},
    {"recorder_drill", recorder_drill, METH_VARARGS, NULL},
    {"jitter_seed", jitter_seed, METH_O, NULL},
    {"boundaries_waits", boundaries_waits, METH_VARARGS, NULL},
    {"gradient_hook", boundaries_gradient_hook, METH_O, NULL},
    {"gradient_hooks_unseen", gradient_hooks_unseen, METH_VARARGS, NULL},
    {"record_gradient", boundaries_record_gradient, METH_VARARGS, NULL},
    {"recorder_selection", recorder_selection, METH_NOARGS, NULL},
    {"recorder_start", recorder_start, METH_VARARGS, NULL},
    {"recorder_summary", recorder_summary, METH_NOARGS, NULL},
    {"recorder_flush", recorder_flush, METH_NOARGS, NULL},
    {"recorder_close", recorder_close, METH_NOARGS, NULL},
    {"recorder_forked", recorder_forked, METH_NOARGS, NULL},
    {"recorder_failure", recorder_failure, METH_NOARGS, NULL},
    {"recorder_meta", recorder_meta, METH_VARARGS, NULL},
    {"recorder_step", recorder_step, METH_NOARGS, NULL},
    {"recorder_stage", recorder_stage, METH_O, NULL},
    {"recorder_variables", recorder_variables, METH_NOARGS, NULL},
    {"observing", observing, METH_O, NULL},
    {"watch_role", watch_role, METH_VARARGS, NULL},
    {"watch_hook", watch_hook, METH_VARARGS, NULL},
    {"watch_before", watch_before, METH_VARARGS, NULL},
    {"watch_call", watch_call, METH_VARARGS, NULL},
    {"watch_before_step", watch_before_step, METH_O, NULL},
    {"watch_before_run", watch_before_run, METH_O, NULL},
    {"watch_after_backward", watch_after_backward, METH_O, NULL},
    {"sampling", watch_sampling, METH_VARARGS, NULL},
    {"record_state", watch_record_state, METH_VARARGS, NULL},
    {"tensor_item", watch_tensor_item, METH_O, NULL},
    {"dtype_number", dtype_number, METH_O, NULL},
    {"tensor_layout_calibrate", tensor_layout_calibrate, METH_VARARGS, NULL},
    {"tensor_layout_disable", tensor_layout_disable, METH_NOARGS, NULL},
    {"tensor_layout_read", tensor_layout_read, METH_O, NULL},
    {"tensor_memory", tensor_memory, METH_O, NULL},
    {"tensor_version", tensor_version, METH_O, NULL},
    {NULL, NULL, 0, NULL}};

int tocsin_observe_module_exec(PyObject *module)
{
    if (gradient_hook_module_exec(module) < 0)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
