/* The digests of a checkpoint: pieces add up to wholes in any order, the file says one content in
 * one way and refuses everything else, and a comparison names what differs. */
#include "trace_scratch.h"
#include <base/base.h>
#include <tocsin/gate.h>

#define HEAD                                                                                       \
    "{\"format\":\"tocsin-checkpoint-digests\",\"version\":1,\"gate\":\"vote\","                   \
    "\"state\":\"verified\",\"step\":3,\"replicas\":2,"
#define ZEROS  "000000000000000000000000000000000000000000000000"
#define TENSOR "{\"name\":\"a\",\"dtype\":\"float32\",\"shape\":[2],\"digest\":\"" ZEROS "\""

static float weights[6][4];

static tocsin_checkpoint_digests *new_digests(void)
{
    tocsin_checkpoint_digests *digests;
    assert_int_equal(tocsin_checkpoint_digests_new(&digests, NULL), TOCSIN_OK);
    return digests;
}

/* Rows [first, end), columns [left, right) of `weights` as a piece of it. */
static tocsin_status add_part(tocsin_checkpoint_digests *digests, const char *name, int64_t first,
                              int64_t end, int64_t left, int64_t right, bool voted)
{
    const int64_t shape[] = {end - first, right - left}, strides[] = {4, 1};
    const int64_t whole[] = {6, 4}, offset[] = {first, left};
    const tocsin_tensor_view view = {.data = &weights[first][left],
                                     .dtype = TOCSIN_DTYPE_FLOAT32,
                                     .ndim = 2,
                                     .shape = shape,
                                     .strides = strides,
                                     .global_shape = whole,
                                     .offset = offset};
    tocsin_digest digest;
    assert_int_equal(tocsin_tensor_digest(&view, &digest, NULL, NULL), TOCSIN_OK);
    return tocsin_checkpoint_digests_add_tensor(digests, name, &view, digest, voted, NULL);
}

static tocsin_checkpoint_digests *whole_digests(const char *name, const char *value)
{
    tocsin_checkpoint_digests *digests = new_digests();
    assert_int_equal(add_part(digests, name, 0, 6, 0, 4, true), TOCSIN_OK);
    assert_int_equal(
        tocsin_checkpoint_digests_add_value(digests, "step", value, strlen(value), NULL),
        TOCSIN_OK);
    return digests;
}

static int fill(void **state)
{
    (void)state;
    for (int i = 0; i < 24; ++i)
        weights[i / 4][i % 4] = 1.5f + (float)i;
    return 0;
}

static tocsin_checkpoint_differences *compare(const tocsin_checkpoint_digests *saved,
                                              const tocsin_checkpoint_digests *found)
{
    tocsin_checkpoint_differences *differences;
    assert_int_equal(tocsin_checkpoint_digests_compare(saved, found, &differences, NULL),
                     TOCSIN_OK);
    return differences;
}

static void assert_one(const tocsin_checkpoint_digests *saved,
                       const tocsin_checkpoint_digests *found,
                       tocsin_checkpoint_difference_kind kind, const char *text)
{
    tocsin_checkpoint_differences *differences = compare(saved, found);
    assert_int_equal(differences->count, 1);
    assert_int_equal(differences->items[0].kind, kind);
    assert_string_equal(differences->items[0].text, text);
    tocsin_checkpoint_differences_free(differences);
}

static char *text_of(const tocsin_checkpoint_digests *digests)
{
    char *text;
    size_t bytes;
    assert_int_equal(tocsin_checkpoint_digests_write(digests, &text, &bytes, NULL), TOCSIN_OK);
    assert_int_equal(strlen(text), bytes);
    return text;
}

