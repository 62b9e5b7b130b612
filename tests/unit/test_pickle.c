/* The pickle reader: every opcode, by hand-made bytes; cut off at every byte; hostile lengths,
 * depths and stacks; byte flips; the n-th allocation fails. Nothing is ever called. */
#include <stdio.h>

#include "cmocka_test.h"
#include <plan/pickle.h>

/* A value as Python would print it; `depth` guards against cycles. */
static void print_value(const tocsin_pickle_value *value, int depth, tocsin_string *out);

static void print_items(const tocsin_pickle_value *value, const char *brackets, int depth,
                        tocsin_string *out)
{
    bool is_dict = value->kind == TOCSIN_PICKLE_DICT;
    tocsin_string_append_char(out, brackets[0]);
    for (uint32_t i = 0; i < value->count; ++i) {
        if (i)
            tocsin_string_append_text(out, is_dict && i % 2 ? ":" : ",");
        print_value(value->items[i], depth - 1, out);
    }
    tocsin_string_append_char(out, brackets[1]);
}

static void print_object(const tocsin_pickle_object *object, int depth, tocsin_string *out)
{
    print_value(object->class, depth - 1, out);
    print_value(object->arguments, depth - 1, out);
    const tocsin_pickle_value *parts[] = {object->state, object->items, object->pairs};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(parts); ++i) {
        if (parts[i]) {
            tocsin_string_append_char(out, "|+="[i]);
            print_value(parts[i], depth - 1, out);
        }
    }
}

static void print_value(const tocsin_pickle_value *value, int depth, tocsin_string *out)
{
    static const char *const brackets[] = {[TOCSIN_PICKLE_TUPLE] = "()",
                                           [TOCSIN_PICKLE_LIST] = "[]",
                                           [TOCSIN_PICKLE_SET] = "<>",
                                           [TOCSIN_PICKLE_DICT] = "{}"};
    if (depth == 0) {
        tocsin_string_append_text(out, "..");
        return;
    }
    switch ((tocsin_pickle_kind)value->kind) {
    case TOCSIN_PICKLE_NONE:
        tocsin_string_append_text(out, "None");
        return;
    case TOCSIN_PICKLE_BOOL:
        tocsin_string_append_text(out, value->integer ? "True" : "False");
        return;
    case TOCSIN_PICKLE_INTEGER:
        tocsin_string_printf(out, "%lld", (long long)value->integer);
        return;
    case TOCSIN_PICKLE_REAL:
        tocsin_string_printf(out, "%.17g", value->real);
        return;
    case TOCSIN_PICKLE_TEXT:
        tocsin_string_printf(out, "'%.*s'", (int)value->count, value->text);
        return;
    case TOCSIN_PICKLE_BYTES:
    case TOCSIN_PICKLE_LONG:
        tocsin_string_append_char(out, value->kind == TOCSIN_PICKLE_LONG ? 'L' : 'b');
        for (uint32_t i = 0; i < value->count; ++i)
            tocsin_string_printf(out, "%02x", (unsigned char)value->text[i]);
        return;
    case TOCSIN_PICKLE_CLASS:
        tocsin_string_append(out, value->text, value->count);
        return;
    case TOCSIN_PICKLE_OBJECT:
        print_object(value->object, depth, out);
        return;
    case TOCSIN_PICKLE_TUPLE:
    case TOCSIN_PICKLE_LIST:
    case TOCSIN_PICKLE_SET:
    case TOCSIN_PICKLE_DICT:
        print_items(value, brackets[value->kind], depth, out);
        return;
    }
    fail_msg("kind %d", value->kind);
}

#define BYTES(text) (text), sizeof(text) - 1

