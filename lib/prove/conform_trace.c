/* conform_trace.c - the communication calls that a recorded process made, step by step.
 *
 * One table says, for each function of torch.distributed that is recorded, what kind of call it is
 * and which of its parameters holds the operand. Arguments carry their parameter's name, or "arg2".
 * A step ends with the recorder's marker (role step.end).
 *
 * Cost: linear in the events of the process; ids of functions and of groups are looked up once.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "prove/conform.h"

#define DISTRIBUTED "torch.distributed."
#define FUNCTIONAL  DISTRIBUTED "_functional_collectives."
/* Marks of functions that are no calls of their own. */
enum { KIND_OBJECTS = TOCSIN_CALL_FOREIGN + 1, KIND_BATCH };
enum { CALLS_MAX = 1 << 24 };

typedef struct known_function {
    const char *name;
    uint16_t kind;
    const char *parameters; /* in order */
    const char *operand;    /* that whose shape the plan's operand has; "" none */
} known_function;

#define REDUCE(suffix, first)                                                                      \
    {                                                                                              \
        DISTRIBUTED suffix, TOCSIN_OPERATOR_ALL_REDUCE, first " op group async_op", first          \
    }
static const known_function functions[] = {
    REDUCE("all_reduce", "tensor"),
    REDUCE("all_reduce_coalesced", "tensors"),
    {DISTRIBUTED "all_gather", TOCSIN_OPERATOR_ALL_GATHER, "tensor_list tensor group", "tensor"},
    {DISTRIBUTED "all_gather_coalesced", TOCSIN_OPERATOR_ALL_GATHER,
     "output_tensor_lists input_tensor_list group", "input_tensor_list"},
    {DISTRIBUTED "all_gather_into_tensor", TOCSIN_OPERATOR_ALL_GATHER,
     "output_tensor input_tensor group", "input_tensor"},
    {DISTRIBUTED "all_gather_single", TOCSIN_OPERATOR_ALL_GATHER, "output input group", "input"},
    {DISTRIBUTED "reduce_scatter", TOCSIN_OPERATOR_REDUCE_SCATTER, "output input_list op group",
     "input_list"},
    {DISTRIBUTED "reduce_scatter_tensor", TOCSIN_OPERATOR_REDUCE_SCATTER, "output input op group",
     "input"},
    {DISTRIBUTED "reduce_scatter_single", TOCSIN_OPERATOR_REDUCE_SCATTER, "output input op group",
     "input"},
    {DISTRIBUTED "all_to_all", TOCSIN_OPERATOR_ALL_TO_ALL,
     "output_tensor_list input_tensor_list group", "input_tensor_list"},
    {DISTRIBUTED "all_to_all_single", TOCSIN_OPERATOR_ALL_TO_ALL,
     "output input output_split_sizes input_split_sizes group", "input"},
    {DISTRIBUTED "broadcast", TOCSIN_OPERATOR_BROADCAST, "tensor src group async_op group_src",
     "tensor"},
    {DISTRIBUTED "send", TOCSIN_OPERATOR_SEND, "tensor dst group tag group_dst", "tensor"},
    {DISTRIBUTED "isend", TOCSIN_OPERATOR_SEND, "tensor dst group tag group_dst", "tensor"},
    {DISTRIBUTED "recv", TOCSIN_OPERATOR_RECV, "tensor src group tag group_src", "tensor"},
    {DISTRIBUTED "irecv", TOCSIN_OPERATOR_RECV, "tensor src group tag group_src", "tensor"},
    {DISTRIBUTED "barrier", TOCSIN_OPERATOR_BARRIER, "group", ""},
    {DISTRIBUTED "reduce", TOCSIN_CALL_FOREIGN, "tensor dst op group", "tensor"},
    {DISTRIBUTED "gather", TOCSIN_CALL_FOREIGN, "tensor gather_list dst group", "tensor"},
    {DISTRIBUTED "scatter", TOCSIN_CALL_FOREIGN, "tensor scatter_list src group", "tensor"},
    {DISTRIBUTED "all_gather_object", KIND_OBJECTS, "", ""},
    {DISTRIBUTED "broadcast_object_list", KIND_OBJECTS, "", ""},
    {DISTRIBUTED "gather_object", KIND_OBJECTS, "", ""},
    {DISTRIBUTED "scatter_object_list", KIND_OBJECTS, "", ""},
    {DISTRIBUTED "batch_isend_irecv", KIND_BATCH, "", ""},
    {FUNCTIONAL "all_reduce", TOCSIN_OPERATOR_ALL_REDUCE, "self reduceOp group", "self"},
    {FUNCTIONAL "all_reduce_coalesced", TOCSIN_OPERATOR_ALL_REDUCE, "self reduceOp group", "self"},
    {FUNCTIONAL "all_gather_tensor", TOCSIN_OPERATOR_ALL_GATHER, "self gather_dim group", "self"},
    {FUNCTIONAL "all_gather_tensor_autograd", TOCSIN_OPERATOR_ALL_GATHER, "self gather_dim group",
     "self"},
    {FUNCTIONAL "all_gather_single", TOCSIN_OPERATOR_ALL_GATHER, "self gather_dim group", "self"},
    {FUNCTIONAL "all_gather_single_autograd", TOCSIN_OPERATOR_ALL_GATHER, "self gather_dim group",
     "self"},
    {FUNCTIONAL "reduce_scatter_tensor", TOCSIN_OPERATOR_REDUCE_SCATTER,
     "self reduceOp scatter_dim group", "self"},
    {FUNCTIONAL "reduce_scatter_tensor_autograd", TOCSIN_OPERATOR_REDUCE_SCATTER,
     "self reduceOp scatter_dim group", "self"},
    {FUNCTIONAL "reduce_scatter_single", TOCSIN_OPERATOR_REDUCE_SCATTER,
     "self reduceOp scatter_dim group", "self"},
    {FUNCTIONAL "reduce_scatter_single_autograd", TOCSIN_OPERATOR_REDUCE_SCATTER,
     "self reduceOp scatter_dim group", "self"},
    {FUNCTIONAL "all_to_all_single", TOCSIN_OPERATOR_ALL_TO_ALL,
     "self output_split_sizes input_split_sizes group", "self"},
    {FUNCTIONAL "all_to_all_single_autograd", TOCSIN_OPERATOR_ALL_TO_ALL,
     "self output_split_sizes input_split_sizes group", "self"},
    {FUNCTIONAL "broadcast", TOCSIN_OPERATOR_BROADCAST, "self src group", "self"},
    {FUNCTIONAL "permute_tensor", TOCSIN_CALL_FOREIGN, "self src_dst group", "self"},
};

