/* value_summary.c - Python objects as values of events.
 *
 * Data structure: per type one word (its class of value and the id of its name) and per shape one
 * id, in direct-mapped tables; per interned string one id. All are caches: the dictionary of the
 * trace is the truth, and after a fork they start empty.
 * Invariant: a summary reads metadata only; it calls __str__ of dtypes, devices and enum members
 * and nothing else of the user's. Ranks of process groups are looked up in torch's tables.
 * Cost: a number or tensor 10-30 ns, an interned string 5 ns, a new string a dictionary look-up.
 */
#include "observe.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum {
    SHAPE_SLOTS = 1024,
    TYPE_SLOTS = 1024,
    SHAPE_AXES_MAX = 8,
    POSITIONS = TOCSIN_EVENT_VALUES_MAX,
    SEQUENCE_ITEMS = 4,
    TEXT_BYTES_MAX = 256,
    LOOSE_STRINGS_MAX = 65536 /* different ones; later ones are "?" */
};

typedef enum value_class {
    CLASS_OBJECT,
    CLASS_MODULE,
    CLASS_TEXT,  /* dtype, device, enum member ...: its str() says it all */
    CLASS_GROUP, /* process group, device mesh: its ranks, as `describe_group` writes them */
    CLASS_BOOL,
    CLASS_INT,
    CLASS_FLOAT,
    CLASS_STRING,
    CLASS_SEQUENCE
} value_class;

typedef struct shape_slot {
    tocsin_id id;
    uint32_t ndim;
    int64_t sizes[SHAPE_AXES_MAX];
} shape_slot;

typedef struct type_slot {
    const PyTypeObject *type;
    PyObject *reference; /* weak: a class of the user's may die and another have its address */
    uint64_t word;       /* value_class | name id << 8 */
} type_slot;

static PyTypeObject *module_type;
static PyObject *text_types;     /* tuple */
static PyObject *group_types;    /* tuple */
static PyObject *describe_group; /* of such an object, or (mesh, dim): str or None */
static PyObject *training_name;

static type_slot types[TYPE_SLOTS];
static identity_map strings; /* interned str -> id */
static PyObject *loose;      /* dict: beginning of a str made at run time (a file name) -> id */
static identity_map members; /* enum member, dtype -> id of its text */
static shape_slot shapes[SHAPE_SLOTS];
static tocsin_id positions[POSITIONS];

bool value_summary_learn_types(PyObject *module, PyObject *texts)
{
    if (training_name == NULL)
        training_name = PyUnicode_InternFromString("training");
    Py_XSETREF(module_type, (PyTypeObject *)Py_NewRef(module));
    Py_XSETREF(text_types, Py_NewRef(texts));
    return training_name != NULL;
}

void value_summary_learn_groups(PyObject *classes, PyObject *describe)
{
    Py_XSETREF(group_types, Py_NewRef(classes));
    Py_XSETREF(describe_group, Py_NewRef(describe));
}

void value_summary_forget(void)
{
    for (size_t i = 0; i < TYPE_SLOTS; i++)
        Py_CLEAR(types[i].reference);
    identity_map_clear(&strings);
    identity_map_clear(&members);
    memset(shapes, 0, sizeof shapes);
    memset(positions, 0, sizeof positions);
    Py_CLEAR(loose);
}

/* ---- 1. Ids -------------------------------------------------------------------------------- */

tocsin_id value_text_id(tocsin_trace_writer *writer, const char *text)
{
    return tocsin_trace_define_string(writer, text, strnlen(text, TEXT_BYTES_MAX));
}

static tocsin_id define_string(tocsin_trace_writer *writer, PyObject *text)
{
    Py_ssize_t bytes;
    const char *utf8 = PyUnicode_AsUTF8AndSize(text, &bytes);
    if (utf8 == NULL) { /* lone surrogates */
        PyErr_Clear();
        return 0;
    }
    size_t kept = bytes > TEXT_BYTES_MAX ? TEXT_BYTES_MAX : (size_t)bytes;
    while (kept < (size_t)bytes && kept > 0 && ((unsigned char)utf8[kept] & 0xc0) == 0x80)
        kept--; /* do not cut a character */
    return tocsin_trace_define_string(writer, utf8, kept);
}

