/* Plan sanity: healthy schedules have no findings; each kind of flaw is found at the right call. */
#include "cmocka_test.h"
#include "every_fault.h"
#include <plan/plan.h>
#include <prove/sanity.h>
#include <stdio.h>
#include <string.h>
#include <tocsin/tensor.h>

/* ---- plans written tersely ------------------------------------------------------------------- */

typedef struct plan_draft {
    tocsin_plan *plan;
    tocsin_error error;
} plan_draft;

static uint32_t word(plan_draft *draft, const char *text)
{
    uint32_t id = tocsin_plan_string(draft->plan, text, strlen(text));
    assert_true(id != 0);
    return id;
}

static void ok(plan_draft *draft, tocsin_status status)
{
    if (status != TOCSIN_OK)
        fail_msg("%s", draft->error.message);
}

/* `replicas` 0: no replica axis. */
static plan_draft begin(uint32_t replicas, uint32_t devices, uint32_t microbatches)
{
    plan_draft draft = {.plan = tocsin_plan_new()};
    assert_non_null(draft.plan);
    if (replicas)
        ok(&draft, tocsin_plan_add_axis(draft.plan, "dp", replicas, true, &draft.error));
    ok(&draft, tocsin_plan_add_axis(draft.plan, "r", devices, false, &draft.error));
    draft.plan->microbatches = microbatches;
    return draft;
}

static uint32_t add_group(plan_draft *draft, const char *name, uint32_t count,
                          const uint32_t *devices, int32_t replica)
{
    tocsin_plan_member members[8];
    for (uint32_t i = 0; i < count; ++i)
        members[i] = (tocsin_plan_member){.device = devices[i], .replica = replica};
    uint32_t id = 0;
    ok(draft, tocsin_plan_add_group(draft->plan, name, members, count, &id, &draft->error));
    return id;
}

static void begin_role(plan_draft *draft, uint32_t device, uint32_t replicas)
{
    ok(draft, tocsin_plan_begin_role(draft->plan, device, 0, replicas, &draft->error));
}

static void begin_segment(plan_draft *draft, const char *name)
{
    ok(draft, tocsin_plan_begin_segment(draft->plan, word(draft, name), &draft->error));
}

static void add_turn(plan_draft *draft, uint32_t segment, int32_t microbatch)
{
    ok(draft, tocsin_plan_add_turn(draft->plan, segment, microbatch, &draft->error));
}

static uint32_t add_shaped(plan_draft *draft, const char *name, uint8_t ndim, const int64_t *shape,
                           bool persistent)
{
    uint32_t id = 0;
    tocsin_plan_value value = {.name = word(draft, name),
                               .ndim = ndim,
                               .dtype = TOCSIN_DTYPE_FLOAT32,
                               .persistent = persistent,
                               .per_microbatch = !persistent};
    ok(draft, tocsin_plan_add_value(draft->plan, &value, shape, &id, &draft->error));
    return id;
}

/* A value of shape [4, 8] (or [rows, 8]). */
static uint32_t add_value(plan_draft *draft, const char *name, int64_t rows)
{
    return add_shaped(draft, name, 2, (int64_t[]){rows, 8}, false);
}

static uint32_t add_input(plan_draft *draft, const char *name)
{
    uint32_t id = add_value(draft, name, 4);
    ok(draft, tocsin_plan_add_input(draft->plan, id, word(draft, name),
                                    (tocsin_affine[2]){{0, {0, 0}}, {0, {0, 0}}}, &draft->error));
    return id;
}

typedef struct key_value {
    const char *key;
    int64_t integer;
    const char *text; /* NULL: the integer */
} key_value;

