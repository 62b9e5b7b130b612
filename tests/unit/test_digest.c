/* What the digest detects for sure (Theorems A and B, exhaustively on small tensors), the blind
 * spots of other digests, special layouts, arguments that are refused, and the golden file made
 * with PyTorch by tests/ref/digest_reference.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "prop/digest_oracle.h"

static tocsin_digest digest_of(const void *data, tocsin_dtype dtype, int64_t count)
{
    tocsin_tensor_view view = {.data = data, .dtype = dtype, .ndim = 1, .shape = &count};
    tocsin_digest digest;
    tocsin_error error;
    assert_int_equal(tocsin_tensor_digest(&view, &digest, NULL, &error), TOCSIN_OK);
    return digest;
}

static bool is_detected(tocsin_digest before, tocsin_digest after)
{
    return before.sum != after.sum || before.polynomial != after.polynomial;
}

/* ---- theorems ------------------------------------------------------------------------------- */

/* Every single value of one word differs from every other, by S0 and by P alone: all 2^16 values
 * of a bf16, at each of several positions. */
static void test_theorem_a_all_values(void **unused)
{
    (void)unused;
    uint16_t words[19];
    static uint64_t polynomials[65536];
    for (size_t i = 0; i < 19; ++i)
        words[i] = (uint16_t)(i * 3511);
    for (size_t at = 0; at < 19; at += 6) {
        uint16_t kept = words[at];
        tocsin_digest before = digest_of(words, TOCSIN_DTYPE_BFLOAT16, 19);
        for (uint32_t value = 0; value < 65536; ++value) {
            words[at] = (uint16_t)value;
            tocsin_digest after = digest_of(words, TOCSIN_DTYPE_BFLOAT16, 19);
            assert_int_equal(after.sum != before.sum, value != kept);
            assert_int_equal(after.polynomial != before.polynomial, value != kept);
            polynomials[value] = after.polynomial;
        }
        words[at] = kept;
        for (uint32_t value = 1; value < 65536; ++value)
            assert_true(polynomials[value] != polynomials[value - 1]);
    }
}

