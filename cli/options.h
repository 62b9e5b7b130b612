/* options.h - one table per command drives parsing, --help and suggestions. */
#ifndef TOCSIN_CLI_OPTIONS_H
#define TOCSIN_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum cli_option_kind {
    CLI_FLAG,  /* value: bool * */
    CLI_TEXT,  /* value: const char ** */
    CLI_TEXTS, /* value: cli_texts *; the option may be repeated */
    CLI_COUNT, /* value: uint64_t *; decimal */
    CLI_CHOICE /* value: unsigned *, the index of the chosen word of `argument` */
} cli_option_kind;

#define CLI_TEXTS_MAX 64
typedef struct cli_texts {
    const char *items[CLI_TEXTS_MAX];
    size_t count;
} cli_texts;

typedef struct cli_option {
    const char *name; /* without the dashes */
    char letter;      /* 0: none */
    cli_option_kind kind;
    const char *argument; /* as help shows it, "FILE"; for CLI_CHOICE the words: "text|json" */
    const char *help;
    void *value;
} cli_option;

typedef struct cli_usage {
    const char *command;  /* "record" */
    const char *synopsis; /* after the options: "-- COMMAND [ARG]..." */
    const char *about;    /* what it does, lines of at most 80 columns */
    const char *example;  /* one line to copy */
    const cli_option *options;
    size_t option_count;
    bool command_follows; /* the first operand ends the options: what follows is a command */
} cli_usage;

/* Operands are kept in place: the first `count` of `items`. */
typedef struct cli_operands {
    char **items;
    size_t count;
    size_t plain; /* of them before "--" or, where a command follows, before it */
} cli_operands;

typedef struct cli_problem {
    char message[256];
    char hint[256]; /* "" when there is none */
} cli_problem;

typedef enum cli_parsed { CLI_PARSED, CLI_PARSED_HELP, CLI_PARSED_WRONG } cli_parsed;

/* Parse argv[1..] by the table. argv is reordered; options may stand after operands, "--" ends
 * them. `operands` points into argv. */
cli_parsed cli_options_parse(const cli_usage *usage, int argc, char **argv, cli_operands *operands,
                             cli_problem *problem);
void cli_help_print(const cli_usage *usage, FILE *stream);

/* The candidate nearest to `word` by edit distance (insert, delete, replace, swap), or NULL when
 * none is within 2 edits or a third of its length. `next` enumerates: NULL ends. */
const char *cli_suggest(const char *word, const char *(*next)(const void *context, size_t index),
                        const void *context);

#endif
