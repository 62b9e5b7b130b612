/* guard_functions.h - what the parts of the guard's binding share. */
#ifndef TOCSIN_CORE_GUARD_FUNCTIONS_H
#define TOCSIN_CORE_GUARD_FUNCTIONS_H

#include "hook_engine.h"

#include <stdbool.h>
#include <tocsin/guard.h>

/* The exception that an error means; returns NULL. */
PyObject *tocsin_guard_raise(tocsin_status status, const tocsin_error *error);
/* An iterable of int, or NULL or None. Free with PyMem_Free; after false there is nothing to. */
bool tocsin_guard_take_ranks(PyObject *object, uint32_t **ranks, size_t *count);
/* The dict that a finding's JSON means; None for no finding. Frees it. */
PyObject *tocsin_guard_finding_dict(tocsin_guard_finding *finding);

/* communication_functions.c */
int tocsin_communication_module_exec(PyObject *module);

#endif
