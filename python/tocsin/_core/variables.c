/* variables.c - the parameters and buffers that are tracked, and reading their states.
 *
 * Tracked are: parameters and buffers of the outermost modules that were called (the roots), and
 * parameters held by an optimizer. variables.py names them (rarely); here a fingerprint of all
 * parameter addresses notices at each step when that has to be done again.
 *
 * Data structure: an array in the resolver's order. Tensors are looked up in their module (or
 * optimizer) at each reading: modules replace them, and a mere weak reference to a tensor would
 * make torch.utils.swap_tensors() refuse it. Modules are referenced weakly.
 * Invariant: between two refreshes the array does not change; what is gone is skipped. A name that
 * shares its storage with an earlier one (alias_of) is not digested twice. Cost: the fingerprint is
 * about 20 ns a module and 3 ns a parameter, once a step; a state is a metadata read, an event, and
 * one pass over the memory if it is digested.
 */
#include "cuts.h"
#include "observe.h"
#include "pieces.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROOTS_MAX = 64, MODULE_DEPTH_MAX = 128, VARIABLES_MAX = 1 << 20 };
/* Modules that are looked at, one by each path to it: where all know each other, paths are without
 * number, and what lies behind is not looked for. */
enum { VISITS_MAX = 1 << 18 };
enum { READ_COUNT = TOCSIN_ATTRIBUTE_GRAD + 1 }; /* attributes that are read here: data, grad */

typedef struct tracked {
    PyObject *owner; /* weak: the module; NULL: only an optimizer has it */
    PyObject *key;   /* its name in the owner */
    tocsin_id variable;
    tocsin_variable_kind kind;
    uint32_t flags;
    uint64_t slots; /* optimizers that hold it, one bit each */
    int group_slot; /* the first of them, and where it stands there */
    int group, index;
    PyObject *place;                /* (whole, offset) of a part that is no DTensor, or None */
    int alias_of;                   /* index of the first name of this storage; -1: this is it */
    bool has_before;                /* its data were digested, and in no step since were they not */
    bool known[READ_COUNT];         /* digests of the current sampling point */
    const void *memory[READ_COUNT]; /* what they were computed of; compared only */
    tocsin_sample_digest digests[READ_COUNT];
    tensor_cut cut; /* what it is in another framework */
} tracked;

typedef struct root {
    PyObject *reference; /* weak */
    const void *address;
    bool has_parameters;
} root;

typedef struct named_module {
    const void *address;
    PyObject *reference; /* weak */
    tocsin_id name;
    char *text;         /* the name; owned */
    tocsin_id boundary; /* boundaries.c; 0: not asked for yet */
} named_module;

static root roots[ROOTS_MAX];
static int root_count;
static PyObject *resolver;
static tracked *variables;
static Py_ssize_t variable_count;
static named_module *modules; /* by address */
static Py_ssize_t module_count;
static uint64_t fingerprint;
static bool resolved, resolved_finally, stepped;
static bool roots_full; /* some model may have been missed */
/* What is rebuilt must not be read, and what is read must not be rebuilt: both may run Python code,
 * and so other threads. */
static bool resolving;
static int readers;

/* The tables of a module, by the names of its attributes. */
enum table { PARAMETERS, BUFFERS, MODULES, TABLE_COUNT };
static PyObject *table_names[TABLE_COUNT]; /* interned */

void variables_set_resolver(PyObject *function)
{
    static const char *const names[TABLE_COUNT] = {"_parameters", "_buffers", "_modules"};
    for (int i = 0; i < TABLE_COUNT; i++)
        if (table_names[i] == NULL)
            table_names[i] = PyUnicode_InternFromString(names[i]);
    PyErr_Clear();
    Py_XINCREF(function);
    Py_XSETREF(resolver, function);
}

/* A table (borrowed from the module's __dict__, which may be NULL), NULL when there is none. */
static PyObject *table_of(PyObject *dict, enum table which)
{
    PyObject *name = table_names[which];
    PyObject *table = dict == NULL || name == NULL ? NULL : PyDict_GetItemWithError(dict, name);
    PyErr_Clear();
    return table;
}

