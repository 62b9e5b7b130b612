/* The `.plan` text: golden files, every class of error with its place, flaws, declarations. */
#include "plan/plan_text.h"
#include "plan_example.h"
#include <unistd.h>

enum { PATH_BYTES = 1024 };

static char *load(const char *name)
{
    char path[PATH_BYTES];
    const char *source = getenv("TOCSIN_SOURCE");
    tocsin_string content = {0};
    snprintf(path, sizeof path, "%s/%s", source ? source : ".", name);
    assert_int_equal(tocsin_file_load(path, 1 << 20, &content, NULL), TOCSIN_OK);
    return content.text;
}

/* ---- texts that are plans ---------------------------------------------------------------------
 */

/* What was written by hand gives the canonical text, and that gives itself. */
static void test_golden(void **state)
{
    (void)state;
    static const char *const names[] = {"by_hand.plan", "by_hand.canonical.plan"};
    char *canonical = load("tests/golden/plan/by_hand.canonical.plan");
    for (size_t i = 0; i < TOCSIN_COUNT_OF(names); ++i) {
        char name[PATH_BYTES];
        snprintf(name, sizeof name, "tests/golden/plan/%s", names[i]);
        char *text = load(name);
        tocsin_plan *plan = plan_read(text);
        char *written = plan_write(plan);
        assert_string_equal(written, canonical);
        free(written);
        tocsin_plan_free(plan);
        tocsin_free(text);
    }
    tocsin_free(canonical);
}

/* What the reader understood of it. */
static void test_content(void **state)
{
    (void)state;
    char *text = load("tests/golden/plan/by_hand.plan");
    tocsin_plan *plan = plan_read(text);
    assert_int_equal(plan->axis_count, 3);
    assert_int_equal(plan->replica_axis, 1);
    assert_int_equal(plan->microbatches, 3);
    assert_int_equal(plan->groups.count, 3);
    assert_int_equal(plan->members.items[plan->groups.items[1].first_member + 2].device, 3);
    assert_int_equal(plan->members.items[plan->groups.items[1].first_member].replica,
                     TOCSIN_MEMBER_ALL);
    assert_int_equal(plan->members.items[plan->groups.items[2].first_member + 1].replica, 3);
    assert_int_equal(plan->assumptions.count, 2);
    assert_string_equal(tocsin_plan_text(plan, plan->assumptions.items[0]),
                        "loss is \"sum\", not mean; C:\\path and \x07");
    tocsin_affine start = plan->starts.items[2];
    assert_int_equal(start.base, 67);
    assert_int_equal(start.weight[TOCSIN_SYMBOL_REPLICA], 2);
    assert_int_equal(plan->starts.items[0].weight[TOCSIN_SYMBOL_MICROBATCH], 4);
    assert_true(plan->values.items[0].per_microbatch && !plan->values.items[0].persistent);
    assert_true(plan->values.items[1].persistent);
    const tocsin_plan_role *role = &plan->roles.items[0];
    assert_int_equal(role->turn_count, 8);
    assert_int_equal(plan->turns.items[2].segment, 1);
    assert_int_equal(plan->turns.items[2].microbatch, 0);
    assert_int_equal(plan->turns.items[7].microbatch, -1);
    assert_int_equal(role->output_count, 3);
    assert_int_equal(plan->outputs.items[0].fold[TOCSIN_SYMBOL_REPLICA], TOCSIN_FOLD_MEAN);
    assert_int_equal(plan->outputs.items[0].fold[TOCSIN_SYMBOL_MICROBATCH], TOCSIN_FOLD_SUM);
    assert_int_equal(plan->roles.items[1].replica_count, 3);
    assert_int_equal(plan->roles.items[2].first_replica, 3);
    const tocsin_plan_op *rope = &plan->ops.items[3], *rope2 = &plan->ops.items[4];
    assert_int_equal(rope->code, TOCSIN_OPERATOR_CALL);
    assert_int_equal(rope->signature, rope2->signature); /* equal but for the axes' names */
    assert_int_equal(rope2->phase, TOCSIN_PHASE_RECOMPUTE);
    assert_string_equal(tocsin_plan_text(plan, rope2->fqn), "<lambda>(x)");
    assert_true(tocsin_plan_attribute(plan, rope->attributes, "eps")->real == 0.5);
    assert_int_equal(tocsin_plan_attribute(plan, rope->attributes, "n")->integers[0], -3);
    assert_int_equal(tocsin_plan_attribute(plan, rope->attributes, "s")->kind,
                     TOCSIN_ATTRIBUTE_TEXT);
    assert_int_equal(plan->flaws.count, 1);
    assert_int_equal(tocsin_plan_flaw_of(plan, 7)->kind, TOCSIN_FLAW_ORDER);
    assert_true(plan->ops.items[7].flawed && !plan->ops.items[6].flawed);
    tocsin_plan_size size = tocsin_plan_get_size(plan);
    assert_int_equal(size.ranks, 16);
    assert_int_equal(size.operators, 14);
    assert_int_equal(size.executions, 4 * (3 * 8 + 3 * 3 + 0 + 1) + 4 * 2);
    tocsin_plan_free(plan);
    tocsin_free(text);
}

