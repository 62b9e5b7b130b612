/* A set of invariants: a vocabulary, an arena for clauses and sentences, entries, ids.
 *
 * An invariant's id is the XXH3 of its defining JSON (population, fact, precondition in canonical
 * order; not its support), so that it is the same in every file. Cost of adding: one JSON text.
 */
#include <assert.h>
#include <inttypes.h>
#include <invariant/invariant_set.h>
#include <invariant/plugin.h>
#include <invariant/statement.h>
#include <stdio.h>
#include <stdlib.h>

tocsin_status tocsin_invariants_new(tocsin_invariant_set **set, tocsin_error *error)
{
    *set = NULL;
    tocsin_invariant_set *made = tocsin_zalloc(1, sizeof *made);
    if (made == NULL)
        return tocsin_error_memory(error);
    tocsin_status status = tocsin_vocabulary_new(&made->vocabulary, error);
    if (status != TOCSIN_OK) {
        tocsin_free(made);
        return status;
    }
    made->ids.limit_count = TOCSIN_INVARIANTS_MAX;
    *set = made;
    return TOCSIN_OK;
}

void tocsin_invariants_free(tocsin_invariant_set *set)
{
    if (set == NULL)
        return;
    tocsin_vocabulary_free(set->vocabulary);
    tocsin_arena_free(&set->arena);
    TOCSIN_VEC_FREE(&set->entries);
    tocsin_intern_free(&set->ids);
    tocsin_free(set);
}

void tocsin_invariants_use(tocsin_invariant_set *set, const tocsin_relations *relations)
{
    set->relations = relations;
}

const struct tocsin_relations *tocsin_invariants_relations(const tocsin_invariant_set *set)
{
    return set->relations;
}

const char *tocsin_invariants_lacks(const tocsin_invariant_set *set, size_t index)
{
    tocsin_population_key key =
        tocsin_population_get_key(set->vocabulary, tocsin_invariants_get(set, index)->population);
    const char *population = tocsin_symbol_text(set->vocabulary, key.name);
    bool given = key.kind != TOCSIN_POPULATION_USER ||
                 tocsin_relations_of(set->relations, population) != NULL;
    return given ? NULL : population;
}

tocsin_vocabulary *tocsin_invariants_vocabulary(const tocsin_invariant_set *set)
{
    return set->vocabulary;
}

/* ---- canonical order ----------------------------------------------------------------------- */

static int compare_clauses(const void *a, const void *b, void *context)
{
    const tocsin_clause *x = a, *y = b;
    const tocsin_vocabulary *vocabulary = context;
    int order =
        strcmp(tocsin_symbol_text(vocabulary, x->field), tocsin_symbol_text(vocabulary, y->field));
    if (order == 0)
        order = (x->kind > y->kind) - (x->kind < y->kind);
    return order != 0 ? order : tocsin_scalar_compare(vocabulary, x->value, y->value);
}

static int compare_conjunctions(const void *a, const void *b, void *context)
{
    const tocsin_conjunction *x = a, *y = b;
    for (uint32_t i = 0; i < x->count && i < y->count; ++i) {
        int order = compare_clauses(&x->clauses[i], &y->clauses[i], context);
        if (order != 0)
            return order;
    }
    return (x->count > y->count) - (x->count < y->count);
}

/* A copy in the arena: clauses ordered, equal ones once; conjunctions likewise. */
static bool copy_precondition(tocsin_invariant_set *set, const tocsin_precondition *from,
                              tocsin_precondition *to)
{
    tocsin_conjunction *any = TOCSIN_ARENA_ARRAY(&set->arena, tocsin_conjunction, from->count);
    if (any == NULL)
        return false;
    for (uint32_t i = 0; i < from->count; ++i) {
        size_t count = from->any[i].count;
        uint32_t kept = 0;
        tocsin_clause *clauses = TOCSIN_ARENA_ARRAY(&set->arena, tocsin_clause, count);
        if (clauses == NULL)
            return false;
        if (count > 0)
            memcpy(clauses, from->any[i].clauses, count * sizeof *clauses);
        qsort_r(clauses, count, sizeof *clauses, compare_clauses, set->vocabulary);
        for (size_t c = 0; c < count; ++c)
            if (kept == 0 || compare_clauses(&clauses[kept - 1], &clauses[c], set->vocabulary) != 0)
                clauses[kept++] = clauses[c];
        any[i] = (tocsin_conjunction){.count = kept, .clauses = clauses};
    }
    qsort_r(any, from->count, sizeof *any, compare_conjunctions, set->vocabulary);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < from->count; ++i)
        if (kept == 0 || compare_conjunctions(&any[kept - 1], &any[i], set->vocabulary) != 0)
            any[kept++] = any[i];
    *to = (tocsin_precondition){.inverted = from->inverted && kept > 0, .count = kept, .any = any};
    return true;
}

/* ---- adding -------------------------------------------------------------------------------- */

static tocsin_status identify(const tocsin_invariant_set *set, tocsin_invariant_entry *entry,
                              tocsin_error *error)
{
    tocsin_string text = {0};
    tocsin_json json = {.out = &text};
    tocsin_json_begin_object(&json);
    tocsin_invariant_put_json(set->vocabulary, &entry->invariant, &json);
    tocsin_json_end_object(&json);
    tocsin_status status = tocsin_string_check(&text, error);
    if (status == TOCSIN_OK)
        snprintf(entry->id, sizeof entry->id, "inv-%016" PRIx64,
                 tocsin_hash64(text.text, text.bytes, 0));
    tocsin_string_free(&text);
    return status;
}

