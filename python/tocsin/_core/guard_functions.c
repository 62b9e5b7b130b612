/* guard_functions.c - the judgements of tocsin/guard.h for Python: rows come as bytes, findings go
 * as dicts.
 *
 * Rows are what struct.pack("=...") makes: gradients "=QQQqqqddQ", comparisons "=QQqq6Q", runs
 * "=IIII3Q", digests "=3Q". Cost: a copy of names and numbers; rows are read in place.
 */
#include "guard_functions.h"

/* ---- arguments ----------------------------------------------------------------------------- */

PyObject *tocsin_guard_raise(tocsin_status status, const tocsin_error *error)
{
    PyObject *type = status == TOCSIN_E_MEMORY      ? PyExc_MemoryError
                     : status == TOCSIN_E_IO        ? PyExc_OSError
                     : status == TOCSIN_E_NOT_FOUND ? PyExc_FileNotFoundError
                                                    : PyExc_ValueError;
    if (error->where[0])
        PyErr_Format(type, "%s: %s", error->where, error->message);
    else
        PyErr_SetString(type, error->message);
    return NULL;
}

typedef struct row_bytes {
    Py_buffer buffer;
    const void *rows;
    size_t count;
} row_bytes;

/* false: not whole rows, or an exception of the object's. Release with PyBuffer_Release. */
static bool rows_take(PyObject *object, size_t row_bytes_each, row_bytes *taken)
{
    if (PyObject_GetBuffer(object, &taken->buffer, PyBUF_SIMPLE) < 0)
        return false;
    taken->rows = taken->buffer.buf;
    taken->count = (size_t)taken->buffer.len / row_bytes_each;
    if ((size_t)taken->buffer.len == taken->count * row_bytes_each &&
        (uintptr_t)taken->rows % _Alignof(uint64_t) == 0)
        return true;
    PyErr_Format(PyExc_ValueError, "%zd bytes are not aligned rows of %zu bytes", taken->buffer.len,
                 row_bytes_each);
    PyBuffer_Release(&taken->buffer);
    return false;
}

typedef struct name_list {
    PyObject *sequence;
    const char **names;
    size_t count;
} name_list;

static void names_release(name_list *list)
{
    PyMem_Free(list->names);
    list->names = NULL;
    Py_CLEAR(list->sequence);
}

/* An iterable of str, or None. The names live as long as the list. After false it is empty. */
static bool names_take(PyObject *object, name_list *list)
{
    *list = (name_list){.sequence = NULL};
    if (object == NULL || object == Py_None)
        return true;
    list->sequence = PySequence_Tuple(object);
    if (list->sequence == NULL)
        return false;
    size_t count = (size_t)PyTuple_GET_SIZE(list->sequence);
    list->names = PyMem_New(const char *, count + 1);
    if (list->names == NULL) {
        PyErr_NoMemory();
        names_release(list);
        return false;
    }
    for (; list->count < count; ++list->count) {
        PyObject *name = PyTuple_GET_ITEM(list->sequence, (Py_ssize_t)list->count);
        list->names[list->count] = PyUnicode_AsUTF8(name);
        if (list->names[list->count] == NULL) {
            names_release(list);
            return false;
        }
    }
    return true;
}

bool tocsin_guard_take_ranks(PyObject *object, uint32_t **ranks, size_t *count)
{
    *ranks = NULL;
    *count = 0;
    if (object == NULL || object == Py_None)
        return true;
    PyObject *sequence = PySequence_Tuple(object);
    if (sequence == NULL)
        return false;
    size_t given = (size_t)PyTuple_GET_SIZE(sequence);
    *ranks = PyMem_New(uint32_t, given + 1);
    if (*ranks == NULL)
        PyErr_NoMemory();
    while (!PyErr_Occurred() && *count < given) {
        unsigned long rank = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(sequence, (Py_ssize_t)*count));
        if (!PyErr_Occurred() && rank >= TOCSIN_GUARD_RANKS_MAX)
            PyErr_Format(PyExc_ValueError, "%lu is no rank", rank);
        (*ranks)[(*count)++] = (uint32_t)rank;
    }
    Py_DECREF(sequence);
    if (!PyErr_Occurred())
        return true;
    PyMem_Free(*ranks);
    *ranks = NULL;
    return false;
}

typedef struct rank_array {
    uint32_t *ranks;
    size_t count;
} rank_array;