/* One operator; NONE: no input, or no output. `attributes` ends with a NULL key. */
static void add_op(plan_draft *draft, tocsin_operator_code code, const char *label, uint32_t group,
                   uint32_t input, uint32_t output, const key_value *attributes)
{
    tocsin_attribute items[8];
    uint32_t count = 0, set = 0;
    for (; attributes && attributes[count].key; ++count) {
        const key_value *from = &attributes[count];
        items[count] = (tocsin_attribute){.key = word(draft, from->key),
                                          .kind = from->text ? TOCSIN_ATTRIBUTE_TEXT
                                                             : TOCSIN_ATTRIBUTE_INTEGERS,
                                          .count = from->text ? 0 : 1,
                                          .integers = &from->integer,
                                          .text = from->text ? word(draft, from->text) : 0};
    }
    ok(draft, tocsin_plan_add_attributes(draft->plan, items, count, &set, &draft->error));
    uint32_t empty = word(draft, "");
    tocsin_plan_op made = {.code = (uint16_t)code,
                           .name = word(draft, tocsin_operators[code].name),
                           .label = word(draft, label),
                           .fqn = empty,
                           .source = empty,
                           .signature = TOCSIN_PLAN_NONE,
                           .attributes = set,
                           .group = group,
                           .input_count = input != TOCSIN_PLAN_NONE,
                           .output_count = output != TOCSIN_PLAN_NONE};
    ok(draft, tocsin_plan_add_op(draft->plan, &made, &input, &output, &draft->error));
}

#define NONE TOCSIN_PLAN_NONE

static void add_send(plan_draft *draft, const char *label, uint32_t input, uint32_t peer,
                     int64_t tag)
{
    add_op(draft, TOCSIN_OPERATOR_SEND, label, NONE, input, NONE,
           (key_value[]){{"peer", peer, NULL}, {"tag", tag, NULL}, {NULL, 0, NULL}});
}

static uint32_t add_recv(plan_draft *draft, const char *label, uint32_t peer, int64_t tag)
{
    uint32_t id = add_value(draft, label, 4);
    add_op(draft, TOCSIN_OPERATOR_RECV, label, NONE, NONE, id,
           (key_value[]){{"peer", peer, NULL}, {"tag", tag, NULL}, {NULL, 0, NULL}});
    return id;
}

static uint32_t add_all_reduce(plan_draft *draft, const char *label, uint32_t group, uint32_t input)
{
    uint32_t id = add_value(draft, label, 4);
    add_op(draft, TOCSIN_OPERATOR_ALL_REDUCE, label, group, input, id,
           (key_value[]){{"op", 0, "sum"}, {NULL, 0, NULL}});
    return id;
}

static uint32_t add_all_gather(plan_draft *draft, const char *label, uint32_t group, uint32_t input)
{
    uint32_t id =
        add_value(draft, label, 4 * (int64_t)draft->plan->groups.items[group].member_count);
    add_op(draft, TOCSIN_OPERATOR_ALL_GATHER, label, group, input, id,
           (key_value[]){{"dim", 0, NULL}, {NULL, 0, NULL}});
    return id;
}

static tocsin_sanity check(plan_draft *draft)
{
    ok(draft, tocsin_plan_finish(draft->plan, &draft->error));
    tocsin_sanity result;
    ok(draft, tocsin_sanity_check(draft->plan, &result, &draft->error));
    return result;
}

static void end(plan_draft *draft, tocsin_sanity *result)
{
    tocsin_sanity_free(result);
    tocsin_plan_free(draft->plan);
}

static const char *label_of(const plan_draft *draft, const tocsin_sanity_call *call)
{
    if (call->op == NONE)
        return "-";
    return tocsin_plan_text(draft->plan, draft->plan->ops.items[call->op].label);
}

static void expect_healthy(plan_draft *draft, uint64_t calls)
{
    tocsin_sanity result = check(draft);
    if (result.findings.count)
        fail_msg("%s / %s", result.findings.items[0].relation, result.findings.items[0].expected);
    assert_true(result.uniform_microbatches);
    assert_int_equal(result.calls, calls);
    end(draft, &result);
}

/* One finding, and nothing else. */
static void expect(plan_draft *draft, tocsin_cause_class class, uint32_t device, const char *label,
                   const char *partner, bool missing, uint64_t occurrences)
{
    tocsin_sanity result = check(draft);
    if (result.findings.count > 1)
        fail_msg("second finding: %s / %s", result.findings.items[1].relation,
                 result.findings.items[1].expected);
    assert_int_equal(result.findings.count, 1);
    const tocsin_sanity_finding *finding = &result.findings.items[0];
    assert_int_equal(finding->class, class);
    assert_int_equal(finding->call.device, device);
    assert_string_equal(label_of(draft, &finding->call), label);
    assert_string_equal(label_of(draft, &finding->partner), partner);
    assert_int_equal(finding->missing, missing);
    assert_int_equal(finding->occurrences, occurrences);
    assert_true(finding->place_count >= 1);
    assert_int_equal(finding->places[0].device, device);
    end(draft, &result);
}

