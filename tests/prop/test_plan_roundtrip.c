/* Random plans, built call by call with names of any bytes, survive writing and reading: the text
 * is canonical, and the independent reader tests/ref/plan.py writes the same one from it. */
#include "plan_example.h"
#include "test_seed.h"
#include <math.h>
#include <unistd.h>

enum { PLANS = 40, NAME_BYTES = 24 };

typedef struct source {
    uint64_t state;
    tocsin_plan *plan;
} source;

static uint32_t below(source *s, uint32_t bound)
{
    s->state += UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(tocsin_mix64(s->state) % bound);
}

static uint32_t string(source *s, const char *text)
{
    return tocsin_plan_string(s->plan, text, strlen(text));
}

/* A name that no other has: plain, or with bytes that must be quoted. */
static uint32_t any_name(source *s, const char *prefix, unsigned number)
{
    static const char *const pieces[] = {"a",  "Z9",  "_",   ".7", "-", "/",        " ",    "\"",
                                         "\\", "[0]", "(x)", "#",  "%", "\x01",     "\n",   "\x7f",
                                         "=",  "1e5", "{k}", ",",  ":", "\xc3\xa9", "\xff", "*"};
    char name[NAME_BYTES * 4];
    int length = snprintf(name, sizeof name, "%s%u", prefix, number);
    bool plain = below(s, 2);
    for (unsigned i = below(s, 5); i > 0; --i)
        length += snprintf(name + length, sizeof name - (size_t)length, "%s",
                           pieces[below(s, plain ? 6 : (uint32_t)TOCSIN_COUNT_OF(pieces))]);
    return string(s, name);
}

static void ok(tocsin_status status)
{
    assert_int_equal(status, TOCSIN_OK);
}

/* ---- a random plan ----------------------------------------------------------------------------
 */

static void add_mesh(source *s)
{
    static const char *const axes[] = {"dp", "pp", "tp", "ep_2"};
    uint32_t count = below(s, 5), replica = below(s, 5);
    for (uint32_t i = 0; i < count; ++i)
        ok(tocsin_plan_add_axis(s->plan, axes[i], 1 + below(s, 3), i == replica, NULL));
    ok(tocsin_plan_set_microbatches(s->plan, 1 + below(s, 3), NULL));
}

static void add_groups(source *s)
{
    uint32_t devices = tocsin_plan_devices(s->plan), group = 0;
    for (uint32_t i = below(s, 4); i > 0; --i) {
        tocsin_plan_member members[64];
        uint32_t count = 1 + below(s, devices);
        int32_t replica = (int32_t)below(s, 3) - 2; /* all, the caller's, 0 */
        for (uint32_t m = 0; m < count; ++m)
            members[m] = (tocsin_plan_member){(m + i) % devices, replica};
        uint32_t name = any_name(s, "g", i);
        ok(tocsin_plan_add_group(s->plan, tocsin_plan_text(s->plan, name), members, count, &group,
                                 NULL));
    }
}

static uint32_t any_attributes(source *s)
{
    static const double reals[] = {0.0, -0.0, 1e-5, 0.1, 1e300, -2.5, 1.0 / 3, 123456789.0};
    tocsin_attribute items[4];
    int64_t integers[4][3];
    uint32_t count = below(s, 5), set = 0;
    for (uint32_t i = 0; i < count; ++i) {
        items[i] = (tocsin_attribute){.key = any_name(s, "k", i), .kind = (uint8_t)below(s, 3)};
        for (int k = 0; k < 3; ++k)
            integers[i][k] = (int64_t)tocsin_mix64(s->state + (uint64_t)k) >> below(s, 63);
        items[i].integers = integers[i];
        if (items[i].kind == TOCSIN_ATTRIBUTE_INTEGERS)
            items[i].count = below(s, 4);
        items[i].real = below(s, 4)   ? reals[below(s, 8)]
                        : below(s, 2) ? (double)NAN
                                      : -(double)INFINITY;
        items[i].text = below(s, 3) ? any_name(s, "", below(s, 20)) : string(s, "nan");
    }
    ok(tocsin_plan_add_attributes(s->plan, items, count, &set, NULL));
    return set;
}