/* The example of the normative page is a plan, and a sound one. */
static void test_documented(void **state)
{
    (void)state;
    char *page = load("docs/formats/plan.md");
    char *begin = strstr(page, "```\n"), *end = begin ? strstr(begin + 4, "```\n") : NULL;
    assert_non_null(end);
    *end = 0;
    tocsin_plan *plan = plan_read(begin + 4);
    assert_int_equal(plan->roles.count, 5);
    assert_int_equal(plan->flaws.count, 0);
    assert_int_equal(tocsin_plan_get_size(plan).ranks, 8);
    tocsin_plan_free(plan);
    tocsin_free(page);
}

/* A value that is read before anything writes it keeps its identity when it is written later. */
static void test_later_values(void **state)
{
    (void)state;
    tocsin_plan *plan = plan_read("tocsin-plan 1\nrole\nsegment b\n%y:float32[2] = neg(%x)\n"
                                  "segment a\n%x:float32[2] = full() {value=1}\n"
                                  "schedule a b\nend\n");
    assert_int_equal(plan->roles.items[0].value_count, 2);
    assert_int_equal(plan->operands.items[0], plan->operands.items[2]);
    assert_int_equal(plan->flaws.count, 0);
    tocsin_plan_free(plan);
    plan = plan_read("tocsin-plan 1\nrole\nsegment b\n%y:float32[2] = neg(%x)\n"
                     "segment a\n%x:float32[2] = full() {value=1}\nend\n");
    assert_int_equal(plan->flaws.count, 1);
    assert_string_equal(tocsin_plan_text(plan, plan->flaws.items[0].text),
                        "reads x before it is written");
    tocsin_plan_free(plan);
}

/* ---- texts that are none ----------------------------------------------------------------------
 */

/* The text is refused with this status, with a message that begins "line N: " and goes on so. */
static void assert_refused(const char *text, tocsin_status expected, int line, const char *message)
{
    tocsin_plan *plan = NULL;
    tocsin_error error = {0};
    char begin[600];
    snprintf(begin, sizeof begin, "line %d: %s", line, message);
    tocsin_status status = tocsin_plan_read_text(text, strlen(text), "p", NULL, &plan, &error);
    if (status != expected || strncmp(error.message, begin, strlen(begin)) != 0)
        fail_msg("%s\nstatus %d: %s\nexpected: %s", text, (int)status, error.message, begin);
    assert_string_equal(error.where, "p");
    assert_true(error.offset >= 0 && error.offset <= (int64_t)strlen(text));
    int found = 1;
    for (int64_t i = 0; i < error.offset; ++i)
        found += text[i] == '\n';
    assert_int_equal(found, line); /* the offset is on that line */
}

#define HEAD "tocsin-plan 1\nmesh dp=2* tp=2\n"

