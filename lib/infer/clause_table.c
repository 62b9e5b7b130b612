/* Clauses as sets of rows.
 *
 * Whatever deduction asks about a clause (is it true of all positives, of no negative, of what is
 * left) is a few word operations on its set. Clauses true of every row are left out: they
 * distinguish nothing. Invariant: ascending order of preference, then of content, so that results
 * do not depend on ids. Cost: rows * fields to build; a bit per clause and row. */
#include <assert.h>
#include <infer/infer.h>
#include <stdlib.h>

enum {
    VALUES_MAX = 64,       /* constants of one field, in a table */
    VALUES_OF_FACT_MAX = 4 /* constants of one field, among the positives of a fact */
};

typedef TOCSIN_VEC(tocsin_clause) clause_list;

static int compare_clauses(const void *a, const void *b, void *context)
{
    const tocsin_vocabulary *vocabulary = context;
    const tocsin_clause *x = a, *y = b;
    int order = tocsin_bias_preference(vocabulary, x) - tocsin_bias_preference(vocabulary, y);
    if (order == 0)
        order = strcmp(tocsin_symbol_text(vocabulary, x->field),
                       tocsin_symbol_text(vocabulary, y->field));
    if (order == 0)
        order = (x->kind > y->kind) - (x->kind < y->kind);
    if (order == 0)
        order = tocsin_scalar_compare(vocabulary, x->value, y->value);
    return order;
}

/* The clauses that `field` makes true. At most three. */
static size_t clauses_of_field(const tocsin_vocabulary *vocabulary, const tocsin_table *table,
                               const tocsin_field *field, tocsin_clause clauses[3])
{
    size_t count = 0;
    if (field->a == 0 || field->b == 0)
        return 0;
    clauses[count++] = (tocsin_clause){.kind = TOCSIN_CLAUSE_EXIST, .field = field->name};
    if (field->a != field->b) {
        assert(table->pair);
        clauses[count++] = (tocsin_clause){.kind = TOCSIN_CLAUSE_UNEQUAL, .field = field->name};
        return count;
    }
    if (table->pair)
        clauses[count++] = (tocsin_clause){.kind = TOCSIN_CLAUSE_CONSISTENT, .field = field->name};
    if (tocsin_bias_allows_constant(vocabulary, table->wide, field->name, field->a))
        clauses[count++] = (tocsin_clause){
            .kind = TOCSIN_CLAUSE_CONSTANT, .field = field->name, .value = field->a};
    assert(count <= 3);
    return count;
}

