/* communication_functions.c - the judgements of tocsin/communication.h for Python.
 *
 * Records are what struct.pack("=QQ10I4Q6Q") makes, with what follows them; digests are "=3Q".
 * Cost: records are read in place, without the interpreter's lock.
 */
#include "guard_functions.h"

#include <tocsin/communication.h>

static bool taken(Py_buffer *buffer, PyObject *object)
{
    if (PyObject_GetBuffer(object, buffer, PyBUF_SIMPLE) < 0)
        return false;
    if ((uintptr_t)buffer->buf % _Alignof(uint64_t) == 0)
        return true;
    PyErr_SetString(PyExc_ValueError, "records are not aligned");
    PyBuffer_Release(buffer);
    return false;
}

static PyObject *guard_transfer_sum(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *object;
    Py_buffer transfers;
    unsigned member;
    int outgoing;
    if (!PyArg_ParseTuple(args, "OIp:guard_transfer_sum", &object, &member, &outgoing) ||
        !taken(&transfers, object))
        return NULL;
    size_t members = (size_t)transfers.len / sizeof(tocsin_digest);
    PyObject *result = NULL;
    if ((size_t)transfers.len != members * sizeof(tocsin_digest) ||
        members > TOCSIN_GUARD_MEMBERS_MAX || member >= members) {
        PyErr_SetString(PyExc_ValueError, "not one digest for each member of a group");
    } else {
        tocsin_digest sum =
            tocsin_guard_transfer_sum(transfers.buf, (uint32_t)members, member, outgoing != 0);
        result = PyBytes_FromStringAndSize((const char *)&sum, sizeof sum);
    }
    PyBuffer_Release(&transfers);
    return result;
}

static PyObject *guard_reduction_known(PyObject *module, PyObject *args)
{
    (void)module;
    const char *name;
    unsigned operation;
    if (!PyArg_ParseTuple(args, "sI:guard_reduction_known", &name, &operation))
        return NULL;
    tocsin_dtype dtype = tocsin_dtype_from_name(name);
    bool known = operation <= TOCSIN_GUARD_MAXIMUM &&
                 tocsin_guard_reduction_known(dtype, (tocsin_guard_operation)operation);
    return PyLong_FromLong(known ? (long)dtype : 0);
}

static PyObject *guard_reduction_slice(PyObject *module, PyObject *args)
{
    (void)module;
    unsigned long long key, step, position, span;
    uint64_t first, length;
    if (!PyArg_ParseTuple(args, "KKKK:guard_reduction_slice", &key, &step, &position, &span))
        return NULL;
    tocsin_guard_reduction_slice(key, step, position, span, &first, &length);
    return Py_BuildValue("(KK)", (unsigned long long)first, (unsigned long long)length);
}

/* ---- a part of a reduction ------------------------------------------------------------------- */

typedef struct part_buffers {
    Py_buffer *buffers; /* inputs, then the result */
    const void **inputs;
    size_t count;
} part_buffers;

static void part_release(part_buffers *part)
{
    for (size_t b = 0; b < part->count; ++b)
        PyBuffer_Release(&part->buffers[b]);
    PyMem_Free(part->buffers);
    PyMem_Free(part->inputs);
}

/* All are as long as the result. */
static bool part_take(PyObject *inputs, PyObject *result, part_buffers *part)
{
    size_t members = (size_t)PyTuple_GET_SIZE(inputs);
    *part = (part_buffers){.buffers = PyMem_New(Py_buffer, members + 1),
                           .inputs = PyMem_New(const void *, members + 1)};
    if (part->buffers == NULL || part->inputs == NULL)
        PyErr_NoMemory();
    while (!PyErr_Occurred() && part->count <= members) {
        Py_buffer *buffer = &part->buffers[part->count];
        PyObject *object =
            part->count < members ? PyTuple_GET_ITEM(inputs, (Py_ssize_t)part->count) : result;
        if (PyObject_GetBuffer(object, buffer, PyBUF_SIMPLE) < 0)
            break;
        part->inputs[part->count++] = buffer->buf;
        if (buffer->len != part->buffers[0].len)
            PyErr_SetString(PyExc_ValueError, "parts are of different lengths");
    }
    if (!PyErr_Occurred())
        return true;
    part_release(part);
    return false;
}

static PyObject *check_part(const tocsin_guard_call *call, uint64_t first,
                            const part_buffers *buffers, tocsin_guard_reduced *found)
{
    size_t bytes = (size_t)buffers->buffers[0].len;
    if (call->width == 0 || bytes % call->width != 0 || buffers->count - 1 != call->members)
        return PyErr_Format(PyExc_ValueError, "not a part of each member");
    tocsin_guard_part part = {.first = first,
                              .length = bytes / call->width,
                              .inputs = buffers->inputs,
                              .result = buffers->inputs[call->members]};
    tocsin_error error;
    tocsin_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = tocsin_guard_part_check(call, &part, found, &error);
    Py_END_ALLOW_THREADS;
    if (status != TOCSIN_OK)
        return tocsin_guard_raise(status, &error);
    return PyBytes_FromStringAndSize((const char *)found, sizeof *found);
}

