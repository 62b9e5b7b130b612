/* replaying.c - two commands from one checkpoint.
 *
 * What decides bits and only a launcher can set, is set for both alike; what the user has set
 * stays. The list is that of python/tocsin/determinism.py, whose audit a test runs under it.
 */
#include "replaying.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PLACEHOLDER "{ckpt}"

static const cli_launch_variable settings[] = {
    {"PYTHONHASHSEED", "0"},
    {"OMP_NUM_THREADS", "1"},
    {"MKL_NUM_THREADS", "1"},
    {"MKL_CBWR", "COMPATIBLE"},
    {"CUBLAS_WORKSPACE_CONFIG", ":4096:8"},
    {"NCCL_ALGO", "Ring"},
    {"NCCL_PROTO", "Simple"},
    {"NCCL_NVLS_ENABLE", "0"},
    {"NCCL_MIN_NCHANNELS", "4"},
    {"NCCL_MAX_NCHANNELS", "4"},
    {"NVTE_ALLOW_NONDETERMINISTIC_ALGO", "0"},
    {"FLASH_ATTENTION_DETERMINISTIC", "1"},
    {"MAMBA_DETERMINISTIC", "1"},
    {"CAUSAL_CONV1D_DETERMINISTIC", "1"},
};
enum { SETTINGS = sizeof settings / sizeof settings[0] };

/* A copy of the word with the checkpoint in it; NULL: no memory. */
static char *fill_word(const char *word, const char *checkpoint)
{
    size_t bytes = strlen(word) + 1, length = strlen(checkpoint);
    for (const char *at = word; (at = strstr(at, PLACEHOLDER)) != NULL; at++) {
        bytes += length;
    }
    char *filled = malloc(bytes), *out = filled;
    while (filled && *word) {
        if (strncmp(word, PLACEHOLDER, strlen(PLACEHOLDER)) == 0) {
            memcpy(out, checkpoint, length);
            out += length;
            word += strlen(PLACEHOLDER);
        } else {
            *out++ = *word++;
        }
    }
    if (filled) {
        *out = '\0';
    }
    return filled;
}

static void free_words(char **words)
{
    for (size_t i = 0; words && words[i]; i++) {
        free(words[i]);
    }
    free(words);
}

static char **fill_words(char *const *words, const char *checkpoint)
{
    size_t count = 0;
    while (words[count]) {
        count++;
    }
    char **filled = calloc(count + 1, sizeof *filled);
    for (size_t i = 0; filled && i < count; i++) {
        filled[i] = fill_word(words[i], checkpoint);
        if (!filled[i]) {
            free_words(filled);
            return NULL;
        }
    }
    return filled;
}

int cli_replay_record(cli_paired_runs *pair, const char *checkpoint)
{
    char path[PATH_MAX];
    cli_launch_variable variables[SETTINGS + 1];
    if (!realpath(checkpoint, path)) {
        cli_error("cannot read the checkpoint %s: %s", checkpoint, strerror(errno));
        return CLI_INPUT;
    }
    for (size_t i = 0; i < SETTINGS; i++) {
        const char *set = getenv(settings[i].name);
        variables[i] = (cli_launch_variable){settings[i].name, set ? set : settings[i].value};
    }
    variables[SETTINGS] = (cli_launch_variable){"TOCSIN_REPLAY", path};
    char **words[2] = {fill_words(pair->commands[0], path), fill_words(pair->commands[1], path)};
    int result = CLI_INTERNAL;
    if (words[0] && words[1]) {
        pair->commands[0] = words[0];
        pair->commands[1] = words[1];
        pair->variables = variables;
        pair->variable_count = SETTINGS + 1;
        result = cli_paired_runs_record(pair);
        pair->variables = NULL;
        pair->variable_count = 0;
    } else {
        cli_error("out of memory");
    }
    pair->commands[0] = pair->commands[1] = NULL;
    free_words(words[0]);
    free_words(words[1]);
    return result;
}