/* Programs and what they make. They stand without PROTO and STOP. */
static const struct sample {
    const char *bytes;
    size_t count;
    const char *made;
} samples[] = {
    {BYTES("N"), "None"},
    {BYTES("\x88"), "True"},
    {BYTES("\x89"), "False"},
    {BYTES("K\xff"), "255"},
    {BYTES("M\x01\x80"), "32769"},
    {BYTES("J\xfe\xff\xff\xff"), "-2"},
    {BYTES("J\x00\x00\x00\x80"), "-2147483648"},
    {BYTES("\x8a\x00"), "0"},
    {BYTES("\x8a\x01\xff"), "-1"},
    {BYTES("\x8a\x02\xff\x00"), "255"},
    {BYTES("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80"), "-9223372036854775808"},
    {BYTES("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00"), "L000000000000008000"},
    {BYTES("\x8b\x02\x00\x00\x00\x2c\x01"), "300"},
    {BYTES("G\x3f\xf8\x00\x00\x00\x00\x00\x00"), "1.5"},
    {BYTES("\x8c\x02hi"), "'hi'"},
    {BYTES("X\x02\x00\x00\x00hi"), "'hi'"},
    {BYTES("\x8d\x02\x00\x00\x00\x00\x00\x00\x00hi"), "'hi'"},
    {BYTES("U\x02\x01\x02"), "b0102"},
    {BYTES("T\x02\x00\x00\x00\x01\x02"), "b0102"},
    {BYTES("C\x00"), "b"},
    {BYTES("B\x01\x00\x00\x00\xff"), "bff"},
    {BYTES("\x8e\x01\x00\x00\x00\x00\x00\x00\x00\xff"), "bff"},
    {BYTES("\x96\x01\x00\x00\x00\x00\x00\x00\x00\xff"), "bff"},
    {BYTES(")"), "()"},
    {BYTES("K\x01\x85"), "(1)"},
    {BYTES("K\x01K\x02\x86"), "(1,2)"},
    {BYTES("K\x01K\x02K\x03\x87"), "(1,2,3)"},
    {BYTES("(K\x01K\x02K\x03K\x04t"), "(1,2,3,4)"},
    {BYTES("(t"), "()"},
    {BYTES("]K\x01"
           "a"),
     "[1]"},
    {BYTES("](K\x01K\x02"
           "e(K\x03"
           "e"),
     "[1,2,3]"},
    {BYTES("(K\x01K\x02l"), "[1,2]"},
    {BYTES("}K\x01K\x02s"), "{1:2}"},
    {BYTES("}(K\x01K\x02K\x03K\x04u"), "{1:2,3:4}"},
    {BYTES("(K\x01K\x02"
           "d"),
     "{1:2}"},
    {BYTES("\x8f(K\x01K\x02\x90"), "<1,2>"},
    {BYTES("(K\x01\x91"), "<1>"},
    {BYTES("cos\nsystem\n"), "os.system"},
    {BYTES("\x8c\x02os\x8c\x06system\x93"), "os.system"},
    {BYTES("cos\nsystem\n\x8c\x06rm -rf\x85R"), "os.system('rm -rf')"},
    {BYTES("cm\nA\n)\x81}\x8c\x01xK\x01sb"), "m.A()|{'x':1}"},
    {BYTES("cm\nA\nK\x01\x85}K\x02K\x03s\x92"), "m.A((1),{2:3})"},
    {BYTES("cm\nA\n)R(K\x01"
           "e"),
     "m.A()+[1]"},
    {BYTES("cm\nA\n)RK\x01K\x02s"), "m.A()={1:2}"},
    {BYTES("cm\nA\n)R(K\x01\x90"), "m.A()+[1]"},
    {BYTES("K\x01K\x02"
           "0"),
     "1"},
    {BYTES("K\x01(0"), "1"},
    {BYTES("K\x01(K\x02K\x03"
           "1"),
     "1"},
    {BYTES("K\x01"
           "2\x86"),
     "(1,1)"},
    {BYTES("K\x07q\x05h\x05\x86"), "(7,7)"},
    {BYTES("K\x07r\x05\x00\x00\x00j\x05\x00\x00\x00\x86"), "(7,7)"},
    {BYTES("K\x07\x94K\x08\x94h\x00h\x01\x87\x85K\x00\x86"), NULL}, /* leaves 7 below: refused */
    {BYTES("]\x94h\x00"
           "a"),
     "[[[[[..]]]]]"},
    {BYTES("\x95\x02\x00\x00\x00\x00\x00\x00\x00K\x01"), "1"},
    {BYTES("\x80\x04N"), "None"},
};

