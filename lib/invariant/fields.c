/* Fields: arguments, meta variables and flags as named scalars.
 *
 * A field is something a precondition may speak about, so it keeps what carries over to other runs:
 * types, dtypes, flags, words and small whole numbers. Larger numbers (sizes, seeds, counters) and
 * floats (learning rates, losses) become "an int" and "a float"; the exact value of a float can
 * still be a fact about an argument. Identities never become fields of single instances.
 */
#include <assert.h>
#include <invariant/relation.h>
#include <math.h>
#include <stdio.h>

#define SMALL_INT_MAX    16
#define FACT_VARIETY_MAX 8 /* an argument with more values than this is no constant */
#define BASE_BYTES_MAX   300

/* ---- scalars ------------------------------------------------------------------------------- */

tocsin_scalar tocsin_scalar_of_int(tocsin_observer *observer, int64_t integer)
{
    tocsin_literal literal = {.kind = TOCSIN_VALUE_INT, .integer = integer};
    return tocsin_observer_need(observer, tocsin_scalar_of(observer->vocabulary, &literal));
}

tocsin_scalar tocsin_scalar_of_string(tocsin_observer *observer, tocsin_process *process,
                                      tocsin_id id)
{
    uint64_t *known = tocsin_map_find(&process->strings, id);
    if (known != NULL)
        return (tocsin_scalar)*known;
    const tocsin_dictionary *dictionary = &process->dictionary;
    tocsin_literal literal = {.kind = TOCSIN_VALUE_STRING,
                              .text = dictionary->string(dictionary->producer, id)};
    tocsin_scalar scalar =
        tocsin_observer_need(observer, tocsin_scalar_of(observer->vocabulary, &literal));
    if (!tocsin_map_put(&process->strings, id, scalar))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
    return scalar;
}

tocsin_scalar tocsin_scalar_of_shape(tocsin_observer *observer, tocsin_process *process,
                                     tocsin_id id)
{
    uint64_t *known = tocsin_map_find(&process->shapes, id);
    if (known != NULL)
        return (tocsin_scalar)*known;
    const tocsin_dictionary *dictionary = &process->dictionary;
    const int64_t *sizes = NULL;
    uint32_t ndim = id != 0 ? dictionary->shape(dictionary->producer, id, &sizes) : 0;
    char text[2 + TOCSIN_NDIM_MAX * 22 + 1] = "(";
    size_t used = 1;
    for (uint32_t d = 0; sizes != NULL && d < ndim && d < TOCSIN_NDIM_MAX; ++d)
        used += (size_t)snprintf(text + used, sizeof text - used, d == 0 ? "%lld" : ", %lld",
                                 (long long)sizes[d]);
    snprintf(text + used, sizeof text - used, ")");
    tocsin_literal literal = {.kind = TOCSIN_VALUE_STRING, .text = text};
    tocsin_scalar scalar =
        tocsin_observer_need(observer, tocsin_scalar_of(observer->vocabulary, &literal));
    if (!tocsin_map_put(&process->shapes, id, scalar))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
    return scalar;
}

/* NONE, BOOL, small INT and STRING as they are; 0 for what has no value of its own. */
static tocsin_scalar exact_scalar(tocsin_observer *observer, tocsin_process *process,
                                  const tocsin_value *value)
{
    tocsin_literal literal = {.kind = value->kind};
    switch (value->kind) {
    case TOCSIN_VALUE_BOOL:
        return observer->truth[value->as.integer != 0];
    case TOCSIN_VALUE_NONE:
        return tocsin_observer_need(observer, tocsin_scalar_of(observer->vocabulary, &literal));
    case TOCSIN_VALUE_INT:
        if (value->as.integer < -SMALL_INT_MAX || value->as.integer > SMALL_INT_MAX)
            return 0;
        return tocsin_scalar_of_int(observer, value->as.integer);
    case TOCSIN_VALUE_STRING:
        return tocsin_scalar_of_string(observer, process, value->as.text);
    default:
        return 0;
    }
}

tocsin_scalar tocsin_scalar_of_value(tocsin_observer *observer, tocsin_process *process,
                                     const tocsin_value *value)
{
    tocsin_scalar scalar = exact_scalar(observer, process, value);
    if (scalar != 0)
        return scalar;
    switch (value->kind) {
    case TOCSIN_VALUE_INT:
    case TOCSIN_VALUE_BIG:
        return observer->opaque_int;
    case TOCSIN_VALUE_FLOAT:
        return observer->opaque_float;
    default:
        return value->type != 0 ? tocsin_scalar_of_string(observer, process, value->type) : 0;
    }
}