/* What is known stays known when the limit is reached: a constant must not become "?" some day. */
static tocsin_id loose_string_id(tocsin_trace_writer *writer, PyObject *text)
{
    PyObject *key = PyUnicode_Substring(text, 0, TEXT_BYTES_MAX);
    tocsin_id id = 0;
    if (loose == NULL)
        loose = PyDict_New();
    PyObject *known = key == NULL || loose == NULL ? NULL : PyDict_GetItemWithError(loose, key);
    if (known != NULL) {
        id = (tocsin_id)PyLong_AsUnsignedLong(known);
    } else if (key != NULL && loose != NULL && PyDict_GET_SIZE(loose) < LOOSE_STRINGS_MAX) {
        id = define_string(writer, key);
        PyObject *number = id == 0 ? NULL : PyLong_FromUnsignedLong(id);
        if (number != NULL)
            (void)PyDict_SetItem(loose, key, number);
        Py_XDECREF(number);
    }
    Py_XDECREF(key);
    PyErr_Clear();
    return id;
}

tocsin_id value_string_id(tocsin_trace_writer *writer, PyObject *text)
{
    uint64_t *known = identity_map_find(&strings, text);
    if (known != NULL)
        return (tocsin_id)*known;
    if (!PyUnicode_CHECK_INTERNED(text))
        return loose_string_id(writer, text);
    tocsin_id id = define_string(writer, text);
    if (id != 0)
        identity_map_put(&strings, text, id);
    return id;
}

tocsin_id value_position_id(tocsin_trace_writer *writer, Py_ssize_t position)
{
    char text[32];
    if (position >= POSITIONS)
        return 0;
    if (positions[position] == 0) {
        snprintf(text, sizeof text, "arg%zd", position);
        positions[position] = value_text_id(writer, text);
    }
    return positions[position];
}

tocsin_id value_shape_id(tocsin_trace_writer *writer, uint32_t ndim, const int64_t *sizes)
{
    if (ndim == 0)
        return 0;
    if (ndim > SHAPE_AXES_MAX)
        return tocsin_trace_define_shape(writer, ndim, sizes);
    uint64_t hash = ndim;
    for (uint32_t axis = 0; axis < ndim; axis++)
        hash = (hash ^ (uint64_t)sizes[axis]) * UINT64_C(0x9e3779b97f4a7c15);
    shape_slot *slot = &shapes[(hash >> 40) % SHAPE_SLOTS];
    if (slot->id == 0 || slot->ndim != ndim ||
        memcmp(slot->sizes, sizes, ndim * sizeof *sizes) != 0) {
        slot->ndim = ndim;
        memcpy(slot->sizes, sizes, ndim * sizeof *sizes);
        slot->id = tocsin_trace_define_shape(writer, ndim, sizes);
    }
    return slot->id;
}

/* "torch.optim.adamw.AdamW"; builtins without their module. */
static tocsin_id define_type(tocsin_trace_writer *writer, PyTypeObject *type)
{
    PyObject *module = PyObject_GetAttrString((PyObject *)type, "__module__");
    PyObject *name = PyObject_GetAttrString((PyObject *)type, "__qualname__");
    PyObject *full = NULL;
    tocsin_id id = 0;
    if (name != NULL && PyUnicode_Check(name)) {
        bool builtin = module == NULL || !PyUnicode_Check(module) ||
                       PyUnicode_CompareWithASCIIString(module, "builtins") == 0;
        full = builtin ? Py_NewRef(name) : PyUnicode_FromFormat("%U.%U", module, name);
    }
    if (full != NULL)
        id = define_string(writer, full);
    Py_XDECREF(full);
    Py_XDECREF(name);
    Py_XDECREF(module);
    observe_clear_error();
    return id;
}

static bool is_one_of(PyTypeObject *type, PyObject *classes)
{
    for (Py_ssize_t i = 0; classes != NULL && i < PyTuple_GET_SIZE(classes); i++)
        if (PyType_IsSubtype(type, (PyTypeObject *)PyTuple_GET_ITEM(classes, i)))
            return true;
    return false;
}

static value_class classify(PyTypeObject *type)
{
    if (module_type != NULL && PyType_IsSubtype(type, module_type))
        return CLASS_MODULE;
    if (is_one_of(type, text_types))
        return CLASS_TEXT;
    if (is_one_of(type, group_types))
        return CLASS_GROUP;
    if (type == &PyBool_Type)
        return CLASS_BOOL;
    if (PyType_FastSubclass(type, Py_TPFLAGS_LONG_SUBCLASS))
        return CLASS_INT;
    if (PyType_IsSubtype(type, &PyFloat_Type))
        return CLASS_FLOAT;
    if (PyType_FastSubclass(type, Py_TPFLAGS_UNICODE_SUBCLASS))
        return CLASS_STRING;
    if (PyType_FastSubclass(type, Py_TPFLAGS_TUPLE_SUBCLASS | Py_TPFLAGS_LIST_SUBCLASS))
        return CLASS_SEQUENCE;
    return CLASS_OBJECT;
}

