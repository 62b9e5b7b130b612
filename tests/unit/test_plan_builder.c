/* Plans made call by call: numbering, interning, and what the builder and the check refuse. */
#include "plan_example.h"
#include <math.h>

static uint32_t string(tocsin_plan *plan, const char *text)
{
    uint32_t id = tocsin_plan_string(plan, text, strlen(text));
    assert_true(id > 0);
    return id;
}

static void add_axis(tocsin_plan *plan, const char *name, uint32_t size, bool replica)
{
    assert_int_equal(tocsin_plan_add_axis(plan, name, size, replica, NULL), TOCSIN_OK);
}

/* A call that must fail, with a message that contains `expected`. */
#define REFUSED(status, expected, call)                                                            \
    do {                                                                                           \
        tocsin_error error = {0};                                                                  \
        assert_int_equal(call, status);                                                            \
        if (!strstr(error.message, expected))                                                      \
            fail_msg("%s", error.message);                                                         \
    } while (0)

static void test_numbering(void **state)
{
    (void)state;
    tocsin_plan *plan = tocsin_plan_new();
    assert_int_equal(tocsin_plan_devices(plan), 1);
    assert_int_equal(tocsin_plan_replicas(plan), 1);
    assert_int_equal(tocsin_plan_rank(plan, 0, 0), 0);
    add_axis(plan, "pp", 2, false);
    add_axis(plan, "dp", 3, true);
    add_axis(plan, "tp", 4, false);
    assert_int_equal(tocsin_plan_devices(plan), 8);
    assert_int_equal(tocsin_plan_replicas(plan), 3);
    assert_int_equal(tocsin_plan_rank(plan, 5, 2), (1 * 3 + 2) * 4 + 1); /* pp=1 tp=1 */
    uint32_t coordinates[TOCSIN_PLAN_AXES_MAX];
    tocsin_plan_coordinates(plan, 7, coordinates);
    assert_int_equal(coordinates[0], 1);
    assert_int_equal(coordinates[1], 0);
    assert_int_equal(coordinates[2], 3);
    tocsin_string text = {0};
    tocsin_plan_device_text(plan, 7, &text);
    assert_string_equal(text.text, "pp=1 tp=3");
    tocsin_string_free(&text);
    tocsin_plan_free(plan);
}

static void test_mesh_refused(void **state)
{
    (void)state;
    tocsin_plan *plan = tocsin_plan_new();
    add_axis(plan, "dp", 1 << 11, true);
    REFUSED(TOCSIN_E_FORMAT, "size 0", tocsin_plan_add_axis(plan, "tp", 0, false, &error));
    REFUSED(TOCSIN_E_FORMAT, "two axes dp", tocsin_plan_add_axis(plan, "dp", 2, false, &error));
    REFUSED(TOCSIN_E_FORMAT, "at most one replica axis",
            tocsin_plan_add_axis(plan, "ep", 2, true, &error));
    REFUSED(TOCSIN_E_LIMIT, "ranks", tocsin_plan_add_axis(plan, "tp", 1 << 12, false, &error));
    for (int i = 1; i < TOCSIN_PLAN_AXES_MAX; ++i) {
        char name[] = {'a', (char)('a' + i), 0};
        add_axis(plan, name, 1, false);
    }
    REFUSED(TOCSIN_E_LIMIT, "8 axes", tocsin_plan_add_axis(plan, "tp", 1, false, &error));
    REFUSED(TOCSIN_E_FORMAT, "at least one", tocsin_plan_set_microbatches(plan, 0, &error));
    REFUSED(TOCSIN_E_LIMIT, "at most",
            tocsin_plan_set_microbatches(plan, (uint64_t)TOCSIN_PLAN_MICROBATCHES_MAX + 1, &error));
    assert_int_equal(tocsin_plan_begin_role(plan, 0, 0, 1, NULL), TOCSIN_OK);
    REFUSED(TOCSIN_E_FORMAT, "comes before", tocsin_plan_add_axis(plan, "x", 1, false, &error));
    tocsin_plan_free(plan);
}

