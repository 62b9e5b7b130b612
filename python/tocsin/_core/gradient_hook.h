/* gradient_hook.h - what autograd calls when a gradient has arrived. */
#ifndef TOCSIN_CORE_GRADIENT_HOOK_H
#define TOCSIN_CORE_GRADIENT_HOOK_H

#include "observe.h"

/* Told of the tensor that autograd hands to the hook, unseen (hook.h) and on the recorder's time.
 */
typedef void gradient_told(tocsin_id variable, PyObject *tensor);

/* A hook that tells of a variable, as long as this recording goes on; NULL with an exception. */
PyObject *gradient_hook_new(tocsin_id variable, gradient_told *told);

/* Set the hook, which becomes the tensor's, on a tensor that requires gradients. A mode of the
 * user's does not see it. Errors are dropped. */
void gradient_hook_set(PyObject *tensor, PyObject *hook);

/* Make the type. -1 with an exception. */
int gradient_hook_module_exec(PyObject *module);

/* Python: gradient_hooks_unseen(is a mode enabled, set): two callables, the second sets a hook on a
 * tensor where the first says that a mode would see it. */
PyObject *gradient_hooks_unseen(PyObject *module, PyObject *arguments);

#endif
