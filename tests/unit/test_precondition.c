/* Preconditions of hypotheses whose right answer is known: the paper's figures, and the defences
 * against false alarms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "infer_examples.h"

struct bench {
    examples_writer writer;
    tocsin_arena arena;
    tocsin_fact fact;
    tocsin_string text;
};

static int make_bench(void **state)
{
    struct bench *bench = calloc(1, sizeof *bench);
    assert_int_equal(tocsin_vocabulary_new(&bench->writer.examples.vocabulary, NULL), TOCSIN_OK);
    *state = bench;
    return 0;
}

static int free_bench(void **state)
{
    struct bench *bench = *state;
    tocsin_arena_free(&bench->arena);
    tocsin_string_free(&bench->text);
    tocsin_vocabulary *vocabulary = bench->writer.examples.vocabulary;
    tocsin_examples_free(&bench->writer.examples);
    tocsin_vocabulary_free(vocabulary);
    free(bench);
    return 0;
}

static void about(struct bench *bench, tocsin_population_key population, tocsin_fact_key fact)
{
    tocsin_vocabulary *vocabulary = bench->writer.examples.vocabulary;
    bench->writer.population = tocsin_population_of(vocabulary, &population);
    bench->fact = tocsin_fact_of(vocabulary, &fact);
    assert_true(bench->writer.population != 0 && bench->fact != 0);
}

static void about_replicas(struct bench *bench)
{
    tocsin_vocabulary *vocabulary = bench->writer.examples.vocabulary;
    about(bench,
          (tocsin_population_key){.kind = TOCSIN_POPULATION_REPLICAS,
                                  .variable = TOCSIN_VARIABLE_PARAMETER,
                                  .moment = TOCSIN_MOMENT_EXIT,
                                  .name = tocsin_symbol_of(vocabulary, "data")},
          (tocsin_fact_key){.predicate = TOCSIN_PREDICATE_EQUAL,
                            .name = tocsin_symbol_of(vocabulary, "data")});
}

static void about_parameters(struct bench *bench)
{
    about(bench, (tocsin_population_key){.kind = TOCSIN_POPULATION_DRIVEN_PARAMETER},
          (tocsin_fact_key){.predicate = TOCSIN_PREDICATE_DATA_CHANGES});
}

static void holds(struct bench *bench, uint32_t run, const char *fields)
{
    assert_int_equal(write_example(&bench->writer, run, fields, bench->fact), TOCSIN_OK);
}

static void fails(struct bench *bench, uint32_t run, const char *fields)
{
    assert_int_equal(write_example(&bench->writer, run, fields, 0), TOCSIN_OK);
}

static tocsin_hypothesis judge(struct bench *bench, uint32_t runs)
{
    tocsin_hypothesis *hypotheses;
    size_t count;
    assert_int_equal(bench->writer.examples.tables.count, 1);
    assert_int_equal(tocsin_hypotheses_judge(bench->writer.examples.vocabulary,
                                             bench->writer.examples.tables.items[0], runs,
                                             &bench->arena, &hypotheses, &count, NULL),
                     TOCSIN_OK);
    assert_int_equal(count, 1);
    return hypotheses[0];
}

/* The precondition as text, clauses by preference: "a=x & b | c=y"; or the reason in brackets. */
static const char *learned(struct bench *bench, uint32_t runs)
{
    const tocsin_vocabulary *vocabulary = bench->writer.examples.vocabulary;
    tocsin_hypothesis hypothesis = judge(bench, runs);
    tocsin_string_clear(&bench->text);
    if (hypothesis.drop != TOCSIN_DROP_KEPT) {
        tocsin_string_printf(&bench->text, "[%s]", tocsin_drop_reason(hypothesis.drop));
        return tocsin_string_text(&bench->text);
    }
    const tocsin_precondition *when = &hypothesis.invariant.when;
    tocsin_string_append_text(&bench->text, when->inverted ? "unless " : "");
    for (uint32_t g = 0; g < when->count; ++g) {
        tocsin_string_append_text(&bench->text, g > 0 ? " | " : "");
        for (uint32_t c = 0; c < when->any[g].count; ++c) {
            const tocsin_clause *clause = &when->any[g].clauses[c];
            static const char *const signs[] = {"", "=", "==", "!=", "?"};
            tocsin_string_printf(&bench->text, "%s%s%s", c > 0 ? " & " : "",
                                 tocsin_symbol_text(vocabulary, clause->field),
                                 signs[clause->kind]);
            if (clause->kind != TOCSIN_CLAUSE_CONSTANT)
                continue;
            tocsin_literal literal = tocsin_scalar_literal(vocabulary, clause->value);
            const char *boolean = literal.integer != 0 ? "true" : "false";
            tocsin_string_append_text(&bench->text,
                                      literal.kind == TOCSIN_VALUE_STRING ? literal.text : boolean);
        }
    }
    return tocsin_string_text(&bench->text);
}

