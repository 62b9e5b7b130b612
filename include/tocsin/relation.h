/* tocsin/relation.h - relations of your own, beside those that Tocsin has.
 *
 * A relation looks at the events of a run and makes instances of them: "this update, under these
 * circumstances, did such and such". Inference learns which of these facts always hold, and under
 * which condition; the checker says where one does not. Nothing of that need be known here: a
 * relation only says what it sees. docs/extending.md shows how, examples/relation has two.
 *
 *   1 writing a relation, as a shared library   2 giving relations to inference and checking
 *
 * This header is the whole interface, and a relation links against nothing: what it may call comes
 * with the call that it gets. Its version changes when the meaning of anything here does.
 */
#ifndef TOCSIN_RELATION_H
#define TOCSIN_RELATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <tocsin/dictionary.h>
#include <tocsin/event.h>
#include <tocsin/invariant.h>
#include <tocsin/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 1. Writing a relation ----------------------------------------------------------------- */

#define TOCSIN_RELATION_VERSION 1

/* Calls it wants to hear of: of a role, or of a function by name. */
typedef struct tocsin_relation_call {
    tocsin_role role;     /* NONE: by name */
    const char *function; /* "torch.nn.functional.dropout" */
    bool arguments;       /* `tocsin run` records only what is asked for */
} tocsin_relation_call;

/* States of variables it wants to hear of, read at the start or the end of calls of a role. */
typedef struct tocsin_relation_state {
    tocsin_role role;              /* OPTIMIZER_STEP, BACKWARD, ... */
    tocsin_moment moment;          /* ENTER, EXIT */
    const char *attribute;         /* "data", "grad", ...: tocsin/event.h */
    tocsin_variable_kind variable; /* PARAMETER, BUFFER, ... */
    bool digest;                   /* also digest and statistics */
} tocsin_relation_state;

/* What a callback is about. Everything lives until it returns, names as long as the run. */
typedef struct tocsin_relation_view {
    const tocsin_event *event;           /* NULL in step and finish */
    const tocsin_dictionary *dictionary; /* what its ids mean; NULL in finish */
    size_t process;                      /* number of the process, from 0 */
    int32_t rank;                        /* -1: not distributed */
    int64_t step;         /* training step, from 1; in `step`: the one that is over; finish: -1 */
    const char *function; /* of the innermost open call, in enter and leave of the call itself;
                             "": none */
    tocsin_role role;
    bool completed; /* leave: by return, not by an exception */
} tocsin_relation_view;

/* What a relation may call, from inside a callback: host->fact(host, "..."). An instance is begun,
 * filled and emitted. Names and facts are words for people: printable ASCII, at most 200 bytes.
 *
 *     host->begin(host, "update");                 // of what there is an instance
 *     host->context(host);                         // fields of the call: arg.*, self.*, meta.*
 *     host->field_bool(host, "is_first", true);    // and further ones
 *     if (loss < before)
 *         host->fact(host, "lowers the loss");     // what is true of it
 *     host->emit(host, NULL, "the loss rose");     // what a finding says when it is not
 *
 * reads, in a finding: "NAME: every update lowers the loss".
 *
 * A run may have 256 different subjects, 256 facts, 1024 fields and 4096 texts in fields of one
 * relation; more is an error of the run. */
typedef struct tocsin_relation_host tocsin_relation_host;
struct tocsin_relation_host {
    uint32_t version; /* TOCSIN_RELATION_VERSION */
    void (*begin)(tocsin_relation_host *host, const char *subject);
    void (*context)(tocsin_relation_host *host);
    void (*field_bool)(tocsin_relation_host *host, const char *name, bool value);
    void (*field_int)(tocsin_relation_host *host, const char *name, int64_t value);
    void (*field_real)(tocsin_relation_host *host, const char *name, double value);
    void (*field_text)(tocsin_relation_host *host, const char *name, const char *value);
    void (*fact)(tocsin_relation_host *host, const char *fact);
    /* entity: the variable or function it is about; NULL: the function of the call. detail: what
     * is seen when a fact that should hold does not; NULL: that it does not. */
    void (*emit)(tocsin_relation_host *host, const char *entity, const char *detail);
    /* The relation can not go on: the work on this run ends with this message. */
    void (*fail)(tocsin_relation_host *host, const char *message);
};

