/* observe.h - what happens at a hooked call; what the files of the observer share.
 *
 *   observe.c        the observer: enter and leave, roles, steps, stages
 *   value_summary.c  Python objects -> tocsin_value
 *   call_site.c      where in the user's code a call stands
 *   variables.c      tracked parameters and buffers, and reading their states
 *   optimizers.c     what an optimizer says about itself
 *   pieces.c         what this rank holds of a sharded tensor
 *   cuts.c           a parameter as a part of another framework's tensor
 *   boundaries.c     what passes into and out of calls, for comparing runs
 *   collectives.c    which tensors collectives take and fill
 *   digest_cache.c   digests of what passes several boundaries
 *   label_counts.c   what the integer targets of a loss look like
 *   watch.c          Python code that is told of calls, and the states it writes
 *   recorder_functions.c  the Python functions that recorder.py uses
 *
 * Everything runs under the GIL with the thread's re-entry flag held, calls no torch operation and
 * keeps no reference to a tensor.
 */
#ifndef TOCSIN_CORE_OBSERVE_H
#define TOCSIN_CORE_OBSERVE_H

#include "hook.h"
#include "identity_map.h"
#include "tensor_layout.h"

#include <tocsin/record.h>

/* The one recorder of this process; NULL: not recording. */
extern tocsin_recorder *observe_recorder;

/* Start and stop observing calls (observe.c). False: a thread is still in a call of ours, nothing
 * may be freed. */
void observe_start(tocsin_recorder *recorder);
bool observe_stop(void);
/* Stop or go on calling the observer, everything else staying as it is. */
void observe_pause(bool paused);
/* Time spent outside of calls' observation: begin() .. end(begin). */
uint64_t observe_cost_begin(void);
void observe_cost_end(uint64_t begin);
/* Give the time spent so far to the recorder. */
void observe_flush_cost(void);
/* Callables without arguments: is grad mode on; is autocast; the autocast dtype's name or None. */
void observe_set_context(PyObject *grad_enabled, PyObject *autocast_enabled, PyObject *autocast);
/* The hooks through which every new optimizer (it is not recorded) and process group pass;
 * `grouped` is called after the latter. */
void observe_set_births(uint32_t optimizer, uint32_t process_group, PyObject *grouped);
/* In a forked child: every id and cache of the parent is void. */
void observe_forked(void);
/* Raise the exception that is set later, in the user's code. */
void observe_defer_error(void);

/* ---- value_summary.c ----------------------------------------------------------------------- */

/* The values of one event; more than TOCSIN_EVENT_VALUES_MAX are dropped. */
typedef struct value_list {
    uint32_t count;
    bool tags;     /* say where tensors lie in memory */
    bool elements; /* say what tensors of one element hold */
    tocsin_value items[TOCSIN_EVENT_VALUES_MAX];
} value_list;

/* Types that values are recognised by; borrowed from torch, which never dies. */
bool value_summary_learn_types(PyObject *module_type, PyObject *text_types);
/* Types that stand for a set of ranks, and what says which ones. */
void value_summary_learn_groups(PyObject *group_types, PyObject *describe_group);
void value_summary_forget(void);

/* Make it empty, for values of a call of this role. Memory matters where a tensor is filled, sent,
 * saved, or handed to the user's functions; the element where it is a loss, a norm, a scale. */
static inline void value_list_begin(value_list *list, tocsin_role role)
{
    list->count = 0;
    list->tags = role == TOCSIN_ROLE_INITIALIZE || role == TOCSIN_ROLE_COLLECTIVE ||
                 role == TOCSIN_ROLE_CHECKPOINT || role == TOCSIN_ROLE_USER;
    list->elements =
        role == TOCSIN_ROLE_LOSS || role == TOCSIN_ROLE_CLIP_GRAD || role == TOCSIN_ROLE_SCALER;
}

/* Append `object` under a name (string id). */
void value_summarize(value_list *list, tocsin_trace_writer *writer, PyObject *object,
                     tocsin_id name);
/* Tell `object`, the first value, from others of its type, if that is all that was said of it. */
void value_tag_object(value_list *list, const PyObject *object);
void value_append_text(value_list *list, tocsin_trace_writer *writer, tocsin_id name,
                       const char *text);
void value_append_int(value_list *list, tocsin_id name, int64_t integer);
/* The element of a tensor of one element on the CPU, as INT or FLOAT; false: it is none. */
bool value_item(const tensor_meta *meta, tocsin_value *value);
/* The id of a str (cached when it is interned), of a C string. */
tocsin_id value_string_id(tocsin_trace_writer *writer, PyObject *text);
tocsin_id value_text_id(tocsin_trace_writer *writer, const char *text);
/* The id of "arg0", "arg1", ... */
tocsin_id value_position_id(tocsin_trace_writer *writer, Py_ssize_t position);
tocsin_id value_shape_id(tocsin_trace_writer *writer, uint32_t ndim, const int64_t *sizes);
/* The id of the qualified name of a type. */
tocsin_id value_type_id(tocsin_trace_writer *writer, PyTypeObject *type);
/* Is the object a torch.nn.Module; is its `training` true? */
bool value_is_module(PyObject *object);
bool value_module_is_training(PyObject *module);
/* New reference to the __dict__ of an object; NULL (no exception) when it has none. Runs no Python
 * code, whatever __getattribute__ the object has. */
