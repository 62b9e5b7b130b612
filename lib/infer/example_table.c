/* Instances, counted.
 *
 * One table a population. Equal field vectors are one row, and a cell counts the instances of a row
 * in which a fact was true: a fact that is true in fewer instances than the row has is contradicted
 * there. Invariant: a row's fields are those that clauses may speak of, so two rows differ in
 * something a precondition can express. Cost: one hash of the fields and one look-up per fact an
 * instance; memory by different circumstances, within limits, and not by the length of a run. */
#include <assert.h>
#include <infer/infer.h>

/* Most tables have a handful of rows, and there are thousands of tables: a page of memory each
 * would cost more time than all counting. */
enum { ROW_ARENA_BYTES = 1024 };

static void table_free(tocsin_table *table)
{
    if (table == NULL)
        return;
    for (size_t i = 0; i < table->rows.count; ++i)
        tocsin_free((void *)(uintptr_t)table->rows.items[i].fields);
    tocsin_intern_free(&table->vectors);
    TOCSIN_VEC_FREE(&table->rows);
    TOCSIN_VEC_FREE(&table->facts);
    TOCSIN_VEC_FREE(&table->drops);
    tocsin_map_free(&table->fact_index);
    TOCSIN_VEC_FREE(&table->cells);
    tocsin_map_free(&table->cell_index);
    tocsin_free(table);
}

void tocsin_examples_free(tocsin_examples *examples)
{
    if (examples == NULL)
        return;
    for (size_t i = 0; i < examples->tables.count; ++i)
        table_free(examples->tables.items[i]);
    TOCSIN_VEC_FREE(&examples->tables);
    tocsin_map_free(&examples->table_index);
    TOCSIN_VEC_FREE(&examples->name_traits);
    TOCSIN_VEC_FREE(&examples->value_traits);
    tocsin_string_free(&examples->key);
}

tocsin_table *tocsin_examples_table(tocsin_examples *examples, tocsin_population population)
{
    uint64_t *slot = tocsin_map_find(&examples->table_index, population);
    if (slot != NULL)
        return examples->tables.items[*slot - 1];
    tocsin_table *table = tocsin_zalloc(1, sizeof *table);
    if (table == NULL)
        return NULL;
    table->vectors.arena.chunk_bytes = ROW_ARENA_BYTES;
    table->population = population;
    table->wide = examples->wide;
    table->relation = tocsin_population_relation(examples->vocabulary, population);
    table->pair = tocsin_population_is_pair(examples->vocabulary, population);
    if (!TOCSIN_VEC_PUSH(&examples->tables, table)) {
        table_free(table);
        return NULL;
    }
    if (!tocsin_map_put(&examples->table_index, population, examples->tables.count)) {
        --examples->tables.count;
        table_free(table);
        return NULL;
    }
    return table;
}

/* Room for ids up to `id`. */
static bool reach(void *items, size_t *capacity, size_t *count, size_t id)
{
    size_t more = id + 1 - *count;
    if (!tocsin_vec_grow(items, capacity, *count, more, 1))
        return false;
    memset(*(uint8_t **)items + *count, 0, more);
    *count += more;
    return true;
}

#define REACH(vec, id)                                                                             \
    ((id) < (vec)->count || reach(&(vec)->items, &(vec)->capacity, &(vec)->count, (id)))

/* Find out what has not been asked yet of this field's name and value. False: out of memory. */
static bool learn_traits(tocsin_examples *examples, const tocsin_field *field)
{
    const tocsin_vocabulary *vocabulary = examples->vocabulary;
    if (!REACH(&examples->name_traits, field->name) || !REACH(&examples->value_traits, field->a))
        return false;
    uint8_t *name = &examples->name_traits.items[field->name];
    uint8_t *value = &examples->value_traits.items[field->a];
    if (*name == 0) {
        const char *text = tocsin_symbol_text(vocabulary, field->name);
        *name = tocsin_bias_name_traits(text);
    }
    if (*value == 0)
        *value =
            field->a != 0 ? tocsin_bias_value_traits(vocabulary, field->a) : TOCSIN_TRAIT_KNOWN;
    return true;
}

/* The values that stand for an identity in a pair; only their equality is used. */
static tocsin_status find_halves(tocsin_examples *examples, tocsin_error *error)
{
    for (int same = 0; same < 2 && examples->halves[same] == 0; ++same) {
        tocsin_literal literal = {.kind = TOCSIN_VALUE_BOOL, .integer = same};
        examples->halves[same] = tocsin_scalar_of(examples->vocabulary, &literal);
        if (examples->halves[same] == 0)
            return tocsin_error_memory(error);
    }
    return TOCSIN_OK;
}

/* The fields that clauses may speak of, as bytes: the row's key. Of an identity in a pair only
 * remains whether both halves share it. */