/* ---- arguments ------------------------------------------------------------------------------- */

static int position_of(const char *parameters, const char *name)
{
    size_t bytes = strlen(name);
    int position = 0;
    for (const char *at = parameters; *at; ++position) {
        size_t word = strcspn(at, " ");
        if (word == bytes && memcmp(at, name, bytes) == 0)
            return position;
        at += word;
        at += *at == ' ';
    }
    return -1;
}

/* The argument of a parameter, or NULL. */
static const tocsin_value *argument(const tocsin_call_reader *reader, const tocsin_event *event,
                                    const known_function *function, const char *name)
{
    char positional[24];
    int position = position_of(function->parameters, name);
    snprintf(positional, sizeof positional, "arg%d", position);
    for (uint32_t v = 0; v < event->value_count; ++v) {
        const tocsin_value *value = &event->values[v];
        const char *called = tocsin_trace_string(reader->trace, value->name);
        if (value->flags & TOCSIN_VALUE_IN_SEQUENCE)
            continue;
        if (strcmp(called, name) == 0 || (position >= 0 && strcmp(called, positional) == 0))
            return value;
    }
    return NULL;
}

static int64_t integer_argument(const tocsin_call_reader *reader, const tocsin_event *event,
                                const known_function *function, const char *name)
{
    const tocsin_value *value = argument(reader, event, function, name);
    return value && value->kind == TOCSIN_VALUE_INT ? value->as.integer : -1;
}

/* Elements of a tensor; -1: more than 2^62, or a shape that is lost. */
static int64_t elements_of(const tocsin_call_reader *reader, const tocsin_value *value,
                           const int64_t **shape)
{
    uint32_t ndim = tocsin_trace_shape(reader->trace, value->as.shape, shape);
    int64_t elements = 1;
    if (ndim != value->ndim)
        return -1;
    for (uint32_t d = 0; d < ndim; ++d)
        if (__builtin_mul_overflow(elements, (*shape)[d], &elements))
            return -1;
    return elements;
}

