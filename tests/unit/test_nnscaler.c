/* The reader of nnScaler plans, on two small ones that tests/python/nnscaler_writer.py made: what
 * becomes of cells, tensors and adapters; the world; files that are cut off or damaged; the n-th
 * allocation fails. The real plans stand in tests/python/test_nnscaler_plans.py. */
#include <stdio.h>
#include <stdlib.h>

#include "cmocka_test.h"
#include <plan/plan.h>

static const char LOGICAL[] = "nnscaler_dp1_pp1_tp1_nm1.pkl";
static const char PARALLEL[] = "nnscaler_dp2_pp2_tp2_nm3.pkl";

static void load(const char *name, tocsin_string *content)
{
    char path[1024];
    const char *source = getenv("TOCSIN_SOURCE");
    tocsin_error error = {0};
    snprintf(path, sizeof path, "%s/tests/golden/plan/%s", source ? source : ".", name);
    if (tocsin_file_load(path, 1 << 20, content, &error) != TOCSIN_OK)
        fail_msg("%s: %s", path, error.message);
}

static tocsin_plan *read_plan(const char *name)
{
    tocsin_string content = {0};
    tocsin_plan *plan = NULL;
    tocsin_error error = {0};
    load(name, &content);
    if (tocsin_plan_read_nnscaler(content.text, content.bytes, name, NULL, &plan, &error))
        fail_msg("%s: %s", name, error.message);
    tocsin_string_free(&content);
    return plan;
}

static const tocsin_plan_op *find_op(const tocsin_plan *plan, uint32_t role, const char *label)
{
    const tocsin_plan_role *r = &plan->roles.items[role];
    for (uint32_t s = 0; s < r->segment_count; ++s) {
        const tocsin_plan_segment *segment = &plan->segments.items[r->first_segment + s];
        for (uint32_t i = 0; i < segment->op_count; ++i) {
            const tocsin_plan_op *op = &plan->ops.items[segment->first_op + i];
            if (strcmp(tocsin_plan_text(plan, op->label), label) == 0)
                return op;
        }
    }
    fail_msg("role %u has no operator %s", role, label);
    return NULL;
}

static void assert_integer(const tocsin_plan *plan, const tocsin_plan_op *op, const char *key,
                           int64_t expected)
{
    const tocsin_attribute *a = tocsin_plan_attribute(plan, op->attributes, key);
    assert_non_null(a);
    assert_int_equal(a->kind, TOCSIN_ATTRIBUTE_INTEGERS);
    assert_int_equal(a->count, 1);
    assert_int_equal(a->integers[0], expected);
}

static void assert_real(const tocsin_plan *plan, const tocsin_plan_op *op, const char *key,
                        double expected)
{
    const tocsin_attribute *a = tocsin_plan_attribute(plan, op->attributes, key);
    assert_non_null(a);
    assert_int_equal(a->kind, TOCSIN_ATTRIBUTE_REAL);
    assert_true(a->real == expected);
}

static void sizes(void **state)
{
    (void)state;
    tocsin_plan *plan = read_plan(PARALLEL);
    tocsin_plan_size size = tocsin_plan_get_size(plan);
    assert_int_equal(size.roles, 4);
    assert_int_equal(size.ranks, 8);
    assert_int_equal(plan->microbatches, 3);
    assert_int_equal(plan->flaws.count, 0);
    assert_int_equal(plan->outputs.count, 2 * 2 + 2 * 2); /* w1, w2 | w3, the loss */
    assert_string_equal(tocsin_plan_text(plan, plan->axes[0].name), "dp");
    assert_int_equal(plan->replica_axis, 0);
    tocsin_plan_free(plan);
}

/* Operators have their rule, attributes, label, module and line; constants are attributes. */
static void operators(void **state)
{
    (void)state;
    tocsin_plan *plan = read_plan(LOGICAL);
    const tocsin_plan_op *op = find_op(plan, 0, "linear1");
    assert_int_equal(op->code, TOCSIN_OPERATOR_LINEAR);
    assert_int_equal(op->phase, TOCSIN_PHASE_FORWARD);
    assert_string_equal(tocsin_plan_text(plan, op->fqn), "mlp.linear");
    assert_string_equal(tocsin_plan_text(plan, op->source), "model.py:1");
    assert_int_equal(op->attributes, 0);
    assert_int_equal(find_op(plan, 0, "multiref2")->code, TOCSIN_OPERATOR_COPIES);
    assert_int_equal(find_op(plan, 0, "silu3")->code, TOCSIN_OPERATOR_SILU);
    assert_int_equal(find_op(plan, 0, "mul4")->code, TOCSIN_OPERATOR_MULTIPLY);
    assert_int_equal(find_op(plan, 0, "add6")->code, TOCSIN_OPERATOR_ADD_SCALAR);
    assert_real(plan, find_op(plan, 0, "add6"), "value", 0.5);
    assert_int_equal(find_op(plan, 0, "div7")->code, TOCSIN_OPERATOR_SCALE);
    assert_real(plan, find_op(plan, 0, "div7"), "factor", 0.25);
    assert_real(plan, find_op(plan, 0, "div7"), "divisor", 4);
    assert_real(plan, find_op(plan, 0, "BW.div7"), "factor", 0.25);
    assert_int_equal(find_op(plan, 0, "view8")->code, TOCSIN_OPERATOR_VIEW);
    assert_int_equal(find_op(plan, 0, "transpose9")->code, TOCSIN_OPERATOR_PERMUTE);
    assert_int_equal(find_op(plan, 0, "sum10")->code, TOCSIN_OPERATOR_SUM);
    assert_int_equal(find_op(plan, 0, "BW.sum10")->code, TOCSIN_OPERATOR_EXPAND);
    op = find_op(plan, 0, "BW.multiref2");
    assert_int_equal(op->code, TOCSIN_OPERATOR_ADD);
    assert_int_equal(op->phase, TOCSIN_PHASE_BACKWARD);
    tocsin_plan_free(plan);
}

