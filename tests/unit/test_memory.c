/* Allocator, arena and vec: sizes that overflow are refused, addresses and contents are kept. */
#include "cmocka_test.h"
#include <base/base.h>

static void impossible_sizes_are_refused(void **state)
{
    (void)state;
    size_t half = SIZE_MAX / 2 + 2;
    assert_null(tocsin_alloc(SIZE_MAX));
    assert_null(tocsin_zalloc(half, 2)); /* the product wraps to 2 */
    assert_null(tocsin_zalloc(half, 1));
    assert_null(tocsin_realloc(NULL, half, 2));
    assert_null(tocsin_copy_text("x", SIZE_MAX));
    tocsin_arena arena = {0};
    assert_null(tocsin_arena_alloc(&arena, SIZE_MAX, 1));
    assert_null(tocsin_arena_alloc(&arena, PTRDIFF_MAX, 4096));
    assert_null(tocsin_arena_copy(&arena, "x", SIZE_MAX));
    assert_null(TOCSIN_ARENA_ARRAY(&arena, uint64_t, half));
    tocsin_arena_free(&arena);
}

static void nothing_is_something(void **state)
{
    (void)state;
    void *none = tocsin_alloc(0);
    assert_non_null(none);
    none = tocsin_realloc(none, 0, 8);
    assert_non_null(none);
    tocsin_free(none);
    none = tocsin_zalloc(0, 8);
    assert_non_null(none);
    tocsin_free(none);
    tocsin_free(NULL);
    char *empty = tocsin_copy_text(NULL, 0);
    assert_string_equal(empty, "");
    tocsin_free(empty);
}

static void arena_items_are_aligned_and_apart(void **state)
{
    (void)state;
    tocsin_arena arena = {.chunk_bytes = 512};
    unsigned char *items[500];
    for (size_t i = 0; i < TOCSIN_COUNT_OF(items); ++i) {
        size_t align = (size_t)1 << (i % 13);
        items[i] = tocsin_arena_alloc(&arena, i, align);
        assert_non_null(items[i]);
        assert_int_equal((uintptr_t)items[i] % align, 0);
        memset(items[i], (int)(i & 0xff), i);
    }
    for (size_t i = 0; i < TOCSIN_COUNT_OF(items); ++i) {
        for (size_t j = 0; j < i; ++j)
            assert_int_equal(items[i][j], i & 0xff);
    }
    tocsin_arena_free(&arena);
    assert_int_equal(arena.used_bytes, 0);
}

static void arena_goes_back_to_a_mark(void **state)
{
    (void)state;
    tocsin_arena arena = {.chunk_bytes = 64};
    tocsin_arena_mark empty = tocsin_arena_get_mark(&arena);
    char *kept = tocsin_arena_copy(&arena, "kept", 4);
    tocsin_arena_mark mark = tocsin_arena_get_mark(&arena);
    size_t used_bytes = arena.used_bytes;
    for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < 50; ++i)
            assert_non_null(TOCSIN_ARENA_ARRAY(&arena, uint64_t, 5));
        assert_true(arena.used_bytes > used_bytes);
        tocsin_arena_reset_to(&arena, mark);
        assert_int_equal(arena.used_bytes, used_bytes);
        assert_string_equal(kept, "kept");
    }
    tocsin_arena_reset_to(&arena, empty);
    assert_int_equal(arena.used_bytes, 0);
    assert_null(arena.chunk);
    assert_non_null(TOCSIN_ARENA_NEW(&arena, uint64_t));
    tocsin_arena_reset(&arena);
    assert_int_equal(arena.used_bytes, 0);
    assert_non_null(arena.chunk);
    tocsin_arena_free(&arena);
}

static void vec_keeps_what_was_pushed(void **state)
{
    (void)state;
    struct pair {
        int a, b;
    };
    TOCSIN_VEC(struct pair) pairs = {0};
    for (int i = 0; i < 10000; ++i)
        assert_true(TOCSIN_VEC_PUSH(&pairs, (struct pair){i, -i}));
    assert_int_equal(pairs.count, 10000);
    assert_true(pairs.capacity < 40000);
    for (int i = 0; i < 10000; ++i) {
        assert_int_equal(pairs.items[i].a, i);
        assert_int_equal(pairs.items[i].b, -i);
    }
    size_t capacity = pairs.capacity;
    assert_false(TOCSIN_VEC_RESERVE(&pairs, SIZE_MAX));
    assert_false(TOCSIN_VEC_RESERVE(&pairs, SIZE_MAX / sizeof(struct pair)));
    assert_int_equal(pairs.capacity, capacity);
    assert_true(TOCSIN_VEC_RESERVE(&pairs, 50000));
    assert_true(pairs.capacity >= 60000);
    TOCSIN_VEC_FREE(&pairs);
    assert_null(pairs.items);
    assert_int_equal(pairs.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(nothing_is_something),
        cmocka_unit_test(arena_items_are_aligned_and_apart),
        cmocka_unit_test(arena_goes_back_to_a_mark),
        cmocka_unit_test(vec_keeps_what_was_pushed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
