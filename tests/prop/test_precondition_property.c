/* Deduction on random tables: safe, minimal, complete for conjunctions (brute force over all
 * subsets of clauses), and equal to the independent reference tests/ref/precondition_reference.py.
 */
#include <infer/hypothesis.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "test_seed.h"

enum { CASES = 1500, FIELDS = 5, VALUES = 5, INSTANCES_MAX = 24, ORACLE_CLAUSES_MAX = 14 };

static const char *const field_names[FIELDS] = {"var.name", "meta.first_micro", "meta.world_size",
                                                "var.dtype", "self.nesterov"};
static const char *const value_texts[VALUES] = {"b:0", "b:1", "i:1", "i:2", "s:x"};

struct world {
    tocsin_vocabulary *vocabulary;
    tocsin_population single, pair;
    tocsin_fact fact;
    tocsin_symbol fields[FIELDS];
    tocsin_scalar values[VALUES];
};

/* One hypothesis, as it is written for the reference. */
struct sample {
    bool pair;
    uint32_t runs;
    size_t count;
    struct {
        uint32_t run;
        bool fact;
        uint32_t a[FIELDS], b[FIELDS]; /* value + 1; 0: absent */
    } instances[INSTANCES_MAX];
};

static uint64_t random_state;

static uint32_t random_below(uint32_t limit)
{
    random_state += UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(tocsin_mix64(random_state) >> 33) % limit;
}

static int make_world(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    assert_int_equal(tocsin_vocabulary_new(&world->vocabulary, NULL), TOCSIN_OK);
    tocsin_population_key single = {.kind = TOCSIN_POPULATION_DRIVEN_PARAMETER};
    tocsin_population_key pair = {.kind = TOCSIN_POPULATION_REPLICAS,
                                  .variable = TOCSIN_VARIABLE_PARAMETER,
                                  .moment = TOCSIN_MOMENT_EXIT};
    pair.name = tocsin_symbol_of(world->vocabulary, "data");
    tocsin_fact_key fact = {.predicate = TOCSIN_PREDICATE_DATA_CHANGES};
    world->single = tocsin_population_of(world->vocabulary, &single);
    world->pair = tocsin_population_of(world->vocabulary, &pair);
    world->fact = tocsin_fact_of(world->vocabulary, &fact);
    /* Symbols in another order than the names: results must not depend on ids. */
    for (size_t f = FIELDS; f-- > 0;)
        world->fields[f] = tocsin_symbol_of(world->vocabulary, field_names[f]);
    for (size_t v = VALUES; v-- > 0;) {
        const char *text = value_texts[v];
        tocsin_literal literal = {.kind = text[0] == 'b'   ? TOCSIN_VALUE_BOOL
                                          : text[0] == 'i' ? TOCSIN_VALUE_INT
                                                           : TOCSIN_VALUE_STRING,
                                  .integer = atoi(text + 2),
                                  .text = text + 2};
        world->values[v] = tocsin_scalar_of(world->vocabulary, &literal);
    }
    *state = world;
    return 0;
}

static int free_world(void **state)
{
    struct world *world = *state;
    tocsin_vocabulary_free(world->vocabulary);
    free(world);
    return 0;
}

/* Truth by a planted rule of two clauses or'ed with a third, sometimes with noise. */
static void make_sample(struct sample *sample)
{
    memset(sample, 0, sizeof *sample);
    sample->pair = random_below(3) == 0;
    sample->runs = 1 + random_below(4);
    sample->count = 1 + random_below(INSTANCES_MAX);
    uint32_t field[3], value[3], noise = random_below(4) == 0 ? 12 : UINT32_MAX;
    for (size_t i = 0; i < 3; ++i) {
        field[i] = random_below(FIELDS);
        value[i] = 1 + random_below(VALUES);
    }
    bool either = random_below(2) == 0;
    for (size_t i = 0; i < sample->count; ++i) {
        sample->instances[i].run = random_below(sample->runs);
        uint32_t *a = sample->instances[i].a, *b = sample->instances[i].b;
        for (size_t f = 0; f < FIELDS; ++f) {
            a[f] = random_below(7) == 0 ? 0 : 1 + random_below(f % 2 == 0 ? 2 : VALUES);
            b[f] = a[f];
            if (sample->pair && random_below(3) == 0)
                b[f] = a[f] == 0 ? 1 : random_below(VALUES + 1);
        }
        bool met[3];
        for (size_t k = 0; k < 3; ++k)
            met[k] = sample->pair && k == 0 ? a[field[k]] == b[field[k]] : a[field[k]] == value[k];
        sample->instances[i].fact = (met[0] && met[1]) || (either && met[2]);
        if (noise != UINT32_MAX && random_below(noise) == 0)
            sample->instances[i].fact ^= true;
    }
}