static tocsin_plan_value any_type(source *s, uint32_t name, int64_t shape[TOCSIN_PLAN_NDIM_MAX])
{
    tocsin_plan_value value = {
        .name = name, .ndim = (uint8_t)below(s, 4), .dtype = (uint8_t)below(s, 22)};
    for (uint32_t d = 0; d < value.ndim; ++d)
        shape[d] = 1 + (int64_t)(below(s, 1u << 15) >> below(s, 15));
    return value;
}

static void any_starts(source *s, tocsin_affine starts[TOCSIN_PLAN_NDIM_MAX], bool microbatches)
{
    for (uint32_t d = 0; d < TOCSIN_PLAN_NDIM_MAX; ++d) {
        int64_t replica = (int64_t)below(s, 20) - 10;
        int64_t microbatch = microbatches ? (int64_t)below(s, 20) - 10 : 0;
        starts[d] = (tocsin_affine){.base = below(s, 4) ? 40 + below(s, 100) : 0};
        if (starts[d].base == 0) { /* never negative */
            replica = replica < 0 ? -replica : replica;
            microbatch = microbatch < 0 ? -microbatch : microbatch;
        }
        starts[d].weight[TOCSIN_SYMBOL_REPLICA] = replica;
        starts[d].weight[TOCSIN_SYMBOL_MICROBATCH] = microbatch;
    }
}

static void add_inputs(source *s, uint32_t count)
{
    for (uint32_t i = 0; i < count; ++i) {
        int64_t shape[TOCSIN_PLAN_NDIM_MAX];
        tocsin_affine starts[TOCSIN_PLAN_NDIM_MAX];
        tocsin_plan_value value = any_type(s, any_name(s, "in", i), shape);
        uint32_t id = 0;
        value.per_microbatch = below(s, 2);
        any_starts(s, starts, value.per_microbatch);
        ok(tocsin_plan_add_value(s->plan, &value, shape, &id, NULL));
        ok(tocsin_plan_add_input(s->plan, id, any_name(s, "logical", i), starts, NULL));
    }
}

/* One operator of the user's own that reads some of `known` values and writes up to two. */
static void add_op(source *s, unsigned number, uint32_t *known)
{
    static const char *const signatures[] = {"[... a+] -> []", "x[r^ 1] -> [_ r^] linear=0"};
    tocsin_plan_op op = {.code = TOCSIN_OPERATOR_CALL,
                         .name = any_name(s, "op", below(s, 3)),
                         .phase = (uint8_t)below(s, 5),
                         .signature = TOCSIN_PLAN_NONE,
                         .attributes = any_attributes(s),
                         .group = TOCSIN_PLAN_NONE};
    uint32_t inputs[3], outputs[2];
    op.label = below(s, 2) ? any_name(s, "label", number) : 0;
    op.fqn = below(s, 2) ? any_name(s, "layers.", number) : 0;
    op.source = below(s, 2) ? any_name(s, "f.py:", number) : 0;
    if (s->plan->groups.count > 0 && below(s, 3) == 0)
        op.group = below(s, (uint32_t)s->plan->groups.count);
    op.input_count = (uint16_t)(*known ? below(s, 4) : 0);
    op.output_count = (uint16_t)below(s, 3);
    if (*known && below(s, 3) == 0) {
        const char *text = signatures[below(s, 2)];
        op.input_count = op.output_count = 1;
        ok(tocsin_plan_add_signature(s->plan, text, strlen(text), &op.signature, NULL));
    }
    for (uint32_t i = 0; i < op.input_count; ++i)
        inputs[i] = below(s, *known);
    for (uint32_t i = 0; i < op.output_count; ++i) {
        int64_t shape[TOCSIN_PLAN_NDIM_MAX];
        tocsin_plan_value value = any_type(s, any_name(s, "v", number * 2 + i), shape);
        value.persistent = below(s, 4) == 0;
        ok(tocsin_plan_add_value(s->plan, &value, shape, &outputs[i], NULL));
    }
    ok(tocsin_plan_add_op(s->plan, &op, inputs, outputs, NULL));
    *known += op.output_count;
}