static void test_statements_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int line;
        const char *message;
    } cases[] = {
        {"", 1, "a plan begins with"},
        {"# nothing\n", 1, "a plan begins with"},
        {"\nplan 1\n", 2, "a plan begins with the line `tocsin-plan 1`"},
        {"tocsin-plan\n", 1, "expected an integer"},
        {"tocsin-plan 1 x\n", 1, "expected the end of the line"},
        {"tocsin-plan 1\nfoo\n", 2, "expected a statement"},
        {"tocsin-plan 1\n\r\n", 2, "expected a statement"},
        {"tocsin-plan 1\nmesh 2=2\n", 2, "an axis is called by a letter"},
        {"tocsin-plan 1\nmesh mb=2\n", 2, "an axis is called by a letter"},
        {"tocsin-plan 1\nmesh a=2 a=2\n", 2, "the mesh has two axes a"},
        {"tocsin-plan 1\nmesh a=2* b=2*\n", 2, "a mesh has at most one replica axis"},
        {HEAD "mesh tp=2\n", 3, "a second mesh"},
        {HEAD "microbatches 2\nmicrobatches 2\n", 4, "microbatches stands once"},
        {HEAD "group g\n", 3, "expected ="},
        {HEAD "group g = \n", 3, "group g has no members"},
        {HEAD "group g = (tp=0\n", 3, "expected )"},
        {HEAD "group g = (pp=0)\n", 3, "pp is no axis of the mesh, or stands twice"},
        {HEAD "group g = (tp=0 tp=1)\n", 3, "tp is no axis of the mesh, or stands twice"},
        {HEAD "group g = (dp=0)\n", 3, "the coordinate on axis tp is missing"},
        {HEAD "group g = (tp=0) (tp=0)\n", 3, "group g has the same member twice"},
        {HEAD "group g = (tp=0 dp=all) (tp=1)\n", 3, "the members of group g name"},
        {HEAD "group g = (tp=0)\ngroup g = (tp=0)\n", 4, "a second group g"},
        {HEAD "assume \"open\n", 3, "a quoted word does not end on its line"},
        {HEAD "assume \"a\\n\"\n", 3, "an escape is"},
        {HEAD "assume \"a\tb\"\n", 3, "a control character"},
        {HEAD "role\n", 3, "the coordinate on axis tp is missing"},
        {HEAD "role tp=0\nrole tp=1\n", 4, "a role begins before the last one's `end`"},
        {HEAD "role tp=0\nsegment a\n", 4, "the last role has no `end`: the file is cut off"},
        {HEAD "end\n", 3, "end outside of a role"},
        {HEAD "in %x:float32[] = x\n", 3, "in outside of a role"},
        {HEAD "%x:float32[] = full() {value=1}\n", 3, "an operator outside of a segment"},
        {HEAD "role tp=0\n%x:float32[] = full() {value=1}\n", 4, "an operator outside of a seg"},
        {HEAD "role tp=0\ngroup g = (tp=0)\n", 4, "group inside of a role"},
        {HEAD "role tp=0\nin x\n", 4, "expected %"},
        {HEAD "role tp=0\nin %:float32[] = x\n", 4, "expected the name of a value"},
        {HEAD "role tp=0\nin %x:float[] = x\n", 4, "expected a dtype such as float32"},
        {HEAD "role tp=0\nin %x:float32[2 = x\n", 4, "expected ]"},
        {HEAD "role tp=0\nin %x:float32[2] every = x\n", 4, "expected each or ="},
        {HEAD "role tp=0\nin %x:float32[2] = x[0 : 3]\n", 4, "the lengths of the slice differ"},
        {HEAD "role tp=0\nin %x:float32[2] = x[0 : 2, 0 : 2]\n", 4, "the lengths of the slice d"},
        {HEAD "role tp=0\nin %x:float32[2] = x[tp*2 : 2]\n", 4, "a start is a sum of"},
        {HEAD "role tp=0\nin %x:float32[2] = x[dp : 2]\n", 4, "expected *"},
        {HEAD "role tp=0\nin %x:float32[2] = x[0 2]\n", 4, "expected :"},
        {HEAD "role tp=0\nin %x:float32[2] = x y\n", 4, "expected the end of the line"},
        {HEAD "role tp=0\nin %x:float32[] = x\nin %x:float32[] = x\n", 5, "%x stands before its"},
        {HEAD "role tp=0\nsegment a\nsegment a\n", 5, "a second segment a"},
        {HEAD "role tp=0\nsegment a\nschedule b\n", 5, "the role has no segment b"},
        {HEAD "role tp=0\nsegment a\nschedule a.\n", 5, "the role has no segment a."},
        {HEAD "role tp=0\nout gain x = %x\n", 4, "expected loss, grad, param, state or other"},
        {HEAD "role tp=0\nout loss x = %x\n", 4, "nothing writes %x, and without a slice"},
        {HEAD "role tp=0\nin %x:float32[2] = x\nout loss x[0:3] = %x\n", 5, "the lengths of the"},
        {HEAD "role tp=0\nin %x:float32[] = x\nout loss x = %x fold=sum\n", 5, "expected ,"},
        {HEAD "role tp=0\nin %x:float32[] = x\nout loss x = %x fold=sum,avg\n", 5,
         "expected equal, sum or mean"},
        {HEAD "role tp=0\nin %x:float32[] = x\nout loss x = %x folded\n", 5, "expected fold="},
    };
    for (size_t i = 0; i < TOCSIN_COUNT_OF(cases); ++i)
        assert_refused(cases[i].text, TOCSIN_E_FORMAT, cases[i].line, cases[i].message);
}