static bool ranks_take(PyObject *object, rank_array *array)
{
    return tocsin_guard_take_ranks(object, &array->ranks, &array->count);
}

static bool check_take(const char *name, tocsin_guard_check *check)
{
    int number = tocsin_guard_check_number(name);
    if (number < 0)
        PyErr_Format(PyExc_ValueError, "no check is called '%s'", name);
    *check = (tocsin_guard_check)number;
    return number >= 0;
}

/* ---- findings ------------------------------------------------------------------------------ */

static PyObject *call_json(const char *name, PyObject *argument)
{
    PyObject *json = PyImport_ImportModule("json");
    PyObject *result = json ? PyObject_CallMethod(json, name, "O", argument) : NULL;
    Py_XDECREF(json);
    return result;
}

PyObject *tocsin_guard_finding_dict(tocsin_guard_finding *finding)
{
    char *text;
    size_t bytes;
    tocsin_error error;
    if (finding == NULL)
        Py_RETURN_NONE;
    tocsin_status status = tocsin_guard_finding_json(finding, &text, &bytes, &error);
    tocsin_guard_finding_free(finding);
    if (status != TOCSIN_OK)
        return tocsin_guard_raise(status, &error);
    PyObject *line = PyUnicode_DecodeUTF8(text, (Py_ssize_t)bytes, "strict");
    PyObject *dict = line ? call_json("loads", line) : NULL;
    Py_XDECREF(line);
    tocsin_guard_text_free(text);
    return dict;
}

static PyObject *guard_finding(PyObject *module, PyObject *args, PyObject *kwargs)
{
    (void)module;
    static char *keywords[] = {"check",  "cause",  "text",     "step",  "passed",   "ranks",
                               "tensor", "bucket", "replicas", "index", "evidence", NULL};
    const char *check, *cause, *evidence = "{}";
    tocsin_guard_finding content = {.tensor = "", .bucket = -1}, *finding = NULL;
    long long step, passed, bucket = -1;
    unsigned replicas = 0;
    long long element = -1;
    PyObject *ranks = NULL;
    rank_array culprits;
    tocsin_error error;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sssLL|OsLILs:guard_finding", keywords, &check,
                                     &cause, &content.text, &step, &passed, &ranks, &content.tensor,
                                     &bucket, &replicas, &element, &evidence) ||
        !check_take(check, &content.check))
        return NULL;
    int number = tocsin_guard_cause_number(cause);
    if (number < 0)
        return PyErr_Format(PyExc_ValueError, "no cause is called '%s'", cause);
    if (!ranks_take(ranks, &culprits))
        return NULL;
    content.cause = (tocsin_guard_cause)number;
    content.moment = (tocsin_guard_moment){.step = step, .passed = passed};
    content.ranks = culprits.ranks;
    content.rank_count = culprits.count;
    content.bucket = bucket;
    content.replicas = replicas;
    content.evidence = evidence;
    int64_t index = element;
    content.index = &index;
    content.index_count = element >= 0;
    tocsin_status status = tocsin_guard_finding_new(&content, &finding, &error);
    PyMem_Free(culprits.ranks);
    return status == TOCSIN_OK ? tocsin_guard_finding_dict(finding)
                               : tocsin_guard_raise(status, &error);
}

/* ---- judgements ---------------------------------------------------------------------------- */

static PyObject *guard_gradients(PyObject *module, PyObject *args, PyObject *kwargs)
{
    (void)module;
    static char *keywords[] = {"rows", "step", "passed", "names", "skips", NULL};
    static const char *const verdicts[] = {"pass", "scaler_skip", "finding"};
    PyObject *object, *names_object = NULL;
    long long step, passed;
    unsigned long long skips = 0;
    row_bytes rows;
    name_list names;
    tocsin_error error;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OLL|OK:guard_gradients", keywords, &object,
                                     &step, &passed, &names_object, &skips) ||
        !rows_take(object, sizeof(tocsin_guard_gradient_row), &rows))
        return NULL;
    if (!names_take(names_object, &names)) {
        PyBuffer_Release(&rows.buffer);
        return NULL;
    }
    const tocsin_guard_gradients gradients = {.moment = {.step = step, .passed = passed},
                                              .rows = rows.rows,
                                              .rank_count = rows.count,
                                              .names = names.names,
                                              .name_count = names.count,
                                              .skips = skips};
    tocsin_guard_gradient_verdict verdict;
    tocsin_guard_finding *finding;
    tocsin_status status = tocsin_guard_judge_gradients(&gradients, &verdict, &finding, &error);
    names_release(&names);
    PyBuffer_Release(&rows.buffer);
    if (status != TOCSIN_OK)
        return tocsin_guard_raise(status, &error);
    PyObject *dict = tocsin_guard_finding_dict(finding);
    return dict ? Py_BuildValue("(sN)", verdicts[verdict], dict) : NULL;
}