static void test_groups(void **state)
{
    (void)state;
    tocsin_plan *plan = tocsin_plan_new();
    add_axis(plan, "dp", 4, true);
    add_axis(plan, "tp", 2, false);
    tocsin_plan_member members[] = {{1, TOCSIN_MEMBER_ALL}, {0, TOCSIN_MEMBER_ALL}};
    uint32_t group = 9;
    assert_int_equal(tocsin_plan_add_group(plan, "g", members, 2, &group, NULL), TOCSIN_OK);
    assert_int_equal(group, 0);
    assert_int_equal(tocsin_plan_group_size(plan, 0), 8);
    REFUSED(TOCSIN_E_FORMAT, "no members",
            tocsin_plan_add_group(plan, "h", members, 0, &group, &error));
    members[1].replica = TOCSIN_MEMBER_SAME;
    REFUSED(TOCSIN_E_FORMAT, "some of one kind",
            tocsin_plan_add_group(plan, "h", members, 2, &group, &error));
    members[0].replica = members[1].replica = 3;
    assert_int_equal(tocsin_plan_add_group(plan, "h", members, 2, &group, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_plan_group_size(plan, 1), 2);
    members[1].device = 1;
    REFUSED(TOCSIN_E_FORMAT, "same member twice, at 0 and 1",
            tocsin_plan_add_group(plan, "i", members, 2, &group, &error));
    members[1].device = 2;
    REFUSED(TOCSIN_E_FORMAT, "device 2 of 2",
            tocsin_plan_add_group(plan, "i", members, 2, &group, &error));
    members[1].device = 0;
    members[1].replica = 4;
    REFUSED(TOCSIN_E_FORMAT, "replica 4 of 4",
            tocsin_plan_add_group(plan, "i", members, 2, &group, &error));
    members[1].replica = TOCSIN_MEMBER_ALL - 1;
    REFUSED(TOCSIN_E_FORMAT, "replica -3",
            tocsin_plan_add_group(plan, "i", members, 2, &group, &error));
    tocsin_plan_free(plan);
}

static tocsin_attribute integer(tocsin_plan *plan, const char *key, const int64_t *value)
{
    return (tocsin_attribute){
        .key = string(plan, key), .kind = TOCSIN_ATTRIBUTE_INTEGERS, .count = 1, .integers = value};
}

static tocsin_attribute real(tocsin_plan *plan, const char *key, double value)
{
    return (tocsin_attribute){
        .key = string(plan, key), .kind = TOCSIN_ATTRIBUTE_REAL, .real = value};
}

static uint32_t add_set(tocsin_plan *plan, const tocsin_attribute *items, uint32_t count)
{
    uint32_t set = 99;
    assert_int_equal(tocsin_plan_add_attributes(plan, items, count, &set, NULL), TOCSIN_OK);
    return set;
}

static void test_attributes(void **state)
{
    (void)state;
    tocsin_plan *plan = tocsin_plan_new();
    int64_t one = 1, two = 2;
    tocsin_attribute a = integer(plan, "a", &one), b = real(plan, "b", 0.5);
    assert_int_equal(add_set(plan, NULL, 0), 0);
    uint32_t ab = add_set(plan, (tocsin_attribute[]){a, b}, 2);
    assert_int_equal(add_set(plan, (tocsin_attribute[]){b, a}, 2), ab);
    assert_int_not_equal(add_set(plan, &a, 1), ab);
    one = 7; /* the integers were copied */
    assert_int_equal(tocsin_plan_attribute(plan, ab, "a")->integers[0], 1);
    assert_true(tocsin_plan_attribute(plan, ab, "b")->real == 0.5);
    assert_null(tocsin_plan_attribute(plan, ab, "c"));
    tocsin_attribute nan_1 = real(plan, "x", (double)NAN), nan_2 = real(plan, "x", -(double)NAN);
    assert_int_equal(add_set(plan, &nan_1, 1), add_set(plan, &nan_2, 1));
    tocsin_attribute zero = real(plan, "x", 0.0), negative_zero = real(plan, "x", -0.0);
    assert_int_not_equal(add_set(plan, &zero, 1), add_set(plan, &negative_zero, 1));
    uint32_t set = 0;
    tocsin_attribute twice[] = {a, b, integer(plan, "a", &two)};
    REFUSED(TOCSIN_E_FORMAT, "attribute a is given twice",
            tocsin_plan_add_attributes(plan, twice, 3, &set, &error));
    tocsin_attribute nameless = integer(plan, "", &two);
    REFUSED(TOCSIN_E_FORMAT, "without a key",
            tocsin_plan_add_attributes(plan, &nameless, 1, &set, &error));
    tocsin_attribute many[TOCSIN_PLAN_ATTRIBUTES_MAX + 1] = {0};
    REFUSED(TOCSIN_E_LIMIT, "at most 64",
            tocsin_plan_add_attributes(plan, many, TOCSIN_COUNT_OF(many), &set, &error));
    tocsin_attribute empty_list = {.key = string(plan, "e")};
    assert_int_equal(plan->attribute_sets.items[add_set(plan, &empty_list, 1)].items[0].count, 0);
    tocsin_plan_free(plan);
}

static void test_signatures(void **state)
{
    (void)state;
    tocsin_plan *plan = tocsin_plan_new();
    uint32_t ids[4];
    static const char *const texts[] = {"[m k+] -> [m]", "x[q r+]->[q]", "[m k+] -> [m]",
                                        "[m+ k] -> [k]"};
    for (int i = 0; i < 4; ++i)
        assert_int_equal(tocsin_plan_add_signature(plan, texts[i], strlen(texts[i]), &ids[i], NULL),
                         TOCSIN_OK);
    assert_int_equal(ids[0], ids[1]);
    assert_int_equal(ids[0], ids[2]);
    assert_int_not_equal(ids[0], ids[3]);
    assert_int_equal(plan->signatures.count, 2);
    assert_string_equal(plan->signatures.items[ids[0]].text, "[a b+] -> [a]");
    assert_string_equal(plan->signatures.items[ids[0]].axis_name[1], "k");
    REFUSED(TOCSIN_E_FORMAT, "expected an operand",
            tocsin_plan_add_signature(plan, "?", 1, &ids[0], &error));
    tocsin_plan_free(plan);
}

/* A role of one rank, with one value `v` of shape [2,3] and an empty segment. */
static tocsin_plan *new_role(void)
{
    tocsin_plan *plan = tocsin_plan_new();
    uint32_t id = 9;
    tocsin_plan_value value = {.name = string(plan, "v"), .ndim = 2};
    assert_int_equal(tocsin_plan_begin_role(plan, 0, 0, 1, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_plan_add_value(plan, &value, (int64_t[]){2, 3}, &id, NULL), TOCSIN_OK);
    assert_int_equal(id, 0);
    assert_int_equal(tocsin_plan_begin_segment(plan, string(plan, "all"), NULL), TOCSIN_OK);
    return plan;
}

static void test_values_refused(void **state)
{
    (void)state;
    tocsin_plan *plan = tocsin_plan_new();
    tocsin_plan_value value = {.name = string(plan, "w"), .ndim = 2};
    uint32_t id = 0;
    REFUSED(TOCSIN_E_FORMAT, "outside of a role",
            tocsin_plan_add_value(plan, &value, (int64_t[]){1, 1}, &id, &error));
    tocsin_plan_free(plan);
    plan = new_role();
    value.name = string(plan, "w");
    REFUSED(TOCSIN_E_LIMIT, "the size 0 of dim 1 of w",
            tocsin_plan_add_value(plan, &value, (int64_t[]){1, 0}, &id, &error));
    REFUSED(TOCSIN_E_LIMIT, "2^47",
            tocsin_plan_add_value(plan, &value, (int64_t[]){1, TOCSIN_PLAN_INDEX_MAX + 1}, &id,
                                  &error));
    REFUSED(TOCSIN_E_LIMIT, "2^62",
            tocsin_plan_add_value(plan, &value, (int64_t[]){INT64_C(1) << 31, INT64_C(1) << 31},
                                  &id, &error));
    value.ndim = TOCSIN_PLAN_NDIM_MAX + 1;
    REFUSED(TOCSIN_E_LIMIT, "12 dims", tocsin_plan_add_value(plan, &value, NULL, &id, &error));
    tocsin_affine starts[2] = {{0, {0, 0}}, {TOCSIN_PLAN_INDEX_MAX + 1, {0, 0}}};
    REFUSED(TOCSIN_E_FORMAT, "without a value",
            tocsin_plan_add_input(plan, 1, string(plan, "x"), starts, &error));
    REFUSED(TOCSIN_E_LIMIT, "starts beyond",
            tocsin_plan_add_input(plan, 0, string(plan, "x"), starts, &error));
    tocsin_plan_free(plan);
}

static void test_operators_refused(void **state)
{
    (void)state;
    tocsin_plan *plan = new_role();
    tocsin_plan_op op = {.code = TOCSIN_OPERATOR_COUNT,
                         .signature = TOCSIN_PLAN_NONE,
                         .group = TOCSIN_PLAN_NONE,
                         .input_count = 1};
    uint32_t inputs[] = {1};
    REFUSED(TOCSIN_E_FORMAT, "unknown code", tocsin_plan_add_op(plan, &op, inputs, NULL, &error));
    op.code = TOCSIN_OPERATOR_NEGATE;
    REFUSED(TOCSIN_E_FORMAT, "operand 1 of 1", tocsin_plan_add_op(plan, &op, inputs, NULL, &error));
    op.signature = 0;
    REFUSED(TOCSIN_E_FORMAT, "not added", tocsin_plan_add_op(plan, &op, inputs, NULL, &error));
    op.signature = TOCSIN_PLAN_NONE;
    op.attributes = 1;
    REFUSED(TOCSIN_E_FORMAT, "attributes that were not added",
            tocsin_plan_add_op(plan, &op, inputs, NULL, &error));
    op.attributes = 0;
    op.group = 0;
    REFUSED(TOCSIN_E_FORMAT, "group that was not added",
            tocsin_plan_add_op(plan, &op, inputs, NULL, &error));
    op.group = TOCSIN_PLAN_NONE;
    op.code = TOCSIN_OPERATOR_CALL;
    REFUSED(TOCSIN_E_FORMAT, "without a name", tocsin_plan_add_op(plan, &op, inputs, NULL, &error));
    op.name = string(plan, "mm");
    REFUSED(TOCSIN_E_FORMAT, "a call of mm, which is a known operator",
            tocsin_plan_add_op(plan, &op, inputs, NULL, &error));
    REFUSED(TOCSIN_E_FORMAT, "micro-batch 1 of 1", tocsin_plan_add_turn(plan, 0, 1, &error));
    REFUSED(TOCSIN_E_FORMAT, "does not have", tocsin_plan_add_turn(plan, 1, 0, &error));
    REFUSED(TOCSIN_E_FORMAT, "replicas from 0 on", tocsin_plan_begin_role(plan, 0, 0, 2, &error));
    REFUSED(TOCSIN_E_FORMAT, "device 1", tocsin_plan_begin_role(plan, 1, 0, 1, &error));
    tocsin_plan_free(plan);
}

/* A known operator is called by the table's name, whatever name it was given. */
static void test_finish(void **state)
{
    (void)state;
    tocsin_plan *plan = new_role();
    tocsin_plan_op op = {.code = TOCSIN_OPERATOR_FULL,
                         .name = string(plan, "zeros"),
                         .signature = TOCSIN_PLAN_NONE,
                         .group = TOCSIN_PLAN_NONE,
                         .output_count = 1};
    tocsin_attribute value = real(plan, "value", 0.0);
    op.attributes = add_set(plan, &value, 1);
    uint32_t outputs[] = {0};
    assert_int_equal(tocsin_plan_add_op(plan, &op, NULL, outputs, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_plan_finish(plan, NULL), TOCSIN_OK);
    assert_string_equal(tocsin_plan_text(plan, plan->ops.items[0].name), "full");
    assert_string_equal(tocsin_plan_text(plan, plan->ops.items[0].label), "");
    assert_int_equal(plan->roles.items[0].turn_count, 1); /* the schedule that was left out */
    assert_int_equal(plan->turns.items[0].microbatch, -1);
    tocsin_plan_size size = tocsin_plan_get_size(plan);
    assert_int_equal(size.executions, 1);
    char *text = plan_write(plan);
    assert_string_equal(text, "tocsin-plan 1\nmesh\nmicrobatches 1\nrole\nsegment all\n"
                              "%v:none[2,3] = full() {value=0.0}\nschedule all\nend\n");
    free(text);
    tocsin_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbering),
        cmocka_unit_test(test_mesh_refused),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_signatures),
        cmocka_unit_test(test_values_refused),
        cmocka_unit_test(test_operators_refused),
        cmocka_unit_test(test_finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
