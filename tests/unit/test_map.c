/* Map and intern table against simple models, with keys chosen to collide. */
#include "cmocka_test.h"
#include <base/base.h>
#include <stdio.h>

enum { KEYS = 64, OPERATIONS = 200000 };

typedef struct model {
    bool present[KEYS];
    uint64_t value[KEYS];
} model;

static void compare(const tocsin_map *map, const model *expected, const uint64_t *keys)
{
    size_t count = 0;
    for (size_t i = 0; i < KEYS; ++i) {
        const uint64_t *value = tocsin_map_find(map, keys[i]);
        assert_int_equal(value != NULL, expected->present[i]);
        if (value)
            assert_int_equal(*value, expected->value[i]);
        count += expected->present[i];
    }
    assert_int_equal(map->count, count);
    size_t cursor = 0;
    uint64_t key = 0;
    uint64_t *value = NULL;
    size_t visited = 0;
    while (tocsin_map_next(map, &cursor, &key, &value)) {
        assert_ptr_equal(value, tocsin_map_find(map, key));
        ++visited;
    }
    assert_int_equal(visited, count);
}

/* A small map full of insertions and removals: probe runs wrap, holes are filled, key 0 is a key.
 */
static void random_operations_match_a_model(void **state)
{
    (void)state;
    uint64_t keys[KEYS];
    for (size_t i = 0; i < KEYS; ++i)
        keys[i] = i % 2 ? i << 32 : i;
    tocsin_map map = {0};
    model expected = {0};
    uint64_t random = 1;
    for (uint64_t round = 0; round < OPERATIONS; ++round) {
        random = tocsin_mix64(random + round);
        size_t index = random % KEYS;
        if (random >> 63) {
            assert_true(tocsin_map_put(&map, keys[index], round));
            expected.present[index] = true;
            expected.value[index] = round;
        } else {
            assert_int_equal(tocsin_map_remove(&map, keys[index]), expected.present[index]);
            expected.present[index] = false;
        }
        if (round % 512 == 0)
            compare(&map, &expected, keys);
    }
    compare(&map, &expected, keys);
    tocsin_map_clear(&map);
    assert_int_equal(map.count, 0);
    assert_null(tocsin_map_find(&map, keys[0]));
    tocsin_map_free(&map);
}

static void at_inserts_zero_once(void **state)
{
    (void)state;
    tocsin_map map = {0};
    for (uint64_t key = 0; key < 1000; ++key) {
        uint64_t *value = tocsin_map_at(&map, key);
        assert_non_null(value);
        assert_int_equal(*value, 0);
        *value = key + 1;
    }
    for (uint64_t key = 0; key < 1000; ++key)
        assert_int_equal(*tocsin_map_at(&map, key), key + 1);
    assert_int_equal(map.count, 1000);
    tocsin_map_free(&map);
}

static void intern_ids_are_dense_and_stable(void **state)
{
    (void)state;
    tocsin_intern table = {0};
    char text[32];
    const char *first = NULL;
    for (uint32_t i = 0; i < 5000; ++i) {
        int bytes = snprintf(text, sizeof text, "name %u", i);
        assert_int_equal(tocsin_intern_find(&table, text, (size_t)bytes), 0);
        assert_int_equal(tocsin_intern_put(&table, text, (size_t)bytes), i + 1);
        if (i == 0)
            first = tocsin_intern_text(&table, 1, NULL);
    }
    assert_ptr_equal(first, tocsin_intern_text(&table, 1, NULL));
    for (uint32_t i = 0; i < 5000; ++i) {
        int bytes = snprintf(text, sizeof text, "name %u", i);
        assert_int_equal(tocsin_intern_put(&table, text, (size_t)bytes), i + 1);
        size_t count = 0;
        assert_string_equal(tocsin_intern_text(&table, i + 1, &count), text);
        assert_int_equal(count, bytes);
    }
    assert_int_equal(tocsin_intern_count(&table), 5000);
    assert_null(tocsin_intern_text(&table, 0, NULL));
    assert_null(tocsin_intern_text(&table, 5001, NULL));
    tocsin_intern_free(&table);
    assert_int_equal(tocsin_intern_count(&table), 0);
}

static void intern_takes_any_bytes_up_to_its_limit(void **state)
{
    (void)state;
    tocsin_intern table = {.limit_count = 3};
    assert_int_equal(tocsin_intern_put(&table, NULL, 0), 1);
    assert_int_equal(tocsin_intern_put(&table, "a\0b", 3), 2);
    assert_int_equal(tocsin_intern_put(&table, "a\0c", 3), 3);
    assert_int_equal(tocsin_intern_put(&table, "d", 1), 0);
    assert_int_equal(tocsin_intern_put(&table, "a\0b", 3), 2);
    assert_int_equal(tocsin_intern_find(&table, "a", 1), 0);
    assert_memory_equal(tocsin_intern_text(&table, 3, NULL), "a\0c", 4);
    tocsin_intern_free(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_match_a_model),
        cmocka_unit_test(at_inserts_zero_once),
        cmocka_unit_test(intern_ids_are_dense_and_stable),
        cmocka_unit_test(intern_takes_any_bytes_up_to_its_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
