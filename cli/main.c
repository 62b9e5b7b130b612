/* main.c - the command `tocsin`: the table of commands, its overview and dispatch. */
#include "cli.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <tocsin/version.h>

typedef struct cli_command {
    const char *name;
    int (*run)(int argc, char **argv);
} cli_command;

static int cmd_help(int argc, char **argv);
static int cmd_version(int argc, char **argv);

static const cli_command commands[] = {
    {"record", cmd_record},     {"run", cmd_run},         {"infer", cmd_infer},
    {"show", cmd_show},         {"check", cmd_check},     {"info", cmd_info},
    {"dump", cmd_dump},         {"explain", cmd_explain}, {"help", cmd_help},
    {"version", cmd_version},   {"verify", cmd_verify},   {"plan", cmd_plan},
    {"suppress", cmd_suppress}, {"filter", cmd_filter},   {"merge", cmd_merge},
    {"diff", cmd_diff},         {"import", cmd_import},   {"export", cmd_export},
    {"align", cmd_align},       {"env", cmd_env},         {"inject", cmd_inject},
    {"guard", cmd_guard},
};

static const char overview[] =
    "Tocsin makes silent training errors loud: it proves parallel plans before a run,\n"
    "learns from healthy runs what must always hold, and checks runs as they train.\n"
    "  prove   verify   is a parallel plan the same maths as its logical model?\n"
    "          plan     print a plan, or export one from PyTorch\n"
    "  learn   record   run a training script and record what it does\n"
    "          infer    healthy recordings -> invariants\n"
    "          show     print invariants, each in one sentence\n"
    "  watch   run      run a training script and check it while it trains\n"
    "          check    check a recording, finished or still growing; inject a fault\n"
    "  look    align    where two runs part first; env what makes them comparable\n"
    "          info     what is in a recording or a file of invariants; dump its events\n"
    "          explain  what a finding's code means; guard what tocsin.Guard found\n"
    "  manage  filter merge diff suppress   sets; import export   files of TrainCheck\n"
    "example: tocsin record -o healthy -- python train.py && tocsin infer healthy -o inv.jsonl\n"
    "help:    tocsin COMMAND --help\n";

static const char *next_command_name(const void *context, size_t index)
{
    (void)context;
    return index < sizeof commands / sizeof commands[0] ? commands[index].name : NULL;
}

static const cli_command *find_command(const char *name)
{
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(commands[i].name, name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

static int unknown_command(const char *name)
{
    cli_error("unknown %s '%s'", name[0] == '-' ? "option" : "command", name);
    const char *suggestion = cli_suggest(name + strspn(name, "-"), next_command_name, NULL);
    if (suggestion) {
        cli_hint("did you mean tocsin %s?", suggestion);
    } else {
        cli_hint("tocsin help");
    }
    return CLI_INPUT;
}

static int cmd_version(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    puts("tocsin " TOCSIN_VERSION);
    return CLI_HOLDS;
}

static int cmd_help(int argc, char **argv)
{
    if (argc < 2) {
        fputs(overview, stdout);
        return CLI_HOLDS;
    }
    const cli_command *command = find_command(argv[1]);
    if (!command) {
        return unknown_command(argv[1]);
    }
    if (command->run == cmd_help || command->run == cmd_version) {
        fputs(overview, stdout);
        return CLI_HOLDS;
    }
    char help[] = "--help";
    char *arguments[] = {argv[1], help, NULL};
    return command->run(2, arguments);
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0) {
        return cmd_help(1, argv);
    }
    if (strcmp(argv[1], "--version") == 0) {
        return cmd_version(1, argv);
    }
    const cli_command *command = find_command(argv[1]);
    return command ? command->run(argc - 1, argv + 1) : unknown_command(argv[1]);
}

int main(int argc, char **argv)
{
    int exit_code = dispatch(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        cli_error("cannot write to the standard output");
        return exit_code == CLI_HOLDS ? CLI_INPUT : exit_code;
    }
    return exit_code;
}
