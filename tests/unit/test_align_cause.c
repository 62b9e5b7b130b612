/* Boundaries of one step, made by hand: what they are called, and whether a difference arose where
 * it is seen.
 */
#include "cmocka_test.h"

#include "align/align.h"

typedef struct hand_made {
    tocsin_intern names;
    tocsin_arena arena;
    tocsin_boundary_stream a, b;
    uint32_t partner[32];
} hand_made;

static uint32_t text(hand_made *step, const char *words)
{
    return tocsin_intern_put(&step->names, words, strlen(words));
}

typedef struct one { /* of both runs; the value of b is that of a if it is equal */
    const char *name, *attribute, *operation, *phase;
    uint64_t call;
    tocsin_moment moment;
    bool module, equal, unknown;
} one;

static uint32_t add(hand_made *step, one it)
{
    tocsin_boundary boundary = {.name = text(step, it.name),
                                .attribute = text(step, it.attribute),
                                .operation = text(step, it.operation),
                                .phase = text(step, it.phase),
                                .point = it.call << 2 | it.moment,
                                .micro_batch = 1,
                                .present = true,
                                .digested = !it.unknown};
    boundary.gradient = strcmp(it.attribute, "grad") == 0;
    boundary.parameter = strstr(it.name, "weight") != NULL;
    tocsin_call_chain *chain = TOCSIN_ARENA_NEW(&step->arena, tocsin_call_chain);
    assert_non_null(chain);
    *chain = (tocsin_call_chain){.operation = boundary.operation,
                                 .module = it.module ? boundary.name : 0};
    boundary.chain = chain;
    uint32_t at = (uint32_t)step->a.items.count;
    tocsin_align_item item = {.value = it.unknown ? 0 : 7, .symbol = boundary.name};
    assert_true(TOCSIN_VEC_PUSH(&step->a.items, item));
    assert_true(TOCSIN_VEC_PUSH(&step->a.boundaries, boundary));
    item.value += it.equal || it.unknown ? 0 : 1;
    assert_true(TOCSIN_VEC_PUSH(&step->b.items, item));
    assert_true(TOCSIN_VEC_PUSH(&step->b.boundaries, boundary));
    step->partner[at] = at;
    return at;
}

static void free_step(hand_made *step)
{
    TOCSIN_VEC_FREE(&step->a.items);
    TOCSIN_VEC_FREE(&step->a.boundaries);
    TOCSIN_VEC_FREE(&step->b.items);
    TOCSIN_VEC_FREE(&step->b.boundaries);
    tocsin_intern_free(&step->names);
    tocsin_arena_free(&step->arena);
}

static tocsin_align_cause cause_of(hand_made *step, uint32_t at, uint32_t *source)
{
    static const tocsin_align_options exact;
    tocsin_paired_step pair = {.a = &step->a,
                               .b = &step->b,
                               .partner = step->partner,
                               .names = &step->names,
                               .options = &exact,
                               .step = 2};
    return tocsin_align_cause_find(&pair, at, source);
}

static const one module_input = {.name = "layers.0",
                                 .attribute = "input",
                                 .operation = "call",
                                 .phase = "forward",
                                 .call = 1,
                                 .moment = TOCSIN_MOMENT_ENTER,
                                 .module = true,
                                 .equal = true};
static const one module_output = {.name = "layers.0",
                                  .attribute = "output",
                                  .operation = "call",
                                  .phase = "forward",
                                  .call = 1,
                                  .moment = TOCSIN_MOMENT_EXIT,
                                  .module = true};
static const one back = {.name = "layers.0",
                         .attribute = "grad_output",
                         .operation = "backward",
                         .phase = "backward",
                         .call = 2,
                         .moment = TOCSIN_MOMENT_EXIT,
                         .equal = true};
static const one weight = {.name = "layers.0.weight",
                           .attribute = "data",
                           .operation = "optimizer.step",
                           .phase = "optimizer",
                           .call = 3,
                           .moment = TOCSIN_MOMENT_ENTER,
                           .equal = true};
static const one gradient = {.name = "layers.0.weight",
                             .attribute = "grad",
                             .operation = "optimizer.step",
                             .phase = "optimizer",
                             .call = 3,
                             .moment = TOCSIN_MOMENT_ENTER};

static void test_output(void **state)
{
    (void)state;
    for (unsigned which = 0; which < 5; ++which) {
        hand_made step = {0};
        one input = module_input, held = weight;
        input.equal = which != 1;
        input.unknown = which == 2;
        uint32_t into = add(&step, input);
        uint32_t at = add(&step, module_output), source;
        if (which == 4)
            held.name = "layers.00.weight"; /* another module's */
        held.equal = which != 3 && which != 4;
        uint32_t parameter = add(&step, held);
        tocsin_align_cause cause = cause_of(&step, at, &source);
        assert_int_equal(cause, which == 1 || which == 3 ? TOCSIN_ALIGN_CAUSE_UPSTREAM
                                : which == 2             ? TOCSIN_ALIGN_CAUSE_UNOBSERVED
                                                         : TOCSIN_ALIGN_CAUSE_PRODUCED);
        assert_int_equal(source, which == 1 ? into : which == 3 ? parameter : TOCSIN_ALIGN_NONE);
        free_step(&step);
    }
}

