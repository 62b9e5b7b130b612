/* The records of one process -> the events of its file.
 *
 * Threads become streams, func_call_id the number of a call, meta variables META events when they
 * change. What the sampler took of a model is one round: a call of "traincheck.sample" with the
 * role optimizer.step, in which gradients are read at the start and data at the end, so that it is
 * compared between ranks as a step is. A round ends when one of its variables comes again, a meta
 * variable changes, or its thread calls something. States that a tracker saw belong to whatever
 * call is open. Hashes stand in place of digests, without statistics.
 * Memory: per process the calls that are open, and names.
 */
#include <assert.h>
#include <exchange/exchange.h>
#include <math.h>
#include <stdio.h>

#define SAMPLE_FUNCTION "traincheck.sample"
#define STREAMS_MAX     4096u
#define KEYS_MAX        4096u

typedef struct open_call {
    uint64_t call;
    uint32_t stream;
    tocsin_id function;
} open_call;

struct tocsin_import_process {
    tocsin_definer definer;
    tocsin_map streams; /* thread id -> stream */
    tocsin_map calls;   /* hash of func_call_id -> index in open + 1 */
    TOCSIN_VEC(open_call) open;
    TOCSIN_VEC(uint32_t) unused; /* places in open */
    tocsin_intern keys;          /* of meta variables */
    TOCSIN_VEC(uint64_t) metas;  /* by key: hash of the value */
    int64_t rank;
    int64_t world_size;
    bool greeted; /* rank and world size are told */
    uint64_t time_ns;
    tocsin_map firsts;  /* variable -> hash of its first data */
    tocsin_map settled; /* variables whose data were once others than the first */
    /* The round. */
    uint64_t round; /* its call; 0: none */
    uint32_t round_stream;
    tocsin_map round_variables;
    tocsin_id sample;
    tocsin_id data, grad; /* names of attributes */
};

tocsin_status tocsin_import_process_new(const char *run, int64_t pid, int64_t rank,
                                        int64_t world_size, uint64_t start_ns,
                                        tocsin_import_process **process, tocsin_error *error)
{
    *process = NULL;
    tocsin_import_process *made = tocsin_zalloc(1, sizeof *made);
    if (made == NULL)
        return tocsin_error_memory(error);
    made->rank = rank;
    made->world_size = world_size;
    tocsin_trace_identity identity = {.pid = pid, .host = "traincheck", .monotonic_ns = start_ns};
    tocsin_trace_writer_options options = {.struct_bytes = sizeof options,
                                           .directory = run,
                                           .ring_bytes = 256 << 10,
                                           .identity = &identity};
    tocsin_status status = tocsin_trace_writer_open(&options, &made->definer.writer, error);
    if (status != TOCSIN_OK) {
        tocsin_free(made);
        return status;
    }
    made->sample =
        tocsin_define_function(&made->definer, SAMPLE_FUNCTION, TOCSIN_ROLE_OPTIMIZER_STEP);
    made->data = tocsin_define_text(&made->definer, "data");
    made->grad = tocsin_define_text(&made->definer, "grad");
    *process = made;
    return TOCSIN_OK;
}

/* ---- streams, meta variables, rounds ------------------------------------------------------- */

/* 0: out of memory or one too many. */
static uint32_t stream_of(tocsin_import_process *process, int64_t thread)
{
    uint64_t *stream = tocsin_map_at(&process->streams, (uint64_t)thread);
    if (stream == NULL)
        return 0;
    if (*stream == 0 && process->streams.count <= STREAMS_MAX)
        *stream = process->streams.count;
    return (uint32_t)*stream;
}

static uint64_t emit(tocsin_import_process *process, uint32_t stream, tocsin_event *event)
{
    event->time_ns = process->time_ns;
    return tocsin_trace_emit_on(process->definer.writer, stream, event);
}

static void end_round(tocsin_import_process *process)
{
    if (process->round == 0)
        return;
    tocsin_event event = {
        .kind = TOCSIN_EVENT_EXIT, .call = process->round, .function = process->sample};
    (void)emit(process, process->round_stream, &event);
    process->round = 0;
    tocsin_map_clear(&process->round_variables);
}

static void emit_meta(tocsin_import_process *process, uint32_t stream, const char *key,
                      tocsin_value_list *value)
{
    value->items[0].name = 0; /* its key is its name */
    tocsin_event event = {.kind = TOCSIN_EVENT_META,
                          .key = tocsin_define_text(&process->definer, key),
                          .value_count = value->count,
                          .values = value->items};
    (void)emit(process, stream, &event);
}

static void emit_number(tocsin_import_process *process, uint32_t stream, const char *key,
                        int64_t integer)
{
    tocsin_value_list value = {.definer = &process->definer};
    tocsin_value_add_integer(&value, key, integer);
    emit_meta(process, stream, key, &value);
}