/* ---- names --------------------------------------------------------------------------------- */

static tocsin_symbol name_with(tocsin_observer *observer, const char *base, const char *suffix)
{
    char text[BASE_BYTES_MAX + 32];
    snprintf(text, sizeof text, "%.*s%s", BASE_BYTES_MAX, base, suffix);
    return tocsin_observer_need(observer, tocsin_symbol_of(observer->vocabulary, text));
}

size_t tocsin_field_names_of(tocsin_observer *observer, const char *base)
{
    tocsin_symbol whole = name_with(observer, base, "");
    uint64_t *known = tocsin_map_find(&observer->names_of, whole);
    if (known != NULL)
        return (size_t)*known - 1;
    tocsin_field_names names = {.whole = whole,
                                .dtype = name_with(observer, base, ".dtype"),
                                .ndim = name_with(observer, base, ".ndim"),
                                .requires_grad = name_with(observer, base, ".requires_grad"),
                                .is_parameter = name_with(observer, base, ".is_parameter"),
                                .type = name_with(observer, base, ".type"),
                                .training = name_with(observer, base, ".training"),
                                .length = name_with(observer, base, ".length"),
                                .shape = name_with(observer, base, ".shape"),
                                .batch = name_with(observer, base, ".shape[0]")};
    if (observer->status == TOCSIN_OK &&
        (!TOCSIN_VEC_PUSH(&observer->names, names) ||
         !tocsin_map_put(&observer->names_of, whole, observer->names.count)))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
    return observer->status == TOCSIN_OK ? observer->names.count - 1 : SIZE_MAX;
}

/* Names for an argument as the recorder called it: "p" -> "arg.p"; "self.lr" stays. The first
 * element of a sequence is "arg.tensors[0]". */
static size_t argument_names(tocsin_observer *observer, tocsin_process *process, tocsin_id name,
                             bool element)
{
    uint64_t key = (uint64_t)name << 1 | element;
    uint64_t *known = tocsin_map_find(&process->names, key);
    if (known != NULL)
        return (size_t)*known - 1;
    const char *text = process->dictionary.string(process->dictionary.producer, name);
    bool bound = strncmp(text, "self", 4) == 0 && (text[4] == '.' || text[4] == 0);
    char base[BASE_BYTES_MAX];
    snprintf(base, sizeof base, "%s%s%s", bound ? "" : "arg.", text, element ? "[0]" : "");
    size_t index = tocsin_field_names_of(observer, base);
    if (index != SIZE_MAX && !tocsin_map_put(&process->names, key, index + 1))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
    return observer->status == TOCSIN_OK ? index : SIZE_MAX;
}

/* ---- calls --------------------------------------------------------------------------------- */

static uint64_t variety_key(const tocsin_frame *frame, tocsin_symbol field)
{
    return (uint64_t)frame->callables[0] << 32 | field;
}