static void test_output_without_inputs(void **state)
{
    (void)state;
    hand_made step = {0};
    uint32_t at = add(&step, module_output), source;
    add(&step, weight);
    assert_int_equal(cause_of(&step, at, &source), TOCSIN_ALIGN_CAUSE_UNOBSERVED);
    free_step(&step);
}

static void test_gradient(void **state)
{
    (void)state;
    for (unsigned which = 0; which < 4;
         ++which) { /* bit 0: input is there; bit 1: what came back */
        hand_made step = {0};
        uint32_t source;
        if (which & 1)
            add(&step, module_input);
        if (which & 2)
            add(&step, back);
        uint32_t at = add(&step, gradient);
        assert_int_equal(cause_of(&step, at, &source),
                         which == 3 ? TOCSIN_ALIGN_CAUSE_PRODUCED : TOCSIN_ALIGN_CAUSE_UNOBSERVED);
        free_step(&step);
    }
}

static void test_gradient_after_backward(void **state)
{
    (void)state;
    for (unsigned equal = 0; equal < 2; ++equal) {
        hand_made step = {0};
        one left = gradient;
        left.phase = left.operation = "backward";
        left.call = 2;
        left.moment = TOCSIN_MOMENT_EXIT;
        left.equal = equal;
        add(&step, left);
        uint32_t at = add(&step, gradient), source;
        assert_int_equal(cause_of(&step, at, &source),
                         equal ? TOCSIN_ALIGN_CAUSE_PRODUCED : TOCSIN_ALIGN_CAUSE_UPSTREAM);
        free_step(&step);
    }
}

static void test_update(void **state)
{
    (void)state;
    hand_made step = {0};
    one left = weight, moments = weight;
    left.moment = moments.moment = TOCSIN_MOMENT_EXIT;
    left.equal = moments.equal = false;
    moments.name = "layers.0.weight#exp_avg";
    one equal_gradient = gradient;
    equal_gradient.equal = true;
    add(&step, weight);
    add(&step, equal_gradient);
    uint32_t at = add(&step, left), state_at = add(&step, moments), source;
    assert_int_equal(cause_of(&step, at, &source), TOCSIN_ALIGN_CAUSE_PRODUCED);
    assert_int_equal(cause_of(&step, state_at, &source), TOCSIN_ALIGN_CAUSE_PRODUCED);
    free_step(&step);
}

static void check_id(hand_made *step, uint32_t at, const char *expected)
{
    tocsin_string id = {0};
    tocsin_boundary_id(&step->names, &step->a.boundaries.items[at], &id);
    assert_string_equal(tocsin_string_text(&id), expected);
    assert_true(tocsin_boundary_fits(expected, expected));
    tocsin_string_free(&id);
}

static void test_identity(void **state)
{
    (void)state;
    hand_made step = {0};
    one left = gradient, nowhere = weight;
    left.moment = TOCSIN_MOMENT_EXIT;
    nowhere.phase = "";
    check_id(&step, add(&step, module_output), "forward/layers.0/output@call");
    check_id(&step, add(&step, gradient), "optimizer/layers.0.weight/grad@optimizer.step");
    check_id(&step, add(&step, left), "optimizer/layers.0.weight/grad@optimizer.step/end");
    check_id(&step, add(&step, nowhere), "-/layers.0.weight/data@optimizer.step");
    uint32_t second = add(&step, module_output);
    assert_int_equal(tocsin_boundary_ordinal(&step.a, 0), 1);
    assert_int_equal(tocsin_boundary_ordinal(&step.a, second), 2);
    step.a.boundaries.items[second].micro_batch = 2;
    assert_int_equal(tocsin_boundary_ordinal(&step.a, second), 1);
    free_step(&step);
}

static void test_patterns(void **state)
{
    (void)state;
    assert_true(tocsin_boundary_fits("*", ""));
    assert_true(tocsin_boundary_fits("forward/*/output@*", "forward/a.b/output@call"));
    assert_true(tocsin_boundary_fits("*a*b*", "xxaxxbxx"));
    assert_false(tocsin_boundary_fits("a*b", "a"));
    assert_false(tocsin_boundary_fits("forward", "forward/"));
    assert_false(tocsin_boundary_fits("?", "a"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_output),   cmocka_unit_test(test_output_without_inputs),
        cmocka_unit_test(test_gradient), cmocka_unit_test(test_gradient_after_backward),
        cmocka_unit_test(test_update),   cmocka_unit_test(test_identity),
        cmocka_unit_test(test_patterns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