typedef void tocsin_relation_callback(void *own, tocsin_relation_host *host,
                                      const tocsin_relation_view *view);

/* A relation. Any callback may be NULL. Several runs are read at the same time, on several threads:
 * what it remembers belongs into `own`, of which there is one a run. */
typedef struct tocsin_relation_definition {
    uint32_t version; /* TOCSIN_RELATION_VERSION */
    const char *name; /* in files and findings: letters a-z, digits and _, at most 64 */
    const tocsin_relation_call *calls;
    size_t call_count;
    const tocsin_relation_state *states;
    size_t state_count;
    const void *context; /* given to open */
    /* Its memory for a run; NULL after host->fail. Without open, `own` is NULL. */
    void *(*open)(const void *context, tocsin_relation_host *host);
    void (*close)(void *own);
    tocsin_relation_callback *enter; /* a call of those begins, */
    tocsin_relation_callback *leave; /* and is over */
    tocsin_relation_callback *state; /* one of those states was read */
    tocsin_relation_callback *meta;  /* a meta variable changed */
    tocsin_relation_callback *step; /* a process ended a training step: forget what belongs to it */
    tocsin_relation_callback *finish; /* no more events will come */
} tocsin_relation_definition;

/* The shared library exports its relation by this name:
 *     TOCSIN_RELATION_EXPORT const tocsin_relation_definition tocsin_relation = {...}; */
#define TOCSIN_RELATION_SYMBOL "tocsin_relation"
#ifdef __cplusplus
#define TOCSIN_RELATION_EXPORT extern "C" TOCSIN_API
#else
#define TOCSIN_RELATION_EXPORT TOCSIN_API
#endif

/* The argument, return or attribute of that name ("p", "return", "self.lr"); NULL: none. */
static inline const tocsin_value *tocsin_relation_value(const tocsin_relation_view *view,
                                                        const char *name)
{
    const tocsin_event *event = view->event;
    for (uint32_t i = 0; event != NULL && i < event->value_count; ++i) {
        const tocsin_value *value = &event->values[i];
        if ((value->flags & TOCSIN_VALUE_IN_SEQUENCE) == 0 &&
            strcmp(view->dictionary->string(view->dictionary->producer, value->name), name) == 0)
            return value;
    }
    return NULL;
}

/* ---- 2. Giving relations to inference and checking ----------------------------------------- */

/* A list of relations. Made by one thread, then read by many. */
typedef struct tocsin_relations tocsin_relations;

TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_relations_new(tocsin_relations **relations,
                                                                tocsin_error *error);
/* Add a relation of this program; the definition is borrowed. Errors: E_VERSION, E_ARGUMENT (a
 * name, role or attribute that does not exist), E_EXISTS (the name is taken), E_LIMIT (more than
 * 32), E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_relations_add(
    tocsin_relations *relations, const tocsin_relation_definition *definition, tocsin_error *error);
/* Add that of a shared library. Its code runs in this process: load what you trust. Further error:
 * E_NOT_FOUND (no such file, no library, or it exports no relation). */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_relations_load(tocsin_relations *relations,
                                                                 const char *path,
                                                                 tocsin_error *error);
/* Add that of a command for /bin/sh, which is started now to be asked what it wants, and for each
 * run to be told its events: docs/extending.md has the protocol. It must answer within timeout_ms
 * (0: a minute). Further errors: E_IO (it does not start, ends too early or does not answer),
 * E_FORMAT. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_relations_start(tocsin_relations *relations,
                                                                  const char *command,
                                                                  uint32_t timeout_ms,
                                                                  tocsin_error *error);
TOCSIN_API size_t tocsin_relations_count(const tocsin_relations *relations);
TOCSIN_API const char *tocsin_relations_name(const tocsin_relations *relations, size_t index);
TOCSIN_API void tocsin_relations_free(tocsin_relations *relations); /* accepts NULL */

/* Invariants of these relations can be judged: a checker of the set evaluates them, and a selection
 * written for it asks for what they need. Without, they are never judged, and the checker says so.
 * Borrowed; they must outlive the set. For inference: tocsin_infer_options.relations. */
TOCSIN_API void tocsin_invariants_use(tocsin_invariant_set *set, const tocsin_relations *relations);

#ifdef __cplusplus
}
#endif
#endif
