/* The map of unstable boundaries: what a file may say, and that what was read is written again. */
#include "trace_scratch.h"
#include <align/align.h>

#define HEADER   "{\"format\":\"tocsin-unstable\",\"version\":1,\"repeats\":4}\n"
#define BOUNDARY "\"fqn\":\"a\",\"role\":\"grad\",\"op\":\"o\",\"phase\":\"\""

static tocsin_status read_text(const char *text, tocsin_stability **map, tocsin_error *error)
{
    scratch place = scratch_new();
    char path[SCRATCH_PATH_BYTES];
    snprintf(path, sizeof path, "%s/map", place.directory);
    scratch_write(path, text, strlen(text));
    tocsin_status status = tocsin_stability_read(path, map, error);
    scratch_free(&place);
    return status;
}

static tocsin_unstable_boundary boundary(const char *name, int64_t step)
{
    return (tocsin_unstable_boundary){
        .name = name, .attribute = "grad", .operation = "o", .phase = "", .step = step, .rank = -1};
}

/* However often a boundary differs in a repeat, it counts once; the first step is kept. */
static void test_counting(void **state)
{
    (void)state;
    tocsin_stability *map;
    assert_int_equal(tocsin_stability_new(4, &map, NULL), TOCSIN_OK);
    tocsin_unstable_boundary late = boundary("a", 7), early = boundary("a", 3);
    tocsin_unstable_boundary other = boundary("ab", 5);
    early.rank = 2;
    tocsin_stability_begin(map);
    assert_true(tocsin_stability_note(map, &late) && tocsin_stability_note(map, &late));
    tocsin_stability_begin(map);
    assert_true(tocsin_stability_note(map, &early) && tocsin_stability_note(map, &other));
    assert_int_equal(tocsin_stability_count(map), 2);
    tocsin_unstable_boundary first = tocsin_stability_get(map, 0);
    assert_string_equal(first.name, "a");
    assert_int_equal(first.differs, 2);
    assert_int_equal(first.step, 3);
    assert_int_equal(first.rank, 2);
    assert_int_equal(tocsin_stability_get(map, 1).differs, 1);
    size_t index;
    tocsin_unstable_boundary missing = boundary("abc", 1);
    assert_true(tocsin_stability_find(map, &other, &index) && index == 1);
    assert_true(tocsin_stability_find(map, &missing, &index) && index == SIZE_MAX);
    tocsin_stability_free(map);
    assert_int_equal(tocsin_stability_new(1, &map, NULL), TOCSIN_E_ARGUMENT);
    assert_null(map);
}

static void test_file(void **state)
{
    (void)state;
    const char *text = HEADER "{" BOUNDARY ",\"differs\":3,\"step\":9,\"rank\":null}\n"
                              "{\"fqn\":\"\xc3\xa9\",\"role\":\"r\",\"op\":\"\",\"phase\":\"f\","
                              "\"differs\":1,\"step\":1,\"rank\":0}\n";
    scratch place = scratch_new();
    char path[SCRATCH_PATH_BYTES];
    tocsin_stability *map;
    assert_int_equal(read_text(text, &map, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_stability_repeats(map), 4);
    assert_int_equal(tocsin_stability_count(map), 2);
    assert_int_equal(tocsin_stability_get(map, 0).rank, -1);
    assert_int_equal(tocsin_stability_get(map, 1).rank, 0);
    snprintf(path, sizeof path, "%s/map", place.directory);
    assert_int_equal(tocsin_stability_save(map, path, NULL), TOCSIN_OK);
    tocsin_stability_free(map);
    size_t bytes;
    uint8_t *written = scratch_read(path, &bytes);
    assert_int_equal(bytes, strlen(text));
    assert_memory_equal(written, text, bytes);
    free(written);
    scratch_free(&place);
}

static void test_bad_files(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        tocsin_status status;
        const char *message;
    } cases[] = {
        {"", TOCSIN_E_FORMAT, "empty"},
        {"\n" HEADER, TOCSIN_E_FORMAT, "line 1"},
        {"{}\n", TOCSIN_E_FORMAT, "not a map"},
        {"{\"format\":\"tocsin-unstable\",\"version\":2,\"repeats\":4}\n", TOCSIN_E_VERSION, "2"},
        {"{\"format\":\"tocsin-unstable\",\"version\":1,\"repeats\":1}\n", TOCSIN_E_FORMAT,
         "repeats"},
        {"{\"format\":\"tocsin-unstable\",\"version\":1}\n", TOCSIN_E_FORMAT, "repeats"},
        {HEADER "[]\n", TOCSIN_E_FORMAT, "line 2"},
        {HEADER "{" BOUNDARY "}\n", TOCSIN_E_FORMAT, "differs"},
        {HEADER "{" BOUNDARY ",\"differs\":4,\"step\":1,\"rank\":null}\n", TOCSIN_E_FORMAT,
         "differs"},
        {HEADER "{" BOUNDARY ",\"differs\":1,\"step\":0,\"rank\":null}\n", TOCSIN_E_FORMAT, "step"},
        {HEADER "{" BOUNDARY ",\"differs\":1,\"step\":1,\"rank\":-1}\n", TOCSIN_E_FORMAT, "rank"},
        {HEADER "{\"fqn\":1}\n", TOCSIN_E_FORMAT, "texts"},
        {HEADER "{" BOUNDARY ",\"differs\":1,\"step\":1}\n{" BOUNDARY
                ",\"differs\":1,\"step\":1}\n",
         TOCSIN_E_FORMAT, "again"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; ++c) {
        tocsin_stability *map;
        tocsin_error error;
        assert_int_equal(read_text(cases[c].text, &map, &error), cases[c].status);
        assert_null(map);
        assert_non_null(strstr(error.message, cases[c].message));
    }
    tocsin_stability *map;
    assert_int_equal(tocsin_stability_read("/no/such/file", &map, NULL), TOCSIN_E_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counting),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_bad_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