/* Every one-bit change of every word, every dtype, at sizes around the vectors. */
static void test_theorem_a_all_bits(void **unused)
{
    (void)unused;
    unsigned char bytes[37 * 16];
    uint64_t state = 7;
    for (size_t i = 0; i < sizeof bytes; ++i)
        bytes[i] = (unsigned char)oracle_random(&state);
    for (int number = 1; number <= TOCSIN_DTYPE_FLOAT8_E8M0FNU; ++number) {
        tocsin_dtype dtype = (tocsin_dtype)number;
        size_t byte_count = 37 * tocsin_dtype_bytes(dtype);
        tocsin_digest before = digest_of(bytes, dtype, 37);
        for (size_t bit = 0; bit < byte_count * 8; ++bit) {
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
            tocsin_digest after = digest_of(bytes, dtype, 37);
            assert_true(before.sum != after.sum);
            assert_true(before.polynomial != after.polynomial);
            assert_true(before.exclusive != after.exclusive);
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
    }
}

/* Every pair of positions with every power of two as an S0-neutral change (+d, -d), and the
 * largest ones: P must change. */
static void test_theorem_b_all_pairs(void **unused)
{
    (void)unused;
    enum { COUNT = 40 };
    uint32_t words[COUNT];
    for (size_t i = 0; i < COUNT; ++i)
        words[i] = 0x40000000u + (uint32_t)i * 2654435761u % 0x40000000u;
    tocsin_digest before = digest_of(words, TOCSIN_DTYPE_FLOAT32, COUNT);
    uint64_t tried = 0;
    for (size_t a = 0; a < COUNT; ++a) {
        for (size_t b = 0; b < COUNT; ++b) {
            for (unsigned bit = 0; bit < 32 && a != b; ++bit) {
                uint32_t delta = UINT32_C(1) << bit;
                uint32_t kept[2] = {words[a], words[b]};
                if (bit == 31) { /* the largest change: from one end of the range to the other */
                    words[a] = 0;
                    words[b] = UINT32_MAX;
                    before = digest_of(words, TOCSIN_DTYPE_FLOAT32, COUNT);
                    words[a] = UINT32_MAX;
                    words[b] = 0;
                } else {
                    words[a] += delta;
                    words[b] -= delta;
                }
                tocsin_digest after = digest_of(words, TOCSIN_DTYPE_FLOAT32, COUNT);
                assert_true(before.sum == after.sum);
                assert_true(before.polynomial != after.polynomial);
                words[a] = kept[0];
                words[b] = kept[1];
                if (bit == 31)
                    before = digest_of(words, TOCSIN_DTYPE_FLOAT32, COUNT);
                ++tried;
            }
        }
    }
    assert_int_equal(tried, COUNT * (COUNT - 1) * 32);
}

/* Two changed 8-bit words at all pairs of three positions: all values of both would be too
 * many, so all S0-neutral changes of one with the other at 128 (S0 sees the others). */
static void test_theorem_b_all_bytes(void **unused)
{
    (void)unused;
    for (size_t a = 0; a < 3; ++a) {
        for (size_t b = a + 1; b < 3; ++b) {
            for (int from = 0; from < 256; ++from) {
                for (int delta = -from; delta < 256 - from; ++delta) {
                    unsigned char words[3] = {5, 5, 5};
                    words[a] = (unsigned char)from;
                    words[b] = 128;
                    if (delta == 0 || 128 - delta < 0 || 128 - delta > 255)
                        continue;
                    tocsin_digest before = digest_of(words, TOCSIN_DTYPE_UINT8, 3);
                    words[a] = (unsigned char)(from + delta);
                    words[b] = (unsigned char)(128 - delta);
                    tocsin_digest after = digest_of(words, TOCSIN_DTYPE_UINT8, 3);
                    assert_true(before.sum == after.sum);
                    assert_true(before.polynomial != after.polynomial);
                }
            }
        }
    }
}

/* r is a primitive root of p: r^((p-1)/q) != 1 for every prime q of p - 1, so no two exponents
 * below p - 1 have the same weight. */
static void test_primitive_root(void **unused)
{
    (void)unused;
    static const uint64_t primes[] = {2, 3, 5, 7, 11, 13, 31, 41, 61, 151, 331, 1321};
    uint64_t rest = ORACLE_PRIME - 1;
    for (size_t i = 0; i < sizeof primes / sizeof primes[0]; ++i) {
        assert_true(oracle_pow((ORACLE_PRIME - 1) / primes[i]) != 1);
        while (rest % primes[i] == 0)
            rest /= primes[i];
    }
    assert_int_equal(rest, 1);
    assert_int_equal(oracle_pow(ORACLE_PRIME - 1), 1);
}

/* ---- blind spots of other digests ------------------------------------------------------------ */

#define SPOT_WORDS 65536

static uint32_t *spot_words(void)
{
    uint32_t *words = malloc(SPOT_WORDS * sizeof *words);
    assert_non_null(words);
    uint64_t state = 3;
    for (size_t i = 0; i < SPOT_WORDS; ++i) {
        float value = (float)((int64_t)(oracle_random(&state) >> 40) - (1 << 23)) / 8388608.0f;
        memcpy(&words[i], &value, 4);
    }
    return words;
}

static void swap_words(uint32_t *a, uint32_t *b)
{
    uint32_t kept = *a;
    *a = *b;
    *b = kept;
}

static void damage(uint32_t *words, int kind)
{
    switch (kind) {
    case 0: /* sign flip of one fp32: invisible to the L1 norm */
        words[777] ^= UINT32_C(1) << 31;
        break;
    case 1: /* two words swapped: invisible to xor, norm, sum */
        swap_words(&words[3], &words[9000]);
        break;
    case 2: /* the same bit flipped in two elements: invisible to xor */
        words[100] ^= UINT32_C(1) << 20;
        words[5000] ^= UINT32_C(1) << 20;
        break;
    case 3: /* second difference: invisible to sum and to sum of i * word */
        words[10] += 5;
        words[11] -= 10;
        words[12] += 5;
        break;
    case 4: /* the same, warp-strided */
        words[64] += 1024;
        words[96] -= 1024;
        words[128] -= 1024;
        words[160] += 1024;
        break;
    case 5: /* 512 sign flips with stride 64: invisible to xor and norm */
        for (size_t i = 0; i < 512; ++i)
            words[i * 64] ^= UINT32_C(1) << 31;
        break;
    default: /* one row reversed, another rotated: the same multiset */
        for (size_t i = 0; i < 32; ++i)
            swap_words(&words[7 * 64 + i], &words[7 * 64 + 63 - i]);
        for (size_t i = 0; i < 63; ++i)
            swap_words(&words[90 * 64 + i], &words[90 * 64 + i + 1]);
    }
}

static void test_blind_spots(void **unused)
{
    (void)unused;
    uint32_t *words = spot_words();
    tocsin_digest before = digest_of(words, TOCSIN_DTYPE_FLOAT32, SPOT_WORDS);
    for (int kind = 0; kind <= 6; ++kind) {
        uint32_t *damaged = spot_words();
        damage(damaged, kind);
        assert_true(is_detected(before, digest_of(damaged, TOCSIN_DTYPE_FLOAT32, SPOT_WORDS)));
        free(damaged);
    }
    free(words);
}

/* Two rows of a one-hot routing mask swapped: invisible to xor, norm, sum and sum of i * word. */
static void test_blind_spot_routing_mask(void **unused)
{
    (void)unused;
    static int32_t mask[1024][64];
    uint64_t state = 11;
    for (size_t row = 0; row < 1024; ++row)
        mask[row][row == 5 ? 1 : row == 900 ? 2 : oracle_below(&state, 64)] = 1;
    tocsin_digest before = digest_of(mask, TOCSIN_DTYPE_INT32, 65536);
    for (size_t i = 0; i < 64; ++i) {
        int32_t kept = mask[5][i];
        mask[5][i] = mask[900][i];
        mask[900][i] = kept;
    }
    assert_true(is_detected(before, digest_of(mask, TOCSIN_DTYPE_INT32, 65536)));
}

/* Two fp64 sign flips at an even distance: invisible to sums of i * word mod 2^64. Also in the
 * Thue-Morse pattern that defeats every odd base mod 2^64. */
static void test_blind_spot_doubles(void **unused)
{
    (void)unused;
    static double values[4096];
    for (size_t i = 0; i < 4096; ++i)
        values[i] = 1.0 + (double)i * 0.001;
    tocsin_digest before = digest_of(values, TOCSIN_DTYPE_FLOAT64, 4096);
    values[10] = -values[10];
    values[1234] = -values[1234];
    assert_true(is_detected(before, digest_of(values, TOCSIN_DTYPE_FLOAT64, 4096)));
    values[10] = -values[10];
    values[1234] = -values[1234];

    uint32_t words[2][512];
    for (size_t i = 0; i < 512; ++i) {
        bool is_odd = __builtin_popcountll(i) % 2;
        words[0][i] = is_odd ? UINT32_C(1) << 31 : 0;
        words[1][i] = is_odd ? 0 : UINT32_C(1) << 31;
    }
    before = digest_of(words[0], TOCSIN_DTYPE_INT32, 512);
    assert_true(is_detected(before, digest_of(words[1], TOCSIN_DTYPE_INT32, 512)));
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* The weight of a convolution in channels_last memory, and a transposed matrix. */
static void test_channels_last_and_transposed(void **unused)
{
    (void)unused;
    enum { O = 5, I = 40, H = 3, W = 3 };
    static float contiguous[O][I][H][W];
    static float last[O][H][W][I];
    static float transposed[I * H * W][O];
    for (size_t k = 0; k < O * I * H * W; ++k) {
        size_t w = k % W, h = k / W % H, i = k / (W * H) % I, o = k / (W * H * I);
        float value = (float)(k % 17) - 8.5f;
        contiguous[o][i][h][w] = value;
        last[o][h][w][i] = value;
        transposed[k % (I * H * W)][o] = value;
    }
    const int64_t shape[] = {O, I, H, W};
    const int64_t strides[] = {I * H * W, 1, W * I, I};
    tocsin_tensor_view view = {
        .data = contiguous, .dtype = TOCSIN_DTYPE_FLOAT32, .ndim = 4, .shape = shape};
    tocsin_digest expected, actual;
    tocsin_statistics statistics;
    assert_int_equal(tocsin_tensor_digest(&view, &expected, NULL, NULL), TOCSIN_OK);
    view.data = last;
    view.strides = strides;
    assert_int_equal(tocsin_tensor_digest(&view, &actual, &statistics, NULL), TOCSIN_OK);
    assert_true(oracle_same_digest(expected, actual));
    assert_true(statistics.absmax == 8.5);

    const int64_t flat[] = {O, I * H * W};
    const int64_t transposed_strides[] = {1, O};
    view = (tocsin_tensor_view){.data = transposed,
                                .dtype = TOCSIN_DTYPE_FLOAT32,
                                .ndim = 2,
                                .shape = flat,
                                .strides = transposed_strides};
    assert_int_equal(tocsin_tensor_digest(&view, &actual, NULL, NULL), TOCSIN_OK);
    assert_true(oracle_same_digest(expected, actual));
}

/* A broadcast costs nothing: 2^50 elements over one row. */
static void test_broadcast(void **unused)
{
    (void)unused;
    const float row[3] = {1, -2, 0};
    const int64_t small_shape[] = {4, 3};
    const int64_t huge_shape[] = {INT64_C(1) << 50, 3};
    const int64_t strides[] = {0, 1};
    tocsin_tensor_view view = {.data = row,
                               .dtype = TOCSIN_DTYPE_FLOAT32,
                               .ndim = 2,
                               .shape = small_shape,
                               .strides = strides};
    tocsin_digest digest;
    tocsin_statistics statistics;
    assert_int_equal(tocsin_tensor_digest(&view, &digest, &statistics, NULL), TOCSIN_OK);
    assert_true(oracle_same_digest(digest, oracle_digest(&view)));
    assert_true(statistics.sum_squares == 20.0 && statistics.zero_count == 4);
    view.shape = huge_shape;
    assert_int_equal(tocsin_tensor_digest(&view, &digest, &statistics, NULL), TOCSIN_OK);
    assert_int_equal(statistics.zero_count, INT64_C(1) << 50);
    assert_int_equal(digest.exclusive, 0);
}

/* Strides of axes of size 1 are never used; elements far apart. */
static void test_huge_stride(void **unused)
{
    (void)unused;
    float values[2] = {3, 4};
    const int64_t shape[] = {1, 2, 1};
    const int64_t strides[] = {INT64_MAX, 1, INT64_MIN}; /* of axes of size 1: never used */
    tocsin_tensor_view view = {.data = values,
                               .dtype = TOCSIN_DTYPE_FLOAT32,
                               .ndim = 3,
                               .shape = shape,
                               .strides = strides};
    tocsin_digest digest;
    assert_int_equal(tocsin_tensor_digest(&view, &digest, NULL, NULL), TOCSIN_OK);
    assert_true(oracle_same_digest(digest, digest_of(values, TOCSIN_DTYPE_FLOAT32, 2)));

    size_t reach = (size_t)1 << 20;
    unsigned char *bytes = calloc(reach + 4, 1);
    assert_non_null(bytes);
    memcpy(bytes, &values[0], 4);
    memcpy(bytes + reach, &values[1], 4);
    const int64_t far_shape[] = {2};
    const int64_t far_strides[] = {(int64_t)(reach / 4)};
    view = (tocsin_tensor_view){.data = bytes,
                                .dtype = TOCSIN_DTYPE_FLOAT32,
                                .ndim = 1,
                                .shape = far_shape,
                                .strides = far_strides};
    assert_int_equal(tocsin_tensor_digest(&view, &digest, NULL, NULL), TOCSIN_OK);
    assert_true(oracle_same_digest(digest, digest_of(values, TOCSIN_DTYPE_FLOAT32, 2)));
    free(bytes);
}

static void test_empty_and_scalar(void **unused)
{
    (void)unused;
    const int64_t empty_shape[] = {3, 0, INT64_MAX, INT64_MAX};
    tocsin_tensor_view view = {.dtype = TOCSIN_DTYPE_FLOAT64, .ndim = 4, .shape = empty_shape};
    tocsin_digest digest = {1, 1, 1};
    tocsin_statistics statistics;
    assert_int_equal(tocsin_tensor_digest(&view, &digest, &statistics, NULL), TOCSIN_OK);
    assert_true(oracle_same_digest(digest, (tocsin_digest){0}));
    assert_true(oracle_same_statistics(statistics, (tocsin_statistics){0}));

    const double value = -1.5;
    view = (tocsin_tensor_view){.data = &value, .dtype = TOCSIN_DTYPE_FLOAT64};
    assert_int_equal(tocsin_tensor_digest(&view, &digest, &statistics, NULL), TOCSIN_OK);
    assert_true(oracle_same_digest(digest, oracle_digest(&view)));
    assert_true(statistics.absmax == 1.5 && statistics.sum_squares == 2.25);
    assert_int_equal(tocsin_tensor_digest(&view, NULL, NULL, NULL), TOCSIN_OK);
}

/* ---- arguments ------------------------------------------------------------------------------- */

static void expect_refused(const tocsin_tensor_view *view, tocsin_status status)
{
    tocsin_error error;
    tocsin_digest digest;
    assert_int_equal(tocsin_tensor_digest(view, &digest, NULL, &error), status);
    assert_int_equal(error.code, status);
    assert_true(error.message[0] != 0);
    assert_int_equal(tocsin_tensor_digest_scalar(view, &digest, NULL, NULL), status);
}

static void test_refused(void **unused)
{
    (void)unused;
    const float value = 1;
    const int64_t one[TOCSIN_NDIM_MAX + 1] = {1};
    const int64_t negative[] = {2, -1};
    const int64_t pair[] = {2, 2};
    const int64_t big[] = {INT64_C(1) << 30, (INT64_C(1) << 30) + 1};
    const int64_t huge[] = {INT64_MAX, INT64_MAX};
    const int64_t steep[] = {INT64_MIN, 1};
    const int64_t tall[] = {INT64_C(1) << 58, (INT64_C(1) << 58) + 1}; /* 4 * 2^59 bytes and more */
    const tocsin_tensor_view good = {
        .data = &value, .dtype = TOCSIN_DTYPE_FLOAT32, .ndim = 2, .shape = pair};
    tocsin_tensor_view view = good;
    expect_refused(NULL, TOCSIN_E_ARGUMENT);
    view.dtype = TOCSIN_DTYPE_NONE;
    expect_refused(&view, TOCSIN_E_ARGUMENT);
    view.dtype = (tocsin_dtype)22;
    expect_refused(&view, TOCSIN_E_ARGUMENT);
    view = good;
    view.ndim = TOCSIN_NDIM_MAX + 1;
    view.shape = one;
    expect_refused(&view, TOCSIN_E_ARGUMENT);
    view = good;
    view.shape = NULL;
    expect_refused(&view, TOCSIN_E_ARGUMENT);
    view.shape = negative;
    expect_refused(&view, TOCSIN_E_ARGUMENT);
    view = good;
    view.data = NULL;
    expect_refused(&view, TOCSIN_E_ARGUMENT);
    view = good;
    view.global_shape = one; /* smaller than the shard */
    expect_refused(&view, TOCSIN_E_ARGUMENT);
    view.global_shape = pair;
    view.offset = one; /* one beyond */
    expect_refused(&view, TOCSIN_E_ARGUMENT);
    view.global_shape = huge;
    view.offset = negative;
    expect_refused(&view, TOCSIN_E_ARGUMENT);
    view = good;
    view.offset = one; /* no global shape: the tensor is the whole */
    expect_refused(&view, TOCSIN_E_ARGUMENT);
    view = good;
    view.shape = big;
    expect_refused(&view, TOCSIN_E_LIMIT);
    view.shape = huge;
    expect_refused(&view, TOCSIN_E_LIMIT);
    view = good;
    view.strides = steep;
    expect_refused(&view, TOCSIN_E_LIMIT);
    view.strides = tall;
    expect_refused(&view, TOCSIN_E_LIMIT);
}

/* ---- floating point environment ---------------------------------------------------------------
 */

#if defined(__x86_64__)
#include <immintrin.h>

/* Flush-to-zero in the training thread changes nothing, and stays on. */
static void test_float_environment(void **unused)
{
    (void)unused;
    float values[33];
    for (size_t i = 0; i < 33; ++i)
        values[i] = i % 2 ? 1e-42f : 3e-39f; /* subnormal */
    const int64_t count = 33;
    tocsin_tensor_view view = {
        .data = values, .dtype = TOCSIN_DTYPE_FLOAT32, .ndim = 1, .shape = &count};
    tocsin_statistics expected, actual;
    assert_int_equal(tocsin_tensor_digest(&view, NULL, &expected, NULL), TOCSIN_OK);
    assert_true(expected.absmax > 0 && expected.sum_squares > 0);
    unsigned saved = _mm_getcsr();
    unsigned flushing = (saved | 0x8040 | 0x2000) & ~0x3fu; /* FTZ, DAZ, round down */
    _mm_setcsr(flushing);
    tocsin_status status = tocsin_tensor_digest(&view, NULL, &actual, NULL);
    unsigned after = _mm_getcsr();
    _mm_setcsr(saved);
    assert_int_equal(status, TOCSIN_OK);
    assert_int_equal(after, flushing);
    assert_true(oracle_same_statistics(expected, actual));
    assert_int_equal(tocsin_tensor_digest_scalar(&view, NULL, &actual, NULL), TOCSIN_OK);
    assert_true(oracle_same_statistics(expected, actual));
}
#else
static void test_float_environment(void **unused)
{
    (void)unused;
    skip();
}
#endif

/* ---- the golden file ---------------------------------------------------------------------------
 */

static uint32_t parse_list(char *text, int64_t *numbers)
{
    uint32_t count = 0;
    if (strcmp(text, "-") == 0)
        return 0;
    for (char *end = text; *text; text = *end ? end + 1 : end) {
        assert_true(count < 8);
        numbers[count++] = strtoll(text, &end, 10);
    }
    return count;
}

static size_t parse_hex(const char *text, unsigned char *bytes, size_t limit)
{
    if (strcmp(text, "-") == 0)
        return 0;
    size_t count = strlen(text) / 2;
    assert_true(count <= limit);
    for (size_t i = 0; i < count; ++i) {
        unsigned byte;
        assert_int_equal(sscanf(text + 2 * i, "%2x", &byte), 1);
        bytes[i] = (unsigned char)byte;
    }
    return count;
}

static void check_golden_line(char *line, int number)
{
    static unsigned char bytes[16384];
    char *fields[15];
    char *rest = NULL;
    for (size_t i = 0; i < 15; ++i) {
        fields[i] = strtok_r(i ? NULL : line, " \n", &rest);
        assert_non_null(fields[i]);
    }
    int64_t shape[8], strides[8], whole[8], offset[8];
    tocsin_tensor_view view = {.dtype = tocsin_dtype_from_name(fields[0]),
                               .ndim = parse_list(fields[1], shape),
                               .shape = shape,
                               .strides = strides,
                               .global_shape = whole,
                               .offset = offset};
    assert_int_equal(parse_list(fields[2], strides), view.ndim);
    assert_int_equal(parse_list(fields[3], whole), view.ndim);
    assert_int_equal(parse_list(fields[4], offset), view.ndim);
    parse_hex(fields[6], bytes, sizeof bytes);
    view.data = bytes + strtoull(fields[5], NULL, 10) * tocsin_dtype_bytes(view.dtype);
    tocsin_digest expected = {.sum = strtoull(fields[7], NULL, 10),
                              .exclusive = strtoull(fields[8], NULL, 10),
                              .polynomial = strtoull(fields[9], NULL, 10)};
    tocsin_statistics facts = {.nan_count = strtoull(fields[10], NULL, 10),
                               .inf_count = strtoull(fields[11], NULL, 10),
                               .zero_count = strtoull(fields[12], NULL, 10),
                               .absmax = strtod(fields[13], NULL),
                               .sum_squares = strtod(fields[14], NULL)};
    for (int scalar = 0; scalar < 2; ++scalar) {
        tocsin_digest digest;
        tocsin_statistics statistics;
        tocsin_status status = scalar
                                   ? tocsin_tensor_digest_scalar(&view, &digest, &statistics, NULL)
                                   : tocsin_tensor_digest(&view, &digest, &statistics, NULL);
        if (status != TOCSIN_OK || !oracle_same_digest(digest, expected) ||
            !oracle_close_statistics(statistics, facts))
            fail_msg("golden line %d (%s) differs", number, fields[0]);
    }
}

static void test_golden(void **unused)
{
    (void)unused;
    const char *source = getenv("TOCSIN_SOURCE");
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/golden/digest_vectors.txt", source ? source : ".");
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    static char line[65536];
    int number = 0;
    while (fgets(line, sizeof line, file))
        check_golden_line(line, ++number);
    fclose(file);
    assert_true(number > 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_theorem_a_all_values),
        cmocka_unit_test(test_theorem_a_all_bits),
        cmocka_unit_test(test_theorem_b_all_pairs),
        cmocka_unit_test(test_theorem_b_all_bytes),
        cmocka_unit_test(test_primitive_root),
        cmocka_unit_test(test_blind_spots),
        cmocka_unit_test(test_blind_spot_routing_mask),
        cmocka_unit_test(test_blind_spot_doubles),
        cmocka_unit_test(test_channels_last_and_transposed),
        cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_huge_stride),
        cmocka_unit_test(test_empty_and_scalar),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_float_environment),
        cmocka_unit_test(test_golden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