/* Derivatives contract what the input that they are of does not have. */
static void derivatives(void **state)
{
    (void)state;
    static const struct {
        const char *label, *signature;
    } expected[] = {
        {"BW.linear5#0", "[a n+] [a k] [n+ k] -> [a k] linear=0"},
        {"BW.linear5#1", "[a+ n] [a+ k] [n k] -> [n k] linear=0"},
        {"BW.mul4#1", "[a b] [a b] [a b] -> [a b] linear=0"},
    };
    tocsin_plan *plan = read_plan(LOGICAL);
    for (size_t i = 0; i < TOCSIN_COUNT_OF(expected); ++i) {
        const tocsin_plan_op *op = find_op(plan, 0, expected[i].label);
        uint32_t signature;
        assert_int_equal(op->code, TOCSIN_OPERATOR_CALL);
        assert_int_equal(tocsin_plan_add_signature(plan, expected[i].signature,
                                                   strlen(expected[i].signature), &signature, NULL),
                         TOCSIN_OK);
        assert_int_equal(op->signature, signature);
    }
    assert_string_equal(tocsin_plan_text(plan, find_op(plan, 0, "BW.linear5#1")->name),
                        "linear.backward");
    tocsin_plan_free(plan);
}

static void communication(void **state)
{
    (void)state;
    tocsin_plan *plan = read_plan(PARALLEL);
    const tocsin_plan_op *op = find_op(plan, 1, "MovePrim120");
    assert_int_equal(op->code, TOCSIN_OPERATOR_SEND);
    assert_integer(plan, op, "peer", 3);
    assert_integer(plan, op, "tag", 120);
    assert_int_equal(find_op(plan, 3, "MovePrim120")->code, TOCSIN_OPERATOR_RECV);
    assert_int_equal(find_op(plan, 0, "AllReduceIdentityPrim91")->code, TOCSIN_OPERATOR_ALL_REDUCE);
    assert_int_equal(find_op(plan, 0, "AllReduceIdentityPrim92")->code, TOCSIN_OPERATOR_IDENTITY);
    op = find_op(plan, 1, "IRWeightReducer131");
    assert_int_equal(tocsin_plan_group_size(plan, op->group), 2); /* itself in both replicas */
    const tocsin_plan_group *group = &plan->groups.items[op->group];
    assert_int_equal(plan->members.items[group->first_member].device, 1);
    assert_int_equal(plan->members.items[group->first_member].replica, TOCSIN_MEMBER_ALL);
    tocsin_plan_free(plan);
}

/* Replica dp and micro-batch mb read x[dp*24 + mb*8 ...]; weights are the same for all. */
static void inputs(void **state)
{
    (void)state;
    tocsin_plan *plan = read_plan(PARALLEL);
    const tocsin_plan_role *role = &plan->roles.items[1];
    bool data = false, weight = false;
    for (uint32_t i = 0; i < role->input_count; ++i) {
        const tocsin_plan_input *input = &plan->inputs.items[role->first_input + i];
        const tocsin_affine *start = plan->starts.items + input->first_start;
        const tocsin_plan_value *value = &plan->values.items[role->first_value + input->value];
        const char *name = tocsin_plan_text(plan, input->name);
        if (strcmp(name, "x") == 0) {
            data = value->per_microbatch && start[0].base == 0 && start[0].weight[0] == 24 &&
                   start[0].weight[1] == 8 && start[1].weight[0] == 0;
        } else if (strcmp(name, "w2") == 0) {
            weight = value->persistent && start[1].base == 6 && start[1].weight[0] == 0;
        }
    }
    assert_true(data);
    assert_true(weight);
    tocsin_plan_free(plan);
}

