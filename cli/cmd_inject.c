/* cmd_inject.c - `tocsin inject`: start a command into whose processes a fault is put.
 *
 * The fault is one more in TOCSIN_INJECT, behind those that are there already, and the folder that
 * lets each Python look at it is put in front of PYTHONPATH; then this process becomes the command.
 * Whether a fault makes sense in all its parts is said by the package (python/tocsin/injection.py).
 */
#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch.h"
#include "packages.h"

#define FAULTS_BYTES 65536

typedef struct cli_word {
    const char *name;
    const char *about;
} cli_word;

static const cli_word places[] = {
    {"gradient", "of a parameter, on this rank; --late: after it was averaged over ranks"},
    {"activation", "the first tensor that a module returns"},
    {"input", "the first tensor that a module is given"},
    {"weight", "before the model is called; --late: after the backward pass"},
    {"optimizer", "its state, named PARAMETER#KEY"},
    {"batch", "the first tensor that a DataLoader hands over"},
    {"generator", "torch's, seeded anew before the module is called"},
    {"collective", "what this rank gives to one; --late: what it receives"},
    {"checkpoint", "a tensor on its way into a file; --late: the file's bytes"},
    {0},
};

static const cli_word patterns[] = {
    {"bit", "one bit of one element"},
    {"warp", "the same bit of 8 elements, 32 apart"},
    {"tile", "the same bit in a block of 4 x 8"},
    {"rows", "two different rows are swapped"},
    {"sign", "of one element"},
    {"scale", "one element times VALUE (10000)"},
    {"stuck", "one element is VALUE (1)"},
    {"nan", "one element is NaN"},
    {"reorder", "rounded as if a sum had come in another order"},
    {"rounded", "through bfloat16 and back"},
    {"rescale", "everything times VALUE (1.01)"},
    {"roll", "by one along the last axis"},
    {0},
};

enum { PLACE, NAME, PATTERN, ELEMENT, VALUE, LOG, TEXTS };

typedef struct cli_fault {
    const char *texts[TEXTS];       /* NULL: not given */
    uint64_t step, rank, seed, bit; /* UINT64_MAX: not given */
    bool persistent, late, all_calls;
} cli_fault;

static const char *const text_names[TEXTS] = {"place",   "name",  "pattern",
                                              "element", "value", "log"};

static int list(void)
{
    puts("places");
    for (const cli_word *word = places; word->name; word++) {
        printf("  %-12s%s\n", word->name, word->about);
    }
    puts("patterns");
    for (const cli_word *word = patterns; word->name; word++) {
        printf("  %-12s%s\n", word->name, word->about);
    }
    return CLI_HOLDS;
}

static const char *next_word(const void *context, size_t index)
{
    return ((const cli_word *)context)[index].name;
}

static bool is_one_of(const cli_word *words, const char *what, const char *text)
{
    for (const cli_word *word = words; word->name; word++) {
        if (strcmp(word->name, text) == 0) {
            return true;
        }
    }
    const char *suggestion = cli_suggest(text, next_word, words);
    cli_error("--%s: there is no %s '%.64s'", what, what, text);
    if (suggestion) {
        cli_hint("did you mean %s?", suggestion);
    } else {
        cli_hint("tocsin inject --list");
    }
    return false;
}

static bool is_complete(const cli_fault *fault)
{
    if (!fault->texts[PLACE] || fault->step == 0) {
        cli_error("%s", fault->texts[PLACE] ? "--step: the first step is 1" : "no place");
        cli_hint("tocsin inject --place gradient --name layer.weight --step 3 -- COMMAND");
        return false;
    }
    if (!is_one_of(places, "place", fault->texts[PLACE]) ||
        (fault->texts[PATTERN] && !is_one_of(patterns, "pattern", fault->texts[PATTERN]))) {
        return false;
    }
    for (size_t i = 0; i < TEXTS; i++) {
        if (fault->texts[i] && strpbrk(fault->texts[i], "';")) {
            cli_error("--%s: ' and ; cannot stand in it", text_names[i]);
            return false;
        }
    }
    return true;
}

