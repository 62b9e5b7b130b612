/* APIOutput: what a call returns, alone and against its arguments.
 *
 * Population CALL_OUTPUT, by function. Facts of the returned value (of a tuple: its first element):
 * "return.dtype is V", ndim, requires_grad, type, or the value itself when it is a word, a flag or
 * None; and "return.P equals arg.K.P" for P of dtype, ndim, shape and shape[0] over the tensor
 * arguments; for the user's functions also sizes: returned_size.c. Calls that return nothing
 * comparable make no instance, nor do calls of modules: one function calls them all, a loss as well
 * as a layer, and what they return is judged at the functions that they call. Cost: O(tensor
 * arguments) a call.
 *
 * When learning is wide, or somebody asks for it (invariants of TrainCheck do), also facts of every
 * property (tensor_property.c): "output.P is V" of each returned tensor, and "output[j].P equals
 * input[i].Q" of the i-th tensor argument, for flags only P itself. What is not known of a tensor
 * is no field of the instance. Cost: O(properties^2) a pair of tensors.
 */
#include <assert.h>
#include <invariant/relation.h>
#include <invariant/returned_size.h>
#include <invariant/tensor_property.h>

#define OUTPUTS_MAX 4u /* as many elements of a list as events have */
#define VALUES_MAX  8u /* of one property and function that become facts */

typedef struct places { /* the tensors of a call by their place */
    tocsin_property_reader *reader;
    tocsin_map values; /* (callable, field) -> how many became facts */
    tocsin_properties inputs[TOCSIN_TENSORS_MAX];
    tocsin_properties outputs[OUTPUTS_MAX];
    int input_count;
    int output_count;
} places;

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

/* What functions of torch do with several tensors (attention, broadcasting, promotion of types) is
 * no matter of any one but the first: of the others nothing is learned. */
static bool is_compared(const output *out, uint32_t index)
{
    bool learns = !out->observer->filtered && !out->observer->wide;
    return index == 0 || out->frame->role == TOCSIN_ROLE_USER || !learns;
}

/* Other operations on several tensors broadcast. */
static bool is_layer(const output *out)
{
    tocsin_symbol name = out->observer->callables.items[out->frame->callables[0]].name;
    return strncmp(tocsin_symbol_text(out->observer->vocabulary, name), "torch.nn.functional.",
                   20) == 0;
}

/* Is it of this argument that what is returned may have the size? The first of a list has no say in
 * what is made of all of them; and of two arguments of one shape it could be either. */
static bool has_size_of_result(const output *out, uint32_t index)
{
    const tocsin_frame *frame = out->frame;
    const tocsin_tensor_argument *argument = &frame->tensors[index];
    bool learns = !out->observer->filtered && !out->observer->wide;
    bool only = (argument->flags & TOCSIN_VALUE_IN_SEQUENCE) == 0;
    if (learns && frame->role != TOCSIN_ROLE_USER && frame->tensor_count > 1)
        only &= is_layer(out);
    for (uint32_t i = 0; i < frame->tensor_count && learns; ++i)
        only &= i == index || frame->role == TOCSIN_ROLE_USER || argument->shape == 0 ||
                frame->tensors[i].shape != argument->shape;
    return only;
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
        if (!is_compared(out, i))
            continue;
        const tocsin_tensor_argument *argument = &out->frame->tensors[i];
        const tocsin_field_names *other = &observer->names.items[argument->names];
        const int64_t *other_sizes = NULL;
        dictionary->shape(dictionary->producer, argument->shape, &other_sizes);
        matches(out, names->dtype, other->dtype, value->dtype == argument->dtype);
        matches(out, names->ndim, other->ndim, value->ndim == argument->ndim);
        if (!has_size_of_result(out, i))
            continue;
        matches(out, names->shape, other->shape, value->as.shape == argument->shape);
        /* of two vectors the size is no batch: a linear layer of one sample */
        bool vectors =
            value->ndim == 1 && argument->ndim == 1 && out->frame->role != TOCSIN_ROLE_USER;
        matches(out, names->batch, other->batch,
                vectors || (value->ndim > 0 && argument->ndim > 0 && sizes != NULL &&
                            other_sizes != NULL && sizes[0] == other_sizes[0]));
    }
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

/* ---- by place ------------------------------------------------------------------------------ */

static bool is_place(const tocsin_vocabulary *vocabulary, tocsin_symbol name)
{
    return strncmp(tocsin_symbol_text(vocabulary, name), "output", 6) == 0;
}