static void without_negatives_it_is_unconditional(void **state)
{
    struct bench *bench = *state;
    about_parameters(bench);
    holds(bench, 0, "meta.stage=training var.dtype=float32");
    holds(bench, 1, "meta.stage=training var.dtype=float64");
    assert_string_equal(learned(bench, 2), "");
}

/* BLOOM-176B (figure 4): replicated parameters agree over tensor-parallel ranks, cut ones do not;
 * is_cuda is true of all and irrelevant. */
static void bloom(void **state)
{
    struct bench *bench = *state;
    about_replicas(bench);
    holds(bench, 0, "var.name=ln.w meta.tp=0|1 var.tensor_parallel=False var.is_cuda=True");
    holds(bench, 0, "var.name=ln.b meta.tp=0|1 var.tensor_parallel=False var.is_cuda=True");
    fails(bench, 0, "var.name=qkv.w meta.tp=0|1 var.tensor_parallel=True var.is_cuda=True");
    fails(bench, 0, "var.name=ln.w|ln.b meta.tp=0|1 var.tensor_parallel=False var.is_cuda=True");
    assert_string_equal(learned(bench, 1), "var.name== & var.tensor_parallel=false");
}

/* Two zero biases are equal at first and differ later: no example, neither for nor against alone.
 */
static void different_variables_only_argue_against(void **state)
{
    struct bench *bench = *state;
    about_replicas(bench);
    holds(bench, 0, "var.name=a.bias");
    holds(bench, 0, "var.name=a.bias|b.bias");
    fails(bench, 0, "var.name=a.bias|b.bias");
    holds(bench, 0, "var.name=b.bias");
    assert_string_equal(learned(bench, 1), "var.name==");
}

/* What is learned of copies is said of copies; the others only argue against, whether they are
 * equal (frozen layers of ranks that train apart) or not. */
static void replicas_are_copies(void **state)
{
    struct bench *bench = *state;
    about_replicas(bench);
    holds(bench, 0, "var.name=w var.replicated=True");
    assert_string_equal(learned(bench, 1), "var.replicated=true");
    holds(bench, 0, "var.name=frozen var.replicated=False");
    assert_string_equal(learned(bench, 1), "var.replicated=true");
    fails(bench, 1, "var.name=w var.replicated=False");
    assert_string_equal(learned(bench, 2), "var.replicated=true");
}

/* An average that the script writes to, and one that rests, are not what the optimizer holds. */
static void steps_are_judged_by_what_they_hold(void **state)
{
    struct bench *bench = *state;
    about(bench, (tocsin_population_key){.kind = TOCSIN_POPULATION_FROZEN_PARAMETER},
          (tocsin_fact_key){.predicate = TOCSIN_PREDICATE_DATA_STAYS});
    for (uint32_t run = 0; run < 2; ++run)
        holds(bench, run, "var.in_this_optimizer=False");
    assert_string_equal(learned(bench, 2), "[superficial: no safe precondition]");
    for (uint32_t run = 0; run < 2; ++run)
        holds(bench, run, "var.in_this_optimizer=True");
    assert_string_equal(learned(bench, 2), "var.in_this_optimizer=true");
    fails(bench, 1, "var.in_this_optimizer=False");
    assert_string_equal(learned(bench, 2), "var.in_this_optimizer=true");
}

/* Figure 5: common clauses, and one of two more. */
static void disjunction(void **state)
{
    struct bench *bench = *state;
    about_parameters(bench);
    holds(bench, 0, "meta.a=True var.c=True var.d=False");
    holds(bench, 1, "meta.a=True var.c=False var.d=True");
    holds(bench, 1, "meta.a=True var.c=True var.d=False");
    holds(bench, 0, "meta.a=True var.c=False var.d=True");
    fails(bench, 0, "meta.a=True var.c=False var.d=False");
    fails(bench, 0, "meta.a=False var.c=True var.d=False");
    fails(bench, 0, "meta.a=False var.c=False var.d=True");
    assert_string_equal(learned(bench, 1), "meta.a=true & var.c=true | meta.a=true & var.d=true");
}

