/* Counting runs apart and adding up is the same as counting them together, in any order: random
 * instances of random runs, learned from directly and through bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "test_seed.h"
#include "unit/infer_examples.h"

enum { RUNS_MAX = 5, INSTANCES_MAX = 60, ROUNDS = 300 };

static uint64_t draw(uint64_t *random, uint64_t below)
{
    *random = tocsin_mix64(*random + 0x9e3779b97f4a7c15);
    return *random % below;
}

/* Fields of one instance; in a pair some halves differ. */
static void draw_fields(uint64_t *random, bool pair, char *text, size_t size)
{
    static const char *const names[] = {"meta.stage", "meta.autocast", "var.dtype", "var.name",
                                        "self.type",  "var.ndim",      "meta.rank"};
    static const char *const values[] = {"a", "b", "True", "False", "None", "3"};
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < TOCSIN_COUNT_OF(names); ++i) {
        if (draw(random, 3) == 0)
            continue;
        const char *a = values[draw(random, TOCSIN_COUNT_OF(values))];
        const char *b = values[draw(random, TOCSIN_COUNT_OF(values))];
        bool apart = pair && draw(random, 3) == 0;
        used += (size_t)snprintf(text + used, size - used, "%s%s=%s%s%s", used > 0 ? " " : "",
                                 names[i], a, apart ? "|" : "", apart ? b : "");
    }
}

static const tocsin_population_key populations[] = {
    {.kind = TOCSIN_POPULATION_DRIVEN_PARAMETER, .role = TOCSIN_ROLE_OPTIMIZER_STEP},
    {.kind = TOCSIN_POPULATION_PARAMETER, .role = TOCSIN_ROLE_OPTIMIZER_STEP},
    {.kind = TOCSIN_POPULATION_CALL, .role = TOCSIN_ROLE_SCALER},
    {.kind = TOCSIN_POPULATION_COLLECTIVES}};

/* The facts that hold of an instance: "is" what the population says, mostly when `text` lets it. */
static size_t draw_facts(tocsin_vocabulary *vocabulary, uint64_t *random, size_t population,
                         const char *text, tocsin_fact facts[2])
{
    tocsin_fact_key key = {.predicate = TOCSIN_PREDICATE_DATA_CHANGES};
    bool holds = strstr(text, "meta.stage=a") != NULL || draw(random, 8) == 0;
    if (population == 1)
        key.predicate = TOCSIN_PREDICATE_FINITE;
    if (population == 2)
        key = (tocsin_fact_key){.predicate = TOCSIN_PREDICATE_CALLS,
                                .role = TOCSIN_ROLE_OPTIMIZER_STEP};
    if (population == 3)
        key = (tocsin_fact_key){.predicate = TOCSIN_PREDICATE_SAME,
                                .name = tocsin_symbol_of(vocabulary, "return.shape")};
    facts[0] = tocsin_fact_of(vocabulary, &key);
    return holds ? 1 : 0;
}

/* The instances of run `seed`, added as run `run`. */
static void add_run(examples_writer *writer, uint64_t seed, uint32_t run)
{
    uint64_t random = seed;
    size_t count = draw(&random, INSTANCES_MAX);
    for (size_t i = 0; i < count; ++i) {
        char text[256];
        tocsin_fact facts[2] = {0};
        size_t population = draw(&random, TOCSIN_COUNT_OF(populations));
        bool pair = populations[population].kind == TOCSIN_POPULATION_COLLECTIVES;
        draw_fields(&random, pair, text, sizeof text);
        size_t held = draw_facts(writer->examples.vocabulary, &random, population, text, facts);
        writer->population =
            tocsin_population_of(writer->examples.vocabulary, &populations[population]);
        assert_int_equal(write_instance(writer, run, text, facts, (uint32_t)held), TOCSIN_OK);
    }
}

/* All that is concluded, dropped hypotheses included. */
static void note(void *context, const char *relation, const char *sentence, const char *reason)
{
    tocsin_string_printf(context, "%s %s: %s\n", relation, sentence, reason);
}

