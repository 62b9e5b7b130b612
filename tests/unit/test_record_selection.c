/* Selection files: what they may say, and how each mistake is reported. */
#include "cmocka_test.h"
#include <record/record.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char path[] = "/tmp/tocsin-selection-XXXXXX";

static int make_path(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static tocsin_status load(tocsin_selection *selection, const char *text, size_t bytes,
                          tocsin_error *error)
{
    memset(selection, 0, sizeof *selection);
    assert_int_equal(tocsin_file_store(path, text, bytes, true, NULL), TOCSIN_OK);
    return tocsin_selection_load(selection, path, error);
}

static void test_everything_it_may_say(void **state)
{
    (void)state;
    static const char text[] = "tocsin-selection 1 \n"
                               "# a comment\n"
                               "\n"
                               "role loss\n"
                               "  role\toptimizer.step   args \r\n"
                               "role loss args\n"
                               "function torch.relu\n"
                               "function torch.relu args\n"
                               "function b\n"
                               "state backward enter grad presence parameter\n"
                               "state backward enter grad digest parameter\n"
                               "state optimizer.step exit data digest buffer";
    tocsin_selection selection;
    assert_int_equal(load(&selection, text, sizeof text - 1, NULL), TOCSIN_OK);
    assert_int_equal(selection.roles.count, 2);
    assert_int_equal(selection.roles.items[0].role, TOCSIN_ROLE_LOSS);
    assert_true(selection.roles.items[0].arguments);
    assert_int_equal(selection.calls.count, 2);
    assert_true(selection.calls.items[0].arguments);
    assert_false(selection.calls.items[1].arguments);
    assert_int_equal(selection.plan.amount[TOCSIN_ROLE_BACKWARD][0][TOCSIN_ATTRIBUTE_GRAD][0],
                     TOCSIN_SAMPLING_DIGEST);
    assert_int_equal(selection.plan.amount[TOCSIN_ROLE_OPTIMIZER_STEP][1][TOCSIN_ATTRIBUTE_DATA][1],
                     TOCSIN_SAMPLING_DIGEST);
    assert_int_equal(selection.plan.amount[TOCSIN_ROLE_OPTIMIZER_STEP][1][TOCSIN_ATTRIBUTE_DATA][0],
                     TOCSIN_SAMPLING_NONE);
    tocsin_selection_free(&selection);
}

static void test_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        tocsin_status status;
        const char *message;
    } cases[] = {
        {"", TOCSIN_E_FORMAT, "empty selection file"},
        {"selection 1\n", TOCSIN_E_FORMAT, "not a selection file"},
        {"tocsin-selection 2\n", TOCSIN_E_VERSION, "selection file of an unknown version"},
        {"tocsin-selection 1\nrole nonsense\n", TOCSIN_E_FORMAT, "line 2: unknown role"},
        {"tocsin-selection 1\nrole\n", TOCSIN_E_FORMAT, "line 2: expected 'role ROLE [args]'"},
        {"tocsin-selection 1\n\nfunction a b\n", TOCSIN_E_FORMAT,
         "line 3: expected 'function NAME [args]'"},
        {"tocsin-selection 1\nstate backward enter grad digest parameter extra\n", TOCSIN_E_FORMAT,
         "line 2: too many words"},
        {"tocsin-selection 1\nstate backward middle grad digest parameter\n", TOCSIN_E_FORMAT,
         "line 2: expected 'state ROLE enter|exit ATTRIBUTE presence|digest KIND'"},
        {"tocsin-selection 1\nwhatever\n", TOCSIN_E_FORMAT,
         "line 2: expected 'role', 'function' or 'state'"},
    };
    for (size_t i = 0; i < TOCSIN_COUNT_OF(cases); i++) {
        tocsin_selection selection;
        tocsin_error error;
        assert_int_equal(load(&selection, cases[i].text, strlen(cases[i].text), &error),
                         cases[i].status);
        assert_string_equal(error.message, cases[i].message);
        assert_string_equal(error.where, path);
        assert_null(selection.roles.items);
    }
}

static void test_zero_bytes_and_size(void **state)
{
    (void)state;
    tocsin_selection selection;
    tocsin_error error;
    static const char zero[] = "tocsin-selection 1\nrole \0loss\n";
    assert_int_equal(load(&selection, zero, sizeof zero - 1, &error), TOCSIN_E_FORMAT);
    tocsin_string many = {0};
    tocsin_string_append_text(&many, "tocsin-selection 1\n");
    for (int i = 0; i < TOCSIN_SELECTION_LINES_MAX; i++)
        tocsin_string_append_text(&many, "#\n");
    assert_int_equal(load(&selection, many.text, many.bytes, &error), TOCSIN_E_LIMIT);
    while (many.bytes <= TOCSIN_SELECTION_BYTES_MAX)
        tocsin_string_append_text(&many, "# and so on, and so on, and so on, and so on\n");
    assert_int_equal(load(&selection, many.text, many.bytes, &error), TOCSIN_E_LIMIT);
    tocsin_string_free(&many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_it_may_say),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_zero_bytes_and_size),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