PyObject *value_object_dict(PyObject *object);

/* Forget an exception that our own code raised. What is no Exception comes from a signal handler of
 * the user's that ran meanwhile (Ctrl-C, sys.exit() on SIGTERM) and is not lost. */
static inline void observe_clear_error(void)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))
        observe_defer_error();
    PyErr_Clear();
}

/* The object of a weak reference, as a new reference; NULL when it is gone. */
static inline PyObject *weak_get(PyObject *reference)
{
#if PY_VERSION_HEX >= 0x030d0000
    PyObject *object = NULL;
    if (PyWeakref_GetRef(reference, &object) < 0)
        PyErr_Clear();
    return object;
#else
    PyObject *object = PyWeakref_GetObject(reference);
    return object == NULL || object == Py_None ? NULL : Py_NewRef(object);
#endif
}

/* ---- call_site.c --------------------------------------------------------------------------- */

/* Directories (tuple of str ending in "/") whose frames are not the user's. */
bool call_site_set_internal(PyObject *prefixes);
void call_site_forget(void);
/* The site of the innermost frame that is the user's and not the hooked function itself; 0: none.
 */
tocsin_id call_site_find(tocsin_trace_writer *writer, const tocsin_hook *hook);

/* ---- optimizers.c -------------------------------------------------------------------------- */

/* The number of an optimizer, in order of first appearance; -1: none. Weakly referenced. */
int optimizer_slot(PyObject *optimizer);
/* Is the optimizer of this number gone? */
bool optimizer_is_gone(int64_t slot);
/* Has every optimizer so far got a number? */
bool optimizers_all_known(void);
/* Append self.type, self.lr, ... of an optimizer about to step. */
void optimizer_summarize(value_list *list, tocsin_trace_writer *writer, PyObject *optimizer,
                         int slot);
/* The learning rate of a group; NaN when there is none. */
double optimizer_group_lr(PyObject *optimizer, Py_ssize_t group);
/* New reference to a parameter of a live optimizer; NULL when there is none at this place. */
PyObject *optimizer_parameter(int slot, Py_ssize_t group, Py_ssize_t index);
/* A number that changes when the set of parameters of the live optimizers does. */
uint64_t optimizers_fingerprint(uint64_t seed);
/* New list of the live optimizers' (slot, optimizer) tuples. */
PyObject *optimizers_list(void);

/* ---- variables.c --------------------------------------------------------------------------- */

/* An outermost module was called: a root of the search for variables. Does it have parameters? */
bool variables_saw_root(PyObject *module);
/* The canonical name of a module found in the search; 0: not known. */
tocsin_id variables_module_name(PyObject *module);
/* The variable (kind boundary) of a module, by its canonical name; 0: not known. */
tocsin_id variables_boundary(tocsin_trace_writer *writer, PyObject *module);
/* Read what the plan asks for at this point and emit it. `optimizer`: of optimizer.step, else
 * NULL. */
void variables_sample(tocsin_role role, tocsin_moment moment, PyObject *optimizer);
/* The Python function resolve(roots, optimizers) of variables.py. */
void variables_set_resolver(PyObject *resolver);
void variables_forget(bool forked);
/* What the resolver says now (for tests). */
PyObject *variables_resolved(void);

/* ---- label_counts.c ------------------------------------------------------------------------ */

/* Append "target.count" and so on, if a loss was given integer targets. */
void label_counts_append(value_list *list, tocsin_trace_writer *writer, const tocsin_hook *hook,
                         PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

/* ---- watch.c ------------------------------------------------------------------------------- */

/* Tell the watcher of this hook, if there is one, that a call begins, or returned. */
void watch_entered(const tocsin_hook *hook, PyObject *const *args, Py_ssize_t nargs,
                   PyObject *kwnames);
void watch_returned(const tocsin_hook *hook, PyObject *const *args, Py_ssize_t nargs,
                    PyObject *kwnames, PyObject *result);
/* Tell a watcher, if there is one, that this optimizer is about to step; after its ENTER. */
void watch_step(PyObject *optimizer);
/* The same of an outermost model that is about to run; before its ENTER. */
void watch_run(PyObject *model);
/* An outermost backward pass has returned. */
void watch_backward_ended(void);
/* Is the hook watched and not recorded? Both? */
bool watch_is_silent(const tocsin_hook *hook);
bool watch_is_aloud(const tocsin_hook *hook);
/* Is this hook watched, but not recorded, as its calls begin? */
bool watch_is_early(const tocsin_hook *hook);
void watch_clear(void);
/* Python functions, described where they are defined. */
PyObject *watch_role(PyObject *module, PyObject *arguments);
PyObject *watch_hook(PyObject *module, PyObject *arguments);
PyObject *watch_before(PyObject *module, PyObject *arguments);
PyObject *watch_call(PyObject *module, PyObject *arguments);
PyObject *watch_before_step(PyObject *module, PyObject *watcher);
PyObject *watch_before_run(PyObject *module, PyObject *watcher);
PyObject *watch_after_backward(PyObject *module, PyObject *watcher);
PyObject *watch_sampling(PyObject *module, PyObject *arguments);
PyObject *watch_record_state(PyObject *module, PyObject *arguments);
PyObject *watch_tensor_item(PyObject *module, PyObject *tensor);

#endif
