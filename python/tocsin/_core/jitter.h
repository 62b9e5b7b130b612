/* jitter.h - small random delays at hooked calls, which show races between threads. */
#ifndef TOCSIN_CORE_JITTER_H
#define TOCSIN_CORE_JITTER_H

#include "hook.h"

#include <stdbool.h>

/* Is there any delay at all? */
extern bool jitter_on;

/* jitter_seed(seed): from here on, by this seed; 0: none */
PyObject *jitter_seed(PyObject *module, PyObject *seed);
/* Perhaps wait, without the GIL. */
void jitter_delay(void);

#endif
