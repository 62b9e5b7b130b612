/* Example tables as bytes: docs/formats/examples.md, "Body".
 *
 * Ids of a vocabulary mean nothing elsewhere, so names, values and facts are numbered anew in the
 * order in which the tables mention them, and their contents stand before the tables. Invariant:
 * the bytes depend on the order of the events of the run alone. Cost: O(rows * fields + cells). */
#include <assert.h>
#include <infer/infer.h>

/* Ids -> 1, 2, 3... by first mention, and what they stand for. */
struct numbering {
    tocsin_map numbers;
    tocsin_string contents;
};

struct encoder {
    const tocsin_vocabulary *vocabulary;
    struct numbering names, values, facts;
    tocsin_string tables;
    tocsin_status status;
};

static void put(tocsin_string *out, uint64_t number)
{
    uint8_t bytes[TOCSIN_VARINT_BYTES_MAX];
    tocsin_string_append(out, bytes, tocsin_varint_put(bytes, number));
}

static void put_text(tocsin_string *out, const char *text)
{
    size_t bytes = strlen(text);
    put(out, bytes);
    tocsin_string_append(out, text, bytes);
}

/* The number of `id`, which is not 0; *fresh when it is mentioned for the first time. */
static uint64_t number_of(struct encoder *encoder, struct numbering *numbering, uint32_t id,
                          bool *fresh)
{
    uint64_t *number = tocsin_map_at(&numbering->numbers, id);
    *fresh = false;
    if (number == NULL) {
        encoder->status = TOCSIN_E_MEMORY;
        return 0;
    }
    *fresh = *number == 0;
    if (*fresh)
        *number = numbering->numbers.count;
    return *number;
}

static uint64_t name_of(struct encoder *encoder, tocsin_symbol symbol)
{
    bool fresh;
    if (symbol == 0)
        return 0;
    uint64_t number = number_of(encoder, &encoder->names, symbol, &fresh);
    if (fresh)
        put_text(&encoder->names.contents, tocsin_symbol_text(encoder->vocabulary, symbol));
    return number;
}

static uint64_t value_of(struct encoder *encoder, tocsin_scalar scalar)
{
    bool fresh;
    if (scalar == 0)
        return 0;
    uint64_t number = number_of(encoder, &encoder->values, scalar, &fresh);
    if (!fresh)
        return number;
    tocsin_string *out = &encoder->values.contents;
    tocsin_literal literal = tocsin_scalar_literal(encoder->vocabulary, scalar);
    tocsin_string_append_char(out, (char)literal.kind);
    if (literal.kind == TOCSIN_VALUE_BOOL || literal.kind == TOCSIN_VALUE_INT) {
        put(out, tocsin_zigzag_encode(literal.integer));
    } else if (literal.kind == TOCSIN_VALUE_FLOAT) {
        uint64_t bits;
        memcpy(&bits, &literal.real, sizeof bits);
        put(out, bits);
    } else if (literal.kind == TOCSIN_VALUE_STRING) {
        put_text(out, literal.text);
    }
    return number;
}

static uint64_t fact_of(struct encoder *encoder, tocsin_fact fact)
{
    bool fresh;
    uint64_t number = number_of(encoder, &encoder->facts, fact, &fresh);
    if (!fresh)
        return number;
    tocsin_fact_key key = tocsin_fact_get_key(encoder->vocabulary, fact);
    tocsin_string *out = &encoder->facts.contents;
    put(out, key.predicate);
    put(out, key.role);
    put(out, name_of(encoder, key.name));
    put(out, name_of(encoder, key.other));
    put(out, value_of(encoder, key.value));
    return number;
}

static void put_row(struct encoder *encoder, const tocsin_table *table, const tocsin_row *row)
{
    tocsin_string *out = &encoder->tables;
    put(out, row->count);
    put(out, row->field_count);
    for (uint32_t i = 0; i < row->field_count; ++i) {
        const tocsin_field *field = &row->fields[i];
        put(out, name_of(encoder, field->name));
        put(out, value_of(encoder, field->a));
        if (table->pair)
            put(out, value_of(encoder, field->b));
        else
            assert(field->a == field->b);
    }
}

static void put_table(struct encoder *encoder, const tocsin_table *table)
{
    tocsin_string *out = &encoder->tables;
    tocsin_population_key key = tocsin_population_get_key(encoder->vocabulary, table->population);
    put(out, key.kind);
    put(out, key.role);
    put(out, key.variable);
    put(out, key.moment);
    put(out, name_of(encoder, key.name));
    put(out, table->overflow);
    put(out, table->facts.count);
    for (size_t i = 0; i < table->facts.count; ++i)
        put(out, fact_of(encoder, table->facts.items[i]));
    if (table->overflow) /* nothing is learned from it; what was seen is still reported */
        return;
    put(out, table->rows.count);
    for (size_t i = 0; i < table->rows.count; ++i)
        put_row(encoder, table, &table->rows.items[i]);
    put(out, table->cells.count);
    for (size_t i = 0; i < table->cells.count; ++i) {
        const tocsin_cell *cell = &table->cells.items[i];
        put(out, cell->row);
        put(out, cell->fact);
        put(out, cell->count);
    }
}

static void append(tocsin_string *out, const struct numbering *numbering)
{
    put(out, numbering->numbers.count);
    tocsin_string_append(out, tocsin_string_text(&numbering->contents), numbering->contents.bytes);
}

static tocsin_status finish(struct encoder *encoder, size_t table_count, tocsin_string *out,
                            tocsin_error *error)
{
    if (encoder->status != TOCSIN_OK)
        return tocsin_error_memory(error);
    TOCSIN_TRY(tocsin_string_check(&encoder->names.contents, error));
    TOCSIN_TRY(tocsin_string_check(&encoder->values.contents, error));
    TOCSIN_TRY(tocsin_string_check(&encoder->facts.contents, error));
    TOCSIN_TRY(tocsin_string_check(&encoder->tables, error));
    append(out, &encoder->names);
    append(out, &encoder->values);
    append(out, &encoder->facts);
    put(out, table_count);
    tocsin_string_append(out, tocsin_string_text(&encoder->tables), encoder->tables.bytes);
    return tocsin_string_check(out, error);
}

static void numbering_free(struct numbering *numbering)
{
    tocsin_map_free(&numbering->numbers);
    tocsin_string_free(&numbering->contents);
}

tocsin_status tocsin_examples_encode(const tocsin_examples *examples, tocsin_string *out,
                                     tocsin_error *error)
{
    struct encoder encoder = {.vocabulary = examples->vocabulary};
    for (size_t i = 0; i < examples->tables.count; ++i)
        put_table(&encoder, examples->tables.items[i]);
    tocsin_status status = finish(&encoder, examples->tables.count, out, error);
    numbering_free(&encoder.names);
    numbering_free(&encoder.values);
    numbering_free(&encoder.facts);
    tocsin_string_free(&encoder.tables);
    return status;
}