/* ---- pipelines --------------------------------------------------------------------------------
 */

enum { STAGES = 4, MICROBATCHES = 8 };

/* The last micro-batch whose receive the last stage leaves out, or a wrong peer; -1: none. */
typedef struct pipeline_flaw {
    bool no_recv;
    bool wrong_peer;
    bool wrong_shape;
} pipeline_flaw;

/* Stage s of 1F1B: STAGES - s - 1 forward passes, then one of each kind in turn, then the rest. */
static plan_draft pipeline(pipeline_flaw flaw)
{
    plan_draft draft = begin(2, STAGES, MICROBATCHES);
    for (uint32_t s = 0; s < STAGES; ++s) {
        begin_role(&draft, s, 2);
        uint32_t x = add_input(&draft, "x");
        begin_segment(&draft, "fw");
        if (s > 0 && !(flaw.no_recv && s == 2))
            x = add_recv(&draft, "recv_fw", s - 1, 0);
        if (s + 1 < STAGES) {
            uint32_t peer = flaw.wrong_peer && s == 1 ? 3 : s + 1;
            if (flaw.wrong_shape && s == 1) {
                x = add_value(&draft, "narrow", 2);
                add_op(
                    &draft, TOCSIN_OPERATOR_SLICE, "narrow", NONE, 0, x,
                    (key_value[]){
                        {"dim", 0, NULL}, {"start", 0, NULL}, {"end", 2, NULL}, {NULL, 0, NULL}});
            }
            add_send(&draft, "send_fw", x, peer, 0);
        }
        begin_segment(&draft, "bw");
        uint32_t g = s + 1 < STAGES ? add_recv(&draft, "recv_bw", s + 1, 0) : x;
        if (s > 0)
            add_send(&draft, "send_bw", g, s - 1, 0);
        int32_t ahead = STAGES - 1 - (int32_t)s, forward = 0, backward = 0;
        while (forward < ahead)
            add_turn(&draft, 0, forward++);
        while (backward < MICROBATCHES) {
            if (forward < MICROBATCHES)
                add_turn(&draft, 0, forward++);
            add_turn(&draft, 1, backward++);
        }
    }
    return draft;
}

static void one_forward_one_backward_is_healthy(void **state)
{
    (void)state;
    plan_draft draft = pipeline((pipeline_flaw){0});
    expect_healthy(&draft, (STAGES - 1) * 4 * MICROBATCHES);
}

/* Two stages on each of two devices: chunk c of device d is stage 2 c + d. */
static void interleaved_stages_are_healthy(void **state)
{
    (void)state;
    plan_draft draft = begin(0, 2, 4);
    for (uint32_t d = 0; d < 2; ++d) {
        begin_role(&draft, d, 1);
        uint32_t x = add_input(&draft, "x");
        for (uint32_t chunk = 0; chunk < 2; ++chunk) {
            uint32_t stage = 2 * chunk + d;
            begin_segment(&draft, chunk ? "fw1" : "fw0");
            uint32_t h = x;
            if (stage > 0) {
                h = add_value(&draft, chunk ? "h1" : "h0", 4);
                add_op(&draft, TOCSIN_OPERATOR_RECV, "recv", NONE, NONE, h,
                       (key_value[]){
                           {"peer", 1 - d, NULL}, {"tag", stage - 1, NULL}, {NULL, 0, NULL}});
            }
            if (stage < 3)
                add_send(&draft, "send", h, 1 - d, stage);
        }
        for (int32_t m = 0; m < 4; m += 2)
            for (uint32_t chunk = 0; chunk < 2; ++chunk)
                for (int32_t i = 0; i < 2; ++i)
                    add_turn(&draft, chunk, m + i);
    }
    expect_healthy(&draft, 3 * 2 * 4);
}

static void a_missing_receive_is_named(void **state)
{
    (void)state;
    plan_draft draft = pipeline((pipeline_flaw){.no_recv = true});
    expect(&draft, TOCSIN_CAUSE_UNMATCHED, 1, "send_fw", "-", false, MICROBATCHES);
}