/* A tensor, or a list of them: of that the elements in all, when all are recorded. */
static void set_operand(const tocsin_call_reader *reader, const tocsin_event *event,
                        const tocsin_value *value, tocsin_call *call)
{
    const int64_t *shape = NULL;
    if (value && value->kind == TOCSIN_VALUE_TENSOR) {
        call->dtype = value->dtype;
        call->ndim = value->ndim;
        call->elements = elements_of(reader, value, &shape);
        call->shape = call->elements < 0 ? NULL : shape;
        return;
    }
    if (!value || value->kind != TOCSIN_VALUE_SEQUENCE || value->count == 0)
        return;
    int64_t sum = 0;
    const tocsin_value *end = event->values + event->value_count;
    for (uint32_t k = 1; k <= value->count; ++k) {
        bool recorded = value + k < end && (value[k].flags & TOCSIN_VALUE_IN_SEQUENCE) &&
                        value[k].kind == TOCSIN_VALUE_TENSOR;
        int64_t elements = recorded ? elements_of(reader, value + k, &shape) : -1;
        if (elements < 0 || __builtin_add_overflow(sum, elements, &sum))
            return;
        call->dtype = value[k].dtype;
    }
    call->elements = sum;
}

static tocsin_call_reduction reduction_of(const char *text)
{
    static const struct {
        const char *text;
        tocsin_call_reduction reduction;
    } known[] = {{"RedOpType.SUM", TOCSIN_CALL_SUM}, {"sum", TOCSIN_CALL_SUM},
                 {"RedOpType.AVG", TOCSIN_CALL_AVG}, {"avg", TOCSIN_CALL_AVG},
                 {"RedOpType.MAX", TOCSIN_CALL_MAX}, {"max", TOCSIN_CALL_MAX},
                 {"RedOpType.MIN", TOCSIN_CALL_MIN}, {"min", TOCSIN_CALL_MIN}};
    for (size_t k = 0; k < TOCSIN_COUNT_OF(known); ++k)
        if (strcmp(text, known[k].text) == 0)
            return known[k].reduction;
    return TOCSIN_CALL_OTHER_REDUCTION;
}

/* What is not given is sum. A recording that has the type alone does not say. */
static void set_reduction(const tocsin_call_reader *reader, const tocsin_event *event,
                          const known_function *function, tocsin_call *call)
{
    if (call->kind != TOCSIN_OPERATOR_ALL_REDUCE && call->kind != TOCSIN_OPERATOR_REDUCE_SCATTER)
        return;
    const tocsin_value *value = argument(reader, event, function, "op");
    if (!value)
        value = argument(reader, event, function, "reduceOp");
    if (!value)
        call->reduction = TOCSIN_CALL_SUM;
    else if (value->kind == TOCSIN_VALUE_STRING)
        call->reduction = (uint8_t)reduction_of(tocsin_trace_string(reader->trace, value->as.text));
}

/* ---- groups ---------------------------------------------------------------------------------- */

typedef struct rank_list {
    uint32_t *ranks; /* room for the world */
    uint32_t count;  /* that are known, from the first on */
    uint32_t total;  /* of the group; 0: nothing is known */
} rank_list;

/* "0+2": first and stride. */
static void parse_progression(const char *text, uint32_t world, rank_list *list)
{
    char *at = NULL;
    unsigned long first = strtoul(text, &at, 10);
    unsigned long stride = *at == '+' ? strtoul(at + 1, NULL, 10) : 0;
    if (first >= world || stride == 0 || stride >= world)
        return;
    for (; list->count < list->total && first < world; first += stride)
        list->ranks[list->count++] = (uint32_t)first;
}

/* "0,2,5". The last number of a text that was cut may be the beginning of another. */
static void parse_list(const char *text, uint32_t world, rank_list *list)
{
    while (list->count < list->total && *text >= '0' && *text <= '9') {
        char *at = NULL;
        unsigned long rank = strtoul(text, &at, 10);
        bool whole = *at == ',' || (*at == '\0' && list->count + 1 == list->total);
        if (!whole || rank >= world)
            return;
        list->ranks[list->count++] = (uint32_t)rank;
        text = *at == ',' ? at + 1 : at;
    }
}

/* tocsin_value in event.h says how groups are written. */
static void parse_group(const char *text, uint32_t world, rank_list *list)
{
    static const char MARK[] = "group:";
    char *at = NULL;
    if (strncmp(text, MARK, strlen(MARK)) != 0)
        return;
    unsigned long total = strtoul(text + strlen(MARK), &at, 10);
    if (*at != ':' || total > world)
        return;
    list->total = (uint32_t)total;
    if (strchr(at, '+'))
        parse_progression(at + 1, world, list);
    else
        parse_list(at + 1, world, list);
}

