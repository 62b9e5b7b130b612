/* boundaries.h - what passes into and out of calls, recorded for comparing runs. */
#ifndef TOCSIN_CORE_BOUNDARIES_H
#define TOCSIN_CORE_BOUNDARIES_H

#include "observe.h"

enum {
    BOUNDARIES_OUTPUTS = 1,     /* of modules */
    BOUNDARIES_GRADIENTS = 2,   /* of these */
    BOUNDARIES_INPUTS = 4,      /* of whatever has its outputs recorded */
    BOUNDARIES_COLLECTIVES = 8, /* what they were given, and what they leave there */
    BOUNDARIES_FUNCTIONS = 16   /* every hooked function */
};

/* What is recorded; 0: nothing. */
extern unsigned boundaries_what;

/* "online" (nothing here), "trusted", "full" or "drill"; false: no such mode. */
bool boundaries_choose(const char *mode);
/* Does this call pass a boundary? */
bool boundaries_want(const tocsin_hook *hook);
/* The variable of a call: that of its module, else of the module around it, else of the function.
 */
tocsin_id boundaries_name(tocsin_trace_writer *writer, const tocsin_hook *hook, PyObject *self,
                          tocsin_id around);
/* After the ENTER of the call, and before its EXIT. */
void boundaries_enter(const tocsin_hook *hook, tocsin_id variable, PyObject *const *args,
                      Py_ssize_t nargs, PyObject *kwnames);
void boundaries_leave(const tocsin_hook *hook, tocsin_id variable, PyObject *const *args,
                      Py_ssize_t nargs, PyObject *kwnames, PyObject *result);

#endif
