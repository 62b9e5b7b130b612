/* lib/invariant/plugin.h - the user's relations from inside: the list, and relations that are
 * commands. tocsin/relation.h is the interface. Inside the module only. */
#ifndef TOCSIN_PLUGIN_H
#define TOCSIN_PLUGIN_H

#include <base/base.h>
#include <tocsin/relation.h>

#define TOCSIN_PLUGINS_MAX           32 /* sets of them are 32-bit masks */
#define TOCSIN_PLUGIN_NAME_BYTES_MAX 64
#define TOCSIN_PLUGIN_TEXT_BYTES_MAX 200
#define TOCSIN_PLUGIN_WANTS_MAX      256 /* calls, and states, that one asks for */

typedef struct tocsin_command tocsin_command; /* plugin_command.c */

typedef struct tocsin_plugin {
    const tocsin_relation_definition *definition;
    void *library;           /* of dlopen; NULL: none */
    tocsin_command *command; /* owns the definition; NULL: none */
} tocsin_plugin;

struct tocsin_relations {
    TOCSIN_VEC(tocsin_plugin) items;
};

/* ---- plugin_list.c ------------------------------------------------------------------------- */

/* Can it be the name of a relation; of a subject, fact or field? */
bool tocsin_plugin_is_name(const char *text);
bool tocsin_plugin_is_text(const char *text);
/* Is this the name of one of its populations, "relation/subject"? */
bool tocsin_plugin_owns(const tocsin_relation_definition *definition, const char *population);
/* The relation of a population; NULL: it is not among them, or `relations` is NULL. */
const tocsin_relation_definition *tocsin_relations_of(const tocsin_relations *relations,
                                                      const char *population);

/* ---- plugin_command.c: a relation that is a command ----------------------------------------- */

TOCSIN_MUST_CHECK tocsin_status tocsin_command_new(const char *command, uint32_t timeout_ms,
                                                   tocsin_command **made, tocsin_error *error);
const tocsin_relation_definition *tocsin_command_definition(const tocsin_command *command);
void tocsin_command_free(tocsin_command *command);

/* Make the instances of an answer, one line without its end. E_FORMAT: it is no answer. */
TOCSIN_MUST_CHECK tocsin_status tocsin_command_answer(tocsin_relation_host *host, const char *name,
                                                      const char *line, size_t bytes,
                                                      tocsin_error *error);

/* ---- plugin_process.c: a process that is spoken with by lines -------------------------------- */

typedef struct tocsin_dialogue {
    const char *command; /* borrowed */
    uint32_t timeout_ms;
    int fd; /* its stdin and stdout; -1: none */
    pid_t pid;
    tocsin_string received; /* not taken so far */
    size_t taken;           /* of `received`: the last line */
    bool failed;
} tocsin_dialogue;

/* Start the command; `dialogue` may be ended after a failure. Errors: E_IO, E_MEMORY. */
TOCSIN_MUST_CHECK tocsin_status tocsin_dialogue_begin(tocsin_dialogue *dialogue,
                                                      const char *command, uint32_t timeout_ms,
                                                      tocsin_error *error);
/* Say a line (with its end) and get the answer, valid until the next call. E_IO: the process is
 * gone or silent; E_LIMIT: its line is too long. */
TOCSIN_MUST_CHECK tocsin_status tocsin_dialogue_ask(tocsin_dialogue *dialogue, const char *line,
                                                    size_t bytes, const char **answer,
                                                    size_t *answer_bytes, tocsin_error *error);
/* Let it end, or end it; after a failure at once. */
void tocsin_dialogue_end(tocsin_dialogue *dialogue);

#endif