static void test_limits(void **state)
{
    (void)state;
    assert_refused("tocsin-plan 2\n", TOCSIN_E_VERSION, 1, "version 2 of the format");
    static const struct {
        const char *text;
        int line;
        const char *message;
    } cases[] = {
        {"tocsin-plan 1\nmesh a=4194305\n", 2, "4194305 is not from 1 to 4194304"},
        {"tocsin-plan 1\nmesh a=2048 b=4096\n", 2, "a mesh has at most 4194304 ranks"},
        {HEAD "microbatches 0\n", 3, "0 is not from 1 to 1048576"},
        {HEAD "group g = (tp=2)\n", 3, "2 is not from 0 to 1"},
        {HEAD "role tp=0 dp=1:2\n", 3, "2 is not from 1 to 1"},
        {HEAD "role tp=0\nin %x:float32[0] = x\n", 4, "0 is not from 1 to 140737488355328"},
        {HEAD "role tp=0\nin %x:float32[99999999999999999999] = x\n", 4, "99999999999999999999"},
        {HEAD "role tp=0\nin %x:float32[1,1,1,1,1,1,1,1,1,1,1,1,1] = x\n", 4, "a value has at mos"},
        {HEAD "role tp=0\nin %x:float32[2147483648,2147483648] = x\n", 4, "x has 2^62 elements"},
        {HEAD "role tp=0\nin %x:float32[1] = x[140737488355328+1 : 1]\n", 4, "a slice starts bey"},
        {HEAD "role tp=0\nin %x:float32[1] = x[dp*140737488355329 : 1]\n", 4, "140737488355329"},
        {HEAD "role tp=0\nsegment a\nschedule a.1\n", 5, "1 is not from 0 to 0"},
    };
    for (size_t i = 0; i < TOCSIN_COUNT_OF(cases); ++i)
        assert_refused(cases[i].text, TOCSIN_E_LIMIT, cases[i].line, cases[i].message);
    size_t bytes = TOCSIN_PLAN_LINE_BYTES_MAX + 1;
    char *text = malloc(sizeof HEAD + bytes);
    strcpy(text, HEAD);
    memset(text + sizeof HEAD - 1, ' ', bytes);
    text[sizeof HEAD - 1 + bytes] = 0;
    assert_refused(text, TOCSIN_E_LIMIT, 3, "a line of more than 1 MiB");
    free(text);
}

/* Lines of operators that are refused where they stand: plan_around() puts them on line 13. */
static void test_operators_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"%y", "expected :"},
        {"%y:float32[4] neg(%a)", "expected ="},
        {"%y:float32[4] = neg %a", "expected ("},
        {"%y:float32[4] = neg(%a", "expected )"},
        {"%y:float32[4] = neg(a)", "expected %"},
        {"%y:float32[4] = (%a)", "expected the name of an operator"},
        {"%y:float32[4] = neg(%a:float32[4])", "%a has another type before"},
        {"%a:float32[4,6] = neg(%b)", "%a is written twice"},
        {"%a:float32[4,7] = neg(%b)", "%a has another type before"},
        {"%y:float32[4,6] = neg(%a) {k=1", "the attributes do not end on their line"},
        {"%y:float32[4,6] = f(%a) {k}", "expected ="},
        {"%y:float32[4,6] = f(%a) {k=}", "expected a value of the attribute"},
        {"%y:float32[4,6] = f(%a) {k=1, k=2}", "attribute k is given twice"},
        {"%y:float32[4,6] = f(%a) {k=[1,}", "expected an integer"},
        {"%y:float32[4,6] = f(%a) {k=1x}", "1x is not a number (a word that begins"},
        {"%y:float32[4,6] = f(%a) {k=1e}", "1e is not a number"},
        {"%y:float32[4,6] = f(%a) {k=1e999}", "1e999 is not a number"},
        {"%y:float32[4,6] = f(%a) {k=0x10}", "0x10 is not a number"},
        {"%y:float32[4,6] = f(%a) fw bw", "a keyword stands twice"},
        {"%y:float32[4,6] = f(%a) label=a label=b", "a keyword stands twice"},
        {"%y:float32[4,6] = f(%a) mode=3", "expected fw, bw, opt, re, @MODULE"},
        {"%y:float32[4,6] = f(%a) src", "expected fw, bw, opt, re, @MODULE"},
        {"%y:float32[4,6] = f(%a) @", "expected a module"},
        {"%y:float32[4,6] = all_reduce(%a) {op=sum} group=none", "there is no group none"},
        {"%y:float32[4,6] = f(%a) sig=\"[a b]\"", "expected an operand, as in x[a b], or ->"},
        /* found when the whole was there */
        {"%y:float32[4,6] = neg(%a, %a)", "neg with 2 inputs and 1 outputs"},
        {"= neg(%a)", "neg with 1 inputs and 0 outputs"},
        {"= copies(%a)", "copies with 1 inputs and 0 outputs"},
        {"%y:float32[] = f(%a) sig=\"[a b+] [c] -> [a]\"", "f with 1 inputs and 1 outputs"},
        {"%y:float32[4,6] = neg(%a) {dim=1}", "neg has no attribute dim"},
        {"%y:float32[4,6] = scale(%a)", "scale needs the attribute factor, a number"},
        {"%y:float32[4,6] = scale(%a) {factor=two}", "the attribute factor of scale must be a num"},
        {"%y:float32[4,6] = scale(%a) {factor=[1,2]}", "the attribute factor of scale must be a n"},
        {"%y:float32[4,6] = slice(%a) {dim=[1,2], start=0, end=1}",
         "the attribute dim of slice must be an integer"},
        {"%y:float32[4,6] = all_reduce(%a) {op=prod} group=all",
         "the attribute op of all_reduce must be sum, avg, max or min"},
        {"%y:float32[2,6] = reduce_scatter(%a) {op=max, dim=0} group=all",
         "the attribute op of reduce_scatter must be sum or avg"},
        {"%y:float32[4,6] = all_reduce(%a) {op=sum}", "all_reduce needs a group"},
        {"%y:float32[4,6] = neg(%a) group=all", "neg is no collective, yet has a group"},
        {"%y:float32[4,6] = accumulate(%a)", "accumulate adds to y, which is not kept"},
        {"%y:float32[4,6] keep = accumulate(%a) sig=\"[a b] -> [a b]\"\n"
         "%y:float32[4,6] keep = accumulate(%a)",
         "%y is written twice"},
    };
    for (size_t i = 0; i < TOCSIN_COUNT_OF(cases); ++i) {
        char *text = plan_around(cases[i].text);
        bool second = strchr(cases[i].text, '\n') != NULL;
        if (second) /* the check of the whole says it of a value, not of a word */
            assert_refused(text, TOCSIN_E_FORMAT, 14, "value y is written twice");
        else
            assert_refused(text, TOCSIN_E_FORMAT, 13, cases[i].message);
        free(text);
    }
}