typedef struct vote_rows {
    row_bytes *replicas;
    const tocsin_digest **rows;
    size_t count;
} vote_rows;

static void vote_rows_release(vote_rows *taken)
{
    for (size_t r = 0; r < taken->count; ++r)
        PyBuffer_Release(&taken->replicas[r].buffer);
    PyMem_Free(taken->replicas);
    PyMem_Free(taken->rows);
}

/* One bytes of digests for each replica, all of one length. */
static bool vote_rows_take(PyObject *sequence, vote_rows *taken)
{
    size_t count = (size_t)PyTuple_GET_SIZE(sequence);
    *taken = (vote_rows){.replicas = PyMem_New(row_bytes, count + 1),
                         .rows = PyMem_New(const tocsin_digest *, count + 1)};
    if (taken->replicas == NULL || taken->rows == NULL)
        PyErr_NoMemory();
    while (!PyErr_Occurred() && taken->count < count) {
        row_bytes *replica = &taken->replicas[taken->count];
        PyObject *object = PyTuple_GET_ITEM(sequence, (Py_ssize_t)taken->count);
        if (!rows_take(object, sizeof(tocsin_digest), replica))
            break;
        taken->rows[taken->count++] = replica->rows;
        if (replica->count != taken->replicas[0].count)
            PyErr_SetString(PyExc_ValueError, "replicas with unlike numbers of tensors");
    }
    if (!PyErr_Occurred())
        return true;
    vote_rows_release(taken);
    return false;
}

static PyObject *judge_vote(const tocsin_guard_voters *voters, const vote_rows *taken,
                            const name_list *names)
{
    tocsin_error error;
    tocsin_guard_vote *vote;
    tocsin_guard_finding *finding = NULL;
    size_t tensors = taken->count ? taken->replicas[0].count : 0;
    if (names->names && names->count < tensors) {
        PyErr_SetString(PyExc_ValueError, "fewer names than tensors");
        return NULL;
    }
    tocsin_status status = tocsin_guard_vote_new(voters, &vote, &error);
    if (status != TOCSIN_OK)
        return tocsin_guard_raise(status, &error);
    Py_BEGIN_ALLOW_THREADS;
    status = tocsin_guard_vote_add(vote, taken->rows, names->names, tensors, &error);
    if (status == TOCSIN_OK)
        status = tocsin_guard_vote_judge(vote, &finding, &error);
    tocsin_guard_vote_free(vote);
    Py_END_ALLOW_THREADS;
    return status == TOCSIN_OK ? tocsin_guard_finding_dict(finding)
                               : tocsin_guard_raise(status, &error);
}

static PyObject *guard_vote(PyObject *module, PyObject *args, PyObject *kwargs)
{
    (void)module;
    static char *keywords[] = {"rows", "step", "passed", "names", "ranks", "named", "check", NULL};
    PyObject *object, *names_object = NULL, *ranks_object = NULL, *named_object = NULL;
    PyObject *result = NULL;
    const char *check = "weights";
    long long step, passed;
    tocsin_guard_voters voters = {0};
    vote_rows taken;
    name_list names = {.sequence = NULL};
    rank_array ranks = {.ranks = NULL}, named = {.ranks = NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OLL|OOOs:guard_vote", keywords, &object, &step,
                                     &passed, &names_object, &ranks_object, &named_object,
                                     &check) ||
        !check_take(check, &voters.check))
        return NULL;
    PyObject *sequence = PySequence_Tuple(object);
    if (sequence == NULL)
        return NULL;
    if (vote_rows_take(sequence, &taken)) {
        if (names_take(names_object, &names) && ranks_take(ranks_object, &ranks) &&
            ranks_take(named_object, &named)) {
            voters.moment = (tocsin_guard_moment){.step = step, .passed = passed};
            voters.replicas = (uint32_t)taken.count;
            voters.ranks = ranks.ranks;
            voters.named = named.ranks;
            voters.named_count = named.count;
            if (ranks.ranks && ranks.count != taken.count)
                PyErr_SetString(PyExc_ValueError, "as many ranks as replicas");
            else
                result = judge_vote(&voters, &taken, &names);
        }
        names_release(&names);
        PyMem_Free(ranks.ranks);
        PyMem_Free(named.ranks);
        vote_rows_release(&taken);
    }
    Py_DECREF(sequence);
    return result;
}