static uint64_t type_word(tocsin_trace_writer *writer, PyTypeObject *type)
{
    type_slot *slot = &types[identity_hash(type) % TYPE_SLOTS];
    if (slot->type == type && slot->reference != NULL) {
        PyObject *live = weak_get(slot->reference);
        Py_XDECREF(live);
        if (live == (PyObject *)type)
            return slot->word;
    }
    value_class class = classify(type);
    uint64_t word = (uint64_t) class | (uint64_t)define_type(writer, type) << 8;
    PyObject *reference = PyWeakref_NewRef((PyObject *)type, NULL);
    PyErr_Clear();
    if (reference != NULL) {
        Py_XSETREF(slot->reference, reference);
        slot->type = type;
        slot->word = word;
    }
    return word;
}

tocsin_id value_type_id(tocsin_trace_writer *writer, PyTypeObject *type)
{
    return (tocsin_id)(type_word(writer, type) >> 8);
}

/* ---- 2. Values ----------------------------------------------------------------------------- */

bool value_is_module(PyObject *object)
{
    return module_type != NULL && PyObject_TypeCheck(object, module_type);
}

PyObject *value_object_dict(PyObject *object)
{
    PyObject *dict = PyObject_GenericGetDict(object, NULL);
    PyErr_Clear();
    return dict;
}

bool value_module_is_training(PyObject *module)
{
    PyObject *dict = value_object_dict(module);
    PyObject *training = dict == NULL ? NULL : PyDict_GetItemWithError(dict, training_name);
    if (training != NULL)
        Py_INCREF(training);
    else if (!PyErr_Occurred()) /* a property: that of a compiled module asks the original */
        training = PyObject_GetAttr(module, training_name);
    bool result = training == Py_True;
    Py_XDECREF(training);
    Py_XDECREF(dict);
    observe_clear_error();
    return result;
}

static bool has_one_element(const tensor_meta *meta)
{
    for (uint32_t axis = 0; axis < meta->ndim; axis++)
        if (meta->sizes[axis] != 1)
            return false;
    return true;
}

static float half_to_float(uint16_t half)
{
    int exponent = half >> 10 & 31;
    float fraction = (float)(half & 1023), magnitude;
    if (exponent == 31)
        magnitude = fraction == 0 ? INFINITY : NAN;
    else
        magnitude = exponent == 0 ? ldexpf(fraction, -24) : ldexpf(fraction + 1024, exponent - 25);
    return half >> 15 ? -magnitude : magnitude;
}

/* The number at `data`; false: of a dtype that is no plain number. */
static bool read_number(const void *data, tocsin_dtype dtype, tocsin_value *value)
{
    uint16_t half = 0;
    uint32_t bits = 0;
    int32_t narrow;
    float single;
    switch (dtype) {
    case TOCSIN_DTYPE_FLOAT64:
        memcpy(&value->as.real, data, sizeof value->as.real);
        return true;
    case TOCSIN_DTYPE_INT64:
        value->kind = TOCSIN_VALUE_INT;
        memcpy(&value->as.integer, data, sizeof value->as.integer);
        return true;
    case TOCSIN_DTYPE_INT32:
        value->kind = TOCSIN_VALUE_INT;
        memcpy(&narrow, data, sizeof narrow);
        value->as.integer = narrow;
        return true;
    case TOCSIN_DTYPE_FLOAT32:
        memcpy(&single, data, sizeof single);
        break;
    case TOCSIN_DTYPE_FLOAT16:
        memcpy(&half, data, sizeof half);
        single = half_to_float(half);
        break;
    case TOCSIN_DTYPE_BFLOAT16:
        memcpy(&half, data, sizeof half);
        bits = (uint32_t)half << 16;
        memcpy(&single, &bits, sizeof single);
        break;
    default:
        return false;
    }
    value->as.real = (double)single;
    return true;
}

