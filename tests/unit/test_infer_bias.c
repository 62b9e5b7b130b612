/* Which statements are worth claiming, and what clauses may speak of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "infer_examples.h"

static tocsin_vocabulary *vocabulary;

static int make_vocabulary(void **state)
{
    (void)state;
    return (int)tocsin_vocabulary_new(&vocabulary, NULL);
}

static int free_vocabulary(void **state)
{
    (void)state;
    tocsin_vocabulary_free(vocabulary);
    return 0;
}

static tocsin_symbol symbol(const char *text)
{
    return text == NULL ? 0 : tocsin_symbol_of(vocabulary, text);
}

static tocsin_population population(uint8_t kind, uint8_t role, const char *name)
{
    tocsin_population_key key = {.kind = kind, .role = role, .name = symbol(name)};
    return tocsin_population_of(vocabulary, &key);
}

static tocsin_scalar scalar(const char *text)
{
    tocsin_scalar scalar;
    assert_int_equal(parse_scalar(vocabulary, text, &scalar), TOCSIN_OK);
    return scalar;
}

static tocsin_drop order(uint8_t role, uint8_t before)
{
    tocsin_fact_key key = {.predicate = TOCSIN_PREDICATE_FOLLOWS, .role = before};
    return tocsin_bias_of_fact(vocabulary, population(TOCSIN_POPULATION_REPEATED_CALL, role, NULL),
                               tocsin_fact_of(vocabulary, &key));
}

static void order_is_that_of_the_loop(void **state)
{
    (void)state;
    assert_int_equal(order(TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_ROLE_BACKWARD), TOCSIN_DROP_KEPT);
    assert_int_equal(order(TOCSIN_ROLE_ZERO_GRAD, TOCSIN_ROLE_BACKWARD), TOCSIN_DROP_KEPT);
    assert_int_equal(order(TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_ROLE_ZERO_GRAD),
                     TOCSIN_DROP_UNSTABLE_ORDER); /* p.grad = None does it too */
    assert_int_equal(order(TOCSIN_ROLE_CLIP_GRAD, TOCSIN_ROLE_BACKWARD), TOCSIN_DROP_KEPT);
    assert_int_equal(order(TOCSIN_ROLE_OPTIMIZER_STEP, TOCSIN_ROLE_CLIP_GRAD),
                     TOCSIN_DROP_UNSTABLE_ORDER);
    assert_int_equal(order(TOCSIN_ROLE_BACKWARD, TOCSIN_ROLE_CLIP_GRAD),
                     TOCSIN_DROP_UNSTABLE_ORDER);
    assert_int_equal(order(TOCSIN_ROLE_LOSS, TOCSIN_ROLE_BACKWARD), TOCSIN_DROP_UNSTABLE_ORDER);
    assert_int_equal(order(TOCSIN_ROLE_BACKWARD, TOCSIN_ROLE_LOSS), TOCSIN_DROP_UNSTABLE_ORDER);
}

static tocsin_drop calls(uint8_t role, const char *caller, uint8_t callee_role, const char *callee)
{
    tocsin_fact_key key = {
        .predicate = TOCSIN_PREDICATE_CALLS, .role = callee_role, .name = symbol(callee)};
    return tocsin_bias_of_fact(vocabulary, population(TOCSIN_POPULATION_CALL, role, caller),
                               tocsin_fact_of(vocabulary, &key));
}