static PyObject *guard_part_check(PyObject *module, PyObject *args)
{
    (void)module;
    unsigned long long first;
    Py_buffer record, known;
    PyObject *inputs, *output, *result = NULL;
    if (!PyArg_ParseTuple(args, "y*KO!Oy*:guard_part_check", &record, &first, &PyTuple_Type,
                          &inputs, &output, &known))
        return NULL;
    tocsin_guard_call call;
    tocsin_guard_reduced found = {0};
    part_buffers buffers;
    bool begins = known.len == 0;
    if (record.len != sizeof call || (!begins && known.len != sizeof found)) {
        PyErr_SetString(PyExc_ValueError, "no record, or nothing found before");
    } else if (part_take(inputs, output, &buffers)) {
        memcpy(&call, record.buf, sizeof call);
        if (!begins)
            memcpy(&found, known.buf, sizeof found);
        result = check_part(&call, first, &buffers, &found);
        part_release(&buffers);
    }
    PyBuffer_Release(&record);
    PyBuffer_Release(&known);
    return result;
}

/* ---- calls ----------------------------------------------------------------------------------- */

typedef struct message_list {
    Py_buffer *buffers;
    tocsin_guard_message *messages;
    size_t count;
} message_list;

static void messages_release(message_list *list)
{
    for (size_t m = 0; m < list->count; ++m)
        PyBuffer_Release(&list->buffers[m]);
    PyMem_Free(list->buffers);
    PyMem_Free(list->messages);
}

static bool messages_take(PyObject *sequence, message_list *list)
{
    size_t count = (size_t)PyTuple_GET_SIZE(sequence);
    *list = (message_list){.buffers = PyMem_New(Py_buffer, count + 1),
                           .messages = PyMem_New(tocsin_guard_message, count + 1)};
    if (list->buffers == NULL || list->messages == NULL)
        PyErr_NoMemory();
    while (!PyErr_Occurred() && list->count < count) {
        Py_buffer *buffer = &list->buffers[list->count];
        if (!taken(buffer, PyTuple_GET_ITEM(sequence, (Py_ssize_t)list->count)))
            break;
        list->messages[list->count++] =
            (tocsin_guard_message){.bytes = buffer->buf, .size = (size_t)buffer->len};
    }
    if (!PyErr_Occurred())
        return true;
    messages_release(list);
    return false;
}

static PyObject *judge(const message_list *list, tocsin_guard_calls *calls, Py_ssize_t count)
{
    tocsin_error error;
    tocsin_guard_finding *finding = NULL;
    tocsin_guard_undone undone;
    PyObject *states = PyBytes_FromStringAndSize(NULL, count);
    if (states == NULL)
        return NULL;
    calls->messages = list->messages;
    calls->rank_count = list->count;
    uint8_t *state = (uint8_t *)PyBytes_AS_STRING(states);
    tocsin_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = tocsin_guard_judge_calls(calls, state, (size_t)count, &undone, &finding, &error);
    Py_END_ALLOW_THREADS;
    PyObject *dict = status == TOCSIN_OK ? tocsin_guard_finding_dict(finding)
                                         : tocsin_guard_raise(status, &error);
    if (dict == NULL) {
        Py_DECREF(states);
        return NULL;
    }
    return Py_BuildValue("(NnnN)", states, (Py_ssize_t)undone.wanted, (Py_ssize_t)undone.partial,
                         dict);
}

static PyObject *guard_calls(PyObject *module, PyObject *args, PyObject *kwargs)
{
    (void)module;
    static char *keywords[] = {"messages", "own",          "count", "step",
                               "passed",   "passed_whole", "named", NULL};
    PyObject *object, *named = NULL, *result = NULL;
    Py_ssize_t own, count;
    long long step, passed, whole;
    message_list list;
    tocsin_guard_calls calls = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OnnLLL|O:guard_calls", keywords, &object, &own,
                                     &count, &step, &passed, &whole, &named))
        return NULL;
    if (own < 0 || count < 0 || count > TOCSIN_GUARD_CALLS_MAX)
        return PyErr_Format(PyExc_ValueError, "no rank %zd with %zd records", own, count);
    uint32_t *ranks = NULL;
    if (!tocsin_guard_take_ranks(named, &ranks, &calls.named_count))
        return NULL;
    calls.named = ranks;
    calls.own = (size_t)own;
    calls.moment = (tocsin_guard_moment){.step = step, .passed = passed};
    calls.passed_whole = whole;
    PyObject *sequence = PySequence_Tuple(object);
    if (sequence && messages_take(sequence, &list)) {
        result = judge(&list, &calls, count);
        messages_release(&list);
    }
    Py_XDECREF(sequence);
    PyMem_Free(ranks);
    return result;
}

/* ---- the module ------------------------------------------------------------------------------ */

int tocsin_communication_module_exec(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"guard_transfer_sum", guard_transfer_sum, METH_VARARGS,
         PyDoc_STR("guard_transfer_sum(digests, member, outgoing) -> digest")},
        {"guard_reduction_known", guard_reduction_known, METH_VARARGS,
         PyDoc_STR("guard_reduction_known(dtype, operation) -> number of the dtype, or 0")},
        {"guard_reduction_slice", guard_reduction_slice, METH_VARARGS,
         PyDoc_STR("guard_reduction_slice(key, step, position, span) -> (first, length)")},
        {"guard_part_check", guard_part_check, METH_VARARGS,
         PyDoc_STR("guard_part_check(record, first, inputs, result, found) -> what is found, with "
                   "what was found in parts before")},
        {"guard_calls", (PyCFunction)(void (*)(void))guard_calls, METH_VARARGS | METH_KEYWORDS,
         PyDoc_STR("guard_calls(messages, own, count, step, passed, passed_whole, named=None) -> "
                   "(states, calls wanted, sums known in part, finding or None)")},
        {NULL, NULL, 0, NULL}};
    return PyModule_AddFunctions(module, methods);
}
