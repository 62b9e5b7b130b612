/* Learning from tables and from runs: roles before names, order and threads without influence,
 * dropped hypotheses with their reason, wrong arguments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "healthy_runs.h"
#include "infer_examples.h"

/* ---- runs ---------------------------------------------------------------------------------- */

struct runs {
    char directory[64];
    char paths[3][96];
};

static int make_runs(void **state)
{
    struct runs *runs = calloc(1, sizeof *runs);
    char directory[] = "/tmp/tocsin-infer-XXXXXX";
    assert_non_null(mkdtemp(directory));
    memcpy(runs->directory, directory, sizeof directory);
    for (int i = 0; i < 3; ++i) {
        snprintf(runs->paths[i], sizeof runs->paths[i], "%s/run%d", directory, i);
        assert_true(write_run(runs->paths[i], 4 + i, (uint64_t)i * 1000));
    }
    *state = runs;
    return 0;
}

static int remove_runs(void **state)
{
    struct runs *runs = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", runs->directory);
    int status = system(command);
    free(runs);
    return status;
}

/* The set as its file's text. */
static char *infer_text(struct runs *runs, const int *order, size_t count, unsigned threads)
{
    const char *directories[3];
    for (size_t i = 0; i < count; ++i)
        directories[i] = runs->paths[order[i]];
    tocsin_infer_options options = {.struct_bytes = sizeof options, .threads = threads};
    tocsin_invariant_set *set;
    tocsin_infer_summary summary;
    tocsin_error error = {0};
    tocsin_status status = tocsin_infer(directories, count, &options, &set, &summary, &error);
    assert_string_equal(error.message, "");
    assert_int_equal(status, TOCSIN_OK);
    assert_int_equal(summary.kept, tocsin_invariants_count(set));
    assert_int_equal(summary.kept + summary.dropped, summary.hypotheses);
    assert_true(summary.events > 0 && summary.instances > 0);
    char path[128];
    snprintf(path, sizeof path, "%s/inv.jsonl", runs->directory);
    assert_int_equal(tocsin_invariants_save(set, path, 1, NULL), TOCSIN_OK);
    tocsin_invariants_free(set);
    tocsin_string content = {0};
    assert_int_equal(tocsin_file_load(path, 1 << 20, &content, NULL), TOCSIN_OK);
    return content.text;
}

static void order_of_runs_and_threads_have_no_influence(void **state)
{
    static const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}};
    char *first = infer_text(*state, orders[0], 3, 1);
    for (size_t i = 0; i < TOCSIN_COUNT_OF(orders); ++i) {
        char *other = infer_text(*state, orders[i], 3, 3);
        assert_string_equal(first, other);
        tocsin_free(other);
    }
    tocsin_free(first);
}

static void a_healthy_loop_teaches_its_laws(void **state)
{
    static const int order[] = {0, 1};
    char *text = infer_text(*state, order, 2, 0);
    assert_non_null(strstr(text, "zero_grad"));
    assert_non_null(strstr(text, "data changes"));
    assert_non_null(strstr(text, "gradient present"));
    assert_non_null(strstr(text, "belongs to the model"));
    tocsin_free(text);
}

static void wrong_arguments_are_refused(void **state)
{
    struct runs *runs = *state;
    tocsin_invariant_set *set = (void *)runs;
    tocsin_error error;
    assert_int_equal(tocsin_infer(NULL, 0, NULL, &set, NULL, &error), TOCSIN_E_ARGUMENT);
    assert_null(set);
    const char *missing[] = {runs->paths[0], "/nonexistent/run"};
    assert_int_equal(tocsin_infer(missing, 2, NULL, &set, NULL, &error), TOCSIN_E_NOT_FOUND);
    assert_null(set);
    const char *many[TOCSIN_INFER_RUNS_MAX + 1] = {0};
    assert_int_equal(tocsin_infer(many, TOCSIN_COUNT_OF(many), NULL, &set, NULL, &error),
                     TOCSIN_E_LIMIT);
    tocsin_infer_options unknown = {.struct_bytes = 1};
    assert_int_equal(tocsin_infer(missing, 1, &unknown, &set, NULL, &error), TOCSIN_E_ARGUMENT);
}

/* ---- tables -------------------------------------------------------------------------------- */

struct dropped {
    size_t count;
    char last[256];
};

static void note_dropped(void *context, const char *relation, const char *sentence,
                         const char *reason)
{
    struct dropped *dropped = context;
    ++dropped->count;
    assert_true(relation[0] != 0 && sentence[0] != 0);
    snprintf(dropped->last, sizeof dropped->last, "%s", reason);
}

