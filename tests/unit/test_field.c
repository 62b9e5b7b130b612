/* The finite-field model: both primes are prime, and the laws that it promises hold at random
 * points, while laws that real numbers do not have fail. */
#include "cmocka_test.h"
#include "prove/field.h"

__extension__ typedef unsigned __int128 wide;

enum { POINTS = 200 };

static uint64_t power(uint64_t base, uint64_t exponent, uint64_t prime)
{
    uint64_t result = 1;
    for (base %= prime; exponent; exponent >>= 1) {
        if (exponent & 1)
            result = (uint64_t)((wide)result * base % prime);
        base = (uint64_t)((wide)base * base % prime);
    }
    return result;
}

/* Miller-Rabin with the first twelve primes decides all numbers below 2^64. */
static bool is_prime(uint64_t n)
{
    static const uint64_t bases[] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
    uint64_t odd = n - 1;
    while (odd % 2 == 0)
        odd /= 2;
    for (size_t b = 0; b < TOCSIN_COUNT_OF(bases); ++b) {
        uint64_t exponent = odd, x = power(bases[b], odd, n);
        while (exponent != n - 1 && x != 1 && x != n - 1) {
            x = (uint64_t)((wide)x * x % n);
            exponent *= 2;
        }
        if (x != n - 1 && exponent % 2 == 0)
            return false;
    }
    return true;
}

static tocsin_element random_element(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return tocsin_oracle_value(*state);
}

static void test_the_primes(void **state)
{
    (void)state;
    assert_true(is_prime(TOCSIN_FIELD_P));
    assert_true(is_prime(TOCSIN_FIELD_Q));
    assert_true(TOCSIN_FIELD_P == 2 * TOCSIN_FIELD_Q + 1);
    assert_int_equal(TOCSIN_FIELD_P % 4, 3);
    assert_false(is_prime(UINT64_C(3215031751)));
}

static void test_residues_equal_wide_arithmetic(void **state)
{
    uint64_t random = 1;
    (void)state;
    for (int k = 0; k < POINTS; ++k) {
        tocsin_element a = random_element(&random), b = random_element(&random);
        if (k < 4) { /* the ends of the range */
            a = (tocsin_element){TOCSIN_FIELD_P - 1, TOCSIN_FIELD_Q - 1};
            b = k % 2 ? a : b;
        }
        tocsin_element sum = tocsin_element_add(a, b), product = tocsin_element_multiply(a, b);
        assert_true(sum.p == (a.p + b.p) % TOCSIN_FIELD_P && sum.q == (a.q + b.q) % TOCSIN_FIELD_Q);
        assert_true(product.p == (uint64_t)((wide)a.p * b.p % TOCSIN_FIELD_P));
        assert_true(product.q == (uint64_t)((wide)a.q * b.q % TOCSIN_FIELD_Q));
    }
}

static bool same(tocsin_element a, tocsin_element b)
{
    return a.p == b.p && a.q == b.q;
}

static void test_field_laws(void **state)
{
    uint64_t random = 2;
    tocsin_element one = tocsin_element_of_integer(1), zero = tocsin_element_of_integer(0);
    (void)state;
    for (int k = 0; k < POINTS; ++k) {
        tocsin_element a = random_element(&random), b = random_element(&random);
        assert_true(same(tocsin_element_multiply(a, tocsin_element_inverse(a)), one));
        assert_true(same(tocsin_element_subtract(a, a), zero));
        assert_true(same(tocsin_element_power(a, 5),
                         tocsin_element_multiply(a, tocsin_element_power(a, 4))));
        assert_true(same(
            tocsin_element_multiply(tocsin_element_power(a, -3), tocsin_element_power(a, 3)), one));
        assert_true(same(tocsin_element_negate(tocsin_element_subtract(a, b)),
                         tocsin_element_subtract(b, a)));
    }
    assert_true(tocsin_element_is_undefined(tocsin_element_inverse(zero)));
}

static void test_exp_turns_sums_into_products(void **state)
{
    uint64_t random = 3;
    tocsin_field field = tocsin_field_new(7);
    (void)state;
    for (int k = 0; k < POINTS; ++k) {
        tocsin_element a = random_element(&random), b = random_element(&random);
        tocsin_element product =
            tocsin_element_multiply(tocsin_element_exp(&field, a), tocsin_element_exp(&field, b));
        tocsin_element of_sum = tocsin_element_exp(&field, tocsin_element_add(a, b));
        assert_true(tocsin_element_equal(product, of_sum));
        assert_false(tocsin_element_equal(product, tocsin_element_exp(&field, a)));
    }
    assert_true(tocsin_element_equal(tocsin_element_exp(&field, TOCSIN_ELEMENT_NEGATIVE),
                                     tocsin_element_of_integer(0)));
}

