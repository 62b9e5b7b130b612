/* APIOutput: what a call returns, alone and against its arguments.
 *
 * Population CALL_OUTPUT, by function. Facts of the returned value (of a tuple: its first element):
 * "return.dtype is V", ndim, requires_grad, type, or the value itself when it is a word, a flag or
 * None; and "return.P equals arg.K.P" for P of dtype, ndim, shape and shape[0] over the tensor
 * arguments; for the user's functions also "return.shape[0] at most arg.max_K" and "at least
 * arg.min_K" for whole numbers that are called so. Calls that return nothing comparable make no
 * instance, nor do calls of modules: one function calls them all, a loss as well as a layer, and
 * what they return is judged at the functions that they call. Cost: O(tensor arguments) a call.
 */
#include <assert.h>
#include <invariant/relation.h>

typedef struct output {
    tocsin_observer *observer;
    tocsin_process *process;
    const tocsin_frame *frame;
    size_t names; /* of "return" or "return[0]" */
} output;

static void returns(const output *out, tocsin_symbol name, tocsin_scalar value)
{
    tocsin_fact_key key = {.predicate = TOCSIN_PREDICATE_RETURN_IS, .name = name, .value = value};
    if (value != 0)
        tocsin_observer_add_fact(out->observer, tocsin_observer_fact(out->observer, &key));
}

static void matches(const output *out, tocsin_symbol name, tocsin_symbol other, bool equal)
{
    tocsin_fact_key key = {
        .predicate = TOCSIN_PREDICATE_RETURN_MATCHES, .name = name, .other = other};
    if (equal)
        tocsin_observer_add_fact(out->observer, tocsin_observer_fact(out->observer, &key));
}

static void add_tensor(const output *out, const tocsin_value *value)
{
    tocsin_observer *observer = out->observer;
    const tocsin_dictionary *dictionary = &out->process->dictionary;
    const tocsin_field_names *names = &observer->names.items[out->names];
    const int64_t *sizes = NULL;
    dictionary->shape(dictionary->producer, value->as.shape, &sizes);
    returns(out, names->dtype, observer->dtypes[value->dtype % TOCSIN_DTYPES_MAX]);
    returns(out, names->ndim, tocsin_scalar_of_int(observer, value->ndim));
    returns(out, names->requires_grad,
            observer->truth[(value->flags & TOCSIN_VALUE_REQUIRES_GRAD) != 0]);
    for (uint32_t i = 0; i < out->frame->tensor_count; ++i) {
        const tocsin_tensor_argument *argument = &out->frame->tensors[i];
        const tocsin_field_names *other = &observer->names.items[argument->names];
        const int64_t *other_sizes = NULL;
        dictionary->shape(dictionary->producer, argument->shape, &other_sizes);
        matches(out, names->dtype, other->dtype, value->dtype == argument->dtype);
        matches(out, names->ndim, other->ndim, value->ndim == argument->ndim);
        matches(out, names->shape, other->shape, value->as.shape == argument->shape);
        matches(out, names->batch, other->batch,
                value->ndim > 0 && argument->ndim > 0 && sizes != NULL && other_sizes != NULL &&
                    sizes[0] == other_sizes[0]);
    }
}

/* Is the argument called a limit ("max_new_tokens", "limit_max")? */
static bool is_limit(const char *field, const char *word)
{
    size_t bytes = strlen(word);
    for (const char *at = strstr(field, word); at != NULL; at = strstr(at + 1, word))
        if ((at[-1] == '.' || at[-1] == '_') && (at[bytes] == 0 || at[bytes] == '_'))
            return true;
    return false;
}

