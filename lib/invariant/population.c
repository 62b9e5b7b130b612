/* Populations and facts by content: order, and what a fact is about. */
#include <assert.h>
#include <invariant/instance.h>
#include <invariant/statement.h>

#define COMPARE(a, b) (((a) > (b)) - ((a) < (b)))

static int compare_symbols(const tocsin_vocabulary *vocabulary, tocsin_symbol a, tocsin_symbol b)
{
    return strcmp(tocsin_symbol_text(vocabulary, a), tocsin_symbol_text(vocabulary, b));
}

tocsin_relation_kind tocsin_population_relation(const tocsin_vocabulary *vocabulary,
                                                tocsin_population population)
{
    uint8_t kind = tocsin_population_get_key(vocabulary, population).kind;
    return tocsin_population_get_trait(kind)->relation;
}

bool tocsin_population_is_pair(const tocsin_vocabulary *vocabulary, tocsin_population population)
{
    uint8_t kind = tocsin_population_get_key(vocabulary, population).kind;
    return tocsin_population_get_trait(kind)->pair;
}

int tocsin_population_compare(const tocsin_vocabulary *vocabulary, tocsin_population a,
                              tocsin_population b)
{
    if (a == b)
        return 0;
    tocsin_population_key x = tocsin_population_get_key(vocabulary, a);
    tocsin_population_key y = tocsin_population_get_key(vocabulary, b);
    int order = COMPARE(x.kind, y.kind);
    if (order == 0)
        order = COMPARE(x.role, y.role);
    if (order == 0)
        order = COMPARE(x.variable, y.variable);
    if (order == 0)
        order = COMPARE(x.moment, y.moment);
    if (order == 0)
        order = compare_symbols(vocabulary, x.name, y.name);
    assert(order != 0);
    return order;
}

int tocsin_fact_compare(const tocsin_vocabulary *vocabulary, tocsin_fact a, tocsin_fact b)
{
    if (a == b)
        return 0;
    tocsin_fact_key x = tocsin_fact_get_key(vocabulary, a);
    tocsin_fact_key y = tocsin_fact_get_key(vocabulary, b);
    int order = COMPARE(x.predicate, y.predicate);
    if (order == 0)
        order = COMPARE(x.role, y.role);
    if (order == 0)
        order = compare_symbols(vocabulary, x.name, y.name);
    if (order == 0)
        order = compare_symbols(vocabulary, x.other, y.other);
    if (order == 0)
        order = tocsin_scalar_compare(vocabulary, x.value, y.value);
    assert(order != 0);
    return order;
}

bool tocsin_fact_is_about(const tocsin_vocabulary *vocabulary, tocsin_fact fact,
                          tocsin_symbol field)
{
    tocsin_fact_key key = tocsin_fact_get_key(vocabulary, fact);
    switch (key.predicate) {
    case TOCSIN_PREDICATE_ARGUMENT_IS: {
        /* Properties of one argument restate each other: "arg.input.dtype" and "arg.input.ndim",
         * but not "arg.p" and "arg.padding". Compare up to the second dot. */
        const char *fact_field = tocsin_symbol_text(vocabulary, key.name);
        const char *other = tocsin_symbol_text(vocabulary, field);
        const char *dot = strchr(fact_field, '.');
        size_t stem = dot == NULL ? strlen(fact_field)
                                  : (size_t)(dot + 1 - fact_field) + strcspn(dot + 1, ".");
        return strncmp(fact_field, other, stem) == 0 && (other[stem] == 0 || other[stem] == '.');
    }
    case TOCSIN_PREDICATE_DISTINCT: {
        const char *text = tocsin_symbol_text(vocabulary, field);
        return strncmp(text, "arg.", 4) == 0;
    }
    case TOCSIN_PREDICATE_EQUAL:
        return field == key.name;
    default:
        return false;
    }
}

bool tocsin_field_is_identity(const char *field)
{
    static const char *const identities[] = {
        "meta.rank", "meta.local_rank", "meta.step", "meta.micro_step", "meta.pid",
        "meta.tid",  "meta.thread",     "meta.time", "meta.host",       "var.name",
        "var.shape", "var.id",          "self.slot", "self.name",       "self.param_count",
        "arg.self",  "call.id",         "call.time", "call.thread"};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(identities); ++i)
        if (strcmp(field, identities[i]) == 0)
            return true;
    return false;
}
