/* Sizes of what a function of the user's returns: a number, the length of a list, the first two
 * sizes of a tensor.
 *
 * Of an argument whose name is a limit ("max_new_tokens") the size is at most or at least that; of
 * a list it may be the length. Facts of the function, and, as names of arguments carry over to
 * other programs and names of functions do not, of all functions with such an argument (USER_CALL).
 * Two more kinds of facts tell learning whether there is evidence: that a limit was reached, and
 * which sizes there were (at most 8 a function). Cost: O(numbers and lists of the call).
 */
#include <assert.h>
#include <invariant/returned_size.h>

#define SIZES_MAX   4u
#define VARIETY_MAX 8u
#define VARIETY_OF  UINT64_C(0x80000000) /* beside the callables that share the map */

typedef struct returned_size {
    tocsin_symbol name; /* "return.shape[0]" */
    int64_t size;
} returned_size;

typedef struct sizes {
    tocsin_observer *observer;
    uint32_t function;
    uint32_t count;
    returned_size items[SIZES_MAX];
} sizes;

/* Is the argument called a limit ("max_new_tokens", "limit_max")? */
static bool is_limit(const char *field, const char *word)
{
    size_t bytes = strlen(word);
    for (const char *at = strstr(field, word); at != NULL; at = strstr(at + 1, word))
        if ((at[-1] == '.' || at[-1] == '_') && (at[bytes] == 0 || at[bytes] == '_'))
            return true;
    return false;
}

static void add_size(sizes *made, const char *what, int64_t size)
{
    tocsin_symbol name =
        tocsin_observer_need(made->observer, tocsin_symbol_of(made->observer->vocabulary, what));
    assert(made->count < SIZES_MAX);
    made->items[made->count++] = (returned_size){.name = name, .size = size};
}

static sizes sizes_of(tocsin_observer *observer, const tocsin_process *process,
                      const tocsin_frame *frame, const tocsin_value *value)
{
    const tocsin_dictionary *dictionary = &process->dictionary;
    sizes made = {.observer = observer, .function = frame->callables[0]};
    const int64_t *of_tensor;
    uint32_t ndim = 0;
    if (value->kind == TOCSIN_VALUE_SEQUENCE)
        add_size(&made, "return.length", value->count);
    else if (value->kind == TOCSIN_VALUE_INT)
        add_size(&made, "return", value->as.integer);
    else if (value->kind == TOCSIN_VALUE_TENSOR && value->as.shape != 0)
        ndim = dictionary->shape(dictionary->producer, value->as.shape, &of_tensor);
    if (ndim > 0)
        add_size(&made, "return.shape[0]", of_tensor[0]);
    if (ndim > 1)
        add_size(&made, "return.shape[1]", of_tensor[1]);
    return made;
}

static void state(const sizes *of, uint8_t predicate, tocsin_symbol name, tocsin_symbol other)
{
    tocsin_fact_key key = {.predicate = predicate, .name = name, .other = other};
    tocsin_observer_add_fact(of->observer, tocsin_observer_fact(of->observer, &key));
}

static void against_limit(const sizes *of, const tocsin_number *limit)
{
    const char *field = tocsin_symbol_text(of->observer->vocabulary, limit->name);
    bool most = is_limit(field, "max"), least = is_limit(field, "min");
    for (uint32_t i = 0; i < of->count; ++i) {
        const returned_size *returned = &of->items[i];
        if (most && returned->size <= limit->literal.integer)
            state(of, TOCSIN_PREDICATE_RETURN_AT_MOST, returned->name, limit->name);
        if (least && returned->size >= limit->literal.integer)
            state(of, TOCSIN_PREDICATE_RETURN_AT_LEAST, returned->name, limit->name);
        if ((most || least) && returned->size == limit->literal.integer)
            state(of, TOCSIN_PREDICATE_RETURN_MATCHES, returned->name, limit->name);
    }
}

/* Remember which sizes there were, as facts that are not claimed. */
static void note_size(const sizes *of, const returned_size *returned)
{
    tocsin_observer *observer = of->observer;
    tocsin_literal literal = {.kind = TOCSIN_VALUE_INT, .integer = returned->size};
    tocsin_fact_key key = {.predicate = TOCSIN_PREDICATE_RETURN_IS, .name = returned->name};
    key.value = tocsin_scalar_find(observer->vocabulary, &literal);
    if (!observer->filtered &&
        (key.value == 0 || tocsin_fact_find(observer->vocabulary, &key) == 0)) {
        uint64_t *values =
            tocsin_map_at(&observer->variety, (VARIETY_OF | of->function) << 32 | returned->name);
        if (values == NULL)
            tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        if (values == NULL || ++*values > VARIETY_MAX)
            return;
        key.value = tocsin_scalar_of_int(observer, returned->size);
    }
    if (key.value != 0)
        tocsin_observer_add_fact(observer, tocsin_observer_fact(observer, &key));
}