static void a_wrong_peer_is_one_finding_with_the_right_one(void **state)
{
    (void)state;
    plan_draft draft = pipeline((pipeline_flaw){.wrong_peer = true});
    expect(&draft, TOCSIN_CAUSE_UNMATCHED, 1, "send_fw", "recv_fw", false, MICROBATCHES);
}

static void a_receive_of_another_shape_is_named(void **state)
{
    (void)state;
    plan_draft draft = pipeline((pipeline_flaw){.wrong_shape = true});
    expect(&draft, TOCSIN_CAUSE_UNMATCHED, 2, "recv_fw", "send_fw", false, MICROBATCHES);
}

/* Both receive before they send. */
static void crossed_receives_are_a_deadlock(void **state)
{
    (void)state;
    plan_draft draft = begin(0, 2, 1);
    for (uint32_t d = 0; d < 2; ++d) {
        begin_role(&draft, d, 1);
        uint32_t x = add_input(&draft, "x");
        begin_segment(&draft, "s");
        add_recv(&draft, d ? "recv1" : "recv0", 1 - d, 0);
        add_send(&draft, d ? "send1" : "send0", x, 1 - d, 0);
    }
    expect(&draft, TOCSIN_CAUSE_DEADLOCK, 0, "recv0", "recv1", false, 1);
}

/* Both send first: harmless, unless sends are rendezvous. */
static void crossed_sends_block_only_as_rendezvous(void **state)
{
    (void)state;
    for (int64_t blocking = 0; blocking < 2; ++blocking) {
        plan_draft draft = begin(0, 2, 1);
        for (uint32_t d = 0; d < 2; ++d) {
            begin_role(&draft, d, 1);
            uint32_t x = add_input(&draft, "x");
            begin_segment(&draft, "s");
            add_op(&draft, TOCSIN_OPERATOR_SEND, d ? "send1" : "send0", NONE, x, NONE,
                   (key_value[]){{"peer", 1 - d, NULL},
                                 {"tag", 0, NULL},
                                 {"blocking", blocking, NULL},
                                 {NULL, 0, NULL}});
            add_recv(&draft, d ? "recv1" : "recv0", 1 - d, 0);
        }
        if (blocking)
            expect(&draft, TOCSIN_CAUSE_DEADLOCK, 0, "send0", "send1", false, 1);
        else
            expect_healthy(&draft, 4);
    }
}

/* ---- collectives ------------------------------------------------------------------------------
 */

static const uint32_t DEVICES[8] = {0, 1, 2, 3, 4, 5, 6, 7};

/* Two groups over the same devices, called in the other order by one of four ranks. */
static void another_order_of_two_groups_is_a_deadlock_of_the_odd_rank(void **state)
{
    (void)state;
    plan_draft draft = begin(0, 4, 1);
    uint32_t a = add_group(&draft, "a", 4, DEVICES, TOCSIN_MEMBER_SAME);
    uint32_t b = add_group(&draft, "b", 4, DEVICES, TOCSIN_MEMBER_SAME);
    for (uint32_t d = 0; d < 4; ++d) {
        begin_role(&draft, d, 1);
        uint32_t x = add_input(&draft, "x");
        begin_segment(&draft, "s");
        if (d == 2)
            add_all_reduce(&draft, "second", b, x);
        add_all_reduce(&draft, "first", a, x);
        if (d != 2)
            add_all_reduce(&draft, "second", b, x);
    }
    expect(&draft, TOCSIN_CAUSE_DEADLOCK, 2, "second", "first", false, 1);
}

/* The same on one group, where the calls would be taken for one another. */
static void another_order_on_one_group_names_both(void **state)
{
    (void)state;
    plan_draft draft = begin(0, 4, 2);
    uint32_t a = add_group(&draft, "a", 4, DEVICES, TOCSIN_MEMBER_SAME);
    for (uint32_t d = 0; d < 4; ++d) {
        begin_role(&draft, d, 1);
        uint32_t x = add_input(&draft, "x");
        begin_segment(&draft, "s");
        if (d == 1)
            add_all_gather(&draft, "gather", a, x);
        add_all_reduce(&draft, "reduce", a, x);
        if (d != 1)
            add_all_gather(&draft, "gather", a, x);
        add_turn(&draft, 0, 0);
        add_turn(&draft, 0, 1);
    }
    expect(&draft, TOCSIN_CAUSE_DEADLOCK, 1, "gather", "reduce", false, 2);
}

