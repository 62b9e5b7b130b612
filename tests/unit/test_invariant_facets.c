/* What an invariant is about, and keeping some of a set. */
#include "trace_scratch.h"
#include <invariant/instance.h>

static const char RULES[] =
    "{\"format\":\"tocsin-invariants\",\"version\":1}\n"
    "{\"relation\":\"APIArg\",\"population\":{\"kind\":\"call\",\"function\":\"dropout\"},"
    "\"fact\":{\"is\":\"argument equals\",\"field\":\"arg.p\",\"value\":0.5},"
    "\"when\":[[{\"kind\":\"constant\",\"field\":\"meta.stage\",\"value\":\"training\"}]]}\n"
    "{\"relation\":\"APIArg\",\"population\":{\"kind\":\"collectives\"},"
    "\"fact\":{\"is\":\"same\",\"field\":\"function\"},\"when\":[]}\n"
    "{\"relation\":\"EventContain\",\"population\":{\"kind\":\"call\",\"role\":\"backward\"},"
    "\"fact\":{\"is\":\"calls\",\"function\":\"f\"},\"when\":[]}\n";

static tocsin_invariant_set *load(scratch *place, char path[SCRATCH_PATH_BYTES])
{
    tocsin_invariant_set *set;
    tocsin_error error;
    *place = scratch_new();
    snprintf(path, SCRATCH_PATH_BYTES, "%s/rules", place->directory);
    scratch_write(path, RULES, strlen(RULES));
    if (tocsin_invariants_load(path, &set, &error) != TOCSIN_OK)
        fail_msg("%s", error.message);
    assert_int_equal(tocsin_invariants_count(set), 3);
    return set;
}

static size_t find(const tocsin_invariant_set *set, const char *code, const char *call)
{
    for (size_t i = 0; i < tocsin_invariants_count(set); ++i)
        if (strcmp(tocsin_invariant_code(set, i), code) == 0 &&
            strcmp(tocsin_invariant_call(set, i), call) == 0)
            return i;
    fail_msg("nothing has %s and %s", code, call);
    return 0;
}

static void test_facets(void **state)
{
    (void)state;
    scratch place;
    char path[SCRATCH_PATH_BYTES];
    tocsin_invariant_set *set = load(&place, path);
    size_t contain = find(set, "TOC002", "backward");
    size_t dropout = find(set, "TOC005", "dropout");
    assert_string_equal(tocsin_invariant_severity(set, dropout), "warning");
    assert_string_equal(tocsin_invariant_cause(set, dropout), "arguments of a call");
    size_t collective = find(set, "TOC005", "collective");
    assert_string_equal(tocsin_invariant_severity(set, collective), "error");
    assert_string_equal(tocsin_invariant_cause(set, collective), "collectives of the ranks");
    assert_int_equal(tocsin_invariant_claim_bytes(set, dropout),
                     strlen("Every call of dropout has arg.p = 0.5"));
    assert_int_equal(tocsin_invariant_claim_bytes(set, contain) + 1,
                     strlen(tocsin_invariant_sentence(set, contain)));
    assert_string_equal(tocsin_invariant_between(set, dropout), "");
    assert_string_equal(tocsin_invariant_between(set, contain), "");
    tocsin_fault_arm(TOCSIN_FAULT_MEMORY, 1);
    assert_int_equal(tocsin_invariant_claim_bytes(set, dropout), 0);
    assert_true(tocsin_fault_disarm(TOCSIN_FAULT_MEMORY));
    tocsin_invariants_free(set);
    scratch_free(&place);
}

static bool has_code(const void *context, const tocsin_invariant_set *set, size_t index)
{
    return strcmp(tocsin_invariant_code(set, index), context) == 0;
}

static void test_keeping(void **state)
{
    (void)state;
    scratch place;
    char path[SCRATCH_PATH_BYTES], gone[32];
    tocsin_invariant_set *set = load(&place, path);
    snprintf(gone, sizeof gone, "%s", tocsin_invariant_id(set, find(set, "TOC002", "backward")));
    assert_true(tocsin_invariants_has(set, gone));
    assert_int_equal(tocsin_invariants_keep(set, has_code, "TOC005", NULL), TOCSIN_OK);
    assert_int_equal(tocsin_invariants_count(set), 2);
    assert_false(tocsin_invariants_has(set, gone));
    find(set, "TOC005", "collective");
    find(set, "TOC005", "dropout");
    assert_int_equal(tocsin_invariants_append(set, path, NULL), TOCSIN_OK); /* it comes back */
    assert_int_equal(tocsin_invariants_count(set), 3);
    assert_int_equal(tocsin_invariants_keep(set, has_code, "TOC999", NULL), TOCSIN_OK);
    assert_int_equal(tocsin_invariants_count(set), 0);
    tocsin_invariants_free(set);
    scratch_free(&place);

    set = load(&place, path);
    tocsin_fault_arm(TOCSIN_FAULT_MEMORY, 1);
    assert_int_equal(tocsin_invariants_keep(set, has_code, "TOC005", NULL), TOCSIN_E_MEMORY);
    assert_true(tocsin_fault_disarm(TOCSIN_FAULT_MEMORY));
    tocsin_invariants_free(set);
    scratch_free(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_facets),
        cmocka_unit_test(test_keeping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