static void drop_tables(void)
{
    for (Py_ssize_t i = 0; i < variable_count; i++) {
        Py_XDECREF(variables[i].owner);
        Py_XDECREF(variables[i].key);
        Py_XDECREF(variables[i].place);
    }
    for (Py_ssize_t i = 0; i < module_count; i++) {
        Py_XDECREF(modules[i].reference);
        PyMem_Free(modules[i].text);
    }
    PyMem_Free(variables);
    PyMem_Free(modules);
    variables = NULL;
    modules = NULL;
    variable_count = module_count = 0;
    resolved = false;
}

void variables_forget(bool forked)
{
    drop_tables();
    stepped = resolving = false;
    readers = 0;
    for (int i = 0; !forked && i < root_count; i++)
        Py_CLEAR(roots[i].reference);
    if (!forked)
        root_count = 0;
}

/* ---- 1. Has anything changed? -------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, const void *address)
{
    hash = (hash ^ (uint64_t)(uintptr_t)address) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 29);
}

/* The modules around one, innermost first. */
typedef struct enclosing {
    const struct enclosing *outer;
    const PyObject *module;
} enclosing;

/* Is `module` one of them (a child that knows its parent), or are there too many? */
static bool ends_descent(const enclosing *inner, const PyObject *module)
{
    int depth = 0;
    for (; inner != NULL && inner->module != module; inner = inner->outer)
        depth++;
    return inner != NULL || depth > MODULE_DEPTH_MAX;
}

/* Addresses of all modules and parameters below `module`; of buffers only how many, since modules
 * replace them in ordinary training. */
static uint64_t module_fingerprint(PyObject *module, uint64_t hash, const enclosing *outer,
                                   int *left)
{
    const enclosing here = {outer, module};
    PyObject *key, *value;
    Py_ssize_t at = 0;
    hash = mix(hash, module);
    bool ends = --*left < 0 || ends_descent(outer, module);
    PyObject *dict = ends ? NULL : value_object_dict(module);
    PyObject *parameters = table_of(dict, PARAMETERS), *buffers = table_of(dict, BUFFERS),
             *children = table_of(dict, MODULES);
    while (parameters != NULL && PyDict_Check(parameters) &&
           PyDict_Next(parameters, &at, &key, &value))
        hash = mix(hash, value);
    if (buffers != NULL && PyDict_Check(buffers))
        hash = mix(hash, (const void *)PyDict_GET_SIZE(buffers));
    at = 0;
    while (children != NULL && PyDict_Check(children) && PyDict_Next(children, &at, &key, &value))
        if (value != Py_None)
            hash = module_fingerprint(value, hash, &here, left);
    Py_XDECREF(dict);
    return hash;
}

static uint64_t current_fingerprint(void)
{
    uint64_t hash = optimizers_fingerprint(1);
    int left = VISITS_MAX;
    for (int i = 0; i < root_count; i++) {
        PyObject *module = weak_get(roots[i].reference);
        hash = module == NULL ? mix(hash, NULL) : module_fingerprint(module, hash, NULL, &left);
        Py_XDECREF(module);
    }
    return hash;
}

/* ---- 2. Resolving -------------------------------------------------------------------------- */

static PyObject *weak_or_null(PyObject *object)
{
    PyObject *reference = object == Py_None ? NULL : PyWeakref_NewRef(object, NULL);
    PyErr_Clear();
    return reference;
}

/* One tuple of the resolver: (name, kind, type name, owner, key, flags, slots, group slot, group,
 * index, alias, place). */
static bool load_variable(tocsin_trace_writer *writer, PyObject *tuple, tracked *out)
{
    const char *name, *type;
    int kind;
    unsigned int flags;
    unsigned long long slots;
    PyObject *owner, *key, *place, *cut;
    if (!PyArg_ParseTuple(tuple, "sisOOIKiiiiOO", &name, &kind, &type, &owner, &key, &flags, &slots,
                          &out->group_slot, &out->group, &out->index, &out->alias_of, &place,
                          &cut) ||
        !cut_read(cut, writer, &out->cut))
        return false;
    out->variable = tocsin_trace_define_variable(writer, name, (tocsin_variable_kind)kind, type);
    out->kind = (tocsin_variable_kind)kind;
    /* Of what was not seen the better is assumed. */
    out->flags = flags | (roots_full ? (uint32_t)TOCSIN_STATE_IN_MODEL : 0u) |
                 (optimizers_all_known() ? 0u : (uint32_t)TOCSIN_STATE_IN_OPTIMIZER);
    out->slots = slots;
    out->owner = weak_or_null(owner);
    out->key = Py_NewRef(key);
    out->place = Py_NewRef(place);
    return true;
}