static size_t assemble(const struct sample *sample, unsigned char *program)
{
    program[0] = 0x80;
    program[1] = 4;
    memcpy(program + 2, sample->bytes, sample->count);
    program[2 + sample->count] = '.';
    return sample->count + 3;
}

static void every_opcode(void **state)
{
    (void)state;
    for (size_t i = 0; i < TOCSIN_COUNT_OF(samples); ++i) {
        unsigned char program[64];
        size_t bytes = assemble(&samples[i], program);
        tocsin_pickle pickle;
        tocsin_error error = {0};
        tocsin_status status = tocsin_pickle_read(program, bytes, "sample", &pickle, &error);
        if (samples[i].made) {
            tocsin_string text = {0};
            if (status != TOCSIN_OK)
                fail_msg("sample %zu (%s): %s", i, samples[i].made, error.message);
            print_value(pickle.root, 5, &text);
            assert_string_equal(tocsin_string_text(&text), samples[i].made);
            tocsin_string_free(&text);
        } else {
            assert_int_equal(status, TOCSIN_E_FORMAT);
        }
        tocsin_pickle_free(&pickle);
    }
}

/* Each prefix fails, as cut off, within it. */
static void cut_off_at_every_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < TOCSIN_COUNT_OF(samples); ++i) {
        unsigned char program[64];
        size_t bytes = assemble(&samples[i], program);
        for (size_t cut = 0; cut < bytes; ++cut) {
            unsigned char *exact = tocsin_alloc(cut); /* so that a sanitizer sees an overrun */
            assert_non_null(exact);
            memcpy(exact, program, cut);
            tocsin_pickle pickle;
            tocsin_error error = {0};
            assert_int_equal(tocsin_pickle_read(exact, cut, "cut", &pickle, &error),
                             TOCSIN_E_FORMAT);
            assert_in_range(error.offset, 0, cut);
            assert_string_equal(error.where, "cut");
            assert_null(pickle.root);
            tocsin_pickle_free(&pickle);
            tocsin_free(exact);
        }
    }
}

static tocsin_error refused(const char *bytes, size_t count, tocsin_status expected)
{
    tocsin_pickle pickle;
    tocsin_error error = {0};
    tocsin_status status = tocsin_pickle_read(bytes, count, "bad", &pickle, &error);
    if (status != expected)
        fail_msg("status %d, not %d: %s", status, expected, error.message);
    tocsin_pickle_free(&pickle);
    return error;
}