/* Layers of like calls; a flaw at the call of one layer on one device. */
typedef enum layer_flaw { HEALTHY, SKIPPED, EXTRA, OTHER_KIND, OTHER_GROUP } layer_flaw;

static plan_draft few_layers(uint32_t devices, uint32_t wrong_device, layer_flaw flaw,
                             uint32_t layer_count, uint32_t wrong_layer)
{
    static const char *const LABELS[] = {"layer0", "layer1", "layer2", "layer3", "layer4"};
    plan_draft draft = begin(2, devices, 3);
    uint32_t a = add_group(&draft, "tp", devices, DEVICES, TOCSIN_MEMBER_SAME);
    uint32_t all = add_group(&draft, "dp", devices, DEVICES, TOCSIN_MEMBER_ALL);
    for (uint32_t d = 0; d < devices; ++d) {
        begin_role(&draft, d, 2);
        uint32_t x = add_input(&draft, "x");
        begin_segment(&draft, "fw");
        for (uint32_t layer = 0; layer < layer_count; ++layer) {
            bool wrong = d == wrong_device && layer == wrong_layer;
            uint32_t y = x;
            if (wrong && flaw == OTHER_KIND) {
                y = add_value(&draft, LABELS[layer], 4);
                add_op(&draft, TOCSIN_OPERATOR_ALL_REDUCE, LABELS[layer], a, x, y,
                       (key_value[]){{"op", 0, "max"}, {NULL, 0, NULL}});
            } else if (!wrong || flaw != SKIPPED) {
                y = add_all_reduce(&draft, LABELS[layer], wrong && flaw == OTHER_GROUP ? all : a,
                                   x);
            }
            if (wrong && flaw == EXTRA)
                y = add_all_reduce(&draft, "extra", a, y);
            x = y;
        }
        uint32_t sum = add_shaped(&draft, "sum", 2, (int64_t[]){4, 8}, true);
        add_op(&draft, TOCSIN_OPERATOR_ACCUMULATE, "accumulate", NONE, x, sum, NULL);
        begin_segment(&draft, "step");
        add_all_reduce(&draft, "gradient", all, sum);
        for (int32_t m = 0; m < 3; ++m)
            add_turn(&draft, 0, m);
        add_turn(&draft, 1, -1);
    }
    return draft;
}

static plan_draft layers(uint32_t devices, uint32_t wrong_device, layer_flaw flaw)
{
    return few_layers(devices, wrong_device, flaw, 5, 2);
}

static void like_calls_on_all_members_are_healthy(void **state)
{
    (void)state;
    plan_draft draft = layers(4, 0, HEALTHY);
    expect_healthy(&draft, 4 * (3 * 5 + 1));
}

static void a_skipped_call_is_named_by_its_label(void **state)
{
    (void)state;
    plan_draft draft = layers(4, 3, SKIPPED);
    expect(&draft, TOCSIN_CAUSE_UNMATCHED, 3, "layer2", "layer2", true, 3);
}

/* Of two like calls in a micro-batch one is missing in each. */
static void a_call_that_is_skipped_again_and_again_is_one_finding(void **state)
{
    (void)state;
    for (uint32_t layer = 0; layer < 2; ++layer) {
        plan_draft draft = few_layers(2, 1, SKIPPED, 2, layer);
        const char *label = layer ? "layer1" : "layer0";
        expect(&draft, TOCSIN_CAUSE_UNMATCHED, 1, label, label, true, 3);
    }
}

static void a_skipped_call_is_named_among_two_members(void **state)
{
    (void)state;
    plan_draft draft = layers(2, 0, SKIPPED);
    expect(&draft, TOCSIN_CAUSE_UNMATCHED, 0, "layer2", "layer2", true, 3);
}

static void an_extra_call_is_named(void **state)
{
    (void)state;
    plan_draft draft = layers(4, 0, EXTRA);
    expect(&draft, TOCSIN_CAUSE_UNMATCHED, 0, "extra", "-", false, 3);
}

static void another_reduction_on_one_member_is_named(void **state)
{
    (void)state;
    plan_draft draft = layers(4, 1, OTHER_KIND);
    expect(&draft, TOCSIN_CAUSE_WRONG_COLLECTIVE, 1, "layer2", "layer2", false, 3);
}