/* What only the whole plan shows. Errors of a role name its line. */
static void test_whole_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int line;
        const char *message;
    } cases[] = {
        {HEAD "role tp=0\nend\n", 4, "rank 1 has no role"},
        {HEAD "role tp=0\nend\nrole tp=0 dp=1\nend\n", 5, "rank 2 has two roles"},
        {HEAD "role tp=0 dp=0\nend\nrole tp=1\nend\n", 6, "rank 2 has no role"},
        {HEAD "microbatches 2\nrole tp=0\nsegment a\nschedule a a\nend\n", 4,
         "the schedule runs segment a twice for one micro-batch"},
        {HEAD "microbatches 2\nrole tp=0\nsegment a\nschedule a.1 a\nend\n", 4,
         "segment a runs without a micro-batch, and also with one"},
        {HEAD "role tp=0\nin %x:float32[1] = x[dp*2-1 : 1]\nend\n", 3,
         "the slice of x starts at -1"},
        {HEAD "role tp=0\nin %x:float32[1] = x[mb*2 : 1]\nend\n", 3,
         "the slice of x depends on the micro-batch"},
        {HEAD "microbatches 2\nrole tp=0\nsegment a\n%x:float32[] = full() {value=1}\n"
              "segment b\n%y:float32[] = neg(%x)\nschedule a.0 a.1 b\nend\n",
         8, "neg in segment b, which runs once, reads x, of which each micro-batch has its own"},
        {HEAD "microbatches 2\nrole tp=0\nin %x:float32[] each = x\n"
              "segment b\n%y:float32[] = neg(%x)\nend\n",
         7, "neg in segment b, which runs once, reads x"},
    };
    for (size_t i = 0; i < TOCSIN_COUNT_OF(cases); ++i)
        assert_refused(cases[i].text, TOCSIN_E_FORMAT, cases[i].line, cases[i].message);
    assert_refused(HEAD "role tp=0\nin %x:float32[1] = x[140737488355328+dp*1 : 1]\nend\n",
                   TOCSIN_E_LIMIT, 3, "the slice of x starts beyond 2^47");
}

/* A text cut off anywhere is refused or (after an `end` that completes it) read; it never crashes.
 */
static void test_cut_off(void **state)
{
    (void)state;
    char *text = load("tests/golden/plan/by_hand.plan");
    size_t bytes = strlen(text), read = 0;
    for (size_t cut = 0; cut <= bytes; ++cut) {
        tocsin_plan *plan = NULL;
        char *copy = malloc(cut ? cut : 1); /* no byte behind it: sanitizers watch */
        memcpy(copy, text, cut);
        if (tocsin_plan_read_text(copy, cut, "p", NULL, &plan, NULL) == TOCSIN_OK) {
            tocsin_plan_free(plan);
            ++read;
        }
        free(copy);
    }
    assert_int_equal(read, 2); /* with and without the last line's end */
    tocsin_free(text);
}

/* ---- flaws ------------------------------------------------------------------------------------
 */

/* An operator and its flaw, NULL when it has none. */
typedef struct flaw_case {
    const char *text, *flaw;
} flaw_case;

