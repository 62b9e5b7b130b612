/* The vocabulary: four intern tables, so that names, values, populations and facts are small ids.
 *
 * A scalar is interned by a tag byte and its payload: 8 bytes of an integer or a double (-0 is
 * stored as 0, every NaN as one), or the text. Populations and facts are interned by the bytes of
 * their keys. Cost: one hash and one probe a look-up.
 */
#include <assert.h>
#include <invariant/instance.h>
#include <math.h>

#define VOCABULARY_LIMIT (1u << 22)
#define LITERAL_BYTES_MAX                                                                          \
    1024 /* the writer cuts texts at 256 bytes; hand-written files may not                         \
          */

struct tocsin_vocabulary {
    tocsin_intern symbols;
    tocsin_intern scalars;
    tocsin_intern populations;
    tocsin_intern facts;
};

tocsin_status tocsin_vocabulary_new(tocsin_vocabulary **vocabulary, tocsin_error *error)
{
    assert(vocabulary != NULL);
    *vocabulary = tocsin_zalloc(1, sizeof **vocabulary);
    if (*vocabulary == NULL)
        return tocsin_error_memory(error);
    (*vocabulary)->symbols.limit_count = VOCABULARY_LIMIT;
    (*vocabulary)->scalars.limit_count = VOCABULARY_LIMIT;
    (*vocabulary)->populations.limit_count = VOCABULARY_LIMIT;
    (*vocabulary)->facts.limit_count = VOCABULARY_LIMIT;
    return TOCSIN_OK;
}

static bool copy_table(tocsin_intern *to, const tocsin_intern *from)
{
    for (uint32_t id = 1; id <= tocsin_intern_count(from); ++id) {
        size_t count;
        const char *bytes = tocsin_intern_text(from, id, &count);
        if (tocsin_intern_put(to, bytes, count) != id)
            return false;
    }
    return true;
}

tocsin_status tocsin_vocabulary_copy(const tocsin_vocabulary *vocabulary, tocsin_vocabulary **copy,
                                     tocsin_error *error)
{
    TOCSIN_TRY(tocsin_vocabulary_new(copy, error));
    if (copy_table(&(*copy)->symbols, &vocabulary->symbols) &&
        copy_table(&(*copy)->scalars, &vocabulary->scalars) &&
        copy_table(&(*copy)->populations, &vocabulary->populations) &&
        copy_table(&(*copy)->facts, &vocabulary->facts))
        return TOCSIN_OK;
    tocsin_vocabulary_free(*copy);
    *copy = NULL;
    return tocsin_error_memory(error);
}

void tocsin_vocabulary_free(tocsin_vocabulary *vocabulary)
{
    if (vocabulary == NULL)
        return;
    tocsin_intern_free(&vocabulary->symbols);
    tocsin_intern_free(&vocabulary->scalars);
    tocsin_intern_free(&vocabulary->populations);
    tocsin_intern_free(&vocabulary->facts);
    tocsin_free(vocabulary);
}

tocsin_symbol tocsin_symbol_of(tocsin_vocabulary *vocabulary, const char *text)
{
    assert(vocabulary != NULL && text != NULL);
    return tocsin_intern_put(&vocabulary->symbols, text, strlen(text));
}

const char *tocsin_symbol_text(const tocsin_vocabulary *vocabulary, tocsin_symbol symbol)
{
    const char *text = tocsin_intern_text(&vocabulary->symbols, symbol, NULL);
    return text != NULL ? text : "";
}

/* The interned form of a literal; returns its bytes. */
static size_t encode_literal(const tocsin_literal *literal, char bytes[1 + LITERAL_BYTES_MAX])
{
    double real = literal->real;
    size_t length;
    bytes[0] = (char)literal->kind;
    switch (literal->kind) {
    case TOCSIN_VALUE_NONE:
        return 1;
    case TOCSIN_VALUE_BOOL:
    case TOCSIN_VALUE_INT:
        memcpy(bytes + 1, &literal->integer, sizeof literal->integer);
        return 1 + sizeof literal->integer;
    case TOCSIN_VALUE_FLOAT:
        if (real == 0 || isnan(real))
            real = real == 0 ? 0 : (double)NAN;
        memcpy(bytes + 1, &real, sizeof real);
        return 1 + sizeof real;
    default:
        assert(literal->kind == TOCSIN_VALUE_STRING && literal->text != NULL);
        length = strnlen(literal->text, LITERAL_BYTES_MAX);
        memcpy(bytes + 1, literal->text, length);
        return 1 + length;
    }
}