static bool load_variables(tocsin_trace_writer *writer, PyObject *list)
{
    Py_ssize_t count = PyList_GET_SIZE(list);
    if (count > VARIABLES_MAX)
        count = VARIABLES_MAX;
    variables = PyMem_Calloc((size_t)count + 1, sizeof *variables);
    for (Py_ssize_t i = 0; variables != NULL && i < count; i++) {
        variable_count = i + 1;
        if (!load_variable(writer, PyList_GET_ITEM(list, i), &variables[i]) ||
            variables[i].alias_of >= i)
            return false;
    }
    return variables != NULL;
}

static int compare_modules(const void *a, const void *b)
{
    uintptr_t left = (uintptr_t)((const named_module *)a)->address;
    uintptr_t right = (uintptr_t)((const named_module *)b)->address;
    return (left > right) - (left < right);
}

static char *copy_text(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = PyMem_Malloc(bytes);
    if (copy != NULL)
        memcpy(copy, text, bytes);
    return copy;
}

static bool load_modules(tocsin_trace_writer *writer, PyObject *list)
{
    Py_ssize_t count = PyList_GET_SIZE(list);
    modules = PyMem_Calloc((size_t)count + 1, sizeof *modules);
    for (Py_ssize_t i = 0; modules != NULL && i < count; i++) {
        PyObject *module;
        const char *name;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "Os", &module, &name))
            return false;
        PyObject *reference = PyWeakref_NewRef(module, NULL);
        if (reference == NULL)
            return false;
        char *text = copy_text(name);
        if (text == NULL) {
            Py_DECREF(reference);
            return false;
        }
        modules[module_count++] = (named_module){.address = module,
                                                 .reference = reference,
                                                 .name = value_text_id(writer, name),
                                                 .text = text};
    }
    if (modules != NULL)
        qsort(modules, (size_t)module_count, sizeof *modules, compare_modules);
    return modules != NULL;
}

static PyObject *live_roots(void)
{
    PyObject *list = PyList_New(0);
    for (int i = 0; list != NULL && i < root_count; i++) {
        PyObject *module = weak_get(roots[i].reference);
        if (module != NULL && PyList_Append(list, module) < 0)
            Py_CLEAR(list);
        Py_XDECREF(module);
    }
    return list;
}

/* (variables, modules) as variables.py names them now; NULL with an exception. `finally`: a step is
 * about to be made, so all models have been seen; before, their names may change. */
static PyObject *call_resolver(bool finally)
{
    PyObject *module_list = live_roots(), *optimizers = optimizers_list(), *result = NULL;
    if (resolver == NULL)
        PyErr_SetString(PyExc_RuntimeError, "no resolver");
    else if (module_list != NULL && optimizers != NULL)
        result = PyObject_CallFunctionObjArgs(resolver, module_list, optimizers,
                                              finally ? Py_True : Py_False, NULL);
    Py_XDECREF(optimizers);
    Py_XDECREF(module_list);
    return result;
}

/* Which variables have a "before", by id: names keep their history over a new resolution. */
static void inherit(const tracked *old, Py_ssize_t old_count)
{
    for (Py_ssize_t i = 0, k = 0; i < variable_count && old_count > 0; i++) {
        for (Py_ssize_t tries = 0; tries < old_count; tries++, k = (k + 1) % old_count)
            if (old[k].variable == variables[i].variable) {
                variables[i].has_before = old[k].has_before;
                break;
            }
    }
}