static void add_argument_fact(tocsin_observer *observer, tocsin_frame *frame, tocsin_symbol field,
                              tocsin_scalar value)
{
    tocsin_fact_key key = {
        .predicate = TOCSIN_PREDICATE_ARGUMENT_IS, .name = field, .value = value};
    if (value == 0)
        return;
    if (!observer->filtered && tocsin_fact_find(observer->vocabulary, &key) == 0) {
        uint64_t *variety = tocsin_map_at(&observer->variety, variety_key(frame, field));
        if (variety == NULL)
            tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        if (variety == NULL || ++*variety > FACT_VARIETY_MAX)
            return;
    }
    tocsin_fact fact = tocsin_observer_fact(observer, &key);
    if (fact != 0 && !TOCSIN_VEC_PUSH(&frame->arguments, fact))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

/* Has the argument had so many values that no further one becomes a fact? */
static bool is_varied(const tocsin_observer *observer, const tocsin_frame *frame,
                      tocsin_symbol field)
{
    const uint64_t *variety = tocsin_map_find(&observer->variety, variety_key(frame, field));
    return variety != NULL && *variety >= FACT_VARIETY_MAX;
}

typedef struct call_builder {
    tocsin_observer *observer;
    tocsin_process *process;
    tocsin_frame *frame;
    bool facts; /* facts about arguments are wanted */
} call_builder;

static void add(call_builder *builder, tocsin_symbol name, tocsin_scalar value)
{
    tocsin_observer *observer = builder->observer;
    if (name == 0 || value == 0)
        return;
    if (tocsin_observer_wants_field(observer, name) &&
        !TOCSIN_VEC_PUSH(&builder->frame->fields, (tocsin_field){name, value, value}))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
    if (builder->facts && value != observer->opaque_int && value != observer->opaque_float)
        add_argument_fact(observer, builder->frame, name, value);
}

static void add_tensor(call_builder *builder, size_t index, const tocsin_value *value)
{
    tocsin_observer *observer = builder->observer;
    tocsin_frame *frame = builder->frame;
    const tocsin_field_names *names = &observer->names.items[index];
    add(builder, names->dtype, observer->dtypes[value->dtype % TOCSIN_DTYPES_MAX]);
    add(builder, names->ndim, tocsin_scalar_of_int(observer, value->ndim));
    add(builder, names->requires_grad,
        observer->truth[(value->flags & TOCSIN_VALUE_REQUIRES_GRAD) != 0]);
    add(builder, names->is_parameter,
        observer->truth[(value->flags & TOCSIN_VALUE_IS_PARAMETER) != 0]);
    if (frame->tensor_count < TOCSIN_TENSORS_MAX)
        frame->tensors[frame->tensor_count++] = (tocsin_tensor_argument){.names = (uint32_t)index,
                                                                         .dtype = value->dtype,
                                                                         .ndim = value->ndim,
                                                                         .flags = value->flags,
                                                                         .shape = value->as.shape,
                                                                         .type = value->type};
}

/* Remember the exact value of a number that its field only names by type. */
static void add_number(call_builder *builder, tocsin_symbol name, const tocsin_literal *literal)
{
    if (tocsin_observer_wants_field(builder->observer, name) &&
        !TOCSIN_VEC_PUSH(&builder->frame->numbers,
                         (tocsin_number){.name = name, .literal = *literal}))
        tocsin_observer_fail(builder->observer, TOCSIN_E_MEMORY, "out of memory");
}

/* A condition that was learned says of a number only that it is there; one that was written by hand
 * may ask for its value, which is in the vocabulary then. */
static void add_float_field(call_builder *builder, tocsin_symbol name,
                            const tocsin_literal *literal)
{
    tocsin_observer *observer = builder->observer;
    if (name == 0 || !tocsin_observer_wants_field(observer, name))
        return;
    tocsin_scalar value =
        observer->filters_fields ? tocsin_scalar_find(observer->vocabulary, literal) : 0;
    if (value == 0)
        value = observer->opaque_float;
    if (!TOCSIN_VEC_PUSH(&builder->frame->fields, (tocsin_field){name, value, value}))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
}

static void add_float(call_builder *builder, const tocsin_field_names *names, double real)
{
    tocsin_observer *observer = builder->observer;
    tocsin_literal literal = {.kind = TOCSIN_VALUE_FLOAT, .real = real};
    add_float_field(builder, names->whole, &literal);
    add_number(builder, names->whole, &literal);
    const char *name = tocsin_symbol_text(observer->vocabulary, names->whole);
    /* Hyper-parameters of an optimizer (self.lr) change from run to run and within one. */
    if (!builder->facts || strncmp(name, "self.", 5) == 0)
        return;
    /* Losses and the like: a value that would not become a fact does not enter the vocabulary. */
    tocsin_scalar value = tocsin_scalar_find(observer->vocabulary, &literal);
    if (value == 0 && !observer->filtered && !is_varied(observer, builder->frame, names->whole))
        value = tocsin_observer_need(observer, tocsin_scalar_of(observer->vocabulary, &literal));
    add_argument_fact(observer, builder->frame, names->whole, value);
}

static void add_length(call_builder *builder, tocsin_symbol name, uint32_t length)
{
    tocsin_number made = {.name = name, .literal = {.kind = TOCSIN_VALUE_INT, .integer = length}};
    if (!TOCSIN_VEC_PUSH(&builder->frame->lengths, made))
        tocsin_observer_fail(builder->observer, TOCSIN_E_MEMORY, "out of memory");
}

static tocsin_scalar size_scalar(tocsin_observer *observer, uint32_t size)
{
    return size <= SMALL_INT_MAX ? tocsin_scalar_of_int(observer, size) : observer->opaque_int;
}

static void add_value(call_builder *builder, size_t index, const tocsin_value *value)
{
    tocsin_observer *observer = builder->observer;
    const tocsin_field_names *names = &observer->names.items[index];
    switch (value->kind) {
    case TOCSIN_VALUE_TENSOR:
        add_tensor(builder, index, value);
        break;
    case TOCSIN_VALUE_FLOAT:
        add_float(builder, names, value->as.real);
        break;
    case TOCSIN_VALUE_MODULE:
        add(builder, names->training, observer->truth[(value->flags & TOCSIN_VALUE_TRAINING) != 0]);
        /* fall through */
    case TOCSIN_VALUE_OBJECT:
        if (value->type != 0)
            add(builder, names->type,
                tocsin_scalar_of_string(observer, builder->process, value->type));
        break;
    case TOCSIN_VALUE_SEQUENCE:
        if (observer->wide || observer->filters_fields) /* else its first element speaks for it */
            add(builder, names->length, size_scalar(observer, value->count));
        if (builder->frame->role == TOCSIN_ROLE_USER)
            add_length(builder, names->length, value->count);
        break;
    case TOCSIN_VALUE_INT: {
        tocsin_literal literal = {.kind = TOCSIN_VALUE_INT, .integer = value->as.integer};
        add_number(builder, names->whole, &literal);
    }
        /* fall through */
    default:
        if (!tocsin_field_is_identity(tocsin_symbol_text(observer->vocabulary, names->whole)))
            add(builder, names->whole, tocsin_scalar_of_value(observer, builder->process, value));
    }
}

static void add_meta(call_builder *builder)
{
    tocsin_observer *observer = builder->observer;
    const tocsin_process *process = builder->process;
    builder->facts = false;
    for (size_t i = 0; i < process->metas.count; ++i)
        if (!process->metas.items[i].identity)
            add(builder, process->metas.items[i].name, process->metas.items[i].value);
    if (observer->filters_fields && tocsin_observer_wants_field(observer, observer->meta_step))
        add(builder, observer->meta_step, tocsin_scalar_of_int(observer, process->step));
    if (process->micro_step >= 0)
        add(builder, observer->meta_first_micro, observer->truth[process->micro_step == 0]);
}

static bool named(const tocsin_process *process, const tocsin_value *value, const char *name)
{
    return strcmp(process->dictionary.string(process->dictionary.producer, value->name), name) == 0;
}

/* What an optimizer says of itself, if this value is it. */
static void read_optimizer(const tocsin_process *process, tocsin_frame *frame,
                           const tocsin_value *value)
{
    bool whole = value->kind == TOCSIN_VALUE_INT;
    if (named(process, value, "self.lr") && (whole || value->kind == TOCSIN_VALUE_FLOAT))
        frame->lr = whole ? (double)value->as.integer : value->as.real;
    else if (whole && named(process, value, "self.slot") && value->as.integer >= 0 &&
             value->as.integer < TOCSIN_SLOTS_MAX)
        frame->slot = (int32_t)value->as.integer;
}

void tocsin_fields_of_call(tocsin_observer *observer, tocsin_process *process, tocsin_frame *frame,
                           const tocsin_event *event)
{
    const tocsin_callable *function = &observer->callables.items[frame->callables[0]];
    call_builder builder = {.observer = observer,
                            .process = process,
                            .frame = frame,
                            .facts = function->populations[TOCSIN_POPULATION_CALL_ARGUMENTS] != 0};
    tocsin_id sequence = 0;
    bool first = false;
    for (uint32_t i = 0; i < event->value_count && observer->status == TOCSIN_OK; ++i) {
        const tocsin_value *value = &event->values[i];
        bool element = (value->flags & TOCSIN_VALUE_IN_SEQUENCE) != 0;
        if (element && !first)
            continue;
        size_t index = argument_names(observer, process, element ? sequence : value->name, element);
        if (index == SIZE_MAX)
            return;
        add_value(&builder, index, value);
        first = value->kind == TOCSIN_VALUE_SEQUENCE && !element;
        if (first)
            sequence = value->name;
        if (frame->role == TOCSIN_ROLE_OPTIMIZER_STEP)
            read_optimizer(process, frame, value);
    }
    add_meta(&builder);
    frame->fields.count = tocsin_fields_sort(frame->fields.items, frame->fields.count);
}

/* ---- variables ----------------------------------------------------------------------------- */

typedef enum context { CONTEXT_UNKNOWN, CONTEXT_YES, CONTEXT_NO } context;

static context context_of(const char *name)
{
    return strncmp(name, "meta.", 5) == 0 || strncmp(name, "self.", 5) == 0 ? CONTEXT_YES
                                                                            : CONTEXT_NO;
}

/* Does the field of a call say something of the variables in it, too? */
static bool is_context(tocsin_observer *observer, tocsin_symbol name)
{
    if (name < observer->contexts.count && observer->contexts.items[name] != CONTEXT_UNKNOWN)
        return observer->contexts.items[name] == CONTEXT_YES;
    context is = context_of(tocsin_symbol_text(observer->vocabulary, name));
    while (observer->contexts.count <= name)
        if (!TOCSIN_VEC_PUSH(&observer->contexts, CONTEXT_UNKNOWN)) {
            tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
            return false;
        }
    observer->contexts.items[name] = (uint8_t)is;
    return is == CONTEXT_YES;
}

void tocsin_fields_of_sample(tocsin_observer *observer, const tocsin_frame *frame,
                             const tocsin_sample *sample, tocsin_sample_fields which)
{
    const tocsin_variable *variable = sample->variable;
    const struct {
        tocsin_symbol name;
        uint32_t flag;
    } flags[] = {{observer->var_requires_grad, TOCSIN_STATE_REQUIRES_GRAD},
                 {observer->var_is_leaf, TOCSIN_STATE_IS_LEAF},
                 {observer->var_tensor_parallel, TOCSIN_STATE_TENSOR_PARALLEL},
                 {observer->var_tied, TOCSIN_STATE_TIED},
                 {observer->var_training, TOCSIN_STATE_MODULE_TRAINING},
                 {observer->var_in_this_optimizer, TOCSIN_STATE_IN_THIS_OPTIMIZER},
                 {observer->var_in_model, TOCSIN_STATE_IN_MODEL}};
    size_t flag_count = TOCSIN_COUNT_OF(flags) - (which == TOCSIN_FIELDS_WITHOUT_OWNERS ? 2 : 0);
    /* in the order of their symbols (name_fields), so that there is little to sort */
    tocsin_observer_add_field(observer, observer->var_type, variable->type, variable->type);
    if (which == TOCSIN_FIELDS_ALL && (sample->flags & TOCSIN_STATE_PRESENT) != 0) {
        tocsin_scalar dtype = observer->dtypes[sample->dtype % TOCSIN_DTYPES_MAX];
        tocsin_scalar ndim = tocsin_scalar_of_int(observer, sample->ndim);
        tocsin_observer_add_field(observer, observer->var_dtype, dtype, dtype);
        tocsin_observer_add_field(observer, observer->var_ndim, ndim, ndim);
    }
    for (size_t i = 0; i < flag_count; ++i) {
        tocsin_scalar truth = observer->truth[(sample->flags & flags[i].flag) != 0];
        tocsin_observer_add_field(observer, flags[i].name, truth, truth);
    }
    for (size_t i = 0; i < frame->fields.count; ++i) {
        tocsin_field field = frame->fields.items[i];
        if (is_context(observer, field.name))
            tocsin_observer_add_field(observer, field.name, field.a, field.b);
    }
}

void tocsin_observer_judge(tocsin_observer *observer, const tocsin_process *process,
                           const tocsin_frame *frame, tocsin_population population,
                           const tocsin_sample *sample, tocsin_predicate predicate, bool holds)
{
    tocsin_instance instance = {
        .population = population,
        .evidence = tocsin_observer_evidence(observer, process, frame,
                                             sample != NULL ? sample->variable->name : NULL)};
    tocsin_observer_begin(observer);
    if (sample != NULL)
        tocsin_fields_of_sample(observer, frame, sample, TOCSIN_FIELDS_ALL);
    else
        tocsin_observer_add_call_fields(observer, frame);
    if (holds)
        tocsin_observer_add_fact(observer, tocsin_observer_simple_fact(observer, predicate));
    tocsin_observer_emit(observer, &instance);
}
