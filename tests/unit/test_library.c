/* The shipped library: it is read, says each thing once, joins a set without changing what is
 * there, and everything that it says can be recorded for. */
#include "trace_scratch.h"
#include <invariant/instance.h>
#include <tocsin/library.h>

static tocsin_invariant_set *load_library(void)
{
    tocsin_error error;
    tocsin_invariant_set *set;
    if (tocsin_library_load(&set, &error) != TOCSIN_OK)
        fail_msg("the library: %s", error.message);
    return set;
}

static void test_library_is_read(void **state)
{
    (void)state;
    tocsin_invariant_set *set = load_library();
    size_t count = tocsin_invariants_count(set);
    assert_true(count >= 10);
    for (size_t i = 0; i < count; ++i) {
        uint64_t instances;
        uint32_t runs;
        tocsin_invariant_support(set, i, &instances, &runs);
        assert_true(strlen(tocsin_invariant_sentence(set, i)) > 0);
        assert_int_equal(instances, 0);
        assert_int_equal(runs, 0);
    }
    tocsin_invariants_free(set);
}

static void test_library_says_each_thing_once(void **state)
{
    (void)state;
    tocsin_invariant_set *set = load_library();
    size_t count = tocsin_invariants_count(set);
    tocsin_error error;
    assert_int_equal(tocsin_library_append(set, &error), TOCSIN_OK);
    assert_int_equal(tocsin_invariants_count(set), count);
    /* one rule for each thing that is judged: two would be two findings of one mistake */
    for (size_t i = 1; i < count; ++i) {
        const tocsin_invariant *a = tocsin_invariants_get(set, i - 1);
        const tocsin_invariant *b = tocsin_invariants_get(set, i);
        assert_true(a->population != b->population || a->fact != b->fact);
    }
    tocsin_invariants_free(set);
}

static void test_library_is_written_and_read_again(void **state)
{
    (void)state;
    char folder[] = "/tmp/tocsin-library-XXXXXX";
    char path[64], selection[64];
    tocsin_error error;
    tocsin_invariant_set *set = load_library(), *again;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/library.jsonl", folder);
    snprintf(selection, sizeof selection, "%s/selection", folder);
    assert_int_equal(tocsin_invariants_save(set, path, 0, &error), TOCSIN_OK);
    assert_int_equal(tocsin_invariants_load(path, &again, &error), TOCSIN_OK);
    assert_int_equal(tocsin_invariants_count(again), tocsin_invariants_count(set));
    for (size_t i = 0; i < tocsin_invariants_count(set); ++i)
        assert_string_equal(tocsin_invariant_id(again, i), tocsin_invariant_id(set, i));
    assert_int_equal(tocsin_invariants_write_selection(set, selection, &error), TOCSIN_OK);
    size_t bytes;
    uint8_t *text = scratch_read(selection, &bytes);
    text[bytes] = 0;
    assert_non_null(strstr((const char *)text, "role optimizer.step"));
    free(text);
    tocsin_invariants_free(set);
    tocsin_invariants_free(again);
    unlink(path);
    unlink(selection);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_library_is_read),
        cmocka_unit_test(test_library_says_each_thing_once),
        cmocka_unit_test(test_library_is_written_and_read_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
