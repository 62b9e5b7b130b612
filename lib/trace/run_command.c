/* run_command.c - which command made a run, as its run.json says. */
#include "base/base.h"

#include <tocsin/run.h>
#include <tocsin/trace.h>

enum { WORDS_MAX = 1 << 16 };

struct tocsin_run_command {
    tocsin_json_value *json; /* has the texts */
    char **words;
};

tocsin_status tocsin_run_command_read(const tocsin_run *run, tocsin_run_command **command,
                                      tocsin_error *error)
{
    const char *text = tocsin_run_json(run), *where = tocsin_run_directory(run);
    *command = NULL;
    tocsin_run_command *made = tocsin_zalloc(1, sizeof *made);
    if (!made)
        return tocsin_error_memory(error);
    tocsin_status status = tocsin_json_parse(text, strlen(text), where, &made->json, error);
    const tocsin_json_value *words = tocsin_json_get_member(made->json, "command");
    size_t count = tocsin_json_get_count(words);
    if (status == TOCSIN_OK &&
        (tocsin_json_get_kind(words) != TOCSIN_JSON_ARRAY || count == 0 || count > WORDS_MAX))
        status = tocsin_error_at(error, TOCSIN_E_FORMAT, where, -1,
                                 "its run.json does not say which command made it");
    if (status == TOCSIN_OK && !(made->words = tocsin_zalloc(count + 1, sizeof *made->words)))
        status = tocsin_error_memory(error);
    for (size_t w = 0; status == TOCSIN_OK && w < count; ++w) {
        const char *word = tocsin_json_get_text(tocsin_json_get_item(words, w));
        made->words[w] = word ? tocsin_copy_text(word, strlen(word)) : NULL;
        if (!made->words[w])
            status = word ? tocsin_error_memory(error)
                          : tocsin_error_at(error, TOCSIN_E_FORMAT, where, -1,
                                            "a word of its command is not a text");
    }
    if (status == TOCSIN_OK)
        *command = made;
    else
        tocsin_run_command_free(made);
    return status;
}

void tocsin_run_command_free(tocsin_run_command *command)
{
    if (!command)
        return;
    for (size_t w = 0; command->words && command->words[w]; ++w)
        tocsin_free(command->words[w]);
    tocsin_free(command->words);
    tocsin_json_free(command->json);
    tocsin_free(command);
}

char *const *tocsin_run_command_words(const tocsin_run_command *command)
{
    return command->words;
}

const char *tocsin_run_command_folder(const tocsin_run_command *command)
{
    const char *folder = tocsin_json_get_text(tocsin_json_get_member(command->json, "cwd"));
    return folder ? folder : "";
}