/* One more "place='gradient' step=3" at the end of text. */
static bool write_fault(const cli_fault *fault, char *text, size_t bytes)
{
    FILE *stream = fmemopen(text, bytes, "w");
    if (!stream) {
        return false;
    }
    const char *inherited = getenv("TOCSIN_INJECT");
    if (inherited && inherited[0]) {
        fprintf(stream, "%s; ", inherited);
    }
    fprintf(stream, "step=%" PRIu64, fault->step);
    for (size_t i = 0; i < TEXTS; i++) {
        if (fault->texts[i]) {
            fprintf(stream, " %s='%s'", text_names[i], fault->texts[i]);
        }
    }
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {{"rank", fault->rank}, {"seed", fault->seed}, {"bit", fault->bit}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (numbers[i].value != UINT64_MAX) {
            fprintf(stream, " %s=%" PRIu64, numbers[i].name, numbers[i].value);
        }
    }
    fprintf(stream, "%s%s%s", fault->persistent ? " persistent=1" : "",
            fault->late ? " late=1" : "", fault->all_calls ? " calls=all" : "");
    bool fits = fflush(stream) == 0 && !ferror(stream);
    return fclose(stream) == 0 && fits && strlen(text) + 1 < bytes;
}

static int become(const cli_fault *fault, char **command)
{
    static char faults[FAULTS_BYTES], path[CLI_PYTHON_PATH_BYTES];
    char folder[PATH_MAX];
    tocsin_error error;
    if (cli_launch_check(command, &error) != TOCSIN_OK) {
        return cli_fail(&error);
    }
    int result = cli_inject_folder(folder);
    if (result == CLI_HOLDS) {
        result = cli_lead_python_path(folder, path);
    }
    if (result != CLI_HOLDS) {
        return result;
    }
    if (!write_fault(fault, faults, sizeof faults) || setenv("TOCSIN_INJECT", faults, 1) != 0 ||
        setenv("PYTHONPATH", path, 1) != 0) {
        cli_error("the environment variable TOCSIN_INJECT would be too long");
        return CLI_INPUT;
    }
    execvp(command[0], command);
    cli_error("cannot execute %s: %s", command[0], strerror(errno));
    return CLI_INPUT;
}

int cmd_inject(int argc, char **argv)
{
    cli_fault fault = {.rank = UINT64_MAX, .seed = UINT64_MAX, .bit = UINT64_MAX};
    bool lists = false;
    const cli_option options[] = {
        {"place", 'p', CLI_TEXT, "PLACE", "where: see --list", &fault.texts[PLACE]},
        {"name", 'n', CLI_TEXT, "NAME", "of the parameter, module or function", &fault.texts[NAME]},
        {"step", 's', CLI_COUNT, "N", "in this training step, from 1", &fault.step},
        {"pattern", 0, CLI_TEXT, "PATTERN", "what happens to the bits (bit)",
         &fault.texts[PATTERN]},
        {"rank", 'r', CLI_COUNT, "N", "on this rank alone (on each)", &fault.rank},
        {"persistent", 0, CLI_FLAG, NULL, "in each step from there on", &fault.persistent},
        {"all-calls", 0, CLI_FLAG, NULL, "in each call, not only the first in a step",
         &fault.all_calls},
        {"late", 0, CLI_FLAG, NULL, "see --list", &fault.late},
        {"seed", 0, CLI_COUNT, "N", "chooses elements and bits", &fault.seed},
        {"element", 0, CLI_TEXT, "I,J", "this element", &fault.texts[ELEMENT]},
        {"bit", 0, CLI_COUNT, "N", "this bit", &fault.bit},
        {"value", 0, CLI_TEXT, "X", "of scale, stuck and rescale", &fault.texts[VALUE]},
        {"log", 0, CLI_TEXT, "FILE", "append what was changed as JSON lines (stderr)",
         &fault.texts[LOG]},
        {"list", 'l', CLI_FLAG, NULL, "print places and patterns", &lists},
    };
    const cli_usage usage = {
        .command = "inject",
        .synopsis = "-- COMMAND [ARGUMENT]...",
        .about = "Run a training command and put a fault into it, to see what finds it. Each\n"
                 "process that does so says so on stderr. The command may be tocsin itself:\n"
                 "record, run, or inject for one more fault.",
        .example = "tocsin inject -p weight -n head.weight -s 3 -r 1 -- torchrun train.py",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
        .command_follows = true,
    };
    cli_operands command;
    int exit_code;
    if (cli_options_end(&usage, argc, argv, &command, &exit_code)) {
        return exit_code;
    }
    if (lists) {
        return list();
    }
    if (!is_complete(&fault)) {
        return CLI_INPUT;
    }
    if (command.count == 0) {
        cli_error("no command to inject a fault into");
        cli_hint("tocsin inject --place gradient --name layer.weight --step 3 -- COMMAND");
        return CLI_INPUT;
    }
    return become(&fault, command.items);
}