bool value_item(const tensor_meta *meta, tocsin_value *value)
{
    memset(value, 0, sizeof *value);
    value->kind = TOCSIN_VALUE_FLOAT;
    return meta->readable && meta->data != NULL && has_one_element(meta) &&
           read_number(meta->data, (tocsin_dtype)meta->dtype, value);
}

/* Stands for an address: equal addresses have equal tags, never 0. */
static uint32_t memory_tag(const void *data)
{
    uint64_t mixed = (uint64_t)(uintptr_t)data * UINT64_C(0x9e3779b97f4a7c15);
    uint32_t tag = (uint32_t)(mixed >> 32);
    return data == NULL ? 0 : tag == 0 ? 1 : tag;
}

void value_tag_object(value_list *list, const PyObject *object)
{
    if (list->count > 0 && list->items[0].kind == TOCSIN_VALUE_OBJECT)
        list->items[0].count = memory_tag(object);
}

/* The element of the tensor at `index` follows it. */
static void append_item(value_list *list, uint32_t index, const tensor_meta *meta)
{
    tocsin_value item;
    if (list->count == TOCSIN_EVENT_VALUES_MAX || !value_item(meta, &item))
        return;
    item.flags = TOCSIN_VALUE_IN_SEQUENCE;
    list->items[list->count++] = item;
    list->items[index].flags |= TOCSIN_VALUE_HAS_ITEM;
}

static void fill_tensor(value_list *list, tocsin_trace_writer *writer, PyObject *object,
                        uint32_t index, bool nested)
{
    tensor_meta meta;
    tocsin_value *value = &list->items[index];
    if (!tensor_meta_read(object, &meta)) {
        value->kind = TOCSIN_VALUE_OBJECT;
        value->type = value_type_id(writer, Py_TYPE(object));
        return;
    }
    value->kind = TOCSIN_VALUE_TENSOR;
    value->dtype = meta.dtype;
    value->ndim = meta.ndim;
    value->flags |= (uint8_t)((meta.requires_grad ? TOCSIN_VALUE_REQUIRES_GRAD : 0) |
                              (meta.has_grad_fn ? TOCSIN_VALUE_HAS_GRAD_FN : 0) |
                              (tensor_is_parameter(object) ? TOCSIN_VALUE_IS_PARAMETER : 0) |
                              (meta.on_cpu ? 0 : TOCSIN_VALUE_ON_DEVICE));
    value->as.shape = value_shape_id(writer, meta.ndim, meta.sizes);
    if (list->tags)
        value->count = memory_tag(meta.data);
    if (list->elements && !nested)
        append_item(list, index, &meta);
    tensor_meta_release(&meta);
}

static void fill_int(tocsin_value *value, PyObject *object)
{
    int overflow;
    value->as.integer = PyLong_AsLongLongAndOverflow(object, &overflow);
    value->kind = overflow == 0 ? TOCSIN_VALUE_INT : TOCSIN_VALUE_BIG;
    if (overflow != 0)
        value->as.integer = 0;
}

/* The str() of a dtype, device or enum member. */
static void fill_text(tocsin_value *value, tocsin_trace_writer *writer, PyObject *object)
{
    uint64_t *known = identity_map_find(&members, object);
    value->kind = TOCSIN_VALUE_STRING;
    if (known != NULL) {
        value->as.text = (tocsin_id)*known;
        return;
    }
    PyObject *text = PyObject_Str(object);
    if (text != NULL)
        value->as.text = define_string(writer, text);
    Py_XDECREF(text);
    observe_clear_error();
    if (value->as.text != 0)
        identity_map_put(&members, object, value->as.text);
}

/* The ranks of a process group; false: they are not known. */
static bool fill_group(tocsin_value *value, tocsin_trace_writer *writer, PyObject *object)
{
    PyObject *text = describe_group == NULL ? NULL : PyObject_CallOneArg(describe_group, object);
    bool known = text != NULL && PyUnicode_Check(text);
    if (known) {
        value->kind = TOCSIN_VALUE_STRING;
        value->as.text = loose_string_id(writer, text);
    }
    Py_XDECREF(text);
    observe_clear_error();
    return known;
}

/* (mesh, dim) stands for the group along that dim. */
static bool is_group_pair(tocsin_trace_writer *writer, PyObject *sequence)
{
    return PyTuple_Check(sequence) && PyTuple_GET_SIZE(sequence) == 2 &&
           (type_word(writer, Py_TYPE(PyTuple_GET_ITEM(sequence, 0))) & 0xff) == CLASS_GROUP;
}

