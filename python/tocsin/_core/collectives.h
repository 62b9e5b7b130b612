/* collectives.h - which tensors a collective is given, which it fills, and when. */
#ifndef TOCSIN_CORE_COLLECTIVES_H
#define TOCSIN_CORE_COLLECTIVES_H

#include "observe.h"

typedef enum collective_use { COLLECTIVE_TAKES, COLLECTIVE_FILLS } collective_use;

/* Is the i-th of these arguments (positional ones, then those of kwnames) used in this way? */
bool collective_uses(const tocsin_hook *hook, Py_ssize_t i, Py_ssize_t nargs, PyObject *kwnames,
                     collective_use use);

/* Is this what an asynchronous collective returns? */
bool collective_is_work(PyObject *result);
/* Remember what will have been filled when `work` has been waited for. Keeps no reference. */
void collective_begun(const tocsin_hook *hook, PyObject *work, tocsin_id variable,
                      PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
/* The tensors of `work`, as a new list, and their variable; NULL: nothing is known of it, or it was
 * waited for before. */
PyObject *collective_ended(PyObject *work, tocsin_id *variable);
void collective_forget(void);

#endif