static void resolve(tocsin_trace_writer *writer, bool finally)
{
    assert(!resolving && readers == 0);
    resolving = true;
    tracked *old = variables;
    Py_ssize_t old_count = variable_count;
    variables = NULL;
    variable_count = 0;
    for (Py_ssize_t i = 0; i < old_count; i++) {
        Py_CLEAR(old[i].owner);
        Py_CLEAR(old[i].key);
        Py_CLEAR(old[i].place);
    }
    drop_tables();
    PyObject *result = call_resolver(finally), *variable_list, *name_list;
    bool loaded =
        result != NULL &&
        PyArg_ParseTuple(result, "O!O!", &PyList_Type, &variable_list, &PyList_Type, &name_list) &&
        load_variables(writer, variable_list) && load_modules(writer, name_list);
    if (loaded)
        inherit(old, old_count);
    else
        drop_tables();
    observe_clear_error();
    Py_XDECREF(result);
    PyMem_Free(old);
    resolving = false;
    resolved_finally = finally;
    resolved = true; /* also after a failure: not again until something changes */
}

static void refresh(tocsin_trace_writer *writer, bool finally)
{
    if (readers > 0 || resolving) /* another thread's business; seen to at the next chance */
        return;
    uint64_t now = current_fingerprint();
    bool known = resolved && (resolved_finally || !finally);
    if (known && now == fingerprint)
        return;
    fingerprint = now;
    resolve(writer, finally);
}

static root *find_root(PyObject *module)
{
    for (int i = 0; i < root_count; i++) {
        if (roots[i].address != module)
            continue;
        PyObject *live = weak_get(roots[i].reference);
        Py_XDECREF(live);
        if (live == module)
            return &roots[i];
    }
    return NULL;
}

static bool has_parameters(PyObject *module, const enclosing *outer, int *left)
{
    const enclosing here = {outer, module};
    bool ends = --*left < 0 || ends_descent(outer, module);
    PyObject *dict = ends ? NULL : value_object_dict(module);
    PyObject *key, *value;
    PyObject *parameters = table_of(dict, PARAMETERS), *children = table_of(dict, MODULES);
    bool found = false;
    Py_ssize_t at = 0;
    if (parameters != NULL && !PyDict_Check(parameters))
        found = true; /* a scripted module: variables.py will see */
    while (!found && parameters != NULL && PyDict_Next(parameters, &at, &key, &value))
        found = value != Py_None;
    at = 0;
    while (!found && children != NULL && PyDict_Check(children) &&
           PyDict_Next(children, &at, &key, &value))
        found = value != Py_None && has_parameters(value, &here, left);
    Py_XDECREF(dict);
    return found;
}

/* A copy that DataParallel makes for one forward pass on one device. */
static bool is_replica(PyObject *module)
{
    PyObject *dict = value_object_dict(module);
    bool replica = dict != NULL && PyDict_GetItemString(dict, "_is_replica") == Py_True;
    Py_XDECREF(dict);
    return replica;
}

static void drop_dead_roots(void)
{
    int kept = 0;
    for (int i = 0; i < root_count; i++) {
        PyObject *live = weak_get(roots[i].reference);
        if (live == NULL)
            Py_CLEAR(roots[i].reference);
        else
            roots[kept++] = roots[i];
        Py_XDECREF(live);
    }
    root_count = kept;
}

bool variables_saw_root(PyObject *module)
{
    root *known = find_root(module);
    if (known != NULL)
        return known->has_parameters;
    if (root_count == ROOTS_MAX)
        drop_dead_roots();
    if (is_replica(module))
        return false;
    roots_full = roots_full || root_count == ROOTS_MAX;
    PyObject *reference = root_count == ROOTS_MAX ? NULL : PyWeakref_NewRef(module, NULL);
    PyErr_Clear();
    if (reference == NULL)
        return false;
    int left = VISITS_MAX;
    bool found = has_parameters(module, NULL, &left);
    roots[root_count++] = (root){reference, module, found};
    tocsin_trace_writer *writer = tocsin_recorder_writer(observe_recorder);
    if (writer != NULL)
        refresh(writer, false);
    return found;
}

/* NULL: not known, or another module at the address of one that is gone. */
static named_module *find_module(PyObject *module)
{
    named_module wanted = {.address = module};
    named_module *found = module_count == 0 ? NULL
                                            : bsearch(&wanted, modules, (size_t)module_count,
                                                      sizeof *modules, compare_modules);
    if (found == NULL)
        return NULL;
    PyObject *live = weak_get(found->reference);
    Py_XDECREF(live);
    return live == module ? found : NULL;
}