static void against_length(const sizes *of, const tocsin_number *length)
{
    for (uint32_t i = 0; i < of->count; ++i) {
        if (of->items[i].size == length->literal.integer)
            state(of, TOCSIN_PREDICATE_RETURN_MATCHES, of->items[i].name, length->name);
        note_size(of, &of->items[i]);
    }
}

static bool is_bound(const tocsin_observer *observer, const tocsin_number *number)
{
    const char *field = tocsin_symbol_text(observer->vocabulary, number->name);
    return number->literal.kind == TOCSIN_VALUE_INT && strncmp(field, "arg.", 4) == 0 &&
           (is_limit(field, "max") || is_limit(field, "min"));
}

void tocsin_returned_size_add(tocsin_observer *observer, tocsin_process *process,
                              const tocsin_frame *frame, const tocsin_value *returned)
{
    sizes of = sizes_of(observer, process, frame, returned);
    for (size_t i = 0; i < frame->numbers.count && of.count > 0; ++i)
        if (is_bound(observer, &frame->numbers.items[i]))
            against_limit(&of, &frame->numbers.items[i]);
    for (size_t i = 0; i < frame->lengths.count && of.count > 0; ++i)
        against_length(&of, &frame->lengths.items[i]);
}

/* Sizes of tensors of different rank, and of lists, mean different things. */
static void add_kind(tocsin_observer *observer, const tocsin_value *returned)
{
    tocsin_literal word = {.kind = TOCSIN_VALUE_STRING, .text = "list"};
    size_t names = tocsin_field_names_of(observer, "return");
    if (names == SIZE_MAX)
        return;
    if (returned->kind == TOCSIN_VALUE_TENSOR)
        word.text = "tensor";
    else if (returned->kind == TOCSIN_VALUE_INT)
        word.text = "int";
    tocsin_scalar kind =
        tocsin_observer_need(observer, tocsin_scalar_of(observer->vocabulary, &word));
    tocsin_observer_add_field(observer, observer->names.items[names].type, kind, kind);
    if (returned->kind != TOCSIN_VALUE_TENSOR)
        return;
    tocsin_scalar ndim = tocsin_scalar_of_int(observer, returned->ndim);
    tocsin_observer_add_field(observer, observer->names.items[names].ndim, ndim, ndim);
}

/* Start the instance of an argument; false: nobody asks. */
static bool begin(tocsin_observer *observer, const tocsin_frame *frame,
                  const tocsin_value *returned, tocsin_symbol argument,
                  tocsin_population *population)
{
    tocsin_population_key key = {.kind = TOCSIN_POPULATION_USER_CALL, .name = argument};
    const char *name = tocsin_symbol_text(observer->vocabulary, argument);
    if (strncmp(name, "arg.arg", 7) == 0 && name[7] >= '0' && name[7] <= '9')
        return false; /* its name is not known */
    *population = tocsin_observer_population(observer, &key);
    if (*population == 0 || observer->status != TOCSIN_OK)
        return false;
    tocsin_observer_begin(observer);
    tocsin_observer_add_call_fields(observer, frame);
    add_kind(observer, returned);
    return true;
}

void tocsin_returned_size_emit(tocsin_observer *observer, tocsin_process *process,
                               const tocsin_frame *frame, const tocsin_value *returned)
{
    sizes of = sizes_of(observer, process, frame, returned);
    tocsin_instance instance = {.evidence =
                                    tocsin_observer_evidence(observer, process, frame, NULL)};
    for (size_t i = 0; i < frame->numbers.count && of.count > 0; ++i) {
        const tocsin_number *number = &frame->numbers.items[i];
        if (!is_bound(observer, number) ||
            !begin(observer, frame, returned, number->name, &instance.population))
            continue;
        against_limit(&of, number);
        tocsin_observer_emit(observer, &instance);
    }
    for (size_t i = 0; i < frame->lengths.count && of.count > 0; ++i) {
        const tocsin_number *length = &frame->lengths.items[i];
        if (!begin(observer, frame, returned, length->name, &instance.population))
            continue;
        against_length(&of, length);
        tocsin_observer_emit(observer, &instance);
    }
}