static tocsin_scalar scalar_of(const struct world *world, uint32_t value)
{
    return value == 0 ? 0 : world->values[value - 1];
}

static void add_instances(const struct world *world, const struct sample *sample,
                          tocsin_examples *examples)
{
    for (size_t i = 0; i < sample->count; ++i) {
        tocsin_field fields[FIELDS];
        uint32_t count = 0;
        for (size_t f = FIELDS; f-- > 0;) { /* ascending by symbol */
            tocsin_scalar a = scalar_of(world, sample->instances[i].a[f]);
            tocsin_scalar b = scalar_of(world, sample->instances[i].b[f]);
            if (a != 0 || b != 0)
                fields[count++] = (tocsin_field){.name = world->fields[f], .a = a, .b = b};
        }
        tocsin_instance instance = {.population = sample->pair ? world->pair : world->single,
                                    .field_count = count,
                                    .fields = fields,
                                    .fact_count = sample->instances[i].fact,
                                    .facts = &world->fact};
        examples->run = sample->instances[i].run;
        assert_int_equal(tocsin_examples_add(examples, &instance, NULL), TOCSIN_OK);
    }
}

static const char *drop_name(tocsin_drop drop)
{
    static const char *const names[] = {
#define X(name, reason) [TOCSIN_DROP_##name] = #name,
        TOCSIN_DROP_TABLE(X)
#undef X
    };
    return names[drop];
}

static const char *text_of(const struct world *world, tocsin_scalar scalar)
{
    for (size_t v = 0; v < VALUES; ++v)
        if (world->values[v] == scalar)
            return value_texts[v];
    return "";
}

static void write_result(const struct world *world, const tocsin_hypothesis *hypothesis, FILE *file)
{
    static const char *const kinds[] = {"", "constant", "consistent", "unequal", "exist"};
    fprintf(file, "{\"drop\":\"%s\"", drop_name(hypothesis->drop));
    if (hypothesis->drop == TOCSIN_DROP_KEPT) {
        const tocsin_precondition *when = &hypothesis->invariant.when;
        fprintf(file, ",\"when\":[%s", when->count == 0 ? "[]" : "");
        for (uint32_t g = 0; g < when->count; ++g) {
            fprintf(file, "%s[", g > 0 ? "," : "");
            for (uint32_t c = 0; c < when->any[g].count; ++c) {
                const tocsin_clause *clause = &when->any[g].clauses[c];
                fprintf(file, "%s[\"%s\",\"%s\",\"%s\"]", c > 0 ? "," : "", kinds[clause->kind],
                        tocsin_symbol_text(world->vocabulary, clause->field),
                        text_of(world, clause->value));
            }
            fputs("]", file);
        }
        fprintf(file, "],\"instances\":%" PRIu64 ",\"runs\":%" PRIu32,
                hypothesis->invariant.instances, hypothesis->invariant.runs);
    }
    fputs("}", file);
}

static void write_sample(const struct world *world, const struct sample *sample,
                         const tocsin_hypothesis *hypothesis, FILE *file)
{
    fprintf(file, "{\"pair\":%s,\"runs\":%" PRIu32 ",\"instances\":[",
            sample->pair ? "true" : "false", sample->runs);
    for (size_t i = 0; i < sample->count; ++i) {
        fprintf(file, "%s{\"run\":%" PRIu32 ",\"fact\":%s,\"fields\":{", i > 0 ? "," : "",
                sample->instances[i].run, sample->instances[i].fact ? "true" : "false");
        const char *comma = "";
        for (size_t f = 0; f < FIELDS; ++f) {
            uint32_t a = sample->instances[i].a[f], b = sample->instances[i].b[f];
            if (a == 0 && b == 0)
                continue;
            fprintf(file, "%s\"%s\":[\"%s\",\"%s\"]", comma, field_names[f],
                    a == 0 ? "" : value_texts[a - 1], b == 0 ? "" : value_texts[b - 1]);
            comma = ",";
        }
        fputs("}}", file);
    }
    fputs("],\"result\":", file);
    write_result(world, hypothesis, file);
    fputs("}\n", file);
}

/* ---- The oracle: every conjunction of clauses that is true of all positives ------------------ */

struct oracle {
    const tocsin_table *table;
    const tocsin_clause *base[32]; /* true of all positives */
    size_t base_count;
    uint64_t negative_rows; /* tables of tests have at most 64 rows */
    uint64_t truth[32];     /* rows where base[i] holds */
};