static void hostile_programs(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t count;
        tocsin_status expected;
        int offset;
        const char *message;
    } cases[] = {
        {BYTES(""), TOCSIN_E_FORMAT, 0, "no protocol number at the beginning"},
        {BYTES("tocsin-plan 1\n"), TOCSIN_E_FORMAT, 0, "no protocol number at the beginning"},
        {BYTES("\x80\x01N."), TOCSIN_E_UNSUPPORTED, 0, "only protocols 2 to 5 are read"},
        {BYTES("\x80\x06N."), TOCSIN_E_UNSUPPORTED, 0, "only protocols 2 to 5 are read"},
        {BYTES("\x80\x04\xff."), TOCSIN_E_FORMAT, 2, "unknown opcode 0xff"},
        {BYTES("\x80\x04I1\n."), TOCSIN_E_UNSUPPORTED, 2, "unsupported opcode 0x49"},
        {BYTES("\x80\x04N\x85Q."), TOCSIN_E_UNSUPPORTED, 4, "unsupported opcode 0x51"},
        {BYTES("\x80\x04X\xff\xff\xff\xffhi."), TOCSIN_E_FORMAT, 2,
         "the file ends within an opcode"},
        {BYTES("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xffhi."), TOCSIN_E_FORMAT, 2,
         "the file ends within an opcode"},
        {BYTES("\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7fN."), TOCSIN_E_FORMAT, 2,
         "the file ends within a frame"},
        {BYTES("\x80\x04Nr\xff\xff\xff\xff."), TOCSIN_E_LIMIT, 3,
         "a memo number is out of all proportion"},
        {BYTES("\x80\x04h\x00."), TOCSIN_E_FORMAT, 2, "a memo number that was never set"},
        {BYTES("\x80\x04Nq\x02"
               "0h\x01."),
         TOCSIN_E_FORMAT, 6, "a memo number that was never set"},
        {BYTES("\x80\x04."), TOCSIN_E_FORMAT, 2, "an opcode finds too few values on the stack"},
        {BYTES("\x80\x04N(\x85."), TOCSIN_E_FORMAT, 4,
         "an opcode finds too few values on the stack"},
        {BYTES("\x80\x04t."), TOCSIN_E_FORMAT, 2, "an opcode finds no mark on the stack"},
        {BYTES("\x80\x04NN."), TOCSIN_E_FORMAT, 4, "the pickle ends with more than one value"},
        {BYTES("\x80\x04(N."), TOCSIN_E_FORMAT, 4, "the pickle ends with more than one value"},
        {BYTES("\x80\x04N.N"), TOCSIN_E_FORMAT, 3, "bytes follow the pickle's end"},
        {BYTES("\x80\x04}(Nu."), TOCSIN_E_FORMAT, 5, "a key without a value"},
        {BYTES("\x80\x04(Nd."), TOCSIN_E_FORMAT, 4, "a key without a value"},
        {BYTES("\x80\x04NNa."), TOCSIN_E_FORMAT, 4, "items for a value that cannot hold any"},
        {BYTES("\x80\x04)Na."), TOCSIN_E_FORMAT, 4, "items for a value that cannot hold any"},
        {BYTES("\x80\x04]N)s."), TOCSIN_E_FORMAT, 5, "items for a value that cannot hold any"},
        {BYTES("\x80\x04NNb."), TOCSIN_E_FORMAT, 4, "a state for a value that is no object"},
        {BYTES("\x80\x04NNR."), TOCSIN_E_FORMAT, 4, "the arguments of a call are no tuple"},
        {BYTES("\x80\x04NN\x93."), TOCSIN_E_FORMAT, 4, "the name of a class is no text"},
    };
    for (size_t i = 0; i < TOCSIN_COUNT_OF(cases); ++i) {
        tocsin_error error = refused(cases[i].bytes, cases[i].count, cases[i].expected);
        assert_string_equal(error.message + strlen("pickle: "), cases[i].message);
        assert_int_equal(error.offset, cases[i].offset);
    }
}

/* 10,000 open marks are a limit; a million nested tuples are none: nothing here recurses. */
static void nesting(void **state)
{
    (void)state;
    enum { MARKS = TOCSIN_PICKLE_DEPTH_MAX + 1, TUPLES = 1000000 };
    char *program = tocsin_alloc(TUPLES + 4);
    assert_non_null(program);
    memcpy(program, "\x80\x04N", 3);
    memset(program + 3, '(', MARKS);
    tocsin_error error = refused(program, 3 + MARKS, TOCSIN_E_LIMIT);
    assert_int_equal(error.offset, 3 + TOCSIN_PICKLE_DEPTH_MAX);
    memset(program + 3, 0x85, TUPLES);
    program[3 + TUPLES] = '.';
    tocsin_pickle pickle;
    assert_int_equal(tocsin_pickle_read(program, 4 + TUPLES, "deep", &pickle, NULL), TOCSIN_OK);
    const tocsin_pickle_value *value = pickle.root;
    size_t depth = 0;
    for (; value->kind == TOCSIN_PICKLE_TUPLE; ++depth)
        value = tocsin_pickle_item(value, 0);
    assert_int_equal(depth, TUPLES);
    tocsin_pickle_free(&pickle);
    tocsin_free(program);
}

