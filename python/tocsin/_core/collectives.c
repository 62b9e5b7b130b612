/* collectives.c - which tensors a collective is given, which it fills, and when.
 *
 * A buffer that a collective fills holds anything before, and one that it reads nothing new after.
 * torch's own functions are told by their names; of the functional ones every tensor is read, and
 * what they return is new. An asynchronous collective has filled its buffers when its work has been
 * waited for, so they are remembered by the work.
 *
 * Data structure: a ring of the works that are open, with weak references to work and tensors.
 * Cost: some string comparisons and a list a collective.
 */
#include "collectives.h"

#include <string.h>

enum { OPEN_MAX = 256, TENSORS_MAX = 256, NESTING_MAX = 3 };

/* ---- arguments ------------------------------------------------------------------------------- */

static const struct {
    const char *function;
    const char *arguments[2]; /* by position */
    unsigned char uses[2];    /* of each: bit 0 it is read, bit 1 it is filled */
} signatures[] = {
    {"all_gather", {"tensor_list", "tensor"}, {2, 1}},
    {"all_gather_coalesced", {"output_tensor_lists", "input_tensor_list"}, {2, 1}},
    {"all_gather_into_tensor", {"output_tensor", "input_tensor"}, {2, 1}},
    {"all_gather_single", {"output_tensor", "input_tensor"}, {2, 1}},
    {"all_reduce", {"tensor"}, {3}},
    {"all_reduce_coalesced", {"tensors"}, {3}},
    {"all_to_all", {"output_tensor_list", "input_tensor_list"}, {2, 1}},
    {"all_to_all_single", {"output", "input"}, {2, 1}},
    {"broadcast", {"tensor"}, {2}},
    {"gather", {"tensor", "gather_list"}, {1, 2}},
    {"irecv", {"tensor"}, {2}},
    {"isend", {"tensor"}, {1}},
    {"recv", {"tensor"}, {2}},
    {"reduce", {"tensor"}, {3}},
    {"reduce_scatter", {"output", "input_list"}, {2, 1}},
    {"reduce_scatter_single", {"output", "input"}, {2, 1}},
    {"reduce_scatter_tensor", {"output", "input"}, {2, 1}},
    {"scatter", {"tensor", "scatter_list"}, {2, 1}},
    {"send", {"tensor"}, {1}},
};

static int signature_of(const char *name)
{
    static const char package[] = "torch.distributed.";
    if (strncmp(name, package, sizeof package - 1) != 0)
        return -1;
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++)
        if (strcmp(name + sizeof package - 1, signatures[i].function) == 0)
            return (int)i;
    return -1;
}

static int position_of(int signature, PyObject *keyword)
{
    for (int at = 0; at < 2 && signatures[signature].arguments[at] != NULL; at++)
        if (PyUnicode_CompareWithASCIIString(keyword, signatures[signature].arguments[at]) == 0)
            return at;
    return 2;
}

bool collective_uses(const tocsin_hook *hook, Py_ssize_t i, Py_ssize_t nargs, PyObject *kwnames,
                     collective_use use)
{
    int signature = signature_of(hook->name);
    if (signature < 0)
        return use == COLLECTIVE_TAKES;
    Py_ssize_t at = i < nargs ? i : position_of(signature, PyTuple_GET_ITEM(kwnames, i - nargs));
    return at < 2 && (signatures[signature].uses[at] >> use & 1) != 0;
}

/* ---- works ----------------------------------------------------------------------------------- */

typedef struct open_work {
    PyObject *work;    /* weak; NULL: none */
    PyObject *tensors; /* list of weak references */
    tocsin_id variable;
} open_work;

static open_work works[OPEN_MAX];
static unsigned next_work;

static void forget_work(open_work *open)
{
    Py_CLEAR(open->work);
    Py_CLEAR(open->tensors);
}

void collective_forget(void)
{
    for (int i = 0; i < OPEN_MAX; i++)
        forget_work(&works[i]);
}

bool collective_is_work(PyObject *result)
{
    return strcmp(Py_TYPE(result)->tp_name, "torch.distributed.distributed_c10d.Work") == 0 ||
           strcmp(Py_TYPE(result)->tp_name, "torch._C._distributed_c10d.Work") == 0;
}

static void add_tensors(PyObject *list, PyObject *value, int nesting)
{
    if (PyList_GET_SIZE(list) >= TENSORS_MAX)
        return;
    if (tensor_is_exact(value)) {
        PyObject *reference = PyWeakref_NewRef(value, NULL);
        if (reference != NULL)
            (void)PyList_Append(list, reference);
        Py_XDECREF(reference);
    } else if (nesting > 0 && (PyList_Check(value) || PyTuple_Check(value))) {
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); i++)
            add_tensors(list, PySequence_Fast_GET_ITEM(value, i), nesting - 1);
    }
}

void collective_begun(const tocsin_hook *hook, PyObject *work, tocsin_id variable,
                      PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *reference = PyWeakref_NewRef(work, NULL);
    PyObject *tensors = reference == NULL ? NULL : PyList_New(0);
    Py_ssize_t count = nargs + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
    for (Py_ssize_t i = 0; tensors != NULL && i < count; i++)
        if (collective_uses(hook, i, nargs, kwnames, COLLECTIVE_FILLS))
            add_tensors(tensors, args[i], NESTING_MAX);
    observe_clear_error();
    if (tensors == NULL) {
        Py_XDECREF(reference);
        return;
    }
    open_work *open = &works[next_work++ % OPEN_MAX];
    forget_work(open);
    *open = (open_work){reference, tensors, variable};
}

static open_work *find_work(PyObject *work)
{
    for (int i = 0; i < OPEN_MAX; i++) {
        PyObject *live = works[i].work == NULL ? NULL : weak_get(works[i].work);
        Py_XDECREF(live);
        if (live == work)
            return &works[i];
    }
    return NULL;
}

PyObject *collective_ended(PyObject *work, tocsin_id *variable)
{
    open_work *open = find_work(work);
    PyObject *tensors = open == NULL ? NULL : PyList_New(0);
    for (Py_ssize_t i = 0; tensors != NULL && i < PyList_GET_SIZE(open->tensors); i++) {
        PyObject *tensor = weak_get(PyList_GET_ITEM(open->tensors, i));
        if (tensor != NULL)
            (void)PyList_Append(tensors, tensor);
        Py_XDECREF(tensor);
    }
    if (open != NULL) {
        *variable = open->variable;
        forget_work(open);
    }
    observe_clear_error();
    return tensors;
}