static void greet(tocsin_import_process *process, uint32_t stream)
{
    if (process->greeted)
        return;
    process->greeted = true;
    if (process->world_size == 0)
        return;
    emit_number(process, stream, "rank", process->rank);
    emit_number(process, stream, "world_size", process->world_size);
}

/* The rank has a word of its own; a step before the first is no number of steps done. */
static bool is_told_otherwise(const char *key, const tocsin_json_value *value)
{
    int64_t step;
    if (strcmp(key, "_DATA_PARALLEL_RANK") == 0 || strcmp(key, "rank") == 0 ||
        strcmp(key, "world_size") == 0)
        return true;
    return strcmp(key, "step") == 0 && (!tocsin_json_get_integer(value, &step) || step < 0);
}

static bool has_changed(tocsin_import_process *process, const char *key,
                        const tocsin_json_value *value, bool *changed)
{
    uint32_t id = tocsin_intern_put(&process->keys, key, strlen(key));
    if (id == 0)
        return false;
    while (process->metas.count < id)
        if (!TOCSIN_VEC_PUSH(&process->metas, 0))
            return false;
    uint64_t hash = tocsin_json_hash(value, 1) | 1;
    *changed = process->metas.items[id - 1] != hash;
    process->metas.items[id - 1] = hash;
    return true;
}

static tocsin_status tell_meta(tocsin_import_process *process, uint32_t stream,
                               const tocsin_json_value *meta, tocsin_error *error)
{
    void *cursor = NULL;
    const char *key;
    const tocsin_json_value *value;
    while (tocsin_json_next_member(meta, &cursor, &key, &value)) {
        bool changed = false;
        if (is_told_otherwise(key, value))
            continue;
        if (!has_changed(process, key, value, &changed))
            return tocsin_intern_count(&process->keys) >= KEYS_MAX
                       ? tocsin_error_set(error, TOCSIN_E_LIMIT, "more than %u meta variables",
                                          KEYS_MAX)
                       : tocsin_error_memory(error);
        if (!changed)
            continue;
        end_round(process);
        tocsin_value_list list = {.definer = &process->definer};
        if (tocsin_value_add_plain(&list, key, value))
            emit_meta(process, stream, key, &list);
    }
    return TOCSIN_OK;
}

/* ---- calls --------------------------------------------------------------------------------- */

static void add_arguments(tocsin_value_list *list, const tocsin_traincheck_record *record)
{
    void *cursor = NULL;
    const char *key;
    const tocsin_json_value *value;
    while (tocsin_json_next_member(record->arguments, &cursor, &key, &value)) {
        char name[32];
        bool self = record->bound && strcmp(key, "0") == 0;
        snprintf(name, sizeof name, "arg%.20s", key);
        tocsin_value_add_typed(list, self ? "self" : name, value);
    }
    for (cursor = NULL; tocsin_json_next_member(record->keywords, &cursor, &key, &value);)
        tocsin_value_add_typed(list, key, value);
    if (list->count == TOCSIN_EVENT_VALUES_MAX)
        --list->count;
    /* calls with equal positional arguments, tensors by their identity, have equal ids */
    tocsin_value_add_integer(list, "id", (int64_t)tocsin_json_hash(record->arguments, 0));
}

static tocsin_status enter(tocsin_import_process *process, uint32_t stream,
                           const tocsin_traincheck_record *record, const char **why,
                           tocsin_error *error)
{
    uint64_t key = tocsin_hash64(record->call, strlen(record->call), 0);
    uint64_t *place = tocsin_map_at(&process->calls, key);
    if (place == NULL)
        return tocsin_error_memory(error);
    if (*place != 0) {
        *why = "a call of this id is open already";
        return TOCSIN_OK;
    }
    size_t index = process->open.count;
    if (process->unused.count > 0)
        index = process->unused.items[--process->unused.count];
    else if (!TOCSIN_VEC_PUSH(&process->open, (open_call){0}) ||
             !TOCSIN_VEC_RESERVE(&process->unused, process->open.count))
        return tocsin_error_memory(error);
    tocsin_value_list list = {.definer = &process->definer};
    add_arguments(&list, record);
    tocsin_event event = {.kind = TOCSIN_EVENT_ENTER,
                          .function = tocsin_trace_define_function(
                              process->definer.writer, record->function, TOCSIN_ROLE_USER),
                          .value_count = list.count,
                          .values = list.items};
    *place = index + 1;
    process->open.items[index] = (open_call){.stream = stream, .function = event.function};
    process->open.items[index].call = emit(process, stream, &event);
    return TOCSIN_OK;
}