tocsin_scalar tocsin_scalar_of(tocsin_vocabulary *vocabulary, const tocsin_literal *literal)
{
    char bytes[1 + LITERAL_BYTES_MAX];
    return tocsin_intern_put(&vocabulary->scalars, bytes, encode_literal(literal, bytes));
}

tocsin_scalar tocsin_scalar_find(const tocsin_vocabulary *vocabulary, const tocsin_literal *literal)
{
    char bytes[1 + LITERAL_BYTES_MAX];
    return tocsin_intern_find(&vocabulary->scalars, bytes, encode_literal(literal, bytes));
}

tocsin_literal tocsin_scalar_literal(const tocsin_vocabulary *vocabulary, tocsin_scalar scalar)
{
    tocsin_literal literal = {.text = ""};
    size_t count;
    const char *bytes = tocsin_intern_text(&vocabulary->scalars, scalar, &count);
    assert(bytes != NULL && count > 0);
    literal.kind = (uint8_t)bytes[0];
    if (literal.kind == TOCSIN_VALUE_BOOL || literal.kind == TOCSIN_VALUE_INT)
        memcpy(&literal.integer, bytes + 1, sizeof literal.integer);
    else if (literal.kind == TOCSIN_VALUE_FLOAT)
        memcpy(&literal.real, bytes + 1, sizeof literal.real);
    else if (literal.kind == TOCSIN_VALUE_STRING)
        literal.text = bytes + 1;
    return literal;
}

int tocsin_scalar_compare(const tocsin_vocabulary *vocabulary, tocsin_scalar a, tocsin_scalar b)
{
    if (a == b || a == 0 || b == 0)
        return (a != 0) - (b != 0);
    tocsin_literal x = tocsin_scalar_literal(vocabulary, a);
    tocsin_literal y = tocsin_scalar_literal(vocabulary, b);
    if (x.kind != y.kind)
        return x.kind < y.kind ? -1 : 1;
    if (x.kind == TOCSIN_VALUE_FLOAT) /* NaN is one value here, and the last */
        return isnan(x.real) ? 1 : isnan(y.real) ? -1 : (x.real > y.real) - (x.real < y.real);
    if (x.kind == TOCSIN_VALUE_STRING)
        return strcmp(x.text, y.text);
    return (x.integer > y.integer) - (x.integer < y.integer);
}

tocsin_population tocsin_population_of(tocsin_vocabulary *vocabulary,
                                       const tocsin_population_key *key)
{
    assert(key->kind > 0 && key->kind < TOCSIN_POPULATION_KIND_COUNT);
    return tocsin_intern_put(&vocabulary->populations, key, sizeof *key);
}

tocsin_population_key tocsin_population_get_key(const tocsin_vocabulary *vocabulary,
                                                tocsin_population population)
{
    tocsin_population_key key;
    const char *bytes = tocsin_intern_text(&vocabulary->populations, population, NULL);
    assert(bytes != NULL);
    memcpy(&key, bytes, sizeof key);
    return key;
}

tocsin_fact tocsin_fact_of(tocsin_vocabulary *vocabulary, const tocsin_fact_key *key)
{
    assert(key->predicate > 0 && key->predicate < TOCSIN_PREDICATE_COUNT && key->zero == 0);
    return tocsin_intern_put(&vocabulary->facts, key, sizeof *key);
}

tocsin_fact tocsin_fact_find(const tocsin_vocabulary *vocabulary, const tocsin_fact_key *key)
{
    return tocsin_intern_find(&vocabulary->facts, key, sizeof *key);
}

tocsin_fact_key tocsin_fact_get_key(const tocsin_vocabulary *vocabulary, tocsin_fact fact)
{
    tocsin_fact_key key;
    const char *bytes = tocsin_intern_text(&vocabulary->facts, fact, NULL);
    assert(bytes != NULL);
    memcpy(&key, bytes, sizeof key);
    return key;
}