/* However a tensor was cut, and on however many ranks, the text is that of the whole. */
static void test_pieces(void **state)
{
    (void)state;
    tocsin_checkpoint_digests *whole = whole_digests("a", "3"), *grid = new_digests();
    tocsin_checkpoint_digests *other = new_digests();
    assert_int_equal(tocsin_checkpoint_digests_add_value(grid, "step", "3", 1, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_checkpoint_digests_add_value(other, "step", "3", 1, NULL), TOCSIN_OK);
    assert_int_equal(add_part(grid, "a", 2, 6, 1, 4, true), TOCSIN_OK);
    assert_int_equal(add_part(grid, "a", 0, 2, 0, 4, true), TOCSIN_OK);
    assert_string_equal(tocsin_checkpoint_digests_incomplete(grid), "a");
    assert_one(whole, grid, TOCSIN_CHECKPOINT_INCOMPLETE, "of a there are 20 of 24 elements");
    assert_int_equal(add_part(other, "a", 2, 6, 0, 1, true), TOCSIN_OK);
    assert_int_equal(tocsin_checkpoint_digests_merge(grid, other, NULL), TOCSIN_OK);
    assert_null(tocsin_checkpoint_digests_incomplete(grid));
    char *a = text_of(whole), *b = text_of(grid);
    assert_string_equal(a, b);
    tocsin_checkpoint_text_free(a);
    tocsin_checkpoint_text_free(b);
    assert_int_equal(tocsin_checkpoint_digests_voted(grid), 1);
    assert_int_equal(add_part(grid, "a", 0, 1, 0, 1, false), TOCSIN_OK);
    assert_string_equal(tocsin_checkpoint_digests_incomplete(grid), "a");
    assert_int_equal(tocsin_checkpoint_digests_voted(grid), 0);
    tocsin_checkpoint_digests_free(whole);
    tocsin_checkpoint_digests_free(grid);
    tocsin_checkpoint_digests_free(other);
}

static void test_refused(void **state)
{
    (void)state;
    tocsin_checkpoint_digests *digests = whole_digests("a", "3");
    static char name[TOCSIN_CHECKPOINT_NAME_BYTES_MAX + 2];
    const int64_t shape[] = {2}, huge[] = {INT64_MAX}, none[] = {0};
    tocsin_tensor_view view = {.dtype = TOCSIN_DTYPE_INT8, .ndim = 1, .shape = shape};
    const tocsin_digest digest = {0};
    tocsin_error error;
    memset(name, 'n', sizeof name - 1);
    assert_int_equal(add_part(digests, name, 0, 6, 0, 4, true), TOCSIN_E_ARGUMENT);
    assert_int_equal(tocsin_checkpoint_digests_add_tensor(digests, "a", &view, digest, 0, &error),
                     TOCSIN_E_ARGUMENT);
    assert_non_null(strstr(error.message, "different dtypes or whole shapes"));
    assert_int_equal(tocsin_checkpoint_digests_add_value(digests, "step", "4", 1, NULL),
                     TOCSIN_E_ARGUMENT);
    assert_int_equal(tocsin_checkpoint_digests_add_value(digests, "step", "3", 1, NULL), TOCSIN_OK);
    view.shape = huge;
    assert_int_equal(tocsin_checkpoint_digests_add_tensor(digests, "b", &view, digest, 0, NULL),
                     TOCSIN_E_ARGUMENT);
    view.shape = none;
    assert_int_equal(tocsin_checkpoint_digests_add_tensor(digests, "b", &view, digest, 0, NULL),
                     TOCSIN_OK);
    assert_null(tocsin_checkpoint_digests_incomplete(digests));
    assert_int_equal(tocsin_checkpoint_digests_count(digests), 3);
    tocsin_checkpoint_digests_free(digests);
    tocsin_checkpoint_digests_free(NULL);
}

/* Each way in which a checkpoint can be another one. */
static void test_differences(void **state)
{
    tocsin_checkpoint_digests *saved = whole_digests("a", "3");
    tocsin_checkpoint_digests *found = whole_digests("a", "3");
    tocsin_checkpoint_differences *differences = compare(saved, found);
    assert_int_equal(differences->count, 0);
    tocsin_checkpoint_differences_free(differences);
    tocsin_checkpoint_digests_free(found);
    found = whole_digests("a", "4");
    assert_one(saved, found, TOCSIN_CHECKPOINT_CONTENT, "step is not the value that was saved");
    tocsin_checkpoint_digests_free(found);
    found = whole_digests("b", "3");
    assert_one(saved, found, TOCSIN_CHECKPOINT_RENAMED, "a is called b here");
    tocsin_checkpoint_digests_free(found);
    found = whole_digests("a", "3");
    assert_int_equal(tocsin_checkpoint_digests_add_value(found, "z", "", 0, NULL), TOCSIN_OK);
    assert_one(saved, found, TOCSIN_CHECKPOINT_EXTRA, "z was not saved");
    assert_one(found, saved, TOCSIN_CHECKPOINT_MISSING, "z is missing");
    tocsin_checkpoint_digests_free(found);

    weights[4][1] = -weights[4][1];
    found = whole_digests("a", "3");
    differences = compare(saved, found);
    assert_int_equal(differences->count, 1);
    assert_true(differences->items[0].one_word);
    assert_int_equal(differences->items[0].ndim, 2);
    assert_int_equal(differences->items[0].index[0], 4);
    assert_int_equal(differences->items[0].index[1], 1);
    assert_int_equal(differences->items[0].set, 1u << 31);
    assert_int_equal(differences->items[0].cleared, 0);
    assert_string_equal(differences->items[0].text,
                        "a is not what was saved: one element differs, [4,1], 1 of its bits");
    tocsin_checkpoint_differences_free(differences);
    tocsin_checkpoint_digests_free(found);
    weights[5][3] = 0;
    found = whole_digests("a", "3");
    assert_one(saved, found, TOCSIN_CHECKPOINT_CONTENT, "a is not what was saved");
    tocsin_checkpoint_digests_free(found);
    fill(state);

    found = new_digests();
    const int64_t shape[] = {4, 6};
    const tocsin_tensor_view view = {.dtype = TOCSIN_DTYPE_FLOAT32, .ndim = 2, .shape = shape};
    assert_int_equal(
        tocsin_checkpoint_digests_add_tensor(found, "a", &view, (tocsin_digest){0}, true, NULL),
        TOCSIN_OK);
    assert_int_equal(tocsin_checkpoint_digests_add_value(found, "step", "3", 1, NULL), TOCSIN_OK);
    assert_one(saved, found, TOCSIN_CHECKPOINT_FORM,
               "a was saved as float32[6,4] and is float32[4,6]");
    tocsin_checkpoint_digests_free(found);
    tocsin_checkpoint_digests_free(saved);
}

static tocsin_status parse(const char *text, tocsin_checkpoint_digests **digests,
                           tocsin_error *error)
{
    return tocsin_checkpoint_digests_parse(text, strlen(text), "side", digests, error);
}

static void test_file(void **state)
{
    (void)state;
    scratch place = scratch_new();
    char path[SCRATCH_PATH_BYTES];
    snprintf(path, sizeof path, "%s/side", place.directory);
    tocsin_checkpoint_digests *saved = whole_digests("a", "3"), *read;
    const tocsin_checkpoint_origin origin = {TOCSIN_GATE_AUDIT, TOCSIN_GATE_VERIFIED, 12, 3};
    tocsin_checkpoint_digests_set_origin(saved, origin);
    assert_int_equal(tocsin_checkpoint_digests_save(saved, path, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_checkpoint_digests_read(path, &read, NULL), TOCSIN_OK);
    char *a = text_of(saved), *b = text_of(read);
    assert_string_equal(a, b);
    assert_memory_equal(
        a, "{\"format\":\"tocsin-checkpoint-digests\",\"version\":1,\"gate\":\"audit\",", 65);
    tocsin_checkpoint_text_free(a);
    tocsin_checkpoint_text_free(b);
    tocsin_checkpoint_origin again = tocsin_checkpoint_digests_origin(read);
    assert_int_equal(again.step, 12);
    assert_int_equal(again.replicas, 3);
    tocsin_checkpoint_digests_free(read);
    tocsin_checkpoint_digests_free(saved);

    tocsin_error error;
    saved = new_digests();
    assert_int_equal(add_part(saved, "a", 0, 2, 0, 4, true), TOCSIN_OK);
    assert_int_equal(tocsin_checkpoint_digests_save(saved, path, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_checkpoint_digests_read(path, &read, &error), TOCSIN_E_FORMAT);
    assert_null(read);
    assert_string_equal(error.message, "the digest of a is not that of the whole tensor");
    tocsin_checkpoint_digests_free(saved);
    assert_int_equal(tocsin_checkpoint_digests_read("/nowhere", &read, NULL), TOCSIN_E_NOT_FOUND);
    scratch_free(&place);
}

static void test_hostile(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"{}", "these are no digests"},
        {"[", NULL},
        {HEAD "\"tensors\":[],\"values\":{}}", "the lists tensors and values"},
        {HEAD "\"tensors\":[" TENSOR "}],\"values\":[]}", "\"voted\""},
        {HEAD "\"tensors\":[" TENSOR ",\"voted\":true}," TENSOR ",\"voted\":true}],\"values\":[]}",
         "stands twice"},
        {HEAD "\"tensors\":[{\"name\":\"a\",\"dtype\":\"none\"}],\"values\":[]}", "a dtype"},
        {HEAD "\"tensors\":[{\"name\":\"a\",\"dtype\":\"int8\",\"shape\":[-1],\"digest\":\"" ZEROS
              "\",\"voted\":true}],\"values\":[]}",
         "no tensor has"},
        {HEAD "\"tensors\":[{\"name\":\"a\",\"dtype\":\"int8\",\"shape\":[4611686018427387904,4],"
              "\"digest\":\"" ZEROS "\",\"voted\":true}],\"values\":[]}",
         "no tensor has"},
        {HEAD "\"tensors\":[{\"name\":\"a\",\"dtype\":\"int8\",\"shape\":[1],\"digest\":\"00\","
              "\"voted\":true}],\"values\":[]}",
         "no digest"},
        {HEAD "\"tensors\":[],\"values\":[{\"name\":\"a\",\"hash\":\"0\"}]}", "a name and a hash"},
    };
    tocsin_checkpoint_digests *digests;
    tocsin_error error;
    for (size_t i = 0; i < TOCSIN_COUNT_OF(cases); ++i) {
        assert_int_equal(parse(cases[i].text, &digests, &error), TOCSIN_E_FORMAT);
        assert_null(digests);
        assert_string_equal(error.where, "side");
        if (cases[i].message)
            assert_non_null(strstr(error.message, cases[i].message));
    }
    assert_int_equal(
        parse("{\"format\":\"tocsin-checkpoint-digests\",\"version\":2}", &digests, NULL),
        TOCSIN_E_VERSION);
    assert_int_equal(
        parse(HEAD "\"tensors\":[" TENSOR ",\"voted\":true}],\"values\":[]}", &digests, NULL),
        TOCSIN_OK);
    assert_null(tocsin_checkpoint_digests_incomplete(digests));
    tocsin_checkpoint_digests_free(digests);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_pieces, fill),
        cmocka_unit_test_setup(test_refused, fill),
        cmocka_unit_test_setup(test_differences, fill),
        cmocka_unit_test_setup(test_file, fill),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
