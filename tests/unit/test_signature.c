/* Axis signatures: what they mean, their canonical text, and what is refused. */
#include "cmocka_test.h"
#include "plan/operators.h"

static tocsin_signature parse(const char *text)
{
    tocsin_signature signature;
    tocsin_error error = {0};
    tocsin_status status = tocsin_signature_parse(text, strlen(text), &signature, &error);
    if (status != TOCSIN_OK)
        fail_msg("%s: %s", text, error.message);
    return signature;
}

static void assert_text(const tocsin_signature *signature, bool canonical, const char *expected)
{
    tocsin_string text = {0};
    tocsin_signature_write(signature, canonical, &text);
    assert_string_equal(tocsin_string_text(&text), expected);
    tocsin_string_free(&text);
}

static void test_linear(void **state)
{
    (void)state;
    tocsin_signature s = parse("x[... k+] w[n k+] -> [... n] linear=0,1");
    assert_int_equal(s.input_count, 2);
    assert_int_equal(s.output_count, 1);
    assert_int_equal(s.axis_count, 2);
    assert_string_equal(s.axis_name[0], "k");
    assert_string_equal(s.axis_name[1], "n");
    assert_true(s.contracted[0] && !s.contracted[1] && !s.whole[0] && !s.whole[1]);
    assert_true(s.operands[0].ellipsis && !s.operands[1].ellipsis && s.operands[2].ellipsis);
    assert_int_equal(s.operands[0].ndim, 1);
    assert_int_equal(s.operands[1].axis[0], 1);
    assert_int_equal(s.operands[1].axis[1], 0);
    assert_int_equal(s.operands[2].axis[0], 1);
    assert_int_equal(s.linear, 3);
    assert_false(s.commutative);
    assert_null(s.text);
}

/* A mark on one occurrence holds for the axis. */
static void test_marks(void **state)
{
    (void)state;
    tocsin_signature s = parse("q[b h s d^] k[b h t^ d] v[b h t e] -> [b h s e] linear=2");
    assert_text(&s, false, "[b h s d^] [b h t^ d^] [b h t^ e] -> [b h s e] linear=2");
    assert_text(&s, true, "[a b c d^] [a b e^ d^] [a b e^ f] -> [a b c f] linear=2");
}

static void test_special_axes(void **state)
{
    (void)state;
    tocsin_signature s = parse("[1 _ a]->[ ... a ]\t[]");
    assert_int_equal(s.operands[0].axis[0], TOCSIN_AXIS_ONE);
    assert_int_equal(s.operands[0].axis[1], TOCSIN_AXIS_ANY);
    assert_int_equal(s.operands[0].axis[2], 0);
    assert_int_equal(s.output_count, 2);
    assert_true(s.operands[1].ellipsis);
    assert_int_equal(s.operands[2].ndim, 0);
    assert_text(&s, false, "[1 _ a] -> [... a] []");
    s = parse("-> [n^]");
    assert_int_equal(s.input_count, 0);
    assert_text(&s, true, "-> [a^]");
}

/* Names of axes and of operands do not matter, their order and marks do. */
static void test_canonical(void **state)
{
    (void)state;
    static const char *const equal[] = {
        "a[m k+] b[k+ n] -> [m n] linear=0,1",
        "[x y+] [y z] -> [x z] linear=1,0",
        "left[rows inner] right[inner+ cols]->out[rows cols]   linear=0 linear=1",
    };
    for (size_t i = 0; i < TOCSIN_COUNT_OF(equal); ++i) {
        tocsin_signature s = parse(equal[i]);
        assert_text(&s, true, "[a b+] [b+ c] -> [a c] linear=0,1");
    }
    tocsin_signature s = parse("[m k+] [n k+] -> [m n] commutative");
    assert_text(&s, true, "[a b+] [c b+] -> [a c] commutative");
}