static void containment_is_of_the_library_and_of_verbs(void **state)
{
    (void)state;
    assert_int_equal(calls(0, "torch.nn.functional.linear", 0, "torch._C._nn.linear"),
                     TOCSIN_DROP_KEPT);
    assert_int_equal(calls(0, "model.Net.forward", 0, "torch.relu"), TOCSIN_DROP_ARCHITECTURE);
    assert_int_equal(calls(0, "torch.nn.functional.relu", 0, "torch.relu"),
                     TOCSIN_DROP_ARCHITECTURE); /* or relu_ */
    assert_int_equal(calls(0, "torch.nn.modules.container.Sequential.forward", 0, "torch.relu"),
                     TOCSIN_DROP_ARCHITECTURE);
    assert_int_equal(calls(0, "torch.optim.adam.Adam.step", 0, "torch.add"),
                     TOCSIN_DROP_OPTIMIZER_INTERNAL);
    assert_int_equal(calls(TOCSIN_ROLE_OPTIMIZER_STEP, NULL, 0, "torch.add"),
                     TOCSIN_DROP_OPTIMIZER_INTERNAL);
    assert_int_equal(calls(TOCSIN_ROLE_BACKWARD, NULL, TOCSIN_ROLE_COLLECTIVE, NULL),
                     TOCSIN_DROP_ARCHITECTURE);
    assert_int_equal(calls(TOCSIN_ROLE_SCALER, NULL, TOCSIN_ROLE_OPTIMIZER_STEP, NULL),
                     TOCSIN_DROP_KEPT);
    assert_int_equal(calls(0, "torch.amp.GradScaler.step", 0, "torch.optim.adam.Adam.step"),
                     TOCSIN_DROP_ARCHITECTURE);
}

static tocsin_drop argument_of(const char *function, const char *field, const char *value)
{
    tocsin_fact_key key = {.predicate = TOCSIN_PREDICATE_ARGUMENT_IS, .name = symbol(field)};
    key.value = scalar(value);
    tocsin_fact fact = tocsin_fact_of(vocabulary, &key);
    assert_true(tocsin_bias_wants_contrast(vocabulary, fact));
    return tocsin_bias_of_fact(vocabulary,
                               population(TOCSIN_POPULATION_CALL_ARGUMENTS, 0, function), fact);
}

static tocsin_drop argument(const char *field, const char *value)
{
    return argument_of("torch.dropout", field, value);
}

static void what_is_returned_is_of_the_programs_class(void **state)
{
    (void)state;
    static const struct {
        const char *field, *value;
        tocsin_drop drop;
    } cases[] = {
        {"return.type", "dict", TOCSIN_DROP_DATA_FLOW},
        {"return.dtype", "bfloat16", TOCSIN_DROP_KEPT},
        {"return", "None", TOCSIN_DROP_KEPT},
    };
    for (size_t i = 0; i < TOCSIN_COUNT_OF(cases); ++i) {
        tocsin_fact_key key = {.predicate = TOCSIN_PREDICATE_RETURN_IS,
                               .name = symbol(cases[i].field)};
        key.value = scalar(cases[i].value);
        assert_int_equal(tocsin_bias_of_fact(
                             vocabulary, population(TOCSIN_POPULATION_CALL_OUTPUT, 0, "torch.load"),
                             tocsin_fact_of(vocabulary, &key)),
                         cases[i].drop);
    }
}

static void sizes_are_promised_by_layers(void **state)
{
    (void)state;
    static const struct {
        const char *function, *field, *other;
        bool kept;
    } cases[] = {
        {"torch.nn.functional.linear", "return.shape[0]", "arg.input.shape[0]", true},
        {"torch.nn.functional.linear", "return.dtype", "arg.input.dtype", true},
        {"torch.relu", "return.shape", "arg.arg0.shape", true},
        {"torch.Tensor.random_", "return.shape", "self.shape", true},
        {"mine.process", "return.shape[0]", "arg.images.length", true},
        {"torch.sum", "return.shape[0]", "arg.arg0.shape[0]", false}, /* reduces */
        {"torch.where", "return.ndim", "arg.arg0.ndim", false},       /* broadcasts */
        {"torch.add", "return.dtype", "arg.arg0.dtype", false},       /* promotes */
        {"torch.linalg.vector_norm", "return.shape", "arg.arg0.shape", false},
        {"torch.utils.checkpoint.checkpoint", "return.shape", "arg.arg1.shape", false},
    };
    for (size_t i = 0; i < TOCSIN_COUNT_OF(cases); ++i) {
        tocsin_fact_key key = {.predicate = TOCSIN_PREDICATE_RETURN_MATCHES,
                               .name = symbol(cases[i].field),
                               .other = symbol(cases[i].other)};
        tocsin_drop drop = tocsin_bias_of_fact(
            vocabulary, population(TOCSIN_POPULATION_CALL_OUTPUT, 0, cases[i].function),
            tocsin_fact_of(vocabulary, &key));
        assert_int_equal(drop == TOCSIN_DROP_KEPT, cases[i].kept);
    }
}