/* Each cell is one segment; the second stage's schedule is 1F1B. */
static void schedule(void **state)
{
    (void)state;
    static const char expected[] = "adapter120.0 segment101.0 segment111.0 adapter121.0 "
                                   "adapter120.1 segment101.1 segment111.1 adapter121.1 "
                                   "adapter120.2 segment101.2 segment111.2 adapter121.2 "
                                   "reducer132.-1 ";
    tocsin_plan *plan = read_plan(PARALLEL);
    const tocsin_plan_role *role = &plan->roles.items[2];
    tocsin_string text = {0};
    for (uint32_t i = 0; i < role->turn_count; ++i) {
        tocsin_plan_turn turn = plan->turns.items[role->first_turn + i];
        uint32_t name = plan->segments.items[role->first_segment + turn.segment].name;
        tocsin_string_printf(&text, "%s.%d ", tocsin_plan_text(plan, name), turn.microbatch);
    }
    assert_string_equal(tocsin_string_text(&text), expected);
    assert_int_equal(role->segment_count, 5);
    tocsin_string_free(&text);
    tocsin_plan_free(plan);
}

static void worlds(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        tocsin_plan_world world;
        const char *message; /* NULL: it is right */
    } cases[] = {
        {"p.pkl", {2, 2, 2, 3}, NULL},
        {"dir_dp9/p_dp2_pp2_tp2_nm3_x.pkl", {0}, NULL},
        {"p_dp9_pp2_tp2_nm3_x.pkl", {.dp = 2}, NULL},
        {"p.pkl", {2, 2, 2, 0}, "nm is neither given nor in the file's name (as _nm2)"},
        {"p.pkl", {2, 1, 2, 3}, "it is for 4 devices, but pp=1 tp=2 makes 2"},
        {"p.pkl", {4, 2, 2, 3}, "it is for 8 ranks, but dp=4 makes 16"},
        {"p.pkl", {2, 2, 2, 4}, "it runs 3 micro-batches, not nm=4"},
        {"p.pkl", {2, 2, 2, 2}, "device 0 runs cell 90 more often than the 2 micro-batches"},
    };
    tocsin_string content = {0};
    load(PARALLEL, &content);
    for (size_t i = 0; i < TOCSIN_COUNT_OF(cases); ++i) {
        tocsin_plan_options options = {.world = cases[i].world};
        tocsin_plan *plan = NULL;
        tocsin_error error = {0};
        tocsin_status status = tocsin_plan_read_nnscaler(content.text, content.bytes, cases[i].name,
                                                         &options, &plan, &error);
        assert_int_equal(status, cases[i].message ? TOCSIN_E_FORMAT : TOCSIN_OK);
        if (cases[i].message) {
            assert_string_equal(error.message + strlen("nnScaler plan: "), cases[i].message);
            assert_string_equal(error.where, cases[i].name);
        }
        tocsin_plan_free(plan);
    }
    tocsin_string_free(&content);
}

/* Cut off, or with one bit changed, at every fifth byte: an answer with a reason, and no plan on
 * failure. */
static void damaged(void **state)
{
    (void)state;
    tocsin_string content = {0};
    load(PARALLEL, &content);
    for (size_t at = 0; at < content.bytes; at += 5) {
        tocsin_plan *plan = NULL;
        tocsin_error error = {0};
        if (at % 3 == 0) {
            assert_int_equal(
                tocsin_plan_read_nnscaler(content.text, at, PARALLEL, NULL, &plan, &error),
                TOCSIN_E_FORMAT);
            assert_null(plan);
        }
        char kept = content.text[at];
        content.text[at] = (char)(kept ^ (1 << at % 8));
        tocsin_status status =
            tocsin_plan_read_nnscaler(content.text, content.bytes, PARALLEL, NULL, &plan, &error);
        content.text[at] = kept;
        assert_true(status == TOCSIN_OK ? plan != NULL : plan == NULL && error.message[0]);
        assert_int_not_equal(status, TOCSIN_E_INTERNAL);
        tocsin_plan_free(plan);
    }
    tocsin_string_free(&content);
}

static void memory_runs_out(void **state)
{
    (void)state;
    tocsin_string content = {0};
    load(PARALLEL, &content);
    for (uint64_t nth = 1;; ++nth) {
        tocsin_plan *plan = NULL;
        tocsin_fault_arm(TOCSIN_FAULT_MEMORY, nth);
        tocsin_status status =
            tocsin_plan_read_nnscaler(content.text, content.bytes, PARALLEL, NULL, &plan, NULL);
        bool fired = tocsin_fault_disarm(TOCSIN_FAULT_MEMORY);
        assert_int_equal(status, fired ? TOCSIN_E_MEMORY : TOCSIN_OK);
        tocsin_plan_free(plan);
        if (!fired)
            break;
    }
    tocsin_string_free(&content);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),           cmocka_unit_test(operators),
        cmocka_unit_test(derivatives),     cmocka_unit_test(communication),
        cmocka_unit_test(inputs),          cmocka_unit_test(schedule),
        cmocka_unit_test(worlds),          cmocka_unit_test(damaged),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