/* A list of ranks, of which the recording has the first few. */
static void take_list(const tocsin_event *event, const tocsin_value *value, uint32_t world,
                      rank_list *list)
{
    const tocsin_value *end = event->values + event->value_count;
    list->total = value->count <= world ? value->count : 0;
    for (uint32_t k = 1; k <= list->total && value + k < end; ++k) {
        if (!(value[k].flags & TOCSIN_VALUE_IN_SEQUENCE) || value[k].kind != TOCSIN_VALUE_INT ||
            value[k].as.integer < 0 || value[k].as.integer >= world)
            return;
        list->ranks[list->count++] = (uint32_t)value[k].as.integer;
    }
}

/* `value` NULL: the default group. */
static tocsin_status set_group(tocsin_call_reader *reader, const tocsin_event *event,
                               const tocsin_value *value, tocsin_call *call, tocsin_error *error)
{
    rank_list list = {.ranks = reader->ranks};
    uint32_t world = reader->world_size;
    if (!value || value->kind == TOCSIN_VALUE_NONE) {
        for (list.total = world; list.count < world; ++list.count)
            list.ranks[list.count] = list.count;
    } else if (value->kind == TOCSIN_VALUE_STRING) {
        parse_group(tocsin_trace_string(reader->trace, value->as.text), world, &list);
    } else if (value->kind == TOCSIN_VALUE_SEQUENCE) {
        take_list(event, value, world, &list);
    }
    if (list.count == 0) {
        ++reader->gaps.unnamed;
        return TOCSIN_OK;
    }
    call->group.ranks =
        tocsin_intern_put(reader->groups, list.ranks, list.count * sizeof *list.ranks);
    call->group.count = list.total;
    call->group.cut = list.count < list.total;
    return call->group.ranks ? TOCSIN_OK : tocsin_error_memory(error);
}

/* Peers are given as global ranks, or as places in the group. */
static void set_peer(const tocsin_call_reader *reader, const tocsin_event *event,
                     const known_function *function, tocsin_call *call)
{
    bool sends = call->kind == TOCSIN_OPERATOR_SEND;
    if (!sends && call->kind != TOCSIN_OPERATOR_RECV && call->kind != TOCSIN_OPERATOR_BROADCAST)
        return;
    call->peer = integer_argument(reader, event, function, sends ? "dst" : "src");
    int64_t place = integer_argument(reader, event, function, sends ? "group_dst" : "group_src");
    size_t bytes = 0;
    const char *ranks = tocsin_intern_text(reader->groups, call->group.ranks, &bytes);
    if (call->peer < 0 && place >= 0 && ranks && (uint64_t)place < bytes / sizeof(uint32_t)) {
        uint32_t rank = 0;
        memcpy(&rank, ranks + (size_t)place * sizeof rank, sizeof rank);
        call->peer = rank;
    }
    if (call->kind != TOCSIN_OPERATOR_BROADCAST) {
        int64_t tag = integer_argument(reader, event, function, "tag");
        call->tag = tag < 0 ? 0 : tag;
    }
}

/* ---- events ---------------------------------------------------------------------------------- */

/* The table's entry for a function id, or NULL. */
static tocsin_status find_function(tocsin_call_reader *reader, tocsin_id id,
                                   const known_function **function, tocsin_error *error)
{
    uint64_t *known = tocsin_map_at(&reader->functions, id);
    *function = NULL;
    if (!known)
        return tocsin_error_memory(error);
    if (!*known) {
        const char *name = tocsin_trace_function_name(reader->trace, id);
        *known = 1;
        for (size_t k = 0; k < TOCSIN_COUNT_OF(functions); ++k)
            if (strcmp(functions[k].name, name) == 0)
                *known = k + 2;
    }
    if (*known > 1)
        *function = &functions[*known - 2];
    return TOCSIN_OK;
}

static tocsin_status add_call(tocsin_call_reader *reader, const tocsin_event *event,
                              const known_function *function, tocsin_calls *calls,
                              tocsin_error *error)
{
    const tocsin_value *group = argument(reader, event, function, "group");
    if (group && group->kind == TOCSIN_VALUE_INT)
        return TOCSIN_OK; /* GroupMember.NON_GROUP_MEMBER: torch does nothing */
    tocsin_call call = {.kind = function->kind,
                        .elements = -1,
                        .peer = -1,
                        .op = TOCSIN_PLAN_NONE,
                        .function = function->name};
    call.file = tocsin_trace_site(reader->trace, event->site, &call.line, &call.within);
    set_operand(reader, event, argument(reader, event, function, function->operand), &call);
    set_reduction(reader, event, function, &call);
    TOCSIN_TRY(set_group(reader, event, group, &call, error));
    set_peer(reader, event, function, &call);
    return TOCSIN_VEC_PUSH(calls, call) ? TOCSIN_OK : tocsin_error_memory(error);
}

