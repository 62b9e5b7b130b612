/* test_options.c - parsing by an option table, help text and suggestions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

/* The command's parser is not part of the library, so the test compiles it in. */
#include "../../cli/options.c"
#include "../../cli/suggest.c"

typedef struct option_values {
    const char *output;
    cli_texts modules;
    bool force;
    bool quiet;
    uint64_t limit;
    unsigned format;
} option_values;

#define ARGUMENTS_MAX 80

/* Parse `words` (NULL-terminated, without the command's name). */
static cli_parsed parse(option_values *values, bool command_follows, cli_operands *operands,
                        cli_problem *problem, const char *const *words)
{
    static char *argv[ARGUMENTS_MAX + 1];
    static char name[] = "record";
    const cli_option options[] = {
        {"output", 'o', CLI_TEXT, "RUN", "where", &values->output},
        {"module", 'm', CLI_TEXTS, "PACKAGE", "which", &values->modules},
        {"force", 'f', CLI_FLAG, NULL, "replace", &values->force},
        {"quiet", 'q', CLI_FLAG, NULL, "silent", &values->quiet},
        {"limit", 0, CLI_COUNT, "COUNT", "how many", &values->limit},
        {"format", 0, CLI_CHOICE, "text|json|jsonl", "form", &values->format},
    };
    const cli_usage usage = {
        .command = name,
        .synopsis = "RUN",
        .about = "About.",
        .example = "tocsin record",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
        .command_follows = command_follows,
    };
    int argc = 1;
    argv[0] = name;
    for (size_t i = 0; words[i]; i++) {
        assert_true(argc < ARGUMENTS_MAX);
        argv[argc++] = (char *)(uintptr_t)words[i];
    }
    argv[argc] = NULL;
    return cli_options_parse(&usage, argc, argv, operands, problem);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_values_reach_their_places(void **state)
{
    (void)state;
    option_values values = {0};
    cli_operands operands;
    cli_problem problem;
    assert_int_equal(parse(&values, false, &operands, &problem,
                           WORDS("one", "-o", "dir", "--module=a", "-mb", "-qf", "--limit", "12",
                                 "--format", "jsonl", "two")),
                     CLI_PARSED);
    assert_string_equal(values.output, "dir");
    assert_int_equal(values.modules.count, 2);
    assert_string_equal(values.modules.items[0], "a");
    assert_string_equal(values.modules.items[1], "b");
    assert_true(values.force);
    assert_true(values.quiet);
    assert_int_equal(values.limit, 12);
    assert_int_equal(values.format, 2);
    assert_int_equal(operands.count, 2);
    assert_string_equal(operands.items[0], "one");
    assert_string_equal(operands.items[1], "two");
    assert_null(operands.items[2]);
}

static void test_two_dashes_end_the_options(void **state)
{
    (void)state;
    option_values values = {0};
    cli_operands operands;
    cli_problem problem;
    assert_int_equal(
        parse(&values, true, &operands, &problem, WORDS("-f", "--", "python", "-o", "--", "x")),
        CLI_PARSED);
    assert_true(values.force);
    assert_null(values.output);
    assert_int_equal(operands.count, 4);
    assert_string_equal(operands.items[1], "-o");
    assert_string_equal(operands.items[2], "--");
    assert_null(operands.items[4]);
}

static void test_a_command_needs_no_dashes(void **state)
{
    (void)state;
    option_values values = {0};
    cli_operands operands;
    cli_problem problem;
    assert_int_equal(
        parse(&values, true, &operands, &problem, WORDS("-q", "python", "-o", "x", "--help")),
        CLI_PARSED);
    assert_null(values.output);
    assert_int_equal(operands.count, 4);
    assert_string_equal(operands.items[0], "python");
}

static void test_a_single_dash_is_an_operand(void **state)
{
    (void)state;
    option_values values = {0};
    cli_operands operands;
    cli_problem problem;
    assert_int_equal(parse(&values, false, &operands, &problem, WORDS("-", "-o", "-")), CLI_PARSED);
    assert_string_equal(values.output, "-");
    assert_int_equal(operands.count, 1);
    assert_string_equal(operands.items[0], "-");
}

static void test_help_is_always_there(void **state)
{
    (void)state;
    option_values values = {0};
    cli_operands operands;
    cli_problem problem;
    assert_int_equal(parse(&values, false, &operands, &problem, WORDS("--help")), CLI_PARSED_HELP);
    assert_int_equal(parse(&values, true, &operands, &problem, WORDS("-qh")), CLI_PARSED_HELP);
}

static void test_problems_name_the_option(void **state)
{
    (void)state;
    static const struct {
        const char *words[3];
        const char *message;
        const char *hint;
    } cases[] = {
        {{"--outptu", "x"}, "unknown option --outptu of tocsin record", "did you mean --output?"},
        {{"--formt=x"}, "unknown option --formt=x of tocsin record", "did you mean --format?"},
        {{"--hlep"}, "unknown option --hlep of tocsin record", "did you mean --help?"},
        {{"--zebra"}, "unknown option --zebra of tocsin record", "tocsin record --help"},
        {{"-x"}, "unknown option -x of tocsin record", "tocsin record --help"},
        {{"--output"}, "option --output needs RUN", "tocsin record --help"},
        {{"-fo"}, "option --output needs RUN", "tocsin record --help"},
        {{"--force=1"}, "option --force takes no value", "tocsin record --help"},
        {{"--limit", "-3"}, "option --limit needs a whole number that is not negative", NULL},
        {{"--limit", "3k"}, "option --limit needs a whole number that is not negative", NULL},
        {{"--limit", ""}, "option --limit needs a whole number that is not negative", NULL},
        {{"--limit", "18446744073709551616"},
         "option --limit needs a whole number that is not negative",
         NULL},
        {{"--format", "tex"},
         "option --format does not accept 'tex' (it accepts text|json|jsonl)",
         NULL},
        {{"--format", "text|json"},
         "option --format does not accept 'text|json' (it accepts text|json|jsonl)",
         NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        option_values values = {0};
        cli_operands operands;
        cli_problem problem;
        assert_int_equal(parse(&values, false, &operands, &problem, cases[i].words),
                         CLI_PARSED_WRONG);
        assert_string_equal(problem.message, cases[i].message);
        if (cases[i].hint) {
            assert_string_equal(problem.hint, cases[i].hint);
        }
    }
}

static void test_repeats_are_limited(void **state)
{
    (void)state;
    option_values values = {0};
    cli_operands operands;
    cli_problem problem;
    const char *words[CLI_TEXTS_MAX + 2] = {0};
    for (size_t i = 0; i < CLI_TEXTS_MAX; i++) {
        words[i] = "-mx";
    }
    assert_int_equal(parse(&values, false, &operands, &problem, words), CLI_PARSED);
    memset(&values, 0, sizeof values);
    words[CLI_TEXTS_MAX] = "-mx";
    assert_int_equal(parse(&values, false, &operands, &problem, words), CLI_PARSED_WRONG);
    assert_non_null(strstr(problem.message, "more often than 64 times"));
}

static void test_long_hostile_words_are_cut(void **state)
{
    (void)state;
    option_values values = {0};
    cli_operands operands;
    cli_problem problem;
    char word[5000];
    memset(word, 'a', sizeof word - 1);
    word[0] = word[1] = '-';
    word[sizeof word - 1] = '\0';
    assert_int_equal(parse(&values, false, &operands, &problem, WORDS(word)), CLI_PARSED_WRONG);
    assert_true(strlen(problem.message) < sizeof problem.message);
    assert_int_equal(parse(&values, false, &operands, &problem, WORDS("--format", word)),
                     CLI_PARSED_WRONG);
}

static void test_help_shows_every_option(void **state)
{
    (void)state;
    bool flag = false;
    const char *text = NULL;
    const cli_option options[] = {
        {"quiet", 'q', CLI_FLAG, NULL, "silent", &flag},
        {"a-rather-long-option", 0, CLI_TEXT, "ARGUMENT", "wraps", &text},
    };
    const cli_usage usage = {"show", "FILE", "About.", "tocsin show x", options, 2, false};
    char *printed = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&printed, &bytes);
    assert_non_null(stream);
    cli_help_print(&usage, stream);
    assert_int_equal(fclose(stream), 0);
    assert_string_equal(printed, "usage: tocsin show [OPTION]... FILE\n"
                                 "\n"
                                 "About.\n"
                                 "\n"
                                 "  -q, --quiet               silent\n"
                                 "      --a-rather-long-option ARGUMENT\n"
                                 "                            wraps\n"
                                 "  -h, --help                print this\n"
                                 "\n"
                                 "example: tocsin show x\n");
    free(printed);
}

static const char *next_word(const void *context, size_t index)
{
    const char *const *words = context;
    return words[index];
}

static void test_suggestions(void **state)
{
    (void)state;
    const char *const words[] = {"record", "run", "infer", "check", "explain", NULL};
    assert_string_equal(cli_suggest("recrod", next_word, words), "record");
    assert_string_equal(cli_suggest("rcord", next_word, words), "record");
    assert_string_equal(cli_suggest("chekc", next_word, words), "check");
    assert_string_equal(cli_suggest("explian", next_word, words), "explain");
    assert_string_equal(cli_suggest("rum", next_word, words), "run");
    assert_null(cli_suggest("verify", next_word, words));
    assert_null(cli_suggest("", next_word, words));
    assert_null(cli_suggest("ab", next_word, words));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_reach_their_places),
        cmocka_unit_test(test_two_dashes_end_the_options),
        cmocka_unit_test(test_a_command_needs_no_dashes),
        cmocka_unit_test(test_a_single_dash_is_an_operand),
        cmocka_unit_test(test_help_is_always_there),
        cmocka_unit_test(test_problems_name_the_option),
        cmocka_unit_test(test_repeats_are_limited),
        cmocka_unit_test(test_long_hostile_words_are_cut),
        cmocka_unit_test(test_help_shows_every_option),
        cmocka_unit_test(test_suggestions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
