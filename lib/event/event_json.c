/* event_json.c - an event as JSON, in the words of its dictionary: docs/formats/trace.md, 7. */
#include <event/event.h>
#include <stdio.h>

typedef struct flag_name {
    uint32_t flag;
    const char *name;
} flag_name;

static const flag_name value_flags[] = {{TOCSIN_VALUE_REQUIRES_GRAD, "requires_grad"},
                                        {TOCSIN_VALUE_HAS_GRAD_FN, "has_grad_fn"},
                                        {TOCSIN_VALUE_IS_PARAMETER, "is_parameter"},
                                        {TOCSIN_VALUE_TRAINING, "training"},
                                        {TOCSIN_VALUE_IN_SEQUENCE, "in_sequence"},
                                        {TOCSIN_VALUE_ON_DEVICE, "on_device"},
                                        {TOCSIN_VALUE_HAS_ITEM, "has_item"}};

static const flag_name state_flags[] = {{TOCSIN_STATE_PRESENT, "present"},
                                        {TOCSIN_STATE_DIGESTED, "digested"},
                                        {TOCSIN_STATE_REQUIRES_GRAD, "requires_grad"},
                                        {TOCSIN_STATE_IS_LEAF, "is_leaf"},
                                        {TOCSIN_STATE_IN_OPTIMIZER, "in_optimizer"},
                                        {TOCSIN_STATE_IN_THIS_OPTIMIZER, "in_this_optimizer"},
                                        {TOCSIN_STATE_IN_MODEL, "in_model"},
                                        {TOCSIN_STATE_TENSOR_PARALLEL, "tensor_parallel"},
                                        {TOCSIN_STATE_MODULE_TRAINING, "module_training"},
                                        {TOCSIN_STATE_TIED, "tied"},
                                        {TOCSIN_STATE_HASHED, "hashed"},
                                        {TOCSIN_STATE_PIECE, "piece"}};

/* Numbers that JSON does not have become the strings "nan", "inf" and "-inf". */
static void put_real(tocsin_json *json, const char *key, double value)
{
    tocsin_json_key(json, key);
    if (__builtin_isfinite(value)) {
        tocsin_json_real(json, value);
    } else {
        char text[TOCSIN_REAL_TEXT_BYTES];
        tocsin_json_string(json, text, tocsin_real_text(value, text));
    }
}

static void put_hex(tocsin_json *json, const char *key, uint64_t value)
{
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)value);
    tocsin_json_put_text(json, key, text);
}

static void put_flags(tocsin_json *json, uint32_t flags, const flag_name *names, size_t count)
{
    tocsin_json_key(json, "flags");
    tocsin_json_begin_array(json);
    for (size_t i = 0; i < count; ++i)
        if (flags & names[i].flag)
            tocsin_json_text(json, names[i].name);
    tocsin_json_end_array(json);
}

/* dtype and shape; a shape that is not known is null. */
static void put_tensor(tocsin_json *json, const tocsin_dictionary *dictionary, uint8_t dtype,
                       uint8_t ndim, tocsin_id shape)
{
    const int64_t *sizes;
    uint32_t known = dictionary->shape(dictionary->producer, shape, &sizes);
    tocsin_json_put_text(json, "dtype", tocsin_dtype_name((tocsin_dtype)dtype));
    tocsin_json_put_unsigned(json, "ndim", ndim);
    tocsin_json_key(json, "shape");
    if (!sizes && ndim > 0) {
        tocsin_json_null(json);
        return;
    }
    tocsin_json_begin_array(json);
    for (uint32_t i = 0; sizes && i < known; ++i)
        tocsin_json_integer(json, sizes[i]);
    tocsin_json_end_array(json);
}

static void put_value(tocsin_json *json, const tocsin_dictionary *dictionary,
                      const tocsin_value *value)
{
    tocsin_json_begin_object(json);
    tocsin_json_put_text(json, "name", dictionary->string(dictionary->producer, value->name));
    tocsin_json_put_text(json, "kind", tocsin_value_kind_name((tocsin_value_kind)value->kind));
    if (value->type)
        tocsin_json_put_text(json, "type", dictionary->string(dictionary->producer, value->type));
    switch (value->kind) {
    case TOCSIN_VALUE_BOOL:
        tocsin_json_key(json, "value");
        tocsin_json_bool(json, value->as.integer != 0);
        break;
    case TOCSIN_VALUE_INT:
        tocsin_json_key(json, "value");
        tocsin_json_integer(json, value->as.integer);
        break;
    case TOCSIN_VALUE_FLOAT:
        put_real(json, "value", value->as.real);
        break;
    case TOCSIN_VALUE_STRING:
    case TOCSIN_VALUE_MODULE:
        tocsin_json_put_text(json, "value",
                             dictionary->string(dictionary->producer, value->as.text));
        break;
    case TOCSIN_VALUE_TENSOR:
        put_tensor(json, dictionary, value->dtype, value->ndim, value->as.shape);
        if (value->count)
            tocsin_json_put_unsigned(json, "memory", value->count);
        break;
    case TOCSIN_VALUE_SEQUENCE:
        tocsin_json_put_unsigned(json, "count", value->count);
        break;
    default:
        break;
    }
    if (value->flags)
        put_flags(json, value->flags, value_flags, TOCSIN_COUNT_OF(value_flags));
    tocsin_json_end_object(json);
}

