/* Statuses as text, and errors that fit whatever is put into them. */
#include "cmocka_test.h"
#include <base/base.h>
#include <errno.h>
#include <stdio.h>

static void every_status_has_a_text(void **state)
{
    (void)state;
#define X(code, name, meaning) assert_string_equal(tocsin_status_text(TOCSIN_##name), meaning);
    TOCSIN_STATUS_TABLE(X)
#undef X
    assert_string_equal(tocsin_status_text((tocsin_status)999), "unknown status");
}

static void an_error_says_what_and_where(void **state)
{
    (void)state;
    tocsin_error error;
    assert_int_equal(tocsin_error_set(&error, TOCSIN_E_LIMIT, "%d of %s", 3, "x"), TOCSIN_E_LIMIT);
    assert_int_equal(error.code, TOCSIN_E_LIMIT);
    assert_string_equal(error.message, "3 of x");
    assert_string_equal(error.where, "");
    assert_int_equal(error.offset, -1);
    assert_int_equal(tocsin_error_at(&error, TOCSIN_E_FORMAT, "file", 17, "bad"), TOCSIN_E_FORMAT);
    assert_string_equal(error.where, "file");
    assert_int_equal(error.offset, 17);
}

static void an_error_may_be_null(void **state)
{
    (void)state;
    assert_int_equal(tocsin_error_set(NULL, TOCSIN_E_IO, "x"), TOCSIN_E_IO);
    assert_int_equal(tocsin_error_at(NULL, TOCSIN_E_IO, NULL, 0, "x"), TOCSIN_E_IO);
    assert_int_equal(tocsin_error_memory(NULL), TOCSIN_E_MEMORY);
    errno = EACCES;
    assert_int_equal(tocsin_error_system(NULL, "open", "x"), TOCSIN_E_IO);
}

static void long_texts_are_cut(void **state)
{
    (void)state;
    char text[2000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    tocsin_error error;
    (void)tocsin_error_at(&error, TOCSIN_E_IO, text, 0, "%s", text);
    assert_int_equal(strlen(error.message), TOCSIN_ERROR_MESSAGE_BYTES - 1);
    assert_int_equal(strlen(error.where), TOCSIN_ERROR_WHERE_BYTES - 1);
}

static void errno_chooses_the_status(void **state)
{
    (void)state;
    static const struct {
        int number;
        tocsin_status status;
    } cases[] = {{ENOENT, TOCSIN_E_NOT_FOUND}, {ENOTDIR, TOCSIN_E_NOT_FOUND},
                 {EEXIST, TOCSIN_E_EXISTS},    {ENOMEM, TOCSIN_E_MEMORY},
                 {EIO, TOCSIN_E_IO},           {ENOSPC, TOCSIN_E_IO}};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(cases); ++i) {
        tocsin_error error;
        errno = cases[i].number;
        assert_int_equal(tocsin_error_system(&error, "open", "/x"), cases[i].status);
        assert_non_null(strstr(error.message, "cannot open: "));
        assert_string_equal(error.where, "/x");
    }
}

static tocsin_status try_twice(tocsin_status first, int *reached)
{
    TOCSIN_TRY(first);
    ++*reached;
    return TOCSIN_E_STATE;
}

static void try_returns_the_first_failure(void **state)
{
    (void)state;
    int reached = 0;
    assert_int_equal(try_twice(TOCSIN_E_IO, &reached), TOCSIN_E_IO);
    assert_int_equal(reached, 0);
    assert_int_equal(try_twice(TOCSIN_OK, &reached), TOCSIN_E_STATE);
    assert_int_equal(reached, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_text),  cmocka_unit_test(an_error_says_what_and_where),
        cmocka_unit_test(an_error_may_be_null),     cmocka_unit_test(long_texts_are_cut),
        cmocka_unit_test(errno_chooses_the_status), cmocka_unit_test(try_returns_the_first_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