static PyObject *judge_comparison(tocsin_guard_comparison *comparison, const row_bytes *rows,
                                  const name_list *names, const rank_array *ranks,
                                  const rank_array *named)
{
    tocsin_error error;
    tocsin_guard_finding *finding;
    comparison->rows = rows->rows;
    comparison->row_count = rows->count;
    comparison->names = names->names;
    comparison->name_count = names->count;
    comparison->ranks = ranks->ranks;
    comparison->named = named->ranks;
    comparison->named_count = named->count;
    if (ranks->ranks && ranks->count != rows->count) {
        PyErr_SetString(PyExc_ValueError, "as many ranks as rows");
        return NULL;
    }
    tocsin_status status = tocsin_guard_judge_comparison(comparison, &finding, &error);
    return status == TOCSIN_OK ? tocsin_guard_finding_dict(finding)
                               : tocsin_guard_raise(status, &error);
}

static PyObject *guard_comparison(PyObject *module, PyObject *args, PyObject *kwargs)
{
    (void)module;
    static char *keywords[] = {"check", "rows",  "step",          "passed", "names",
                               "ranks", "named", "deterministic", NULL};
    PyObject *object, *names_object = NULL, *ranks_object = NULL, *named_object = NULL;
    PyObject *result = NULL;
    const char *check;
    long long step, passed;
    int deterministic = 0;
    tocsin_guard_comparison comparison = {.rows = NULL};
    row_bytes rows;
    name_list names = {.sequence = NULL};
    rank_array ranks = {.ranks = NULL}, named = {.ranks = NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sOLL|OOOp:guard_comparison", keywords, &check,
                                     &object, &step, &passed, &names_object, &ranks_object,
                                     &named_object, &deterministic) ||
        !check_take(check, &comparison.check) ||
        !rows_take(object, sizeof(tocsin_guard_comparison_row), &rows))
        return NULL;
    comparison.moment = (tocsin_guard_moment){.step = step, .passed = passed};
    comparison.deterministic = deterministic != 0;
    if (names_take(names_object, &names) && ranks_take(ranks_object, &ranks) &&
        ranks_take(named_object, &named))
        result = judge_comparison(&comparison, &rows, &names, &ranks, &named);
    names_release(&names);
    PyMem_Free(ranks.ranks);
    PyMem_Free(named.ranks);
    PyBuffer_Release(&rows.buffer);
    return result;
}

static PyObject *request_tuples(const tocsin_guard_run *requests, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; ++i) {
        PyObject *tuple =
            Py_BuildValue("(III)", requests[i].owner, requests[i].executor, requests[i].attempt);
        if (tuple == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, tuple);
    }
    return list;
}

static PyObject *guard_replay_requests(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *object;
    unsigned ranks;
    row_bytes runs;
    tocsin_guard_run *requests;
    size_t count;
    tocsin_error error;
    if (!PyArg_ParseTuple(args, "OI:guard_replay_requests", &object, &ranks) ||
        !rows_take(object, sizeof(tocsin_guard_run), &runs))
        return NULL;
    const tocsin_guard_replay replay = {
        .rank_count = ranks, .runs = runs.rows, .run_count = runs.count};
    tocsin_status status = tocsin_guard_replay_requests(&replay, &requests, &count, &error);
    PyBuffer_Release(&runs.buffer);
    if (status != TOCSIN_OK)
        return tocsin_guard_raise(status, &error);
    PyObject *list = request_tuples(requests, count);
    tocsin_guard_requests_free(requests);
    return list;
}

static PyObject *guard_replay_judge(PyObject *module, PyObject *args, PyObject *kwargs)
{
    (void)module;
    static char *keywords[] = {"runs", "world", "step", "passed", NULL};
    PyObject *object;
    unsigned ranks;
    long long step, passed;
    row_bytes runs;
    tocsin_guard_finding *finding;
    tocsin_error error;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OILL:guard_replay_judge", keywords, &object,
                                     &ranks, &step, &passed) ||
        !rows_take(object, sizeof(tocsin_guard_run), &runs))
        return NULL;
    const tocsin_guard_replay replay = {.moment = {.step = step, .passed = passed},
                                        .rank_count = ranks,
                                        .runs = runs.rows,
                                        .run_count = runs.count};
    tocsin_status status = tocsin_guard_judge_replay(&replay, &finding, &error);
    PyBuffer_Release(&runs.buffer);
    return status == TOCSIN_OK ? tocsin_guard_finding_dict(finding)
                               : tocsin_guard_raise(status, &error);
}

