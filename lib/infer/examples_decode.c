/* Bytes of example tables (examples_encode.c), added to the tables that are there.
 *
 * Everything is found again by content: a name's number becomes the vocabulary's id, a row the row
 * of the same fields, and counts add up. Invariant: the sum does not depend on the order of what is
 * added, and a limit that the sum exceeds is exceeded in any order. The bytes may be anything: each
 * number is checked against what was announced, each announcement against the bytes that are left.
 * Cost: as encoding. */
#include <assert.h>
#include <infer/infer.h>
#include <stdlib.h>

#define TEXT_BYTES_MAX 4096 /* of a name or a word; observers make shorter ones */

typedef TOCSIN_VEC(uint32_t) id_list;

struct decoder {
    const uint8_t *at, *end;
    const uint8_t *begin;
    const char *where;
    tocsin_examples *examples;
    id_list names, values, facts; /* number - 1 -> id */
    id_list rows, columns;        /* of the table at hand: -> row, fact of the sum */
    tocsin_error *error;
};

static tocsin_status bad(const struct decoder *decoder, const char *what)
{
    return tocsin_error_at(decoder->error, TOCSIN_E_FORMAT, decoder->where,
                           decoder->at - decoder->begin, "%s", what);
}

static tocsin_status get(struct decoder *decoder, uint64_t limit, uint64_t *number)
{
    size_t taken = tocsin_varint_get(decoder->at, (size_t)(decoder->end - decoder->at), number);
    if (taken == 0)
        return bad(decoder, "the examples end in the middle of a number");
    if (*number > limit)
        return bad(decoder, "a number in the examples is out of range");
    decoder->at += taken;
    return TOCSIN_OK;
}

/* How many things follow, each of one byte at least. */
static tocsin_status get_count(struct decoder *decoder, uint64_t *count)
{
    return get(decoder, (uint64_t)(decoder->end - decoder->at), count);
}

/* An id by its number; 0 stays 0. */
static tocsin_status get_id(struct decoder *decoder, const id_list *list, uint32_t *id)
{
    uint64_t number;
    TOCSIN_TRY(get(decoder, list->count, &number));
    *id = number == 0 ? 0 : list->items[number - 1];
    return TOCSIN_OK;
}

static tocsin_status get_text(struct decoder *decoder, char text[TEXT_BYTES_MAX + 1])
{
    uint64_t bytes;
    TOCSIN_TRY(get(decoder, TEXT_BYTES_MAX, &bytes));
    if (bytes > (uint64_t)(decoder->end - decoder->at))
        return bad(decoder, "the examples end in the middle of a text");
    if (bytes > 0 && memchr(decoder->at, 0, bytes) != NULL)
        return bad(decoder, "a text in the examples has a zero byte");
    memcpy(text, decoder->at, bytes);
    text[bytes] = 0;
    decoder->at += bytes;
    return TOCSIN_OK;
}

static tocsin_status push(struct decoder *decoder, id_list *list, uint32_t id)
{
    return id != 0 && TOCSIN_VEC_PUSH(list, id) ? TOCSIN_OK : tocsin_error_memory(decoder->error);
}

static tocsin_status get_name(struct decoder *decoder)
{
    char text[TEXT_BYTES_MAX + 1];
    TOCSIN_TRY(get_text(decoder, text));
    return push(decoder, &decoder->names, tocsin_symbol_of(decoder->examples->vocabulary, text));
}

static tocsin_status get_value(struct decoder *decoder)
{
    char text[TEXT_BYTES_MAX + 1];
    uint64_t kind, bits = 0;
    TOCSIN_TRY(get(decoder, UINT8_MAX, &kind));
    tocsin_literal literal = {.kind = (uint8_t)kind, .text = text};
    switch (kind) {
    case TOCSIN_VALUE_NONE:
        break;
    case TOCSIN_VALUE_BOOL:
    case TOCSIN_VALUE_INT:
        TOCSIN_TRY(get(decoder, UINT64_MAX, &bits));
        literal.integer = tocsin_zigzag_decode(bits);
        if (kind == TOCSIN_VALUE_BOOL && literal.integer != 0 && literal.integer != 1)
            return bad(decoder, "a truth value in the examples is neither true nor false");
        break;
    case TOCSIN_VALUE_FLOAT:
        TOCSIN_TRY(get(decoder, UINT64_MAX, &bits));
        memcpy(&literal.real, &bits, sizeof bits);
        break;
    case TOCSIN_VALUE_STRING:
        TOCSIN_TRY(get_text(decoder, text));
        break;
    default:
        return bad(decoder, "unknown kind of value in the examples");
    }
    return push(decoder, &decoder->values,
                tocsin_scalar_of(decoder->examples->vocabulary, &literal));
}