static tocsin_status make_key(tocsin_examples *examples, const tocsin_table *table,
                              const tocsin_instance *instance, bool *contrast, tocsin_error *error)
{
    tocsin_string_clear(&examples->key);
    *contrast = false;
    for (uint32_t i = 0; i < instance->field_count; ++i) {
        tocsin_field field = instance->fields[i];
        assert(i == 0 || instance->fields[i - 1].name < field.name);
        bool known = field.name < examples->name_traits.count &&
                     examples->name_traits.items[field.name] != 0 &&
                     field.a < examples->value_traits.count &&
                     examples->value_traits.items[field.a] != 0;
        if (!known && !learn_traits(examples, &field))
            return tocsin_error_memory(error);
        uint8_t name = examples->name_traits.items[field.name];
        if (!tocsin_bias_allows_field(table->wide, table->relation, table->pair, name,
                                      examples->value_traits.items[field.a]))
            continue;
        if ((name & TOCSIN_TRAIT_CONTRAST) != 0)
            *contrast |= tocsin_bias_is_contrast(examples->vocabulary, table->population,
                                                 table->wide, &field);
        if (table->pair && (name & TOCSIN_TRAIT_IDENTITY) != 0 && field.a != 0 && field.b != 0) {
            TOCSIN_TRY(find_halves(examples, error));
            field.b = examples->halves[field.a == field.b];
            field.a = examples->halves[true];
        }
        tocsin_string_append(&examples->key, &field, sizeof field);
    }
    return tocsin_string_check(&examples->key, error);
}

tocsin_status tocsin_table_row(const tocsin_examples *examples, tocsin_table *table, bool contrast,
                               uint32_t *index, tocsin_error *error)
{
    const tocsin_string *key = &examples->key;
    const char *bytes = tocsin_string_text(key);
    uint32_t id = tocsin_intern_find(&table->vectors, bytes, key->bytes);
    if (id == 0) {
        if (table->rows.count == TOCSIN_INFER_ROWS_MAX) {
            table->overflow = true;
            return TOCSIN_OK;
        }
        tocsin_row row = {.contrast = contrast,
                          .field_count = (uint32_t)(key->bytes / sizeof(tocsin_field))};
        tocsin_field *fields = tocsin_alloc(key->bytes);
        if (fields == NULL)
            return tocsin_error_memory(error);
        memcpy(fields, bytes, key->bytes);
        row.fields = fields;
        if (!TOCSIN_VEC_PUSH(&table->rows, row)) {
            tocsin_free(fields);
            return tocsin_error_memory(error);
        }
        id = tocsin_intern_put(&table->vectors, bytes, key->bytes);
        if (id == 0)
            return tocsin_error_memory(error);
    }
    assert(id <= table->rows.count);
    *index = id - 1;
    return TOCSIN_OK;
}

tocsin_status tocsin_table_fact(const tocsin_examples *examples, tocsin_table *table,
                                tocsin_fact fact, uint32_t *index, tocsin_error *error)
{
    uint64_t *slot = tocsin_map_find(&table->fact_index, fact);
    if (slot != NULL) {
        *index = (uint32_t)*slot - 1;
        return TOCSIN_OK;
    }
    tocsin_drop drop = table->wide
                           ? TOCSIN_DROP_KEPT
                           : tocsin_bias_of_fact(examples->vocabulary, table->population, fact);
    if (!TOCSIN_VEC_RESERVE(&table->facts, 1) || !TOCSIN_VEC_RESERVE(&table->drops, 1) ||
        !tocsin_map_put(&table->fact_index, fact, table->facts.count + 1))
        return tocsin_error_memory(error);
    table->facts.items[table->facts.count++] = fact;
    table->drops.items[table->drops.count++] = (uint8_t)drop;
    *index = (uint32_t)table->facts.count - 1;
    return TOCSIN_OK;
}

tocsin_status tocsin_table_cell(tocsin_table *table, uint32_t row, uint32_t fact, uint64_t **count,
                                tocsin_error *error)
{
    uint64_t *slot = tocsin_map_at(&table->cell_index, (uint64_t)row << 32 | fact);
    *count = NULL;
    if (slot == NULL)
        return tocsin_error_memory(error);
    if (*slot == 0) {
        if (table->cells.count == TOCSIN_INFER_CELLS_MAX) {
            table->overflow = true;
            return TOCSIN_OK;
        }
        if (!TOCSIN_VEC_PUSH(&table->cells, (tocsin_cell){.row = row, .fact = fact}))
            return tocsin_error_memory(error);
        *slot = table->cells.count;
    }
    *count = &table->cells.items[*slot - 1].count;
    return TOCSIN_OK;
}

tocsin_status tocsin_examples_add(void *context, const tocsin_instance *instance,
                                  tocsin_error *error)
{
    tocsin_examples *examples = context;
    assert(examples->run < TOCSIN_INFER_RUNS_MAX);
    tocsin_table *table = tocsin_examples_table(examples, instance->population);
    if (table == NULL)
        return tocsin_error_memory(error);
    bool contrast;
    TOCSIN_TRY(make_key(examples, table, instance, &contrast, error));
    uint32_t row = UINT32_MAX;
    TOCSIN_TRY(tocsin_table_row(examples, table, contrast, &row, error));
    if (table->overflow)
        return TOCSIN_OK;
    ++table->rows.items[row].count;
    table->rows.items[row].runs |= UINT64_C(1) << examples->run;
    for (uint32_t i = 0; i < instance->fact_count; ++i) {
        uint32_t fact = 0;
        uint64_t *count = NULL;
        TOCSIN_TRY(tocsin_table_fact(examples, table, instance->facts[i], &fact, error));
        if (table->drops.items[fact] == TOCSIN_DROP_KEPT)
            TOCSIN_TRY(tocsin_table_cell(table, row, fact, &count, error));
        if (count != NULL)
            ++*count;
    }
    return TOCSIN_OK;
}