static const flaw_case structure[] = {
    {"%y:float32[4,6] = neg(%a)", NULL},
    {"%y:float32[6,4] = neg(%a)", "dim 0 has size 4 against 6"},
    {"%y:float32[24] = neg(%a)", "2 dims against 1"},
    {"%y:float32[4,6], %z:float32[4,7] = copies(%a)", "dim 1 has size 6 against 7"},
    {"%y:float32[2,12] = view(%a) {shape=[2,12]}", NULL},
    {"%y:float32[2,11] = view(%a)", "a view of 24 elements as 22"},
    {"%y:float32[2,12] = view(%a) {shape=[3,8]}", "dim 0 has size 3 against 2"},
    {"%y:float32[6,4] = permute(%a) {dims=[1,0]}", NULL},
    {"%y:float32[6,4] = permute(%a) {dims=[0,1]}", "dim 0 of the result has size 6, not 4"},
    {"%y:float32[6,4] = permute(%a) {dims=[1,1]}", "dims is not a permutation of 0 to 1"},
    {"%y:float32[6,4] = permute(%a) {dims=[0,1,2]}", "2 dims permuted by 3 numbers into 2 dims"},
    {"%y:float32[3,4,9] = expand(%c)", NULL},
    {"%y:float32[3,5,9] = expand(%c)", "dim 1 of the result has size 5, not 4"},
    {"%y:float32[4] = expand(%c)", "2 dims expanded to 1"},
    {"%y:float32[4,3] = slice(%a) {dim=1, start=1, end=6, step=2}", NULL},
    {"%y:float32[4,3] = slice(%a) {dim=1, start=1, end=5}", "dim 1 of the result has size 3"},
    {"%y:float32[4,6] = slice(%a) {dim=1, start=1, end=7}", "[1:7:1] is no slice of dim 1"},
    {"%y:float32[4,6] = slice(%a) {dim=2, start=0, end=1}", "dim=2 is no dim of 2"},
    {"%y:float32[4,6] = slice(%a) {dim=-1, start=0, end=1}", "dim=-1 is no dim of 2"},
    {"%y:float32[4] = select(%a) {dim=1, index=5}", NULL},
    {"%y:float32[4] = select(%a) {dim=1, index=6}", "index 6 of dim 1 of size 6"},
    {"%y:float32[6] = select(%a) {dim=1, index=0}", "dim 0 has size 6, not 4"},
    {"%y:float32[4,2], %z:float32[4,4] = split(%a) {dim=1, sizes=[2,4]}", NULL},
    {"%y:float32[4,2], %z:float32[4,2] = split(%a) {dim=1, sizes=[2,2]}", "the sizes do not"},
    {"%y:float32[4,2], %z:float32[4,4] = split(%a) {dim=1, sizes=[2]}", "1 sizes for 2 results"},
    {"%y:float32[3,4], %z:float32[3,4] = unbind(%t) {dim=0}", NULL},
    {"%y:float32[3,4] = unbind(%t) {dim=0}", "1 results of dim 0 of size 2"},
    {"%y:float32[4,7] = cat(%a, %c) {dim=1}", NULL},
    {"%y:float32[4,8] = cat(%a, %c) {dim=1}", "the parts do not add up to 8 on dim 1"},
    {"%y:float32[4,6] = cat(%a, %c) {dim=1}", "the parts do not add up to 6 on dim 1"},
    {"%y:float32[8,6] = cat(%a, %c) {dim=0}", "dim 1 has size 1 against 6"},
    {"%y:float32[4,2,6] = stack(%a, %a) {dim=1}", NULL},
    {"%y:float32[4,6,3] = stack(%a, %a) {dim=2}", "dim 2 of the result has size 3, not 2"},
    {"%y:float32[4,9] = pad(%a) {dim=1, before=1, after=2}", NULL},
    {"%y:float32[4,9] = pad(%a) {dim=1, before=-1, after=4}", "padding by -1 and 4"},
};