/* ---- the ledger ---------------------------------------------------------------------------- */

/* An object of Python as one line of JSON. */
static PyObject *json_line(PyObject *object)
{
    PyObject *json = PyImport_ImportModule("json");
    PyObject *dumps = json ? PyObject_GetAttrString(json, "dumps") : NULL;
    PyObject *args = PyTuple_Pack(1, object);
    PyObject *options =
        Py_BuildValue("{s:(ss),s:O}", "separators", ",", ":", "allow_nan", Py_False);
    PyObject *line = dumps && args && options ? PyObject_Call(dumps, args, options) : NULL;
    Py_XDECREF(json);
    Py_XDECREF(dumps);
    Py_XDECREF(args);
    Py_XDECREF(options);
    return line;
}

static PyObject *guard_ledger_append(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *path, *object;
    tocsin_error error;
    if (!PyArg_ParseTuple(args, "O&O:guard_ledger_append", PyUnicode_FSConverter, &path, &object))
        return NULL;
    PyObject *line = json_line(object);
    Py_ssize_t bytes = 0;
    const char *text = line ? PyUnicode_AsUTF8AndSize(line, &bytes) : NULL;
    tocsin_status status = TOCSIN_OK;
    if (text != NULL) {
        Py_BEGIN_ALLOW_THREADS;
        status = tocsin_guard_ledger_append(PyBytes_AS_STRING(path), text, (size_t)bytes, &error);
        Py_END_ALLOW_THREADS;
    }
    Py_XDECREF(line);
    Py_DECREF(path);
    if (text == NULL)
        return NULL;
    if (status != TOCSIN_OK)
        return tocsin_guard_raise(status, &error);
    Py_RETURN_NONE;
}

/* ---- the module ---------------------------------------------------------------------------- */

#define WITH_KEYWORDS(function) ((PyCFunction)(void (*)(void))(function))

int tocsin_guard_module_exec(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"guard_finding", WITH_KEYWORDS(guard_finding), METH_VARARGS | METH_KEYWORDS,
         PyDoc_STR("guard_finding(check, cause, text, step, passed, ranks=(), tensor='', "
                   "bucket=-1, replicas=0, index=-1, evidence='{}') -> dict")},
        {"guard_gradients", WITH_KEYWORDS(guard_gradients), METH_VARARGS | METH_KEYWORDS,
         PyDoc_STR("guard_gradients(rows, step, passed, names=None, skips=0) -> (verdict, "
                   "finding or None)")},
        {"guard_vote", WITH_KEYWORDS(guard_vote), METH_VARARGS | METH_KEYWORDS,
         PyDoc_STR("guard_vote(rows, step, passed, names=None, ranks=None, named=None, "
                   "check='weights') -> finding or None")},
        {"guard_comparison", WITH_KEYWORDS(guard_comparison), METH_VARARGS | METH_KEYWORDS,
         PyDoc_STR("guard_comparison(check, rows, step, passed, names=None, ranks=None, "
                   "named=None, deterministic=False) -> finding or None")},
        {"guard_replay_requests", guard_replay_requests, METH_VARARGS,
         PyDoc_STR("guard_replay_requests(runs, world) -> [(owner, executor, attempt)]")},
        {"guard_replay_judge", WITH_KEYWORDS(guard_replay_judge), METH_VARARGS | METH_KEYWORDS,
         PyDoc_STR("guard_replay_judge(runs, world, step, passed) -> finding or None")},
        {"guard_ledger_append", guard_ledger_append, METH_VARARGS,
         PyDoc_STR("guard_ledger_append(path, finding): on the disk when it returns")},
        {NULL, NULL, 0, NULL}};
    if (PyModule_AddFunctions(module, methods) < 0)
        return -1;
    return PyModule_AddIntConstant(module, "GUARD_EXIT_NAMED", TOCSIN_GUARD_EXIT_NAMED) < 0 ||
                   PyModule_AddIntConstant(module, "GUARD_EXIT_UNNAMED",
                                           TOCSIN_GUARD_EXIT_UNNAMED) < 0
               ? -1
               : 0;
}
