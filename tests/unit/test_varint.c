/* Varints, zigzag and hashes: exact bytes, every length, and everything that must be refused. */
#include "cmocka_test.h"
#include <base/base.h>

static void boundaries_round_trip(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits <= 64; ++bits) {
        uint64_t edge = bits == 64 ? 0 : UINT64_C(1) << bits;
        for (int delta = -2; delta <= 2; ++delta) {
            uint64_t value = edge + (uint64_t)delta;
            uint8_t bytes[TOCSIN_VARINT_BYTES_MAX + 1];
            memset(bytes, 0xee, sizeof bytes);
            size_t count = tocsin_varint_put(bytes, value);
            assert_in_range(count, 1, TOCSIN_VARINT_BYTES_MAX);
            uint64_t read = ~value;
            assert_int_equal(tocsin_varint_get(bytes, sizeof bytes, &read), count);
            assert_true(read == value);
            for (size_t cut = 0; cut < count; ++cut)
                assert_int_equal(tocsin_varint_get(bytes, cut, &read), 0);
        }
    }
}

static void known_bytes(void **state)
{
    (void)state;
    uint8_t bytes[TOCSIN_VARINT_BYTES_MAX];
    assert_int_equal(tocsin_varint_put(bytes, 300), 2);
    assert_memory_equal(bytes, "\xac\x02", 2);
    assert_int_equal(tocsin_varint_put(bytes, UINT64_MAX), 10);
    assert_memory_equal(bytes, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10);
}

static void more_than_64_bits_are_refused(void **state)
{
    (void)state;
    uint64_t value = 0;
    const uint8_t wide[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02};
    assert_int_equal(tocsin_varint_get(wide, sizeof wide, &value), 0);
    const uint8_t endless[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0};
    assert_int_equal(tocsin_varint_get(endless, sizeof endless, &value), 0);
    const uint8_t padded[] = {0x81, 0x80, 0x00};
    assert_int_equal(tocsin_varint_get(padded, sizeof padded, &value), 3);
    assert_int_equal(value, 1);
    assert_int_equal(tocsin_varint_get(NULL, 0, &value), 0);
}

static void zigzag_is_a_bijection(void **state)
{
    (void)state;
    const int64_t values[] = {0, -1, 1, -2, 2, INT64_MAX, INT64_MIN, INT64_MIN + 1};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(values); ++i)
        assert_true(tocsin_zigzag_decode(tocsin_zigzag_encode(values[i])) == values[i]);
    for (uint64_t i = 0; i < 5; ++i)
        assert_int_equal(tocsin_zigzag_encode(values[i]), i);
    assert_true(tocsin_zigzag_encode(INT64_MIN) == UINT64_MAX);
}

/* XXH3's published values for the empty input: files depend on them. */
static void hashes_are_xxh3(void **state)
{
    (void)state;
    assert_true(tocsin_hash64("", 0, 0) == UINT64_C(0x2d06800538d394c2));
    tocsin_hash128 hash = tocsin_hash128_of("", 0, 0);
    assert_true(hash.high == UINT64_C(0x99aa06d3014798d8));
    assert_true(hash.low == UINT64_C(0x6001c324468d497f));
    assert_true(tocsin_hash64("a", 1, 0) != tocsin_hash64("a", 1, 1));
}

static void clocks_move_forward(void **state)
{
    (void)state;
    uint64_t before = tocsin_clock_ns();
    assert_true(tocsin_clock_ns() >= before);
    assert_true(tocsin_wall_clock_ns() > UINT64_C(1600000000) * 1000000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(boundaries_round_trip),
        cmocka_unit_test(known_bytes),
        cmocka_unit_test(more_than_64_bits_are_refused),
        cmocka_unit_test(zigzag_is_a_bijection),
        cmocka_unit_test(hashes_are_xxh3),
        cmocka_unit_test(clocks_move_forward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