static void another_group_on_one_member_is_named_with_the_right_one(void **state)
{
    (void)state;
    for (uint32_t devices = 2; devices <= 4; devices += 2) {
        plan_draft draft = layers(devices, 1, OTHER_GROUP);
        tocsin_sanity result = check(&draft);
        assert_int_equal(result.findings.count, 1);
        assert_string_equal(
            tocsin_plan_text(draft.plan,
                             draft.plan->groups.items[result.findings.items[0].group].name),
            "dp");
        assert_string_equal(
            tocsin_plan_text(draft.plan,
                             draft.plan->groups.items[result.findings.items[0].partner_group].name),
            "tp");
        tocsin_sanity_free(&result);
        expect(&draft, TOCSIN_CAUSE_WRONG_GROUP, 1, "layer2", "layer2", false, 3);
    }
}

/* A call on the group of other ranks: the call and the one that is missed are one finding. */
static void a_group_of_others_is_named_with_the_right_one(void **state)
{
    (void)state;
    plan_draft draft = begin(0, 4, 2);
    uint32_t low = add_group(&draft, "low", 2, DEVICES, TOCSIN_MEMBER_SAME);
    uint32_t high = add_group(&draft, "high", 2, DEVICES + 2, TOCSIN_MEMBER_SAME);
    for (uint32_t d = 0; d < 4; ++d) {
        begin_role(&draft, d, 1);
        uint32_t x = add_input(&draft, "x");
        begin_segment(&draft, "s");
        add_all_reduce(&draft, "sum", d > 0 ? high : low, x);
        add_turn(&draft, 0, 0);
        add_turn(&draft, 0, 1);
    }
    expect(&draft, TOCSIN_CAUSE_WRONG_GROUP, 1, "sum", "sum", false, 2);
}

/* ---- asynchronous results ---------------------------------------------------------------------
 */

typedef struct async_flaw {
    bool early_read, no_wait, same_buffer, through_view;
} async_flaw;

static plan_draft asynchronous(async_flaw flaw)
{
    static const key_value ASYNC[2][4] = {
        {{"op", 0, "sum"}, {"async", 1, NULL}, {"buffer", 0, "b0"}, {NULL, 0, NULL}},
        {{"op", 0, "sum"}, {"async", 1, NULL}, {NULL, 0, NULL}}};
    plan_draft draft = begin(0, 2, 2);
    uint32_t tp = add_group(&draft, "tp", 2, DEVICES, TOCSIN_MEMBER_SAME);
    for (uint32_t d = 0; d < 2; ++d) {
        begin_role(&draft, d, 1);
        uint32_t x = add_input(&draft, "x");
        uint32_t y = add_value(&draft, "y", 4), z = add_value(&draft, "z", 4);
        uint32_t v = add_value(&draft, "v", 4), w = add_value(&draft, "w", 4),
                 u = add_value(&draft, "u", 4);
        begin_segment(&draft, "s");
        add_op(&draft, TOCSIN_OPERATOR_ALL_REDUCE, "reduce0", tp, x, y, ASYNC[0]);
        add_op(&draft, TOCSIN_OPERATOR_ALL_REDUCE, "reduce1", tp, x, z, ASYNC[!flaw.same_buffer]);
        add_op(&draft, TOCSIN_OPERATOR_IDENTITY, "alias", NONE, y, v, NULL);
        if (flaw.early_read)
            add_op(&draft, TOCSIN_OPERATOR_NEGATE, "early", NONE, flaw.through_view ? v : y, w,
                   NULL);
        uint32_t ready = add_value(&draft, "ready", 4);
        add_op(&draft, TOCSIN_OPERATOR_WAIT, "wait0", NONE, v, ready, NULL);
        add_op(&draft, TOCSIN_OPERATOR_NEGATE, "late", NONE, v, u, NULL);
        if (!flaw.no_wait)
            add_op(&draft, TOCSIN_OPERATOR_WAIT, "wait1", NONE, z, add_value(&draft, "ready1", 4),
                   NULL);
        add_turn(&draft, 0, 0);
        add_turn(&draft, 0, 1);
    }
    return draft;
}

static void asynchronous_calls_with_waits_are_healthy(void **state)
{
    (void)state;
    plan_draft draft = asynchronous((async_flaw){0});
    expect_healthy(&draft, 8);
}