tocsin_id variables_module_name(PyObject *module)
{
    const named_module *found = find_module(module);
    return found == NULL ? 0 : found->name;
}

tocsin_id variables_boundary(tocsin_trace_writer *writer, PyObject *module)
{
    named_module *found = find_module(module);
    if (found == NULL)
        return 0;
    if (found->boundary == 0)
        found->boundary =
            tocsin_trace_define_variable(writer, found->text, TOCSIN_VARIABLE_BOUNDARY, "");
    return found->boundary;
}

/* ---- 3. Reading states --------------------------------------------------------------------- */

/* One sampling point: what is the same for all variables. */
typedef struct sampling_point {
    tocsin_trace_writer *writer;
    tocsin_role role;
    tocsin_moment moment;
    PyObject *optimizer; /* NULL: not in optimizer.step */
    int slot;
    int lr_group; /* the group that `lr` is of; -1: none read yet */
    double lr;
} sampling_point;

/* New reference to the tensor, or NULL when it is gone. */
static PyObject *tensor_of(const tracked *variable, PyObject *owner)
{
    if (variable->owner == NULL)
        return optimizer_parameter(variable->group_slot, variable->group, variable->index);
    bool parameter = variable->kind == TOCSIN_VARIABLE_PARAMETER;
    PyObject *dict = owner == NULL ? NULL : value_object_dict(owner);
    PyObject *table = table_of(dict, parameter ? PARAMETERS : BUFFERS), *tensor = NULL;
    if (table != NULL && PyDict_Check(table))
        tensor = Py_XNewRef(PyDict_GetItemWithError(table, variable->key));
    else if (dict != NULL) /* a scripted module keeps its tensors elsewhere */
        tensor = PyObject_GetAttr(owner, variable->key);
    Py_XDECREF(dict);
    observe_clear_error();
    if (tensor == Py_None)
        Py_CLEAR(tensor);
    return tensor;
}

static double lr_of(sampling_point *point, const tracked *variable)
{
    if (point->optimizer == NULL || point->slot != variable->group_slot)
        return NAN;
    if (point->lr_group != variable->group) {
        point->lr_group = variable->group;
        point->lr = optimizer_group_lr(point->optimizer, variable->group);
    }
    return point->lr;
}

/* A second optimizer is read for its own parameters only. (With one optimizer per parameter,
 * stepping inside backward, all of them at each step would be quadratic.) */
static bool is_read_here(const sampling_point *point, const tracked *variable)
{
    return point->slot < 0 || tocsin_recorder_leads(observe_recorder, (uint32_t)point->slot) ||
           (variable->slots >> point->slot & 1) != 0;
}

static tocsin_sampling amount_of(const sampling_point *point, const tracked *variable,
                                 tocsin_attribute attribute)
{
    tocsin_sampling amount = tocsin_recorder_sampling(observe_recorder, point->role, point->moment,
                                                      attribute, variable->kind);
    /* The first step, and the first after some without digests, needs a "before" for its "after".
     */
    if (attribute == TOCSIN_ATTRIBUTE_DATA && point->role == TOCSIN_ROLE_OPTIMIZER_STEP &&
        point->moment == TOCSIN_MOMENT_ENTER && !variable->has_before &&
        tocsin_recorder_sampling(observe_recorder, point->role, TOCSIN_MOMENT_EXIT, attribute,
                                 variable->kind) == TOCSIN_SAMPLING_DIGEST)
        amount = TOCSIN_SAMPLING_DIGEST;
    return amount;
}

/* Emit an attribute of which this rank holds a part. */
static void emit_piece(sampling_point *point, tracked *variable, tocsin_attribute attribute,
                       tocsin_sampling amount, uint32_t flags, tensor_piece *piece)
{
    value_list list;
    value_list_begin(&list, TOCSIN_ROLE_NONE);
    tocsin_sample sample = {.variable = variable->variable,
                            .attribute = attribute,
                            .moment = point->moment,
                            .flags = flags,
                            .lr = lr_of(point, variable)};
    piece_fill(piece, point->writer, amount == TOCSIN_SAMPLING_DIGEST, &sample, &list);
    (void)tocsin_recorder_sample(observe_recorder, &sample, NULL);
    variable->known[attribute] = false;
}

