/* From a file to a plan: what kind it is is told by its content. */
#include "plan_example.h"
#include <unistd.h>

enum { PATH_BYTES = 1024 };

static void golden_path(char path[PATH_BYTES], const char *name)
{
    const char *source = getenv("TOCSIN_SOURCE");
    snprintf(path, PATH_BYTES, "%s/tests/golden/plan/%s", source ? source : ".", name);
}

static void test_kinds(void **state)
{
    (void)state;
    static const char *const names[] = {"by_hand.plan", "by_hand.canonical.plan",
                                        "by_hand.canonical.plan.zst"};
    char *first = NULL;
    for (size_t i = 0; i < TOCSIN_COUNT_OF(names); ++i) {
        char path[PATH_BYTES];
        tocsin_plan *plan = NULL;
        golden_path(path, names[i]);
        assert_int_equal(tocsin_plan_read(path, NULL, &plan, NULL), TOCSIN_OK);
        char *text = plan_write(plan);
        if (first)
            assert_string_equal(text, first);
        free(first);
        first = text;
        tocsin_plan_free(plan);
    }
    free(first);
}

static void assert_refused(const void *memory, size_t bytes, tocsin_status expected,
                           const char *message)
{
    tocsin_plan *plan = NULL;
    tocsin_error error = {0};
    assert_int_equal(tocsin_plan_read_memory(memory, bytes, "p", NULL, &plan, &error), expected);
    if (!strstr(error.message, message))
        fail_msg("%s", error.message);
    assert_string_equal(error.where, "p");
}

static void test_refused(void **state)
{
    (void)state;
    tocsin_plan *plan = NULL;
    assert_int_equal(tocsin_plan_read("/no/such.plan", NULL, &plan, NULL), TOCSIN_E_NOT_FOUND);
    assert_refused("", 0, TOCSIN_E_FORMAT, "the plan is empty");
    assert_refused("hello", 5, TOCSIN_E_FORMAT, "line 1: a plan begins with");
}

/* A frame cut off anywhere, or with a byte changed, is an error or the same plan, never a crash. */
static void test_damaged_frames(void **state)
{
    (void)state;
    char path[PATH_BYTES];
    tocsin_string packed = {0};
    golden_path(path, "by_hand.canonical.plan.zst");
    assert_int_equal(tocsin_file_load(path, 1 << 20, &packed, NULL), TOCSIN_OK);
    assert_refused(packed.text, 4, TOCSIN_E_FORMAT, "the zstd data are cut off");
    for (size_t cut = 4; cut < packed.bytes; ++cut)
        assert_refused(packed.text, cut, TOCSIN_E_FORMAT, "");
    tocsin_string_append(&packed, "x", 1);
    assert_refused(packed.text, packed.bytes, TOCSIN_E_FORMAT, "zstd data");
    for (size_t i = 4; i + 1 < packed.bytes; ++i) {
        tocsin_plan *plan = NULL;
        packed.text[i] = (char)(packed.text[i] ^ 0x55);
        if (tocsin_plan_read_memory(packed.text, packed.bytes - 1, "p", NULL, &plan, NULL) ==
            TOCSIN_OK)
            tocsin_plan_free(plan);
        packed.text[i] = (char)(packed.text[i] ^ 0x55);
    }
    tocsin_string_free(&packed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_damaged_frames)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