/* Two callables with the same instances: the one by name and the one by role. */
static void a_role_speaks_for_its_function(void **state)
{
    (void)state;
    tocsin_invariant_set *set;
    assert_int_equal(tocsin_invariants_new(&set, NULL), TOCSIN_OK);
    tocsin_vocabulary *vocabulary = tocsin_invariants_vocabulary(set);
    examples_writer writer = {.examples = {.vocabulary = vocabulary}};
    tocsin_fact_key fact_key = {.predicate = TOCSIN_PREDICATE_CALLS,
                                .role = TOCSIN_ROLE_OPTIMIZER_STEP};
    tocsin_fact fact = tocsin_fact_of(vocabulary, &fact_key);
    tocsin_population_key by_role = {.kind = TOCSIN_POPULATION_CALL, .role = TOCSIN_ROLE_SCALER};
    tocsin_population_key by_name = {.kind = TOCSIN_POPULATION_CALL};
    by_name.name = tocsin_symbol_of(vocabulary, "torch.amp.GradScaler.step");
    tocsin_population populations[] = {tocsin_population_of(vocabulary, &by_name),
                                       tocsin_population_of(vocabulary, &by_role)};
    for (size_t p = 0; p < 2; ++p) {
        writer.population = populations[p];
        for (uint32_t run = 0; run < 2; ++run)
            assert_int_equal(write_example(&writer, run, "meta.stage=training", fact), TOCSIN_OK);
    }
    struct dropped dropped = {0};
    tocsin_infer_options options = {
        .struct_bytes = sizeof options, .dropped = note_dropped, .context = &dropped};
    tocsin_infer_summary summary = {0};
    assert_int_equal(tocsin_learn(&writer.examples, 2, &options, set, &summary, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_invariants_count(set), 1);
    assert_int_equal(tocsin_invariants_get(set, 0)->population, populations[1]);
    assert_int_equal(dropped.count, 1);
    assert_string_equal(dropped.last, "the same is said of the function's role");
    tocsin_examples_free(&writer.examples);
    tocsin_invariants_free(set);
}

static tocsin_fact fact_of(tocsin_vocabulary *vocabulary, uint8_t predicate, const char *name,
                           const char *other)
{
    tocsin_fact_key key = {.predicate = predicate, .name = tocsin_symbol_of(vocabulary, name)};
    key.other = other != NULL ? tocsin_symbol_of(vocabulary, other) : 0;
    return tocsin_fact_of(vocabulary, &key);
}

static void write_twice(examples_writer *writer, tocsin_population_key key, const char *fields,
                        const tocsin_fact *facts, uint32_t count)
{
    writer->population = tocsin_population_of(writer->examples.vocabulary, &key);
    for (uint32_t run = 0; run < 2; ++run)
        assert_int_equal(write_instance(writer, run, fields, facts, count), TOCSIN_OK);
}

/* optimizer.step calls adam, which calls sqrt: what sqrt returns is no law of training. But relu's
 * output has its input's shape, and that says its batch, too. */
static void machinery_and_implied_claims_are_left_out(void **state)
{
    (void)state;
    tocsin_invariant_set *set;
    assert_int_equal(tocsin_invariants_new(&set, NULL), TOCSIN_OK);
    tocsin_vocabulary *vocabulary = tocsin_invariants_vocabulary(set);
    examples_writer writer = {.examples = {.vocabulary = vocabulary}};
    tocsin_fact calls_adam =
        fact_of(vocabulary, TOCSIN_PREDICATE_CALLS, "torch.optim.adam.adam", NULL);
    tocsin_fact calls_sqrt = fact_of(vocabulary, TOCSIN_PREDICATE_CALLS, "torch.sqrt", NULL);
    tocsin_fact matches[] = {
        fact_of(vocabulary, TOCSIN_PREDICATE_RETURN_MATCHES, "return.shape", "arg.x.shape"),
        fact_of(vocabulary, TOCSIN_PREDICATE_RETURN_MATCHES, "return.shape[0]", "arg.x.shape[0]"),
        fact_of(vocabulary, TOCSIN_PREDICATE_RETURN_MATCHES, "return.ndim", "arg.x.ndim"),
        /* a vector as long as the batch is large */
        fact_of(vocabulary, TOCSIN_PREDICATE_RETURN_MATCHES, "return.shape[0]", "arg.y.shape[0]")};
    assert_true(matches[0] < matches[1] && matches[1] < matches[2] && matches[2] < matches[3]);
    tocsin_population_key step = {.kind = TOCSIN_POPULATION_CALL,
                                  .role = TOCSIN_ROLE_OPTIMIZER_STEP};
    tocsin_population_key adam = {.kind = TOCSIN_POPULATION_CALL};
    tocsin_population_key output = {.kind = TOCSIN_POPULATION_CALL_OUTPUT};
    adam.name = tocsin_symbol_of(vocabulary, "torch.optim.adam.adam");
    write_twice(&writer, step, "meta.stage=training", &calls_adam, 1);
    write_twice(&writer, adam, "meta.stage=training", &calls_sqrt, 1);
    output.name = tocsin_symbol_of(vocabulary, "torch.sqrt");
    write_twice(&writer, output, "meta.stage=training", matches, 4);
    output.name = tocsin_symbol_of(vocabulary, "torch.relu");
    write_twice(&writer, output, "meta.stage=training", matches, 4);
    tocsin_infer_summary summary = {0};
    assert_int_equal(tocsin_learn(&writer.examples, 2, NULL, set, &summary, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_invariants_count(set), 1);
    assert_int_equal(tocsin_invariants_get(set, 0)->fact, matches[0]);
    assert_int_equal(tocsin_invariants_get(set, 0)->population,
                     tocsin_population_of(vocabulary, &output));
    tocsin_examples_free(&writer.examples);
    tocsin_invariants_free(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(order_of_runs_and_threads_have_no_influence, make_runs,
                                        remove_runs),
        cmocka_unit_test_setup_teardown(a_healthy_loop_teaches_its_laws, make_runs, remove_runs),
        cmocka_unit_test_setup_teardown(wrong_arguments_are_refused, make_runs, remove_runs),
        cmocka_unit_test(a_role_speaks_for_its_function),
        cmocka_unit_test(machinery_and_implied_claims_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