/* Is any fact about places wanted? */
static bool is_asked(const tocsin_observer *observer)
{
    size_t cursor = 0;
    uint64_t fact, *one;
    while (tocsin_map_next(&observer->wanted_facts, &cursor, &fact, &one)) {
        tocsin_fact_key key = tocsin_fact_get_key(observer->vocabulary, (tocsin_fact)fact);
        if ((key.predicate == TOCSIN_PREDICATE_RETURN_IS ||
             key.predicate == TOCSIN_PREDICATE_RETURN_MATCHES) &&
            is_place(observer->vocabulary, key.name))
            return true;
    }
    return false;
}

static void close_places(void *own)
{
    places *made = own;
    tocsin_property_reader_free(made->reader);
    tocsin_map_free(&made->values);
    tocsin_free(made);
}

static void *open_places(tocsin_observer *observer)
{
    if (!observer->wide && !is_asked(observer))
        return NULL;
    places *made = tocsin_zalloc(1, sizeof *made);
    if (made == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return NULL;
    }
    made->reader = tocsin_property_reader_new(observer);
    if (made->reader != NULL)
        return made;
    close_places(made);
    return NULL;
}

static void read_places(places *at, const output *out, const tocsin_event *event)
{
    at->input_count = at->output_count = 0;
    for (uint32_t i = 0; i < out->frame->tensor_count; ++i) {
        const tocsin_tensor_argument *argument = &out->frame->tensors[i];
        tocsin_value value = {.kind = TOCSIN_VALUE_TENSOR,
                              .dtype = argument->dtype,
                              .ndim = argument->ndim,
                              .flags = argument->flags,
                              .type = argument->type,
                              .as.shape = argument->shape};
        if ((argument->flags & TOCSIN_VALUE_IN_SEQUENCE) == 0)
            tocsin_properties_read(at->reader, out->process, &value,
                                   &at->inputs[at->input_count++]);
    }
    for (uint32_t i = 0; i < event->value_count; ++i)
        if (event->values[i].kind == TOCSIN_VALUE_TENSOR && at->output_count < (int)OUTPUTS_MAX)
            tocsin_properties_read(at->reader, out->process, &event->values[i],
                                   &at->outputs[at->output_count++]);
}

static bool is_equal(const tocsin_property *a, const tocsin_property *b)
{
    return a->kind == b->kind && (a->kind == TOCSIN_VALUE_NONE || a->integer == b->integer);
}

static bool has_property(const tocsin_properties *properties, const tocsin_property *wanted)
{
    for (uint32_t i = 0; i < properties->count; ++i)
        if (properties->items[i].name == wanted->name)
            return is_equal(&properties->items[i], wanted);
    return false;
}

/* The property of every returned tensor; 0: a value too many to be claimed, or nobody asks. */
static tocsin_fact everywhere_fact(places *at, const output *out, const tocsin_property *property)
{
    tocsin_observer *observer = out->observer;
    tocsin_fact_key key = {.predicate = TOCSIN_PREDICATE_RETURN_IS,
                           .name = tocsin_property_field(at->reader, true, -1, property->name)};
    tocsin_literal number = {.kind = TOCSIN_VALUE_INT, .integer = property->integer};
    bool whole = property->kind == TOCSIN_VALUE_INT;
    uint64_t *values = NULL;
    if (!observer->filtered) {
        values = tocsin_map_at(&at->values, (uint64_t)out->frame->callables[0] << 32 | key.name);
        if (values == NULL)
            tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
    }
    if (whole && (observer->filtered || (values != NULL && *values >= VALUES_MAX)))
        key.value = tocsin_scalar_find(observer->vocabulary, &number);
    else
        key.value = tocsin_property_scalar(observer, property, true);
    if (observer->status != TOCSIN_OK || key.value == 0)
        return 0;
    if (values != NULL && tocsin_fact_find(observer->vocabulary, &key) == 0 &&
        ++*values > VALUES_MAX)
        return 0;
    return tocsin_observer_fact(observer, &key);
}

static void add_everywhere(places *at, const output *out)
{
    for (uint32_t i = 0; at->output_count > 0 && i < at->outputs[0].count; ++i) {
        const tocsin_property *property = &at->outputs[0].items[i];
        bool all = true;
        for (int j = 1; j < at->output_count; ++j)
            all &= has_property(&at->outputs[j], property);
        if (all)
            tocsin_observer_add_fact(out->observer, everywhere_fact(at, out, property));
    }
}

