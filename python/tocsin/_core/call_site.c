/* call_site.c - where in the user's code a call stands.
 *
 * Data structure: a direct-mapped cache from (code object, instruction) to site id, and a map from
 * code object to "is the user's".
 * Invariant: a cached code object is referenced, so its address means it.
 * Cost: about 100 ns for each frame of torch that lies between the call and the user's frame.
 */
#include "observe.h"

#include <assert.h>
#include <string.h>

#if PY_VERSION_HEX < 0x030b0000
#include <frameobject.h>
#define PyFrame_GetBack(frame) ((PyFrameObject *)Py_XNewRef((PyObject *)(frame)->f_back))
#endif

enum {
    SITE_SLOTS = 2048,
    FRAMES_MAX = 64 /* frames of torch above the user's; deeper sites are unknown */
};

typedef struct site_slot {
    PyCodeObject *code; /* reference */
    int instruction;
    tocsin_id id;
} site_slot;

static PyObject *internal_prefixes; /* tuple of str */
static identity_map internal_code;  /* code -> 1: not the user's */
static site_slot sites[SITE_SLOTS];

bool call_site_set_internal(PyObject *prefixes)
{
    Py_XSETREF(internal_prefixes, Py_NewRef(prefixes));
    identity_map_clear(&internal_code);
    return true;
}

void call_site_forget(void)
{
    for (size_t i = 0; i < SITE_SLOTS; i++) {
        Py_CLEAR(sites[i].code);
        sites[i].id = 0;
    }
    identity_map_clear(&internal_code);
}

static bool is_internal(PyCodeObject *code)
{
    uint64_t *known = identity_map_find(&internal_code, (PyObject *)code);
    if (known != NULL)
        return *known != 0;
    bool internal = false;
    Py_ssize_t count = internal_prefixes == NULL ? 0 : PyTuple_GET_SIZE(internal_prefixes);
    for (Py_ssize_t i = 0; i < count && !internal; i++)
        internal = PyUnicode_Tailmatch(code->co_filename, PyTuple_GET_ITEM(internal_prefixes, i), 0,
                                       PY_SSIZE_T_MAX, -1) == 1;
    PyErr_Clear();
    identity_map_put(&internal_code, (PyObject *)code, internal);
    return internal;
}

static tocsin_id define_site(tocsin_trace_writer *writer, PyFrameObject *frame, PyCodeObject *code)
{
    const char *file = PyUnicode_AsUTF8(code->co_filename);
    const char *function = PyUnicode_AsUTF8(code->co_name);
    int line = PyFrame_GetLineNumber(frame);
    PyErr_Clear();
    if (file == NULL || function == NULL)
        return 0;
    return tocsin_trace_define_site(writer, file, line < 0 ? 0 : (uint32_t)line, function);
}

static tocsin_id site_of(tocsin_trace_writer *writer, PyFrameObject *frame, PyCodeObject *code)
{
#if PY_VERSION_HEX >= 0x030b0000
    int instruction = PyFrame_GetLasti(frame);
#else
    int instruction = PyFrame_GetLineNumber(frame);
#endif
    size_t at = identity_hash((const char *)code + (size_t)(unsigned)instruction * 32) % SITE_SLOTS;
    site_slot *slot = &sites[at];
    if (slot->code != code || slot->instruction != instruction || slot->id == 0) {
        slot->id = define_site(writer, frame, code);
        slot->instruction = instruction;
        Py_XSETREF(slot->code, (PyCodeObject *)Py_NewRef((PyObject *)code));
    }
    return slot->id;
}

/* On Python 3.11 a hooked function's own frame is on the stack already (its gate). */
static bool is_own_frame(const tocsin_hook *hook, PyCodeObject *code)
{
    return PyFunction_Check(hook->target) && PyFunction_GET_CODE(hook->target) == (PyObject *)code;
}

tocsin_id call_site_find(tocsin_trace_writer *writer, const tocsin_hook *hook)
{
    PyFrameObject *frame = PyThreadState_GetFrame(PyThreadState_Get());
    tocsin_id id = 0;
    for (int depth = 0; frame != NULL && depth < FRAMES_MAX; depth++) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        bool users = !(depth == 0 && is_own_frame(hook, code)) && !is_internal(code);
        if (users)
            id = site_of(writer, frame, code);
        Py_DECREF(code);
        if (users)
            break;
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    return id;
}