static void a_read_before_the_wait_is_named(void **state)
{
    (void)state;
    for (int view = 0; view < 2; ++view) {
        plan_draft draft = asynchronous((async_flaw){.early_read = true, .through_view = view});
        expect(&draft, TOCSIN_CAUSE_MISSING_WAIT, 0, "early", "reduce0", false, 4);
    }
}

static void a_call_that_is_never_waited_for_is_named(void **state)
{
    (void)state;
    plan_draft draft = asynchronous((async_flaw){.no_wait = true});
    expect(&draft, TOCSIN_CAUSE_MISSING_WAIT, 0, "reduce1", "-", false, 4);
}

/* The read is reported, not also that there is no wait. */
static void a_missing_wait_is_one_finding(void **state)
{
    (void)state;
    plan_draft draft = begin(0, 2, 2);
    uint32_t tp = add_group(&draft, "tp", 2, DEVICES, TOCSIN_MEMBER_SAME);
    for (uint32_t d = 0; d < 2; ++d) {
        begin_role(&draft, d, 1);
        uint32_t x = add_input(&draft, "x"), y = add_value(&draft, "y", 4);
        begin_segment(&draft, "s");
        add_op(&draft, TOCSIN_OPERATOR_ALL_REDUCE, "reduce", tp, x, y,
               (key_value[]){{"op", 0, "sum"}, {"async", 1, NULL}, {NULL, 0, NULL}});
        add_op(&draft, TOCSIN_OPERATOR_NEGATE, "first", NONE, y, add_value(&draft, "u", 4), NULL);
        add_op(&draft, TOCSIN_OPERATOR_NEGATE, "then", NONE, y, add_value(&draft, "v", 4), NULL);
        add_turn(&draft, 0, 0);
        add_turn(&draft, 0, 1);
    }
    expect(&draft, TOCSIN_CAUSE_MISSING_WAIT, 0, "first", "reduce", false, 4);
}

static void a_buffer_of_two_pending_calls_is_named(void **state)
{
    (void)state;
    plan_draft draft = asynchronous((async_flaw){.same_buffer = true});
    expect(&draft, TOCSIN_CAUSE_MISSING_WAIT, 0, "reduce1", "reduce0", false, 4);
}

/* ---- uniformity -------------------------------------------------------------------------------
 */

static tocsin_sanity uniformity(plan_draft *draft, bool early_step, bool partial)
{
    *draft = begin(2, 1, 2);
    begin_role(draft, 0, 2);
    uint32_t x = add_input(draft, "x");
    uint32_t sum = add_shaped(draft, "sum", 2, (int64_t[]){4, 8}, true);
    uint32_t y = add_value(draft, "y", 4);
    begin_segment(draft, "fw");
    add_op(draft, TOCSIN_OPERATOR_ACCUMULATE, "accumulate", NONE, x, sum, NULL);
    begin_segment(draft, "step");
    add_op(draft, TOCSIN_OPERATOR_NEGATE, "step", NONE, sum, y, NULL);
    add_turn(draft, 0, 0);
    if (early_step)
        add_turn(draft, 1, -1);
    if (!partial)
        add_turn(draft, 0, 1);
    if (!early_step)
        add_turn(draft, 1, -1);
    return check(draft);
}

static void one_microbatch_speaks_for_all_only_when_they_are_alike(void **state)
{
    (void)state;
    for (int flaw = 0; flaw < 3; ++flaw) {
        plan_draft draft;
        tocsin_sanity result = uniformity(&draft, flaw == 1, flaw == 2);
        assert_int_equal(result.findings.count, 0);
        assert_true(result.uniform_replicas);
        assert_int_equal(result.uniform_microbatches, flaw == 0);
        end(&draft, &result);
    }
}

