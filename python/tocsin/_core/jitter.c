/* jitter.c - small random delays before and after hooked calls (`tocsin record --jitter`).
 *
 * Where two threads of a program race, the order in which they come to a tensor is almost always
 * the same; waiting now and then, without the GIL, lets others happen. What a program computes does
 * not depend on how long a call takes, unless it is racy.
 *
 * One time in 16 waits, up to 0.4 ms, one in 512 up to 4 ms. Each thread draws numbers of its
 * own, from the seed and the order in which the threads began.
 */
#include "jitter.h"

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

enum { SHORT_NS = 400000, LONG_NS = 4000000 };

bool jitter_on;

static uint64_t seed_of_all;
static atomic_uint threads;
static _Thread_local uint64_t state; /* 0: this thread has drawn nothing yet */

PyObject *jitter_seed(PyObject *module, PyObject *seed)
{
    unsigned long long value = PyLong_AsUnsignedLongLong(seed);
    (void)module;
    if (PyErr_Occurred())
        return NULL;
    seed_of_all = value;
    state = 0;
    atomic_store(&threads, 0);
    jitter_on = value != 0;
    Py_RETURN_NONE;
}

/* splitmix64 */
static uint64_t draw(void)
{
    if (state == 0)
        state = seed_of_all + ((uint64_t)atomic_fetch_add(&threads, 1) + 1) * 0x9e3779b9u;
    uint64_t value = state += UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

void jitter_delay(void)
{
    uint64_t number = draw();
    if ((number & 15) != 0)
        return;
    uint64_t most = (number >> 4 & 31) == 0 ? LONG_NS : SHORT_NS;
    struct timespec delay = {.tv_nsec = (long)((number >> 9) % most)};
    Py_BEGIN_ALLOW_THREADS;
    nanosleep(&delay, NULL);
    Py_END_ALLOW_THREADS;
}