static void looking_at_values(void **state)
{
    (void)state;
    static const char program[] = "\x80\x04(cmod.sub\nThing\n)\x81}(\x8c\x01xK\x01\x8c\x01yN"
                                  "\x8c\x01xK\x02u}\x8c\x01zK\x03s\x86"
                                  "b](K\x05K\x06"
                                  "e\x8c\x03"
                                  "a\x00"
                                  "bt.";
    tocsin_pickle pickle;
    tocsin_error error = {0};
    if (tocsin_pickle_read(program, sizeof program - 1, "look", &pickle, &error) != TOCSIN_OK)
        fail_msg("%s at %lld", error.message, (long long)error.offset);
    const tocsin_pickle_value *thing = tocsin_pickle_item(pickle.root, 0);
    const tocsin_pickle_value *list = tocsin_pickle_item(pickle.root, 1);
    int64_t number = 0;
    assert_string_equal(tocsin_pickle_class(thing), "Thing");
    assert_true(tocsin_pickle_is(thing, "Thing"));
    assert_false(tocsin_pickle_is(list, "Thing"));
    assert_true(tocsin_pickle_integer(tocsin_pickle_member(thing, "x"), &number));
    assert_int_equal(number, 2); /* the last one wins */
    assert_true(tocsin_pickle_integer(tocsin_pickle_member(thing, "z"), &number));
    assert_int_equal(number, 3); /* the second dict of the pair */
    assert_int_equal(tocsin_pickle_member(thing, "y")->kind, TOCSIN_PICKLE_NONE);
    assert_null(tocsin_pickle_member(thing, "none"));
    assert_int_equal(tocsin_pickle_count(list), 2);
    assert_int_equal(tocsin_pickle_item(list, 1)->integer, 6);
    assert_null(tocsin_pickle_item(list, 2));
    assert_string_equal(tocsin_pickle_text(tocsin_pickle_item(pickle.root, 2)), ""); /* has a 0 */
    assert_null(tocsin_pickle_item(NULL, 0));
    assert_null(tocsin_pickle_member(NULL, "x"));
    assert_string_equal(tocsin_pickle_class(NULL), "");
    assert_false(tocsin_pickle_integer(thing, &number));
    assert_int_equal(tocsin_pickle_count(thing), 0);
    tocsin_pickle_free(&pickle);
}

/* Every sample with one byte changed, in every way: an answer, and no sanitizer's complaint. */
static void changed_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < TOCSIN_COUNT_OF(samples); ++i) {
        unsigned char program[64];
        size_t bytes = assemble(&samples[i], program);
        for (size_t at = 0; at < bytes; ++at) {
            unsigned char kept = program[at];
            for (unsigned change = 1; change < 256; ++change) {
                program[at] = (unsigned char)(kept ^ change);
                tocsin_pickle pickle;
                tocsin_error error = {0};
                tocsin_status status = tocsin_pickle_read(program, bytes, "", &pickle, &error);
                assert_true(status == TOCSIN_OK ? pickle.root != NULL : error.message[0] != 0);
                tocsin_pickle_free(&pickle);
            }
            program[at] = kept;
        }
    }
}

static void memory_runs_out(void **state)
{
    (void)state;
    static const char program[] = "\x80\x04(cm\nA\n)\x81}\x8c\x01xK\x01sb\x94](K\x01K\x02"
                                  "e(K\x03"
                                  "e\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01h\x00t.";
    for (uint64_t nth = 1;; ++nth) {
        tocsin_pickle pickle;
        tocsin_error error = {0};
        tocsin_fault_arm(TOCSIN_FAULT_MEMORY, nth);
        tocsin_status status =
            tocsin_pickle_read(program, sizeof program - 1, "memory", &pickle, &error);
        bool fired = tocsin_fault_disarm(TOCSIN_FAULT_MEMORY);
        tocsin_pickle_free(&pickle);
        if (!fired) {
            assert_int_equal(status, TOCSIN_OK);
            assert_true(nth > 3);
            return;
        }
        assert_int_equal(status, TOCSIN_E_MEMORY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_opcode),      cmocka_unit_test(cut_off_at_every_byte),
        cmocka_unit_test(hostile_programs),  cmocka_unit_test(nesting),
        cmocka_unit_test(looking_at_values), cmocka_unit_test(changed_bytes),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
