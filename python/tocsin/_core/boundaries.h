/* boundaries.h - what passes into and out of calls, recorded for comparing runs. */
#ifndef TOCSIN_CORE_BOUNDARIES_H
#define TOCSIN_CORE_BOUNDARIES_H

#include "observe.h"

enum {
    BOUNDARIES_OUTPUTS = 1,
    BOUNDARIES_GRADIENTS = 2,    /* of modules' outputs */
    BOUNDARIES_INPUTS = 4,       /* without it only of outermost modules, and of collectives */
    BOUNDARIES_ONCE = 8,         /* what passes several boundaries unchanged is read once */
    BOUNDARIES_MODULES = 16,     /* places: modules, and loaders */
    BOUNDARIES_COLLECTIVES = 32, /* what they are given, and what they leave */
    BOUNDARIES_FUNCTIONS = 64,   /* every hooked function */
};

/* What is recorded; 0: nothing. */
extern unsigned boundaries_what;

/* "MODE" or "MODE:PLACE,PLACE": mode online (nothing), trusted, full or drill, places modules, ops,
 * collectives. False: no such mode or place, or one that the mode records nothing at. */
bool boundaries_choose(const char *text);
/* After the ENTER of a call, and before its EXIT if it was recorded. depth: the module calls that
 * are open around it in this thread. */
void boundaries_enter(const tocsin_hook *hook, bool recorded, uint32_t depth, bool in_backward,
                      PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
void boundaries_leave(const tocsin_hook *hook, uint32_t depth, PyObject *const *args,
                      Py_ssize_t nargs, PyObject *kwnames, PyObject *result);
/* A step has ended, or the recording: forget digests and calls that are waited for. */
void boundaries_forget(void);

/* Python: boundaries_waits(index, index): the hooks of Work.wait and of wait_tensor. */
PyObject *boundaries_waits(PyObject *module, PyObject *arguments);
/* Python: gradient_hook(name) -> what register_post_accumulate_grad_hook() is given: records the
 * gradient of that parameter as "grad_local". */
PyObject *boundaries_gradient_hook(PyObject *module, PyObject *name);
/* Python: record_gradient(name, parameter): its gradient as it is now, as "grad_reduced". */
PyObject *boundaries_record_gradient(PyObject *module, PyObject *arguments);

#endif