static tocsin_status take_collective(tocsin_call_reader *reader, const tocsin_event *event,
                                     tocsin_calls *calls, tocsin_error *error)
{
    const known_function *function = NULL;
    TOCSIN_TRY(find_function(reader, event->function, &function, error));
    if (!function)
        return TOCSIN_OK;
    if (function->kind == KIND_BATCH) {
        ++reader->gaps.batches;
        return TOCSIN_OK;
    }
    if (function->kind == KIND_OBJECTS) {
        ++reader->gaps.objects;
        return TOCSIN_OK;
    }
    reader->gaps.messages +=
        function->kind == TOCSIN_OPERATOR_SEND || function->kind == TOCSIN_OPERATOR_RECV;
    if (function->kind == TOCSIN_OPERATOR_BARRIER && !reader->barriers) {
        ++reader->gaps.barriers;
        return TOCSIN_OK;
    }
    if (calls->count >= CALLS_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "a step of more than 2^24 calls");
    return add_call(reader, event, function, calls, error);
}

/* Is a module wrapped in DistributedDataParallel called, whose reductions nobody sees? */
static bool is_ddp_call(const tocsin_call_reader *reader, const tocsin_event *event)
{
    for (uint32_t v = 0; v < event->value_count; ++v) {
        const tocsin_value *value = &event->values[v];
        if (value->kind == TOCSIN_VALUE_MODULE &&
            strcmp(tocsin_trace_string(reader->trace, value->type),
                   "torch.nn.parallel.distributed.DistributedDataParallel") == 0)
            return true;
    }
    return false;
}

static tocsin_status take_event(tocsin_call_reader *reader, const tocsin_event *event,
                                tocsin_calls *calls, tocsin_error *error)
{
    if (event->kind == TOCSIN_EVENT_META) {
        const char *key = tocsin_trace_string(reader->trace, event->key);
        if (event->value_count != 1 || event->values[0].kind != TOCSIN_VALUE_INT)
            return TOCSIN_OK;
        if (strcmp(key, "rank") == 0)
            reader->rank = event->values[0].as.integer;
        else if (strcmp(key, "world_size") == 0)
            reader->recorded_world_size = event->values[0].as.integer;
        return TOCSIN_OK;
    }
    if (event->kind != TOCSIN_EVENT_ENTER)
        return TOCSIN_OK;
    tocsin_role role = tocsin_trace_function_role(reader->trace, event->function);
    if (role == TOCSIN_ROLE_STEP_END)
        reader->step_ended = true;
    else if (role == TOCSIN_ROLE_FORWARD && !reader->gaps.ddp)
        reader->gaps.ddp = is_ddp_call(reader, event);
    else if (role == TOCSIN_ROLE_COLLECTIVE)
        return take_collective(reader, event, calls, error);
    return TOCSIN_OK;
}

tocsin_status tocsin_conform_step(tocsin_call_reader *reader, tocsin_calls *calls,
                                  tocsin_error *error)
{
    assert(reader->ranks && reader->world_size);
    calls->count = 0;
    reader->step_ended = false;
    while (!reader->step_ended) {
        const tocsin_event *event = NULL;
        tocsin_status status = tocsin_trace_next(reader->trace, &event, error);
        if (status == TOCSIN_E_CORRUPT) { /* the reader has skipped the block */
            reader->gaps.damaged = true;
            continue;
        }
        if (status != TOCSIN_OK)
            return status;
        if (!event)
            return TOCSIN_OK;
        TOCSIN_TRY(take_event(reader, event, calls, error));
    }
    return TOCSIN_OK;
}

tocsin_status tocsin_call_reader_open(tocsin_call_reader *reader, tocsin_trace *trace,
                                      tocsin_intern *groups, uint32_t world_size,
                                      tocsin_error *error)
{
    *reader = (tocsin_call_reader){.trace = trace,
                                   .groups = groups,
                                   .world_size = world_size,
                                   .rank = -1,
                                   .recorded_world_size = -1};
    reader->ranks = tocsin_zalloc(world_size, sizeof *reader->ranks);
    return reader->ranks ? TOCSIN_OK : tocsin_error_memory(error);
}

void tocsin_call_reader_close(tocsin_call_reader *reader)
{
    tocsin_free(reader->ranks);
    tocsin_map_free(&reader->functions);
    *reader = (tocsin_call_reader){0};
}