static void leave(tocsin_import_process *process, const tocsin_traincheck_record *record,
                  const char **why)
{
    uint64_t key = tocsin_hash64(record->call, strlen(record->call), 0);
    uint64_t *place = tocsin_map_find(&process->calls, key);
    if (place == NULL || *place == 0) {
        *why = "the end of a call whose start is missing";
        return;
    }
    uint32_t index = (uint32_t)*place - 1;
    (void)tocsin_map_remove(&process->calls, key);
    process->unused.items[process->unused.count++] = index; /* there is room since it was opened */
    open_call closed = process->open.items[index];
    tocsin_value_list list = {.definer = &process->definer};
    tocsin_event event = {.kind = TOCSIN_EVENT_EXIT,
                          .call = closed.call,
                          .function = closed.function,
                          .values = list.items};
    if (record->kind == TOCSIN_TRAINCHECK_RAISE) {
        event.kind = TOCSIN_EVENT_RAISE;
        list.items[list.count++] = (tocsin_value){
            .kind = TOCSIN_VALUE_STRING,
            .name = tocsin_define_text(&process->definer, "exception"),
            .as.text = tocsin_define_text(&process->definer,
                                          record->exception != NULL ? record->exception : "")};
    } else {
        tocsin_value_add_typed(&list, "return", record->returns);
    }
    event.value_count = list.count;
    (void)emit(process, closed.stream, &event);
}

/* ---- states -------------------------------------------------------------------------------- */

static bool flag_of(const tocsin_json_value *attributes, const char *key)
{
    bool flag = false;
    return tocsin_json_get_bool(tocsin_json_get_member(attributes, key), &flag) && flag;
}

/* A hash is a number; what else stands there (statistics, values) is hashed. */
static uint64_t hash_of(const tocsin_json_value *value)
{
    int64_t integer;
    return tocsin_json_get_integer(value, &integer) ? (uint64_t)integer
                                                    : tocsin_json_hash(value, 0);
}

/* Attributes that have no place of their own in a state. */
static void add_attributes(tocsin_value_list *list, const tocsin_json_value *attributes)
{
    static const char *const placed[] = {"data", "grad",          "dtype",   "shape",  "ndim",
                                         "name", "requires_grad", "is_leaf", "grad_fn"};
    void *cursor = NULL;
    const char *key;
    const tocsin_json_value *value;
    while (tocsin_json_next_member(attributes, &cursor, &key, &value)) {
        bool skip = tocsin_attribute_is_id(key);
        for (size_t i = 0; i < TOCSIN_COUNT_OF(placed); ++i)
            skip |= strcmp(key, placed[i]) == 0;
        if (!skip)
            (void)tocsin_value_add_plain(list, key, value);
    }
}

static void emit_state(tocsin_import_process *process, uint32_t stream, tocsin_state *state,
                       tocsin_id attribute, uint8_t moment, const tocsin_json_value *value,
                       const tocsin_value_list *list)
{
    tocsin_state read = *state;
    read.attribute = attribute;
    read.moment = moment;
    if (tocsin_json_get_kind(value) != TOCSIN_JSON_NULL) {
        read.flags |= TOCSIN_STATE_PRESENT | TOCSIN_STATE_DIGESTED;
        read.digest.sum = hash_of(value);
        read.statistics.absmax = read.statistics.sum_squares = (double)NAN;
    } else {
        read.dtype = read.ndim = 0;
        read.shape = 0;
    }
    tocsin_event event = {.kind = TOCSIN_EVENT_STATE,
                          .value_count = list->count,
                          .values = list->items,
                          .state = read};
    (void)emit(process, stream, &event);
}

/* Are these data still the first that were seen of the variable? TrainCheck leaves those out. */
static bool is_initial(tocsin_import_process *process, tocsin_id variable,
                       const tocsin_json_value *data, bool *initial)
{
    uint64_t hash = hash_of(data);
    const uint64_t *first = tocsin_map_find(&process->firsts, variable);
    *initial = tocsin_map_find(&process->settled, variable) == NULL;
    if (first == NULL)
        return tocsin_map_put(&process->firsts, variable, hash);
    if (!*initial || *first == hash)
        return true;
    *initial = false;
    return tocsin_map_put(&process->settled, variable, 1);
}

static tocsin_variable_kind kind_of(const char *type)
{
    size_t bytes = strlen(type);
    bool parameter = bytes >= 9 && strcmp(type + bytes - 9, "Parameter") == 0;
    return parameter ? TOCSIN_VARIABLE_PARAMETER : TOCSIN_VARIABLE_BUFFER;
}

/* Begin or go on with the round of this variable. */
static bool join_round(tocsin_import_process *process, uint32_t stream, tocsin_id variable)
{
    if (process->round != 0 && (process->round_stream != stream ||
                                tocsin_map_find(&process->round_variables, variable) != NULL))
        end_round(process);
    if (process->round == 0) {
        tocsin_event event = {.kind = TOCSIN_EVENT_ENTER, .function = process->sample};
        process->round = emit(process, stream, &event);
        process->round_stream = stream;
    }
    return tocsin_map_put(&process->round_variables, variable, 1);
}