static tocsin_status write_sentence(tocsin_invariant_set *set, tocsin_invariant_entry *entry,
                                    tocsin_error *error)
{
    tocsin_string text = {0};
    tocsin_invariant_say(set->vocabulary, &entry->invariant, &text);
    tocsin_status status = tocsin_string_check(&text, error);
    if (status == TOCSIN_OK) {
        entry->sentence = tocsin_arena_copy(&set->arena, text.text, text.bytes);
        if (entry->sentence == NULL)
            status = tocsin_error_memory(error);
    }
    tocsin_string_free(&text);
    return status;
}

tocsin_status tocsin_invariants_add(tocsin_invariant_set *set, const tocsin_invariant *invariant,
                                    tocsin_error *error)
{
    assert(tocsin_statement_exists(
        tocsin_population_get_key(set->vocabulary, invariant->population).kind,
        tocsin_fact_get_key(set->vocabulary, invariant->fact).predicate));
    if (set->entries.count >= TOCSIN_INVARIANTS_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "more than %u invariants",
                                TOCSIN_INVARIANTS_MAX);
    tocsin_invariant_entry entry = {.invariant = *invariant};
    tocsin_arena_mark mark = tocsin_arena_get_mark(&set->arena);
    if (!copy_precondition(set, &invariant->when, &entry.invariant.when))
        return tocsin_error_memory(error);
    TOCSIN_TRY(identify(set, &entry, error));
    if (tocsin_intern_find(&set->ids, entry.id, strlen(entry.id)) != 0) {
        tocsin_arena_reset_to(&set->arena, mark);
        return TOCSIN_OK;
    }
    TOCSIN_TRY(write_sentence(set, &entry, error));
    if (!TOCSIN_VEC_RESERVE(&set->entries, 1) ||
        tocsin_intern_put(&set->ids, entry.id, strlen(entry.id)) == 0)
        return tocsin_error_memory(error);
    set->entries.items[set->entries.count++] = entry;
    return TOCSIN_OK;
}

static int compare_entries(const void *a, const void *b, void *context)
{
    const tocsin_invariant_entry *x = a, *y = b;
    const tocsin_vocabulary *vocabulary = context;
    int order =
        tocsin_population_compare(vocabulary, x->invariant.population, y->invariant.population);
    if (order == 0)
        order = tocsin_fact_compare(vocabulary, x->invariant.fact, y->invariant.fact);
    return order != 0 ? order : strcmp(x->id, y->id);
}

tocsin_status tocsin_invariants_sort(tocsin_invariant_set *set, tocsin_error *error)
{
    (void)error;
    if (set->entries.count > 1)
        qsort_r(set->entries.items, set->entries.count, sizeof *set->entries.items, compare_entries,
                set->vocabulary);
    return TOCSIN_OK;
}

/* ---- looking ------------------------------------------------------------------------------- */

static const tocsin_invariant_entry *entry_at(const tocsin_invariant_set *set, size_t index)
{
    assert(index < set->entries.count);
    return &set->entries.items[index];
}

size_t tocsin_invariants_count(const tocsin_invariant_set *set)
{
    return set->entries.count;
}

const tocsin_invariant *tocsin_invariants_get(const tocsin_invariant_set *set, size_t index)
{
    return &entry_at(set, index)->invariant;
}

const char *tocsin_invariant_id(const tocsin_invariant_set *set, size_t index)
{
    return entry_at(set, index)->id;
}

const char *tocsin_invariant_relation(const tocsin_invariant_set *set, size_t index)
{
    return tocsin_relation_name(
        tocsin_population_relation(set->vocabulary, entry_at(set, index)->invariant.population));
}

const char *tocsin_invariant_sentence(const tocsin_invariant_set *set, size_t index)
{
    return entry_at(set, index)->sentence;
}

void tocsin_invariant_support(const tocsin_invariant_set *set, size_t index, uint64_t *instances,
                              uint32_t *runs)
{
    const tocsin_invariant *invariant = &entry_at(set, index)->invariant;
    if (instances != NULL)
        *instances = invariant->instances;
    if (runs != NULL)
        *runs = invariant->runs;
}

uint32_t tocsin_invariant_held_out(const tocsin_invariant_set *set, size_t index)
{
    return entry_at(set, index)->invariant.held_out;
}

static size_t collect_fields(const tocsin_invariant_set *set, tocsin_symbol *fields)
{
    size_t count = 0;
    for (size_t i = 0; i < set->entries.count; ++i) {
        const tocsin_invariant *invariant = &set->entries.items[i].invariant;
        tocsin_fact_key fact = tocsin_fact_get_key(set->vocabulary, invariant->fact);
        if (fields != NULL)
            fields[count] = fact.name; /* 0 and names of functions do no harm */
        ++count;
        if (fields != NULL)
            fields[count] = fact.other;
        ++count;
        for (uint32_t g = 0; g < invariant->when.count; ++g)
            for (uint32_t c = 0; c < invariant->when.any[g].count; ++c, ++count)
                if (fields != NULL)
                    fields[count] = invariant->when.any[g].clauses[c].field;
    }
    return count;
}

tocsin_status tocsin_invariants_fields(const tocsin_invariant_set *set, tocsin_symbol **fields,
                                       size_t *count, tocsin_error *error)
{
    *count = collect_fields(set, NULL);
    *fields = tocsin_zalloc(*count + 1, sizeof **fields);
    if (*fields == NULL)
        return tocsin_error_memory(error);
    collect_fields(set, *fields);
    return TOCSIN_OK;
}