/* No single further clause excludes the negatives: each case needs two of its own. */
static void split(void **state)
{
    struct bench *bench = *state;
    about_parameters(bench);
    holds(bench, 0, "var.a=x var.b=x");
    holds(bench, 0, "var.a=y var.b=y");
    fails(bench, 0, "var.a=x var.b=y");
    fails(bench, 0, "var.a=y var.b=x");
    assert_string_equal(learned(bench, 1), "var.a=x & var.b=x | var.a=y & var.b=y");
}

/* "b is x and c is y, or a is z and b is y": that c is y covers more than that b is x or that a is
 * x, but those say more about the fact. */
static void the_most_significant_clause_comes_first(void **state)
{
    static const struct {
        const char *fields;
        int count;
        bool fact;
    } instances[] = {{"var.a=y var.b=z var.c=y var.d=x", 2, false},
                     {"var.a=x var.b=x var.c=y var.d=x", 2, true},
                     {"var.a=z var.b=y var.c=y var.d=z", 1, true},
                     {"var.a=z var.b=z var.c=y var.d=z", 2, false},
                     {"var.a=y var.b=z var.c=x var.d=y", 1, false},
                     {"var.a=x var.b=y var.c=y var.d=x", 1, false},
                     {"var.a=y var.b=x var.c=z var.d=y", 1, false},
                     {"var.a=z var.b=z var.c=y var.d=y", 5, false}};
    struct bench *bench = *state;
    about_parameters(bench);
    for (size_t i = 0; i < TOCSIN_COUNT_OF(instances); ++i)
        for (int n = 0; n < instances[i].count; ++n)
            (instances[i].fact ? holds : fails)(bench, 0, instances[i].fields);
    assert_string_equal(learned(bench, 1), "var.b=x & var.c=y | var.a=z & var.b=y");
}

/* Runs 0 and 1 saw the same; of run 2's own case the others teach, or do not. */
static void runs_that_confirm_are_counted(void **state)
{
    struct bench *bench = *state;
    about_parameters(bench);
    holds(bench, 0, "var.a=True var.b=x");
    holds(bench, 1, "var.a=True var.b=x");
    holds(bench, 2, "var.a=True var.b=z");
    fails(bench, 0, "var.a=False var.b=x");
    fails(bench, 1, "var.a=False var.b=x");
    assert_string_equal(learned(bench, 3), "var.a=true");
    assert_int_equal(judge(bench, 3).invariant.held_out, 3);
}

static void a_run_of_its_own_kind_confirms_nothing(void **state)
{
    struct bench *bench = *state;
    about_parameters(bench);
    holds(bench, 0, "var.a=x");
    holds(bench, 1, "var.a=x");
    holds(bench, 2, "var.a=z");
    holds(bench, 3, "var.a=z");
    holds(bench, 4, "var.a=w");
    fails(bench, 0, "var.a=y");
    fails(bench, 1, "var.a=y");
    assert_string_equal(learned(bench, 5), "var.a=x | var.a=z");
    assert_int_equal(judge(bench, 5).invariant.held_out, 4);
}

/* Three causes, and everything else: what is false has a form, what is true has none. */
static void wide_learning_may_invert(void **state)
{
    struct bench *bench = *state;
    about_parameters(bench);
    static const char *const values[] = {"x", "y", "z", "u", "v", "w"};
    for (int wide = 0; wide < 2; ++wide) {
        bench->writer.examples.wide = wide != 0;
        for (uint32_t run = 0; run < 2; ++run) {
            for (size_t i = 0; i < TOCSIN_COUNT_OF(values); ++i) {
                char fields[64];
                snprintf(fields, sizeof fields, "var.a=%s var.b=%s", values[i], values[i]);
                (i == 0 ? fails : holds)(bench, run, fields);
            }
        }
        assert_string_equal(learned(bench, 2),
                            wide ? "unless var.a=x" : "[superficial: no safe precondition]");
        tocsin_vocabulary *vocabulary = bench->writer.examples.vocabulary;
        tocsin_examples_free(&bench->writer.examples);
        bench->writer.examples = (tocsin_examples){.vocabulary = vocabulary};
    }
}