static tocsin_status state(tocsin_import_process *process, uint32_t stream,
                           const tocsin_traincheck_record *record, tocsin_error *error)
{
    const tocsin_json_value *attributes = record->attributes;
    tocsin_state read = {.flags = TOCSIN_STATE_HASHED, .lr = (double)NAN};
    read.variable = tocsin_define_variable(&process->definer, record->variable,
                                           kind_of(record->type), record->type);
    read.dtype = (uint8_t)tocsin_dtype_of(tocsin_json_get_member(attributes, "dtype"));
    read.shape = tocsin_define_shape(&process->definer, tocsin_json_get_member(attributes, "shape"),
                                     &read.ndim);
    if (flag_of(attributes, "requires_grad"))
        read.flags |= TOCSIN_STATE_REQUIRES_GRAD;
    if (flag_of(attributes, "is_leaf"))
        read.flags |= TOCSIN_STATE_IS_LEAF;
    if (flag_of(attributes, "tensor_model_parallel"))
        read.flags |= TOCSIN_STATE_TENSOR_PARALLEL;
    bool sampled = record->mode == NULL;
    if (sampled && !join_round(process, stream, read.variable))
        return tocsin_error_memory(error);
    bool before = sampled || strcmp(record->mode, "pre_observe") == 0;
    tocsin_value_list list = {.definer = &process->definer};
    bool initial = false;
    if (!is_initial(process, read.variable, tocsin_json_get_member(attributes, "data"), &initial))
        return tocsin_error_memory(error);
    tocsin_value_add_truth(&list, "initial", initial);
    add_attributes(&list, attributes);
    if (tocsin_json_get_member(attributes, "grad") != NULL)
        emit_state(process, stream, &read, process->grad,
                   before ? TOCSIN_MOMENT_ENTER : TOCSIN_MOMENT_EXIT,
                   tocsin_json_get_member(attributes, "grad"), &list);
    if (tocsin_json_get_member(attributes, "data") != NULL)
        emit_state(process, stream, &read, process->data,
                   before && !sampled ? TOCSIN_MOMENT_ENTER : TOCSIN_MOMENT_EXIT,
                   tocsin_json_get_member(attributes, "data"), &list);
    return TOCSIN_OK;
}

/* ---- the process --------------------------------------------------------------------------- */

tocsin_status tocsin_import_process_add(tocsin_import_process *process,
                                        const tocsin_traincheck_record *record, const char **why,
                                        tocsin_error *error)
{
    *why = NULL;
    uint32_t stream = stream_of(process, record->thread);
    if (stream == 0)
        return process->streams.count > STREAMS_MAX
                   ? tocsin_error_set(error, TOCSIN_E_LIMIT, "more than %u threads in a process",
                                      STREAMS_MAX)
                   : tocsin_error_memory(error);
    if (record->time_ns > process->time_ns)
        process->time_ns = record->time_ns;
    greet(process, stream);
    TOCSIN_TRY(tell_meta(process, stream, record->meta, error));
    if (record->kind != TOCSIN_TRAINCHECK_STATE && process->round_stream == stream)
        end_round(process);
    switch (record->kind) {
    case TOCSIN_TRAINCHECK_STATE:
        TOCSIN_TRY(state(process, stream, record, error));
        break;
    case TOCSIN_TRAINCHECK_CALL:
        TOCSIN_TRY(enter(process, stream, record, why, error));
        break;
    default:
        leave(process, record, why);
    }
    return process->definer.failed ? tocsin_error_memory(error) : TOCSIN_OK;
}

tocsin_status tocsin_import_process_close(tocsin_import_process *process, uint64_t *incomplete,
                                          tocsin_error *error)
{
    if (process == NULL)
        return TOCSIN_OK;
    end_round(process);
    if (incomplete != NULL)
        *incomplete += process->open.count - process->unused.count;
    tocsin_trace_statistics statistics;
    tocsin_trace_writer_statistics(process->definer.writer, &statistics);
    tocsin_status status = tocsin_trace_writer_close(process->definer.writer, error);
    if (status == TOCSIN_OK && statistics.lost > 0)
        status = tocsin_error_memory(error); /* for a stream of its own */
    tocsin_map_free(&process->streams);
    tocsin_map_free(&process->calls);
    tocsin_map_free(&process->round_variables);
    tocsin_map_free(&process->firsts);
    tocsin_map_free(&process->settled);
    TOCSIN_VEC_FREE(&process->open);
    TOCSIN_VEC_FREE(&process->unused);
    TOCSIN_VEC_FREE(&process->metas);
    tocsin_intern_free(&process->keys);
    tocsin_free(process);
    return status;
}