/* Roles of single replicas: all are enumerated. A flaw of one replica is named with it. */
static void unlike_replicas_are_enumerated(void **state)
{
    (void)state;
    for (uint32_t wrong = 0; wrong < 2; ++wrong) {
        plan_draft draft = begin(3, 2, 1);
        uint32_t tp = add_group(&draft, "tp", 2, DEVICES, TOCSIN_MEMBER_SAME);
        uint32_t dp = add_group(&draft, "dp", 2, DEVICES, TOCSIN_MEMBER_ALL);
        for (uint32_t replica = 0; replica < 3; ++replica) {
            for (uint32_t d = 0; d < 2; ++d) {
                ok(&draft, tocsin_plan_begin_role(draft.plan, d, replica, 1, &draft.error));
                uint32_t x = add_input(&draft, "x");
                begin_segment(&draft, "s");
                x = add_all_reduce(&draft, "tp", tp, x);
                if (!wrong || d != 1 || replica != 1)
                    add_all_reduce(&draft, "dp", dp, x);
            }
        }
        tocsin_sanity result = check(&draft);
        assert_false(result.uniform_replicas);
        assert_int_equal(result.findings.count, wrong);
        if (wrong) {
            assert_int_equal(result.findings.items[0].call.device, 1);
            assert_int_equal(result.findings.items[0].call.replica, 1);
            assert_true(result.findings.items[0].missing);
            assert_true(result.findings.items[0].certain);
            assert_non_null(strstr(result.findings.items[0].relation, "r=1 dp=1 does not call"));
        }
        end(&draft, &result);
    }
}

static void matches_are_shared_by_the_members(void **state)
{
    (void)state;
    plan_draft draft = layers(4, 0, HEALTHY);
    tocsin_sanity result = check(&draft);
    size_t count = draft.plan->ops.count, per_role = count / 4;
    for (size_t i = 0; i < count; ++i) {
        bool talks = tocsin_operator_communicates(draft.plan->ops.items[i].code);
        assert_int_equal(result.match[i], talks ? i % per_role : NONE);
    }
    end(&draft, &result);
}

/* ---- faults ------------------------------------------------------------------------------------
 */

static tocsin_status check_again(void *context, tocsin_error *error)
{
    tocsin_sanity result;
    tocsin_status status = tocsin_sanity_check(context, &result, error);
    tocsin_sanity_free(&result);
    return status;
}

static void memory_faults_are_reported(void **state)
{
    (void)state;
    plan_draft drafts[] = {layers(2, 1, OTHER_GROUP),
                           asynchronous((async_flaw){.early_read = true}),
                           pipeline((pipeline_flaw){.no_recv = true})};
    for (size_t i = 0; i < 3; ++i) {
        ok(&drafts[i], tocsin_plan_finish(drafts[i].plan, &drafts[i].error));
        assert_true(every_fault(TOCSIN_FAULT_MEMORY, TOCSIN_E_MEMORY, check_again, drafts[i].plan) >
                    10);
        tocsin_plan_free(drafts[i].plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_forward_one_backward_is_healthy),
        cmocka_unit_test(interleaved_stages_are_healthy),
        cmocka_unit_test(a_missing_receive_is_named),
        cmocka_unit_test(a_wrong_peer_is_one_finding_with_the_right_one),
        cmocka_unit_test(a_receive_of_another_shape_is_named),
        cmocka_unit_test(crossed_receives_are_a_deadlock),
        cmocka_unit_test(crossed_sends_block_only_as_rendezvous),
        cmocka_unit_test(another_order_of_two_groups_is_a_deadlock_of_the_odd_rank),
        cmocka_unit_test(another_order_on_one_group_names_both),
        cmocka_unit_test(like_calls_on_all_members_are_healthy),
        cmocka_unit_test(a_skipped_call_is_named_by_its_label),
        cmocka_unit_test(a_call_that_is_skipped_again_and_again_is_one_finding),
        cmocka_unit_test(a_skipped_call_is_named_among_two_members),
        cmocka_unit_test(an_extra_call_is_named),
        cmocka_unit_test(another_reduction_on_one_member_is_named),
        cmocka_unit_test(another_group_on_one_member_is_named_with_the_right_one),
        cmocka_unit_test(a_group_of_others_is_named_with_the_right_one),
        cmocka_unit_test(asynchronous_calls_with_waits_are_healthy),
        cmocka_unit_test(a_read_before_the_wait_is_named),
        cmocka_unit_test(a_call_that_is_never_waited_for_is_named),
        cmocka_unit_test(a_missing_wait_is_one_finding),
        cmocka_unit_test(a_buffer_of_two_pending_calls_is_named),
        cmocka_unit_test(one_microbatch_speaks_for_all_only_when_they_are_alike),
        cmocka_unit_test(unlike_replicas_are_enumerated),
        cmocka_unit_test(matches_are_shared_by_the_members),
        cmocka_unit_test(memory_faults_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