static void add_segments(source *s, uint32_t known)
{
    uint32_t count = 1 + below(s, 3);
    for (uint32_t i = 0; i < count; ++i) {
        ok(tocsin_plan_begin_segment(s->plan, any_name(s, "s.", i), NULL));
        for (uint32_t k = below(s, 6); k > 0; --k)
            add_op(s, i * 16 + k, &known);
    }
    for (uint32_t m = 0; m < s->plan->microbatches; ++m)
        for (uint32_t i = 0; i < count; ++i)
            ok(tocsin_plan_add_turn(s->plan, i, (int32_t)m, NULL));
    for (uint32_t i = 0; i < known; i += 2) {
        tocsin_affine starts[TOCSIN_PLAN_NDIM_MAX];
        tocsin_plan_output output = {.kind = (uint8_t)below(s, 5),
                                     .fold = {(uint8_t)below(s, 3), (uint8_t)below(s, 3)},
                                     .name = any_name(s, "out", i),
                                     .value = i};
        any_starts(s, starts, true);
        ok(tocsin_plan_add_output(s->plan, &output, starts, NULL));
    }
}

static tocsin_plan *any_plan(uint64_t seed)
{
    source s = {.state = seed, .plan = tocsin_plan_new()};
    add_mesh(&s);
    add_groups(&s);
    uint32_t replicas = tocsin_plan_replicas(s.plan);
    for (uint32_t device = 0; device < tocsin_plan_devices(s.plan); ++device) {
        uint32_t first = 0;
        while (first < replicas) {
            uint32_t count = 1 + below(&s, replicas - first), inputs = below(&s, 4);
            ok(tocsin_plan_begin_role(s.plan, device, first, count, NULL));
            add_inputs(&s, inputs);
            add_segments(&s, inputs);
            first += count;
        }
    }
    tocsin_error error = {0};
    if (tocsin_plan_finish(s.plan, &error) != TOCSIN_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, error.message);
    return s.plan;
}

/* ---- the properties ---------------------------------------------------------------------------
 */

static void assert_same_size(const tocsin_plan *a, const tocsin_plan *b)
{
    tocsin_plan_size left = tocsin_plan_get_size(a), right = tocsin_plan_get_size(b);
    assert_memory_equal(&left, &right, sizeof left);
    assert_int_equal(a->values.count, b->values.count);
    assert_int_equal(a->operands.count, b->operands.count);
    assert_int_equal(a->dims.count, b->dims.count);
    assert_memory_equal(a->dims.items, b->dims.items, a->dims.count * sizeof *a->dims.items);
    assert_int_equal(a->starts.count, b->starts.count);
    assert_memory_equal(a->starts.items, b->starts.items,
                        a->starts.count * sizeof *a->starts.items);
    assert_int_equal(a->flaws.count, b->flaws.count);
    assert_int_equal(a->attribute_sets.count, b->attribute_sets.count);
}

static void test_roundtrip(void **state)
{
    (void)state;
    uint64_t seed = test_seed(20261129);
    char folder[] = "/tmp/tocsin-plans-XXXXXX", command[1024], path[64];
    const char *root = getenv("TOCSIN_SOURCE"), *python = getenv("PYTHON");
    assert_non_null(mkdtemp(folder));
    for (unsigned i = 0; i < PLANS; ++i) {
        tocsin_plan *built = any_plan(seed + i);
        char *text = plan_write(built);
        tocsin_plan *read = plan_read(text);
        char *again = plan_write(read);
        assert_string_equal(again, text);
        assert_same_size(built, read);
        snprintf(path, sizeof path, "%s/%u.plan", folder, i);
        ok(tocsin_file_store(path, text, strlen(text), false, NULL));
        free(text);
        free(again);
        tocsin_plan_free(built);
        tocsin_plan_free(read);
    }
    snprintf(command, sizeof command, "%s %s/tests/ref/plan.py --check %s/*.plan",
             python ? python : "python3", root ? root : ".", folder);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* The reference understands what was written by hand as the C reader does. */
static void test_reference(void **state)
{
    (void)state;
    const char *root = getenv("TOCSIN_SOURCE"), *python = getenv("PYTHON");
    char command[1024];
    root = root ? root : ".";
    snprintf(command, sizeof command,
             "%s %s/tests/ref/plan.py %s/tests/golden/plan/by_hand.plan | "
             "cmp - %s/tests/golden/plan/by_hand.canonical.plan",
             python ? python : "python3", root, root, root);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_roundtrip),
                                       cmocka_unit_test(test_reference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