/* What was returned is a number or has a size: does it keep the limits that the call was given? */
static void add_bounds(const output *out, const char *what, int64_t size)
{
    tocsin_observer *observer = out->observer;
    tocsin_fact_key key = {
        .name = tocsin_observer_need(observer, tocsin_symbol_of(observer->vocabulary, what))};
    for (size_t i = 0; i < out->frame->numbers.count && observer->status == TOCSIN_OK; ++i) {
        const tocsin_number *number = &out->frame->numbers.items[i];
        const char *field = tocsin_symbol_text(observer->vocabulary, number->name);
        if (number->literal.kind != TOCSIN_VALUE_INT || strncmp(field, "arg.", 4) != 0)
            continue;
        key.other = number->name;
        key.predicate = TOCSIN_PREDICATE_RETURN_AT_MOST;
        if (is_limit(field, "max") && size <= number->literal.integer)
            tocsin_observer_add_fact(observer, tocsin_observer_fact(observer, &key));
        key.predicate = TOCSIN_PREDICATE_RETURN_AT_LEAST;
        if (is_limit(field, "min") && size >= number->literal.integer)
            tocsin_observer_add_fact(observer, tocsin_observer_fact(observer, &key));
    }
}

static void add_sizes(const output *out, const tocsin_value *value)
{
    const tocsin_dictionary *dictionary = &out->process->dictionary;
    if (value->kind == TOCSIN_VALUE_SEQUENCE)
        add_bounds(out, "return.length", value->count);
    else if (value->kind == TOCSIN_VALUE_INT)
        add_bounds(out, "return", value->as.integer);
    if (value->kind != TOCSIN_VALUE_TENSOR || value->as.shape == 0)
        return;
    const int64_t *sizes;
    uint32_t ndim = dictionary->shape(dictionary->producer, value->as.shape, &sizes);
    if (ndim > 0)
        add_bounds(out, "return.shape[0]", sizes[0]);
    if (ndim > 1)
        add_bounds(out, "return.shape[1]", sizes[1]);
}

static void add_plain(const output *out, const tocsin_value *value)
{
    tocsin_observer *observer = out->observer;
    const tocsin_field_names *names = &observer->names.items[out->names];
    if (value->kind == TOCSIN_VALUE_NONE || value->kind == TOCSIN_VALUE_BOOL)
        returns(out, names->whole, tocsin_scalar_of_value(observer, out->process, value));
    else if (value->type != 0)
        returns(out, names->type, tocsin_scalar_of_string(observer, out->process, value->type));
}

static void callable(tocsin_observer *observer, tocsin_callable *made)
{
    if (made->role == TOCSIN_ROLE_NONE)
        tocsin_callable_population(observer, made, TOCSIN_POPULATION_CALL_OUTPUT);
}

static void leave(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event, bool completed)
{
    (void)thread;
    tocsin_population population =
        observer->callables.items[frame->callables[0]].populations[TOCSIN_POPULATION_CALL_OUTPUT];
    if (!completed || population == 0 || event->value_count == 0 ||
        frame->role == TOCSIN_ROLE_FORWARD)
        return;
    const tocsin_value *value = &event->values[0];
    bool element = value->kind == TOCSIN_VALUE_SEQUENCE && event->value_count > 1 &&
                   (event->values[1].flags & TOCSIN_VALUE_IN_SEQUENCE) != 0;
    if (element)
        value = &event->values[1];
    output out = {.observer = observer,
                  .process = process,
                  .frame = frame,
                  .names = tocsin_field_names_of(observer, element ? "return[0]" : "return")};
    if (out.names == SIZE_MAX)
        return;
    tocsin_instance instance = {.population = population,
                                .ordinal = frame->ordinals[0],
                                .evidence =
                                    tocsin_observer_evidence(observer, process, frame, NULL)};
    tocsin_observer_begin(observer);
    tocsin_observer_add_call_fields(observer, frame);
    if (value->kind == TOCSIN_VALUE_TENSOR)
        add_tensor(&out, value);
    else
        add_plain(&out, value);
    if (frame->role == TOCSIN_ROLE_USER)
        add_sizes(&out, &event->values[0]);
    tocsin_observer_emit(observer, &instance);
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    tocsin_population_key key = tocsin_population_get_key(vocabulary, invariant->population);
    tocsin_need_call(needs, key.role, key.name, true);
}

static const uint8_t kinds[] = {TOCSIN_POPULATION_CALL_OUTPUT, 0};
const tocsin_relation_part tocsin_relation_output = {
    .kinds = kinds, .callable = callable, .leave = leave, .need = need};