static bool is_safe(const struct oracle *oracle, uint32_t subset)
{
    uint64_t rows = oracle->negative_rows;
    for (size_t i = 0; i < oracle->base_count; ++i)
        if (subset >> i & 1)
            rows &= oracle->truth[i];
    return rows == 0;
}

static void consult_oracle(const struct world *world, const tocsin_table *table,
                           const tocsin_hypothesis *hypothesis)
{
    struct oracle oracle = {.table = table};
    tocsin_arena arena = {0};
    tocsin_clause_table clauses;
    assert_int_equal(tocsin_clause_table_build(world->vocabulary, table, &arena, &clauses, NULL),
                     TOCSIN_OK);
    uint64_t positive_rows = 0, partial_rows = 0;
    for (size_t i = 0; i < table->cells.count; ++i) {
        const tocsin_row *row = &table->rows.items[table->cells.items[i].row];
        uint64_t bit = UINT64_C(1) << table->cells.items[i].row;
        if (table->cells.items[i].count < row->count)
            continue;
        *(row->contrast ? &partial_rows : &positive_rows) |= bit;
    }
    uint64_t all = table->rows.count == 64 ? UINT64_MAX : (UINT64_C(1) << table->rows.count) - 1;
    oracle.negative_rows = all & ~positive_rows & ~partial_rows;
    for (size_t c = 0; c < clauses.count && oracle.base_count < ORACLE_CLAUSES_MAX; ++c) {
        uint64_t truth = tocsin_clause_rows(&clauses, c)[0];
        if ((positive_rows & ~truth) != 0)
            continue;
        oracle.truth[oracle.base_count] = truth;
        oracle.base[oracle.base_count++] = &clauses.clauses[c];
    }
    if (hypothesis->drop == TOCSIN_DROP_NO_PRECONDITION && positive_rows != 0) {
        assert_false(is_safe(&oracle, (UINT32_C(1) << oracle.base_count) - 1));
    } else if (hypothesis->drop == TOCSIN_DROP_KEPT && hypothesis->invariant.when.count <= 1) {
        /* One conjunction: safe, and no weaker one (a proper subset of its clauses) is. */
        uint32_t found = 0;
        for (uint32_t c = 0;
             hypothesis->invariant.when.count == 1 && c < hypothesis->invariant.when.any[0].count;
             ++c)
            for (size_t i = 0; i < oracle.base_count; ++i)
                if (memcmp(oracle.base[i], &hypothesis->invariant.when.any[0].clauses[c],
                           sizeof(tocsin_clause)) == 0)
                    found |= UINT32_C(1) << i;
        /* Groups that one run alone has met are left out; what remains need not cover everything
         * and then its clauses are not all in the base. */
        bool whole = hypothesis->invariant.when.count == 0 ||
                     (uint32_t)__builtin_popcount(found) == hypothesis->invariant.when.any[0].count;
        for (uint32_t subset = 0; whole && subset < UINT32_C(1) << oracle.base_count; ++subset)
            if ((subset & ~found) == 0)
                assert_int_equal(is_safe(&oracle, subset), subset == found);
    }
    tocsin_arena_free(&arena);
}

static void deduction_is_safe_minimal_and_equal_to_reference(void **state)
{
    const struct world *world = *state;
    random_state = test_seed(20250707);
    char path[] = "/tmp/tocsin-precondition-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *file = fdopen(fd, "w");
    assert_non_null(file);
    for (int i = 0; i < CASES; ++i) {
        struct sample sample;
        make_sample(&sample);
        tocsin_examples examples = {.vocabulary = world->vocabulary};
        add_instances(world, &sample, &examples);
        tocsin_arena arena = {0};
        tocsin_hypothesis *hypotheses;
        size_t count;
        assert_int_equal(examples.tables.count, 1);
        assert_int_equal(tocsin_hypotheses_judge(world->vocabulary, examples.tables.items[0],
                                                 sample.runs, &arena, &hypotheses, &count, NULL),
                         TOCSIN_OK);
        if (count == 1) {
            consult_oracle(world, examples.tables.items[0], &hypotheses[0]);
            write_sample(world, &sample, &hypotheses[0], file);
        }
        tocsin_arena_free(&arena);
        tocsin_examples_free(&examples);
    }
    assert_int_equal(fclose(file), 0);
    const char *source = getenv("TOCSIN_SOURCE"), *python = getenv("PYTHON");
    char command[1024];
    snprintf(command, sizeof command, "%s %s/tests/ref/precondition_reference.py %s",
             python != NULL ? python : "python3", source != NULL ? source : ".", path);
    int exit_status = system(command);
    if (exit_status == 0)
        remove(path); /* else it is the evidence */
    assert_int_equal(exit_status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(
        deduction_is_safe_minimal_and_equal_to_reference, make_world, free_world)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