static const flaw_case arithmetic[] = {
    {"%y:float32[4,6] = add(%a, %c, %s)", NULL},
    {"%y:float32[4,6] = sub(%a, %b)", "sizes 6 and 8 do not broadcast"},
    {"%y:float32[4,1] = div(%c, %a)", "dim 1 of the result has size 1, not 6"},
    {"%y:float32[4,6] = mul(%a, %c)", NULL},
    {"%y:float32[1,4,6] = mul(%a, %c)", "the result has 3 dims, not 2"},
    {"%y:float32[4] = sum(%a) {dims=1}", NULL},
    {"%y:float32[4,1] = mean(%a) {dims=[1], keepdim=1}", NULL},
    {"%y:float32[] = amax(%a) {dims=[0,1]}", NULL},
    {"%y:float32[6] = sum(%a) {dims=1}", "dim 0 has size 6 against 4"},
    {"%y:float32[6] = sum(%a) {dims=[0,0]}", "dims are not different dims of 2"},
    {"%y:float32[1,6] = sum(%a) {dims=0, keepdim=2}", "keepdim=2"},
    {"%y:float32[2] = full() {value=1, shape=[3]}", "dim 0 has size 3 against 2"},
    {"%y:int64[4] = arange() {start=0, end=7, step=2}", NULL},
    {"%y:int64[4] = arange() {start=7, end=0, step=-2}", NULL},
    {"%y:int64[3] = arange() {start=0, end=4}", "dim 0 of the result has size 3, not 4"},
    {"%y:int64[3] = arange() {start=4, end=0}", "4 to 0 by 1 is no range"},
    {"%y:float32[4,8] = mm(%a, %b)", NULL},
    {"%y:float32[4,8] = mm(%b, %a)", "axis k has size 8 and 4"},
    {"%y:float32[8,4] = mm(%a, %b)", "axis m has size 4 and 8"},
    {"%y:float32[4,8] = bmm(%a, %b)", "operand 0 has 2 dims, its signature 3"},
    {"%y:float32[2,3,6] = linear(%t, %w)", NULL}, /* %w is not written: it fits anything */
    {"%y:float32[4,6] = softmax(%a) {dim=1}", NULL},
    {"%y:float32[4,6] = softmax(%a) {dim=2}", "dim=2 is no dim of 2"},
    {"%y:float32[3,5,8] = embedding(%b, %i)", NULL},
    {"%y:float32[3,5,6] = embedding(%b, %i)", "dim 2 of the result has size 6, not 8"},
    {"%y:float32[3,5] = embedding(%b, %i)", "a table of 2 dims, indices of 2, a result of 2"},
    {"%e:float32[3,5,8] = embedding(%b, %i)\n"
     "%y:float32[6,8] = embedding_backward(%e, %i) {rows=6}",
     NULL},
    {"%y:float32[6,8] = embedding_backward(%t, %i) {rows=6}", "dim 0 has size 3, not 2"},
    {"%y:float32[4,6] = f(%a, %c) sig=\"[r c] [r 1] -> [r c]\"", NULL},
    {"%y:float32[4,6] = f(%a, %b) sig=\"[r c] [_ 1] -> [r c]\"",
     "dim 1 of operand 1 has size 8, not 1"},
    {"%y:float32[4,7] = f(%a) sig=\"[... c] -> [... c]\"", "axis c has size 6 and 7"},
    {"%y:float32[5,6] = f(%a) sig=\"[... c] -> [... c]\"", "dim 0 of the result has size 5"},
};

static const flaw_case communication[] = {
    {"%y:float32[4,6] = all_reduce(%a) {op=sum} group=all", NULL},
    {"%y:float32[8,6] = all_gather(%a) {dim=0} group=all", NULL},
    {"%y:float32[4,6] = all_gather(%a) {dim=0} group=all", "dim 0 has size 4 and 4 over a"},
    {"%y:float32[2,6] = reduce_scatter(%a) {dim=0, op=avg} group=all", NULL},
    {"%y:float32[4,6] = reduce_scatter(%a) {dim=0, op=avg} group=all", "dim 0 has size 4 and 4"},
    {"%y:float32[2,12] = all_to_all(%a) {split_dim=0, join_dim=1} group=all", NULL},
    {"%y:float32[4,6] = all_to_all(%a) {split_dim=0, join_dim=0} group=all", NULL},
    {"%y:float32[4,6] = all_to_all(%a) {split_dim=0, join_dim=1} group=all", "dim 0 has size"},
    {"%y:float32[3,10] = all_to_all(%i) {split_dim=0, join_dim=1} group=all",
     "dim 0 of size 3 does not split over a group of 2"},
    {"%y:float32[4,6] = broadcast(%a) {root=1} group=all", NULL},
    {"%y:float32[4,6] = broadcast() {root=0} group=all", NULL},
    {"%y:float32[4,6] = broadcast(%a) {root=2} group=all", "the group has no such root"},
    {"%y:float32[4,6] = all_reduce(%a) {op=sum} group=other",
     "the caller is not a member of group other"},
    {"= send(%a) {peer=1}", NULL},
    {"= send(%a) {peer=2}", "the peer is device 2 of 2"},
    {"%y:float32[4,6] = recv() {peer=-1, tag=3}", "the peer is device -1 of 2"},
    {"= barrier() group=all", NULL},
    {"%y:float32[4,6] = neg(%z)\n%z:float32[4,6] = neg(%a)", "reads z before it is written"},
};

static void assert_flaws(const flaw_case *cases, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        char *text = plan_around(cases[i].text);
        tocsin_plan *plan = plan_read(text);
        const char *flaw = "none", *expected = cases[i].flaw ? cases[i].flaw : "none";
        if (plan->flaws.count > 0)
            flaw = tocsin_plan_text(plan, plan->flaws.items[0].text);
        if (strncmp(flaw, expected, strlen(expected)) != 0)
            fail_msg("%s: %s", cases[i].text, flaw);
        tocsin_plan_free(plan);
        free(text);
    }
}