static tocsin_string conclude(tocsin_examples *examples, uint32_t run_count,
                              tocsin_invariant_set *set)
{
    tocsin_string text = {0};
    tocsin_infer_summary summary = {0};
    tocsin_infer_options options = {
        .struct_bytes = sizeof options, .threads = 1, .dropped = note, .context = &text};
    assert_int_equal(tocsin_learn(examples, run_count, &options, set, &summary, NULL), TOCSIN_OK);
    for (size_t i = 0; i < tocsin_invariants_count(set); ++i) {
        uint64_t instances;
        uint32_t runs;
        tocsin_invariant_support(set, i, &instances, &runs);
        tocsin_string_printf(&text, "%s %s %llu %u\n", tocsin_invariant_id(set, i),
                             tocsin_invariant_sentence(set, i), (unsigned long long)instances,
                             (unsigned)runs);
    }
    tocsin_examples_free(examples);
    tocsin_invariants_free(set);
    return text;
}

static tocsin_string learn_together(const uint64_t *seeds, uint32_t run_count)
{
    tocsin_invariant_set *set;
    assert_int_equal(tocsin_invariants_new(&set, NULL), TOCSIN_OK);
    examples_writer writer = {.examples = {.vocabulary = tocsin_invariants_vocabulary(set)}};
    for (uint32_t run = 0; run < run_count; ++run)
        add_run(&writer, seeds[run], run);
    return conclude(&writer.examples, run_count, set);
}

/* Each run in a vocabulary of its own, through bytes. */
static tocsin_string encode_run(uint64_t seed)
{
    tocsin_string bytes = {0};
    examples_writer writer = {0};
    assert_int_equal(tocsin_vocabulary_new(&writer.examples.vocabulary, NULL), TOCSIN_OK);
    add_run(&writer, seed, 0);
    assert_int_equal(tocsin_examples_encode(&writer.examples, &bytes, NULL), TOCSIN_OK);
    tocsin_vocabulary *vocabulary = writer.examples.vocabulary;
    tocsin_examples_free(&writer.examples);
    tocsin_vocabulary_free(vocabulary);
    return bytes;
}

static tocsin_string learn_apart(const uint64_t *seeds, uint32_t run_count, uint64_t *random)
{
    uint32_t order[RUNS_MAX];
    tocsin_invariant_set *set;
    assert_int_equal(tocsin_invariants_new(&set, NULL), TOCSIN_OK);
    tocsin_examples sum = {.vocabulary = tocsin_invariants_vocabulary(set)};
    for (uint32_t i = 0; i < run_count; ++i) {
        uint32_t other = (uint32_t)draw(random, i + 1);
        order[i] = order[other];
        order[other] = i;
    }
    for (uint32_t i = 0; i < run_count; ++i) {
        tocsin_string bytes = encode_run(seeds[order[i]]);
        sum.run = i;
        assert_int_equal(
            tocsin_examples_decode(&sum, tocsin_string_text(&bytes), bytes.bytes, "bytes", NULL),
            TOCSIN_OK);
        tocsin_string_free(&bytes);
    }
    return conclude(&sum, run_count, set);
}

static void the_sum_of_runs_is_the_runs_together(void **state)
{
    (void)state;
    uint64_t random = test_seed(20), learned = 0;
    for (int round = 0; round < ROUNDS; ++round) {
        uint64_t seeds[RUNS_MAX];
        uint32_t run_count = 1 + (uint32_t)draw(&random, RUNS_MAX);
        for (uint32_t i = 0; i < run_count; ++i)
            seeds[i] = draw(&random, UINT64_MAX);
        tocsin_string together = learn_together(seeds, run_count);
        tocsin_string apart = learn_apart(seeds, run_count, &random);
        assert_string_equal(tocsin_string_text(&together), tocsin_string_text(&apart));
        learned += strstr(tocsin_string_text(&together), "inv-") != NULL;
        tocsin_string_free(&together);
        tocsin_string_free(&apart);
    }
    assert_true(learned > ROUNDS / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sum_of_runs_is_the_runs_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