static tocsin_status get_fact(struct decoder *decoder)
{
    uint64_t predicate, role;
    tocsin_fact_key key = {.predicate = 0};
    TOCSIN_TRY(get(decoder, TOCSIN_PREDICATE_COUNT - 1, &predicate));
    TOCSIN_TRY(get(decoder, UINT8_MAX, &role));
    TOCSIN_TRY(get_id(decoder, &decoder->names, &key.name));
    TOCSIN_TRY(get_id(decoder, &decoder->names, &key.other));
    TOCSIN_TRY(get_id(decoder, &decoder->values, &key.value));
    if (predicate == 0)
        return bad(decoder, "a fact in the examples has no predicate");
    key.predicate = (uint8_t)predicate;
    key.role = (uint8_t)role;
    return push(decoder, &decoder->facts, tocsin_fact_of(decoder->examples->vocabulary, &key));
}

static tocsin_status get_list(struct decoder *decoder, tocsin_status (*item)(struct decoder *))
{
    uint64_t count;
    TOCSIN_TRY(get_count(decoder, &count));
    for (uint64_t i = 0; i < count; ++i)
        TOCSIN_TRY(item(decoder));
    return TOCSIN_OK;
}

static int compare_names(const void *a, const void *b)
{
    const tocsin_field *x = a, *y = b;
    return (x->name > y->name) - (x->name < y->name);
}

/* The fields as the sum's row key, ascending by its ids. */
static tocsin_status get_fields(struct decoder *decoder, const tocsin_table *table, bool *contrast)
{
    tocsin_string *key = &decoder->examples->key;
    uint64_t count;
    *contrast = false;
    tocsin_string_clear(key);
    TOCSIN_TRY(get_count(decoder, &count));
    for (uint64_t i = 0; i < count; ++i) {
        tocsin_field field;
        TOCSIN_TRY(get_id(decoder, &decoder->names, &field.name));
        TOCSIN_TRY(get_id(decoder, &decoder->values, &field.a));
        field.b = field.a;
        if (table->pair)
            TOCSIN_TRY(get_id(decoder, &decoder->values, &field.b));
        if (field.name == 0 || (field.a == 0 && field.b == 0))
            return bad(decoder, "a field in the examples has no name or no value");
        *contrast |= tocsin_bias_is_contrast(decoder->examples->vocabulary, table->population,
                                             table->wide, &field);
        tocsin_string_append(key, &field, sizeof field);
    }
    TOCSIN_TRY(tocsin_string_check(key, decoder->error));
    tocsin_field *fields = (tocsin_field *)(void *)key->text;
    if (count > 1)
        qsort(fields, count, sizeof *fields, compare_names);
    for (uint64_t i = 1; i < count; ++i)
        if (fields[i - 1].name == fields[i].name)
            return bad(decoder, "a field stands twice in one row of the examples");
    return TOCSIN_OK;
}

static tocsin_status get_row(struct decoder *decoder, tocsin_table *table)
{
    uint64_t count;
    bool contrast;
    uint32_t row = 0;
    TOCSIN_TRY(get(decoder, UINT64_MAX, &count));
    TOCSIN_TRY(get_fields(decoder, table, &contrast));
    TOCSIN_TRY(tocsin_table_row(decoder->examples, table, contrast, &row, decoder->error));
    if (!TOCSIN_VEC_PUSH(&decoder->rows, row))
        return tocsin_error_memory(decoder->error);
    if (table->overflow)
        return TOCSIN_OK;
    tocsin_row *sum = &table->rows.items[row];
    if (count == 0 || sum->count + count < count)
        return bad(decoder, "a row of the examples counts nothing, or too much");
    sum->count += count;
    sum->runs |= UINT64_C(1) << decoder->examples->run;
    return TOCSIN_OK;
}

static tocsin_status get_cell(struct decoder *decoder, tocsin_table *table)
{
    uint64_t row, fact, count;
    TOCSIN_TRY(get(decoder, decoder->rows.count, &row));
    TOCSIN_TRY(get(decoder, decoder->columns.count, &fact));
    TOCSIN_TRY(get(decoder, UINT64_MAX, &count));
    if (row == decoder->rows.count || fact == decoder->columns.count || count == 0)
        return bad(decoder, "a count of the examples belongs to no row or fact");
    uint32_t column = decoder->columns.items[fact];
    if (table->overflow || table->drops.items[column] != TOCSIN_DROP_KEPT)
        return TOCSIN_OK;
    uint64_t *sum;
    TOCSIN_TRY(tocsin_table_cell(table, decoder->rows.items[row], column, &sum, decoder->error));
    if (sum == NULL) /* too many cells */
        return TOCSIN_OK;
    uint64_t limit = table->rows.items[decoder->rows.items[row]].count;
    if (count > limit || *sum > limit - count)
        return bad(decoder, "a fact was true more often than its row was seen");
    *sum += count;
    return TOCSIN_OK;
}

