/* seen_instances.h - an observer with fake processes, and the instances that it made. */
#ifndef TOCSIN_SEEN_INSTANCES_H
#define TOCSIN_SEEN_INSTANCES_H

#include "fake_training.h"

typedef struct seen_instance {
    tocsin_population_key population;
    char entity[64];
    int64_t step;
    int32_t rank, other_rank;
    uint32_t line;
    tocsin_fact_key facts[32];
    uint32_t fact_count;
    tocsin_field fields[48];
    uint32_t field_count;
} seen_instance;

typedef struct relation_bench {
    tocsin_vocabulary *vocabulary;
    tocsin_observer *observer;
    seen_instance *list;
    size_t count, capacity;
    fake_process process[2];
} relation_bench;

static inline tocsin_status collect(void *context, const tocsin_instance *instance,
                                    tocsin_error *error)
{
    relation_bench *bench = context;
    (void)error;
    if (bench->count == bench->capacity) {
        bench->capacity = bench->capacity * 2 + 64;
        bench->list = realloc(bench->list, bench->capacity * sizeof *bench->list);
        assert_non_null(bench->list);
    }
    seen_instance *seen = &bench->list[bench->count++];
    memset(seen, 0, sizeof *seen);
    seen->population = tocsin_population_get_key(bench->vocabulary, instance->population);
    snprintf(seen->entity, sizeof seen->entity, "%s", instance->evidence.entity);
    seen->step = instance->evidence.step;
    seen->rank = instance->evidence.rank;
    seen->other_rank = instance->evidence.other_rank;
    seen->line = instance->evidence.line;
    assert_true(instance->fact_count <= 32 && instance->field_count <= 48);
    for (uint32_t i = 0; i < instance->fact_count; ++i) {
        assert_true(i == 0 || instance->facts[i - 1] < instance->facts[i]);
        seen->facts[seen->fact_count++] =
            tocsin_fact_get_key(bench->vocabulary, instance->facts[i]);
    }
    for (uint32_t i = 0; i < instance->field_count; ++i) {
        assert_true(i == 0 || instance->fields[i - 1].name < instance->fields[i].name);
        seen->fields[seen->field_count++] = instance->fields[i];
    }
    return TOCSIN_OK;
}

static inline relation_bench *bench_new(void)
{
    relation_bench *made = calloc(1, sizeof *made);
    assert_int_equal(tocsin_vocabulary_new(&made->vocabulary, NULL), TOCSIN_OK);
    tocsin_observer_options options = {
        .vocabulary = made->vocabulary, .sink = collect, .context = made, .contrast = true};
    assert_int_equal(tocsin_observer_new(&options, &made->observer, NULL), TOCSIN_OK);
    for (size_t i = 0; i < 2; ++i) {
        made->process[i].observer = made->observer;
        made->process[i].index = i;
    }
    fake_start(&made->process[0]);
    return made;
}

static inline void bench_free(relation_bench *bench)
{
    assert_int_equal(bench->process[0].status, TOCSIN_OK);
    assert_int_equal(bench->process[1].status, TOCSIN_OK);
    assert_int_equal(tocsin_observer_finish(bench->observer, NULL), TOCSIN_OK);
    tocsin_observer_free(bench->observer);
    tocsin_vocabulary_free(bench->vocabulary);
    fake_free(&bench->process[0]);
    fake_free(&bench->process[1]);
    free(bench->list);
    free(bench);
}

static inline void forget(relation_bench *bench)
{
    bench->count = 0;
}

static inline bool has_predicate(const seen_instance *seen, uint8_t predicate)
{
    for (uint32_t i = 0; i < seen->fact_count; ++i)
        if (seen->facts[i].predicate == predicate)
            return true;
    return false;
}

/* Instances of the kind, of the entity unless NULL: how many have (or lack) the predicate. */
static inline size_t count_of(const relation_bench *bench, uint8_t kind, const char *entity,
                              uint8_t predicate, bool holds)
{
    size_t count = 0;
    for (size_t i = 0; i < bench->count; ++i) {
        const seen_instance *seen = &bench->list[i];
        count += seen->population.kind == kind &&
                 (entity == NULL || strcmp(seen->entity, entity) == 0) &&
                 has_predicate(seen, predicate) == holds;
    }
    return count;
}

#define HOLDS(bench, kind, entity, predicate)                                                      \
    count_of(bench, TOCSIN_POPULATION_##kind, entity, TOCSIN_PREDICATE_##predicate, true)
#define FAILS(bench, kind, entity, predicate)                                                      \
    count_of(bench, TOCSIN_POPULATION_##kind, entity, TOCSIN_PREDICATE_##predicate, false)
#define JUDGED(bench, kind, entity)                                                                \
    (HOLDS(bench, kind, entity, EQUAL) + FAILS(bench, kind, entity, EQUAL))

/* Does the latest instance of the kind for the callee (a role, or a function) have "calls" or
 * "preceded by" it? */
static inline bool latest_has(const relation_bench *bench, uint8_t kind, uint8_t role,
                              uint8_t predicate, uint8_t callee_role, const char *callee)
{
    for (size_t i = bench->count; i-- > 0;) {
        const seen_instance *seen = &bench->list[i];
        if (seen->population.kind != kind || seen->population.role != role)
            continue;
        for (uint32_t f = 0; f < seen->fact_count; ++f) {
            const tocsin_fact_key *fact = &seen->facts[f];
            if (fact->predicate == predicate && fact->role == callee_role &&
                (callee == NULL ||
                 strcmp(tocsin_symbol_text(bench->vocabulary, fact->name), callee) == 0))
                return true;
        }
        return false;
    }
    fail_msg("no such instance");
    return false;
}

static inline const char *field_text(const relation_bench *bench, const seen_instance *seen,
                                     const char *name)
{
    for (uint32_t i = 0; i < seen->field_count; ++i)
        if (strcmp(tocsin_symbol_text(bench->vocabulary, seen->fields[i].name), name) == 0)
            return tocsin_scalar_literal(bench->vocabulary, seen->fields[i].a).text;
    return NULL;
}

#endif