static void test_square_roots(void **state)
{
    uint64_t random = 4;
    int squares = 0;
    tocsin_field field = tocsin_field_new(7);
    (void)state;
    for (int k = 0; k < POINTS; ++k) {
        tocsin_element a = random_element(&random), b = random_element(&random);
        bool exact = true, ignored = true;
        tocsin_element root = tocsin_element_sqrt(&field, a, &exact);
        tocsin_element square = tocsin_element_multiply(root, root);
        assert_true(tocsin_element_equal(square, exact ? a : tocsin_element_negate(a)));
        squares += exact;
        tocsin_element of_product =
            tocsin_element_sqrt(&field, tocsin_element_multiply(a, b), &ignored);
        assert_true(tocsin_element_equal(
            of_product, tocsin_element_multiply(root, tocsin_element_sqrt(&field, b, &ignored))));
    }
    assert_in_range(squares, POINTS / 4, POINTS * 3 / 4);
}

static void test_order(void **state)
{
    uint64_t random = 5;
    tocsin_field field = tocsin_field_new(7);
    bool chosen = false;
    (void)state;
    for (int64_t i = -20; i < 20; ++i)
        for (int64_t j = -20; j < 20; ++j)
            assert_int_equal(tocsin_element_compare(&field, tocsin_element_of_integer(i),
                                                    tocsin_element_of_integer(j), &chosen),
                             (i > j) - (i < j));
    assert_false(chosen);
    for (int k = 0; k < POINTS; ++k) { /* a total order with infinite ends */
        tocsin_element x[3] = {random_element(&random), random_element(&random),
                               k % 2 ? random_element(&random) : tocsin_element_of_integer(k)};
        int xy = tocsin_element_compare(&field, x[0], x[1], &chosen);
        int yz = tocsin_element_compare(&field, x[1], x[2], &chosen);
        assert_int_equal(tocsin_element_compare(&field, x[1], x[0], &chosen), -xy);
        if (xy == yz)
            assert_int_equal(tocsin_element_compare(&field, x[0], x[2], &chosen), xy);
        assert_int_equal(tocsin_element_compare(&field, x[0], TOCSIN_ELEMENT_POSITIVE, &chosen),
                         -1);
        assert_int_equal(tocsin_element_compare(&field, x[0], TOCSIN_ELEMENT_NEGATIVE, &chosen), 1);
    }
    assert_true(chosen);
}

static void test_constants(void **state)
{
    tocsin_field field = tocsin_field_new(7);
    int64_t integer;
    (void)state;
    tocsin_element third = tocsin_element_of_real(&field, 1.0 / 3);
    assert_true(same(tocsin_element_multiply(third, tocsin_element_of_integer(3)),
                     tocsin_element_of_integer(1)));
    tocsin_element small = tocsin_element_of_real(&field, 1e-6);
    assert_true(same(tocsin_element_multiply(small, tocsin_element_of_integer(1000000)),
                     tocsin_element_of_integer(1)));
    assert_true(tocsin_element_is_integer(tocsin_element_of_real(&field, -7.0), &integer));
    assert_int_equal(integer, -7);
    tocsin_element root = tocsin_element_of_real(&field, 0.70710678118654757);
    assert_true(same(tocsin_element_add(root, tocsin_element_of_real(&field, -0.70710678118654757)),
                     tocsin_element_of_integer(0)));
    assert_false(tocsin_element_is_integer(root, &integer));
    assert_true(tocsin_element_is_undefined(
        tocsin_element_add(TOCSIN_ELEMENT_POSITIVE, TOCSIN_ELEMENT_NEGATIVE)));
    assert_true(tocsin_element_equal(
        tocsin_element_multiply(TOCSIN_ELEMENT_POSITIVE, tocsin_element_of_integer(-2)),
        TOCSIN_ELEMENT_NEGATIVE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_primes),   cmocka_unit_test(test_residues_equal_wide_arithmetic),
        cmocka_unit_test(test_field_laws),   cmocka_unit_test(test_exp_turns_sums_into_products),
        cmocka_unit_test(test_square_roots), cmocka_unit_test(test_order),
        cmocka_unit_test(test_constants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