static tocsin_status get_population(struct decoder *decoder, tocsin_table **table)
{
    uint64_t members[4];
    tocsin_population_key key = {.kind = 0};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(members); ++i)
        TOCSIN_TRY(get(decoder, UINT8_MAX, &members[i]));
    TOCSIN_TRY(get_id(decoder, &decoder->names, &key.name));
    key.kind = (uint8_t)members[0];
    key.role = (uint8_t)members[1];
    key.variable = (uint8_t)members[2];
    key.moment = (uint8_t)members[3];
    if (!tocsin_population_key_exists(&key))
        return bad(decoder, "unknown population in the examples");
    tocsin_population population = tocsin_population_of(decoder->examples->vocabulary, &key);
    *table = population != 0 ? tocsin_examples_table(decoder->examples, population) : NULL;
    return *table != NULL ? TOCSIN_OK : tocsin_error_memory(decoder->error);
}

static tocsin_status get_column(struct decoder *decoder, tocsin_table *table)
{
    tocsin_fact fact;
    uint32_t column = 0;
    const tocsin_vocabulary *vocabulary = decoder->examples->vocabulary;
    TOCSIN_TRY(get_id(decoder, &decoder->facts, &fact));
    uint8_t kind = tocsin_population_get_key(vocabulary, table->population).kind;
    tocsin_fact_key key = {.predicate = 0};
    if (fact != 0)
        key = tocsin_fact_get_key(vocabulary, fact);
    if (fact == 0 || !tocsin_fact_key_exists(kind, &key))
        return bad(decoder, "a fact in the examples can not be stated of its population");
    TOCSIN_TRY(tocsin_table_fact(decoder->examples, table, fact, &column, decoder->error));
    return TOCSIN_VEC_PUSH(&decoder->columns, column) ? TOCSIN_OK
                                                      : tocsin_error_memory(decoder->error);
}

static tocsin_status get_table(struct decoder *decoder)
{
    tocsin_table *table;
    uint64_t overflow, count;
    decoder->rows.count = decoder->columns.count = 0;
    TOCSIN_TRY(get_population(decoder, &table));
    TOCSIN_TRY(get(decoder, 1, &overflow));
    TOCSIN_TRY(get_count(decoder, &count));
    for (uint64_t i = 0; i < count; ++i)
        TOCSIN_TRY(get_column(decoder, table));
    table->overflow |= overflow != 0;
    if (overflow != 0)
        return TOCSIN_OK;
    TOCSIN_TRY(get_count(decoder, &count));
    for (uint64_t i = 0; i < count; ++i)
        TOCSIN_TRY(get_row(decoder, table));
    TOCSIN_TRY(get_count(decoder, &count));
    for (uint64_t i = 0; i < count; ++i)
        TOCSIN_TRY(get_cell(decoder, table));
    return TOCSIN_OK;
}

tocsin_status tocsin_examples_decode(tocsin_examples *examples, const char *bytes, size_t count,
                                     const char *where, tocsin_error *error)
{
    assert(examples->run < TOCSIN_INFER_RUNS_MAX);
    const uint8_t *begin = (const uint8_t *)bytes;
    struct decoder decoder = {.at = begin,
                              .end = begin + count,
                              .begin = begin,
                              .where = where,
                              .examples = examples,
                              .error = error};
    tocsin_status status = get_list(&decoder, get_name);
    if (status == TOCSIN_OK)
        status = get_list(&decoder, get_value);
    if (status == TOCSIN_OK)
        status = get_list(&decoder, get_fact);
    if (status == TOCSIN_OK)
        status = get_list(&decoder, get_table);
    if (status == TOCSIN_OK && decoder.at != decoder.end)
        status = bad(&decoder, "bytes after the end of the examples");
    TOCSIN_VEC_FREE(&decoder.names);
    TOCSIN_VEC_FREE(&decoder.values);
    TOCSIN_VEC_FREE(&decoder.facts);
    TOCSIN_VEC_FREE(&decoder.rows);
    TOCSIN_VEC_FREE(&decoder.columns);
    return status;
}