static void fill(value_list *list, tocsin_trace_writer *writer, PyObject *object, tocsin_id name,
                 bool nested);

/* A sequence and its first items, which follow it. */
static void fill_sequence(value_list *list, tocsin_trace_writer *writer, PyObject *sequence,
                          uint32_t index)
{
    Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence), i = 0;
    list->items[index].kind = TOCSIN_VALUE_SEQUENCE;
    list->items[index].count = (uint32_t)count;
    /* The str() of an item may change the list. */
    for (; i < SEQUENCE_ITEMS && i < PySequence_Fast_GET_SIZE(sequence) &&
           list->count < TOCSIN_EVENT_VALUES_MAX;
         i++) {
        PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(sequence, i));
        fill(list, writer, item, 0, true);
        Py_DECREF(item);
    }
    if (i < SEQUENCE_ITEMS && i < count) /* readers expect min(count, 4) items */
        list->items[index].count = (uint32_t)i;
}

/* A value whose type is none of the frequent exact ones. */
static void fill_by_class(value_list *list, tocsin_trace_writer *writer, PyObject *object,
                          uint32_t index, bool nested)
{
    tocsin_value *value = &list->items[index];
    uint64_t word = type_word(writer, Py_TYPE(object));
    switch ((value_class)(word & 0xff)) {
    case CLASS_MODULE:
        value->kind = TOCSIN_VALUE_MODULE;
        value->type = (tocsin_id)(word >> 8);
        value->as.text = variables_module_name(object);
        value->flags |= value_module_is_training(object) ? TOCSIN_VALUE_TRAINING : 0;
        return;
    case CLASS_TEXT:
        fill_text(value, writer, object);
        return;
    case CLASS_GROUP:
        if (fill_group(value, writer, object))
            return;
        break;
    case CLASS_BOOL:
        value->kind = TOCSIN_VALUE_BOOL;
        value->as.integer = object == Py_True;
        return;
    case CLASS_INT:
        fill_int(value, object);
        return;
    case CLASS_FLOAT:
        value->kind = TOCSIN_VALUE_FLOAT;
        value->as.real = PyFloat_AS_DOUBLE(object);
        return;
    case CLASS_STRING:
        value->kind = TOCSIN_VALUE_STRING;
        value->as.text = value_string_id(writer, object);
        return;
    case CLASS_SEQUENCE:
        if (!nested && is_group_pair(writer, object) && fill_group(value, writer, object))
            return;
        if (!nested) {
            fill_sequence(list, writer, object, index);
            return;
        }
        break;
    case CLASS_OBJECT:
        break;
    }
    value->kind = TOCSIN_VALUE_OBJECT;
    value->type = (tocsin_id)(word >> 8);
}

static void fill(value_list *list, tocsin_trace_writer *writer, PyObject *object, tocsin_id name,
                 bool nested)
{
    if (list->count == TOCSIN_EVENT_VALUES_MAX)
        return;
    uint32_t index = list->count++;
    tocsin_value *value = &list->items[index];
    memset(value, 0, sizeof *value);
    value->name = name;
    value->flags = nested ? TOCSIN_VALUE_IN_SEQUENCE : 0;
    if (tensor_is_exact(object))
        fill_tensor(list, writer, object, index, nested);
    else if (object == Py_None)
        value->kind = TOCSIN_VALUE_NONE;
    else
        fill_by_class(list, writer, object, index, nested);
}

void value_summarize(value_list *list, tocsin_trace_writer *writer, PyObject *object,
                     tocsin_id name)
{
    assert(list->count <= TOCSIN_EVENT_VALUES_MAX);
    fill(list, writer, object, name, false);
}

void value_append_text(value_list *list, tocsin_trace_writer *writer, tocsin_id name,
                       const char *text)
{
    if (list->count == TOCSIN_EVENT_VALUES_MAX)
        return;
    list->items[list->count++] = (tocsin_value){
        .kind = TOCSIN_VALUE_STRING, .name = name, .as.text = value_text_id(writer, text)};
}

void value_append_int(value_list *list, tocsin_id name, int64_t integer)
{
    if (list->count == TOCSIN_EVENT_VALUES_MAX)
        return;
    list->items[list->count++] =
        (tocsin_value){.kind = TOCSIN_VALUE_INT, .name = name, .as.integer = integer};
}