/* Equal flags of different names are a coincidence; a shape is compared by its sizes. */
static void add_between(places *at, const output *out, int input, int returned)
{
    const tocsin_properties *left = &at->outputs[returned], *right = &at->inputs[input];
    for (uint32_t p = 0; p < left->count; ++p)
        for (uint32_t q = 0; q < right->count; ++q) {
            const tocsin_property *a = &left->items[p], *b = &right->items[q];
            if (!is_equal(a, b) || (a->kind == TOCSIN_VALUE_BOOL && a->name != b->name))
                continue;
            matches(out, tocsin_property_field(at->reader, true, returned, a->name),
                    tocsin_property_field(at->reader, false, input, b->name), true);
        }
}

/* For clauses that ask whether a property is known. */
static void add_place_fields(places *at, const output *out)
{
    tocsin_observer *observer = out->observer;
    int all = at->input_count + at->output_count;
    for (int t = 0; t < all; ++t) {
        bool returned = t >= at->input_count;
        int place = returned ? t - at->input_count : t;
        const tocsin_properties *of = returned ? &at->outputs[place] : &at->inputs[place];
        for (uint32_t i = 0; i < of->count; ++i) {
            tocsin_scalar value = tocsin_property_scalar(observer, &of->items[i], false);
            tocsin_symbol name = of->items[i].name;
            tocsin_observer_add_field(
                observer, tocsin_property_field(at->reader, returned, place, name), value, value);
            if (returned)
                tocsin_observer_add_field(
                    observer, tocsin_property_field(at->reader, true, -1, name), value, value);
        }
    }
}

static void add_places(places *at, const output *out, const tocsin_event *event)
{
    read_places(at, out, event);
    add_everywhere(at, out);
    for (int input = 0; input < at->input_count; ++input)
        for (int returned = 0; returned < at->output_count; ++returned)
            add_between(at, out, input, returned);
    if (out->observer->filters_fields)
        add_place_fields(at, out);
}

/* ---- the relation -------------------------------------------------------------------------- */

static bool wants_user_calls(const tocsin_observer *observer)
{
    size_t cursor = 0;
    uint64_t population, *one;
    bool wanted = !observer->filtered;
    while (!wanted && tocsin_map_next(&observer->wanted_populations, &cursor, &population, &one))
        wanted =
            tocsin_population_get_key(observer->vocabulary, (tocsin_population)population).kind ==
            TOCSIN_POPULATION_USER_CALL;
    return wanted;
}

static void callable(tocsin_observer *observer, tocsin_callable *made)
{
    if (made->role == TOCSIN_ROLE_NONE)
        tocsin_callable_population(observer, made, TOCSIN_POPULATION_CALL_OUTPUT);
    /* by argument: which of its calls are, their arguments tell */
    made->interesting |= made->role == TOCSIN_ROLE_USER && wants_user_calls(observer);
}

static void judge(tocsin_observer *observer, tocsin_process *process, const tocsin_frame *frame,
                  const tocsin_event *event, tocsin_population population)
{
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
        tocsin_returned_size_add(observer, process, frame, &event->values[0]);
    places *at = observer->own[TOCSIN_PART_OUTPUT];
    if (at != NULL)
        add_places(at, &out, event);
    tocsin_observer_emit(observer, &instance);
}

static void leave(tocsin_observer *observer, tocsin_process *process, tocsin_thread *thread,
                  tocsin_frame *frame, const tocsin_event *event, bool completed)
{
    (void)thread;
    if (!completed || event->value_count == 0 || frame->role == TOCSIN_ROLE_FORWARD)
        return;
    tocsin_population population =
        observer->callables.items[frame->callables[0]].populations[TOCSIN_POPULATION_CALL_OUTPUT];
    if (population != 0)
        judge(observer, process, frame, event, population);
    if (frame->role == TOCSIN_ROLE_USER)
        tocsin_returned_size_emit(observer, process, frame, &event->values[0]);
}

static void need(const tocsin_vocabulary *vocabulary, const tocsin_invariant *invariant,
                 struct tocsin_needs *needs)
{
    tocsin_population_key key = tocsin_population_get_key(vocabulary, invariant->population);
    if (key.kind == TOCSIN_POPULATION_USER_CALL)
        tocsin_need_call(needs, TOCSIN_ROLE_USER, 0, true);
    else
        tocsin_need_call(needs, key.role, key.name, true);
}

static const uint8_t kinds[] = {TOCSIN_POPULATION_CALL_OUTPUT, TOCSIN_POPULATION_USER_CALL, 0};
const tocsin_relation_part tocsin_relation_output = {.kinds = kinds,
                                                     .cost = 5,
                                                     .open = open_places,
                                                     .close = close_places,
                                                     .callable = callable,
                                                     .leave = leave,
                                                     .need = need};
