/* The word in which two tensors differ, found from their digests: every bit of every word of small
 * tensors, far exponents, shards, and that several changed words are not taken for one. */
#include "cmocka_test.h"

#include <stdlib.h>

#include <tocsin/tensor.h>

static tocsin_digest digest_of(const uint32_t *words, int64_t count)
{
    tocsin_tensor_view view = {
        .data = words, .dtype = TOCSIN_DTYPE_FLOAT32, .ndim = 1, .shape = &count};
    tocsin_digest digest;
    assert_int_equal(tocsin_tensor_digest(&view, &digest, NULL, NULL), TOCSIN_OK);
    return digest;
}

static void fill(uint32_t *words, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; ++i) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        words[i] = (uint32_t)(seed >> 32);
    }
}

static void test_every_bit(void **unused)
{
    (void)unused;
    uint32_t words[67];
    fill(words, 67, 1);
    tocsin_digest before = digest_of(words, 67);
    for (size_t at = 0; at < 67; ++at) {
        for (unsigned bit = 0; bit < 32; ++bit) {
            uint32_t kept = words[at];
            words[at] ^= UINT32_C(1) << bit;
            tocsin_word_change change;
            assert_true(tocsin_digest_locate(before, digest_of(words, 67), 67, &change));
            assert_int_equal(change.word, at);
            assert_int_equal(change.delta, (int64_t)words[at] - (int64_t)kept);
            assert_int_equal(change.set, words[at] & ~kept);
            assert_int_equal(change.cleared, kept & ~words[at]);
            words[at] = kept;
        }
    }
}

/* Any other value of a word, not only one bit. */
static void test_any_value(void **unused)
{
    (void)unused;
    uint32_t words[1000], others[1000];
    fill(words, 1000, 2);
    fill(others, 1000, 3);
    tocsin_digest before = digest_of(words, 1000);
    for (size_t at = 0; at < 1000; at += 7) {
        uint32_t kept = words[at];
        words[at] = others[at];
        tocsin_word_change change;
        assert_true(tocsin_digest_locate(before, digest_of(words, 1000), 1000, &change));
        assert_int_equal(change.word, at);
        assert_int_equal(kept + (uint32_t)change.delta, words[at]);
        words[at] = kept;
    }
}

/* Exponents up to the largest that a tensor may have. */
static void test_far_words(void **unused)
{
    (void)unused;
    const uint64_t whole = UINT64_C(1) << 60;
    uint32_t word = 0x3f800000, other = 0x3f800001;
    tocsin_digest before = digest_of(&word, 1), after = digest_of(&other, 1);
    for (uint64_t at = 1; at < whole; at = at * 3 + 1) {
        tocsin_word_change change;
        assert_true(tocsin_digest_locate(tocsin_digest_shift(before, at),
                                         tocsin_digest_shift(after, at), whole, &change));
        assert_int_equal(change.word, at);
        assert_int_equal(change.delta, 1);
        assert_false(tocsin_digest_locate(tocsin_digest_shift(before, at),
                                          tocsin_digest_shift(after, at), at, &change));
    }
}

static void test_equal_and_several(void **unused)
{
    (void)unused;
    uint32_t words[512];
    fill(words, 512, 4);
    tocsin_digest before = digest_of(words, 512);
    tocsin_word_change change;
    assert_false(tocsin_digest_locate(before, before, 512, &change));
    for (size_t at = 0; at + 9 < 512; at += 3) {
        words[at] ^= 1u << at % 32;
        words[at + 9] ^= 1u << (at * 5 + 1) % 32;
        assert_false(tocsin_digest_locate(before, digest_of(words, 512), 512, &change));
        words[at] ^= 1u << at % 32;
        words[at + 9] ^= 1u << (at * 5 + 1) % 32;
    }
    uint32_t kept = words[3]; /* swapped */
    words[3] = words[400];
    words[400] = kept;
    assert_false(tocsin_digest_locate(before, digest_of(words, 512), 512, &change));
}

/* Digests that come from a file or another rank may be anything; one word seems to have changed. */
static void test_no_digest(void **unused)
{
    (void)unused;
    const uint64_t prime = (UINT64_C(1) << 61) - 1;
    const uint64_t polynomials[] = {prime, prime + 1, 2 * prime, UINT64_MAX};
    tocsin_word_change change;
    for (size_t i = 0; i < sizeof polynomials / sizeof *polynomials; ++i) {
        tocsin_digest zero = {0}, before = {.polynomial = polynomials[i]};
        tocsin_digest after = {.sum = 4, .exclusive = 4, .polynomial = polynomials[i]};
        assert_false(tocsin_digest_locate(zero, after, 512, &change));
        after.polynomial = 5;
        assert_false(tocsin_digest_locate(before, after, 512, &change));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_bit),
        cmocka_unit_test(test_any_value),
        cmocka_unit_test(test_far_words),
        cmocka_unit_test(test_equal_and_several),
        cmocka_unit_test(test_no_digest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
