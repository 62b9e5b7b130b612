/* What a state says beyond its own members; of an imported one as fields of its variable.
 *
 * Runs of other tools carry attributes that tell shards from replicas (partition_dim, nbytes). They
 * are kept per variable, as its last state had them, and only those that somebody wants. Their
 * values are exact, because halves of pairs are compared by them; a field with very many values (a
 * counter) becomes "an int" or "a float" in the end, so that the vocabulary stays bounded.
 * Cost: two map look-ups a value, for imported states alone.
 */
#include <invariant/relation.h>
#include <stdio.h>

#define VALUES_MAX (1u << 14) /* of a field */
#define NAME_BYTES 300

void tocsin_variable_free(tocsin_variable *variable)
{
    if (variable != NULL)
        tocsin_free(variable->attributes);
    tocsin_free(variable);
}

static tocsin_symbol field_of(tocsin_observer *observer, tocsin_process *process, tocsin_id name)
{
    uint64_t *known = tocsin_map_find(&process->keys, name);
    if (known != NULL)
        return (tocsin_symbol)*known;
    char text[NAME_BYTES];
    snprintf(text, sizeof text, "var.%.290s",
             process->dictionary.string(process->dictionary.producer, name));
    tocsin_symbol symbol =
        tocsin_observer_need(observer, tocsin_symbol_of(observer->vocabulary, text));
    if (!tocsin_map_put(&process->keys, name, symbol))
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
    return symbol;
}

/* The number as it is, unless the field had too many already. */
static tocsin_scalar number_of(tocsin_observer *observer, tocsin_symbol field,
                               const tocsin_value *value)
{
    bool whole = value->kind == TOCSIN_VALUE_INT;
    tocsin_literal literal = {.kind = value->kind};
    if (whole)
        literal.integer = value->as.integer;
    else
        literal.real = value->as.real;
    tocsin_scalar known = tocsin_scalar_find(observer->vocabulary, &literal);
    if (known != 0)
        return known;
    uint64_t *variety = tocsin_map_at(&observer->variety, (uint64_t)UINT32_MAX << 32 | field);
    if (variety == NULL) {
        tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
        return 0;
    }
    if (++*variety > VALUES_MAX)
        return whole ? observer->opaque_int : observer->opaque_float;
    return tocsin_observer_need(observer, tocsin_scalar_of(observer->vocabulary, &literal));
}

static tocsin_scalar scalar_of(tocsin_observer *observer, tocsin_process *process,
                               tocsin_symbol field, const tocsin_value *value)
{
    if (value->kind == TOCSIN_VALUE_INT || value->kind == TOCSIN_VALUE_FLOAT)
        return number_of(observer, field, value);
    return tocsin_scalar_of_value(observer, process, value);
}

/* Whether data are a variable's first is asked for by TrainCheck's invariants; it is no condition
 * that carries over to other runs. */
static bool is_wanted(const tocsin_observer *observer, tocsin_symbol field)
{
    if (observer->filters_fields)
        return tocsin_observer_wants_field(observer, field);
    return strcmp(tocsin_symbol_text(observer->vocabulary, field), "var.initial") != 0;
}

void tocsin_state_take_attributes(tocsin_observer *observer, tocsin_process *process,
                                  tocsin_variable *variable, const tocsin_event *event)
{
    if ((event->state.flags & TOCSIN_STATE_HASHED) == 0)
        return;
    if (event->value_count > variable->attribute_count) {
        tocsin_field *more = tocsin_realloc(variable->attributes, event->value_count, sizeof *more);
        if (more == NULL) {
            tocsin_observer_fail(observer, TOCSIN_E_MEMORY, "out of memory");
            return;
        }
        variable->attributes = more;
    }
    variable->attribute_count = 0;
    for (uint32_t i = 0; i < event->value_count && observer->status == TOCSIN_OK; ++i) {
        tocsin_symbol field = field_of(observer, process, event->values[i].name);
        if (field == 0 || !is_wanted(observer, field))
            continue;
        tocsin_scalar value = scalar_of(observer, process, field, &event->values[i]);
        if (value != 0)
            variable->attributes[variable->attribute_count++] =
                (tocsin_field){.name = field, .a = value, .b = value};
    }
}

void tocsin_state_add_attributes(tocsin_observer *observer, const tocsin_variable *variable)
{
    for (uint32_t i = 0; i < variable->attribute_count; ++i)
        tocsin_observer_add_field(observer, variable->attributes[i].name, variable->attributes[i].a,
                                  variable->attributes[i].b);
}

const tocsin_value *tocsin_event_value(const tocsin_process *process, const tocsin_event *event,
                                       const char *name)
{
    const tocsin_dictionary *dictionary = &process->dictionary;
    for (uint32_t i = 0; i < event->value_count; ++i)
        if (strcmp(dictionary->string(dictionary->producer, event->values[i].name), name) == 0)
            return &event->values[i];
    return NULL;
}
