/* options.c - parsing of a command's arguments by its option table, and its help.
 *
 * Every command has the option -h, --help besides its own. The parser writes through the table's
 * value pointers and prints nothing; operands are moved to the front of argv.
 * Cost: O(arguments * options).
 */
#include "options.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HELP_COLUMN 28

typedef struct option_parser {
    const cli_usage *usage;
    int argc;
    char **argv;
    int next; /* index of the argument to read next */
    cli_problem *problem;
} option_parser;

/* ---- look-up ------------------------------------------------------------------------------- */

static const cli_option *find_long(const cli_usage *usage, const char *name, size_t length)
{
    for (size_t i = 0; i < usage->option_count; i++) {
        const char *known = usage->options[i].name;
        if (strlen(known) == length && memcmp(known, name, length) == 0) {
            return &usage->options[i];
        }
    }
    return NULL;
}

static const cli_option *find_letter(const cli_usage *usage, char letter)
{
    for (size_t i = 0; i < usage->option_count; i++) {
        if (usage->options[i].letter == letter) {
            return &usage->options[i];
        }
    }
    return NULL;
}

static const char *next_option_name(const void *context, size_t index)
{
    const cli_usage *usage = context;
    if (index == usage->option_count) {
        return "help";
    }
    return index < usage->option_count ? usage->options[index].name : NULL;
}

/* ---- problems ------------------------------------------------------------------------------ */

static cli_parsed unknown_option(const option_parser *parser, const char *word)
{
    cli_problem *problem = parser->problem;
    snprintf(problem->message, sizeof problem->message, "unknown option %.100s of tocsin %s", word,
             parser->usage->command);

    char name[128];
    snprintf(name, sizeof name, "%s", word + strspn(word, "-"));
    name[strcspn(name, "=")] = '\0';
    const char *suggestion =
        word[1] == '-' ? cli_suggest(name, next_option_name, parser->usage) : NULL;
    if (suggestion) {
        snprintf(problem->hint, sizeof problem->hint, "did you mean --%s?", suggestion);
    } else {
        snprintf(problem->hint, sizeof problem->hint, "tocsin %s --help", parser->usage->command);
    }
    return CLI_PARSED_WRONG;
}

static cli_parsed wrong_value(const option_parser *parser, const cli_option *option,
                              const char *reason)
{
    snprintf(parser->problem->message, sizeof parser->problem->message, "option --%s %s",
             option->name, reason);
    snprintf(parser->problem->hint, sizeof parser->problem->hint, "tocsin %s --help",
             parser->usage->command);
    return CLI_PARSED_WRONG;
}

/* ---- values -------------------------------------------------------------------------------- */

/* Index of `word` in "text|json", or -1. */
static int choice_index(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (int index = 0;; index++) {
        size_t choice_length = strcspn(words, "|");
        if (choice_length == length && memcmp(words, word, length) == 0) {
            return index;
        }
        if (words[choice_length] == '\0') {
            return -1;
        }
        words += choice_length + 1;
    }
}

static cli_parsed set_choice(const option_parser *parser, const cli_option *option,
                             const char *text)
{
    int index = choice_index(option->argument, text);
    if (index < 0) {
        char reason[200];
        snprintf(reason, sizeof reason, "does not accept '%.60s' (it accepts %s)", text,
                 option->argument);
        return wrong_value(parser, option, reason);
    }
    *(unsigned *)option->value = (unsigned)index;
    return CLI_PARSED;
}

static cli_parsed set_count(const option_parser *parser, const cli_option *option, const char *text)
{
    char *end = NULL;
    errno = 0;
    unsigned long long count = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno == ERANGE) {
        return wrong_value(parser, option, "needs a whole number that is not negative");
    }
    *(uint64_t *)option->value = count;
    return CLI_PARSED;
}

static cli_parsed set_value(const option_parser *parser, const cli_option *option, const char *text)
{
    assert(text);
    switch (option->kind) {
    case CLI_TEXT:
        *(const char **)option->value = text;
        return CLI_PARSED;
    case CLI_TEXTS: {
        cli_texts *texts = option->value;
        if (texts->count == CLI_TEXTS_MAX) {
            return wrong_value(parser, option, "was given more often than 64 times");
        }
        texts->items[texts->count++] = text;
        return CLI_PARSED;
    }
    case CLI_COUNT:
        return set_count(parser, option, text);
    case CLI_CHOICE:
        return set_choice(parser, option, text);
    case CLI_FLAG:
        break;
    }
    assert(option->kind != CLI_FLAG);
    return CLI_PARSED_WRONG;
}