static void put_values(tocsin_json *json, const tocsin_dictionary *dictionary,
                       const tocsin_event *event)
{
    tocsin_json_key(json, "values");
    tocsin_json_begin_array(json);
    for (uint32_t i = 0; i < event->value_count; ++i)
        put_value(json, dictionary, &event->values[i]);
    tocsin_json_end_array(json);
}

static void put_call(tocsin_json *json, const tocsin_dictionary *dictionary,
                     const tocsin_event *event)
{
    tocsin_json_put_text(json, "function",
                         dictionary->function_name(dictionary->producer, event->function));
    tocsin_json_put_text(
        json, "role",
        tocsin_role_name(dictionary->function_role(dictionary->producer, event->function)));
    if (event->site) {
        uint32_t line;
        const char *function;
        const char *file = dictionary->site(dictionary->producer, event->site, &line, &function);
        tocsin_json_key(json, "site");
        tocsin_json_begin_object(json);
        tocsin_json_put_text(json, "file", file);
        tocsin_json_put_unsigned(json, "line", line);
        tocsin_json_put_text(json, "function", function);
        tocsin_json_end_object(json);
    }
    put_values(json, dictionary, event);
}

static void put_state(tocsin_json *json, const tocsin_dictionary *dictionary,
                      const tocsin_state *state)
{
    tocsin_json_put_text(json, "variable",
                         dictionary->variable_name(dictionary->producer, state->variable));
    tocsin_json_put_text(json, "variable_kind",
                         tocsin_variable_kind_name(
                             dictionary->variable_kind(dictionary->producer, state->variable)));
    tocsin_json_put_text(json, "type",
                         dictionary->variable_type(dictionary->producer, state->variable));
    tocsin_json_put_text(json, "attribute",
                         dictionary->string(dictionary->producer, state->attribute));
    tocsin_json_put_text(json, "moment", state->moment == TOCSIN_MOMENT_ENTER ? "enter" : "exit");
    put_flags(json, state->flags, state_flags, TOCSIN_COUNT_OF(state_flags));
    if (state->flags & TOCSIN_STATE_PRESENT)
        put_tensor(json, dictionary, state->dtype, state->ndim, state->shape);
    if (state->lr == state->lr)
        put_real(json, "lr", state->lr);
    if (state->flags & TOCSIN_STATE_DIGESTED) {
        put_hex(json, "sum", state->digest.sum);
        put_hex(json, "exclusive", state->digest.exclusive);
        put_hex(json, "polynomial", state->digest.polynomial);
        tocsin_json_put_unsigned(json, "nan_count", state->statistics.nan_count);
        tocsin_json_put_unsigned(json, "inf_count", state->statistics.inf_count);
        tocsin_json_put_unsigned(json, "zero_count", state->statistics.zero_count);
        put_real(json, "absmax", state->statistics.absmax);
        put_real(json, "sum_squares", state->statistics.sum_squares);
    }
}

void tocsin_event_put_json(const tocsin_event *event, const tocsin_dictionary *dictionary,
                           tocsin_json *json)
{
    tocsin_json_begin_object(json);
    tocsin_json_key(json, "pid");
    tocsin_json_integer(json, dictionary->pid);
    tocsin_json_put_unsigned(json, "thread", event->thread);
    tocsin_json_put_unsigned(json, "time_ns", event->time_ns);
    tocsin_json_put_unsigned(json, "depth", event->depth);
    tocsin_json_put_unsigned(json, "call", event->call);
    tocsin_json_put_text(json, "kind", tocsin_event_kind_name((tocsin_event_kind)event->kind));
    switch (event->kind) {
    case TOCSIN_EVENT_STATE:
        put_state(json, dictionary, &event->state);
        if (event->value_count > 0)
            put_values(json, dictionary, event);
        break;
    case TOCSIN_EVENT_META:
        tocsin_json_put_text(json, "key", dictionary->string(dictionary->producer, event->key));
        tocsin_json_key(json, "value");
        put_value(json, dictionary, &event->values[0]);
        break;
    default:
        put_call(json, dictionary, event);
    }
    tocsin_json_end_object(json);
}
