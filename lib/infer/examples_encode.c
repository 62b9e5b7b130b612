/* Example tables as bytes: docs/formats/examples.md, "Body".
 *
 * Ids of a vocabulary mean nothing elsewhere, so tables, their facts and the fields of a row are
 * put in the order of their contents, and names, values and facts are numbered anew in the order in
 * which the tables mention them; what they stand for comes before the tables. Invariant: the bytes
 * depend on the order of the events of the run alone, and not on which tables were counted
 * together. Cost: O(rows * fields + cells), and sorting. */
#include <assert.h>
#include <infer/infer.h>
#include <stdlib.h>

/* Ids -> 1, 2, 3... by first mention, and what they stand for. */
struct numbering {
    tocsin_map numbers;
    tocsin_string contents;
};

struct encoder {
    const tocsin_vocabulary *vocabulary;
    struct numbering names, values, facts;
    tocsin_string tables;
    TOCSIN_VEC(tocsin_field) fields; /* of a row */
    tocsin_arena arena;              /* of a table */
    tocsin_status status;
};

static void sort(void *items, size_t count, size_t bytes,
                 int (*compare)(const void *a, const void *b, void *vocabulary),
                 const struct encoder *encoder)
{
    if (count > 1)
        qsort_r(items, count, bytes, compare, (void *)(uintptr_t)encoder->vocabulary);
}

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

static int compare_fields(const void *a, const void *b, void *vocabulary)
{
    const tocsin_field *x = a, *y = b;
    return strcmp(tocsin_symbol_text(vocabulary, x->name), tocsin_symbol_text(vocabulary, y->name));
}

static void put_row(struct encoder *encoder, const tocsin_table *table, const tocsin_row *row)
{
    tocsin_string *out = &encoder->tables;
    put(out, row->count);
    put(out, row->field_count);
    encoder->fields.count = 0;
    for (uint32_t i = 0; i < row->field_count; ++i)
        if (!TOCSIN_VEC_PUSH(&encoder->fields, row->fields[i])) {
            encoder->status = TOCSIN_E_MEMORY;
            return;
        }
    sort(encoder->fields.items, row->field_count, sizeof(tocsin_field), compare_fields, encoder);
    for (uint32_t i = 0; i < row->field_count; ++i) {
        const tocsin_field *field = &encoder->fields.items[i];
        put(out, name_of(encoder, field->name));
        put(out, value_of(encoder, field->a));
        if (table->pair)
            put(out, value_of(encoder, field->b));
        else
            assert(field->a == field->b);
    }
}

/* A fact of a table and its place there; a cell by the place of its fact in the order of contents.
 */
struct placed {
    tocsin_fact fact;
    uint32_t place;
};

static int compare_facts(const void *a, const void *b, void *vocabulary)
{
    return tocsin_fact_compare(vocabulary, ((const struct placed *)a)->fact,
                               ((const struct placed *)b)->fact);
}

static int compare_cells(const void *a, const void *b, void *vocabulary)
{
    const tocsin_cell *x = a, *y = b;
    (void)vocabulary;
    if (x->row != y->row)
        return x->row < y->row ? -1 : 1;
    return (x->fact > y->fact) - (x->fact < y->fact);
}

static void put_facts(struct encoder *encoder, const tocsin_table *table, struct placed *facts,
                      uint32_t *order)
{
    size_t count = table->facts.count;
    for (size_t i = 0; i < count; ++i)
        facts[i] = (struct placed){table->facts.items[i], (uint32_t)i};
    sort(facts, count, sizeof *facts, compare_facts, encoder);
    put(&encoder->tables, count);
    for (size_t i = 0; i < count; ++i) {
        order[facts[i].place] = (uint32_t)i;
        put(&encoder->tables, fact_of(encoder, facts[i].fact));
    }
}

static void put_cells(struct encoder *encoder, const tocsin_table *table, tocsin_cell *cells,
                      const uint32_t *order)
{
    tocsin_string *out = &encoder->tables;
    size_t count = table->cells.count;
    for (size_t i = 0; i < count; ++i) {
        cells[i] = table->cells.items[i];
        cells[i].fact = order[cells[i].fact];
    }
    sort(cells, count, sizeof *cells, compare_cells, encoder);
    put(out, count);
    for (size_t i = 0; i < count; ++i) {
        put(out, cells[i].row);
        put(out, cells[i].fact);
        put(out, cells[i].count);
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
    tocsin_arena_reset(&encoder->arena);
    struct placed *facts = TOCSIN_ARENA_ARRAY(&encoder->arena, struct placed, table->facts.count);
    uint32_t *order = TOCSIN_ARENA_ARRAY(&encoder->arena, uint32_t, table->facts.count);
    tocsin_cell *cells = TOCSIN_ARENA_ARRAY(&encoder->arena, tocsin_cell, table->cells.count);
    if (facts == NULL || order == NULL || cells == NULL) {
        encoder->status = TOCSIN_E_MEMORY;
        return;
    }
    put_facts(encoder, table, facts, order);
    if (table->overflow) /* nothing is learned from it; what was seen is still reported */
        return;
    put(out, table->rows.count);
    for (size_t i = 0; i < table->rows.count; ++i)
        put_row(encoder, table, &table->rows.items[i]);
    put_cells(encoder, table, cells, order);
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

static int compare_tables(const void *a, const void *b, void *vocabulary)
{
    return tocsin_population_compare(vocabulary, (*(tocsin_table *const *)a)->population,
                                     (*(tocsin_table *const *)b)->population);
}

static tocsin_status put_tables(struct encoder *encoder, const tocsin_examples *examples,
                                tocsin_error *error)
{
    size_t count = examples->tables.count;
    tocsin_table **tables = tocsin_alloc(count * sizeof *tables);
    if (tables == NULL)
        return tocsin_error_memory(error);
    for (size_t i = 0; i < count; ++i)
        tables[i] = examples->tables.items[i];
    sort(tables, count, sizeof(tocsin_table *), compare_tables, encoder);
    for (size_t i = 0; i < count; ++i)
        put_table(encoder, tables[i]);
    tocsin_free(tables);
    return TOCSIN_OK;
}

tocsin_status tocsin_examples_encode(const tocsin_examples *examples, tocsin_string *out,
                                     tocsin_error *error)
{
    struct encoder encoder = {.vocabulary = examples->vocabulary};
    tocsin_status status = put_tables(&encoder, examples, error);
    if (status == TOCSIN_OK)
        status = finish(&encoder, examples->tables.count, out, error);
    numbering_free(&encoder.names);
    numbering_free(&encoder.values);
    numbering_free(&encoder.facts);
    tocsin_string_free(&encoder.tables);
    TOCSIN_VEC_FREE(&encoder.fields);
    tocsin_arena_free(&encoder.arena);
    return status;
}