/* `attached` is what followed '=' or the letter; NULL: the value is the next argument. */
static cli_parsed take_value(option_parser *parser, const cli_option *option, const char *attached)
{
    if (option->kind == CLI_FLAG) {
        if (attached) {
            return wrong_value(parser, option, "takes no value");
        }
        *(bool *)option->value = true;
        return CLI_PARSED;
    }
    if (!attached) {
        if (parser->next == parser->argc) {
            char reason[100];
            snprintf(reason, sizeof reason, "needs %s", option->argument);
            return wrong_value(parser, option, reason);
        }
        attached = parser->argv[parser->next++];
    }
    return set_value(parser, option, attached);
}

/* ---- words --------------------------------------------------------------------------------- */

static cli_parsed parse_long(option_parser *parser, const char *word)
{
    const char *name = word + 2;
    size_t length = strcspn(name, "=");

    if (strcmp(name, "help") == 0) {
        return CLI_PARSED_HELP;
    }
    const cli_option *option = find_long(parser->usage, name, length);
    if (!option) {
        return unknown_option(parser, word);
    }
    return take_value(parser, option, name[length] == '=' ? name + length + 1 : NULL);
}

/* "-qo RUN" and "-oRUN": letters of flags may be joined, the last may carry its value. */
static cli_parsed parse_letters(option_parser *parser, const char *word)
{
    for (const char *letter = word + 1; *letter; letter++) {
        if (*letter == 'h') {
            return CLI_PARSED_HELP;
        }
        const cli_option *option = find_letter(parser->usage, *letter);
        if (!option) {
            return unknown_option(parser, word);
        }
        if (option->kind != CLI_FLAG) {
            return take_value(parser, option, letter[1] ? letter + 1 : NULL);
        }
        *(bool *)option->value = true;
    }
    return CLI_PARSED;
}

cli_parsed cli_options_parse(const cli_usage *usage, int argc, char **argv, cli_operands *operands,
                             cli_problem *problem)
{
    assert(argc >= 1);
    assert(usage && operands && problem);
    option_parser parser = {usage, argc, argv, 1, problem};

    *problem = (cli_problem){0};
    *operands = (cli_operands){.items = argv + 1};
    while (parser.next < argc) {
        char *word = argv[parser.next++];
        bool ends_options = strcmp(word, "--") == 0;
        bool is_operand = word[0] != '-' || word[1] == '\0';
        if (ends_options || (is_operand && usage->command_follows)) {
            parser.next -= !ends_options;
            break;
        }
        if (is_operand) {
            operands->items[operands->count++] = word;
            continue;
        }
        cli_parsed parsed =
            word[1] == '-' ? parse_long(&parser, word) : parse_letters(&parser, word);
        if (parsed != CLI_PARSED) {
            return parsed;
        }
    }
    operands->plain = operands->count;
    while (parser.next < argc) {
        operands->items[operands->count++] = argv[parser.next++];
    }
    operands->items[operands->count] = argv[argc]; /* NULL, so that it can be executed */
    return CLI_PARSED;
}

/* ---- help ---------------------------------------------------------------------------------- */

static void print_option(const char *letter, const char *name, const char *argument,
                         const char *help, FILE *stream)
{
    char left[128];
    int width = snprintf(left, sizeof left, "  %s--%s%s%s", letter, name, argument ? " " : "",
                         argument ? argument : "");
    if (width < HELP_COLUMN - 1) {
        fprintf(stream, "%-*s%s\n", HELP_COLUMN, left, help);
    } else {
        fprintf(stream, "%s\n%*s%s\n", left, HELP_COLUMN, "", help);
    }
}

void cli_help_print(const cli_usage *usage, FILE *stream)
{
    assert(usage && stream);
    fprintf(stream, "usage: tocsin %s%s%s%s\n\n%s\n\n", usage->command,
            usage->option_count ? " [OPTION]..." : "", usage->synopsis[0] ? " " : "",
            usage->synopsis, usage->about);
    for (size_t i = 0; i < usage->option_count; i++) {
        const cli_option *option = &usage->options[i];
        char letter[] = {'-', option->letter, ',', ' ', '\0'};
        print_option(option->letter ? letter : "    ", option->name, option->argument, option->help,
                     stream);
    }
    print_option("-h, ", "help", NULL, "print this", stream);
    fprintf(stream, "\nexample: %s\n", usage->example);
}