/* Emit one attribute, whose metadata was read (NULL: it is None, or cannot be read). */
static void emit_state(sampling_point *point, tracked *variable, tocsin_attribute attribute,
                       tocsin_sampling amount, uint32_t flags, const tensor_meta *meta)
{
    tensor_piece piece;
    if (meta != NULL && variable->place != Py_None && piece_place(meta, variable->place, &piece)) {
        emit_piece(point, variable, attribute, amount, flags, &piece);
        return;
    }
    tocsin_sample sample = {.variable = variable->variable,
                            .attribute = attribute,
                            .moment = point->moment,
                            .flags = flags,
                            .lr = lr_of(point, variable)};
    tocsin_tensor_view view;
    if (meta != NULL) {
        sample.dtype = (tocsin_dtype)meta->dtype;
        sample.ndim = meta->ndim;
        sample.shape = meta->sizes;
        sample.shape_id = value_shape_id(point->writer, meta->ndim, meta->sizes);
    }
    const tracked *first = variable->alias_of < 0 ? NULL : &variables[variable->alias_of];
    if (meta != NULL && amount == TOCSIN_SAMPLING_DIGEST && meta->readable) {
        view = (tocsin_tensor_view){.data = meta->data,
                                    .dtype = (tocsin_dtype)meta->dtype,
                                    .ndim = meta->ndim,
                                    .shape = meta->sizes,
                                    .strides = meta->strides};
        /* Names can part without a new parameter object (.data), and each has its own gradient. */
        if (first != NULL && first->known[attribute] && first->memory[attribute] == meta->data)
            sample.known = &first->digests[attribute];
        else
            sample.view = &view;
    }
    bool digested =
        tocsin_recorder_sample(observe_recorder, &sample, &variable->digests[attribute]);
    variable->known[attribute] = digested;
    variable->memory[attribute] = meta != NULL ? meta->data : NULL;
    bool stepped_now =
        point->role == TOCSIN_ROLE_OPTIMIZER_STEP && point->moment == TOCSIN_MOMENT_EXIT;
    if (attribute == TOCSIN_ATTRIBUTE_DATA && (digested || stepped_now))
        variable->has_before = digested;
    if (__builtin_expect(variable->cut.variable != 0, 0) && digested)
        cut_emit(&variable->cut, point->writer, attribute, point->moment, meta);
}

/* A parameter or buffer that is sharded over ranks, and its gradient. */
static void sample_sharded(sampling_point *point, tracked *variable, tensor_piece *piece,
                           uint32_t flags, tocsin_sampling data, tocsin_sampling grad)
{
    tensor_piece gradient;
    flags |= (piece->requires_grad ? (uint32_t)TOCSIN_STATE_REQUIRES_GRAD : 0u) |
             (piece->is_leaf ? (uint32_t)TOCSIN_STATE_IS_LEAF : 0u);
    if (grad != TOCSIN_SAMPLING_NONE && piece->gradient != NULL && piece_is(piece->gradient) &&
        piece_read(piece->gradient, false, &gradient)) {
        gradient.requires_grad = gradient.is_leaf = false; /* flags are the variable's */
        emit_piece(point, variable, TOCSIN_ATTRIBUTE_GRAD, grad, flags, &gradient);
        piece_release(&gradient);
    } else if (grad != TOCSIN_SAMPLING_NONE) { /* none, or of a kind that is not read */
        emit_state(point, variable, TOCSIN_ATTRIBUTE_GRAD, grad,
                   flags | (piece->gradient != NULL ? (uint32_t)TOCSIN_STATE_PRESENT : 0u), NULL);
    }
    if (data != TOCSIN_SAMPLING_NONE)
        emit_piece(point, variable, TOCSIN_ATTRIBUTE_DATA, data, flags, piece);
}