static void arguments_are_flags_words_and_off(void **state)
{
    (void)state;
    assert_int_equal(argument("arg.inplace", "False"), TOCSIN_DROP_KEPT);
    assert_int_equal(argument("arg.training", "False"), TOCSIN_DROP_OPTION);
    assert_int_equal(argument("arg.dropout_p", "0"), TOCSIN_DROP_OPTION);
    assert_int_equal(argument_of("torch.batch_norm", "arg.arg5", "True"), TOCSIN_DROP_OPTION);
    assert_int_equal(argument_of("torch.empty", "arg.device", "None"), TOCSIN_DROP_OPTION);
    assert_int_equal(argument_of("torch.nn.Module.train", "arg.mode", "True"), TOCSIN_DROP_OPTION);
    assert_int_equal(argument_of("torch.optim.Optimizer.zero_grad", "arg.set_to_none", "True"),
                     TOCSIN_DROP_OPTION);
    assert_int_equal(argument_of("package.train", "arg.mode", "True"), TOCSIN_DROP_KEPT);
    assert_int_equal(argument("arg.reduction", "mean"), TOCSIN_DROP_KEPT);
    assert_int_equal(argument("arg.p", "0"), TOCSIN_DROP_KEPT);
    assert_int_equal(argument("self.training", "True"), TOCSIN_DROP_KEPT);
    assert_int_equal(argument_of("torch.nn.Module.train", "self.training", "True"),
                     TOCSIN_DROP_OPTION);
    assert_int_equal(argument_of("torch.nn.Module.state_dict", "self.training", "True"),
                     TOCSIN_DROP_OPTION);
    assert_int_equal(argument("self.capturable", "False"), TOCSIN_DROP_OPTION);
    assert_int_equal(argument_of("torch.Tensor.normal_", "arg.generator", "None"),
                     TOCSIN_DROP_OPTION);
    assert_int_equal(argument_of("torch.nn.init.zeros_", "arg.p", "0"), TOCSIN_DROP_OPTION);
    assert_int_equal(argument("arg.p", "3"), TOCSIN_DROP_MAGNITUDE);
    assert_int_equal(argument("arg.input.dtype", "float32"), TOCSIN_DROP_DATA_FLOW);
    assert_int_equal(argument("arg.input.requires_grad", "True"), TOCSIN_DROP_DATA_FLOW);
    tocsin_literal tenth = {.kind = TOCSIN_VALUE_FLOAT, .real = 0.1};
    tocsin_fact_key key = {.predicate = TOCSIN_PREDICATE_ARGUMENT_IS, .name = symbol("arg.p")};
    key.value = tocsin_scalar_of(vocabulary, &tenth);
    assert_int_equal(
        tocsin_bias_of_fact(vocabulary,
                            population(TOCSIN_POPULATION_CALL_ARGUMENTS, 0, "torch.dropout"),
                            tocsin_fact_of(vocabulary, &key)),
        TOCSIN_DROP_MAGNITUDE);
}

static bool allows_scalar(tocsin_population of, const char *name, tocsin_scalar value)
{
    return tocsin_bias_allows_field(false, tocsin_population_relation(vocabulary, of),
                                    tocsin_population_is_pair(vocabulary, of),
                                    tocsin_bias_name_traits(name),
                                    tocsin_bias_value_traits(vocabulary, value));
}

static bool allows(tocsin_population of, const char *name, const char *value)
{
    return allows_scalar(of, name, scalar(value));
}