static void superficial_is_dropped(void **state)
{
    struct bench *bench = *state;
    about_parameters(bench);
    holds(bench, 0, "var.a=x");
    fails(bench, 0, "var.a=x");
    assert_string_equal(learned(bench, 1),
                        "[superficial: true and false in the same circumstances]");
}

static void identities_and_sizes_explain_nothing(void **state)
{
    struct bench *bench = *state;
    about_parameters(bench);
    holds(bench, 0, "meta.rank=0 meta.step=1 self.batch=8 var.shape=[8,2]");
    fails(bench, 0, "meta.rank=1 meta.step=2 self.batch=4 var.shape=[4,2]");
    assert_string_equal(learned(bench, 1),
                        "[superficial: true and false in the same circumstances]");
}

static void presence_may_explain(void **state)
{
    struct bench *bench = *state;
    about_parameters(bench);
    holds(bench, 0, "self.scaler=a");
    holds(bench, 0, "self.scaler=b");
    holds(bench, 0, "self.scaler=c");
    holds(bench, 0, "self.scaler=d");
    holds(bench, 0, "self.scaler=e");
    fails(bench, 0, "var.dtype=float32");
    assert_string_equal(learned(bench, 1), "self.scaler?");
}

static void one_run_is_no_support_where_two_are_given(void **state)
{
    struct bench *bench = *state;
    about_parameters(bench);
    holds(bench, 0, "var.dtype=float32");
    holds(bench, 0, "var.dtype=float32");
    assert_string_equal(learned(bench, 2), "[seen in one run only]");
    assert_string_equal(learned(bench, 1), "");
}

static void replicas_need_one_run_only(void **state)
{
    struct bench *bench = *state;
    about_replicas(bench);
    holds(bench, 0, "var.name=w");
    assert_string_equal(learned(bench, 3), "");
}

/* Two runs make it look unconditional; the third contradicts what they taught. */
static void instability_is_found_by_leaving_a_run_out(void **state)
{
    struct bench *bench = *state;
    about_parameters(bench);
    holds(bench, 0, "self.type=SGD");
    holds(bench, 1, "self.type=SGD");
    fails(bench, 2, "self.type=Adam");
    assert_string_equal(
        learned(bench, 3),
        "[not stable over runs: learned from the others, it alarms on one of them]");
}

static void a_case_of_one_run_is_left_out(void **state)
{
    struct bench *bench = *state;
    about_parameters(bench);
    holds(bench, 0, "var.a=x var.b=x");
    holds(bench, 1, "var.a=x var.b=x");
    holds(bench, 1, "var.a=y var.b=y");
    fails(bench, 0, "var.a=x var.b=y");
    fails(bench, 1, "var.a=x var.b=y");
    fails(bench, 0, "var.a=y var.b=x");
    fails(bench, 1, "var.a=y var.b=x");
    assert_string_equal(learned(bench, 2), "var.a=x & var.b=x");
}

static void the_micro_step_stays_context(void **state)
{
    struct bench *bench = *state;
    about(bench,
          (tocsin_population_key){.kind = TOCSIN_POPULATION_REPEATED_CALL,
                                  .role = TOCSIN_ROLE_BACKWARD},
          (tocsin_fact_key){.predicate = TOCSIN_PREDICATE_FOLLOWS,
                            .role = TOCSIN_ROLE_OPTIMIZER_STEP});
    holds(bench, 0, "meta.first_micro=True");
    holds(bench, 1, "meta.first_micro=True");
    assert_string_equal(learned(bench, 2), "meta.first_micro=true");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_bench, free_bench)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_negatives_it_is_unconditional),
        TEST(bloom),
        TEST(different_variables_only_argue_against),
        TEST(disjunction),
        TEST(split),
        TEST(the_most_significant_clause_comes_first),
        TEST(runs_that_confirm_are_counted),
        TEST(a_run_of_its_own_kind_confirms_nothing),
        TEST(wide_learning_may_invert),
        TEST(superficial_is_dropped),
        TEST(identities_and_sizes_explain_nothing),
        TEST(presence_may_explain),
        TEST(one_run_is_no_support_where_two_are_given),
        TEST(replicas_need_one_run_only),
        TEST(replicas_are_copies),
        TEST(steps_are_judged_by_what_they_hold),
        TEST(instability_is_found_by_leaving_a_run_out),
        TEST(a_case_of_one_run_is_left_out),
        TEST(the_micro_step_stays_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