/* Each signature of the operator table parses, and its two texts parse to the same. */
static void test_table(void **state)
{
    (void)state;
    size_t count = 0;
    for (unsigned code = 0; code < TOCSIN_OPERATOR_COUNT; ++code) {
        const tocsin_operator *op = &tocsin_operators[code];
        assert_int_equal(tocsin_operator_from_name(op->name, strlen(op->name)), code);
        if (!op->signature[0])
            continue;
        tocsin_signature s = parse(op->signature);
        assert_int_equal(s.input_count, op->input_count);
        assert_int_equal(s.output_count, op->output_count);
        for (int canonical = 0; canonical < 2; ++canonical) {
            tocsin_string text = {0};
            tocsin_signature_write(&s, canonical, &text);
            tocsin_signature again = parse(text.text);
            tocsin_string_clear(&text);
            tocsin_signature_write(&again, true, &text);
            assert_text(&s, true, text.text);
            tocsin_string_free(&text);
        }
        ++count;
    }
    assert_true(count > 30);
    assert_int_equal(tocsin_operator_from_name("linea", 5), TOCSIN_OPERATOR_COUNT);
    assert_int_equal(tocsin_operator_from_name("", 0), TOCSIN_OPERATOR_COUNT);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        tocsin_status status;
        int64_t offset;
        const char *message;
    } cases[] = {
        {"", TOCSIN_E_FORMAT, 0, "expected an operand"},
        {"[a]", TOCSIN_E_FORMAT, 3, "expected an operand, as in x[a b], or ->"},
        {"[a] ->", TOCSIN_E_FORMAT, 6, "expected an output"},
        {"[a -> [a]", TOCSIN_E_FORMAT, 3, "an axis is a name"},
        {"[a", TOCSIN_E_FORMAT, 2, "a bracket is not closed"},
        {"[a a] -> [a]", TOCSIN_E_FORMAT, 3, "axis a stands twice in one operand"},
        {"[a+] -> [a]", TOCSIN_E_FORMAT, 11, "axis a is summed over, yet an output has it"},
        {"[a+^] -> []", TOCSIN_E_FORMAT, 4, "axis a is marked both + and ^"},
        {"[a+] [a^] -> []", TOCSIN_E_FORMAT, 8, "axis a is marked both + and ^"},
        {"[2] -> []", TOCSIN_E_FORMAT, 1, "an axis is a name"},
        {"[1a] -> []", TOCSIN_E_FORMAT, 1, "an axis is a name"},
        {"[abcdefghijkl] -> []", TOCSIN_E_FORMAT, 1, "an axis is a name of 1 to 11"},
        {"[a ...] -> []", TOCSIN_E_FORMAT, 3, "an axis is a name"},
        {"[a] -> [a] linear=1", TOCSIN_E_FORMAT, 19, "linear= names inputs from 0 to 0"},
        {"[a] -> [a] linear=", TOCSIN_E_FORMAT, 18, "linear= names inputs"},
        {"[a] -> [a] linear=0,", TOCSIN_E_FORMAT, 20, "linear= names inputs"},
        {"[a] -> [a] linear=0x", TOCSIN_E_FORMAT, 19, "expected a blank"},
        {"[a] -> [a] commutative", TOCSIN_E_FORMAT, 22, "commutative needs two inputs"},
        {"[a] -> [a] cheap", TOCSIN_E_FORMAT, 11, "expected linear=, commutative or the end"},
        {"[a b c d e f g h i j k l m] -> []", TOCSIN_E_LIMIT, 25, "more than 12 axes"},
        {"[a b c d e f g h i j k l] [m n o p q r s t u v w x] [y] -> []", TOCSIN_E_LIMIT, 53,
         "more than 24 axes"},
        {"[][][][][][][][][][][][][][][][] -> []", TOCSIN_E_LIMIT, 36, "more than 16 operands"},
    };
    for (size_t i = 0; i < TOCSIN_COUNT_OF(cases); ++i) {
        tocsin_signature signature;
        tocsin_error error = {0};
        size_t bytes = strlen(cases[i].text);
        tocsin_status status = tocsin_signature_parse(cases[i].text, bytes, &signature, &error);
        if (status != cases[i].status || error.offset != cases[i].offset ||
            !strstr(error.message, cases[i].message))
            fail_msg("%s: status %d, offset %lld: %s", cases[i].text, (int)status,
                     (long long)error.offset, error.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),       cmocka_unit_test(test_marks),
        cmocka_unit_test(test_special_axes), cmocka_unit_test(test_canonical),
        cmocka_unit_test(test_table),        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
