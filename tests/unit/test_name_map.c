/* Maps of names: what a file may say, what a name is by it, and the shipped ones. */
#include "trace_scratch.h"
#include <align/name_map.h>

#define Y      "\"y\","
#define HEADER "{\"format\":\"tocsin-map\",\"version\":1}\n"

static tocsin_status load(const char *text, tocsin_name_map **map, tocsin_error *error)
{
    scratch place = scratch_new();
    char path[SCRATCH_PATH_BYTES];
    snprintf(path, sizeof path, "%s/map", place.directory);
    scratch_write(path, text, strlen(text));
    tocsin_status status = tocsin_name_map_load(path, map, error);
    scratch_free(&place);
    return status;
}

/* "PART WHOLE" of a name, or "-". */
static const char *find(const tocsin_name_map *map, const char *name)
{
    static char text[256];
    tocsin_string whole = {0};
    tocsin_map_place place;
    if (!tocsin_name_map_find(map, name, &whole, &place))
        return "-";
    snprintf(text, sizeof text, "%u %s", place.part, tocsin_string_text(&whole));
    tocsin_string_free(&whole);
    return text;
}

static void test_names(void **state)
{
    (void)state;
    tocsin_name_map *map;
    assert_int_equal(
        load(HEADER
             "{\"a\":\"dec.{i}.qkv.{kind}\",\"b\":[\"m.{i}.q.{kind}\",\"m.{i}.k.{kind}\"]}\n"
             "\n"
             "{\"a\":\"{x*}.fc1.weight\",\"b\":\"{x*}.up.weight\"}\n"
             "{\"a\":\"{i}.to.{x*}.end\",\"b\":\"{x*}.from.{i}\",\"layout\":\"transposed\"}\n",
             &map, NULL),
        TOCSIN_OK);
    static const struct {
        const char *name, *found;
    } cases[] = {
        {"m.3.q.weight", "0 dec.3.qkv.weight"},
        {"m.3.k.bias", "1 dec.3.qkv.bias"},
        {"dec.3.qkv.bias", "16 dec.3.qkv.bias"},
        {"m.3.q", "-"},
        {"m.3.4.q.weight", "-"},
        {"m..q.weight", "-"},
        {"up.weight", "0 fc1.weight"},
        {"a.b.up.weight", "0 a.b.fc1.weight"},
        {"fc1.weight", "16 fc1.weight"},
        {"up.weights", "-"},
        {"from.7", "0 7.to.end"},
        {"p.q.from.7", "0 7.to.p.q.end"},
        {"", "-"},
        {".", "-"},
    };
    for (size_t c = 0; c < TOCSIN_COUNT_OF(cases); ++c)
        assert_string_equal(find(map, cases[c].name), cases[c].found);
    assert_int_equal(tocsin_name_map_rule_count(map), 3);
    assert_int_equal(tocsin_name_map_rule(map, 2)->layout, TOCSIN_MAP_TRANSPOSED);
    tocsin_name_map_free(map);
}

static void test_bad_files(void **state)
{
    (void)state;
    static const char *const rules[] = {
        "[]",
        "{\"a\":\"x\"}",
        "{\"b\":\"x\"}",
        "{\"a\":\"x\",\"b\":[]}",
        "{\"a\":\"x\",\"b\":[1]}",
        "{\"a\":\"\",\"b\":\"x\"}",
        "{\"a\":\"x..y\",\"b\":\"x\"}",
        "{\"a\":\"x\",\"b\":\"x\",\"c\":1}",
        "{\"a\":\"x.{i}\",\"b\":\"x\"}",
        "{\"a\":\"x.{i}\",\"b\":\"x.{j}\"}",
        "{\"a\":\"x.{i}\",\"b\":\"x.{i*}\"}",
        "{\"a\":\"x.{i}.{i}\",\"b\":\"x.{i}.{i}\"}",
        "{\"a\":\"{i*}.{j*}\",\"b\":\"{i*}.{j*}\"}",
        "{\"a\":\"h{i}\",\"b\":\"h{i}\"}",
        "{\"a\":\"{}\",\"b\":\"{}\"}",
        "{\"a\":\"{*}\",\"b\":\"{*}\"}",
        "{\"a\":\"{{i}}\",\"b\":\"{{i}}\"}",
        "{\"a\":\"x\",\"b\":\"y\",\"layout\":\"upside\"}",
        "{\"a\":\"x\",\"b\":[\"y\",\"z\"],\"layout\":\"transposed\"}",
        "{\"a\":\"x\",\"b\":[" Y Y Y Y Y Y Y Y Y Y Y Y Y Y Y Y "\"y\"]}",
    };
    tocsin_name_map *map;
    tocsin_error error;
    char text[512];
    for (size_t r = 0; r < TOCSIN_COUNT_OF(rules); ++r) {
        snprintf(text, sizeof text, HEADER "%s\n", rules[r]);
        assert_int_equal(load(text, &map, &error), TOCSIN_E_FORMAT);
        assert_non_null(strstr(error.message, "line 2: "));
        assert_non_null(strstr(error.where, "/map"));
        assert_null(map);
    }
    assert_int_equal(load("", &map, &error), TOCSIN_E_FORMAT);
    assert_int_equal(load("{\"a\":\"x\",\"b\":\"y\"}\n", &map, &error), TOCSIN_E_FORMAT);
    assert_int_equal(load("{\"format\":\"tocsin-map\",\"version\":2}\n", &map, &error),
                     TOCSIN_E_VERSION);
    assert_int_equal(load(HEADER "{\"a\":\"x\",\n", &map, &error), TOCSIN_E_FORMAT);
    assert_non_null(strstr(error.message, "line 2: "));
    assert_int_equal(tocsin_name_map_load("/nonexistent/map", &map, &error), TOCSIN_E_NOT_FOUND);
}

static void test_shipped(void **state)
{
    (void)state;
    tocsin_name_map *map;
    size_t count = 0;
    for (; tocsin_name_map_shipped(count); ++count) {
        assert_int_equal(tocsin_name_map_load(tocsin_name_map_shipped(count), &map, NULL),
                         TOCSIN_OK);
        assert_true(tocsin_name_map_rule_count(map) > 0);
        tocsin_name_map_free(map);
    }
    assert_int_equal(count, 3);
    assert_int_equal(tocsin_name_map_load("megatron-hf", &map, NULL), TOCSIN_OK);
    assert_string_equal(find(map, "model.layers.11.self_attn.k_proj.weight"),
                        "1 decoder.layers.11.self_attention.linear_qkv.weight");
    assert_string_equal(find(map, "model.layers.0.mlp.up_proj.weight"),
                        "1 decoder.layers.0.mlp.linear_fc1.weight");
    assert_string_equal(find(map, "decoder.layers.0.mlp.linear_fc1.layer_norm_weight"),
                        "0 decoder.layers.0.pre_mlp_layernorm.weight");
    tocsin_name_map_free(map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_shipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
