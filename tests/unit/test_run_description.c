/* test_run_description.c - run.json as it is written, and the command in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <tocsin/run.h>
#include <tocsin/trace.h>
#include <tocsin/version.h>
#include <unistd.h>

#include "base/base.h"

static char directory[] = "/tmp/tocsin-run-XXXXXX";

static int make_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
    (void)state;
    char path[sizeof directory + sizeof "/run.json"];
    snprintf(path, sizeof path, "%s/run.json", directory);
    unlink(path);
    return rmdir(directory);
}

static const char *const command[] = {"python", "a \"b\".py", "\xff"};

static tocsin_run_description example(void)
{
    return (tocsin_run_description){
        .command = command,
        .command_count = 3,
        .cwd = "/home/u",
        .host = "h",
        .mode = "record",
        .started = 0,
    };
}

static void assert_content(const char *expected)
{
    char path[sizeof directory + sizeof "/run.json"];
    tocsin_string content = {0};
    tocsin_error error;
    snprintf(path, sizeof path, "%s/run.json", directory);
    assert_int_equal(tocsin_file_load(path, 1 << 20, &content, &error), TOCSIN_OK);
    assert_string_equal(content.text, expected);
    tocsin_string_free(&content);
}

static void test_started_then_ended(void **state)
{
    (void)state;
    tocsin_run_description description = example();
    tocsin_error error;
    assert_int_equal(tocsin_run_describe(directory, &description, &error), TOCSIN_OK);
    assert_content("{\"format\":\"tocsin-run\",\"version\":1,\"command\":[\"python\","
                   "\"a \\\"b\\\".py\",\"\xef\xbf\xbd\"],\"cwd\":\"/home/u\",\"host\":\"h\","
                   "\"mode\":\"record\",\"started\":\"1970-01-01T00:00:00Z\","
                   "\"versions\":{\"tocsin\":\"" TOCSIN_VERSION "\"}}\n");
    description.has_ended = true;
    description.ended = 1700000000;
    description.exit_code = 137;
    assert_int_equal(tocsin_run_describe(directory, &description, &error), TOCSIN_OK);
    assert_content("{\"format\":\"tocsin-run\",\"version\":1,\"command\":[\"python\","
                   "\"a \\\"b\\\".py\",\"\xef\xbf\xbd\"],\"cwd\":\"/home/u\",\"host\":\"h\","
                   "\"mode\":\"record\",\"started\":\"1970-01-01T00:00:00Z\","
                   "\"ended\":\"2023-11-14T22:13:20Z\",\"exit\":137,"
                   "\"versions\":{\"tocsin\":\"" TOCSIN_VERSION "\"}}\n");
}

static void test_errors(void **state)
{
    (void)state;
    tocsin_run_description description = example();
    tocsin_error error;
    assert_int_equal(tocsin_run_describe("/nonexistent", &description, &error), TOCSIN_E_NOT_FOUND);
    description.started = -1;
    assert_int_equal(tocsin_run_describe(directory, &description, &error), TOCSIN_E_ARGUMENT);
    description.started = INT64_MAX;
    assert_int_equal(tocsin_run_describe(directory, &description, &error), TOCSIN_E_ARGUMENT);
}

static tocsin_status read_command(const char *json, tocsin_run_command **made, tocsin_error *error)
{
    char path[128];
    tocsin_run *run;
    snprintf(path, sizeof path, "%s/run.json", directory);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(json, file);
    fclose(file);
    assert_int_equal(tocsin_run_open(directory, false, &run, NULL), TOCSIN_OK);
    tocsin_status status = tocsin_run_command_read(run, made, error);
    tocsin_run_close(run);
    return status;
}

/* The command of a run can be run again: its words outlive the run. */
static void test_command(void **state)
{
    (void)state;
    tocsin_run_command *made;
    tocsin_run_description description = example();
    tocsin_run *run;
    assert_int_equal(tocsin_run_describe(directory, &description, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_run_open(directory, false, &run, NULL), TOCSIN_OK);
    assert_int_equal(tocsin_run_command_read(run, &made, NULL), TOCSIN_OK);
    tocsin_run_close(run);
    char *const *words = tocsin_run_command_words(made);
    for (size_t i = 0; i < 2; i++)
        assert_string_equal(words[i], command[i]);
    assert_string_equal(words[2], "\xef\xbf\xbd"); /* it was no UTF-8 */
    assert_null(words[3]);
    assert_string_equal(tocsin_run_command_folder(made), description.cwd);
    tocsin_run_command_free(made);

    static const char *const bad[] = {"", ",\"command\":[]", ",\"command\":\"python\"",
                                      ",\"command\":[\"python\",3]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char json[128];
        tocsin_error error;
        snprintf(json, sizeof json, "{\"format\":\"tocsin-run\",\"version\":1%s}", bad[i]);
        assert_int_equal(read_command(json, &made, &error), TOCSIN_E_FORMAT);
        assert_null(made);
    }
    assert_int_equal(read_command("{\"format\":\"tocsin-run\",\"version\":1,"
                                  "\"command\":[\"true\"]}",
                                  &made, NULL),
                     TOCSIN_OK);
    assert_string_equal(tocsin_run_command_folder(made), "");
    tocsin_run_command_free(made);
}

static void test_every_fault_is_reported(void **state)
{
    (void)state;
    tocsin_run_description description = example();
    for (int kind = 0; kind < TOCSIN_FAULT_COUNT; kind++) {
        for (uint64_t nth = 1;; nth++) {
            tocsin_error error;
            tocsin_fault_arm((tocsin_fault)kind, nth);
            tocsin_status status = tocsin_run_describe(directory, &description, &error);
            if (!tocsin_fault_disarm((tocsin_fault)kind)) {
                assert_int_equal(status, TOCSIN_OK);
                break;
            }
            assert_int_not_equal(status, TOCSIN_OK);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_started_then_ended),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_command),
        cmocka_unit_test(test_every_fault_is_reported),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