/* Every clause once, fields with too many constants without these. */
static tocsin_status collect(const tocsin_vocabulary *vocabulary, const tocsin_table *table,
                             clause_list *list, tocsin_error *error)
{
    tocsin_intern seen = {0};
    tocsin_map constants = {0}; /* field -> how many */
    tocsin_status status = TOCSIN_OK;
    for (size_t r = 0; r < table->rows.count && status == TOCSIN_OK; ++r) {
        const tocsin_row *row = &table->rows.items[r];
        for (uint32_t f = 0; f < row->field_count && status == TOCSIN_OK; ++f) {
            tocsin_clause clauses[3];
            size_t count = clauses_of_field(vocabulary, table, &row->fields[f], clauses);
            for (size_t i = 0; i < count && status == TOCSIN_OK; ++i) {
                if (tocsin_intern_find(&seen, &clauses[i], sizeof clauses[i]) != 0)
                    continue;
                if (clauses[i].kind == TOCSIN_CLAUSE_CONSTANT) {
                    uint64_t *values = tocsin_map_at(&constants, clauses[i].field);
                    if (values == NULL)
                        status = tocsin_error_memory(error);
                    else if (++*values > VALUES_MAX)
                        continue;
                }
                if (status == TOCSIN_OK &&
                    (tocsin_intern_put(&seen, &clauses[i], sizeof clauses[i]) == 0 ||
                     !TOCSIN_VEC_PUSH(list, clauses[i])))
                    status = tocsin_error_memory(error);
            }
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < list->count && status == TOCSIN_OK; ++i) {
        const uint64_t *values = tocsin_map_find(&constants, list->items[i].field);
        bool many = values != NULL && *values > VALUES_MAX;
        if (!many || list->items[i].kind != TOCSIN_CLAUSE_CONSTANT)
            list->items[kept++] = list->items[i];
    }
    list->count = kept;
    tocsin_intern_free(&seen);
    tocsin_map_free(&constants);
    return status;
}

/* Fill the sets; then drop the clauses that are true of every row. */
static void fill(const tocsin_table *table, tocsin_clause *clauses, tocsin_clause_table *out)
{
    size_t kept = 0;
    for (size_t i = 0; i < out->count; ++i) {
        uint64_t *truth = out->truth + kept * out->words;
        memset(truth, 0, out->words * sizeof *truth);
        size_t rows = 0;
        for (size_t r = 0; r < out->row_count; ++r) {
            const tocsin_row *row = &table->rows.items[r];
            if (!tocsin_clause_holds(&clauses[i], row->fields, row->field_count))
                continue;
            tocsin_bits_set(truth, r);
            ++rows;
        }
        assert(rows > 0);
        if (rows < out->row_count)
            clauses[kept++] = clauses[i];
    }
    out->count = kept;
}

tocsin_status tocsin_clause_table_build(const tocsin_vocabulary *vocabulary,
                                        const tocsin_table *table, tocsin_arena *arena,
                                        tocsin_clause_table *clauses, tocsin_error *error)
{
    clause_list list = {0};
    tocsin_status status = collect(vocabulary, table, &list, error);
    if (status == TOCSIN_OK) {
        if (list.count > 1)
            qsort_r(list.items, list.count, sizeof *list.items, compare_clauses,
                    (void *)(uintptr_t)vocabulary);
        *clauses = (tocsin_clause_table){.row_count = table->rows.count,
                                         .words = tocsin_bits_words(table->rows.count),
                                         .count = list.count};
        tocsin_clause *copy = TOCSIN_ARENA_ARRAY(arena, tocsin_clause, list.count);
        clauses->truth = TOCSIN_ARENA_ARRAY(arena, uint64_t, list.count * clauses->words);
        if (copy == NULL || clauses->truth == NULL) {
            status = tocsin_error_memory(error);
        } else {
            if (list.count > 0)
                memcpy(copy, list.items, list.count * sizeof *copy);
            fill(table, copy, clauses);
            clauses->clauses = copy;
        }
    }
    TOCSIN_VEC_FREE(&list);
    return status;
}

tocsin_status tocsin_clause_candidates(const tocsin_vocabulary *vocabulary,
                                       const tocsin_clause_table *clauses, tocsin_fact fact,
                                       const uint64_t *positives, tocsin_arena *arena,
                                       const uint32_t **candidates, size_t *count,
                                       tocsin_error *error)
{
    uint32_t *list = TOCSIN_ARENA_ARRAY(arena, uint32_t, clauses->count);
    if (list == NULL)
        return tocsin_error_memory(error);
    size_t kept = 0, constants_begin = 0;
    for (size_t i = 0; i < clauses->count; ++i) {
        const tocsin_clause *clause = &clauses->clauses[i];
        if (kept == 0 || clauses->clauses[list[kept - 1]].field != clause->field)
            constants_begin = kept;
        if (tocsin_bias_is_about(vocabulary, fact, clause->field) ||
            !tocsin_bits_meet(tocsin_clause_rows(clauses, i), positives, clauses->words))
            continue;
        list[kept++] = (uint32_t)i;
        bool last = i + 1 == clauses->count || clauses->clauses[i + 1].field != clause->field ||
                    clauses->clauses[i + 1].kind != TOCSIN_CLAUSE_CONSTANT;
        if (clause->kind == TOCSIN_CLAUSE_CONSTANT && last &&
            kept - constants_begin > VALUES_OF_FACT_MAX)
            kept = constants_begin;
    }
    *candidates = list;
    *count = kept;
    return TOCSIN_OK;
}