static void test_flaws(void **state)
{
    (void)state;
    assert_flaws(structure, TOCSIN_COUNT_OF(structure));
    assert_flaws(arithmetic, TOCSIN_COUNT_OF(arithmetic));
    assert_flaws(communication, TOCSIN_COUNT_OF(communication));
}

/* Groups of ranks in fixed replicas have a caller only where every replica of the role is one. */
static void test_caller_of_fixed_group(void **state)
{
    (void)state;
    tocsin_plan *plan =
        plan_read(HEAD "group g = (tp=0 dp=0) (tp=0 dp=1)\ngroup h = (tp=0 dp=0) (tp=1 dp=1)\n"
                       "role tp=0\nsegment a\n= barrier() group=g\n= barrier() group=h\nend\n"
                       "role tp=1 dp=0\nsegment a\n= barrier() group=h\nend\n"
                       "role tp=1 dp=1\nsegment a\n= barrier() group=h\nend\n");
    assert_int_equal(plan->flaws.count, 2);
    assert_int_equal(plan->flaws.items[0].op, 1);
    assert_int_equal(plan->flaws.items[1].op, 2);
    assert_int_equal(plan->flaws.items[0].kind, TOCSIN_FLAW_GROUP);
    tocsin_plan_free(plan);
}

/* ---- declarations -----------------------------------------------------------------------------
 */

static void write_file(char path[PATH_BYTES], const char *text)
{
    strcpy(path, "/tmp/tocsin-ops-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void test_declarations(void **state)
{
    (void)state;
    char path[PATH_BYTES];
    write_file(path,
               "# operators of our model\n\nop rope q[b s d^] f[s e^] -> [b s d^] linear=0 # x\n"
               "\top my.op [... n] -> [... n]");
    static const char text[] =
        "tocsin-plan 1\nrole\nin %a:float32[2,3,4] = a\nin %f:float32[3,2] = f\nsegment s\n"
        "%b:float32[2,3,4] = rope(%a, %f)\n%c:float32[2,3,4] = my.op(%b)\n"
        "%d:float32[2,3,4] = rope(%a) sig=\"[a b c] -> [a b c]\"\n%e:float32[] = other(%a)\nend\n";
    tocsin_plan_options options = {.operators_path = path};
    tocsin_plan *plan = NULL;
    assert_int_equal(tocsin_plan_read_text(text, strlen(text), "p", &options, &plan, NULL),
                     TOCSIN_OK);
    const tocsin_signature *signatures = plan->signatures.items;
    const tocsin_plan_op *ops = plan->ops.items;
    assert_string_equal(signatures[ops[0].signature].text, "[a b c^] [b d^] -> [a b c^] linear=0");
    assert_string_equal(signatures[ops[1].signature].text, "[... a] -> [... a]");
    assert_string_equal(signatures[ops[2].signature].text, "[a b c] -> [a b c]");
    assert_int_equal(ops[3].signature, TOCSIN_PLAN_NONE);
    tocsin_plan_free(plan);
    unlink(path);
}

static void test_declarations_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t offset;
        const char *message;
    } cases[] = {
        {"op", 0, "line 1: expected `op NAME SIGNATURE`"},
        {"\noperator x [] -> []", 1, "line 2: expected `op NAME SIGNATURE`"},
        {"op  ", 4, "line 1: expected a name"},
        {"op x", 4, "line 1: expected an operand"},
        {"op x [a] -> [b", 14, "line 1: a bracket is not closed"},
        {"op mm [a] -> [a]", 6, "line 1: mm is a known operator"},
        {"op x [] -> []\nop x [] -> []", 19, "line 2: x is declared twice"},
    };
    for (size_t i = 0; i < TOCSIN_COUNT_OF(cases); ++i) {
        char path[PATH_BYTES];
        write_file(path, cases[i].text);
        tocsin_declarations declarations = {0};
        tocsin_error error = {0};
        assert_int_equal(tocsin_declarations_load(path, &declarations, &error), TOCSIN_E_FORMAT);
        if (!strstr(error.message, cases[i].message) || error.offset != cases[i].offset)
            fail_msg("%s: %lld: %s", cases[i].text, (long long)error.offset, error.message);
        tocsin_declarations_free(&declarations);
        unlink(path);
    }
    tocsin_declarations declarations = {0};
    assert_int_equal(tocsin_declarations_load("/no/such/file", &declarations, NULL),
                     TOCSIN_E_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_content),
        cmocka_unit_test(test_documented),
        cmocka_unit_test(test_later_values),
        cmocka_unit_test(test_statements_refused),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_operators_refused),
        cmocka_unit_test(test_whole_refused),
        cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_flaws),
        cmocka_unit_test(test_caller_of_fixed_group),
        cmocka_unit_test(test_declarations),
        cmocka_unit_test(test_declarations_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
