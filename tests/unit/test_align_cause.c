/* Boundaries of one step, made by hand: what they are called, and whether a difference arose where
 * it is seen.
 */
#include "made_step.h"

static tocsin_align_cause cause_of(made_step *step, uint32_t at, uint32_t *source)
{
    tocsin_paired_step pair = made_pair(step);
    return tocsin_align_cause_find(&pair, at, source);
}

static const made_boundary module_input = {.name = "layers.0",
                                           .attribute = "input",
                                           .operation = "call",
                                           .phase = "forward",
                                           .call = 1,
                                           .moment = TOCSIN_MOMENT_ENTER,
                                           .module = true,
                                           .a = 7,
                                           .b = 7};
static const made_boundary module_output = {.name = "layers.0",
                                            .attribute = "output",
                                            .operation = "call",
                                            .phase = "forward",
                                            .call = 1,
                                            .moment = TOCSIN_MOMENT_EXIT,
                                            .module = true,
                                            .a = 7,
                                            .b = 8};
static const made_boundary back = {.name = "layers.0",
                                   .attribute = "grad_output",
                                   .operation = "backward",
                                   .phase = "backward",
                                   .call = 2,
                                   .moment = TOCSIN_MOMENT_EXIT,
                                   .a = 7,
                                   .b = 7};
static const made_boundary weight = {.name = "layers.0.weight",
                                     .attribute = "data",
                                     .operation = "optimizer.step",
                                     .phase = "optimizer",
                                     .call = 3,
                                     .moment = TOCSIN_MOMENT_ENTER,
                                     .a = 7,
                                     .b = 7};
static const made_boundary gradient = {.name = "layers.0.weight",
                                       .attribute = "grad",
                                       .operation = "optimizer.step",
                                       .phase = "optimizer",
                                       .call = 3,
                                       .moment = TOCSIN_MOMENT_ENTER,
                                       .a = 7,
                                       .b = 8};

static void test_output(void **state)
{
    (void)state;
    for (unsigned which = 0; which < 5; ++which) {
        made_step step = {0};
        made_boundary input = module_input, held = weight;
        input.b = which == 1 ? 8 : 7;
        input.a = which == 2 ? 0 : 7;
        uint32_t into = made_add(&step, input);
        uint32_t at = made_add(&step, module_output), source;
        if (which == 4)
            held.name = "layers.00.weight"; /* another module's */
        held.b = which == 3 || which == 4 ? 8 : 7;
        uint32_t parameter = made_add(&step, held);
        tocsin_align_cause cause = cause_of(&step, at, &source);
        assert_int_equal(cause, which == 1 || which == 3 ? TOCSIN_ALIGN_CAUSE_UPSTREAM
                                : which == 2             ? TOCSIN_ALIGN_CAUSE_UNOBSERVED
                                                         : TOCSIN_ALIGN_CAUSE_PRODUCED);
        assert_int_equal(source, which == 1 ? into : which == 3 ? parameter : TOCSIN_ALIGN_NONE);
        made_free(&step);
    }
}

static void test_output_without_inputs(void **state)
{
    (void)state;
    made_step step = {0};
    uint32_t at = made_add(&step, module_output), source;
    made_add(&step, weight);
    assert_int_equal(cause_of(&step, at, &source), TOCSIN_ALIGN_CAUSE_UNOBSERVED);
    made_free(&step);
}

static void test_gradient(void **state)
{
    (void)state;
    for (unsigned which = 0; which < 4;
         ++which) { /* bit 0: input is there; bit 1: what came back */
        made_step step = {0};
        uint32_t source;
        if (which & 1)
            made_add(&step, module_input);
        if (which & 2)
            made_add(&step, back);
        uint32_t at = made_add(&step, gradient);
        assert_int_equal(cause_of(&step, at, &source),
                         which == 3 ? TOCSIN_ALIGN_CAUSE_PRODUCED : TOCSIN_ALIGN_CAUSE_UNOBSERVED);
        made_free(&step);
    }
}

static void test_gradient_after_backward(void **state)
{
    (void)state;
    for (unsigned equal = 0; equal < 2; ++equal) {
        made_step step = {0};
        made_boundary left = gradient;
        left.phase = left.operation = "backward";
        left.call = 2;
        left.moment = TOCSIN_MOMENT_EXIT;
        left.b = equal ? 7 : 8;
        made_add(&step, left);
        uint32_t at = made_add(&step, gradient), source;
        assert_int_equal(cause_of(&step, at, &source),
                         equal ? TOCSIN_ALIGN_CAUSE_PRODUCED : TOCSIN_ALIGN_CAUSE_UPSTREAM);
        made_free(&step);
    }
}

static void test_update(void **state)
{
    (void)state;
    for (unsigned which = 0; which < 3; ++which) { /* 0: the state is not read; 2: it differs */
        made_step step = {0};
        made_boundary left = weight, moments = weight, equal_gradient = gradient;
        left.moment = TOCSIN_MOMENT_EXIT;
        left.b = 8;
        equal_gradient.b = 7;
        moments.name = "layers.0.weight#exp_avg";
        moments.b = which == 2 ? 8 : 7;
        made_add(&step, weight);
        made_add(&step, equal_gradient);
        uint32_t held = which > 0 ? made_add(&step, moments) : TOCSIN_ALIGN_NONE, source;
        uint32_t at = made_add(&step, left);
        assert_int_equal(cause_of(&step, at, &source), which == 0   ? TOCSIN_ALIGN_CAUSE_UNOBSERVED
                                                       : which == 1 ? TOCSIN_ALIGN_CAUSE_PRODUCED
                                                                    : TOCSIN_ALIGN_CAUSE_UPSTREAM);
        assert_int_equal(source, which == 2 ? held : TOCSIN_ALIGN_NONE);
        made_free(&step);
    }
}

static void check_id(made_step *step, uint32_t at, const char *expected)
{
    tocsin_string id = {0};
    tocsin_boundary_id(&step->names, &step->a.boundaries.items[at], &id);
    assert_string_equal(tocsin_string_text(&id), expected);
    assert_true(tocsin_text_fits(expected, expected));
    tocsin_string_free(&id);
}

static void test_identity(void **state)
{
    (void)state;
    made_step step = {0};
    made_boundary left = gradient, nowhere = weight;
    left.moment = TOCSIN_MOMENT_EXIT;
    nowhere.phase = "";
    check_id(&step, made_add(&step, module_output), "forward/layers.0/output@call");
    check_id(&step, made_add(&step, gradient), "optimizer/layers.0.weight/grad@optimizer.step");
    check_id(&step, made_add(&step, left), "optimizer/layers.0.weight/grad@optimizer.step/end");
    check_id(&step, made_add(&step, nowhere), "-/layers.0.weight/data@optimizer.step");
    uint32_t second = made_add(&step, module_output);
    assert_int_equal(tocsin_boundary_ordinal(&step.a, 0), 1);
    assert_int_equal(tocsin_boundary_ordinal(&step.a, second), 2);
    step.a.boundaries.items[second].micro_batch = 2;
    assert_int_equal(tocsin_boundary_ordinal(&step.a, second), 1);
    made_free(&step);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_output),   cmocka_unit_test(test_output_without_inputs),
        cmocka_unit_test(test_gradient), cmocka_unit_test(test_gradient_after_backward),
        cmocka_unit_test(test_update),   cmocka_unit_test(test_identity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
