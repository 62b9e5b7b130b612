/* The dtype table. Decoding of bytes is tested against PyTorch by the golden file (test_digest). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tensor/tensor.h"

static void test_names_round_trip(void **unused)
{
    (void)unused;
#define X(number, name, text, bytes)                                                               \
    assert_int_equal(TOCSIN_DTYPE_##name, number);                                                 \
    assert_string_equal(tocsin_dtype_name((tocsin_dtype)(number)), text);                          \
    assert_int_equal(tocsin_dtype_bytes((tocsin_dtype)(number)), bytes);                           \
    assert_int_equal(tocsin_dtype_from_name(text), number);
    TOCSIN_DTYPE_TABLE(X)
#undef X
}

static void test_unknown(void **unused)
{
    (void)unused;
    assert_string_equal(tocsin_dtype_name((tocsin_dtype)1000), "unknown");
    assert_string_equal(tocsin_dtype_name((tocsin_dtype)-1), "unknown");
    assert_int_equal(tocsin_dtype_bytes((tocsin_dtype)1000), 0);
    assert_int_equal(tocsin_dtype_bytes(TOCSIN_DTYPE_NONE), 0);
    assert_null(tocsin_dtype_layout_of(TOCSIN_DTYPE_NONE));
    assert_int_equal(tocsin_dtype_from_name("float31"), TOCSIN_DTYPE_NONE);
    assert_int_equal(tocsin_dtype_from_name(""), TOCSIN_DTYPE_NONE);
    assert_int_equal(tocsin_dtype_from_name(NULL), TOCSIN_DTYPE_NONE);
}

/* Every layout is consistent: whole components, one word up to 4 bytes. */
static void test_layouts(void **unused)
{
    (void)unused;
    for (int number = 1; number <= TOCSIN_DTYPE_FLOAT8_E8M0FNU; ++number) {
        const tocsin_dtype_layout *layout = tocsin_dtype_layout_of((tocsin_dtype)number);
        assert_non_null(layout);
        assert_int_equal(layout->bytes % layout->components, 0);
        assert_int_equal(layout->words_per_element, layout->bytes <= 4 ? 1 : layout->bytes / 4);
        assert_true(layout->words_per_element <= TOCSIN_WORDS_PER_ELEMENT_MAX);
        assert_int_equal(layout->encoding == TOCSIN_ENCODING_BYTE, layout->bytes == 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_round_trip),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