static void clauses_speak_of_what_carries_over(void **state)
{
    (void)state;
    tocsin_population output = population(TOCSIN_POPULATION_CALL_OUTPUT, 0, "torch.add");
    tocsin_population arguments = population(TOCSIN_POPULATION_CALL_ARGUMENTS, 0, "torch.add");
    assert_true(allows(output, "arg.input.dtype", "float32"));
    assert_true(allows(output, "arg.input.ndim", "2"));
    assert_true(allows(output, "meta.world_size", "2"));
    assert_false(allows(output, "arg.size", "2"));
    assert_false(allows(output, "self.groups", "2"));
    assert_false(allows(output, "meta.rank", "0"));
    assert_false(allows(output, "var.shape", "[2]"));
    tocsin_literal opaque = {.kind = TOCSIN_VALUE_STRING, .text = "an int"};
    assert_false(allows_scalar(output, "arg.size", tocsin_scalar_of(vocabulary, &opaque)));
    assert_false(allows(arguments, "arg.input.dtype", "float32"));
    assert_true(allows(arguments, "self.training", "True"));
    assert_false(tocsin_bias_allows_constant(vocabulary, false, symbol("var.name"), scalar("w")));
}

static void context_is_kept_where_precision_and_mode_matter(void **state)
{
    (void)state;
    tocsin_population output = population(TOCSIN_POPULATION_CALL_OUTPUT, 0, "torch.add");
    tocsin_population arguments = population(TOCSIN_POPULATION_CALL_ARGUMENTS, 0, "torch.add");
    tocsin_population step =
        population(TOCSIN_POPULATION_REPEATED_CALL, TOCSIN_ROLE_OPTIMIZER_STEP, NULL);
    tocsin_population backward =
        population(TOCSIN_POPULATION_REPEATED_CALL, TOCSIN_ROLE_BACKWARD, NULL);
    static const struct {
        const char *field;
        tocsin_context output, arguments, backward, step;
    } expected[] = {
        {"arg.input.dtype", TOCSIN_CONTEXT_PRECISION, 0, 0, 0},
        {"arg.dtype", 0, 0, 0, 0},
        {"meta.autocast", TOCSIN_CONTEXT_PRECISION, TOCSIN_CONTEXT_PRECISION, 0, 0},
        {"meta.stage", TOCSIN_CONTEXT_MODE, TOCSIN_CONTEXT_MODE, 0, 0},
        /* An update without any backward must stay judged. */
        {"meta.first_micro", 0, 0, TOCSIN_CONTEXT_MODE, 0},
    };
    for (size_t i = 0; i < TOCSIN_COUNT_OF(expected); ++i) {
        tocsin_symbol field = symbol(expected[i].field);
        assert_int_equal(tocsin_bias_context(vocabulary, output, field), expected[i].output);
        assert_int_equal(tocsin_bias_context(vocabulary, arguments, field), expected[i].arguments);
        assert_int_equal(tocsin_bias_context(vocabulary, backward, field), expected[i].backward);
        assert_int_equal(tocsin_bias_context(vocabulary, step, field), expected[i].step);
    }
}

/* A user who meets a reason finds it in docs/inference.md. */
static void every_reason_is_documented(void **state)
{
    (void)state;
    const char *source = getenv("TOCSIN_SOURCE");
    char path[512];
    snprintf(path, sizeof path, "%s/docs/inference.md", source != NULL ? source : ".");
    tocsin_string page = {0};
    assert_int_equal(tocsin_file_load(path, 1 << 20, &page, NULL), TOCSIN_OK);
    for (int drop = TOCSIN_DROP_KEPT + 1; drop < TOCSIN_DROP_COUNT; ++drop) {
        char row[256];
        snprintf(row, sizeof row, "\n| %s |", tocsin_drop_reason((tocsin_drop)drop));
        if (strstr(tocsin_string_text(&page), row) == NULL)
            fail_msg("not in docs/inference.md: %s", tocsin_drop_reason((tocsin_drop)drop));
    }
    tocsin_string_free(&page);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_vocabulary, free_vocabulary)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(order_is_that_of_the_loop),
        TEST(containment_is_of_the_library_and_of_verbs),
        TEST(what_is_returned_is_of_the_programs_class),
        TEST(sizes_are_promised_by_layers),
        TEST(arguments_are_flags_words_and_off),
        TEST(clauses_speak_of_what_carries_over),
        TEST(context_is_kept_where_precision_and_mode_matter),
        TEST(every_reason_is_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