static void sample_grad(sampling_point *point, tracked *variable, PyObject *tensor, uint32_t flags,
                        tocsin_sampling amount)
{
    tensor_meta grad;
    if (tensor_meta_read_grad(tensor, &grad)) {
        emit_state(point, variable, TOCSIN_ATTRIBUTE_GRAD, amount, flags | TOCSIN_STATE_PRESENT,
                   &grad);
        tensor_meta_release(&grad);
    } else {
        emit_state(point, variable, TOCSIN_ATTRIBUTE_GRAD, amount, flags, NULL);
    }
}

static void sample_variable(sampling_point *point, tracked *variable)
{
    tocsin_sampling data = amount_of(point, variable, TOCSIN_ATTRIBUTE_DATA);
    tocsin_sampling grad = variable->kind == TOCSIN_VARIABLE_PARAMETER
                               ? amount_of(point, variable, TOCSIN_ATTRIBUTE_GRAD)
                               : TOCSIN_SAMPLING_NONE;
    if (data == TOCSIN_SAMPLING_NONE && grad == TOCSIN_SAMPLING_NONE)
        return;
    PyObject *owner = variable->owner == NULL ? NULL : weak_get(variable->owner);
    PyObject *tensor = tensor_of(variable, owner);
    tensor_meta meta;
    tensor_piece piece;
    uint32_t flags = variable->flags;
    if (owner != NULL && value_module_is_training(owner))
        flags |= TOCSIN_STATE_MODULE_TRAINING;
    if (point->slot >= 0 && (variable->slots >> point->slot & 1) != 0)
        flags |= TOCSIN_STATE_IN_THIS_OPTIMIZER;
    if (tensor != NULL && tensor_is_exact(tensor) && tensor_meta_read(tensor, &meta)) {
        flags |= (meta.requires_grad ? TOCSIN_STATE_REQUIRES_GRAD : 0u) |
                 (meta.has_grad_fn ? 0u : TOCSIN_STATE_IS_LEAF);
        if (grad != TOCSIN_SAMPLING_NONE)
            sample_grad(point, variable, tensor, flags, grad);
        if (data != TOCSIN_SAMPLING_NONE)
            emit_state(point, variable, TOCSIN_ATTRIBUTE_DATA, data, flags | TOCSIN_STATE_PRESENT,
                       &meta);
        tensor_meta_release(&meta);
    } else if (tensor != NULL && piece_is(tensor) &&
               piece_read(tensor, grad != TOCSIN_SAMPLING_NONE, &piece)) {
        sample_sharded(point, variable, &piece, flags, data, grad);
        piece_release(&piece);
    } else if (tensor != NULL && data != TOCSIN_SAMPLING_NONE) {
        /* a subclass: it is there, its memory is its own business */
        emit_state(point, variable, TOCSIN_ATTRIBUTE_DATA, TOCSIN_SAMPLING_PRESENCE,
                   flags | TOCSIN_STATE_PRESENT, NULL);
    }
    Py_XDECREF(tensor);
    Py_XDECREF(owner);
}

void variables_sample(tocsin_role role, tocsin_moment moment, PyObject *optimizer)
{
    bool at_step = role == TOCSIN_ROLE_OPTIMIZER_STEP;
    /* Before the first step not all models and optimizers have been seen, and names might change.
     */
    if (!tocsin_recorder_samples(observe_recorder, role, moment) && !at_step)
        return;
    if (!stepped && !at_step)
        return;
    sampling_point point = {.writer = tocsin_recorder_writer(observe_recorder),
                            .role = role,
                            .moment = moment,
                            .optimizer = optimizer,
                            .slot = optimizer == NULL ? -1 : optimizer_slot(optimizer),
                            .lr_group = -1,
                            .lr = NAN};
    if (point.writer == NULL)
        return;
    if (at_step && (moment == TOCSIN_MOMENT_ENTER || !stepped)) {
        stepped = true;
        refresh(point.writer, true);
    }
    if (resolving)
        return;
    readers++;
    for (Py_ssize_t i = 0; i < variable_count; i++) {
        memset(variables[i].known, 0, sizeof variables[i].known);
        if (is_read_here(&point, &variables[i]))
            sample_variable(&point, &variables[i]);
    }
    readers--;
}

PyObject *variables_resolved(void)
{
    return call_resolver(false);
}
